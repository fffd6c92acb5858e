//! Dollar expansions, backticks and double quotes.

use super::{Closer, ReaderMode, ShellReader, unknown};
use crate::shell::outline::{Flaw, Scope};
use crate::shell::word::{Form, HOME, PWD, UNKNOWN, Word, active, ansi_c, is_reserved};

/// Variables that name the folder for temporary files.
const TEMPORARY: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];

impl ShellReader {
    /// Reads the expansion after a `$` that was taken outside of single quotes. `quoted`: inside
    /// double quotes.
    pub(super) fn dollar(&mut self, quoted: bool) {
        match self.peek() {
            Some('(') => {
                self.raw();
                if self.peek() == Some('(') && self.is_arithmetic() {
                    self.raw();
                    unknown(self, quoted);
                    return self.open_arithmetic(false, false);
                }
                unknown(self, quoted);
                self.open_substitution(Scope::Substitution, Closer::Substitution);
            }
            Some('[') => {
                self.raw();
                unknown(self, quoted);
                self.open_arithmetic(true, false);
            }
            Some('{') => {
                self.raw();
                self.braced(quoted);
            }
            Some('\'') if !quoted => {
                self.raw();
                self.dollar_quotes();
            }
            Some('"') if !quoted => {
                self.raw();
                self.word().form.add(Form::DOLLAR_QUOTED);
                self.word().form.add(Form::CODED);
                self.open(ReaderMode::Quotes { body: false });
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek()
                    && (c.is_ascii_alphanumeric() || c == '_')
                {
                    name.push(c);
                    self.raw();
                }
                self.variable(&name, quoted);
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.raw();
                unknown(self, quoted);
            }
            _ => self.push('$', if quoted { Form::QUOTED } else { Form::BARE }),
        }
    }

    fn variable(&mut self, name: &str, quoted: bool) {
        let mark = match name {
            "HOME" => HOME,
            "PWD" => PWD,
            name if TEMPORARY.contains(&name) => {
                self.word().form.add(Form::TEMPORARY);
                return unknown(self, quoted);
            }
            _ => return unknown(self, quoted),
        };
        self.mark(mark);
        self.word().form.add(if quoted { Form::QUOTED } else { Form::SPLITS });
    }

    /// Reads a simple `${NAME}`, or opens a longer expansion, after `${`.
    fn braced(&mut self, quoted: bool) {
        self.peek();
        let rest = self.source.get(self.at..).unwrap_or_default();
        let length = rest.iter().take(64).take_while(|c| c.is_alphanumeric() || **c == '_').count();
        let name: String = rest.iter().take(length).collect();
        if rest.get(length) == Some(&'}') && length > 0 {
            for _ in 0..=length {
                self.raw();
            }
            return self.variable(&name, quoted);
        }
        if matches!(rest.first(), Some(' ' | '\t' | '\n' | '|')) {
            // Commands, in a newer bash; an error in others.
            self.add_flaw(Flaw::Syntax);
            self.raw();
            unknown(self, quoted);
            return self.open_substitution(Scope::Substitution, Closer::Brace);
        }
        if name == "HOME" {
            // `${HOME:-…}`, `${HOME%/}`.
            self.variable("HOME", quoted);
        } else {
            if TEMPORARY.contains(&&*name) {
                self.word().form.add(Form::TEMPORARY);
            }
            unknown(self, quoted);
        }
        self.open(ReaderMode::Parameter { quoted, begins: self.at });
        self.silent += 1;
    }

    fn dollar_quotes(&mut self) {
        self.word().form.add(Form::DOLLAR_QUOTED);
        let mut text = String::new();
        loop {
            match self.raw() {
                Some('\'') => break,
                Some('\\') => {
                    text.push('\\');
                    match self.raw() {
                        Some(c) => text.push(c),
                        None => return self.add_flaw(Flaw::Unclosed),
                    }
                }
                Some(c) => text.push(c),
                None => {
                    self.add_flaw(Flaw::Unclosed);
                    break;
                }
            }
        }
        if has_codes(&text) {
            self.word().form.add(Form::CODED);
        }
        for c in ansi_c(&text).chars() {
            self.push(c, Form::DOLLAR_QUOTED);
        }
    }

