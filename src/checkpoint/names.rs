//! Names of files in the trees of the store, and their quoted form for git.
//!
//! git refuses `.git` and similar names in trees, and reads files such as `.gitattributes` from some
//! trees. Names that begin like these are therefore stored with a `%` in front of them.

/// Character in front of an escaped name.
const ESCAPE: u8 = b'%';

/// Path in a tree for `path` below the root with the folder name `root`. One-to-one: `%` in front of
/// each name that begins with `.git`, in upper or lower case, with `git~`, or with `%`.
pub(crate) fn tree_path(root: &str, path: &[u8]) -> Vec<u8> {
    let mut stored = root.as_bytes().to_vec();
    for name in path.split(|byte| *byte == b'/') {
        stored.push(b'/');
        if is_escaped(name) {
            stored.push(ESCAPE);
        }
        stored.extend_from_slice(name);
    }
    stored
}

fn is_escaped(name: &[u8]) -> bool {
    let begins =
        |with: &[u8]| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    // Some file systems ignore characters that are not ASCII: such a name can mean `.git`.
    begins(b".git") || begins(b"git~") || begins(b"%") || (begins(b".") && !name.is_ascii())
}

/// Splits a path of a tree into the folder name of its root and the path below it. `None` if it is
/// of another form, or the path is not one that [`tree_path`] makes from plain names.
pub(crate) fn split(stored: &[u8]) -> Option<(&str, Vec<u8>)> {
    let mut names = stored.split(|byte| *byte == b'/');
    let root = std::str::from_utf8(names.next()?).ok()?;
    let mut path = Vec::with_capacity(stored.len());
    for name in names {
        let name = name.strip_prefix(&[ESCAPE]).unwrap_or(name);
        if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
            return None;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    (!path.is_empty() && !root.is_empty()).then_some((root, path))
}

/// Quoted form of a path for `git fast-import`.
pub(crate) fn quoted(path: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', byte]),
            b'\n' => quoted.extend(b"\\n"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_git_refuses_are_escaped() {
        for (path, stored) in [
            ("a/b", "r/a/b"),
            (".git/HEAD", "r/%.git/HEAD"),
            ("x/.GIT/a", "r/x/%.GIT/a"),
            (".gitattributes", "r/%.gitattributes"),
            ("git~1", "r/%git~1"),
            ("%a", "r/%%a"),
            (".g\u{200c}it", "r/%.g\u{200c}it"),
        ] {
            assert_eq!(String::from_utf8(tree_path("r", path.as_bytes())).unwrap(), stored);
        }
        for wrong in ["r", "r/", "/a", "r/../a", "r/a//b", "r/%../a", "r/%", "r/a\0b"] {
            assert_eq!(split(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn quotes_are_escaped() {
        assert_eq!(quoted(b"a\"b\\c\nd e\xff"), b"\"a\\\"b\\\\c\\nd e\xff\"");
    }

    proptest! {
        #[test]
        fn paths_come_back(names in prop::collection::vec("[%.a-zGgit~\u{200c}]{1,6}", 1..4)) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            let path = names.join("/");
            let stored = tree_path("r", path.as_bytes());
            prop_assert_eq!(split(&stored), Some(("r", path.into_bytes())));
        }
    }
}
