//! Communication between actors: `tell` (no reply), `ask` (wait for a reply), `Report` (one result
//! for the parent), and `spawn_task` (asynchronous work whose result returns as a message).
//!
//! The library `ractor` reports a dead actor in three different forms. This module reduces them to
//! `None` for `ask`, and [`Lost`] for a report that was dropped without a result.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, Message, RpcReplyPort, SpawnErr};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError};

use crate::guarded::Guarded;

/// Result of the start handler of an actor. After `Err` the actor does not run, and its spawner
/// gets the error.
pub(crate) type StartResult<State> = Result<State, ActorProcessingErr>;

/// Result of a message handler. `Err` ends the actor. It means a bug; expected failures are values
/// of messages.
pub(crate) type HandlerResult = Result<(), ActorProcessingErr>;

pub(crate) fn tell<M: Message>(peer: &ActorRef<M>, message: M) {
    peer.cast(message).ok();
}

/// Starts `actor` as a child of `parent`, which supervises it.
pub(crate) async fn spawn_child<A: Actor, M: Message>(
    actor: A,
    args: A::Arguments,
    parent: &ActorRef<M>,
) -> Result<ActorRef<A::Msg>, SpawnErr> {
    Ok(Actor::spawn_linked(None, actor, args, parent.get_cell()).await?.0)
}

/// Starts `actor` as a child of `parent`. Returns `None` if its start handler failed or panicked;
/// its arguments, including any [`Report`], were dropped. Returns `Err` if the actor could not be
/// created at all.
pub(crate) async fn spawn_unless_lost<A: Actor, M: Message>(
    actor: A,
    args: A::Arguments,
    parent: &ActorRef<M>,
) -> Result<Option<ActorRef<A::Msg>>, SpawnErr> {
    match spawn_child(actor, args, parent).await {
        Ok(actor) => Ok(Some(actor)),
        Err(SpawnErr::StartupFailed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn answer<T>(reply: RpcReplyPort<T>, value: T) {
    reply.send(value).ok();
}

/// Sends the request that `message` makes of a reply port, and waits at most `timeout` for the
/// reply. Returns `None` if none arrives, also if the other actor has ended. Not for use in a
/// message handler, unless the other actor never asks back.
pub(crate) async fn ask<M: Message, T: Send + 'static>(
    peer: &ActorRef<M>,
    timeout: Duration,
    message: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Option<T> {
    match peer.call(message, Some(timeout)).await {
        Ok(CallResult::Success(value)) => Some(value),
        Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => None,
    }
}

/// Received in place of a result: the [`Report`] was dropped without a result, usually because its
/// holder crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

type OneShot<T> = Box<dyn FnOnce(Result<T, Lost>) + Send>;

/// Sender of the one result of some work. If it is dropped unused, for example because its holder
/// crashed, the receiver gets [`Lost`].
///
/// A child actor gets a `Report` instead of the `ActorRef` of its parent, so it does not depend on
/// the type of the parent.
pub(crate) struct Report<T>(Option<OneShot<T>>);

impl<T: 'static> Report<T> {
    pub(crate) fn to<M: Message>(
        parent: &ActorRef<M>,
        wrap: impl FnOnce(Result<T, Lost>) -> M + Send + 'static,
    ) -> Report<T> {
        let parent = parent.clone();
        Report::call(move |value| tell(&parent, wrap(value)))
    }

    pub(crate) fn call(line: impl FnOnce(Result<T, Lost>) + Send + 'static) -> Report<T> {
        Report(Some(Box::new(line)))
    }

    /// Creates a report and the receiver of its result.
    pub(crate) fn channel() -> (Report<T>, oneshot::Receiver<Result<T, Lost>>)
    where
        T: Send,
    {
        let (heard, answer) = oneshot::channel();
        let report = Report::call(move |value| {
            heard.send(value).ok();
        });
        (report, answer)
    }

    pub(crate) fn send(mut self, value: T) {
        if let Some(line) = self.0.take() {
            line(Ok(value));
        }
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line(Err(Lost));
        }
    }
}

impl<T> std::fmt::Debug for Report<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

/// A [`Report`] that can be cloned. The first result that any clone sends counts; [`Lost`] is sent
/// when the last clone is dropped and none has sent a result.
pub(crate) struct SharedReport<T>(Arc<Guarded<Option<Report<T>>>>);

impl<T> Clone for SharedReport<T> {
    fn clone(&self) -> SharedReport<T> {
        SharedReport(Arc::clone(&self.0))
    }
}

impl<T: 'static> SharedReport<T> {
    pub(crate) fn new(report: Report<T>) -> SharedReport<T> {
        SharedReport(Arc::new(Guarded::new(Some(report))))
    }

    pub(crate) fn send(&self, value: T) {
        let report = self.0.lock().take();
        if let Some(report) = report {
            report.send(value);
        }
    }
}

