//! Compact view of a tool call: its summary, state and result.

use std::time::Duration;

use posse_actors::conversation::{CallId, ContentPart, text_of};
use posse_actors::event::{StartedCall, TodoItem, TodoStatus, ToolFailureClass};
use serde_json::Value;

use posse_frontend::end_line::duration_text;
use posse_frontend::outcome::clock_time;
use posse_frontend::pluralize;
use ratatui::text::Span;

use crate::diff;
use crate::highlight::Highlighter;
use crate::text::{TextRow, clipped, keep_end, prefixed, row, sanitize, span, wrap};
use crate::theme::{Role, Theme};

/// Maximum number of output lines shown of a finished command; the last ones are shown.
const OUTPUT_LINES_MAX: usize = 5;

/// Maximum number of output lines shown of a finished command that the user ran.
const OWN_LINES_MAX: usize = 60;

/// Maximum number of output lines shown of a running command; the last ones are shown.
const LIVE_LINES_MAX: usize = 5;

/// Maximum number of lines shown of a diff; the first ones are shown. Rows between hunks and the
/// row about the rest are not counted.
const DIFF_LINES_MAX: usize = 16;

/// Number of bytes of a running command's output that are kept, from the end. Up to twice as many
/// are kept before the start is dropped.
const LIVE_BYTES_MAX: usize = 8 << 10;

/// Maximum columns of an output line; longer ones are cut here, but not in the viewer.
const LINE_COLUMNS_MAX: usize = 400;

/// End of the summary of a background job, which is no part of its command.
const IN_BACKGROUND: &str = " in the background";

/// Names of arguments for the preliminary summary of a call; the first one that is present is used.
const SUMMARY_ARGUMENTS: [&str; 8] =
    ["command", "path", "file_path", "pattern", "query", "url", "task", "name"];

/// Maximum columns of a summary made from arguments.
const WANTED_COLUMNS_MAX: usize = 200;

/// State of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum State {
    /// The call was requested and has not started: it is under review, or waits for another call.
    #[default]
    Asked,
    /// The call has started and not ended.
    Running,
    /// The call succeeded.
    Done,
    /// The call failed or was denied or cancelled: the class and the first line of the result.
    Failed { class: ToolFailureClass, why: String },
    /// The outcome of the call is unknown. `since_ms`: start time in milliseconds since 1970, if it
    /// was recorded.
    Unknown { since_ms: Option<u64> },
}

/// Reason why a call has not started: the theme role of its mark, the mark, and the text.
pub(super) type WaitReason = (Role, &'static str, &'static str);

/// Wait reason of a call: the user is asked for permission.
pub(super) const USER_ANSWER: WaitReason = (Role::Warn, "?", "waiting for your answer");

/// Wait reason of a call: earlier calls run first.
pub(super) const EARLIER_CALL: WaitReason = (Role::Dim, "·", "waiting for earlier calls");

/// View of a tool call.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolCallView {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) summary: Option<String>,
    pub(super) state: State,
    /// Time at which the call was requested or, once it runs, started; counted from the start of
    /// the UI.
    pub(super) since: Duration,
    /// Last part of the output of a running command, and number of all its lines that have ended.
    live: String,
    live_lines: usize,
    /// True for a command that ended with another exit code than 0, or by a signal.
    exited_with_error: bool,
    /// Exit status and duration of a finished command; `None` for other calls.
    ended: Option<String>,
    /// Last lines of the output of a finished command. `above`: number of lines above them.
    output: Vec<String>,
    above: usize,
    diff: Option<String>,
    /// Lines about the result of a restore.
    report: Vec<String>,
    /// Task list that the call has written.
    todos: Vec<TodoItem>,
    /// Reason why the call has not started; `None` if it has started or is only under review.
    pub(super) waits: Option<WaitReason>,
    /// True if the call has no side effects: it reads, lists or searches.
    pub(super) only_reads: bool,
    /// True if a subagent works on the call and is shown in the subagent tree.
    delegated: bool,
}

impl ToolCallView {
    pub(super) fn asked(call: CallId, name: &str, now: Duration) -> ToolCallView {
        ToolCallView { call, name: name.to_owned(), since: now, ..ToolCallView::default() }
    }

    /// Makes a preliminary summary from a text argument; without one the summary stays unchanged.
    pub(super) fn set_arguments(&mut self, arguments: &str) {
        let given: Value = serde_json::from_str(arguments).unwrap_or_default();
        let named = SUMMARY_ARGUMENTS.iter().find_map(|name| given[*name].as_str());
        // As in the summary of a command that starts.
        let verb = if given["command"].is_string() { "run" } else { &self.name };
        let any = || given.as_object()?.values().find_map(Value::as_str);
        if let Some(text) = named.or_else(any).map(str::trim).filter(|text| !text.is_empty()) {
            self.summary = Some(clipped(&format!("{verb} {text}"), WANTED_COLUMNS_MAX));
        }
    }

