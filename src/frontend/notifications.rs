//! Notifications for a user who looks elsewhere: when one is due, and the sequences that make a
//! terminal show it. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::conversation::QuestionId;
use posse_base::failure::is_invisible;
use serde_json::json;

use crate::terminal_features::TerminalFeatures;

/// Wait without a key press before a notification, if the terminal does not report its focus.
const UNSEEN: Duration = Duration::from_secs(5);

/// Duration from which the end of a task is notified where the terminal does not report its focus.
pub const LONG_TASK: Duration = Duration::from_secs(10);

/// Maximum characters of the text of a notification.
const TEXT_CHARS_MAX: usize = 200;

/// Maximum characters of the name of a session in notifications and titles.
const NAME_CHARS_MAX: usize = 60;

/// Method of showing a notification at the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotificationMethod {
    /// `OSC 9 ; text` (iTerm2).
    Osc9,
    /// `OSC 777 ; notify ; title ; text` (urxvt).
    Osc777,
    /// `OSC 99 ; parameters ; text` (kitty).
    Osc99,
    /// The bell character.
    #[default]
    Bell,
    /// No output at the terminal.
    None,
}

/// Condition under which notifications are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotifyWhen {
    /// If the terminal is not focused or, where it does not report its focus, if no key was pressed
    /// for some seconds.
    Unfocused,
    /// At each question and each end of a task.
    Always,
    /// Never.
    #[default]
    Never,
}

/// Occasion of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A question waits for an answer of the user.
    Question,
    /// A task has ended.
    End,
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Occasion.
    pub occasion: Occasion,
    /// Id of the session.
    pub session: String,
    /// Title of the session or name of its folder, for the user.
    pub name: String,
    /// Description of the event, such as the summary of a question.
    pub text: String,
}

impl Notification {
    /// The event as one JSON object, for the command of the user.
    pub fn to_json(&self) -> String {
        let event = match self.occasion {
            Occasion::Question => "question",
            Occasion::End => "end",
        };
        json!({
            "event": event,
            "sessionId": self.session,
            "name": plain(&self.name, NAME_CHARS_MAX),
            "text": plain(&self.text, TEXT_CHARS_MAX),
        })
        .to_string()
    }
}

/// Runs the command of the user with the JSON text of a notification. Blocks until the command has
/// ended, for a bounded time. The error is a message for the user.
#[derive(Clone)]
pub struct NotifyCommand(pub Arc<dyn Fn(String) -> Result<(), String> + Send + Sync>);

impl fmt::Debug for NotifyCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NotifyCommand")
    }
}

/// Settings of notifications for one terminal. The default is no notification.
#[derive(Debug, Clone, Default)]
pub struct Notifications {
    /// Condition under which notifications are sent.
    pub when: NotifyWhen,
    /// Method at the terminal.
    pub method: Option<NotificationMethod>,
    /// True if sequences other than the bell are wrapped for tmux.
    pub wrapped: bool,
    /// True if the window title shows the state of the session.
    pub titles: bool,
    /// Command of the user that also gets notifications.
    pub command: Option<NotifyCommand>,
}

impl Notifications {
    /// Settings for a terminal with these features. `method`: `None` chooses the method by the
    /// terminal. `titles`: true if the user wants window titles.
    pub fn at_terminal(
        when: NotifyWhen,
        method: Option<NotificationMethod>,
        titles: bool,
        command: Option<NotifyCommand>,
        features: TerminalFeatures,
    ) -> Notifications {
        Notifications {
            when,
            method: Some(method.unwrap_or(features.notification)),
            // Only the user knows whether tmux hands the sequence on.
            wrapped: method.is_some() && features.in_tmux,
            titles: titles && features.titles,
            command,
        }
    }

    /// Returns `true` if the focus of the terminal matters.
    pub fn needs_focus(&self) -> bool {
        let shows = self.method.is_some_and(|method| method != NotificationMethod::None);
        self.when == NotifyWhen::Unfocused && (shows || self.command.is_some())
    }

