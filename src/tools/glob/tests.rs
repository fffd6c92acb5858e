//! What `glob` lists, in which order, and how it says that there is more.

use std::fs::File;
use std::time::SystemTime;

use serde_json::json;

use super::*;
use crate::tools::trial::Trial;

async fn glob(trial: &Trial, arguments: Value) -> String {
    trial.text(&tool(trial.env.clone()), arguments).await
}

fn age(trial: &Trial, path: &str, seconds: u64) {
    let file = File::options().write(true).open(trial.root().join(path)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[tokio::test]
async fn lists_the_newest_first() {
    let trial = Trial::new(&[("a.rs", ""), ("s/b.rs", ""), ("s/t/c.rs", ""), ("d.txt", "")]);
    for (path, seconds) in [("a.rs", 20), ("s/b.rs", 30), ("s/t/c.rs", 10)] {
        age(&trial, path, seconds);
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
        let found = glob(&trial, json!({"pattern": pattern, "path": path})).await;
        assert_eq!(found, expected, "{pattern} in {path}");
    }
}

#[tokio::test]
async fn leaves_out_ignored_files_and_does_not_follow_links() {
    let trial = Trial::new(&[(".gitignore", "/gen\n"), ("gen/a", ""), (".git/a", ""), ("b/a", "")]);
    std::fs::write(trial.outside().join("a"), "").unwrap();
    std::os::unix::fs::symlink(trial.outside(), trial.root().join("out")).unwrap();
    assert_eq!(glob(&trial, json!({"pattern": "a"})).await, "b/a\n");
    let tool = tool(trial.env.clone());
    for (path, pattern) in [("out", "*"), ("..", "*"), (".", "../*"), (".", "/etc/*")] {
        let arguments = json!({"pattern": pattern, "path": path});
        assert!(trial.prepare(&tool, arguments).await.is_err(), "{pattern} in {path}");
    }
}

#[tokio::test]
async fn a_folder_that_becomes_a_link_shows_nothing_else() {
    let trial = Trial::new(&[("d/in", "")]);
    std::fs::write(trial.outside().join("secret-name"), "").unwrap();
    let tool = tool(trial.env.clone());
    let prepared = trial.prepare(&tool, json!({"pattern": "*", "path": "d"})).await.unwrap();
    std::fs::rename(trial.root().join("d"), trial.root().join("e")).unwrap();
    std::os::unix::fs::symlink(trial.outside(), trial.root().join("d")).unwrap();
    let output = trial.run(&tool, prepared).await;
    let text = posse_actors::conversation::text_of(&output.content);
    assert!(!text.contains("secret-name"), "{text}");
}

#[tokio::test]
async fn says_how_many_there_are_when_it_does_not_show_all() {
    let trial = Trial::new(&[]);
    for number in 0..1010 {
        trial.write(&format!("f{number}"), "");
    }
    let output = trial.call(&tool(trial.env.clone()), json!({"pattern": "f*"})).await;
    let text = posse_actors::conversation::text_of(&output.content);
    assert_eq!(text.lines().count(), 1001);
    assert!(text.ends_with("[1000 of 1010 files, newest first; narrow the glob]"), "{text}");
    assert_eq!(output.metadata["truncated"], true);
}

#[tokio::test]
async fn names_cannot_draw_on_the_terminal_or_fake_a_line() {
    let trial = Trial::new(&[("a\nb\u{1b}[2J", "")]);
    assert_eq!(glob(&trial, json!({"pattern": "a*"})).await, "a\\nb\\u{1b}[2J\n");
}

#[test]
fn the_specification_is_short() {
    let trial = Trial::new(&[]);
    let text = serde_json::to_string(tool(trial.env.clone()).spec()).unwrap();
    assert!(text.len() <= 600, "{} bytes: {text}", text.len());
}
