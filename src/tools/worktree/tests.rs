//! Worktrees of real repositories, without a sandbox.

#![expect(clippy::disallowed_types, reason = "a user's own git is started plainly")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use posse_base::secrets::files::SecretFiles;

use super::*;
use crate::worktree::git::Repository;
use crate::worktree::snapshot;

/// A repository with a commit, and a session's folder.
struct WorktreeFixture {
    dir: tempfile::TempDir,
}

impl WorktreeFixture {
    fn new() -> WorktreeFixture {
        let world = WorktreeFixture { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(world.path("w/sub")).unwrap();
        world.put("w/f", "one\ntwo\n");
        world.put("w/sub/g", "g\n");
        world.git(&["init", "-q"]);
        world.git(&["add", "-A"]);
        world.git(&["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"]);
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(below)
    }

    fn put(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).unwrap();
    }

    /// Runs git as the user would, without the user's settings.
    fn git(&self, arguments: &[&str]) -> String {
        self.git_in("w", arguments)
    }

    fn git_in(&self, folder: &str, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.path(folder));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn repository(&self) -> Repository {
        Repository {
            top: self.path("w"),
            git_dir: self.path("w/.git"),
            common: self.path("w/.git"),
            head: self.git(&["rev-parse", "HEAD"]).trim().to_owned(),
        }
    }

    /// Creates the worktree of `id` for a session with working directory `w` and `below`.
    fn make(&self, id: &str, below: &str) -> Result<Worktrees, Unavailable> {
        let list = self.git(&["ls-files", "-z", "-c", "-o", "--exclude-standard"]);
        let paths = list.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
        let paths: Vec<PathBuf> = paths.collect();
        let folder = self.path("session/worktrees").join(id);
        make_folder(&folder).unwrap();
        let (stop, _held) = Stop::after(Duration::from_secs(20));
        let prefix = PathBuf::from(below);
        let secret_files = SecretFiles::default();
        snapshot::make(&folder, &self.repository(), &paths, &prefix, secret_files, &stop)?;
        let kept = WorktreeMetadata { caller: None, prefix, merged: false };
        store(&folder.join(KEPT), &kept)?;
        let sandbox = Arc::new(Sandbox::with_helper("/bin/true".into(), Vec::new()));
        let cwd = self.path("w").join(below);
        Ok(Worktrees::new(&self.path("session"), &cwd, sandbox, |_| None))
    }
}

fn seen(tree: &OpenWorktree) -> Vec<(String, Side, Side)> {
    let changed = tree.all_changes().unwrap().changed;
    changed.into_iter().map(|one| (one.path, one.before, one.after)).collect()
}

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";
const FILE: Side = Side::File { exec: false };
const PROGRAM: Side = Side::File { exec: true };

#[test]
fn worktree_equals_the_workspace_and_leaves_the_repository_unchanged() {
    let world = WorktreeFixture::new();
    world.put("w/f", "one\nchanged\n");
    world.put("w/new", "n\n");
    world.put("w/.env", "KEY=1\n");
    world.put("w/ignored", "i\n");
    world.put("w/.gitignore", "ignored\n");
    fs::hard_link(world.path("w/.env"), world.path("w/innocent")).unwrap();
    symlink("/etc/hostname", world.path("w/link")).unwrap();
    fs::remove_file(world.path("w/sub/g")).unwrap();
    let before = (world.git(&["status", "--porcelain"]), fs::read(world.path("w/.git/index")));
    let worktrees = world.make("i1", "").unwrap();
    let place = worktrees.reopen("i1").unwrap();
    assert_eq!(place.tree, place.cwd);
    let mut names: Vec<String> = fs::read_dir(&place.tree)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".git", ".gitignore", "f", "link", "new"]);
    assert_eq!(fs::read_to_string(place.tree.join("f")).unwrap(), "one\nchanged\n");
    assert_eq!(fs::read_link(place.tree.join("link")).unwrap(), Path::new("/etc/hostname"));
    // Git shows the same state to the agent and the user, and the user's state is unchanged.
    let folder = "session/worktrees/i1/tree";
    let status = world.git_in(folder, &["status", "--porcelain"]);
    assert_eq!(status, " M f\n D sub/g\n?? .gitignore\n?? link\n?? new\n");
    assert!(world.git_in(folder, &["log", "--oneline"]).contains("first"));
    let after = (world.git(&["status", "--porcelain"]), fs::read(world.path("w/.git/index")));
    assert_eq!((before.0, before.1.unwrap()), (after.0, after.1.unwrap()));
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
    // It has no changes, so it is removed.
    assert_eq!(worktrees.close("i1").unwrap(), None);
    assert!(!place.tree.exists());
    assert_eq!(worktrees.reopen("i1"), Err(Unavailable::Gone));
}

