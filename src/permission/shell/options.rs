//! Options and operands that do nothing beyond the granted operation, as tables per family of
//! programs.
//!
//! An option that is not in these tables leads to a permission request, and so does a value that
//! could name a file outside of the workspace or a secret. Options that can run a program, write a
//! file, load code or change the target are omitted on purpose; comments name them.

mod checks;
mod creating;
mod facts;
mod files;
mod find;
mod git;
mod git_lists;
mod listings;
mod projects;
mod scripts;
mod search;
mod table;
mod text;
mod values;
mod versions;

use std::borrow::Cow;

use crate::shell::Names;
use crate::shell::allow::{self, Ground, PathAccess};
use crate::shell::links::ATTACHED_MAX;
use crate::shell::sensitive::{is_sensitive, selects_hidden};
use crate::shell::word::{Word, braces, is_reserved, shown};

use scripts::ScriptLanguage;
use table::{OptionKind, lookup};
use values::OptionValue;

/// Options and operands of a program.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Program and subcommand.
    pub(crate) words: &'static [&'static str],
    operands: Operands,
    /// Lists of harmless options with their kinds ([`table`]).
    options: &'static [&'static str],
    /// All other long options of the program. An abbreviation is permitted if it can mean nothing
    /// but options of one kind in the table. `None`: the program knows no abbreviations, or the
    /// list is not complete.
    others: Option<&'static str>,
    style: OptionSyntax,
    /// True if a number such as `-5` is an option.
    numbers: bool,
    /// True if no option of the program does harm, so that a file whose name begins with `-` does
    /// not matter.
    inert: bool,
    /// Options and operands after `--`. `None`: the words after `--` are operands, even if they
    /// begin with `-`.
    after: Option<&'static Spec>,
    /// Maximum number of operands. A program that writes its second operand has 1. With a maximum,
    /// operands must be literal.
    operands_max: Option<usize>,
    /// True if every word after the first operand is an operand, as for `awk`.
    options_first: bool,
    /// Effect of the program with known options and operands.
    reading: Reading,
}

/// Effect of a command whose words are all known to be harmless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The command does more than read, such as building a project: it needs a grant.
    #[default]
    No,
    /// The command reads, and may write a file of the project that is out of date, such as
    /// `Cargo.lock`. Without a grant it runs only in a sandbox that is read-only and has no network.
    Confined,
    /// The command only reads, but the settings of a project or repository can make it run a
    /// program: git has `core.fsmonitor`, `diff.external` and `textconv`, cargo `build.rustc`,
    /// rustup the path of a toolchain, yarn `yarnPath`. Without a grant it runs in a sandbox that is
    /// read-only and has no network, or beside a command that runs code of the project anyway.
    Configured,
    /// The command only reads, and runs no other program.
    Plain,
}

/// Syntax of the options of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionSyntax {
    /// Short options may be combined, the last one with its value: `-qn3`; `--long=value`.
    Getopt,
    /// As [`OptionSyntax::Getopt`], but a value never begins with `-`, and every word that begins
    /// with `@` names a file of options.
    Argparse,
    /// One option in each word, with its value after `=` or in the next word, where it never
    /// begins with `-`.
    Whole,
}

/// Kind of the operands of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// No operands.
    Nothing,
    /// Files and folders.
    Paths(PathAccess),
    /// Files, and folders of which all files are read, hidden ones included.
    Folders,
    /// Versions of git, or files of the workspace.
    Versions,
    /// Literal words with any text.
    Data,
    /// A pattern first, then files of the workspace.
    Pattern,
    /// A pattern first, then versions of git or files of the workspace.
    PatternVersions,
    /// Start folders and an expression of `find`.
    Expression,
    /// A test of `test`, of one file or text.
    Test,
    /// A script that only computes and prints, then files of the workspace.
    Script(ScriptLanguage),
    /// Formats of `date`, which begin with `+`. Any other operand sets the clock.
    Formats,
    /// Keys of git's settings whose values hold no secret.
    GitKeys,
    /// Words of this list.
    Listed(Names),
    /// Literal words with any text. The program has no options but those that change its output.
    Words,
    /// Literal names of targets, scripts or objects: letters, digits and `_ - . + : , % /`, beginning
    /// with a letter, digit or `_`.
    Tokens,
    /// Files whose text cannot be a value or an option of the program: with `.` or `/`, and without
    /// `+` or `@` at the beginning.
    Sources,
    /// An archive, and names in it. tar starts a remote shell for a name with `:`.
    Archives,
}

