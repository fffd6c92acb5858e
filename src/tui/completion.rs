//! Completion of commands after a slash and of file names after an `@`. Pure: the file names are a
//! parameter.

use std::cmp::Reverse;

use posse_base::failure::printable;
use posse_frontend::command_uses::CommandUses;
use posse_frontend::commands::{ArgumentValues, COMMANDS, Command};

use crate::text::{TextRow, clipped, row, sanitize, selected_row, span, width};
use crate::theme::{Role, Theme};

use ratatui::text::Line;

/// Maximum columns of the names in a list with descriptions; longer ones are cut.
const LABEL_COLUMNS_MAX: usize = 24;

/// Commands that come first in the list of all, before those in the order of the help.
const FIRST: [&str; 8] =
    ["model", "resume", "new", "permission-mode", "diff", "undo", "compact", "cost"];

/// Maximum number of rows of the list.
const SHOWN_MAX: usize = 10;

/// Maximum bytes of a file query; a longer one is not completed.
const QUERY_BYTES_MAX: usize = 300;

/// The text before the cursor that is completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CompletionQuery {
    /// A command, by a part of its name or a word about it.
    Command(String),
    /// The argument of a command, by the beginning of one of its values.
    Argument { values: ArgumentValues, query: String },
    /// A file, by parts of its path. `suffix`: a range of lines such as `:10-20`.
    File { query: String, suffix: String },
}

/// One item of the completion list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CompletionItem {
    /// Text that replaces the query.
    with: String,
    label: String,
    /// Syntax of the argument of a command; may be empty.
    argument: &'static str,
    what: &'static str,
}

/// An open completion list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) query: CompletionQuery,
    items: Vec<CompletionItem>,
    chosen: Option<usize>,
}

impl CompletionItem {
    /// Columns of the label and the argument.
    fn columns(&self) -> usize {
        let argument = if self.argument.is_empty() { 0 } else { 1 + width(self.argument) };
        width(&self.label) + argument
    }
}

impl CompletionQuery {
    /// Parses the query at the end of `before`, the text before the cursor; `None` if there is
    /// none.
    pub(super) fn of(before: &str) -> Option<CompletionQuery> {
        if let Some(name) = before.strip_prefix('/') {
            if let Some((name, query)) = name.split_once(' ')
                && let Some(command) = COMMANDS.iter().find(|command| command.name == name)
                && command.values != ArgumentValues::Any
                && !query.contains(char::is_whitespace)
            {
                let (values, query) = (command.values, query.to_owned());
                return Some(CompletionQuery::Argument { values, query });
            }
            let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            return is_name.then(|| CompletionQuery::Command(name.to_owned()));
        }
        let from = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let query = before[from..].strip_prefix('@').filter(|q| q.len() <= QUERY_BYTES_MAX)?;
        let (query, suffix) = split_lines(query);
        Some(CompletionQuery::File { query: query.to_owned(), suffix: suffix.to_owned() })
    }

    /// Number of bytes before the cursor that a completion replaces.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CompletionQuery::Command(name) => name.len() + 1,
            CompletionQuery::Argument { query, .. } => query.len(),
            CompletionQuery::File { query, suffix } => query.len() + suffix.len() + 1,
        }
    }
}

/// Splits a path from the lines behind it: `:10`, `:10-20`, or a prefix of that.
fn split_lines(query: &str) -> (&str, &str) {
    let Some(at) = query.rfind(':') else { return (query, "") };
    let lines = &query[at + 1..];
    let are_lines = lines.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if are_lines && lines.matches('-').count() < 2 { query.split_at(at) } else { (query, "") }
}

