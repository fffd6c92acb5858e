//! Addresses of hyperlinks (OSC 8). A style carries the number of an address as its underline colour,
//! which no theme uses, so that wrapped text and cells keep their link.

use std::sync::{Mutex, PoisonError};

use ratatui::style::{Color, Style};

/// Maximum number of different addresses in a process; further ones are no links.
const ADDRESSES_MAX: usize = 10_000;

/// Maximum length of an address in bytes, as in most terminals.
const ADDRESS_BYTES_MAX: usize = 2000;

/// Schemes that become links.
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// Addresses by number. An address keeps its number.
static ADDRESSES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Style of a link to `address`; an empty style if it cannot be a link.
pub(super) fn style_to(address: &str) -> Style {
    number_of(address).map_or(Style::new(), |number| {
        let [_, _, high, low] = number.to_be_bytes();
        Style::new().underline_color(Color::Rgb(0, high, low))
    })
}

fn number_of(address: &str) -> Option<u32> {
    let is_known = SCHEMES.iter().any(|scheme| {
        address.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    });
    // Other characters could end the sequence.
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_known || !is_plain || address.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    let mut addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let at = addresses.iter().rposition(|known| known == address);
    let at = at.or_else(|| {
        let has_room = addresses.len() < ADDRESSES_MAX;
        has_room.then(|| {
            addresses.push(address.to_owned());
            addresses.len() - 1
        })
    })?;
    u32::try_from(at).ok()
}

/// Sequence that begins the link of a style, or ends the current one if the style has none. `color`:
/// underline colour of the style.
pub(super) fn sequence(color: Option<Color>) -> String {
    let Some(Color::Rgb(0, high, low)) = color else { return "\x1b]8;;\x1b\\".to_owned() };
    let number = usize::from(u16::from_be_bytes([high, low]));
    let addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let address = addresses.get(number).map_or("", String::as_str);
    // The parts of a wrapped link have the same id.
    format!("\x1b]8;id=posse{number};{address}\x1b\\")
}

/// Splits a text into pieces; the flag is true for a web address.
pub(super) fn split_addresses(text: &str) -> Vec<(&str, bool)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = ["https://", "http://"].iter().filter_map(|scheme| rest.find(scheme)).min()
    {
        let (before, from) = rest.split_at(at);
        let ends = |c: char| !c.is_ascii_graphic() || matches!(c, '<' | '>' | '"' | '`' | '|');
        let address = &from[..from.find(ends).unwrap_or(from.len())];
        // Punctuation behind an address belongs to the sentence, as does a bracket that it does not
        // open.
        let mut length = address.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*']).len();
        let kept = &address[..length];
        for (open, close) in [('(', ')'), ('[', ']')] {
            if kept.ends_with(close) && kept.matches(open).count() < kept.matches(close).count() {
                length = kept.len() - 1;
            }
        }
        let (address, after) = from.split_at(length);
        pieces.push((before, false));
        pieces.push((address, address.len() > "https://".len()));
        rest = after;
    }
    pieces.push((rest, false));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_could_do_harm_are_no_links() {
        for address in [
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://a/\u{1b}\\\u{1b}]0;x\u{7}",
            "https://a/b c",
            "https://exämple.org",
            "",
        ] {
            assert_eq!(style_to(address), Style::new(), "{address:?}");
        }
        assert_eq!(style_to(&format!("https://a/{}", "x".repeat(2000))), Style::new());
    }

    #[test]
    fn sequences_begin_and_end_a_link() {
        let style = style_to("https://example.org/a?b=c#d");
        let sequence_of = sequence(style.underline_color);
        assert!(sequence_of.starts_with("\u{1b}]8;id=posse"), "{sequence_of:?}");
        assert!(sequence_of.ends_with(";https://example.org/a?b=c#d\u{1b}\\"), "{sequence_of:?}");
        assert_eq!(style_to("https://example.org/a?b=c#d"), style, "the number stays");
        assert_eq!(sequence(None), "\u{1b}]8;;\u{1b}\\");
        assert_eq!(sequence(Some(Color::Reset)), "\u{1b}]8;;\u{1b}\\");
    }

    #[test]
    fn addresses_in_a_sentence_are_found() {
        let table: &[(&str, &[(&str, bool)])] = &[
            ("no address", &[("no address", false)]),
            ("see https://a.org/x.", &[("see ", false), ("https://a.org/x", true), (".", false)]),
            (
                "(http://a/b_(c)) and https://d,",
                &[
                    ("(", false),
                    ("http://a/b_(c)", true),
                    (") and ", false),
                    ("https://d", true),
                    (",", false),
                ],
            ),
            ("https://", &[("https://", false)]),
            ("xhttps://a\u{7}b", &[("x", false), ("https://a", true), ("\u{7}b", false)]),
        ];
        for (text, pieces) in table {
            assert_eq!(split_addresses(text), *pieces, "{text}");
        }
    }
}
