//! Search for secrets that were renamed, by device and inode number.
//!
//! A scan compares the inode numbers of all entries that it reads with those of the registered
//! secrets, which scans have found by name before. A secret that a scan did not find is looked up by
//! its descriptor, because a command can move it while the scan reads. Only the first 256 have one. If
//! another one is missing, the folders of a repository that scans leave out are searched, and while
//! other commands run, no command starts until it is found or was missed three times.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use posse_base::secrets::files::{FileId, SecretFiles, SecretPlace};

use crate::protect::place::{self, Identity, PlaceKind, Root, Stat};
use crate::protect::scan::Scan;
use crate::protect::{Protection, Watched};

/// Number of searches beside other commands after which a secret that none of them found is lost.
const MISSES_MAX: u32 = 3;

/// Maximum number of entries that one search reads.
const ENTRIES_MAX: usize = 1_000_000;

/// Time limit of one search.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Returns a number for a scanner of secrets that no other scanner of this process has.
pub(super) fn next_scanner() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Registered secrets as a scan knows them.
#[derive(Debug, Default)]
pub(super) struct KnownSecrets {
    files: SecretFiles,
    /// Number of the last addition to `files` that is in `inodes`.
    last: u64,
    /// Inode numbers of the secrets on any device. Some may be forgotten by now.
    inodes: HashSet<u64>,
}

impl KnownSecrets {
    pub(super) fn new(files: SecretFiles) -> KnownSecrets {
        KnownSecrets { files, ..KnownSecrets::default() }
    }

    /// Updates the inode numbers. Returns the new ones.
    pub(super) fn update(&mut self) -> HashSet<u64> {
        let (added, last) = self.files.added_after(self.last);
        self.last = last;
        let added: HashSet<u64> = added.into_iter().map(|(_, inode)| inode).collect();
        self.inodes.extend(&added);
        added
    }

    /// True if the entry `name` of `folder`, with this inode number, is a registered secret. True
    /// in doubt, if its status cannot be read.
    pub(super) fn contains(&self, folder: &OwnedFd, name: &Path, inode: u64) -> bool {
        self.inodes.contains(&inode) && self.is_registered(folder, name)
    }

    fn is_registered(&self, folder: &OwnedFd, name: &Path) -> bool {
        // A list of entries does not tell the device.
        match Stat::at(folder, name) {
            Ok(stat) => {
                self.files.may_contain(id_of(stat.identity))
                    && place::metadata(folder, name).is_none_or(|found| self.files.contains(&found))
            }
            // A command could make the folder accessible again.
            Err(errno) => errno == Errno::EACCES,
        }
    }
}

impl Protection {
    /// Uses the registry `secret_files`, which several protections and the file tools share,
    /// instead of the previous one.
    pub(crate) fn registering(mut self, secret_files: SecretFiles) -> Protection {
        for watched in &mut self.lock().roots {
            watched.scan.search_for(secret_files.clone());
        }
        self.lock().committed.registry = secret_files.clone();
        self.secret_files = secret_files;
        self
    }

    /// Registers the secret at `path`, which has the status `stat`.
    pub(super) fn register(&self, root: &Root, path: &Path, stat: &Stat) {
        self.secret_files.register(id_of(stat.identity), stat.changed, self.scanner, || {
            let (folder, name) = root.open_parent(path).ok()?;
            place::hold(&folder, name)
        });
    }

    /// Counts the searches that missed the same secrets, and returns true from the third on: they were
    /// removed rather than moved.
    fn is_missed_again(&self, missing: &HashSet<Identity>) -> bool {
        let mut ids: Vec<FileId> = missing.iter().copied().map(id_of).collect();
        ids.sort_unstable();
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let count = if missed.0 == ids { missed.1 + 1 } else { 1 };
        *missed = (ids, count);
        count >= MISSES_MAX
    }

    /// Looks for the secrets that earlier scans found and the last one did not. `seen`: those that it
    /// found; `is_complete`: it covered all folders. If `may_move`, because other commands run and may
    /// have moved them meanwhile, secrets without a descriptor are lost only after several such
    /// searches.
    pub(super) fn search_missing(
        &self,
        roots: &[Watched],
        seen: &HashSet<Identity>,
        is_complete: bool,
        may_move: bool,
    ) -> FoundSecrets {
        let is_seen = |id: &FileId| seen.contains(&identity_of(*id));
        let mut found = FoundSecrets::default();
        let (mut lost, mut missing) = (Vec::new(), HashSet::new());
        let mut out_of_reach = HashSet::new();
        for id in self.secret_files.missing(self.scanner, is_seen) {
            match self.secret_files.place(&id) {
                SecretPlace::At(path) => {
                    if roots.iter().any(|watched| path.starts_with(&watched.root.path)) {
                        found.secrets.push((path, identity_of(id)));
                    }
                }
                SecretPlace::Removed => lost.push(id),
                SecretPlace::OutOfReach => {
                    out_of_reach.insert(identity_of(id));
                    missing.insert(identity_of(id));
                }
                SecretPlace::Unknown => drop(missing.insert(identity_of(id))),
            }
        }
        if is_complete && !missing.is_empty() {
            lost.extend(self.search_unscanned(roots, missing, may_move, &mut found));
        }
        lost.retain(|id| !out_of_reach.contains(&identity_of(*id)));
        out_of_reach.retain(|id| !found.secrets.iter().any(|(_, found)| found == id));
        found.is_unsettled |= !out_of_reach.is_empty();
        self.secret_files.set_lost(&lost);
        found
    }

