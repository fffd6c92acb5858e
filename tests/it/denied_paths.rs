//! Deny rules of the user about paths: no tool and no command that names such a path gets around
//! them, in any permission mode and whatever other rules allow.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, says};
use crate::posse::Machine;
use crate::worktree::git;

const MODES: [&str; 3] = ["ask", "auto", "locked"];
const SECRET: &str = "contents of the private file";

/// Runs `steps`, each a call of a tool, with the rule and one that allows everything. Returns the
/// machine and the results of the calls.
fn run(mode: &str, rule: &Value, steps: &[(&str, Value)]) -> (Machine, Vec<String>) {
    run_in(mode, rule, steps, |_| {})
}

/// As [`run`], in a workspace that `prepare` has changed.
fn run_in(
    mode: &str,
    rule: &Value,
    steps: &[(&str, Value)],
    prepare: impl Fn(&Machine),
) -> (Machine, Vec<String>) {
    run_to((mode, 0), rule, steps, prepare)
}

/// As [`run_in`], to another exit code: 4 if questions are denied because no user can be asked.
fn run_to(
    (mode, code): (&str, i32),
    rule: &Value,
    steps: &[(&str, Value)],
    prepare: impl Fn(&Machine),
) -> (Machine, Vec<String>) {
    let answers = steps.iter().map(|(tool, arguments)| calls(&[(tool, arguments.clone())]));
    let server = ModelServer::start(answers.chain([says("done")]).collect());
    let rules = json!({"permissions": [rule, {"tool": "*", "decision": "allow"}]});
    let machine = Machine::configured(&server, &rules, &json!({}));
    for name in ["private", "public"] {
        machine.write(&format!("{name}/x"), format!("contents of the {name} file\n"));
    }
    machine.write("base.txt", "base\n");
    prepare(&machine);
    machine.posse(&["run", "--permission-mode", mode, "do it"]).assert_code(code);
    let results = server.tool_results();
    assert_eq!(results.len(), steps.len(), "{mode}: {results:#?}");
    (machine, results)
}

/// Steps that run the commands.
fn commands(commands: &[&str]) -> Vec<(&'static str, Value)> {
    commands.iter().map(|command| ("bash", json!({"command": command}))).collect()
}

/// Checks that each call was denied with the text of the rule.
fn assert_denied(results: &[String], steps: &[(&str, Value)], mode: &str, rule: &Value) {
    for (result, step) in results.iter().zip(steps) {
        let names_rule = result.contains(&format!("permissions: {rule}"));
        assert!(result.starts_with("Denied") && names_rule, "{mode} {rule} {step:?}: {result}");
    }
}

#[test]
fn no_tool_that_reads_shows_a_denied_path() {
    let steps = [
        ("read_file", json!({"path": "private/x"})),
        ("grep", json!({"pattern": "contents", "path": "private/x"})),
        ("grep", json!({"pattern": "contents"})),
        ("grep", json!({"pattern": "contents", "path": "private"})),
        ("glob", json!({"pattern": "**/x"})),
        ("list_dir", json!({"path": "private"})),
        ("read_file", json!({"path": "public/x"})),
        ("list_dir", json!({"path": "public"})),
    ];
    for rule in [
        json!({"tool": "Read(private/**)", "decision": "deny"}),
        json!({"tool": "*", "match": {"pathGlob": "private/**"}, "decision": "deny"}),
    ] {
        for mode in MODES {
            let (_machine, results) = run(mode, &rule, &steps);
            assert_denied(&results[..2], &steps, mode, &rule);
            assert!(!results.concat().contains(SECRET), "{mode} {rule}: {results:#?}");
            let left_out = "[1 file left out: deny rules cover them]";
            assert_eq!(
                results[2..6],
                [
                    format!("public/x:1:contents of the public file\n{left_out}"),
                    format!("no match in 0 files\n{left_out}"),
                    format!("public/x\n{left_out}"),
                    "[0 entries]\n[1 entry left out: deny rules cover them]".to_owned(),
                ],
                "{mode} {rule}"
            );
            assert!(results[6].contains("contents of the public file"), "{}", results[6]);
            assert!(results[7].contains("x  28 bytes"), "{}", results[7]);
        }
    }
    let only_grep = json!({"tool": "Grep(private/**)", "decision": "deny"});
    let (_machine, results) = run("ask", &only_grep, &steps);
    assert!(results[0].contains(SECRET) && results[5].contains("x  29 bytes"), "{results:#?}");
    assert!(!results[1..4].concat().contains(SECRET), "{results:#?}");
}

