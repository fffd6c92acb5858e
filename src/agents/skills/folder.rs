//! Folder of a skill: its contents, read without following symbolic links, within limits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use posse_base::hex::{hex, sha256};
use sha2::{Digest, Sha256};

/// The file that makes a folder a skill.
pub(super) const MAIN: &str = "SKILL.md";
/// Maximum size of `SKILL.md` in bytes. A model gets a long one in pages.
pub(super) const MAIN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of files and rejected entries that are listed for a model in a skill's folder and
/// its subfolders.
pub(super) const FILES_MAX: usize = 200;
/// Maximum number of files of a project's skill, which is hashed as a whole.
const HASHED_FILES_MAX: usize = 2000;
/// Maximum depth of subfolders of a skill's folder.
const DEPTH_MAX: usize = 6;
/// Maximum total size of a project's skill in bytes. Such a skill is hashed as a whole.
const HASHED_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are read at once while a file is hashed.
const CHUNK_BYTES: usize = 64 << 10;

/// Files below a folder: sizes in bytes by relative path with `/`, and rejected entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SkillFiles {
    pub(super) files: BTreeMap<String, u64>,
    /// Paths of entries that are rejected: symbolic links, special files, names that are not UTF-8,
    /// and folders that are too deep.
    pub(super) odd: Vec<String>,
    /// True if there are too many files or too deep folders, so that the list is incomplete.
    pub(super) cut: bool,
}

/// Hashes of a skill's folder, and the content of its `SKILL.md`, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HashedSkill {
    /// SHA-256 over names and contents, in hex.
    pub(super) digest: String,
    /// SHA-256 of each file, in hex.
    pub(super) files: BTreeMap<String, String>,
    /// Content of [`MAIN`].
    pub(super) main: Vec<u8>,
}

/// Lists `folder` and its subfolders, up to `files_max` entries. Fails if a folder cannot be read.
/// `all`: true to include hidden files and folders.
pub(super) fn list(folder: &Path, all: bool, files_max: usize) -> io::Result<SkillFiles> {
    let mut listing = SkillFiles::default();
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder)?.filter_map(Result::ok).collect();
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else {
                // A name that is not UTF-8 cannot be requested.
                listing.odd.push(entry.file_name().to_string_lossy().into_owned());
                continue;
            };
            if name.starts_with('.') && !all {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if listing.files.len() + listing.odd.len() >= files_max {
                listing.cut = true;
                return Ok(listing);
            }
            if kind.is_dir() && depth < DEPTH_MAX {
                open.push((entry.path(), format!("{path}/"), depth + 1));
            } else if kind.is_file() {
                listing.files.insert(path, entry.metadata()?.len());
            } else {
                listing.cut |= kind.is_dir();
                listing.odd.push(path);
            }
        }
    }
    Ok(listing)
}

/// Hashes all files below `folder`, hidden ones included, and reads [`MAIN`]. The error is the reason why
/// that is not possible: a rejected entry, too many files, too many bytes, or a failed read.
pub(super) fn hash_files(folder: &Path) -> Result<HashedSkill, String> {
    let text = |error: io::Error| error.to_string();
    let listing = list(folder, true, HASHED_FILES_MAX).map_err(text)?;
    if let Some(odd) = listing.odd.first() {
        return Err(format!("{odd} is a link or no file, and what is behind it cannot be trusted"));
    }
    if listing.cut {
        return Err(format!("it has more than {HASHED_FILES_MAX} files, or is too deep"));
    }
    if listing.files.values().sum::<u64>() > HASHED_BYTES_MAX {
        return Err(format!("it has more than {HASHED_BYTES_MAX} bytes"));
    }
    let mut whole = Sha256::new();
    let mut files = BTreeMap::new();
    let mut main = Vec::new();
    let mut left = HASHED_BYTES_MAX;
    for path in listing.files.keys() {
        let digest = if path == MAIN {
            main = read(folder, path, MAIN_BYTES_MAX as u64).map_err(text)?;
            if main.len() > MAIN_BYTES_MAX {
                return Err(format!("{MAIN} is longer than {MAIN_BYTES_MAX} bytes"));
            }
            sha256(&main)
        } else {
            hash_file(folder, path, &mut left).map_err(text)?
        };
        whole.update(format!("{digest} {path}\n"));
        files.insert(path.clone(), digest);
    }
    Ok(HashedSkill { digest: hex(&whole.finalize()), files, main })
}

/// SHA-256, in hex, of the file `path` below `folder`, read piece by piece. Takes its size from
/// `left`; fails if the file, which may have grown, is larger.
fn hash_file(folder: &Path, path: &str, left: &mut u64) -> io::Result<String> {
    let mut file = open_file(folder, path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        *left = left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!("it has more than {HASHED_BYTES_MAX} bytes"))
        })?;
        hash.update(&chunk[..count]);
    }
}

/// Reads up to `limit` + 1 bytes of the file `path` below `folder`. Follows no symbolic link below
/// `folder`.
pub(super) fn read(folder: &Path, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(folder, path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens the regular file `path` below `folder` without following a symbolic link below `folder`.
fn open_file(folder: &Path, path: &str) -> io::Result<File> {
    let normal = |part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    let names: Option<Vec<_>> = Path::new(path).components().map(normal).collect();
    let names = names.unwrap_or_default();
    let (last, above) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
    let folders = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut at: OwnedFd = open(folder, folders, Mode::empty())?;
    for name in above {
        at = openat(&at, *name, folders | OFlag::O_NOFOLLOW, Mode::empty())?;
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(&at, *last, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

/// Text of `error`, the reason why a file cannot be read, with a hint.
pub(super) fn why(error: &io::Error) -> String {
    use nix::libc::{ELOOP, ENOTDIR};
    match error.raw_os_error() {
        // Without following links, a symbolic link appears as a loop, or as something that is no
        // folder.
        Some(ELOOP) => "it is a link, and only files that lie in the folder are read".to_owned(),
        Some(ENOTDIR) => {
            "a part of it is a link or no folder, and links are not followed".to_owned()
        }
        _ if error.kind() == io::ErrorKind::InvalidInput => {
            "it leads out of the folder of the skill: name one of its files, without .. and not \
             from the root"
                .to_owned()
        }
        _ => error.to_string(),
    }
}
