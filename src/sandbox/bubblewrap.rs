//! Namespaces created by bubblewrap, for systems that allow only that program to create them.
//!
//! The plan becomes arguments of bubblewrap. The helper is the first process inside and applies the
//! other parts of the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memchr::memmem;
use nix::fcntl::OFlag;
use posse_base::resolved_path;

use crate::helper::HelperShape;
use crate::kernel;
use crate::namespaces::{RESOLVER, SYSTEM_LINKS};
use crate::plan::{Plan, Replacement};
use crate::spare_helper::ReadyHelper;
use crate::{Context as _, Sandbox};

/// Paths at which bubblewrap is looked for. `PATH` is not used, because a project's tools may have
/// added folders to it.
const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Maximum number of bytes in all masked folders and `/dev/shm` of a command together; each gets an
/// equal share. The temporary folder of the session is not one of them.
const PRIVATE_SPACE_BYTES: u64 = 512 << 20;

/// Path of the helper inside the sandbox.
const INSIDE: &str = "/dev/posse";

impl Sandbox {
    /// Starts a helper inside bubblewrap, in the namespaces of `plan`. Fails if bubblewrap is not
    /// installed or not trusted.
    pub(crate) fn bubblewrapped(&self, plan: &Plan) -> io::Result<ReadyHelper> {
        let mut command = command(&self.helper, plan).map_err(io::Error::other)?;
        command.process_group(0);
        self.begin(command, HelperShape::Inner, None)
    }
}

