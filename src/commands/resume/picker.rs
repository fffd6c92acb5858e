//! Selection of a stored session at a terminal. On a dumb terminal, a numbered list.
//!
//! The texts come from journals, so they are escaped.

use std::io::{self, BufRead, Write};

use posse_base::terminal;
use tokio::sync::oneshot;

use crate::failure::printable;
use crate::frontend::signals::Signals;
use crate::tui::{self, Picked};

/// Maximum number of rows of the numbered list.
const ROWS_MAX: usize = 12;

/// A stored session in a list from which the user selects one, as texts.
#[derive(Debug)]
pub(crate) struct SessionRow {
    /// Session id.
    pub(crate) id: String,
    /// Time since the last use of the session; empty if unknown.
    pub(crate) age: String,
    /// State of the session, such as `finished` or `parked`.
    pub(crate) state: String,
    /// Number of turns and cost; empty if unknown.
    pub(crate) spent: String,
    /// Title of the session, or the beginning of its first task.
    pub(crate) prompt: String,
}

/// Shows `rows` and returns the selection. `dumb`: the terminal cannot move its cursor, so the list
/// is numbered.
pub(super) async fn pick(rows: &[SessionRow], dumb: bool) -> io::Result<Picked> {
    let mut signals = Signals::listen();
    if dumb {
        return pick_by_number(rows, &mut signals).await;
    }
    let sessions: Vec<_> = rows.iter().map(|row| (row.id.clone(), line(row))).collect();
    tui::pick(&sessions, &mut signals).await
}

/// Selection on a dumb terminal: shows a numbered list, and reads a number or the beginning of an
/// id.
async fn pick_by_number(rows: &[SessionRow], signals: &mut Signals) -> io::Result<Picked> {
    let mut text = String::new();
    for (nth, row) in rows.iter().take(ROWS_MAX).enumerate() {
        text.extend([&format!("{:>3}  ", nth + 1), line(row).as_str(), "\n"]);
    }
    text.push_str("which one? number or id, or nothing to leave: ");
    terminal::stderr().write_all(text.as_bytes())?;
    // A read on a thread of its own does not delay signals.
    let (sender, typed) = oneshot::channel();
    std::thread::Builder::new().name("picker".to_owned()).spawn(move || {
        let mut line = Vec::new();
        sender.send(io::stdin().lock().read_until(b'\n', &mut line).map(|_| line)).ok();
    })?;
    let typed = tokio::select! {
        biased;
        signal = signals.next() => return Ok(Picked::Signal(signal)),
        typed = typed => typed.map_err(io::Error::other)??,
    };
    let typed = String::from_utf8_lossy(&typed);
    Ok(by_number(typed.trim(), rows).map_or(Picked::Nothing, Picked::Row))
}

/// Index of the shown row with the number `typed` (from 1), or of the only row whose id begins with
/// `typed`. `None` if no row matches, or several ids do.
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

/// Ids of sessions with their descriptions in columns: age, turns with cost, and title, after the state
/// unless it is the usual one of a session that is not in use.
pub(crate) fn in_columns(mut rows: Vec<SessionRow>) -> Vec<(String, String)> {
    for row in &mut rows {
        if matches!(row.state.as_str(), "stopped" | "finished") {
            row.state = String::new();
        }
    }
    let widest = |cell: fn(&SessionRow) -> &String| {
        rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or_default()
    };
    let (age, spent) = (widest(|row| &row.age), widest(|row| &row.spent));
    let line = |row: SessionRow| {
        let state = if row.state.is_empty() { "" } else { " · " };
        let SessionRow { id, prompt, .. } = &row;
        let text =
            format!("{:<age$}  {:<spent$}  {}{state}{prompt}", row.age, row.spent, row.state);
        (id.clone(), printable(&text))
    };
    rows.into_iter().map(line).collect()
}

/// Formats a session as one line.
fn line(row: &SessionRow) -> String {
    let SessionRow { id, age, state, spent, prompt } = row;
    let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let spent = if spent.is_empty() { String::new() } else { format!("  ({spent})") };
    printable(&format!("{id}  {age:<11} {state:<12} {prompt}{spent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_sessions_are_listed_in_columns() {
        let row = |id: &str, age: &str, state: &str, spent: &str| SessionRow {
            id: id.to_owned(),
            age: age.to_owned(),
            state: state.to_owned(),
            spent: spent.to_owned(),
            prompt: "fix it".to_owned(),
        };
        let rows =
            vec![row("a", "now", "stopped", ""), row("b", "10 min ago", "parked", "3 turns")];
        let lines = in_columns(rows);
        assert_eq!(lines[0], ("a".to_owned(), "now                  fix it".to_owned()));
        assert_eq!(lines[1], ("b".to_owned(), "10 min ago  3 turns  parked · fix it".to_owned()));
    }

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

    #[test]
    fn control_characters_are_escaped() {
        assert!(line(&rows()[2]).ends_with("fix \\u{1b}[2J it  (3 turns)"), "{}", line(&rows()[2]));
    }

    #[test]
    fn picker_accepts_numbers_and_ids() {
        let rows = rows();
        let table = [("1", Some(0)), ("3", Some(2)), ("4", None), ("0", None), ("", None)];
        for (typed, row) in table {
            assert_eq!(by_number(typed, &rows), row, "{typed}");
        }
        assert_eq!(by_number("20260102", &rows), Some(1));
        assert_eq!(by_number("202601", &rows), None);
    }
}
