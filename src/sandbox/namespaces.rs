//! Private namespaces, and the file system that a command sees in them.
//!
//! The host's file tree becomes read-only. Writable paths are mounted over themselves again, and
//! hidden paths are covered. Copies of writable and visible paths are taken before anything is
//! covered, and all mounts are done before the command's first process exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};
use posse_base::resolved_path;

use crate::plan::{Overlay, Plan, Replacement};
use crate::temporary::{BYTES_MAX, ENTRIES_MAX};
use crate::{Context as _, kernel};

/// Mount options of the tmpfs that holds the private content of masked folders and of `/dev/shm`:
/// at most 512 MiB and 262,144 files and folders. The temporary folder of the session is not in it.
const PRIVATE_SPACE: &str = "size=512m,nr_inodes=256k,mode=755";

/// Mount options of a tmpfs that only posse writes to.
const MOUNT_POINTS: &str = "size=1m,mode=755";

/// Folder over which the private space is mounted until `/dev` gets the command's own devices.
const STAGING: &str = "/dev";

/// Names of the devices that a command gets in `/dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Symbolic links below `/run` through which some systems, such as Nix, find programs and drivers.
/// They are created again if `/run` is masked.
pub(crate) const SYSTEM_LINKS: [&str; 2] = ["/run/current-system", "/run/opengl-driver"];

/// DNS resolver configuration. It is often a symbolic link into a masked folder.
pub(crate) const RESOLVER: &str = "/etc/resolv.conf";

/// Namespaces that were created, and numbers of mounts, for the enforcement report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mounted {
    pub(crate) namespaces: Vec<&'static str>,
    /// True if the helper mounted a `/proc` that shows only processes of the command's own PID
    /// namespace.
    pub(crate) own_processes: bool,
    pub(crate) writable: usize,
    /// Writable mounts that are overlays of a trial.
    pub(crate) overlays: usize,
    pub(crate) read_only: usize,
    pub(crate) pinned: usize,
    pub(crate) hidden: usize,
    pub(crate) replaced: usize,
    pub(crate) masked: usize,
    /// Process limit of the namespace. `None` if the namespace has none of its own.
    pub(crate) processes_max: Option<u32>,
}

/// Moves this process into new user and mount namespaces, mounts the tmpfs of a session at `folder`,
/// and returns the user namespace, the mount namespace and the root folder of the tmpfs.
pub(crate) fn temporary_space(folder: &Path) -> Result<[OwnedFd; 3], String> {
    unshare_as_user(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    let size = format!("size={BYTES_MAX},nr_inodes={ENTRIES_MAX},mode=700");
    memory(folder, &size).context("no temporary space")?;
    let open = |path: &Path| File::open(path).map(OwnedFd::from).context(path.display());
    Ok([
        open(Path::new("/proc/self/ns/user"))?,
        open(Path::new("/proc/self/ns/mnt"))?,
        open(folder)?,
    ])
}

/// Moves this process into the `namespaces` of a session: a user namespace, then a mount namespace.
pub(crate) fn join(namespaces: &[OwnedFd; 2]) -> Result<(), String> {
    let [user, mounts] = namespaces;
    setns(user, CloneFlags::CLONE_NEWUSER).context("the user namespace of the session")?;
    setns(mounts, CloneFlags::CLONE_NEWNS).context("the mount namespace of the session")
}

/// Moves this process into new namespaces and returns their names. The next child of this process
/// becomes PID 1. With `network`, the host's network is kept.
pub(crate) fn enter(network: bool) -> Result<Vec<&'static str>, String> {
    let mut flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let mut names = vec!["user", "mount", "pid", "ipc", "uts", "cgroup"];
    if !network {
        flags |= CloneFlags::CLONE_NEWNET;
        names.push("net");
    }
    unshare_as_user(flags)?;
    Ok(names)
}

/// Creates the namespaces of `flags`, among them a user namespace in which only the current user
/// exists.
fn unshare_as_user(flags: CloneFlags) -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(flags).context("no namespaces")?;
    // Only the same user as outside exists.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
    // Until the command starts, mounts made outside appear here as well.
    propagate(MsFlags::MS_SLAVE)
}

fn propagate(how: MsFlags) -> Result<(), String> {
    mount(None::<&str>, "/", None::<&str>, how | MsFlags::MS_REC, None::<&str>)
        .context("mounts are not separated")
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).context(path)
}

