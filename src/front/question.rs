//! Asking a person at the terminal, one question at a time, in the order they were asked.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use nix::sys::termios::{FlushArg, tcflush};
use posse_actors::conversation::QuestionId;
use posse_actors::event::{Event, Scope};
use posse_actors::permission_coordinator::Decision;
use tokio::sync::mpsc;

use crate::failure::{printable, printable_lines};

/// Lines of a command or a diff that are shown; the rest is counted.
const DETAIL_LINES_MAX: usize = 200;

/// A question as it was asked.
#[derive(Debug, Clone)]
struct Open {
    id: QuestionId,
    text: String,
    scopes: Vec<Scope>,
}

/// The questions of one terminal.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: VecDeque<Open>,
    shown: bool,
    lines: Option<mpsc::Receiver<String>>,
}

impl Questions {
    /// Follows an event. Returns what to show, if the question in front changed.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<String> {
        let known = match event {
            Event::PermissionRequested { request_id, summary, detail, reason, scopes, .. } => {
                if self.open.iter().all(|open| open.id != *request_id) {
                    let text = render(summary, detail, reason, scopes);
                    let scopes = scopes.clone();
                    self.open.push_back(Open { id: request_id.clone(), text, scopes });
                }
                return self.show();
            }
            Event::PermissionGranted { request_id, .. }
            | Event::PermissionDenied { request_id, .. }
            | Event::PermissionWithdrawn { request_id, .. } => request_id,
            _ => return None,
        };
        let front = self.open.front().is_some_and(|open| open.id == *known);
        self.open.retain(|open| open.id != *known);
        if front {
            self.shown = false;
        }
        self.show()
    }

    fn show(&mut self) -> Option<String> {
        let open = self.open.front()?;
        if self.shown {
            return None;
        }
        self.shown = true;
        // What was typed or pasted before the question was seen is no answer to it.
        tcflush(io::stdin(), FlushArg::TCIFLUSH).ok();
        Some(open.text.clone())
    }

    /// The next answer to the question in front. Pending while none is open.
    pub(crate) async fn answer(&mut self) -> Answered {
        let Some(open) = self.open.front().cloned() else {
            return std::future::pending().await;
        };
        let lines = self.lines.get_or_insert_with(read_lines);
        let Some(line) = lines.recv().await else {
            // Nobody is there any more.
            self.open.pop_front();
            self.shown = false;
            return Answered::Decided(open.id, Decision::Deny { reason: None });
        };
        self.decide(&line).unwrap_or(Answered::Unclear(String::new()))
    }

    /// What `line` answers to the question in front. `None` if no question is open.
    pub(crate) fn decide(&mut self, line: &str) -> Option<Answered> {
        let open = self.open.front()?;
        Some(match parse(line, &open.scopes) {
            Some(decision) => {
                let id = open.id.clone();
                self.open.pop_front();
                self.shown = false;
                Answered::Decided(id, decision)
            }
            None => Answered::Unclear(keys(&open.scopes)),
        })
    }

    /// Forgets every question: the run that asked them is over.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.shown = false;
    }

    /// The text of the question that comes next, if one is open.
    pub(crate) fn next_text(&mut self) -> Option<String> {
        self.show()
    }
}

/// What a line at the terminal meant.
#[derive(Debug)]
pub(crate) enum Answered {
    Decided(QuestionId, Decision),
    /// Show this and wait on.
    Unclear(String),
}

fn read_lines() -> mpsc::Receiver<String> {
    let (lines, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn render(summary: &str, detail: &str, reason: &str, scopes: &[Scope]) -> String {
    let mut text = format!("\n? {}\n  {}\n", printable(summary), printable(reason));
    for line in detail.lines().take(DETAIL_LINES_MAX) {
        text.push_str("  │ ");
        text.push_str(&printable_lines(line));
        text.push('\n');
    }
    let hidden = detail.lines().count().saturating_sub(DETAIL_LINES_MAX);
    if hidden > 0 {
        let more = format!("  │ … {hidden} more lines\n");
        text.push_str(&more);
    }
    text.push_str(&keys(scopes));
    text
}

fn keys(scopes: &[Scope]) -> String {
    let mut text = String::from("  allow? [y] once");
    if scopes.contains(&Scope::Session) {
        text.push_str("  [s] for this session");
    }
    text.push_str("  [N] no: ");
    text
}

fn parse(line: &str, scopes: &[Scope]) -> Option<Decision> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Decision::Allow(Scope::Once)),
        "s" | "session" if scopes.contains(&Scope::Session) => {
            Some(Decision::Allow(Scope::Session))
        }
        "" | "n" | "no" => Some(Decision::Deny { reason: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_whole_command_and_cannot_be_spoofed_by_it() {
        let detail = "echo hi\n\u{1b}[2J? allow everything\n";
        let scopes = [Scope::Once, Scope::Session];
        insta::assert_snapshot!(render("bash echo hi", detail, "bash asks", &scopes), @r"

        ? bash echo hi
          bash asks
          │ echo hi
          │ \u{1b}[2J? allow everything
          allow? [y] once  [s] for this session  [N] no: 
        ");
    }

    #[test]
    fn takes_nothing_unclear_for_a_yes() {
        let once = [Scope::Once];
        assert_eq!(parse("y", &once), Some(Decision::Allow(Scope::Once)));
        assert_eq!(parse("", &once), Some(Decision::Deny { reason: None }));
        assert_eq!(parse("s", &once), None);
        assert_eq!(parse("yy", &once), None);
    }
}
