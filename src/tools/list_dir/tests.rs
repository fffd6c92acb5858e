//! Folders with ordinary and unusual entries.

use std::fs;
use std::os::unix::fs::symlink;

use posse_base::path_globs::PathGlob;

use super::*;
use crate::testing::ToolFixture;

#[test]
fn entries_show_their_type() {
    let desk = ToolFixture::new();
    desk.put("b.txt", "12345");
    desk.put(".hidden", "1");
    desk.put("src/main.rs", "");
    desk.put("tab\there\n\u{1b}[2J", "");
    desk.put("umlaut-ä", "");
    fs::write(desk.path("work").join(OsStr::from_bytes(b"bad-\xff")), "").unwrap();
    symlink("/etc/pass\nwd", desk.path("work/link")).unwrap();
    nix::unistd::mkfifo(&desk.path("work/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    insta::assert_snapshot!(desk.ask("list_dir", &json!({})), @r#"
    .hidden  1 byte
    b.txt  5 bytes
    "bad-\xff"  0 bytes
    link -> "/etc/pass\nwd"
    pipe  pipe
    src/
    "tab\there\n\u{1b}[2J"  0 bytes
    umlaut-ä  0 bytes
    [8 entries]
    "#);
    assert_eq!(desk.ask("list_dir", &json!({"path": "src/"})), "main.rs  0 bytes\n[1 entry]");
}

#[test]
fn hostile_ignore_files_are_listed_like_others() {
    let desk = ToolFixture::new();
    crate::testing::put_hostile_ignore_files(&desk.path("work"));
    for (path, line) in [
        ("device0", ".gitignore -> /dev/zero\n"),
        ("pipe1", ".ignore  pipe\n"),
        ("large0", ".gitignore  214748364800 bytes\n"),
    ] {
        let listed = desk.ask("list_dir", &json!({"path": format!("hostile/{path}")}));
        assert!(listed.starts_with(line), "{listed}");
    }
}

#[test]
fn non_folders_and_outside_paths_are_refused() {
    let desk = ToolFixture::new();
    desk.put("f", "");
    fs::create_dir(desk.path("work/empty")).unwrap();
    symlink("../outside", desk.path("work/out")).unwrap();
    for (path, expected) in [
        ("empty", "empty is empty"),
        ("f", "ARG003 f is a file, not a folder"),
        ("none", "FIL001 none does not exist"),
    ] {
        assert_eq!(desk.ask("list_dir", &json!({ "path": path })), expected);
    }
    for path in ["out", "..", "/"] {
        assert!(desk.ask("list_dir", &json!({ "path": path })).starts_with("ARG003 "));
    }
}

#[test]
fn large_folder_is_truncated() {
    let desk = ToolFixture::new();
    for number in 0..600 {
        desk.put(&format!("f{number:03}"), "");
    }
    let text = desk.ask("list_dir", &json!({}));
    assert!(text.starts_with("f000  0 bytes\n"));
    assert!(text.ends_with("f499  0 bytes\n[the first 500 of 600 entries; use glob]"));
}

#[test]
fn denied_entries_are_left_out() {
    let denied = PathGlob::new("a/b".to_owned()).unwrap();
    let desk =
        ToolFixture::set(|env| env.denied_reads.list_dir = PathGlobs::new(vec![denied.clone()]));
    desk.put("a/b/x", "");
    desk.put("a/c", "");
    let left = "[1 entry left out: deny rules cover them]";
    let list = |path: &str| desk.ask("list_dir", &json!({"path": path}));
    assert_eq!(list("a"), format!("c  0 bytes\n[1 entry]\n{left}"));
    assert_eq!(list("a/b"), format!("[0 entries]\n{left}"));
    assert_eq!(list("."), "a/\n[1 entry]");
}
