//! Selectors and the effects of a choice.

use crossterm::event::KeyEvent;
use posse_actors::conversation::MessageId;
use posse_frontend::Selectable;
use posse_frontend::commands::SessionSwitch;

use crate::app::{App, Effect};
use crate::selector::{Selector, SelectorEntry, SelectorKind, SelectorOutcome, in_one_line};
use crate::theme::{Role, Theme};
use crate::view::QueuedMessage;

impl App {
    pub(super) fn handle_selector_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(selector) = &mut self.selector else { return Vec::new() };
        match selector.key(key) {
            SelectorOutcome::Open => Vec::new(),
            SelectorOutcome::Closed => {
                // The letter was not a shortcut but the beginning of a text.
                if let (Some(letter), false) = (selector.opened_by, selector.filter.is_empty()) {
                    let text = format!("{letter}{}", selector.filter);
                    self.composer.set(&text);
                }
                self.selector = None;
                Vec::new()
            }
            SelectorOutcome::Name(value) => {
                let subject = selector.subject;
                self.selector = None;
                match subject {
                    SelectorKind::Name(what) => {
                        self.view.push_user_input(format!("/{} {value}", what.word()));
                        vec![Effect::Switch(SessionSwitch::With(what, value))]
                    }
                    SelectorKind::History => {
                        self.composer.set(&value);
                        Vec::new()
                    }
                    SelectorKind::Queue => {
                        vec![Effect::Withdraw { id: MessageId::new(value), back: true }]
                    }
                    SelectorKind::Sessions => {
                        self.view.push_user_input(format!("/resume {value}"));
                        vec![Effect::Switch(SessionSwitch::Resume(value))]
                    }
                }
            }
            SelectorOutcome::Deleted(value) => {
                if !selector.remove(&value) {
                    self.selector = None;
                }
                vec![Effect::Withdraw { id: MessageId::new(value), back: false }]
            }
        }
    }

    /// Opens the input history, newest first.
    pub(super) fn open_history(&mut self) {
        let mut entries: Vec<SelectorEntry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for line in self.composer.history().iter().rev() {
            if seen.insert(line) {
                entries.push(SelectorEntry { label: in_one_line(line), value: line.clone() });
            }
        }
        if entries.is_empty() {
            self.view.note(Role::Dim, "(the history is empty)");
            return;
        }
        let mut selector = Selector::of(SelectorKind::History, "history", entries);
        // The text in the prompt is the first filter.
        if !self.composer.shown().contains('\n') {
            selector.filter_by(self.composer.shown());
        }
        self.selector = Some(selector);
    }

    /// Opens the list of queued messages.
    pub(super) fn open_queue(&mut self) {
        let busy = self.busy;
        let entry = |waiting: &QueuedMessage| {
            let label = format!("{}: {}", waiting.when(busy), in_one_line(&waiting.text));
            SelectorEntry { value: waiting.id.to_string(), label }
        };
        let entries: Vec<SelectorEntry> =
            self.view.queue().iter().filter(|waiting| waiting.is_own()).map(entry).collect();
        if entries.is_empty() {
            self.view.push_user_input("/queue".to_owned());
            self.view.note(Role::Dim, "(no message is queued)");
            return;
        }
        self.selector = Some(Selector::of(SelectorKind::Queue, "queued messages", entries));
    }

    /// Deletes the queued message of the user with that number.
    pub(super) fn withdraw(&mut self, number: &str) -> Vec<Effect> {
        let nth = number.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
        let waiting =
            nth.and_then(|nth| self.view.queue().iter().filter(|it| it.is_own()).nth(nth));
        let Some(waiting) = waiting else {
            let text = format!("There is no queued message {number}; /queue lists them.");
            self.view.note(Role::Warn, text);
            return Vec::new();
        };
        vec![Effect::Withdraw { id: waiting.id.clone(), back: false }]
    }

    /// Opens the list of stored sessions, given as pairs of id and description.
    pub(crate) fn choose_session(&mut self, stored: Vec<(String, String)>) {
        let others = stored.into_iter().filter(|(id, _)| *id != self.session);
        let entries: Vec<SelectorEntry> = others
            .map(|(value, label)| SelectorEntry { value, label: in_one_line(&label) })
            .collect();
        if entries.is_empty() {
            self.view.note(Role::Dim, "(there is no other session here)");
            return;
        }
        self.selector = Some(Selector::of(SelectorKind::Sessions, "sessions here", entries));
    }

    /// Moves the last queued message back into the prompt.
    pub(super) fn take_back(&mut self) -> Vec<Effect> {
        let last = self.view.queue().iter().rev().find(|waiting| waiting.is_own());
        let Some(waiting) = last else {
            self.view.note(Role::Dim, "(no message is queued)");
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
                    .note(Role::Warn, format!("There is no theme \"{name}\"; themes: {names}."));
            }
            None => {
                self.view
                    .note(Role::Dim, format!("theme: {} (themes: {names})", self.theme.name()));
            }
        }
    }

    /// Opens the selector of a setting.
    pub(crate) fn choose(&mut self, what: Selectable, names: Vec<String>, opened_by: Option<char>) {
        let (current, source) = match what {
            Selectable::Model => (&self.status.model, &self.sources.model),
            Selectable::Provider => (&self.status.provider, &self.sources.provider),
            Selectable::Agent => (&self.status.agent, &self.sources.agent),
        };
        let mut selector = Selector::new(what, names, current, source);
        selector.opened_by = opened_by;
        self.selector = Some(selector);
    }
}
