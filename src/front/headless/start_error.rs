//! The JSON line of a run that could not start a session, or of a command that failed: programs that
//! read standard output get the error there as well.

use std::time::{SystemTime, UNIX_EPOCH};

use posse_actors::conversation::Usage;
use posse_actors::event::{FORMAT_VERSION, SessionEndReason, SessionError};
use posse_base::failure::{Exit, Failure};
use posse_cli::OutputFormat;
use serde::Serialize;

use super::error_of;

/// The object of a command with `--json` that failed. Its members are those of [`StartError`] that
/// are not about a session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommandError {
    exit_code: u8,
    error: SessionError,
    /// Further errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<SessionError>,
}

/// The line for standard output about a command with `--json` that ended with `failures`. `None`
/// without a failure, and if the command was interrupted.
pub fn command_error(failures: &[Failure]) -> Option<String> {
    let (first, rest) = failures.split_first()?;
    if matches!(first.exit, Exit::Done | Exit::Interrupt) {
        return None;
    }
    let line = CommandError {
        exit_code: first.exit as u8,
        error: error_of(first),
        errors: rest.iter().map(error_of).collect(),
    };
    Some(serde_json::to_string(&line).ok()? + "\n")
}

/// The object of `json`, or the only event of `stream-json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartError<'a> {
    v: u32,
    /// Number and time of an event; `None` for the object of `json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<u64>,
    r#type: &'a str,
    /// Always `None`: there is no session.
    session_id: Option<&'a str>,
    reason: &'a str,
    exit_code: u8,
    result: Option<&'a str>,
    error: SessionError,
    /// Further errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<SessionError>,
    usage: Usage,
    cost_usd: Option<f64>,
    turns: u32,
}

/// The line for standard output about a run that ended with `failures` before its session began.
/// `None` for the format `text`, or without a failure.
pub fn start_error(format: OutputFormat, failures: &[Failure]) -> Option<String> {
    let (first, rest) = failures.split_first()?;
    let (kind, event) = match format {
        OutputFormat::Text => return None,
        OutputFormat::Json => ("result", None),
        OutputFormat::StreamJson => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            ("session.ended", Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
        }
    };
    let line = StartError {
        v: FORMAT_VERSION,
        seq: event.map(|_| 1),
        ts: event,
        r#type: kind,
        session_id: None,
        reason: SessionEndReason::Failed.as_str(),
        exit_code: first.exit as u8,
        result: None,
        error: error_of(first),
        errors: rest.iter().map(error_of).collect(),
        usage: Usage::default(),
        cost_usd: None,
        turns: 0,
    };
    Some(serde_json::to_string(&line).ok()? + "\n")
}
