//! Sends notifications of one front end: says when one is due, makes its bytes for the terminal, and
//! runs the command of the user beside the front end.

use std::path::Path;
use std::time::{Duration, Instant};

use posse_actors::conversation::QuestionId;
use posse_actors::event::Event;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::notifications::{Attention, Notification, Notifications, Occasion};

/// Notifications of the session that a front end shows.
#[derive(Debug)]
pub struct Notifier {
    settings: Notifications,
    attention: Attention,
    begun: Instant,
    session: String,
    /// Name of the working directory.
    folder: String,
    /// Title of the session; `None` until it has one.
    title: Option<String>,
    /// Window title that was made last.
    shown: String,
    failures: mpsc::Sender<String>,
    failed: mpsc::Receiver<String>,
    /// True if a failure of the user's command was reported.
    is_reported: bool,
    /// The user's command that was started last.
    command: Option<JoinHandle<()>>,
}

impl Notifier {
    /// A notifier without a session.
    pub fn new(settings: Notifications) -> Notifier {
        let (failures, failed) = mpsc::channel(1);
        Notifier {
            attention: Attention::new(settings.when),
            settings,
            begun: Instant::now(),
            session: String::new(),
            folder: String::new(),
            title: None,
            shown: String::new(),
            failures,
            failed,
            is_reported: false,
            command: None,
        }
    }

    /// The settings of this notifier.
    pub fn settings(&self) -> &Notifications {
        &self.settings
    }

    /// Begins with another session. `title`: `None` if it has none yet.
    pub fn enter(&mut self, session: &str, title: Option<String>) {
        session.clone_into(&mut self.session);
        self.title = title;
    }

    /// Sets the working directory, whose last component names a session without a title.
    pub fn set_folder(&mut self, folder: &Path) {
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        self.folder = name.to_string_lossy().into_owned();
    }

    /// Adopts the title of the session from an event.
    pub fn follow(&mut self, event: &Event) {
        if let Event::SessionTitled { title } = event {
            self.title = Some(title.clone());
        }
    }

    /// Registers a key press.
    pub fn key(&mut self) {
        self.attention.key();
    }

    /// Registers a report of the terminal about its focus.
    pub fn focus(&mut self, focused: bool) {
        self.attention.focus(focused);
    }

