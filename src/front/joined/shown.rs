//! What a person sees of a session that runs elsewhere: first what has been, then what happens.
//!
//! Pure. What has been is shown as it ended: of a question only whether it is still open.

use std::sync::Arc;

use posse_actors::conversation::{QuestionId, text_of};
use posse_actors::event::{Announcement, Event, MessageKind};

use crate::failure::{printable, printable_lines};
use crate::front::progress::Progress;
use crate::talk::joining::Accepted;

/// Turns announcements into text.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two are settings, two are what was heard")]
pub(super) struct Shown {
    progress: Progress,
    /// Whether what happens from now on may be drawn as it arrives.
    live: bool,
    color: bool,
    /// Whether whoever sees standard error sees standard output as well.
    one_screen: bool,
    /// The last record of what has been.
    records: u64,
    /// What has been was shown.
    caught_up: bool,
    /// Questions of what has been that nobody has answered.
    open: Vec<Arc<Announcement>>,
    /// The visible text of the reply that is being streamed, as far as it came.
    said: String,
    /// A request was seen whose reply is heard from its beginning.
    whole: bool,
    me: String,
}

/// What an announcement adds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Added {
    /// For standard error.
    pub(super) text: String,
    /// For standard output.
    pub(super) answer: String,
    /// Questions to ask, and ends of questions.
    pub(super) questions: Vec<Arc<Announcement>>,
}

impl Shown {
    pub(super) fn new(accepted: &Accepted, live: bool, color: bool, one_screen: bool) -> Shown {
        Shown {
            progress: Progress::new(false, color).named(&accepted.name),
            live,
            color,
            one_screen,
            records: accepted.records,
            caught_up: accepted.after >= accepted.records,
            open: Vec::new(),
            said: String::new(),
            whole: false,
            me: accepted.name.clone(),
        }
    }

    pub(super) fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    pub(super) fn follow(&mut self, announcement: &Arc<Announcement>) -> Added {
        let mut added = Added::default();
        let event = announcement.event();
        let is_root = announcement.origin().is_none_or(|from| from.parent_invocation_id.is_none());
        if self.is_partial(event) {
            return added;
        }
        added.text = self.words(announcement);
        match event {
            Event::ModelRequest { .. } if is_root => {
                self.said.clear();
                self.whole = self.is_new(announcement);
            }
            Event::TextDelta { text } if is_root => self.said.push_str(text),
            Event::ModelReply { message, .. } if is_root => {
                let said = std::mem::take(&mut self.said);
                let content = message.content.as_deref().unwrap_or_default();
                // What was streamed may have had holes: whoever reads slowly is told the whole.
                let streams = self.caught_up && self.live;
                if streams && said != content && !message.tool_calls.is_empty() {
                    let start = self.progress.finish_line();
                    let whole = printable_lines(content.trim_end());
                    added.text.extend([start, whole.as_str(), "\n"]);
                }
                self.said = said;
            }
            Event::InvocationCompleted { result, .. } if is_root => {
                let seen = self.one_screen && self.progress.shown_live && self.said == *result;
                self.said.clear();
                added.text.push_str(self.progress.finish_line());
                if !seen {
                    let end = if result.ends_with('\n') { "" } else { "\n" };
                    added.answer = format!("{result}{end}");
                }
            }
            Event::InvocationCancelled { .. } if is_root => {
                added.text.push_str(&self.note("(stopped)"));
            }
            Event::InvocationFailed { cause, .. } if is_root => {
                added.text.push_str(&self.note(&format!("(failed: {})", printable(cause))));
            }
            Event::SessionEnded { reason, .. } => {
                added.text.push_str(
                    &self.note(&format!("(the session has ended: {})", printable(reason))),
                );
            }
            _ => (),
        }
        self.questions(announcement, &mut added);
        if !self.caught_up && announcement.record().is_some_and(|record| record >= self.records) {
            self.catch_up(&mut added);
        }
        added
    }

    /// A piece of a reply whose beginning was not heard: the whole comes.
    fn is_partial(&self, event: &Event) -> bool {
        let is_piece = matches!(event, Event::TextDelta { .. } | Event::ThinkingDelta { .. });
        is_piece && !self.whole
    }

    fn is_new(&self, announcement: &Announcement) -> bool {
        announcement.record().is_none_or(|record| record > self.records)
    }

    /// What has been is over: from here on it is as if one had been there.
    fn catch_up(&mut self, added: &mut Added) {
        self.caught_up = true;
        added.text.push_str(self.progress.finish_line());
        self.progress = Progress::new(self.live, self.color).named(&self.me);
        added.questions.append(&mut self.open);
    }

    fn questions(&mut self, announcement: &Arc<Announcement>, added: &mut Added) {
        let event = announcement.event();
        if self.caught_up {
            if asked(event).is_some() || decided(event).is_some() {
                added.questions.push(Arc::clone(announcement));
            }
            return;
        }
        if let Some(id) = decided(event).or_else(|| asked(event)) {
            self.open.retain(|open| asked(open.event()) != Some(id));
        }
        match event {
            Event::PermissionRequested { .. } => self.open.push(Arc::clone(announcement)),
            // Another process goes on: what is still open is asked again.
            Event::SessionResumed { .. } => self.open.clear(),
            _ => (),
        }
    }

    fn words(&mut self, announcement: &Announcement) -> String {
        let own = match announcement.event() {
            Event::UserMessage { content, .. } => said(">", &text_of(content)),
            Event::MessageQueued { kind: MessageKind::Steer, content, .. } => {
                said("> (at the next step)", &text_of(content))
            }
            Event::MessageQueued { kind: MessageKind::FollowUp, content, .. } => {
                said("> (after the answer)", &text_of(content))
            }
            // The client of the session that owns it has no name.
            Event::PermissionGranted { answered_by: None, by, .. }
                if by == "user" && self.caught_up =>
            {
                let shown = self.progress.follow(announcement);
                return shown + &self.note("(allowed where the session runs)");
            }
            Event::PermissionDenied { answered_by: None, by, .. }
                if by == "user" && self.caught_up =>
            {
                let shown = self.progress.follow(announcement);
                return shown + &self.note("(denied where the session runs)");
            }
            _ => return self.progress.follow(announcement),
        };
        format!("{}{own}", self.progress.finish_line())
    }

    fn note(&mut self, text: &str) -> String {
        let start = self.progress.finish_line();
        format!("{start}{}\n", self.progress.dim(text))
    }
}

/// What somebody said, every line behind a mark.
fn said(mark: &str, text: &str) -> String {
    let lines = printable_lines(text.trim_end());
    lines.lines().flat_map(|line| [mark, " ", line, "\n"]).collect()
}

fn asked(event: &Event) -> Option<&QuestionId> {
    match event {
        Event::PermissionRequested { request_id, .. } => Some(request_id),
        _ => None,
    }
}

fn decided(event: &Event) -> Option<&QuestionId> {
    match event {
        Event::PermissionGranted { request_id, .. }
        | Event::PermissionDenied { request_id, .. }
        | Event::PermissionWithdrawn { request_id, .. } => Some(request_id),
        _ => None,
    }
}
