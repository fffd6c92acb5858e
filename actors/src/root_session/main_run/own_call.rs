//! Tool calls of the user: they are judged, confined and recorded like calls of the agent, and the
//! model is informed with its next request.

use std::sync::Arc;

use ractor::{ActorId, ActorRef, SpawnErr};
use tokio::sync::oneshot;

use crate::agent_invocation::{lost_output, requested_event};
use crate::conversation::{ContentPart, MessageId, ToolCall, Usage};
use crate::event::{Event, MessageKind, Origin, ToolFailureClass};
use crate::mailbox::{AliveToken, Lost, Report, spawn_unless_lost, tell};
use crate::outcome::Ending;
use crate::ports::{Caller, ToolOutput};
use crate::replay::{OpenOwnCall, QueuedInput};
use crate::root_session::main_run::MainRun;
use crate::root_session::main_run::admission::StartHooks;
use crate::root_session::main_run::{MainRunMsg, PromptAdmission};
use crate::root_session::{Msg, PromptError, SessionBase, State, TurnOutcome};
use crate::tool_call::{self, IntentProgress, ToolCallRun};

/// Text for the model about a user call that started and has no recorded end.
const BROKE_OFF: &str = "posse ended while it ran. Whether it took effect is not known.";
/// Text for the model about a user call that had not started.
const NOT_RUN: &str = "It was not run: posse ended before it started.";

/// A tool call made by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCall {
    /// Name of the tool.
    pub tool: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Beginning of the message for the model; the tool's output follows. If it is empty, the model
    /// is not informed.
    pub said: String,
}

/// A tool call of the user in progress.
pub(crate) struct OwnCall {
    origin: Arc<Origin>,
    call: ToolCall,
    message_id: MessageId,
    said: String,
    progress: Arc<IntentProgress>,
    actor: Option<ActorRef<tool_call::Msg>>,
    /// True if the call was asked to stop, so that its outcome is `Ending::Interrupted`.
    stopped: bool,
    outcome: oneshot::Sender<TurnOutcome>,
}

impl OwnCall {
    pub(crate) fn is(&self, id: ActorId) -> bool {
        self.actor.as_ref().is_some_and(|actor| actor.get_id() == id)
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        if let Some(actor) = &self.actor {
            tell(actor, tool_call::Msg::Cancel("the user stopped it".to_owned()));
        }
    }
}

/// Title of the checkpoint before a tool call of the user: its command, or the name of the tool.
fn title(tool: &str, arguments: &str) -> String {
    let arguments: Option<serde_json::Value> = serde_json::from_str(arguments).ok();
    let command = arguments.as_ref().and_then(|arguments| arguments["command"].as_str());
    command.map_or_else(|| tool.to_owned(), |command| format!("! {command}"))
}

impl State {
    /// Starts a tool call of the user. Refused while a run, another such call, a compaction or the
    /// hooks for the session start are in progress, and if the session accepts no work. Subagents
    /// may run.
    pub(crate) async fn own_call(&mut self, wanted: UserCall) -> Result<PromptAdmission, SpawnErr> {
        if let Err(error) = self.may_begin() {
            return Ok(Err(error));
        }
        match &self.main_run.opening {
            StartHooks::Open => (),
            StartHooks::Asking(_) => return Ok(Err(PromptError::Busy)),
            StartHooks::Blocked(why) => return Ok(Err(PromptError::Parked(why.clone()))),
        }
        let UserCall { tool, arguments, said } = wanted;
        let (origin, message_id) = (self.base.new_origin(), self.base.ports.ids.message());
        let call = ToolCall {
            id: self.base.ports.ids.call(),
            name: tool.clone(),
            arguments,
            provider_id: None,
        };
        let title = title(&tool, &call.arguments);
        let id = origin.invocation_id.clone();
        self.base.services.checkpoints.begin(id, title);
        let (call_id, visible) = (call.id.clone(), Arc::from([tool.clone()]));
        let (id, text) = (message_id.clone(), said.clone());
        let event = Event::UserCall { call_id, tool, message_id: id, said: text };
        self.base.transcript.note(Some(&origin), event);
        self.base.transcript.note(Some(&origin), requested_event(&call));
        let progress = Arc::<IntentProgress>::default();
        let (presence, _) = AliveToken::new();
        let args = tool_call::Args {
            call: call.clone(),
            caller: Caller::User,
            question: None,
            attached: false,
            room_bytes: usize::MAX,
            note: None,
            origin: Arc::clone(&origin),
            services: Arc::clone(&self.base.services),
            visible,
            progress: Arc::clone(&progress),
            presence,
            report: Report::to(&self.base.me, |output| {
                Msg::MainRun(MainRunMsg::OwnCallEnded(output))
            }),
        };
        let actor = spawn_unless_lost(ToolCallRun, args, &self.base.me).await?;
        let (outcome, receiver) = oneshot::channel();
        let id = origin.invocation_id.clone();
        let stopped = false;
        let own = OwnCall { origin, call, message_id, said, progress, actor, stopped, outcome };
        self.main_run.own_call = Some(own);
        Ok(Ok((id, receiver)))
    }

    pub(crate) fn own_call_ended(&mut self, output: Result<ToolOutput, Lost>) {
        let Some(own) = self.main_run.own_call.take() else { return };
        if let Some(actor) = &own.actor {
            actor.stop(None);
        }
        let output = output.unwrap_or_else(|Lost| {
            lost_output(&own.call, &own.progress, &self.base.services.transcript, &own.origin)
        });
        let run = &mut self.main_run;
        self.base.queue_own_call_message(own.message_id, own.said, output.content, run);
        let ending =
            if own.stopped { Ending::Interrupted } else { Ending::Answered(String::new()) };
        self.base.services.checkpoints.end();
        own.outcome.send(self.base.turn_outcome(ending, 0, Usage::default())).ok();
        self.close_if_idle();
    }
}

impl SessionBase {
    /// Ends a tool call of the user that an earlier process left open: records its end if it is
    /// missing, and queues the message for the model.
    pub(crate) fn close_own_call(&self, open: OpenOwnCall, run: &mut MainRun) {
        let OpenOwnCall { origin, call_id, name, message_id, said, begun, output } = open;
        let output = output.unwrap_or_else(|| {
            let content =
                vec![ContentPart::text(if begun.is_some() { BROKE_OFF } else { NOT_RUN })];
            let event = if begun.is_some() {
                Event::ToolOutcomeUnknown { call_id, name, content: content.clone(), begun }
            } else {
                let (class, metadata) = (ToolFailureClass::Skipped, serde_json::Value::Null);
                let content = content.clone();
                Event::ToolFailed { call_id, name, content, class, metadata, duration_ms: 0 }
            };
            self.transcript.note(Some(&origin), event);
            content
        });
        self.queue_own_call_message(message_id, said, output, run);
    }

    /// Queues and records the message that informs the model about a tool call of the user with its
    /// next request. Does nothing if `said` is empty.
    fn queue_own_call_message(
        &self,
        id: MessageId,
        said: String,
        output: Vec<ContentPart>,
        run: &mut MainRun,
    ) {
        if said.is_empty() {
            return;
        }
        let kind = MessageKind::Aside;
        let content: Vec<ContentPart> =
            std::iter::once(ContentPart::text(said)).chain(output).collect();
        let queued = QueuedInput { id, kind, content };
        self.transcript.note(None, queued.event());
        run.queued.push(queued);
    }
}
