//! Built-in tools.
//!
//! Each tool states exactly what a call would do before the call runs. Permission is decided
//! elsewhere.

pub mod edit_file;
pub mod list_dir;
pub mod multi_edit;
pub mod read_file;
pub mod write_file;

pub mod bash;
pub mod glob;
pub mod grep;

pub mod agent_diff;
pub mod agent_merge;

pub mod budget;
pub mod jobs;
pub mod listing;
pub mod reads;
pub mod recall;
pub mod spill;
pub mod workspace;
pub mod worktree;

mod atomic;
mod change;
mod diff;
mod digest;
mod output;
mod refusal;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use posse_actors::ports::{SideEffect, ToolError, ToolOutput, ToolSpec, Toolbox};
use posse_actors::tool_call::PermittedCall;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::images::ImageLimits;
use crate::sandbox::{Sandbox, Written};
use crate::tools::budget::Budgets;
use crate::tools::jobs::Jobs;
use crate::tools::reads::ReadTable;
use crate::tools::workspace::Workspace;

/// Largest file, in bytes, that is read on the calling task. Larger files go to a blocking thread.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Default limit of concurrent background commands.
const JOBS_MAX: usize = 8;

/// State and settings that all tools of a session share.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct ToolEnvironment {
    /// Folders that tools may access.
    pub workspace: Workspace,
    /// Session folder: spilled outputs go below `outputs/`, before-images below `blobs/`.
    pub session_dir: PathBuf,
    /// If true, tools report changes without making them.
    pub dry_run: bool,
    /// If true, an edit may match a text that differs in trailing blanks, quotes, dashes or kinds
    /// of spaces, provided that there is only one such text.
    pub fuzzy_edit: bool,
    /// If true, a file must be read before it is changed.
    pub require_read: bool,
    /// If true, a repeated read of an unchanged file returns a reference to the earlier call.
    pub dedup_reads: bool,
    /// Absolute paths that may be read although their names look like secrets.
    pub readable_secrets: Vec<PathBuf>,
    /// Limits for images.
    pub images: ImageLimits,
    /// Record of reads and writes, per agent and file.
    pub reads: ReadTable,
    /// Output budgets of the run.
    pub budgets: Arc<Budgets>,
    /// Background commands.
    pub jobs: Arc<Jobs>,
    /// Lookup of earlier tool results and of the conversation.
    pub recall: recall::Recall,
    /// Log of all file changes by tools. The protected-file check reads it to tell them from
    /// changes by commands.
    pub written: Written,
}

impl ToolEnvironment {
    /// Creates an environment with default settings.
    pub fn new(workspace: Workspace, session_dir: PathBuf) -> ToolEnvironment {
        ToolEnvironment {
            workspace,
            session_dir,
            dry_run: false,
            fuzzy_edit: false,
            require_read: false,
            dedup_reads: true,
            readable_secrets: Vec::new(),
            images: ImageLimits::default(),
            reads: ReadTable::default(),
            budgets: Arc::default(),
            jobs: Arc::new(Jobs::new(JOBS_MAX)),
            recall: recall::Recall::default(),
            written: Written::default(),
        }
    }
}

/// Names of the built-in tools.
pub const NAMES: [&str; 10] = [
    "bash",
    "edit_file",
    "glob",
    "grep",
    "job_output",
    "job_stop",
    "list_dir",
    "multi_edit",
    "read_file",
    "write_file",
];

/// All built-in tools. Commands run in `sandbox`.
pub fn builtin(env: Arc<ToolEnvironment>, sandbox: Arc<Sandbox>) -> Toolbox {
    let budgets = Arc::clone(&env.budgets);
    let of_jobs = if env.jobs.is_closed() { Vec::new() } else { jobs::tools(&env) };
    let tools = [
        // File tools.
        read_file::tool(Arc::clone(&env)),
        list_dir::tool(Arc::clone(&env)),
        write_file::tool(Arc::clone(&env)),
        edit_file::tool(Arc::clone(&env)),
        multi_edit::tool(Arc::clone(&env)),
        // Search and command tools.
        grep::tool(Arc::clone(&env)),
        glob::tool(Arc::clone(&env)),
        bash::tool(env, sandbox),
    ];
    let mut toolbox = Toolbox::default();
    for tool in tools.into_iter().chain(of_jobs) {
        let taken = toolbox.register(budget::within(&budgets, tool)).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
    toolbox
}

/// Builds the specification of a built-in tool for the model.
pub(crate) fn spec(
    name: &str,
    description: &str,
    side_effect: SideEffect,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({ "type": "object", "properties": properties, "required": required }),
        side_effect,
        source: "builtin".to_owned(),
    }
}

/// Deserializes arguments that already match their schema.
pub(crate) fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| ToolError::new("ARG001", error.to_string()))
}

/// The payload that the tool's `prepare` attached to the call.
#[expect(clippy::expect_used, reason = "a permitted call carries what its own tool prepared")]
pub(crate) fn payload<T: 'static>(call: PermittedCall) -> T {
    *call.into_payload().downcast().expect("the payload is of the tool that prepared it")
}

/// Runs `work` on a blocking thread. A panic is resumed in the caller.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down; the caller is dropped, too.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs `work` on files of `size` bytes: inline if they are small, else like [`blocking`].
pub(crate) async fn sized<T: Send + 'static>(
    size: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if size <= SMALL_BYTES { work() } else { blocking(work).await }
}

/// Runs `work` and records its duration.
pub(crate) fn timed(work: impl FnOnce() -> ToolOutput) -> ToolOutput {
    let start = Instant::now();
    let output = work();
    ToolOutput { duration: start.elapsed(), ..output }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
