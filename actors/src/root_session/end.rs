//! End of the session: its last record, and the end of its event stream.

use std::sync::Arc;

use ractor::ActorRef;

use crate::conversation::SessionId;
use crate::cost::usd;
use crate::event::{AnnouncedEvent, Durability, Event};
use crate::mailbox::{Report, spawn_task};
use crate::outcome::Ending;
use crate::permission_coordinator as permission;
use crate::ports::{BackgroundScope, Clock};
use crate::root_session::main_run::Reach;
use crate::root_session::{Msg, RootSession, SessionEnding, State};
use crate::subscription::Feed;
use crate::transcript_writer;

/// Messages about the end.
pub(super) enum EndMsg {
    End(SessionEnding, Report<()>),
    /// The last record is written.
    Closed,
}

impl EndMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            EndMsg::End(..) => "End",
            EndMsg::Closed => "Closed",
        }
    }
}

/// Ends the event stream in every case.
pub(super) struct EndNotifier {
    feed: Feed,
    session_id: SessionId,
    clock: Arc<dyn Clock>,
}

impl Drop for EndNotifier {
    fn drop(&mut self) {
        if self.feed.is_closed() {
            return;
        }
        let (actor, cause) = ("RootSession".to_owned(), "the session itself crashed".to_owned());
        self.feed.publish(AnnouncedEvent::Ephemeral {
            ts: self.clock.wall_ms(),
            session_id: self.session_id.clone(),
            origin: None,
            event: Event::ActorCrashed { actor, cause },
        });
        self.feed.close();
    }
}

impl RootSession {
    pub(super) async fn handle_end(&self, me: &ActorRef<Msg>, msg: EndMsg, state: &mut State) {
        match msg {
            EndMsg::End(ending, done) => self.end(me, ending, done, state),
            EndMsg::Closed => self.closed(me, state).await,
        }
    }

    pub(super) fn end_notifier(&self) -> EndNotifier {
        EndNotifier {
            feed: self.feed.clone(),
            session_id: self.settings.session_id.clone(),
            clock: Arc::clone(&self.ports.clock),
        }
    }

    fn end(&self, me: &ActorRef<Msg>, ending: SessionEnding, done: Report<()>, state: &mut State) {
        if let Some((_, waiting)) = &mut state.ending {
            waiting.push(done);
            return;
        }
        state.ending = Some((ending, vec![done]));
        self.give_up_summary(state);
        // An ending session does not wait for disk space.
        self.outbox.hurry();
        state.writer.tell(|| transcript_writer::Msg::Wake);
        if state.main.is_some() || state.own_call.is_some() || state.subagents.any_live() {
            self.stop(me, Reach::All, Ending::Interrupted, state);
        } else {
            self.close(me, state);
        }
    }

    /// Writes the last record. The writer is the last actor to stop.
    pub(super) fn close(&self, me: &ActorRef<Msg>, state: &mut State) {
        let Some(reason) = state.ending.as_ref().map(|(ending, _)| ending.reason.clone()) else {
            return;
        };
        if self.awaits_title(me, &reason, state) {
            return;
        }
        let Some((ending, _)) = &state.ending else { return };
        let spent = &state.budget_keeper.accounts().total;
        let event = Event::SessionEnded {
            reason: ending.reason.clone(),
            exit_code: ending.exit_code,
            usage: spent.usage,
            cost_usd: spent.cost().map(usd),
            cost_nano_usd: spent.known(),
            unpriced_requests: spent.unpriced,
            turns: state.turns,
            result: ending.result.clone(),
        };
        let (transcript, feed) = (self.transcript.clone(), self.feed.clone());
        let passing = AnnouncedEvent::Ephemeral {
            ts: self.ports.clock.wall_ms(),
            session_id: self.settings.session_id.clone(),
            origin: None,
            event: event.clone(),
        };
        let permissions = state.coordinator.line();
        let hooks = self.closing_hooks(&ending.reason);
        let released = self.release_and_wait(&BackgroundScope::Session);
        let last = async move {
            // The end of background work is recorded before the session's own end.
            released.await;
            if let Some(hooks) = hooks {
                hooks.await;
            }
            // The withdrawal of a permission request may still be queued.
            permissions.call_until_answered(permission::Msg::Settle).await;
            // If recording is impossible, observers are still informed of the end.
            if transcript.record(None, event, Durability::Synced).await.is_err() {
                feed.publish(passing);
            }
            feed.close();
        };
        state.closing = Some(spawn_task(me, last, |_| Msg::End(EndMsg::Closed)));
    }

    async fn closed(&self, me: &ActorRef<Msg>, state: &mut State) {
        me.get_cell().stop_children_and_wait(None, Some(self.settings.limits.ask_timeout)).await;
        if let Some((_, waiting)) = state.ending.take() {
            for done in waiting {
                done.send(());
            }
        }
        me.stop(None);
    }
}
