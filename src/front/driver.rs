//! Instruction stream on standard input: one JSON object per line.
//!
//! An invalid line is reported and skipped. Line length and queue are bounded.

use std::io::{self, BufRead};

use posse_base::failure::{ErrorCode, Exit, Failure};
use posse_frontend::instruction::{ClientLine, LINE_BYTES_MAX};
use tokio::sync::mpsc;

/// Maximum number of queued instructions.
const WAITING_MAX: usize = 16;

/// An input line with its number.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// Line number, from 1.
    pub(crate) line: u64,
    pub(crate) what: ClientLine,
}

/// Starts a thread that reads standard input to its end, and returns the channel of its lines.
pub(crate) fn instructions() -> mpsc::Receiver<Numbered> {
    let (sender, lines) = mpsc::channel(WAITING_MAX);
    let on_error = sender.clone();
    let reader = std::thread::Builder::new().name("instructions".to_owned());
    let work = move || read(io::stdin().lock(), |line| sender.blocking_send(line).is_ok());
    if let Err(error) = reader.spawn(work) {
        let what = unreadable(&format!("no thread: {error}"));
        // The channel is empty.
        on_error.try_send(Numbered { line: 1, what }).ok();
    }
    lines
}

/// Parses every line that is not blank and passes the result to `hand_on`, until the input ends, a
/// read fails, or `hand_on` returns false. A read error is passed on as the error of a line.
fn read(mut input: impl BufRead, mut hand_on: impl FnMut(Numbered) -> bool) {
    for line in 1.. {
        let what = match next_line(&mut input) {
            Ok(None) => return,
            Ok(Some(InputLine::Whole(bytes))) if bytes.trim_ascii().is_empty() => continue,
            Ok(Some(InputLine::Whole(bytes))) => ClientLine::read(&bytes),
            Ok(Some(InputLine::TooLong)) => ClientLine::too_long(),
            Err(error) => {
                let what = unreadable(&error.to_string());
                hand_on(Numbered { line, what });
                return;
            }
        };
        if !hand_on(Numbered { line, what }) {
            return;
        }
    }
}

/// A line that could not be read.
fn unreadable(error: &str) -> ClientLine {
    let what = format!("cannot be read: {error}");
    let failure = Failure::new(ErrorCode::InstructionInvalid, Exit::Usage, what);
    ClientLine { id: None, command: None, instruction: Err(failure) }
}

/// A line of at most [`LINE_BYTES_MAX`] bytes, newline included, or the fact that it is longer.
pub(crate) enum InputLine {
    Whole(Vec<u8>),
    TooLong,
}

/// Reads the next line, with its newline if it has one. A line that is too long is consumed whole.
/// `None` at the end of input.
pub(crate) fn next_line(input: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    let mut bytes = Vec::new();
    let mut too_long = false;
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let (taken, over) = match end {
            Some(end) => (end + 1, true),
            None => (piece.len(), piece.is_empty()),
        };
        if over && taken == 0 && bytes.is_empty() && !too_long {
            return Ok(None);
        }
        if bytes.len() + taken > LINE_BYTES_MAX {
            (bytes, too_long) = (Vec::new(), true);
        } else if !too_long {
            bytes.extend_from_slice(&piece[..taken]);
        }
        input.consume(taken);
        if over {
            return Ok(Some(if too_long { InputLine::TooLong } else { InputLine::Whole(bytes) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use posse_frontend::instruction::Instruction;

    use super::*;

    fn all(input: impl Read) -> Vec<(u64, Result<Instruction, String>)> {
        let mut seen = Vec::new();
        read(BufReader::with_capacity(7, input), |Numbered { line, what }| {
            seen.push((line, what.instruction.map_err(|failure| failure.what)));
            true
        });
        seen
    }

    #[test]
    fn invalid_line_is_skipped_and_counted() {
        let input = "{\"type\":\"interrupt\"}\n\n\u{fffd}\u{0}\n{\"type\":\"interrupt\"}";
        let seen = all(input.as_bytes());
        let lines: Vec<_> = seen.iter().map(|(line, what)| (*line, what.is_ok())).collect();
        assert_eq!(lines, [(1, true), (3, false), (4, true)]);
    }

    #[test]
    fn endless_line_uses_bounded_memory() {
        let long = io::repeat(b'x').take(3 * LINE_BYTES_MAX as u64);
        let seen = all(long.chain(&b"\n{\"type\":\"interrupt\"}\n"[..]));
        assert_eq!(seen[0], (1, Err(format!("is longer than {LINE_BYTES_MAX} bytes"))));
        assert_eq!(seen[1], (2, Ok(Instruction::Interrupt { all: false })));
        assert_eq!(seen.len(), 2);
    }
}
