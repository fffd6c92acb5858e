//! `grep`: finds lines that match a regular expression.

pub mod search;

use std::error::Error;
use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use nix::fcntl::OFlag;
use posse_actors::ports::{
    Access, CallContext, Operation, Prepared, RunContext, Tool, ToolAnnotations, ToolError,
    ToolOutput,
};
use posse_base::failure::printable;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::committed_secrets::{self, ReadingTool};
use crate::grep::search::{Hits, Query, SearchResult};
use crate::listing::{self, Stop};
use crate::workspace::{FileKind, Located};
use crate::{digest, left_out, output, parsed, prepared, refusal, spec};

pub(crate) const NAME: &str = "grep";
/// Rule group of the tool.
pub(crate) const GROUP: &str = "Grep";

const MATCHES_DEFAULT: usize = 200;
const MATCHES_MAX: usize = 1000;
const OFFSET_MAX: usize = 100_000;
const CONTEXT_MAX: usize = 20;
const PATTERN_BYTES_MAX: usize = 10_000;

/// Maximum bytes of a compiled pattern, and of its search cache. A larger pattern is an error.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes shown of an error message of the regex engine.
const REASON_BYTES_MAX: usize = 1000;

/// Creates the tool `grep`.
pub fn tool(reading: Arc<ReadingTool>) -> Arc<dyn Tool> {
    let spec = spec(
        NAME,
        "Finds lines that match a regular expression (Rust syntax), as \
                      path:line:text. Skips ignored, binary and secret files.",
        ToolAnnotations::new(Access::Read).in_rules(GROUP),
        &json!({
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "file or folder"},
            "glob": {"type": "string", "description": "only such files: *.rs"},
            "ignoreCase": {"type": "boolean"},
            "literal": {"type": "boolean", "description": "pattern is plain text"},
            "context": {"type": "integer", "description": "lines around a match"},
            "offset": {"type": "integer", "description": "matches to skip"},
            "limit": {"type": "integer", "description": "default 200"},
        }),
        &["pattern"],
    );
    Arc::new(BuiltinTool::new(spec, reading, prepare, run))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    context: f64,
    #[serde(default)]
    offset: f64,
    limit: Option<f64>,
}

struct GrepPayload {
    query: Query,
    place: Located,
    opened: OwnedFd,
    is_folder: bool,
    /// True if it is a file with the name of a secret that was as in the commit when it was opened.
    is_committed: bool,
    offset: usize,
    limit: usize,
}

async fn prepare(
    tool: Arc<ReadingTool>,
    arguments: Value,
    _: CallContext,
) -> Result<Prepared, ToolError> {
    let ReadingTool { env, committed } = &*tool;
    let text = arguments.to_string();
    let given: Arguments = parsed(arguments)?;
    let matcher = compile(&given)?;
    let glob = given.glob.as_deref().map(glob).transpose()?;
    let place = env.workspace.locate(given.path.as_deref().unwrap_or("."))?;
    let Some(entry) = place.entry() else { return Ok(refusal::missing(NAME, &place)) };
    let is_folder = entry.kind == FileKind::Folder;
    committed.search_once().await;
    if place.has_secret_name() {
        committed.decide().await;
    }
    let opened = if is_folder { place.open_dir()? } else { place.open_file(OFlag::O_RDONLY)? };
    let shown = place.shown();
    let words = (
        format!("search {shown} for {}", printable(output::prefix_within(&given.pattern, 80))),
        format!("search {shown} for {}", printable(&given.pattern)),
    );
    let path = place.absolute().as_os_str().as_encoded_bytes();
    let digest = digest::of(&[NAME.as_bytes(), text.as_bytes(), path]);
    let operation = place.read_open(&opened, committed);
    let is_committed = matches!(operation, Operation::Read { is_committed: true, .. });
    let query = Query {
        matcher,
        glob,
        context: bounded(given.context, 0, CONTEXT_MAX),
        readable_secrets: env.readable_secrets.clone(),
        denied: env.denied_reads.grep.clone(),
        ways: place.ways().to_vec(),
        links: Some(env.workspace.secret_links()),
        committed: Some(committed.clone()),
    };
    let offset = bounded(given.offset, 0, OFFSET_MAX);
    let limit = given.limit.map_or(MATCHES_DEFAULT, |limit| bounded(limit, 1, MATCHES_MAX));
    let payload = GrepPayload { query, place, opened, is_folder, is_committed, offset, limit };
    Ok(prepared(NAME, vec![operation], words, digest, payload))
}

async fn run(tool: Arc<ReadingTool>, payload: GrepPayload, context: RunContext) -> RunResult {
    let payload = Arc::new(payload);
    let begin = || {
        let payload = Arc::clone(&payload);
        listing::search(move |stop: &Stop| search(&payload, stop))
    };
    let mut found = begin().await;
    let folder = payload.place.absolute();
    if tool.committed.decide_about(folder, &found.secret_names).await {
        found = begin().await;
    }
    if payload.is_committed && !tool.committed.contain(folder, payload.opened.as_fd()) {
        return Err(committed_secrets::changed(&payload.place.shown()));
    }
    Ok(report(&payload, &found, context.output_bytes_max))
}

