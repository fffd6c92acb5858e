//! Tests of the store: states, restores, hostile repositories, and random sequences.

#![expect(clippy::disallowed_types, reason = "a user's own git is started plainly")]

mod left_out;
mod mapping;
mod random;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use posse_sandbox::marks_folder;
use posse_tools::workspace::Workspace;

use posse_actors::ports::CheckpointCoverage;

use crate::plan::{ChangeKind, RestoreChoice, Retention};
use crate::record::{Checkpoint, Trigger};
use crate::store::{NewCheckpoint, Store, StoreError};

pub(super) struct World {
    dir: tempfile::TempDir,
    pub(super) store: Store,
}

impl World {
    pub(super) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("w")).unwrap();
        let store = World::open(&dir);
        World { dir, store }
    }

    fn open(dir: &tempfile::TempDir) -> Store {
        let workspace = Workspace::open(&dir.path().join("w"), &[]).unwrap();
        let marks = marks_folder(dir.path());
        Store::open(dir.path().join("store"), workspace, 1000, marks).unwrap()
    }

    /// The store as another process opens it.
    fn again(&mut self) {
        self.store = World::open(&self.dir);
    }

    pub(super) fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("w").join(path)
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    pub(super) fn take(&self) -> Checkpoint {
        self.store.take(NEW, &|_, _| {}).unwrap()
    }

    pub(super) fn restore(&self, id: u64, choice: RestoreChoice) -> super::Restored {
        self.store.restore(id, choice, NEW).unwrap()
    }

    pub(super) fn git(&self, folder: &str, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.at(folder)).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        git.args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = git.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(super) const NEW: NewCheckpoint<'static> =
    NewCheckpoint { session: "s", invocation: "i", title: "\nfirst line\nsecond" };

fn names(files: &[crate::plan::ChangedFile]) -> Vec<(String, ChangeKind)> {
    files.iter().map(|file| (file.name(), file.kind)).collect()
}

use ChangeKind::{Added, Deleted, Modified};

#[test]
fn restore_creates_no_link_that_makes_other_files_protected_ones() {
    let world = World::new();
    world.put("evil/hgrc", "[alias]\nstatus = !evil\n");
    for name in [".hg", "sub/.github", ".cargo"] {
        fs::create_dir_all(world.at(name).parent().unwrap()).unwrap();
        symlink(world.at("evil"), world.at(name)).unwrap();
    }
    let one = world.take();
    for name in [".hg", "sub/.github", ".cargo"] {
        fs::remove_file(world.at(name)).unwrap();
    }
    world.store.finish(one.id).unwrap();
    let restored = world.restore(1, RestoreChoice::All);
    assert_eq!((names(&restored.files), restored.kept.len()), (Vec::new(), 3));
}

