//! Files and folders below the roots that count by their paths: configuration files of posse with a
//! key, credential stores, and roots below other roots. A command that moved a folder above one of
//! them could put another file in its place. Folders above readable secrets stay movable: a secret
//! that was hidden before is known by its identity.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use posse_base::protected::Class;
use posse_base::secrets::HOME_STORES;

use crate::protect::GuardState;
use crate::protect::place::PlaceKind;
use crate::protect::sort::{ProtectedItem, Sort};

/// Absolute paths that count by themselves, without the roots.
#[derive(Debug, Default)]
pub(super) struct PlacedPaths {
    paths: BTreeSet<PathBuf>,
    /// Configuration files of posse among them that exist.
    settings: Vec<PathBuf>,
}

impl PlacedPaths {
    /// `own`: folders and configuration files of posse; `home`: home folder, with credential stores.
    /// Only those below `roots` are kept.
    pub(super) fn new(own: &[PathBuf], home: Option<&Path>, roots: &[PathBuf]) -> PlacedPaths {
        let mut paths: BTreeSet<PathBuf> = own.iter().cloned().collect();
        paths.extend(home.iter().flat_map(|home| HOME_STORES.iter().map(|name| home.join(name))));
        paths.retain(|path| roots.iter().any(|root| path.starts_with(root)));
        let settings = paths.iter().filter(|path| path.is_file()).cloned().collect();
        PlacedPaths { paths, settings }
    }
}

impl GuardState {
    /// The existing folders between the roots and the paths that count by themselves.
    pub(super) fn folders_above_placed(&self) -> Vec<PathBuf> {
        let mut folders = BTreeSet::new();
        for path in self.placed.paths.iter().chain(&self.nested) {
            let Some((at, below)) = self.place_of(path) else { continue };
            let root = &self.roots[at].root;
            let above = below.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            let is_folder =
                |above: &&Path| root.stat(above).is_ok_and(|stat| stat.kind == PlaceKind::Folder);
            folders.extend(above.filter(is_folder).map(|above| root.path.join(above)));
        }
        folders.into_iter().collect()
    }

    /// Configuration files of posse below the roots, which a check restores.
    pub(super) fn own_settings(&self) -> impl Iterator<Item = (usize, ProtectedItem)> + '_ {
        let places = self.placed.settings.iter().filter_map(|path| self.place_of(path));
        places.map(|(at, path)| (at, ProtectedItem { path, sort: Sort::Name(Class::Authority) }))
    }
}
