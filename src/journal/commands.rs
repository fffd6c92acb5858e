//! Commands `posse sessions list`, `show` and `verify`: text for people, JSON for programs.

mod progress;

use std::io::{self, Write};
use std::path::Path;

use jiff::tz::TimeZone;
use posse_actors::cost::dollars;
use posse_actors::replay::Replay;
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use serde::Serialize;

use crate::damaged_tail::{DamagedTail, recommended_fix};
use crate::read;
use crate::scan::parse;
use crate::segments::ACTIVE;
use crate::session_state::{SessionState, session_state};
use crate::state::{StateDir, StoredSession, Within};
use crate::summary::SessionSummary;
use crate::transcript::{Transcript, counted, formatted_time};
use crate::verify::{Verified, verify_session, verify_with_progress};
use crate::walk::ReadError;

use progress::ReadProgress;

/// Output options of the `posse sessions` commands.
#[derive(Debug, Clone)]
pub struct OutputStyle {
    /// True to print JSON, false to print text.
    pub json: bool,
    /// True if text may contain ANSI colours.
    pub color: bool,
    /// Width in characters to which rows of the list are cut: the variable `COLUMNS`, or 100. Only
    /// the last column is cut, to at least 20 characters.
    pub columns: usize,
    /// Current time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Time zone of the user.
    pub zone: TimeZone,
}

/// Prints a list of the sessions in `within`, the most recently used first, as text or JSON. Fails
/// if the folders of the sessions cannot be listed; damaged sessions are in the list.
pub fn list(
    state: &StateDir,
    within: Within<'_>,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let sessions = state.summaries(within)?;
    let written = if view.json {
        write_json(&sessions, out)
    } else if sessions.is_empty() {
        let place = if within == Within::Everywhere { "" } else { " of this directory" };
        writeln!(out, "there are no sessions{place}")
    } else {
        write_list(&sessions, within == Within::Everywhere, view, out)
    };
    ended(written, out, Exit::Done)
}

/// Prints the session whose id is `id`, or the only one whose id begins with `id`: the raw journal
/// lines if `view.json` is set, otherwise a transcript and the state. If the journal is damaged,
/// empty or continued by a later version, prints the valid records and returns an error.
pub fn show(
    state: &StateDir,
    id: &str,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let found = state.find(Within::Everywhere, id)?;
    match write_session(&found, view, out) {
        Ok(None) => ended(Ok(()), out, Exit::Done),
        Ok(Some(problem)) => Err(stopped(&found, problem)),
        Err(ReadError::Out(error)) => ended(Err(error), out, Exit::Done),
        Err(ReadError::Journal(error)) => Err(unreadable(&found, &error)),
    }
}

/// Creates the failure for a journal that could not be read to its end, with the text `problem`:
/// damage, an empty journal or a later format. The recommended fix is to run
/// `posse sessions verify`.
pub(crate) fn damaged(found: &StoredSession, problem: String) -> Failure {
    Failure::new(ErrorCode::SessionDamaged, Exit::Session, problem)
        .at(found.dir.join(ACTIVE).display().to_string())
        .fix(format!("run `posse sessions verify {}` for details", found.id))
}

/// Creates the failure of [`damaged`] with the text `what`. If a verification finds the problem,
/// adds its file, a description of the damaged tail and the recommended fix.
fn stopped(found: &StoredSession, what: String) -> Failure {
    let failure = damaged(found, what);
    let verified = verify_session(&found.dir, &found.id).ok();
    let Some(problem) = verified.and_then(|verified| verified.problem) else { return failure };
    let above = if problem.record > 1 {
        "the records above are all that the journal still proves"
    } else {
        "the journal proves none of its records"
    };
    let failure = failure.at(found.dir.join(&problem.file).display().to_string());
    let remains = DamagedTail::of(&found.dir, &problem.file, problem.offset);
    let why = match remains {
        Ok(remains) => format!("{above}; from there on are {remains}"),
        Err(_) => above.to_owned(),
    };
    failure.because(why).fix(recommended_fix(found, &problem))
}

/// Verifies the hash chain of session `id`, or of all sessions in `within` if `id` is `None`, and
/// prints the results as text or JSON. `within` does not restrict `id`, which may be a unique
/// prefix. Returns `Exit::Session` if a journal is unreadable or not sound.
pub fn verify(
    state: &StateDir,
    id: Option<&str>,
    within: Within<'_>,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let sessions = match id {
        Some(id) => vec![state.find(Within::Everywhere, id)?],
        None => state.sessions(within)?,
    };
    let mut checked = Vec::new();
    let mut sound = true;
    let mut progress = ReadProgress::new();
    for found in sessions {
        let mut report = |bytes| progress.report(&found.id, bytes);
        let (verified, error) = match verify_with_progress(&found.dir, &found.id, &mut report) {
            Ok(verified) => (Some(verified), None),
            Err(error) => (None, Some(error.to_string())),
        };
        sound &= verified.as_ref().is_some_and(Verified::is_sound);
        let found_problem = verified.as_ref().and_then(|verified| verified.problem.as_ref());
        let problem = found_problem.filter(|problem| !problem.torn_tail);
        let remains = problem
            .filter(|problem| !problem.never_begun)
            .and_then(|problem| DamagedTail::of(&found.dir, &problem.file, problem.offset).ok());
        let fix = problem.map(|problem| recommended_fix(&found, problem));
        checked.push(Checked { id: found.id, verified, error, remains, fix });
    }
    drop(progress);
    let written = if view.json {
        write_json(&checked, out)
    } else if checked.is_empty() {
        writeln!(out, "there are no sessions to verify")
    } else {
        checked.iter().try_for_each(|checked| write_checked(checked, view.color, out))
    };
    ended(written, out, if sound { Exit::Done } else { Exit::Session })
}

