//! Opening, repair, segments, reading back and locks, with real files.

mod damage;
mod disk;
mod folding;
mod killing;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use posse_actors::event::Durability;
use posse_actors::ports::Committed;
use tempfile::TempDir;

use super::*;
use crate::format::tests::{newlines, record};
use crate::verify::{Verified, verify_session};

struct JournalFolder(TempDir);

impl JournalFolder {
    fn new() -> JournalFolder {
        JournalFolder(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("state/projects/p/sessions/s")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn store(&self) -> FileJournal {
        FileJournal::lock(&self.dir(), SessionId::new("s")).unwrap()
    }

    fn small_segments(&self) -> FileJournal {
        self.sized(2000, u64::MAX)
    }

    /// Store with this segment size and this fold cache threshold.
    fn sized(&self, segment_bytes: u64, cache_bytes: u64) -> FileJournal {
        let (dir, id) = (self.dir(), SessionId::new("s"));
        FileJournal::with_sizes(&dir, id, segment_bytes, cache_bytes, Steps::default()).unwrap()
    }

    fn verify(&self) -> Verified {
        verify_session(&self.dir(), "s").unwrap()
    }

    /// A closed journal of `records` records.
    async fn written(records: u64) -> JournalFolder {
        let room = JournalFolder::new();
        let store = room.store();
        let opened = store.open().await.unwrap();
        submit(&opened, 1..=records, Durability::Synced).await.unwrap();
        room
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

async fn submit(
    opened: &OpenedJournal,
    numbers: std::ops::RangeInclusive<u64>,
    durability: Durability,
) -> Result<Committed, JournalError> {
    let (sender, receiver) = oneshot::channel();
    opened.journal.submit(JournalBatch {
        records: numbers.map(|number| Arc::new(record(number, "text"))).collect(),
        durability,
        done: Box::new(|end| sender.send(end).unwrap()),
    });
    receiver.await.unwrap()
}

async fn numbers(store: &FileJournal, from: u64, to: u64) -> Vec<u64> {
    store.read(from, to).await.unwrap().iter().map(|record| record.record).collect()
}

#[tokio::test]
async fn continues_where_it_ended() {
    let room = JournalFolder::written(3).await;
    let store = room.store();
    let opened = store.open().await.unwrap();
    assert_eq!((opened.last_record, opened.recent_ids.len(), &opened.repaired), (3, 3, &None));
    assert_eq!(submit(&opened, 4..=5, Durability::Written).await.unwrap().last_record, 5);
    assert_eq!(store.read(2, 3).await.unwrap(), [record(2, "text"), record(3, "text")]);
    assert_eq!(numbers(&store, 1, 99).await, [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&store, 7, 99).await, [0; 0]);
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (5, None));
    assert_eq!(room.names(), ["lock", "session.jsonl"]);
}

#[tokio::test]
async fn files_are_private_to_the_user() {
    let room = JournalFolder::written(1).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&room.0.path().join("state")), 0o700);
    assert_eq!(mode(&room.dir()), 0o700);
    assert_eq!((mode(&room.path("lock")), mode(&room.path(ACTIVE))), (0o600, 0o600));
}

#[tokio::test]
async fn a_journal_has_one_owner() {
    let room = JournalFolder::new();
    let store = room.store();
    let second = FileJournal::lock(&room.dir(), SessionId::new("s"));
    assert!(matches!(second, Err(JournalError::Locked { .. })));
    drop(store);
    room.store();
}

#[tokio::test]
async fn closes_a_journal_that_was_opened_before() {
    let room = JournalFolder::new();
    let store = room.store();
    let (first, unused) = (store.open().await.unwrap(), store.open().await.unwrap());
    let second = store.open().await.unwrap();
    for stale in [&first, &unused] {
        let end = submit(stale, 1..=1, Durability::Written).await;
        assert!(matches!(end, Err(JournalError::Closed)));
    }
    assert_eq!(submit(&second, 1..=1, Durability::Written).await.unwrap().last_record, 1);
    // The writer thread of the earlier journal must notice as well.
    let third = store.open().await.unwrap();
    assert!(submit(&second, 2..=2, Durability::Written).await.is_err());
    assert_eq!(third.last_record, 1);
    assert_eq!(submit(&third, 2..=2, Durability::Written).await.unwrap().last_record, 2);
    assert_eq!(room.verify().records, 2);
}

#[tokio::test]
async fn quarantines_a_torn_tail_and_continues() {
    let room = JournalFolder::written(3).await;
    let whole = fs::read(room.path(ACTIVE)).unwrap();
    fs::write(room.path(ACTIVE), &whole[..whole.len() - 10]).unwrap();
    let problem = room.verify().problem.unwrap();
    assert!(problem.torn_tail);
    assert_eq!(problem.line, 3);

    let store = room.store();
    let opened = store.open().await.unwrap();
    assert_eq!(opened.last_record, 2);
    let kept = usize::try_from(problem.offset).unwrap();
    let torn = &whole[kept..whole.len() - 10];
    let line = opened.repaired.clone().unwrap();
    let expected = format!(
        "journal repaired: the last line was cut off, in session.jsonl at byte {kept}; {} bytes \
         moved to session.jsonl.damaged-1, records up to 2 are kept",
        torn.len()
    );
    assert_eq!(line, expected);
    assert_eq!(fs::read(room.path("session.jsonl.damaged-1")).unwrap(), torn);
    submit(&opened, 3..=4, Durability::Synced).await.unwrap();
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (4, None));
}

