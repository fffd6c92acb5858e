//! Protection of control files and secrets in folders that a command can write to.
//!
//! [`Protection::survey`] finds them before a command starts: mounts protect the existing ones on
//! hosts that support it. [`Protection::check_after`] finds names that were created or changed
//! nevertheless, moves them to the quarantine and restores the originals. Placeholders are never
//! created to reserve a name: `git add` would add them.

mod aside;
mod check;
mod gitconfig;
mod lifted;
mod links;
mod moved;
mod place;
mod scan;
mod state;
mod stores;
mod written;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use nix::errno::Errno;

use aside::Quarantine;
use lifted::Lifted;
use place::{Identity, Root, Stat};
pub(crate) use scan::Bounds;
use scan::{Item, Scan, Sort};
use state::{Reader, State};
use written::{Log, Since};
pub use written::{Writing, Written};

/// Maximum number of mounts for one command. Further paths are checked after the command.
const MOUNTS_MAX: usize = 400;

/// Duration of a scan below which switching to another thread would take longer.
const QUICK_MICROSECONDS: u64 = 500;

/// Protects the control files below some roots. One per session, shared by its commands.
#[derive(Debug)]
pub struct Protection {
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    readable: Vec<PathBuf>,
    bounds: Bounds,
    /// `true` if the last scan was complete. Readable while a scan is running.
    is_complete: AtomicBool,
    /// Duration of the last scan in microseconds.
    took: AtomicU64,
    /// Parents of the commands' temporary folders.
    temporary: Temporary,
    /// Changes by our own tools. Lock order: `inner` first.
    written: Written,
    inner: Mutex<Inner>,
}

/// Folders that can be added during a scan.
type Temporary = Arc<Mutex<BTreeSet<PathBuf>>>;

#[derive(Debug)]
struct Inner {
    roots: Vec<Watched>,
    reader: Reader,
    links: links::Links,
    stores: stores::Keys,
    quarantine: Quarantine,
    /// Parents of the commands' temporary folders.
    temporary: Temporary,
    /// State before the first of the running commands.
    baseline: Option<Arc<Baseline>>,
    running: usize,
    /// `true` if several commands ran at the same time.
    were_several: bool,
    /// Protection of a command that was abandoned without a check.
    owed: Option<Held>,
    /// Repositories created by commands of this session. They contain no user data, and are cleaned
    /// after each command.
    born: HashMap<Identity, Born>,
    /// Findings not reported yet, because no run was there to report them.
    untold: Vec<Finding>,
    /// Paths that the running commands may change. With several running commands the author of a
    /// change is unknown.
    lifted: Lifted,
    /// `true` if the last scan was complete.
    is_complete: bool,
    /// The warning about an incomplete scan was logged.
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

/// Repository created by a command.
#[derive(Debug)]
struct Born {
    key: Key,
    /// `true` if its parent folder was created with it, so that nothing in it belongs to the user.
    with_folder: bool,
}

/// Location of a protected name: index of the root, and the path below it.
type Key = (usize, Arc<Path>);

#[derive(Debug, Clone)]
struct Baseline {
    items: HashMap<Key, Before>,
    /// Numbers of the scans it was made from.
    scans: Vec<u64>,
    /// Targets of git configuration settings, existing or not.
    pointed: Vec<(usize, Item)>,
    /// `true` if the scan was complete.
    is_complete: bool,
    /// Position in the log of our own tools' changes.
    since: Since,
}

#[derive(Debug, Clone)]
struct Before {
    sort: Sort,
    /// `None` for repositories, which may change.
    state: Option<State>,
    identity: Identity,
    /// Creation time of a repository: its inode number may be reused.
    birth: Option<SystemTime>,
    parent: Option<Identity>,
    is_mounted: bool,
}

/// State before a command starts. Must be given back to [`Protection::check_after`]; if it is
/// dropped, the next survey performs the check.
#[derive(Debug)]
pub struct Survey {
    /// Existing control files and folders, to be mounted read-only.
    pub read_only: Vec<PathBuf>,
    /// Folders between a root and a control file, to be bind-mounted onto themselves.
    pub pinned: Vec<PathBuf>,
    /// Existing secrets.
    pub hidden: Vec<PathBuf>,
    /// `true` if the scan was complete.
    pub complete: bool,
    held: Held,
    baseline: Arc<Baseline>,
    protection: Option<Arc<Protection>>,
}

/// Protection during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Mounts: the command cannot have changed [`Survey::read_only`].
    ByMounts,
    /// Only the check after the run.
    ByCheck,
}

