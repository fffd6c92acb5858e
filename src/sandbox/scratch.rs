//! Temporary folder of one command.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

/// Slot for an empty temporary folder that the next command can use. Creating and removing a folder
/// costs a third of a millisecond on a journaling file system, and most commands do not write to
/// it. The folder is removed when the last clone of the slot is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spare(Arc<Mutex<ScratchFolder>>);

#[derive(Debug, Default)]
struct ScratchFolder(Option<PathBuf>);

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take() {
            fs::remove_dir(folder).ok();
        }
    }
}

impl Spare {
    fn take(&self, parent: &Path) -> Option<PathBuf> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.take_if(|folder| folder.parent() == Some(parent)).filter(|folder| is_new(folder))
    }

    /// Puts `folder` into the slot if the slot is free and the folder is empty. Returns true if it
    /// did.
    fn keep(&self, folder: &Path) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keeps = kept.0.is_none() && is_new(folder);
        if keeps {
            kept.0 = Some(folder.to_owned());
        }
        keeps
    }
}

/// True if a folder is empty, belongs to the user and is accessible to no other user.
fn is_new(folder: &Path) -> bool {
    let ours = fs::symlink_metadata(folder).is_ok_and(|found| {
        let mode = found.permissions().mode() & 0o7777;
        found.is_dir() && mode == 0o700 && found.uid() == nix::unistd::geteuid().as_raw()
    });
    ours && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Empty folder that only the user can enter. When dropped, it goes back to the slot if it is empty
/// and the slot is free; otherwise it is removed with its content, in the background unless it is
/// empty.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    spare: Spare,
}

impl Scratch {
    /// Takes the folder of the slot or creates a new one in `parent`, which is created if missing.
    /// Fails if `parent` is not a folder or belongs to another user, or the folder cannot be
    /// created.
    pub(crate) fn new(parent: &Path, spare: &Spare) -> io::Result<Scratch> {
        let spare = spare.clone();
        if let Some(folder) = spare.take(parent) {
            return Ok(Scratch { folder, spare });
        }
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        match fs::symlink_metadata(parent) {
            Ok(found) if found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() => (),
            Ok(_) => return Err(io::Error::other("the folder for temporary files is not ours")),
            Err(_) => builder.recursive(true).create(parent)?,
        }
        let only_us = fs::Permissions::from_mode(0o700);
        let folder =
            tempfile::Builder::new().prefix("t").permissions(only_us).tempdir_in(parent)?.keep();
        Ok(Scratch { folder, spare })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Most commands leave nothing behind; remaining files are removed in the background.
        if self.spare.keep(&self.folder) || fs::remove_dir(&self.folder).is_ok() {
            return;
        }
        let folder = std::mem::take(&mut self.folder);
        let remove = move || {
            if let Err(error) = remove(&folder) {
                tracing::debug!(%error, "a temporary folder stays");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("posse-scratch".into()).spawn(remove) {
            tracing::debug!(%error, "a temporary folder stays");
        }
    }
}

/// Removes `path` and everything below it, without following symbolic links.
fn remove(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    // The owner of an unreadable folder can make it readable.
    open_up(path);
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Makes the folder `path` and all folders below it accessible to the user (mode 0700). Follows no
/// symbolic links and ignores errors.
pub fn open_up(path: &Path) {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        if fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).ok();
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_one_removes_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        let parent = place.path().join("temporary");
        fs::create_dir_all(&parent).unwrap();
        fs::create_dir(&outside).unwrap();
        let kept = outside.join("kept");
        let scratch = |fill: &dyn Fn(&Path)| {
            fs::write(&kept, "kept").unwrap();
            let scratch = Scratch::new(&parent, &Spare::default()).unwrap();
            let path = scratch.path().to_owned();
            fill(&path);
            drop(scratch);
            // Leftovers are removed by a thread of their own.
            let begin = std::time::Instant::now();
            while fs::symlink_metadata(&path).is_ok() {
                assert!(begin.elapsed() < std::time::Duration::from_secs(20), "it stays");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        };
        let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at);
        scratch(&|path| {
            link(&outside, &path.join("folder")).unwrap();
            link(&kept, &path.join("file")).unwrap();
            link(Path::new("/"), &path.join("root")).unwrap();
            link(Path::new(".."), &path.join("up")).unwrap();
        });
        // The folder itself was replaced by a link or a file.
        scratch(&|path| {
            fs::remove_dir(path).unwrap();
            link(&outside, path).unwrap();
        });
        scratch(&|path| {
            fs::remove_dir(path).unwrap();
            fs::write(path, "a file").unwrap();
        });
        // Names that are not UTF-8, inaccessible folders, and deep nesting.
        scratch(&|path| {
            use std::os::unix::ffi::OsStrExt;
            let odd = path.join(std::ffi::OsStr::from_bytes(b"\xff\n*"));
            fs::create_dir_all(odd.join("a").join("b".repeat(200))).unwrap();
            fs::set_permissions(&odd, fs::Permissions::from_mode(0o0)).unwrap();
        });
        scratch(&|path| {
            let mut deep = path.to_owned();
            for _ in 0..300 {
                deep.push("deep");
            }
            fs::create_dir_all(&deep).unwrap();
        });
    }

    #[test]
    fn reused_only_if_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let spare = Spare::default();
        let path = |scratch: &Scratch| scratch.path().to_owned();
        let first = Scratch::new(place.path(), &spare).unwrap();
        let first_path = path(&first);
        drop(first);
        let second = Scratch::new(place.path(), &spare).unwrap();
        assert_eq!(path(&second), first_path);
        let beside = Scratch::new(place.path(), &spare).unwrap();
        assert_ne!(path(&beside), first_path);
        fs::set_permissions(second.path(), fs::Permissions::from_mode(0o755)).unwrap();
        drop(second);
        let third = Scratch::new(place.path(), &spare).unwrap();
        assert_ne!(path(&third), first_path);
        drop((third, beside, spare));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
