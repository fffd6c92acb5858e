//! The only place where a human is asked: a queue of questions, each answered once.
//!
//! The asking call mints the question's id and keeps asking until it has an answer. So when this
//! actor crashes, every open question comes back under the same id, and nothing was allowed
//! meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::watch;

use crate::conversation::{CallId, QuestionId};
use crate::event::{Event, Grant, Origin, Scope};
use crate::mailbox::{Handled, Line, Report, Started, answer};
use crate::ports::{Action, Asking, Clock, Policy, Question, Situation, Verdict};
use crate::testing_seam::FailPoints;
use crate::transcript_writer::Transcript;

/// Why a question is withdrawn whose asker is gone.
const GONE: &str = "the call that asked is gone";

/// What every incarnation of the coordinator is started with.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transcript: Transcript,
    pub(crate) book: GrantBook,
    pub(crate) asking: Asking,
    pub(crate) tier: String,
    pub(crate) questions_max: usize,
    pub(crate) fail: FailPoints,
}

/// What the user has allowed in this session. Read by every call; written here alone.
#[derive(Clone)]
pub(crate) struct GrantBook {
    grants: Arc<watch::Sender<Arc<[Grant]>>>,
    unanswered: Arc<AtomicU32>,
    /// Questions that observers see as open, and whether anybody still waits for the answer. Only
    /// the coordinator uses it; it is here so that a crash leaves no question open for ever.
    shown: Arc<Mutex<BTreeMap<QuestionId, Shown>>>,
}

struct Shown {
    origin: Arc<Origin>,
    asker: Weak<()>,
}

impl GrantBook {
    pub(crate) fn new(grants: Vec<Grant>) -> GrantBook {
        let grants = Arc::new(watch::Sender::new(grants.into()));
        GrantBook { grants, unanswered: Arc::default(), shown: Arc::default() }
    }

    pub(crate) fn grants(&self) -> Arc<[Grant]> {
        Arc::clone(&self.grants.borrow())
    }

    /// Questions that nobody could be asked.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }

    fn shown(&self) -> MutexGuard<'_, BTreeMap<QuestionId, Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody will be asked any more: what is open in front of the user is withdrawn.
    pub(crate) fn withdraw_all(&self, transcript: &Transcript) {
        let shown = std::mem::take(&mut *self.shown());
        for (request_id, Shown { origin, .. }) in shown {
            let reason = "the part that asks the user has stopped".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason };
            transcript.note(Some(&origin), event);
        }
    }

    fn add(&self, grant: Grant) {
        self.grants.send_modify(|grants| {
            if !grants.contains(&grant) {
                *grants = grants.iter().cloned().chain([grant]).collect();
            }
        });
    }
}

/// A call that wants to know.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: QuestionId,
    pub(crate) call_id: CallId,
    pub(crate) origin: Arc<Origin>,
    pub(crate) action: Action,
    pub(crate) question: Question,
    /// Gone when nobody waits for the answer any more.
    pub(crate) asker: Weak<()>,
    pub(crate) reply: Report<Answer>,
}

/// Held by a call while it asks. However the call dies, its question is withdrawn.
pub(crate) struct Asker {
    id: QuestionId,
    waiting: Option<Arc<()>>,
    permissions: Line<Msg>,
}

impl Asker {
    pub(crate) fn new(id: QuestionId, permissions: Line<Msg>) -> Asker {
        Asker { id, waiting: Some(Arc::default()), permissions }
    }

    pub(crate) fn watch(&self) -> Weak<()> {
        self.waiting.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    pub(crate) fn answered(mut self) {
        self.waiting = None;
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // Gone first, told second: a coordinator that starts in between sees that it is gone.
        if self.waiting.take().is_some() {
            self.permissions.tell(Msg::Withdraw(self.id.clone()));
        }
    }
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Denied { reason: String },
}

/// A human's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Run it, and what the scope covers.
    Allow(Scope),
    /// Do not run it.
    Deny {
        /// For the model, if the human says why.
        reason: Option<String>,
    },
}

/// Why an answer had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Answered already, withdrawn, or never asked.
    #[error("no open question has the id `{0}`")]
    NotPending(QuestionId),
    /// The question does not offer that scope.
    #[error("the question cannot be answered for the scope `{0:?}`")]
    ScopeNotOffered(Scope),
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

pub(crate) enum Msg {
    Ask(Box<Ask>),
    Answer(QuestionId, Decision, RpcReplyPort<Result<(), AnswerError>>),
    /// The call that asked is gone.
    Withdraw(QuestionId),
    /// Report when everything that came before this is recorded.
    Settle(Report<()>),
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Ask(_) => "Ask",
            Msg::Answer(..) => "Answer",
            Msg::Withdraw(_) => "Withdraw",
            Msg::Settle(_) => "Settle",
        }
    }
}

pub(crate) struct PermissionCoordinator {
    args: Args,
}

#[derive(Default)]
pub(crate) struct State {
    /// Oldest first.
    open: VecDeque<Ask>,
}

impl PermissionCoordinator {
    pub(crate) fn new(args: Args) -> PermissionCoordinator {
        PermissionCoordinator { args }
    }
}

