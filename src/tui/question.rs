//! Questions, one at a time and in the order they were asked. The one in front stays there until
//! it is decided; what is typed before it was silent for a moment is no answer.

use std::collections::VecDeque;
use std::time::Duration;

use posse_actors::conversation::QuestionId;
use posse_actors::event::{Event, Origin, Scope};
use posse_actors::permission_coordinator::HumanDecision;
use ratatui_core::text::{Line, Span};

use crate::talk::silence::Silence;
use crate::talk::workers::labelled;
use crate::tui::diff;
use crate::tui::input::{Code, Key};
use crate::tui::text::{Row, break_rows, clipped, clipped_front, row, span, spelled_out, wrap};
use crate::tui::theme::{Role, Theme};

/// A question as it was asked.
#[derive(Debug, Clone)]
struct Open {
    id: QuestionId,
    summary: String,
    detail: String,
    reason: String,
    cwd: String,
    /// Who asks, if it is not the main agent.
    agent: Option<String>,
    scopes: Vec<Scope>,
}

/// What a key meant.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answered {
    /// It was no answer, and is nothing else.
    Taken,
    /// It is no key for questions, or came too early: it belongs to what is being written.
    Passed,
    /// The question is decided.
    Decided(QuestionId, HumanDecision),
}

/// The questions of a session.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: VecDeque<Open>,
    /// How many were decided since none was open.
    decided: usize,
    /// Begins when the question in front is first on the screen.
    silence: Option<Silence>,
    /// Everywhere was chosen, and has to be chosen again.
    confirming: bool,
    /// Rows of the detail that are above what is shown.
    scroll: usize,
    /// The last row was on the screen.
    end_seen: bool,
    /// Rows of the detail, and how many fit, when it was shown last.
    size: (usize, usize),
}

