//! Opening: finds the end of the longest valid prefix, moves what follows it aside, and goes on
//! from there.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use nix::fcntl::OFlag;
use posse_actors::ports::{JournalError, Opened};
use posse_actors::record::RecordId;

use crate::journal::format::Chain;
use crate::journal::scan::{Scanner, Step, open_to_read};
use crate::journal::segments::{
    ACTIVE, Mark, Segments, closed_name, closed_segments, first_head, last_chain,
};
use crate::journal::store::{FileAppender, Running, Shared, disk_error, newer};
use crate::journal::writer::{Disk, Queue, Tail, lock};

/// Ids of the last records that are remembered, to recognise one that is sent again.
const RECENT_IDS: usize = 1024;
/// Damaged tails that are kept beside one journal.
const DAMAGED_MAX: u32 = 10_000;

/// Where a scan of one file ended.
struct Scanned {
    end: Step,
    chain: Chain,
    /// Length of the valid prefix.
    length: u64,
    /// Number of the last valid record, if the file has one.
    last: Option<u64>,
    recent_ids: Vec<RecordId>,
}

impl Shared {
    /// Opens the journal; whatever an earlier call opened is closed by that.
    pub(super) fn open(self: &Arc<Self>) -> Result<Opened, JournalError> {
        if let Some(earlier) = lock(&self.current).take() {
            earlier.queue.close();
        }
        let mut turn = lock(&self.turn);
        turn.generation += 1;
        let closed = closed_segments(&self.dir)
            .map_err(disk_error)?
            .map_err(|what| JournalError::Damaged { what })?;
        let mut segments = lock(&self.segments);
        segments.reset(closed);
        let start = self.after_closed(&mut segments, closed)?;
        let scanned = self.scan_active(&mut segments, start)?;
        drop(segments);

        let path = self.dir.join(ACTIVE);
        let mut repaired = None;
        if turn.suspect {
            self.rewrite(&path, scanned.length).map_err(disk_error)?;
            turn.suspect = false;
        } else {
            repaired = self.repair(&path, &scanned)?;
        }
        let before = self.before_active(closed, &scanned)?;
        let created = !path.exists();
        let disk = open_to_append(&path).map_err(disk_error)?;
        let mut new_entries = lock(&self.new_entries).clone();
        if created {
            new_entries.push(self.dir.clone());
        }
        let tail = Tail {
            disk: Box::new(disk),
            next_disk: Box::new(move || Ok(Box::new(open_to_append(&path)?) as Box<dyn Disk>)),
            length: scanned.length,
            chain: scanned.chain,
            last: before.0,
            new_entries,
            segments: Arc::clone(&self.segments),
            segment_bytes: self.segment_bytes,
        };
        let generation = turn.generation;
        drop(turn);
        Ok(self.opened(tail, generation, before.1, repaired))
    }

    fn opened(
        self: &Arc<Self>,
        tail: Tail,
        generation: u64,
        recent_ids: Vec<RecordId>,
        repaired: Option<String>,
    ) -> Opened {
        let queue = Arc::new(Queue::default());
        let thread = Arc::new(OnceLock::new());
        let running = Running { queue: Arc::clone(&queue), thread: Arc::clone(&thread) };
        *lock(&self.current) = Some(running);
        let last_record = tail.last;
        let journal = FileAppender {
            shared: Arc::clone(self),
            generation,
            queue,
            thread,
            tail: Mutex::new(Some(tail)),
        };
        Opened { journal: Box::new(journal), last_record, recent_ids, repaired }
    }

    /// Marks the beginnings of the closed segments, and returns what the active file continues.
    fn after_closed(&self, segments: &mut Segments, closed: u32) -> Result<Chain, JournalError> {
        let mut chain = Chain::start(self.session.as_str());
        for segment in 1..=closed {
            let damaged = |what: &str| {
                let name = closed_name(segment);
                JournalError::Damaged { what: format!("{name} {what}") }
            };
            let mut file = open_to_read(&self.dir.join(closed_name(segment)))
                .map_err(|error| damaged(&format!("cannot be read: {error}")))?;
            let head = first_head(&mut file).map_err(disk_error)?;
            let head = head.ok_or_else(|| damaged("does not begin with a record"))?;
            segments.note(Mark { record: head.record, segment, offset: 0, chain });
            chain = last_chain(&mut file)
                .map_err(disk_error)?
                .ok_or_else(|| damaged("does not end with a record"))?;
        }
        Ok(chain)
    }

