//! Creates two copies of the user's working tree: the worktree, and the base with which it is
//! compared.
//!
//! Bytes are copied unchanged, without git filters. Secrets are not copied: neither under their own
//! names, nor as hard links, nor if a scan has registered them before they were renamed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use posse_base::failure::printable;
use posse_base::resolved_path;
use posse_base::secrets::files::SecretFiles;
use posse_base::secrets::is_secret;
use posse_base::secrets::readable::ReadableSecrets;
use serde::{Deserialize, Serialize};

use crate::listing::Stop;
use crate::workspace::links::{Linked, SecretLinks};
use crate::workspace::{FOLDER, FileKind, FileStatus, open_beneath};
use crate::worktree::changes::{entry_at, open_in};
use crate::worktree::git::Repository;
use crate::worktree::{TREE, Unavailable, failed, make_folder, store};

/// Maximum number of copied files. More are an error.
const FILES_MAX: usize = 200_000;
/// Maximum total size of the copied files in bytes. More are an error.
const BYTES_MAX: u64 = 2 << 30;

/// Maximum size of the file `info/exclude` that is copied, in bytes. A larger file is left out.
const EXCLUDE_BYTES_MAX: u64 = 1 << 20;

/// Maximum size of a file of the index of git that is copied, in bytes. A larger one is left out.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Name of the file with the base state: a list of [`Based`] as JSON.
pub(super) const BASE_LIST: &str = "base.json";
/// Name of the folder with the content of the base files.
pub(super) const BASE: &str = "base";

/// State of a file in the base: when the worktree was created, or when the file was last merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Based {
    /// Path relative to the top of the worktree.
    pub(super) path: String,
    /// True if the file is a symbolic link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) link: bool,
    /// True if the file is executable by its owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) exec: bool,
    /// Change stamp of the file in the worktree, from [`change_stamp`].
    pub(super) seen: (u64, u64, i64, i64),
}

/// Returns the values by which a change of a file is detected: inode, size, and time of the last
/// change (`ctime`) in seconds and nanoseconds.
pub(super) fn change_stamp(entry: &FileStatus) -> (u64, u64, i64, i64) {
    (entry.ino, entry.size, entry.changed.0, entry.changed.1)
}

/// Creates the worktree and its base in the empty `folder`, as copies of `files` of the repository.
/// The base contains only the files below `prefix`. Secrets and files that are gone are left out.
///
/// Fails when `stop` is due, and with more than `FILES_MAX` files or `BYTES_MAX` bytes.
pub(super) fn make(
    folder: &Path,
    repository: &Repository,
    files: &[PathBuf],
    prefix: &Path,
    secret_files: SecretFiles,
    stop: &Stop,
) -> Result<(), Unavailable> {
    if files.len() > FILES_MAX {
        return Err(Unavailable::TooLarge("200,000 files"));
    }
    let (tree, base) = (folder.join(TREE), folder.join(BASE));
    for made in [&tree, &base] {
        make_folder(made).map_err(|error| failed("the worktree", &error))?;
    }
    let top = resolved_path::open(&repository.top, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
        .map_err(|error| failed("the workspace", &error))?;
    let mut copying = Copying {
        top,
        links: SecretLinks::new(
            vec![repository.top.clone()],
            secret_files,
            ReadableSecrets::default(),
        ),
        tree: &tree,
        base: &base,
        folders: BTreeSet::new(),
        links_made: BTreeSet::new(),
        bytes: 0,
    };
    let mut based = Vec::new();
    for path in files {
        if stop.is_due() {
            return Err(Unavailable::TimedOut {
                action: "copying the workspace",
                limit: super::MAKING_MAX,
            });
        }
        based.extend(copying.copy(path, path.starts_with(prefix))?);
    }
    if copying.links_made.contains(prefix) || copying.is_behind_link(prefix) {
        let error = io::Error::other("the working directory was replaced by a link");
        return Err(failed("the worktree", &error));
    }
    git_folder(&tree.join(".git"), repository).map_err(|error| failed("its `.git`", &error))?;
    // The working directory must exist, even if it has no files.
    fs::create_dir_all(tree.join(prefix)).map_err(|error| failed("the worktree", &error))?;
    store(&folder.join(BASE_LIST), &based)
}

struct Copying<'a> {
    top: OwnedFd,
    links: SecretLinks,
    tree: &'a Path,
    base: &'a Path,
    /// Folders created so far.
    folders: BTreeSet<PathBuf>,
    /// Links created so far, relative to the worktree. Nothing is written through them.
    links_made: BTreeSet<PathBuf>,
    bytes: u64,
}

