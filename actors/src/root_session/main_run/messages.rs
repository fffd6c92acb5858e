//! Messages of the user: delivery to a run, withdrawal, and changes of the queue.

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::agent_invocation::{self};
use crate::conversation::{Message, MessageId};
use crate::event::Event;
use crate::mailbox::{answer, tell};
use crate::replay::{QueuedInput, replace_queued};
use crate::root_session::main_run::{MainRun, MainRunMsg};
use crate::root_session::{DeliverError, Msg, SessionBase, State};

/// Messages that were removed from the queue. `None`: one of them was no longer queued, and nothing
/// was changed.
pub(crate) type RemovedMessages = Option<Vec<QueuedInput>>;

/// Request to remove queued messages and to queue others instead.
pub(crate) struct QueueReplacement {
    pub(crate) ids: Vec<MessageId>,
    pub(crate) next: Vec<QueuedInput>,
    /// True if the current invocation was asked before and ended without a reply, so that its queue
    /// is in the session now.
    pub(crate) again: bool,
    pub(crate) reply: RpcReplyPort<RemovedMessages>,
}

pub(crate) fn deliver(
    queued: QueuedInput,
    reply: RpcReplyPort<Result<(), DeliverError>>,
    run: &MainRun,
) {
    let actor = run.actor();
    let Some(actor) = actor else { return answer(reply, Err(DeliverError::Idle)) };
    // The invocation replies directly, because a session never waits.
    let (inner, outer) = oneshot::channel();
    let port = RpcReplyPort::from(inner);
    tell(actor, agent_invocation::Msg::Deliver(queued, port));
    tokio::spawn(async move {
        let delivered = outer.await;
        answer(
            reply,
            match delivered {
                Ok(Ok(())) => Ok(()),
                Ok(Err(agent_invocation::QueueFull)) => Err(DeliverError::Full),
                Err(_) => Err(DeliverError::Idle),
            },
        );
    });
}

impl State {
    /// Replaces messages in the queue of the session or of the current invocation, and replies with
    /// those that were removed; `None` if neither contains all of them. The change is recorded.
    pub(crate) fn replace_queued(&mut self, replacement: QueueReplacement) {
        let QueueReplacement { ids, next, again, reply } = replacement;
        if let Some(taken) = replace_queued(&mut self.main_run.queued, &ids, next.clone()) {
            let gone = ids.into_iter().map(|message_id| Event::MessageWithdrawn { message_id });
            for event in gone.chain(next.iter().map(QueuedInput::event)) {
                self.base.transcript.note(None, event);
            }
            return answer(reply, Some(taken));
        }
        let actor = self.main_run.actor();
        let Some(actor) = actor.filter(|_| !again) else { return answer(reply, None) };
        let (inner, outer) = oneshot::channel();
        let port = RpcReplyPort::from(inner);
        let message = agent_invocation::Msg::ReplaceQueued(ids.clone(), next.clone(), port);
        tell(actor, message);
        let me = self.base.me.clone();
        tokio::spawn(async move {
            if let Ok(taken) = outer.await {
                return answer(reply, taken);
            }
            let again = QueueReplacement { ids, next, again: true, reply };
            tell(&me, Msg::MainRun(MainRunMsg::ReplaceQueued(again)));
        });
    }
}

impl SessionBase {
    /// Moves queued messages about tool calls of the user into the history, and records their
    /// delivery.
    pub(crate) fn append_own_calls(&self, run: &mut MainRun) {
        for QueuedInput { id, kind: _, content } in run.take_asides() {
            run.history.push(Message::User { content: content.clone() }.into());
            let delivered = Event::MessageDelivered { message_id: id.clone() };
            self.transcript.note(None, delivered);
            self.transcript.note(None, Event::UserMessage { content, message_id: Some(id) });
        }
    }
}
