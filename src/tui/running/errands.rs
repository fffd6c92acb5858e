//! Commands that need more than what is shown: another session, or something to be told of the
//! world.

use posse_actors::root_session::SessionHandle;

use crate::failure::{Exit, Failure};
use crate::talk::commands::Command;
use crate::talk::{Choice, Errand, Ready, Report, Selected, Task, asked, is_default};
use crate::tui::World;
use crate::tui::running::performing::NOBODY;
use crate::tui::running::session::{Current, Looked, Told};
use crate::tui::running::{PATIENT_END, Tui, asking};
use crate::tui::theme::Role;

/// What is looked up, in words.
const JOURNAL: &str = "reading what is stored";
const LOOKING: &str = "looking around";

impl Tui<'_> {
    pub(super) async fn select(&mut self, what: Selected, name: String) {
        let default = is_default(&name, || self.world.names(what));
        if default && let Err(failure) = self.world.forget(what) {
            self.app.view.failures(&[failure]);
            return;
        }
        let choice = self.choice.with(what, (!default).then(|| name.clone()));
        let goes_on = self.current.is_some();
        if !self.reopen(choice, goes_on).await {
            return;
        }
        let lines = asking::selection(&self.app);
        self.app.view.lines(lines);
        if !default && let Err(failure) = self.world.remember(what, &name) {
            self.app.view.failures(&[failure]);
        }
    }

    /// Goes on in another session: the same conversation, or a new one. If it cannot be put
    /// together, the one that is there goes on.
    async fn reopen(&mut self, choice: Choice, goes_on: bool) -> bool {
        let mut opened = match self.aside(|world| world.open(&choice, goes_on)) {
            Ok(opened) => opened,
            Err(failures) => {
                self.app.view.failures(&failures);
                return false;
            }
        };
        if let Some(mut before) = self.current.take() {
            if goes_on {
                opened.settings.history = before.session.history().await;
                // A budget is one for the whole conversation.
                opened.settings.accounts = before.session.accounts().await.unwrap_or_default();
            }
            let reason = if goes_on { "switched" } else { "completed" };
            before.end(reason, Exit::Done, PATIENT_END).await;
            self.app.view.forget_agents();
        }
        let started = Current::start(opened).await;
        self.enter(started);
        self.choice = choice;
        self.current.is_some()
    }

    /// Goes on in a stored session, or in one that branches off it.
    async fn take_up(&mut self, ready: Ready, fork: bool) {
        let (opened, unfinished) = match self.aside(|world| world.take_up(ready)) {
            Ok(opened) => opened,
            Err(failures) => return self.app.view.failures(&failures),
        };
        if let Some(mut before) = self.current.take() {
            before.end("completed", Exit::Done, PATIENT_END).await;
        }
        let started = Current::start(opened).await;
        self.enter(started);
        self.choice = Choice::default();
        self.app.begin();
        (self.app.status.cwd, self.options.folder) = self.world.folder();
        self.finder = None;
        let word = if fork { "a copy of the conversation" } else { "a conversation from before" };
        let text = format!("({word}: session {})", self.app.session);
        self.app.view.note(Role::Dim, text);
        if unfinished {
            self.work(Task::GoOn);
        }
    }

    /// Does something that may print. What it prints stands above our part.
    fn aside<T>(&mut self, work: impl FnOnce(&mut dyn World) -> T) -> T {
        self.follow_size();
        let mut bytes = self.painter.withdraw();
        if self.terminal.apart {
            // What is printed stays on the other screen.
            bytes.extend(self.switch(false));
            bytes.extend(self.painter.withdraw());
        }
        // Before anything is printed over it.
        nix::unistd::write(std::io::stdout(), &bytes).ok();
        let done = work(self.world);
        self.dirty = true;
        done
    }

    pub(super) async fn execute(&mut self, command: Command) {
        let id = self.app.session.clone();
        match command {
            Command::New => {
                if self.reopen(self.choice.clone(), false).await {
                    self.app.begin();
                    let session = self.app.session.clone();
                    self.app
                        .view
                        .note(Role::Dim, format!("(a new conversation: session {session})"));
                }
            }
            Command::Resume(None) => {
                let errand = self.world.stored();
                self.look(JOURNAL, async { Looked::Stored(done(errand).await) });
            }
            Command::Resume(Some(id)) => self.look_up(&id, false),
            Command::Fork => self.look_up(&id, true),
            Command::Undo => {
                let errand = self.world.undo(&id);
                self.look(JOURNAL, async { Looked::Undo(done(errand).await) });
            }
            Command::Compact(keep) => self.ask(|session| async move {
                // What was removed is an event.
                asked::compact(&session, keep).await.err()
            }),
            Command::Context(json) => {
                self.ask(|session| async move { Some(asked::context(&session, json).await) });
            }
            Command::Cost => self.ask(|session| async move { Some(asked::cost(&session).await) }),
            Command::Memory => {
                self.ask(|session| async move { Some(asked::memory(&session).await) });
            }
            Command::Forget(agent) => {
                self.ask(|session| async move { Some(asked::forget(&session, agent).await) });
            }
            Command::Jobs(which) => {
                if let Some(current) = &self.current {
                    let text = self.app.jobs.asked(which.as_deref(), &current.session);
                    self.app.answer("", text);
                } else {
                    self.app.view.note(Role::Warn, NOBODY);
                }
            }
            Command::Skill(name, task) => self.use_skill(&name, &task),
            Command::Diff => self.changes(),
            Command::Agents => self.report(Report::Agents),
            Command::Permissions => self.report(Report::Permissions),
            Command::Config => self.report(Report::Config),
            Command::Doctor => self.report(Report::Doctor),
            Command::Tools => self.report(Report::Tools),
            Command::Skills => self.report(Report::Skills),
            Command::Sandbox => self.report(Report::Sandbox),
            Command::Export(file) => self.report(Report::Export(file)),
            // What is shown answers these.
            Command::Help
            | Command::Keys
            | Command::Status
            | Command::Select(..)
            | Command::Copy
            | Command::Theme(_)
            | Command::Queue(_)
            | Command::Stop
            | Command::StopAll
            | Command::Exit => (),
        }
    }

    /// What is on this machine, for somebody who has no model yet.
    pub(super) fn look_around(&mut self) {
        let errand = self.world.found();
        self.look(LOOKING, async { Looked::Around(done(errand).await) });
    }

    fn use_skill(&mut self, name: &str, task: &str) {
        match self.world.skill(name, task) {
            Ok(prompt) => self.prompt(prompt),
            Err(failures) => {
                self.app.view.said(format!("/skill {name} {task}").trim_end().to_owned());
                self.app.view.failures(&failures);
            }
        }
    }

    fn look_up(&mut self, id: &str, fork: bool) {
        let errand = self.world.look_up(id, fork);
        self.look(JOURNAL, async move { Looked::Ready(done(errand).await, fork) });
    }

    /// What was changed in this conversation, whoever saw it.
    fn changes(&mut self) {
        let Some(current) = &self.current else {
            return self.app.view.note(Role::Warn, NOBODY);
        };
        let session = current.session.clone();
        self.look(LOOKING, async move { Looked::Changes(asked::changes(&session).await) });
    }

    /// A text about the world, and with it what the session knows of the same.
    fn report(&mut self, what: Report) {
        let errand = self.world.report(what.clone(), &self.app.session);
        let session = self.current.as_ref().map(|current| current.session.clone());
        self.look(LOOKING, async move {
            let text = match (done(errand).await, &what, session) {
                (Ok(text), Report::Agents, Some(session)) => {
                    Ok(format!("{text}\n{}", asked::workers(&session).await))
                }
                (Ok(text), Report::Permissions, Some(session)) => {
                    Ok(text + &asked::session_grants(&session).await)
                }
                (text, ..) => text,
            };
            Looked::Text(what.title(), text)
        });
    }

    /// Asks the session for something to be shown, without waiting for it.
    fn ask<F>(&mut self, question: impl FnOnce(SessionHandle) -> F)
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        let Some(current) = &self.current else {
            return self.app.view.note(Role::Warn, NOBODY);
        };
        let (answer, tells) = (question(current.session.clone()), self.tells.clone());
        tokio::spawn(async move {
            if let Some(text) = answer.await {
                tells.send(Told::Answer(text)).await.ok();
            }
        });
    }

    /// Has something looked up beside. Keys are followed meanwhile.
    fn look(&mut self, what: &'static str, work: impl Future<Output = Looked> + Send + 'static) {
        self.lookups += 1;
        let (nth, now) = (self.lookups, self.now());
        // Another session, or a call in this one, has to find it as it was.
        if !self.app.look(nth, what, what == JOURNAL, now) {
            return;
        }
        let tells = self.tells.clone();
        tokio::spawn(async move {
            let looked = work.await;
            tells.send(Told::Looked(nth, looked)).await.ok();
        });
    }

    /// Goes on with what was looked up.
    pub(super) async fn looked(&mut self, looked: Looked) {
        let failures = match looked {
            Looked::Changes(changes) => return self.app.show_changes(changes),
            Looked::Text(title, Ok(text)) => return self.app.answer(title, text),
            Looked::Around(Ok(found)) => return self.app.view.lines(asking::found_here(&found)),
            Looked::Stored(Ok(stored)) => return self.app.choose_session(stored),
            Looked::Ready(Ok(ready), fork) => return self.take_up(ready, fork).await,
            Looked::Undo(Ok(wanted)) => return self.call(wanted),
            Looked::Text(_, Err(failures))
            | Looked::Around(Err(failures))
            | Looked::Stored(Err(failures))
            | Looked::Ready(Err(failures), _)
            | Looked::Undo(Err(failures)) => failures,
        };
        self.app.view.failures(&failures);
    }
}

/// Does it on a thread that may wait.
async fn done<T: Send + 'static>(errand: Errand<T>) -> Result<T, Vec<Failure>> {
    let failed = |error: tokio::task::JoinError| {
        vec![Failure::new("INT003", Exit::Internal, format!("it ended in the middle: {error}"))]
    };
    tokio::task::spawn_blocking(errand).await.unwrap_or_else(|error| Err(failed(error)))
}
