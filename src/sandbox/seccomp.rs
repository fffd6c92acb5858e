//! System call filter, built from the list in `sandbox-profiles/seccomp.toml`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::libc;
use posse_actors::event::SandboxTier;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::Deserialize;

use crate::plan::Plan;
use crate::{Context as _, syscalls};

/// Text of the list of denied system calls, in TOML.
const LIST: &str = include_str!("../../sandbox-profiles/seccomp.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SyscallList {
    deny: Vec<SyscallRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SyscallRule {
    calls: Vec<String>,
    error: SyscallError,
    tier: Option<SandboxTier>,
    network: Option<NetworkRule>,
    folders: Option<FolderRule>,
    #[serde(default, rename = "where")]
    conditions: Vec<Condition>,
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who read the list"))]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[repr(i32)]
enum SyscallError {
    #[serde(rename = "EPERM")]
    Refused = libc::EPERM,
    #[serde(rename = "ENOSYS")]
    Unknown = libc::ENOSYS,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NetworkRule {
    Denied,
    Inherited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FolderRule {
    NotShared,
}

/// Folders of a group among the writable ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedFolders {
    Absent,
    /// A writable root, or a git folder in one, has the set-group-id bit: new folders in it inherit
    /// the bit, and git and other programs set it again together with other permissions.
    Present,
}

impl SharedFolders {
    /// Examines the writable roots of `plan`, and the folders that it pins, among them those of
    /// repositories.
    pub(crate) fn of(plan: &Plan) -> SharedFolders {
        let is_shared = |path: PathBuf| {
            let found = path.symlink_metadata();
            found.is_ok_and(|found| found.is_dir() && found.mode() & libc::S_ISGID != 0)
        };
        let paths = |root: &PathBuf| ["", ".git", ".git/objects"].map(|below| root.join(below));
        let mut folders = plan.writable.iter().flat_map(paths).chain(plan.pinned.iter().cloned());
        if folders.any(is_shared) { SharedFolders::Present } else { SharedFolders::Absent }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Condition {
    argument: u8,
    mask: Option<u32>,
    #[serde(default)]
    is: Vec<u32>,
    #[serde(default)]
    is_not: Vec<u32>,
    #[serde(default)]
    any_bit: Vec<u32>,
}

/// Compiled system call filters for one tier, one network setting, and workspaces with or without
/// folders of a group.
#[derive(Debug)]
pub(crate) struct Filters {
    tier: SandboxTier,
    network: bool,
    folders: SharedFolders,
    /// One BPF program for each error code that a denied call returns.
    programs: Vec<BpfProgram>,
    /// Number of system calls with a rule.
    calls: usize,
}

impl Filters {
    pub(crate) fn new(
        tier: SandboxTier,
        network: bool,
        folders: SharedFolders,
    ) -> Result<Filters, String> {
        let (programs, calls) = programs(&tier, network, folders)?;
        Ok(Filters { tier, network, folders, programs, calls })
    }

    /// True if the filters were compiled for the tier, the network setting and the `folders` of
    /// `plan`.
    pub(crate) fn are_for(&self, plan: &Plan, folders: SharedFolders) -> bool {
        (&self.tier, self.network, self.folders) == (&plan.tier, plan.network, folders)
    }

    /// Installs the filters for this process and its children, permanently. Returns the number of
    /// system calls with a rule.
    pub(crate) fn restrict(&self) -> Result<usize, String> {
        for program in &self.programs {
            seccompiler::apply_filter(program).context("system calls are not filtered")?;
        }
        Ok(self.calls)
    }
}

/// Compiles the list for a tier, network setting and `folders`. Returns one BPF program per error
/// code, and the number of system calls with a rule.
fn programs(
    tier: &SandboxTier,
    network: bool,
    folders: SharedFolders,
) -> Result<(Vec<BpfProgram>, usize), String> {
    let list: SyscallList = toml::from_str(LIST).context("the list of calls is broken")?;
    let mut rules: BTreeMap<SyscallError, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for entry in list.deny.iter().filter(|entry| entry.counts(tier, network, folders)) {
        let ways = entry.alternatives().context("the list of calls is broken")?;
        for call in entry.calls.iter().filter_map(|name| syscalls::number(name)) {
            let of_call = rules.entry(entry.error).or_default().entry(call);
            let is_new = matches!(of_call, std::collections::btree_map::Entry::Vacant(_));
            let of_call = of_call.or_default();
            // An entry without conditions applies always, regardless of other entries.
            if ways.is_empty() || (!is_new && of_call.is_empty()) {
                of_call.clear();
            } else {
                of_call.extend(ways.iter().cloned());
            }
        }
    }
    let calls = rules.values().map(BTreeMap::len).sum();
    let programs = rules.into_iter().map(|(error, rules)| compile(error, rules));
    Ok((programs.collect::<Result<_, _>>()?, calls))
}

fn compile(
    error: SyscallError,
    rules: BTreeMap<i64, Vec<SeccompRule>>,
) -> Result<BpfProgram, String> {
    let failed = |error: seccompiler::BackendError| format!("no filter of calls: {error}");
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refuse = SeccompAction::Errno((error as i32).cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(failed)?;
    Ok(without_x32(program))
}

/// BPF instruction: load the number of the system call.
const LOAD: u16 = 0x20;
/// BPF instruction: jump if the loaded number is at least the operand.
const AT_LEAST: u16 = 0x35;
/// BPF instruction: return the verdict in the operand.
const RETURN: u16 = 0x06;
/// Bit in the number of a system call that selects the x32 ABI.
const X32: u32 = 0x4000_0000;

/// Prepends instructions that reject x32 system calls with ENOSYS. Their numbers differ from those
/// in the rules, and their architecture is x86-64 as well.
fn without_x32(program: BpfProgram) -> BpfProgram {
    if !cfg!(target_arch = "x86_64") {
        return program;
    }
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut with = vec![
        sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: AT_LEAST, jt: 0, jf: 1, k: X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: refused },
    ];
    with.extend(program);
    with
}

impl SyscallRule {
    fn counts(&self, tier: &SandboxTier, network: bool, folders: SharedFolders) -> bool {
        let inherits = |rule| rule == NetworkRule::Inherited;
        let are_shared = folders == SharedFolders::Present;
        self.tier.as_ref().is_none_or(|of| of == tier)
            && self.network.is_none_or(|rule| inherits(rule) == network)
            && !(are_shared && self.folders == Some(FolderRule::NotShared))
    }

    /// Converts the conditions of this entry to rules, one of which has to match. Empty if the
    /// entry has no conditions.
    fn alternatives(&self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let mut ways: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
        for condition in &self.conditions {
            let choices = condition.choices()?;
            let with_each = |way: &Vec<SeccompCondition>| {
                choices.iter().map(|choice| [&way[..], &choice[..]].concat()).collect::<Vec<_>>()
            };
            ways = ways.iter().flat_map(with_each).collect();
        }
        ways.retain(|way| !way.is_empty());
        ways.into_iter().map(SeccompRule::new).collect()
    }
}

impl Condition {
    /// Converts the condition to sets of comparisons. The condition is met if all comparisons of
    /// any one set match.
    fn choices(&self) -> Result<Vec<Vec<SeccompCondition>>, seccompiler::BackendError> {
        let compare = |operation, value: u32| {
            let length = SeccompCmpArgLen::Dword;
            SeccompCondition::new(self.argument, length, operation, value.into())
        };
        let mut choices = Vec::new();
        for &value in &self.is {
            let operation = match self.mask {
                Some(mask) => SeccompCmpOp::MaskedEq(mask.into()),
                None => SeccompCmpOp::Eq,
            };
            choices.push(vec![compare(operation, value)?]);
        }
        for &bit in &self.any_bit {
            choices.push(vec![compare(SeccompCmpOp::MaskedEq(bit.into()), bit)?]);
        }
        if !self.is_not.is_empty() {
            let all = self.is_not.iter().map(|&value| compare(SeccompCmpOp::Ne, value));
            choices.push(all.collect::<Result<_, _>>()?);
        }
        Ok(choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> SyscallList {
        toml::from_str(LIST).unwrap()
    }

    #[test]
    fn every_entry_has_a_reason_and_calls_that_exist_somewhere() {
        for entry in list().deny {
            assert!(entry.reason.len() > 10, "{:?}", entry.calls);
            // No filter is made for that tier.
            let tiers = [None, Some(SandboxTier::Reduced), Some(SandboxTier::Full)];
            assert!(tiers.contains(&entry.tier), "{:?}", entry.calls);
            for condition in &entry.conditions {
                let ways = [&condition.is, &condition.is_not, &condition.any_bit];
                assert_eq!(ways.iter().filter(|way| !way.is_empty()).count(), 1, "{entry:?}");
            }
            for call in &entry.calls {
                // Calls that only other architectures or old kernels have.
                let unnamed = ["vm86", "_sysctl", "nfsservctl"];
                assert!(
                    syscalls::number(call).is_some() || unnamed.contains(&call.as_str()),
                    "{call}"
                );
            }
        }
    }

    #[test]
    fn the_programs_are_built_for_every_tier_and_network() {
        for tier in [&SandboxTier::Full, &SandboxTier::Reduced] {
            for network in [false, true] {
                let (programs, calls) = programs(tier, network, SharedFolders::Absent).unwrap();
                assert_eq!(programs.len(), 2);
                assert!(calls > 60, "{calls}");
            }
        }
    }

    /// Error with which the filters answer a call. `None`: the kernel handles it.
    fn answer(programs: &[BpfProgram], call: &str, arguments: [u32; 6]) -> Option<i32> {
        let number = u32::try_from(syscalls::number(call).unwrap()).unwrap();
        let architecture = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
        let mut data = vec![number, architecture, 0, 0];
        data.extend(arguments.iter().flat_map(|argument| [*argument, 0]));
        programs.iter().find_map(|program| {
            let (mut value, mut at) = (0, 0);
            loop {
                let sock_filter { code, jt, jf, k } = program[at];
                at += 1;
                let jump = |is_met| usize::from(if is_met { jt } else { jf });
                match code {
                    0x20 => value = data[k as usize / 4],
                    0x54 => value &= k,
                    0x05 => at += k as usize,
                    0x15 => at += jump(value == k),
                    0x25 => at += jump(value > k),
                    0x35 => at += jump(value >= k),
                    0x06 if k == libc::SECCOMP_RET_ALLOW => return None,
                    0x06 => return Some((k & libc::SECCOMP_RET_DATA).cast_signed()),
                    other => panic!("{other:#x}"),
                }
            }
        })
    }

    /// Calls that set the permissions of a file, with the permissions `mode`.
    fn with_mode(mode: u32) -> [(&'static str, [u32; 6]); 9] {
        const CREATES: u32 = 0o101;
        [
            ("chmod", [0, mode, 0, 0, 0, 0]),
            ("fchmod", [0, mode, 0, 0, 0, 0]),
            ("fchmodat", [0, 0, mode, 0, 0, 0]),
            ("fchmodat2", [0, 0, mode, 0, 0, 0]),
            ("open", [0, CREATES, mode, 0, 0, 0]),
            ("openat", [0, 0, CREATES, mode, 0, 0]),
            ("creat", [0, mode, 0, 0, 0, 0]),
            ("mknod", [0, libc::S_IFREG | mode, 0, 0, 0, 0]),
            ("mknodat", [0, 0, libc::S_IFREG | mode, 0, 0, 0]),
        ]
    }

    #[test]
    fn no_program_gets_the_rights_of_its_owner_or_group() {
        for tier in [&SandboxTier::Full, &SandboxTier::Reduced] {
            let (programs, _) = programs(tier, false, SharedFolders::Absent).unwrap();
            for (call, arguments) in
                [0o4755, 0o2755, 0o6755, 0o2000].into_iter().flat_map(with_mode)
            {
                if syscalls::number(call).is_some() {
                    assert_eq!(answer(&programs, call, arguments), Some(libc::EPERM), "{call}");
                }
            }
            for (call, arguments) in [0o755, 0o1777].into_iter().flat_map(with_mode) {
                if syscalls::number(call).is_some() {
                    assert_eq!(answer(&programs, call, arguments), None, "{call}");
                }
            }
            // The mode is undefined without a new file.
            assert_eq!(answer(&programs, "openat", [0, 0, 0, 0o6755, 0, 0]), None);
        }
    }

    #[test]
    fn folders_of_a_group_can_be_made_where_new_ones_are_of_the_group() {
        let (programs, _) = programs(&SandboxTier::Full, false, SharedFolders::Present).unwrap();
        for (call, arguments) in with_mode(0o2775) {
            if syscalls::number(call).is_some() {
                // Only files are made by the others.
                let is_change = call.contains("chmod");
                let expected = (!is_change).then_some(libc::EPERM);
                assert_eq!(answer(&programs, call, arguments), expected, "{call}");
            }
        }
        for (call, arguments) in with_mode(0o6775) {
            if syscalls::number(call).is_some() {
                assert_eq!(answer(&programs, call, arguments), Some(libc::EPERM), "{call}");
            }
        }
    }

    #[test]
    fn folders_of_a_group_are_found() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let plan = Plan { writable: vec![root.clone()], ..Plan::default() };
        assert_eq!(SharedFolders::of(&plan), SharedFolders::Absent);
        let pinned = vec![root.join("nested/.git")];
        let plan = Plan { pinned, ..plan };
        for below in ["", ".git", ".git/objects", "nested/.git"] {
            let path = root.join(below);
            std::fs::create_dir_all(&path).unwrap();
            let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
            set(0o2755).unwrap();
            assert_eq!(SharedFolders::of(&plan), SharedFolders::Present, "{below}");
            set(0o755).unwrap();
            assert_eq!(SharedFolders::of(&plan), SharedFolders::Absent, "{below}");
        }
        // A file with the bit is none.
        std::fs::remove_dir_all(root.join(".git")).unwrap();
        std::fs::write(root.join(".git"), "").unwrap();
        std::fs::set_permissions(root.join(".git"), PermissionsExt::from_mode(0o2755)).unwrap();
        assert_eq!(SharedFolders::of(&plan), SharedFolders::Absent);
    }

    #[test]
    fn x32_calls_are_refused() {
        let (programs, _) = programs(&SandboxTier::Reduced, false, SharedFolders::Absent).unwrap();
        if cfg!(target_arch = "x86_64") {
            assert!(programs.iter().all(|program| program[1].k == 0x4000_0000));
        }
    }
}
