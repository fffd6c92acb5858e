//! Permission requests, questions and plans, shown one at a time in the order of arrival. The current request stays
//! until it is decided. Keys that are pressed before its quiet period has ended are no answer. A key
//! that is not offered is not text either, unless other characters follow at once.

mod answers;
mod hunks;

use std::collections::VecDeque;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::conversation::QuestionId;
use posse_actors::event::{Event, Grant, Origin, SandboxTier, Scope, TrialOffer};
use posse_actors::permission_coordinator::HumanDecision;
use posse_frontend::quiet_period::QuietPeriod;
use posse_frontend::subagents::label_with_id;
use ratatui::text::{Line, Span};

use crate::EditorDraft;
use crate::diff;
use crate::highlight::Highlighter;
use crate::hunk_form::HunkForm;
use crate::input::{character, ctrl};
use crate::request_form::{FormKey, RequestForm};
use crate::status::Status;
use crate::text::{
    TextRow, break_rows, clipped, clipped_front, escape_invisible, prefixed, row, span, wrap,
};
use crate::theme::{Role, Theme};

/// An open permission request.
#[derive(Debug, Clone)]
struct PermissionPrompt {
    id: QuestionId,
    summary: String,
    detail: String,
    /// Reason of the request, without what a saved answer allows.
    reason: String,
    /// Description of the calls that a saved answer allows; empty if it is not known.
    grant_text: String,
    /// Grant of a saved answer.
    grant: Option<Grant>,
    /// True if the grant covers only a part of the call.
    grants_part: bool,
    cwd: String,
    /// The subagent that asks; `None` for the main agent.
    agent: Option<String>,
    scopes: Vec<Scope>,
    /// Answer about a trial that is offered; `None` if none is.
    trial: Option<TrialOffer>,
    /// Hunks that can be answered one by one; `None` if there are none.
    hunks: Option<HunkForm>,
    /// Questions or plan of the model; `None` for a permission request.
    form: Option<RequestForm>,
}

/// Rows of the detail that stay visible next to a list of answers.
const DETAIL_ROWS_MIN: usize = 8;

/// Maximum rows of the reason of a request, and of the reason with all details.
const WHY_ROWS_MAX: usize = 2;
const EXPLAINED_ROWS_MAX: usize = 8;

/// Maximum characters of the reason of a refusal.
const REASON_CHARS_MAX: usize = 2000;

/// Maximum number of rows of the reason of a refusal; the last ones are shown.
const REASON_ROWS_MAX: usize = 4;

/// Effect of a key on the current request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum KeyOutcome {
    /// The key was consumed and decides nothing.
    Taken,
    /// The key is no answer, or came too early: it belongs to the prompt editor.
    Passed,
    /// The user is writing a text that began with this character: it and the key belong to the
    /// prompt editor.
    PassedAfter(char),
    /// The key decides the request with this id, which is removed from the open ones. The caller
    /// sends the decision to the session.
    Decided(QuestionId, HumanDecision),
    /// The user wants to change this plan in an editor.
    EditPlan(String),
    /// The user wants to change this text of a hunk in an editor.
    EditHunk(EditorDraft),
}

/// Open permission requests of a session.
#[derive(Debug, Default)]
pub(super) struct PermissionPrompts {
    open: VecDeque<PermissionPrompt>,
    /// Number of requests decided since no request was open.
    decided: usize,
    /// Quiet period of the current request; `None` until the request is first shown.
    quiet_period: Option<QuietPeriod>,
    /// True if the global scope was chosen and must be confirmed.
    confirming: bool,
    /// True if the user wants to see all reasons and what a saved answer allows.
    is_explained: bool,
    /// Number of rows of the detail above the visible ones.
    scroll: usize,
    /// True if the last row of the detail was visible.
    end_seen: bool,
    /// Number of rows of the detail, and of the rows that were available for it, when the request
    /// was last shown.
    size: (usize, usize),
    /// The last key, which is no answer. If another character follows soon, both are text.
    unoffered: Option<char>,
    /// Why the last key had no effect; `None` if it had one.
    hint: Option<String>,
    /// Reason of a refusal that the user is writing; `None` if none is being written.
    refusal: Option<String>,
}

