//! The agent loop as a pure state machine: events go in, effects to perform come out.
//!
//! It has no clock, no mailbox and no `await`; `agent_invocation` performs the effects. The history
//! is valid at every model request: every call has exactly one result.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::conversation::{
    AssistantMessage, CallId, Message, MessageId, StopReason, ToolCall, Usage,
};
use crate::event::MessageKind;
use crate::limits::QueueDelivery;
use crate::outcome::Ending;
use crate::ports::ToolOutput;
use crate::replay::{QueuedInput, interrupted_reply, replace_queued};

/// Limits of a loop.
#[derive(Debug, Clone)]
pub(crate) struct LoopBounds {
    pub(crate) turns_max: u32,
    pub(crate) parallel_calls_max: usize,
    pub(crate) calls_per_turn_max: usize,
    pub(crate) repeated_failures_max: u32,
    pub(crate) queued_messages_max: usize,
    pub(crate) delivery: QueueDelivery,
    /// Limit for the sum of input and output tokens of all replies, checked before each model
    /// request; `None`: no limit.
    pub(crate) tokens_max: Option<u64>,
    /// True if hooks review the final answer before it counts.
    pub(crate) settles: bool,
}

/// Initial state of a loop, for a new run or one that is resumed.
#[derive(Debug, Default)]
pub(crate) struct LoopStart {
    /// Valid history, except that the results of the calls in `pending` are missing.
    pub(crate) history: Vec<Arc<Message>>,
    /// All calls of the last reply, if some of them have not ended; those that have ended with
    /// their results.
    pub(crate) pending: Vec<(TurnCall, Option<ToolOutput>)>,
    /// Queued messages that were not delivered.
    pub(crate) queued: Vec<QueuedInput>,
    /// Number of model replies so far.
    pub(crate) turns: u32,
    /// Tokens of these replies.
    pub(crate) usage: Usage,
}

/// A call of the current turn. `alone`: true if the call has side effects, so that it never runs in
/// parallel with another call.
#[derive(Debug, Clone)]
pub(crate) struct TurnCall {
    pub(crate) call: ToolCall,
    pub(crate) alone: bool,
}

/// Input of the loop: something that happened.
#[derive(Debug)]
pub(crate) enum LoopInput {
    /// Start: take the first step from the initial state.
    Begin,
    /// The model finished a reply. The ids of its calls were assigned by posse; `alone`: for each
    /// call, true if it waits for earlier calls and later calls wait for it. `usage`: `None` if the provider reported none.
    Replied { message: AssistantMessage, alone: Vec<bool>, stop: StopReason, usage: Option<Usage> },
    /// There is no usable reply; the invocation ends with this ending.
    Unanswered(Ending),
    /// A call ended with this result.
    CallEnded(CallId, ToolOutput),
    /// A message was queued.
    QueuedInput(QueuedInput),
    /// The hooks have reviewed the final answer. `None`: the answer is accepted; otherwise this
    /// message makes the run continue.
    Settled(Option<QueuedInput>),
    /// Stop the run with this ending.
    Stop(Ending),
}

/// Effect that the invocation performs for the loop.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    AskModel,
    Start(ToolCall),
    /// Record this result of a call that does not run.
    Skip(ToolCall, ToolOutput),
    /// Record that this message entered the history.
    Deliver(QueuedInput),
    /// Cancel these calls, and the model request, the request for a summary, and hooks that are
    /// running, if there are any.
    Cancel(Vec<CallId>),
    /// Let hooks review this final answer.
    Settle(String),
    Finish(Ending),
}

#[derive(Debug)]
enum Phase {
    /// A model request is in progress, or the loop has not begun.
    Waiting,
    /// Calls are running. If an ending is set, they are being stopped.
    Calling(Vec<Slot>, Option<Ending>),
    /// The final answer has arrived; hooks may still reject it.
    Settling(String),
    Done,
}

#[derive(Debug)]
struct Slot {
    wanted: TurnCall,
    progress: CallProgress,
}

#[derive(Debug)]
enum CallProgress {
    Unstarted,
    Running,
    Ended(ToolOutput),
}

