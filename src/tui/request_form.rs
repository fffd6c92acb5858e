//! Questions and plans of the model as a form: cursor, chosen options, and the text that the user
//! writes.

use std::collections::BTreeSet;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::event::{
    PermissionMode, QuestionAnswer, REPLY_CHARS_MAX, UserQuestion, UserReply, UserRequest,
};
use posse_frontend::plan_modes::mode_key;
use ratatui::text::{Line, Span};

use crate::input::{character, ctrl};
use crate::markdown;
use crate::text::{TextRow, clipped, escape_invisible, prefixed, row, span, text_rows, wrap};
use crate::theme::{Role, Theme};

/// Maximum number of rows of the text that the user writes; the last ones are shown.
const TEXT_ROWS_MAX: usize = 6;

/// Effect of a key on a form.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FormKey {
    /// The key was used and decides nothing.
    Used,
    /// The next question is shown.
    Next,
    /// The key has no meaning here.
    NotOffered,
    /// The user refuses, and may say why.
    Refuse,
    /// The user wants to change this plan in an editor.
    Edit(String),
    /// The request is answered.
    Reply(UserReply),
    /// The answer does not fit the request, for this reason.
    Invalid(String),
}

/// Open request of the model, with the answers so far.
#[derive(Debug, Clone)]
pub(super) struct RequestForm {
    request: UserRequest,
    answers: Vec<QuestionAnswer>,
    /// Index of the option under the cursor; the number of options for the user's own words.
    cursor: usize,
    /// Chosen options of a question with several answers.
    chosen: BTreeSet<usize>,
    /// Text that the user writes; `None` if none is being written.
    text: Option<String>,
    /// The plan as the user has changed it.
    changed: Option<String>,
}

impl RequestForm {
    pub(super) fn new(request: UserRequest) -> RequestForm {
        let mut form = RequestForm {
            request,
            answers: Vec::new(),
            cursor: 0,
            chosen: BTreeSet::new(),
            text: None,
            changed: None,
        };
        form.begin_question();
        form
    }

    /// True for a plan, false for questions.
    pub(super) fn is_plan(&self) -> bool {
        matches!(self.request, UserRequest::Plan { .. })
    }

    /// True while keys are text.
    pub(super) fn is_writing(&self) -> bool {
        self.text.is_some()
    }

    /// Drops the text that is being written. Returns false if the question has no other answer.
    pub(super) fn drop_text(&mut self) -> bool {
        let has_options = self.question().is_some_and(|question| !question.options.is_empty());
        if has_options {
            self.text = None;
        }
        has_options
    }

    /// Adds a pasted text to the one that is being written. Returns false if none is.
    pub(super) fn paste(&mut self, text: &str) -> bool {
        if self.text.is_none() {
            return false;
        }
        text.chars().for_each(|c| self.add(c));
        true
    }

    /// Replaces the plan by the one that the user has edited.
    pub(super) fn set_plan(&mut self, text: &str) {
        if let UserRequest::Plan { plan, .. } = &self.request {
            self.changed = (text.trim() != plan.trim()).then(|| text.to_owned());
        }
    }

    fn question(&self) -> Option<&UserQuestion> {
        match &self.request {
            UserRequest::Questions { questions, .. } => questions.get(self.answers.len()),
            UserRequest::Plan { .. } => None,
        }
    }

    fn begin_question(&mut self) {
        self.chosen.clear();
        let Some(question) = self.question() else { return };
        let default = question.default.as_ref();
        let of_default = question.options.iter().position(|option| Some(&option.label) == default);
        let text = question.options.is_empty().then(String::new);
        // Another default is a text.
        let first = if default.is_some() { question.options.len() } else { 0 };
        (self.cursor, self.text) = (of_default.unwrap_or(first), text);
    }

    fn add(&mut self, c: char) {
        if let Some(text) = &mut self.text
            && (!c.is_control() || c == '\n')
            && text.chars().count() < REPLY_CHARS_MAX
        {
            text.push(c);
        }
    }

