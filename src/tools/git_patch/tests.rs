//! Patches that git applies.

#![expect(clippy::disallowed_types, reason = "git applies the patches")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::*;

/// Applies `patch` in `folder` with git, after a check, and returns the error text.
fn apply(folder: &Path, patch: &str) -> String {
    let file = folder.join("../patch");
    fs::write(&file, patch).unwrap();
    for flags in [&["--check"][..], &[]] {
        let mut git = Command::new("git");
        git.arg("apply").args(flags).arg(&file).current_dir(folder);
        // No repository: paths are relative to the folder.
        git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap());
        let ended = git.output().unwrap();
        if !ended.status.success() {
            return String::from_utf8_lossy(&ended.stderr).into_owned();
        }
    }
    String::new()
}

#[test]
fn git_applies_patches_of_all_kinds() {
    let file = |content| Some(GitFile { mode: 0o100_644, content });
    let run = |content| Some(GitFile { mode: 0o100_755, content });
    let link = |content| Some(GitFile { mode: LINK, content });
    let table: [(&str, Option<GitFile<'_>>, Option<GitFile<'_>>); 12] = [
        ("new", None, file(b"1\n2\n")),
        ("no line end", file(b"a\nb"), file(b"a\nc")),
        ("empty", None, file(b"")),
        ("was empty", file(b""), None),
        ("gone", file(b"x\n"), None),
        ("runs", file(b"x\n"), run(b"x\n")),
        ("both", run(b"x\n"), file(b"y\n")),
        ("a \"b\"\t\\\n\u{e9}", file(b"x\r\n"), file(b"y\r\n")),
        ("d/new link", None, link(b"../new")),
        ("link", link(b"a"), link(b"b")),
        ("became a link", file(b"x\n"), link(b"new")),
        ("became a file", link(b"new"), file(b"x\n")),
    ];
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    let put = |name: &str, state: Option<GitFile<'_>>| {
        let path = work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let Some(GitFile { mode, content }) = state else { return };
        if mode == LINK {
            symlink(std::str::from_utf8(content).unwrap(), path).unwrap();
        } else {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777)).unwrap();
        }
    };
    let mut patch = String::new();
    for (name, before, after) in table {
        put(name, before);
        let (text, is_whole) = git_patch(name.as_bytes(), before, after);
        assert!(is_whole || text.matches("@@").count() == 0, "{name}: {text}");
        patch.push_str(&text);
    }
    assert_eq!(apply(&work, &patch), "", "{patch}");
    for (name, _, after) in table {
        let place = work.join(name);
        let found = fs::symlink_metadata(&place).ok().map(|found| {
            if found.is_symlink() {
                (LINK, fs::read_link(&place).unwrap().into_os_string().into_encoded_bytes())
            } else {
                (GitFile::mode_of(found.permissions().mode()), fs::read(&place).unwrap())
            }
        });
        let expected = after.map(|state| (state.mode, state.content.to_vec()));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn cut_patches_are_known() {
    let long = b"a line of a generated file\n".repeat(10_000);
    let (text, is_whole) = git_patch(b"x", None, Some(GitFile { mode: 0o100_644, content: &long }));
    assert!(!is_whole && text.contains("lines of the diff are not shown"));
    let (_, is_whole) = git_patch(b"x", None, Some(GitFile { mode: 0o100_644, content: b"" }));
    assert!(is_whole);
}
