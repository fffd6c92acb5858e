//! Repositories that a command moved away: they are moved back.
//!
//! Where mounts hold them they cannot be moved. Where they do not, a repository that is still
//! somewhere below the roots is put where it was, and what took its place is moved aside. One that
//! was deleted is gone.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::renameat;

use crate::protected;
use crate::sandbox::protect::place::Identity;
use crate::sandbox::protect::scan::Sort;
use crate::sandbox::protect::{Action, Baseline, Before, Finding, Inner, Key, What};

impl Inner {
    /// Moves every `.git` back that was moved by itself, and not with a folder above it.
    pub(super) fn move_back(
        &mut self,
        baseline: &Baseline,
        now: &BTreeMap<Key, Before>,
    ) -> Vec<Finding> {
        let repositories = now.iter().filter(|(_, current)| current.sort == Sort::Repository);
        let places: HashMap<Identity, &Key> =
            repositories.map(|(key, current)| (current.identity, key)).collect();
        let mut moved: Vec<(&Key, &Key)> = Vec::new();
        for (key, before) in &baseline.items {
            if before.sort != Sort::Repository || !is_dot_git(&key.1) {
                continue;
            }
            let Some(place) = places.get(&before.identity).filter(|place| **place != key) else {
                continue;
            };
            let around = key.1.parent().unwrap_or(Path::new(""));
            let is_same_folder = self.roots[key.0].scan.identity(around) == before.parent;
            if is_same_folder
                && !self.is_born(Some(before.identity))
                && !self.lifted.covers(&self.path(key))
            {
                moved.push((key, place));
            }
        }
        moved.sort();
        moved.into_iter().map(|(key, place)| self.put_where_it_was(key, place)).collect()
    }

    fn put_where_it_was(&mut self, key: &Key, place: &Key) -> Finding {
        let moved = (|| {
            let (from, old) = self.roots[place.0].root.open_parent(&place.1)?;
            let (to, name) = self.roots[key.0].root.open_parent(&key.1)?;
            let taken = match self.quarantine.take(&to, name) {
                Ok(taken) => Some(taken),
                Err(Errno::ENOENT) => None,
                Err(errno) => return Err(errno),
            };
            renameat(&from, old, &to, name).map(|()| taken)
        })();
        let action = match moved {
            Ok(taken) => Action::Restored(taken),
            Err(errno) => Action::Failed(errno.desc().to_owned()),
        };
        Finding { path: self.path(key), what: What::Removed, action }
    }
}

fn is_dot_git(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    &*protected::fold(name.as_encoded_bytes()) == b".git"
}
