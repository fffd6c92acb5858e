//! The flags of the commands that run an agent: shared ones first, then those of one command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::{
    CliExit, InputFormat, OutputFormat, PlaceArgs, PromptArg, Resume, RunArgs, Which, usage,
};
use crate::failure::{ErrorCode, Exit, Failure};

pub(crate) const RUN_EXITS: &str = "Exit codes: 0 done, 1 the task failed, 2 usage, \
    3 configuration, 4 a permission was needed and nobody could be asked, 5 provider unavailable, \
    6 a limit was reached, 7 sandbox, 8 session, 70 internal error, 124 time limit.";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The task; `-` reads it from standard input
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    words: Vec<String>,
    /// The task, as one value
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// Resume the newest session of this project
    #[arg(short, long = "continue", help_heading = "Session")]
    continues: bool,
    /// Fork: continue in a new session and keep the old one unchanged
    #[arg(long, requires = "continues", help_heading = "Session")]
    fork: bool,

    #[command(flatten)]
    agent: Agent,
    #[command(flatten)]
    formats: Formats,
    #[command(flatten)]
    place: ConfigLocationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeCommand {
    /// The session, or an unambiguous beginning of its id
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Task; `-` reads it from standard input
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    words: Vec<String>,
    /// Task, as one value
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// The newest session of this project; there is no ID then
    #[arg(long, help_heading = "Session")]
    last: bool,
    /// Fork: continue in a new session and keep the old one unchanged
    #[arg(long, help_heading = "Session")]
    fork: bool,

    #[command(flatten)]
    agent: Agent,
    #[command(flatten)]
    formats: Formats,
    #[command(flatten)]
    place: ConfigLocationFlags,
}

/// Input and output formats.
#[derive(Debug, Args)]
struct Formats {
    /// Skill that the task is to be done with: `posse skills` lists them; repeatable
    #[arg(long = "skill", value_name = "NAME", help_heading = "Agent and model")]
    skills: Vec<String>,
    /// Output format of results [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    output_format: Option<OutputFormat>,
    /// Format of standard input [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    input_format: Option<InputFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct PlainFlags {
    /// Resume this session, by id or unambiguous id prefix
    #[arg(long, value_name = "ID", group = "which", help_heading = "Session")]
    resume: Option<String>,
    /// Resume the newest session of this project
    #[arg(short, long = "continue", group = "which", help_heading = "Session")]
    continues: bool,
    /// Fork: continue in a new session and keep the old one unchanged
    #[arg(long, requires = "which", help_heading = "Session")]
    fork: bool,

    #[command(flatten)]
    agent: Agent,
    #[command(flatten)]
    place: ConfigLocationFlags,
}

/// Flags of all commands that run an agent.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[expect(clippy::struct_field_names, reason = "clap names the flag after the field")]
struct Agent {
    /// Agent that does it: `posse agents` lists them [build]
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    agent: Option<String>,
    /// Provider profile or preset
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    provider: Option<String>,
    /// Model, instead of the provider's own
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    model: Option<String>,
    /// Reasoning effort of the model
    #[arg(long, value_name = "LEVEL", help_heading = "Agent and model",
          value_parser = ["off", "minimal", "low", "medium", "high", "xhigh"])]
    thinking: Option<String>,
    /// Run a single agent, or enable subagents
    #[arg(long, value_enum, help_heading = "Agent and model",
          conflicts_with_all = ["single_agent", "multi_agent"])]
    mode: Option<DelegationMode>,
    /// Same as --mode single
    #[arg(long, help_heading = "Agent and model", conflicts_with = "multi_agent")]
    single_agent: bool,
    /// Same as --mode multi
    #[arg(long, help_heading = "Agent and model")]
    multi_agent: bool,
    /// Image for the model to see, a path or an address; repeatable
    #[arg(long = "image", value_name = "PATH|URL", help_heading = "Agent and model")]
    images: Vec<String>,

    /// Ends after this many replies of the model
    #[arg(long, value_name = "N", value_parser = turns, help_heading = "Limits")]
    max_turns: Option<u32>,
    /// Ends after this time: 90s, 10m, 2h
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits")]
    timeout: Option<Duration>,

    /// Ends before it costs more than this many dollars: 0.50
    #[arg(long, value_name = "USD", value_parser = micro_usd, help_heading = "Limits")]
    budget: Option<u64>,

    /// Run unattended: retry for up to 24 h, never prompt, survive hangup
    #[arg(long, help_heading = "Limits")]
    unattended: bool,

    /// Additional folder for tools; repeatable
    #[arg(long = "add-dir", value_name = "DIR", help_heading = "Authority")]
    add_dirs: Vec<PathBuf>,
    /// Answers permission questions with yes; denied stays denied
    #[arg(short, long, help_heading = "Authority")]
    yes: bool,
    /// Describe effects without changing or starting anything
    #[arg(long, help_heading = "Authority")]
    dry_run: bool,
    /// Confinement of commands
    #[arg(long, value_enum, help_heading = "Authority")]
    sandbox: Option<Sandbox>,
    /// Ends with exit code 7 where commands cannot be confined
    #[arg(long, help_heading = "Authority")]
    sandbox_required: bool,
    /// Network access of commands
    #[arg(long, value_enum, help_heading = "Authority")]
    network: Option<NetworkArg>,

    /// Offers to remember permissions for longer than the session
    #[arg(long, conflicts_with = "no_persistent_grants", help_heading = "Authority")]
    persistent_grants: bool,
    /// Remembers no permission, and uses none that was remembered
    #[arg(long, help_heading = "Authority")]
    no_persistent_grants: bool,

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
    /// More detail on standard error; repeatable
    #[arg(short, action = clap::ArgAction::Count, help_heading = "Output")]
    verbose: u8,
}

