//! A call of a tool, in short: what it does, and how it ended.

use std::time::Duration;

use posse_actors::conversation::{CallId, ContentPart, text_of};
use posse_actors::event::Begun;
use serde_json::Value;

use ratatui_core::text::Span;

use crate::talk::outcome::clock_time;
use crate::tui::diff;
use crate::tui::text::{Row, clipped, harmless, row, span, wrap};
use crate::tui::theme::{Role, Theme};

/// Lines of a command's output that are shown when it has ended, the last ones.
const OUTPUT_LINES_MAX: usize = 5;

/// The same of one that the user ran: whoever runs it wants to see it.
const OWN_LINES_MAX: usize = 60;

/// The same while it runs.
const LIVE_LINES_MAX: usize = 5;

/// Lines of a diff that are shown, the first ones.
const DIFF_LINES_MAX: usize = 16;

/// Bytes of the output of a running command that are kept.
const LIVE_BYTES_MAX: usize = 8 << 10;

/// Columns of a line of output: what is longer is cut, and whole in the viewer.
const LINE_COLUMNS_MAX: usize = 400;

/// Arguments that tell best what a call would do, the best first.
const TELLING: [&str; 8] =
    ["command", "path", "file_path", "pattern", "query", "url", "task", "name"];

/// Columns of what a call would do that never said so itself.
const WANTED_COLUMNS_MAX: usize = 200;

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// It was asked for, and is looked at.
    Asked,
    /// It runs.
    Running,
    /// It ended well.
    Done,
    /// It did not: the class and the first line of what the model is told.
    Failed { class: String, why: String },
    /// Nobody knows; when it began, if that was recorded.
    Unknown { since_ms: Option<u64> },
}

/// What a call waits for that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// A person is asked.
    Answer,
    /// Others come first.
    Turn,
}

/// A call.
#[derive(Debug, Clone)]
pub(in crate::tui) struct Tool {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) summary: Option<String>,
    pub(super) state: State,
    /// When it began.
    pub(super) since: Duration,
    /// The end of what it printed so far.
    live: String,
    /// How a command ended.
    ended: Option<String>,
    /// The last lines of a command.
    output: Vec<String>,
    above: usize,
    diff: Option<String>,
    /// What it waits for, if it has not begun.
    pub(super) waits: Option<Waits>,
    /// An agent works for it, and is followed elsewhere.
    handed_on: bool,
}

impl Tool {
    pub(super) fn asked(call: CallId, name: &str, now: Duration) -> Tool {
        Tool {
            call,
            name: name.to_owned(),
            summary: None,
            state: State::Asked,
            since: now,
            live: String::new(),
            ended: None,
            output: Vec::new(),
            above: 0,
            diff: None,
            waits: None,
            handed_on: false,
        }
    }

    /// It was asked for with these arguments: what it would do, until somebody says that better.
    pub(super) fn wants(&mut self, arguments: &str) {
        let given: Value = serde_json::from_str(arguments).unwrap_or_default();
        let named = TELLING.iter().find_map(|name| given[*name].as_str());
        let any = || given.as_object()?.values().find_map(Value::as_str);
        if let Some(text) = named.or_else(any).map(str::trim).filter(|text| !text.is_empty()) {
            self.summary = Some(clipped(&format!("{} {text}", self.name), WANTED_COLUMNS_MAX));
        }
    }

    /// An agent works for it from now on. What it printed was about the time before.
    pub(super) fn hand_on(&mut self) {
        self.handed_on = true;
        self.live = String::new();
    }