/// Mounts a `/proc` of this namespace. Returns false if the kernel refuses. Call it from PID 1.
///
/// A container may cover parts of its own `/proc`, and then the kernel refuses a new one. The old
/// `/proc` stays and is read-only: user namespace and Landlock protect the secrets of other
/// processes in it.
pub(crate) fn own_processes() -> bool {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).is_ok()
}

/// Limits the number of concurrent processes of the PID namespace to `max`. Returns the limit.
/// `None` if the kernel cannot limit one namespace, or if the namespace has no `/proc` of its own
/// (`own_processes` is false).
pub(crate) fn limit_processes(own_processes: bool, max: u32) -> Option<u32> {
    /// First kernel version, major and minor, that counts per namespace. Before it, the limit would
    /// apply to the whole machine.
    const SINCE: (u32, u32) = (6, 14);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut parts = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return None };
    if !own_processes || (major, minor) < SINCE {
        return None;
    }
    fs::write("/proc/sys/kernel/pid_max", max.to_string()).is_ok().then_some(max)
}

/// Mounts the file system that `plan` describes, and counts the mounts in `mounted`. Must be called
/// by PID 1 of the namespace.
pub(crate) fn arrange(plan: &Plan, mounted: &mut Mounted) -> Result<(), String> {
    propagate(MsFlags::MS_PRIVATE)?;
    let kept = WritableMounts::take(plan)?;
    mounted.overlays = plan.overlays.len();
    let temporary = plan.temporary.as_ref().map(|mount| kernel::clone_tree(&mount.source));
    let temporary = temporary.transpose().context("no temporary folder of the session")?;
    let devices = devices()?;
    let root = File::open("/").context("/")?;
    let flags = kernel::READ_ONLY | kernel::NO_SETUID | kernel::NO_DEVICES;
    kernel::restrict_tree(root.as_fd(), flags).context("/")?;
    drop(root);
    memory(Path::new(STAGING), PRIVATE_SPACE).context("no temporary space")?;
    let covers = covers(plan)?;
    for (number, folder) in masks(plan).enumerate() {
        let is_shared = plan.temporary.as_ref().is_some_and(|mount| mount.target == folder);
        let space = match &temporary {
            Some(tree) if is_shared => {
                kernel::restrict_tree(tree.as_fd(), kernel::NO_SETUID | kernel::NO_DEVICES)
                    .and_then(|()| kernel::attach_tree(tree.as_fd(), folder))
            }
            _ => private_folder(&number.to_string(), 0o1777)
                .and_then(|space| kernel::attach_tree(space.as_fd(), folder)),
        };
        space.context(folder.display())?;
        mounted.masked += 1;
    }
    let parents = kept.parents(plan);
    for (number, folder) in parents.iter().enumerate() {
        make_parent(&format!("parent{number}"), folder).context(folder.display())?;
    }
    let shared_memory = private_folder("shm", 0o1777).context("/dev/shm")?;
    own_devices(devices, &shared_memory).context("/dev")?;
    mount_all(plan, kept, covers, parents, mounted)?;
    let mut fixed: BTreeMap<&Path, bool> = BTreeMap::new();
    fixed.extend(plan.pinned.iter().map(|path| (path.as_path(), false)));
    fixed.extend(plan.read_only.iter().map(|path| (path.as_path(), true)));
    // Sorted, so a folder precedes its contents.
    for (path, is_read_only) in fixed {
        let Some(tree) = existing(kernel::clone_resolved_tree(path)).context(path.display())?
        else {
            continue;
        };
        if is_read_only {
            kernel::restrict_tree(tree.as_fd(), kernel::READ_ONLY).context(path.display())?;
            mounted.read_only += 1;
        } else {
            mounted.pinned += 1;
        }
        kernel::attach_tree(tree.as_fd(), path).context(path.display())?;
    }
    Ok(())
}

/// Error about a secret that is not where the search before the command found it.
pub(crate) const MOVED: &str = "moved or removed while the command was prepared, so it could not be covered; \
                     run the command again";

fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path != root && path.starts_with(root))
}

/// Converts the error "not found" into `None`, because a missing path needs no mount.
fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Masked folders that exist, without those inside another masked folder.
fn masks(plan: &Plan) -> impl Iterator<Item = &Path> {
    let all = &plan.masked;
    let outermost = |path: &&PathBuf| !is_below(path, all) && path.is_dir();
    all.iter().filter(outermost).map(PathBuf::as_path)
}