#[test]
fn every_change_of_a_worktree_is_found_without_reading_outside() {
    let world = WorktreeFixture::new();
    let worktrees = world.make("i1", "").unwrap();
    let place = worktrees.reopen("i1").unwrap();
    let at = |below: &str| place.tree.join(below);
    assert_eq!(seen(&worktrees.tree("i1").unwrap()), []);
    // Rewriting the same bytes is no change.
    fs::write(at("f"), "one\ntwo\n").unwrap();
    fs::write(at("build.log"), "x").unwrap();
    fs::write(at(".gitignore"), "*.log\ntarget\n").unwrap();
    fs::create_dir(at("target")).unwrap();
    fs::write(at("target/CACHEDIR.TAG"), TAG).unwrap();
    fs::write(at("target/out"), "x").unwrap();
    assert_eq!(
        seen(&worktrees.tree("i1").unwrap()),
        [(".gitignore".to_owned(), Side::Nothing, FILE)]
    );
    fs::set_permissions(at("f"), fs::Permissions::from_mode(0o755)).unwrap();
    // A folder becomes a link to one outside that has a file of that name.
    fs::remove_dir_all(at("sub")).unwrap();
    fs::create_dir(world.path("outside")).unwrap();
    world.put("outside/g", "stolen\n");
    symlink(world.path("outside"), at("sub")).unwrap();
    let found = seen(&worktrees.tree("i1").unwrap());
    let expected = [
        (".gitignore", Side::Nothing, FILE),
        ("f", FILE, PROGRAM),
        ("sub", Side::Nothing, Side::Link),
        ("sub/g", FILE, Side::Nothing),
    ];
    assert_eq!(found, expected.map(|(path, before, after)| (path.to_owned(), before, after)));
    let left_out = worktrees.tree("i1").unwrap().all_changes().unwrap().left_out;
    assert_eq!((left_out.count, left_out.named), (1, vec!["build.log".to_owned()]));
    // The base list is out of reach of the agent.
    let left = worktrees.close("i1").unwrap().unwrap();
    let removed = ChangedFile { path: "sub/g".to_owned(), added: 0, removed: 1 };
    assert_eq!((left.count, left.files[3].clone()), (4, removed));
    worktrees.merged("i1").unwrap();
    assert!(worktrees.is_merged("i1") && !place.tree.exists());
}

#[test]
fn only_changes_below_the_working_directory_count() {
    let world = WorktreeFixture::new();
    let worktrees = world.make("i1", "sub").unwrap();
    let place = worktrees.reopen("i1").unwrap();
    assert_eq!(place.cwd, place.tree.join("sub"));
    assert!(place.tree.join("f").is_file(), "a build may need what lies beside it");
    fs::write(place.tree.join("f"), "changed").unwrap();
    fs::write(place.cwd.join("g"), "changed\n").unwrap();
    assert_eq!(seen(&worktrees.tree("i1").unwrap()), [("g".to_owned(), FILE, FILE)]);
    let tree = worktrees.of_caller("i1", None).unwrap();
    let [one] = &tree.all_changes().unwrap().changed[..] else { panic!() };
    assert_eq!(tree.before(one).unwrap().unwrap(), b"g\n");
    assert_eq!(tree.after(one).unwrap().unwrap(), b"changed\n");
    // Other callers and unknown names have no access.
    for (id, caller) in [("i1", Some("other")), ("i2", None), ("../i1", None), ("", None)] {
        let why = worktrees.of_caller(id, caller).unwrap_err();
        let is_other =
            caller.is_some() && why == Unavailable::NotYours("the main agent".to_owned());
        assert!(is_other || why == Unavailable::Gone, "{id}: {why}");
    }
    fs::set_permissions(&place.cwd, fs::Permissions::from_mode(0o500)).unwrap();
    Worktrees::remove_unknown(&world.path("session"), &BTreeSet::from(["i1"]));
    assert!(place.cwd.is_dir());
    Worktrees::remove_unknown(&world.path("session"), &BTreeSet::new());
    assert!(!place.tree.exists());
}

