//! A rough reading of shell text: simple commands, how they are joined, and whether there is
//! anything beyond one plain command.
//!
//! It expands nothing and is not the boundary; the sandbox is. It errs towards *not plain*, which
//! is always asked about.

use crate::secrets::is_secret;

/// Far more than fits into a command that anything but a human allows.
const COMMANDS_MAX: usize = 100_000;

/// Shell text, taken apart.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) commands: Vec<Command>,
    /// One simple command of plain words: nothing is expanded, joined or redirected.
    pub(crate) plain: bool,
    /// Everything outside quotes, without white space.
    pub(crate) skeleton: String,
}

/// A simple command.
#[derive(Debug, Default)]
pub(crate) struct Command {
    /// Words without their quotes. A redirection is the word `>` or `<` and then its target.
    pub(crate) words: Vec<String>,
    /// Whether it reads what the command before it wrote.
    pub(crate) piped: bool,
    /// The command that it is a substitution in.
    pub(crate) inside: Option<usize>,
}

/// Programs that run the rest of their words as a command.
const WRAPPERS: [&str; 15] = [
    "sudo", "doas", "env", "command", "builtin", "exec", "nohup", "nice", "ionice", "time",
    "timeout", "xargs", "stdbuf", "setsid", "busybox",
];

/// Programs that run whatever follows: alone, they are the beginning of everything.
const RUNNERS: [&str; 26] = [
    "sh", "bash", "dash", "zsh", "ksh", "fish", "python", "python3", "perl", "ruby", "node", "php",
    "lua", "deno", "bun", "eval", "source", ".", "su", "ssh", "npx", "watch", "parallel", "chroot",
    "unshare", "script",
];

impl Command {
    /// The words from the program on, without variables, wrappers and their options.
    pub(crate) fn unwrapped(&self) -> &[String] {
        let mut words = self.words.as_slice();
        loop {
            let Some(first) = words.first() else { return words };
            let skipped = is_assignment(first)
                || matches!(first.as_str(), "{" | "!" | "then" | "do" | "else" | "if" | "while");
            if skipped {
                words = &words[1..];
            } else if WRAPPERS.contains(&base(first)) {
                words = &words[1..];
                while let Some(word) = words.first()
                    && word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
                {
                    let with_value = matches!(word.as_str(), "-u" | "-g");
                    words = words.get(1 + usize::from(with_value)..).unwrap_or_default();
                }
            } else {
                return words;
            }
        }
    }

    /// The name of the program, without its folder.
    pub(crate) fn program(&self) -> &str {
        self.unwrapped().first().map_or("", |word| base(word))
    }
}

impl Script {
    pub(crate) fn read(text: &str) -> Script {
        let mut reader = Reader { plain: true, ..Reader::default() };
        reader.read(text);
        let plain = reader.plain && reader.commands.len() == 1;
        Script { commands: reader.commands, plain, skeleton: reader.skeleton }
    }

    pub(crate) fn begins_with(&self, prefix: &[String]) -> bool {
        self.commands.first().is_some_and(|command| command.words.starts_with(prefix))
    }

    /// Whether a rule for commands that begin like this one is about little more than this one.
    pub(crate) fn is_narrow(&self) -> bool {
        let [command] = self.commands.as_slice() else { return false };
        let Some((program, arguments)) = command.unwrapped().split_first() else { return false };
        let runs_more = RUNNERS.contains(&base(program))
            && arguments.iter().all(|argument| argument.starts_with('-'));
        self.plain && !runs_more
    }