    /// Reads a substitution after a backtick: takes the text up to the next backtick and parses it
    /// as commands.
    pub(super) fn backticks(&mut self, quoted: bool) {
        unknown(self, quoted);
        let mut text = String::new();
        loop {
            match self.raw() {
                Some('`') => break,
                Some('\\') => match self.raw() {
                    Some(c @ ('`' | '\\' | '$')) => text.push(c),
                    Some('"') if quoted => text.push('"'),
                    Some(c) => {
                        text.push('\\');
                        text.push(c);
                    }
                    None => self.add_flaw(Flaw::Unclosed),
                },
                Some(c) => text.push(c),
                None => {
                    self.add_flaw(Flaw::Unclosed);
                    break;
                }
            }
        }
        self.open_substitution(Scope::Substitution, Closer::Substitution);
        self.text(&text, ReaderMode::Commands(Closer::End), false);
        self.close();
    }

    pub(super) fn quotes(&mut self, body: bool) {
        let Some(c) = self.next() else { return };
        match c {
            '"' if !body => self.close(),
            '\\' => match self.raw() {
                Some(c @ ('$' | '`' | '\\')) => self.push(c, Form::ESCAPED),
                Some('"') if !body => self.push('"', Form::ESCAPED),
                Some(c) => {
                    self.push('\\', Form::ESCAPED);
                    self.push(c, Form::QUOTED);
                }
                None => self.push('\\', Form::ESCAPED),
            },
            '$' => self.dollar(true),
            '`' => self.backticks(true),
            c => self.push(c, Form::QUOTED),
        }
    }

    /// Reads the next character inside `${…}`. Quotes and expansions are read in full, because they
    /// may contain commands; other characters are skipped. `quoted`: the `${…}` is in double
    /// quotes. `begins`: index of the first character behind `${`.
    pub(super) fn parameter(&mut self, quoted: bool, begins: usize) {
        let Some(c) = self.next() else { return };
        match c {
            '}' => {
                let inside = self.source.get(begins..self.at.saturating_sub(1));
                let inside = inside.map(<[char]>::to_vec);
                self.alternatives(&inside.unwrap_or_default());
                self.close();
            }
            '\\' => {
                self.raw();
            }
            // In double quotes, a single one means itself behind some operators and not behind
            // others.
            '\'' if quoted => self.add_flaw(Flaw::Syntax),
            '\'' => {
                self.word();
                let mut text = String::new();
                while let Some(c) = self.raw() {
                    if c == '\'' {
                        return self.read_later(&text);
                    }
                    text.push(c);
                }
                self.add_flaw(Flaw::Unclosed);
            }
            '"' => self.open(ReaderMode::Quotes { body: false }),
            '$' => self.dollar(quoted),
            '`' => self.backticks(quoted),
            '<' | '>' if !quoted && self.peek() == Some('(') => {
                self.raw();
                self.open_process(c);
            }
            // `${x@P}` expands the value as a prompt, including substitutions.
            '@' if self.peek() == Some('P') => self.add_flaw(Flaw::Odd),
            _ => {}
        }
    }