    /// Whether what it does is to be seen elsewhere.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.handed_on && self.is_open()
    }

    pub(super) fn printed(&mut self, text: &str) {
        self.live.push_str(text);
        if self.live.len() > 2 * LIVE_BYTES_MAX {
            let mut from = self.live.len() - LIVE_BYTES_MAX;
            while !self.live.is_char_boundary(from) {
                from += 1;
            }
            self.live.drain(..from);
        }
    }

    /// It ended well. `own`: the user made it.
    pub(super) fn completed(
        &mut self,
        content: &[ContentPart],
        metadata: &Value,
        duration_ms: u64,
        own: bool,
    ) {
        self.state = State::Done;
        self.live = String::new();
        if metadata.get("exitCode").is_some() {
            let how = match (metadata["exitCode"].as_i64(), metadata["signal"].as_str()) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("ended by {}", harmless(signal)),
                (None, None) => "ended".to_owned(),
            };
            self.ended = Some(format!("{how}, {}", lasted(duration_ms)));
            (self.output, self.above) =
                last_lines(&text_of(content), if own { OWN_LINES_MAX } else { OUTPUT_LINES_MAX });
        }
        self.diff = metadata["diff"].as_str().filter(|diff| !diff.is_empty()).map(str::to_owned);
    }

    pub(super) fn failed(&mut self, class: &str, content: &[ContentPart]) {
        let text = harmless(&text_of(content));
        let line = text.lines().next().unwrap_or_default();
        // What the model is told begins with the class as well.
        let line = line.strip_prefix("Denied: ").filter(|_| class == "denied").unwrap_or(line);
        self.live = String::new();
        self.state = State::Failed { class: class.to_owned(), why: clipped(line, 300) };
    }

    /// Nobody saw how it ended. It may be one of a process that is gone.
    pub(super) fn lost(&mut self, begun: Option<&Begun>) {
        self.live = String::new();
        if let Some(begun) = begun {
            let call = format!("{}: {}", self.name, begun.summary);
            self.summary.get_or_insert(call);
        }
        self.state = State::Unknown { since_ms: begun.map(|begun| begun.started_ms) };
    }

    pub(in crate::tui) fn is_open(&self) -> bool {
        matches!(self.state, State::Asked | State::Running)
    }

    /// What it does, in words.
    pub(in crate::tui) fn title(&self) -> String {
        let summary = self.summary.as_deref().unwrap_or(&self.name);
        harmless(&summary.replace('\n', " ⏎ "))
    }

    /// The rows of it. `tick`: what turns while it runs.
    pub(in crate::tui) fn rows(
        &self,
        columns: usize,
        theme: Theme,
        now: Duration,
        tick: &str,
    ) -> Vec<Row> {
        let title = self.title();
        let below = [Span::raw("  ")];
        let head = |role, mark: &str, text: String| {
            wrap(
                &[span(theme, Role::Dim, text)],
                columns,
                &[span(theme, role, mark.to_owned())],
                &below,
            )
        };
        let mut rows = match &self.state {
            State::Asked if self.waits.is_some() => {
                let (role, mark, what) = match self.waits {
                    Some(Waits::Answer) => (Role::Warn, "? ", "waits for your answer"),
                    _ => (Role::Dim, "· ", "waits its turn"),
                };
                let title = clipped(&title, columns.saturating_mul(2));
                head(role, mark, format!("{title} · {what}"))
            }
            State::Asked | State::Running => {
                let text = format!(
                    "{} · {}",
                    clipped(&title, columns.saturating_mul(2)),
                    age(now, self.since)
                );
                head(Role::Accent, &format!("{tick} "), text)
            }
            State::Done => head(Role::Good, "• ", clipped(&title, columns.saturating_mul(3))),
            State::Failed { .. } | State::Unknown { .. } => {
                head(Role::Bad, "✗ ", clipped(&title, columns.saturating_mul(3)))
            }
        };
        let indent = [span(theme, Role::Dim, "  └ ")];
        let under = [Span::raw("    ")];
        match &self.state {
            State::Failed { class, why } => {
                let text = [span(theme, Role::Bad, format!("{class}: {why}"))];
                rows.extend(wrap(&text, columns, &indent, &under));
            }
            State::Unknown { since_ms } => {
                let since = since_ms.map(|ms| format!("begun at {}; ", clock_time(ms)));
                let since = since.unwrap_or_default();
                let text = format!("{since}nobody knows whether it happened; the model was told");
                rows.extend(wrap(&[span(theme, Role::Bad, text)], columns, &indent, &under));
            }
            State::Asked | State::Running => {
                let lines: Vec<&str> = self.live.lines().collect();
                let from = lines.len().saturating_sub(LIVE_LINES_MAX);
                let shown: Vec<String> = lines[from..]
                    .iter()
                    .map(|line| clipped(&harmless(line), columns.saturating_sub(4)))
                    .collect();
                rows.extend(
                    shown.into_iter().map(|line| row(theme, Role::Dim, format!("    {line}"))),
                );
            }
            State::Done => self.outcome(columns, theme, &mut rows),
        }
        rows
    }

    fn outcome(&self, columns: usize, theme: Theme, rows: &mut Vec<Row>) {
        if let Some(ended) = &self.ended {
            let more = if self.above > 0 {
                format!("; {} above (Ctrl+O shows all)", lines(self.above))
            } else {
                String::new()
            };
            rows.push(row(theme, Role::Dim, clipped(&format!("  └ {ended}{more}"), columns)));
            let lines = self.output.iter().map(|line| clipped(line, columns.saturating_sub(4)));
            rows.extend(lines.map(|line| row(theme, Role::Dim, format!("    {line}"))));
        }
        if let Some(diff) = &self.diff {
            let inner = diff::rows(diff, columns.saturating_sub(4), DIFF_LINES_MAX, theme);
            rows.extend(inner.into_iter().map(|row| {
                let mut spans = vec![Span::raw("    ")];
                spans.extend(row.spans);
                Row::from(spans)
            }));
        }
    }
}

/// The last lines that a command printed, without the tool's own remarks below them, and how many
/// there are above.
fn last_lines(text: &str, count_max: usize) -> (Vec<String>, usize) {
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last().is_some_and(|line| line.starts_with('(') && line.ends_with(')')) {
        lines.pop();
    }
    let above = lines.len().saturating_sub(count_max);
    let shown = lines[above..].iter().map(|line| clipped(&harmless(line), LINE_COLUMNS_MAX));
    (shown.collect(), above)
}

fn lines(count: usize) -> String {
    format!("{count} {}", if count == 1 { "line" } else { "lines" })
}

/// How long something took.
pub(in crate::tui) fn lasted(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..100_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// How long ago something began, in whole seconds, so that it changes rarely.
pub(in crate::tui) fn age(now: Duration, since: Duration) -> String {
    let seconds = now.saturating_sub(since).as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
