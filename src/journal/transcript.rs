//! Text view of a session: messages, calls with their results, permission requests with their
//! answers.
//!
//! Everything in a journal may come from a model or a repository, so control characters are
//! escaped before they reach a terminal.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_actors::conversation::{Usage, text_of};
use posse_actors::cost::dollars;
use posse_actors::event::{Event, HunkAnswer, JobEnd, SessionError, StoredRecord};
use posse_actors::outcome::limit_text;
use posse_actors::text::clipped;
use posse_base::failure::{printable, printable_lines};

/// Width of the column with the label of a line, in characters.
const WORD_WIDTH: usize = 9;
/// Maximum characters shown of the first line of a tool's result. A longer line is cut there, and
/// `…` is appended.
const ANSWER_MAX: usize = 160;

/// Writes the records of a session as text.
pub(crate) struct Transcript<'a> {
    out: &'a mut dyn Write,
    zone: &'a TimeZone,
    color: bool,
}

/// Kind of a line. The value is the terminal code (SGR) of its colour or weight.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tone {
    Said = 1,
    Done = 32,
    Quiet = 2,
    Bad = 31,
}

impl<'a> Transcript<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, zone: &'a TimeZone, color: bool) -> Transcript<'a> {
        Transcript { out, zone, color }
    }

    /// Writes `record` as one or more lines. Writes nothing for an event that the transcript does
    /// not show.
    pub(crate) fn add(&mut self, record: &StoredRecord) -> io::Result<()> {
        let Some((tone, word, text)) = describe(&record.event) else { return Ok(()) };
        let who = record.origin.as_ref().filter(|origin| origin.parent_invocation_id.is_some());
        let (word, text) = match (who, &record.event) {
            // Written by the agent that delegates, not by the user.
            (Some(origin), Event::UserMessage { .. }) => {
                ("task", format!("[{}] {text}", origin.agent_path))
            }
            (Some(origin), _) => (word, format!("[{}] {text}", origin.agent_path)),
            (None, _) => (word, text),
        };
        let time = clock(record.ts, self.zone);
        let code = tone as u8;
        let (on, off) =
            if self.color { (format!("\x1b[{code}m"), "\x1b[0m") } else { (String::new(), "") };
        let text = printable_lines(text.trim_end());
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let line = format!("{time}  {on}{word:<WORD_WIDTH$}{off} {first}");
        writeln!(self.out, "{}", line.trim_end())?;
        let indent = time.len() + 2 + WORD_WIDTH + 1;
        for line in lines {
            if line.is_empty() {
                writeln!(self.out)?;
            } else {
                writeln!(self.out, "{:indent$}{line}", "")?;
            }
        }
        Ok(())
    }
}

/// Formats a time in milliseconds since 1970 as time of day in `zone`: `21:56:52`. `--:--:--` if
/// `ms` is no valid time.
fn clock(ms: u64, zone: &TimeZone) -> String {
    formatted_time(ms, zone, "%H:%M:%S").unwrap_or_else(|| "--:--:--".to_owned())
}

/// Formats a time in milliseconds since 1970 in `zone`, with a `strftime` format. `None` if `ms` is
/// no valid time.
pub fn formatted_time(ms: u64, zone: &TimeZone, format: &str) -> Option<String> {
    let time = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()).strftime(format).to_string())
}

