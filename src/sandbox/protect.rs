//! Protection of protected files and secrets below the roots of commands.
//!
//! [`Protection::survey`] finds them before a command starts. On the full tier, existing protected
//! files are then mounted read-only. [`Protection::check_after`] finds created, changed and removed
//! ones, and moves them to the quarantine, restores the originals, removes dangerous settings, or
//! only reports them. No placeholder files are created: `git add` would add them.

mod check;
mod committed;
mod exemptions;
mod finding_lines;
mod folder_watch;
mod git_files;
mod git_folder;
mod gitconfig;
mod harmless;
mod index;
mod known_secrets;
mod linked_worktrees;
mod links;
mod moved_repositories;
mod new_worktrees;
mod packed_refs;
pub(crate) mod place;
mod pointed;
mod quarantine;
mod references;
mod registry_settings;
mod running_marks;
mod scan;
mod sort;
mod state;
mod steps;
mod stores;
mod tool_writes;
mod watched;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use posse_base::failure::printable;
use posse_base::protected;
use posse_base::secrets::files::SecretFiles;

use crate::plan::Replacement;

pub(crate) use committed::{Committed, CommittedFile, Undecided};
use committed::{CommittedViews, HiddenPaths};
pub use committed::{TrackedSecret, TrackedView, tracked_lines};
use exemptions::Lifted;
pub use finding_lines::finding_lines;
use new_worktrees::NewWorktrees;
use place::{Identity, Stat};
use quarantine::Quarantine;
pub use references::GitReferences;
use running_marks::{RunningMarks, Stamp};
use scan::ScanResult;
pub(crate) use scan::{ScanBounds, is_timestamp_final};
use sort::{ProtectedItem, Sort};
use state::{FileStateReader, State};
use tool_writes::{Log, Since};
pub use tool_writes::{ToolWrites, Writing};
use watched::{FolderChange, Watched};

/// Maximum number of protected names that are mounted read-only for a command. Further names are
/// only checked afterwards. Other hard links of mounted files come in addition, and as many entries
/// of folders that are split around exempt paths.
const MOUNTS_MAX: usize = 400;

/// Maximum number of times that roots are scanned again because links in another root lead there.
/// After the last one, the scans count as incomplete.
const CROSS_ROUNDS_MAX: usize = 3;

/// Duration in microseconds up to which a scan counts as fast: switching to another thread would
/// take longer.
const QUICK_MICROSECONDS: u64 = 500;

/// Protects files and secrets below a set of roots. Commands with the same roots and the same
/// read-only ones among them share one `Protection`.
#[derive(Debug)]
pub struct Protection {
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    readable: Vec<PathBuf>,
    /// Limits of a scan of one root.
    pub(crate) bounds: ScanBounds,
    /// True if the last scan of the roots was complete, or there was none. Readable without the
    /// lock that a running scan holds.
    is_complete: AtomicBool,
    /// Duration of the last survey or check in microseconds. `u64::MAX` before the first.
    took: AtomicU64,
    /// Folders that contain temporary folders of commands. They are searched for moved
    /// repositories.
    temporary: Temporary,
    /// Registry of writes by posse's own tools. Lock `inner` before it.
    pub(crate) written: ToolWrites,
    /// Registry of the secrets that scans have found. `scanner` is the number of this protection in
    /// it.
    secret_files: SecretFiles,
    scanner: u64,
    inner: Mutex<GuardState>,
}

/// Shared set of folders that contain temporary folders of commands. It may grow while a scan runs.
type Temporary = Arc<Mutex<BTreeSet<PathBuf>>>;

