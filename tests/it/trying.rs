//! `posse try`: a command changes a throw-away view of the workspace, and its changes are shown,
//! then kept or dropped.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use posse::hex::sha256;
use serde_json::{Value, json};

use crate::plain::Terminal;
use crate::posse::{FinishedRun, Machine, RunningPosse};

/// Recursive digest of a folder: names, kinds, permissions, times of change and contents, without the
/// times at which files were read.
pub(crate) fn digest(folder: &Path) -> String {
    let mut lines = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let found = fs::symlink_metadata(&entry).unwrap();
            let content = if found.is_file() {
                sha256(&fs::read(&entry).unwrap())
            } else if found.is_symlink() {
                fs::read_link(&entry).unwrap().display().to_string()
            } else {
                String::new()
            };
            let (mode, changed) = (found.mode(), (found.ctime(), found.ctime_nsec()));
            let (inode, names) = (found.ino(), found.nlink());
            lines.push(format!("{} {mode} {changed:?} {inode} {names} {content}", entry.display()));
            if found.is_dir() {
                folders.push(entry);
            }
        }
    }
    lines.sort();
    sha256(lines.join("\n").as_bytes())
}

fn git(machine: &Machine, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
    let ended = command.current_dir(machine.path("work")).output().unwrap();
    String::from_utf8(ended.stdout).unwrap()
}

/// A machine with a repository.
fn machine() -> Machine {
    with_repository(Machine::new())
}

/// `machine`, a new one, with a repository.
pub(crate) fn with_repository(machine: Machine) -> Machine {
    fs::remove_dir(machine.work(".git")).unwrap();
    git(&machine, &["init", "-q"]);
    for file in ["a", "d/b", "d/e/c", "src/main.rs", ".env", "tool.sh"] {
        machine.write(file, format!("{file}\n"));
    }
    symlink("d/b", machine.work("link")).unwrap();
    git(&machine, &["add", "a", "d", "src", "tool.sh", "link"]);
    git(&machine, &["commit", "-qm", "first"]);
    machine
}

/// A command that changes, adds, removes and renames much, and tries to leave the workspace.
const EVERYTHING: &str = "echo more >> a; rm -r d; mkdir d; echo other > d/f; chmod 755 tool.sh; \
    echo x > .envrc; echo x > .git/hooks/post-commit; cat .env; rm .env; mv src moved; rm link; \
    ln -s /etc/passwd link; mkfifo pipe; ln a hard; mknod fake c 0 0; touch -d 2001-01-01 a; \
    echo x > ../outside; echo x > \"$HOME/outside\"; git init -q sub; \
    python3 -c 'import os; os.setxattr(\"d\", \"user.overlay.opaque\", b\"y\")'; \
    git add a; git -c user.name=a -c user.email=a@b commit -qm second; true";

fn tried(machine: &Machine, args: &[&str]) -> (FinishedRun, Value) {
    let ended = machine.posse(&[&["try", "--json"], args].concat());
    let value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|_| panic!("{}\n{}", ended.stdout, ended.stderr));
    (ended, value)
}

/// Paths of the changes of one kind.
fn of_kind(value: &Value, kind: &str) -> Vec<String> {
    let changes = value["changes"].as_array().unwrap().iter();
    let wanted = changes.filter(|change| change["change"] == kind);
    wanted.map(|change| change["path"].as_str().unwrap().to_owned()).collect()
}

/// Nothing of a trial may be left below the state directory.
pub(crate) fn assert_nothing_is_left(machine: &Machine) {
    let mut folders = vec![machine.path("posse")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_trials = entry.file_name().is_some_and(|name| name == "trials");
            assert!(
                !is_trials || fs::read_dir(&entry).unwrap().count() == 0,
                "{}",
                entry.display()
            );
            if entry.is_dir() {
                folders.push(entry);
            }
        }
    }
}

/// First path below the folders of the projects that ends with `ending`.
fn find(machine: &Machine, ending: &Path) -> Option<PathBuf> {
    let mut folders = vec![machine.path("posse/state/projects")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).into_iter().flatten();
        for entry in entries.map(|entry| entry.unwrap().path()) {
            if entry.ends_with(ending) {
                return Some(entry);
            }
            folders.push(entry);
        }
    }
    None
}

