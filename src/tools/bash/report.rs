//! Result of an ended command, for the model and for programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_actors::conversation::ContentPart;
use posse_actors::event::Event;
use posse_actors::ports::{PostCallMessage, PostCallSink, RunContext, ToolOutput};
use posse_base::failure::printable;
use posse_sandbox::{
    Captured, Exit, Finding, LateFindings, ProcessOutcome, ProtectAction, ProtectedChange,
};
use serde_json::json;

use crate::{output, spill};

/// Minimum time without output at the end of a command that timed out for the note that it may have
/// waited for input.
const QUIET: Duration = Duration::from_secs(10);

/// Description, for the model, of the end of a command that was killed because of its use of
/// memory.
pub(crate) const MEMORY_FULL: &str = "killed: it used more than three quarters of the memory of \
                                      this machine; run fewer jobs at once, or work in parts";

/// Maximum number of files left in place that are reported one by one. The others are counted by
/// folder.
const LEFT_MAX: usize = 50;

/// Maximum number of folders by which the other files left in place are counted.
const LEFT_FOLDERS_MAX: usize = 10;

/// Maximum number of restored and moved files that are reported one by one.
const HANDLED_MAX: usize = 12;

/// Maximum number of paths that are listed of the other restored and moved files.
const NAMED_MAX: usize = 8;

/// Creates the result of a call from the `outcome` of its command: output, exit status, notes and
/// metadata. Only a timeout, too much output and too much memory make the result an error.
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
        is_error: matches!(outcome.exit, Exit::TimedOut | Exit::OutputFull | Exit::MemoryFull),
        metadata: json!({
            "exitCode": code,
            "signal": outcome.exit.signal_name(),
            "timedOut": outcome.exit == Exit::TimedOut,
            "outputFull": outcome.exit == Exit::OutputFull,
            "memoryFull": outcome.exit == Exit::MemoryFull,
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

/// Formats changes of protected files, one line each, up to limits. Files that are as the command
/// left them come first, and each is reported by its path or counted below a folder: a command must
/// not hide one of them behind many that were put right.
pub(super) fn findings(findings: &[Finding]) -> Vec<String> {
    let is_left = |finding: &&Finding| {
        matches!(finding.action, ProtectAction::Left | ProtectAction::Failed(_))
    };
    let (left, handled): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(is_left);
    let (shown, rest) = left.split_at(left.len().min(LEFT_MAX));
    let mut lines: Vec<String> = shown.iter().map(|finding| left_line(finding)).collect();
    for (folder, below) in by_folder(rest) {
        if let [single] = &below[..] {
            lines.push(left_line(single));
            continue;
        }
        let files = count(below.len(), "more protected file", "more protected files");
        let folder = printable(&folder.display().to_string());
        lines.push(format!("SBX010 left in place: and {files} below {folder}"));
    }
    let (shown, rest) = handled.split_at(handled.len().min(HANDLED_MAX));
    lines.extend(shown.iter().map(|finding| format!("SBX010 {finding}")));
    if !rest.is_empty() {
        let named = rest.iter().take(NAMED_MAX);
        let named: Vec<String> =
            named.map(|finding| printable(&finding.path.display().to_string())).collect();
        let others = if rest.len() > NAMED_MAX { ", …" } else { "" };
        let files = count(
            rest.len(),
            "more protected file was touched and put right",
            "more protected files were touched and put right",
        );
        lines.push(format!("SBX010 {files}: {}{others}", named.join(", ")));
    }
    lines
}

/// Creates a receiver of findings after the end of a call, which records them as warnings.
pub(super) fn late_findings(post_call: PostCallSink) -> LateFindings {
    LateFindings::new(move |found| {
        for message in findings(&found) {
            post_call.send(PostCallMessage::Fact(Box::new(Event::Warning { message })));
        }
    })
}

fn left_line(finding: &Finding) -> String {
    // This one is about a whole folder.
    let left = if finding.what == ProtectedChange::TooMuch { "" } else { "left in place: " };
    format!("SBX010 {left}{finding}")
}

/// Groups findings by folder: by the deepest folders of which there are at most `LEFT_FOLDERS_MAX`.
fn by_folder<'a>(findings: &[&'a Finding]) -> BTreeMap<PathBuf, Vec<&'a Finding>> {
    let mut groups: BTreeMap<PathBuf, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let folder = finding.path.parent().unwrap_or(&finding.path).to_owned();
        groups.entry(folder).or_default().push(finding);
    }
    while groups.len() > LEFT_FOLDERS_MAX {
        // All groups of the deepest level move up by one level, which ends at the root.
        let depth = |folder: &Path| folder.components().count();
        let deepest = groups.keys().map(|folder| depth(folder)).max().unwrap_or_default();
        for (folder, below) in std::mem::take(&mut groups) {
            let above = folder.parent().filter(|_| depth(&folder) == deepest);
            groups.entry(above.unwrap_or(&folder).to_owned()).or_default().extend(below);
        }
    }
    groups
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

