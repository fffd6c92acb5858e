//! Parser of terminal input: bytes to keys and pastes. Pure; memory is bounded for any input.
//!
//! Replies of a terminal to queries are no keys. Only the report of its background colour has a
//! meaning; all others, late replies or replies to other programs, are dropped.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use memchr::memmem::find;

use crate::theme::Rgb;

/// Maximum bytes of a paste; further bytes are dropped.
const PASTE_BYTES_MAX: usize = 32 << 20;

/// Maximum bytes of an unfinished escape sequence; a longer one is dropped.
const SEQUENCE_BYTES_MAX: usize = 4096;

const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// An input event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputEvent {
    /// A key press with its modifiers.
    Key(KeyEvent),
    /// A bracketed paste, with `\n` as line ends.
    Paste(String),
    /// The terminal has reported that it is focused now (true), or is not any more (false).
    Focus(bool),
    /// The terminal has reported its background colour.
    Background(Rgb),
    /// The terminal is gone.
    Gone,
}

/// The character that a key inserts; `None` if it inserts none.
pub(super) fn character(key: KeyEvent) -> Option<char> {
    let commands = KeyModifiers::CONTROL | KeyModifiers::ALT;
    match key.code {
        KeyCode::Char(c) if !key.modifiers.intersects(commands) => Some(c),
        _ => None,
    }
}

/// The key of a character with Ctrl.
pub(super) const fn ctrl(letter: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
}

/// Incremental parser of terminal input.
#[derive(Debug, Default)]
pub(super) struct Parser {
    pending: Vec<u8>,
    paste: Option<Vec<u8>>,
}

/// Meaning of the first bytes of a buffer.
enum ParsedBytes {
    /// A complete key press.
    Key(KeyEvent),
    /// Bytes to drop: an invalid byte, or a sequence that encodes no key.
    Nothing,
    /// The marker at the start of a bracketed paste.
    Paste,
    /// A report about the focus of the terminal.
    Focus(bool),
    /// A report about the background colour of the terminal.
    Background(Rgb),
}

impl ParsedBytes {
    fn key(code: KeyCode) -> ParsedBytes {
        ParsedBytes::Key(KeyEvent::from(code))
    }
}

impl Parser {
    /// Adds bytes and returns the input events that are complete now.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<InputEvent> {
        let mut inputs = Vec::new();
        self.pending.extend_from_slice(bytes);
        self.parse(&mut inputs, false);
        inputs
    }

    /// Ends the pending input, because no more bytes arrived for a moment. A pending paste ends, a
    /// single Escape is a key, and any other incomplete sequence is dropped.
    pub(super) fn flush(&mut self) -> Vec<InputEvent> {
        let mut inputs = Vec::new();
        if let Some(paste) = self.paste.take() {
            // The end of the paste was lost. The bytes so far are a paste; the next ones are keys.
            inputs.push(pasted(&paste));
        }
        self.parse(&mut inputs, true);
        inputs
    }

    /// Returns `true` if an incomplete sequence or paste is pending.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty() || self.paste.is_some()
    }

    /// Returns `true` if a paste is pending.
    pub(super) fn pastes(&self) -> bool {
        self.paste.is_some()
    }

    fn parse(&mut self, inputs: &mut Vec<InputEvent>, is_all: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while !rest.is_empty() {
            if let Some(paste) = &mut self.paste {
                let end = find(rest, PASTE_ENDS);
                // The end marker may be split between two reads.
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
            let Some((length, parsed)) = parse(rest) else {
                if is_all {
                    // A single Escape is the key; any other incomplete sequence is dropped.
                    if rest == b"\x1b" {
                        inputs.push(InputEvent::Key(KeyEvent::from(KeyCode::Esc)));
                    }
                    rest = &[];
                }
                break;
            };
            rest = &rest[length..];
            match parsed {
                ParsedBytes::Key(key) => inputs.push(InputEvent::Key(key)),
                ParsedBytes::Nothing => (),
                ParsedBytes::Paste => self.paste = Some(Vec::new()),
                ParsedBytes::Focus(focused) => inputs.push(InputEvent::Focus(focused)),
                ParsedBytes::Background(color) => inputs.push(InputEvent::Background(color)),
            }
        }
        if self.pending.is_empty() {
            self.pending = rest.to_vec();
        }
    }
}

