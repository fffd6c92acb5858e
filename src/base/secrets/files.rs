//! Identities of secret files and folders, which stay secret when they or their folders are
//! renamed.
//!
//! A scan that finds a secret by its name registers it by device and inode number. An inode number
//! is reused when its file is removed; the creation time tells the files apart.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use nix::sys::resource::{Resource, getrlimit};

/// At each multiple of this number of registered files, those are dropped that no scan finds any
/// more.
const FILES_MAX: usize = 100_000;

/// Maximum number of registered targets of links. Further targets are not registered.
const TARGETS_MAX: usize = 1000;

/// Maximum number of secrets that are held open, so that they are found wherever they are moved; at
/// most a quarter of the descriptors that the process may open.
const HELD_MAX: u64 = 256;

static HELD_LIMIT: LazyLock<usize> = LazyLock::new(|| {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(HELD_MAX, |(soft, _)| soft / 4);
    usize::try_from(limit.min(HELD_MAX)).unwrap_or_default()
});

/// Maximum number of secrets in [`SecretFiles::doubt`]. If there are more, no tracked secret is shown.
const DOUBTED_MAX: usize = 100_000;

/// Number of attempts to find the path of a held secret that is being moved.
const LOOKS_MAX: usize = 8;

/// Device and inode number of a file or folder.
pub type FileId = (u64, u64);

/// Change time of a file: seconds and nanoseconds.
type ChangeTime = (i64, i64);

/// Registry of the secret files and folders that scans have found. Clones share one registry.
#[derive(Debug, Clone, Default)]
pub struct SecretFiles(Arc<RwLock<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    files: HashMap<FileId, SecretFile>,
    /// Number of the last addition.
    last: u64,
    /// Creation times of secrets that the user lets commands read, found before they were registered.
    shown: HashMap<FileId, Option<SystemTime>>,
    /// Files outside the workspace to which links named like secrets lead or have led.
    targets: BTreeSet<PathBuf>,
    /// Secrets that are not to be shown as tracked files until they change, with the time of their last
    /// change: they were found to differ from the commit, or there was none.
    doubted: HashMap<FileId, ChangeTime>,
    /// Counts the secrets that are held open: each has a copy.
    held: Arc<()>,
}

/// Place of a registered secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// Its path at the moment, or one that it just had if it is being moved.
    At(PathBuf),
    /// It exists, but its path cannot be read: it may be longer than the kernel shows.
    OutOfReach,
    /// It has been removed.
    Removed,
    /// It is not held open, or has been removed under the name by which it was found and has other
    /// names.
    Unknown,
}

#[derive(Debug)]
struct SecretFile {
    is_folder: bool,
    /// Creation time. `None` if the file system does not store it.
    birth: Option<SystemTime>,
    changed: ChangeTime,
    /// Number of the addition that registered the file.
    added: u64,
    /// Number of the scanner that found the file last.
    scanner: u64,
    /// True if the scanner does not find the file any more.
    is_lost: bool,
    /// Descriptor without access, and the copy of [`Registry::held`] that counts it.
    held: Option<(Arc<File>, Arc<()>)>,
}

impl SecretFile {
    /// True if a file with the same inode number and the creation time `birth` is another file.
    /// False if one of the two times is unknown.
    fn is_other(&self, birth: Option<SystemTime>) -> bool {
        self.birth.is_some() && birth.is_some() && self.birth != birth
    }
}

impl SecretFiles {
    /// Returns the registry of all sessions of this process.
    pub fn of_process() -> SecretFiles {
        static REGISTRY: LazyLock<SecretFiles> = LazyLock::new(SecretFiles::default);
        REGISTRY.clone()
    }

    /// Registers the secret `id`, which `scanner` found, with the time of its last change. `open` is
    /// called only if the file is new or has changed, and opens it without access (`O_PATH`); if it
    /// returns `None` or another file, nothing is registered.
    pub fn register(
        &self,
        id: FileId,
        changed: ChangeTime,
        scanner: u64,
        open: impl FnOnce() -> Option<File>,
    ) {
        let mut registry = self.write();
        if let Some(known) = registry.files.get_mut(&id)
            && known.changed == changed
            && !known.is_lost
        {
            known.scanner = scanner;
            return;
        }
        let Some(file) = open() else { return };
        let Some(metadata) = file.metadata().ok().filter(|found| id_of(found) == id) else {
            return;
        };
        let birth = metadata.created().ok();
        let same = registry.files.get(&id).filter(|known| !known.is_other(birth));
        let added = same.map_or(registry.last + 1, |known| known.added);
        registry.last = registry.last.max(added);
        let is_folder = metadata.is_dir();
        // The descriptor that is replaced does not count.
        registry.files.remove(&id);
        let may_hold =
            cfg!(target_os = "linux") && Arc::strong_count(&registry.held) <= *HELD_LIMIT;
        let held = may_hold.then(|| (Arc::new(file), Arc::clone(&registry.held)));
        let file = SecretFile { is_folder, birth, changed, added, scanner, is_lost: false, held };
        registry.files.insert(id, file);
        if registry.files.len().is_multiple_of(FILES_MAX) {
            registry.files.retain(|_, file| !file.is_lost);
        }
    }

