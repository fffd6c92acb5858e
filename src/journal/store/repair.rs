//! Repair: moves everything after the valid records of a journal to quarantine files and never
//! deletes it.
//!
//! If the process is killed at any step, the next opening finds the damage at the same position and
//! continues.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::scan::{Stop, if_exists, open_to_read};
use crate::segments::{ACTIVE, closed_name, closed_segments};
use crate::steps::Steps;
use crate::store::StoreState;
use crate::walk::Walked;

/// Maximum number of quarantine files per journal file.
const QUARANTINED_FILES_MAX: u32 = 10_000;
/// Temporary name of the active file while it is rewritten.
const FRESH: &str = "session.jsonl.new";

impl StoreState {
    /// Quarantines everything after the end of `walked`, later segments included. If the damage is
    /// in a closed segment, its valid part becomes the active file.
    ///
    /// Returns one line for the user that describes the damage, its position and the quarantine
    /// files.
    pub(super) fn cut(&self, walked: &Walked) -> io::Result<String> {
        let why = match &walked.stop {
            Stop::Damaged(damage) => damage.to_string(),
            Stop::Torn | Stop::End | Stop::Newer(_) => "the last line was cut off".to_owned(),
        };
        let end = walked.end;
        let path = self.dir.join(&walked.file);
        let mut moved = Vec::new();
        if walked.file != ACTIVE {
            moved.extend(self.quarantine_later_segments(end.segment)?);
            self.steps.step_done("later moved");
        }
        let mut bytes = 0;
        if path.exists() {
            let (tail, name) = quarantine_tail(&path, end.offset, &self.steps)?;
            bytes = tail;
            moved.insert(0, name);
            if walked.file != ACTIVE {
                // The valid part of this segment becomes the active file.
                std::fs::rename(&path, self.dir.join(ACTIVE))?;
                self.steps.step_done("made active");
            }
        }
        File::open(&self.dir)?.sync_all()?;
        let kept = match end.record - 1 {
            0 => "nothing before it".to_owned(),
            last => format!("records up to {last} are kept"),
        };
        let (file, at) = (&walked.file, end.offset);
        let moved = match &moved[..] {
            [] => String::new(),
            [only] if bytes > 0 => format!("{bytes} bytes moved to {only}, "),
            many => format!("moved to {}, ", many.join(", ")),
        };
        Ok(format!("journal repaired: {why}, in {file} at byte {at}; {moved}{kept}"))
    }

    /// Renames every journal file after segment `number` to a quarantine name, the last file first.
    /// Returns the new names in the order of the segments.
    fn quarantine_later_segments(&self, number: u32) -> io::Result<Vec<String>> {
        let closed = closed_segments(&self.dir)?;
        let mut later: Vec<String> = (1..=closed.count)
            .chain(closed.stray)
            .filter(|other| *other > number)
            .map(closed_name)
            .collect();
        later.push(ACTIVE.to_owned());
        let mut moved = Vec::new();
        for name in later.iter().rev() {
            let path = self.dir.join(name);
            if path.exists() {
                moved.push(free_name(&path, |aside| std::fs::hard_link(&path, aside))?);
                std::fs::remove_file(&path)?;
            }
        }
        moved.reverse();
        Ok(moved)
    }

    /// Replaces the active file by a synced copy of its first `length` bytes. The old file stays
    /// under a quarantine name, because its contents on disk are unknown after a failed sync. Does
    /// nothing if there is no active file.
    pub(super) fn rewrite(&self, length: u64) -> io::Result<()> {
        let path = self.dir.join(ACTIVE);
        let Some(old) = if_exists(open_to_read(&path))? else { return Ok(()) };
        let fresh = self.dir.join(FRESH);
        if_exists(std::fs::remove_file(&fresh))?;
        let mut copy = create_private(&fresh)?;
        io::copy(&mut old.take(length), &mut copy)?;
        copy.sync_all()?;
        free_name(&path, |aside| std::fs::hard_link(&path, aside))?;
        std::fs::rename(&fresh, &path)?;
        File::open(&self.dir)?.sync_all()
    }
}

/// Moves all bytes of the file `path` from offset `length` on to a new quarantine file beside it.
/// Returns the number of bytes and the name of the new file.
fn quarantine_tail(path: &Path, length: u64, steps: &Steps) -> io::Result<(u64, String)> {
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
    let bytes = match io::copy(&mut file, &mut copy).and_then(|bytes| {
        copy.flush()?;
        // The copy and its name must be on disk before the original is truncated.
        copy.sync_all()?;
        Ok(bytes)
    }) {
        Ok(bytes) => bytes,
        Err(error) => {
            // On a full disk half a copy would only use more space.
            std::fs::remove_file(path.with_file_name(&name)).ok();
            return Err(error);
        }
    };
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    steps.step_done("tail copied");
    file.set_len(length)?;
    file.sync_all()?;
    steps.step_done("tail cut");
    Ok((bytes, name))
}

/// Calls `take` with the names `<path>.damaged-<n>` in order, until one is free, and returns that
/// name. `take` creates the file, and must fail with `AlreadyExists` if the name is taken. Fails
/// after any other error, or if the first `QUARANTINED_FILES_MAX` names are taken.
fn free_name(path: &Path, mut take: impl FnMut(&Path) -> io::Result<()>) -> io::Result<String> {
    let base = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 1..=QUARANTINED_FILES_MAX {
        let name = format!("{base}.damaged-{number}");
        match take(&path.with_file_name(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            result => return result.map(|()| name),
        }
    }
    Err(io::Error::other("too many damaged parts are kept next to the journal"))
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