/// State of a [`Protection`], behind its lock.
#[derive(Debug, Default)]
struct GuardState {
    roots: Vec<Watched>,
    reader: FileStateReader,
    /// Finder of the paths to which git's settings refer.
    git: GitReferences,
    stores: stores::Keys,
    committed: CommittedViews,
    quarantine: Quarantine,
    /// Same set as [`Protection::temporary`].
    temporary: Temporary,
    /// State before the first of the commands that are running now. `None` if none is running or
    /// waits for its check.
    baseline: Option<Arc<Baseline>>,
    running: usize,
    /// Marks of running commands for other sessions. `None`: nothing is marked.
    marks: Option<RunningMarks>,
    /// The last baseline that was made while no command of another session ran. `None` if there was
    /// none yet.
    undisturbed: Option<Arc<Baseline>>,
    /// True if several commands ran at the same time since the baseline.
    were_several: bool,
    /// Protection method of a command that was given up without a check. `None` if no check is
    /// owed.
    owed: Option<ProtectionMethod>,
    /// Repositories that commands of this session created. Their git files are not restored but
    /// cleaned: everything that may run programs is removed.
    born: HashMap<Identity, ProtectedPath>,
    new_worktrees: NewWorktrees,
    /// Findings that the current round of a check has collected so far.
    findings: Vec<Finding>,
    /// Findings about commands that were given up. The next check reports them.
    untold: Vec<Finding>,
    /// Exemptions of the running commands. With several running commands, changes cannot be
    /// attributed to one.
    lifted: Lifted,
    /// True if the last scan was complete.
    is_complete: bool,
    /// True if it was reported that the workspace is too large for a scan.
    told_too_much: bool,
}

/// Location of a protected name: index of the root, and path below the root.
type ProtectedPath = (usize, Arc<Path>);

/// State of all protected names before a command.
#[derive(Debug, Clone)]
struct Baseline {
    items: HashMap<ProtectedPath, BaselineItem>,
    /// For each root, the number of the scan from which the baseline was made.
    scans: Vec<u64>,
    /// Paths to which git settings, `commondir` files and protected links refer, existing or not,
    /// with the index of the root.
    pointed: Vec<(usize, ProtectedItem)>,
    /// True if the scan was complete.
    is_complete: bool,
    /// Folders that could not be read, with the index of the root, and their last change.
    unreadable: HashMap<ProtectedPath, FolderChange>,
    /// Position in the log of tool writes at the time of the scan.
    since: Since,
    /// Time after the scan. Everything that the scan found was created before it.
    time: SystemTime,
}

impl Baseline {
    /// True if it has the file or folder of `item` at `key`, with the same content. False for a
    /// repository whose creation time is unknown, because its inode number may be reused.
    fn has(&self, key: &ProtectedPath, item: &BaselineItem) -> bool {
        let known = self.items.get(key).filter(|known| known.sort == item.sort);
        known.is_some_and(|known| {
            let is_dated = item.sort != Sort::Repository || item.birth.is_some();
            let states = known.state.as_ref().zip(item.state.as_ref());
            is_dated
                && (known.identity, known.birth) == (item.identity, item.birth)
                && states.is_none_or(|(known, now)| known.is_same(now))
        })
    }
}

/// State of one protected name in a baseline.
#[derive(Debug, Clone)]
struct BaselineItem {
    sort: Sort,
    /// State for comparison and restoration. `None` for repositories, whose contents may change.
    state: Option<State>,
    identity: Identity,
    /// Creation time of a repository, because its inode number may be reused. `None` for other
    /// items, or if the file system does not store it.
    birth: Option<SystemTime>,
    parent: Option<Identity>,
    /// Folder around the parent folder, if the name of the parent folder gives the item its
    /// meaning, as for `.cargo/config.toml`. `None` for other items.
    above: Option<Identity>,
    is_mounted: bool,
    /// True if a command of another session may have made it, so that it is not restored.
    is_doubtful: bool,
}

/// True if `item` is protected only in a folder of a certain kind, such as `.cargo/config.toml`, or
/// the `hooks` of a repository.
fn depends_on_parent(item: &ProtectedItem) -> bool {
    match item.sort {
        Sort::Name(_) => new_worktrees::is_named_by_parent(&item.path),
        Sort::Repository
        | Sort::Pointer
        | Sort::PackedRefs
        | Sort::Interrupted
        | Sort::Environment => false,
        _ => true,
    }
}

