//! Steps of a call: validation, hooks, preparation, review, permission request, intent, run.
//!
//! Each step changes the type, so none can be left out: arguments become a prepared call, a
//! prepared call becomes a permitted one, and only a permitted one runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::{ContentPart, ToolCall, cap_parts};
use crate::delegation;
use crate::event::{
    Durability, Event, Grant, HookEvent, HunkAnswer, Origin, PermissionMode, SandboxTier,
    StartedCall, ToolFailureClass, UserRequest,
};
use crate::hook_events::HookOutcome;
use crate::permission_coordinator::{ApprovalResult, Binding};
use crate::ports::{
    Action, CallContext, Caller, CommandDeletions, Confinement, HookPayload, HookedCall,
    OutputDelta, PermissionQuestion, PermittedCall, PortFuture, Prepared, Review, RunContext,
    SideEffect, Situation, Tool, ToolError, ToolOutput, UserAnswer, Verdict, review,
};
use crate::tool_call::arguments::{Arguments, validate};
use crate::tool_call::call_questions::{AskedCall, KeptPayload, PendingQuestion};
use crate::tool_call::open_question::CallQuestion;
use crate::tool_call::{IntentProgress, Services, connection_questions};

/// Capacity of the channels between a tool and its call, for live output and for events.
const OUTPUT_IN_FLIGHT: usize = 64;

/// Result of the pipeline.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// The tool ran, with the arguments `input`.
    Ran { output: ToolOutput, took: Duration, input: Box<Value> },
    /// The call did not run. `class` is the reason, as in [`Event::ToolFailed`].
    Refused { class: ToolFailureClass, output: ToolOutput },
}

pub(crate) struct Pipeline {
    pub(crate) services: Arc<Services>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) call: ToolCall,
    pub(crate) caller: Caller,
    /// Names of the tools that the agent sees. A call of another name is an unknown tool.
    pub(crate) visible: Arc<[String]>,
    pub(crate) progress: Arc<IntentProgress>,
    /// Permission request of this call from before the session was interrupted, if there is one.
    pub(super) asked: CallQuestion,
    /// True if the call had already started its subagent before it was interrupted, so that it only
    /// waits for the end of the subagent.
    pub(super) attached: bool,
    /// Bytes of text that the context budget leaves for the result.
    pub(super) room_bytes: usize,
    /// Note for the agent at the end of the result; `None` if there is none.
    pub(super) note: Option<String>,
}

type Refusal = CallEnd;

/// Bytes beside the output itself, such as the number of the next line, for which the result of a
/// tool has space beyond [`Pipeline::room_bytes`].
const NOTES_BYTES: usize = 2048;

/// Arguments that match the tool's schema, after changes by hooks.
struct Accepted {
    value: Value,
    coerced: Vec<String>,
    /// Notes of hooks for the model, such as changed arguments.
    notes: Vec<String>,
}

/// Answer of a person, or of the policy instead, to the permission request of a call.
struct CallAnswer {
    /// Binding of an answer that allows the call; `None` if a grant covers the call by now, so that
    /// it must be judged again.
    allowed: Option<Binding>,
    /// Payload that keeps the changes of a trial; `None` if the call runs.
    kept: Option<KeptPayload>,
    /// Answers about the hunks of the call, which makes only the chosen ones; empty if it is allowed
    /// as a whole.
    hunks: Vec<HunkAnswer>,
}

/// Request of a permitted call to the user.
struct CallUserRequest {
    request: UserRequest,
    action: Action,
    question: PermissionQuestion,
}

impl CallUserRequest {
    /// The request of a call of `tool`; `None` if it asks nothing.
    fn of(
        tool: &dyn Tool,
        permitted: &PermittedCall,
        accepted: &Accepted,
    ) -> Option<CallUserRequest> {
        let request = tool.user_request(&accepted.value)?;
        let question = PermissionQuestion {
            reason: "the model asks".to_owned(),
            scopes: Vec::new(),
            grant: None,
            grants_part: false,
            grant_text: Box::default(),
            yes_covers: false,
            rule: None,
            confinement: permitted.confinement().clone(),
        };
        Some(CallUserRequest { request, action: permitted.action().clone(), question })
    }
}

