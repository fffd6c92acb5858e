//! Lists the files below a folder that are worth searching: without ignored, generated and vendored
//! files.
//!
//! Links are never followed. The walk ends when its [`Stop`] is due.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ignore::{DirEntry, WalkBuilder, WalkState};
use posse_base::ignore_files::{self, IgnoreScope};
use posse_base::threads::can_start;

use crate::blocking;

/// Time limit of a search.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(20);

/// Names of the folders that are skipped: version control, and generated or vendored files.
static SKIPPED: LazyLock<HashSet<&'static OsStr>> = LazyLock::new(|| {
    [
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "node_modules",
        "bower_components",
        "target",
        "dist",
        "__pycache__",
        ".venv",
        ".tox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".gradle",
        ".next",
        ".nuxt",
        ".turbo",
        ".parcel-cache",
    ]
    .map(OsStr::new)
    .into()
});

/// Name of the file that marks a folder with build output or a cache. Its content is not checked.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// Number of files from which on several threads are used, if the machine has them; they begin the
/// listing again.
const SMALL: usize = 1000;

/// Number of files at which a listing ends. With several threads, a few more may be listed.
const FILES_MAX: usize = 500_000;

/// Number of entries after which a thread reads the clock: on some machines this is a system call.
const CLOCK_EVERY: u32 = 16;

/// Maximum number of threads of a listing or search.
const THREADS_MAX: usize = 8;

/// Stop condition of a search: cancelled or timed out.
#[derive(Debug, Clone)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    /// Time on the monotonic clock at which the search must stop; `None` without a time limit.
    deadline: Option<Instant>,
}

/// Guard of a [`Stop`], which cancels it when dropped.
#[derive(Debug)]
pub struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// Creates a stop condition that is due after `time`, or when the guard is dropped.
    /// `Duration::MAX` is no time limit.
    pub fn after(time: Duration) -> (Stop, StopOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = StopOnDrop(Arc::clone(&cancelled));
        (Stop { cancelled, deadline: Instant::now().checked_add(time) }, guard)
    }

    /// Returns true if the guard was dropped. Cheaper than `is_due`, which reads the clock.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns true if the guard was dropped or the time limit has passed.
    pub fn is_due(&self) -> bool {
        self.is_cancelled() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Runs a search on a blocking thread, with the time limit `TIME_MAX`. At the limit the search ends
/// itself with a partial result. Dropping the future stops the search.
pub(crate) async fn search<T: Send + 'static>(work: impl FnOnce(&Stop) -> T + Send + 'static) -> T {
    let (stop, _guard) = Stop::after(TIME_MAX);
    blocking(move || work(&stop)).await
}

/// Result of listing the files below a folder.
#[derive(Debug, Default)]
pub(crate) struct FileListing {
    /// Paths relative to the folder, sorted.
    pub(crate) files: Vec<PathBuf>,
    /// True if the list is incomplete, because a limit was reached or the listing was stopped.
    pub(crate) is_cut: bool,
}

/// Lists the files below `folder`, which is absolute and resolved, until `stop` is due.
pub(crate) fn of(folder: &Path, stop: &Stop) -> FileListing {
    let mut listing = FileListing::default();
    let mut is_alone = threads() == 1;
    for entry in walk(folder).build() {
        let files = listing.files.len();
        let is_due = stop.is_due();
        if !is_due && files >= SMALL && !is_alone {
            if can_start(threads()) {
                listing = of_many(folder, stop);
                break;
            }
            is_alone = true;
        }
        if is_due || files >= FILES_MAX {
            listing.is_cut = true;
            break;
        }
        let entry = entry.ok();
        let file = entry.as_ref().and_then(|entry| relative(entry, folder));
        listing.files.extend(file.map(Path::to_owned));
    }
    listing.files.sort_by_cached_key(|path| sort_key(path));
    listing
}

/// Converts a path to bytes that are ordered as `Path` is, component by component: the content of a
/// folder comes before names that begin with the folder's name. Comparing bytes is many times
/// faster.
fn sort_key(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|byte| if *byte == b'/' { 0 } else { *byte }).collect()
}

/// Number of threads that a listing or search uses.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Lists the files below `folder` with several threads until `stop` is due. Unlike that of [`of`],
/// the result is not sorted.
fn of_many(folder: &Path, stop: &Stop) -> FileListing {
    let all = Mutex::default();
    let is_cut = AtomicBool::new(false);
    walk(folder).threads(threads()).build_parallel().run(|| {
        let mut batch = Batch { files: Vec::new(), all: &all };
        let is_cut = &is_cut;
        let mut entries = 0_u32;
        Box::new(move |entry| {
            entries = entries.wrapping_add(1);
            let is_due = entries.is_multiple_of(CLOCK_EVERY) && stop.is_due();
            let is_full =
                |entry: &DirEntry| relative(entry, folder).is_some_and(|path| batch.add(path));
            if stop.is_cancelled() || is_due || entry.as_ref().is_ok_and(is_full) {
                is_cut.store(true, Ordering::Relaxed);
                return WalkState::Quit;
            }
            WalkState::Continue
        })
    });
    let files = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    FileListing { files, is_cut: is_cut.into_inner() }
}

