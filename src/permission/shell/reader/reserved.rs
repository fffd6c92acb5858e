//! Reserved words, which open and close compound commands.

use super::{Building, Closer, ReaderMode, ShellReader};
use crate::shell::outline::{Flaw, Scope, ShellEvent};
use crate::shell::word::{Word, active};

/// Position in the head of a compound command, such as `for NAME in WORDS`: determines the meaning
/// of the next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// `for` and `select`: the name comes next.
    ForName,
    /// After the name: `in` or `do` comes next.
    ForIn,
    /// The words of a loop: none of them is reserved.
    ForWords,
    /// `case`: its word comes next.
    CaseWord,
    /// `in` comes next.
    CaseIn,
    /// `function`: the name comes next.
    FunctionName,
    /// The head is complete; no word may follow except `do` and `{`.
    Done,
}

impl Header {
    pub(super) fn wants_arithmetic(self) -> bool {
        self == Header::ForName
    }
}

/// Position within a `case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseState {
    /// Before the first word of the patterns: `esac` ends the `case`.
    Pattern,
    /// After the first word of the patterns, or after `(` or `|`.
    Patterns,
    /// In the commands after a pattern.
    Body,
}

impl ShellReader {
    /// Processes `word` if it is reserved at this position or part of a head, and returns true.
    /// Returns false for any other word.
    pub(super) fn reserved(&mut self, word: &Word) -> bool {
        if let Some(header) = self.building.header {
            self.header(header, word);
            return true;
        }
        let Some(text) = word.unquoted_literal() else { return false };
        let text = if text.chars().eq([active('['); 2]) { "[[" } else { text };
        if self.building.closed && self.building.command.redirects.is_empty() {
            let continues =
                matches!(text, "then" | "do" | "else" | "elif" | "fi" | "done" | "esac" | "}");
            if !continues {
                return false;
            }
            self.end_list(ShellEvent::End);
        }
        let named = self.building.coprocess && self.building.command.words.len() == 1;
        if named
            && matches!(text, "{" | "[[" | "if" | "while" | "until" | "for" | "case" | "select")
        {
            // The name of a coprocess; it is listed as if it ran.
            self.end_list(ShellEvent::Background);
        }
        if !self.building.is_blank() {
            return false;
        }
        self.reserved_word(text, word)
    }

    fn reserved_word(&mut self, text: &str, word: &Word) -> bool {
        match text {
            "!" => self.outline.events.push(ShellEvent::Not),
            "-p" | "--" if self.building.timed => self.add_flaw(Flaw::Compound),
            "time" => {
                if self.substitutes() {
                    // Some versions write it out and read it again, as something else.
                    self.add_flaw(Flaw::Syntax);
                }
                self.building.timed = true;
                self.outline.timed.push(word.span);
            }
            "{" => {
                if self.building.timed {
                    self.add_flaw(Flaw::Compound);
                }
                if self.building.function.is_some() {
                    self.add_flaw(Flaw::Compound);
                }
                self.open_compound(Scope::Group, Closer::Brace);
            }
            "}" => self.close_reserved(&Closer::Brace),
            "if" => self.control(Closer::Word("fi"), None),
            "while" | "until" => self.control(Closer::Word("done"), None),
            "for" | "select" => self.control(Closer::Word("done"), Some(Header::ForName)),
            "case" => self.control(Closer::Case(CaseState::Body), Some(Header::CaseWord)),
            "then" | "else" | "elif" | "do" => {}
            "fi" => self.close_reserved(&Closer::Word("fi")),
            "done" => self.close_reserved(&Closer::Word("done")),
            "esac" => self.close_reserved(&Closer::Case(CaseState::Body)),
            "function" => {
                self.add_flaw(Flaw::Compound);
                self.building.header = Some(Header::FunctionName);
            }
            "coproc" => {
                self.add_flaw(Flaw::Compound);
                if self.substitutes() {
                    // Some versions write it out and read it again, with a name in front.
                    self.add_flaw(Flaw::Syntax);
                }
                self.building.coprocess = true;
            }
            "[[" => {
                self.add_flaw(Flaw::Compound);
                self.building.function = None;
                self.open(ReaderMode::Condition);
            }
            _ => return false,
        }
        true
    }

