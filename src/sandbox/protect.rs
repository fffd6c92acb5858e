//! Protection of control files and secrets within the area that a command may write.
//!
//! [`Protection::survey`] finds them before a command starts; mounts hold existing ones where the
//! host supports that. [`Protection::check_after`] finds created and changed ones, moves them to
//! the quarantine and restores the originals. No placeholder files are created: `git add` would add
//! them.

mod check;
mod exemptions;
mod folder_watch;
mod gitconfig;
mod links;
mod moved_repositories;
mod new_worktrees;
mod place;
mod quarantine;
mod scan;
mod state;
mod stores;
mod tool_writes;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use posse_base::failure::printable;
use posse_base::protected;

use exemptions::Lifted;
use new_worktrees::NewWorktrees;
use place::{Identity, Root, Stat};
use quarantine::Quarantine;
use scan::{ProtectedItem, Scan, Sort};
pub(crate) use scan::{ScanBounds, is_timestamp_final};
use state::{FileStateReader, State};
use tool_writes::{Log, Since};
pub use tool_writes::{ToolWrites, Writing};

/// Maximum number of mounts per command. Further paths are only checked afterwards.
const MOUNTS_MAX: usize = 400;

/// Duration of a scan below which switching to another thread would take longer.
const QUICK_MICROSECONDS: u64 = 500;

/// Protects the control files below some roots. One per session, shared by its commands.
#[derive(Debug)]
pub struct Protection {
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    readable: Vec<PathBuf>,
    /// Scan limits.
    pub(crate) bounds: ScanBounds,
    /// True if the last scan was complete, for callers that cannot wait for a running one.
    is_complete: AtomicBool,
    /// Duration of the last scan in microseconds.
    took: AtomicU64,
    /// Temporary folders of commands, which are removed with them.
    temporary: Temporary,
    /// Writes of posse's own tools. Lock order: `inner` first.
    pub(crate) written: ToolWrites,
    inner: Mutex<GuardState>,
}

/// Set of folders that may grow during a scan.
type Temporary = Arc<Mutex<BTreeSet<PathBuf>>>;

#[derive(Debug, Default)]
struct GuardState {
    roots: Vec<Watched>,
    reader: FileStateReader,
    links: links::Links,
    stores: stores::Keys,
    quarantine: Quarantine,
    /// Temporary folders of commands.
    temporary: Temporary,
    /// State before the first of the commands that are running now.
    baseline: Option<Arc<Baseline>>,
    running: usize,
    /// `true` if several commands ran at the same time.
    were_several: bool,
    /// Protection method of a command that was given up without a check.
    owed: Option<ProtectionMethod>,
    /// Repositories created by commands of this session. They contain no user data, and are cleaned
    /// after each command.
    born: HashMap<Identity, ProtectedPath>,
    new_worktrees: NewWorktrees,
    /// Findings of the running round of a check.
    findings: Vec<Finding>,
    /// Findings that could not be reported yet.
    untold: Vec<Finding>,
    /// Exemptions of the running commands. With several running commands, changes cannot be
    /// attributed to one.
    lifted: Lifted,
    /// True if the last scan was complete.
    is_complete: bool,
    /// True if the incomplete scan was reported.
    told_too_much: bool,
}

#[derive(Debug)]
struct Watched {
    root: Root,
    scan: Scan,
    /// Commands cannot write here: changes are made by the user or another agent. Only secrets are
    /// scanned for.
    is_out_of_reach: bool,
}

/// Location of a protected name: root index and path below it.
type ProtectedPath = (usize, Arc<Path>);

#[derive(Debug, Clone)]
struct Baseline {
    items: HashMap<ProtectedPath, BaselineItem>,
    /// Numbers of the scans it was made from.
    scans: Vec<u64>,
    /// Targets of git configuration, existing or not.
    pointed: Vec<(usize, ProtectedItem)>,
    /// True if the scan was complete.
    is_complete: bool,
    /// Position of the scan in the log of our own tools.
    since: Since,
    /// Time before which everything was created that the scan found.
    time: SystemTime,
}