#[derive(Debug)]
pub(crate) struct AgentLoop {
    bounds: LoopBounds,
    history: Vec<Arc<Message>>,
    phase: Phase,
    /// Calls of the last reply that were restored from an earlier incarnation.
    pending: Vec<Slot>,
    queue: VecDeque<QueuedInput>,
    /// Steering messages that the last delivery left in the queue. They wait for the next delivery,
    /// and do not skip calls.
    held_back: Vec<MessageId>,
    turns: u32,
    usage: Usage,
    said: Option<String>,
    repeated: Option<(String, String, u32)>,
    /// Number of consecutive replies that were cut off within their calls.
    cut_replies: u32,
}

impl AgentLoop {
    pub(crate) fn new(bounds: LoopBounds, start: LoopStart) -> AgentLoop {
        let LoopStart { history, pending, queued, turns, usage } = start;
        let slot = |(wanted, output): (TurnCall, Option<ToolOutput>)| Slot {
            wanted,
            progress: output.map_or(CallProgress::Unstarted, CallProgress::Ended),
        };
        AgentLoop {
            bounds,
            history,
            phase: Phase::Waiting,
            pending: pending.into_iter().map(slot).collect(),
            queue: queued.into(),
            held_back: Vec::new(),
            turns,
            usage,
            said: None,
            repeated: None,
            cut_replies: 0,
        }
    }

    pub(crate) fn history(&self) -> &[Arc<Message>] {
        &self.history
    }

    /// Replaces the history by a compacted one. Has an effect only before a model request.
    pub(crate) fn replace_history(&mut self, history: Vec<Arc<Message>>) {
        if matches!(self.phase, Phase::Waiting) {
            self.history = history;
        }
    }

    /// Adds the text of a reply that was cut off because the run was stopped.
    pub(crate) fn keep_partial(&mut self, text: &str) {
        self.history.extend(interrupted_reply(text));
    }

