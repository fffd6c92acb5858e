//! Verification of signed files.

use crate::failure::ErrorCode;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

fn put(vault: &SignedStore, name: &str, text: &str) {
    let text = text.to_owned();
    vault.update(name, |_| Ok(Some(text))).unwrap();
}

fn vault() -> (tempfile::TempDir, SignedStore) {
    let dir = tempfile::tempdir().unwrap();
    let vault = SignedStore::new(dir.path().join("state"));
    (dir, vault)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn gives_back_what_was_put_and_makes_nothing_before() {
    let (dir, vault) = vault();
    assert_eq!(vault.read("grants").unwrap(), SignedFile::default());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    for text in ["", "one", "two\nlines\n", "hmac-sha256:\n"] {
        put(&vault, "grants", text);
        let opened = vault.read("grants").unwrap();
        assert_eq!(opened.text.as_deref(), Some(text));
        assert_eq!(opened.stamp, vault.stamp("grants"));
    }
    assert_eq!(mode(&vault.path("grants")), 0o600);
    assert_eq!(mode(&vault.path("key")), 0o600);
    assert_eq!(mode(&vault.folder()), 0o700);
    let before = vault.stamp("grants");
    put(&vault, "grants", "hmac-sha256:\n");
    assert_ne!(vault.stamp("grants"), before, "the same text is another version");
}

#[test]
fn believes_nothing_that_somebody_else_can_have_written() {
    type Harm = fn(&SignedStore);
    let table: [(&str, &str, Harm); 15] = [
        ("changed", "changed by something other", |vault| {
            let path = vault.path("grants");
            let text = fs::read_to_string(&path).unwrap().replace("mine", "ours");
            fs::write(path, text).unwrap();
        }),
        ("a bit of the seal", "changed by something other", |vault| {
            let path = vault.path("grants");
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 2;
            bytes[last] = if bytes[last] == b'0' { b'1' } else { b'0' };
            fs::write(path, bytes).unwrap();
        }),
        ("cut", "changed by something other", |vault| {
            let path = vault.path("grants");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, &text[..text.len() - 1]).unwrap();
        }),
        ("empty", "changed by something other", |vault| {
            fs::write(vault.path("grants"), "").unwrap();
        }),
        ("not text", "damaged", |vault| fs::write(vault.path("grants"), [0xff, 0]).unwrap()),
        ("another file's", "changed by something other", |vault| {
            put(vault, "trust", "mine");
            fs::copy(vault.path("trust"), vault.path("grants")).unwrap();
        }),
        ("another's key", "changed by something other", |vault| {
            fs::write(vault.path("key"), [7; 32]).unwrap();
        }),
        ("no key", "is gone", |vault| fs::remove_file(vault.path("key")).unwrap()),
        ("half a key", "damaged", |vault| fs::write(vault.path("key"), [7; 16]).unwrap()),
        ("readable", "mode 0644", |vault| chmod(&vault.path("grants"), 0o644)),
        ("writable", "mode 0666", |vault| chmod(&vault.path("grants"), 0o666)),
        ("an open folder", "mode 0755", |vault| chmod(&vault.folder(), 0o755)),
        ("an open state", "mode 0777", |vault| chmod(&vault.state, 0o777)),
        ("two names", "2 hard links", |vault| {
            fs::hard_link(vault.path("grants"), vault.state.join("other")).unwrap();
        }),
        ("a link", "a link", |vault| {
            fs::rename(vault.path("grants"), vault.path("real")).unwrap();
            symlink("real", vault.path("grants")).unwrap();
        }),
    ];
    for (name, why, harm) in table {
        let (_dir, vault) = vault();
        put(&vault, "grants", "mine");
        harm(&vault);
        let kept = fs::read(vault.path("grants")).unwrap();
        let distrust = vault.read("grants").expect_err(name);
        assert!(distrust.what.contains(why), "{name}: {distrust:?}");
        assert!(distrust.line().starts_with("CFG010: refusing to trust /"), "{name}");
        let refused = vault.update("grants", |_| Ok(Some("new".to_owned())));
        assert_eq!(refused.expect_err(name).code, ErrorCode::FileNotTrusted);
        assert_eq!(fs::read(vault.path("grants")).unwrap(), kept, "{name}: it is left as it is");
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn waits_for_no_pipe_and_reads_no_folder() {
    let (_dir, vault) = vault();
    put(&vault, "trust", "x");
    nix::unistd::mkfifo(&vault.path("grants"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(vault.read("grants").unwrap_err().what.contains("not a file"));
    fs::remove_file(vault.path("grants")).unwrap();
    fs::create_dir(vault.path("grants")).unwrap();
    assert!(vault.read("grants").is_err());
    assert_eq!(vault.read("trust").unwrap().text.as_deref(), Some("x"));
}

#[test]
fn a_folder_behind_a_link_is_not_used() {
    let (dir, vault) = vault();
    put(&vault, "grants", "x");
    fs::rename(vault.folder(), dir.path().join("elsewhere")).unwrap();
    symlink(dir.path().join("elsewhere"), vault.folder()).unwrap();
    assert!(vault.read("grants").is_err());
}

#[test]
fn sets_aside_what_is_not_believed_and_begins_anew() {
    let (_dir, vault) = vault();
    put(&vault, "grants", "mine");
    fs::write(vault.path("grants"), "theirs").unwrap();
    fs::write(vault.path("key"), "short").unwrap();
    let aside = vault.set_aside("grants", "bad-1").unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "theirs");
    assert_eq!(vault.read("grants").unwrap().text, None);
    put(&vault, "grants", "new");
    assert_eq!(vault.read("grants").unwrap().text.as_deref(), Some("new"));
}

#[test]
fn loses_no_change_of_many_at_once_and_nothing_is_left_over() {
    let (_dir, vault) = vault();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let add = |text: Option<&str>| {
                        let count: u32 = text.map_or(0, |text| text.parse().unwrap());
                        Ok::<_, Failure>(Some((count + 1).to_string()))
                    };
                    vault.update("grants", add).unwrap();
                }
            });
        }
    });
    assert_eq!(vault.read("grants").unwrap().text.as_deref(), Some("80"));
    fs::write(vault.path(".new-1-1"), "left by somebody who was killed").unwrap();
    put(&vault, "grants", "81");
    let mut names: Vec<_> =
        fs::read_dir(vault.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["grants", "key", "lock"]);
}
