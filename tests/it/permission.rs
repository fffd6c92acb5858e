//! Permissions: rules, `--yes`, `--dry-run`, runs without a person, and a person at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::openpty;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{Machine, RunningPosse};

#[test]
fn unattended_denial_continues_and_exits_with_4() {
    let server = ModelServer::start(vec![
        runs("touch made-by-bash"),
        calls(&[("write_file", json!({"path": "src/new.rs", "content": "x"}))]),
        calls(&[("read_file", json!({"path": "there.txt"}))]),
        says("I could only look."),
    ]);
    let machine = Machine::with(&server);
    machine.write("there.txt", "still here\n");
    let ended = machine.posse(&["run", "make something"]);
    ended.assert_code(4);
    assert_eq!(ended.stdout, "I could only look.\n");
    assert!(!machine.work("made-by-bash").exists() && !machine.work("src").exists());
    let results = server.tool_results();
    insta::assert_snapshot!(results[..2].join("\n---\n"), @r"
    Denied: `touch made-by-bash`: not covered by a rule or grant; no user can be asked
    ---
    Denied: changes to files need approval; no user can be asked
    ");
    assert!(results[2].contains("still here"), "{}", results[2]);
    // The lines that name the session differ from run to run.
    let shown = ended.stderr.lines().filter(|line| !line.starts_with("session "));
    let shown = shown.collect::<Vec<_>>().join("\n");
    let shown = shown.replace(&machine.path("work").display().to_string(), "/project");
    insta::assert_snapshot!(shown, @r#"
    sandbox full: workspace-write, no network
    ! denied: `touch made-by-bash`: not covered by a rule or grant; no user can be asked
      rule: {"decision":"allow","match":{"commandPrefix":"touch made-by-bash"},"tool":"bash"}
      ✗ bash denied: `touch made-by-bash`: not covered by a rule or grant; no user can be asked
    ! denied: changes to files need approval; no user can be asked
      rule: {"decision":"allow","match":{"pathGlob":"/project/src/new.rs"},"tool":"write_file"}
      ✗ write_file denied: changes to files need approval; no user can be asked
    • read there.txt
    error[PRM001]: 2 permission requests denied: no user could be asked
      fix: run it in a terminal, pass `--permission-mode auto`, which asks about less, pass `--yes`, or add the rule shown above
    "#);
    assert!(ended.stderr.contains(" · mode ask\n"), "{}", ended.stderr);

    let object = machine_that_asks().posse(&["run", "--output-format", "json", "make something"]);
    object.assert_code(4);
    let object = &object.events()[0];
    assert_eq!((&object["reason"], &object["exitCode"]), (&json!("permission"), &json!(4)));
    assert_eq!(object["error"]["code"], "PRM001");
    let denied = object["denied"].as_array().unwrap();
    assert_eq!(denied.len(), 1);
    assert!(denied[0]["reason"].as_str().unwrap().contains("no user can be asked"), "{denied:?}");
    assert_eq!(denied[0]["rule"]["match"], json!({"commandPrefix": "touch made"}), "{denied:?}");
    let shown = ["tool", "targetType", "targetName", "detail"].map(|name| &denied[0][name]);
    assert_eq!(shown, ["bash", "tool", "bash", "touch made"], "{denied:?}");
}

#[test]
fn yes_flag_is_suggested_only_if_it_helps() {
    for (path, fix) in [
        ("new.rs", "asks about less, pass `--yes`, or add the rule shown above\n"),
        (
            ".git/hooks/pre-commit",
            "fix: run it in a terminal and answer there: `--yes` does not cover it.",
        ),
    ] {
        let write = ("write_file", json!({"path": path, "content": "x"}));
        let machine = Machine::with(&ModelServer::start(vec![calls(&[write]), says("no")]));
        let ended = machine.posse(&["run", "write it"]);
        ended.assert_code(4);
        assert!(ended.stderr.contains(fix), "{}", ended.stderr);
        assert!(!machine.work(path).exists());
    }
}

/// A machine whose model wants to run one command.
fn machine_that_asks() -> Machine {
    Machine::with(&ModelServer::start(vec![runs("touch made"), says("done")]))
}

#[test]
fn suggested_rule_allows_the_call() {
    let machine = machine_that_asks();
    let (ended, events) = machine.stream(&["make it"]);
    ended.assert_code(4);
    let denied = events.iter().find(|event| event["type"] == "permission.denied").unwrap();
    assert_eq!(denied["by"], "nobody");
    let rule = &denied["rule"];
    let checked = machine.posse(&["permissions", "check", "touch made"]);
    assert_eq!(checked.events()[0]["suggestedRule"], *rule, "{}", checked.stdout);

    let server = ModelServer::start(vec![runs("touch made"), says("done")]);
    let machine = Machine::configured(&server, &json!({"permissions": [rule]}), &json!({}));
    machine.posse(&["run", "make it"]).assert_code(0);
    assert!(machine.work("made").exists());
}

#[test]
fn inapplicable_edit_is_explained_without_a_request() {
    let edit = |path: &str, old: &str| json!({"path": path, "oldString": old, "newString": "new"});
    let server = ModelServer::start(vec![
        calls(&[
            ("edit_file", edit("there.txt", "not in it")),
            ("edit_file", edit("there.txt", "line")),
            ("edit_file", edit("gone.txt", "x")),
            ("edit_file", edit(".env", "TOKEN=wrong")),
            (
                "multi_edit",
                json!({"path": "there.txt", "edits": [{"oldString": "no", "newString": "x"}]}),
            ),
        ]),
        says("It does not fit."),
    ]);
    let machine = Machine::with(&server);
    machine.write("there.txt", "line\nline\n");
    machine.write(".env", "TOKEN=hunter2hunter2\n");
    machine.posse(&["run", "edit it"]).assert_code(0);
    let results = server.tool_results();
    for (result, code) in results.iter().zip(["EDT001", "EDT002", "FIL001", "secrets", "EDT001"]) {
        assert!(result.contains(code), "{code}: {result}");
    }
    assert_eq!(results.len(), 5);
    assert_eq!(machine.read("there.txt"), "line\nline\n");
}

#[test]
fn never_opens_secrets() {
    let server = ModelServer::start(vec![
        calls(&[
            ("read_file", json!({"path": ".env"})),
            ("grep", json!({"pattern": "TOKEN", "path": "."})),
            ("grep", json!({"pattern": "TOKEN", "path": ".env"})),
        ]),
        calls(&[("write_file", json!({"path": ".env", "content": "TOKEN=mine"}))]),
        runs("cat .env"),
        calls(&[("read_file", json!({"path": ".env.example"}))]),
        says("no"),
    ]);
    let machine = Machine::with(&server);
    machine.write(".env", "TOKEN=hunter2hunter2\n");
    machine.write(".env.example", "TOKEN=put-yours-here\n");
    let ended = machine.posse(&["run", "-y", "read the secrets"]);
    ended.assert_code(0);
    for request in server.requests() {
        assert!(!request.to_string().contains("hunter2"), "{request}");
    }
    assert!(!ended.stderr.contains("hunter2"));
    assert_eq!(machine.read(".env"), "TOKEN=hunter2hunter2\n");
    let results = server.tool_results();
    assert!(results[0].contains("secrets"), "{}", results[0]);
    assert!(results[1].contains("put-yours-here"), "{}", results[1]);
    assert!(results[4].contains("hidden from commands"), "{}", results[4]);
    assert!(results[5].contains("put-yours-here"), "{}", results[5]);
}

#[test]
fn folder_containing_posse_state_cannot_be_added() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    std::os::unix::fs::symlink(machine.path("posse"), machine.path("link")).unwrap();
    let home = machine.path("home").display().to_string();
    for folder in ["/", "..", &home, "../posse", "../posse/config", "../link"] {
        let ended = machine.posse(&["run", "--add-dir", folder, "x"]);
        ended.assert_code(2);
        assert!(ended.stderr.contains("error[CFG016]"), "{folder}: {}", ended.stderr);
        assert!(ended.stderr.contains("--add-dir DIR"), "{folder}: {}", ended.stderr);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn protected_name_that_is_or_leads_through_a_link_needs_a_user() {
    let write = |path: &str| ("write_file", json!({"path": path, "content": "x"}));
    let names = [".cargo/config.toml", ".envrc", "again/tasks.json"];
    let server = ModelServer::start(vec![
        calls(&names.map(write)),
        calls(&[write("config/config.toml")]),
        says("Only one."),
    ]);
    let machine = Machine::with(&server);
    machine.write("config/old", "");
    machine.write("plain", "old");
    for (link, target) in [(".cargo", "config"), (".envrc", "plain"), (".vscode", "config")] {
        std::os::unix::fs::symlink(target, machine.work(link)).unwrap();
    }
    // The name of the first link is an ordinary one.
    std::os::unix::fs::symlink(".vscode", machine.work("again")).unwrap();
    machine.posse(&["run", "--permission-mode", "auto", "write them"]).assert_code(4);
    let results = server.tool_results();
    for (result, name) in results.iter().zip([names[0], names[1], ".vscode/tasks.json"]) {
        let expected = format!("Denied: {name} is protected");
        assert!(result.starts_with(&expected), "{name}: {result}");
    }
    assert_eq!(machine.read("plain"), "old");
    // The folder is an ordinary one by its own name.
    assert_eq!(machine.read("config/config.toml"), "x");
    assert!(!machine.work("config/tasks.json").exists());
}

#[test]
fn protected_files_need_a_user() {
    let write = |path: &str| ("write_file", json!({"path": path, "content": "x"}));
    let server = ModelServer::start(vec![
        calls(&[write("AGENTS.md"), write(".github/workflows/ci.yml"), write("src/a.rs")]),
        says("Only one."),
    ]);
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "-y", "write them"]);
    ended.assert_code(4);
    assert!(!machine.work("AGENTS.md").exists() && !machine.work(".github").exists());
    assert_eq!(machine.read("src/a.rs"), "x");
    let results = server.tool_results();
    insta::assert_snapshot!(results[..2].join("\n"), @r"
    Denied: AGENTS.md is protected: it configures or triggers later code execution; it needs approval each time; no user can be asked
    Denied: .github/workflows/ci.yml is protected: it configures or triggers later code execution; it needs approval each time; no user can be asked
    ");
    assert!(!ended.stderr.contains("rule:"), "{}", ended.stderr);
}

/// Files to which git's settings, or links in the folder of hooks, refer are protected like hooks: for
/// file tools, and for commands, whose changes are undone.
#[test]
fn files_that_git_settings_refer_to_need_a_user() {
    let write = |path: &str| ("write_file", json!({"path": path, "content": "evil"}));
    let command = "echo evil >tools/hooks/pre-push; echo evil >scripts/h; echo ok >scripts/other";
    let server = ModelServer::start(vec![
        calls(&[
            write("tools/hooks/pre-commit"),
            write("conf/a.cfg"),
            write("scripts/h"),
            write("user/hooks/pre-commit"),
            write(".bare/rebase-merge/git-rebase-todo"),
            write("tools/other"),
        ]),
        calls(&[("bash", json!({"command": command}))]),
        says("Only two."),
    ]);
    let machine = Machine::with(&server);
    for repository in [".git", ".bare"] {
        machine.write(&format!("{repository}/HEAD"), "ref: refs/heads/main\n");
        machine.write(&format!("{repository}/objects/x"), "");
        machine.write(&format!("{repository}/refs/x"), "");
    }
    let config = "[core]\nhooksPath = tools/hooks\n[include]\npath = ../conf/a.cfg\n";
    machine.write(".git/config", config);
    machine.write("scripts/h", "the user's\n");
    std::fs::create_dir(machine.work(".git/hooks")).unwrap();
    std::os::unix::fs::symlink("../../scripts/h", machine.work(".git/hooks/post-merge")).unwrap();
    let user = format!("[core] hooksPath = {}\n", machine.work("user/hooks").display());
    std::fs::write(machine.path("home/.gitconfig"), user).unwrap();
    let ended = machine.posse(&["run", "-y", "write them"]);
    ended.assert_code(4);
    let results = server.tool_results();
    for result in &results[..5] {
        assert!(result.starts_with("Denied: ") && result.contains("controls git"), "{result}");
    }
    assert_eq!(machine.read("tools/other"), "evil");
    assert_eq!(machine.read("scripts/other"), "ok\n");
    assert_eq!(machine.read("scripts/h"), "the user's\n");
    for path in ["tools/hooks", "conf", "user", ".bare/rebase-merge"] {
        assert!(!machine.work(path).exists(), "{path}: {results:?}");
    }
}

#[test]
fn dry_run_writes_no_file() {
    let server = ModelServer::start(vec![
        calls(&[
            ("write_file", json!({"path": "new.txt", "content": "new"})),
            ("edit_file", json!({"path": "old.txt", "oldString": "old", "newString": "new"})),
            ("bash", json!({"command": "touch made"})),
        ]),
        says("It would."),
    ]);
    let machine = Machine::with(&server);
    machine.write("old.txt", "old\n");
    let ended = machine.posse(&["run", "-y", "--dry-run", "change things"]);
    ended.assert_code(0);
    assert_eq!(machine.read("old.txt"), "old\n");
    assert!(!machine.work("new.txt").exists() && !machine.work("made").exists());
    for result in server.tool_results() {
        assert!(result.contains("dry run"), "{result}");
    }
    for line in
        ["dry run: nothing is written or run\n", "• would write new.txt", "• would run touch"]
    {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }

    // Without a person and without --yes it does not stop at the first call either.
    let server = ModelServer::start(vec![
        runs("touch made"),
        calls(&[("write_file", json!({"path": "new.txt", "content": "new"}))]),
        says("It would."),
    ]);
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "--dry-run", "change things"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "It would.\n");
    assert!(!machine.work("new.txt").exists() && !machine.work("made").exists());
    assert_eq!(server.tool_results().len(), 2);
    assert!(server.tool_results().iter().all(|result| result.contains("dry run")));

    let server = ModelServer::start(vec![says("Nothing to do.")]);
    let args = ["run", "--dry-run", "--output-format", "json", "change things"];
    assert_eq!(Machine::with(&server).posse(&args).events()[0]["dryRun"], json!(true));
}

#[test]
fn lets_plan_read_and_nothing_else() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "there.txt"}))]),
        calls(&[("write_file", json!({"path": "new.txt", "content": "new"}))]),
        runs("touch made"),
        says("a plan"),
    ]);
    let machine = Machine::with(&server);
    machine.write("there.txt", "still here\n");
    let ended = machine.posse(&["run", "-y", "--agent", "plan", "plan it"]);
    // Denied by policy, which is no missing answer.
    ended.assert_code(0);
    assert!(!machine.work("new.txt").exists() && !machine.work("made").exists());
    let requests = server.requests();
    let tools = requests[0]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| !tool.to_string().contains("write_file")), "{tools:?}");
}

