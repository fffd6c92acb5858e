//! Tests of the temporary folder of a session.

use std::os::unix::fs::symlink;
use std::time::Instant;

use super::*;

fn eventually(what: &str, is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn users_of_one_session_share_a_private_folder() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("session/tmp");
    let one = SessionTemporary::of(&folder).unwrap();
    let other = SessionTemporary::of(&folder).unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    fs::write(folder.join("file"), "x").unwrap();
    drop(one);
    assert!(folder.join("file").exists());
    drop(other);
    assert_eq!(fs::read_dir(place.path().join("session")).unwrap().count(), 0);
    // The next session begins with an empty folder.
    let next = SessionTemporary::of(&folder).unwrap();
    assert_eq!(fs::read_dir(next.folder()).unwrap().count(), 0);
}

#[test]
fn removed_folder_is_created_again() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("session/tmp");
    let one = SessionTemporary::of(&folder).unwrap();
    fs::remove_dir_all(place.path().join("session")).unwrap();
    let other = SessionTemporary::of(&folder).unwrap();
    assert!(!Arc::ptr_eq(&one, &other));
    fs::write(folder.join("file"), "x").unwrap();
    drop(one);
    assert!(folder.join("file").exists(), "the end of the first one removes nothing of the second");
}

#[test]
fn folder_of_others_or_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("tmp");
    fs::write(&folder, "a file").unwrap();
    SessionTemporary::of(&folder).unwrap_err();
    fs::remove_file(&folder).unwrap();
    symlink("/", &folder).unwrap();
    SessionTemporary::of(&folder).unwrap_err();
}

#[test]
fn removing_one_removes_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let kept = outside.join("kept");
    let temporary = |fill: &dyn Fn(&Path)| {
        fs::write(&kept, "kept").unwrap();
        let folder = place.path().join("session/tmp");
        let temporary = SessionTemporary::of(&folder).unwrap();
        fill(&folder);
        drop(temporary);
        eventually("it stays", || fs::read_dir(place.path().join("session")).unwrap().count() == 0);
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    };
    temporary(&|path| {
        symlink(&outside, path.join("folder")).unwrap();
        symlink(&kept, path.join("file")).unwrap();
        symlink("/", path.join("root")).unwrap();
        symlink("..", path.join("up")).unwrap();
    });
    // The folder itself was replaced by a link or a file.
    temporary(&|path| {
        fs::remove_dir(path).unwrap();
        symlink(&outside, path).unwrap();
    });
    temporary(&|path| {
        fs::remove_dir(path).unwrap();
        fs::write(path, "a file").unwrap();
    });
    // Names that are not UTF-8, inaccessible folders, and deep nesting.
    temporary(&|path| {
        use std::os::unix::ffi::OsStrExt;
        let odd = path.join(std::ffi::OsStr::from_bytes(b"\xff\n*"));
        fs::create_dir_all(odd.join("a").join("b".repeat(200))).unwrap();
        fs::set_permissions(&odd, Permissions::from_mode(0o0)).unwrap();
    });
    temporary(&|path| {
        let mut deep = path.to_owned();
        for _ in 0..300 {
            deep.push("deep");
        }
        fs::create_dir_all(&deep).unwrap();
    });
}

#[test]
fn abandoned_folders_are_removed_and_others_stay() {
    let place = tempfile::tempdir().unwrap();
    let sessions = place.path().join("project/sessions");
    let session = |name: &str| sessions.join(name).join("tmp");
    let running = SessionTemporary::of(&session("running")).unwrap();
    for name in ["running", "killed"] {
        fs::create_dir_all(session(name)).unwrap();
        fs::write(session(name).join("file"), "x").unwrap();
    }
    let removed = sessions.join("killed").join(REMOVED);
    fs::create_dir_all(removed.join("folder")).unwrap();
    fs::create_dir_all(sessions.join("other")).unwrap();
    fs::write(sessions.join("other/journal.jsonl"), "{}").unwrap();
    let outside = place.path().join("outside/tmp");
    fs::create_dir_all(&outside).unwrap();
    symlink(place.path().join("outside"), sessions.join("link")).unwrap();
    remove_abandoned(place.path());
    assert!(session("running").join("file").exists());
    assert!(!session("killed").exists() && !removed.exists());
    assert!(sessions.join("other/journal.jsonl").exists() && outside.exists());
    drop(running);
}

#[test]
fn full_folder_is_emptied_after_its_last_command() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("tmp");
    let temporary = SessionTemporary::of(&folder).unwrap();
    let (one, other) = (temporary.enter(), temporary.enter());
    fs::write(folder.join("file"), "x").unwrap();
    one.measure();
    eventually("it is measured", || !temporary.is_measuring.load(Ordering::Acquire));
    assert!(!one.is_full());
    temporary.content().is_full = true;
    drop(one);
    assert!(folder.join("file").exists());
    drop(other);
    assert!(!temporary.content().is_full);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn size_is_that_of_files_and_folders_without_links() {
    let place = tempfile::tempdir().unwrap();
    let inner = place.path().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), vec![b'x'; 100_000]).unwrap();
    symlink("/", inner.join("root")).unwrap();
    let exceeds = |bytes, entries| exceeds(place.path(), bytes, entries);
    assert!(exceeds(90_000, 100));
    assert!(!exceeds(1_000_000, 100));
    assert!(exceeds(1_000_000, 3));
    assert!(!exceeds(1_000_000, 4));
}