/// True if `item` is a repository, and `known`, the baseline item at its path, is not one: the path
/// is protected as a whole, such as `.vscode`.
fn is_covered(known: Option<&BaselineItem>, item: &ProtectedItem) -> bool {
    item.sort == Sort::Repository && known.is_some_and(|known| known.sort != Sort::Repository)
}

fn failed(errno: Errno) -> ProtectAction {
    ProtectAction::Failed(errno.desc().to_owned())
}

/// Protected files and secrets before a command. Pass it to [`Protection::check_after`] when the
/// command has ended. If it is dropped instead, a later check covers the command.
#[derive(Debug)]
pub struct Survey {
    /// Existing protected files and folders, to be mounted read-only: without exempt and hidden
    /// ones, and those beyond the maximum number of mounts.
    pub read_only: Vec<PathBuf>,
    /// Folders between a root and a protected path that controls git, and folders that contain an
    /// exempt path; to be bind-mounted onto themselves, so that they cannot be renamed.
    pub pinned: Vec<PathBuf>,
    /// Existing secrets and posse's own folders, which the command must not read.
    pub hidden: Vec<PathBuf>,
    /// Files that the command sees in place of tracked secrets among `hidden`, if they can be
    /// mounted.
    pub(crate) replaced: Vec<Replacement>,
    /// Tracked secrets that the command does not see as they are.
    pub(crate) tracked: Vec<TrackedSecret>,
    /// Paths of `hidden` about which git has to be asked.
    pub(crate) undecided: Vec<Undecided>,
    /// True if the scan was complete.
    pub complete: bool,
    /// Protection while the command runs. `ByCheck`, unless the caller mounts the paths and changes
    /// it.
    pub(crate) held: ProtectionMethod,
    baseline: Arc<Baseline>,
    protection: Option<Arc<Protection>>,
}

/// Method that protects files while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionMethod {
    /// Read-only mounts: the command cannot change the paths of [`Survey::read_only`].
    ByMounts,
    /// No protection while the command runs, only the check afterwards.
    ByCheck,
}

/// Effect of a command on a protected name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Path of the protected name.
    pub path: PathBuf,
    /// Kind of the change that the command made.
    pub what: ProtectedChange,
    /// Reaction of posse to the change.
    pub action: ProtectAction,
    /// Command or commands that can have made the change.
    #[serde(skip_serializing_if = "Whose::is_this")]
    pub whose: Whose,
}

/// Attribution of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Whose {
    /// The command whose check reports the finding. No other command ran at the same time.
    #[default]
    This,
    /// One of several commands that ran at the same time.
    AnyOfSeveral,
    /// An earlier command, whose change was not reported when that command ended.
    Earlier,
}

impl Whose {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_this(&self) -> bool {
        *self == Whose::This
    }

    /// Text behind the change.
    fn described(self) -> &'static str {
        match self {
            Whose::This => "",
            Whose::AnyOfSeveral => {
                " while this command ran, and others did, so it may be the work of any"
            }
            Whose::Earlier => " while an earlier command ran",
        }
    }
}

impl Finding {
    /// Creates the finding of a change that the only running command made.
    pub fn new(path: PathBuf, what: ProtectedChange, action: ProtectAction) -> Finding {
        Finding { path, what, action, whose: Whose::This }
    }
}

/// Kind of a change of a protected name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectedChange {
    /// A protected file, link or folder was created.
    Created,
    /// A protected file, link or folder was changed.
    Changed,
    /// A protected file, link or folder was removed, renamed or moved away.
    Removed,
    /// A repository is missing, and another file or folder is at its path.
    Replaced,
    /// A git file got settings that may run programs. Contains their names; empty if the file cannot
    /// be parsed.
    Settings(Vec<String>),
    /// The list of steps of an interrupted operation of git got steps that run commands, or that it
    /// did not have before the command. Contains their lines.
    Steps(Vec<String>),
    /// A `.git` file or a `commondir` was created or changed, and refers git to a folder that is
    /// not scanned, or to a repository that may run programs.
    LeadsOutside,
    /// A protected file was created together with the new work tree that contains it.
    CameWithRepository,
    /// The scan of this root was incomplete, because a limit was exceeded or a folder could not be
    /// read, so changes may be missed.
    TooMuch,
    /// An index of git was created or changed, and has this path, to which git would write although
    /// it is outside the work tree or in a `.git`. Empty if the file is not an index.
    IndexPath(String),
    /// A protected file got another hard link, under which a program may write it.
    Linked,
    /// The folder with the state of an operation of git, such as a rebase, was created or changed:
    /// continuing or aborting the operation checks out commits that the command named.
    Interrupted,
    /// References that replace objects of git by others were added. Contains their lines; empty if
    /// the file cannot be read.
    Replacements(Vec<String>),
    /// The `info/exclude` of a new repository was created or changed, and has patterns: git and
    /// checkpoints leave out the files that match.
    Excludes,
    /// Files below this root kept changing during the check, so changes may be missed.
    KeepsChanging,
}

