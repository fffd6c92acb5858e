//! Checkpoints of the workspace: stores the files below the roots in a git object store of posse's
//! own, compares stored states, and restores them.
//!
//! git is used as a store only. It runs in a private git folder, gets the content of files from
//! posse over a pipe, and never opens a file or a repository of the workspace: so no hook, filter,
//! attribute or setting of a repository has an effect
//! ([ADR 0050](../../docs/adr/0050-checkpoints-are-written-by-git-fast-import-and-git-never-sees-the-workspace.md)).

pub mod store;
pub mod tool;

mod cache;
mod entry;
mod git;
mod names;
mod plan;
mod record;
mod repositories;
mod session;
mod walk;
mod writer;

pub use plan::{ChangeKind, ChangedFile, RestoreChoice, RestorePlan, Retention};
/// Name of the folder of a store, in that of the project or the session.
pub const FOLDER: &str = "checkpoints";

pub use record::{Checkpoint, LeftOut, Trigger};
pub use session::SessionStore;
pub use store::{NewCheckpoint, Restored, Store, StoreError, unavailable};
