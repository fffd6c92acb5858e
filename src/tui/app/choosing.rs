//! Lists to choose from, and what comes of it.

use posse_actors::conversation::MessageId;

use crate::talk::Selected;
use crate::talk::commands::Command;
use crate::tui::app::{App, Effect};
use crate::tui::input::Key;
use crate::tui::selector::{Chosen, Entry, Selector, Subject, in_one_line};
use crate::tui::theme::{Role, Theme};
use crate::tui::view::Waiting;

impl App {
    pub(super) fn key_of_selector(&mut self, key: Key) -> Vec<Effect> {
        let Some(selector) = &mut self.selector else { return Vec::new() };
        match selector.key(key) {
            Chosen::Open => Vec::new(),
            Chosen::Closed => {
                // It was no command, but the beginning of something to say.
                if let (Some(letter), false) = (selector.opened_by, selector.filter.is_empty()) {
                    let text = format!("{letter}{}", selector.filter);
                    self.composer.set(&text);
                }
                self.selector = None;
                Vec::new()
            }
            Chosen::Name(value) => {
                let subject = selector.subject;
                self.selector = None;
                match subject {
                    Subject::Name(what) => {
                        self.view.said(format!("/{} {value}", what.word()));
                        vec![Effect::Select(what, value)]
                    }
                    Subject::History => {
                        self.composer.set(&value);
                        Vec::new()
                    }
                    Subject::Queue => {
                        vec![Effect::Withdraw { id: MessageId::new(value), back: true }]
                    }
                    Subject::Sessions => {
                        self.view.said(format!("/resume {value}"));
                        vec![Effect::Do(Command::Resume(Some(value)))]
                    }
                }
            }
            Chosen::Deleted(value) => {
                if !selector.remove(&value) {
                    self.selector = None;
                }
                vec![Effect::Withdraw { id: MessageId::new(value), back: false }]
            }
        }
    }

    /// Opens what was written before, the newest first.
    pub(super) fn open_history(&mut self) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for line in self.composer.history().iter().rev() {
            if seen.insert(line) {
                entries.push(Entry { label: in_one_line(line), value: line.clone() });
            }
        }
        if entries.is_empty() {
            self.view.note(Role::Dim, "(nothing was written before)");
            return;
        }
        let mut selector = Selector::of(Subject::History, "what was written before", entries);
        // What is written already is looked for.
        if !self.composer.shown().contains('\n') {
            selector.look_for(self.composer.shown());
        }
        self.selector = Some(selector);
    }

    /// Opens the messages that wait.
    pub(super) fn open_queue(&mut self) {
        let busy = self.busy;
        let entry = |waiting: &Waiting| {
            let label = format!("{}: {}", waiting.when(busy), in_one_line(&waiting.text));
            Entry { value: waiting.id.to_string(), label }
        };
        let entries: Vec<Entry> =
            self.view.queue().iter().filter(|waiting| waiting.is_own()).map(entry).collect();
        if entries.is_empty() {
            self.view.said("/queue".to_owned());
            self.view.note(Role::Dim, "(no message waits)");
            return;
        }
        self.selector = Some(Selector::of(Subject::Queue, "messages that wait", entries));
    }

    /// `/queue`: opens them, or deletes the one of that number.
    pub(super) fn queue(&mut self, which: Option<&str>) -> Vec<Effect> {
        let Some(number) = which else {
            self.open_queue();
            return Vec::new();
        };
        let nth = number.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
        let waiting =
            nth.and_then(|nth| self.view.queue().iter().filter(|it| it.is_own()).nth(nth));
        let Some(waiting) = waiting else {
            let text = format!("No message {number} of yours waits; /queue lists them.");
            self.view.note(Role::Warn, text);
            return Vec::new();
        };
        vec![Effect::Withdraw { id: waiting.id.clone(), back: false }]
    }

    /// Opens stored sessions: their ids, and what is said of them.
    pub(in crate::tui) fn choose_session(&mut self, stored: Vec<(String, String)>) {
        let others = stored.into_iter().filter(|(id, _)| *id != self.session);
        let entries: Vec<Entry> =
            others.map(|(value, label)| Entry { value, label: in_one_line(&label) }).collect();
        if entries.is_empty() {
            self.view.note(Role::Dim, "(there is no other conversation here)");
            return;
        }
        self.selector = Some(Selector::of(Subject::Sessions, "conversations here", entries));
    }

    /// Takes the last message that waits back into the prompt.
    pub(super) fn take_back(&mut self) -> Vec<Effect> {
        let last = self.view.queue().iter().rev().find(|waiting| waiting.is_own());
        let Some(waiting) = last else {
            self.view.note(Role::Dim, "(no message waits)");
            return Vec::new();
        };
        vec![Effect::Withdraw { id: waiting.id.clone(), back: true }]
    }

    pub(super) fn choose_theme(&mut self, name: Option<&str>) {
        let names: Vec<&str> = Theme::ALL.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        match name.map(|name| (name, Theme::named(name))) {
            Some((_, Some(theme))) => {
                self.theme = theme;
                self.view.note(Role::Dim, format!("theme: {}", theme.name()));
            }
            Some((name, None)) => {
                self.view
                    .note(Role::Warn, format!("There is no theme \"{name}\"; there are {names}."));
            }
            None => {
                self.view
                    .note(Role::Dim, format!("theme: {} (there are {names})", self.theme.name()));
            }
        }
    }

    /// Opens the list of what can be chosen.
    pub(in crate::tui) fn choose(
        &mut self,
        what: Selected,
        names: Vec<String>,
        opened_by: Option<char>,
    ) {
        let (current, source) = match what {
            Selected::Model => (&self.status.model, &self.sources.model),
            Selected::Provider => (&self.status.provider, &self.sources.provider),
            Selected::Agent => (&self.status.agent, &self.sources.agent),
        };
        let mut selector = Selector::new(what, names, current, source);
        selector.opened_by = opened_by;
        self.selector = Some(selector);
    }
}
