//! What `grep` finds, shows and refuses.

use serde_json::json;

use super::*;
use crate::tools::trial::Trial;

const FILES: &[(&str, &str)] = &[
    (".gitignore", "*.log\n"),
    ("a.rs", "fn one() {}\nfn two() {}\n// end\n"),
    ("b/c.rs", "let x = one();\r\n"),
    ("b/d.txt", "one\n"),
    ("x.log", "one\n"),
    ("node_modules/m.js", "one\n"),
    ("bin.dat", "one\n\0\none\n"),
];

async fn grep(trial: &Trial, arguments: Value) -> String {
    trial.text(&tool(trial.env.clone()), arguments).await
}

async fn refused(trial: &Trial, arguments: Value) -> ToolError {
    trial.prepare(&tool(trial.env.clone()), arguments).await.unwrap_err()
}

#[tokio::test]
async fn finds_lines_in_files_that_matter_sorted_by_path() {
    let trial = Trial::new(FILES);
    let found = grep(&trial, json!({"pattern": "one"})).await;
    assert_eq!(found, "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\nb/d.txt:1:one\n");
    let found = grep(&trial, json!({"pattern": "ONE", "ignoreCase": true, "glob": "*.rs"})).await;
    assert_eq!(found, "a.rs:1:fn one() {}\nb/c.rs:1:let x = one();\n");
    let found = grep(&trial, json!({"pattern": "^one$", "path": "b"})).await;
    assert_eq!(found, "b/d.txt:1:one\n");
    let found = grep(&trial, json!({"pattern": "two", "path": "a.rs", "context": 1})).await;
    assert_eq!(found, "a.rs-1-fn one() {}\na.rs:2:fn two() {}\na.rs-3-// end\n");
    assert_eq!(grep(&trial, json!({"pattern": "three"})).await, "no match in 5 files");
    // Whoever names an ignored file gets it.
    assert_eq!(grep(&trial, json!({"pattern": "one", "path": "x.log"})).await, "x.log:1:one\n");
    assert_eq!(
        grep(&trial, json!({"pattern": "one", "path": "bin.dat"})).await,
        "no match in 1 files"
    );
}

#[tokio::test]
async fn never_shows_secrets_and_does_show_their_examples() {
    let trial = Trial::new(&[
        (".env", "KEY=abc\n"),
        (".env.local", "KEY=abc\n"),
        ("deploy/id_rsa", "KEY=abc\n"),
        ("deploy/server.pem", "KEY=abc\n"),
        (".aws/credentials", "KEY=abc\n"),
        (".env.example", "KEY=\n"),
    ]);
    let found = grep(&trial, json!({"pattern": "KEY"})).await;
    assert_eq!(found, ".env.example:1:KEY=\n[5 secret files not searched]");
    let found = grep(&trial, json!({"pattern": "KEY", "path": ".aws"})).await;
    assert!(found.starts_with("no match"), "{found}");
}

#[tokio::test]
async fn links_lead_nowhere() {
    let trial = Trial::new(&[("in.txt", "needle\n")]);
    std::fs::write(trial.outside().join("out.txt"), "needle\n").unwrap();
    std::os::unix::fs::symlink(trial.outside(), trial.root().join("link")).unwrap();
    std::os::unix::fs::symlink("../out.txt", trial.root().join("l.txt")).unwrap();
    assert_eq!(grep(&trial, json!({"pattern": "needle"})).await, "in.txt:1:needle\n");
    assert_eq!(refused(&trial, json!({"pattern": "n", "path": "link"})).await.code, "ARG003");
    assert_eq!(refused(&trial, json!({"pattern": "n", "path": ".."})).await.code, "ARG003");
}

#[tokio::test]
async fn a_folder_that_becomes_a_link_is_not_left() {
    let trial = Trial::new(&[("d/in.txt", "needle\n")]);
    std::fs::write(trial.outside().join("in.txt"), "needle outside\n").unwrap();
    let tool = tool(trial.env.clone());
    let prepared = trial.prepare(&tool, json!({"pattern": "needle", "path": "d"})).await.unwrap();
    std::fs::rename(trial.root().join("d"), trial.root().join("e")).unwrap();
    std::os::unix::fs::symlink(trial.outside(), trial.root().join("d")).unwrap();
    let output = trial.run(&tool, prepared).await;
    let text = posse_actors::conversation::text_of(&output.content);
    assert!(!text.contains("outside"), "{text}");
}

