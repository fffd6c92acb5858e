//! Command line as plain values: reads no file and guesses nothing.
//!
//! A misspelled subcommand is an error with a suggestion. Features that this version does not have
//! are errors that say so: no flag is accepted without effect.

mod args;
mod authority;
mod directory;
mod later;
mod usage_error;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::{Value, json};

pub use authority::{GrantsAction, GrantsArgs, TrustAction, TrustArgs};
pub use directory::working_directory;

use crate::failure::{Exit, Failure};

/// Parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// `posse run`, `posse exec`, `posse -p`.
    Run(Box<RunArgs>),
    /// `posse resume`, `posse -c`.
    Resume(Box<RunArgs>),
    /// `posse attach`.
    Attach(AttachArgs),
    /// `posse demo`.
    Demo(DemoArgs),
    /// `posse sessions …`.
    Sessions(SessionsArgs),
    /// `posse config …`.
    Config(ConfigArgs),
    /// `posse plain`, and `posse` alone on a terminal: no prompt, text in and out.
    Plain(Box<RunArgs>),
    /// The terminal UI, with its first prompt.
    Tui(Box<RunArgs>),
    /// `posse replay`.
    Replay(ReplayArgs),
    /// `posse agents`.
    Agents(ListArgs),
    /// `posse tools`.
    Tools(ListArgs),
    /// `posse skills`, and the one to show.
    Skills(ListArgs, Option<String>),
    /// `posse models`.
    Models(ListArgs),
    /// `posse grants …`.
    Grants(GrantsArgs),
    /// `posse trust …`.
    Trust(TrustArgs),
    /// `posse permissions check`.
    Permissions(PermissionsArgs),
    /// `posse doctor`.
    Doctor(DoctorArgs),
    /// `posse completions`.
    Completions(CompletionsArgs),
    /// `posse man`.
    Man(ManArgs),
}

/// Arguments of `posse run` and `posse plain`. `None` and empty mean "not given".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RunArgs {
    /// The task, from `--prompt` or the words; `None`: from standard input.
    pub prompt: Option<PromptArg>,
    /// `--agent`.
    pub agent: Option<String>,
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--skill`, in order.
    pub skills: Vec<String>,
    /// `--thinking`.
    pub thinking: Option<String>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--budget`, in millionths of a dollar.
    pub budget_micro_usd: Option<u64>,
    /// `--add-dir`, in order.
    pub add_dirs: Vec<PathBuf>,
    /// `--yes`.
    pub yes: bool,
    /// `--unattended`.
    pub unattended: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--stream` or `--no-stream`.
    pub stream: Option<bool>,
    /// `--image`, in order: paths or addresses.
    pub images: Vec<String>,
    /// `--no-transcript`.
    pub no_transcript: bool,
    /// `--output-format`.
    pub output_format: OutputFormat,
    /// `--input-format`.
    pub input_format: InputFormat,
    /// `--record`.
    pub record: Option<PathBuf>,
    /// `--sandbox`: `off`, `read-only` or `workspace-write`.
    pub sandbox: Option<String>,
    /// `--sandbox-required`, if it was given.
    pub sandbox_required: Option<bool>,
    /// `--network`: `deny` or `inherit`.
    pub network: Option<String>,
    /// `--persistent-grants` or `--no-persistent-grants`.
    pub persistent_grants: Option<bool>,
    /// `--mode`, `--single-agent`, `--multi-agent`: `single-agent` or `multi-agent`.
    pub agent_mode: Option<String>,
    /// `-v`, counted.
    pub verbose: u8,
    /// Stored session to resume; `None`: a new one.
    pub resume: Option<Resume>,
    /// Source of the configuration.
    pub place: PlaceArgs,
}

/// Stored session to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Selection.
    pub which: Which,
    /// `--fork`: continue in a new session with the same history.
    pub fork: bool,
    /// A flag was given that only a run without a conversation has.
    pub headless: bool,
}

/// Selection of a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one with this id, or with the only id that begins like this.
    Id(String),
    /// The newest of the project.
    Last,
    /// Not given.
    Unsaid,
}

/// Source of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptArg {
    /// The command line.
    Text(String),
    /// `-`: standard input.
    Stdin,
}

/// Flags that decide which configuration is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceArgs {
    /// `--cwd`.
    pub cwd: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--trust-project`.
    pub trust_project: bool,
}

/// Output format of results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// The final answer alone.
    #[default]
    Text,
    /// One object at the end.
    Json,
    /// One event a line.
    StreamJson,
}

/// Format of standard input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InputFormat {
    /// The task, or context for it
    #[default]
    Text,
    /// One message, steer, interrupt or answer a line
    StreamJson,
}

/// Arguments of `posse attach`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachArgs {
    /// The session, or an unambiguous beginning of its id; `None`: the one that runs here.
    pub id: Option<String>,
    /// `--observe`.
    pub observe: bool,
    /// `--output-format stream-json`.
    pub lines: bool,
    /// `--input-format stream-json`.
    pub drives: bool,
    /// `--after`.
    pub after: Option<u64>,
    /// `--cwd`: the folder.
    pub cwd: Option<PathBuf>,
}

