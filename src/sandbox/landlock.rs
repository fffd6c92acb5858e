//! Landlock rules: files, connections and signals available to a command and its children.
//!
//! A command runs only if the kernel reports that it enforces all required access rights.
//!
//! Landlock rules can only grant access. To hide a path, the rules grant access to everything
//! beside it instead of the whole tree. Making these rules is slow, and most of them are equal for
//! the next command: a spare helper prepares the rules of the last plan, which are used if making
//! them again would give the same rules.

mod rule_sources;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::getppid;
use posse_actors::event::SandboxTier;
use posse_base::resolved_path;

use crate::plan::Plan;

use rule_sources::{FolderEntry, RuleSources};

/// Oldest Landlock ABI version that is accepted: it controls truncation, and linking and renaming
/// between folders.
const NEEDED: ABI = ABI::V3;

/// Newest Landlock ABI version whose features are used.
const KNOWN: ABI = ABI::V6;

/// Maximum number of entries of a folder that get rules one by one. A larger folder becomes
/// readable as a whole, with the hidden paths in it.
const SIBLINGS_MAX: usize = 4000;

/// Devices that every command may read and write.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Rules in force, as reported by the kernel.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Landlock ABI version in use.
    pub(crate) version: i64,
    /// True if the kernel enforces all requested rights, including optional ones; false if some
    /// optional rights are missing.
    pub(crate) is_whole: bool,
    /// True if Landlock denies TCP connections. False if the network is permitted, a network
    /// namespace isolates the command, or the kernel lacks the feature.
    pub(crate) tcp: bool,
    /// Number of hidden paths of the plan that stay readable.
    pub(crate) exposed: usize,
}

/// Prepared rules, not in force yet.
#[derive(Debug)]
pub(crate) struct Made {
    ruleset: RulesetCreated,
    tcp: bool,
    exposed: usize,
    subject: RuleSubject,
    /// Files and folders that the rules were made from. `None` for rules made on demand.
    seen: Option<RuleSources>,
}

/// Part of a plan on which the Landlock rules depend: tier, network access, and the writable,
/// visible, masked and hidden paths.
#[derive(Debug, PartialEq, Eq)]
struct RuleSubject {
    tier: SandboxTier,
    network: bool,
    writable: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    masked: Vec<PathBuf>,
    /// Hidden paths outside the writable roots, which get no access. Empty on the full tier, where
    /// mounts hide them.
    spared: BTreeSet<PathBuf>,
    /// Number of hidden paths that stay readable, because a writable root contains them. 0 on the
    /// full tier.
    inside: usize,
}

impl RuleSubject {
    fn of(plan: &Plan) -> RuleSubject {
        let is_full = plan.tier == SandboxTier::Full;
        let within = |path: &Path| plan.writable.iter().any(|root| path.starts_with(root));
        let outside = plan.hidden.iter().filter(|path| !is_full && !within(path));
        let spared: BTreeSet<PathBuf> = outside.cloned().collect();
        RuleSubject {
            tier: plan.tier.clone(),
            network: plan.network,
            writable: plan.writable.clone(),
            visible: if is_full { Vec::new() } else { plan.visible.clone() },
            masked: if is_full { plan.masked.clone() } else { Vec::new() },
            inside: plan.hidden.iter().filter(|path| !is_full && within(path)).count(),
            spared,
        }
    }
}

/// Makes the rules of `plan` in advance, and records the files they are made from.
pub(crate) fn prepare(plan: &Plan) -> Result<Made, String> {
    make(RuleSubject::of(plan), Some(RuleSources::begin(SIBLINGS_MAX)), Path::new("/"))
}

/// Makes the rules of `plan` for immediate use, without recording files.
pub(crate) fn build(plan: &Plan) -> Result<Made, String> {
    make(RuleSubject::of(plan), None, Path::new("/"))
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("Landlock is not in force: {error}")
}

