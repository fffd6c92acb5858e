//! Hidden files that git tracks, and what commands see in their place.
//!
//! For git, a tracked file that a command cannot read is changed, and `git add` fails. So a hidden
//! file is shown as it is if its bytes are those of the commit that is checked out (`HEAD`), which
//! commands can read from the repository anyway. Otherwise commands see the bytes of the commit, in
//! a read-only file. The index proves nothing: a secret can be staged by mistake.
//!
//! git reads the commit as a command does (`src/sandbox/committed_files.rs`), so commands could read
//! all of its bytes without this module. A file that was found to differ is not shown as it is until
//! it changes: otherwise a command could test guesses of its content by committing them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use posse_base::count;
use posse_base::failure::printable;
use posse_base::hex::sha256;
use posse_base::resolved_path::{self, FOLDER};
use posse_base::secrets;
use posse_base::secrets::files::SecretFiles;
use tempfile::TempDir;

use crate::plan::Replacement;
use crate::protect::git_excludes::GitExcludes;
use crate::protect::place::{self, Identity, PlaceKind, Root, SETTLED, Stat, is_timestamp_final};
use crate::protect::references::{self, GitRepository};
use crate::protect::registry_settings;
use crate::protect::{Protection, Watched};

/// Maximum number of hidden paths about which git is asked before one command. The others stay
/// hidden until the next command.
const QUERIES_MAX: usize = 256;

/// Maximum number of bytes of all replacements of a session.
const REPLACED_BYTES_MAX: usize = 32 << 20;

/// Maximum size in bytes of `HEAD` and of the file of a branch.
const REFERENCE_BYTES_MAX: u64 = 4 << 10;

/// Maximum number of references from `HEAD` to a commit, as in git.
const REFERENCES_MAX: usize = 5;

/// Hidden path for which it is not known what the commit contains.
#[derive(Debug, Clone)]
pub(crate) struct Undecided {
    pub(crate) path: PathBuf,
    /// Root of the work tree around it.
    pub(crate) tree: PathBuf,
    pub(crate) is_folder: bool,
    head: HeadState,
}

/// File of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedFile {
    /// Absolute path in the work tree.
    pub(crate) path: PathBuf,
    pub(crate) is_executable: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Content of a commit at a hidden path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Committed {
    /// File at the path, or all files below it if it is a folder. Empty: git does not track it.
    Files(Vec<CommittedFile>),
    /// The path is tracked, and its content cannot be shown, for this reason.
    Unusable(&'static str),
    /// git gave no answer.
    Unknown,
}

/// Secret file or folder of the workspace that commands do not see as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoveredSecret {
    /// Absolute path of the file or folder.
    pub path: PathBuf,
    /// View of commands in its place.
    pub view: SecretView,
}

/// View that commands have of such a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretView {
    /// The bytes of the commit that is checked out, because the file differs from it, or has a
    /// second hard link.
    CommittedFile,
    /// A folder that contains the files of the commit, and nothing else.
    CommittedFolder,
    /// The registry settings of the file, without credentials.
    WithoutCredentials,
    /// An unreadable file or folder, because the committed content cannot be shown for this reason.
    Nothing(&'static str),
    /// An empty file or folder that cannot be read, which git treats as ignored. git does not track
    /// the path.
    Untracked,
}

impl fmt::Display for CoveredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path.display().to_string());
        match self.view {
            SecretView::CommittedFile => write!(
                f,
                "SBX011 {path} has the name of a secret and is not as in the commit that is checked \
                 out: commands see the committed version, read-only, and git reports no change of it"
            ),
            SecretView::CommittedFolder => write!(
                f,
                "SBX011 {path} has the name of a secret folder: commands see only the files of the \
                 commit that is checked out, read-only, and git reports no change of them"
            ),
            SecretView::WithoutCredentials => write!(
                f,
                "SBX011 {path} may contain credentials: commands see its registry settings without \
                 them, read-only"
            ),
            SecretView::Nothing(reason) => write!(
                f,
                "SBX011 {path} has the name of a secret and is hidden from commands, so git may \
                 report it as changed: {reason}"
            ),
            SecretView::Untracked => write!(
                f,
                "SBX011 {path} may hold secrets, so it is hidden from commands, and git treats it as \
                 ignored; the user can show it with `sandbox.readSecrets`"
            ),
        }
    }
}