impl Pipeline {
    pub(crate) async fn run(self) -> CallEnd {
        if self.attached {
            return self.wait_again().await;
        }
        self.carry_out().await.unwrap_or_else(|refusal| refusal)
    }

    /// Gets permission for the call, records the intent, and runs the tool.
    async fn carry_out(&self) -> Result<CallEnd, Refusal> {
        self.services.checkpoints.expect_effects(&self.services.transcript);
        let permitted = self.permit().await;
        let request = permitted.as_ref().ok();
        let request = request.and_then(|(tool, permitted, accepted)| {
            Some((Arc::clone(tool), CallUserRequest::of(&**tool, permitted, accepted)?))
        });
        let answer = match request {
            Some((tool, request)) => Some(self.ask_user(&*tool, request).await),
            None => None,
        };
        // Before the intent: a request that is still open now is obsolete.
        self.asked.withdraw();
        let (tool, permitted, accepted) = permitted?;
        let effect = tool.spec().side_effect != SideEffect::None && !permitted.action().is_trial();
        if effect && !tool.takes_checkpoint() && !self.only_reads(&*tool, &permitted) {
            self.checkpoint(deleted_unasked(&permitted)).await?;
        }
        let intent = self.intent(effect, &permitted, accepted.coerced);
        self.intend(effect, intent, permitted.action().summary.clone()).await?;
        let (mut output, elapsed) = self.perform(&*tool, permitted, answer).await;
        // The model is informed about changed arguments.
        let notes = accepted.notes.into_iter().chain(self.note.clone());
        output.content.extend(notes.map(ContentPart::text));
        Ok(CallEnd::Ran { output, took: elapsed, input: Box::new(accepted.value) })
    }

    /// Waits for the subagent that this call had started. The subagent is not started twice.
    async fn wait_again(self) -> CallEnd {
        let Services { delegation_handle, clock, limits, .. } = &*self.services;
        let began = clock.monotonic();
        let (call_id, origin) = (self.call.id.clone(), Arc::clone(&self.origin));
        let mut output = match delegation_handle {
            Some(delegation_handle) => {
                delegation::reattach(delegation_handle, call_id, origin).await
            }
            None => ToolOutput::error("No agent works for others any more."),
        };
        let took = clock.monotonic().saturating_sub(began);
        let input = serde_json::from_str(&self.call.arguments).unwrap_or_default();
        cap_parts(&mut output.content, limits.result_bytes_max);
        CallEnd::Ran { output, took, input: Box::new(input) }
    }

    async fn permit(&self) -> Result<(Arc<dyn Tool>, PermittedCall, Accepted), Refusal> {
        let tool = self.tool()?;
        let permitted = self.permit_of(Arc::clone(&tool)).await;
        permitted.map_err(|refusal| match (refusal, tool.denial_advice()) {
            (CallEnd::Refused { class: ToolFailureClass::Denied, mut output }, Some(advice)) => {
                output.content.push(ContentPart::text(format!("\n{advice}")));
                CallEnd::Refused { class: ToolFailureClass::Denied, output }
            }
            (refusal, _) => refusal,
        })
    }

    async fn permit_of(
        &self,
        tool: Arc<dyn Tool>,
    ) -> Result<(Arc<dyn Tool>, PermittedCall, Accepted), Refusal> {
        let accepted = self.arguments(&*tool).await?;
        let permitted = self.permit_accepted(&*tool, &accepted).await;
        match permitted {
            Ok(permitted) => Ok((tool, permitted, accepted)),
            Err(CallEnd::Refused { class, mut output }) => {
                // The refused arguments are those of the hook, not those of the model.
                output.content.extend(accepted.notes.into_iter().map(ContentPart::text));
                Err(CallEnd::Refused { class, output })
            }
            Err(ran) => Err(ran),
        }
    }