    /// Number of model replies so far.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// True if another message of the user may be queued; messages of posse do not ask.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.bounds.queued_messages_max
    }

    /// Removes the queued messages with these ids and returns them; then queues `next`. `None`,
    /// without a change, if one of them is not queued, or is a notice of posse.
    pub(crate) fn replace_queued(
        &mut self,
        ids: &[MessageId],
        next: Vec<QueuedInput>,
    ) -> Option<Vec<QueuedInput>> {
        let mut queue = self.queue.iter().cloned().collect();
        let taken = replace_queued(&mut queue, ids, next)?;
        self.queue = queue.into();
        Some(taken)
    }

    pub(crate) fn step(&mut self, input: LoopInput) -> Vec<Effect> {
        if matches!(self.phase, Phase::Done) {
            return Vec::new();
        }
        match input {
            LoopInput::Begin => self.begin(),
            LoopInput::Replied { message, alone, stop, usage } => {
                self.replied(message, alone, stop, usage)
            }
            LoopInput::Unanswered(ending) => self.finish(ending),
            LoopInput::CallEnded(id, output) => self.call_ended(&id, output),
            LoopInput::QueuedInput(message) => {
                self.queue.push_back(message);
                self.advance()
            }
            LoopInput::Settled(held) => self.answer_settled(held),
            LoopInput::Stop(ending) => self.stop(ending),
        }
    }

    /// Takes the first step. Restored calls run first. Queued messages are delivered, except
    /// follow-ups to an answer that is still to come. If the history ends with an answer, an
    /// earlier incarnation ended just before it finished: without queued messages, the run ends
    /// with this answer.
    fn begin(&mut self) -> Vec<Effect> {
        if !self.pending.is_empty() {
            self.phase = Phase::Calling(std::mem::take(&mut self.pending), None);
            return self.advance();
        }
        let answer = match self.history.last().map(|last| &**last) {
            Some(Message::Assistant(said)) if said.tool_calls.is_empty() => said.content.clone(),
            _ => None,
        };
        let steered = self.queue.iter().any(|queued| queued.kind != MessageKind::FollowUp);
        match answer {
            Some(text) if self.queue.is_empty() => self.answered(text),
            answer => {
                let deliver = steered || answer.is_some();
                let mut effects = if deliver { self.deliver() } else { Vec::new() };
                effects.extend(self.ask_model());
                effects
            }
        }
    }

    /// Takes the queued messages that were not delivered, for a later run.
    pub(crate) fn take_queue(&mut self) -> Vec<QueuedInput> {
        self.queue.drain(..).collect()
    }

    fn tokens(&self) -> u64 {
        let Usage { input_tokens, output_tokens, .. } = self.usage;
        input_tokens.unwrap_or_default().saturating_add(output_tokens.unwrap_or_default())
    }

    fn ask_model(&mut self) -> Vec<Effect> {
        if self.turns >= self.bounds.turns_max {
            let value = u64::from(self.bounds.turns_max);
            let said = self.said.clone();
            return self.finish(Ending::Limited { limit: "maxTurns", value, said });
        }
        if let Some(max) = self.bounds.tokens_max.filter(|max| self.tokens() >= *max) {
            let said = self.said.clone();
            return self.finish(Ending::Limited {
                limit: "delegation.maxTokens",
                value: max,
                said,
            });
        }
        self.phase = Phase::Waiting;
        vec![Effect::AskModel]
    }

    fn replied(
        &mut self,
        mut message: AssistantMessage,
        alone: Vec<bool>,
        stop: StopReason,
        usage: Option<Usage>,
    ) -> Vec<Effect> {
        self.turns += 1;
        self.usage.add(&usage.unwrap_or_default());
        if stop == StopReason::ContentFilter {
            message.tool_calls.clear();
        }
        let text = message.content.clone().filter(|text| !text.is_empty());
        self.said = text.clone().or(self.said.take());
        let wanted: Vec<TurnCall> = message
            .tool_calls
            .iter()
            .cloned()
            .zip(alone)
            .map(|(call, alone)| TurnCall { call, alone })
            .collect();
        // Providers reject an empty message.
        if text.is_some() || !wanted.is_empty() {
            self.history.push(Arc::new(Message::Assistant(message)));
        }
        let is_cut = !wanted.is_empty() && stop == StopReason::MaxTokens;
        self.cut_replies = if is_cut { self.cut_replies + 1 } else { 0 };
        if !wanted.is_empty() {
            return self.call(wanted, stop, length_limit(usage, text));
        }
        match stop {
            StopReason::EndTurn | StopReason::ToolUse => {}
            StopReason::MaxTokens => return self.finish(length_limit(usage, text)),
            StopReason::ContentFilter => {
                let cause = "the provider withheld the reply (content filter)".to_owned();
                return self.finish(Ending::Failed { class: "content_filter".to_owned(), cause });
            }
            StopReason::Error => {
                let class = "provider.broken_reply".to_owned();
                let cause = "the reply made no sense".to_owned();
                return self.finish(Ending::Failed { class, cause });
            }
        }
        // A message that came in meanwhile turns a final answer into just a reply.
        if self.queue.is_empty() {
            return self.answered(text.unwrap_or_default());
        }
        let mut effects = self.deliver();
        effects.extend(self.ask_model());
        effects
    }

    fn answered(&mut self, text: String) -> Vec<Effect> {
        if !self.bounds.settles {
            return self.finish(Ending::Answered(text));
        }
        self.phase = Phase::Settling(text.clone());
        vec![Effect::Settle(text)]
    }

    /// Ends the run with the answer, unless `held` (from a hook) or a queued message continues it.
    fn answer_settled(&mut self, held: Option<QueuedInput>) -> Vec<Effect> {
        let Phase::Settling(text) = &self.phase else { return Vec::new() };
        let text = text.clone();
        self.queue.extend(held);
        if self.queue.is_empty() {
            return self.finish(Ending::Answered(text));
        }
        let mut effects = self.deliver();
        effects.extend(self.ask_model());
        effects
    }

    /// Starts the calls of a reply. `limit`: the ending if too many replies in a row were cut off
    /// within their calls.
    fn call(&mut self, wanted: Vec<TurnCall>, stop: StopReason, limit: Ending) -> Vec<Effect> {
        let mut effects = Vec::new();
        let calls_max = self.bounds.calls_per_turn_max;
        let cut_off = !matches!(stop, StopReason::ToolUse | StopReason::EndTurn);
        let slot = |(nth, wanted): (usize, TurnCall)| {
            // A reply that was cut off may have been cut within its arguments.
            let output = if cut_off {
                ToolOutput::error("Not run: the reply was cut off. Make the call again, shorter.")
            } else if nth >= calls_max {
                ToolOutput::error(format!(
                    "Not run: more than {calls_max} calls in one turn. Ask again for fewer."
                ))
            } else {
                return Slot { wanted, progress: CallProgress::Unstarted };
            };
            effects.push(Effect::Skip(wanted.call.clone(), output.clone()));
            Slot { wanted, progress: CallProgress::Ended(output) }
        };
        let slots = wanted.into_iter().enumerate().map(slot).collect();
        let is_endless = self.cut_replies >= self.bounds.repeated_failures_max;
        self.phase = Phase::Calling(slots, is_endless.then_some(limit));
        effects.extend(self.advance());
        effects
    }

    fn call_ended(&mut self, id: &CallId, output: ToolOutput) -> Vec<Effect> {
        let Phase::Calling(slots, stopping) = &mut self.phase else { return Vec::new() };
        let stopping = stopping.is_some();
        let running = slots.iter_mut().find(|slot| {
            slot.wanted.call.id == *id && matches!(slot.progress, CallProgress::Running)
        });
        let Some(slot) = running else { return Vec::new() };
        let call = slot.wanted.call.clone();
        let failed = output.is_error;
        slot.progress = CallProgress::Ended(output);
        if !stopping && let Some(ending) = self.repetition(&call, failed) {
            return self.stop(ending);
        }
        self.advance()
    }

    /// Returns the ending of the run if the same call (name and arguments) has failed too often in
    /// a row.
    fn repetition(&mut self, call: &ToolCall, failed: bool) -> Option<Ending> {
        if !failed {
            self.repeated = None;
            return None;
        }
        let count = match &self.repeated {
            Some((name, arguments, count))
                if *name == call.name && *arguments == call.arguments =>
            {
                count + 1
            }
            _ => 1,
        };
        self.repeated = Some((call.name.clone(), call.arguments.clone(), count));
        (count >= self.bounds.repeated_failures_max).then(|| Ending::Failed {
            class: "loop".to_owned(),
            cause: format!("LOOP001 the same failing call of {} was made {count} times", call.name),
        })
    }

    /// Starts the calls that may start, or skips them if a steering message waits. When all calls
    /// have ended, requests the next reply, or finishes the run if it is being stopped.
    fn advance(&mut self) -> Vec<Effect> {
        let Phase::Calling(slots, stopping) = &mut self.phase else { return Vec::new() };
        let mut effects = Vec::new();
        let is_new = |queued: &QueuedInput| !self.held_back.contains(&queued.id);
        let steers = |queued: &QueuedInput| queued.kind == MessageKind::Steer && is_new(queued);
        let steered = self.queue.iter().any(steers);
        if steered {
            skip_unstarted(slots, "Skipped: the user sent a message.", &mut effects);
        } else if stopping.is_none() {
            start(slots, self.bounds.parallel_calls_max, &mut effects);
        }
        if slots.iter().any(|slot| !matches!(slot.progress, CallProgress::Ended(_))) {
            return effects;
        }
        let stopping = stopping.take();
        self.take_results();
        if let Some(ending) = stopping {
            effects.extend(self.finish(ending));
            return effects;
        }
        // Steering and notices enter here; a follow-up waits for the final answer.
        if self.queue.iter().any(|queued| queued.kind != MessageKind::FollowUp) {
            effects.extend(self.deliver());
        }
        effects.extend(self.ask_model());
        effects
    }

    /// Stops the run with `ending`: cancels its calls, and finishes when all have ended. If no
    /// calls are open, cancels the model request and finishes at once.
    fn stop(&mut self, ending: Ending) -> Vec<Effect> {
        let Phase::Calling(slots, stopping) = &mut self.phase else {
            let mut effects = vec![Effect::Cancel(Vec::new())];
            effects.extend(self.finish(ending));
            return effects;
        };
        if stopping.is_some() {
            return Vec::new();
        }
        *stopping = Some(ending);
        let mut effects = Vec::new();
        skip_unstarted(slots, "Not run: the run was stopped.", &mut effects);
        let running = slots.iter().filter(|slot| matches!(slot.progress, CallProgress::Running));
        let running = running.map(|slot| slot.wanted.call.id.clone()).collect();
        effects.insert(0, Effect::Cancel(running));
        effects.extend(self.advance());
        effects
    }

    fn finish(&mut self, ending: Ending) -> Vec<Effect> {
        self.phase = Phase::Done;
        vec![Effect::Finish(ending)]
    }

    /// Puts the results of the turn into the history, in the order of the calls.
    fn take_results(&mut self) {
        let Phase::Calling(slots, _) = std::mem::replace(&mut self.phase, Phase::Waiting) else {
            return;
        };
        for Slot { wanted, progress } in slots {
            let output = match progress {
                CallProgress::Ended(output) => output,
                CallProgress::Unstarted | CallProgress::Running => ToolOutput::error("Not run."),
            };
            self.history.push(Arc::new(Message::Tool {
                tool_call_id: wanted.call.id,
                name: wanted.call.name,
                content: output.content,
                is_error: output.is_error,
            }));
        }
    }

    /// Moves queued messages into the history: all notices, and the first or all steering messages;
    /// if there are neither, the oldest or all follow-ups.
    fn deliver(&mut self) -> Vec<Effect> {
        let QueueDelivery { one_steering_message, all_follow_ups } = self.bounds.delivery;
        let mut steered = false;
        let enters = |queued: &QueuedInput| match queued.kind {
            MessageKind::FollowUp => false,
            MessageKind::Steer => !(std::mem::replace(&mut steered, true) && one_steering_message),
            MessageKind::Notice | MessageKind::Aside => true,
        };
        let (mut delivered, rest): (VecDeque<_>, VecDeque<_>) =
            self.queue.drain(..).partition(enters);
        let waits = rest.iter().filter(|queued| queued.kind == MessageKind::Steer);
        self.held_back = waits.map(|queued| queued.id.clone()).collect();
        self.queue = rest;
        if delivered.is_empty() {
            let count = if all_follow_ups { self.queue.len() } else { 1 };
            delivered.extend(self.queue.drain(..count.min(self.queue.len())));
        }
        let mut effects = Vec::new();
        for queued in delivered {
            self.history.push(Arc::new(Message::User { content: queued.content.clone() }));
            effects.push(Effect::Deliver(queued));
        }
        effects
    }
}

