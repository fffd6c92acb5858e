//! Stores of checkpoints for commands: their place and errors.

use std::path::{Path, PathBuf};

use crate::checkpoint::{FOLDER, Store, StoreError, unavailable};
use crate::config::{CheckpointSettings, Dirs};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::journal::StateDir;
use crate::sandbox::marks_folder;
use crate::tools::workspace::Workspace;

/// Folder of the checkpoints of the project in `cwd`.
pub(super) fn folder(cwd: &Path, dirs: &Dirs) -> PathBuf {
    StateDir::new(dirs.state.clone()).project_dir(cwd).join(FOLDER)
}

/// Opens the store in `folder` for the workspace. `CKP001` if checkpoints are not available.
pub(super) fn store(
    folder: &Path,
    workspace: Workspace,
    settings: &CheckpointSettings,
    dirs: &Dirs,
) -> Result<Store, Failure> {
    if let Some(reason) = unavailable() {
        let what = "checkpoints are not available";
        return Err(Failure::new(ErrorCode::CheckpointsUnavailable, Exit::Failed, what)
            .because(reason)
            .fix("install git"));
    }
    let marks = marks_folder(&dirs.state);
    Store::open(folder.to_owned(), workspace, settings.file_bytes_max, marks)
        .map_err(|error| failure(&error, folder))
}

/// The error of a store as a failure of a command. `folder`: that of the store.
pub(super) fn failure(error: &StoreError, folder: &Path) -> Failure {
    let text = error.to_string();
    match error {
        StoreError::NotFound(_) => Failure::new(ErrorCode::CheckpointNotFound, Exit::Usage, text)
            .fix("choose one of `posse checkpoints list`"),
        StoreError::OtherRoots(..) => {
            Failure::new(ErrorCode::CheckpointNotFound, Exit::Usage, text)
                .fix("restore it in a session with these folders")
        }
        StoreError::Full => Failure::new(ErrorCode::CheckpointStore, Exit::Failed, text)
            .at(folder.display().to_string())
            .fix("free disk space, or remove old ones with `posse checkpoints prune`"),
        StoreError::Io(_) | StoreError::Git(_) | StoreError::Stopped => {
            Failure::new(ErrorCode::CheckpointStore, Exit::Failed, text)
                .at(folder.display().to_string())
                .fix("check the folder; without it, posse makes a new one")
        }
    }
}