/// Operands that are files, whose content is read.
const FILES: Operands = Operands::Paths(PathAccess::Content);
/// Operands that are files and folders, of which only the names and metadata are shown.
const NAMES: Operands = Operands::Paths(PathAccess::Names);
/// Operands that are folders, of which the names and metadata of everything below are shown.
const TREES: Operands = Operands::Paths(PathAccess::Tree);

const fn spec(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec {
        words,
        operands,
        options,
        others: None,
        style: OptionSyntax::Getopt,
        numbers: false,
        inert: false,
        after: None,
        operands_max: None,
        options_first: false,
        reading: Reading::No,
    }
}

/// A program that only reads ([`Reading::Plain`]).
const fn reads(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { reading: Reading::Plain, ..spec(words, operands, options) }
}

/// A program that reads, and may write a file of the project ([`Reading::Confined`]).
const fn confined(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { reading: Reading::Confined, ..spec(words, operands, options) }
}

/// A program that only reads, and may run what the project configures ([`Reading::Configured`]).
const fn configured(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { reading: Reading::Configured, ..spec(words, operands, options) }
}

/// Entry of a table for a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundSpec {
    /// The entry.
    pub(crate) spec: &'static Spec,
    /// True if the table decides about all words: a command with other words needs a permission
    /// request each time. False if one with other words is judged like that of an unknown program,
    /// which grants of exactly these words, and rules, can allow.
    pub(crate) decides: bool,
}

/// Tables that decide about all words of their programs ([`FoundSpec::decides`]).
static DECIDING: [&[Spec]; 4] = [git::SPECS, projects::SPECS, files::SPECS, search::SPECS];
/// Tables that find only commands whose words are all known.
static FINDING: [&[Spec]; 6] =
    [git_lists::SPECS, text::SPECS, facts::SPECS, versions::SPECS, checks::SPECS, listings::SPECS];

/// Returns the most specific entry for a command. `None` if the tables do not contain it.
pub(crate) fn spec_for(words: &[&str]) -> Option<FoundSpec> {
    let found = |tables: &'static [&'static [Spec]], decides| {
        let all = tables.iter().copied().flatten();
        all.filter(|spec| words.starts_with(spec.words))
            .map(move |spec| FoundSpec { spec, decides })
    };
    found(&DECIDING, true).chain(found(&FINDING, false)).max_by_key(|found| found.spec.words.len())
}

/// Checks that `words` are a program that creates, copies or moves files, with known options, and
/// operands inside the workspace that are neither secret nor hidden. All words must be literal.
pub(crate) fn creates(words: &[Word], ground: Ground<'_>) -> bool {
    let Some((name, rest)) = words.split_first() else { return false };
    let spec = name
        .literal()
        .and_then(|name| creating::SPECS.iter().find(|spec| spec.words.first() == Some(&name)));
    let is_hidden = |part: &str| part.starts_with('.') && !matches!(part, "." | "..");
    let is_visible = |word: &Word| {
        let literal = word.literal();
        literal.is_some_and(|text| text.starts_with('-') || !text.split('/').any(is_hidden))
    };
    let is_inside =
        |word: &Word| word.text.starts_with('-') || allow::is_inside(&word.text, ground);
    spec.is_some_and(|spec| spec.judge(rest, ground).is_ok())
        && rest.iter().all(|word| is_visible(word) && is_inside(word))
}

