//! Commands and their arguments. The doc comments of commands, flags and their values are the text
//! of `--help`.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use posse_base::failure::{ErrorCode, Exit, Failure};

use crate::run_args::{PlainCommand, RUN_EXITS, ResumeCommand, RunCommand};

/// Names of the permission modes.
pub(crate) const PERMISSION_MODES: [&str; 5] = ["plan", "ask", "edits", "auto", "locked"];

/// A local coding-agent runtime: a posse of agents under one authority.
#[derive(Debug, Parser)]
#[command(
    name = "posse",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    // `posse help` is a command of its own.
    disable_help_subcommand = true,
    after_help = "On a terminal, `posse` alone opens the terminal UI. \
                  `posse \"TASK\"` and `posse -p TASK` are short for `posse run \"TASK\"`. \
                  `posse demo` needs no key and no network. `posse help` lists guides and references."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Invocation,
}

/// Parsed command line.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Invocation {
    /// Run one task, then exit
    ///
    /// The task comes from the arguments, from --prompt, or from standard input: with `-`, or
    /// through a pipe. With a task given, piped text is context. The final answer is alone on
    /// standard output; progress and questions go to standard error.
    #[command(visible_alias = "exec", after_help = RUN_EXITS)]
    Run(Box<RunCommand>),
    /// Resume a stored session
    ///
    /// Without a task, interrupted work continues: calls that had not started run, a call that had
    /// started does not run again. Agent, provider and model are those of the session unless a flag
    /// overrides them; permissions and the sandbox are the current ones. On a terminal, the session
    /// opens in the terminal UI, unless a task, a format or --unattended is given; without an ID,
    /// you choose a session first.
    #[command(after_help = RUN_EXITS)]
    Resume(Box<ResumeCommand>),
    /// Attach to a session that runs in another process on this machine
    ///
    /// Shows recorded events first, then live ones. On a terminal, typed lines are sent to the
    /// model, and permission requests can be answered; the first answer counts. Detaching does not
    /// affect the session.
    Attach(AttachArgs),
    /// Hold a conversation line by line
    ///
    /// Answers go to standard output, everything else to standard error. `/help` lists the
    /// commands; `/exit` ends it.
    Plain(Box<PlainCommand>),
    /// Open the terminal UI, like `posse` alone
    ///
    /// `/help` lists its commands and keys. Without a usable terminal, this is `posse plain`.
    Tui(Box<PlainCommand>),
    /// Run a demonstration with a recorded model on a sample repository, without key or network
    Demo(DemoArgs),
    /// List, show, verify, export and remove stored sessions
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sessions(SessionsArgs),
    /// Replay a session from its journal and compare the result, without a model or side effects
    Replay(ReplayArgs),
    /// List the agents
    #[command(alias = "list-agents")]
    Agents(ListArgs),
    /// List the tools and their side effects
    #[command(alias = "list-tools")]
    Tools(ListArgs),
    /// List the skills, or show one
    Skills(SkillsArgs),
    /// List the known models with their limits and prices
    Models(ListArgs),
    /// Show the keys and logins that posse finds, and how to add one
    Login(LoginArgs),
    /// Show settings and their sources, and change them
    #[command(subcommand_required = true, arg_required_else_help = true, subcommand)]
    Config(ConfigAction),
    /// Show and revoke permissions that outlive a session
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Grants(GrantsArgs),
    /// List, compare, restore and remove checkpoints of the workspace
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Checkpoints(CheckpointsArgs),
    /// Take back the changes of the last run, also those of its commands
    Undo(UndoArgs),
    /// Run a command in a throw-away view of the workspace, and show its changes
    ///
    /// The command has no network, and what it changes in the workspace is collected elsewhere. Its
    /// output and its changes are shown when it has ended; then they are kept or dropped. A rename
    /// of a folder that existed before fails in such a view, with the error EXDEV; `mv` copies it
    /// instead.
    Try(TryArgs),
    /// Show the settings, agents and skills of a project; trust them or revoke the trust
    Trust(TrustArgs),
    /// Show the decision of the permission policy about commands, without running them
    #[command(subcommand_required = true, arg_required_else_help = true, subcommand)]
    Permissions(PermissionsAction),
    /// Check the requirements of posse on this machine, and name fixes
    Doctor(DoctorArgs),
    /// Print a guide or a reference, or one entry of it, such as an error code
    ///
    /// Without a topic, the topics are listed. A topic is also a command, an error code, a
    /// configuration key, a flag, an event, a tool, an environment variable or a slash command.
    /// At a terminal, a long text is shown with the program in PAGER, if it is set.
    Help(HelpArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder, or print the first one; as text on a terminal
    Man(ManArgs),
}