/// Maximum number of tracked secrets that are reported one by one. The others are counted.
const REPORTED_MAX: usize = 12;

/// Maximum number of untracked secrets that are named in their line. The others are counted.
const NAMED_MAX: usize = 5;

/// Formats secrets that commands do not see as they are, with a bound: a line for each tracked one,
/// and one line for all others.
pub fn covered_lines(secrets: &[CoveredSecret]) -> Vec<String> {
    let is_untracked = |secret: &&CoveredSecret| secret.view == SecretView::Untracked;
    let (untracked, tracked): (Vec<_>, Vec<_>) = secrets.iter().partition(is_untracked);
    let (named, rest) = tracked.split_at(tracked.len().min(REPORTED_MAX));
    let mut lines: Vec<String> = named.iter().map(ToString::to_string).collect();
    if !rest.is_empty() {
        let more = count(rest.len(), "more tracked file is", "more tracked files are");
        lines.push(format!("SBX011 {more} hidden from commands in this way"));
    }
    match &untracked[..] {
        [] => {}
        [one] => lines.push(one.to_string()),
        several => {
            let (listed, others) = several.split_at(several.len().min(NAMED_MAX));
            let paths = listed.iter().map(|secret| printable(&secret.path.display().to_string()));
            let mut paths = paths.collect::<Vec<_>>().join(", ");
            if !others.is_empty() {
                let _ = write!(paths, " and {} more", others.len());
            }
            lines.push(format!(
                "SBX011 these files may hold secrets, so they are hidden from commands, and git \
                 treats them as ignored: {paths}; the user can show them with `sandbox.readSecrets`"
            ));
        }
    }
    lines
}

/// State of the files that determine the commit that is checked out: contents of `HEAD` and of the
/// branch, and status of files with many branches. An outdated state is harmless: it stands for an
/// earlier commit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HeadState {
    texts: Vec<Vec<u8>>,
    tables: [Option<(u64, u64, i64, i64)>; 2],
}

impl HeadState {
    fn of(repository: &GitRepository) -> HeadState {
        let GitRepository { folder, common, .. } = repository;
        let read = |path: &Path| references::read(path, REFERENCE_BYTES_MAX);
        let mut texts = vec![read(&folder.join("HEAD")).unwrap_or_default()];
        for _ in 0..REFERENCES_MAX {
            let Some(name) = texts.last().and_then(|text| reference(text)) else { break };
            let text = read(&folder.join(&name)).or_else(|| read(&common.join(&name)));
            texts.push(text.unwrap_or_default());
        }
        let tables = ["packed-refs", "reftable/tables.list"].map(|name| {
            let found = fs::metadata(common.join(name)).ok()?;
            Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
        });
        HeadState { texts, tables }
    }
}

/// Returns the path of the branch, below the git folder, to which `text` refers. `None` if it
/// contains a commit, or an invalid name.
pub(super) fn reference(text: &[u8]) -> Option<PathBuf> {
    let name = text.strip_prefix(b"ref:")?.trim_ascii();
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_below && !name.contains(&0)).then_some(path)
}

