//! Keeps a trial: applies its changes to the workspace, one after another.
//!
//! Everything is found by descriptors below the root, without following a link. A change is refused
//! if the workspace or the upper layer is not as it was when the changes were read, if the file is
//! protected or hidden, or if it is neither a file, a folder nor a link. Around it, protected files
//! are guarded as around a command. The check afterwards finds control files that their names do not
//! show.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use posse_base::threads;

use crate::guard::Exemptions;
use crate::kernel;
use crate::protect::Finding;
use crate::protect::place::{self, FILE, Root, Stat, WritableFolder, mode_of};
use crate::run::CommandPlace;
use crate::trial::changes::{ChangeKind, FileKind, FileState, MARKS, TrialChange};
use crate::trial::control_files::is_control_file;
use crate::trial::{Trial, TriedCommand, path_in, root_directory};
use crate::{RunError, Sandbox};

/// Maximum size in bytes of a file that is copied, because the upper layer is on another file system
/// or the file has several names. A file with holes may be much smaller on disk.
const COPIED_BYTES_MAX: u64 = 1 << 30;

/// Result of keeping a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptTrial {
    /// Number of changes that are in the workspace now.
    pub kept: usize,
    /// Changes that are not, with the reasons.
    pub refused: Vec<RefusedChange>,
    /// Changes of protected files that the check afterwards found, and the reaction to each.
    pub findings: Vec<Finding>,
}

/// Change of a trial that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Reason.
    pub reason: RefusalReason,
}

/// Reason for not keeping a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// Git, an editor, an agent or another program acts on the file without being told to.
    #[error("it is protected")]
    Protected,
    /// The file in the workspace is not as it was when the changes were read.
    #[error("the file in the workspace was changed since")]
    ChangedSince,
    /// The file is a pipe, a socket or a device.
    #[error("it is no file, folder or link")]
    Special,
    /// The deleted folder contains files in the workspace that the trial did not delete.
    #[error("the folder is not empty")]
    NotEmpty,
    /// The file is too large to be copied from the file system of the trial.
    #[error("it is too large to be copied")]
    TooLarge,
    /// Error of the operating system.
    #[error("{0}")]
    Failed(String),
}

impl From<Errno> for RefusalReason {
    fn from(errno: Errno) -> RefusalReason {
        match errno {
            Errno::ENOTEMPTY => RefusalReason::NotEmpty,
            Errno::EEXIST => RefusalReason::ChangedSince,
            errno => RefusalReason::Failed(errno.desc().to_owned()),
        }
    }
}

impl From<io::Error> for RefusalReason {
    fn from(error: io::Error) -> RefusalReason {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).into(),
            None => RefusalReason::Failed(error.to_string()),
        }
    }
}

impl Sandbox {
    /// Applies the changes of a trial to the workspace. Fails, without a change, if the changes are
    /// not complete or protected files cannot be surveyed. What was not kept stays in the trial; a
    /// second call finds that the files are not as they were shown.
    pub async fn keep_trial(&self, tried: &TriedCommand) -> Result<KeptTrial, RunError> {
        let TriedCommand { changes, trial, .. } = tried;
        if !changes.is_complete {
            return Err(failed("the trial has more changes than are read"));
        }
        if changes.changes.is_empty() {
            return Ok(KeptTrial { kept: 0, refused: Vec::new(), findings: Vec::new() });
        }
        let start_error = |source| RunError::Start { source };
        let projects = self.surroundings.projects.as_ref();
        let temporary = self.temporary.of(&trial.scratch, projects).map_err(start_error)?;
        let directory = crate::run::opened(&root_directory(&trial.layers)?)?;
        let mut plan = self.plan(&trial.confinement, directory.as_fd(), temporary.folder())?;
        let place = CommandPlace {
            temporary: &temporary,
            space: None,
            directory: &directory,
            scratch: &trial.scratch,
        };
        let guard = self.guard(&mut plan, place, Exemptions::default()).await?;
        let replaced = plan.replaced.into_iter().map(|file| file.target);
        let fixed: Vec<PathBuf> =
            plan.read_only.into_iter().chain(plan.hidden).chain(replaced).collect();
        let (trial, changes) = (Arc::clone(trial), changes.changes.clone());
        let applied = threads::run(move || {
            Applier::new(&trial, &fixed).map(|applier| applier.apply(&changes))
        });
        let applied = applied.await;
        let findings = match guard {
            Some(guard) => guard.check_effects().await,
            None => Vec::new(),
        };
        let applied = applied.map_err(|_| failed("keeping it crashed"))?;
        let (kept, refused) = applied.map_err(|errno| failed(errno.desc()))?;
        Ok(KeptTrial { kept, refused, findings })
    }
}

fn failed(why: &str) -> RunError {
    RunError::NotPrepared { reason: why.to_owned() }
}

