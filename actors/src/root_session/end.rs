//! End of the session: the last record, and the end of the event stream.

use std::sync::Arc;

use crate::conversation::SessionId;
use crate::cost::usd;
use crate::event::{AnnouncedEvent, Durability, Event};
use crate::mailbox::{OwnedTask, Report, spawn_task};
use crate::outcome::Ending;
use crate::permission_coordinator as permission;
use crate::ports::{BackgroundScope, Clock};
use crate::root_session::main_run::stop::Reach;
use crate::root_session::{Msg, PromptError, SessionBase, SessionEnding, State};
use crate::subscription::Feed;

/// Messages about the end of the session.
#[derive(strum::IntoStaticStr)]
pub(super) enum EndMsg {
    End(SessionEnding, Report<()>),
    /// The last record is written, or cannot be written.
    Closed,
}

/// State of the session's end.
pub(super) struct SessionEnd {
    /// The requested ending; `None` while the session is not ending.
    ending: Option<SessionEnding>,
    /// Reports to the callers that wait for the end of the session.
    waiting: Vec<Report<()>>,
    /// Reason why the session is parked: an actor crashed too often. `None` if it is not parked.
    pub(super) parked: Option<String>,
    /// Task that writes the last record; `None` before it starts.
    closing: Option<OwnedTask>,
    _observed: EndNotifier,
}

impl SessionEnd {
    /// Stores a request to end the session; the first one determines the ending. Returns false if
    /// the session is ending already.
    fn begin(&mut self, ending: SessionEnding, done: Report<()>) -> bool {
        self.waiting.push(done);
        let is_first = self.ending.is_none();
        self.ending.get_or_insert(ending);
        is_first
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns an error if the session accepts no work, because it is ending or parked.
    pub(super) fn refusal(&self) -> Result<(), PromptError> {
        match (&self.ending, &self.parked) {
            (Some(_), _) => Err(PromptError::Ended),
            (None, Some(cause)) => Err(PromptError::Parked(cause.clone())),
            (None, None) => Ok(()),
        }
    }
}

/// Guard that, when dropped, announces a crash of the session and closes the event stream, unless
/// the stream is closed already.
struct EndNotifier {
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

impl State {
    pub(super) async fn handle_end(&mut self, msg: EndMsg) {
        match msg {
            EndMsg::End(ending, done) => self.end(ending, done),
            EndMsg::Closed => self.closed().await,
        }
    }

    fn end(&mut self, ending: SessionEnding, done: Report<()>) {
        if !self.end.begin(ending, done) {
            return;
        }
        self.give_up_summary();
        // An ending session does not wait for disk space.
        self.base.outbox.stop_waiting();
        self.supervised.wake_writer();
        if self.main_run.is_busy() || self.subagents.any_live() {
            self.stop(Reach::All, Ending::Interrupted);
        } else {
            self.close();
        }
    }

    /// Starts to close the session if it is ending, and no run, tool call of the user or subagent
    /// is in progress.
    pub(super) fn close_if_idle(&mut self) {
        if self.end.is_ending() && !self.main_run.is_busy() && !self.subagents.any_live() {
            self.close();
        }
    }

    /// Starts to close the session: stops background work, runs the hooks for its end, and writes
    /// the last record. Does nothing if the session is not ending, or waits for its title: the end
    /// of that wait calls this function again.
    pub(super) fn close(&mut self) {
        let Some(ending) = self.end.ending.clone() else { return };
        if self.awaits_title(&ending.reason) {
            return;
        }
        let spent = &self.budget.keeper.accounts().total;
        let event = Event::SessionEnded {
            reason: ending.reason.clone(),
            exit_code: ending.exit_code,
            usage: spent.usage,
            cost_usd: spent.cost().map(usd),
            cost_nano_usd: spent.known_cost(),
            unpriced_requests: spent.unpriced,
            turns: self.main_run.turns,
            result: ending.result,
            error: ending.error,
        };
        let (transcript, feed) = (self.base.transcript.clone(), self.base.feed.clone());
        let passing = self.base.ephemeral(event.clone());
        let permissions = self.supervised.coordinator_line();
        let hooks = self.base.closing_hooks(&ending.reason);
        let released = self.base.release_and_wait(&BackgroundScope::Session);
        let checkpoints = self.base.services.checkpoints.clone();
        let last = async move {
            // The end of background work is recorded before the session's own end.
            released.await;
            checkpoints.settle(&transcript).await;
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
        self.end.closing = Some(spawn_task(&self.base.me, last, |_| Msg::End(EndMsg::Closed)));
    }

    async fn closed(&mut self) {
        self.base
            .me
            .get_cell()
            .stop_children_and_wait(None, Some(self.base.settings.limits.ask_timeout))
            .await;
        for done in std::mem::take(&mut self.end.waiting) {
            done.send(());
        }
        self.base.me.stop(None);
    }
}

impl SessionBase {
    /// `event` as an announcement for observers that is not recorded.
    pub(super) fn ephemeral(&self, event: Event) -> AnnouncedEvent {
        let (ts, session_id) = (self.ports.clock.wall_ms(), self.settings.session_id.clone());
        AnnouncedEvent::Ephemeral { ts, session_id, origin: None, event }
    }

    pub(super) fn session_end(&self) -> SessionEnd {
        let observed = EndNotifier {
            feed: self.feed.clone(),
            session_id: self.settings.session_id.clone(),
            clock: Arc::clone(&self.ports.clock),
        };
        SessionEnd {
            ending: None,
            waiting: Vec::new(),
            parked: None,
            closing: None,
            _observed: observed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TokioClock;

    fn end() -> SessionEnd {
        let observed = EndNotifier {
            feed: Feed::new(SessionId::new("s")),
            session_id: SessionId::new("s"),
            clock: Arc::new(TokioClock::default()),
        };
        SessionEnd {
            ending: None,
            waiting: Vec::new(),
            parked: None,
            closing: None,
            _observed: observed,
        }
    }

    fn ending(reason: &str) -> SessionEnding {
        SessionEnding { reason: reason.to_owned().into(), exit_code: 0, result: None, error: None }
    }

    #[test]
    fn ended_or_parked_session_accepts_no_work() {
        let why = || "it crashed".to_owned();
        let table = [
            (false, None, Ok(())),
            (false, Some(why()), Err(PromptError::Parked(why()))),
            (true, None, Err(PromptError::Ended)),
            (true, Some(why()), Err(PromptError::Ended)),
        ];
        for (is_ending, parked, refusal) in table {
            let mut end = end();
            if let Some(cause) = parked {
                end.parked = Some(cause);
            }
            if is_ending {
                assert!(end.begin(ending("completed"), Report::call(|_| ())));
            }
            assert_eq!((end.is_ending(), end.refusal()), (is_ending, refusal));
        }
    }

    #[test]
    fn first_ending_counts_and_every_caller_is_informed() {
        let mut end = end();
        assert!(end.begin(ending("completed"), Report::call(|_| ())));
        assert!(!end.begin(ending("failed"), Report::call(|_| ())));
        assert_eq!(end.ending, Some(ending("completed")));
        assert_eq!(end.waiting.len(), 2);
    }
}
