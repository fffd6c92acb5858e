//! Crashes of children of the session: restarts within a budget, and parking.

use std::sync::Arc;

use ractor::{Actor, ActorId, ActorRef};
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::agent_invocation::ended_event;
use crate::conversation::InvocationId;
use crate::event::{AnnouncedEvent, Event, Origin};
use crate::mailbox::{HandlerResult, StartResult, SupervisedRef, panic_text, spawn_task, tell};
use crate::outcome::Ending;
use crate::permission_coordinator::{self as permission, PermissionCoordinator};
use crate::ports::{JournalError, JournalStore};
use crate::provider_client;
use crate::replay::{OpenCall, OpenQuestion, Replay, Replayed};
use crate::restarts::RestartBudget;
use crate::root_session::main_run::resume::{self, OpenCalls, closed_event};
use crate::root_session::main_run::{MainRun, MainRunMsg, Reach, Resumed};
use crate::root_session::{Msg, RootSession, State};
use crate::transcript_writer::{self, TranscriptWriter};

/// Records per read when an invocation is rebuilt.
const RECORDS_AT_A_TIME: u64 = 1024;

/// A child that is replaced when it crashes. Others reach it through its `SupervisedRef`.
pub(super) struct Supervised<M> {
    pub(super) name: &'static str,
    incarnations: watch::Sender<Option<ActorRef<M>>>,
    pub(super) budget: RestartBudget,
}

impl<M: ractor::Message> Supervised<M> {
    pub(super) fn new(
        name: &'static str,
        incarnations: watch::Sender<Option<ActorRef<M>>>,
        budget: RestartBudget,
    ) -> Supervised<M> {
        Supervised { name, incarnations, budget }
    }

    pub(super) fn line(&self) -> SupervisedRef<M> {
        SupervisedRef::new(self.incarnations.subscribe())
    }

    /// Sends a message to the current incarnation, if there is one.
    pub(super) fn tell(&self, message: impl FnOnce() -> M) {
        if let Some(actor) = &*self.incarnations.borrow() {
            tell(actor, message());
        }
    }

    pub(super) fn is(&self, id: ActorId) -> bool {
        self.incarnations.borrow().as_ref().is_some_and(|actor| actor.get_id() == id)
    }

    pub(super) fn put(&self, actor: ActorRef<M>) {
        self.incarnations.send_replace(Some(actor));
    }

    pub(super) fn give_up(&self) {
        self.incarnations.send_replace(None);
    }
}

impl RootSession {
    pub(super) async fn start_writer(
        &self,
        me: &ActorRef<Msg>,
        state: &mut State,
    ) -> StartResult<()> {
        let args = transcript_writer::Args {
            store: Arc::clone(&self.ports.journal),
            clock: Arc::clone(&self.ports.clock),
            feed: self.feed.clone(),
            outbox: Arc::clone(&self.outbox),
            patience: self.settings.limits.patience,
            fail: self.settings.fail.clone(),
        };
        let actor = TranscriptWriter::new(args);
        let (writer, _) = Actor::spawn_linked(None, actor, (), me.get_cell()).await?;
        state.writer.put(writer);
        Ok(())
    }

    pub(super) async fn start_coordinator(
        &self,
        me: &ActorRef<Msg>,
        state: &mut State,
    ) -> StartResult<()> {
        let args = permission::Args {
            clock: Arc::clone(&self.ports.clock),
            transcript: self.transcript.clone(),
            book: self.services.book.clone(),
            line: self.services.permissions.clone(),
            asking: self.settings.asking,
            tier: self.settings.tier.clone(),
            questions_max: self.settings.limits.questions_max,
            fail: self.settings.fail.clone(),
        };
        let actor = PermissionCoordinator::new(args);
        let (coordinator, _) = Actor::spawn_linked(None, actor, (), me.get_cell()).await?;
        state.coordinator.put(coordinator);
        Ok(())
    }

