//! Tests of reading and keeping upper layers that are made by hand, as the kernel or a hostile
//! program would make them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};

use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::mkfifo;

use super::changes::read;
use super::keep::Applier;
use super::*;
use crate::protect::place::next_tick;

/// A workspace with files, and an upper layer without changes.
struct Layers {
    folder: tempfile::TempDir,
    begun: (i64, i64),
}

impl Layers {
    /// The names of `files` that end with `/` are folders, the others files with their name as
    /// content.
    fn new(files: &[&str]) -> Layers {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "upper"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let layers = Layers { folder, begun: (0, 0) };
        for file in files {
            layers.put("work", file);
        }
        // Until the clock of the file system has advanced, a file counts as changed meanwhile.
        let begun = next_tick(layers.folder.path());
        Layers { begun, ..layers }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn put(&self, layer: &str, file: &str) {
        let path = self.path(layer).join(file);
        if file.ends_with('/') {
            return fs::create_dir_all(path).unwrap();
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }

    fn write(&self, layer: &str, file: &str, content: &str) {
        self.put(layer, file);
        fs::write(self.path(layer).join(file), content).unwrap();
    }

    fn white_out(&self, file: &str) {
        let path = self.path("upper").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknod(&path, SFlag::S_IFCHR, Mode::empty(), 0).unwrap();
    }

    fn mark(&self, file: &str, name: &str, value: &[u8]) {
        let path = CString::new(self.path("upper").join(file).as_os_str().as_bytes()).unwrap();
        let name = CString::new(name).unwrap();
        #[expect(unsafe_code, reason = "there is no safe wrapper")]
        // SAFETY: the strings are terminated, the value has the given length, and all outlive the
        // call.
        let set = unsafe {
            libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    fn trial(&self) -> Trial {
        let root = self.path("work");
        let found = fs::metadata(&root).unwrap();
        let identity = Identity { device: found.dev(), inode: found.ino() };
        Trial {
            folder: self.path("layers"),
            _lock: None,
            layers: vec![TrialLayer { root, identity, upper: self.path("upper") }],
            begun: self.begun,
            confinement: Confinement {
                profile: "workspace-write".to_owned(),
                writable_roots: Vec::new(),
                network: NetworkAccess::Denied,
            },
            temporary: self.path("tmp"),
            scratch: self.path("tmp"),
        }
    }

    fn read(&self) -> TrialChanges {
        read(&self.trial().layers, self.begun).unwrap()
    }

    /// The changes as text: the beginning of the kind, and the path.
    fn listed(&self) -> Vec<String> {
        let line = |change: &TrialChange| format!("{:?} {}", change.kind, change.path.display());
        self.read().changes.iter().map(line).collect()
    }

    /// Keeps the changes. Returns the paths of those that were refused, with the reasons.
    fn keep(&self, changes: &TrialChanges, fixed: &[&str]) -> BTreeMap<String, RefusalReason> {
        let fixed: Vec<PathBuf> = fixed.iter().map(|path| self.path("work").join(path)).collect();
        let trial = self.trial();
        let (kept, refused) = Applier::new(&trial, &fixed).unwrap().apply(&changes.changes);
        assert_eq!(kept + refused.len(), changes.changes.len(), "{refused:?}");
        let name = |change: RefusedChange| {
            let path = change.path.strip_prefix(self.path("work")).unwrap().display().to_string();
            (path, change.reason)
        };
        refused.into_iter().map(name).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.path("work")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                names.push(path.strip_prefix(self.path("work")).unwrap().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

/// A workspace and an upper layer with changes of all kinds.
fn layers_of_all_kinds() -> Layers {
    let layers = Layers::new(&[
        "same",
        "changed",
        "mode",
        "gone",
        "tree/a",
        "tree/deep/b",
        "swapped/x",
        "file",
        "opaque/hidden",
        "opaque/same",
        "opaque/deep/hidden",
        "merged/stays",
        "link",
    ]);
    layers.put("upper", "same");
    layers.write("upper", "changed", "other\n");
    layers.put("upper", "mode");
    fs::set_permissions(layers.path("upper/mode"), Permissions::from_mode(0o4700)).unwrap();
    layers.white_out("gone");
    layers.white_out("never");
    layers.white_out("tree");
    layers.put("upper", "swapped");
    layers.put("upper", "file/inside");
    layers.put("upper", "opaque/same");
    layers.mark("opaque", "user.overlay.opaque", b"y");
    layers.put("upper", "opaque/deep/new");
    layers.put("upper", "merged/new");
    layers.mark("merged", "user.overlay.origin", b"anything");
    layers.mark("merged/new", "user.overlay.overlay.opaque", b"y");
    layers.mark("merged/new", "user.kept", b"v");
    symlink("/etc/passwd", layers.path("upper/link")).unwrap();
    layers
}

#[test]
fn changes_of_all_kinds_are_read_and_kept() {
    let layers = layers_of_all_kinds();
    assert_eq!(
        layers.listed(),
        [
            "Modified changed",
            "Deleted file",
            "Added file",
            "Deleted gone",
            "Modified link",
            "Mode mode",
            "Deleted swapped/x",
            "Deleted swapped",
            "Added swapped",
            "Deleted tree/a",
            "Deleted tree/deep/b",
            "Deleted tree/deep",
            "Deleted tree",
            "Deleted opaque/hidden",
            "Added opaque/deep/new",
            "Deleted opaque/deep/hidden",
            "Added merged/new",
            "Added file/inside",
        ]
    );
    let changes = layers.read();
    assert!(changes.is_complete && changes.changes.iter().all(|change| !change.is_stale));
    assert_eq!(layers.keep(&changes, &[]), BTreeMap::new());
    assert_eq!(
        layers.names(),
        [
            "changed",
            "file",
            "file/inside",
            "link",
            "merged",
            "merged/new",
            "merged/stays",
            "mode",
            "opaque",
            "opaque/deep",
            "opaque/deep/new",
            "opaque/same",
            "same",
            "swapped",
        ]
    );
    let read = |file: &str| fs::read_to_string(layers.path("work").join(file)).unwrap();
    assert_eq!((read("changed"), read("swapped")), ("other\n".into(), "swapped".into()));
    assert_eq!(fs::read_link(layers.path("work/link")).unwrap(), Path::new("/etc/passwd"));
    let mode = fs::metadata(layers.path("work/mode")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o700, "without the bit for set-user-id");
    let marks = kernel_attributes(&layers.path("work/merged/new"));
    assert_eq!(marks, ["user.kept"], "the marks of the overlay are removed");
}

fn kernel_attributes(path: &Path) -> Vec<String> {
    let names = crate::kernel::attributes(path, b"user.").unwrap();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn unexpected_marks_are_an_error() {
    for (file, mark, value) in [
        ("d", "user.overlay.redirect", &b"/x"[..]),
        ("d", "user.overlay.opaque", b"x"),
        ("d/f", "user.overlay.metacopy", b""),
        ("d/f", "user.overlay.whiteout", b"y"),
    ] {
        let layers = Layers::new(&["d/f"]);
        layers.put("upper", "d/f");
        layers.mark(file, mark, value);
        let error = read(&layers.trial().layers, layers.begun).unwrap_err().to_string();
        assert!(error.contains(mark), "{error}");
    }
}

#[test]
fn protected_and_hidden_files_are_never_kept() {
    let layers = Layers::new(&[".git/HEAD", ".git/hooks/x", ".env", "vendor/lib", "a"]);
    for file in [".git/hooks/x", ".envrc", ".git/config", ".env", "vendor/lib", "sub/.git/hooks/y"]
    {
        layers.write("upper", file, "evil");
    }
    layers.white_out(".git/HEAD");
    layers.white_out("a");
    let changes = layers.read();
    let refused = layers.keep(&changes, &[".env", "vendor"]);
    let protected: Vec<&str> = refused.keys().map(String::as_str).collect();
    assert_eq!(
        protected,
        [
            ".env",
            ".envrc",
            ".git/config",
            ".git/hooks/x",
            "sub/.git/hooks",
            "sub/.git/hooks/y",
            "vendor/lib",
        ]
    );
    assert!(refused.values().all(|reason| *reason == RefusalReason::Protected), "{refused:?}");
    assert_eq!(
        layers.names(),
        [".env", ".git", ".git/hooks", ".git/hooks/x", "sub", "sub/.git", "vendor", "vendor/lib",]
    );
    assert_eq!(fs::read_to_string(layers.path("work/.git/hooks/x")).unwrap(), ".git/hooks/x");
}

#[test]
fn special_files_and_files_with_several_names_do_not_leave_the_trial() {
    let layers = Layers::new(&[]);
    mkfifo(&layers.path("upper/pipe"), Mode::S_IRWXU).unwrap();
    layers.put("upper", "one");
    fs::hard_link(layers.path("upper/one"), layers.path("upper/.envrc")).unwrap();
    fs::set_permissions(layers.path("upper/one"), Permissions::from_mode(0o6755)).unwrap();
    let changes = layers.read();
    let refused = layers.keep(&changes, &[]);
    assert_eq!(refused["pipe"], RefusalReason::Special);
    assert_eq!(refused[".envrc"], RefusalReason::Protected);
    let kept = fs::metadata(layers.path("work/one")).unwrap();
    assert_eq!((kept.nlink(), kept.mode() & 0o7777, kept.len()), (1, 0o755, 3));
    assert!(fs::symlink_metadata(layers.path("upper/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(layers.names(), ["one"]);
}

#[tokio::test]
async fn files_written_just_before_a_trial_are_not_changed_meanwhile() {
    for _ in 0..20 {
        let layers = Layers::new(&[]);
        let mut trial = layers.trial();
        fs::create_dir(&trial.folder).unwrap();
        layers.put("work", "file");
        let created = File::create_new(trial.folder.join(MARKER)).unwrap();
        trial.begun = changed(&created).unwrap();
        trial.mark_begin().await.unwrap();
        let file = File::open(layers.path("work/file")).unwrap();
        assert!(changed(&file).unwrap() < trial.begun);
        layers.put("work", "later");
        let later = File::open(layers.path("work/later")).unwrap();
        assert!(changed(&later).unwrap() >= trial.begun);
    }
}

#[test]
fn changes_of_others_in_the_workspace_stay() {
    let layers = Layers::new(&["edited", "removed", "tree/a", "mode", "d/f", "deleted"]);
    layers.write("work", "meanwhile", "by another program");
    for file in ["edited", "removed", "meanwhile", "added", "d/f"] {
        layers.write("upper", file, "by the command");
    }
    layers.white_out("tree");
    layers.white_out("deleted");
    let changes = layers.read();
    let stale: Vec<&Path> =
        changes.changes.iter().filter(|change| change.is_stale).map(|c| &*c.path).collect();
    assert_eq!(stale, [Path::new("meanwhile")]);
    // After the changes were shown.
    layers.write("work", "edited", "by the user");
    layers.write("work", "deleted", "by the user");
    fs::remove_file(layers.path("work/removed")).unwrap();
    layers.write("work", "added", "by the user");
    layers.write("work", "tree/new", "by the user");
    layers.write("upper", "d/f", "not shown");
    let refused = layers.keep(&changes, &[]);
    let reasons: Vec<(&str, &RefusalReason)> =
        refused.iter().map(|(path, reason)| (&**path, reason)).collect();
    let since = &RefusalReason::ChangedSince;
    assert_eq!(
        reasons,
        [
            ("added", since),
            ("d/f", since),
            ("deleted", since),
            ("edited", since),
            ("meanwhile", since),
            ("removed", since),
            ("tree", &RefusalReason::NotEmpty),
        ]
    );
    for file in ["edited", "added", "deleted", "tree/new"] {
        assert_eq!(fs::read_to_string(layers.path("work").join(file)).unwrap(), "by the user");
    }
    assert!(!layers.path("work/removed").exists() && !layers.path("work/tree/a").exists());
}

#[test]
fn no_link_is_followed_out_of_the_workspace() {
    let layers = Layers::new(&["d/f", "e/f", "x/f"]);
    for file in ["d/f", "d/new", "e/f"] {
        layers.write("upper", file, "by the command");
    }
    layers.white_out("x/f");
    let changes = layers.read();
    let outside = layers.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    // Folders of the workspace, and one of the trial, become links after the changes were shown.
    for folder in ["work/d", "work/x", "upper/e"] {
        fs::remove_dir_all(layers.path(folder)).unwrap();
        symlink(&outside, layers.path(folder)).unwrap();
    }
    let refused = layers.keep(&changes, &[]);
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["d/f", "d/new", "e/f", "x/f"]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "outside");
    assert_eq!(fs::read_to_string(layers.path("work/e/f")).unwrap(), "e/f");
}

#[test]
fn replaced_workspace_is_not_touched() {
    let layers = Layers::new(&["f"]);
    layers.write("upper", "f", "by the command");
    let (trial, changes) = (layers.trial(), layers.read());
    fs::rename(layers.path("work"), layers.path("old")).unwrap();
    fs::create_dir(layers.path("work")).unwrap();
    assert!(read(&trial.layers, layers.begun).is_err());
    assert!(Applier::new(&trial, &[]).is_err() && changes.changes.len() == 1);
}

#[test]
fn deep_trees_cannot_be_kept() {
    let layers = Layers::new(&[]);
    let name = "n".repeat(250);
    let mut folder = File::open(layers.path("upper")).unwrap();
    for _ in 0..40 {
        nix::sys::stat::mkdirat(&folder, &*name, Mode::S_IRWXU).unwrap();
        let flags = nix::fcntl::OFlag::O_DIRECTORY;
        folder = nix::fcntl::openat(&folder, &*name, flags, Mode::empty()).unwrap().into();
    }
    assert!(!layers.read().is_complete);
}

#[test]
fn trials_of_killed_processes_are_removed() {
    let place = tempfile::tempdir().unwrap();
    for trial in ["dead", "alive", "quarantined"] {
        fs::create_dir_all(place.path().join(trial).join("layers/0/work")).unwrap();
        fs::create_dir_all(place.path().join(trial).join("tmp")).unwrap();
    }
    fs::create_dir(place.path().join("quarantined/quarantine")).unwrap();
    let closed = Permissions::from_mode(0o000);
    fs::set_permissions(place.path().join("dead/layers/0/work"), closed).unwrap();
    let held = lock(&place.path().join("alive/layers"));
    assert!(held.is_some());
    remove_abandoned_trials(place.path());
    assert!(!place.path().join("dead").exists());
    assert!(place.path().join("alive/layers/0/work").exists());
    assert!(!place.path().join("quarantined/layers").exists());
    assert!(place.path().join("quarantined/quarantine").exists());
}

#[test]
fn permissions_of_a_folder_are_set_after_its_entries_are_applied() {
    let test = || {
        // With capabilities, root can enter every folder.
        crate::kernel::drop_capabilities().unwrap();
        keep_permissions_of_folders();
    };
    std::thread::spawn(test).join().unwrap();
}

fn keep_permissions_of_folders() {
    let layers = Layers::new(&["shut/f", "read-only/f", "opened/f"]);
    for folder in ["shut", "read-only", "opened"] {
        layers.write("upper", &format!("{folder}/f"), "by the command");
    }
    let set = |layer: &str, folder: &str, mode: u32| {
        let path = layers.path(layer).join(folder);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    set("upper", "shut", 0o000);
    set("upper", "read-only", 0o555);
    set("work", "opened", 0o555);
    set("upper", "opened", 0o755);
    let changes = layers.read();
    assert_eq!(layers.keep(&changes, &[]), BTreeMap::new());
    for (folder, mode) in [("shut", 0o000), ("read-only", 0o555), ("opened", 0o755)] {
        let path = layers.path("work").join(folder);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{folder}");
        set("work", folder, 0o755);
        set("upper", folder, 0o755);
        assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "by the command");
    }
}

#[test]
fn folder_whose_permissions_cannot_be_set_at_the_end_counts_as_refused() {
    let layers = Layers::new(&["d/"]);
    layers.put("upper", "d/");
    fs::set_permissions(layers.path("upper/d"), Permissions::from_mode(0o700)).unwrap();
    let mut changes = layers.read();
    // As if another program removed the folder meanwhile.
    let removal =
        TrialChange { kind: ChangeKind::Deleted, after: None, ..changes.changes[0].clone() };
    changes.changes.push(removal);
    let refused = layers.keep(&changes, &[]);
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["d"]);
}

#[test]
fn edit_of_the_same_size_in_a_file_with_several_names_stays() {
    let layers = Layers::new(&["one"]);
    fs::hard_link(layers.path("work/one"), layers.path("work/two")).unwrap();
    next_tick(layers.folder.path());
    let layers = Layers { begun: next_tick(layers.folder.path()), ..layers };
    layers.write("upper", "one", "by the command");
    let changes = layers.read();
    next_tick(layers.folder.path());
    fs::write(layers.path("work/two"), "two").unwrap();
    let refused = layers.keep(&changes, &[]);
    assert_eq!(refused["one"], RefusalReason::ChangedSince);
    assert_eq!(fs::read_to_string(layers.path("work/one")).unwrap(), "two");
}

#[test]
fn deletions_below_a_hidden_folder_are_in_the_order_of_names() {
    let names: Vec<String> = (0..40).map(|number| format!("d/{number:02}")).collect();
    let layers = Layers::new(&names.iter().rev().map(String::as_str).collect::<Vec<_>>());
    layers.put("upper", "d/");
    layers.mark("d", "user.overlay.opaque", b"y");
    let deleted: Vec<String> = names.iter().map(|name| format!("Deleted {name}")).collect();
    assert_eq!(layers.listed(), deleted);
}