/// Option of a command, with its value.
#[derive(Debug)]
struct GivenOption<'w> {
    /// Name in the table.
    name: &'static str,
    kind: OptionKind,
    value: Option<Cow<'w, str>>,
    /// True if the value is a word of its own behind an operand. Implementations that read no
    /// options there take it for a file.
    may_be_operand: bool,
}

/// Arguments of a command, divided into options and operands.
#[derive(Debug, Default)]
struct Arguments<'w> {
    options: Vec<GivenOption<'w>>,
    operands: Vec<&'w Word>,
    /// Number of operands before `--`.
    before: usize,
    /// Words after `--`, if they have a table of their own.
    rest: Option<&'w [Word]>,
}

impl Arguments<'_> {
    fn has(&self, kind: OptionKind) -> bool {
        self.options.iter().any(|option| option.kind == kind)
    }

    /// True if an option gives the pattern or excludes one, so that every operand is a file.
    fn has_pattern(&self) -> bool {
        let gives = |kind| {
            matches!(kind, OptionKind::NoPattern)
                || matches!(
                    kind,
                    OptionKind::Value(
                        OptionValue::Pattern | OptionValue::PatternFile | OptionValue::SedScript
                    )
                )
        };
        self.options.iter().any(|option| gives(option.kind))
    }

    /// True if the files of a recursive search are limited to those of `--include`. With
    /// `--exclude` before it, grep also reads files that no pattern matches.
    fn is_limited(&self) -> bool {
        let first = self.options.iter().find(|option| {
            option.name.starts_with("--") && matches!(option.name, "--include" | "--exclude")
        });
        first.is_some_and(|option| option.name == "--include")
    }
}

impl Spec {
    /// Effect of the command, if [`Spec::judge`] accepts its words.
    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// True if the operands name what the program does, so that a suggested grant includes them.
    pub(crate) fn operands_are_operations(&self) -> bool {
        self.operands == Operands::Tokens
    }

    /// Checks that all of `words`, which follow program and subcommand, are known to be harmless in
    /// `ground`. Fails with the reason.
    pub(crate) fn judge(&self, words: &[Word], ground: Ground<'_>) -> Result<(), String> {
        if self.operands == Operands::Expression {
            return find::judge(words, ground);
        }
        if self.operands == Operands::Words {
            let unknown = words.iter().any(|word| word.literal().is_none());
            let why = || "part of it is known only when it runs".to_owned();
            return if unknown { Err(why()) } else { Ok(()) };
        }
        if self.operands == Operands::Test {
            return facts::judge_test(words, ground);
        }
        let arguments = self.read(words)?;
        for option in &arguments.options {
            option.check(ground)?;
        }
        let again = |option: &&GivenOption<'_>| option.kind == OptionKind::Once;
        if arguments.options.iter().filter(again).count() > 1 {
            return Err("the option -u, given twice, shows hidden files".to_owned());
        }
        self.check_number(&arguments)?;
        let recursive = arguments.has(OptionKind::Recursive) || self.operands == Operands::Folders;
        if recursive && arguments.has(OptionKind::Follows) {
            return Err("it follows links in folders".to_owned());
        }
        let leads = matches!(
            self.operands,
            Operands::Pattern | Operands::PatternVersions | Operands::Script(_)
        );
        let first = usize::from(leads && !arguments.has_pattern());
        for (index, word) in arguments.operands.iter().enumerate() {
            if word.literal().is_none() && index < arguments.before && !self.inert {
                check_beginning(word)?;
            }
            if index >= first {
                self.operand(word, recursive, ground)?;
            } else {
                let text = word.literal().ok_or("its pattern is known only when it runs")?;
                if let Operands::Script(language) = self.operands {
                    language.check(text)?;
                }
            }
        }
        if recursive && self.operands != NAMES {
            self.check_recursion(&arguments, first, ground)?;
        }
        match (self.after, arguments.rest) {
            (Some(after), Some(rest)) => after.judge(rest, ground),
            _ => Ok(()),
        }
    }