    pub(super) async fn child_crashed(
        &self,
        me: &ActorRef<Msg>,
        child: ActorId,
        cause: &str,
        state: &mut State,
    ) -> HandlerResult {
        if state.writer.is(child) {
            if self.spend(state.writer.name, &mut state.writer.budget, cause) {
                self.start_writer(me, state).await?;
            } else {
                state.writer.give_up();
                self.outbox.give_up(cause.to_owned());
                self.park(me, "TranscriptWriter", cause, state);
            }
        } else if state.coordinator.is(child) {
            if self.spend(state.coordinator.name, &mut state.coordinator.budget, cause) {
                self.start_coordinator(me, state).await?;
            } else {
                state.coordinator.give_up();
                self.services.book.withdraw_all();
                self.park(me, "PermissionCoordinator", cause, state);
            }
        } else if let Some(nth) = state.clients.crashed(child) {
            self.client_crashed(me, nth, cause, state).await?;
        } else if state.main.as_ref().is_some_and(|main| main.is(child)) {
            self.main_crashed(me, cause, state);
        } else if state.own_call.as_ref().is_some_and(|own| own.is(child)) {
            // Its report is lost with it, and ends it.
            let (actor, cause) = ("ToolCallRun".to_owned(), cause.to_owned());
            self.transcript.note(None, Event::ActorCrashed { actor, cause });
        } else if let Some(id) = state.subagents.running(child) {
            self.recover_subagent(me, &id, cause, state);
        }
        Ok(())
    }

    /// Spends a restart of `actor`; returns true if it may be restarted. The user is informed in
    /// both cases.
    pub(super) fn spend(&self, actor: &str, budget: &mut RestartBudget, cause: &str) -> bool {
        let (actor, cause) = (actor.to_owned(), cause.to_owned());
        self.transcript.note(None, Event::ActorCrashed { actor: actor.clone(), cause });
        let restarts = budget.spend(self.ports.clock.monotonic());
        if let Some(restarts) = restarts {
            self.transcript.note(None, Event::ActorRestarted { actor, restarts });
        }
        restarts.is_some()
    }

    /// Parks the session until the user acts: an actor crashed too often.
    pub(super) fn park(&self, me: &ActorRef<Msg>, actor: &str, cause: &str, state: &mut State) {
        let is_writer = actor == "TranscriptWriter";
        let why = cause.to_owned();
        let cause = format!("{actor} crashed too often: {cause}");
        let event = Event::SessionParked { cause: cause.clone(), class: None, next_try_ms: None };
        if is_writer {
            // Recording is impossible; observers are informed anyway.
            self.feed.publish(AnnouncedEvent::Ephemeral {
                ts: self.ports.clock.wall_ms(),
                session_id: self.settings.session_id.clone(),
                origin: None,
                event,
            });
        } else {
            self.transcript.note(None, event);
        }
        state.parked = Some(cause.clone());
        let ending = if is_writer {
            journal_failed(why)
        } else {
            Ending::Failed { class: "parked".to_owned(), cause }
        };
        match state.main.take_if(|main| main.actor.is_none() && main.admitting.is_none()) {
            // Its actor does not exist, so the session ends it.
            Some(main) => self.conclude_for(me, main, ending, Resumed::default(), state),
            None => self.stop(me, Reach::All, ending, state),
        }
    }

    /// Concludes an invocation that cannot do so itself.
    fn conclude_for(
        &self,
        me: &ActorRef<Msg>,
        main: MainRun,
        ending: Ending,
        resumed: Resumed,
        state: &mut State,
    ) {
        let Resumed { queued, turns, usage, .. } = resumed;
        let event = ended_event(&ending, turns, usage);
        self.transcript.note(Some(&main.origin), event);
        state.queued.extend(queued);
        self.conclude(me, main, ending, turns, usage, state);
    }

    /// Rebuilds the main invocation from the journal, at the last durable turn.
    fn main_crashed(&self, me: &ActorRef<Msg>, cause: &str, state: &mut State) {
        let Some(main) = &mut state.main else { return };
        main.actor = None;
        let (id, absence) = (main.origin.invocation_id.clone(), main.absence.take());
        // Its request would continue to cost money without a receiver.
        state.clients.tell(|| provider_client::Msg::Cancel(id.clone()));
        if !self.spend("AgentInvocation", &mut state.invocation_budget, cause) {
            return self.park(me, "AgentInvocation", cause, state);
        }
        let (transcript, store) = (self.transcript.clone(), Arc::clone(&self.ports.journal));
        let reread = async move {
            // The crash is reported before its last tool is dropped: effects until then belong into
            // the history.
            if let Some(absence) = absence {
                absence.complete().await;
            }
            transcript.drained().await;
            read_back(&*store, &id).await
        };
        let id = main.origin.invocation_id.clone();
        main.rereading = Some(spawn_task(me, reread, move |replayed| {
            Msg::MainRun(MainRunMsg::Reread(id, Box::new(replayed)))
        }));
    }

