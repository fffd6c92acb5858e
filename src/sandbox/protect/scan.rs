//! Scan for protected names and secrets below a root. An unchanged folder is not read again.
//!
//! Inside a git folder only git's own files are protected, because a branch may have any name. A
//! folder of another role, such as `node_modules`, is scanned as an ordinary folder if a link in an ordinary
//! folder, of this or another root, leads to it. Then the names directly in the folders above it are
//! protected, too, because programs look there as well. The name of the root itself can give names
//! in it their meaning, as for `.github`.

mod classify;
mod link_targets;
mod link_walk;
mod lookup;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use posse_base::secrets::files::SecretFiles;

use crate::protect::folder_watch::FolderWatch;
use crate::protect::known_secrets::KnownSecrets;
use crate::protect::place::{self, Identity, PlaceKind, Root, Stat, is_timestamp_final};
pub(super) use crate::protect::scan::classify::REPOSITORY_PARTS;
use crate::protect::scan::classify::{FolderRole, NameScope, classify_content};
use crate::protect::sort::ProtectedItem;

/// Number of scanned folders from which further ones are watched for changes. Examining fewer each
/// time is cheap.
const UNWATCHED_MAX: usize = 16;

/// Number of folders between checks of the time limit.
const FOLDERS_PER_LOOK: usize = 32;

/// Limits of the scan of one root: visited folders, entries in them, and time. A scan that exceeds
/// one is incomplete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanBounds {
    pub(crate) folders: usize,
    pub(crate) entries: usize,
    pub(crate) time: Duration,
}

impl ScanBounds {
    /// Returns five times these limits, for a workspace that a command has enlarged beyond them.
    /// Files that existed before were within the normal limits.
    pub(super) fn enlarged(self) -> ScanBounds {
        let ScanBounds { folders, entries, time } = self;
        ScanBounds {
            folders: folders.saturating_mul(5),
            entries: entries.saturating_mul(5),
            time: time.saturating_mul(5),
        }
    }
}

impl Default for ScanBounds {
    fn default() -> ScanBounds {
        ScanBounds { folders: 200_000, entries: 1_000_000, time: Duration::from_secs(2) }
    }
}

/// Content of a folder as of its last reading.
#[derive(Debug)]
struct ScannedFolder {
    identity: Identity,
    /// Creation time of a repository. `None` for other folders, or if the file system does not
    /// store it.
    birth: Option<SystemTime>,
    changed: (i64, i64),
    /// True if any change after the reading alters `changed`.
    is_settled: bool,
    is_repository: bool,
    role: FolderRole,
    names: NameScope,
    /// Number of the first scan that found a folder of any identity at this path.
    path_met: u64,
    /// Numbers of the first and the last scan that found this folder at this path.
    first_met: u64,
    last_met: u64,
    entries: usize,
    /// Inode numbers of the files and folders in the folder that are not secret.
    inodes: Box<[u64]>,
    below: Vec<(Arc<Path>, FolderRole, NameScope)>,
    items: Vec<ProtectedItem>,
    secrets: Vec<Arc<Path>>,
    /// Links in the folder, with their target text; empty unless `names` is [`NameScope::Below`].
    /// Links with the name of a folder of package managers are left out. A link cannot change
    /// without a change of its folder.
    links: Vec<(Arc<Path>, PathBuf)>,
}

/// A folder that the scan visits.
#[derive(Debug, Clone, Copy)]
struct ScanPath<'a> {
    path: &'a Arc<Path>,
    role: FolderRole,
    names: NameScope,
    /// True if the path is known to lead to the same folder as in the last scan: for the root, and
    /// if the folder above was not read again. False if that has to be examined.
    is_same_path: bool,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    pub(super) items: Vec<ProtectedItem>,
    pub(super) secrets: Vec<Arc<Path>>,
    pub(super) is_complete: bool,
    /// Number of folders that were read, not only checked for changes. A folder that was read in
    /// several passes counts each time.
    pub(super) folders_read: usize,
}