impl Questions {
    /// Whether one is open.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Follows what happened.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>) {
        let decided = match event {
            Event::PermissionRequested {
                request_id, summary, detail, reason, scopes, cwd, ..
            } => {
                if self.open.iter().all(|open| open.id != *request_id) {
                    let child = origin.filter(|origin| origin.parent_invocation_id.is_some());
                    self.open.push_back(Open {
                        id: request_id.clone(),
                        summary: spelled_out(summary),
                        detail: detail.clone(),
                        reason: spelled_out(reason),
                        cwd: spelled_out(cwd),
                        agent: child.map(|origin| {
                            spelled_out(&labelled(&origin.agent_path, &origin.invocation_id))
                        }),
                        scopes: scopes.clone(),
                    });
                    if self.open.len() == 1 {
                        self.appear();
                    }
                }
                return;
            }
            Event::PermissionGranted { request_id, .. }
            | Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => request_id,
            _ => return,
        };
        let in_front = self.open.front().is_some_and(|open| open.id == *decided);
        let before = self.open.len();
        self.open.retain(|open| open.id != *decided);
        self.count(before - self.open.len());
        if in_front {
            self.appear();
        }
    }

    /// Forgets what the main agent asked: its run is over. Agents in the background go on asking.
    pub(super) fn forget_mains(&mut self) {
        let front = self.open.front().map(|open| open.id.clone());
        self.open.retain(|open| open.agent.is_some());
        self.decided = 0;
        if self.open.front().map(|open| &open.id) != front.as_ref() {
            self.appear();
        }
    }

    /// Whether the one in front is asked by an agent that works for another.
    pub(super) fn is_of_an_agent(&self) -> bool {
        self.open.front().is_some_and(|open| open.agent.is_some())
    }

    /// So many more are decided.
    fn count(&mut self, decided: usize) {
        self.decided = if self.open.is_empty() { 0 } else { self.decided + decided };
    }

    /// Another question is in front, and was not on the screen yet.
    fn appear(&mut self) {
        self.silence = None;
        (self.confirming, self.scroll, self.end_seen, self.size) = (false, 0, false, (0, 0));
    }

    /// How long until keys count; `None`: they do, or there is no question.
    pub(super) fn deaf_for(&self, now: Duration) -> Option<Duration> {
        self.silence.filter(|_| self.is_open()).and_then(|silence| silence.left(now))
    }

    /// Something was pasted: that is no answer, and no silence.
    pub(super) fn disturbed(&mut self, now: Duration) {
        if let Some(silence) = &mut self.silence {
            *silence = Silence::begin(now);
        }
    }

    /// Follows a key while one is open.
    pub(super) fn key(&mut self, key: Key, now: Duration) -> Answered {
        if self.open.is_empty() {
            return Answered::Passed;
        }
        let page = self.size.1.saturating_sub(1).max(1);
        let last = self.size.0.saturating_sub(self.size.1);
        match key.code {
            Code::Up => self.scroll = self.scroll.saturating_sub(1),
            Code::Down => self.scroll = (self.scroll + 1).min(last),
            Code::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Code::PageDown => self.scroll = (self.scroll + page).min(last),
            _ => return self.decide(key, now),
        }
        // What is read is not being written; but whoever scrolls is not silent either.
        self.disturbed(now);
        Answered::Taken
    }

    fn decide(&mut self, key: Key, now: Duration) -> Answered {
        let Some(open) = self.open.front() else { return Answered::Passed };
        let (id, scopes) = (open.id.clone(), open.scopes.clone());
        // Before it was on the screen nothing is an answer.
        let counts = self.silence.as_mut().is_some_and(|silence| silence.key(now));
        if !counts {
            return Answered::Passed;
        }
        let Some(letter) = key.writes() else {
            self.disturbed(now);
            return Answered::Passed;
        };
        let confirming = std::mem::take(&mut self.confirming);
        let offers = |scope| scopes.contains(&scope);
        let scope = match letter.to_ascii_lowercase() {
            'n' => {
                self.open.pop_front();
                self.count(1);
                self.appear();
                return Answered::Decided(id, HumanDecision::Deny { reason: None });
            }
            'y' => Scope::Once,
            's' if offers(Scope::Session) => Scope::Session,
            'p' if offers(Scope::Project) => Scope::Project,
            'a' | 'g' if offers(Scope::Global) => Scope::Global,
            // Whoever writes something else is not answering, whichever letter comes next.
            _ => {
                self.disturbed(now);
                return Answered::Passed;
            }
        };
        if !self.end_seen {
            return Answered::Taken;
        }
        if scope == Scope::Global && !confirming {
            self.confirming = true;
            return Answered::Taken;
        }
        self.open.pop_front();
        self.count(1);
        self.appear();
        Answered::Decided(id, HumanDecision::Allow(scope))
    }

    /// The rows of the question in front, at most `rows_max`.
    pub(super) fn rows(
        &mut self,
        columns: usize,
        rows_max: usize,
        tier: &str,
        theme: Theme,
        now: Duration,
    ) -> Vec<Row> {
        let waiting = self.open.len();
        if waiting > 0 {
            self.silence.get_or_insert_with(|| Silence::begin(now));
        }
        let Some(open) = self.open.front() else { return Vec::new() };
        let rule = span(theme, Role::Warn, "─".repeat(columns));
        let mut rows = vec![Line::from(rule)];
        let (nth, all) = (self.decided + 1, self.decided + waiting);
        let position = if all > 1 { format!(" ({nth} of {all})") } else { String::new() };
        let title = [span(theme, Role::Strong, format!("{}{position}", open.summary))];
        let mark = [span(theme, Role::Warn, "? ")];
        rows.extend(wrap(&title, columns, &mark, &[Span::raw("  ")]).into_iter().take(3));
        let facts = [
            (open.agent.as_deref(), "asked by"),
            (Some(open.reason.as_str()).filter(|reason| !reason.is_empty()), "because"),
        ];
        for (fact, label) in facts {
            if let Some(fact) = fact {
                let text = [span(theme, Role::Dim, format!("{label} {fact}"))];
                rows.extend(
                    wrap(&text, columns, &[Span::raw("  ")], &[Span::raw("    ")])
                        .into_iter()
                        .take(8),
                );
            }
        }
        let place =
            format!("  in {} · {}", clipped_front(&open.cwd, columns / 2), confinement(tier));
        // What confines it is not cut off.
        rows.extend(wrap(&[span(theme, Role::Dim, place)], columns, &[], &[Span::raw("  ")]));
        let keys = self.keys(open, columns, theme, now);
        let detail = detail_rows(&open.detail, columns, theme);
        // One row says what is left, if something is.
        let room = rows_max.saturating_sub(rows.len() + keys.len() + 1).max(1);
        self.size = (detail.len(), room);
        self.scroll = self.scroll.min(detail.len().saturating_sub(room));
        let end = (self.scroll + room).min(detail.len());
        let left = detail.len() - end;
        if left == 0 {
            self.end_seen = true;
        }
        let above = self.scroll;
        rows.extend(detail.into_iter().skip(above).take(room));
        if left > 0 || above > 0 {
            let text = format!("  ↑ {above} above · ↓ {left} below (arrows, PgUp, PgDn)");
            rows.push(row(theme, Role::Warn, clipped(&text, columns)));
        }
        if !self.end_seen {
            let text = "  read it to its end before a yes is taken · [n] no · Esc stops the run";
            rows.push(row(theme, Role::Strong, clipped(text, columns)));
            return rows;
        }
        rows.extend(keys);
        rows
    }

    fn keys(&self, open: &Open, columns: usize, theme: Theme, now: Duration) -> Vec<Row> {
        if self.confirming {
            let text = "  everywhere, in every project? [a] again: yes, everywhere · [n] no";
            return wrap(&[span(theme, Role::Warn, text)], columns, &[], &[Span::raw("  ")]);
        }
        let deaf = self.deaf_for(now).is_some();
        let mut keys = vec![("y", "once")];
        let wider = [
            (Scope::Session, "s", "until this session ends"),
            (Scope::Project, "p", "in this project, until it expires"),
            (Scope::Global, "a", "everywhere, until it expires"),
        ];
        keys.extend(
            wider
                .iter()
                .filter(|(scope, ..)| open.scopes.contains(scope))
                .map(|(_, key, what)| (*key, *what)),
        );
        keys.push(("n", "no"));
        let mut spans = vec![span(theme, Role::Text, "allow?")];
        for (key, what) in keys {
            let role = if deaf { Role::Dim } else { Role::Strong };
            spans.push(span(theme, role, format!("  [{key}]")));
            spans.push(span(theme, if deaf { Role::Dim } else { Role::Text }, format!(" {what}")));
        }
        spans.push(span(theme, Role::Dim, "  · Esc stops the run"));
        wrap(&spans, columns, &[Span::raw("  ")], &[Span::raw("  ")])
    }
}

