//! Permission coordinator: the only place where a person is asked. It keeps the queue of permission
//! requests, and of questions and plans of the model, each of which is answered once.
//!
//! A request is recorded before it is shown, and the answer of a person is on disk before it takes
//! effect. The calling side creates the id of a request and repeats the request until it has an
//! answer. So after a crash of this actor, every open request returns under the same id, and
//! nothing is allowed in the meantime. The first answer counts; every later one gets an error.

mod binding;
mod grant_view;
mod hunks;
mod mode_view;
mod scopes;
mod user_requests;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use ractor::{Actor, ActorRef, RpcReplyPort};

use crate::conversation::{CallId, QuestionId};
use crate::event::{
    DecisionSource, Durability, EditHunk, Event, Grant, HunkAnswer, Origin, PermissionMode,
    PermissionTarget, SandboxTier, Scope, TargetType, TrialOffer, UserReply, UserRequest,
};
use crate::mailbox::{HandlerResult, OwnedTask, Report, StartResult, SupervisedRef, answer};
use crate::ports::{
    Action, AnswerSource, Caller, Clock, NetworkAccess, Operation, PermissionQuestion, Policy,
    Situation, ToolAnnotations, UserAnswer, Verdict,
};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::{Transcript, Unrecorded};

pub(crate) use binding::Binding;
pub(crate) use grant_view::{GrantView, ShownQuestion};
pub(crate) use mode_view::ModeView;

use grant_view::QuestionEnd;
use mode_view::ModeRequest;

/// Reason of a withdrawal: the call of the request has ended.
const GONE: &str = "the call that asked is gone";
/// Reason of a withdrawal: a grant or the permission mode allows the call.
const DECIDED: &str = "another answer or the permission mode covers it";
/// Reason of a withdrawal: the permission mode has changed what the call may do.
const OTHERWISE_CONFINED: &str = "the permission mode has changed what it may do";

/// Reason for which an answer has no effect: the request is between two questions.
const TRYING: &str = "the call is being tried; answer when the request returns with the result";

/// Arguments for starting the coordinator; the same for each restart.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transcript: Transcript,
    pub(crate) book: GrantView,
    pub(crate) mode: ModeView,
    /// Policy of the session, which knows the restrictions of modes on this machine.
    pub(crate) policy: Arc<dyn Policy>,
    /// Reference to the current incarnation of this actor, for messages to itself.
    pub(crate) line: SupervisedRef<Msg>,
    pub(crate) asking: AnswerSource,
    pub(crate) tier: SandboxTier,
    pub(crate) questions_max: usize,
    /// True if the main agent can start subagents.
    pub(crate) main_delegates: bool,
    pub(crate) fail: FailPoints,
}

/// Subject of a request in the queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestKind {
    /// The call itself, which has not started.
    Call,
    /// A connection of the running call's processes to this target.
    Connection(String),
    /// Questions or plan of the model; they need no permission.
    OfModel(UserRequest),
}

/// Permission request of a call that waits for the answer, or request of the model to the user.
pub(crate) struct ApprovalRequest {
    pub(crate) id: QuestionId,
    pub(crate) kind: RequestKind,
    pub(crate) call_id: CallId,
    pub(crate) origin: Arc<Origin>,
    pub(crate) caller: Caller,
    pub(crate) action: Action,
    pub(crate) annotations: ToolAnnotations,
    pub(crate) question: PermissionQuestion,
    /// Answer about a trial that is offered; `None` if none is.
    pub(crate) trial: Option<TrialOffer>,
    /// Hunks that can be answered one by one; empty if there are none.
    pub(crate) hunks: Vec<EditHunk>,
    /// Policy that judges the call. A subagent in an isolated workspace has a policy of its own,
    /// and its own `cwd`.
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) cwd: String,
    /// Weak reference to the token of the call's [`ApprovalGuard`]; it is dead when the call no
    /// longer waits for the answer.
    pub(crate) asker: Weak<()>,
    /// Timer of the answer, which the coordinator sets.
    pub(crate) timer: Option<OwnedTask>,
    pub(crate) reply: Report<ApprovalResult>,
}

