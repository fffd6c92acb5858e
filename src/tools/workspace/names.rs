//! Escaping of file names for a model, and parsing of escaped names.
//!
//! A name can contain any byte except `/` and NUL. A name that would be ambiguous in a list is
//! quoted and escaped without loss, and a path in that form is accepted.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use posse_base::failure::printable;

/// Formats `path` for the model: unchanged if it is unambiguous, otherwise quoted and escaped.
/// [`read_back`] parses the result.
pub(crate) fn shown(path: &Path) -> String {
    if let Some(text) = path.to_str()
        && is_plain(text)
    {
        return text.to_owned();
    }
    let mut shown = String::from("\"");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => shown.extend(['\\', c]),
                '\t' => shown.push_str("\\t"),
                // Control characters, and characters that hide or reorder others.
                c => shown.push_str(&printable(c.encode_utf8(&mut [0; 4]))),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown.push('"');
    shown
}

/// Returns true if a path needs no quotation marks and no escaping.
fn is_plain(text: &str) -> bool {
    !text.starts_with('"')
        && !text.contains(['\t', '\n'])
        && !text.contains("  ")
        && !text.contains(" -> ")
        && text.trim() == text
        && !text.split('/').any(|name| name.starts_with('"'))
        && printable(text) == text
}

/// Parses a path that [`shown`] has quoted, as a whole or name by name. `None` if `text` contains
/// no quoted name.
pub(crate) fn read_back(text: &str) -> Option<PathBuf> {
    if !text.contains('"') {
        return None;
    }
    if let Some(name) = unquoted(text) {
        return Some(path_of(name));
    }
    let mut found = false;
    let names = text.split('/').map(|name| {
        let plain = unquoted(name);
        found |= plain.is_some();
        plain.unwrap_or_else(|| name.into())
    });
    let names: Vec<Vec<u8>> = names.collect();
    found.then(|| path_of(names.join(&b'/')))
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn unquoted(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes: Vec<u8> = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => escape(&mut rest, &mut bytes)?,
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    // No file has such a name.
    (!bytes.is_empty() && !bytes.contains(&0)).then_some(bytes)
}

/// Parses the escape sequence after a backslash and appends its bytes to `bytes`. `None` if it is
/// invalid.
fn escape(rest: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let c = match rest.next()? {
        c @ ('"' | '\\') => c,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'x' => {
            let (digits, after) = rest.as_str().split_at_checked(2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            *rest = after.chars();
            return Some(());
        }
        'u' => {
            let (digits, after) = rest.as_str().strip_prefix('{')?.split_once('}')?;
            *rest = after.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
        }
        _ => return None,
    };
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shows_plain_names_as_they_are() {
        for name in ["a.rs", "with space.txt", "it's", "a\"b", "back\\slash", "é/ü", "a\\n"] {
            assert_eq!(shown(Path::new(name)), name);
        }
        let table: [(&[u8], &str); 7] = [
            (b"a\nb", r#""a\nb""#),
            (b"a\xffb.txt", r#""a\xffb.txt""#),
            (b"\"a\"", r#""\"a\"""#),
            (b" a", r#"" a""#),
            (b"a  5 bytes", r#""a  5 bytes""#),
            (b"a\x1b[2J\\", r#""a\u{1b}[2J\\""#),
            ("a\u{202e}b".as_bytes(), r#""a\u{202e}b""#),
        ];
        for (name, expected) in table {
            assert_eq!(shown(Path::new(OsStr::from_bytes(name))), expected);
        }
    }

    #[test]
    fn reads_a_quoted_name_in_a_path() {
        let read = |text| read_back(text).map(|path| path.into_os_string().into_vec());
        assert_eq!(read(r#"sub/"a\nb"/c"#), Some(b"sub/a\nb/c".to_vec()));
        assert_eq!(read(r#""sub/a\xff""#), Some(b"sub/a\xff".to_vec()));
        for other in ["plain", "it's \"x", r#""a\qb""#, r#""""#, r#""a\x00""#, r#""\x"#] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn shown_name_parses_back(
            bytes in prop::collection::vec(1_u8.., 1..20).prop_filter(
                "no slash", |bytes| !bytes.contains(&b'/'))
        ) {
            let name = Path::new(OsStr::from_bytes(&bytes));
            let text = shown(name);
            let means = read_back(&text).unwrap_or_else(|| PathBuf::from(&text));
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert_eq!(means.as_path(), name);
        }
    }
}
