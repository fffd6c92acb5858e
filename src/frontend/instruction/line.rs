//! Form of the lines of a client program. The doc comments are the reference of instructions.

use posse_actors::conversation::{CallId, MessageId, QuestionId};
use posse_actors::event::{QuestionAnswer, Scope};
use serde::Deserialize;
use serde_json::Value;

/// All values of `type`, for errors.
pub(super) const TYPES: [&str; 39] = [
    "message",
    "steer",
    "follow_up",
    "interrupt",
    "compact",
    "context",
    "permission.mode",
    "undo",
    "rewind",
    "permission.answer",
    "question.answer",
    "plan.answer",
    "state",
    "messages",
    "stats",
    "rename",
    "label",
    "bash",
    "skill",
    "queue",
    "withdraw",
    "edit_queued",
    "jobs",
    "stop_job",
    "set_model",
    "set_agent",
    "set_thinking",
    "new_session",
    "switch_session",
    "fork",
    "tree",
    "prompts",
    "export",
    "tools",
    "agents",
    "models",
    "skills",
    "sessions",
    "commands",
];

/// Fields of a line, by the value of `type`. The member `id` is taken out before.
#[derive(Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum InstructionLine {
    /// Starts a run, if none is active. Result: `invocationId`.
    #[serde(rename = "message")]
    Message {
        /// A text, or a list of parts of text and images.
        content: Value,
    },
    /// Sends a steering message to the run, delivered after the calls in flight; starts a run if
    /// none is active. Result: `messageId`, or `invocationId` of a new run.
    #[serde(rename = "steer")]
    Steer {
        /// As for `message`.
        content: Value,
    },
    /// Sends a follow-up to the run, delivered after the answer; starts a run if none is active.
    /// Result: as for `steer`.
    #[serde(rename = "follow_up")]
    FollowUp {
        /// As for `message`.
        content: Value,
    },
    /// Stops the run, not the session.
    #[serde(rename = "interrupt")]
    Interrupt {
        /// True to stop background subagents and jobs as well.
        #[serde(default)]
        all: bool,
    },
    /// Compacts the history, if nothing runs. Result: `tokensBefore` and `tokensAfter`, at the end.
    #[serde(rename = "compact")]
    Compact {
        /// Text to keep.
        #[serde(default)]
        keep: Option<String>,
    },
    /// Announces the composition of a request in tokens as an event `context.used`.
    #[serde(rename = "context")]
    Context {},
    /// Changes the permission mode of the session. Result: `mode`.
    #[serde(rename = "permission.mode")]
    Mode {
        /// Name of the mode.
        mode: String,
    },
    /// Takes back the last change of files, if nothing runs. Result, at the end: `restored`.
    #[serde(rename = "undo")]
    Undo {
        /// Number of a checkpoint whose files are restored instead.
        #[serde(default)]
        checkpoint: Option<u64>,
    },
    /// Returns to the state before a prompt, if nothing runs. If that replaces changes of the user,
    /// it fails with their names, and the same instruction again restores the files. Result, at the
    /// end: `restored`, and `prompt` and `sessionId` of the copy if the conversation returns.
    #[serde(rename = "rewind")]
    Rewind {
        /// Number of the prompt, counted from 1.
        prompt: usize,
        /// Part that returns: `files`, `all`, `conversation` or `both`.
        what: String,
    },
    /// Answers a permission request.
    #[serde(rename = "permission.answer")]
    Answer {
        /// Id of the request.
        request_id: QuestionId,
        /// The decision.
        decision: AnswerDecision,
        /// Scope of a permission; without it, this call only.
        #[serde(default)]
        scope: Option<Scope>,
        /// Reason of a denial, for the model.
        #[serde(default)]
        reason: Option<String>,
        /// Must be `global` if a call is allowed with the scope `global`; otherwise ignored.
        #[serde(default)]
        confirm: Option<Scope>,
        /// Answers about the hunks of the request, for the decision `hunks` alone.
        #[serde(default)]
        hunks: Option<Vec<Value>>,
    },
    /// Answers questions of the model.
    #[serde(rename = "question.answer")]
    QuestionAnswer {
        /// Id of the request.
        request_id: QuestionId,
        /// One answer for each question.
        answers: Vec<QuestionAnswer>,
    },
    /// Accepts a plan of the model.
    #[serde(rename = "plan.answer")]
    PlanAnswer {
        /// Id of the request.
        request_id: QuestionId,
        /// Permission mode in which the plan is carried out.
        mode: String,
        /// The plan as the user has changed it.
        #[serde(default)]
        plan: Option<String>,
    },
    /// Returns the state of the session: `sessionId`, `title`, `agent`, `provider`, `model`,
    /// `cwd`, `permissionMode`, `idle`, `queued` and `jobs` (numbers), `records`.
    #[serde(rename = "state")]
    State {},
    /// Returns the history of the conversation as the model sees it: `messages`.
    #[serde(rename = "messages")]
    Messages {},
    /// Returns usage and cost (`total`, `models`, `agents`) and the composition of a request in
    /// tokens (`context`).
    #[serde(rename = "stats")]
    Stats {},
    /// Gives the session a title, which no model replaces. Result: `title` as recorded.
    #[serde(rename = "rename")]
    Rename {
        /// The title; one line of at most 80 characters.
        title: String,
    },
    /// Labels a prompt for the tree of branches. Result: `label` as recorded.
    #[serde(rename = "label")]
    Label {
        /// Id of the session of the prompt; without it, this session.
        #[serde(default)]
        session: Option<String>,
        /// Number of the prompt in the conversation of its session, as in `tree`, counted from 1.
        prompt: u32,
        /// The label; empty to remove it.
        label: String,
    },
    /// Runs a command as the user, if nothing runs, under the same rules as calls of the model. The
    /// model gets command and output with its next request. Result, at the end: `callId`, `status`
    /// (`completed`, `failed`, `unknown`), `output` and `metadata`.
    #[serde(rename = "bash")]
    Bash {
        /// The command.
        command: String,
        /// True if the model is not told of it.
        #[serde(default)]
        private: bool,
    },
    /// Starts a run with a skill, if none is active. Result: `invocationId`.
    #[serde(rename = "skill")]
    Skill {
        /// Name of the skill.
        name: String,
        /// The task; without it, the skill itself says what to do.
        #[serde(default)]
        task: String,
    },
    /// Returns the queued messages: `queue` with `messageId`, `kind` and `text`.
    #[serde(rename = "queue")]
    Queue {},
    /// Deletes a queued message of the user. Result: its `content`.
    #[serde(rename = "withdraw")]
    Withdraw {
        /// Id of the message.
        message_id: MessageId,
    },
    /// Changes a queued message of the user: its text, or its position. It and the messages behind it
    /// get new ids. Result: the `queue`.
    #[serde(rename = "edit_queued")]
    EditQueued {
        /// Id of the message.
        message_id: MessageId,
        /// Its new text. Images stay.
        #[serde(default)]
        text: Option<String>,
        /// Its new position among the messages of the user, counted from 1.
        #[serde(default)]
        position: Option<usize>,
    },
    /// Returns the running background jobs: `jobs` with `callId` and `summary`.
    #[serde(rename = "jobs")]
    Jobs {},
    /// Stops a background job. Its end is an event `job.ended`.
    #[serde(rename = "stop_job")]
    StopJob {
        /// Call id of the job.
        call_id: CallId,
    },
    /// Continues the conversation with another model, provider or both, if nothing runs; `default`
    /// means the configured value. Other sessions keep theirs. Result: as for `state`.
    #[serde(rename = "set_model")]
    SetModel {
        /// Name of the model at the provider.
        #[serde(default)]
        model: Option<String>,
        /// Name of the provider; without `model`, with the provider's own model.
        #[serde(default)]
        provider: Option<String>,
    },
    /// Continues the conversation with another main agent, if nothing runs. Result: as for `state`.
    #[serde(rename = "set_agent")]
    SetAgent {
        /// Name of the agent; `default` means the configured one.
        agent: String,
    },
    /// Continues the conversation with another reasoning effort, if nothing runs. Result: as for
    /// `state`.
    #[serde(rename = "set_thinking")]
    SetThinking {
        /// `off`, `minimal`, `low`, `medium`, `high` or `xhigh`; `default` means the configured
        /// value.
        thinking: String,
    },
    /// Ends the session and starts a new one, if nothing runs. Result: as for `state`.
    #[serde(rename = "new_session")]
    NewSession {},
    /// Ends the session and resumes a stored one, if nothing runs. Unfinished work of it continues.
    /// Result: as for `state`.
    #[serde(rename = "switch_session")]
    SwitchSession {
        /// Id of the session, or the beginning of it.
        session: String,
    },
    /// Ends the session and continues in a copy of it, if nothing runs. Result: as for `state`, and
    /// `prompt` if the copy ends before one.
    #[serde(rename = "fork")]
    Fork {
        /// Id of the session that is copied, such as one of `tree`; without it, this session.
        #[serde(default)]
        session: Option<String>,
        /// Number of the prompt before which the copy ends, counted from 1; without it, the whole
        /// conversation is copied.
        #[serde(default)]
        prompt: Option<usize>,
    },
    /// Returns the branches of the conversation: `tree`, a list of rows with `session`, `prompt`
    /// (number; missing for a session itself), `depth`, `text`, `label` and `here` (true at the
    /// current position).
    #[serde(rename = "tree")]
    Tree {},
    /// Returns the prompts of the conversation, also those before a copy, to which `rewind` and `fork`
    /// can return: `prompts` with `prompt` (number) and `text`, the latest first.
    #[serde(rename = "prompts")]
    Prompts {},
    /// Writes the session as a document. Result: `path`.
    #[serde(rename = "export")]
    Export {
        /// File, relative to the working directory; Markdown, or HTML if its name ends in `.html`.
        /// Without it, a Markdown file named after the session.
        #[serde(default)]
        file: Option<String>,
    },
    /// Returns what `posse tools --json` prints: `tools`.
    #[serde(rename = "tools")]
    Tools {},
    /// Returns what `posse agents --json` prints: `agents`.
    #[serde(rename = "agents")]
    Agents {},
    /// Returns the `models` that `posse models --json` prints. Also `providers` and `thinking`, the
    /// names for `set_model` and `set_thinking`.
    #[serde(rename = "models")]
    Models {},
    /// Returns what `posse skills list --json` prints: `skills`.
    #[serde(rename = "skills")]
    Skills {},
    /// Returns what `posse sessions list --json` prints: `sessions`.
    #[serde(rename = "sessions")]
    Sessions {},
    /// Returns the slash commands of a person: `commands` with `name`, `argument` and `help`.
    #[serde(rename = "commands")]
    Commands {},
}

/// Decision about a permission request.
#[derive(Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerDecision {
    /// Allow the call.
    Allow,
    /// Deny the call.
    Deny,
    /// Run the call in a trial first; the request returns with the result.
    Try,
    /// Keep the changes of the trial.
    Keep,
    /// Make only chosen hunks of the change.
    Hunks,
}

/// JSON Schema of the lines, without the member `id`.
#[cfg(feature = "testing")]
pub(super) fn schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<InstructionLine>().into()
}