/// Scanner of one root, with the cached content of all its folders.
#[derive(Debug)]
pub(super) struct Scan {
    /// Folders by path. The keys are byte strings, because comparing paths by component costs more
    /// than the rest of the scan.
    folders: HashMap<OsString, ScannedFolder>,
    /// For each folder, the number of the first scan that found it at any path.
    identities: HashMap<Identity, u64>,
    number: u64,
    /// Folders that are scanned as ordinary ones, despite their role, because a link in an ordinary
    /// folder leads to them.
    link_targets: BTreeSet<Arc<Path>>,
    /// Folders outside of the root to which links in ordinary folders lead.
    targets_elsewhere: BTreeSet<PathBuf>,
    /// Links in ordinary folders of which the last scan could not tell where they will lead, with their
    /// texts.
    uncertain_links: BTreeMap<Arc<Path>, PathBuf>,
    /// Paths below the root to which links in other roots lead.
    from_elsewhere: BTreeSet<Arc<Path>>,
    /// Watches of folders. `None` for a root with few folders, after an incomplete scan, or if the
    /// system offers no notifications.
    watch: Option<FolderWatch>,
    unwatched_max: usize,
    known: KnownSecrets,
    /// Folders that the last scan could not read because of their permissions.
    unreadable: Vec<Arc<Path>>,
    /// Error of a folder that the last scan could not read for want of descriptors or memory.
    exhausted: Option<Errno>,
    /// Result of the last scan, to be returned again if nothing changed. `None` if a later change
    /// could go unnoticed.
    last: Option<LastScan>,
}

/// Result of a scan of a watched workspace.
#[derive(Debug)]
struct LastScan {
    items: Vec<ProtectedItem>,
    secrets: Vec<Arc<Path>>,
    /// Folders without a watch, which are examined each time.
    unwatched: Vec<OsString>,
    /// Folders that contain links.
    with_links: Vec<OsString>,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            folders: HashMap::new(),
            identities: HashMap::new(),
            number: 0,
            link_targets: BTreeSet::new(),
            uncertain_links: BTreeMap::new(),
            targets_elsewhere: BTreeSet::new(),
            from_elsewhere: BTreeSet::new(),
            watch: None,
            unwatched_max: UNWATCHED_MAX,
            known: KnownSecrets::default(),
            unreadable: Vec::new(),
            exhausted: None,
            last: None,
        }
    }
}

impl Scan {
    /// Makes later scans report the files that are registered in `known` as secrets, under any
    /// name.
    pub(super) fn search_for(&mut self, known: SecretFiles) {
        self.known = KnownSecrets::new(known);
    }

    /// Sets the paths below the root to which links in other roots lead. Returns true if they differ
    /// from those of before, so that another scan is needed.
    pub(super) fn set_targets_from_elsewhere(&mut self, targets: BTreeSet<Arc<Path>>) -> bool {
        let is_new = targets != self.from_elsewhere;
        self.from_elsewhere = targets;
        is_new
    }

    /// Error of a folder that the last scan could not read for want of descriptors or memory: another
    /// scan may succeed.
    pub(super) fn exhausted(&self) -> Option<Errno> {
        self.exhausted
    }

    /// Scans `root` and the folders below it, breadth first, until all are visited or a limit of
    /// `bounds` is exceeded, which makes the result incomplete. Reads only folders that have
    /// changed.
    pub(super) fn run(&mut self, root: &Root, bounds: ScanBounds) -> ScanResult {
        if let Some(watch) = &mut self.watch {
            watch.update();
        }
        self.read_again_for_new_secrets();
        if let Some(found) = self.repeat_last(root) {
            self.number += 1;
            return found;
        }
        let found = self.run_rounds(root, bounds);
        if !found.is_complete {
            // Folders below those that were read have not been examined.
            self.watch = None;
        } else if let Some(watch) = &mut self.watch {
            watch.finish();
        }
        self.last = self.watch.as_ref().and_then(|watch| self.last_scan(watch, &found));
        found
    }

    /// Lets the next visit read the folders again that contain files which are known as secrets
    /// only since they were read, such as hard links.
    fn read_again_for_new_secrets(&mut self) {
        let new = self.known.update();
        if new.is_empty() {
            return;
        }
        for folder in self.folders.values_mut() {
            if folder.inodes.iter().any(|inode| new.contains(inode)) {
                folder.is_settled = false;
                self.last = None;
            }
        }
    }

    /// Returns the result of the last scan if nothing changed since. `None` if something may have
    /// changed, and without watches or a stored result.
    fn repeat_last(&self, root: &Root) -> Option<ScanResult> {
        let (watch, last) = (self.watch.as_ref()?, self.last.as_ref()?);
        let is_same = |path: &OsString| {
            let now = root.stat(Path::new(path));
            let known = self.folders.get(path);
            known.is_some_and(|known| {
                now.is_ok_and(|now| (now.identity, now.changed) == (known.identity, known.changed))
            })
        };
        let links = last.with_links.iter().filter_map(|path| self.folders.get(path));
        let is_unchanged = watch.has_no_changes()
            && last.unwatched.iter().all(is_same)
            && self.resolve(root, links).is(self);
        is_unchanged.then(|| ScanResult {
            items: last.items.clone(),
            secrets: last.secrets.clone(),
            is_complete: true,
            folders_read: 0,
        })
    }

