//! Answers to a permission request: one per row with what it covers or, on low screens, in one text.

use std::time::Duration;

use posse_actors::event::{Scope, TrialOffer};
use posse_frontend::grant_coverage::grant_coverage;
use ratatui::text::{Line, Span};

use super::{PermissionPrompt, PermissionPrompts};
use crate::text::{TextRow, clipped, escape_invisible, span, wrap};
use crate::theme::{Role, Theme};

/// Keys that save an answer, with a long and a short text.
const SAVED: [(Scope, &str, &str, &str); 4] = [
    (Scope::Agent, "i", "yes, for this agent in this session", "for this agent"),
    (Scope::Session, "s", "yes, in this session", "this session"),
    (
        Scope::Project,
        "p",
        "yes, in this project until the grant expires",
        "this project, until the grant expires",
    ),
    (
        Scope::Global,
        "a",
        "yes, everywhere until the grant expires",
        "everywhere, until the grant expires",
    ),
];

/// An answer: key, text in a row of its own, text in a row of all answers, and true if it is saved.
type Answer = (&'static str, &'static str, &'static str, bool);

fn answers(open: &PermissionPrompt) -> Vec<Answer> {
    let mut answers = vec![("y", "yes, once", "once", false)];
    if open.hunks.is_some() {
        answers.push(("h", "hunk by hunk", "hunk by hunk", false));
    }
    answers.extend(match open.trial {
        Some(TrialOffer::Try) => {
            Some(("t", "try it first, then decide about its changes", "try it first", false))
        }
        Some(TrialOffer::Keep) => {
            Some(("k", "keep the changes of the trial", "keep the trial", false))
        }
        Some(TrialOffer::Unknown(_)) | None => None,
    });
    let saved = SAVED.into_iter().filter(|(scope, ..)| open.scopes.contains(scope));
    answers.extend(saved.map(|(_, key, long, short)| (key, long, short, true)));
    answers.extend([("n", "no", "no", false), ("r", "no, and say why", "no, and say why", false)]);
    answers
}

impl PermissionPrompts {
    /// One row per answer, after a blank row.
    pub(super) fn answer_list(
        &self,
        open: &PermissionPrompt,
        columns: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        let (strong, text) = self.answer_roles(now);
        let coverage = open.grant.as_ref().map(|grant| grant_coverage(grant, &open.cwd));
        let coverage = coverage.map(|covered| escape_invisible(&covered));
        let mut rows = vec![Line::default()];
        for (key, what, _, is_saved) in answers(open) {
            let first = [span(theme, strong, format!("  [{key}] "))];
            let mut spans = vec![span(theme, text, what)];
            if let Some(coverage) = coverage.as_ref().filter(|_| is_saved) {
                spans.push(span(theme, text, ": "));
                spans.push(span(theme, strong, coverage.clone()));
                if open.grants_part {
                    spans.push(span(theme, Role::Dim, " (the rest asks again)"));
                }
            }
            rows.extend(wrap(&spans, columns, &first, &[Span::raw("      ")]));
        }
        let (role, text) = self.hint.as_ref().map_or_else(
            || {
                (
                    Role::Dim,
                    "? explains more · Shift+Tab changes the mode · Esc stops the run".into(),
                )
            },
            |hint| (Role::Warn, escape_invisible(hint)),
        );
        rows.push(Line::from(span(theme, role, clipped(&format!("  {text}"), columns))));
        rows
    }

    /// All answers in one text.
    pub(super) fn answer_line(
        &self,
        open: &PermissionPrompt,
        columns: usize,
        theme: Theme,
        now: Duration,
    ) -> Vec<TextRow> {
        let (strong, text) = self.answer_roles(now);
        let mut spans = vec![span(theme, Role::Text, "allow?")];
        for (key, _, what, _) in answers(open) {
            spans.push(span(theme, strong, format!("  [{key}]")));
            spans.push(span(theme, text, format!(" {what}")));
        }
        spans.push(match &self.hint {
            Some(hint) => span(theme, Role::Warn, format!("  · {}", escape_invisible(hint))),
            None => span(theme, Role::Dim, "  · Shift+Tab changes the mode · Esc stops the run"),
        });
        wrap(&spans, columns, &[Span::raw("  ")], &[Span::raw("  ")])
    }

    /// Roles of keys and of their texts: both dim while keys do not count.
    fn answer_roles(&self, now: Duration) -> (Role, Role) {
        match self.quiet_period_left(now) {
            Some(_) => (Role::Dim, Role::Dim),
            None => (Role::Strong, Role::Text),
        }
    }
}

#[cfg(test)]
mod tests;
