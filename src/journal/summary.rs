//! Summary of a session for lists. It is read from the first and last lines of a large journal, and
//! from all lines of a small one, so that the list agrees with `verify`.
//!
//! A damaged journal never breaks a list: its summary shows the readable part.

mod whole;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use posse_actors::conversation::{ContentPart, text_of};
use posse_actors::event::{Branch, Event, StoredRecord};
use posse_actors::replay::Replay;
use posse_actors::skills;
use serde::Serialize;

use crate::SOCKET;
use crate::lock::owner_of;
use crate::scan::{if_exists, open_to_read, record_of};
use crate::segments::{ACTIVE, closed_name, closed_segments};
use crate::session_state::{SessionState, of_replayed};
use crate::state::StoredSession;

/// Number of bytes read at the beginning and at the end of a journal: in the first read, and in a
/// second one if the first shows no prompt, or at the end no complete record.
const WINDOWS: [u64; 2] = [32 << 10, 2 << 20];
/// Number of lines at the beginning of a journal that are searched for the first prompt.
const LINES_MAX: usize = 32;
/// Maximum characters of a prompt or title in a summary.
const PROMPT_MAX: usize = 400;

/// Maximum number of entries of a folder whose sizes are added up.
const ENTRIES_MAX: usize = 10_000;

/// Maximum total bytes of the journals that are read whole for one list.
pub(crate) const WHOLE_BYTES_TOTAL_MAX: u64 = 256 << 20;

/// Maximum bytes of a journal that is read whole.
const WHOLE_BYTES_MAX: u64 = 8 << 20;

/// Maximum depth of folders below the session's folder whose sizes are added up.
const DEPTH_MAX: usize = 4;

/// Summary of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Session id.
    pub id: String,
    /// Slug of the project.
    pub project: String,
    /// State of the session.
    #[serde(flatten)]
    pub state: SessionState,
    /// True if a process owns the session and its attach socket exists.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub attachable: bool,
    /// Start time, in milliseconds since 1970: that of the first record that can be read near the
    /// beginning; `None` without one.
    pub started_ms: Option<u64>,
    /// Time of the last record, in milliseconds since 1970; `None` without a readable one.
    pub last_ms: Option<u64>,
    /// Number of the last record; 0 without a readable one.
    pub records: u64,
    /// Total size of the journal files, in bytes; 0 if a closed segment is missing.
    pub bytes: u64,
    /// Size of the session's folder in bytes: journal, spilled outputs, before-images of changed
    /// files. A minimum for folders with very many or deep entries.
    pub total_bytes: u64,
    /// Working directory at the start; `None` if it cannot be read.
    pub cwd: Option<String>,
    /// Name of the agent at the start; `None` if it cannot be read.
    pub agent: Option<String>,
    /// Name of the model at the start; `None` if it cannot be read.
    pub model: Option<String>,
    /// Title that the user or a model gave the session. `None` if none is recorded near the beginning or the
    /// end of the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Session of which it is a copy, and the last record that was copied. `None` for an original,
    /// or if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<Branch>,
    /// Beginning of the first prompt; `None` if it is not near the beginning of the journal.
    pub prompt: Option<String>,
    /// Number of model replies of the main agent; `None` if no end of the session is recorded near the end of the
    /// journal. For a large journal, the number in the last recorded end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Known cost in billionths of a US dollar; `None` if unknown. For a large journal, the cost in
    /// the last recorded end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Number of attempts of model requests whose cost is unknown, fully or in part.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced_requests: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Total size of the files in `dir` and its subfolders, in bytes. `depth` is the depth of `dir`
/// below the session's folder, 0 for the folder itself. Leaves out folders below `DEPTH_MAX`, all
/// but the first `ENTRIES_MAX` entries of a folder, and entries that cannot be read.
fn size_of(dir: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() && depth < DEPTH_MAX => size_of(&entry.path(), depth + 1),
        Ok(about) if about.is_file() => about.len(),
        Ok(_) | Err(_) => 0,
    };
    entries.take(ENTRIES_MAX).flatten().map(size).sum()
}

impl SessionSummary {
    /// Title of the session; its first prompt if it has no title. `None` if neither is known.
    pub fn about(&self) -> Option<&str> {
        self.title.as_deref().or(self.prompt.as_deref())
    }

    /// Reads the summary of session `found`. An unreadable journal gives a summary with the state
    /// `Damaged`.
    pub fn of(found: StoredSession) -> SessionSummary {
        SessionSummary::within(found, &mut { WHOLE_BYTES_TOTAL_MAX })
    }

