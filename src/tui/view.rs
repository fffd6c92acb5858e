//! What happened, as it is shown: a fold over events. Knows no terminal and no clock; the time is
//! passed in.

mod block;
mod calls;
mod drawing;
mod heard;
mod notices;
mod outputs;
pub(super) mod tool;
mod tree;

use std::collections::VecDeque;
use std::time::Duration;

use posse_actors::conversation::{
    CallId, ContentPart, InvocationId, MessageId, QuestionId, Usage, text_of,
};
use posse_actors::event::{Event, MessageKind, Origin};
use posse_actors::skills;

use crate::failure::{Failure, printable};
use crate::talk::{clipboard, queue};
use crate::tui::markdown::Stream;
use crate::tui::text::{Row, harmless};
use crate::tui::theme::Role;

use block::Kind;
pub(super) use block::{Block, turn};
use heard::Heard;
pub(super) use outputs::Outputs;
use tree::Tree;

/// Characters of thinking that are kept to be shown.
const THOUGHT_BYTES_MAX: usize = 2 << 10;

/// What is true for the moment.
#[derive(Debug, Clone, PartialEq)]
enum Banner {
    /// The provider is away.
    Waiting { provider: String, until: Duration, patience: Duration, cause: String },
    /// Nothing is heard.
    Silent { provider: String, since: Duration },
}

/// The session has stopped itself.
#[derive(Debug, Clone, PartialEq)]
struct Parked {
    cause: String,
    /// When it is tried again by itself, if it is.
    next: Option<Duration>,
}

/// A message that waits to be said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    pub(super) id: MessageId,
    pub(super) kind: MessageKind,
    pub(super) text: String,
}

impl Waiting {
    /// When it is said, in words; `busy`: something runs.
    pub(super) fn when(&self, busy: bool) -> &'static str {
        queue::when(self.kind, busy)
    }

    /// What posse itself has to say is not the user's to take back.
    pub(super) fn is_own(&self) -> bool {
        self.kind != MessageKind::Notice
    }
}

/// Everything that is shown of a session.
#[derive(Debug, Default)]
pub(super) struct View {
    /// In order; those at the beginning that are not open are finished.
    blocks: VecDeque<Block>,
    /// Rows of finished blocks that did not fit into the last frame.
    ready: VecDeque<Row>,
    /// What was finished last, which decides what stands between it and the next.
    before: Option<Kind>,
    stream: Stream,
    /// What was heard of the reply so far.
    heard: Heard,
    thought: String,
    /// The last whole reply, to be copied: what is larger than that takes is not kept.
    last_reply: String,
    /// Bytes of it.
    last_reply_bytes: usize,
    banner: Option<Banner>,
    queue: Vec<Waiting>,
    /// Messages about what the user did beside, that the model was not told of yet.
    asides: Vec<MessageId>,
    /// Messages of posse itself to the model, that were not said yet.
    notices: Vec<MessageId>,
    /// The call that the user made last.
    own_call: Option<CallId>,
    tree: Tree,
    outputs: Outputs,
    /// Questions that are open, and their calls.
    asked: Vec<(QuestionId, CallId)>,
    running: Option<(InvocationId, Duration)>,
    parked: Option<Parked>,
    /// What the clock on the wall showed when the last event happened, in milliseconds since 1970.
    pub(super) wall_ms: u64,
    /// Tokens in the last request and its reply.
    pub(super) context: Option<u64>,
    pub(super) usage: Usage,
    /// Something was said: there is a session to go on with.
    pub(super) begun: bool,
    pub(super) provider: String,
    pub(super) model: String,
}

