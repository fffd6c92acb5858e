//! Groups the records of a session for an exported document: messages, notes, and each call with
//! its permission requests and its outcome.

use std::collections::HashMap;
use std::sync::Arc;

use posse_actors::conversation::{CallId, ContentPart, Message, MessageId, QuestionId, text_of};
use posse_actors::event::{
    Event, HookDecision, HunkAnswer, MessageKind, Origin, SandboxTier, Scope, StoredRecord,
};
use posse_actors::ledger::{Account, Accounts};
use serde_json::Value;

use crate::transcript::{Line, Tone, counted, describe_note};

/// Maximum bytes of one text in a story. A longer text is cut there, and a line with the number of
/// removed bytes is appended.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Size of all texts in a story, in bytes, above which further records are only counted.
const STORY_BYTES_MAX: usize = 256 << 20;

/// Contents of an exported document, built from the records of a session.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) id: String,
    pub(super) started: Option<SessionStart>,
    pub(super) entries: Vec<StoryEntry>,
    pub(super) accounts: Accounts,
    pub(super) replies: u32,
    pub(super) calls: u32,
    pub(super) last_ms: Option<u64>,
    pub(super) ended: Option<(String, i32)>,
    pub(super) prompt: Option<String>,
    /// Title of the session, by the user or a model.
    pub(super) title: Option<String>,
    /// Kinds of queued messages, until they are delivered.
    queued: HashMap<MessageId, MessageKind>,
    /// True if the records of the original session were added, so that the history which a copy took
    /// over from it would repeat them.
    has_original: bool,
    places: HashMap<CallId, usize>,
    questions: HashMap<QuestionId, usize>,
    bytes: usize,
    /// Number of records after the texts exceeded `STORY_BYTES_MAX`. They are not shown.
    pub(super) left_out: u64,
}

/// Values of the record with which the session started: time in milliseconds since 1970, version of
/// posse, working directory, agent, provider and model.
#[derive(Debug)]
pub(super) struct SessionStart {
    pub(super) ts: u64,
    pub(super) posse: String,
    pub(super) cwd: String,
    pub(super) agent: String,
    pub(super) provider: String,
    pub(super) model: String,
}

/// One entry of a story, with its time.
#[derive(Debug)]
pub(super) struct StoryEntry {
    /// Time in milliseconds since 1970.
    pub(super) ts: u64,
    pub(super) content: EntryContent,
}

/// Content of an entry: a message, a call or a note.
#[derive(Debug)]
pub(super) enum EntryContent {
    /// Message in the user's role.
    User {
        author: MessageAuthor,
        text: String,
        images: usize,
        queued: bool,
    },
    Reply {
        who: Option<String>,
        thinking: String,
        text: String,
    },
    Partial {
        text: String,
        cause: String,
    },
    Call(Box<StoryCall>),
    Note {
        bad: bool,
        word: &'static str,
        text: String,
    },
}

/// Author of a message in the user's role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessageAuthor {
    /// The user.
    User,
    /// posse, which informs the model.
    Posse,
    /// Another agent; the message is the task of the subagent with this agent path.
    AgentOf(String),
}

/// A tool call, from request to outcome.
#[derive(Debug, Default)]
pub(super) struct StoryCall {
    pub(super) who: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) summary: Option<String>,
    pub(super) tier: Option<SandboxTier>,
    pub(super) questions: Vec<StoryQuestion>,
    pub(super) end: Option<CallOutcome>,
}

/// A permission request of a call. `answer` is true if the request was allowed, false if it was
/// denied or withdrawn, with a description; `None` if no answer is recorded.
#[derive(Debug)]
pub(super) struct StoryQuestion {
    pub(super) id: QuestionId,
    pub(super) summary: String,
    pub(super) reason: String,
    pub(super) answer: Option<(bool, String)>,
}

