//! Shared basics: errors and exit codes, hexadecimal text, names and redaction of secrets,
//! protected file names, and paths as text.

pub mod failure;
pub mod hex;
pub mod paths;
pub mod protected;
pub mod secrets;