/// Change of a protected name by a command.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Protected path.
    pub path: PathBuf,
    /// Kind of change.
    pub what: What,
    /// Reaction to the change.
    pub action: Action,
    /// Commands that can have made the change.
    #[serde(skip_serializing_if = "Whose::is_this")]
    pub whose: Whose,
}

/// Possible author of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Whose {
    /// This command; no other ran.
    #[default]
    This,
    /// One of several commands that ran at the same time.
    AnyOfSeveral,
    /// An earlier command, whose run could not report it.
    Earlier,
}

impl Whose {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_this(&self) -> bool {
        *self == Whose::This
    }
}

impl Finding {
    /// Finding for the only command that ran.
    pub fn new(path: PathBuf, what: What, action: Action) -> Finding {
        Finding { path, what, action, whose: Whose::This }
    }
}

/// Kind of change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// Created a file or folder.
    Created,
    /// Changed a file or folder.
    Changed,
    /// Removed a file or folder.
    Removed,
    /// Replaced a repository with another one.
    Replaced,
    /// Added these git settings that run programs. `None`: the new file cannot be parsed.
    Settings(Vec<String>),
    /// Created a file that points git to a repository outside the workspace.
    LeadsOutside,
    /// Created a repository that contains this.
    CameWithRepository,
    /// The scan limit was exceeded.
    TooMuch,
}

/// Reaction to a change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Moved to this path.
    MovedAside(PathBuf),
    /// The original was restored; the command's version is at this path.
    Restored(Option<PathBuf>),
    /// The settings were removed; the original text is at this path.
    Cleaned(PathBuf),
    /// Left unchanged.
    Left,
    /// Failed with this error.
    Failed(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::failure::printable(&self.path.display().to_string());
        match &self.what {
            What::Created => write!(f, "{path} is protected and was created")?,
            What::Changed => write!(f, "{path} is protected and was changed")?,
            What::Removed => write!(f, "{path} is protected and was removed or renamed")?,
            What::Replaced => {
                write!(f, "{path} is protected and another repository is in its place")?;
            }
            What::Settings(names) if names.is_empty() => {
                write!(f, "{path} is not understood as settings of git and may run programs")?;
            }
            What::Settings(names) => write!(
                f,
                "{path} got settings that may run programs ({})",
                crate::failure::printable(&names.join(", "))
            )?,
            What::LeadsOutside => write!(f, "{path} leads git to a place outside the workspace")?,
            What::CameWithRepository => write!(f, "{path} came with a new repository")?,
            What::TooMuch => {
                return write!(
                    f,
                    "{path} has more folders than are looked at: what a command \
                                  creates in the rest is not found"
                );
            }
        }
        match self.whose {
            Whose::This => {}
            Whose::AnyOfSeveral => {
                f.write_str(
                    " while this command ran, and others did, so any of them may have done it",
                )?;
            }
            Whose::Earlier => f.write_str(" while an earlier command ran")?,
        }
        let shown = |path: &Path| crate::failure::printable(&path.display().to_string());
        match &self.action {
            Action::MovedAside(to) => write!(f, "; it was moved to {}", shown(to)),
            Action::Restored(Some(to)) => {
                write!(f, "; it was put back as it was, and what replaced it is in {}", shown(to))
            }
            Action::Restored(None) => write!(f, "; it was put back as it was"),
            Action::Cleaned(to) => {
                write!(f, "; they were taken out, and the whole text is in {}", shown(to))
            }
            Action::Left => write!(f, "; it was left, as nothing reads it from here"),
            Action::Failed(why) => write!(f, "; it could not be restored: {why}"),
        }
    }
}