    /// Makes the result `found` storable for [`Scan::repeat_last`]. `None` if a change of a folder
    /// might not alter its time stamp, or a folder could not be read.
    fn last_scan(&self, watch: &FolderWatch, found: &ScanResult) -> Option<LastScan> {
        if !self.unreadable.is_empty() || !self.folders.values().all(|folder| folder.is_settled) {
            return None;
        }
        let paths = |wanted: &dyn Fn(&ScannedFolder) -> bool| -> Vec<OsString> {
            let folders = self.folders.iter().filter(|(_, folder)| wanted(folder));
            folders.map(|(path, _)| path.clone()).collect()
        };
        Some(LastScan {
            items: found.items.clone(),
            secrets: found.secrets.clone(),
            unwatched: paths(&|folder| !watch.is_unchanged(folder.identity)),
            with_links: paths(&|folder| !folder.links.is_empty()),
        })
    }

    /// Scans until the targets of links are stable: in a target there may be links to others. The
    /// result is incomplete if they are not stable within the time limit, or if a pass exceeds a limit;
    /// then one more pass follows, with the links that were found so far.
    fn run_rounds(&mut self, root: &Root, bounds: ScanBounds) -> ScanResult {
        self.number += 1;
        let mut begin = Instant::now();
        let mut folders_read = 0;
        let mut is_last = false;
        loop {
            let mut found = self.run_once(root, bounds, begin);
            folders_read += found.folders_read;
            found.folders_read = folders_read;
            let mut targets = self.resolve(root, self.folders.values());
            self.uncertain_links = std::mem::take(&mut targets.uncertain);
            if targets.is(self) || is_last {
                found.is_complete &= targets.is(self);
                return found;
            }
            // Targets are visited first, so that many other folders do not hide what is in them.
            is_last = !found.is_complete || begin.elapsed() > bounds.time;
            if is_last {
                begin = Instant::now();
            }
            self.link_targets = targets.ordinary;
            self.targets_elsewhere = targets.elsewhere;
        }
    }