/// View that commands have of a hidden path.
#[derive(Debug)]
enum View {
    /// The file itself.
    AsItIs,
    /// These files; for a folder, all files that it seems to contain.
    Replaced(Vec<Replacement>),
    /// Nothing. The reason is set if git tracks the path.
    Nothing(Option<&'static str>),
}

#[derive(Debug)]
struct Decision {
    head: HeadState,
    /// Status of the file when it was compared. `None` for folders.
    stat: Option<Stat>,
    view: View,
}

/// Hidden paths, sorted by what commands see in their place.
#[derive(Debug, Default)]
pub(super) struct HiddenPaths {
    /// Paths that are covered, also those with a replacement.
    pub(super) hidden: Vec<PathBuf>,
    /// Identities of those below the roots.
    pub(super) identities: BTreeMap<PathBuf, Identity>,
    pub(super) replaced: Vec<Replacement>,
    pub(super) covered: Vec<CoveredSecret>,
    pub(super) undecided: Vec<Undecided>,
}

/// Decisions about hidden paths, with the files that replace them.
#[derive(Debug, Default)]
pub(super) struct CommittedViews {
    decisions: HashMap<PathBuf, Decision>,
    /// Files in whose place commands see a copy without credentials, as of the last survey.
    registry_copies: BTreeSet<PathBuf>,
    /// Registry of the secrets that differ from their commit or have none, shared by all protections
    /// of the process.
    pub(super) registry: SecretFiles,
    replacements: Replacements,
}

impl CommittedViews {
    pub(super) fn new(session_dir: PathBuf) -> CommittedViews {
        let replacements = Replacements { session_dir, ..Replacements::default() };
        CommittedViews { replacements, ..CommittedViews::default() }
    }

    /// True if the file at `path`, with the status `stat`, has been found to be as in the commit.
    pub(super) fn is_as_committed(&self, path: &Path, stat: &Stat) -> bool {
        let known = self.decisions.get(path);
        known.is_some_and(|known| {
            matches!(known.view, View::AsItIs) && known.stat.as_ref() == Some(stat)
        })
    }

    /// Sorts `hidden`, in which folders precede their contents. `may_show` is false for paths that
    /// are hidden for another reason than their name in the workspace. Forgets decisions about other
    /// paths.
    pub(super) fn sort(
        &mut self,
        roots: &[Watched],
        hidden: Vec<PathBuf>,
        may_show: impl Fn(&Path) -> bool,
    ) -> HiddenPaths {
        let mut sorted = HiddenPaths::default();
        let mut trees = WorkTrees::default();
        let mut excludes = GitExcludes::default();
        let mut decisions = std::mem::take(&mut self.decisions);
        let mut last_folder: Option<PathBuf> = None;
        self.registry_copies.clear();
        for path in hidden {
            let replaced = sorted.replaced.len();
            let is_inside = last_folder.as_ref().is_some_and(|folder| path.starts_with(folder));
            let found = (!is_inside && may_show(&path)).then(|| examine(roots, &path)).flatten();
            let tree = found.and_then(|_| trees.around(&path));
            if let (Some((stat, _)), None) = (found, &tree) {
                self.registry.doubt(stat.identity.numbers(), stat.changed);
            }
            if let Some((stat, is_folder)) = found
                && let Some((tree, head)) = tree
            {
                let decision = decisions.remove_entry(&path).filter(|(_, known)| {
                    known.head == head && (is_folder || known.stat == Some(stat))
                });
                let is_shown = match decision {
                    Some((path, decision)) => {
                        let is_shown = sorted.apply(&path, &decision.view, is_folder);
                        self.decisions.insert(path, decision);
                        is_shown
                    }
                    None if sorted.undecided.len() < QUERIES_MAX => {
                        let path = path.clone();
                        sorted.undecided.push(Undecided { path, tree, is_folder, head });
                        false
                    }
                    None => false,
                };
                if is_shown {
                    continue;
                }
            }
            if !is_inside && path.is_dir() {
                last_folder = Some(path.clone());
            }
            if !is_inside && sorted.replaced.len() == replaced {
                self.replace_registry_file(roots, &path, &mut sorted);
            }
            if !is_inside && let Some((_, below)) = root_around(roots, &path) {
                // git of an outer repository may enter an inner one without a commit.
                let mut from = path.clone();
                while let Some((tree, common)) = trees.repository_around(&from) {
                    excludes.add(&path, &tree, &common);
                    from = tree;
                }
                let is_named = secrets::is_secret(&below.to_string_lossy());
                let is_told = sorted.covered.last().is_some_and(|told| told.path == path);
                if is_named && !is_told {
                    let view = SecretView::Untracked;
                    sorted.covered.push(CoveredSecret { path: path.clone(), view });
                }
            }
            sorted.hidden.push(path);
        }
        for file in excludes.files(roots, &sorted.hidden) {
            match self.replacements.of(&[file]) {
                Ok(replaced) => sorted.replaced.extend(replaced),
                Err(error) => tracing::debug!(%error, "git sees hidden files"),
            }
        }
        sorted
    }

