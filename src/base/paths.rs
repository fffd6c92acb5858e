//! Paths as text, without access to files.

use std::path::{Component, Path, PathBuf};

/// `path` without `.` and `..`, resolved by text: `..` after a link leads to the folder of the
/// link.
pub fn normalise(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            other => clean.push(other),
        }
    }
    clean
}
