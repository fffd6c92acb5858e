//! Errors for invalid arguments: a code and the rule for the model.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, calls_with_text, says};
use crate::posse::Machine;

/// Makes these calls in one turn of a real workspace; returns the results for the model.
fn told(calls_wanted: &[(&str, Value)]) -> (Machine, Vec<String>) {
    let server = ModelServer::start(vec![calls(calls_wanted), says("done")]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "one\ntwo\ntwo\nthree\n");
    machine.write("binary", b"\0\x01\x02\xff");
    machine.write("sub/b.txt", "b\n");
    fs::write(machine.path("outside.txt"), "not yours\n").unwrap();
    symlink(machine.path("outside.txt"), machine.work("link.txt")).unwrap();
    symlink("/", machine.work("up")).unwrap();
    nix::unistd::mkfifo(&machine.work("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let ended = machine.posse(&["run", "-y", "try"]);
    ended.assert_code(0);
    machine.verify();
    let results = server.tool_results();
    assert_eq!(results.len(), calls_wanted.len());
    for result in &results {
        assert!(!result.contains("not yours"), "{result}");
    }
    (machine, results)
}

/// One line per call: the call and the beginning of its result.
fn shown(machine: &Machine, calls_wanted: &[(&str, Value)], results: &[String]) -> String {
    let root = machine.work("").canonicalize().unwrap();
    let root = root.display().to_string();
    let line = |((name, arguments), result): (&(&str, Value), &String)| {
        let result = result.replace(root.trim_end_matches('/'), "WORK");
        let first: String = result.lines().next().unwrap_or_default().chars().take(150).collect();
        format!("{name} {arguments}\n    {first}")
    };
    calls_wanted.iter().zip(results).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn path_errors_name_the_fix() {
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let wanted = [
        ("read_file", json!({})),
        ("read_file", json!({"path": null})),
        ("read_file", json!({"path": 7})),
        ("read_file", json!({"path": "a.txt", "force": true})),
        read(""),
        read("a\0b"),
        read("~/a.txt"),
        read("file:///etc/passwd"),
        read("/etc/passwd"),
        read("../outside.txt"),
        read("sub/../../outside.txt"),
        read("link.txt"),
        read("up/etc/passwd"),
        read("/dev/zero"),
        read("pipe"),
        read("sub"),
        read("binary"),
        read("a.text"),
        read("./sub//b.txt"),
        ("read_file", json!({"path": "a.txt", "offset": 1000})),
        ("read_file", json!({"path": "a.txt", "offset": -1})),
        ("read_file", json!({"path": "a.txt", "offset": 1_000_000_000_000_u64})),
        ("read_file", json!({"path": "a.txt", "offset": "2", "limit": "1"})),
        ("list_dir", json!({"path": "a.txt"})),
        ("list_dir", json!({"path": ".."})),
        ("glob", json!({"pattern": "[", "path": "."})),
        ("glob", json!({"pattern": "../*"})),
        ("grep", json!({"pattern": "("})),
        ("grep", json!({"pattern": "x", "path": "/etc"})),
    ];
    let (machine, results) = told(&wanted);
    insta::assert_snapshot!(shown(&machine, &wanted, &results), @r#"
    read_file {}
        ARG001 path: required string is missing
    read_file {"path":null}
        ARG001 path: required string is missing
    read_file {"path":7}
        ARG001 path: must be string, not integer 7
    read_file {"force":true,"path":"a.txt"}
        ARG001 unknown field "force"; known are limit, offset, path
    read_file {"path":""}
        ARG002 the path is empty; `.` is the working directory
    read_file {"path":"a\u0000b"}
        ARG002 a\u{0}b: a path has no NUL, newline or other control character
    read_file {"path":"~/a.txt"}
        ARG002 ~/a.txt: `~` is not expanded; name the path below the working directory
    read_file {"path":"file:///etc/passwd"}
        ARG002 file:///etc/passwd: is a URL; name the path itself
    read_file {"path":"/etc/passwd"}
        ARG003 /etc/passwd is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"../outside.txt"}
        ARG003 ../outside.txt is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"sub/../../outside.txt"}
        ARG003 sub/../../outside.txt is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"link.txt"}
        ARG003 link.txt is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"up/etc/passwd"}
        ARG003 up/etc/passwd is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"/dev/zero"}
        ARG003 /dev/zero is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    read_file {"path":"pipe"}
        ARG003 pipe is a pipe
    read_file {"path":"sub"}
        ARG003 sub is a folder; list_dir shows what is in it
    read_file {"path":"binary"}
        ARG003 binary is binary (4 bytes); look at it with bash: `file` or `xxd`
    read_file {"path":"a.text"}
        FIL001 a.text does not exist; did you mean a.txt?
    read_file {"path":"./sub//b.txt"}
        1	b
    read_file {"offset":1000,"path":"a.txt"}
        ARG004 a.txt has 4 lines; offset 1000 is beyond
    read_file {"offset":-1,"path":"a.txt"}
        ARG001 offset: must be at least 1, not -1
    read_file {"offset":1000000000000,"path":"a.txt"}
        ARG004 a.txt has 4 lines; offset 1000000000000 is beyond
    read_file {"limit":"1","offset":"2","path":"a.txt"}
        2	two
    list_dir {"path":"a.txt"}
        ARG003 a.txt is a file, not a folder
    list_dir {"path":".."}
        ARG003 .. is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    glob {"path":".","pattern":"["}
        ARG005 error parsing glob '**/[': unclosed character class; missing ']'
    glob {"pattern":"../*"}
        ARG002 a glob is relative to `path` and cannot leave it: use `path` for the folder
    grep {"pattern":"("}
        ARG005 pattern: regex parse error:
    grep {"path":"/etc","pattern":"x"}
        ARG003 /etc is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    "#);
}