/// Copies of writable paths and of covered visible paths, and the targets of [`SYSTEM_LINKS`],
/// taken before the tree becomes read-only and is covered. They are restored afterwards.
struct WritableMounts {
    /// Copies by path. Sorted, so a folder precedes its contents.
    trees: BTreeMap<PathBuf, Layer>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl WritableMounts {
    fn take(plan: &Plan) -> Result<WritableMounts, String> {
        let mut trees = BTreeMap::new();
        for root in &plan.writable {
            let overlay = plan.overlays.iter().find(|overlay| overlay.root == *root);
            let tree = overlay.map_or_else(|| kernel::clone_resolved_tree(root), overlay_mount);
            let tree = tree.context(root.display())?;
            trees.insert(root.clone(), Layer::Copy(tree, true));
        }
        for Replacement { source, target } in &plan.replaced {
            let tree = kernel::clone_tree(source).context(source.display())?;
            trees.insert(target.clone(), Layer::Replacement(tree));
        }
        let covered: Vec<PathBuf> = masks(plan).map(Path::to_owned).collect();
        let mut shown: Vec<PathBuf> = plan.visible.clone();
        if plan.network {
            shown.extend(fs::canonicalize(RESOLVER));
        }
        for path in shown {
            let is_shown = plan.writable.iter().any(|root| path.starts_with(root));
            let is_covered = is_below(&path, &covered) || is_below(&path, &plan.hidden);
            if is_shown || !is_covered || trees.contains_key(&path) {
                continue;
            }
            let tree = existing(kernel::clone_resolved_tree(&path)).context(path.display())?;
            trees.extend(tree.map(|tree| (path, Layer::Copy(tree, false))));
        }
        let links = SYSTEM_LINKS.iter().filter_map(|link| {
            let link = PathBuf::from(link);
            is_below(&link, &covered).then_some(())?;
            let target = fs::read_link(&link).ok()?;
            Some((link, target))
        });
        Ok(WritableMounts { trees, links: links.collect() })
    }

    /// Folders directly below masked folders that contain a copy, but are none. They get a read-only
    /// folder of this command, so that a write beside the workspace fails instead of disappearing
    /// with the command.
    fn parents(&self, plan: &Plan) -> BTreeSet<PathBuf> {
        let mut parents = BTreeSet::new();
        for mask in masks(plan) {
            for path in self.trees.keys() {
                let Ok(below) = path.strip_prefix(mask) else { continue };
                let mut names = below.components();
                if let (Some(name), Some(_)) = (names.next(), names.next()) {
                    parents.insert(mask.join(name));
                }
            }
        }
        // A copy brings its own content.
        parents.retain(|parent| !self.trees.contains_key(parent));
        parents
    }
}

/// Returns the detached mount of an overlay. Its layers are given by descriptors, so nothing in
/// their paths is taken for an option. Links at their paths are not followed.
fn overlay_mount(overlay: &Overlay) -> io::Result<OwnedFd> {
    let open = |path: &Path| resolved_path::open(path, OFlag::O_PATH | OFlag::O_DIRECTORY);
    let layers = [open(&overlay.root)?, open(&overlay.upper)?, open(&overlay.work)?];
    let [lower, upper, work] = &layers;
    kernel::overlay(lower.as_fd(), upper.as_fd(), work.as_fd())
}

/// Mounts an empty folder of the private space, `name`, over `folder`, which is created. What a
/// command left in its place in the temporary folder of the session is removed, unless it is a
/// folder.
fn make_parent(name: &str, folder: &Path) -> io::Result<()> {
    let space = private_folder(name, 0o755)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !fs::symlink_metadata(folder)?.is_dir() {
                fs::remove_file(folder)?;
                fs::create_dir(folder)?;
            }
        }
        created => created?,
    }
    // Does not follow a link that replaces the folder in this moment.
    kernel::attach_tree(space.as_fd(), folder)
}

/// Mount over a path of the read-only tree.
enum Layer {
    /// Unreadable empty file or folder, which hides the path.
    Nothing(OwnedFd),
    /// Copy of the original. True: writable; false: read-only.
    Copy(OwnedFd, bool),
    /// File that is mounted read-only in place of the original.
    Replacement(OwnedFd),
}