    /// Marks the call as delegated. Its earlier output is dropped.
    pub(super) fn set_delegated(&mut self) {
        self.delegated = true;
        self.live = String::new();
    }

    /// Returns `true` if the subagent tree shows this call.
    pub(super) fn is_shown_in_tree(&self) -> bool {
        self.delegated && self.is_open()
    }

    pub(super) fn printed(&mut self, text: &str) {
        self.live_lines += text.matches('\n').count();
        self.live.push_str(text);
        keep_end(&mut self.live, LIVE_BYTES_MAX);
    }

    /// Marks the call as succeeded, and stores what is shown of it: the last output lines of a
    /// command, and the diff. `own`: true if the user made the call, so that more output is shown.
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
                (None, Some(signal)) => format!("ended by {}", sanitize(signal)),
                (None, None) => "ended".to_owned(),
            };
            self.exited_with_error = metadata["exitCode"] != 0;
            self.ended = Some(format!("{how}, {}", duration_text(duration_ms)));
            (self.output, self.above) =
                last_lines(&text_of(content), if own { OWN_LINES_MAX } else { OUTPUT_LINES_MAX });
        }
        if metadata.get("answers").is_some() {
            self.ended = Some("answered".to_owned());
            (self.output, self.above) = last_lines(&text_of(content), OWN_LINES_MAX);
        }
        self.report = serde_json::from_value(metadata["report"].clone()).unwrap_or_default();
        self.todos = serde_json::from_value(metadata["todos"].clone()).unwrap_or_default();
        self.diff = metadata["diff"].as_str().filter(|diff| !diff.is_empty()).map(str::to_owned);
    }

    pub(super) fn failed(&mut self, class: &ToolFailureClass, content: &[ContentPart]) {
        let text = sanitize(&text_of(content));
        let line = text.lines().next().unwrap_or_default();
        self.live = String::new();
        (self.output, self.above) = last_lines(class.output_in(&text), OUTPUT_LINES_MAX);
        self.state =
            State::Failed { class: class.clone(), why: clipped(class.reason_in(line), 300) };
    }

    /// Marks the outcome as unknown, for example after a crash of the process. `begun`: description
    /// and start time, if recorded.
    pub(super) fn set_outcome_unknown(&mut self, begun: Option<&StartedCall>) {
        self.live = String::new();
        if let Some(begun) = begun {
            let call = format!("{}: {}", self.name, begun.summary);
            self.summary.get_or_insert(call);
        }
        self.state = State::Unknown { since_ms: begun.map(|begun| begun.started_ms) };
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Asked | State::Running)
    }

    /// Returns `true` for a finished call that only read, of which nothing but its title is shown.
    pub(super) fn is_foldable(&self) -> bool {
        let shows_more = self.ended.is_some()
            || self.diff.is_some()
            || !self.report.is_empty()
            || !self.todos.is_empty();
        self.only_reads && self.state == State::Done && !shows_more
    }

    /// Returns `true` for a call that waits for an answer of the user.
    pub(super) fn waits_for_user(&self) -> bool {
        self.state == State::Asked && self.waits == Some(USER_ANSWER)
    }

    /// Returns `true` for a call that may become foldable and waits for no answer of the user.
    pub(super) fn may_become_foldable(&self) -> bool {
        let is_running = self.state == State::Running && self.only_reads;
        is_running || self.state == State::Asked && self.waits != Some(USER_ANSWER)
    }

    /// Summary in one line; the name of the tool if there is no summary.
    pub(crate) fn title(&self) -> String {
        let summary = self.summary.as_deref().unwrap_or(&self.name);
        sanitize(&summary.replace('\n', " ⏎ "))
    }

    /// Rows of the call. `tick`: the spinner frame.
    pub(crate) fn rows(
        &self,
        columns: usize,
        theme: Theme,
        now: Duration,
        tick: &str,
    ) -> Vec<TextRow> {
        let title = self.title();
        let (role, mark, lines, state) = match (&self.state, self.waits) {
            (State::Asked, Some((role, mark, what))) => (role, mark, 2, format!(" · {what}")),
            (State::Asked | State::Running, _) => {
                let lines = match self.live_lines {
                    0..=LIVE_LINES_MAX => String::new(),
                    lines => format!(" · {lines} lines"),
                };
                (Role::Accent, tick, 2, format!(" · {}{lines}", age(now, self.since)))
            }
            (State::Done, _) if self.exited_with_error => (Role::Warn, "!", 3, String::new()),
            (State::Done, _) => (Role::Good, "•", 3, String::new()),
            (State::Failed { .. } | State::Unknown { .. }, _) => (Role::Bad, "✗", 3, String::new()),
        };
        let mark = [span(theme, role, format!("{mark} "))];
        let mut text = title_spans(&clipped(&title, columns.saturating_mul(lines)), theme);
        text.push(span(theme, Role::Dim, state));
        let mut rows = wrap(&text, columns, &mark, &[Span::raw("  ")]);
        let bad = |text: String| {
            let first = [span(theme, Role::Dim, "  └ ")];
            wrap(&[span(theme, Role::Bad, text)], columns, &first, &[Span::raw("    ")])
        };
        match &self.state {
            State::Failed { class, why } => {
                rows.extend(bad(format!("{class}: {why}")));
                rows.extend(self.output_rows(columns, theme));
            }
            State::Unknown { since_ms } => {
                let since = since_ms.map(|ms| format!("started at {}; ", clock_time(ms)));
                let since = since.unwrap_or_default();
                rows.extend(bad(format!("{since}outcome unknown; the model was informed")));
            }
            State::Asked | State::Running => {
                let lines: Vec<&str> = self.live.lines().collect();
                let from = lines.len().saturating_sub(LIVE_LINES_MAX);
                rows.extend(lines[from..].iter().map(|line| {
                    let line = clipped(&sanitize(line), columns.saturating_sub(4));
                    row(theme, Role::Dim, format!("    {line}"))
                }));
            }
            State::Done => self.outcome(columns, theme, &mut rows),
        }
        rows
    }

    fn output_rows(&self, columns: usize, theme: Theme) -> impl Iterator<Item = TextRow> {
        let lines = self.output.iter().map(move |line| clipped(line, columns.saturating_sub(4)));
        lines.map(move |line| row(theme, Role::Dim, format!("    {line}")))
    }

    fn outcome(&self, columns: usize, theme: Theme, rows: &mut Vec<TextRow>) {
        let under = [Span::raw("    ")];
        if let Some(ended) = &self.ended {
            let more = if self.above > 0 {
                format!("; {} above (Ctrl+O shows all)", pluralize(self.above as u64, "line"))
            } else {
                String::new()
            };
            rows.push(row(theme, Role::Dim, clipped(&format!("  └ {ended}{more}"), columns)));
            rows.extend(self.output_rows(columns, theme));
        }
        for line in &self.report {
            let text = [span(theme, Role::Dim, sanitize(line))];
            rows.extend(wrap(&text, columns, &[Span::raw("  └ ")], &under));
        }
        // While tasks are open, the list is above the prompt.
        let is_open =
            |item: &TodoItem| matches!(item.status, TodoStatus::Pending | TodoStatus::InProgress);
        let finished = if self.todos.iter().any(is_open) { &[] } else { self.todos.as_slice() };
        for item in finished {
            let (mark, role) = todo_mark(item.status);
            let first = [Span::raw("  "), span(theme, role, format!("{mark} "))];
            let text = [span(theme, role, sanitize(&item.content).replace('\n', " "))];
            rows.extend(wrap(&text, columns, &first, &under));
        }
        if let Some(diff) = &self.diff {
            let inner = diff::rows(diff, columns.saturating_sub(4), DIFF_LINES_MAX, theme);
            rows.extend(inner.into_iter().map(|row| prefixed(&under, row)));
        }
    }
}

