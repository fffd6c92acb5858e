//! The state directory, the programs that tools need, and what confines them.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use posse_actors::ports::Confinement;
use serde_json::Value;

use crate::config::Dirs;
use crate::doctor::{Check, Examined, Status};
use crate::failure::{Exit, Failure};
use crate::sandbox::{self, Directory, Sandbox, Spawn, Update};

/// Bytes below which a run may soon fail.
const SCARCE: u64 = 200 << 20;
/// Bytes below which it fails now.
const NOTHING: u64 = 4 << 20;
/// How long the trial command may take.
const TRIAL: Duration = Duration::from_secs(10);

pub(super) fn checks(examined: &Examined<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks = still_checks(examined);
    checks.extend(confinement()?);
    Ok(checks)
}

/// Those that start no process.
pub(super) fn still_checks(examined: &Examined<'_>) -> Vec<Check> {
    let mut checks = match &examined.dirs {
        Ok(dirs) => state(dirs),
        Err(failure) => vec![Check::of("state", "directory", failure)],
    };
    checks.extend(programs(examined));
    checks
}

fn state(dirs: &Dirs) -> Vec<Check> {
    const AREA: &str = "state";
    let dir = &dirs.state;
    let shown = dir.display().to_string();
    let usable =
        if dir.exists() { Some(dir.as_path()) } else { dir.ancestors().find(|d| d.exists()) };
    let Some(usable) = usable else {
        return vec![Check::new(
            AREA,
            "directory",
            Status::Problem,
            format!("{shown} cannot be made"),
        )];
    };
    let mut checks = Vec::new();
    match try_to_write(usable) {
        Ok(()) if usable == dir => {
            checks.push(Check::new(
                AREA,
                "directory",
                Status::Good,
                format!("{shown} can be written"),
            ));
        }
        Ok(()) => {
            let detail = format!("{shown} does not exist yet and can be made");
            checks.push(Check::new(AREA, "directory", Status::Good, detail));
        }
        Err(error) => {
            let detail = format!("{} cannot be written: {error}", usable.display());
            let fix = format!(
                "make {} writable for you, set POSSE_HOME=DIR, or pass --no-transcript",
                usable.display()
            );
            checks.push(Check::new(AREA, "directory", Status::Problem, detail).fix(fix));
        }
    }
    if usable == dir
        && let Ok(metadata) = fs::metadata(dir)
    {
        checks.push(privacy(dir, &metadata));
    }
    checks.extend(space(usable));
    checks
}

/// A file that is made, locked and removed again.
fn try_to_write(dir: &Path) -> std::io::Result<()> {
    let file = tempfile::Builder::new().prefix(".posse-doctor-").tempfile_in(dir)?;
    file.as_file().try_lock().map_err(|error| match error {
        fs::TryLockError::Error(error) => error,
        fs::TryLockError::WouldBlock => std::io::ErrorKind::WouldBlock.into(),
    })
}

fn privacy(dir: &Path, metadata: &Metadata) -> Check {
    let mode = metadata.permissions().mode() & 0o777;
    let name = "permissions";
    let shown = dir.display();
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        let detail = format!("{shown} belongs to another user");
        return Check::new("state", name, Status::Warning, detail)
            .fix(format!("sudo chown -R \"$USER\" {shown}"));
    }
    let others = mode % 0o100;
    if others == 0 {
        return Check::new("state", name, Status::Good, format!("{mode:03o}: only you"));
    }
    Check::new("state", name, Status::Warning, format!("{mode:03o}: others may look into {shown}"))
        .fix(format!("chmod 700 {shown}"))
}

fn space(dir: &Path) -> Option<Check> {
    let space = statvfs(dir).ok()?;
    #[allow(clippy::useless_conversion, reason = "the type differs between platforms")]
    let free = u64::from(space.blocks_available()).saturating_mul(space.fragment_size());
    let detail = format!("{} MiB free", free >> 20);
    let status = match free {
        0..NOTHING => Status::Problem,
        NOTHING..SCARCE => Status::Warning,
        _ => Status::Good,
    };
    let check = Check::new("state", "space", status, detail);
    Some(if status == Status::Good {
        check
    } else {
        check.fix("free some space, or set POSSE_HOME to another disk")
    })
}

