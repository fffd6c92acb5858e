//! `OpenAI` Responses dialect, streamed and whole, without server-side storage.
//!
//! Encrypted thinking is kept and sent back unchanged. With the login of the Codex program the body
//! contains some further fields ([`crate::codex`]).

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

/// Name of the protocol in opaque parts of a reply.
pub(crate) const PROTOCOL: &str = "openai-responses";

#[cfg(test)]
mod tests;
