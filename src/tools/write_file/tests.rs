//! Written content, kept properties, and denials.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
#[cfg(target_os = "linux")]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use posse_actors::conversation::text_of;
use posse_actors::ports::{Action, Operation};

use serde_json::Value;

use super::*;
use crate::testing::ToolFixture;
#[cfg(target_os = "linux")]
use crate::testing::{SetOnDrop, exchange};
use posse_base::hex::sha256;

fn write(desk: &ToolFixture, path: &str, content: &str) -> String {
    desk.ask("write_file", &arguments(path, content))
}

fn arguments(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

#[test]
fn creates_updates_and_reports_no_change() {
    let desk = ToolFixture::new();
    assert_eq!(write(&desk, "new/deep/f", "a\nb\n"), "created new/deep/f (2 lines, 4 bytes)");
    assert_eq!(write(&desk, "new/deep/f", "a\nc\n"), "updated new/deep/f (+1 -1, 4 bytes)");
    let before = fs::metadata(desk.path("work/new/deep/f")).unwrap().ino();
    assert_eq!(
        write(&desk, "new/deep/f", "a\nc\n"),
        "new/deep/f is unchanged: it has exactly this content already"
    );
    assert_eq!(desk.get("new/deep/f"), b"a\nc\n");
    assert_eq!(fs::metadata(desk.path("work/new/deep/f")).unwrap().ino(), before);
    assert_eq!(fs::read_dir(desk.path("work/new/deep")).unwrap().count(), 1);
}

#[test]
fn write_without_change_is_judged_as_a_read() {
    for dry_run in [false, true] {
        let desk = ToolFixture::set(|env| env.dry_run = dry_run);
        desk.put("f", "a\r\nb\r\n");
        // The line ends of the file are kept.
        let prepared = desk.prepare("write_file", &arguments("f", "a\nb\n")).unwrap();
        let action = &prepared.action;
        assert!(matches!(action.operations[..], [Operation::Read { .. }]), "{action:?}");
        assert_eq!(
            (action.summary.as_str(), action.detail.as_str()),
            ("read f, which has this content", "")
        );
        let output = desk.run("write_file", prepared);
        assert!(!output.is_error, "{output:?}");
        assert_eq!(output.metadata["verdict"], "unchanged");
        // A file that is changed before the call runs is no longer what was judged.
        let prepared = desk.prepare("write_file", &arguments("f", "a\nb\n")).unwrap();
        desk.put("f", "c\n");
        let text = text_of(&desk.run("write_file", prepared).content);
        assert!(text.starts_with("EDT004 f changed meanwhile"), "{text}");
        // Creating an empty file changes something.
        let action = desk.prepare("write_file", &arguments("new", "")).unwrap().action;
        assert!(matches!(action.operations[..], [Operation::Write { .. }]), "{action:?}");
    }
}

#[test]
fn preview_matches_the_result() {
    let desk = ToolFixture::new();
    desk.put("f", "a\n");
    let prepared = desk.prepare("write_file", &arguments("f", "b\n")).unwrap();
    let root = desk.path("work").display().to_string();
    let diff = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(
        prepared.action,
        Action {
            tool: "write_file".to_owned(),
            operations: vec![Operation::Write {
                path: format!("{root}/f"),
                relative: "f".to_owned(),
                root,
                repository: None,
                ways: Vec::new()
            }],
            summary: "write f (+1 -1)".to_owned(),
            detail: diff.to_owned(),
            digest: prepared.action.digest.clone(),
        }
    );
    assert_eq!(prepared.action.digest.len(), 64);
    let output = desk.run("write_file", prepared);
    assert_eq!(
        output.metadata,
        json!({
            "path": "f", "verdict": "updated", "bytes": 2, "added": 1, "removed": 1,
            "diff": diff, "before": sha256(b"a\n"), "after": sha256(b"b\n"), "notes": [],
        })
    );
}

#[test]
fn digest_covers_path_state_and_content() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "a\n");
    desk.put("g", "a\n");
    let digest = |path, content| {
        desk.prepare("write_file", &arguments(path, content)).unwrap().action.digest
    };
    let first = digest("f", "b");
    assert_eq!(digest("./f", "b"), first);
    assert_ne!(digest("g", "b"), first);
    assert_ne!(digest("f", "c"), first);
    fs::write(path, "z\n").unwrap();
    assert_ne!(digest("f", "b"), first);
}

