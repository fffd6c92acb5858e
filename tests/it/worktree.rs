//! Subagents in isolated worktrees: concurrent changes of the same file, merging, hostile
//! repositories, and recovery after a kill.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, text_of};
use crate::posse::{FinishedRun, Machine};

/// A machine whose workspace is a repository with one commit, and which permits delegation.
pub(crate) fn machine(server: &ModelServer) -> Machine {
    let more = json!({
        "agentMode": "multi-agent", "delegation": {"defaultInvocationDecision": "allow"},
    });
    machine_with(server, &more)
}

/// Like [`machine`], with further settings.
pub(crate) fn machine_with(server: &ModelServer, more: &Value) -> Machine {
    let machine = Machine::configured(server, more, &json!({}));
    machine.write("f", "one\nmiddle\ntwo\n");
    machine.write("g", "g\n");
    git(&machine, &["init", "-q"]);
    git(&machine, &["add", "-A"]);
    git(&machine, &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"]);
    machine
}

/// Runs the user's git.
pub(crate) fn git(machine: &Machine, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(machine.path("work"));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Texts of a request's messages of one role, in order.
pub(crate) fn texts(request: &Value, role: &str) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["role"] == role).map(|m| text_of(&m["content"])).collect()
}

/// Task of a subagent; for the main agent, the user's prompt.
pub(crate) fn task(request: &Value) -> String {
    let first = texts(request, "user").remove(0);
    let task = first.split("<task>\n").nth(1).map(|rest| rest.split("\n</task>").next().unwrap());
    task.map_or(first.clone(), str::to_owned)
}

/// The subagent id in a result: `agent worker (c1f2-i3): done`.
pub(crate) fn id_in(result: &str) -> String {
    let rest = result.split('(').nth(1).unwrap_or_else(|| panic!("{result}"));
    rest.split(')').next().unwrap().to_owned()
}

fn isolated(task: &str) -> (&'static str, Value) {
    let arguments = json!({"agent": "worker", "task": task, "isolation": "worktree"});
    ("delegate_agent", arguments)
}

fn edit(path: &str, old: &str, new: &str) -> ModelAnswer {
    calls(&[("edit_file", json!({"path": path, "oldString": old, "newString": new}))])
}

fn worktrees(machine: &Machine) -> PathBuf {
    machine.session_dir().join("worktrees")
}

/// Folders of the worktrees that have files.
pub(crate) fn trees(machine: &Machine) -> Vec<PathBuf> {
    let entries = fs::read_dir(worktrees(machine)).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path().join("tree")).filter(|tree| tree.is_dir()).collect()
}

/// All tool results in the requests of the main agent, each once, in order.
fn said(server: &ModelServer) -> Vec<String> {
    let requests = server.requests();
    texts(requests.last().unwrap(), "tool")
}

/// Two subagents change different lines of one file, and a third one changes one of these lines as
/// well.
fn three_writers(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    let merge = |nth: usize| {
        let id = json!({"id": id_in(&results[nth])});
        calls(&[("agent_merge", id)])
    };
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[isolated("one"), isolated("two"), isolated("three")]),
        ("go", 3) => calls(&[("agent_diff", json!({"id": id_in(&results[0])}))]),
        ("go", 4) => merge(0),
        ("go", 5) => merge(1),
        ("go", 6) => merge(2),
        ("go", 7) => {
            let id = json!({"id": id_in(&results[2]), "files": ["./new/three"]});
            calls(&[("agent_merge", id)])
        }
        ("go", _) => says("That is all."),
        ("one", 0) => edit("f", "one", "one by one"),
        ("two", 0) => edit("f", "two", "two by two"),
        ("three", 0) => edit("f", "one", "one by three"),
        ("three", 1) => calls(&[("write_file", json!({"path": "new/three", "content": "new\n"}))]),
        (_, _) => says("changed"),
    }
}

