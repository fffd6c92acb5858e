//! Order, loss and giving up of the outbox.

use super::*;

fn durable(count: u32) -> Entry {
    Entry::Durable {
        id: RecordId { process: 1, count },
        fact: Durable::New {
            ts: 0,
            origin: None,
            event: Event::Warning { message: count.to_string() },
        },
        durability: Durability::Written,
        ack: None,
    }
}

fn passing(text: &str) -> Entry {
    Entry::Passing(Fact::Passing {
        ts: 0,
        session_id: SessionId::new("s"),
        origin: None,
        event: Event::TextDelta { text: text.to_owned() },
    })
}

fn names(facts: &[Fact]) -> Vec<String> {
    let name = |fact: &Fact| match fact {
        Fact::Stored(record) => format!("{}", record.record),
        Fact::Passing { event: Event::TextDelta { text }, .. } => text.clone(),
        Fact::Passing { .. } => "?".to_owned(),
    };
    facts.iter().map(name).collect()
}

#[test]
fn keeps_deltas_in_their_place_behind_what_is_being_written() {
    let outbox = Outbox::new(SessionId::new("s"));
    let mut last = 0;
    for entry in [passing("a"), durable(1), passing("b"), durable(2), passing("c")] {
        outbox.push(entry).unwrap();
    }
    let ready = outbox.take_ready(&mut last);
    assert_eq!(
        (names(&ready.passing), ready.records.len(), ready.entries),
        (vec!["a".to_owned()], 2, 4)
    );
    outbox.push(passing("d")).unwrap();
    assert_eq!(outbox.take_ready(&mut last).entries, 0);
    assert_eq!(names(&outbox.committed(4)), ["1", "b", "2", "c", "d"]);
    assert!(outbox.is_empty());
}

#[test]
fn submits_again_what_did_not_arrive_and_publishes_what_did() {
    let outbox = Outbox::new(SessionId::new("s"));
    let mut last = 0;
    for count in 1..=3 {
        outbox.push(durable(count)).unwrap();
    }
    outbox.take_ready(&mut last);
    let arrived = outbox.reconcile(&[RecordId { process: 1, count: 1 }], 1);
    assert_eq!(names(&arrived), ["1"]);
    let mut last = 1;
    let again = outbox.take_ready(&mut last);
    assert_eq!(again.records.iter().map(|record| record.record).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn leaves_nobody_waiting_when_it_gives_up() {
    let outbox = Outbox::new(SessionId::new("s"));
    let (ack, mut acknowledged) = oneshot::channel();
    let Entry::Durable { id, fact, durability, .. } = durable(1) else { unreachable!() };
    outbox.push(Entry::Durable { id, fact, durability, ack: Some(ack) }).unwrap();
    outbox.give_up("disk full".to_owned());
    assert!(acknowledged.try_recv().unwrap().is_err());
    assert!(outbox.push(durable(2)).is_err());
}
