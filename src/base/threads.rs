//! Blocking work on threads, also when the system refuses to start one.
//!
//! The blocking threads of Tokio panic in the caller if the first of them cannot be started.

use std::any::Any;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::Builder;

/// Panic of work on another thread.
pub type WorkPanic = Box<dyn Any + Send>;

/// Function that starts a thread which runs the given work.
type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Runs `work` on a thread of its own and returns its result, or its panic. If the system refuses a
/// thread, `work` runs on the calling one. Dropping the future does not stop `work`.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkPanic> {
    run_with(start, work).await
}

fn start(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    Builder::new().name("posse-work".to_owned()).spawn(work).map(drop)
}

/// Work that is not done yet, its result, and the task that waits for it.
struct SharedWork<F, T> {
    work: Option<F>,
    result: Option<Result<T, WorkPanic>>,
    waker: Option<Waker>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the work if it has not been taken, and wakes the task that waits for the result.
fn perform<F: FnOnce() -> T, T>(shared: &Mutex<SharedWork<F, T>>) {
    let Some(work) = lock(shared).work.take() else { return };
    let result = catch_unwind(AssertUnwindSafe(work));
    let mut shared = lock(shared);
    shared.result = Some(result);
    if let Some(waker) = shared.waker.take() {
        waker.wake();
    }
}

async fn run_with<T, F>(start: StartThread, work: F) -> Result<T, WorkPanic>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let shared = SharedWork { work: Some(work), result: None, waker: None };
    let shared = Arc::new(Mutex::new(shared));
    let of_thread = Arc::clone(&shared);
    // A refused start drops the closure, but not the work.
    if start(Box::new(move || perform(&of_thread))).is_err() {
        perform(&shared);
    }
    poll_fn(|context| {
        let mut shared = lock(&shared);
        if let Some(result) = shared.result.take() {
            return Poll::Ready(result);
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

/// True if `count` threads can be started now, beside those that run. For libraries that panic if
/// they cannot start their threads.
pub fn can_start(count: usize) -> bool {
    let (mut started, mut held) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let (release, wait) = channel::<()>();
        // The thread lives until all have been started.
        let thread = Builder::new().stack_size(64 << 10).spawn(move || wait.recv().is_ok());
        let Ok(thread) = thread else { break };
        started.push(thread);
        held.push(release);
    }
    drop(held);
    let is_enough = started.len() == count;
    for thread in started {
        thread.join().ok();
    }
    is_enough
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::{Receiver, Sender};
    use std::task::Context;
    use std::thread::ThreadId;

    use super::*;

    /// Awaits a future on this thread.
    fn wait<T>(future: impl Future<Output = T>) -> T {
        struct Notify(Mutex<Sender<()>>);
        impl std::task::Wake for Notify {
            fn wake(self: Arc<Self>) {
                lock(&self.0).send(()).ok();
            }
        }
        let (sender, woken): (_, Receiver<()>) = channel();
        let waker = Arc::new(Notify(Mutex::new(sender))).into();
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => woken.recv().unwrap(),
            }
        }
    }

    fn current() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn work_runs_on_a_thread_or_here_if_there_is_none() {
        assert_ne!(wait(run(current)).unwrap(), current());
        let refuse: StartThread = |_| Err(io::Error::from_raw_os_error(11));
        assert_eq!(wait(run_with(refuse, current)).unwrap(), current());
    }

    #[test]
    fn panic_of_work_is_an_error() {
        let panics = || -> u8 { std::panic::resume_unwind(Box::new("why")) };
        let refuse: StartThread = |_| Err(io::Error::from_raw_os_error(11));
        for start in [start, refuse] {
            let panic = wait(run_with(start, panics)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"why"));
        }
    }

    #[test]
    fn some_threads_can_be_started() {
        assert!(can_start(0) && can_start(3));
    }
}
