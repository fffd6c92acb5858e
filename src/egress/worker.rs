//! Thread of the proxy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;

use tokio::sync::mpsc;

use crate::lock::lock;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Thread that moves the bytes of all connections, so that a fast transfer does not delay the
/// session. It starts with the first task and ends with this value. If it cannot be started, or has
/// ended by a panic of the runtime, the next task starts another one.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    tasks: Mutex<Option<mpsc::UnboundedSender<Task>>>,
}

impl Worker {
    /// Runs `task` on the thread. Returns false if there is no thread, which drops the task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut tasks = lock(&self.tasks);
        let mut task: Task = Box::pin(task);
        if let Some(running) = &*tasks {
            match running.send(task) {
                Ok(()) => return true,
                Err(returned) => task = returned.0,
            }
        }
        *tasks = start();
        tasks.as_ref().is_some_and(|running| running.send(task).is_ok())
    }
}

fn start() -> Option<mpsc::UnboundedSender<Task>> {
    let (sender, mut tasks) = mpsc::unbounded_channel::<Task>();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async move {
                while let Some(task) = tasks.recv().await {
                    // A panic ends its task alone.
                    tokio::spawn(task);
                }
            }),
            Err(error) => tracing::warn!(%error, "the network proxy cannot run"),
        }
    };
    match std::thread::Builder::new().name("posse-egress".to_owned()).spawn(work) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::warn!(%error, "the network proxy has no thread");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_task_alone() {
        let worker = Worker::default();
        assert!(worker.spawn(async { panic!("as intended") }));
        let (done, ended) = oneshot::channel();
        assert!(worker.spawn(async move { done.send(()).unwrap() }));
        ended.await.unwrap();
    }
}
