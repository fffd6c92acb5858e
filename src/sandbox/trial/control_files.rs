//! Names that a kept trial never creates, changes or removes.

use std::path::{Component, Path};

use posse_base::protected::{class_of, fold, is_dot_git};

use crate::trial::FileKind;

/// Names in a repository, and in the repositories inside it, that decide what git runs or obeys.
const OF_GIT: [&[u8]; 7] = [
    b"hooks",
    b"config",
    b"config.worktree",
    b"remotes",
    b"branches",
    b"commondir",
    b"lazygit.yml",
];

/// Folders of a repository in which names mean nothing to git: a branch may be called `hooks`.
const FREE: [&[u8]; 3] = [b"refs", b"logs", b"objects"];

/// True if the entry at `relative`, below a root called `root`, is protected: by a name anywhere in
/// the path, or because it controls a repository. `kind`: kind of the entry.
pub(super) fn is_control_file(root: &Path, relative: &Path, kind: FileKind) -> bool {
    let mut above = root.file_name().unwrap_or_default().as_encoded_bytes();
    let mut names = relative.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_encoded_bytes()),
        _ => None,
    });
    if is_dot_git(above) {
        return is_in_git(names, kind);
    }
    while let Some(name) = names.next() {
        if is_dot_git(name) {
            return is_in_git(names, kind);
        }
        if class_of(above, name).is_some() {
            return true;
        }
        above = name;
    }
    false
}

/// True if the entry with these `names` below a `.git` is protected. Without names, it is the `.git`
/// itself.
fn is_in_git<'a>(names: impl Iterator<Item = &'a [u8]>, kind: FileKind) -> bool {
    let mut names = names.map(fold).peekable();
    let Some(first) = names.peek() else {
        // A file or link refers to a repository elsewhere.
        return kind != FileKind::Folder;
    };
    if FREE.contains(&&**first) {
        return false;
    }
    let mut above = None;
    names.any(|name| {
        let is_attributes = above.as_deref() == Some(&b"info"[..]) && *name == *b"attributes";
        let is_control = OF_GIT.contains(&&*name) || is_dot_git(&name);
        above = Some(name.into_owned());
        is_control || is_attributes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_files_are_known_by_name() {
        let is_control = |path: &str, kind| is_control_file(Path::new("/w"), Path::new(path), kind);
        for path in [
            ".git/hooks/post-commit",
            ".git/hooks",
            ".GIT/Hooks/x",
            "sub/.git/config",
            ".git/modules/a/config",
            ".git/worktrees/a/config.worktree",
            ".git/info/attributes",
            ".git/x/.git/index",
            ".envrc",
            "a/.vscode/tasks.json",
            ".gitmodules",
            "AGENTS.md",
        ] {
            assert!(is_control(path, FileKind::File), "{path}");
        }
        for path in [
            ".git/index",
            ".git/HEAD",
            ".git/refs/heads/hooks/config",
            ".git/logs/refs/heads/config",
            ".git/objects/aa/config",
            ".git/info/exclude",
            "src/main.rs",
            "hooks/config",
        ] {
            assert!(!is_control(path, FileKind::File), "{path}");
        }
        assert!(is_control("a/.git", FileKind::File) && is_control("a/.git", FileKind::Link));
        assert!(!is_control("a/.git", FileKind::Folder));
        let inside =
            |path: &str| is_control_file(Path::new("/.git"), Path::new(path), FileKind::File);
        assert!(inside("config") && !inside("index"));
    }
}
