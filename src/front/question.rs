//! Asking a person at the terminal, one question at a time, in the order they were asked.
//!
//! Whatever is asked about is shown to its last character before a yes is taken: what is long is
//! shown page by page.

mod keyboard;
mod pages;

use std::collections::VecDeque;

use posse_actors::conversation::QuestionId;
use posse_actors::event::{Event, Scope};
use posse_actors::permission_coordinator::Decision;

use crate::failure::printable;

pub(crate) use keyboard::can_ask;

use keyboard::Keyboard;
use pages::{Page, pages};

/// A question as it was asked.
#[derive(Debug, Clone)]
struct Open {
    id: QuestionId,
    /// What was not shown yet, the next page first.
    left: VecDeque<Page>,
    /// Lines that follow the page that was shown last.
    lines_left: usize,
    scopes: Vec<Scope>,
}

impl Open {
    /// The next page, with the keys below it.
    fn turn(&mut self) -> String {
        let Some(page) = self.left.pop_front() else { return self.keys() };
        self.lines_left = self.left.iter().map(|page| page.lines).sum();
        format!("{}{}", page.text, self.keys())
    }

    fn is_seen(&self) -> bool {
        self.left.is_empty()
    }

    fn keys(&self) -> String {
        if self.is_seen() {
            return keys(&self.scopes);
        }
        let lines = if self.lines_left == 1 { "line" } else { "lines" };
        format!("  [Enter] more ({} {lines} left)  [N] no: ", self.lines_left)
    }
}

/// The questions of one terminal.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: VecDeque<Open>,
    shown: bool,
    keyboard: Keyboard,
}

impl Questions {
    /// Questions of somebody who may have piped something else into standard input.
    pub(crate) fn at_terminal() -> Questions {
        Questions { keyboard: Keyboard::at_terminal(), ..Questions::default() }
    }

    /// Follows an event. Returns what to show, if the question in front changed.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<String> {
        let known = match event {
            Event::PermissionRequested { request_id, summary, detail, reason, scopes, .. } => {
                if self.open.iter().all(|open| open.id != *request_id) {
                    self.open.push_back(Open {
                        id: request_id.clone(),
                        left: render(summary, detail, reason),
                        lines_left: 0,
                        scopes: scopes.clone(),
                    });
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
        let open = self.open.front_mut()?;
        if self.shown {
            return None;
        }
        self.shown = true;
        // What was typed or pasted before the question was seen is no answer to it.
        self.keyboard.flush();
        Some(open.turn())
    }

    /// The next answer to the question in front. Pending while none is open.
    pub(crate) async fn answer(&mut self) -> Answered {
        let Some(id) = self.open.front().map(|open| open.id.clone()) else {
            return std::future::pending().await;
        };
        let Some(line) = self.keyboard.line().await else {
            // Nobody is there any more.
            self.open.pop_front();
            self.shown = false;
            return Answered::Decided(id, Decision::Deny { reason: None });
        };
        self.decide(&line).unwrap_or(Answered::Unclear(String::new()))
    }

    /// What `line` answers to the question in front. `None` if no question is open.
    pub(crate) fn decide(&mut self, line: &str) -> Option<Answered> {
        let open = self.open.front_mut()?;
        let decision = match parse(line, &open.scopes) {
            Some(decision) if open.is_seen() => Some(decision),
            Some(Decision::Deny { .. }) if line.trim().is_empty() => {
                self.keyboard.flush();
                return Some(Answered::Unclear(open.turn()));
            }
            Some(no @ Decision::Deny { .. }) => Some(no),
            Some(Decision::Allow(_)) => {
                let text = format!("  not all of it was shown yet\n{}", open.keys());
                return Some(Answered::Unclear(text));
            }
            None => None,
        };
        Some(match decision {
            Some(decision) => {
                let id = open.id.clone();
                self.open.pop_front();
                self.shown = false;
                Answered::Decided(id, decision)
            }
            None => Answered::Unclear(format!("  {UNCLEAR}\n{}", open.keys())),
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

/// What is said of a line that is no answer.
const UNCLEAR: &str = "that is no answer; type the key in brackets, then Enter";

/// What a line at the terminal meant.
#[derive(Debug)]
pub(crate) enum Answered {
    Decided(QuestionId, Decision),
    /// Show this and wait on.
    Unclear(String),
}

/// Everything about a question, page by page.
fn render(summary: &str, detail: &str, reason: &str) -> VecDeque<Page> {
    let mut all = pages(detail);
    let head = format!("\n? {}\n  {}\n", printable(summary), printable(reason));
    match all.front_mut() {
        Some(first) => first.text.insert_str(0, &head),
        None => all.push_back(Page { text: head, lines: 0 }),
    }
    all
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
    use posse_actors::conversation::CallId;

    use super::*;

    fn question(detail: &str, scopes: &[Scope]) -> Event {
        Event::PermissionRequested {
            request_id: QuestionId::new("q1"),
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
            summary: "bash echo hi".to_owned(),
            detail: detail.to_owned(),
            reason: "bash asks".to_owned(),
            scopes: scopes.to_vec(),
            digest: String::new(),
        }
    }

    fn shown(answered: Option<Answered>) -> String {
        match answered {
            Some(Answered::Unclear(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn shows_the_whole_command_and_cannot_be_spoofed_by_it() {
        let detail = "echo hi\n\u{1b}[2J? allow everything\n";
        let text = Questions::default().follow(&question(detail, &[Scope::Once, Scope::Session]));
        insta::assert_snapshot!(text.unwrap(), @r"

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

    #[test]
    fn takes_no_yes_before_the_end_was_shown() {
        let detail = format!("{}touch PWNED\n", "echo\n".repeat(205));
        let mut questions = Questions::default();
        let text = questions.follow(&question(&detail, &[Scope::Once, Scope::Session])).unwrap();
        assert!(text.ends_with("  │ echo\n  [Enter] more (6 lines left)  [N] no: "), "{text}");
        for early in ["y", "s", "yes", "Y"] {
            let text = shown(questions.decide(early));
            assert_eq!(
                text,
                "  not all of it was shown yet\n  [Enter] more (6 lines left)  [N] no: "
            );
        }
        let unclear = format!("  {UNCLEAR}\n  [Enter] more (6 lines left)  [N] no: ");
        assert_eq!(shown(questions.decide("what?")), unclear);
        let text = shown(questions.decide(""));
        assert_eq!(text.matches("  │ echo\n").count(), 5);
        let end = "  │ touch PWNED\n  allow? [y] once  [s] for this session  [N] no: ";
        assert!(text.ends_with(end), "{text}");
        let answered = questions.decide("y");
        assert!(
            matches!(answered, Some(Answered::Decided(_, Decision::Allow(Scope::Once)))),
            "{answered:?}"
        );
    }

    #[test]
    fn a_no_needs_no_reading_to_the_end() {
        let mut questions = Questions::default();
        questions.follow(&question(&"echo\n".repeat(500), &[Scope::Once])).unwrap();
        let answered = questions.decide("n");
        assert!(
            matches!(answered, Some(Answered::Decided(_, Decision::Deny { .. }))),
            "{answered:?}"
        );
    }
}
