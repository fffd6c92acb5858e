//! Atomic replacement of posse's own files.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Replaces the content of the file at `path` atomically and syncs it. Creates missing folders with
/// mode 0700 and a missing file with mode 0600. An existing file keeps its mode. If `path` is a
/// symbolic link, its target is replaced. Fails for a link whose target does not exist.
pub(crate) fn replace(path: &Path, content: &str) -> io::Result<()> {
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                // The link is the user's; what it leads to may come back, such as a mounted folder.
                return Err(io::Error::new(error.kind(), "it is a link to a missing file"));
            }
            std::path::absolute(path)?
        }
        Err(error) => return Err(error),
    };
    let folder = target.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mode = fs::metadata(&target).map_or(0o600, |old| old.permissions().mode() & 0o777);
    let mut file = tempfile::Builder::new().prefix(".posse-").tempfile_in(folder)?;
    file.write_all(content.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems know no way to sync a folder.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_to_a_missing_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(replace(&link, "new").is_err());
        assert!(link.is_symlink() && !target.exists());
        fs::write(&target, "old").unwrap();
        replace(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    }
}
