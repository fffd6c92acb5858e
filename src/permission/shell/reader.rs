//! Takes shell text apart as bash does: commands, words, redirections, and what encloses them.
//!
//! One loop and a stack of what is open; nothing recurses on nesting but the text of backticks and
//! here-documents, whose depth is bounded by how they are written. What is not understood is said
//! ([`Outline::flaws`]), and reading goes on, so that what follows is found all the same.

mod expansions;
mod heredocs;
mod reserved;

use crate::permission::shell::outline::{Command, Event, Flaw, Outline, Redirect, Scope};
use crate::permission::shell::word::{Form, UNKNOWN, Word, active, is_reserved, settled};

use heredocs::Heredoc;
use reserved::{CaseState, Header};

/// How deep text may be nested in text: backticks and here-documents.
const TEXTS_MAX: usize = 24;

/// What is open, and how characters are read in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Commands: the whole text, and everything that encloses commands.
    Commands(Closer),
    /// `"…"`; in a here-document's body, quotes mean nothing.
    Quotes { body: bool },
    /// `${…}`.
    Parameter { quoted: bool },
    /// `$((…))`, `((…))`, `$[…]`, with parentheses that are open in it. As a command, or in a word.
    Arithmetic { depth: usize, square: bool, command: bool },
    /// `name=(…)`.
    Array,
    /// `[[ … ]]`.
    Condition,
}

/// What ends a list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closer {
    /// The end of the text.
    End,
    /// `)` of a subshell.
    Paren,
    /// `)` of a substitution.
    Substitution,
    /// `}`.
    Brace,
    /// `fi`, `done`.
    Word(&'static str),
    /// `esac`.
    Case(CaseState),
}

/// Something that is open, and what it interrupted.
#[derive(Debug)]
struct Frame {
    mode: Mode,
    command: Building,
    word: Option<Word>,
    silent: usize,
    heredocs: usize,
}

/// A simple command that is being read.
#[derive(Debug, Default)]
struct Building {
    command: Command,
    /// The redirection whose target is awaited.
    redirect: Option<Redirect>,
    header: Option<Header>,
    /// A compound command has ended; only redirections may follow.
    closed: bool,
    /// The name of the function whose body comes next.
    function: Option<String>,
    coprocess: bool,
    timed: bool,
}

/// Reads `text`.
pub(crate) fn read(text: &str) -> Outline {
    let mut reader = Reader { outline: Outline::default(), ..Reader::new() };
    reader.text(text, Mode::Commands(Closer::End), true);
    reader.outline
}

