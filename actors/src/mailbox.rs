//! Communication between actors: `tell` (no reply), `ask` (wait for a reply), `Report` (one result
//! for the parent), and `spawn_task` (work whose result returns as a message).
//!
//! ractor reports a dead peer in three different forms. Here there is one: `None` for `ask`, and
//! [`Lost`] for a report whose sender died before it sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, Message, RpcReplyPort, SpawnErr};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError};

use crate::guarded::Guarded;

/// Result of starting an actor. `Err` is returned to the spawner.
pub(crate) type StartResult<State> = Result<State, ActorProcessingErr>;

/// Result of a handler. `Err` ends the actor: it means a bug, never a domain failure.
pub(crate) type HandlerResult = Result<(), ActorProcessingErr>;

pub(crate) fn tell<M: Message>(peer: &ActorRef<M>, message: M) {
    peer.cast(message).ok();
}

/// Starts `actor` as a child of `parent`.
pub(crate) async fn spawn_child<A: Actor, M: Message>(
    actor: A,
    args: A::Arguments,
    parent: &ActorRef<M>,
) -> Result<ActorRef<A::Msg>, SpawnErr> {
    Ok(Actor::spawn_linked(None, actor, args, parent.get_cell()).await?.0)
}

/// Starts `actor` as a child of `parent`. `None`: it crashed at once, and its report was dropped with
/// it.
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

/// Asks, and waits no longer than `timeout`. Never from within a handler, except of a leaf that
/// never asks back.
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

/// The sender of a [`Report`] died before it spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

type OneShot<T> = Box<dyn FnOnce(Result<T, Lost>) + Send>;

/// One-shot result of some work. Never silent: if it is dropped unused because its holder crashed,
/// the receiver gets [`Lost`].
///
/// A child receives a `Report`, not its parent's `ActorRef`, and so does not depend on the parent.
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

    /// A report whose result arrives at the receiver.
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

/// A [`Report`] with several holders. The first result counts; [`Lost`] is sent when the last
/// holder is gone.
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

/// Held by everything that works for an actor, so that its supervisor knows when the last of it is
/// gone: a crash is reported before the actor's state is dropped.
#[derive(Clone)]
pub(crate) struct AliveToken(
    #[expect(dead_code, reason = "it is there to be dropped")] mpsc::Sender<Infallible>,
);

/// The other end of a [`AliveToken`].
pub(crate) struct AllGone(mpsc::Receiver<Infallible>);

impl AliveToken {
    pub(crate) fn new() -> (AliveToken, AllGone) {
        let (sender, receiver) = mpsc::channel(1);
        (AliveToken(sender), AllGone(receiver))
    }
}

impl AllGone {
    /// Returns when no [`AliveToken`] is left.
    pub(crate) async fn complete(mut self) {
        while self.0.recv().await.is_some() {}
    }
}

/// Reference to an actor that its supervisor may replace. `None` means that it is gone permanently.
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

    /// The current incarnation, if the actor is running.
    pub(crate) fn current(&self) -> Option<ActorRef<M>> {
        self.0.borrow().clone()
    }

    /// Sends a message to the current incarnation.
    pub(crate) fn tell(&self, message: M) {
        if let Some(peer) = &*self.0.borrow() {
            tell(peer, message);
        }
    }

    /// Sends what `message` makes of a report, again to each successor of an actor that died
    /// with it. `None` if there will be no successor.
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

/// Work done on an actor's behalf. It belongs in the actor's state: dropping it stops the work,
/// so nothing outlives its actor.
#[derive(Debug)]
pub(crate) struct OwnedTask(AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `work` as a task of the actor and sends its result to the actor as a message, also after a
/// panic.
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

/// Text of a panic.
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
