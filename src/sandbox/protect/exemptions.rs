//! Exemptions: protected paths that one command may change because a person approved it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::protect::baseline::MOUNTS_MAX;

/// Maximum depth to which a protected folder is split around an exempt path.
const DEPTH_MAX: usize = 16;

/// Exempt paths, absolute and resolved. Each covers itself and its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lifted(BTreeSet<PathBuf>);

impl Lifted {
    /// True if there is no exemption.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds exempt paths.
    pub(super) fn extend(&mut self, paths: &[PathBuf]) {
        self.0.extend(paths.iter().cloned());
    }

    /// True if `path` is exempt: the command may change it.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|lifted| path.starts_with(lifted))
    }

    /// True if a path below `path` is exempt and `path` itself is not.
    pub(super) fn reaches_into(&self, path: &Path) -> bool {
        !self.covers(path) && self.0.iter().any(|lifted| lifted.starts_with(path))
    }

    /// Removes exempt paths from `read_only` and `pinned`. A read-only folder that contains an
    /// exempt path is replaced by its other entries except links, and is pinned so that it cannot
    /// be renamed. If it cannot be read or has too many entries, it stays read-only as a whole,
    /// with the exempt path.
    pub(super) fn remove_exempt(&self, read_only: &mut Vec<PathBuf>, pinned: &mut Vec<PathBuf>) {
        if self.is_empty() {
            return;
        }
        let mut left = MOUNTS_MAX;
        let mut around = Vec::new();
        read_only.retain(|path| {
            if self.covers(path) {
                return false;
            }
            let (mut beside, mut above) = (Vec::new(), Vec::new());
            // With too many siblings the folder stays protected as a whole.
            if self.reaches_into(path)
                && self.split_folder(path, DEPTH_MAX, &mut left, &mut beside, &mut above).is_some()
            {
                around.push((beside, above));
                return false;
            }
            true
        });
        pinned.retain(|path| !self.covers(path));
        for (beside, above) in around {
            read_only.extend(beside);
            pinned.extend(above);
        }
        pinned.sort();
        pinned.dedup();
    }

    /// Adds the entries of `folder` that are not exempt to `beside`, and the folders that contain
    /// exempt paths to `above`. Leaves out links. `None` if a folder cannot be read, there are more
    /// than `left` entries, or more than `depth` levels.
    fn split_folder(
        &self,
        folder: &Path,
        depth: usize,
        left: &mut usize,
        beside: &mut Vec<PathBuf>,
        above: &mut Vec<PathBuf>,
    ) -> Option<()> {
        above.push(folder.to_owned());
        for entry in fs::read_dir(folder).ok()? {
            let entry = entry.ok()?;
            let kind = entry.file_type().ok()?;
            let path = entry.path();
            // A link cannot be a mount point; changes are found by the check.
            if self.covers(&path) || kind.is_symlink() {
                continue;
            }
            *left = left.checked_sub(1)?;
            if kind.is_dir() && self.reaches_into(&path) {
                self.split_folder(&path, depth.checked_sub(1)?, left, beside, above)?;
            } else {
                beside.push(path);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(paths: &[&str]) -> Lifted {
        let mut lifted = Lifted::default();
        lifted.extend(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        lifted
    }

    #[test]
    fn covers_a_path_and_its_descendants() {
        let config = lifted(&["/w/.git/config", "/w/.vscode"]);
        for (path, covered, reached) in [
            ("/w/.git/config", true, false),
            ("/w/.git/config.worktree", false, false),
            ("/w/.git/config/x", true, false),
            ("/w/.git", false, true),
            ("/w", false, true),
            ("/w/.vscode/tasks.json", true, false),
            ("/w/.vscode2", false, false),
            ("/w/.git/hooks", false, false),
        ] {
            assert_eq!(config.covers(Path::new(path)), covered, "{path}");
            assert_eq!(config.reaches_into(Path::new(path)), reached, "{path}");
        }
        assert!(!lifted(&[]).covers(Path::new("/w")));
    }

    #[test]
    fn parent_of_an_exemption_is_protected_entry_by_entry() {
        let place = tempfile::tempdir().unwrap();
        let at = |below: &str| place.path().join(below);
        for file in ["hooks/pre-commit", "hooks/post-merge", "hooks/d/e/one", "hooks/d/e/two"] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "").unwrap();
        }
        let mut some = Lifted::default();
        some.extend(&[at("hooks/pre-commit"), at("hooks/d/e/one")]);
        let mut read_only = vec![at("config"), at("hooks")];
        let mut pinned = vec![place.path().to_owned()];
        some.remove_exempt(&mut read_only, &mut pinned);
        read_only.sort();
        assert_eq!(read_only, [at("config"), at("hooks/d/e/two"), at("hooks/post-merge")]);
        let above = [place.path().to_owned(), at("hooks"), at("hooks/d"), at("hooks/d/e")];
        assert_eq!(pinned, above);
    }

    #[test]
    fn unreadable_parent_stays_protected() {
        let place = tempfile::tempdir().unwrap();
        let hooks = place.path().join("hooks");
        fs::create_dir(&hooks).unwrap();
        for number in 0..=MOUNTS_MAX + 1 {
            fs::write(hooks.join(number.to_string()), "").unwrap();
        }
        let mut one = Lifted::default();
        one.extend(&[hooks.join("0")]);
        let (mut read_only, mut pinned) = (vec![hooks.clone()], Vec::new());
        one.remove_exempt(&mut read_only, &mut pinned);
        assert_eq!((read_only, pinned), (vec![hooks], Vec::new()));
    }
}
