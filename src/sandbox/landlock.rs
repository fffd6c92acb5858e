//! Landlock: what a command and its children may open, connect to and signal.
//!
//! What the policy needs is required, and the kernel's answer is compared with it: a kernel that
//! can do less does not run the command.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::getppid;

use crate::sandbox::plan::{Plan, Tier};

/// The oldest version that can do what the policy needs: to control truncation and links.
const NEEDED: ABI = ABI::V3;

/// The newest version that is made use of where it is there.
const KNOWN: ABI = ABI::V6;

/// Entries of a folder beside a hidden one that are opened one by one.
const SIBLINGS_MAX: usize = 4000;

/// Devices that any program may use.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// What the kernel has put in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// The version that was used.
    pub(crate) version: i64,
    /// Whether everything that was asked for is in force, also what is not needed.
    pub(crate) is_whole: bool,
    /// Whether connections are refused.
    pub(crate) tcp: bool,
    /// Hidden paths that could not be hidden.
    pub(crate) exposed: usize,
}

/// Restricts this process for good.
pub(crate) fn restrict(plan: &Plan) -> Result<InForce, String> {
    let failed = |error: &dyn std::fmt::Display| format!("Landlock is not in force: {error}");
    // With a network of its own, its loopback is nobody else's.
    let tcp = !plan.network && plan.tier == Tier::Reduced;
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
    let mut rules = Rules(ruleset.create().map_err(|error| failed(&error))?);
    let exposed = rules.readable(plan).map_err(|error| failed(&error))?;
    rules.writable(plan).map_err(|error| failed(&error))?;
    let status = rules.0.restrict_self().map_err(|error| failed(&error))?;
    let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
        return Err(failed(&"the kernel has none"));
    };
    if status.ruleset == RulesetStatus::NotEnforced || effective_abi < NEEDED {
        return Err(failed(&"the kernel does less than is needed"));
    }
    Ok(InForce {
        version: i64::from(effective_abi as i32),
        is_whole: status.ruleset == RulesetStatus::FullyEnforced,
        tcp: tcp && effective_abi >= ABI::V4,
        exposed,
    })
}

/// Makes a circle that signals do not leave, around this process and its children. `false`: the
/// kernel cannot, or it did not work.
///
/// Whoever is inside can then be signalled all at once, and nobody else.
pub(crate) fn enclose() -> bool {
    let Ok(root) = PathFd::new("/") else { return false };
    // To link and to rename from folder to folder is denied by every circle that does not say
    // otherwise.
    let enclosed = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(|ruleset| ruleset.handle_access(AccessFs::Refer))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer)))
        .and_then(RulesetCreated::restrict_self);
    // What matters is what happens: the one that started us is outside.
    enclosed.is_ok() && kill(getppid(), None) == Err(Errno::EPERM)
}

struct Rules(RulesetCreated);

impl Rules {
    fn readable(&mut self, plan: &Plan) -> io::Result<usize> {
        let read = AccessFs::from_read(KNOWN);
        if plan.tier == Tier::Full {
            // What must not be read is not there.
            self.add(Path::new("/"), read)?;
            return Ok(0);
        }
        // Rules only add. What must not be read is spared by naming everything around it.
        let mut spared: BTreeSet<&Path> = BTreeSet::from([Path::new("/dev")]);
        let within = |path: &Path| plan.writable.iter().any(|root| path.starts_with(root));
        let (inside, outside): (Vec<&PathBuf>, Vec<&PathBuf>) =
            plan.hidden.iter().partition(|path| within(path));
        spared.extend(outside.iter().map(|path| path.as_path()));
        let mut exposed = inside.len();
        self.around(Path::new("/"), &spared, &mut exposed)?;
        for path in plan.visible.iter().chain(&plan.writable) {
            self.add(path, read)?;
        }
        Ok(exposed)
    }

    /// Makes everything below `folder` readable, except what is spared.
    fn around(
        &mut self,
        folder: &Path,
        spared: &BTreeSet<&Path>,
        exposed: &mut usize,
    ) -> io::Result<()> {
        // To list the folders on the way is no secret.
        self.add(folder, AccessFs::ReadDir.into())?;
        let names: Result<Vec<_>, _> = match std::fs::read_dir(folder) {
            Ok(entries) => entries.take(SIBLINGS_MAX + 1).collect(),
            // Who cannot list it cannot be shown what is in it.
            Err(_) => return Ok(()),
        };
        let names = names?;
        if names.len() > SIBLINGS_MAX {
            *exposed += spared.iter().filter(|path| path.starts_with(folder)).count();
            return self.add(folder, AccessFs::from_read(KNOWN));
        }
        for entry in names {
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_symlink() || spared.contains(&*path) {
                continue;
            }
            let mut below = spared.range::<Path, _>((Bound::Excluded(&*path), Bound::Unbounded));
            if below.next().is_some_and(|spared| spared.starts_with(&path)) {
                self.around(&path, spared, exposed)?;
            } else {
                self.add_known(&path, AccessFs::from_read(KNOWN), kind.is_dir())?;
            }
        }
        Ok(())
    }

    fn writable(&mut self, plan: &Plan) -> io::Result<()> {
        let all = AccessFs::from_all(KNOWN);
        for root in &plan.writable {
            self.add(root, all)?;
        }
        for device in DEVICES {
            self.add(Path::new(device), all)?;
        }
        if plan.tier == Tier::Full {
            // Folders and terminals of its own.
            let own = ["/dev/shm", "/dev/pts", "/dev/ptmx"].map(PathBuf::from);
            for path in plan.masked.iter().chain(&own) {
                self.add(path, all)?;
            }
        }
        Ok(())
    }

    /// Adds a rule. What has vanished meanwhile, or cannot be opened, needs none.
    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
        self.add_known(path, access, found.is_dir())
    }

    /// The same where it is known whether it is a folder. A rule that does not fit what is there
    /// by now is refused by the kernel.
    fn add_known(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        is_folder: bool,
    ) -> io::Result<()> {
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let Ok(opened) = File::options().read(true).custom_flags(flags).open(path) else {
            return Ok(());
        };
        let access = if is_folder { access } else { access & AccessFs::from_file(KNOWN) };
        if access.is_empty() {
            return Ok(());
        }
        let rule = PathBeneath::new(opened, access).set_compatibility(CompatLevel::BestEffort);
        (&mut self.0).add_rule(rule).map_err(io::Error::other)?;
        Ok(())
    }
}
