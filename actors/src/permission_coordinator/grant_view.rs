//! What outlives every incarnation of the coordinator: what the user allowed, which questions
//! observers see as open, and how the latest ones ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::conversation::QuestionId;
use crate::event::{Event, Grant, Origin, Scope};
use crate::ports::{Clock, GrantStore, Now};
use crate::transcript_writer::Transcript;

/// Ended questions that a late answer can still be told about.
const ENDED_MAX: usize = 1024;

/// What the user has allowed. Read by every call; written by the coordinator alone.
#[derive(Clone)]
pub(crate) struct GrantView {
    /// Until the session ends.
    session: Arc<watch::Sender<Arc<[Grant]>>>,
    /// For longer.
    store: Arc<dyn GrantStore>,
    clock: Arc<dyn Clock>,
    transcript: Transcript,
    unanswered: Arc<AtomicU32>,
    /// Of these, what `--yes` would not have covered.
    not_by_yes: Arc<AtomicU32>,
    questions: Arc<Mutex<OpenQuestions>>,
}

#[derive(Default)]
struct OpenQuestions {
    /// What observers see as open, and whether anybody still waits for the answer.
    shown: BTreeMap<QuestionId, ShownQuestion>,
    /// The oldest first.
    ended: VecDeque<(QuestionId, QuestionEnd)>,
}

pub(crate) struct ShownQuestion {
    pub(crate) origin: Arc<Origin>,
    /// What is asked about, in one line.
    pub(crate) summary: String,
    pub(crate) asker: Weak<()>,
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionEnd {
    /// By whom, if it was not the front end that owns the session.
    Answered(Option<String>),
    Withdrawn,
    /// Withdrawn, and an answer that came after that was told about.
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
        let (unanswered, not_by_yes) = (Arc::default(), Arc::default());
        let questions = Arc::default();
        GrantView { session, store, clock, transcript, unanswered, not_by_yes, questions }
    }

    /// What counts at this moment, whoever gave it.
    pub(crate) fn grants(&self) -> Arc<[Grant]> {
        let standing = self.store.standing(self.now());
        if let Some(message) = standing.alarm {
            self.transcript.note(None, Event::Warning { message });
        }
        let session = Arc::clone(&self.session.borrow());
        match (session.is_empty(), standing.grants.is_empty()) {
            (_, true) => session,
            (true, false) => standing.grants,
            (false, false) => session.iter().chain(&*standing.grants).cloned().collect(),
        }
    }

    /// The widest scope that a question may offer.
    pub(crate) fn widest(&self) -> Scope {
        self.store.widest()
    }

    /// Adds a grant, and returns when it is as durable as its scope says. What cannot be kept
    /// counts until the session ends.
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
            let grant = Grant { scope: Scope::Session, ..grant };
            if !grants.contains(&grant) {
                *grants = grants.iter().cloned().chain([grant]).collect();
            }
        });
    }

    /// Questions that nobody could be asked.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Of these, the ones that `--yes` does not cover.
    pub(crate) fn not_by_yes(&self) -> u32 {
        self.not_by_yes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_unanswered(&self, yes_covers: bool) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.not_by_yes.fetch_add(u32::from(!yes_covers), Ordering::Relaxed);
    }

    pub(crate) fn show(&self, id: QuestionId, shown: ShownQuestion) {
        self.questions().shown.insert(id, shown);
    }

    /// Questions of agents that work for `origin`, a line each.
    pub(crate) fn open_below(&self, origin: &Origin) -> Vec<String> {
        let path = format!("{}/", origin.agent_path);
        let below = |shown: &&ShownQuestion| match &origin.parent_invocation_id {
            None => shown.origin.parent_invocation_id.is_some(),
            Some(_) => shown.origin.agent_path.starts_with(&path),
        };
        let line = |ShownQuestion { origin, summary, .. }: &ShownQuestion| {
            format!("{} waits for the user to answer: {summary}", origin.agent_path)
        };
        self.questions().shown.values().filter(below).map(line).collect()
    }

    /// Whether observers see the question as open.
    pub(crate) fn is_shown(&self, id: &QuestionId) -> bool {
        self.questions().shown.contains_key(id)
    }

    /// Whether this process has shown the question, and so sees to its end.
    pub(crate) fn has_shown(&self, id: &QuestionId) -> bool {
        let questions = self.questions();
        questions.shown.contains_key(id) || questions.ended.iter().any(|(ended, _)| ended == id)
    }

    /// The question is over. Returns what observers saw of it, if it was open until now.
    pub(crate) fn end(&self, id: &QuestionId, how: QuestionEnd) -> Option<ShownQuestion> {
        let mut questions = self.questions();
        let shown = questions.shown.remove(id)?;
        questions.end(id.clone(), how);
        Some(shown)
    }

    /// How a question ended, if it is one of the latest. Says only once that one was withdrawn.
    pub(crate) fn ended(&self, id: &QuestionId) -> Option<QuestionEnd> {
        let mut questions = self.questions();
        let (_, how) = questions.ended.iter_mut().rev().find(|(ended, _)| ended == id)?;
        let now = how.clone();
        if now == QuestionEnd::Withdrawn {
            *how = QuestionEnd::WithdrawnAndTold;
        }
        Some(now)
    }

    /// Questions whose asker is gone: they are over.
    pub(crate) fn end_orphans(&self) -> Vec<(QuestionId, ShownQuestion)> {
        let mut questions = self.questions();
        let gone = |_: &QuestionId, shown: &mut ShownQuestion| shown.asker.strong_count() == 0;
        let orphans: Vec<_> = questions.shown.extract_if(.., gone).collect();
        for (id, _) in &orphans {
            questions.end(id.clone(), QuestionEnd::Withdrawn);
        }
        orphans
    }

    /// Nobody will be asked any more: what is open in front of the user is withdrawn.
    pub(crate) fn withdraw_all(&self) {
        let shown = std::mem::take(&mut self.questions().shown);
        for (request_id, ShownQuestion { origin, .. }) in shown {
            self.questions().end(request_id.clone(), QuestionEnd::Withdrawn);
            let reason = "the part that asks the user has stopped".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason };
            self.transcript.note(Some(&origin), event);
        }
    }

    fn now(&self) -> Now {
        Now { wall_ms: self.clock.wall_ms(), uptime: self.clock.monotonic() }
    }

    fn questions(&self) -> MutexGuard<'_, OpenQuestions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
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
