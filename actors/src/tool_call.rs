//! Actor for one tool call, from the model's request to the recorded outcome. A panic of a tool
//! affects only its own call. Cancelling a call kills its processes.

pub mod arguments;
mod call_questions;
mod checkpoints;
mod connection_questions;
mod open_question;
mod pipeline;
mod post_call;
mod services;
mod todo_lists;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{Actor, ActorRef};
use serde_json::Value;
use tokio::task::JoinError;

use crate::conversation::ToolCall;
use crate::delegation::{self, DELEGATE};
use crate::event::{Event, HookEvent, Origin, StartedCall, ToolFailureClass};
use crate::guarded::Guarded;
use crate::mailbox::{
    AliveToken, HandlerResult, OwnedTask, Report, SharedReport, StartResult, panic_text, spawn_task,
};
use crate::ports::{Caller, HookPayload, ToolOutput};
use crate::replay::ContinuedRequest;

pub(crate) use checkpoints::Checkpoints;
pub(crate) use post_call::Notices;
pub(crate) use services::Services;
pub(crate) use todo_lists::TodoLists;

use open_question::CallQuestion;
use pipeline::{CallEnd, Pipeline};

/// Bytes of the output of a stopped call that the model gets.
const PRINTED_BYTES: usize = 4096;

/// Progress of a call, shared with its invocation, which reads it if the call's actor dies.
#[derive(Debug, Default)]
pub(crate) struct IntentProgress {
    /// Set when the intent is recorded; for a call without side effects, when it is submitted.
    pub(crate) intended: OnceLock<()>,
    /// Set when the intent of a call with side effects is synced to disk. From then on the call may
    /// have had its effect.
    pub(crate) begun: OnceLock<StartedCall>,
    /// Set when the tool has ended: true if it succeeded.
    pub(crate) ran: OnceLock<bool>,
    /// End of the output so far, for the result of a call that is stopped.
    printed: Guarded<String>,
    /// Set when the outcome is recorded.
    outcome: OnceLock<ToolOutput>,
    /// Set when hooks have replaced the result for the model, and this is recorded.
    revised: OnceLock<ToolOutput>,
}

impl IntentProgress {
    pub(crate) fn started(&self) -> bool {
        self.begun.get().is_some()
    }

    /// Adds output. Keeps at least its last [`PRINTED_BYTES`].
    pub(crate) fn print(&self, text: &str) {
        let mut printed = self.printed.lock();
        printed.push_str(text);
        if printed.len() > 2 * PRINTED_BYTES {
            let from = printed.ceil_char_boundary(printed.len() - PRINTED_BYTES);
            printed.drain(..from);
        }
    }

    /// The end of the output so far: at most [`PRINTED_BYTES`].
    fn printed(&self) -> String {
        let printed = self.printed.lock();
        let from = printed.ceil_char_boundary(printed.len().saturating_sub(PRINTED_BYTES));
        printed[from..].to_owned()
    }

    pub(crate) fn outcome(&self) -> Option<&ToolOutput> {
        self.revised.get().or_else(|| self.outcome.get())
    }
}

pub(crate) struct Args {
    pub(crate) call: ToolCall,
    pub(crate) caller: Caller,
    /// Permission request of this call that is still open, from before the session was interrupted.
    /// `None` if there is none.
    pub(crate) question: Option<ContinuedRequest>,
    /// True if the call has already started a subagent and waits for it again.
    pub(crate) attached: bool,
    /// Bytes of text that the context budget leaves for the result.
    pub(crate) room_bytes: usize,
    /// Note for the agent at the end of the result; `None` if there is none.
    pub(crate) note: Option<String>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) services: Arc<Services>,
    pub(crate) visible: Arc<[String]>,
    /// Progress, shared with the invocation.
    pub(crate) progress: Arc<IntentProgress>,
    pub(crate) presence: AliveToken,
    pub(crate) report: Report<ToolOutput>,
}

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    Ended(Result<CallEnd, JoinError>),
    /// The hooks for the outcome have finished.
    Hooked,
    Cancel(String),
    /// A stopped delegation call gets the state of its subagent, or `None` if it had started none.
    /// The text is the reason for the stop.
    Left(String, Result<Option<ToolOutput>, JoinError>),
}

pub(crate) struct ToolCallRun;

