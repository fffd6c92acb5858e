//! Results of `glob`, their order, and the truncation notice.

use std::fs::File;
use std::time::{Duration, SystemTime};

use posse_base::path_globs::{PathGlob, PathGlobs};
use serde_json::{Value, json};

use crate::testing::ToolFixture;

/// A workspace with these files.
fn desk(files: &[(&str, &str)]) -> ToolFixture {
    let desk = ToolFixture::new();
    for (path, text) in files {
        desk.put(path, text);
    }
    desk
}

fn glob(desk: &ToolFixture, arguments: &Value) -> String {
    desk.ask("glob", arguments)
}

fn age(desk: &ToolFixture, path: &str, seconds: u64) {
    let file = File::options().write(true).open(desk.path("work").join(path)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn hostile_ignore_files_have_no_effect() {
    let desk = desk(&[("a.rs", ""), (".gitignore", "*.log\n"), ("b.log", ""), ("s/c.rs", "")]);
    crate::testing::put_hostile_ignore_files(&desk.path("work"));
    assert_eq!(glob(&desk, &json!({"pattern": "s/*"})), "s/c.rs\n");
    assert_eq!(glob(&desk, &json!({"pattern": "*.rs", "path": "s"})), "s/c.rs\n");
    assert!(!glob(&desk, &json!({"pattern": "*.log"})).contains("b.log"));
}

#[test]
fn lists_the_newest_first() {
    let desk = desk(&[("a.rs", ""), ("s/b.rs", ""), ("s/t/c.rs", ""), ("d.txt", "")]);
    for (path, seconds) in [("a.rs", 20), ("s/b.rs", 30), ("s/t/c.rs", 10)] {
        age(&desk, path, seconds);
    }
    for (pattern, path, expected) in [
        ("*.rs", ".", "s/b.rs\na.rs\ns/t/c.rs\n"),
        ("**/*.rs", ".", "s/b.rs\na.rs\ns/t/c.rs\n"),
        ("s/*.rs", ".", "s/b.rs\n"),
        ("./s/**", ".", "s/b.rs\ns/t/c.rs\n"),
        ("*.rs", "s", "s/b.rs\ns/t/c.rs\n"),
        ("{a,d}.*", ".", "d.txt\na.rs\n"),
        ("*.py", ".", "no files match"),
    ] {
        let found = glob(&desk, &json!({"pattern": pattern, "path": path}));
        assert_eq!(found, expected, "{pattern} in {path}");
    }
}

#[test]
fn leaves_out_ignored_files_and_does_not_follow_links() {
    let desk = desk(&[(".gitignore", "/gen\n"), ("gen/a", ""), (".git/a", ""), ("b/a", "")]);
    std::fs::write(desk.path("outside").join("a"), "").unwrap();
    std::os::unix::fs::symlink(desk.path("outside"), desk.path("work").join("out")).unwrap();
    assert_eq!(glob(&desk, &json!({"pattern": "a"})), "b/a\n");
    for (path, pattern) in [("out", "*"), ("..", "*"), (".", "../*"), (".", "/etc/*")] {
        let arguments = json!({"pattern": pattern, "path": path});
        assert!(desk.prepare("glob", &arguments).is_err(), "{pattern} in {path}");
    }
}

#[test]
fn folder_replaced_by_a_link_is_not_listed() {
    let desk = desk(&[("d/in", "")]);
    std::fs::write(desk.path("outside").join("secret-name"), "").unwrap();
    let prepared = desk.prepare("glob", &json!({"pattern": "*", "path": "d"})).unwrap();
    std::fs::rename(desk.path("work").join("d"), desk.path("work").join("e")).unwrap();
    std::os::unix::fs::symlink(desk.path("outside"), desk.path("work").join("d")).unwrap();
    let output = desk.run("glob", prepared);
    let text = posse_actors::conversation::text_of(&output.content);
    assert!(!text.contains("secret-name"), "{text}");
}

#[test]
fn truncated_list_shows_the_total() {
    let desk = desk(&[]);
    for number in 0..1010 {
        desk.put(&format!("f{number}"), "");
    }
    let output = desk.call("glob", &json!({"pattern": "f*"})).unwrap();
    let text = posse_actors::conversation::text_of(&output.content);
    assert_eq!(text.lines().count(), 1001);
    assert!(text.ends_with("[1000 of 1010 files, newest first; narrow the glob]"), "{text}");
    assert_eq!(output.metadata["truncated"], true);
}

#[test]
fn names_are_escaped() {
    let desk = desk(&[("a\nb\u{1b}[2J", "")]);
    assert_eq!(glob(&desk, &json!({"pattern": "a*"})), "\"a\\nb\\u{1b}[2J\"\n");
}

#[test]
fn denied_files_are_left_out() {
    let denied = PathGlob::new("a/**".to_owned()).unwrap();
    let desk = ToolFixture::set(|env| env.denied_reads.glob = PathGlobs::new(vec![denied.clone()]));
    for path in ["a/x.rs", "a/b/x.rs", "b/a/x.rs"] {
        desk.put(path, "");
    }
    let found = glob(&desk, &json!({"pattern": "*.rs"}));
    assert_eq!(found, "b/a/x.rs\n[2 files left out: deny rules cover them]");
    let found = glob(&desk, &json!({"pattern": "*.rs", "path": "a/b"}));
    assert_eq!(found, "no files match\n[1 file left out: deny rules cover them]");
    assert_eq!(glob(&desk, &json!({"pattern": "b/**"})), "b/a/x.rs\n");
}