impl Copying<'_> {
    /// Copies the file or link `path` to the worktree. If `compared` is true, also copies it to the
    /// base and returns its state. Skips missing files, other kinds of files, secrets, and names
    /// that are not UTF-8.
    fn copy(&mut self, path: &Path, compared: bool) -> Result<Option<Based>, Unavailable> {
        let Some(name) = path.to_str().filter(|name| !is_secret(name) && is_below(path)) else {
            return Ok(None);
        };
        let Some(copied) = self.source(path)? else { return Ok(None) };
        // The working tree changes meanwhile: a folder was a link when that was copied.
        if self.is_behind_link(path) {
            return Ok(None);
        }
        let wrong = |error: io::Error| failed(&printable(name), &error);
        let to = self.tree.join(path);
        self.folder_of(self.tree, &to).map_err(wrong)?;
        let kept = self.base.join(path);
        if compared {
            self.folder_of(self.base, &kept).map_err(wrong)?;
        }
        let mut based =
            Based { path: name.to_owned(), link: false, exec: false, seen: (0, 0, 0, 0) };
        match copied {
            CopySource::Link(target) => {
                symlink(&target, &to).map_err(wrong)?;
                self.links_made.insert(path.to_owned());
                if compared {
                    fs::write(&kept, target.as_os_str().as_bytes()).map_err(wrong)?;
                }
                based.link = true;
            }
            CopySource::File(mut file, entry) => {
                let mut made = create(&to).map_err(wrong)?;
                self.bytes += io::copy(&mut file, &mut made).map_err(wrong)?;
                if self.bytes > BYTES_MAX {
                    return Err(Unavailable::TooLarge("2 GiB of files"));
                }
                let permissions = Permissions::from_mode(entry.mode & 0o755 | 0o600);
                made.set_permissions(permissions).map_err(wrong)?;
                if compared {
                    let mut made = File::open(&to).map_err(wrong)?;
                    io::copy(&mut made, &mut create(&kept).map_err(wrong)?).map_err(wrong)?;
                }
                based.exec = entry.is_executable();
            }
        }
        let there = fs::symlink_metadata(&to).map_err(wrong)?;
        based.seen = (there.ino(), there.size(), there.ctime(), there.ctime_nsec());
        Ok(compared.then_some(based))
    }

    /// True if a folder above `path` is a link in the worktree.
    fn is_behind_link(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.links_made.contains(above))
    }

    /// Opens the file `path` in the user's working tree without following links. `None` if it is to
    /// be skipped: missing, unreadable, of another kind, a secret under another name, or a file
    /// whose other names are unknown.
    fn source(&self, path: &Path) -> Result<Option<CopySource>, Unavailable> {
        let wrong = |errno: Errno| failed(&printable(&path.to_string_lossy()), &errno.into());
        // Deleted, or replaced by another type since git listed it.
        let gone = |errno: &Errno| {
            matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES)
        };
        let (above, entry) = match entry_at(&self.top, path) {
            Err(errno) if gone(&errno) => return Ok(None),
            found => found.map_err(wrong)?,
        };
        let name = path.file_name().unwrap_or_default();
        match entry.kind {
            FileKind::Link => {
                let target = readlinkat(&above, name).map_err(wrong)?;
                Ok(Some(CopySource::Link(target.into())))
            }
            FileKind::File => {
                let opened = match open_in(&above, name) {
                    Err(errno) if gone(&errno) => return Ok(None),
                    opened => OwnedFd::from(opened.map_err(wrong)?),
                };
                let entry = FileStatus::of(&opened).map_err(wrong)?;
                let is_open = entry.kind == FileKind::File
                    && self.links.judge(&entry, &opened) == Linked::Open
                    && !(self.links.has_secret_folders() && self.links.is_in_secret_folder(&above));
                Ok(is_open.then(|| CopySource::File(opened.into(), entry)))
            }
            // A folder, a pipe, a device.
            _ => Ok(None),
        }
    }

    /// Creates the parent folder of `path`, which is below `root`.
    fn folder_of(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let above = path.parent().unwrap_or(root);
        if above != root && !self.folders.contains(above) {
            fs::create_dir_all(above)?;
            self.folders.insert(above.to_owned());
        }
        Ok(())
    }
}