/// Result of verifying one session, for the output of `verify`.
#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
struct Checked {
    id: String,
    #[serialize_always]
    #[serde(flatten)]
    verified: Option<Verified>,
    /// Error of reading the journal files; `None` if they could be read.
    error: Option<String>,
    /// Contents of the file with the problem from the problem on. `None` if the journal is sound,
    /// or if the file cannot be read.
    remains: Option<DamagedTail>,
    /// Recommended fix for the problem; `None` if the journal is sound or unreadable.
    fix: Option<String>,
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn write_list(
    sessions: &[SessionSummary],
    everywhere: bool,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows =
        vec![["SESSION", "STARTED", "AGE", "SIZE", "COST", "STATE", "PROMPT"].map(str::to_owned)];
    // Names of the folders of the sessions; `None` for the title.
    let mut folders = vec![None];
    for session in sessions {
        let started = session
            .started_ms
            .and_then(|ms| formatted_time(ms, &view.zone, "%Y-%m-%d %H:%M"))
            .unwrap_or_else(|| "-".to_owned());
        let age = session.last_ms.or(session.started_ms);
        let prompt = session.about().unwrap_or("-");
        let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
        let folder = session.cwd.as_deref().filter(|_| everywhere).map(Path::new);
        folders.push(folder.map(|cwd| {
            cwd.file_name()
                .map_or(cwd.display().to_string(), |name| name.to_string_lossy().into_owned())
        }));
        rows.push([
            printable(&session.id),
            started,
            age.map_or_else(|| "-".to_owned(), |ms| relative(ms, view.now_ms)),
            size(session.total_bytes),
            cost_text(session),
            printable(&state_text(session, &view.zone)),
            printable(&prompt),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for (number, (row, folder)) in rows.iter().zip(&folders).enumerate() {
        let cells = widths.iter().zip(row).map(|(width, cell)| format!("{cell:<width$}  "));
        let mut line = cells.collect::<Vec<_>>().concat();
        let room = view.columns.saturating_sub(line.chars().count()).max(20);
        // The prompt has most of the room.
        let folder = folder.as_deref().map(|name| truncated(&printable(name), room / 3) + ": ");
        let folder = folder.unwrap_or_default();
        line.push_str(&folder);
        line.push_str(&truncated(&row[6], room.saturating_sub(folder.chars().count())));
        let line = line.trim_end();
        match (number, view.color) {
            (0, true) => writeln!(out, "\x1b[2m{line}\x1b[0m")?,
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

/// Formats the known cost of a session: `-` if none is known, with `> ` before the amount if some
/// attempts have no known price.
fn cost_text(session: &SessionSummary) -> String {
    match (session.cost_nano_usd, session.unpriced_requests) {
        (None, _) => "-".to_owned(),
        (Some(nano), 0) => dollars(nano),
        (Some(nano), _) => format!("> {}", dollars(nano)),
    }
}

/// Formats the state of a session, followed by ` (attach)` if a client can attach to it.
fn state_text(session: &SessionSummary, zone: &TimeZone) -> String {
    let joined = if session.attachable { " (attach)" } else { "" };
    session.state.short_text(zone) + joined
}

fn write_checked(checked: &Checked, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let id = printable(&checked.id);
    let good = checked.verified.as_ref().is_some_and(Verified::is_sound);
    let text = match &checked.verified {
        Some(verified) => verified_text(verified),
        None => printable(checked.error.as_deref().unwrap_or_default()),
    };
    let problem = checked.verified.as_ref().and_then(|verified| verified.problem.as_ref());
    let never_begun = problem.filter(|problem| problem.never_begun);
    let text = never_begun.map_or(text, |problem| problem.what.clone());
    let (word, code) = match problem {
        _ if never_begun.is_some() => ("empty", "32"),
        _ if good => ("sound", "32"),
        Some(problem) if problem.kind == "newer" => ("newer version", "31"),
        _ => ("damaged", "31"),
    };
    let (on, off) = if color { (format!("\x1b[{code}m"), "\x1b[0m") } else { (String::new(), "") };
    writeln!(out, "{id}  {on}{word}{off}  {text}")?;
    if let Some(remains) = checked.remains {
        writeln!(out, "  there: {remains}")?;
    }
    match &checked.fix {
        Some(fix) => writeln!(out, "  fix: {}", printable(fix)),
        None => Ok(()),
    }
}

fn verified_text(verified: &Verified) -> String {
    let records = counted(verified.records, "record");
    let size = size(verified.bytes);
    let segments = match verified.segments {
        0 | 1 => String::new(),
        many => format!(" in {many} segments"),
    };
    let text = format!("{records}, {size}{segments}, hash {}", verified.last_hash);
    let Some(problem) = &verified.problem else { return text };
    let (what, file) = (printable(&problem.what), printable(&problem.file));
    let empty = if problem.kind == "empty" { format!(", in {file}") } else { String::new() };
    let place = match problem.line {
        0 => String::new(),
        line => format!(", {file}:{line} at byte {}", problem.offset),
    };
    let torn = match (problem.torn_tail, verified.running) {
        (false, _) => "",
        (true, true) => " (being written)",
        (true, false) => " (never shown)",
    };
    format!("{text}; then {what}, where record {} belongs{empty}{place}{torn}", problem.record)
}

/// Writes the records up to the first problem: as raw lines with `view.json`, otherwise as a
/// transcript that ends with the state and the existing worktrees. Returns a description of the
/// problem, or `None` if there is none.
fn write_session(
    found: &StoredSession,
    view: &OutputStyle,
    out: &mut dyn Write,
) -> Result<Option<String>, ReadError> {
    let mut replay = Replay::new(None);
    let problem = read::records(found, &mut |line, head| {
        if view.json {
            return out.write_all(line);
        }
        let record = parse(line, head, &found.id);
        replay.push(&record);
        Transcript::new(&mut *out, &view.zone, view.color).add(&record)
    })?;
    if !view.json {
        let replayed = replay.finish();
        let verified = problem.as_ref().and_then(|_| verify_session(&found.dir, &found.id).ok());
        let stands = match verified.and_then(|verified| verified.problem) {
            Some(problem) => SessionState::of_problem(&problem).long(&view.zone),
            None => session_state(&found.dir, &replayed, &view.zone),
        };
        writeln!(out, "state: {}", printable(&stands)).map_err(ReadError::Out)?;
        // Workspaces that were merged or left unchanged no longer exist.
        for one in &replayed.delegated {
            let worktree = one.workplace.as_deref().filter(|cwd| Path::new(cwd).is_dir());
            if let Some(cwd) = worktree {
                let line = format!("worktree of {} ({}): {cwd}", one.origin.agent, one.id());
                writeln!(out, "{}", printable(&line)).map_err(ReadError::Out)?;
            }
        }
    }
    Ok(problem)
}

pub(crate) fn unreadable(found: &StoredSession, error: &io::Error) -> Failure {
    found
        .failure(ErrorCode::SessionUnreadable, Exit::Session, "cannot be read")
        .because(error.to_string())
}

/// Returns the result of a command that printed session `found`.
///
/// Without a `problem`, this is the result of [`ended`]. If a `problem` stopped the reading of the
/// journal, it is the error [`damaged`], and `meaning`, the consequence for the output, is added as
/// its cause; `written` is then ignored, and `out` is not flushed.
pub(crate) fn ended_at(
    problem: Option<String>,
    meaning: &str,
    found: &StoredSession,
    written: io::Result<()>,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    match problem {
        None => ended(written, out, Exit::Done),
        Some(problem) => Err(damaged(found, problem).because(meaning)),
    }
}

/// Flushes `out` and returns `exit`, or an error if `written` or the flush failed. A closed pipe is
/// not an error: the reader has seen enough, and the result is `exit` as well.
pub(crate) fn ended(
    written: io::Result<()>,
    out: &mut dyn Write,
    exit: Exit,
) -> Result<Exit, Failure> {
    // Buffered output may be written only now.
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(exit),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit),
        Err(error) => {
            Err(Failure::new(ErrorCode::SessionsOutput, Exit::Failed, "cannot write the output")
                .because(error.to_string()))
        }
    }
}

/// Formats a number of bytes, rounded down, in a unit up to GiB: `12 B`, `3.4 KiB`, `120 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut tenths = u128::from(bytes) * 10;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if tenths < 10 * 1024 || unit == "GiB" {
            return match (unit, tenths < 1000) {
                ("B", _) | (_, false) => format!("{} {unit}", tenths / 10),
                (_, true) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
            };
        }
        tenths /= 1024;
    }
    String::new()
}

/// Formats the time from `then_ms` to `now_ms`, both in milliseconds since 1970: `now` (less than a
/// minute), `5 min ago`, `2 h ago`, `3 days ago`, or `in the future`.
pub fn relative(then_ms: u64, now_ms: u64) -> String {
    let Some(seconds) = now_ms.checked_sub(then_ms).map(|ms| ms / 1000) else {
        return "in the future".to_owned();
    };
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} ago", counted(seconds / 86_400, "day")),
    }
}

fn truncated(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests;
