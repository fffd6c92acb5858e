//! State of a session: running, waiting, parked, killed, finished or damaged.

use std::path::Path;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use posse_actors::event::StartedCall;
use posse_actors::replay::{Parked, Replayed};
use serde::Serialize;

use crate::lock;
use crate::segments::{ACTIVE, closed_name};
use crate::transcript::{counted, formatted_time};
use crate::verify::Problem;

/// Time of the last write to the active journal file in `dir`, from the file system. `None` if the
/// file cannot be examined.
pub fn last_change(dir: &Path) -> Option<SystemTime> {
    dir.join(ACTIVE).metadata().and_then(|about| about.modified()).ok()
}

/// Description of the process that owns the session in `dir`: `process 123`, or `an unknown
/// process`. `None` if no process owns the session, or if its lock file cannot be opened.
pub fn owner(dir: &Path) -> Option<String> {
    lock::owner_of(dir)
}

/// Returns true if the journal in `dir` is not empty: its active file has bytes, or a first closed
/// segment exists.
pub fn has_begun(dir: &Path) -> bool {
    let has_bytes = dir.join(ACTIVE).metadata().is_ok_and(|about| about.len() > 0);
    has_bytes || dir.join(closed_name(1)).exists()
}

/// State of a session, for lists and transcripts.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SessionState {
    /// A process owns the session, and its journal shows neither an open permission request nor
    /// parking.
    Running {
        /// Description of that process.
        owner: String,
    },
    /// A process owns the session and waits for the answer to a permission request.
    Waiting {
        /// Description of that process.
        owner: String,
        /// Summary of the request.
        question: String,
    },
    /// The provider was unavailable for too long, and the session waits for a later retry.
    Parked {
        /// Cause of the wait.
        cause: String,
        /// Time of the next retry, in milliseconds since 1970; `None` if unknown.
        next_try_ms: Option<u64>,
        /// Description of the process that waits; `None` if no process owns the session.
        owner: Option<String>,
    },
    /// The process died before the session ended. The session can be resumed.
    Killed {
        /// Summary of the permission request that was open; `None` if none was.
        question: Option<String>,
    },
    /// The session ended normally. No process owns it.
    Finished,
    /// The user or a limit stopped the session. No process owns it.
    Stopped {
        /// `interrupted` or `limit`.
        reason: String,
    },
    /// The session ended with a failure. No process owns it.
    Failed {
        /// `failed`, `provider` or `permission`.
        reason: String,
    },
    /// The journal has no record.
    #[default]
    Empty,
    /// A later version of posse wrote the journal from some record on.
    Newer {
        /// Description for the user, with the format version.
        what: String,
    },
    /// The journal is damaged or unreadable, fully or in part.
    Damaged {
        /// Description of the damage.
        what: String,
    },
}

impl SessionState {
    fn ended(reason: String) -> SessionState {
        match reason.as_str() {
            "completed" => SessionState::Finished,
            "interrupted" | "limit" => SessionState::Stopped { reason },
            _ => SessionState::Failed { reason },
        }
    }

    /// Converts a state read from the records, which assumes that no process owns the session, to
    /// the state while `owner` owns it.
    pub(crate) fn owned(self, owner: String) -> SessionState {
        match self {
            SessionState::Killed { question: Some(question) } => {
                SessionState::Waiting { owner, question }
            }
            SessionState::Parked { cause, next_try_ms, .. } => {
                SessionState::Parked { cause, next_try_ms, owner: Some(owner) }
            }
            // An unreadable journal stays unreadable; its owner will notice.
            damaged @ (SessionState::Damaged { .. } | SessionState::Newer { .. }) => damaged,
            _ => SessionState::Running { owner },
        }
    }

