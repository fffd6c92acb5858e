//! Built-in tools of the model.
//!
//! Each tool computes the exact effect of a call before the call runs. The policy, not the tool,
//! decides about permission.

pub mod edit_file;
pub mod list_dir;
pub mod multi_edit;
pub mod read_file;
pub mod write_file;

pub mod bash;
pub mod glob;
pub mod grep;

pub mod ask_user;
pub mod present_plan;
pub mod todo_write;

pub mod agent_diff;
pub mod agent_merge;

pub mod budget;
pub mod builtin_tool;
pub mod diff;
pub mod jobs;
pub mod listing;
pub mod reads;
pub mod spill;
pub mod stored_output;
pub mod trial_diff;
pub mod workspace;
pub mod worktree;

mod atomic_write;
mod change;
pub mod committed_secrets;
mod digest;
mod git_patch;
mod output;
mod refusal;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posse_actors::ports::{
    Action, CommandOutput, CommandPath, Operation, PathLink, Prepared, ToolAnnotations, ToolError,
    ToolSpec, Toolbox,
};
use posse_base::path_globs::PathGlobs;
use posse_base::secrets::readable::ReadableSecrets;
use posse_base::threads;
use posse_egress::Egress;
use posse_images::ImageLimits;
use posse_sandbox::{CoveredSecret, Sandbox, ToolWrites};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::budget::Budgets;
use crate::committed_secrets::ReadingTool;
use crate::jobs::Jobs;
use crate::reads::ReadTable;
use crate::workspace::Workspace;

/// Maximum size of a file that is read, edited or written on the calling task, in bytes. A larger
/// file is processed on a blocking thread.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Default maximum number of running background jobs.
const JOBS_MAX: usize = 8;

/// State shared by all tools of a session.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct ToolEnvironment {
    /// Root folders that the tools may access.
    pub workspace: Workspace,
    /// Session folder: spilled outputs go below `outputs/`, before-images below `blobs/`.
    pub session_dir: PathBuf,
    /// True if tools describe their changes and commands without performing them.
    pub dry_run: bool,
    /// True if an edit without an exact match may replace a text that differs only in trailing
    /// blanks, quotes, dashes or kinds of spaces. There must be only one such text.
    pub fuzzy_edit: bool,
    /// True if an agent must read a file before it changes the file.
    pub require_read: bool,
    /// True if a repeated read of unchanged content returns, once, a reference to the earlier call
    /// instead of the content.
    pub dedup_reads: bool,
    /// Absolute paths that may be read although their names look like secrets.
    pub readable_secrets: ReadableSecrets,
    /// Paths that the tools which walk through folders leave out.
    pub denied_reads: DeniedReads,
    /// Limits of the images that `read_file` shows.
    pub images: ImageLimits,
    /// File versions that each agent has read or written.
    pub reads: Arc<ReadTable>,
    /// Tool budgets of a run: limits of calls per tool and of output bytes per turn.
    pub budgets: Arc<Budgets>,
    /// Background jobs of the session.
    pub jobs: Arc<Jobs>,
    /// Connections that commands missed without network and of which the user knows already.
    pub told_offline: Arc<Mutex<BTreeSet<String>>>,
    /// Secrets of which each agent knows, by the key of `CallContext::reader`, that its commands do
    /// not see them as they are.
    pub told_secrets: Arc<Mutex<BTreeSet<(String, CoveredSecret)>>>,
    /// Time limits of commands.
    pub timeouts: CommandTimeouts,
    /// Lookup of earlier outputs and messages of the session, for `read_file output:…`.
    pub recall: stored_output::Recall,
    /// Registry of the file changes of tools. The check of protected files after a command uses it
    /// to tell these changes from changes by the command.
    pub written: ToolWrites,
    /// Proxy of the session for commands with network by domain. `None`: no command has one.
    pub egress: Option<Arc<Egress>>,
    /// Functions that find the paths and the programs in a shell command, as the policy does.
    pub commands: CommandReader,
}

/// Name and rule group of the tool that reads a file.
pub const READ_FILE: (&str, &str) = (read_file::NAME, read_file::GROUP);

/// Paths that deny rules keep from the tools which walk through folders. A call that names such a path
/// is denied by the policy; in a walk, the tool itself leaves it out.
#[derive(Debug, Clone, Default)]
pub struct DeniedReads {
    /// Files that `read_file` does not read. Instruction files among them are not read either.
    pub read_file: PathGlobs,
    /// Files that `grep` does not search.
    pub grep: PathGlobs,
    /// Files that `glob` does not list.
    pub glob: PathGlobs,
    /// Entries that `list_dir` does not list.
    pub list_dir: PathGlobs,
}

