//! Damage: what follows the valid records is moved aside, never removed.
//!
//! Killed at any step, the next opening finds the damage at the same place and goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::journal::scan::open_to_read;
use crate::journal::segments::{ACTIVE, closed_name, closed_segments};
use crate::journal::steps::Steps;
use crate::journal::store::StoreState;
use crate::journal::walk::{Stop, Walked};

/// Damaged parts that are kept beside one journal.
const DAMAGED_MAX: u32 = 10_000;
/// A file that is being written anew.
const FRESH: &str = "session.jsonl.new";

impl StoreState {
    /// Makes the journal end at the end of `walked`, and says in one line what was wrong, where,
    /// and where the rest is now.
    pub(super) fn cut(&self, walked: &Walked) -> io::Result<String> {
        let why = match &walked.stop {
            Stop::Damaged(damage) => damage.to_string(),
            Stop::Torn | Stop::End | Stop::Newer(_) => "the last line was cut off".to_owned(),
        };
        let end = walked.end;
        let path = self.dir.join(&walked.file);
        let mut moved = Vec::new();
        if walked.file != ACTIVE {
            moved.extend(self.move_later_aside(end.segment)?);
            self.steps.reached("later moved");
        }
        let mut bytes = 0;
        if path.exists() {
            let (tail, name) = move_tail_aside(&path, end.offset, &self.steps)?;
            bytes = tail;
            moved.insert(0, name);
            if walked.file != ACTIVE {
                // What is left of it is the end of the journal.
                std::fs::rename(&path, self.dir.join(ACTIVE))?;
                self.steps.reached("made active");
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

    /// Moves every file after segment `number` aside, the last one first. Returns their new
    /// names, in the order of the segments.
    fn move_later_aside(&self, number: u32) -> io::Result<Vec<String>> {
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

    /// Writes the first `length` bytes of the active file into a new one and keeps the old one:
    /// after a sync that failed, nobody knows what of the old one is on the disk.
    pub(super) fn rewrite(&self, length: u64) -> io::Result<()> {
        let path = self.dir.join(ACTIVE);
        let old = match open_to_read(&path) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let fresh = self.dir.join(FRESH);
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let mut copy = create_private(&fresh)?;
        io::copy(&mut old.take(length), &mut copy)?;
        copy.sync_all()?;
        free_name(&path, |aside| std::fs::hard_link(&path, aside))?;
        std::fs::rename(&fresh, &path)?;
        File::open(&self.dir)?.sync_all()
    }
}

/// Copies everything from `length` on into a file beside `path`, then cuts it off. Returns the
/// number of bytes and the file's name.
fn move_tail_aside(path: &Path, length: u64, steps: &Steps) -> io::Result<(u64, String)> {
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
        // The copy and its name have to be on the disk before the original goes.
        copy.sync_all()?;
        Ok(bytes)
    }) {
        Ok(bytes) => bytes,
        Err(error) => {
            // A full disk: half a copy would only make it fuller.
            std::fs::remove_file(path.with_file_name(&name)).ok();
            return Err(error);
        }
    };
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    steps.reached("tail copied");
    file.set_len(length)?;
    file.sync_all()?;
    steps.reached("tail cut");
    Ok((bytes, name))
}

/// Finds a free name `<path>.damaged-<n>` with `take`, which must refuse one that is taken.
fn free_name(path: &Path, mut take: impl FnMut(&Path) -> io::Result<()>) -> io::Result<String> {
    let base = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 1..=DAMAGED_MAX {
        let name = format!("{base}.damaged-{number}");
        match take(&path.with_file_name(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            result => return result.map(|()| name),
        }
    }
    Err(io::Error::other("too many damaged parts are kept beside the journal"))
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