    /// Reads the summary of session `found`. If its journal has at most `room` and at most
    /// `WHOLE_BYTES_MAX` bytes, reads it whole and subtracts its size from `room`.
    pub(crate) fn within(found: StoredSession, room: &mut u64) -> SessionSummary {
        let dir = found.dir;
        let mut summary = SessionSummary {
            id: found.id,
            project: found.project,
            total_bytes: size_of(&dir, 0),
            ..SessionSummary::default()
        };
        if let Err(error) = summary.read(&dir) {
            summary.state = SessionState::Damaged { what: error.to_string() };
        }
        if summary.bytes <= WHOLE_BYTES_MAX.min(*room) {
            *room -= summary.bytes;
            summary.read_whole(&dir);
        }
        if let Some(owner) = owner_of(&dir) {
            summary.state = summary.state.owned(owner);
            let socket = dir.join(SOCKET).symlink_metadata();
            summary.attachable = socket.is_ok_and(|found| found.file_type().is_socket());
        }
        summary
    }

    fn read(&mut self, dir: &Path) -> io::Result<()> {
        let closed = closed_segments(dir)?;
        if let Some(name) = closed.gap() {
            return Err(io::Error::other(format!("{name} is missing")));
        }
        let mut files = Vec::new();
        for name in (1..=closed.count).map(closed_name).chain([ACTIVE.to_owned()]) {
            files.extend(if_exists(open_to_read(&dir.join(name)))?);
        }
        for file in &files {
            self.bytes += file.metadata()?.len();
        }
        let Some(first) = files.first_mut() else { return Ok(()) };
        self.read_beginning(first)?;
        for file in files.iter_mut().rev() {
            if let Some(last) = self.read_end(file)? {
                self.records = last.record;
                self.last_ms = Some(last.ts);
                return Ok(());
            }
        }
        if self.bytes > 0 {
            return Err(io::Error::other("no line of it can be read"));
        }
        Ok(())
    }

    fn read_beginning(&mut self, file: &mut File) -> io::Result<()> {
        for window in WINDOWS {
            let bytes = part_of(file, 0, window)?;
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(LINES_MAX);
            for (number, line) in lines.enumerate() {
                match record_of(line) {
                    Some(record) => self.add_record(record),
                    None if number == 0 && line.ends_with(b"\n") => {
                        return Err(io::Error::other("its first record cannot be read"));
                    }
                    None => (),
                }
            }
            let whole = u64::try_from(bytes.len()).is_ok_and(|length| length < window);
            if whole || self.prompt.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Sets the state, the totals and the title from the last lines of `file`. Returns the last record. `None`, without a change, if no complete record is near enough
    /// to the end.
    fn read_end(&mut self, file: &mut File) -> io::Result<Option<StoredRecord>> {
        let length = file.metadata()?.len();
        for window in WINDOWS {
            let start = length.saturating_sub(window);
            let bytes = part_of(file, start, window)?;
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            if start > 0 && !lines.is_empty() {
                lines.remove(0);
            }
            let mut replay = Replay::new(None);
            let mut last = None;
            for record in lines.into_iter().filter_map(record_of) {
                self.read_totals(&record.event);
                replay.push(&record);
                last = Some(record);
            }
            if last.is_some() {
                let replayed = replay.finish();
                self.state = of_replayed(&replayed, false);
                replayed.title.iter().for_each(|title| self.titled(title));
                return Ok(last);
            }
            if start == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Takes turns and cost from `event` if it is the end of the session.
    fn read_totals(&mut self, event: &Event) {
        if let Event::SessionEnded { turns, cost_nano_usd, unpriced_requests, .. } = event {
            self.turns = Some(*turns);
            self.cost_nano_usd = *cost_nano_usd;
            self.unpriced_requests = *unpriced_requests;
        }
    }

    fn add_record(&mut self, record: StoredRecord) {
        self.started_ms.get_or_insert(record.ts);
        match record.event {
            Event::SessionStarted { cwd, agent, model, forked_from, .. } => {
                // A change of the model records another start, without the original.
                self.forked_from = self.forked_from.take().or(forked_from);
                self.cwd = Some(cwd);
                self.agent = Some(agent);
                self.model = Some(model);
            }
            Event::SessionTitled { title } => self.titled(&title),
            Event::UserMessage { content, .. } if self.prompt.is_none() => {
                self.prompt = Some(title(&content).chars().take(PROMPT_MAX).collect());
            }
            _ => (),
        }
    }

    fn titled(&mut self, title: &str) {
        self.title = Some(title.chars().take(PROMPT_MAX).collect());
    }
}

/// Reads at most `length` bytes of `file` from byte `start` on.
fn part_of(file: &mut File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    Read::by_ref(file).take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Text of a prompt for a list. A skill in it is shown as `/skill NAME`, without its instructions.
fn title(content: &[ContentPart]) -> String {
    let said: Vec<ContentPart> =
        content.iter().filter(|part| !skills::is_skill(part)).cloned().collect();
    let names = content.iter().filter_map(skills::name_of).map(|name| format!("/skill {name} "));
    let text = names.collect::<String>() + text_of(&said).trim();
    text.trim_end().to_owned()
}
