//! Vim keys of the prompt: normal and insert mode over a text buffer.

use unicode_segmentation::UnicodeSegmentation as _;

use super::edit::Text;
use crate::keymap::EditAction;

/// Mode of the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum VimMode {
    /// Characters are inserted.
    #[default]
    Insert,
    /// Characters are commands.
    Normal,
}

/// State of the vim keys. The prompt starts in insert mode.
#[derive(Debug, Default)]
pub(super) struct Vim {
    pub(super) mode: VimMode,
    /// Operator that waits for its motion: `d` or `c`.
    operator: Option<char>,
    /// True if the text that was cut last is a whole line.
    cut_line: bool,
}

/// Work that is left to the composer after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VimOutcome {
    /// Nothing.
    Done,
    /// The cursor goes to another line, or browses the history.
    Vertical(EditAction),
}

impl Vim {
    /// Ends insert mode: the cursor goes onto the last character.
    pub(super) fn leave_insert(&mut self, text: &mut Text) {
        self.mode = VimMode::Normal;
        if text.cursor() > text.line().start {
            text.follow(EditAction::Left);
        }
    }

    /// Begins insert mode with no operator.
    pub(super) fn insert(&mut self) {
        (self.mode, self.operator) = (VimMode::Insert, None);
    }

    /// Handles a character in normal mode. Unknown ones are ignored.
    pub(super) fn key(&mut self, c: char, text: &mut Text) -> VimOutcome {
        if let Some(operator) = self.operator.take() {
            self.operate(operator, c, text);
            rest_on_character(text, self.mode);
            return VimOutcome::Done;
        }
        match c {
            'j' => return VimOutcome::Vertical(EditAction::Down),
            'k' => return VimOutcome::Vertical(EditAction::Up),
            'd' | 'c' => self.operator = Some(c),
            'x' => self.cut(text, text.cursor(), text.after().min(text.line().end)),
            'D' => self.cut(text, text.cursor(), text.line().end),
            'C' => self.change(text, text.cursor(), text.line().end),
            'u' => drop(text.follow(EditAction::Undo)),
            'p' => self.paste(text),
            'i' => self.insert(),
            'a' => self.insert_at(text, text.after().min(text.line().end)),
            'A' => self.insert_at(text, text.line().end),
            'I' => self.insert_at(text, first_letter(text)),
            'o' => self.open_line(text, text.line().end, 0),
            'O' => self.open_line(text, text.line().start, 1),
            _ => {
                if let Some((to, _)) = motion(c, text) {
                    text.go(to);
                }
            }
        }
        rest_on_character(text, self.mode);
        VimOutcome::Done
    }

    /// Carries out `d` or `c` with a motion, or with itself for the whole line.
    fn operate(&mut self, operator: char, c: char, text: &mut Text) {
        let line = text.line();
        if c == operator && operator == 'c' {
            self.change(text, line.start, line.end);
        } else if c == operator {
            self.cut_whole_line(text);
        } else if let Some((to, includes)) = motion(c, text) {
            let at = text.cursor();
            let end = if includes { text.after_of(to).min(line.end.max(to)) } else { to };
            let (from, to) = (at.min(to), at.max(end));
            // `cw` keeps the blanks behind the word.
            let to = if (operator, c) == ('c', 'w') { without_blanks(text, from, to) } else { to };
            if operator == 'c' {
                self.change(text, from, to);
            } else {
                self.cut(text, from, to);
            }
        }
    }

    fn cut(&mut self, text: &mut Text, from: usize, to: usize) {
        if text.remove(from, to, true) {
            self.cut_line = false;
        }
    }

    fn change(&mut self, text: &mut Text, from: usize, to: usize) {
        self.cut(text, from, to);
        text.go(from);
        self.insert();
    }

    /// Cuts the line with its line break.
    fn cut_whole_line(&mut self, text: &mut Text) {
        let line = text.line();
        let content = text.as_str()[line.clone()].to_owned();
        let is_last = line.end == text.as_str().len();
        let from = if is_last { line.start.saturating_sub(1) } else { line.start };
        let to = if is_last { line.end } else { line.end + 1 };
        if text.remove(from, to, false) {
            text.set_killed(content);
            self.cut_line = true;
        }
        text.go(text.line().start);
    }

