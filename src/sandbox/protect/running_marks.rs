//! Marks of commands that run in any session: a file of each session, which is locked while it runs
//! commands.
//!
//! A survey treats all files that it finds as the user's. A file that a command of another session may
//! have made must not be restored later, because the check of that session may remove it. A session
//! marks its commands before it surveys, and looks for the marks of others before and after the survey.
//! The file of a process that has ended stays until another one finds it, so that the second look sees
//! it. Checkpoints look for the marks too: a running command can change a file without a change of its
//! times. The mode of a mark says whether commands run, so that a session finds out that posse was
//! killed before it checked a command ([`RunningMarks::unchecked_since`]).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
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

/// Mode of the mark of a session that runs commands, or has not checked them.
const RUNNING: u32 = 0o700;

/// Mode of the mark of a session without such commands.
const IDLE: u32 = 0o600;

/// Name of the folder with the marks of all sessions, in the state directory.
const FOLDER: &str = "running";

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
    /// Marks of ended processes whose commands were not checked. They stay until
    /// [`RunningMarks::forget_unchecked`].
    unchecked: Vec<PathBuf>,
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
        RunningMarks { folder, roots, written, own: None, begun: None, unchecked: Vec::new() }
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
        own.file.set_permissions(fs::Permissions::from_mode(RUNNING))?;
        futimens(&*own.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?;
        self.begun = Some(modified(&own.file.metadata()?));
        Ok(())
    }

    /// Marks that no command runs any more.
    pub(super) fn end(&mut self) {
        self.begun = None;
        let Some(own) = &self.own else { return };
        if let Err(error) = own.file.set_permissions(fs::Permissions::from_mode(IDLE)) {
            tracing::warn!(%error, "the next session will report this command as unchecked");
        }
        if own.file.relock(FlockArg::LockShared).is_err() {
            self.own = None;
        }
    }

    /// Time of the first change that commands near the roots may have made whose process ended before
    /// it checked them. `None` if there are none, and after the first command of this session, which
    /// finds them. Removes the marks of such processes whose folders are gone.
    pub(super) fn unchecked_since(&mut self) -> Option<Stamp> {
        if self.own.is_some() {
            return None;
        }
        let mut unchecked = Vec::new();
        let since = oldest(&self.folder, |path| {
            let FoundMark { file, time, text, is_idle } = FoundMark::read(path)?;
            let is_of_another = || Flock::lock(file, FlockArg::LockSharedNonblock).is_err();
            if is_idle || text.is_empty() || is_of_another() {
                return Ok(None);
            }
            if is_near(&text, &self.roots) {
                let is_ours =
                    |folder: &Path| self.roots.iter().any(|root| folder.starts_with(root));
                let is_gone = |folder: &Path| folder.symlink_metadata().is_err();
                // A session that sees only a part of the folders leaves the mark to others.
                if folders_of(&text).all(|folder| is_ours(folder) || is_gone(folder)) {
                    unchecked.push(path.to_owned());
                }
                return Ok(Some(time));
            }
            if folders_of(&text).all(|folder| folder.symlink_metadata().is_err()) {
                fs::remove_file(path)?;
            }
            Ok(None)
        });
        self.unchecked = unchecked;
        since
    }

    /// Removes the marks that [`RunningMarks::unchecked_since`] found: the effects of their commands
    /// were reported.
    pub(super) fn forget_unchecked(&mut self) {
        for path in self.unchecked.drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, "a command will be reported as unchecked again");
            }
        }
    }

    /// Time of the first change that commands of other sessions may have made below the roots: those
    /// that run, and those that began since [`RunningMarks::begin`]. `None` if there are none.
    pub(super) fn others_since(&self) -> Option<Stamp> {
        oldest(&self.folder, |path| match &self.own {
            Some(own) if own.path == path => Ok(None),
            _ => self.other(path),
        })
    }

    /// Start time of the commands of the session whose mark is at `path`. `None` if none of them ran
    /// since [`RunningMarks::begin`]. Removes the mark of a process that ended earlier, if its commands
    /// were checked.
    fn other(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let FoundMark { file, time, text, is_idle } = FoundMark::read(path)?;
        let is_near = is_near(&text, &self.roots);
        let has_begun_since = self.begun.is_some_and(|begun| time >= begun);
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((_, Errno::EWOULDBLOCK)) => return Ok(is_near.then_some(time)),
            Err((_, errno)) => return Err(errno.into()),
            // A mark without text is being made.
            Ok(idle) if is_idle && !text.is_empty() && !has_begun_since => {
                if idle.relock(FlockArg::LockExclusiveNonblock).is_ok() {
                    fs::remove_file(path)?;
                }
            }
            Ok(_) => {}
        }
        Ok((is_near && has_begun_since).then_some(time))
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

/// Mark of a session that was found.
struct FoundMark {
    file: File,
    time: Stamp,
    /// Folders that the commands can write, each followed by a NUL byte.
    text: Vec<u8>,
    /// True if no command ran, or all were checked, when the mark was changed last.
    is_idle: bool,
}

