//! Trial: a command in a throw-away view of the workspace, whose changes are shown and then kept or
//! dropped.
//!
//! Each writable root is an overlay: the command reads the root, and its changes go to a private
//! folder, the upper layer. `changes.rs` reads that layer, `keep.rs` applies it to the workspace.
//! Only the own namespaces can mount an overlay. A command in a trial has no network.

mod changes;
mod control_files;
mod hidden_places;
mod keep;
mod obstacles;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use posse_actors::ports::{Confinement, NetworkAccess};
use posse_base::threads;

use crate::guard::{Exemptions, LateFindings};
use crate::plan::{Backend, Overlay, Plan};
use crate::protect::place::{Identity, Root};
use crate::run::RunOptions;
use crate::temporary::{self, SessionTemporary};
use crate::{Directory, ProcessOutcome, RunError, Sandbox, Spawn, Update};
use posse_base::remove_tree::remove_tree;

pub use changes::{ChangeKind, FileKind, FileState, TrialChange, TrialChanges, TrialContent};
pub(crate) use hidden_places::HiddenPlaces;
pub use keep::{KeptTrial, RefusalReason, RefusedChange};
pub use obstacles::obstacle;

/// Name of the folder with the layers, in the folder of a trial.
const LAYERS: &str = "layers";

/// Name of the temporary folder of the command, in the folder of a trial.
const TEMPORARY: &str = "tmp";

/// Name of the file in that folder that shows the clock of the file system.
const MARKER: &str = "begun";

/// Longest wait for the next tick of that clock: ticks are at most 10 ms apart.
const TICK_MS_MAX: u32 = 20;

/// A command that was run in a trial, and its changes. Dropping it drops the changes, which blocks
/// while files are removed.
#[derive(Debug)]
pub struct TriedCommand {
    /// Result of the command.
    pub outcome: ProcessOutcome,
    /// Changes of the command, compared with the workspace when it had ended.
    pub changes: TrialChanges,
    trial: Arc<Trial>,
}

/// Folder of a trial with its layers, removed on drop.
#[derive(Debug)]
pub(crate) struct Trial {
    folder: PathBuf,
    /// Lock that shows other processes of posse that the folder is in use. `None` if the file system
    /// has no locks.
    _lock: Option<Flock<File>>,
    layers: Vec<TrialLayer>,
    /// Time of the file system before the command: seconds and nanoseconds.
    begun: (i64, i64),
    confinement: Confinement,
    /// Temporary folder of the command.
    temporary: PathBuf,
    /// Temporary folder of the session.
    scratch: PathBuf,
}

/// Upper layer over one root.
#[derive(Debug, Clone)]
struct TrialLayer {
    root: PathBuf,
    identity: Identity,
    upper: PathBuf,
}

impl Sandbox {
    /// Runs `spawn` in a trial, as [`Sandbox::run_judged`] does: its changes of writable roots are
    /// collected in the folder `layers` in `folder`, which is created and must not contain one, it
    /// has no network, and its output spills to a file that is removed with the trial. Fails with
    /// [`RunError::NotPrepared`] and the reason if this machine or the place of the workspace does
    /// not allow a trial ([`obstacle`]).
    pub async fn try_command(
        &self,
        spawn: Spawn,
        folder: &Path,
        late: Option<LateFindings>,
        watch: impl FnMut(Update) + Send,
    ) -> Result<TriedCommand, RunError> {
        let start_error = |source| RunError::Start { source };
        let spawn = Spawn {
            confinement: Confinement { network: NetworkAccess::Denied, ..spawn.confinement },
            spill: folder.join(LAYERS).join("output.txt"),
            ..spawn
        };
        let mut trial = Trial::begin(folder, &spawn).map_err(start_error)?;
        let besides = Exemptions::default();
        let options = RunOptions { besides, late, trial: Some(&mut trial), ..Default::default() };
        let outcome = self.run_with(spawn, options, watch).await?;
        let read = threads::run(move || {
            let changes = changes::read(&trial.layers, trial.begun);
            (trial, changes)
        });
        let (trial, changes) = read.await.map_err(|_| unreadable("reading them failed"))?;
        let changes = changes.map_err(|error| unreadable(&error.to_string()))?;
        Ok(TriedCommand { outcome, changes, trial: Arc::new(trial) })
    }
}

impl TriedCommand {
    /// Reads the content of the file of `change`, which is one of the changes of this trial, before
    /// and after the command: up to `bytes_max` bytes each. Blocks.
    pub fn contents(&self, change: &TrialChange, bytes_max: u64) -> [TrialContent; 2] {
        let layer = &self.trial.layers[change.layer];
        let states = [(&layer.root, change.before), (&layer.upper, change.after)];
        states.map(|(root, state)| match Root::open(root) {
            Ok(root) => changes::content(&root, &change.path, state.as_ref(), bytes_max),
            Err(_) => TrialContent::Unknown,
        })
    }
}

fn unreadable(why: &str) -> RunError {
    RunError::NotPrepared { reason: format!("the changes of the trial cannot be read: {why}") }
}

