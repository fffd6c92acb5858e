//! Paths as text, without access to files.

use std::path::{Component, Path, PathBuf};

/// Removes `.` and `..` from `path` by text, without looking at files: `..` after a symbolic link
/// leads to the folder that contains the link. A `..` with no folder before it is dropped.
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
