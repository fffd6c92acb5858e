//! Disk faults, one at a time, through a file that fails on command.

use std::io::ErrorKind;
use std::sync::mpsc;

use super::*;
use crate::format::tests::{newlines, record};
use crate::walk::start_of;

/// Scripted results and contents of the fake disk.
#[derive(Debug, Default)]
struct Fake {
    bytes: Vec<u8>,
    /// Results of the next writes; `Ok` limits the bytes accepted.
    writes: VecDeque<Result<usize, ErrorKind>>,
    sync: Option<ErrorKind>,
    truncate: Option<ErrorKind>,
    syncs: usize,
    calls: usize,
    scarce: bool,
    reserves: usize,
    releases: usize,
}

#[derive(Debug, Clone, Default)]
struct FakeDisk(Arc<Mutex<Fake>>);

impl Disk for FakeDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut fake = lock(&self.0);
        fake.calls += 1;
        let taken = match fake.writes.pop_front() {
            Some(Err(kind)) => return Err(kind.into()),
            Some(Ok(bound)) => bound.min(bytes.len()),
            None => bytes.len(),
        };
        fake.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut fake = lock(&self.0);
        fake.syncs += 1;
        fake.sync.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut fake = lock(&self.0);
        if let Some(kind) = fake.truncate {
            return Err(kind.into());
        }
        fake.bytes.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn has_space(&self) -> bool {
        !lock(&self.0).scarce
    }

    fn reserve(&mut self, _: u64) -> bool {
        let mut fake = lock(&self.0);
        fake.reserves += 1;
        !fake.scarce
    }

    fn release(&mut self, _: u64) {
        lock(&self.0).releases += 1;
    }

    fn restore_if_removed(&mut self, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}

/// Results reported to the callers, in order: the last record, or the error and its cause.
struct AckLog(Vec<Result<u64, String>>);

/// Queues all batches before the thread starts and returns their results.
fn play(
    disk: &FakeDisk,
    batches: &[(std::ops::RangeInclusive<u64>, Durability)],
) -> (AckLog, WriterTurn) {
    let turn = Mutex::new(WriterTurn { generation: 1, suspect: false });
    let heard = replay_with(disk, batches, &turn, 1);
    (heard, turn.into_inner().unwrap())
}

fn replay_with(
    disk: &FakeDisk,
    batches: &[(std::ops::RangeInclusive<u64>, Durability)],
    turn: &Mutex<WriterTurn>,
    generation: u64,
) -> AckLog {
    let queue = BatchQueue::default();
    let (sender, receiver) = mpsc::channel();
    for (numbers, durability) in batches {
        let sender = sender.clone();
        let batch = JournalBatch {
            records: numbers.clone().map(|number| Arc::new(record(number, "text"))).collect(),
            durability: *durability,
            done: Box::new(move |end| {
                let end = end.map(|committed| committed.last_record);
                sender.send(end.map_err(|error| chain(&error))).unwrap();
            }),
        };
        queue.push(batch).unwrap();
    }
    queue.close();
    let tail = tail_of(disk);
    run(&queue, turn, generation, tail);
    drop(sender);
    AckLog(receiver.into_iter().collect())
}

