//! Scans that rely on notifications find the same as scans that examine every folder.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::protect::sort::Sort;

/// Change of a tree. Folders are chosen by number among those that exist.
#[derive(Debug, Clone)]
enum TreeChange {
    MakeFolder(usize, usize),
    MakeFile(usize, usize),
    Remove(usize),
    Move(usize, usize, usize),
    /// Replaces a folder by a new one that has a protected file where the old one had a folder.
    Replace(usize),
    Exchange(usize, usize),
    /// Moves a file to another folder, under an ordinary name.
    MoveFile(usize, usize),
    /// Adds a hard link to a file in another folder, under one of the names.
    Link(usize, usize, usize),
}

const FOLDERS: [&str; 6] = ["a", "b", "c", ".git", "vendor", ".github"];
const FILES: [&str; 6] = ["x", "CLAUDE.md", ".npmrc", ".env", "HEAD", "config"];

fn change() -> impl Strategy<Value = TreeChange> {
    let number = || any::<usize>();
    prop_oneof![
        4 => (number(), number()).prop_map(|(at, name)| TreeChange::MakeFolder(at, name)),
        3 => (number(), number()).prop_map(|(at, name)| TreeChange::MakeFile(at, name)),
        2 => number().prop_map(TreeChange::Remove),
        3 => (number(), number(), number()).prop_map(|(at, to, name)| TreeChange::Move(at, to, name)),
        2 => number().prop_map(TreeChange::Replace),
        1 => (number(), number()).prop_map(|(at, other)| TreeChange::Exchange(at, other)),
        2 => (number(), number()).prop_map(|(at, to)| TreeChange::MoveFile(at, to)),
        2 => (number(), number(), number()).prop_map(|(at, to, name)| TreeChange::Link(at, to, name)),
    ]
}

/// All folders below `root`, with it.
fn folders(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    let mut at = 0;
    while let Some(folder) = all.get(at).cloned() {
        at += 1;
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut below: Vec<PathBuf> = entries
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.path())
            .collect();
        below.sort();
        all.extend(below);
    }
    all
}

/// File in `folder`, if it has any.
fn file_in(folder: &Path) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.into_iter().next()
}

/// A change that is not possible has no effect.
fn apply(root: &Path, change: &TreeChange) {
    let all = folders(root);
    let folder = |number: usize| all[number % all.len()].clone();
    match change {
        TreeChange::MakeFolder(at, name) => {
            fs::create_dir(folder(*at).join(FOLDERS[name % FOLDERS.len()])).ok();
        }
        TreeChange::MakeFile(at, name) => {
            fs::write(folder(*at).join(FILES[name % FILES.len()]), "x").ok();
        }
        TreeChange::Remove(at) if folder(*at) != root => fs::remove_dir_all(folder(*at)).unwrap(),
        TreeChange::Move(at, to, name) if folder(*at) != root => {
            fs::rename(folder(*at), folder(*to).join(FOLDERS[name % FOLDERS.len()])).ok();
        }
        TreeChange::Replace(at) if folder(*at) != root => {
            let old = folder(*at);
            fs::rename(&old, root.join("old")).unwrap();
            fs::create_dir_all(old.join("a/b")).unwrap();
            fs::write(old.join("a/b/CLAUDE.md"), "x").unwrap();
            fs::remove_dir_all(root.join("old")).unwrap();
        }
        TreeChange::MoveFile(at, to) => {
            file_in(&folder(*at)).map(|file| fs::rename(file, folder(*to).join("plain")));
        }
        TreeChange::Link(at, to, name) => {
            let link = folder(*to).join(FILES[name % FILES.len()]);
            file_in(&folder(*at)).map(|file| fs::hard_link(file, link));
        }
        #[cfg(target_os = "linux")]
        TreeChange::Exchange(at, other) => {
            use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
            let flags = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, &folder(*at), AT_FDCWD, &folder(*other), flags).ok();
        }
        _ => {}
    }
}

type Findings = (Vec<(PathBuf, Sort)>, Vec<PathBuf>);

fn findings(found: ScanResult) -> Findings {
    assert!(found.is_complete);
    let mut items: Vec<_> =
        found.items.into_iter().map(|item| (item.path.to_path_buf(), item.sort)).collect();
    items.sort_by(|one, other| one.0.cmp(&other.0));
    let mut secrets: Vec<_> = found.secrets.iter().map(|path| path.to_path_buf()).collect();
    secrets.sort();
    (items, secrets)
}

/// Registers `secrets` as a protection does after a scan.
fn register(registry: &SecretFiles, root: &Path, secrets: &[PathBuf]) {
    use std::os::unix::fs::MetadataExt;

    for path in secrets {
        let Ok(found) = fs::symlink_metadata(root.join(path)) else { continue };
        let changed = (found.ctime(), found.ctime_nsec());
        registry.register((found.dev(), found.ino()), changed, 0, || {
            fs::File::open(root.join(path)).ok()
        });
    }
}

fn knowing(registry: &SecretFiles, mut scan: Scan) -> Scan {
    scan.search_for(registry.clone());
    scan
}

fn watching() -> Scan {
    Scan { unwatched_max: 0, ..Scan::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn watched_scan_finds_the_same(
        rounds in prop::collection::vec(prop::collection::vec(change(), 1..8), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/b/c", "b/a/b", "c"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        let registry = SecretFiles::default();
        let fresh = || knowing(&registry, Scan::default());
        let mut watched = knowing(&registry, watching());
        let bounds = ScanBounds::default();
        watched.run(&root, bounds);
        for changes in rounds {
            for change in &changes {
                apply(dir.path(), change);
            }
            let expected = findings(fresh().run(&root, bounds));
            prop_assert_eq!(findings(watched.run(&root, bounds)), expected.clone());
            // Secrets that are known from now on may have other names in folders that were read.
            register(&registry, dir.path(), &expected.1);
            let expected = findings(fresh().run(&root, bounds));
            prop_assert_eq!(findings(watched.run(&root, bounds)), expected.clone());
            // Folders whose time stamp is final are not read again.
            for folder in watched.folders.values_mut() {
                folder.is_settled = true;
            }
            prop_assert_eq!(findings(watched.run(&root, bounds)), expected.clone());
            // The result is returned again.
            prop_assert!(watched.last.is_some() || cfg!(not(target_os = "linux")));
            prop_assert_eq!(findings(watched.run(&root, bounds)), expected);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn unchanged_folders_are_not_examined_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut scan = watching();
    let bounds = ScanBounds::default();
    scan.run(&root, bounds);
    let Some(watch) = &scan.watch else { panic!("no notifications") };
    let identities: Vec<Identity> = scan.folders.values().map(|folder| folder.identity).collect();
    // The first folder is read before the watches begin.
    let known = identities.iter().filter(|identity| watch.is_unchanged(**identity)).count();
    assert!(known >= identities.len() - 1, "{known} of {}", identities.len());
    fs::write(dir.path().join("a/b/x"), "").unwrap();
    let Some(watch) = &mut scan.watch else { panic!("no notifications") };
    watch.update();
    let now = identities.iter().filter(|identity| watch.is_unchanged(**identity)).count();
    assert_eq!(now, known - 1);
}
