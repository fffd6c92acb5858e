//! Protection of protected files and secrets below the roots of commands.
//!
//! [`Protection::survey`] finds them before a command starts. On the full tier, existing protected
//! files are then mounted read-only. [`Protection::check_after`] finds created, changed and removed
//! ones, and moves them to the quarantine, restores the originals, removes dangerous settings, or
//! only reports them. No placeholder files are created: `git add` would add them.

mod baseline;
mod check;
mod committed;
mod exemptions;
mod finding;
mod finding_lines;
mod folder_watch;
mod git_excludes;
mod git_files;
mod git_folder;
mod gitconfig;
mod harmless;
mod head_commit;
mod index;
mod known_secrets;
mod linked_worktrees;
mod links;
mod look_alikes;
mod moved_repositories;
mod new_worktrees;
mod packed_refs;
pub(crate) mod place;
mod placed_paths;
mod pointed;
mod pointers;
mod quarantine;
mod references;
mod registry_settings;
mod restore;
mod running_marks;
mod scan;
mod search_path;
mod sort;
mod state;
mod steps;
mod stores;
mod tool_writes;
mod unchecked;
mod watched;
mod work_trees;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use posse_base::secrets::files::{FileId, SecretFiles};
use posse_base::secrets::readable::{ReadableSecrets, is_pattern, split_pattern};

use crate::plan::Replacement;
use crate::unsandboxed;

use baseline::Baseline;
pub(crate) use committed::{Committed, CommittedFile, Undecided};
use committed::{CommittedViews, HiddenPaths};
pub use committed::{CoveredSecret, SecretView, covered_lines};
use exemptions::Lifted;
pub use finding::{Finding, ProtectAction, ProtectedChange, Whose};
pub use finding_lines::finding_lines;
pub use git_folder::is_entry_of_git;
use head_commit::HeadCommits;
use new_worktrees::NewWorktrees;
use place::Identity;
use placed_paths::PlacedPaths;
use quarantine::Quarantine;
pub use references::GitReferences;
use running_marks::RunningMarks;
pub use running_marks::{marks_folder, running_since};
pub(crate) use scan::ScanBounds;
use search_path::SearchPath;
use state::FileStateReader;
pub use tool_writes::{ToolWrites, Writing};
use watched::Watched;

/// Duration in microseconds up to which a scan counts as fast: switching to another thread would
/// take longer.
const QUICK_MICROSECONDS: u64 = 500;

/// Protects files and secrets below a set of roots. Commands with the same roots and the same
/// read-only ones among them share one `Protection`.
#[derive(Debug)]
pub struct Protection {
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    readable: ReadableSecrets,
    /// Limits of a scan of one root.
    pub(crate) bounds: ScanBounds,
    /// Result of [`Protection::is_complete`]. Readable without the lock that a running scan holds.
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
    /// Secrets that the last searches did not find while other commands ran, and the number of these
    /// searches.
    missed: Mutex<(Vec<FileId>, u32)>,
    inner: Mutex<GuardState>,
}

/// Shared set of folders that contain temporary folders of commands. It may grow while a scan runs.
type Temporary = Arc<Mutex<BTreeSet<PathBuf>>>;

/// Commands that ran beside the one that is checked.
#[derive(Debug, Clone, Copy, Default)]
struct RanBeside {
    /// True if there were other commands of this session.
    own: bool,
    /// True if there were commands of other sessions.
    others: bool,
}

