//! Governor of subagents: limits their depth, number, tokens, cost and time, and grants each a
//! permit.
//!
//! Pure: its owner is a single actor, so check and grant are one step. A permit is granted at the
//! start of a subagent and returned with its usage at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::conversation::InvocationId;

/// Limits of all subagents of a session. `None` means no limit of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GovernorLimits {
    /// Maximum depth of delegation: 0 means no subagents, 1 means subagents of the main agent only.
    pub depth_max: u32,
    /// Number of concurrency slots: maximum number of running subagents, without those that wait
    /// for a subagent of their own.
    pub live_max: u32,
    /// Maximum number of starts of subagents in one session, including earlier processes.
    pub total_max: u32,
    /// Maximum tokens of all subagents of the session together.
    pub tokens_max: Option<u64>,
    /// Maximum cost of all subagents together, in millionths of a dollar.
    pub micro_usd_max: Option<u64>,
    /// Time limit of one subagent.
    pub duration_max: Option<Duration>,
}

impl Default for GovernorLimits {
    fn default() -> GovernorLimits {
        GovernorLimits {
            depth_max: 1,
            live_max: 3,
            total_max: 100,
            tokens_max: None,
            micro_usd_max: None,
            duration_max: None,
        }
    }
}

/// Time limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTime {
    /// The whole time.
    pub max: Duration,
    /// The remaining time.
    pub left: Duration,
}

/// Request for a permit to start a subagent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermitRequest {
    /// Invocation of the caller. `None`, or an invocation without a permit, means the main agent.
    pub parent: Option<InvocationId>,
    /// Time limit of this subagent, in addition to the common one; `None`: no further limit.
    pub duration_max: Option<Duration>,
    /// Time limit of the whole run, and the part of it that is left; `None`: no such limit.
    pub run_time: Option<RunTime>,
    /// Time that the subagent has already used in an earlier process; zero for a new one.
    pub worked: Duration,
    /// True if the subagent was already counted by an earlier process and continues. It is not
    /// counted again.
    pub again: bool,
    /// True if the caller waits for the result and does nothing else.
    pub waits: bool,
    /// Number of earlier start requests that still wait for a slot.
    pub ahead: u32,
    /// Total and remaining tokens of the session's budget; `None` if it does not limit tokens.
    pub tokens_left: Option<BudgetLeft>,
    /// Total and remaining cost of the session's budget, in millionths of a dollar; `None` if it
    /// does not limit the cost.
    pub micro_usd_left: Option<BudgetLeft>,
}

impl PermitRequest {
    /// Name and amount of the session's budget of which nothing is left. `None` if something is
    /// left of each.
    fn used_up_budget(&self) -> Option<(&'static str, u64)> {
        let budgets = [
            (self.tokens_left, "budget.maxTokens"),
            (self.micro_usd_left, "budget.maxCostMicroUsd"),
        ];
        budgets.into_iter().find_map(|(budget, name)| {
            budget.filter(|budget| budget.left == 0).map(|budget| (name, budget.max))
        })
    }
}

/// Total and remaining amount of a budget of the session, which the governor does not manage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLeft {
    /// The whole budget.
    pub max: u64,
    /// Amount that is neither spent nor reserved.
    pub left: u64,
}

/// Permit of a running subagent with its limits. Returned with [`Governor::end`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permit {
    /// Depth of delegation; 1 for a subagent of the main agent.
    pub depth: u32,
    /// Maximum tokens; `None`: no limit.
    pub tokens: Option<u64>,
    /// Maximum cost in millionths of a dollar; `None`: no limit.
    pub micro_usd: Option<u64>,
    /// Deadline on the monotonic clock; `None`: no limit.
    pub until: Option<Duration>,
}

/// Tokens and cost of one or more subagents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubagentUsage {
    /// Input and output tokens.
    pub tokens: u64,
    /// Cost in millionths of a dollar; `None` if unknown.
    pub micro_usd: Option<u64>,
}

/// Refusal of a start: the limit that prevents it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} ({value}) is reached: {left} left; {frees}")]
pub struct SubagentRefusal {
    /// Name of the limit in the configuration.
    pub limit: &'static str,
    /// Value of the limit for all subagents, in seconds for a duration. 0 if it is not set and a
    /// narrower limit prevents the start: that of the subagent itself or of its caller.
    pub value: u64,
    /// Remaining amount of the limit; always 0.
    pub left: u64,
    /// Event that would make room within the limit.
    pub frees: FreedBy,
}

/// Name of the limit of concurrency slots in the configuration.
const PLACES: &str = "delegation.maxConcurrent";

