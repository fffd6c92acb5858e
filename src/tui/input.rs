//! Bytes of a terminal as keys and pastes. Pure; whatever the bytes are, what is kept is bounded.
//!
//! What a terminal answers to questions is understood as far as it must be to be thrown away: an
//! answer that comes late, or that somebody else asked for, is no key.

/// Bytes of a paste that are kept.
const PASTE_BYTES_MAX: usize = 32 << 20;

/// Bytes of a sequence that is no key.
const SEQUENCE_BYTES_MAX: usize = 4096;

const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// Something that was typed or pasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// A key.
    Key(Key),
    /// A text that was pasted as one, with `\n` at the ends of its lines.
    Paste(String),
    /// There will be no more.
    Gone,
}

/// A key with what was held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Which one.
    pub(super) code: Code,
    /// Ctrl was held.
    pub(super) ctrl: bool,
    /// Alt was held.
    pub(super) alt: bool,
    /// Shift was held, with a key that has no letter of its own for it.
    pub(super) shift: bool,
}

/// Which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// A letter, or another character.
    Char(char),
    /// Enter.
    Enter,
    /// Tab; with shift, the one that goes back.
    Tab,
    /// The one that removes what is before.
    Backspace,
    /// The one that removes what is after.
    Delete,
    /// Escape.
    Esc,
    /// Arrows.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// A function key, or another that has no meaning here.
    Other(u8),
}

impl Key {
    /// A key alone.
    pub(super) const fn plain(code: Code) -> Key {
        Key { code, ctrl: false, alt: false, shift: false }
    }

    /// With Ctrl.
    pub(super) const fn ctrl(letter: char) -> Key {
        Key { code: Code::Char(letter), ctrl: true, alt: false, shift: false }
    }

    /// With Alt.
    #[cfg(test)]
    pub(super) const fn alt(code: Code) -> Key {
        Key { code, ctrl: false, alt: true, shift: false }
    }

    /// The character that it writes, if it writes one.
    pub(super) fn writes(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl && !self.alt => Some(c),
            _ => None,
        }
    }
}

/// Takes bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Parser {
    pending: Vec<u8>,
    paste: Option<Vec<u8>>,
}

/// What the beginning of some bytes is.
enum Parsed {
    /// So many bytes are this key.
    Key(usize, Key),
    /// So many bytes mean nothing.
    Nothing(usize),
    /// A paste begins after so many bytes.
    Paste(usize),
    /// More has to come.
    Part,
}

