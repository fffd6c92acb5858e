//! The temporary folder of one command.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A new folder that only the user can enter. Removed when dropped, with all that is in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below `parent`, which is made as well if it is not there.
    pub(crate) fn new(parent: &Path) -> io::Result<Scratch> {
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
        Ok(Scratch(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Most commands leave nothing behind; what others leave is removed without waiting.
        if fs::remove_dir(&self.0).is_ok() {
            return;
        }
        let folder = std::mem::take(&mut self.0);
        let remove = move || {
            if let Err(error) = fs::remove_dir_all(&folder) {
                tracing::debug!(%error, "a temporary folder stays");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("posse-scratch".into()).spawn(remove) {
            tracing::debug!(%error, "a temporary folder stays");
        }
    }
}