#[derive(Debug, Clone)]
struct BaselineItem {
    sort: Sort,
    /// `None` for repositories, which may change.
    state: Option<State>,
    identity: Identity,
    /// Creation time of a repository: its inode number may be reused.
    birth: Option<SystemTime>,
    parent: Option<Identity>,
    is_mounted: bool,
}

/// True if a repository is found at a path that is protected as a whole, such as `.vscode`.
fn is_covered(known: Option<&BaselineItem>, item: &ProtectedItem) -> bool {
    item.sort == Sort::Repository && known.is_some_and(|known| known.sort != Sort::Repository)
}

/// State before a command. Return it to [`Protection::check_after`]; a dropped survey is checked by
/// the next one.
#[derive(Debug)]
pub struct Survey {
    /// Control files and folders that exist, to be mounted read-only.
    pub read_only: Vec<PathBuf>,
    /// Folders between a root and a control file, to be bound onto themselves.
    pub pinned: Vec<PathBuf>,
    /// Secrets that exist.
    pub hidden: Vec<PathBuf>,
    /// True if the scan was complete.
    pub complete: bool,
    /// Protection of the command: by default only the check afterwards.
    pub(crate) held: ProtectionMethod,
    baseline: Arc<Baseline>,
    protection: Option<Arc<Protection>>,
}

/// Protection of a command while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionMethod {
    /// Mounts: what [`Survey::read_only`] names cannot have been changed by it.
    ByMounts,
    /// Only the check afterwards.
    ByCheck,
}

/// Effect of a command on a protected name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Path.
    pub path: PathBuf,
    /// Kind of the change.
    pub what: ProtectedChange,
    /// Handling of the change.
    pub action: ProtectAction,
    /// Commands that can have caused it.
    #[serde(skip_serializing_if = "Whose::is_this")]
    pub whose: Whose,
}

/// Attribution of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Whose {
    /// This command; no other ran.
    #[default]
    This,
    /// One of several commands that ran at the same time.
    AnyOfSeveral,
    /// An earlier command whose change could not be reported then.
    Earlier,
}

impl Whose {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_this(&self) -> bool {
        *self == Whose::This
    }
}

impl Finding {
    /// Change by the only running command.
    pub fn new(path: PathBuf, what: ProtectedChange, action: ProtectAction) -> Finding {
        Finding { path, what, action, whose: Whose::This }
    }
}

/// Kind of change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectedChange {
    /// Created.
    Created,
    /// Changed.
    Changed,
    /// Removed.
    Removed,
    /// Replaced by another repository.
    Replaced,
    /// Created git settings that run programs, with their names. `None`: the file cannot be parsed.
    Settings(Vec<String>),
    /// Created a file that points git to a repository outside.
    LeadsOutside,
    /// Created a work tree that contains this.
    CameWithRepository,
    /// The scan limit was exceeded.
    TooMuch,
}

/// Handling of a change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectAction {
    /// Moved to this path.
    MovedAside(PathBuf),
    /// Restored; the command's version is at this path.
    Restored(Option<PathBuf>),
    /// The settings were removed; the original text is at this path.
    Cleaned(PathBuf),
    /// Left unchanged.
    Left,
    /// Handling failed, with the reason.
    Failed(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &Path| printable(&path.display().to_string());
        let path = shown(&self.path);
        let settings;
        let change = match &self.what {
            ProtectedChange::Created => "is protected and was created",
            ProtectedChange::Changed => "is protected and was changed",
            ProtectedChange::Removed => "is protected and was removed or renamed",
            ProtectedChange::Replaced => "is protected and another repository is in its place",
            ProtectedChange::Settings(names) if names.is_empty() => {
                "is not understood as settings of git and may run programs"
            }
            ProtectedChange::Settings(names) => {
                let names = printable(&names.join(", "));
                settings = format!("got settings that may run programs ({names})");
                &settings
            }
            ProtectedChange::LeadsOutside => "leads git to a place outside the workspace",
            ProtectedChange::CameWithRepository => "is protected and came with a new work tree",
            ProtectedChange::TooMuch => {
                return write!(
                    f,
                    "{path} has more folders than are scanned: files that a command \
                                  creates in the rest are not found"
                );
            }
        };
        let by = match self.whose {
            Whose::This => "",
            Whose::AnyOfSeveral => {
                " while this command ran, and others did, so it may be the work of any"
            }
            Whose::Earlier => " while an earlier command ran",
        };
        write!(f, "{path} {change}{by}")?;
        match &self.action {
            ProtectAction::MovedAside(to) => write!(f, "; it was moved to {}", shown(to)),
            ProtectAction::Restored(Some(to)) => {
                write!(f, "; it was put back as it was, and what replaced it is in {}", shown(to))
            }
            ProtectAction::Restored(None) => write!(f, "; it was put back as it was"),
            ProtectAction::Cleaned(to) => {
                write!(f, "; they were taken out, and the whole text is in {}", shown(to))
            }
            ProtectAction::Left => {
                write!(f, "; it was left: check it before a program is started in that folder")
            }
            ProtectAction::Failed(why) => write!(f, "; it could not be put right: {why}"),
        }
    }
}

