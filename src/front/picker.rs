//! Selection of a stored session at a terminal: arrow keys, filter by typing, Enter selects, Esc
//! cancels. On a dumb terminal, a numbered list.
//!
//! The texts come from journals, so they are escaped.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{InputFlags, LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use crate::failure::{Exit, printable};
use crate::frontend::signals::Signals;

/// Wait for a key before signals are checked, in milliseconds.
const TICK_MS: u16 = 30;
/// Maximum number of visible rows.
const ROWS_MAX: usize = 12;
/// Maximum length of the filter in characters.
const FILTER_MAX: usize = 60;

/// Selectable session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRow {
    /// Session id.
    pub id: String,
    /// Time since its last use.
    pub age: String,
    /// State.
    pub state: String,
    /// Cost.
    pub spent: String,
    /// Title, or the beginning of its first task.
    pub prompt: String,
}

/// Result of the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picked {
    /// This row.
    Row(usize),
    /// Cancelled.
    Nothing,
    /// A signal arrived.
    Signal(Exit),
}

/// Shows `rows` and returns the selection. `dumb`: the terminal cannot move its cursor.
pub async fn pick(
    rows: &[SessionRow],
    dumb: bool,
    (columns, lines): (usize, usize),
) -> io::Result<Picked> {
    let mut signals = Signals::listen();
    if dumb {
        return pick_by_number(rows, &mut signals).await;
    }
    let mut list = PickerList::new(rows, columns, lines);
    let _raw = Raw::enter()?;
    let mut screen = PickerScreen::default();
    let mut pending = Vec::new();
    loop {
        screen.draw(&list.render())?;
        let keys = match next_keys(&mut pending, &mut signals).await? {
            Ok(keys) => keys,
            Err(signal) => {
                screen.clear()?;
                return Ok(Picked::Signal(signal));
            }
        };
        for key in keys {
            if let Some(picked) = list.press(key) {
                screen.clear()?;
                return Ok(picked);
            }
        }
    }
}

/// List for a dumb terminal: the user types a number or the beginning of an id.
async fn pick_by_number(rows: &[SessionRow], signals: &mut Signals) -> io::Result<Picked> {
    let mut text = String::new();
    for (nth, row) in rows.iter().take(ROWS_MAX).enumerate() {
        text.extend([&format!("{:>3}  ", nth + 1), line(row).as_str(), "\n"]);
    }
    text.push_str("which one? number or id, or nothing to leave: ");
    show(&text)?;
    let mut typed = Vec::new();
    while !typed.contains(&b'\n') {
        match bytes(&mut typed, signals).await? {
            Ok(true) => {}
            Ok(false) => break,
            Err(signal) => return Ok(Picked::Signal(signal)),
        }
    }
    let typed = String::from_utf8_lossy(&typed);
    Ok(by_number(typed.trim(), rows).map_or(Picked::Nothing, Picked::Row))
}

/// Row with this number (from 1), or the only row whose id begins with `typed`.
fn by_number(typed: &str, rows: &[SessionRow]) -> Option<usize> {
    if typed.is_empty() {
        return None;
    }
    let shown = rows.len().min(ROWS_MAX);
    if let Some(nth) = typed.parse::<usize>().ok().filter(|nth| (1..=shown).contains(nth)) {
        return Some(nth - 1);
    }
    let mut matching = rows.iter().enumerate().filter(|(_, row)| row.id.starts_with(typed));
    match (matching.next(), matching.next()) {
        (Some((nth, _)), None) => Some(nth),
        _ => None,
    }
}

/// Key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PickerKey {
    Up,
    Down,
    Enter,
    Escape,
    Interrupt,
    Backspace,
    Char(char),
}

/// Takes complete keys from the input; an incomplete character stays.
fn keys(bytes: &mut Vec<u8>) -> Vec<PickerKey> {
    let mut keys = Vec::new();
    while let Some(&first) = bytes.first() {
        let (key, length) = match first {
            0x1b => match (bytes.get(1), bytes.get(2)) {
                (Some(b'[' | b'O'), Some(letter)) => match letter {
                    b'A' => (Some(PickerKey::Up), 3),
                    b'B' => (Some(PickerKey::Down), 3),
                    // A longer sequence: up to its final byte.
                    _ => (
                        None,
                        2 + bytes[2..].iter().take_while(|b| !(0x40..=0x7e).contains(*b)).count()
                            + 1,
                    ),
                },
                _ => (Some(PickerKey::Escape), 1),
            },
            b'\r' | b'\n' => (Some(PickerKey::Enter), 1),
            0x03 => (Some(PickerKey::Interrupt), 1),
            0x04 => (Some(PickerKey::Escape), 1),
            0x10 => (Some(PickerKey::Up), 1),
            0x0e => (Some(PickerKey::Down), 1),
            0x7f | 0x08 => (Some(PickerKey::Backspace), 1),
            0..0x20 => (None, 1),
            _ => {
                let width = match first {
                    0xc0..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    0xf0..0xf8 => 4,
                    _ => 1,
                };
                if bytes.len() < width {
                    break;
                }
                let text = std::str::from_utf8(&bytes[..width]).ok();
                (text.and_then(|text| text.chars().next()).map(PickerKey::Char), width)
            }
        };
        keys.extend(key);
        bytes.drain(..length.min(bytes.len()));
    }
    keys
}

