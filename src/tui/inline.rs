//! Selection of a stored session in a list below the command line.

use std::io::{self, Write};

use crossterm::event::{KeyCode, KeyEvent};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use posse_base::failure::{Exit, printable};

use posse_frontend::signals::Signals;

use crate::input::{InputEvent, ctrl};
use crate::selector::{Selector, SelectorEntry, SelectorKind, SelectorOutcome};
use crate::terminal;

/// Maximum number of sessions that are visible at once.
const ROWS_MAX: usize = 12;

/// Result of the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picked {
    /// The session with this index was selected.
    Row(usize),
    /// The user cancelled, or the terminal is gone.
    Nothing,
    /// A signal arrived, or Ctrl+C was pressed. The value is its exit code.
    Signal(Exit),
}

/// Raw mode of the terminal, until dropped.
struct RawMode;

impl Drop for RawMode {
    fn drop(&mut self) {
        disable_raw_mode().ok();
    }
}

/// Lets the user select a session, given as pairs of id and description. The descriptions must
/// contain no control characters. Draws the list on standard error, and removes it at the end.
/// Fails if the terminal cannot be used.
pub async fn pick(sessions: &[(String, String)], signals: &mut Signals) -> io::Result<Picked> {
    let mut list = selector(sessions);
    let (columns, rows) = terminal::size();
    enable_raw_mode()?;
    let _raw = RawMode;
    let (mut inputs, _reader) = terminal::read()?;
    let mut shown = 0;
    loop {
        let lines = render(&list, columns.into(), rows.into());
        draw(&mut shown, &lines)?;
        let events = tokio::select! {
            biased;
            exit = signals.next() => {
                draw(&mut shown, &[])?;
                return Ok(Picked::Signal(exit));
            }
            events = inputs.recv() => events.unwrap_or_else(|| vec![InputEvent::Gone]),
        };
        if let Some(picked) = events.into_iter().find_map(|event| handle_event(&mut list, event)) {
            draw(&mut shown, &[])?;
            return Ok(picked);
        }
    }
}

fn selector(sessions: &[(String, String)]) -> Selector {
    let entry = |(id, about): &(String, String)| SelectorEntry::new(id.clone(), about.clone());
    let entries = sessions.iter().map(entry).collect();
    Selector::of(SelectorKind::Inline, "Which session do you want to resume?", entries)
}

fn handle_event(list: &mut Selector, event: InputEvent) -> Option<Picked> {
    let key = match event {
        InputEvent::Key(key) => key,
        InputEvent::Paste(text) => {
            list.filter_by(&text);
            return None;
        }
        InputEvent::Focus(_) | InputEvent::Background(_) => return None,
        InputEvent::Gone => return Some(Picked::Nothing),
    };
    let outcome = match key {
        key if key == ctrl('c') => return Some(Picked::Signal(Exit::Interrupt)),
        key if key == ctrl('d') => SelectorOutcome::Closed,
        key if key == ctrl('j') => list.key(KeyEvent::from(KeyCode::Enter)),
        key => list.key(key),
    };
    match outcome {
        SelectorOutcome::Name(id) => {
            list.entries.iter().position(|entry| entry.value == id).map(Picked::Row)
        }
        SelectorOutcome::Closed => Some(Picked::Nothing),
        SelectorOutcome::Open | SelectorOutcome::Deleted(_) | SelectorOutcome::Labelled(_) => None,
    }
}

fn render(list: &Selector, columns: usize, rows: usize) -> Vec<String> {
    let room = ROWS_MAX.min(rows.saturating_sub(3)).max(1);
    let first = list.chosen.saturating_sub(room - 1);
    let found = list.found();
    let mut lines = vec![format!("{} {}", list.title, printable(&list.filter))];
    lines.extend(found.iter().enumerate().skip(first).take(room).map(|(nth, entry)| {
        format!("{} {}", if nth == list.chosen { ">" } else { " " }, entry.label)
    }));
    if found.is_empty() {
        lines.push("  none has these words".to_owned());
    }
    let (left, all) = (found.len(), list.entries.len());
    lines.push(format!("{left} of {all}  up/down, type to filter, Enter, Esc"));
    // The last column stays free: some terminals wrap there.
    lines.iter().map(|line| line.chars().take(columns.max(20) - 1).collect()).collect()
}

/// Draws `lines` over the lines of the previous call. `shown`: number of those lines; it is
/// updated.
fn draw(shown: &mut usize, lines: &[String]) -> io::Result<()> {
    let up = if *shown > 0 { format!("\x1b[{shown}A") } else { String::new() };
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\r\n"]).collect();
    *shown = lines.len();
    let mut stderr = posse_base::terminal::stderr();
    write!(stderr, "\r{up}\x1b[J{text}")?;
    stderr.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Parser;

    fn sessions() -> Vec<(String, String)> {
        [("a", "a 5 min fix the test"), ("b", "b write docs"), ("c", "c fix it")]
            .map(|(id, about)| (id.to_owned(), about.to_owned()))
            .to_vec()
    }

    fn press_all(list: &mut Selector, bytes: &[u8]) -> Option<Picked> {
        let mut parser = Parser::default();
        let mut events = parser.feed(bytes);
        events.extend(parser.flush());
        events.into_iter().find_map(|event| handle_event(list, event))
    }

    #[test]
    fn keys_choose_and_typing_filters() {
        let table: [(&[u8], Option<Picked>); 12] = [
            (b"\r", Some(Picked::Row(0))),
            (b"\n", Some(Picked::Row(0))),
            (b"\x1b[B\x1b[B\x1b[A\r", Some(Picked::Row(1))),
            (b"\x1b[B\x1b[B\x1b[B\x1b[B\r", Some(Picked::Row(2))),
            (b"\x1b[A\r", Some(Picked::Row(0))),
            (b"fix it\r", Some(Picked::Row(2))),
            (b"DOCS\r", Some(Picked::Row(1))),
            (b"docs\x7f\x7f\x7f\x7f\r", Some(Picked::Row(0))),
            (b"nothing like it\r", None),
            (b"\x1b", Some(Picked::Nothing)),
            (b"\x03", Some(Picked::Signal(Exit::Interrupt))),
            (b"\x1b[1;5C\x1bOB\r", Some(Picked::Row(1))),
        ];
        for (typed, picked) in table {
            assert_eq!(press_all(&mut selector(&sessions()), typed), picked, "{typed:?}");
        }
    }

    #[test]
    fn shows_no_more_than_there_is_room_for() {
        let list = selector(&sessions());
        for (columns, rows) in [(80, 24), (20, 4), (1, 1), (500, 500)] {
            let shown = render(&list, columns, rows);
            assert!(shown.len() <= rows.max(4) + 1 && shown.len() >= 3, "{shown:?}");
            assert!(shown.iter().all(|line| line.chars().count() < columns.max(20)));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(typed in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let mut list = selector(&sessions());
            press_all(&mut list, &typed);
            proptest::prop_assert!(list.found().is_empty() || list.chosen < list.found().len());
            render(&list, 60, 10);
        }
    }
}
