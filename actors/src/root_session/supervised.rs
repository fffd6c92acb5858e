//! Crashes of children of the session: restarts within a budget, and parking.

pub(super) mod clients;

use std::sync::Arc;

use ractor::{Actor, ActorId, ActorRef};
use tokio::sync::watch;

use crate::conversation::InvocationId;
use crate::event::{AnnouncedEvent, Event};
use crate::mailbox::{HandlerResult, StartResult, SupervisedRef, tell};
use crate::outcome::Ending;
use crate::permission_coordinator::{self as permission, PermissionCoordinator};
use crate::provider_client;
use crate::restarts::RestartBudget;
use crate::root_session::main_run::Resumed;
use crate::root_session::main_run::recovery::journal_failed;
use crate::root_session::main_run::stop::Reach;
use crate::root_session::{RootSession, State};
use crate::transcript_writer::{self, TranscriptWriter};

use clients::Clients;

/// Actors that the session restarts when they crash.
pub(super) struct SupervisedActors {
    writer: Supervised<transcript_writer::Msg>,
    coordinator: Supervised<permission::Msg>,
    clients: Clients,
}

impl SupervisedActors {
    pub(super) fn new(
        writer: Supervised<transcript_writer::Msg>,
        coordinator: Supervised<permission::Msg>,
        clients: Clients,
    ) -> SupervisedActors {
        SupervisedActors { writer, coordinator, clients }
    }

    /// Informs the writer that the outbox has entries, or is not to wait any more.
    pub(super) fn wake_writer(&self) {
        self.writer.tell(|| transcript_writer::Msg::Wake);
    }

    pub(super) fn coordinator_line(&self) -> SupervisedRef<permission::Msg> {
        self.coordinator.line()
    }

    /// Cancels model requests of an invocation that is gone.
    pub(super) fn cancel_requests(&self, id: &InvocationId) {
        self.clients.tell(|| provider_client::Msg::Cancel(id.clone()));
    }
}

/// A child that is replaced when it crashes. Others reach it through its `SupervisedRef`.
pub(super) struct Supervised<M> {
    name: &'static str,
    incarnations: watch::Sender<Option<ActorRef<M>>>,
    budget: RestartBudget,
}

impl<M: ractor::Message> Supervised<M> {
    pub(super) fn new(
        name: &'static str,
        incarnations: watch::Sender<Option<ActorRef<M>>>,
        budget: RestartBudget,
    ) -> Supervised<M> {
        Supervised { name, incarnations, budget }
    }

    fn line(&self) -> SupervisedRef<M> {
        SupervisedRef::new(self.incarnations.subscribe())
    }

    /// Sends a message to the current incarnation, if there is one.
    fn tell(&self, message: impl FnOnce() -> M) {
        if let Some(actor) = &*self.incarnations.borrow() {
            tell(actor, message());
        }
    }

    fn is(&self, id: ActorId) -> bool {
        self.incarnations.borrow().as_ref().is_some_and(|actor| actor.get_id() == id)
    }

    fn put(&self, actor: ActorRef<M>) {
        self.incarnations.send_replace(Some(actor));
    }

    fn give_up(&self) {
        self.incarnations.send_replace(None);
    }
}

impl Supervised<transcript_writer::Msg> {
    /// Replaces the writer and wakes the new one: it may have opened the journal already, and
    /// records since then did not reach it.
    fn put_writer(&self, actor: ActorRef<transcript_writer::Msg>) {
        self.put(actor);
        self.tell(|| transcript_writer::Msg::Wake);
    }
}

impl RootSession {
    pub(super) async fn start_supervised(&self, state: &mut State) -> StartResult<()> {
        self.start_writer(state).await?;
        self.start_coordinator(state).await?;
        self.start_clients(state).await
    }

    async fn start_writer(&self, state: &mut State) -> StartResult<()> {
        let args = transcript_writer::Args {
            store: Arc::clone(&self.ports.journal),
            clock: Arc::clone(&self.ports.clock),
            feed: self.feed.clone(),
            outbox: Arc::clone(&self.outbox),
            patience: self.settings.limits.patience,
            fail: self.settings.fail.clone(),
        };
        let actor = TranscriptWriter::new(args);
        let (writer, _) = Actor::spawn_linked(None, actor, (), state.me.get_cell()).await?;
        state.supervised.writer.put_writer(writer);
        Ok(())
    }

