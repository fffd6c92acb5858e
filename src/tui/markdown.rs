//! Rendering of Markdown. Text that is no Markdown is shown as it is.

mod stream;
mod table;

use std::collections::HashMap;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::highlight::Highlighter;
use crate::links;
use crate::text::{TextRow, clipped, columns_of, prefixed, row, sanitize, span, width, wrap};
use crate::theme::{Role, Theme};

pub(super) use stream::{Piece, Stream};

use table::Table;

/// Renders a piece of a streamed text.
pub(super) fn piece_rows(piece: &Piece, columns: usize, theme: Theme) -> Vec<TextRow> {
    match piece {
        Piece::Text(text) => rows(text, columns, theme),
        Piece::Code { language, highlighter, lines, begins } => {
            let mut rows = Vec::new();
            if *begins && !language.is_empty() {
                // At the right, where it does not read like code.
                let text = clipped(&sanitize(language), columns);
                let space = columns.min(PROSE_COLUMNS_MAX).saturating_sub(width(&text));
                rows.push(row(theme, Role::Dim, format!("{}{text}", " ".repeat(space))));
            }
            let mut highlighter = highlighter.clone();
            rows.extend(code_rows(lines, &mut highlighter, columns, theme));
            rows
        }
    }
}

/// Maximum columns of prose: longer lines are hard to read. Code and tables use the whole width.
const PROSE_COLUMNS_MAX: usize = 100;

/// Marker of an item in a list without numbers.
const BULLET: &str = "• ";

/// Maximum length of the name of a language behind the fence of a code block.
const LANGUAGE_CHARS_MAX: usize = 16;