    /// The first word that names a secret. Words with spaces are prose, such as a commit message.
    pub(crate) fn secret_word(&self) -> Option<&str> {
        let words = self.commands.iter().flat_map(|command| &command.words);
        words.map(String::as_str).find(|word| {
            let parts = word.split(['=', ':', ',', '@']).chain([*word]);
            let secret = |part: &str| !part.contains(char::is_whitespace) && is_secret(part);
            parts.into_iter().any(secret)
        })
    }
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[derive(Default)]
struct Reader {
    commands: Vec<Command>,
    current: Command,
    word: Option<String>,
    plain: bool,
    skeleton: String,
    /// What was interrupted by a substitution: its command, its place, and whether in quotes.
    outer: Vec<Outer>,
    quoted: bool,
}

struct Outer {
    command: Command,
    quoted: bool,
    closes_with: char,
}

impl Reader {
    fn read(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if !self.quoted && !c.is_whitespace() {
                self.skeleton.push(c);
            }
            let next = chars.peek().copied();
            match c {
                '\\' => {
                    if let Some(escaped) = chars.next()
                        && escaped != '\n'
                    {
                        self.push(escaped);
                    }
                }
                '\'' if !self.quoted => {
                    let mut closed = false;
                    let inside = chars.by_ref().take_while(|c| {
                        closed = *c == '\'';
                        !closed
                    });
                    self.push_str(&inside.collect::<String>());
                    self.plain &= closed;
                }
                '"' => {
                    self.quoted = !self.quoted;
                    self.push_str("");
                }
                '$' if next == Some('(') => {
                    chars.next();
                    self.open(')');
                }
                '<' | '>' if !self.quoted && next == Some('(') => {
                    chars.next();
                    self.open(')');
                }
                '`' if self.outer.last().is_some_and(|outer| outer.closes_with == '`') => {
                    self.close();
                }
                '`' => self.open('`'),
                ')' if !self.quoted
                    && self.outer.last().is_some_and(|outer| outer.closes_with == ')') =>
                {
                    self.close();
                }
                _ if self.quoted => {
                    self.plain &= c != '$';
                    self.push(c);
                }
                _ => self.unquoted(c, next),
            }
        }
        while !self.outer.is_empty() {
            self.close();
        }
        // Quotes that are still open are nobody's plain command.
        self.plain &= !self.quoted;
        self.end_command();
    }

    fn unquoted(&mut self, c: char, next: Option<char>) {
        match c {
            '\n' | ';' | '&' | '(' | ')' => {
                self.plain = false;
                self.end_command();
            }
            '|' => {
                self.plain = false;
                self.end_command();
                // The second half of `||` takes it back.
                self.current.piped = next != Some('|')
                    && self.skeleton.len().checked_sub(2).and_then(|at| self.skeleton.get(at..))
                        != Some("||");
            }
            '<' | '>' => {
                self.plain = false;
                self.end_word();
                self.current.words.push(c.to_string());
            }
            c if c.is_whitespace() => self.end_word(),
            c => {
                // A word may begin with a tilde or hold a brace and mean something else.
                self.plain &= !matches!(c, '$' | '*' | '?' | '[' | '~' | '{' | '}' | '#' | '!')
                    && !c.is_control();
                self.push(c);
            }
        }
    }

    /// Begins a substitution. It counts as a command of its own, inside this one.
    fn open(&mut self, closes_with: char) {
        self.plain = false;
        if self.commands.len() >= COMMANDS_MAX || self.outer.len() >= 64 {
            return;
        }
        self.push_str("");
        self.end_word();
        // The outer command gets its place now, so that the inner one can name it.
        let inside = Some(self.commands.len());
        // Enough to see which program it is, and not the square of a long command.
        let words = self.current.words.iter().take(8).cloned().collect();
        let outer = std::mem::take(&mut self.current);
        self.commands.push(Command { words, piped: outer.piped, inside: outer.inside });
        self.outer.push(Outer { command: outer, quoted: self.quoted, closes_with });
        self.quoted = false;
        self.current.inside = inside;
    }

    fn close(&mut self) {
        self.end_command();
        if let Some(outer) = self.outer.pop() {
            self.current = outer.command;
            self.quoted = outer.quoted;
        }
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn end_word(&mut self) {
        self.current.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        // Nothing yet: a pipe may go on after a line break.
        if self.current.words.is_empty() {
            return;
        }
        let inside = self.current.inside;
        let command = std::mem::take(&mut self.current);
        self.current.inside = inside;
        if self.commands.len() < COMMANDS_MAX {
            self.commands.push(command);
        } else {
            self.plain = false;
        }
    }
}