    /// Moves the cursor by an arrow key. Returns false if there is nothing to choose.
    pub(super) fn go(&mut self, down: bool) -> bool {
        let Some(question) = self.question().filter(|question| !question.options.is_empty()) else {
            return false;
        };
        let last = question.options.len() - usize::from(!question.free_text);
        self.cursor =
            if down { (self.cursor + 1).min(last) } else { self.cursor.saturating_sub(1) };
        true
    }

    /// Handles a key, which counts as an answer.
    pub(super) fn key(&mut self, key: KeyEvent) -> FormKey {
        if self.is_writing() {
            return self.write(key);
        }
        let letter = character(key).map(|c| c.to_ascii_lowercase());
        if let UserRequest::Plan { plan, modes } = &self.request {
            return match letter {
                Some('n' | 'r') => FormKey::Refuse,
                Some('o') => FormKey::Edit(self.changed.clone().unwrap_or_else(|| plan.clone())),
                Some(letter) => {
                    let mode = modes
                        .iter()
                        .copied()
                        .find(|mode| mode_key(*mode).is_some_and(|(key, _)| key == letter));
                    mode.map_or(FormKey::NotOffered, |mode| {
                        let reply = UserReply::Plan { mode, plan: self.changed.clone() };
                        match self.request.check(&reply) {
                            Ok(()) => FormKey::Reply(reply),
                            Err(why) => FormKey::Invalid(why),
                        }
                    })
                }
                None => FormKey::NotOffered,
            };
        }
        let Some(question) = self.question() else { return FormKey::NotOffered };
        let (count, multiple) = (question.options.len(), question.multiple);
        let (own_words, has_default) = (question.free_text, question.default.is_some());
        match (key.code, letter) {
            (KeyCode::Left | KeyCode::Backspace, _) if !self.answers.is_empty() => {
                self.answers.pop();
                self.begin_question();
                FormKey::Next
            }
            (KeyCode::Enter, _) if self.cursor == count => self.begin_text(),
            (KeyCode::Enter, _) if multiple && self.chosen.is_empty() && !has_default => {
                FormKey::Invalid(
                    "nothing is marked: mark with a number or the space bar".to_owned(),
                )
            }
            (KeyCode::Enter, _) if multiple => {
                let chosen = std::mem::take(&mut self.chosen);
                self.choose(&chosen, None)
            }
            (KeyCode::Enter, _) => self.choose(&BTreeSet::from([self.cursor]), None),
            (_, Some(' ')) if multiple && self.cursor < count => self.toggle(self.cursor),
            (_, Some('t')) if own_words => self.begin_text(),
            (_, Some('x')) => FormKey::Refuse,
            (_, Some(digit @ '1'..='9')) => {
                let at = usize::try_from(u32::from(digit) - u32::from('1')).unwrap_or(count);
                match (at < count, multiple) {
                    (false, _) => FormKey::NotOffered,
                    (true, true) => self.toggle(at),
                    (true, false) => self.choose(&BTreeSet::from([at]), None),
                }
            }
            _ => FormKey::NotOffered,
        }
    }

    fn begin_text(&mut self) -> FormKey {
        self.text = Some(String::new());
        FormKey::Used
    }

    fn toggle(&mut self, at: usize) -> FormKey {
        self.cursor = at;
        if !self.chosen.remove(&at) {
            self.chosen.insert(at);
        }
        FormKey::Used
    }

    fn choose(&mut self, chosen: &BTreeSet<usize>, text: Option<String>) -> FormKey {
        let options = self.question().map(|question| question.options.clone()).unwrap_or_default();
        let labels = chosen.iter().filter_map(|at| options.get(*at));
        let selected = labels.map(|option| option.label.clone()).collect();
        self.answer(QuestionAnswer { selected, text })
    }