fn footer(outcome: &ProcessOutcome, timeout: Duration, is_empty: bool) -> String {
    let end = match outcome.exit {
        Exit::Code(127) => "exit 127: command not found".to_owned(),
        Exit::Code(126) => "exit 126: found, but not executable".to_owned(),
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(_) => format!("ended by {}", outcome.exit.signal_name().unwrap_or_default()),
        Exit::TimedOut => format!("killed after its timeout of {} ms", milliseconds(timeout)),
        Exit::OutputFull => "killed: it printed more than 64 MiB".to_owned(),
        Exit::MemoryFull => MEMORY_FULL.to_owned(),
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
    use super::*;

    fn finding(path: String, action: ProtectAction) -> Finding {
        Finding::new(path.into(), ProtectedChange::Created, action)
    }

    fn moved(number: usize) -> Finding {
        let path = format!("/w/{number:02}\n/.npmrc");
        finding(path, ProtectAction::MovedAside("/q/1".into()))
    }

    fn left(path: impl Into<String>) -> Finding {
        finding(path.into(), ProtectAction::Left)
    }

    #[test]
    fn summarised_paths_name_the_first() {
        let told = |many: usize| findings(&(0..many).map(moved).collect::<Vec<_>>());
        assert_eq!(told(HANDLED_MAX).len(), HANDLED_MAX);
        let one = told(HANDLED_MAX + 1);
        let last = "SBX010 1 more protected file was touched and put right: /w/12\\n/.npmrc";
        assert_eq!(one.last().map(String::as_str), Some(last));
        let many = told(HANDLED_MAX + NAMED_MAX + 1);
        let last = many.last().unwrap();
        let begin = "SBX010 9 more protected files were touched and put right: /w/12";
        assert!(last.starts_with(begin), "{last}");
        assert!(
            last.contains("/w/19") && !last.contains("/w/20") && last.ends_with(", …"),
            "{last}"
        );
    }

    #[test]
    fn files_left_in_place_come_before_200_decoys() {
        let mut all: Vec<Finding> = (0..200).map(moved).collect();
        all.push(left("/w/z/.git"));
        all.push(finding("/w/z/x".into(), ProtectAction::Failed("no space".into())));
        let lines = findings(&all);
        assert!(lines[0].starts_with("SBX010 left in place: /w/z/.git is protected"), "{lines:?}");
        assert!(lines[1].starts_with("SBX010 left in place: /w/z/x is protected"), "{lines:?}");
        assert!(lines[1].ends_with("no space"), "{lines:?}");
        assert_eq!(lines.len(), 2 + HANDLED_MAX + 1);
    }

    #[test]
    fn each_file_left_in_place_is_named_or_counted_below_a_folder() {
        let mut all: Vec<Finding> = (0..200).map(|nr| left(format!("/w/a/{nr:03}"))).collect();
        all.extend((0..100).map(|nr| left(format!("/w/b/d{nr:03}/.git"))));
        all.push(left("/w/z/.git"));
        let lines = findings(&all);
        assert_eq!(
            lines[LEFT_MAX..],
            [
                "SBX010 left in place: and 150 more protected files below /w/a",
                "SBX010 left in place: and 100 more protected files below /w/b",
                &left_line(&left("/w/z/.git")),
            ]
        );
        let all: Vec<Finding> = (0..200).map(|nr| left(format!("/{nr:03}/a/.git"))).collect();
        let lines = findings(&all);
        assert_eq!(
            lines[LEFT_MAX..],
            ["SBX010 left in place: and 150 more protected files below /"]
        );
    }
}
