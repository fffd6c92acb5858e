//! Files of a snapshot: kind, change stamp and content hash.

use nix::sys::stat::{FileStat, SFlag};

/// Kind of a stored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file that its owner may not execute.
    File,
    /// A regular file that its owner may execute.
    Executable,
    /// A symbolic link. Its content is the path of the target.
    Link,
}

impl Kind {
    /// Mode of the file in a tree of git.
    pub(crate) fn mode(self) -> &'static str {
        match self {
            Kind::File => "100644",
            Kind::Executable => "100755",
            Kind::Link => "120000",
        }
    }

    /// Kind of a file with this mode in a tree of git. `None` for other modes.
    pub(crate) fn of_mode(mode: &[u8]) -> Option<Kind> {
        match mode {
            b"100644" => Some(Kind::File),
            b"100755" => Some(Kind::Executable),
            b"120000" => Some(Kind::Link),
            _ => None,
        }
    }
}

/// Metadata by which a change of a file is detected. A write to a file changes at least `ctime`. A
/// write through a mapping does so only if the page was clean, so the process could have changed the
/// file before: see [`Stamp::is_too_recent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub(crate) mtime: i64,
    /// Time of the last change of content or metadata, in nanoseconds since 1970.
    pub(crate) ctime: i64,
    pub(crate) ino: u64,
    pub(crate) dev: u64,
}

/// Maximum time in nanoseconds between two changes that may get the same time on a file system
/// with fine time stamps: a tick of the kernel, with reserve.
const FINE_TICK: i64 = 50_000_000;
/// The same for file systems that store full seconds, or every other one.
const COARSE_TICK: i64 = 2_000_000_000;

impl Stamp {
    /// Stamp of a regular file or a symbolic link. `None` for other kinds of files.
    #[allow(
        clippy::cast_lossless,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        trivial_numeric_casts,
        reason = "the widths and signs of these fields differ between systems"
    )]
    pub(crate) fn of(stat: &FileStat) -> Option<Stamp> {
        let format = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let kind = match format {
            SFlag::S_IFREG if stat.st_mode & 0o100 != 0 => Kind::Executable,
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFLNK => Kind::Link,
            _ => return None,
        };
        let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000) + nanos;
        Some(Stamp {
            kind,
            size: stat.st_size.max(0) as u64,
            mtime: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            ino: stat.st_ino as u64,
            dev: stat.st_dev as u64,
        })
    }

    /// True if a later change could leave this stamp as it is, because the file changed just before
    /// `since` or later, in nanoseconds since 1970. Such a file is read again by the next checkpoint.
    ///
    /// `since`: start of the oldest command that runs, or the present time if none does. The first
    /// change through a mapping of a command alters `ctime`, so the file has changed since then.
    pub(crate) fn is_too_recent(&self, since: i64) -> bool {
        let last = self.mtime.max(self.ctime);
        let tick = if last % 1_000_000_000 == 0 { COARSE_TICK } else { FINE_TICK };
        last >= since.saturating_sub(tick)
    }
}

/// SHA-256 of the content of a file; of a link, of its target.
pub(crate) type ContentHash = [u8; 32];

/// File of a snapshot, whose content is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path relative to the root, in bytes.
    pub(crate) path: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// False if the stamp proves nothing: when the file was read, it had just been changed, or since
    /// the start of a command that ran then.
    pub(crate) is_settled: bool,
    pub(crate) hash: ContentHash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_changes_are_read_again() {
        let stamp = |ctime| Stamp { kind: Kind::File, size: 1, mtime: 5, ctime, ino: 1, dev: 1 };
        let second = 1_000_000_000;
        let now = 100 * second;
        for (ctime, expected) in [
            (now, true),
            (now + 7, true),
            (now - 1, true),
            (now - 49_999_999, true),
            (now - 50_000_001, false),
            // A file system with full seconds.
            (now - second, true),
            (now - 3 * second, false),
        ] {
            assert_eq!(stamp(ctime).is_too_recent(now), expected, "{}", now - ctime);
        }
    }

    #[test]
    fn modes_of_git_are_kinds() {
        for kind in [Kind::File, Kind::Executable, Kind::Link] {
            assert_eq!(Kind::of_mode(kind.mode().as_bytes()), Some(kind));
        }
        for other in ["160000", "040000", "100600", ""] {
            assert_eq!(Kind::of_mode(other.as_bytes()), None);
        }
    }
}
