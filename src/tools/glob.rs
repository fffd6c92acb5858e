//! `glob`: finds files by their paths, newest first.

use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::GlobMatcher;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, Tool, ToolAnnotations, ToolError, ToolOutput,
};
use posse_base::failure::printable;
use posse_base::path_globs::PathGlobs;
use serde::Deserialize;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::listing::{self, Stop};
use crate::workspace::{Located, open_beneath};
use crate::{ToolEnvironment, digest, grep, left_out, output, prepared, refusal, spec};

pub(crate) const NAME: &str = "glob";
/// Rule group of the tool.
pub(crate) const GROUP: &str = "Glob";

/// Maximum number of paths in a result.
const PATHS_MAX: usize = 1000;

/// Creates the tool `glob`.
pub fn tool(env: Arc<ToolEnvironment>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Finds files by a glob such as src/**/*.rs or *.toml (any folder), newest \
                      first. Skips ignored files.",
        ToolAnnotations::new(Access::Read).in_rules(GROUP),
        &json!({
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "folder to start from"},
        }),
        &["pattern"],
    );
    Arc::new(BuiltinTool::new(spec, env, prepare, run))
}

#[derive(Debug, Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

struct GlobPayload {
    glob: GlobMatcher,
    place: Located,
    directory: OwnedFd,
    denied: PathGlobs,
}

async fn prepare(
    env: Arc<ToolEnvironment>,
    Arguments { pattern, path }: Arguments,
    _: CallContext,
) -> Result<Prepared, ToolError> {
    let glob = grep::glob(&pattern)?;
    let place = env.workspace.locate(path.as_deref().unwrap_or("."))?;
    if place.entry().is_none() {
        return Ok(refusal::missing(NAME, &place));
    }
    let directory = place.open_dir()?;
    let shown = place.shown();
    let words = (
        format!("list {} in {shown}", printable(output::prefix_within(&pattern, 80))),
        format!("list {} in {shown}", printable(&pattern)),
    );
    let path = place.absolute().as_os_str().as_encoded_bytes();
    let digest = digest::of(&[NAME.as_bytes(), pattern.as_bytes(), path]);
    let operations = vec![place.read()];
    let denied = env.denied_reads.glob.clone();
    Ok(prepared(NAME, operations, words, digest, GlobPayload { glob, place, directory, denied }))
}

async fn run(_: Arc<ToolEnvironment>, payload: GlobPayload, context: RunContext) -> RunResult {
    Ok(listing::search(move |stop| find(&payload, context.output_bytes_max, stop)).await)
}

fn find(payload: &GlobPayload, bytes_max: usize, stop: &Stop) -> ToolOutput {
    let listing = listing::of(payload.place.absolute(), stop);
    let wanted = listing.files.into_iter().filter(|path| payload.glob.is_match(path));
    let is_denied = |path: &PathBuf| payload.place.denies(&payload.denied, path);
    let (denied, wanted): (Vec<PathBuf>, Vec<PathBuf>) = wanted.partition(is_denied);
    let mut found: Vec<(i64, i64, PathBuf)> = wanted
        .into_iter()
        .filter_map(|path| {
            let (seconds, nanoseconds) = changed(&payload.directory, &path)?;
            Some((seconds, nanoseconds, path))
        })
        .collect();
    // Newest first; equal times by path.
    found.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)).then_with(|| a.2.cmp(&b.2)));
    let total = found.len();
    let mut text = String::new();
    let mut shown = 0;
    for (_, _, path) in found.iter().take(PATHS_MAX) {
        let row = format!("{}\n", payload.place.shown_below(path));
        // Reserve for the truncation notice.
        if text.len() + row.len() + 200 > bytes_max {
            break;
        }
        text.push_str(&row);
        shown += 1;
    }
    let more = if listing.is_cut { " or more" } else { "" };
    if total == 0 {
        text = format!("no files match{}", if listing.is_cut { " so far: time is up" } else { "" });
    } else if shown < total || listing.is_cut {
        let _ = write!(text, "[{shown} of {total}{more} files, newest first; narrow the glob]");
    }
    if !denied.is_empty() {
        let line_end = if text.ends_with('\n') { "" } else { "\n" };
        let _ = write!(text, "{line_end}{}", left_out(denied.len(), "file", "files"));
    }
    ToolOutput::text(text).with_metadata(json!({
        "files": total,
        "shown": shown,
        "truncated": shown < total || listing.is_cut,
        "deniedSkipped": denied.len(),
    }))
}

/// Modification time of the file `path` beneath `directory`: seconds and nanoseconds since 1970.
/// `None` if the file cannot be opened.
fn changed(directory: &OwnedFd, path: &Path) -> Option<(i64, i64)> {
    let opened = open_beneath(directory, path, OPEN).ok()?;
    let stat = fstat(&opened).ok()?;
    Some((stat.st_mtime, stat.st_mtime_nsec))
}

/// Flags for opening a file to read its metadata. Opening a pipe must not block.
#[cfg(target_os = "linux")]
const OPEN: OFlag = OFlag::O_PATH;
#[cfg(not(target_os = "linux"))]
const OPEN: OFlag = OFlag::O_NONBLOCK;

#[cfg(test)]
mod tests;