/// Renders a Markdown text in rows of at most `columns` columns; fewer than 4 count as 4. Rows are
/// not padded.
pub(super) fn rows(text: &str, columns: usize, theme: Theme) -> Vec<TextRow> {
    let text = sanitize(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer { columns: columns.max(4), theme, ..Writer::default() };
    for event in Parser::new_ext(&text, options) {
        writer.take(event);
    }
    writer.flush();
    writer.rows
}

/// Renders a Markdown text as plain text with lines of at most `columns` columns; fewer than 4
/// count as 4. A table that is wider is written cell by cell. Every line ends with a newline.
pub fn plain_text(text: &str, columns: usize) -> String {
    let mut plain = String::new();
    for row in rows(text, columns, Theme::PLAIN) {
        let line: String = row.spans.iter().map(|span| span.content.as_ref()).collect();
        plain.push_str(line.trim_end());
        plain.push('\n');
    }
    plain
}

/// True if rendering leaves out letters of a Markdown text, such as a link definition, the title of a
/// link or a surplus cell of a table. The language of a code block does not count.
pub(super) fn hides_text(text: &str) -> bool {
    let is_fence = |line: &&str| {
        let line = line.trim();
        let language = line.trim_start_matches(['`', '~']);
        line.len() - language.len() >= 3
            && language.len() <= LANGUAGE_CHARS_MAX
            && language.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let counted = |text: &str| {
        let mut letters: HashMap<char, usize> = HashMap::new();
        for letter in text.chars().filter(|c| c.is_alphabetic()) {
            *letters.entry(letter).or_default() += 1;
        }
        letters
    };
    // A character by its number adds letters that the source does not have.
    if text.contains("&#") {
        return true;
    }
    let shown = counted(&plain_text(text, usize::from(u16::MAX)));
    let source: Vec<&str> = text.lines().filter(|line| !is_fence(line)).collect();
    // The mark of a finished task is shown as a sign.
    let source = source.join("\n").replace("[x] ", "[ ] ").replace("[X] ", "[ ] ");
    counted(&source)
        .into_iter()
        .any(|(letter, count)| shown.get(&letter).is_none_or(|shown| *shown < count))
}

/// Renders code, indented by two columns; long lines wrap.
fn code_rows(
    lines: &str,
    highlighter: &mut Highlighter,
    columns: usize,
    theme: Theme,
) -> Vec<TextRow> {
    let mut rows = Vec::new();
    let indent = [Span::raw(" ".repeat(2.min(columns / 2)))];
    let below = [Span::raw(" ".repeat(6.min(columns / 2)))];
    for line in lines.split('\n') {
        let line = sanitize(line);
        let pieces = highlighter.line(&line);
        let spans: Vec<Span<'static>> =
            pieces.into_iter().map(|(role, text)| span(theme, role, text)).collect();
        rows.extend(wrap(&spans, columns, &indent, &below));
    }
    rows
}

/// A block that contains the current paragraph.
#[derive(Debug, Clone)]
enum Level {
    Quote,
    /// A list. Number of its next item if it is numbered; `None` if it is not.
    List(Option<u64>),
    /// An item of a list. `mark`: its marker, until it was written; `columns`: width of the marker.
    Item {
        mark: Option<String>,
        columns: usize,
    },
}

#[derive(Default)]
struct Writer {
    columns: usize,
    theme: Theme,
    rows: Vec<TextRow>,
    levels: Vec<Level>,
    spans: Vec<Span<'static>>,
    roles: Vec<Role>,
    link: Option<(String, usize)>,
    code: Option<(Highlighter, String)>,
    table: Option<Table>,
    /// True if a blank row precedes the next block.
    gap: bool,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None if self.link.is_some() => self.push_text(&text, None),
                None => self.push_prose(&text),
            },
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.push_text(&text, Some(Role::Code));
            }
            Event::SoftBreak => self.push_text(" ", None),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.open_block();
                let wide = self.room().min(40);
                let text = "─".repeat(wide);
                self.spans.push(span(self.theme, Role::Dim, text));
                self.flush();
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.task_box(if done { "☑ " } else { "☐ " }),
            Event::Html(text) | Event::InlineHtml(text) => {
                for (at, line) in text.trim_end_matches('\n').split('\n').enumerate() {
                    if at > 0 {
                        self.flush();
                    }
                    self.push_text(line, Some(Role::Dim));
                }
            }
            Event::FootnoteReference(text) => self.push_text(&format!("[{text}]"), None),
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.open_block(),
            Tag::Heading { level, .. } => {
                self.open_block();
                if level > HeadingLevel::H2 {
                    let marks = "#".repeat(level as usize);
                    self.spans.push(span(self.theme, Role::Dim, format!("{marks} ")));
                }
                self.roles.push(Role::Heading);
            }
            Tag::BlockQuote(_) => {
                self.open_block();
                self.levels.push(Level::Quote);
            }
            Tag::List(first) => {
                self.flush();
                if self.levels.is_empty() {
                    self.open_block();
                }
                self.levels.push(Level::List(first));
            }
            Tag::Item => self.item(),
            Tag::CodeBlock(kind) => {
                self.flush();
                self.open_block();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((Highlighter::of(&language), String::new()));
            }
            Tag::Emphasis => self.roles.push(Role::Emphasis),
            Tag::Strong => self.roles.push(Role::Strong),
            Tag::Strikethrough => self.roles.push(Role::Struck),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.to_string(), self.spans.len()));
                self.roles.push(Role::Link);
            }
            Tag::Table(alignments) => {
                self.open_block();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableRow => self.table.iter_mut().for_each(Table::begin_row),
            Tag::TableHead => self.table.iter_mut().for_each(Table::begin_head),
            _ => (),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.roles.pop();
                self.flush();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item => {
                self.flush();
                self.levels.pop();
                self.gap = match tag {
                    TagEnd::Item => false,
                    TagEnd::List(_) => self.levels.is_empty(),
                    _ => true,
                };
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.roles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.roles.pop();
                self.end_link();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                self.table.iter_mut().for_each(|table| table.add(cell.clone()));
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let (before, theme) = (self.prefix(), self.theme);
                    let room = self.room();
                    let rows = table.rows(room, theme);
                    self.rows.extend(rows.into_iter().map(|row| prefixed(&before, row)));
                }
                self.gap = true;
            }
            _ => (),
        }
    }

    /// Shows the address of a link behind its text, unless both are equal, so that the user knows
    /// the target.
    fn end_link(&mut self) {
        let Some((address, from)) = self.link.take() else { return };
        let style = links::style_to(&address);
        for span in self.spans.iter_mut().skip(from) {
            span.style = span.style.patch(style);
        }
        let text: String = self.spans.iter().skip(from).map(|span| span.content.as_ref()).collect();
        if text != address && !address.is_empty() && address.trim_start_matches("mailto:") != text {
            self.push_text(" (", Some(Role::Dim));
            self.push_text(&address, Some(Role::Dim));
            self.style_last(style);
            self.push_text(")", Some(Role::Dim));
        }
    }

    fn end_code(&mut self) {
        let Some((mut highlighter, code)) = self.code.take() else { return };
        let code = code.strip_suffix('\n').unwrap_or(&code);
        let (before, room) = (self.prefix(), self.room());
        let rows = code_rows(code, &mut highlighter, room, self.theme);
        self.rows.extend(rows.into_iter().map(|row| prefixed(&before, row)));
        self.gap = true;
    }

    fn item(&mut self) {
        self.flush();
        let mark = match self.levels.last_mut() {
            Some(Level::List(Some(number))) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => BULLET.to_owned(),
        };
        let columns = width(&mark);
        self.levels.push(Level::Item { mark: Some(mark), columns });
    }

    /// Shows the box of a task in place of the bullet of its item, or behind the number.
    fn task_box(&mut self, sign: &str) {
        match self.levels.last_mut() {
            Some(Level::Item { mark: Some(mark), .. }) if mark == BULLET => sign.clone_into(mark),
            _ => self.push_text(sign, Some(Role::Accent)),
        }
    }

    /// Starts a block, with a blank row before it where needed.
    fn open_block(&mut self) {
        self.flush();
        if std::mem::take(&mut self.gap) && !self.rows.is_empty() {
            let before = self.prefix_of(false);
            self.rows.push(Line::from(before));
        }
    }

    /// Adds a text. Web addresses in it are links.
    fn push_prose(&mut self, text: &str) {
        for (piece, is_address) in links::split_addresses(text) {
            self.push_text(piece, is_address.then_some(Role::Link));
            if is_address {
                self.style_last(links::style_to(piece));
            }
        }
    }

    fn style_last(&mut self, style: Style) {
        if let Some(last) = self.spans.last_mut() {
            last.style = last.style.patch(style);
        }
    }

    fn push_text(&mut self, text: &str, role: Option<Role>) {
        let roles = self.roles.iter().copied().chain(role);
        let style = roles.fold(Style::new(), |style, role| style.patch(self.theme.style(role)));
        self.spans.push(Span::styled(text.to_owned(), style));
    }

    /// Writes the collected text as wrapped rows.
    fn flush(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        let first = self.prefix();
        let rest = self.prefix_of(false);
        let columns = self.columns.min(PROSE_COLUMNS_MAX);
        self.rows.extend(wrap(&spans, columns, &first, &rest));
    }

    /// Prefix of the next row, with indentation and markers. The marker of an item is written once.
    fn prefix(&mut self) -> Vec<Span<'static>> {
        let prefix = self.prefix_of(true);
        for level in &mut self.levels {
            if let Level::Item { mark, .. } = level {
                *mark = None;
            }
        }
        prefix
    }

    fn prefix_of(&self, with_marks: bool) -> Vec<Span<'static>> {
        let mut prefix = Vec::new();
        let mut taken = 0;
        for level in &self.levels {
            let (text, role) = match level {
                Level::Quote => ("│ ".to_owned(), Role::Dim),
                Level::List(_) => continue,
                Level::Item { mark: Some(mark), .. } if with_marks => (mark.clone(), Role::Accent),
                Level::Item { columns, .. } => (" ".repeat(*columns), Role::Text),
            };
            // At least half of the row remains for the text, at any depth.
            taken += width(&text);
            if taken > self.columns / 2 {
                break;
            }
            prefix.push(span(self.theme, role, text));
        }
        prefix
    }

    fn room(&self) -> usize {
        self.columns.saturating_sub(columns_of(&self.prefix_of(false))).max(2)
    }
}

#[cfg(test)]
mod tests;
