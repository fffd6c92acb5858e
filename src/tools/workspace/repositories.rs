//! Detects writes that control git in a folder that git accepts as a repository although it is not
//! called `.git`.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use posse_base::protected;
use posse_sandbox::is_entry_of_git;

/// Names, in lower case, by which git recognises a repository.
const PARTS: [&str; 4] = ["head", "objects", "refs", "commondir"];

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
                let plain = protected::fold(name.as_encoded_bytes());
                if PARTS.iter().any(|part| part.as_bytes() == &*plain) {
                    let known = parts.0.entry(folder.clone()).or_default();
                    known.insert(plain.into_owned());
                }
                folder.push(name);
            }
        }
        parts
    }

    /// Returns the outermost folder above the file `relative` that is a git repository to which this
    /// file belongs; `None` if there is none.
    ///
    /// A folder counts as a repository if git accepts it with the files on disk, `relative` and
    /// these parts together. Names that git or a program beside it creates or obeys belong to it, and
    /// in a folder that git has created each file: work trees may be in folders there. All paths are
    /// relative to `root`; the result `.` is `root` itself.
    pub fn controlled(&self, root: &Path, relative: &Path) -> Option<String> {
        let mut folder = PathBuf::new();
        let mut names = relative.components().peekable();
        while let Some(part) = names.next() {
            let Component::Normal(name) = part else { return None };
            let own = protected::fold(name.as_encoded_bytes());
            let here = root.join(&folder);
            let has = |part: &str| {
                *own == *part.as_bytes() || self.contains(&folder, part) || is_there(&here, part)
            };
            let is_file = names.peek().is_none();
            if protected::is_repository(has)
                && (is_entry_of_git(&own, is_file) || (is_file && is_made_by_git(&here)))
            {
                let shown = folder.display().to_string();
                return Some(if shown.is_empty() { ".".to_owned() } else { shown });
            }
            folder.push(name);
        }
        None
    }

    fn contains(&self, folder: &Path, name: &str) -> bool {
        self.0.get(folder).is_some_and(|names| names.contains(name.as_bytes()))
    }
}

/// True if the part of a repository, a name in lower case, is in `folder`.
fn is_there(folder: &Path, part: &str) -> bool {
    let on_disk = if part == "head" { "HEAD" } else { part };
    folder.join(on_disk).symlink_metadata().is_ok()
}

/// True if the repository `folder` has what git creates in each, and no `.git`: then it is no folder
/// with other files that only looks like a repository.
fn is_made_by_git(folder: &Path) -> bool {
    let has = |name| is_there(folder, name);
    let is_linked = has("commondir") && has("gitdir");
    (is_linked || (has("config") && has("objects") && has("refs"))) && !has(".git")
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
        for file in ["src/deep/main.rs", "src/deep/config", "config", "src/deep/hooks/x"] {
            assert_eq!(at(file, &[]), None, "{file}");
        }
    }

    #[test]
    fn files_that_git_keeps_in_a_repository_of_any_name_belong_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for folder in ["repo.git/objects", "repo.git/refs", "repo.git/worktrees/main", "like/refs"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let files =
            ["repo.git/HEAD", "repo.git/config", "like/HEAD", "like/objects", "like/README"];
        for file in files {
            fs::write(root.join(file), "").unwrap();
        }
        let of = |path: &str| RepositoryParts::default().controlled(root, Path::new(path));
        for name in [
            "index",
            "INDEX",
            "index.lock",
            "sharedindex.0123",
            "lazygit.yml",
            "shallow",
            "gitdir",
            "BISECT_START",
            "MERGE_HEAD",
            "MERGE_MSG",
            "MERGE_RR",
            "logs/HEAD",
            "reftable/tables.list",
            "modules/x/config",
            "worktrees/main/index",
            "worktrees/new/gitdir",
            "annex/x",
            "sl/config",
        ] {
            assert_eq!(of(&format!("repo.git/{name}")).as_deref(), Some("repo.git"), "{name}");
            assert_eq!(of(&format!("like/{name}")).as_deref(), Some("like"), "{name}");
        }
        // A repository that git has created contains no other files; folders may be work trees.
        assert_eq!(of("repo.git/evil").as_deref(), Some("repo.git"));
        for path in ["repo.git/main/src/lib.rs", "like/README", "like/src/index.rs"] {
            assert_eq!(of(path), None, "{path}");
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