impl Protection {
    /// Protects `roots`, which are absolute and resolved. `own` are folders of posse, hidden from
    /// commands; `home` is searched for credentials; `readable` are secrets that commands may read;
    /// `quarantine` receives moved files.
    pub fn new(
        roots: &[PathBuf],
        own: Vec<PathBuf>,
        home: Option<PathBuf>,
        readable: Vec<PathBuf>,
        quarantine: PathBuf,
    ) -> Result<Protection, Errno> {
        // A root below another root is covered by that one.
        let outer =
            |path: &&PathBuf| !roots.iter().any(|other| other != *path && path.starts_with(other));
        let distinct: BTreeSet<&PathBuf> = roots.iter().filter(outer).collect();
        let open = |path: &PathBuf| {
            Ok(Watched { root: Root::open(path)?, scan: Scan::new(), is_out_of_reach: false })
        };
        let roots = distinct.into_iter().map(open).collect::<Result<Vec<_>, Errno>>()?;
        let temporary = Temporary::default();
        Ok(Protection {
            own,
            home,
            readable,
            bounds: Bounds::default(),
            is_complete: AtomicBool::new(true),
            took: AtomicU64::new(u64::MAX),
            temporary: Arc::clone(&temporary),
            written: Written::default(),
            inner: Mutex::new(Inner {
                roots,
                reader: Reader::default(),
                links: links::Links::default(),
                stores: stores::Keys::default(),
                quarantine: Quarantine::new(quarantine),
                temporary,
                baseline: None,
                running: 0,
                were_several: false,
                owed: None,
                born: HashMap::new(),
                untold: Vec::new(),
                lifted: Lifted::default(),
                is_complete: true,
                told_too_much: false,
            }),
        })
    }

    /// Marks roots that commands cannot write to.
    pub(crate) fn out_of_reach(self, roots: &[PathBuf]) -> Protection {
        for watched in &mut self.lock().roots {
            watched.is_out_of_reach = roots.contains(&watched.root.path);
        }
        self
    }

    /// Uses `written` to recognise changes by our own tools.
    pub(crate) fn beside(mut self, written: Written) -> Protection {
        self.written = written;
        self
    }

    /// Replaces the scan limits.
    pub(crate) fn within(mut self, bounds: Bounds) -> Protection {
        self.bounds = bounds;
        self
    }

    /// Also searches `folder`, which contains temporary folders of commands, for missing
    /// repositories.
    pub(crate) fn looks_into(&self, folder: PathBuf) {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
    }

    /// Returns `true` if a scan will probably be short: the last one was, and none is running.
    pub(crate) fn looks_quickly(&self) -> bool {
        let is_free = self.inner.try_lock().is_ok();
        is_free && self.written.is_free() && self.took.load(Ordering::Relaxed) <= QUICK_MICROSECONDS
    }

