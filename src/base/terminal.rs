//! Text on its way to a terminal: the last guard against escape sequences of models, repositories,
//! tools and servers.
//!
//! Every front end escapes untrusted text where it puts it into a line. What passes here is
//! examined once more as a whole: of all control characters, only line feeds, tabs, carriage
//! returns, colours and the few sequences with which posse erases its own lines reach the terminal.
//! All others, and invisible characters, are escaped.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::is_invisible;

/// Maximum number of bytes of the parameters of a sequence that posse writes. A longer sequence is
/// escaped.
const PARAMETERS_MAX: usize = 32;

/// Text that changes nothing on a terminal besides printing, except for colours, moving up and
/// erasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalText<'a>(Cow<'a, str>);

impl<'a> TerminalText<'a> {
    /// Escapes control and invisible characters in `text`, except line feeds, tabs, carriage
    /// returns and the sequences that posse itself writes.
    pub fn new(text: &'a str) -> TerminalText<'a> {
        let Some(first) = first_forbidden(text) else { return TerminalText(Cow::Borrowed(text)) };
        let mut safe = String::with_capacity(text.len() + 16);
        let (mut rest, mut next) = (text, Some(first));
        while let Some(at) = next {
            safe.push_str(&rest[..at]);
            let Some(c) = rest[at..].chars().next() else { break };
            safe.extend(c.escape_default());
            rest = &rest[at + c.len_utf8()..];
            next = first_forbidden(rest);
        }
        safe.push_str(rest);
        TerminalText(Cow::Owned(safe))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Position in bytes of the first character that must not reach a terminal. `None` if all may.
fn first_forbidden(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c == '\u{1b}' {
            match known_sequence(&text[at..]) {
                Some(sequence) => at += sequence.len(),
                None => return Some(at),
            }
            continue;
        }
        if (c.is_control() && !matches!(c, '\n' | '\t' | '\r')) || is_invisible(c) {
            return Some(at);
        }
        at += c.len_utf8();
    }
    None
}

/// The sequence at the beginning of `text`, if posse writes such ones: `ESC [`, numbers, and `m`
/// (colours), `K` or `J` (erase in the line or screen) or `A` (up). `None` otherwise.
fn known_sequence(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    let last = end + "\u{1b}[".len();
    let is_known =
        end <= PARAMETERS_MAX && matches!(text.as_bytes()[last], b'm' | b'K' | b'J' | b'A');
    is_known.then(|| &text[..=last])
}

/// Number of bytes at the end of `bytes` that may become a sequence of [`known_sequence`].
fn open_sequence(bytes: &[u8]) -> usize {
    let Some(at) = bytes.iter().rposition(|byte| *byte == 0x1b) else { return 0 };
    let parameters = match &bytes[at + 1..] {
        [] => &[],
        [b'[', parameters @ ..] => parameters,
        _ => return 0,
    };
    let is_open = parameters.len() <= PARAMETERS_MAX
        && parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
    if is_open { bytes.len() - at } else { 0 }
}

/// Writer that converts its input to [`TerminalText`] if the stream is a terminal, and passes all
/// bytes unchanged otherwise.
///
/// On a terminal, invalid UTF-8 is replaced, and an incomplete character or sequence at the end
/// waits for the next write; `flush` does not write it.
#[derive(Debug)]
pub struct TerminalWriter<W: Write> {
    stream: W,
    is_terminal: bool,
    /// Last bytes of the previous write: the beginning of a character or sequence, which did not
    /// reach the stream and which the next write continues.
    incomplete: Vec<u8>,
    /// True for standard output.
    is_output: bool,
}

/// True after the first byte that was written to [`stdout`].
static HAS_OUTPUT: AtomicBool = AtomicBool::new(false);

impl<W: Write> TerminalWriter<W> {
    fn new(stream: W, is_terminal: bool) -> TerminalWriter<W> {
        TerminalWriter { stream, is_terminal, incomplete: Vec::new(), is_output: false }
    }
}

impl<W: Write> Write for TerminalWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_output && !bytes.is_empty() {
            HAS_OUTPUT.store(true, Ordering::Relaxed);
        }
        if !self.is_terminal {
            return self.stream.write(bytes);
        }
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            // The rest may be the beginning of a character.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => all.len(),
        };
        let whole = whole - open_sequence(&all[..whole]);
        self.incomplete = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.stream.write_all(TerminalText::new(&text).as_str().as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Standard output, guarded if it is a terminal.
pub fn stdout() -> TerminalWriter<io::Stdout> {
    let stream = io::stdout();
    let is_terminal = stream.is_terminal();
    TerminalWriter { is_output: true, ..TerminalWriter::new(stream, is_terminal) }
}

/// True if something was written to [`stdout`].
pub fn has_output() -> bool {
    HAS_OUTPUT.load(Ordering::Relaxed)
}

/// Standard error, guarded if it is a terminal.
pub fn stderr() -> TerminalWriter<io::Stderr> {
    let stream = io::stderr();
    let is_terminal = stream.is_terminal();
    TerminalWriter::new(stream, is_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_sequences_pass_and_all_others_are_escaped() {
        let same = [
            "plain\n\ttext äöü 漢字 🦀\r",
            "\u{1b}[1;31mred\u{1b}[0m",
            "\r\u{1b}[K\u{1b}[3A\u{1b}[J",
            "",
        ];
        for text in same {
            assert_eq!(TerminalText::new(text).as_str(), text);
        }
        let escaped = [
            ("\u{1b}]52;c;aGk=\u{7}", "\\u{1b}]52;c;aGk=\\u{7}"),
            ("\u{1b}[2;1H", "\\u{1b}[2;1H"),
            ("\u{1b}[?1049h", "\\u{1b}[?1049h"),
            ("\u{1b}[201~", "\\u{1b}[201~"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{1b}[", "\\u{1b}["),
            ("\u{1b}[31", "\\u{1b}[31"),
            ("\u{1b}\u{1b}[31m", "\\u{1b}\u{1b}[31m"),
            ("\u{1b}P+q\u{1b}\\", "\\u{1b}P+q\\u{1b}\\"),
            ("\u{9b}2J\u{8}\u{0}", "\\u{9b}2J\\u{8}\\u{0}"),
            ("a\u{202e}b\u{200b}c", "a\\u{202e}b\\u{200b}c"),
            ("\u{1b}[31mx\u{1b}]0;t\u{7}\u{1b}[0m", "\u{1b}[31mx\\u{1b}]0;t\\u{7}\u{1b}[0m"),
        ];
        for (text, expected) in escaped {
            assert_eq!(TerminalText::new(text).as_str(), expected, "{text:?}");
        }
    }

    #[test]
    fn split_characters_are_written_whole() {
        let mut writer = TerminalWriter::new(Vec::new(), true);
        for byte in "ä\u{9b}漢\u{1b}]0;x".bytes() {
            writer.write_all(&[byte]).unwrap();
        }
        writer.write_all(b"\xff.").unwrap();
        for byte in "\u{1b}[1;31mred".bytes() {
            writer.write_all(&[byte]).unwrap();
        }
        let expected = "ä\\u{9b}漢\\u{1b}]0;x\u{fffd}.\u{1b}[1;31mred";
        assert_eq!(String::from_utf8(writer.stream).unwrap(), expected);
        let mut writer = TerminalWriter::new(Vec::new(), false);
        writer.write_all(b"\x1b]0;\xff").unwrap();
        assert_eq!(writer.stream, b"\x1b]0;\xff");
    }
}
