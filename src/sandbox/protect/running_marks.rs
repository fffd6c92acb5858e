//! Marks of commands that run in any session: a file of each session, which is locked while it runs
//! commands.
//!
//! A survey treats all files that it finds as the user's. A file that a command of another session may
//! have made must not be restored later, because the check of that session may remove it. A session
//! marks its commands before it surveys, and looks for the marks of others before and after the survey.
//! The file of a process that has ended stays until another one finds it, so that the second look sees
//! it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use crate::protect::GuardState;
use crate::protect::baseline::Baseline;

/// Maximum size of a mark in bytes, which is the length of the roots in it.
const BYTES_MAX: u64 = 64 << 10;

/// Time stamp of a file: seconds and nanoseconds.
pub(super) type Stamp = (i64, i64);

/// Marks of the commands below some roots.
#[derive(Debug)]
pub(super) struct RunningMarks {
    /// Folder with the marks of all sessions.
    folder: PathBuf,
    roots: Vec<PathBuf>,
    written: Vec<PathBuf>,
    /// Mark of this session. `None` until its first command.
    own: Option<MarkFile>,
    /// Time at which the commands began that run now. `None` if none runs.
    begun: Option<Stamp>,
}

/// Locked file of a session: shared while it is idle, exclusively while it runs commands. It contains
/// the folders that its commands can write, each followed by a NUL byte.
#[derive(Debug)]
struct MarkFile {
    file: Flock<File>,
    path: PathBuf,
}

impl RunningMarks {
    /// Marks of commands in `folder`, which is created with the first mark. `roots`: folders whose
    /// protected files are surveyed; `written`: those that the commands can write.
    pub(super) fn new(folder: PathBuf, roots: Vec<PathBuf>, written: Vec<PathBuf>) -> RunningMarks {
        RunningMarks { folder, roots, written, own: None, begun: None }
    }

    /// Marks that commands run from now on, unless some run already.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.begun.is_some() {
            return Ok(());
        }
        if self.own.is_none() {
            self.own = Some(self.created()?);
        }
        let Some(own) = &self.own else { return Ok(()) };
        own.file.relock(FlockArg::LockExclusive)?;
        // The lock is free for a moment while it is converted.
        if own.file.metadata()?.nlink() == 0 {
            self.own = Some(self.created()?);
        }
        let Some(own) = &self.own else { return Ok(()) };
        futimens(&*own.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?;
        self.begun = Some(modified(&own.file.metadata()?));
        Ok(())
    }

    /// Marks that no command runs any more.
    pub(super) fn end(&mut self) {
        self.begun = None;
        let Some(own) = &self.own else { return };
        if own.file.relock(FlockArg::LockShared).is_err() {
            self.own = None;
        }
    }

    /// Time of the first change that commands of other sessions may have made below the roots: those
    /// that run, and those that began since [`RunningMarks::begin`]. `None` if there are none.
    pub(super) fn others_since(&self) -> Option<Stamp> {
        let unknown = Some((0, 0));
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return unknown,
        };
        let mut since: Option<Stamp> = None;
        for entry in entries {
            let Ok(path) = entry.map(|entry| entry.path()) else { return unknown };
            if self.own.as_ref().is_some_and(|own| own.path == path) {
                continue;
            }
            let found = match self.other(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(_) => unknown,
            };
            since = [since, found].into_iter().flatten().min();
        }
        since
    }

    /// Start time of the commands of the session whose mark is at `path`. `None` if none of them ran
    /// since [`RunningMarks::begin`]. Removes the mark of a process that ended earlier.
    fn other(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let time = modified(&file.metadata()?);
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text)?;
        let mut roots = text.split(|byte| *byte == 0).filter(|root| !root.is_empty());
        let is_near = roots.any(|root| self.overlaps(Path::new(OsStr::from_bytes(root))));
        let has_begun_since = self.begun.is_some_and(|begun| time >= begun);
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((_, Errno::EWOULDBLOCK)) => return Ok(is_near.then_some(time)),
            Err((_, errno)) => return Err(errno.into()),
            // A mark without text is being made.
            Ok(idle) if !text.is_empty() && !has_begun_since => {
                if idle.relock(FlockArg::LockExclusiveNonblock).is_ok() {
                    fs::remove_file(path)?;
                }
            }
            Ok(_) => {}
        }
        Ok((is_near && has_begun_since).then_some(time))
    }

    fn overlaps(&self, other: &Path) -> bool {
        self.roots.iter().any(|root| root.starts_with(other) || other.starts_with(root))
    }

    fn created(&self) -> io::Result<MarkFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!("{}-{number}", std::process::id()));
            let mut options = OpenOptions::new();
            let file = match options.write(true).create_new(true).mode(0o600).open(&path) {
                // A process with the same number left this file.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let mut file =
                Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
            let mut text = Vec::new();
            for root in &self.written {
                text.extend_from_slice(root.as_os_str().as_bytes());
                text.push(0);
            }
            file.write_all(&text)?;
            return Ok(MarkFile { file, path });
        }
    }
}

