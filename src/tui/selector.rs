//! A list with a filter, navigated with the arrow keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_frontend::{RewindExtent, Selectable};

use crate::input::character;
use crate::text::{TextRow, clipped, row, sanitize, span};
use crate::theme::{Role, Theme};

use ratatui::text::Line;

/// Maximum number of visible entries.
const SHOWN_MAX: usize = 8;

/// Content of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectorKind {
    /// Values of a setting.
    Name(Selectable),
    /// Input history.
    History,
    /// Queued messages of the user.
    Queue,
    /// Stored sessions, in the terminal UI.
    Sessions,
    /// Stored sessions, in the list below the command line.
    Inline,
    /// Prompts to which the user can return.
    Rewind,
    /// Parts of the session that can return to their state before the prompt with this number.
    RewindExtent(usize),
    /// Branches of the conversation.
    Tree,
    /// Drafts that were put aside.
    Drafts,
    /// Question if a return to the state before the prompt with this number may replace changes of
    /// the user.
    ConfirmRewind(usize, RewindExtent),
}

impl SelectorKind {
    /// Maximum characters of the filter.
    fn filter_max(self) -> usize {
        if self == SelectorKind::Inline { 60 } else { 200 }
    }
}

/// An entry of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectorEntry {
    /// Value that the selector returns if this entry is selected.
    pub(super) value: String,
    /// The visible text, in one line.
    pub(super) label: String,
}

/// An open selector.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    pub(super) subject: SelectorKind,
    pub(super) title: String,
    pub(super) entries: Vec<SelectorEntry>,
    /// The current value of the setting; `None` if the selector is not for a setting.
    current: Option<String>,
    /// Text of the filter: words that an entry must contain.
    pub(super) filter: String,
    /// Index of the selected entry among those that match the filter.
    pub(super) chosen: usize,
}

/// Effect of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SelectorOutcome {
    /// The selector stays open.
    Open,
    /// The selector was closed without a choice: by Esc, Ctrl+C or Ctrl+G, or by Enter if there is
    /// no value to choose. In the inline list and in that of a setting, that Enter has no effect.
    Closed,
    /// The user chose this value of a visible entry.
    Name(String),
    /// The user wants to delete this queued message.
    Deleted(String),
    /// The user wants to label the prompt of this row of the tree.
    Labelled(String),
}

impl Selector {
    pub(super) fn new(
        what: Selectable,
        names: Vec<String>,
        current: &str,
        source: &str,
    ) -> Selector {
        let word = what.word();
        let title = if current.is_empty() {
            format!("{word}: none yet")
        } else {
            format!("{word}: {} ({})", sanitize(current), sanitize(source))
        };
        let entry = |name: String| SelectorEntry { label: sanitize(&name), value: name };
        let entries: Vec<SelectorEntry> = names.into_iter().map(entry).collect();
        let mut selector = Selector::of(SelectorKind::Name(what), title, entries);
        selector.chosen =
            selector.entries.iter().position(|entry| entry.value == current).unwrap_or_default();
        selector.current = Some(current.to_owned());
        selector
    }

    /// Creates a selector without a current value, with the first entry selected.
    pub(super) fn of(
        subject: SelectorKind,
        title: impl Into<String>,
        entries: Vec<SelectorEntry>,
    ) -> Selector {
        Selector {
            subject,
            title: title.into(),
            entries,
            current: None,
            filter: String::new(),
            chosen: 0,
        }
    }

    /// Entries whose label contains every word of the filter, ignoring case.
    pub(super) fn found(&self) -> Vec<&SelectorEntry> {
        let wanted = self.filter.to_lowercase();
        let has_all = |entry: &&SelectorEntry| {
            let label = entry.label.to_lowercase();
            wanted.split_whitespace().all(|word| label.contains(word))
        };
        self.entries.iter().filter(has_all).collect()
    }

    /// Adds a text to the filter, for example a paste, and selects the first match. Outer white
    /// space, control characters and characters above the maximum are dropped.
    pub(super) fn filter_by(&mut self, text: &str) {
        let room = self.subject.filter_max().saturating_sub(self.filter.chars().count());
        self.filter.extend(text.trim().chars().filter(|c| !c.is_control()).take(room));
        self.chosen = 0;
    }

    /// Removes the entry with this value. Returns `false` if no entry is left.
    pub(super) fn remove(&mut self, value: &str) -> bool {
        self.entries.retain(|entry| entry.value != value);
        self.chosen = self.chosen.min(self.entries.len().saturating_sub(1));
        !self.entries.is_empty()
    }