impl ApprovalRequest {
    /// Questions or plan of the model. `None` if permission is requested.
    fn user_request(&self) -> Option<&UserRequest> {
        match &self.kind {
            RequestKind::OfModel(request) => Some(request),
            RequestKind::Call | RequestKind::Connection(_) => None,
        }
    }

    /// Binding of an answer to this request.
    fn binding(&self) -> Binding {
        Binding::of(&self.call_id, &self.action.digest, &self.cwd, &self.origin)
    }
}

/// Guard that a call holds while it waits for an answer. Dropping it withdraws the permission
/// request, unless `answered` was called.
pub(crate) struct ApprovalGuard {
    id: QuestionId,
    waiting: Option<Arc<()>>,
    permissions: SupervisedRef<Msg>,
}

impl ApprovalGuard {
    pub(crate) fn new(id: QuestionId, permissions: SupervisedRef<Msg>) -> ApprovalGuard {
        ApprovalGuard { id, waiting: Some(Arc::default()), permissions }
    }

    pub(crate) fn watch(&self) -> Weak<()> {
        self.waiting.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    pub(crate) fn answered(mut self) {
        self.waiting = None;
    }
}

impl Drop for ApprovalGuard {
    fn drop(&mut self) {
        // Removed first, announced second: a coordinator that starts in between sees the removal.
        if self.waiting.take().is_some() {
            self.permissions.tell(Msg::Withdraw(self.id.clone()));
        }
    }
}

/// Result of a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalResult {
    /// Allowed, for exactly the effect in the binding.
    Allowed(Binding),
    /// A grant or the permission mode decides about the call, or a part of it, by now. It must be
    /// judged again.
    Covered,
    Denied {
        reason: String,
    },
    /// The call runs in a trial first, and asks again. The attached front end that wants it; `None`
    /// for the front end that owns the session.
    Try(Option<String>),
    /// The changes of the trial are kept, for exactly the effect in the binding.
    Keep(Binding),
    /// The hunks with these answers are made, of exactly the effect in the binding.
    Hunks(Binding, Vec<HunkAnswer>),
    /// A request of the model has ended.
    Answered(UserAnswer),
}

/// Decision of a person about a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HumanDecision {
    /// The call is allowed; the scope says for how long and where the permission applies.
    Allow(Scope),
    /// The call is denied.
    Deny {
        /// Reason for the model; `None`: a default text.
        reason: Option<String>,
    },
    /// The call runs in a trial first. This does not answer the request, which returns under the
    /// same id with the result.
    Try,
    /// The changes of the trial are kept; the call does not run again.
    Keep,
    /// The call makes only chosen hunks of its change: one answer for each hunk of the request, in
    /// their order. If all answers are no, the call is denied.
    Hunks(Vec<HunkAnswer>),
    /// Reply to questions or a plan of the model.
    Reply(UserReply),
}

/// A change of the permission mode that has taken effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange {
    /// The mode from now on.
    pub mode: PermissionMode,
    /// True if the session had this mode before, so that nothing was recorded.
    pub is_same: bool,
    /// Restriction of the mode on this machine, in words; `None` if there is none.
    pub restriction: Option<String>,
}

/// Reason why the permission mode was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The change could not be recorded. A stricter mode applies nevertheless.
    #[error("the permission mode could not be recorded: {0}")]
    Unrecorded(String),
    /// The coordinator crashed before it replied.
    #[error("the change of the permission mode was lost in a crash; make it again")]
    Lost,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

/// Reason why an answer to a permission request had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No request with this id is known: this process never opened it, or it ended before the 1,024
    /// most recently ended ones.
    #[error("no open question has the id `{0}`")]
    NotPending(QuestionId),
    /// The request was already answered: by the front end that owns the session, by a grant, by the
    /// policy, or without a person.
    #[error("the question `{0}` has been answered already; the first answer counts")]
    Answered(QuestionId),
    /// The request was already answered by the named attached front end.
    #[error("the question `{0}` has been answered already by {1}; the first answer counts")]
    AnsweredBy(QuestionId, String),
    /// The request was withdrawn, because the call no longer waits for the answer.
    #[error("the question `{0}` was withdrawn; the answer is ignored")]
    Withdrawn(QuestionId),
    /// The request does not offer the scope of the answer.
    #[error("the question cannot be answered for the scope `{0:?}`")]
    ScopeNotOffered(Scope),
    /// The answer does not fit the request. The text names the place and the fix.
    #[error("the answer does not fit: {0}")]
    Invalid(String),
    /// The answer could not be recorded, so it has no effect.
    #[error("the answer could not be recorded, and does not count: {0}")]
    Unrecorded(String),
    /// The coordinator crashed before it replied. If the request is still open, it can be answered
    /// again.
    #[error("the answer was lost in a crash; answer again if the question is still open")]
    Lost,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