/// Arguments of `posse demo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DemoArgs {
    /// `--output-format`.
    pub output_format: OutputFormat,
    /// `-v`, counted.
    pub verbose: u8,
}

/// Arguments of `posse sessions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsArgs {
    /// `--cwd`: the project.
    pub cwd: Option<PathBuf>,
    /// Action.
    pub action: SessionsAction,
}

/// The subcommands of `posse sessions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionsAction {
    /// `list`.
    List {
        /// `--all`: of every project.
        all: bool,
        /// `--json`.
        json: bool,
    },
    /// `show ID`.
    Show {
        /// The session, or an unambiguous beginning of its id.
        id: String,
        /// `--cost`: show the cost.
        cost: bool,
        /// `--memory`: what its agents have reported.
        memory: bool,
        /// `-v`: each request.
        verbose: bool,
        /// `--json`.
        json: bool,
    },
    /// `verify [ID]`.
    Verify {
        /// The session; every one of the project without it.
        id: Option<String>,
        /// `--json`.
        json: bool,
    },
    /// `export ID`.
    Export {
        /// The session, or an unambiguous beginning of its id.
        id: String,
        /// `--format`.
        format: ExportFormat,
        /// `--output`; `None`: standard output.
        output: Option<PathBuf>,
    },
    /// `rm ID`.
    Rm {
        /// The session, or an unambiguous beginning of its id.
        id: String,
        /// `--yes`: without asking.
        yes: bool,
    },
}

/// Format of an exported session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// Markdown
    #[default]
    Md,
    /// One self-contained page
    Html,
}

/// Arguments of `posse replay`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayArgs {
    /// The session, or an unambiguous beginning of its id.
    pub id: String,
    /// `--output-format`, or `--json`.
    pub output_format: OutputFormat,
    /// `--cwd`: the project.
    pub cwd: Option<PathBuf>,
    /// `-v`, counted.
    pub verbose: u8,
}

/// Arguments of `posse permissions check`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionsArgs {
    /// The command; without one, standard input.
    pub command: Option<String>,
    /// `--grant`, in order.
    pub grants: Vec<String>,
    /// `--jsonl`.
    pub jsonl: bool,
    /// `--exit-code`.
    pub exit_code: bool,
    /// Source of the configuration.
    pub place: PlaceArgs,
}

/// Arguments of `posse agents`, `posse tools` and `posse models`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListArgs {
    /// `--json`.
    pub json: bool,
    /// Source of the configuration.
    pub place: PlaceArgs,
}

/// Arguments of `posse doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DoctorArgs {
    /// `--json`.
    pub json: bool,
    /// `--online`: also tries to reach the configured providers.
    pub online: bool,
    /// Source of the configuration.
    pub place: PlaceArgs,
}

/// Arguments of `posse completions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionsArgs {
    /// Shell.
    pub shell: Shell,
}

/// A shell that can be completed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// Bash
    Bash,
    /// Elvish
    Elvish,
    /// Fish
    Fish,
    /// `PowerShell`
    #[value(name = "powershell")]
    PowerShell,
    /// Z shell
    Zsh,
}

/// Arguments of `posse man`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManArgs {
    /// Folder for the pages; `None`: the first one to standard output.
    pub dir: Option<PathBuf>,
}

/// Arguments of `posse config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigArgs {
    /// `show`.
    Show {
        /// `--origin`.
        origin: bool,
        /// `--json`.
        json: bool,
        /// Source of the configuration.
        place: PlaceArgs,
    },
    /// `instructions`.
    Instructions(ListArgs),
    /// `path`.
    Path {
        /// Source of the configuration.
        place: PlaceArgs,
    },
    /// `schema`.
    Schema,
    /// `forget`: delete saved preferences.
    Forget,
    /// `reference`: every key, as Markdown.
    Reference,
    /// `edit`.
    Edit {
        /// The change.
        edit: ConfigEdit,
        /// `--config`: the file, instead of the user's.
        place: PlaceArgs,
    },
}

/// A change of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigEdit {
    /// `None`: explain how to set one.
    Explain,
    /// `KEY VALUE`.
    Set {
        /// The dotted key.
        key: String,
        /// JSON, or a text as it is.
        value: String,
    },
    /// `--unset KEY`.
    Unset {
        /// The dotted key.
        key: String,
    },
}

/// Exit before anything was started: help, version, or a usage error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliExit {
    /// Text to print, with its last newline.
    pub text: String,
    /// True for standard error.
    pub stderr: bool,
    /// The exit code.
    pub code: u8,
}

