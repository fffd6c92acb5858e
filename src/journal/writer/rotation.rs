//! Closes a full segment and begins the next one.
//!
//! The next file is created before the full one is renamed: if there is no space for another file,
//! the full one continues to grow. If the process is killed between any two steps, the journal
//! opens without loss.

use std::path::Path;

use crate::segments::{ACTIVE, Mark, closed_name};
use crate::writer::{Tail, WriterTurn, lock};

/// Temporary name of the next active file, until the full one is renamed.
pub(crate) const NEXT: &str = "session.jsonl.next";
/// Bytes that must be written after a failed rotation before the next one is tried.
const AGAIN_BYTES: u64 = 1 << 20;

impl Tail {
    /// Closes the full active file as a segment and continues in a new one. If the new file cannot
    /// be created or the full one cannot be renamed, the active file continues to grow, and a later
    /// group tries again. After a failed sync, or if the new file does not get its name, nothing
    /// more is written.
    pub(super) fn rotate(&mut self, turn: &mut WriterTurn) {
        if self.end.offset < self.rotate_from {
            return;
        }
        let Some(disk) = &mut self.disk else { return };
        disk.release(self.end.offset);
        if disk.sync().is_err() {
            turn.suspect = true;
            self.disk = None;
            return;
        }
        self.steps.step_done("synced");
        self.rotate_from = self.end.offset + AGAIN_BYTES;
        let mut segments = lock(&self.segments);
        let (dir, number) = (segments.dir().to_owned(), self.end.segment);
        let Ok(next) = (self.next_disk)() else { return };
        self.steps.step_done("made");
        if close(&dir, number).is_err() {
            return;
        }
        self.steps.step_done("closed");
        // After an error, opening the journal again creates an active file.
        let renamed = std::fs::rename(dir.join(NEXT), dir.join(ACTIVE));
        self.disk = renamed.is_ok().then_some(next);
        self.steps.step_done("opened");
        segments.forget_after(number + 1);
        self.end = Mark { segment: number + 1, offset: 0, ..self.end };
        self.rotate_from = 0;
        self.new_entries.push(dir);
        drop(segments);
        (self.closed)(number);
    }
}

/// Renames the active file in `dir` to the name of closed segment `number`. Fails if that name is
/// taken.
fn close(dir: &Path, number: u32) -> std::io::Result<()> {
    let closed = dir.join(closed_name(number));
    if closed.symlink_metadata().is_ok() {
        return Err(std::io::ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(dir.join(ACTIVE), closed)
}
