//! Slash commands of line mode, shown as text on standard error. Commands that need control of the
//! screen name the alternative.

use posse_actors::root_session::UserCall;

use crate::failure::Exit;
use crate::front::plain::{PATIENT_END, Plain};
use crate::talk::commands::{COMMANDS, Command, Typed, When, parse, unknown};
use crate::talk::{Choice, Errand, Report, Task, asked, clipboard};

/// Text of `/keys`.
const KEYS: &str = "  Enter           send; a backslash at the end of a line continues it\n\
    \x20 Up, Down        what was typed before; Ctrl+R looks for it\n\
    \x20 Ctrl+C          stop what runs; twice within two seconds: leave\n\
    \x20 Ctrl+D          leave, on an empty line\n\
    \x20 Pasted lines stay together. Other keys are those of your shell's line editor.\n";

/// Text of `/help`.
fn help() -> String {
    let line = |entry: &crate::talk::commands::Entry| {
        let name = format!("/{} {}", entry.name, entry.argument);
        format!("  {name:<18} {}\n", entry.what)
    };
    let mut text: String = COMMANDS.iter().map(line).collect();
    text.push_str(
        "  !COMMAND           run a command yourself, under the same rules; the model is told of it\n  \
         Everything else is a task. While one is worked on, it is said to the model at its next \
         step.\n",
    );
    text
}

