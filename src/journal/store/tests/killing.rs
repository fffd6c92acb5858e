//! A process that is killed at every step of writing, closing segments and repairing.
//!
//! The process is this test program again, controlled by environment variables.

#![expect(clippy::disallowed_types, reason = "real processes are killed")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;

use super::*;

/// Environment variables: the child's directory, and the step and its repetition at which the
/// child dies.
const WHERE: &str = "POSSE_TEST_JOURNAL_DIR";
const STEP: &str = "POSSE_TEST_JOURNAL_STEP";
const CHILD: &str = "store::tests::killing::child_of_a_test";
const RECORDS: u64 = 400;

#[expect(clippy::print_stdout, reason = "the parent reads it")]
/// The child's entry point, not a test by itself: does nothing without its environment.
#[tokio::test]
async fn child_of_a_test() {
    let (Some(dir), Some(step)) = (std::env::var_os(WHERE), std::env::var(STEP).ok()) else {
        return;
    };
    let (name, times) = step.split_once(':').unwrap();
    let left = Mutex::new(times.parse::<u32>().unwrap());
    let name = name.to_owned();
    let steps = Steps {
        listener: Some(Arc::new(move |reached| {
            if reached == name {
                let mut left = lock(&left);
                *left -= 1;
                if *left == 0 {
                    raise(Signal::SIGKILL).unwrap();
                }
            }
        })),
    };
    let dir = PathBuf::from(dir);
    let store = FileJournal::with_sizes(&dir, SessionId::new("s"), 4000, u64::MAX, steps).unwrap();
    let opened = store.open().await.unwrap();
    println!("\nkept {}", opened.last_record);
    for number in opened.last_record + 1..=RECORDS {
        let durability = if number % 7 == 0 { Durability::Synced } else { Durability::Written };
        let committed = submit(&opened, number..=number, durability).await.unwrap();
        println!("kept {}", committed.last_record);
    }
}

fn start(dir: &Path, step: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env(WHERE, dir)
        .env(STEP, step)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads the child's output until it ends, or kills it after `lines` lines.
fn last_durable_record(mut child: Child, lines: usize) -> (u64, bool) {
    let mut kept = None;
    let mut said = 0;
    let stdout = BufReader::new(child.stdout.take().unwrap());
    for line in stdout.lines().map_while(Result::ok) {
        if let Some(number) = line.strip_prefix("kept ").and_then(|number| number.parse().ok()) {
            kept = Some(number);
            said += 1;
            if said == lines {
                kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
            }
        }
    }
    let killed = std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap());
    (kept.unwrap_or(0), killed == Some(9))
}

/// Every record that was reported as durable is present, and the journal can be continued.
async fn assert_whole(room: &JournalFolder, kept: u64, what: &str) {
    let before = room.verify();
    assert!(before.is_sound(), "{what}: {before:?}");
    assert!(before.records >= kept, "{what}: {} of {kept}", before.records);
    let store = room.sized(4000, u64::MAX);
    let folded = store.replayed().unwrap();
    assert_eq!(folded.read + folded.spared, before.records, "{what}");
    let opened = store.open().await.unwrap();
    assert_eq!(opened.last_record, before.records, "{what}");
    let next = opened.last_record + 1;
    submit(&opened, next..=next + 30, Durability::Synced).await.unwrap();
    drop((opened, store));
    let after = room.verify();
    assert_eq!((after.records, after.problem), (next + 30, None), "{what}");
}

#[tokio::test]
async fn a_kill_at_every_step_of_writing_loses_nothing() {
    for step in ["appended", "synced", "made", "closed", "opened"] {
        for times in [1, 2] {
            let room = JournalFolder::new();
            let what = format!("{step}:{times}");
            let (kept, killed) = last_durable_record(start(&room.dir(), &what), usize::MAX);
            assert!(killed, "{what} was never reached");
            assert_whole(&room, kept, &what).await;
        }
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing() {
    let room = JournalFolder::new();
    for (lines, round) in [3, 19, 1, 40, 8, 26, 90, 2].into_iter().zip(1..) {
        let (kept, killed) = last_durable_record(start(&room.dir(), "never:1"), lines);
        assert!(killed, "round {round}");
        let verified = room.verify();
        assert!(verified.is_sound() && verified.records >= kept, "{round}: {verified:?}");
    }
    let kept = room.verify().records;
    assert_whole(&room, kept, "killed again and again").await;
}

#[tokio::test]
async fn a_kill_at_every_step_of_a_repair_loses_nothing() {
    for damaged in ["session-000002.jsonl", ACTIVE] {
        for step in ["later moved", "tail copied", "tail cut", "made active"] {
            let room = JournalFolder::new();
            let store = room.sized(4000, u64::MAX);
            let opened = store.open().await.unwrap();
            for number in 1..=70 {
                submit(&opened, number..=number, Durability::Written).await.unwrap();
            }
            drop((opened, store));
            let mut bytes = fs::read(room.path(damaged)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(room.path(damaged), &bytes).unwrap();
            if damaged != ACTIVE {
                // So that opening alone finds it.
                fs::remove_file(room.path("session-000003.jsonl")).unwrap();
            }
            let good = room.verify().records;
            let (_, killed) = last_durable_record(start(&room.dir(), &format!("{step}:1")), 1);
            assert!(killed);
            // The child reached that step or a later one: no valid record is lost.
            let store = room.sized(4000, u64::MAX);
            let folded = store.replayed().unwrap();
            // A child that got further may have written more before it was killed.
            let kept = folded.read + folded.spared;
            assert!(kept >= good, "{damaged}, {step}: {kept} of {good}");
            drop(store);
            assert_whole(&room, kept, step).await;
        }
    }
}
