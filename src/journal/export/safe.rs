//! Sanitises untrusted text for HTML and Markdown, and renders Markdown as HTML.

use std::ops::Range;

use posse_base::failure::{printable, printable_lines};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Maximum number of passes over a Markdown document: escaping one construct can create another.
const PASSES_MAX: usize = 8;

/// Escapes `text` for HTML content and attribute values. Control characters become visible; line
/// breaks stay.
pub(super) fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + text.len() / 8);
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Escapes `text` for HTML. The result is one line: line breaks become `\n`.
pub(super) fn html_line(text: &str) -> String {
    html(&printable(text))
}

/// Escapes control characters and direction overrides in `text`; keeps line breaks.
pub(super) fn clean(text: &str) -> String {
    printable_lines(&text.replace("\r\n", "\n"))
}

/// Renders Markdown as HTML with a fixed set of tags. HTML in the source becomes text, images
/// become their descriptions, and of a link that does not lead to http or https only the text
/// remains.
pub(super) fn rendered(markdown: &str) -> String {
    let markdown = clean(markdown);
    let mut links: Vec<bool> = Vec::new();
    let events = Parser::new_ext(&markdown, options()).filter_map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
        Event::Start(Tag::HtmlBlock) => Some(Event::Start(Tag::Paragraph)),
        Event::End(TagEnd::HtmlBlock) => Some(Event::End(TagEnd::Paragraph)),
        Event::Start(Tag::Link { ref dest_url, .. }) => {
            let kept = is_web_link(dest_url);
            links.push(kept);
            kept.then_some(event)
        }
        Event::End(TagEnd::Link) => links.pop().unwrap_or(false).then_some(event),
        Event::Start(Tag::Image { .. }) => Some(Event::Text("[image: ".into())),
        Event::End(TagEnd::Image) => Some(Event::Text("]".into())),
        other => Some(other),
    });
    let mut safe = String::with_capacity(markdown.len() * 2);
    pulldown_cmark::html::push_html(&mut safe, events);
    safe
}

/// Sanitises a Markdown document: escapes HTML, images, and links that do not lead to http or
/// https. If `PASSES_MAX` passes do not suffice, the whole document becomes a code block.
pub(super) fn markdown(mut text: String) -> String {
    for _ in 0..PASSES_MAX {
        let ranges = dangerous(&text);
        if ranges.is_empty() {
            return text;
        }
        text = escape_brackets(&text, &ranges);
    }
    fenced(&text, "")
}

/// Formats `text` as a Markdown code block in `language`, with a fence that the text cannot close.
pub(super) fn fenced(text: &str, language: &str) -> String {
    let text = clean(text);
    let fence = "`".repeat(3.max(ticks_in(&text) + 1));
    let ending = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{ending}{fence}\n")
}

/// Formats `text` as inline code of Markdown.
pub(super) fn code(text: &str) -> String {
    let text = printable(text);
    let inside = ticks_in(&text);
    let ticks = "`".repeat(inside + 1);
    let space = if inside > 0 || text.trim() != text || text.is_empty() { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}

/// Escapes `text` as one line of Markdown, so that nothing in it is markup.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        if c.is_ascii_punctuation() && !matches!(c, '.' | ',' | ':' | ';' | '/' | '-' | '=' | '\'')
        {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// Length of the longest run of backticks in `text`.
fn ticks_in(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

fn is_web_link(address: &str) -> bool {
    let lower = address.trim_start().get(..8).unwrap_or(address).to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

/// Finds the HTML, images, and links other than http and https in Markdown. Returns their byte
/// ranges, sorted by start.
fn dangerous(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        let bad = match event {
            Event::Html(_) | Event::InlineHtml(_) | Event::Start(Tag::Image { .. }) => true,
            Event::Start(Tag::Link { dest_url, .. }) => !is_web_link(&dest_url),
            _ => false,
        };
        if bad {
            ranges.push(range);
        }
    }
    ranges
}

/// Escapes `<` and `[` within these byte ranges of `text`. `ranges` must be sorted by start.
fn escape_brackets(text: &str, ranges: &[Range<usize>]) -> String {
    let mut safe = String::with_capacity(text.len() + 64);
    let mut ranges = ranges.iter().peekable();
    let mut covered_until = 0;
    for (at, c) in text.char_indices() {
        while let Some(range) = ranges.next_if(|range| range.start <= at) {
            covered_until = covered_until.max(range.end);
        }
        let inside = at < covered_until;
        match c {
            '<' if inside => safe.push_str("&lt;"),
            '[' if inside => safe.push_str("&#91;"),
            c => safe.push(c),
        }
    }
    safe
}
