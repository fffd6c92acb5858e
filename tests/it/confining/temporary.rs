//! Temporary folder of a session: shared by its commands, bounded, private, and removed at the end.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::signal::Signal;

use super::*;
use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{Machine, RunningPosse};

/// A sandbox of the same session with other roots, as a subagent in a worktree has it.
fn beside(place: &SandboxedWorkspace, backend: Backend) -> Sandbox {
    let surroundings = Surroundings {
        roots: vec![place.path("outside")],
        own: vec![place.path("state")],
        ..Surroundings::default()
    };
    Sandbox::with_helper(PathBuf::from(env!("CARGO_BIN_EXE_posse")), Vec::new())
        .confined(ProbeRequest::Exactly(backend), surroundings)
}

async fn until_gone(folder: &Path) {
    let begin = Instant::now();
    while folder.exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn temporary_folder_is_shared_by_the_commands_of_a_session() {
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        let name = format!("posse-{}", std::process::id());
        place.run(&format!("echo one > $TMPDIR/{name}; chmod 644 $TMPDIR/{name}")).await;
        assert_eq!(place.run(&format!("cat $TMPDIR/{name}")).await.text, "one\n", "{backend:?}");
        if backend != Backend::Landlock {
            assert_eq!(
                place.run(&format!("cat /tmp/{name}; echo $TMPDIR")).await.text,
                "one\n/tmp\n"
            );
        }
        assert!(!Path::new("/tmp").join(&name).exists(), "{backend:?}: the host has it");
        place.profile = "read-only";
        let both = format!("echo two >> $TMPDIR/{name} && cat $TMPDIR/{name}");
        assert_eq!(place.run(&both).await.text, "one\ntwo\n", "{backend:?}");
        place.profile = "workspace-write";
        let other = beside(&place, backend);
        let spawn = Spawn {
            directory: Directory::Path(place.path("outside")),
            ..place.spawn(&format!("rm $TMPDIR/{name}; echo three > $TMPDIR/3; ls -a $TMPDIR/3"))
        };
        let outcome = other.run(spawn, |_| {}).await.unwrap();
        assert_eq!(outcome.exit, Exit::Code(0), "{backend:?}: {outcome:?}");
        drop(other);
        assert_eq!(place.run("cat $TMPDIR/3").await.text, "three\n", "{backend:?}");
        let folder = place.path("state/tmp");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
        drop(place.sandbox);
        // A thread that was starting a helper may be the last user.
        until_gone(&folder).await;
    }
}

/// Without it, `git worktree add ../x` succeeds in a folder that disappears with the command.
#[tokio::test]
async fn parents_of_a_workspace_below_the_temporary_folder_are_read_only() {
    for backend in BACKENDS {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let place = SandboxedWorkspace::with(backend, folder, None);
        let command = "mkdir ../x; echo x > ../../$(basename $AT)/y; git init -q . && \
                       git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m a &&
                       git worktree add -q ../tree; echo in > file && cat $PWD/file";
        let ran = place.run(command).await;
        assert!(ran.text.ends_with("in\n"), "{backend:?}: {}", ran.text);
        let refused =
            if backend == Backend::Landlock { "ermission denied" } else { "Read-only file system" };
        assert_eq!(ran.text.matches(refused).count(), 3, "{backend:?}: {}", ran.text);
        assert!(!place.path("x").exists() && !place.path("y").exists());
        assert_eq!(fs::read_to_string(place.path("work/file")).unwrap(), "in\n");
    }
}

/// A command of another sandbox of the session can replace the mount points of a workspace.
#[tokio::test]
async fn planted_links_do_not_move_the_mounts_of_a_workspace() {
    for backend in FULL {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let place = SandboxedWorkspace::with(backend, folder, None);
        let elsewhere = SandboxedWorkspace::apart(backend);
        let spawn = |command: &str| Spawn {
            scratch: place.path("state/tmp"),
            directory: Directory::Path(elsewhere.path("work")),
            confinement: Confinement {
                profile: "workspace-write".to_owned(),
                writable_roots: vec![elsewhere.path("work").to_str().unwrap().to_owned()],
                network: NetworkAccess::Denied,
            },
            ..elsewhere.spawn(command)
        };
        let to = elsewhere.path("work/target");
        fs::create_dir(&to).unwrap();
        let plants =
            [format!("ln -s {} /tmp/{name}", to.display()), format!("echo x > /tmp/{name}")];
        for plant in plants {
            let outcome =
                elsewhere.sandbox.run(spawn(&format!("rm -rf /tmp/{name}; {plant}")), |_| {});
            assert_eq!(outcome.await.unwrap().exit, Exit::Code(0), "{backend:?} {plant}");
            if let Ok(ran) = place.try_run("echo in > file; pwd").await {
                assert!(ran.text.contains(&name), "{backend:?} {plant}: {}", ran.text);
                assert_eq!(fs::read_to_string(place.path("work/file")).unwrap(), "in\n");
            } else {
                assert_eq!(backend, Backend::Bubblewrap, "{plant}");
            }
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "{backend:?} {plant}");
        }
    }
}