impl Plain<'_> {
    /// Handles a line that was typed while nothing runs.
    pub(super) async fn follow_line(&mut self, line: &str) {
        match parse(line) {
            Typed::Blank => (),
            Typed::Text(text) => {
                let prompt = posse_actors::conversation::Prompt::text(text);
                self.work(Task::Prompt(prompt)).await;
            }
            Typed::Shell(command) => self.call(asked::own_call(&command)).await,
            Typed::Command(Command::Exit, _) => {
                self.leaving = Some(if self.interactive { Exit::Done } else { self.last });
            }
            Typed::Command(command, _) => {
                self.catch_up().await;
                if let Some(command) = self.answer(command, false).await {
                    self.change(command).await;
                }
            }
            Typed::Unknown(name, meant) => self.say(&(unknown(&name, meant) + "\n")).await,
        }
    }

    /// Handles a command that was typed during a task and does not end it.
    pub(super) async fn command_meanwhile(&mut self, command: Command, when: When) {
        let left = match when {
            When::Always => self.answer(command, true).await,
            When::Idle => Some(command),
        };
        if left.is_some() {
            self.say("(not available while a task runs; /stop stops it)\n").await;
        }
    }

    /// Handles a command that is available at any time. Returns a command that needs an idle
    /// session. `busy`: a task is running.
    async fn answer(&mut self, command: Command, busy: bool) -> Option<Command> {
        let session = self.current.session.clone();
        let text = match command {
            Command::Help => help(),
            Command::Keys => KEYS.to_owned(),
            Command::Status => self.status().await,
            Command::Context(json) => asked::context(&session, json).await,
            Command::Cost => asked::cost(&session).await,
            Command::Memory => asked::memory(&session).await,
            Command::Forget(agent) => asked::forget(&session, agent).await,
            Command::Jobs(which) => self.current.jobs.asked(which.as_deref(), &session),
            Command::Queue(which) => self.queue(which, busy).await,
            Command::Diff => asked::changes(&session).await.text(),
            Command::Agents => {
                let agents = self.report(Report::Agents).await?;
                format!("{agents}\n{}", asked::workers(&session).await)
            }
            Command::Permissions => {
                let kept = self.report(Report::Permissions).await?;
                kept + &asked::session_grants(&session).await
            }
            Command::Config => self.report(Report::Config).await?,
            Command::Tools => self.report(Report::Tools).await?,
            Command::Skills => self.report(Report::Skills).await?,
            Command::Sandbox => self.report(Report::Sandbox).await?,
            Command::Doctor => self.report(Report::Doctor).await?,
            Command::Copy => return self.copy().await,
            Command::Theme(_) => "Line mode has no themes: NO_COLOR=1 in the environment turns \
                                  colours off, and `ui.theme` is for `posse tui`.\n"
                .to_owned(),
            Command::Stop => "Nothing is running.\n".to_owned(),
            Command::StopAll => {
                session.interrupt_all();
                "(stopping background agents)\n".to_owned()
            }
            command @ (Command::New
            | Command::Resume(_)
            | Command::Fork
            | Command::Select(..)
            | Command::Compact(_)
            | Command::Undo
            | Command::Export(_)
            | Command::Skill(..)
            | Command::Exit) => return Some(command),
        };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.say(&format!("{text}{end}")).await;
        None
    }

    /// Handles a command that changes the current session or its task.
    async fn change(&mut self, command: Command) {
        match command {
            Command::New => self.clear().await,
            Command::Resume(None) => self.show_stored().await,
            Command::Resume(Some(id)) => self.take_up(&id, false).await,
            Command::Fork => {
                let id = self.current.session.id().to_string();
                self.take_up(&id, true).await;
            }
            Command::Select(what, None) => self.show_names(what).await,
            Command::Select(what, Some(name)) => self.select(what, name).await,
            Command::Compact(keep) => {
                let (Ok(text) | Err(text)) = asked::compact(&self.current.session, keep).await;
                self.say(&text).await;
            }
            Command::Undo => {
                let errand = self.sessions.undo(self.current.session.id().as_str());
                if let Some(wanted) = self.errand(errand).await {
                    self.call(wanted).await;
                }
            }
            Command::Export(file) => {
                if let Some(text) = self.report(Report::Export(file)).await {
                    self.say(&(text + "\n")).await;
                }
            }
            Command::Skill(name, task) => match self.sessions.skill(&name, &task) {
                Ok(prompt) => self.work(Task::Prompt(prompt)).await,
                Err(failures) => self.complain(&failures).await,
            },
            // Handled elsewhere.
            Command::Help
            | Command::Keys
            | Command::Status
            | Command::Agents
            | Command::Context(_)
            | Command::Cost
            | Command::Permissions
            | Command::Sandbox
            | Command::Diff
            | Command::Copy
            | Command::Config
            | Command::Tools
            | Command::Skills
            | Command::Jobs(_)
            | Command::Memory
            | Command::Forget(_)
            | Command::Theme(_)
            | Command::Doctor
            | Command::Queue(_)
            | Command::Stop
            | Command::StopAll
            | Command::Exit => (),
        }
    }

    /// Runs a tool for the user.
    async fn call(&mut self, wanted: UserCall) {
        self.catch_up().await;
        match self.current.session.call(wanted).await {
            Ok(running) => self.accompany(running).await,
            Err(error) => self.say(&format!("{error}\n")).await,
        }
    }

    async fn report(&mut self, what: Report) -> Option<String> {
        let errand = self.sessions.report(what, self.current.session.id().as_str());
        self.errand(errand).await
    }

    /// Runs a background job on another thread. Returns `None` after reporting that it failed or
    /// was cancelled.
    async fn errand<T: Send + 'static>(&mut self, errand: Errand<T>) -> Option<T> {
        let done = tokio::task::spawn_blocking(errand);
        tokio::select! {
            biased;
            signal = self.signals.next() => {
                if signal == Exit::Interrupt {
                    self.current.session.interrupt();
                    self.say("\n(cancelled)\n").await;
                } else {
                    self.leaving = Some(signal);
                }
                None
            }
            done = done => match done {
                Ok(Ok(value)) => Some(value),
                Ok(Err(failures)) => {
                    self.complain(&failures).await;
                    None
                }
                Err(error) => {
                    self.say(&format!("! the background job failed: {error}\n")).await;
                    None
                }
            },
        }
    }

    async fn queue(&mut self, which: Option<String>, busy: bool) -> String {
        let Some(number) = which else { return self.current.queue.table(busy) };
        let Some(id) = self.current.queue.own(&number).cloned() else {
            return format!(
                "There is no queued message {}; /queue lists them.\n",
                crate::failure::printable(&number)
            );
        };
        match self.current.session.withdraw(id).await {
            Some(_) => "(deleted)\n".to_owned(),
            None => "(too late: it was already sent)\n".to_owned(),
        }
    }

    async fn copy(&mut self) -> Option<Command> {
        let bytes = self.last_reply.len();
        let text = match bytes {
            0 => "(there is no answer yet)\n".to_owned(),
            _ if !self.clipboard => {
                "(only a terminal has a clipboard; /export FILE writes the conversation)\n"
                    .to_owned()
            }
            bytes if bytes > clipboard::BYTES_MAX => format!("({})\n", clipboard::too_long(bytes)),
            _ => {
                let sequence = clipboard::sequence(&self.last_reply);
                self.stderr.write(sequence).await;
                "(copied, if the terminal allows it)\n".to_owned()
            }
        };
        self.say(&text).await;
        None
    }

    async fn show_stored(&mut self) {
        let Some(stored) = self.errand(self.sessions.stored()).await else { return };
        let own = self.current.session.id().to_string();
        let mut text = String::new();
        for (id, what) in stored.iter().filter(|(id, _)| *id != own) {
            text.extend([id, "  ", what, "\n"]);
        }
        text.push_str(if text.is_empty() {
            "There is no other stored session.\n"
        } else {
            "/resume ID resumes one; the beginning of an id is enough.\n"
        });
        self.say(&text).await;
    }

    /// Resumes a stored session, or a fork of it.
    async fn take_up(&mut self, id: &str, fork: bool) {
        let Some(ready) = self.errand(self.sessions.look_up(id, fork)).await else { return };
        let (opened, unfinished) = match self.sessions.take_up(ready) {
            Ok(opened) => opened,
            Err(failures) => return self.complain(&failures).await,
        };
        self.current.end("completed", Exit::Done, PATIENT_END).await;
        self.enter(opened, Choice::default()).await;
        if self.leaving.is_some() {
            return;
        }
        self.last_reply.clear();
        let text = format!("session {}\n{}", self.current.session.id(), self.selection());
        self.say(&text).await;
        if unfinished {
            self.work(Task::GoOn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        for entry in COMMANDS {
            assert!(help().contains(&format!("/{} ", entry.name)), "{}", entry.name);
        }
    }
}
