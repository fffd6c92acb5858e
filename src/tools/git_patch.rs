//! Patch of one file in the format of `git diff`, which `git apply` accepts.

use std::fmt::Write as _;

use crate::diff::unified;

/// A file as git stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GitFile<'a> {
    /// 0o100644, 0o100755 or, for a link, 0o120000.
    pub(crate) mode: u32,
    /// Content, or the target of a link.
    pub(crate) content: &'a [u8],
}

/// Mode of a link.
pub(crate) const LINK: u32 = 0o120_000;

impl GitFile<'_> {
    /// Mode of a regular file with these permissions.
    pub(crate) fn mode_of(permissions: u32) -> u32 {
        if permissions & 0o100 == 0 { 0o100_644 } else { 0o100_755 }
    }

    fn is_link(self) -> bool {
        self.mode == LINK
    }
}

/// Patch of the file `name` from `before` to `after`; `None` is no file. Content that is not UTF-8
/// is replaced. The flag is true if the text shows all changes: long ones are cut, with a note.
pub(crate) fn git_patch(
    name: &[u8],
    before: Option<GitFile<'_>>,
    after: Option<GitFile<'_>>,
) -> (String, bool) {
    if let (Some(old), Some(new)) = (before, after)
        && (old.is_link() || new.is_link())
    {
        // As git shows a change of the type. Without a mode, `patch` would take a link for a file.
        let (mut text, is_deletion_whole) = git_patch(name, before, None);
        let (addition, is_whole) = git_patch(name, None, after);
        text.push_str(&addition);
        return (text, is_deletion_whole && is_whole);
    }
    let (old_name, new_name) = (quoted("a/", name), quoted("b/", name));
    let mut text = format!("diff --git {old_name} {new_name}\n");
    // Writing to a string cannot fail.
    let _ = match (before, after) {
        (None, Some(new)) => writeln!(text, "new file mode {:o}", new.mode),
        (Some(old), None) => writeln!(text, "deleted file mode {:o}", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            writeln!(text, "old mode {:o}\nnew mode {:o}", old.mode, new.mode)
        }
        _ => Ok(()),
    };
    let content = |file: Option<GitFile<'_>>| file.map(|file| file.content.to_vec());
    let diff = unified("", content(before).as_deref(), &content(after).unwrap_or_default());
    // The first two lines name the file.
    let Some((at, _)) = diff.text.match_indices('\n').nth(1) else { return (text, true) };
    let file_line = |name: &str, is_there: bool| match is_there {
        false => "/dev/null".to_owned(),
        // Otherwise the name would end at a space.
        true if name.contains(' ') => format!("{name}\t"),
        true => name.to_owned(),
    };
    let old_name = file_line(&old_name, before.is_some());
    let new_name = file_line(&new_name, after.is_some());
    let _ = write!(text, "--- {old_name}\n+++ {new_name}\n{}", &diff.text[at + 1..]);
    (text, !diff.hunks.is_empty())
}

/// `prefix` and the name, quoted as git does if it has control characters, quotes or backslashes, or
/// is not UTF-8.
fn quoted(prefix: &str, name: &[u8]) -> String {
    let is_special = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\');
    match std::str::from_utf8(name) {
        Ok(text) if !name.iter().any(is_special) => format!("{prefix}{text}"),
        _ => {
            let mut text = format!("\"{prefix}");
            for byte in name {
                let _ = match byte {
                    b'"' | b'\\' => write!(text, "\\{}", char::from(*byte)),
                    byte if is_special(byte) || !byte.is_ascii() => write!(text, "\\{byte:03o}"),
                    byte => write!(text, "{}", char::from(*byte)),
                };
            }
            text + "\""
        }
    }
}

#[cfg(test)]
mod tests;
