//! What happened, as it is shown: a fold over events. Knows no terminal and no clock; the time is
//! passed in.

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
use ratatui_core::text::{Line, Span};

use crate::failure::Failure;
use crate::tui::markdown::{self, Piece, Stream};
use crate::tui::text::{Row, clipped, harmless, row, span, wrap};
use crate::tui::theme::{Role, Theme};

pub(super) use outputs::Outputs;
use tool::{State, Tool, age};
use tree::Tree;

/// What turns while something goes on.
const TURNS: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠴", "⠦", "⠇", "⠏"];

/// Characters of thinking that are kept to be shown.
const THOUGHT_BYTES_MAX: usize = 2 << 10;

/// A part of what is shown.
#[derive(Debug, Clone)]
pub(super) enum Block {
    /// What the user said.
    User(String),
    /// A part of an answer.
    Text(Piece),
    /// A call.
    Tool(Box<Tool>),
    /// A line or more about what goes on.
    Note(Role, String),
    /// Rows that are as they should be: lists and help.
    Lines(Vec<(Role, String)>),
}

/// What is true for the moment.
#[derive(Debug, Clone, PartialEq)]
enum Banner {
    /// The provider is away.
    Waiting { provider: String, until: Duration, patience: Duration, cause: String },
    /// Nothing is heard.
    Silent { provider: String, since: Duration },
}

/// A message that waits to be said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    pub(super) id: MessageId,
    pub(super) kind: MessageKind,
    pub(super) text: String,
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
    /// The text of the reply so far, and whether any of it was shown.
    reply: String,
    thought: String,
    /// The last whole reply, to be copied.
    last_reply: String,
    banner: Option<Banner>,
    queue: Vec<Waiting>,
    tree: Tree,
    outputs: Outputs,
    /// Questions that are open, and their calls.
    asked: Vec<(QuestionId, CallId)>,
    /// Calls that a person allowed, having seen what they would do.
    seen: Vec<CallId>,
    running: Option<(InvocationId, Duration)>,
    parked: Option<String>,
    /// Tokens in the last request and its reply.
    pub(super) context: Option<u64>,
    pub(super) usage: Usage,
    /// Something was said: there is a session to go on with.
    pub(super) begun: bool,
    pub(super) provider: String,
    pub(super) model: String,
}

/// What decides where a blank row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Text,
    CodeGoesOn,
    Tool,
    Note,
}

impl Block {
    fn kind(&self) -> Kind {
        match self {
            Block::User(_) => Kind::User,
            Block::Text(Piece::Code { begins: false, .. }) => Kind::CodeGoesOn,
            Block::Text(_) => Kind::Text,
            Block::Tool(_) => Kind::Tool,
            Block::Note(..) | Block::Lines(_) => Kind::Note,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Block::Tool(tool) if tool.is_open())
    }

    pub(super) fn rows(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let mark = [span(theme, Role::User, "❯ ")];
        let under = [Span::raw("  ")];
        match self {
            Block::User(text) => {
                let mut rows = Vec::new();
                for (at, line) in harmless(text).split('\n').enumerate() {
                    let first = if at == 0 { &mark } else { &under };
                    rows.extend(wrap(&[span(theme, Role::User, line)], columns, first, &under));
                }
                rows
            }
            Block::Text(piece) => markdown::piece_rows(piece, columns, theme),
            Block::Tool(tool) => tool.rows(columns, theme, now, turn(now)),
            Block::Note(role, text) => {
                let lines = harmless(text);
                let lines = lines.trim_end_matches('\n').split('\n');
                lines
                    .flat_map(|line| wrap(&[span(theme, *role, line)], columns, &[], &under))
                    .collect()
            }
            Block::Lines(lines) => lines
                .iter()
                .flat_map(|(role, line)| {
                    wrap(&[span(theme, *role, harmless(line))], columns, &[], &under)
                })
                .collect(),
        }
    }
}

/// Whether a blank row stands between two.
fn apart(before: Kind, after: Kind) -> bool {
    let together = matches!(
        (before, after),
        (_, Kind::CodeGoesOn) | (Kind::Tool, Kind::Tool | Kind::Note) | (Kind::Note, Kind::Note)
    );
    !together
}

/// What turns, at that time.
pub(super) fn turn(now: Duration) -> &'static str {
    let nth = (now.as_millis() / 125) % TURNS.len() as u128;
    TURNS[usize::try_from(nth).unwrap_or_default()]
}