impl FoundMark {
    fn read(path: &Path) -> io::Result<FoundMark> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let about = file.metadata()?;
        let time = modified(&about);
        let is_idle = about.mode() & 0o777 != RUNNING;
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text)?;
        Ok(FoundMark { file, time, text, is_idle })
    }
}

/// Returns the folders of the mark with this text.
fn folders_of(text: &[u8]) -> impl Iterator<Item = &Path> {
    let written = text.split(|byte| *byte == 0).filter(|root| !root.is_empty());
    written.map(|root| Path::new(OsStr::from_bytes(root)))
}

/// True if a folder of the mark with this text contains one of `roots`, or is in one.
fn is_near(text: &[u8], roots: &[PathBuf]) -> bool {
    folders_of(text)
        .any(|other| roots.iter().any(|root| root.starts_with(other) || other.starts_with(root)))
}

/// The earliest of the times of the marks in `folder`. `None` if none has one. A mark that cannot be
/// read counts as the earliest possible time.
fn oldest(
    folder: &Path,
    mut time: impl FnMut(&Path) -> io::Result<Option<Stamp>>,
) -> Option<Stamp> {
    let unknown = Some((0, 0));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => return unknown,
    };
    let mut oldest: Option<Stamp> = None;
    for entry in entries {
        let Ok(path) = entry.map(|entry| entry.path()) else { return unknown };
        let found = match time(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => unknown,
        };
        oldest = [oldest, found].into_iter().flatten().min();
    }
    oldest
}

/// Folder with the marks of running commands in the state directory `state`.
pub fn marks_folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// Time at which commands began that run now, of any session, and can write in one of `roots` or in
/// a folder that contains one: seconds and nanoseconds since 1970, not later than the start of the
/// first of them. `None` if there are none. `folder`: see [`marks_folder`]. Changes no mark.
pub fn running_since(folder: &Path, roots: &[PathBuf]) -> Option<(i64, i64)> {
    oldest(folder, |path| {
        let FoundMark { file, time, text, .. } = FoundMark::read(path)?;
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((_, Errno::EWOULDBLOCK)) => Ok(is_near(&text, roots).then_some(time)),
            Err((_, errno)) => Err(errno.into()),
            Ok(_) => Ok(None),
        }
    })
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
    fn running_commands_are_known_to_checkpoints() {
        let dir = tempfile::tempdir().unwrap();
        let folder = marks_folder(dir.path());
        let since = |root: &str| running_since(&folder, &[root.into()]);
        assert_eq!(since("/w"), None);
        let (mut one, mut two) = (marks(dir.path(), "/w/sub"), marks(dir.path(), "/w"));
        one.begin().unwrap();
        next_tick(dir.path());
        two.begin().unwrap();
        assert!(one.begun < two.begun);
        for (root, expected) in
            [("/w", one.begun), ("/w/sub/x", one.begun), ("/w/other", two.begun), ("/v", None)]
        {
            assert_eq!(since(root), expected, "{root}");
        }
        one.end();
        assert_eq!(since("/w"), two.begun);
        drop(two);
        assert_eq!(since("/w"), None);
        // The marks stay for the sessions.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        // A mark that cannot be read counts as that of a command that has always run.
        fs::create_dir(folder.join("folder")).unwrap();
        assert_eq!(since("/v"), Some((0, 0)));
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
    fn unchecked_commands_are_found_until_they_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let since = || marks(folder.path(), root).unchecked_since();
        assert_eq!(since(), None);
        let mut theirs = marks(folder.path(), root);
        theirs.begin().unwrap();
        assert_eq!(since(), None, "it still runs");
        let begun = theirs.begun;
        drop(theirs);
        next_tick(folder.path());
        assert!(begun.is_some() && since() == begun);
        // A session elsewhere leaves the mark.
        let mut elsewhere = marks(folder.path(), "/elsewhere");
        assert_eq!(elsewhere.unchecked_since(), None);
        elsewhere.begin().unwrap();
        assert_eq!(elsewhere.others_since(), None);
        elsewhere.forget_unchecked();
        elsewhere.end();
        assert_eq!(since(), begun);
        let mut ours = marks(folder.path(), root);
        assert_eq!(ours.unchecked_since(), begun);
        ours.begin().unwrap();
        assert_eq!((ours.unchecked_since(), ours.others_since()), (None, None));
        assert_eq!(since(), begun, "it is not reported yet");
        ours.forget_unchecked();
        ours.end();
        drop(ours);
        assert_eq!(since(), None);
        // The mark of a folder that is gone is removed.
        let mut theirs = marks(folder.path(), "/gone");
        theirs.begin().unwrap();
        drop(theirs);
        let count = || fs::read_dir(folder.path().join("running")).unwrap().count();
        let before = count();
        assert_eq!((since(), count()), (None, before - 1));
    }

    #[test]
    fn marks_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut theirs = marks(folder.path(), "/elsewhere");
        theirs.begin().unwrap();
        theirs.end();
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