impl Protection {
    /// Protects `roots`, which are absolute and resolved. `own`: posse's own folders, hidden from
    /// commands; `home`: searched for credentials; `readable`: secrets that commands may read;
    /// `quarantine`: folder for moved files.
    pub fn new(
        roots: &[PathBuf],
        own: Vec<PathBuf>,
        home: Option<PathBuf>,
        readable: Vec<PathBuf>,
        quarantine: PathBuf,
    ) -> Result<Protection, Errno> {
        // Nested roots are covered by the outer one.
        let outer =
            |path: &&PathBuf| !roots.iter().any(|other| other != *path && path.starts_with(other));
        let distinct: BTreeSet<&PathBuf> = roots.iter().filter(outer).collect();
        let open = |path: &PathBuf| {
            Ok(Watched { root: Root::open(path)?, scan: Scan::default(), is_out_of_reach: false })
        };
        let roots = distinct.into_iter().map(open).collect::<Result<Vec<_>, Errno>>()?;
        let temporary = Temporary::default();
        Ok(Protection {
            own,
            home,
            readable,
            bounds: ScanBounds::default(),
            is_complete: AtomicBool::new(true),
            took: AtomicU64::new(u64::MAX),
            temporary: Arc::clone(&temporary),
            written: ToolWrites::default(),
            inner: Mutex::new(GuardState {
                roots,
                quarantine: Quarantine::new(quarantine),
                temporary,
                is_complete: true,
                ..GuardState::default()
            }),
        })
    }

    /// Protection for commands that cannot write in these roots.
    pub(crate) fn for_read_only_roots(self, roots: &[PathBuf]) -> Protection {
        for watched in &mut self.lock().roots {
            watched.is_out_of_reach = roots.contains(&watched.root.path);
        }
        self
    }

    /// Also searches `folder`, in which commands have temporary folders, for missing repositories.
    pub(crate) fn also_scan(&self, folder: PathBuf) {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
    }

    /// True if a scan will probably be fast: the last one was, and none is running.
    pub(crate) fn is_scan_fast(&self) -> bool {
        let is_free = self.inner.try_lock().is_ok();
        is_free && self.written.is_free() && self.took.load(Ordering::Relaxed) <= QUICK_MICROSECONDS
    }

