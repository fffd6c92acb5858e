//! A list with a filter, navigated with the arrow keys.

use std::cmp::Reverse;
use std::collections::HashSet;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_frontend::fuzzy::fuzzy_words_score;
use posse_frontend::{ListedValue, RewindExtent, Selectable};

use crate::input::{character, ctrl};
use crate::text::{TextRow, clipped, row, sanitize, selected_row, span, width};
use crate::theme::{Role, Theme};

use ratatui::text::Line;

/// Minimum and maximum number of visible entries.
const SHOWN_MIN: usize = 3;
const SHOWN_MAX: usize = 20;

/// Maximum columns of a cell that is padded; a longer one moves the cells behind it.
const CELL_COLUMNS_MAX: usize = 40;

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
    /// Running background jobs.
    Jobs,
    /// Actions with their keys.
    Keymap,
    /// Question if the action of this name takes a key from another one.
    ConfirmKey(&'static str),
    /// Prompts to which the user can return.
    Rewind,
    /// Parts of the session that can return to their state before the prompt with this number.
    RewindExtent(usize),
    /// Branches of the conversation.
    Tree,
    /// Drafts that were put aside.
    Drafts,
    /// Colour themes.
    Theme,
    /// Permission modes of the session.
    PermissionMode,
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
    /// Further columns.
    pub(super) facts: Vec<String>,
}

impl SelectorEntry {
    /// An entry without further columns.
    pub(super) fn new(value: impl Into<String>, label: impl Into<String>) -> SelectorEntry {
        SelectorEntry { value: value.into(), label: label.into(), facts: Vec::new() }
    }
}

impl From<ListedValue> for SelectorEntry {
    fn from(listed: ListedValue) -> SelectorEntry {
        let label = sanitize(&listed.name);
        let facts = listed.facts.iter().map(|fact| in_one_line(fact)).collect();
        SelectorEntry { value: listed.name, label, facts }
    }
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
    /// Text below the title; may be empty.
    pub(super) remark: String,
    /// Value of an entry, and lines about it.
    pub(super) preview: Option<(String, Vec<String>)>,
    /// The selector to which Esc returns; `None` closes.
    pub(super) before: Option<Box<Selector>>,
    /// True if the user has moved the selection or filtered.
    is_moved: bool,
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
    /// The user wants to delete this queued message, or to stop this job.
    Deleted(String),
    /// The user wants to label the prompt of this row of the tree.
    Labelled(String),
}

impl Selector {
    pub(super) fn new(
        what: Selectable,
        names: Vec<ListedValue>,
        current: &str,
        source: &str,
    ) -> Selector {
        let word = what.word();
        let title = if current.is_empty() {
            format!("{word}: none yet")
        } else {
            format!("{word}: {} ({})", sanitize(current), sanitize(source))
        };
        let entries: Vec<SelectorEntry> = names.into_iter().map(SelectorEntry::from).collect();
        let mut selector = Selector::of(SelectorKind::Name(what), title, entries);
        selector.set_current(current);
        selector
    }

    /// Marks and selects the current value.
    pub(super) fn set_current(&mut self, current: &str) {
        self.chosen =
            self.entries.iter().position(|entry| entry.value == current).unwrap_or_default();
        self.current = Some(current.to_owned());
    }

