//! Every key with what it does: one table for the program, for `/help` and for the guide.

use std::collections::BTreeMap;

use crate::failure::nearest;
use crate::tui::input::{Code, Key};

/// What a key does to what is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Newline,
    Left,
    Right,
    Up,
    Down,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    Backspace,
    Delete,
    KillWord,
    KillWordRight,
    KillToStart,
    KillToEnd,
    Yank,
    Undo,
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Sends what is written.
    Submit,
    /// Sends it to be said after the answer.
    FollowUp,
    /// Stops what runs.
    Interrupt,
    /// Stops what runs, clears what is written, or leaves.
    Cancel,
    /// Leaves, when nothing is written.
    Leave,
    /// Opens the viewer.
    Viewer,
    /// Looks for something that was written before.
    Search,
    /// Opens what is written in the user's editor.
    Editor,
    /// Takes back a message that waits.
    TakeBack,
    /// Stops everything, also in the background.
    StopAll,
    /// Draws everything anew.
    Redraw,
    /// Back to the shell, until `fg`.
    Suspend,
    /// Changes what is written.
    Edit(Edit),
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Binding {
    /// How it is written in the configuration and in the guide.
    pub(super) name: &'static str,
    /// Keys, as they are written: `ctrl+o`.
    pub(super) keys: &'static [&'static str],
    /// What they do.
    pub(super) action: Action,
    /// The same in words.
    pub(super) what: &'static str,
}

const fn binding(
    name: &'static str,
    keys: &'static [&'static str],
    action: Action,
    what: &'static str,
) -> Binding {
    Binding { name, keys, action, what }
}

const fn edit(
    name: &'static str,
    keys: &'static [&'static str],
    edit: Edit,
    what: &'static str,
) -> Binding {
    Binding { name, keys, action: Action::Edit(edit), what }
}

/// All keys, in the order in which they are explained.
pub(super) const BINDINGS: &[Binding] = &[
    binding(
        "submit",
        &["enter"],
        Action::Submit,
        "send; while something runs: say it at the next step",
    ),
    binding(
        "followUp",
        &["alt+enter"],
        Action::FollowUp,
        "while something runs: say it after the answer; otherwise a new line",
    ),
    edit(
        "newline",
        &["ctrl+j", "shift+enter"],
        Edit::Newline,
        "a new line (also a backslash at the end of a line, then Enter)",
    ),
    binding("interrupt", &["esc"], Action::Interrupt, "close what is open; stop what runs"),
    binding(
        "cancel",
        &["ctrl+c"],
        Action::Cancel,
        "stop what runs; clear what is written; twice: leave",
    ),
    binding(
        "leave",
        &["ctrl+d"],
        Action::Leave,
        "leave, when nothing is written; otherwise delete",
    ),
    binding("viewer", &["ctrl+o"], Action::Viewer, "whole outputs and diffs"),
    binding("search", &["ctrl+r"], Action::Search, "look for something that was written before"),
    binding(
        "editor",
        &["ctrl+g", "ctrl+x ctrl+e"],
        Action::Editor,
        "what is written, in $VISUAL or $EDITOR",
    ),
    binding(
        "takeBack",
        &["alt+up"],
        Action::TakeBack,
        "take the last message that waits back into the prompt",
    ),
    binding(
        "stopAll",
        &["ctrl+x ctrl+k"],
        Action::StopAll,
        "stop everything, also agents in the background",
    ),
    binding("redraw", &["ctrl+l"], Action::Redraw, "draw everything anew"),
    binding("suspend", &["ctrl+z"], Action::Suspend, "back to the shell, until `fg`"),
    edit("up", &["up", "ctrl+p"], Edit::Up, "the line above, or what was written before"),
    edit("down", &["down", "ctrl+n"], Edit::Down, "the line below, or what was written after"),
    edit("left", &["left", "ctrl+b"], Edit::Left, "a character back"),
    edit("right", &["right", "ctrl+f"], Edit::Right, "a character on"),
    edit("wordLeft", &["alt+b", "ctrl+left", "alt+left"], Edit::WordLeft, "a word back"),
    edit("wordRight", &["alt+f", "ctrl+right", "alt+right"], Edit::WordRight, "a word on"),
    edit("lineStart", &["ctrl+a", "home"], Edit::LineStart, "the beginning of the line"),
    edit("lineEnd", &["ctrl+e", "end"], Edit::LineEnd, "the end of the line"),
    edit("backspace", &["backspace", "ctrl+h"], Edit::Backspace, "delete what is before"),
    edit("delete", &["delete"], Edit::Delete, "delete what is behind"),
    edit("killWord", &["ctrl+w", "alt+backspace"], Edit::KillWord, "cut the word before"),
    edit("killWordRight", &["alt+d"], Edit::KillWordRight, "cut the word behind"),
    edit("killToStart", &["ctrl+u"], Edit::KillToStart, "cut to the beginning of the line"),
    edit("killToEnd", &["ctrl+k"], Edit::KillToEnd, "cut to the end of the line"),
    edit("yank", &["ctrl+y"], Edit::Yank, "put back what was cut"),
    edit("undo", &["ctrl+_"], Edit::Undo, "undo"),
];