    /// Checks the number of operands. Fails with the reason.
    fn check_number(&self, arguments: &Arguments<'_>) -> Result<(), String> {
        let Some(max) = self.operands_max else { return Ok(()) };
        if arguments.operands.iter().any(|word| word.literal().is_none()) {
            return Err("the number of its operands is known only when it runs".to_owned());
        }
        match arguments.operands.get(max) {
            Some(word) => Err(format!("the operand {} may be changed", shown(&word.text))),
            None => Ok(()),
        }
    }

    /// Divides `words` into options and operands. Fails with the reason if an option is not known.
    fn read<'w>(&self, words: &'w [Word]) -> Result<Arguments<'w>, String> {
        let mut arguments = Arguments::default();
        let mut words = words;
        while let Some((word, rest)) = words.split_first() {
            words = rest;
            let text = word.literal();
            if self.options_first && !arguments.operands.is_empty() && word.text.starts_with('-') {
                return Err(format!("{} may be an operand", shown(&word.text)));
            }
            if self.style == OptionSyntax::Argparse && word.text.starts_with('@') {
                return Err(format!("{} is a file of options", shown(&word.text)));
            }
            match text {
                Some("--") if self.after.is_some() => {
                    arguments.rest = Some(words);
                    break;
                }
                Some("--") => {
                    arguments.before = arguments.operands.len();
                    if self.style == OptionSyntax::Argparse {
                        rest.iter().try_for_each(check_argument)?;
                    }
                    arguments.operands.extend(words);
                    return Ok(arguments);
                }
                Some(text) if text.starts_with('-') && text != "-" => {
                    words = self.option(word, text, rest, &mut arguments)?;
                }
                None if word.text.starts_with('-') => self.open_option(word, &mut arguments)?,
                _ => arguments.operands.push(word),
            }
        }
        arguments.before = arguments.operands.len();
        Ok(arguments)
    }

    /// Reads the option `text`, which is `word`, and its value. `rest` are the words after it; the
    /// result are those after the value.
    fn option<'w>(
        &self,
        word: &Word,
        text: &'w str,
        rest: &'w [Word],
        arguments: &mut Arguments<'w>,
    ) -> Result<&'w [Word], String> {
        if !word.is_written_plainly() {
            return Err(format!("{text} is written to look like something else"));
        }
        if self.numbers && text[1..].chars().all(|c| c.is_ascii_digit()) {
            return Ok(rest);
        }
        let unknown = || format!("the option {text} is not known to be harmless");
        if self.style == OptionSyntax::Whole || text.starts_with("--") {
            if let Some((name, kind)) = self.lookup(text) {
                return self.long(name, kind, rest, arguments);
            }
            let (name, value) = text.split_once('=').ok_or_else(unknown)?;
            let (name, kind) = self.lookup(name).ok_or_else(unknown)?;
            if !kind.takes_value() {
                return Err(unknown());
            }
            arguments.options.push(GivenOption::new(name, kind, Some(Cow::Borrowed(value))));
            return Ok(rest);
        }
        for (at, letter) in text.char_indices().skip(1) {
            if self.numbers && letter.is_ascii_digit() {
                continue;
            }
            let (name, kind) = self.lookup(&format!("-{letter}")).ok_or_else(unknown)?;
            let value = &text[at + letter.len_utf8()..];
            if kind.takes_value() && !value.is_empty() {
                if kind.is_path() && at > ATTACHED_MAX {
                    return Err(format!("the file in {text} is not recognised"));
                }
                arguments.options.push(GivenOption::new(name, kind, Some(Cow::Borrowed(value))));
                return Ok(rest);
            }
            if matches!(kind, OptionKind::Value(_)) {
                return self.long(name, kind, rest, arguments);
            }
            arguments.options.push(GivenOption::new(name, kind, None));
        }
        Ok(rest)
    }

    /// Adds an option without an attached value; takes its value from `rest` if it needs one.
    fn long<'w>(
        &self,
        name: &'static str,
        kind: OptionKind,
        rest: &'w [Word],
        arguments: &mut Arguments<'w>,
    ) -> Result<&'w [Word], String> {
        if !matches!(kind, OptionKind::Value(_)) {
            arguments.options.push(GivenOption::new(name, kind, None));
            return Ok(rest);
        }
        let unknown = || format!("the value of {name} is known only when it runs");
        let (word, rest) = rest.split_first().ok_or_else(unknown)?;
        let value = word.literal().ok_or_else(unknown)?;
        let is_option = self.style != OptionSyntax::Getopt && value.starts_with('-');
        if is_option || (self.style == OptionSyntax::Argparse && value.starts_with('@')) {
            return Err(format!("the value {value} of {name} may be an option"));
        }
        let may_be_operand = self.reading == Reading::Plain && !arguments.operands.is_empty();
        let value = Some(Cow::Borrowed(value));
        arguments
            .options
            .push(GivenOption { may_be_operand, ..GivenOption::new(name, kind, value) });
        Ok(rest)
    }

    /// Reads an option with a glob or a list in its value, such as `--include=*.{ts,tsx}`. Every
    /// word that it can become is the same option.
    fn open_option(&self, word: &Word, arguments: &mut Arguments<'_>) -> Result<(), String> {
        let said = shown(&word.text);
        let unknown = || format!("the value of {said} is known only when it runs");
        for text in braces(&word.text) {
            let (name, value) = text.split_once('=').ok_or_else(unknown)?;
            if name.chars().any(is_reserved) || !word.is_written_plainly() {
                return Err(unknown());
            }
            let (name, kind) = self.lookup(name).ok_or_else(unknown)?;
            let ends = allow::has_ordinary_ending(value);
            match kind {
                OptionKind::Value(OptionValue::Text | OptionValue::Data) => {}
                OptionKind::Value(OptionValue::Glob | OptionValue::HiddenGlob)
                    if ends || !value.chars().any(is_reserved) => {}
                _ => return Err(unknown()),
            }
            arguments.options.push(GivenOption::new(name, kind, Some(shown(value).into())));
        }
        Ok(())
    }

    /// Checks an operand that is not a pattern.
    fn operand(&self, word: &Word, recursive: bool, ground: Ground<'_>) -> Result<(), String> {
        let access = match self.operands {
            Operands::Paths(PathAccess::Names) if recursive => PathAccess::Tree,
            Operands::Paths(access) => access,
            _ => PathAccess::Content,
        };
        match (self.operands, word.literal()) {
            (Operands::Nothing, Some(text)) => {
                Err(format!("`{text}` is more than what is known of it"))
            }
            (Operands::Data, Some(_)) => Ok(()),
            (Operands::Formats, Some(text)) if text.starts_with('+') => Ok(()),
            (Operands::Listed(known), Some(text)) if known.has(text) => Ok(()),
            (Operands::GitKeys, Some(text)) if git_lists::is_open_key(text) => Ok(()),
            (Operands::Tokens, Some(text)) if is_token(text) => Ok(()),
            (Operands::Sources, Some(text)) if !is_source(text) => {
                Err(format!("the operand {text} may be a value or an option"))
            }
            (Operands::Archives, Some(text)) if text.contains(':') => {
                Err(format!("the archive {text} may be on another machine"))
            }
            (
                Operands::Formats | Operands::Listed(_) | Operands::GitKeys | Operands::Tokens,
                Some(text),
            ) => Err(format!("the operand {text} is not known to be harmless")),
            (
                Operands::Nothing
                | Operands::Data
                | Operands::Expression
                | Operands::Test
                | Operands::Formats
                | Operands::Listed(_)
                | Operands::GitKeys
                | Operands::Tokens
                | Operands::Archives
                | Operands::Words,
                None,
            ) => Err("part of it is known only when it runs".to_owned()),
            (Operands::Versions | Operands::PatternVersions, _) if !recursive => {
                braces(&word.text).iter().try_for_each(|text| {
                    if text.chars().any(is_reserved) {
                        allow::path_text(text, PathAccess::Content, ground)
                    } else {
                        allow::version(text, ground)
                    }
                })
            }
            _ => allow::path(word, access, ground),
        }
    }

    /// Checks a command that reads whole folders, hidden files included. A search that `--include`
    /// limits may read any folder of the workspace; otherwise the folders must be visible parts of
    /// the workspace ([`allow::is_visible_part`]), so the root is not permitted.
    fn check_recursion(
        &self,
        arguments: &Arguments<'_>,
        first: usize,
        ground: Ground<'_>,
    ) -> Result<(), String> {
        let hidden = |option: &GivenOption<'_>| {
            option.name == "--include" && option.value.as_deref().is_some_and(selects_hidden)
        };
        let limited = arguments.is_limited() && !arguments.options.iter().any(hidden);
        if self.operands == Operands::Pattern && limited {
            return Ok(());
        }
        let folders = arguments.operands.get(first..).unwrap_or_default();
        let here = Word { text: ".".to_owned(), ..Word::default() };
        let folders = if folders.is_empty() { &[&here] } else { folders };
        for text in folders.iter().flat_map(|word| braces(&word.text)) {
            if !allow::is_visible_part(&text, ground) {
                let said = shown(&text);
                return Err(format!("{said} is read with its hidden files; name folders in it"));
            }
        }
        Ok(())
    }

    /// Finds a harmless option by its name or, if the program permits it, an abbreviation. `None`
    /// if there is none.
    fn lookup(&self, name: &str) -> Option<(&'static str, OptionKind)> {
        if let Some(found) = lookup(self.options, name) {
            return Some(found);
        }
        let others = self.others?;
        if !name.starts_with("--") || name.len() < 3 || name.starts_with("--no-") {
            return None;
        }
        if others.split_ascii_whitespace().any(|other| other.starts_with(name)) {
            return None;
        }
        let mut candidates =
            table::entries(self.options).filter(|(known, _)| known.starts_with(name));
        let first = candidates.next()?;
        candidates.all(|(_, kind)| kind == first.1).then_some(first)
    }
}

