//! The budget holds in every order of requests.

use proptest::prelude::*;

use super::*;

const DOLLAR: u64 = 1_000_000_000;

/// A dollar for a million tokens read, ten for a million written.
fn need(input: u64, output: u64) -> WorstCaseCost {
    WorstCaseCost {
        input,
        input_price: 1_000_000,
        output_price: 10_000_000,
        output,
        output_min: 1000,
    }
}

fn money(nano_usd: u64) -> Reservations {
    let budget = Budget { nano_usd: Some(nano_usd), tokens: None };
    Reservations::new(budget, Amount::default())
}

fn cents(cents: u64) -> Amount {
    Amount { nano_usd: cents * DOLLAR / 100, tokens: 0 }
}

#[test]
fn reserves_the_worst_case_and_releases_the_rest() {
    let mut ledger = money(DOLLAR);
    // 10 cents for reading, 50 for the reply.
    let amount = Amount { nano_usd: 600_000_000, tokens: 150_000 };
    assert_eq!(
        ledger.ask(1, need(100_000, 50_000)),
        ReservationResult::Granted { output: 50_000, amount }
    );
    assert_eq!(ledger.settle(1, cents(12)), []);
    assert_eq!((ledger.spent(), ledger.reserved()), (cents(12), Amount::default()));
}

#[test]
fn remaining_budget_limits_the_reply_length() {
    let mut ledger = money(DOLLAR);
    ledger.settle(0, cents(70));
    // 10 cents for reading leave 20 for the reply.
    let ReservationResult::Granted { output, .. } = ledger.ask(1, need(100_000, 50_000)) else {
        panic!()
    };
    assert_eq!(output, 20_000);
    assert_eq!(
        ledger.spent().plus(ledger.reserved()),
        Amount { nano_usd: DOLLAR, tokens: 120_000 }
    );
}

#[test]
fn budget_boundary_is_exact() {
    for (spent, fits) in [(89_000_000, true), (89_000_001, false)] {
        let mut ledger = money(100_000_000);
        ledger.settle(0, Amount { nano_usd: spent, tokens: 0 });
        // A tenth of a cent for reading, a cent for the shortest reply.
        let answer = ledger.ask(1, need(1000, 50_000));
        let granted = matches!(answer, ReservationResult::Granted { output: 1000, .. });
        assert_eq!(granted, fits, "{answer:?}");
        if !fits {
            let refused = BudgetRefusal {
                limit: BudgetRefusal::MONEY,
                cap: 100_000_000,
                spent,
                needed: 11_000_000,
            };
            assert_eq!(refused.left(), 10_999_999);
            assert_eq!(answer, ReservationResult::Refused(refused));
        }
    }
}

#[test]
fn request_without_budget_waits_for_open_reservations() {
    let mut ledger = money(DOLLAR);
    let granted = |answer: &ReservationResult| matches!(answer, ReservationResult::Granted { .. });
    assert!(granted(&ledger.ask(1, need(0, 100_000))));
    assert_eq!(ledger.ask(2, need(0, 100_000)), ReservationResult::Waits);
    // It would never fit.
    assert!(matches!(ledger.ask(3, need(2_000_000, 1000)), ReservationResult::Refused(_)));
    // It fits as soon as it is its turn.
    assert_eq!(ledger.ask(4, need(0, 2000)), ReservationResult::Waits);
    let decided = ledger.settle(1, cents(50));
    assert_eq!(decided.len(), 1, "the second takes all that is left");
    assert_eq!(decided[0].0, 2);
    assert!(matches!(decided[0].1, ReservationResult::Granted { output: 50_000, .. }));
    let decided = ledger.settle(2, cents(50));
    assert!(matches!(decided[..], [(4, ReservationResult::Refused(_))]), "{decided:?}");
}

#[test]
fn tokens_have_a_separate_limit() {
    let budget = Budget { nano_usd: None, tokens: Some(10_000) };
    let mut ledger = Reservations::new(budget, Amount { nano_usd: 0, tokens: 5000 });
    let free = WorstCaseCost { input_price: 0, output_price: 0, ..need(2000, 50_000) };
    let ReservationResult::Granted { output, amount } = ledger.ask(1, free) else { panic!() };
    assert_eq!((output, amount), (3000, Amount { nano_usd: 0, tokens: 5000 }));
    ledger.settle(1, amount);
    let ReservationResult::Refused(refused) = ledger.ask(2, free) else { panic!() };
    assert_eq!((refused.limit, refused.left(), refused.needed), (BudgetRefusal::TOKENS, 0, 3000));
}