    fn scan_active(&self, segments: &mut Segments, start: Chain) -> Result<Scanned, JournalError> {
        let segment = segments.active();
        let expected = (segment == 1).then_some(1);
        match open_to_read(&self.dir.join(ACTIVE)) {
            Ok(file) => scan(file, start, expected, |mark| {
                segments.note(Mark { segment, ..mark });
            })
            .map_err(disk_error),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Scanned {
                end: Step::End,
                chain: start,
                length: 0,
                last: None,
                recent_ids: Vec::new(),
            }),
            Err(error) => Err(disk_error(error)),
        }
    }

    /// Number and ids of the last records, from the last closed segment if the active file has
    /// none.
    fn before_active(
        &self,
        closed: u32,
        active: &Scanned,
    ) -> Result<(u64, Vec<RecordId>), JournalError> {
        if let Some(last) = active.last {
            return Ok((last, active.recent_ids.clone()));
        }
        if closed == 0 {
            return Ok((0, Vec::new()));
        }
        let segments = lock(&self.segments);
        let mark = segments.mark_before(u64::MAX);
        let file = segments.open(closed).map_err(disk_error)?;
        drop(segments);
        let (Some(mark), Some(file)) = (mark, file) else {
            return Err(JournalError::Damaged {
                what: format!("{} is missing", closed_name(closed)),
            });
        };
        let scanned = scan(file, mark.chain, Some(mark.record), |_| ()).map_err(disk_error)?;
        match (scanned.end, scanned.last) {
            (Step::End, Some(last)) => Ok((last, scanned.recent_ids)),
            _ => Err(JournalError::Damaged { what: format!("{} is damaged", closed_name(closed)) }),
        }
    }

    /// Moves what follows the valid prefix aside, and says so.
    fn repair(&self, path: &Path, scanned: &Scanned) -> Result<Option<String>, JournalError> {
        let why = match &scanned.end {
            Step::End | Step::Record(_) => return Ok(None),
            Step::Newer(version) => return Err(newer(*version)),
            Step::Torn => "the last line was cut off",
            Step::Damaged(what) => what,
        };
        let moved = move_tail_aside(path, scanned.length).map_err(disk_error)?;
        let (bytes, name) = moved;
        let kept = scanned.last.map_or_else(
            || "nothing before it".to_owned(),
            |last| format!("records up to {last} are kept"),
        );
        Ok(Some(format!("journal repaired: {why}; {bytes} bytes moved to {name}, {kept}")))
    }

    /// Writes the valid prefix into a new file and keeps the old one: after a sync that failed,
    /// nobody knows what of the old one is on the disk.
    fn rewrite(&self, path: &Path, length: u64) -> io::Result<()> {
        let fresh = self.dir.join("session.jsonl.new");
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let mut copy = create_private(&fresh)?;
        io::copy(&mut open_to_read(path)?.take(length), &mut copy)?;
        copy.sync_all()?;
        let aside = free_name(path, |aside| std::fs::hard_link(path, aside))?;
        drop(aside);
        std::fs::rename(&fresh, path)?;
        File::open(&self.dir)?.sync_all()
    }
}

fn scan(
    file: File,
    chain: Chain,
    expected: Option<u64>,
    mut note: impl FnMut(Mark),
) -> io::Result<Scanned> {
    let mut scanner = Scanner::new(file, chain, expected, 0);
    let mut recent_ids = std::collections::VecDeque::new();
    let mut last = None;
    loop {
        let (chain, offset) = (scanner.chain(), scanner.offset());
        match scanner.step()? {
            Step::Record(head) => {
                note(Mark { record: head.record, segment: 0, offset, chain });
                last = Some(head.record);
                if recent_ids.len() == RECENT_IDS {
                    recent_ids.pop_front();
                }
                recent_ids.push_back(head.id);
            }
            end => {
                let recent_ids = recent_ids.into();
                return Ok(Scanned { end, chain, length: offset, last, recent_ids });
            }
        }
    }
}

/// Copies everything from `length` on into a file beside `path`, then cuts it off. Returns the
/// number of bytes and the file's name.
fn move_tail_aside(path: &Path, length: u64) -> io::Result<(u64, String)> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    file.seek(SeekFrom::Start(length))?;
    let mut copy = None;
    let name = free_name(path, |aside| {
        copy = Some(create_private(aside)?);
        Ok(())
    })?;
    let mut copy = copy.ok_or(io::ErrorKind::NotFound)?;
    let bytes = io::copy(&mut file, &mut copy)?;
    copy.flush()?;
    // The copy and its name have to be on the disk before the original goes.
    copy.sync_all()?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    file.set_len(length)?;
    file.sync_all()?;
    Ok((bytes, name))
}

/// Finds a free name `<path>.damaged-<n>` with `take`, which must refuse one that is taken.
fn free_name(path: &Path, mut take: impl FnMut(&Path) -> io::Result<()>) -> io::Result<String> {
    for number in 1..=DAMAGED_MAX {
        let name = format!("{ACTIVE}.damaged-{number}");
        match take(&path.with_file_name(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            result => return result.map(|()| name),
        }
    }
    Err(io::Error::other("too many damaged tails are kept beside the journal"))
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
}

/// Makes `dir` and what is missing above it, for the user alone. Returns the directories that
/// got new entries.
pub(super) fn make_private(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing = Vec::new();
    let mut at = Some(dir);
    while let Some(path) = at
        && !path.is_dir()
    {
        missing.push(path);
        at = path.parent();
    }
    let mut changed = Vec::new();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => changed.extend(path.parent().map(Path::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}
