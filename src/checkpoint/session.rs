//! Checkpoints of a running session: the port of the kernel, and the tool that restores.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use posse_actors::ports::{
    CheckpointProgress, CheckpointRequest, CheckpointStore, PortFuture, TakenCheckpoint, Tool,
};
use posse_tools::workspace::Workspace;

use crate::plan::Retention;
use crate::store::{NewCheckpoint, Store, StoreError};
use crate::tool::RestoreTool;

type OpenStore = Box<dyn Fn() -> Result<Store, StoreError> + Send + Sync>;

/// Store of a session, opened by the first use.
pub struct SessionStore {
    store: Mutex<Option<Arc<Store>>>,
    open: OpenStore,
    retention: Retention,
}

impl std::fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionStore").finish_non_exhaustive()
    }
}

impl SessionStore {
    /// The store in `folder` for the workspace of a session. Files larger than `file_bytes_max` are
    /// left out; `retention` applies once a day.
    pub fn new(
        folder: PathBuf,
        workspace: Workspace,
        file_bytes_max: u64,
        retention: Retention,
    ) -> Arc<SessionStore> {
        let open = move || Store::open(folder.clone(), workspace.clone(), file_bytes_max);
        Arc::new(SessionStore { store: Mutex::default(), open: Box::new(open), retention })
    }

    /// The store as a port of the kernel.
    pub fn port(self: &Arc<SessionStore>) -> Arc<dyn CheckpointStore> {
        Arc::new(SessionCheckpoints(Arc::clone(self)))
    }

    /// The tool with which the user restores checkpoints.
    pub fn tool(self: &Arc<SessionStore>) -> Arc<dyn Tool> {
        let shared = Arc::clone(self);
        Arc::new(RestoreTool::new(Arc::new(move || shared.store())))
    }

    fn store(&self) -> Result<Arc<Store>, StoreError> {
        let mut opened = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*opened {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new((self.open)()?);
        *opened = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Stores the state after a run; once a day also removes what is too old.
    fn finish(&self, id: u64) -> Result<(), StoreError> {
        let store = self.store()?;
        store.finish(id)?;
        store.prune_daily(self.retention)?;
        Ok(())
    }
}

/// Runs `work` on a thread that is started at once. The future waits for its end.
fn begin<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> PortFuture<Result<T, String>> {
    let (done, ended) = tokio::sync::oneshot::channel();
    let started =
        std::thread::Builder::new().name("posse-checkpoint".to_owned()).spawn(move || {
            // Nobody waits after the end of the call.
            done.send(work().map_err(|error| error.to_string())).ok();
        });
    Box::pin(async move {
        started.map_err(|error| format!("no thread can be started: {error}"))?;
        ended.await.unwrap_or_else(|_| Err("storing it failed with a bug in posse".to_owned()))
    })
}

#[derive(Debug)]
struct SessionCheckpoints(Arc<SessionStore>);

impl CheckpointStore for SessionCheckpoints {
    fn prepare(&self, progress: CheckpointProgress) {
        let shared = Arc::clone(&self.0);
        // An error is reported by the next checkpoint.
        drop(begin(move || shared.store()?.prepare(&|files, total| progress(files, total))));
    }

    fn take(
        &self,
        request: CheckpointRequest,
        progress: CheckpointProgress,
    ) -> PortFuture<Result<Option<TakenCheckpoint>, String>> {
        let shared = Arc::clone(&self.0);
        begin(move || {
            let new = NewCheckpoint {
                session: request.session_id.as_str(),
                invocation: request.invocation.as_str(),
                title: &request.title,
            };
            let taken = shared.store()?.take(new, &|files, total| progress(files, total))?;
            Ok(Some(TakenCheckpoint {
                id: taken.id,
                files: taken.files,
                bytes: taken.bytes,
                left_out: taken.left_out.describe(),
            }))
        })
    }

    fn finish(&self, id: u64) -> PortFuture<Result<(), String>> {
        let shared = Arc::clone(&self.0);
        begin(move || shared.finish(id))
    }
}