/// Tone, column label and text of an event.
pub(crate) type Line = (Tone, &'static str, String);

fn describe(event: &Event) -> Option<Line> {
    describe_work(event).or_else(|| describe_question(event)).or_else(|| describe_note(event))
}

/// Describes a message, a call, or the start or end of a session; `None` for another event.
fn describe_work(event: &Event) -> Option<Line> {
    Some(match event {
        Event::SessionStarted { cwd, agent, provider, model, posse, .. } => (
            Tone::Quiet,
            "started",
            format!("{agent} with {model} ({provider}) in {cwd}, posse {posse}"),
        ),
        Event::UserMessage { content, .. } => (Tone::Said, "you", text_of(content)),
        Event::MessageQueued { content, .. } => (Tone::Quiet, "queued", text_of(content)),
        Event::ModelReply { message, .. } => {
            (Tone::Said, "model", message.content.clone().filter(|text| !text.is_empty())?)
        }
        Event::ModelPartial { text, cause, .. } => {
            (Tone::Bad, "cut off", format!("{text}\n({cause})"))
        }
        Event::ToolStarted { summary, .. } => (Tone::Quiet, "call", printable(summary)),
        Event::ToolCompleted { content, duration_ms, .. } => {
            (Tone::Done, "done", answer(&text_of(content), Some(*duration_ms)))
        }
        Event::ToolFailed { name, class, content, .. } => {
            (Tone::Bad, "failed", format!("{name}, {class}: {}", answer(&text_of(content), None)))
        }
        Event::ToolOutcomeUnknown { name, begun, .. } => {
            let call = begun.as_ref().map(|begun| format!(": {}", printable(&begun.summary)));
            let call = call.unwrap_or_default();
            (Tone::Bad, "unknown", format!("the outcome of `{name}` is unknown{call}"))
        }
        Event::SessionEnded {
            reason,
            exit_code,
            usage,
            turns,
            cost_usd,
            cost_nano_usd,
            unpriced_requests,
            error,
            ..
        } => {
            let money = match (cost_nano_usd, cost_usd) {
                (Some(nano), _) if *unpriced_requests > 0 => {
                    format!(", at least {}", dollars(*nano))
                }
                (Some(nano), _) => format!(", {}", dollars(*nano)),
                // Written by an early version. Digits of small amounts are not rounded away.
                (None, Some(cost)) if *cost < 0.001 => format!(", ${cost}"),
                (None, Some(cost)) => format!(", ${cost:.4}"),
                (None, None) => String::new(),
            };
            let turns = counted(u64::from(*turns), "turn");
            let error = error
                .as_ref()
                .map(|SessionError { code, what, .. }| format!(": {code}, {}", printable(what)));
            let (tokens, error) = (tokens(usage), error.unwrap_or_default());
            let text = format!("{reason}, exit code {exit_code}, {turns}{tokens}{money}{error}");
            (if *exit_code == 0 { Tone::Done } else { Tone::Bad }, "ended", text)
        }
        _ => return None,
    })
}

fn describe_question(event: &Event) -> Option<Line> {
    Some(match event {
        Event::PermissionRequested { summary, reason, .. } => {
            (Tone::Said, "asked", format!("{} ({})", printable(summary), printable(reason)))
        }
        Event::PermissionGranted { by, reply: Some(_), .. } => {
            (Tone::Done, "answered", format!("by {by}"))
        }
        Event::PermissionGranted { by, keeps_trial: true, .. } => {
            (Tone::Done, "allowed", format!("by {by}, the changes of the trial are kept"))
        }
        Event::PermissionGranted { by, hunks, .. } if !hunks.is_empty() => {
            (Tone::Done, "allowed", format!("by {by}, {}", HunkAnswer::summary(hunks)))
        }
        Event::PermissionTried { summary, .. } => (Tone::Quiet, "tried", printable(summary)),
        Event::PermissionGranted { by, scope, grant, .. } => {
            let scope = serde_json::to_value(scope).ok()?;
            let covers =
                grant.as_ref().map(|grant| format!(", {} in {}", grant.operation, grant.target));
            let text = format!("by {by}, {}{}", scope.as_str()?, covers.unwrap_or_default());
            (Tone::Done, "allowed", text)
        }
        Event::PermissionDenied { by, reason, is_user_request, .. } => {
            let what = if *is_user_request { "no answer" } else { "denied" };
            (Tone::Bad, what, format!("by {by}: {reason}"))
        }
        Event::PermissionWithdrawn { reason, .. } => (Tone::Quiet, "withdrawn", reason.clone()),
        _ => return None,
    })
}

/// Describes an event beside messages, calls and permission requests: a fork, resumption, parking,
/// withheld reply, failure, cancellation, retry, crash, restart, job, limit, warning or unknown
/// record. `None` for any other event.
pub(crate) fn describe_note(event: &Event) -> Option<Line> {
    Some(match event {
        Event::SessionForked { parent, parent_record, history, .. } => {
            let messages = counted(history.len() as u64, "message");
            let text = format!("from session {parent} at record {parent_record}, with {messages}");
            (Tone::Quiet, "branched", text)
        }
        Event::SessionResumed { records, changed, .. } => {
            let lines = std::iter::once(format!("after {records} records"));
            let text = lines.chain(changed.iter().cloned()).collect::<Vec<_>>().join("\n");
            (Tone::Quiet, "resumed", text)
        }
        Event::PermissionModeChanged { mode, from, changed_by, .. } => {
            let by = changed_by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
            (Tone::Quiet, "mode", format!("permission mode {mode}; it was {from}{by}"))
        }
        Event::SessionParked { cause, .. } => (Tone::Bad, "parked", cause.clone()),
        Event::ContentFilter { .. } => {
            (Tone::Bad, "withheld", "the provider withheld the reply".to_owned())
        }
        Event::InvocationFailed { class, cause, .. } => {
            (Tone::Bad, "failed", format!("{class}: {cause}"))
        }
        Event::InvocationCancelled { .. } => (Tone::Bad, "cancelled", "interrupted".to_owned()),
        Event::ProviderRetry { provider, attempt, cause, wait_ms, .. } => {
            let wait = std::time::Duration::from_millis(*wait_ms);
            (
                Tone::Quiet,
                "retry",
                format!("{provider}, attempt {attempt}: {cause}; waits {wait:?}"),
            )
        }
        Event::ActorCrashed { actor, cause } => (Tone::Bad, "crash", format!("{actor}: {cause}")),
        Event::ActorRestarted { actor, restarts } => {
            (Tone::Quiet, "restart", format!("{actor}, number {restarts}"))
        }
        Event::JobStarted { summary, .. } => (Tone::Quiet, "job", printable(summary)),
        Event::JobEnded { summary, detail, findings, end, .. } => {
            let first = format!("{}: {}", printable(detail), printable(summary));
            let lines = std::iter::once(first).chain(findings.iter().cloned());
            let tone = if *end == JobEnd::Lost { Tone::Bad } else { Tone::Quiet };
            (tone, "job", lines.collect::<Vec<_>>().join("\n"))
        }
        Event::LimitReached { limit, value, .. } => (Tone::Bad, "limit", limit_text(limit, *value)),
        Event::Warning { message } => (Tone::Bad, "warning", message.clone()),
        Event::Unknown => {
            (Tone::Quiet, "?", "unknown record type (written by another version)".to_owned())
        }
        _ => return None,
    })
}

/// Formats the result of a tool: its first line, the number of further lines, and the duration.
fn answer(text: &str, duration_ms: Option<u64>) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let shown = clipped(first, ANSWER_MAX, "…");
    let more = lines.count() as u64;
    let mut notes = Vec::new();
    if more > 0 {
        notes.push(format!("{more} more {}", if more == 1 { "line" } else { "lines" }));
    }
    notes.extend(duration_ms.map(|ms| format!("{ms} ms")));
    match (shown.is_empty(), notes.is_empty()) {
        (true, _) => notes.join(", "),
        (false, true) => shown,
        (false, false) => format!("{shown} ({})", notes.join(", ")),
    }
}

fn tokens(usage: &Usage) -> String {
    match (usage.input_tokens, usage.output_tokens) {
        (None, None) => String::new(),
        (input, output) => {
            let known = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |n| n.to_string());
            format!(", {} tokens in, {} out", known(input), known(output))
        }
    }
}

/// Formats a count with its noun: `1 line`, `2 lines`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