/// Ending of a run whose last reply was cut off at its maximum length. The value is the number of
/// tokens that the reply had, 0 if the provider reported none.
fn length_limit(usage: Option<Usage>, said: Option<String>) -> Ending {
    let value = usage.and_then(|usage| usage.output_tokens).unwrap_or_default();
    Ending::Limited { limit: "maxTokens", value, said }
}

fn skip_unstarted(slots: &mut [Slot], text: &str, effects: &mut Vec<Effect>) {
    for slot in slots {
        if matches!(slot.progress, CallProgress::Unstarted) {
            let output = ToolOutput::error(text);
            effects.push(Effect::Skip(slot.wanted.call.clone(), output.clone()));
            slot.progress = CallProgress::Ended(output);
        }
    }
}

/// Starts calls in order, at most `parallel_max` at once. A call with side effects waits for all
/// earlier calls, and later calls wait for it.
fn start(slots: &mut [Slot], parallel_max: usize, effects: &mut Vec<Effect>) {
    let mut running = 0;
    for slot in slots {
        match slot.progress {
            CallProgress::Ended(_) => {}
            CallProgress::Running if slot.wanted.alone => return,
            CallProgress::Running => running += 1,
            CallProgress::Unstarted => {
                if running >= parallel_max.max(1) || (slot.wanted.alone && running > 0) {
                    return;
                }
                slot.progress = CallProgress::Running;
                running += 1;
                effects.push(Effect::Start(slot.wanted.call.clone()));
                if slot.wanted.alone {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