    /// Notes that the user lets commands read the secret with this `metadata`, unless it is registered.
    /// If it is registered later, under another name, it can be read again under this one.
    pub fn show(&self, metadata: &Metadata) {
        if self.contains(metadata) {
            return;
        }
        let (id, birth) = (id_of(metadata), metadata.created().ok());
        if self.read().shown.get(&id) != Some(&birth) {
            let mut registry = self.write();
            if registry.shown.len() < FILES_MAX {
                registry.shown.insert(id, birth);
            }
        }
    }

    /// True if the file with this `metadata` is a registered secret that was not noted by
    /// [`SecretFiles::show`] before: no name lets it be read.
    pub fn is_withheld(&self, metadata: &Metadata) -> bool {
        let is_shown = || {
            let registry = self.read();
            registry.shown.get(&id_of(metadata)) == Some(&metadata.created().ok())
        };
        self.contains(metadata) && !is_shown()
    }

    /// Notes that the secret `id`, last changed at `changed`, was found to differ from the commit, or
    /// that there is none. A command could commit guesses of its content to test them.
    pub fn doubt(&self, id: FileId, changed: ChangeTime) {
        if self.read().doubted.get(&id) != Some(&changed) {
            self.write().doubted.insert(id, changed);
        }
    }

    /// True if the secret was noted by [`SecretFiles::doubt`] and has not changed since. True for each
    /// one if there are too many.
    pub fn is_doubted(&self, id: FileId, changed: ChangeTime) -> bool {
        let registry = self.read();
        registry.doubted.get(&id) == Some(&changed) || registry.doubted.len() >= DOUBTED_MAX
    }

    /// Registers a file outside the workspace to which a link named like a secret leads. Commands
    /// can rename the link, but not the file.
    pub fn register_target(&self, path: PathBuf) {
        if !self.read().targets.contains(&path) {
            let mut registry = self.write();
            if registry.targets.len() < TARGETS_MAX {
                registry.targets.insert(path);
            }
        }
    }

    /// Returns the registered targets of links.
    pub fn targets(&self) -> Vec<PathBuf> {
        self.read().targets.iter().cloned().collect()
    }

    /// True if a file with this identity is registered. The inode number may have been reused.
    pub fn may_contain(&self, id: FileId) -> bool {
        self.read().files.contains_key(&id)
    }

    /// True if the file with this `metadata` is a registered secret. Another file that has the
    /// inode number of a removed secret ends its registration.
    pub fn contains(&self, metadata: &Metadata) -> bool {
        let id = id_of(metadata);
        let is_other = match self.read().files.get(&id) {
            None => return false,
            Some(known) => {
                known.is_folder != metadata.is_dir() || known.is_other(metadata.created().ok())
            }
        };
        if is_other {
            self.write().files.remove(&id);
        }
        !is_other
    }

    /// Ends the registration of the file `id`, whose content is no secret. Under its name it is
    /// registered again when it changes.
    pub fn forget(&self, id: FileId) {
        self.write().files.remove(&id);
    }

    /// True if a secret folder is registered.
    pub fn has_folders(&self) -> bool {
        self.read().files.values().any(|file| file.is_folder)
    }

    /// Returns the identities registered after the addition `number`, and the number of the last
    /// addition.
    pub fn added_after(&self, number: u64) -> (Vec<FileId>, u64) {
        let registry = self.read();
        if registry.last == number {
            return (Vec::new(), number);
        }
        let added = registry.files.iter().filter(|(_, file)| file.added > number);
        (added.map(|(id, _)| *id).collect(), registry.last)
    }

    /// Returns the identities of the secrets that `scanner` found last or that are held open, that are
    /// not lost yet, and for which `found` returns false.
    pub fn missing(&self, scanner: u64, found: impl Fn(&FileId) -> bool) -> Vec<FileId> {
        let registry = self.read();
        let is_near = |file: &SecretFile| file.scanner == scanner || file.held.is_some();
        let near = registry.files.iter().filter(|(_, file)| is_near(file));
        let missing = near.filter(|(id, file)| !file.is_lost && !found(id));
        missing.map(|(id, _)| *id).collect()
    }

