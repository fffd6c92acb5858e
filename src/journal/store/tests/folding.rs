//! Folding with and without a fold cache gives the same result, regardless of the damage.

use posse_actors::replay::{Replayed, replay};

use super::*;

const FOLD_CACHE: &str = "fold-cache.json";

/// Expected state: the records read one by one.
async fn expected(room: &JournalFolder) -> Replayed {
    let copy = JournalFolder::new();
    fs::create_dir_all(copy.dir()).unwrap();
    for name in room
        .names()
        .iter()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "jsonl"))
    {
        fs::copy(room.path(name), copy.path(name)).unwrap();
    }
    let store = copy.small_segments();
    let opened = store.open().await.unwrap();
    let records = store.read(1, u64::MAX - 1).await.unwrap();
    assert_eq!(records.len() as u64, opened.last_record);
    replay(&records, None)
}

/// A session of sixty prompts with a fold cache after forty. `segment_bytes` decides if the
/// fold cache is in a closed segment.
async fn with_fold_cache(segment_bytes: u64) -> JournalFolder {
    let room = JournalFolder::new();
    for numbers in [1..=40, 41..=60] {
        let store = room.sized(segment_bytes, 1000);
        if *numbers.start() > 1 {
            let folded = store.replayed().unwrap();
            assert_eq!((folded.read, folded.spared), (40, 0));
            assert!(room.path(FOLD_CACHE).exists());
        }
        let opened = store.open().await.unwrap();
        for number in numbers {
            submit(&opened, number..=number, Durability::Written).await.unwrap();
        }
    }
    room
}

/// Folds without writing another fold cache.
fn folded(room: &JournalFolder, segment_bytes: u64) -> (Folded, FileJournal) {
    let store = room.sized(segment_bytes, u64::MAX);
    (store.replayed().unwrap(), store)
}

/// Large enough that no segment is closed and no fold cache thread starts.
const ONE_SEGMENT: u64 = 1 << 20;

#[tokio::test]
async fn records_before_a_fold_cache_are_not_read() {
    let room = with_fold_cache(ONE_SEGMENT).await;
    let whole = expected(&room).await;
    let (fold, store) = folded(&room, ONE_SEGMENT);
    assert_eq!((fold.spared, fold.read, fold.repaired), (40, 20, None));
    assert_eq!(fold.replay.finish(), whole);
    let opened = store.open().await.unwrap();
    assert_eq!((opened.last_record, opened.recent_ids.len()), (60, 60));
    submit(&opened, 61..=61, Durability::Synced).await.unwrap();
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (61, None));
}

#[tokio::test]
async fn a_fold_that_ends_where_the_fold_cache_is_reads_nothing_again() {
    let room = with_fold_cache(ONE_SEGMENT).await;
    let first = room.sized(ONE_SEGMENT, 1).replayed().unwrap();
    let (second, _store) = folded(&room, ONE_SEGMENT);
    assert_eq!((first.read, second.spared, second.read), (20, 60, 0));
    assert_eq!(second.replay.finish(), expected(&room).await);
}

#[tokio::test]
async fn a_damaged_fold_cache_is_as_good_as_none() {
    let room = with_fold_cache(ONE_SEGMENT).await;
    let whole = expected(&room).await;
    let good = fs::read(room.path(FOLD_CACHE)).unwrap();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(room.path(FOLD_CACHE), &bytes).unwrap();
        assert!(crate::fold_cache::FoldCache::read(&room.dir(), "s").is_none(), "{at}");
        if at % 500 == 0 {
            fs::write(room.path(FOLD_CACHE), &good[..at]).unwrap();
            let (fold, _store) = folded(&room, ONE_SEGMENT);
            assert_eq!((fold.spared, fold.read), (0, 60));
            assert_eq!(fold.replay.finish(), whole);
        }
    }
    fs::remove_file(room.path(FOLD_CACHE)).unwrap();
    assert_eq!(folded(&room, ONE_SEGMENT).0.replay.finish(), whole);
    fs::write(room.path(FOLD_CACHE), &good).unwrap();
    assert_eq!(folded(&room, ONE_SEGMENT).0.spared, 40);
}

