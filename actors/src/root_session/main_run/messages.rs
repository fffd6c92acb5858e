//! Messages of the user: delivery to a run, and withdrawal.

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::agent_invocation::{self};
use crate::conversation::{ContentPart, Message, MessageId};
use crate::event::Event;
use crate::mailbox::{answer, tell};
use crate::replay::QueuedInput;
use crate::root_session::main_run::{MainRun, MainRunMsg};
use crate::root_session::{DeliverError, Msg, SessionBase, State};

/// Content of a withdrawn message. `None`: it was no longer queued.
pub(crate) type WithdrawnContent = Option<Vec<ContentPart>>;

/// Request to withdraw a queued message.
pub(crate) struct Withdrawal {
    pub(crate) id: MessageId,
    /// True if the current invocation was asked before and ended without a reply, so that its queue
    /// is in the session now.
    pub(crate) again: bool,
    pub(crate) reply: RpcReplyPort<WithdrawnContent>,
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
    /// Withdraws a queued message from the queue of the session or of the current invocation, and
    /// replies with its content; `None` if neither contains it. The withdrawal is recorded.
    pub(crate) fn withdraw_message(&mut self, withdrawal: Withdrawal) {
        let Withdrawal { id, again, reply } = withdrawal;
        if let Some(queued) = self.main_run.withdraw(&id) {
            self.base.transcript.note(None, Event::MessageWithdrawn { message_id: id });
            return answer(reply, Some(queued.content));
        }
        let actor = self.main_run.actor();
        let Some(actor) = actor.filter(|_| !again) else { return answer(reply, None) };
        let (inner, outer) = oneshot::channel();
        let port = RpcReplyPort::from(inner);
        tell(actor, agent_invocation::Msg::Withdraw(id.clone(), port));
        let me = self.base.me.clone();
        tokio::spawn(async move {
            if let Ok(taken) = outer.await {
                return answer(reply, taken);
            }
            let again = Withdrawal { id, again: true, reply };
            tell(&me, Msg::MainRun(MainRunMsg::Withdraw(again)));
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
