//! Anthropic Messages, streamed and whole.
//!
//! Signed thinking is kept as it came and sent back; the places up to which a prompt may be cached
//! are marked.

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

/// Name of the protocol in opaque parts of a reply.
pub(crate) const PROTOCOL: &str = "anthropic";

#[cfg(test)]
mod tests;
