//! Reads folders of agent files, with limits, without blocking, and without leaving the folder.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{ErrorCode, Exit, Failure, printable};

/// Maximum number of files per folder.
const FILES_MAX: usize = 200;
/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 64 << 10;

/// One agent file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentFile {
    /// File name without the extension.
    pub(crate) name: String,
    /// Path, printable.
    pub(crate) shown: String,
    pub(crate) bytes: Vec<u8>,
}

/// Files of `folder` by name, and errors of unreadable ones. `within`: folder that must contain
/// them after links are resolved.
pub(crate) fn read(folder: &Path, within: Option<&Path>) -> (Vec<AgentFile>, Vec<Failure>) {
    let mut files = Vec::new();
    let mut flaws = Vec::new();
    // A missing folder has no files.
    let Ok(entries) = fs::read_dir(folder) else { return (files, flaws) };
    let is_agent = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut paths: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_agent).collect();
    paths.sort_unstable();
    if paths.len() > FILES_MAX {
        let what = format!("only the first {FILES_MAX} agent files are read");
        let shown = printable(&folder.display().to_string());
        flaws.push(
            Failure::new(ErrorCode::AgentFileUnreadable, Exit::Configuration, what).at(shown),
        );
    }
    for path in paths.into_iter().take(FILES_MAX) {
        let shown = printable(&path.display().to_string());
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match bytes(&path, within) {
            Ok(bytes) => files.push(AgentFile { name, shown, bytes }),
            Err(why) => {
                let what = "an agent file cannot be read, and is left out";
                let failure =
                    Failure::new(ErrorCode::AgentFileUnreadable, Exit::Configuration, what);
                flaws.push(failure.at(shown).because(why));
            }
        }
    }
    (files, flaws)
}

fn bytes(path: &Path, within: Option<&Path>) -> Result<Vec<u8>, String> {
    let resolved = path.canonicalize().map_err(|error| error.to_string())?;
    if within.is_some_and(|root| !resolved.starts_with(root)) {
        return Err("it leads out of the project".into());
    }
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY | nix::libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&resolved);
    let file = file.map_err(|error| error.to_string())?;
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a file".into());
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    Ok(bytes)
}