    /// Adds a copy without credentials to `sorted` if `path` is a file with registry settings.
    fn replace_registry_file(&mut self, roots: &[Watched], path: &Path, sorted: &mut HiddenPaths) {
        if !path.file_name().is_some_and(registry_settings::is_registry_file) {
            return;
        }
        let Some((is_of_workspace, found)) = read_hidden(roots, path) else { return };
        let bytes = registry_settings::without_credentials(&found).into_bytes();
        let copy = CommittedFile { path: path.to_owned(), is_executable: false, bytes };
        match self.replacements.of(&[copy]) {
            Ok(replaced) => sorted.replaced.extend(replaced),
            Err(error) => {
                tracing::debug!(%error, "no copy of registry settings");
                return;
            }
        }
        self.registry_copies.insert(path.to_owned());
        // The file of the user is the same in all projects.
        if is_of_workspace {
            let view = SecretView::WithoutCredentials;
            sorted.covered.push(CoveredSecret { path: path.to_owned(), view });
        }
    }

    /// Decides what commands see at a path, from the content of the commit there. Reads the file.
    /// Returns its identity if they see it as it is.
    fn decide(
        &mut self,
        roots: &[Watched],
        path: &Undecided,
        committed: Committed,
    ) -> Option<Identity> {
        let stat = examine(roots, &path.path).map(|(stat, _)| stat);
        let stat = stat.filter(|stat| stat.kind == PlaceKind::File && !path.is_folder);
        let mut shown = None;
        if !matches!(committed, Committed::Files(_))
            && let Some(stat) = &stat
        {
            self.registry.doubt(stat.identity.numbers(), stat.changed);
        }
        let view = match committed {
            Committed::Unknown => View::Nothing(None),
            Committed::Unusable(reason) => View::Nothing(Some(reason)),
            Committed::Files(files) => {
                let equal = match &files[..] {
                    [file] if !path.is_folder => {
                        equal(roots, &path.path, &file.bytes).filter(|stat| self.may_be_shown(stat))
                    }
                    _ => None,
                };
                if equal.is_none()
                    && let Some(stat) = &stat
                {
                    self.registry.doubt(stat.identity.numbers(), stat.changed);
                }
                shown = equal;
                match equal {
                    Some(_) => View::AsItIs,
                    None if files.is_empty() => View::Nothing(None),
                    None => match self.replacements.of(&files) {
                        Ok(replaced) => View::Replaced(replaced),
                        Err(error) => {
                            tracing::debug!(%error, "no replacement of a tracked secret file");
                            View::Nothing(Some("its committed version cannot be stored"))
                        }
                    },
                }
            }
        };
        let decision = Decision { head: path.head.clone(), stat: shown.or(stat), view };
        self.decisions.insert(path.path.clone(), decision);
        shown.map(|stat| stat.identity)
    }