/// Length of the suffix of `bytes` that may be the beginning of the paste end marker.
fn partial_end(bytes: &[u8]) -> usize {
    let longest = (PASTE_ENDS.len() - 1).min(bytes.len());
    (1..=longest).rev().find(|n| bytes.ends_with(&PASTE_ENDS[..*n])).unwrap_or(0)
}

fn pasted(bytes: &[u8]) -> InputEvent {
    let text = String::from_utf8_lossy(bytes);
    InputEvent::Paste(text.replace("\r\n", "\n").replace('\r', "\n"))
}

/// Parses the first bytes. Returns their number and meaning; `None` if they are incomplete.
fn parse(bytes: &[u8]) -> Option<(usize, ParsedBytes)> {
    let parsed = match bytes[0] {
        0x1b => return escape(bytes),
        0 => ParsedBytes::Key(ctrl(' ')),
        b'\r' => ParsedBytes::key(KeyCode::Enter),
        b'\t' => ParsedBytes::key(KeyCode::Tab),
        0x7f | 0x08 => ParsedBytes::key(KeyCode::Backspace),
        // Includes Ctrl+J, which inserts a line break.
        byte @ 0x01..=0x1a => ParsedBytes::Key(ctrl(char::from(byte - 1 + b'a'))),
        byte @ 0x1c..=0x1f => ParsedBytes::Key(ctrl(char::from(byte + 0x40))),
        _ => return parse_character(bytes),
    };
    Some((1, parsed))
}

fn parse_character(bytes: &[u8]) -> Option<(usize, ParsedBytes)> {
    let length = match bytes[0] {
        0x00..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((1, ParsedBytes::Nothing)),
    };
    let there = &bytes[..length.min(bytes.len())];
    match std::str::from_utf8(there) {
        Ok(text) => {
            let c = text.chars().next().filter(|c| !c.is_control());
            let key = c.map(|c| ParsedBytes::key(KeyCode::Char(c)));
            Some((length, key.unwrap_or(ParsedBytes::Nothing)))
        }
        Err(error) if error.error_len().is_none() && there.len() < length => None,
        Err(_) => Some((1, ParsedBytes::Nothing)),
    }
}

fn escape(bytes: &[u8]) -> Option<(usize, ParsedBytes)> {
    match bytes.get(1)? {
        b'[' => control_sequence(bytes),
        b'O' => {
            let code = letter(*bytes.get(2)?);
            Some((3, code.map_or(ParsedBytes::Nothing, ParsedBytes::key)))
        }
        // String sequences, which terminals reply with.
        b']' | b'P' | b'_' | b'^' | b'X' => string(bytes),
        // Two Escapes: the first one is the key.
        0x1b => Some((1, ParsedBytes::key(KeyCode::Esc))),
        _ => {
            let (length, mut parsed) = parse(&bytes[1..])?;
            if let ParsedBytes::Key(key) = &mut parsed {
                key.modifiers |= KeyModifiers::ALT;
            }
            Some((length + 1, parsed))
        }
    }
}

/// Parses a string sequence up to its end, a bell or `ESC \`. `None` if its end has not arrived yet;
/// above [`SEQUENCE_BYTES_MAX`] bytes it ends with the buffer.
fn string(bytes: &[u8]) -> Option<(usize, ParsedBytes)> {
    let bell = find(bytes, b"\x07").map(|at| at + 1);
    let end = find(&bytes[1..], b"\x1b\\").map(|at| at + 3);
    let endless = (bytes.len() > SEQUENCE_BYTES_MAX).then_some(bytes.len());
    let length = bell.into_iter().chain(end).min().or(endless)?;
    let background = background(&bytes[..length]);
    Some((length, background.map_or(ParsedBytes::Nothing, ParsedBytes::Background)))
}

