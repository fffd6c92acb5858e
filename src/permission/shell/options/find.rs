//! `find`: start folders and an expression. Source: the manual of findutils 4.9.
//!
//! Left out: `-exec`, `-execdir`, `-ok` and `-okdir` run programs; `-delete` deletes; `-fprint`,
//! `-fprint0`, `-fprintf` and `-fls` write; `-files0-from` reads a file; `-L` and `-follow` follow
//! links in folders.

use crate::shell::allow::{self, Ground, PathAccess, has_ordinary_ending};
use crate::shell::word::{Word, braces, shown};

use super::check_beginning;
use super::table::{OptionKind, lookup};
use super::values::OptionValue;

/// Operators, tests and actions that only select and print, with the kinds of their arguments.
const EXPRESSION: &[&str] = &["\
    ( ) ! , -a -and -o -or -not -true -false -depth -d -daystart -mount -xdev -noleaf -warn \
    -nowarn -ignore_readdir_race -noignore_readdir_race -empty -readable -writable -executable \
    -nouser -nogroup -print -print0 -ls -prune -quit -help --help -version --version \
    -amin:text -atime:text -cmin:text -ctime:text -mmin:text -mtime:text -used:text \
    -context:text -fstype:text -gid:text -group:text -inum:text -links:text -perm:text \
    -size:text -type:text -xtype:text -uid:text -user:text -maxdepth:text -mindepth:text \
    -regextype:text -name:text -iname:text -lname:text -ilname:text -path:text -ipath:text \
    -wholename:text -iwholename:text -regex:text -iregex:text -printf:text -newer:path \
    -anewer:path -cnewer:path -samefile:path"];

/// Checks the words after `find`. Fails with the reason.
pub(super) fn judge(words: &[Word], ground: Ground<'_>) -> Result<(), String> {
    let mut words = words;
    loop {
        words = match words.first().and_then(Word::literal) {
            Some("-P" | "-H") => &words[1..],
            Some("-D") if words.get(1).and_then(Word::literal).is_some() => &words[2..],
            Some(text) if is_level(text) => &words[1..],
            _ => break,
        };
    }
    let starts = words.iter().take_while(|word| !begins_expression(word)).count();
    let (starts, mut expression) = words.split_at(starts);
    if starts.is_empty() {
        allow::path_text(".", PathAccess::Tree, ground)?;
    }
    for start in starts {
        if start.literal().is_none() {
            check_beginning(start)?;
        }
        allow::path(start, PathAccess::Tree, ground)?;
    }
    while let Some((word, rest)) = expression.split_first() {
        expression = predicate(word, rest, ground)?;
    }
    Ok(())
}

/// True for `-O0` to `-O3`.
fn is_level(text: &str) -> bool {
    let level = text.strip_prefix("-O");
    level.is_some_and(|level| level.len() == 1 && level.chars().all(|c| c.is_ascii_digit()))
}

/// True if the expression begins with `word`, so that no start folder follows.
fn begins_expression(word: &Word) -> bool {
    let text = word.text.as_str();
    matches!(text, "(" | ")" | "," | "!") || (text.starts_with('-') && text.len() > 1)
}

/// Checks the predicate `word` and its argument. `rest` are the words after it; the result are
/// those after the argument.
fn predicate<'w>(word: &Word, rest: &'w [Word], ground: Ground<'_>) -> Result<&'w [Word], String> {
    let said = shown(&word.text);
    let text = word.literal().ok_or_else(|| format!("{said} may become a predicate of find"))?;
    let kind = lookup(EXPRESSION, text).map(|(_, kind)| kind).or_else(|| newer(text));
    let kind = kind.ok_or_else(|| format!("{said} of find is not known to be harmless"))?;
    let OptionKind::Value(value) = kind else { return Ok(rest) };
    let (argument, rest) =
        rest.split_first().ok_or_else(|| format!("{said} of find has no argument"))?;
    if value == OptionValue::Path {
        allow::path(argument, PathAccess::Names, ground)?;
        if argument.literal().is_none() {
            return Err(format!("the argument of {said} is known only when it runs"));
        }
    } else if argument.literal().is_none() {
        // A glob becomes names with this ending, none of which is a predicate.
        let ends = braces(&argument.text).iter().all(|text| has_ordinary_ending(text));
        if !ends {
            return Err(format!("the argument of {said} is known only when it runs; quote it"));
        }
    }
    Ok(rest)
}

/// Kind of `-newerXY`: Y names how the argument gives the time, `t` as text and others as a file.
fn newer(text: &str) -> Option<OptionKind> {
    let mut letters = text.strip_prefix("-newer")?.chars();
    let (of, by) = (letters.next()?, letters.next()?);
    let known = "aBcm".contains(of) && letters.next().is_none();
    match by {
        't' if known => Some(OptionKind::Value(OptionValue::Text)),
        'a' | 'B' | 'c' | 'm' if known => Some(OptionKind::Value(OptionValue::Path)),
        _ => None,
    }
}
