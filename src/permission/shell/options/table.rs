//! Notation of the option tables.
//!
//! An entry is the name of an option and a suffix for its kind:
//!
//! | suffix | kind |
//! |---|---|
//! | none | no value |
//! | `+` | no value; no operand is a pattern |
//! | `^` | no value; reads or lists folders with all their files |
//! | `>` | no value; follows symbolic links |
//! | `!` | no value; harmless only once |
//! | `:NAME` | a value, in the same word or the next one |
//! | `?NAME` | an optional value, in the same word |
//!
//! `NAME` is the kind of the value ([`OptionValue`]); without it, a number or a name.

use super::values::OptionValue;

/// Kind of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// No value.
    Flag,
    /// No value. With it, every operand is a file.
    NoPattern,
    /// No value. With it, folders are read or listed with all files in them.
    Recursive,
    /// No value. With it, symbolic links are followed.
    Follows,
    /// No value. A second one shows hidden files.
    Once,
    /// A value, in the same word or the next one.
    Value(OptionValue),
    /// An optional value, in the same word.
    Optional(OptionValue),
}

impl OptionKind {
    /// True if the option can have a value in the same word.
    pub(super) fn takes_value(self) -> bool {
        matches!(self, OptionKind::Value(_) | OptionKind::Optional(_))
    }

    /// True if the value names a file.
    pub(super) fn is_path(self) -> bool {
        let kinds = [OptionValue::Path, OptionValue::PatternFile];
        kinds
            .iter()
            .any(|kind| self == OptionKind::Value(*kind) || self == OptionKind::Optional(*kind))
    }
}

/// Returns the entry for the option `name` in `lists`. `None` if there is none.
pub(super) fn lookup(lists: &[&'static str], name: &str) -> Option<(&'static str, OptionKind)> {
    if name.len() > 1 && name.contains(SUFFIXES) {
        return None;
    }
    let same = |entry: &&str| {
        let suffix = entry.strip_prefix(name);
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(SUFFIXES))
    };
    // The search in the whole text is much faster, and rarely finds something else.
    let lists = lists.iter().filter(|list| list.contains(name));
    lists.flat_map(|list| list.split_ascii_whitespace()).find(same).map(split)
}

/// Returns all entries of `lists`.
pub(super) fn entries(
    lists: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, OptionKind)> {
    lists.iter().flat_map(|list| list.split_ascii_whitespace()).map(split)
}

const SUFFIXES: [char; 6] = [':', '?', '+', '^', '>', '!'];

fn split(entry: &'static str) -> (&'static str, OptionKind) {
    // A name such as `!` has no suffix.
    let at = entry.char_indices().skip(1).find(|(_, c)| SUFFIXES.contains(c));
    let Some((at, suffix)) = at else { return (entry, OptionKind::Flag) };
    let (name, rest) = entry.split_at(at);
    let value = OptionValue::named(&rest[1..]);
    let kind = match suffix {
        ':' => OptionKind::Value(value),
        '?' => OptionKind::Optional(value),
        '+' => OptionKind::NoPattern,
        '^' => OptionKind::Recursive,
        '>' => OptionKind::Follows,
        _ => OptionKind::Once,
    };
    (name, kind)
}
