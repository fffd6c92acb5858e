//! `posse permissions check`: commands judged from outside, without running them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, runs, says};
use crate::posse::Machine;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn judges_one_command_and_says_what_it_would_take() {
    let machine = Machine::new();
    let ended = machine.posse(&[
        "permissions",
        "check",
        "--grant",
        "git status",
        "git status && sudo env A=1 make x | wc -l",
    ]);
    ended.assert_code(0);
    let checked = &rows(&ended.stdout)[0];
    assert_eq!(checked["decision"], "ask");
    // The part that can be granted is offered; `sudo` is then asked about.
    assert_eq!(checked["grant"], "wc");
    assert_eq!(checked["programs"], json!(["git", "sudo", "env", "make", "wc"]));
    assert_eq!(checked["needs"].as_array().unwrap().len(), 2);
    assert_eq!(checked["needs"][1]["grant"], "wc");
    let plain = machine.posse(&["permissions", "check", "ls"]);
    assert_eq!(machine.posse(&["permissions", "check", "--json", "ls"]).stdout, plain.stdout);
    let ended = machine.posse(&["permissions", "check", "git", "diff", "--stat"]);
    let checked = &rows(&ended.stdout)[0];
    assert_eq!(
        (&checked["command"], &checked["grant"]),
        (&json!("git diff --stat"), &json!("git diff"))
    );
}

/// A workspace with links, and whether a grant for `cat`, `ls` and `pytest` covers each command.
fn linked_workspace(machine: &Machine) -> Vec<(&'static str, bool)> {
    machine.write("src/main.py", "print()");
    machine.write("src/deep/x.py", "print()");
    machine.write(".env", "KEY=1");
    std::fs::create_dir_all(machine.path("home/.ssh")).unwrap();
    std::fs::write(machine.path("home/.ssh/notes"), "secret").unwrap();
    for (target, link) in [
        ("/etc", "dirlink"),
        (".env", "innocent.txt"),
        ("src/main.py", "same.py"),
        ("src", "folder"),
        ("nowhere", "dangling.txt"),
        ("../dirlink", "src/up"),
        ("../../home/.ssh", "keys"),
    ] {
        std::os::unix::fs::symlink(target, machine.work(link)).unwrap();
    }
    vec![
        ("cat dirlink/hosts", false),
        ("cat d*/hosts", false),
        ("cat src/up/hosts", false),
        ("cat keys/notes", false),
        ("cat keys/*", false),
        ("cat < innocent.txt", false),
        ("cat *.txt", false),
        ("cat dangling.txt", false),
        ("ls keys/", false),
        ("pytest dirlink/x.py", false),
        ("pytest src/up/x.py::test_a", false),
        ("cat folder/deep/../../../x", false),
        ("cat same.py", true),
        ("cat folder/main.py", true),
        ("cat folder/deep/x.py src/*.py", true),
        ("cat *.py", true),
        ("ls src", true),
        ("pytest folder/main.py::test_a", true),
    ]
}

#[test]
fn links_in_paths_are_resolved_before_a_command_is_judged() {
    let machine = Machine::new();
    for (command, covered) in linked_workspace(&machine) {
        let grants = ["--grant", "cat", "--grant", "ls", "--grant", "pytest"];
        let ended = machine.posse(&[&["permissions", "check"], &grants[..], &[command]].concat());
        let checked = &rows(&ended.stdout)[0];
        let expected = if covered { "allow" } else { "ask" };
        assert_eq!(checked["decision"], expected, "{checked}");
    }
}

#[test]
fn granted_command_does_not_read_through_a_link_in_a_session() {
    let script = ["cat dirlink/hostname", "cat innocent.txt", "cat same.py"].map(runs);
    let server = ModelServer::start(script.into_iter().chain([says("done")]).collect());
    let allow = json!({"tool": "bash", "decision": "allow", "match": {"commandPrefix": "cat"}});
    let machine = Machine::configured(&server, &json!({"permissions": [allow]}), &json!({}));
    linked_workspace(&machine);
    machine.posse(&["run", "read"]).assert_code(4);
    let results = server.tool_results();
    assert!(results[0].contains("leads to /etc/hostname"), "{results:?}");
    assert!(results[1].contains("a link to") && results[1].contains(".env"), "{results:?}");
    assert!(results[2].contains("print()"), "{results:?}");
}

#[test]
fn tells_the_decision_by_the_exit_code_if_asked_to() {
    let machine = Machine::new();
    for (command, code) in [("ls", 0), ("make", 4), ("rm -rf /", 1)] {
        let told =
            machine.posse(&["permissions", "check", "--exit-code", "--grant", "ls", command]);
        told.assert_code(code);
        machine.posse(&["permissions", "check", "--grant", "ls", command]).assert_code(0);
    }
    let ended = machine.posse(&["permissions", "check", "--grant", "a; b", "ls"]);
    ended.assert_code(2);
    assert!(ended.stderr.contains("USE011"), "{}", ended.stderr);
}

