//! System calls without a safe wrapper, each with the reason why the call is sound.

#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::unistd::Pid;
use posse_base::resolved_path;

/// Flag for [`restrict_tree`] that makes mounts read-only.
pub(crate) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub(crate) const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub(crate) const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;

/// Upper bound for capability numbers, above the highest that any kernel has had.
const CAPABILITIES: libc::c_int = 63;

fn path_bytes(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Converts the return value of a system call: a negative number becomes the error in `errno`.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Lets the process of `command` inherit `descriptors`, under their numbers. No other process that
/// starts meanwhile gets them.
#[expect(
    clippy::disallowed_types,
    reason = "the command is built by the places where processes start"
)]
pub(crate) fn inherit(command: &mut std::process::Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: between fork and execution, the closure only makes system calls and allocates nothing.
    unsafe { command.pre_exec(keep) };
}

/// Returns a detached copy of the mounts at `path` and below it. A link at `path` is not followed.
pub(crate) fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = path_bytes(path)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let flags =
        flags | libc::AT_RECURSIVE.cast_unsigned() | libc::AT_SYMLINK_NOFOLLOW.cast_unsigned();
    // SAFETY: the path is terminated and outlives the call, the rest are numbers.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    owned(tree)
}

/// Returns a detached copy of the mounts at the resolved `path` and below it, as [`clone_tree`] does.
/// Fails if a link is anywhere on the way: a running command may have put one there.
pub(crate) fn clone_resolved_tree(path: &Path) -> io::Result<OwnedFd> {
    let opened = resolved_path::open(path, OFlag::O_PATH)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let flags = flags | libc::AT_RECURSIVE.cast_unsigned() | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the descriptor is open, the path is a constant, the rest is a number.
    let tree =
        unsafe { libc::syscall(libc::SYS_open_tree, opened.as_raw_fd(), c"".as_ptr(), flags) };
    owned(tree)
}

/// Returns a detached overlay mount: changes of `lower` go to `upper`; `work` is an empty folder
/// beside `upper`. For user namespaces: the marks of the overlay are attributes `user.overlay.*`.
/// Folders of `lower` cannot be renamed, files are copied whole, and nothing is synced to disk.
pub(crate) fn overlay(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    // SAFETY: the name is terminated and outlives the call, the rest is a number.
    let context =
        unsafe { libc::syscall(libc::SYS_fsopen, c"overlay".as_ptr(), libc::c_int::from(true)) };
    let context = owned(context)?;
    for (key, layer) in [(c"lowerdir", lower), (c"upperdir", upper), (c"workdir", work)] {
        let path = CString::new(format!("/proc/self/fd/{}", layer.as_raw_fd()))?;
        configure(&context, SET_STRING, key, Some(&path))?;
    }
    for flag in [c"userxattr", c"volatile"] {
        configure(&context, SET_FLAG, flag, None)?;
    }
    for key in [c"index", c"xino"] {
        configure(&context, SET_STRING, key, Some(c"off"))?;
    }
    configure(&context, CREATE, c"", None)?;
    let flags = NO_SETUID | NO_DEVICES;
    // SAFETY: numbers only.
    let mount = unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::c_int::from(true), flags)
    };
    owned(mount)
}

/// Commands of `fsconfig`.
const SET_FLAG: libc::c_uint = 0;
const SET_STRING: libc::c_uint = 1;
const CREATE: libc::c_uint = 6;

/// Carries out a command of `fsconfig`. An empty `key` means none.
fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    key: &CStr,
    value: Option<&CStr>,
) -> io::Result<()> {
    let key = if key.is_empty() { std::ptr::null() } else { key.as_ptr() };
    let value = value.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the strings are terminated and outlive the call, the rest are numbers.
    let done =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0) };
    checked(done).map(drop)
}

/// Owns a descriptor that a system call has returned.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = RawFd::try_from(checked(returned)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Maximum size in bytes of the list of attributes of one file, as in Linux.
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// Returns the names of the extended attributes of `path` that begin with `beginning`. A link at
/// `path` is not followed. Empty if the file system has none.
pub(crate) fn attributes(path: &Path, beginning: &[u8]) -> io::Result<Vec<CString>> {
    let path = path_bytes(path)?;
    let mut names = vec![0_u8; 256];
    let length = loop {
        // SAFETY: the path is terminated, the buffer has the given length, and both outlive the
        // call.
        let length =
            unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::ERANGE) if names.len() < ATTRIBUTES_BYTES_MAX => {
                    names.resize(ATTRIBUTES_BYTES_MAX, 0);
                }
                Some(libc::EOPNOTSUPP) => break 0,
                _ => return Err(io::Error::last_os_error()),
            },
        }
    };
    let names = names[..length].split(|byte| *byte == 0);
    let wanted = names.filter(|name| !name.is_empty() && name.starts_with(beginning));
    wanted.map(|name| CString::new(name).map_err(io::Error::other)).collect()
}