/// The filtered list.
struct PickerList<'a> {
    rows: &'a [SessionRow],
    filter: String,
    /// Rows that match the filter.
    left: Vec<usize>,
    /// Index of the selected row.
    at: usize,
    columns: usize,
    room: usize,
}

impl<'a> PickerList<'a> {
    fn new(rows: &'a [SessionRow], columns: usize, lines: usize) -> PickerList<'a> {
        let room = ROWS_MAX.min(lines.saturating_sub(3)).max(1);
        let left = (0..rows.len()).collect();
        PickerList { rows, filter: String::new(), left, at: 0, columns: columns.max(20), room }
    }

    fn press(&mut self, key: PickerKey) -> Option<Picked> {
        match key {
            PickerKey::Up => self.at = self.at.saturating_sub(1),
            PickerKey::Down => self.at = (self.at + 1).min(self.left.len().saturating_sub(1)),
            PickerKey::Enter => return self.left.get(self.at).map(|row| Picked::Row(*row)),
            PickerKey::Escape => return Some(Picked::Nothing),
            PickerKey::Interrupt => return Some(Picked::Signal(Exit::Interrupt)),
            PickerKey::Backspace => {
                self.filter.pop();
                self.narrow();
            }
            PickerKey::Char(c) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(c);
                self.narrow();
            }
            PickerKey::Char(_) => {}
        }
        None
    }

    /// Keeps the rows that contain every word of the filter.
    fn narrow(&mut self) {
        let filter = self.filter.to_lowercase();
        let fits = |row: &SessionRow| {
            let text = line(row).to_lowercase();
            filter.split_whitespace().all(|word| text.contains(word))
        };
        self.left = (0..self.rows.len()).filter(|nth| fits(&self.rows[*nth])).collect();
        self.at = 0;
    }

    fn render(&self) -> Vec<String> {
        let mut lines =
            vec![self.cut(&format!("Which session goes on? {}", printable(&self.filter)))];
        let first = self.at.saturating_sub(self.room - 1);
        for (nth, row) in self.left.iter().enumerate().skip(first).take(self.room) {
            let mark = if nth == self.at { ">" } else { " " };
            lines.push(self.cut(&format!("{mark} {}", line(&self.rows[*row]))));
        }
        if self.left.is_empty() {
            lines.push("  none has these words".to_owned());
        }
        let keys = format!(
            "{} of {}  up/down, type to filter, Enter, Esc",
            self.left.len(),
            self.rows.len()
        );
        lines.push(self.cut(&keys));
        lines
    }

    fn cut(&self, text: &str) -> String {
        // The last column stays free: some terminals wrap there.
        text.chars().take(self.columns - 1).collect()
    }
}

/// Formats a session as one line.
fn line(row: &SessionRow) -> String {
    let SessionRow { id, age, state, spent, prompt } = row;
    let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let spent = if spent.is_empty() { String::new() } else { format!("  ({spent})") };
    printable(&format!("{id}  {age:<11} {state:<12} {prompt}{spent}"))
}

/// Drawn rows, for redrawing.
#[derive(Default)]
struct PickerScreen {
    drawn: usize,
}

impl PickerScreen {
    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = self.back();
        for line in lines {
            text.push_str(line);
            text.push_str("\r\n");
        }
        self.drawn = lines.len();
        show(&text)
    }

    fn clear(&mut self) -> io::Result<()> {
        let text = self.back();
        self.drawn = 0;
        show(&text)
    }

    fn back(&self) -> String {
        match self.drawn {
            0 => "\r\u{1b}[J".to_owned(),
            lines => format!("\r\u{1b}[{lines}A\u{1b}[J"),
        }
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Raw mode of the terminal, until dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        raw.input_flags.remove(InputFlags::ICRNL | InputFlags::IXON);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0).ok();
    }
}