#[derive(Debug)]
struct Reader {
    outline: Outline,
    /// The text that is being read, and where.
    source: Vec<char>,
    at: usize,
    /// Bytes before `at`; kept for the outermost text only.
    byte: usize,
    outermost: bool,
    mode: Mode,
    frames: Vec<Frame>,
    building: Building,
    word: Option<Word>,
    /// How many `${` are open in the word: what is in them is no text of it.
    silent: usize,
    heredocs: Vec<Heredoc>,
    /// How many of the awaited here-documents were begun outside of what is open.
    foreign: usize,
    texts: usize,
    /// How many substitutions are open.
    substituting: usize,
    /// Characters that were looked at ahead; more than a share of the text is not worth it.
    ahead: usize,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            outline: Outline::default(),
            source: Vec::new(),
            at: 0,
            byte: 0,
            outermost: true,
            mode: Mode::Commands(Closer::End),
            frames: Vec::new(),
            building: Building::default(),
            word: None,
            silent: 0,
            heredocs: Vec::new(),
            foreign: 0,
            texts: 0,
            substituting: 0,
            ahead: 0,
        }
    }

    fn flaw(&mut self, flaw: Flaw) {
        self.outline.flaws.add(flaw);
    }

    /// Reads a whole text in `mode`, inside of whatever is open now.
    fn text(&mut self, text: &str, mode: Mode, outermost: bool) {
        if self.texts >= TEXTS_MAX {
            self.flaw(Flaw::TooDeep);
            self.outline.unread.push(text.to_owned());
            return;
        }
        let end = matches!(mode, Mode::Commands(_)).then_some('\n');
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

    /// The text is at its end: what is still open is closed, and said to be a flaw.
    fn finish(&mut self) {
        loop {
            match self.mode {
                Mode::Commands(_) | Mode::Array | Mode::Condition => self.end_command(),
                _ => {}
            }
            if self.frames.is_empty() {
                break;
            }
            self.flaw(Flaw::Unclosed);
            self.close();
        }
        if !self.heredocs.is_empty() {
            self.flaw(Flaw::Heredoc);
        }
        if matches!(self.outline.events.last(), Some(Event::And | Event::Or | Event::Pipe)) {
            self.flaw(Flaw::Syntax);
        }
    }

    fn step(&mut self) {
        match self.mode {
            Mode::Commands(Closer::Case(CaseState::Pattern | CaseState::Patterns)) => {
                self.pattern();
            }
            Mode::Commands(_) => self.commands(),
            Mode::Quotes { body } => self.quotes(body),
            Mode::Parameter { quoted } => self.parameter(quoted),
            Mode::Arithmetic { .. } => self.arithmetic(),
            Mode::Array => self.array(),
            Mode::Condition => self.condition(),
        }
    }

    // Characters.

    /// The character at `ahead` from here. A line that goes on counts as nothing.
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

    /// The next character as it stands.
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

    /// Takes `c` if it is next.
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
            self.flaw(Flaw::Odd);
        }
        let word = self.word();
        word.form.add(form);
        if !silent {
            word.text.push(if odd { '\u{FFFD}' } else { c });
        }
    }

    /// A character that the shell acts on, or something unknown.
    fn mark(&mut self, c: char) {
        let silent = self.silent > 0;
        let word = self.word();
        if !silent {
            word.text.push(c);
        }
    }

    // What is open.

    fn open(&mut self, mode: Mode) {
        let shares_word = matches!(
            mode,
            Mode::Quotes { .. } | Mode::Parameter { .. } | Mode::Arithmetic { command: false, .. }
        );
        let (command, word, silent) = if shares_word {
            (Building::default(), None, self.silent)
        } else {
            let silent = std::mem::take(&mut self.silent);
            (std::mem::take(&mut self.building), self.word.take(), silent)
        };
        let heredocs = std::mem::replace(&mut self.foreign, self.heredocs.len());
        self.substituting += usize::from(mode == Mode::Commands(Closer::Substitution));
        let mode = std::mem::replace(&mut self.mode, mode);
        self.frames.push(Frame { mode, command, word, silent, heredocs });
    }

    /// Goes back to what the innermost open thing interrupted.
    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let closed = std::mem::replace(&mut self.mode, frame.mode);
        self.substituting -= usize::from(closed == Mode::Commands(Closer::Substitution));
        if closed == Mode::Commands(Closer::Substitution) && self.heredocs.len() > self.foreign {
            self.flaw(Flaw::Heredoc);
        }
        self.foreign = frame.heredocs;
        let shares_word = matches!(
            closed,
            Mode::Quotes { .. } | Mode::Parameter { .. } | Mode::Arithmetic { command: false, .. }
        );
        self.silent = frame.silent;
        if shares_word {
            return;
        }
        self.building = frame.command;
        self.word = frame.word;
        match closed {
            Mode::Commands(Closer::Substitution | Closer::End) => {
                self.outline.events.push(Event::Close);
            }
            Mode::Commands(_) | Mode::Condition | Mode::Arithmetic { .. } => {
                if matches!(closed, Mode::Commands(_)) {
                    self.outline.events.push(Event::Close);
                }
                self.building = Building { closed: true, ..Building::default() };
                self.word = None;
            }
            _ => {}
        }
    }

    /// Opens commands that are part of the current word.
    fn open_substitution(&mut self, scope: fn(usize) -> Scope, closer: Closer) {
        let id = self.outline.substitutions;
        self.outline.substitutions += 1;
        self.word().substitutions.push(id);
        self.open(Mode::Commands(closer));
        self.outline.events.push(Event::Open(scope(id)));
    }

    fn open_compound(&mut self, scope: Scope, closer: Closer) {
        let function = self.building.function.take();
        let scope = function.map_or(scope, Scope::Function);
        self.open(Mode::Commands(closer));
        self.outline.events.push(Event::Open(scope));
    }

    // Commands.

    fn commands(&mut self) {
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
                self.end_list(Event::End);
                self.read_heredocs();
            }
            ';' => self.semicolon(),
            '&' => self.ampersand(),
            '|' => {
                self.end_word(here);
                self.raw();
                let event = if self.take('|') {
                    Event::Or
                } else if self.take('&') {
                    self.flaw(Flaw::PipeBoth);
                    Event::Pipe
                } else {
                    Event::Pipe
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

    /// Passes over the rest of the line.
    fn comment(&mut self) {
        while self.source.get(self.at).is_some_and(|c| *c != '\n') {
            self.raw();
        }
    }

    fn semicolon(&mut self) {
        self.end_word(self.byte);
        self.raw();
        let double = self.take(';');
        let falls = self.take('&');
        self.end_list(Event::End);
        if double || falls {
            if let Mode::Commands(Closer::Case(state)) = &mut self.mode {
                *state = CaseState::Pattern;
            } else {
                self.flaw(Flaw::Syntax);
            }
        }
    }

    fn ampersand(&mut self) {
        self.end_word(self.byte);
        self.raw();
        if self.take('&') {
            self.end_list(Event::And);
        } else if self.peek() == Some('>') {
            self.raw();
            let operator = if self.take('>') { "&>>" } else { "&>" };
            self.await_target(Redirect::new(operator, None));
        } else {
            self.end_list(Event::Background);
        }
    }

    /// A character of a word, outside of quotes. It is taken already.
    fn word_char(&mut self, c: char) {
        let before = self.byte - c.len_utf8();
        if self.word.is_none() {
            self.word().span = if self.outermost { (before, before) } else { (0, 0) };
        }
        match c {
            '\\' => {
                if let Some(c) = self.raw() {
                    self.push(c, Form::ESCAPED);
                } else {
                    self.flaw(Flaw::Unclosed);
                    self.push('\\', Form::ESCAPED);
                }
            }
            '\'' => self.single_quotes(),
            '"' => {
                self.word().form.add(Form::QUOTED);
                self.open(Mode::Quotes { body: false });
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
                let means = match c {
                    '~' => tilde_starts,
                    _ => true,
                };
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
                        self.open(Mode::Array);
                    }
                }
            }
            c => self.push(c, Form::BARE),
        }
    }

    fn single_quotes(&mut self) {
        self.word().form.add(Form::QUOTED);
        loop {
            match self.raw() {
                Some('\'') => return,
                Some(c) => self.push(c, Form::QUOTED),
                None => return self.flaw(Flaw::Unclosed),
            }
        }
    }

    /// `(a)` and `a=(…)` are over: the word goes on.
    fn array(&mut self) {
        let Some(c) = self.peek() else { return };
        match c {
            ')' => {
                self.raw();
                self.word = None;
                self.close();
            }
            ' ' | '\t' | '\n' | ';' | '&' | '|' => {
                self.raw();
                self.drop_word();
                if matches!(c, ';' | '&' | '|') {
                    self.flaw(Flaw::Syntax);
                }
                if c == '\n' && !self.heredocs.is_empty() {
                    // Whether their texts begin here depends on the version.
                    self.flaw(Flaw::Heredoc);
                }
            }
            '#' if self.word.is_none() => self.comment(),
            '<' | '>' => {
                self.raw();
                if self.take('(') {
                    self.open_process(c);
                } else {
                    self.flaw(Flaw::Syntax);
                }
            }
            '(' => {
                self.raw();
                self.flaw(Flaw::Syntax);
            }
            _ => {
                self.raw();
                self.word_char(c);
            }
        }
    }

    /// What stands in an array or a condition is no command and no argument of one.
    fn drop_word(&mut self) {
        self.word = None;
    }

    /// `[[ … ]]`: words, in which substitutions run.
    fn condition(&mut self) {
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
                self.flaw(Flaw::Syntax);
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

    fn ends_condition(&self) -> bool {
        self.word.as_ref().is_some_and(|word| word.form.is_bare() && word.text == "]]")
    }

    fn parenthesis(&mut self) {
        let blank = self.building.is_blank() && self.word.is_none();
        if self.word.as_ref().is_some_and(|word| word.form.has(Form::SPLITS)) {
            self.flaw(Flaw::Syntax);
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
            self.end_list(Event::Background);
        }
        if blank || self.building.is_blank() {
            if self.peek() == Some('(') && self.is_arithmetic() {
                self.raw();
                self.flaw(Flaw::Compound);
                return self.open_arithmetic(false, true);
            }
            return self.open_compound(Scope::Subshell, Closer::Paren);
        }
        self.flaw(Flaw::Syntax);
        self.end_list(Event::End);
        self.open_compound(Scope::Subshell, Closer::Paren);
    }

    /// Takes `)` after blanks.
    fn next_is_closing(&mut self) -> bool {
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

    fn close_parenthesis(&mut self) {
        self.end_list(Event::End);
        let closes =
            |mode: &Mode| matches!(mode, Mode::Commands(Closer::Paren | Closer::Substitution));
        if closes(&self.mode) {
            return self.close();
        }
        // Something inside was not closed, or nothing is open.
        self.flaw(Flaw::Syntax);
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

    // The ends of things.

    fn end_word(&mut self, byte: usize) {
        let Some(mut word) = self.word.take() else { return };
        if self.outermost {
            word.span.1 = byte;
        }
        word.text = settled(std::mem::take(&mut word.text));
        if word.form.has(Form::BARE) || !word.text.is_empty() || word.form != Form::default() {
            self.ended(word);
        }
    }

    /// What a word that has just ended is.
    fn ended(&mut self, word: Word) {
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
            self.flaw(Flaw::Syntax);
            // It would be the program if the shell went on.
            self.end_list(Event::End);
            self.building.command.words.push(word);
            return;
        }
        if building.command.words.is_empty() && word.value_at.is_some() {
            building.command.assignments.push(word);
        } else {
            if building.command.words.is_empty() && is_subscript(&word.text) {
                self.flaw(Flaw::Subscript);
            }
            self.building.command.words.push(word);
        }
    }

    /// The end of a simple command or of what follows a compound one.
    fn end_command(&mut self) {
        self.end_word(self.byte);
        let mut building = std::mem::take(&mut self.building);
        if let Some(redirect) = building.redirect.take() {
            self.flaw(Flaw::Syntax);
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
            self.outline.events.push(Event::Timed);
        }
        if empty {
            return;
        }
        let at = self.outline.commands.len();
        self.outline.commands.push(command);
        self.outline.events.push(if building.closed { Event::After(at) } else { Event::Run(at) });
    }

    fn end_list(&mut self, event: Event) {
        let empty_before = self.outline.events.len();
        let blank = self.building.is_blank() && self.word.is_none() && !self.building.closed;
        self.end_command();
        if blank && !matches!(event, Event::End) && empty_before == self.outline.events.len() {
            self.flaw(Flaw::Syntax);
        }
        // A newline after an operator goes on with it.
        let goes_on =
            matches!(self.outline.events.last(), Some(Event::And | Event::Or | Event::Pipe));
        if !(goes_on && matches!(event, Event::End)) {
            self.outline.events.push(event);
        }
    }
}

impl Building {
    /// Whether a reserved word may stand here.
    fn is_blank(&self) -> bool {
        let command = &self.command;
        command.words.is_empty()
            && command.assignments.is_empty()
            && command.redirects.is_empty()
            && self.redirect.is_none()
            && self.header.is_none()
            && !self.closed
    }

    /// Whether `()` after it makes a function.
    fn defines(&self) -> bool {
        let command = &self.command;
        command.words.len() == 1
            && command.assignments.is_empty()
            && command.redirects.is_empty()
            && self.header.is_none()
            && !self.closed
    }
}

/// Whether it is a name that a variable may have.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a word begins like `name[`: what follows may go on over blanks.
fn is_subscript(text: &str) -> bool {
    text.split_once(active('[')).is_some_and(|(name, _)| is_name(name))
}

/// A mark for something unknown that is not in quotes.
fn unknown(reader: &mut Reader, quoted: bool) {
    reader.mark(UNKNOWN);
    let form = if quoted { Form::QUOTED } else { Form::SPLITS };
    reader.word().form.add(form);
}