#[test]
fn agents_in_worktrees_do_not_conflict() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(three_writers)]);
    let machine = machine(&server);
    let (ended, events) = machine.stream(&["--yes", "go"]);
    ended.assert_code(0);
    let said = said(&server);
    let [one, two, three, diff, merged, joined, conflict, rest] = &said[..] else {
        panic!("{said:#?}")
    };
    for (result, added) in [(one, "f (+1 -1)"), (two, "f (+1 -1)"), (three, "new/three (+1 -0)")] {
        assert!(result.contains("It changed in its worktree, and not in the workspace: "));
        assert!(result.contains(added) && result.contains("agent_merge {\"id\": "), "{result}");
    }
    assert!(diff.contains("modified f (+1 -1)\n--- a/f\n+++ b/f\n"), "{diff}");
    assert!(diff.contains("-one\n+one by one\n"), "{diff}");
    assert!(merged.starts_with("updated f (+1 -1") && merged.contains("was removed"), "{merged}");
    assert!(joined.starts_with("updated f (+1 -1"), "{joined}");
    assert!(conflict.starts_with("DLG007 nothing was changed: 1 file"), "{conflict}");
    assert!(conflict.contains("f: it was changed here and there, around line 1"), "{conflict}");
    assert!(conflict.contains("\"files\" takes the others over: new/three"), "{conflict}");
    assert!(rest.starts_with("created new/three"), "{rest}");
    assert_eq!(machine.read("f"), "one by one\nmiddle\ntwo by two\n");
    assert_eq!(machine.read("new/three"), "new\n");
    // Only the worktree with unmerged changes is left, and git lists none.
    let [left] = &trees(&machine)[..] else { panic!("{:?}", trees(&machine)) };
    assert_eq!(fs::read_to_string(left.join("f")).unwrap(), "one by three\nmiddle\ntwo\n");
    assert_eq!(git(&machine, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&machine, &["status", "--porcelain"]), " M f\n?? new/\n");
    // The environment section of each subagent names its worktree.
    let of_worker = |request: &&Value| task(request) != "go";
    for request in server.requests().iter().filter(of_worker) {
        let system = text_of(&request["messages"][0]["content"]);
        let place = format!("Working directory: {}/", worktrees(&machine).display());
        assert!(system.contains(&place) && !system.contains("elsewhere//"), "{system}");
        let tools = request["tools"].to_string();
        assert!(!tools.contains("agent_merge") && !tools.contains("delegate_agent"), "{tools}");
    }
    let requested = events.iter().filter(|event| event["type"] == "agent.invocation.requested");
    assert!(requested.clone().all(|event| event["workplace"].is_string()));
    assert_eq!(requested.count(), 3);
    machine.verify();
    let shown = machine.posse(&["sessions", "show", events[0]["sessionId"].as_str().unwrap()]);
    assert!(shown.stdout.contains(&left.display().to_string()), "{}", shown.stdout);
}

/// The subagent calls bash for each step, and then answers.
pub(crate) fn in_bash(request: &Value) -> ModelAnswer {
    let (results, task) = (texts(request, "tool"), task(request));
    match (task.split_once(": "), results.len()) {
        (None, 0) => calls(&[isolated(&format!("run: {task}"))]),
        (None, _) => says("That is all."),
        (Some((_, command)), 0) => calls(&[("bash", json!({"command": command}))]),
        (Some(_), _) => says(&results.join("\n")),
    }
}

#[test]
fn agent_command_writes_its_worktree_only() {
    for backend in ["namespaces", "bubblewrap", "landlock"] {
        let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(in_bash)]);
        let machine = machine(&server);
        machine.write(".env", "KEY=secret-of-the-project\n");
        let work = machine.path("work").canonicalize().unwrap().display().to_string();
        let command = format!(
            "echo mine >> g; echo theirs >> {work}/g; for n in $(ls -A {work}); do cat {work}/$n; \
             done; d={work}/.git; touch $d/there; git log --oneline | cat; git status --short"
        );
        let mut run = machine.command(&["run", "--yes", "-p", &command]);
        run.env("POSSE_SANDBOX_BACKEND", backend);
        let ended = crate::posse::RunningPosse::start(run).end();
        assert_eq!(ended.code, Some(0), "{backend}: {}", ended.stderr);
        let said = said(&server).remove(0);
        assert_eq!(machine.read("g"), "g\n", "{backend}: {said}");
        assert!(!machine.work(".git/there").exists(), "{backend}");
        assert!(said.contains("g (+1 -0)"), "{backend}: {said}");
        assert!(said.contains("first"), "git knows what was: {backend}: {said}");
        if backend != "landlock" {
            assert!(!said.contains("secret-of-the-project"), "{backend}: {said}");
        }
        let [tree] = &trees(&machine)[..] else { panic!("{backend}") };
        assert_eq!(fs::read_to_string(tree.join("g")).unwrap(), "g\nmine\n", "{backend}");
        assert!(!tree.join(".env").exists(), "{backend}: secrets are not copied");
    }
}

