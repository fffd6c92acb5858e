//! Words of git that name files. Source: "pathspec" in gitglossary(7) of git 2.39.

use crate::shell::Names;
use crate::shell::word::{active, inactive_character, is_glob};

/// Variables of git that change how it reads pathspecs: that with the name of the first one ignores
/// case. Source: git(1) of git 2.39.
const IGNORES_CASE: &str = "GIT_ICASE_PATHSPECS";
const CHANGES_MEANING: [&str; 3] =
    ["GIT_GLOB_PATHSPECS", "GIT_LITERAL_PATHSPECS", "GIT_NOGLOB_PATHSPECS"];
/// Options of git with the same effects.
const OPTION_IGNORES_CASE: &str = "--icase-pathspecs";
const OPTIONS_CHANGE_MEANING: Names =
    Names("--glob-pathspecs --literal-pathspecs --noglob-pathspecs");

/// Settings of how git reads its words as pathspecs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathspecSettings {
    pub(crate) ignores_case: bool,
    /// True if patterns and magic may have another meaning.
    pub(crate) changes_meaning: bool,
}

impl PathspecSettings {
    /// The settings with those in `words`: variables of git, also as a part of a word, and options.
    pub(crate) fn with<'w>(self, words: impl IntoIterator<Item = &'w str>) -> PathspecSettings {
        words.into_iter().fold(self, |found, word| PathspecSettings {
            ignores_case: found.ignores_case
                || word.contains(IGNORES_CASE)
                || word == OPTION_IGNORES_CASE,
            changes_meaning: found.changes_meaning
                || CHANGES_MEANING.iter().any(|name| word.contains(name))
                || OPTIONS_CHANGE_MEANING.has(word),
        })
    }
}

/// True if `text` has magic or a pattern.
pub(crate) fn is_special(text: &str) -> bool {
    text.starts_with(':') || text.contains(['*', '?', '[', '\\']) || is_glob(text)
}

/// A word of git that may be a pathspec.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pathspec<'t> {
    /// The pattern behind magic such as `:(top)` or `:/`. `None` without magic.
    pub(crate) pattern: Option<&'t str>,
    /// True with the magic `icase`.
    pub(crate) ignores_case: bool,
}

/// Reads `text`. `None` if it only excludes files.
pub(crate) fn read(text: &str) -> Option<Pathspec<'_>> {
    let plain = Pathspec { pattern: None, ignores_case: false };
    let Some(rest) = text.strip_prefix(':') else { return Some(plain) };
    if let Some((magic, pattern)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        let has = |name: &str| magic.split(',').any(|word| word.trim() == name);
        let spec = Pathspec { pattern: Some(pattern), ignores_case: has("icase") };
        return (!has("exclude")).then_some(spec);
    }
    let pattern = rest.trim_start_matches(['/', '!', '^']);
    let magic = &rest[..rest.len() - pattern.len()];
    if magic.contains(['!', '^']) {
        return None;
    }
    let pattern = pattern.strip_prefix(':').unwrap_or(pattern);
    Some(Pathspec { pattern: Some(pattern), ignores_case: false })
}

/// Forms of `text` as git reads it: it expands patterns itself, and a backslash in them quotes.
pub(crate) fn forms(text: &str) -> Vec<String> {
    let marked: String =
        text.chars().map(|c| if "*?[".contains(c) { active(c) } else { c }).collect();
    // `*` also matches slashes.
    let parts = marked.split('/').map(|part| match part.chars().collect::<Vec<_>>()[..] {
        [c] if inactive_character(c) == Some('*') => active('*').to_string().repeat(2),
        _ => part.to_owned(),
    });
    let marked = parts.collect::<Vec<_>>().join("/");
    let unquoted = marked.replace('\\', "");
    if unquoted == marked { vec![marked] } else { vec![marked, unquoted] }
}

/// The pattern `form` up to its first wildcard, which also matches slashes, if a name begins before
/// it: `src/p*` for `src/p*x`.
pub(crate) fn wider(form: &str) -> Option<String> {
    let at = form.char_indices().find(|(_, c)| is_glob(c.encode_utf8(&mut [0; 4])))?.0;
    let before = &form[..at];
    let is_begun = !before.is_empty() && !before.ends_with(['/', ':', '=', ')']);
    is_begun.then(|| format!("{before}{}", active('*')))
}

/// The pattern `form` for names in upper and lower case.
pub(crate) fn in_any_case(form: &str) -> String {
    let mut pattern = String::with_capacity(form.len());
    for c in form.chars() {
        if c.is_alphabetic() {
            pattern.push(active('['));
            pattern.extend(c.to_lowercase());
            pattern.extend(c.to_uppercase());
            pattern.push(']');
        } else {
            pattern.push(c);
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_is_read_as_git_does() {
        let plain = |pattern| Some((pattern, false));
        for (text, expected) in [
            ("private", plain(None)),
            ("HEAD:private/x", plain(None)),
            (":(top)private", plain(Some("private"))),
            (":(top,literal)private/x", plain(Some("private/x"))),
            (":(attr:a b)private", plain(Some("private"))),
            (":(icase)PRIVATE", Some((Some("PRIVATE"), true))),
            (":(glob,icase)**/P", Some((Some("**/P"), true))),
            (":/private", plain(Some("private"))),
            (":/:private", plain(Some("private"))),
            (":private/x", plain(Some("private/x"))),
            (":(exclude)private", None),
            (":(top,exclude)private", None),
            (":!private", None),
            (":^private", None),
            (":/!private", None),
        ] {
            let found = read(text).map(|spec| (spec.pattern, spec.ignores_case));
            assert_eq!(found, expected, "{text}");
        }
    }
}
