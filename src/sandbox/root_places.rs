//! Resolved paths of the session's folders, recorded when it begins: a link that a command puts in
//! place of such a folder later is refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::planning::{Surroundings, resolved};
use crate::recorded_workspaces;

/// Places of folders by their names: the path with links resolved when the folder was first needed,
/// at the latest when the sandbox was made. `None`: the folder may not be used.
#[derive(Debug, Default)]
pub(crate) struct RootPlaces(Mutex<HashMap<PathBuf, Option<PathBuf>>>);

impl RootPlaces {
    /// Looks at the roots and additional writable folders. Blocks.
    pub(crate) fn new(surroundings: &Surroundings) -> RootPlaces {
        let Surroundings { roots, also_writable, .. } = surroundings;
        let mut places: HashMap<PathBuf, Option<PathBuf>> =
            also_writable.iter().map(|path| (path.clone(), place_of(path, roots))).collect();
        places.extend(roots.iter().map(|root| (root.clone(), resolved(root))));
        RootPlaces(Mutex::new(places))
    }

    /// Place of the folder `name`, which is the same as when it was first asked for. `Ok(None)`: it does
    /// not exist. The error says that another folder is there now.
    pub(crate) fn of(&self, name: &Path) -> Result<Option<PathBuf>, String> {
        let Some(now) = resolved(name) else { return Ok(None) };
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.entry(name.to_owned()).or_insert_with(|| Some(now.clone()));
        if known.as_ref() == Some(&now) {
            return Ok(Some(now));
        }
        let (name, target) = (name.display(), now.display());
        Err(match known {
            Some(_) => format!(
                "{name} leads to {target} now, which is not the folder of this session; remove the \
                 link, or start posse again if it is yours"
            ),
            None => format!(
                "{name} is a link out of the workspace; if commands may write there, name {target} \
                 in sandbox.writableRoots"
            ),
        })
    }
}

/// Place of the additional folder `path`, which need not exist yet: then no link may be on the way
/// beyond the part that exists. `None` if it is in a root by its name and leads out of it.
fn place_of(path: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let existing = path.ancestors().find(|above| above.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(existing).ok()?;
    let place = std::fs::canonicalize(existing).ok()?.join(rest);
    let recorded = recorded_workspaces();
    let leads_out = roots.iter().chain(&recorded).any(|root| {
        let inside = resolved(root);
        path.starts_with(root) && !inside.is_some_and(|inside| place.starts_with(inside))
    });
    (!leads_out).then_some(place)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn link_in_place_of_a_folder_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().canonicalize().unwrap().join(name);
        for folder in ["ws/a/b", "ws/target", "home/.aws", "real/cache"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        symlink(at("real"), at("link")).unwrap();
        symlink(at("home"), at("ws/shipped")).unwrap();
        let surroundings = Surroundings {
            roots: vec![at("ws"), at("ws/a/b")],
            also_writable: ["ws/target", "ws/later", "ws/shipped", "link/cache", "link/new"]
                .map(at)
                .to_vec(),
            ..Surroundings::default()
        };
        let places = RootPlaces::new(&surroundings);
        for same in ["ws", "ws/a/b", "ws/target"] {
            assert_eq!(places.of(&at(same)), Ok(Some(at(same))));
        }
        // A link of the user outside the workspace is followed.
        assert_eq!(places.of(&at("link/cache")), Ok(Some(at("real/cache"))));
        assert_eq!(places.of(&at("link/new")), Ok(None));
        assert_eq!(places.of(&at("ws/later")), Ok(None));
        let refused = places.of(&at("ws/shipped")).unwrap_err();
        assert!(refused.contains("is a link out of the workspace"), "{refused}");

        fs::create_dir(at("ws/later")).unwrap();
        assert_eq!(places.of(&at("ws/later")), Ok(Some(at("ws/later"))));
        fs::rename(at("ws/a"), at("ws/c")).unwrap();
        assert_eq!(places.of(&at("ws/a/b")), Ok(None));
        fs::create_dir(at("home/b")).unwrap();
        for (name, target) in [("ws/a", "home"), ("ws/target2", "ws"), ("real/new", "home")] {
            symlink(at(target), at(name)).unwrap();
        }
        fs::remove_dir(at("ws/target")).unwrap();
        symlink(at("home/.aws"), at("ws/target")).unwrap();
        for other in ["ws/a/b", "ws/target", "link/new"] {
            let refused = places.of(&at(other)).unwrap_err();
            assert!(refused.contains("not the folder of this session"), "{refused}");
        }
        // A folder that is asked for later is known from then on.
        assert_eq!(places.of(&at("ws/target2")), Ok(Some(at("ws"))));
        fs::remove_file(at("ws/target2")).unwrap();
        symlink(at("home"), at("ws/target2")).unwrap();
        assert!(places.of(&at("ws/target2")).is_err());
    }
}