impl PermissionPrompts {
    /// Returns `true` if a request is open.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Id and summary of the current request; `None` if none is open.
    pub(super) fn current(&self) -> Option<(&QuestionId, &str)> {
        self.open.front().map(|open| (&open.id, open.summary.as_str()))
    }

    /// Adds a new request at the end, or removes one that was decided or withdrawn. If the current
    /// request is removed, the next one is shown with a quiet period of its own.
    pub(super) fn follow(&mut self, event: &Event, origin: Option<&Origin>) {
        if let Event::PermissionModeChanged { mode, .. } = event
            && !self.open.is_empty()
        {
            // The status bar is hidden while a request is open.
            self.show_hint(&format!("permission mode {mode}"));
        }
        let decided = match event {
            Event::PermissionRequested {
                request_id,
                summary,
                detail,
                reason,
                scopes,
                cwd,
                user_request,
                trial,
                grant,
                grants_part,
                grant_text,
                hunks,
                ..
            } => {
                if self.open.iter().all(|open| open.id != *request_id) {
                    let child = origin.filter(|origin| origin.parent_invocation_id.is_some());
                    self.open.push_back(PermissionPrompt {
                        id: request_id.clone(),
                        summary: escape_invisible(summary),
                        detail: detail.clone(),
                        reason: escape_invisible(&without_grant(reason, grant_text)),
                        grant_text: escape_invisible(grant_text),
                        grant: grant.as_deref().cloned(),
                        grants_part: *grants_part,
                        cwd: escape_invisible(cwd),
                        agent: child.map(agent_label),
                        scopes: scopes.clone(),
                        trial: trial.clone(),
                        hunks: HunkForm::new(detail, hunks),
                        form: user_request.as_deref().cloned().map(RequestForm::new),
                    });
                    if self.open.len() == 1 {
                        self.reset_display();
                    }
                }
                return;
            }
            event => event.closed_question(),
        };
        let Some(decided) = decided else { return };
        let in_front = self.open.front().is_some_and(|open| open.id == *decided);
        let before = self.open.len();
        self.open.retain(|open| open.id != *decided);
        self.count(before - self.open.len());
        if in_front {
            self.reset_display();
        }
    }

    /// Removes the requests of the main agent, because its run has ended. Requests of subagents
    /// stay.
    pub(super) fn remove_main_requests(&mut self) {
        let front = self.open.front().map(|open| open.id.clone());
        self.open.retain(|open| open.agent.is_some());
        self.decided = 0;
        if self.open.front().map(|open| &open.id) != front.as_ref() {
            self.reset_display();
        }
    }

    /// Returns `true` if the current request is one of a subagent.
    pub(super) fn is_from_subagent(&self) -> bool {
        self.open.front().is_some_and(|open| open.agent.is_some())
    }

    /// Adds to the number of decided requests; resets the number if no request is open.
    fn count(&mut self, decided: usize) {
        self.decided = if self.open.is_empty() { 0 } else { self.decided + decided };
    }

    /// Resets quiet period, confirmation and scroll position for a new current request.
    fn reset_display(&mut self) {
        self.quiet_period = None;
        (self.confirming, self.scroll, self.end_seen, self.size) = (false, 0, false, (0, 0));
        (self.unoffered, self.hint, self.refusal) = (None, None, None);
        self.is_explained = false;
    }

    /// Shows why the last key had no effect.
    pub(super) fn show_hint(&mut self, hint: &str) {
        self.hint = Some(hint.to_owned());
    }

    /// Returns `true` if the user is writing the reason of a refusal, or an answer.
    pub(super) fn is_writing(&self) -> bool {
        self.refusal.is_some() || self.form().is_some_and(RequestForm::is_writing)
    }

    /// Drops the text that is being written, or the answers about hunks; the request stays open.
    /// Returns `false` if there are none, or if the current question has no other answer.
    pub(super) fn drop_text(&mut self) -> bool {
        self.refusal.take().is_some()
            || self.leave_hunks()
            || self.form_mut().is_some_and(|form| form.is_writing() && form.drop_text())
    }

