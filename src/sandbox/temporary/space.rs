//! Tmpfs of a session in a mount namespace of its own.
//!
//! A short-lived process of posse creates the namespaces, mounts the tmpfs, and sends posse their
//! descriptors. Helpers enter these namespaces before they create those of their command. No
//! process is left: the descriptors hold the namespaces, and the kernel frees the tmpfs when posse
//! ends, however it ends.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use crate::process_tree::NoOrphan;
use crate::{Context as _, namespaces, wire};

/// First command line argument that makes the posse binary create a temporary space.
pub(crate) const MARK: &str = "__posse_space";

/// Maximum time for which posse waits for the descriptors.
const CREATION_MAX: Duration = Duration::from_secs(5);

/// Namespaces with the tmpfs of a session, and its root folder.
#[derive(Debug)]
pub(crate) struct TemporarySpace {
    user: OwnedFd,
    mounts: OwnedFd,
    root: OwnedFd,
}

impl TemporarySpace {
    /// Creates namespaces in which a tmpfs is mounted at `folder`. Blocks until the process that
    /// does it has ended. `helper`: path of the posse binary.
    pub(crate) fn create(helper: &Path, folder: &Path) -> Result<TemporarySpace, String> {
        let (ours, theirs) = UnixStream::pair().context("no socket")?;
        ours.set_read_timeout(Some(CREATION_MAX)).context("no socket")?;
        let (mut child, _no_orphan) = NoOrphan::start(|| {
            let child = start(helper, folder, theirs.into()).context("no process")?;
            let pid = child.id().cast_signed();
            Ok((child, pid))
        })?;
        let received = wire::receive_descriptors::<3>(&ours);
        if received.is_err() {
            child.kill().ok();
        }
        child.wait().context("no process")?;
        let [user, mounts, root] = received.context("no namespaces for temporary files")?;
        Ok(TemporarySpace { user, mounts, root })
    }

    /// Descriptors of the user namespace and of the mount namespace, in the order in which a
    /// process enters them.
    pub(crate) fn namespaces(&self) -> [BorrowedFd<'_>; 2] {
        [self.user.as_fd(), self.mounts.as_fd()]
    }

    /// Root folder of the tmpfs.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn start(helper: &Path, folder: &Path, control: OwnedFd) -> io::Result<std::process::Child> {
    std::process::Command::new(helper)
        .arg0("posse")
        .arg(MARK)
        .arg(folder)
        .env_clear()
        .current_dir("/")
        // In its own group, so that it gets no terminal signals.
        .process_group(0)
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Creates the namespaces and the tmpfs, sends their descriptors to standard input, which is a
/// socket, and returns. `arguments`: the folder.
pub(crate) fn space_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let created = (|| {
        let folder = PathBuf::from(arguments.next().ok_or("no folder")?);
        let control = io::stdin().as_fd().try_clone_to_owned().context("no socket")?;
        let [user, mounts, root] = namespaces::temporary_space(&folder)?;
        let descriptors = [user.as_fd(), mounts.as_fd(), root.as_fd()];
        wire::send_descriptors(&UnixStream::from(control), &descriptors).context("no socket")
    })();
    // Without descriptors, posse reports that there is no space.
    if created.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
