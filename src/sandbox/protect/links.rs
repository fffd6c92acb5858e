//! Hard links of protected and secret files: any name leads to the content.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::protect::Watched;
use crate::protect::place::{self, Identity, PlaceKind, Stat};

/// Maximum number of entries of one folder that are compared. Names after them are not found.
const ENTRIES_MAX: usize = 1_000_000;

/// Cache of all names of files with several hard links. A new link alters the time of the file's
/// last change, so a stale entry is recognized.
#[derive(Debug, Default)]
pub(super) struct Links {
    known: HashMap<Identity, ((i64, i64), Vec<PathBuf>)>,
}

impl Links {
    /// Returns all names of `files` in the scanned folders below the roots, including the names
    /// under which they were found.
    pub(super) fn names(&mut self, files: &[Stat], roots: &[Watched]) -> Vec<PathBuf> {
        let is_known = |stat: &&Stat| {
            self.known.get(&stat.identity).is_some_and(|(changed, _)| *changed == stat.changed)
        };
        if !files.iter().all(|stat| is_known(&stat)) {
            self.search(files, roots);
        }
        let names = files.iter().filter_map(|stat| self.known.get(&stat.identity));
        names.flat_map(|(_, paths)| paths.iter().cloned()).collect()
    }

    fn search(&mut self, files: &[Stat], roots: &[Watched]) {
        self.known = files.iter().map(|stat| (stat.identity, (stat.changed, Vec::new()))).collect();
        let inodes: HashSet<u64> = files.iter().map(|stat| stat.identity.inode).collect();
        for watched in roots {
            for folder in watched.scan.folders() {
                let Ok(opened) = watched.root.open_folder(folder) else { continue };
                let Ok((listed, _)) = place::list(&opened, ENTRIES_MAX) else { continue };
                for entry in listed {
                    if entry.kind != PlaceKind::File || !inodes.contains(&entry.inode) {
                        continue;
                    }
                    let Ok(stat) = Stat::at(&opened, Path::new(&entry.name)) else { continue };
                    if let Some((_, names)) = self.known.get_mut(&stat.identity) {
                        names.push(watched.root.path.join(folder).join(entry.name));
                    }
                }
            }
        }
    }
}
