//! A list to choose from: arrows, or a part of what is looked for.

use crate::talk::Selected;
use crate::tui::input::{Code, Key};
use crate::tui::text::{Row, clipped, harmless, row, span};
use crate::tui::theme::{Role, Theme};

use ratatui_core::text::Line;

/// Entries that are shown at once.
const SHOWN_MAX: usize = 8;

/// Characters of what is looked for.
const FILTER_MAX: usize = 200;

/// What is chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A name.
    Name(Selected),
    /// What was written before.
    History,
    /// Messages that wait.
    Queue,
    /// Stored sessions.
    Sessions,
}

/// Something that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What is meant.
    pub(super) value: String,
    /// What is read, in one line.
    pub(super) label: String,
}

/// A list that is open.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    pub(super) subject: Subject,
    title: String,
    entries: Vec<Entry>,
    /// The one that counts now.
    current: Option<String>,
    /// What is looked for.
    pub(super) filter: String,
    chosen: usize,
    /// The letter on the empty prompt that opened it.
    pub(super) opened_by: Option<char>,
}

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The list is still open.
    Open,
    /// It is closed, and nothing was chosen.
    Closed,
    /// This one.
    Name(String),
    /// This one is to be deleted.
    Deleted(String),
}

impl Selector {
    pub(super) fn new(what: Selected, names: Vec<String>, current: &str, source: &str) -> Selector {
        let word = what.word();
        let title = if current.is_empty() {
            format!("{word}: none yet")
        } else {
            format!("{word}: {} ({})", harmless(current), harmless(source))
        };
        let entry = |name: String| Entry { label: harmless(&name), value: name };
        let entries: Vec<Entry> = names.into_iter().map(entry).collect();
        let mut selector = Selector::of(Subject::Name(what), title, entries);
        selector.chosen =
            selector.entries.iter().position(|entry| entry.value == current).unwrap_or_default();
        selector.current = Some(current.to_owned());
        selector
    }

    /// A list of something else.
    pub(super) fn of(subject: Subject, title: impl Into<String>, entries: Vec<Entry>) -> Selector {
        Selector {
            subject,
            title: title.into(),
            entries,
            current: None,
            filter: String::new(),
            chosen: 0,
            opened_by: None,
        }
    }

    fn found(&self) -> Vec<&Entry> {
        let wanted = self.filter.to_lowercase();
        let has_all = |entry: &&Entry| {
            let label = entry.label.to_lowercase();
            wanted.split_whitespace().all(|word| label.contains(word))
        };
        self.entries.iter().filter(has_all).collect()
    }