#[test]
fn changes_of_commands_are_restored_and_that_is_taken_back() {
    let world = World::new();
    world.put("changed", "before");
    world.put("removed/deep", "x");
    world.put("kept", "k");
    world.put("run", "#!");
    symlink("kept", world.at("link")).unwrap();
    let one = world.take();
    assert_eq!(
        (one.id, &*one.title, one.trigger, one.files),
        (1, "first line", Trigger::Prompt, 5)
    );
    world.put("changed", "after");
    fs::remove_dir_all(world.at("removed")).unwrap();
    world.put("new/file", "n");
    fs::set_permissions(world.at("run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(world.at("link")).unwrap();
    world.put("link/file", "a folder now");
    let one = world.store.finish(one.id).unwrap();
    let changed: Vec<_> = [
        ("changed", Modified),
        ("link", Deleted),
        ("link/file", Added),
        ("new/file", Added),
        ("removed/deep", Deleted),
        ("run", Modified),
    ]
    .map(|(name, kind)| (name.to_owned(), kind))
    .into();
    assert_eq!(names(&world.store.changes_of_run(&one).unwrap()), changed);
    assert_eq!(world.store.counts_since(std::slice::from_ref(&one)).unwrap(), [6]);
    let restored = world.restore(1, RestoreChoice::All);
    assert_eq!((restored.files.len(), restored.kept.len()), (6, 0));
    assert_eq!(world.text("changed").unwrap(), "before");
    assert_eq!(world.text("removed/deep").unwrap(), "x");
    assert!(!world.at("new").exists());
    assert_eq!(fs::read_link(world.at("link")).unwrap().to_str(), Some("kept"));
    assert_eq!(fs::metadata(world.at("run")).unwrap().permissions().mode() & 0o111, 0);
    let undo = restored.undo;
    assert_eq!((undo.id, undo.trigger), (2, Trigger::Restore { checkpoint: 1 }));
    world.restore(2, RestoreChoice::All);
    assert_eq!(world.text("changed").unwrap(), "after");
    assert_eq!(world.text("link/file").unwrap(), "a folder now");
    assert!(!world.at("removed").exists());
    let ids: Vec<u64> = world.store.list().unwrap().iter().map(|record| record.id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn an_unchanged_tree_is_the_same_state_for_every_process() {
    let mut world = World::new();
    world.put("a", "a");
    let one = world.take();
    world.put("a", "a");
    let two = world.take();
    assert_eq!(one.state, two.state);
    world.again();
    assert_eq!(world.take().state, one.state);
    world.put("a", "b");
    assert_ne!(world.take().state.tree, one.state.tree);
    // Same size, and the time of the content set back.
    let old = fs::metadata(world.at("a")).unwrap().modified().unwrap();
    world.put("a", "c");
    fs::File::options().write(true).open(world.at("a")).unwrap().set_modified(old).unwrap();
    let changed = world.take();
    let (_, after) =
        world.store.contents(&world.store.compare(&one.state, &changed.state).unwrap()[0]).unwrap();
    assert_eq!(after.unwrap(), b"c");
    // A lost cache costs time only.
    fs::remove_file(world.store.cache_file()).unwrap();
    assert_eq!(world.take().state.tree, changed.state.tree);
    fs::write(world.store.cache_file(), "damaged").unwrap();
    assert_eq!(world.take().state.tree, changed.state.tree);
}

#[test]
fn changes_of_the_user_are_named_and_kept_on_request() {
    let world = World::new();
    world.put("a", "1");
    world.put("b", "1");
    let one = world.take();
    world.put("a", "of posse");
    world.store.finish(one.id).unwrap();
    world.put("b", "of the user");
    world.put("c", "of the user");
    let plan = world.store.plan(one.id, RestoreChoice::All).unwrap();
    let users: Vec<String> = plan.of_user().map(crate::plan::ChangedFile::name).collect();
    assert_eq!((users, plan.files.len()), (vec!["b".to_owned(), "c".to_owned()], 3));
    let restored = world.restore(one.id, RestoreChoice::KeepUsers);
    assert_eq!(names(&restored.files), [("a".to_owned(), Modified)]);
    assert_eq!(restored.kept.len(), 2);
    assert_eq!(world.text("c").unwrap(), "of the user");
    // They are still changes of the user, also after a later run.
    let new = NewCheckpoint { invocation: "later", ..NEW };
    let two = world.store.take(new, &|_, _| {}).unwrap();
    world.put("a", "of posse again");
    world.store.finish(two.id).unwrap();
    let plan = world.store.plan(one.id, RestoreChoice::All).unwrap();
    let users: Vec<String> = plan.of_user().map(crate::plan::ChangedFile::name).collect();
    assert_eq!((users, plan.files.len()), (vec!["b".to_owned(), "c".to_owned()], 3));
    assert_eq!(world.store.plan(two.id, RestoreChoice::All).unwrap().of_user().count(), 0);
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!(world.text("c"), None);
    world.restore(restored.undo.id, RestoreChoice::All);
    assert_eq!(
        (world.text("b"), world.text("c")),
        (Some("of the user".to_owned()), Some("of the user".to_owned()))
    );
}

#[test]
fn files_that_are_ignored_by_now_are_not_lost() {
    let world = World::new();
    world.put("x.log", "old");
    world.put("y.log", "old");
    let one = world.take();
    world.put(".gitignore", "*.log\n");
    world.put("x.log", "new, and ignored");
    world.put("y.log", &"too large".repeat(1000));
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!(world.text("x.log").unwrap(), "old");
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!(kept, ["y.log"]);
    assert!(world.text("y.log").unwrap().starts_with("too large"));
    world.restore(restored.undo.id, RestoreChoice::All);
    assert_eq!(world.text("x.log").unwrap(), "new, and ignored");
}

#[test]
fn protected_files_are_not_written() {
    let world = World::new();
    world.put(".vscode/tasks.json", "planted while a job ran");
    world.put(".git/config", "[core]\n");
    world.put("bare/HEAD", "ref: refs/heads/main\n");
    world.put("bare/refs/heads/main", "x");
    world.put("bare/objects/x", "x");
    world.put("bare/config", "[core]\n\tfsmonitor = x\n");
    world.put("a", "a");
    let one = world.take();
    fs::remove_dir_all(world.at(".vscode")).unwrap();
    fs::remove_file(world.at("bare/config")).unwrap();
    fs::remove_file(world.at("a")).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!(names(&restored.files), [("a".to_owned(), Added)]);
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!(kept, [".vscode/tasks.json", "bare/config"]);
    assert!(!world.at(".vscode").exists() && !world.at("bare/config").exists());
}

#[test]
fn nothing_of_a_hostile_repository_runs() {
    let world = World::new();
    fs::create_dir(world.at("r")).unwrap();
    world.git("r", &["init", "-q", "-b", "main"]);
    let mark = world.dir.path().join("ran");
    let run = format!("touch {}", mark.display());
    for hook in ["post-checkout", "pre-commit", "reference-transaction", "fsmonitor-watchman"] {
        let path = format!("r/.git/hooks/{hook}");
        world.put(&path, &format!("#!/bin/sh\n{run}\n"));
        fs::set_permissions(world.at(&path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.put(
        "r/.git/config",
        &format!(
            "[core]\n\tfsmonitor = {run}\n\thooksPath = hooks\n\tattributesFile = evil\n\
             [filter \"x\"]\n\tclean = {run}\n\tsmudge = {run}\n\trequired = true\n\
             [diff \"x\"]\n\ttextconv = {run}\n\texternal = {run}\n[include]\n\tpath = more\n"
        ),
    );
    world.put("r/.gitattributes", "* filter=x diff=x text eol=crlf ident\n");
    world.put("r/.git/info/attributes", "* filter=x\n");
    world.put("r/.git/index", &"DIRC".repeat(100));
    world.put("r/.git/HEAD", "ref: ../../../../etc/passwd\n");
    world.put("r/a", "line\r\n$Id$\n");
    world.put(".gitattributes", "* filter=x working-tree-encoding=UTF-16\n");
    world.put(".gitmodules", "[submodule \"-x\"]\n\tpath = r\n\turl = -u\n");
    let one = world.take();
    world.put("r/a", "changed");
    world.put("r/.git/HEAD", "ref: refs/heads/main\n");
    world.store.finish(one.id).unwrap();
    assert_eq!(world.restore(one.id, RestoreChoice::All).files.len(), 1);
    assert_eq!(world.text("r/a").unwrap(), "line\r\n$Id$\n");
    world.store.prune(Retention { age_ms_max: 0, bytes_max: 0 }).unwrap();
    assert!(!mark.exists(), "a program of the repository ran");
}

#[test]
fn state_of_a_repository_stays() {
    let world = World::new();
    world.git("", &["init", "-q", "-b", "main"]);
    world.put("a", "a");
    world.git("", &["add", "a"]);
    world.git("", &["commit", "-q", "-m", "one"]);
    let one = world.take();
    world.put("a", "b");
    world.git("", &["commit", "-q", "-a", "-m", "two"]);
    world.git("", &["checkout", "-q", "-b", "other"]);
    world.store.finish(one.id).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    let kept: Vec<&str> = restored.kept.iter().map(|(name, _)| &**name).collect();
    assert_eq!(kept, [".git"]);
    assert_eq!(world.text("a").unwrap(), "a");
    assert_eq!(world.git("", &["log", "--format=%s", "other"]), "two\none\n");
    assert_eq!(world.git("", &["status", "--porcelain", "-b"]), "## other\n M a\n");
}

#[test]
fn a_restore_completes_no_repository() {
    let world = World::new();
    world.put("foo/HEAD", "ref: refs/heads/main\n");
    world.put("foo/objects/x", "x");
    world.put("foo/refs/y", "y");
    world.put("sub/.git", "gitdir: ../.git/refs/heads/foo\n");
    world.put(".git/HEAD", "ref: refs/heads/main\n");
    world.put(".git/refs/heads/foo/config", "[core]\n\tfsmonitor = x\n");
    let one = world.take();
    fs::remove_file(world.at("foo/HEAD")).unwrap();
    fs::remove_dir_all(world.at("foo/objects")).unwrap();
    fs::remove_dir_all(world.at(".git/refs/heads/foo")).unwrap();
    world.put("foo/config", "[core]\n\tfsmonitor = x\n");
    let restored = world.restore(one.id, RestoreChoice::All);
    assert!(!world.at("foo/HEAD").exists(), "{restored:?}");
    assert!(!world.at(".git/refs/heads/foo").exists(), "{restored:?}");
}

#[test]
fn a_restore_completes_no_repository_in_a_folder_with_a_name_of_any_bytes() {
    let world = World::new();
    let folder = world.at("").join(OsStr::from_bytes(b"f\xff"));
    for part in ["HEAD", "objects/x", "refs/y", "main.rs"] {
        let path = folder.join(part);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, part).unwrap();
    }
    let one = world.take();
    fs::remove_dir_all(&folder).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    let there = |name: &str| folder.join(name).exists();
    let found = ["HEAD", "objects/x", "refs/y", "main.rs"].map(there);
    assert_eq!(found, [false, false, false, true], "{restored:?}");
}

#[test]
fn folders_that_became_links_lead_nowhere() {
    let world = World::new();
    world.put("d/f", "inside");
    let one = world.take();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    fs::remove_dir_all(world.at("d")).unwrap();
    symlink(&outside, world.at("d")).unwrap();
    let restored = world.restore(one.id, RestoreChoice::All);
    assert_eq!(restored.kept, []);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
    assert!(!world.at("d").is_symlink());
    assert_eq!(world.text("d/f").unwrap(), "inside");
}

#[test]
fn old_checkpoints_are_removed_with_their_content() {
    let world = World::new();
    for number in 0..8u32 {
        // Content that cannot be compressed.
        let text: String = (0..200u32)
            .map(|index| {
                char::from_u32(0x4e00 + (index * 7919 + number * 104_729) % 20_000).unwrap()
            })
            .collect();
        world.put("a", &text);
        world.take();
    }
    let (all, before) = (world.store.list().unwrap(), world.store.bytes());
    assert_eq!(all.len(), 8);
    let keep = Retention { age_ms_max: u64::MAX, bytes_max: u64::MAX };
    assert_eq!(world.store.prune(keep).unwrap(), Vec::<u64>::new());
    let removed = world.store.prune(Retention { bytes_max: 1, ..keep }).unwrap();
    assert_eq!(removed, [1, 2, 3, 4, 5, 6, 7]);
    assert!(world.store.bytes() < before);
    assert!(matches!(world.store.plan(3, RestoreChoice::All), Err(StoreError::NotFound(3))));
    assert_eq!(
        world.store.prune_daily(Retention { age_ms_max: 0, bytes_max: 0 }).unwrap(),
        Vec::<u64>::new()
    );
    world.put("a", "other");
    world.restore(8, RestoreChoice::All);
    assert_eq!(world.text("a").unwrap().chars().count(), 200);
}

#[test]
fn checkpoint_that_holds_deleted_files_is_removed_for_its_age_only() {
    let world = World::new();
    let within = |bytes_max| Retention { age_ms_max: u64::MAX, bytes_max };
    world.put("mine", "mine");
    let holding = world.take().id;
    let path = [world.at("mine").display().to_string()];
    let covered = world.store.coverage(&path, Some(holding)).unwrap();
    assert_eq!(covered, CheckpointCoverage::Stored);
    fs::remove_file(world.at("mine")).unwrap();
    world.put("junk", "junk");
    let junk = world.take().id;
    world.put("junk", "more");
    world.take();
    assert!(world.store.can_hold(within(u64::MAX)).unwrap());
    assert!(!world.store.can_hold(within(1)).unwrap());
    assert_eq!(world.store.prune(within(1)).unwrap(), [junk]);
    world.restore(holding, RestoreChoice::All);
    assert_eq!(world.text("mine").unwrap(), "mine");
    let aged = Retention { age_ms_max: 0, bytes_max: u64::MAX };
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(world.store.prune(aged).unwrap().contains(&holding));
}

#[test]
fn copies_of_git_objects_cost_no_checkpoint_and_end_with_the_last_one() {
    let world = World::new();
    world.git(".", &["init", "-q", "nested"]);
    world.put("nested/large", &"0123456789abcdef".repeat(10_000));
    world.git("nested", &["-c", "core.compression=0", "hash-object", "-w", "large"]);
    let first = world.take().id;
    let before = world.store.bytes();
    fs::remove_dir_all(world.at("nested")).unwrap();
    for text in ["a", "b"] {
        world.put("a", text);
        world.take();
    }
    let within = |bytes_max| Retention { age_ms_max: u64::MAX, bytes_max };
    // Less than the copies take alone.
    assert_eq!(world.store.prune(within(100_000)).unwrap(), Vec::<u64>::new());
    assert_eq!(world.store.prune(within(1)).unwrap(), [first, first + 1]);
    assert!(before - world.store.bytes() > 100_000, "{before}");
}

#[test]
fn progress_is_reported_for_many_files() {
    let world = World::new();
    for number in 0..1200 {
        world.put(&format!("d{}/f{number}", number % 7), &number.to_string());
    }
    let seen = std::cell::RefCell::new(Vec::new());
    let checkpoint =
        world.store.take(NEW, &|done, total| seen.borrow_mut().push((done, total))).unwrap();
    assert_eq!(*seen.borrow(), [(500, 1200), (1000, 1200), (1200, 1200)]);
    // A prepared state needs no progress.
    let other = World::new();
    for number in 0..1200 {
        other.put(&format!("f{number}"), "x");
    }
    other.store.prepare(&|_, _| {}).unwrap();
    assert_eq!(other.store.list().unwrap(), []);
    std::thread::sleep(std::time::Duration::from_millis(60));
    other.store.prepare(&|_, _| {}).unwrap();
    let taken = other.store.take(NEW, &|_, _| panic!("nothing is left to store")).unwrap();
    assert_eq!((checkpoint.files, taken.files), (1200, 1200));
}

#[test]
fn other_roots_are_refused() {
    let world = World::new();
    world.put("a", "a");
    let one = world.take();
    let other = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(other.path(), &[]).unwrap();
    let store = Store::open(
        world.dir.path().join("store"),
        workspace,
        1000,
        marks_folder(world.dir.path()),
    )
    .unwrap();
    let error = store.plan(one.id, RestoreChoice::All).unwrap_err();
    assert!(matches!(error, StoreError::OtherRoots(1, _)), "{error}");
}