    /// Inserts what was cut last: a line below, other text behind the character.
    fn paste(&mut self, text: &mut Text) {
        let killed = text.killed().to_owned();
        if killed.is_empty() && !self.cut_line {
            return;
        }
        if self.cut_line {
            text.go(text.line().end);
            text.insert(&format!("\n{killed}"));
            text.go(text.line().start);
        } else {
            text.go(text.after().min(text.line().end));
            text.insert(&killed);
            text.follow(EditAction::Left);
        }
    }

    fn insert_at(&mut self, text: &mut Text, at: usize) {
        text.go(at);
        self.insert();
    }

    /// Adds a line at `at` and moves the cursor `back` bytes, onto it.
    fn open_line(&mut self, text: &mut Text, at: usize, back: usize) {
        text.go(at);
        text.insert("\n");
        self.insert_at(text, text.cursor() - back);
    }
}

/// Moves the cursor from behind the last character of its line onto it, in normal mode.
fn rest_on_character(text: &mut Text, mode: VimMode) {
    let line = text.line();
    if mode == VimMode::Normal && text.cursor() == line.end && line.start < line.end {
        text.follow(EditAction::Left);
    }
}

/// Position to which a motion leads, and if an operator includes the character there. `None`: `c` is
/// no motion.
fn motion(c: char, text: &Text) -> Option<(usize, bool)> {
    let (line, at, whole) = (text.line(), text.cursor(), text.as_str());
    Some(match c {
        'h' => (text.before().max(line.start), false),
        'l' => (text.after().min(line.end), false),
        '0' => (line.start, false),
        '^' => (first_letter(text), false),
        '$' => (line.end, false),
        'w' => (next_word(whole, at), false),
        'b' => (word_before(whole, at), false),
        'e' => (word_end(whole, at), true),
        _ => return None,
    })
}

/// The first character of the line that is no blank.
fn first_letter(text: &Text) -> usize {
    let line = text.line();
    let content = &text.as_str()[line.clone()];
    line.start + content.len() - content.trim_start().len()
}

/// End of a range without white space at its end, and not before its first character.
fn without_blanks(text: &Text, from: usize, to: usize) -> usize {
    let kept = text.as_str()[from..to].trim_end().len();
    if kept == 0 { to } else { from + kept }
}

/// Kinds of characters of which words consist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharacterKind {
    Blank,
    Letter,
    Sign,
}

fn kind(grapheme: &str) -> CharacterKind {
    match grapheme.chars().next() {
        None => CharacterKind::Blank,
        Some(c) if c.is_whitespace() => CharacterKind::Blank,
        Some(c) if c.is_alphanumeric() || c == '_' => CharacterKind::Letter,
        Some(_) => CharacterKind::Sign,
    }
}

/// Start of the word after the one at `at`; the end of the text if there is none.
fn next_word(whole: &str, at: usize) -> usize {
    let mut rest = whole[at..].grapheme_indices(true).peekable();
    let Some(own) = rest.peek().map(|(_, grapheme)| kind(grapheme)) else { return at };
    let mut rest =
        rest.skip_while(|(_, grapheme)| own != CharacterKind::Blank && kind(grapheme) == own);
    let next = rest.find(|(_, grapheme)| kind(grapheme) != CharacterKind::Blank);
    next.map_or(whole.len(), |(start, _)| at + start)
}

/// Start of the word before `at`; the start of the text if there is none.
fn word_before(whole: &str, at: usize) -> usize {
    let mut start = None;
    for (begin, grapheme) in whole[..at].grapheme_indices(true).rev() {
        match start {
            None if kind(grapheme) == CharacterKind::Blank => (),
            None => start = Some((begin, kind(grapheme))),
            Some((_, own)) if kind(grapheme) == own => start = Some((begin, own)),
            Some((start, _)) => return start,
        }
    }
    start.map_or(0, |(start, _)| start)
}

