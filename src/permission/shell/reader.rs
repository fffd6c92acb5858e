//! Shell reader: splits text into commands, words, redirections and enclosing constructs, as bash
//! does.
//!
//! One loop with an explicit stack; only the text of backticks and here-documents is read
//! recursively, with bounded depth. Syntax that is not understood is reported ([`Outline::flaws`]),
//! and reading continues, so that later commands are found.

mod brackets;
mod commands;
mod expansions;
mod heredocs;
mod reserved;
mod terminators;

use crate::shell::outline::{
    Flaw, LiteralWord, Outline, Redirect, Scope, ShellEvent, SimpleCommand,
};
use crate::shell::word::{Form, UNKNOWN, Word, active, is_reserved};

use heredocs::Heredoc;
use reserved::{CaseState, Header};

/// Maximum nesting of texts: the whole text, and backticks and here-documents in it. A deeper text
/// is not parsed ([`Outline::unread`]).
const TEXTS_MAX: usize = 24;

/// Kind of the current construct, which determines how characters are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderMode {
    /// Commands: the whole text, and every construct that contains commands.
    Commands(Closer),
    /// `"…"`. With `body`, the text of a here-document, in which quotes mean nothing.
    Quotes { body: bool },
    /// `${…}`. With `quoted`, inside of double quotes. `begins`: index of its first character behind
    /// `${`.
    Parameter { quoted: bool, begins: usize },
    /// `$((…))`, `((…))` or `$[…]`. `depth`: number of parentheses or brackets that are open in it;
    /// `square`: `$[…]`; `command`: a command, not a part of a word.
    Arithmetic { depth: usize, square: bool, command: bool },
    /// `name=(…)`.
    Array,
    /// `[[ … ]]`.
    Condition,
}

impl Default for ReaderMode {
    fn default() -> ReaderMode {
        ReaderMode::Commands(Closer::End)
    }
}

impl ReaderMode {
    /// True for a construct that is part of the word around it.
    fn shares_word(self) -> bool {
        matches!(
            self,
            ReaderMode::Quotes { .. }
                | ReaderMode::Parameter { .. }
                | ReaderMode::Arithmetic { command: false, .. }
        )
    }
}

/// Terminator of a list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closer {
    /// The end of the text.
    End,
    /// `)`, which ends a subshell.
    Paren,
    /// `)`, which ends a substitution.
    Substitution,
    /// `}`.
    Brace,
    /// Reserved word: `fi` or `done`.
    Word(&'static str),
    /// `esac`. Contains the current position in the `case`.
    Case(CaseState),
}

/// State of an outer construct, which is restored when the inner one is closed.
#[derive(Debug)]
struct OpenConstruct {
    mode: ReaderMode,
    command: Building,
    word: Option<Word>,
    silent: usize,
    heredocs: usize,
}

/// A simple command that is being read.
#[derive(Debug, Default)]
struct Building {
    command: SimpleCommand,
    /// Redirection that waits for its target.
    redirect: Option<Redirect>,
    header: Option<Header>,
    /// True if a compound command has just ended, so that only redirections may follow.
    closed: bool,
    /// Name of the function whose body comes next.
    function: Option<String>,
    coprocess: bool,
    timed: bool,
}

/// Parses `text`.
pub(crate) fn read(text: &str) -> Outline {
    let mut reader = ShellReader::default();
    reader.text(text, ReaderMode::Commands(Closer::End), true);
    reader.outline
}

#[derive(Debug, Default)]
struct ShellReader {
    outline: Outline,
    /// Characters of the current text; `at` is the index of the next one.
    source: Vec<char>,
    at: usize,
    /// Number of bytes before `at` in the current text. Used for positions in the outermost text
    /// only.
    byte: usize,
    outermost: bool,
    mode: ReaderMode,
    frames: Vec<OpenConstruct>,
    building: Building,
    word: Option<Word>,
    /// Number of open `${` and arithmetic expansions in the word: their content is not part of its
    /// text.
    silent: usize,
    heredocs: Vec<Heredoc>,
    /// Number of pending here-documents that started outside of the current construct.
    foreign: usize,
    texts: usize,
    /// Number of open substitutions.
    substituting: usize,
    /// Number of characters that `is_arithmetic` has read ahead so far, for its limit.
    ahead: usize,
}

