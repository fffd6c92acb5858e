//! One process owns a session; others are refused at once, and readers never wait.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use posse::journal::FileJournal;
use posse_actors::conversation::SessionId;
use posse_actors::ports::JournalError;

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::posse::{Machine, RunningPosse};

fn open(dir: &Path) -> Result<FileJournal, JournalError> {
    let id = dir.file_name().unwrap().to_str().unwrap();
    FileJournal::lock(dir, SessionId::new(id))
}

#[test]
fn a_second_owner_is_refused_at_once_and_the_first_is_named() {
    let server = ModelServer::start(vec![ModelAnswer::Hold(Vec::new())]);
    let machine = Machine::with(&server);
    let running = machine.start(&["wait for ever"]);
    server.wait_for_request();
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
    let owner = format!("process {}", running.pid());
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        match open(&dir) {
            Err(JournalError::Locked { owner: named }) => assert_eq!(named, owner),
            other => panic!("{other:?}"),
        }
        quickest = quickest.min(start.elapsed());
    }
    // The quickest of several: the machine may be busy.
    assert!(quickest < Duration::from_millis(200), "{quickest:?}");
    let removed = machine.posse(&["sessions", "rm", "--yes", &id]);
    removed.assert_code(8);
    assert!(removed.stderr.contains(&owner), "{}", removed.stderr);
    for read in [&["sessions", "show", &id] as &[&str], &["sessions", "verify", &id]] {
        machine.posse(read).assert_code(0);
    }
    assert!(dir.join("session.jsonl").exists());
    running.signal(Signal::SIGKILL);
    running.end();
    // A dead process is not an owner, even if its name is still in the file.
    let journal = open(&dir).unwrap();
    assert!(journal.replayed().unwrap().read > 0);
    drop(journal);
    machine.posse(&["sessions", "rm", "--yes", &id]).assert_code(0);
    assert!(!dir.exists());
}

/// True if user namespaces are available, which a small disk needs.
pub(crate) fn has_namespaces() -> bool {
    let mut command = std::process::Command::new("unshare");
    command.args(["-Urm", "mount", "-t", "tmpfs", "none", "/tmp"]);
    command.output().is_ok_and(|ended| ended.status.success())
}

/// A run with its state on a disk of 3 MiB, which `before` fills and may free again later.
fn on_a_small_disk(
    machine: &Machine,
    before: &str,
    args: &str,
) -> Option<crate::posse::FinishedRun> {
    let ended = RunningPosse::start(small_disk(machine, before, args)).end();
    // Without user namespaces there is no small disk.
    let cannot = ended.code == Some(99) || ended.stderr.contains("unshare");
    (!cannot).then_some(ended)
}

/// The command for [`on_a_small_disk`].
pub(crate) fn small_disk(machine: &Machine, before: &str, args: &str) -> std::process::Command {
    let script = format!(
        "mount -t tmpfs -o size=3m,mode=700 none \"$POSSE_HOME/state\" || exit 99\n\
         cd .\n{before}\nexec \"$0\" {args}"
    );
    std::fs::create_dir_all(machine.path("posse/state")).unwrap();
    machine.shell(&format!("exec unshare -Urm sh -c '{script}' \"$0\""))
}

#[test]
fn a_read_only_disk_allows_reading_and_refuses_runs() {
    if !has_namespaces() {
        return;
    }
    let server = ModelServer::start(vec![says("kept")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "go"]).assert_code(0);
    let script = "mount --bind \"$POSSE_HOME/state\" \"$POSSE_HOME/state\" \
                  && mount -o remount,bind,ro \"$POSSE_HOME/state\" || exit 99\n\
                  \"$0\" sessions list && \"$0\" sessions verify || exit 98\n\
                  \"$0\" -c more; echo \"went on: $?\"\n\"$0\" run new; echo \"began: $?\"";
    let line = format!("exec unshare -Urm sh -c '{script}' \"$0\"");
    let ended = RunningPosse::start(machine.shell(&line)).end();
    ended.assert_code(0);
    for words in ["finished", "  sound  ", "went on: 8", "began: 8"] {
        assert!(ended.stdout.contains(words), "{words}: {}{}", ended.stdout, ended.stderr);
    }
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(server.requests().len(), 1, "nothing was asked that could not be kept");
    machine.verify();
}

#[test]
fn a_nearly_full_disk_is_waited_for_before_the_first_request() {
    let write = || calls(&[("write_file", serde_json::json!({"path": "a.txt", "content": "x"}))]);
    let fill = "dd if=/dev/zero of=\"$POSSE_HOME/state/filler\" bs=1k count=2600 2>/dev/null\n";
    for (freed, code) in [(true, 0), (false, 8)] {
        let server = ModelServer::start(vec![write(), says("done")]);
        let machine = Machine::with(&server);
        let before = if freed {
            format!("{fill}(sleep 1; rm \"$POSSE_HOME/state/filler\") &")
        } else {
            fill.to_owned()
        };
        let args = "run --yes --sandbox off \"write it\"";
        let Some(ended) = on_a_small_disk(&machine, &before, args) else { return };
        assert_eq!(ended.code, Some(code), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("hardly any room"), "{}", ended.stderr);
        assert_eq!(machine.work("a.txt").exists(), freed, "{}", ended.stderr);
        // The first request may be sent before the disk is checked.
        let requests = server.requests().len();
        assert!(if freed { requests == 2 } else { requests <= 1 }, "{requests}");
    }
}