#[test]
fn user_changes_during_isolated_work_are_kept() {
    for backend in ["namespaces", "landlock"] {
        let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(in_bash)]);
        let machine = machine(&server);
        machine.write("AGENTS.md", "before\n");
        let work = machine.path("work").canonicalize().unwrap().display().to_string();
        let command = format!(
            "while [ ! -e {work}/go ]; do sleep 0.02; done; echo x >> g; n=ode; mkdir .vsc$n"
        );
        let formats = ["run", "--output-format", "stream-json", "--yes", "-p", &command];
        let mut run = machine.command(&formats);
        run.env("POSSE_SANDBOX_BACKEND", backend);
        let mut run = crate::posse::RunningPosse::start(run);
        while run.wait_for("sandbox.enforced")["agentPath"] != "build/worker" {}
        machine.write("AGENTS.md", "after\n");
        machine.write(".vscode/tasks.json", "{}\n");
        machine.write("go", "");
        run.end().assert_code(0);
        assert_eq!(machine.read("AGENTS.md"), "after\n", "{backend}");
        assert!(machine.work(".vscode/tasks.json").exists(), "{backend}");
        // In its own worktree, it cannot plant protected files either.
        let [tree] = &trees(&machine)[..] else { panic!("{backend}") };
        assert!(!tree.join(".vscode").exists(), "{backend}");
        assert_eq!(fs::read_to_string(tree.join("g")).unwrap(), "g\nx\n", "{backend}");
    }
}

/// A subagent that only reports; the main agent calls it once and ends.
fn only_looks(request: &Value) -> ModelAnswer {
    match (task(request).as_str(), texts(request, "tool").len()) {
        ("go", 0) => calls(&[isolated("look")]),
        ("look", 0) => calls(&[("read_file", json!({"path": "f"}))]),
        (_, _) => says("seen"),
    }
}

fn looked(prepare: impl FnOnce(&Machine)) -> (FinishedRun, String, Machine) {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(only_looks)]);
    let machine = machine(&server);
    prepare(&machine);
    let ended = machine.posse(&["run", "--yes", "-p", "go"]);
    let said = said(&server).remove(0);
    (ended, said, machine)
}

#[test]
fn unchanged_worktree_is_removed() {
    let (ended, said, machine) = looked(|_| ());
    ended.assert_code(0);
    assert!(said.contains("It changed nothing in its worktree, which was removed."), "{said}");
    assert_eq!(fs::read_dir(worktrees(&machine)).unwrap().count(), 0);
}

/// Creates a program that leaves a trace when it is started. Returns the trace file and the
/// program.
fn trap(machine: &Machine) -> (PathBuf, String) {
    let trace = machine.path("tmp/trace");
    let program = machine.path("home/trap");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\ncat\n", trace.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (trace, program.display().to_string())
}

#[test]
fn repository_hooks_and_filters_do_not_run() {
    let mut trace = PathBuf::new();
    let (ended, said, machine) = looked(|machine| {
        let program;
        (trace, program) = trap(machine);
        for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-commit"] {
            fs::copy(&program, machine.work(".git/hooks").join(hook)).unwrap();
        }
        for (key, value) in [
            ("core.fsmonitor", program.clone()),
            ("core.sshCommand", program.clone()),
            ("core.pager", program.clone()),
            ("core.attributesFile", machine.path("home/attributes").display().to_string()),
            ("filter.evil.clean", program.clone()),
            ("filter.evil.smudge", program.clone()),
            ("filter.evil.process", program.clone()),
            ("filter.evil.required", "true".to_owned()),
            ("diff.evil.textconv", program.clone()),
            ("diff.external", program.clone()),
            ("core.hooksPath", ".git/hooks".to_owned()),
            ("extensions.partialClone", "origin".to_owned()),
            ("remote.origin.url", format!("ext::{program}")),
            ("protocol.ext.allow", "always".to_owned()),
        ] {
            let config = machine.work(".git/config");
            let mut text = fs::read_to_string(&config).unwrap();
            let (section, name) = key.rsplit_once('.').unwrap();
            let section = section
                .split_once('.')
                .map_or(section.to_owned(), |(section, sub)| format!("{section} \"{sub}\""));
            text.push_str(&format!("[{section}]\n\t{name} = \"{value}\"\n"));
            fs::write(config, text).unwrap();
        }
        machine.write(".gitattributes", "* filter=evil diff=evil\n");
        machine.write("f", "changed\n");
    });
    ended.assert_code(0);
    assert!(said.contains("): done"), "{said}");
    assert!(!trace.exists(), "something of the repository ran");
    drop(machine);
}

