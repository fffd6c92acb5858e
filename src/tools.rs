//! The tools that come with posse.
//!
//! Each says exactly what a call would do before it does it. None of them decides whether it may.

pub mod bash;
pub mod glob;
pub mod grep;
pub mod listing;
pub mod secrets;
pub mod spill;
pub mod workspace;

mod digest;
mod output;
#[cfg(test)]
mod trial;

use std::path::PathBuf;
use std::sync::Arc;

use posse_actors::ports::{Tool, Toolbox};

use crate::tools::workspace::Workspace;

/// What all tools of a session share.
#[derive(Debug)]
pub struct ToolEnvironment {
    /// Where they may reach.
    pub workspace: Workspace,
    /// The session's own folder: spilled outputs go below `outputs/`, before-images below
    /// `blobs/`.
    pub session_dir: PathBuf,
    /// Whether tools only say what they would change.
    pub dry_run: bool,
}

/// Every built-in tool, ready to be called.
pub fn builtin(_env: Arc<ToolEnvironment>) -> Toolbox {
    // Tools that only look or that change files, then those that search and those that run.
    let tools: Vec<Arc<dyn Tool>> = vec![];
    let mut toolbox = Toolbox::default();
    for tool in tools {
        let taken = toolbox.register(tool).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
    toolbox
}
