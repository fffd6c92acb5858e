//! Session lock: one process owns a session, and the kernel releases the lock when that process
//! ends.
//!
//! Ownership is decided by the lock alone. The text in the lock file only names the owner, so a
//! file left by a killed process is harmless. The name is used only while the process that wrote it
//! is alive: its id, boot and start time must match.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::unistd::{Pid, gettid};
use posse_actors::ports::JournalError;

const NAME: &str = "lock";
/// Number of tries to take the lock, `PAUSE` apart. A process that only checks for an owner can
/// hold the lock for a moment.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);
/// Time after which [`SessionLock::take`] checks if the file system hangs. A disk that is busy with
/// other writes can block for a second or more.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Number of checks of the locking thread, `HANG_CHECK_PAUSE` apart. The file system hangs if all
/// of them find the thread blocked.
const HANG_CHECKS: u32 = 20;
const HANG_CHECK_PAUSE: Duration = Duration::from_millis(2);

/// Path of the lock file of the session in `dir`.
pub(crate) fn lock_file(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Exclusive lock of a session, released on drop.
#[derive(Debug)]
pub(crate) struct SessionLock {
    _file: File,
}

impl SessionLock {
    /// Takes the lock of the session in `dir`, on a thread of its own, and writes the name of this
    /// process into the lock file. Fails with [`JournalError::Locked`] and a description of the
    /// owner if another process holds the lock. Fails with a write error if the lock file cannot be
    /// opened or locked, or if the thread is blocked in the file system after `ANSWER_MAX`.
    pub(crate) fn take(dir: &Path) -> Result<SessionLock, JournalError> {
        SessionLock::take_before(dir, ANSWER_MAX, |dir| SessionLock::take_now(&dir))
    }

    fn take_before(
        dir: &Path,
        answer_max: Duration,
        take: impl FnOnce(PathBuf) -> Result<SessionLock, JournalError> + Send + 'static,
    ) -> Result<SessionLock, JournalError> {
        let dir = dir.to_owned();
        let (sender, receiver) = sync_channel(1);
        let (name_thread, thread) = sync_channel(1);
        let spawned =
            std::thread::Builder::new().name("posse-journal-lock".to_owned()).spawn(move || {
                name_thread.send(gettid()).ok();
                // If the caller has stopped waiting, the answer is dropped and with it the lock.
                sender.send(take(dir)).ok();
            });
        if let Err(source) = spawned {
            return Err(JournalError::Write { source: source.into() });
        }
        let Ok(thread) = thread.recv() else { return Err(JournalError::Closed) };
        loop {
            match receiver.recv_timeout(answer_max) {
                Ok(taken) => return taken,
                Err(RecvTimeoutError::Disconnected) => return Err(JournalError::Closed),
                Err(RecvTimeoutError::Timeout) if is_blocked(thread) => {
                    return Err(JournalError::Write {
                        source: "the file system of the state directory does not answer".into(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => (),
            }
        }
    }

    /// Takes the lock on the calling thread, without the time limit of [`SessionLock::take`] for a
    /// file system that hangs. Used for a new session, whose folder was just created.
    pub(crate) fn take_now(dir: &Path) -> Result<SessionLock, JournalError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(lock_file(dir))
            .map_err(crate::writer::io_error)?;
        let mut attempt = 1;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => {
                    std::thread::sleep(PAUSE);
                    attempt += 1;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(JournalError::Locked { owner: owner(&mut file) });
                }
                Err(TryLockError::Error(source)) => {
                    let text =
                        format!("the file system of the state directory has no locks: {source}");
                    return Err(JournalError::Write { source: text.into() });
                }
            }
        }
        // The name is only informative: the lock holds without it.
        file.set_len(0).and_then(|()| file.write_all(signature().as_bytes())).ok();
        Ok(SessionLock { _file: file })
    }
}

/// Returns true if `thread` of this process is blocked, and false if it only waits for a busy CPU.
fn is_blocked(thread: Pid) -> bool {
    let path = format!("/proc/self/task/{thread}/stat");
    (0..HANG_CHECKS).all(|_| {
        std::thread::sleep(HANG_CHECK_PAUSE);
        matches!(stat_field(&path, 3).as_deref(), Some("D" | "S"))
    })
}

/// Reads field `number` of the `stat` file `path` of a process or thread. `None` if the file or the
/// field is missing.
///
/// Fields are counted from 1, and `number` must be at least 3: field 2, the name in brackets, can
/// contain any character.
fn stat_field(path: &str, number: usize) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(number - 3).map(str::to_owned)
}

/// Description of the process that owns the session in `dir`: `process 123`, or `an unknown
/// process`. `None` if no process holds the lock, or if the lock file cannot be opened.
pub(crate) fn owner_of(dir: &Path) -> Option<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let options = OpenOptions::new().read(true).custom_flags(flags.bits()).open(lock_file(dir));
    let mut file = options.ok()?;
    let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    held.then(|| owner(&mut file))
}