/// Applies the changes of one trial.
pub(super) struct Applier<'a> {
    /// Root and upper layer of each layer.
    layers: Vec<(Root, Root)>,
    /// Absolute paths that commands cannot change.
    fixed: &'a [PathBuf],
    /// Permissions of folders, which are set when their entries are applied.
    folder_modes: Vec<(&'a TrialChange, u32)>,
}

impl<'a> Applier<'a> {
    /// Fails if a root was replaced.
    pub(super) fn new(trial: &Trial, fixed: &'a [PathBuf]) -> Result<Applier<'a>, Errno> {
        let open = |layer: &crate::trial::TrialLayer| {
            let lower = Root::open(&layer.root)?;
            let is_same = Stat::at(&lower.folder, Path::new(""))?.identity == layer.identity;
            if is_same { Ok((lower, Root::open(&layer.upper)?)) } else { Err(Errno::ESTALE) }
        };
        let layers = trial.layers.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Applier { layers, fixed, folder_modes: Vec::new() })
    }

    /// Returns the number of applied changes, and the others.
    pub(super) fn apply(mut self, changes: &'a [TrialChange]) -> (usize, Vec<RefusedChange>) {
        let mut refused = Vec::new();
        let refuse = |change: &TrialChange, reason| RefusedChange {
            path: change.absolute(),
            kind: change.kind,
            reason,
        };
        let mut kept = 0;
        for change in changes {
            match self.apply_one(change) {
                Ok(()) => kept += 1,
                Err(reason) => refused.push(refuse(change, reason)),
            }
        }
        // The innermost first: a folder may deny access to those in it.
        for (change, mode) in std::mem::take(&mut self.folder_modes).into_iter().rev() {
            if let Err(reason) = self.set_mode(change, mode) {
                kept -= 1;
                refused.push(refuse(change, reason));
            }
        }
        (kept, refused)
    }

    fn apply_one(&mut self, change: &'a TrialChange) -> Result<(), RefusalReason> {
        let kind = change.after.or(change.before).map_or(FileKind::Special, |state| state.kind);
        if change.after.is_some_and(|after| after.kind == FileKind::Special) {
            return Err(RefusalReason::Special);
        }
        let path = change.absolute();
        // A worktree is a root below the folders of posse, which are hidden around it.
        let is_around = |fixed: &PathBuf| change.root != *fixed && change.root.starts_with(fixed);
        if is_control_file(&change.root, &change.path, kind)
            || self.fixed.iter().any(|fixed| path.starts_with(fixed) && !is_around(fixed))
        {
            return Err(RefusalReason::Protected);
        }
        if change.is_stale {
            return Err(RefusalReason::ChangedSince);
        }
        let (lower, upper) = &self.layers[change.layer];
        let (folder, name) = lower.open_parent(&change.path)?;
        if !is_as_shown(change.before.as_ref(), Stat::at(&folder, name)) {
            return Err(RefusalReason::ChangedSince);
        }
        let Some(after) = &change.after else {
            let flags = match kind {
                FileKind::Folder => UnlinkatFlags::RemoveDir,
                _ => UnlinkatFlags::NoRemoveDir,
            };
            let _writable = WritableFolder::new(&folder);
            return Ok(unlinkat(&folder, name, flags)?);
        };
        if change.kind == ChangeKind::Mode {
            return self.apply_mode(change, after);
        }
        if after.kind == FileKind::Folder {
            let _writable = WritableFolder::new(&folder);
            mkdirat(&folder, name, Mode::S_IRWXU)?;
            self.folder_modes.push((change, after.mode));
            return Ok(());
        }
        let (from, _) = upper.open_parent(&change.path)?;
        if !is_as_shown(Some(after), Stat::at(&from, name)) {
            return Err(RefusalReason::ChangedSince);
        }
        let replaces = change.before.is_some();
        if after.stat.links > 1 {
            return copy((&from, &folder, name), after, replaces);
        }
        clean_file(&from, name, after)?;
        let _writable = (WritableFolder::new(&from), WritableFolder::new(&folder));
        match move_into((&from, name), (&folder, name), replaces) {
            Err(Errno::EXDEV) => copy((&from, &folder, name), after, replaces),
            moved => Ok(moved?),
        }
    }

    /// Sets the permissions of a file. Those of a folder are set when its entries are applied; before
    /// that, it only gets the rights of its owner that it will have.
    fn apply_mode(
        &mut self,
        change: &'a TrialChange,
        after: &FileState,
    ) -> Result<(), RefusalReason> {
        if after.kind != FileKind::Folder {
            return self.set_mode(change, after.mode);
        }
        let before = change.before.map_or(0, |before| before.mode);
        let widened = before | (after.mode & 0o700);
        if widened != before {
            self.set_mode(change, widened)?;
        }
        self.folder_modes.push((change, after.mode));
        Ok(())
    }