/// A person at a pseudo-terminal.
pub(crate) struct Person {
    terminal: File,
    screen: Receiver<Vec<u8>>,
    pub(crate) seen: String,
    pub(crate) running: RunningPosse,
}

impl Person {
    /// Starts a task in a terminal; standard output is a pipe.
    fn at(machine: &Machine, task: &str) -> Person {
        Person::facing(machine.command(&["run", task]))
    }

    /// Starts a command in a terminal; standard output is a pipe.
    pub(crate) fn facing(mut command: Command) -> Person {
        let pair = openpty(None, None).unwrap();
        for end in [&pair.master, &pair.slave] {
            // Other tests start processes at this moment; they must not keep the terminal open.
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let slave = || -> OwnedFd { pair.slave.try_clone().unwrap() };
        command.stdin(Stdio::from(slave())).stderr(Stdio::from(slave())).env("TERM", "xterm");
        let running = RunningPosse::start(command);
        let (bytes, screen) = channel();
        let mut reader = File::from(pair.master.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal without processes is an error, which is its end.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                bytes.send(buffer[..count].to_vec()).ok();
            }
        });
        Person { terminal: File::from(pair.master), screen, seen: String::new(), running }
    }

    /// Waits until the screen shows this, and forgets what came before.
    pub(crate) fn sees(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.screen.recv_timeout(Duration::from_secs(20)) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} is not shown ({error}): {:?}", self.seen),
            }
        }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn asks_the_user_at_a_terminal() {
    let write = |path: &str| calls(&[("write_file", json!({"path": path, "content": "x\n"}))]);
    let server = ModelServer::start(vec![
        runs("touch once"),
        runs("touch never"),
        write("src/a.rs"),
        write("src/b.rs"),
        write("other.rs"),
        says("That was all."),
    ]);
    let machine = Machine::with(&server);
    let mut person = Person::at(&machine, "make things");
    person.sees("touch once");
    person.sees("[N] no: ");
    person.types("y\n");
    person.sees("touch never");
    person.sees("[N] no: ");
    person.types("maybe\n");
    person.sees("[N] no: ");
    person.types("n\n");
    person.sees("src/a.rs");
    person.sees("a saved answer allows every change below src/");
    person.sees("[s] for this session  [p] in this project  [N] no: ");
    person.types("s\n");
    // The second file of that folder is not asked about.
    person.sees("? write other.rs");
    assert!(machine.work("src/b.rs").exists());
    person.sees("[N] no: ");
    person.types("\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{}", person.seen);
    assert_eq!(ended.stdout, "That was all.\n");
    assert!(machine.work("once").exists() && !machine.work("never").exists());
    assert!(machine.work("src/a.rs").exists() && !machine.work("other.rs").exists());
    machine.verify();
}

