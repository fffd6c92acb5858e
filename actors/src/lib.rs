//! The kernel of posse: vocabulary, supervised actors, and ports.
//!
//! A model requests work; a policy decides whether it may happen; tools do it; an append-only
//! journal records everything. Actors form one supervision tree under
//! [`RootSession`](root_session), so cancellation, the order of permission requests and crash
//! isolation come from that tree and not from locks.
//!
//! The kernel uses no HTTP, terminal, file system, environment, process or wall clock. It accesses
//! the outside world through traits in [`ports`]; the root package `posse` implements them.
//!
//! The modules are declared below by layer, lowest first: basis, vocabulary, events and records,
//! ports, logic without actors, actors. A module uses only layers below its own; `KERNEL_LAYERS` in
//! `tests/it/tidy.rs` lists the permitted order within a layer.

#![forbid(unsafe_code)]
#![warn(clippy::wildcard_enum_match_arm)]

mod digest;
mod guarded;
mod mailbox;
mod restarts;
mod testing_seam;
pub mod text;

pub mod conversation;
pub mod cost;
pub mod outcome;

pub mod event;

pub mod ports;

pub mod compaction;
pub mod context;
pub mod delegation;
pub mod governor;
pub mod ledger;
pub mod limits;
pub mod replay;
pub mod skills;
pub mod subscription;

pub mod agent_invocation;
pub mod permission_coordinator;
pub mod provider_client;
pub mod root_session;
pub mod tool_call;
pub mod transcript_writer;

mod hook_events;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
