//! The command line as clap sees it, and its translation into our own plain values.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::{
    CliExit, ConfigArgs, DemoArgs, Invocation, OutputFormat, PlaceArgs, PromptArg, RunArgs,
    SessionsAction, SessionsArgs, usage,
};

/// A local coding-agent runtime: a posse of agents under one authority.
#[derive(Debug, Parser)]
#[command(
    name = "posse",
    version,
    disable_help_subcommand = true,
    after_help = "`posse -p PROMPT` is short for `posse run -p PROMPT`. \
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
    /// Shows everything on a recorded model and a sample repository, without key or network
    Demo(Demo),
    /// Shows and checks what is stored
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sessions(Sessions),
    /// Shows the effective settings and where they come from
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Config(Config),
}

const RUN_EXITS: &str = "Exit codes: 0 done, 1 the task failed, 2 usage, 3 configuration, \
    4 a permission was needed and nobody could be asked, 5 provider unavailable, \
    6 a limit was reached, 7 sandbox, 8 session, 70 internal error, 124 time limit.";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[expect(clippy::struct_field_names, reason = "clap names the flag after the field")]
pub(crate) struct Run {
    /// The task; `-` reads it from standard input
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    words: Vec<String>,
    /// The task, as one value
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// Agent that does it [build, plan]
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    agent: Option<String>,
    /// Provider profile or preset
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    provider: Option<String>,
    /// Model, instead of the provider's own
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    model: Option<String>,
    /// Only `single` is available
    #[arg(long, value_enum, help_heading = "Agent and model",
          conflicts_with_all = ["single_agent", "multi_agent"])]
    mode: Option<Mode>,
    /// The same as --mode single
    #[arg(long, help_heading = "Agent and model", conflicts_with = "multi_agent")]
    single_agent: bool,
    /// Not available yet
    #[arg(long, hide = true)]
    multi_agent: bool,
    /// Image for the model to see, a path or an address; repeatable
    #[arg(long = "image", value_name = "PATH|URL", help_heading = "Agent and model")]
    images: Vec<String>,

    /// Ends after this many replies of the model
    #[arg(long, value_name = "N", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_turns: Option<u32>,
    /// Ends after this time: 90s, 10m, 2h
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits")]
    timeout: Option<Duration>,

    /// Another folder that tools may use; repeatable
    #[arg(long = "add-dir", value_name = "DIR", help_heading = "Authority")]
    add_dirs: Vec<PathBuf>,
    /// Answers permission questions with yes; denied stays denied
    #[arg(short, long, help_heading = "Authority")]
    yes: bool,
    /// Only says what would be done; nothing is changed or started
    #[arg(long, help_heading = "Authority")]
    dry_run: bool,
    /// What commands are confined to
    #[arg(long, value_enum, help_heading = "Authority")]
    sandbox: Option<Sandbox>,
    /// Whether commands reach the network
    #[arg(long, value_enum, help_heading = "Authority")]
    network: Option<Network>,

    /// How results are printed
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output"
    )]
    output_format: OutputFormat,
    /// Asks the provider for a stream
    #[arg(long, conflicts_with = "no_stream", help_heading = "Output")]
    stream: bool,
    /// Asks the provider for one piece
    #[arg(long, help_heading = "Output")]
    no_stream: bool,
    /// Keeps no journal; such a session cannot be resumed
    #[arg(long, help_heading = "Output")]
    no_transcript: bool,
    /// Records the model's replies into this file, for replaying
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    record: Option<PathBuf>,
    /// Says more on standard error; repeatable
    #[arg(short, action = clap::ArgAction::Count, help_heading = "Output")]
    verbose: u8,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Place {
    /// Works in this folder
    #[arg(long, value_name = "DIR", help_heading = "Configuration")]
    cwd: Option<PathBuf>,
    /// Reads this file over the user's configuration
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<PathBuf>,
    /// Lets this project's configuration count, for this run
    #[arg(long, help_heading = "Configuration")]
    trust_project: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Single,
    #[value(hide = true)]
    Multi,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sandbox {
    Off,
    ReadOnly,
    WorkspaceWrite,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Network {
    Deny,
    Inherit,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How results are printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: OutputFormat,
    /// Says more on standard error; repeatable
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Args)]
pub(crate) struct Sessions {
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
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows one session
    Show {
        /// The session, or an unambiguous beginning of its id
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Checks the hash chain of one session, or of every session of the project
    Verify {
        /// The session, or an unambiguous beginning of its id
        id: Option<String>,
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
        /// Says which file, variable or flag set each
        #[arg(long)]
        origin: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Prints the files and folders in use
    Path {
        #[command(flatten)]
        place: Place,
    },
}

impl Command {
    pub(crate) fn into_invocation(self) -> Result<Invocation, CliExit> {
        Ok(match self {
            Command::Run(run) => Invocation::Run(Box::new(run.into_args()?)),
            Command::Demo(Demo { output_format, verbose }) => {
                Invocation::Demo(DemoArgs { output_format, verbose })
            }
            Command::Sessions(Sessions { action, cwd }) => {
                let action = match action {
                    SessionsCommand::List { json } => SessionsAction::List { json },
                    SessionsCommand::Show { id, json } => SessionsAction::Show { id, json },
                    SessionsCommand::Verify { id } => SessionsAction::Verify { id },
                };
                Invocation::Sessions(SessionsArgs { cwd, action })
            }
            Command::Config(Config { action }) => Invocation::Config(match action {
                ConfigCommand::Show { origin, json, place } => {
                    ConfigArgs::Show { origin, json, place: place.into_args() }
                }
                ConfigCommand::Path { place } => ConfigArgs::Path { place: place.into_args() },
            }),
        })
    }
}

impl Run {
    fn into_args(self) -> Result<RunArgs, CliExit> {
        if self.multi_agent || self.mode == Some(Mode::Multi) {
            let flag = if self.multi_agent { "--multi-agent" } else { "--mode multi" };
            return Err(usage(format!(
                "error: '{flag}' is not available yet\n\n  tip: leave it out; one agent does the task"
            )));
        }
        let single = self.single_agent || self.mode.is_some();
        let stream = match (self.stream, self.no_stream) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        Ok(RunArgs {
            prompt: prompt(self.prompt, &self.words)?,
            agent: self.agent,
            provider: self.provider,
            model: self.model,
            max_turns: self.max_turns,
            timeout: self.timeout,
            add_dirs: self.add_dirs,
            yes: self.yes,
            dry_run: self.dry_run,
            stream,
            images: self.images,
            no_transcript: self.no_transcript,
            output_format: self.output_format,
            record: self.record,
            sandbox: self.sandbox.as_ref().map(value_name),
            network: self.network.as_ref().map(value_name),
            agent_mode: single.then(|| "single-agent".into()),
            verbose: self.verbose,
            place: self.place.into_args(),
        })
    }
}

impl Place {
    fn into_args(self) -> PlaceArgs {
        PlaceArgs { cwd: self.cwd, config: self.config, trust_project: self.trust_project }
    }
}

fn value_name<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An empty task is a mistake in a script, and not an order to read standard input.
fn prompt(flag: Option<String>, words: &[String]) -> Result<Option<PromptArg>, CliExit> {
    let text = match flag {
        Some(text) => text,
        None if words.is_empty() => return Ok(None),
        None => words.join(" "),
    };
    if text.trim() == "-" {
        return Ok(Some(PromptArg::Stdin));
    }
    if text.trim().is_empty() {
        return Err(usage(
            "error: the prompt is empty\n\n  tip: posse run \"fix the test\"".into(),
        ));
    }
    Ok(Some(PromptArg::Text(text)))
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let known = units.iter().find_map(|(unit, factor)| {
        let digits = text.strip_suffix(unit)?;
        let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse::<u64>().ok()?.checked_mul(*factor))?
    });
    match known {
        Some(0) => Err("there is no time in it; leave the flag out for no limit".into()),
        Some(ms) if ms <= 30 * 24 * 3_600_000 => Ok(Duration::from_millis(ms)),
        Some(_) => Err("the longest is 30 days, 720h".into()),
        None => Err("expected a number and a unit: 90s, 10m, 2h".into()),
    }
}
