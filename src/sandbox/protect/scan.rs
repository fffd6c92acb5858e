//! Scan for protected names and secrets below a root. An unchanged folder is not read again.
//!
//! Inside a git folder only git's own files are protected, because a branch may have any name. A
//! folder of another role, such as `node_modules`, is scanned as an ordinary folder if a link in an ordinary
//! folder, of this or another root, leads to it. Then the names directly in the folders above it are
//! protected, too, because programs look there as well. The name of the root itself can give names
//! in it their meaning, as for `.github`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use posse_base::paths::normalise;
use posse_base::protected::{self, Class};
use posse_base::secrets::{self, files::SecretFiles};

use crate::protect::folder_watch::FolderWatch;
use crate::protect::git_folder::{self, ForeignNames, GitPart};
use crate::protect::known_secrets::KnownSecrets;
use crate::protect::place::{self, Identity, Listed, PlaceKind, Root, Stat};
use crate::protect::sort::{ProtectedItem, Sort};

/// Minimum age of a folder's last change for its time stamp to be reliable: file system clocks are
/// coarse.
pub(super) const SETTLED: Duration = Duration::from_millis(20);

/// Maximum number of passes in which a scan searches for new link targets, before its last pass.
const LINK_ROUNDS_MAX: usize = 3;

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

/// Role of a folder: determines the names in it that are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderRole {
    /// Ordinary folder.
    Plain,
    /// Folder of third-party or generated files, such as `node_modules` or `target`, or a folder
    /// below one (see `is_vendored` in `src/base/protected.rs`).
    Vendored,
    /// Folder below a `.git`, and the names that are foreign in it, or in a repository that it is.
    Inside(GitPart, ForeignNames),
    /// Folder with a meaning for git in a repository that is not below a `.git`, such as `info`. Like
    /// an ordinary folder otherwise.
    Bare(GitPart, ForeignNames),
    /// Folder that is protected as a whole. It is scanned for secrets only.
    Held,
    /// `.git`, in any notation that a file system treats as equal, such as `GIT~1`.
    Git,
}

/// Folders in which protected names count, seen from one folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameScope {
    /// They do not count, except for repositories and, in folders of package managers, `.posse` and
    /// `.agents`.
    Nowhere,
    /// They count in the folder, but not in the folders below it.
    Here,
    /// They count in the folder and in all folders below it.
    Below,
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

/// Folders to which links lead.
#[derive(Debug, Default)]
struct LinkTargets {
    /// Folders below the root that are to be scanned as ordinary ones.
    ordinary: BTreeSet<Arc<Path>>,
    /// Files and folders outside of the root.
    elsewhere: BTreeSet<PathBuf>,
}

impl LinkTargets {
    /// True if `scan` knows these targets already.
    fn is(&self, scan: &Scan) -> bool {
        self.ordinary == scan.link_targets && self.elsewhere == scan.targets_elsewhere
    }
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
    /// Paths below the root to which links in other roots lead.
    from_elsewhere: BTreeSet<Arc<Path>>,
    /// Watches of folders. `None` for a root with few folders, after an incomplete scan, or if the
    /// system offers no notifications.
    watch: Option<FolderWatch>,
    unwatched_max: usize,
    known: KnownSecrets,
    /// Folders that the last scan could not read because of their permissions.
    unreadable: Vec<Arc<Path>>,
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
            targets_elsewhere: BTreeSet::new(),
            from_elsewhere: BTreeSet::new(),
            watch: None,
            unwatched_max: UNWATCHED_MAX,
            known: KnownSecrets::default(),
            unreadable: Vec::new(),
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

    /// Folders outside of the root to which links in ordinary folders lead, as of the last scan.
    pub(super) fn targets_elsewhere(&self) -> &BTreeSet<PathBuf> {
        &self.targets_elsewhere
    }

    /// Sets the paths below the root to which links in other roots lead. Returns true if they differ
    /// from those of before, so that another scan is needed.
    pub(super) fn set_targets_from_elsewhere(&mut self, targets: BTreeSet<Arc<Path>>) -> bool {
        let is_new = targets != self.from_elsewhere;
        self.from_elsewhere = targets;
        is_new
    }