/// Reaction to a change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectAction {
    /// The file or folder was moved to this path in the quarantine. A path without a folder is its
    /// new name in the old folder, because the quarantine could not be used.
    MovedAside(PathBuf),
    /// The earlier state was restored. The version that the command left is at this path, as in
    /// [`ProtectAction::MovedAside`]; `None` if it left none.
    Restored(Option<PathBuf>),
    /// The dangerous settings or steps were removed from the file; the text that the command left
    /// is at this path.
    Cleaned(PathBuf),
    /// The change was left as the command made it.
    Left,
    /// The change could not be handled, for this reason.
    Failed(String),
}

impl Finding {
    /// Returns what to do about a file that was left.
    fn advice(&self) -> &'static str {
        match self.what {
            ProtectedChange::Interrupted => "look at its commits before you continue or abort it",
            ProtectedChange::Excludes => "look at them before you rely on a checkpoint",
            _ => "check it before a program is started in that folder",
        }
    }
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
                let names = names.join(", ");
                settings = format!("got settings that may run programs ({})", printable(&names));
                &settings
            }
            ProtectedChange::IndexPath(path) if path.is_empty() => {
                "was changed and is not understood as an index of git"
            }
            ProtectedChange::IndexPath(path) => {
                settings = format!("got a path to which git must not write ({})", printable(path));
                &settings
            }
            ProtectedChange::Linked => "is protected and got another name by a hard link",
            ProtectedChange::Interrupted => "is an operation of git that a command left unfinished",
            ProtectedChange::Replacements(lines) => {
                settings = format!("got replacing references ({})", printable(&lines.join(", ")));
                &settings
            }
            ProtectedChange::Steps(lines) => {
                let lines = printable(&lines.join(", "));
                settings = format!("got steps that the operation did not have ({lines})");
                &settings
            }
            ProtectedChange::LeadsOutside => "leads git to a place outside the workspace",
            ProtectedChange::Excludes => "got patterns of files that git and checkpoints leave out",
            ProtectedChange::CameWithRepository => "is protected and came with a new work tree",
            ProtectedChange::TooMuch => {
                return write!(
                    f,
                    "{path} has more folders than are scanned, or folders that cannot be \
                     read: files that a command creates in the rest are not found"
                );
            }
            ProtectedChange::KeepsChanging => {
                return write!(
                    f,
                    "{path} kept changing while it was checked: the last protected files that were \
                     created in it may not be found"
                );
            }
        };
        write!(f, "{path} {change}{}", self.whose.described())?;
        match &self.action {
            ProtectAction::MovedAside(to) => write!(f, "; it was moved to {}", shown(to)),
            ProtectAction::Restored(Some(to)) => {
                write!(f, "; it was put back as it was, and what replaced it is in {}", shown(to))
            }
            ProtectAction::Restored(None) => write!(f, "; it was put back as it was"),
            ProtectAction::Cleaned(to) => {
                write!(f, "; they were taken out, and the whole text is in {}", shown(to))
            }
            ProtectAction::Left => write!(f, "; it was left: {}", self.advice()),
            ProtectAction::Failed(why) => write!(f, "; it could not be put right: {why}"),
        }
    }
}