/// Keys that answer a question, and what they mean.
pub(super) const ANSWERS: &[(char, &str)] = &[
    ('y', "yes, this once"),
    ('s', "yes, and whatever is like it until this session ends"),
    ('p', "yes, and whatever is like it in this project, until that expires or is revoked"),
    ('a', "yes, and whatever is like it everywhere; asks a second time"),
    ('n', "no"),
];

/// Keys on an empty prompt that act when no other key follows within 150 ms.
pub(super) const SHORTCUTS: &[(char, &str)] =
    &[('a', "choose the agent"), ('p', "choose the provider"), ('m', "choose the model")];

/// Keys as the user wants them.
#[derive(Debug)]
pub(super) struct Keymap {
    keys: BTreeMap<String, Action>,
}

impl Default for Keymap {
    fn default() -> Keymap {
        let each = |binding: &Binding| {
            let action = binding.action;
            binding.keys.iter().map(move |key| ((*key).to_owned(), action))
        };
        Keymap { keys: BINDINGS.iter().flat_map(each).collect() }
    }
}

impl Keymap {
    /// Gives other keys to some names of the table. Returns what makes no sense.
    pub(super) fn bind(&mut self, wanted: &[(String, String)]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, keys) in wanted {
            let Some(binding) = BINDINGS.iter().find(|binding| binding.name == name) else {
                let names = BINDINGS.iter().map(|binding| binding.name);
                let meant = nearest(name, names).map(|meant| format!(", did you mean {meant}?"));
                wrong.push(format!("there is no \"{name}\"{}", meant.unwrap_or_default()));
                continue;
            };
            self.keys.retain(|_, action| *action != binding.action);
            for key in keys.split_whitespace() {
                let key = key.to_lowercase();
                if is_key(&key) {
                    self.keys.insert(key, binding.action);
                } else {
                    wrong.push(format!("\"{key}\" is no key for {name}: write it like ctrl+o"));
                }
            }
        }
        // Nobody may be locked in.
        self.keys.insert("ctrl+c".to_owned(), Action::Cancel);
        wrong
    }

    /// Whether a key is the first of two that belong together.
    pub(super) fn begins(&self, key: Key) -> bool {
        let Some(first) = name_of(key) else { return false };
        let begins =
            |keys: &String| keys.split_once(' ').is_some_and(|(before, _)| before == first);
        self.keys.keys().any(begins)
    }

    /// What two keys do, one after the other.
    pub(super) fn chord(&self, first: Key, second: Key) -> Option<Action> {
        let keys = format!("{} {}", name_of(first)?, name_of(second)?);
        self.keys.get(&keys).copied()
    }

    /// What a key does.
    pub(super) fn action(&self, key: Key) -> Option<Action> {
        self.keys.get(&name_of(key)?).copied()
    }
}

/// Whether a key can be written so. One that writes a character has no other meaning.
fn is_key(written: &str) -> bool {
    const NAMES: [&str; 13] = [
        "enter",
        "tab",
        "backspace",
        "delete",
        "esc",
        "up",
        "down",
        "left",
        "right",
        "home",
        "end",
        "pageup",
        "pagedown",
    ];
    let mut rest = written;
    let mut held = false;
    for name in ["ctrl+", "alt+", "shift+"] {
        if let Some(after) = rest.strip_prefix(name) {
            held |= name != "shift+";
            rest = after;
        }
    }
    NAMES.contains(&rest) || held && rest.chars().count() == 1
}