    fn form(&self) -> Option<&RequestForm> {
        self.open.front()?.form.as_ref()
    }

    fn form_mut(&mut self) -> Option<&mut RequestForm> {
        self.open.front_mut()?.form.as_mut()
    }

    /// Replaces the plan in question by the one that the user has edited.
    pub(super) fn set_plan(&mut self, text: &str) {
        if let Some(form) = self.form_mut() {
            form.set_plan(text);
        }
        (self.scroll, self.end_seen) = (0, false);
    }

    /// Adds a pasted text to the one that is being written. Returns `false` if none is.
    pub(super) fn paste(&mut self, text: &str) -> bool {
        let Some(reason) = &mut self.refusal else {
            let is_shown = self.quiet_period.is_some();
            return is_shown && self.form_mut().is_some_and(|form| form.paste(text));
        };
        for c in text.chars() {
            add_character(reason, if c.is_whitespace() { ' ' } else { c });
        }
        true
    }

    /// Handles a key while the reason of a refusal is being written.
    fn write_reason(&mut self, key: KeyEvent) -> KeyOutcome {
        let is_form = self.form().is_some();
        let Some(reason) = &mut self.refusal else { return KeyOutcome::Passed };
        match key.code {
            KeyCode::Enter => {
                let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
                let said = if is_form { "" } else { "the user said no: " };
                let reason = reason.map(|reason| format!("{said}{reason}"));
                return self.close(HumanDecision::Deny { reason });
            }
            KeyCode::Backspace => drop(reason.pop()),
            _ if key == ctrl('u') => reason.clear(),
            _ => {
                if let Some(c) = character(key) {
                    add_character(reason, c);
                }
            }
        }
        KeyOutcome::Taken
    }

    /// Decides and removes the current request.
    fn close(&mut self, decision: HumanDecision) -> KeyOutcome {
        let Some(open) = self.open.pop_front() else { return KeyOutcome::Passed };
        self.count(1);
        self.reset_display();
        KeyOutcome::Decided(open.id, decision)
    }

    /// Time until keys count; `None` if they count now or no request is open.
    pub(super) fn quiet_period_left(&self, now: Duration) -> Option<Duration> {
        self.quiet_period.filter(|_| self.is_open()).and_then(|quiet_period| quiet_period.left(now))
    }

    /// Restarts the quiet period at `now`, because there was an input that is no answer, such as a
    /// paste. Does nothing if the current request was not shown yet.
    pub(super) fn restart_quiet_period(&mut self, now: Duration) {
        if let Some(quiet_period) = &mut self.quiet_period {
            *quiet_period = QuietPeriod::begin(now);
        }
    }

    /// Handles a key: scrolls the detail of the current request or answers the request. `Passed` if
    /// no request is open.
    pub(super) fn key(&mut self, key: KeyEvent, now: Duration) -> KeyOutcome {
        if self.open.is_empty() {
            return KeyOutcome::Passed;
        }
        if self.refusal.is_some() {
            return self.write_reason(key);
        }
        let is_text = self.form().is_some_and(RequestForm::is_writing);
        if is_text && self.quiet_period.is_some() && self.quiet_period_left(now).is_none() {
            return self.answer_form(key, now);
        }
        if let (Some(form), KeyCode::Up | KeyCode::Down) = (self.form_mut(), key.code)
            && form.go(key.code == KeyCode::Down)
        {
            (self.unoffered, self.hint) = (None, None);
            return KeyOutcome::Taken;
        }
        let page = self.size.1.saturating_sub(1).max(1);
        let last = self.size.0.saturating_sub(self.size.1);
        match key.code {
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = (self.scroll + 1).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll = (self.scroll + page).min(last),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = last,
            _ => return self.decide(key, now),
        }
        // Scrolling keys do not belong to the prompt. An answer may follow at once, unless they
        // came within the quiet period, which they restart.
        if let Some(quiet_period) = &mut self.quiet_period {
            quiet_period.key(now);
        }
        (self.unoffered, self.hint) = (None, None);
        KeyOutcome::Taken
    }

