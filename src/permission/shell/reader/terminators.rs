//! Ends of words, commands and lists.

use super::heredocs::Heredoc;
use super::reserved::Header;
use super::{ShellReader, is_subscript};
use crate::shell::outline::{Flaw, ShellEvent};
use crate::shell::word::{Form, Word, deactivate_braces};

impl ShellReader {
    pub(super) fn end_word(&mut self, byte: usize) {
        let Some(mut word) = self.word.take() else { return };
        if self.outermost {
            word.span.1 = byte;
        }
        word.text = deactivate_braces(std::mem::take(&mut word.text));
        if word.form.has(Form::BARE) || !word.text.is_empty() || word.form != Form::default() {
            self.ended(word);
        }
    }

    /// Adds a complete word to the command: as a redirection target, reserved word, assignment or
    /// argument.
    pub(super) fn ended(&mut self, word: Word) {
        let building = &mut self.building;
        if let Some(mut redirect) = building.redirect.take() {
            if redirect.operator.starts_with("<<") && redirect.operator != "<<<" {
                let id = self.outline.bodies.len();
                self.outline.bodies.push(None);
                self.heredocs.push(Heredoc::new(&word, redirect.operator == "<<-", id));
                redirect.body = Some(id);
            }
            redirect.target = word;
            self.building.command.redirects.push(redirect);
            return;
        }
        if self.reserved(&word) {
            return;
        }
        let building = &mut self.building;
        if building.closed {
            self.add_flaw(Flaw::Syntax);
            // It would be the program if the text continued.
            self.end_list(ShellEvent::End);
            self.building.command.words.push(word);
            return;
        }
        if building.command.words.is_empty() && word.value_at.is_some() {
            self.read_later(&word.text);
            self.building.command.assignments.push(word);
        } else {
            if building.command.words.is_empty() && is_subscript(&word.text) {
                self.add_flaw(Flaw::Subscript);
            }
            self.building.command.words.push(word);
        }
    }

    /// Records `text` as unread if it contains a substitution in a subscript. Bash evaluates such
    /// text, even if it was quoted, when it looks for a number: the substitution then runs
    /// (`x='a[$(P)]'; echo $((x))`).
    pub(super) fn read_later(&mut self, text: &str) {
        let subscript = text.split_once('[').map_or("", |(_, subscript)| subscript);
        if subscript.contains("$(") || subscript.contains('`') {
            self.outline.unread.push(text.to_owned());
        }
    }

    /// Ends the current simple command, or the redirections after a compound command, and adds it
    /// to the outline.
    pub(super) fn end_command(&mut self) {
        self.end_word(self.byte);
        let mut building = std::mem::take(&mut self.building);
        if let Some(redirect) = building.redirect.take() {
            self.add_flaw(Flaw::Syntax);
            building.command.redirects.push(redirect);
        }
        self.building.function = building.function.take();
        if let Some(header) = building.header {
            // Its `in` may come on the next line.
            self.building.header = Some(header).filter(|header| *header == Header::CaseIn);
            return;
        }
        let command = building.command;
        let empty = command.words.is_empty()
            && command.assignments.is_empty()
            && command.redirects.is_empty();
        if building.timed {
            self.outline.events.push(ShellEvent::Timed);
        }
        if empty {
            return;
        }
        let at = self.outline.commands.len();
        self.outline.commands.push(command);
        self.outline.events.push(if building.closed {
            ShellEvent::After(at)
        } else {
            ShellEvent::Run(at)
        });
    }

    pub(super) fn end_list(&mut self, event: ShellEvent) {
        let empty_before = self.outline.events.len();
        let blank = self.building.is_blank() && self.word.is_none() && !self.building.closed;
        self.end_command();
        if blank && !matches!(event, ShellEvent::End) && empty_before == self.outline.events.len() {
            self.add_flaw(Flaw::Syntax);
        }
        // A newline after an operator continues the list.
        let goes_on = matches!(
            self.outline.events.last(),
            Some(ShellEvent::And | ShellEvent::Or | ShellEvent::Pipe)
        );
        if !(goes_on && matches!(event, ShellEvent::End)) {
            self.outline.events.push(event);
        }
    }
}