fn tail_of(disk: &FakeDisk) -> Tail {
    let dir = std::env::temp_dir();
    let spare = disk.clone();
    Tail {
        disk: Some(Box::new(disk.clone())),
        next_disk: Box::new(move || Ok(Box::new(spare.clone()) as Box<dyn Disk>)),
        end: start_of("s"),
        new_entries: Vec::new(),
        segments: Arc::new(Mutex::new(Segments::new(dir))),
        segment_bytes: u64::MAX,
        rotate_from: 0,
        scarce: false,
        closed: Box::new(|_| ()),
        steps: Steps::default(),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

fn lines(disk: &FakeDisk) -> usize {
    newlines(&lock(&disk.0).bytes)
}

#[test]
fn all_pending_batches_are_written_and_synced_together() {
    let disk = FakeDisk::default();
    let batches: Vec<_> = (1..=100)
        .map(|n| (n..=n, if n % 2 == 0 { Durability::Synced } else { Durability::Written }))
        .collect();
    let (heard, _) = play(&disk, &batches);
    assert_eq!(heard.0, (1..=100).map(Ok).collect::<Vec<_>>());
    let fake = lock(&disk.0);
    assert_eq!((fake.calls, fake.syncs), (1, 1));
}

#[test]
fn syncs_only_on_request() {
    let disk = FakeDisk::default();
    let (heard, _) = play(&disk, &[(1..=3, Durability::Written), (4..=4, Durability::Written)]);
    assert_eq!(heard.0, [Ok(3), Ok(4)]);
    assert_eq!(lock(&disk.0).syncs, 0);
}

#[test]
fn continues_after_short_and_interrupted_writes() {
    let disk = FakeDisk::default();
    let answers = [Ok(1), Err(ErrorKind::Interrupted), Ok(7), Err(ErrorKind::WouldBlock), Ok(2)];
    lock(&disk.0).writes.extend(answers);
    let (heard, _) = play(&disk, &[(1..=2, Durability::Written)]);
    assert_eq!(heard.0, [Ok(2)]);
    assert_eq!(lines(&disk), 2);
}

#[test]
fn truncates_a_partial_group_when_the_disk_is_full() {
    let disk = FakeDisk::default();
    lock(&disk.0).writes.extend([Ok(300), Err(ErrorKind::StorageFull)]);
    let (heard, turn) = play(&disk, &[(1..=2, Durability::Synced), (3..=3, Durability::Written)]);
    assert_eq!(heard.0.len(), 2);
    for end in heard.0 {
        assert!(end.unwrap_err().starts_with("there is no room for the journal: "));
    }
    assert_eq!(lock(&disk.0).bytes, b"");
    assert_eq!((lock(&disk.0).syncs, turn.suspect), (0, false));
}

#[test]
fn reports_a_read_only_file_system() {
    let disk = FakeDisk::default();
    let read_only = Err(ErrorKind::ReadOnlyFilesystem);
    lock(&disk.0).writes.extend([Ok(usize::MAX), read_only]);
    lock(&disk.0).truncate = Some(ErrorKind::ReadOnlyFilesystem);
    let groups = GROUP_BYTES as u64 / 200;
    let batches = [
        (1..=groups, Durability::Written),
        (groups + 1..=groups + 1, Durability::Synced),
        (groups + 2..=groups + 2, Durability::Written),
    ];
    let (heard, turn) = play(&disk, &batches);
    assert_eq!(heard.0[0], Ok(groups), "what was written stays written");
    for end in &heard.0[1..] {
        // A full disk may have space again and is waited for; this error is permanent.
        let said = end.as_ref().unwrap_err();
        assert!(said.starts_with("the journal cannot be written: "), "{said}");
        assert!(said.contains("read-only"), "{said}");
    }
    assert_eq!((lines(&disk) as u64, lock(&disk.0).syncs, turn.suspect), (groups, 0, false));
}

#[test]
fn writes_nothing_after_a_failure() {
    let disk = FakeDisk::default();
    lock(&disk.0).writes.push_back(Err(ErrorKind::StorageFull));
    // More than one group: the second one meets a disk that would work again.
    let groups = GROUP_BYTES as u64 / 200;
    let (heard, _) = play(
        &disk,
        &[(1..=groups, Durability::Written), (groups + 1..=groups + 1, Durability::Written)],
    );
    assert_eq!(heard.0.len(), 2);
    let last = heard.0[1].as_ref().unwrap_err();
    assert!(last.contains("an earlier write failed"), "{last}");
    assert_eq!((lines(&disk), lock(&disk.0).calls), (0, 1));
}

#[test]
fn stops_writing_after_a_failed_sync() {
    let disk = FakeDisk::default();
    lock(&disk.0).sync = Some(ErrorKind::Other);
    let (heard, turn) = play(&disk, &[(1..=1, Durability::Written), (2..=2, Durability::Synced)]);
    assert!(heard.0.iter().all(Result::is_err));
    assert!(turn.suspect);
    assert_eq!((lines(&disk), lock(&disk.0).syncs), (0, 1));
}

#[test]
fn answers_all_batches_if_truncation_fails() {
    let disk = FakeDisk::default();
    lock(&disk.0).writes.extend([Ok(10), Err(ErrorKind::Other)]);
    lock(&disk.0).truncate = Some(ErrorKind::Other);
    let (heard, _) = play(&disk, &[(1..=1, Durability::Written)]);
    assert!(heard.0[0].is_err());
    assert_eq!(lock(&disk.0).bytes.len(), 10);
}

#[test]
fn refuses_a_gap_and_keeps_the_rest() {
    let disk = FakeDisk::default();
    let batches =
        [(1..=1, Durability::Written), (3..=3, Durability::Synced), (2..=2, Durability::Written)];
    let (heard, _) = play(&disk, &batches);
    let gap = "the journal cannot be written: record 3 does not follow record 1".to_owned();
    assert_eq!(heard.0, [Ok(1), Err(gap), Ok(2)]);
    assert_eq!((lines(&disk), lock(&disk.0).syncs), (2, 0));
}

#[test]
fn writes_only_while_it_holds_the_turn() {
    let disk = FakeDisk::default();
    let turn = Mutex::new(WriterTurn { generation: 2, suspect: false });
    let heard = replay_with(&disk, &[(1..=1, Durability::Synced)], &turn, 1);
    assert_eq!(heard.0, [Err("the journal is closed".to_owned())]);
    assert_eq!(lock(&disk.0).calls, 0);
}

#[test]
fn survives_a_callback_that_panics() {
    let disk = FakeDisk::default();
    let queue = BatchQueue::default();
    let (sender, receiver) = mpsc::channel();
    let batch = |number: u64, done: JournalDone| JournalBatch {
        records: vec![Arc::new(record(number, "text"))],
        durability: Durability::Written,
        done,
    };
    queue.push(batch(1, Box::new(|_| panic!("a bug of the listener")))).unwrap();
    queue.push(batch(2, Box::new(move |end| sender.send(end.is_ok()).unwrap()))).unwrap();
    queue.close();
    let tail = Tail {
        disk: Some(Box::new(disk.clone())),
        next_disk: Box::new(|| Err(ErrorKind::Other.into())),
        end: start_of("s"),
        new_entries: Vec::new(),
        segments: Arc::new(Mutex::new(Segments::new(std::env::temp_dir()))),
        segment_bytes: u64::MAX,
        rotate_from: 0,
        scarce: false,
        closed: Box::new(|_| ()),
        steps: Steps::default(),
    };
    run(&queue, &Mutex::new(WriterTurn { generation: 1, suspect: false }), 1, tail);
    assert_eq!(receiver.recv(), Ok(true));
    assert!(queue.push(batch(3, Box::new(|_| ()))).is_err());
}

/// Submits these batches and returns the space reports that each received.
fn scarcity(disk: &FakeDisk, batches: Vec<(Vec<u64>, Durability)>) -> Vec<bool> {
    let queue = BatchQueue::default();
    let (sender, receiver) = mpsc::channel();
    let mut tail = tail_of(disk);
    for (numbers, durability) in batches {
        let sender = sender.clone();
        let batch = JournalBatch {
            records: numbers.into_iter().map(|number| Arc::new(record(number, "text"))).collect(),
            durability,
            done: Box::new(move |end| sender.send(end.unwrap().scarce).unwrap()),
        };
        queue.push(batch).unwrap();
    }
    queue.close();
    tail.end.record = 1;
    run(&queue, &Mutex::new(WriterTurn { generation: 1, suspect: false }), 1, tail);
    drop(sender);
    receiver.into_iter().collect()
}

#[test]
fn reports_low_space_and_releases_the_reserve() {
    let disk = FakeDisk::default();
    let batches = || vec![(vec![1], Durability::Written), (vec![], Durability::Written)];
    assert_eq!(scarcity(&disk, batches()), [false, false]);
    assert_eq!(lock(&disk.0).releases, 1);
    lock(&disk.0).scarce = true;
    assert_eq!(scarcity(&disk, batches()), [true, true]);
    assert_eq!(lock(&disk.0).reserves, 0, "nothing was synced");
    let synced = vec![(vec![], Durability::Written), (vec![1], Durability::Synced)];
    assert_eq!(scarcity(&disk, synced), [true, true]);
    assert_eq!(lock(&disk.0).reserves, 1);
    assert_eq!(lines(&disk), 3);
}
