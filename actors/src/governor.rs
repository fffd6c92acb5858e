//! Governor of subagents: limits of depth, number, tokens, money and time, granted as permits by
//! one owner.
//!
//! Pure: the owner is a single actor, so check and effect are atomic. A permit is taken at the
//! start of a subagent and returned with its usage at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::conversation::InvocationId;

/// Common limits of all subagents. `None` means no limit of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GovernorLimits {
    /// Maximum depth of delegation: 0 is none, 1 is children of the main agent.
    pub depth_max: u32,
    /// Maximum number of running agents. An agent that waits for another lends its slot.
    pub live_max: u32,
    /// Subagents started in one session.
    pub total_max: u32,
    /// Tokens of all subagents together.
    pub tokens_max: Option<u64>,
    /// Cost of all subagents together, in millionths of a dollar.
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

/// Requirements of a subagent to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermitRequest {
    /// Caller; `None` is the main agent.
    pub parent: Option<InvocationId>,
    /// Its own time limit, if set.
    pub duration_max: Option<Duration>,
    /// Time that it has already used.
    pub worked: Duration,
    /// Its own token limit, if set.
    pub tokens_max: Option<u64>,
    /// It was started before and is resumed: it counts once.
    pub again: bool,
    /// True if the caller waits for the result and does nothing else.
    pub waits: bool,
    /// Number of earlier requests that wait for a slot.
    pub ahead: u32,
    /// Remaining tokens of the session's budget, if it has one.
    pub tokens_left: Option<BudgetLeft>,
    /// Remaining millionths of a dollar of the session's budget, if it has one.
    pub micro_usd_left: Option<BudgetLeft>,
}

/// State of a budget outside the governor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLeft {
    /// The whole budget.
    pub max: u64,
    /// Amount that is neither spent nor reserved.
    pub left: u64,
}

/// Allowance of a subagent. Returned with [`Governor::end`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permit {
    /// Depth; 1 is a child of the main agent.
    pub depth: u32,
    /// Most tokens.
    pub tokens: Option<u64>,
    /// Most cost in millionths of a dollar.
    pub micro_usd: Option<u64>,
    /// Deadline (monotonic).
    pub until: Option<Duration>,
}

/// Usage of a subagent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubagentUsage {
    /// Input and output tokens.
    pub tokens: u64,
    /// Cost in millionths of a dollar, if known.
    pub micro_usd: Option<u64>,
}

/// The limit that prevents a start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} ({value}) is reached: {left} left; {frees}")]
pub struct SubagentRefusal {
    /// Name of the limit in the configuration.
    pub limit: &'static str,
    /// Its value.
    pub value: u64,
    /// Remaining amount.
    pub left: u64,
    /// Event that would free it.
    pub frees: FreedBy,
}

/// Name of the limit that the end of any subagent relaxes.
const PLACES: &str = "delegation.maxConcurrent";

impl SubagentRefusal {
    /// True if only a concurrency slot is missing, which becomes free by waiting.
    pub fn is_place_limit(&self) -> bool {
        self.limit == PLACES && self.value > 0
    }

    /// The refusal in a session without delegation.
    pub(crate) fn single_agent() -> SubagentRefusal {
        SubagentRefusal { limit: "agentMode", value: 0, left: 0, frees: FreedBy::CallersOwnWork }
    }
}

/// Event that frees capacity of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreedBy {
    /// The end of a running subagent.
    SubagentEnds,
    /// Nothing in this session.
    Nothing,
    /// The caller does the work itself.
    CallersOwnWork,
}

impl fmt::Display for FreedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FreedBy::SubagentEnds => "wait until an agent has ended, then try again",
            FreedBy::Nothing => "nothing frees it in this session; go on without further agents",
            FreedBy::CallersOwnWork => "do it yourself: an agent here may not start another",
        })
    }
}

/// Hands out permits.
#[derive(Debug, Default)]
pub struct Governor {
    limits: GovernorLimits,
    live: BTreeMap<InvocationId, Permit>,
    /// Lent slots: borrower of each lender. Each lends to one.
    lent: BTreeMap<InvocationId, InvocationId>,
    total: u32,
    /// Usage of subagents that have ended.
    spent: SubagentUsage,
}

impl Governor {
    /// Governor without running subagents.
    pub fn new(limits: GovernorLimits) -> Governor {
        Governor { limits, ..Governor::default() }
    }