impl DeniedReads {
    /// Returns the paths as `denied` tells them for the name and the rule group of each tool.
    pub fn new<E>(denied: impl Fn(&str, &str) -> Result<PathGlobs, E>) -> Result<DeniedReads, E> {
        Ok(DeniedReads {
            read_file: denied(READ_FILE.0, READ_FILE.1)?,
            grep: denied(grep::NAME, grep::GROUP)?,
            glob: denied(glob::NAME, glob::GROUP)?,
            list_dir: denied(list_dir::NAME, list_dir::GROUP)?,
        })
    }

    /// Returns the same paths for tools in the folder `copy`, a copy of the folder `original`.
    #[must_use]
    pub fn in_copy(&self, copy: &Path, original: &Path) -> DeniedReads {
        DeniedReads {
            read_file: self.read_file.in_copy(copy, original),
            grep: self.grep.in_copy(copy, original),
            glob: self.glob.in_copy(copy, original),
            list_dir: self.list_dir.in_copy(copy, original),
        }
    }
}

/// Note that `count` paths, named by `one` and `many`, were left out of a result because of deny
/// rules.
pub(crate) fn left_out(count: usize, one: &str, many: &str) -> String {
    format!("[{} left out: deny rules cover them]", posse_base::count(count, one, many))
}

/// Time limits of the commands of `bash` that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTimeouts {
    /// Limit without a request. A command that exceeds it continues as a background job, if those
    /// are enabled, and is ended otherwise.
    pub default: Duration,
    /// Longest limit that a call may request.
    pub maximum: Duration,
}

impl Default for CommandTimeouts {
    fn default() -> CommandTimeouts {
        CommandTimeouts { default: Duration::from_mins(2), maximum: Duration::from_mins(10) }
    }
}

/// Functions that find the paths and the programs in a shell command, as the policy does.
///
/// Each function takes the command, its working directory and the home folder of the user, if it is
/// known.
#[derive(Debug, Clone)]
pub struct CommandReader {
    /// Returns the paths that the command names. The caller resolves their symbolic links before
    /// the policy judges the command.
    pub paths: fn(&str, &str, Option<&str>) -> Vec<CommandPath>,
    /// Returns the programs that the command runs, each with its arguments.
    pub programs: fn(&str, &str, Option<&str>) -> Vec<Vec<String>>,
    /// Returns the absolute paths that the command may replace, with the links in its paths.
    pub outputs: fn(&str, &str, Option<&str>, &[PathLink]) -> Vec<CommandOutput>,
    /// Returns the absolute paths that the command deletes; `None` if its words do not name all of
    /// them, or if it destroys in another way as well.
    pub deletions: fn(&str, &str, Option<&str>) -> Option<Vec<String>>,
    /// Home folder of the user; `None` if it is unknown.
    pub home: Option<String>,
}

impl CommandReader {
    /// Creates a reader of these functions, for the user with this home folder.
    pub fn new(
        paths: fn(&str, &str, Option<&str>) -> Vec<CommandPath>,
        programs: fn(&str, &str, Option<&str>) -> Vec<Vec<String>>,
        outputs: fn(&str, &str, Option<&str>, &[PathLink]) -> Vec<CommandOutput>,
        deletions: fn(&str, &str, Option<&str>) -> Option<Vec<String>>,
        home: Option<String>,
    ) -> CommandReader {
        CommandReader { paths, programs, outputs, deletions, home }
    }

    /// Returns the paths that `command` names in the working directory `cwd`.
    fn paths(&self, command: &str, cwd: &str) -> Vec<CommandPath> {
        (self.paths)(command, cwd, self.home.as_deref())
    }

    /// Returns the paths that `command`, with `links` in its paths, may replace in the working
    /// directory `cwd`.
    fn outputs(&self, command: &str, cwd: &str, links: &[PathLink]) -> Vec<CommandOutput> {
        (self.outputs)(command, cwd, self.home.as_deref(), links)
    }

    /// Returns the files that `command` deletes in the working directory `cwd`, if its words name
    /// all of them.
    fn deletions(&self, command: &str, cwd: &str) -> Option<Vec<String>> {
        (self.deletions)(command, cwd, self.home.as_deref())
    }