    fn decide(&mut self, key: KeyEvent, now: Duration) -> KeyOutcome {
        let Some(open) = self.open.front() else { return KeyOutcome::Passed };
        let (scopes, trial) = (open.scopes.clone(), open.trial.clone());
        let before = self.unoffered.take();
        // A request that was not shown yet cannot be answered.
        let counts = self.quiet_period.as_mut().is_some_and(|quiet_period| quiet_period.key(now));
        if self.hunks().is_some() {
            return self.answer_hunk(key, counts);
        }
        if !counts {
            return match (before, character(key)) {
                // A key that is held down repeats.
                (Some(before), Some(again)) if before == again => {
                    self.unoffered = Some(before);
                    KeyOutcome::Taken
                }
                (Some(before), Some(_)) => {
                    self.hint = None;
                    KeyOutcome::PassedAfter(before)
                }
                _ => KeyOutcome::Passed,
            };
        }
        self.hint = None;
        if self.form().is_some() {
            return self.answer_form(key, now);
        }
        let Some(letter) = character(key) else {
            self.restart_quiet_period(now);
            return KeyOutcome::Passed;
        };
        let confirming = std::mem::take(&mut self.confirming);
        if letter == '?' {
            self.is_explained = !self.is_explained;
            return KeyOutcome::Taken;
        }
        match (letter.to_ascii_lowercase(), trial) {
            ('t', Some(TrialOffer::Try)) => return self.close(HumanDecision::Try),
            ('k', Some(TrialOffer::Keep)) if self.end_seen => {
                return self.close(HumanDecision::Keep);
            }
            ('k', Some(TrialOffer::Keep)) => return KeyOutcome::Taken,
            ('h', _) if self.begin_hunks() => return KeyOutcome::Taken,
            _ => {}
        }
        let scope = match (letter.to_ascii_lowercase(), offered_scope(letter, &scopes)) {
            ('n', _) => None,
            (_, Some(scope)) => Some(scope),
            ('r', None) => {
                self.refusal = Some(String::new());
                return KeyOutcome::Taken;
            }
            // If the user is writing, the next letter is no answer either.
            (other, None) => {
                self.restart_quiet_period(now);
                self.unoffered = Some(letter);
                let why = if matches!(other, 's' | 'p' | 'a' | 'g') {
                    ": this call cannot be remembered"
                } else {
                    ""
                };
                self.hint = Some(format!("[{letter}] is not offered here{why}"));
                return KeyOutcome::Taken;
            }
        };
        if scope.is_some() && !self.end_seen {
            return KeyOutcome::Taken;
        }
        if scope == Some(Scope::Global) && !confirming {
            self.confirming = true;
            return KeyOutcome::Taken;
        }
        let deny = HumanDecision::Deny { reason: None };
        self.close(scope.map_or(deny, HumanDecision::Allow))
    }

    /// Handles a key that counts as an answer to questions or a plan of the model.
    fn answer_form(&mut self, key: KeyEvent, now: Duration) -> KeyOutcome {
        let end_seen = self.end_seen;
        let Some(form) = self.form_mut() else { return KeyOutcome::Passed };
        let is_plan = form.is_plan();
        match form.key(key) {
            FormKey::Used => KeyOutcome::Taken,
            FormKey::Next => {
                (self.quiet_period, self.scroll) = (None, 0);
                KeyOutcome::Taken
            }
            FormKey::Refuse => {
                self.refusal = Some(String::new());
                KeyOutcome::Taken
            }
            FormKey::Edit(plan) => KeyOutcome::EditPlan(plan),
            FormKey::Reply(_) if is_plan && !end_seen => KeyOutcome::Taken,
            FormKey::Invalid(why) => {
                self.hint = Some(why);
                KeyOutcome::Taken
            }
            FormKey::Reply(reply) => self.close(HumanDecision::Reply(reply)),
            FormKey::NotOffered => {
                self.restart_quiet_period(now);
                let Some(letter) = character(key) else { return KeyOutcome::Passed };
                self.unoffered = Some(letter);
                self.hint = Some(format!("[{letter}] is not offered here"));
                KeyOutcome::Taken
            }
        }
    }

