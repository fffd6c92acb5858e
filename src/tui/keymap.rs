//! Key bindings: one table for the program, for `/help` and for the guide.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_base::failure::{ErrorCode, Exit, Failure, nearest};
use posse_frontend::Selectable;

use crate::input::character;

/// An action of a key in the prompt editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditAction {
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

/// An action to which keys can be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// Submits the prompt; while a task runs, as a steering message. After a backslash at the end
    /// of a line, inserts a line break instead.
    Submit,
    /// Submits the prompt as a follow-up while a task runs; otherwise inserts a line break.
    FollowUp,
    /// Closes the completion list, or else stops the running task, or else cancels lookups.
    Interrupt,
    /// Stops the running task, or else cancels lookups, or else clears the prompt. Pressed again
    /// within two seconds, exits, unless the first press cancelled lookups or cleared the prompt.
    Cancel,
    /// If the prompt is not empty, deletes the character after the cursor. Otherwise exits; while a
    /// task runs, only shows a hint.
    Leave,
    /// Opens the viewer of full outputs and diffs at the last one; shows a note if there is none.
    Viewer,
    /// Attaches the image in the clipboard.
    PasteImage,
    /// Opens the selector of the input history.
    Search,
    /// Edits the prompt in the user's editor.
    Editor,
    /// Moves the last queued message of the user back into the prompt.
    TakeBack,
    /// Puts the draft aside; on an empty prompt, opens the selector of drafts that were put aside.
    PutAside,
    /// Stops the running task, all subagents and all background jobs.
    StopAll,
    /// Redraws the live region or the alternate screen, but no rows in the terminal's scrollback.
    Redraw,
    /// Suspends the process until `fg`.
    Suspend,
    /// Opens the selector of a setting; shows a note while a task runs.
    Choose(Selectable),
    /// Changes to the next permission mode: plan, ask, edits, auto.
    NextMode,
    /// Edits the prompt.
    Edit(EditAction),
}

/// A row of the table of bindings.
#[derive(Debug)]
pub(super) struct Binding {
    /// Name in the configuration and in the guide.
    pub(super) name: &'static str,
    /// Default keys, as alternatives in configuration syntax, such as `ctrl+o`; a chord is two keys
    /// with a space.
    pub(super) keys: &'static [&'static str],
    /// The action of the keys.
    pub(super) action: KeyAction,
    /// Description for `/help` and the guide.
    pub(super) what: &'static str,
}

const fn binding(
    name: &'static str,
    keys: &'static [&'static str],
    action: KeyAction,
    what: &'static str,
) -> Binding {
    Binding { name, keys, action, what }
}

const fn edit(
    name: &'static str,
    keys: &'static [&'static str],
    edit: EditAction,
    what: &'static str,
) -> Binding {
    Binding { name, keys, action: KeyAction::Edit(edit), what }
}