type Prepare<'a> = Box<dyn FnOnce(&Machine) + 'a>;

#[test]
fn unsupported_repository_is_refused_with_the_reason() {
    let outside = tempfile::tempdir().unwrap();
    let cases: [(&str, Prepare<'_>); 6] = [
        (
            "`.git` leads to a repository that does not confirm",
            Box::new(|machine: &Machine| {
                let elsewhere = outside.path().join("git");
                fs::rename(machine.work(".git"), &elsewhere).unwrap();
                symlink(elsewhere, machine.work(".git")).unwrap();
            }),
        ),
        (
            "`.git` leads to a repository that does not confirm",
            Box::new(|machine: &Machine| {
                let elsewhere = outside.path().join("other");
                fs::rename(machine.work(".git"), &elsewhere).unwrap();
                machine.write(".git", format!("gitdir: {}\n", elsewhere.display()));
            }),
        ),
        (
            "the git repository says that its files are elsewhere",
            Box::new(|machine: &Machine| {
                git(machine, &["config", "core.worktree", outside.path().to_str().unwrap()]);
            }),
        ),
        (
            "vendor/x is a submodule",
            Box::new(|machine: &Machine| {
                let head = git(machine, &["rev-parse", "HEAD"]);
                let entry = format!("160000,{},vendor/x", head.trim());
                git(machine, &["update-index", "--add", "--cacheinfo", &entry]);
            }),
        ),
        (
            "inner/ is a git repository inside this one",
            Box::new(|machine: &Machine| {
                git(machine, &["init", "-q", "inner"]);
            }),
        ),
        (
            "has no commit yet",
            Box::new(|machine: &Machine| {
                fs::remove_dir_all(machine.work(".git")).unwrap();
                git(machine, &["init", "-q"]);
            }),
        ),
    ];
    for (reason, prepare) in cases {
        let (ended, said, machine) = looked(prepare);
        ended.assert_code(0);
        assert!(said.starts_with("refused(isolation): no agent was started."), "{said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert!(said.contains("leave isolation out"), "{said}");
        assert!(trees(&machine).is_empty());
    }
}

#[test]
fn without_a_repository_worktrees_are_not_mentioned() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(plants)]);
    let machine = machine(&server);
    fs::remove_dir_all(machine.work(".git")).unwrap();
    fs::create_dir(machine.work(".git")).unwrap();
    let folder = machine.path("posse/config/agents");
    fs::create_dir_all(&folder).unwrap();
    let definition = "---\ndescription: d\ntools: [read_file]\nisolation: worktree\n---\nx\n";
    fs::write(folder.join("apart.md"), definition).unwrap();
    machine.posse(&["run", "--yes", "-p", "go"]).assert_code(0);
    let requests = server.requests();
    let tools = requests[0]["tools"].to_string();
    assert!(!tools.contains("isolation") && !tools.contains("agent_merge"), "{tools}");
    // An agent that is always isolated is refused, and does not run in the workspace instead.
    let said = said(&server).remove(0);
    assert!(said.starts_with("DLG005 there is no worktree for it: "), "{said}");
    assert!(said.contains("apart always works in one"), "{said}");
}

/// An agent whose definition sets isolation, and which wants to change a protected file.
fn plants(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[("delegate_agent", json!({"agent": "apart", "task": "plant"}))]),
        ("go", 1) if results[0].starts_with("agent") => {
            calls(&[("agent_merge", json!({"id": id_in(&results[0])}))])
        }
        ("go", _) => says("That is all."),
        ("plant", 0) => {
            calls(&[("bash", json!({"command": "n=NTS; echo x > AGE$n.md; echo x >> g"}))])
        }
        (_, _) => says("planted"),
    }
}