    /// Folders that the last scan could not read because of their permissions.
    pub(super) fn unreadable(&self) -> &[Arc<Path>] {
        &self.unreadable
    }

    /// Paths, below the root, of the folders whose subfolders are not all scanned: repositories.
    pub(super) fn partly_scanned(&self) -> impl Iterator<Item = &Path> {
        let partly = self.folders.iter().filter(|(_, folder)| folder.is_repository);
        partly.map(|(path, _)| Path::new(path))
    }

    /// Number of the last scan.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// True if the folder at `path` was already there, with the same identity, in scan `number`.
    pub(super) fn was_there(&self, path: &Path, number: u64) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.first_met <= number)
    }

    /// True if any folder was at `path` in scan `number`.
    pub(super) fn path_existed(&self, path: &Path, number: u64) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.path_met <= number)
    }

    /// True if the folder existed in scan `number`, at any path. False if the last scan did not
    /// find it.
    pub(super) fn existed(&self, folder: Identity, number: u64) -> bool {
        self.identities.get(&folder).is_some_and(|first| *first <= number)
    }

    /// Returns the identity of the folder at `path`. `None` if the last scan found no folder there.
    pub(super) fn identity(&self, path: &Path) -> Option<Identity> {
        self.folders.get(path.as_os_str()).map(|folder| folder.identity)
    }

    /// True if the last scan found a folder at `path` that git accepts as a repository, or that is
    /// a `.git`, even an incomplete one.
    pub(super) fn is_repository(&self, path: &Path) -> bool {
        self.folders.get(path.as_os_str()).is_some_and(|folder| folder.is_repository)
    }

    /// Returns the creation time of the repository at `path`. `None` if there is none, or the file
    /// system does not store it.
    pub(super) fn creation_time_of(&self, path: &Path) -> Option<SystemTime> {
        self.folders.get(path.as_os_str()).and_then(|folder| folder.birth)
    }

    /// Returns the path of the folder with this identity, below the root. `None` if the last scan
    /// did not find it.
    pub(super) fn path_of(&self, identity: Identity) -> Option<&Path> {
        let mut folders = self.folders.iter();
        folders.find(|(_, folder)| folder.identity == identity).map(|(name, _)| Path::new(name))
    }

    /// Paths, below the root, of the folders that may contain one of the files `inodes`, as of the last
    /// scan: those that list one of these inode numbers.
    pub(super) fn folders_with(&self, inodes: &HashSet<u64>) -> impl Iterator<Item = &Path> {
        let folders = self.folders.iter();
        let with =
            folders.filter(|(_, folder)| folder.inodes.iter().any(|inode| inodes.contains(inode)));
        with.map(|(path, _)| Path::new(path))
    }

    /// Paths, below the root, of protected names that the scan does not enter if they are folders,
    /// such as `hooks`.
    pub(super) fn not_entered(&self) -> impl Iterator<Item = &Path> {
        let items = self.folders.values().flat_map(|folder| &folder.items);
        let is_entered =
            |sort| matches!(sort, Sort::Name(_) | Sort::Repository | Sort::Pointer | Sort::Index);
        items.filter(move |item| !is_entered(item.sort)).map(|item| &*item.path)
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

    /// Scans until the targets of links are stable, in at most [`LINK_ROUNDS_MAX`] passes and a
    /// last one. The result is incomplete if they are not stable then.
    fn run_rounds(&mut self, root: &Root, bounds: ScanBounds) -> ScanResult {
        self.number += 1;
        let begin = Instant::now();
        let mut folders_read = 0;
        for _ in 0..LINK_ROUNDS_MAX {
            let mut found = self.run_once(root, bounds, begin);
            folders_read += found.folders_read;
            found.folders_read = folders_read;
            let targets = self.resolve(root, self.folders.values());
            if targets.is(self) || !found.is_complete {
                return found;
            }
            self.link_targets = targets.ordinary;
            self.targets_elsewhere = targets.elsewhere;
        }
        let mut found = self.run_once(root, bounds, begin);
        found.folders_read += folders_read;
        found.is_complete &= self.resolve(root, self.folders.values()).is(self);
        found
    }

    fn run_once(&mut self, root: &Root, bounds: ScanBounds, begin: Instant) -> ScanResult {
        let mut found = ScanResult { is_complete: true, ..ScanResult::default() };
        self.unreadable.clear();
        let targets = self.link_targets.clone();
        // Programs that are started in the target of a link look for files in these, too.
        let above: HashSet<&Path> =
            targets.iter().flat_map(|path| path.ancestors().skip(1)).collect();
        let start: Arc<Path> = Path::new("").into();
        // The last part is true if the path leads to the same folder as in the last scan.
        let mut level = vec![(start, FolderRole::Plain, NameScope::Below, true)];
        level.extend(targets.iter().map(|path| {
            let is_git =
                path.file_name().is_some_and(|name| protected::is_dot_git(name.as_bytes()));
            let role = if is_git { FolderRole::Git } else { FolderRole::Plain };
            (Arc::clone(path), role, NameScope::Below, false)
        }));
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

    /// Returns the folders to which the links in `folders` lead, and those links in other roots, and
    /// which are not scanned as ordinary folders because of their path. Other links add nothing.
    fn resolve<'a>(
        &self,
        root: &Root,
        folders: impl Iterator<Item = &'a ScannedFolder>,
    ) -> LinkTargets {
        let mut targets = LinkTargets::default();
        for (link, text) in folders.flat_map(|folder| &folder.links) {
            self.add_link_target(root, link, text, &mut targets);
        }
        let from_elsewhere = self.from_elsewhere.iter().filter(|path| self.is_target(root, path));
        targets.ordinary.extend(from_elsewhere.cloned());
        targets
    }

    /// True if the folder at `path` is scanned as an ordinary folder, or not at all, without a link.
    fn is_ordinary(&self, path: &Path) -> bool {
        let known = self.folders.get(path.as_os_str());
        known.is_some_and(|folder| {
            folder.names == NameScope::Below || folder.role == FolderRole::Held
        }) && !self.link_targets.contains(path)
    }

    /// True if there is a folder at `path` that is scanned as an ordinary folder only because a link
    /// leads there.
    fn is_target(&self, root: &Root, path: &Path) -> bool {
        !self.is_ordinary(path) && root.stat(path).is_ok_and(|stat| stat.kind == PlaceKind::Folder)
    }

    fn add_link_target(&self, root: &Root, link: &Path, text: &Path, targets: &mut LinkTargets) {
        // The usual case, without system calls: links are relative and lead to ordinary folders.
        let mut parts = text.components().skip_while(|part| *part == Component::ParentDir);
        if text.is_relative() && parts.all(|part| matches!(part, Component::Normal(_))) {
            let above = link.parent().unwrap_or(Path::new(""));
            let depth = |path: &Path| path.components().count();
            let ups = text.components().filter(|part| *part == Component::ParentDir).count();
            if ups <= depth(above) && self.is_ordinary(&normalise(&above.join(text))) {
                return;
            }
        }
        let Ok(resolved) = std::fs::canonicalize(root.path.join(link)) else { return };
        match resolved.strip_prefix(&root.path) {
            Ok(relative) if self.is_target(root, relative) => {
                targets.ordinary.insert(relative.into());
            }
            Ok(_) => {}
            Err(_) => drop(targets.elsewhere.insert(resolved)),
        }
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

/// True if any change after `now` gets a time other than `changed`, the time of the last change.
pub(crate) fn is_timestamp_final(changed: (i64, i64), now: Duration) -> bool {
    let seconds = u64::try_from(changed.0).unwrap_or(0);
    let nanoseconds = u32::try_from(changed.1).unwrap_or(0);
    Duration::new(seconds, nanoseconds.min(999_999_999)) + SETTLED < now
}

/// Sorts the entries `listed` of the folder `path` in `root` into the lists of `folder`: protected names,
/// secrets (by name, or in `known`), links, folders to scan, and inodes of what is not secret. An
/// entry may be in several. Also sets `is_repository`. `role` and `names` must be set before.
fn classify_content(
    root: &Path,
    path: &Arc<Path>,
    opened: &OwnedFd,
    listed: Vec<Listed>,
    known: &KnownSecrets,
    folder: &mut ScannedFolder,
) {
    let is_root = path.as_os_str().is_empty();
    let above = if is_root { root.file_name() } else { path.file_name() }.unwrap_or_default();
    // In a root with the name of a protected folder, everything is protected.
    let class_of_root = if is_root { protected::class_of_folder(root) } else { None };
    let is_repository = folder.role == FolderRole::Git || looks_like_repository(&listed);
    folder.is_repository = is_repository;
    let foreign = match folder.role {
        FolderRole::Git => ForeignNames::AllOthers,
        FolderRole::Inside(_, foreign) => foreign,
        _ if is_repository && is_whole_repository(&listed) => ForeignNames::OtherFiles,
        _ => ForeignNames::Dangerous,
    };
    let repository = is_repository.then_some(foreign);
    let mut named = String::new();
    let mut inodes = Vec::with_capacity(listed.len());
    if is_repository {
        folder.items.push(ProtectedItem { path: Arc::clone(path), sort: Sort::Repository });
    }
    for Listed { name, kind, inode } in listed {
        let child: Arc<Path> = path.join(&name).into();
        let scope = (folder.role, folder.names);
        let sort =
            classify_entry(scope, repository, above, &name, kind).or(class_of_root.map(Sort::Name));
        if let Some(sort) = sort.filter(|sort| *sort != Sort::Repository) {
            folder.items.push(ProtectedItem { path: Arc::clone(&child), sort });
        }
        let is_ordinary = folder.names == NameScope::Below;
        if is_ordinary && kind == PlaceKind::Link && !protected::is_vendored(name.as_bytes()) {
            let text = place::link_target(opened, Path::new(&name)).unwrap_or_default();
            folder.links.push((Arc::clone(&child), text.into()));
        }
        // A name may be both, such as `.npmrc`: then it is hidden and protected.
        let may_hide = matches!(sort, None | Some(Sort::Name(_) | Sort::Environment));
        let visible = (is_ordinary || folder.role == FolderRole::Held) && may_hide;
        if visible && secret(above, &name, kind, &mut named) {
            folder.secrets.push(child);
            continue;
        }
        if known.contains(opened, Path::new(&name), inode) {
            // A folder is still scanned for protected names, which its new name may give a meaning.
            folder.secrets.push(Arc::clone(&child));
        } else if matches!(kind, PlaceKind::File | PlaceKind::Folder) {
            inodes.push(inode);
        }
        if kind == PlaceKind::Folder
            && let Some((role, names)) = role_below(scope, repository, &name, sort)
        {
            folder.below.push((child, role, names));
        }
    }
    folder.inodes = inodes.into();
}

/// True if git would accept a folder with these entries as a repository.
fn looks_like_repository(listed: &[Listed]) -> bool {
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for entry in listed {
        let known: [&[u8]; 4] = [b"head", b"objects", b"refs", b"commondir"];
        let name = entry.name.as_bytes();
        if name.len() <= 12
            && let Some(known) = known.into_iter().find(|known| *known == &*protected::fold(name))
        {
            seen.insert(known);
        }
    }
    let has = |name: &[u8]| seen.contains(name);
    protected::is_repository(|name| has(name.as_bytes()))
}

/// True if a folder with these entries has what git creates in each repository, in git's spelling,
/// and no `.git`: then it is no folder with other files that only looks like a repository.
fn is_whole_repository(listed: &[Listed]) -> bool {
    let has =
        |name: &str, kind| listed.iter().any(|entry| entry.name == name && entry.kind == kind);
    let has_dot_git = listed.iter().any(|entry| protected::is_dot_git(entry.name.as_bytes()));
    has("HEAD", PlaceKind::File)
        && has("config", PlaceKind::File)
        && has("objects", PlaceKind::Folder)
        && has("refs", PlaceKind::Folder)
        && !has_dot_git
}

/// Returns the kind of the entry `name` of a folder. `repository`: the names that are foreign in the
/// folder, if it is a repository.
fn classify_entry(
    (role, names): (FolderRole, NameScope),
    repository: Option<ForeignNames>,
    above: &OsStr,
    name: &OsStr,
    kind: PlaceKind,
) -> Option<Sort> {
    let folded = protected::fold(name.as_bytes());
    if repository.is_some()
        && let Some(sort) = settings_of_repository(&folded, kind)
    {
        return Some(sort);
    }
    let part = match role {
        FolderRole::Inside(part, foreign) | FolderRole::Bare(part, foreign) => {
            Some((part, foreign))
        }
        _ => None,
    };
    let is_of_git = repository.is_some()
        || matches!(role, FolderRole::Git | FolderRole::Inside(..))
        || part.is_some_and(|(part, _)| part != GitPart::Refs);
    let is_part = |wanted| part.is_some_and(|(part, _)| part == wanted);
    if is_part(GitPart::Worktree) && &*folded == b"gitdir" {
        return Some(Sort::WorktreePath);
    }
    // `HEAD` may be a link, in old repositories.
    if is_of_git && kind == PlaceKind::Link && &*folded != b"head" {
        return Some(Sort::InnerLink);
    }
    if (is_part(GitPart::Info) || is_part(GitPart::Worktree)) && &*folded == b"attributes" {
        return Some(Sort::Attributes);
    }
    if is_part(GitPart::Info) && &*folded == b"exclude" {
        return Some(Sort::Exclude);
    }
    if role == FolderRole::Held {
        return None;
    }
    let top = repository.map(|foreign| (GitPart::Top, foreign));
    let mut places = [part, top].into_iter().flatten();
    let of_git = places.find_map(|(part, foreign)| {
        git_folder::sort_of(part, foreign, name.as_bytes(), &folded, kind)
    });
    if of_git.is_some_and(|sort| sort != Sort::Foreign) {
        return of_git;
    }
    named_sort((role, names), above, name, &folded, kind).or(of_git)
}

/// Returns the kind of a name that steers git in every repository.
fn settings_of_repository(folded: &[u8], kind: PlaceKind) -> Option<Sort> {
    match folded {
        b"hooks" => Some(Sort::Hooks),
        b"remotes" | b"branches" => Some(Sort::Remotes),
        b"config" | b"config.worktree" => Some(Sort::Settings),
        b"commondir" => Some(Sort::Common),
        b"info" if kind == PlaceKind::Link => Some(Sort::Attributes),
        b"lazygit.yml" => Some(Sort::Name(Class::Git)),
        name if kind != PlaceKind::Link
            && (name == b"index" || name.starts_with(b"sharedindex.")) =>
        {
            Some(Sort::Index)
        }
        _ => None,
    }
}

/// Returns the kind of a name that programs other than git read, or of a repository.
fn named_sort(
    (role, names): (FolderRole, NameScope),
    above: &OsStr,
    name: &OsStr,
    folded: &[u8],
    kind: PlaceKind,
) -> Option<Sort> {
    let mut class = protected::class_of(above.as_bytes(), name.as_bytes());
    if kind == PlaceKind::Link {
        // A name in the folder that it leads to would become a protected one.
        class = class.or_else(|| protected::names_in(folded).next().map(|(_, class)| class));
    }
    if kind != PlaceKind::Folder && folded == b".venv" {
        // A file contains the name of the environment that some shells activate.
        class = Some(Class::Start);
    }
    let Some(class) = class else {
        let is_read = names == NameScope::Below && kind != PlaceKind::Folder;
        return (is_read && protected::is_environment_file(folded)).then_some(Sort::Environment);
    };
    let is_dot_git = protected::is_dot_git(name.as_bytes());
    match (class, role) {
        (Class::Git, _) if is_dot_git && kind == PlaceKind::Folder => Some(Sort::Repository),
        (Class::Git, _) if is_dot_git => Some(Sort::Pointer),
        (Class::Authority, FolderRole::Vendored) if is_own(folded) => Some(Sort::Name(class)),
        _ if names != NameScope::Nowhere => Some(Sort::Name(class)),
        _ => None,
    }
}

/// True for `.posse` and `.agents`, which are protected even in folders of package managers.
fn is_own(folded: &[u8]) -> bool {
    matches!(folded, b".posse" | b".agents")
}

/// Returns the role of the folder `name` in a parent of this `role`, and the scope of protected
/// names in it. `repository`: as for [`classify_entry`]; `sort`: kind of `name` if it is protected.
/// `None`: it is not scanned.
fn role_below(
    (role, names): (FolderRole, NameScope),
    repository: Option<ForeignNames>,
    name: &OsStr,
    sort: Option<Sort>,
) -> Option<(FolderRole, NameScope)> {
    match sort {
        Some(Sort::Repository) => return Some((FolderRole::Git, NameScope::Here)),
        Some(Sort::Name(_) | Sort::Foreign | Sort::Volatile) => {
            return Some((FolderRole::Held, NameScope::Nowhere));
        }
        Some(Sort::Interrupted) | None => {}
        Some(_) => return None,
    }
    let folded = protected::fold(name.as_bytes());
    let names = match names {
        // The first part of a protected name of two parts, such as `.cargo/config.toml`.
        NameScope::Here if protected::names_in(&folded).next().is_some() => NameScope::Here,
        NameScope::Here | NameScope::Nowhere => NameScope::Nowhere,
        NameScope::Below => NameScope::Below,
    };
    match (role, repository) {
        (FolderRole::Inside(GitPart::Worktrees, foreign), _) => {
            return Some((FolderRole::Inside(GitPart::Worktree, foreign), names));
        }
        (FolderRole::Bare(GitPart::Worktrees, foreign), _) => {
            return Some((FolderRole::Bare(GitPart::Worktree, foreign), names));
        }
        (FolderRole::Git | FolderRole::Inside(..), Some(foreign)) => {
            let part = git_folder::part_of(&folded);
            let is_judged = part != GitPart::Open || &*folded == b"modules";
            let foreign = if is_judged { foreign } else { ForeignNames::Dangerous };
            return Some((FolderRole::Inside(part, foreign), names));
        }
        (FolderRole::Inside(GitPart::Open, foreign), None) => {
            return Some((FolderRole::Inside(GitPart::Open, foreign), names));
        }
        (FolderRole::Git | FolderRole::Inside(..), None) => {
            return Some((FolderRole::Inside(GitPart::Open, ForeignNames::Dangerous), names));
        }
        (_, Some(foreign)) if git_folder::part_of(&folded) != GitPart::Open => {
            return Some((FolderRole::Bare(git_folder::part_of(&folded), foreign), names));
        }
        _ => {}
    }
    let role = if matches!(role, FolderRole::Bare(..)) { FolderRole::Plain } else { role };
    match role {
        FolderRole::Plain if protected::is_vendored(name.as_bytes()) => {
            Some((FolderRole::Vendored, NameScope::Nowhere))
        }
        same => Some((same, names)),
    }
}

/// True if `name` is named like a secret in the folder `above`. False if the name of `above` is
/// itself that of a secret, which covers its content, and for pipes, sockets and devices. Of names
/// that are not UTF-8, the parts that are count. `named` is a scratch buffer.
fn secret(above: &OsStr, name: &OsStr, kind: PlaceKind, named: &mut String) -> bool {
    if kind == PlaceKind::Other {
        return false;
    }
    let (above, name) = (above.to_string_lossy(), name.to_string_lossy());
    named.clear();
    named.push_str(&above);
    named.push('/');
    // A folder with the name of its parent would match its content twice.
    named.push_str(&name);
    let below_secret = secrets::is_secret(&above);
    !below_secret && secrets::is_secret(named)
}

#[cfg(test)]
mod tests;