    fn note_time(&self, begin: Instant) {
        let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.took.store(took, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Surveys protected files. Reads folders, so do not call it where others wait.
    pub fn survey(self: &Arc<Protection>) -> Survey {
        self.survey_without(&[])
    }

    /// Survey for a command that may change `lifted`: absolute, resolved paths that a person named,
    /// including their contents.
    pub(crate) fn survey_without(self: &Arc<Protection>, lifted: &[PathBuf]) -> Survey {
        let begin = Instant::now();
        let mut inner = self.lock();
        let log = self.written.lock_for_scan();
        if inner.running == 0
            && let Some(held) = inner.owed
        {
            let found = inner.handle_differences(held, self.bounds, &log);
            inner.untold.extend(found);
        }
        inner.reader.drop_unused();
        let (items, secrets, complete) = inner.scan(self.bounds);
        // Names that appeared while other commands run may be theirs and are not added to the
        // user's.
        let baseline = match inner.baseline.clone().filter(|_| inner.running > 0) {
            Some(baseline) => baseline,
            None => inner.new_baseline(items, complete, &log),
        };
        inner.running += 1;
        inner.were_several |= inner.running > 1;
        inner.is_complete = complete;
        self.is_complete.store(complete, Ordering::Relaxed);
        inner.lifted.extend(lifted);
        inner.baseline = Some(Arc::clone(&baseline));
        let (mut read_only, mut pinned) = inner.mounts(&baseline);
        if inner.running > 1 {
            // Our own tools may have removed files since.
            read_only.retain(|path| path.symlink_metadata().is_ok());
        }
        let mut own = Lifted::default();
        own.extend(lifted);
        own.remove_exempt(&mut read_only, &mut pinned);
        let hidden = self.hidden(&mut inner, &secrets);
        // The cover of a secret also protects it.
        read_only.retain(|path| !hidden.contains(path));
        drop(log);
        drop(inner);
        self.note_time(begin);
        let protection = Some(Arc::clone(self));
        Survey {
            read_only,
            pinned,
            hidden,
            complete,
            held: ProtectionMethod::ByCheck,
            baseline,
            protection,
        }
    }

    /// Secrets below the roots, which only mounts can hide. Reads folders.
    pub fn secrets_inside(&self) -> Vec<PathBuf> {
        let mut inner = self.lock();
        let (_, secrets, _) = inner.scan(self.bounds);
        let mut hidden = self.hidden(&mut inner, &secrets);
        let roots: Vec<&Path> = inner.roots.iter().map(|watched| &*watched.root.path).collect();
        hidden.retain(|path| roots.iter().any(|root| path.starts_with(root)));
        hidden
    }

    /// Checks the effects of an ended command against `survey` and handles them.
    pub fn check_after(&self, mut survey: Survey) -> Vec<Finding> {
        survey.protection = None;
        let begin = Instant::now();
        let mut inner = self.lock();
        let log = self.written.lock_for_scan();
        let mut findings = std::mem::take(&mut inner.untold);
        for finding in &mut findings {
            finding.whose = Whose::Earlier;
        }
        let whose = if inner.were_several { Whose::AnyOfSeveral } else { Whose::This };
        inner.running = inner.running.saturating_sub(1);
        inner.baseline = Some(Arc::clone(&survey.baseline));
        let found = inner.handle_differences(survey.held, self.bounds, &log);
        findings.extend(found.into_iter().map(|finding| Finding { whose, ..finding }));
        self.is_complete.store(inner.is_complete, Ordering::Relaxed);
        // A workspace that a command made too large to scan is reported each time.
        let grew = survey.complete && !inner.is_complete;
        if grew || (!survey.complete && !std::mem::replace(&mut inner.told_too_much, true)) {
            let roots = inner.roots.iter().map(|watched| watched.root.path.clone());
            let too_much = |path| Finding::new(path, ProtectedChange::TooMuch, ProtectAction::Left);
            findings.extend(roots.take(1).map(too_much));
        }
        drop(log);
        drop(inner);
        self.note_time(begin);
        findings
    }

    /// Discards a survey of a command that did not run.
    pub(crate) fn take_back(&self, mut survey: Survey) {
        survey.protection = None;
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        if inner.running == 0 {
            inner.baseline = None;
            inner.lifted = Lifted::default();
            inner.were_several = false;
        }
    }

    /// True if the last scan, before or after a command, was complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    fn give_up(&self, held: ProtectionMethod) {
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        inner.owed = Some(held);
    }

    /// Checks the effects of a command that was given up. Repeats the check until `is_dead`.
    pub fn check_given_up(&self, is_dead: bool) {
        let mut inner = self.lock();
        let Some(held) = inner.owed else { return };
        let log = self.written.lock_for_scan();
        let (baseline, lifted) = (inner.baseline.clone(), inner.lifted.clone());
        let found = inner.handle_differences(held, self.bounds, &log);
        inner.untold.extend(found);
        if !is_dead {
            inner.baseline = baseline;
            inner.lifted = lifted;
            inner.owed = Some(held);
        }
    }
}

impl Drop for Survey {
    fn drop(&mut self) {
        if let Some(protection) = self.protection.take() {
            protection.give_up(self.held);
        }
    }
}

impl GuardState {
    /// Scans every root: protected names within reach of commands, secrets, and completeness.
    fn scan(
        &mut self,
        bounds: ScanBounds,
    ) -> (Vec<(usize, ProtectedItem)>, Vec<ProtectedPath>, bool) {
        let (mut items, mut secrets, mut complete) = (Vec::new(), Vec::new(), true);
        for (at, watched) in self.roots.iter_mut().enumerate() {
            let found = watched.scan.run(&watched.root, bounds);
            complete &= found.is_complete;
            if !watched.is_out_of_reach {
                items.extend(found.items.into_iter().map(|item| (at, item)));
            }
            secrets.extend(found.secrets.into_iter().map(|path| (at, path)));
        }
        (items, secrets, complete)
    }

