//! Recovery of the main invocation after a crash: it is rebuilt from the journal.

use std::sync::Arc;

use crate::agent_invocation::Resumed;
use crate::agent_invocation::ended_event;
use crate::conversation::InvocationId;
use crate::event::Origin;
use crate::mailbox::{AllGone, HandlerResult, OwnedTask, panic_text, spawn_task};
use crate::outcome::Ending;
use crate::ports::{JournalError, JournalStore};
use crate::replay::{OpenCall, OpenQuestion, Replay, Replayed};
use crate::root_session::main_run::resume::{self, OpenCalls, closed_event};
use crate::root_session::main_run::{MainInvocation, MainRunMsg};
use crate::root_session::{Msg, SessionBase, State};

/// Maximum number of records per read when an invocation is rebuilt.
const RECORDS_AT_A_TIME: u64 = 1024;

impl State {
    /// Ends a main invocation that has no actor to do so: records the end, queues its undelivered
    /// messages, and reports the outcome. `resumed`: its replies, tokens and queued messages so
    /// far.
    pub(crate) fn conclude_for(&mut self, main: MainInvocation, ending: Ending, resumed: Resumed) {
        let Resumed { queued, turns, usage, .. } = resumed;
        let event = ended_event(&ending, turns, usage);
        self.base.transcript.note(Some(&main.origin), event);
        self.main_run.queued.extend(queued);
        self.conclude(main, ending, turns, usage);
    }

    /// Starts to rebuild the crashed main invocation from the journal. Parks the session if its
    /// restart budget is used up. No effect without a current invocation.
    pub(crate) fn main_crashed(&mut self, cause: &str) {
        let Some(main) = &mut self.main_run.invocation else { return };
        main.actor = None;
        let (id, absence) = (main.origin.invocation_id.clone(), main.absence.take());
        // Its request would continue to cost money without a receiver.
        self.supervised.cancel_requests(&id);
        if !self.base.spend("AgentInvocation", &mut self.main_run.restarts, cause) {
            return self.park("AgentInvocation", cause);
        }
        main.rereading = Some(self.base.read_back(&id, absence, |id, replayed| {
            Msg::MainRun(MainRunMsg::Reread(id, replayed))
        }));
    }

    pub(crate) async fn reread(
        &mut self,
        id: &InvocationId,
        replayed: Result<Replayed, String>,
    ) -> HandlerResult {
        let theirs =
            |main: &mut MainInvocation| main.origin.invocation_id == *id && main.actor.is_none();
        let Some(mut main) = self.main_run.invocation.take_if(theirs) else { return Ok(()) };
        main.rereading = None;
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(failed) => {
                self.conclude_for(main, journal_failed(failed), Resumed::default());
                return Ok(());
            }
        };
        let left = match main.stopping {
            None => self.subagents.open_calls_of(&main.origin, &replayed, false),
            Some(_) => OpenCalls::default(),
        };
        self.base.close_open_calls(&main.origin, &replayed, &left);
        let Replayed { messages, queued, turns, usage, compacted, .. } = replayed;
        let pending = resume::pending(&messages, &left);
        // The history of a run after a compaction is complete.
        if compacted {
            main.base = 0;
        }
        self.main_run.history.truncate(main.base);
        self.main_run.history.extend(messages);
        let resumed = Resumed { pending, queued, turns, usage, ..Resumed::default() };
        if let Some(ending) = main.stopping.take() {
            self.conclude_for(main, ending, resumed);
            return Ok(());
        }
        self.start_invocation(&mut main, resumed).await?;
        self.main_run.invocation = Some(main);
        Ok(())
    }
}

impl SessionBase {
    /// Folds all records of an invocation from the journal, when nothing of its last incarnation is
    /// left and its records are written. The result returns as the message that `message` makes.
    pub(crate) fn read_back(
        &self,
        id: &InvocationId,
        absence: Option<AllGone>,
        message: impl FnOnce(InvocationId, Box<Result<Replayed, String>>) -> Msg + Send + 'static,
    ) -> OwnedTask {
        let (transcript, store) = (self.transcript.clone(), Arc::clone(&self.ports.journal));
        let (whose, told) = (id.clone(), id.clone());
        let read = async move {
            // The crash is reported before its last tool is dropped: effects until then belong into
            // the history.
            if let Some(absence) = absence {
                absence.complete().await;
            }
            transcript.drained().await;
            records_of(&*store, &whose).await.map_err(|error| error.to_string())
        };
        spawn_task(&self.me, read, |read| {
            message(told, Box::new(read.unwrap_or_else(|died| Err(panic_text(died)))))
        })
    }

    /// Records ends for the open calls of a crashed or resumed invocation, except those in `left`.
    /// Withdraws its open permission requests, except those in `left` and those that this process
    /// has shown. The recorded results equal the placeholders in the folded history.
    pub(crate) fn close_open_calls(
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

/// Folds all records of an invocation in the journal.
async fn records_of(store: &dyn JournalStore, id: &InvocationId) -> Result<Replayed, JournalError> {
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

pub(crate) fn journal_failed(cause: String) -> Ending {
    Ending::Failed { class: "journal".to_owned(), cause }
}
