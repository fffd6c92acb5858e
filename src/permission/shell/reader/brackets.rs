//! Arrays `name=(…)` and conditions `[[ … ]]`: words that are not commands.

use super::{ReaderMode, ShellReader};
use crate::shell::outline::Flaw;

impl ShellReader {
    /// Reads the next character of an array `name=(…)`. The words of the array are no words of
    /// the command.
    pub(super) fn array(&mut self) {
        let Some(c) = self.peek() else { return };
        match c {
            ')' => {
                self.raw();
                self.drop_word();
                self.close();
            }
            ' ' | '\t' | '\n' | ';' | '&' | '|' => {
                self.raw();
                self.drop_word();
                if matches!(c, ';' | '&' | '|') {
                    self.add_flaw(Flaw::Syntax);
                }
                if c == '\n' && !self.heredocs.is_empty() {
                    // Whether their texts begin here depends on the version.
                    self.add_flaw(Flaw::Heredoc);
                }
            }
            '#' if self.word.is_none() => self.comment(),
            '<' | '>' => {
                self.raw();
                if self.take('(') {
                    self.open_process(c);
                } else {
                    self.add_flaw(Flaw::Syntax);
                }
            }
            '(' => {
                self.raw();
                self.add_flaw(Flaw::Syntax);
            }
            _ => {
                self.raw();
                self.word_char(c);
            }
        }
    }

    /// Ends the current word, which belongs to an array or a condition.
    pub(super) fn drop_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.read_later(&word.text);
            self.literal(word, self.mode == ReaderMode::Array);
        }
    }

    /// Reads the next character of a condition `[[ … ]]`. Its words are no words of a
    /// command.
    pub(super) fn condition(&mut self) {
        let Some(c) = self.peek() else { return };
        match c {
            ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '(' => {
                if self.ends_condition() {
                    return self.close();
                }
                self.raw();
                self.drop_word();
                if c == '\n' {
                    self.read_heredocs();
                }
            }
            '#' if self.word.is_none() => {
                // Where a word has to come, it may be one.
                self.add_flaw(Flaw::Syntax);
                self.comment();
            }
            '<' | '>' => {
                if self.takes_process() {
                    return self.open_process(c);
                }
                if self.ends_condition() {
                    return self.close();
                }
                self.raw();
                self.drop_word();
            }
            _ => {
                self.raw();
                self.word_char(c);
            }
        }
    }

    pub(super) fn ends_condition(&self) -> bool {
        self.word.as_ref().is_some_and(|word| word.form.is_bare() && word.text == "]]")
    }
}
