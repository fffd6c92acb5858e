//! The kernel of posse: the vocabulary, the supervised actors, and the ports they reach the
//! world through.
//!
//! A model asks for work; a policy decides whether it may happen; tools do it; an append-only
//! journal remembers everything. Everything that is alive here is an actor in one supervision
//! tree under [`RootSession`](root_session), so cancelling, the order of permission questions and
//! the isolation of crashes come from that tree and not from locks.
//!
//! The kernel knows no HTTP, no terminal, no file system, no environment, no process and no wall
//! clock. What it needs of the world it names as a trait in [`ports`]; the root package `posse`
//! implements them.

#![forbid(unsafe_code)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod compaction;
pub mod context;
pub mod conversation;
pub mod event;
pub mod ledger;
pub mod limits;
pub mod record;
pub mod skills;

pub mod ports;

pub mod delegation;
pub mod governor;
pub mod root_session;

pub mod agent_invocation;
pub mod permission_coordinator;
pub mod provider_client;
pub mod tool_call;
pub mod transcript_writer;

mod hex;
mod hook_events;
mod mailbox;
mod restarts;
mod testing_seam;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
