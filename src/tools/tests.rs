//! Properties of all tools, and their errors for invalid arguments.

use std::fs;

use posse_actors::ports::Operation;
use serde_json::{Value, json};

use super::testing::ToolFixture;

/// The first request with all tools and the prompt has to stay small.
#[test]
fn tool_descriptions_are_short() {
    for tool in ToolFixture::new().tools().iter() {
        let spec = tool.spec();
        let size = spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
        assert!(size <= 640, "{} takes {size} bytes", spec.name);
        assert_eq!(spec.source, "builtin");
    }
}

#[test]
fn names_are_those_of_all_tools() {
    let fixture = ToolFixture::new();
    let mut names: Vec<String> =
        fixture.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    names.extend(
        [posse_actors::delegation::DIFF, posse_actors::delegation::MERGE].map(str::to_owned),
    );
    names.sort();
    let mut listed = crate::NAMES.map(str::to_owned);
    listed.sort();
    assert_eq!(names, listed);
}

#[test]
fn each_tool_declares_its_properties() {
    let tools = ToolFixture::new();
    let row = |tool: &std::sync::Arc<dyn posse_actors::ports::Tool>| {
        let (name, it) = (&tool.spec().name, &tool.spec().annotations);
        let group = it.rule_group.as_deref().unwrap_or("-");
        let with = it.visible_with.as_deref().unwrap_or("-");
        format!("{name} {:?} {group} {} {with}", it.access, it.opens_file)
    };
    let rows: Vec<String> = tools.tools().iter().map(row).collect();
    assert_eq!(
        rows,
        [
            "ask_user Session - false -",
            "bash Process Bash false -",
            "edit_file Write Edit true -",
            "glob Read Glob false -",
            "grep Read Grep false -",
            "job_output Session - false bash",
            "job_stop Session - false bash",
            "list_dir Read LS false -",
            "multi_edit Write Edit true -",
            "present_plan Session - false -",
            "read_file Read Read true -",
            "todo_write Session - false -",
            "write_file Write Write true -",
        ]
    );
}

/// A workspace with files that can be used wrongly.
fn desk() -> ToolFixture {
    let desk = ToolFixture::new();
    desk.put("f", "one\ntwo\ntwo\n");
    desk.put("sub/g.rs", "x\n");
    desk.put("binary", b"a\0b");
    fs::write(desk.path("outside").join("o"), "content outside\n").unwrap();
    let pipe = desk.path("work").join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = fs::File::create(desk.path("work").join("huge")).unwrap();
    huge.set_len(4 << 30).unwrap();
    desk
}

/// Each row: a tool, its arguments, and the beginning of the result for the model.
fn check(rows: &[(&str, Value, &str)]) {
    let desk = desk();
    for (tool, arguments, expected) in rows {
        let said = desk.ask(tool, arguments);
        assert!(said.starts_with(expected), "{tool} {arguments}: {said}");
        assert!(!said.contains("content outside"), "{said}");
    }
    assert_eq!(desk.get("f"), b"one\ntwo\ntwo\n");
}

#[test]
fn invalid_fields_are_named() {
    check(&[
        ("read_file", json!({}), "ARG001 path: required string is missing"),
        ("read_file", json!({"path": null}), "ARG001 path: required string is missing"),
        ("read_file", json!({"path": 7}), "ARG001 path: must be string, not"),
        ("read_file", json!({"Path": "f"}), "ARG001 path: required string is missing"),
        ("read_file", json!({"path": "f", "lines": 3}), "ARG001 unknown field \"lines\""),
        ("write_file", json!({"path": "f"}), "ARG001 content: required string is missing"),
        ("edit_file", json!({"path": "f", "oldString": "one"}), "ARG001 newString: required"),
        ("edit_file", json!({"path": "f", "oldstring": "o", "newString": "x"}), "ARG001 "),
        ("multi_edit", json!({"path": "f", "edits": 3}), "ARG001 edits: must be array"),
        (
            "multi_edit",
            json!({"path": "f", "edits": [{"oldString": "one"}]}),
            "ARG001 edits[0].newString: required string is missing",
        ),
        ("bash", json!({"command": ["ls"]}), "ARG001 command: must be string"),
        ("grep", json!({"pattern": "a", "ignoreCase": "perhaps"}), "ARG001 ignoreCase: must be"),
        ("list_dir", json!({"path": {}}), "ARG001 path: must be string"),
    ]);
}

