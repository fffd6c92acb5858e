//! Arguments of the commands that run an agent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use posse_base::failure::{ErrorCode, Exit, Failure};
use serde_json::{Value, json};

use crate::args::{InputFormat, OutputFormat, PERMISSION_MODES, PlaceArgs};

pub(crate) const RUN_EXITS: &str = "Exit codes: 0 done, 1 the task failed, 2 usage, \
    3 configuration, 4 a permission was needed and no user could be asked, 5 provider unavailable, \
    6 a limit was reached, 7 sandbox, 8 session, 70 internal error, 124 time limit.";

/// Arguments of a session in one form for all commands that run an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunArgs {
    /// The task, from `--prompt` or from words. `None`: the arguments contain no task.
    pub prompt: Option<PromptArg>,
    /// Stored session to resume. `None`: start a new session.
    pub resume: Option<Resume>,
    /// `--skill`: names of skills to activate, in order.
    pub skills: Vec<String>,
    /// Value of `--output-format`. Text without the flag.
    pub output_format: OutputFormat,
    /// Value of `--input-format`. Text without the flag.
    pub input_format: InputFormat,
    /// Flags of all commands that run an agent.
    pub flags: AgentFlags,
    /// `--cwd`, `--config` and `--trust-project`.
    pub place: PlaceArgs,
}

/// Stored session to resume, and the manner: as a fork, and in a single run or a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The session: by id, the newest, or not selected yet.
    pub which: Which,
    /// `--fork`: continue in a new session with a copy of the history.
    pub fork: bool,
    /// True if the arguments ask for a single run; false for a conversation, if a person is at the
    /// terminal.
    pub headless: bool,
}

/// Selection of a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The session with this id, or the only session whose id begins with this text.
    Id(String),
    /// The most recently used session of the working directory or, if it has none, of its project.
    Last,
    /// The arguments select no session: the user is asked for one, which needs a terminal.
    Unsaid,
}

/// Source of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptArg {
    /// The command line contains this task.
    Text(String),
    /// `-`: the task is read from standard input.
    Stdin,
}

