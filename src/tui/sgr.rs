//! Text with colours: the output of the user's status line command. Only sequences that select
//! colours and attributes (SGR) have an effect; all others are removed.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::text::{TextRow, sanitize, width};
use crate::theme::Theme;

use unicode_segmentation::UnicodeSegmentation;

/// Maximum parameters of a sequence; the others are ignored.
const PARAMETERS_MAX: usize = 32;

/// A row of at most `columns` columns with the colours of `line`, without colours in the theme
/// `none`. Control characters and other escape sequences are removed or escaped.
pub(super) fn sgr_row(line: &str, columns: usize, theme: Theme) -> TextRow {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let (mut style, mut rest, mut room) = (Style::new(), line, columns);
    while !rest.is_empty() && room > 0 {
        let (piece, sequence, after) = next_sequence(rest);
        let text = cut(&sanitize(piece), room);
        room -= width(&text);
        let shown = if theme.name() == "none" { Style::new() } else { style };
        if !text.is_empty() {
            spans.push(Span::styled(text, shown));
        }
        style = sequence.map_or(style, |parameters| applied(style, parameters));
        rest = after;
    }
    Line::from(spans)
}

/// The beginning of `text` of at most `columns` columns.
fn cut(text: &str, columns: usize) -> String {
    let mut room = columns;
    let fits = |grapheme: &&str| {
        let left = room.checked_sub(width(grapheme));
        room = left.unwrap_or(0);
        left.is_some()
    };
    text.graphemes(true).take_while(fits).collect()
}

/// Splits `text` at its first SGR sequence: the text before it, its parameters, and the rest. The
/// parameters are `None` if there is no sequence.
fn next_sequence(text: &str) -> (&str, Option<&str>, &str) {
    for (at, _) in text.match_indices("\u{1b}[") {
        let after = &text[at + 2..];
        let is_parameter = |c: char| c.is_ascii_digit() || c == ';' || c == ':';
        let end = after.find(|c| !is_parameter(c));
        if let Some(end) = end.filter(|end| after[*end..].starts_with('m')) {
            return (&text[..at], Some(&after[..end]), &after[end + 1..]);
        }
    }
    (text, None, "")
}

/// The style after a sequence with these parameters. Unknown ones have no effect.
fn applied(mut style: Style, parameters: &str) -> Style {
    let numbers = parameters.split([';', ':']).take(PARAMETERS_MAX);
    let numbers: Vec<u8> = numbers.map(|number| number.parse().unwrap_or(0)).collect();
    let mut rest = numbers.as_slice();
    while let [number, after @ ..] = rest {
        rest = after;
        style = match number {
            0 => Style::new(),
            1 => style.add_modifier(Modifier::BOLD),
            2 => style.add_modifier(Modifier::DIM),
            3 => style.add_modifier(Modifier::ITALIC),
            4 => style.add_modifier(Modifier::UNDERLINED),
            7 => style.add_modifier(Modifier::REVERSED),
            9 => style.add_modifier(Modifier::CROSSED_OUT),
            22 => style.remove_modifier(Modifier::BOLD | Modifier::DIM),
            23 => style.remove_modifier(Modifier::ITALIC),
            24 => style.remove_modifier(Modifier::UNDERLINED),
            27 => style.remove_modifier(Modifier::REVERSED),
            29 => style.remove_modifier(Modifier::CROSSED_OUT),
            30..=37 => style.fg(palette(number - 30)),
            40..=47 => style.bg(palette(number - 40)),
            90..=97 => style.fg(palette(number - 90 + 8)),
            100..=107 => style.bg(palette(number - 100 + 8)),
            39 => Style { fg: None, ..style },
            49 => Style { bg: None, ..style },
            38 | 48 => {
                let (color, after) = extended(rest);
                rest = after;
                match color {
                    Some(color) if *number == 38 => style.fg(color),
                    Some(color) => style.bg(color),
                    None => style,
                }
            }
            _ => style,
        };
    }
    style
}

/// A colour of 256 or of 24 bits, from the parameters after 38 or 48; and the parameters after it.
fn extended(parameters: &[u8]) -> (Option<Color>, &[u8]) {
    match parameters {
        [5, nth, rest @ ..] if *nth < 16 => (Some(palette(*nth)), rest),
        [5, nth, rest @ ..] => (Some(Color::Indexed(*nth)), rest),
        [2, red, green, blue, rest @ ..] => (Some(Color::Rgb(*red, *green, *blue)), rest),
        _ => (None, &[]),
    }
}

/// One of the 16 colours of the terminal's palette.
fn palette(nth: u8) -> Color {
    const COLORS: [Color; 16] = [
        Color::Black,
        Color::Red,
        Color::Green,
        Color::Yellow,
        Color::Blue,
        Color::Magenta,
        Color::Cyan,
        Color::Gray,
        Color::DarkGray,
        Color::LightRed,
        Color::LightGreen,
        Color::LightYellow,
        Color::LightBlue,
        Color::LightMagenta,
        Color::LightCyan,
        Color::White,
    ];
    COLORS[usize::from(nth) % COLORS.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::text_of_row;

    #[test]
    fn colours_are_kept_and_everything_else_is_removed() {
        let line =
            "a\u{1b}[31;1mred\u{1b}[0m \u{1b}[38;5;200mx\u{1b}[48;2;1;2;3my\u{1b}[39;49;22mz";
        let row = sgr_row(line, 80, Theme::default());
        assert_eq!(text_of_row(&row), "ared xyz");
        let styles: Vec<Style> = row.spans.iter().map(|span| span.style).collect();
        let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let pink = Style::new().fg(Color::Indexed(200));
        assert_eq!(styles[..4], [Style::new(), red, Style::new(), pink]);
        assert_eq!(styles[4], pink.bg(Color::Rgb(1, 2, 3)));
        assert_eq!((styles[5].fg, styles[5].bg), (None, None));
        let plain = sgr_row(line, 80, Theme::PLAIN);
        assert!(plain.spans.iter().all(|span| span.style == Style::new()));
        let hostile = [
            ("a\u{1b}[2Jb", "ab"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}[31mb", "ab"),
            ("\u{9b}31mb", "\\u{9b}31mb"),
            ("a\u{1b}[999999999999mb", "ab"),
            ("a\u{1b}[38;5mb", "ab"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ];
        for (line, expected) in hostile {
            assert_eq!(text_of_row(&sgr_row(line, 80, Theme::default())), expected, "{line:?}");
        }
        assert_eq!(
            text_of_row(&sgr_row("\u{1b}[31mab\u{1b}[32mcd漢", 5, Theme::default())),
            "abcd"
        );
    }

    proptest! {
        #[test]
        fn a_row_never_controls_the_terminal(line in "(\\PC|\u{1b}|\\[|;|m|[0-9]|\r|\u{7}){0,60}") {
            let row = sgr_row(&line, 40, Theme::default());
            let text = text_of_row(&row);
            prop_assert!(width(&text) <= 40, "{text:?}");
            prop_assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        }
    }
}