impl GuardState {
    /// Marks for other sessions that a command runs. Returns the time of the first change that their
    /// commands may have made; `None` if none of them run.
    pub(super) fn mark_running(&mut self) -> Option<Stamp> {
        let marks = self.marks.as_mut()?;
        if let Err(error) = marks.begin() {
            tracing::warn!(%error, "the running command is not marked for other sessions");
        }
        marks.others_since()
    }

    /// Removes the mark, unless a command runs or a check is owed.
    pub(super) fn unmark_running(&mut self) {
        if self.baseline.is_none()
            && let Some(marks) = &mut self.marks
        {
            marks.end();
        }
    }

    /// Marks the items of `baseline` as doubtful that have changed since commands of other sessions
    /// began, and those in a folder that has, unless they are known from before. `others_since`:
    /// result of [`GuardState::mark_running`] before the scan. Returns false if there are no such
    /// commands.
    pub(super) fn note_doubtful(
        &self,
        baseline: &mut Baseline,
        others_since: Option<Stamp>,
    ) -> bool {
        let again = self.marks.as_ref().and_then(RunningMarks::others_since);
        let Some(since) = [others_since, again].into_iter().flatten().min() else { return false };
        for (key, item) in &mut baseline.items {
            let root = &self.roots[key.0].root;
            let is_new = |path: &Path| root.stat(path).is_ok_and(|stat| stat.changed >= since);
            let is_known = self.undisturbed.as_ref().is_some_and(|known| known.has(key, item));
            // The time of a folder changes with its entries, as that of a `.git` with each lock of
            // the index.
            let is_changed = match &item.state {
                Some(state) => is_new(&key.1) || state.has_changed_since(since),
                None => !is_known && is_new(&key.1),
            };
            let mut above = key.1.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
            item.is_doubtful = is_changed || (!is_known && above.any(is_new));
        }
        true
    }
}

fn modified(about: &fs::Metadata) -> Stamp {
    (about.mtime(), about.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protect::place::next_tick;

    fn marks(folder: &Path, root: &str) -> RunningMarks {
        RunningMarks::new(folder.join("running"), vec![root.into()], vec![root.into()])
    }

    #[test]
    fn running_commands_of_others_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let mut ours = marks(folder.path(), "/w/sub");
        assert_eq!(ours.others_since(), None);
        for (root, is_near) in
            [("/w", true), ("/w/sub", true), ("/w/sub/x", true), ("/w/su", false)]
        {
            let mut theirs = marks(folder.path(), root);
            theirs.begin().unwrap();
            ours.begin().unwrap();
            assert_eq!(ours.others_since(), theirs.begun.filter(|_| is_near), "{root}");
            theirs.end();
            ours.end();
            // It had begun before ours, and has ended, or began after ours.
            next_tick(folder.path());
            ours.begin().unwrap();
            assert_eq!(ours.others_since(), None, "{root}");
            theirs.begin().unwrap();
            theirs.end();
            assert_eq!(ours.others_since().is_some(), is_near, "{root}");
            drop(theirs);
            assert_eq!(ours.others_since().is_some(), is_near, "{root}");
            ours.end();
        }
    }

    #[test]
    fn mark_that_was_removed_while_idle_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ours, mut theirs) = (marks(folder.path(), "/w"), marks(folder.path(), "/w"));
        theirs.begin().unwrap();
        theirs.end();
        // As another session does that gets the lock while it is converted.
        fs::remove_file(&theirs.own.as_ref().unwrap().path).unwrap();
        theirs.begin().unwrap();
        ours.begin().unwrap();
        assert_eq!(ours.others_since(), theirs.begun);
        theirs.end();
        theirs.begin().unwrap();
        assert_eq!(ours.others_since(), theirs.begun);
    }

    #[test]
    fn marks_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut theirs = marks(folder.path(), "/elsewhere");
        theirs.begin().unwrap();
        drop(theirs);
        let count = || fs::read_dir(folder.path().join("running")).unwrap().count();
        assert_eq!(count(), 1);
        next_tick(folder.path());
        let mut ours = marks(folder.path(), "/w");
        ours.begin().unwrap();
        assert_eq!((ours.others_since(), count()), (None, 1));
        ours.end();
        ours.begin().unwrap();
        assert_eq!((ours.others_since(), count()), (None, 1));
    }
}
