//! Shared basics: errors and exit codes, hexadecimal text, names and redaction of secrets, and
//! protected file names.

pub mod failure;
pub mod hex;
pub mod protected;
pub mod secrets;