/// Last character of the word at or after the character behind `at`.
fn word_end(whole: &str, at: usize) -> usize {
    let mut end = None;
    for (begin, grapheme) in whole[at..].grapheme_indices(true).skip(1) {
        match end {
            None if kind(grapheme) == CharacterKind::Blank => (),
            None => end = Some((at + begin, kind(grapheme))),
            Some((_, own)) if kind(grapheme) == own => end = Some((at + begin, own)),
            Some((end, _)) => return end,
        }
    }
    end.map_or(at, |(end, _)| end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Types `keys` in normal mode into a text with the cursor at `|`. The result has a mark as well,
    /// and `+` at the end in insert mode.
    fn typed(before: &str, keys: &str) -> String {
        let at = before.find('|').unwrap();
        let mut text = Text::default();
        text.set(&before.replace('|', ""));
        text.go(at);
        let mut vim = Vim { mode: VimMode::Normal, ..Vim::default() };
        for c in keys.chars() {
            if vim.mode == VimMode::Insert {
                text.insert(c.encode_utf8(&mut [0; 4]));
            } else if let VimOutcome::Vertical(edit) = vim.key(c, &mut text) {
                if edit == EditAction::Up {
                    text.up()
                } else {
                    text.down()
                };
            }
        }
        let (start, end) = text.split_at_cursor();
        let sign = if vim.mode == VimMode::Insert { "+" } else { "" };
        format!("{start}|{end}{sign}")
    }

    #[test]
    fn keys_have_their_meaning_of_vim() {
        let table = [
            ("one |two three", "h", "one| two three"),
            ("one |two", "l", "one t|wo"),
            ("one tw|o", "l", "one tw|o"),
            ("a\n|b", "h", "a\n|b"),
            ("|one two.three", "ww", "one two|.three"),
            ("one two.thr|ee", "bbb", "one |two.three"),
            ("|one two", "e", "on|e two"),
            ("on|e two", "e", "one tw|o"),
            ("  one| x", "0", "|  one x"),
            ("|one\ntwo", "$", "on|e\ntwo"),
            ("o|ne", "x", "o|e"),
            ("on|e", "x", "o|n"),
            ("|", "x", "|"),
            ("one |two\nx", "D", "one| \nx"),
            ("one |two", "Cx", "one x|+"),
            ("one\nt|wo\nthree", "dd", "one\n|three"),
            ("one\nt|wo", "dd", "|one"),
            ("o|ne", "dd", "|"),
            ("one\nt|wo\nx", "ccy", "one\ny|\nx+"),
            ("|one two", "dw", "|two"),
            ("|one two", "cwx", "x| two+"),
            ("|one two", "de", "| two"),
            ("one t|wo", "db", "one |wo"),
            ("one| two", "d$", "on|e"),
            ("o|ne", "iX", "oX|ne+"),
            ("o|ne", "aX", "onX|e+"),
            ("o|ne\nx", "AX", "oneX|\nx+"),
            ("  on|e", "IX", "  X|one+"),
            ("o|ne\nx", "oX", "one\nX|\nx+"),
            ("x\no|ne", "OX", "x\nX|\none+"),
            ("|one\ntwo", "ddp", "two\n|one"),
            ("|one", "xp", "n|oe"),
            ("|one two", "dwu", "|one two"),
            ("on|e\nx", "j", "one\nx|"),
            ("one\n|x", "k", "|one\nx"),
            ("|one", "dz", "|one"),
            ("|äöü ß", "wx", "äöü| "),
            ("|", "iab", "ab|+"),
        ];
        for (before, keys, expected) in table {
            assert_eq!(typed(before, keys), expected, "{before:?} {keys}");
        }
    }

    proptest! {
        #[test]
        fn the_cursor_stays_in_the_text(
            content in "[a-c ._\n\u{e4}\u{1f600}\u{301}]{0,12}",
            keys in "[hjklwbe0$^xdDcCiaAIoOpu]{0,20}",
        ) {
            let shown = typed(&format!("|{content}"), &keys);
            prop_assert!(shown.contains('|'));
        }
    }
}