/// Returns `name` unchanged or, if it contains white space, a quote, a backslash or an unprintable
/// character, in quotes and escaped, so that tools can parse it back.
pub(super) fn written(name: &str) -> String {
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

/// Minimum letters of a query that is also looked for in the descriptions of commands.
const WORD_LETTERS_MIN: usize = 3;

/// Largest rank of a command that Enter runs although its name is not written whole.
const RUN_DISTANCE_MAX: u8 = 2;

/// Rank of the command among those that `query` may mean; the lowest one comes first. 0: `query` is
/// another name of it; 1: the name begins with `query`; 2: another name does; 3: the name contains it;
/// 4: a word of the description begins with it; 5: the name contains its letters in this order. `None`:
/// the command does not match.
fn distance(entry: &Command, query: &str) -> Option<u8> {
    let begins = |name: &str| name.starts_with(query);
    let mut letters = entry.name.chars();
    if entry.aliases.contains(&query) {
        Some(0)
    } else if begins(entry.name) {
        Some(1)
    } else if entry.aliases.iter().any(|name| begins(name)) {
        Some(2)
    } else if entry.name.contains(query) {
        Some(3)
    } else if query.len() >= WORD_LETTERS_MIN
        && entry.help.split(|c: char| !c.is_alphanumeric()).any(|word| begins(&word.to_lowercase()))
    {
        Some(4)
    } else {
        query.chars().all(|wanted| letters.any(|letter| letter == wanted)).then_some(5)
    }
}

impl Completion {
    /// Completion list of the commands that `query` may mean, the closest ones first and, of equally
    /// close ones, the most used ones; `None` if there are none, or if `query` is the whole name of a
    /// command. The first one is selected if one of its names begins with `query`.
    pub(super) fn of_commands(query: &str, uses: &CommandUses) -> Option<Completion> {
        let ranked = |entry: &'static Command| Some((distance(entry, query)?, entry));
        let mut known: Vec<(u8, &Command)> = COMMANDS.iter().filter_map(ranked).collect();
        known.sort_by_key(|(distance, entry)| {
            let first = FIRST.iter().position(|name| *name == entry.name);
            (*distance, Reverse(uses.of(entry)), first.unwrap_or(FIRST.len()))
        });
        if known.is_empty() || known.iter().any(|(_, entry)| entry.name == query) {
            return None;
        }
        let item = |(_, entry): &(u8, &Command)| CompletionItem {
            with: format!("/{}{}", entry.name, if entry.argument.is_empty() { "" } else { " " }),
            label: format!("/{}", entry.name),
            argument: entry.argument,
            what: entry.short(),
        };
        let chosen = (known[0].0 <= RUN_DISTANCE_MAX).then_some(0);
        let items = known.iter().map(item).collect();
        Some(Completion { query: CompletionQuery::Command(query.to_owned()), items, chosen })
    }

    /// Completion list of the values of an argument that begin with `query`, each with a description;
    /// `None` if there are none, or if `query` is one of them.
    pub(super) fn of_values(
        values: ArgumentValues,
        query: &str,
        known: &[(&str, &'static str)],
    ) -> Option<Completion> {
        let is_whole = known.iter().any(|(name, _)| *name == query);
        let item = |(name, what): &(&str, &'static str)| CompletionItem {
            with: (*name).to_owned(),
            label: sanitize(name),
            argument: "",
            what,
        };
        let begins = known.iter().filter(|(name, _)| name.starts_with(query));
        let items: Vec<CompletionItem> = begins.map(item).collect();
        let query = CompletionQuery::Argument { values, query: query.to_owned() };
        (!items.is_empty() && !is_whole).then_some(Completion { query, items, chosen: None })
    }

    /// Completion list of the subagents whose name begins with a query, and of the file names that were
    /// found for it, in the given order. `None` if the query is empty and nothing was found.
    pub(super) fn of_files(
        query: &str,
        suffix: &str,
        names: &[String],
        agents: &[String],
    ) -> Option<Completion> {
        let item = |name: &String| {
            let text = written(name);
            // A folder is completed further.
            let end = if name.ends_with('/') { "" } else { " " };
            CompletionItem {
                with: format!("@{text}{suffix}{end}"),
                label: sanitize(name),
                argument: "",
                what: "",
            }
        };
        let agent = |name: &String| CompletionItem {
            with: format!("@{name} "),
            label: sanitize(name),
            argument: "",
            what: "subagent: does the work",
        };
        let agents = agents.iter().filter(|name| suffix.is_empty() && name.starts_with(query));
        let items: Vec<CompletionItem> = agents.map(agent).chain(names.iter().map(item)).collect();
        let wanted = CompletionQuery::File { query: query.to_owned(), suffix: suffix.to_owned() };
        // An empty result is shown only if a name was typed.
        let shown = !items.is_empty() || !query.is_empty();
        shown.then_some(Completion { query: wanted, items, chosen: None })
    }

    /// Returns `true` if nothing matches.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Moves the selection by one item, down or up; it wraps around at the ends. The list must not
    /// be empty.
    pub(super) fn go(&mut self, down: bool) {
        let last = self.items.len() - 1;
        self.chosen = Some(match (self.chosen, down) {
            // The first one is marked already.
            (None, true) => last.min(1),
            (None | Some(0), false) => last,
            (Some(at), true) => (at + 1) % self.items.len(),
            (Some(at), false) => at - 1,
        });
    }

    /// Returns `true` if an item is selected: with the arrow keys, or a command by its beginning.
    pub(super) fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }

    /// Text that replaces the query: that of the selected item, or of the first one if none is
    /// selected. The list must not be empty.
    pub(super) fn text(&self) -> &str {
        &self.items[self.chosen.unwrap_or_default()].with
    }

    /// Rows of the list, at most `rows_max`.
    pub(super) fn rows(&self, columns: usize, rows_max: usize, theme: Theme) -> Vec<TextRow> {
        if let (true, CompletionQuery::File { query, .. }) = (self.is_empty(), &self.query) {
            let query = sanitize(query);
            let text = format!("  no file matches \"{query}\"; it is sent as text");
            return vec![row(theme, Role::Dim, clipped(&text, columns))];
        }
        let shown = SHOWN_MAX.min(rows_max);
        let at = self.chosen.unwrap_or_default();
        let from = (at + 1).saturating_sub(shown);
        let has_text = self.items.iter().any(|item| !item.what.is_empty());
        let label_max = if has_text { LABEL_COLUMNS_MAX.min(columns * 2 / 5) } else { columns };
        let labels = self.items.iter().map(CompletionItem::columns).max().unwrap_or_default();
        let labels = labels.min(label_max);
        let one = |(nth, item): (usize, &CompletionItem)| {
            let mark = match self.chosen {
                Some(chosen) if chosen == nth => "▸ ",
                None if nth == 0 => "⇥ ",
                _ => "  ",
            };
            let label = clipped(&format!("{mark}{}", clipped(&item.label, label_max)), columns);
            let room = (labels + 2).min(columns).saturating_sub(width(&label) + 1);
            let argument = if item.argument.is_empty() || room == 0 {
                String::new()
            } else {
                format!(" {}", clipped(item.argument, room))
            };
            let space = (labels + 4).saturating_sub(width(&label) + width(&argument));
            let what = format!("{}{}", " ".repeat(space), item.what);
            let left = columns.saturating_sub(width(&label) + width(&argument));
            let what = if item.what.is_empty() { String::new() } else { clipped(&what, left) };
            if self.chosen == Some(nth) {
                return selected_row(theme, &(label + &argument + &what), columns);
            }
            let spans = [(Role::Accent, label), (Role::Dim, argument), (Role::Dim, what)];
            Line::from_iter(spans.map(|(role, text)| span(theme, role, text)))
        };
        let mut rows: Vec<TextRow> =
            self.items.iter().enumerate().skip(from).take(shown).map(one).collect();
        let left = self.items.len().saturating_sub(from + rows.len());
        if left > 0 && shown > 1 {
            rows.pop();
            let is_command = matches!(self.query, CompletionQuery::Command(_));
            let keys =
                if is_command && self.is_chosen() { " · Enter runs · Tab completes" } else { "" };
            let text = clipped(&format!("  and {} more{keys}", left + 1), columns);
            rows.push(Line::from(span(theme, Role::Dim, text)));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_recognised_by_its_first_character() {
        let file = |query: &str, suffix: &str| {
            Some(CompletionQuery::File { query: query.to_owned(), suffix: suffix.to_owned() })
        };
        let argument = |query: &str| CompletionQuery::Argument {
            values: ArgumentValues::Themes,
            query: query.to_owned(),
        };
        let table = [
            ("", None),
            ("/", Some(CompletionQuery::Command(String::new()))),
            ("/mo", Some(CompletionQuery::Command("mo".to_owned()))),
            ("/model ", None),
            ("/theme  x", None),
            ("/theme d", Some(argument("d"))),
            ("/theme ", Some(argument(""))),
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
            assert_eq!(CompletionQuery::of(before), wanted, "{before:?}");
            if let Some(wanted) = wanted {
                assert!(before.is_char_boundary(before.len() - wanted.bytes()), "{before:?}");
            }
        }
        assert_eq!(CompletionQuery::of(&format!("@{}", "x".repeat(400))), None);
    }

    #[test]
    fn commands_are_found_by_aliases() {
        let labels = |prefix: &str| {
            let uses = CommandUses::default();
            let items = Completion::of_commands(prefix, &uses).map(|found| found.items);
            let items = items.unwrap_or_default();
            items.into_iter().map(|item| item.with).collect::<Vec<_>>()
        };
        assert_eq!(labels("qui"), ["/exit"]);
        // By the beginning of the name, by a part of it, and by a word about it.
        assert_eq!(labels("mod")[..2], ["/model ", "/permission-mode "]);
        assert_eq!(labels("permission-m"), ["/permission-mode "]);
        assert!(labels("clipboard").contains(&"/copy".to_owned()), "{:?}", labels("clipboard"));
        // By letters in the same order.
        assert_eq!(labels("pmode"), ["/permission-mode "]);
        assert_eq!(labels("model"), Vec::<String>::new(), "it is written whole");
        assert_eq!(labels("zzz"), Vec::<String>::new());
        assert_eq!(labels("").len(), COMMANDS.len());
        let mut uses = CommandUses::default();
        for _ in 0..2 {
            uses.add(COMMANDS.iter().find(|command| command.name == "memory").unwrap());
        }
        uses.add(COMMANDS.iter().find(|command| command.name == "cost").unwrap());
        let first = |query| Completion::of_commands(query, &uses).unwrap().text().to_owned();
        assert_eq!(first(""), "/memory");
        assert_eq!(first("co"), "/cost", "an unused command that is closer comes later");
        assert_eq!(first("mo"), "/model ", "a closer match comes before a used command");
        assert_eq!(first("q"), "/exit", "a whole alias comes before a beginning");
    }

    #[test]
    fn command_is_selected_by_its_beginning_only() {
        let uses = CommandUses::default();
        let chosen = |query: &str| Completion::of_commands(query, &uses).unwrap().chosen;
        for query in ["", "mo", "qui", "q"] {
            assert_eq!(chosen(query), Some(0), "{query}");
        }
        for query in ["ode", "clipboard", "pmode"] {
            assert_eq!(chosen(query), None, "{query}");
        }
    }

    #[test]
    fn texts_of_commands_fit_80_columns() {
        let all = Completion::of_commands("", &CommandUses::default()).unwrap();
        let shown = |mut list: Completion, nth: usize| {
            list.chosen = Some(nth);
            let row = &list.rows(80, 1, Theme::PLAIN)[0];
            row.spans.iter().map(|span| span.content.as_ref()).collect::<String>()
        };
        for (nth, item) in all.items.iter().enumerate() {
            let text = shown(all.clone(), nth);
            assert!(text.trim_end().ends_with(item.what) && width(&text) == 80, "{text}");
        }
    }

    #[test]
    fn files_keep_line_ranges_and_folders_stay_open() {
        let names = ["src/a.rs", "src/", "my file"].map(str::to_owned);
        let mut found = Completion::of_files("a", ":3-9", &names, &[]).unwrap();
        assert_eq!(found.text(), "@src/a.rs:3-9 ");
        found.go(false);
        assert_eq!(found.text(), "@\"my file\":3-9 ");
        found.go(true);
        found.go(true);
        assert_eq!(found.text(), "@src/:3-9");
        assert_eq!(Completion::of_files("", "", &[], &[]), None);
        let names = ["we\u{1b}[31m.txt", "a\"b", "a\u{202e}b"].map(str::to_owned);
        let mut odd = Completion::of_files("", "", &names, &[]).unwrap();
        assert_eq!(odd.text(), "@\"we\\u{1b}[31m.txt\" ");
        odd.go(false);
        assert_eq!(odd.text(), "@\"a\\u{202e}b\" ");
        odd.go(false);
        assert_eq!(odd.text(), "@\"a\\\"b\" ");
        let agents = ["explore", "review"].map(str::to_owned);
        let found = Completion::of_files("ex", "", &["examples/".to_owned()], &agents).unwrap();
        assert_eq!((found.text(), found.items.len()), ("@explore ", 2));
        assert!(Completion::of_files("ex", ":3", &[], &agents).unwrap().is_empty());
        let none = Completion::of_files("nosuch", ":1-3", &[], &[]).unwrap();
        assert!(none.is_empty());
        let rows = none.rows(80, 5, Theme::PLAIN);
        let text: String = rows[0].spans.iter().map(|span| span.content.as_ref()).collect();
        assert!(rows.len() == 1 && text.contains("no file matches \"nosuch\""), "{text}");
    }
}
