//! Input in the prompt: its completion, and the effect of submitting it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::event::{MessageKind, PermissionMode};
use posse_frontend::commands::{ArgumentValues, Availability, Command, ParsedLine, parse, unknown};

use crate::app::{App, Effect};
use crate::completion::{Completion, CompletionQuery};
use crate::composer::may_be_image;
use crate::keymap::{EditAction, KeyAction};
use crate::theme::{Role, Theme};

impl App {
    /// Updates the completion for the text before the cursor. File names are requested with an
    /// effect; the previous list stays until they arrive.
    pub(super) fn update_completion(&mut self) {
        let elsewhere = self.prompts.is_open() || self.selector.is_some() || self.is_covered();
        let wanted = CompletionQuery::of(self.composer.before());
        let is_typed = !self.composer.is_recalled() && !self.composer.is_in_normal_mode();
        let wanted = wanted.filter(|_| !elsewhere && is_typed);
        let Some(wanted) = wanted else {
            (self.completion, self.dismissed) = (None, false);
            return;
        };
        let same = self.completion.as_ref().is_some_and(|shown| shown.query == wanted);
        match wanted {
            _ if self.dismissed || same => (),
            CompletionQuery::Command(prefix) => {
                self.completion = Completion::of_commands(&prefix, &self.uses);
            }
            CompletionQuery::Argument { values, query } => {
                let known: Vec<(&str, &'static str)> = match values {
                    ArgumentValues::Any => Vec::new(),
                    ArgumentValues::Themes => {
                        Theme::names(&self.own_themes).into_iter().map(|name| (name, "")).collect()
                    }
                    ArgumentValues::PermissionModes => {
                        PermissionMode::KNOWN.map(|mode| (mode.as_str(), mode.about())).to_vec()
                    }
                };
                self.completion = Completion::of_values(values, &query, &known);
            }
            // The previous list stays until there are new results.
            CompletionQuery::File { query, .. } => self.effects.push(Effect::Find(query)),
        }
    }

    /// Shows the file names that were found for the query `looked_for`, if it is still the current
    /// one and the user has not closed the list.
    pub(crate) fn show_found_files(&mut self, looked_for: &str, names: &[String]) {
        let wanted = CompletionQuery::of(self.composer.before());
        let Some(CompletionQuery::File { query, suffix }) = wanted else { return };
        if query == looked_for && !self.dismissed && !self.composer.is_recalled() {
            self.completion = Completion::of_files(&query, &suffix, names, &self.agents);
        }
    }

    /// Handles a key if a completion list with items is open. Returns `false` if there is none or
    /// the key has its usual meaning.
    pub(super) fn handle_completion_key(
        &mut self,
        key: KeyEvent,
        action: Option<KeyAction>,
        now: Duration,
    ) -> bool {
        let Some(completion) = self.completion.as_mut().filter(|shown| !shown.is_empty()) else {
            return false;
        };
        let submits = action == Some(KeyAction::Submit);
        match action {
            _ if key == KeyEvent::from(KeyCode::Tab) || submits && completion.is_chosen() => {
                let runs = submits && !matches!(completion.query, CompletionQuery::File { .. });
                let with = completion.text().to_owned();
                let bytes =
                    CompletionQuery::of(self.composer.before()).map_or(0, |wanted| wanted.bytes());
                self.completion = None;
                // An image is attached; the model does not read it as text.
                let name = with.trim_start_matches('@').trim().trim_matches('"');
                let is_plain = !name.contains('\\');
                if with.starts_with('@') && is_plain && may_be_image(name) {
                    self.composer.complete(bytes, "");
                    self.effects.push(Effect::Attach(name.to_owned()));
                } else {
                    self.composer.complete(bytes, &with);
                    if runs {
                        self.act(KeyAction::Submit, now);
                    }
                }
            }
            Some(KeyAction::Edit(edit @ (EditAction::Up | EditAction::Down))) => {
                completion.go(edit == EditAction::Down);
            }
            Some(KeyAction::Interrupt) => (self.completion, self.dismissed) = (None, true),
            _ => return false,
        }
        true
    }

    pub(super) fn submit(&mut self, kind: MessageKind) {
        let text = self.composer.take();
        let typed = parse(&text);
        let is_immediate = typed.is_immediate();
        if self.is_input_blocked() && !is_immediate && typed != ParsedLine::Blank {
            return self.wait_for_lookup(&text);
        }
        if matches!(typed, ParsedLine::Text(_) | ParsedLine::Shell(_)) {
            self.composer.remember(&text);
        }
        // Any other input cancels a warned exit.
        self.exit_warned &= is_immediate || typed == ParsedLine::Blank;
        match typed {
            ParsedLine::Blank => (),
            ParsedLine::Text(text) => self.effects.push(Effect::Say(text, kind)),
            ParsedLine::Command(Command { when: Availability::Idle, name, .. }, _) if self.busy => {
                self.refuse_while_busy(&format!("/{name}"));
                self.composer.set(&text);
            }
            ParsedLine::Shell(_) if self.busy => {
                self.refuse_while_busy("a command");
                self.composer.set(&text);
            }
            ParsedLine::Shell(command) => {
                let mark = if command.is_private { "!!" } else { "!" };
                self.view.push_user_input(format!("{mark} {}", command.line));
                self.effects.push(Effect::Run(command));
            }
            ParsedLine::Command(command, argument) => {
                self.command(command, &text, argument.as_deref());
            }
            ParsedLine::Unknown(name, meant) => {
                self.view.push_user_input(text.trim().to_owned());
                self.view.note(Role::Warn, unknown(&name, meant));
            }
        }
    }

    /// Notes that `what` has to wait for the end of the task.
    pub(super) fn refuse_while_busy(&mut self, what: &str) {
        let text = format!("({what} is not available while a task runs; Esc stops the task)");
        self.view.note(Role::Dim, text);
    }

    /// Puts a submitted line back into the prompt, with a note, because a running lookup may
    /// replace the session for which the line is meant.
    pub(super) fn wait_for_lookup(&mut self, line: &str) {
        self.view.note(Role::Dim, "(wait for the lookup to finish; Esc cancels it)");
        self.composer.set(line);
    }
}

#[cfg(test)]
mod tests;
