//! No order of starts and ends exceeds a limit.

use proptest::prelude::*;

use super::*;

fn id(nth: usize) -> InvocationId {
    InvocationId::new(format!("inv-{nth}"))
}

fn request(parent: Option<InvocationId>) -> PermitRequest {
    PermitRequest { parent, ..PermitRequest::default() }
}

const NOW: Duration = Duration::from_secs(100);

#[test]
fn hundred_concurrent_requests_get_only_the_allowed_permits() {
    for live_max in [1, 3, 50, 100, 200] {
        let mut governor = Governor::new(GovernorLimits {
            live_max,
            total_max: 1000,
            ..GovernorLimits::default()
        });
        let admitted =
            (0..100).filter(|nth| governor.admit(&id(*nth), &request(None), NOW).is_ok());
        assert_eq!(admitted.count(), live_max.min(100) as usize);
        assert_eq!(governor.living(), live_max.min(100));
    }
}

#[test]
fn depth_limit_is_exact() {
    for depth_max in 0..=5 {
        let limits = GovernorLimits { depth_max, live_max: 100, ..GovernorLimits::default() };
        let mut governor = Governor::new(limits);
        let mut parent = None;
        for depth in 1..=depth_max + 3 {
            let own = id(depth as usize);
            match governor.admit(&own, &request(parent.clone()), NOW) {
                Ok(permit) => assert_eq!(permit.depth, depth),
                Err(refused) => {
                    assert_eq!(depth, depth_max + 1, "refused exactly one deeper than allowed");
                    assert_eq!(refused.limit, "delegation.maxDepth");
                    assert_eq!(refused.frees, FreedBy::CallersOwnWork);
                    break;
                }
            }
            assert!(depth <= depth_max);
            parent = Some(own);
        }
    }
}

#[test]
fn ended_subagents_hold_no_permits() {
    let limits = GovernorLimits { live_max: 4, total_max: 20_000, ..GovernorLimits::default() };
    let mut governor = Governor::new(limits);
    for nth in 0..10_000 {
        governor.admit(&id(nth), &request(None), NOW).unwrap();
        let spent = SubagentUsage { tokens: 3, micro_usd: Some(2) };
        assert!(governor.end(&id(nth), spent).is_some());
        assert!(governor.end(&id(nth), spent).is_none(), "it ends once");
    }
    assert_eq!((governor.living(), governor.total), (0, 10_000));
    assert_eq!(governor.spent, SubagentUsage { tokens: 30_000, micro_usd: Some(20_000) });
}

#[test]
fn refusal_names_the_limit_and_its_remedy() {
    let said = |limits: GovernorLimits, started: usize| {
        let mut governor = Governor::new(limits);
        for nth in 0..started {
            governor.admit(&id(nth), &request(None), NOW).unwrap();
        }
        governor.admit(&id(started), &request(None), NOW).unwrap_err().to_string()
    };
    let limits = GovernorLimits::default;
    assert_eq!(
        said(GovernorLimits { live_max: 2, ..limits() }, 2),
        "delegation.maxConcurrent (2) is reached: 0 left; wait until an agent has ended, then try \
         again"
    );
    assert!(said(GovernorLimits { total_max: 0, ..limits() }, 0).contains("maxTotal (0)"));
    assert!(
        said(GovernorLimits { tokens_max: Some(0), ..limits() }, 0)
            .contains("delegation.maxTokens")
    );
    let limits = GovernorLimits { tokens_max: Some(2), ..limits() };
    assert!(said(limits, 2).contains("wait until an agent has ended"));
}

#[test]
fn child_budget_never_exceeds_its_parents() {
    let limits = GovernorLimits {
        depth_max: 2,
        tokens_max: Some(900),
        duration_max: Some(Duration::from_mins(1)),
        ..GovernorLimits::default()
    };
    let mut governor = Governor::new(limits);
    let short =
        PermitRequest { duration_max: Some(Duration::from_secs(10)), ..PermitRequest::default() };
    let parent = governor.admit(&id(1), &short, NOW).unwrap();
    assert_eq!((parent.tokens, parent.until), (Some(300), Some(NOW + Duration::from_secs(10))));
    let later = NOW + Duration::from_secs(4);
    let child = governor.admit(&id(2), &request(Some(id(1))), later).unwrap();
    assert_eq!((child.tokens, child.until), (Some(300), parent.until));
    let too_late = governor.admit(&id(3), &request(Some(id(1))), NOW + Duration::from_secs(10));
    assert_eq!(too_late.unwrap_err().limit, "delegation.maxDurationSeconds");
}