    fn may_be_shown(&self, stat: &Stat) -> bool {
        !self.registry.is_doubted(stat.identity.numbers(), stat.changed)
    }
}

impl HiddenPaths {
    /// Adds what commands see at `path`. Returns true if they see the file itself.
    fn apply(&mut self, path: &Path, view: &View, is_folder: bool) -> bool {
        let view = match view {
            View::AsItIs => return true,
            View::Nothing(None) => return false,
            View::Nothing(Some(reason)) => SecretView::Nothing(reason),
            View::Replaced(files) => {
                self.replaced.extend(files.iter().cloned());
                if is_folder { SecretView::CommittedFolder } else { SecretView::CommittedFile }
            }
        };
        self.covered.push(CoveredSecret { path: path.to_owned(), view });
        false
    }
}

/// Work trees around hidden paths, found once for each folder.
#[derive(Debug, Default)]
struct WorkTrees {
    of_folders: BTreeMap<PathBuf, Option<PathBuf>>,
    /// State of the `HEAD` of each work tree, and the common folder of its repository.
    repositories: BTreeMap<PathBuf, (HeadState, PathBuf)>,
}

impl WorkTrees {
    /// Returns the root of the innermost work tree around `path`, and the state of its `HEAD`.
    fn around(&mut self, path: &Path) -> Option<(PathBuf, HeadState)> {
        let tree = self.tree_around(path)?;
        let (head, _) = self.repositories.get(&tree)?.clone();
        Some((tree, head))
    }

    /// Returns the root of the innermost work tree around `path`, and the common folder of its
    /// repository.
    fn repository_around(&mut self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let tree = self.tree_around(path)?;
        let (_, common) = self.repositories.get(&tree)?.clone();
        Some((tree, common))
    }

    fn tree_around(&mut self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent()?;
        if !self.of_folders.contains_key(folder) {
            let found = folder.ancestors().find_map(|folder| {
                folder.join(".git").symlink_metadata().ok()?;
                Some((folder, GitRepository::of_tree(folder)?))
            });
            let tree = found.map(|(tree, repository)| {
                let head = HeadState::of(&repository);
                self.repositories.insert(tree.to_owned(), (head, repository.common));
                tree.to_owned()
            });
            self.of_folders.insert(folder.to_owned(), tree);
        }
        self.of_folders.get(folder)?.clone()
    }
}

/// Files that replace others, in a folder below the session's that is removed at the end.
#[derive(Debug, Default)]
struct Replacements {
    session_dir: PathBuf,
    folder: Option<TempDir>,
    names: BTreeSet<String>,
    bytes: usize,
}

impl Replacements {
    /// Stores `files`, unless they are stored already.
    fn of(&mut self, files: &[CommittedFile]) -> io::Result<Vec<Replacement>> {
        let folder = if let Some(folder) = self.folder.as_ref().filter(|made| made.path().is_dir())
        {
            folder.path().to_owned()
        } else {
            self.names.clear();
            DirBuilder::new().recursive(true).mode(0o700).create(&self.session_dir)?;
            let made =
                tempfile::Builder::new().prefix("committed-").tempdir_in(&self.session_dir)?;
            self.folder.insert(made).path().to_owned()
        };
        let mut replaced = Vec::new();
        for file in files {
            let mode = if file.is_executable { 0o555 } else { 0o444 };
            let name = format!("{mode:o}-{}", sha256(&file.bytes));
            let source = folder.join(&name);
            if !self.names.contains(&name) {
                self.bytes += file.bytes.len();
                if self.bytes > REPLACED_BYTES_MAX {
                    return Err(io::Error::other("there are too many bytes"));
                }
                let mut options = OpenOptions::new();
                let mut stored = options.write(true).create_new(true).mode(0o600).open(&source)?;
                stored.write_all(&file.bytes)?;
                stored.set_permissions(Permissions::from_mode(mode))?;
                self.names.insert(name);
            }
            replaced.push(Replacement { source, target: file.path.clone() });
        }
        Ok(replaced)
    }
}

impl Protection {
    /// Decides what the following commands see in place of hidden paths, from the content of the
    /// commit at each. Files that they see as they are do not stay secret under another name. Reads
    /// files, and may wait 40 ms.
    pub(crate) fn decide(&self, answers: Vec<(Undecided, Committed)>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for (path, committed) in answers {
            if let Some(shown) = inner.committed.decide(&inner.roots, &path, committed) {
                self.secret_files.forget((shown.device, shown.inode));
            }
        }
    }

