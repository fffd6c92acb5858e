//! Redirections and the texts of here-documents.

use super::{ReaderMode, ShellReader};
use crate::shell::outline::{Flaw, Redirect};
use crate::shell::word::{Form, Word};

/// Here-document whose text was not read yet.
#[derive(Debug)]
pub(super) struct Heredoc {
    delimiter: String,
    /// True if the delimiter is quoted, so that nothing in the text is expanded.
    quoted: bool,
    strip: bool,
    /// Index of the text in `Outline::bodies`.
    body: usize,
}

impl Heredoc {
    pub(super) fn new(word: &Word, strip: bool, body: usize) -> Heredoc {
        let delimiter = crate::shell::word::shown(&word.text);
        Heredoc { delimiter, quoted: word.unquoted_literal().is_none(), strip, body }
    }
}

impl ShellReader {
    /// Reads an operator that begins with `<` or `>`: a redirection or a process substitution.
    pub(super) fn redirection(&mut self) {
        let Some(first) = self.peek() else { return };
        let here = self.byte;
        if self.takes_process() {
            if self.word.is_none() {
                let start = if self.outermost { here } else { 0 };
                self.word().span = (start, start);
            }
            return self.open_process(first);
        }
        let descriptor = self.descriptor(here);
        self.raw();
        let operator = self.operator(if first == '<' { "<" } else { ">" });
        self.await_target(Redirect::new(operator, descriptor));
    }

    /// Takes the remaining characters of an operator that begins with `operator`; returns the
    /// longest one.
    fn operator(&mut self, operator: &'static str) -> &'static str {
        const LONGER: [&str; 8] = ["<<", "<&", "<>", "<<<", "<<-", ">>", ">&", ">|"];
        let longer = LONGER.into_iter().find(|longer| {
            let next = longer.strip_prefix(operator).and_then(|rest| rest.chars().next());
            longer.len() == operator.len() + 1 && next.is_some_and(|next| self.take(next))
        });
        longer.map_or(operator, |longer| self.operator(longer))
    }

    pub(super) fn await_target(&mut self, redirect: Redirect) {
        if let Some(before) = self.building.redirect.take() {
            self.add_flaw(Flaw::Syntax);
            self.building.command.redirects.push(before);
        }
        self.building.redirect = Some(redirect);
    }

    /// Takes the current word as descriptor if it is a number or a name in braces. Otherwise ends
    /// the word and returns `None`. `here` is the byte position of the operator.
    fn descriptor(&mut self, here: usize) -> Option<String> {
        let word = self.word.as_ref()?;
        let plain = word.form.is_bare() && word.substitutions.is_empty();
        let text = crate::shell::word::shown(&word.text);
        let number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        if plain && (number || name.is_some_and(super::is_name)) {
            self.word = None;
            return Some(text);
        }
        self.end_word(here);
        None
    }

    /// Reads the texts of the here-documents that were started on the line before.
    pub(super) fn read_heredocs(&mut self) {
        if self.heredocs.is_empty() {
            return;
        }
        if self.foreign > 0 {
            // The place where they begin depends on the version of bash.
            self.add_flaw(Flaw::Heredoc);
        }
        for heredoc in std::mem::take(&mut self.heredocs) {
            self.read_heredoc(&heredoc);
        }
        self.foreign = 0;
        for frame in &mut self.frames {
            frame.heredocs = 0;
        }
    }

    fn read_heredoc(&mut self, heredoc: &Heredoc) {
        let mut body = String::new();
        let mut ended = false;
        while self.at < self.source.len() {
            let mut line = String::new();
            loop {
                match self.raw() {
                    None | Some('\n') => break,
                    Some('\\') if !heredoc.quoted && self.source.get(self.at) == Some(&'\n') => {
                        // With a line continuation, the search for the delimiter depends on the
                        // version.
                        self.add_flaw(Flaw::Heredoc);
                        self.raw();
                    }
                    Some('\\') if !heredoc.quoted => {
                        line.push('\\');
                        line.extend(self.raw_in_line());
                    }
                    Some(c) => line.push(c),
                }
            }
            let text = if heredoc.strip { line.trim_start_matches('\t') } else { &line };
            if text == heredoc.delimiter {
                ended = true;
                break;
            }
            body.push_str(text);
            body.push('\n');
        }
        if !ended {
            self.add_flaw(Flaw::Heredoc);
        }
        let word = if heredoc.quoted {
            Word { text: body, form: Form::QUOTED, ..Word::default() }
        } else {
            self.expanded_body(&body)
        };
        if let Some(body) = self.outline.bodies.get_mut(heredoc.body) {
            *body = Some(word);
        }
    }

    fn raw_in_line(&mut self) -> Option<char> {
        if self.source.get(self.at) == Some(&'\n') { None } else { self.raw() }
    }

    fn expanded_body(&mut self, body: &str) -> Word {
        let building = std::mem::take(&mut self.building);
        let word = self.word.take();
        let silent = std::mem::take(&mut self.silent);
        self.text(body, ReaderMode::Quotes { body: true }, false);
        let body = self.word.take().unwrap_or_default();
        self.silent = silent;
        self.word = word;
        self.building = building;
        body
    }
}