/// Files that one thread has found and not yet moved to the common list `all`.
struct Batch<'a> {
    files: Vec<PathBuf>,
    all: &'a Mutex<Vec<PathBuf>>,
}

impl Batch<'_> {
    /// Adds a file. Moves every 256 files to the common list, and then returns true if that list
    /// has at least `FILES_MAX` files.
    fn add(&mut self, path: &Path) -> bool {
        self.files.push(path.to_owned());
        self.files.len() >= 256 && self.hand_over()
    }

    /// Moves the files to the common list. Returns true if that list has at least `FILES_MAX`
    /// files.
    fn hand_over(&mut self) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut self.files);
        all.len() >= FILES_MAX
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}

fn walk(folder: &Path) -> WalkBuilder {
    ignore_files::walk(folder, IgnoreScope::Workspace, |entry| !is_skipped(entry))
}

fn is_skipped(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
        && (SKIPPED.contains(entry.file_name()) || entry.path().join(CACHE_TAG).exists())
}

/// Path of an entry relative to `folder`, the folder of the walk. `None` if the entry is not a
/// regular file.
fn relative<'a>(entry: &'a DirEntry, folder: &Path) -> Option<&'a Path> {
    if !entry.file_type()?.is_file() {
        return None;
    }
    let below = entry.path().as_os_str().as_bytes().get(folder.as_os_str().len()..)?;
    let below = below.strip_prefix(b"/").unwrap_or(below);
    (!below.is_empty()).then(|| Path::new(OsStr::from_bytes(below)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates a folder with these files; a name that ends in `/` is a folder.
    pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn list(folder: &Path) -> Vec<String> {
        let (stop, _guard) = Stop::after(Duration::from_secs(20));
        let listing = of(&folder.canonicalize().unwrap(), &stop);
        assert!(!listing.is_cut);
        listing.files.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn ignored_built_and_vendored_files_are_omitted() {
        let folder = folder(&[
            ("a.rs", ""),
            (".github/ci.yml", ""),
            (".gitignore", "*.log\n/secret\n"),
            ("x.log", ""),
            ("secret/a", ""),
            ("sub/secret/a", ""),
            ("sub/.gitignore", "!y.log\n"),
            ("sub/y.log", ""),
            (".git/config", ""),
            ("node_modules/m/i.js", ""),
            ("target/a", ""),
            ("out/CACHEDIR.TAG", ""),
            ("out/a", ""),
            ("build/a", ""),
        ]);
        assert_eq!(
            list(folder.path()),
            [
                ".github/ci.yml",
                ".gitignore",
                "a.rs",
                "build/a",
                "sub/.gitignore",
                "sub/secret/a",
                "sub/y.log"
            ]
        );
        // An explicitly named folder is listed.
        assert_eq!(list(&folder.path().join("node_modules")), ["m/i.js"]);
    }

    #[test]
    fn hostile_ignore_files_neither_delay_nor_change_a_listing() {
        let folder = folder(&[("a.rs", ""), ("sub/b.rs", "")]);
        crate::testing::put_hostile_ignore_files(folder.path());
        let listed = list(folder.path());
        assert!(["a.rs", "sub/b.rs"].iter().all(|name| listed.contains(&(*name).to_owned())));
    }

    #[test]
    fn does_not_follow_links() {
        let outside = folder(&[("o.rs", "")]);
        let inside = folder(&[("i.rs", "")]);
        std::os::unix::fs::symlink(outside.path(), inside.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("o.rs"), inside.path().join("l.rs"))
            .unwrap();
        std::os::unix::fs::symlink(".", inside.path().join("loop")).unwrap();
        assert_eq!(list(inside.path()), ["i.rs"]);
    }

    #[test]
    fn parallel_listing_equals_serial_listing() {
        let folder = folder(&[(".gitignore", "skip*\n")]);
        let mut expected = vec![".gitignore".to_owned()];
        for number in 0..2500 {
            let name = format!("d{}/f{number:04}", number % 7);
            fs::create_dir_all(folder.path().join(&name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(&name), "").unwrap();
            fs::write(folder.path().join(format!("d{}/skip{number}", number % 7)), "").unwrap();
            expected.push(name);
        }
        expected.sort();
        assert_eq!(list(folder.path()), expected);
    }

    #[test]
    fn sort_key_orders_like_path() {
        let names = ["a", "a.rs", "a/b", "a/b/c", "a/b.c", "a-b", "ab", "b", "é/x", "é.x"];
        for a in names.map(Path::new) {
            for b in names.map(Path::new) {
                assert_eq!(sort_key(a).cmp(&sort_key(b)), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn listing_stops_when_cancelled() {
        let folder = folder(&[("a", ""), ("b", "")]);
        let (stop, guard) = Stop::after(Duration::from_secs(20));
        drop(guard);
        assert!(of(folder.path(), &stop).is_cut);
    }
}