/// All bindings with their default keys, in the order of `/help`.
pub(super) const BINDINGS: &[Binding] = &[
    binding(
        "submit",
        &["enter"],
        KeyAction::Submit,
        "send; while a task runs: send at the next step",
    ),
    binding(
        "followUp",
        &["alt+enter"],
        KeyAction::FollowUp,
        "while a task runs: send after the answer; otherwise a line break",
    ),
    edit(
        "newline",
        &["ctrl+j", "shift+enter"],
        EditAction::Newline,
        "a line break (also a backslash at the end of a line, then Enter)",
    ),
    binding("interrupt", &["esc"], KeyAction::Interrupt, "close what is open; stop the task"),
    binding(
        "cancel",
        &["ctrl+c"],
        KeyAction::Cancel,
        "stop the task; clear the prompt; twice: exit",
    ),
    binding(
        "leave",
        &["ctrl+d"],
        KeyAction::Leave,
        "exit if the prompt is empty; otherwise delete",
    ),
    binding(
        "viewer",
        &["ctrl+o"],
        KeyAction::Viewer,
        "full outputs and diffs; on the mark of a paste: its text",
    ),
    binding("pasteImage", &["ctrl+v"], KeyAction::PasteImage, "attach the image in the clipboard"),
    binding("search", &["ctrl+r"], KeyAction::Search, "search the history"),
    binding(
        "editor",
        &["ctrl+g", "ctrl+x ctrl+e"],
        KeyAction::Editor,
        "edit the prompt in $VISUAL or $EDITOR",
    ),
    binding(
        "takeBack",
        &["alt+up"],
        KeyAction::TakeBack,
        "move the last queued message back into the prompt",
    ),
    binding(
        "putAside",
        &["alt+s"],
        KeyAction::PutAside,
        "put the draft aside; on an empty prompt: list the drafts that were put aside",
    ),
    binding(
        "stopAll",
        &["ctrl+x ctrl+k"],
        KeyAction::StopAll,
        "stop everything, including background agents",
    ),
    binding(
        "model",
        &["alt+m", "ctrl+x m"],
        KeyAction::Choose(Selectable::Model),
        "select the model",
    ),
    binding(
        "provider",
        &["alt+p", "ctrl+x p"],
        KeyAction::Choose(Selectable::Provider),
        "select the provider",
    ),
    binding(
        "agent",
        &["alt+a", "ctrl+x a"],
        KeyAction::Choose(Selectable::Agent),
        "select the agent",
    ),
    binding(
        "permissionMode",
        &["shift+tab"],
        KeyAction::NextMode,
        "next permission mode: plan, ask, edits, auto",
    ),
    binding("redraw", &["ctrl+l"], KeyAction::Redraw, "redraw the screen"),
    binding("suspend", &["ctrl+z"], KeyAction::Suspend, "suspend until `fg`"),
    edit("up", &["up", "ctrl+p"], EditAction::Up, "line above, or previous history entry"),
    edit("down", &["down", "ctrl+n"], EditAction::Down, "line below, or next history entry"),
    edit("left", &["left", "ctrl+b"], EditAction::Left, "character left"),
    edit("right", &["right", "ctrl+f"], EditAction::Right, "character right"),
    edit("wordLeft", &["alt+b", "ctrl+left", "alt+left"], EditAction::WordLeft, "word left"),
    edit("wordRight", &["alt+f", "ctrl+right", "alt+right"], EditAction::WordRight, "word right"),
    edit("lineStart", &["ctrl+a", "home"], EditAction::LineStart, "start of the line"),
    edit("lineEnd", &["ctrl+e", "end"], EditAction::LineEnd, "end of the line"),
    edit("backspace", &["backspace", "ctrl+h"], EditAction::Backspace, "delete before the cursor"),
    edit("delete", &["delete"], EditAction::Delete, "delete after the cursor"),
    edit(
        "killWord",
        &["ctrl+w", "alt+backspace"],
        EditAction::KillWord,
        "cut the word before the cursor",
    ),
    edit("killWordRight", &["alt+d"], EditAction::KillWordRight, "cut the word after the cursor"),
    edit("killToStart", &["ctrl+u"], EditAction::KillToStart, "cut to the start of the line"),
    edit("killToEnd", &["ctrl+k"], EditAction::KillToEnd, "cut to the end of the line"),
    edit("yank", &["ctrl+y"], EditAction::Yank, "paste what was cut"),
    edit("undo", &["ctrl+_"], EditAction::Undo, "undo"),
];

/// Keys that answer a permission request, with a description.
pub(super) const ANSWERS: &[(char, &str)] = &[
    ('y', "allow once"),
    ('t', "try the command first, where it is offered"),
    ('k', "keep the changes of a trial"),
    ('h', "answer an edit hunk by hunk: take, leave or change each hunk"),
    ('i', "allow similar calls of this agent alone, until this session ends"),
    ('s', "allow similar calls until this session ends"),
    ('p', "allow similar calls in this project, until the grant expires or is revoked"),
    ('a', "allow similar calls everywhere; asks a second time"),
    ('n', "deny"),
    ('r', "deny, with a reason for the model"),
    ('?', "show all of the reason and what a saved answer allows"),
];