    fn set_mode(&self, change: &TrialChange, mode: u32) -> Result<(), RefusalReason> {
        let (lower, _) = &self.layers[change.layer];
        let (folder, name) = lower.open_parent(&change.path)?;
        let before = change.before.filter(|before| before.kind == FileKind::Folder);
        if before.is_some() && !is_as_shown(before.as_ref(), Stat::at(&folder, name)) {
            return Err(RefusalReason::ChangedSince);
        }
        Ok(fchmodat(&folder, name, mode_of(mode), FchmodatFlags::NoFollowSymlink)?)
    }
}

impl TrialChange {
    /// Absolute path of the file in the workspace.
    pub fn absolute(&self) -> PathBuf {
        self.root.join(&self.path)
    }
}

/// True if a file is as it was when the changes were read. Folders change with their entries, and
/// the time of the last change of a file with several names with each of them.
fn is_as_shown(shown: Option<&FileState>, now: Result<Stat, Errno>) -> bool {
    match (shown, now) {
        (None, Err(Errno::ENOENT)) => true,
        (Some(shown), Ok(now)) if shown.kind == FileKind::Folder => {
            shown.stat.identity == now.identity && shown.stat.kind == now.kind
        }
        (Some(shown), Ok(now)) => {
            let Stat { identity, kind, mode, size, links, changed, modified } = shown.stat;
            let is_dated = modified == now.modified && (links > 1 || changed == now.changed);
            is_dated && (identity, kind, mode, size) == (now.identity, now.kind, now.mode, now.size)
        }
        _ => false,
    }
}

/// Removes the marks of the overlay and the special permission bits from a file of the upper layer.
fn clean_file(from: &OwnedFd, name: &Path, after: &FileState) -> io::Result<()> {
    if after.kind != FileKind::File {
        return Ok(());
    }
    let path = path_in(from, name);
    for mark in kernel::attributes(&path, MARKS)? {
        kernel::remove_attribute(&path, &mark)?;
    }
    if after.stat.mode != after.mode {
        fchmodat(from, name, mode_of(after.mode), FchmodatFlags::NoFollowSymlink)?;
    }
    Ok(())
}

/// Renames a file of the trial to its name in the workspace. A file that it replaces takes its
/// place instead of being removed: ext4 writes a new file to the disk before it replaces another.
fn move_into(
    (from, name): (&OwnedFd, &Path),
    (to, new): (&OwnedFd, &Path),
    replaces: bool,
) -> Result<(), Errno> {
    let rename = |flags| renameat2(from, name, to, new, flags);
    if !replaces {
        return rename(RenameFlags::RENAME_NOREPLACE);
    }
    match rename(RenameFlags::RENAME_EXCHANGE) {
        // Some file systems cannot do it.
        Err(Errno::EINVAL) => rename(RenameFlags::empty()),
        renamed => renamed,
    }
}

/// Copies a file or link of the upper layer to the workspace, under a temporary name first.
fn copy(
    (from, to, name): (&OwnedFd, &OwnedFd, &Path),
    after: &FileState,
    replaces: bool,
) -> Result<(), RefusalReason> {
    let _writable = WritableFolder::new(to);
    let temporary = place::temporary_name();
    let made = if after.kind == FileKind::Link {
        let target = place::link_target(from, name)?;
        symlinkat(&*target, to, temporary.as_path()).map_err(RefusalReason::from)
    } else {
        copy_content(from, name, (to, &temporary), after)
    };
    let placed = made.and_then(|()| Ok(move_into((to, &temporary), (to, name), replaces)?));
    // The new file after an error, or the old one.
    unlinkat(to, temporary.as_path(), UnlinkatFlags::NoRemoveDir).ok();
    placed
}

fn copy_content(
    from: &OwnedFd,
    name: &Path,
    (to, temporary): (&OwnedFd, &Path),
    after: &FileState,
) -> Result<(), RefusalReason> {
    if after.size > COPIED_BYTES_MAX {
        return Err(RefusalReason::TooLarge);
    }
    if after.stat.mode & 0o400 == 0 {
        fchmodat(from, name, mode_of(after.mode | 0o400), FchmodatFlags::NoFollowSymlink)?;
    }
    let mut source = File::from(openat(from, name, FILE, Mode::empty())?);
    let found = source.metadata()?;
    if !found.is_file() {
        return Err(RefusalReason::Special);
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let only_us = Mode::S_IRUSR | Mode::S_IWUSR;
    let made = File::from(openat(to, temporary, flags | OFlag::O_CLOEXEC, only_us)?);
    io::copy(&mut io::Read::take(&mut source, COPIED_BYTES_MAX), &mut &made)?;
    nix::sys::stat::fchmod(&made, mode_of(after.mode))?;
    made.set_modified(found.modified()?)?;
    Ok(())
}