    fn note_time(&self, begin: Instant) {
        let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.took.store(took, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scans for protected names. Reads folders, so it must not run on an async worker thread.
    pub fn survey(self: &Arc<Protection>) -> Survey {
        self.survey_without(&[])
    }

    /// Survey for a command that may change `lifted`: absolute, resolved paths permitted by the
    /// user, with their content.
    pub(crate) fn survey_without(self: &Arc<Protection>, lifted: &[PathBuf]) -> Survey {
        let begin = Instant::now();
        let mut inner = self.lock();
        let log = self.written.look();
        if inner.running == 0
            && let Some(held) = inner.owed
        {
            let found = inner.settle(held, self.bounds, &log);
            inner.untold.extend(found);
        }
        inner.reader.begin_round();
        let mut complete = true;
        let mut items: Vec<(usize, Item)> = Vec::new();
        let mut secrets: Vec<(usize, Arc<Path>)> = Vec::new();
        for (at, watched) in inner.roots.iter_mut().enumerate() {
            let found = watched.scan.run(&watched.root, self.bounds);
            complete &= found.is_complete;
            if !watched.is_out_of_reach {
                items.extend(found.items.into_iter().map(|item| (at, item)));
            }
            secrets.extend(found.secrets.into_iter().map(|path| (at, path)));
        }
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
        own.take_out(&mut read_only, &mut pinned);
        let hidden = self.hidden(&mut inner, &secrets);
        // The cover of a secret also protects it.
        read_only.retain(|path| !hidden.contains(path));
        drop(log);
        drop(inner);
        self.note_time(begin);
        let protection = Some(Arc::clone(self));
        Survey { read_only, pinned, hidden, complete, held: Held::ByCheck, baseline, protection }
    }

    /// Secrets below the roots, which only mounts can hide. Reads folders.
    pub fn secrets_inside(&self) -> Vec<PathBuf> {
        let mut inner = self.lock();
        let mut secrets: Vec<(usize, Arc<Path>)> = Vec::new();
        for (at, watched) in inner.roots.iter_mut().enumerate() {
            let found = watched.scan.run(&watched.root, self.bounds);
            secrets.extend(found.secrets.into_iter().map(|path| (at, path)));
        }
        let mut hidden = self.hidden(&mut inner, &secrets);
        let roots: Vec<&Path> = inner.roots.iter().map(|watched| &*watched.root.path).collect();
        hidden.retain(|path| roots.iter().any(|root| path.starts_with(root)));
        hidden
    }

    /// Compares the state after a command with `survey`, and reverts forbidden changes.
    pub fn check_after(&self, mut survey: Survey) -> Vec<Finding> {
        survey.protection = None;
        let begin = Instant::now();
        let mut inner = self.lock();
        let log = self.written.look();
        let mut findings = std::mem::take(&mut inner.untold);
        for finding in &mut findings {
            finding.whose = Whose::Earlier;
        }
        let whose = if inner.were_several { Whose::AnyOfSeveral } else { Whose::This };
        inner.running = inner.running.saturating_sub(1);
        inner.baseline = Some(Arc::clone(&survey.baseline));
        let found = inner.settle(survey.held, self.bounds, &log);
        findings.extend(found.into_iter().map(|finding| Finding { whose, ..finding }));
        self.is_complete.store(inner.is_complete, Ordering::Relaxed);
        // Exceeding the scan limit is reported for each command that does it.
        let grew = survey.complete && !inner.is_complete;
        if grew || (!survey.complete && !std::mem::replace(&mut inner.told_too_much, true)) {
            let roots = inner.roots.iter().map(|watched| watched.root.path.clone());
            let too_much = |path| Finding::new(path, What::TooMuch, Action::Left);
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

    /// Returns `true` if the last scan, before or after a command, was complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    fn give_up(&self, held: Held) {
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        inner.owed = Some(held);
    }

    /// Checks the changes of an abandoned command. Repeated until `is_dead`.
    pub fn check_given_up(&self, is_dead: bool) {
        let mut inner = self.lock();
        let Some(held) = inner.owed else { return };
        let log = self.written.look();
        let (baseline, lifted) = (inner.baseline.clone(), inner.lifted.clone());
        let found = inner.settle(held, self.bounds, &log);
        inner.untold.extend(found);
        if !is_dead {
            inner.baseline = baseline;
            inner.lifted = lifted;
            inner.owed = Some(held);
        }
    }
}

impl Survey {
    /// Sets the protection of the command. The default is none.
    pub fn held_by(&mut self, held: Held) {
        self.held = held;
    }
}

impl Drop for Survey {
    fn drop(&mut self) {
        if let Some(protection) = self.protection.take() {
            protection.give_up(self.held);
        }
    }
}

impl Inner {
    /// Records the current state.
    fn new_baseline(
        &mut self,
        items: Vec<(usize, Item)>,
        is_complete: bool,
        log: &Log,
    ) -> Arc<Baseline> {
        // The inode number of a removed folder is reused.
        let roots = &self.roots;
        self.born.retain(|identity, Born { key: (at, path), .. }| {
            roots[*at].scan.identity(path) == Some(*identity)
        });
        let pointed = self.pointed(&items);
        let mut baseline = Baseline {
            items: HashMap::with_capacity(items.len()),
            scans: self.roots.iter().map(|watched| watched.scan.number()).collect(),
            pointed,
            is_complete,
            since: log.since(),
        };
        let pointed = baseline.pointed.clone();
        for (at, item) in items.into_iter().chain(pointed) {
            if let Some(before) = self.look(at, &item) {
                baseline.items.insert((at, item.path), before);
            }
        }
        let mut mounted: Vec<(&Key, &mut Before)> =
            baseline.items.iter_mut().filter(|(_, before)| before.is_mounted).collect();
        mounted.sort_by_key(|((at, path), _)| (path.components().count(), *at, Arc::clone(path)));
        // Names closest to the root have priority.
        for (_, before) in mounted.into_iter().skip(MOUNTS_MAX) {
            before.is_mounted = false;
        }
        Arc::new(baseline)
    }

    /// Current state of an item. `None` if it does not exist.
    fn look(&mut self, at: usize, item: &Item) -> Option<Before> {
        let Watched { root, scan, .. } = &self.roots[at];
        if item.sort == Sort::Repository {
            let identity = scan.identity(&item.path)?;
            let parent = item.path.parent().and_then(|above| scan.identity(above));
            let (sort, birth) = (item.sort, scan.birth(&item.path));
            return Some(Before { sort, state: None, identity, birth, parent, is_mounted: false });
        }
        let (folder, name) = root.open_parent(&item.path).ok()?;
        let identity = Stat::at(&folder, name).ok()?.identity;
        let parent = Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity);
        let is_born = self.is_born(parent) || self.came_along(at, &item.path);
        let state = self.reader.state(&folder, name)?;
        let is_mounted = !is_born && matches!(state, State::File { .. } | State::Folder { .. });
        let (sort, state) = (item.sort, Some(state));
        Some(Before { sort, state, identity, birth: None, parent, is_mounted })
    }

    /// Hooks and settings files that known settings point to.
    fn pointed(&mut self, items: &[(usize, Item)]) -> Vec<(usize, Item)> {
        let mut pointed: Vec<(usize, Item)> = Vec::new();
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
            for (is_hooks, target) in gitconfig::pointers(&bytes) {
                let base = if is_hooks { worktree } else { Some(repository) };
                let whole = root.path.join(base.unwrap_or(Path::new(""))).join(target);
                let whole = check::normalise(&whole);
                let Ok(relative) = whole.strip_prefix(&root.path) else { continue };
                let is_known = |other: &(usize, Item)| {
                    other.0 == *at
                        && other.1.sort != Sort::Repository
                        && relative.starts_with(&other.1.path)
                };
                // The workspace root itself cannot be protected as a whole.
                let is_root = relative.as_os_str().is_empty();
                if !is_root && !items.iter().chain(&pointed).any(is_known) {
                    let sort = Sort::Name(crate::protected::Class::Git);
                    pointed.push((*at, Item { path: relative.into(), sort }));
                }
            }
        }
        pointed
    }

    /// Paths to mount read-only, and parents that must not be renamed.
    fn mounts(&mut self, baseline: &Baseline) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut keys: Vec<&Key> = baseline
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
                // Renaming a parent would allow replacing it.
                let above = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
                pinned.extend(above.map(|path| root.join(path)));
            }
        }
        let twins = self.linked(baseline.items.iter().filter_map(|(key, before)| {
            let State::File { stat, .. } = before.state.as_ref()? else { return None };
            (before.is_mounted && stat.links > 1).then(|| (key.clone(), *stat))
        }));
        for twin in twins {
            if !read_only.contains(&twin) {
                read_only.push(twin);
            }
        }
        (read_only, pinned.into_iter().collect())
    }

    /// Further hard links of files.
    fn linked(&mut self, files: impl Iterator<Item = (Key, Stat)>) -> Vec<PathBuf> {
        let wanted: Vec<Stat> = files.map(|(_, stat)| stat).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        self.links.names(&wanted, &self.roots)
    }
}

#[cfg(test)]
mod tests;