/// Makes the rules of `subject`. Read access is granted below `top`, the root except in tests, and
/// to visible and writable paths.
fn make(subject: RuleSubject, seen: Option<RuleSources>, top: &Path) -> Result<Made, String> {
    // The loopback of an own network namespace is private.
    let tcp = !subject.network && subject.tier == SandboxTier::Reduced;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .map_err(failed)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .map_err(failed)?;
    if tcp {
        ruleset =
            ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp).map_err(failed)?;
    }
    let mut rules = Rules { ruleset: ruleset.create().map_err(failed)?, seen };
    let exposed = rules.readable(&subject, top).map_err(failed)?;
    rules.writable(&subject).map_err(failed)?;
    let Rules { ruleset, seen } = rules;
    Ok(Made { ruleset, tcp, exposed, subject, seen })
}

impl Made {
    /// True if making rules for `plan` now would give these rules. Always false for rules that were
    /// not made in advance.
    pub(crate) fn is_valid_for(&self, plan: &Plan) -> bool {
        self.subject == RuleSubject::of(plan)
            && self.seen.as_ref().is_some_and(RuleSources::is_unchanged)
    }

    /// Puts the rules in force for this process and its children, permanently. Fails if the kernel
    /// supports less than [`NEEDED`].
    pub(crate) fn enforce(self) -> Result<InForce, String> {
        let Made { ruleset, tcp, exposed, .. } = self;
        let status = ruleset.restrict_self().map_err(failed)?;
        let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
            return Err(failed("the kernel has none"));
        };
        if status.ruleset == RulesetStatus::NotEnforced || effective_abi < NEEDED {
            return Err(failed("the kernel does less than is needed"));
        }
        Ok(InForce {
            version: i64::from(effective_abi as i32),
            is_whole: status.ruleset == RulesetStatus::FullyEnforced,
            tcp: tcp && effective_abi >= ABI::V4,
            exposed,
        })
    }
}

/// Moves this process and its future children into a domain that signals cannot leave. Returns
/// false if the kernel does not support it, or a trial signal to the parent process is not denied.
///
/// A signal that a process in the domain sends to all processes then reaches exactly the domain.
pub(crate) fn scope_signals() -> bool {
    let Ok(root) = PathFd::new("/") else { return false };
    // Every domain denies linking and renaming between folders unless it grants them.
    let enclosed = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(|ruleset| ruleset.handle_access(AccessFs::Refer))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer)))
        .and_then(RulesetCreated::restrict_self);
    // Verified by effect: the parent process is outside the scope.
    enclosed.is_ok() && kill(getppid(), None) == Err(Errno::EPERM)
}

struct Rules {
    ruleset: RulesetCreated,
    /// Record of examined files. `None` if the rules are made on demand.
    seen: Option<RuleSources>,
}

impl Rules {
    fn readable(&mut self, subject: &RuleSubject, top: &Path) -> io::Result<usize> {
        let read = AccessFs::from_read(KNOWN);
        if subject.tier == SandboxTier::Full {
            // Unreadable paths get no rule.
            self.add(top, read)?;
            return Ok(0);
        }
        let mut spared: BTreeSet<&Path> = BTreeSet::from([Path::new("/dev")]);
        spared.extend(subject.spared.iter().map(PathBuf::as_path));
        let mut exposed = subject.inside;
        self.allow_reading_around(top, &spared, &mut exposed)?;
        for path in subject.visible.iter().chain(&subject.writable) {
            self.add_resolved(path, read)?;
        }
        Ok(exposed)
    }