type AnswerReply = RpcReplyPort<Result<(), AnswerError>>;

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    Ask(Box<ApprovalRequest>),
    /// Answer of a person. The third field is the name of the attached front end that answers;
    /// `None` for the front end that owns the session.
    Answer(QuestionId, HumanDecision, Option<String>, AnswerReply),
    /// Change the permission mode for a person. The second field is the name of the attached front
    /// end; `None` for the front end that owns the session.
    SetMode(PermissionMode, Option<String>, RpcReplyPort<Result<ModeChange, ModeError>>),
    /// The time for the answer to a request of the model has passed.
    Expire(QuestionId),
    /// Withdraw the request: its call is gone.
    Withdraw(QuestionId),
    /// An answer or a change of the mode has taken effect, or could not be recorded. True if it may
    /// decide about other requests.
    Settled(bool),
    /// Report when all earlier answers are recorded and applied.
    Settle(Report<()>),
}

pub(crate) struct PermissionCoordinator;

pub(crate) struct State {
    args: Args,
    /// Requests that wait for a person, oldest first.
    open: VecDeque<ApprovalRequest>,
    /// Number of answers that are being recorded.
    settling: usize,
    /// Callers of [`Msg::Settle`].
    waiting: Vec<Report<()>>,
}

impl Actor for PermissionCoordinator {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> StartResult<State> {
        let state = State { args, open: VecDeque::new(), settling: 0, waiting: Vec::new() };
        // Waiting calls ask again; the other requests would stay open on the screen.
        for (id, shown) in state.args.book.end_orphans() {
            state.withdrawn(&id, &shown, GONE);
        }
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.args.fail.hit("PermissionCoordinator", (&msg).into());
        match msg {
            Msg::Ask(ask) => state.ask(*ask),
            Msg::Answer(id, decision, by, told) => state.answer(&id, decision, by, told),
            Msg::SetMode(mode, by, told) => state.set_mode(mode, by, told),
            Msg::Expire(id) => state.expire(&id),
            Msg::Withdraw(id) => state.withdraw(&id),
            Msg::Settled(granted) => {
                state.settling = state.settling.saturating_sub(1);
                if granted {
                    state.judge_queue_again();
                }
            }
            Msg::Settle(report) => state.waiting.push(report),
        }
        if state.settling == 0 {
            state.waiting.drain(..).for_each(|report| report.send(()));
        }
        Ok(())
    }
}

impl State {
    fn ask(&mut self, mut ask: ApprovalRequest) {
        let Some(verdict) = self.judge_again(&ask) else { return self.open(ask) };
        // A grant was given while the question was on its way.
        match verdict {
            Verdict::Allow(_) => self.covered(ask, DECIDED),
            Verdict::Deny { reason, .. } if self.args.book.is_shown(&ask.id) => {
                self.deny(ask, DecisionSource::Policy, reason);
            }
            Verdict::Deny { reason, .. } => ask.reply.send(ApprovalResult::Denied { reason }),
            Verdict::Ask(question) => {
                ask.question = question;
                self.open(ask);
            }
        }
    }