    /// Bytes that make the terminal show the notification; empty if the method has none.
    pub fn sequence(&self, notification: &Notification) -> Vec<u8> {
        let title = format!("posse: {}", sequence_part(&notification.name, NAME_CHARS_MAX));
        let text = sequence_part(&notification.text, TEXT_CHARS_MAX);
        let sequence = match self.method {
            None | Some(NotificationMethod::None) => return Vec::new(),
            Some(NotificationMethod::Bell) => return b"\x07".to_vec(),
            // The text begins with a letter: terminals take digits for other commands.
            Some(NotificationMethod::Osc9) => format!("\x1b]9;{title}: {text}\x07"),
            Some(NotificationMethod::Osc777) => format!("\x1b]777;notify;{title};{text}\x07"),
            Some(NotificationMethod::Osc99) => {
                let only = if self.when == NotifyWhen::Unfocused { ":o=unfocused" } else { "" };
                format!(
                    "\x1b]99;i=posse:d=0{only};{title}\x1b\\\x1b]99;i=posse:p=body{only};{text}\x1b\\"
                )
            }
        };
        if self.wrapped {
            let doubled = sequence.replace('\x1b', "\x1b\x1b");
            return format!("\x1bPtmux;{doubled}\x1b\\").into_bytes();
        }
        sequence.into_bytes()
    }

    /// Bytes that set the window title to the state and name of the session; empty if titles are
    /// off.
    pub fn title(&self, state: &str, name: &str) -> Vec<u8> {
        if !self.titles {
            return Vec::new();
        }
        format!("\x1b]2;{state} · {}\x07", sequence_part(name, NAME_CHARS_MAX)).into_bytes()
    }

    /// Bytes that save the window title; empty if titles are off.
    pub fn save_title(&self) -> &'static [u8] {
        if self.titles { b"\x1b[22;2t" } else { b"" }
    }

    /// Bytes that restore the saved window title; empty if titles are off. A terminal that cannot
    /// save its title gets an empty one, which most terminals replace by their default.
    pub fn restore_title(&self) -> &'static [u8] {
        if self.titles { b"\x1b]2;\x07\x1b[23;2t" } else { b"" }
    }
}

/// The text of [`plain`] without semicolons, which separate the parts of a sequence.
fn sequence_part(text: &str, chars_max: usize) -> String {
    plain(text, chars_max).replace(';', ",")
}

/// Text of one line without control characters and invisible characters. Longer text is cut at `chars_max` and ends with an ellipsis.
fn plain(text: &str, chars_max: usize) -> String {
    let mut plain = String::new();
    let mut last_blank = true;
    let mut count = 0;
    for c in text.chars() {
        let c = match c {
            c if c.is_whitespace() => ' ',
            c if c.is_control() || is_invisible(c) => continue,
            c => c,
        };
        if c == ' ' && last_blank {
            continue;
        }
        if count == chars_max {
            plain.push('…');
            return plain;
        }
        last_blank = c == ' ';
        plain.push(c);
        count += 1;
    }
    plain.truncate(plain.trim_end().len());
    plain
}

/// Decides when the user is notified. Times are durations since a fixed instant that the caller
/// chooses.
#[derive(Debug, Default)]
pub struct Attention {
    when: NotifyWhen,
    /// Focus of the terminal; `None` until the terminal has reported it.
    focused: Option<bool>,
    /// Notification that is sent at this time unless the user acts before.
    pending: Option<(Duration, Notification)>,
    /// The question that waits; `None` if none does.
    question: Option<QuestionId>,
}

impl Attention {
    /// Attention with this condition, at a terminal whose focus is unknown.
    pub fn new(when: NotifyWhen) -> Attention {
        Attention { when, ..Attention::default() }
    }

    /// Registers a key press: the user is there and needs no notification.
    pub fn key(&mut self) {
        if self.when == NotifyWhen::Unfocused {
            self.pending = None;
        }
    }

    /// Registers a report of the terminal about its focus.
    pub fn focus(&mut self, focused: bool) {
        self.focused = Some(focused);
        if focused {
            self.key();
        }
    }

