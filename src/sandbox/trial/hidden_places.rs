//! Places of the secrets that are hidden from a trial.
//!
//! The covers of a trial are mounted in its overlay, so they do not follow a folder that another
//! command moves below it, as covers in the workspace do. If a secret was moved meanwhile, the
//! command may have seen it, and nothing of the trial is shown or kept. Moving it back does not
//! help: the kernel reports each move (inotify).

#[cfg(target_os = "linux")]
pub(crate) use linux::HiddenPlaces;
#[cfg(not(target_os = "linux"))]
pub(crate) use none::HiddenPlaces;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, HashMap};
    use std::path::{Path, PathBuf};

    use nix::errno::Errno;
    use nix::fcntl::AT_FDCWD;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

    use crate::namespaces::MOVED;
    use crate::protect::place::Stat;

    /// Moves of the file or folder itself, and new names of a file.
    const MOVES: AddWatchFlags = AddWatchFlags::IN_MOVE_SELF
        .union(AddWatchFlags::IN_DELETE_SELF)
        .union(AddWatchFlags::IN_ATTRIB)
        .union(AddWatchFlags::IN_DONT_FOLLOW);

    /// Watches of the secrets and of the folders above them, up to the roots.
    #[derive(Debug)]
    pub(crate) struct HiddenPlaces {
        inotify: Inotify,
        paths: HashMap<WatchDescriptor, PathBuf>,
        /// Files and folders that the user cannot read, which cannot be watched: their status. A
        /// move changes the time of the last change.
        unreadable: BTreeMap<PathBuf, Option<Stat>>,
    }

    fn failed(errno: Errno) -> String {
        let advice = match errno {
            Errno::EMFILE => "; raise fs.inotify.max_user_instances",
            Errno::ENOSPC => "; raise fs.inotify.max_user_watches",
            _ => "",
        };
        format!("hidden files cannot be watched (inotify): {}{advice}", errno.desc())
    }

    impl HiddenPlaces {
        /// Watches those of `secrets`, with their device and inode numbers, that are below one of `roots`. `None` if there are none. Fails
        /// with the reason if one is not there, or if the system cannot watch them.
        pub(crate) fn of(
            secrets: &BTreeMap<PathBuf, (u64, u64)>,
            roots: &[PathBuf],
        ) -> Result<Option<HiddenPlaces>, String> {
            let root_of = |secret: &PathBuf| roots.iter().find(|root| secret.starts_with(root));
            let inside: Vec<_> =
                secrets.iter().filter_map(|secret| Some((secret, root_of(secret.0)?))).collect();
            if inside.is_empty() {
                return Ok(None);
            }
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
            let mut places = HiddenPlaces {
                inotify: inotify.map_err(failed)?,
                paths: HashMap::new(),
                unreadable: BTreeMap::new(),
            };
            for ((secret, identity), root) in inside {
                // A command cannot move a root. From the root down: after a watch, each further
                // exchange of that folder is reported.
                let above = secret.ancestors().take_while(|path| *path != root.as_path());
                for path in above.collect::<Vec<_>>().into_iter().rev() {
                    places.watch(path)?;
                }
                // Later moves are reported.
                let found = Stat::at(AT_FDCWD, secret);
                if found.map(|found| found.identity.numbers()) != Ok(*identity) {
                    return Err(format!("{}: {MOVED}", secret.display()));
                }
            }
            Ok(Some(places))
        }

        fn watch(&mut self, path: &Path) -> Result<(), String> {
            match self.inotify.add_watch(path, MOVES) {
                Ok(watch) => drop(self.paths.insert(watch, path.to_owned())),
                Err(Errno::EACCES) => {
                    let status = Stat::at(AT_FDCWD, path).ok();
                    self.unreadable.entry(path.to_owned()).or_insert(status);
                }
                Err(Errno::ENOENT) => return Err(format!("{}: {MOVED}", path.display())),
                Err(errno) => return Err(failed(errno)),
            }
            Ok(())
        }

        /// Returns a path that was moved or removed, or whose attributes have changed, since then. In
        /// doubt it was.
        pub(crate) fn changed(&self) -> Option<&Path> {
            let mut unreadable = self.unreadable.iter();
            let is_changed = |(path, before): &(&PathBuf, &Option<Stat>)| {
                Stat::at(AT_FDCWD, path).ok() != **before
            };
            if let Some((path, _)) = unreadable.find(is_changed) {
                return Some(path);
            }
            loop {
                match self.inotify.read_events() {
                    Ok(events) => {
                        let mut paths = events.iter().map(|event| self.paths.get(&event.wd));
                        let unknown = Path::new("a hidden file");
                        break paths.next().map(|path| path.map_or(unknown, PathBuf::as_path));
                    }
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => break None,
                    Err(_) => break self.paths.values().next().map(PathBuf::as_path),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    /// There are no trials on this system.
    #[derive(Debug)]
    pub(crate) enum HiddenPlaces {}

    impl HiddenPlaces {
        pub(crate) fn of(
            _: &BTreeMap<PathBuf, (u64, u64)>,
            _: &[PathBuf],
        ) -> Result<Option<HiddenPlaces>, String> {
            Ok(None)
        }

        pub(crate) fn changed(&self) -> Option<&Path> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