    fn open(&mut self, mut ask: ApprovalRequest) {
        ask.question.scopes = scopes::offered(&ask, &self.args);
        self.args.transcript.note(Some(&ask.origin), requested(&ask, &self.args.tier));
        let shown = ShownQuestion {
            origin: Arc::clone(&ask.origin),
            summary: ask.action.summary.clone(),
            target: target(&ask),
            asker: ask.asker.clone(),
        };
        self.args.book.show(ask.id.clone(), shown);
        match self.args.asking {
            AnswerSource::Yes if ask.question.yes_covers => {
                self.args.book.end(&ask.id, QuestionEnd::Answered(None));
                let event = granted(&ask, DecisionSource::Yes, None, Scope::Once, None);
                // Nothing is done before its intent is on the disk, and this with it.
                self.args.transcript.note(Some(&ask.origin), event);
                let binding = ask.binding();
                ask.reply.send(ApprovalResult::Allowed(binding));
            }
            AnswerSource::Human if self.open.len() < self.args.questions_max => {
                ask.timer = self.timer(&ask);
                self.open.push_back(ask);
            }
            AnswerSource::Human => {
                self.deny(ask, DecisionSource::Nobody, "too many questions are open".to_owned());
            }
            AnswerSource::Yes | AnswerSource::Nobody if ask.user_request().is_some() => {
                self.deny(ask, DecisionSource::Nobody, user_requests::NOBODY.to_owned());
            }
            AnswerSource::Yes | AnswerSource::Nobody => {
                self.args.book.count_unanswered(ask.question.yes_covers);
                let reason = format!("{}; no user can be asked", ask.question.reason);
                self.deny(ask, DecisionSource::Nobody, reason);
            }
        }
    }

    fn answer(
        &mut self,
        id: &QuestionId,
        decision: HumanDecision,
        by: Option<String>,
        told: AnswerReply,
    ) {
        let ask = match self.take(id, &decision, by.as_ref()) {
            Ok(ask) => ask,
            Err(error) => return answer(told, Err(error)),
        };
        match hunks::plain(decision) {
            HumanDecision::Try => {
                ask.reply.send(ApprovalResult::Try(by));
                answer(told, Ok(()));
            }
            HumanDecision::Keep => {
                let event = granted(&ask, DecisionSource::User, by.clone(), Scope::Once, None);
                let kept = ApprovalResult::Keep(ask.binding());
                self.apply_answer(ask, kept_trial(event), kept, None, (by, told));
            }
            HumanDecision::Hunks(answers) => {
                let event = hunks::chosen(&ask, by.clone(), &answers);
                let chosen = ApprovalResult::Hunks(ask.binding(), answers);
                self.apply_answer(ask, event, chosen, None, (by, told));
            }
            HumanDecision::Allow(scope) => {
                let grant = scopes::grant(&ask, scope);
                let event = granted(&ask, DecisionSource::User, by.clone(), scope, grant.clone());
                let allowed = if grants_part(&ask, grant.as_ref()) {
                    ApprovalResult::Covered
                } else {
                    ApprovalResult::Allowed(ask.binding())
                };
                self.apply_answer(ask, event, allowed, grant, (by, told));
            }
            HumanDecision::Reply(reply) => {
                let event = user_requests::replied(&ask, by.clone(), reply.clone());
                let answered = ApprovalResult::Answered(UserAnswer::Replied(reply));
                self.apply_answer(ask, event, answered, None, (by, told));
            }
            HumanDecision::Deny { reason } if ask.user_request().is_some() => {
                let why = reason.as_deref().unwrap_or(user_requests::REFUSED);
                let event = denied(&ask, DecisionSource::User, by.clone(), why);
                let refused = ApprovalResult::Answered(UserAnswer::Refused(reason));
                self.apply_answer(ask, event, refused, None, (by, told));
            }
            HumanDecision::Deny { reason } => {
                let reason = reason.unwrap_or_else(|| "the user said no".to_owned());
                let event = denied(&ask, DecisionSource::User, by.clone(), &reason);
                let denied = ApprovalResult::Denied { reason };
                self.apply_answer(ask, event, denied, None, (by, told));
            }
        }
    }

    /// Removes the request from the queue for the answer `decision`, and marks it as answered, unless
    /// it returns after a trial. `Err` says why the answer has no effect.
    fn take(
        &mut self,
        id: &QuestionId,
        decision: &HumanDecision,
        by: Option<&String>,
    ) -> Result<ApprovalRequest, AnswerError> {
        let Some(at) = self.open.iter().position(|ask| ask.id == *id) else {
            return Err(self.too_late(id));
        };
        if self.open[at].asker.strong_count() == 0 {
            self.withdraw(id);
            return Err(self.too_late(id));
        }
        self.open[at].accepts(decision)?;
        if *decision != HumanDecision::Try {
            self.args.book.end(id, QuestionEnd::Answered(by.cloned()));
        }
        self.open.remove(at).ok_or_else(|| AnswerError::NotPending(id.clone()))
    }

