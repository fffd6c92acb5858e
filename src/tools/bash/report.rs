//! Result of an ended command, for the model and for programs.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use posse_actors::conversation::ContentPart;
use posse_actors::event::Event;
use posse_actors::ports::{CallContext, PostCallMessage, PostCallSink, RunContext, ToolOutput};
use posse_base::count;
use posse_sandbox::{
    Captured, CoveredSecret, Exit, LateFindings, ProcessOutcome, covered_lines, finding_lines,
};

use serde_json::json;

use crate::{ToolEnvironment, output, spill};

/// Maximum number of reports about secrets that are remembered. There are no further ones.
const TOLD_MAX: usize = 10_000;

/// Minimum time without output at the end of a command that timed out for the note that it may have
/// waited for input.
const QUIET: Duration = Duration::from_secs(10);

/// Description, for the model, of the end of a command that was killed because of its use of
/// memory.
pub(crate) const MEMORY_FULL: &str = "killed: its processes used more than three quarters of the \
                                      memory; run fewer of them at once, or work in parts";

/// Description, for the model, of the end of a command that was killed because the temporary folder
/// of the session was too large.
pub(crate) const TEMPORARY_FULL: &str = "killed: the temporary folder of the session exceeded \
                                         1 GiB or 524288 files, and was emptied; put large files \
                                         into the workspace";

/// Creates the result of a call from the `outcome` of its command: output, exit status, notes and
/// metadata, with the notes `given`. Only a timeout, too much output and too much memory make the result an error.
pub(super) fn output(
    session_dir: &Path,
    context: &RunContext,
    outcome: &ProcessOutcome,
    given: Vec<String>,
    timeout: Duration,
) -> ToolOutput {
    let printed = printed(session_dir, context, &outcome.output);
    let mut text = printed.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let maybe_waited = outcome.exit == Exit::TimedOut && outcome.quiet >= QUIET;
    text.push_str(&footer(outcome, timeout, text.is_empty()));
    let mut notes = Vec::new();
    if maybe_waited {
        notes.push(format!(
            "nothing was printed in the last {} s: it may have waited for an answer, and there is \
             no input",
            outcome.quiet.as_secs()
        ));
    }
    if outcome.stragglers > 0 {
        let left = count(outcome.stragglers, "process was", "processes were");
        notes.push(format!("{left} left behind in the background and killed"));
    }
    notes.extend(finding_lines(&outcome.findings));
    for note in notes.into_iter().chain(printed.note).chain(given) {
        text.extend(["\n(", &note, ")"]);
    }
    let code = if let Exit::Code(code) = outcome.exit { Some(code) } else { None };
    ToolOutput {
        content: vec![ContentPart::text(text)],
        is_error: matches!(
            outcome.exit,
            Exit::TimedOut | Exit::OutputFull | Exit::MemoryFull | Exit::TemporaryFull
        ),
        metadata: json!({
            "exitCode": code,
            "signal": outcome.exit.signal_name(),
            "timedOut": outcome.exit == Exit::TimedOut,
            "outputFull": outcome.exit == Exit::OutputFull,
            "memoryFull": outcome.exit == Exit::MemoryFull,
            "temporaryFull": outcome.exit == Exit::TemporaryFull,
            "maybeWaited": maybe_waited,
            "bytes": outcome.output.total,
            "truncated": printed.is_cut,
            "spill": printed.spill,
            "stragglers": outcome.stragglers,
            "protected": outcome.findings,
            "durationMs": milliseconds(outcome.duration),
        }),
    }
}

/// Returns lines about the `secrets` of which the caller has not been told yet.
pub(super) fn untold_secrets(
    env: &ToolEnvironment,
    call: &CallContext,
    secrets: &[CoveredSecret],
) -> Vec<String> {
    if secrets.is_empty() {
        return Vec::new();
    }
    let mut told = env.told_secrets.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_new = |secret: &&CoveredSecret| {
        told.len() < TOLD_MAX && told.insert((call.reader().to_owned(), (*secret).clone()))
    };
    let untold: Vec<CoveredSecret> = secrets.iter().filter(&mut is_new).cloned().collect();
    covered_lines(&untold)
}

/// Creates a receiver of findings after the end of a call, which records them as warnings.
pub(super) fn late_findings(post_call: PostCallSink) -> LateFindings {
    LateFindings::new(move |found| {
        for message in finding_lines(&found) {
            post_call.send(PostCallMessage::Fact(Box::new(Event::Warning { message })));
        }
    })
}

struct Printed {
    text: String,
    is_cut: bool,
    spill: Option<String>,
    note: Option<String>,
}

/// Formats the captured output. If it exceeds the limit of the call, the middle is replaced by a
/// line, on top of the limit, that names the spilled output. The output is stored here if the
/// command did not spill it. A failure to store it is returned as the note.
fn printed(session_dir: &Path, context: &RunContext, captured: &Captured) -> Printed {
    let max = context.output_bytes_max;
    let call = &context.call.call_id;
    let failure = |failure: &str| format!("the whole output could not be kept: {failure}");
    if captured.cut() == 0 {
        let text = output::clean(&[&captured.head[..], &captured.tail].concat());
        if text.len() <= max {
            return Printed { text, is_cut: false, spill: None, note: None };
        }
        // Escapes have made it longer than the limit.
        let kept = spill::store(session_dir, call, &[&captured.head, &captured.tail]);
        let name = kept.is_ok().then(|| spill::name(call));
        let note = kept.err().map(|error| failure(&error.to_string()));
        let (head, tail) = (output::prefix_within(&text, max / 2), output::ending(&text, max / 2));
        let cut = (text.len() - head.len() - tail.len()) as u64;
        return Printed {
            text: joined(head, tail, cut, name.as_deref()),
            is_cut: true,
            spill: name,
            note,
        };
    }
    let head = output::clean(output::whole_end(&captured.head));
    let tail = output::clean(output::whole_start(&captured.tail));
    let (head, tail) = (output::prefix_within(&head, max / 2), output::ending(&tail, max / 2));
    let name = captured.spill.is_some().then(|| spill::name(call));
    let shown = (head.len() + tail.len()) as u64;
    let cut = captured.cut().max(captured.total.saturating_sub(shown));
    let note = captured.spill_failure.as_deref().map(failure);
    Printed { text: joined(head, tail, cut, name.as_deref()), is_cut: true, spill: name, note }
}

fn joined(head: &str, tail: &str, cut: u64, name: Option<&str>) -> String {
    let how = name.map_or_else(String::new, |name| format!("; read_file {name} has everything"));
    let line_end = if head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{line_end}[… {cut} bytes cut{how} …]\n{tail}")
}

/// Exit state and duration of a command, in parentheses.
pub(super) fn footer(outcome: &ProcessOutcome, timeout: Duration, is_empty: bool) -> String {
    let end = match outcome.exit {
        Exit::Code(127) => "exit 127: command not found".to_owned(),
        Exit::Code(126) => "exit 126: found, but not executable".to_owned(),
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(_) => format!("ended by {}", outcome.exit.signal_name().unwrap_or_default()),
        Exit::TimedOut => format!("killed after its timeout of {} ms", milliseconds(timeout)),
        Exit::OutputFull => "killed: it printed more than 64 MiB".to_owned(),
        Exit::MemoryFull => MEMORY_FULL.to_owned(),
        Exit::TemporaryFull => TEMPORARY_FULL.to_owned(),
        Exit::Stopped => "stopped".to_owned(),
    };
    let nothing = if is_empty { ", no output" } else { "" };
    format!("({end}, {} ms{nothing})", milliseconds(outcome.duration))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
