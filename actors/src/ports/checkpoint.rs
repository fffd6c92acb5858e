//! Port for checkpoints of the workspace, to which a user can return.

use std::fmt;
use std::sync::Arc;

use crate::conversation::{InvocationId, SessionId};
use crate::ports::PortFuture;

/// Receives the progress of a checkpoint: number of files that are stored, and of those that have to
/// be stored.
pub type CheckpointProgress = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Description of a checkpoint that is to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// Id of the session.
    pub session_id: SessionId,
    /// Run or tool call of the user before whose first effect the checkpoint is taken.
    pub invocation: InvocationId,
    /// The prompt, or a description of the call.
    pub title: String,
}

/// A checkpoint that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenCheckpoint {
    /// Number of the checkpoint in its project.
    pub id: u64,
    /// Number of files.
    pub files: usize,
    /// Number of bytes of all files.
    pub bytes: u64,
    /// Files that the checkpoint does not contain, in words. Empty if it contains all.
    pub left_out: String,
}

/// Coverage of files by checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointCoverage {
    /// A checkpoint could not bring back all of them as they are, or one is missing.
    None,
    /// A checkpoint that is taken now could bring back all of them as they are.
    Possible,
    /// The checkpoint in question can bring back all of them as they are.
    Stored,
}

/// Store of the checkpoints of a workspace.
pub trait CheckpointStore: fmt::Debug + Send + Sync + 'static {
    /// Begins to store the present state, so that the next checkpoint has little to store. Does not
    /// wait, and reports no error: the next checkpoint will.
    fn prepare(&self, progress: CheckpointProgress);

    /// Takes a checkpoint of the present state. `Ok(None)`: no checkpoints are taken. `Err`: reason
    /// in words.
    fn take(
        &self,
        request: CheckpointRequest,
        progress: CheckpointProgress,
    ) -> PortFuture<Result<Option<TakenCheckpoint>, String>>;

    /// Begins to store the present state as that after the effects of checkpoint `id`. The future
    /// waits for the end. `Err`: reason in words.
    fn finish(&self, id: u64) -> PortFuture<Result<(), String>>;

    /// Finds out if a checkpoint covers all files at and below the absolute `paths` as they are now:
    /// checkpoint `id`, or one that is taken now. `Err`: reason in words.
    fn coverage(
        &self,
        paths: Vec<String>,
        id: Option<u64>,
    ) -> PortFuture<Result<CheckpointCoverage, String>>;

    /// Ends the work that [`CheckpointStore::prepare`] began and no call waits for. The future waits
    /// until no process works for the store.
    fn close(&self) -> PortFuture<()>;
}

/// Store that takes no checkpoints.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCheckpoints;

impl NoCheckpoints {
    /// This store as a port.
    pub fn port() -> Arc<dyn CheckpointStore> {
        Arc::new(NoCheckpoints)
    }
}

impl CheckpointStore for NoCheckpoints {
    fn prepare(&self, _: CheckpointProgress) {}

    fn take(
        &self,
        _: CheckpointRequest,
        _: CheckpointProgress,
    ) -> PortFuture<Result<Option<TakenCheckpoint>, String>> {
        Box::pin(async { Ok(None) })
    }

    fn finish(&self, _: u64) -> PortFuture<Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn coverage(
        &self,
        _: Vec<String>,
        _: Option<u64>,
    ) -> PortFuture<Result<CheckpointCoverage, String>> {
        Box::pin(async { Ok(CheckpointCoverage::None) })
    }

    fn close(&self) -> PortFuture<()> {
        Box::pin(async {})
    }
}