/// Outcome of a tool call.
#[derive(Debug)]
pub(super) struct CallOutcome {
    pub(super) good: bool,
    /// `done`, the class of the failure, or `outcome unknown`.
    pub(super) word: String,
    pub(super) text: String,
    pub(super) images: usize,
    pub(super) diff: Option<String>,
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<String>,
    pub(super) duration_ms: Option<u64>,
}

impl Story {
    pub(super) fn new(id: &str) -> Story {
        Story { id: id.to_owned(), ..Story::default() }
    }

    /// Adds the next record of the session. Once the texts exceed `STORY_BYTES_MAX`, a record only
    /// counts in the accounts and in `left_out`.
    pub(super) fn add(&mut self, record: StoredRecord) {
        self.last_ms = Some(record.ts);
        // Includes records that no longer fit into the story.
        self.accounts.push(&record);
        if self.bytes > STORY_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.session(record.ts, record.origin.as_deref(), record.event);
    }

    /// Adds a record of the session of which this one is a copy, up to the place of the copy. The
    /// spending of that session is not part of this one.
    pub(super) fn add_original(&mut self, record: StoredRecord) {
        self.last_ms = Some(record.ts);
        if self.bytes > STORY_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        if let Event::SessionForked { history, .. } = &record.event
            && !self.has_original
        {
            return self.inherited_history(history);
        }
        if let Event::SessionTitled { title } = record.event {
            self.title = Some(title);
            return;
        }
        let is_of_session = matches!(
            record.event,
            Event::SessionStarted { .. }
                | Event::SessionForked { .. }
                | Event::SessionResumed { .. }
                | Event::SessionEnded { .. }
        );
        if !is_of_session {
            self.add_message(record.origin.as_deref(), record.event);
        }
    }

    /// Marks that all records of an original were added.
    pub(super) fn end_original(&mut self) {
        self.has_original = true;
    }

    /// Adds a note that the journal is damaged here. `problem` describes the damage.
    pub(super) fn broken(&mut self, problem: &str) {
        let text = problem.to_owned();
        self.push(EntryContent::Note { bad: true, word: "damaged", text });
    }

    /// Formats the numbers of replies and calls: `2 replies, 1 tool call`.
    pub(super) fn work(&self) -> String {
        let replies = counted(u64::from(self.replies), "reply").replace("replys", "replies");
        format!("{replies}, {}", counted(u64::from(self.calls), "tool call"))
    }

    /// Adds the start or end of the session, or the history of a fork. Every event except start and
    /// end goes on to [`Story::add_message`].
    fn session(&mut self, ts: u64, origin: Option<&Origin>, event: Event) {
        match event {
            Event::SessionStarted { posse, cwd, agent, provider, model, .. } => {
                // Another provider or model was selected.
                self.ended = None;
                self.started.get_or_insert(SessionStart { ts, posse, cwd, agent, provider, model });
            }
            Event::SessionEnded { reason, exit_code, .. } => {
                self.ended = Some((reason.to_string(), exit_code));
            }
            Event::SessionTitled { title } => self.title = Some(title),
            event => {
                if matches!(event, Event::SessionResumed { .. }) {
                    self.ended = None;
                }
                if let Event::SessionForked { history, .. } = &event
                    && !self.has_original
                {
                    self.inherited_history(history);
                }
                self.add_message(origin, event);
            }
        }
    }

    /// Adds the user messages and model replies that a fork inherited from its original session.
    fn inherited_history(&mut self, history: &[Arc<Message>]) {
        for message in history {
            match &**message {
                Message::User { content } => {
                    let (text, images) = (self.clip(text_of(content)), images(content));
                    self.prompt.get_or_insert_with(|| text.clone());
                    let (author, queued) = (MessageAuthor::User, false);
                    self.push(EntryContent::User { author, text, images, queued });
                }
                Message::Assistant(said) => {
                    let text = self.clip(said.content.clone().unwrap_or_default());
                    if !text.trim().is_empty() {
                        let (who, thinking) = (None, String::new());
                        self.push(EntryContent::Reply { who, thinking, text });
                    }
                }
                Message::System { .. } | Message::Tool { .. } => (),
            }
        }
    }

