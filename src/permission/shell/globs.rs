//! Patterns of file names, and whether two of them have a name in common. Letters are compared
//! without regard to case.

use crate::shell::word::{HOME, PWD, UNKNOWN, inactive_character};

/// Maximum number of tokens of a pattern that are compared. A longer one counts as matching
/// anything: file systems accept names of 255 bytes.
const TOKENS_MAX: usize = 400;

/// Pattern of file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePattern(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Any number of characters. True if the dot is not among them.
    Many { but_dots: bool },
    /// One character of a set.
    One(CharacterSet),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CharacterSet {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl CharacterSet {
    fn only(c: char) -> CharacterSet {
        CharacterSet { negated: false, ranges: vec![(c, c)] }
    }

    fn has(&self, c: char) -> bool {
        let is_in = |c: char| self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
        (is_in(c.to_ascii_lowercase()) || is_in(c.to_ascii_uppercase())) != self.negated
    }
}

impl NamePattern {
    /// Parses a part of a path with active characters as globs. What is known only at run time
    /// matches anything.
    pub(crate) fn of_glob(part: &str) -> NamePattern {
        let chars: Vec<char> = part.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            tokens.push(match inactive_character(c) {
                _ if [UNKNOWN, HOME, PWD].contains(&c) => Token::Many { but_dots: false },
                Some('*') => Token::Many { but_dots: false },
                Some('?') => Token::One(CharacterSet { negated: true, ranges: Vec::new() }),
                Some('[') => match set(&chars, at) {
                    Some((set, end)) => {
                        at = end;
                        Token::One(set)
                    }
                    None => Token::One(CharacterSet::only('[')),
                },
                plain => Token::One(CharacterSet::only(plain.unwrap_or(c))),
            });
        }
        NamePattern(tokens)
    }

    /// True if every matching name begins with a dot.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.0.first(), Some(Token::One(set)) if *set == CharacterSet::only('.'))
    }

    /// Parses a pattern in which `*` stands for any characters, and `+` for any without a dot.
    pub(crate) fn of_text(text: &str) -> NamePattern {
        let token = |c| match c {
            '*' => Token::Many { but_dots: false },
            '+' => Token::Many { but_dots: true },
            other => Token::One(CharacterSet::only(other)),
        };
        NamePattern(text.chars().map(token).collect())
    }

    /// True if a name matches both patterns. If `is_visible`, names that begin with a dot do not
    /// count.
    pub(crate) fn meets(&self, other: &NamePattern, is_visible: bool) -> bool {
        let (one, two) = (&self.0, &other.0);
        if one.len().max(two.len()) > TOKENS_MAX {
            return true;
        }
        let width = two.len() + 1;
        let mut seen = vec![[false; 2]; (one.len() + 1) * width];
        // Positions in both patterns, and true if a character was read.
        let mut due = vec![(0, 0, false)];
        while let Some((a, b, is_begun)) = due.pop() {
            if std::mem::replace(&mut seen[a * width + b][usize::from(is_begun)], true) {
                continue;
            }
            if (a, b) == (one.len(), two.len()) {
                return true;
            }
            let (first, second) = (one.get(a), two.get(b));
            if let Some(Token::Many { .. }) = first {
                due.push((a + 1, b, is_begun));
            }
            if let Some(Token::Many { .. }) = second {
                due.push((a, b + 1, is_begun));
            }
            if let (Some(first), Some(second)) = (first, second)
                && first.overlaps(second, is_begun || !is_visible)
            {
                let next =
                    |at: usize, token: &Token| at + usize::from(matches!(token, Token::One(_)));
                due.push((next(a, first), next(b, second), true));
            }
        }
        false
    }
}

impl Token {
    fn has(&self, c: char) -> bool {
        match self {
            Token::Many { but_dots } => !but_dots || c != '.',
            Token::One(set) => set.has(c),
        }
    }

