//! `list_dir`: lists a folder.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nix::dir::Dir;
use nix::fcntl::readlinkat;
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
};
use serde::Deserialize;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::text::count;
use crate::workspace::{FileKind, FileStatus, Located, names, refused};
use crate::{ToolEnvironment, blocking, left_out, prepared, refusal, spec};
use posse_base::hex::sha256;
use posse_base::path_globs::PathGlobs;

pub(crate) const NAME: &str = "list_dir";
/// Rule group of the tool.
pub(crate) const GROUP: &str = "LS";

/// Maximum number of entries that are listed.
const SHOWN_MAX: usize = 500;
/// Maximum number of entries read, of which the first ones by name are listed. Of a larger folder,
/// these are any entries.
const READ_MAX: usize = 20_000;

/// Creates the tool `list_dir`.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Lists a folder, hidden entries too, at most 500: folders end with `/`, files have their \
         size in bytes, links show where they lead.",
        ToolAnnotations::new(Access::Read).in_rules(GROUP),
        &json!({ "path": { "type": "string", "description": "Default: working directory" } }),
        &[],
    );
    Arc::new(BuiltinTool::new(spec, env, prepare, run))
}

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
}

/// Prepared call: the open folder to list.
struct OpenFolder {
    folder: Dir,
    shown: String,
    place: Located,
    denied: PathGlobs,
}

async fn prepare(
    env: Arc<ToolEnvironment>,
    Arguments { path }: Arguments,
    _: CallContext,
) -> Result<Prepared, ToolError> {
    let place = env.workspace.locate(path.as_deref().unwrap_or("."))?;
    if place.entry().is_none() {
        return Ok(refusal::missing(NAME, &place));
    }
    let shown = place.shown();
    let folder = Dir::from_fd(place.open_dir()?).map_err(|errno| refused(&shown, errno))?;
    let identity = place.existing()?.identity();
    let path = place.absolute().display();
    let digest = sha256(format!("list_dir\0{path}\0{identity:?}").as_bytes());
    let words = (format!("list {shown}"), String::new());
    let (operations, denied) = (vec![place.read()], env.denied_reads.list_dir.clone());
    Ok(prepared(NAME, operations, words, digest, OpenFolder { folder, shown, place, denied }))
}

async fn run(_: Arc<ToolEnvironment>, listing: OpenFolder, _: RunContext) -> RunResult {
    blocking(move || listing.run()).await
}

impl OpenFolder {
    fn run(mut self) -> RunResult {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let (mut complete, mut left) = (true, 0);
        for entry in self.folder.iter() {
            let entry = entry.map_err(|errno| refused(&self.shown, errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() == READ_MAX {
                complete = false;
                break;
            }
            let path = Path::new(OsStr::from_bytes(name));
            if self.place.denies(&self.denied, path) {
                left += 1;
                continue;
            }
            names.push(name.to_owned());
        }
        let total = names.len();
        names.sort_unstable();
        names.truncate(SHOWN_MAX);
        let mut text = String::new();
        for name in &names {
            text.push_str(&line(&self.folder, OsStr::from_bytes(name)));
            text.push('\n');
        }
        if total == 0 && left > 0 {
            text.push_str("[0 entries]");
        } else {
            text.push_str(&footer(&self.shown, names.len(), total, complete));
        }
        if left > 0 {
            let _ = write!(text, "\n{}", left_out(left, "entry", "entries"));
        }
        Ok(ToolOutput::text(text).with_metadata(json!({
            "entries": total,
            "entriesAreAll": complete,
            "shown": names.len(),
            "deniedSkipped": left,
        })))
    }
}

fn footer(shown: &str, listed: usize, total: usize, complete: bool) -> String {
    match (listed, complete) {
        (0, _) => format!("{shown} is empty"),
        (_, false) => format!(
            "[{listed} of more than {total} entries, not necessarily the first ones; use glob]"
        ),
        (_, true) if listed < total => format!("[the first {listed} of {total} entries; use glob]"),
        (_, true) if total == 1 => "[1 entry]".to_owned(),
        (_, true) => format!("[{total} entries]"),
    }
}

/// Formats the line for the entry `name` of `folder`: its name, followed by `/` for a folder, the
/// size of a file, the target of a link, or `pipe`, `socket` or `device`.
fn line(folder: impl AsFd, name: &OsStr) -> String {
    let mut line = names::shown(Path::new(name));
    let Ok(entry) = FileStatus::at(&folder, Path::new(name)) else { return line };
    // Writing to a string cannot fail.
    match entry.kind {
        FileKind::Folder => line.push('/'),
        FileKind::File => {
            let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
            let _ = write!(line, "  {}", count(size, "byte"));
        }
        FileKind::Link => {
            let target = readlinkat(&folder, name).map(|target| names::shown(Path::new(&target)));
            let _ = write!(line, " -> {}", target.unwrap_or_else(|_| "?".to_owned()));
        }
        FileKind::Pipe => line.push_str("  pipe"),
        FileKind::Socket => line.push_str("  socket"),
        FileKind::Device => line.push_str("  device"),
    }
    line
}

#[cfg(test)]
mod tests;