enum CopySource {
    File(File, FileStatus),
    Link(PathBuf),
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns true if `path` consists of plain names only, none of which is `.git`. Git lists no other
/// paths.
fn is_below(path: &Path) -> bool {
    use std::path::Component;
    path.components().all(|part| matches!(part, Component::Normal(name) if name != ".git"))
}

/// Creates `git`, the `.git` folder of the worktree: its own `HEAD` and index, the ignore rules of
/// `info/exclude`, and a reference to the common git folder of the user's repository. The index is
/// a copy of the user's index, so git shows the same state.
fn git_folder(git: &Path, repository: &Repository) -> io::Result<()> {
    make_folder(git)?;
    fs::write(git.join("HEAD"), format!("{}\n", repository.head))?;
    let mut common = repository.common.as_os_str().as_bytes().to_vec();
    common.push(b'\n');
    fs::write(git.join("commondir"), common)?;
    // Ignore rules of the user for this repository.
    let exclude = Path::new("info/exclude");
    let folder = resolved_path::open(&repository.common, FOLDER)?;
    if let Some((mut rules, _)) = plain_file(&folder, exclude, EXCLUDE_BYTES_MAX)? {
        make_folder(&git.join("info"))?;
        io::copy(&mut rules, &mut create(&git.join(exclude))?)?;
    }
    let folder = resolved_path::open(&repository.git_dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    for entry in Dir::from_fd(folder.try_clone()?)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // An index can be split into two files.
        let is_index = name == b"index" || name.starts_with(b"sharedindex.");
        let name = Path::new(OsStr::from_bytes(name));
        if is_index
            && let Some((mut index, permissions)) = plain_file(&folder, name, INDEX_BYTES_MAX)?
        {
            let mut made = create(&git.join(name))?;
            io::copy(&mut index, &mut made)?;
            made.set_permissions(permissions)?;
        }
    }
    Ok(())
}

/// Opens the file `path` of the git folder `folder`, and returns its permissions. `None` if it is
/// missing, no regular file, larger than `bytes_max`, known under another name, or behind a link: a
/// running command may put one there.
fn plain_file(
    folder: &OwnedFd,
    path: &Path,
    bytes_max: u64,
) -> io::Result<Option<(io::Take<File>, Permissions)>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW;
    let Ok(file) = open_beneath(folder, path, flags) else { return Ok(None) };
    let file = File::from(file);
    let found = file.metadata()?;
    let is_plain = found.is_file() && found.len() <= bytes_max && found.nlink() == 1;
    Ok(is_plain.then(|| (file.take(bytes_max), found.permissions())))
}

#[cfg(test)]
mod tests {
    use nix::fcntl::open;
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn nothing_is_written_through_a_copied_link() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for folder in ["w/p/a", "outside", "tree", "base"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("w/p/a/evil"), "evil").unwrap();
        fs::create_dir(at("w/q")).unwrap();
        symlink(at("outside"), at("w/q/a")).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let (tree, base) = (at("tree"), at("base"));
        let mut copying = Copying {
            top: open(&at("w"), flags, Mode::empty()).unwrap(),
            links: SecretLinks::new(
                vec![at("w")],
                SecretFiles::default(),
                ReadableSecrets::default(),
            ),
            tree: &tree,
            base: &base,
            folders: BTreeSet::new(),
            links_made: BTreeSet::new(),
            bytes: 0,
        };
        // A running command swaps the folders between the copies.
        let swap = || {
            fs::rename(at("w/p"), at("w/x")).unwrap();
            fs::rename(at("w/q"), at("w/p")).unwrap();
            fs::rename(at("w/x"), at("w/q")).unwrap();
        };
        swap();
        assert!(copying.copy(Path::new("p/a"), false).unwrap().is_none());
        swap();
        for compared in [false, true] {
            assert!(copying.copy(Path::new("p/a/evil"), compared).unwrap().is_none());
        }
        assert!(tree.join("p/a").is_symlink());
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
    }

    #[test]
    fn files_of_git_are_not_copied_through_links() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("git/info")).unwrap();
        fs::write(at("secret"), "key").unwrap();
        fs::write(at("git/index"), "index").unwrap();
        fs::write(at("git/sharedindex.1"), "shared").unwrap();
        symlink(at("secret"), at("git/sharedindex.2")).unwrap();
        fs::hard_link(at("secret"), at("git/sharedindex.3")).unwrap();
        nix::unistd::mkfifo(&at("git/sharedindex.4"), Mode::S_IRWXU).unwrap();
        symlink(at("secret"), at("git/info/exclude")).unwrap();
        let repository = Repository {
            top: at("w"),
            git_dir: at("git"),
            common: at("git"),
            head: "ref: refs/heads/main".to_owned(),
        };
        git_folder(&at("made"), &repository).unwrap();
        let copied = |name: &str| fs::read_to_string(at("made").join(name)).ok();
        assert_eq!(copied("index").as_deref(), Some("index"));
        assert_eq!(copied("sharedindex.1").as_deref(), Some("shared"));
        for name in ["sharedindex.2", "sharedindex.3", "sharedindex.4", "info/exclude"] {
            assert_eq!(copied(name), None, "{name}");
        }
        fs::remove_file(at("git/info/exclude")).unwrap();
        fs::write(at("git/info/exclude"), "*.log").unwrap();
        git_folder(&at("again"), &repository).unwrap();
        assert_eq!(fs::read_to_string(at("again/info/exclude")).unwrap(), "*.log");
        // A running command replaces a folder above it.
        fs::create_dir(at("home")).unwrap();
        fs::rename(at("git"), at("home/git")).unwrap();
        symlink(at("home"), at("w")).unwrap();
        let git = at("w/git");
        let repository = Repository { git_dir: git.clone(), common: git, ..repository };
        assert!(git_folder(&at("third"), &repository).is_err());
        assert!(!at("third/index").exists() && !at("third/info/exclude").exists());
    }
}
