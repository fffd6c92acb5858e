//! Detects secret files under other names. A hard link gives a secret file a harmless name, so a
//! file with several names is compared, by device and inode number, with the secret files of the
//! workspace. A renamed secret is compared with the registry of the secrets that scans for commands
//! have found.
//!
//! The workspace is scanned only when a file with several names is opened. If the scan exceeds its
//! limits, the result is unknown, and the file is not opened.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::openat;
use nix::sys::stat::Mode;
use posse_base::secrets::files::SecretFiles;
use posse_base::secrets::is_secret;
use posse_base::secrets::readable::ReadableSecrets;

use crate::workspace::FileStatus;
use crate::workspace::walk::FOLDER;

/// Time for which the result of a scan is cached.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of names that one scan reads.
const NAMES_MAX: usize = 500_000;

/// Time limit of a scan, which blocks other work.
const TIME_MAX: Duration = Duration::from_millis(400);

/// Folders that a scan skips. They contain generated files, and often as many hard links of a file
/// as there are projects.
const SKIPPED: [&str; 2] = ["node_modules", ".git"];

/// Maximum number of folders above a file that are compared with secret folders. A file below more
/// of them counts as secret.
const FOLDERS_MAX: usize = 4096;

/// Detector of secret files below the workspace roots that have other names. Caches the secret
/// files that have more than one name.
#[derive(Debug)]
pub struct SecretLinks {
    roots: Vec<PathBuf>,
    /// Secrets that scans for commands have found.
    registered: SecretFiles,
    /// Secrets that may be read.
    readable: ReadableSecrets,
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
    /// The file is not registered as a secret, and if it has several names, none of them is that of
    /// a secret. A single name is not examined.
    Open,
    /// One of the names of the file in the workspace is that of a secret, or the file was
    /// registered as a secret before it was renamed.
    Secret,
    /// The file has several names, and the scan reached a limit before it found one that is that of
    /// a secret.
    Unknown,
}

impl SecretLinks {
    pub(crate) fn new(
        roots: Vec<PathBuf>,
        registered: SecretFiles,
        readable: ReadableSecrets,
    ) -> SecretLinks {
        SecretLinks { roots, registered, readable, known: Mutex::default() }
    }

    /// True if folders are registered as secrets, so that [`SecretLinks::is_in_secret_folder`] has
    /// to be asked.
    pub(crate) fn has_secret_folders(&self) -> bool {
        self.registered.has_folders()
    }

    /// True if `folder` or a folder above it is registered as a secret, under any name, and also if
    /// that cannot be determined. Folders above one that the user may not open are not examined.
    /// Commands may rename the folders meanwhile.
    pub(crate) fn is_in_secret_folder(&self, folder: &OwnedFd) -> bool {
        let mut above: Option<OwnedFd> = None;
        let mut last = None;
        for _ in 0..FOLDERS_MAX {
            let here = above.as_ref().unwrap_or(folder);
            let Ok(status) = FileStatus::of(here) else { return true };
            if self.is_registered(&status, here) {
                return true;
            }
            // `..` of the root of all folders is this folder itself.
            if last.replace(status.identity()) == Some(status.identity()) {
                return false;
            }
            // Above a folder that is closed to the user, nothing was reached by its name.
            let Ok(next) = openat(here, "..", FOLDER, Mode::empty()) else { return false };
            above = Some(next);
        }
        true
    }

    /// True if the file `opened`, with status `entry`, is registered as a secret, or may be and its
    /// metadata cannot be read.
    fn is_registered(&self, entry: &FileStatus, opened: &OwnedFd) -> bool {
        let metadata = || metadata(opened).is_none_or(|found| self.registered.contains(&found));
        self.registered.may_contain((entry.dev, entry.ino)) && metadata()
    }

    /// True if settings let the secret at `path` be read.
    pub(crate) fn is_readable(&self, path: &Path) -> bool {
        self.readable.contains(path)
    }