impl<'w> GivenOption<'w> {
    fn new(name: &'static str, kind: OptionKind, value: Option<Cow<'w, str>>) -> GivenOption<'w> {
        GivenOption { name, kind, value, may_be_operand: false }
    }

    fn check(&self, ground: Ground<'_>) -> Result<(), String> {
        match (self.kind, &self.value) {
            (OptionKind::Value(kind) | OptionKind::Optional(kind), Some(value)) => {
                if self.may_be_operand {
                    allow::path_text(value, PathAccess::Content, ground)?;
                }
                kind.check(self.name, value, ground)
            }
            _ => Ok(()),
        }
    }
}

/// True for a name of a target, script or object ([`Operands::Tokens`]).
fn is_token(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-.+:,%/".contains(c);
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && text.chars().all(plain)
        && !text.split('/').any(|part| part == "..")
        && !is_sensitive(text)
}

/// True for a word that a program takes for a file ([`Operands::Sources`]).
fn is_source(text: &str) -> bool {
    text.contains(['.', '/']) && !text.starts_with(['+', '@'])
}

/// Checks that a word with a glob or a list cannot become an option.
fn check_beginning(word: &Word) -> Result<(), String> {
    let starts_open = |text: &str| text.starts_with(|c: char| c == '-' || is_reserved(c));
    let is_home = |text: &str| text.starts_with(crate::shell::word::active('~'));
    if braces(&word.text).iter().any(|text| starts_open(text) && !is_home(text)) {
        let said = shown(&word.text);
        return Err(format!("{said} may match a file whose name is an option; write ./{said}"));
    }
    Ok(())
}

/// Checks a word that argparse, or a plugin of pytest, must not take for an option or for a file of
/// options.
fn check_argument(word: &Word) -> Result<(), String> {
    if word.text.starts_with(['-', '@']) {
        return Err(format!("{} may be an option", shown(&word.text)));
    }
    Ok(())
}
