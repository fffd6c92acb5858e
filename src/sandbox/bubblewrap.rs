//! Namespaces made by bubblewrap, where the system lets that program make them and not ours.
//!
//! The plan becomes its arguments, and our helper is the first process inside, for the rest.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::sandbox::Sandbox;
use crate::sandbox::helper::Shape;
use crate::sandbox::plan::Plan;
use crate::sandbox::spare::Ready;

/// Where it is looked for: never in `PATH`, which a project's tools may have put folders into.
const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Where the helper is found inside, wherever it is outside.
const INSIDE: &str = "/dev/posse";

const SYSTEM_LINKS: [&str; 2] = ["/run/current-system", "/run/opengl-driver"];

impl Sandbox {
    /// Starts a helper inside of bubblewrap.
    pub(crate) fn bubblewrapped(&self, plan: &Plan) -> io::Result<Ready> {
        let mut command = command(&self.helper, plan).map_err(io::Error::other)?;
        command.process_group(0);
        self.begin(command, Shape::Inner)
    }
}

/// The command that starts the helper in namespaces as planned, without the helper's arguments.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
pub(crate) fn command(helper: &Path, plan: &Plan) -> Result<std::process::Command, String> {
    let program = program()?;
    // A link in `/proc` would be bubblewrap's own.
    let helper = fs::canonicalize(helper)
        .map_err(|error| format!("the program cannot be found any more: {error}"))?;
    let mut command = std::process::Command::new(program);
    command.args([
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]);
    if !plan.network {
        command.arg("--unshare-net");
    }
    command.args(["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]);
    command.args(["--ro-bind", "/", "/"]);
    let masks = plan.masked.iter().filter(|path| path.is_dir());
    for folder in masks {
        command.arg("--perms").arg("1777").arg("--tmpfs").arg(folder);
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    command.arg("--ro-bind").arg(helper).arg(INSIDE);
    let is_inside = |path: &&PathBuf| {
        plan.writable.iter().any(|root| path.starts_with(root) && path.as_path() != root)
    };
    let is_masked = |path: &&PathBuf| plan.masked.iter().any(|folder| path.starts_with(folder));
    let mut opened = Vec::new();
    for path in plan.hidden.iter().filter(|path| !is_inside(path) && !is_masked(path)) {
        let shown = plan.writable.iter().chain(&plan.visible);
        if shown.clone().any(|shown| shown.starts_with(path)) {
            command.args(["--perms", "0755", "--tmpfs"]).arg(path);
            opened.push(path);
        } else {
            cover(&mut command, path);
        }
    }
    let covered = |path: &&PathBuf| {
        plan.masked.iter().chain(&plan.hidden).any(|folder| path.starts_with(folder))
    };
    let mut shown: Vec<PathBuf> = plan.visible.iter().filter(covered).cloned().collect();
    if plan.network {
        shown.extend(fs::canonicalize("/etc/resolv.conf").ok().filter(|path| covered(&path)));
    }
    for path in shown {
        bind(&mut command, "--ro-bind-try", path.as_os_str());
    }
    for link in SYSTEM_LINKS {
        if let Ok(target) = fs::read_link(link) {
            command.arg("--symlink").arg(target).arg(link);
        }
    }
    let mut roots: Vec<&PathBuf> = plan.writable.iter().collect();
    roots.sort();
    for root in roots {
        bind(&mut command, "--bind", root.as_os_str());
    }
    for path in opened {
        // Only the way to what is in it was made, and stays as it is.
        command.arg("--remount-ro").arg(path);
    }
    fix(&mut command, plan);
    for path in plan.hidden.iter().filter(is_inside) {
        cover(&mut command, path);
    }
    command.args(["--chdir", "/", "--", INSIDE]);
    Ok(command)
}

/// What stays as it is within what can be written.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn fix(command: &mut std::process::Command, plan: &Plan) {
    let pinned = plan.pinned.iter().map(|path| (path, "--bind-try"));
    let read_only = plan.read_only.iter().map(|path| (path, "--ro-bind-try"));
    let mut fixed: Vec<(&PathBuf, &str)> = pinned.chain(read_only).collect();
    // In their order, a folder comes before what is in it.
    fixed.sort();
    for (path, how) in fixed {
        bind(command, how, path.as_os_str());
    }
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn bind(command: &mut std::process::Command, how: &str, path: &OsStr) {
    command.arg(how).arg(path).arg(path);
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn cover(command: &mut std::process::Command, path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            command.args(["--perms", "0000", "--tmpfs"]).arg(path).arg("--remount-ro").arg(path);
        }
        Ok(found) if !found.is_symlink() => {
            command.arg("--ro-bind").arg("/dev/null").arg(path);
        }
        // What a link leads to is a path of its own, and what is not there hides itself.
        _ => {}
    }
}

/// The program, if it can be trusted.
fn program() -> Result<PathBuf, String> {
    let found = PLACES.iter().map(Path::new).find(|path| path.exists());
    let found = found.ok_or("bubblewrap is not installed")?;
    let program = fs::canonicalize(found).map_err(|error| format!("bubblewrap: {error}"))?;
    check(&program)?;
    Ok(program)
}

/// Refuses a program that others could replace, or that is more than a program.
fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let found = fs::metadata(program).map_err(|error| format!("{shown}: {error}"))?;
    if found.mode() & 0o6000 != 0 {
        return Err(format!("{shown} runs with its owner's rights, and is not used"));
    }
    for path in program.ancestors() {
        let found = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
        // Only the system's own places: a command can change what belongs to the user.
        if found.uid() != 0 || found.mode() & 0o022 != 0 {
            return Err(format!("{shown} could be replaced by others, and is not used"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_others_can_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bwrap");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(check(&program).unwrap_err().contains("owner's rights"));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // Below /tmp, where anybody may make names.
        assert!(check(&program).unwrap_err().contains("replaced"));
    }
}