/// Mounts copies and covers in the order of their paths, a folder before its contents. So a secret
/// inside a writable root is covered, and a visible path below a hidden folder is accessible.
fn mount_all(
    plan: &Plan,
    kept: WritableMounts,
    mut layers: BTreeMap<PathBuf, Layer>,
    parents: BTreeSet<PathBuf>,
    mounted: &mut Mounted,
) -> Result<(), String> {
    let WritableMounts { trees, links } = kept;
    let copies: Vec<PathBuf> = trees.keys().cloned().collect();
    let masked: Vec<PathBuf> = masks(plan).map(Path::to_owned).collect();
    // In a masked folder, the file at the path of a secret is another one.
    layers.retain(|path, _| {
        let is_shown = copies.iter().any(|copy| copy.starts_with(path) || path.starts_with(copy));
        is_shown || !is_below(path, &masked)
    });
    layers.extend(trees);
    let mut ways: Vec<PathBuf> = parents.into_iter().collect();
    let mut hidden: Vec<PathBuf> = Vec::new();
    for (path, layer) in layers {
        match layer {
            Layer::Nothing(_) if copies.iter().any(|copy| copy.starts_with(&path)) => {
                make_folder(&path).context(path.display())?;
                memory(&path, MOUNT_POINTS).context(path.display())?;
                mounted.hidden += 1;
                ways.push(path);
            }
            Layer::Nothing(nothing) => {
                cover(plan, &path, &nothing, &hidden)?;
                mounted.hidden += 1;
                hidden.push(path);
            }
            Layer::Copy(tree, is_writable) => {
                mount_copy(&path, &tree, is_writable).context(path.display())?;
                mounted.writable += usize::from(is_writable);
            }
            Layer::Replacement(file) if plan.is_in_hidden_folder(&path) => {
                mount_copy(&path, &file, false).context(path.display())?;
                mounted.replaced += 1;
            }
            Layer::Replacement(file) => {
                let flags = kernel::NO_SETUID | kernel::NO_DEVICES | kernel::READ_ONLY;
                kernel::restrict_tree(file.as_fd(), flags).context(path.display())?;
                // It replaces a secret, which must not be elsewhere by now.
                cover(plan, &path, &file, &hidden)?;
                mounted.replaced += 1;
            }
        }
    }
    for path in ways {
        // Only the path to its contents was created; it stays read-only.
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        let flags = flags | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(None::<&str>, &path, None::<&str>, flags, None::<&str>).context(path.display())?;
    }
    for (link, target) in links {
        symlink(target, &link).context(link.display())?;
    }
    Ok(())
}

fn mount_copy(path: &Path, tree: &OwnedFd, is_writable: bool) -> io::Result<()> {
    // Set-user-id programs run without their owner's rights here.
    let flags = kernel::NO_SETUID | kernel::NO_DEVICES;
    let flags = if is_writable { flags } else { flags | kernel::READ_ONLY };
    kernel::restrict_tree(tree.as_fd(), flags)?;
    create_mount_point(path, tree.as_fd())?;
    kernel::attach_tree(tree.as_fd(), path)
}

/// Creates `path`, with missing parent folders, as an empty folder or file like `tree`. Does
/// nothing if `path` exists.
fn create_mount_point(path: &Path, tree: impl AsFd) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    let is_folder = nix::sys::stat::fstat(tree)
        .is_ok_and(|stat| stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR);
    if is_folder { fs::create_dir(path) } else { File::create_new(path).map(drop) }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn memory(folder: &Path, options: &str) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some(options))?)
}

/// Creates the folder `name` with `mode` in the private space ([`PRIVATE_SPACE`]), and returns it as
/// a detached mount. All such folders share the size limit of the space.
fn private_folder(name: &str, mode: u32) -> io::Result<OwnedFd> {
    let folder = Path::new(STAGING).join(name);
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(mode))?;
    kernel::clone_tree(&folder)
}