    /// The error for an answer to a request that is not open any more. For the first answer to a
    /// withdrawn request, also records a warning.
    fn too_late(&self, id: &QuestionId) -> AnswerError {
        match self.args.book.ended(id) {
            None if self.args.book.is_shown(id) => AnswerError::Invalid(TRYING.to_owned()),
            None => AnswerError::NotPending(id.clone()),
            Some(QuestionEnd::Answered(by)) => {
                tracing::info!(question = %id, "a second answer is ignored");
                match by {
                    Some(by) => AnswerError::AnsweredBy(id.clone(), by),
                    None => AnswerError::Answered(id.clone()),
                }
            }
            Some(how @ (QuestionEnd::Withdrawn | QuestionEnd::WithdrawnAndTold)) => {
                if how == QuestionEnd::Withdrawn {
                    let message = format!(
                        "an answer to the question `{id}` came after it was withdrawn, and was \
                         ignored"
                    );
                    self.args.transcript.note(None, Event::Warning { message });
                }
                AnswerError::Withdrawn(id.clone())
            }
        }
    }

    /// Applies an answer once it is on disk: keeps the grant, changes the mode for an accepted plan,
    /// and replies to the call. If the answer cannot be recorded, denies the call. This continues if the actor crashes, because the record
    /// is already in the outbox.
    fn apply_answer(
        &mut self,
        ask: ApprovalRequest,
        event: Event,
        verdict: ApprovalResult,
        grant: Option<Grant>,
        (by, told): (Option<String>, AnswerReply),
    ) {
        self.settling += 1;
        let recorded = self.args.transcript.record(Some(&ask.origin), event, Durability::Synced);
        let change = ask.accepted_mode(&verdict).and_then(|mode| self.record_mode(mode, by));
        let (book, line) = (self.args.book.clone(), self.args.line.clone());
        tokio::spawn(async move {
            let granted = grant.is_some() || change.is_some();
            let mut recorded = recorded.await;
            if let Some(change) = change {
                recorded = recorded.and(change.apply().await);
            }
            let settled = match recorded {
                Ok(()) => {
                    if let Some(grant) = grant {
                        book.keep(grant, &ask.origin).await;
                    }
                    ask.reply.send(verdict);
                    Ok(())
                }
                Err(unrecorded) => {
                    let reason = format!("the answer could not be recorded: {unrecorded}");
                    ask.reply.send(ApprovalResult::Denied { reason });
                    Err(AnswerError::Unrecorded(unrecorded.to_string()))
                }
            };
            // Update the queue first, so that the caller sees the effect when its call returns.
            line.tell(Msg::Settled(granted && settled.is_ok()));
            answer(told, settled);
        });
    }

    /// Changes the permission mode once the change is on disk; a stricter mode applies at once. The
    /// open requests are then judged again.
    fn set_mode(
        &mut self,
        to: PermissionMode,
        by: Option<String>,
        told: RpcReplyPort<Result<ModeChange, ModeError>>,
    ) {
        let restriction = self.args.policy.restriction(to, &self.args.tier);
        let change = ModeChange { mode: to, is_same: false, restriction };
        let Some(recording) = self.record_mode(to, by) else {
            return answer(told, Ok(ModeChange { is_same: true, ..change }));
        };
        self.settling += 1;
        let line = self.args.line.clone();
        tokio::spawn(async move {
            let applied = recording.apply().await;
            let result = applied
                .map(|()| change)
                .map_err(|unrecorded| ModeError::Unrecorded(unrecorded.to_string()));
            line.tell(Msg::Settled(true));
            answer(told, result);
        });
    }