/// Builds the bubblewrap command that starts the helper in the namespaces of `plan`. The caller
/// appends the arguments of the helper. Fails if bubblewrap is not installed or not trusted.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
pub(crate) fn command(helper: &Path, plan: &Plan) -> Result<std::process::Command, String> {
    let program = program()?;
    let (helper, opened) = open_helper(helper)?;
    let mut command = std::process::Command::new(&program);
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
    let masks: Vec<&PathBuf> = plan.masked.iter().filter(|path| path.is_dir()).collect();
    // bubblewrap cannot mount one tmpfs in several places, and shared memory is one of them.
    let bytes = (PRIVATE_SPACE_BYTES / (masks.len() as u64 + 1)).to_string();
    let temporary = |command: &mut std::process::Command, folder: &Path| {
        command.args(["--size", &bytes, "--perms", "1777", "--tmpfs"]).arg(folder);
    };
    for folder in masks {
        match &plan.temporary {
            Some(mount) if mount.target == *folder => {
                command.arg("--bind").arg(&mount.source).arg(folder);
            }
            _ => temporary(&mut command, folder),
        }
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    let by_descriptor = binds_descriptors(&program)?;
    if by_descriptor {
        command.arg("--ro-bind-fd").arg(opened.as_raw_fd().to_string()).arg(INSIDE);
    } else {
        command.arg("--ro-bind").arg(helper).arg(INSIDE);
    }
    command.args(["--remount-ro", "/dev"]);
    temporary(&mut command, Path::new("/dev/shm"));
    let roots = if by_descriptor { open_roots(plan)? } else { BTreeMap::new() };
    add_mounts(&mut command, plan, &roots);
    kernel::inherit(&mut command, roots.into_values().chain([opened]).collect());
    for link in SYSTEM_LINKS {
        if let Ok(target) = fs::read_link(link) {
            command.arg("--symlink").arg(target).arg(link);
        }
    }
    command.args(["--chdir", "/", "--", INSIDE]);
    Ok(command)
}

/// Opens the program `helper`, which may be a link in `/proc`, and returns its path. Fails if another
/// file is at the path now: the kernel adds ` (deleted)` to the link of a program that was removed,
/// and a command can create a file of that name.
fn open_helper(helper: &Path) -> Result<(PathBuf, OwnedFd), String> {
    const GONE: &str = "the program cannot be found any more";
    let mut options = File::options();
    let opened = options.read(true).custom_flags(nix::libc::O_PATH).open(helper).context(GONE)?;
    // A `/proc` link would be resolved inside bubblewrap's own process.
    let path = fs::canonicalize(helper).context(GONE)?;
    let (is, there) = (opened.metadata().context(GONE)?, fs::metadata(&path).context(GONE)?);
    if (is.dev(), is.ino()) != (there.dev(), there.ino()) {
        return Err(format!("{GONE}: another file is at {}", path.display()));
    }
    Ok((path, opened.into()))
}

/// Mount over a path of the read-only tree: an unreadable cover, a read-only copy, or a writable
/// copy.
enum Layer {
    Nothing,
    Shown,
    Writable,
    /// File that is mounted read-only in place of the original.
    Replacement(PathBuf),
}

/// Adds arguments that mount writable and visible paths, cover hidden ones, and mount pinned and
/// read-only paths over themselves: a folder before its contents, because bubblewrap mounts a folder
/// as the host has it, without the covers in it.
#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn add_mounts(
    command: &mut std::process::Command,
    plan: &Plan,
    roots: &BTreeMap<PathBuf, OwnedFd>,
) {
    let writable = |command: &mut std::process::Command, how: &str, path: &Path| {
        let Some(root) = roots.get(path) else { return bind(command, how, path.as_os_str()) };
        command.arg(format!("{how}-fd")).arg(root.as_raw_fd().to_string()).arg(path);
    };
    let is_covered =
        |path: &Path| plan.masked.iter().chain(&plan.hidden).any(|folder| path.starts_with(folder));
    let is_writable = |path: &Path| plan.writable.iter().any(|root| path.starts_with(root));
    let is_shown = |path: &Path| plan.visible.iter().any(|root| path.starts_with(root));
    let is_masked = |path: &Path| plan.masked.iter().any(|folder| path.starts_with(folder));
    let mut layers: BTreeMap<PathBuf, Layer> = BTreeMap::new();
    for path in &plan.hidden {
        // A missing path needs no cover and must not be created.
        if is_writable(path) || is_shown(path) || !is_masked(path) {
            layers.insert(path.clone(), Layer::Nothing);
        }
    }
    let mut shown = plan.visible.clone();
    if plan.network {
        shown.extend(fs::canonicalize(RESOLVER));
    }
    for path in shown.into_iter().filter(|path| is_covered(path) && !is_writable(path)) {
        layers.insert(path, Layer::Shown);
    }
    layers.extend(plan.writable.iter().map(|root| (root.clone(), Layer::Writable)));
    for Replacement { source, target } in &plan.replaced {
        // A file that has been removed since is not created again.
        if plan.is_in_hidden_folder(target) || target.symlink_metadata().is_ok() {
            layers.insert(target.clone(), Layer::Replacement(source.clone()));
        }
    }
    let kept = |path: &Path| {
        let below = |(other, layer): (&PathBuf, &Layer)| {
            other.starts_with(path) && !matches!(layer, Layer::Nothing)
        };
        layers.iter().any(below)
    };
    // A write beside the workspace fails, instead of disappearing with the command.
    let mut ways = parents(plan, &layers);
    for path in &ways {
        command.args(["--perms", "0755", "--tmpfs"]).arg(path);
    }
    let is_read_only = |path: &Path| plan.read_only.iter().any(|fixed| path.starts_with(fixed));
    let fixed = plan.pinned.iter().chain(&plan.read_only);
    let paths: BTreeSet<&PathBuf> = layers.keys().chain(fixed).collect();
    for path in paths {
        match layers.get(path) {
            Some(Layer::Nothing) if kept(path) => {
                command.args(["--perms", "0755", "--tmpfs"]).arg(path);
                ways.push(path.clone());
            }
            Some(Layer::Nothing) => cover(command, path),
            Some(Layer::Shown) => bind(command, "--ro-bind-try", path.as_os_str()),
            Some(Layer::Writable) if is_read_only(path) => writable(command, "--ro-bind", path),
            Some(Layer::Writable) => writable(command, "--bind", path),
            Some(Layer::Replacement(source)) => {
                command.arg("--ro-bind").arg(source).arg(path);
            }
            None if is_below_cover(path, &layers) => {}
            None if is_read_only(path) => bind(command, "--ro-bind-try", path.as_os_str()),
            // Still writable, but a mount point cannot be renamed.
            None => bind(command, "--bind-try", path.as_os_str()),
        }
    }
    for path in ways {
        // Only the path to its contents was created; it stays read-only.
        command.arg("--remount-ro").arg(path);
    }
}