    /// Looks for what was pasted, too.
    pub(super) fn look_for(&mut self, text: &str) {
        let room = FILTER_MAX.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.trim().chars().filter(|c| !c.is_control()).take(room));
        self.chosen = 0;
    }

    /// Takes an entry out of the list. `false`: nothing is left.
    pub(super) fn remove(&mut self, value: &str) -> bool {
        self.entries.retain(|entry| entry.value != value);
        self.chosen = self.chosen.min(self.entries.len().saturating_sub(1));
        !self.entries.is_empty()
    }

    /// Follows a key.
    pub(super) fn key(&mut self, key: Key) -> Chosen {
        let found = self.found().len();
        let spaces = !matches!(self.subject, Subject::Name(_));
        match key.code {
            Code::Esc => return Chosen::Closed,
            Code::Char('c' | 'g') if key.ctrl => return Chosen::Closed,
            Code::Enter => return self.taken(),
            Code::Delete if self.subject == Subject::Queue => {
                let value = self.found().get(self.chosen).map(|entry| entry.value.clone());
                return value.map_or(Chosen::Open, Chosen::Deleted);
            }
            Code::Char('p') if key.ctrl => self.back(found),
            Code::Up => self.back(found),
            Code::Char('n' | 'r') if key.ctrl => self.on(found),
            Code::Down | Code::Tab => self.on(found),
            Code::Backspace => {
                self.filter.pop();
                self.chosen = 0;
            }
            _ => {
                let room = self.filter.chars().count() < FILTER_MAX;
                if let Some(c) = key.writes().filter(|c| room && (spaces || !c.is_whitespace())) {
                    self.filter.push(c);
                    self.chosen = 0;
                }
            }
        }
        Chosen::Open
    }

    fn back(&mut self, found: usize) {
        self.chosen = self.chosen.checked_sub(1).unwrap_or(found.saturating_sub(1));
    }

    fn on(&mut self, found: usize) {
        self.chosen = if self.chosen + 1 < found { self.chosen + 1 } else { 0 };
    }

    fn taken(&self) -> Chosen {
        let value = self.found().get(self.chosen).map(|entry| entry.value.clone());
        // A name that is not in the list may exist all the same.
        let may_be = matches!(self.subject, Subject::Name(_)) && !self.filter.is_empty();
        let typed = may_be.then(|| self.filter.clone());
        value.or(typed).map_or(Chosen::Closed, Chosen::Name)
    }

    /// The rows of it.
    pub(super) fn rows(&self, columns: usize, theme: Theme) -> Vec<Row> {
        let mut rows = vec![
            Line::from(span(theme, Role::Dim, "─".repeat(columns))),
            row(theme, Role::Strong, clipped(&self.title, columns)),
        ];
        let found = self.found();
        let from = (self.chosen + 1).saturating_sub(SHOWN_MAX);
        for (at, entry) in found.iter().enumerate().skip(from).take(SHOWN_MAX) {
            let (role, mark) =
                if at == self.chosen { (Role::Selected, "▸") } else { (Role::Text, " ") };
            let is_current = if self.current.as_ref() == Some(&entry.value) { " ✓" } else { "" };
            let text = format!("{mark} {}{is_current}", entry.label);
            rows.push(row(theme, role, clipped(&text, columns)));
        }
        if found.len() > SHOWN_MAX {
            rows.push(row(theme, Role::Dim, format!("  {} in all", found.len())));
        }
        if found.is_empty() {
            rows.push(row(theme, Role::Dim, clipped(&self.nothing(), columns)));
        }
        let does = match self.subject {
            Subject::Name(_) | Subject::Sessions => "Enter chooses",
            Subject::History => "Enter takes it to go on with",
            Subject::Queue => "Enter takes it back · Delete deletes it",
        };
        let hint = format!("  {}▏ type to find · ↑↓ · {does} · Esc closes", harmless(&self.filter));
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }

    fn nothing(&self) -> String {
        match self.subject {
            Subject::Name(what) if self.filter.is_empty() => {
                format!("  none is known; type the name of the {}", what.word())
            }
            Subject::Name(_) => {
                format!("  none is known; Enter takes \"{}\" as it is", harmless(&self.filter))
            }
            Subject::History | Subject::Queue | Subject::Sessions => "  nothing".to_owned(),
        }
    }
}

/// A text of several lines in one.
pub(super) fn in_one_line(text: &str) -> String {
    let cut: String = text.chars().take(2000).collect();
    harmless(&cut).replace('\n', " ⏎ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_a_part_of_the_name_and_takes_one_that_is_unknown() {
        let names = ["alpha", "beta", "alphabet"].map(str::to_owned).to_vec();
        let mut selector = Selector::new(Selected::Model, names, "beta", "its default");
        assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("beta".into()));
        for c in "bet".chars() {
            assert_eq!(selector.key(Key::plain(Code::Char(c))), Chosen::Open);
        }
        let found: Vec<&str> = selector.found().iter().map(|entry| entry.value.as_str()).collect();
        assert_eq!(found, ["beta", "alphabet"]);
        selector.key(Key::plain(Code::Up));
        assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("alphabet".into()));
        selector.key(Key::plain(Code::Char('9')));
        assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("bet9".into()));
        assert_eq!(selector.key(Key::plain(Code::Esc)), Chosen::Closed);
    }

    #[test]
    fn only_names_can_be_unknown_and_only_messages_deleted() {
        let entry = |text: &str| Entry { value: text.to_owned(), label: text.to_owned() };
        let list = |subject| Selector::of(subject, "", vec![entry("fix the test"), entry("b")]);
        for subject in [Subject::History, Subject::Queue, Subject::Sessions] {
            let mut selector = list(subject);
            for c in "test fix".chars() {
                selector.key(Key::plain(Code::Char(c)));
            }
            assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("fix the test".into()));
            let deleted = selector.key(Key::plain(Code::Delete));
            assert_eq!(deleted != Chosen::Open, subject == Subject::Queue);
            selector.look_for("zzz");
            assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Closed);
        }
        let mut selector = list(Subject::Queue);
        assert!(selector.remove("b"));
        assert!(!selector.remove("fix the test"));
    }
}
