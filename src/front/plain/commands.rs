//! Slash commands of line mode, with text output on standard error. Commands that need a screen say
//! so and name an alternative.

use posse_actors::event::SessionEndReason;
use posse_actors::root_session::UserCall;

use crate::failure::Exit;
use crate::front::plain::{LineMode, PATIENT_END};
use crate::frontend::commands::{Availability, COMMANDS, Command, ParsedLine, parse, unknown};
use crate::frontend::{BackgroundJob, Report, SessionSelection, Task, clipboard, session_queries};

/// Output of `/keys`.
const KEYS: &str = "  Enter           send; a backslash at the end of a line continues it\n\
    \x20 Up, Down        what was typed before; Ctrl+R looks for it\n\
    \x20 Ctrl+C          stop what runs; twice within two seconds: leave\n\
    \x20 Ctrl+D          leave, on an empty line\n\
    \x20 Pasted lines stay together. Other keys are those of your shell's line editor.\n";

/// Output of `/help`.
fn help() -> String {
    let line = |entry: &crate::frontend::commands::CommandSpec| {
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

impl LineMode<'_> {
    /// Handles a line that was typed while nothing runs.
    pub(super) async fn follow_line(&mut self, line: &str) {
        match parse(line) {
            ParsedLine::Blank => (),
            ParsedLine::Text(text) => {
                let prompt = posse_actors::conversation::Prompt::text(text);
                self.work(Task::Prompt(prompt)).await;
            }
            ParsedLine::Shell(command) => self.call(session_queries::own_call(&command)).await,
            ParsedLine::Command(Command::Exit, _) => {
                self.leaving = Some(if self.interactive { Exit::Done } else { self.last });
            }
            ParsedLine::Command(command, _) => {
                self.catch_up().await;
                if let Some(command) = self.answer(command, false).await {
                    self.change(command).await;
                }
            }
            ParsedLine::Unknown(name, meant) => self.say(&(unknown(&name, meant) + "\n")).await,
        }
    }

    /// Handles a command that was typed during a task and does not end it.
    pub(super) async fn command_meanwhile(&mut self, command: Command, when: Availability) {
        let left = match when {
            Availability::Always => self.answer(command, true).await,
            Availability::Idle => Some(command),
        };
        if left.is_some() {
            self.say("(that has to wait until nothing runs; /stop stops it)\n").await;
        }
    }

    /// Runs commands that are possible at any time. Returns a command that has to wait until
    /// nothing runs. `busy`: a task is running.
    async fn answer(&mut self, command: Command, busy: bool) -> Option<Command> {
        let session = self.current.session.clone();
        let text = match command {
            Command::Help => help(),
            Command::Keys => KEYS.to_owned(),
            Command::Status => self.status().await,
            Command::Context(json) => session_queries::context(&session, json).await,
            Command::Cost => session_queries::cost(&session).await,
            Command::Memory => session_queries::memory(&session).await,
            Command::Forget(agent) => session_queries::forget(&session, agent).await,
            Command::Jobs(which) => self.current.jobs.asked(which.as_deref(), &session),
            Command::Queue(which) => self.queue(which, busy).await,
            Command::Diff => session_queries::changes(&session).await.text(),
            Command::Agents => {
                let agents = self.report(Report::Agents).await?;
                format!("{agents}\n{}", session_queries::subagents(&session).await)
            }
            Command::Permissions => {
                let kept = self.report(Report::Permissions).await?;
                kept + &session_queries::session_grants(&session).await
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
            Command::Stop => "Nothing runs.\n".to_owned(),
            Command::StopAll => {
                session.interrupt_all();
                "(agents in the background are told to stop)\n".to_owned()
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

    /// Runs commands that change the session.
    async fn change(&mut self, command: Command) {
        match command {
            Command::New => self.clear().await,
            Command::Resume(None) => self.show_stored().await,
            Command::Resume(Some(id)) => self.resume(&id, false).await,
            Command::Fork => {
                let id = self.current.session.id().to_string();
                self.resume(&id, true).await;
            }
            Command::Select(what, None) => self.show_names(what).await,
            Command::Select(what, Some(name)) => self.select(what, name).await,
            Command::Compact(keep) => {
                let (Ok(text) | Err(text)) =
                    session_queries::compact(&self.current.session, keep).await;
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
            // Handled elsewhere: possible at any time, or by the line reader.
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

    /// Runs a job on another thread. `None`: it failed or was cancelled; the reason was printed.
    async fn errand<T: Send + 'static>(&mut self, errand: BackgroundJob<T>) -> Option<T> {
        let done = tokio::task::spawn_blocking(errand);
        tokio::select! {
            biased;
            signal = self.signals.next() => {
                if signal == Exit::Interrupt {
                    self.current.session.interrupt();
                    self.say("\n(given up)\n").await;
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
                    self.say(&format!("! it ended in the middle: {error}\n")).await;
                    None
                }
            },
        }
    }

    async fn queue(&mut self, which: Option<String>, busy: bool) -> String {
        let Some(number) = which else { return self.current.queue.table(busy) };
        let Some(id) = self.current.queue.own(&number).cloned() else {
            return format!(
                "No message {} of yours waits; /queue lists them.\n",
                crate::failure::printable(&number)
            );
        };
        match self.current.session.withdraw(id).await {
            Some(_) => "(deleted)\n".to_owned(),
            None => "(too late: it was said already)\n".to_owned(),
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
            "There is no other conversation here.\n"
        } else {
            "/resume ID goes on with one; the beginning of an id is enough.\n"
        });
        self.say(&text).await;
    }

    /// Switches to a stored session, or to a fork of it.
    async fn resume(&mut self, id: &str, fork: bool) {
        let Some(ready) = self.errand(self.sessions.find_session(id, fork)).await else { return };
        let (opened, unfinished) = match self.sessions.resume(ready) {
            Ok(opened) => opened,
            Err(failures) => return self.complain(&failures).await,
        };
        self.current.end(SessionEndReason::Completed, Exit::Done, PATIENT_END).await;
        self.enter(opened, SessionSelection::default()).await;
        if self.leaving.is_some() {
            return;
        }
        self.last_reply.clear();
        let text = format!("session {}\n{}", self.current.session.id(), self.selection());
        self.say(&text).await;
        if unfinished {
            self.work(Task::Continue).await;
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
