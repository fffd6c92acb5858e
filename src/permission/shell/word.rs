//! Words of a command after quote removal, before the shell's expansions.
//!
//! An active character (glob, brace, tilde) is one that the shell would act on, because it is not
//! quoted. It is marked by moving it to a private plane of Unicode that text never uses.

use std::borrow::Cow;

/// Offset that is added to an ASCII character to mark it as active.
const ACTIVE: u32 = 0x0010_FE00;
/// Placeholder for text that is known only at run time.
pub(crate) const UNKNOWN: char = '\u{10FFFD}';
/// Placeholder for `$HOME`.
pub(crate) const HOME: char = '\u{10FFFC}';
/// Placeholder for `$PWD`.
pub(crate) const PWD: char = '\u{10FFFB}';
/// Maximum number of alternatives of brace lists in a word. More are treated as a glob.
const ALTERNATIVES_MAX: usize = 256;
/// Maximum number of opening braces in a word. A word with more is treated as a glob.
const LISTS_MAX: usize = 64;

/// A word after quote removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The text, with active characters marked.
    pub(crate) text: String,
    /// Quoting of the source.
    pub(crate) form: Form,
    /// Start and end in the source, in bytes. Undefined inside nested scripts.
    pub(crate) span: (usize, usize),
    /// Numbers of the substitutions in the word.
    pub(crate) substitutions: Vec<usize>,
    /// Byte index in `text` at which the value begins, after an unquoted `NAME=`. `None` if the
    /// word is no assignment.
    pub(crate) value_at: Option<usize>,
}

/// Kinds of quoting and expansion in a word, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Form(u16);

impl Form {
    /// Contains quoted text.
    pub(crate) const QUOTED: Form = Form(1);
    /// Contains unquoted text.
    pub(crate) const BARE: Form = Form(2);
    /// Contains a backslash that quotes the next character.
    pub(crate) const ESCAPED: Form = Form(4);
    /// Contains `$'…'` or `$"…"`.
    pub(crate) const DOLLAR_QUOTED: Form = Form(8);
    /// Contains an unquoted part that is known only at run time: it may be several words, or none.
    pub(crate) const SPLITS: Form = Form(16);
    /// Is an assignment of an array: `NAME=(…)`.
    pub(crate) const ARRAY: Form = Form(32);
    /// Contains a line continuation, or is followed by one. It quotes nothing.
    pub(crate) const CONTINUED: Form = Form(64);
    /// Contains `$"…"`, or `$'…'` with characters given by their codes, which versions of bash
    /// decode differently.
    pub(crate) const CODED: Form = Form(128);
    /// Contains the variable with the folder for temporary files, such as `$TMPDIR`.
    pub(crate) const TEMPORARY: Form = Form(256);

    pub(crate) fn add(&mut self, other: Form) {
        self.0 |= other.0;
    }

    pub(crate) fn has(self, other: Form) -> bool {
        self.0 & other.0 != 0
    }

    /// True if nothing in the word is quoted or expanded.
    pub(crate) fn is_bare(self) -> bool {
        self.0 & !Form::CONTINUED.0 == Form::BARE.0
    }

    /// True if the source contains a backslash that is not part of the word's text.
    pub(crate) fn has_backslash(self) -> bool {
        self.has(Form::ESCAPED) || self.has(Form::CONTINUED)
    }
}

/// Marks an ASCII character as active. Any other character is unchanged.
pub(crate) fn active(c: char) -> char {
    if c.is_ascii() { char::from_u32(ACTIVE + u32::from(c)).unwrap_or(c) } else { c }
}

/// Returns the original of an active character. `None` if `c` is not active.
pub(crate) fn inactive_character(c: char) -> Option<char> {
    u32::from(c).checked_sub(ACTIVE).filter(|code| *code < 128).and_then(char::from_u32)
}

/// True if `c` is reserved by this module and must not occur in text.
pub(crate) fn is_reserved(c: char) -> bool {
    u32::from(c) >= ACTIVE
}

impl Word {
    /// Returns the text if the shell would leave it as it is. `None` if it contains active
    /// characters, placeholders, `$"…"`, coded characters in `$'…'`, or an array.
    pub(crate) fn literal(&self) -> Option<&str> {
        let fixed = !self.text.chars().any(is_reserved)
            && !self.form.has(Form::CODED)
            && !self.form.has(Form::ARRAY);
        fixed.then_some(self.text.as_str())
    }

    /// Returns the text, with its marks, if no part of it is quoted. Only such a word can be a
    /// reserved word.
    pub(crate) fn unquoted_literal(&self) -> Option<&str> {
        let quoted = self.form.has(Form::QUOTED)
            || self.form.has(Form::ESCAPED)
            || self.form.has(Form::DOLLAR_QUOTED);
        if quoted { None } else { Some(self.text.as_str()) }
    }

