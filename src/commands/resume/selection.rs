//! Selection of a stored session: by id, the newest, or by the user.

use std::io::{self, IsTerminal};
use std::path::Path;

use jiff::tz::TimeZone;

use crate::cli::{Resume, Which};
use crate::commands::resume::picker::{self, SessionRow};
use crate::commands::run::runtime;
use crate::config::Environment;
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::frontend::pluralize;
use crate::journal::commands;
use crate::journal::state::{StoredSession, Within};
use crate::journal::{self, SessionState, SessionSummary, StateDir};
use crate::project;
use crate::tui::Picked;
use crate::wiring::clock::now_ms;

/// Maximum characters of a prompt in an error.
const PROMPT_MAX: usize = 60;

/// Maximum number of sessions that an error lists.
const OFFERED_MAX: usize = 5;

/// Finds the session that `resume` selects: by its id or an unambiguous beginning of it among all
/// sessions, otherwise among those of `cwd` or its project. If no session is named, asks the user,
/// or fails without a terminal. Adds remarks to `notes`.
pub(super) fn find(
    resume: &Resume,
    state: &StateDir,
    cwd: &Path,
    environment: &Environment,
    notes: &mut Vec<String>,
) -> Result<StoredSession, Failure> {
    match &resume.which {
        Which::Id(id) => state.find(Within::Everywhere, id),
        Which::Last => newest(state, cwd, notes),
        Which::Unsaid => {
            let mut sessions = of_project(state, cwd)?;
            // A session without a prompt cannot be resumed.
            sessions.retain(|session| session.prompt.is_some());
            if sessions.is_empty() {
                return Err(no_sessions_error());
            }
            if is_there() {
                let nth = pick(&sessions, environment)?;
                return state.find(Within::Everywhere, &sessions[nth].id);
            }
            let ids: Vec<String> =
                sessions.iter().take(OFFERED_MAX).map(|s| format!("`{}`", s.id)).collect();
            let what = "resume which session?";
            Err(Failure::new(ErrorCode::SelectionNotPossible, Exit::Usage, what)
                .because("selecting a session needs a terminal")
                .fix(format!("give one of {}, or --last for the newest", ids.join(", "))))
        }
    }
}

/// The most recently used session of `cwd` or, if it has none, of its project. Skips sessions
/// without records, each of `cwd` with a remark in `notes`.
fn newest(state: &StateDir, cwd: &Path, notes: &mut Vec<String>) -> Result<StoredSession, Failure> {
    for found in state.by_use(Within::Project(cwd))? {
        if journal::has_begun(&found.dir) {
            return Ok(found);
        }
        // It broke off before its first record, or the file was emptied.
        notes.push(format!("session {} has no records and is skipped", found.id));
    }
    let none = || match &notes[..] {
        [] => no_sessions_error(),
        some => no_sessions_error().because(some.join("; ")),
    };
    let newest = of_project(state, cwd)?.into_iter().next().ok_or_else(none)?;
    state.find(Within::Everywhere, &newest.id)
}

fn no_sessions_error() -> Failure {
    Failure::new(
        ErrorCode::SessionElsewhere,
        Exit::Session,
        "this directory and its project have no session",
    )
    .fix("start one with `posse run TASK`; `posse sessions list --all` shows all sessions")
}

/// Sessions of the directory `cwd`, or of its project if the directory has none; the most recently
/// used first. Leaves out sessions without records.
pub(crate) fn of_project(state: &StateDir, cwd: &Path) -> Result<Vec<SessionSummary>, Failure> {
    let has_records = |summary: &SessionSummary| summary.state != SessionState::Empty;
    let mut here = state.summaries(Within::Project(cwd))?;
    here.retain(has_records);
    if !here.is_empty() {
        return Ok(here);
    }
    let root = project::root_of(cwd);
    let mut all = state.summaries(Within::Everywhere)?;
    all.retain(|summary| {
        let within = |cwd: &String| project::root_of(Path::new(cwd)) == root;
        has_records(summary) && summary.cwd.as_ref().is_some_and(within)
    });
    Ok(all)
}

/// Adds to `failure`, about the session `found`, a suggestion: the next older undamaged session of
/// the folder `cwd`. posse does not resume another session without consent.
pub(super) fn instead(
    failure: Failure,
    found: &StoredSession,
    state: &StateDir,
    cwd: &Path,
) -> Failure {
    let sessions = state.by_use(Within::Project(cwd)).unwrap_or_default();
    let sound = |other: &StoredSession| {
        let verified = journal::verify_session(&other.dir, &other.id);
        verified.is_ok_and(|verified| verified.is_sound() && verified.records > 0)
    };
    let earlier = sessions.into_iter().skip_while(|other| other.id != found.id).skip(1).find(sound);
    let what = format!("{} (`-c` means session `{}`, which was used last)", failure.what, found.id);
    let aside = format!("`posse sessions verify {}` shows the damage", found.id);
    let fix = match earlier {
        Some(other) => {
            let summary = SessionSummary::of(other);
            let prompt = summary.prompt.unwrap_or_default();
            let prompt: String = printable(&prompt).chars().take(PROMPT_MAX).collect();
            let id = summary.id;
            format!("`posse resume {id}` resumes the one before it ({prompt}); {aside}")
        }
        None => {
            format!("no other session here is undamaged: start a new one with `posse run`; {aside}")
        }
    };
    Failure { what, ..failure }.fix(fix)
}

/// Lets the user select one of `sessions`, and returns its index. Fails if none was selected: with
/// [`Exit::Done`] if the user closed the list, with the exit code of a signal, or with
/// [`Exit::Usage`] if the terminal failed.
pub(crate) fn pick(
    sessions: &[SessionSummary],
    environment: &Environment,
) -> Result<usize, Failure> {
    let rows: Vec<SessionRow> = sessions.iter().map(row).collect();
    let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
    let picked = runtime()?.block_on(picker::pick(&rows, dumb));
    let left =
        |exit: Exit| Failure::new(ErrorCode::SelectionNotPossible, exit, "no session was chosen");
    match picked {
        Ok(Picked::Row(nth)) => Ok(nth),
        // Closing the list is a normal end.
        Ok(Picked::Nothing) => Err(left(Exit::Done)),
        Ok(Picked::Signal(exit)) => Err(left(exit)),
        Err(error) => Err(left(Exit::Usage).because(error.to_string())),
    }
}

/// Formats a session for the list.
pub(crate) fn row(session: &SessionSummary) -> SessionRow {
    let (now, zone) = (now_ms(), TimeZone::system());
    SessionRow {
        id: session.id.clone(),
        age: session.last_ms.map_or_else(String::new, |last| commands::relative(last, now)),
        state: session.state.short_text(&zone),
        spent: spent(session),
        prompt: session.about().unwrap_or_default().to_owned(),
    }
}

/// Number of turns and cost of a session, as text. An unknown value is left out.
fn spent(session: &SessionSummary) -> String {
    let turns = session.turns.map(|turns| pluralize(turns.into(), "turn"));
    let cost = session.cost_nano_usd.map(posse_actors::cost::dollars);
    turns.into_iter().chain(cost).collect::<Vec<_>>().join(" ")
}

/// True if a person can be asked: standard input and standard error are terminals.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}
