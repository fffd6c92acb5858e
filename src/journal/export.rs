//! Exports a session as Markdown or as one self-contained HTML page.
//!
//! Everything in a journal may come from a model, a repository or a server, so nothing in it
//! becomes markup: control characters and direction overrides are escaped, HTML is text, links lead
//! to http or https only, and the document loads nothing.

mod html;
mod markdown;
mod safe;
mod story;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::tz::TimeZone;
use memchr::memmem;
use posse_actors::event::Event;
use posse_base::failure::{ErrorCode, Exit, Failure};

use crate::commands::{damaged, ended};
use crate::export::story::Story;
use crate::read;
use crate::state::{StateDir, StoredSession, Within};

/// Maximum number of sessions that a document shows before the exported one, and maximum number of the
/// record that names the original of a copy.
const ORIGINALS_MAX: usize = 32;
const FORK_RECORD_MAX: u64 = 100;

/// Format of an exported document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Markdown, for other tools.
    Markdown,
    /// One HTML page, for people.
    Html,
}

/// Writes session `id`, or the only one whose id begins with `id`, as a document into a new `file`,
/// or to `out` if `file` is `None`. It is an error if the file exists. If the journal is damaged,
/// the document contains the valid records, and the result is an error.
pub fn export(
    state: &StateDir,
    id: &str,
    format: ExportFormat,
    file: Option<&Path>,
    zone: &TimeZone,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let found = state.find(Within::Everywhere, id)?;
    let mut story = Story::new(&found.id);
    for (original, last) in originals(state, &found) {
        let read =
            read::until(&original, last, &|_| true, &mut |record| story.add_original(record));
        // Without all of its records, the messages that the copy took over are shown.
        if matches!(read, Ok(None)) {
            story.end_original();
        }
    }
    let problem = read::each_record(&found, &mut |record| story.add(record))?;
    if let Some(problem) = &problem {
        story.broken(problem);
    }
    let write = |out: &mut dyn Write| match format {
        ExportFormat::Markdown => markdown::write(&story, zone, out),
        ExportFormat::Html => html::write(&story, zone, out),
    };
    match file {
        None => {
            let written = write(out);
            ended(written, out, Exit::Done)?;
        }
        Some(file) => {
            let created = create(file).map_err(|error| unwritable(file, &error))?;
            let mut document = BufWriter::new(created);
            let written = write(&mut document).and_then(|()| document.flush());
            written.map_err(|error| {
                // A part of a document is of no use, and would prevent the next attempt.
                std::fs::remove_file(file).ok();
                unwritable(file, &error)
            })?;
        }
    }
    match problem {
        None => Ok(Exit::Done),
        Some(problem) => Err(damaged(&found, problem)
            .because("the document contains the records that the journal still proves")),
    }
}

/// The sessions of which `found` is a copy, directly and through other copies, oldest first: each with
/// its last record that belongs to the copy. Without those that were removed.
fn originals(state: &StateDir, found: &StoredSession) -> Vec<(StoredSession, u64)> {
    let mut found = found.clone();
    let mut originals = Vec::new();
    while originals.len() < ORIGINALS_MAX {
        let mut parent = None;
        let is_fork = |line: &[u8]| memmem::find(line, b"\"session.forked\"").is_some();
        read::until(&found, FORK_RECORD_MAX, &is_fork, &mut |record| {
            if let Event::SessionForked { parent: of, parent_record, .. } = record.event {
                parent = Some((of, parent_record));
            }
        })
        .ok();
        let Some((id, last)) = parent else { break };
        let Ok(original) = state.find(Within::Everywhere, id.as_str()) else { break };
        found = original.clone();
        originals.insert(0, (original, last));
    }
    originals
}

/// Creates a new file that only the user can access, because sessions contain private data.
fn create(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    let failure =
        Failure::new(ErrorCode::DocumentUnwritable, Exit::Failed, "cannot write the document")
            .at(file.display().to_string())
            .because(error.to_string());
    match error.kind() {
        io::ErrorKind::AlreadyExists => failure.fix("remove it first, or name another file"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests;