#[test]
fn refusal_for_time_names_the_limit_that_is_reached() {
    let limits =
        GovernorLimits { duration_max: Some(Duration::from_mins(1)), ..GovernorLimits::default() };
    let seconds = Duration::from_secs;
    let run_time = Some(RunTime { max: seconds(90), left: Duration::ZERO });
    let table = [
        (
            PermitRequest { worked: seconds(60), ..request(None) },
            "delegation.maxDurationSeconds",
            60,
        ),
        (
            PermitRequest { duration_max: Some(seconds(5)), worked: seconds(5), ..request(None) },
            "limits.maxDurationSeconds",
            5,
        ),
        (PermitRequest { run_time, ..request(None) }, "timeout", 90),
    ];
    for (asked, limit, value) in table {
        let refused = Governor::new(limits.clone()).admit(&id(1), &asked, NOW).unwrap_err();
        assert_eq!((refused.limit, refused.value), (limit, value));
    }
}

proptest! {
    /// In every order of starts and ends: no limit is exceeded, and the sum of permits and spending
    /// never exceeds the budget.
    #[test]
    fn no_order_exceeds_a_limit(
        depth_max in 0u32..6,
        live_max in 1u32..8,
        total_max in 0u32..40,
        tokens_max in proptest::option::of(0u64..1000),
        steps in proptest::collection::vec((any::<bool>(), 0usize..60, 0usize..60, 0u64..300), 0..120),
    ) {
        let limits = GovernorLimits {
            depth_max, live_max, total_max, tokens_max, micro_usd_max: tokens_max, duration_max: None,
        };
        let mut governor = Governor::new(limits);
        let mut started = 0;
        for (nth, (starts, which, whose, used)) in steps.into_iter().enumerate() {
            if starts {
                let parent = governor.live.contains_key(&id(whose)).then(|| id(whose));
                let above = parent.as_ref().and_then(|parent| governor.live.get(parent).copied());
                let before = governor.living();
                match governor.admit(&id(nth), &request(parent), NOW) {
                    Ok(permit) => {
                        started += 1;
                        prop_assert_eq!(permit.depth, above.map_or(0, |above| above.depth) + 1);
                        prop_assert!(permit.tokens != Some(0));
                    }
                    Err(refused) => {
                        prop_assert_eq!(governor.living(), before, "a refusal takes nothing");
                        prop_assert_eq!(refused.left, 0);
                    }
                }
            } else if let Some(permit) = governor.live.get(&id(which)).copied() {
                let tokens = used.min(permit.tokens.unwrap_or(used));
                governor.end(&id(which), SubagentUsage { tokens, micro_usd: Some(tokens) });
            }
            let permits: Vec<Permit> = governor.live.values().copied().collect();
            prop_assert!(permits.iter().all(|permit| permit.depth <= depth_max));
            prop_assert!(governor.living() <= live_max);
            prop_assert!(governor.total <= total_max && governor.total == started);
            if let Some(max) = tokens_max {
                // A child's tokens are part of its parent's: only the children of the main agent
                // add up.
                let out: u64 = permits.iter().filter(|permit| permit.depth == 1)
                    .filter_map(|permit| permit.tokens).sum();
                prop_assert!(out == 0 || out + governor.spent.tokens <= max, "{out} of {max}");
            }
        }
    }
}

#[test]
fn session_budget_is_shared_equally() {
    let mut governor = Governor::new(GovernorLimits { live_max: 3, ..GovernorLimits::default() });
    let left = |left| Some(BudgetLeft { max: 1000, left });
    let of = |tokens, money| PermitRequest {
        tokens_left: left(tokens),
        micro_usd_left: left(money),
        ..request(None)
    };
    // Three running subagents and the main agent.
    let first = governor.admit(&id(1), &of(800, 400), NOW).unwrap();
    assert_eq!((first.tokens, first.micro_usd), (Some(200), Some(100)));
    let second = governor.admit(&id(2), &of(600, 3), NOW).unwrap();
    assert_eq!((second.tokens, second.micro_usd), (Some(200), Some(1)), "nobody gets nothing");
    let refused = governor.admit(&id(3), &of(600, 0), NOW).unwrap_err();
    assert_eq!((refused.limit, refused.value), ("budget.maxCostMicroUsd", 1000));
    assert_eq!(refused.frees, FreedBy::SubagentEnds, "the end of another may free what is held");
    let refused = governor.admit(&id(3), &of(0, 9), NOW).unwrap_err();
    assert_eq!(refused.limit, "budget.maxTokens");
}

#[derive(Debug, Default)]
struct RunningAgent {
    depth: u32,
    /// Caller that waits for it; `None` is the main agent.
    caller: Option<usize>,
    /// Number of agents that it calls at once, per round.
    rounds: Vec<u32>,
    /// Number of agents that it waits for.
    out: u32,
}

