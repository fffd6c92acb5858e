//! What is being written: what could be meant by it, and what it means when it is sent.

use std::time::Duration;

use posse_actors::event::MessageKind;

use crate::talk::commands::{Command, Typed, When, parse, unknown};
use crate::tui::app::{App, Effect};
use crate::tui::completion::{Completion, Wanted};
use crate::tui::composer::may_be_image;
use crate::tui::input::{Code, Key};
use crate::tui::keymap::{Action, Edit};
use crate::tui::theme::Role;

impl App {
    /// Looks what could be meant by what is being written.
    pub(super) fn suggest(&mut self) -> Option<Effect> {
        let elsewhere =
            self.questions.is_open() || self.viewer.is_some() || self.selector.is_some();
        let wanted = Wanted::of(self.composer.before());
        let wanted = wanted.filter(|_| !elsewhere && !self.composer.is_recalled());
        let Some(wanted) = wanted else {
            (self.completion, self.dismissed) = (None, false);
            return None;
        };
        let same = self.completion.as_ref().is_some_and(|shown| shown.wanted == wanted);
        if self.dismissed || same {
            return None;
        }
        match &wanted {
            Wanted::Command(prefix) => {
                self.completion = Completion::of_commands(prefix);
                None
            }
            // What was found before stays until there is something better.
            Wanted::File { query, .. } => Some(Effect::Find(query.clone())),
        }
    }

    /// Shows files that were found, if they are still what is looked for.
    pub(in crate::tui) fn found(&mut self, looked_for: &str, names: &[String]) {
        let wanted = Wanted::of(self.composer.before());
        let Some(Wanted::File { query, suffix }) = wanted else { return };
        if query == looked_for && !self.dismissed && !self.composer.is_recalled() {
            self.completion = Completion::of_files(&query, &suffix, names);
        }
    }

    /// Follows a key as long as something could be meant. `None`: it has its usual meaning.
    pub(super) fn key_of_completion(
        &mut self,
        key: Key,
        action: Option<Action>,
        now: Duration,
    ) -> Option<Vec<Effect>> {
        let completion = self.completion.as_mut().filter(|completion| !completion.is_empty())?;
        let takes = key == Key::plain(Code::Tab)
            || action == Some(Action::Submit) && completion.is_chosen();
        match action {
            _ if takes => {
                let runs = action == Some(Action::Submit)
                    && matches!(completion.wanted, Wanted::Command(_));
                let with = completion.text().to_owned();
                let bytes = Wanted::of(self.composer.before()).map_or(0, |wanted| wanted.bytes());
                self.completion = None;
                // What can be seen is shown to the model, and not read by it.
                let name = with.trim_start_matches('@').trim().trim_matches('"');
                let is_plain = !name.contains('\\');
                if with.starts_with('@') && is_plain && may_be_image(name) {
                    self.composer.complete(bytes, "");
                    return Some(vec![Effect::Attach(name.to_owned())]);
                }
                self.composer.complete(bytes, &with);
                Some(if runs { self.act(Action::Submit, now) } else { Vec::new() })
            }
            Some(Action::Edit(edit @ (Edit::Up | Edit::Down))) => {
                completion.go(edit == Edit::Down);
                Some(Vec::new())
            }
            Some(Action::Interrupt) => {
                (self.completion, self.dismissed) = (None, true);
                Some(Vec::new())
            }
            _ => None,
        }
    }

    pub(super) fn submit(&mut self, kind: MessageKind) -> Vec<Effect> {
        let text = self.composer.take();
        let typed = parse(&text);
        let ends = matches!(typed, Typed::Command(Command::Stop | Command::Exit, _));
        if self.is_held() && !ends && typed != Typed::Blank {
            self.view.note(Role::Dim, "(one moment: something is looked up; Esc gives it up)");
            self.composer.set(&text);
            return Vec::new();
        }
        if matches!(typed, Typed::Text(_) | Typed::Shell(_)) {
            self.composer.remember(&text);
        }
        // Whoever goes on has not left.
        self.leaving.warned &= ends || typed == Typed::Blank;
        match typed {
            Typed::Blank => Vec::new(),
            Typed::Text(text) => vec![Effect::Say(text, kind)],
            Typed::Command(_, When::Idle) | Typed::Shell(_) if self.busy => {
                self.view.note(Role::Dim, "(that has to wait until nothing runs; Esc stops it)");
                Vec::new()
            }
            Typed::Shell(command) => {
                self.view.said(format!("! {command}"));
                vec![Effect::Run(command)]
            }
            Typed::Command(command, _) => {
                if is_echoed(&command) {
                    self.view.said(text.trim().to_owned());
                }
                self.command(command)
            }
            Typed::Unknown(name, meant) => {
                self.view.said(text.trim().to_owned());
                self.view.note(Role::Warn, unknown(&name, meant));
                Vec::new()
            }
        }
    }
}

/// Whether what it says stands in the transcript, below the command: not on a screen of its own or
/// in a list.
fn is_echoed(command: &Command) -> bool {
    !matches!(
        command,
        Command::Select(_, None)
            | Command::Resume(None)
            | Command::Queue(None)
            | Command::Diff
            | Command::Config
            | Command::Tools
            | Command::Skills
            | Command::Skill(..)
            | Command::Doctor
            | Command::Exit
    )
}

#[cfg(test)]
mod tests;