#[tokio::test]
async fn a_fold_cache_of_another_journal_is_not_used() {
    let room = with_fold_cache(ONE_SEGMENT).await;
    // The same session with as many, but different records.
    let other = JournalFolder::new();
    let store = other.sized(ONE_SEGMENT, u64::MAX);
    let opened = store.open().await.unwrap();
    let (sender, receiver) = oneshot::channel();
    opened.journal.submit(JournalBatch {
        records: (1..=60).map(|number| Arc::new(record(number, "texT"))).collect(),
        durability: Durability::Synced,
        done: Box::new(|end| sender.send(end.is_ok()).unwrap()),
    });
    assert!(receiver.await.unwrap());
    drop((opened, store));
    fs::copy(room.path(FOLD_CACHE), other.path(FOLD_CACHE)).unwrap();
    let (fold, _store) = folded(&other, ONE_SEGMENT);
    assert_eq!((fold.spared, fold.read), (0, 60));
    assert_eq!(fold.replay.finish(), expected(&other).await);
}

#[tokio::test]
async fn a_journal_that_lost_its_end_is_folded_without_the_fold_cache() {
    let room = with_fold_cache(ONE_SEGMENT).await;
    let whole = fs::read(room.path(ACTIVE)).unwrap();
    for lines in [0, 1, 39, 40, 41] {
        let length: usize =
            whole.split_inclusive(|byte| *byte == b'\n').take(lines).map(<[u8]>::len).sum();
        fs::write(room.path(ACTIVE), &whole[..length]).unwrap();
        let (fold, _store) = folded(&room, ONE_SEGMENT);
        let spared = if lines < 40 { 0 } else { 40 };
        assert_eq!((fold.spared, fold.read), (spared, lines as u64 - spared), "{lines}");
        assert_eq!(fold.replay.finish().last_record, lines as u64);
    }
    // Damage before the fold cache in the file that is verified whole: the records after it are
    // lost.
    let mut bytes = whole.clone();
    bytes[whole.len() / 3] ^= 1;
    fs::write(room.path(ACTIVE), &bytes).unwrap();
    let kept = newlines(&whole[..whole.len() / 3]) as u64;
    let (fold, _store) = folded(&room, ONE_SEGMENT);
    assert_eq!((fold.spared, fold.read), (0, kept));
    assert!(fold.repaired.is_some());
}

#[tokio::test]
async fn closing_a_segment_makes_a_fold_cache_there() {
    let room = JournalFolder::new();
    let store = room.sized(2000, u64::MAX - 1);
    let opened = store.open().await.unwrap();
    let mut made = 0;
    for number in 1..=60 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
        if number % 20 != 0 {
            continue;
        }
        // Written by another thread: wait for a fold cache that is further on.
        let start = Instant::now();
        while start.elapsed().as_secs() < 10 {
            let place = crate::fold_cache::FoldCache::read(&room.dir(), "s")
                .map_or(0, |fold_cache| fold_cache.place.record - 1);
            if place > made {
                made = place;
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(made > 0, "no fold cache was made");
    }
    drop((opened, store));
    let whole = expected(&room).await;
    let (fold, _store) = folded(&room, 2000);
    assert!(fold.spared >= 20, "{} of 60", fold.spared);
    assert_eq!(fold.spared + fold.read, 60);
    assert_eq!(fold.replay.finish(), whole);
}

#[tokio::test]
async fn a_fold_is_the_same_for_every_fold_cache_position() {
    let whole = {
        let room = JournalFolder::written(30).await;
        expected(&room).await
    };
    for put_down in 0..=30 {
        let room = JournalFolder::new();
        let store = room.sized(1500, 1);
        let opened = store.open().await.unwrap();
        for number in 1..=put_down {
            submit(&opened, number..=number, Durability::Written).await.unwrap();
        }
        drop((opened, store));
        let store = room.sized(1500, 1);
        assert_eq!(store.replayed().unwrap().replay.finish().last_record, put_down);
        let opened = store.open().await.unwrap();
        for number in put_down + 1..=30 {
            submit(&opened, number..=number, Durability::Written).await.unwrap();
        }
        drop((opened, store));
        let (fold, _store) = folded(&room, 1500);
        assert_eq!(fold.spared + fold.read, 30);
        assert_eq!(fold.replay.finish(), whole, "{put_down}");
    }
}
