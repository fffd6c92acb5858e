//! Metadata of a file, read by descriptor or by name within a folder.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use posse_actors::ports::ToolError;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device, or a file of any other kind.
    Device,
}

/// Metadata of a file from `stat`, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// Kind of the file.
    pub kind: FileKind,
    /// Number of the device that contains the file.
    pub dev: u64,
    /// Inode number of the file on its device.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, with set-user-id, set-group-id and sticky bit.
    pub mode: u32,
    /// Number of hard links, that is, of names of the file.
    pub links: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the group of the file.
    pub gid: u32,
    /// Time of the last change of content or metadata (`ctime`): seconds and nanoseconds since
    /// 1970.
    pub changed: (i64, i64),
}

impl FileStatus {
    /// Reads the metadata of the open file `descriptor`.
    pub fn of(descriptor: impl AsFd) -> Result<FileStatus, Errno> {
        fstat(descriptor).map(|stat| FileStatus::from_stat(&stat))
    }

    /// Reads the metadata of `name` in `folder`. Of a symbolic link, reads that of the link itself.
    pub fn at(folder: impl AsFd, name: &Path) -> Result<FileStatus, Errno> {
        fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).map(|stat| FileStatus::from_stat(&stat))
    }

    /// Identity of the file: device, inode and kind. Two names with equal identities are the same
    /// file, as long as it exists.
    pub fn identity(&self) -> (u64, u64, FileKind) {
        (self.dev, self.ino, self.kind)
    }

    /// Returns true if the owner may execute the file.
    pub fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }

    /// Fails unless the file is of this `kind`. The error is for the model, which knows the file as
    /// `shown`.
    pub fn require(&self, kind: FileKind, shown: &str) -> Result<(), ToolError> {
        if self.kind == kind {
            return Ok(());
        }
        let (is, hint) = match self.kind {
            FileKind::File => ("a file, not a folder", ""),
            FileKind::Folder => ("a folder", "; list_dir shows what is in it"),
            FileKind::Link => ("a link that leads nowhere", ""),
            FileKind::Pipe => ("a pipe", ""),
            FileKind::Socket => ("a socket", ""),
            FileKind::Device => ("a device", ""),
        };
        Err(ToolError::new("ARG003", format!("{shown} is {is}{hint}")))
    }

    #[allow(
        clippy::cast_lossless,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        trivial_numeric_casts,
        reason = "the widths and signs of these fields differ between systems"
    )]
    fn from_stat(stat: &FileStat) -> FileStatus {
        let format = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let kind = match format {
            SFlag::S_IFREG => FileKind::File,
            SFlag::S_IFDIR => FileKind::Folder,
            SFlag::S_IFLNK => FileKind::Link,
            SFlag::S_IFIFO => FileKind::Pipe,
            SFlag::S_IFSOCK => FileKind::Socket,
            _ => FileKind::Device,
        };
        FileStatus {
            kind,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            size: stat.st_size.max(0) as u64,
            mode: (stat.st_mode & 0o7777) as u32,
            links: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// Current path of the open file `descriptor`, as the kernel knows it. That of a removed file ends
/// with ` (deleted)`.
#[cfg(target_os = "linux")]
pub(super) fn real_path(descriptor: &OwnedFd) -> std::io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Current path of the open file `descriptor`, as the kernel knows it.
#[cfg(target_os = "macos")]
pub(super) fn real_path(descriptor: &OwnedFd) -> std::io::Result<PathBuf> {
    let mut path = PathBuf::new();
    nix::fcntl::fcntl(descriptor, nix::fcntl::FcntlArg::F_GETPATH(&mut path))?;
    Ok(path)
}
