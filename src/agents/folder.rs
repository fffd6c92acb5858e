//! Reads folders of agent files, with size limits and without blocking. Files of a project must lie
//! within the project after symbolic links are resolved.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use posse_base::resolved_path;
use posse_base::secrets::files::SecretFiles;
use posse_base::secrets::way;

use crate::found_files::is_instruction_name;

/// Maximum number of files per folder.
const FILES_MAX: usize = 200;
/// Maximum size of a file in bytes.
const BYTES_MAX: usize = 64 << 10;

/// One agent file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentFile {
    /// File name without the extension.
    pub(crate) name: String,
    /// Path of the file, in printable form.
    pub(crate) shown: String,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the first 200 agent files (`*.md`) of `folder`, sorted by name. Also returns an error for
/// each file that is unreadable or longer than 64 KiB, and one if there are more than 200.
/// `within`: folder that must contain the files after symbolic links are resolved.
pub(crate) fn read(folder: &Path, within: Option<&Path>) -> (Vec<AgentFile>, Vec<Failure>) {
    let (mut files, mut flaws) = (Vec::new(), Vec::new());
    // A missing folder has no files.
    let Ok(entries) = fs::read_dir(folder) else { return (files, flaws) };
    let flaw = |what: String, place: String| {
        Failure::new(ErrorCode::AgentFileUnreadable, Exit::Configuration, what).at(place)
    };
    let is_agent = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut paths: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_agent).collect();
    paths.sort_unstable();
    if paths.len() > FILES_MAX {
        let what = format!("only the first {FILES_MAX} agent files are read");
        flaws.push(flaw(what, printable(&folder.display().to_string())));
    }
    for path in paths.into_iter().take(FILES_MAX) {
        let shown = printable(&path.display().to_string());
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match read_file(&path, within.map(|root| (root, "project")), BYTES_MAX, |_| false) {
            Ok(bytes) if bytes.len() <= BYTES_MAX => files.push(AgentFile { name, shown, bytes }),
            read => {
                let long = |_| format!("it is longer than {BYTES_MAX} bytes");
                let why = read.map_or_else(|why| why, long);
                let what = "an agent file cannot be read, and is left out".to_owned();
                flaws.push(flaw(what, shown).because(why));
            }
        }
    }
    (files, flaws)
}

/// Reads up to `limit` + 1 bytes of a regular file, without blocking. `within`: folder without links
/// in its path that must contain the file after symbolic links are resolved, and a word for that
/// folder. With `within`, a file that is or may be a secret is an error, because its text would be
/// sent to the provider. So is one for which `is_denied` is true, also if that is a name of it on the
/// way.
pub(super) fn read_file(
    path: &Path,
    within: Option<(&Path, &str)>,
    limit: usize,
    is_denied: impl Fn(&Path) -> bool,
) -> Result<Vec<u8>, String> {
    let resolved = match within {
        Some((root, word)) => resolve_within(path, root, word)?,
        None => path.canonicalize().map_err(|error| error.to_string())?,
    };
    if is_denied(path) || is_denied(&resolved) {
        return Err("a deny rule of the user covers it".into());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = resolved_path::open(&resolved, flags).map_err(|error| error.to_string())?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    if within.is_some() && metadata.nlink() > 1 {
        return Err("it has several hard links, and one may be a secret file; copy it to a new \
                    file"
            .into());
    }
    if within.is_some() && SecretFiles::of_process().contains(&metadata) {
        return Err("it is a secret file that was renamed".into());
    }
    let mut bytes = Vec::new();
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Resolves the links of `path`. Fails if it leads out of `root`, through a name of a secret, or by a
/// link to a file without the name of one that has instructions, to which a link with the name of a
/// secret may lead, too.
fn resolve_within(path: &Path, root: &Path, word: &str) -> Result<PathBuf, String> {
    let way = way::resolve(root, path).map_err(|error| error.to_string())?;
    if !way.path.starts_with(root) {
        return Err(format!("it leads out of the {word}"));
    }
    if way.names_secret {
        return Err("it leads to a secret file".into());
    }
    let is_alike = || way.path.extension().is_some_and(|ending| path.extension() == Some(ending));
    if way.is_linked && !is_alike() && !is_instruction_name(way.path.file_name()) {
        let below = way.path.strip_prefix(root).unwrap_or(&way.path).display().to_string();
        return Err(format!(
            "it leads to {}, which may hold other things than instructions; give that file a name \
             that ends in .md",
            printable(&below)
        ));
    }
    Ok(way.path)
}