    fn name(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.folder)
    }

    /// Registers the question that waits now, with its summary; `None` if none does.
    pub fn question(&mut self, waiting: Option<(&QuestionId, &str)>) {
        let (session, name) = (self.session.clone(), self.name().to_owned());
        let notification = || Notification {
            occasion: Occasion::Question,
            session,
            name,
            text: format!("waits for your answer: {}", waiting.map_or("", |(_, summary)| summary)),
        };
        let now = self.begun.elapsed();
        self.attention.question(waiting.map(|(id, _)| id), notification, now);
    }

    /// Registers the end of a task. `label`: how it ended; `took`: its duration.
    pub fn ended(&mut self, label: &str, took: Duration) {
        let notification = Notification {
            occasion: Occasion::End,
            session: self.session.clone(),
            name: self.name().to_owned(),
            text: format!("{label} after {} s", took.as_secs()),
        };
        self.attention.raise(notification, self.begun.elapsed());
    }

    /// Registers the end of a task at a terminal that does not report its focus, and returns what
    /// [`Notifier::due`] does: only a long task counts, unless all do, and there is no wait.
    pub fn ended_unseen(&mut self, label: &str, took: Duration) -> Vec<u8> {
        if !self.attention.is_worth(took) {
            return Vec::new();
        }
        self.attention.focus(false);
        self.ended(label, took);
        self.due()
    }

    /// Time until a notification is due; `None` if none is pending.
    pub fn wait(&self) -> Option<Duration> {
        self.attention.wait(self.begun.elapsed())
    }

    /// Bytes for the terminal if a notification is due; the command of the user is started. Empty
    /// if none is due, or if the terminal shows none.
    pub fn due(&mut self) -> Vec<u8> {
        let Some(notification) = self.attention.due(self.begun.elapsed()) else {
            return Vec::new();
        };
        if let Some(command) = self.settings.command.clone() {
            let (json, failures) = (notification.to_json(), self.failures.clone());
            self.command = Some(tokio::task::spawn_blocking(move || {
                if let Err(failure) = (command.0)(json) {
                    // A full channel already has a failure to report.
                    failures.try_send(failure).ok();
                }
            }));
        }
        self.settings.sequence(&notification)
    }

    /// Waits for a failure of the user's command and returns a warning. Only the first failure is
    /// reported. Cancel safe.
    pub async fn failed(&mut self) -> String {
        loop {
            // The sender is kept, so the channel does not end.
            let Some(failure) = self.failed.recv().await else {
                return std::future::pending().await;
            };
            if !std::mem::replace(&mut self.is_reported, true) {
                return format!("notify.command: {failure}; further failures are not reported");
            }
        }
    }

    /// Waits for the end of the user's command, and returns a warning if one is due.
    pub async fn finish(&mut self) -> Option<String> {
        if let Some(command) = self.command.take() {
            command.await.ok();
        }
        tokio::time::timeout(Duration::ZERO, self.failed()).await.ok()
    }

    /// Bytes that change the window title to this state; empty if the title stays or titles are
    /// off.
    pub fn title(&mut self, state: &str) -> Vec<u8> {
        let title = format!("{state} {}", self.name());
        if !self.settings.titles || title == self.shown {
            return Vec::new();
        }
        let bytes = self.settings.title(state, self.name());
        self.shown = title;
        bytes
    }

    /// Makes [`Notifier::title`] return the title again, because the terminal may have lost it.
    pub fn forget_title(&mut self) {
        self.shown.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crate::notifications::{NotificationMethod, NotifyCommand, NotifyWhen};

    use super::*;

    fn notifier(when: NotifyWhen, command: Option<NotifyCommand>) -> Notifier {
        let method = Some(NotificationMethod::Osc9);
        let mut notifier =
            Notifier::new(Notifications { when, method, wrapped: false, titles: true, command });
        notifier.enter("s1", None);
        notifier.set_folder(Path::new("/home/me/shop"));
        notifier
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn command_gets_each_notification_and_only_its_first_failure_is_reported() {
        let got = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&got);
        let command = NotifyCommand(Arc::new(move |json| {
            seen.lock().unwrap().push(json);
            Err("it ended with exit status: 1".to_owned())
        }));
        let mut notifier = notifier(NotifyWhen::Always, Some(command));
        notifier.ended("done", Duration::from_secs(3));
        assert_eq!(text(notifier.due()), "\x1b]9;posse: shop: done after 3 s\x07");
        let warning = "notify.command: it ended with exit status: 1; further failures are not \
                       reported";
        assert_eq!(notifier.finish().await.as_deref(), Some(warning));
        let id = QuestionId::new("q1");
        notifier.question(Some((&id, "bash make")));
        assert!(text(notifier.due()).contains("waits for your answer: bash make"));
        assert_eq!(notifier.finish().await, None);
        let got = got.lock().unwrap().clone();
        assert_eq!(
            got,
            [
                r#"{"event":"end","name":"shop","sessionId":"s1","text":"done after 3 s"}"#,
                r#"{"event":"question","name":"shop","sessionId":"s1","text":"waits for your answer: bash make"}"#
            ]
        );
    }

    #[test]
    fn window_title_changes_with_state_and_title() {
        let mut notifier = notifier(NotifyWhen::Never, None);
        assert_eq!(text(notifier.title("working")), "\x1b]2;working · shop\x07");
        assert!(notifier.title("working").is_empty());
        notifier.follow(&Event::SessionTitled { title: "Prices".to_owned() });
        assert_eq!(text(notifier.title("done")), "\x1b]2;done · Prices\x07");
        notifier.forget_title();
        assert_eq!(text(notifier.title("done")), "\x1b]2;done · Prices\x07");
        notifier.enter("s2", None);
        notifier.set_folder(Path::new("/"));
        assert_eq!(text(notifier.title("done")), "\x1b]2;done · /\x07");
        notifier.enter("s3", Some("Stock".to_owned()));
        assert_eq!(text(notifier.title("done")), "\x1b]2;done · Stock\x07");
    }

    #[test]
    fn end_of_a_short_task_is_silent_without_focus_reports() {
        let mut unfocused = notifier(NotifyWhen::Unfocused, None);
        assert!(unfocused.ended_unseen("done", Duration::from_secs(2)).is_empty());
        assert!(
            text(unfocused.ended_unseen("done", Duration::from_mins(1))).contains("after 60 s")
        );
        let mut always = notifier(NotifyWhen::Always, None);
        assert!(!always.ended_unseen("done", Duration::ZERO).is_empty());
        let mut never = notifier(NotifyWhen::Never, None);
        assert!(never.ended_unseen("done", Duration::from_mins(1)).is_empty());
    }
}
