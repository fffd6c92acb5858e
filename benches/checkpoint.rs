//! Time of checkpoints of a workspace with 50,000 files: the first one, one of an unchanged tree,
//! and one after 100 files have changed.
//!
//! `cargo bench --bench checkpoint`. A walk that only reads the metadata of all files is the floor
//! in the same run. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]

#[path = "support/table.rs"]
mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use posse_checkpoint::{NewCheckpoint, RestoreChoice, Store};
use posse_tools::workspace::Workspace;

/// Files of the workspace.
const FILES: usize = 50_000;
/// Files of one folder.
const FILES_A_FOLDER: usize = 20;
/// Files that change before a checkpoint.
const CHANGED: usize = 100;
const RUNS: usize = 11;
const NEW: NewCheckpoint<'static> =
    NewCheckpoint { session: "bench", invocation: "bench", title: "bench" };

fn main() -> ExitCode {
    let dir = tempfile::tempdir_in(std::env::var("POSSE_BENCH_DIR").unwrap_or(".".to_owned()));
    let dir = dir.unwrap();
    let root = dir.path().join("w");
    for number in 0..FILES {
        let path = file(&root, number);
        if number.is_multiple_of(FILES_A_FOLDER) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::write(path, text(number, 0)).unwrap();
    }
    fs::write(root.join(".gitignore"), "target/\n*.log\n").unwrap();
    let workspace = Workspace::open(&root, &[]).unwrap();
    let marks = dir.path().join("running");
    let store = Store::open(dir.path().join("store"), workspace, 10 << 20, marks).unwrap();
    let floor = median(|| look(&root));
    table::fact("reading the metadata of all files on one thread", floor, "ms");
    let take = || drop(store.take(NEW, &|_, _| {}).unwrap());
    let first = timed(take);
    let mut good = table::at_most("first checkpoint of 50,000 files", first, 5000.0, "ms");
    let mebibytes = u32::try_from(store.bytes() >> 20).unwrap();
    table::fact("size of the store", f64::from(mebibytes), "MiB");
    // Files that were just written are read once more.
    std::thread::sleep(Duration::from_millis(100));
    table::fact("second checkpoint", timed(take), "ms");
    good &= table::at_most("checkpoint of an unchanged tree, median", median(take), 120.0, "ms");
    let mut round = 0;
    let mut changed = Vec::new();
    for _ in 0..RUNS {
        round += 1;
        for number in 0..CHANGED {
            fs::write(file(&root, number * (FILES / CHANGED)), text(number, round)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(60));
        changed.push(timed(take));
    }
    changed.sort_by(f64::total_cmp);
    good &= table::at_most("checkpoint after 100 changes, median", changed[RUNS / 2], 200.0, "ms");
    let restored = timed(|| drop(store.restore(1, RestoreChoice::All, NEW).unwrap()));
    table::fact("restore of 100 files", restored, "ms");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn file(root: &Path, number: usize) -> std::path::PathBuf {
    let folder = number / FILES_A_FOLDER;
    root.join(format!("m{}/p{}/file{number}.rs", folder % 50, folder))
}

/// A text of some kilobytes, as source code has.
fn text(number: usize, round: usize) -> String {
    let mut text = String::new();
    for line in 0..40 + number % 80 {
        let product = line * number;
        writeln!(text, "    let value_{line} = compute({number}, {round}, {product});").unwrap();
    }
    text
}

fn look(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            look(&entry.path());
        } else {
            entry.metadata().unwrap();
        }
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1000.0
}

fn median(work: impl Fn()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS).map(|_| timed(&work)).collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
