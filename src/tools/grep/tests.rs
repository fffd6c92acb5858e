//! Matches, output and denials of `grep`.

use std::time::{Duration, Instant};

use posse_base::path_globs::{PathGlob, PathGlobs};
use posse_base::secrets::readable::ReadableSecrets;
use serde_json::json;

use super::*;
use crate::testing::ToolFixture;

/// A workspace with these files.
fn desk(files: &[(&str, &str)]) -> ToolFixture {
    let desk = ToolFixture::new();
    for (path, text) in files {
        desk.put(path, text);
    }
    desk
}

const FILES: &[(&str, &str)] = &[
    (".gitignore", "*.log\n"),
    ("a.rs", "fn one() {}\nfn two() {}\n// end\n"),
    ("b/c.rs", "let x = one();\r\n"),
    ("b/d.txt", "one\n"),
    ("x.log", "one\n"),
    ("node_modules/m.js", "one\n"),
    ("bin.dat", "one\n\0\none\n"),
];

fn grep(desk: &ToolFixture, arguments: &Value) -> String {
    desk.ask("grep", arguments)
}

fn refused(desk: &ToolFixture, arguments: &Value) -> ToolError {
    desk.prepare("grep", arguments).unwrap_err()
}

#[test]
fn matches_are_sorted_and_ignored_files_skipped() {
    let desk = desk(FILES);
    let found = grep(&desk, &json!({"pattern": "one"}));
    assert_eq!(found, "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\nb/d.txt:1:one\n");
    let found = grep(&desk, &json!({"pattern": "ONE", "ignoreCase": true, "glob": "*.rs"}));
    assert_eq!(found, "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\n");
    let found = grep(&desk, &json!({"pattern": "^one$", "path": "b"}));
    assert_eq!(found, "b/d.txt:1:one\n");
    let found = grep(&desk, &json!({"pattern": "two", "path": "a.rs", "context": 1}));
    assert_eq!(found, "a.rs-1-fn one() {}\na.rs:2:fn two() {}\na.rs-3-// end\n");
    assert_eq!(grep(&desk, &json!({"pattern": "three"})), "no match in 5 files");
    let plain = |pattern: &str| grep(&desk, &json!({"pattern": pattern, "literal": true}));
    assert_eq!(plain("one() {}"), "a.rs:1:fn one() {}\n");
    assert_eq!(plain("one("), "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\n");
    assert_eq!(plain("^one$"), "no match in 5 files");
    // An explicitly named file is searched although it is ignored.
    assert_eq!(grep(&desk, &json!({"pattern": "one", "path": "x.log"})), "x.log:1:one\n");
    assert_eq!(grep(&desk, &json!({"pattern": "one", "path": "bin.dat"})), "no match in 1 files");
}

