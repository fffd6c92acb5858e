//! Detects the sandbox backend of this host by trial.
//!
//! Files that describe kernel features are wrong in containers and on kernels that imitate Linux;
//! only a command that ran under a confinement proves it. The result is valid until the machine
//! reboots or our binary changes. It is cached in the state directory, where no command can write.
//! Enforcement does not depend on it: each helper reports what is in force.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;

use crate::sandbox::bubblewrap;
use crate::sandbox::helper::{self, Shape};
use crate::sandbox::plan::{Backend, Plan};
use crate::sandbox::wire::{self, Line, Request};

/// Time limit of one trial.
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// Name of the cache file.
const FILE: &str = "sandbox-backend";

/// Maximum size of the cache file in bytes.
const FILE_BYTES_MAX: u64 = 512;

/// Selection of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The strongest backend that works here. The result is cached in this folder, if any.
    Strongest {
        /// The state directory.
        kept_in: Option<PathBuf>,
    },
    /// This backend; if it does not work, commands do not run.
    Exactly(Backend),
}

/// Result of the detection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Selected backend.
    pub backend: Backend,
    /// Backends tried, strongest first. Empty if the result was cached.
    pub tried: Vec<Tried>,
}

/// Trial of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Backend.
    pub backend: Backend,
    /// Error, or `None` if the backend works.
    pub failure: Option<String>,
    /// Confinement that was reported as enforced, as JSON text.
    pub report: Option<String>,
}

/// Backend selection and its result.
#[derive(Debug)]
pub(crate) struct Probe {
    wanted: Wanted,
    found: Mutex<Option<Found>>,
}

impl Probe {
    pub(crate) fn new(wanted: Wanted) -> Probe {
        Probe { wanted, found: Mutex::new(None) }
    }

    /// Result, detected on the first call.
    pub(crate) fn found(&self, helper: &Path) -> Found {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert_with(|| self.find(helper)).clone()
    }

    fn find(&self, helper: &Path) -> Found {
        let kept_in = match &self.wanted {
            Wanted::Exactly(backend) => return Found { backend: *backend, tried: Vec::new() },
            Wanted::Strongest { kept_in } => kept_in.as_deref(),
        };
        let name = identity(helper);
        if let (Some(folder), Some(name)) = (kept_in, &name)
            && let Some(backend) = recall(folder, name)
        {
            return Found { backend, tried: Vec::new() };
        }
        let found = strongest(helper);
        if let (Some(folder), Some(name)) = (kept_in, &name)
            && let Err(error) = remember(folder, name, found.backend)
        {
            tracing::debug!(%error, "cannot cache the sandbox backend");
        }
        found
    }

    /// Deletes a cached result that turned out to be wrong. This process keeps using it: the
    /// promised tier is enforced, or no command runs.
    pub(crate) fn distrust(&self) {
        if let Wanted::Strongest { kept_in: Some(folder) } = &self.wanted {
            fs::remove_file(folder.join(FILE)).ok();
        }
    }
}

/// Tries every backend, strongest first, until one works.
pub(crate) fn strongest(helper: &Path) -> Found {
    let mut tried = Vec::new();
    for backend in Backend::ALL {
        let result = match backend {
            Backend::Nothing => Ok(String::new()),
            backend => attempt(helper, backend),
        };
        let works = result.is_ok();
        if backend != Backend::Nothing {
            let (report, failure) = match result {
                Ok(report) => (Some(report), None),
                Err(failure) => (None, Some(failure)),
            };
            tried.push(Tried { backend, failure, report });
        }
        if works {
            return Found { backend, tried };
        }
    }
    Found { backend: Backend::Nothing, tried }
}

/// Runs a no-op command under a backend and returns its report.
pub(crate) fn attempt(helper: &Path, backend: Backend) -> Result<String, String> {
    let place = tempfile::Builder::new().prefix("posse-probe-").tempdir();
    let place = place.map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let folder = fs::canonicalize(place.path()).map_err(|error| error.to_string())?;
    let plan = Plan {
        tier: backend.tier(),
        backend,
        writable: vec![folder.clone()],
        masked: ["/tmp", "/run"].map(PathBuf::from).into_iter().filter(|p| p.is_dir()).collect(),
        network: false,
        processes_max: 1024,
        ..Plan::open()
    };
    let program = ["/bin/true", "/usr/bin/true", "/bin/sh"].map(PathBuf::from);
    let program = program.into_iter().find(|path| path.is_file());
    let program = program.ok_or("found no program for the trial")?;
    let arguments = if program.ends_with("sh") { vec!["-c".into(), ":".into()] } else { vec![] };
    let request = Request { plan, program, arguments, environment: Vec::new() };
    let directory = File::open(&folder).map_err(|error| error.to_string())?;
    let (control, control_end) = UnixStream::pair().map_err(|error| error.to_string())?;
    let mut child = start(helper, &request.plan, control_end.into())?;
    let reported = converse(&control, &request, &directory);
    drop(control);
    let ended = reap(&mut child);
    match (reported?, ended?) {
        (report, true) => Ok(report),
        (_, false) => Err("the trial command failed".to_owned()),
    }
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn start(helper: &Path, plan: &Plan, control_end: OwnedFd) -> Result<Child, String> {
    let mut command = match plan.backend {
        Backend::Bubblewrap => bubblewrap::command(helper, plan)?,
        _ => std::process::Command::new(helper),
    };
    if plan.backend == Backend::Bubblewrap {
        command.process_group(0);
    } else {
        // The helper calls `setsid`, which fails for the leader of a process group.
        command.arg0("posse");
    }
    command
        .arg(helper::MARK)
        .arg(std::process::id().to_string())
        .arg(Shape::of(plan).as_str())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control_end))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().map_err(|error| format!("cannot start the helper: {error}"))
}

