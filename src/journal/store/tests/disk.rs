//! Full and read-only disks and removed files, on real file systems where possible.

use super::*;

#[tokio::test]
async fn restores_a_removed_or_replaced_journal() {
    for replaced in [false, true] {
        let room = JournalFolder::new();
        let store = room.store();
        let opened = store.open().await.unwrap();
        submit(&opened, 1..=3, Durability::Synced).await.unwrap();
        fs::remove_file(room.path(ACTIVE)).unwrap();
        if replaced {
            fs::write(room.path(ACTIVE), "something else\n").unwrap();
        }
        submit(&opened, 4..=4, Durability::Written).await.unwrap();
        assert_eq!((room.verify().records, room.verify().problem), (4, None), "{replaced}");
        submit(&opened, 5..=5, Durability::Synced).await.unwrap();
        drop((opened, store));
        assert_eq!((room.verify().records, room.verify().problem), (5, None), "{replaced}");
        assert_eq!(room.names(), ["lock", "session.jsonl"]);
    }
}

#[tokio::test]
async fn reports_an_error_when_the_folder_is_removed() {
    let room = JournalFolder::new();
    let store = room.store();
    let opened = store.open().await.unwrap();
    submit(&opened, 1..=3, Durability::Synced).await.unwrap();
    fs::remove_dir_all(room.dir()).unwrap();
    let end = submit(&opened, 4..=4, Durability::Written).await;
    assert!(matches!(end, Err(JournalError::Write { .. })), "{end:?}");
}

#[tokio::test]
async fn continues_the_segment_if_no_new_file_can_be_created() {
    let room = JournalFolder::new();
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    // A folder of that name simulates a disk without room for another file.
    fs::create_dir(room.path("session.jsonl.next")).unwrap();
    for number in 1..=20 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
    }
    assert_eq!((room.verify().records, room.verify().segments), (20, 1));
    fs::remove_dir(room.path("session.jsonl.next")).unwrap();
    drop((opened, store));
    let store = room.small_segments();
    let opened = store.open().await.unwrap();
    for number in 21..=30 {
        submit(&opened, number..=number, Durability::Written).await.unwrap();
    }
    drop((opened, store));
    assert_eq!((room.verify().records, room.verify().problem), (30, None));
    assert!(room.verify().segments > 1);
}

#[tokio::test]
async fn releases_the_reserved_space() {
    use std::os::unix::fs::MetadataExt;
    let room = JournalFolder::new();
    let store = room.store();
    let opened = store.open().await.unwrap();
    submit(&opened, 1..=3, Durability::Synced).await.unwrap();
    let kept = fs::metadata(room.path(ACTIVE)).unwrap();
    drop((opened, store));
    let after = fs::metadata(room.path(ACTIVE)).unwrap();
    assert_eq!(after.len(), kept.len());
    // Only where the file system can reserve space.
    if kept.blocks() * 512 > 1 << 20 {
        assert!(after.blocks() * 512 < 64 << 10, "{} blocks are left", after.blocks());
    }
}
