//! State of permissions that survives crashes of the coordinator: grants, requests that observers
//! see as open, and the ends of recent requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::conversation::QuestionId;
use crate::event::{Event, Grant, Origin, PermissionTarget, Scope};
use crate::guarded::Guarded;
use crate::ports::{Clock, GrantStore, GrantTime};
use crate::transcript_writer::Transcript;

/// Maximum number of ended requests that are remembered, so that a late answer gets a specific
/// error.
const ENDED_MAX: usize = 1024;

/// Grants of the user, and the state of permission requests. Calls read the grants; only the
/// coordinator adds grants.
#[derive(Clone)]
pub(crate) struct GrantView {
    /// Grants with the scope of the session or of one of its agents.
    session: Arc<watch::Sender<Arc<[Grant]>>>,
    /// Store of grants that outlive the session.
    store: Arc<dyn GrantStore>,
    clock: Arc<dyn Clock>,
    transcript: Transcript,
    questions: Arc<Guarded<OpenQuestions>>,
}

#[derive(Default)]
struct OpenQuestions {
    /// Requests that observers see as open.
    shown: BTreeMap<QuestionId, ShownQuestion>,
    /// Requests that have ended, oldest first.
    ended: VecDeque<(QuestionId, QuestionEnd)>,
    unanswered: u32,
    /// Number of the unanswered requests that `--yes` would not cover.
    not_by_yes: u32,
}

pub(crate) struct ShownQuestion {
    pub(crate) origin: Arc<Origin>,
    /// One-line description of the effect.
    pub(crate) summary: String,
    pub(crate) target: PermissionTarget,
    pub(crate) asker: Weak<()>,
}

/// The way in which a permission request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionEnd {
    /// Answered, by the named attached front end; `None`: by the front end that owns the session,
    /// by a grant, or without a person.
    Answered(Option<String>),
    Withdrawn,
    /// Withdrawn, and a late answer has already been reported.
    WithdrawnAndTold,
}

impl GrantView {
    pub(crate) fn new(
        grants: Vec<Grant>,
        store: Arc<dyn GrantStore>,
        clock: Arc<dyn Clock>,
        transcript: Transcript,
    ) -> GrantView {
        let session = Arc::new(watch::Sender::new(grants.into()));
        GrantView { session, store, clock, transcript, questions: Arc::default() }
    }

    /// All currently valid grants, of the session and of the store, that count for calls of `agent`;
    /// `None` stands for calls of the user. Warns the user if the store raises an alarm.
    pub(crate) fn grants(&self, agent: Option<&Origin>) -> Arc<[Grant]> {
        let standing = self.store.active_grants(self.now());
        if let Some(message) = standing.alarm {
            self.transcript.note(None, Event::Warning { message });
        }
        let session = Arc::clone(&self.session.borrow());
        let all = match (session.is_empty(), standing.grants.is_empty()) {
            (_, true) => session,
            (true, false) => standing.grants,
            (false, false) => session.iter().chain(&*standing.grants).cloned().collect(),
        };
        if all.iter().all(|grant| grant.counts_for(agent)) {
            return all;
        }
        all.iter().filter(|grant| grant.counts_for(agent)).cloned().collect()
    }

    /// The widest scope that a permission request may offer.
    pub(crate) fn widest_scope(&self) -> Scope {
        self.store.widest_scope()
    }

    /// Adds a grant, and returns when it is stored if it outlives the session. If it cannot be
    /// stored, it becomes a grant of the session, and the user is warned.
    pub(crate) async fn keep(&self, grant: Grant, origin: &Arc<Origin>) {
        if grant.scope > Scope::Session {
            match self.store.keep(grant.clone(), self.now()).await {
                Ok(()) => return,
                Err(error) => {
                    let message =
                        format!("the permission is not kept and ends with this session: {error}");
                    self.transcript.note(Some(origin), Event::Warning { message });
                }
            }
        }
        self.session.send_modify(|grants| {
            let grant = Grant { scope: grant.scope.min(Scope::Session), ..grant };
            if !grants.contains(&grant) {
                *grants = grants.iter().cloned().chain([grant]).collect();
            }
        });
    }