pub(crate) struct State {
    call: ToolCall,
    origin: Arc<Origin>,
    services: Arc<Services>,
    progress: Arc<IntentProgress>,
    /// Also held by the task of the call: the call is reported as lost only when both are gone.
    report: SharedReport<ToolOutput>,
    /// Recorded outcome while hooks process it.
    output: Option<ToolOutput>,
    /// Reason for stopping the task, until the task is gone.
    stopping: Option<String>,
    ended: bool,
    work: Option<OwnedTask>,
    _presence: AliveToken,
}

impl Actor for ToolCallRun {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, me: ActorRef<Msg>, args: Args) -> StartResult<State> {
        let Args {
            call,
            caller,
            question,
            attached,
            room_bytes,
            note,
            origin,
            services,
            visible,
            progress,
            presence,
            report,
        } = args;
        let report = SharedReport::new(report);
        let asked = CallQuestion::before(question, &services, &origin);
        let pipeline = Pipeline {
            asked,
            attached,
            room_bytes,
            note,
            services: Arc::clone(&services),
            origin: Arc::clone(&origin),
            call: call.clone(),
            caller,
            visible,
            progress: Arc::clone(&progress),
        };
        let held = (report.clone(), presence.clone());
        let work = async move {
            let ended = pipeline.run().await;
            drop(held);
            ended
        };
        let work = Some(spawn_task(&me, work, Msg::Ended));
        let (output, stopping, ended) = (None, None, false);
        Ok(State {
            call,
            origin,
            services,
            progress,
            report,
            output,
            stopping,
            ended,
            work,
            _presence: presence,
        })
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.services.fail.hit("ToolCallRun", (&msg).into());
        match msg {
            Msg::Ended(Ok(CallEnd::Ran { output, took, input })) => {
                state.progress.ran.set(!output.is_error).ok();
                state.end(&output, None, took);
                let class = output.is_error.then_some(ToolFailureClass::Failed);
                state.ask_hooks(&me, output, class, Some(*input));
            }
            Msg::Ended(Ok(CallEnd::Refused { class, output })) => {
                state.end(&output, Some(class.clone()), Duration::ZERO);
                state.ask_hooks(&me, output, Some(class), None);
            }
            Msg::Ended(Err(died)) if died.is_cancelled() => state.stopped(&me),
            Msg::Ended(Err(died)) => state.crashed(&me, &panic_text(died)),
            Msg::Hooked => state.hooked(),
            Msg::Cancel(reason) => state.cancel(reason),
            Msg::Left(reason, left) => state.over(&reason, left.ok().flatten()),
        }
        Ok(())
    }
}

impl State {
    /// Runs hooks on the recorded outcome before the model gets it. Without such hooks, or while
    /// the call is being stopped, reports the outcome at once. `class`: class of the failure;
    /// `None` if the call succeeded. `input`: arguments, if the call ran.
    fn ask_hooks(
        &mut self,
        me: &ActorRef<Msg>,
        output: ToolOutput,
        class: Option<ToolFailureClass>,
        input: Option<Value>,
    ) {
        let event = if class.is_some() { HookEvent::ToolError } else { HookEvent::PostToolUse };
        let heard = self.services.hooks.has_hook(event, Some(&self.call.name));
        if !heard || self.stopping.is_some() {
            return self.send(output);
        }
        // What never became arguments is shown as the model wrote it.
        let raw = &self.call.arguments;
        let input = input
            .or_else(|| serde_json::from_str(raw).ok())
            .unwrap_or_else(|| Value::String(raw.clone()));
        let used = self.services.hooked(&self.call, input);
        let content = output.content.clone();
        let moment = match class {
            Some(class) => HookPayload::ToolError { used, content, class },
            None => HookPayload::PostToolUse(used, content),
        };
        let fired = self.services.fire(Some(&self.origin), moment);
        let (progress, recorded) = (Arc::clone(&self.progress), output.clone());
        let work = async move {
            let hooked = fired.await;
            // The model reads the recorded outcome, also if this actor dies now.
            if let Some(content) = &hooked.output {
                progress.revised.set(ToolOutput { content: content.clone(), ..recorded }).ok();
            }
        };
        self.work = Some(spawn_task(me, work, |_| Msg::Hooked));
        self.output = Some(output);
    }

