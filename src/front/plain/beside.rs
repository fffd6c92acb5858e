//! Between tasks, while agents work in the background: what they do is shown, and what they ask can
//! be answered, also while no task runs.
//!
//! Lines are the terminal's own then, as they are during a task, so that nothing is drawn over what
//! is being typed.

use posse_actors::event::{Announcement, Event};

use crate::failure::Exit;
use crate::front::plain::terminal::{self, Input};
use crate::front::plain::{PROMPT, Plain};

impl Plain<'_> {
    /// Notes who is at work besides the main agent.
    pub(super) fn note_work(&mut self, announcement: &Announcement) {
        let below = announcement.origin().filter(|origin| origin.parent_invocation_id.is_some());
        match (announcement.event(), below) {
            (Event::DelegationEnded { child_invocation_id, .. }, _) => {
                self.at_work.remove(child_invocation_id);
            }
            (Event::InvocationStarted { .. } | Event::ModelRequest { .. }, Some(origin)) => {
                self.at_work.insert(origin.invocation_id.clone());
            }
            _ => (),
        }
    }

    /// A line for the conversation; `None` when nobody works beside it any more, or the user leaves.
    pub(super) async fn line_beside(&mut self) -> Option<String> {
        self.say(PROMPT).await;
        self.terminal.watch();
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
                    Some(announcement) => self.follow(&announcement).await,
                    None => self.at_work.clear(),
                },
                input = self.terminal.next() => match input {
                    Input::Line(line) => {
                        self.interrupted = None;
                        match self.questions.decide(&line) {
                            Some(answered) => self.answered(answered).await,
                            None => break Some(line),
                        }
                    }
                    Input::Quiet => {
                        let keys = self.questions.quiet();
                        self.show_question(keys).await;
                    }
                    Input::End => {
                        let gone = terminal::is_gone();
                        self.leaving = Some(if gone { Exit::HangUp } else { Exit::Done });
                    }
                    Input::Interrupted | Input::Stopped => (),
                },
            }
            let over = self.at_work.is_empty() && !self.questions.any_open();
            if over || self.leaving.is_some() {
                break None;
            }
        };
        for input in self.terminal.unwatch().await {
            match input {
                Input::Line(line) => self.waiting.push_back(line),
                Input::End => self.leaving = self.leaving.or(Some(Exit::Done)),
                Input::Quiet | Input::Interrupted | Input::Stopped => (),
            }
        }
        line
    }
}
