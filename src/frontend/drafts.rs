//! Drafts: the unsent text of the prompt is saved so that a crash does not lose it. Each process
//! has one file, which a separate thread writes and only the user can read.
//!
//! A process that exits normally removes its file. The next process finds the file of a process
//! that no longer exists.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::history::private_file;

/// Maximum bytes of a saved draft. A longer text is not saved; the file keeps the earlier draft.
const BYTES_MAX: usize = 1 << 20;

/// Maximum number of entries of the drafts folder that are examined.
const FILES_MAX: usize = 1000;

/// Prefix of the names of draft files. The id and the start time of the process follow.
const PREFIX: &str = "draft-";

/// Saves the draft of this process in a file, and takes over drafts of dead processes.
#[derive(Debug, Default)]
pub struct Drafts {
    /// File of this process; `None` if drafts are not saved.
    own: Option<PathBuf>,
    kept: String,
    writer: Option<(Sender<String>, JoinHandle<()>)>,
}

impl Drafts {
    /// Prepares saving in the folder `dir`, without creating anything; `None` disables saving.
    pub fn of(dir: Option<PathBuf>) -> Drafts {
        let pid = std::process::id();
        let own =
            dir.map(|dir| dir.join(format!("{PREFIX}{pid}-{}", start_time(pid).unwrap_or(0))));
        Drafts { own, ..Drafts::default() }
    }

    /// Takes over the newest readable draft of a process that died: saves the text as the draft of
    /// this process, removes the old file and returns the text. Bytes that are not UTF-8 are
    /// replaced. `None` if there is no draft or it cannot be saved. A blank draft is removed; a file
    /// that cannot be read stays, and an older one counts.
    pub fn left(&mut self) -> Option<String> {
        let dir = self.own.as_ref()?.parent()?.to_owned();
        let mut left: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(dir)
            .ok()?
            .flatten()
            .take(FILES_MAX)
            .filter(|entry| entry.file_name().to_str().is_some_and(is_left))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        left.sort();
        while let Some((_, newest)) = left.pop() {
            let Ok(text) = read(&newest) else { continue };
            if text.trim().is_empty() {
                std::fs::remove_file(newest).ok();
                continue;
            }
            // The old file is removed only after the draft is saved again.
            write(self.own.as_deref()?, &text).ok()?;
            self.kept.clone_from(&text);
            std::fs::remove_file(newest).ok();
            return Some(text);
        }
        None
    }

    /// Saves `text` on another thread; blank text removes the file. Write errors are ignored. Does
    /// nothing if the text is unchanged or too long, or if saving is disabled.
    pub fn keep(&mut self, text: &str) {
        if text == self.kept || text.len() > BYTES_MAX {
            return;
        }
        let Some(own) = &self.own else { return };
        text.clone_into(&mut self.kept);
        if self.writer.is_none() {
            let (texts, wanted) = channel();
            let own = own.clone();
            let spawned = std::thread::Builder::new()
                .name("draft".to_owned())
                .spawn(move || serve(&own, &wanted));
            self.writer = spawned.ok().map(|thread| (texts, thread));
        }
        if let Some((texts, _)) = &self.writer {
            texts.send(text.to_owned()).ok();
        }
    }

    /// Saves `text` as [`Drafts::keep`] does, and ends the thread. On return the text is written to
    /// the file, but not synced to disk; if it is blank, the file is removed.
    pub fn close(mut self, text: &str) {
        self.keep(text);
        if let Some((texts, thread)) = self.writer.take() {
            drop(texts);
            thread.join().ok();
        }
    }
}

fn serve(own: &Path, wanted: &Receiver<String>) {
    while let Ok(mut text) = wanted.recv() {
        while let Ok(later) = wanted.try_recv() {
            text = later;
        }
        // A failed write must not disturb the session.
        if text.trim().is_empty() {
            std::fs::remove_file(own).ok();
        } else {
            write(own, &text).ok();
        }
    }
}

/// Returns `true` if `name` is the draft file of a process that no longer exists.
fn is_left(name: &str) -> bool {
    let ids = name.strip_prefix(PREFIX).and_then(|ids| ids.split_once('-'));
    let Some((Ok(pid), Ok(then))) = ids.map(|(pid, then)| (pid.parse(), then.parse::<u64>()))
    else {
        return false;
    };
    let Ok(raw) = i32::try_from(pid) else { return false };
    // Process ids are reused: only the same start time means the same process.
    match start_time(pid) {
        Some(now) => now != then,
        None => kill(Pid::from_raw(raw), None) == Err(nix::errno::Errno::ESRCH),
    }
}

/// Start time of a process, in clock ticks since boot (field 22 of `/proc/PID/stat`); `None` if it
/// cannot be read.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name in parentheses may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn write(own: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = own.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let new = own.with_extension("new");
    let mut file: File = private_file().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(new, own)
}

fn read(path: &Path) -> io::Result<String> {
    let file = private_file().read(true).open(path)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn files(dir: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn draft_of_a_dead_process_is_found_once_and_never_while_it_is_in_use() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("drafts");
        let mut drafts = Drafts::of(Some(dir.clone()));
        assert_eq!(drafts.left(), None);
        drafts.keep("half a th");
        drafts.keep("half a thought\nof mine");
        // A second process leaves the file alone while the first one lives.
        assert_eq!(Drafts::of(Some(dir.clone())).left(), None);
        drafts.close("half a thought\nof mine");
        let file = files(&dir).pop().unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // The same process id with another start time.
        let pid = std::process::id();
        std::fs::rename(file, dir.join(format!("{PREFIX}{pid}-1"))).unwrap();
        let mut next = Drafts::of(Some(dir.clone()));
        assert_eq!(next.left().as_deref(), Some("half a thought\nof mine"));
        assert_eq!(files(&dir).len(), 1, "it is kept until it is sent");
        assert_eq!(next.left(), None);
        next.keep(" ");
        next.close(" ");
        assert_eq!(files(&dir), Vec::<PathBuf>::new());
    }

    #[test]
    fn files_that_are_no_drafts_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["draft-", "draft-x-1", "draft-1-x", "other", "draft-99999999999-1"] {
            std::fs::write(dir.path().join(name), "text").unwrap();
        }
        // No process has these ids, which are above the maximum of Linux.
        let draft = |nth: u32| dir.path().join(format!("draft-{}-1", 4_194_305 + nth));
        std::fs::write(draft(0), b"older \xff draft").unwrap();
        // A folder in place of the newest file cannot be read.
        std::fs::create_dir(draft(1)).unwrap();
        std::fs::write(draft(2), " ").unwrap();
        let mut drafts = Drafts::of(Some(dir.path().to_owned()));
        assert_eq!(drafts.left().as_deref(), Some("older \u{fffd} draft"));
        assert_eq!(drafts.left(), None);
        assert!(draft(1).exists(), "what cannot be read is not deleted");
        assert!(!draft(0).exists());
        drafts.keep("");
        drafts.keep(&"x".repeat(BYTES_MAX + 1));
        drafts.close("");
        assert_eq!(Drafts::of(None).left(), None);
    }
}