    /// Submits the record of a change to the mode `to`. `None` if that is the mode already.
    fn record_mode(&self, to: PermissionMode, by: Option<String>) -> Option<ModeRecording> {
        let request = self.args.mode.request(to)?;
        let event = Event::PermissionModeChanged {
            mode: to,
            from: request.from,
            restriction: self.args.policy.restriction(to, &self.args.tier),
            changed_by: by,
        };
        let recorded = self.args.transcript.record(None, event, Durability::Synced);
        Some(ModeRecording { mode: self.args.mode.clone(), request, recorded: Box::pin(recorded) })
    }

    fn deny(&self, ask: ApprovalRequest, by: DecisionSource, reason: String) {
        self.args.book.end(&ask.id, QuestionEnd::Answered(None));
        self.args.transcript.note(Some(&ask.origin), denied(&ask, by, None, &reason));
        ask.reply.send(ApprovalResult::Denied { reason });
    }

    /// Ends a request that needs no answer of its own any more, and records the withdrawal with the
    /// reason for observers. The call is judged again.
    fn covered(&self, ask: ApprovalRequest, reason: &str) {
        if let Some(shown) = self.args.book.end(&ask.id, QuestionEnd::Answered(None)) {
            self.withdrawn(&ask.id, &shown, reason);
        }
        ask.reply.send(ApprovalResult::Covered);
    }

    /// Judges all open requests again after a new grant or a change of the mode, and ends those
    /// that it decides. A request whose call would run in another confinement by now ends as well:
    /// an answer is about what was asked.
    fn judge_queue_again(&mut self) {
        for ask in std::mem::take(&mut self.open) {
            match self.judge_again(&ask) {
                Some(Verdict::Allow(_)) => self.covered(ask, DECIDED),
                Some(Verdict::Ask(question))
                    if question.confinement != ask.question.confinement =>
                {
                    self.covered(ask, OTHERWISE_CONFINED);
                }
                Some(Verdict::Deny { reason, .. }) => {
                    self.deny(ask, DecisionSource::Policy, reason);
                }
                Some(Verdict::Ask(_)) | None => self.open.push_back(ask),
            }
        }
    }

    /// Decision of the policy with the current grants and mode. `None` if there are no grants and
    /// the mode never changed, so that the decision cannot have changed.
    fn judge_again(&self, ask: &ApprovalRequest) -> Option<Verdict> {
        if ask.user_request().is_some() {
            return user_requests::judge(self.args.mode.current());
        }
        let grants = self.args.book.grants(ask.caller.agent(&ask.origin));
        let situation = Situation {
            tool: &ask.annotations,
            caller: ask.caller,
            agent: &ask.origin.agent_path,
            grants: &grants,
            asking: self.args.asking,
            mode: self.args.mode.current(),
            now_ms: self.args.clock.wall_ms(),
            uptime: self.args.clock.monotonic(),
            tier: &self.args.tier,
        };
        let may_differ = !grants.is_empty() || self.args.mode.has_changed();
        may_differ.then(|| ask.policy.judge(&ask.action, &situation))
    }

    fn withdraw(&mut self, id: &QuestionId) {
        self.open.retain(|ask| ask.id != *id);
        if let Some(shown) = self.args.book.end(id, QuestionEnd::Withdrawn) {
            self.withdrawn(id, &shown, GONE);
        }
    }

    fn withdrawn(&self, id: &QuestionId, shown: &ShownQuestion, reason: &str) {
        let (request_id, reason) = (id.clone(), reason.to_owned());
        let target = shown.target.clone();
        let event = Event::PermissionWithdrawn { request_id, reason, target };
        self.args.transcript.note(Some(&shown.origin), event);
    }
}

/// Change of the mode whose record was submitted.
struct ModeRecording {
    mode: ModeView,
    request: ModeRequest,
    recorded: Pin<Box<dyn Future<Output = Result<(), Unrecorded>> + Send>>,
}

impl ModeRecording {
    /// Waits for the record, and changes the mode. If it cannot be recorded, only a stricter mode
    /// applies.
    async fn apply(self) -> Result<(), Unrecorded> {
        let recorded = self.recorded.await;
        match &recorded {
            Ok(()) => self.mode.recorded(self.request),
            Err(_) => self.mode.failed(self.request),
        }
        recorded
    }
}