    /// Stores the current state.
    fn new_baseline(
        &mut self,
        items: Vec<(usize, ProtectedItem)>,
        is_complete: bool,
        log: &Log,
    ) -> Arc<Baseline> {
        // The inode number of a removed folder is reused.
        let roots = &self.roots;
        self.born.retain(|identity, (at, path)| roots[*at].scan.identity(path) == Some(*identity));
        let pointed = self.referenced(&items);
        let mut baseline = Baseline {
            items: HashMap::with_capacity(items.len()),
            scans: self.roots.iter().map(|watched| watched.scan.number()).collect(),
            pointed,
            is_complete,
            since: log.since(),
            time: SystemTime::now(),
        };
        let pointed = baseline.pointed.clone();
        for (at, item) in items.into_iter().chain(pointed) {
            let key = (at, Arc::clone(&item.path));
            if !is_covered(baseline.items.get(&key), &item)
                && let Some(before) = self.item_state(at, &item)
            {
                baseline.items.insert(key, before);
            }
        }
        self.retain_left(&baseline);
        let mut mounted: Vec<(&ProtectedPath, &mut BaselineItem)> =
            baseline.items.iter_mut().filter(|(_, before)| before.is_mounted).collect();
        mounted.sort_by_key(|((at, path), _)| (path.components().count(), *at, Arc::clone(path)));
        // Names nearest to the root have priority.
        for (_, before) in mounted.into_iter().skip(MOUNTS_MAX) {
            before.is_mounted = false;
        }
        Arc::new(baseline)
    }

    /// Current state of an item. `None`: it is gone.
    fn item_state(&mut self, at: usize, item: &ProtectedItem) -> Option<BaselineItem> {
        let Watched { root, scan, .. } = &self.roots[at];
        if item.sort == Sort::Repository {
            let identity = scan.identity(&item.path)?;
            let parent = item.path.parent().and_then(|above| scan.identity(above));
            let (sort, birth) = (item.sort, scan.creation_time_of(&item.path));
            let (state, is_mounted) = (None, false);
            return Some(BaselineItem { sort, state, identity, birth, parent, is_mounted });
        }
        let (folder, name) = root.open_parent(&item.path).ok()?;
        let identity = Stat::at(&folder, name).ok()?.identity;
        let parent = Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity);
        let is_born = self.is_born(parent) || self.is_in_new_worktree(at, &item.path);
        let state = self.reader.state(&folder, name)?;
        let is_mounted = !is_born
            && item.sort != Sort::Todo
            && matches!(state, State::File { .. } | State::Folder { .. });
        let (sort, state) = (item.sort, Some(state));
        Some(BaselineItem { sort, state, identity, birth: None, parent, is_mounted })
    }

