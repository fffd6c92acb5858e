//! The short list of keys that is shown while the prompt contains `?` alone.

use ratatui::text::{Line, Span};

use crate::keymap::{BINDINGS, Keymap};
use crate::text::{TextRow, clipped, span, width};
use crate::theme::{Role, Theme};

/// Text of a prompt that shows the list.
pub(super) const SIGN: &str = "?";

/// Keys of the list that are no bindings, and what they do.
const FIXED: [(&str, &str); 5] = [
    ("/", "commands"),
    ("@", "files"),
    ("!", "run a command of your own"),
    ("Esc Esc", "return to an earlier prompt"),
    ("/help", "all commands and keys"),
];

/// Names of bindings, in the order of the list, and what they do in a few words.
const BOUND: [(&str, &str); 11] = [
    ("permissionMode", "next permission mode"),
    ("interrupt", "stop the task"),
    ("followUp", "send after the answer"),
    ("newline", "line break"),
    ("viewer", "full outputs and diffs"),
    ("search", "search earlier prompts"),
    ("editor", "write in your editor"),
    ("model", "choose the model"),
    ("provider", "choose the provider"),
    ("agent", "choose the agent"),
    ("leave", "exit"),
];

/// Columns of one entry with the space behind it, and of the keys in it.
const ENTRY_COLUMNS: usize = 40;
const KEYS_COLUMNS: usize = 10;

/// Rows of the list, in as many columns as fit.
pub(super) fn rows(columns: usize, keymap: &Keymap, theme: Theme) -> Vec<TextRow> {
    let first_key = |name: &str| {
        let binding = BINDINGS.iter().find(|binding| binding.name == name)?;
        let keys = keymap.keys_of(binding);
        Some(keys.split(", ").next().unwrap_or_default().to_owned())
    };
    let fixed = FIXED.iter().map(|(keys, what)| ((*keys).to_owned(), *what));
    let bound = BOUND.iter().filter_map(|(name, what)| Some((first_key(name)?, *what)));
    let entries: Vec<(String, &str)> = fixed.chain(bound).collect();
    let per_row = (columns / ENTRY_COLUMNS).clamp(1, 3);
    let height = entries.len().div_ceil(per_row);
    let close =
        Line::from(span(theme, Role::Dim, clipped("  Backspace closes this list", columns)));
    (0..height)
        .map(|row| {
            let in_row = entries.iter().skip(row).step_by(height);
            let spans: Vec<Span<'static>> =
                in_row.flat_map(|(keys, what)| entry(keys, what, columns, theme)).collect();
            Line::from(spans)
        })
        .chain([close])
        .collect()
}

fn entry(keys: &str, what: &str, columns: usize, theme: Theme) -> [Span<'static>; 2] {
    let keys = format!("  {keys:<KEYS_COLUMNS$} ");
    let room = ENTRY_COLUMNS.min(columns).saturating_sub(width(&keys));
    let what = clipped(what, room);
    let blanks = " ".repeat(room.saturating_sub(width(&what)));
    [span(theme, Role::Accent, keys), span(theme, Role::Dim, what + &blanks)]
}

#[cfg(test)]
mod tests {
    use crate::testing::TestScreen;

    use super::*;

    #[test]
    fn question_mark_alone_shows_the_keys() {
        let build = |stage: &mut TestScreen| {
            stage.types(SIGN);
        };
        insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
        let mut stage = TestScreen::new();
        stage.types("? really");
        assert!(!stage.screen(80, 24).contains("next permission mode"));
    }

    #[test]
    fn every_name_is_that_of_a_binding() {
        for (name, _) in BOUND {
            assert!(BINDINGS.iter().any(|binding| binding.name == name), "{name}");
        }
    }
}