    /// True if the word is quoted as a whole or not at all, without backslashes and `$'…'`.
    pub(crate) fn is_evenly_quoted(&self) -> bool {
        let mixed = self.form.has(Form::QUOTED) && self.form.has(Form::BARE);
        !mixed && !self.form.has_backslash() && !self.form.has(Form::DOLLAR_QUOTED)
    }

    /// True if the word contains neither backslashes that quote nor `$'…'` or `$"…"`.
    pub(crate) fn is_written_plainly(&self) -> bool {
        !self.form.has_backslash() && !self.form.has(Form::DOLLAR_QUOTED)
    }

    /// True if a part of the word is known only at run time, including `$HOME` and `$PWD`.
    pub(crate) fn is_unknown(&self) -> bool {
        self.text.contains([UNKNOWN, HOME, PWD])
    }
}

/// Converts the text of a word for display: active characters become plain, placeholders become
/// `$…`, `$HOME` and `$PWD`.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            UNKNOWN => out.push_str("$…"),
            HOME => out.push_str("$HOME"),
            PWD => out.push_str("$PWD"),
            c => out.push(inactive_character(c).unwrap_or(c)),
        }
    }
    out
}

/// True if `text` contains one of `characters` as an active character.
pub(crate) fn has_active(text: &str, characters: &[char]) -> bool {
    text.chars().any(|c| inactive_character(c).is_some_and(|plain| characters.contains(&plain)))
}

/// True if `text` contains an active `*`, `?` or `[`.
pub(crate) fn is_glob(text: &str) -> bool {
    has_active(text, &['*', '?', '['])
}

/// Returns all words that brace expansion makes of `text`, in order. Beyond the maximum, a list
/// becomes a glob, which matches more.
pub(crate) fn braces(text: &str) -> Vec<Cow<'_, str>> {
    if !has_active(text, &['{']) {
        return vec![Cow::Borrowed(text)];
    }
    let chars: Vec<char> = text.chars().collect();
    if chars.iter().filter(|c| inactive_character(**c) == Some('{')).count() > LISTS_MAX {
        return vec![Cow::Owned(as_glob(&chars))];
    }
    let groups = brace_groups(&chars);
    if groups.is_empty() {
        return vec![Cow::Owned(plain_braces(text))];
    }
    let mut done = vec![String::new()];
    expand(&chars, 0, chars.len(), &groups, &mut done);
    done.into_iter().map(|text| Cow::Owned(plain_braces(&text))).collect()
}

/// Turns braces and commas that form no list back into plain characters.
pub(crate) fn deactivate_braces(text: String) -> String {
    if !has_active(&text, &['{', '}', ',']) {
        return text;
    }
    let chars: Vec<char> = text.chars().collect();
    let opens = chars.iter().filter(|c| inactive_character(**c) == Some('{')).count();
    if opens <= LISTS_MAX && brace_groups(&chars).is_empty() { plain_braces(&text) } else { text }
}

/// Replaces the text from the first brace to the last by one `*`.
fn as_glob(chars: &[char]) -> String {
    let brace = |c: &char| matches!(inactive_character(*c), Some('{' | '}'));
    let first = chars.iter().position(brace).unwrap_or(0);
    let last = chars.iter().rposition(brace).map_or(0, |at| at + 1);
    let before = chars.iter().take(first);
    let glob = [active('*')];
    before.chain(&glob).chain(chars.iter().skip(last)).collect()
}

/// Turns all active braces and commas into plain characters.
fn plain_braces(text: &str) -> String {
    let plain = |c: char| match inactive_character(c) {
        Some(plain @ ('{' | '}' | ',')) => plain,
        _ => c,
    };
    text.chars().map(plain).collect()
}

/// Brace list: positions of its opening brace, its commas and its closing brace.
struct BraceGroup {
    open: usize,
    commas: Vec<usize>,
    close: usize,
}

/// Finds the brace lists of `chars`, outer and inner ones, sorted by their opening brace.
fn brace_groups(chars: &[char]) -> Vec<BraceGroup> {
    let mut open: Vec<BraceGroup> = Vec::new();
    let mut groups = Vec::new();
    for (at, c) in chars.iter().enumerate() {
        match inactive_character(*c) {
            Some('{') => open.push(BraceGroup { open: at, commas: Vec::new(), close: 0 }),
            Some(',') => {
                if let Some(group) = open.last_mut() {
                    group.commas.push(at);
                }
            }
            Some('}') => {
                if let Some(mut group) = open.pop() {
                    group.close = at;
                    let inside: String = chars[group.open + 1..at].iter().collect();
                    if !group.commas.is_empty() || inside.contains("..") {
                        groups.push(group);
                    }
                }
            }
            _ => {}
        }
    }
    groups.sort_by_key(|group| group.open);
    groups
}

