//! Simple commands, their words and operators, and the parentheses around them.

use super::reserved::{CaseState, Header};
use super::{Building, Closer, ReaderMode, ShellReader, is_name};
use crate::shell::outline::{Flaw, Redirect, Scope, ShellEvent};
use crate::shell::word::{Form, active};

impl ShellReader {
    pub(super) fn commands(&mut self) {
        let Some(c) = self.peek() else { return };
        if c == '#' && self.word.is_none() {
            return self.comment();
        }
        if matches!(c, '<' | '>') {
            return self.redirection();
        }
        let here = self.byte;
        match c {
            ' ' | '\t' => {
                self.end_word(here);
                self.raw();
            }
            '\n' => {
                self.end_word(here);
                self.raw();
                self.end_list(ShellEvent::End);
                self.read_heredocs();
            }
            ';' => self.semicolon(),
            '&' => self.ampersand(),
            '|' => {
                self.end_word(here);
                self.raw();
                let event = if self.take('|') {
                    ShellEvent::Or
                } else if self.take('&') {
                    self.add_flaw(Flaw::PipeBoth);
                    ShellEvent::Pipe
                } else {
                    ShellEvent::Pipe
                };
                self.end_list(event);
            }
            '(' => self.parenthesis(),
            ')' => {
                self.end_word(here);
                self.raw();
                self.close_parenthesis();
            }
            _ => {
                self.raw();
                self.word_char(c);
            }
        }
    }

    /// Skips a comment: all characters up to the end of the line.
    pub(super) fn comment(&mut self) {
        while self.source.get(self.at).is_some_and(|c| *c != '\n') {
            self.raw();
        }
    }

    pub(super) fn semicolon(&mut self) {
        self.end_word(self.byte);
        self.raw();
        let double = self.take(';');
        let falls = self.take('&');
        self.end_list(ShellEvent::End);
        if double || falls {
            if let ReaderMode::Commands(Closer::Case(state)) = &mut self.mode {
                *state = CaseState::Pattern;
            } else {
                self.add_flaw(Flaw::Syntax);
            }
        }
    }

    pub(super) fn ampersand(&mut self) {
        self.end_word(self.byte);
        self.raw();
        if self.take('&') {
            self.end_list(ShellEvent::And);
        } else if self.peek() == Some('>') {
            self.raw();
            let operator = if self.take('>') { "&>>" } else { "&>" };
            self.await_target(Redirect::new(operator, None));
        } else {
            self.end_list(ShellEvent::Background);
        }
    }

    /// Adds `c`, which was taken outside of quotes, to the current word, or reads the quotes or
    /// expansion that begin with it.
    pub(super) fn word_char(&mut self, c: char) {
        let before = self.byte - c.len_utf8();
        if self.word.is_none() {
            self.word().span = if self.outermost { (before, before) } else { (0, 0) };
        }
        match c {
            '\\' => {
                if let Some(c) = self.raw() {
                    self.push(c, Form::ESCAPED);
                } else {
                    self.add_flaw(Flaw::Unclosed);
                    self.push('\\', Form::ESCAPED);
                }
            }
            '\'' => self.single_quotes(),
            '"' => {
                self.word().form.add(Form::QUOTED);
                self.open(ReaderMode::Quotes { body: false });
            }
            '$' => self.dollar(false),
            '`' => self.backticks(false),
            '*' | '?' | '[' | '{' | '}' | '~' | ',' => {
                self.word().form.add(Form::BARE);
                let tilde_starts = {
                    let word = self.word();
                    let text = &word.text;
                    text.is_empty() && !word.form.has(Form::QUOTED)
                        || text.ends_with('=')
                        || (text.ends_with(':') && word.value_at.is_some())
                };
                let means = c != '~' || tilde_starts;
                if means { self.mark(active(c)) } else { self.push(c, Form::BARE) }
            }
            '=' => {
                let word = self.word();
                let name = word.text.strip_suffix('+').unwrap_or(&word.text);
                let assigns = word.form.is_bare() && is_name(name) && word.value_at.is_none();
                self.push(c, Form::BARE);
                if assigns {
                    let word = self.word();
                    word.value_at = Some(word.text.len());
                    if self.peek() == Some('(') {
                        self.raw();
                        self.word().form.add(Form::ARRAY);
                        self.open(ReaderMode::Array);
                    }
                }
            }
            c => self.push(c, Form::BARE),
        }
    }

    pub(super) fn single_quotes(&mut self) {
        self.word().form.add(Form::QUOTED);
        let begins = self.at;
        loop {
            match self.raw() {
                Some('\'') => break,
                Some(c) => self.push(c, Form::QUOTED),
                None => return self.add_flaw(Flaw::Unclosed),
            }
        }
        // Elsewhere it is in the word.
        if self.silent > 0 {
            let text: String =
                self.source.get(begins..self.at).unwrap_or_default().iter().collect();
            self.read_later(&text);
        }
    }

    pub(super) fn parenthesis(&mut self) {
        let blank = self.building.is_blank() && self.word.is_none();
        if self.word.as_ref().is_some_and(|word| word.form.has(Form::SPLITS)) {
            self.add_flaw(Flaw::Syntax);
        }
        self.end_word(self.byte);
        self.raw();
        if self.building.header.as_ref().is_some_and(|header| header.wants_arithmetic())
            && self.peek() == Some('(')
        {
            self.raw();
            self.building.header = Some(Header::Done);
            return self.open_arithmetic(false, false);
        }
        if self.building.defines() && self.next_is_closing() {
            let name = self.building.command.words.pop();
            let name = name.map(|word| word.text).unwrap_or_default();
            self.outline.functions.push(name.clone());
            self.building = Building { function: Some(name), ..Building::default() };
            return;
        }
        if self.building.function.is_some() && self.next_is_closing() {
            return;
        }
        if self.building.coprocess && self.building.command.words.len() == 1 {
            // The name of a coprocess; it is listed as if it ran.
            self.end_list(ShellEvent::Background);
        }
        if blank || self.building.is_blank() {
            if self.peek() == Some('(') && self.is_arithmetic() {
                self.raw();
                self.add_flaw(Flaw::Compound);
                return self.open_arithmetic(false, true);
            }
            return self.open_compound(Scope::Subshell, Closer::Paren);
        }
        self.add_flaw(Flaw::Syntax);
        self.end_list(ShellEvent::End);
        self.open_compound(Scope::Subshell, Closer::Paren);
    }

    /// Takes blanks and a `)` and returns true, if they come next. Takes nothing otherwise.
    pub(super) fn next_is_closing(&mut self) -> bool {
        let (at, byte) = (self.at, self.byte);
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.raw();
        }
        let closing = self.take(')');
        if !closing {
            (self.at, self.byte) = (at, byte);
        }
        closing
    }

    pub(super) fn close_parenthesis(&mut self) {
        self.end_list(ShellEvent::End);
        let closes = |mode: &ReaderMode| {
            matches!(mode, ReaderMode::Commands(Closer::Paren | Closer::Substitution))
        };
        if closes(&self.mode) {
            return self.close();
        }
        // Something inside was not closed, or nothing is open.
        self.add_flaw(Flaw::Syntax);
        let inside = self.frames.iter().rev().take_while(|frame| !closes(&frame.mode)).count();
        if inside == self.frames.len() {
            return;
        }
        for _ in 0..=inside {
            self.end_command();
            self.close();
        }
        self.end_command();
        self.close();
    }
}