    /// Characters of which at least one is in the token, if any is at all: the ends of ranges, their
    /// neighbours and some others.
    fn samples(&self) -> impl Iterator<Item = char> + '_ {
        let ranges = match self {
            Token::Many { .. } => [].as_slice(),
            Token::One(set) => &set.ranges,
        };
        let near = |c: char| [Some(c), before(c), after(c)].into_iter().flatten();
        let ends = ranges.iter().flat_map(move |(low, high)| near(*low).chain(near(*high)));
        ends.chain((' '..='~').chain(['\u{e9}', '\u{4e00}']))
    }

    /// True if a character is in both tokens; a dot counts only if `dot_counts`.
    fn overlaps(&self, other: &Token, dot_counts: bool) -> bool {
        let both = |c: char| self.has(c) && other.has(c) && (dot_counts || c != '.');
        self.samples().chain(other.samples()).any(both)
    }
}

fn before(c: char) -> Option<char> {
    u32::from(c).checked_sub(1).and_then(char::from_u32)
}

fn after(c: char) -> Option<char> {
    char::from_u32(u32::from(c) + 1)
}

/// Parses the rest of a set such as `[abc]`, `[a-z]` or `[!a]`, from `begin` on, after the bracket.
/// Returns the set and the index after it. A set with a character class contains everything. `None`
/// if it is no set.
fn set(chars: &[char], begin: usize) -> Option<(CharacterSet, usize)> {
    let plain = |at: usize| chars.get(at).map(|c| inactive_character(*c).unwrap_or(*c));
    let negated = matches!(plain(begin)?, '!' | '^');
    let first = begin + usize::from(negated);
    let (mut at, mut ranges, mut has_class) = (first, Vec::new(), false);
    loop {
        let low = plain(at)?;
        if low == ']' && at > first {
            break;
        }
        if low == '[' && matches!(plain(at + 1), Some(':' | '.' | '=')) {
            let kind = plain(at + 1);
            let close = (at + 2..chars.len())
                .find(|end| plain(*end) == kind && plain(end + 1) == Some(']'))?;
            has_class = true;
            at = close + 2;
            continue;
        }
        match (plain(at + 1), plain(at + 2)) {
            (Some('-'), Some(high)) if high != ']' => {
                ranges.push((low, high));
                at += 3;
            }
            _ => {
                ranges.push((low, low));
                at += 1;
            }
        }
    }
    let everything = CharacterSet { negated: true, ranges: Vec::new() };
    Some((if has_class { everything } else { CharacterSet { negated, ranges } }, at + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shell::word::{active, matches};

    fn glob(text: &str) -> String {
        text.chars().map(|c| if "*?[".contains(c) { active(c) } else { c }).collect()
    }

    /// All names of up to four characters of a small alphabet.
    fn names() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..4 {
            let longer = |name: &String| ['a', 'b', '.'].map(|c| format!("{name}{c}"));
            last = last.iter().flat_map(longer).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    proptest! {
        #[test]
        fn patterns_meet_if_a_name_matches_both(
            one in "([ab.*?]|\\[a\\]|\\[!a\\]|\\[ab\\]){0,4}",
            two in "[ab.*]{0,4}",
            is_visible: bool,
        ) {
            let (one, text) = (glob(&one), glob(&two));
            let counts = |name: &&String| !is_visible || !name.starts_with('.');
            let is_common = names().iter().filter(counts)
                .any(|name| matches(&one, name) && matches(&text, name));
            let meets = NamePattern::of_glob(&one).meets(&NamePattern::of_text(&two), is_visible);
            // A name in common may be longer, if both have a star, or have another letter.
            if is_common {
                prop_assert!(meets);
            } else if !one.contains(active('*')) && !one.contains(active('?')) && !one.contains('!') {
                prop_assert!(!meets);
            }
        }
    }

    #[test]
    fn sets_ranges_and_dots_are_understood() {
        for (one, two, expected) in [
            ("dev.e*", "*.env", true),
            ("*.tfstat?", "*.tfstate", true),
            ("*.tfstat[!e]", "*.tfstate", false),
            ("[A-Z]a", "xa", true),
            ("[[:alpha:]]a", "xa", true),
            ("*.rs", "*.env", false),
            ("a.*", "+secret+", false),
            ("a*", "+secret+", true),
            ("[x", "[x", true),
        ] {
            let met = NamePattern::of_glob(&glob(one)).meets(&NamePattern::of_text(two), true);
            assert_eq!(met, expected, "{one} {two}");
        }
        let hidden = NamePattern::of_text(".env");
        assert!(!NamePattern::of_glob(&glob("*")).meets(&hidden, true));
        assert!(NamePattern::of_glob(&glob("*")).meets(&hidden, false));
    }
}