/// Token that an actor and all work on its behalf hold. When the last clone is dropped, [`AllGone`]
/// completes. The supervisor needs it because a crash is reported before the state of the actor is
/// dropped.
#[derive(Clone)]
pub(crate) struct AliveToken(
    #[expect(dead_code, reason = "it is there to be dropped")] mpsc::Sender<Infallible>,
);

/// Waits until all clones of an [`AliveToken`] are dropped.
pub(crate) struct AllGone(mpsc::Receiver<Infallible>);

impl AliveToken {
    pub(crate) fn new() -> (AliveToken, AllGone) {
        let (sender, receiver) = mpsc::channel(1);
        (AliveToken(sender), AllGone(receiver))
    }
}

impl AllGone {
    /// Returns when the last clone of the [`AliveToken`] is dropped.
    pub(crate) async fn complete(mut self) {
        while self.0.recv().await.is_some() {}
    }
}

/// Reference to an actor that its supervisor may replace after a crash. The channel contains the
/// last incarnation, which may have just crashed, or `None` if the actor has not started yet or
/// will not run again.
pub(crate) struct SupervisedRef<M>(watch::Receiver<Option<ActorRef<M>>>);

impl<M> Clone for SupervisedRef<M> {
    fn clone(&self) -> SupervisedRef<M> {
        SupervisedRef(self.0.clone())
    }
}

impl<M: Message> SupervisedRef<M> {
    pub(crate) fn new(incarnations: watch::Receiver<Option<ActorRef<M>>>) -> SupervisedRef<M> {
        SupervisedRef(incarnations)
    }

    /// The last incarnation, which may have just crashed; `None` if the actor has not started yet
    /// or will not run again.
    pub(crate) fn current(&self) -> Option<ActorRef<M>> {
        self.0.borrow().clone()
    }

    /// Sends a message to the current incarnation. Without one, or if it has crashed, the message
    /// is lost.
    pub(crate) fn tell(&self, message: M) {
        if let Some(peer) = &*self.0.borrow() {
            tell(peer, message);
        }
    }

    /// Makes a request with `message`, sends it to the current incarnation, and waits for the
    /// result. If the actor dies before it reports a result, the request is made again and sent to
    /// its successor. Returns `None` as soon as there is no incarnation.
    pub(crate) async fn call_until_answered<T: Send + 'static>(
        &self,
        message: impl Fn(Report<T>) -> M,
    ) -> Option<T> {
        let mut incarnations = self.0.clone();
        loop {
            let peer = incarnations.borrow_and_update().clone()?;
            let (report, answer) = Report::channel();
            tell(&peer, message(report));
            drop(peer);
            if let Ok(Ok(value)) = answer.await {
                return Some(value);
            }
            incarnations.changed().await.ok()?;
        }
    }
}

/// Asynchronous task that is aborted when this value is dropped. It belongs in the state of an
/// actor, so that the task does not outlive the actor.
#[derive(Debug)]
pub(crate) struct OwnedTask(AbortHandle);

impl OwnedTask {
    /// Runs `work` as an asynchronous task.
    pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static) -> OwnedTask {
        OwnedTask(tokio::spawn(work).abort_handle())
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `work` as an asynchronous task and sends its result as a message to the actor `me`. `ended`
/// makes the message, also after a panic or an abort. Dropping the returned [`OwnedTask`] aborts
/// the task.
pub(crate) fn spawn_task<M: Message, T: Send + 'static>(
    me: &ActorRef<M>,
    work: impl Future<Output = T> + Send + 'static,
    ended: impl FnOnce(Result<T, JoinError>) -> M + Send + 'static,
) -> OwnedTask {
    let me = me.clone();
    let task = tokio::spawn(work);
    let beside = OwnedTask(task.abort_handle());
    tokio::spawn(async move { tell(&me, ended(task.await)) });
    beside
}

/// The panic message of a task; a fixed text if the panic has no text, or if the task was
/// cancelled.
pub(crate) fn panic_text(died: JoinError) -> String {
    match died.try_into_panic() {
        Ok(payload) => payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned()),
        Err(cancelled) => cancelled.to_string(),
    }
}