/// The colour in a report of the background colour: `ESC ] 11 ; rgb:RRRR/GGGG/BBBB`, with one to four
/// hexadecimal digits each and an optional alpha value (`rgba:`).
fn background(sequence: &[u8]) -> Option<Rgb> {
    let text = std::str::from_utf8(sequence).ok()?.strip_prefix("\x1b]11;")?;
    let text = text.trim_end_matches(['\x07', '\x1b', '\\']);
    let channels = text.strip_prefix("rgb:").or_else(|| text.strip_prefix("rgba:"))?;
    let channel = |digits: &str| {
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        let largest = 16_u32.checked_pow(u32::try_from(digits.len()).ok()?)? - 1;
        u8::try_from(value * 255 / largest).ok()
    };
    let mut channels = channels.split('/').take(3).map(|digits| {
        Some(digits).filter(|digits| (1..=4).contains(&digits.len())).and_then(channel)
    });
    Some(Rgb(channels.next()??, channels.next()??, channels.next()??))
}

fn control_sequence(bytes: &[u8]) -> Option<(usize, ParsedBytes)> {
    if bytes.starts_with(PASTE_BEGINS) {
        return Some((PASTE_BEGINS.len(), ParsedBytes::Paste));
    }
    let Some(end) = bytes[2..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        let endless = bytes.len() > SEQUENCE_BYTES_MAX;
        return endless.then_some((bytes.len(), ParsedBytes::Nothing));
    };
    let (parameters, last) = (&bytes[2..2 + end], bytes[2 + end]);
    if !(0x40..=0x7e).contains(&last) {
        // Interrupted by another byte, which is parsed on its own.
        return Some((end + 2, ParsedBytes::Nothing));
    }
    if parameters.is_empty() && matches!(last, b'I' | b'O') {
        return Some((end + 3, ParsedBytes::Focus(last == b'I')));
    }
    // X10 mouse reports have three more bytes. Mouse reporting is never enabled.
    let key = key_of(parameters, last);
    Some((end + 3, key.map_or(ParsedBytes::Nothing, ParsedBytes::Key)))
}

/// Key that a control sequence encodes; `KeyCode::Null` for an unknown key number, `None` if the
/// sequence encodes no key press. `parameters`: the bytes between `ESC [` and the final byte
/// `last`.
fn key_of(parameters: &[u8], last: u8) -> Option<KeyEvent> {
    let text = std::str::from_utf8(parameters).ok()?;
    // Sequences with these prefixes are replies.
    if text.starts_with(['?', '>', '<', '=']) {
        return None;
    }
    let mut fields = text.split(';');
    let first = fields.next().unwrap_or_default();
    let number = |text: &str| text.split(':').next().and_then(|text| text.parse::<u32>().ok());
    let held = fields.next().unwrap_or_default();
    // Key release events are dropped.
    if held.split(':').nth(1) == Some("3") {
        return None;
    }
    let held = number(held).unwrap_or(1).saturating_sub(1);
    let mut modifiers = KeyModifiers::NONE;
    modifiers.set(KeyModifiers::SHIFT, held & 1 != 0);
    modifiers.set(KeyModifiers::ALT, held & 2 != 0);
    modifiers.set(KeyModifiers::CONTROL, held & 4 != 0);
    let code = match last {
        b'~' => match number(first)? {
            1 | 7 => KeyCode::Home,
            4 | 8 => KeyCode::End,
            3 => KeyCode::Delete,
            5 => KeyCode::PageUp,
            6 => KeyCode::PageDown,
            // `modifyOtherKeys` encoding of a character: 27;modifiers;character.
            27 => return unicode(number(fields.next()?)?, modifiers),
            2 => KeyCode::Insert,
            other @ 11..=15 => KeyCode::F(u8::try_from(other - 10).ok()?),
            other @ 17..=21 => KeyCode::F(u8::try_from(other - 11).ok()?),
            other @ 23..=24 => KeyCode::F(u8::try_from(other - 12).ok()?),
            _ => KeyCode::Null,
        },
        b'u' => return unicode(number(first)?, modifiers),
        b'Z' => return Some(KeyEvent::new(KeyCode::Tab, modifiers | KeyModifiers::SHIFT)),
        // A cursor position report; it is never requested.
        b'R' if !first.is_empty() && text.contains(';') && first != "1" => return None,
        other => letter(other)?,
    };
    Some(KeyEvent::new(code, modifiers))
}