/// Flags that select the working directory and the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PlaceArgs {
    /// Work in this folder
    #[arg(long, value_name = "DIR", help_heading = "Configuration")]
    pub cwd: Option<PathBuf>,
    /// Read this file in addition to the user's configuration, and override it
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Trust this project's configuration, agents and skills for this run
    #[arg(long, help_heading = "Configuration")]
    pub trust_project: bool,
}

/// Output format of results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The final answer alone.
    #[default]
    Text,
    /// One object at the end.
    Json,
    /// One event per line.
    StreamJson,
}

/// Format of standard input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// The task, or context for it
    #[default]
    Text,
    /// One JSON instruction per line, such as message, steer, interrupt or permission.answer
    StreamJson,
}

/// Arguments of `posse attach`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct AttachArgs {
    /// The session, or an unambiguous beginning of its id [default: the one that runs here]
    pub id: Option<String>,
    /// Attach read-only: no input, no answers
    #[arg(long)]
    pub observe: bool,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: AttachFormat,
    /// Format of standard input, with --output-format stream-json
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    input_format: InputFormat,
    /// Permission mode to attach with: the session gets it if it is stricter than its own
    #[arg(long, value_name = "MODE", conflicts_with = "observe",
          value_parser = PERMISSION_MODES)]
    pub permission_mode: Option<String>,
    /// Skip the records up to this number
    #[arg(long, value_name = "RECORD")]
    pub after: Option<u64>,
    /// Without an id: folder or project in which the session runs
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AttachFormat {
    /// Text for a person
    Text,
    /// One event per line
    StreamJson,
}

impl AttachArgs {
    /// True if events are printed as JSON, one a line; false if they are shown to a person.
    pub fn prints_lines(&self) -> bool {
        self.output_format == AttachFormat::StreamJson
    }

    /// True if standard input consists of JSON instructions, one a line. False: input is typed at a
    /// terminal, or there is none.
    pub fn reads_instructions(&self) -> bool {
        self.input_format == InputFormat::StreamJson
    }

    /// Fails if `--input-format stream-json` is given without `--output-format stream-json` or with
    /// `--observe`.
    pub fn check(&self) -> Result<(), Failure> {
        let (problem, fix) = match (self.reads_instructions(), self.prints_lines(), self.observe) {
            (true, false, _) => (
                "--input-format stream-json needs --output-format stream-json",
                "pass both, or neither",
            ),
            (true, _, true) => (
                "an observer gives no instructions",
                "leave out one of --observe and --input-format",
            ),
            _ => return Ok(()),
        };
        Err(Failure::new(ErrorCode::FlagNeedsAnother, Exit::Usage, problem).fix(fix))
    }
}

/// Arguments of `posse demo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DemoArgs {
    /// Output format of results
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output_format: OutputFormat,
    /// Log the events of the session on standard error; -vv: with their content, and details of
    /// the adapters
    #[arg(short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Arguments of `posse sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SessionsArgs {
    /// The subcommand of `posse sessions`.
    #[command(subcommand)]
    pub action: SessionsAction,
    /// Folder of the project
    #[arg(long, value_name = "DIR", global = true)]
    pub cwd: Option<PathBuf>,
}