    /// Formats the state for a column of a list. Times are in `zone`.
    pub fn short_text(&self, zone: &TimeZone) -> String {
        match self {
            SessionState::Running { .. } => "running".to_owned(),
            SessionState::Waiting { .. } => "waiting for an answer".to_owned(),
            SessionState::Parked { next_try_ms, .. } => {
                let until = next_try_ms.and_then(|at| formatted_time(at, zone, "%m-%d %H:%M"));
                until.map_or_else(|| "parked".to_owned(), |until| format!("parked until {until}"))
            }
            SessionState::Killed { .. } => "killed, can be resumed".to_owned(),
            SessionState::Finished => "finished".to_owned(),
            SessionState::Stopped { reason } if reason == "limit" => "ended at a limit".to_owned(),
            SessionState::Stopped { .. } => "stopped".to_owned(),
            SessionState::Failed { reason } if reason == "failed" => "failed".to_owned(),
            SessionState::Failed { reason } => format!("failed: {reason}"),
            SessionState::Empty => "empty".to_owned(),
            SessionState::Newer { .. } => "newer version".to_owned(),
            SessionState::Damaged { .. } => "damaged".to_owned(),
        }
    }

    /// State of a session whose journal has `problem`.
    pub(crate) fn of_problem(problem: &Problem) -> SessionState {
        let what = problem.what.clone();
        match problem.kind.as_str() {
            "newer" => SessionState::Newer { what },
            "empty" => SessionState::Empty,
            _ => SessionState::Damaged { what },
        }
    }

    /// Formats the state with owner, cause, permission request or damage. Times are in `zone`.
    pub(crate) fn long(&self, zone: &TimeZone) -> String {
        match self {
            SessionState::Running { owner } => format!("running ({owner})"),
            SessionState::Waiting { owner, question } => {
                format!("waiting for an answer ({owner}): {question}")
            }
            SessionState::Parked { cause, next_try_ms, owner } => {
                let until =
                    next_try_ms.and_then(|at| formatted_time(at, zone, "%Y-%m-%d %H:%M:%S"));
                let until = until.as_deref().unwrap_or("its user looks");
                let owner = owner.as_ref().map_or_else(String::new, |owner| format!(" ({owner})"));
                format!("parked until {until}{owner}: {cause}")
            }
            SessionState::Killed { question: Some(question) } => {
                format!("killed while it waited for an answer, can be resumed: {question}")
            }
            SessionState::Newer { what } => format!("newer version: {what}"),
            SessionState::Damaged { what } => format!("damaged: {what}"),
            other => other.short_text(zone),
        }
    }
}

/// Describes the state of the session in `dir`, whose folded records are `replayed`. If the last
/// run has no recorded end and no process owns the session, also names the open calls with side
/// effects, whose outcome is unknown.
pub(crate) fn session_state(dir: &Path, replayed: &Replayed, zone: &TimeZone) -> String {
    let broke_off = replayed.last.as_ref().is_some_and(|last| last.ended.is_none());
    let state = of_replayed(replayed, broke_off);
    if let Some(owner) = lock::owner_of(dir) {
        return state.owned(owner).long(zone);
    }
    let lost: Vec<_> = replayed.open_calls.iter().filter(|open| open.effect).collect();
    if !broke_off || lost.is_empty() {
        return state.long(zone);
    }
    let since = |begun: &StartedCall| {
        formatted_time(begun.started_ms, zone, ", started at %H:%M:%S").unwrap_or_default()
    };
    let lost: Vec<String> = lost
        .iter()
        .map(|open| match &open.begun {
            Some(begun) => format!("{}: {}{}", open.call.name, begun.summary, since(begun)),
            None => open.call.name.clone(),
        })
        .collect();
    let count = counted(lost.len() as u64, "call");
    format!("{}, with {count} of unknown outcome: {}", state.long(zone), lost.join("; "))
}

/// State of a session that no process owns, computed from its folded records. `broke_off` is true
/// if its last run has no recorded end.
pub(crate) fn of_replayed(replayed: &Replayed, broke_off: bool) -> SessionState {
    match (&replayed.parked, &replayed.ended) {
        (Some(Parked { cause, next_try_ms }), _) => {
            SessionState::Parked { cause: cause.clone(), next_try_ms: *next_try_ms, owner: None }
        }
        (None, Some(reason)) if !broke_off => SessionState::ended(reason.clone()),
        _ => {
            let question = replayed.open_questions.first().map(|asked| asked.summary.clone());
            SessionState::Killed { question }
        }
    }
}

#[cfg(test)]
mod tests;