#[test]
fn protected_file_is_not_merged_by_the_yes_flag() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(plants)]);
    let machine = machine(&server);
    let folder = machine.path("posse/config/agents");
    fs::create_dir_all(&folder).unwrap();
    let definition = "---\ndescription: d\ntools: '*'\nisolation: worktree\n---\nx\n";
    fs::write(folder.join("apart.md"), definition).unwrap();
    // The command is not sandboxed, so it can plant files in its own worktree.
    let ended = machine.posse(&["run", "--yes", "--sandbox", "off", "-p", "go"]);
    ended.assert_code(4);
    let said = said(&server);
    assert!(said[0].contains("AGENTS.md (+1 -0)"), "{said:?}");
    assert!(said[1].starts_with("Denied: AGENTS.md is protected"), "{said:?}");
    assert!(said[1].contains("with \"files\" takes over those that you name"), "{said:?}");
    let farewell = format!("worktree kept: {}/", worktrees(&machine).display());
    assert_eq!(ended.stderr.matches(&farewell).count(), 1, "{}", ended.stderr);
    assert!(!machine.work("AGENTS.md").exists());
    assert_eq!(machine.read("g"), "g\n", "nothing of it was taken over");
}

/// One subagent changes two files and creates one; the main agent merges and reports the result.
fn one_writer(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[isolated("write")]),
        ("go", count) if count == 1 || results[count - 1].contains("broke off") => {
            calls(&[("agent_merge", json!({"id": id_in(&results[0])}))])
        }
        ("go", _) => says("That is all."),
        ("write", 0) => edit("f", "one", "one!"),
        ("write", 1) => calls(&[("bash", json!({"command": "sleep 2; rm g; echo n > n"}))]),
        (_, _) => says("written"),
    }
}

/// As [`one_writer`], but the reply after the merge never comes, so the session cannot end before it is
/// killed.
fn one_writer_until_the_merge(request: &Value) -> ModelAnswer {
    match (task(request).as_str(), texts(request, "tool").len()) {
        ("go", 2..) => ModelAnswer::Hold(Vec::new()),
        _ => one_writer(request),
    }
}

fn kill_when(machine: &Machine, reached: impl Fn(&Value) -> bool) {
    let mut run = machine.start(&["--yes", "go"]);
    while let Some(line) = run.next_line() {
        if reached(&serde_json::from_str(&line).unwrap()) {
            break;
        }
    }
    run.signal(Signal::SIGKILL);
    run.end();
}

/// Runs one writer and kills posse `in_time`: on a busy machine the next step may have happened before
/// the signal arrives. The session never ends by itself, because the last reply is held.
fn killed_in_time(
    prepare: impl Fn(&Machine),
    reached: impl Fn(&Value) -> bool,
    in_time: impl Fn(&Machine) -> bool,
) -> (ModelServer, Machine) {
    for _ in 0..20 {
        let server =
            ModelServer::start_and_repeat(vec![ModelAnswer::By(one_writer_until_the_merge)]);
        let machine = machine(&server);
        prepare(&machine);
        kill_when(&machine, &reached);
        if in_time(&machine) {
            server.repeat_from_now(ModelAnswer::By(one_writer));
            return (server, machine);
        }
    }
    panic!("it is always too late");
}

fn resumed(machine: &Machine) -> FinishedRun {
    let dir = machine.session_dir();
    machine.posse(&["resume", dir.file_name().unwrap().to_str().unwrap(), "--yes"])
}

#[test]
fn resumed_agent_continues_in_its_worktree() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(one_writer)]);
    let machine = machine(&server);
    kill_when(&machine, |event| event["type"] == "tool.started" && event["name"] == "bash");
    let [tree] = &trees(&machine)[..] else { panic!("{:?}", trees(&machine)) };
    assert_eq!(fs::read_to_string(tree.join("f")).unwrap(), "one!\nmiddle\ntwo\n");
    // A worktree whose creation was interrupted by a kill.
    fs::create_dir_all(worktrees(&machine).join("i-nobody/tree")).unwrap();
    resumed(&machine).assert_code(0);
    // The subagent continues with its earlier changes; the outcome of the command was unknown to
    // it.
    assert_eq!(machine.read("f"), "one!\nmiddle\ntwo\n");
    assert_eq!(trees(&machine), Vec::<PathBuf>::new());
    assert!(!worktrees(&machine).join("i-nobody").exists());
    machine.verify();
}