    /// Rows of the current request; empty if none is open. The detail gets the rows that the other
    /// parts leave of `rows_max`, but at least one, so the result may be longer. The first call for
    /// a request starts its quiet period.
    pub(super) fn rows(
        &mut self,
        columns: usize,
        rows_max: usize,
        status: &Status,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        let waiting = self.open.len();
        if waiting > 0 {
            self.quiet_period.get_or_insert_with(|| QuietPeriod::begin(now));
        }
        let Some(open) = self.open.front() else { return Vec::new() };
        let rule = span(theme, Role::Warn, "─".repeat(columns));
        let mut rows = vec![Line::from(rule)];
        let (nth, all) = (self.decided + 1, self.decided + waiting);
        let position = if all > 1 { format!(" ({nth} of {all})") } else { String::new() };
        let title = match &open.form {
            // The plan begins with its title.
            Some(form) if form.is_plan() => "Accept this plan?",
            None if open.repeats_command() => "Run this command?",
            _ => open.summary.as_str(),
        };
        let title = [span(theme, Role::Strong, format!("{title}{position}"))];
        let mark = [span(theme, Role::Warn, "? ")];
        rows.extend(wrap(&title, columns, &mark, &[Span::raw("  ")]).into_iter().take(3));
        let walk = open.hunks.as_ref().and_then(HunkForm::walk);
        let mut facts = self.facts(open, columns, status, theme);
        // A command is read first; a change may be long.
        let facts_above = if open.is_command() { Vec::new() } else { std::mem::take(&mut facts) };
        rows.extend(facts_above);
        if let Some(walk) = walk {
            rows.push(row(theme, Role::Strong, format!("  {}", walk.title())));
        }
        let (detail, cursor) = match (&open.form, walk) {
            (Some(form), _) => form.rows(columns, theme),
            (None, Some(walk)) => {
                let diff = format!("--- a\n+++ b\n{}", walk.diff());
                (detail_rows(&diff, columns, theme), 0)
            }
            (None, None) if open.is_command() => (command_rows(&open.detail, columns, theme), 0),
            (None, None) => (detail_rows(&open.detail, columns, theme), 0),
        };
        let free = rows_max.saturating_sub(rows.len() + facts.len() + 1);
        let keys = self.keys(open, (columns, free), detail.len(), theme, now);
        let follows_cursor = open.form.as_ref().is_some_and(|form| !form.is_plan());
        // One row is reserved for the scroll position.
        let room = rows_max.saturating_sub(rows.len() + facts.len() + keys.len() + 1).max(1);
        self.size = (detail.len(), room);
        self.scroll = self.scroll.min(detail.len().saturating_sub(room));
        if follows_cursor && cursor > 0 {
            self.scroll = self.scroll.clamp((cursor + 1).saturating_sub(room), cursor);
        }
        let end = (self.scroll + room).min(detail.len());
        let left = detail.len() - end;
        if left == 0 {
            self.end_seen = true;
        }
        let above = self.scroll;
        rows.extend(detail.into_iter().skip(above).take(room));
        if left > 0 || above > 0 {
            let text = format!("  ↑ {above} above · ↓ {left} below (arrows, PgUp, PgDn, End)");
            rows.push(row(theme, Role::Warn, clipped(&text, columns)));
        }
        rows.extend(facts);
        if !self.end_seen && !self.is_writing() && !follows_cursor {
            let text = match walk {
                Some(_) => "  End shows the end; then you can take it · [n] leave · [q] back",
                None => "  End shows the end; then you can allow it · [n] no · [r] no, and say why",
            };
            rows.push(row(theme, Role::Strong, clipped(text, columns)));
            return rows;
        }
        rows.extend(keys);
        rows
    }