/// The target of a connection, or the agent that the call would start, otherwise its tool.
fn target(ask: &ApprovalRequest) -> PermissionTarget {
    if let RequestKind::Connection(target) = &ask.kind {
        let (target_type, target_name) = (TargetType::Connection, target.clone());
        return PermissionTarget { target_type, target_name };
    }
    let agent = ask.action.operations.iter().find_map(|operation| match operation {
        Operation::Invoke { agent, .. } => Some(agent.clone()),
        Operation::Read { .. } | Operation::Write { .. } | Operation::Execute { .. } => None,
    });
    match agent {
        Some(target_name) => PermissionTarget { target_type: TargetType::Agent, target_name },
        None => {
            PermissionTarget { target_type: TargetType::Tool, target_name: ask.action.tool.clone() }
        }
    }
}

/// Reason of the request. That of a command says whether the network is open for it.
fn reason_of(ask: &ApprovalRequest, tier: &SandboxTier) -> String {
    let reason = ask.question.full_reason();
    let is_command =
        ask.action.operations.iter().any(|each| matches!(each, Operation::Execute { .. }));
    // Without a sandbox nothing is promised, which other messages say.
    let is_confined = matches!(tier, SandboxTier::Full | SandboxTier::Reduced)
        && ask.question.confinement.profile != "off";
    match (is_command && is_confined, ask.question.confinement.network) {
        (true, NetworkAccess::Host) => format!("{reason}; the network is open for it"),
        (true, NetworkAccess::Domains) => {
            format!("{reason}; its network is decided by domain")
        }
        (true, NetworkAccess::Denied) => format!("{reason}; it has no network"),
        (false, _) => reason,
    }
}

/// True if the answer that creates `grant` allows only a part of the call.
fn grants_part(ask: &ApprovalRequest, grant: Option<&Grant>) -> bool {
    ask.question.grants_part && grant.is_some()
}

fn requested(ask: &ApprovalRequest, tier: &SandboxTier) -> Event {
    let is_wider = ask.question.scopes.iter().any(|scope| *scope > Scope::Once);
    let grant = ask.question.grant.as_ref().filter(|_| is_wider);
    Event::PermissionRequested {
        request_id: ask.id.clone(),
        call_id: ask.call_id.clone(),
        tool: ask.action.tool.clone(),
        target: target(ask),
        summary: ask.action.summary.clone(),
        detail: ask.action.detail.clone(),
        reason: reason_of(ask, tier),
        scopes: ask.question.scopes.clone(),
        user_request: ask.user_request().cloned().map(Box::new),
        trial: ask.trial.clone(),
        grant: grant.cloned().map(Box::new),
        grants_part: grants_part(ask, grant),
        grant_text: grant.map_or_else(String::new, |_| ask.question.grant_text.to_string()),
        hunks: ask.hunks.clone(),
        digest: ask.action.digest.clone(),
        cwd: ask.cwd.clone(),
        binding: ask.binding().as_str().to_owned(),
    }
}

fn granted(
    ask: &ApprovalRequest,
    by: DecisionSource,
    answered_by: Option<String>,
    scope: Scope,
    grant: Option<Grant>,
) -> Event {
    Event::PermissionGranted {
        request_id: ask.id.clone(),
        by,
        scope,
        grants_part: grants_part(ask, grant.as_ref()),
        keeps_trial: false,
        hunks: Vec::new(),
        grant,
        reply: None,
        target: target(ask),
        binding: ask.binding().as_str().to_owned(),
        answered_by,
    }
}

/// Marks a `permission.granted`: the changes of the trial are kept.
fn kept_trial(mut event: Event) -> Event {
    if let Event::PermissionGranted { keeps_trial, .. } = &mut event {
        *keeps_trial = true;
    }
    event
}

fn denied(
    ask: &ApprovalRequest,
    by: DecisionSource,
    answered_by: Option<String>,
    reason: &str,
) -> Event {
    Event::PermissionDenied {
        request_id: ask.id.clone(),
        by,
        reason: reason.to_owned(),
        target: target(ask),
        is_user_request: ask.user_request().is_some(),
        rule: ask.question.rule.clone().map(Box::new),
        answered_by,
    }
}
