//! Walks of folders that obey ignore files: `.gitignore`, `.ignore`, `.git/info/exclude` and the
//! user's global excludes.
//!
//! Ignore files belong to the workspace and are untrusted: each may be a pipe, a link to a device,
//! or a file without an end. The crate `ignore` reads them without a limit, so it only walks and
//! parses patterns; this module finds the files and reads them within limits. A file that is not
//! regular or is too large has the same effect as a missing one; patterns beyond the other limits
//! have no effect.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use ignore::{DirEntry, Match, WalkBuilder};
use nix::libc;

/// Maximum size of an ignore file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of patterns that one walk uses. A pattern takes up to a kilobyte of memory.
const PATTERNS_MAX: usize = 50_000;

/// Number of bytes of patterns after which a walk uses no further pattern; the last one used may
/// exceed it. A byte becomes about 50 bytes of a matcher.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Maximum length of a pattern in bytes: that of a path. A longer one is skipped.
const PATTERN_LENGTH_MAX: usize = 4096;

/// Maximum size in bytes of `.git` or `commondir`, files that contain one path.
const POINTER_BYTES_MAX: u64 = 8 << 10;

/// Ignore files that a walk obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreScope {
    /// `.gitignore`, `.ignore` and `.git/info/exclude`, in the root, below it and above it. Results
    /// do not depend on the user's global git settings.
    Workspace,
    /// The files of `Workspace`, and the user's global excludes. Hidden files and folders are left
    /// out unless an ignore file names them with `!`.
    Visible,
    /// The rules of git for a repository whose top folder is the root: `.gitignore`,
    /// `.git/info/exclude` and the user's global excludes, without files above the root.
    Repository,
}

/// Creates a walk of `root` without the ignored entries, and without those for which `filter`
/// returns false. `filter` is not called for the root and for ignored entries. Links are not
/// followed.
///
/// Reads the ignore files of the root and above it at once, those of other folders during the walk.
pub fn walk(
    root: &Path,
    scope: IgnoreScope,
    filter: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let rules = WalkRules::new(root, scope);
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false)
        .follow_links(false)
        .filter_entry(move |entry| rules.includes(entry, &filter));
    walk
}

/// Ignore rules of git for the entries of one folder, for a walk that its caller carries out. Unlike
/// git, they also apply to files that are tracked.
#[derive(Debug, Clone)]
pub struct GitIgnoreRules {
    rules: Arc<FolderRules>,
    budget: Arc<PatternBudget>,
}

impl GitIgnoreRules {
    /// Rules for the entries of `root`, an absolute path without links: those of `.gitignore` and
    /// `.git/info/exclude` in it, and above it up to the top folder of the repository that contains
    /// it. The user's global excludes do not count.
    pub fn of_root(root: &Path) -> GitIgnoreRules {
        let has_git = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        let depth = root.ancestors().position(has_git).unwrap_or(0);
        let mut folders: Vec<&Path> = root.ancestors().take(depth + 1).collect();
        folders.reverse();
        let budget = PatternBudget::default();
        let nothing = [Gitignore::empty(), Gitignore::empty(), Gitignore::empty()];
        let mut rules = Arc::new(FolderRules { files: nothing, above: None });
        for folder in folders {
            rules = budget.folder_rules(folder, IgnoreScope::Repository, &rules);
        }
        GitIgnoreRules { rules, budget: Arc::new(budget) }
    }

    /// Rules for the entries of `folder`, which these rules do not ignore. To be called only for a
    /// folder that contains `.gitignore` or `.git`: others have the rules of the folder above them.
    #[must_use]
    pub fn of_folder(&self, folder: &Path) -> GitIgnoreRules {
        let rules = self.budget.folder_rules(folder, IgnoreScope::Repository, &self.rules);
        GitIgnoreRules { rules, budget: Arc::clone(&self.budget) }
    }