/// Sends the request to the helper and reads its answers until it closes the socket.
fn converse(control: &UnixStream, request: &Request, directory: &File) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot reach the helper: {error}");
    control.set_read_timeout(Some(TRIAL_MAX)).map_err(failed)?;
    control.set_write_timeout(Some(TRIAL_MAX)).map_err(failed)?;
    let sent = request.send(control, directory.as_fd());
    let mut said = String::new();
    let heard = control.take(16 << 10).read_to_string(&mut said);
    let mut report = None;
    for line in said.lines() {
        match wire::parse(line) {
            Some(Line::Enforced(enforced)) => report = Some(enforced),
            Some(Line::Failed(reason)) => return Err(reason),
            _ => {}
        }
    }
    match (report, sent.and(heard.map(drop))) {
        (Some(report), Ok(())) => Ok(report),
        (_, Err(error)) => Err(failed(error)),
        (None, Ok(())) => Err("the helper reported no confinement".to_owned()),
    }
}

/// Waits for the end of a trial. Returns `true` if it succeeded.
fn reap(child: &mut Child) -> Result<bool, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if begin.elapsed() < TRIAL_MAX => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(None) => {
                child.kill().ok();
                child.wait().ok();
                return Err("the trial command did not end".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Scope of a cached result: this boot, this binary and this user.
fn identity(helper: &Path) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let binary = fs::metadata(helper).ok()?;
    let user = nix::unistd::geteuid();
    let spaces = fs::read_link("/proc/self/ns/user").ok()?;
    Some(format!(
        "1 {} {}:{}:{}:{} {user} {}",
        boot.trim(),
        binary.dev(),
        binary.ino(),
        binary.mtime_nsec(),
        binary.len(),
        spaces.display(),
    ))
}

/// Cached result, if no other user can have written the file.
fn recall(folder: &Path, name: &str) -> Option<Backend> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(folder.join(FILE)).ok()?;
    let found = file.metadata().ok()?;
    let is_ours = found.is_file()
        && found.uid() == nix::unistd::geteuid().as_raw()
        && found.mode() & 0o7777 == 0o600
        && found.nlink() == 1;
    if !is_ours {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let backend = text.strip_prefix(name)?.strip_prefix(' ')?.strip_suffix('\n')?;
    // A cached "nothing" is tried again: the host may have been repaired.
    Backend::parse(backend).filter(|backend| *backend != Backend::Nothing)
}

fn remember(folder: &Path, name: &str, backend: Backend) -> io::Result<()> {
    if !folder.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Created with mode 600, and moved in place atomically.
    let mut file = tempfile::Builder::new().prefix(".sandbox-").tempfile_in(folder)?;
    writeln!(file, "{name} {}", backend.as_str())?;
    file.persist(folder.join(FILE)).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_answer_counts_for_the_same_start_binary_and_user_only() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
        remember(folder.path(), "a", Backend::Namespaces).unwrap();
        assert_eq!(recall(folder.path(), "a"), Some(Backend::Namespaces));
        assert_eq!(recall(folder.path(), "b"), None);
        remember(folder.path(), "a", Backend::Nothing).unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
    }

    #[test]
    fn an_answer_that_others_could_have_written_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        remember(folder.path(), "a", Backend::Landlock).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(recall(folder.path(), "a"), Some(Backend::Landlock));
        fs::hard_link(&path, folder.path().join("twin")).unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
        fs::remove_file(folder.path().join("twin")).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a full\n").unwrap();
        assert_eq!(recall(folder.path(), "a"), None);
    }

    #[test]
    fn a_program_that_is_no_helper_confines_nothing() {
        let found = strongest(Path::new("/bin/true"));
        assert_eq!(found.backend, Backend::Nothing);
        assert_eq!(found.tried.len(), 3);
        assert!(found.tried.iter().all(|tried| tried.failure.is_some()), "{found:?}");
    }
}