    /// Records the words that may take the place of a value in the expansion `${…}` with the text
    /// `inside`: behind an operator, and behind a slash in it.
    fn alternatives(&mut self, inside: &[char]) {
        let is_name = |c: &&char| c.is_alphanumeric() || matches!(**c, '_' | '!' | '@' | '*' | '#');
        let mut name = inside.iter().take_while(is_name).count();
        if inside.get(name) == Some(&'[') {
            name += inside.iter().skip(name).take_while(|c| **c != ']').count() + 1;
        }
        let is_operator = |c: &&char| ":-=+?/#%^,".contains(**c);
        let rest = inside.iter().skip(name);
        let operator = rest.clone().take_while(is_operator).take(2);
        let (length, replaces) = (operator.clone().count(), operator.clone().any(|c| *c == '/'));
        let text: String = rest.skip(length).filter(|c| !"\"'\\".contains(**c)).collect();
        let mut texts = vec![text.as_str()];
        if replaces {
            texts.extend(text.match_indices('/').map(|(at, _)| &text[at + 1..]));
        }
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let text = with_marks(text);
            self.literal(Word { text, ..Word::default() }, true);
        }
    }

    /// Opens arithmetic, whose content is not part of the word's text. `square`: `$[…]`; `command`:
    /// the command `((…))`.
    pub(super) fn open_arithmetic(&mut self, square: bool, command: bool) {
        self.open(ReaderMode::Arithmetic { depth: 0, square, command });
        self.silent += 1;
    }

    pub(super) fn arithmetic(&mut self) {
        let ReaderMode::Arithmetic { depth, square, command } = self.mode else { return };
        let Some(c) = self.next() else { return };
        let at = |depth| ReaderMode::Arithmetic { depth, square, command };
        match c {
            '(' if !square => self.mode = at(depth + 1),
            '[' if square => self.mode = at(depth + 1),
            ')' if !square && depth > 0 => self.mode = at(depth - 1),
            ']' if square && depth > 0 => self.mode = at(depth - 1),
            ']' if square => self.close(),
            ')' if !square => {
                if !self.take(')') {
                    self.add_flaw(Flaw::Syntax);
                }
                self.close();
            }
            '\\' => {
                self.raw();
            }
            '\'' => {
                // Quotes mean different things in the two kinds, and the content may run.
                self.add_flaw(Flaw::Syntax);
            }
            '"' => self.open(ReaderMode::Quotes { body: false }),
            '$' => self.dollar(true),
            '`' => self.backticks(true),
            _ => {}
        }
    }

    /// Reads ahead. True if the next `(`, which is the second one of `((`, is closed by `))`.
    /// Otherwise reports a flaw and returns false: the first one opens a substitution or subshell,
    /// and the second one a subshell in it. Also false after too much reading ahead in the whole
    /// text.
    pub(super) fn is_arithmetic(&mut self) -> bool {
        let mut depth = 0_usize;
        let mut at = self.at;
        let mut quote: Option<char> = None;
        let bound = 1 << 16;
        if self.ahead > 8 * self.source.len() + bound {
            self.add_flaw(Flaw::TooDeep);
            return false;
        }
        while let Some(c) = self.source.get(at) {
            at += 1;
            self.ahead += 1;
            if let Some(open) = quote {
                if *c == open {
                    quote = None;
                } else if *c == '\\' && open != '\'' {
                    at += 1;
                }
                continue;
            }
            match *c {
                '\\' => at += 1,
                '\'' | '"' | '`' => quote = Some(*c),
                '(' => depth += 1,
                ')' => {
                    depth -= 1;
                    if depth == 0 {
                        let ends = self.source.get(at) == Some(&')');
                        if !ends {
                            // Bash counts depending on the position.
                            self.add_flaw(Flaw::Syntax);
                        }
                        return ends;
                    }
                }
                _ => {}
            }
        }
        self.add_flaw(Flaw::Syntax);
        false
    }

    /// Takes `<(` or `>(` and returns true, if one comes next. Takes nothing otherwise.
    pub(super) fn takes_process(&mut self) -> bool {
        let (at, byte) = (self.at, self.byte);
        self.raw();
        let process = self.take('(');
        if !process {
            (self.at, self.byte) = (at, byte);
        }
        process
    }

    /// Opens a process substitution after `<(` or `>(`; `operator` is `<` or `>`.
    pub(super) fn open_process(&mut self, operator: char) {
        self.mark(UNKNOWN);
        self.word().form.add(Form::QUOTED);
        let scope = if operator == '<' { Scope::Reading } else { Scope::Writing };
        self.open_substitution(scope, Closer::Substitution);
    }
}

/// `text`, the source of a word without its quotes, with a mark in place of each expansion and of a
/// tilde at its beginning.
fn with_marks(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    if let Some(behind) = rest.strip_prefix('~') {
        marked.push(active('~'));
        rest = behind;
    }
    while let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        let (mark, after) = match c {
            '$' => expansion(behind),
            '`' => (UNKNOWN, behind.split_once('`').map_or("", |(_, after)| after)),
            c if is_reserved(c) => (UNKNOWN, behind),
            c => (c, behind),
        };
        marked.push(mark);
        rest = after;
    }
    marked
}

/// Mark of the expansion at the beginning of `text`, behind its `$`, and the text behind it.
fn expansion(text: &str) -> (char, &str) {
    let mark = |name: &str| match name {
        "HOME" => HOME,
        "PWD" => PWD,
        _ => UNKNOWN,
    };
    if let Some((inside, after)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (mark(inside), after);
    }
    if text.starts_with('(') {
        let mut depth = 0_usize;
        let end = text.find(|c: char| {
            depth = depth + usize::from(c == '(') - usize::from(c == ')');
            depth == 0
        });
        return (UNKNOWN, end.map_or("", |end| &text[end + 1..]));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    // A parameter such as `$1` or `$@` has one character.
    let is_special = !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let end = if is_special { text.chars().next().map_or(0, char::len_utf8) } else { end };
    (mark(&text[..end]), &text[end..])
}

/// True if the text of `$'…'` contains an escape other than those of one letter and of punctuation.
fn has_codes(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let known = |c: char| "abefnrtv".contains(c) || c.is_ascii_punctuation();
        if c == '\\' && !chars.next().is_some_and(known) {
            return true;
        }
    }
    false
}