impl Actor for PermissionCoordinator {
    type Msg = Msg;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Msg>, (): ()) -> Started<State> {
        // Whoever still waits asks again; the rest would stay open in front of the user.
        let gone = |_: &QuestionId, shown: &mut Shown| shown.asker.strong_count() == 0;
        let orphans: Vec<_> = self.args.book.shown().extract_if(.., gone).collect();
        for (id, Shown { origin, .. }) in orphans {
            self.withdrawn(&id, &origin, GONE);
        }
        Ok(State::default())
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> Handled {
        self.args.fail.hit("PermissionCoordinator", msg.kind());
        match msg {
            Msg::Ask(ask) => self.ask(*ask, state),
            Msg::Answer(id, decision, reply) => answer(reply, self.answer(&id, decision, state)),
            Msg::Withdraw(id) => self.withdraw(&id, state),
            Msg::Settle(report) => report.send(()),
        }
        Ok(())
    }
}

impl PermissionCoordinator {
    fn ask(&self, ask: Ask, state: &mut State) {
        self.args.transcript.note(Some(&ask.origin), requested(&ask));
        match self.args.asking {
            Asking::Yes if ask.question.yes_covers => self.allow(ask, Scope::Once, "--yes"),
            Asking::Human if state.open.len() < self.args.questions_max => {
                let shown = Shown { origin: Arc::clone(&ask.origin), asker: ask.asker.clone() };
                self.args.book.shown().insert(ask.id.clone(), shown);
                state.open.push_back(ask);
            }
            Asking::Human => self.deny(ask, "nobody", "too many questions are open".to_owned()),
            Asking::Yes | Asking::Nobody => {
                self.args.book.unanswered.fetch_add(1, Ordering::Relaxed);
                let reason = format!("{}; nobody can be asked", ask.question.reason);
                self.deny(ask, "nobody", reason);
            }
        }
    }

    fn answer(
        &self,
        id: &QuestionId,
        decision: Decision,
        state: &mut State,
    ) -> Result<(), AnswerError> {
        let at = state.open.iter().position(|ask| ask.id == *id);
        let at = at.ok_or_else(|| AnswerError::NotPending(id.clone()))?;
        if let Decision::Allow(scope) = decision
            && !state.open[at].question.scopes.contains(&scope)
        {
            return Err(AnswerError::ScopeNotOffered(scope));
        }
        let Some(ask) = state.open.remove(at) else { return Ok(()) };
        match decision {
            Decision::Allow(scope) => {
                self.allow(ask, scope, "user");
                if scope > Scope::Once {
                    self.judge_queue_again(state);
                }
            }
            Decision::Deny { reason } => {
                let reason = reason.unwrap_or_else(|| "the user said no".to_owned());
                self.deny(ask, "user", reason);
            }
        }
        Ok(())
    }

    fn allow(&self, ask: Ask, scope: Scope, by: &str) {
        self.args.book.shown().remove(&ask.id);
        let grant = ask.question.grant.clone().filter(|_| scope > Scope::Once);
        let grant = grant.map(|grant| Grant { scope, ..grant });
        let event = Event::PermissionGranted {
            request_id: ask.id.clone(),
            by: by.to_owned(),
            scope,
            grant: grant.clone(),
        };
        self.args.transcript.note(Some(&ask.origin), event);
        if let Some(grant) = grant {
            self.args.book.add(grant);
        }
        ask.reply.send(Answer::Allowed);
    }

    fn deny(&self, ask: Ask, by: &str, reason: String) {
        self.args.book.shown().remove(&ask.id);
        let event = Event::PermissionDenied {
            request_id: ask.id.clone(),
            by: by.to_owned(),
            reason: reason.clone(),
            rule: ask.question.rule.clone(),
        };
        self.args.transcript.note(Some(&ask.origin), event);
        ask.reply.send(Answer::Denied { reason });
    }

    /// A new grant may answer questions that are already open.
    fn judge_queue_again(&self, state: &mut State) {
        let grants = self.args.book.grants();
        for ask in std::mem::take(&mut state.open) {
            let situation = Situation {
                agent: &ask.origin.agent,
                grants: &grants,
                asking: self.args.asking,
                now_ms: self.args.clock.wall_ms(),
                uptime: self.args.clock.monotonic(),
                tier: &self.args.tier,
            };
            match self.args.policy.judge(&ask.action, &situation) {
                Verdict::Allow(_) => {
                    self.args.book.shown().remove(&ask.id);
                    self.withdrawn(&ask.id, &ask.origin, "another answer covers it");
                    ask.reply.send(Answer::Allowed);
                }
                Verdict::Deny { reason, .. } => self.deny(ask, "user", reason),
                Verdict::Ask(_) => state.open.push_back(ask),
            }
        }
    }

    fn withdraw(&self, id: &QuestionId, state: &mut State) {
        state.open.retain(|ask| ask.id != *id);
        let shown = self.args.book.shown().remove(id);
        if let Some(Shown { origin, .. }) = shown {
            self.withdrawn(id, &origin, GONE);
        }
    }

    fn withdrawn(&self, id: &QuestionId, origin: &Arc<Origin>, reason: &str) {
        let (request_id, reason) = (id.clone(), reason.to_owned());
        let event = Event::PermissionWithdrawn { request_id, reason };
        self.args.transcript.note(Some(origin), event);
    }
}

fn requested(ask: &Ask) -> Event {
    Event::PermissionRequested {
        request_id: ask.id.clone(),
        call_id: ask.call_id.clone(),
        tool: ask.action.tool.clone(),
        summary: ask.action.summary.clone(),
        detail: ask.action.detail.clone(),
        reason: ask.question.reason.clone(),
        scopes: ask.question.scopes.clone(),
        digest: ask.action.digest.clone(),
    }
}