    /// True if the entry at the absolute path `path` in the folder of these rules is ignored.
    pub fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        self.rules.matched(path, is_dir).is_ignore()
    }
}

/// Ignore rules of git by the texts of `.gitignore` files, as they were at an earlier time. Paths are
/// relative to one root.
#[derive(Debug, Default)]
pub struct IgnoreTexts {
    folders: HashMap<PathBuf, Gitignore>,
}

impl IgnoreTexts {
    /// Rules of `.gitignore` files, each with the path of its folder. A text over the size limit of an
    /// ignore file has no effect.
    pub fn new(texts: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> IgnoreTexts {
        let budget = PatternBudget::default();
        let rules = texts.into_iter().filter(|(_, text)| text.len() as u64 <= FILE_BYTES_MAX);
        let rules = rules.map(|(folder, text)| {
            let rules = budget.text_rules(&Path::new("/").join(&folder), &text);
            (folder, rules)
        });
        IgnoreTexts { folders: rules.collect() }
    }

    /// True if the file at `path`, or a folder above it, is ignored.
    pub fn is_ignored(&self, path: &Path) -> bool {
        let mut entries = path.ancestors().filter(|entry| !entry.as_os_str().is_empty());
        entries.any(|entry| {
            let absolute = Path::new("/").join(entry);
            let rules = entry.ancestors().skip(1).filter_map(|folder| self.folders.get(folder));
            let mut found = rules.map(|rules| rules.matched(&absolute, entry != path));
            found.find(|found| !found.is_none()).is_some_and(|found| found.is_ignore())
        })
    }
}

/// Opens a regular file, or a link to one, for reading, without waiting. `None` for other kinds of
/// files, and if it cannot be opened.
pub fn open_regular(path: &Path) -> Option<File> {
    let open = |flags| {
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
        File::options().read(true).custom_flags(flags).open(path)
    };
    let file = match open(libc::O_NOFOLLOW) {
        // Opening a device can have effects, so the target of a link is examined first. It may be
        // replaced before it is opened; then it is opened, but not read.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            open(0)
        }
        opened => opened,
    };
    file.ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))
}

/// Reads a regular file. `None` if it is missing, larger than `bytes_max` bytes, or cannot be read.
fn read_bounded(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= bytes_max).then_some(bytes)
}

/// Rules of one folder, and of the folders above it that have rules.
#[derive(Debug)]
struct FolderRules {
    /// Rules of `.ignore`, `.gitignore` and `.git/info/exclude`. The first file outranks the
    /// second, and so on, wherever they are; among files of one name, the one in the deepest folder
    /// does.
    files: [Gitignore; 3],
    above: Option<Arc<FolderRules>>,
}

impl FolderRules {
    fn matched(&self, path: &Path, is_dir: bool) -> Match<()> {
        let mut found = [Match::None, Match::None, Match::None];
        let mut next = Some(self);
        while let Some(rules) = next {
            for (found, file) in found.iter_mut().zip(&rules.files) {
                if found.is_none() {
                    *found = file.matched(path, is_dir).map(|_| ());
                }
            }
            next = rules.above.as_deref();
        }
        let [first, second, third] = found;
        first.or(second).or(third)
    }
}

/// Number of walks so far.
static WALKS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Folder of the entry that this thread examined last, with its rules and the number of the
    /// walk: the entries of a folder follow each other.
    static LAST: Cell<Option<(u64, PathBuf, Arc<FolderRules>)>> = const { Cell::new(None) };
}

/// Ignore rules of one walk.
#[derive(Debug)]
struct WalkRules {
    number: u64,
    scope: IgnoreScope,
    root: PathBuf,
    /// The root without links. `None` if that is the same path, or the root cannot be resolved.
    resolved: Option<PathBuf>,
    /// Rules of each folder below the root that the walk enters, by its path.
    folders: Mutex<HashMap<PathBuf, Arc<FolderRules>>>,
    root_rules: Arc<FolderRules>,
    user_rules: Gitignore,
    budget: PatternBudget,
}