    /// True if the current commands are part of a word or of a nested text.
    fn substitutes(&self) -> bool {
        self.substituting > 0 || !self.outermost
    }

    fn control(&mut self, closer: Closer, header: Option<Header>) {
        self.add_flaw(Flaw::Compound);
        self.open_compound(Scope::Control, closer);
        self.building.header = header;
    }

    fn header(&mut self, header: Header, word: &Word) {
        let bare = word.unquoted_literal();
        if matches!(header, Header::ForWords | Header::CaseWord) {
            self.literal(word.clone(), header == Header::ForWords);
        }
        let next = match header {
            Header::ForIn | Header::Done if bare == Some("do") => None,
            Header::ForName => Some(Header::ForIn),
            Header::ForIn | Header::ForWords => Some(Header::ForWords),
            Header::Done if bare == Some("{") => {
                self.building.header = None;
                self.open_compound(Scope::Group, Closer::Brace);
                return;
            }
            Header::Done => Some(Header::Done),
            Header::CaseWord => Some(Header::CaseIn),
            Header::CaseIn => {
                if bare != Some("in") {
                    self.add_flaw(Flaw::Syntax);
                }
                self.mode = ReaderMode::Commands(Closer::Case(CaseState::Pattern));
                None
            }
            Header::FunctionName => {
                self.outline.functions.push(word.text.clone());
                self.building =
                    Building { function: Some(word.text.clone()), ..Building::default() };
                return;
            }
        };
        self.building.header = next;
    }

    fn close_reserved(&mut self, closer: &Closer) {
        let same = |mode: &ReaderMode| match (mode, closer) {
            (ReaderMode::Commands(Closer::Case(_)), Closer::Case(_)) => true,
            (ReaderMode::Commands(open), closer) => open == closer,
            _ => false,
        };
        if same(&self.mode) {
            // The closing of a substitution continues with its word.
            return self.close();
        }
        self.add_flaw(Flaw::Syntax);
    }

    /// Reads the next character before or in the patterns of a `case`.
    pub(super) fn pattern(&mut self) {
        let Some(c) = self.peek() else { return };
        match c {
            '<' | '>' if self.takes_process() => self.open_process(c),
            ' ' | '\t' | '\n' | '|' | '(' | ')' | ';' | '&' | '<' | '>' => {
                if self.ends_case(c) {
                    return;
                }
                self.raw();
                match c {
                    '\n' => self.read_heredocs(),
                    '|' | '(' => {
                        self.mode = ReaderMode::Commands(Closer::Case(CaseState::Patterns));
                    }
                    ')' => self.mode = ReaderMode::Commands(Closer::Case(CaseState::Body)),
                    ';' | '&' | '<' | '>' => self.add_flaw(Flaw::Syntax),
                    _ => {}
                }
            }
            '#' if self.word.is_none() => self.comment(),
            _ => {
                self.raw();
                self.word_char(c);
            }
        }
    }

    /// Ends the current word before `c`, which is not taken. Returns true if the word is `esac` and
    /// has ended the `case`. As the first word after `in` or `;;`, `esac` is always reserved;
    /// elsewhere that depends on the version of bash.
    fn ends_case(&mut self, c: char) -> bool {
        let Some(word) = self.word.take() else { return false };
        let first = self.mode == ReaderMode::Commands(Closer::Case(CaseState::Pattern));
        self.mode = ReaderMode::Commands(Closer::Case(CaseState::Patterns));
        if !word.form.is_bare() || word.text != "esac" {
            self.literal(word, false);
            return false;
        }
        if !first || c == ')' {
            // A pattern of that name, or `$(case x in esac)`, where some only count parentheses.
            self.add_flaw(Flaw::Syntax);
        }
        if first {
            self.close();
        }
        first
    }
}