    fn write(&mut self, key: KeyEvent) -> FormKey {
        let Some(text) = &mut self.text else { return FormKey::NotOffered };
        match key.code {
            KeyCode::Enter => {
                let text = text.trim().to_owned();
                let has_default = self.question().is_some_and(|one| one.default.is_some());
                if text.is_empty() && !has_default {
                    return if self.drop_text() { FormKey::Used } else { FormKey::Refuse };
                }
                let chosen = std::mem::take(&mut self.chosen);
                return self.choose(&chosen, (!text.is_empty()).then_some(text));
            }
            KeyCode::Backspace => drop(text.pop()),
            _ if key == ctrl('u') => text.clear(),
            _ => {
                if let Some(c) = character(key) {
                    self.add(c);
                }
            }
        }
        FormKey::Used
    }

    fn answer(&mut self, answer: QuestionAnswer) -> FormKey {
        self.answers.push(answer);
        self.text = None;
        self.begin_question();
        if self.question().is_some() {
            return FormKey::Next;
        }
        FormKey::Reply(UserReply::Questions { answers: std::mem::take(&mut self.answers) })
    }

    /// Rows of the plan, or of the current question, and the index of the row under the cursor.
    pub(super) fn rows(&self, columns: usize, theme: Theme) -> (Vec<TextRow>, usize) {
        match &self.request {
            UserRequest::Plan { plan, .. } => {
                let plan = self.changed.as_ref().unwrap_or(plan);
                let inner = columns.saturating_sub(4);
                // A person accepts the whole plan, so none of its text may be left out.
                let rows = if markdown::hides_text(plan) {
                    let lines = plan.lines().map(escape_invisible);
                    lines.flat_map(|line| text_rows(theme, Role::Text, &line, inner)).collect()
                } else {
                    markdown::rows(plan, inner, theme)
                };
                let bar = [span(theme, Role::Dim, "  │ ")];
                (rows.into_iter().map(|row| prefixed(&bar, row)).collect(), 0)
            }
            UserRequest::Questions { questions, .. } => {
                let position = match questions.len() {
                    0 | 1 => String::new(),
                    all => format!("({} of {all}) ", self.answers.len() + 1),
                };
                self.question().map_or_else(Default::default, |question| {
                    self.question_rows(question, &position, columns, theme)
                })
            }
        }
    }

    fn question_rows(
        &self,
        question: &UserQuestion,
        position: &str,
        columns: usize,
        theme: Theme,
    ) -> (Vec<TextRow>, usize) {
        let under = [Span::raw("  ")];
        let mut rows = Vec::new();
        for (nth, line) in question.question.split('\n').enumerate() {
            let position = if nth == 0 { position } else { "" };
            let text = format!("{position}{}", escape_invisible(line));
            rows.extend(wrap(&[span(theme, Role::Strong, text)], columns, &under, &under));
        }
        let mut cursor_row = 0;
        for (at, option) in question.options.iter().enumerate() {
            let is_current = at == self.cursor && !self.is_writing();
            if is_current {
                cursor_row = rows.len();
            }
            let mark = if is_current { "❯ " } else { "  " };
            let chosen = match (question.multiple, self.chosen.contains(&at)) {
                (false, _) => "",
                (true, true) => "[x] ",
                (true, false) => "[ ] ",
            };
            let role = if is_current { Role::Selected } else { Role::Text };
            let mut text = vec![
                span(theme, Role::Strong, format!("{}. {chosen}", at + 1)),
                span(theme, role, escape_invisible(&option.label)),
            ];
            if let Some(about) = &option.description {
                text.push(span(theme, Role::Dim, format!("  {}", escape_invisible(about))));
            }
            let first = [Span::raw("  "), span(theme, Role::User, mark)];
            rows.extend(wrap(&text, columns, &first, &[Span::raw("       ")]));
        }
        if question.free_text && !question.options.is_empty() {
            let is_current = self.cursor == question.options.len() && !self.is_writing();
            if is_current {
                cursor_row = rows.len();
            }
            let mark = if is_current { "  ❯ " } else { "    " };
            rows.push(row(theme, Role::Dim, format!("{mark}t. your own words")));
        }
        (rows, cursor_row)
    }

