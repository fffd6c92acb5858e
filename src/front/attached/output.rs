//! Text output of an attached session: first its history, then live events.
//!
//! Pure. Of the permission requests in the history, only those that are still open are shown.

use std::sync::Arc;

use posse_actors::conversation::text_of;
use posse_actors::event::{Announcement, CompactionCause, DecisionSource, Event, MessageKind};
use posse_base::failure::{printable, printable_lines};
use posse_frontend::context;
use posse_frontend::remote_session::{self, AttachAccepted};

use crate::progress::ProgressPrinter;

/// Note before a streamed reply whose beginning this client did not receive.
const IN_THE_MIDDLE: &str = "… (joined in the middle)";

/// Turns announcements of an attached session into text.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two are settings, the others what was heard")]
pub(super) struct AttachedOutput {
    progress: ProgressPrinter,
    /// True if replies are shown as they arrive; false if only complete replies are shown.
    live: bool,
    color: bool,
    /// True if standard output is a terminal, so it shares its screen with standard error.
    one_screen: bool,
    /// Number of the last record of the history.
    records: u64,
    /// True once the whole history has been shown.
    caught_up: bool,
    /// Announcements of permission requests in the history that are still open.
    open: Vec<Arc<Announcement>>,
    /// Text of the current reply that has arrived in deltas so far.
    said: String,
    /// True if the model request for the current reply came after the history, so that this client
    /// receives the reply from its beginning.
    whole: bool,
    /// True if a note was shown that this client has missed the beginning of the current reply.
    in_the_middle: bool,
    /// True if this client has requested the context and its event has not arrived yet.
    pub(super) wants_context: bool,
    me: String,
}

/// Output for one announcement.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Added {
    /// Text for standard error.
    pub(super) text: String,
    /// Text for standard output.
    pub(super) answer: String,
    /// Announcements of permission requests to show, and of the ends of such requests.
    pub(super) questions: Vec<Arc<Announcement>>,
}

impl AttachedOutput {
    pub(super) fn new(
        accepted: &AttachAccepted,
        live: bool,
        color: bool,
        one_screen: bool,
    ) -> AttachedOutput {
        AttachedOutput {
            progress: ProgressPrinter::new(false, color).named(&accepted.name),
            live,
            color,
            one_screen,
            records: accepted.records,
            caught_up: accepted.after >= accepted.records,
            open: Vec::new(),
            said: String::new(),
            whole: false,
            in_the_middle: false,
            wants_context: false,
            me: accepted.name.clone(),
        }
    }

    pub(super) fn progress(&mut self) -> &mut ProgressPrinter {
        &mut self.progress
    }