/// The active key bindings.
#[derive(Debug)]
pub(super) struct Keymap {
    keys: BTreeMap<String, KeyAction>,
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
    /// Replaces the keys of bindings; Ctrl+C keeps its action. `wanted`: pairs of the name of a
    /// binding and its new keys, separated by white space, so without chords; [`check_bindings`]
    /// finds the mistakes in them. A key that another binding has is taken from that one.
    pub(super) fn bind(&mut self, wanted: &[(String, String)]) {
        for (name, keys) in wanted {
            let Some(binding) = BINDINGS.iter().find(|binding| binding.name == name) else {
                continue;
            };
            self.keys.retain(|_, action| *action != binding.action);
            let keys = keys.split_whitespace().map(str::to_lowercase);
            self.keys.extend(keys.map(|key| (key, binding.action)));
        }
        // Ctrl+C always works, so that the user can exit.
        self.keys.insert(ALWAYS.to_owned(), KeyAction::Cancel);
    }

    /// Returns `true` if a key is the first one of a chord.
    pub(super) fn begins(&self, key: KeyEvent) -> bool {
        let Some(first) = name_of(key) else { return false };
        let begins =
            |keys: &String| keys.split_once(' ').is_some_and(|(before, _)| before == first);
        self.keys.keys().any(begins)
    }

    /// The action of a chord; `None` if the keys are not bound.
    pub(super) fn chord(&self, first: KeyEvent, second: KeyEvent) -> Option<KeyAction> {
        let letter = || character(second).map(|c| c.to_lowercase().to_string());
        let keys = format!("{} {}", name_of(first)?, name_of(second).or_else(letter)?);
        self.keys.get(&keys).copied()
    }

    /// The keys that are bound to the action of a binding, for display, such as `Ctrl+O`; `none` if
    /// no key is.
    pub(super) fn keys_of(&self, binding: &Binding) -> String {
        let bound = |key: &str| self.keys.get(key) == Some(&binding.action);
        let default = binding.keys.iter().copied().filter(|key| bound(key));
        let own = self.keys.keys().map(String::as_str);
        let own = own.filter(|key| bound(key) && !binding.keys.contains(key));
        let keys: Vec<String> = default.chain(own).map(shown_key).collect();
        if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
    }

    /// The action of a key; `None` if the key is not bound.
    pub(super) fn action(&self, key: KeyEvent) -> Option<KeyAction> {
        self.keys.get(&name_of(key)?).copied()
    }
}

/// Name of a key in configuration syntax, if it can be bound; `None` for a key that inserts a
/// character or has no name.
pub(super) fn key_name(key: KeyEvent) -> Option<String> {
    name_of(key).filter(|name| is_key(name))
}

/// The key that always has the action `cancel`.
const ALWAYS: &str = "ctrl+c";

/// A mistake in the setting `ui.keybindings`.
#[derive(Debug)]
pub struct KeybindingMistake {
    /// Names of the bindings that it concerns, as written: one or two.
    pub names: Vec<String>,
    /// The error, without its place.
    pub failure: Failure,
}

/// Finds unknown names and keys in `wanted`, pairs of the name of a binding and its keys, and keys
/// that two bindings get.
pub fn check_bindings(wanted: &[(String, String)]) -> Vec<KeybindingMistake> {
    let mut wrong = Vec::new();
    let mut bound: BTreeMap<String, &str> = BTreeMap::new();
    let mut report = |names: &[&str], code, what: String, fix: String| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let failure = Failure::new(code, Exit::Configuration, what).fix(fix);
        wrong.push(KeybindingMistake { names, failure });
    };
    for (name, keys) in wanted {
        let own = format!("ui.keybindings.{name}");
        if !BINDINGS.iter().any(|binding| binding.name == name) {
            let meant = nearest(name, BINDINGS.iter().map(|binding| binding.name));
            let fix = match meant {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => "remove it; `posse help keys` lists the actions".to_owned(),
            };
            let what = format!("{own}: there is no action \"{name}\"");
            report(&[name], ErrorCode::ConfigUnknownKey, what, fix);
            continue;
        }
        for key in keys.split_whitespace().map(str::to_lowercase) {
            if !is_key(&key) {
                let what = format!("{own}: \"{key}\" is not a key that can be bound");
                let fix = "write it like \"ctrl+o\", \"alt+m\" or \"shift+tab\"".to_owned();
                report(&[name], ErrorCode::ConfigInvalidValue, what, fix);
            } else if key == ALWAYS && name != "cancel" {
                let what = format!("{own}: {ALWAYS} always has the action \"cancel\"");
                report(
                    &[name],
                    ErrorCode::ConfigContradiction,
                    what,
                    "bind another key".to_owned(),
                );
            } else if let Some(before) = bound.insert(key.clone(), name)
                && before != name
            {
                let what = format!("ui.keybindings binds {key} to both {before} and {name}");
                let fix = "bind another key to one of them".to_owned();
                report(&[before, name], ErrorCode::ConfigContradiction, what, fix);
            }
        }
    }
    wrong
}