/// Running agents, and those that wait for a slot in order.
struct AgentPool {
    governor: Governor,
    live: BTreeMap<usize, RunningAgent>,
    waiting: std::collections::VecDeque<(usize, RunningAgent)>,
    next: usize,
    refused: u32,
    main_out: u32,
}

impl AgentPool {
    fn out(&mut self, caller: Option<usize>) -> &mut u32 {
        match caller {
            None => &mut self.main_out,
            Some(caller) => &mut self.live.get_mut(&caller).unwrap().out,
        }
    }

    fn call(&mut self, caller: Option<usize>, depth: u32, rounds: &[u32], many: u32) {
        for _ in 0..many {
            self.next += 1;
            let one = RunningAgent { depth, caller, rounds: rounds.to_vec(), out: 0 };
            *self.out(caller) += 1;
            self.waiting.push_back((self.next, one));
        }
        self.let_in();
    }

    fn let_in(&mut self) {
        for (nth, one) in std::mem::take(&mut self.waiting) {
            let ahead = u32::try_from(self.waiting.len()).unwrap();
            let request = PermitRequest { waits: true, ahead, ..request(one.caller.map(id)) };
            match self.governor.admit(&id(nth), &request, NOW) {
                Ok(permit) => {
                    assert_eq!(permit.depth, one.depth);
                    self.live.insert(nth, one);
                }
                Err(refused) if refused.is_place_limit() => self.waiting.push_back((nth, one)),
                Err(_) => {
                    self.refused += 1;
                    *self.out(one.caller) -= 1;
                }
            }
        }
    }

    fn end(&mut self, nth: usize) {
        let one = self.live.remove(&nth).unwrap();
        self.governor.end(&id(nth), SubagentUsage::default()).unwrap();
        *self.out(one.caller) -= 1;
        self.let_in();
    }

    /// Agents that are not waiting for others.
    fn running(&self) -> Vec<usize> {
        self.live.iter().filter(|(_, one)| one.out == 0).map(|(nth, _)| *nth).collect()
    }
}

proptest! {
    /// For every call graph and order: the concurrency and depth limits hold, and every agent ends.
    #[test]
    fn every_queued_subagent_gets_a_place(
        depth_max in 0u32..5,
        live_max in 1u32..5,
        total_max in 1u32..200,
        rounds in proptest::collection::vec(1u32..4, 1..4),
        order in proptest::collection::vec(any::<u8>(), 64),
    ) {
        let limits = GovernorLimits { depth_max, live_max, total_max, ..GovernorLimits::default() };
        let governor = Governor::new(limits);
        let mut office = AgentPool {
            governor,
            live: BTreeMap::new(),
            waiting: std::collections::VecDeque::new(),
            next: 0,
            refused: 0,
            main_out: 0,
        };
        office.call(None, 1, &rounds, 6);
        let mut turns = order.into_iter().cycle();
        for _ in 0..5000 {
            let running = office.running();
            prop_assert!(running.len() <= live_max as usize, "{running:?}");
            prop_assert!(office.governor.busy_slots() <= live_max);
            prop_assert!(office.governor.total <= total_max);
            prop_assert!(office.live.values().all(|one| one.depth <= depth_max));
            if running.is_empty() {
                break;
            }
            let nth = running[usize::from(turns.next().unwrap()) % running.len()];
            let (depth, round) = {
                let one = office.live.get_mut(&nth).unwrap();
                (one.depth, one.rounds.pop())
            };
            match round {
                Some(many) => office.call(Some(nth), depth + 1, &rounds[1..], many),
                None => office.end(nth),
            }
        }
        prop_assert!(office.live.is_empty() && office.waiting.is_empty(), "{:?}", office.live);
        prop_assert_eq!((office.main_out, office.governor.busy_slots()), (0, 0));
        prop_assert_eq!(office.next, office.governor.total as usize + office.refused as usize);
    }
}

#[test]
fn resumed_subagent_counts_once_with_its_earlier_usage() {
    let limits = GovernorLimits {
        total_max: 2,
        tokens_max: Some(100),
        live_max: 1,
        ..GovernorLimits::default()
    };
    let mut governor = Governor::new(limits);
    governor.restore(2, SubagentUsage { tokens: 60, micro_usd: None });
    let again = PermitRequest { again: true, ..request(None) };
    let permit = governor.admit(&id(1), &again, NOW).unwrap();
    assert_eq!((permit.tokens, governor.total), (Some(40), 2));
    governor.end(&id(1), SubagentUsage { tokens: 1, micro_usd: None });
    let refused = governor.admit(&id(3), &request(None), NOW).unwrap_err();
    assert_eq!(refused.limit, "delegation.maxTotal");
}
