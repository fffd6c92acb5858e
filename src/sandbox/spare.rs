//! Starting helpers, and keeping one started for the next command.
//!
//! A waiting helper does not depend on a command yet, so it performs slow preparation while the
//! model generates. It ends with posse, because its socket closes.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::process::Child;
use tokio::runtime::{Handle, Id};

use crate::sandbox::Sandbox;
use crate::sandbox::helper::{self, Shape};
use crate::sandbox::plan::Plan;
use crate::sandbox::tree::{Family, Mark, Tree};

/// Time limit for sending a request to a helper.
const SEND_MAX: Duration = Duration::from_secs(5);

/// Delay after the start of a command, before the next helper competes for the CPU.
const PAUSE: Duration = Duration::from_millis(3);

/// Stack size of the thread that starts helpers: its calls are shallow.
const STACK_BYTES: usize = 256 << 10;

/// Started helper that waits for its request.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) mark: Mark,
    pub(crate) child: Child,
    pub(crate) tree: Tree,
    pub(crate) output: io::PipeReader,
    pub(crate) control: UnixStream,
    shape: Shape,
    /// Runtime that waits for its end.
    runtime: Id,
}

/// Warm helper, and the thread that starts it.
///
/// Starting a helper blocks the thread until the new process runs, and a command is killed when the
/// thread that started its helper ends. So a separate thread exists as long as the sandbox.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    slot: Arc<Mutex<Slot>>,
    keeper: OnceLock<Option<Sender<Order>>>,
}

#[derive(Debug, Default)]
struct Slot {
    ready: Option<Ready>,
    /// `true` once no helper is needed any more.
    is_closed: bool,
}

/// Request to start a helper for a runtime.
#[derive(Debug)]
struct Order {
    shape: Shape,
    /// Expected plan of the next command.
    expected: Option<Plan>,
    runtime: Handle,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Stops the thread and the kept helper.
    pub(crate) fn dismiss(&mut self) {
        drop(self.keeper.take());
        let mut slot = lock(&self.slot);
        slot.is_closed = true;
        if let Some(ready) = slot.ready.take() {
            ready.tree.dismiss();
        }
    }

    fn start(&self, helper: PathBuf, family: &Family) -> Option<Sender<Order>> {
        let (sender, orders) = channel::<Order>();
        let (slot, family) = (Arc::clone(&self.slot), family.clone());
        let work = move || {
            for Order { shape, expected, runtime } in orders {
                // The running command is awaited by a caller; this helper is not.
                std::thread::sleep(PAUSE);
                let mut slot = lock(&slot);
                if slot.is_closed || slot.ready.is_some() {
                    continue;
                }
                let context = runtime.enter();
                match begin(command(&helper), shape, &family) {
                    Ok(ready) => {
                        let sent = expected.map(|plan| plan.send_ahead(&ready.control));
                        // A helper that does not read is detected when it is needed.
                        tracing::trace!(?sent, "sent the expected plan to a helper");
                        slot.ready = Some(ready);
                    }
                    Err(error) => tracing::debug!(%error, "cannot start a spare helper"),
                }
                drop(context);
            }
        };
        let thread = std::thread::Builder::new().name("posse-spare".into());
        thread.stack_size(STACK_BYTES).spawn(work).ok().map(|_| sender)
    }
}

impl Ready {
    fn suits(&mut self, shape: Shape) -> bool {
        let lives = matches!(self.child.try_wait(), Ok(None));
        lives && self.shape == shape && self.runtime == Handle::current().id()
    }
}

impl Sandbox {
    /// Kept helper, if it has this `shape`.
    pub(crate) fn kept(&self, shape: Shape) -> Option<Ready> {
        let mut ready = lock(&self.kept.slot).ready.take()?;
        if ready.suits(shape) {
            return Some(ready);
        }
        ready.tree.dismiss();
        None
    }

    /// Keeps a helper for the next command if there is none, prepared for the plan `expected` where
    /// possible. Must be called when no caller waits.
    pub(crate) fn keep(&self, shape: Shape, expected: Option<Plan>) {
        // bubblewrap needs the command when it creates the namespaces.
        if shape == Shape::Inner {
            return;
        }
        let start = || self.kept.start(self.helper.clone(), &self.family);
        if let Some(keeper) = self.kept.keeper.get_or_init(start) {
            // If the thread has ended, the next helper is started on demand.
            keeper.send(Order { shape, expected, runtime: Handle::current() }).ok();
        }
    }

    /// Starts a helper.
    pub(crate) fn helper(&self, shape: Shape) -> io::Result<Ready> {
        self.begin(command(&self.helper), shape)
    }

    /// Starts a program that is a helper, or becomes one.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    pub(crate) fn begin(&self, command: std::process::Command, shape: Shape) -> io::Result<Ready> {
        self.watch.ensure(&self.helper, &self.family);
        begin(command, shape, &self.family)
    }
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn command(helper: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(helper);
    command.arg0("posse");
    command
}

#[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
fn begin(mut command: std::process::Command, shape: Shape, family: &Family) -> io::Result<Ready> {
    let (output, output_end) = io::pipe()?;
    let (control, control_end) = UnixStream::pair()?;
    control.set_write_timeout(Some(SEND_MAX))?;
    let mark = Mark::new(family);
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
    // Dropping the command closes the other ends; otherwise reading never ends.
    let (child, tree) = Tree::start(mark.clone(), shape.encloses(), move || {
        let child = tokio::process::Command::from(command).spawn()?;
        let id = child.id().map_or(0, u32::cast_signed);
        Ok((child, id))
    })?;
    let runtime = Handle::current().id();
    Ok(Ready { mark, child, tree, output, control, shape, runtime })
}