    /// Permit for `id` at `now` (monotonic), or the limit that prevents it.
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
        for (left, limit) in [
            (request.tokens_left, "budget.maxTokens"),
            (request.micro_usd_left, "budget.maxCostMicroUsd"),
        ] {
            if let Some(BudgetLeft { max, left: 0 }) = left {
                return Err(refused(limit, max, self.frees_budget()));
            }
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
        let tokens = smallest([tokens, request.tokens_max, of_parent, of_session]);
        if tokens == Some(0) {
            let value = limits.tokens_max.unwrap_or_default();
            return Err(refused("delegation.maxTokens", value, self.frees_budget()));
        }
        let micro_usd = self.share(limits.micro_usd_max, |permit| permit.micro_usd, spent);
        let of_session = request.micro_usd_left.map(|left| self.part(left.left));
        let of_parent = above.and_then(|permit| permit.micro_usd);
        let micro_usd = smallest([micro_usd, of_parent, of_session, None]);
        if micro_usd == Some(0) {
            let value = limits.micro_usd_max.unwrap_or_default();
            return Err(refused("delegation.maxCostMicroUsd", value, self.frees_budget()));
        }
        let at = |max: Option<Duration>| {
            max.map(|max| now.saturating_add(max.saturating_sub(request.worked)))
        };
        let until = smallest([
            at(limits.duration_max),
            at(request.duration_max),
            above.and_then(|permit| permit.until),
            None,
        ]);
        if until.is_some_and(|until| until <= now) {
            let value = limits.duration_max.unwrap_or_default().as_secs();
            return Err(refused("delegation.maxDurationSeconds", value, FreedBy::Nothing));
        }
        let permit = Permit { depth, tokens, micro_usd, until };
        self.total += u32::from(!request.again);
        if let Some(lender) = lender {
            self.lent.insert(id.clone(), lender);
        }
        self.live.insert(id.clone(), permit);
        Ok(permit)
    }

    /// Lender of a slot for this request: the caller, if it waits. So no subagent waits for the
    /// slot of its own caller at any depth.
    fn slot_lender(&self, request: &PermitRequest) -> Option<InvocationId> {
        let parent = request.parent.as_ref().filter(|_| request.waits)?;
        let lends = self.live.contains_key(parent) && !self.lent.values().any(|by| by == parent);
        lends.then(|| parent.clone())
    }

    /// Share of a budget for one more subagent: an equal part of the amount that is neither spent
    /// nor granted.
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

    /// Share of the session's remaining budget: equal parts for all agents that may run, including
    /// the main agent, and at least one.
    fn part(&self, left: u64) -> u64 {
        let free = u64::from(self.limits.live_max.saturating_sub(self.living()).max(1)) + 1;
        (left / free).max(u64::from(left > 0))
    }

    fn frees_budget(&self) -> FreedBy {
        if self.live.is_empty() { FreedBy::Nothing } else { FreedBy::SubagentEnds }
    }

    /// Restores the totals of an earlier process.
    pub fn restore(&mut self, total: u32, spent: SubagentUsage) {
        self.total = self.total.saturating_add(total);
        self.count(spent);
    }

    /// Ends `id` and frees its permit. A second end has no effect.
    pub fn end(&mut self, id: &InvocationId, spent: SubagentUsage) -> Option<Permit> {
        let permit = self.live.remove(id)?;
        self.lent.remove(id);
        self.lent.retain(|_, lender| lender != id);
        self.count(spent);
        Some(permit)
    }

    /// Adds usage.
    pub fn count(&mut self, spent: SubagentUsage) {
        self.spent.tokens = self.spent.tokens.saturating_add(spent.tokens);
        if let Some(cost) = spent.micro_usd {
            let before = self.spent.micro_usd.unwrap_or_default();
            self.spent.micro_usd = Some(before.saturating_add(cost));
        }
    }

    /// Number of concurrency slots.
    pub fn slots(&self) -> u32 {
        self.limits.live_max
    }

    /// Places in use: running subagents without those that have lent their place.
    pub fn busy_slots(&self) -> u32 {
        self.living().saturating_sub(u32::try_from(self.lent.len()).unwrap_or(u32::MAX))
    }

    /// Subagents that have started and not ended.
    pub fn living(&self) -> u32 {
        u32::try_from(self.live.len()).unwrap_or(u32::MAX)
    }
}

fn smallest<T: Ord>(limits: [Option<T>; 4]) -> Option<T> {
    limits.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