/// Next keys, or a signal.
async fn next_keys(
    pending: &mut Vec<u8>,
    signals: &mut Signals,
) -> io::Result<Result<Vec<PickerKey>, Exit>> {
    loop {
        match bytes(pending, signals).await? {
            Err(signal) => return Ok(Err(signal)),
            // End of input.
            Ok(false) => return Ok(Ok(vec![PickerKey::Escape])),
            Ok(true) => {}
        }
        // The sequence of an arrow key may arrive in pieces.
        if matches!(pending[..], [0x1b] | [0x1b, b'[' | b'O']) && is_ready()? {
            continue;
        }
        let keys = keys(pending);
        if !keys.is_empty() {
            return Ok(Ok(keys));
        }
    }
}

/// Waits for bytes and appends them. Returns `false` at the end of input.
async fn bytes(to: &mut Vec<u8>, signals: &mut Signals) -> io::Result<Result<bool, Exit>> {
    loop {
        if is_ready()? {
            let mut buffer = [0; 256];
            return Ok(match io::stdin().lock().read(&mut buffer) {
                Ok(0) => Ok(false),
                Ok(count) => {
                    to.extend_from_slice(&buffer[..count]);
                    Ok(true)
                }
                Err(error) => return Err(error),
            });
        }
        if let Ok(signal) = tokio::time::timeout(Duration::from_millis(1), signals.next()).await {
            return Ok(Err(signal));
        }
    }
}

/// True if input is available within a moment.
fn is_ready() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::from(TICK_MS)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<SessionRow> {
        let row = |id: &str, prompt: &str| SessionRow {
            id: id.to_owned(),
            age: "5 min ago".to_owned(),
            state: "completed".to_owned(),
            spent: "3 turns".to_owned(),
            prompt: prompt.to_owned(),
        };
        vec![
            row("20260103-a", "fix the test"),
            row("20260102-b", "write docs"),
            row("20260101-c", "fix \u{1b}[2J it"),
        ]
    }

    fn press(list: &mut PickerList<'_>, text: &[u8]) -> Option<Picked> {
        let mut bytes = text.to_vec();
        keys(&mut bytes).into_iter().find_map(|key| list.press(key))
    }

    #[test]
    fn keys_choose_and_typing_filters() {
        let rows = rows();
        let table: [(&[u8], Option<Picked>); 10] = [
            (b"\r", Some(Picked::Row(0))),
            (b"\x1b[B\x1b[B\x1b[A\r", Some(Picked::Row(1))),
            (b"\x1b[B\x1b[B\x1b[B\x1b[B\r", Some(Picked::Row(2))),
            (b"fix it\r", Some(Picked::Row(2))),
            (b"DOCS\r", Some(Picked::Row(1))),
            (b"docs\x7f\x7f\x7f\x7f\r", Some(Picked::Row(0))),
            (b"nothing like it\r", None),
            (b"\x1b", Some(Picked::Nothing)),
            (b"\x03", Some(Picked::Signal(Exit::Interrupt))),
            (b"\x1b[1;5C\x1bOB\r", Some(Picked::Row(1))),
        ];
        for (typed, picked) in table {
            assert_eq!(press(&mut PickerList::new(&rows, 80, 24), typed), picked, "{typed:?}");
        }
    }

    #[test]
    fn a_character_may_come_in_pieces() {
        let mut bytes = vec![0xc3];
        assert_eq!(keys(&mut bytes), []);
        bytes.push(0xa9);
        assert_eq!(keys(&mut bytes), [PickerKey::Char('é')]);
    }

    #[test]
    fn shows_no_more_than_there_is_room_for() {
        let rows = rows();
        for (columns, lines) in [(80, 24), (20, 4), (1, 1), (500, 500)] {
            let list = PickerList::new(&rows, columns, lines);
            let shown = list.render();
            assert!(shown.len() <= lines.max(4) + 1 && shown.len() >= 3, "{shown:?}");
            assert!(shown.iter().all(|line| line.chars().count() < columns.max(20)));
            assert!(shown.iter().all(|line| !line.contains('\u{1b}')));
        }
    }

    #[test]
    fn understands_numbers_and_ids() {
        let rows = rows();
        let table = [("1", Some(0)), ("3", Some(2)), ("4", None), ("0", None), ("", None)];
        for (typed, row) in table {
            assert_eq!(by_number(typed, &rows), row, "{typed}");
        }
        assert_eq!(by_number("20260102", &rows), Some(1));
        assert_eq!(by_number("202601", &rows), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(typed in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let rows = rows();
            let mut list = PickerList::new(&rows, 60, 10);
            press(&mut list, &typed);
            proptest::prop_assert!(list.left.is_empty() || list.at < list.left.len());
            list.render();
        }
    }
}