#[test]
fn no_tool_that_changes_files_changes_a_denied_path() {
    let edit = |path: &str| json!({"path": path, "oldString": "contents", "newString": "changed"});
    let several = json!({"path": "private/x", "edits": [{"oldString": "file", "newString": "f"}]});
    let steps = [
        ("write_file", json!({"path": "private/x", "content": "changed"})),
        ("write_file", json!({"path": "private/new", "content": "changed"})),
        ("edit_file", edit("private/x")),
        ("multi_edit", several),
        ("edit_file", edit("public/x")),
        ("read_file", json!({"path": "private/x"})),
    ];
    for tool in ["Edit(private/**)", "Write(private/**)", "multi_edit(private/**)"] {
        let rule = json!({"tool": tool, "decision": "deny"});
        for mode in MODES {
            let (machine, results) = run(mode, &rule, &steps);
            assert_denied(&results[..4], &steps, mode, &rule);
            assert_eq!(machine.read("private/x"), format!("{SECRET}\n"), "{mode} {rule}");
            assert!(!machine.work("private/new").exists());
            assert_eq!(machine.read("public/x"), "changed of the public file\n", "{mode} {rule}");
            assert!(results[5].contains(SECRET), "{}", results[5]);
        }
    }
}

#[test]
fn no_command_that_names_a_denied_path_runs() {
    let changing = commands(&[
        "mv private p2",
        "mv base.txt private/n1",
        "cp base.txt private/n2",
        "touch private/n3",
        "echo > private/x",
        "sed -i s/contents/changed/ private/x",
        "rm private/x",
    ]);
    let reading = commands(&[
        "cat private/x",
        "cd private && cat x",
        "cp -r private p3",
        "sh -c 'cat private/x'",
        "wc -l < private/x",
    ]);
    let free = commands(&["cat public/x", "touch public/n3", "cp base.txt public/n2"]);
    let steps = [changing.clone(), reading, free].concat();
    let every = json!({"tool": "*", "match": {"pathGlob": "private/**"}, "decision": "deny"});
    let read = json!({"tool": "Read(private/**)", "decision": "deny"});
    let edit = json!({"tool": "Edit(private/**)", "decision": "deny"});
    for (rule, denied) in [(&every, 12), (&read, 12), (&edit, changing.len())] {
        for mode in MODES {
            let (machine, results) = run(mode, rule, &steps);
            assert_denied(&results[..denied], &steps, mode, rule);
            let shown = results.concat().contains(SECRET);
            assert_eq!(shown, denied < 12, "{mode} {rule}: {results:#?}");
            assert_eq!(machine.read("private/x"), format!("{SECRET}\n"), "{mode} {rule}");
            for new in ["p2", "private/n1", "private/n2", "private/n3"] {
                assert!(!machine.work(new).exists(), "{mode} {rule} {new}");
            }
            assert!(results[12].contains("contents of the public file"), "{}", results[12]);
            assert!(machine.work("public/n3").exists() && machine.work("public/n2").exists());
        }
    }
}

