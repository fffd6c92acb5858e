//! Probing of the sandbox mechanisms of this host by trial.
//!
//! Files that describe kernel features are wrong in containers and on kernels that imitate Linux;
//! only running a command in a confinement proves that the mechanism works. The result is valid for
//! one boot, binary, user and user namespace, and is cached in the state directory, where no
//! command can write. A weaker result is cached only if the failures of all stronger mechanisms are
//! permanent; a lack of memory, for example, is not. Even then each start tries the stronger
//! mechanisms again in the background, for the next start. No later process uses the result that
//! nothing works. Enforcement does not depend on the cache: each helper reports for itself.

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

use nix::errno::Errno;
use nix::libc;
use posse_actors::event::SandboxTier;

use crate::helper::{self, HelperShape};
use crate::plan::{Backend, Plan};
use crate::process_tree::NoOrphan;
use crate::wire::{HelperLine, HelperRequest};
use crate::{Context as _, bubblewrap};

/// Maximum time for which a trial waits for each read from the helper, and then for the end of the
/// helper.
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// Name of the cache file.
const FILE: &str = "sandbox-backend";

/// Name of a cache file whose result turned out to be wrong.
const WRONG_FILE: &str = "sandbox-backend.wrong";

/// Name of an empty folder beside the cache file, in which trials in the background run.
const TRIAL_FOLDER: &str = "sandbox-trial";

/// Errors of a mechanism that remain until the machine or its configuration changes. Any other
/// error may be temporary.
const PERMANENT: [Errno; 5] =
    [Errno::EPERM, Errno::EACCES, Errno::ENOSYS, Errno::ENOENT, Errno::EOPNOTSUPP];

/// Maximum number of bytes read from a cache file.
const FILE_BYTES_MAX: u64 = 512;

/// Selection of the sandbox mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeRequest {
    /// The strongest backend that works on this host.
    Strongest {
        /// State directory, in which the result is cached and compared with an earlier one. `None`:
        /// no cache, and `is_weakened` is never set.
        kept_in: Option<PathBuf>,
    },
    /// This backend, without a trial; if it does not work, commands do not run.
    Exactly(Backend),
}

/// Result of probing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// Selected mechanism.
    pub backend: Backend,
    /// Trials, strongest backend first. Empty if the result was cached or the backend was
    /// configured.
    pub tried: Vec<Tried>,
    /// True if the trials found a weaker tier than full, but the cache file contains the full tier,
    /// which an earlier process found. False if the result is cached or configured.
    pub is_weakened: bool,
}

/// Trial of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Mechanism that was tried.
    pub backend: Backend,
    /// Error, or `None` if the backend works.
    pub failure: Option<String>,
    /// Enforcement report of the trial, as JSON text. `None` if the trial failed.
    pub report: Option<String>,
}

/// Requested backend, and the result of the probe, which is `None` before it is needed.
#[derive(Debug)]
pub(crate) struct Probe {
    wanted: ProbeRequest,
    found: Mutex<Option<ProbeResult>>,
}

impl Probe {
    pub(crate) fn new(wanted: ProbeRequest) -> Probe {
        Probe { wanted, found: Mutex::new(None) }
    }

    /// Returns the result. The first call takes it from the cache or determines it by trial.
    pub(crate) fn found(&self, helper: &Path) -> ProbeResult {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert_with(|| self.find(helper)).clone()
    }

    fn find(&self, helper: &Path) -> ProbeResult {
        let kept_in = match &self.wanted {
            ProbeRequest::Exactly(backend) => {
                let (backend, tried) = (*backend, Vec::new());
                return ProbeResult { backend, tried, is_weakened: false };
            }
            ProbeRequest::Strongest { kept_in } => kept_in.as_deref(),
        };
        let name = identity(helper);
        if let (Some(folder), Some(name)) = (kept_in, &name)
            && let Some(backend) = cached_backend(folder, name)
        {
            try_stronger(helper.to_owned(), folder.to_owned(), name.clone(), backend);
            return ProbeResult { backend, tried: Vec::new(), is_weakened: false };
        }
        let mut found = strongest_backend(helper);
        if let Some(folder) = kept_in {
            found.is_weakened = was_full(folder) && found.backend.tier() != SandboxTier::Full;
        }
        if let (Some(folder), Some(name)) = (kept_in, &name)
            && found.is_permanent()
            && let Err(error) = remember(folder, name, found.backend)
        {
            tracing::debug!(%error, "what confines commands is found out again next time");
        }
        found
    }

    /// Invalidates the cached result, which was wrong, so that the next process probes again. This
    /// process keeps the result; a command whose tier cannot be enforced does not run.
    pub(crate) fn discard_probe_result(&self) {
        if let ProbeRequest::Strongest { kept_in: Some(folder) } = &self.wanted {
            fs::rename(folder.join(FILE), folder.join(WRONG_FILE)).ok();
        }
    }
}