/// Returns the value of the attribute `name` of `path`, at most 16 bytes of it. A link is not
/// followed. `None` if it has none, or a longer one.
pub(crate) fn short_attribute(path: &Path, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let path = path_bytes(path)?;
    let mut value = vec![0_u8; 16];
    // SAFETY: both strings are terminated, the buffer has the given length, and all outlive the
    // call.
    let length = unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    let Ok(length) = usize::try_from(length) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ERANGE) => Ok(None),
            _ => Err(error),
        };
    };
    value.truncate(length);
    Ok(Some(value))
}

/// Removes the attribute `name` of `path`. A link is not followed.
pub(crate) fn remove_attribute(path: &Path, name: &CStr) -> io::Result<()> {
    let path = path_bytes(path)?;
    // SAFETY: both strings are terminated and outlive the call.
    let removed = unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) };
    checked(removed.into()).map(drop)
}

/// Attaches `tree`, a detached mount, over `path`.
pub(crate) fn attach_tree(tree: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    move_mount(tree, libc::AT_FDCWD, &path_bytes(path)?, 0)
}

/// Mounts the detached `tree` over the open file or folder `place`, whatever its path is by now.
pub(crate) fn attach_tree_at(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    move_mount(tree, place.as_raw_fd(), c"", libc::MOVE_MOUNT_T_EMPTY_PATH)
}

fn move_mount(
    tree: BorrowedFd<'_>,
    folder: libc::c_int,
    path: &CStr,
    flags: libc::c_uint,
) -> io::Result<()> {
    let empty = c"";
    // SAFETY: both paths are terminated and outlive the call, the rest are numbers.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            empty.as_ptr(),
            folder,
            path.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | flags,
        )
    };
    checked(moved).map(drop)
}

/// Sets mount flags, such as [`READ_ONLY`], on a mount and on all mounts below it.
pub(crate) fn restrict_tree(tree: BorrowedFd<'_>, flags: u64) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let empty = c"";
    // SAFETY: the string is terminated, the structure has the given length, and both outlive the
    // call.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            std::ptr::from_ref(&attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    checked(set).map(drop)
}

/// Process in which [`fork`] returned: the parent, with the id of the child, or the child.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks. Must be called by a single-threaded process only.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: helpers have one thread, so the child finds no lock held by another thread.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(Fork::Child),
    }
}

/// Drops every capability. Also empties the bounding set if the process may do that, so that no
/// executed program can regain a capability.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    for capability in 0..=CAPABILITIES {
        // SAFETY: numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            let error = io::Error::last_os_error();
            // The first capability unknown to this kernel, or missing permission to drop.
            match error.raw_os_error() {
                Some(libc::EINVAL) => break,
                Some(libc::EPERM) if capability == 0 => break,
                _ => return Err(error),
            }
        }
    }
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let head = CapabilityHead { version: CAPABILITY_VERSION, pid: 0 };
    let none = [CapabilityWord::default(); 2];
    // SAFETY: the header gives the number of words, and both outlive the call.
    let set = unsafe { libc::syscall(libc::SYS_capset, std::ptr::from_ref(&head), none.as_ptr()) };
    checked(set).map(drop)
}

/// True if this process has any capability.
pub(crate) fn has_capabilities() -> io::Result<bool> {
    let mut head = CapabilityHead { version: CAPABILITY_VERSION, pid: 0 };
    let mut words = [CapabilityWord::default(); 2];
    // SAFETY: the header gives the number of words, and the kernel writes no more.
    let got = unsafe {
        libc::syscall(libc::SYS_capget, std::ptr::from_mut(&mut head), words.as_mut_ptr())
    };
    checked(got)?;
    Ok(words.iter().any(|word| word.effective | word.permitted | word.inheritable != 0))
}

/// Version 3 of the kernel's capability structures, which use two words.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHead {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// True if a seccomp filter is in force for this process.
pub(crate) fn has_filter() -> bool {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2 }
}

/// Brings up the loopback interface of a new network namespace.
pub(crate) fn raise_loopback() -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: a structure of numbers and bytes, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    // SAFETY: the kernel reads the structure of this request, which outlives the call.
    let set = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, std::ptr::from_ref(&request))
    };
    checked(set.into()).map(drop)
}