/// Arguments of `posse run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RunCommand {
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
    flags: AgentFlags,
    #[command(flatten)]
    formats: Formats,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Arguments of `posse resume`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ResumeCommand {
    /// The session, or an unambiguous beginning of its id
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Task; `-` reads it from standard input
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    words: Vec<String>,
    /// Task, as one value
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Resume the newest session of this project, without an ID
    #[arg(long, help_heading = "Session")]
    last: bool,
    /// Fork: continue in a new session and keep the old one unchanged
    #[arg(long, help_heading = "Session")]
    fork: bool,

    #[command(flatten)]
    flags: AgentFlags,
    #[command(flatten)]
    formats: Formats,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Flags of `posse run` and `posse resume`: skills to activate, and formats of input and output.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
struct Formats {
    /// Skill to activate for the task, from `posse skills`; repeatable
    #[arg(long = "skill", value_name = "NAME", help_heading = "Agent and model")]
    skills: Vec<String>,
    /// Output format of results [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    output_format: Option<OutputFormat>,
    /// Format of standard input [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    input_format: Option<InputFormat>,
}

/// Arguments of `posse plain` and `posse tui`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PlainCommand {
    /// First message of the conversation
    #[arg(value_name = "PROMPT")]
    words: Vec<String>,
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
    flags: AgentFlags,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Flags of all commands that run an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct AgentFlags {
    /// Name of the agent.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Agent and model",
        help = "Agent that does it: `posse agents` lists them [build]"
    )]
    pub agent: Option<String>,
    /// Provider profile or preset
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    pub provider: Option<String>,
    /// Model, instead of the provider's default
    #[arg(long, value_name = "NAME", help_heading = "Agent and model")]
    pub model: Option<String>,
    /// Reasoning effort of the model
    #[arg(long, value_name = "LEVEL", help_heading = "Agent and model",
          value_parser = ["off", "minimal", "low", "medium", "high", "xhigh"])]
    pub thinking: Option<String>,
    /// Replace the agent's instructions in the system prompt
    ///
    /// The environment block, AGENTS.md files, agents and skills follow as always. A resumed session
    /// keeps the text; an empty one restores the agent's instructions. Subagents have their own.
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Agent and model",
        conflicts_with = "system_prompt_file"
    )]
    pub system_prompt: Option<String>,
    /// Same as --system-prompt, with the text of a file
    #[arg(long, value_name = "FILE", help_heading = "Agent and model")]
    pub system_prompt_file: Option<PathBuf>,
    /// Add a text after the agent's instructions in the system prompt
    ///
    /// A resumed session keeps the text; an empty one removes it.
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Agent and model",
        conflicts_with = "append_system_prompt_file"
    )]
    pub append_system_prompt: Option<String>,
    /// Same as --append-system-prompt, with the text of a file
    #[arg(long, value_name = "FILE", help_heading = "Agent and model")]
    pub append_system_prompt_file: Option<PathBuf>,
    /// Run a single agent, or enable subagents
    #[arg(long, help_heading = "Agent and model", value_parser = ["single", "multi"],
          conflicts_with_all = ["single_agent", "multi_agent"])]
    pub mode: Option<String>,
    /// Same as --mode single
    #[arg(long, help_heading = "Agent and model", conflicts_with = "multi_agent")]
    pub single_agent: bool,
    /// Same as --mode multi
    #[arg(long, help_heading = "Agent and model")]
    pub multi_agent: bool,
    /// Image for the model: a path or URL; repeatable
    #[arg(long = "image", value_name = "PATH|URL", help_heading = "Agent and model")]
    pub images: Vec<String>,

    /// End after this many replies of the model
    #[arg(long, value_name = "N", value_parser = turns, help_heading = "Limits")]
    pub max_turns: Option<u32>,
    /// End after this time: 90s, 10m, 2h
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits")]
    pub timeout: Option<Duration>,

    /// End before the cost exceeds this many dollars: 0.50
    #[arg(long, value_name = "USD", value_parser = micro_usd, help_heading = "Limits")]
    pub budget: Option<u64>,

    /// Context of the main agent, in tokens, or auto
    #[arg(long, value_name = "TOKENS", help_heading = "Limits")]
    pub main_max_context_tokens: Option<String>,
    /// Fraction of the main agent's context at which it is compacted: 0.7
    #[arg(long, value_name = "RATIO", help_heading = "Limits")]
    pub main_compact_at: Option<String>,
    /// Context of a subagent, in tokens, or auto
    #[arg(long, value_name = "TOKENS", help_heading = "Limits")]
    pub sub_max_context_tokens: Option<String>,
    /// Fraction of a subagent's context at which it is compacted: 0.7
    #[arg(long, value_name = "RATIO", help_heading = "Limits")]
    pub sub_compact_at: Option<String>,

    /// Run unattended: retry for up to 24 h, never prompt, survive hangup
    #[arg(long, help_heading = "Limits")]
    pub unattended: bool,

    /// Additional folder for tools; repeatable
    #[arg(long = "add-dir", value_name = "DIR", help_heading = "Authority")]
    pub add_dirs: Vec<PathBuf>,
    /// Approve permission requests; deny rules still apply
    #[arg(short, long, help_heading = "Authority")]
    pub yes: bool,
    /// Permission mode: what needs no permission request [default: auto in a conversation on the full sandbox tier, else ask]
    #[arg(long, value_name = "MODE", help_heading = "Authority",
          value_parser = PERMISSION_MODES)]
    pub permission_mode: Option<String>,
    /// Describe effects without changing or starting anything
    #[arg(long, help_heading = "Authority")]
    pub dry_run: bool,
    /// Sandbox mode of commands
    #[arg(long, help_heading = "Authority", value_parser = ["off", "read-only", "workspace-write"])]
    pub sandbox: Option<String>,
    /// Exit with code 7 unless the sandbox tier is full
    #[arg(long, help_heading = "Authority")]
    pub sandbox_required: bool,
    /// Network access of commands
    #[arg(long, help_heading = "Authority", value_parser = ["auto", "deny", "ask", "inherit"])]
    pub network: Option<String>,

    /// Offer permissions that outlive the session
    #[arg(long, conflicts_with = "no_persistent_grants", help_heading = "Authority")]
    pub persistent_grants: bool,
    /// Store no permissions, and ignore stored ones
    #[arg(long, help_heading = "Authority")]
    pub no_persistent_grants: bool,

    /// Request a streamed reply
    #[arg(long, conflicts_with = "no_stream", help_heading = "Output")]
    pub stream: bool,
    /// Request the reply without streaming
    #[arg(long, help_heading = "Output")]
    pub no_stream: bool,
    /// Write no journal; the session cannot be resumed
    #[arg(long, help_heading = "Output")]
    pub no_transcript: bool,
    /// Record the model's replies in this file, for replay
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub record: Option<PathBuf>,
    /// Log the events of the session on standard error; -vv: with their content, and details of
    /// the adapters. The terminal UI writes the log to tui.log in the state folder
    #[arg(short, action = clap::ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
}

