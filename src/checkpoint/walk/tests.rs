//! Walks of trees with repositories, ignored files, secrets, links and other kinds of files.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const LIMITS: WalkLimits = WalkLimits { file_bytes_max: 1000, files_max: 1000 };

fn scan(folder: &Path, limits: WalkLimits) -> WorkspaceScan {
    walk(&Workspace::open(folder, &[]).unwrap(), limits)
}

fn paths(scan: &WorkspaceScan) -> Vec<String> {
    let paths = scan.roots[0].iter().map(|file| String::from_utf8_lossy(&file.path).into_owned());
    paths.collect()
}

#[test]
fn files_that_are_not_ignored_and_not_secret_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    // Rules outside the repository do not count.
    put(top, ".gitignore", "*\n");
    let root = top.join("w/sub");
    put(top, "w/.git/HEAD", "ref: refs/heads/main\n");
    put(top, "w/.git/info/exclude", "excluded\n");
    put(top, "w/.gitignore", "*.log\n/sub/top-only\n");
    put(&root, ".gitignore", "target/\n!keep.log\n");
    put(&root, "a.txt", "a");
    put(&root, "x.log", "x");
    put(&root, "keep.log", "k");
    put(&root, "top-only", "t");
    put(&root, "excluded", "e");
    put(&root, "target/out", "o");
    put(&root, "b/target/out", "o");
    put(&root, "b/.gitignore", "c\n");
    put(&root, "b/c", "c");
    put(&root, "b/d", "d");
    put(&root, ".env", "SECRET=1");
    put(&root, "keys/.ssh/id_rsa", "s");
    put(&root, "large", &"l".repeat(1001));
    symlink("/etc", root.join("link")).unwrap();
    mkfifo(&root.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
    let scan = scan(&root, LIMITS);
    assert_eq!(paths(&scan), [".gitignore", "a.txt", "b/.gitignore", "b/d", "keep.log", "link"]);
    let LeftOut { secrets, large, special, unreadable, .. } = scan.left_out;
    assert_eq!((secrets, large, special, unreadable), (2, 1, 1, 0));
    assert_eq!(scan.left_out.large_names, ["large"]);
}

#[test]
fn repositories_are_found_with_their_state() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for git in [".git", "nested/.git", ".git/modules/deep/name"] {
        for file in ["HEAD", "index", "packed-refs", "config", "hooks/post-commit", "logs/HEAD"] {
            put(root, &format!("{git}/{file}"), "x");
        }
        put(root, &format!("{git}/refs/heads/a/b"), "x");
        put(root, &format!("{git}/refs/heads/a/b.lock"), "x");
        put(root, &format!("{git}/objects/ab/cd"), "x");
    }
    put(root, "sub/.git", "gitdir: ../.git/modules/deep/name\n");
    symlink("nested/.git", root.join("linked")).unwrap();
    let scan = scan(root, LIMITS);
    let mut expected = Vec::new();
    for git in [".git", ".git/modules/deep/name", "nested/.git"] {
        for file in ["HEAD", "index", "packed-refs", "refs/heads/a/b"] {
            expected.push(format!("{git}/{file}"));
        }
    }
    expected.extend(["linked".to_owned(), "sub/.git".to_owned()]);
    expected.sort();
    assert_eq!(paths(&scan), expected);
    let repositories: Vec<_> =
        scan.repositories.iter().map(|(_, path)| path.to_str().unwrap()).collect();
    assert_eq!(repositories, [".git", ".git/modules/deep/name", "nested/.git"]);
    for path in paths(&scan) {
        let is_file = matches!(&*path, "linked" | "sub/.git");
        assert_eq!(is_git_state(path.as_bytes()), !is_file, "{path}");
    }
    for other in [
        ".git/config",
        ".git/hooks/post-commit",
        ".git/refs/heads/a.lock",
        ".git/modules/x/config",
        ".git/x/HEAD",
        "HEAD",
        ".git",
        ".git/info/attributes",
    ] {
        assert!(!is_git_state(other.as_bytes()), "{other}");
    }
}

#[test]
fn limits_leave_the_last_files_out() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..30 {
        put(dir.path(), &format!("f{number:02}/x"), "x");
    }
    let scan = scan(dir.path(), WalkLimits { files_max: 7, ..LIMITS });
    assert_eq!(paths(&scan).last().unwrap(), "f06/x");
    assert_eq!((scan.roots[0].len(), scan.left_out.beyond_limit), (7, 23));
}

#[test]
fn names_that_differ_in_case_are_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a", "1");
    put(dir.path(), "A", "2");
    put(dir.path(), ".GIT/config", "3");
    let found = paths(&scan(dir.path(), LIMITS));
    // A file system that ignores case has one file of two names.
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(found.len(), names, "{found:?}");
}

#[test]
fn what_cannot_be_read_is_named() {
    if nix::unistd::geteuid().is_root() {
        // Everything can be read.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "open/a", "1");
    put(dir.path(), "closed/b", "2");
    let mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(dir.path().join("closed"), permissions).unwrap();
    };
    mode(0);
    let scan = scan(dir.path(), LIMITS);
    mode(0o700);
    assert_eq!(paths(&scan), ["open/a"]);
    assert_eq!(scan.left_out.unreadable_names, ["closed"]);
}