    /// Rows with the agent that asks, the reason, and where the call runs.
    fn facts(
        &self,
        open: &PermissionPrompt,
        columns: usize,
        status: &Status,
        theme: Theme,
    ) -> Vec<TextRow> {
        let mut rows = Vec::new();
        let mut add = |fact: String, rows_max: usize| {
            let text = [span(theme, Role::Dim, fact)];
            let mut lines = wrap(&text, columns, &[Span::raw("  ")], &[Span::raw("    ")]);
            if lines.len() > rows_max {
                lines.truncate(rows_max);
                let last = lines[rows_max - 1].spans.pop();
                let room = columns.saturating_sub(lines[rows_max - 1].width());
                let text = last.map_or_else(String::new, |last| last.content.into_owned());
                // The ellipsis also marks that rows follow.
                let text = clipped(&format!("{text} {}", " ".repeat(columns)), room);
                let text = format!("{}…", text.trim_end_matches(['…', ' ']));
                lines[rows_max - 1].push_span(span(theme, Role::Dim, text));
            }
            rows.append(&mut lines);
        };
        if let Some(agent) = &open.agent {
            add(format!("asked by {agent}"), EXPLAINED_ROWS_MAX);
        }
        // "the model asks" says nothing about a plan or a question.
        if !open.reason.is_empty() && open.form.is_none() {
            let rows_max = if self.is_explained { EXPLAINED_ROWS_MAX } else { WHY_ROWS_MAX };
            add(open.reason.clone(), rows_max);
        }
        if self.is_explained && !open.grant_text.is_empty() {
            add(open.grant_text.clone(), EXPLAINED_ROWS_MAX);
        }
        if open.form.is_some() {
            return rows;
        }
        let folder = if self.is_explained { open.cwd.clone() } else { status.short(&open.cwd) };
        let folder = clipped_front(&folder, columns / 2);
        let place = if is_diff(&open.detail) {
            format!("in {folder}")
        } else {
            format!("in {folder} · {}", confinement(&status.tier))
        };
        // The confinement is never cut off.
        add(place, EXPLAINED_ROWS_MAX);
        rows
    }

    /// Rows with the answers or the text that is being written. `size`: columns, and rows for the
    /// detail and these rows; `detail`: rows of the detail.
    fn keys(
        &self,
        open: &PermissionPrompt,
        (columns, rows_max): (usize, usize),
        detail: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        if let Some(reason) = &self.refusal {
            let label = if open.form.is_some() { "for the model: " } else { "no, because: " };
            let text = [
                span(theme, Role::Strong, label),
                span(theme, Role::Text, format!("{}▏", escape_invisible(reason))),
            ];
            let mut rows = wrap(&text, columns, &[Span::raw("  ")], &[Span::raw("    ")]);
            rows.drain(..rows.len().saturating_sub(REASON_ROWS_MAX));
            let keys = "  Enter tells the model · Esc goes back to the question";
            rows.push(row(theme, Role::Dim, clipped(keys, columns)));
            return rows;
        }
        if let Some(form) = &open.form {
            let dim = self.quiet_period_left(now).is_some();
            return form.keys(columns, theme, dim, self.hint.as_deref());
        }
        if self.confirming {
            let text = "  everywhere, in every project? [a] again: yes, everywhere · [n] no";
            return wrap(&[span(theme, Role::Warn, text)], columns, &[], &[Span::raw("  ")]);
        }
        if self.hunks().is_some() {
            return self.hunk_keys(columns, theme, self.quiet_period_left(now).is_some());
        }
        let list = self.answer_list(open, columns, theme, now);
        let line = self.answer_line(open, columns, theme, now);
        let room = |keys: &[TextRow]| rows_max.saturating_sub(keys.len());
        // A detail that fits next to the short form is not scrolled for the list.
        let scrolls_anyway = room(&line) < detail && room(&list) >= DETAIL_ROWS_MIN;
        if room(&list) >= detail || scrolls_anyway { list } else { line }
    }
}

impl PermissionPrompt {
    /// True if the detail is a command.
    fn is_command(&self) -> bool {
        self.form.is_none() && self.summary.starts_with("run ") && !is_diff(&self.detail)
    }

    /// True if the summary says no more than the detail.
    fn repeats_command(&self) -> bool {
        let command = self.summary.strip_prefix("run ").filter(|_| self.is_command());
        command.is_some_and(|command| command == escape_invisible(self.detail.trim_end()))
    }
}

