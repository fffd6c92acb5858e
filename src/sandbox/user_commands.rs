//! Runs commands of the user's own configuration: for notifications, and for the status line; and
//! the programs that read the clipboard.
//!
//! They are not confined: only the user's own configuration, or posse, names them, and they have to
//! reach the user's desktop and files. A project or a model contributes nothing but the text on
//! their standard input (see `unsandboxed`).

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::unsandboxed;

/// First interval of the checks whether the command has ended. It doubles up to
/// [`CHECK_INTERVAL_MAX`].
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(50);

/// Maximum bytes of a status line that are kept.
const STATUS_BYTES_MAX: usize = 4096;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Runs the program `argv[0]` with the other arguments and `input`, of at most 4,096 bytes, on its
/// standard input, and waits for it. Its output is discarded. After `limit` the command and its
/// process group are killed. The error says why the command could not be started, or how it ended.
pub fn run_notify_command(argv: &[String], input: &str, limit: Duration) -> Result<(), String> {
    run(argv, input, Stdio::null(), (0, limit)).map(drop)
}

/// The same, but returns the first line of the output, without control over its content: at most
/// 4,096 bytes. It is empty if the command prints nothing.
pub fn run_status_command(argv: &[String], input: &str, limit: Duration) -> Result<String, String> {
    let output = run(argv, input, Stdio::piped(), (STATUS_BYTES_MAX, limit))?;
    let text = String::from_utf8_lossy(&output.bytes);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Runs a program that prints the content of the clipboard, and returns its output. Fails if it has
/// more than `bytes_max` bytes.
pub fn run_clipboard_command(
    argv: &[String],
    bytes_max: usize,
    limit: Duration,
) -> Result<Vec<u8>, String> {
    let output = run(argv, "", Stdio::piped(), (bytes_max, limit))?;
    if output.is_cut { Err(format!("more than {bytes_max} bytes")) } else { Ok(output.bytes) }
}

/// Runs a command and returns its output, if `stdout` is a pipe. `limits`: number of bytes that are
/// kept, and time.
fn run(
    argv: &[String],
    input: &str,
    stdout: Stdio,
    limits: (usize, Duration),
) -> Result<PrintedOutput, String> {
    let (bytes_max, limit) = limits;
    let mut child = spawn(argv, stdout).map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // The input fits into the pipe. The command may have ended without reading it.
        stdin.write_all(input.as_bytes()).ok();
    }
    let mut output =
        PrintedOutput::of(child.stdout.take(), bytes_max).map_err(|error| error.to_string())?;
    match wait(&mut child, &mut output, limit) {
        Ok(Some(status)) if status.success() => Ok(output),
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

fn spawn(argv: &[String], stdout: Stdio) -> io::Result<Child> {
    let mut command = unsandboxed::command(argv)?;
    command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null());
    // A process group of its own: Ctrl+C at the terminal does not reach the command.
    command.process_group(0).spawn()
}

/// Output of a command: the first bytes are kept, the others are read and dropped.
struct PrintedOutput {
    pipe: Option<ChildStdout>,
    bytes: Vec<u8>,
    bytes_max: usize,
    /// True if bytes were dropped.
    is_cut: bool,
}

impl PrintedOutput {
    fn of(pipe: Option<ChildStdout>, bytes_max: usize) -> io::Result<PrintedOutput> {
        if let Some(pipe) = &pipe {
            // A process that the command has left behind may hold the pipe open.
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(PrintedOutput { pipe, bytes: Vec::new(), bytes_max, is_cut: false })
    }

    /// Reads what is there, without waiting.
    fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut chunk = vec![0; CHUNK_BYTES];
        // Bounded, so that an endless output does not hold up the time limit.
        for _ in 0..32 {
            let Ok(count @ 1..) = pipe.read(&mut chunk) else { return };
            let room = self.bytes_max - self.bytes.len();
            self.is_cut |= count > room;
            self.bytes.extend(&chunk[..count.min(room)]);
        }
    }
}

/// Waits for a process, at most for `limit`; `None` if it still runs then. Reads its output
/// meanwhile.
fn wait(
    child: &mut Child,
    output: &mut PrintedOutput,
    limit: Duration,
) -> io::Result<Option<ExitStatus>> {
    let (begun, mut interval) = (Instant::now(), CHECK_INTERVAL);
    loop {
        let ended = child.try_wait()?;
        output.read();
        if ended.is_some() {
            return Ok(ended);
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

    fn notify(argv: &[&str], limit: Duration) -> Result<(), String> {
        let argv: Vec<String> = argv.iter().map(|part| (*part).to_owned()).collect();
        run_notify_command(&argv, "{\"event\":\"end\"}", limit)
    }

    #[test]
    fn command_gets_the_event_and_its_failure_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("event");
        let long = Duration::from_mins(1);
        let script = "cat > \"$1\"";
        notify(&["/bin/sh", "-c", script, "sh", file.to_str().unwrap()], long).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"event\":\"end\"}");
        assert_eq!(notify(&["true"], long), Ok(()), "a command may ignore its input");
        assert_eq!(notify(&["false"], long).unwrap_err(), "it ended with exit status: 1");
        let missing = notify(&["/no/such/program"], long).unwrap_err();
        assert!(missing.starts_with("No such file"), "{missing}");
        assert_eq!(notify(&[], long).unwrap_err(), "it is empty");
    }

    #[test]
    fn command_that_lingers_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = "sleep 600 & echo $! > \"$1\"; wait";
        let argv = ["/bin/sh", "-c", script, "sh", file.to_str().unwrap()];
        let begun = Instant::now();
        // Long enough that the shell has written the file, also on a loaded machine.
        let ended = notify(&argv, Duration::from_secs(3));
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

    /// A program of the workspace must not be found there.
    #[test]
    fn command_does_not_start_in_the_working_directory() {
        let argv = ["/bin/sh", "-c", "pwd"].map(str::to_owned);
        let folder = run_status_command(&argv, "", Duration::from_mins(1)).unwrap();
        let home = std::env::var("HOME").unwrap_or_default();
        assert!(folder == "/" || folder == home, "{folder}");
    }

    #[test]
    fn first_line_of_the_output_is_the_status() {
        let run = |script: &str, limit| {
            let argv = ["/bin/sh", "-c", script].map(str::to_owned);
            run_status_command(&argv, "{\"branch\":\"main\"}", limit)
        };
        let long = Duration::from_mins(1);
        assert_eq!(run("cat; echo; echo second", long).as_deref(), Ok("{\"branch\":\"main\"}"));
        assert_eq!(run("exit 0", long).as_deref(), Ok(""));
        assert_eq!(run("echo no; exit 3", long).unwrap_err(), "it ended with exit status: 3");
        let much = run("head -c 1000000 /dev/zero | tr '\\0' x", long).unwrap();
        assert_eq!(much.len(), STATUS_BYTES_MAX);
        let begun = Instant::now();
        let left = run("sleep 20 & echo left", long).unwrap();
        assert_eq!(left, "left");
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "a process that stays is not waited for"
        );
        let argv = ["head", "-c", "200000", "/dev/zero"].map(str::to_owned);
        assert_eq!(run_clipboard_command(&argv, 200_000, long).unwrap().len(), 200_000);
        assert!(run_clipboard_command(&argv, 199_999, long).unwrap_err().starts_with("more than"));
        let endless = run("cat /dev/zero", Duration::from_millis(300));
        assert!(endless.unwrap_err().starts_with("it ran longer"));
    }
}