    /// Gets permission for a call with accepted arguments.
    async fn permit_accepted(
        &self,
        tool: &dyn Tool,
        accepted: &Accepted,
    ) -> Result<PermittedCall, Refusal> {
        let prepared = self.prepare(tool, &accepted.value).await?;
        let mut reviewed = self.review(tool, prepared);
        let mut rejudgements = 0;
        while rejudgements <= self.services.limits.rejudgements_max {
            let pending = match reviewed {
                Review::Permitted(permitted) => return Ok(permitted),
                Review::Denied { reason, rule } => return Err(denied(&reason, Some(&rule))),
                Review::Pending(pending) => pending,
            };
            let question = self.pending_question(tool, &pending);
            let grants_part = question.question.grants_part;
            self.may_ask(&accepted.value, &question.action, &question.question).await?;
            let CallAnswer { allowed, kept, hunks } =
                self.question(tool, question, &accepted.value).await?;
            // A person who grants one part after the other keeps nothing changing.
            rejudgements += u32::from(!(grants_part && allowed.is_none()));
            // The world may have changed while a human was thinking.
            let prepared = self.prepare(tool, &accepted.value).await?;
            // No answer for exactly this call: it is judged again.
            if allowed.is_none_or(|allowed| allowed != self.binding(&prepared.action)) {
                reviewed = self.review(tool, prepared);
                continue;
            }
            let confinement = match self.judged_again(tool, &prepared.action) {
                Verdict::Deny { reason, rule } => return Err(denied(&reason, Some(&rule))),
                Verdict::Allow(confinement) => confinement,
                Verdict::Ask(question) => question.confinement,
            };
            // The permission mode has changed since the question: the answer was about something
            // else.
            if confinement != pending.question().confinement {
                reviewed = self.review(tool, prepared);
                continue;
            }
            match pending.approve(prepared, kept) {
                Ok(permitted) if hunks.is_empty() => return Ok(permitted),
                Ok(permitted) => {
                    let reduced = permitted.reduced(tool, hunks).await;
                    return reduced.map_err(|error| invalid(&error));
                }
                Err(changed) => reviewed = self.review(tool, changed),
            }
        }
        Err(denied("its effect kept changing while the user was asked", None))
    }

    fn tool(&self) -> Result<Arc<dyn Tool>, Refusal> {
        let name = &self.call.name;
        let tool = self.services.tools.get(name).filter(|_| self.visible.contains(name));
        tool.cloned().ok_or_else(|| {
            let names = self.visible.join(", ");
            let text = format!("Unknown tool: {name:?}. Available tools: {names}");
            refusal(ToolFailureClass::UnknownTool, text)
        })
    }

    async fn arguments(&self, tool: &dyn Tool) -> Result<Accepted, Refusal> {
        let schema = &tool.spec().parameters;
        let bytes_max = self.services.limits.arguments_bytes_max;
        let Arguments { value, coerced } =
            validate(schema, &self.call.arguments, bytes_max).map_err(|error| invalid(&error))?;
        if !self.has_hook(HookEvent::PreToolUse) {
            return Ok(Accepted { value, coerced, notes: Vec::new() });
        }
        let moment = HookPayload::PreToolUse(self.used(&value));
        let HookOutcome { blocked, input, notes, .. } = self.fire(moment).await;
        if let Some(why) = blocked {
            return Err(blocked_by(&why));
        }
        let Some((other, hook)) = input else { return Ok(Accepted { value, coerced, notes }) };
        // Running the original arguments would ignore the hook.
        let Arguments { value, coerced } = validate(schema, &other.to_string(), bytes_max)
            .map_err(|error| {
                blocked_by(&format!(
                    "a hook changed the arguments to some that do not fit: {error} (hook: {hook})"
                ))
            })?;
        Ok(Accepted { value, coerced, notes })
    }

    /// Runs the hooks for a permission request, which can deny the call before a person is asked.
    async fn may_ask(
        &self,
        input: &Value,
        action: &Action,
        question: &PermissionQuestion,
    ) -> Result<(), Refusal> {
        if !self.has_hook(HookEvent::PermissionRequest) {
            return Ok(());
        }
        let moment = HookPayload::PermissionRequest {
            used: self.used(input),
            summary: action.summary.clone(),
            reason: question.reason.clone(),
        };
        match self.fire(moment).await.blocked {
            Some(why) => Err(blocked_by(&why)),
            None => Ok(()),
        }
    }