/// Appends every alternative of `chars[from..to]` to each of `done`. Nested lists are expanded up
/// to four levels; a deeper one is a glob.
fn expand(chars: &[char], from: usize, to: usize, groups: &[BraceGroup], done: &mut Vec<String>) {
    let mut at = from;
    while at < to {
        let group = groups.iter().find(|group| group.open == at && group.close < to);
        let Some(group) = group else {
            let next = groups
                .iter()
                .filter(|group| group.open > at && group.close < to)
                .map(|group| group.open)
                .min()
                .unwrap_or(to);
            let text: String = chars[at..next].iter().collect();
            for word in done.iter_mut() {
                word.push_str(&text);
            }
            at = next;
            continue;
        };
        let alternatives = alternatives(chars, group, groups);
        if done.len() * alternatives.len() > ALTERNATIVES_MAX {
            for word in done.iter_mut() {
                word.push(active('*'));
            }
        } else {
            let cross = |word: &String| {
                alternatives.iter().map(|one| format!("{word}{one}")).collect::<Vec<_>>()
            };
            *done = done.iter().flat_map(cross).collect();
        }
        at = group.close + 1;
    }
}

fn alternatives(chars: &[char], group: &BraceGroup, groups: &[BraceGroup]) -> Vec<String> {
    let glob = || vec![active('*').to_string()];
    let depth = groups.iter().filter(|g| g.open < group.open && g.close > group.close).count();
    if depth >= 4 || group.commas.len() >= ALTERNATIVES_MAX {
        return glob();
    }
    if group.commas.is_empty() {
        let inside: String = chars[group.open + 1..group.close].iter().collect();
        return sequence(&inside).unwrap_or_else(glob);
    }
    let mut all = Vec::new();
    let mut from = group.open + 1;
    for end in group.commas.iter().copied().chain([group.close]) {
        let mut done = vec![String::new()];
        expand(chars, from, end, groups, &mut done);
        all.extend(done);
        if all.len() > ALTERNATIVES_MAX {
            return glob();
        }
        from = end + 1;
    }
    all
}

/// Expands a sequence such as `a..e` or `1..9`. `None` for sequences with a step or more than 64
/// numbers, and for other text.
fn sequence(inside: &str) -> Option<Vec<String>> {
    let (first, last) = inside.split_once("..")?;
    if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
        let (low, high) = (first.min(last), first.max(last));
        let few = high.checked_sub(low)? < 64;
        return few.then(|| (low..=high).map(|number| number.to_string()).collect());
    }
    let one = |text: &str| {
        let mut chars = text.chars();
        chars.next().filter(|c| c.is_ascii() && chars.next().is_none())
    };
    let (first, last) = (one(first)?, one(last)?);
    let (low, high) = (first.min(last), first.max(last));
    Some((low..=high).map(String::from).collect())
}

/// Replaces `$HOME`, `$PWD`, and tildes at the beginning or after `=` and `:` in `text`; `~name`
/// becomes `/home/name`. Without `cwd`, the working directory becomes [`UNKNOWN`], as `~-` and `~1`
/// always do.
pub(crate) fn expand_home(text: &str, home: &str, cwd: Option<&str>) -> String {
    expand_tildes(text, home, cwd, None)
}

/// Expands `text` as [`expand_home`] does, and `~-`, `~1` and the like to `previous`, if it is given.
pub(crate) fn expand_tildes(
    text: &str,
    home: &str,
    cwd: Option<&str>,
    previous: Option<&str>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if start && inactive_character(c) == Some('~') {
            let end = rest.find('/').unwrap_or(rest.len());
            match &rest[..end] {
                "" => out.push_str(home),
                "+" => out.push_str(cwd.unwrap_or("\u{10FFFD}")),
                "root" => out.push_str("/root"),
                name if is_earlier_folder(name) => {
                    out.push_str(previous.unwrap_or("\u{10FFFD}"));
                }
                name => {
                    out.push_str("/home/");
                    out.push_str(name);
                }
            }
            rest = &rest[end..];
        } else {
            match c {
                HOME => out.push_str(home),
                PWD => out.push_str(cwd.unwrap_or("\u{10FFFD}")),
                c => out.push(if inactive_character(c) == Some('~') { '~' } else { c }),
            }
        }
        start = matches!(c, '=' | ':') && inactive_character(c).is_none();
    }
    out
}

/// True if the text after a tilde stands for a folder in which the shell was earlier, or an entry of
/// its stack of folders: `-`, `1`, `+1`, `-1`.
fn is_earlier_folder(name: &str) -> bool {
    name.starts_with(['-', '+']) || name.starts_with(|c: char| c.is_ascii_digit())
}