    /// Rows with the keys, or with the text that is being written. `dim`: true while keys do not
    /// count; `hint`: why the last key had no effect.
    pub(super) fn keys(
        &self,
        columns: usize,
        theme: Theme,
        dim: bool,
        hint: Option<&str>,
    ) -> Vec<TextRow> {
        let under = [Span::raw("  ")];
        if let Some(text) = &self.text {
            let text = [
                span(theme, Role::User, "❯ "),
                span(theme, Role::Text, format!("{}▏", escape_invisible(text))),
            ];
            let mut rows = wrap(&text, columns, &under, &[Span::raw("    ")]);
            rows.drain(..rows.len().saturating_sub(TEXT_ROWS_MAX));
            let default = self.question().and_then(|question| question.default.as_ref());
            let without = match (default, self.question()) {
                (Some(text), _) => format!("Enter without a text: {}", escape_invisible(text)),
                (None, Some(question)) if question.options.is_empty() => {
                    "Enter without a text: no answer".to_owned()
                }
                (None, _) => "Esc goes back to the options".to_owned(),
            };
            let keys = format!("Enter sends it · {without}");
            rows.extend(wrap(&[span(theme, Role::Dim, keys)], columns, &under, &under));
            return rows;
        }
        let (strong, plain) = if dim { (Role::Dim, Role::Dim) } else { (Role::Strong, Role::Text) };
        if self.is_plan() {
            let mut rows = vec![Line::default()];
            for (key, what) in self.offered() {
                let first = [span(theme, strong, format!("  [{key}] "))];
                rows.extend(wrap(
                    &[span(theme, plain, what)],
                    columns,
                    &first,
                    &[Span::raw("      ")],
                ));
            }
            let (role, text) = hint.map_or_else(
                || (Role::Dim, "Esc stops the run".to_owned()),
                |hint| (Role::Warn, escape_invisible(hint)),
            );
            rows.push(row(theme, role, clipped(&format!("  {text}"), columns)));
            return rows;
        }
        let mut spans = Vec::new();
        for (key, what) in self.offered() {
            spans.push(span(theme, strong, format!("[{key}]")));
            spans.push(span(theme, plain, format!(" {what}  ")));
        }
        spans.push(match hint {
            Some(hint) => span(theme, Role::Warn, format!("· {}", escape_invisible(hint))),
            None => span(theme, Role::Dim, "· Esc stops the run"),
        });
        wrap(&spans, columns, &under, &under)
    }

    /// The keys with their meaning.
    fn offered(&self) -> Vec<(String, String)> {
        let key = |key: &str, what: &str| (key.to_owned(), what.to_owned());
        if let UserRequest::Plan { modes, .. } = &self.request {
            let accept = |mode: &PermissionMode| {
                mode_key(*mode).map(|(letter, what)| (letter.to_string(), what.to_owned()))
            };
            let mut keys: Vec<_> = modes.iter().filter_map(accept).collect();
            let edit = if self.changed.is_some() { "edit it again" } else { "edit it first" };
            keys.extend([key("o", edit), key("n", "no, and say what to change")]);
            return keys;
        }
        let Some(question) = self.question() else { return Vec::new() };
        let digits = format!("1-{}", question.options.len());
        let mut keys = if question.multiple {
            vec![(digits, "mark".to_owned()), key("Enter", "send the marked ones")]
        } else {
            vec![(digits, "choose".to_owned())]
        };
        if question.free_text {
            keys.push(key("t", "your own words"));
        }
        let current = question.options.get(self.cursor).map(|option| &option.label);
        let default = question.default.as_ref();
        let default = default.filter(|default| {
            if question.multiple {
                self.chosen.is_empty() && current.is_some()
            } else {
                current == Some(*default)
            }
        });
        if let Some(default) = default {
            keys.push(("Enter".to_owned(), format!("default: {}", escape_invisible(default))));
        }
        if !self.answers.is_empty() {
            keys.push(key("←", "the question before"));
        }
        keys.push(key("x", "no answer"));
        keys
    }
}

#[cfg(test)]
mod tests;
