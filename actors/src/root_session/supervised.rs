//! Supervision of the session's children: restarts within a budget, and parking.

pub(super) mod clients;

use std::sync::Arc;

use ractor::{ActorId, ActorRef};
use tokio::sync::watch;

use crate::agent_invocation::Resumed;
use crate::conversation::InvocationId;
use crate::delegation::DELEGATE;
use crate::event::Event;
use crate::mailbox::{HandlerResult, StartResult, SupervisedRef, spawn_child, tell};
use crate::outcome::Ending;
use crate::permission_coordinator::{self as permission, PermissionCoordinator};
use crate::provider_client;
use crate::restarts::RestartBudget;
use crate::root_session::main_run::recovery::journal_failed;
use crate::root_session::main_run::stop::Reach;
use crate::root_session::{SessionBase, State};
use crate::transcript_writer::{self, TranscriptWriter};

use clients::Clients;

/// Transcript writer, permission coordinator and provider clients, which the session restarts when
/// they crash.
pub(super) struct SupervisedActors {
    pub(super) writer: Supervised<transcript_writer::Msg>,
    pub(super) coordinator: Supervised<permission::Msg>,
    pub(super) clients: Clients,
}

impl SupervisedActors {
    /// Wakes the writer, so that it writes the entries of the outbox and no longer waits for disk
    /// space if that was stopped.
    pub(super) fn wake_writer(&self) {
        self.writer.tell(|| transcript_writer::Msg::Wake);
    }

    pub(super) fn coordinator_line(&self) -> SupervisedRef<permission::Msg> {
        self.coordinator.line()
    }

    /// Cancels the model requests of an invocation that is gone.
    pub(super) fn cancel_requests(&self, id: &InvocationId) {
        self.clients.tell(|| provider_client::Msg::Cancel(id.clone()));
    }
}

/// A child actor that is replaced when it crashes. Other actors reach it through a `SupervisedRef`.
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

    /// Sends a message to the current incarnation. Without one, nothing is sent.
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

    /// True unless no actor was started, or the last one was given up.
    fn is_running(&self) -> bool {
        self.incarnations.borrow().is_some()
    }

    fn give_up(&self) {
        self.incarnations.send_replace(None);
    }
}

impl Supervised<transcript_writer::Msg> {
    /// Sets the new writer and wakes it: it may have opened the journal already, and could not be
    /// woken for records since then.
    fn put_writer(&self, actor: ActorRef<transcript_writer::Msg>) {
        self.put(actor);
        self.tell(|| transcript_writer::Msg::Wake);
    }
}

impl State {
    pub(super) async fn start_supervised(&mut self) -> StartResult<()> {
        self.start_writer().await?;
        self.start_coordinator().await?;
        self.start_clients().await
    }

    async fn start_writer(&mut self) -> StartResult<()> {
        let args = transcript_writer::Args {
            store: Arc::clone(&self.base.ports.journal),
            clock: Arc::clone(&self.base.ports.clock),
            feed: self.base.feed.clone(),
            outbox: Arc::clone(&self.base.outbox),
            patience: self.base.settings.limits.patience,
            fail: self.base.settings.fail.clone(),
        };
        let writer = spawn_child(TranscriptWriter, args, &self.base.me).await?;
        self.supervised.writer.put_writer(writer);
        Ok(())
    }

    async fn start_coordinator(&mut self) -> StartResult<()> {
        let args = permission::Args {
            clock: Arc::clone(&self.base.ports.clock),
            transcript: self.base.transcript.clone(),
            book: self.base.services.book.clone(),
            mode: self.base.services.mode.clone(),
            policy: Arc::clone(&self.base.services.policy),
            line: self.base.services.permissions.clone(),
            asking: self.base.settings.asking,
            tier: self.base.settings.tier.clone(),
            questions_max: self.base.settings.limits.questions_max,
            main_delegates: self.base.specs.iter().any(|spec| spec.name == DELEGATE),
            fail: self.base.settings.fail.clone(),
        };
        let coordinator = spawn_child(PermissionCoordinator, args, &self.base.me).await?;
        self.supervised.coordinator.put(coordinator);
        Ok(())
    }

    pub(super) async fn child_crashed(&mut self, child: ActorId, cause: &str) -> HandlerResult {
        if self.supervised.writer.is(child) {
            let Supervised { name, budget, .. } = &mut self.supervised.writer;
            if self.base.spend(name, budget, cause) {
                self.start_writer().await?;
            } else {
                self.supervised.writer.give_up();
                self.base.outbox.give_up(cause.to_owned());
                self.park("TranscriptWriter", cause);
            }
        } else if self.supervised.coordinator.is(child) {
            let Supervised { name, budget, .. } = &mut self.supervised.coordinator;
            if self.base.spend(name, budget, cause) {
                self.start_coordinator().await?;
            } else {
                self.supervised.coordinator.give_up();
                self.base.services.book.withdraw_all();
                self.park("PermissionCoordinator", cause);
            }
        } else if let Some(nth) = self.supervised.clients.crashed(child) {
            self.client_crashed(nth, cause).await?;
        } else if self.main_run.has_actor(child) {
            self.main_crashed(cause);
        } else if self.main_run.has_own_call(child) {
            // Its report is lost with it, and ends it.
            let (actor, cause) = ("ToolCallRun".to_owned(), cause.to_owned());
            self.base.transcript.note(None, Event::ActorCrashed { actor, cause });
        } else if let Some(id) = self.subagents.running(child) {
            self.recover_subagent(&id, cause);
        }
        Ok(())
    }

    /// Parks the session, because `actor` crashed too often: records this (if the writer crashed,
    /// only announces it), accepts no more work, and stops the current work.
    pub(super) fn park(&mut self, actor: &str, cause: &str) {
        let is_writer = actor == "TranscriptWriter";
        let why = cause.to_owned();
        let cause = format!("{actor} crashed too often: {cause}");
        let event = Event::SessionParked { cause: cause.clone(), class: None, next_try_ms: None };
        if is_writer {
            // Recording is impossible; observers are informed anyway.
            self.base.feed.publish(self.base.ephemeral(event));
        } else {
            self.base.transcript.note(None, event);
        }
        self.end.parked = Some(cause.clone());
        let ending = if is_writer {
            journal_failed(why)
        } else {
            Ending::Failed { class: "parked".to_owned(), cause }
        };
        match self.main_run.take_rebuilding() {
            // Its actor does not exist, so the session ends it.
            Some(main) => self.conclude_for(main, ending, Resumed::default()),
            None => self.stop(Reach::All, ending),
        }
    }
}

impl SessionBase {
    /// Records a crash of `actor` and uses one restart of its restart budget. Returns true if the
    /// caller may restart it, which is recorded already; false if no restart is left.
    pub(super) fn spend(&self, actor: &str, budget: &mut RestartBudget, cause: &str) -> bool {
        let (actor, cause) = (actor.to_owned(), cause.to_owned());
        self.transcript.note(None, Event::ActorCrashed { actor: actor.clone(), cause });
        let restarts = budget.spend(self.ports.clock.monotonic());
        if let Some(restarts) = restarts {
            self.transcript.note(None, Event::ActorRestarted { actor, restarts });
        }
        restarts.is_some()
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
            feed: Feed::new(SessionId::new("s")),
            outbox,
            patience: Duration::ZERO,
            fail: FailPoints::none(),
        };
        let (actor, _) = ractor::Actor::spawn(None, TranscriptWriter, args).await.unwrap();
        // It answers when the journal is open.
        let (report, is_open) = Report::channel();
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
