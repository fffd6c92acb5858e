//! Syntax highlighting line by line: keywords, strings, numbers and comments of common languages. A
//! line that was shown never changes, so code can be shown while it is streamed.

mod languages;

use crate::theme::Role;

use languages::{LANGUAGES, Language};

/// Highlights the lines of one block of code.
#[derive(Debug, Clone, Default)]
pub(super) struct Highlighter {
    language: Option<&'static Language>,
    diff: bool,
    /// End delimiter and role of the open construct of several lines, such as a block comment;
    /// `None` outside.
    within: Option<(&'static str, Role)>,
}

impl Highlighter {
    /// Creates a highlighter for the language that is named after the opening fence of a code
    /// block. Code in an unknown language is plain.
    pub(super) fn of(name: &str) -> Highlighter {
        let name = name.split([' ', ',', '{', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Highlighter { language, diff: matches!(name.as_str(), "diff" | "patch"), within: None }
    }

    /// Splits the next line into pieces, each with its role.
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
            let (role, length) = self.next_token(language, rest, line.len() - rest.len());
            if pieces.last().is_none_or(|(last, _)| *last != role) {
                pieces.push((role, line.len() - rest.len()));
            }
            rest = &rest[length.max(1)..];
        }
        let ends = pieces.iter().skip(1).map(|(_, start)| *start).chain([line.len()]);
        pieces.iter().zip(ends).map(|((role, start), end)| (*role, &line[*start..end])).collect()
    }

    /// Role and length in bytes of the first piece of `rest`. `at`: offset of `rest` in the line.
    fn next_token(&mut self, language: &'static Language, rest: &str, at: usize) -> (Role, usize) {
        if let Some((end, role)) = self.within {
            let found = rest.find(end);
            if found.is_some() {
                self.within = None;
            }
            return (role, found.map_or(rest.len(), |found| found + end.len()));
        }
        if let Some((begin, end)) = language.block_comment
            && rest.starts_with(begin)
        {
            self.within = Some((end, Role::Comment));
            return (Role::Comment, begin.len());
        }
        if let Some(begin) = language.line_comment
            && rest.starts_with(begin)
            && begins_comment(begin, rest, at)
        {
            return (Role::Comment, rest.len());
        }
        if language.triple_quotes {
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

/// Returns `true` if the delimiter `begin` begins a comment here. Every delimiter does, except that
/// `#` must be at the start of the line, or before a space or the end of the line. `at`: offset of
/// `rest` in the line.
fn begins_comment(begin: &str, rest: &str, at: usize) -> bool {
    begin != "#" || at == 0 || rest.starts_with("# ") || rest.len() == 1
}

fn word(language: &Language, word: &str, after: &str) -> Role {
    let lower = word.to_ascii_lowercase();
    let is_sql = language.names.contains(&"sql");
    let mut keywords = language.keywords.split(' ');
    if keywords.any(|keyword| keyword == word || is_sql && keyword == lower) {
        return Role::Keyword;
    }
    let is_type =
        word.chars().next().is_some_and(char::is_uppercase) && word.chars().any(char::is_lowercase);
    let is_call = after.starts_with('(') || after.starts_with("!(");
    if (is_type || is_call) && !language.keywords.is_empty() { Role::Name } else { Role::Text }
}

/// Length in bytes of the string literal at the start of `rest`, or of its part in this line.
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
    fn distinguishes_keywords_strings_numbers_and_comments() {
        let roles = shown("rust", "let x = foo(1, \"a\\\"b\"); // why");
        let expected = [
            (Role::Keyword, "let"),
            (Role::Name, "foo"),
            (Role::Number, "1"),
            (Role::Literal, "\"a\\\"b\""),
            (Role::Comment, "// why"),
        ];
        assert_eq!(roles, expected.map(|(role, text)| (role, text.to_owned())));
    }

    #[test]
    fn block_comments_and_strings_span_lines() {
        let roles = shown("c", "/* one\ntwo */ int x;");
        assert_eq!(roles[0], (Role::Comment, "/* one".to_owned()));
        assert_eq!(roles[1], (Role::Comment, "two */".to_owned()));
        assert_eq!(roles[2], (Role::Keyword, "int".to_owned()));
        let roles = shown("py", "\"\"\"a\nb\"\"\"\nif x:");
        assert_eq!(roles[1], (Role::Literal, "b\"\"\"".to_owned()));
        assert_eq!(roles[2], (Role::Keyword, "if".to_owned()));
    }

    #[test]
    fn hash_inside_a_word_is_no_comment() {
        assert_eq!(shown("sh", "x=a#b"), []);
        assert_eq!(shown("sh", "ls # all"), [(Role::Comment, "# all".to_owned())]);
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