fn letter(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        b'P' => KeyCode::F(1),
        b'Q' => KeyCode::F(2),
        b'R' => KeyCode::F(3),
        b'S' => KeyCode::F(4),
        _ => return None,
    })
}

/// Key that is encoded by its Unicode code point (CSI u); `None` for modifier and keypad keys, and
/// for control characters other than Enter, Tab, Escape and Backspace.
fn unicode(number: u32, mut modifiers: KeyModifiers) -> Option<KeyEvent> {
    let held = |modifier| modifiers.contains(modifier);
    let (shift, ctrl) = (held(KeyModifiers::SHIFT), held(KeyModifiers::CONTROL));
    let code = match number {
        13 => KeyCode::Enter,
        9 => KeyCode::Tab,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        // Modifier and keypad keys.
        57_344..=63_743 => return None,
        _ => match char::from_u32(number)? {
            c if c.is_control() => return None,
            c if shift && !ctrl => {
                KeyCode::Char(c.to_uppercase().next().filter(|_| c.is_alphabetic()).unwrap_or(c))
            }
            c => KeyCode::Char(c),
        },
    };
    if matches!(code, KeyCode::Char(_)) {
        modifiers.remove(KeyModifiers::SHIFT);
    }
    Some(KeyEvent::new(code, modifiers))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<InputEvent> {
        let mut parser = Parser::default();
        let mut inputs = parser.feed(bytes);
        inputs.extend(parser.flush());
        assert!(!parser.waits());
        inputs
    }

    fn key(code: KeyCode) -> InputEvent {
        InputEvent::Key(KeyEvent::from(code))
    }

    #[test]
    fn parses_keys() {
        let with = |code, modifiers| InputEvent::Key(KeyEvent::new(code, modifiers));
        let shift = |code| with(code, KeyModifiers::SHIFT);
        let ctrl = |letter| InputEvent::Key(ctrl(letter));
        let alt = |code| with(code, KeyModifiers::ALT);
        let table: &[(&[u8], InputEvent)] = &[
            (b"a", key(KeyCode::Char('a'))),
            ("é".as_bytes(), key(KeyCode::Char('é'))),
            ("日".as_bytes(), key(KeyCode::Char('日'))),
            (b"\r", key(KeyCode::Enter)),
            (b"\n", ctrl('j')),
            (b"\x03", ctrl('c')),
            (b"\x1f", ctrl('_')),
            (b"\x7f", key(KeyCode::Backspace)),
            (b"\t", key(KeyCode::Tab)),
            (b"\x1b", key(KeyCode::Esc)),
            (b"\x1b[A", key(KeyCode::Up)),
            (b"\x1bOB", key(KeyCode::Down)),
            (b"\x1b[1;5C", with(KeyCode::Right, KeyModifiers::CONTROL)),
            (b"\x1bOP", key(KeyCode::F(1))),
            (b"\x1b[17~", key(KeyCode::F(6))),
            (b"\x1b[24~", key(KeyCode::F(12))),
            (b"\x1b[2~", key(KeyCode::Insert)),
            (b"\x1b[3~", key(KeyCode::Delete)),
            (b"\x1b[5~", key(KeyCode::PageUp)),
            (b"\x1b[Z", shift(KeyCode::Tab)),
            (b"\x1b\r", alt(KeyCode::Enter)),
            (b"\x1bb", alt(KeyCode::Char('b'))),
            (b"\x1b\x7f", alt(KeyCode::Backspace)),
            (b"\x1b[13;2u", shift(KeyCode::Enter)),
            (b"\x1b[27;2;13~", shift(KeyCode::Enter)),
            (b"\x1b[99;5u", ctrl('c')),
            (b"\x1b[97;2u", key(KeyCode::Char('A'))),
            (b"\x1b[97;1:2u", key(KeyCode::Char('a'))),
        ];
        for (bytes, expected) in table {
            assert_eq!(all(bytes), std::slice::from_ref(expected), "{bytes:?}");
        }
        assert_eq!(all(b"\x1b\x1b"), [key(KeyCode::Esc), key(KeyCode::Esc)]);
    }

    #[test]
    fn terminal_replies_are_not_keys() {
        let table: &[&[u8]] = &[
            b"\x1b[12;40R",
            b"\x1b[?62;22c",
            b"\x1b[>1;10;0c",
            b"\x1b[?2026;2$y",
            b"\x1b]10;rgb:0000/0000/0000\x07",
            b"\x1b]11;rgb:0000/0000\x07",
            b"\x1b]11;rgb:00000/0000/0000\x07",
            b"\x1b]11;rgb:+1/+1/+1\x07",
            b"\x1b]11;rgb://\x07",
            b"\x1b]11;?\x1b\\",
            b"\x1bP1+r544e=78\x1b\\",
            b"\x1b_Gi=31;OK\x1b\\",
            b"\x1b[?1u",
            b"\x1b[99;1:3u",
            b"\x1b[57441;2u",
        ];
        for bytes in table {
            assert_eq!(all(bytes), [], "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn report_of_the_background_colour() {
        let table: &[(&[u8], Rgb)] = &[
            (b"\x1b]11;rgb:0000/8080/ffff\x07", Rgb(0, 0x80, 0xff)),
            (b"\x1b]11;rgb:00/80/ff\x1b\\", Rgb(0, 0x80, 0xff)),
            (b"\x1b]11;rgb:0/8/f\x1b\\", Rgb(0, 0x88, 0xff)),
            (b"\x1b]11;rgba:ffff/0000/0000/8000\x07", Rgb(0xff, 0, 0)),
        ];
        for (bytes, color) in table {
            assert_eq!(all(bytes), [InputEvent::Background(*color)], "{bytes:?}");
        }
    }

    #[test]
    fn reports_about_the_focus_are_no_keys() {
        let expected = [InputEvent::Focus(true), InputEvent::Focus(false)];
        assert_eq!(all(b"\x1b[I\x1b[O"), expected);
    }

    #[test]
    fn paste_is_one_event_whatever_it_contains() {
        let text = "one\r\ntwo\ry\x1b[A\x03";
        let bytes = format!("x\x1b[200~{text}\x1b[201~y");
        let expected = [
            key(KeyCode::Char('x')),
            InputEvent::Paste("one\ntwo\ny\x1b[A\x03".into()),
            key(KeyCode::Char('y')),
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
    fn paste_without_an_end_is_still_a_paste() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"\x1b[200~rm -rf\ry"), []);
        assert!(parser.pastes());
        assert_eq!(parser.flush(), [InputEvent::Paste("rm -rf\ny".into())]);
        assert_eq!(parser.feed(b"z"), [key(KeyCode::Char('z'))]);
    }

    #[test]
    fn endless_sequences_are_dropped() {
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
        fn parser_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let mut parser = Parser::default();
            parser.feed(&bytes[..cut]);
            parser.feed(&bytes[cut..]);
            parser.flush();
            prop_assert!(!parser.waits());
            prop_assert_eq!(parser.feed(b"q"), [InputEvent::Key(KeyEvent::from(KeyCode::Char('q')))]);
        }

        #[test]
        fn splitting_the_input_does_not_change_the_result(text in "[a-zé日\r\t]{0,40}", cut in 0usize..160) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let mut parser = Parser::default();
            let mut inputs = parser.feed(&bytes[..cut]);
            inputs.extend(parser.feed(&bytes[cut..]));
            prop_assert_eq!(inputs, all(bytes));
        }
    }
}
