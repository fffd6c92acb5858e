//! Helpers: starting one, and keeping one that is already started for the next command.
//!
//! A helper that waits knows nothing of a command yet, so it can do whatever takes long in the
//! time in which a model thinks. It ends when we do, because its socket does.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::process::Child;
use tokio::runtime::{Handle, Id};

use crate::sandbox::Sandbox;
use crate::sandbox::helper::{self, Shape};
use crate::sandbox::tree::{Mark, Tree};

/// How long a helper may take to read what it is told.
const SEND_MAX: Duration = Duration::from_secs(5);

/// A helper that waits for its request.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) mark: Mark,
    pub(crate) child: Child,
    pub(crate) tree: Tree,
    pub(crate) output: io::PipeReader,
    pub(crate) control: UnixStream,
    shape: Shape,
    /// Where its end is waited for.
    runtime: Id,
}

/// The helper that is kept.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Ready>>);

impl Kept {
    fn take(&self) -> Option<Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends it.
    pub(crate) fn dismiss(&self) {
        if let Some(ready) = self.take() {
            ready.tree.dismiss();
        }
    }
}

impl Ready {
    fn suits(&mut self, shape: Shape) -> bool {
        let lives = matches!(self.child.try_wait(), Ok(None));
        lives && self.shape == shape && self.runtime == Handle::current().id()
    }
}

impl Sandbox {
    /// The helper that was kept, if it is one for `shape`.
    pub(crate) fn kept(&self, shape: Shape) -> Option<Ready> {
        let mut ready = self.kept.take()?;
        if ready.suits(shape) {
            return Some(ready);
        }
        ready.tree.dismiss();
        None
    }

    /// Keeps a helper for the next command, if there is none yet. To be called when nobody waits.
    pub(crate) fn keep(&self, shape: Shape) {
        // Where somebody else makes the namespace it needs the command first.
        if shape == Shape::Inner {
            return;
        }
        let mut kept = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some() {
            return;
        }
        match self.helper(shape) {
            Ok(ready) => *kept = Some(ready),
            Err(error) => tracing::debug!(%error, "no helper is kept"),
        }
    }

    /// Starts a helper.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    pub(crate) fn helper(&self, shape: Shape) -> io::Result<Ready> {
        let mut command = std::process::Command::new(&self.helper);
        command.arg0("posse");
        self.begin(command, shape)
    }

    /// Starts a program that is a helper, or becomes one.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    pub(crate) fn begin(
        &self,
        mut command: std::process::Command,
        shape: Shape,
    ) -> io::Result<Ready> {
        let (output, output_end) = io::pipe()?;
        let (control, control_end) = UnixStream::pair()?;
        control.set_write_timeout(Some(SEND_MAX))?;
        self.watch.ensure(&self.helper, &self.family);
        let mark = Mark::new(&self.family);
        command
            .arg(helper::MARK)
            .arg(std::process::id().to_string())
            .arg(shape.as_str())
            .env_clear()
            .envs([mark.variable()])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(control_end)))
            .stdout(Stdio::from(output_end.try_clone()?))
            .stderr(Stdio::from(output_end))
            .current_dir("/");
        // The descriptors of the other ends are closed with the command, or reading never ends.
        let (child, tree) = Tree::start(mark.clone(), shape.encloses(), move || {
            let child = tokio::process::Command::from(command).spawn()?;
            let id = child.id().map_or(0, u32::cast_signed);
            Ok((child, id))
        })?;
        let runtime = Handle::current().id();
        Ok(Ready { mark, child, tree, output, control, shape, runtime })
    }
}
