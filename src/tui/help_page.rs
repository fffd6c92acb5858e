//! The overlay of `/help`: keys, commands and guides, with search by typing.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_frontend::commands::{COMMANDS, CommandGroup};

use crate::input::{character, ctrl};
use crate::keymap::{ANSWERS, BINDINGS, Keymap};
use crate::text::{TextRow, clipped, prefixed, row, sanitize, span, text_rows, width};
use crate::theme::{Role, Theme};

use ratatui::text::{Line, Span};

/// Maximum columns of the names at the left.
const NAMES_COLUMNS_MAX: usize = 32;

/// Maximum characters of the filter.
const FILTER_CHARS_MAX: usize = 60;

/// Name and content of a guide, for `/help NAME`.
pub(super) type GuideTopic = (String, String);

/// Effect of Enter on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Nothing,
    /// Puts this text into the prompt.
    Prompt(String),
    /// Opens the guide of this name.
    Guide(String),
}

/// A row of the help: a name and what it does.
#[derive(Debug, Clone)]
struct HelpEntry {
    name: String,
    what: String,
    target: Target,
}

#[derive(Debug, Clone)]
struct HelpSection {
    title: &'static str,
    entries: Vec<HelpEntry>,
}

/// The open help.
#[derive(Debug)]
pub(super) struct HelpPage {
    sections: Vec<HelpSection>,
    filter: String,
    /// Index of the selected entry among those that match the filter.
    chosen: usize,
    /// First visible row.
    scroll: usize,
    /// Number of visible rows when the help was last drawn.
    height: usize,
}

/// Effect of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HelpOutcome {
    /// The help stays open.
    Open,
    /// The help closes.
    Closed,
    /// The help closes, and this text is for the prompt.
    Prompt(String),
    /// The help closes, and the guide of this name opens.
    Guide(String),
}

impl HelpPage {
    /// The help, with the keys of the user. `keys_first` selects the first key, otherwise the first
    /// command is selected.
    pub(super) fn new(keymap: &Keymap, guides: &[GuideTopic], keys_first: bool) -> HelpPage {
        let mut sections: Vec<HelpSection> = CommandGroup::ALL.into_iter().map(commands).collect();
        let keys = [keys(keymap), answers()];
        let at = if keys_first { 0 } else { sections.len() };
        sections.splice(at..at, keys);
        let guide = |(name, about): &GuideTopic| HelpEntry {
            name: name.clone(),
            what: about.clone(),
            target: Target::Guide(name.clone()),
        };
        sections.push(HelpSection {
            title: "Guides: Enter opens one",
            entries: guides.iter().map(guide).collect(),
        });
        sections.retain(|section| !section.entries.is_empty());
        HelpPage { sections, filter: String::new(), chosen: 0, scroll: 0, height: 1 }
    }

    /// Sections with the entries that contain every word of the filter, without empty ones. The
    /// title of a section counts as a part of its entries.
    fn found(&self) -> Vec<(&'static str, Vec<&HelpEntry>)> {
        let wanted = self.filter.to_lowercase();
        let words: Vec<&str> = wanted.split_whitespace().collect();
        let sections = self.sections.iter().map(|section| {
            let has_all = |entry: &&HelpEntry| {
                let text = format!("{} {} {}", entry.name, entry.what, section.title);
                let text = text.to_lowercase();
                words.iter().all(|word| text.contains(word))
            };
            (section.title, section.entries.iter().filter(has_all).collect::<Vec<_>>())
        });
        sections.filter(|(_, entries)| !entries.is_empty()).collect()
    }

