//! What keys wished for, done.

use posse_actors::conversation::{ContentPart, Prompt, text_of};
use posse_actors::event::MessageKind;
use posse_actors::root_session::UserCall;

use crate::failure::Failure;
use crate::talk::Task;
use crate::talk::files::Finder;
use crate::talk::{asked, clipboard};
use crate::tui::app::Effect;
use crate::tui::running::Tui;
use crate::tui::running::session::Told;
use crate::tui::theme::Role;

/// Without a session.
pub(super) const NOBODY: &str =
    "Nobody is there to answer yet: /provider chooses one, /exit leaves.";

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
                        current.withdraw(id, back, &self.tells);
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
                        current.answer(id, decision, &self.tells);
                    }
                }
                Effect::Choose(what, opened_by) => {
                    let names = self.world.names(what);
                    self.app.choose(what, names, opened_by);
                }
                Effect::Select(what, name) => self.select(what, name).await,
                Effect::Do(command) => self.execute(command).await,
                Effect::Copy(text) => {
                    self.terminal.write(clipboard::sequence(&text));
                }
                Effect::Redraw => self.distrust(),
                Effect::Suspend => self.suspend().await,
                Effect::Leave(exit) => self.leaving = Some(exit),
            }
        }
    }

    fn say(&mut self, text: String, kind: MessageKind) {
        #[cfg(debug_assertions)]
        panic_if_told(&text);
        self.history.add(&text);
        let mut content = vec![ContentPart::text(text)];
        content.extend(self.app.composer.take_images());
        if self.app.busy {
            if let Some(current) = &self.current {
                current.deliver(kind, content, &self.tells);
            }
            return;
        }
        self.prompt(Prompt { content });
    }

    /// Runs a command of the user's own.
    fn run_own(&mut self, command: &str) {
        self.history.add(&format!("!{command}"));
        self.call(asked::own_call(command));
    }

    /// Runs a tool for the user.
    pub(super) fn call(&mut self, wanted: UserCall) {
        match &self.current {
            Some(current) => {
                self.app.busy = true;
                current.call(wanted, &self.tells);
            }
            None => self.app.view.note(Role::Warn, NOBODY),
        }
    }

    /// Reads an image on another thread.
    fn attach(&mut self, name: String) {
        let read = match self.world.images() {
            Ok(read) => read,
            Err(failure) => {
                self.app.view.failures(&[failure]);
                self.app.composer.paste(&name);
                return;
            }
        };
        let tells = self.tells.clone();
        tokio::task::spawn_blocking(move || {
            let image = read(&name);
            tells.blocking_send(Told::Attached(name, image)).ok();
        });
    }

    fn attached(&mut self, name: &str, image: Result<(ContentPart, String), Failure>) {
        match image {
            Ok((image, about)) => {
                if self.app.composer.attach(name, image) {
                    self.app.view.note(Role::Dim, format!("(image {about})"));
                } else {
                    let text = "(not attached: there are too many images already)";
                    self.app.view.note(Role::Warn, text);
                }
            }
            // A text that only looks like the name of an image.
            Err(failure) if failure.code == "IMG001" => self.app.composer.paste(name),
            Err(failure) => {
                self.app.view.failures(&[failure]);
                self.app.composer.paste(name);
            }
        }
    }

    /// Puts what was said back, to go on with.
    fn bring_back(&mut self, content: &[ContentPart]) {
        self.app.composer.bring_back(&text_of(content));
        if content.iter().any(|part| matches!(part, ContentPart::ImageUrl { .. })) {
            self.app.view.note(Role::Warn, "(its images have to be attached again)");
        }
    }

    /// Looks for files, on another thread.
    fn find(&mut self, query: &str) {
        if self.finder.is_none() {
            let tells = self.tells.clone();
            let answer = move |query, names| {
                tells.blocking_send(Told::Found(query, names)).ok();
            };
            // Without it a name is written whole.
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
            current.work(task, &self.tells);
            return;
        }
        self.app.view.note(Role::Warn, NOBODY);
        if let Task::Prompt(prompt) = task {
            self.bring_back(&prompt.content);
        }
    }

    pub(super) async fn hear(&mut self, told: Told) {
        self.dirty = true;
        match told {
            Told::Runs(running) => {
                if let Some(current) = &mut self.current {
                    current.runs(running, self.started.elapsed());
                }
            }
            Told::Refused(text) => {
                self.app.over();
                self.app.view.note(Role::Warn, text);
            }
            Told::Note(text) => self.app.view.note(Role::Dim, text),
            Told::Back(content) => self.bring_back(&content),
            Told::Attached(name, image) => self.attached(&name, image),
            Told::Found(query, names) => self.app.found(&query, &names),
            Told::Answer(text) => self.app.answer("", text),
            Told::Measured(id, used) => {
                if id.as_str() == self.app.session {
                    self.app.measured(&used);
                }
            }
            // Whoever gave it up does not want it any more.
            Told::Looked(nth, looked) => {
                if self.app.looked(nth) {
                    self.looked(looked).await;
                }
            }
            // It ended a moment ago: this is the next task.
            Told::Unsaid(content) => {
                self.unsaid.push_back(content);
                self.say_unsaid();
            }
        }
    }

    pub(super) fn say_unsaid(&mut self) {
        if !self.app.busy
            && let Some(content) = self.unsaid.pop_front()
        {
            self.prompt(Prompt { content });
        }
    }
}

/// What a test needs, and nothing that is shipped: a panic while the terminal is ours.
#[cfg(debug_assertions)]
fn panic_if_told(said: &str) {
    let word = std::env::var("POSSE_TEST_PANIC");
    assert!(word.as_deref() != Ok(said), "a test said so");
}