#[test]
fn paths_are_taken_literally_or_refused() {
    for (tool, more) in [
        ("read_file", json!({})),
        ("write_file", json!({"content": "x"})),
        ("edit_file", json!({"oldString": "a", "newString": "b"})),
        ("multi_edit", json!({"edits": [{"oldString": "a", "newString": "b"}]})),
        ("list_dir", json!({})),
        ("grep", json!({"pattern": "x"})),
        ("glob", json!({"pattern": "*"})),
    ] {
        let rows = [
            ("~/.bashrc", "ARG002 "),
            ("file:///etc/passwd", "ARG002 "),
            ("C:\\Users\\x", "ARG002 "),
            (".\\sub\\g.rs", "ARG002 "),
            ("", "ARG002 the path is empty"),
            ("  ", "ARG002 the path is empty"),
            ("a\0b", "ARG002 "),
            ("a\nb", "ARG002 "),
            ("f/", "ARG002 f/ is not a folder"),
            ("../outside/o", "ARG003 "),
            ("/etc/passwd", "ARG003 "),
            ("sub/../../outside/o", "ARG003 "),
        ]
        .map(|(path, expected)| {
            let mut arguments = more.clone();
            arguments["path"] = json!(path);
            (tool, arguments, expected)
        });
        check(&rows);
    }
}

#[test]
fn non_files_and_large_files_are_refused() {
    let edit = |path: &str| json!({"path": path, "oldString": "a", "newString": "b"});
    check(&[
        ("read_file", json!({"path": "pipe"}), "ARG003 pipe is a pipe"),
        ("read_file", json!({"path": "sub"}), "ARG003 sub is a folder; list_dir shows"),
        ("read_file", json!({"path": "binary"}), "ARG003 binary is binary"),
        ("write_file", json!({"path": "pipe", "content": "x"}), "ARG003 pipe is a pipe"),
        ("write_file", json!({"path": "huge", "content": "x"}), "ARG003 huge is larger than"),
        ("edit_file", edit("sub"), "ARG003 sub is a folder"),
        ("edit_file", edit("huge"), "ARG003 huge is larger than 64 MiB"),
        ("edit_file", edit("pipe"), "ARG003 pipe is a pipe"),
        ("grep", json!({"pattern": "x", "path": "pipe"}), "ARG003 pipe is a pipe"),
        ("read_file", json!({"path": "f", "offset": 9}), "ARG004 f has 3 lines; offset 9 is"),
        ("read_file", json!({"path": "f", "offset": 1e12}), "ARG004 f has 3 lines"),
        ("read_file", json!({"path": "f", "offset": -1}), "ARG001 offset: must be at least 1"),
    ]);
}

#[test]
fn invalid_patterns_are_explained() {
    check(&[
        ("grep", json!({"pattern": "a("}), "ARG005 pattern: regex parse error"),
        ("grep", json!({"pattern": "(?P<x"}), "ARG005 pattern: "),
        ("grep", json!({"pattern": "((a{999}){999}){999}"}), "ARG005 pattern: "),
        ("grep", json!({"pattern": "(?=x)"}), "ARG005 pattern: "),
        ("glob", json!({"pattern": "[a"}), "ARG005 "),
        ("glob", json!({"pattern": "/etc/*"}), "ARG002 "),
    ]);
}

