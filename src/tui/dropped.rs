//! Files that are dropped on the terminal: it pastes their paths, quoted or escaped, in one text.

use crate::composer::may_be_image;

/// Maximum number of files of one drop.
const FILES_MAX: usize = 20;

/// A dropped file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DroppedFile {
    /// An image: its path as it was pasted.
    Image(String),
    /// Another file: its path, decoded.
    Other(String),
}

/// The files of a paste that consists of two to twenty absolute paths, of which at least one is an
/// image, quoted or an address. `None` for any other text. The file system is not accessed.
pub(super) fn dropped_files(text: &str) -> Option<Vec<DroppedFile>> {
    let words = words(text.trim())?;
    if words.len() < 2 || words.len() > FILES_MAX || !words.iter().all(|word| is_path(word)) {
        return None;
    }
    let is_drop = |word: &&str| {
        may_be_image(word) || word.starts_with(['\'', '"']) || word.starts_with("file://")
    };
    words.iter().copied().find(is_drop)?;
    let file = |word: &str| {
        if may_be_image(word) {
            Some(DroppedFile::Image(word.to_owned()))
        } else {
            decoded(word).map(DroppedFile::Other)
        }
    };
    words.into_iter().map(file).collect()
}

/// Splits a text at white space that is neither quoted nor escaped. The words keep their quotes.
/// `None` if a quote is not closed.
fn words(text: &str) -> Option<Vec<&str>> {
    let (mut words, mut start, mut quote, mut escaped) = (Vec::new(), None, None, false);
    for (at, c) in text.char_indices() {
        let is_gap = c.is_whitespace() && quote.is_none() && !escaped;
        if is_gap {
            words.extend(start.take().map(|start| &text[start..at]));
        } else {
            start = start.or(Some(at));
        }
        match quote {
            _ if escaped => escaped = false,
            None if c == '\\' => escaped = true,
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if open == c => quote = None,
            _ => (),
        }
    }
    words.extend(start.map(|start| &text[start..]));
    (quote.is_none() && !escaped).then_some(words)
}

fn is_path(word: &str) -> bool {
    let word = word.trim_start_matches(['\'', '"']);
    word.starts_with('/') || word.starts_with("file:///")
}

/// The path without quotes, backslashes and percent signs of an address.
fn decoded(word: &str) -> Option<String> {
    for quote in ['\'', '"'] {
        if let Some(inner) = word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(inner.to_owned());
        }
    }
    if let Some(path) = word.strip_prefix("file://") {
        return percent_decoded(path);
    }
    let mut plain = String::with_capacity(word.len());
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        plain.push(if c == '\\' { rest.next()? } else { c });
    }
    Some(plain)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_one_paste_are_files() {
        let image = |path: &str| DroppedFile::Image(path.to_owned());
        let other = |path: &str| DroppedFile::Other(path.to_owned());
        let table = [
            ("/a/x.png /a/y.jpg", Some(vec![image("/a/x.png"), image("/a/y.jpg")])),
            ("'/a/my x.png' '/a/b.rs'\n", Some(vec![image("'/a/my x.png'"), other("/a/b.rs")])),
            ("/a/my\\ x.png\n/a/b\\ c", Some(vec![image("/a/my\\ x.png"), other("/a/b c")])),
            ("file:///a/b%20c file:///d", Some(vec![other("/a/b c"), other("/d")])),
            ("/usr/bin /usr/lib", None),
            ("/a/x.png", None),
            ("/a/x.png and /a/y.png", None),
            ("'/a/x.png /a/y.png", None),
            ("file:///a%zz file:///b", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(dropped_files(text), expected, "{text:?}");
        }
        assert_eq!(dropped_files(&"/a.png ".repeat(21)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[/a.png'\"\\\\ %2\n\u{e4}]{0,40}") {
            let files = dropped_files(&text).unwrap_or_default();
            prop_assert!(files.len() <= FILES_MAX);
        }
    }
}
