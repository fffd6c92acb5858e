//! Transcript writer: gives all events of a session one order. A durable event is first written,
//! then announced.
//!
//! Records stay in the `Outbox` until the journal has written them, so a crash of this actor loses
//! nothing: its successor opens the journal again, recognises the records that were written, and
//! submits the rest. No message handler waits for the disk.
//!
//! If the disk is full, records stay in the outbox, no new work starts, and the write is repeated
//! every `PROBE`. When patience is exhausted, the actor fails.

mod outbox;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef};

use crate::event::{AnnouncedEvent, Event};
use crate::mailbox::{HandlerResult, OwnedTask, Report, StartResult, panic_text, spawn_task};
use crate::ports::{Clock, Committed, JournalBatch, JournalError, JournalStore, OpenedJournal};
use crate::subscription::Feed;
use crate::testing_seam::FailPoints;

use outbox::ReadyEntries;
pub(crate) use outbox::{Outbox, OutboxCapacity, Transcript, Unrecorded};

/// Arguments for starting the writer.
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

/// Interval between checks for free space on a full disk.
pub(crate) const PROBE: Duration = Duration::from_secs(2);

#[derive(strum::IntoStaticStr)]
pub(crate) enum Msg {
    /// The outbox has new entries, or does not wait for disk space any more.
    Wake,
    Opened(Result<Result<OpenedJournal, JournalError>, tokio::task::JoinError>),
    Committed(usize, Result<Committed, JournalError>),
    /// Report when the outbox is empty.
    Drain(Report<()>),
    /// Check for disk space.
    Probe,
}

pub(crate) struct TranscriptWriter;

pub(crate) struct State {
    me: ActorRef<Msg>,
    args: Args,
    journal: Option<Box<dyn crate::ports::Journal>>,
    last_record: u64,
    draining: Vec<Report<()>>,
    opening: Option<OwnedTask>,
    /// Timer for the next check for disk space.
    probe: Option<OwnedTask>,
}

impl Actor for TranscriptWriter {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, me: ActorRef<Msg>, args: Args) -> StartResult<State> {
        let (journal, last_record, draining) = (None, 0, Vec::new());
        let (opening, probe) = (None, None);
        let mut state = State { me, args, journal, last_record, draining, opening, probe };
        // A store that panics while it opens is a crash like any other, not a failure to start.
        state.opening = Some(state.open());
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Msg>, msg: Msg, state: &mut State) -> HandlerResult {
        state.args.fail.hit("TranscriptWriter", (&msg).into());
        match msg {
            // A journal that is being opened may have room.
            Msg::Wake
                if state.journal.is_none()
                    && state.opening.is_none()
                    && state.args.outbox.is_out_of_patience() =>
            {
                return Err("there is no room for the journal".into());
            }
            Msg::Wake => {
                state.submit();
            }
            Msg::Probe => state.probe(),
            Msg::Opened(Ok(Ok(opened))) => state.opened(opened),
            Msg::Opened(Err(died)) => return Err(panic_text(died).into()),
            Msg::Opened(Ok(Err(JournalError::Full { source })))
            | Msg::Committed(_, Err(JournalError::Full { source })) => {
                state.wait_for_room(&source.to_string())?;
            }
            // The journal is in doubt. The successor opens it again and sees what arrived.
            Msg::Opened(Ok(Err(error))) | Msg::Committed(_, Err(error)) => {
                return Err(Box::new(error));
            }
            Msg::Committed(entries, Ok(committed)) => {
                state.committed(entries, committed);
            }
            Msg::Drain(report) => state.draining.push(report),
        }
        if state.journal.is_some() && state.args.outbox.is_empty() {
            for report in state.draining.drain(..) {
                report.send(());
            }
        }
        Ok(())
    }
}

