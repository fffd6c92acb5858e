//! Result of an ended command, for the model and for programs.

use std::path::Path;
use std::time::Duration;

use posse_actors::conversation::ContentPart;
use posse_actors::ports::{RunContext, ToolOutput};
use posse_base::failure::printable;
use posse_sandbox::{Captured, Exit, Finding, ProcessOutcome};
use serde_json::json;

use crate::{output, spill};

/// Minimum time for which a command that timed out has printed nothing at its end. Then a note says
/// that the command may have waited for input.
const QUIET: Duration = Duration::from_secs(10);

/// Maximum number of changed protected files that are reported one by one.
const FINDINGS_MAX: usize = 12;

/// Maximum number of paths in the line about the changed files beyond `FINDINGS_MAX`.
const NAMED_MAX: usize = 8;

/// Creates the result of a call from the `outcome` of its command: output, exit status, notes and
/// metadata. Only a timeout and too much output make the result an error.
pub(super) fn output(
    session_dir: &Path,
    context: &RunContext,
    outcome: &ProcessOutcome,
    note: Option<String>,
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
    notes.extend(findings(&outcome.findings));
    for note in notes.into_iter().chain(printed.note).chain(note) {
        text.extend(["\n(", &note, ")"]);
    }
    let code = if let Exit::Code(code) = outcome.exit { Some(code) } else { None };
    ToolOutput {
        content: vec![ContentPart::text(text)],
        is_error: matches!(outcome.exit, Exit::TimedOut | Exit::OutputFull),
        metadata: json!({
            "exitCode": code,
            "signal": outcome.exit.signal_name(),
            "timedOut": outcome.exit == Exit::TimedOut,
            "outputFull": outcome.exit == Exit::OutputFull,
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

/// Formats changes of protected files, one line each; those beyond `FINDINGS_MAX` share one line.
pub(super) fn findings(findings: &[Finding]) -> Vec<String> {
    let (shown, rest) = findings.split_at(findings.len().min(FINDINGS_MAX));
    let mut lines: Vec<String> = shown.iter().map(|finding| format!("SBX010 {finding}")).collect();
    if !rest.is_empty() {
        let named = rest.iter().take(NAMED_MAX);
        let named: Vec<String> =
            named.map(|finding| printable(&finding.path.display().to_string())).collect();
        let others = if rest.len() > NAMED_MAX { ", …" } else { "" };
        let files = count(rest.len(), "more protected file was", "more protected files were");
        lines.push(format!("SBX010 {files} touched: {}{others}", named.join(", ")));
    }
    lines
}

struct Printed {
    text: String,
    is_cut: bool,
    spill: Option<String>,
    note: Option<String>,
}

/// Formats the captured output within the size limit of the call. If it is too long, the middle is
/// left out, and the spilled output is named.
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

fn footer(outcome: &ProcessOutcome, timeout: Duration, is_empty: bool) -> String {
    let end = match outcome.exit {
        Exit::Code(127) => "exit 127: command not found".to_owned(),
        Exit::Code(126) => "exit 126: found, but not executable".to_owned(),
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(_) => format!("ended by {}", outcome.exit.signal_name().unwrap_or_default()),
        Exit::TimedOut => format!("killed after its timeout of {} ms", milliseconds(timeout)),
        Exit::OutputFull => "killed: it printed more than 64 MiB".to_owned(),
        Exit::Stopped => "stopped".to_owned(),
    };
    let nothing = if is_empty { ", no output" } else { "" };
    format!("({end}, {} ms{nothing})", milliseconds(outcome.duration))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use posse_sandbox::{ProtectAction, ProtectedChange};

    use super::*;

    #[test]
    fn summarised_paths_name_the_first() {
        let finding = |number: usize| {
            let path = format!("/w/{number:02}\n/.npmrc").into();
            Finding::new(path, ProtectedChange::Created, ProtectAction::Left)
        };
        let told = |many: usize| findings(&(0..many).map(finding).collect::<Vec<_>>());
        assert_eq!(told(FINDINGS_MAX).len(), FINDINGS_MAX);
        let one = told(FINDINGS_MAX + 1);
        let last = "SBX010 1 more protected file was touched: /w/12\\n/.npmrc";
        assert_eq!(one.last().map(String::as_str), Some(last));
        let many = told(FINDINGS_MAX + NAMED_MAX + 1);
        let last = many.last().unwrap();
        assert!(last.starts_with("SBX010 9 more protected files were touched: /w/12"), "{last}");
        assert!(
            last.contains("/w/19") && !last.contains("/w/20") && last.ends_with(", …"),
            "{last}"
        );
    }
}
