//! Opens the workspace with the folders of `--add-dir` and `workspace.roots`.

use std::path::{Path, PathBuf};

use crate::config::Settings;
use crate::failure::Failure;
use crate::tools::workspace::Workspace;

/// Opens the workspace at `cwd` with the folders `added` and those of `settings`. An error about a
/// folder of `workspace.roots` names the setting and its source.
pub(crate) fn open(
    cwd: &Path,
    added: &[PathBuf],
    settings: &Settings,
) -> Result<Workspace, Failure> {
    let folders = [added, &settings.workspace_roots].concat();
    Workspace::open(cwd, &folders).map_err(|failure| locate(failure, settings))
}

fn locate(failure: Failure, settings: &Settings) -> Failure {
    let from = settings.workspace_roots_from.as_deref();
    let Some((place, from)) = failure.place.clone().zip(from) else { return failure };
    if !settings.workspace_roots.iter().any(|root| root.display().to_string() == place) {
        return failure;
    }
    failure
        .at(format!("{place}, of workspace.roots ({from})"))
        .fix("correct workspace.roots, or create the folder and make it readable")
}

/// The folders that commands of a session with these roots may write, apart from temporary ones.
pub(crate) fn writable<R: AsRef<Path>>(roots: &[R], settings: &Settings) -> Vec<PathBuf> {
    let roots = roots.iter().map(|root| root.as_ref().to_owned());
    roots.chain(settings.sandbox.writable_roots.iter().cloned()).collect()
}