    /// True if commands see the file at `path` as it is, as of the last decision about it, although
    /// it has the name of a secret.
    pub(crate) fn shows(&self, path: &Path) -> bool {
        let inner = self.lock();
        let found = examine(&inner.roots, path);
        found.is_some_and(|(stat, _)| inner.committed.is_as_committed(path, &stat))
    }

    /// As [`Protection::shows`], for the file that is open as `file` and was found at `path`.
    pub(crate) fn shows_open_file(&self, path: &Path, file: BorrowedFd<'_>) -> bool {
        let stat = Stat::of_open(file);
        stat.is_ok_and(|stat| self.lock().committed.is_as_committed(path, &stat))
    }

    /// True if commands see the registry settings of the file at `path` without its credentials, as
    /// of the last survey.
    pub(crate) fn shows_registry(&self, path: &Path) -> bool {
        let resolved = fs::canonicalize(path);
        resolved.is_ok_and(|path| self.lock().committed.registry_copies.contains(&path))
    }
}

/// Returns the root around `path`, and the path below it. `None` for a root itself.
pub(super) fn root_around<'a>(
    roots: &'a [Watched],
    path: &'a Path,
) -> Option<(&'a Root, &'a Path)> {
    let mut roots = roots.iter().map(|watched| &watched.root);
    let found = roots.find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
    found.filter(|(_, below)| !below.as_os_str().is_empty())
}

/// Returns the status of a file, or of a folder that is secret by its name, and true for a folder.
/// `None` for other paths, and outside the roots.
fn examine(roots: &[Watched], path: &Path) -> Option<(Stat, bool)> {
    let (root, below) = root_around(roots, path)?;
    let stat = root.stat(below).ok()?;
    match stat.kind {
        PlaceKind::File => Some((stat, false)),
        PlaceKind::Folder if secrets::is_secret(&below.to_string_lossy()) => Some((stat, true)),
        _ => None,
    }
}

/// Returns the content of a hidden file, and true if it is in the workspace. `None` if it is too
/// large or cannot be read. A link at the end of the path is not followed.
fn read_hidden(roots: &[Watched], path: &Path) -> Option<(bool, Vec<u8>)> {
    let inside = root_around(roots, path);
    let bytes = if let Some((root, below)) = inside {
        let (folder, name) = root.open_parent(below).ok()?;
        place::read(&folder, name, registry_settings::BYTES_MAX).ok()?
    } else {
        let folder = resolved_path::open(path.parent()?, FOLDER).ok()?;
        place::read(&folder, Path::new(path.file_name()?), registry_settings::BYTES_MAX).ok()?
    };
    Some((inside.is_some(), bytes?))
}

/// Returns the status of the file at `path` if it contains exactly `bytes`, and no other hard link
/// leads to it.
fn equal(roots: &[Watched], path: &Path, bytes: &[u8]) -> Option<Stat> {
    let (root, below) = root_around(roots, path)?;
    let (folder, name) = root.open_parent(below).ok()?;
    let before = Stat::at(&folder, name).ok()?;
    if before.kind != PlaceKind::File || before.links > 1 || before.size != bytes.len() as u64 {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if !is_timestamp_final(before.changed, now) {
        // Otherwise a change after the comparison could leave the time as it is.
        std::thread::sleep(SETTLED * 2);
    }
    let found = place::read(&folder, name, bytes.len() as u64).ok()??;
    let after = Stat::at(&folder, name).ok()?;
    (found == bytes && after == before).then_some(after)
}

#[cfg(test)]
mod tests;
