//! Landlock rules: files that a command and its children may open, ports they may connect to and
//! processes they may signal.
//!
//! What the policy needs is required and compared with the kernel's answer: a kernel that supports
//! less does not run the command.
//!
//! Landlock rules only add rights, so hiding a path needs a rule for each of its siblings. This is
//! most of the work, and mostly the same for the next command: a waiting helper makes the rules of
//! the last plan in advance. They are used if making them again would give the same rules.

mod seen;

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

use crate::sandbox::plan::{Plan, Tier};

use seen::{Entry, Seen};

/// Oldest ABI that supports the policy: control of truncation and links.
const NEEDED: ABI = ABI::V3;

/// Newest ABI whose features are used.
const KNOWN: ABI = ABI::V6;

/// Maximum number of siblings of a hidden path that get rules of their own.
const SIBLINGS_MAX: usize = 4000;

/// Devices that every program may use.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Restrictions put in force by the kernel.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Landlock ABI version in use.
    pub(crate) version: i64,
    /// `true` if all requested restrictions are in force, including optional ones.
    pub(crate) is_whole: bool,
    /// `true` if TCP connections are refused.
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
    subject: Subject,
    /// Files that the rules were made from. `None` for rules made on demand.
    seen: Option<Seen>,
}

/// Parts of a plan that determine its rules.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    tier: Tier,
    network: bool,
    writable: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    masked: Vec<PathBuf>,
    /// Unreadable paths that are excluded from the rules.
    spared: BTreeSet<PathBuf>,
    /// Number of unreadable paths that cannot be excluded, because the folder around them is
    /// writable and thus readable.
    inside: usize,
}

impl Subject {
    fn of(plan: &Plan) -> Subject {
        let is_full = plan.tier == Tier::Full;
        let within = |path: &Path| plan.writable.iter().any(|root| path.starts_with(root));
        let outside = plan.hidden.iter().filter(|path| !is_full && !within(path));
        let spared: BTreeSet<PathBuf> = outside.cloned().collect();
        Subject {
            tier: plan.tier,
            network: plan.network,
            writable: plan.writable.clone(),
            visible: if is_full { Vec::new() } else { plan.visible.clone() },
            masked: if is_full { plan.masked.clone() } else { Vec::new() },
            inside: plan.hidden.iter().filter(|path| !is_full && within(path)).count(),
            spared,
        }
    }
}

/// Makes the rules of `plan` in advance, and records the files they were made from.
pub(crate) fn make_ahead(plan: &Plan) -> Result<Made, String> {
    make(Subject::of(plan), Some(Seen::begin(SIBLINGS_MAX)), Path::new("/"))
}

/// Makes the rules of `plan` on demand.
pub(crate) fn make_now(plan: &Plan) -> Result<Made, String> {
    make(Subject::of(plan), None, Path::new("/"))
}

fn failed(error: &dyn std::fmt::Display) -> String {
    format!("cannot enforce Landlock: {error}")
}

/// Makes rules for everything below `top`.
fn make(subject: Subject, seen: Option<Seen>, top: &Path) -> Result<Made, String> {
    // The loopback of a separate network namespace is reachable for the command only.
    let tcp = !subject.network && subject.tier == Tier::Reduced;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .map_err(|error| failed(&error))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .map_err(|error| failed(&error))?;
    if tcp {
        ruleset = ruleset
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)
            .map_err(|error| failed(&error))?;
    }
    let mut rules = Rules { ruleset: ruleset.create().map_err(|error| failed(&error))?, seen };
    let exposed = rules.readable(&subject, top).map_err(|error| failed(&error))?;
    rules.writable(&subject).map_err(|error| failed(&error))?;
    let Rules { ruleset, seen } = rules;
    Ok(Made { ruleset, tcp, exposed, subject, seen })
}

impl Made {
    /// Returns `true` if making rules for `plan` now would give these rules. Always `false` for
    /// rules made on demand.
    pub(crate) fn suit(&self, plan: &Plan) -> bool {
        self.subject == Subject::of(plan) && self.seen.as_ref().is_some_and(Seen::still_holds)
    }

