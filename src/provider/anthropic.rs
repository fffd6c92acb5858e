//! Anthropic Messages dialect, for streamed and whole replies.
//!
//! Signed thinking is stored and sent back unchanged. Requests contain cache breakpoints: the
//! positions up to which the server may cache the request.

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

/// Name of the protocol in the owner of opaque parts of a reply (see `opaque.rs`). Journals contain
/// it.
pub(crate) const PROTOCOL: &str = "anthropic";

#[cfg(test)]
mod tests;