/// Mark and role of a task in a list.
pub(crate) fn todo_mark(status: TodoStatus) -> (&'static str, Role) {
    match status {
        TodoStatus::Completed => ("☑", Role::Dim),
        TodoStatus::InProgress => ("▸", Role::Accent),
        TodoStatus::Pending => ("☐", Role::Text),
        TodoStatus::Cancelled => ("☒", Role::Dim),
    }
}

/// The title of a call with its first word, which says what is done, in bold. A command is
/// highlighted.
fn title_spans(title: &str, theme: Theme) -> Vec<Span<'static>> {
    let (verb, rest) = title.split_at(title.find(' ').unwrap_or(title.len()));
    let mut spans = vec![span(theme, Role::Strong, verb)];
    let is_command = verb == "run";
    let mut highlighter = Highlighter::of(if is_command { "sh" } else { "" });
    let (code, after) = match rest.strip_suffix(IN_BACKGROUND) {
        Some(code) => (code, IN_BACKGROUND),
        None => (rest, ""),
    };
    let pieces = highlighter.line(code);
    spans.extend(pieces.into_iter().map(|(role, text)| span(theme, role, text)));
    spans.push(span(theme, Role::Text, after));
    spans
}

/// Returns the last `count_max` lines of a command's output, and the number of lines above them.
/// Lines in parentheses at the end of `text` are left out, because they are notes of the tool.
fn last_lines(text: &str, count_max: usize) -> (Vec<String>, usize) {
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last().is_some_and(|line| line.starts_with('(') && line.ends_with(')')) {
        lines.pop();
    }
    let above = lines.len().saturating_sub(count_max);
    let shown = lines[above..].iter().map(|line| clipped(&sanitize(line), LINE_COLUMNS_MAX));
    (shown.collect(), above)
}

/// Formats the time from `since` to `now` in whole seconds, minutes or hours, so that the text
/// changes rarely.
pub(crate) fn age(now: Duration, since: Duration) -> String {
    let seconds = now.saturating_sub(since).as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