/// The reason of a request without its part about a saved answer.
fn without_grant(reason: &str, grant_text: &str) -> String {
    if grant_text.is_empty() {
        return reason.to_owned();
    }
    reason.replacen(&format!("; {grant_text}"), "", 1)
}

/// The scope of the answer `letter`, if it is one of `scopes` or allows once; `None` for other
/// letters.
fn offered_scope(letter: char, scopes: &[Scope]) -> Option<Scope> {
    let scope = match letter.to_ascii_lowercase() {
        'y' => Scope::Once,
        'i' => Scope::Agent,
        's' => Scope::Session,
        'p' => Scope::Project,
        'a' | 'g' => Scope::Global,
        _ => return None,
    };
    (scope == Scope::Once || scopes.contains(&scope)).then_some(scope)
}

/// Adds a character that is not a control character to the reason of a refusal, up to
/// [`REASON_CHARS_MAX`].
fn add_character(reason: &mut String, c: char) {
    if !c.is_control() && reason.chars().count() < REASON_CHARS_MAX {
        reason.push(c);
    }
}

fn agent_label(origin: &Origin) -> String {
    escape_invisible(&label_with_id(&origin.agent_path, &origin.invocation_id))
}

fn confinement(tier: &SandboxTier) -> &'static str {
    match tier {
        SandboxTier::Full => "commands run in the sandbox",
        SandboxTier::Reduced => "commands run in a reduced sandbox: they can read secret files",
        _ => "no sandbox: it runs with all your rights",
    }
}

/// Rows of the detail, with every character visible: invisible ones are escaped, and trailing white
/// space is shown as dots. In a diff, tabs become spaces.
fn detail_rows(detail: &str, columns: usize, theme: Theme) -> Vec<TextRow> {
    let bar = [span(theme, Role::Dim, "  │ ")];
    let below = [span(theme, Role::Dim, "  ┆ ")];
    if is_diff(detail) {
        let rows = diff::rows(&visible(detail), columns.saturating_sub(4), usize::MAX, theme);
        return rows.into_iter().map(|row| prefixed(&bar, row)).collect();
    }
    detail
        .split_terminator('\n')
        .flat_map(|line| {
            let text = trailing(&escape_invisible(line).replace('\t', "\\t"));
            break_rows(&text, columns, &bar, &below, theme)
        })
        .collect()
}

/// Rows of a command, highlighted, with every character visible.
fn command_rows(detail: &str, columns: usize, theme: Theme) -> Vec<TextRow> {
    let mut rows = detail_rows(detail, columns, theme);
    let mut highlighter = Highlighter::of("sh");
    let mut shown = rows.iter_mut();
    for line in detail.split_terminator('\n') {
        let text = trailing(&escape_invisible(line).replace('\t', "\\t"));
        let mut pieces = highlighter.line(&text).into_iter();
        let mut piece = pieces.next();
        let mut left = text.len();
        loop {
            // The row of an empty line has only a bar.
            let Some(row) = shown.next() else { return rows };
            let mut room = row.spans.get(1).map_or(0, |span| span.content.len());
            row.spans.truncate(1);
            left -= room;
            while let Some((role, rest)) = piece.filter(|_| room > 0) {
                let (now, later) = rest.split_at(room.min(rest.len()));
                row.spans.push(span(theme, role, now));
                room -= now.len();
                piece = if later.is_empty() { pieces.next() } else { Some((role, later)) };
            }
            if left == 0 {
                break;
            }
        }
    }
    rows
}

/// Replaces trailing white space with visible dots.
fn trailing(line: &str) -> String {
    let kept = line.trim_end();
    format!("{kept}{}", "·".repeat(line[kept.len()..].chars().count()))
}

fn visible(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| trailing(&escape_invisible(line).replace('\t', "    ")))
        .collect();
    lines.join("\n")
}

fn is_diff(detail: &str) -> bool {
    let mut lines = detail.lines();
    lines.next().is_some_and(|line| line.starts_with("--- "))
        && lines.next().is_some_and(|line| line.starts_with("+++ "))
        && lines.next().is_some_and(|line| line.starts_with("@@ -"))
}
