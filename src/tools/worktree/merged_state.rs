//! Files of a worktree that are being merged, and those that were merged. A merged file becomes the
//! new base, with which later changes are compared.
//!
//! The effect of a merge is stored before the first file is written, so that the next process knows
//! how far an interrupted merge got.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use posse_base::failure::printable;
use posse_base::remove_tree::remove_tree;
use posse_base::resolved_path::{self, FOLDER};
use serde::{Deserialize, Serialize};

use crate::change::FILE_BYTES_MAX;
use crate::worktree::changes::{OpenWorktree, entry_at, open_in};
use crate::worktree::snapshot::{BASE, BASE_LIST, Based};
use crate::worktree::{Unavailable, failed, load, make_folder, store};
use posse_base::hex::sha256;

/// Name of the file that contains [`Taken`] as JSON, in the folder that contains the worktree.
const TAKEN: &str = "taken.json";

/// Files of a worktree that are being merged, and all that were merged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Taken {
    /// Files of a merge in progress by path: SHA-256 of the merged content, or `None` for a
    /// removal. Empty without such a merge.
    #[serde(default)]
    becoming: BTreeMap<String, Option<String>>,
    /// Paths of all files that were merged at any time.
    #[serde(default)]
    pub(super) done: BTreeSet<String>,
}

pub(super) fn read(folder: &Path) -> Taken {
    load(&folder.join(TAKEN)).unwrap_or_default()
}

/// Stores the files of a merge with the hashes of their new content, before the merge writes them.
pub(super) fn begin(
    folder: &Path,
    becoming: BTreeMap<String, Option<String>>,
) -> Result<(), Unavailable> {
    store(&folder.join(TAKEN), &Taken { becoming, ..read(folder) })
}

/// Completes the merge in progress, if there is one. Calls `is_here` with the path and the hash of
/// each file of the merge. If it returns true, the current content of the file in the worktree
/// becomes its new base, and the file counts as merged; otherwise the file keeps its base.
pub(super) fn rebase_merged(
    folder: &Path,
    prefix: &Path,
    tree: &OpenWorktree,
    is_here: impl Fn(&str, Option<&str>) -> bool,
) -> Result<(), Unavailable> {
    let mut taken = read(folder);
    if taken.becoming.is_empty() {
        return Ok(());
    }
    let list: Vec<Based> = load(&folder.join(BASE_LIST))?;
    let mut list: BTreeMap<String, Based> =
        list.into_iter().map(|based| (based.path.clone(), based)).collect();
    let base = folder.join(BASE);
    let mut written = Vec::new();
    for (path, becomes) in std::mem::take(&mut taken.becoming) {
        if !is_here(&path, becomes.as_deref()) {
            continue;
        }
        let whole = prefix.join(&path);
        if let Some((based, bytes)) = tree.based_now(&path)? {
            list.insert(based.path.clone(), based);
            written.push((whole, path.clone(), bytes));
        } else {
            list.remove(&*whole.to_string_lossy());
            remove(&base.join(whole)).map_err(|error| failed(&printable(&path), &error))?;
        }
        taken.done.insert(path);
    }
    // Removals first: a folder may replace a file.
    for (whole, path, bytes) in written {
        write(&base, &whole, &bytes).map_err(|error| failed(&printable(&path), &error))?;
    }
    store(&folder.join(BASE_LIST), &list.into_values().collect::<Vec<_>>())?;
    store(&folder.join(TAKEN), &taken)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Writes the file `whole` of the base atomically, and removes files and folders that are in its
/// way. Only posse can write in the base.
fn write(base: &Path, whole: &Path, bytes: &[u8]) -> io::Result<()> {
    let to = base.join(whole);
    let mut above = PathBuf::from(base);
    for part in whole.parent().unwrap_or(Path::new("")).components() {
        above.push(part);
        if above.is_file() {
            fs::remove_file(&above)?;
        }
    }
    make_folder(&above)?;
    if to.is_dir() {
        remove_tree(&to)?;
    }
    let unfinished = base.join(".posse-unfinished");
    fs::write(&unfinished, bytes)?;
    fs::rename(&unfinished, &to)
}

/// Returns true if the file `path` in the workspace at `cwd` has the hash `becomes`, or is missing
/// if `becomes` is `None`. False if the file cannot be read, is too large for a merge, or is behind
/// a link.
pub(super) fn is_here(cwd: &Path, path: &str, becomes: Option<&str>) -> bool {
    let path = Path::new(path);
    let Ok(folder) = resolved_path::open(cwd, FOLDER) else { return false };
    match (entry_at(&folder, path), becomes) {
        (Ok((above, _)), Some(hash)) => {
            let name = path.file_name().unwrap_or_default();
            content(&above, name).is_ok_and(|bytes| sha256(&bytes) == hash)
        }
        (Err(errno), None) => is_absent(&errno.into()),
        (Ok(_), None) | (Err(_), Some(_)) => false,
    }
}

/// Reads the regular file `name` in `folder`, of at most [`FILE_BYTES_MAX`] bytes.
fn content(folder: &OwnedFd, name: &OsStr) -> io::Result<Vec<u8>> {
    let file = open_in(folder, name)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= FILE_BYTES_MAX {
            return Ok(bytes);
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}
