//! Stub.
/// Stub.
#[derive(Debug)]
pub struct OpenCall;
/// Stub.
#[derive(Debug)]
pub struct Replayed;
/// Stub.
pub fn replay() {}
