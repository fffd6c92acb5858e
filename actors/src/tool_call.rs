//! Actor for one tool call, from the model's request to the recorded outcome. A panic of a tool
//! costs one call, and a cancelled call ends at once with its processes.

pub mod arguments;
mod open_question;
mod pipeline;
mod post_call;
mod services;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{Actor, ActorRef};
use serde_json::Value;
use tokio::task::JoinError;

use crate::conversation::{QuestionId, ToolCall};
use crate::delegation::{self, DELEGATE};
use crate::event::{Event, HookEvent, Origin, StartedCall, ToolFailureClass};
use crate::mailbox::{
    AliveToken, HandlerResult, OwnedTask, Report, SharedReport, StartResult, panic_text, spawn_task,
};
use crate::ports::{HookPayload, ToolOutput};

pub(crate) use post_call::Notices;
pub(crate) use services::Services;

use open_question::CallQuestion;
use pipeline::{CallEnd, Pipeline};

/// Progress of a call, for its invocation if the call's actor dies.
#[derive(Debug, Default)]
pub(crate) struct IntentProgress {
    /// Set once the intent is recorded.
    pub(crate) intended: OnceLock<()>,
    /// Set once the intent of a call with effects is durable: there may have been one.
    pub(crate) begun: OnceLock<StartedCall>,
    /// Set at its end: true if it succeeded.
    pub(crate) ran: OnceLock<bool>,
    /// Set when the outcome was recorded.
    outcome: OnceLock<ToolOutput>,
    /// Set when hooks made something else of it, and that was recorded.
    revised: OnceLock<ToolOutput>,
}

impl IntentProgress {
    pub(crate) fn started(&self) -> bool {
        self.begun.get().is_some()
    }

    pub(crate) fn outcome(&self) -> Option<&ToolOutput> {
        self.revised.get().or_else(|| self.outcome.get())
    }
}

pub(crate) struct Args {
    pub(crate) call: ToolCall,
    /// The question about it that is open in front of the user, from before the session broke off.
    pub(crate) question: Option<QuestionId>,
    /// It had started a subagent that is still running, and waits for it again.
    pub(crate) attached: bool,
    pub(crate) origin: Arc<Origin>,
    pub(crate) services: Arc<Services>,
    pub(crate) visible: Arc<[String]>,
    /// Shared with the invocation.
    pub(crate) progress: Arc<IntentProgress>,
    pub(crate) presence: AliveToken,
    pub(crate) report: Report<ToolOutput>,
}

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    Ended(Result<CallEnd, JoinError>),
    /// Hooks have processed the outcome.
    Hooked,
    Cancel(String),
    /// State of the subagent of a stopped call, if it had started one.
    Left(String, Result<Option<ToolOutput>, JoinError>),
}

pub(crate) struct ToolCallRun;

pub(crate) struct State {
    call: ToolCall,
    origin: Arc<Origin>,
    services: Arc<Services>,
    progress: Arc<IntentProgress>,
    /// Also held by the work: a call is lost when both are gone, not before.
    report: SharedReport<ToolOutput>,
    /// Recorded, and waiting for hooks.
    output: Option<ToolOutput>,
    /// Why the work was stopped, until it is gone.
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
            question,
            attached,
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
            services: Arc::clone(&services),
            origin: Arc::clone(&origin),
            call: call.clone(),
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
    /// Runs hooks on the recorded outcome before the model sees it. `class`: class of the failure,
    /// if it failed.
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

    /// The model reads what hooks made of the outcome; the record of the outcome stays.
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

    /// Stops the work. The outcome is reported when the work is gone, so that a tool cannot start
    /// after it was reported as not started.
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

    /// Reports the outcome of a stopped call.
    fn over(&mut self, reason: &str, left: Option<ToolOutput>) {
        let output = left.unwrap_or_else(|| cancelled(self.progress.started(), reason));
        self.end(&output, Some(ToolFailureClass::Cancelled), Duration::ZERO);
        self.send(output);
    }

    /// Records the outcome. `class`: class of the failure if it did not run.
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

/// The result of a call that was stopped.
pub(crate) fn cancelled(started: bool, reason: &str) -> ToolOutput {
    ToolOutput::error(if started {
        format!("Cancelled while it ran: {reason}. Its effects may be partial; look before relying on them.")
    } else {
        format!("Cancelled before it ran: {reason}.")
    })
    .with_metadata(Value::Null)
}

/// Result of a call that started and whose end is unknown.
pub(crate) fn outcome_unknown(why: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "Outcome unknown: {why}. The call had started, and may or may not have had its effect. \
         Look before you repeat it."
    ))
}

/// Record for [`outcome_unknown`].
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