    /// Registers an event of which the user is to be notified.
    pub fn raise(&mut self, notification: Notification, now: Duration) {
        let at = match (self.when, self.focused) {
            (NotifyWhen::Never, _) | (NotifyWhen::Unfocused, Some(true)) => return,
            (NotifyWhen::Always, _) | (NotifyWhen::Unfocused, Some(false)) => now,
            (NotifyWhen::Unfocused, None) => now + UNSEEN,
        };
        self.pending = Some((at, notification));
    }

    /// Registers the question that waits now; `None` if none does. Raises `notification` for a new
    /// one, and drops the pending notification of one that is answered or withdrawn.
    pub fn question(
        &mut self,
        waiting: Option<&QuestionId>,
        notification: impl FnOnce() -> Notification,
        now: Duration,
    ) {
        if self.question.as_ref() == waiting {
            return;
        }
        self.question = waiting.cloned();
        self.pending.take_if(|(_, pending)| pending.occasion == Occasion::Question);
        if waiting.is_some() {
            self.raise(notification(), now);
        }
    }

    /// Takes the notification that is due; `None` if there is none.
    pub fn due(&mut self, now: Duration) -> Option<Notification> {
        self.pending.take_if(|(at, _)| *at <= now).map(|(_, notification)| notification)
    }

