//! Calls that take a change back.

use std::fs;

use serde_json::{Value, json};

use super::*;

#[test]
fn whole_files_are_hashed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    let mut bytes = vec![b'a'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
    fs::write(&path, &bytes).unwrap();
    assert_eq!(hash_of(&path), Some(sha256(&bytes)));
    *bytes.last_mut().unwrap() = b'b';
    fs::write(&path, &bytes).unwrap();
    assert_eq!(hash_of(&path), Some(sha256(&bytes)));
    assert_eq!(hash_of(dir.path()), None);
}

#[test]
fn undo_restores_the_exact_content() {
    let dir = tempfile::tempdir().unwrap();
    let text = "one\r\ntwo\u{feff}";
    let stored = sha256(text.as_bytes());
    fs::write(dir.path().join(&stored), text).unwrap();
    let changed = |before: &str| UndoableChange {
        path: "a".to_owned(),
        before: Some(before.to_owned()),
        after: Some(String::new()),
        ..UndoableChange::default()
    };
    let made = call(dir.path(), &changed(&stored)).unwrap();
    let arguments: Value = serde_json::from_str(&made.arguments).unwrap();
    assert_eq!((made.tool.as_str(), arguments["content"].as_str()), ("write_file", Some(text)));
    fs::write(dir.path().join(&stored), "damaged").unwrap();
    for before in [stored.as_str(), "../../etc/passwd", &sha256(b"other")] {
        let failure = call(dir.path(), &changed(before)).unwrap_err();
        assert_eq!(failure.code, ErrorCode::BeforeImageMissing, "{before}");
    }
    let new = UndoableChange {
        path: "it's -rf".to_owned(),
        before: None,
        after: Some(String::new()),
        ..UndoableChange::default()
    };
    let made = call(dir.path(), &new).unwrap();
    let arguments: Value = serde_json::from_str(&made.arguments).unwrap();
    assert_eq!(arguments["command"], "rm -- 'it'\"'\"'s -rf'");
    assert_eq!(arguments.get("unprotect"), None);
    let path = ".vscode/tasks.json".to_owned();
    let made = call(dir.path(), &UndoableChange { path, ..new }).unwrap();
    let arguments: Value = serde_json::from_str(&made.arguments).unwrap();
    assert_eq!(arguments["unprotect"], json!([".vscode/tasks.json"]));
}

#[test]
fn file_behind_a_link_is_not_the_changed_one() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().canonicalize().unwrap().join(name);
    fs::create_dir(at("w")).unwrap();
    fs::write(at("w/f"), "text").unwrap();
    let expected = Some(sha256(b"text"));
    assert_eq!(hash_of(&at("w/f")), expected);
    std::os::unix::fs::symlink(at("w"), at("folder")).unwrap();
    std::os::unix::fs::symlink(at("w/f"), at("link")).unwrap();
    assert_eq!([hash_of(&at("folder/f")), hash_of(&at("link"))], [None, None]);
}