#[test]
fn input_before_the_request_is_no_answer() {
    let server = ModelServer::start(vec![runs("touch made"), says("done")]);
    let machine = Machine::with(&server);
    let mut person = Person::at(&machine, "make things");
    person.types("y\ny\ny\n");
    person.sees("[N] no: ");
    person.types("n\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{}", person.seen);
    assert!(!machine.work("made").exists());
}

#[test]
fn input_before_the_quiet_period_is_no_answer() {
    let server = ModelServer::start(vec![runs("touch made"), says("done")]);
    let machine = Machine::with(&server);
    let mut person = Person::at(&machine, "make things");
    // The command is shown, the answers are not yet: the person is still typing.
    person.sees("touch made");
    person.types("yes\ns\ny\n");
    person.sees("[N] no: ");
    person.types("n\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{}", person.seen);
    assert!(!machine.work("made").exists());
}

#[test]
fn user_grants_a_project_and_a_folder_persistently() {
    let write = |path: &str| calls(&[("write_file", json!({"path": path, "content": "x\n"}))]);
    let server = ModelServer::start(vec![write("src/a.rs"), says("done")]);
    let machine = Machine::with(&server);
    machine.write(
        ".posse/config.json",
        r#"{"model": "theirs", "permissions": [{"tool": "*", "decision": "allow"}]}"#,
    );
    for (answer, code) in [("n\n", 1), ("y\n", 0)] {
        let mut person = Person::facing(machine.command(&["trust", "add"]));
        person.sees("takes effect once trusted:\r\n  model = \"theirs\"\r\n");
        person.sees("never takes effect:\r\n  permissions = ");
        person.sees("a repository can only add rules that deny or ask");
        person.sees("trust these settings? [y/N] ");
        person.types(answer);
        assert_eq!(person.running.end().code, Some(code), "{}", person.seen);
    }
    let shown = machine.posse(&["config", "show", "--origin"]).stdout;
    assert!(shown.contains("config.json:1, trusted project)"), "{shown}");

    let mut person = Person::at(&machine, "make things");
    person.sees("[s] for this session  [p] in this project  [N] no: ");
    person.types("p\n");
    person.running.end().assert_code(0);
    assert!(machine.posse(&["grants", "list"]).stdout.contains("  write "), "{}", person.seen);
}