/// Waits until the command of a trial has changed `file`.
pub(crate) fn wait_for_layer(machine: &Machine, file: &str) {
    let started = Instant::now();
    // The number of the layer depends on the order of the folders.
    let layer = |number| Path::new("layers").join(format!("{number}/upper")).join(file);
    while (0..2).all(|number| find(machine, &layer(number)).is_none()) {
        assert!(started.elapsed() < Duration::from_secs(30), "the command does not run");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn dropped_trial_leaves_every_byte_of_the_workspace() {
    let machine = machine();
    let before = digest(&machine.path("work"));
    let ended = machine.posse(&["try", "--", EVERYTHING]);
    ended.assert_code(0);
    assert!(ended.stdout.ends_with("Dropped.\n"), "{}", ended.stdout);
    for line in [
        "\n+more\n",
        "diff --git a/d/e/c b/d/e/c\ndeleted file mode 100644\n",
        "diff --git a/d/f b/d/f\nnew file mode 100644\n",
        "diff --git a/tool.sh b/tool.sh\nold mode 100644\nnew mode 100755\n",
        "added    pipe (no regular file)\n",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    assert_eq!(digest(&machine.path("work")), before);
    assert!(!machine.path("outside").exists() && !machine.path("home/outside").exists());
    assert_nothing_is_left(&machine);
    let (ended, value) = tried(&machine, &["--drop", "--", EVERYTHING]);
    ended.assert_code(0);
    assert_eq!((&value["exitCode"], &value["kept"]), (&json!(0), &Value::Null));
    assert_eq!(digest(&machine.path("work")), before);
    // Secrets are hidden, and existing control files cannot be changed, as in any command.
    assert!(!value["output"].as_str().unwrap().contains(".env\n"), "{value}");
    let changed: Vec<String> = ["added", "modified", "deleted", "mode"]
        .iter()
        .flat_map(|kind| of_kind(&value, kind))
        .collect();
    for untouched in [".env", ".git/hooks/post-commit", "fake"] {
        assert!(!changed.iter().any(|path| path == untouched), "{untouched}: {changed:?}");
    }
    assert!(
        changed
            .iter()
            .any(|path| path == ".git/refs/heads/master" || path == ".git/refs/heads/main")
    );
}

#[test]
fn kept_trial_is_in_the_workspace_and_can_be_undone() {
    let machine = machine();
    let secret = machine.read(".env");
    let (ended, value) = tried(&machine, &["--keep", "--", EVERYTHING]);
    // Some changes are never kept.
    ended.assert_code(1);
    let kept = &value["kept"];
    let refused: Vec<(&str, &str)> = kept["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["path"].as_str().unwrap(), row["reason"].as_str().unwrap()))
        .filter(|(path, _)| !path.starts_with("sub/.git/"))
        .collect();
    let special = "it is no file, folder or link";
    assert_eq!(refused, [(".envrc", "it is protected"), ("pipe", special)]);
    assert_eq!(machine.read("a"), "a\nmore\n");
    assert_eq!(
        (machine.read("d/f"), machine.read("moved/main.rs")),
        ("other\n".into(), "src/main.rs\n".into())
    );
    for gone in ["d/b", "d/e", "src", ".envrc", "pipe", "sub/.git/hooks", "sub/.git/config"] {
        assert!(fs::symlink_metadata(machine.work(gone)).is_err(), "{gone}");
    }
    assert_eq!(machine.read(".env"), secret);
    assert_eq!(fs::metadata(machine.work("tool.sh")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(machine.work("link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(git(&machine, &["log", "--format=%s"]), "second\nfirst\n");
    assert_eq!(git(&machine, &["fsck", "--strict"]), "");
    assert!(!machine.work(".git/hooks/post-commit").exists());
    assert_nothing_is_left(&machine);

    machine.posse(&["undo", "--yes"]).assert_code(0);
    for file in ["a", "d/b", "d/e/c", "src/main.rs"] {
        assert_eq!(machine.read(file), format!("{file}\n"));
    }
    assert!(!machine.work("moved").exists() && !machine.work("d/f").exists());
}

/// A checkpoint does not contain ignored files, so keeping a trial names those that `undo` leaves.
#[test]
fn kept_changes_of_ignored_files_are_named() {
    let machine = machine();
    machine.write(".gitignore", "*.log\n");
    machine.write("x.log", "kept by hand\n");
    let command = "rm x.log; mkdir -p build; echo y > build/y.log; echo more >> a";
    let (ended, value) = tried(&machine, &["--keep", "--", command]);
    ended.assert_code(0);
    assert_eq!(value["kept"]["notUndone"], json!(["x.log", "build/y.log"]), "{value}");
    machine.posse(&["undo", "--yes"]).assert_code(0);
    assert_eq!(machine.read("a"), "a\n");
    assert!(!machine.work("x.log").exists());
    machine.write("x.log", "again\n");
    let ended = machine.posse(&["try", "--keep", "--", "rm x.log"]);
    let said = "takes them back, except:\n  cannot be undone  x.log: git ignores it";
    assert!(ended.stdout.contains(said), "{}", ended.stdout);
    let ended = machine.posse(&["try", "--keep", "--", "echo again >> a"]);
    assert!(ended.stdout.contains("takes them back.\n"), "{}", ended.stdout);
}

#[test]
fn control_files_without_a_protected_name_are_checked_after_keeping() {
    let machine = machine();
    let command = "mkdir -p x/objects x/refs x/hooks; echo 'ref: refs/heads/m' > x/HEAD; \
                   echo '#!/bin/sh' > x/hooks/post-receive; \
                   printf '[core]\\n\\tfsmonitor = evil\\n' > x/config";
    let (ended, value) = tried(&machine, &["--keep", "--", command]);
    ended.assert_code(1);
    assert_eq!(value["kept"]["refused"], json!([]));
    let findings = value["kept"]["findings"].to_string();
    for finding in ["x/config got settings that may run programs", "x/hooks/post-receive"] {
        assert!(findings.contains(finding), "{findings}");
    }
    assert!(!machine.read("x/config").contains("evil"));
    assert!(!machine.work("x/hooks/post-receive").exists());
}

#[test]
fn doctor_says_if_commands_can_be_tried() {
    let machine = machine();
    let row = |home: &Path| {
        let mut command = machine.command(&["doctor", "--json"]);
        command.env("POSSE_HOME", home);
        let report: Value =
            serde_json::from_str(&RunningPosse::start(command).end().stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let check = checks.filter(|check| check["name"] == "trials").collect::<Vec<_>>();
        assert_eq!(check.len(), 1, "{report}");
        (check[0]["status"].as_str().unwrap().to_owned(), check[0]["detail"].to_string())
    };
    let (status, detail) = row(&machine.path("posse"));
    assert_eq!(status, "good", "{detail}");
    let inside = machine.work("state");
    fs::create_dir(&inside).unwrap();
    let (status, detail) = row(&inside);
    assert!(status == "fact" && detail.contains("is in the workspace"), "{status} {detail}");
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "nothing is left");
}

#[test]
fn changes_of_a_failed_command_are_not_kept_by_a_flag() {
    let machine = machine();
    let before = digest(&machine.path("work"));
    let (ended, value) = tried(&machine, &["--keep", "--", "echo said; echo x > a; exit 3"]);
    ended.assert_code(1);
    assert_eq!((&value["exitCode"], &value["kept"]), (&json!(3), &Value::Null));
    assert_eq!(
        (&value["output"], of_kind(&value, "modified")),
        (&json!("said\n"), vec!["a".to_owned()])
    );
    assert_eq!(digest(&machine.path("work")), before);
}

#[test]
fn several_arguments_are_a_program_and_its_arguments() {
    let machine = machine();
    let args = ["try", "--keep", "--", "cp", "a", "b; touch $(echo no)"];
    machine.posse(&args).assert_code(0);
    assert_eq!(machine.read("b; touch $(echo no)"), "a\n");
    assert!(!machine.work("no").exists());
}

#[test]
fn trial_has_no_network_and_says_that_folders_cannot_be_renamed() {
    let machine = machine();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let command = format!(
        "python3 -c 'import os, errno\n\
         try: os.rename(\"src\", \"src2\")\n\
         except OSError as e: print(errno.errorcode[e.errno])'; \
         (: <> /dev/tcp/127.0.0.1/{port}) 2> /dev/null || echo no network"
    );
    let (ended, value) = tried(&machine, &["--", &command]);
    ended.assert_code(0);
    assert_eq!(value["output"], "EXDEV\nno network\n");
    let hint = value["hint"].as_str().unwrap();
    assert!(hint.contains("fails in a trial only"), "{hint}");
    assert_eq!(value["changes"], json!([]));
}

/// Later commands of the line may succeed.
#[test]
fn trial_says_that_a_folder_cannot_be_renamed_in_it() {
    let machine = machine();
    for command in ["git mv src src2", "git mv src src2; true"] {
        let ended = machine.posse(&["try", "--drop", "--", command]);
        assert!(ended.stdout.contains("Invalid cross-device link"), "{}", ended.stdout);
        assert!(ended.stdout.contains("Note: a trial cannot rename a folder"), "{}", ended.stdout);
    }
}

#[test]
fn other_mechanisms_of_the_sandbox_refuse_with_a_reason() {
    let machine = machine();
    for backend in ["bubblewrap", "landlock", "nothing"] {
        let mut command = machine.command(&["try", "--", "echo x > a"]);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        let ended = RunningPosse::start(command).end();
        ended.assert_code(7);
        let reason = format!("a trial needs the namespaces of posse, and the sandbox is {backend}");
        assert!(
            ended.stderr.contains("SBX004") && ended.stderr.contains(&reason),
            "{}",
            ended.stderr
        );
        assert_eq!(machine.read("a"), "a\n");
    }
    // The state directory in the workspace.
    let mut command = machine.command(&["try", "--", "echo x > a"]);
    command.env("POSSE_HOME", machine.work("state"));
    let ended = RunningPosse::start(command).end();
    ended.assert_code(7);
    assert!(ended.stderr.contains("is in the workspace"), "{}", ended.stderr);
}

#[test]
fn unreadable_and_huge_files_do_not_stop_a_trial() {
    let machine = machine();
    machine.write("closed", "c");
    fs::set_permissions(machine.work("closed"), Permissions::from_mode(0o000)).unwrap();
    let command = "mkdir shut; echo x > shut/in; chmod 000 shut; truncate -s 1T sparse; \
                   head -c 3000 /dev/zero > zeros; mkdir many; cd many; \
                   for i in $(seq 300); do echo $i > f$i; done";
    let (ended, value) = tried(&machine, &["--keep", "--", command]);
    ended.assert_code(0);
    let changes = value["changes"].as_array().unwrap();
    let zeros = changes.iter().find(|change| change["path"] == "zeros").unwrap();
    let row = json!({
        "path": "zeros", "change": "added", "type": "file", "bytesAfter": 3000,
        "notInDiff": "binary",
    });
    assert_eq!(*zeros, row);
    assert_eq!(fs::metadata(machine.work("shut")).unwrap().mode() & 0o7777, 0);
    let sparse = fs::metadata(machine.work("sparse")).unwrap();
    assert!(sparse.len() == 1 << 40 && sparse.blocks() == 0);
    assert_eq!(fs::read_dir(machine.work("many")).unwrap().count(), 300);
    fs::set_permissions(machine.work("shut"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(machine.read("shut/in"), "x\n");
}

#[test]
fn person_at_a_terminal_decides() {
    let machine = machine();
    let before = digest(&machine.path("work"));
    let ask = || {
        let mut terminal = Terminal::run(&machine, &["try", "--", "echo new >> a"], "xterm");
        terminal.see("+new");
        terminal.see("Keep these changes (k) or drop them (n)? ");
        terminal
    };
    let mut terminal = ask();
    terminal.press("what\n");
    terminal.see("or drop them (n)? ");
    terminal.press("n\n");
    terminal.see("Dropped.");
    assert_eq!(terminal.end(), Some(0));
    let mut terminal = ask();
    terminal.signal(Signal::SIGINT);
    assert_eq!(terminal.end(), Some(130));
    assert_eq!(digest(&machine.path("work")), before);
    assert_nothing_is_left(&machine);
    let mut terminal = ask();
    terminal.press("k\n");
    terminal.see("Kept 1 of 1 changes. Checkpoint 1: `posse undo`");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(machine.read("a"), "a\nnew\n");
}

#[test]
fn interrupted_trial_leaves_nothing() {
    let machine = machine();
    let before = digest(&machine.path("work"));
    let command = machine.command(&["try", "--", "echo x > a; exec sleep 600"]);
    let mut running = RunningPosse::start(command);
    wait_for_layer(&machine, "a");
    running.signal(Signal::SIGINT);
    assert_eq!(running.wait().code(), Some(130));
    assert_eq!(digest(&machine.path("work")), before);
    assert_nothing_is_left(&machine);
}

#[test]
fn added_workspace_folders_are_views_as_well() {
    let machine = machine();
    let other: PathBuf = machine.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("f"), "old\n").unwrap();
    machine.write_config(&json!({ "workspace": { "roots": [other] } }).to_string());
    let command = format!("echo new > '{0}/f'; echo x > '{0}/g'; echo y > h", other.display());
    let before = (digest(&other), digest(&machine.path("work")));
    let (ended, value) = tried(&machine, &["--", &command]);
    ended.assert_code(0);
    assert_eq!((digest(&other), digest(&machine.path("work"))), before);
    assert_eq!(of_kind(&value, "modified"), [other.join("f").display().to_string()]);
    let (ended, _) = tried(&machine, &["--keep", "--", &command]);
    ended.assert_code(0);
    assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "new\n");
    assert_eq!(
        (fs::read_to_string(other.join("g")).unwrap(), machine.read("h")),
        ("x\n".into(), "y\n".into())
    );
}

#[test]
fn control_file_that_another_program_creates_during_a_trial_stays() {
    let machine = machine();
    machine.write("flag", "wait\n");
    for ending in ["true", "exec sleep 600"] {
        let line = format!("echo x > a; until grep -q go flag; do sleep 0.01; done; {ending}");
        let mut running = RunningPosse::start(machine.command(&["try", "--", &line]));
        wait_for_layer(&machine, "a");
        machine.write(".envrc", "of the user\n");
        // In place: the view shows the content of a file that the command did not change.
        machine.write("flag", "go\n");
        if ending != "true" {
            running.signal(Signal::SIGINT);
        }
        running.wait();
        assert_eq!(machine.read(".envrc"), "of the user\n", "{ending}");
        assert_nothing_is_left(&machine);
        fs::remove_file(machine.work(".envrc")).unwrap();
        machine.write("flag", "wait\n");
    }
}

#[test]
fn tracked_secrets_that_the_command_does_not_see_are_named() {
    let machine = machine();
    git(&machine, &["add", "-f", ".env"]);
    git(&machine, &["commit", "-qm", "second"]);
    machine.write(".env", "KEY=changed\n");
    let ended = machine.posse(&["try", "--", "true"]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("SBX011") && ended.stdout.contains("/.env"), "{}", ended.stdout);
    let (_, value) = tried(&machine, &["--", "true"]);
    assert!(value["hidden"][0].as_str().unwrap().contains("/.env"), "{value}");
}

#[test]
fn kept_changes_are_shown_although_the_checkpoint_cannot_be_finished() {
    let machine = machine();
    let keep = ["try", "--keep", "--", "echo new >> a"];
    machine.posse(&keep).assert_code(0);
    // Now the store has all files, so a checkpoint writes nothing to it before the next change.
    let refs = find(&machine, Path::new("refs/checkpoints")).unwrap();
    fs::remove_dir_all(&refs).unwrap();
    fs::write(&refs, "").unwrap();
    let ended = machine.posse(&keep);
    ended.assert_code(1);
    let kept = "Kept 1 of 1 changes. Checkpoint 2: `posse undo`";
    assert!(ended.stdout.contains(kept), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("git cannot store the checkpoint"), "{}", ended.stderr);
    assert_eq!(machine.read("a"), "a\nnew\nnew\n");
}

#[test]
fn changes_that_cannot_be_kept_have_a_failure_of_their_own() {
    let machine = machine();
    let name = "d".repeat(200);
    let command = format!("for i in $(seq 50); do mkdir {name}; cd {name}; done");
    let ended = machine.posse(&["try", "--keep", "--", &command]);
    ended.assert_code(7);
    for said in ["SBX004]: the changes cannot be kept", "the trial has more changes than are read"]
    {
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("doctor"), "{}", ended.stderr);
    assert!(!machine.work(&name).exists());
    assert_nothing_is_left(&machine);
}

/// `git apply` and `patch` turn the files before a command into those after it.
#[test]
fn diff_of_a_trial_is_a_patch_and_its_changes_are_a_list() {
    let command = "echo more >> a; rm -r d; mkdir d; echo other > d/f; chmod 755 tool.sh; \
                   mv src moved; rm link; ln -s a link; printf 'no end' > 'b c'; : > empty; \
                   ln -s nowhere 'new link'; head -c 99 /dev/zero > zeros; mkdir folder; \
                   printf 'caf\\351\\n' > latin; mkfifo pipe; chmod 600 tool.sh; git add a";
    let machine = machine();
    // A secret of the environment, which posse knows.
    let secret = "unused-token-5f0c9a7e41";
    let (ended, value) = tried(&machine, &["--", &format!("{command}; echo {secret} > token")]);
    ended.assert_code(0);
    let reason = |path: &str| {
        let changes = value["changes"].as_array().unwrap();
        let change = changes.iter().find(|change| change["path"] == path);
        change.unwrap_or_else(|| panic!("{path}: {value}"))["notInDiff"].clone()
    };
    for (path, expected) in [
        ("zeros", "binary"),
        ("latin", "binary"),
        ("folder", "folder"),
        ("pipe", "special"),
        ("tool.sh", "permissions"),
        (".git/index", "git"),
        ("token", "secret"),
    ] {
        assert_eq!(reason(path), expected, "{path}");
    }
    assert_eq!(reason("a"), Value::Null);
    let diff = value["diff"].as_str().unwrap();
    fs::write(machine.path("patch"), diff).unwrap();
    let run = |program: &str, args: &[&str], folder: &str| {
        let mut command = Command::new(program);
        let ended = command.args(args).current_dir(machine.path(folder)).output().unwrap();
        let text = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert!(ended.status.success(), "{program} {args:?}: {text}\n{diff}");
    };
    run("cp", &["-a", "work", "copy"], ".");
    run("git", &["apply", "--check", "../patch"], "work");
    run("git", &["apply", "../patch"], "work");
    if Command::new("patch").arg("--version").output().is_ok() {
        run("patch", &["-p1", "-i", "../patch"], "copy");
        run("diff", &["-r", "--no-dereference", "work", "copy"], ".");
    }
    let read = |path: &str| machine.read(path);
    assert_eq!(
        (read("a"), read("d/f"), read("b c")),
        ("a\nmore\n".into(), "other\n".into(), "no end".into())
    );
    assert_eq!(read("moved/main.rs"), "src/main.rs\n");
    assert_eq!(fs::read_link(machine.work("link")).unwrap(), Path::new("a"));
    assert_eq!(fs::read_link(machine.work("new link")).unwrap(), Path::new("nowhere"));
    assert!(!machine.work("d/b").exists() && !machine.work("src").exists());
    assert_eq!(read("empty"), "");
}

#[test]
fn trial_names_each_change_once() {
    let machine = machine();
    let command = "echo more >> a; rm d/b; echo x > n; chmod 755 tool.sh; mkdir folder; \
                   head -c 9 /dev/zero > zeros; chmod 600 d/e/c";
    let ended = machine.posse(&["try", "--", command]);
    ended.assert_code(0);
    let shown: Vec<&str> =
        ended.stdout.lines().filter(|line| !line.starts_with("SBX011 ")).collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    added    folder/
    added    zeros (binary or large: no file before, 9 bytes after)
    mode     d/e/c (mode 644 to 600)
    diff --git a/a b/a
    --- a/a
    +++ b/a
    @@ -1 +1,2 @@
     a
    +more
    diff --git a/n b/n
    new file mode 100644
    --- /dev/null
    +++ b/n
    @@ -0,0 +1 @@
    +x
    diff --git a/tool.sh b/tool.sh
    old mode 100644
    new mode 100755
    diff --git a/d/b b/d/b
    deleted file mode 100644
    --- a/d/b
    +++ /dev/null
    @@ -1 +0,0 @@
    -d/b
    The command succeeded; 3 added, 1 modified, 1 deleted, 2 with other permissions
    Dropped.
    ");
}
