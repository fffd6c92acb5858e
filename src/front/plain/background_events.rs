//! Line mode between tasks while subagents run in the background: shows their activity and lets the
//! user answer their permission requests.
//!
//! Input uses the terminal's own line editing, as during a task, so that output does not overwrite
//! it.

use posse_actors::conversation::InvocationId;
use posse_actors::event::{Announcement, Event};
use posse_actors::subscription::Subscription;
use posse_base::failure::{Exit, printable_lines};
use posse_base::or_pending;
use posse_frontend::commands::parse;
use tokio::time::sleep;

use crate::plain::terminal::{self, TerminalInput};
use crate::plain::{LineMode, PROMPT};

impl LineMode<'_> {
    /// Updates `at_work` from an announcement: adds subagents that have started, and removes
    /// subagents and main agents that have ended.
    pub(super) fn note_work(&mut self, announcement: &Announcement) {
        let below = announcement.origin().filter(|origin| origin.parent_invocation_id.is_some());
        match (announcement.event(), below) {
            (Event::DelegationEnded { child_invocation_id, .. }, _) => {
                self.at_work.remove(child_invocation_id);
            }
            (Event::InvocationStarted { .. } | Event::ModelRequest { .. }, Some(origin)) => {
                self.at_work.insert(origin.invocation_id.clone());
            }
            (
                Event::InvocationCompleted { .. }
                | Event::InvocationFailed { .. }
                | Event::InvocationCancelled { .. },
                None,
            ) => {
                if let Some(origin) = announcement.origin() {
                    self.at_work.remove(&origin.invocation_id);
                }
            }
            _ => (),
        }
    }

    /// Waits until an attached front end has started a task, and returns the invocation of the
    /// task. `watched`: subscription to the events of the session. Never returns if the events end.
    pub(super) async fn task_started_elsewhere(watched: &mut Subscription) -> InvocationId {
        while let Some(announcement) = watched.next().await {
            if let (Event::InvocationStarted { .. }, Some(origin)) =
                (announcement.event(), announcement.origin())
                && origin.parent_invocation_id.is_none()
            {
                return origin.invocation_id.clone();
            }
        }
        std::future::pending().await
    }

    /// Prints the final answer of the main agent to standard error if the event contains one,
    /// unless its text was already shown as it arrived.
    pub(super) async fn show_answer(&mut self, announcement: &Announcement) {
        let is_root = announcement.origin().is_some_and(|from| from.parent_invocation_id.is_none());
        if let Event::InvocationCompleted { result, .. } = announcement.event()
            && is_root
            && !self.progress.shown_live
        {
            self.print(&format!("{}\n", printable_lines(result.trim_end()))).await;
        }
    }

    /// Reads the next line of the conversation. Meanwhile shows events, and takes lines as answers
    /// while a permission request is open. `None` if no background work and no permission request
    /// is left, or if line mode is to end. Further lines that were typed are stored in `waiting`.
    pub(super) async fn line_beside(&mut self) -> Option<String> {
        self.print(PROMPT).await;
        self.watch();
        let question = self.questions.next_text();
        self.show_question(question).await;
        let line = loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if signal == Exit::Interrupt {
                        self.interrupt_idle().await;
                    } else {
                        self.leaving = Some(signal);
                    }
                }
                announcement = self.current.events.next() => match announcement {
                    Some(announcement) => {
                        self.follow(&announcement).await;
                        self.show_answer(&announcement).await;
                    }
                    None => self.at_work.clear(),
                },
                request = self.current.attach_socket.next_revert() => {
                    self.revert_elsewhere(request).await;
                }
                () = or_pending(self.notifier.wait().map(sleep)) => self.notify().await,
                warning = self.notifier.failed() => self.notify_failed(&warning).await,
                input = self.terminal.next() => match input {
                    TerminalInput::Line(line) => {
                        self.notifier.key();
                        self.progress.line_ended();
                        self.interrupted = None;
                        if parse(&line).is_immediate() {
                            break Some(line);
                        }
                        match self.questions.decide(&line) {
                            Some(answered) => self.answered(answered).await,
                            None => break Some(line),
                        }
                    }
                    TerminalInput::Quiet => {
                        let keys = self.questions.quiet();
                        self.show_question(keys).await;
                    }
                    TerminalInput::End => {
                        let gone = terminal::is_gone();
                        self.leaving = Some(if gone { Exit::HangUp } else { Exit::Done });
                    }
                    TerminalInput::Interrupted | TerminalInput::Stopped => (),
                },
            }
            self.follow_attention("done").await;
            let over = self.at_work.is_empty() && !self.questions.any_open();
            if over || self.leaving.is_some() {
                break None;
            }
        };
        for input in self.terminal.unwatch().await {
            match input {
                TerminalInput::Line(line) => self.waiting.push_back(line),
                TerminalInput::End => self.leaving = self.leaving.or(Some(Exit::Done)),
                TerminalInput::Quiet | TerminalInput::Interrupted | TerminalInput::Stopped => (),
            }
        }
        line
    }
}