#[test]
fn missing_worktree_is_reported_and_not_replaced() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(one_writer)]);
    let machine = machine(&server);
    kill_when(&machine, |event| event["type"] == "tool.started" && event["name"] == "bash");
    fs::remove_dir_all(worktrees(&machine)).unwrap();
    let ended = resumed(&machine);
    ended.assert_code(0);
    let said = said(&server);
    assert!(
        said[0]
            .contains("failed(worktree): it cannot continue in its worktree: its worktree is not"),
        "{said:?}"
    );
    assert_eq!(machine.read("f"), "one\nmiddle\ntwo\n");
}

#[test]
fn interrupted_merge_can_be_repeated() {
    // State after a kill between two files: one file is written already, one is merged, one is not.
    let (server, machine) = killed_in_time(
        |_| (),
        |event| event["type"] == "tool.requested" && event["name"] == "agent_merge",
        |machine| !machine.work("n").exists() && machine.work("g").exists(),
    );
    machine.write("n", "n\n");
    machine.write("f", "one!\nmiddle\ntwo and mine\n");
    let ended = resumed(&machine);
    ended.assert_code(0);
    // If the call had begun before the kill, its first result says that its outcome is unknown.
    let said = said(&server);
    let merged = said.last().unwrap();
    assert!(merged.contains("removed g") && merged.contains("2 files had been"), "{said:?}");
    assert_eq!(machine.read("f"), "one!\nmiddle\ntwo and mine\n");
    assert!(!machine.work("g").exists());
    assert_eq!(trees(&machine), Vec::<PathBuf>::new());
    machine.verify();
}

/// A subagent makes changes that cannot be merged automatically, and others that can.
fn odd_writer(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    let merge = |more: Value| {
        let mut arguments = json!({"id": id_in(&results[0])});
        if more.is_array() {
            arguments["files"] = more;
        }
        calls(&[("agent_merge", arguments)])
    };
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[isolated("odd")]),
        ("go", 1) => calls(&[("bash", json!({"command": "rm g; mkdir -p d; echo y > made"}))]),
        ("go", 2) => merge(Value::Null),
        ("go", 3 | 5) => merge(json!(["f", "b", "d/new"])),
        ("go", 4) => merge(json!(["never"])),
        ("go", _) => says("That is all."),
        (_, 0) => {
            let command = "chmod +x f; echo more >> g; ln -s /etc/hostname l; \
                printf 'a\\0b' > b; echo x > made; mkdir d; echo n > d/new; chmod +x d/new";
            calls(&[("bash", json!({"command": command}))])
        }
        (_, _) => says("made"),
    }
}

#[test]
fn unmergeable_files_are_named_and_the_rest_merges() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(odd_writer)]);
    let machine = machine(&server);
    machine.posse(&["run", "--yes", "-p", "go"]).assert_code(0);
    let said = said(&server);
    let [_, _, conflict, taken, never, again] = &said[..] else { panic!("{said:#?}") };
    assert!(conflict.starts_with("DLG007 nothing was changed: 3 files cannot"), "{conflict}");
    for part in [
        "\n  g: it was removed here, and changed there",
        "\n  l: it is a link, or no file; do that with bash",
        "\n  made: it was made here and there, not the same",
        "takes the others over: b, d/new, f",
    ] {
        assert!(conflict.contains(part), "{part}: {conflict}");
    }
    assert!(taken.contains("created b") && taken.contains("created d/new"), "{taken}");
    assert!(never.contains("it did not change never"), "{never}");
    assert!(again.starts_with("3 files had been taken over already"), "{again}");
    let mode = |path: &str| machine.work(path).metadata().unwrap().permissions().mode() & 0o111;
    assert_eq!((mode("f") != 0, mode("d/new") != 0, mode("b")), (true, true, 0));
    assert_eq!(fs::read(machine.work("b")).unwrap(), b"a\0b");
    assert_eq!((machine.read("made"), trees(&machine).len()), ("y\n".to_owned(), 1));
}