    /// Reports the result that hooks made of the outcome. The outcome record stays as it is.
    fn hooked(&mut self) {
        let Some(recorded) = self.output.take() else { return };
        let outcome = self.progress.outcome().cloned().unwrap_or(recorded);
        self.send(outcome);
    }

    fn crashed(&mut self, me: &ActorRef<Msg>, cause: &str) {
        if self.progress.started() {
            let output = outcome_unknown(&format!("the tool crashed: {cause}"));
            self.progress.outcome.set(output.clone()).ok();
            let event = unknown_event(&self.call, &output, self.progress.begun.get());
            self.services.transcript.note(Some(&self.origin), event);
            return self.ask_hooks(me, output, Some(ToolFailureClass::Crashed), None);
        }
        let output = ToolOutput::error(format!("The tool crashed: {cause}. Nothing was changed."));
        self.end(&output, Some(ToolFailureClass::Crashed), Duration::ZERO);
        self.ask_hooks(me, output, Some(ToolFailureClass::Crashed), None);
    }

    /// Stops the task of the call. The outcome is reported when the task is gone, so that a tool
    /// cannot start after it was reported as not started. If hooks are processing a recorded
    /// outcome, reports this at once. No effect if the outcome was reported already.
    fn cancel(&mut self, reason: String) {
        if self.ended {
            return;
        }
        // Dropping the work drops the tool's future, and with it every process it started.
        self.work = None;
        match self.output.take() {
            Some(recorded) => {
                let outcome = self.progress.outcome().cloned().unwrap_or(recorded);
                self.send(outcome);
            }
            None => self.stopping = Some(reason),
        }
    }

    fn stopped(&mut self, me: &ActorRef<Msg>) {
        let Some(reason) = self.stopping.take() else { return };
        match &self.services.delegation_handle {
            // An agent may have worked for it, whose work is not undone.
            Some(delegation_handle) if self.call.name == DELEGATE => {
                let (delegation_handle, call_id) =
                    (Arc::clone(delegation_handle), self.call.id.clone());
                let origin = Arc::clone(&self.origin);
                let left = async move {
                    delegation::stopped_call_output(&delegation_handle, call_id, origin).await
                };
                self.work = Some(spawn_task(me, left, |left| Msg::Left(reason, left)));
            }
            _ => self.over(&reason, None),
        }
    }

    /// Records and reports the outcome of a stopped call. `left`: result with the state of its
    /// subagent, if it started one.
    fn over(&mut self, reason: &str, left: Option<ToolOutput>) {
        let output = left.unwrap_or_else(|| cancelled(&self.progress, reason));
        self.end(&output, Some(ToolFailureClass::Cancelled), Duration::ZERO);
        self.send(output);
    }

    /// Records the outcome. `class`: class of a failure; `None`: `Failed` if `output` is an error.
    fn end(&self, output: &ToolOutput, class: Option<ToolFailureClass>, took: Duration) {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (call_id, name) = (self.call.id.clone(), self.call.name.clone());
        let (content, metadata) = (output.content.clone(), output.metadata.clone());
        let event = if output.is_error {
            let class = class.unwrap_or(ToolFailureClass::Failed);
            Event::ToolFailed { call_id, name, content, class, metadata, duration_ms }
        } else {
            Event::ToolCompleted { call_id, name, content, metadata, duration_ms }
        };
        self.progress.outcome.set(output.clone()).ok();
        self.services.transcript.note(Some(&self.origin), event);
    }

    fn send(&mut self, output: ToolOutput) {
        self.ended = true;
        self.report.send(output);
    }
}

/// Result of a call that was stopped, before or after it had started.
fn cancelled(progress: &IntentProgress, reason: &str) -> ToolOutput {
    let text = ToolFailureClass::cancellation(progress.started(), reason, &progress.printed());
    ToolOutput::error(text).with_metadata(Value::Null)
}

/// Result of a call that started and whose end is unknown.
pub(crate) fn outcome_unknown(why: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "Outcome unknown: {why}. The call had started, and may or may not have had its effect. \
         Look before you repeat it."
    ))
}

/// Event that records the result from [`outcome_unknown`].
pub(crate) fn unknown_event(
    call: &ToolCall,
    output: &ToolOutput,
    begun: Option<&StartedCall>,
) -> Event {
    Event::ToolOutcomeUnknown {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: output.content.clone(),
        begun: begun.cloned(),
    }
}
