//! Transcript writer: the only sequencing point of a session. Durable first, announced second.
//!
//! Records stay in the `Outbox` until the journal has them, so a crash of this actor loses nothing:
//! its successor opens the journal again, recognises what arrived, and submits the rest. No handler
//! waits for a disk.
//!
//! A full disk is waited for: records stay in the outbox, nothing new starts, and the write is
//! repeated every `PROBE` until patience is exhausted.

mod outbox;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef};

use crate::event::{AnnouncedEvent, Durability, Event};
use crate::mailbox::{HandlerResult, OwnedTask, Report, StartResult, panic_text, spawn_task};
use crate::ports::{Clock, Committed, JournalBatch, JournalError, JournalStore, OpenedJournal};
use crate::subscription::Feed;
use crate::testing_seam::FailPoints;

pub(crate) use outbox::{Outbox, OutboxCapacity, Transcript, Unrecorded};

/// Arguments of every incarnation of the writer.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) store: Arc<dyn JournalStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) feed: Feed,
    pub(crate) outbox: Arc<Outbox>,
    /// Maximum wait for disk space.
    pub(crate) patience: Duration,
    pub(crate) fail: FailPoints,
}

/// Interval between checks of a full disk.
pub(crate) const PROBE: Duration = Duration::from_secs(2);

pub(crate) enum Msg {
    /// The outbox has new entries.
    Wake,
    Opened(Result<Result<OpenedJournal, JournalError>, tokio::task::JoinError>),
    Committed(usize, Result<Committed, JournalError>),
    /// Report when the outbox is written completely.
    Drain(Report<()>),
    /// Check for disk space.
    Probe,
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Wake => "Wake",
            Msg::Opened(_) => "Opened",
            Msg::Committed(..) => "Committed",
            Msg::Drain(_) => "Drain",
            Msg::Probe => "Probe",
        }
    }
}

pub(crate) struct TranscriptWriter {
    args: Args,
}

pub(crate) struct State {
    journal: Option<Box<dyn crate::ports::Journal>>,
    last_record: u64,
    draining: Vec<Report<()>>,
    opening: Option<OwnedTask>,
    /// The wait for the next look at the disk.
    probe: Option<OwnedTask>,
}

impl TranscriptWriter {
    pub(crate) fn new(args: Args) -> TranscriptWriter {
        TranscriptWriter { args }
    }
}

impl Actor for TranscriptWriter {
    type Msg = Msg;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, me: ActorRef<Msg>, (): ()) -> StartResult<State> {
        // A store that panics while it opens is a crash like any other, not a failure to start.
        let opening = Some(self.open(&me));
        Ok(State { journal: None, last_record: 0, draining: Vec::new(), opening, probe: None })
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        self.args.fail.hit("TranscriptWriter", msg.kind());
        match msg {
            // A journal that is being opened may have room.
            Msg::Wake
                if state.journal.is_none()
                    && state.opening.is_none()
                    && self.args.outbox.is_out_of_patience() =>
            {
                return Err("there is no room for the journal".into());
            }
            Msg::Wake => {
                self.submit(&me, state);
            }
            Msg::Probe => self.probe(&me, state),
            Msg::Opened(Ok(Ok(opened))) => self.opened(&me, opened, state),
            Msg::Opened(Err(died)) => return Err(panic_text(died).into()),
            Msg::Opened(Ok(Err(JournalError::Full { source })))
            | Msg::Committed(_, Err(JournalError::Full { source })) => {
                self.wait_for_room(&me, &source.to_string(), state)?;
            }
            // The journal is in doubt. The successor opens it again and sees what arrived.
            Msg::Opened(Ok(Err(error))) | Msg::Committed(_, Err(error)) => {
                return Err(Box::new(error));
            }
            Msg::Committed(entries, Ok(committed)) => {
                self.committed(&me, entries, committed, state);
            }
            Msg::Drain(report) => state.draining.push(report),
        }
        if state.journal.is_some() && self.args.outbox.is_empty() {
            for report in state.draining.drain(..) {
                report.send(());
            }
        }
        Ok(())
    }
}

