//! Checkpoints of a session: one before the first effect of each run and of each tool call of the
//! user, another one before a deletion without a question if its files have changed since, and the
//! state after their end.

use std::sync::Arc;

use crate::conversation::{InvocationId, SessionId};
use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::ports::{
    Action, CheckpointCoverage, CheckpointProgress, CheckpointRequest, CheckpointStore,
    NoCheckpoints, Operation, PortFuture,
};
use crate::transcript_writer::Transcript;

/// Title of the checkpoint before an effect that belongs to no run, such as that of a subagent in
/// the background.
const BACKGROUND: &str = "background work";

/// Maximum number of states after runs that are awaited at the end of the session. Earlier ones are
/// stored by then.
const FINISHING_MAX: usize = 8;

/// Checkpoints of a session, shared by its calls.
#[derive(Clone)]
pub(crate) struct Checkpoints {
    store: Arc<dyn CheckpointStore>,
    session_id: SessionId,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    current: Guarded<Current>,
    /// Held while a checkpoint is taken: parallel calls wait for the same one.
    taking: tokio::sync::Mutex<()>,
    finishing: Guarded<Vec<PortFuture<Result<(), String>>>>,
}

/// The run or tool call of the user in progress.
#[derive(Default)]
struct Current {
    /// Number of runs, calls and times between them so far.
    number: u64,
    /// `None` between runs.
    run: Option<(InvocationId, String)>,
    /// True once the present state is being stored.
    is_expected: bool,
    taken: Taken,
}

/// State of the checkpoint before the first effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Taken {
    #[default]
    Not,
    /// Taken; without an id if no checkpoints are taken.
    Done(Option<u64>),
}

impl Checkpoints {
    pub(crate) fn new(store: Arc<dyn CheckpointStore>, session_id: SessionId) -> Checkpoints {
        Checkpoints { store, session_id, shared: Arc::default() }
    }

    /// No checkpoints, for calls that do not change the workspace of the session.
    pub(crate) fn none(session_id: SessionId) -> Checkpoints {
        Checkpoints::new(Arc::new(NoCheckpoints), session_id)
    }

    /// A run or tool call of the user begins.
    pub(crate) fn begin(&self, invocation: InvocationId, title: String) {
        self.change(Some((invocation, title)));
    }

    /// A call of the run in progress begins. The first one starts to store the present state beside
    /// it: a later call may have effects. A run without calls stores nothing.
    pub(crate) fn expect_effects(&self, transcript: &Transcript) {
        let is_first = {
            let mut current = self.shared.current.lock();
            let is_first = current.run.is_some() && !current.is_expected;
            current.is_expected = true;
            is_first
        };
        if is_first {
            self.store.prepare(progress(transcript));
        }
    }

    /// The run or tool call of the user has ended. Starts to store the state that it has left, if it
    /// had effects.
    pub(crate) fn end(&self) {
        self.change(None);
    }

    fn change(&self, run: Option<(InvocationId, String)>) {
        let last = {
            let mut current = self.shared.current.lock();
            let next = Current { number: current.number + 1, run, ..Current::default() };
            std::mem::replace(&mut *current, next)
        };
        if let Taken::Done(Some(id)) = last.taken {
            let finished = self.store.finish(id);
            let mut finishing = self.shared.finishing.lock();
            if finishing.len() >= FINISHING_MAX {
                drop(finishing.remove(0));
            }
            finishing.push(finished);
        }
    }

    /// Takes the checkpoint before the first effect of the run or call in progress, unless it is
    /// taken already. `Err`: reason in words; then no effect may begin.
    pub(crate) async fn ensure(
        &self,
        origin: &Arc<Origin>,
        transcript: &Transcript,
    ) -> Result<(), String> {
        let _alone = self.shared.taking.lock().await;
        self.first(origin, transcript).await.map(drop)
    }

