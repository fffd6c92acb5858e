//! Stub.
/// An observer's end.
#[derive(Debug)]
pub struct Subscription;
pub(crate) struct Feed;
pub(crate) struct Publisher;
