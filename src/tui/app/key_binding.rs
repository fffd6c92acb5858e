//! `/keymap`: shows the keys of all actions, and binds another key to one of them.

use crossterm::event::{KeyCode, KeyEvent};

use crate::app::{App, Effect};
use crate::keymap::{BINDINGS, check_bindings, key_name};
use crate::selector::{SelectorEntry, SelectorKind};
use crate::theme::Role;

/// Columns of the names of actions with their keys come first in the list; the description follows.
const TITLE: &str = "keys: select an action to bind another key to it";

/// A change of bindings that is saved: name of each action, and its keys.
pub(super) type BindingChange = Vec<(String, String)>;

impl App {
    /// Opens the selector of all actions with their keys.
    pub(super) fn open_keymap(&mut self) {
        let entry = |binding: &crate::keymap::Binding| SelectorEntry {
            value: binding.name.to_owned(),
            label: binding.name.to_owned(),
            facts: vec![self.keymap.keys_of(binding), binding.what.to_owned()],
        };
        let entries = BINDINGS.iter().map(entry).collect();
        self.open_selector(SelectorKind::Keymap, TITLE, entries, "");
    }

    /// Waits for the new key of an action.
    pub(super) fn await_key(&mut self, name: &str) {
        let binding = BINDINGS.iter().find(|binding| binding.name == name);
        self.awaits_key_for = binding.map(|binding| binding.name);
    }

    /// Binds the key that was pressed to the action that waits for it; asks first if another action
    /// has this key. Returns `false` if none waits.
    pub(super) fn bind_pressed_key(&mut self, key: KeyEvent) -> bool {
        let Some(name) = self.awaits_key_for.take() else { return false };
        if key == KeyEvent::from(KeyCode::Esc) {
            self.view.note(Role::Dim, "(no key was changed)");
            return true;
        }
        let Some(pressed) = key_name(key) else {
            let text =
                "(this key writes a character and cannot be bound: press it with Ctrl or Alt)";
            self.view.note(Role::Warn, text);
            return true;
        };
        let wanted = [(name.to_owned(), pressed.clone())];
        if let Some(mistake) = check_bindings(&wanted).first() {
            self.view.note(Role::Warn, format!("({})", mistake.failure.what));
            return true;
        }
        if self.keymap.begins(key) {
            let text = format!("({pressed} begins keys of two strokes and cannot be bound alone)");
            self.view.note(Role::Warn, text);
            return true;
        }
        match self.keymap.action(key).and_then(|action| {
            BINDINGS.iter().find(|other| other.action == action && other.name != name)
        }) {
            Some(other) => self.ask_about_key(name, &pressed, other.name),
            None => self.bind_key(name, &pressed),
        }
        true
    }

    fn ask_about_key(&mut self, name: &'static str, pressed: &str, other: &str) {
        let entries = vec![
            SelectorEntry::new("", "leave both as they are"),
            SelectorEntry::new(pressed, format!("take {pressed} from {other}")),
        ];
        let title = format!("{pressed} is the key of {other}: bind it to {name} instead?");
        self.open_selector(SelectorKind::ConfirmKey(name), &title, entries, "");
    }

    /// Binds `pressed` to the action `name` alone, and saves the change. The keys that the user has
    /// bound to another action lose it.
    pub(super) fn bind_key(&mut self, name: &str, pressed: &str) {
        if pressed.is_empty() {
            return self.view.note(Role::Dim, "(no key was changed)");
        }
        let mut changes = vec![(name.to_owned(), pressed.to_owned())];
        for (other, keys) in &mut self.own_keys {
            let has_it = keys.split_whitespace().any(|key| key.eq_ignore_ascii_case(pressed));
            if other != name && has_it {
                let left = keys.split_whitespace().filter(|key| !key.eq_ignore_ascii_case(pressed));
                *keys = left.collect::<Vec<_>>().join(" ");
                changes.push((other.clone(), keys.clone()));
            }
        }
        self.own_keys.retain(|(other, _)| other != name);
        self.own_keys.push((name.to_owned(), pressed.to_owned()));
        self.keymap = crate::keymap::Keymap::default();
        self.keymap.bind(&self.own_keys);
        self.view.note(Role::Dim, format!("({name} is now {pressed})"));
        self.effects.push(Effect::SaveKeys(changes));
    }