impl WalkRules {
    fn new(root: &Path, scope: IgnoreScope) -> WalkRules {
        let budget = PatternBudget::default();
        let resolved = root.canonicalize().ok();
        let top = resolved.as_deref().unwrap_or(root);
        let above = if scope == IgnoreScope::Repository { None } else { top.parent() };
        let mut above: Vec<&Path> = above.into_iter().flat_map(Path::ancestors).collect();
        above.reverse();
        let nothing = [Gitignore::empty(), Gitignore::empty(), Gitignore::empty()];
        let mut rules = Arc::new(FolderRules { files: nothing, above: None });
        for folder in above.into_iter().chain([top]) {
            rules = budget.folder_rules(folder, scope, &rules);
        }
        let user_rules = match scope {
            IgnoreScope::Workspace => Gitignore::empty(),
            IgnoreScope::Visible | IgnoreScope::Repository => budget.user_rules(),
        };
        WalkRules {
            number: WALKS.fetch_add(1, Ordering::Relaxed),
            scope,
            root: root.to_owned(),
            resolved: resolved.filter(|resolved| resolved.as_os_str() != root.as_os_str()),
            folders: Mutex::default(),
            root_rules: rules,
            user_rules,
            budget,
        }
    }

    /// Returns true if an entry is part of the walk. If it is a folder, reads its ignore files and
    /// stores its rules.
    fn includes(&self, entry: &DirEntry, filter: &impl Fn(&DirEntry) -> bool) -> bool {
        if entry.depth() == 0 {
            return true;
        }
        let Some(folder) = entry.path().parent() else { return true };
        let last = LAST.take().filter(|(walk, known, _)| {
            *walk == self.number && known.as_os_str() == folder.as_os_str()
        });
        let last = last.unwrap_or_else(|| (self.number, folder.to_owned(), self.rules_of(folder)));
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let is_included = !self.is_ignored(entry, is_dir, &last.2) && filter(entry);
        if is_included && is_dir {
            let rules = self.budget.folder_rules(&self.resolved(entry.path()), self.scope, &last.2);
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            folders.insert(entry.path().to_owned(), rules);
        }
        LAST.set(Some(last));
        is_included
    }

    fn rules_of(&self, folder: &Path) -> Arc<FolderRules> {
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(folders.get(folder).unwrap_or(&self.root_rules))
    }

    fn is_ignored(&self, entry: &DirEntry, is_dir: bool, rules: &FolderRules) -> bool {
        let path = self.resolved(entry.path());
        let user = || self.user_rules.matched(&path, is_dir).map(|_| ());
        let found = rules.matched(&path, is_dir);
        let found = if found.is_none() { user() } else { found };
        let is_hidden = || entry.file_name().as_bytes().starts_with(b".");
        found.is_ignore() || (found.is_none() && self.scope == IgnoreScope::Visible && is_hidden())
    }

    /// Path of an entry below the resolved root. `path` itself if the root has no other path.
    fn resolved<'a>(&self, path: &'a Path) -> std::borrow::Cow<'a, Path> {
        let below = self.resolved.as_ref().zip(path.strip_prefix(&self.root).ok());
        below.map_or(path.into(), |(resolved, below)| resolved.join(below).into())
    }
}

impl Drop for WalkRules {
    fn drop(&mut self) {
        // A thread that walks seldom must not hold the rules of its last walk.
        LAST.set(LAST.take().filter(|(walk, ..)| *walk != self.number));
    }
}

/// Number and total length of the patterns that a walk has read, for its limits. Folders are many,
/// so a limit for each ignore file is not enough.
#[derive(Debug, Default)]
struct PatternBudget {
    patterns: AtomicUsize,
    bytes: AtomicUsize,
}