    /// Time until a notification is due; `None` if none is pending.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.pending.as_ref().map(|(at, _)| at.saturating_sub(now))
    }

    /// Returns `true` if the end of a task of this duration is worth a notification at a terminal
    /// that does not report its focus.
    pub fn is_worth(&self, took: Duration) -> bool {
        match self.when {
            NotifyWhen::Never => false,
            NotifyWhen::Always => true,
            NotifyWhen::Unfocused => took >= LONG_TASK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str) -> Notification {
        Notification {
            occasion: Occasion::Question,
            session: "s1".to_owned(),
            name: "work".to_owned(),
            text: text.to_owned(),
        }
    }

    fn at(method: NotificationMethod) -> Notifications {
        Notifications {
            when: NotifyWhen::Unfocused,
            method: Some(method),
            titles: true,
            ..Notifications::default()
        }
    }

    fn shown(notifications: &Notifications, text: &str) -> String {
        String::from_utf8(notifications.sequence(&question(text))).unwrap()
    }

    #[test]
    fn each_method_has_its_sequence() {
        use NotificationMethod::{Bell, None, Osc9, Osc99, Osc777};
        let table = [
            (Osc9, "\x1b]9;posse: work: bash make\x07"),
            (Osc777, "\x1b]777;notify;posse: work;bash make\x07"),
            (
                Osc99,
                "\x1b]99;i=posse:d=0:o=unfocused;posse: work\x1b\\\
                 \x1b]99;i=posse:p=body:o=unfocused;bash make\x1b\\",
            ),
            (Bell, "\x07"),
            (None, ""),
        ];
        for (method, expected) in table {
            assert_eq!(shown(&at(method), "bash make"), expected);
        }
        let wrapped = Notifications { wrapped: true, ..at(Osc9) };
        assert_eq!(shown(&wrapped, "x"), "\x1bPtmux;\x1b\x1b]9;posse: work: x\x07\x1b\\");
        let bell = Notifications { wrapped: true, ..at(Bell) };
        assert_eq!(shown(&bell, "x"), "\x07");
    }

    #[test]
    fn hostile_text_does_not_leave_its_place() {
        let hostile = "4;3\x1b]0;owned\x07;\u{9b}2J\u{202e}a\nb\u{200b}  c";
        assert_eq!(
            shown(&at(NotificationMethod::Osc777), hostile),
            "\x1b]777;notify;posse: work;4,3]0,owned,2Ja b c\x07"
        );
        let long = shown(&at(NotificationMethod::Osc9), &"é".repeat(10_000));
        assert!(long.ends_with("é…\x07") && long.chars().count() < 260, "{}", long.len());
        let title = at(NotificationMethod::None).title("working", "a\x07\x1b]52;c;x");
        assert_eq!(title, "\x1b]2;working · a]52,c,x\x07".as_bytes());
        let json = question(hostile).to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["event"], "question");
        assert_eq!(value["text"], "4;3]0;owned;2Ja b c");
    }

    #[test]
    fn nothing_is_written_without_settings() {
        let silent = Notifications::default();
        assert!(silent.sequence(&question("x")).is_empty());
        assert!(silent.title("working", "x").is_empty());
        assert!(silent.save_title().is_empty() && silent.restore_title().is_empty());
        assert!(!silent.needs_focus());
    }

    #[test]
    fn tmux_gets_a_wrapped_sequence_only_if_the_user_chose_it() {
        let features = TerminalFeatures { in_tmux: true, titles: true, ..Default::default() };
        let at = |method| {
            Notifications::at_terminal(NotifyWhen::Unfocused, method, true, None, features)
        };
        assert_eq!(shown(&at(None), "x"), "\x07");
        assert!(shown(&at(Some(NotificationMethod::Osc9)), "x").starts_with("\x1bPtmux;"));
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn focus_decides_when_a_notification_is_due() {
        use NotifyWhen::{Always, Never, Unfocused};
        // Condition, reported focus, and the seconds after which the notification is due.
        let table = [
            (Unfocused, Some(false), Some(0)),
            (Unfocused, Some(true), None),
            (Unfocused, None, Some(5)),
            (Always, Some(true), Some(0)),
            (Always, None, Some(0)),
            (Never, Some(false), None),
            (Never, None, None),
        ];
        for (when, focused, expected) in table {
            let mut attention = Attention::new(when);
            if let Some(focused) = focused {
                attention.focus(focused);
            }
            attention.raise(question("x"), s(100));
            assert_eq!(attention.wait(s(100)), expected.map(s), "{when:?} {focused:?}");
            let due = expected.map_or(s(1000), |after| s(100 + after));
            let before = due.saturating_sub(Duration::from_millis(1));
            assert_eq!(attention.due(before), None);
            assert_eq!(attention.due(due).is_some(), expected.is_some());
            assert_eq!(attention.due(s(5000)), None, "a notification is sent once");
        }
    }

    #[test]
    fn user_who_acts_gets_no_notification() {
        let mut attention = Attention::new(NotifyWhen::Unfocused);
        attention.raise(question("x"), s(1));
        attention.key();
        assert_eq!(attention.due(s(100)), None);
        attention.raise(question("x"), s(100));
        attention.focus(true);
        assert_eq!(attention.due(s(200)), None);
        attention.focus(false);
        attention.raise(Notification { occasion: Occasion::End, ..question("x") }, s(500));
        attention.question(None, || question("y"), s(500));
        assert!(attention.due(s(500)).is_some());
    }

    #[test]
    fn each_question_is_raised_once_until_it_is_answered() {
        let mut attention = Attention::new(NotifyWhen::Unfocused);
        let (first, second) = (QuestionId::new("q1"), QuestionId::new("q2"));
        let texts = |attention: &mut Attention, now| attention.due(now).map(|due| due.text);
        attention.question(Some(&first), || question("one"), s(1));
        attention.question(Some(&first), || question("again"), s(4));
        assert_eq!(texts(&mut attention, s(6)).as_deref(), Some("one"));
        attention.question(Some(&second), || question("two"), s(10));
        attention.question(None, || question("none"), s(11));
        assert_eq!(texts(&mut attention, s(100)), None, "it was answered in time");
    }

    #[test]
    fn short_tasks_end_silently_where_the_focus_is_unknown() {
        for (when, took, expected) in [
            (NotifyWhen::Unfocused, 9, false),
            (NotifyWhen::Unfocused, 10, true),
            (NotifyWhen::Always, 0, true),
            (NotifyWhen::Never, 1000, false),
        ] {
            assert_eq!(Attention::new(when).is_worth(s(took)), expected, "{when:?} {took}");
        }
    }
}