    fn has_hook(&self, event: HookEvent) -> bool {
        self.services.hooks.has_hook(event, Some(&self.call.name))
    }

    fn used(&self, input: &Value) -> HookedCall {
        self.services.hooked(&self.call, input.clone())
    }

    async fn fire(&self, moment: HookPayload) -> HookOutcome {
        self.services.fire(Some(&self.origin), moment).await
    }

    pub(super) async fn prepare(
        &self,
        tool: &dyn Tool,
        arguments: &Value,
    ) -> Result<Prepared, Refusal> {
        let prepared = tool.prepare(arguments.clone(), self.context()).await;
        let mut prepared = prepared.map_err(|error| invalid(&error))?;
        // In other modes a deletion is asked about whether or not it can be taken back.
        if self.services.mode.current() == PermissionMode::Auto {
            self.services.checkpoints.examine_deletions(&mut prepared.action).await;
        }
        Ok(prepared)
    }

    fn review(&self, tool: &dyn Tool, prepared: Prepared) -> Review {
        let grants = self.grants();
        let (policy, situation) = (&*self.services.policy, self.situation(tool, &grants));
        review(self.call.clone(), prepared, policy, &situation)
    }

    /// Judges the call again after a person allowed it.
    fn judged_again(&self, tool: &dyn Tool, action: &Action) -> Verdict {
        let grants = self.grants();
        self.services.policy.judge(action, &self.situation(tool, &grants))
    }

    /// Valid grants that count for the caller.
    fn grants(&self) -> Arc<[Grant]> {
        self.services.book.grants(self.caller.agent(&self.origin))
    }

