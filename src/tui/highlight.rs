//! Code in colours, line by line: words, texts, numbers and remarks of the common languages. A
//! line once shown never changes, so that code can be shown while it is written.

mod languages;

use crate::tui::theme::Role;

use languages::{LANGUAGES, Language};
/// Reads the lines of one piece of code.
#[derive(Debug, Clone, Default)]
pub(super) struct Highlighter {
    language: Option<&'static Language>,
    diff: bool,
    /// The end that is waited for, and what stands before it.
    within: Option<(&'static str, Role)>,
}

impl Highlighter {
    /// For the language of that name, as it stands behind the fence. Of an unknown one everything
    /// is plain.
    pub(super) fn of(name: &str) -> Highlighter {
        let name = name.split([' ', ',', '{', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Highlighter { language, diff: matches!(name.as_str(), "diff" | "patch"), within: None }
    }

    /// The pieces of the next line.
    pub(super) fn line<'t>(&mut self, line: &'t str) -> Vec<(Role, &'t str)> {
        if self.diff {
            let role = match line.as_bytes().first() {
                Some(b'+') => Role::Added,
                Some(b'-') => Role::Removed,
                Some(b'@') => Role::Accent,
                _ => Role::Text,
            };
            return vec![(role, line)];
        }
        let Some(language) = self.language else { return vec![(Role::Text, line)] };
        let mut pieces = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let (role, length) = self.piece(language, rest, line.len() - rest.len());
            if pieces.last().is_none_or(|(last, _)| *last != role) {
                pieces.push((role, line.len() - rest.len()));
            }
            rest = &rest[length.max(1)..];
        }
        let ends = pieces.iter().skip(1).map(|(_, start)| *start).chain([line.len()]);
        pieces.iter().zip(ends).map(|((role, start), end)| (*role, &line[*start..end])).collect()
    }

    /// The role and the length of what `rest` begins with; `at`: where in its line it stands.
    fn piece(&mut self, language: &'static Language, rest: &str, at: usize) -> (Role, usize) {
        if let Some((end, role)) = self.within {
            let found = rest.find(end);
            if found.is_some() {
                self.within = None;
            }
            return (role, found.map_or(rest.len(), |found| found + end.len()));
        }
        if let Some((begin, end)) = language.block
            && rest.starts_with(begin)
        {
            self.within = Some((end, Role::Remark));
            return (Role::Remark, begin.len());
        }
        if language.remarks.iter().any(|begin| rest.starts_with(begin) && remarks(begin, rest, at))
        {
            return (Role::Remark, rest.len());
        }
        if language.triple {
            for quotes in ["\"\"\"", "'''"] {
                if rest.starts_with(quotes) {
                    self.within = Some((quotes, Role::Literal));
                    return (Role::Literal, quotes.len());
                }
            }
        }
        let Some(first) = rest.chars().next() else { return (Role::Text, rest.len()) };
        if language.quotes.contains(first) {
            return (Role::Literal, quoted(rest, first));
        }
        if first.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
            return (Role::Number, end.unwrap_or(rest.len()));
        }
        if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            return (word(language, &rest[..end], &rest[end..]), end);
        }
        (Role::Text, first.len_utf8())
    }
}

/// Whether a sign begins a remark here: `#` only where a word could begin.
fn remarks(begin: &str, rest: &str, at: usize) -> bool {
    begin != "#" || at == 0 || rest.starts_with("# ") || rest.len() == 1
}

fn word(language: &Language, word: &str, after: &str) -> Role {
    let lower = word.to_ascii_lowercase();
    let is_sql = language.names.contains(&"sql");
    if language.words.contains(&word) || is_sql && language.words.contains(&lower.as_str()) {
        return Role::Keyword;
    }
    let is_type =
        word.chars().next().is_some_and(char::is_uppercase) && word.chars().any(char::is_lowercase);
    let is_call = after.starts_with('(') || after.starts_with("!(");
    if (is_type || is_call) && !language.words.is_empty() { Role::Name } else { Role::Text }
}

/// The length of a text in quotes, or of what there is of it in this line.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => (),
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(language: &str, code: &str) -> Vec<(Role, String)> {
        let mut highlighter = Highlighter::of(language);
        let lines = code.lines().flat_map(|line| highlighter.line(line));
        lines
            .filter(|(role, _)| *role != Role::Text)
            .map(|(role, text)| (role, text.to_owned()))
            .collect()
    }

    #[test]
    fn tells_words_texts_numbers_and_remarks_apart() {
        let roles = shown("rust", "let x = foo(1, \"a\\\"b\"); // why");
        let expected = [
            (Role::Keyword, "let"),
            (Role::Name, "foo"),
            (Role::Number, "1"),
            (Role::Literal, "\"a\\\"b\""),
            (Role::Remark, "// why"),
        ];
        assert_eq!(roles, expected.map(|(role, text)| (role, text.to_owned())));
    }

    #[test]
    fn goes_on_over_lines() {
        let roles = shown("c", "/* one\ntwo */ int x;");
        assert_eq!(roles[0], (Role::Remark, "/* one".to_owned()));
        assert_eq!(roles[1], (Role::Remark, "two */".to_owned()));
        assert_eq!(roles[2], (Role::Keyword, "int".to_owned()));
        let roles = shown("py", "\"\"\"a\nb\"\"\"\nif x:");
        assert_eq!(roles[1], (Role::Literal, "b\"\"\"".to_owned()));
        assert_eq!(roles[2], (Role::Keyword, "if".to_owned()));
    }

    #[test]
    fn a_sign_in_a_word_is_no_remark() {
        assert_eq!(shown("sh", "x=a#b"), []);
        assert_eq!(shown("sh", "ls # all"), [(Role::Remark, "# all".to_owned())]);
    }

    proptest! {
        #[test]
        fn no_character_is_lost(code in "[a-z\"'#/*é\\\\ 0-9\n]{0,60}", which in 0..LANGUAGES.len()) {
            let mut highlighter = Highlighter::of(LANGUAGES[which].names[0]);
            for line in code.lines() {
                let whole: String = highlighter.line(line).iter().map(|(_, text)| *text).collect();
                prop_assert_eq!(whole, line);
            }
        }
    }
}