/// A command that must change a protected file: only a person can allow it, once.
fn wants_to_configure_git(then: &str) -> ModelServer {
    let command = "git config user.name Somebody; echo x >> AGENTS.md; true";
    ModelServer::start(vec![
        calls(&[("bash", json!({"command": command, "unprotect": [".git/config"]}))]),
        runs(then),
        says("done"),
    ])
}

#[test]
fn protection_stays_without_a_user() {
    let allow = json!({"permissions": [
        {"tool": "bash", "decision": "allow"},
        {"tool": "bash", "match": {"commandPrefix": "git config"}, "decision": "allow"},
        {"tool": "*", "match": {"pathGlob": "**"}, "decision": "allow"},
    ]});
    for arguments in [&["run", "set it up"][..], &["run", "--yes", "set it up"]] {
        let server = wants_to_configure_git("true");
        let machine = Machine::configured(&server, &allow, &json!({}));
        machine.write(".git/HEAD", "ref: refs/heads/main\n");
        machine.write(".git/config", "[core]\n\tbare = false\n");
        let ended = machine.posse(arguments);
        ended.assert_code(4);
        assert_eq!(machine.read(".git/config"), "[core]\n\tbare = false\n");
        let denied = &server.tool_results()[0];
        assert!(denied.contains("free to change .git/config"), "{denied}");
        assert!(!ended.stderr.contains("rule: {"), "{}", ended.stderr);
    }
    // A path that is not protected, or cannot be, is denied without a request.
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": "true", "unprotect": ["src/main.rs"]}))]),
        calls(&[("bash", json!({"command": "true", "unprotect": ["../elsewhere"]}))]),
        calls(&[("bash", json!({"command": "true", "unprotect": vec![".git"; 17]}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "--yes", "try"]).assert_code(0);
    let results = server.tool_results();
    assert!(results[0].contains("SH007 src/main.rs is not protected"), "{}", results[0]);
    assert!(results[1].contains("outside"), "{}", results[1]);
    assert!(results[2].contains("the limit is 16"), "{}", results[2]);
}

#[test]
fn approval_lifts_protection_for_one_command() {
    for backend in ["namespaces", "landlock"] {
        let server = wants_to_configure_git("git config user.name Other; true");
        let machine = Machine::with(&server);
        for folder in [".git/objects", ".git/refs"] {
            std::fs::create_dir_all(machine.work(folder)).unwrap();
        }
        machine.write(".git/HEAD", "ref: refs/heads/main\n");
        machine.write(".git/config", "[core]\n\tbare = false\n");
        machine.write("AGENTS.md", "Be kind.\n");
        let mut command = machine.command(&["run", "set it up"]);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        let mut person = Person::facing(command);
        person.sees("unprotecting .git/config");
        person.sees("free to change .git/config");
        person.sees("with all that is in it:");
        person.sees(&machine.work(".git/config").display().to_string());
        person.sees("allow? [y] once  [N] no: ");
        person.types("y\n");
        // The next one is held again, and it is only a command.
        person.sees("git config user.name Other");
        person.sees("[N] no: ");
        person.types("y\n");
        let ended = person.running.end();
        assert_eq!(ended.code, Some(0), "{backend}: {}", person.seen);
        let config = machine.read(".git/config");
        assert!(config.contains("Somebody") && !config.contains("Other"), "{backend}: {config}");
        assert_eq!(machine.read("AGENTS.md"), "Be kind.\n", "{backend}");
        machine.verify();
    }
}

#[test]
fn configuration_file_with_a_key_is_hidden_from_commands_and_tools() {
    const KEY: &str = "key-of-a-local-server";
    // The weaker tier can hide a file outside of the workspace only.
    for (backend, folder) in [("namespaces", "work/extra"), ("landlock", "extra")] {
        let look = "cd $AT && cat posse.json; cat posse.json >&2; cat other"
            .replace("$AT", if folder == "extra" { "../extra" } else { "extra" });
        let server = ModelServer::start(vec![
            runs(&look),
            calls(&[("read_file", json!({"path": "local.json"}))]),
            says("done"),
        ]);
        let machine = Machine::with(&server);
        let file = machine.path(folder).join("posse.json");
        std::fs::create_dir_all(machine.path(folder)).unwrap();
        let settings = json!({"providers": {"other": {"apiKey": KEY}}}).to_string();
        std::fs::write(&file, settings).unwrap();
        std::fs::write(machine.path(folder).join("other"), "ordinary").unwrap();
        std::os::unix::fs::symlink(&file, machine.work("local.json")).unwrap();
        let config = file.display().to_string();
        let mut command = machine.command(&["run", "--yes", "--config", &config, "look"]);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        RunningPosse::start(command).end().assert_code(0);
        let results = server.tool_results().join("\n");
        assert!(!results.contains(KEY) && results.contains("ordinary"), "{backend}: {results}");
        assert!(results.contains("Permission denied"), "{backend}: {results}");
        let refused =
            if folder == "extra" { "is outside the workspace" } else { "a file of posse" };
        assert!(results.contains(refused), "{backend}: {results}");
    }
}

#[test]
fn secrets_in_renamed_folders_stay_hidden_from_commands_and_tools() {
    const FILES: [(&str, &str); 4] = [
        (".streamlit/secrets.toml", "st/secrets.toml"),
        (".docker/config.json", "dk/config.json"),
        ("app/.env", "vendor/app/.env"),
        ("deploy/.aws/sso/token.json", "deploy/.aws/sso/token.json"),
    ];
    let rename = "mkdir vendor && mv .streamlit st && mv .docker dk && mv app vendor/ \
                  && mv deploy d && mv d/note.txt . && mv d deploy && echo renamed";
    let moved = FILES.map(|(_, to)| to);
    let mut reads: Vec<_> =
        moved.iter().map(|path| ("read_file", json!({ "path": path }))).collect();
    reads.extend([
        ("grep", json!({"pattern": "hunter"})),
        ("grep", json!({"pattern": "hunter", "path": "dk/config.json"})),
        ("edit_file", json!({"path": "st/secrets.toml", "oldString": "hunter2", "newString": "x"})),
        ("read_file", json!({"path": "dk/Dockerfile"})),
    ]);
    let cat = "grep -r hunter .; cat note.txt st/* dk/*; mv dk/config.json x";
    let server = ModelServer::start(vec![runs(rename), calls(&reads), runs(cat), says("done")]);
    let machine = Machine::with(&server);
    for (from, _) in FILES {
        std::fs::create_dir_all(machine.work(from).parent().unwrap()).unwrap();
        machine.write(from, "KEY=hunter2\n");
    }
    machine.write(".docker/Dockerfile", "FROM scratch\n");
    machine.write("deploy/note.txt", "ordinary\n");
    let mut command = machine.command(&["run", "--yes", "look"]);
    command.env("POSSE_SANDBOX_BACKEND", "namespaces");
    RunningPosse::start(command).end().assert_code(0);
    let results = server.tool_results();
    let all = results.join("\n");
    assert!(results[0].contains("renamed"), "{all}");
    assert!(!all.contains("hunter2"), "{all}");
    assert!(all.contains("FROM scratch") && all.contains("ordinary"), "{all}");
    assert!(all.contains("Permission denied"), "{all}");
    assert!(results[1].contains("ARG003") && results[2].contains("ARG003"), "{all}");
}

/// Dependency confusion: without its configuration, npm asks the public registry.
#[test]
fn installation_is_refused_if_the_file_that_names_the_registry_is_hidden() {
    let server = ModelServer::start(vec![
        runs("npm install left-pad"),
        runs("cd src && FOO=1 npx prettier ."),
        runs("npm run build"),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    // It is too large for a copy without the credentials.
    let settings = "registry=http://127.0.0.1:9/\n//127.0.0.1:9/:_authToken=abc\n";
    machine.write(".npmrc", settings.to_owned() + &"; a comment\n".repeat(6000));
    machine.write("src/index.js", "");
    let mut command = machine.command(&["run", "--yes", "install"]);
    command.env("POSSE_SANDBOX_BACKEND", "namespaces");
    RunningPosse::start(command).end();
    let results = server.tool_results();
    for (result, program) in [(&results[0], "npm"), (&results[1], "npx")] {
        assert!(result.contains(&format!("SH008 {program} was not run")), "{result}");
        assert!(result.contains("names the package registry"), "{result}");
        assert!(!result.contains("abc"), "{result}");
    }
    assert!(!results[2].contains("SH008"), "{}", results[2]);

    // Once the user lets tools read the file, the package manager uses it.
    let install = "npm install left-pad --fetch-retries=0 --no-audit";
    let server = ModelServer::start(vec![runs(install), says("done")]);
    let file = machine.work(".npmrc").canonicalize().unwrap();
    let settings = json!({
        "defaultProvider": "local", "sandbox": {"readSecrets": [file]},
        "providers": {"local": {
            "type": "openai-compatible", "baseURL": server.base_url(), "model": "m", "auth": "none",
        }},
    });
    machine.write_config(&settings.to_string());
    let mut command = machine.command(&["run", "--yes", "install"]);
    command.env("POSSE_SANDBOX_BACKEND", "namespaces");
    RunningPosse::start(command).end();
    assert!(!server.tool_results()[0].contains("SH008"), "{:?}", server.tool_results());
}

#[test]
fn configuration_file_with_a_key_in_the_workspace_makes_every_command_ask_on_the_weaker_tier() {
    let server = ModelServer::start(vec![runs("cat other"), says("done")]);
    let allow = json!({"permissions": [{"tool": "bash", "decision": "allow"}]});
    let machine = Machine::configured(&server, &allow, &json!({}));
    machine.write("other", "ordinary");
    machine.write("own.json", r#"{"providers": {"other": {"apiKey": "key-of-a-local-server"}}}"#);
    let mut command = machine.command(&["run", "--config", "own.json", "look"]);
    command.env("POSSE_SANDBOX_BACKEND", "landlock");
    RunningPosse::start(command).end().assert_code(4);
    let results = server.tool_results();
    assert!(results[0].contains("cannot be hidden here"), "{results:?}");
}

#[test]
fn every_command_is_asked_about_in_an_unscannable_workspace() {
    for arguments in [&["run", "look"][..], &["run", "--yes", "look"]] {
        let server = ModelServer::start(vec![runs("ls > seen"), runs("ls > seen"), says("done")]);
        let allow = json!({"permissions": [{"tool": "bash", "decision": "allow"}]});
        let machine = Machine::configured(&server, &allow, &json!({}));
        for number in 0..30 {
            machine.write(&format!("d{number}/e/f.txt"), "x");
        }
        let mut command = machine.command(arguments);
        command.env("POSSE_SANDBOX_SURVEY", "20");
        let ended = RunningPosse::start(command).end();
        ended.assert_code(4);
        assert!(!machine.work("seen").exists());
        let results = server.tool_results();
        assert!(results[0].contains("more folders than are scanned"), "{}", results[0]);
        assert!(results[0].contains("run it again"), "{}", results[0]);
        assert!(results[1].contains("Denied: "), "{}", results[1]);
        assert!(
            results[1].contains("Start it in a subfolder to narrow the scan"),
            "{}",
            results[1]
        );
    }
    // A person may let it run, and has to each time.
    let server = ModelServer::start(vec![runs("true"), runs("ls > seen"), says("done")]);
    let allow = json!({"permissions": [{"tool": "bash", "decision": "allow"}]});
    let machine = Machine::configured(&server, &allow, &json!({}));
    for number in 0..30 {
        machine.write(&format!("d{number}/e/f.txt"), "x");
    }
    let mut command = machine.command(&["run", "look"]);
    command.env("POSSE_SANDBOX_SURVEY", "20");
    let mut person = Person::facing(command);
    person.sees("ls > seen");
    person.sees("more folders than are scanned");
    person.sees("allow? [y] once  [N] no: ");
    person.types("y\n");
    person.running.end().assert_code(0);
    assert!(machine.work("seen").exists(), "{}", person.seen);
}

#[test]
fn ctrl_c_stops_at_a_permission_request() {
    let server = ModelServer::start(vec![runs("touch made")]);
    let machine = Machine::with(&server);
    let mut person = Person::at(&machine, "make things");
    person.sees("[N] no: ");
    person.running.signal(Signal::SIGINT);
    person.sees("\r\n! interrupted\r\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(130), "{}", person.seen);
    assert!(!machine.work("made").exists());
    machine.verify();
}

#[test]
fn long_command_needs_reading_to_the_end() {
    let long = format!("{}touch PWNED", "echo\n".repeat(205));
    let server = ModelServer::start(vec![runs(&long), runs(&long), says("done")]);
    let machine = Machine::with(&server);
    let mut person = Person::at(&machine, "make things");
    person.sees("[Enter] more (6 lines left)  [N] no: ");
    assert!(!person.seen.contains("PWNED"), "{}", person.seen);
    person.types("y\n");
    person.sees("not all of it was shown yet");
    person.sees("[N] no: ");
    person.types("n\n");
    person.sees("(6 lines left)  [N] no: ");
    assert!(!machine.work("PWNED").exists());
    person.types("\n");
    person.sees("│ touch PWNED");
    person.sees("allow? [y] once");
    person.sees("[N] no: ");
    person.types("y\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{}", person.seen);
    assert!(machine.work("PWNED").exists());
}

/// A shell line in the foreground of a terminal.
fn shell(machine: &Machine, line: &str) -> Command {
    let program = machine.command(&["run"]);
    let mut command = Command::new("setsid");
    command.args(["--ctty", "sh", "-c", line, env!("CARGO_BIN_EXE_posse")]);
    command.current_dir(machine.path("work")).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::piped());
    command
}

#[test]
fn piped_input_does_not_answer_permission_requests() {
    let server = ModelServer::start(vec![runs("touch made"), runs("touch never"), says("done")]);
    let machine = Machine::with(&server);
    let line = "printf 'y\\ny\\n' | \"$0\" run 'make things'";
    let mut person = Person::facing(shell(&machine, line));
    person.sees("touch made");
    person.sees("[N] no: ");
    person.types("y\n");
    person.sees("touch never");
    person.sees("[N] no: ");
    person.types("n\n");
    let ended = person.running.end();
    assert_eq!(ended.code, Some(0), "{}", person.seen);
    assert_eq!(ended.stdout, "done\n");
    assert!(machine.work("made").exists() && !machine.work("never").exists());
    let prompt = server.requests()[0]["messages"][1]["content"].to_string();
    assert!(prompt.contains("<stdin>"), "{prompt}");
}

#[test]
fn unenforced_sandbox_parts_are_reported() {
    let unenforced = |more: &serde_json::Value, args: &[&str]| -> Vec<String> {
        let server = ModelServer::start(vec![says("hi")]);
        let machine = Machine::configured(&server, more, &json!({}));
        let mut command = machine.command(&[&["run"], args, &["say hi"]].concat());
        command.env("POSSE_SANDBOX_BACKEND", "nothing");
        let ended = RunningPosse::start(command).end();
        ended.assert_code(0);
        let lines = ended.stderr.lines().filter(|line| line.contains("not enforced"));
        lines.map(str::to_owned).collect()
    };
    let none = json!({});
    assert_eq!(unenforced(&none, &[]), [""; 0]);
    assert_eq!(
        unenforced(&none, &["--sandbox", "workspace-write", "--network", "deny"]),
        [
            "sandbox none: --sandbox workspace-write is not enforced on commands here",
            "sandbox none: --network deny is not enforced on commands here",
        ]
    );
    assert_eq!(unenforced(&none, &["--sandbox", "off", "--network", "inherit"]), [""; 0]);
    assert_eq!(
        unenforced(&json!({"sandbox": {"mode": "read-only"}}), &[]),
        ["sandbox none: sandbox.mode read-only is not enforced on commands here"]
    );
}