#[test]
fn hostile_ignore_files_do_not_delay_a_search() {
    let desk = desk(FILES);
    crate::testing::put_hostile_ignore_files(&desk.path("work"));
    let begin = Instant::now();
    let found = grep(&desk, &json!({"pattern": "one", "glob": "*.rs"}));
    assert_eq!(found, "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\n");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn secrets_are_skipped_and_example_files_searched() {
    let desk = desk(&[
        (".env", "KEY=abc\n"),
        (".env.local", "KEY=abc\n"),
        ("deploy/id_rsa", "KEY=abc\n"),
        ("deploy/server.pem", "KEY=abc\n"),
        (".aws/credentials", "KEY=abc\n"),
        (".env.example", "KEY=\n"),
    ]);
    let found = grep(&desk, &json!({"pattern": "KEY"}));
    assert_eq!(found, ".env.example:1:KEY=\n[5 secret files not searched]");
    let found = grep(&desk, &json!({"pattern": "KEY", "path": ".aws"}));
    assert!(found.starts_with("no match"), "{found}");
}

#[test]
fn listed_secrets_are_searched() {
    let desk = ToolFixture::set(|env| {
        let listed = [env.workspace.cwd().join("a/.e*"), "/x/.env".into()];
        env.readable_secrets = ReadableSecrets::new(listed);
    });
    desk.put(".env", "KEY=1\n");
    desk.put("a/.env", "KEY=2\n");
    let found = grep(&desk, &json!({"pattern": "KEY"}));
    assert_eq!(found, "a/.env:1:KEY=2\n[1 secret files not searched]");
}

#[test]
fn links_are_not_followed() {
    let desk = desk(&[("in.txt", "needle\n")]);
    std::fs::write(desk.path("outside").join("out.txt"), "needle\n").unwrap();
    std::os::unix::fs::symlink(desk.path("outside"), desk.path("work").join("link")).unwrap();
    std::os::unix::fs::symlink("../out.txt", desk.path("work").join("l.txt")).unwrap();
    assert_eq!(grep(&desk, &json!({"pattern": "needle"})), "in.txt:1:needle\n");
    assert_eq!(refused(&desk, &json!({"pattern": "n", "path": "link"})).code, "ARG003");
    assert_eq!(refused(&desk, &json!({"pattern": "n", "path": ".."})).code, "ARG003");
}

#[test]
fn folder_replaced_by_a_link_is_not_followed() {
    let desk = desk(&[("d/in.txt", "needle\n")]);
    std::fs::write(desk.path("outside").join("in.txt"), "needle outside\n").unwrap();
    let prepared = desk.prepare("grep", &json!({"pattern": "needle", "path": "d"})).unwrap();
    std::fs::rename(desk.path("work").join("d"), desk.path("work").join("e")).unwrap();
    std::os::unix::fs::symlink(desk.path("outside"), desk.path("work").join("d")).unwrap();
    let output = desk.run("grep", prepared);
    let text = posse_actors::conversation::text_of(&output.content);
    assert!(!text.contains("outside"), "{text}");
}

#[test]
fn pages_through_many_matches() {
    let lines: Vec<String> = (1..=450).map(|number| format!("hit {number}\n")).collect();
    let desk = desk(&[("f", &lines.concat())]);
    let first = grep(&desk, &json!({"pattern": "hit"}));
    assert_eq!(first.lines().count(), 201);
    assert!(first.ends_with("[200 matches shown, there may be more: offset=200, or narrow it]"));
    let last = grep(&desk, &json!({"pattern": "hit", "offset": 400}));
    assert!(last.starts_with("f:401:hit 401\n") && last.ends_with("f:450:hit 450\n"), "{last}");
    let few = grep(&desk, &json!({"pattern": "hit", "offset": 1, "limit": 2}));
    assert!(few.starts_with("f:2:hit 2\nf:3:hit 3\n[2 matches"), "{few}");
    let beyond = grep(&desk, &json!({"pattern": "hit", "offset": 1e12}));
    assert_eq!(beyond, "no match after the first 450");
}

#[test]
fn output_is_bounded_in_every_direction() {
    let long = format!("{}needle{}\n", "é".repeat(3000), "x".repeat(3000));
    let desk = desk(&[("f", &long)]);
    let found = grep(&desk, &json!({"pattern": "needle"}));
    assert!(found.contains("éneedlex"), "{found}");
    assert!(found.chars().count() < 520, "{}", found.chars().count());
    let wide = format!("{}\n", "y".repeat(400)).repeat(900);
    desk.put("g", &wide);
    let found = grep(&desk, &json!({"pattern": "y", "limit": 1000}));
    assert!(found.len() <= 32 << 10 && found.contains("there may be more"), "{}", found.len());
    desk.put("h", "a\u{1b}[31m\u{202e}b\n");
    let found = grep(&desk, &json!({"pattern": "b$", "path": "h"}));
    assert_eq!(found, "h:1:a\\u{1b}[31m\\u{202e}b\n");
}

#[test]
fn parallel_search_equals_serial_search() {
    let desk = desk(&[]);
    let mut expected = String::new();
    for number in 0..700 {
        let name = format!("d{}/f{number:03}", number / 100);
        desk.put(&name, if number % 3 == 0 { "x\nneedle\n" } else { "x\n" });
        if number % 3 == 0 && expected.lines().count() < 200 {
            expected += &name;
            expected += ":2:needle\n";
        }
    }
    let found = grep(&desk, &json!({"pattern": "needle"}));
    assert!(found.starts_with(&expected), "{found}");
    let all = desk.call("grep", &json!({"pattern": "needle", "limit": 1000})).unwrap();
    assert_eq!(all.metadata["matches"], 234);
    assert_eq!(all.metadata["searched"], 700);
}

#[test]
fn invalid_pattern_is_refused_with_the_reason() {
    let desk = desk(FILES);
    for (arguments, code, part) in [
        (json!({"pattern": "a("}), "ARG005", "unclosed group"),
        (json!({"pattern": "(a{1000}){1000}{1000}"}), "ARG005", "size limit"),
        (json!({"pattern": "a\\nb"}), "ARG005", "not allowed"),
        (json!({"pattern": ""}), "ARG001", "empty"),
        (json!({"pattern": "a", "glob": "[a"}), "ARG005", "unclosed"),
        (json!({"pattern": "a", "glob": "../*"}), "ARG002", "cannot leave"),
    ] {
        let error = refused(&desk, &arguments);
        assert_eq!(error.code, code, "{arguments}: {error}");
        assert!(error.message.contains(part), "{arguments}: {error}");
    }
}

#[test]
fn pathological_pattern_is_linear() {
    let desk = desk(&[("f", &format!("{}!\n", "a".repeat(50_000)))]);
    let begin = Instant::now();
    let found = grep(&desk, &json!({"pattern": "(a+)+$"}));
    assert_eq!(found, "no match in 1 files");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn stops_in_the_middle_of_a_file_when_cancelled() {
    let query = Query {
        matcher: compile(&parsed(json!({"pattern": "needle"})).unwrap()).unwrap(),
        glob: None,
        context: 0,
        readable_secrets: ReadableSecrets::default(),
        denied: PathGlobs::default(),
        ways: Vec::new(),
        links: None,
        committed: None,
    };
    let (stop, guard) = Stop::after(listing::TIME_MAX);
    let endless = std::fs::File::open("/dev/zero").unwrap();
    drop(guard);
    let found = search::file(PathBuf::new(), endless, &query, 10, &stop);
    assert!(found.is_cut && found.matches == 0);
}

#[test]
fn denied_files_are_left_out() {
    let desk = ToolFixture::set(|env| {
        let globs = ["a/**", "**/*.key"].map(|glob| PathGlob::new(glob.to_owned()).unwrap());
        env.denied_reads.grep = PathGlobs::new(globs.into());
    });
    for path in ["a/x", "a/b/x", "b/x", "b/x.key"] {
        desk.put(path, "one\n");
    }
    let found = grep(&desk, &json!({"pattern": "one"}));
    assert_eq!(found, "b/x:1:one\n[3 files left out: deny rules cover them]");
    let found = grep(&desk, &json!({"pattern": "one", "path": "a/b"}));
    assert_eq!(found, "no match in 0 files\n[1 file left out: deny rules cover them]");
    let found = grep(&desk, &json!({"pattern": "one", "path": "b", "glob": "x"}));
    assert_eq!(found, "b/x:1:one\n");
}

#[test]
fn secret_folders_and_links_to_them_are_not_searched() {
    let desk = desk(&[("a.txt", "KEY=0\n"), (".env/real", "KEY=1\n"), ("keep/x", "KEY=2\n")]);
    let found = grep(&desk, &json!({"pattern": "KEY"}));
    assert_eq!(found, "a.txt:1:KEY=0\nkeep/x:1:KEY=2\n[1 secret files not searched]");
    std::os::unix::fs::symlink("keep", desk.path("work/.aws")).unwrap();
    let error = refused(&desk, &json!({"pattern": "KEY", "path": ".aws"}));
    assert!(error.message.contains("a link with the name of a secret"), "{error}");
}
