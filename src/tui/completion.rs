//! What could be meant by what is being written: commands behind a slash, files behind an `@`.
//! Pure: what files there are is found out by somebody else.

use crate::failure::printable;
use crate::talk::commands::COMMANDS;
use crate::tui::text::{Row, clipped, harmless, row, span, width};
use crate::tui::theme::{Role, Theme};

use ratatui_core::text::Line;

/// Rows that are shown at once.
const SHOWN_MAX: usize = 6;

/// Bytes of a name that is looked for.
const QUERY_BYTES_MAX: usize = 300;

/// What is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A command, by the beginning of its name.
    Command(String),
    /// A file, by parts of its path. `suffix`: the lines that are meant, as `:10-20`.
    File { query: String, suffix: String },
}

/// Something that could be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    /// What is written then.
    with: String,
    label: String,
    what: &'static str,
}

/// What could be meant, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) wanted: Wanted,
    items: Vec<Item>,
    chosen: Option<usize>,
}

impl Wanted {
    /// What is being written right before the cursor.
    pub(super) fn of(before: &str) -> Option<Wanted> {
        if let Some(name) = before.strip_prefix('/') {
            let is_name = name.bytes().all(|b| b.is_ascii_lowercase());
            return is_name.then(|| Wanted::Command(name.to_owned()));
        }
        let from = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let query = before[from..].strip_prefix('@').filter(|q| q.len() <= QUERY_BYTES_MAX)?;
        let (query, suffix) = split_lines(query);
        Some(Wanted::File { query: query.to_owned(), suffix: suffix.to_owned() })
    }

    /// Bytes before the cursor that are written anew.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Wanted::Command(name) => name.len() + 1,
            Wanted::File { query, suffix } => query.len() + suffix.len() + 1,
        }
    }
}

/// A path, and the lines behind it: `:10`, `:10-20`, and what is on the way to that.
fn split_lines(query: &str) -> (&str, &str) {
    let Some(at) = query.rfind(':') else { return (query, "") };
    let lines = &query[at + 1..];
    let are_lines = lines.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if are_lines && lines.matches('-').count() < 2 { query.split_at(at) } else { (query, "") }
}

/// A name as tools read it back: in quotes and escaped where it has white space, or what a terminal
/// or a model would not show as it is.
fn written(name: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && c != '"' && c != '\\';
    if name.chars().all(is_plain) && printable(name) == name {
        return name.to_owned();
    }
    let mut text = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\t' => text.push_str("\\t"),
            c => text.push_str(&printable(c.encode_utf8(&mut [0; 4]))),
        }
    }
    text.push('"');
    text
}

impl Completion {
    /// Commands whose name begins like this; `None` if there are none, or it is written whole.
    pub(super) fn of_commands(prefix: &str) -> Option<Completion> {
        let called = |name: &str| name.starts_with(prefix);
        let mut known: Vec<_> = COMMANDS
            .iter()
            .filter(|entry| called(entry.name) || entry.aliases.iter().any(|name| called(name)))
            .collect();
        known.sort_by_key(|entry| !called(entry.name));
        if known.is_empty() || known.iter().any(|entry| entry.name == prefix) {
            return None;
        }
        let item = |entry: &&crate::talk::commands::Entry| Item {
            with: format!("/{}{}", entry.name, if entry.argument.is_empty() { "" } else { " " }),
            label: format!("/{} {}", entry.name, entry.argument).trim_end().to_owned(),
            what: entry.what,
        };
        let items = known.iter().map(item).collect();
        Some(Completion { wanted: Wanted::Command(prefix.to_owned()), items, chosen: None })
    }

    /// Files that were found, the best first.
    pub(super) fn of_files(query: &str, suffix: &str, names: &[String]) -> Option<Completion> {
        let item = |name: &String| {
            let text = written(name);
            // What is in a folder comes next.
            let end = if name.ends_with('/') { "" } else { " " };
            Item { with: format!("@{text}{suffix}{end}"), label: harmless(name), what: "" }
        };
        let items: Vec<Item> = names.iter().map(item).collect();
        let wanted = Wanted::File { query: query.to_owned(), suffix: suffix.to_owned() };
        // That there is none is worth saying only where one was meant.
        let shown = !items.is_empty() || !query.is_empty();
        shown.then_some(Completion { wanted, items, chosen: None })
    }

    /// Whether nothing of that kind is there.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Goes one up or down.
    pub(super) fn go(&mut self, down: bool) {
        let last = self.items.len() - 1;
        self.chosen = Some(match (self.chosen, down) {
            (None, true) => 0,
            (None | Some(0), false) => last,
            (Some(at), true) => {
                if at < last {
                    at + 1
                } else {
                    0
                }
            }
            (Some(at), false) => at - 1,
        });
    }

