//! The lock of a session: one process owns it, and the kernel forgets it with that process.
//!
//! The text in the file only names the owner; whether there is one is known by the lock alone,
//! so what a killed process left behind is harmless.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use posse_actors::ports::JournalError;

const NAME: &str = "lock";
/// Who only looks whether a session runs holds the lock for a moment: try again that often.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct SessionLock {
    _file: File,
}

impl SessionLock {
    /// Takes the lock of the session in `dir`, or names who has it.
    pub(crate) fn take(dir: &Path) -> Result<SessionLock, JournalError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(dir.join(NAME))
            .map_err(|source| JournalError::Write { source: source.into() })?;
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
        // Only a name for people: without it the lock holds all the same.
        file.set_len(0).and_then(|()| file.write_all(signature().as_bytes())).ok();
        Ok(SessionLock { _file: file })
    }
}

/// Whether some process owns the session in `dir`.
pub(crate) fn is_held(dir: &Path) -> bool {
    held_by(dir).is_some()
}

/// Which process owns the session in `dir`, if one does.
pub(crate) fn held_by(dir: &Path) -> Option<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let options = OpenOptions::new().read(true).custom_flags(flags.bits()).open(dir.join(NAME));
    let mut file = options.ok()?;
    let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    held.then(|| owner(&mut file))
}

fn signature() -> String {
    format!("pid {}\nboot {}\n", std::process::id(), boot_id())
}

/// Differs after each boot, where the system tells; process ids repeat.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn owner(file: &mut File) -> String {
    let unknown = "a process that left no name".to_owned();
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
    if gone || field("boot ").is_some_and(|boot| boot != boot_id()) {
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
        assert!(!is_held(dir.path()));
        let lock = SessionLock::take(dir.path()).unwrap();
        assert!(is_held(dir.path()));
        let start = std::time::Instant::now();
        match SessionLock::take(dir.path()) {
            Err(JournalError::Locked { owner }) => {
                assert_eq!(owner, format!("process {}", std::process::id()));
            }
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < Duration::from_millis(200));
        drop(lock);
        assert!(!is_held(dir.path()));
        SessionLock::take(dir.path()).unwrap();
    }

    #[test]
    fn takes_over_what_a_dead_process_left() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["pid 1\nboot 0\n", "pid 99999999\n", "pid -1", "\u{0}\u{ff}"] {
            std::fs::write(dir.path().join(NAME), text).unwrap();
            drop(SessionLock::take(dir.path()).unwrap());
        }
    }
}