/// The subcommands of `posse sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum SessionsAction {
    /// List the sessions of the project, newest first
    List {
        /// Sessions of all projects
        #[arg(long)]
        all: bool,
        /// JSON output
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// Cost by model and by agent
        #[arg(long)]
        cost: bool,
        /// Memory of subagents, as passed to the next one of the same name
        #[arg(long, conflicts_with = "cost")]
        memory: bool,
        /// With --cost: each request
        #[arg(short, long, requires = "cost")]
        verbose: bool,
        /// JSON output
        #[arg(long)]
        json: bool,
    },
    /// Check the hash chain of one session, or of every session of the project
    Verify {
        /// The session, or an unambiguous beginning of its id
        id: Option<String>,
        /// JSON output
        #[arg(long)]
        json: bool,
    },
    /// Export one session as a readable document
    Export {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// Output format; HTML is a single self-contained file
        #[arg(long, value_enum, default_value = "md")]
        format: ExportFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove one session and its outputs
    Rm {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// Remove without confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// Format of an exported session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Markdown
    #[default]
    Md,
    /// One self-contained page
    Html,
}

/// The subcommands of `posse permissions`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum PermissionsAction {
    /// Judge commands: one from the arguments, or {"command": …} lines from standard input
    ///
    /// Prints one JSON object a line: the command, the decision (allow, ask or deny), the reason,
    /// what an answer would grant, the programs that were found, and the parts that need a grant.
    #[command(after_help = "Without words and without --jsonl, standard input is one command. \
        The exit code is 0 for whatever the decision is; with --exit-code it is 0 for allow, \
        4 for ask and 1 for deny, of several the strictest.")]
    Check {
        /// The command; several arguments are joined by spaces
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        /// Judge as if commands with this beginning were granted; repeatable
        #[arg(long = "grant", value_name = "PREFIX")]
        grants: Vec<String>,
        /// Read one {"command": …} object per line from standard input
        #[arg(long, conflicts_with = "command")]
        jsonl: bool,
        /// Print JSON, as without this flag
        #[arg(long)]
        json: bool,
        /// Report the decision as exit code
        #[arg(long)]
        exit_code: bool,
        /// Permission mode: `locked` counts grants and rules alone, and shows as `ask` what neither
        /// allows; the other modes decide as in a session
        #[arg(long, value_name = "MODE", default_value = "locked",
              value_parser = PERMISSION_MODES)]
        permission_mode: String,
        /// Working directory, and source of the configuration.
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Arguments of `posse replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplayArgs {
    /// The session, or an unambiguous beginning of its id
    pub id: String,
    /// Output format of results
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output_format: OutputFormat,
    /// Same as --output-format json
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,
    /// Folder of the project
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

/// Arguments of the commands that print a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ListArgs {
    /// JSON output
    #[arg(long)]
    pub json: bool,
    /// Working directory, and source of the configuration.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Arguments of `posse login`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct LoginArgs {
    /// Working directory, and source of the configuration.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Arguments of `posse skills`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SkillsArgs {
    /// The subcommand of `posse skills`. `None`: list the skills.
    #[command(subcommand)]
    pub action: Option<SkillsAction>,
    /// Format of the list, and source of the configuration. Ignored with a subcommand, which has
    /// its own.
    #[command(flatten)]
    pub list: ListArgs,
}

/// The subcommands of `posse skills`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum SkillsAction {
    /// Show one skill: location, requirements, and the text for the model
    Show {
        /// Name of the skill, as shown by `posse skills`
        name: String,
        /// Format, and source of the configuration.
        #[command(flatten)]
        list: ListArgs,
    },
}

/// The subcommands of `posse config`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigAction {
    /// Print the effective settings; secrets are masked
    Show {
        /// Show the file, variable or flag that set each value
        #[arg(long)]
        origin: bool,
        /// JSON output
        #[arg(long)]
        json: bool,
        /// Working directory, and source of the configuration.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// List the files with instructions or settings for agents, such as AGENTS.md, CLAUDE.md or
    /// .cursor/rules, and what is done with each
    Instructions(ListArgs),
    /// Print the files and folders in use
    Path {
        /// Working directory, and source of the configuration.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Print the JSON Schema of the configuration
    Schema,
    /// Forget the provider and the model that were chosen last in a conversation
    Forget,
    /// Print every key with its type, default and who may set it
    #[command(hide = true)]
    Reference,
    /// Change one setting in the user's configuration and keep comments
    ///
    /// Without a key, print the file and how to change it.
    Edit {
        /// The setting as a dotted name: sandbox.network
        #[arg(requires = "value", conflicts_with = "unset")]
        key: Option<String>,
        /// The value: JSON or plain text
        #[arg(allow_hyphen_values = true)]
        value: Option<String>,
        /// Remove this setting instead
        #[arg(long, value_name = "KEY")]
        unset: Option<String>,
        /// Change this file instead of the user's configuration
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Arguments of `posse grants`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct GrantsArgs {
    /// The subcommand of `posse grants`.
    #[command(subcommand)]
    pub action: GrantsAction,
    /// Folder of the project
    #[arg(long, value_name = "DIR", global = true)]
    pub cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands of `posse grants`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum GrantsAction {
    /// List the grants that apply here, and their remaining time
    List {
        /// Grants of all projects
        #[arg(long)]
        all: bool,
    },
    /// Revoke grants, at once and also in running sessions
    Revoke {
        /// Ids as shown by `list`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Delete all grants; a file that failed verification is moved aside
    Clear,
}

/// Arguments of `posse checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckpointsArgs {
    /// The subcommand of `posse checkpoints`.
    #[command(subcommand)]
    pub action: CheckpointsAction,
    /// Folder of the project
    #[arg(long, value_name = "DIR", global = true)]
    pub cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands of `posse checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CheckpointsAction {
    /// List the checkpoints, the newest first, with the number of files that the run changed
    List,
    /// Show the files that differ between a checkpoint and the present state
    Diff {
        /// Number of the checkpoint as shown by `list`
        #[arg(value_name = "ID", value_parser = checkpoint_id)]
        id: u64,
        /// Compare with the state after the run instead
        #[arg(long)]
        run: bool,
        /// Show the changed lines
        #[arg(long)]
        patch: bool,
    },
    /// Restore the files of a checkpoint; the present state becomes a checkpoint
    Restore {
        /// Number of the checkpoint as shown by `list`
        #[arg(value_name = "ID", value_parser = checkpoint_id)]
        id: u64,
        /// Flags about files that you have changed.
        #[command(flatten)]
        flags: RestoreFlags,
    },
    /// Remove checkpoints by age and size, as configured
    Prune {
        /// Remove those that are older than this number of days
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650))]
        keep_days: Option<u64>,
    },
}

/// Parses the id of a checkpoint.
fn checkpoint_id(text: &str) -> Result<u64, CheckpointIdError> {
    text.parse().map_err(|_| CheckpointIdError)
}

/// Text that is not the id of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointIdError;

impl fmt::Display for CheckpointIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of a checkpoint is a number, such as 12")
    }
}

impl std::error::Error for CheckpointIdError {}

/// Flags of commands that restore files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct RestoreFlags {
    /// Leave the files that you have changed since as they are
    #[arg(long)]
    pub keep_mine: bool,
    /// Restore without confirmation, also files that you have changed since
    #[arg(long, short)]
    pub yes: bool,
}

/// Arguments of `posse undo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct UndoArgs {
    /// Folder of the project
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long)]
    pub json: bool,
    /// Flags about files that the user has changed.
    #[command(flatten)]
    pub flags: RestoreFlags,
}

