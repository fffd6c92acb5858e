//! Conversations between actors, played with stand-ins for the world.
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap")]

/// One prompt, from the user to the answer.
mod turns;
