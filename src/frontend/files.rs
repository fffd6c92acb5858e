//! File name completion: a folder is walked, and its file names are matched with the typed text, on
//! a separate thread, so that no key waits for a disk.
//!
//! Ignored and hidden files are left out, see [`IgnoreScope::Visible`]. Symbolic links are not
//! followed.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use posse_base::ignore_files::{self, IgnoreScope};

use crate::fuzzy;

/// Maximum number of names that one walk collects.
const NAMES_MAX: usize = 100_000;

/// Number of bytes of all collected names together at which a walk ends. The last name may exceed
/// it.
const BYTES_MAX: usize = 16 << 20;

/// Maximum duration of a walk; the names found by then are used.
const WALK_MAX: Duration = Duration::from_secs(5);

/// Age of the collected names after which the next query walks the folder again.
const FRESH: Duration = Duration::from_secs(10);

/// Maximum number of names in an answer.
const ANSWERS_MAX: usize = 50;

/// Finds names of files and folders below a folder on a thread of its own. Dropping the `Finder`
/// ends the thread, without waiting for it.
#[derive(Debug)]
pub struct Finder {
    queries: Sender<String>,
    stopped: Arc<AtomicBool>,
}

impl Finder {
    /// Starts the thread for names below `root`. `answer` is called on that thread with the query
    /// and at most 50 names, best match first. A query that is followed by another one may stay
    /// unanswered. Fails if the thread cannot be started.
    pub fn start(
        root: PathBuf,
        answer: impl Fn(String, Vec<String>) + Send + 'static,
    ) -> std::io::Result<Finder> {
        let (queries, asked) = channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let work = move || serve(&root, &asked, &stop, &answer);
        std::thread::Builder::new().name("files".to_owned()).spawn(work)?;
        Ok(Finder { queries, stopped })
    }

    /// Sends a query to the thread. The answer goes to the callback of [`Finder::start`].
    pub fn find(&self, query: &str) {
        // Fails only if the thread has ended; then there is no answer.
        self.queries.send(query.to_owned()).ok();
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

fn serve(
    root: &Path,
    asked: &Receiver<String>,
    stop: &AtomicBool,
    answer: &impl Fn(String, Vec<String>),
) {
    let mut names: Vec<String> = Vec::new();
    let mut walked: Option<Instant> = None;
    while let Ok(mut query) = asked.recv() {
        if walked.is_none_or(|at| at.elapsed() >= FRESH) {
            names = walk(root, stop);
            walked = Some(Instant::now());
        }
        // Only the latest query matters.
        while let Ok(later) = asked.try_recv() {
            query = later;
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let found = best_matches(&query, &names, ANSWERS_MAX);
        answer(query, found);
    }
}

/// Collects the names of files and folders, relative to `root`; names of folders end with a slash.
/// Names with a newline and names that are not UTF-8 are left out. Ends early at a maximum or when
/// `stop` is set, with the names found so far.
fn walk(root: &Path, stop: &AtomicBool) -> Vec<String> {
    let until = Instant::now() + WALK_MAX;
    let mut names = Vec::new();
    let mut bytes = 0;
    let walk = ignore_files::walk(root, IgnoreScope::Visible, |_| true).build();
    for entry in walk.flatten() {
        let over = names.len() >= NAMES_MAX || bytes >= BYTES_MAX || Instant::now() >= until;
        if over || stop.load(Ordering::Relaxed) {
            break;
        }
        // Names that are not UTF-8 cannot be typed.
        let name = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
        let Some(name) = name.filter(|name| !name.is_empty() && !name.contains('\n')) else {
            continue;
        };
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        bytes += name.len();
        names.push(if is_dir { format!("{name}/") } else { name.to_owned() });
    }
    names
}

/// Returns at most `count_max` of the names that match the query, best match first.
fn best_matches(query: &str, names: &[String], count_max: usize) -> Vec<String> {
    let query = query.to_lowercase();
    let scored = names.iter().filter_map(|name| Some((score(&query, name)?, name)));
    let mut scored: Vec<(u32, &String)> = scored.collect();
    let order = |(score, name): &(u32, &String)| (Reverse(*score), name.len());
    scored.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(count_max).map(|(_, name)| name.clone()).collect()
}

/// Score of a name for a query, higher is better; `None` if the name does not match. Case is
/// ignored; `query` is in lower case. Every name matches the empty query.
fn score(query: &str, name: &str) -> Option<u32> {
    let lower = name.to_lowercase();
    let depth = u32::try_from(lower.trim_end_matches('/').matches('/').count()).unwrap_or(u32::MAX);
    let shallow = 100_u32.saturating_sub(depth);
    if query.is_empty() {
        return Some(shallow);
    }
    let last = lower.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let kind = if last == query || lower == query {
        5000
    } else if last.starts_with(query) || lower.starts_with(query) {
        4000
    } else if last.contains(query) {
        3000
    } else if lower.contains(query) {
        2000
    } else {
        return Some(subsequence_score(query, &lower)? + shallow);
    };
    Some(kind + shallow)
}

/// Score of a name that contains the characters of `query` in the same order, with or without gaps;
/// fewer separate pieces score higher. `None` if the name does not contain them.
fn subsequence_score(query: &str, name: &str) -> Option<u32> {
    Some(1000_u32.saturating_sub(fuzzy::pieces(query, name)? * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_match_comes_first() {
        let names = [
            "src/tui/app.rs",
            "src/app/main.rs",
            "docs/apply.md",
            "src/",
            "README.md",
            "src/a/p/p.rs",
        ]
        .map(str::to_owned);
        let table: [(&str, &[&str]); 6] = [
            ("app.rs", &["src/tui/app.rs"]),
            ("APP", &["docs/apply.md", "src/tui/app.rs", "src/app/main.rs", "src/a/p/p.rs"]),
            ("src/app", &["src/app/main.rs", "src/tui/app.rs", "src/a/p/p.rs"]),
            ("rdm", &["README.md"]),
            ("src", &["src/"]),
            ("zzz", &[]),
        ];
        for (query, expected) in table {
            let found = best_matches(query, &names, expected.len().max(1));
            assert_eq!(found, expected, "{query}");
        }
        assert_eq!(best_matches("", &names, 2), ["src/", "README.md"], "shallow paths come first");
    }

    #[test]
    fn ignored_and_hidden_files_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        for name in ["src/a.rs", "built/b.o", ".secret", "kept.log"] {
            write(name);
        }
        std::fs::write(dir.path().join(".gitignore"), "built\n").unwrap();
        let (tx, rx) = channel();
        let finder = Finder::start(dir.path().to_owned(), move |query, names| {
            tx.send((query, names)).ok();
        });
        let finder = finder.unwrap();
        finder.find("");
        let (query, names) = rx.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((query.as_str(), names.len()), ("", 3));
        assert_eq!(names, ["src/", "kept.log", "src/a.rs"]);
        drop(finder);
        assert!(rx.recv_timeout(Duration::from_secs(20)).is_err(), "the thread has ended");
    }

    #[test]
    fn hostile_ignore_files_have_no_effect() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["device", "pipe", "large"] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("a.log"), "").unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", path("device/.gitignore")).unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&path("pipe/.ignore"), mode).unwrap();
        std::fs::File::create(path("large/.gitignore")).unwrap().set_len(200 << 30).unwrap();
        let mut names = walk(dir.path(), &AtomicBool::new(false));
        names.sort();
        let expected = ["device/", "device/a.log", "large/", "large/a.log", "pipe/", "pipe/a.log"];
        assert_eq!(names, expected);
    }
}