    /// Returns the programs that `command` runs in the working directory `cwd`, each with its
    /// arguments.
    fn programs(&self, command: &str, cwd: &str) -> Vec<Vec<String>> {
        (self.programs)(command, cwd, self.home.as_deref())
    }
}

impl ToolEnvironment {
    /// Creates an environment with default settings. Its command reader finds no paths and no
    /// programs.
    pub fn new(workspace: Workspace, session_dir: PathBuf) -> ToolEnvironment {
        ToolEnvironment {
            workspace,
            session_dir,
            dry_run: false,
            fuzzy_edit: false,
            require_read: false,
            dedup_reads: true,
            readable_secrets: ReadableSecrets::default(),
            denied_reads: DeniedReads::default(),
            images: ImageLimits::default(),
            reads: Arc::default(),
            budgets: Arc::default(),
            jobs: Arc::new(Jobs::new(JOBS_MAX)),
            told_offline: Arc::default(),
            told_secrets: Arc::default(),
            timeouts: CommandTimeouts::default(),
            recall: stored_output::Recall::default(),
            written: ToolWrites::default(),
            egress: None,
            // Without a policy that reads commands there are no grants either.
            commands: CommandReader {
                paths: |_, _, _| Vec::new(),
                programs: |_, _, _| Vec::new(),
                outputs: |_, _, _, _| Vec::new(),
                deletions: |_, _, _| None,
                home: None,
            },
        }
    }
}

/// Names of the built-in tools, whose calls are counted for their budgets. The job tools, and the
/// tools for worktrees, are not part of every session.
pub const NAMES: [&str; 15] = [
    "read_file",
    "list_dir",
    "write_file",
    "edit_file",
    "multi_edit",
    "grep",
    "glob",
    "bash",
    ask_user::NAME,
    present_plan::NAME,
    todo_write::NAME,
    "job_output",
    "job_stop",
    posse_actors::delegation::DIFF,
    posse_actors::delegation::MERGE,
];

/// Creates all built-in tools except `agent_diff` and `agent_merge`, and wraps them with their
/// budgets. The job tools are left out if background jobs are disabled. Commands run in `sandbox`.
pub fn builtin(env: Arc<ToolEnvironment>, sandbox: Arc<Sandbox>) -> Toolbox {
    let budgets = Arc::clone(&env.budgets);
    let of_jobs = if env.jobs.is_closed() { Vec::new() } else { jobs::tools(&env) };
    let reading = ReadingTool::new(Arc::clone(&env), &sandbox);
    let tools = [
        // File tools.
        read_file::tool(Arc::clone(&reading)),
        list_dir::tool(Arc::clone(&env)),
        write_file::tool(Arc::clone(&reading)),
        edit_file::tool(Arc::clone(&reading)),
        multi_edit::tool(Arc::clone(&reading)),
        // Search and command tools.
        grep::tool(reading),
        glob::tool(Arc::clone(&env)),
        bash::tool(env, sandbox),
        // Tools for the user.
        ask_user::tool(),
        present_plan::tool(),
        todo_write::tool(),
    ];
    let mut toolbox = Toolbox::default();
    for tool in tools.into_iter().chain(of_jobs) {
        let taken = toolbox.register(budget::within(&budgets, tool)).is_err();
        debug_assert!(!taken, "built-in tools have names of their own");
    }
    toolbox
}

/// Creates the specification of a built-in tool. `properties` and `required` are members of the
/// JSON schema of its arguments.
pub fn spec(
    name: &str,
    description: &str,
    annotations: ToolAnnotations,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    let mut parameters = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        parameters["required"] = json!(required);
    }
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        side_effect: annotations.access.side_effect(),
        source: "builtin".to_owned(),
        annotations,
    }
}

/// Deserializes `arguments`, which the kernel has already validated against the schema of the tool.
/// A mismatch is the error `ARG001`.
pub(crate) fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| ToolError::new("ARG001", error.to_string()))
}

/// Creates the prepared call of `tool` whose `operations` the policy judges. `words` are the
/// summary and the detail for a person, `digest` identifies the effect, and `payload` is the value
/// for the run.
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

/// Runs `work` on another thread, or here if there is none, and returns its result. A panic of `work`
/// continues in the caller. Dropping the future does not stop `work`.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = threads::run(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work`, which processes `size` bytes: on the calling task up to `SMALL_BYTES`, otherwise on
/// a blocking thread.
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
