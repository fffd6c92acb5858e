//! Detects writes that control git in a folder that git accepts as a repository although it is not
//! called `.git`.

use std::collections::BTreeSet;
use std::path::{Component, Path};

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

/// Returns the outermost folder above the file `relative` that is a git repository which this file
/// controls; `None` if there is none.
///
/// A folder counts as a repository if git accepts it with the files on disk, `relative` and
/// `written` together. The file controls it if the name below the folder is one of `CONTROLLING`.
/// All paths are relative to `root`; the result `.` is `root` itself.
pub(super) fn controlled(root: &Path, relative: &Path, written: &[&str]) -> Option<String> {
    let mut folder = Path::new("").to_owned();
    for part in relative.components() {
        let Component::Normal(name) = part else { return None };
        let name_folded = protected::fold(name.as_encoded_bytes());
        let controls = CONTROLLING.iter().any(|known| known.as_bytes() == &*name_folded);
        if controls && is_repository(root, &folder, relative, written) {
            let shown = folder.display().to_string();
            return Some(if shown.is_empty() { ".".to_owned() } else { shown });
        }
        folder.push(name);
    }
    None
}

fn is_repository(root: &Path, folder: &Path, relative: &Path, written: &[&str]) -> bool {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    for path in written.iter().map(Path::new).chain([relative]) {
        let below = path.strip_prefix(folder).ok();
        if let Some(Component::Normal(first)) = below.and_then(|below| below.components().next()) {
            names.insert(protected::fold(first.as_encoded_bytes()).into_owned());
        }
    }
    let here = root.join(folder);
    protected::is_repository(|name| {
        let on_disk = if name == "head" { "HEAD" } else { name };
        names.contains(name.as_bytes()) || here.join(on_disk).symlink_metadata().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn last_missing_part_of_a_repository_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let at = |path: &str, written: &[&str]| controlled(root, Path::new(path), written);
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
        for file in files {
            let found = controlled(dir.path(), Path::new(file), &files);
            assert_eq!(found.as_deref(), Some("."), "{file}");
        }
        let linked = ["a/HEAD", "a/commondir"];
        assert_eq!(controlled(dir.path(), Path::new("a/HEAD"), &linked).as_deref(), Some("a"));
        assert_eq!(controlled(dir.path(), Path::new("b/config"), &linked), None);
    }
}