    /// Whether one was chosen with the arrows.
    pub(super) fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }

    /// What is written instead: the one that was chosen, or the first.
    pub(super) fn text(&self) -> &str {
        &self.items[self.chosen.unwrap_or_default()].with
    }

    /// The rows of it.
    pub(super) fn rows(&self, columns: usize, rows_max: usize, theme: Theme) -> Vec<Row> {
        if let (true, Wanted::File { query, .. }) = (self.is_empty(), &self.wanted) {
            let query = harmless(query);
            let text = format!("  no file here is called \"{query}\": it is said as it is");
            return vec![row(theme, Role::Dim, clipped(&text, columns))];
        }
        let shown = SHOWN_MAX.min(rows_max);
        let at = self.chosen.unwrap_or_default();
        let from = (at + 1).saturating_sub(shown);
        let labels = self.items.iter().map(|item| width(&item.label)).max().unwrap_or_default();
        let one = |(nth, item): (usize, &Item)| {
            let mark = match self.chosen {
                Some(chosen) if chosen == nth => "▸ ",
                None if nth == 0 => "⇥ ",
                _ => "  ",
            };
            let text = if item.what.is_empty() {
                format!("{mark}{}", item.label)
            } else {
                let room = labels.saturating_sub(width(&item.label));
                format!("{mark}{}{}  {}", item.label, " ".repeat(room), item.what)
            };
            let role = if self.chosen == Some(nth) { Role::Selected } else { Role::Dim };
            row(theme, role, clipped(&text, columns))
        };
        let mut rows: Vec<Row> =
            self.items.iter().enumerate().skip(from).take(shown).map(one).collect();
        let left = self.items.len().saturating_sub(from + rows.len());
        if left > 0 && shown > 1 {
            rows.pop();
            let text = clipped(&format!("  and {} more", left + 1), columns);
            rows.push(Line::from(span(theme, Role::Dim, text)));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_known_by_its_beginning() {
        let file = |query: &str, suffix: &str| {
            Some(Wanted::File { query: query.to_owned(), suffix: suffix.to_owned() })
        };
        let table = [
            ("", None),
            ("/", Some(Wanted::Command(String::new()))),
            ("/mo", Some(Wanted::Command("mo".to_owned()))),
            ("/model ", None),
            ("/usr/bin", None),
            ("say /mo", None),
            ("@", file("", "")),
            ("look at @src/a.rs", file("src/a.rs", "")),
            ("look at @a.rs:10-20", file("a.rs", ":10-20")),
            ("look\n@a:", file("a", ":")),
            ("@a:b", file("a:b", "")),
            ("@a:1-2-3", file("a:1-2-3", "")),
            ("me@example", None),
            ("@a b", None),
            ("ä\u{2003}@é", file("é", "")),
        ];
        for (before, wanted) in table {
            assert_eq!(Wanted::of(before), wanted, "{before:?}");
            if let Some(wanted) = wanted {
                assert!(before.is_char_boundary(before.len() - wanted.bytes()), "{before:?}");
            }
        }
        assert_eq!(Wanted::of(&format!("@{}", "x".repeat(400))), None);
    }

    #[test]
    fn commands_are_found_by_their_other_names_too() {
        let labels = |prefix: &str| {
            let items = Completion::of_commands(prefix).map(|found| found.items);
            let items = items.unwrap_or_default();
            items.into_iter().map(|item| item.with).collect::<Vec<_>>()
        };
        assert_eq!(labels("qui"), ["/exit"]);
        assert_eq!(labels("mod"), ["/model "]);
        assert_eq!(labels("model"), Vec::<String>::new(), "it is written whole");
        assert_eq!(labels("zzz"), Vec::<String>::new());
        assert_eq!(labels("").len(), COMMANDS.len());
    }

    #[test]
    fn files_keep_their_lines_and_folders_go_on() {
        let names = ["src/a.rs", "src/", "my file"].map(str::to_owned);
        let mut found = Completion::of_files("a", ":3-9", &names).unwrap();
        assert_eq!(found.text(), "@src/a.rs:3-9 ");
        found.go(false);
        assert_eq!(found.text(), "@\"my file\":3-9 ");
        found.go(true);
        found.go(true);
        assert_eq!(found.text(), "@src/:3-9");
        assert_eq!(Completion::of_files("", "", &[]), None);
        let names = ["we\u{1b}[31m.txt", "a\"b", "a\u{202e}b"].map(str::to_owned);
        let mut odd = Completion::of_files("", "", &names).unwrap();
        assert_eq!(odd.text(), "@\"we\\u{1b}[31m.txt\" ");
        odd.go(false);
        assert_eq!(odd.text(), "@\"a\\u{202e}b\" ");
        odd.go(false);
        assert_eq!(odd.text(), "@\"a\\\"b\" ");
        let none = Completion::of_files("nosuch", ":1-3", &[]).unwrap();
        assert!(none.is_empty());
        let rows = none.rows(80, 5, Theme::Plain);
        let text: String = rows[0].spans.iter().map(|span| span.content.as_ref()).collect();
        assert!(rows.len() == 1 && text.contains("no file here is called \"nosuch\""), "{text}");
    }
}
