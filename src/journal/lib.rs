//! Session storage: the journal `session.jsonl` with its hash chain, segments and repair, and the
//! output of `posse sessions`.
//!
//! The journal is the source of truth. The fold cache is a cache, used only if the hash chain
//! proves that it belongs to the journal.

pub mod commands;
pub mod cost;
pub mod export;
pub mod remembered;
pub mod remove;
pub mod state;

mod damaged_tail;
mod fold_cache;
mod format;
mod last_prompts;
mod lock;
mod memory;
mod read;
mod recovery;
mod scan;
mod segments;
mod session_state;
mod steps;
mod store;
mod summary;
mod transcript;
mod verify;
mod walk;
mod writer;

/// File name of the attach socket in the folder of a session.
pub const SOCKET: &str = "attach.sock";

pub use last_prompts::{LastPrompts, last_prompts};
pub use lock::stopped_owner;
pub use memory::MemoryJournal;
pub use read::{replayed, until, whole_session};
pub use scan::Damage;
pub use session_state::{SessionState, has_begun, last_change, owner};
pub use state::{StateDir, new_session_id};
pub use store::{FileJournal, Folded};
pub use summary::SessionSummary;
pub use transcript::formatted_time;
pub use verify::{Problem, Verified, verify_session};