fn programs(examined: &Examined<'_>) -> Vec<Check> {
    const AREA: &str = "programs";
    let found = |name: &str| find(examined.environment.get("PATH").unwrap_or_default(), name);
    let fixed = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].map(PathBuf::from);
    let bash = fixed.into_iter().find(|path| path.is_file()).or_else(|| found("bash"));
    let bash = match bash {
        Some(path) => Check::new(AREA, "bash", Status::Good, path.display().to_string()),
        None => Check::new(AREA, "bash", Status::Warning, "not found; commands run in /bin/sh")
            .fix("install bash (Debian: apt install bash)"),
    };
    let git = match found("git") {
        Some(path) => Check::new(AREA, "git", Status::Good, path.display().to_string()),
        None => Check::new(AREA, "git", Status::Warning, "not found; models expect it")
            .fix("install git (Debian: apt install git)"),
    };
    vec![bash, git]
}

fn find(path: &str, name: &str) -> Option<PathBuf> {
    let executable = |file: &PathBuf| {
        fs::metadata(file)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(executable)
}

/// Starts a command as a tool would, and says what was in force.
fn confinement() -> Result<Vec<Check>, Failure> {
    const AREA: &str = "sandbox";
    let sandbox = match Sandbox::new(Vec::new()) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            let detail = format!("the program cannot find itself: {error}");
            return Ok(vec![Check::new(AREA, "helper", Status::Problem, detail)]);
        }
    };
    let internal = |what: String| Failure::new("INT003", Exit::Internal, what);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal(format!("no runtime: {error}")))?;
    let place = tempfile::Builder::new().prefix("posse-doctor-").tempdir();
    let place = place.map_err(|error| internal(format!("no temporary directory: {error}")))?;
    let mut enforced = None;
    let ran = runtime.block_on(sandbox.run(trial(&sandbox, place.path()), |update| {
        if let Update::Enforced { tier, report } = update {
            enforced = Some((tier, report));
        }
    }));
    runtime.shutdown_background();
    let mut checks = Vec::new();
    match (ran, enforced) {
        (Ok(outcome), Some((tier, report))) if outcome.exit == sandbox::Exit::Code(0) => {
            checks.push(Check::new(
                AREA,
                "commands",
                Status::Good,
                "a command was started and ended",
            ));
            checks.push(tier_check(AREA, &tier, &report));
        }
        (Ok(outcome), _) => {
            let detail = format!("a trial command ended with {:?}", outcome.exit);
            checks.push(Check::new(AREA, "commands", Status::Problem, detail));
        }
        (Err(error), _) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let detail = format!("{error}{}", cause.unwrap_or_default());
            let fix = "check the limits of processes and that TMPDIR can be written";
            checks.push(Check::new(AREA, "commands", Status::Problem, detail).fix(fix));
        }
    }
    checks.push(kernel(AREA));
    Ok(checks)
}

fn trial(sandbox: &Sandbox, place: &Path) -> Spawn {
    let (program, arguments) = sandbox.shell_command("exit 0");
    Spawn {
        program,
        arguments,
        directory: Directory::Path(place.to_owned()),
        environment: Vec::new(),
        confinement: Confinement {
            profile: "off".to_owned(),
            writable_roots: Vec::new(),
            network: true,
        },
        timeout: TRIAL,
        scratch: place.join("scratch"),
        spill: place.join("outputs/trial.txt"),
        output_bytes_max: 4096,
        spill_bytes_max: 1 << 20,
    }
}

fn tier_check(area: &'static str, tier: &str, report: &Value) -> Check {
    let facts: Vec<String> = report
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "tier")
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    if tier == "none" {
        let detail = format!("tier none{facts}: commands run with all of your rights");
        return Check::new(area, "confinement", Status::Warning, detail).fix(
            "this version does not confine commands: let it ask, or work in a container or a \
             virtual machine",
        );
    }
    Check::new(area, "confinement", Status::Good, format!("tier {tier}{facts}"))
}

/// What a confinement could be made of here.
fn kernel(area: &'static str) -> Check {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let landlock = match read("/sys/kernel/security/lsm").trim() {
        "" => "Landlock unknown",
        modules if modules.split(',').any(|module| module == "landlock") => "Landlock",
        _ => "no Landlock",
    };
    let namespaces = match read("/proc/sys/user/max_user_namespaces").trim().parse::<u64>() {
        Ok(0) => "no user namespaces",
        Ok(_) => "user namespaces",
        Err(_) => "user namespaces unknown",
    };
    let seccomp =
        if read("/proc/self/status").contains("Seccomp:") { "seccomp" } else { "no seccomp" };
    let detail = format!("the kernel offers: {landlock}, {namespaces}, {seccomp}");
    Check::new(area, "kernel", Status::Fact, detail)
}
