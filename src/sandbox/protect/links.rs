//! Hard links of protected and secret files: any name leads to the content.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::openat;
use nix::sys::stat::Mode;

use crate::protect::Watched;
use crate::protect::place::{self, FOLDER, Identity, PlaceKind, Stat};

/// Maximum number of entries of one folder that are compared. Names after them are not found.
const ENTRIES_MAX: usize = 1_000_000;

/// Maximum depth of folders in one that the scan does not enter.
const DEPTH_MAX: usize = 64;

/// Returns all names of `files`, which have several hard links, in the folders below the roots,
/// including the names under which they were found, with the identities of the files. Does nothing
/// without files.
pub(super) fn names(files: &[Stat], roots: &[Watched]) -> BTreeMap<PathBuf, Identity> {
    if files.is_empty() {
        return BTreeMap::new();
    }
    let mut search = Search {
        inodes: files.iter().map(|stat| stat.identity.inode).collect(),
        found: files.iter().map(|stat| (stat.identity, Vec::new())).collect(),
    };
    for Watched { root, scan, .. } in roots {
        for folder in scan.folders_with(&search.inodes).map(Path::to_owned).collect::<Vec<_>>() {
            let Ok(opened) = root.open_folder(&folder) else { continue };
            search.compare(&opened, &root.path.join(folder), 0);
        }
        for folder in scan.not_entered() {
            let Ok(opened) = root.open_folder(folder) else { continue };
            search.compare(&opened, &root.path.join(folder), DEPTH_MAX);
        }
    }
    let found = search.found.into_iter();
    found.flat_map(|(file, names)| names.into_iter().map(move |name| (name, file))).collect()
}

/// Files that are searched for, and their names so far.
struct Search {
    inodes: HashSet<u64>,
    found: HashMap<Identity, Vec<PathBuf>>,
}

impl Search {
    /// Compares the entries of the folder `opened`, whose path is `path`, and of the folders up to
    /// `depth` levels below it.
    fn compare(&mut self, opened: &OwnedFd, path: &Path, depth: usize) {
        let Ok((listed, _)) = place::list(opened, ENTRIES_MAX) else { return };
        for entry in listed {
            let name = Path::new(&entry.name);
            if entry.kind == PlaceKind::File && self.inodes.contains(&entry.inode) {
                let stat = Stat::at(opened, name).ok();
                if let Some(names) = stat.and_then(|stat| self.found.get_mut(&stat.identity)) {
                    names.push(path.join(name));
                }
            } else if entry.kind == PlaceKind::Folder
                && depth > 0
                && let Ok(below) = openat(opened, name, FOLDER, Mode::empty())
            {
                self.compare(&below, &path.join(name), depth - 1);
            }
        }
    }
}