/// State of a [`Protection`], behind its lock.
#[derive(Debug, Default)]
struct GuardState {
    roots: Vec<Watched>,
    /// Roots below other roots.
    nested: Vec<PathBuf>,
    /// Files and folders that count by their paths.
    placed: PlacedPaths,
    reader: FileStateReader,
    /// Finder of the paths to which git's settings refer.
    git: GitReferences,
    stores: stores::Keys,
    search_path: SearchPath,
    committed: CommittedViews,
    /// Names of secrets with several hard links, with the identities of the files. While other
    /// commands run, names that are not found any more stay.
    linked_names: BTreeMap<PathBuf, Identity>,
    heads: RefCell<HeadCommits>,
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
    /// Commands that ran at the same time since the baseline.
    beside: RanBeside,
    /// Protection method of a command that was given up without a check. `None` if no check is
    /// owed.
    owed: Option<ProtectionMethod>,
    /// Repositories that commands of this session created. Their git files are not restored but
    /// cleaned: everything that may run programs is removed.
    born: HashMap<Identity, ProtectedPath>,
    /// Number of rounds of the current check so far.
    rounds: usize,
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
    /// True if secrets changed their places during the last scan, so that not all of them can be
    /// covered.
    is_unsettled: bool,
    /// True if it was reported that the workspace is too large for a scan.
    told_too_much: bool,
}

/// Location of a protected name: index of the root, and path below the root.
type ProtectedPath = (usize, Arc<Path>);