/// Creates an unreadable cover for each hidden path that exists and is not a symbolic link. The
/// covers are in the private space. Fails if one below a writable path does not exist, or one at which
/// the search found a file is missing or a link: it may be a secret under another name by now.
fn covers(plan: &Plan) -> Result<BTreeMap<PathBuf, Layer>, String> {
    const FAILED: &str = "nothing to cover secrets with";
    let mut covered = Vec::new();
    for path in &plan.hidden {
        let found = existing(fs::symlink_metadata(path)).context(path.display())?;
        // The target of a link is a path of its own.
        match found.filter(|found| !found.is_symlink()) {
            Some(found) => covered.push((path, found.is_dir())),
            None if plan.identities.contains_key(path) && !is_out_of_sight(plan, path) => {
                return Err(format!("{}: {MOVED}", path.display()));
            }
            None if path.is_symlink() || !is_below(path, &plan.writable) => {}
            None => return Err(format!("{}: {MOVED}", path.display())),
        }
    }
    if covered.is_empty() {
        return Ok(BTreeMap::new());
    }
    let place = Path::new(STAGING);
    let (file, folder) = (place.join("file"), place.join("folder"));
    File::create_new(&file).context(FAILED)?;
    fs::create_dir(&folder).context(FAILED)?;
    for path in [&file, &folder] {
        fs::set_permissions(path, Permissions::from_mode(0o000)).context(FAILED)?;
    }
    let take = |(path, is_folder): (&PathBuf, bool)| {
        let nothing = kernel::clone_tree(if is_folder { &folder } else { &file })?;
        kernel::restrict_tree(nothing.as_fd(), kernel::READ_ONLY)?;
        Ok((path.clone(), Layer::Nothing(nothing)))
    };
    covered.into_iter().map(take).collect::<io::Result<_>>().context(FAILED)
}

/// True if `path` is in a masked folder, so that the command sees no file there.
fn is_out_of_sight(plan: &Plan, path: &Path) -> bool {
    let masked: Vec<PathBuf> = masks(plan).map(Path::to_owned).collect();
    let is_shown = is_below(path, &plan.writable) || is_below(path, &plan.visible);
    is_below(path, &masked) && !is_shown
}

/// Mounts the cover `nothing`, or another file, over the secret at `path`. Fails if the file that the
/// search found there is not there any more, unless one of the folders `hidden` is around it.
fn cover(plan: &Plan, path: &Path, nothing: &OwnedFd, hidden: &[PathBuf]) -> Result<(), String> {
    use io::ErrorKind::{NotFound, PermissionDenied};
    let moved = || format!("{}: {MOVED}", path.display());
    let Some(expected) = plan.identities.get(path) else {
        return match fs::symlink_metadata(path) {
            Ok(_) => kernel::attach_tree(nothing.as_fd(), path).context(path.display()),
            // The contents of a covered folder are not visible.
            Err(error) if matches!(error.kind(), NotFound | PermissionDenied) => {
                if is_below(path, hidden) || is_out_of_sight(plan, path) {
                    Ok(())
                } else {
                    Err(moved())
                }
            }
            Err(error) => Err(error).context(path.display()),
        };
    };
    if is_below(path, hidden) {
        return Ok(());
    }
    let place = match resolved_path::open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW) {
        Ok(place) => place,
        Err(_) if is_out_of_sight(plan, path) => return Ok(()),
        Err(_) => return Err(moved()),
    };
    let found = nix::sys::stat::fstat(&place).context(path.display())?;
    if (found.st_dev, found.st_ino) != *expected {
        return Err(moved());
    }
    kernel::attach_tree_at(nothing.as_fd(), place.as_fd()).context(path.display())
}

/// Returns detached copies of the devices of a command, by name. Missing devices are left out.
fn devices() -> Result<Vec<(&'static str, OwnedFd)>, String> {
    let take = |name: &'static str| {
        let path = Path::new("/dev").join(name);
        let tree = kernel::clone_tree(&path);
        let tree = existing(tree).context(path.display());
        tree.map(|tree| tree.map(|tree| (name, tree))).transpose()
    };
    DEVICES.into_iter().filter_map(take).collect()
}

/// Mounts a private `/dev` with `devices`, private terminals and the folder `shared_memory`. It
/// contains neither hardware devices nor terminals of other programs.
fn own_devices(devices: Vec<(&'static str, OwnedFd)>, shared_memory: &OwnedFd) -> io::Result<()> {
    let dev = Path::new("/dev");
    let none = None::<&str>;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), dev, Some("tmpfs"), flags, Some("size=64k,mode=755"))?;
    for (name, tree) in devices {
        let path = dev.join(name);
        File::create_new(&path)?;
        kernel::attach_tree(tree.as_fd(), &path)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name))?;
    }
    let (pts, shm) = (dev.join("pts"), dev.join("shm"));
    fs::create_dir(&pts)?;
    fs::create_dir(&shm)?;
    let options = "newinstance,ptmxmode=0666,mode=620";
    mount(Some("devpts"), &pts, Some("devpts"), flags, Some(options))?;
    kernel::attach_tree(shared_memory.as_fd(), &shm)?;
    let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags;
    mount(none, dev, none, again, none)?;
    Ok(())
}
