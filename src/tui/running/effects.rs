//! Carries out the effects of keys.

use posse_actors::conversation::{ContentPart, Prompt, text_of};
use posse_actors::event::MessageKind;
use posse_actors::root_session::UserCall;
use posse_base::failure::Failure;
use posse_frontend::files::Finder;
use posse_frontend::{Task, clipboard, own_call};

use posse_base::failure::ErrorCode;

use crate::app::Effect;
use crate::running::Tui;
use crate::running::session::RequestResult;
use crate::theme::Role;

/// Message without a session.
pub(super) const NO_SESSION: &str =
    "There is no model yet: /provider selects a provider, /exit exits.";

impl Tui<'_> {
    pub(super) async fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.dirty = true;
            match effect {
                Effect::Say(text, kind) => self.say(text, kind),
                Effect::Run(command) => self.run_own(&command),
                Effect::InterruptAll => {
                    if let Some(current) = &self.current {
                        current.session.interrupt_all();
                    }
                }
                Effect::Withdraw { id, back } => {
                    if let Some(current) = &self.current {
                        current.withdraw(id, back, &self.results);
                    }
                }
                Effect::Edit => self.edit().await,
                Effect::Attach(name) => self.attach(name),
                Effect::Find(query) => self.find(&query),
                Effect::Interrupt => {
                    if let Some(current) = &self.current {
                        current.session.interrupt();
                    }
                }
                Effect::Answer(id, decision) => {
                    if let Some(current) = &self.current {
                        current.answer(id, decision, &self.results);
                    }
                }
                Effect::Choose(what, opened_by) => {
                    let names = self.environment.names(what);
                    self.app.choose(what, names, opened_by);
                }
                Effect::Query(query) => self.query(query),
                Effect::Report(request) => self.report(request),
                Effect::ShowChanges => self.show_changes(),
                Effect::ListSessions => self.list_sessions(),
                Effect::Switch(to) => self.switch_session(to).await,
                Effect::RunSkill(name, task) => self.run_skill(&name, &task),
                Effect::Undo => self.undo(),
                Effect::Copy(text) => {
                    self.terminal.write(clipboard::sequence(&text));
                }
                Effect::Redraw => self.invalidate(),
                Effect::Suspend => self.suspend().await,
                Effect::Leave(exit) => self.leaving = Some(exit),
            }
        }
    }

    fn say(&mut self, text: String, kind: MessageKind) {
        #[cfg(debug_assertions)]
        panic_if_requested(&text);
        self.history.add(&text);
        let mut content = vec![ContentPart::text(text)];
        content.extend(self.app.composer.take_images());
        if self.app.busy {
            if let Some(current) = &self.current {
                current.deliver(kind, content, &self.results);
            }
            return;
        }
        self.prompt(Prompt { content });
    }

    /// Runs a shell command of the user.
    fn run_own(&mut self, command: &str) {
        self.history.add(&format!("!{command}"));
        self.call(own_call(command));
    }

    /// Runs a tool call of the user.
    pub(super) fn call(&mut self, wanted: UserCall) {
        match &self.current {
            Some(current) => {
                self.app.busy = true;
                current.call(wanted, &self.results);
            }
            None => self.app.view.note(Role::Warn, NO_SESSION),
        }
    }

    /// Reads an image on another thread.
    fn attach(&mut self, name: String) {
        let read = match self.environment.images() {
            Ok(read) => read,
            Err(failure) => {
                self.app.view.failures(&[failure]);
                self.app.composer.paste(&name);
                return;
            }
        };
        let results = self.results.clone();
        tokio::task::spawn_blocking(move || {
            let image = read(&name);
            results.blocking_send(RequestResult::Attached(name, image)).ok();
        });
    }

    fn attached(&mut self, name: &str, image: Result<(ContentPart, String), Failure>) {
        match image {
            Ok((image, about)) => {
                if self.app.composer.attach(name, image) {
                    self.app.view.note(Role::Dim, format!("(image {about})"));
                } else {
                    let text = "(not attached: too many images)";
                    self.app.view.note(Role::Warn, text);
                }
            }
            // The text only looks like the file name of an image.
            Err(failure) if failure.code == ErrorCode::ImageUnreadable => {
                self.app.composer.paste(name);
            }
            Err(failure) => {
                self.app.view.failures(&[failure]);
                self.app.composer.paste(name);
            }
        }
    }

    /// Puts a message back into the prompt.
    fn restore_text(&mut self, content: &[ContentPart]) {
        self.app.composer.restore_text(&text_of(content));
        if content.iter().any(|part| matches!(part, ContentPart::ImageUrl { .. })) {
            self.app.view.note(Role::Warn, "(attach its images again)");
        }
    }

    /// Finds files on another thread.
    fn find(&mut self, query: &str) {
        if self.finder.is_none() {
            let results = self.results.clone();
            let answer = move |query, names| {
                results.blocking_send(RequestResult::Found(query, names)).ok();
            };
            // Without a finder there is no completion.
            self.finder = Finder::start(self.options.folder.clone(), answer).ok();
        }
        if let Some(finder) = &self.finder {
            finder.find(query);
        }
    }

    pub(super) fn prompt(&mut self, prompt: Prompt) {
        self.work(Task::Prompt(prompt));
    }

    pub(super) fn work(&mut self, task: Task) {
        if let Some(current) = &self.current {
            self.app.busy = true;
            current.work(task, &self.results);
            return;
        }
        self.app.view.note(Role::Warn, NO_SESSION);
        if let Task::Prompt(prompt) = task {
            self.restore_text(&prompt.content);
        }
    }

    pub(super) async fn apply_result(&mut self, result: RequestResult) {
        self.dirty = true;
        match result {
            RequestResult::Runs(running) => {
                if let Some(current) = &mut self.current {
                    current.runs(running, self.started.elapsed());
                }
            }
            RequestResult::Refused(text) => {
                self.app.finish_task();
                self.app.view.note(Role::Warn, text);
            }
            RequestResult::Note(text) => self.app.view.note(Role::Dim, text),
            RequestResult::Withdrawn(content) => self.restore_text(&content),
            RequestResult::Attached(name, image) => self.attached(&name, image),
            RequestResult::Found(query, names) => self.app.show_found_files(&query, &names),
            RequestResult::Answer(text) => self.app.answer("", false, text),
            RequestResult::Measured(id, used) => {
                if id.as_str() == self.app.session {
                    self.app.set_context_usage(&used);
                }
            }
            // The result of a cancelled lookup is dropped.
            RequestResult::LookupResult(nth, looked) => {
                if self.app.finish_lookup(nth) {
                    self.apply_lookup(looked).await;
                }
            }
            // The task has just ended: the message becomes the next one.
            RequestResult::Undelivered(content) => {
                self.undelivered.push_back(content);
                self.submit_undelivered();
            }
        }
    }

    pub(super) fn submit_undelivered(&mut self) {
        if !self.app.busy
            && let Some(content) = self.undelivered.pop_front()
        {
            self.prompt(Prompt { content });
        }
    }
}

/// Panics if a test requests it, while the terminal is in raw mode. Debug builds only.
#[cfg(debug_assertions)]
fn panic_if_requested(said: &str) {
    let word = std::env::var("POSSE_TEST_PANIC");
    assert!(word.as_deref() != Ok(said), "a test said so");
}
