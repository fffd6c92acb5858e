//! Folder of a skill: its contents, read without following symbolic links, within limits.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstatat};
use posse_base::hex::{hex, sha256};
use posse_base::resolved_path::{self, FOLDER, open_beneath};
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
    let folders = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let root = resolved_path::open(folder, folders)?;
    let mut open = vec![(String::new(), 0)];
    while let Some((prefix, depth)) = open.pop() {
        let folder = open_beneath(&root, Path::new(&prefix), folders)?;
        for name in sorted_names(&folder)? {
            let Ok(name) = name.into_string().map_err(|name| {
                // A name that is not UTF-8 cannot be requested.
                listing.odd.push(name.to_string_lossy().into_owned());
            }) else {
                continue;
            };
            if name.starts_with('.') && !all {
                continue;
            }
            let path = format!("{prefix}{name}");
            let found = fstatat(&folder, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
            let is_folder = kind == SFlag::S_IFDIR;
            if listing.files.len() + listing.odd.len() >= files_max {
                listing.cut = true;
                return Ok(listing);
            }
            if is_folder && depth < DEPTH_MAX {
                open.push((format!("{path}/"), depth + 1));
            } else if kind == SFlag::S_IFREG {
                listing.files.insert(path, u64::try_from(found.st_size).unwrap_or(0));
            } else {
                listing.cut |= is_folder;
                listing.odd.push(path);
            }
        }
    }
    Ok(listing)
}

fn sorted_names(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::from_fd(folder.try_clone()?)?.iter().filter_map(Result::ok) {
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
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

/// Opens the regular file `path` below the resolved `folder` without following a symbolic link.
fn open_file(folder: &Path, path: &str) -> io::Result<File> {
    let normal = |part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    let names: Option<PathBuf> = Path::new(path).components().map(normal).collect();
    let path = names.filter(|path| !path.as_os_str().is_empty());
    let path = path.ok_or(io::ErrorKind::InvalidInput)?;
    let folder = resolved_path::open(folder, FOLDER)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(open_beneath(&folder, &path, flags)?);
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