impl Trial {
    fn begin(folder: &Path, spawn: &Spawn) -> io::Result<Trial> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Mounts do not follow links.
        let place = fs::canonicalize(folder)?;
        let folder = place.join(LAYERS);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let mut trial = Trial {
            temporary: place.join(TEMPORARY),
            _lock: lock(&folder),
            folder,
            layers: Vec::new(),
            begun: (0, 0),
            confinement: spawn.confinement.clone(),
            scratch: spawn.scratch.clone(),
        };
        trial.begun = changed(&File::create_new(trial.folder.join(MARKER))?)?;
        Ok(trial)
    }

    /// Temporary folder of the command, which no other command sees. It is `of_session`, that of the
    /// session, if that is its place.
    pub(crate) fn temporary(
        &self,
        of_session: &Arc<SessionTemporary>,
    ) -> io::Result<Arc<SessionTemporary>> {
        let is_same = of_session.folder() == self.temporary;
        if is_same { Ok(Arc::clone(of_session)) } else { SessionTemporary::of(&self.temporary) }
    }

    /// Notes the time at which the command begins. Waits a few milliseconds if files that were
    /// written before the trial could have the same time.
    pub(crate) async fn mark_begin(&mut self) -> io::Result<()> {
        let marker = File::open(self.folder.join(MARKER))?;
        let created = self.begun;
        for _ in 0..TICK_MS_MAX {
            marker.set_permissions(Permissions::from_mode(0o600))?;
            self.begun = changed(&marker)?;
            if self.begun > created {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Replaces the writable roots of `plan` by overlays, whose layers are created. Fails if a root
    /// cannot have one.
    pub(crate) fn cover(&mut self, plan: &mut Plan) -> Result<(), RunError> {
        let failed = |reason: String| RunError::NotPrepared { reason };
        if plan.backend != Backend::Namespaces {
            let by = plan.backend.as_str();
            let reason = format!("a trial needs the namespaces of posse, and the sandbox is {by}");
            return Err(failed(reason));
        }
        let mut roots = std::mem::take(&mut plan.writable);
        roots.sort();
        // Sorted, so a folder precedes those in it.
        roots.dedup_by(|inner, outer| inner.starts_with(outer));
        for (number, root) in roots.iter().enumerate() {
            if let Some(reason) = obstacle(root, &self.folder) {
                return Err(failed(reason));
            }
            let layer = self.layer(number, root).map_err(|source| RunError::Start { source })?;
            plan.overlays.push(layer);
        }
        plan.writable = roots;
        plan.network = false;
        plan.hidden.push(self.folder.clone());
        Ok(())
    }

    fn layer(&mut self, number: usize, root: &Path) -> io::Result<Overlay> {
        let place = self.folder.join(number.to_string());
        let (upper, work) = (place.join("upper"), place.join("work"));
        let found = fs::symlink_metadata(root)?;
        for folder in [&place, &upper, &work] {
            DirBuilder::new().mode(0o700).create(folder)?;
        }
        // The command sees the permissions of the upper layer on its root.
        fs::set_permissions(&upper, Permissions::from_mode(found.mode() & 0o777))?;
        // The temporary folder of the command is thrown away in any case.
        if *root != self.temporary {
            let identity = Identity { device: found.dev(), inode: found.ino() };
            let (root, upper) = (root.to_owned(), upper.clone());
            self.layers.push(TrialLayer { root, identity, upper });
        }
        Ok(Overlay { root: root.to_owned(), upper, work })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.folder) {
            tracing::debug!(%error, "a trial stays until the next one");
        }
        // Not empty if it contains the temporary folder of the command.
        self.folder.parent().map(fs::remove_dir);
    }
}

/// Time of the last change of `file`: seconds and nanoseconds.
fn changed(file: &File) -> io::Result<(i64, i64)> {
    let found = file.metadata()?;
    Ok((found.ctime(), found.ctime_nsec()))
}

fn lock(folder: &Path) -> Option<Flock<File>> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(folder).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

/// Removes the folders of trials whose processes were killed. `folder` contains the folders of
/// trials, each with the temporary folder `tmp` of its command.
pub fn remove_abandoned_trials(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        remove_abandoned_trial(&entry.path());
    }
}

/// Removes the folder `place` of one trial, unless a process uses it. Does nothing if there is none.
pub fn remove_abandoned_trial(place: &Path) {
    let layers = place.join(LAYERS);
    let lock = lock(&layers);
    if lock.is_none() && layers.symlink_metadata().is_ok() {
        return;
    }
    if let Err(error) = remove_tree(&layers) {
        tracing::debug!(%error, "an old trial stays");
    }
    // Files in a quarantine stay.
    for name in [TEMPORARY, temporary::REMOVED] {
        remove_tree(&place.join(name)).ok();
    }
    fs::remove_dir(place).ok();
}

/// Path of `name` in an open folder, for system calls that take paths. Only a link at `name` itself
/// can be followed.
fn path_in(folder: &OwnedFd, name: &Path) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name)
}

/// Returns the working directory of the check after a trial is kept.
fn root_directory(layers: &[TrialLayer]) -> Result<Directory, RunError> {
    let root = layers.first().ok_or(RunError::NoDirectory)?;
    Ok(Directory::Path(root.root.clone()))
}

#[cfg(test)]
mod tests;
