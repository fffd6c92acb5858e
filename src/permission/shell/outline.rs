//! Outline of a shell text: its simple commands in order, and the constructs around them.

use crate::shell::word::Word;

/// Parsed shell text.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// Simple commands in the order in which they end.
    pub(crate) commands: Vec<SimpleCommand>,
    /// Commands, operators and constructs in the order of the text.
    pub(crate) events: Vec<ShellEvent>,
    /// Texts of the here-documents, in the order in which they start. `None`: the text was not
    /// found.
    pub(crate) bodies: Vec<Option<Word>>,
    /// Names of the functions that the text defines.
    pub(crate) functions: Vec<String>,
    /// Number of substitutions. Each is identified by a number below this.
    pub(crate) substitutions: usize,
    /// Reasons why the text is not understood or cannot be allowed.
    pub(crate) flaws: Flaws,
    /// Words that are no words of simple commands: of loops, arrays, conditions and `${…}`.
    pub(crate) literals: Vec<LiteralWord>,
    /// Texts that were not parsed: nested too deep, or evaluated by bash at a later time.
    pub(crate) unread: Vec<String>,
    /// Positions of the reserved word `time`: start and end in bytes.
    pub(crate) timed: Vec<(usize, usize)>,
}

/// Word outside of simple commands.
#[derive(Debug)]
pub(crate) struct LiteralWord {
    pub(crate) word: Word,
    /// True if it may become a word of a command.
    pub(crate) is_value: bool,
}

/// Simple command. The redirections after a compound command are stored as a simple command without
/// words.
#[derive(Debug, Default)]
pub(crate) struct SimpleCommand {
    /// Assignments `NAME=value` before the program.
    pub(crate) assignments: Vec<Word>,
    /// The program and its arguments.
    pub(crate) words: Vec<Word>,
    /// Redirections.
    pub(crate) redirects: Vec<Redirect>,
}

/// A redirection.
#[derive(Debug, Default)]
pub(crate) struct Redirect {
    /// `<`, `>`, `>>`, `>|`, `<>`, `<&`, `>&`, `&>`, `&>>`, `<<`, `<<-` or `<<<`.
    pub(crate) operator: &'static str,
    /// Prefix of the operator: a number, or a name in braces.
    pub(crate) descriptor: Option<String>,
    /// Word after the operator: a file, a descriptor, or the delimiter of a here-document.
    pub(crate) target: Word,
    /// Index of the here-document's text in [`Outline::bodies`]. `None` for other redirections.
    pub(crate) body: Option<usize>,
}

impl Redirect {
    pub(crate) fn new(operator: &'static str, descriptor: Option<String>) -> Redirect {
        Redirect { operator, descriptor, ..Redirect::default() }
    }

    /// True if the redirection writes to its target.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.operator, ">" | ">>" | ">|" | "<>" | "&>" | "&>>")
            || (self.operator == ">&" && !self.duplicates())
    }

    /// True if the redirection only duplicates or closes a descriptor.
    pub(crate) fn duplicates(&self) -> bool {
        matches!(self.operator, "<&" | ">&")
            && self.target.literal().is_some_and(|text| {
                let digits = text.strip_suffix('-').unwrap_or(text);
                digits.chars().all(|c| c.is_ascii_digit()) && !text.is_empty()
            })
    }

    /// True if the redirection provides standard input.
    pub(crate) fn feeds(&self) -> bool {
        let input = matches!(self.operator, "<" | "<>" | "<<" | "<<-" | "<<<" | "<&");
        input && self.descriptor.as_deref().is_none_or(|number| number == "0")
    }
}

/// Element of an outline: a command, an operator, or the border of a construct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShellEvent {
    /// Simple command that runs, by its index in [`Outline::commands`].
    Run(usize),
    /// Redirections of the compound command that has just ended, by their index in
    /// [`Outline::commands`].
    After(usize),
    /// `time` before the next element.
    Timed,
    /// `!` before the next element.
    Not,
    /// Start of an enclosing construct.
    Open(Scope),
    /// End of an enclosing construct.
    Close,
    /// `;` or the end of a line.
    End,
    /// `&&`.
    And,
    /// `||`.
    Or,
    /// `|` or `|&`.
    Pipe,
    /// `&`.
    Background,
}

/// Construct around commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// `( … )`.
    Subshell,
    /// `{ … }`.
    Group,
    /// The body of a function.
    Function(String),
    /// `if`, `while`, `until`, `for`, `select`, `case`.
    Control,
    /// `$(…)` and backticks, by number.
    Substitution(usize),
    /// `<(…)`, by number.
    Reading(usize),
    /// `>(…)`, by number.
    Writing(usize),
}

/// Reason why a shell command is not understood or cannot be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A quote, a parenthesis or a command is not closed.
    Unclosed = 1,
    /// Misplaced operators or words, or a construct that versions of bash read differently.
    Syntax = 2,
    /// A here-document has no end, or begins where two readings are possible.
    Heredoc = 4,
    /// `name[` at the beginning of a command: a subscript, which may continue after blanks.
    Subscript = 8,
    /// Nested too deep to be parsed.
    TooDeep = 16,
    /// Characters that the parser reserves for marks, or an expansion that cannot be followed.
    Odd = 32,
    /// Control flow, a `function`, a condition, an arithmetic command, a coprocess, or `time` with
    /// options or before a group. A function defined as `name()` is only in [`Outline::functions`].
    Compound = 64,
    /// `|&`.
    PipeBoth = 128,
}

/// Set of flaws.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flaws(u16);

impl Flaws {
    pub(crate) fn add(&mut self, flaw: Flaw) {
        self.0 |= flaw as u16;
    }

    pub(crate) fn has(self, flaw: Flaw) -> bool {
        self.0 & flaw as u16 != 0
    }

    /// True if bash may parse the text differently.
    pub(crate) fn are_doubts(self) -> bool {
        self.0 & !(Flaw::Compound as u16 | Flaw::PipeBoth as u16) != 0
    }
}
