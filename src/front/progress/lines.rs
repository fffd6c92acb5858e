//! Texts and limits for progress lines: excerpts of output, worktrees, jobs, durations.

use posse_actors::conversation::{ContentPart, text_of};
use posse_actors::event::Event;
use posse_actors::outcome::WorktreeSummary;
use posse_actors::text;
use posse_base::failure::printable;

/// Maximum characters of an excerpt of a line. A longer line is cut there, and ` …` is appended.
const RESULT_CHARS_MAX: usize = 160;

/// Maximum number of output lines that are shown of a command of the model: the last ones, below a
/// line with the number of the others.
pub(super) const OUTPUT_LINES_MAX: usize = 5;

/// Maximum number of output lines that are shown of a command that the user ran: the last ones,
/// below a line with the number of the others.
pub(super) const OWN_LINES_MAX: usize = 60;

/// Maximum number of lines that are shown of a diff: the first ones, above a line with the number
/// of the others.
pub(super) const DIFF_LINES_MAX: usize = 12;

pub(super) fn first_line(content: &[ContentPart]) -> String {
    let text = text_of(content);
    let line = text.lines().next().unwrap_or_default();
    let is_cut = line.chars().count() > RESULT_CHARS_MAX;
    let more = if line.len() < text.trim_end().len() && !is_cut { " …" } else { "" };
    format!("{}{more}", clipped(line))
}

/// Last `count_max` lines of a command's output, after a line with the number of lines above, if
/// there are any. Lines in parentheses at the end of `text` are left out, because they are notes of
/// the tool.
pub(super) fn last_lines(text: &str, count_max: usize) -> Vec<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last().is_some_and(|line| line.starts_with('(') && line.ends_with(')')) {
        lines.pop();
    }
    let hidden = lines.len().saturating_sub(count_max);
    let shown = lines[hidden..].iter().map(|line| format!("  │ {}", clipped(line)));
    let more = (hidden > 0).then(|| format!("  │ … {hidden} lines above"));
    more.into_iter().chain(shown).collect()
}

/// Truncates a line at [`RESULT_CHARS_MAX`] characters and escapes control characters.
pub(super) fn clipped(line: &str) -> String {
    printable(&text::clipped(line, RESULT_CHARS_MAX, " …"))
}

/// Suffix about the changes in the worktree of a subagent; empty if the worktree was removed.
pub(super) fn of_worktree(remains: &WorktreeSummary) -> String {
    match &remains.left {
        _ if !remains.kept => String::new(),
        Some(left) if left.count == 0 => "; its worktree is kept".to_owned(),
        Some(left) if left.count == 1 => "; 1 file changed in its worktree".to_owned(),
        Some(left) => format!("; {} files changed in its worktree", left.count),
        None => "; its worktree is kept".to_owned(),
    }
}

/// Text for the start or end of a background job; empty for other events.
pub(super) fn of_job(event: &Event) -> String {
    match event {
        Event::JobStarted { call_id, .. } => format!("▸ job {call_id} continues in the background"),
        Event::JobEnded { call_id, summary, detail, findings, .. } => {
            let first = format!("◂ job {call_id} {detail}: {summary}");
            let lines = std::iter::once(&first).chain(findings).map(|line| printable(line));
            lines.collect::<Vec<_>>().join("\n  ")
        }
        _ => String::new(),
    }
}

/// Formats a duration in milliseconds for a countdown, rounded down: in seconds below 100 s, in
/// minutes below 100 min, otherwise in hours.
pub(super) fn countdown_text(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