impl State {
    fn opened(&mut self, opened: OpenedJournal) {
        self.last_record = opened.last_record;
        self.args.feed.begins_after(opened.last_record);
        self.journal = Some(opened.journal);
        self.opening = None;
        let arrived = self.args.outbox.reconcile(&opened.recent_ids, opened.last_record);
        for fact in arrived {
            fact.announce(&self.args.feed);
        }
        if let Some(message) = opened.repaired {
            self.args.outbox.warn(message, self.args.clock.wall_ms());
        }
        if !self.submit() && self.args.outbox.is_disk_full() {
            self.probe();
        }
    }

    /// Submits waiting records to the journal, and announces ephemeral events before them. Returns
    /// false if no record was submitted.
    fn submit(&mut self) -> bool {
        let Some(journal) = &self.journal else { return false };
        let mut ready = self.args.outbox.take_ready(&mut self.last_record);
        for fact in ready.passing.drain(..) {
            self.args.feed.publish(fact);
        }
        if ready.entries == 0 {
            return false;
        }
        journal.submit(self.batch(ready));
        true
    }

    fn committed(&mut self, entries: usize, committed: Committed) {
        debug_assert!(committed.last_record <= self.last_record, "the journal ran ahead");
        for fact in self.args.outbox.committed(entries) {
            fact.announce(&self.args.feed);
        }
        if !committed.scarce {
            self.probe = None;
            if self.args.outbox.set_room(OutboxCapacity::Enough) {
                self.announce_unrecorded("there is room for the journal again".to_owned());
            }
            return;
        }
        let now = self.args.clock.monotonic();
        if self.args.outbox.set_room(OutboxCapacity::Scarce { since: now }) {
            self.announce_unrecorded(format!(
                "there is hardly any room left for the journal: what is under way goes on, and \
                 nothing new begins until there is (looked at every {} s)",
                PROBE.as_secs()
            ));
        }
        if self.args.outbox.has_waited(now, self.args.patience) {
            self.args.outbox.refuse("there is hardly any room left".to_owned());
        }
        self.probe = Some(self.later());
    }

    /// Closes the journal because the disk is full, and sets a timer to open it again. Records stay
    /// in the outbox. Returns an error when patience is exhausted.
    fn wait_for_room(&mut self, cause: &str) -> HandlerResult {
        self.journal = None;
        self.opening = None;
        let now = self.args.clock.monotonic();
        let first = self.args.outbox.set_room(OutboxCapacity::None { since: now });
        if self.args.outbox.has_waited(now, self.args.patience) {
            return Err(format!("there is no room for the journal: {cause}").into());
        }
        if first {
            self.announce_unrecorded(format!(
                "there is no room for the journal ({cause}): nothing new begins, and what is under \
                 way is kept until there is (tried again every {} s)",
                PROBE.as_secs()
            ));
        }
        self.probe = Some(self.later());
        Ok(())
    }

    /// Checks for disk space: opens the journal, or submits an empty batch if it is open.
    fn probe(&mut self) {
        self.probe = None;
        let Some(journal) = &self.journal else {
            if self.opening.is_none() {
                self.opening = Some(self.open());
            }
            return;
        };
        journal.submit(self.batch(ReadyEntries::default()));
    }

    /// Batch of the records in `ready`. Its result returns to this actor as a message.
    fn batch(&self, ready: ReadyEntries) -> JournalBatch {
        let me = self.me.clone();
        let ReadyEntries { records, durability, entries, .. } = ready;
        let done = Box::new(move |result| {
            me.cast(Msg::Committed(entries, result)).ok();
        });
        JournalBatch { records, durability, done }
    }

    fn open(&self) -> OwnedTask {
        let store = Arc::clone(&self.args.store);
        spawn_task(&self.me, async move { store.open().await }, Msg::Opened)
    }

    fn later(&self) -> OwnedTask {
        spawn_task(&self.me, self.args.clock.sleep(PROBE), |_| Msg::Probe)
    }

    /// Announces a warning without recording it, because there is no disk space.
    fn announce_unrecorded(&self, message: String) {
        self.args.feed.publish(AnnouncedEvent::Ephemeral {
            ts: self.args.clock.wall_ms(),
            session_id: self.args.outbox.session_id().clone(),
            origin: None,
            event: Event::Warning { message },
        });
    }
}