    pub(super) fn follow(&mut self, announcement: &Arc<Announcement>) -> Added {
        let mut added = Added::default();
        let event = announcement.event();
        let is_root = announcement.origin().is_none_or(|from| from.parent_invocation_id.is_none());
        if self.is_partial(event) {
            return added;
        }
        let begins = is_root && !self.whole && matches!(event, Event::TextDelta { .. });
        if begins && !std::mem::replace(&mut self.in_the_middle, true) {
            added.text = self.note(IN_THE_MIDDLE);
        }
        if let Event::ModelPartial { text, cause, .. } = event
            && is_root
            && cause == "interrupted"
        {
            added.text.push_str(&self.unseen_part(text));
        }
        added.text.push_str(&self.words(announcement));
        match event {
            Event::ModelRequest { .. } if is_root => {
                self.said.clear();
                self.whole = self.is_new(announcement);
                self.in_the_middle = false;
            }
            Event::TextDelta { text } if is_root => self.said.push_str(text),
            Event::ModelReply { message, .. } if is_root => {
                let said = std::mem::take(&mut self.said);
                if std::mem::take(&mut self.in_the_middle) {
                    added.text.push_str(&self.note("(the whole of it:)"));
                }
                let content = message.content.as_deref().unwrap_or_default();
                // A slow client may have missed deltas, so it gets the whole reply.
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
                    &self.note(&format!("(the session has ended: {})", printable(reason.as_str()))),
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

    /// True for a delta that is ignored: the model request of its reply is in the history, and
    /// either the history is not complete yet or replies are not shown live. The complete reply is
    /// shown later.
    fn is_partial(&self, event: &Event) -> bool {
        let is_piece = matches!(event, Event::TextDelta { .. } | Event::ThinkingDelta { .. });
        is_piece && !self.whole && !(self.caught_up && self.live)
    }

    /// Returns the text of a stopped reply; empty if it was already shown as it arrived.
    fn unseen_part(&mut self, text: &str) -> String {
        let said = std::mem::take(&mut self.said);
        if self.caught_up && self.live && said == text {
            return String::new();
        }
        let start = self.progress.finish_line();
        format!("{start}{}\n", printable_lines(text.trim_end()))
    }

    /// True if `announcement` does not belong to the history.
    pub(super) fn is_new(&self, announcement: &Announcement) -> bool {
        announcement.record().is_none_or(|record| record > self.records)
    }

    /// Switches from the history to live events: ends the current line and adds the open permission
    /// requests.
    fn catch_up(&mut self, added: &mut Added) {
        self.caught_up = true;
        added.text.push_str(self.progress.finish_line());
        self.progress = ProgressPrinter::new(self.live, self.color).named(&self.me);
        added.questions.append(&mut self.open);
    }

    fn questions(&mut self, announcement: &Arc<Announcement>, added: &mut Added) {
        let event = announcement.event();
        if self.caught_up {
            if event.question().is_some() {
                added.questions.push(Arc::clone(announcement));
            }
            return;
        }
        if let Some(id) = event.question() {
            self.open.retain(|open| open.event().question() != Some(id));
        }
        match event {
            Event::PermissionRequested { .. } => self.open.push(Arc::clone(announcement)),
            // Another process resumed the session: open requests are repeated.
            Event::SessionResumed { .. } => self.open.clear(),
            _ => (),
        }
    }

    fn words(&mut self, announcement: &Announcement) -> String {
        let own = match announcement.event() {
            // The task of a subagent is no message of the user.
            Event::UserMessage { content, .. }
                if announcement.origin().is_none_or(|from| from.parent_invocation_id.is_none()) =>
            {
                marked_lines(">", &text_of(content))
            }
            Event::MessageQueued { kind: MessageKind::Steer, content, .. } => {
                marked_lines("> (at the next step)", &text_of(content))
            }
            Event::MessageQueued { kind: MessageKind::FollowUp, content, .. } => {
                marked_lines("> (after the answer)", &text_of(content))
            }
            // A warning for the others.
            Event::Warning { message } if *message == remote_session::joined(&self.me) => {
                return String::new();
            }
            Event::ContextUsed { used } => {
                if !std::mem::take(&mut self.wants_context) {
                    return String::new();
                }
                context::table(used)
            }
            // This is the only notice of it here.
            Event::ContextCompacted { cause, .. } if *cause == Some(CompactionCause::Request) => {
                let text = context::compacted(announcement.event()).unwrap_or_default();
                return self.note(&format!("({})", printable(&text)));
            }
            // The client in the owning process has no name.
            Event::PermissionGranted { answered_by: None, by, reply, .. }
                if *by == DecisionSource::User && self.caught_up =>
            {
                let shown = self.progress.follow(announcement);
                let what = if reply.is_some() { "answered" } else { "allowed" };
                return shown + &self.note(&format!("({what} where the session runs)"));
            }
            Event::PermissionDenied { answered_by: None, by, .. }
                if *by == DecisionSource::User && self.caught_up =>
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

/// Puts `mark` before each line of a message.
fn marked_lines(mark: &str, text: &str) -> String {
    let lines = printable_lines(text.trim_end());
    lines.lines().flat_map(|line| [mark, " ", line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::{
        AssistantMessage, CallId, ContentPart, InvocationId, QuestionId, SessionId, StopReason,
        ToolCall, Usage,
    };
    use posse_actors::event::{AnnouncedEvent, ContextUse, Origin, RecordId, Scope, StoredRecord};

    use super::*;
    use posse_frontend::remote_session::AttachRole;

    fn stored(record: u64, event: Event) -> Arc<Announcement> {
        let (ts, session_id) = (1, SessionId::new("s"));
        let id = RecordId { process: 0, count: 0 };
        let stored = StoredRecord { v: 1, record, ts, id, session_id, event, origin: None };
        Arc::new(Announcement { seq: record, fact: AnnouncedEvent::Stored(Arc::new(stored)) })
    }

    fn delta(text: &str) -> Arc<Announcement> {
        let event = Event::TextDelta { text: text.to_owned() };
        let session_id = SessionId::new("s");
        Arc::new(Announcement {
            seq: 0,
            fact: AnnouncedEvent::Ephemeral { ts: 1, session_id, origin: None, event },
        })
    }

    fn joined(records: u64) -> AttachedOutput {
        let accepted = AttachAccepted {
            session_id: SessionId::new("s"),
            process: 1,
            role: AttachRole::Controller,
            name: "process 2".to_owned(),
            records,
            after: 0,
        };
        AttachedOutput::new(&accepted, true, false, true)
    }

    fn asked(id: &str) -> Event {
        Event::PermissionRequested {
            request_id: QuestionId::new(id),
            call_id: CallId::new("c"),
            tool: "bash".to_owned(),
            target: posse_actors::event::PermissionTarget::default(),
            summary: format!("run {id}"),
            detail: String::new(),
            reason: String::new(),
            scopes: vec![Scope::Once],
            user_request: None,
            trial: None,
            grant: None,
            grants_part: false,
            grant_text: String::new(),
            hunks: Vec::new(),
            digest: String::new(),
            cwd: String::new(),
            binding: String::new(),
        }
    }

    fn denied(id: &str, by: Option<&str>) -> Event {
        Event::PermissionDenied {
            request_id: QuestionId::new(id),
            by: DecisionSource::User,
            reason: "no".to_owned(),
            target: posse_actors::event::PermissionTarget::default(),
            is_user_request: false,
            rule: None,
            answered_by: by.map(str::to_owned),
        }
    }

    fn request() -> Event {
        Event::ModelRequest {
            turn: 1,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            messages: 1,
        }
    }

    fn reply(text: &str, calls: usize) -> Event {
        let call = ToolCall {
            id: CallId::new("c"),
            provider_id: None,
            name: "bash".to_owned(),
            arguments: "{}".to_owned(),
        };
        let message = AssistantMessage {
            content: Some(text.to_owned()),
            reasoning: None,
            tool_calls: vec![call; calls],
        };
        Event::ModelReply { turn: 1, message, stop_reason: StopReason::EndTurn, model: None }
    }

    fn done(result: &str) -> Event {
        let result = result.to_owned();
        Event::InvocationCompleted { result, turns: 1, usage: Usage::default() }
    }

    fn questions(added: &Added) -> Vec<u64> {
        added.questions.iter().filter_map(|question| question.record()).collect()
    }

    #[test]
    fn only_open_requests_of_the_history_are_asked() {
        let mut shown = joined(5);
        for (record, event) in
            [(1, asked("a")), (2, asked("b")), (3, asked("a")), (4, denied("b", None))]
        {
            assert_eq!(questions(&shown.follow(&stored(record, event))), Vec::<u64>::new());
        }
        // Last record of the history.
        assert_eq!(questions(&shown.follow(&stored(5, asked("c")))), [3, 5]);
        let answered = shown.follow(&stored(6, denied("a", None)));
        assert_eq!(questions(&answered), [6]);
        assert_eq!(answered.text, "(denied where the session runs)\n");
        let by_me = shown.follow(&stored(7, denied("c", Some("process 2"))));
        assert_eq!((questions(&by_me), by_me.text.as_str()), (vec![7], ""));
        let by_another = shown.follow(&stored(8, denied("x", Some("process 3"))));
        assert_eq!(by_another.text, "! denied by process 3\n");
    }

    #[test]
    fn own_joining_is_not_announced() {
        let mut shown = joined(0);
        let warning =
            |name: &str| stored(1, Event::Warning { message: remote_session::joined(name) });
        assert_eq!(shown.follow(&warning("process 2")).text, "");
        let other = shown.follow(&warning("process 3")).text;
        assert_eq!(other, "! process 3 joined this session and may control it\n");
    }

    #[test]
    fn task_of_a_subagent_is_no_message_of_the_user() {
        let mut shown = joined(0);
        let said = |parent: Option<&str>| {
            let content = vec![ContentPart::text("do it")];
            let event = Event::UserMessage { content, message_id: None };
            let origin = Origin {
                invocation_id: InvocationId::new("i"),
                parent_invocation_id: parent.map(InvocationId::new),
                agent: "worker".to_owned(),
                agent_path: "build/worker".to_owned(),
            };
            let id = RecordId { process: 0, count: 0 };
            let session_id = SessionId::new("s");
            let (ts, origin) = (1, Some(origin.into()));
            let stored = StoredRecord { v: 1, record: 1, ts, id, session_id, event, origin };
            Arc::new(Announcement { seq: 1, fact: AnnouncedEvent::Stored(Arc::new(stored)) })
        };
        assert_eq!(shown.follow(&said(None)).text, "> do it\n");
        assert_eq!(shown.follow(&said(Some("p"))).text, "");
    }

    #[test]
    fn open_request_of_an_ended_process_is_not_asked() {
        let mut shown = joined(2);
        shown.follow(&stored(1, asked("a")));
        let resumed = Event::SessionResumed { records: 1, with: None, changed: Vec::new() };
        assert_eq!(questions(&shown.follow(&stored(2, resumed))), Vec::<u64>::new());
    }

    #[test]
    fn reply_is_shown_once_and_completely_from_any_delta() {
        // Attached in the middle of a reply.
        let mut shown = joined(1);
        shown.follow(&stored(1, request()));
        let first = shown.follow(&delta("second")).text;
        assert_eq!(first, "… (joined in the middle)\nsecond");
        assert_eq!(shown.follow(&delta(" half")).text, " half");
        let text = shown.follow(&stored(2, reply("first half, second half", 0))).text;
        assert_eq!(text, "\n(the whole of it:)\n");
        let answer = shown.follow(&stored(3, done("first half, second half"))).answer;
        assert_eq!(answer, "first half, second half\n");

        // Received from its beginning, so it is on the screen already.
        shown.follow(&stored(4, request()));
        assert_eq!(shown.follow(&delta("all of")).text, "all of");
        assert_eq!(shown.follow(&delta(" it")).text, " it");
        shown.follow(&stored(5, reply("all of it", 0)));
        let added = shown.follow(&stored(6, done("all of it")));
        assert_eq!((added.text.as_str(), added.answer.as_str()), ("\n", ""));

        // A piece was lost, in an answer and in text before a call.
        shown.follow(&stored(7, request()));
        shown.follow(&delta("it"));
        shown.follow(&stored(8, reply("all of it", 0)));
        assert_eq!(shown.follow(&stored(9, done("all of it"))).answer, "all of it\n");
        shown.follow(&stored(10, request()));
        shown.follow(&delta("look"));
        let text = shown.follow(&stored(11, reply("let me look", 1))).text;
        assert_eq!(text, "\nlet me look\n");
    }

    #[test]
    fn partial_reply_is_shown_unless_already_visible() {
        let stopped = |text: &str| Event::ModelPartial {
            turn: 1,
            text: text.to_owned(),
            cause: "interrupted".to_owned(),
            in_history: true,
        };
        let mut shown = joined(1);
        shown.follow(&stored(1, request()));
        shown.follow(&delta("half"));
        let text = shown.follow(&stored(2, stopped("first half"))).text;
        assert!(text.starts_with("\nfirst half\n"), "{text}");
        assert!(text.contains("the reply was stopped"), "{text}");
        shown.follow(&stored(3, request()));
        assert_eq!(shown.follow(&delta("all")).text, "all", "heard from its beginning");
        let text = shown.follow(&stored(4, stopped("all"))).text;
        assert!(!text.contains("all\n") && text.contains("the reply was stopped"), "{text}");
    }

    #[test]
    fn context_goes_to_its_requester_and_compaction_to_all() {
        let mut shown = joined(0);
        let used = || {
            let event = Event::ContextUsed { used: ContextUse::default() };
            let (session_id, origin) = (SessionId::new("s"), None);
            Arc::new(Announcement {
                seq: 0,
                fact: AnnouncedEvent::Ephemeral { ts: 1, session_id, origin, event },
            })
        };
        assert_eq!(shown.follow(&used()).text, "");
        shown.wants_context = true;
        assert!(shown.follow(&used()).text.contains("system prompt"));
        assert_eq!(shown.follow(&used()).text, "", "once");
    }

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        let mut shown = joined(0);
        let content = vec![ContentPart::text("a\u{1b}[2J\nb")];
        let said = Event::UserMessage { content, message_id: None };
        assert_eq!(shown.follow(&stored(1, said)).text, "> a\\u{1b}[2J\n> b\n");
    }
}
