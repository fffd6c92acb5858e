//! Where sessions are kept: `session.jsonl` with its hash chain, segments and repair, and what
//! `posse sessions` shows of it.
//!
//! The journal is the truth. Nothing here keeps an index on disk, so nothing can disagree with it.

pub mod commands;
pub mod export;
pub mod remove;
pub mod state;

mod format;
mod lock;
mod memory;
mod read;
mod scan;
mod segments;
mod standing;
mod store;
mod summary;
mod transcript;
mod verify;
mod writer;

pub use memory::MemoryJournal;
pub use read::{replayed, whole_session};
pub use standing::{has_begun, last_change};
pub use state::{StateDir, new_session_id};
pub use store::FileJournal;
pub use summary::{SessionState, SessionSummary};
pub use verify::{Problem, Verified, verify_session};