    /// Makes everything below `folder` readable, except for `spared` paths and symbolic links. The
    /// entries of a folder that cannot be listed get no rules. Adds to `exposed` the number of
    /// spared paths that become readable nevertheless.
    fn allow_reading_around(
        &mut self,
        folder: &Path,
        spared: &BTreeSet<&Path>,
        exposed: &mut usize,
    ) -> io::Result<()> {
        if let Some(seen) = &mut self.seen {
            seen.folder(folder);
        }
        // The names in the parent folders are not secret.
        self.add_known(folder, AccessFs::ReadDir.into(), true)?;
        let entries = rule_sources::list(folder, SIBLINGS_MAX)?;
        if let Some(seen) = &mut self.seen {
            seen.add_listing(entries.as_deref());
        }
        // A folder that cannot be listed reveals nothing.
        let Some(entries) = entries else { return Ok(()) };
        if entries.len() > SIBLINGS_MAX {
            *exposed += spared.iter().filter(|path| path.starts_with(folder)).count();
            return self.add_known(folder, AccessFs::from_read(KNOWN), true);
        }
        for FolderEntry { name, is_folder, is_link, .. } in entries {
            let path = folder.join(name);
            if is_link || spared.contains(&*path) {
                continue;
            }
            let mut below = spared.range::<Path, _>((Bound::Excluded(&*path), Bound::Unbounded));
            if below.next().is_some_and(|spared| spared.starts_with(&path)) {
                self.allow_reading_around(&path, spared, exposed)?;
            } else {
                self.add_known(&path, AccessFs::from_read(KNOWN), is_folder)?;
            }
        }
        Ok(())
    }

    fn writable(&mut self, subject: &RuleSubject) -> io::Result<()> {
        let all = AccessFs::from_all(KNOWN);
        for root in &subject.writable {
            self.add_resolved(root, all)?;
        }
        for device in DEVICES {
            self.add(Path::new(device), all)?;
        }
        if subject.tier == SandboxTier::Full {
            // Private folders and terminals.
            let own = ["/dev/shm", "/dev/pts", "/dev/ptmx"].map(PathBuf::from);
            for path in subject.masked.iter().chain(&own) {
                self.add(path, all)?;
            }
        }
        Ok(())
    }

    /// Adds a rule that grants `access` to `path` and everything below it. Adds none if the path
    /// cannot be opened.
    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        self.add_found(path, rule_sources::open(path), access)
    }

    /// Adds a rule as [`add`](Rules::add) does, for a resolved path. Fails if a link is anywhere on the
    /// way: another command may have put one there since the path was resolved.
    fn add_resolved(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let opened = match resolved_path::open(path, OFlag::O_PATH) {
            Ok(opened) => Some(File::from(opened)),
            Err(error) if is_link(&error) => {
                let why = format!("a link leads from {} to another folder", path.display());
                return Err(io::Error::other(why));
            }
            Err(_) => None,
        };
        self.add_found(path, opened, access)
    }

    fn add_found(
        &mut self,
        path: &Path,
        opened: Option<File>,
        access: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        if let Some(opened) = &opened {
            let is_folder = opened.metadata()?.is_dir();
            self.add_opened(opened, access, is_folder)?;
        }
        if let Some(seen) = &mut self.seen {
            seen.add_path(path, opened);
        }
        Ok(())
    }

    /// Adds a rule as [`add`](Rules::add) does, for a path whose type is known from a listing. Does
    /// not record the path. If the path has another type by now, the kernel rejects the rule, which
    /// is an error.
    fn add_known(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        is_folder: bool,
    ) -> io::Result<()> {
        match rule_sources::open(path) {
            Some(opened) => self.add_opened(&opened, access, is_folder),
            None => Ok(()),
        }
    }

    fn add_opened(
        &mut self,
        opened: &File,
        access: BitFlags<AccessFs>,
        is_folder: bool,
    ) -> io::Result<()> {
        let access = if is_folder { access } else { access & AccessFs::from_file(KNOWN) };
        if access.is_empty() {
            return Ok(());
        }
        let rule = PathBeneath::new(opened, access).set_compatibility(CompatLevel::BestEffort);
        (&mut self.ruleset).add_rule(rule).map_err(io::Error::other)?;
        Ok(())
    }
}

/// True for the error of [`resolved_path::open`] about a link; without `openat2`, it has no number.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error().is_none_or(|number| number == libc::ELOOP)
}

#[cfg(test)]
mod tests;