impl TranscriptWriter {
    fn opened(&self, me: &ActorRef<Msg>, opened: OpenedJournal, state: &mut State) {
        state.last_record = opened.last_record;
        self.args.feed.begins_after(opened.last_record);
        state.journal = Some(opened.journal);
        state.opening = None;
        let arrived = self.args.outbox.reconcile(&opened.recent_ids, opened.last_record);
        for fact in arrived {
            fact.announce(&self.args.feed);
        }
        if let Some(message) = opened.repaired {
            self.args.outbox.warn(message, self.args.clock.wall_ms());
        }
        if !self.submit(me, state) && self.args.outbox.lacks_room() {
            self.probe(me, state);
        }
    }

    /// Submits ready entries to the journal. Returns false if there were none.
    fn submit(&self, me: &ActorRef<Msg>, state: &mut State) -> bool {
        let Some(journal) = &state.journal else { return false };
        let ready = self.args.outbox.take_ready(&mut state.last_record);
        for fact in ready.passing {
            self.args.feed.publish(fact);
        }
        if ready.entries == 0 {
            return false;
        }
        let me = me.clone();
        let entries = ready.entries;
        journal.submit(JournalBatch {
            records: ready.records,
            durability: ready.durability,
            done: Box::new(move |result| {
                me.cast(Msg::Committed(entries, result)).ok();
            }),
        });
        true
    }

    fn committed(
        &self,
        me: &ActorRef<Msg>,
        entries: usize,
        committed: Committed,
        state: &mut State,
    ) {
        debug_assert!(committed.last_record <= state.last_record, "the journal ran ahead");
        for fact in self.args.outbox.committed(entries) {
            fact.announce(&self.args.feed);
        }
        if !committed.scarce {
            state.probe = None;
            if self.args.outbox.set_room(OutboxCapacity::Enough) {
                self.tell("there is room for the journal again".to_owned());
            }
            return;
        }
        let now = self.args.clock.monotonic();
        if self.args.outbox.set_room(OutboxCapacity::Scarce { since: now }) {
            self.tell(format!(
                "there is hardly any room left for the journal: what is under way goes on, and \
                 nothing new begins until there is (looked at every {} s)",
                PROBE.as_secs()
            ));
        }
        if self.args.outbox.has_waited(now, self.args.patience) {
            self.args.outbox.refuse("there is hardly any room left".to_owned());
        }
        state.probe = Some(self.later(me));
    }

    /// Opens the journal again after a wait; records stay in the outbox. Returns an error when
    /// patience is exhausted.
    fn wait_for_room(&self, me: &ActorRef<Msg>, cause: &str, state: &mut State) -> HandlerResult {
        state.journal = None;
        state.opening = None;
        let now = self.args.clock.monotonic();
        let first = self.args.outbox.set_room(OutboxCapacity::None { since: now });
        if self.args.outbox.has_waited(now, self.args.patience) {
            return Err(format!("there is no room for the journal: {cause}").into());
        }
        if first {
            self.tell(format!(
                "there is no room for the journal ({cause}): nothing new begins, and what is under \
                 way is kept until there is (tried again every {} s)",
                PROBE.as_secs()
            ));
        }
        state.probe = Some(self.later(me));
        Ok(())
    }

    /// Checks for disk space: opens the journal, or submits an empty batch to an open one.
    fn probe(&self, me: &ActorRef<Msg>, state: &mut State) {
        state.probe = None;
        let Some(journal) = &state.journal else {
            if state.opening.is_none() {
                state.opening = Some(self.open(me));
            }
            return;
        };
        let me = me.clone();
        journal.submit(JournalBatch {
            records: Vec::new(),
            durability: Durability::Written,
            done: Box::new(move |result| {
                me.cast(Msg::Committed(0, result)).ok();
            }),
        });
    }

    fn open(&self, me: &ActorRef<Msg>) -> OwnedTask {
        let store = Arc::clone(&self.args.store);
        spawn_task(me, async move { store.open().await }, Msg::Opened)
    }

    fn later(&self, me: &ActorRef<Msg>) -> OwnedTask {
        spawn_task(me, self.args.clock.sleep(PROBE), |_| Msg::Probe)
    }

    /// Announces a line that is not recorded, because there is no space.
    fn tell(&self, message: String) {
        self.args.feed.publish(AnnouncedEvent::Ephemeral {
            ts: self.args.clock.wall_ms(),
            session_id: self.args.outbox.session_id().clone(),
            origin: None,
            event: Event::Warning { message },
        });
    }
}