    fn run_once(&mut self, root: &Root, bounds: ScanBounds, begin: Instant) -> ScanResult {
        let mut found = ScanResult { is_complete: true, ..ScanResult::default() };
        self.unreadable.clear();
        self.exhausted = None;
        let targets = self.link_targets.clone();
        // Programs that are started in the target of a link look for files in these, too.
        let above: HashSet<&Path> =
            targets.iter().flat_map(|path| path.ancestors().skip(1)).collect();
        let start: Arc<Path> = Path::new("").into();
        // The last part is true if the path leads to the same folder as in the last scan.
        let mut level = vec![(start, FolderRole::Plain, NameScope::Below, true)];
        let of_targets = targets.iter().map(|path| (Arc::clone(path), self.role_of_target(path)));
        let of_targets = of_targets.map(|(path, role)| (path, role, NameScope::Below, false));
        level.extend(of_targets.collect::<Vec<_>>());
        let mut folders = 0;
        let mut entries = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for (path, role, names, is_same_path) in level {
                folders += 1;
                let too_long = folders % FOLDERS_PER_LOOK == 0 && begin.elapsed() > bounds.time;
                if folders > bounds.folders || entries > bounds.entries || too_long {
                    found.is_complete = false;
                    next.clear();
                    break;
                }
                let read_before = found.folders_read;
                let place = ScanPath { path: &path, role, names, is_same_path };
                let Some(folder) = self.visit(root, place, &mut found, bounds) else { continue };
                // The names in a folder that was not read again lead to the same folders.
                let is_same = found.folders_read == read_before;
                entries += folder.entries;
                found.items.extend(folder.items.iter().cloned());
                found.secrets.extend(folder.secrets.iter().cloned());
                let below = folder.below.iter().filter(|(path, ..)| !targets.contains(path));
                next.extend(below.map(|(path, role, names)| {
                    let is_above = *names == NameScope::Nowhere && above.contains(&**path);
                    let names = if is_above { NameScope::Here } else { *names };
                    (Arc::clone(path), *role, names, is_same)
                }));
            }
            level = next;
        }
        if folders != self.folders.len() || !found.is_complete {
            let number = self.number;
            self.folders.retain(|_, folder| folder.last_met == number);
            let known: HashSet<Identity> =
                self.folders.values().map(|folder| folder.identity).collect();
            self.identities.retain(|identity, _| known.contains(identity));
            if let Some(watch) = &mut self.watch {
                watch.keep_only(&known);
            }
        }
        found
    }

    /// Returns the content of the folder at `path`; reads it only if it has changed. `None` if it
    /// is not a folder any more or cannot be read; unless it is missing or inaccessible, `found` is
    /// incomplete then.
    fn visit(
        &mut self,
        root: &Root,
        place: ScanPath<'_>,
        found: &mut ScanResult,
        bounds: ScanBounds,
    ) -> Option<&ScannedFolder> {
        let ScanPath { path, role, names, is_same_path } = place;
        let number = self.number;
        if is_same_path
            && let Some(watch) = &self.watch
            && let Some(known) = self.folders.get_mut(path.as_os_str())
            && (known.role, known.names) == (role, names)
            && known.is_settled
            && watch.is_unchanged(known.identity)
        {
            known.last_met = number;
            return self.folders.get(path.as_os_str());
        }
        // A link on the way leads to another folder, or to the same folder with the same content.
        let stat = match root.stat(path) {
            Ok(stat) if stat.kind == PlaceKind::Folder => stat,
            Ok(_) => return None,
            Err(errno) => {
                self.note_error(path, errno, found);
                return None;
            }
        };
        if self.watch.is_none() && self.folders.len() >= self.unwatched_max {
            self.watch = FolderWatch::begin();
        }
        if let Some(known) = self.folders.get_mut(path.as_os_str())
            && known.identity == stat.identity
            && known.changed == stat.changed
            && known.is_settled
            && (known.role, known.names) == (role, names)
        {
            known.last_met = number;
            // Returning the earlier borrow would extend it to the whole function.
            return self.folders.get(path.as_os_str());
        }
        self.read(root, place, stat.identity, found, bounds)
    }

    /// Reads the folder at `place` into the cache. `identity`: identity of the folder as just
    /// determined. `None` if the folder cannot be read, as for [`Scan::visit`]. Counts the folder
    /// in `found`.
    fn read(
        &mut self,
        root: &Root,
        place: ScanPath<'_>,
        identity: Identity,
        found: &mut ScanResult,
        bounds: ScanBounds,
    ) -> Option<&ScannedFolder> {
        let ScanPath { path, role, names, .. } = place;
        let number = self.number;
        let known = self.folders.get(path.as_os_str());
        let same = known.filter(|known| known.identity == identity);
        let first_met = same.map_or(number, |known| known.first_met);
        let path_met = known.map_or(number, |known| known.path_met);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = bounds.entries;
        let watch = &mut self.watch;
        let read = root.open_folder(path).and_then(|folder| {
            if let Some(watch) = watch {
                watch.add(&folder, Stat::at(&folder, Path::new(""))?.identity);
            }
            // Describes the opened folder, not a later one of the same name.
            let stat = Stat::at(&folder, Path::new(""))?;
            place::list(&folder, left).map(|(listed, all)| (folder, stat, listed, all))
        });
        let (opened, stat, listed, all) = match read {
            Ok(read) => read,
            Err(errno) => {
                self.note_error(path, errno, found);
                return None;
            }
        };
        found.folders_read += 1;
        found.is_complete &= all;
        let mut folder = ScannedFolder {
            identity: stat.identity,
            birth: None,
            changed: stat.changed,
            is_settled: is_timestamp_final(stat.changed, now),
            is_repository: false,
            role,
            names,
            path_met,
            first_met,
            last_met: number,
            entries: listed.len(),
            inodes: Box::default(),
            below: Vec::new(),
            items: Vec::new(),
            secrets: Vec::new(),
            links: Vec::new(),
        };
        classify_content(&root.path, path, &opened, listed, &self.known, &mut folder);
        if folder.is_repository {
            folder.birth = place::creation_time(&opened);
        }
        self.identities.entry(folder.identity).or_insert(number);
        self.folders.insert(path.as_os_str().to_owned(), folder);
        self.folders.get(path.as_os_str())
    }

    fn note_error(&mut self, path: &Arc<Path>, errno: Errno, found: &mut ScanResult) {
        // Without the root there is no scan.
        found.is_complete &= is_final(errno) && !path.as_os_str().is_empty();
        if is_exhaustion(errno) {
            self.exhausted = Some(errno);
        }
        if errno == Errno::EACCES {
            self.unreadable.push(Arc::clone(path));
        }
    }
}

/// True if the scan stays complete without a folder that gives this error: it does not exist, or
/// its permissions deny reading it (see `unreadable`). Any other error makes the scan incomplete.
fn is_final(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES)
}

/// True if posse or the machine lacked descriptors or memory, so that another scan may succeed.
fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)
}

#[cfg(test)]
mod tests;