impl Parser {
    /// Takes what was read.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Input> {
        let mut inputs = Vec::new();
        self.pending.extend_from_slice(bytes);
        self.parse(&mut inputs, false);
        inputs
    }

    /// Nothing more came for a moment: what is there is all there is.
    pub(super) fn flush(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        if let Some(paste) = self.paste.take() {
            // Its end was lost. What follows is typed, and what came belongs to nobody else.
            inputs.push(pasted(&paste));
        }
        self.parse(&mut inputs, true);
        inputs
    }

    /// Whether something waits for more bytes.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty() || self.paste.is_some()
    }

    /// Whether it is a paste that waits.
    pub(super) fn pastes(&self) -> bool {
        self.paste.is_some()
    }

    fn parse(&mut self, inputs: &mut Vec<Input>, is_all: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while !rest.is_empty() {
            if let Some(paste) = &mut self.paste {
                let end = find(rest, PASTE_ENDS);
                // The mark of the end may be cut in two.
                let taken = end.unwrap_or(rest.len() - partial_end(rest));
                let room = PASTE_BYTES_MAX.saturating_sub(paste.len()).min(taken);
                paste.extend_from_slice(&rest[..room]);
                rest = &rest[taken..];
                if end.is_none() {
                    break;
                }
                rest = &rest[PASTE_ENDS.len()..];
                inputs.extend(self.paste.take().map(|paste| pasted(&paste)));
                continue;
            }
            match parse(rest) {
                Parsed::Key(length, key) => {
                    inputs.push(Input::Key(key));
                    rest = &rest[length..];
                }
                Parsed::Nothing(length) => rest = &rest[length..],
                Parsed::Paste(length) => {
                    self.paste = Some(Vec::new());
                    rest = &rest[length..];
                }
                Parsed::Part if is_all => {
                    // The key alone; of anything else nothing is left.
                    if rest == b"\x1b" {
                        inputs.push(Input::Key(Key::plain(Code::Esc)));
                    }
                    rest = &[];
                }
                Parsed::Part => break,
            }
        }
        if self.pending.is_empty() {
            self.pending = rest.to_vec();
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// Bytes at the end that may be the beginning of the mark of a paste's end.
fn partial_end(bytes: &[u8]) -> usize {
    let longest = (PASTE_ENDS.len() - 1).min(bytes.len());
    (1..=longest).rev().find(|n| bytes.ends_with(&PASTE_ENDS[..*n])).unwrap_or(0)
}

fn pasted(bytes: &[u8]) -> Input {
    let text = String::from_utf8_lossy(bytes);
    Input::Paste(text.replace("\r\n", "\n").replace('\r', "\n"))
}

fn parse(bytes: &[u8]) -> Parsed {
    match bytes[0] {
        0x1b => escape(bytes),
        0 => Parsed::Key(1, Key::ctrl(' ')),
        b'\r' => Parsed::Key(1, Key::plain(Code::Enter)),
        b'\t' => Parsed::Key(1, Key::plain(Code::Tab)),
        0x7f | 0x08 => Parsed::Key(1, Key::plain(Code::Backspace)),
        // Ctrl+J among them, which is how a newline is typed.
        byte @ 0x01..=0x1a => Parsed::Key(1, Key::ctrl(char::from(byte - 1 + b'a'))),
        byte @ 0x1c..=0x1f => Parsed::Key(1, Key::ctrl(char::from(byte + 0x40))),
        _ => character(bytes),
    }
}

fn character(bytes: &[u8]) -> Parsed {
    let length = match bytes[0] {
        0x00..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Parsed::Nothing(1),
    };
    let there = &bytes[..length.min(bytes.len())];
    match std::str::from_utf8(there) {
        Ok(text) => match text.chars().next() {
            Some(c) if !c.is_control() => Parsed::Key(length, Key::plain(Code::Char(c))),
            _ => Parsed::Nothing(length),
        },
        Err(error) if error.error_len().is_none() && there.len() < length => Parsed::Part,
        Err(_) => Parsed::Nothing(1),
    }
}

fn escape(bytes: &[u8]) -> Parsed {
    let Some(second) = bytes.get(1) else { return Parsed::Part };
    match second {
        b'[' => control_sequence(bytes),
        b'O' => match bytes.get(2) {
            None => Parsed::Part,
            Some(last) => match letter(*last) {
                Some(code) => Parsed::Key(3, Key::plain(code)),
                None => Parsed::Nothing(3),
            },
        },
        // Strings that a terminal answers with.
        b']' | b'P' | b'_' | b'^' | b'X' => string(bytes),
        // Twice: the key itself, and what follows is on its own.
        0x1b => Parsed::Key(1, Key::plain(Code::Esc)),
        _ => match parse(&bytes[1..]) {
            Parsed::Key(length, key) => Parsed::Key(length + 1, Key { alt: true, ..key }),
            Parsed::Nothing(length) => Parsed::Nothing(length + 1),
            Parsed::Paste(length) => Parsed::Paste(length + 1),
            Parsed::Part => Parsed::Part,
        },
    }
}

/// To its end: a bell or `ESC \`.
fn string(bytes: &[u8]) -> Parsed {
    let bell = find(bytes, b"\x07").map(|at| at + 1);
    let end = find(&bytes[1..], b"\x1b\\").map(|at| at + 3);
    match bell.into_iter().chain(end).min() {
        Some(length) => Parsed::Nothing(length),
        None if bytes.len() > SEQUENCE_BYTES_MAX => Parsed::Nothing(bytes.len()),
        None => Parsed::Part,
    }
}

fn control_sequence(bytes: &[u8]) -> Parsed {
    if bytes.starts_with(PASTE_BEGINS) {
        return Parsed::Paste(PASTE_BEGINS.len());
    }
    let Some(end) = bytes[2..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        let endless = bytes.len() > SEQUENCE_BYTES_MAX;
        return if endless { Parsed::Nothing(bytes.len()) } else { Parsed::Part };
    };
    let (parameters, last) = (&bytes[2..2 + end], bytes[2 + end]);
    let length = end + 3;
    if !(0x40..=0x7e).contains(&last) {
        // Cut off by something else, which is a key of its own.
        return Parsed::Nothing(end + 2);
    }
    // The old way to report the mouse has three bytes more. It is never asked for.
    match key_of(parameters, last) {
        Some(key) => Parsed::Key(length, key),
        None => Parsed::Nothing(length),
    }
}

/// The key of a control sequence; `None`: it is none.
fn key_of(parameters: &[u8], last: u8) -> Option<Key> {
    let text = std::str::from_utf8(parameters).ok()?;
    // What begins so is an answer.
    if text.starts_with(['?', '>', '<', '=']) {
        return None;
    }
    let mut fields = text.split(';');
    let first = fields.next().unwrap_or_default();
    let number = |text: &str| text.split(':').next().and_then(|text| text.parse::<u32>().ok());
    let held = fields.next().unwrap_or_default();
    // A key that is let go is no key.
    if held.split(':').nth(1) == Some("3") {
        return None;
    }
    let held = number(held).unwrap_or(1).saturating_sub(1);
    let (shift, alt, ctrl) = (held & 1 != 0, held & 2 != 0, held & 4 != 0);
    let code = match last {
        b'~' => match number(first)? {
            1 | 7 => Code::Home,
            4 | 8 => Code::End,
            3 => Code::Delete,
            5 => Code::PageUp,
            6 => Code::PageDown,
            // Another way to say a character: 27;held;character.
            27 => return unicode(number(fields.next()?)?, shift, alt, ctrl),
            other => Code::Other(u8::try_from(other).ok()?),
        },
        b'u' => return unicode(number(first)?, shift, alt, ctrl),
        b'Z' => return Some(Key { code: Code::Tab, ctrl, alt, shift: true }),
        // Where the cursor is, as an answer: no terminal was asked.
        b'R' if !first.is_empty() && text.contains(';') && first != "1" => return None,
        b'I' | b'O' if text.is_empty() => return None,
        other => letter(other)?,
    };
    Some(Key { code, ctrl, alt, shift })
}

fn letter(last: u8) -> Option<Code> {
    Some(match last {
        b'A' => Code::Up,
        b'B' => Code::Down,
        b'C' => Code::Right,
        b'D' => Code::Left,
        b'H' => Code::Home,
        b'F' => Code::End,
        b'M' => Code::Enter,
        b'P' => Code::Other(11),
        b'Q' => Code::Other(12),
        b'R' => Code::Other(13),
        b'S' => Code::Other(14),
        _ => return None,
    })
}

/// A key that is told by its character.
fn unicode(number: u32, shift: bool, alt: bool, ctrl: bool) -> Option<Key> {
    let code = match number {
        13 => Code::Enter,
        9 => Code::Tab,
        27 => Code::Esc,
        8 | 127 => Code::Backspace,
        // Keys that only hold others down, and keypads.
        57_344..=63_743 => return None,
        _ => match char::from_u32(number)? {
            c if c.is_control() => return None,
            c if shift && !ctrl => {
                Code::Char(c.to_uppercase().next().filter(|_| c.is_alphabetic()).unwrap_or(c))
            }
            c => Code::Char(c),
        },
    };
    let shift = shift && !matches!(code, Code::Char(_));
    Some(Key { code, ctrl, alt, shift })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Input> {
        let mut parser = Parser::default();
        let mut inputs = parser.feed(bytes);
        inputs.extend(parser.flush());
        assert!(!parser.waits());
        inputs
    }

    fn key(code: Code) -> Input {
        Input::Key(Key::plain(code))
    }

    #[test]
    fn knows_the_keys() {
        let shift = |code| Input::Key(Key { shift: true, ..Key::plain(code) });
        let ctrl = |letter| Input::Key(Key::ctrl(letter));
        let alt = |code| Input::Key(Key::alt(code));
        let table: &[(&[u8], Input)] = &[
            (b"a", key(Code::Char('a'))),
            ("é".as_bytes(), key(Code::Char('é'))),
            ("日".as_bytes(), key(Code::Char('日'))),
            (b"\r", key(Code::Enter)),
            (b"\n", ctrl('j')),
            (b"\x03", ctrl('c')),
            (b"\x1f", ctrl('_')),
            (b"\x7f", key(Code::Backspace)),
            (b"\t", key(Code::Tab)),
            (b"\x1b", key(Code::Esc)),
            (b"\x1b[A", key(Code::Up)),
            (b"\x1bOB", key(Code::Down)),
            (b"\x1b[1;5C", Input::Key(Key { ctrl: true, ..Key::plain(Code::Right) })),
            (b"\x1b[3~", key(Code::Delete)),
            (b"\x1b[5~", key(Code::PageUp)),
            (b"\x1b[Z", shift(Code::Tab)),
            (b"\x1b\r", alt(Code::Enter)),
            (b"\x1bb", alt(Code::Char('b'))),
            (b"\x1b\x7f", alt(Code::Backspace)),
            (b"\x1b[13;2u", shift(Code::Enter)),
            (b"\x1b[27;2;13~", shift(Code::Enter)),
            (b"\x1b[99;5u", ctrl('c')),
            (b"\x1b[97;2u", key(Code::Char('A'))),
            (b"\x1b[97;1:2u", key(Code::Char('a'))),
        ];
        for (bytes, expected) in table {
            assert_eq!(all(bytes), std::slice::from_ref(expected), "{bytes:?}");
        }
        assert_eq!(all(b"\x1b\x1b"), [key(Code::Esc), key(Code::Esc)]);
    }

    #[test]
    fn what_a_terminal_answers_is_no_key() {
        let table: &[&[u8]] = &[
            b"\x1b[12;40R",
            b"\x1b[?62;22c",
            b"\x1b[>1;10;0c",
            b"\x1b[?2026;2$y",
            b"\x1b]11;rgb:0000/0000/0000\x07",
            b"\x1b]11;rgb:0000/0000/0000\x1b\\",
            b"\x1bP1+r544e=78\x1b\\",
            b"\x1b_Gi=31;OK\x1b\\",
            b"\x1b[I",
            b"\x1b[O",
            b"\x1b[?1u",
            b"\x1b[99;1:3u",
            b"\x1b[57441;2u",
        ];
        for bytes in table {
            assert_eq!(all(bytes), [], "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_paste_is_one_whatever_is_in_it() {
        let text = "one\r\ntwo\ry\x1b[A\x03";
        let bytes = format!("x\x1b[200~{text}\x1b[201~y");
        let expected = [
            key(Code::Char('x')),
            Input::Paste("one\ntwo\ny\x1b[A\x03".into()),
            key(Code::Char('y')),
        ];
        assert_eq!(all(bytes.as_bytes()), expected);
        for cut in 0..bytes.len() {
            let mut parser = Parser::default();
            let mut inputs = parser.feed(&bytes.as_bytes()[..cut]);
            inputs.extend(parser.feed(&bytes.as_bytes()[cut..]));
            assert_eq!(inputs, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_paste_without_an_end_is_a_paste() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"\x1b[200~rm -rf\ry"), []);
        assert!(parser.pastes());
        assert_eq!(parser.flush(), [Input::Paste("rm -rf\ny".into())]);
        assert_eq!(parser.feed(b"z"), [key(Code::Char('z'))]);
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let mut parser = Parser::default();
        for beginning in [&b"\x1b]"[..], b"\x1b["] {
            parser.feed(beginning);
            for _ in 0..100 {
                parser.feed(&[b'1'; 1000]);
                assert!(parser.pending.len() <= SEQUENCE_BYTES_MAX + 1000);
            }
            parser.flush();
        }
    }

    proptest! {
        #[test]
        fn no_bytes_stop_it(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let mut parser = Parser::default();
            parser.feed(&bytes[..cut]);
            parser.feed(&bytes[cut..]);
            parser.flush();
            prop_assert!(!parser.waits());
            prop_assert_eq!(parser.feed(b"q"), [Input::Key(Key::plain(Code::Char('q')))]);
        }

        #[test]
        fn cuts_do_not_matter(text in "[a-zé日\r\t]{0,40}", cut in 0usize..160) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let mut parser = Parser::default();
            let mut inputs = parser.feed(&bytes[..cut]);
            inputs.extend(parser.feed(&bytes[cut..]));
            prop_assert_eq!(inputs, all(bytes));
        }
    }
}
