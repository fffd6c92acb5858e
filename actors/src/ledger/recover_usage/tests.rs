//! Lost records, and the usage recovered from them.

use proptest::prelude::*;

use super::*;
use crate::conversation::{InvocationId, SessionId};
use crate::event::RecordId;

fn record(number: u64, event: Event) -> StoredRecord {
    let origin = Origin {
        invocation_id: InvocationId::new("i"),
        parent_invocation_id: None,
        agent: "build".to_owned(),
        agent_path: "build".to_owned(),
    };
    StoredRecord {
        v: 1,
        record: number,
        id: RecordId { process: 1, count: u32::try_from(number).unwrap() },
        ts: 0,
        session_id: SessionId::new("s"),
        origin: Some(Arc::new(origin)),
        event,
    }
}

fn reserved(request: u64) -> Event {
    Event::BudgetReserved { request, nano_usd: 100, tokens: 1000 }
}

fn used(request: u64, cost: u64) -> Event {
    let billing = Billing {
        request,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        answered_by: None,
        attempt: 1,
        outcome: "answered".to_owned(),
        counted: UsageSource::Reported,
        claimed: None,
        prices: None,
        cost_nano_usd: Some(cost),
        charged: None,
    };
    let usage = Usage { input_tokens: Some(cost), output_tokens: Some(1), ..Usage::default() };
    Event::ModelUsage { turn: 1, usage, billing: Some(Box::new(billing)) }
}

/// Requests from 1 on: each is held, then most have a line and some were not made.
fn session(ends: &[u8]) -> Vec<StoredRecord> {
    let mut events = Vec::new();
    for (request, end) in (1..).zip(ends) {
        events.push(reserved(request));
        match end % 4 {
            0 => events.push(Event::BudgetReleased { request }),
            // It was under way when the process ended.
            1 => (),
            cost => events.push(used(request, u64::from(cost) * 30)),
        }
    }
    (1..).zip(events).map(|(number, event)| record(number, event)).collect()
}

fn folded(records: &[StoredRecord]) -> Accounts {
    let mut accounts = Accounts::default();
    for record in records {
        accounts.push(record);
    }
    accounts
}

fn with(mut accounts: Accounts, salvaged: &[RecoveredUsage]) -> Accounts {
    for RecoveredUsage { origin, event } in salvaged {
        accounts.follow(origin.as_deref(), event);
    }
    accounts
}

fn doubted(records: &[StoredRecord]) -> Vec<UnverifiedRecord> {
    records.iter().map(|record| UnverifiedRecord { record: record.clone(), intact: true }).collect()
}

#[test]
fn lines_after_damage_are_counted_and_marked() {
    let records = session(&[2, 2, 1, 0, 2]);
    let whole = folded(&records);
    let proven = folded(&records[..2]);
    let unproved =
        UnverifiedRecords { records: doubted(&records[3..]), unreadable: 1, floor: None };
    let salvaged = proven.recover(&unproved);
    let after = with(proven.clone(), &salvaged);
    // The third is held at its worst; the unreadable line was the second's reservation.
    assert_eq!(after.spent(), whole.spent());
    assert_eq!((after.total.nano_usd, after.total.unpriced), (180, 2));
    assert_eq!(after.total.cost_text(), "at least $0.00000018 (2 requests without a known price)");
    assert_eq!(after.agents["build"].nano_usd, 180);
    assert_eq!(after.last_request, 6);
    for RecoveredUsage { event, .. } in &salvaged {
        let Event::ModelUsage { billing: Some(billing), .. } = event else { panic!("{event:?}") };
        assert_eq!(billing.outcome, LOST_REPLY);
    }
    assert_eq!(proven.recover(&UnverifiedRecords::default()), []);
}

#[test]
fn altered_line_is_counted_as_uncertain() {
    let records = session(&[2]);
    let mut unproved =
        UnverifiedRecords { records: doubted(&records), ..UnverifiedRecords::default() };
    unproved.records[1].intact = false;
    let after = with(Accounts::default(), &Accounts::default().recover(&unproved));
    assert_eq!((after.total.nano_usd, after.total.unpriced), (60, 1));
}

#[test]
fn external_usage_is_a_lower_bound() {
    let records = session(&[2, 2, 1]);
    let whole = folded(&records);
    let proven = folded(&records[..2]);
    let floor = Some(Box::new(whole.clone()));
    let after = |unproved: &UnverifiedRecords| with(proven.clone(), &proven.recover(unproved));
    let blind = after(&UnverifiedRecords { floor: floor.clone(), ..UnverifiedRecords::default() });
    assert_eq!((blind.spent(), blind.total.nano_usd), (whole.spent(), whole.total.nano_usd));
    assert!(blind.total.unpriced > 0 && blind.last_request >= whole.last_request);
    // It is not counted twice.
    let seen = after(&UnverifiedRecords { records: doubted(&records[2..]), unreadable: 0, floor });
    assert_eq!(seen.spent(), whole.spent());
}

proptest! {
    /// For any lost records and any end of the verified part, the remaining budget never grows, as
    /// long as one record of each request is readable or its number is known.
    #[test]
    fn budget_never_grows(
        ends in prop::collection::vec(any::<u8>(), 1..12),
        cut in any::<prop::sample::Index>(),
        lost in any::<prop::sample::Index>(),
    ) {
        let records = session(&ends);
        let (before, behind) = records.split_at(cut.index(records.len()));
        let gone = lost.index(behind.len());
        let mut left = doubted(behind);
        let removed = left.remove(gone);
        let proven = folded(before);
        let unproved = UnverifiedRecords { records: left, unreadable: 1, floor: None };
        let after = with(proven.clone(), &proven.recover(&unproved));
        let whole = folded(&records);
        // The last reservation of all can be lost without a trace: nothing was held after it.
        let traceless = matches!(removed.record.event, Event::BudgetReserved { .. })
            && gone + 1 == behind.len();
        if !traceless {
            prop_assert!(after.spent().nano_usd >= whole.spent().nano_usd);
            prop_assert!(after.spent().tokens >= whole.spent().tokens);
        }
        prop_assert!(after.total.nano_usd + 90 >= whole.total.nano_usd);
        prop_assert!(after.total.unpriced > 0, "a sum without all of its lines is an at least");
    }
}
