//! A walk along the chain, and what must never happen on it.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn busy() -> ProviderError {
    ProviderError::Overloaded {
        kind: crate::ports::OverloadKind::Overload,
        retry_after: None,
        source: "busy".into(),
    }
}

fn chain(links: usize) -> FallbackPolicy {
    FallbackPolicy::new(vec![Abilities::default(); links - 1])
}

fn choose(chain: &FallbackPolicy, now: Duration) -> CandidateChoice {
    chain.choose(Needs::default(), now, now + 600 * SECOND, &Limits::default())
}

fn asked(choice: CandidateChoice) -> usize {
    match choice {
        CandidateChoice::Ask { candidate, .. } => candidate,
        CandidateChoice::GiveUp { .. } => panic!("{choice:?}"),
    }
}

#[test]
fn first_model_is_asked_without_a_deadline_if_it_is_the_only_one() {
    assert_eq!(choose(&chain(1), SECOND), CandidateChoice::Ask { candidate: 0, until: None });
    assert_eq!(
        choose(&chain(2), SECOND),
        CandidateChoice::Ask { candidate: 0, until: Some(3 * SECOND) }
    );
}

#[test]
fn fallback_is_used_only_while_the_first_is_unavailable() {
    let (mut chain, limits) = (chain(3), Limits::default());
    chain.failed(0, &busy(), Some(11 * SECOND), SECOND, &limits);
    assert_eq!(asked(choose(&chain, SECOND)), 1);
    chain.switch(1);
    assert_eq!(chain.answered(1), None);
    assert_eq!(asked(choose(&chain, 12 * SECOND)), 1, "not at every turn");
    assert_eq!(asked(choose(&chain, 61 * SECOND)), 0);
    assert_eq!(chain.answered(0), Some(1));
    assert_eq!((chain.at(), asked(choose(&chain, 62 * SECOND))), (0, 0));
}

#[test]
fn probe_interval_of_an_unavailable_model_grows() {
    let (mut chain, limits) = (chain(2), Limits::default());
    let mut now = SECOND;
    chain.failed(0, &busy(), Some(now), now, &limits);
    chain.switch(1);
    for minutes in [1, 2, 4, 8, 16, 16] {
        let rest = Duration::from_mins(minutes);
        assert_eq!(asked(choose(&chain, (now + rest).saturating_sub(SECOND))), 1, "{minutes}");
        now += rest;
        assert_eq!(asked(choose(&chain, now)), 0, "{minutes}");
        chain.failed(0, &busy(), Some(now), now, &limits);
    }
}

#[test]
fn all_unavailable_waits_for_the_earliest_model() {
    let (mut chain, limits) = (chain(2), Limits::default());
    chain.failed(0, &busy(), Some(30 * SECOND), SECOND, &limits);
    chain.failed(1, &busy(), Some(20 * SECOND), SECOND, &limits);
    assert_eq!(
        choose(&chain, SECOND),
        CandidateChoice::Ask { candidate: 1, until: Some(22 * SECOND) }
    );
    let out_of_patience = chain.choose(Needs::default(), SECOND, 10 * SECOND, &limits);
    assert_eq!(out_of_patience, CandidateChoice::GiveUp { next_try: Some(20 * SECOND) });
}

#[test]
fn unsuitable_model_is_skipped() {
    let no_tools = Abilities { tools: Some(false), ..Abilities::default() };
    let no_images = Abilities { images: Some(false), ..Abilities::default() };
    let small = Abilities { window: Some(1000), ..Abilities::default() };
    let limits = Limits::default();
    let all = Needs { tools: true, images: true, tokens: 1001 };
    let mut chain = FallbackPolicy::new([no_tools, no_images, small]);
    chain.failed(0, &busy(), Some(30 * SECOND), SECOND, &limits);
    for candidate in 1..=3 {
        assert!(chain.unsuitable_reason(candidate, all).is_some(), "{candidate}");
    }
    let alone = chain.choose(all, SECOND, 600 * SECOND, &limits);
    assert_eq!(alone, CandidateChoice::Ask { candidate: 0, until: None });
    for (needs, candidate) in [
        (Needs::default(), 1),
        (Needs { tools: true, ..Needs::default() }, 2),
        (Needs { tools: true, images: true, tokens: 1000 }, 3),
    ] {
        assert_eq!(asked(chain.choose(needs, SECOND, 600 * SECOND, &limits)), candidate);
    }
}

