//! A list to choose from: arrows, or a part of the name.

use crate::talk::Selected;
use crate::tui::input::{Code, Key};
use crate::tui::text::{Row, clipped, harmless, row, span};
use crate::tui::theme::{Role, Theme};

use ratatui_core::text::Line;

/// Names that are shown at once.
const SHOWN_MAX: usize = 8;

/// A list that is open.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    pub(super) what: Selected,
    names: Vec<String>,
    current: String,
    source: String,
    /// A part of the name that is looked for.
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
}

impl Selector {
    pub(super) fn new(what: Selected, names: Vec<String>, current: &str, source: &str) -> Selector {
        let chosen = names.iter().position(|name| name == current).unwrap_or_default();
        Selector {
            what,
            names,
            current: current.to_owned(),
            source: source.to_owned(),
            filter: String::new(),
            chosen,
            opened_by: None,
        }
    }

    fn found(&self) -> Vec<&String> {
        let wanted = self.filter.to_lowercase();
        self.names.iter().filter(|name| name.to_lowercase().contains(&wanted)).collect()
    }

    /// Follows a key.
    pub(super) fn key(&mut self, key: Key) -> Chosen {
        let found = self.found().len();
        match key.code {
            Code::Esc => return Chosen::Closed,
            Code::Char('c') if key.ctrl => return Chosen::Closed,
            Code::Enter => {
                let name = self.found().get(self.chosen).map(|name| (*name).clone());
                // A name that is not in the list may exist all the same.
                let typed = Some(self.filter.clone()).filter(|filter| !filter.is_empty());
                return name.or(typed).map_or(Chosen::Closed, Chosen::Name);
            }
            Code::Up => self.chosen = self.chosen.checked_sub(1).unwrap_or(found.saturating_sub(1)),
            Code::Down | Code::Tab => {
                self.chosen = if self.chosen + 1 < found { self.chosen + 1 } else { 0 };
            }
            Code::Backspace => {
                self.filter.pop();
                self.chosen = 0;
            }
            _ => {
                if let Some(c) = key.writes().filter(|c| !c.is_whitespace()) {
                    self.filter.push(c);
                    self.chosen = 0;
                }
            }
        }
        Chosen::Open
    }

    /// The rows of it.
    pub(super) fn rows(&self, columns: usize, theme: Theme) -> Vec<Row> {
        let word = self.what.word();
        let now = if self.current.is_empty() {
            format!("{word}: none yet")
        } else {
            format!("{word}: {} ({})", harmless(&self.current), harmless(&self.source))
        };
        let mut rows = vec![
            Line::from(span(theme, Role::Dim, "─".repeat(columns))),
            row(theme, Role::Strong, clipped(&now, columns)),
        ];
        let found = self.found();
        let from = (self.chosen + 1).saturating_sub(SHOWN_MAX);
        for (at, name) in found.iter().enumerate().skip(from).take(SHOWN_MAX) {
            let (role, mark) =
                if at == self.chosen { (Role::Selected, "▸") } else { (Role::Text, " ") };
            let is_current = if **name == self.current { " ✓" } else { "" };
            let text = format!("{mark} {}{is_current}", harmless(name));
            rows.push(row(theme, role, clipped(&text, columns)));
        }
        if found.len() > SHOWN_MAX {
            rows.push(row(theme, Role::Dim, format!("  {} in all", found.len())));
        }
        if found.is_empty() {
            let text = if self.filter.is_empty() {
                format!("  none is known; type the name of the {word}")
            } else {
                format!("  none is known; Enter takes \"{}\" as it is", harmless(&self.filter))
            };
            rows.push(row(theme, Role::Dim, clipped(&text, columns)));
        }
        let hint =
            format!("  {}▏ type to find · ↑↓ · Enter chooses · Esc closes", harmless(&self.filter));
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }
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
        assert_eq!(selector.found(), ["beta", "alphabet"]);
        selector.key(Key::plain(Code::Up));
        assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("alphabet".into()));
        selector.key(Key::plain(Code::Char('9')));
        assert_eq!(selector.key(Key::plain(Code::Enter)), Chosen::Name("bet9".into()));
        assert_eq!(selector.key(Key::plain(Code::Esc)), Chosen::Closed);
    }
}
