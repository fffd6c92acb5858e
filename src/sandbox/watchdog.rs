//! Watchdog: kills commands after posse was killed. It is the posse binary, started again.
//!
//! After SIGKILL no code of posse runs, and only the first process of each command dies together
//! with posse. So a sandbox starts one watchdog before its first command and holds one end of a
//! pipe that the watchdog reads. When the pipe closes without [`BYE`], the watchdog kills every
//! process with the sandbox's mark in its environment. Then it exits.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::helper;
use crate::process_tree::{self, Family};

/// First command line argument that makes the posse binary run as a watchdog.
pub(crate) const MARK: &str = "__posse_watch";

/// Message to the watchdog: exit without killing processes.
const BYE: &[u8] = b"bye\n";

/// Maximum time for which the watchdog searches and kills processes.
const CHASE_MAX: Duration = Duration::from_secs(5);

/// Number of consecutive searches that must find no process: a single search can miss processes
/// forked during it.
const LOOKS_MIN: u32 = 3;

/// Time for which the watchdog spares helpers. They kill their own commands, including descendants
/// that removed the mark.
const HELPERS_MAX: Duration = Duration::from_secs(1);

/// Time between two searches.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Stack size in bytes of the thread that waits for the watchdog: its calls are shallow.
const STACK_BYTES: usize = 64 << 10;

/// Pipe to the watchdog process of one sandbox. When the pipe is dropped without
/// [`Watch::dismiss`], the watchdog kills remaining processes and exits.
#[derive(Debug, Default)]
pub(crate) struct Watch(OnceLock<Option<io::PipeWriter>>);

impl Watch {
    /// Starts a watchdog for `family` on the first call. Does not wait until it runs; a failure is
    /// logged and not tried again. Does nothing on systems other than Linux.
    pub(crate) fn ensure(&self, helper: &Path, family: &Family) {
        self.0.get_or_init(|| {
            if !cfg!(target_os = "linux") {
                return None;
            }
            let begun = begin(helper, family);
            if let Err(error) = &begun {
                tracing::warn!(%error, "commands would outlive a kill");
            }
            begun.ok()
        });
    }

    /// Tells the watchdog to exit without killing processes, because none is left.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut end) = self.0.take().flatten() {
            // Without the message it only scans once more.
            end.write_all(BYE).ok();
        }
    }
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn begin(helper: &Path, family: &Family) -> io::Result<io::PipeWriter> {
    let (reader, writer) = io::pipe()?;
    let mut command = std::process::Command::new(helper);
    command
        .arg0("posse")
        .arg(MARK)
        .arg(family.as_str())
        // Without a mark it does not look like a command, and without variables it has no secret.
        .env_clear()
        .current_dir("/")
        // In posse's session, so that it is no orphan of a command; in its own group, so that it
        // gets no terminal signals.
        .process_group(0)
        .stdin(Stdio::from(reader))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Nothing waits for its start or end.
    let attend = move || match command.spawn() {
        Ok(mut watcher) => {
            drop(command);
            watcher.wait().ok();
        }
        Err(error) => tracing::warn!(%error, "commands would outlive a kill"),
    };
    let thread = std::thread::Builder::new().name("posse-watch".into()).stack_size(STACK_BYTES);
    thread.spawn(attend)?;
    Ok(writer)
}

/// True if the process is a watchdog, by its arguments.
pub(crate) fn is_watcher(pid: i32) -> bool {
    has_first_argument(pid, MARK)
}

fn has_first_argument(pid: i32, expected: &str) -> bool {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    arguments.split(|&byte| byte == 0).nth(1) == Some(expected.as_bytes())
}

/// Runs the watchdog: waits for the end of the pipe on standard input, then kills the processes
/// unless the pipe delivered [`BYE`]. The first of `arguments` names the family; if that is
/// malformed, fails at once.
pub(crate) fn watcher_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let family = arguments.next().and_then(|family| Family::parse(family.to_str()?));
    let Some(family) = family else { return ExitCode::FAILURE };
    // It ends only with its sandbox. A signal that cannot be blocked is harmless.
    SigSet::all().thread_block().ok();
    helper::close_others(0).ok();
    let mut said = Vec::new();
    let end = io::stdin().lock().take(BYE.len() as u64).read_to_end(&mut said);
    if end.is_err() || said != BYE {
        kill_family(&family);
    }
    ExitCode::SUCCESS
}

/// Kills the family's processes until repeated searches find none, or the time is over.
fn kill_family(family: &Family) {
    let begin = Instant::now();
    let mut quiet = 0;
    while quiet < LOOKS_MIN && begin.elapsed() < CHASE_MAX {
        let spares_helpers = begin.elapsed() < HELPERS_MAX;
        quiet = if kill_marked(family, spares_helpers) == 0 { quiet + 1 } else { 0 };
        sleep(LOOK_INTERVAL);
    }
}

/// Kills all processes with a mark of the family, except helpers if `spares_helpers`. Returns the
/// number of processes found, including spared helpers.
fn kill_marked(family: &Family, spares_helpers: bool) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| {
        // The mark is read immediately before the kill, so that a reused process id is spared.
        let is_ours = process_tree::mark_of(pid).is_some_and(|mark| family.has(&mark));
        let is_spared = || spares_helpers && has_first_argument(pid, helper::MARK);
        is_ours && (is_spared() || kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
    })
    .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_matched_by_their_own_marker() {
        let ours = Family::new();
        assert_ne!(ours, Family::new());
        assert_eq!(Family::parse(ours.as_str()).as_ref(), Some(&ours));
        assert!(ours.has(&format!("{}.7", ours.as_str())));
        for other in ["", ours.as_str(), "1.7", &format!("{}0.7", ours.as_str())] {
            assert!(!ours.has(other), "{other}");
        }
        // A name that would match more than one sandbox is rejected.
        for bad in ["", ".", "1", "1.", "1.0", "x.0123456789abcdef", "1.0123456789abcdef.2"] {
            assert_eq!(Family::parse(bad), None, "{bad}");
        }
    }
}