#[test]
fn keeps_permissions_line_endings_and_mark() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "\u{feff}a\r\nb\r\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(
        write(&desk, "f", "a\nc\n"),
        "updated f (+1 -1, 9 bytes)\nnote: its CRLF line endings were kept\nnote: its byte order \
         mark was kept"
    );
    assert_eq!(desk.get("f"), "\u{feff}a\r\nc\r\n".as_bytes());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    write(&desk, "mixed", "a\r\nb\n");
    assert_eq!(write(&desk, "mixed", "c\n"), "updated mixed (+1 -2, 2 bytes)");
    assert_eq!(desk.get("mixed"), b"c\n");
}

#[test]
fn before_image_is_private() {
    let desk = ToolFixture::new();
    desk.put("f", "old\n");
    write(&desk, "f", "new\n");
    let blob = desk.path("session/blobs").join(sha256(b"old\n"));
    assert_eq!(fs::read(&blob).unwrap(), b"old\n");
    assert_eq!(fs::metadata(&blob).unwrap().permissions().mode() & 0o7777, 0o600);
    write(&desk, "f", "old\n");
    write(&desk, "f", "new\n");
    assert_eq!(fs::read_dir(desk.path("session/blobs")).unwrap().count(), 2);
}

#[test]
fn no_write_without_a_before_image() {
    let desk = ToolFixture::new();
    desk.put("f", "old\n");
    fs::write(desk.path("session/blobs"), "in the way").unwrap();
    assert_eq!(
        write(&desk, "f", "new\n"),
        "FIL001 the before-image: a folder on the way is not a folder"
    );
    assert_eq!(desk.get("f"), b"old\n");
}