#[test]
fn cost_above_the_reservation_ends_the_run() {
    let mut ledger = money(DOLLAR);
    ledger.ask(1, need(0, 1000));
    ledger.settle(1, cents(300));
    assert!(matches!(ledger.ask(2, need(0, 1000)), ReservationResult::Refused(_)));
    assert!(
        matches!(ledger.ask(3, need(0, 0)), ReservationResult::Granted { .. }),
        "what costs nothing"
    );
}

/// Next action on one of a few requests.
#[derive(Debug, Clone)]
enum ReservationAction {
    Ask {
        input: u64,
        output: u64,
    },
    /// The request at this index ends at this fraction of its reservation.
    End {
        place: usize,
        permille: u64,
    },
    /// It was never sent.
    Release {
        place: usize,
    },
    /// A second settlement.
    Again {
        place: usize,
    },
}

fn acts() -> impl Strategy<Value = Vec<ReservationAction>> {
    let act = prop_oneof![
        4 => (0..400_000_u64, 0..200_000_u64).prop_map(|(input, output)| ReservationAction::Ask { input, output }),
        3 => (any::<usize>(), 0..=1000_u64)
            .prop_map(|(place, permille)| ReservationAction::End { place, permille }),
        1 => any::<usize>().prop_map(|place| ReservationAction::Release { place }),
        1 => any::<usize>().prop_map(|place| ReservationAction::Again { place }),
    ];
    prop::collection::vec(act, 0..120)
}

proptest! {
    #[test]
    fn no_interleaving_exceeds_the_limit(
        acts in acts(),
        cap in 0..5 * DOLLAR,
        tokens in prop::option::of(0..3_000_000_u64),
    ) {
        let budget = Budget { nano_usd: Some(cap), tokens };
        let mut ledger = Reservations::new(budget, Amount::default());
        let mut out: Vec<(u64, Amount)> = Vec::new();
        let mut waiting: Vec<u64> = Vec::new();
        let mut spent = Amount::default();
        let mut last = 0;
        for act in acts {
            let settled = match act {
                ReservationAction::Ask { input, output } => {
                    last += 1;
                    vec![(last, ledger.ask(last, need(input, output)))]
                }
                ReservationAction::End { place, permille } if !out.is_empty() => {
                    let (id, held) = out.swap_remove(place % out.len());
                    let share = |whole: u64| whole * permille / 1000;
                    let cost =
                        Amount { nano_usd: share(held.nano_usd), tokens: share(held.tokens) };
                    spent = spent.plus(cost);
                    ledger.settle(id, cost)
                }
                ReservationAction::Release { place } if !out.is_empty() => {
                    let (id, _) = out.swap_remove(place % out.len());
                    ledger.settle(id, Amount::default())
                }
                ReservationAction::Again { place } if last > 0 => {
                    let id = 1 + (place as u64) % last;
                    if out.iter().any(|(held, _)| *held == id) || waiting.contains(&id) {
                        continue;
                    }
                    ledger.settle(id, Amount::default())
                }
                ReservationAction::End { .. } | ReservationAction::Release { .. } | ReservationAction::Again { .. } => continue,
            };
            for (id, answer) in settled {
                waiting.retain(|other| *other != id);
                match answer {
                    ReservationResult::Granted { amount, output } => {
                        prop_assert!(output > 0 || amount.tokens <= 400_000);
                        out.push((id, amount));
                    }
                    ReservationResult::Waits => waiting.push(id),
                    ReservationResult::Refused(refused) => prop_assert!(refused.needed > refused.left()),
                }
            }
            let held = out.iter().fold(Amount::default(), |sum, (_, amount)| sum.plus(*amount));
            prop_assert_eq!(ledger.reserved(), held);
            prop_assert_eq!(ledger.spent(), spent);
            let all = spent.plus(held);
            prop_assert!(all.nano_usd <= cap, "{} of {cap}", all.nano_usd);
            prop_assert!(tokens.is_none_or(|tokens| all.tokens <= tokens));
            // A request waits only while others are in flight.
            prop_assert!(waiting.is_empty() || !out.is_empty());
        }
    }
}