fn compile(
    Arguments { pattern, ignore_case, literal, .. }: &Arguments,
) -> Result<RegexMatcher, ToolError> {
    if pattern.is_empty() {
        return Err(ToolError::new("ARG001", "pattern: an empty pattern matches every line"));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        let message = format!("pattern: longer than {PATTERN_BYTES_MAX} bytes");
        return Err(ToolError::new("ARG005", message));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(*ignore_case)
        .fixed_strings(*literal)
        .line_terminator(Some(b'\n'))
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .build(pattern)
        .map_err(|error| invalid("pattern: ", &error))
}

/// Compiles a path pattern. A pattern without `/` matches file names at any depth. Fails if the
/// pattern is invalid, empty, longer than 1000 bytes, absolute, or contains `..`.
pub(crate) fn glob(pattern: &str) -> Result<GlobMatcher, ToolError> {
    if pattern.is_empty() || pattern.len() > 1000 {
        return Err(ToolError::new("ARG005", "the glob is empty or longer than 1000 bytes"));
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        let message = "a glob is relative to `path` and cannot leave it: use `path` for the folder";
        return Err(ToolError::new("ARG002", message));
    }
    let anywhere = if pattern.contains('/') { "" } else { "**/" };
    let glob = GlobBuilder::new(&format!("{anywhere}{pattern}")).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| invalid("", &error))
}

fn invalid(what: &str, error: &dyn Error) -> ToolError {
    let reason = error.to_string();
    let reason = output::prefix_within(&reason, REASON_BYTES_MAX);
    ToolError::new("ARG005", format!("{what}{reason}"))
}

/// Converts a number from the model to an integer between `min` and `max`, both inclusive.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "it was clamped to small whole numbers"
)]
fn bounded(number: f64, min: usize, max: usize) -> usize {
    number.clamp(min as f64, max as f64) as usize
}

fn search(payload: &GrepPayload, stop: &Stop) -> SearchResult {
    let GrepPayload { query, place, opened, .. } = payload;
    let matches_max = payload.offset + payload.limit;
    if payload.is_folder {
        let below_root = place.below_root();
        return search::tree(place.absolute(), opened, below_root, query, matches_max, stop);
    }
    match opened.try_clone() {
        Ok(file) => search::file(PathBuf::new(), file.into(), query, matches_max, stop),
        Err(error) => {
            tracing::debug!(%error, "no descriptor for a search");
            SearchResult { is_cut: true, is_unopened: true, ..SearchResult::default() }
        }
    }
}

fn report(payload: &GrepPayload, found: &SearchResult, bytes_max: usize) -> ToolOutput {
    // Reserve for the truncation notice.
    let bytes_max = bytes_max.saturating_sub(300);
    let mut listed = Listed { skip: payload.offset, bytes_max, ..Listed::default() };
    for hits in &found.files {
        listed.add(&payload.place.shown_below(&hits.path), hits);
        if listed.is_full {
            break;
        }
    }
    let Listed { mut text, matches, is_full, .. } = listed;
    let is_cut = is_full || found.is_cut;
    // Writing to a string cannot fail.
    let _ = match matches {
        0 if found.matches > 0 => write!(text, "no match after the first {}", found.matches),
        0 => write!(text, "no match in {} files", found.searched),
        _ => Ok(()),
    };
    if is_cut && matches > 0 {
        let next = payload.offset + matches;
        let _ = write!(
            text,
            "[{matches} matches shown, there may be more: offset={next}, or narrow it]"
        );
    } else if is_cut {
        text.push_str(if is_full {
            "; the next match is longer than a result may be: narrow it, or read the file"
        } else if found.is_unopened {
            " so far; the file could not be opened for the search"
        } else {
            " so far; the search ended early because of its time limit or the number of files: \
             narrow it with path or glob"
        });
    }
    if found.secrets > 0 {
        let line_end = if text.ends_with('\n') { "" } else { "\n" };
        let _ = write!(text, "{line_end}[{} secret files not searched]", found.secrets);
    }
    if found.denied > 0 {
        let line_end = if text.ends_with('\n') { "" } else { "\n" };
        let note = left_out(found.denied, "file", "files");
        let _ = write!(text, "{line_end}{note}");
    }
    ToolOutput::text(text).with_metadata(json!({
        "matches": matches,
        "files": found.files.len(),
        "searched": found.searched,
        "truncated": is_cut,
        "secretsSkipped": found.secrets,
        "deniedSkipped": found.denied,
    }))
}

/// Lines for the model, collected up to the size limit `bytes_max`. The first `skip` matches are
/// left out.
#[derive(Default)]
struct Listed {
    text: String,
    skip: usize,
    matches: usize,
    bytes_max: usize,
    /// True if a line did not fit any more.
    is_full: bool,
}

impl Listed {
    /// Adds the matches of one file, with their context lines, until a line does not fit.
    fn add(&mut self, path: &str, hits: &Hits) {
        let has_context = hits.lines.iter().any(|line| !line.is_match);
        if has_context && !self.text.is_empty() {
            self.text.push_str("--\n");
        }
        for line in &hits.lines {
            if self.skip > 0 {
                self.skip -= usize::from(line.is_match);
                continue;
            }
            let mark = if line.is_match { ':' } else { '-' };
            let gap = if line.is_after_gap && !self.text.is_empty() { "--\n" } else { "" };
            let row = format!("{gap}{path}{mark}{}{mark}{}\n", line.number, line.text);
            if self.text.len() + row.len() > self.bytes_max {
                self.is_full = true;
                return;
            }
            self.text.push_str(&row);
            self.matches += usize::from(line.is_match);
        }
    }
}

#[cfg(test)]
mod tests;
