//! The one sequencing point of a session: durable first, announced second.
//!
//! What senders record lies in the `Outbox` until the journal has it, so a crash of this actor
//! loses nothing: its successor opens the journal again, sees what arrived, and submits the rest.
//! Nothing here waits for a disk.

mod outbox;

use std::sync::Arc;

use ractor::{Actor, ActorRef};

use crate::event::Feed;
use crate::mailbox::{Beside, Handled, Report, Started, beside, panic_text};
use crate::ports::{Clock, Committed, JournalBatch, JournalError, JournalStore, Opened};
use crate::testing_seam::FailPoints;

pub(crate) use outbox::{Outbox, Transcript, Unrecorded};

/// What every incarnation of the writer is started with.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) store: Arc<dyn JournalStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) feed: Feed,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) fail: FailPoints,
}

pub(crate) enum Msg {
    /// Something lies in the outbox.
    Wake,
    Opened(Result<Result<Opened, JournalError>, tokio::task::JoinError>),
    Committed(usize, Result<Committed, JournalError>),
    /// Report when everything that lies in the outbox is in the journal.
    Drain(Report<()>),
}

impl Msg {
    fn kind(&self) -> &'static str {
        match self {
            Msg::Wake => "Wake",
            Msg::Opened(_) => "Opened",
            Msg::Committed(..) => "Committed",
            Msg::Drain(_) => "Drain",
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
    _opening: Beside,
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

    async fn pre_start(&self, me: ActorRef<Msg>, (): ()) -> Started<State> {
        // A store that panics while it opens is a crash like any other, not a failure to start.
        let store = Arc::clone(&self.args.store);
        let opening = beside(&me, async move { store.open().await }, Msg::Opened);
        Ok(State { journal: None, last_record: 0, draining: Vec::new(), _opening: opening })
    }

    async fn handle(&self, me: ActorRef<Msg>, msg: Msg, state: &mut State) -> Handled {
        self.args.fail.hit("TranscriptWriter", msg.kind());
        match msg {
            Msg::Wake => self.submit(&me, state),
            Msg::Opened(Ok(Ok(opened))) => self.opened(&me, opened, state),
            Msg::Opened(Err(died)) => return Err(panic_text(died).into()),
            // The journal is in doubt. The successor opens it again and sees what arrived.
            Msg::Opened(Ok(Err(error))) | Msg::Committed(_, Err(error)) => {
                return Err(Box::new(error));
            }
            Msg::Committed(entries, Ok(committed)) => self.committed(entries, committed, state),
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
    fn opened(&self, me: &ActorRef<Msg>, opened: Opened, state: &mut State) {
        state.last_record = opened.last_record;
        state.journal = Some(opened.journal);
        let arrived = self.args.outbox.reconcile(&opened.recent_ids, opened.last_record);
        for fact in arrived {
            fact.announce(&self.args.feed);
        }
        if let Some(message) = opened.repaired {
            self.args.outbox.warn(message, self.args.clock.wall_ms());
        }
        self.submit(me, state);
    }

    fn submit(&self, me: &ActorRef<Msg>, state: &mut State) {
        let Some(journal) = &state.journal else { return };
        let ready = self.args.outbox.take_ready(&mut state.last_record);
        for fact in ready.passing {
            self.args.feed.publish(fact);
        }
        if ready.entries == 0 {
            return;
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
    }

    fn committed(&self, entries: usize, committed: Committed, state: &State) {
        debug_assert!(committed.last_record <= state.last_record, "the journal ran ahead");
        for fact in self.args.outbox.committed(entries) {
            fact.announce(&self.args.feed);
        }
    }
}