    /// Adds a text to the filter.
    pub(super) fn filter_by(&mut self, text: &str) {
        let room = FILTER_CHARS_MAX.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.chars().filter(|c| !c.is_control()).take(room));
        (self.chosen, self.scroll) = (0, 0);
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> HelpOutcome {
        let counts: Vec<usize> = self.found().iter().map(|(_, entries)| entries.len()).collect();
        let last = counts.iter().sum::<usize>().saturating_sub(1);
        let page = self.height.saturating_sub(2).max(1);
        let closes = matches!(key.code, KeyCode::Char('c' | 'd' | 'g'))
            && key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                (self.chosen, self.scroll) = (0, 0);
            }
            KeyCode::Esc => return HelpOutcome::Closed,
            _ if closes => return HelpOutcome::Closed,
            _ if key == ctrl('u') => {
                self.filter.clear();
                (self.chosen, self.scroll) = (0, 0);
            }
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(page),
            KeyCode::PageDown => self.chosen = (self.chosen + page).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Right | KeyCode::Tab => self.chosen = next_section(&counts, self.chosen),
            KeyCode::Left | KeyCode::BackTab => {
                self.chosen = section_before(&counts, self.chosen);
            }
            KeyCode::Backspace => {
                self.filter.pop();
                (self.chosen, self.scroll) = (0, 0);
            }
            KeyCode::Enter => return self.outcome(),
            _ => {
                if let Some(c) = character(key) {
                    self.filter_by(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        HelpOutcome::Open
    }

    fn outcome(&self) -> HelpOutcome {
        let found = self.found();
        let chosen = found.iter().flat_map(|(_, entries)| entries).nth(self.chosen);
        match chosen.map(|entry| &entry.target) {
            Some(Target::Prompt(text)) => HelpOutcome::Prompt(text.clone()),
            Some(Target::Guide(name)) => HelpOutcome::Guide(name.clone()),
            Some(Target::Nothing) | None => HelpOutcome::Open,
        }
    }

    /// Rows of the whole screen.
    pub(super) fn rows(&mut self, columns: usize, height: usize, theme: Theme) -> Vec<TextRow> {
        let (all, chosen) = self.content(columns, theme);
        let room = height.saturating_sub(2).max(1);
        self.height = room;
        // The selected entry is visible; at the first one, so is the heading above it.
        let (first, end) = if self.chosen == 0 { (0, chosen.1) } else { chosen };
        self.scroll = self.scroll.max(end.saturating_sub(room)).min(first);
        self.scroll = self.scroll.min(all.len().saturating_sub(room));
        let title = if self.filter.is_empty() {
            "Help (type to search)".to_owned()
        } else {
            format!("Help: {}", sanitize(&self.filter))
        };
        let mut rows = vec![row(theme, Role::Strong, clipped(&title, columns))];
        let total = all.len();
        let shown_end = (self.scroll + room).min(total);
        rows.extend(all.into_iter().skip(self.scroll).take(room));
        rows.resize(room + 1, Line::default());
        let escape = if self.filter.is_empty() { "Esc closes" } else { "Esc clears" };
        let hint = format!(
            "rows {}–{shown_end} of {total} · ↑↓ PgUp PgDn · Tab next section · Enter takes · {escape}",
            self.scroll + 1
        );
        rows.push(row(theme, Role::Dim, clipped(&hint, columns)));
        rows
    }

    /// All rows, and the range of those of the selected entry.
    fn content(&self, columns: usize, theme: Theme) -> (Vec<TextRow>, (usize, usize)) {
        let found = self.found();
        let entries = || found.iter().flat_map(|(_, entries)| entries);
        let widest = entries().map(|entry| width(&entry.name)).max().unwrap_or_default();
        let names = widest.min(NAMES_COLUMNS_MAX).min(columns * 2 / 5);
        let (mut rows, mut chosen, mut nth) = (Vec::new(), (0, 0), 0);
        for (title, entries) in &found {
            if !rows.is_empty() {
                rows.push(Line::default());
            }
            rows.push(row(theme, Role::Heading, clipped(title, columns)));
            for entry in entries {
                let is_chosen = nth == self.chosen;
                let drawn = entry_rows(entry, names, columns, is_chosen, theme);
                if is_chosen {
                    chosen = (rows.len(), rows.len() + drawn.len());
                }
                rows.extend(drawn);
                nth += 1;
            }
        }
        if rows.is_empty() {
            let text = format!("nothing contains \"{}\"", sanitize(&self.filter));
            rows.push(row(theme, Role::Dim, clipped(&text, columns)));
        }
        (rows, chosen)
    }
}

/// Rows of an entry: its name, and beside it what it does, in as many rows as needed.
fn entry_rows(
    entry: &HelpEntry,
    names: usize,
    columns: usize,
    is_chosen: bool,
    theme: Theme,
) -> Vec<TextRow> {
    let (mark, role) = if is_chosen { ("▸ ", Role::Selected) } else { ("  ", Role::Accent) };
    let name = clipped(&entry.name, names);
    let space = " ".repeat(names.saturating_sub(width(&name)) + 2);
    let first = [span(theme, Role::Text, mark), span(theme, role, name), Span::raw(space)];
    let under = [Span::raw(" ".repeat(names + 4))];
    let room = columns.saturating_sub(names + 4).max(1);
    let text = text_rows(theme, Role::Text, &sanitize(&entry.what), room);
    let prefix = |nth| if nth == 0 { first.as_slice() } else { under.as_slice() };
    text.into_iter().enumerate().map(|(nth, row)| prefixed(prefix(nth), row)).collect()
}

/// First entry of the section after that of `chosen`; the first one of all after the last section.
fn next_section(counts: &[usize], chosen: usize) -> usize {
    let starts = section_starts(counts);
    starts.into_iter().find(|start| *start > chosen).unwrap_or(0)
}

/// First entry of the section before that of `chosen`; that of the last section before the first.
fn section_before(counts: &[usize], chosen: usize) -> usize {
    let starts = section_starts(counts);
    let own = starts.iter().rposition(|start| *start <= chosen).unwrap_or_default();
    let before = own.checked_sub(1).unwrap_or(starts.len().saturating_sub(1));
    starts.get(before).copied().unwrap_or_default()
}

fn section_starts(counts: &[usize]) -> Vec<usize> {
    let mut end = 0;
    let start = |count: &usize| {
        end += count;
        end - count
    };
    counts.iter().map(start).collect()
}

fn commands(group: CommandGroup) -> HelpSection {
    let of_group = COMMANDS.iter().filter(|command| command.group == group);
    let entry = |command: &posse_frontend::commands::Command| {
        let name = format!("/{} {}", command.name, command.argument).trim_end().to_owned();
        let space = if command.argument.is_empty() { "" } else { " " };
        HelpEntry {
            name,
            what: command.help.to_owned(),
            target: Target::Prompt(format!("/{}{space}", command.name)),
        }
    };
    HelpSection { title: group.title(), entries: of_group.map(entry).collect() }
}

fn keys(keymap: &Keymap) -> HelpSection {
    let entry = |binding: &crate::keymap::Binding| HelpEntry {
        name: keymap.keys_of(binding),
        what: binding.what.to_owned(),
        target: Target::Nothing,
    };
    HelpSection { title: "Keys", entries: BINDINGS.iter().map(entry).collect() }
}

fn answers() -> HelpSection {
    let entry = |(key, what): &(char, &str)| HelpEntry {
        name: key.to_string(),
        what: (*what).to_owned(),
        target: Target::Nothing,
    };
    HelpSection {
        title: "Keys at a permission request",
        entries: ANSWERS.iter().map(entry).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::text_of_row;

    fn page() -> HelpPage {
        let guides = [("costs".to_owned(), "costs and budgets".to_owned())];
        HelpPage::new(&Keymap::default(), &guides, false)
    }

    fn screen(page: &mut HelpPage, columns: usize, rows: usize) -> String {
        let rows = page.rows(columns, rows, Theme::PLAIN);
        rows.iter().map(|row| text_of_row(row) + "\n").collect()
    }

    fn types(page: &mut HelpPage, text: &str) {
        for c in text.chars() {
            assert_eq!(page.key(KeyEvent::from(KeyCode::Char(c))), HelpOutcome::Open);
        }
    }

    #[test]
    fn typing_searches_names_and_descriptions_and_enter_takes_one() {
        let mut page = page();
        types(&mut page, "budg");
        let shown = screen(&mut page, 80, 24);
        assert!(shown.contains("▸ costs  costs and budgets"), "{shown}");
        assert!(!shown.contains("/model"), "{shown}");
        let enter = KeyEvent::from(KeyCode::Enter);
        assert_eq!(page.key(enter), HelpOutcome::Guide("costs".to_owned()));
        assert_eq!(page.key(KeyEvent::from(KeyCode::Esc)), HelpOutcome::Open, "it clears the text");
        types(&mut page, "another model");
        assert_eq!(page.key(enter), HelpOutcome::Prompt("/model ".to_owned()));
        types(&mut page, " zzz");
        assert!(screen(&mut page, 80, 24).contains("nothing contains"));
        assert_eq!(page.key(enter), HelpOutcome::Open);
        page.key(ctrl('u'));
        assert!(screen(&mut page, 80, 24).contains("Help (type to search)"));
        assert_eq!(page.key(ctrl('c')), HelpOutcome::Closed);
    }

    #[test]
    fn every_entry_can_be_selected_at_every_size() {
        for (columns, rows) in [(80, 24), (120, 40), (60, 20), (20, 5), (1, 1)] {
            let mut page = page();
            let total: usize = page.found().iter().map(|(_, entries)| entries.len()).sum();
            for _ in 1..total {
                page.key(KeyEvent::from(KeyCode::Down));
                let shown = page.rows(columns, rows, Theme::PLAIN);
                assert!(shown.len() <= rows.max(3), "{columns}x{rows}");
                let is_marked = shown.iter().any(|row| text_of_row(row).starts_with('▸'));
                assert!(is_marked, "{columns}x{rows}: {}", page.chosen);
            }
            assert_eq!(page.chosen, total - 1);
            page.key(KeyEvent::from(KeyCode::Tab));
            assert_eq!(page.chosen, 0, "after the last section comes the first one");
            page.key(KeyEvent::from(KeyCode::BackTab));
            assert_eq!(page.chosen, total - 1, "the last section has one entry");
            page.key(KeyEvent::from(KeyCode::Home));
            assert!(columns < 20 || screen(&mut page, columns, rows).contains("Commands"));
        }
    }
}
