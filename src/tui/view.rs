//! The transcript as a fold over events. Has no terminal and no clock; the time is a parameter.

mod block;
mod calls;
mod drawing;
mod folded_reads;
mod notices;
mod outputs;
mod past;
mod received_reply;
mod retries;
pub(super) mod tool;
mod tree;

use std::collections::VecDeque;
use std::time::Duration;

use posse_actors::conversation::{CallId, ContentPart, MessageId, QuestionId, text_of};
use posse_actors::event::{
    Event, MessageKind, Origin, TargetType, TodoItem, TodoStatus, ToolFailureClass, UserReply,
    UserRequest,
};
use posse_actors::skills;
use posse_base::failure::{Failure, printable};
use posse_frontend::commands::permission_mode_changed;
use posse_frontend::notices::partial_reply_notice;
use posse_frontend::{clipboard, pluralize, queue};

use crate::markdown::Stream;
use crate::status::Status;
use crate::text::{TextRow, keep_end, sanitize};
use crate::theme::Role;

use block::BlockKind;
pub(super) use block::{Block, spinner};
pub(super) use outputs::Outputs;
use received_reply::ReceivedReply;
use retries::{FailedAttempts, RetryWait};
pub(super) use tool::todo_mark;
use tree::SubagentTree;

/// Number of bytes of thinking that are kept for display, from the end. Up to twice as many are
/// kept before the start is dropped.
const THOUGHT_BYTES_MAX: usize = 2 << 10;

/// Notice above the prompt about a provider that does not answer, or a checkpoint. Times are counted
/// from the start of the UI.
#[derive(Debug, Clone, PartialEq)]
enum Banner {
    /// The provider is unavailable.
    Waiting(RetryWait),
    /// The provider sends nothing. `since`: time of the last received data.
    Silent { provider: String, since: Duration },
    /// Files are being stored for a checkpoint: number of stored files, and of all.
    Checkpoint { files: usize, total: usize },
}

/// Cause of a parked run, and time of its next attempt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parked {
    cause: String,
    /// Earliest time of the next attempt, counted from the start of the UI; `None` if it is
    /// unknown.
    next: Option<Duration>,
}

/// A queued message as shown above the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueuedMessage {
    pub(super) id: MessageId,
    pub(super) kind: MessageKind,
    pub(super) text: String,
    /// True if it waits for the end of a command of the user, and the session does not know it.
    waits_for_command: bool,
}

impl QueuedMessage {
    /// Describes the time at which the message will be delivered; for a notice, its sender. `busy`:
    /// true if a task runs.
    pub(super) fn timing(&self, busy: bool) -> &'static str {
        if self.waits_for_command {
            return "when the command ends";
        }
        queue::delivery_time(self.kind, busy)
    }

    /// Returns `true` for messages of the user, `false` for notices of posse, which cannot be
    /// withdrawn.
    pub(super) fn is_own(&self) -> bool {
        self.kind != MessageKind::Notice
    }
}

/// Transcript of a session, with queued messages, subagents, provider notices and the status bar.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Blocks of the transcript, in order. A block is finished if neither this block nor an earlier
    /// one is a call that has not ended.
    blocks: VecDeque<Block>,
    /// Rows of finished blocks that did not fit into the last frame.
    ready: VecDeque<TextRow>,
    /// Kind of the last block whose rows were added to `ready`, for the spacing before the next
    /// block; `None` before the first.
    before: Option<BlockKind>,
    stream: Stream,
    /// Received part of the current reply, for comparison with the complete reply.
    received: ReceivedReply,
    thought: String,
    /// True if the text of the model's thinking is not shown.
    pub(super) hides_thinking: bool,
    /// The last complete reply that is not blank, for copying; empty if it is too long for the
    /// clipboard.
    last_reply: String,
    /// Length of the last reply in bytes, also if it is too long for the clipboard.
    last_reply_bytes: usize,
    banner: Option<Banner>,
    /// Attempts of the current request that have failed; `None` if none has.
    failed_attempts: Option<FailedAttempts>,
    /// Queued messages of the user and notices of posse, oldest first.
    pub(super) queue: Vec<QueuedMessage>,
    /// Ids of queued messages that inform the model of the user's own calls.
    own_calls_queued: Vec<MessageId>,
    /// Ids of queued notices of posse for the model.
    notices: Vec<MessageId>,
    /// The last call that the user made; `None` if there was none.
    own_call: Option<CallId>,
    pub(super) tree: SubagentTree,
    /// Full outputs of the latest calls, for the viewer.
    pub(super) outputs: Outputs,
    /// Task list of the main agent.
    todos: Vec<TodoItem>,
    /// True if the list was changed in this run.
    todos_changed: bool,
    /// Text of the last plan in question.
    plan: String,
    /// Open permission requests with their calls.
    asked: Vec<(QuestionId, CallId)>,
    /// Tokens that the model has written in the run, as far as they are reported.
    output_tokens: u64,
    /// Start time of the run, counted from the start of the UI; `None` if no run is active.
    running: Option<Duration>,
    /// Start time of the running call of the user, as `running`; `None` if none is running.
    own_call_since: Option<Duration>,
    pub(super) parked: Option<Parked>,
    /// The last change of the permission mode. The next one replaces it until something follows it in
    /// the transcript.
    pub(super) mode_note: Option<String>,
    /// Wall-clock time of the last event, in milliseconds since 1970.
    pub(super) wall_ms: u64,
    /// True if there is a message to the model or the session was resumed, so it can be resumed.
    pub(super) begun: bool,
    /// Content of the status bar.
    pub(super) status: Status,
}