/// Flags that select the configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigLocationFlags {
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
enum DelegationMode {
    Single,
    Multi,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sandbox {
    Off,
    ReadOnly,
    WorkspaceWrite,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NetworkArg {
    Deny,
    Inherit,
}

impl Run {
    pub(crate) fn into_args(self) -> Result<RunArgs, CliExit> {
        let prompt = prompt(self.prompt, &self.words)?;
        let resume = self.continues.then_some(Resume {
            which: Which::Last,
            fork: self.fork,
            headless: true,
        });
        let args = self.formats.into_args(prompt, self.agent.into_args(self.place))?;
        Ok(RunArgs { resume, ..args })
    }
}

impl ResumeCommand {
    pub(crate) fn into_args(self) -> Result<RunArgs, CliExit> {
        let ResumeCommand { id, mut words, prompt: flag, last, fork, agent, formats, place } = self;
        let which = match (last, id) {
            (true, first) => {
                // There is no id: the first word is one of the task.
                words.splice(0..0, first);
                if flag.is_some() && !words.is_empty() {
                    let what = "with --last there is no ID, and the task was given twice";
                    return Err(usage(
                        &Failure::new(ErrorCode::FlagsConflict, Exit::Usage, what)
                            .fix("leave out one of them"),
                    ));
                }
                Which::Last
            }
            (false, Some(id)) => Which::Id(id),
            (false, None) => Which::Unsaid,
        };
        let prompt = prompt(flag, &words)?;
        let headless = prompt.is_some()
            || formats.output_format.is_some()
            || formats.input_format.is_some()
            || agent.unattended;
        let args = formats.into_args(prompt, agent.into_args(place))?;
        Ok(RunArgs { resume: Some(Resume { which, fork, headless }), ..args })
    }
}

impl Formats {
    fn into_args(self, prompt: Option<PromptArg>, args: RunArgs) -> Result<RunArgs, CliExit> {
        let output_format = self.output_format.unwrap_or_default();
        let input_format = self.input_format.unwrap_or_default();
        if input_format == InputFormat::StreamJson && prompt == Some(PromptArg::Stdin) {
            let what =
                "standard input cannot be both the prompt `-` and `--input-format stream-json`";
            return Err(usage(
                &Failure::new(ErrorCode::FlagsConflict, Exit::Usage, what)
                    .fix("leave out `-`, and send {\"type\":\"message\",\"content\":\"...\"}"),
            ));
        }
        Ok(RunArgs { prompt, output_format, input_format, skills: self.skills, ..args })
    }
}

impl PlainFlags {
    pub(crate) fn into_args(self) -> RunArgs {
        let which = match (self.resume, self.continues) {
            (Some(id), _) => Some(Which::Id(id)),
            (None, true) => Some(Which::Last),
            (None, false) => None,
        };
        let resume = which.map(|which| Resume { which, fork: self.fork, headless: false });
        RunArgs { resume, ..self.agent.into_args(self.place) }
    }
}

impl Agent {
    fn into_args(self, place: ConfigLocationFlags) -> RunArgs {
        let multi = self.multi_agent || self.mode == Some(DelegationMode::Multi);
        let mode = if multi { "multi-agent" } else { "single-agent" };
        let said = multi || self.single_agent || self.mode.is_some();
        let stream = match (self.stream, self.no_stream) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let persistent_grants = match (self.persistent_grants, self.no_persistent_grants) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        RunArgs {
            agent: self.agent,
            provider: self.provider,
            model: self.model,
            thinking: self.thinking,
            max_turns: self.max_turns,
            timeout: self.timeout,
            budget_micro_usd: self.budget,
            add_dirs: self.add_dirs,
            yes: self.yes,
            unattended: self.unattended,
            dry_run: self.dry_run,
            stream,
            images: self.images,
            no_transcript: self.no_transcript,
            record: self.record,
            sandbox: self.sandbox.as_ref().map(value_name),
            sandbox_required: self.sandbox_required.then_some(true),
            network: self.network.as_ref().map(value_name),
            persistent_grants,
            agent_mode: said.then(|| mode.into()),
            verbose: self.verbose,
            place: place.into_args(),
            ..RunArgs::default()
        }
    }
}

impl ConfigLocationFlags {
    pub(crate) fn into_args(self) -> PlaceArgs {
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
            &Failure::new(ErrorCode::PromptMissing, Exit::Usage, "the prompt is empty")
                .fix("say what to do: posse run \"fix the failing test\""),
        ));
    }
    Ok(Some(PromptArg::Text(text)))
}

fn turns(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 10000".into())
}

/// Dollars as millionths of one. Not by way of a fraction: `0.1` is no binary one.
fn micro_usd(text: &str) -> Result<u64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text);
    let (whole, rest) = amount.split_once('.').unwrap_or((amount, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && rest.is_empty()) || !digits(whole) || !digits(rest) || rest.len() > 6 {
        return Err("expected dollars, with at most six digits after the point: 5 or 0.50".into());
    }
    let number =
        format!("0{whole}{rest:0<6}").parse().ok().filter(|micro| *micro <= 1_000_000_000_000);
    match number {
        Some(0) => Err("there is no money in it; leave the flag out for no limit".into()),
        Some(micro) => Ok(micro),
        None => Err("the most is a million dollars".into()),
    }
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
