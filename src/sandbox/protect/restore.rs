//! Restores protected names, and moves the version of a command aside.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::Mode;

use crate::protect::baseline::BaselineItem;
use crate::protect::finding::failed;
use crate::protect::place::{self, FOLDER, Stat};
use crate::protect::sort::Sort;
use crate::protect::state::{self, State};
use crate::protect::{GuardState, ProtectAction, ProtectedChange, ProtectedPath};

impl GuardState {
    /// Restores the state `old` of `name` and reports it as `path`. The command's version `new`
    /// goes to the quarantine; `None` if the command removed it. Folders are restored entry by
    /// entry. Does nothing if `path` is exempt.
    pub(super) fn restore(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        old: &State,
        new: Option<&State>,
        path: &Path,
    ) {
        if self.lifted.covers(path) {
            return;
        }
        if let (State::Folder { entries: old, .. }, Some(State::Folder { entries: new, .. })) =
            (old, new)
            && let Ok(opened) = place::make_folder(folder, name, 0o700)
        {
            self.restore_entries(&opened, old, new, path);
            return;
        }
        if old.is_folder() && new.is_some_and(State::is_folder) && !old.is_stored() {
            // The copy lacks parts, and must not replace the folder.
            self.found(path, ProtectedChange::Changed, ProtectAction::Left);
            return;
        }
        let taken = match new {
            Some(_) => match self.quarantine.take(folder, name) {
                Ok(to) => Some(to),
                Err(Errno::ENOENT) => None,
                Err(errno) => {
                    self.found(path, ProtectedChange::Changed, failed(errno));
                    return;
                }
            },
            None => None,
        };
        let what = if new.is_some() { ProtectedChange::Changed } else { ProtectedChange::Removed };
        let action = match state::restore(folder, name, old) {
            Ok(()) => ProtectAction::Restored(taken),
            Err(Errno::EFBIG) => {
                let replaced =
                    if taken.is_some() { "; what replaced it was moved aside" } else { "" };
                let why = format!("not all of it was kept, because it was too large{replaced}");
                ProtectAction::Failed(why)
            }
            Err(errno) => failed(errno),
        };
        self.found(path, what, action);
    }

    pub(super) fn restore_entries(
        &mut self,
        folder: &OwnedFd,
        old: &BTreeMap<PathBuf, State>,
        new: &BTreeMap<PathBuf, State>,
        path: &Path,
    ) {
        for (name, current) in new {
            match old.get(name) {
                Some(old) if old.is_same(current) => {}
                Some(old) => {
                    self.restore(folder, name, old, Some(current), &path.join(name));
                }
                None => {
                    let path = path.join(name);
                    if self.lifted.reaches_into(&path)
                        && let State::Folder { entries, .. } = current
                        && let Ok(opened) = openat(folder, name, FOLDER, Mode::empty())
                    {
                        self.restore_entries(&opened, &BTreeMap::new(), entries, &path);
                    } else {
                        self.move_aside(folder, name, &path, ProtectedChange::Created);
                    }
                }
            }
        }
        for (name, state) in old {
            if !new.contains_key(name) {
                self.restore(folder, name, state, None, &path.join(name));
            }
        }
    }

    /// Opens the folder in which the removed name was. If the folder was removed, and its name gave
    /// the removed name its meaning, it is made again; unless the item is doubtful, which is only
    /// reported.
    pub(super) fn parent_of_removed<'a>(
        &mut self,
        key: &'a ProtectedPath,
        before: &BaselineItem,
    ) -> Result<(OwnedFd, &'a Path), Errno> {
        let root = &self.roots[key.0].root;
        let opened = root.open_parent(&key.1);
        if opened.is_ok() || !matches!(before.sort, Sort::Name(_)) || before.above.is_none() {
            return opened;
        }
        let name = key.1.file_name().ok_or(Errno::EINVAL)?;
        let parent = key.1.parent().ok_or(Errno::EINVAL)?;
        let (around, folder) = root.open_parent(parent)?;
        let identity = Stat::at(&around, Path::new(""))?.identity;
        let path = self.path(key);
        if before.above != Some(identity) || self.lifted.covers(&path) {
            return Err(Errno::ENOENT);
        }
        if before.is_doubtful {
            self.found(&path, ProtectedChange::Removed, ProtectAction::Left);
            return Err(Errno::ENOENT);
        }
        Ok((place::make_folder(&around, folder, 0o755)?, Path::new(name)))
    }

    pub(super) fn move_aside(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        what: ProtectedChange,
    ) {
        if self.lifted.covers(path) {
            return;
        }
        let action = match self.quarantine.take(folder, name) {
            Ok(to) => ProtectAction::MovedAside(to),
            // It does not exist any more.
            Err(Errno::ENOENT) => return,
            Err(errno) => failed(errno),
        };
        self.found(path, what, action);
    }

    /// Replaces the content `bytes` of a file by `text`, which lacks what `change` says. Stores
    /// `bytes` in the quarantine.
    pub(super) fn rewrite(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        (bytes, text): (&[u8], &[u8]),
        change: ProtectedChange,
    ) {
        let kept = self.quarantine.keep(name, bytes);
        let written =
            kept.and_then(|to| place::replace_file(folder, name, text, 0o644).map(|()| to));
        let action = written.map_or_else(failed, ProtectAction::Cleaned);
        self.found(path, change, action);
    }
}