/// How a key is written. `None`: one that writes a character, or that has no name.
fn name_of(key: Key) -> Option<String> {
    let code = match key.code {
        Code::Char(_) if key.writes().is_some() => return None,
        Code::Char(c) => c.to_lowercase().to_string(),
        Code::Enter => "enter".to_owned(),
        Code::Tab => "tab".to_owned(),
        Code::Backspace => "backspace".to_owned(),
        Code::Delete => "delete".to_owned(),
        Code::Esc => "esc".to_owned(),
        Code::Up => "up".to_owned(),
        Code::Down => "down".to_owned(),
        Code::Left => "left".to_owned(),
        Code::Right => "right".to_owned(),
        Code::Home => "home".to_owned(),
        Code::End => "end".to_owned(),
        Code::PageUp => "pageup".to_owned(),
        Code::PageDown => "pagedown".to_owned(),
        Code::Other(_) => return None,
    };
    let held = [(key.ctrl, "ctrl+"), (key.alt, "alt+"), (key.shift, "shift+")];
    let held: String = held.iter().filter(|(held, _)| *held).map(|(_, name)| *name).collect();
    Some(format!("{held}{code}"))
}

/// The keys as a person reads them: `Ctrl+O`.
pub(super) fn shown(binding: &Binding) -> String {
    let key = |key: &&str| {
        let part = |part: &str| {
            let mut chars = part.chars();
            let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
            first + chars.as_str()
        };
        let one = |key: &str| key.split('+').map(part).collect::<Vec<_>>().join("+");
        key.split(' ').map(one).collect::<Vec<_>>().join(" ")
    };
    binding.keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let mut seen = BTreeSet::new();
        for key in BINDINGS.iter().flat_map(|binding| binding.keys) {
            assert!(seen.insert(key), "{key}");
        }
        let mut names = BTreeSet::new();
        for binding in BINDINGS {
            assert!(names.insert(binding.name), "{}", binding.name);
        }
    }

    #[test]
    fn keys_are_given_to_something_else() {
        let mut keymap = Keymap::default();
        let wanted = [("viewer", "ctrl+t f5 Alt+O"), ("cancel", "ctrl+q"), ("redrw", "ctrl+x")];
        let wanted = wanted.map(|(name, keys)| (name.to_owned(), keys.to_owned()));
        assert_eq!(
            keymap.bind(&wanted),
            [
                "\"f5\" is no key for viewer: write it like ctrl+o",
                "there is no \"redrw\", did you mean redraw?"
            ]
        );
        assert_eq!(keymap.action(Key::ctrl('t')), Some(Action::Viewer));
        assert_eq!(keymap.action(Key::alt(Code::Char('o'))), Some(Action::Viewer));
        assert_eq!(keymap.action(Key::ctrl('o')), None);
        assert_eq!(keymap.action(Key::ctrl('q')), Some(Action::Cancel));
        assert_eq!(keymap.action(Key::ctrl('c')), Some(Action::Cancel), "the way out stays");
    }

    #[test]
    fn every_key_of_the_table_can_be_written() {
        for key in BINDINGS.iter().flat_map(|binding| binding.keys) {
            assert!(key.split(' ').all(is_key), "{key}");
        }
        for no_key in ["a", "shift+a", "ctrl+", "f5", "", "ctrl+ab"] {
            assert!(!is_key(no_key), "{no_key}");
        }
    }

    #[test]
    fn keys_are_found_as_they_are_written() {
        let held = |code, ctrl, alt, shift| Key { code, ctrl, alt, shift };
        let table = [
            (Key::plain(Code::Enter), Some(Action::Submit)),
            (Key::alt(Code::Enter), Some(Action::FollowUp)),
            (Key::ctrl('j'), Some(Action::Edit(Edit::Newline))),
            (Key::ctrl('C'), Some(Action::Cancel)),
            (held(Code::Enter, false, false, true), Some(Action::Edit(Edit::Newline))),
            (held(Code::Left, true, false, false), Some(Action::Edit(Edit::WordLeft))),
            (Key::plain(Code::Char('c')), None),
            (held(Code::Char('q'), true, true, false), None),
            (Key::plain(Code::Other(5)), None),
        ];
        for (key, expected) in table {
            assert_eq!(Keymap::default().action(key), expected, "{key:?}");
        }
        assert_eq!(shown(&BINDINGS[1]), "Alt+Enter");
        let (x, k) = (Key::ctrl('x'), Key::ctrl('k'));
        let keymap = Keymap::default();
        assert!(keymap.begins(x) && !keymap.begins(k));
        assert_eq!(keymap.chord(x, k), Some(Action::StopAll));
        assert_eq!(keymap.chord(x, x), None);
    }
}