/// Opens the writable roots. Fails if a link is anywhere on the way: another command may have put one
/// there since they were resolved.
fn open_roots(plan: &Plan) -> Result<BTreeMap<PathBuf, OwnedFd>, String> {
    let open = |root: &PathBuf| {
        let opened = resolved_path::open(root, OFlag::O_PATH).context(root.display())?;
        Ok((root.clone(), opened))
    };
    plan.writable.iter().map(open).collect()
}

/// True if the program has the options `--bind-fd` and `--ro-bind-fd`, which mount a descriptor. Looks
/// for their names in it.
fn binds_descriptors(program: &Path) -> Result<bool, String> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let bytes = fs::read(program).context(program.display())?;
    Ok(*FOUND.get_or_init(|| memmem::find(&bytes, b"--ro-bind-fd").is_some()))
}

/// Folders directly below masked folders that contain a visible or writable path, but are none.
fn parents(plan: &Plan, layers: &BTreeMap<PathBuf, Layer>) -> Vec<PathBuf> {
    let mut parents = BTreeSet::new();
    let shown = |layer: &Layer| !matches!(layer, Layer::Nothing);
    for mask in plan.masked.iter().filter(|path| path.is_dir()) {
        for path in layers.iter().filter(|(_, layer)| shown(layer)).map(|(path, _)| path) {
            let Ok(below) = path.strip_prefix(mask) else { continue };
            let mut names = below.components();
            if let (Some(name), Some(_)) = (names.next(), names.next()) {
                parents.insert(mask.join(name));
            }
        }
    }
    // A copy brings its own content.
    parents.retain(|parent| !layers.get(parent).is_some_and(shown));
    parents.into_iter().collect()
}

/// True if a hidden folder, or a file in place of another, is the nearest layer above `path`.
fn is_below_cover(path: &Path, layers: &BTreeMap<PathBuf, Layer>) -> bool {
    let above = path.ancestors().skip(1).find_map(|folder| layers.get(folder));
    matches!(above, Some(Layer::Nothing | Layer::Replacement(_)))
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
        // The target of a link is a path of its own, and a missing path needs no cover.
        _ => {}
    }
}

/// Returns the path of bubblewrap. Fails if it is not installed or [`check`] rejects it.
fn program() -> Result<PathBuf, String> {
    let found = PLACES.iter().map(Path::new).find(|path| path.exists());
    let found = found.ok_or("bubblewrap is not installed")?;
    let program = fs::canonicalize(found).context("bubblewrap")?;
    check(&program)?;
    Ok(program)
}

/// Rejects a program that is set-user-id or set-group-id, or that a user other than root could
/// replace.
fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let found = fs::metadata(program).context(&shown)?;
    if found.mode() & 0o6000 != 0 {
        return Err(format!("{shown} runs with its owner's rights, and is not used"));
    }
    for path in program.ancestors() {
        let found = fs::metadata(path).context(&shown)?;
        // Only root-owned system folders: a command can change files of the user.
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
    fn root_behind_a_link_is_not_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("above/work")).unwrap();
        let plan = Plan { writable: vec![at("above/work")], ..Plan::open() };
        assert_eq!(open_roots(&plan).unwrap().len(), 1);
        // Another command puts a link there after the place of the root was examined.
        fs::rename(at("above"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("moved"), at("above")).unwrap();
        assert!(open_roots(&plan).is_err());
        // Not without bubblewrap.
        let Ok(program) = program() else { return };
        if binds_descriptors(&program).unwrap() {
            assert!(command(Path::new("/bin/true"), &plan).is_err());
        }
    }

    #[test]
    fn replaceable_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bwrap");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(check(&program).unwrap_err().contains("owner's rights"));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // Below /tmp any user can create names.
        assert!(check(&program).unwrap_err().contains("replaced"));
    }
}
