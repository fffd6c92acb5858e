//! Identity of the project of a folder. Nothing inside a project can give it the identity of
//! another one.
//!
//! A project is identified by the real path of its root with the device, inode and creation time of
//! that folder, because a path can be reused for another folder, and so can an inode number. A worktree of git belongs to the project
//! of its main repository only if that repository's own list of worktrees names it. The worktree's
//! own pointer is only a hint where to look.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

/// Maximum size in bytes of a file that refers to a folder.
const POINTER_BYTES_MAX: u64 = 8 << 10;

/// Identity of a folder: real path, device, inode and creation time.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Absolute path without symbolic links.
    pub path: String,
    /// Number of the device.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time at which the folder was created, in nanoseconds since 1970. `None` if the file system does
    /// not store it, and in files of versions before it was part of the identity.
    #[serde(rename = "birthNs")]
    pub birth_ns: Option<u64>,
}

impl Identity {
    /// Returns the identity of the folder that exists at this path now.
    pub fn of(folder: &Path) -> io::Result<Identity> {
        let real = folder.canonicalize()?;
        let found = fs::metadata(&real)?;
        let path = real.to_string_lossy().into_owned();
        let birth = found.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
        let birth_ns = birth.and_then(|birth| u64::try_from(birth.as_nanos()).ok());
        Ok(Identity { path, device: found.dev(), inode: found.ino(), birth_ns })
    }

    /// True if this identity, which was stored at `stored_ms` (in milliseconds since 1970), is that of
    /// the folder with the identity `present`.
    ///
    /// A stored identity without a creation time is from an earlier version, or from a file system
    /// that stores none. It is that of a folder with the same inode that existed at `stored_ms`: a
    /// younger one is another folder.
    pub fn is_still(&self, present: &Identity, stored_ms: u64) -> bool {
        let is_same_birth = match (self.birth_ns, present.birth_ns) {
            (None, Some(birth)) => birth / 1_000_000 <= stored_ms,
            (stored, birth) => stored == birth,
        };
        (&self.path, self.device, self.inode) == (&present.path, present.device, present.inode)
            && is_same_birth
    }
}

/// Returns the nearest folder at or above `cwd` that contains `.git`; `cwd` itself if there is
/// none, or if the nearest `.git` above `cwd` belongs neither to this user nor to the owner of
/// `cwd`: any user can put one into a shared folder such as `/tmp`.
pub fn root_of(cwd: &Path) -> PathBuf {
    let owner = |path: &Path| path.symlink_metadata().map(|found| found.uid());
    for folder in cwd.ancestors() {
        let Ok(found) = owner(&folder.join(".git")) else { continue };
        let is_theirs = found == geteuid().as_raw() || owner(cwd).is_ok_and(|uid| uid == found);
        return if is_theirs || folder == cwd { folder } else { cwd }.to_owned();
    }
    cwd.to_owned()
}

/// Returns the project whose grants apply in `root`: the repository that lists `root` as its
/// worktree, otherwise `root` itself.
pub fn shared_identity(root: &Path) -> io::Result<Identity> {
    Identity::of(&main_repository(root).unwrap_or_else(|| root.to_owned()))
}

/// Returns the main repository that lists `root` as its worktree. `None` if there is none, if it is
/// inside `root`, if everyone can write to it, or if it belongs neither to this user nor to the
/// superuser.
pub fn main_repository(root: &Path) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let pointer = root.join(".git");
    let text = small_file(&pointer)?;
    let named = text.trim_end_matches(['\n', '\r']).strip_prefix("gitdir: ")?;
    let entry = root.join(named).canonicalize().ok()?;
    let list = entry.parent().filter(|list| list.file_name() == Some("worktrees".as_ref()))?;
    let git = list.parent().filter(|git| git.file_name() == Some(".git".as_ref()))?;
    let main = git.parent()?;
    // From here on only what belongs to the other repository is believed.
    let ours = |folder: &Path| fs::symlink_metadata(folder).is_ok_and(|found| is_ours(&found));
    if ![main, git, list, &entry].into_iter().all(ours) {
        return None;
    }
    let back = small_file(&entry.join("gitdir"))?;
    let back = entry.join(back.trim_end_matches(['\n', '\r']));
    let names_it = back.file_name() == Some(".git".as_ref())
        && back.parent().and_then(|folder| folder.canonicalize().ok()) == Some(root.clone());
    // A repository inside its own worktree could be written from there.
    (names_it && !main.starts_with(&root)).then(|| main.to_owned())
}

/// True for a folder of this user or the superuser that is not writable by everyone.
fn is_ours(found: &fs::Metadata) -> bool {
    let us = geteuid().as_raw();
    found.is_dir() && (found.uid() == us || found.uid() == 0) && found.mode() & 0o002 == 0
}

/// Reads a file as text. `None` if it is a symbolic link, not a regular file, larger than
/// [`POINTER_BYTES_MAX`] or not UTF-8, or cannot be read.
fn small_file(path: &Path) -> Option<String> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > POINTER_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    file.take(POINTER_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests;