/// Arguments of `posse try`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TryArgs {
    /// The command: one argument is a line for the shell, several are a program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Keep the changes without asking, if the command succeeds
    #[arg(long, conflicts_with = "drop")]
    pub keep: bool,
    /// Drop the changes without asking; the default without a terminal
    #[arg(long)]
    pub drop: bool,
    /// JSON output; asks nothing
    #[arg(long)]
    pub json: bool,
    /// Folder of the project
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

/// Arguments of `posse trust`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TrustArgs {
    /// The subcommand of `posse trust`. `None`: the same as `posse trust show`.
    #[command(subcommand)]
    pub action: Option<TrustAction>,
    /// Folder of the project
    #[arg(long, value_name = "DIR", global = true)]
    pub cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands of `posse trust`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum TrustAction {
    /// Show this project's settings, agents and skills, their state, and the effect of trust
    Show,
    /// Show this project's settings, agents and skills, and trust their current content
    Add {
        /// Trust without confirmation if the content has this SHA-256, which `posse trust` shows
        #[arg(long, value_name = "SHA256")]
        accept: Option<String>,
        /// With --accept: let the project's providers receive the value of this environment
        /// variable (repeatable)
        #[arg(long, value_name = "NAME", requires = "accept")]
        send_variable: Vec<String>,
    },
    /// Revoke the trust in a project
    Revoke {
        /// Folder of the project, if not this one
        path: Option<PathBuf>,
    },
    /// List the trusted projects
    List,
    /// Revoke all trust; a file that failed verification is moved aside
    Clear,
}

/// Arguments of `posse doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DoctorArgs {
    /// The subcommand of `posse doctor`. `None`: check the machine.
    #[command(subcommand)]
    pub action: Option<DoctorAction>,
    /// JSON output
    #[arg(long)]
    pub json: bool,
    /// Also test the connection to the configured providers
    #[arg(long)]
    pub online: bool,
    /// Working directory, and source of the configuration.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The subcommands of `posse doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum DoctorAction {
    /// Show the permission policy that applies here, each part with its source
    ///
    /// Parts are in the order in which they are applied: what nothing can allow, rules, what is
    /// asked each time, grants, agents, hooks, and the decision otherwise. Example commands are
    /// judged by this policy.
    Policies(ListArgs),
}

/// Arguments of `posse help`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct HelpArgs {
    /// A topic of `posse help`, a command, or the name of an entry
    #[arg(value_name = "TOPIC", allow_hyphen_values = true)]
    pub topic: Vec<String>,
}

/// Arguments of `posse completions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct CompletionsArgs {
    /// Shell that the completions are for
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A shell for which completions can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Bash
    Bash,
    /// Elvish
    Elvish,
    /// Fish
    Fish,
    /// `PowerShell`
    #[value(name = "powershell", help = "PowerShell")]
    PowerShell,
    /// Z shell
    Zsh,
}

/// Arguments of `posse man`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ManArgs {
    /// Folder for the pages, created if missing; without it, print the page of posse itself
    pub dir: Option<PathBuf>,
}