    pub(super) async fn reread(
        &self,
        me: &ActorRef<Msg>,
        id: &InvocationId,
        replayed: Result<Result<Replayed, JournalError>, JoinError>,
        state: &mut State,
    ) -> HandlerResult {
        let theirs = |main: &mut MainRun| main.origin.invocation_id == *id && main.actor.is_none();
        let Some(mut main) = state.main.take_if(theirs) else { return Ok(()) };
        main.rereading = None;
        let replayed = match replayed {
            Ok(Ok(replayed)) => replayed,
            Ok(Err(error)) => {
                let ending = journal_failed(error.to_string());
                self.conclude_for(me, main, ending, Resumed::default(), state);
                return Ok(());
            }
            Err(died) => {
                let ending = journal_failed(panic_text(died));
                self.conclude_for(me, main, ending, Resumed::default(), state);
                return Ok(());
            }
        };
        let left = match main.stopping {
            None => Self::open_calls_of(&main.origin, &replayed, false, state),
            Some(_) => OpenCalls::default(),
        };
        self.close_open_calls(&main.origin, &replayed, &left);
        let Replayed { messages, queued, turns, usage, compacted, .. } = replayed;
        let pending = resume::pending(&messages, &left);
        // The history of a run after a compaction is complete.
        if compacted {
            main.base = 0;
        }
        state.history.truncate(main.base);
        state.history.extend(messages);
        let queued = queued.iter().map(resume::queued).collect();
        let resumed = Resumed { pending, queued, turns, usage, ..Resumed::default() };
        if let Some(ending) = main.stopping.take() {
            self.conclude_for(me, main, ending, resumed, state);
            return Ok(());
        }
        self.start_invocation(me, &mut main, resumed, state).await?;
        state.main = Some(main);
        Ok(())
    }

    /// Closes calls that the crash left open in the journal, as in the history.
    pub(super) fn close_open_calls(
        &self,
        origin: &Arc<Origin>,
        replayed: &Replayed,
        left: &OpenCalls,
    ) {
        let stays_open = |open: &OpenCall| {
            let mut left = left.waiting.iter().chain(&left.attached);
            left.any(|one| one.call.id == open.call.id)
        };
        for open in replayed.open_calls.iter().filter(|open| !stays_open(open)) {
            self.transcript.note(Some(origin), closed_event(open, &replayed.messages));
        }
        // Requests that were shown are withdrawn by the actor that showed them.
        let ours = |asked: &&OpenQuestion| {
            let id = |theirs: &Arc<Origin>| theirs.invocation_id == origin.invocation_id;
            asked.origin.as_ref().is_some_and(id)
                && !self.services.book.has_shown(&asked.request_id)
                && !left.questions.iter().any(|kept| kept.request_id == asked.request_id)
        };
        self.withdraw(replayed.open_questions.iter().filter(ours).cloned().collect());
    }
}

/// Records of an invocation in the journal.
pub(super) async fn read_back(
    store: &dyn JournalStore,
    id: &InvocationId,
) -> Result<Replayed, JournalError> {
    let mut replay = Replay::new(Some(id.clone()));
    let mut from = 1;
    loop {
        let records = store.read(from, from + RECORDS_AT_A_TIME - 1).await?;
        for record in &records {
            replay.push(record);
        }
        match records.last() {
            Some(last) => from = last.record + 1,
            None => return Ok(replay.finish()),
        }
    }
}

impl MainRun {
    fn is(&self, id: ActorId) -> bool {
        self.actor.as_ref().is_some_and(|actor| actor.get_id() == id)
    }
}

pub(super) fn journal_failed(cause: String) -> Ending {
    Ending::Failed { class: "journal".to_owned(), cause }
}