#[test]
fn request_error_causes_no_failover() {
    let finals = [
        ProviderError::ContextFull { source: "x".into() },
        ProviderError::Unauthorized { source: "x".into() },
        ProviderError::Filtered { source: "x".into() },
        ProviderError::Rejected { source: "x".into() },
    ];
    for error in &finals {
        assert!(!may_fall_back(error), "{}", error.class());
    }
    assert!(may_fall_back(&busy()));
}

#[test]
fn requested_retry_asks_an_unavailable_model_only_without_alternatives() {
    let limits = Limits::default();
    let away = |chain: &mut FallbackPolicy, candidate| {
        chain.failed(candidate, &busy(), Some(3600 * SECOND), SECOND, &limits);
        chain.switch(candidate);
    };
    let choose =
        |chain: &FallbackPolicy| chain.choose(Needs::default(), SECOND, 60 * SECOND, &limits);
    let mut chain = FallbackPolicy::new([Abilities::default()]);
    away(&mut chain, 0);
    assert!(!chain.retry_now(SECOND, &limits), "the other one can be asked");
    assert_eq!(asked(choose(&chain)), 1);
    away(&mut chain, 1);
    assert!(matches!(choose(&chain), CandidateChoice::GiveUp { .. }));
    assert!(chain.retry_now(SECOND, &limits));
    assert_eq!(asked(choose(&chain)), 1, "the one that answered last");
    // Its later estimates count again.
    away(&mut chain, 1);
    assert_eq!(asked(choose(&chain)), 0);
    away(&mut chain, 0);
    assert!(matches!(choose(&chain), CandidateChoice::GiveUp { .. }));
}

#[test]
fn model_that_becomes_available_after_the_deadline_is_not_asked() {
    let (limits, now) = (Limits::default(), 60 * SECOND);
    let deadline = now + SECOND / 2;
    let back_at = deadline + SECOND;
    assert!(back_at < now + limits.failover_wait);
    let mut chain = FallbackPolicy::new([Abilities::default()]);
    for candidate in 0..2 {
        chain.failed(candidate, &busy(), Some(back_at), now, &limits);
    }
    let chosen = chain.choose(Needs::default(), now, deadline, &limits);
    assert!(matches!(chosen, CandidateChoice::GiveUp { next_try: Some(at) } if at == back_at));
}

proptest! {
    #[test]
    fn selection_ends_on_a_suitable_model(
        windows in prop::collection::vec(prop::option::of(1_u64..2000), 0..4),
        tokens in 0_u64..2000,
        retries in prop::collection::vec(prop::option::of(0_u64..900), 1..200),
    ) {
        let abilities = windows.iter().map(|window| Abilities { window: *window, ..Abilities::default() });
        let (mut chain, limits) = (FallbackPolicy::new(abilities), Limits::default());
        let needs = Needs { tokens, ..Needs::default() };
        let (mut now, deadline) = (SECOND, 601 * SECOND);
        for retry in retries {
            match chain.choose(needs, now, deadline, &limits) {
                CandidateChoice::GiveUp { next_try } => {
                    prop_assert!(next_try.is_none_or(|at| at > deadline));
                    break;
                }
                CandidateChoice::Ask { candidate, until } => {
                    prop_assert_eq!(chain.unsuitable_reason(candidate, needs), None);
                    prop_assert!(until.is_none_or(|until| until >= now));
                    prop_assert!(until.is_none_or(|until| until <= deadline + limits.failover_wait));
                    // Waits for an unavailable model, so that the walk is not a busy loop.
                    now = now.max(until.unwrap_or(now).saturating_sub(limits.failover_wait));
                    let next = retry.map(|after| now + Duration::from_secs(after));
                    chain.failed(candidate, &busy(), next, now, &limits);
                    chain.switch(candidate);
                }
            }
        }
    }
}
