//! Chat Completions dialect, for streamed and whole replies.
//!
//! Differences between vendors are in the profile. Data that a vendor requires again with a call,
//! such as signed thinking, is stored and sent back unchanged.

pub(crate) mod encode;
mod frame;
pub(crate) mod reply;
mod wire;

/// Name of the protocol in the owner of opaque parts of a reply (see `opaque.rs`). Journals contain
/// it.
pub(crate) const PROTOCOL: &str = "openai-compatible";

#[cfg(test)]
mod tests;
