//! Order, loss and giving up of the outbox.

use proptest::prelude::*;

use super::*;

fn durable(count: u32) -> OutboxEntry {
    OutboxEntry::Durable {
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

fn passing(text: &str) -> OutboxEntry {
    OutboxEntry::Ephemeral(AnnouncedEvent::Ephemeral {
        ts: 0,
        session_id: SessionId::new("s"),
        origin: None,
        event: Event::TextDelta { text: text.to_owned() },
    })
}

fn facts(all: Vec<Announceable>) -> Vec<AnnouncedEvent> {
    all.into_iter().map(|one| one.fact).collect()
}

fn names(facts: &[AnnouncedEvent]) -> Vec<String> {
    let name = |fact: &AnnouncedEvent| match fact {
        AnnouncedEvent::Stored(record) => format!("{}", record.record),
        AnnouncedEvent::Ephemeral { event: Event::TextDelta { text }, .. } => text.clone(),
        AnnouncedEvent::Ephemeral { .. } => "?".to_owned(),
    };
    facts.iter().map(name).collect()
}

#[test]
fn deltas_stay_behind_records_being_written() {
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
    assert_eq!(names(&facts(outbox.committed(4))), ["1", "b", "2", "c", "d"]);
    assert!(outbox.is_empty());
}

#[test]
fn lost_records_are_resubmitted_and_stored_ones_published() {
    let outbox = Outbox::new(SessionId::new("s"));
    let mut last = 0;
    for count in 1..=3 {
        outbox.push(durable(count)).unwrap();
    }
    outbox.take_ready(&mut last);
    let arrived = outbox.reconcile(&[RecordId { process: 1, count: 1 }], 1);
    assert_eq!(names(&facts(arrived)), ["1"]);
    let mut last = 1;
    let again = outbox.take_ready(&mut last);
    assert_eq!(again.records.iter().map(|record| record.record).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn answers_every_caller_when_it_gives_up() {
    let outbox = Outbox::new(SessionId::new("s"));
    let (ack, mut acknowledged) = oneshot::channel();
    let OutboxEntry::Durable { id, fact, durability, .. } = durable(1) else { unreachable!() };
    outbox.push(OutboxEntry::Durable { id, fact, durability, ack: Some(ack) }).unwrap();
    outbox.give_up("disk full".to_owned());
    assert!(acknowledged.try_recv().unwrap().is_err());
    assert!(outbox.push(durable(2)).is_err());
}

#[test]
fn stored_record_implies_that_earlier_ones_are_stored() {
    let outbox = Outbox::new(SessionId::new("s"));
    let mut last = 0;
    for count in 1..=3 {
        outbox.push(durable(count)).unwrap();
    }
    outbox.take_ready(&mut last);
    // Only the newest ids are given back.
    let arrived = outbox.reconcile(&[RecordId { process: 1, count: 2 }], 2);
    assert_eq!(names(&facts(arrived)), ["1", "2"]);
    assert!(!outbox.is_empty());
}

#[tokio::test]
async fn announces_room_if_all_records_were_already_stored() {
    let outbox = Arc::new(Outbox::new(SessionId::new("s")));
    let mut last = 0;
    let count = u32::try_from(ROOM).unwrap();
    for count in 1..=count {
        outbox.push(durable(count)).unwrap();
    }
    outbox.take_ready(&mut last);
    let waiting = outbox.room.notified();
    let ids: Vec<_> = (1..=count).map(|count| RecordId { process: 1, count }).collect();
    assert_eq!(outbox.reconcile(&ids, last).len(), ROOM);
    assert!(futures_util::FutureExt::now_or_never(waiting).is_some());
}

/// Random action on an outbox.
#[derive(Debug, Clone)]
enum OutboxAction {
    Durable,
    Ephemeral,
    Submit,
    Commit,
    /// The writer dies; this many of the batches in flight have arrived.
    Crash(usize),
}

fn happens() -> impl Strategy<Value = OutboxAction> {
    prop_oneof![
        6 => Just(OutboxAction::Durable),
        4 => Just(OutboxAction::Ephemeral),
        4 => Just(OutboxAction::Submit),
        3 => Just(OutboxAction::Commit),
        1 => (0..3_usize).prop_map(OutboxAction::Crash),
    ]
}

/// Model of journal, writer and published events.
#[derive(Default)]
struct OutboxModel {
    last: u64,
    stored: Vec<RecordId>,
    in_flight: VecDeque<ReadyEntries>,
    published: Vec<AnnouncedEvent>,
}

impl OutboxModel {
    fn submit(&mut self, outbox: &Outbox) {
        let mut ready = outbox.take_ready(&mut self.last);
        self.published.append(&mut ready.passing);
        if ready.entries > 0 {
            self.in_flight.push_back(ready);
        }
    }

    fn store(&mut self) -> Option<ReadyEntries> {
        let ready = self.in_flight.pop_front()?;
        for record in &ready.records {
            assert_eq!(record.record, self.stored.len() as u64 + 1, "numbers have no hole");
            self.stored.push(record.id);
        }
        Some(ready)
    }

    fn commit(&mut self, outbox: &Outbox) {
        if let Some(ready) = self.store() {
            self.published.extend(facts(outbox.committed(ready.entries)));
        }
    }

    fn crash(&mut self, outbox: &Outbox, arrived: usize) {
        for _ in 0..arrived {
            self.store();
        }
        self.in_flight.clear();
        self.last = self.stored.len() as u64;
        let recent = &self.stored[self.stored.len().saturating_sub(4)..];
        self.published.extend(facts(outbox.reconcile(recent, self.last)));
    }
}

proptest! {
    #[test]
    fn publishes_every_record_once_and_in_order(
        all in prop::collection::vec(happens(), 0..80),
    ) {
        let outbox = Outbox::new(SessionId::new("s"));
        let mut world = OutboxModel::default();
        let mut pushed = Vec::new();
        for happens in all {
            match happens {
                OutboxAction::Durable => {
                    let count = u32::try_from(pushed.len()).unwrap();
                    outbox.push(durable(count)).unwrap();
                    pushed.push(count.to_string());
                }
                OutboxAction::Ephemeral => {
                    let text = format!("d{}", pushed.len());
                    outbox.push(passing(&text)).unwrap();
                    pushed.push(text);
                }
                OutboxAction::Submit => world.submit(&outbox),
                OutboxAction::Commit => world.commit(&outbox),
                OutboxAction::Crash(arrived) => world.crash(&outbox, arrived),
            }
        }
        world.submit(&outbox);
        while !world.in_flight.is_empty() {
            world.commit(&outbox);
        }
        let mut told = Vec::new();
        for fact in &world.published {
            let event = match fact {
                AnnouncedEvent::Stored(record) => &record.event,
                AnnouncedEvent::Ephemeral { event, .. } => event,
            };
            if let Event::Warning { message: text } | Event::TextDelta { text } = event {
                told.push(text.clone());
            }
        }
        prop_assert_eq!(told, pushed);
        prop_assert!(outbox.is_empty());
    }
}
