//! Detects hard links of secret files. A hard link gives a secret file a harmless name, so a file
//! with several names is compared, by device and inode number, with the secret files of the
//! workspace.
//!
//! The workspace is scanned only when a file with several names is opened. If the scan exceeds its
//! limits, the result is unknown, and the file is not opened.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use posse_base::secrets::is_secret;

use crate::workspace::FileStatus;

/// Time for which the result of a scan is cached.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of names that one scan reads.
const NAMES_MAX: usize = 500_000;

/// Time limit of a scan, which blocks other work.
const TIME_MAX: Duration = Duration::from_millis(400);

/// Folders that a scan skips. They contain generated files, and often as many hard links of a file
/// as there are projects.
const SKIPPED: [&str; 2] = ["node_modules", ".git"];

/// Detector of hard links of secret files below the workspace roots. Caches the secret files that
/// have more than one name.
#[derive(Debug)]
pub struct SecretLinks {
    roots: Vec<PathBuf>,
    known: Mutex<Option<LinkCache>>,
}

#[derive(Debug)]
struct LinkCache {
    since: Instant,
    secrets: HashSet<(u64, u64)>,
    complete: bool,
}

/// Result of the comparison of a file with the secret files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    /// The file has only one name, or is not a secret file of the workspace.
    Open,
    /// One of the names of the file is that of a secret.
    Secret,
    /// Not known, because the scan reached a limit.
    Unknown,
}

impl SecretLinks {
    pub(crate) fn new(roots: Vec<PathBuf>) -> SecretLinks {
        SecretLinks { roots, known: Mutex::default() }
    }

    /// Classifies the file with the metadata `entry`. Scans the workspace if the file has several
    /// names and no recent result is cached.
    pub(crate) fn judge(&self, entry: &FileStatus) -> Linked {
        if entry.links < 2 {
            return Linked::Open;
        }
        let mut cache = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        cache.take_if(|known| known.since.elapsed() > FRESH);
        let known = cache.get_or_insert_with(|| survey(&self.roots, NAMES_MAX));
        match (known.secrets.contains(&(entry.dev, entry.ino)), known.complete) {
            (true, _) => Linked::Secret,
            (false, true) => Linked::Open,
            (false, false) => Linked::Unknown,
        }
    }
}

/// Collects the secret files with several hard links below `roots`, without `.git` and
/// `node_modules`. The result is incomplete after `names_max` names or at the time limit.
fn survey(roots: &[PathBuf], names_max: usize) -> LinkCache {
    let mut survey = Survey {
        begin: Instant::now(),
        names: 0,
        names_max,
        secrets: HashSet::new(),
        text: String::new(),
    };
    let complete = roots.iter().all(|root| survey.scan_below(root));
    LinkCache { since: survey.begin, secrets: survey.secrets, complete }
}

struct Survey {
    begin: Instant,
    names: usize,
    names_max: usize,
    secrets: HashSet<(u64, u64)>,
    /// Buffer that is reused for every name.
    text: String,
}

impl Survey {
    /// Searches all folders below `root`. Returns false if a limit was reached.
    fn scan_below(&mut self, root: &Path) -> bool {
        // Path; name, unless it is a root; true if everything in it is secret.
        let mut open = vec![(root.to_owned(), String::new(), false)];
        while let Some((folder, above, all_secret)) = open.pop() {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten() {
                self.names += 1;
                let is_late = self.names.is_multiple_of(1024) && self.begin.elapsed() > TIME_MAX;
                if self.names > self.names_max || is_late {
                    return false;
                }
                let Ok(kind) = entry.file_type() else { continue };
                let name = entry.file_name();
                if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                    let name = name.to_string_lossy().into_owned();
                    // Classification of a file in it by the folder alone.
                    let is_secret = all_secret || self.is_secret(&above, &name, "/x");
                    open.push((entry.path(), name, is_secret));
                } else if kind.is_file()
                    && (all_secret || self.is_secret(&above, &name.to_string_lossy(), ""))
                    && let Ok(about) = entry.metadata()
                    && about.nlink() > 1
                {
                    self.secrets.insert((about.dev(), about.ino()));
                }
            }
        }
        true
    }

    /// Returns true if the path `above/name`, with `below` appended, is that of a secret.
    fn is_secret(&mut self, above: &str, name: &str, below: &str) -> bool {
        self.text.clear();
        for part in [above, "/", name, below] {
            self.text.push_str(part);
        }
        is_secret(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;

    use super::*;

    fn entry(path: &Path) -> FileStatus {
        FileStatus::of(OwnedFd::from(fs::File::open(path).unwrap())).unwrap()
    }

    #[test]
    fn secret_is_recognised_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("deep/.aws")).unwrap();
        fs::write(at(".env"), "KEY=1").unwrap();
        fs::write(at("deep/.aws/config"), "KEY=2").unwrap();
        fs::write(at("open"), "").unwrap();
        fs::hard_link(at(".env"), at("notes.txt")).unwrap();
        fs::hard_link(at("deep/.aws/config"), at("other.txt")).unwrap();
        fs::hard_link(at("open"), at("open too")).unwrap();
        fs::create_dir_all(at(".env.d/.env")).unwrap();
        fs::hard_link(at("open"), at(".env.d/.env/is a folder here")).unwrap();
        fs::create_dir_all(at("home/.config/gcloud/a")).unwrap();
        fs::write(at("home/.config/gcloud/a/b"), "KEY=3").unwrap();
        fs::hard_link(at("home/.config/gcloud/a/b"), at("third.txt")).unwrap();
        let links = SecretLinks::new(vec![dir.path().to_owned()]);
        assert_eq!(links.judge(&entry(&at("notes.txt"))), Linked::Secret);
        assert_eq!(links.judge(&entry(&at("other.txt"))), Linked::Secret);
        assert_eq!(links.judge(&entry(&at("third.txt"))), Linked::Secret);
        assert_eq!(links.judge(&entry(&at("open"))), Linked::Open);
        assert!(!survey(&[dir.path().to_owned()], 3).complete);
    }
}