impl PatternBudget {
    /// Reads the ignore files of a folder. Returns its rules, or `above`, the rules of the folder
    /// above it, if it has none. Makes at most three system calls for a folder without ignore files
    /// and without `.git`.
    fn folder_rules(
        &self,
        folder: &Path,
        scope: IgnoreScope,
        above: &Arc<FolderRules>,
    ) -> Arc<FolderRules> {
        let dot_ignore = match scope {
            IgnoreScope::Repository => Gitignore::empty(),
            IgnoreScope::Workspace | IgnoreScope::Visible => {
                self.file_rules(folder, &folder.join(".ignore"))
            }
        };
        let git_ignore = self.file_rules(folder, &folder.join(".gitignore"));
        let files = [dot_ignore, git_ignore, self.exclude_rules(folder)];
        if files.iter().all(Gitignore::is_empty) {
            return Arc::clone(above);
        }
        Arc::new(FolderRules { files, above: Some(Arc::clone(above)) })
    }

    /// Reads `.git/info/exclude` of a folder. If its `.git` is the file of a linked worktree, reads
    /// that of the main repository. Empty if there is none, and for submodules.
    fn exclude_rules(&self, folder: &Path) -> Gitignore {
        let git = folder.join(".git");
        let exclude = git.join("info/exclude");
        let Err(error) = exclude.symlink_metadata() else {
            return self.file_rules(folder, &exclude);
        };
        if error.kind() != std::io::ErrorKind::NotADirectory {
            return Gitignore::empty();
        }
        let pointed = pointed_path(&git, b"gitdir: ").and_then(|to| {
            let git = folder.join(to);
            let common = git.join(pointed_path(&git.join("commondir"), b"")?);
            Some(self.file_rules(folder, &common.join("info/exclude")))
        });
        pointed.unwrap_or_else(Gitignore::empty)
    }

    /// Reads the global excludes of the user, with patterns relative to the working directory of
    /// posse. The settings of the user are not part of a workspace.
    fn user_rules(&self) -> Gitignore {
        let file = gitconfig_excludes_path().zip(std::env::current_dir().ok());
        file.map_or_else(Gitignore::empty, |(file, folder)| self.file_rules(&folder, &file))
    }

    /// Reads an ignore file whose patterns are relative to `folder`. Empty if it cannot be read or
    /// is too large. Lines beyond a limit of the walk, or after one that is not UTF-8, are left
    /// out.
    fn file_rules(&self, folder: &Path, file: &Path) -> Gitignore {
        let bytes = read_bounded(file, FILE_BYTES_MAX);
        bytes.map_or_else(Gitignore::empty, |bytes| self.text_rules(folder, &bytes))
    }

    /// The rules of the text of an ignore file, like [`PatternBudget::file_rules`].
    fn text_rules(&self, folder: &Path, bytes: &[u8]) -> Gitignore {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let mut builder = GitignoreBuilder::new(folder);
        for line in bytes.split(|byte| *byte == b'\n') {
            // As in other programs, the lines before the first one that is not UTF-8 apply.
            let Ok(line) = str::from_utf8(line) else { break };
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.is_empty() || line.starts_with('#') || line.len() > PATTERN_LENGTH_MAX {
                continue;
            }
            let patterns = self.patterns.fetch_add(1, Ordering::Relaxed);
            let bytes = self.bytes.fetch_add(line.len(), Ordering::Relaxed);
            if patterns >= PATTERNS_MAX || bytes >= PATTERN_BYTES_MAX {
                break;
            }
            // A pattern that is not valid has no effect.
            builder.add_line(None, line).ok();
        }
        builder.build().unwrap_or_else(|_| Gitignore::empty())
    }
}

/// Returns the path in the first line of a file, after `prefix`. `None` if the file is not regular,
/// is too large, or has no such line.
fn pointed_path(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    let text = read_bounded(file, POINTER_BYTES_MAX)?;
    let line = text.split(|byte| *byte == b'\n').next()?.strip_prefix(prefix)?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    (!line.is_empty()).then(|| OsStr::from_bytes(line).into())
}

#[cfg(test)]
mod tests;
