//! Helpers: starting one, and keeping one that is already started for the next command.
//!
//! A helper that waits knows nothing of a command yet, so it can do whatever takes long in the
//! time in which a model thinks. It ends when we do, because its socket does.

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
use crate::sandbox::helper::{self, HelperShape};
use crate::sandbox::plan::Plan;
use crate::sandbox::process_tree::{Family, Mark, ProcessTree};

/// How long a helper may take to read what it is told.
const SEND_MAX: Duration = Duration::from_secs(5);

/// How long a command that has just begun has the machine for itself.
const PAUSE: Duration = Duration::from_millis(3);

/// The stack of the thread that starts helpers: it calls nothing deep.
const STACK_BYTES: usize = 256 << 10;

/// A helper that waits for its request.
#[derive(Debug)]
pub(crate) struct ReadyHelper {
    pub(crate) mark: Mark,
    pub(crate) child: Child,
    pub(crate) tree: ProcessTree,
    pub(crate) output: io::PipeReader,
    pub(crate) control: UnixStream,
    shape: HelperShape,
    /// Where its end is waited for.
    runtime: Id,
}

/// The helper that is kept, and the thread that starts it.
///
/// To start one holds up the thread that does it until the new process runs, and a command is
/// killed when the thread that started its helper ends: so it is one thread of its own, for as
/// long as there is a sandbox.
#[derive(Debug, Default)]
pub(crate) struct SpareHelper {
    slot: Arc<Mutex<Slot>>,
    keeper: OnceLock<Option<Sender<HelperOrder>>>,
}

#[derive(Debug, Default)]
struct Slot {
    ready: Option<ReadyHelper>,
    /// Whether none is wanted any more.
    is_closed: bool,
}

/// What to keep, and where its end is waited for.
#[derive(Debug)]
struct HelperOrder {
    shape: HelperShape,
    /// What the next command will probably be confined to.
    expected: Option<Plan>,
    runtime: Handle,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpareHelper {
    /// Ends it.
    pub(crate) fn dismiss(&mut self) {
        drop(self.keeper.take());
        let mut slot = lock(&self.slot);
        slot.is_closed = true;
        if let Some(ready) = slot.ready.take() {
            ready.tree.dismiss();
        }
    }

    fn start(&self, helper: PathBuf, family: &Family) -> Option<Sender<HelperOrder>> {
        let (sender, orders) = channel::<HelperOrder>();
        let (slot, family) = (Arc::clone(&self.slot), family.clone());
        let work = move || {
            for HelperOrder { shape, expected, runtime } in orders {
                // The command that runs now is waited for; nobody waits for this.
                std::thread::sleep(PAUSE);
                let mut slot = lock(&slot);
                if slot.is_closed || slot.ready.is_some() {
                    continue;
                }
                let context = runtime.enter();
                match begin(command(&helper), shape, &family) {
                    Ok(ready) => {
                        let sent = expected.map(|plan| plan.send_ahead(&ready.control));
                        // One that does not listen is found out when it is needed.
                        tracing::trace!(?sent, "a helper was told what to expect");
                        slot.ready = Some(ready);
                    }
                    Err(error) => tracing::debug!(%error, "no helper is kept"),
                }
                drop(context);
            }
        };
        let thread = std::thread::Builder::new().name("posse-spare".into());
        thread.stack_size(STACK_BYTES).spawn(work).ok().map(|_| sender)
    }
}

impl ReadyHelper {
    fn suits(&mut self, shape: HelperShape) -> bool {
        let lives = matches!(self.child.try_wait(), Ok(None));
        lives && self.shape == shape && self.runtime == Handle::current().id()
    }
}

impl Sandbox {
    /// The helper that was kept, if it is one for `shape`.
    pub(crate) fn kept(&self, shape: HelperShape) -> Option<ReadyHelper> {
        let mut ready = lock(&self.kept.slot).ready.take()?;
        if ready.suits(shape) {
            return Some(ready);
        }
        ready.tree.dismiss();
        None
    }

    /// Keeps a helper for the next command, if there is none yet: one that is confined as
    /// `expected` will be, if anything can be made ready for that. To be called when nobody waits.
    pub(crate) fn keep(&self, shape: HelperShape, expected: Option<Plan>) {
        // Where somebody else makes the namespace it needs the command first.
        if shape == HelperShape::Inner {
            return;
        }
        let start = || self.kept.start(self.helper.clone(), &self.family);
        if let Some(keeper) = self.kept.keeper.get_or_init(start) {
            // A thread that has gone keeps nothing, and the next helper is started when needed.
            keeper.send(HelperOrder { shape, expected, runtime: Handle::current() }).ok();
        }
    }

    /// Starts a helper.
    pub(crate) fn helper(&self, shape: HelperShape) -> io::Result<ReadyHelper> {
        self.begin(command(&self.helper), shape)
    }

    /// Starts a program that is a helper, or becomes one.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    pub(crate) fn begin(
        &self,
        command: std::process::Command,
        shape: HelperShape,
    ) -> io::Result<ReadyHelper> {
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
fn begin(
    mut command: std::process::Command,
    shape: HelperShape,
    family: &Family,
) -> io::Result<ReadyHelper> {
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
    // The descriptors of the other ends are closed with the command, or reading never ends.
    let (child, tree) = ProcessTree::start(mark.clone(), shape.encloses(), move || {
        let child = tokio::process::Command::from(command).spawn()?;
        let id = child.id().map_or(0, u32::cast_signed);
        Ok((child, id))
    })?;
    let runtime = Handle::current().id();
    Ok(ReadyHelper { mark, child, tree, output, control, shape, runtime })
}