impl ProbeResult {
    /// True if the error text of each failed trial names an error of [`PERMANENT`]. Also true if no
    /// trial failed.
    fn is_permanent(&self) -> bool {
        let mut failures = self.tried.iter().filter_map(|tried| tried.failure.as_deref());
        failures.all(|failure| {
            // bubblewrap and the helper report errors in the words of the system.
            PERMANENT.iter().any(|errno| failure.contains(errno.desc()))
        })
    }
}

/// True if the cache file in `folder`, or the one whose result turned out wrong, names a backend of
/// the full tier, also from another boot or binary.
fn was_full(folder: &Path) -> bool {
    [FILE, WRONG_FILE].iter().any(|name| {
        let text = read_cache(&folder.join(name)).unwrap_or_default();
        let backend = text.split_whitespace().next_back().and_then(Backend::parse);
        backend.is_some_and(|backend| backend.tier() == SandboxTier::Full)
    })
}

/// Tries the backends, strongest first, and returns the first one that works, with all trials so
/// far; [`Backend::Nothing`] if none does.
pub(crate) fn strongest_backend(helper: &Path) -> ProbeResult {
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
            return ProbeResult { backend, tried, is_weakened: false };
        }
    }
    ProbeResult { backend: Backend::Nothing, tried, is_weakened: false }
}

/// Starts a thread that tries all backends stronger than `cached` and caches the first one that
/// works, for the next process. Starts none if `cached` is the strongest. The thread, and a trial
/// that is running, end with this process.
fn try_stronger(helper: PathBuf, folder: PathBuf, name: String, cached: Backend) {
    let stronger = Backend::ALL.into_iter().take_while(move |backend| *backend != cached);
    let mut stronger = stronger.peekable();
    if stronger.peek().is_none() {
        return;
    }
    let place = folder.join(TRIAL_FOLDER);
    let search = move || {
        // Not a temporary folder, because a short run would end before the thread removes it.
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&place);
        let Some(found) = created
            .ok()
            .and_then(|()| stronger.find(|backend| attempt_in(&place, &helper, *backend).is_ok()))
        else {
            return;
        };
        if let Err(error) = remember(&folder, &name, found) {
            tracing::debug!(%error, "a stronger sandbox mechanism is not cached");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("posse-probe".into()).spawn(search) {
        tracing::debug!(%error, "stronger sandbox mechanisms are not tried again");
    }
}

/// Tries `backend` with a temporary folder, as [`attempt_in`] does.
pub(crate) fn attempt(helper: &Path, backend: Backend) -> Result<String, String> {
    let place = tempfile::Builder::new().prefix("posse-probe-").tempdir();
    attempt_in(place.context("no temporary folder")?.path(), helper, backend)
}

/// Tries `backend`: runs a command that does nothing, confined by it, which could write
/// only to `place`. Returns the enforcement report as JSON text, or the reason of the failure.
fn attempt_in(place: &Path, helper: &Path, backend: Backend) -> Result<String, String> {
    let folder = fs::canonicalize(place).map_err(|error| error.to_string())?;
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
    let program = program.ok_or("there is no program to try it with")?;
    let arguments = if program.ends_with("sh") { vec!["-c".into(), ":".into()] } else { vec![] };
    let request =
        HelperRequest { plan, program, arguments, environment: Vec::new(), listen: Vec::new() };
    let directory = File::open(&folder).map_err(|error| error.to_string())?;
    let (control, control_end) = UnixStream::pair().map_err(|error| error.to_string())?;
    // A trial in the background must not be taken for a process that a command left behind.
    let (mut child, _no_orphan) = NoOrphan::start(|| {
        let child = start(helper, &request.plan, control_end.into())?;
        let pid = child.id().cast_signed();
        Ok((child, pid))
    })?;
    let reported = converse(&control, &request, &directory);
    drop(control);
    let ended = reap(&mut child);
    match (reported?, ended?) {
        (report, true) => Ok(report),
        (_, false) => Err("a command that does nothing failed in it".to_owned()),
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
        // It creates a session, which a group leader cannot.
        command.arg0("posse");
    }
    command
        .arg(helper::MARK)
        .arg(std::process::id().to_string())
        .arg(HelperShape::of(plan).as_str())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control_end))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().context("it cannot be started")
}