impl ShellReader {
    fn add_flaw(&mut self, flaw: Flaw) {
        self.outline.flaws.add(flaw);
    }

    /// Reads a whole text in `mode`, as part of the current construct. A text beyond [`TEXTS_MAX`]
    /// is only recorded as unread.
    fn text(&mut self, text: &str, mode: ReaderMode, outermost: bool) {
        if self.texts >= TEXTS_MAX {
            self.add_flaw(Flaw::TooDeep);
            self.outline.unread.push(text.to_owned());
            return;
        }
        let end = matches!(mode, ReaderMode::Commands(_)).then_some('\n');
        let source = std::mem::replace(&mut self.source, text.chars().chain(end).collect());
        let (at, byte) = (std::mem::take(&mut self.at), std::mem::take(&mut self.byte));
        let was_outermost = std::mem::replace(&mut self.outermost, outermost);
        let outer_mode = std::mem::replace(&mut self.mode, mode);
        let frames = std::mem::take(&mut self.frames);
        let heredocs = std::mem::take(&mut self.heredocs);
        let foreign = std::mem::take(&mut self.foreign);
        self.texts += 1;
        while self.at < self.source.len() {
            self.step();
        }
        self.finish();
        self.texts -= 1;
        self.foreign = foreign;
        self.heredocs = heredocs;
        self.frames = frames;
        self.mode = outer_mode;
        self.outermost = was_outermost;
        (self.at, self.byte) = (at, byte);
        self.source = source;
    }

    /// Handles the end of the text: closes open constructs and reports them as a flaw.
    fn finish(&mut self) {
        loop {
            match self.mode {
                ReaderMode::Commands(_) | ReaderMode::Array | ReaderMode::Condition => {
                    self.end_command();
                }
                _ => {}
            }
            if self.frames.is_empty() {
                break;
            }
            self.add_flaw(Flaw::Unclosed);
            self.close();
        }
        if !self.heredocs.is_empty() {
            self.add_flaw(Flaw::Heredoc);
        }
        if matches!(
            self.outline.events.last(),
            Some(ShellEvent::And | ShellEvent::Or | ShellEvent::Pipe)
        ) {
            self.add_flaw(Flaw::Syntax);
        }
    }

    fn step(&mut self) {
        match self.mode {
            ReaderMode::Commands(Closer::Case(CaseState::Pattern | CaseState::Patterns)) => {
                self.pattern();
            }
            ReaderMode::Commands(_) => self.commands(),
            ReaderMode::Quotes { body } => self.quotes(body),
            ReaderMode::Parameter { quoted, begins } => self.parameter(quoted, begins),
            ReaderMode::Arithmetic { .. } => self.arithmetic(),
            ReaderMode::Array => self.array(),
            ReaderMode::Condition => self.condition(),
        }
    }

    // Characters.

    /// Returns the next character without taking it. Line continuations before it are skipped.
    fn peek(&mut self) -> Option<char> {
        while self.source.get(self.at) == Some(&'\\') && self.source.get(self.at + 1) == Some(&'\n')
        {
            self.at += 2;
            self.byte += 2;
            if let Some(word) = &mut self.word {
                word.form.add(Form::CONTINUED);
            }
        }
        self.source.get(self.at).copied()
    }

    /// Takes the next character as it is.
    fn raw(&mut self) -> Option<char> {
        let c = self.source.get(self.at).copied()?;
        self.at += 1;
        self.byte += c.len_utf8();
        Some(c)
    }

    fn next(&mut self) -> Option<char> {
        self.peek()?;
        self.raw()
    }

    /// Takes the next character if it is `c`, and returns true if so.
    fn take(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(c);
        if hit {
            self.raw();
        }
        hit
    }

    // Words.

    fn word(&mut self) -> &mut Word {
        let byte = if self.outermost { self.byte } else { 0 };
        self.word.get_or_insert_with(|| Word { span: (byte, byte), ..Word::default() })
    }

    fn push(&mut self, c: char, form: Form) {
        let silent = self.silent > 0;
        let odd = is_reserved(c);
        if odd {
            self.add_flaw(Flaw::Odd);
        }
        let word = self.word();
        word.form.add(form);
        if !silent {
            word.text.push(if odd { '\u{FFFD}' } else { c });
        }
    }