    /// True if settings let the secret at `path` be read, but the file `opened` there is registered as
    /// a secret that could not be read under its earlier name.
    pub(crate) fn is_withheld(&self, path: &Path, opened: &OwnedFd) -> bool {
        self.readable.contains(path)
            && metadata(opened).is_none_or(|found| self.registered.is_withheld(&found))
    }

    /// Classifies the file `opened`, with status `entry`. Scans the workspace, which blocks for at
    /// most about `TIME_MAX`, if the file has several names and no recent result is cached.
    pub(crate) fn judge(&self, entry: &FileStatus, opened: &OwnedFd) -> Linked {
        if self.is_registered(entry, opened) {
            return Linked::Secret;
        }
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

fn metadata(opened: &OwnedFd) -> Option<Metadata> {
    File::from(opened.try_clone().ok()?).metadata().ok()
}

/// Collects the secret files with several hard links below `roots`, without `.git`, `node_modules`
/// and unreadable folders. The result is incomplete after `names_max` names or at the time limit.
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

    use super::*;

    fn judged(links: &SecretLinks, path: &Path) -> Linked {
        let opened = OwnedFd::from(File::open(path).unwrap());
        links.judge(&FileStatus::of(&opened).unwrap(), &opened)
    }

    fn register(registry: &SecretFiles, path: &Path) {
        let metadata = fs::metadata(path).unwrap();
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        registry.register((metadata.dev(), metadata.ino()), changed, 0, || File::open(path).ok());
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
        fs::create_dir_all(at("deep/.env/a")).unwrap();
        fs::write(at("deep/.env/a/b"), "KEY=4").unwrap();
        fs::hard_link(at("deep/.env/a/b"), at("fourth.txt")).unwrap();
        fs::create_dir_all(at("home/.config/gcloud/a")).unwrap();
        fs::write(at("home/.config/gcloud/a/b"), "KEY=3").unwrap();
        fs::hard_link(at("home/.config/gcloud/a/b"), at("third.txt")).unwrap();
        let links = SecretLinks::new(
            vec![dir.path().to_owned()],
            SecretFiles::default(),
            ReadableSecrets::default(),
        );
        assert_eq!(judged(&links, &at("notes.txt")), Linked::Secret);
        assert_eq!(judged(&links, &at("other.txt")), Linked::Secret);
        assert_eq!(judged(&links, &at("third.txt")), Linked::Secret);
        assert_eq!(judged(&links, &at("fourth.txt")), Linked::Secret);
        assert_eq!(judged(&links, &at("open")), Linked::Open);
        assert!(!survey(&[dir.path().to_owned()], 3).complete);
    }

    #[test]
    fn registered_secret_is_recognised_after_it_was_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at(".docker")).unwrap();
        fs::create_dir_all(at(".aws/sso/cache")).unwrap();
        fs::create_dir_all(at("src")).unwrap();
        for file in [".docker/config.json", ".docker/open", ".aws/sso/cache/x", "src/open"] {
            fs::write(at(file), "x").unwrap();
        }
        let registry = SecretFiles::default();
        let links = SecretLinks::new(
            vec![dir.path().to_owned()],
            registry.clone(),
            ReadableSecrets::default(),
        );
        register(&registry, &at(".docker/config.json"));
        assert!(!links.has_secret_folders());
        register(&registry, &at(".aws"));
        assert!(links.has_secret_folders());
        fs::rename(at(".docker"), at("dk")).unwrap();
        fs::rename(at(".aws"), at("src/a")).unwrap();
        assert_eq!(judged(&links, &at("dk/config.json")), Linked::Secret);
        assert_eq!(judged(&links, &at("dk/open")), Linked::Open);
        assert_eq!(judged(&links, &at("src/open")), Linked::Open);
        let is_secret =
            |path: &str| links.is_in_secret_folder(&OwnedFd::from(File::open(at(path)).unwrap()));
        assert!(is_secret("src/a/sso/cache") && is_secret("src/a"));
        assert!(!is_secret("src") && !is_secret("dk"));
    }
}