/// Id of the process that owns the session in `dir`, if that process is stopped (`SIGSTOP`) and
/// therefore cannot answer. `None` in all other cases.
pub fn stopped_owner(dir: &Path) -> Option<u32> {
    let pid = owner_of(dir)?.strip_prefix("process ")?.parse().ok()?;
    let state = stat_field(&format!("/proc/{pid}/stat"), 3)?;
    matches!(state.as_str(), "T" | "t").then_some(pid)
}

fn signature() -> String {
    let pid = std::process::id();
    let start = start_of(pid).unwrap_or_default();
    format!("pid {pid}\nboot {}\nstart {start}\n", boot_id())
}

/// Start time of process `pid` in clock ticks since the boot; `None` if the system does not report
/// it. It tells processes apart that had the same id one after the other.
fn start_of(pid: u32) -> Option<String> {
    stat_field(&format!("/proc/{pid}/stat"), 22)
}

/// Id of the current boot; empty if the system does not report it. It tells processes of different
/// boots apart.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn owner(file: &mut File) -> String {
    let unknown = "an unknown process".to_owned();
    let mut text = String::new();
    let read: io::Result<usize> = Read::by_ref(file).take(256).read_to_string(&mut text);
    if read.is_err() {
        return unknown;
    }
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let Some(pid) = field("pid ").and_then(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid > 0)
    else {
        return unknown;
    };
    let gone = kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
    let start = start_of(pid.unsigned_abs());
    let another = |claimed: &str| start.as_ref().is_some_and(|start| start != claimed);
    if gone
        || field("boot ").is_some_and(|boot| boot != boot_id())
        || field("start ").is_some_and(another)
    {
        return unknown;
    }
    format!("process {pid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_owner_and_frees_with_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(owner_of(dir.path()).is_none());
        let lock = SessionLock::take(dir.path()).unwrap();
        assert!(owner_of(dir.path()).is_some());
        let start = std::time::Instant::now();
        match SessionLock::take(dir.path()) {
            Err(JournalError::Locked { owner }) => {
                assert_eq!(owner, format!("process {}", std::process::id()));
            }
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < Duration::from_millis(200));
        drop(lock);
        assert!(owner_of(dir.path()).is_none());
        SessionLock::take(dir.path()).unwrap();
    }

    #[test]
    fn does_not_name_a_process_that_has_the_id_of_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = SessionLock::take(dir.path()).unwrap();
        let named = || match SessionLock::take(dir.path()) {
            Err(JournalError::Locked { owner }) => owner,
            other => panic!("{other:?}"),
        };
        let ours = format!("process {}", std::process::id());
        assert_eq!(named(), ours);
        let text = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
        let start = start_of(std::process::id()).unwrap();
        for (from, to) in [(start, "1".to_owned()), (boot_id(), "0".to_owned())] {
            std::fs::write(dir.path().join(NAME), text.replace(&from, &to)).unwrap();
            assert_eq!(named(), "an unknown process");
        }
    }

    #[test]
    fn hanging_file_system_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let (release, held) = sync_channel::<()>(0);
        let start = std::time::Instant::now();
        let answer = SessionLock::take_before(dir.path(), 20 * PAUSE, move |dir| {
            held.recv().ok();
            SessionLock::take_now(&dir)
        });
        assert!(matches!(answer, Err(JournalError::Write { .. })), "{answer:?}");
        // 140 ms on an idle machine; the rest allows for load.
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        // The late answer has no receiver and releases the lock.
        release.send(()).unwrap();
        let start = std::time::Instant::now();
        while owner_of(dir.path()).is_some() || !dir.path().join(NAME).exists() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(PAUSE);
        }
        SessionLock::take(dir.path()).unwrap();
    }

    #[test]
    fn takes_the_lock_of_a_dead_process() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["pid 1\nboot 0\n", "pid 99999999\n", "pid -1", "\u{0}\u{ff}"] {
            std::fs::write(dir.path().join(NAME), text).unwrap();
            drop(SessionLock::take(dir.path()).unwrap());
        }
    }
}