impl View {
    /// Follows what happened.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>, now: Duration) {
        if let Some(origin) = origin.filter(|origin| origin.parent_invocation_id.is_some()) {
            if let Some(note) = self.tree.follow(event, origin, now) {
                self.end_text();
                self.blocks.push_back(note);
            }
            if !matters_of_children(event) {
                return;
            }
        }
        self.begun |= matches!(event, Event::UserMessage { .. } | Event::SessionResumed { .. });
        match event {
            Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ModelRequest { .. }
            | Event::ModelReply { .. }
            | Event::ModelPartial { .. }
            | Event::ModelUsage { .. } => self.follow_model(event),
            Event::UserMessage { content, message_id } => {
                if let Some(id) = message_id {
                    self.queue.retain(|waiting| waiting.id != *id);
                }
                self.end_text();
                self.blocks.push_back(Block::User(shown(content)));
            }
            Event::MessageQueued { message_id, kind, content } => {
                if self.queue.iter().all(|waiting| waiting.id != *message_id) {
                    let (id, text) = (message_id.clone(), shown(content));
                    self.queue.push(Waiting { id, kind: *kind, text });
                }
            }
            Event::MessageDelivered { message_id } => {
                self.queue.retain(|waiting| waiting.id != *message_id);
            }
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
            Event::InvocationCompleted { .. }
            | Event::InvocationFailed { .. }
            | Event::InvocationCancelled { .. } => self.ended(),
            Event::SessionParked { cause, .. } => {
                self.parked = Some(harmless(cause));
                self.notice(event);
            }
            Event::ToolRequested { .. }
            | Event::ToolStarted { .. }
            | Event::ToolOutputDelta { .. }
            | Event::ToolCompleted { .. }
            | Event::ToolFailed { .. }
            | Event::ToolOutcomeUnknown { .. } => self.follow_call(event, now),
            Event::PermissionRequested { .. }
            | Event::PermissionGranted { .. }
            | Event::PermissionWithdrawn { .. }
            | Event::PermissionDenied { .. } => self.follow_question(event),
            other => self.notice(other),
        }
    }

    fn began(&mut self, origin: Option<&Origin>, now: Duration) {
        self.asked.clear();
        self.seen.clear();
        self.parked = None;
        if let Some(origin) = origin {
            self.running = Some((origin.invocation_id.clone(), now));
        }
    }

    fn follow_question(&mut self, event: &Event) {
        match event {
            Event::PermissionRequested { request_id, call_id, .. } => {
                self.asked.push((request_id.clone(), call_id.clone()));
            }
            Event::PermissionGranted { request_id, by, .. } => {
                self.decided(request_id, by == "user");
            }
            Event::PermissionWithdrawn { request_id, .. } => self.decided(request_id, false),
            Event::PermissionDenied { request_id, .. } => {
                self.decided(request_id, false);
                self.notice(event);
            }
            _ => (),
        }
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
                self.reply.push_str(text);
                let pieces = self.stream.push(text);
                self.blocks.extend(pieces.into_iter().map(Block::Text));
            }
            Event::ThinkingDelta { text } => {
                self.goes_on();
                self.think(text);
            }
            Event::ModelRequest { provider, model, .. } => {
                self.banner = None;
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
            whole.clone_into(&mut self.last_reply);
        }
        match whole.strip_prefix(self.reply.as_str()) {
            Some(rest) => {
                let pieces = self.stream.push(rest);
                self.blocks.extend(pieces.into_iter().map(Block::Text));
            }
            None if self.reply.trim() == whole.trim() => (),
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
        self.reply.clear();
    }

    fn ended(&mut self) {
        self.end_text();
        self.thought.clear();
        self.banner = None;
        self.running = None;
        self.tree = Tree::default();
        for block in &mut self.blocks {
            if let Block::Tool(tool) = block
                && tool.is_open()
            {
                tool.failed("cancelled", &[]);
            }
        }
    }

    fn follow_call(&mut self, event: &Event, now: Duration) {
        match event {
            Event::ToolRequested { call_id, name, .. } => {
                self.end_text();
                let tool = Tool::asked(call_id.clone(), name, now);
                self.blocks.push_back(Block::Tool(Box::new(tool)));
            }
            Event::ToolStarted { call_id, name, summary, .. } => {
                let tool = self.tool(call_id, name, now);
                tool.summary = Some(summary.clone());
                (tool.state, tool.since) = (State::Running, now);
            }
            Event::ToolOutputDelta { call_id, text } => {
                if let Some(tool) = self.known(call_id) {
                    tool.printed(text);
                }
            }
            Event::ToolCompleted { call_id, name, content, metadata, duration_ms } => {
                let seen = self.seen.contains(call_id);
                self.seen.retain(|call| call != call_id);
                let tool = self.tool(call_id, name, now);
                tool.completed(content, metadata, *duration_ms, seen);
                let title = tool.title();
                self.outputs.add(title, &text_of(content), metadata["diff"].as_str());
            }
            Event::ToolFailed { call_id, name, content, class, .. } => {
                let tool = self.tool(call_id, name, now);
                tool.failed(class, content);
                let title = tool.title();
                self.outputs.add(title, &text_of(content), None);
            }
            Event::ToolOutcomeUnknown { call_id, name, begun, .. } => {
                self.tool(call_id, name, now).lost(begun.as_ref());
            }
            _ => (),
        }
    }

    fn known(&mut self, call: &CallId) -> Option<&mut Tool> {
        self.blocks.iter_mut().find_map(|block| match block {
            Block::Tool(tool) if tool.call == *call => Some(&mut **tool),
            _ => None,
        })
    }

    fn tool(&mut self, call: &CallId, name: &str, now: Duration) -> &mut Tool {
        let at = self.blocks.iter().position(
            |block| matches!(block, Block::Tool(tool) if tool.call == *call && tool.is_open()),
        );
        let at = at.unwrap_or_else(|| {
            self.blocks.push_back(Block::Tool(Box::new(Tool::asked(call.clone(), name, now))));
            self.blocks.len() - 1
        });
        match &mut self.blocks[at] {
            Block::Tool(tool) => tool,
            _ => unreachable!("it was looked for, or put there"),
        }
    }

    fn decided(&mut self, id: &QuestionId, allowed: bool) {
        let call = self.asked.iter().find(|(asked, _)| asked == id).map(|(_, call)| call.clone());
        self.asked.retain(|(asked, _)| asked != id);
        self.seen.extend(call.filter(|_| allowed));
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
        (self.queue, self.parked, self.context) = (Vec::new(), None, None);
        self.usage = Usage::default();
        self.begun = false;
    }

    /// Whether something goes on, and since when.
    pub(super) fn running(&self) -> Option<Duration> {
        self.running.as_ref().map(|(_, since)| *since)
    }

    /// Messages that wait, in their order.
    pub(super) fn queue(&self) -> &[Waiting] {
        &self.queue
    }

    /// The last whole reply.
    pub(super) fn last_reply(&self) -> &str {
        &self.last_reply
    }

    /// Whole outputs of calls.
    pub(super) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Rows of what is finished, at most `rows_max`. What is given once is not given again.
    pub(super) fn take_finished(
        &mut self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<Row> {
        while self.ready.len() < rows_max
            && let Some(block) = self.blocks.pop_front_if(|block| !block.is_open())
        {
            let kind = block.kind();
            if self.before.is_some_and(|before| apart(before, kind)) {
                self.ready.push_back(Line::default());
            }
            self.ready.extend(block.rows(columns, theme, now));
            self.before = Some(if kind == Kind::CodeGoesOn { Kind::Text } else { kind });
        }
        let count = self.ready.len().min(rows_max);
        self.ready.drain(..count).collect()
    }

    /// Whether something is finished that was not taken yet.
    pub(super) fn has_finished(&self) -> bool {
        !self.ready.is_empty() || self.blocks.front().is_some_and(|block| !block.is_open())
    }

    /// Rows of what goes on, the last `rows_max` of them.
    pub(super) fn live_rows(
        &self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut before = self.before;
        let rest = self.stream.rest().map(Block::Text);
        for block in self.blocks.iter().chain(rest.as_ref()) {
            let kind = block.kind();
            if before.is_some_and(|before| apart(before, kind)) {
                rows.push(Line::default());
            }
            rows.extend(block.rows(columns, theme, now));
            before = Some(kind);
        }
        rows.extend(self.tree.rows(columns, theme, now));
        if rows.len() > rows_max {
            rows.drain(..rows.len() - rows_max);
        }
        rows
    }

    /// What is true for the moment, in a row or two.
    pub(super) fn banner(&self, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        let mut rows = Vec::new();
        match &self.banner {
            Some(Banner::Waiting { provider, until, patience, cause }) => {
                let left = until.saturating_sub(now).as_secs_f64().ceil();
                let text = format!(
                    "⏸ {}: next try in {left:.0} s (patience after that: {}); Esc stops it",
                    harmless(provider),
                    rough(*patience)
                );
                rows.push(row(theme, Role::Warn, clipped(&text, columns)));
                if !cause.is_empty() {
                    let text = format!("  {}", harmless(cause).replace('\n', " "));
                    rows.push(row(theme, Role::Dim, clipped(&text, columns)));
                }
            }
            Some(Banner::Silent { provider, since }) => {
                let text =
                    format!("⏸ {}: nothing heard for {}", harmless(provider), age(now, *since));
                rows.push(row(theme, Role::Warn, clipped(&text, columns)));
            }
            None => (),
        }
        if let Some(since) = self.running() {
            let thought = self.thought.lines().rev().find(|line| !line.trim().is_empty());
            let what = if thought.is_some() { "thinking" } else { "working" };
            let mut text = format!("{what} · {} · Esc stops it", age(now, since));
            if let Some(thought) = thought {
                text = format!("{text} · {}", harmless(thought.trim()));
            }
            let mark = span(theme, Role::Accent, format!("{} ", turn(now)));
            let text = span(theme, Role::Dim, clipped(&text, columns.saturating_sub(2)));
            rows.push(Line::from(vec![mark, text]));
        } else if let Some(cause) = &self.parked {
            let text = format!("⏸ parked: {}", cause.replace('\n', " "));
            rows.push(row(theme, Role::Warn, clipped(&text, columns)));
        }
        rows
    }

    /// Whether something on the screen changes with the time alone.
    pub(super) fn moves(&self) -> bool {
        self.running.is_some() || self.banner.is_some()
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
    let mut text = text_of(content);
    let images = content.iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. })).count();
    if images > 0 {
        let word = if images == 1 { "image" } else { "images" };
        text = format!("{text} [{images} {word}]");
    }
    text
}

/// A time, as exactly as somebody who waits wants to know it.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
