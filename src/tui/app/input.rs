//! Input in the prompt: its completion, and the effect of submitting it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::event::MessageKind;
use posse_frontend::commands::{Availability, Command, ParsedLine, parse, unknown};

use crate::app::{App, Effect};
use crate::completion::{Completion, CompletionQuery};
use crate::composer::may_be_image;
use crate::keymap::{EditAction, KeyAction};
use crate::theme::Role;

impl App {
    /// Updates the completion for the text before the cursor.
    pub(super) fn update_completion(&mut self) -> Option<Effect> {
        let elsewhere = self.prompts.is_open() || self.viewer.is_some() || self.selector.is_some();
        let wanted = CompletionQuery::of(self.composer.before());
        let wanted = wanted.filter(|_| !elsewhere && !self.composer.is_recalled());
        let Some(wanted) = wanted else {
            (self.completion, self.dismissed) = (None, false);
            return None;
        };
        let same = self.completion.as_ref().is_some_and(|shown| shown.query == wanted);
        if self.dismissed || same {
            return None;
        }
        match &wanted {
            CompletionQuery::Command(prefix) => {
                self.completion = Completion::of_commands(prefix);
                None
            }
            // The previous list stays until there are new results.
            CompletionQuery::File { query, .. } => Some(Effect::Find(query.clone())),
        }
    }

    /// Shows file names that were found, if the query is still current.
    pub(crate) fn show_found_files(&mut self, looked_for: &str, names: &[String]) {
        let wanted = CompletionQuery::of(self.composer.before());
        let Some(CompletionQuery::File { query, suffix }) = wanted else { return };
        if query == looked_for && !self.dismissed && !self.composer.is_recalled() {
            self.completion = Completion::of_files(&query, &suffix, names);
        }
    }

    /// Handles a key while a completion list is open. `None`: the key has its usual meaning.
    pub(super) fn handle_completion_key(
        &mut self,
        key: KeyEvent,
        action: Option<KeyAction>,
        now: Duration,
    ) -> Option<Vec<Effect>> {
        let completion = self.completion.as_mut().filter(|completion| !completion.is_empty())?;
        let takes = key == KeyEvent::from(KeyCode::Tab)
            || action == Some(KeyAction::Submit) && completion.is_chosen();
        match action {
            _ if takes => {
                let runs = action == Some(KeyAction::Submit)
                    && matches!(completion.query, CompletionQuery::Command(_));
                let with = completion.text().to_owned();
                let bytes =
                    CompletionQuery::of(self.composer.before()).map_or(0, |wanted| wanted.bytes());
                self.completion = None;
                // An image is attached; the model does not read it as text.
                let name = with.trim_start_matches('@').trim().trim_matches('"');
                let is_plain = !name.contains('\\');
                if with.starts_with('@') && is_plain && may_be_image(name) {
                    self.composer.complete(bytes, "");
                    return Some(vec![Effect::Attach(name.to_owned())]);
                }
                self.composer.complete(bytes, &with);
                Some(if runs { self.act(KeyAction::Submit, now) } else { Vec::new() })
            }
            Some(KeyAction::Edit(edit @ (EditAction::Up | EditAction::Down))) => {
                completion.go(edit == EditAction::Down);
                Some(Vec::new())
            }
            Some(KeyAction::Interrupt) => {
                (self.completion, self.dismissed) = (None, true);
                Some(Vec::new())
            }
            _ => None,
        }
    }

    pub(super) fn submit(&mut self, kind: MessageKind) -> Vec<Effect> {
        let text = self.composer.take();
        let typed = parse(&text);
        let is_immediate = typed.is_immediate();
        if self.is_input_blocked() && !is_immediate && typed != ParsedLine::Blank {
            self.wait_for_lookup(&text);
            return Vec::new();
        }
        if matches!(typed, ParsedLine::Text(_) | ParsedLine::Shell(_)) {
            self.composer.remember(&text);
        }
        // Any other input cancels a warned exit.
        self.leaving.warned &= is_immediate || typed == ParsedLine::Blank;
        match typed {
            ParsedLine::Blank => Vec::new(),
            ParsedLine::Text(text) => vec![Effect::Say(text, kind)],
            ParsedLine::Command(Command { when: Availability::Idle, .. }, _)
            | ParsedLine::Shell(_)
                if self.busy =>
            {
                self.view.note(Role::Dim, "(not available while a task runs; Esc stops it)");
                Vec::new()
            }
            ParsedLine::Shell(command) => {
                self.view.push_user_input(format!("! {command}"));
                vec![Effect::Run(command)]
            }
            ParsedLine::Command(command, argument) => {
                self.command(command, &text, argument.as_deref())
            }
            ParsedLine::Unknown(name, meant) => {
                self.view.push_user_input(text.trim().to_owned());
                self.view.note(Role::Warn, unknown(&name, meant));
                Vec::new()
            }
        }
    }

    /// Puts a line back into the prompt, because a lookup may change its subject.
    pub(super) fn wait_for_lookup(&mut self, line: &str) {
        self.view.note(Role::Dim, "(wait for the lookup to finish; Esc cancels it)");
        self.composer.set(line);
    }
}

#[cfg(test)]
mod tests;