#[test]
fn scores_the_corpus_from_outside() {
    let corpus = include_str!("../corpus/bash-commands.jsonl");
    let machine = Machine::new();
    let mut arguments = vec!["permissions", "check", "--jsonl"];
    for grant in ["git status", "git log", "npm test", "cargo test", "ls", "cat"] {
        arguments.extend(["--grant", grant]);
    }
    let ended = machine.posse_with_input(&arguments, corpus.as_bytes());
    ended.assert_code(0);
    let (given, answered) = (rows(corpus), rows(&ended.stdout));
    assert_eq!(given.len(), answered.len());
    let mut wrong = String::new();
    for (row, checked) in given.iter().zip(&answered) {
        assert_eq!(row["command"], checked["command"]);
        let expected = row["expect"].as_str().unwrap().split('-').next().unwrap();
        // `echo / | xargs rm -rf`: the stricter answer is permitted there.
        let minimum = row["why"].as_str().unwrap().contains("minimum answer is ask");
        if checked["decision"] != expected && !(minimum && checked["decision"] == "deny") {
            writeln!(wrong, "{row} {checked}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn answers_lines_that_are_no_commands_without_allowing_them() {
    let machine = Machine::new();
    let input = b"{\"command\":\"ls\"}\nls\n\n{\"command\":7}\n{\"command\":\"ls\\u0000\"}\n\xff\n";
    let ended =
        machine.posse_with_input(&["permissions", "check", "--jsonl", "--grant", "ls"], input);
    ended.assert_code(2);
    let decisions: Vec<Value> =
        rows(&ended.stdout).iter().map(|row| row["decision"].clone()).collect();
    assert_eq!(decisions, ["allow", "ask", "ask", "deny", "ask"]);
    assert!(
        ended.stderr.contains("3 lines of standard input are not valid commands"),
        "{}",
        ended.stderr
    );
}

/// Command lines that were written without knowledge of the judge, for another user's workspace.
const FRESH: &str = include_str!("../corpus/bash-commands-fresh.jsonl");
/// Home of the user of [`FRESH`]; the workspace is `code/app` in it.
const FRESH_HOME: &str = "/home/ana";
/// Grants of that user.
const FRESH_GRANTS: [&str; 15] = [
    "git status",
    "git log",
    "npm test",
    "cargo test",
    "ls",
    "cat",
    "grep",
    "rg",
    "pytest",
    "head",
    "tail",
    "wc",
    "git diff",
    "git show",
    "find",
];

#[test]
fn fresh_command_lines_are_judged_as_their_authors_expect() {
    // Some lines name the folder for temporary files.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = folder.path().canonicalize().unwrap().join("ana");
    let workspace = home.join("code/app");
    for path in ["src", "tests", "docs", ".git", "../../.ssh"] {
        std::fs::create_dir_all(workspace.join(path)).unwrap();
    }
    for file in ["README.md", "Cargo.toml", "package.json", "src/main.rs", "src/lib.rs", ".env"] {
        std::fs::write(workspace.join(file), "x\n").unwrap();
    }
    std::os::unix::fs::symlink("/etc", workspace.join("dirlink")).unwrap();
    std::os::unix::fs::symlink(home.join(".ssh"), workspace.join("keys")).unwrap();
    let corpus = FRESH.replace(FRESH_HOME, home.to_str().unwrap());
    let machine = Machine::new();
    let mut arguments = vec!["permissions", "check", "--jsonl"];
    arguments.extend(FRESH_GRANTS.iter().flat_map(|grant| ["--grant", grant]));
    let mut command = machine.command(&arguments);
    command.current_dir(&workspace).env("HOME", &home);
    let input = folder.path().join("lines.jsonl");
    std::fs::write(&input, &corpus).unwrap();
    let output = command.stdin(std::fs::File::open(&input).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let given = rows(&corpus);
    let answered = rows(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(given.len(), answered.len());
    let (mut wrong, mut friction, mut over_blocks) = (String::new(), Vec::new(), Vec::new());
    let (mut allowed, mut asked) = (0, 0);
    for (row, checked) in given.iter().zip(&answered) {
        let expected = row["expect"].as_str().unwrap().split('-').next().unwrap();
        let decision = checked["decision"].as_str().unwrap();
        (allowed, asked) =
            (allowed + usize::from(expected == "allow"), asked + usize::from(expected == "ask"));
        match (expected, decision) {
            (expected, decision) if expected == decision => {}
            (_, "allow") | ("deny", _) => writeln!(wrong, "{row} {checked}").unwrap(),
            ("allow", _) => friction.push(row["command"].to_string()),
            _ => over_blocks.push(row["command"].to_string()),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // At most 5 % of the allowed and 2 % of the asked ones.
    assert!(friction.len() * 20 <= allowed, "{friction:#?}");
    assert!(over_blocks.len() * 50 <= asked, "{over_blocks:#?}");
}

#[test]
fn input_above_the_limit_is_refused_and_not_cut() {
    let machine = Machine::new();
    let long = "x".repeat((16 << 20) + 1);
    let ended = machine.posse_with_input(&["permissions", "check"], long.as_bytes());
    ended.assert_code(2);
    assert!(ended.stderr.contains("longer than 16 MiB"), "{}", ended.stderr);
    let lines = format!("{{\"command\": \"{long}\"}}\n{{\"command\": \"git status\"}}\n");
    let ended = machine.posse_with_input(&["permissions", "check", "--jsonl"], lines.as_bytes());
    ended.assert_code(2);
    let rows = rows(&ended.stdout);
    assert_eq!(rows.len(), 2, "{}", ended.stdout);
    assert_eq!(rows[0]["error"], "a command is longer than 16 MiB");
    assert_eq!(rows[1]["command"], "git status");
}