#[test]
fn failed_edits_name_the_reason() {
    let edit = |path: &str, old: &str, new: &str| json!({"path": path, "oldString": old, "newString": new});
    let overlapping = json!({"path": "f", "edits": [
        {"oldString": "one\ntwo", "newString": "x"}, {"oldString": "one", "newString": "y"},
    ]});
    check(&[
        ("edit_file", edit("f", "  one", "x"), "EDT001 oldString is not in f; the nearest is at"),
        ("edit_file", edit("f", "two", "x"), "EDT002 oldString is 2 times in f, at lines 2, 3"),
        ("edit_file", edit("binary", "a", "b"), "EDT005 binary is binary"),
        ("multi_edit", overlapping, "EDT006 edits[1]: it overlaps edits[0]"),
    ]);
}

#[test]
fn bounds_of_a_task_list_are_named() {
    let todo = |content: &str| json!({"content": content, "status": "pending"});
    check(&[
        ("todo_write", json!({}), "ARG001 todos: required array is missing"),
        (
            "todo_write",
            json!({"todos": [todo("a"), {"content": "b", "status": "doing"}]}),
            "ARG001 todos[1].status: must be one of",
        ),
        (
            "todo_write",
            json!({"todos": [todo(&"x".repeat(201))]}),
            "ARG001 todos[0].content: has a length of 201, at most 200 is allowed",
        ),
        (
            "todo_write",
            json!({"todos": vec![todo("x"); 51]}),
            "ARG001 todos: has a length of 51, at most 50 is allowed",
        ),
        ("todo_write", json!({"todos": [todo("a"), todo(" \n")]}), "ARG002 todos[1].content: is"),
        ("todo_write", json!({"todos": []}), "The task list is empty."),
        (
            "todo_write",
            json!({"todos": [todo("a"), {"content": "b\nc", "status": "in_progress"}]}),
            "The task list is stored: 0 of 2 tasks done; in progress: b c.",
        ),
    ]);
}

#[test]
fn bounds_of_questions_and_plans_are_named() {
    let options = |labels: &[&str]| {
        let option = |label: &&str| json!({ "label": label });
        labels.iter().map(option).collect::<Vec<_>>()
    };
    let ask = |question: Value| json!({ "questions": [{"question": "fine?"}, question] });
    let long = "x".repeat(1001);
    check(&[
        ("ask_user", json!({}), "ARG001 questions: required array is missing"),
        ("ask_user", json!({"questions": []}), "ARG001 questions: must not be empty"),
        (
            "ask_user",
            json!({"questions": vec![json!({"question": "a?"}); 5]}),
            "ARG001 questions: has a length of 5, at most 4 is allowed",
        ),
        ("ask_user", ask(json!({"question": " "})), "ARG002 questions[1].question: is blank"),
        (
            "ask_user",
            ask(json!({"question": long})),
            "ARG002 questions[1].question: has 1001 characters, at most 1000; make it shorter",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "options": options(&["a", &"y".repeat(81)])})),
            "ARG002 questions[1].options[1].label: has 81 characters, at most 80",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "options": options(&["a", "a"])})),
            "ARG002 questions[1].options[1].label: is there twice",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "options": options(&["a"; 9])})),
            "ARG001 questions[1].options: has a length of 9, at most 8 is allowed",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "options": options(&["a"]), "freeText": false})),
            "ARG002 questions[1].options: one option is no choice",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "multiple": true})),
            "ARG002 questions[1].multiple: needs two or more options",
        ),
        (
            "ask_user",
            ask(json!({"question": "a?", "options": options(&["a", "b"]), "freeText": false,
                "default": "c"})),
            "ARG002 questions[1].default: must be the label of an option",
        ),
        (
            "ask_user",
            json!({"questions": [{"question": "a?"}], "timeoutSeconds": 1}),
            "ARG001 timeoutSeconds: must be at least 10, not 1",
        ),
        ("ask_user", ask(json!({"question": "a?"})), "No user can be asked. Decide"),
        ("present_plan", json!({"plan": " "}), "ARG002 plan: is blank"),
        (
            "present_plan",
            json!({"plan": "x".repeat(40_001)}),
            "ARG001 plan: has a length of 40001, at most 40000 is allowed",
        ),
        ("present_plan", json!({"plan": "1. do"}), "No user can be asked. The permission mode"),
    ]);
}

