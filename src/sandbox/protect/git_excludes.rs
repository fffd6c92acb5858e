//! Hidden files as ignored ones of git: commands see a copy of `info/exclude` that names them.
//!
//! git fails in `git add -A` and `git stash -u` if it cannot read an untracked file. The patterns
//! have no effect on tracked files. The file of the repository stays as it is, so git of the user and
//! the checkpoints of posse do not obey them.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::protect::Watched;
use crate::protect::committed::{CommittedFile, root_around};
use crate::protect::place;

/// Path of the file with patterns below the common folder of a repository.
pub(super) const EXCLUDE: &str = "info/exclude";

/// Maximum size in bytes of a file with patterns to which others are added.
const BYTES_MAX: u64 = 1 << 20;

/// Hidden paths as patterns of git, for each file that gets them.
#[derive(Debug, Default)]
pub(super) struct GitExcludes(BTreeMap<PathBuf, Vec<u8>>);

impl GitExcludes {
    /// Adds the hidden `path` in the work tree `tree`, whose repository has the common folder
    /// `common`.
    pub(super) fn add(&mut self, path: &Path, tree: &Path, common: &Path) {
        let Ok(below) = path.strip_prefix(tree) else { return };
        let is_of_git = below.components().any(|part| part.as_os_str() == ".git");
        if !is_of_git && !below.as_os_str().is_empty() {
            let lines = self.0.entry(common.join(EXCLUDE)).or_default();
            lines.extend(pattern(below));
        }
    }

    /// Returns the files that commands see in place of those with patterns. A file outside the
    /// roots, behind a link, hidden or too large stays as it is. Reads files.
    pub(super) fn files(self, roots: &[Watched], hidden: &[PathBuf]) -> Vec<CommittedFile> {
        let is_hidden = |path: &Path| hidden.iter().any(|hidden| path.starts_with(hidden));
        let files = self.0.into_iter().filter(|(path, _)| !is_hidden(path));
        let with_patterns = files.filter_map(|(path, lines)| {
            let (root, below) = root_around(roots, &path)?;
            let (folder, name) = root.open_parent(below).ok()?;
            let mut bytes = place::read(&folder, name, BYTES_MAX).ok()??;
            if bytes.last().is_some_and(|last| *last != b'\n') {
                bytes.push(b'\n');
            }
            bytes.extend(lines);
            Some(CommittedFile { path, is_executable: false, bytes })
        });
        with_patterns.collect()
    }
}

/// Line with a pattern that matches `below`, a path in a work tree, and everything in it. A line
/// cannot contain a line end, so `?` stands for it.
fn pattern(below: &Path) -> Vec<u8> {
    let mut line = vec![b'/'];
    for byte in below.as_os_str().as_bytes() {
        match byte {
            b'\n' | b'\r' => line.push(b'?'),
            b'*' | b'?' | b'[' | b'\\' | b' ' => line.extend([b'\\', *byte]),
            _ => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_their_path_only() {
        for (below, line) in [
            (".env", "/.env\n"),
            ("a/b c.key", "/a/b\\ c.key\n"),
            ("!#*?[a]\\.pem", "/!#\\*\\?\\[a]\\\\.pem\n"),
            ("a\r\nb.pem", "/a??b.pem\n"),
        ] {
            assert_eq!(String::from_utf8(pattern(Path::new(below))).unwrap(), line);
        }
    }
}
