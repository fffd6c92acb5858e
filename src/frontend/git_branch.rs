//! Name of the git branch of a folder, read from `HEAD` without running git.
//!
//! The files belong to the project and are untrusted: they are read up to a limit, must be regular
//! files, and are opened without following links and without waiting.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};
use posse_base::failure::printable;

/// Maximum bytes of `HEAD`, and of a `.git` file.
const FILE_BYTES_MAX: u64 = 4096;

/// Maximum number of folders above the working directory in which `.git` is looked for.
const PARENTS_MAX: usize = 64;

/// Maximum characters of a name.
const NAME_CHARS_MAX: usize = 100;

/// Number of digits of a commit that is shown if no branch is checked out.
const COMMIT_DIGITS: usize = 7;

/// Branch of the repository that contains `folder` or, if none is checked out, the first digits of
/// its commit. Control characters are escaped. `None` outside of a repository, and if `HEAD` cannot
/// be understood. Reads files.
pub fn git_branch(folder: &Path) -> Option<String> {
    let parents = folder.ancestors().take(PARENTS_MAX);
    let head = parents.map(|parent| parent.join(".git")).find_map(|git| head_of(&git))?;
    branch_of(&read(&head)?)
}

/// Path of the file `HEAD` of a repository. `git`: a folder, or the file of a worktree or submodule
/// that names its folder.
fn head_of(git: &Path) -> Option<PathBuf> {
    let kind = std::fs::symlink_metadata(git).ok()?.file_type();
    if kind.is_dir() {
        return Some(git.join("HEAD"));
    }
    let text = read(git)?;
    let dir = text.lines().next()?.strip_prefix("gitdir:")?.trim();
    (!dir.is_empty()).then(|| git.parent().unwrap_or(git).join(dir).join("HEAD"))
}

/// Branch or commit that the text of `HEAD` names.
fn branch_of(head: &str) -> Option<String> {
    let line = head.lines().next()?.trim();
    let name = if let Some(reference) = line.strip_prefix("ref:") {
        let reference = reference.trim();
        reference.strip_prefix("refs/heads/").unwrap_or(reference)
    } else {
        let is_commit = line.len() >= 40 && line.bytes().all(|b| b.is_ascii_hexdigit());
        if is_commit { &line[..COMMIT_DIGITS] } else { "" }
    };
    // With the format reftable, `HEAD` is only a placeholder.
    let is_known = !name.is_empty() && name != ".invalid";
    // Spaces and the separator of the status row could imitate other parts of it.
    let imitates = |c: char| c != ' ' && c.is_whitespace() || matches!(c, '·' | '⎇');
    let plain = |c: char| if imitates(c) { '?' } else { c };
    is_known.then(|| printable(&name.chars().take(NAME_CHARS_MAX).map(plain).collect::<String>()))
}

/// Text of a regular file, up to a limit.
fn read(path: &Path) -> Option<String> {
    let mut options = OpenOptions::new();
    // Opening a pipe would wait for its other end.
    options.read(true).custom_flags(O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    let file = options.open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_a_branch_or_a_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567\n";
        let table = [
            ("ref: refs/heads/main\n", Some("main")),
            ("ref: refs/heads/feature/a b\n", Some("feature/a b")),
            ("ref: refs/remotes/x\n", Some("refs/remotes/x")),
            (commit, Some("0123456")),
            ("ref: refs/heads/.invalid\n", None),
            ("ref: refs/heads/\n", None),
            ("ref: refs/heads/m\u{2002}·\u{2002}plan\n", Some("m???plan")),
            ("0123\n", None),
            ("", None),
            ("ref: refs/heads/a\u{1b}[2Jb\u{202e}\n", Some("a\\u{1b}[2Jb\\u{202e}")),
        ];
        for (head, expected) in table {
            assert_eq!(branch_of(head).as_deref(), expected, "{head:?}");
        }
        let long = format!("ref: refs/heads/{}", "x".repeat(3000));
        assert_eq!(branch_of(&long).unwrap().len(), NAME_CHARS_MAX);
    }

    #[test]
    fn repository_is_found_above_and_through_the_file_of_a_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("repo/.git/worktrees/other")).unwrap();
        std::fs::create_dir_all(path("repo/src/deep")).unwrap();
        std::fs::create_dir_all(path("other/src")).unwrap();
        std::fs::write(path("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(git_branch(&path("repo/src/deep")).as_deref(), Some("main"));
        std::fs::write(path("repo/.git/worktrees/other/HEAD"), "ref: refs/heads/fix\n").unwrap();
        std::fs::write(path("other/.git"), "gitdir: ../repo/.git/worktrees/other\n").unwrap();
        assert_eq!(git_branch(&path("other/src")).as_deref(), Some("fix"));
        assert_eq!(git_branch(dir.path()), None);
    }

    #[test]
    fn hostile_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        let head = git.join("HEAD");
        nix::unistd::mkfifo(&head, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(git_branch(dir.path()), None, "a pipe is not waited for");
        std::fs::remove_file(&head).unwrap();
        std::fs::write(dir.path().join("secret"), "ref: refs/heads/secret\n").unwrap();
        std::os::unix::fs::symlink("../secret", &head).unwrap();
        assert_eq!(git_branch(dir.path()), None, "links are not followed");
        std::fs::remove_file(&head).unwrap();
        std::fs::write(&head, "x".repeat(100_000)).unwrap();
        assert_eq!(git_branch(dir.path()), None);
    }
}