fn confinement(tier: &str) -> &'static str {
    match tier {
        "full" => "commands run in the sandbox",
        "reduced" => "commands run in a reduced sandbox: they can read secret files",
        _ => "nothing confines it: it runs with all of your rights",
    }
}

/// Every character of what is asked about; what cannot be seen is written out.
fn detail_rows(detail: &str, columns: usize, theme: Theme) -> Vec<Row> {
    let bar = [span(theme, Role::Dim, "  │ ")];
    let below = [span(theme, Role::Dim, "  ┆ ")];
    if is_diff(detail) {
        let rows = diff::rows(&visible(detail), columns.saturating_sub(4), usize::MAX, theme);
        return rows
            .into_iter()
            .map(|row| Line::from([bar.to_vec(), row.spans].concat()))
            .collect();
    }
    detail
        .split_terminator('\n')
        .flat_map(|line| {
            let text = trailing(&spelled_out(line).replace('\t', "\\t"));
            break_rows(&text, columns, &bar, &below, theme)
        })
        .collect()
}

/// White space at the end of a line would not be seen.
fn trailing(line: &str) -> String {
    let kept = line.trim_end();
    format!("{kept}{}", "·".repeat(line[kept.len()..].chars().count()))
}

fn visible(text: &str) -> String {
    let lines: Vec<String> =
        text.split('\n').map(|line| trailing(&spelled_out(line).replace('\t', "    "))).collect();
    lines.join("\n")
}

fn is_diff(detail: &str) -> bool {
    let mut lines = detail.lines();
    lines.next().is_some_and(|line| line.starts_with("--- "))
        && lines.next().is_some_and(|line| line.starts_with("+++ "))
        && lines.next().is_some_and(|line| line.starts_with("@@ -"))
}
