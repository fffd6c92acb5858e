//! What keys wished for, done.

use base64::Engine as _;
use posse_actors::conversation::{ContentPart, Prompt, text_of};
use posse_actors::event::MessageKind;

use crate::talk::Task;
use crate::tui::app::Effect;
use crate::tui::running::Tui;
use crate::tui::running::session::Told;
use crate::tui::theme::Role;

impl Tui<'_> {
    pub(super) async fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.dirty = true;
            match effect {
                Effect::Say(text, kind) => self.say(text, kind),
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
                    let text = base64::engine::general_purpose::STANDARD.encode(text);
                    let bytes = format!("\x1b]52;c;{text}\x07").into_bytes();
                    self.terminal.write(bytes);
                }
                Effect::Redraw => self.distrust(),
                Effect::Suspend => self.suspend().await,
                Effect::Leave(exit) => self.leaving = Some(exit),
            }
        }
    }

    fn say(&mut self, text: String, kind: MessageKind) {
        self.history.add(&text);
        if self.app.busy {
            if let Some(current) = &self.current {
                current.deliver(kind, text, &self.tells);
            }
            return;
        }
        self.prompt(Prompt { content: vec![ContentPart::text(text)] });
    }

    fn prompt(&mut self, prompt: Prompt) {
        self.work(Task::Prompt(prompt));
    }

    pub(super) fn work(&mut self, task: Task) {
        if let Some(current) = &self.current {
            self.app.busy = true;
            current.work(task, &self.tells);
            return;
        }
        let text = "Nobody is there to answer yet: /provider chooses one, /exit leaves.";
        self.app.view.note(Role::Warn, text);
        if let Task::Prompt(prompt) = task {
            self.app.composer.set(&text_of(&prompt.content));
        }
    }

    pub(super) fn hear(&mut self, told: Told) {
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
            // It ended a moment ago: this is the next task.
            Told::Unsaid(text) => {
                self.unsaid.push_back(text);
                self.say_unsaid();
            }
        }
    }

    pub(super) fn say_unsaid(&mut self) {
        if !self.app.busy
            && let Some(text) = self.unsaid.pop_front()
        {
            self.prompt(Prompt { content: vec![ContentPart::text(text)] });
        }
    }
}