#[tokio::test]
async fn temporary_folder_of_a_session_is_bounded() {
    let place = SandboxedWorkspace::apart(Backend::Namespaces);
    // Two commands share the bound.
    let ran = place.run("fallocate -l 700M /tmp/a && fallocate -l 700M /tmp/b").await;
    assert!(ran.text.contains("No space left"), "{}", ran.text);
    let ran = place.run("rm -f /tmp/b; fallocate -l 700M /tmp/c || rm /tmp/a /tmp/c").await;
    assert!(ran.text.contains("No space left"), "{}", ran.text);
    assert_eq!(place.run("ls /tmp; fallocate -l 700M /tmp/d").await.outcome.exit, Exit::Code(0));
    for backend in [Backend::Bubblewrap, Backend::Landlock] {
        let place = SandboxedWorkspace::apart(backend);
        let ran = place.run("fallocate -l 1100M $TMPDIR/a; sleep 50").await;
        assert_eq!(ran.outcome.exit, Exit::TemporaryFull, "{backend:?}: {}", ran.text);
        let ran =
            place.run("[ -e $TMPDIR/a ] && echo stays; echo x > $TMPDIR/x; cat $TMPDIR/x").await;
        assert_eq!(ran.text, "x\n", "{backend:?}");
    }
}

#[test]
fn session_reads_what_a_command_wrote_to_tmp() {
    let server = ModelServer::start(vec![
        runs("echo logged > /tmp/posse-log; ln -s /etc/passwd /tmp/link"),
        runs("cat /tmp/posse-log"),
        calls(&[("read_file", serde_json::json!({"path": "/tmp/posse-log"}))]),
        calls(&[("read_file", serde_json::json!({"path": "/tmp/link"}))]),
        calls(&[("read_file", serde_json::json!({"path": "/tmp/.env"}))]),
        calls(&[("read_file", serde_json::json!({"path": "/tmp/../etc/passwd"}))]),
        calls(&[("write_file", serde_json::json!({"path": "/tmp/new", "content": "x"}))]),
        says("done"),
    ]);
    let machine = Machine::with(&server);
    machine.posse(&["--yes", "-p", "go"]).assert_code(0);
    let results = server.tool_results();
    assert!(results[1].contains("logged"), "{results:#?}");
    assert!(results[2].contains("1\tlogged"), "{results:#?}");
    assert!(results[3].contains("links"), "{results:#?}");
    assert!(results[4].contains("secret"), "{results:#?}");
    assert!(results[5].contains("outside the workspace"), "{results:#?}");
    assert!(results[6].contains("/tmp of their own: use bash"), "{results:#?}");
    assert!(!machine.session_dir().join("tmp").exists());
}

/// The folder of a killed process is removed at the next start; with namespaces it holds nothing.
#[test]
fn temporary_folder_of_a_killed_session_is_removed_at_the_next_start() {
    for backend in ["namespaces", "landlock"] {
        let server = ModelServer::start(vec![
            runs("echo left > $TMPDIR/left; echo at; sleep 60"),
            runs("sleep 0.3"),
            says("done"),
        ]);
        let machine = Machine::with(&server);
        let start = |args: &[&str]| {
            let mut command = machine.command(args);
            command.env("POSSE_SANDBOX_BACKEND", backend);
            RunningPosse::start(command)
        };
        let mut running = start(&["--yes", "-p", "go", "--output-format", "stream-json"]);
        running.wait_for("tool.output.delta");
        let folder = machine.session_dir().join("tmp");
        assert_eq!(folder.join("left").exists(), backend == "landlock", "{backend}");
        running.signal(Signal::SIGKILL);
        running.wait();
        assert!(folder.exists());
        start(&["--yes", "-p", "again"]).end().assert_code(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(until_gone(&folder));
    }
}