    /// Hooks and settings files that known settings point to, and targets of protected links.
    fn referenced(&mut self, items: &[(usize, ProtectedItem)]) -> Vec<(usize, ProtectedItem)> {
        let mut pointed = self.link_targets(items);
        for (at, item) in items.iter().filter(|(_, item)| item.sort == Sort::Settings) {
            let root = &self.roots[*at].root;
            let Ok((folder, name)) = root.open_parent(&item.path) else { continue };
            let Some(State::File { copy: Some(bytes), .. }) = self.reader.state(&folder, name)
            else {
                continue;
            };
            let repository = item.path.parent().unwrap_or(Path::new(""));
            let is_dot_git = repository.file_name().is_some_and(|name| name == ".git");
            let worktree = if is_dot_git { repository.parent() } else { Some(repository) };
            for (is_hooks, target) in gitconfig::referenced_paths(&bytes) {
                let base = if is_hooks { worktree } else { Some(repository) };
                let whole = root.path.join(base.unwrap_or(Path::new(""))).join(target);
                let whole = posse_base::paths::normalise(&whole);
                let Ok(relative) = whole.strip_prefix(&root.path) else { continue };
                let is_known = |other: &(usize, ProtectedItem)| {
                    other.0 == *at
                        && other.1.sort != Sort::Repository
                        && relative.starts_with(&other.1.path)
                };
                // The workspace root itself cannot be protected as a whole.
                let is_root = relative.as_os_str().is_empty();
                if !is_root && !items.iter().chain(&pointed).any(is_known) {
                    let sort = Sort::Name(protected::Class::Git);
                    pointed.push((*at, ProtectedItem { path: relative.into(), sort }));
                }
            }
        }
        pointed
    }

    /// Targets of links with a protected name, and of links that give their content one.
    fn link_targets(&self, items: &[(usize, ProtectedItem)]) -> Vec<(usize, ProtectedItem)> {
        let mut targets: Vec<(usize, ProtectedItem)> = Vec::new();
        for (at, ProtectedItem { path, sort }) in items {
            let root = &self.roots[*at].root;
            let is_link = || root.stat(path).is_ok_and(|stat| stat.kind == place::PlaceKind::Link);
            if !matches!(sort, Sort::Name(_)) || !is_link() {
                continue;
            }
            let Ok(real) = std::fs::canonicalize(root.path.join(path)) else { continue };
            let Ok(target) = real.strip_prefix(&root.path) else { continue };
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let above = path.parent().and_then(Path::file_name).unwrap_or_default();
            if protected::class_of(above.as_encoded_bytes(), name).is_some() {
                // The workspace root itself cannot be protected as a whole.
                if !target.as_os_str().is_empty() {
                    targets.push((*at, ProtectedItem { path: target.into(), sort: *sort }));
                }
            } else {
                targets.extend(protected::names_in(&protected::fold(name)).map(|(name, class)| {
                    let (path, sort) = (target.join(name).into(), Sort::Name(class));
                    (*at, ProtectedItem { path, sort })
                }));
            }
        }
        let is_known = |target: &ProtectedItem, at: usize| {
            items.iter().any(|(other, item)| {
                *other == at && item.sort != Sort::Repository && target.path.starts_with(&item.path)
            })
        };
        targets.retain(|(at, target)| !is_known(target, *at));
        targets
    }

    /// Paths to mount read-only, and parents that must not be renamed.
    fn mounts(&mut self, baseline: &Baseline) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut keys: Vec<&ProtectedPath> = baseline
            .items
            .iter()
            .filter(|(_, before)| before.is_mounted)
            .map(|(key, _)| key)
            .collect();
        keys.sort_by_key(|(at, path)| (path.components().count(), *at, Arc::clone(path)));
        let mut read_only = Vec::new();
        let mut pinned = BTreeSet::new();
        for key in keys {
            let (at, path) = (key.0, &key.1);
            let root = &self.roots[at].root.path;
            read_only.push(root.join(path));
            let controls_git = !matches!(baseline.items[key].sort, Sort::Name(_));
            if controls_git {
                // Renaming a parent folder would allow replacing it.
                let above = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
                pinned.extend(above.map(|path| root.join(path)));
            }
        }
        let linked = baseline.items.values().filter_map(|before| {
            let State::File { stat, .. } = before.state.as_ref()? else { return None };
            (before.is_mounted && stat.links > 1).then_some(*stat)
        });
        for twin in self.links.names(&linked.collect::<Vec<_>>(), &self.roots) {
            if !read_only.contains(&twin) {
                read_only.push(twin);
            }
        }
        (read_only, pinned.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