#[test]
fn a_dry_run_changes_nothing() {
    let desk = ToolFixture::with(true);
    desk.put("f", "a\n");
    assert_eq!(
        write(&desk, "f", "b\n"),
        "dry run: nothing was written\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    );
    write(&desk, "new/g", "b\n");
    assert_eq!(desk.get("f"), b"a\n");
    assert!(!desk.path("work/new").exists());
    assert!(!desk.path("session/blobs").exists());
}

#[test]
fn inner_link_target_is_written_and_never_outside() {
    let desk = ToolFixture::new();
    desk.put("real", "a\n");
    symlink("real", desk.path("work/inside")).unwrap();
    symlink("made", desk.path("work/dangling")).unwrap();
    symlink("../outside/victim", desk.path("work/leaving")).unwrap();
    fs::write(desk.path("outside/victim"), "untouched").unwrap();

    assert_eq!(write(&desk, "inside", "b\n"), "updated real (+1 -1, 2 bytes)");
    assert_eq!(write(&desk, "dangling", "c\n"), "created made (1 line, 2 bytes)");
    assert!(fs::symlink_metadata(desk.path("work/inside")).unwrap().is_symlink());
    assert_eq!((desk.get("real"), desk.get("made")), (b"b\n".to_vec(), b"c\n".to_vec()));

    assert!(write(&desk, "leaving", "x").starts_with("ARG003 leaving is outside the workspace"));
    assert_eq!(fs::read(desk.path("outside/victim")).unwrap(), b"untouched");
}

#[test]
fn breaks_hard_links_and_says_so() {
    let desk = ToolFixture::new();
    desk.put("f", "a\n");
    fs::hard_link(desk.path("work/f"), desk.path("outside/same")).unwrap();
    assert_eq!(
        write(&desk, "f", "b\n"),
        "updated f (+1 -1, 2 bytes)\nnote: it had other names (hard links), which keep the old \
         content"
    );
    assert_eq!(fs::read(desk.path("outside/same")).unwrap(), b"a\n");
}

#[test]
fn target_changed_after_judgement_is_refused() {
    let desk = ToolFixture::new();
    let play = |path: &str, meanwhile: &dyn Fn()| {
        let prepared = desk.prepare("write_file", &arguments(path, "mine\n")).unwrap();
        meanwhile();
        let output = desk.run("write_file", prepared);
        text_of(&output.content).split(' ').next().unwrap().to_owned()
    };
    desk.put("f", "a\n");
    assert_eq!(play("f", &|| drop(desk.put("f", "theirs\n"))), "EDT004");
    assert_eq!(desk.get("f"), b"theirs\n");
    assert_eq!(play("f", &|| fs::remove_file(desk.path("work/f")).unwrap()), "EDT004");
    assert_eq!(play("f", &|| drop(desk.put("f", "theirs\n"))), "EDT004");
    assert_eq!(desk.get("f"), b"theirs\n");
    assert_eq!(play("f", &|| {}), "updated");

    // The folder is replaced by a link that leads out.
    desk.put("d/f", "a\n");
    fs::write(desk.path("outside/f"), "a\n").unwrap();
    let swap = || {
        fs::rename(desk.path("work/d"), desk.path("work/e")).unwrap();
        symlink("../outside", desk.path("work/d")).unwrap();
    };
    assert_eq!(play("d/f", &swap), "ARG003");
    assert_eq!(fs::read(desk.path("outside/f")).unwrap(), b"a\n");
}

#[test]
fn non_files_are_refused() {
    let desk = ToolFixture::new();
    fs::create_dir(desk.path("work/d")).unwrap();
    desk.put("binary", b"a\xff\n");
    let path = desk.put("locked", "a\n");
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    nix::unistd::mkfifo(&desk.path("work/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, expected) in [
        ("d", "ARG003 d is a folder; list_dir shows what is in it"),
        ("pipe", "ARG003 pipe is a pipe"),
        ("new/", "ARG002 new/ names a folder, not a file"),
        (".", "ARG003 . is a folder; list_dir shows what is in it"),
        ("locked", "FIL003 locked is read-only for everyone"),
        (
            "binary",
            "FIL005 binary is no UTF-8 text, so its content could not be brought back: move it away first with bash",
        ),
        ("locked/x", "FIL001 locked/x: a folder on the way is not a folder"),
    ] {
        assert_eq!(write(&desk, path, "x"), expected);
    }
}

#[test]
fn does_not_show_bytes_of_a_binary_file() {
    let desk = ToolFixture::new();
    desk.put("f", b"\0\x01");
    let prepared = desk.prepare("write_file", &arguments("f", "text\n")).unwrap();
    assert_eq!(prepared.action.detail, "--- a/f\n+++ b/f\nbinary files differ\n");
}

/// Linux only: exchanges two names atomically.
#[cfg(target_os = "linux")]
#[test]
fn folder_swapped_for_a_link_is_not_followed() {
    let desk = ToolFixture::new();
    let here = desk.path("work/d");
    fs::create_dir(&here).unwrap();
    symlink("../outside", desk.path("work/e")).unwrap();
    let done = AtomicBool::new(false);
    let still = Mutex::new(());
    let mut written = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _moving = still.lock().unwrap();
                exchange(&desk.path("work"), "d", "e");
                std::thread::yield_now();
                exchange(&desk.path("work"), "d", "e");
            }
        });
        let _done = SetOnDrop(&done);
        for number in 0..400 {
            // Pauses the exchange now and then, so that some writes succeed.
            let _still = (number % 20 == 0).then(|| still.lock().unwrap());
            let name = format!("d/f{number}");
            written += usize::from(write(&desk, &name, "x").starts_with("created"));
        }
    });
    assert_eq!(fs::read_dir(desk.path("outside")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&here).unwrap().count(), written);
    assert!(written >= 20, "writing where it is allowed works");
}
