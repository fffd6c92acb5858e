//! No order of starts and ends gets past a limit.

use proptest::prelude::*;

use super::*;

fn id(nth: usize) -> InvocationId {
    InvocationId::new(format!("inv-{nth}"))
}

fn wish(parent: Option<InvocationId>) -> Wish {
    Wish { parent, ..Wish::default() }
}

const NOW: Duration = Duration::from_secs(100);

#[test]
fn of_a_hundred_at_once_so_many_are_let_in_as_may_be() {
    for live_max in [1, 3, 50, 100, 200] {
        let mut governor = Governor::new(GovernorLimits {
            live_max,
            total_max: 1000,
            ..GovernorLimits::default()
        });
        let admitted = (0..100).filter(|nth| governor.admit(&id(*nth), &wish(None), NOW).is_ok());
        assert_eq!(admitted.count(), live_max.min(100) as usize);
        assert_eq!(governor.live(), live_max.min(100));
    }
}

#[test]
fn is_exact_at_every_depth() {
    for depth_max in 0..=5 {
        let limits = GovernorLimits { depth_max, live_max: 100, ..GovernorLimits::default() };
        let mut governor = Governor::new(limits);
        let mut parent = None;
        for depth in 1..=depth_max + 3 {
            let own = id(depth as usize);
            match governor.admit(&own, &wish(parent.clone()), NOW) {
                Ok(permit) => assert_eq!(permit.depth, depth),
                Err(refused) => {
                    assert_eq!(depth, depth_max + 1, "refused exactly one deeper than allowed");
                    assert_eq!(refused.limit, "delegation.maxDepth");
                    assert_eq!(refused.frees, Frees::OwnWork);
                    break;
                }
            }
            assert!(depth <= depth_max);
            parent = Some(own);
        }
    }
}

#[test]
fn those_that_have_ended_take_no_room() {
    let limits = GovernorLimits { live_max: 4, total_max: 20_000, ..GovernorLimits::default() };
    let mut governor = Governor::new(limits);
    for nth in 0..10_000 {
        governor.admit(&id(nth), &wish(None), NOW).unwrap();
        let spent = Spent { tokens: 3, micro_usd: Some(2) };
        assert!(governor.end(&id(nth), spent).is_some());
        assert!(governor.end(&id(nth), spent).is_none(), "it ends once");
    }
    assert_eq!((governor.live(), governor.total()), (0, 10_000));
    assert_eq!(governor.spent(), Spent { tokens: 30_000, micro_usd: Some(20_000) });
}

#[test]
fn a_refusal_says_which_limit_and_what_frees_it() {
    let said = |limits: GovernorLimits, started: usize| {
        let mut governor = Governor::new(limits);
        for nth in 0..started {
            governor.admit(&id(nth), &wish(None), NOW).unwrap();
        }
        governor.admit(&id(started), &wish(None), NOW).unwrap_err().to_string()
    };
    let limits = GovernorLimits::default;
    assert_eq!(
        said(GovernorLimits { live_max: 2, ..limits() }, 2),
        "delegation.maxConcurrent (2) is reached: 0 left; wait until an agent has ended, then try \
         again"
    );
    assert!(said(GovernorLimits { total_max: 0, ..limits() }, 0).contains("maxTotal (0)"));
    assert!(
        said(GovernorLimits { tokens_max: Some(0), ..limits() }, 0).contains("budget.maxTokens")
    );
    let limits = GovernorLimits { tokens_max: Some(2), ..limits() };
    assert!(said(limits, 2).contains("wait until an agent has ended"));
}

#[test]
fn a_child_gets_no_more_than_its_parent_has() {
    let limits = GovernorLimits {
        depth_max: 2,
        tokens_max: Some(900),
        duration_max: Some(Duration::from_mins(1)),
        ..GovernorLimits::default()
    };
    let mut governor = Governor::new(limits);
    let short = Wish {
        duration_max: Some(Duration::from_secs(10)),
        tokens_max: Some(100),
        ..Wish::default()
    };
    let parent = governor.admit(&id(1), &short, NOW).unwrap();
    assert_eq!((parent.tokens, parent.until), (Some(100), Some(NOW + Duration::from_secs(10))));
    let later = NOW + Duration::from_secs(4);
    let child = governor.admit(&id(2), &wish(Some(id(1))), later).unwrap();
    assert_eq!((child.tokens, child.until), (Some(100), parent.until));
    let too_late = governor.admit(&id(3), &wish(Some(id(1))), NOW + Duration::from_secs(10));
    assert_eq!(too_late.unwrap_err().limit, "timeout");
}

proptest! {
    /// Whatever starts and ends in whatever order: no limit is passed, and what is handed out and
    /// spent is never more than there is.
    #[test]
    fn no_order_gets_past_a_limit(
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
                let parent = governor.permit(&id(whose)).is_some().then(|| id(whose));
                let above = parent.as_ref().and_then(|parent| governor.permit(parent));
                let before = governor.live();
                match governor.admit(&id(nth), &wish(parent), NOW) {
                    Ok(permit) => {
                        started += 1;
                        prop_assert_eq!(permit.depth, above.map_or(0, |above| above.depth) + 1);
                        prop_assert!(permit.tokens != Some(0));
                    }
                    Err(refused) => {
                        prop_assert_eq!(governor.live(), before, "a refusal takes nothing");
                        prop_assert_eq!(refused.left, 0);
                    }
                }
            } else if let Some(permit) = governor.permit(&id(which)) {
                let tokens = used.min(permit.tokens.unwrap_or(used));
                governor.end(&id(which), Spent { tokens, micro_usd: Some(tokens) });
            }
            let permits: Vec<Permit> = governor.live.values().copied().collect();
            prop_assert!(permits.iter().all(|permit| permit.depth <= depth_max));
            prop_assert!(governor.live() <= live_max);
            prop_assert!(governor.total() <= total_max && governor.total() == started);
            if let Some(max) = tokens_max {
                // A child's tokens are part of its parent's: only those of the main agent add up.
                let out: u64 = permits.iter().filter(|permit| permit.depth == 1)
                    .filter_map(|permit| permit.tokens).sum();
                prop_assert!(out == 0 || out + governor.spent().tokens <= max, "{out} of {max}");
            }
        }
    }
}