impl RunCommand {
    /// Converts to the general form. Fails if the task is empty, or if it is `-` and standard input
    /// has instructions (`--input-format stream-json`).
    pub fn into_args(self) -> Result<RunArgs, Failure> {
        let prompt = prompt(self.prompt, &self.words)?;
        let (which, fork) = (Which::Last, self.fork);
        let resume = self.continues.then_some(Resume { which, fork, headless: true });
        self.formats.into_args(prompt, resume, self.flags, self.place)
    }
}

impl ResumeCommand {
    /// Converts to the general form. With `--last`, the argument for the id is the first word of
    /// the task. Fails if the task is empty or given twice, or if it is `-` and standard input has
    /// instructions (`--input-format stream-json`).
    pub fn into_args(self) -> Result<RunArgs, Failure> {
        let ResumeCommand { id, mut words, prompt: flag, last, fork, flags, formats, place } = self;
        let which = match (last, id) {
            (true, first) => {
                // There is no id: the first word is one of the task.
                words.splice(0..0, first);
                if flag.is_some() && !words.is_empty() {
                    let problem = "with --last there is no ID, and the task was given twice";
                    return Err(Failure::new(ErrorCode::FlagsConflict, Exit::Usage, problem)
                        .fix("leave out one of them"));
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
            || flags.unattended;
        formats.into_args(prompt, Some(Resume { which, fork, headless }), flags, place)
    }
}

impl Formats {
    fn into_args(
        self,
        prompt: Option<PromptArg>,
        resume: Option<Resume>,
        flags: AgentFlags,
        place: PlaceArgs,
    ) -> Result<RunArgs, Failure> {
        let output_format = self.output_format.unwrap_or_default();
        let input_format = self.input_format.unwrap_or_default();
        if input_format == InputFormat::StreamJson && prompt == Some(PromptArg::Stdin) {
            let problem =
                "standard input cannot be both the prompt `-` and `--input-format stream-json`";
            return Err(Failure::new(ErrorCode::FlagsConflict, Exit::Usage, problem)
                .fix("leave out `-`, and send {\"type\":\"message\",\"content\":\"...\"}"));
        }
        Ok(RunArgs {
            prompt,
            resume,
            skills: self.skills,
            output_format,
            input_format,
            flags,
            place,
        })
    }
}

impl PlainCommand {
    /// Converts to the general form, which then has no skills and text formats. `resume` is `None`
    /// without `--resume` and `--continue`.
    pub fn into_args(self) -> RunArgs {
        let prompt = (!self.words.is_empty()).then(|| PromptArg::Text(self.words.join(" ")));
        let which = self.resume.map(Which::Id).or(self.continues.then_some(Which::Last));
        let resume = which.map(|which| Resume { which, fork: self.fork, headless: false });
        RunArgs { prompt, resume, flags: self.flags, place: self.place, ..RunArgs::default() }
    }

    /// True if neither `--unattended` nor `--image` is given: both belong to a single run.
    pub(super) fn is_conversation(&self) -> bool {
        !self.flags.unattended && self.flags.images.is_empty()
    }
}

impl AgentFlags {
    /// True with `--stream`, false with `--no-stream`, `None` without either.
    pub fn streams(&self) -> Option<bool> {
        (self.stream || self.no_stream).then_some(self.stream)
    }

    /// True with `--persistent-grants`, false with `--no-persistent-grants`, `None` without either.
    pub fn keeps_grants(&self) -> Option<bool> {
        (self.persistent_grants || self.no_persistent_grants).then_some(self.persistent_grants)
    }

    /// Mode of `--mode`, `--single-agent` or `--multi-agent`: `single-agent` or `multi-agent`.
    /// `None` without these flags.
    pub fn agent_mode(&self) -> Option<&'static str> {
        match (self.mode.as_deref(), self.single_agent, self.multi_agent) {
            (Some("multi"), ..) | (_, _, true) => Some("multi-agent"),
            (None, false, false) => None,
            _ => Some("single-agent"),
        }
    }

    /// Flags of context budgets, each with its value as given.
    pub fn context_flags(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("--main-max-context-tokens", self.main_max_context_tokens.as_deref()),
            ("--main-compact-at", self.main_compact_at.as_deref()),
            ("--sub-max-context-tokens", self.sub_max_context_tokens.as_deref()),
            ("--sub-compact-at", self.sub_compact_at.as_deref()),
        ]
    }

    /// Settings that the given flags override, as the last layer of the configuration: key of the
    /// setting, value, and name of the flag. `--unattended` sets the setting `patience`.
    pub fn overrides(&self) -> Vec<(&'static str, Value, &'static str)> {
        let either = |on: Option<bool>, yes, no| if on == Some(true) { yes } else { no };
        let stream_flag = either(self.streams(), "--stream", "--no-stream");
        let grants_flag =
            either(self.keeps_grants(), "--persistent-grants", "--no-persistent-grants");
        let timeout = self.timeout.map(|limit| format!("{}ms", limit.as_millis()));
        let [main_tokens, main_ratio, sub_tokens, sub_ratio] =
            self.context_flags().map(|(_, given)| json!(given.map(number_or_text)));
        let values = [
            ("context.main.compactAtRatio", main_ratio, "--main-compact-at"),
            ("context.main.maxContextTokens", main_tokens, "--main-max-context-tokens"),
            ("context.subAgent.compactAtRatio", sub_ratio, "--sub-compact-at"),
            ("context.subAgent.maxContextTokens", sub_tokens, "--sub-max-context-tokens"),
            ("agentMode", json!(self.agent_mode()), "--mode"),
            ("defaultAgent", json!(self.agent), "--agent"),
            ("defaultProvider", json!(self.provider), "--provider"),
            ("model", json!(self.model), "--model"),
            ("thinking", json!(self.thinking), "--thinking"),
            ("maxTurns", json!(self.max_turns), "--max-turns"),
            ("timeout", json!(timeout), "--timeout"),
            ("budget.maxCostMicroUsd", json!(self.budget), "--budget"),
            ("patience", json!(self.unattended.then_some("24h")), "--unattended"),
            ("streaming.enabled", json!(self.streams()), stream_flag),
            ("persistentGrants.enabled", json!(self.keeps_grants()), grants_flag),
            ("permissionMode", json!(self.permission_mode), "--permission-mode"),
            ("sandbox.mode", json!(self.sandbox), "--sandbox"),
            (
                "sandbox.required",
                json!(self.sandbox_required.then_some(true)),
                "--sandbox-required",
            ),
            ("sandbox.network", json!(self.network), "--network"),
        ];
        values.into_iter().filter(|(_, value, _)| !value.is_null()).collect()
    }
}

/// The task from `--prompt`, else from `words`; `-` stands for standard input. `None` if neither is
/// given. An empty task is an error: it is probably a mistake in a script.
fn prompt(flag: Option<String>, words: &[String]) -> Result<Option<PromptArg>, Failure> {
    let text = match flag {
        Some(text) => text,
        None if words.is_empty() => return Ok(None),
        None => words.join(" "),
    };
    if text.trim() == "-" {
        return Ok(Some(PromptArg::Stdin));
    }
    if text.trim().is_empty() {
        return Err(Failure::new(ErrorCode::PromptMissing, Exit::Usage, "the prompt is empty")
            .fix("say what to do: posse run \"fix the failing test\""));
    }
    Ok(Some(PromptArg::Text(text)))
}

/// The number that `text` contains, else the text. The configuration checks the value.
fn number_or_text(text: &str) -> Value {
    let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
    number.unwrap_or_else(|| json!(text))
}

fn turns(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 10000".into())
}

/// Parses an amount in dollars, with or without `$`, and returns it in millionths of a dollar.
/// Zero, more than six decimals and more than a million dollars are errors. Uses no floating point,
/// because binary fractions cannot represent `0.1`.
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