    /// Searches the folders that scans leave out for `missing`. Returns those to search for no more:
    /// there are no such folders, and the search reached no limit.
    fn search_unscanned(
        &self,
        roots: &[Watched],
        missing: HashSet<Identity>,
        may_move: bool,
        found: &mut FoundSecrets,
    ) -> Vec<FileId> {
        let mut search = Search {
            missing,
            begin: Instant::now(),
            entries_left: ENTRIES_MAX,
            found: Vec::new(),
            unreadable: Vec::new(),
        };
        let is_complete = roots.iter().all(|watched| search.in_unscanned(watched));
        found.secrets.append(&mut search.found);
        // A command could make these folders readable again.
        let scanned = roots.iter().flat_map(|Watched { root, scan, .. }| {
            scan.unreadable().iter().filter_map(|path| nearest_accessible(root, path))
        });
        found.unreadable = search.unreadable.into_iter().chain(scanned).collect();
        if !is_complete || !found.unreadable.is_empty() || search.missing.is_empty() {
            return Vec::new();
        }
        found.is_unsettled = may_move && !self.is_missed_again(&search.missing);
        if found.is_unsettled {
            return Vec::new();
        }
        search.missing.into_iter().map(id_of).collect()
    }
}

/// Secrets that a scan did not find.
#[derive(Debug, Default)]
pub(super) struct FoundSecrets {
    /// Their absolute paths, and identities. One that is being moved is not there any more.
    pub(super) secrets: Vec<(PathBuf, Identity)>,
    /// Folders that could not be searched.
    pub(super) unreadable: Vec<PathBuf>,
    /// True if a secret was not found that may be moving, or that exists at an unknown place.
    pub(super) is_unsettled: bool,
}

/// Search of the folders that a scan leaves out.
struct Search {
    /// Secrets that are not found yet.
    missing: HashSet<Identity>,
    begin: Instant,
    entries_left: usize,
    found: Vec<(PathBuf, Identity)>,
    /// Folders that cannot be opened.
    unreadable: Vec<PathBuf>,
}

impl Search {
    /// Searches below one root. Returns false if a limit was reached.
    fn in_unscanned(&mut self, Watched { root, scan, .. }: &Watched) -> bool {
        let mut open: Vec<Arc<Path>> = scan.partly_scanned().map(Arc::from).collect();
        while let Some(folder) = open.pop() {
            if self.missing.is_empty() {
                return true;
            }
            if self.entries_left == 0 || self.begin.elapsed() > TIME_MAX {
                return false;
            }
            self.list(root, scan, &folder, &mut open);
        }
        true
    }

    /// Searches one folder, and adds the folders in it that are not scanned to `open`.
    fn list(&mut self, root: &Root, scan: &Scan, path: &Path, open: &mut Vec<Arc<Path>>) {
        let folder = match root.open_folder(path) {
            Ok(folder) => folder,
            Err(Errno::EACCES) => {
                self.unreadable.extend(nearest_accessible(root, path));
                return;
            }
            // It no longer exists, or is no longer a folder.
            Err(_) => return,
        };
        let Ok((listed, _)) = place::list(&folder, self.entries_left) else { return };
        self.entries_left -= listed.len();
        for entry in listed {
            if entry.kind == PlaceKind::Link {
                continue;
            }
            let child: Arc<Path> = path.join(&entry.name).into();
            let may_be_missing = self.missing.iter().any(|id| id.inode == entry.inode);
            if may_be_missing
                && let Ok(stat) = Stat::at(&folder, Path::new(&entry.name))
                && self.missing.remove(&stat.identity)
            {
                self.found.push((root.path.join(&child), stat.identity));
            } else if entry.kind == PlaceKind::Folder && scan.identity(&child).is_none() {
                open.push(child);
            }
        }
    }
}

/// Returns the nearest of `path` and the folders above it, up to but without the root, whose status
/// can be read, as an absolute path. `None` if there is none.
pub(super) fn nearest_accessible(root: &Root, path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    above.find(|path| root.stat(path).is_ok()).map(|path| root.path.join(path))
}

fn id_of(identity: Identity) -> FileId {
    (identity.device, identity.inode)
}

fn identity_of((device, inode): FileId) -> Identity {
    Identity { device, inode }
}