#[test]
fn hostile_ignore_files_of_a_worktree_are_compared_like_others() {
    let world = WorktreeFixture::new();
    world.put("w/.gitignore", "*.log\n");
    let worktrees = world.make("i1", "").unwrap();
    let tree = worktrees.reopen("i1").unwrap().tree;
    crate::testing::put_hostile_ignore_files(&tree);
    fs::write(tree.join("hostile/new.rs"), "x").unwrap();
    fs::write(tree.join("hostile/new.log"), "x").unwrap();
    let found = worktrees.tree("i1").unwrap().all_changes().unwrap();
    let found: Vec<String> = found.changed.into_iter().map(|one| one.path).collect();
    assert!(found.contains(&"hostile/new.rs".to_owned()), "{found:?}");
    assert!(found.contains(&"hostile/device0/.gitignore".to_owned()), "{found:?}");
    assert!(!found.contains(&"hostile/new.log".to_owned()), "{found:?}");
}

#[test]
fn untracked_files_are_listed_and_ignored_files_keep_the_worktree() {
    let world = WorktreeFixture::new();
    // Neither ignore files above the repository nor those of another program count for git.
    world.put(".gitignore", "*\n");
    world.put("w/.ignore", "*\n");
    world.put("w/.gitignore", "dist\n");
    world.put("w/.git/info/exclude", "*.local\n");
    let worktrees = world.make("i1", "").unwrap();
    let place = worktrees.reopen("i1").unwrap();
    let at = |below: &str| place.tree.join(below);
    for folder in ["src", "dist", "cache", "dist/cache", "inner/.git"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("src/new.rs"), "x").unwrap();
    fs::write(at("cache/CACHEDIR.TAG"), TAG).unwrap();
    fs::write(at("cache/kept"), "x").unwrap();
    let found = |of: &Worktrees| of.tree("i1").unwrap().all_changes().unwrap();
    let paths = |of: &Worktrees| -> Vec<String> {
        found(of).changed.into_iter().map(|one| one.path).collect()
    };
    assert_eq!(paths(&worktrees), ["cache/CACHEDIR.TAG", "cache/kept", "src/new.rs"]);
    assert_eq!(found(&worktrees).left_out, LeftOut::default());
    fs::remove_dir_all(at("cache")).unwrap();
    fs::remove_dir_all(at("src")).unwrap();
    fs::write(at("dist/out"), "x").unwrap();
    fs::write(at("dist/cache/CACHEDIR.TAG"), TAG).unwrap();
    fs::write(at("dist/cache/again"), "x").unwrap();
    fs::write(at("mine.local"), "x").unwrap();
    fs::write(at("inner/.git/config"), "x").unwrap();
    let no_text = std::ffi::OsStr::from_bytes(b"no-\xff");
    fs::write(place.tree.join(no_text), "x").unwrap();
    let left = worktrees.close("i1").unwrap().unwrap();
    let named = ["dist/out", "inner/.git/config", "mine.local", "no-\u{fffd}"];
    assert_eq!((left.count, left.left_out), (0, 4), "{left:?}");
    assert_eq!(left.left_out_files, named);
    assert!(at("dist/out").is_file());
    // An explicitly named file is included, but never git's own.
    let tree = worktrees.tree("i1").unwrap();
    assert_eq!(tree.one("dist/out").unwrap().unwrap().after, FILE);
    for path in ["f", "inner/.git/config", "../i1/base.json", "/etc/hostname", "dist", ""] {
        assert_eq!(tree.one(path).unwrap(), None, "{path}");
    }
    for path in ["dist/out", "inner", "mine.local"] {
        let path = at(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    fs::remove_file(place.tree.join(no_text)).unwrap();
    assert_eq!(worktrees.close("i1").unwrap(), None);
}

#[test]
fn merged_state_is_the_base_of_the_next_change() {
    let hash = |text: &str| Some(posse_base::hex::sha256(text.as_bytes()));
    for broke_off in [false, true] {
        let world = WorktreeFixture::new();
        let worktrees = world.make("i1", "").unwrap();
        let place = worktrees.reopen("i1").unwrap();
        let at = |below: &str| place.tree.join(below);
        fs::write(at("f"), "ONE\ntwo\n").unwrap();
        fs::remove_dir_all(at("sub")).unwrap();
        fs::write(at("sub"), "now a file\n").unwrap();
        fs::write(at("late"), "x\n").unwrap();
        let becoming = BTreeMap::from([
            ("f".to_owned(), hash("ONE\ntwo\nand mine\n")),
            ("sub/g".to_owned(), None),
            ("sub".to_owned(), hash("now a file\n")),
            ("late".to_owned(), hash("x\n")),
        ]);
        worktrees.store_merge_hashes("i1", becoming).unwrap();
        world.put("w/f", "ONE\ntwo\nand mine\n");
        fs::remove_dir_all(world.path("w/sub")).unwrap();
        world.put("w/sub", "now a file\n");
        if broke_off {
            // The next process knows only the stored record, and `late` was not reached.
            let sandbox = Arc::new(Sandbox::with_helper("/bin/true".into(), Vec::new()));
            let (session, cwd) = (world.path("session"), world.path("w"));
            let next = Worktrees::new(&session, &cwd, sandbox, |_| None);
            next.reopen("i1").unwrap();
        } else {
            worktrees.have_become("i1", false).unwrap();
        }
        let late = [("late".to_owned(), Side::Nothing, FILE)];
        let expected: &[_] = if broke_off { &late } else { &[] };
        assert_eq!(seen(&worktrees.tree("i1").unwrap()), expected);
        assert_eq!(worktrees.merged_files("i1").contains("late"), !broke_off);
        assert!(worktrees.merged_files("i1").contains("sub/g"));
        fs::write(at("f"), "ONE\nTWO\n").unwrap();
        let tree = worktrees.tree("i1").unwrap();
        let one = tree.one("f").unwrap().unwrap();
        assert_eq!(tree.before(&one).unwrap().unwrap(), b"ONE\ntwo\n");
    }
}

#[test]
fn link_in_place_of_the_working_directory_is_not_followed() {
    for replaced in ["sub", "sub/deep"] {
        let world = WorktreeFixture::new();
        for folder in ["w/sub/deep", "outside/deep"] {
            fs::create_dir_all(world.path(folder)).unwrap();
        }
        world.put("w/sub/deep/f", "one\n");
        world.put("outside/deep/private", "theirs\n");
        let worktrees = world.make("i1", "sub/deep").unwrap();
        let place = worktrees.reopen("i1").unwrap();
        let (there, target) = match replaced {
            "sub" => (place.tree.join("sub"), world.path("outside")),
            _ => (place.cwd.clone(), world.path("outside/deep")),
        };
        fs::rename(&there, place.tree.join("aside")).unwrap();
        symlink(target, &there).unwrap();
        assert!(place.cwd.join("private").exists());
        assert!(matches!(worktrees.reopen("i1"), Err(Unavailable::Replaced)), "{replaced}");
        let changes = worktrees.close("i1").unwrap().unwrap();
        let named: Vec<&str> = changes.files.iter().map(|file| &*file.path).collect();
        assert!(!named.contains(&"private") && changes.left_out == 0, "{changes:?}");
    }
}

#[test]
fn merged_files_are_compared_without_following_links() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().canonicalize().unwrap().join(name);
    for folder in ["w/sub", "outside"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("w/sub/f"), "merged").unwrap();
    fs::write(at("outside/f"), "merged").unwrap();
    symlink(at("outside"), at("w/folder")).unwrap();
    symlink(at("outside/f"), at("w/link")).unwrap();
    symlink("/dev/zero", at("w/endless")).unwrap();
    let hash = posse_base::hex::sha256(b"merged");
    let is_here = |path: &str| merged_state::is_here(&at("w"), path, Some(&hash));
    assert!(is_here("sub/f"));
    assert!(!is_here("link") && !is_here("folder/f"));
    // Neither ends.
    nix::unistd::mkfifo(&at("w/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(!is_here("pipe") && !is_here("endless"));

    let is_gone = |path: &str| merged_state::is_here(&at("w"), path, None);
    assert!(is_gone("sub/none") && is_gone("none/f") && is_gone("sub/f/below"));
    assert!(!is_gone("sub/f") && !is_gone("folder/none"));
}

#[test]
fn left_out_files_are_those_of_the_worktree() {
    let world = WorktreeFixture::new();
    let worktrees = world.make("i", "sub").unwrap();
    let tree = worktrees.of_caller("i", None).unwrap();
    fs::create_dir(world.path("outside")).unwrap();
    world.put("outside/name of a secret", "");
    // A command of the subagent swaps its working directory while it is compared.
    let cwd = worktrees.cwd_of("i").unwrap();
    fs::rename(&cwd, cwd.with_file_name("moved")).unwrap();
    symlink(world.path("outside"), &cwd).unwrap();
    let (stop, _held) = Stop::after(Duration::from_secs(20));
    let LeftOut { count, named } = tree.find_left_out(&[], &stop);
    assert_eq!((count, named), (0, Vec::new()));
}