    /// Adds an active character or a placeholder to the current word.
    fn mark(&mut self, c: char) {
        let silent = self.silent > 0;
        let word = self.word();
        if !silent {
            word.text.push(c);
        }
    }

    /// Records a word that is no word of a simple command. `is_value`: it may become one.
    fn literal(&mut self, word: Word, is_value: bool) {
        self.outline.literals.push(LiteralWord { word, is_value });
    }

    // Open constructs.

    fn open(&mut self, mode: ReaderMode) {
        let substitutes = self.substituting > 0 || !self.outermost;
        let encloses =
            matches!(mode, ReaderMode::Commands(_) | ReaderMode::Condition | ReaderMode::Array);
        let in_between = !self.heredocs.is_empty() && encloses;
        if substitutes && in_between && mode != ReaderMode::Commands(Closer::Substitution) {
            // Bash writes a substitution out again before it runs it, which moves the text of a
            // here-document.
            self.add_flaw(Flaw::Heredoc);
        }
        let (command, word, silent) = if mode.shares_word() {
            (Building::default(), None, self.silent)
        } else {
            let silent = std::mem::take(&mut self.silent);
            (std::mem::take(&mut self.building), self.word.take(), silent)
        };
        let heredocs = std::mem::replace(&mut self.foreign, self.heredocs.len());
        self.substituting += usize::from(mode == ReaderMode::Commands(Closer::Substitution));
        let mode = std::mem::replace(&mut self.mode, mode);
        self.frames.push(OpenConstruct { mode, command, word, silent, heredocs });
    }

    /// Closes the current construct, and restores the outer one.
    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let closed = std::mem::replace(&mut self.mode, frame.mode);
        self.substituting -= usize::from(closed == ReaderMode::Commands(Closer::Substitution));
        if closed == ReaderMode::Commands(Closer::Substitution)
            && self.heredocs.len() > self.foreign
        {
            self.add_flaw(Flaw::Heredoc);
        }
        self.foreign = frame.heredocs;
        self.silent = frame.silent;
        if closed.shares_word() {
            return;
        }
        self.building = frame.command;
        self.word = frame.word;
        if matches!(closed, ReaderMode::Commands(_)) {
            self.outline.events.push(ShellEvent::Close);
        }
        let in_word = ReaderMode::Commands(Closer::Substitution);
        if !matches!(closed, ReaderMode::Array | ReaderMode::Commands(Closer::End))
            && closed != in_word
        {
            self.building = Building { closed: true, ..Building::default() };
            self.word = None;
        }
    }

    /// Opens a substitution: commands that are part of the current word.
    fn open_substitution(&mut self, scope: fn(usize) -> Scope, closer: Closer) {
        let id = self.outline.substitutions;
        self.outline.substitutions += 1;
        self.word().substitutions.push(id);
        self.open(ReaderMode::Commands(closer));
        self.outline.events.push(ShellEvent::Open(scope(id)));
    }

    fn open_compound(&mut self, scope: Scope, closer: Closer) {
        let function = self.building.function.take();
        let scope = function.map_or(scope, Scope::Function);
        self.open(ReaderMode::Commands(closer));
        self.outline.events.push(ShellEvent::Open(scope));
    }
}

impl Building {
    /// True if nothing of the command was read yet, so that a reserved word is possible.
    fn is_blank(&self) -> bool {
        let command = &self.command;
        command.words.is_empty()
            && command.assignments.is_empty()
            && command.redirects.is_empty()
            && self.redirect.is_none()
            && self.header.is_none()
            && !self.closed
    }

    /// True if a `()` after the words read so far defines a function.
    fn defines(&self) -> bool {
        let command = &self.command;
        command.words.len() == 1
            && command.assignments.is_empty()
            && command.redirects.is_empty()
            && self.header.is_none()
            && !self.closed
    }
}

/// True for a valid variable name.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// True if a word begins like `name[`: bash may continue it after blanks.
fn is_subscript(text: &str) -> bool {
    text.split_once(active('[')).is_some_and(|(name, _)| is_name(name))
}

/// Adds a placeholder for unknown text to the current word. Unquoted, it may become several words.
fn unknown(reader: &mut ShellReader, quoted: bool) {
    reader.mark(UNKNOWN);
    let form = if quoted { Form::QUOTED } else { Form::SPLITS };
    reader.word().form.add(form);
}
