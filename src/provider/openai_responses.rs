//! `OpenAI` Responses dialect, for streamed and whole replies, without server-side storage.
//!
//! Encrypted thinking is stored and sent back unchanged. With the login of the Codex program,
//! requests contain some further fields ([`crate::codex`]).

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

/// Name of the protocol in the owner of opaque parts of a reply (see `opaque.rs`). Journals contain
/// it.
pub(crate) const PROTOCOL: &str = "openai-responses";

#[cfg(test)]
mod tests;