/// Names, in the configuration, of the special keys that can be bound.
const NAMES: [(&str, KeyCode); 13] = [
    ("enter", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("esc", KeyCode::Esc),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
];

/// Names of the modifiers, in the order of the configuration syntax.
const MODIFIERS: [(&str, KeyModifiers); 3] = [
    ("ctrl+", KeyModifiers::CONTROL),
    ("alt+", KeyModifiers::ALT),
    ("shift+", KeyModifiers::SHIFT),
];

/// Returns `true` if `written` is a key in configuration syntax. Returns `false` for a key that
/// inserts a character, because it cannot be bound.
fn is_key(written: &str) -> bool {
    let mut rest = written;
    let mut held = KeyModifiers::NONE;
    for (name, modifier) in MODIFIERS {
        if let Some(after) = rest.strip_prefix(name) {
            held |= modifier;
            rest = after;
        }
    }
    let commands = KeyModifiers::CONTROL | KeyModifiers::ALT;
    NAMES.iter().any(|(name, _)| *name == rest)
        || held.intersects(commands) && rest.chars().count() == 1
}

/// Name of a key in configuration syntax. `None` for a key that inserts a character or has no name.
fn name_of(key: KeyEvent) -> Option<String> {
    let held = MODIFIERS.iter().filter(|(_, held)| key.modifiers.contains(*held));
    let held: String = held.map(|(name, _)| *name).collect();
    match key.code {
        KeyCode::Char(_) if character(key).is_some() => None,
        KeyCode::Char(c) => Some(format!("{held}{}", c.to_lowercase())),
        code => {
            let (name, _) = NAMES.iter().find(|(_, known)| *known == code)?;
            Some(format!("{held}{name}"))
        }
    }
}

/// The default keys of a binding for display, such as `Ctrl+O`.
#[cfg(test)]
pub(super) fn shown(binding: &Binding) -> String {
    binding.keys.iter().copied().map(shown_key).collect::<Vec<_>>().join(", ")
}

/// A key or chord in configuration syntax, for display: `Ctrl+O` for `ctrl+o`.
fn shown_key(key: &str) -> String {
    let part = |part: &str| {
        let mut chars = part.chars();
        let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
        first + chars.as_str()
    };
    let one = |key: &str| key.split('+').map(part).collect::<Vec<_>>().join("+");
    key.split(' ').map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::input::ctrl;

    #[test]
    fn no_key_is_bound_twice() {
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
    fn bindings_can_be_changed() {
        let mut keymap = Keymap::default();
        let wanted = [("viewer", "ctrl+t Alt+O"), ("cancel", "ctrl+q")];
        let wanted = wanted.map(|(name, keys)| (name.to_owned(), keys.to_owned()));
        assert!(check_bindings(&wanted).is_empty());
        keymap.bind(&wanted);
        assert_eq!(keymap.action(ctrl('t')), Some(KeyAction::Viewer));
        assert_eq!(
            keymap.action(KeyEvent::new(KeyCode::Char('o'), KeyModifiers::ALT)),
            Some(KeyAction::Viewer)
        );
        assert_eq!(keymap.action(ctrl('o')), None);
        assert_eq!(keymap.action(ctrl('q')), Some(KeyAction::Cancel));
        assert_eq!(keymap.action(ctrl('c')), Some(KeyAction::Cancel), "Ctrl+C stays bound");
        let keys = |name: &str| {
            let binding = BINDINGS.iter().find(|binding| binding.name == name).unwrap();
            keymap.keys_of(binding)
        };
        assert_eq!(keys("viewer"), "Alt+O, Ctrl+T");
        assert_eq!(keys("cancel"), "Ctrl+C, Ctrl+Q");
        assert_eq!(keys("search"), "Ctrl+R");
    }

    #[test]
    fn mistakes_in_bindings_are_found() {
        let rows = [
            (vec![("viewer", "ctrl+o f5")], "CFG003", "\"f5\" is not a key"),
            (vec![("redrw", "ctrl+x")], "CFG002", "there is no action \"redrw\""),
            (vec![("submit", "ctrl+c")], "CFG011", "ctrl+c always has"),
            (vec![("search", "ctrl+q"), ("viewer", "Ctrl+Q")], "CFG011", "both search and viewer"),
        ];
        for (wanted, code, what) in rows {
            let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
            let wanted: Vec<(String, String)> = wanted
                .iter()
                .map(|(name, keys)| (String::from(*name), String::from(*keys)))
                .collect();
            let wrong = check_bindings(&wanted);
            assert_eq!(wrong.len(), 1, "{wanted:?}");
            assert_eq!(wrong[0].names, names);
            let failure = &wrong[0].failure;
            assert_eq!(failure.code.as_str(), code);
            assert!(failure.what.contains(what) && failure.fix.is_some(), "{failure}");
        }
        let taken = [("viewer".to_owned(), "ctrl+r ctrl+r".to_owned())];
        assert!(check_bindings(&taken).is_empty(), "a default key of another action can be taken");
    }

    #[test]
    fn every_key_in_the_table_is_valid() {
        for key in BINDINGS.iter().flat_map(|binding| binding.keys) {
            let (first, second) = key.split_once(' ').unwrap_or((key, "esc"));
            assert!(is_key(first) && (is_key(second) || second.chars().count() == 1), "{key}");
        }
        for no_key in ["a", "shift+a", "ctrl+", "f5", "", "ctrl+ab"] {
            assert!(!is_key(no_key), "{no_key}");
        }
    }

    #[test]
    fn keys_are_found_by_their_syntax() {
        let table = [
            (KeyEvent::from(KeyCode::Enter), Some(KeyAction::Submit)),
            (KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT), Some(KeyAction::FollowUp)),
            (ctrl('j'), Some(KeyAction::Edit(EditAction::Newline))),
            (ctrl('C'), Some(KeyAction::Cancel)),
            (
                KeyEvent::new(KeyCode::Enter, KeyModifiers::SHIFT),
                Some(KeyAction::Edit(EditAction::Newline)),
            ),
            (
                KeyEvent::new(KeyCode::Left, KeyModifiers::CONTROL),
                Some(KeyAction::Edit(EditAction::WordLeft)),
            ),
            (KeyEvent::from(KeyCode::Char('c')), None),
            (KeyEvent::new(KeyCode::Char('q'), KeyModifiers::CONTROL | KeyModifiers::ALT), None),
            (KeyEvent::from(KeyCode::F(5)), None),
        ];
        for (key, expected) in table {
            assert_eq!(Keymap::default().action(key), expected, "{key:?}");
        }
        assert_eq!(shown(&BINDINGS[1]), "Alt+Enter");
        let (x, k) = (ctrl('x'), ctrl('k'));
        let keymap = Keymap::default();
        assert!(keymap.begins(x) && !keymap.begins(k));
        assert_eq!(keymap.chord(x, k), Some(KeyAction::StopAll));
        assert_eq!(keymap.chord(x, x), None);
        let m = KeyEvent::from(KeyCode::Char('m'));
        assert_eq!(keymap.chord(x, m), Some(KeyAction::Choose(Selectable::Model)));
        assert_eq!(keymap.action(m), None, "a letter alone is text");
    }
}