/// Sends the request to the helper and reads its messages to the end. Returns the enforcement
/// report as JSON text.
fn converse(
    control: &UnixStream,
    request: &HelperRequest,
    directory: &File,
) -> Result<String, String> {
    let failed = |error: io::Error| format!("the helper does not answer: {error}");
    control.set_read_timeout(Some(TRIAL_MAX)).map_err(failed)?;
    control.set_write_timeout(Some(TRIAL_MAX)).map_err(failed)?;
    let sent = request.send(control, directory.as_fd(), None, None);
    let mut said = String::new();
    let heard = control.take(16 << 10).read_to_string(&mut said);
    let mut report = None;
    for line in said.lines() {
        match HelperLine::parse(line.as_bytes()) {
            Some(HelperLine::Enforced(enforced)) => report = Some(enforced.to_string()),
            Some(HelperLine::Failed(reason)) => return Err(reason),
            _ => {}
        }
    }
    match (report, sent.and(heard.map(drop))) {
        (Some(report), Ok(())) => Ok(report),
        (_, Err(error)) => Err(failed(error)),
        (None, Ok(())) => Err("nothing was reported as enforced".to_owned()),
    }
}

/// Waits until the process of a trial ends; returns true if it succeeded. Kills it after the time
/// limit, which is an error.
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
                return Err("it does not end".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Key of a cached result: boot, binary, user and user namespace. `None` if one of them is unknown.
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

/// Returns the backend that an earlier process cached under the key `name`. `None` if there is
/// none, or if it is [`Backend::Nothing`].
fn cached_backend(folder: &Path, name: &str) -> Option<Backend> {
    let text = read_cache(&folder.join(FILE))?;
    let backend = text.strip_prefix(name)?.strip_prefix(' ')?.strip_suffix('\n')?;
    // A negative result is not cached: the cause may have been fixed.
    Backend::parse(backend).filter(|backend| *backend != Backend::Nothing)
}

/// Returns the text of a cache file, at most [`FILE_BYTES_MAX`] bytes. `None` if it cannot be read,
/// or another user may have written it.
fn read_cache(path: &Path) -> Option<String> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
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
    Some(text)
}

fn remember(folder: &Path, name: &str, backend: Backend) -> io::Result<()> {
    if !folder.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Created with mode 600, and moved in place atomically.
    let mut file = tempfile::Builder::new().prefix(".sandbox-").tempfile_in(folder)?;
    writeln!(file, "{name} {}", backend.as_str())?;
    file.persist(folder.join(FILE)).map_err(|error| error.error)?;
    fs::remove_file(folder.join(WRONG_FILE)).ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn cached_probe_applies_to_the_same_boot_binary_and_user() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
        remember(folder.path(), "a", Backend::Namespaces).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), Some(Backend::Namespaces));
        assert_eq!(cached_backend(folder.path(), "b"), None);
        remember(folder.path(), "a", Backend::Nothing).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
    }

    #[test]
    fn cached_probe_writable_by_others_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        remember(folder.path(), "a", Backend::Landlock).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), Some(Backend::Landlock));
        fs::hard_link(&path, folder.path().join("twin")).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
        fs::remove_file(folder.path().join("twin")).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a full\n").unwrap();
        assert_eq!(cached_backend(folder.path(), "a"), None);
    }

    #[test]
    fn temporary_failures_are_not_cached() {
        let result = |failures: &[&str]| {
            let tried = failures.iter().map(|failure| {
                let failure = Some((*failure).to_owned());
                Tried { backend: Backend::Namespaces, failure, report: None }
            });
            ProbeResult { backend: Backend::Landlock, tried: tried.collect(), is_weakened: false }
        };
        let permanent = "no namespaces: Operation not permitted (os error 1)";
        for failures in [&[][..], &[permanent], &[permanent, "bwrap: No such file or directory"]] {
            assert!(result(failures).is_permanent(), "{failures:?}");
        }
        for temporary in [
            "mounts: Cannot allocate memory (os error 12)",
            "no process: Resource temporarily unavailable (os error 11)",
            "no pipe: Too many open files",
            "it does not end",
        ] {
            assert!(!result(&[temporary]).is_permanent(), "{temporary}");
            assert!(!result(&[permanent, temporary]).is_permanent(), "{temporary}");
        }
    }

    #[test]
    fn loss_of_the_full_tier_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        assert!(!was_full(state));
        remember(state, "another boot", Backend::Landlock).unwrap();
        assert!(!was_full(state));
        remember(state, "another boot", Backend::Namespaces).unwrap();
        assert!(was_full(state));
        let wanted = ProbeRequest::Strongest { kept_in: Some(state.to_owned()) };
        let probe = Probe::new(wanted);
        probe.discard_probe_result();
        assert!(was_full(state) && !state.join(FILE).exists());
        // This program is no helper, so nothing works with it.
        let found = probe.found(Path::new("/bin/true"));
        assert!(found.is_weakened && found.backend == Backend::Nothing, "{found:?}");
    }

    #[test]
    fn non_helper_program_confines_nothing() {
        let found = strongest_backend(Path::new("/bin/true"));
        assert_eq!(found.backend, Backend::Nothing);
        assert_eq!(found.tried.len(), 3);
        assert!(found.tried.iter().all(|tried| tried.failure.is_some()), "{found:?}");
    }
}
