//! Verification of signed files.

use crate::failure::ErrorCode;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

fn put(store: &SignedStore, name: &str, text: &str) {
    let text = text.to_owned();
    store.update(name, |_| Ok(Some(text))).unwrap();
}

fn store() -> (tempfile::TempDir, SignedStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SignedStore::new(dir.path().join("state"));
    (dir, store)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn stored_value_returns_and_reading_creates_nothing() {
    let (dir, store) = store();
    assert_eq!(store.read("grants").unwrap(), SignedFile::default());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    for text in ["", "one", "two\nlines\n", "hmac-sha256:\n"] {
        put(&store, "grants", text);
        let opened = store.read("grants").unwrap();
        assert_eq!(opened.text.as_deref(), Some(text));
        assert_eq!(opened.stamp, store.stamp("grants"));
    }
    assert_eq!(mode(&store.path("grants")), 0o600);
    assert_eq!(mode(&store.path("key")), 0o600);
    assert_eq!(mode(&store.folder()), 0o700);
    let before = store.stamp("grants");
    put(&store, "grants", "hmac-sha256:\n");
    assert_ne!(store.stamp("grants"), before, "the same text is another version");
}

#[test]
fn file_writable_by_others_is_rejected() {
    type Harm = fn(&SignedStore);
    let table: [(&str, &str, Harm); 15] = [
        ("changed", "changed by something other", |store| {
            let path = store.path("grants");
            let text = fs::read_to_string(&path).unwrap().replace("mine", "ours");
            fs::write(path, text).unwrap();
        }),
        ("a bit of the signature", "changed by something other", |store| {
            let path = store.path("grants");
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 2;
            bytes[last] = if bytes[last] == b'0' { b'1' } else { b'0' };
            fs::write(path, bytes).unwrap();
        }),
        ("cut", "changed by something other", |store| {
            let path = store.path("grants");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, &text[..text.len() - 1]).unwrap();
        }),
        ("empty", "changed by something other", |store| {
            fs::write(store.path("grants"), "").unwrap();
        }),
        ("not text", "damaged", |store| fs::write(store.path("grants"), [0xff, 0]).unwrap()),
        ("another file's", "changed by something other", |store| {
            put(store, "trust", "mine");
            fs::copy(store.path("trust"), store.path("grants")).unwrap();
        }),
        ("another's key", "changed by something other", |store| {
            fs::write(store.path("key"), [7; 32]).unwrap();
        }),
        ("no key", "is gone", |store| fs::remove_file(store.path("key")).unwrap()),
        ("half a key", "damaged", |store| fs::write(store.path("key"), [7; 16]).unwrap()),
        ("readable", "mode 0644", |store| chmod(&store.path("grants"), 0o644)),
        ("writable", "mode 0666", |store| chmod(&store.path("grants"), 0o666)),
        ("an open folder", "mode 0755", |store| chmod(&store.folder(), 0o755)),
        ("an open state", "mode 0777", |store| chmod(&store.state, 0o777)),
        ("two names", "2 hard links", |store| {
            fs::hard_link(store.path("grants"), store.state.join("other")).unwrap();
        }),
        ("a link", "a link", |store| {
            fs::rename(store.path("grants"), store.path("real")).unwrap();
            symlink("real", store.path("grants")).unwrap();
        }),
    ];
    for (name, why, harm) in table {
        let (_dir, store) = store();
        put(&store, "grants", "mine");
        harm(&store);
        let kept = fs::read(store.path("grants")).unwrap();
        let distrust = store.read("grants").expect_err(name);
        assert!(distrust.what.contains(why), "{name}: {distrust:?}");
        assert!(distrust.line().starts_with("CFG010: refusing to trust /"), "{name}");
        let refused = store.update("grants", |_| Ok(Some("new".to_owned())));
        assert_eq!(refused.expect_err(name).code, ErrorCode::FileNotTrusted);
        assert_eq!(fs::read(store.path("grants")).unwrap(), kept, "{name}: it is left as it is");
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn pipes_and_folders_are_rejected_without_blocking() {
    let (_dir, store) = store();
    put(&store, "trust", "x");
    nix::unistd::mkfifo(&store.path("grants"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(store.read("grants").unwrap_err().what.contains("not a file"));
    fs::remove_file(store.path("grants")).unwrap();
    fs::create_dir(store.path("grants")).unwrap();
    assert!(store.read("grants").is_err());
    assert_eq!(store.read("trust").unwrap().text.as_deref(), Some("x"));
}

#[test]
fn linked_folder_is_not_used() {
    let (dir, store) = store();
    put(&store, "grants", "x");
    fs::rename(store.folder(), dir.path().join("elsewhere")).unwrap();
    symlink(dir.path().join("elsewhere"), store.folder()).unwrap();
    assert!(store.read("grants").is_err());
}

#[test]
fn untrusted_file_is_moved_and_store_starts_empty() {
    let (_dir, store) = store();
    put(&store, "grants", "mine");
    fs::write(store.path("grants"), "theirs").unwrap();
    fs::write(store.path("key"), "short").unwrap();
    let aside = store.set_aside("grants", "bad-1").unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "theirs");
    assert_eq!(store.read("grants").unwrap().text, None);
    put(&store, "grants", "new");
    assert_eq!(store.read("grants").unwrap().text.as_deref(), Some("new"));
}

#[test]
fn concurrent_changes_are_kept_without_temporary_files() {
    let (_dir, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let add = |text: Option<&str>| {
                        let count: u32 = text.map_or(0, |text| text.parse().unwrap());
                        Ok::<_, Failure>(Some((count + 1).to_string()))
                    };
                    store.update("grants", add).unwrap();
                }
            });
        }
    });
    assert_eq!(store.read("grants").unwrap().text.as_deref(), Some("80"));
    fs::write(store.path(".new-1-1"), "left by somebody who was killed").unwrap();
    put(&store, "grants", "81");
    let mut names: Vec<_> =
        fs::read_dir(store.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["grants", "key", "lock"]);
}
