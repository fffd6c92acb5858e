//! The workspace, the state directory and the programs that tools need.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use crate::config::{CheckpointSettings, Dirs, Settings};
use crate::doctor::{Check, Examined, Status};
use crate::start_mode::no_checkpoints;
use crate::wiring::workspace_roots;

/// Free bytes below which a run may soon fail: a warning.
const LOW_SPACE_BYTES: u64 = 200 << 20;
/// Free bytes below which a run fails at once: a problem.
const NO_SPACE_BYTES: u64 = 4 << 20;

pub(super) fn checks(examined: &Examined<'_>) -> Vec<Check> {
    let mut checks: Vec<Check> = examined
        .loaded
        .ok()
        .map(|loaded| workspace(examined.cwd, &loaded.settings))
        .into_iter()
        .collect();
    checks.extend(match &examined.dirs {
        Ok(dirs) => state(dirs),
        Err(failure) => vec![Check::of("state", "directory", failure)],
    });
    checks.extend(examined.loaded.ok().map(|loaded| checkpoints(&loaded.settings)));
    checks.extend(programs(examined));
    checks
}

/// Tells if a session can open the working directory and the folders of `workspace.roots`.
fn workspace(cwd: &Path, settings: &Settings) -> Check {
    const AREA: &str = "workspace";
    match workspace_roots::open(cwd, &[], settings) {
        Ok(workspace) => {
            let roots: Vec<String> =
                workspace.roots().map(|root| root.display().to_string()).collect();
            Check::new(AREA, "folders", Status::Good, roots.join(", "))
        }
        Err(failure) => Check::of(AREA, "folders", &failure),
    }
}

/// Tells if changes can be undone.
fn checkpoints(settings: &Settings) -> Check {
    let check = |status, detail| Check::new("state", "checkpoints", status, detail);
    let CheckpointSettings { enabled, keep_days, store_bytes_max, .. } = settings.checkpoints;
    let Some(reason) = no_checkpoints(settings) else {
        let size = store_bytes_max >> 20;
        let detail =
            format!("changes can be undone for {keep_days} days, up to {size} MiB a project");
        return check(Status::Good, detail);
    };
    let fix = if enabled {
        "install git (Debian: apt install git)"
    } else {
        "posse config edit checkpoints.enabled true"
    };
    let detail =
        format!("changes of commands cannot be undone, and the mode auto means edits: {reason}");
    check(Status::Warning, detail).fix(fix)
}

fn state(dirs: &Dirs) -> Vec<Check> {
    const AREA: &str = "state";
    let dir = &dirs.state;
    let shown = dir.display().to_string();
    let usable =
        if dir.exists() { Some(dir.as_path()) } else { dir.ancestors().find(|d| d.exists()) };
    let Some(usable) = usable else {
        let detail = format!("cannot create {shown}");
        return vec![Check::new(AREA, "directory", Status::Problem, detail)];
    };
    let directory = |status, detail: String| Check::new(AREA, "directory", status, detail);
    let mut checks = vec![match check_writable(usable) {
        Ok(()) if usable == dir => directory(Status::Good, format!("{shown} is writable")),
        Ok(()) => directory(Status::Good, format!("{shown} does not exist yet and can be created")),
        Err(error) => {
            let detail = format!("{} cannot be written: {error}", usable.display());
            let fix = format!(
                "make {} writable for your user, set POSSE_HOME=DIR, or pass --no-transcript",
                usable.display()
            );
            directory(Status::Problem, detail).fix(fix)
        }
    }];
    if usable == dir
        && let Ok(metadata) = fs::metadata(dir)
    {
        checks.push(privacy(dir, &metadata));
    }
    checks.extend(space(usable));
    checks
}

/// Creates, locks and removes a file in `dir`. An error means that posse cannot write or lock files
/// in it.
fn check_writable(dir: &Path) -> std::io::Result<()> {
    let file = tempfile::Builder::new().prefix(".posse-doctor-").tempfile_in(dir)?;
    file.as_file().try_lock().map_err(|error| match error {
        fs::TryLockError::Error(error) => error,
        fs::TryLockError::WouldBlock => std::io::ErrorKind::WouldBlock.into(),
    })
}

fn privacy(dir: &Path, metadata: &Metadata) -> Check {
    let check = |status, detail: String| Check::new("state", "permissions", status, detail);
    let mode = metadata.permissions().mode() & 0o777;
    let shown = dir.display();
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return check(Status::Warning, format!("{shown} belongs to another user"))
            .fix(format!("sudo chown -R \"$USER\" {shown}"));
    }
    let of_others = mode & 0o077;
    if of_others == 0 {
        return check(Status::Good, format!("{mode:03o}: accessible only to you"));
    }
    check(Status::Warning, format!("{mode:03o}: other users can read {shown}"))
        .fix(format!("chmod 700 {shown}"))
}

fn space(dir: &Path) -> Option<Check> {
    let space = statvfs(dir).ok()?;
    #[allow(clippy::useless_conversion, reason = "the type differs between platforms")]
    let free = u64::from(space.blocks_available()).saturating_mul(space.fragment_size());
    let detail = format!("{} MiB free", free >> 20);
    let status = match free {
        0..NO_SPACE_BYTES => Status::Problem,
        NO_SPACE_BYTES..LOW_SPACE_BYTES => Status::Warning,
        _ => Status::Good,
    };
    let fix = "free some space, or set POSSE_HOME to another disk";
    let fix = (status != Status::Good).then(|| fix.to_owned());
    Some(Check { fix, ..Check::new("state", "space", status, detail) })
}

fn programs(examined: &Examined<'_>) -> Vec<Check> {
    const AREA: &str = "programs";
    let found = |name: &str| find(examined.environment.get("PATH").unwrap_or_default(), name);
    let fixed = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].map(PathBuf::from);
    let bash = fixed.into_iter().find(|path| path.is_file()).or_else(|| found("bash"));
    let check = |name: &str, path: Option<PathBuf>, missing: &str| match path {
        Some(path) => Check::new(AREA, name, Status::Good, path.display().to_string()),
        None => Check::new(AREA, name, Status::Warning, missing)
            .fix(format!("install {name} (Debian: apt install {name})")),
    };
    vec![
        check("bash", bash, "not found; commands run in /bin/sh"),
        check("git", found("git"), "not found; models expect it"),
    ]
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