/// Parses the command line, program name first. `terminal`: a person can type and read permission
/// requests, so that no arguments mean a conversation.
pub fn parse(args: impl Iterator<Item = OsString>, terminal: bool) -> Result<Invocation, CliExit> {
    let mut args: Vec<OsString> = args.collect();
    if args.is_empty() {
        args.push("posse".into());
    }
    if args.len() == 1 && terminal {
        return Ok(Invocation::Tui(Box::default()));
    }
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    if args.len() == 2 && matches!(first, "--version" | "-V") {
        return Err(CliExit { text: version(), stderr: false, code: Exit::Done as u8 });
    }
    // `posse -c` is `posse resume --last`.
    if matches!(first, "-c" | "--continue") {
        args.splice(1..2, ["resume".into(), "--last".into()]);
    // `posse -p PROMPT` is `posse run -p PROMPT`, so that the flags of `run` exist once.
    } else if first.starts_with('-') && !matches!(first, "-h" | "--help" | "-V" | "--version") {
        if terminal && let Some(conversation) = conversation(&args) {
            return Ok(conversation);
        }
        args.insert(1, "run".into());
    }
    match args::Cli::try_parse_from(&args) {
        Ok(cli) => cli.command.into_invocation(),
        Err(error) => Err(refuse(error, &args)),
    }
}

/// Interpretation of flags without a command at a terminal: `posse --config F` is `posse` with
/// another configuration. `None`: flags that only a run has.
fn conversation(args: &[OsString]) -> Option<Invocation> {
    let mut args = args.to_vec();
    args.insert(1, "tui".into());
    let Ok(Invocation::Tui(args)) = args::Cli::try_parse_from(args).ok()?.command.into_invocation()
    else {
        return None;
    };
    // Unattended runs and images belong to a task.
    (!args.unattended && args.images.is_empty()).then_some(Invocation::Tui(args))
}

/// The whole command line as clap knows it: for completions and manual pages.
pub fn command() -> clap::Command {
    use clap::CommandFactory;
    args::Cli::command()
}

impl RunArgs {
    /// The flags that are settings: key, value and flag, for the last layer of the configuration.
    pub fn overrides(&self) -> Vec<(&'static str, Value, &'static str)> {
        let mut overrides = Vec::new();
        let mut set = |key, value: Option<Value>, flag| {
            overrides.extend(value.map(|value| (key, value, flag)));
        };
        set("agentMode", self.agent_mode.as_ref().map(|mode| json!(mode)), "--mode");
        set("defaultAgent", self.agent.as_ref().map(|name| json!(name)), "--agent");
        set("defaultProvider", self.provider.as_ref().map(|name| json!(name)), "--provider");
        set("model", self.model.as_ref().map(|name| json!(name)), "--model");
        set("thinking", self.thinking.as_ref().map(|level| json!(level)), "--thinking");
        set("maxTurns", self.max_turns.map(|turns| json!(turns)), "--max-turns");
        let seconds = self.timeout.map(|limit| json!(format!("{}ms", limit.as_millis())));
        set("timeout", seconds, "--timeout");
        set("budget.maxCostMicroUsd", self.budget_micro_usd.map(|micro| json!(micro)), "--budget");
        set("patience", self.unattended.then(|| json!("24h")), "--unattended");
        let flag = if self.stream == Some(true) { "--stream" } else { "--no-stream" };
        set("streaming.enabled", self.stream.map(|on| json!(on)), flag);
        let flag = if self.persistent_grants == Some(true) {
            "--persistent-grants"
        } else {
            "--no-persistent-grants"
        };
        set("persistentGrants.enabled", self.persistent_grants.map(|on| json!(on)), flag);
        set("sandbox.mode", self.sandbox.as_ref().map(|mode| json!(mode)), "--sandbox");
        set(
            "sandbox.required",
            self.sandbox_required.map(|required| json!(required)),
            "--sandbox-required",
        );
        set("sandbox.network", self.network.as_ref().map(|mode| json!(mode)), "--network");
        overrides
    }
}

fn version() -> String {
    concat!("posse ", env!("CARGO_PKG_VERSION"), "\n").into()
}

/// Converts clap's result: help and version succeed, everything else is exit 2.
fn refuse(mut error: clap::Error, args: &[OsString]) -> CliExit {
    match error.kind() {
        ErrorKind::DisplayHelp => {
            CliExit { text: error.to_string(), stderr: false, code: Exit::Done as u8 }
        }
        ErrorKind::DisplayVersion => {
            CliExit { text: version(), stderr: false, code: Exit::Done as u8 }
        }
        // Nothing was asked for: what there is to ask for.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            CliExit { text: error.to_string(), stderr: true, code: Exit::Usage as u8 }
        }
        _ => {
            later::suggest(&mut error, args);
            usage(&usage_error::failure(&error, subcommand(args).as_deref()))
        }
    }
}

/// The subcommand that the arguments name, and the one below it, as far as they exist.
fn subcommand(args: &[OsString]) -> Option<String> {
    let root = command();
    let first = root.find_subcommand(args.get(1)?)?;
    let below = args.get(2).and_then(|second| first.find_subcommand(second));
    let names: Vec<_> = std::iter::once(first).chain(below).map(clap::Command::get_name).collect();
    Some(names.join(" "))
}

fn usage(failure: &Failure) -> CliExit {
    CliExit { text: format!("{failure}\n"), stderr: true, code: Exit::Usage as u8 }
}

#[cfg(test)]
mod tests;
