//! Landlock rules: files, connections and signals available to a command and its children.
//!
//! The requirements of the policy are compared with the kernel's answer: on a kernel that supports
//! less the command does not run.
//!
//! Rules only grant, so a hidden path is spared by rules for everything beside it. That is most of
//! the work, and mostly equal for the next command: a spare helper prepares the rules of the last
//! plan, which are used if they would be the same again.

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
use nix::sys::signal::kill;
use nix::unistd::getppid;
use posse_actors::event::SandboxTier;

use crate::plan::Plan;

use rule_sources::{FolderEntry, RuleSources};

/// Minimum ABI version for the policy: it controls truncation and links.
const NEEDED: ABI = ABI::V3;

/// Newest ABI whose features are used.
const KNOWN: ABI = ABI::V6;

/// Maximum number of entries beside a hidden path that are opened one by one.
const SIBLINGS_MAX: usize = 4000;

/// Devices that every program may use.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Rules in force, as reported by the kernel.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Landlock ABI version in use.
    pub(crate) version: i64,
    /// True if everything requested is in force, including optional parts.
    pub(crate) is_whole: bool,
    /// True if TCP connections are denied.
    pub(crate) tcp: bool,
    /// Number of paths that could not be hidden.
    pub(crate) exposed: usize,
}

/// Prepared rules, not in force yet.
#[derive(Debug)]
pub(crate) struct Made {
    ruleset: RulesetCreated,
    tcp: bool,
    exposed: usize,
    subject: RuleSubject,
    /// Files that the rules were made from. `None` for rules made on demand.
    seen: Option<RuleSources>,
}

/// Part of a plan that its rules depend on.
#[derive(Debug, PartialEq, Eq)]
struct RuleSubject {
    tier: SandboxTier,
    network: bool,
    writable: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    masked: Vec<PathBuf>,
    /// Hidden paths that the rules can spare.
    spared: BTreeSet<PathBuf>,
    /// Number of hidden paths that cannot be spared, because the folder around them is writable and
    /// hence readable.
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

/// Makes the rules of `plan` in advance and stores their sources.
pub(crate) fn prepare(plan: &Plan) -> Result<Made, String> {
    make(RuleSubject::of(plan), Some(RuleSources::begin(SIBLINGS_MAX)), Path::new("/"))
}

/// Makes the rules of `plan` on demand.
pub(crate) fn build(plan: &Plan) -> Result<Made, String> {
    make(RuleSubject::of(plan), None, Path::new("/"))
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("Landlock is not in force: {error}")
}

/// Makes rules for everything below `top`.
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
    /// True if these are the rules that would be made for `plan` now. Always false for rules that
    /// were not made in advance.
    pub(crate) fn is_valid_for(&self, plan: &Plan) -> bool {
        self.subject == RuleSubject::of(plan)
            && self.seen.as_ref().is_some_and(RuleSources::is_unchanged)
    }

    /// Restricts this process permanently.
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

/// Creates a domain that signals cannot leave, for this process and its children. Returns false if
/// the kernel does not support it.
///
/// A signal to all processes from inside then reaches exactly this domain.
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
    /// Sources of the rules, if they are made in advance.
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
            self.add(path, read)?;
        }
        Ok(exposed)
    }

    /// Makes everything below `folder` readable, except for spared paths.
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
            self.add(root, all)?;
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

    /// Adds a rule. A path that has vanished or cannot be opened needs none.
    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let opened = rule_sources::open(path);
        if let Some(opened) = &opened {
            let is_folder = opened.metadata()?.is_dir();
            self.add_opened(opened, access, is_folder)?;
        }
        if let Some(seen) = &mut self.seen {
            seen.add_path(path, opened);
        }
        Ok(())
    }

    /// Adds a rule for a path of known type. The kernel rejects a rule that does not match the
    /// current type.
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

#[cfg(test)]
mod tests;
