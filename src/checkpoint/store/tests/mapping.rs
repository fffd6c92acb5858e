//! Changes of files through a mapping, which need not alter a time of the file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use posse_sandbox::marks_folder;

use super::World;
use crate::plan::RestoreChoice;
use crate::store::taking::now_ns;
use crate::walk::stamp_of;

/// Maps the file, writes each line that it reads into the mapping, and answers with the same line.
const MAPPER: &str = r#"
import mmap, sys
file = open(sys.argv[1], "r+b")
mapping = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    mapping[:] = line[:-1].encode()
    print(line, end="", flush=True)
"#;

/// Program that has mapped a file.
struct Mapper {
    program: Child,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    fn start(file: &Path) -> Mapper {
        let mut program = Command::new("python3");
        program.args(["-c", MAPPER]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let answers = BufReader::new(program.stdout.take().unwrap());
        Mapper { program, answers }
    }

    /// Writes `text`, which is as long as the file, into the mapping.
    fn write(&mut self, text: &str) {
        let line = format!("{text}\n");
        self.program.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, line);
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.program.kill().ok();
        self.program.wait().ok();
    }
}

/// Marks that a command of a session runs that can write in the workspace.
fn mark(world: &World) -> Flock<File> {
    let folder = marks_folder(world.dir.path());
    fs::create_dir_all(&folder).unwrap();
    let mut file = File::create(folder.join("1-0")).unwrap();
    file.write_all(world.at("").as_os_str().as_encoded_bytes()).unwrap();
    Flock::lock(file, FlockArg::LockExclusive).unwrap()
}

/// Waits until a write to the file would alter its times, also by the clock of the file system.
fn settle(world: &World, path: &str) {
    let root = world.store.workspace.root_directory(0).unwrap();
    let stamp = stamp_of(root, Path::new(path)).unwrap();
    while stamp.is_too_recent(now_ns() - 50_000_000) {
        std::thread::yield_now();
    }
}

#[test]
fn change_through_a_mapping_of_a_running_command_is_seen_and_undone() {
    let world = World::new();
    world.put("file", "PRECIOUS");
    world.put("old", "x");
    world.take();
    settle(&world, "old");
    let running = mark(&world);
    let mut mapper = Mapper::start(&world.at("file"));
    // The times change now, and not again until the kernel has written the page to the disk.
    mapper.write("PRECIOUS");
    settle(&world, "file");
    let two = world.take();
    mapper.write("REPLACED");
    let two = world.store.finish(two.id).unwrap();
    let changed = world.store.changes_of_run(&two).unwrap();
    assert_eq!(super::names(&changed), [("file".to_owned(), super::Modified)]);
    // A file from before the command is settled.
    let settled = |path: &str| {
        let last = world.store.last();
        last.as_ref().unwrap().1.entry(0, path.as_bytes()).unwrap().is_settled
    };
    assert_eq!((settled("file"), settled("old")), (false, true));
    // Also a change after the last checkpoint while the command ran.
    mapper.write("AT ITS E");
    drop(mapper);
    running.unlock().unwrap();
    assert_eq!(world.store.counts_since(std::slice::from_ref(&two)).unwrap(), [1]);
    assert!(settled("file"));
    let restored = world.restore(two.id, RestoreChoice::All);
    assert_eq!(super::names(&restored.files), [("file".to_owned(), super::Modified)]);
    assert_eq!(world.text("file").unwrap(), "PRECIOUS");
    world.restore(restored.undo.id, RestoreChoice::All);
    assert_eq!(world.text("file").unwrap(), "AT ITS E");
}