    /// The current value of the setting.
    pub(super) fn current(&self) -> Option<String> {
        self.current.clone()
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
            remark: String::new(),
            preview: None,
            before: None,
            is_moved: false,
        }
    }

    /// Entries that match the filter, ignoring case: those whose label contains every word. Of the
    /// values of a setting, those that match it fuzzily, the best match first; their facts count as
    /// well.
    pub(super) fn found(&self) -> Vec<&SelectorEntry> {
        if matches!(self.subject, SelectorKind::Name(_) | SelectorKind::Keymap) {
            return self.found_fuzzily();
        }
        let wanted = self.filter.to_lowercase();
        let has_all = |entry: &&SelectorEntry| {
            let label = entry.label.to_lowercase();
            wanted.split_whitespace().all(|word| label.contains(word))
        };
        self.entries.iter().filter(has_all).collect()
    }

    fn found_fuzzily(&self) -> Vec<&SelectorEntry> {
        let score = |entry: &SelectorEntry| {
            let by_facts = || {
                let facts = entry.facts.join(" ").to_lowercase();
                facts.contains(&self.filter.to_lowercase()).then_some(0)
            };
            fuzzy_words_score(&self.filter, &entry.label).or_else(by_facts)
        };
        let scored = self.entries.iter().filter_map(|entry| Some((score(entry)?, entry)));
        let mut scored: Vec<(u32, &SelectorEntry)> = scored.collect();
        scored.sort_by_key(|(score, _)| Reverse(*score));
        scored.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Puts `first` before the other entries, each value once. The selected value stays selected.
    pub(super) fn put_first(&mut self, first: Vec<ListedValue>) {
        // The current value may come only now.
        let chosen = self.current.clone().filter(|_| !self.is_moved).or_else(|| self.value());
        let mut entries: Vec<SelectorEntry> = first.into_iter().map(SelectorEntry::from).collect();
        let known: HashSet<String> = entries.iter().map(|entry| entry.value.clone()).collect();
        entries.extend(self.entries.drain(..).filter(|entry| !known.contains(&entry.value)));
        self.entries = entries;
        let found = self.found();
        let at = found.iter().position(|entry| Some(&entry.value) == chosen.as_ref());
        self.chosen = at.unwrap_or_default();
    }

    /// Adds a text to the filter, for example a paste, and selects the first match. Outer white
    /// space, control characters and characters above the maximum are dropped.
    pub(super) fn filter_by(&mut self, text: &str) {
        let room = self.subject.filter_max().saturating_sub(self.filter.chars().count());
        self.is_moved = true;
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
        self.is_moved = true;
        match code {
            _ if key == ctrl('u') => (self.filter, self.chosen) = (String::new(), 0),
            KeyCode::Esc => return SelectorOutcome::Closed,
            KeyCode::Enter => return self.selection(),
            KeyCode::Delete
                if matches!(
                    self.subject,
                    SelectorKind::Queue | SelectorKind::Drafts | SelectorKind::Jobs
                ) =>
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
    pub(super) fn value(&self) -> Option<String> {
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

    /// Column of the cursor in the last row of the selector, behind the filter.
    pub(super) fn cursor_column(&self) -> usize {
        2 + width(&sanitize(&self.filter))
    }

    /// Rows of the selector on a terminal with `high` rows; the last one has the filter.
    pub(super) fn rows(&self, columns: usize, high: usize, theme: Theme) -> Vec<TextRow> {
        let shown_max = (high * 2 / 5).clamp(SHOWN_MIN, SHOWN_MAX);
        let mut rows = vec![
            Line::from(span(theme, Role::Dim, "─".repeat(columns))),
            row(theme, Role::Strong, clipped(&self.title, columns)),
        ];
        if !self.remark.is_empty() {
            rows.push(row(theme, Role::Dim, clipped(&self.remark, columns)));
        }
        let found = self.found();
        let widths = self.widths(&found);
        let from = (self.chosen + 1).saturating_sub(shown_max);
        for (at, entry) in found.iter().enumerate().skip(from).take(shown_max) {
            let cells = self.cells(entry, &widths);
            rows.push(if at == self.chosen {
                selected_row(theme, &format!("▸ {cells}"), columns)
            } else {
                row(theme, Role::Text, clipped(&format!("  {}", cells.trim_end()), columns))
            });
        }
        if found.len() > shown_max {
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
            | SelectorKind::ConfirmKey(_)
            | SelectorKind::Theme
            | SelectorKind::PermissionMode
            | SelectorKind::ConfirmRewind(..) => "Enter selects",
            SelectorKind::Keymap => "Enter, then the new key",
            SelectorKind::Jobs => "Enter shows its output · Delete stops it",
            SelectorKind::History => "Enter puts it into the prompt",
            SelectorKind::Drafts => "Enter takes it up · Delete deletes it",
            SelectorKind::Tree => "Enter goes there · Ctrl+T labels it",
            SelectorKind::Queue => "Enter edits it · Delete deletes it",
        };
        let back = if self.before.is_some() { "goes back" } else { "closes" };
        let hint =
            format!("  {}  type to filter · ↑↓ · {does} · Esc {back}", sanitize(&self.filter));
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }

    /// The columns of an entry, padded to `widths`.
    fn cells(&self, entry: &SelectorEntry, widths: &[usize]) -> String {
        let cells = self.columns(entry).zip(widths).map(|(cell, columns)| {
            let space = columns.saturating_sub(width(&cell));
            format!("{cell}{}", " ".repeat(space))
        });
        cells.collect::<Vec<_>>().join("  ")
    }

    /// Columns that the cells of entries need; those without content need none.
    fn widths(&self, found: &[&SelectorEntry]) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for entry in found {
            for (nth, cell) in self.columns(entry).enumerate() {
                let needed = width(&cell).min(CELL_COLUMNS_MAX);
                match widths.get_mut(nth) {
                    Some(known) => *known = needed.max(*known),
                    None => widths.push(needed),
                }
            }
        }
        widths
    }

    fn columns<'a>(&self, entry: &'a SelectorEntry) -> impl Iterator<Item = String> + use<'a> {
        let is_current = if self.current.as_ref() == Some(&entry.value) { " ✓" } else { "" };
        let label = format!("{}{is_current}", entry.label);
        std::iter::once(label).chain(entry.facts.iter().cloned())
    }

    /// Rows of the preview of the selected entry, at most `rows_max`: its last lines.
    pub(super) fn preview_rows(
        &self,
        columns: usize,
        rows_max: usize,
        theme: Theme,
    ) -> Vec<TextRow> {
        let shown = self.preview.as_ref().filter(|(value, _)| self.value().as_ref() == Some(value));
        let lines = shown.map(|(_, lines)| lines.as_slice()).unwrap_or_default();
        let lines = &lines[lines.len().saturating_sub(rows_max)..];
        let one = |line: &String| {
            row(theme, Role::Dim, clipped(&format!("  │ {}", in_one_line(line)), columns))
        };
        lines.iter().map(one).collect()
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

    fn listed(name: &str) -> ListedValue {
        ListedValue { name: name.to_owned(), facts: vec!["200k".to_owned(), "$3/$15".to_owned()] }
    }

    #[test]
    fn listed_values_have_columns_and_are_found_by_letters_and_facts() {
        let names = ["a-large", "b-medium"].map(listed).to_vec();
        let mut selector = Selector::new(Selectable::Model, names, "b-medium", "its default");
        let text = |selector: &Selector| {
            let rows = selector.rows(60, 24, Theme::PLAIN);
            rows.iter().map(|row| crate::testing::text_of_row(row) + "\n").collect::<String>()
        };
        let shown = text(&selector);
        assert!(shown.contains("  a-large     200k  $3/$15\n"), "{shown}");
        let selected = format!("{:<60}\n", "▸ b-medium ✓  200k  $3/$15");
        assert!(shown.contains(&selected), "the band has the whole width: {shown}");
        let mut live = vec![listed("c-new")];
        live[0].facts.clear();
        selector.put_first([live, vec![listed("a-large")]].concat());
        selector.remark = "the server lists 2".to_owned();
        assert_eq!(selector.value().as_deref(), Some("b-medium"), "it stays selected");
        let values: Vec<&str> = selector.found().iter().map(|entry| entry.value.as_str()).collect();
        assert_eq!(values, ["c-new", "a-large", "b-medium"]);
        assert!(text(&selector).contains("\nthe server lists 2\n"));
        selector.filter_by("alg");
        assert_eq!(selector.value().as_deref(), Some("a-large"));
        selector.key(ctrl('u'));
        assert_eq!(selector.filter, "");
        selector.filter_by("$15");
        assert_eq!(selector.found().len(), 2, "by a fact");
    }

    #[test]
    fn current_model_that_only_the_provider_lists_is_selected() {
        let list = || Selector::new(Selectable::Model, vec![listed("a"), listed("b")], "own", "");
        let live = || vec![listed("x"), listed("own")];
        let mut selector = list();
        selector.put_first(live());
        assert_eq!(selector.value().as_deref(), Some("own"));
        let mut selector = list();
        selector.key(KeyEvent::from(KeyCode::Down));
        selector.put_first(live());
        assert_eq!(selector.value().as_deref(), Some("b"), "the user has moved");
    }

    #[test]
    fn more_entries_are_shown_on_a_higher_terminal() {
        let names: Vec<String> = (0..30).map(|nth| format!("n{nth}")).collect();
        let names = names.iter().map(|name| listed(name)).collect();
        let selector = Selector::new(Selectable::Model, names, "n0", "");
        for (high, entries) in [(5, 3), (24, 9), (30, 12), (90, 20)] {
            // Rule, title, entries, their number, filter.
            assert_eq!(selector.rows(60, high, Theme::PLAIN).len(), entries + 4, "{high} rows");
        }
    }

    #[test]
    fn enter_takes_only_a_name_that_is_shown() {
        let names = ["alpha", "beta", "alphabet"].map(listed).to_vec();
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
        let entry = |text: &str| SelectorEntry::new(text, text);
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