#[test]
fn paths_behind_links_patterns_of_git_and_literals_name_denied_paths() {
    let prepare = |machine: &Machine| {
        machine.write("a/base.txt", "base\n");
        for (target, link) in [
            ("private", "lnk"),
            ("private/x", "lx"),
            ("../private", "a/up"),
            ("../private", "a/in"),
        ] {
            symlink(target, machine.work(link)).unwrap();
        }
        git(machine, &["init", "-q"]);
        git(machine, &["add", "-A"]);
        git(machine, &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"]);
    };
    let denied = commands(&[
        "cat a/../lnk/x",
        "cat a/../lx",
        "cat a/up/../private/x",
        "env -C a cat in/x",
        "cat /dev/fd/../cwd/private/x",
        "git log -p -- ':(top)private'",
        "git -C a grep -h . ':/private'",
        "git show HEAD -- ':(literal)private/x'",
        "git show -m HEAD:private/x",
        "git show --pretty HEAD:private/x",
        "for i in private/x; do cat $i; done",
        "a=(private/x); cat ${a[0]}",
        "cat ${X:-private/x}",
        "sed -n 'r private/x' base.txt",
        "cat \"$(pwd)/private/x\"",
    ]);
    let free = commands(&["cat a/../public/x", "git log -p -- ':!private' ':!a' ':!l*'"]);
    let steps = [denied.clone(), free].concat();
    let rule = json!({"tool": "*", "match": {"pathGlob": "private//**"}, "decision": "deny"});
    for mode in ["ask", "auto", "plan"] {
        let (_machine, results) = run_in(mode, &rule, &steps, prepare);
        assert_denied(&results[..denied.len()], &denied, mode, &rule);
        assert!(!results.concat().contains(SECRET), "{mode}: {results:#?}");
        let free = &results[denied.len()..].concat();
        assert!(free.contains("contents of the public file"), "{mode}: {free}");
        assert!(free.contains("+base"), "{mode}: {free}");
    }
    let changing = commands(&[
        "touch a/../lnk/new",
        "cp base.txt a/../lnk/new",
        "mv a/../lnk/x y",
        "echo x > a/../lnk/new",
        "tee a/../lnk/new < base.txt",
        "sed -n 'w private/new' base.txt",
    ]);
    let rule = json!({"tool": "Edit(private/**)", "decision": "deny"});
    let (machine, results) = run_in("auto", &rule, &changing, prepare);
    assert_denied(&results, &changing, "auto", &rule);
    assert!(!machine.work("private/new").exists());
    assert_eq!(machine.read("private/x"), format!("{SECRET}\n"));
}

#[test]
fn paths_that_are_named_indirectly_are_denied_or_asked_about() {
    let prepare = |machine: &Machine| {
        machine.write("b/c/deep.txt", "deep\n");
        // From any depth, `..` ends at the root folder.
        let own = format!("{}proc/self/cwd", "../".repeat(40));
        for (target, link) in [("private", "ln1"), (own.as_str(), "own")] {
            symlink(target, machine.work(link)).unwrap();
        }
    };
    let indirect = commands(&[
        "cat own/private/x",
        "for i in ln*/x; do cat $i; done",
        "bash -c 'cat ln*/x'",
        "R=.; cat $R/ln1/x",
        "ln -s $(pwd)/b/c l; cat l/../../private/x",
        "T=l; ln -s b/c $T; cat l/../../private/x",
        "find b -name c -exec ln -s {} l \\;; cat l/../../private/x",
        "python3 -c \"print(open('$PWD/private/x').read())\"",
    ]);
    let free = commands(&[
        "bash -c 'mkdir -p build && cd build && cat ../public/x'",
        "git init -q r && cd r && cat ../public/x",
        "for i in pub*/x; do cat $i; done",
    ]);
    let steps = [indirect.clone(), free].concat();
    let rule = json!({"tool": "*", "match": {"pathGlob": "private/**"}, "decision": "deny"});
    let (_machine, results) = run_to(("auto", 4), &rule, &steps, prepare);
    for (result, step) in results.iter().zip(&indirect) {
        assert!(result.starts_with("Denied"), "{step:?}: {result}");
    }
    assert!(!results.concat().contains(SECRET), "{results:#?}");
    for (result, step) in results.iter().zip(&steps).skip(indirect.len()) {
        assert!(result.contains("contents of the public file"), "{step:?}: {result}");
    }
}

#[test]
fn link_does_not_lead_around_a_rule_about_its_name() {
    let steps = [
        ("read_file", json!({"path": "one"})),
        ("read_file", json!({"path": "linked/x"})),
        ("read_file", json!({"path": "further/x"})),
        ("grep", json!({"pattern": "contents", "path": "linked"})),
        ("list_dir", json!({"path": "linked"})),
        ("write_file", json!({"path": "linked/new", "content": "new"})),
        ("edit_file", json!({"path": "linked/x", "oldString": "contents", "newString": "changed"})),
    ];
    let prepare = |machine: &Machine| {
        symlink("public", machine.work("linked")).unwrap();
        symlink("linked", machine.work("further")).unwrap();
        symlink("public/x", machine.work("one")).unwrap();
    };
    for glob in ["linked", "linked/**", "**/linked/**"] {
        let rule = json!({"tool": "*", "match": {"pathGlob": glob}, "decision": "deny"});
        // Only the rule without `**` at its end covers the folder itself.
        let is_covered = |path: &str| path.contains("linked/") || glob == "linked";
        let steps: Vec<(&str, Value)> = steps
            .iter()
            .filter(|(_, step)| step["path"] != "one" && is_covered(step["path"].as_str().unwrap()))
            .cloned()
            .collect();
        let (machine, results) = run_in("auto", &rule, &steps, prepare);
        assert_denied(&results, &steps, "auto", &rule);
        let kept = std::fs::read_to_string(machine.work("public/x")).unwrap();
        assert_eq!(kept, "contents of the public file\n");
        assert!(!machine.work("public/new").exists());
    }
    // A walk through the folder leaves out what is in it, and `..` in a link leads nowhere else.
    let steps_in = [
        ("grep", json!({"pattern": "contents", "path": "linked"})),
        ("list_dir", json!({"path": "linked"})),
        ("glob", json!({"pattern": "*", "path": "linked"})),
        ("read_file", json!({"path": "around/x"})),
    ];
    let rule = json!({"tool": "*", "match": {"pathGlob": "linked/**"}, "decision": "deny"});
    let (_, results) = run_in("auto", &rule, &steps_in, |machine| {
        prepare(machine);
        symlink("public/../linked", machine.work("around")).unwrap();
    });
    for result in &results[..3] {
        let is_left_out = result.contains("left out: deny rules cover");
        assert!(is_left_out && !result.contains("contents of"), "{results:?}");
    }
    assert_denied(&results[3..], &steps_in[3..], "auto", &rule);
    // The name of a file, and a link that leads through another one.
    for (rule, step) in [("one", 0), ("linked", 2), ("linked/*", 2)] {
        let rule = json!({"tool": "Read", "match": {"pathGlob": rule}, "decision": "deny"});
        let (_, results) = run_in("auto", &rule, &steps[step..=step], prepare);
        assert_denied(&results, &steps[step..=step], "auto", &rule);
    }
    // A rule about another name.
    let rule = json!({"tool": "*", "match": {"pathGlob": "private/**"}, "decision": "deny"});
    let (_, results) = run_in("auto", &rule, &steps[..3], prepare);
    assert!(results.iter().all(|one| one.contains("contents of the public file")), "{results:?}");
}

#[test]
fn absolute_rules_through_a_link_count_for_settings_and_agents() {
    let steps = [
        ("read_file", json!({"path": "private/x"})),
        ("bash", json!({"command": "cat private/x"})),
        ("write_file", json!({"path": "private/new", "content": "new"})),
    ];
    for of_agent in [false, true] {
        let answers = steps.iter().map(|(tool, arguments)| calls(&[(tool, arguments.clone())]));
        let server = ModelServer::start(answers.chain([says("done")]).collect());
        let machine = Machine::with(&server);
        machine.write("private/x", "contents of the private file\n");
        symlink(machine.path(""), machine.path("link")).unwrap();
        let glob = machine.path("link").join("work").join("private/**").display().to_string();
        let rule = json!({"tool": "*", "match": {"pathGlob": glob}, "decision": "deny"});
        let text = std::fs::read_to_string(machine.path("posse/config/config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let tools = json!({"visible": ["*"]});
        let agent = json!({"description": "x", "mode": "primary", "prompt": "go", "tools": tools});
        config["agents"] = json!({"mine": agent});
        if of_agent {
            config["agents"]["mine"]["permissions"] = json!([rule]);
        } else {
            config["permissions"] = json!([rule]);
        }
        machine.write_config(&config.to_string());
        let arguments = ["run", "--permission-mode", "auto", "--agent", "mine", "go"];
        machine.posse(&arguments).assert_code(0);
        let results = server.tool_results();
        assert_eq!(results.len(), steps.len(), "{results:?}");
        assert!(
            results.iter().all(|result| result.starts_with("Denied")),
            "{of_agent}: {results:?}"
        );
        assert!(!machine.work("private/new").exists());
    }
}