/// The final state does not depend on the moment of the kill.
#[test]
fn killed_merge_has_the_same_result() {
    for moment in ["tool.started", "tool.completed"] {
        let (_server, machine) = killed_in_time(
            |machine| machine.write("f", "one\nmiddle\ntwo and mine\n"),
            |event| event["type"] == moment && event["name"] == "agent_merge",
            |_| true,
        );
        resumed(&machine).assert_code(0);
        assert_eq!(machine.read("f"), "one!\nmiddle\ntwo and mine\n", "{moment}");
        assert_eq!(machine.read("n"), "n\n", "{moment}");
        assert!(!machine.work("g").exists(), "{moment}");
        assert_eq!(trees(&machine), Vec::<PathBuf>::new(), "{moment}");
        machine.verify();
    }
}

/// The workspace is a subfolder of the repository.
#[test]
fn subfolder_workspace_maps_to_the_same_subfolder() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(in_bash)]);
    let machine = machine(&server);
    machine.write("sub/h", "h\n");
    let mut run = machine.command(&["run", "--yes", "-p", "pwd; cat ../f; echo more >> h"]);
    run.current_dir(machine.work("sub"));
    let ended = crate::posse::RunningPosse::start(run).end();
    ended.assert_code(0);
    let said = said(&server).remove(0);
    assert!(said.contains("/tree/sub\n") && said.contains("middle"), "{said}");
    assert!(said.contains("workspace: h (+1 -0)"), "{said}");
    assert_eq!(machine.read("sub/h"), "h\n");
    assert!(Path::new(&machine.work("sub/h")).is_file());
    assert!(ended.took < Duration::from_secs(30));
}

/// A subagent writes files that git ignores; the main agent merges all, and then the named ones.
fn ignored_writer(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    let id = || id_in(&results[0]);
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[isolated("write")]),
        ("go", 1) => calls(&[("agent_merge", json!({"id": id()}))]),
        ("go", 2) => calls(&[("agent_merge", json!({"id": id(), "files": ["dist/out.txt"]}))]),
        ("go", _) => says("That is all."),
        ("write", 0) => {
            calls(&[("write_file", json!({"path": "dist/out.txt", "content": "precious\n"}))])
        }
        ("write", 1) => calls(&[("write_file", json!({"path": "new", "content": "n\n"}))]),
        (_, _) => says("written"),
    }
}

#[test]
fn ignored_files_are_named_and_never_lost() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(ignored_writer)]);
    let machine = machine(&server);
    machine.write(".gitignore", "dist\n");
    fs::write(machine.path("home/.gitignore"), "*\n").unwrap();
    let ended = machine.posse(&["run", "--yes", "-p", "go"]);
    ended.assert_code(0);
    let said = said(&server);
    let [result, merged, named] = &said[..] else { panic!("{said:#?}") };
    assert!(result.contains("not in the workspace: new (+1 -0)."), "{result}");
    assert!(result.contains("It made 1 new there that git ignores"), "{result}");
    assert!(result.contains("dist/out.txt. agent_merge leaves them out unless"), "{result}");
    assert!(merged.contains("created new") && merged.contains("its worktree is kept"), "{merged}");
    assert!(merged.contains("1 new file (dist/out.txt) in /"), "{merged}");
    assert!(named.contains("created dist/out.txt") && named.contains("was removed"), "{named}");
    assert_eq!(machine.read("dist/out.txt"), "precious\n");
    assert_eq!(trees(&machine), Vec::<PathBuf>::new());
}

/// A subagent changes two files; one is merged, the subagent is continued, and the rest is merged.
fn twice_writer(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    let id = || id_in(&results[0]);
    match (texts(request, "user")[0].contains("<task>"), results.len()) {
        (false, 0) => calls(&[isolated("write")]),
        (false, 1) => calls(&[("agent_merge", json!({"id": id(), "files": ["f"]}))]),
        (false, 2) => {
            let again = json!({"agent": "worker", "task": "again", "resume": id()});
            calls(&[("delegate_agent", again)])
        }
        (false, 3) => calls(&[("agent_merge", json!({"id": id()}))]),
        (false, _) => says("That is all."),
        (true, 0) => edit("f", "one", "one!"),
        (true, 1) => edit("g", "g", "G"),
        (true, 2) if texts(request, "user").len() == 2 => edit("f", "one!", "one!!"),
        (true, _) => says("written"),
    }
}

