//! Built-in tools.
//!
//! Each describes the exact effect of a call before it runs. None decides about permission.

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
pub mod builtin_tool;
pub mod jobs;
pub mod listing;
pub mod reads;
pub mod spill;
pub mod stored_output;
pub mod workspace;
pub mod worktree;

mod atomic_write;
mod change;
mod diff;
mod digest;
mod output;
mod refusal;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use posse_actors::ports::{
    Action, CommandPath, Operation, Prepared, ToolAnnotations, ToolError, ToolSpec, Toolbox,
};
use posse_images::ImageLimits;
use posse_sandbox::{Sandbox, ToolWrites};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::budget::Budgets;
use crate::jobs::Jobs;
use crate::reads::ReadTable;
use crate::workspace::Workspace;

/// Largest file, in bytes, that is read on the calling task. Larger files go to a blocking thread.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Default maximum number of running background jobs.
const JOBS_MAX: usize = 8;

/// State shared by all tools of a session.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct ToolEnvironment {
    /// Accessible roots.
    pub workspace: Workspace,
    /// Session folder: spilled outputs go below `outputs/`, before-images below `blobs/`.
    pub session_dir: PathBuf,
    /// True if tools only describe their changes.
    pub dry_run: bool,
    /// True if an edit may match a text that differs in trailing blanks, quotes, dashes or kinds of
    /// spaces, if there is only one.
    pub fuzzy_edit: bool,
    /// True if a file must be read before it is changed.
    pub require_read: bool,
    /// True if unchanged content is referenced instead of shown again.
    pub dedup_reads: bool,
    /// Absolute paths that may be read although their names look like secrets.
    pub readable_secrets: Vec<PathBuf>,
    /// Limits of an image.
    pub images: ImageLimits,
    /// Reads and writes so far.
    pub reads: Arc<ReadTable>,
    /// Tool budgets of a run.
    pub budgets: Arc<Budgets>,
    /// Background commands.
    pub jobs: Arc<Jobs>,
    /// Outputs and messages that the session remembers.
    pub recall: stored_output::Recall,
    /// Registry of file changes, for checks of parallel commands.
    pub written: ToolWrites,
    /// Reads commands as the policy does.
    pub commands: CommandReader,
}

/// Functions that read a command as the policy does.
///
/// Each takes the command, its working directory and the home folder of the user, if it is known.
#[derive(Debug, Clone)]
pub struct CommandReader {
    /// Returns the paths that the command names, whose links are resolved before it is judged.
    pub paths: fn(&str, &str, Option<&str>) -> Vec<CommandPath>,
    /// Returns the programs that the command runs, each with its arguments.
    pub programs: fn(&str, &str, Option<&str>) -> Vec<Vec<String>>,
    /// The home folder of the user, if it is known.
    pub home: Option<String>,
}

impl CommandReader {
    /// Paths of `command`.
    fn paths(&self, command: &str, cwd: &str) -> Vec<CommandPath> {
        (self.paths)(command, cwd, self.home.as_deref())
    }

    /// Programs of `command` with their arguments.
    fn programs(&self, command: &str, cwd: &str) -> Vec<Vec<String>> {
        (self.programs)(command, cwd, self.home.as_deref())
    }
}

impl ToolEnvironment {
    /// Environment with default settings.
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
            reads: Arc::default(),
            budgets: Arc::default(),
            jobs: Arc::new(Jobs::new(JOBS_MAX)),
            recall: stored_output::Recall::default(),
            written: ToolWrites::default(),
            // Without a policy that reads commands there are no grants either.
            commands: CommandReader {
                paths: |_, _, _| Vec::new(),
                programs: |_, _, _| Vec::new(),
                home: None,
            },
        }
    }
}

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

/// Specification of a built-in tool.
pub fn spec(
    name: &str,
    description: &str,
    annotations: ToolAnnotations,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({ "type": "object", "properties": properties, "required": required }),
        side_effect: annotations.access.side_effect(),
        source: "builtin".to_owned(),
        annotations,
    }
}

/// Deserializes arguments that already match their schema.
pub(crate) fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| ToolError::new("ARG001", error.to_string()))
}

/// A call of `tool` with these operations. `words`: summary, and detail for a person.
pub(crate) fn prepared<T: Send + 'static>(
    tool: &str,
    operations: Vec<Operation>,
    words: (String, String),
    digest: String,
    payload: T,
) -> Prepared {
    let (tool, (summary, detail)) = (tool.to_owned(), words);
    let action = Action { tool, operations, summary, detail, digest };
    Prepared { action, payload: Box::new(payload) }
}

/// Runs `work` on a blocking thread. A panic continues in the caller.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down; the result is not needed.
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

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
