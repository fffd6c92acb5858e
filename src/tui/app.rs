//! The terminal UI without a terminal: events and keys in, frames and wishes out. Knows no clock:
//! the time is passed in.

mod choosing;
mod commanding;
mod composing;
mod frame;
mod leaving;
mod looking;
mod words;

use std::time::Duration;

use posse_actors::conversation::{MessageId, QuestionId};
use posse_actors::event::{Event, MessageKind, Origin};
use posse_actors::permission_coordinator::HumanDecision;

use crate::failure::Exit;
use crate::talk::commands::Command;
use crate::talk::jobs::Jobs;
use crate::talk::{Selected, Sources};
use crate::tui::completion::Completion;
use crate::tui::composer::{Composer, Outcome, may_be_image};
use crate::tui::input::{Code, Input, Key};
use crate::tui::keymap::{Action, Edit, Keymap, SHORTCUTS};
use crate::tui::past::Past;
use crate::tui::question::{Answered, Questions};
use crate::tui::selector::Selector;
use crate::tui::status::Status;
use crate::tui::theme::{Role, Theme};
use crate::tui::view::View;
use crate::tui::viewer::Viewer;

/// A letter on an empty prompt acts when no other key follows within this.
const SHORTCUT: Duration = Duration::from_millis(150);

/// A second Ctrl+C within this leaves.
const AGAIN: Duration = Duration::from_secs(2);

/// Rows that a page goes.
const PAGE: usize = 10;

/// What is to be done by whoever holds the session and the terminal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// Say this: as a new task, or to what runs.
    Say(String, MessageKind),
    /// Run this command for the user.
    Run(String),
    /// Stop what runs.
    Interrupt,
    /// The same, with what works in the background.
    InterruptAll,
    /// A message that waits is not to be said: back into the prompt, or gone.
    Withdraw { id: MessageId, back: bool },
    /// What is written goes into the user's editor, and comes back.
    Edit,
    /// An image, if the file of that name is one; otherwise the text as it is.
    Attach(String),
    /// Look for files of which this is a part of the name.
    Find(String),
    /// A question is decided.
    Answer(QuestionId, HumanDecision),
    /// Show what can be chosen.
    Choose(Selected, Option<char>),
    /// It was chosen.
    Select(Selected, String),
    /// A command that needs more than what is here.
    Do(Command),
    /// Put this into the clipboard.
    Copy(String),
    /// Draw everything anew.
    Redraw,
    /// Back to the shell for a while.
    Suspend,
    /// Leave.
    Leave(Exit),
}

/// Everything that is shown and asked.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) view: View,
    pub(super) composer: Composer,
    pub(super) questions: Questions,
    pub(super) status: Status,
    pub(super) sources: Sources,
    pub(super) session: String,
    pub(super) theme: Theme,
    pub(super) keymap: Keymap,
    /// What is finished, if the terminal does not keep it.
    pub(super) past: Option<Past>,
    selector: Option<Selector>,
    /// What could be meant by what is being written.
    completion: Option<Completion>,
    /// It was closed, until something else is written.
    dismissed: bool,
    /// The beginning of two keys that belong together.
    prefix: Option<Key>,
    viewer: Option<Viewer>,
    /// A letter that opens something unless another key follows soon.
    pending: Option<(char, Duration)>,
    /// When Ctrl+C was pressed last, to leave.
    cancelled: Option<Duration>,
    leaving: leaving::Leaving,
    /// What runs was asked to stop.
    pub(super) stopping: bool,
    /// A task is being worked on.
    pub(super) busy: bool,
    /// Rows that one frame hands to the terminal's own scrollback.
    pub(super) pace: usize,
    /// What is above a question, so that it does not move.
    frozen: Option<frame::Frozen>,
    /// What was asked for and is looked up on another thread.
    looking: Vec<looking::Looking>,
    /// Commands in the background.
    pub(super) jobs: Jobs,
}