    /// Restricts this process permanently.
    pub(crate) fn enforce(self) -> Result<InForce, String> {
        let Made { ruleset, tcp, exposed, .. } = self;
        let status = ruleset.restrict_self().map_err(|error| failed(&error))?;
        let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
            return Err(failed(&"the kernel does not support it"));
        };
        if status.ruleset == RulesetStatus::NotEnforced || effective_abi < NEEDED {
            return Err(failed(&"the kernel supports an ABI that is too old"));
        }
        Ok(InForce {
            version: i64::from(effective_abi as i32),
            is_whole: status.ruleset == RulesetStatus::FullyEnforced,
            tcp: tcp && effective_abi >= ABI::V4,
            exposed,
        })
    }
}

/// Creates a signal scope around this process and its children. Returns `false` if the kernel does
/// not support it or it has no effect.
///
/// All processes inside can then be signalled at once, without reaching others.
pub(crate) fn enclose() -> bool {
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
    /// Records the files read, if the rules are made in advance.
    seen: Option<Seen>,
}

impl Rules {
    fn readable(&mut self, subject: &Subject, top: &Path) -> io::Result<usize> {
        let read = AccessFs::from_read(KNOWN);
        if subject.tier == Tier::Full {
            // Unreadable paths get no rule.
            self.add(top, read)?;
            return Ok(0);
        }
        let mut spared: BTreeSet<&Path> = BTreeSet::from([Path::new("/dev")]);
        spared.extend(subject.spared.iter().map(PathBuf::as_path));
        let mut exposed = subject.inside;
        self.around(top, &spared, &mut exposed)?;
        for path in subject.visible.iter().chain(&subject.writable) {
            self.add(path, read)?;
        }
        Ok(exposed)
    }

    /// Makes everything below `folder` readable, except the excluded paths.
    fn around(
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
        let entries = seen::list(folder, SIBLINGS_MAX)?;
        if let Some(seen) = &mut self.seen {
            seen.listed(entries.as_deref());
        }
        // A folder that cannot be listed exposes no entries.
        let Some(entries) = entries else { return Ok(()) };
        if entries.len() > SIBLINGS_MAX {
            *exposed += spared.iter().filter(|path| path.starts_with(folder)).count();
            return self.add_known(folder, AccessFs::from_read(KNOWN), true);
        }
        for Entry { name, is_folder, is_link, .. } in entries {
            let path = folder.join(name);
            if is_link || spared.contains(&*path) {
                continue;
            }
            let mut below = spared.range::<Path, _>((Bound::Excluded(&*path), Bound::Unbounded));
            if below.next().is_some_and(|spared| spared.starts_with(&path)) {
                self.around(&path, spared, exposed)?;
            } else {
                self.add_known(&path, AccessFs::from_read(KNOWN), is_folder)?;
            }
        }
        Ok(())
    }

    fn writable(&mut self, subject: &Subject) -> io::Result<()> {
        let all = AccessFs::from_all(KNOWN);
        for root in &subject.writable {
            self.add(root, all)?;
        }
        for device in DEVICES {
            self.add(Path::new(device), all)?;
        }
        if subject.tier == Tier::Full {
            // Folders and terminals of the namespace.
            let own = ["/dev/shm", "/dev/pts", "/dev/ptmx"].map(PathBuf::from);
            for path in subject.masked.iter().chain(&own) {
                self.add(path, all)?;
            }
        }
        Ok(())
    }

    /// Adds a rule. A path that has vanished or cannot be opened needs none.
    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let opened = seen::open(path);
        if let Some(opened) = &opened {
            let is_folder = opened.metadata()?.is_dir();
            self.add_opened(opened, access, is_folder)?;
        }
        if let Some(seen) = &mut self.seen {
            seen.place(path, opened);
        }
        Ok(())
    }

    /// Adds a rule for a path that is known to be a folder or not. The kernel rejects a rule that
    /// does not fit the current file.
    fn add_known(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        is_folder: bool,
    ) -> io::Result<()> {
        match seen::open(path) {
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