    /// Number of requests in this process that were denied because no person could be asked, and
    /// how many of them `--yes` does not cover.
    pub(crate) fn unanswered(&self) -> (u32, u32) {
        let questions = self.questions.lock();
        (questions.unanswered, questions.not_by_yes)
    }

    pub(crate) fn count_unanswered(&self, yes_covers: bool) {
        let mut questions = self.questions.lock();
        questions.unanswered += 1;
        questions.not_by_yes += u32::from(!yes_covers);
    }

    pub(crate) fn show(&self, id: QuestionId, shown: ShownQuestion) {
        self.questions.lock().shown.insert(id, shown);
    }

    /// Open permission requests of subagents below `origin`, one line each.
    pub(crate) fn open_below(&self, origin: &Origin) -> Vec<String> {
        let path = format!("{}/", origin.agent_path);
        let below = |shown: &&ShownQuestion| match &origin.parent_invocation_id {
            None => shown.origin.parent_invocation_id.is_some(),
            Some(_) => shown.origin.agent_path.starts_with(&path),
        };
        let line = |ShownQuestion { origin, summary, .. }: &ShownQuestion| {
            format!("{} waits for the user to answer: {summary}", origin.agent_path)
        };
        self.questions.lock().shown.values().filter(below).map(line).collect()
    }

    /// True if observers see the request as open.
    pub(crate) fn is_shown(&self, id: &QuestionId) -> bool {
        self.questions.lock().shown.contains_key(id)
    }

    /// True if this process has shown the request to observers, and the request is open or among
    /// the last 1,024 that ended. Then this process also records its end.
    pub(crate) fn has_shown(&self, id: &QuestionId) -> bool {
        let questions = self.questions.lock();
        questions.shown.contains_key(id) || questions.ended.iter().any(|(ended, _)| ended == id)
    }

    /// Ends a request. Returns its description, or `None` if it was not open.
    pub(crate) fn end(&self, id: &QuestionId, how: QuestionEnd) -> Option<ShownQuestion> {
        let mut questions = self.questions.lock();
        let shown = questions.shown.remove(id)?;
        questions.end(id.clone(), how);
        Some(shown)
    }

    /// The way in which a recent request ended; `None` if unknown. A withdrawal becomes
    /// `WithdrawnAndTold` for later calls.
    pub(crate) fn ended(&self, id: &QuestionId) -> Option<QuestionEnd> {
        let mut questions = self.questions.lock();
        let (_, how) = questions.ended.iter_mut().rev().find(|(ended, _)| ended == id)?;
        let now = how.clone();
        if now == QuestionEnd::Withdrawn {
            *how = QuestionEnd::WithdrawnAndTold;
        }
        Some(now)
    }

    /// Ends all open requests whose calls no longer wait, and returns them.
    pub(crate) fn end_orphans(&self) -> Vec<(QuestionId, ShownQuestion)> {
        let mut questions = self.questions.lock();
        let gone = |_: &QuestionId, shown: &mut ShownQuestion| shown.asker.strong_count() == 0;
        let orphans: Vec<_> = questions.shown.extract_if(.., gone).collect();
        for (id, _) in &orphans {
            questions.end(id.clone(), QuestionEnd::Withdrawn);
        }
        orphans
    }

    /// Withdraws all open requests, because no answer can come any more.
    pub(crate) fn withdraw_all(&self) {
        let shown = std::mem::take(&mut self.questions.lock().shown);
        for (request_id, ShownQuestion { origin, target, .. }) in shown {
            self.questions.lock().end(request_id.clone(), QuestionEnd::Withdrawn);
            let reason = "the permission prompt is unavailable".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason, target };
            self.transcript.note(Some(&origin), event);
        }
    }

    fn now(&self) -> GrantTime {
        GrantTime { wall_ms: self.clock.wall_ms(), uptime: self.clock.monotonic() }
    }
}

impl OpenQuestions {
    fn end(&mut self, id: QuestionId, how: QuestionEnd) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, how));
    }
}