/// True if `text` contains the name of a folder in which the shell was earlier, such as `~-`.
pub(crate) fn names_earlier_folder(text: &str) -> bool {
    let mut tildes = text.char_indices().filter(|(_, c)| inactive_character(*c) == Some('~'));
    tildes.any(|(at, c)| is_earlier_folder(&text[at + c.len_utf8()..]))
}

/// Makes `text` an absolute path without `.`, `..` and double slashes; links are not followed,
/// globs stay. `None` if `text` is empty, if a part of it is known only at run time, or if it is
/// relative and `cwd` is `None`.
pub(crate) fn resolve(text: &str, cwd: Option<&str>) -> Option<String> {
    if text.is_empty() || text.contains([UNKNOWN, HOME, PWD]) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    let base = if text.starts_with('/') { "" } else { cwd? };
    for part in base.split('/').chain(text.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// True if `pattern`, with active characters as globs, can match `name`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut read) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let step = pattern.get(at).map(|c| (*c, inactive_character(*c)));
        match step {
            Some((_, Some('*'))) => {
                back = Some((at + 1, read));
                at += 1;
                continue;
            }
            None if read == name.len() => return true,
            Some((_, Some('?'))) if read < name.len() => {
                (at, read) = (at + 1, read + 1);
                continue;
            }
            Some((_, Some('['))) if read < name.len() => {
                if let Some((end, hit)) = bracket(&pattern, at, name[read])
                    && hit
                {
                    (at, read) = (end, read + 1);
                    continue;
                }
            }
            Some((c, mark)) if read < name.len() && mark.unwrap_or(c) == name[read] => {
                (at, read) = (at + 1, read + 1);
                continue;
            }
            _ => {}
        }
        let Some((pattern_at, name_at)) = back.filter(|(_, name_at)| *name_at < name.len()) else {
            return false;
        };
        back = Some((pattern_at, name_at + 1));
        (at, read) = (pattern_at, name_at + 1);
    }
}

/// Parses a set such as `[abc]`, `[a-z]` or `[!a]` at `open`. Returns the index after it, and true
/// if it matches `c`. `None` if it is no set.
fn bracket(pattern: &[char], open: usize, c: char) -> Option<(usize, bool)> {
    let plain = |at: usize| pattern.get(at).map(|c| inactive_character(*c).unwrap_or(*c));
    let negated = matches!(plain(open + 1)?, '!' | '^');
    let mut at = open + 1 + usize::from(negated);
    let first = at;
    let mut hit = false;
    // Longer than any that is meant; without a bound, nesting would cost a square.
    while at < first + 128 {
        let low = plain(at)?;
        if low == ']' && at > first {
            return Some((at + 1, hit != negated));
        }
        if low == '[' && plain(at + 1) == Some(':') {
            // A character class is treated as matching any character.
            return Some((
                at + 1 + pattern[at..].iter().take(32).position(|c| *c == ']')? + 2,
                true,
            ));
        }
        if plain(at + 1) == Some('-') && plain(at + 2).is_some_and(|high| high != ']') {
            hit |= low <= c && c <= plain(at + 2)?;
            at += 3;
        } else {
            hit |= low == c;
            at += 1;
        }
    }
    None
}

/// Decodes the escapes in the text of `$'…'`. The result ends before the first escape for NUL.
pub(crate) fn ansi_c(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(next) = chars.next() else {
            out.push('\\');
            break;
        };
        let decoded = match next {
            'x' | 'u' | 'U' | '0'..='7' | 'c' => match coded(next, &mut chars) {
                // It ends here: arguments cannot contain NUL.
                '\0' => return out,
                c => c,
            },
            '\\' | '\'' | '"' | '?' => next,
            'a' => '\x07',
            'b' => '\x08',
            'e' | 'E' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            other => {
                out.push('\\');
                other
            }
        };
        out.push(decoded);
    }
    out
}

/// Decodes the character of `\xHH`, `\uHHHH`, `\UHHHHHHHH`, `\nnn` or `\cx`. `kind` is the
/// character after the backslash, and `chars` continues after it.
fn coded(kind: char, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> char {
    if kind == 'c' {
        let c = chars.next().unwrap_or('@');
        return char::from(u8::try_from(u32::from(c) & 0x1f).unwrap_or(0));
    }
    let (digits, radix, mut value) = match kind {
        'x' => (2, 16, 0),
        'u' => (4, 16, 0),
        'U' => (8, 16, 0),
        digit => (2, 8, digit.to_digit(8).unwrap_or(0)),
    };
    for _ in 0..digits {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
        value = value * radix + digit;
        chars.next();
    }
    char::from_u32(value).unwrap_or('\u{FFFD}')
}