    /// Switches the vim keys of the prompt on or off.
    pub(super) fn toggle_vim(&mut self) {
        let is_on = !self.composer.has_vim_keys();
        self.composer.use_vim_keys(is_on);
        let text = if is_on {
            "(vim keys: Esc for normal mode, i to insert; /vim stops them)"
        } else {
            "(vim keys are off)"
        };
        self.view.note(Role::Dim, text);
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent};

    use crate::app::Effect;
    use crate::input::ctrl;
    use crate::testing::TestScreen;

    const ENTER: KeyCode = KeyCode::Enter;

    fn chooses(stage: &mut TestScreen, name: &str) {
        stage.types("/keymap\n");
        stage.types(name);
        stage.presses(KeyEvent::from(ENTER));
        let screen = stage.screen(100, 30);
        assert!(screen.contains(&format!("press the new key of {name}")), "{screen}");
    }

    fn saved(name: &str, keys: &str) -> (String, String) {
        (name.to_owned(), keys.to_owned())
    }

    #[test]
    fn key_that_begins_a_chord_is_refused() {
        let mut stage = TestScreen::new();
        chooses(&mut stage, "viewer");
        assert!(stage.presses(ctrl('x')).is_empty());
        assert!(stage.screen(100, 30).contains("ctrl+x begins keys of two strokes"));
    }

    #[test]
    fn pressed_key_is_bound_and_saved() {
        let mut stage = TestScreen::new();
        chooses(&mut stage, "viewer");
        let effects = stage.presses(ctrl('t'));
        assert_eq!(effects, [Effect::SaveKeys(vec![saved("viewer", "ctrl+t")])]);
        stage.presses(ctrl('t'));
        assert!(stage.screen(100, 30).contains("there is no output yet"), "it has an effect");
        stage.types("/keymap\n");
        stage.types("viewer");
        assert!(stage.screen(100, 30).contains("Ctrl+T"));
    }

    #[test]
    fn conflict_is_shown_and_keys_that_cannot_be_bound_are_refused() {
        let mut stage = TestScreen::new();
        chooses(&mut stage, "viewer");
        assert_eq!(stage.presses(ctrl('r')), []);
        let screen = stage.screen(100, 30);
        assert!(screen.contains("ctrl+r is the key of search"), "{screen}");
        assert_eq!(stage.presses(KeyEvent::from(ENTER)), [], "the first entry changes nothing");
        chooses(&mut stage, "viewer");
        stage.presses(ctrl('r'));
        stage.presses(KeyEvent::from(KeyCode::Down));
        let effects = stage.presses(KeyEvent::from(ENTER));
        assert_eq!(effects, [Effect::SaveKeys(vec![saved("viewer", "ctrl+r")])]);
        chooses(&mut stage, "redraw");
        stage.presses(ctrl('r'));
        stage.presses(KeyEvent::from(KeyCode::Down));
        let effects = stage.presses(KeyEvent::from(ENTER));
        let both = vec![saved("redraw", "ctrl+r"), saved("viewer", "")];
        assert_eq!(effects, [Effect::SaveKeys(both)], "the user's own binding loses the key");
        for (key, says) in [
            (KeyEvent::from(KeyCode::Char('x')), "writes a character"),
            (ctrl('c'), "always has the action"),
            (KeyEvent::from(KeyCode::Esc), "no key was changed"),
        ] {
            chooses(&mut stage, "editor");
            assert_eq!(stage.presses(key), []);
            let screen = stage.screen(100, 30);
            assert!(screen.contains(says), "{screen}");
            assert_eq!(stage.app.composer.shown(), "", "it is not written");
        }
    }

    #[test]
    fn vim_keys_have_modes_that_are_shown() {
        let mut stage = TestScreen::new();
        stage.types("/vim\n");
        stage.types("one two");
        assert!(stage.screen(100, 30).contains("insert · "));
        stage.app.busy = true;
        assert_eq!(stage.presses(KeyEvent::from(KeyCode::Esc)), [], "it ends insert mode");
        assert!(stage.screen(100, 30).contains("normal · "));
        stage.types("0dw");
        assert_eq!(stage.app.composer.shown(), "two");
        assert_eq!(stage.presses(KeyEvent::from(KeyCode::Esc)), [Effect::Interrupt]);
        stage.app.finish_task();
        stage.types("A!");
        assert_eq!(stage.app.composer.shown(), "two!");
        stage.presses(KeyEvent::from(KeyCode::Esc));
        stage.presses(KeyEvent::from(ENTER));
        assert!(stage.screen(100, 30).contains("insert · "), "the next text begins in insert mode");
        stage.types("/vim\n");
        assert!(!stage.screen(100, 30).contains("insert · "));
    }
}