    /// Adds a message of the user, or a complete or partial reply of the model. Passes any other
    /// event to [`Story::call`].
    fn add_message(&mut self, origin: Option<&Origin>, event: Event) {
        match event {
            Event::UserMessage { content, message_id } => {
                let text = self.clip(text_of(&content));
                let (images, queued) = (images(&content), message_id.is_some());
                let kind = message_id.and_then(|id| self.queued.remove(&id));
                let author = match (child(origin), kind) {
                    (_, Some(MessageKind::Notice | MessageKind::Aside)) => MessageAuthor::Posse,
                    (Some(path), _) => MessageAuthor::AgentOf(path),
                    (None, _) => MessageAuthor::User,
                };
                if author == MessageAuthor::User {
                    self.prompt.get_or_insert_with(|| text.clone());
                }
                self.push(EntryContent::User { author, text, images, queued });
            }
            Event::MessageQueued { message_id, kind, .. } => {
                self.queued.insert(message_id, kind);
            }
            Event::ModelReply { message, .. } => {
                self.replies += 1;
                let thinking = self.clip(message.reasoning.map(|r| r.text).unwrap_or_default());
                let text = self.clip(message.content.unwrap_or_default());
                if !text.trim().is_empty() || !thinking.trim().is_empty() {
                    self.push(EntryContent::Reply { who: child(origin), thinking, text });
                }
            }
            Event::ModelPartial { text, cause, .. } => {
                let text = self.clip(text);
                self.push(EntryContent::Partial { text, cause });
            }
            event => self.call(origin, event),
        }
    }

    /// Adds the request, start or sandbox tier of a call. Passes any other event to
    /// [`Story::outcome`].
    fn call(&mut self, origin: Option<&Origin>, event: Event) {
        match event {
            Event::ToolRequested { call_id, name, arguments } => {
                let arguments = self.clip(arguments);
                let call = self.entry(&call_id, &name);
                (call.who, call.arguments) = (child(origin), arguments);
            }
            Event::ToolStarted { call_id, name, summary, .. } => {
                let summary = self.clip(summary);
                self.entry(&call_id, &name).summary = Some(summary);
            }
            Event::SandboxEnforced { call_id, tier, .. } => {
                self.entry(&call_id, "").tier = Some(tier);
            }
            event => self.outcome(event),
        }
    }

    /// Adds the outcome of a call. Passes any other event to [`Story::question`].
    fn outcome(&mut self, event: Event) {
        let (id, name, content, metadata, word, good, duration_ms) = match event {
            Event::ToolCompleted { call_id, name, content, metadata, duration_ms } => {
                (call_id, name, content, metadata, "done".to_owned(), true, Some(duration_ms))
            }
            Event::ToolFailed { call_id, name, content, class, metadata, duration_ms } => {
                (call_id, name, content, metadata, class.to_string(), false, Some(duration_ms))
            }
            Event::ToolOutcomeUnknown { call_id, name, content, begun: _ } => {
                (call_id, name, content, Value::Null, "outcome unknown".to_owned(), false, None)
            }
            event => return self.question(event),
        };
        let diff = metadata.get("diff").and_then(Value::as_str).filter(|diff| !diff.is_empty());
        let diff = diff.map(|diff| self.clip(diff.to_owned()));
        let end = CallOutcome {
            good,
            word,
            text: self.clip(text_of(&content)),
            images: images(&content),
            diff,
            exit_code: metadata.get("exitCode").and_then(Value::as_i64),
            signal: metadata.get("signal").and_then(Value::as_str).map(str::to_owned),
            duration_ms,
        };
        self.entry(&id, &name).end = Some(end);
    }