#[test]
fn agent_continues_after_a_partial_merge() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(twice_writer)]);
    let machine = machine(&server);
    machine.posse(&["run", "--yes", "-p", "go"]).assert_code(0);
    let said = said(&server);
    let [_, part, again, rest] = &said[..] else { panic!("{said:#?}") };
    assert!(part.starts_with("updated f (+1 -1"), "{part}");
    assert!(again.contains("not in the workspace: f (+1 -1), g (+1 -1)."), "{again}");
    assert!(rest.contains("updated f (+1 -1") && rest.contains("was removed"), "{rest}");
    assert_eq!(machine.read("f"), "one!!\nmiddle\ntwo\n");
    assert_eq!(machine.read("g"), "G\n");
}

/// A subagent changes a secret file and another one.
fn secret_writer(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    match (task(request).as_str(), results.len()) {
        ("go", 0) => calls(&[isolated("write")]),
        ("go", 1) => calls(&[("agent_merge", json!({"id": id_in(&results[0])}))]),
        ("go", _) => says("That is all."),
        ("write", 0) => {
            calls(&[("bash", json!({"command": "n=nv; echo K=1 > .e$n; echo x >> g"}))])
        }
        (_, _) => says("written"),
    }
}

#[test]
fn secret_is_named_as_unmergeable_and_the_rest_merges() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(secret_writer)]);
    let machine = machine(&server);
    machine.posse(&["run", "--yes", "--sandbox", "off", "-p", "go"]);
    let said = said(&server);
    assert!(said[1].starts_with("DLG007 nothing was changed: 1 file"), "{said:?}");
    assert!(said[1].contains("\n  .env: it has the name of a secret"), "{said:?}");
    assert!(said[1].contains("\"files\" takes the others over: g"), "{said:?}");
    assert_eq!(machine.read("g"), "g\n");
}

/// A subagent that only reads, and writes when it is continued.
fn second_thoughts(request: &Value) -> ModelAnswer {
    let results = texts(request, "tool");
    match (texts(request, "user")[0].contains("<task>"), results.len()) {
        (false, 0) => calls(&[isolated("look")]),
        (false, 1) => {
            let again = json!({"agent": "worker", "task": "again", "resume": id_in(&results[0])});
            calls(&[("delegate_agent", again)])
        }
        (false, 2) => calls(&[("agent_merge", json!({"id": id_in(&results[0])}))]),
        (false, _) => says("That is all."),
        (true, 0) => calls(&[("read_file", json!({"path": "f"}))]),
        (true, 1) if texts(request, "user").len() == 2 => {
            calls(&[("read_file", json!({"path": "f"}))])
        }
        (true, 2) => edit("f", "one", "one!"),
        (true, _) => says("seen"),
    }
}

#[test]
fn removed_worktree_is_recreated_on_resume() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(second_thoughts)]);
    let machine = machine(&server);
    machine.posse(&["run", "--yes", "-p", "go"]).assert_code(0);
    let said = said(&server);
    let [first, again, merged] = &said[..] else { panic!("{said:#?}") };
    assert!(first.contains("It changed nothing in its worktree, which was removed."), "{first}");
    assert!(again.contains("): done") && again.contains("f (+1 -1)"), "{again}");
    assert!(merged.starts_with("updated f (+1 -1"), "{merged}");
    assert_eq!(machine.read("f"), "one!\nmiddle\ntwo\n");
    let told: Vec<String> =
        server.requests().iter().flat_map(|request| texts(request, "user")).collect();
    assert!(told.iter().any(|text| text.contains("Working directory: a new copy of ")), "{told:?}");
}

#[test]
fn resume_without_agents_reports_unmerged_worktrees() {
    let server = ModelServer::start_and_repeat(vec![ModelAnswer::By(one_writer)]);
    let machine = machine(&server);
    kill_when(&machine, |event| event["type"] == "tool.started" && event["name"] == "bash");
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap();
    let ended = machine.posse(&["resume", id, "--yes", "--single-agent"]);
    let said = said(&server);
    let [tree] = &trees(&machine)[..] else { panic!("{:?}", trees(&machine)) };
    let apart = format!("none of it is in the workspace: {}", tree.display());
    assert!(said[0].contains(&apart), "{said:?}");
    let farewell = format!("worktree kept: {}", tree.display());
    assert!(ended.stderr.contains(&farewell), "{}", ended.stderr);
}
