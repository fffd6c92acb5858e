//! Parts of a word that may be paths.

use crate::shell::links::attached_values;
use crate::shell::word::{HOME, PWD, UNKNOWN, active};

/// Characters before a path that is part of a word.
const SEPARATORS: [char; 4] = ['=', ':', ',', '@'];
/// Maximum number of separators in a word behind which the whole rest may be a path.
const RESTS_MAX: usize = 32;

/// Parts of `text` that may be paths: the values of [`whole_values`] and, in code and text, all words
/// with a slash or a dot.
pub(super) fn all_values(text: &str) -> Vec<&str> {
    let mut values = whole_values(text);
    if text.contains(is_path_end) {
        let parts = text.split(is_path_end).filter(|part| part.contains(['/', '.']));
        values.extend(parts.flat_map(whole_values));
    }
    values
}

/// The whole `text`, unless it is an option, the values of options in it, and what is behind `=`, `:`,
/// `,` and `@`.
pub(super) fn whole_values(text: &str) -> Vec<&str> {
    let is_option = text.starts_with('-') && text != "-";
    let mut values: Vec<&str> = (!is_option).then_some(text).into_iter().collect();
    values.extend(attached_values(text));
    values.extend(text.split(SEPARATORS).skip(usize::from(is_option)));
    let separators = text.match_indices(SEPARATORS).take(RESTS_MAX);
    values.extend(separators.map(|(at, separator)| &text[at + separator.len()..]));
    values
}

/// Names of the home folder and the working folder that programs and nested shells read in texts, each
/// with its mark.
const FOLDER_NAMES: [(&str, char); 6] = [
    ("~/", HOME),
    ("$HOME/", HOME),
    ("${HOME}/", HOME),
    ("~+/", PWD),
    ("$PWD/", PWD),
    ("${PWD}/", PWD),
];

/// Paths in `text` that begin with a name of the home folder or the working folder which the shell leaves
/// as it is, with a mark in its place.
pub(super) fn home_paths(text: &str) -> Vec<String> {
    if !text.contains(['~', '$']) {
        return Vec::new();
    }
    let found = FOLDER_NAMES.into_iter().flat_map(|(name, mark)| {
        text.match_indices(name).filter_map(move |(at, _)| {
            let before = text[..at].chars().next_back();
            let is_inside = before.is_some_and(|c| c.is_alphanumeric() || "/._-~".contains(c));
            let path = text[at + name.len()..].split(is_path_end).next().unwrap_or_default();
            (!is_inside).then(|| format!("{mark}/{path}"))
        })
    });
    found.collect()
}

/// Ends of paths in the code `text`: behind an expression, a path that begins with a slash may be below
/// another folder.
pub(super) fn path_ends(text: &str) -> impl Iterator<Item = String> {
    let is_code = text.contains(['(', '{', '[']);
    let parts = text.split(is_path_end).filter(move |part| is_code && part.starts_with('/'));
    parts.filter(|part| part.len() > 1).map(|part| format!("{UNKNOWN}{part}"))
}

/// True for a character that ends a path in code.
fn is_path_end(c: char) -> bool {
    c.is_whitespace() || "\"'`()[]{}<>|;&$".contains(c)
}

/// Known parts of the path `text`, a part of which is known only at run time, each with a folder that it
/// is relative to: the folder before the unknown part, and the path behind one at the beginning,
/// which may be the working folder, the home folder or a root.
pub(super) fn known_parts<'p>(
    text: &'p str,
    folder: &'p str,
    home: &'p str,
    roots: &'p [String],
) -> Vec<(&'p str, &'p str)> {
    let Some(unknown) = text.find(UNKNOWN) else { return Vec::new() };
    if let Some((before, _)) = text[..unknown].rsplit_once('/').filter(|(path, _)| !path.is_empty())
    {
        return vec![(before, folder)];
    }
    let rest = text[unknown..].trim_start_matches(UNKNOWN);
    let Some(rest) = rest.strip_prefix('/').filter(|rest| !rest.contains(UNKNOWN)) else {
        return Vec::new();
    };
    let rest = rest.trim_start_matches('/');
    let folders = roots.iter().map(String::as_str).chain([folder, home]);
    folders.map(|folder| (rest, folder)).collect()
}

/// The path `text` with a pattern in place of its parts that are known only at run time, if each of
/// these is a part of a name: `a*b` for `a${X}b`.
pub(super) fn mixed_pattern(text: &str) -> Option<String> {
    let mut open = text.split('/').filter(|name| name.contains(UNKNOWN)).peekable();
    open.peek()?;
    let is_mixed = open.all(|name| name.chars().any(|c| c != UNKNOWN && c != '.'));
    is_mixed.then(|| text.chars().map(|c| if c == UNKNOWN { active('*') } else { c }).collect())
}

/// The folders above the absolute path `path`.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at.max(1));
    ends.map(|end| &path[..end])
}