    fn situation<'a>(&'a self, tool: &'a dyn Tool, grants: &'a [Grant]) -> Situation<'a> {
        Situation {
            tool: &tool.spec().annotations,
            caller: self.caller,
            agent: &self.origin.agent_path,
            grants,
            asking: self.services.asking,
            mode: self.services.mode.current(),
            now_ms: self.services.clock.wall_ms(),
            uptime: self.services.clock.monotonic(),
            tier: &self.services.tier,
        }
    }

    /// Binding of an answer about `action` to this call.
    fn binding(&self, action: &Action) -> Binding {
        Binding::of(&self.call.id, &action.digest, &self.services.cwd, &self.origin)
    }

    /// Opens a permission request and waits for the answer.
    async fn question(
        &self,
        tool: &dyn Tool,
        question: PendingQuestion,
        arguments: &Value,
    ) -> Result<CallAnswer, Refusal> {
        let (answer, kept) = self.ask_with_trials(tool, question, arguments).await;
        let whole = |allowed| CallAnswer { allowed, kept: None, hunks: Vec::new() };
        Ok(match answer {
            Some(ApprovalResult::Allowed(binding)) => whole(Some(binding)),
            Some(ApprovalResult::Keep(binding)) if kept.is_some() => {
                CallAnswer { kept, ..whole(Some(binding)) }
            }
            Some(ApprovalResult::Hunks(binding, hunks)) => {
                CallAnswer { hunks, ..whole(Some(binding)) }
            }
            Some(ApprovalResult::Covered) => whole(None),
            Some(ApprovalResult::Denied { reason }) => return Err(denied(&reason, None)),
            Some(
                ApprovalResult::Answered(_) | ApprovalResult::Try(_) | ApprovalResult::Keep(_),
            )
            | None => return Err(denied("the permission prompt is unavailable", None)),
        })
    }

    /// Sends the request of a permitted call to the user, and waits for the answer.
    async fn ask_user(&self, tool: &dyn Tool, asked: CallUserRequest) -> UserAnswer {
        let CallUserRequest { request, action, question } = asked;
        let open = self.open_request(&action, Some(request));
        let asked =
            AskedCall { tool, action: &action, question: &question, trial: None, hunks: &[] };
        let answer = self.ask(&open, asked).await;
        open.guard.answered();
        match answer {
            Some(ApprovalResult::Answered(answer)) => answer,
            Some(ApprovalResult::Denied { reason }) => UserAnswer::Unavailable(reason),
            Some(
                ApprovalResult::Allowed(_)
                | ApprovalResult::Covered
                | ApprovalResult::Try(_)
                | ApprovalResult::Keep(_)
                | ApprovalResult::Hunks(..),
            )
            | None => UserAnswer::Unavailable("the permission prompt is unavailable".to_owned()),
        }
    }

    /// True if the call runs a command that cannot change a file, because its sandbox has no
    /// writable folder of the workspace.
    fn only_reads(&self, tool: &dyn Tool, permitted: &PermittedCall) -> bool {
        let Confinement { profile, writable_roots, .. } = permitted.confinement();
        tool.spec().side_effect == SideEffect::Process
            && self.services.tier == SandboxTier::Full
            && profile == "read-only"
            && writable_roots.is_empty()
    }

    /// Takes the checkpoint before the first effect of the run, and another one if it does not
    /// contain all files at and below `deleted`. Without it no effect begins.
    async fn checkpoint(&self, deleted: Vec<String>) -> Result<(), Refusal> {
        let Services { checkpoints, transcript, .. } = &*self.services;
        let taken = if deleted.is_empty() {
            checkpoints.ensure(&self.origin, transcript).await.map(|()| true)
        } else {
            checkpoints.ensure_covering(&deleted, &self.origin, transcript).await
        };
        let is_covered = taken.map_err(|reason| {
            let text = format!(
                "Not started: no checkpoint of the workspace can be taken before it: {reason}. \
                 Nothing was changed. Only the user can correct this."
            );
            refusal(ToolFailureClass::Failed, text)
        })?;
        if is_covered {
            return Ok(());
        }
        let text = "Not started: a file that it deletes has just changed, and no checkpoint can \
                    bring it back. Nothing was changed. Call it again; the user is asked then.";
        Err(refusal(ToolFailureClass::Failed, text.to_owned()))
    }

    fn intent(&self, effect: bool, permitted: &PermittedCall, coerced: Vec<String>) -> Event {
        Event::ToolStarted {
            call_id: self.call.id.clone(),
            name: self.call.name.clone(),
            summary: permitted.action().summary.clone(),
            digest: permitted.action().digest.clone(),
            effect,
            coerced,
        }
    }

    /// Records the intent. If the tool has side effects (`effect`), waits for disk space and until
    /// the record is synced.
    async fn intend(&self, effect: bool, intent: Event, summary: String) -> Result<(), Refusal> {
        let transcript = &self.services.transcript;
        if !effect {
            transcript.note(Some(&self.origin), intent);
            self.progress.intended.set(()).ok();
            return Ok(());
        }
        // An effect must be recorded as well, so it does not start without disk space.
        let recorded = match transcript.may_begin().await {
            Ok(()) => transcript.record(Some(&self.origin), intent, Durability::Synced).await,
            Err(unrecorded) => Err(unrecorded),
        };
        recorded.map_err(|unrecorded| {
            refusal(ToolFailureClass::Failed, format!("Not started: {unrecorded}"))
        })?;
        let started_ms = self.services.clock.wall_ms();
        self.progress.intended.set(()).ok();
        self.progress.begun.set(StartedCall { summary, started_ms }).ok();
        Ok(())
    }

    async fn perform(
        &self,
        tool: &dyn Tool,
        permitted: PermittedCall,
        answer: Option<UserAnswer>,
    ) -> (ToolOutput, Duration) {
        let start = self.services.clock.monotonic();
        let action = permitted.action().clone();
        let run = |context| tool.run(permitted, context);
        let mut output = self.drive(&action, answer, run).await;
        // For tools that do not cut their own output.
        cap_parts(&mut output.content, self.result_bytes_max());
        (output, self.services.clock.monotonic().saturating_sub(start))
    }

    /// Lets `run` work with a context, and handles its output and events meanwhile.
    pub(super) async fn drive<T>(
        &self,
        action: &Action,
        answer: Option<UserAnswer>,
        run: impl FnOnce(RunContext) -> PortFuture<T>,
    ) -> T {
        let (output_tx, mut output_rx) = mpsc::channel(OUTPUT_IN_FLIGHT);
        let (facts_tx, mut facts_rx) = mpsc::channel(OUTPUT_IN_FLIGHT);
        let Pipeline { services, origin, call, caller, .. } = self;
        let context = RunContext {
            call: self.context(),
            output: output_tx,
            facts: facts_tx,
            post_call: self.services.notices.post_call(&self.services.transcript, &self.origin),
            connections: connection_questions::asker(services, (origin, *caller), &call.id, action),
            output_bytes_max: self.services.limits.output_bytes_max.min(self.room_bytes),
            room_bytes: self.room_bytes,
            answer,
        };
        let mut run = run(context);
        let ended = loop {
            tokio::select! {
                Some(piece) = output_rx.recv() => self.watch(piece, &mut output_rx),
                Some(fact) = facts_rx.recv() => self.fact(fact).await,
                ended = &mut run => break ended,
            }
        };
        // Output that was sent before the end precedes the outcome. A sender that outlives its tool
        // is not waited for.
        drop(run);
        while let Ok(fact) = facts_rx.try_recv() {
            self.fact(fact).await;
        }
        if let Ok(piece) = output_rx.try_recv() {
            self.watch(piece, &mut output_rx);
        }
        ended
    }

    /// Maximum size of the result in bytes. A tool that has kept to its limit may have added notes,
    /// which are not cut off.
    fn result_bytes_max(&self) -> usize {
        self.services.limits.result_bytes_max.min(self.room_bytes.saturating_add(NOTES_BYTES))
    }

    fn watch(&self, piece: OutputDelta, more: &mut mpsc::Receiver<OutputDelta>) {
        let OutputDelta { mut text } = piece;
        for _ in 0..OUTPUT_IN_FLIGHT {
            let Ok(piece) = more.try_recv() else { break };
            text.push_str(&piece.text);
        }
        self.progress.print(&text);
        let event = Event::ToolOutputDelta { call_id: self.call.id.clone(), text };
        self.services.transcript.note(Some(&self.origin), event);
    }

    /// Records an event of the tool, after waiting for space in the outbox. If the journal cannot
    /// be written, the event is lost.
    async fn fact(&self, fact: Event) {
        if let Event::TodosUpdated { todos } = &fact {
            self.services.todos.set(&self.origin, todos);
        }
        if self.services.transcript.room().await.is_ok() {
            self.services.transcript.note(Some(&self.origin), fact);
        }
    }

    fn context(&self) -> CallContext {
        CallContext {
            session_id: self.services.session_id.clone(),
            call_id: self.call.id.clone(),
            agent: self.origin.agent.clone(),
            origin: Arc::clone(&self.origin),
            by_user: self.caller == Caller::User,
        }
    }
}

/// Paths that the call deletes or replaces because a checkpoint can bring them back, and not because
/// a person has allowed it.
fn deleted_unasked(permitted: &PermittedCall) -> Vec<String> {
    let unasked = permitted.action().deletions().filter(|_| !permitted.is_approved());
    unasked.flat_map(CommandDeletions::restorable).cloned().collect()
}

fn refusal(class: ToolFailureClass, text: String) -> Refusal {
    CallEnd::Refused { class, output: ToolOutput::error(text) }
}

fn invalid(error: &ToolError) -> Refusal {
    refusal(ToolFailureClass::Invalid, error.to_string())
}

fn denied(reason: &str, rule: Option<&str>) -> Refusal {
    refusal(ToolFailureClass::Denied, ToolFailureClass::denial(reason, rule))
}

fn blocked_by(why: &str) -> Refusal {
    refusal(ToolFailureClass::Denied, format!("Blocked: {why}"))
}