    async fn start_coordinator(&self, state: &mut State) -> StartResult<()> {
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
        let (coordinator, _) = Actor::spawn_linked(None, actor, (), state.me.get_cell()).await?;
        state.supervised.coordinator.put(coordinator);
        Ok(())
    }

    pub(super) async fn child_crashed(
        &self,
        child: ActorId,
        cause: &str,
        state: &mut State,
    ) -> HandlerResult {
        if state.supervised.writer.is(child) {
            if self.spend(state.supervised.writer.name, &mut state.supervised.writer.budget, cause)
            {
                self.start_writer(state).await?;
            } else {
                state.supervised.writer.give_up();
                self.outbox.give_up(cause.to_owned());
                self.park("TranscriptWriter", cause, state);
            }
        } else if state.supervised.coordinator.is(child) {
            if self.spend(
                state.supervised.coordinator.name,
                &mut state.supervised.coordinator.budget,
                cause,
            ) {
                self.start_coordinator(state).await?;
            } else {
                state.supervised.coordinator.give_up();
                self.services.book.withdraw_all();
                self.park("PermissionCoordinator", cause, state);
            }
        } else if let Some(nth) = state.supervised.clients.crashed(child) {
            self.client_crashed(nth, cause, state).await?;
        } else if state.main_run.has_actor(child) {
            self.main_crashed(cause, state);
        } else if state.main_run.has_own_call(child) {
            // Its report is lost with it, and ends it.
            let (actor, cause) = ("ToolCallRun".to_owned(), cause.to_owned());
            self.transcript.note(None, Event::ActorCrashed { actor, cause });
        } else if let Some(id) = state.subagents.running(child) {
            self.recover_subagent(&id, cause, state);
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
    pub(super) fn park(&self, actor: &str, cause: &str, state: &mut State) {
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
        state.end.park(cause.clone());
        let ending = if is_writer {
            journal_failed(why)
        } else {
            Ending::Failed { class: "parked".to_owned(), cause }
        };
        match state.main_run.take_rebuilding() {
            // Its actor does not exist, so the session ends it.
            Some(main) => self.conclude_for(main, ending, Resumed::default(), state),
            None => self.stop(Reach::All, ending, state),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conversation::SessionId;
    use crate::event::Durability;
    use crate::mailbox::Report;
    use crate::ports::Clock;
    use crate::subscription::Feed;
    use crate::testing::{CountedIds, MemoryStore, TokioClock};
    use crate::testing_seam::FailPoints;
    use crate::transcript_writer::{Outbox, Transcript};

    #[tokio::test]
    async fn new_writer_writes_records_that_arrived_before_it_was_known() {
        let store = Arc::new(MemoryStore::default());
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::default());
        let outbox = Arc::new(Outbox::new(SessionId::new("s")));
        let incarnations = watch::Sender::new(None);
        let ids = Arc::new(CountedIds::default());
        let transcript =
            Transcript::new(Arc::clone(&outbox), incarnations.subscribe(), Arc::clone(&clock), ids);
        let args = transcript_writer::Args {
            store: Arc::clone(&store) as Arc<dyn crate::ports::JournalStore>,
            clock,
            feed: Feed::new(),
            outbox,
            patience: Duration::ZERO,
            fail: FailPoints::none(),
        };
        let (actor, _) = Actor::spawn(None, TranscriptWriter::new(args), ()).await.unwrap();
        // It answers when the journal is open.
        let (opened, is_open) = tokio::sync::oneshot::channel();
        let report = Report::call(move |answer| {
            opened.send(answer).ok();
        });
        tell(&actor, transcript_writer::Msg::Drain(report));
        assert_eq!(is_open.await, Ok(Ok(())));
        let event = Event::SessionTitled { title: "Mend the login".to_owned() };
        let recorded = transcript.record(None, event.clone(), Durability::Written);
        let budget = RestartBudget::new(1, Duration::ZERO);
        let writer = Supervised::new("TranscriptWriter", incarnations, budget);
        writer.put_writer(actor);
        let recorded = tokio::time::timeout(Duration::from_secs(10), recorded).await;
        assert_eq!(recorded, Ok(Ok(())));
        assert_eq!(store.events(), [event]);
    }
}