    /// Adds a permission request, or its answer, to its call. Passes any other event to
    /// [`Story::note`].
    fn question(&mut self, event: Event) {
        let (id, answer) = match event {
            Event::PermissionRequested { request_id, call_id, tool, summary, reason, .. } => {
                let (summary, reason) = (self.clip(summary), self.clip(reason));
                let call = self.entry(&call_id, &tool);
                // Asked again under the same id: the later text counts.
                call.questions.retain(|question| question.id != request_id);
                let id = request_id.clone();
                call.questions.push(StoryQuestion { id, summary, reason, answer: None });
                let place = self.places[&call_id];
                self.questions.insert(request_id, place);
                return;
            }
            Event::PermissionGranted { request_id, by, reply: Some(_), .. } => {
                (request_id, (true, format!("answered by {by}")))
            }
            Event::PermissionGranted { request_id, by, keeps_trial: true, .. } => {
                (request_id, (true, format!("allowed by {by}: the changes of the trial are kept")))
            }
            Event::PermissionGranted { request_id, by, hunks, .. } if !hunks.is_empty() => {
                (request_id, (true, format!("allowed by {by}: {}", HunkAnswer::summary(&hunks))))
            }
            Event::PermissionGranted { request_id, by, scope, grant, .. } => {
                let covers = grant
                    .map(|grant| format!(": {} in {}", grant.operation, grant.target))
                    .unwrap_or_default();
                (request_id, (true, format!("allowed by {by}, {}{covers}", scope_name(scope))))
            }
            Event::PermissionDenied { request_id, by, reason, is_user_request, .. } => {
                let what = if is_user_request { "not answered" } else { "denied" };
                (request_id, (false, format!("{what} by {by}: {reason}")))
            }
            Event::PermissionWithdrawn { request_id, reason, .. } => {
                (request_id, (false, format!("withdrawn: {reason}")))
            }
            event => return self.note(&event),
        };
        let place = self.questions.get(&id).copied();
        let entry = place.and_then(|place| self.entries.get_mut(place));
        if let Some(StoryEntry { content: EntryContent::Call(call), .. }) = entry
            && let Some(open) = call.questions.iter_mut().find(|question| question.id == id)
        {
            open.answer = Some(answer);
        }
    }

    /// Adds a note about an event that is part of neither a message nor a call. Ignores an event
    /// without a description.
    fn note(&mut self, event: &Event) {
        if let Some((tone, word, text)) = describe_note(event).or_else(|| hook_note(event)) {
            let text = self.clip(text);
            self.push(EntryContent::Note { bad: tone == Tone::Bad, word, text });
        }
    }

    fn push(&mut self, content: EntryContent) {
        self.entries.push(StoryEntry { ts: self.last_ms.unwrap_or_default(), content });
    }

    /// Returns the call with this id. If no earlier record named it, adds a new call of the tool
    /// `name`.
    fn entry(&mut self, id: &CallId, name: &str) -> &mut StoryCall {
        let next = self.entries.len();
        let place = *self.places.entry(id.clone()).or_insert(next);
        if place == next {
            self.calls += 1;
            let call = StoryCall { name: name.to_owned(), ..StoryCall::default() };
            self.push(EntryContent::Call(Box::new(call)));
        }
        match &mut self.entries[place].content {
            EntryContent::Call(call) => call,
            _ => unreachable!("the places are those of calls"),
        }
    }

    /// Cuts `text` at `TEXT_BYTES_MAX` and appends a note about the removed bytes. Adds the length
    /// of the result to the size of the story.
    fn clip(&mut self, mut text: String) -> String {
        if text.len() > TEXT_BYTES_MAX {
            let end = text.floor_char_boundary(TEXT_BYTES_MAX);
            let cut = text.len() - end;
            text.truncate(end);
            text.extend(["\n… ", &cut.to_string(), " more bytes"]);
        }
        self.bytes += text.len();
        text
    }
}