/// Protected files and secrets before a command. Pass it to [`Protection::check_after`] when the
/// command has ended. If it is dropped instead, a later check covers the command.
#[derive(Debug)]
pub struct Survey {
    /// Existing protected files and folders, to be mounted read-only: without exempt and hidden
    /// ones, and those beyond the maximum number of mounts.
    pub read_only: Vec<PathBuf>,
    /// Folders between a root and a protected path that controls git, or a path that settings of posse
    /// name, and folders that contain an exempt path; to be bind-mounted onto themselves, so that they
    /// cannot be renamed.
    pub pinned: Vec<PathBuf>,
    /// Existing secrets and posse's own folders, which the command must not read.
    pub hidden: Vec<PathBuf>,
    /// Identities of those of `hidden` that are below the roots.
    pub(crate) identities: BTreeMap<PathBuf, Identity>,
    /// Files that the command sees in place of secrets among `hidden`, and of git's patterns, if
    /// they can be mounted.
    pub(crate) replaced: Vec<Replacement>,
    /// Secrets of the workspace that the command does not see as they are.
    pub(crate) covered: Vec<CoveredSecret>,
    /// Paths of `hidden` about which git has to be asked.
    pub(crate) undecided: Vec<Undecided>,
    /// True if the scan was complete.
    pub complete: bool,
    /// True if secrets changed their places during the scan, so that not all of them can be covered.
    pub(crate) is_unsettled: bool,
    /// The error if the scan lacked descriptors or memory, so that it is incomplete.
    pub(crate) exhausted: Option<Errno>,
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

impl Protection {
    /// Creates the protection of `roots`, which are absolute and resolved. `own`: posse's own
    /// folders, hidden from commands; `home`: searched for credentials; `readable`: secrets that
    /// commands may read, also as patterns, of which links below a root lead nowhere; `quarantine`: folder for moved
    /// files. Fails if a root cannot be opened.
    pub fn new(
        roots: &[PathBuf],
        own: Vec<PathBuf>,
        home: Option<PathBuf>,
        readable: Vec<PathBuf>,
        quarantine: PathBuf,
    ) -> Result<Protection, Errno> {
        unsandboxed::add_roots(roots)
            .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        // A link below a root, also of an earlier session, may be the work of the repository or of a
        // command.
        let writable = [roots, &unsandboxed::recorded_workspaces()].concat();
        let followed = |entry: PathBuf| {
            let (folder, pattern) =
                if is_pattern(&entry) { split_pattern(&entry) } else { (entry, PathBuf::new()) };
            let folder = references::resolve_outside(&folder, &writable)?;
            // Joining an empty path would add a slash.
            Some(if pattern.as_os_str().is_empty() { folder } else { folder.join(pattern) })
        };
        let placed = PlacedPaths::new(&own, home.as_deref(), roots);
        let readable = ReadableSecrets::new(readable.into_iter().filter_map(followed));
        // The scan of the outer root covers nested ones.
        let is_nested =
            |path: &&PathBuf| roots.iter().any(|other| other != *path && path.starts_with(other));
        let (nested, distinct): (BTreeSet<&PathBuf>, BTreeSet<&PathBuf>) =
            roots.iter().partition(is_nested);
        let nested = nested.into_iter().cloned().collect();
        let search_path = SearchPath::new(&env::var_os("PATH").unwrap_or_default(), roots);
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
            missed: Mutex::default(),
            inner: Mutex::new(GuardState {
                roots,
                nested,
                placed,
                git,
                search_path,
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
        let unchecked_since = inner.marks.as_mut().and_then(RunningMarks::unchecked_since);
        let others_since = inner.mark_running();
        let (items, secrets, complete) = inner.scan(self.bounds);
        // Names that appeared while other commands run may be theirs and are not added to the
        // user's.
        let baseline = match inner.baseline.clone().filter(|_| inner.running > 0) {
            Some(baseline) => baseline,
            None => inner.new_baseline(items, complete, &log, others_since),
        };
        if let Some(since) = unchecked_since {
            inner.report_unchecked(&baseline, since);
        }
        inner.running += 1;
        inner.beside.own |= inner.running > 1;
        inner.beside.others |= others_since.is_some();
        let complete = complete && baseline.holds_git;
        inner.is_complete = complete;
        let exhausted = inner.exhausted();
        self.is_complete.store(complete || exhausted.is_some(), Ordering::Relaxed);
        inner.lifted.extend(lifted);
        inner.baseline = Some(Arc::clone(&baseline));
        let (mut read_only, mut pinned) = inner.mounts(&baseline);
        pinned.extend(inner.folders_above_placed());
        pinned.sort();
        pinned.dedup();
        if inner.running > 1 {
            // Our own tools may have removed files since.
            read_only.retain(|path| path.symlink_metadata().is_ok());
        }
        let mut own = Lifted::default();
        own.extend(lifted);
        own.remove_exempt(&mut read_only, &mut pinned);
        let sorted = self.hidden(&mut inner, &secrets, complete);
        let is_unsettled = inner.is_unsettled;
        let HiddenPaths { hidden, identities, mut replaced, covered, undecided } = sorted;
        // An approved change of patterns needs the file itself.
        let is_exempt = |file: &Replacement| {
            file.target.ends_with(git_excludes::EXCLUDE) && own.covers(&file.target)
        };
        replaced.retain(|file| !is_exempt(file));
        // The cover of a path also protects it.
        let is_covered = |path: &PathBuf| {
            hidden.contains(path) || replaced.iter().any(|file| file.target == *path)
        };
        read_only.retain(|path| !is_covered(path));
        drop(log);
        drop(inner);
        self.note_time(begin);
        let protection = Some(Arc::clone(self));
        Survey {
            read_only,
            pinned,
            hidden,
            identities,
            replaced,
            covered,
            undecided,
            complete,
            is_unsettled,
            exhausted,
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
        let whose = if inner.beside.own { Whose::AnyOfSeveral } else { Whose::This };
        inner.running = inner.running.saturating_sub(1);
        inner.baseline = Some(Arc::clone(&survey.baseline));
        let found = inner.handle_differences(survey.held, self.bounds, &log);
        findings.extend(found.into_iter().map(|finding| Finding { whose, ..finding }));
        if let Some(marks) = &mut inner.marks {
            marks.forget_unchecked();
        }
        inner.unmark_running();
        let is_complete = inner.is_complete || inner.exhausted().is_some();
        self.is_complete.store(is_complete, Ordering::Relaxed);
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
            inner.beside = RanBeside::default();
        }
        inner.unmark_running();
    }

    /// False if the last scan, before or after a command, left out folders that the next one will
    /// leave out too. True before the first scan, and after one that lacked descriptors or memory.
    /// Does not wait.
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

#[cfg(test)]
mod tests;