#[test]
fn edit_errors_name_the_fix() {
    let edit = |old: &str, new: &str| {
        ("edit_file", json!({"path": "a.txt", "oldString": old, "newString": new}))
    };
    let write = |path: &str| ("write_file", json!({"path": path, "content": "mine\n"}));
    let wanted = [
        edit("four", "4"),
        edit("tow", "2"),
        edit("two", "2"),
        edit("one", "one"),
        edit("", "x"),
        ("edit_file", json!({"path": "none.txt", "oldString": "a", "newString": "b"})),
        ("edit_file", json!({"path": "binary", "oldString": "a", "newString": "b"})),
        write("../outside.txt"),
        write("link.txt"),
        write("up/tmp/posse-it-escaped"),
        write("sub"),
        write("pipe"),
        write("node_modules/x.js"),
        write(&format!("{}.txt", "n".repeat(300))),
    ];
    let (machine, results) = told(&wanted);
    assert_eq!(machine.read("a.txt"), "one\ntwo\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(machine.path("outside.txt")).unwrap(), "not yours\n");
    assert!(!machine.work("node_modules").exists());
    let text = shown(&machine, &wanted, &results).replace(&"n".repeat(300), "nnn…");
    insta::assert_snapshot!(text, @r#"
    edit_file {"newString":"4","oldString":"four","path":"a.txt"}
        EDT001 oldString is not in a.txt, nor anything like it; read the file again
    edit_file {"newString":"2","oldString":"tow","path":"a.txt"}
        EDT001 oldString is not in a.txt, nor anything like it; read the file again
    edit_file {"newString":"2","oldString":"two","path":"a.txt"}
        EDT002 oldString is 2 times in a.txt, at lines 2, 3; set replaceAll, or include more lines around the one that is meant
    edit_file {"newString":"one","oldString":"one","path":"a.txt"}
        a.txt is unchanged: it has exactly this content already
    edit_file {"newString":"x","oldString":"","path":"a.txt"}
        ARG001 oldString: must not be empty
    edit_file {"newString":"b","oldString":"a","path":"none.txt"}
        FIL001 none.txt does not exist
    edit_file {"newString":"b","oldString":"a","path":"binary"}
        EDT005 binary is binary; change it with bash
    write_file {"content":"mine\n","path":"../outside.txt"}
        ARG003 ../outside.txt is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    write_file {"content":"mine\n","path":"link.txt"}
        ARG003 link.txt is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    write_file {"content":"mine\n","path":"up/tmp/posse-it-escaped"}
        ARG003 up/tmp/posse-it-escaped is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    write_file {"content":"mine\n","path":"sub"}
        ARG003 sub is a folder; list_dir shows what is in it
    write_file {"content":"mine\n","path":"pipe"}
        ARG003 pipe is a pipe
    write_file {"content":"mine\n","path":"node_modules/x.js"}
        Denied: node_modules belongs to the package manager; change package.json and install instead (rule: agent build: node_modules/**)
    write_file {"content":"mine\n","path":"nnn….txt"}
        ARG002 the path or a name in it is too long
    "#);
}

#[test]
fn command_errors_name_the_fix() {
    let run = |command: &str| ("bash", json!({ "command": command }));
    let wanted = [
        run(""),
        run("  \n "),
        run("echo a\0b"),
        run(&format!("echo {}", "x".repeat(200_000))),
        ("bash", json!({"command": "true", "timeoutMs": 0})),
        ("bash", json!({"command": "true", "timeoutMs": -1})),
        ("bash", json!({"command": "true", "timeoutMs": 1_000_000_000})),
        ("bash", json!({"command": "true", "timeoutMs": "5m"})),
        ("bash", json!({"command": "true", "timeout": "90s"})),
        ("bash", json!({"command": "true", "timeout": 5})),
        ("bash", json!({"command": "pwd", "workdir": "sub"})),
        ("bash", json!({"command": "pwd", "workdir": "/"})),
        ("bash", json!({"command": "pwd", "workdir": "none"})),
        ("bash", json!({"command": ["ls"]})),
        run("no-such-program-anywhere"),
        run("kill -SEGV $$"),
    ];
    let (machine, results) = told(&wanted);
    for clamped in &results[4..7] {
        assert!(clamped.contains("timeout"), "{clamped}");
    }
    // How long each took differs from run to run.
    let timeless = |result: &String| {
        let words = result.split(' ').collect::<Vec<_>>();
        let before_ms = |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with("ms,"));
        let hidden = (0..words.len()).map(|at| if before_ms(at) { "·" } else { words[at] });
        hidden.collect::<Vec<_>>().join(" ")
    };
    let results: Vec<_> = results.iter().map(timeless).collect();
    let text = shown(&machine, &wanted, &results).replace(&"x".repeat(200_000), "xxx…");
    insta::assert_snapshot!(text, @r#"
    bash {"command":""}
        SH001 command is empty
    bash {"command":"  \n "}
        SH001 command is empty
    bash {"command":"echo a\u0000b"}
        SH003 command contains a NUL character
    bash {"command":"echo xxx…"}
        SH002 command has 200005 bytes, the limit is 100000: write a script with write_file and run that
    bash {"command":"true","timeoutMs":0}
        (exit 0, · ms, no output)
    bash {"command":"true","timeoutMs":-1}
        (exit 0, · ms, no output)
    bash {"command":"true","timeoutMs":1000000000}
        (exit 0, · ms, no output)
    bash {"command":"true","timeoutMs":"5m"}
        (exit 0, · ms, no output)
    bash {"command":"true","timeout":"90s"}
        (exit 0, · ms, no output)
    bash {"command":"true","timeout":5}
        ARG006 timeout: 5 of what? Use timeoutMs: milliseconds
    bash {"command":"pwd","workdir":"sub"}
        WORK/sub
    bash {"command":"pwd","workdir":"/"}
        ARG003 / is outside the workspace; reachable is what lies below WORK; the user can add a folder with --add-dir
    bash {"command":"pwd","workdir":"none"}
        FIL001 none does not exist
    bash {"command":["ls"]}
        ARG001 command: must be string, not array
    bash {"command":"no-such-program-anywhere"}
        /bin/bash: line 1: no-such-program-anywhere: command not found
    bash {"command":"kill -SEGV $$"}
        (ended by SIGSEGV, · ms, no output)
    "#);
}

#[test]
fn unusual_path_and_pattern_errors_name_the_fix() {
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let long = "a/".repeat(3000);
    let wanted = [
        read(r"C:\\Users\\a.txt"),
        read(r"sub\b.txt"),
        read("a\nb"),
        read("a.txt/"),
        read(".env"),
        read(".git/config"),
        read(&long),
        ("READ_FILE", json!({"path": "a.txt"})),
        ("read_file", json!({"Path": "a.txt"})),
        ("grep", json!({"pattern": r"(\w{1000}){1000}"})),
        ("grep", json!({"pattern": "(a*)*b", "path": "a.txt"})),
        (
            "multi_edit",
            json!({"path": "a.txt", "edits": [
                {"oldString": "one\ntwo", "newString": "x"}, {"oldString": "two\ntwo", "newString": "y"},
            ]}),
        ),
    ];
    let (machine, results) = told(&wanted);
    let text = shown(&machine, &wanted, &results).replace(&long, "a/a/…");
    insta::assert_snapshot!(text, @r#"
    read_file {"path":"C:\\\\Users\\\\a.txt"}
        ARG002 C:\\Users\\a.txt: folders are separated by `/`
    read_file {"path":"sub\\b.txt"}
        ARG002 sub\b.txt: folders are separated by `/`
    read_file {"path":"a\nb"}
        ARG002 a\nb: a path has no NUL, newline or other control character
    read_file {"path":"a.txt/"}
        ARG002 a.txt/ is not a folder
    read_file {"path":".env"}
        Denied: .env holds secrets; work without its content, or ask the user for what is needed (they can list the file in sandbox.readSecrets) (rule: global
    read_file {"path":".git/config"}
        FIL001 .git/config does not exist
    read_file {"path":"a/a/…"}
        ARG002 the path is longer than 4096 bytes
    READ_FILE {"path":"a.txt"}
        Unknown tool: "READ_FILE". Available tools: ask_user, bash, edit_file, glob, grep, job_output, job_stop, list_dir, multi_edit, present_plan, read_file
    read_file {"Path":"a.txt"}
        ARG001 path: required string is missing; unknown field "Path"; did you mean `path`?
    grep {"pattern":"(\\w{1000}){1000}"}
        ARG005 pattern: compiled regex exceeds size limit of 4194304
    grep {"path":"a.txt","pattern":"(a*)*b"}
        no match in 1 files
    multi_edit {"edits":[{"newString":"x","oldString":"one\ntwo"},{"newString":"y","oldString":"two\ntwo"}],"path":"a.txt"}
        EDT006 edits[1]: it overlaps edits[0], which changed the text that oldString is in a.txt; make one edit of both, or use the text as edits[0] leaves it
    "#);
}

/// Some servers send the object as a string, which is parsed.
#[test]
fn string_encoded_arguments_are_decoded_once_by_the_binary() {
    let inner = json!({"path": "a.txt", "limit": 1}).to_string();
    let twice = json!(json!(inner).to_string()).to_string();
    let quoted = json!(inner).to_string();
    let asked = [("read_file", quoted.as_str()), ("read_file", twice.as_str())];
    let server = ModelServer::start(vec![calls_with_text(&asked), says("done")]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "one\ntwo\n");
    let (ended, events) = machine.stream(&["read"]);
    ended.assert_code(0);
    let results = server.tool_results();
    assert!(results[0].starts_with("1\tone"), "{}", results[0]);
    assert!(results[1].starts_with("ARG001 the arguments must be an object"), "{}", results[1]);
    let started = events.iter().find(|event| event["type"] == "tool.started").unwrap();
    assert_eq!(started["coerced"].as_array().unwrap().len(), 1, "{started}");
}

/// A command that a shell may read differently needs permission.
#[test]
fn unparsable_command_is_asked_about() {
    let run = |command: &str| ("bash", json!({ "command": command }));
    let wanted = [run("echo \"a"), run("echo a\rrm b"), run("echo $(")];
    let server = ModelServer::start(vec![calls(&wanted), says("done")]);
    let machine = Machine::with(&server);
    let (ended, events) = machine.stream(&["try"]);
    ended.assert_code(4);
    let asked = events.iter().filter(|event| event["type"] == "permission.requested").count();
    assert_eq!(asked, wanted.len());
    assert!(!events.iter().any(|event| event["type"] == "tool.started"));
}
