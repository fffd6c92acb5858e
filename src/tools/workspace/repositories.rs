//! Detects writes that control git in a folder that git accepts as a repository although it is not
//! called `.git`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use posse_base::protected;

/// Names, in lower case, by which git recognises a repository or which control git in it.
const CONTROLLING: [&str; 18] = [
    "head",
    "objects",
    "refs",
    "commondir",
    "config",
    "config.worktree",
    "hooks",
    "info",
    "remotes",
    "branches",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "packed-refs",
    "merge_autostash",
    "merge_rr",
    "rr-cache",
    "svn",
];

/// Paths that are written together, as far as they can make a git repository of a folder.
#[derive(Debug, Default)]
pub struct RepositoryParts(HashMap<PathBuf, HashSet<Vec<u8>>>);

impl RepositoryParts {
    /// Collects the parts of repositories among `paths`, which are relative to one root.
    pub fn of(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> RepositoryParts {
        let mut parts = RepositoryParts::default();
        for path in paths {
            let mut folder = PathBuf::new();
            for name in path.as_ref().components().map(Component::as_os_str) {
                if let Some(part) = controlling(name) {
                    parts.0.entry(folder.clone()).or_default().insert(part);
                }
                folder.push(name);
            }
        }
        parts
    }

    /// Returns the outermost folder above the file `relative` that is a git repository which this
    /// file controls; `None` if there is none.
    ///
    /// A folder counts as a repository if git accepts it with the files on disk, `relative` and
    /// these parts together. The file controls it if the name below the folder is one of
    /// `CONTROLLING`. All paths are relative to `root`; the result `.` is `root` itself.
    pub fn controlled(&self, root: &Path, relative: &Path) -> Option<String> {
        let mut folder = PathBuf::new();
        for part in relative.components() {
            let Component::Normal(name) = part else { return None };
            if let Some(own) = controlling(name) {
                let here = root.join(&folder);
                let has = |part: &str| {
                    let on_disk = if part == "head" { "HEAD" } else { part };
                    own == part.as_bytes()
                        || self.contains(&folder, part)
                        || here.join(on_disk).symlink_metadata().is_ok()
                };
                if protected::is_repository(has) {
                    let shown = folder.display().to_string();
                    return Some(if shown.is_empty() { ".".to_owned() } else { shown });
                }
            }
            folder.push(name);
        }
        None
    }

    fn contains(&self, folder: &Path, name: &str) -> bool {
        self.0.get(folder).is_some_and(|names| names.contains(name.as_bytes()))
    }
}

/// `name` in lower case if it is one of `CONTROLLING`.
fn controlling(name: &OsStr) -> Option<Vec<u8>> {
    let folded = protected::fold(name.as_encoded_bytes());
    let is_known = CONTROLLING.iter().any(|known| known.as_bytes() == &*folded);
    is_known.then(|| folded.into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn last_missing_part_of_a_repository_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let at = |path: &str, written: &[&str]| {
            RepositoryParts::of(written).controlled(root, Path::new(path))
        };
        assert_eq!(at("src/config", &[]), None);
        for (file, is_control) in
            [("src/config", false), ("src/HEAD", false), ("src/objects/x", false)]
        {
            assert_eq!(at(file, &[]).is_some(), is_control, "{file}");
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "x").unwrap();
        }
        assert_eq!(at("src/refs/x", &[]).as_deref(), Some("src"));
        fs::create_dir(root.join("src/refs")).unwrap();
        for file in [
            "src/config",
            "src/hooks/pre-commit",
            "src/HEAD",
            "src/info/attributes",
            "src/rebase-merge/git-rebase-todo",
            "src/remotes/origin",
        ] {
            assert_eq!(at(file, &[]).as_deref(), Some("src"), "{file}");
        }
        for file in ["src/main.rs", "src/deep/config", "config", "src/deep/hooks/x"] {
            assert_eq!(at(file, &[]), None, "{file}");
        }
    }

    #[test]
    fn files_written_together_count_together() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["HEAD", "config", "objects/x", "refs/x"];
        let parts = RepositoryParts::of(files);
        for file in files {
            let found = parts.controlled(dir.path(), Path::new(file));
            assert_eq!(found.as_deref(), Some("."), "{file}");
        }
        let linked = RepositoryParts::of(["a/HEAD", "a/commondir"]);
        assert_eq!(linked.controlled(dir.path(), Path::new("a/HEAD")).as_deref(), Some("a"));
        assert_eq!(linked.controlled(dir.path(), Path::new("b/config")), None);
    }
}
