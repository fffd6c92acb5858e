//! Checkpoints of a running session: the port of the kernel, and the tool that restores.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posse_actors::ports::{
    CheckpointCoverage, CheckpointProgress, CheckpointRequest, CheckpointStore, PortFuture,
    TakenCheckpoint, Tool,
};
use posse_base::threads;
use posse_tools::reads::ReadTable;
use posse_tools::workspace::Workspace;

use crate::plan::Retention;
use crate::store::{NewCheckpoint, Store, StoreError};
use crate::tool::RestoreTool;

/// Maximum time for which the end of a session waits for work on the store that no call waits for.
const CLOSE_MAX: Duration = Duration::from_secs(10);

type OpenStore = Box<dyn Fn() -> Result<Store, StoreError> + Send + Sync>;

/// Store of a session, opened by the first use.
pub struct SessionStore {
    store: Mutex<Option<Arc<Store>>>,
    open: OpenStore,
    retention: Option<Retention>,
    work: Arc<WorkCount>,
    is_closed: AtomicBool,
}

/// Number of threads that work on a store.
#[derive(Debug, Default)]
struct WorkCount {
    running: Mutex<usize>,
    ended: Condvar,
}

impl WorkCount {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a thread until the result is dropped.
    fn begin(self: &Arc<WorkCount>) -> RunningWork {
        *self.lock() += 1;
        RunningWork(Arc::clone(self))
    }

    /// Waits until no thread works, at most `max`.
    fn wait(&self, max: Duration) {
        let waited = self.ended.wait_timeout_while(self.lock(), max, |running| *running > 0);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::warn!("checkpoint_work_unfinished");
        }
    }
}

/// A thread that works on a store.
struct RunningWork(Arc<WorkCount>);

impl Drop for RunningWork {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

impl std::fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionStore").finish_non_exhaustive()
    }
}

impl SessionStore {
    /// The store in `folder` for the workspace of a session. Files larger than `file_bytes_max` are
    /// left out; `retention` applies once a day. `None`: the folder is removed with the session, so
    /// that no checkpoint of it is a reason to delete a file unasked. `marks`: see [`Store::open`].
    pub fn new(
        folder: PathBuf,
        workspace: Workspace,
        file_bytes_max: u64,
        retention: Option<Retention>,
        marks: PathBuf,
    ) -> Arc<SessionStore> {
        let open =
            move || Store::open(folder.clone(), workspace.clone(), file_bytes_max, marks.clone());
        let (open, work) = (Box::new(open), Arc::default());
        let (store, is_closed) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(SessionStore { store, open, retention, work, is_closed })
    }

    /// The store as a port of the kernel.
    pub fn port(self: &Arc<SessionStore>) -> Arc<dyn CheckpointStore> {
        Arc::new(SessionCheckpoints(Arc::clone(self)))
    }

    /// The tool with which the user restores checkpoints. It records restored files in `reads`.
    pub fn tool(self: &Arc<SessionStore>, reads: Arc<ReadTable>) -> Arc<dyn Tool> {
        let shared = Arc::clone(self);
        Arc::new(RestoreTool::new(Arc::new(move || shared.store()), reads))
    }

    fn store(&self) -> Result<Arc<Store>, StoreError> {
        let mut opened = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped);
        }
        if let Some(store) = &*opened {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new((self.open)()?);
        *opened = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Runs `work` on a thread that is started at once. The future waits for its end.
    fn begin<T: Send + 'static>(
        self: &Arc<SessionStore>,
        work: impl FnOnce(&SessionStore) -> Result<T, StoreError> + Send + 'static,
    ) -> PortFuture<Result<T, String>> {
        let (done, ended) = tokio::sync::oneshot::channel();
        let (shared, running) = (Arc::clone(self), self.work.begin());
        let started =
            std::thread::Builder::new().name("posse-checkpoint".to_owned()).spawn(move || {
                let _running = running;
                // The receiver is gone if the call has ended meanwhile.
                done.send(work(&shared).map_err(|error| error.to_string())).ok();
            });
        Box::pin(async move {
            started.map_err(|error| format!("no thread can be started: {error}"))?;
            ended.await.unwrap_or_else(|_| Err("storing it failed with a bug in posse".to_owned()))
        })
    }

    /// Gives up the work that is still running, and waits for its end.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(store) = &*self.store.lock().unwrap_or_else(PoisonError::into_inner) {
            store.stop();
        }
        self.work.wait(CLOSE_MAX);
    }

    /// Stores the state after a run; once a day also removes what is too old.
    fn finish(&self, id: u64) -> Result<(), StoreError> {
        let store = self.store()?;
        store.finish(id)?;
        if let Some(retention) = self.retention {
            store.prune_daily(retention)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SessionCheckpoints(Arc<SessionStore>);

impl CheckpointStore for SessionCheckpoints {
    fn prepare(&self, progress: CheckpointProgress) {
        // An error is reported by the next checkpoint.
        drop(
            self.0.begin(move |shared| {
                shared.store()?.prepare(&|files, total| progress(files, total))
            }),
        );
    }

    fn take(
        &self,
        request: CheckpointRequest,
        progress: CheckpointProgress,
    ) -> PortFuture<Result<Option<TakenCheckpoint>, String>> {
        self.0.begin(move |shared| {
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
        self.0.begin(move |shared| shared.finish(id))
    }

    fn coverage(
        &self,
        paths: Vec<String>,
        id: Option<u64>,
    ) -> PortFuture<Result<CheckpointCoverage, String>> {
        self.0.begin(move |shared| {
            let store = shared.store()?;
            let Some(retention) = shared.retention else { return Ok(CheckpointCoverage::None) };
            if id.is_none() && !store.can_hold(retention)? {
                return Ok(CheckpointCoverage::None);
            }
            store.coverage(&paths, id)
        })
    }

    fn close(&self) -> PortFuture<()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            // A panic of it has nothing to report to.
            threads::run(move || shared.close()).await.ok();
        })
    }
}