#[tokio::test]
async fn keeps_every_damaged_tail() {
    let room = JournalFolder::written(3).await;
    for damaged in 1..=3 {
        let mut bytes = fs::read(room.path(ACTIVE)).unwrap();
        bytes.extend_from_slice(&[0; 4096]);
        bytes.extend_from_slice(b"\n{\"v\":1}\n");
        fs::write(room.path(ACTIVE), &bytes).unwrap();
        assert!(!room.verify().is_sound());
        let opened = room.store().open().await.unwrap();
        assert_eq!(opened.last_record, 3);
        assert!(opened.repaired.unwrap().contains(&format!("damaged-{damaged}")));
        let aside = fs::read(room.path(&format!("session.jsonl.damaged-{damaged}"))).unwrap();
        assert_eq!(aside.len(), 4096 + 9);
    }
}

#[tokio::test]
async fn recovers_all_records_before_a_flipped_byte_in_real_files() {
    let room = JournalFolder::written(12).await;
    let whole = fs::read(room.path(ACTIVE)).unwrap();
    for at in (0..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(room.path(ACTIVE), &bytes).unwrap();
        let before = newlines(&whole[..at]) as u64;
        let store = room.store();
        let opened = store.open().await.unwrap();
        assert_eq!(opened.last_record, before, "byte {at}");
        assert!(opened.repaired.is_some());
        submit(&opened, before + 1..=before + 1, Durability::Written).await.unwrap();
        drop((opened, store));
        assert_eq!(room.verify().problem, None);
    }
}

#[tokio::test]
async fn starts_over_when_no_record_is_valid() {
    let room = JournalFolder::written(1).await;
    fs::write(room.path(ACTIVE), "not a journal\n").unwrap();
    let opened = room.store().open().await.unwrap();
    assert_eq!(opened.last_record, 0);
    assert!(opened.repaired.unwrap().ends_with("nothing before it"));
}

/// A caller that wants to continue learns the problem, and the bytes stay in place.
#[tokio::test]
async fn a_fold_changes_nothing_if_no_record_is_valid() {
    for damage in ["not a journal\n", "{\"v\":1,\"rec"] {
        let room = JournalFolder::written(1).await;
        let mut bytes = damage.as_bytes().to_vec();
        if damage.ends_with('\n') {
            bytes.extend(fs::read(room.path(ACTIVE)).unwrap());
        }
        fs::write(room.path(ACTIVE), &bytes).unwrap();
        let error = room.store().replayed().unwrap_err();
        assert!(matches!(error, JournalError::Damaged { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("in session.jsonl at byte 0"), "{text}");
        assert_eq!(fs::read(room.path(ACTIVE)).unwrap(), bytes);
    }
}

#[tokio::test]
async fn does_not_touch_what_a_later_version_wrote() {
    let room = JournalFolder::written(1).await;
    let mut bytes = fs::read(room.path(ACTIVE)).unwrap();
    let (_, chain) = crate::format::split(&bytes).unwrap();
    let mut later = record(2, "text");
    later.v = 2;
    crate::format::append_line(&mut bytes, &chain, &later).unwrap();
    fs::write(room.path(ACTIVE), &bytes).unwrap();
    let error = room.store().open().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a later version of posse has to resume this session (format 2); it was not changed"
    );
    assert_eq!(fs::read(room.path(ACTIVE)).unwrap(), bytes);
}

#[tokio::test]
async fn continues_across_segments() {
    let room = JournalFolder::new();
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    for number in 1..=40 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
    }
    assert_eq!(numbers(&store, 1, 40).await, (1..=40).collect::<Vec<_>>());
    assert_eq!(numbers(&store, 17, 23).await, (17..=23).collect::<Vec<_>>());
    drop((opened, store));
    let verified = room.verify();
    assert_eq!((verified.records, &verified.problem), (40, &None));
    assert!(verified.segments > 3, "{verified:?}");

    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    assert_eq!(opened.last_record, 40);
    assert_eq!(numbers(&store, 1, 40).await, (1..=40).collect::<Vec<_>>());
    submit(&opened, 41..=41, Durability::Synced).await.unwrap();
    drop((opened, store));

    // Killed between closing a segment and opening the next one.
    let closed = room.verify().segments;
    fs::rename(room.path(ACTIVE), room.path(&format!("session-{closed:06}.jsonl"))).unwrap();
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    assert_eq!((opened.last_record, opened.recent_ids.is_empty()), (41, false));
    submit(&opened, 42..=42, Durability::Synced).await.unwrap();
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (42, None));
}