#[test]
fn invalid_commands_are_refused() {
    check(&[
        ("bash", json!({"command": ""}), "SH001 "),
        ("bash", json!({"command": " \n\t"}), "SH001 "),
        ("bash", json!({"command": "x".repeat(1 << 20)}), "SH002 "),
        ("bash", json!({"command": "ls\0"}), "SH003 "),
        ("bash", json!({"command": "ls", "timeoutMs": "soon"}), "ARG001 timeoutMs: must be"),
        ("bash", json!({"command": "ls", "workdir": ".."}), "ARG003 "),
        ("bash", json!({"command": "ls", "workdir": "f"}), "ARG003 f is a file"),
    ]);
    // Judged by the rest of the pipeline: unbalanced quotes, and CR.
    for command in ["echo 'a", "echo a\rb"] {
        assert!(desk().prepare("bash", &json!({ "command": command })).is_ok());
    }
}

#[test]
fn string_encoded_arguments_are_decoded_once() {
    use posse_actors::tool_call::arguments::validate;
    let desk = desk();
    let schema = desk.tools().get("read_file").unwrap().spec().parameters.clone();
    let once = Value::from(json!({"path": "f"}).to_string()).to_string();
    let validated = validate(&schema, &once, 1 << 20).unwrap();
    assert_eq!((validated.value, validated.coerced.len()), (json!({"path": "f"}), 1));
    let twice = Value::from(once).to_string();
    assert_eq!(validate(&schema, &twice, 1 << 20).unwrap_err().code, "ARG001");
}

#[test]
fn misspelled_argument_name_is_corrected() {
    let desk = ToolFixture::new();
    for name in ["src/main.rs", "src/secret.pem", "src/.env", "README.md"] {
        desk.put(name, "x\n");
    }
    for (tool, arguments, expected) in [
        (
            "read_file",
            json!({"path": "src/mian.rs"}),
            "FIL001 src/mian.rs does not exist; did you mean src/main.rs?",
        ),
        (
            "edit_file",
            json!({"path": "readme.md", "oldString": "a", "newString": "b"}),
            "FIL001 readme.md does not exist; did you mean README.md?",
        ),
        (
            "multi_edit",
            json!({"path": "READM.md", "edits": [{"oldString": "a", "newString": "b"}]}),
            "FIL001 READM.md does not exist; did you mean README.md?",
        ),
        ("list_dir", json!({"path": "scr"}), "FIL001 scr does not exist; did you mean src?"),
        ("grep", json!({"pattern": "x", "path": "scr"}), "FIL001 scr does not exist; did you"),
        ("glob", json!({"pattern": "*", "path": "scr"}), "FIL001 scr does not exist; did you"),
        // Neither secrets nor dissimilar names are suggested.
        ("read_file", json!({"path": "src/secrets.pem"}), "FIL001 src/secrets.pem does not exist"),
        ("read_file", json!({"path": "src/.envv"}), "FIL001 src/.envv does not exist"),
        ("read_file", json!({"path": "nowhere/at/all"}), "FIL001 nowhere/at/all does not exist"),
    ] {
        let said = desk.ask(tool, &arguments);
        if expected.contains("did you") {
            assert!(said.starts_with(expected), "{said}");
        } else {
            assert_eq!(said, expected);
        }
    }
    // Without permission to list the folder, its content is not revealed.
    let action = desk.prepare("read_file", &json!({"path": "src/mian.rs"})).unwrap().action;
    let paths: Vec<&str> = action
        .operations
        .iter()
        .map(|operation| match operation {
            Operation::Read { relative, .. } => relative.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(paths, ["src/mian.rs", "src"]);
}