#[tokio::test]
async fn pages_through_many_matches() {
    let lines: Vec<String> = (1..=450).map(|number| format!("hit {number}\n")).collect();
    let trial = Trial::new(&[("f", &lines.concat())]);
    let first = grep(&trial, json!({"pattern": "hit"})).await;
    assert_eq!(first.lines().count(), 201);
    assert!(first.ends_with("[200 matches shown, there may be more: offset=200, or narrow it]"));
    let last = grep(&trial, json!({"pattern": "hit", "offset": 400})).await;
    assert!(last.starts_with("f:401:hit 401\n") && last.ends_with("f:450:hit 450\n"), "{last}");
    let few = grep(&trial, json!({"pattern": "hit", "offset": 1, "limit": 2})).await;
    assert!(few.starts_with("f:2:hit 2\nf:3:hit 3\n[2 matches"), "{few}");
    let beyond = grep(&trial, json!({"pattern": "hit", "offset": 1e12})).await;
    assert_eq!(beyond, "no match after the first 450");
}

#[tokio::test]
async fn output_is_bounded_in_every_direction() {
    let long = format!("{}needle{}\n", "é".repeat(3000), "x".repeat(3000));
    let trial = Trial::new(&[("f", &long)]);
    let found = grep(&trial, json!({"pattern": "needle"})).await;
    assert!(found.contains("éneedlex"), "{found}");
    assert!(found.chars().count() < 520, "{}", found.chars().count());
    let wide = format!("{}\n", "y".repeat(400)).repeat(900);
    trial.write("g", &wide);
    let found = grep(&trial, json!({"pattern": "y", "limit": 1000})).await;
    assert!(found.len() <= 32 << 10 && found.contains("there may be more"), "{}", found.len());
    trial.write("h", "a\u{1b}[31m\u{202e}b\n");
    let found = grep(&trial, json!({"pattern": "b$", "path": "h"})).await;
    assert_eq!(found, "h:1:a\\u{1b}[31m\\u{202e}b\n");
}

#[tokio::test]
async fn many_files_give_the_same_as_few() {
    let trial = Trial::new(&[]);
    let mut expected = String::new();
    for number in 0..700 {
        let name = format!("d{}/f{number:03}", number / 100);
        trial.write(&name, if number % 3 == 0 { "x\nneedle\n" } else { "x\n" });
        if number % 3 == 0 && expected.lines().count() < 200 {
            expected += &name;
            expected += ":2:needle\n";
        }
    }
    let found = grep(&trial, json!({"pattern": "needle"})).await;
    assert!(found.starts_with(&expected), "{found}");
    let all =
        trial.call(&tool(trial.env.clone()), json!({"pattern": "needle", "limit": 1000})).await;
    assert_eq!(all.metadata["matches"], 234);
    assert_eq!(all.metadata["searched"], 700);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_the_reason() {
    let trial = Trial::new(FILES);
    for (arguments, code, part) in [
        (json!({"pattern": "a("}), "ARG005", "unclosed group"),
        (json!({"pattern": "(a{1000}){1000}{1000}"}), "ARG005", "size limit"),
        (json!({"pattern": "a\\nb"}), "ARG005", "not allowed"),
        (json!({"pattern": ""}), "ARG001", "empty"),
        (json!({"pattern": "a", "glob": "[a"}), "ARG005", "unclosed"),
        (json!({"pattern": "a", "glob": "../*"}), "ARG002", "cannot leave"),
        (json!({"pattern": "a", "path": "nowhere"}), "FIL001", "does not exist"),
    ] {
        let error = refused(&trial, arguments.clone()).await;
        assert_eq!(error.code, code, "{arguments}: {error}");
        assert!(error.message.contains(part), "{arguments}: {error}");
    }
}

#[tokio::test]
async fn a_pattern_that_takes_others_forever_does_not() {
    let trial = Trial::new(&[("f", &format!("{}!\n", "a".repeat(50_000)))]);
    let begin = Instant::now();
    let found = grep(&trial, json!({"pattern": "(a+)+$"})).await;
    assert_eq!(found, "no match in 1 files");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_specification_is_short() {
    let trial = Trial::new(&[]);
    let text = serde_json::to_string(tool(trial.env.clone()).spec()).unwrap();
    assert!(text.len() <= 600 + 100, "{} bytes: {text}", text.len());
}

#[test]
fn stops_in_the_middle_of_a_file_when_nobody_waits() {
    let query = Query { matcher: compile("needle", false).unwrap(), glob: None, context: 0 };
    let (stop, guard) = Stop::after(TIME_MAX);
    let endless = std::fs::File::open("/dev/zero").unwrap();
    drop(guard);
    let found = search::file(PathBuf::new(), endless, &query, 10, &stop);
    assert!(found.is_cut && found.matches == 0);
}
