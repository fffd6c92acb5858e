//! Starts helpers, and keeps a spare helper for the next command.
//!
//! A spare helper does not know its command yet. It does the slow part of the preparation while the
//! model generates its reply. It exits when posse ends, because its socket closes.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::process::Child;
use tokio::runtime::{Handle, Id};

use crate::Sandbox;
use crate::helper::{self, HelperShape};
use crate::plan::Plan;
use crate::process_tree::{Family, Mark, ProcessTree};
use crate::temporary::SessionTemporary;
use crate::wire;

/// Time for which one write to the socket of a helper may block, because the helper does not read.
const SEND_MAX: Duration = Duration::from_secs(5);

/// Delay before starting a spare helper, so that a command that has just started is not slowed
/// down.
const PAUSE: Duration = Duration::from_millis(3);

/// Stack size in bytes of the thread that starts helpers: its calls are shallow.
const STACK_BYTES: usize = 256 << 10;

/// Started helper that waits for its request.
#[derive(Debug)]
pub(crate) struct ReadyHelper {
    pub(crate) mark: Mark,
    pub(crate) child: Child,
    pub(crate) tree: ProcessTree,
    pub(crate) output: io::PipeReader,
    pub(crate) control: UnixStream,
    shape: HelperShape,
    /// Session whose temporary space it has entered. `None`: it has entered none.
    session: Option<Weak<SessionTemporary>>,
    /// Tokio runtime in which the end of `child` can be awaited.
    runtime: Id,
}

/// Spare helper and the thread that starts it.
///
/// Starting a helper blocks the thread until the new process runs, and the helper is killed when
/// the thread ends. So one thread starts all spare helpers and lives as long as the sandbox.
#[derive(Debug, Default)]
pub(crate) struct SpareHelper {
    slot: Arc<Mutex<Slot>>,
    keeper: OnceLock<Option<Sender<HelperOrder>>>,
}

#[derive(Debug, Default)]
struct Slot {
    ready: Option<ReadyHelper>,
    /// True after [`SpareHelper::dismiss`]: no more spare helpers are started.
    is_closed: bool,
}

/// Order to the thread: start a spare helper of this shape.
#[derive(Debug)]
struct HelperOrder {
    shape: HelperShape,
    /// Session whose temporary space the helper enters, if it still exists.
    session: Option<Weak<SessionTemporary>>,
    /// Plan that the next command will probably have. `None`: the helper prepares no rules in
    /// advance.
    expected: Option<Plan>,
    runtime: Handle,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpareHelper {
    /// Ends the thread and kills the spare helper.
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
            for HelperOrder { shape, session, expected, runtime } in orders {
                // The running command has priority; nothing waits for this.
                std::thread::sleep(PAUSE);
                let mut slot = lock(&slot);
                if slot.is_closed || slot.ready.is_some() {
                    continue;
                }
                let session = match session.as_ref().map(Weak::upgrade) {
                    Some(None) => continue,
                    session => session.flatten(),
                };
                let context = runtime.enter();
                match begin(command(&helper), shape, session.as_ref(), &family, &helper) {
                    Ok(ready) => {
                        let sent = expected.map(|plan| plan.send_expected_plan(&ready.control));
                        // A helper that does not read is detected when it is needed.
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
    fn fits(&mut self, shape: HelperShape, session: Option<&Arc<SessionTemporary>>) -> bool {
        let lives = matches!(self.child.try_wait(), Ok(None));
        let entered = self.session.as_ref().map(Weak::as_ptr);
        let is_of_session = entered == session.map(Arc::as_ptr);
        lives && is_of_session && self.shape == shape && self.runtime == Handle::current().id()
    }
}

impl Sandbox {
    /// Takes the spare helper if it runs, has this `shape`, has entered the space of `session` and
    /// belongs to the current Tokio runtime. `None` if there is none, or if it does not fit; then
    /// it is killed.
    pub(crate) fn take_spare(
        &self,
        shape: HelperShape,
        session: Option<&Arc<SessionTemporary>>,
    ) -> Option<ReadyHelper> {
        let mut ready = lock(&self.kept.slot).ready.take()?;
        if ready.fits(shape, session) {
            return Some(ready);
        }
        ready.tree.dismiss();
        None
    }

    /// Orders the thread to start a spare helper of this `shape` if there is none, and does not
    /// wait for it. The helper enters the space of `session` and prepares the rules of the `expected` plan, if there is one. Does
    /// nothing for [`HelperShape::Inner`]. Call it when no command waits for a helper.
    pub(crate) fn keep(
        &self,
        shape: HelperShape,
        session: Option<&Arc<SessionTemporary>>,
        expected: Option<Plan>,
    ) {
        // If another program creates the namespace, the command must be known first.
        if shape == HelperShape::Inner {
            return;
        }
        let start = || self.kept.start(self.helper.clone(), &self.family);
        if let Some(keeper) = self.kept.keeper.get_or_init(start) {
            // If the thread has ended, the next helper is started on demand.
            let (session, runtime) = (session.map(Arc::downgrade), Handle::current());
            keeper.send(HelperOrder { shape, session, expected, runtime }).ok();
        }
    }

    /// Starts a helper of this `shape` in the space of `session`, and waits until its process
    /// exists. Not for [`HelperShape::Inner`], which needs bubblewrap. Call it in a Tokio runtime,
    /// on a thread that outlives the helper: the kernel may kill the helper when the thread ends.
    pub(crate) fn helper(
        &self,
        shape: HelperShape,
        session: Option<&Arc<SessionTemporary>>,
    ) -> io::Result<ReadyHelper> {
        self.begin(command(&self.helper), shape, session)
    }

    /// Starts `command`, which is a helper or a program that executes one, such as bubblewrap.
    /// Starts the watchdog first, unless it was started before.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    pub(crate) fn begin(
        &self,
        command: std::process::Command,
        shape: HelperShape,
        session: Option<&Arc<SessionTemporary>>,
    ) -> io::Result<ReadyHelper> {
        self.watch.ensure(&self.helper, &self.family);
        begin(command, shape, session, &self.family, &self.helper)
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
    session: Option<&Arc<SessionTemporary>>,
    family: &Family,
    helper: &Path,
) -> io::Result<ReadyHelper> {
    let space = session.and_then(|session| session.space(helper));
    let (output, output_end) = io::pipe()?;
    let (control, control_end) = UnixStream::pair()?;
    control.set_write_timeout(Some(SEND_MAX))?;
    let mark = Mark::new(family);
    command
        .arg(helper::MARK)
        .arg(std::process::id().to_string())
        .arg(shape.as_str())
        .args(space.map(|_| helper::JOINS))
        .env_clear()
        .envs([mark.variable()])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(control_end)))
        .stdout(Stdio::from(output_end.try_clone()?))
        .stderr(Stdio::from(output_end))
        .current_dir("/");
    // Dropping the command closes the other ends; otherwise reading never ends.
    let (child, tree) = ProcessTree::start(mark.clone(), shape.enclosure(), move || {
        let child = tokio::process::Command::from(command).spawn()?;
        let id = child.id().map_or(0, u32::cast_signed);
        Ok((child, id))
    })?;
    if let Some(space) = space {
        wire::send_descriptors(&control, &space.namespaces())?;
    }
    let runtime = Handle::current().id();
    let session = session.map(Arc::downgrade);
    Ok(ReadyHelper { mark, child, tree, output, control, shape, session, runtime })
}