impl SubagentRefusal {
    /// True if only a concurrency slot is missing, so that the request can wait for one. False if
    /// there are no slots at all.
    pub fn is_place_limit(&self) -> bool {
        self.limit == PLACES && self.value > 0
    }

    /// Refusal of every start in a session without delegation.
    pub(crate) fn single_agent() -> SubagentRefusal {
        SubagentRefusal { limit: "agentMode", value: 0, left: 0, frees: FreedBy::CallersOwnWork }
    }
}

/// Event that makes room within a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreedBy {
    /// The end of a running subagent.
    SubagentEnds,
    /// No event in this session.
    Nothing,
    /// No event: the caller has to do the work itself.
    CallersOwnWork,
}

impl fmt::Display for FreedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FreedBy::SubagentEnds => "wait until an agent has ended, then try again",
            FreedBy::Nothing => "nothing frees it in this session; continue without further agents",
            FreedBy::CallersOwnWork => "do it yourself: an agent here may not start another",
        })
    }
}

/// Grants permits to subagents and counts their usage.
#[derive(Debug, Default)]
pub struct Governor {
    limits: GovernorLimits,
    live: BTreeMap<InvocationId, Permit>,
    /// Lent slots: maps each borrower to the caller that lends its slot. A caller lends to one
    /// borrower at a time.
    lent: BTreeMap<InvocationId, InvocationId>,
    total: u32,
    /// Usage of all subagents that have ended.
    spent: SubagentUsage,
}

impl Governor {
    /// Creates a governor without running subagents.
    pub fn new(limits: GovernorLimits) -> Governor {
        Governor { limits, ..Governor::default() }
    }

    /// Grants a permit for the subagent `id` at the monotonic time `now`, or returns the limit that
    /// prevents it. A granted start counts towards `total_max` unless `again` is set, and takes a
    /// slot or borrows that of its caller.
    pub fn admit(
        &mut self,
        id: &InvocationId,
        request: &PermitRequest,
        now: Duration,
    ) -> Result<Permit, SubagentRefusal> {
        let above = request.parent.as_ref().and_then(|parent| self.live.get(parent)).copied();
        let depth = above.map_or(0, |permit| permit.depth) + 1;
        let limits = &self.limits;
        let refused = |limit, value: u64, frees| SubagentRefusal { limit, value, left: 0, frees };
        if depth > limits.depth_max {
            let value = limits.depth_max.into();
            return Err(refused("delegation.maxDepth", value, FreedBy::CallersOwnWork));
        }
        if self.total.saturating_add(request.ahead) >= limits.total_max && !request.again {
            let value = limits.total_max.into();
            return Err(refused("delegation.maxTotal", value, FreedBy::Nothing));
        }
        if let Some((limit, max)) = request.used_up_budget() {
            return Err(refused(limit, max, self.frees_budget()));
        }
        let used_up = |max: Option<u64>, spent: u64| max.filter(|max| spent >= *max);
        if let Some(value) = used_up(limits.tokens_max, self.spent.tokens) {
            return Err(refused("delegation.maxTokens", value, FreedBy::Nothing));
        }
        let spent = self.spent.micro_usd.unwrap_or_default();
        if let Some(value) = used_up(limits.micro_usd_max, spent) {
            return Err(refused("delegation.maxCostMicroUsd", value, FreedBy::Nothing));
        }
        let lender = self.slot_lender(request);
        if lender.is_none() && self.busy_slots() >= limits.live_max {
            return Err(refused(PLACES, limits.live_max.into(), FreedBy::SubagentEnds));
        }
        let tokens = self.share(limits.tokens_max, |permit| permit.tokens, self.spent.tokens);
        let of_session = request.tokens_left.map(|left| self.part(left.left));
        let of_parent = above.and_then(|permit| permit.tokens);
        let tokens = smallest([tokens, of_parent, of_session]);
        if tokens == Some(0) {
            let value = limits.tokens_max.unwrap_or_default();
            return Err(refused("delegation.maxTokens", value, self.frees_budget()));
        }
        let micro_usd = self.share(limits.micro_usd_max, |permit| permit.micro_usd, spent);
        let of_session = request.micro_usd_left.map(|left| self.part(left.left));
        let of_parent = above.and_then(|permit| permit.micro_usd);
        let micro_usd = smallest([micro_usd, of_parent, of_session]);
        if micro_usd == Some(0) {
            let value = limits.micro_usd_max.unwrap_or_default();
            return Err(refused("delegation.maxCostMicroUsd", value, self.frees_budget()));
        }
        let at = |max: Option<Duration>| {
            max.map(|max| now.saturating_add(max.saturating_sub(request.worked)))
        };
        let of_run = request.run_time.map(|run| now.saturating_add(run.left));
        let ends = [
            (at(limits.duration_max), "delegation.maxDurationSeconds", limits.duration_max),
            (at(request.duration_max), "limits.maxDurationSeconds", request.duration_max),
            (of_run, "timeout", request.run_time.map(|run| run.max)),
            // The time of the caller is over, and its own limit has ended it.
            (above.and_then(|permit| permit.until), "delegation.maxDurationSeconds", None),
        ];
        let first = ends.into_iter().filter_map(|(end, name, max)| Some((end?, name, max)));
        let first = first.min_by_key(|(end, ..)| *end);
        let until = first.map(|(until, ..)| until);
        if let Some((_, name, max)) = first.filter(|(until, ..)| *until <= now) {
            let value = max.or(limits.duration_max).unwrap_or_default().as_secs();
            return Err(refused(name, value, FreedBy::Nothing));
        }
        let permit = Permit { depth, tokens, micro_usd, until };
        self.total += u32::from(!request.again);
        if let Some(lender) = lender {
            self.lent.insert(id.clone(), lender);
        }
        self.live.insert(id.clone(), permit);
        Ok(permit)
    }