    /// Handles a key: moves the selection, edits the filter, chooses, deletes or closes.
    pub(super) fn key(&mut self, key: KeyEvent) -> SelectorOutcome {
        let last = self.found().len().saturating_sub(1);
        // The inline list stops at its ends.
        let wraps = self.subject != SelectorKind::Inline;
        let code = match key.code {
            KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => match c {
                'c' | 'g' => KeyCode::Esc,
                'p' => KeyCode::Up,
                'n' | 'r' => KeyCode::Down,
                _ => key.code,
            },
            code => code,
        };
        match code {
            KeyCode::Esc => return SelectorOutcome::Closed,
            KeyCode::Enter => return self.selection(),
            KeyCode::Delete
                if matches!(self.subject, SelectorKind::Queue | SelectorKind::Drafts) =>
            {
                return self.value().map_or(SelectorOutcome::Open, SelectorOutcome::Deleted);
            }
            KeyCode::Char('t')
                if self.subject == SelectorKind::Tree
                    && key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                return self.value().map_or(SelectorOutcome::Open, SelectorOutcome::Labelled);
            }
            KeyCode::Up if self.chosen == 0 && wraps => self.chosen = last,
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab if self.chosen < last => self.chosen += 1,
            KeyCode::Down | KeyCode::Tab if wraps => self.chosen = 0,
            KeyCode::Backspace => {
                self.filter.pop();
                self.chosen = 0;
            }
            _ => {
                let room = self.filter.chars().count() < self.subject.filter_max();
                let spaces = !matches!(self.subject, SelectorKind::Name(_));
                if let Some(c) = character(key).filter(|c| room && (spaces || !c.is_whitespace())) {
                    self.filter.push(c);
                    self.chosen = 0;
                }
            }
        }
        SelectorOutcome::Open
    }

    /// The value of the selected entry; `None` if no entry matches the filter.
    fn value(&self) -> Option<String> {
        self.found().get(self.chosen).map(|entry| entry.value.clone())
    }

    fn selection(&self) -> SelectorOutcome {
        match (self.value(), self.subject) {
            (Some(value), _) => SelectorOutcome::Name(value),
            // Typed text may be the beginning of a task; a name that is not in the list is an
            // argument of the slash command.
            (None, SelectorKind::Inline | SelectorKind::Name(_)) => SelectorOutcome::Open,
            (None, _) => SelectorOutcome::Closed,
        }
    }

    /// Rows of the selector.
    pub(super) fn rows(&self, columns: usize, theme: Theme) -> Vec<TextRow> {
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
            rows.push(row(theme, Role::Dim, format!("  {} in total", found.len())));
        }
        if found.is_empty() {
            rows.push(row(theme, Role::Dim, clipped(&self.empty_text(), columns)));
        }
        let does = match self.subject {
            SelectorKind::Name(_)
            | SelectorKind::Sessions
            | SelectorKind::Inline
            | SelectorKind::Rewind
            | SelectorKind::RewindExtent(_)
            | SelectorKind::ConfirmRewind(..) => "Enter selects",
            SelectorKind::History => "Enter puts it into the prompt",
            SelectorKind::Drafts => "Enter takes it up · Delete deletes it",
            SelectorKind::Tree => "Enter goes there · Ctrl+T labels it",
            SelectorKind::Queue => "Enter edits it · Delete deletes it",
        };
        let hint =
            format!("  {}▏ type to filter · ↑↓ · {does} · Esc closes", sanitize(&self.filter));
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }

    fn empty_text(&self) -> String {
        match self.subject {
            SelectorKind::Name(what) => {
                let found =
                    if self.filter.is_empty() { "none is known" } else { "nothing matches" };
                format!("  {found}; /{} NAME uses one that is not listed", what.word())
            }
            _ => "  nothing".to_owned(),
        }
    }
}

/// Joins the lines of a text into one, for display. Only the first 2000 characters are used.
pub(super) fn in_one_line(text: &str) -> String {
    let cut: String = text.chars().take(2000).collect();
    sanitize(&cut).replace('\n', " ⏎ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_takes_only_a_name_that_is_shown() {
        let names = ["alpha", "beta", "alphabet"].map(str::to_owned).to_vec();
        let mut selector = Selector::new(Selectable::Model, names, "beta", "its default");
        assert_eq!(
            selector.key(KeyEvent::from(KeyCode::Enter)),
            SelectorOutcome::Name("beta".into())
        );
        for c in "bet".chars() {
            assert_eq!(selector.key(KeyEvent::from(KeyCode::Char(c))), SelectorOutcome::Open);
        }
        let found: Vec<&str> = selector.found().iter().map(|entry| entry.value.as_str()).collect();
        assert_eq!(found, ["beta", "alphabet"]);
        selector.key(KeyEvent::from(KeyCode::Up));
        assert_eq!(
            selector.key(KeyEvent::from(KeyCode::Enter)),
            SelectorOutcome::Name("alphabet".into())
        );
        selector.key(KeyEvent::from(KeyCode::Char('9')));
        assert_eq!(selector.key(KeyEvent::from(KeyCode::Enter)), SelectorOutcome::Open);
        assert_eq!(selector.key(KeyEvent::from(KeyCode::Esc)), SelectorOutcome::Closed);
    }

    #[test]
    fn only_messages_can_be_deleted() {
        let entry = |text: &str| SelectorEntry { value: text.to_owned(), label: text.to_owned() };
        let list = |subject| Selector::of(subject, "", vec![entry("fix the test"), entry("b")]);
        for subject in [SelectorKind::History, SelectorKind::Queue, SelectorKind::Sessions] {
            let mut selector = list(subject);
            for c in "test fix".chars() {
                selector.key(KeyEvent::from(KeyCode::Char(c)));
            }
            assert_eq!(
                selector.key(KeyEvent::from(KeyCode::Enter)),
                SelectorOutcome::Name("fix the test".into())
            );
            let deleted = selector.key(KeyEvent::from(KeyCode::Delete));
            assert_eq!(deleted != SelectorOutcome::Open, subject == SelectorKind::Queue);
            selector.filter_by("zzz");
            assert_eq!(selector.key(KeyEvent::from(KeyCode::Enter)), SelectorOutcome::Closed);
        }
        let mut selector = list(SelectorKind::Queue);
        assert!(selector.remove("b"));
        assert!(!selector.remove("fix the test"));
    }
}