    /// Takes the checkpoint as [`Checkpoints::ensure`] does, and another one if files at or below
    /// `paths` have changed since. Returns true if all these files are in the checkpoint then.
    pub(crate) async fn ensure_covering(
        &self,
        paths: &[String],
        origin: &Arc<Origin>,
        transcript: &Transcript,
    ) -> Result<bool, String> {
        let _alone = self.shared.taking.lock().await;
        let Some(first) = self.first(origin, transcript).await? else { return Ok(false) };
        let covered = |id| self.store.coverage(paths.to_vec(), Some(id));
        if covered(first).await? == CheckpointCoverage::Stored {
            return Ok(true);
        }
        // The changes until now belong to the first checkpoint.
        self.store.finish(first).await?;
        let Some(next) = self.take(origin, transcript).await? else { return Ok(false) };
        Ok(covered(next).await? == CheckpointCoverage::Stored)
    }

    /// Notes in `action` which of its deletions and replacements a checkpoint before it can take
    /// back. Without an answer of the store, none.
    pub(crate) async fn examine_deletions(&self, action: &mut Action) {
        for operation in &mut action.operations {
            let Operation::Execute { deletions, .. } = operation else { continue };
            deletions.are_restorable = self.can_cover(&deletions.paths).await;
            deletions.replaced_are_restorable = self.can_cover(&deletions.replaced).await;
        }
    }

    /// True if there are `paths`, and a checkpoint that is taken now covers all of them.
    async fn can_cover(&self, paths: &[String]) -> bool {
        if paths.is_empty() {
            return false;
        }
        match self.store.coverage(paths.to_vec(), None).await {
            Ok(found) => found != CheckpointCoverage::None,
            Err(error) => {
                tracing::debug!(%error, "checkpoint_coverage_unknown");
                false
            }
        }
    }

    /// Id of the checkpoint before the first effect of the run or call in progress, which is taken
    /// if it is missing. `None`: no checkpoints are taken. To be called with the lock.
    async fn first(
        &self,
        origin: &Arc<Origin>,
        transcript: &Transcript,
    ) -> Result<Option<u64>, String> {
        if let Taken::Done(id) = self.shared.current.lock().taken {
            return Ok(id);
        }
        self.take(origin, transcript).await
    }

    /// Takes a checkpoint of the present state, which becomes that of the run or call in progress.
    async fn take(
        &self,
        origin: &Arc<Origin>,
        transcript: &Transcript,
    ) -> Result<Option<u64>, String> {
        let (number, run) = {
            let current = self.shared.current.lock();
            (current.number, current.run.clone())
        };
        let background = || (origin.invocation_id.clone(), BACKGROUND.to_owned());
        let (invocation, title) = run.unwrap_or_else(background);
        let session_id = self.session_id.clone();
        let request = CheckpointRequest { session_id, invocation: invocation.clone(), title };
        let taken = self.store.take(request, progress(transcript)).await?;
        let id = taken.as_ref().map(|taken| taken.id);
        {
            let mut current = self.shared.current.lock();
            // A run that has ended meanwhile had no effect.
            if current.number == number {
                current.taken = Taken::Done(id);
            }
        }
        if let Some(taken) = taken {
            let event = Event::CheckpointCreated {
                checkpoint: taken.id,
                run: invocation,
                files: taken.files,
                bytes: taken.bytes,
                left_out: taken.left_out,
            };
            transcript.note(Some(origin), event);
        }
        Ok(id)
    }

    /// Waits until the states after all runs are stored, and no process works for the store any
    /// more. Errors become warnings.
    pub(crate) async fn settle(&self, transcript: &Transcript) {
        self.end();
        let finishing = std::mem::take(&mut *self.shared.finishing.lock());
        for finished in finishing {
            if let Err(reason) = finished.await {
                let message = format!("the state after the last changes is not stored: {reason}");
                transcript.note(None, Event::Warning { message });
            }
        }
        self.store.close().await;
    }
}

fn progress(transcript: &Transcript) -> CheckpointProgress {
    let transcript = transcript.clone();
    Arc::new(move |files, total| {
        transcript.note(None, Event::CheckpointProgress { files, total });
    })
}