    /// Finds the secret `id`, wherever it was moved.
    pub fn place(&self, id: &FileId) -> SecretPlace {
        let held = self.read().files.get(id).and_then(|file| file.held.clone());
        let Some((file, _)) = held else { return SecretPlace::Unknown };
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut last = SecretPlace::Unknown;
        for _ in 0..LOOKS_MAX {
            let Ok(found) = file.metadata() else { return SecretPlace::Unknown };
            if found.nlink() == 0 {
                return SecretPlace::Removed;
            }
            let Ok(path) = fs::read_link(&link) else { return SecretPlace::OutOfReach };
            let is_there = fs::symlink_metadata(&path).is_ok_and(|found| id_of(&found) == *id);
            let is_deleted = path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
            if is_there {
                return SecretPlace::At(path);
            }
            last = if is_deleted { SecretPlace::Unknown } else { SecretPlace::At(path) };
        }
        last
    }

    /// Ends the search for `lost`, which a complete scan did not find. Files are forgotten only if
    /// a reuse of their inode number could not be noticed.
    pub fn set_lost(&self, lost: &[FileId]) {
        let mut registry = self.write();
        for id in lost {
            match registry.files.get_mut(id) {
                Some(file) if file.birth.is_some() => {
                    file.is_lost = true;
                    file.held = None;
                }
                _ => drop(registry.files.remove(id)),
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        opened().metadata().unwrap()
    }

    fn opened() -> File {
        File::open(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn registered_file_is_known_until_it_is_another_file() {
        let registry = SecretFiles::default();
        let id = id_of(&metadata());
        registry.register(id, (1, 1), 7, || None);
        assert!(!registry.contains(&metadata()));
        registry.register(id, (1, 1), 7, || Some(opened()));
        registry.register(id, (1, 1), 7, || panic!("it has not changed"));
        assert!(registry.contains(&metadata()) && !registry.has_folders());
        assert_eq!(registry.added_after(0), (vec![id], 1));
        registry.register(id, (2, 1), 7, || Some(opened()));
        assert_eq!(registry.added_after(1), (Vec::new(), 1), "it is the same file");
        registry.write().files.get_mut(&id).unwrap().birth = Some(SystemTime::UNIX_EPOCH);
        let stores_birth = metadata().created().is_ok();
        assert_eq!(registry.contains(&metadata()), !stores_birth);
        assert_eq!(registry.may_contain(id), !stores_birth);
    }

    #[test]
    fn secret_that_was_shown_first_can_be_shown_again() {
        for is_shown_first in [true, false] {
            let registry = SecretFiles::default();
            if is_shown_first {
                registry.show(&metadata());
                assert!(!registry.contains(&metadata()));
            }
            registry.register(id_of(&metadata()), (1, 1), 7, || Some(opened()));
            registry.show(&metadata());
            assert!(registry.contains(&metadata()));
            assert_eq!(registry.is_withheld(&metadata()), !is_shown_first);
        }
    }

    #[test]
    fn missing_file_is_forgotten_only_if_its_reuse_is_not_noticed() {
        let registry = SecretFiles::default();
        let id = id_of(&metadata());
        for birth in [Some(SystemTime::UNIX_EPOCH), None] {
            registry.register(id, (1, 1), 7, || Some(opened()));
            registry.write().files.get_mut(&id).unwrap().birth = birth;
            assert_eq!(registry.missing(7, |found| *found == id), []);
            // Another scanner finds it wherever it is moved.
            let is_held = registry.read().files[&id].held.is_some();
            assert_eq!(registry.missing(8, |_| false).is_empty(), !is_held);
            registry.write().files.get_mut(&id).unwrap().held = None;
            assert_eq!(registry.missing(8, |_| false), []);
            assert_eq!(registry.missing(7, |_| false), [id]);
            registry.set_lost(&[id]);
            assert_eq!(registry.missing(7, |_| false), []);
            assert_eq!(registry.may_contain(id), birth.is_some());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn registered_file_is_found_wherever_it_is_moved() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let registry = SecretFiles::default();
        let mut ids = Vec::new();
        for name in ["a", "b"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join(".env"), "x").unwrap();
            for path in [at(name), at(name).join(".env")] {
                let file = File::open(path).unwrap();
                let id = id_of(&file.metadata().unwrap());
                registry.register(id, (1, 1), 7, || Some(file));
                ids.push(id);
            }
        }
        fs::rename(at("a"), at("c")).unwrap();
        let places = |ids: &[FileId]| ids.iter().map(|id| registry.place(id)).collect::<Vec<_>>();
        let moved = [SecretPlace::At(at("c")), SecretPlace::At(at("c/.env"))];
        assert_eq!(places(&ids[..2]), moved);
        fs::hard_link(at("b/.env"), at("other")).unwrap();
        fs::remove_dir_all(at("b")).unwrap();
        fs::remove_dir_all(at("c")).unwrap();
        let removed = SecretPlace::Removed;
        assert_eq!(places(&ids), [removed.clone(), removed.clone(), removed, SecretPlace::Unknown]);
        registry.set_lost(&ids);
        assert_eq!(registry.place(&ids[3]), SecretPlace::Unknown);
        assert_eq!(Arc::strong_count(&registry.read().held), 1, "all descriptors are closed");
    }
}