impl StoryCall {
    /// Facts about the outcome: class of a failure, exit code, signal and duration, or the fact
    /// that no outcome is recorded. Each has a CSS class: `good`, `bad` or empty.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(end) = &self.end else { return vec![("bad", "no recorded end".to_owned())] };
        let class = |code: i64| if code == 0 { "good" } else { "bad" };
        let failure = (!end.good).then(|| ("bad", end.word.clone()));
        let exit = end.exit_code.map(|code| (class(code), format!("exit {code}")));
        let signal = end.signal.clone().map(|signal| ("bad", signal));
        let lasted = end.duration_ms.map(|ms| ("", duration(ms)));
        [failure, exit, signal, lasted].into_iter().flatten().collect()
    }

    /// Text of the arguments. `None` if there are none, or if the diff or the summary shows them
    /// already.
    pub(super) fn arguments_shown(&self) -> Option<String> {
        if self.end.as_ref().is_some_and(|end| end.diff.is_some()) {
            return None;
        }
        let parsed: Result<Value, _> = serde_json::from_str(&self.arguments);
        let Ok(value) = parsed else {
            return Some(self.arguments.clone()).filter(|text| !text.trim().is_empty());
        };
        let members = value.as_object();
        if members.is_some_and(serde_json::Map::is_empty) {
            return None;
        }
        let only = members.filter(|members| members.len() == 1);
        if let Some(text) = only.and_then(|members| members.values().next()?.as_str()) {
            let repeated = self.summary.as_deref().is_some_and(|summary| summary.contains(text));
            return (!repeated).then(|| text.to_owned());
        }
        Some(format!("{value:#}"))
    }
}

impl StoryQuestion {
    /// Summary of the request; `None` if it equals the summary of `call`.
    pub(super) fn subject(&self, call: &StoryCall) -> Option<&str> {
        Some(self.summary.as_str()).filter(|summary| call.summary.as_deref() != Some(*summary))
    }
}

/// Note about a hook that failed or whose decision is not `Pass`; `None` for any other event.
fn hook_note(event: &Event) -> Option<Line> {
    let (hook, at, text) = match event {
        Event::HookFired { hook, event, decision, message, .. } => {
            let decision = match decision {
                HookDecision::Pass => return None,
                HookDecision::Warn => "warns",
                HookDecision::Block => "says no",
                HookDecision::Patch => "changed something",
            };
            let message = message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            (hook, event, format!("{decision}{message}"))
        }
        Event::HookFailed { hook, event, code, cause, .. } => {
            (hook, event, format!("failed: {code} {cause}"))
        }
        _ => return None,
    };
    Some((Tone::Bad, "hook", format!("{hook} at {} {text}", at.name())))
}

/// Agent path of the subagent that `origin` names; `None` for the main agent or without an origin.
fn child(origin: Option<&Origin>) -> Option<String> {
    let origin = origin.filter(|origin| origin.parent_invocation_id.is_some())?;
    Some(origin.agent_path.clone())
}

fn images(content: &[ContentPart]) -> usize {
    content.iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. })).count()
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Once => "once",
        Scope::Agent => "for this agent until the session ends",
        Scope::Session => "for the session",
        Scope::Project => "for the project",
        Scope::Global => "everywhere",
    }
}

/// Formats a duration in milliseconds: `12 ms`, `3.4 s`, `2 min 5 s`.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// Formats the tokens and the cost of an account: `3 in, 4 out, $0.01`. An unknown number of tokens
/// is `?`; `None` if both are unknown. The cost is omitted if no attempt has a known price.
pub(super) fn tokens(account: &Account) -> Option<String> {
    let usage = &account.usage;
    let known = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |n| n.to_string());
    if usage.input_tokens.is_none() && usage.output_tokens.is_none() {
        return None;
    }
    let cost = match account.nano_usd {
        0 if account.unpriced > 0 => String::new(),
        _ => format!(", {}", account.cost_text()),
    };
    Some(format!("{} in, {} out{cost}", known(usage.input_tokens), known(usage.output_tokens)))
}
