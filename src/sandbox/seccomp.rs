//! System call filter, built from the list in `sandbox-profiles/seccomp.toml`.

use std::collections::BTreeMap;

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

/// Compiled system call filters for one tier and one network setting.
#[derive(Debug)]
pub(crate) struct Filters {
    tier: SandboxTier,
    network: bool,
    /// One BPF program for each error code that a denied call returns.
    programs: Vec<BpfProgram>,
    /// Number of system calls with a rule.
    calls: usize,
}

impl Filters {
    pub(crate) fn new(tier: SandboxTier, network: bool) -> Result<Filters, String> {
        let (programs, calls) = programs(&tier, network)?;
        Ok(Filters { tier, network, programs, calls })
    }

    /// True if the filters were compiled for the tier and network setting of `plan`.
    pub(crate) fn is_for(&self, plan: &Plan) -> bool {
        (&self.tier, self.network) == (&plan.tier, plan.network)
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

/// Compiles the list for a tier and network setting. Returns one BPF program per error code, and
/// the number of system calls with a rule.
fn programs(tier: &SandboxTier, network: bool) -> Result<(Vec<BpfProgram>, usize), String> {
    let list: SyscallList = toml::from_str(LIST).context("the list of calls is broken")?;
    let mut rules: BTreeMap<SyscallError, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for entry in list.deny.iter().filter(|entry| entry.counts(tier, network)) {
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
    fn counts(&self, tier: &SandboxTier, network: bool) -> bool {
        let inherits = |rule| rule == NetworkRule::Inherited;
        self.tier.as_ref().is_none_or(|of| of == tier)
            && self.network.is_none_or(|rule| inherits(rule) == network)
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
                let (programs, calls) = programs(tier, network).unwrap();
                assert_eq!(programs.len(), 2);
                assert!(calls > 60, "{calls}");
            }
        }
    }

    #[test]
    fn x32_calls_are_refused() {
        let (programs, _) = programs(&SandboxTier::Reduced, false).unwrap();
        if cfg!(target_arch = "x86_64") {
            assert!(programs.iter().all(|program| program[1].k == 0x4000_0000));
        }
    }
}