impl App {
    /// Follows what happened.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>, now: Duration) {
        self.view.follow(event, origin, now);
        self.questions.follow(event, origin);
        if !self.view.provider.is_empty() {
            self.status.provider.clone_from(&self.view.provider);
            self.status.model.clone_from(&self.view.model);
        }
        self.status.context = self.view.context;
        if let Event::ContextUsed { used } = event {
            self.measured(used);
        }
        self.jobs.follow(event);
        self.status.jobs = self.jobs.count();
    }

    /// Follows what was typed.
    pub(super) fn input(&mut self, input: Input, now: Duration) -> Vec<Effect> {
        let mut effects = self.typed(input, now);
        effects.extend(self.suggest());
        effects
    }

    fn typed(&mut self, input: Input, now: Duration) -> Vec<Effect> {
        match input {
            Input::Key(key) => self.key(key, now),
            Input::Paste(text) => {
                self.pending = None;
                self.questions.disturbed(now);
                match &mut self.selector {
                    Some(selector) => selector.look_for(&text),
                    None if self.viewer.is_none() && may_be_image(&text) => {
                        return vec![Effect::Attach(text)];
                    }
                    None if self.viewer.is_none() => self.composer.paste(&text),
                    None => (),
                }
                Vec::new()
            }
            Input::Gone => vec![Effect::Leave(Exit::HangUp)],
        }
    }

    fn key(&mut self, key: Key, now: Duration) -> Vec<Effect> {
        let pending = self.pending.take();
        let action = match self.prefix.take() {
            Some(first) => self.keymap.chord(first, key),
            None if self.keymap.begins(key) => {
                self.prefix = Some(key);
                return Vec::new();
            }
            None => self.keymap.action(key),
        };
        if let Some(effect) = always(action) {
            return vec![effect];
        }
        if self.questions.is_open() {
            return self.key_of_question(key, action, now);
        }
        if let Some(viewer) = &mut self.viewer {
            if !viewer.key(key) {
                self.viewer = None;
            }
            return Vec::new();
        }
        if self.selector.is_some() {
            return self.key_of_selector(key);
        }
        if let (Some(past), Code::PageUp | Code::PageDown) = (&mut self.past, key.code) {
            past.go(key.code == Code::PageUp, PAGE);
            return Vec::new();
        }
        if let Some(effects) = self.key_of_completion(key, action, now) {
            return effects;
        }
        if let Some(action) = action {
            return self.act(action, now);
        }
        let shortcut = key.writes().filter(|c| SHORTCUTS.iter().any(|(known, _)| known == c));
        if let Some(letter) =
            shortcut.filter(|_| self.composer.is_empty() && self.is_idle() && pending.is_none())
        {
            self.pending = Some((letter, now));
        }
        self.composer.key(key);
        Vec::new()
    }

    fn key_of_question(&mut self, key: Key, action: Option<Action>, now: Duration) -> Vec<Effect> {
        match action {
            Some(Action::Cancel) => return self.act(Action::Cancel, now),
            Some(Action::Interrupt) if self.busy => return self.stop(),
            Some(Action::Interrupt) => {
                if self.questions.is_of_an_agent() {
                    let how = "(an agent in the background asks: n says no, /stop all stops it)";
                    self.view.note(Role::Dim, how);
                }
                // A command of the user's own is what else may ask.
                return vec![Effect::Interrupt];
            }
            _ => (),
        }
        match self.questions.key(key, now) {
            Answered::Decided(id, decision) => {
                self.frozen = None;
                vec![Effect::Answer(id, decision)]
            }
            Answered::Taken => Vec::new(),
            Answered::Passed => {
                // Whoever was writing when it appeared goes on writing.
                match action {
                    Some(Action::Edit(Edit::Up | Edit::Down)) => (),
                    Some(Action::Edit(edit)) => {
                        self.composer.edit(edit);
                    }
                    Some(_) => (),
                    None => {
                        self.composer.key(key);
                    }
                }
                Vec::new()
            }
        }
    }

    fn act(&mut self, action: Action, now: Duration) -> Vec<Effect> {
        match action {
            Action::Submit => {
                if self.composer.continues() {
                    return Vec::new();
                }
                self.submit(MessageKind::Steer)
            }
            Action::FollowUp if self.busy => self.submit(MessageKind::FollowUp),
            Action::FollowUp => {
                self.composer.edit(Edit::Newline);
                Vec::new()
            }
            Action::Interrupt if self.busy => self.stop(),
            Action::Interrupt => {
                self.give_up();
                Vec::new()
            }
            Action::Cancel => self.cancel(now),
            Action::Leave if self.composer.is_empty() && self.busy => {
                self.leaving.refused = Some(now);
                Vec::new()
            }
            Action::Leave if self.composer.is_empty() => self.leave(),
            Action::Leave => {
                self.composer.edit(Edit::Delete);
                Vec::new()
            }
            Action::Viewer => {
                self.viewer = Viewer::of(self.view.outputs());
                if self.viewer.is_none() {
                    self.view.note(Role::Dim, "(no call has given anything yet)");
                }
                Vec::new()
            }
            Action::Edit(edit) => {
                if self.composer.edit(edit) == Outcome::Changed {
                    self.cancelled = None;
                }
                Vec::new()
            }
            Action::Search => {
                self.open_history();
                Vec::new()
            }
            Action::Editor => vec![Effect::Edit],
            Action::TakeBack => self.take_back(),
            Action::StopAll => {
                self.stopping = self.busy;
                vec![Effect::InterruptAll]
            }
            Action::Redraw | Action::Suspend => always(Some(action)).into_iter().collect(),
        }
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.stopping = true;
        vec![Effect::Interrupt]
    }

    /// Ctrl+C: each time the next thing there is to give up.
    fn cancel(&mut self, now: Duration) -> Vec<Effect> {
        let again = self.cancelled.is_some_and(|before| now.saturating_sub(before) < AGAIN);
        self.cancelled = Some(now);
        if again {
            return vec![Effect::Leave(Exit::Interrupt)];
        }
        if self.busy {
            return self.stop();
        }
        if self.give_up() {
            self.cancelled = None;
        } else if !self.composer.is_empty() {
            self.composer.take();
            self.cancelled = None;
        }
        Vec::new()
    }

    /// What is due because time has passed.
    pub(super) fn tick(&mut self, now: Duration) -> Vec<Effect> {
        self.give_up_when_overdue(now);
        let due = self.pending.filter(|(_, at)| now.saturating_sub(*at) >= SHORTCUT);
        let Some((letter, _)) = due else { return Vec::new() };
        self.pending = None;
        let mut typed = [0; 4];
        if self.composer.shown() != letter.encode_utf8(&mut typed) {
            return Vec::new();
        }
        self.composer.take();
        let what = match letter {
            'a' => Selected::Agent,
            'p' => Selected::Provider,
            _ => Selected::Model,
        };
        vec![Effect::Choose(what, Some(letter))]
    }

    /// When something changes without an event or a key; `None`: never.
    pub(super) fn next_change(&self, now: Duration) -> Option<Duration> {
        let shortcut = self.pending.map(|(_, at)| (at + SHORTCUT).saturating_sub(now));
        let deaf = self.questions.deaf_for(now);
        // Behind a question nothing moves.
        let seen = !self.questions.is_open() && self.viewer.is_none();
        let moves = self.view.pulse().filter(|_| seen);
        let hint = |at: Option<Duration>| {
            at.map(|at| (at + AGAIN).saturating_sub(now)).filter(|left| !left.is_zero())
        };
        let (hint, refused) = (hint(self.cancelled), hint(self.leaving.refused));
        [shortcut, deaf, moves, hint, refused, self.looking_changes(now)]
            .into_iter()
            .flatten()
            .min()
            .map(|left| left.max(Duration::from_millis(1)))
    }

    /// The task that was worked on is over.
    pub(super) fn over(&mut self) {
        self.busy = false;
        self.stopping = false;
        self.questions.forget_mains();
        self.frozen = None;
    }

    fn asks_to_leave(&self, now: Duration) -> bool {
        self.cancelled.is_some_and(|at| now.saturating_sub(at) < AGAIN)
    }
}

/// What is done whatever is open.
fn always(action: Option<Action>) -> Option<Effect> {
    match action {
        Some(Action::Redraw) => Some(Effect::Redraw),
        Some(Action::Suspend) => Some(Effect::Suspend),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