#[tokio::test]
async fn detects_swapped_segments() {
    let room = JournalFolder::new();
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    for number in 1..=30 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
    }
    drop((opened, store));
    let (one, two) = (room.path("session-000001.jsonl"), room.path("session-000002.jsonl"));
    fs::rename(&one, room.path("x")).unwrap();
    fs::rename(&two, &one).unwrap();
    fs::rename(room.path("x"), &two).unwrap();
    let problem = room.verify().problem.unwrap();
    assert_eq!((problem.file.as_str(), problem.line), ("session-000001.jsonl", 1));
    let store = room.small_segments();
    store.open().await.unwrap();
    assert!(matches!(store.read(1, 30).await, Err(JournalError::Damaged { .. })));
}

#[tokio::test]
async fn rewrites_the_file_after_a_failed_sync() {
    let room = JournalFolder::written(3).await;
    let store = room.store();
    lock(&store.shared.turn).suspect = true;
    let opened = store.open().await.unwrap();
    assert_eq!(opened.last_record, 3);
    submit(&opened, 4..=4, Durability::Synced).await.unwrap();
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (4, None));
    assert_eq!(room.names(), ["lock", "session.jsonl", "session.jsonl.damaged-1"]);
    let aside = fs::read(room.path("session.jsonl.damaged-1")).unwrap();
    assert_eq!(newlines(&aside), 3);
}

#[tokio::test]
async fn opens_a_large_journal_without_blocking_the_runtime() {
    let room = JournalFolder::written(3000).await;
    assert!(fs::metadata(room.path(ACTIVE)).unwrap().len() > SMALL_BYTES);
    let store = room.store();
    let opened = store.open().await.unwrap();
    assert_eq!((opened.last_record, opened.recent_ids.len()), (3000, 1024));
    assert_eq!(opened.recent_ids.last(), Some(&record(3000, "").id));
    assert_eq!(numbers(&store, 2990, 2992).await, [2990, 2991, 2992]);
}

#[tokio::test]
async fn answers_many_submitters_in_order() {
    let room = JournalFolder::new();
    let store = room.store();
    let opened = store.open().await.unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let next = Mutex::new(1_u64);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..250 {
                    // Numbers are assigned and submitted in one step, as the single writer does.
                    let mut next = lock(&next);
                    let heard = Arc::clone(&heard);
                    opened.journal.submit(JournalBatch {
                        records: vec![Arc::new(record(*next, "text"))],
                        durability: Durability::Synced,
                        done: Box::new(move |end| lock(&heard).push(end.unwrap().last_record)),
                    });
                    *next += 1;
                }
            });
        }
    });
    drop((opened, store));
    assert_eq!(*lock(&heard), (1..=2000).collect::<Vec<_>>());
    assert_eq!(room.verify().records, 2000);
}

#[expect(clippy::print_stderr, reason = "a report")]
/// Not assertions: prints rates, which depend on the machine and the profile.
#[tokio::test]
async fn reports_how_fast_it_opens_and_writes() {
    let room = JournalFolder::new();
    let start = Instant::now();
    let store = room.store();
    let opened = store.open().await.unwrap();
    eprintln!("a fresh session opens in {} us", start.elapsed().as_micros());

    let records: Vec<_> = (1..=100_000).map(|number| Arc::new(record(number, "text"))).collect();
    let start = Instant::now();
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    for record in records {
        let sender = (record.record == 100_000).then(|| sender.take().unwrap());
        opened.journal.submit(JournalBatch {
            records: vec![record],
            durability: Durability::Written,
            done: Box::new(move |end| {
                assert!(end.is_ok());
                if let Some(sender) = sender {
                    sender.send(()).unwrap();
                }
            }),
        });
    }
    receiver.await.unwrap();
    eprintln!("100,000 records are written in {} ms", start.elapsed().as_millis());
    let start = Instant::now();
    let last = store.open().await.unwrap().last_record;
    eprintln!("and opened again in {} ms", start.elapsed().as_millis());
    assert_eq!(last, 100_000);
}