impl Protection {
    /// Creates the protection of `roots`, which are absolute and resolved. `own`: posse's own
    /// folders, hidden from commands; `home`: searched for credentials; `readable`: secrets that
    /// commands may read; `quarantine`: folder for moved files. Fails if a root cannot be opened.
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
        let roots = distinct.into_iter().map(|path| Watched::open(path));
        let roots = roots.collect::<Result<Vec<_>, Errno>>()?;
        let temporary = Temporary::default();
        let git = GitReferences::new(home.clone(), None);
        let session_dir = quarantine.parent().unwrap_or(&quarantine).to_owned();
        let protection = Protection {
            own,
            home,
            readable,
            bounds: ScanBounds::default(),
            is_complete: AtomicBool::new(true),
            took: AtomicU64::new(u64::MAX),
            temporary: Arc::clone(&temporary),
            written: ToolWrites::default(),
            secret_files: SecretFiles::default(),
            scanner: known_secrets::next_scanner(),
            inner: Mutex::new(GuardState {
                roots,
                git,
                committed: CommittedViews::new(session_dir),
                quarantine: Quarantine::new(quarantine),
                temporary,
                is_complete: true,
                ..GuardState::default()
            }),
        };
        Ok(protection.registering(SecretFiles::default()))
    }

    /// Marks `roots` as roots below which commands cannot write, and all others as writable. Roots
    /// of the first kind are scanned for secrets only.
    pub(crate) fn for_read_only_roots(self, roots: &[PathBuf]) -> Protection {
        for watched in &mut self.lock().roots {
            watched.is_out_of_reach = roots.contains(&watched.root.path);
        }
        self
    }

    /// Sets the configuration folder of the user (`XDG_CONFIG_HOME`), which contains settings of
    /// git. `None` means `.config` in the home folder.
    #[must_use]
    pub(crate) fn with_config_home(self, config_home: Option<PathBuf>) -> Protection {
        self.lock().git = GitReferences::new(self.home.clone(), config_home);
        self
    }

    /// Marks running commands for other sessions with files in `folder`.
    #[must_use]
    pub(crate) fn marking(self, folder: PathBuf) -> Protection {
        let mut inner = self.lock();
        let path = |watched: &Watched| watched.root.path.clone();
        let roots = inner.roots.iter().map(path).collect();
        let reached = inner.roots.iter().filter(|watched| !watched.is_out_of_reach);
        let written = reached.map(path).collect();
        inner.marks = Some(RunningMarks::new(folder, roots, written));
        drop(inner);
        self
    }

    /// Adds `folder`, which contains temporary folders of commands, to the folders that are
    /// searched for moved repositories.
    pub(crate) fn also_scan(&self, folder: PathBuf) {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
    }

    /// True if a scan will probably be fast: the last scan was, and neither a scan nor a tool write
    /// is running.
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

    /// Surveys protected files and secrets before a command, which counts as running from then on.
    /// First makes a check that is owed, unless commands are running. Blocks while it reads
    /// folders.
    pub fn survey(self: &Arc<Protection>) -> Survey {
        self.survey_without(&[])
    }

    /// Surveys as [`Protection::survey`] does, for a command that may change the paths `lifted` and
    /// their contents: absolute, resolved paths that a person named.
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
        let others_since = inner.mark_running();
        let (items, secrets, complete) = inner.scan(self.bounds);
        // Names that appeared while other commands run may be theirs and are not added to the
        // user's.
        let baseline = match inner.baseline.clone().filter(|_| inner.running > 0) {
            Some(baseline) => baseline,
            None => inner.new_baseline(items, complete, &log, others_since),
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
        let sorted = self.hidden(&mut inner, &secrets, complete);
        let HiddenPaths { hidden, replaced, tracked, undecided } = sorted;
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
            replaced,
            tracked,
            undecided,
            complete,
            held: ProtectionMethod::ByCheck,
            baseline,
            protection,
        }
    }

    /// Returns the existing secrets, credential stores and folders of posse below the roots, which
    /// only mounts can hide. Blocks while it reads folders.
    pub fn secrets_inside(&self) -> Vec<PathBuf> {
        let mut inner = self.lock();
        let (_, secrets, complete) = inner.scan(self.bounds);
        let mut hidden = self.hidden(&mut inner, &secrets, complete).hidden;
        let roots: Vec<&Path> = inner.roots.iter().map(|watched| &*watched.root.path).collect();
        hidden.retain(|path| roots.iter().any(|root| path.starts_with(root)));
        hidden
    }

    /// Compares the protected files after a command with `survey`. Restores, moves aside or reports
    /// the changes. Returns the findings, after unreported ones about earlier commands.
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
        inner.unmark_running();
        self.is_complete.store(inner.is_complete, Ordering::Relaxed);
        // A workspace that a command made too large to scan is reported each time.
        let grew = survey.complete && !inner.is_complete;
        if grew || (!survey.complete && !std::mem::replace(&mut inner.told_too_much, true)) {
            let too_much = |path| Finding::new(path, ProtectedChange::TooMuch, ProtectAction::Left);
            let roots = inner.roots.iter().filter(|watched| !watched.is_complete);
            findings.extend(roots.map(|watched| too_much(watched.root.path.clone())));
        }
        drop(log);
        drop(inner);
        self.note_time(begin);
        findings
    }

    /// Discards the survey of a command that did not run, so that no check is owed for it.
    pub(crate) fn take_back(&self, mut survey: Survey) {
        survey.protection = None;
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        if inner.running == 0 {
            inner.baseline = None;
            inner.lifted = Lifted::default();
            inner.were_several = false;
        }
        inner.unmark_running();
    }

    /// True if the last scan, before or after a command, was complete. Does not wait.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    fn give_up(&self, held: ProtectionMethod) {
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        inner.owed = Some(held);
    }

    /// Checks the effects of a command that was given up; the next check reports the findings.
    /// Unless `is_dead`, processes of the command may still run, and another check stays due. Does
    /// nothing if no check is owed.
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
        inner.unmark_running();
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
    /// Scans every root. Returns the protected names within reach of commands, the secrets in all
    /// roots, and true if all scans were complete.
    fn scan(
        &mut self,
        bounds: ScanBounds,
    ) -> (Vec<(usize, ProtectedItem)>, Vec<ProtectedPath>, bool) {
        let (mut items, mut secrets, mut complete) = (Vec::new(), Vec::new(), true);
        for (at, found) in self.scan_roots(|_, watched| Some(watched.run_scan(bounds))) {
            complete &= found.is_complete;
            if !self.roots[at].is_out_of_reach {
                items.extend(found.items.into_iter().map(|item| (at, item)));
            }
            secrets.extend(found.secrets.into_iter().map(|path| (at, path)));
        }
        (items, secrets, complete)
    }

    /// Scans the roots by `run`, which gets their indexes and returns `None` for those that are left
    /// out, and scans those again to whose folders links in another root lead which were not known
    /// before. Returns the results with the indexes of the roots.
    fn scan_roots(
        &mut self,
        mut run: impl FnMut(usize, &mut Watched) -> Option<ScanResult>,
    ) -> Vec<(usize, ScanResult)> {
        let mut results: BTreeMap<usize, ScanResult> = BTreeMap::new();
        let mut due = vec![true; self.roots.len()];
        for round in 0..=CROSS_ROUNDS_MAX {
            for (at, watched) in self.roots.iter_mut().enumerate().filter(|(at, _)| due[*at]) {
                let Some(mut found) = run(at, watched) else { continue };
                if round == CROSS_ROUNDS_MAX {
                    found.is_complete = false;
                    watched.is_complete = false;
                }
                results.insert(at, found);
            }
            let targets = self.roots.iter().flat_map(|watched| watched.scan.targets_elsewhere());
            let targets: BTreeSet<PathBuf> = targets.cloned().collect();
            due.fill(false);
            for (at, watched) in self.roots.iter_mut().enumerate() {
                let below = targets.iter().filter_map(|path| {
                    path.strip_prefix(&watched.root.path).ok().map(Arc::<Path>::from)
                });
                due[at] = watched.scan.set_targets_from_elsewhere(below.collect());
            }
            if !due.contains(&true) {
                break;
            }
        }
        results.into_iter().collect()
    }

    /// Creates a baseline of the current state of `items` and of the paths to which they refer.
    /// Forgets repositories created by commands, and files left in new work trees, that are gone.
    /// `others_since`: result of [`GuardState::mark_running`] before the scan.
    fn new_baseline(
        &mut self,
        items: Vec<(usize, ProtectedItem)>,
        is_complete: bool,
        log: &Log,
        others_since: Option<Stamp>,
    ) -> Arc<Baseline> {
        // The inode number of a removed folder is reused.
        let roots = &self.roots;
        self.born.retain(|identity, (at, path)| roots[*at].scan.identity(path) == Some(*identity));
        let unreadable = self.roots.iter().enumerate().flat_map(|(at, watched)| {
            watched.unreadable().map(move |(path, changed)| ((at, path), changed))
        });
        let unreadable = unreadable.collect();
        let mut baseline = Baseline {
            items: HashMap::with_capacity(items.len()),
            scans: self.roots.iter().map(|watched| watched.scan.number()).collect(),
            pointed: Vec::new(),
            is_complete,
            unreadable,
            since: log.since(),
            time: SystemTime::now(),
        };
        let mut due = self.referenced(&items);
        baseline.pointed.clone_from(&due);
        due.splice(0..0, items);
        for _ in 0..=pointed::LINK_ROUNDS_MAX {
            let keys: Vec<ProtectedPath> =
                due.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
            for (at, item) in due {
                let key = (at, Arc::clone(&item.path));
                if !is_covered(baseline.items.get(&key), &item)
                    && let Some(before) = self.item_state(at, &item, None)
                {
                    baseline.items.insert(key, before);
                }
            }
            due = self.link_targets(&baseline, &keys);
            if due.is_empty() {
                break;
            }
            baseline.pointed.extend(due.iter().cloned());
        }
        self.retain_left(&baseline);
        let mut mounted: Vec<(&ProtectedPath, &mut BaselineItem)> =
            baseline.items.iter_mut().filter(|(_, before)| before.is_mounted).collect();
        // Names nearest to the root have priority, but commands can create any number of files whose
        // content is judged.
        mounted.sort_by_key(|((at, path), _)| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            let is_judged = harmless::is_judged(&protected::fold(name));
            (is_judged, path.components().count(), *at, Arc::clone(path))
        });
        for (_, before) in mounted.into_iter().skip(MOUNTS_MAX) {
            before.is_mounted = false;
        }
        let is_disturbed = self.note_doubtful(&mut baseline, others_since);
        let baseline = Arc::new(baseline);
        if !is_disturbed {
            self.undisturbed = Some(Arc::clone(&baseline));
        }
        baseline
    }

    /// Marks for other sessions that a command runs. Returns the time of the first change that their
    /// commands may have made; `None` if none of them run.
    fn mark_running(&mut self) -> Option<Stamp> {
        let marks = self.marks.as_mut()?;
        if let Err(error) = marks.begin() {
            tracing::warn!(%error, "the running command is not marked for other sessions");
        }
        marks.others_since()
    }

    /// Removes the mark, unless a command runs or a check is owed.
    fn unmark_running(&mut self) {
        if self.baseline.is_none()
            && let Some(marks) = &mut self.marks
        {
            marks.end();
        }
    }

    /// Marks the items of `baseline` as doubtful that have changed since commands of other sessions
    /// began, and those in a folder that has, unless they are known from before. `others_since`:
    /// result of [`GuardState::mark_running`] before the scan. Returns false if there are no such
    /// commands.
    fn note_doubtful(&self, baseline: &mut Baseline, others_since: Option<Stamp>) -> bool {
        let again = self.marks.as_ref().and_then(RunningMarks::others_since);
        let Some(since) = [others_since, again].into_iter().flatten().min() else { return false };
        for (key, item) in &mut baseline.items {
            let root = &self.roots[key.0].root;
            let is_new = |path: &Path| root.stat(path).is_ok_and(|stat| stat.changed >= since);
            let is_known = self.undisturbed.as_ref().is_some_and(|known| known.has(key, item));
            // The time of a folder changes with its entries, as that of a `.git` with each lock of
            // the index.
            let is_changed = match &item.state {
                Some(state) => is_new(&key.1) || state.has_changed_since(since),
                None => !is_known && is_new(&key.1),
            };
            let mut above = key.1.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
            item.is_doubtful = is_changed || (!is_known && above.any(is_new));
        }
        true
    }

    /// Returns the current state of an item, to the extent of its earlier state `before`. `None` if
    /// the item does not exist or cannot be examined.
    fn item_state(
        &mut self,
        at: usize,
        item: &ProtectedItem,
        before: Option<&State>,
    ) -> Option<BaselineItem> {
        let Watched { root, scan, .. } = &self.roots[at];
        if matches!(item.sort, Sort::Repository | Sort::Interrupted) {
            let identity = scan.identity(&item.path)?;
            let parent = item.path.parent().and_then(|above| scan.identity(above));
            let (sort, birth) = (item.sort, scan.creation_time_of(&item.path));
            let (state, above) = (None, None);
            let (is_mounted, is_doubtful) = (false, false);
            return Some(BaselineItem {
                sort,
                state,
                identity,
                birth,
                parent,
                above,
                is_mounted,
                is_doubtful,
            });
        }
        let (folder, name) = root.open_parent(&item.path).ok()?;
        let stat = Stat::at(&folder, name).ok()?;
        let identity = stat.identity;
        let parent = Stat::at(&folder, Path::new("")).ok().map(|stat| stat.identity);
        let is_born = self.is_born(parent)
            || self.is_in_new_worktree(at, &item.path)
            || (item.sort == Sort::Exclude && self.is_in_born(&(at, Arc::clone(&item.path))));
        let state = match item.sort {
            // It may be large, and is judged without its earlier content.
            Sort::Index => State::File { stat, copy: None },
            Sort::PackedRefs => {
                State::File { stat, copy: self.reader.replacements(&folder, name, stat) }
            }
            _ => self.reader.state(&folder, name, before)?,
        };
        let is_kept = matches!(
            item.sort,
            Sort::Name(_)
                | Sort::Pointer
                | Sort::Hooks
                | Sort::Remotes
                | Sort::Settings
                | Sort::Attributes
                | Sort::Exclude
                | Sort::InnerLink
                | Sort::Common
                | Sort::Foreign
        );
        let is_mounted = !is_born
            && is_kept
            && !harmless::is_replaced_in_place(&protected::fold(name.as_os_str().as_bytes()))
            && (state.is_folder() || matches!(state, State::File { .. }));
        let above = depends_on_parent(item).then(|| root.identity_above(&item.path)).flatten();
        let (sort, state) = (item.sort, Some(state));
        let (birth, is_doubtful) = (None, false);
        Some(BaselineItem { sort, state, identity, birth, parent, above, is_mounted, is_doubtful })
    }

    /// Returns the paths to mount read-only, including all hard links of a file, and the folders
    /// above those that control git, up to but without the root, which must not be renamed.
    fn mounts(&self, baseline: &Baseline) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut keys: Vec<&ProtectedPath> = baseline
            .items
            .iter()
            .filter(|(_, before)| before.is_mounted)
            .map(|(key, _)| key)
            .collect();
        keys.sort_by_key(|(at, path)| (path.components().count(), *at, Arc::clone(path)));
        let pointed: HashSet<ProtectedPath> =
            baseline.pointed.iter().map(|(at, item)| (*at, Arc::clone(&item.path))).collect();
        let mut read_only = Vec::new();
        let mut pinned = BTreeSet::new();
        for key in keys {
            let (at, path) = (key.0, &key.1);
            let root = &self.roots[at].root.path;
            read_only.push(root.join(path));
            let controls_git =
                !matches!(baseline.items[key].sort, Sort::Name(_)) || pointed.contains(key);
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
        for twin in links::names(&linked.collect::<Vec<_>>(), &self.roots) {
            if !read_only.contains(&twin) {
                read_only.push(twin);
            }
        }
        (read_only, pinned.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