impl View {
    /// Follows what happened.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>, now: Duration) {
        if let Some(note) = self.tree.follow(event, origin, (now, self.wall_ms)) {
            self.end_text();
            self.blocks.push_back(note);
        }
        let of_child = origin.is_some_and(|origin| origin.parent_invocation_id.is_some());
        if of_child && !matters_of_children(event) {
            return;
        }
        self.begun |= matches!(event, Event::UserMessage { .. } | Event::SessionResumed { .. });
        match event {
            Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ModelRequest { .. }
            | Event::ModelReply { .. }
            | Event::ModelPartial { .. }
            | Event::ModelUsage { .. } => self.follow_model(event),
            Event::UserMessage { .. }
            | Event::UserCall { .. }
            | Event::MessageQueued { .. }
            | Event::MessageDelivered { .. }
            | Event::MessageWithdrawn { .. } => self.follow_message(event),
            Event::ProviderWaiting { provider, wait_ms, patience_left_ms, cause, .. } => {
                self.banner = Some(Banner::Waiting {
                    provider: provider.clone(),
                    until: now + Duration::from_millis(*wait_ms),
                    patience: Duration::from_millis(*patience_left_ms),
                    cause: cause.clone(),
                });
            }
            Event::ProviderSilent { provider, silent_ms } => {
                let since = now.saturating_sub(Duration::from_millis(*silent_ms));
                self.banner = Some(Banner::Silent { provider: provider.clone(), since });
            }
            Event::InvocationStarted { provider, model, .. } => {
                (self.provider, self.model) = (provider.clone(), model.clone());
                self.began(origin, now);
            }
            Event::InvocationCompleted { .. } | Event::InvocationFailed { .. } => self.ended(),
            Event::InvocationCancelled { .. } => self.stopped(),
            Event::SessionParked { cause, next_try_ms, .. } => {
                self.park(cause, *next_try_ms, now);
                self.notice(event);
            }
            Event::InvocationRequested { call_id, background: false, .. } => {
                // From here on it is in the tree.
                self.handed_on(call_id);
            }
            Event::ToolRequested { .. }
            | Event::ToolStarted { .. }
            | Event::ToolOutputDelta { .. }
            | Event::ToolCompleted { .. }
            | Event::ToolFailed { .. }
            | Event::ToolOutcomeUnknown { .. } => {
                self.follow_call(event, now);
                self.settle_turns(event);
            }
            Event::PermissionRequested { .. }
            | Event::PermissionGranted { .. }
            | Event::PermissionWithdrawn { .. }
            | Event::PermissionDenied { .. } => {
                self.follow_question(event);
                self.settle_turns(event);
            }
            Event::ContextCompacted { tokens_after, .. } => {
                // What was counted before is not true any more.
                self.context = *tokens_after;
                self.notice(event);
            }
            other => self.notice(other),
        }
    }

    fn follow_message(&mut self, event: &Event) {
        match event {
            Event::UserMessage { content, message_id } => {
                if let Some(id) = message_id {
                    self.queue.retain(|waiting| waiting.id != *id);
                    // What the user did beside was seen when it happened.
                    let count = self.asides.len();
                    self.asides.retain(|aside| aside != id);
                    if self.asides.len() < count {
                        return;
                    }
                    if let Some(at) = self.notices.iter().position(|notice| notice == id) {
                        self.notices.remove(at);
                        self.end_text();
                        let text = notices::brief(&shown(content));
                        self.note(Role::Dim, format!("(posse told the model: {text})"));
                        return;
                    }
                }
                self.parked = None;
                self.end_text();
                self.blocks.push_back(Block::User(shown(content)));
            }
            Event::MessageQueued { message_id, kind: MessageKind::Aside, .. } => {
                self.asides.push(message_id.clone());
            }
            Event::UserCall { call_id, .. } => {
                self.parked = None;
                self.own_call = Some(call_id.clone());
            }
            Event::MessageQueued { message_id, kind, content }
                if self.queue.iter().all(|waiting| waiting.id != *message_id) =>
            {
                let (id, mut text) = (message_id.clone(), shown(content));
                if *kind == MessageKind::Notice {
                    self.notices.push(id.clone());
                    text = notices::brief(&text);
                }
                self.queue.push(Waiting { id, kind: *kind, text });
            }
            Event::MessageDelivered { message_id } | Event::MessageWithdrawn { message_id } => {
                self.queue.retain(|waiting| waiting.id != *message_id);
            }
            _ => (),
        }
    }

    fn began(&mut self, origin: Option<&Origin>, now: Duration) {
        self.asked.clear();
        self.parked = None;
        if let Some(origin) = origin {
            self.running = Some((origin.invocation_id.clone(), now));
        }
    }

    fn follow_question(&mut self, event: &Event) {
        match event {
            Event::PermissionRequested { request_id, call_id, summary, .. } => {
                self.asked.push((request_id.clone(), call_id.clone()));
                self.will_do(call_id, summary);
            }
            Event::PermissionGranted { request_id, answered_by, grant, .. } => {
                self.decided(request_id);
                if answered_by.is_some() {
                    self.notice(event);
                }
                if let Some(grant) = grant {
                    self.end_text();
                    self.note(Role::Dim, notices::granted(grant));
                }
            }
            Event::PermissionWithdrawn { request_id, .. } => self.decided(request_id),
            Event::PermissionDenied { request_id, .. } => {
                self.decided(request_id);
                self.notice(event);
            }
            _ => (),
        }
    }

    /// Whoever stopped it waits for nothing.
    fn stopped(&mut self) {
        self.parked = None;
        self.ended();
    }

    fn park(&mut self, cause: &str, next_try_ms: Option<u64>, now: Duration) {
        let left = |at: u64| Duration::from_millis(at.saturating_sub(self.wall_ms));
        let next = next_try_ms.map(|at| now + left(at));
        self.banner = None;
        self.parked = Some(Parked { cause: harmless(cause), next });
    }

    /// The model says something: whatever was waited for is over.
    fn goes_on(&mut self) {
        (self.banner, self.parked) = (None, None);
    }

    fn follow_model(&mut self, event: &Event) {
        match event {
            Event::TextDelta { text } => {
                self.goes_on();
                self.thought.clear();
                self.heard.add(text);
                let pieces = self.stream.push(text);
                self.blocks.extend(pieces.into_iter().map(Block::Text));
            }
            Event::ThinkingDelta { text } => {
                self.goes_on();
                self.think(text);
            }
            Event::ModelRequest { provider, model, .. } => {
                self.goes_on();
                (self.provider, self.model) = (provider.clone(), model.clone());
                self.end_text();
                self.thought.clear();
            }
            Event::ModelReply { message, .. } => {
                self.goes_on();
                self.reply(message.content.as_deref().unwrap_or_default());
            }
            Event::ModelPartial { cause, .. } => {
                self.end_text();
                let text = format!("! the reply broke off ({cause}); what had arrived is kept");
                self.note(Role::Warn, text);
            }
            Event::ModelUsage { usage, .. } => {
                self.usage.add(usage);
                let read = usage.input_tokens.unwrap_or_default();
                self.context =
                    usage.output_tokens.map(|written| read + written).or(usage.input_tokens);
            }
            _ => (),
        }
    }

    fn think(&mut self, text: &str) {
        self.thought.push_str(text);
        if self.thought.len() > 2 * THOUGHT_BYTES_MAX {
            let mut from = self.thought.len() - THOUGHT_BYTES_MAX;
            while !self.thought.is_char_boundary(from) {
                from += 1;
            }
            self.thought.drain(..from);
        }
    }

    /// A whole reply: what of it was not heard yet follows. If parts of it were lost on the way,
    /// it is shown again as it is.
    fn reply(&mut self, whole: &str) {
        if !whole.trim().is_empty() {
            self.last_reply_bytes = whole.len();
            self.last_reply.clear();
            if whole.len() <= clipboard::BYTES_MAX {
                self.last_reply.push_str(whole);
            }
        }
        match self.heard.rest(whole) {
            Some(rest) => {
                let pieces = self.stream.push(rest);
                self.blocks.extend(pieces.into_iter().map(Block::Text));
            }
            None if self.heard.is(whole) => (),
            None => {
                self.end_text();
                self.note(Role::Dim, "(parts of this came too fast to be shown; the whole reply:)");
                let pieces = self.stream.push(whole);
                self.blocks.extend(pieces.into_iter().map(Block::Text));
            }
        }
        self.end_text();
        self.thought.clear();
    }

    fn end_text(&mut self) {
        let pieces = self.stream.finish();
        self.blocks.extend(pieces.into_iter().map(Block::Text));
        self.heard = Heard::default();
    }

    fn ended(&mut self) {
        self.end_text();
        self.thought.clear();
        self.banner = None;
        self.running = None;
        for block in &mut self.blocks {
            if let Block::Tool(tool) = block
                && tool.is_open()
            {
                tool.failed("cancelled", &[]);
            }
        }
    }

    fn decided(&mut self, id: &QuestionId) {
        self.asked.retain(|(asked, _)| asked != id);
    }

    fn notice(&mut self, event: &Event) {
        if let Some((role, text)) = notices::of(event) {
            self.end_text();
            self.note(role, text);
        }
    }

    /// Shows something of our own.
    pub(super) fn note(&mut self, role: Role, text: impl Into<String>) {
        self.blocks.push_back(Block::Note(role, text.into()));
    }

    /// Shows what the user said or did.
    pub(super) fn said(&mut self, text: String) {
        self.blocks.push_back(Block::User(text));
    }

    /// The same, of several lines that look each in their own way.
    pub(super) fn lines(&mut self, lines: Vec<(Role, String)>) {
        self.blocks.push_back(Block::Lines(lines));
    }

    /// Shows what went wrong.
    pub(super) fn failures(&mut self, failures: &[Failure]) {
        for failure in failures {
            self.note(Role::Bad, failure.to_string());
        }
    }

    /// Forgets what waits, as a new conversation begins.
    pub(super) fn begin(&mut self) {
        self.ended();
        self.forget_agents();
        (self.queue, self.parked, self.context) = (Vec::new(), None, None);
        self.usage = Usage::default();
        self.outputs = Outputs::default();
        (self.last_reply, self.last_reply_bytes) = (String::new(), 0);
        self.begun = false;
    }

    /// Whoever worked for somebody else is followed no more: their session is over.
    pub(super) fn forget_agents(&mut self) {
        self.tree = Tree::default();
    }

    /// Agents that work for another one.
    pub(super) fn agents(&self) -> usize {
        self.tree.agents()
    }

    /// Another provider, or another session: what was waited for is not waited for any more.
    pub(super) fn unpark(&mut self) {
        self.parked = None;
    }

    /// Whether something goes on, and since when.
    pub(super) fn running(&self) -> Option<Duration> {
        self.running.as_ref().map(|(_, since)| *since)
    }

    /// Messages that wait, in their order.
    pub(super) fn queue(&self) -> &[Waiting] {
        &self.queue
    }

    /// The last whole reply. `Err`: how many bytes it has, if it is too long to be copied.
    pub(super) fn last_reply(&self) -> Result<&str, usize> {
        if self.last_reply_bytes > clipboard::BYTES_MAX {
            return Err(self.last_reply_bytes);
        }
        Ok(&self.last_reply)
    }

    /// Whole outputs of calls.
    pub(super) fn outputs(&self) -> &Outputs {
        &self.outputs
    }
}

/// What children do that is of interest beyond their place in the tree.
fn matters_of_children(event: &Event) -> bool {
    matches!(
        event,
        Event::PermissionRequested { .. }
            | Event::PermissionGranted { .. }
            | Event::PermissionDenied { .. }
            | Event::PermissionWithdrawn { .. }
            | Event::Warning { .. }
            | Event::ActorCrashed { .. }
            | Event::ProviderFailover { .. }
    )
}

fn shown(content: &[ContentPart]) -> String {
    let said = content.iter().filter(|part| !skills::is_skill(part)).cloned();
    let mut text = text_of(&said.collect::<Vec<_>>());
    for name in content.iter().filter_map(skills::name_of) {
        text = format!("[skill {}] {text}", printable(name));
    }
    let images = content.iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. })).count();
    if images > 0 {
        let word = if images == 1 { "image" } else { "images" };
        text = format!("{text} [{images} {word}]");
    }
    text
}

#[cfg(test)]
mod tests;