    /// The caller, if it can lend its slot to this request: it is a running subagent, waits for the
    /// result, and does not lend its slot already. `None` otherwise.
    fn slot_lender(&self, request: &PermitRequest) -> Option<InvocationId> {
        let parent = request.parent.as_ref().filter(|_| request.waits)?;
        let lends = self.live.contains_key(parent) && !self.lent.values().any(|by| by == parent);
        lends.then(|| parent.clone())
    }

    /// Share of the limit `max` for one more subagent: `left / free`, at least 1 unless `left` is
    /// 0. `left` is neither spent nor granted; `free` is `live_max` minus the living subagents, at
    /// least 1. `None` without a limit. `held`: the amount that a permit has granted.
    fn share(
        &self,
        max: Option<u64>,
        held: impl Fn(&Permit) -> Option<u64>,
        spent: u64,
    ) -> Option<u64> {
        let max = max?;
        let out: u64 = self.live.values().filter_map(held).fold(spent, u64::saturating_add);
        let left = max.saturating_sub(out);
        let free = u64::from(self.limits.live_max.saturating_sub(self.living()).max(1));
        // The last one gets the rest, and each at least one.
        Some((left / free).max(u64::from(left > 0)))
    }

    /// Share of one more subagent in the amount `left` of the session's budget: `left / (free +
    /// 1)`, at least 1 unless `left` is 0. `free`: see [`share`](Governor::share); the further part
    /// is for the main agent.
    fn part(&self, left: u64) -> u64 {
        let free = u64::from(self.limits.live_max.saturating_sub(self.living()).max(1)) + 1;
        (left / free).max(u64::from(left > 0))
    }

    fn frees_budget(&self) -> FreedBy {
        if self.live.is_empty() { FreedBy::Nothing } else { FreedBy::SubagentEnds }
    }

    /// Adds the number of starts and the usage from earlier processes.
    pub fn restore(&mut self, total: u32, spent: SubagentUsage) {
        self.total = self.total.saturating_add(total);
        self.count(spent);
    }

    /// Ends the subagent `id`, frees its permit and adds its usage. Returns the permit. `None` if
    /// it had already ended; then nothing changes.
    pub fn end(&mut self, id: &InvocationId, spent: SubagentUsage) -> Option<Permit> {
        let permit = self.live.remove(id)?;
        self.lent.remove(id);
        self.lent.retain(|_, lender| lender != id);
        self.count(spent);
        Some(permit)
    }

    /// Adds `spent` to the usage of all subagents. An unknown cost adds nothing.
    pub fn count(&mut self, spent: SubagentUsage) {
        self.spent.tokens = self.spent.tokens.saturating_add(spent.tokens);
        if let Some(cost) = spent.micro_usd {
            let before = self.spent.micro_usd.unwrap_or_default();
            self.spent.micro_usd = Some(before.saturating_add(cost));
        }
    }

    /// Number of concurrency slots: `live_max`.
    pub fn slots(&self) -> u32 {
        self.limits.live_max
    }

    /// Number of slots in use: running subagents without those that lend their slot.
    pub fn busy_slots(&self) -> u32 {
        self.living().saturating_sub(u32::try_from(self.lent.len()).unwrap_or(u32::MAX))
    }

    /// Number of subagents that have started and not ended.
    pub fn living(&self) -> u32 {
        u32::try_from(self.live.len()).unwrap_or(u32::MAX)
    }
}

fn smallest(limits: [Option<u64>; 3]) -> Option<u64> {
    limits.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
