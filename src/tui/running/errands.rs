//! Commands that need more than what is shown: another session, or something to be told of the
//! world.

use crate::failure::Exit;
use crate::talk::{Choice, Selected, Task};
use crate::tui::commands::Command;
use crate::tui::running::session::Current;
use crate::tui::running::{PATIENT_END, Tui, asking};
use crate::tui::theme::Role;
use crate::tui::{Report, World};

impl Tui<'_> {
    pub(super) async fn select(&mut self, what: Selected, name: String) {
        let mut choice = self.choice.clone();
        let chosen = Some(name.clone());
        match what {
            Selected::Agent => choice.agent = chosen,
            Selected::Model => choice.model = chosen,
            Selected::Provider => {
                // A model belongs to its provider.
                choice.model = None;
                choice.provider = chosen;
            }
        }
        let goes_on = self.current.is_some();
        if !self.reopen(choice, goes_on).await {
            return;
        }
        let lines = asking::selection(&self.app);
        self.app.view.lines(lines);
        if let Err(failure) = self.world.remember(what, &name) {
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
    async fn take_up(&mut self, id: &str, fork: bool) {
        let (opened, unfinished) = match self.aside(|world| world.take_up(id, fork)) {
            Ok(opened) => opened,
            Err(failures) => return self.app.view.failures(&failures),
        };
        if let Some(mut before) = self.current.take() {
            before.end("completed", Exit::Done, PATIENT_END).await;
        }
        let started = Current::start(opened).await;
        self.enter(started);
        self.choice = Choice::default();
        self.app.view.begin();
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
        match command {
            Command::New => {
                if self.reopen(self.choice.clone(), false).await {
                    self.app.view.begin();
                    let session = self.app.session.clone();
                    self.app
                        .view
                        .note(Role::Dim, format!("(a new conversation: session {session})"));
                }
            }
            Command::Resume(None) => match self.world.stored() {
                Ok(stored) => self.app.choose_session(stored),
                Err(failures) => self.app.view.failures(&failures),
            },
            Command::Resume(Some(id)) => self.take_up(&id, false).await,
            Command::Fork => {
                let id = self.app.session.clone();
                self.take_up(&id, true).await;
            }
            Command::Undo => match self.world.undo(&self.app.session) {
                Ok(wanted) => self.call(wanted),
                Err(failure) => self.app.view.failures(&[failure]),
            },
            Command::Compact(keep) => {
                if let Some(current) = &self.current {
                    current.compact(keep, &self.tells);
                }
            }
            Command::Context => {
                if let Some(current) = &self.current {
                    current.context(&self.tells);
                }
            }
            Command::Skill(name, task) => match self.world.skill(&name, &task) {
                Ok(prompt) => self.prompt(prompt),
                Err(failures) => self.app.view.failures(&failures),
            },
            other => {
                if let Some((title, report)) = asking::report(other) {
                    self.report(title, &report);
                }
            }
        }
    }

    fn report(&mut self, title: &str, report: &Report) {
        let session = self.app.session.clone();
        let long =
            matches!(report, Report::Config | Report::Doctor | Report::Tools | Report::Skills);
        match self.aside(|world| world.report(report, &session)) {
            Ok(text) if long => self.app.look_at(title, text),
            Ok(text) => self.app.view.note(Role::Text, text),
            Err(failures) => self.app.view.failures(&failures),
        }
    }
}
