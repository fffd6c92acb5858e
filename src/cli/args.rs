//! The command line as clap sees it, and its translation into our own plain values.

mod attach;
mod authority;
mod flags;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cli::{
    CliExit, CompletionsArgs, ConfigArgs, ConfigEdit, DemoArgs, DoctorArgs, ExportFormat,
    Invocation, ListArgs, ManArgs, OutputFormat, PermissionsArgs, PlaceArgs, ReplayArgs,
    SessionsAction, SessionsArgs, Shell, usage,
};
use crate::failure::{ErrorCode, Exit, Failure};
use flags::{ConfigLocationFlags, PlainFlags, RUN_EXITS, ResumeCommand, Run};

/// A local coding-agent runtime: a posse of agents under one authority.
#[derive(Debug, Parser)]
#[command(
    name = "posse",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "On a terminal, `posse` alone opens the terminal UI. \
                  `posse -p PROMPT` is short for `posse run -p PROMPT`. \
                  `posse demo` needs no key and no network."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Does one task, then exits
    ///
    /// The task comes from the words, from --prompt, or from standard input: with `-`, or through
    /// a pipe. With a task given, piped text is context. The final answer is alone on standard
    /// output; progress and questions go to standard error.
    #[command(visible_alias = "exec", after_help = RUN_EXITS)]
    Run(Box<Run>),
    /// Resume a stored session
    ///
    /// Without a task, interrupted work continues: calls that had not started run, a call that had
    /// started does not run again. Agent, provider and model are those of the session unless a flag
    /// overrides them; permissions and the sandbox are the current ones. On a terminal and without
    /// a task it opens a conversation as in `posse plain`.
    #[command(after_help = RUN_EXITS)]
    Resume(Box<ResumeCommand>),
    /// Attach to a session that runs in another process on this machine
    ///
    /// Shows the history first, then live events. Typed lines are sent to the model, and permission
    /// requests can be answered; the first answer counts. Detaching does not affect the session.
    Attach(attach::Attach),
    /// Hold a conversation line by line
    ///
    /// Answers go to standard output, everything else to standard error. `/help` lists the
    /// commands; `/exit` ends it.
    Plain(Box<PlainFlags>),
    /// Opens the terminal UI, as `posse` alone does
    ///
    /// `/help` lists its commands and keys. Where there is no terminal to draw on, it is
    /// `posse plain`.
    Tui(Box<PlainFlags>),
    /// Run a demonstration with a recorded model on a sample repository, without key or network
    Demo(Demo),
    /// List, show, verify, export and remove stored sessions
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sessions(SessionsFlags),
    /// Runs a session again on its recorded replies, without a model
    Replay(ReplayFlags),
    /// Lists the agents
    Agents(ListFlags),
    /// List the tools and their side effects
    Tools(ListFlags),
    /// Lists the skills, or shows one
    Skills(Skills),
    /// Lists the models that are known, with their limits and prices
    Models(ListFlags),
    /// Shows and changes the settings, and where they come from
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Config(Config),
    /// Shows and ends the permissions that outlive a session
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Grants(authority::Grants),
    /// Show the settings of a project, and trust or revoke them
    Trust(authority::TrustFlags),
    /// Show the decision of the permission policy about commands, without running them
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Permissions(Permissions),
    /// Check the requirements of posse on this machine, and name fixes
    Doctor(Doctor),
    /// Prints the completions of a shell
    Completions(Completions),
    /// Writes the manual pages into a folder, or prints the first one
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Output format of results
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: OutputFormat,
    /// More detail on standard error; repeatable
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsFlags {
    #[command(subcommand)]
    action: SessionsCommand,
    /// The project whose sessions are meant
    #[arg(long, value_name = "DIR", global = true)]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Lists the sessions of the project, newest first
    List {
        /// Sessions of all projects
        #[arg(long)]
        all: bool,
        /// JSON output
        #[arg(long)]
        json: bool,
    },
    /// Shows one session
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
    /// Checks the hash chain of one session, or of every session of the project
    Verify {
        /// The session, or an unambiguous beginning of its id
        id: Option<String>,
        /// JSON output
        #[arg(long)]
        json: bool,
    },
    /// Writes one session for people to read
    Export {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// Output format; HTML is a single self-contained file
        #[arg(long, value_enum, default_value = "md")]
        format: ExportFormat,
        /// Into this file, instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Removes one session and its outputs
    Rm {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// Does not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Permissions {
    #[command(subcommand)]
    action: PermissionsCommand,
}

#[derive(Debug, Subcommand)]
enum PermissionsCommand {
    /// Judges commands: one from the words, or {"command": …} lines from standard input
    ///
    /// Prints one JSON object a line: the command, the decision (allow, ask or deny), the reason,
    /// what an answer would grant, the programs that were found, and the parts that need a grant.
    #[command(after_help = "Without words and without --jsonl, standard input is one command. \
        The exit code is 0 for whatever the decision is; with --exit-code it is 0 for allow, \
        4 for ask and 1 for deny, of several the strictest.")]
    Check {
        /// The command; several words are joined by blanks
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        /// Judges as if this beginning of a command was granted; repeatable
        #[arg(long = "grant", value_name = "PREFIX")]
        grants: Vec<String>,
        /// Reads one {"command": …} object a line from standard input
        #[arg(long, visible_alias = "json", conflicts_with = "command")]
        jsonl: bool,
        /// Report the decision as exit code
        #[arg(long)]
        exit_code: bool,
        #[command(flatten)]
        place: ConfigLocationFlags,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReplayFlags {
    /// The session, or an unambiguous beginning of its id
    id: String,
    /// Output format of results
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: OutputFormat,
    /// Same as --output-format json
    #[arg(long, conflicts_with = "output_format")]
    json: bool,
    /// The project whose session is meant
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// More detail on standard error; repeatable
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    /// JSON output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: ConfigLocationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Skills {
    #[command(subcommand)]
    action: Option<SkillsCommand>,
    #[command(flatten)]
    list: ListFlags,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// Show one skill: location, requirements, and the text for the model
    Show {
        /// The skill
        name: String,
        #[command(flatten)]
        list: ListFlags,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Prints the effective settings; secrets are masked
    Show {
        /// Show the file, variable or flag that set each value
        #[arg(long)]
        origin: bool,
        /// JSON output
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: ConfigLocationFlags,
    },
    /// List the AGENTS.md files that apply here, with their size
    Instructions(ListFlags),
    /// Prints the files and folders in use
    Path {
        #[command(flatten)]
        place: ConfigLocationFlags,
    },
    /// Prints the JSON Schema of the configuration
    Schema,
    /// Forgets the provider and the model that were chosen last in a conversation
    Forget,
    /// Prints every key with its type, default and who may set it
    #[command(hide = true)]
    Reference,
    /// Change one setting in the user's configuration and keep comments
    ///
    /// Without a key, print the file and how to change it.
    Edit(EditFlags),
}

#[derive(Debug, Args)]
struct EditFlags {
    /// The setting, as one dotted name: sandbox.network
    #[arg(requires = "value", conflicts_with = "unset")]
    key: Option<String>,
    /// Its value: JSON, or a text as it is
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// Removes this setting instead
    #[arg(long, value_name = "KEY")]
    unset: Option<String>,
    /// Changes this file, instead of the user's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// JSON output
    #[arg(long)]
    json: bool,
    /// Also tries to reach the configured providers
    #[arg(long)]
    online: bool,
    #[command(flatten)]
    place: ConfigLocationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder; without it, the page of posse itself goes to standard output
    dir: Option<PathBuf>,
}

impl Command {
    pub(crate) fn into_invocation(self) -> Result<Invocation, CliExit> {
        Ok(match self {
            Command::Run(run) => Invocation::Run(Box::new(run.into_args()?)),
            Command::Resume(resume) => Invocation::Resume(Box::new(resume.into_args()?)),
            Command::Attach(attach) => Invocation::Attach(attach.into_args()?),
            Command::Plain(plain) => Invocation::Plain(Box::new(plain.into_args())),
            Command::Tui(tui) => Invocation::Tui(Box::new(tui.into_args())),
            Command::Demo(Demo { output_format, verbose }) => {
                Invocation::Demo(DemoArgs { output_format, verbose })
            }
            Command::Sessions(sessions) => Invocation::Sessions(sessions.into_args()),
            Command::Replay(ReplayFlags { id, output_format, json, cwd, verbose }) => {
                let output_format = if json { OutputFormat::Json } else { output_format };
                Invocation::Replay(ReplayArgs { id, output_format, cwd, verbose })
            }
            Command::Agents(list) => Invocation::Agents(list.into_args()),
            Command::Tools(list) => Invocation::Tools(list.into_args()),
            Command::Skills(Skills { action: None, list }) => {
                Invocation::Skills(list.into_args(), None)
            }
            Command::Skills(Skills {
                action: Some(SkillsCommand::Show { name, list }), ..
            }) => Invocation::Skills(list.into_args(), Some(name)),
            Command::Models(list) => Invocation::Models(list.into_args()),
            Command::Permissions(Permissions {
                action: PermissionsCommand::Check { command, grants, jsonl, exit_code, place },
            }) => Invocation::Permissions(PermissionsArgs {
                command: (!command.is_empty()).then(|| command.join(" ")),
                grants,
                jsonl,
                exit_code,
                place: place.into_args(),
            }),
            Command::Config(config) => Invocation::Config(config.into_args()?),
            Command::Grants(grants) => Invocation::Grants(grants.into_args()),
            Command::Trust(trust) => Invocation::Trust(trust.into_args()),
            Command::Doctor(Doctor { json, online, place }) => {
                Invocation::Doctor(DoctorArgs { json, online, place: place.into_args() })
            }
            Command::Completions(Completions { shell }) => {
                Invocation::Completions(CompletionsArgs { shell })
            }
            Command::Man(Man { dir }) => Invocation::Man(ManArgs { dir }),
        })
    }
}

impl SessionsFlags {
    fn into_args(self) -> SessionsArgs {
        let action = match self.action {
            SessionsCommand::List { all, json } => SessionsAction::List { all, json },
            SessionsCommand::Show { id, cost, memory, verbose, json } => {
                SessionsAction::Show { id, cost, memory, verbose, json }
            }
            SessionsCommand::Verify { id, json } => SessionsAction::Verify { id, json },
            SessionsCommand::Export { id, format, output } => {
                SessionsAction::Export { id, format, output }
            }
            SessionsCommand::Rm { id, yes } => SessionsAction::Rm { id, yes },
        };
        SessionsArgs { cwd: self.cwd, action }
    }
}

impl ListFlags {
    fn into_args(self) -> ListArgs {
        ListArgs { json: self.json, place: self.place.into_args() }
    }
}

impl Config {
    fn into_args(self) -> Result<ConfigArgs, CliExit> {
        Ok(match self.action {
            ConfigCommand::Show { origin, json, place } => {
                ConfigArgs::Show { origin, json, place: place.into_args() }
            }
            ConfigCommand::Instructions(list) => ConfigArgs::Instructions(list.into_args()),
            ConfigCommand::Path { place } => ConfigArgs::Path { place: place.into_args() },
            ConfigCommand::Schema => ConfigArgs::Schema,
            ConfigCommand::Forget => ConfigArgs::Forget,
            ConfigCommand::Reference => ConfigArgs::Reference,
            ConfigCommand::Edit(EditFlags { key, value, unset, config }) => {
                let edit = match (key, value, unset) {
                    (None, None, None) => ConfigEdit::Explain,
                    (None, None, Some(key)) => ConfigEdit::Unset { key },
                    (Some(key), Some(value), None) => ConfigEdit::Set { key, value },
                    _ => {
                        let what = "the setting or its value is missing";
                        return Err(usage(
                            &Failure::new(ErrorCode::ArgumentMissing, Exit::Usage, what)
                                .fix("give KEY and VALUE, or --unset KEY"),
                        ));
                    }
                };
                let place = PlaceArgs { config, ..PlaceArgs::default() };
                ConfigArgs::Edit { edit, place }
            }
        })
    }
}