impl View {
    /// Task list of the main agent, if a task of it is not done.
    pub(super) fn open_todos(&self) -> &[TodoItem] {
        let is_open =
            |item: &TodoItem| matches!(item.status, TodoStatus::Pending | TodoStatus::InProgress);
        if self.todos.iter().any(is_open) { &self.todos } else { &[] }
    }

    /// Updates transcript, queue, subagent tree, banner and status bar from an event.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>, now: Duration) {
        if let Some(note) = self.tree.follow(event, origin, (now, self.wall_ms)) {
            self.end_text();
            self.blocks.push_back(note);
        }
        let of_child = origin.is_some_and(|origin| origin.parent_invocation_id.is_some());
        if of_child && !is_shown_for_subagents(event) {
            return;
        }
        self.begun |= matches!(event, Event::UserMessage { .. } | Event::SessionResumed { .. });
        self.follow_attempts(event, now);
        self.follow_model(event);
        self.follow_message(event);
        self.follow_call(event, now);
        self.follow_question(event);
        match event {
            Event::ProviderWaiting { .. } => {
                self.banner = RetryWait::of(event, now).map(Banner::Waiting);
            }
            Event::ProviderSilent { provider, silent_ms } => {
                let since = now.saturating_sub(Duration::from_millis(*silent_ms));
                self.banner = Some(Banner::Silent { provider: provider.clone(), since });
            }
            Event::CheckpointProgress { files, total } => {
                let banner = Banner::Checkpoint { files: *files, total: *total };
                self.banner = (files < total).then_some(banner);
            }
            Event::InvocationStarted { provider, model, .. } => {
                self.status.set_model(provider, model);
                self.asked.clear();
                self.parked = None;
                self.running = origin.map(|_| now).or(self.running);
                self.output_tokens = 0;
            }
            Event::InvocationCompleted { .. } | Event::InvocationFailed { .. } => self.end_run(),
            Event::InvocationCancelled { .. } => {
                // A stopped run waits for nothing.
                self.parked = None;
                self.end_run();
            }
            Event::SessionParked { cause, next_try_ms, .. } => {
                let left = |at: u64| Duration::from_millis(at.saturating_sub(self.wall_ms));
                let next = next_try_ms.map(|at| now + left(at));
                self.banner = None;
                self.parked = Some(Parked { cause: sanitize(cause), next });
            }
            // From here on the subagent tree shows it.
            Event::InvocationRequested { call_id, background: false, .. } => {
                if let Some(tool) = self.known(call_id) {
                    tool.set_delegated();
                }
            }
            Event::PermissionModeChanged { mode, restriction, changed_by, .. } => {
                self.status.permission_mode = Some(*mode);
                let by = changed_by.as_ref().map(|by| format!(" (by {})", sanitize(by)));
                let text = permission_mode_changed(*mode, restriction.as_deref());
                self.mode_note = Some(text + &by.unwrap_or_default());
            }
            // The previous count is out of date.
            Event::ContextCompacted { tokens_after, .. } => self.status.context = *tokens_after,
            _ => (),
        }
        if let Some((role, text)) = notices::of(event) {
            self.end_text();
            self.note(role, text);
        }
        if let Event::PermissionGranted { grant: Some(grant), .. } = event {
            self.end_text();
            self.note(Role::Dim, notices::granted(grant));
        }
    }

    fn follow_message(&mut self, event: &Event) {
        match event {
            Event::UserMessage { content, message_id } => {
                if let Some(id) = message_id {
                    self.queue.retain(|waiting| waiting.id != *id);
                    // The user's own call was shown when it happened.
                    let count = self.own_calls_queued.len();
                    self.own_calls_queued.retain(|aside| aside != id);
                    if self.own_calls_queued.len() < count {
                        return;
                    }
                    if let Some(at) = self.notices.iter().position(|notice| notice == id) {
                        self.notices.remove(at);
                        self.end_text();
                        let text = notices::brief(&shown(content));
                        self.note(Role::Dim, format!("(posse to the model: {text})"));
                        return;
                    }
                }
                self.parked = None;
                self.end_text();
                self.blocks.push_back(Block::User(shown(content)));
            }
            Event::MessageQueued { message_id, kind: MessageKind::Aside, .. } => {
                self.own_calls_queued.push(message_id.clone());
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
                let waits_for_command = false;
                self.queue.push(QueuedMessage { id, kind: *kind, text, waits_for_command });
            }
            Event::MessageDelivered { message_id } | Event::MessageWithdrawn { message_id } => {
                self.queue.retain(|waiting| waiting.id != *message_id);
            }
            _ => (),
        }
    }

    /// Shows a message that waits for the end of a command of the user.
    pub(super) fn show_queued(&mut self, id: MessageId, content: &[ContentPart]) {
        let (kind, text) = (MessageKind::FollowUp, shown(content));
        self.queue.push(QueuedMessage { id, kind, text, waits_for_command: true });
    }

    /// Removes a message from the queued ones.
    pub(super) fn remove_queued(&mut self, id: &MessageId) {
        self.queue.retain(|waiting| waiting.id != *id);
    }

    fn follow_question(&mut self, event: &Event) {
        match event {
            Event::PermissionRequested {
                request_id,
                call_id,
                summary,
                target,
                user_request,
                ..
            } => {
                if let Some(UserRequest::Plan { plan, .. }) = user_request.as_deref() {
                    self.plan.clone_from(plan);
                }
                self.asked.push((request_id.clone(), call_id.clone()));
                // A connection is a part of its call.
                if target.target_type != TargetType::Connection
                    && let Some(tool) = self.known(call_id)
                {
                    tool.summary = Some(summary.clone());
                }
            }
            Event::PermissionGranted { request_id, reply, .. } => {
                self.asked.retain(|(asked, _)| asked != request_id);
                if let Some(UserReply::Plan { plan, .. }) = reply.as_deref() {
                    let own = std::mem::take(&mut self.plan);
                    self.show_plan(plan.as_ref().unwrap_or(&own));
                }
            }
            Event::PermissionDenied { request_id, .. } => {
                self.asked.retain(|(asked, _)| asked != request_id);
                let refused = std::mem::take(&mut self.plan);
                self.show_plan(&refused);
            }
            Event::PermissionWithdrawn { request_id, .. }
            | Event::PermissionTried { request_id, .. } => {
                self.asked.retain(|(asked, _)| asked != request_id);
            }
            _ => return,
        }
        self.update_wait_reasons();
    }

    /// Shows a plan that the user has answered; nothing if it is empty.
    fn show_plan(&mut self, plan: &str) {
        if !plan.is_empty() {
            self.end_text();
            self.show_text(&format!("{plan}\n\n"));
            self.end_text();
        }
    }

    /// Clears the banner and the parked state, because the model responds.
    fn clear_waiting(&mut self) {
        (self.banner, self.parked) = (None, None);
    }

    fn follow_model(&mut self, event: &Event) {
        match event {
            Event::TextDelta { text } => {
                self.clear_waiting();
                self.thought.clear();
                self.received.add(text);
                self.show_text(text);
            }
            Event::ThinkingDelta { text } => {
                self.clear_waiting();
                self.thought.push_str(text);
                keep_end(&mut self.thought, THOUGHT_BYTES_MAX);
            }
            Event::ModelRequest { provider, model, .. } => {
                self.clear_waiting();
                self.status.set_model(provider, model);
                self.end_text();
                self.thought.clear();
            }
            Event::ModelReply { message, .. } => {
                self.clear_waiting();
                self.reply(message.content.as_deref().unwrap_or_default());
            }
            Event::ModelPartial { cause, in_history, .. } => {
                self.end_text();
                self.note(Role::Warn, partial_reply_notice(cause, *in_history));
            }
            Event::ModelUsage { usage, .. } => {
                self.output_tokens += usage.output_tokens.unwrap_or_default();
                let read = usage.input_tokens.unwrap_or_default();
                let used = usage.output_tokens.map(|written| read + written);
                // A stopped reply has no usage; the last count stays.
                self.status.context = used.or(usage.input_tokens).or(self.status.context);
            }
            _ => (),
        }
    }

    fn show_text(&mut self, text: &str) {
        let pieces = self.stream.push(text);
        self.blocks.extend(pieces.into_iter().map(Block::Text));
    }

    /// Shows the part of a complete reply that was not received as deltas, and stores the reply for
    /// copying. If deltas were lost, the whole reply is shown again.
    fn reply(&mut self, whole: &str) {
        if !whole.trim().is_empty() {
            self.last_reply_bytes = whole.len();
            self.last_reply.clear();
            if whole.len() <= clipboard::BYTES_MAX {
                self.last_reply.push_str(whole);
            }
        }
        match self.received.missing_part(whole) {
            Some(rest) => self.show_text(rest),
            None if self.received.is(whole) => (),
            None => {
                self.end_text();
                self.note(Role::Dim, "(some parts of this reply were not shown; the whole reply:)");
                self.show_text(whole);
            }
        }
        self.end_text();
        self.thought.clear();
    }

    fn end_text(&mut self) {
        let pieces = self.stream.finish();
        self.blocks.extend(pieces.into_iter().map(Block::Text));
        self.received = ReceivedReply::default();
        self.end_mode_note();
    }

    /// Moves the note about the permission mode into the transcript, because something follows it.
    fn end_mode_note(&mut self) {
        let note = self.mode_note.take().map(|text| Block::Note(vec![(Role::Dim, text)]));
        self.blocks.extend(note);
    }

    /// Ends the run, and shows the tasks that are left if the run has changed their list.
    fn end_run(&mut self) {
        self.ended();
        let shown = std::mem::take(&mut self.todos_changed);
        let rows = self.open_todos().iter().filter(|_| shown).map(|item| {
            let (mark, role) = todo_mark(item.status);
            (role, format!("  {mark} {}", sanitize(&item.content).replace('\n', " ")))
        });
        let rows: Vec<(Role, String)> = rows.collect();
        if !rows.is_empty() {
            self.push_lines(rows);
        }
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
                tool.failed(&ToolFailureClass::Cancelled, &[]);
            }
        }
    }

    /// Appends a note in the style of `role` to the transcript.
    pub(super) fn note(&mut self, role: Role, text: impl Into<String>) {
        self.end_mode_note();
        self.blocks.push_back(Block::Note(vec![(role, text.into())]));
    }

    /// Appends an input of the user to the transcript.
    pub(super) fn push_user_input(&mut self, text: String) {
        self.end_mode_note();
        self.blocks.push_back(Block::User(text));
    }

    /// Appends lines, each in the style of its role, to the transcript.
    pub(super) fn push_lines(&mut self, lines: Vec<(Role, String)>) {
        self.end_mode_note();
        self.blocks.push_back(Block::Note(lines));
    }

    /// Appends errors to the transcript.
    pub(super) fn failures(&mut self, failures: &[Failure]) {
        for failure in failures {
            self.note(Role::Bad, failure.to_string());
        }
    }

    /// Resets queue, subagents, outputs, last reply and context usage for another conversation. The
    /// transcript stays; its open calls are shown as cancelled.
    pub(super) fn begin(&mut self) {
        self.ended();
        self.forget_agents();
        (self.queue, self.parked, self.status.context) = (Vec::new(), None, None);
        self.outputs = Outputs::default();
        (self.last_reply, self.last_reply_bytes) = (String::new(), 0);
        self.begun = false;
    }

    /// Clears the subagent tree, because the session has ended.
    pub(super) fn forget_agents(&mut self) {
        self.tree = SubagentTree::default();
    }

    /// The last complete reply, for copying; empty if there is none. The error is the length of the
    /// reply in bytes, if the reply is too long to be copied.
    pub(super) fn last_reply(&self) -> Result<&str, usize> {
        if self.last_reply_bytes > clipboard::BYTES_MAX {
            return Err(self.last_reply_bytes);
        }
        Ok(&self.last_reply)
    }
}

/// Returns `true` for events of subagents that are also shown outside the subagent tree: permission
/// requests and their ends, warnings, crashes and failovers.
fn is_shown_for_subagents(event: &Event) -> bool {
    event.question().is_some()
        || matches!(
            event,
            Event::Warning { .. } | Event::ActorCrashed { .. } | Event::ProviderFailover { .. }
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
        text = format!("{text} [{}]", pluralize(images as u64, "image"));
    }
    text
}

#[cfg(test)]
mod tests;
