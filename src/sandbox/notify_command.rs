//! Runs the user's command for notifications.
//!
//! The command is not confined: only the user's own configuration names it, and it has to reach the
//! user's desktop. A project or a model contributes nothing but the text on its standard input.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// First interval of the checks whether the command has ended. It doubles up to
/// [`CHECK_INTERVAL_MAX`].
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(50);

/// Runs the program `argv[0]` with the other arguments and `input`, of at most 4,096 bytes, on its
/// standard input, and waits for it. Its output is discarded. After `limit` the command and its
/// process group are killed. The error says why the command could not be started, or how it ended.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
pub fn run_notify_command(argv: &[String], input: &str, limit: Duration) -> Result<(), String> {
    let [program, arguments @ ..] = argv else { return Err("it is empty".to_owned()) };
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A process group of its own: Ctrl+C at the terminal does not reach the command.
    let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // The input fits into the pipe. The command may have ended without reading it.
        stdin.write_all(input.as_bytes()).ok();
    }
    match wait(&mut child, limit) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("it ended with {status}")),
        Ok(None) => {
            let group = i32::try_from(child.id()).map(Pid::from_raw);
            group.ok().and_then(|group| killpg(group, Signal::SIGKILL).ok());
            child.wait().ok();
            Err(format!("it ran longer than {} s", limit.as_secs()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for a process, at most for `limit`; `None` if it still runs then.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let (begun, mut interval) = (Instant::now(), CHECK_INTERVAL);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= limit {
            return Ok(None);
        }
        sleep(interval);
        interval = (interval * 2).min(CHECK_INTERVAL_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str], limit: Duration) -> Result<(), String> {
        let argv: Vec<String> = argv.iter().map(|part| (*part).to_owned()).collect();
        run_notify_command(&argv, "{\"event\":\"end\"}", limit)
    }

    #[test]
    fn command_gets_the_event_and_its_failure_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("event");
        let long = Duration::from_mins(1);
        let script = "cat > \"$1\"";
        run(&["/bin/sh", "-c", script, "sh", file.to_str().unwrap()], long).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"event\":\"end\"}");
        assert_eq!(run(&["true"], long), Ok(()), "a command may ignore its input");
        assert_eq!(run(&["false"], long).unwrap_err(), "it ended with exit status: 1");
        let missing = run(&["/no/such/program"], long).unwrap_err();
        assert!(missing.starts_with("No such file"), "{missing}");
        assert_eq!(run(&[], long).unwrap_err(), "it is empty");
    }

    #[test]
    fn command_that_lingers_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = "sleep 600 & echo $! > \"$1\"; wait";
        let argv = ["/bin/sh", "-c", script, "sh", file.to_str().unwrap()];
        let begun = Instant::now();
        // Long enough that the shell has written the file, also on a loaded machine.
        let ended = run(&argv, Duration::from_secs(3));
        assert_eq!(ended.unwrap_err(), "it ran longer than 3 s");
        assert!(begun.elapsed() < Duration::from_mins(1));
        let child: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        // The kernel ends it a moment after the signal. It may then be a zombie until init has
        // waited for it.
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
            if matches!(state, None | Some(Some('Z' | 'X'))) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_mins(1), "{stat}");
            sleep(CHECK_INTERVAL);
        }
    }
}
