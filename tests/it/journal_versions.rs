//! Journals of older versions can always be opened; those of later versions are read-only.

use std::fs;
use std::path::{Path, PathBuf};

use posse::journal::FileJournal;
use posse_actors::conversation::{Message, SessionId};
use posse_actors::ports::JournalError;
use posse_actors::replay::Replayed;
use sha2::{Digest, Sha256};

use crate::posse::Machine;

/// A stored session in a folder named after its id.
struct Fixture {
    name: String,
    dir: PathBuf,
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journals");
    let versions = folders(&root).into_iter().flat_map(|version| folders(&version));
    let all = versions.flat_map(|what| {
        let name = what.strip_prefix(&root).unwrap().display().to_string();
        folders(&what).into_iter().map(move |dir| Fixture { name: name.clone(), dir })
    });
    let all: Vec<Fixture> = all.collect();
    assert!(all.len() >= 3, "{} fixtures", all.len());
    all
}

impl Fixture {
    fn id(&self) -> String {
        self.dir.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// A machine with this session only, and the folder of the session there.
    fn stored(&self) -> (Machine, PathBuf) {
        let machine = Machine::new();
        let dir = machine.path("posse/state/projects/example-00000000/sessions").join(self.id());
        fs::create_dir_all(&dir).unwrap();
        for entry in fs::read_dir(&self.dir).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
        (machine, dir)
    }
}

fn folded(dir: &Path, id: &str) -> Replayed {
    let journal = FileJournal::lock(dir, SessionId::new(id)).unwrap();
    let folded = journal.replayed().unwrap();
    assert_eq!(folded.repaired, None);
    folded.replay.finish()
}

#[test]
fn every_old_journal_opens_folds_and_exports() {
    for fixture in fixtures() {
        let (name, id) = (&fixture.name, fixture.id());
        let (machine, dir) = fixture.stored();
        let before = fs::read(dir.join("session.jsonl")).unwrap();
        for args in [
            &["sessions", "verify", &id] as &[&str],
            &["sessions", "list", "--all", "--json"],
            &["sessions", "show", &id],
            &["sessions", "show", "--json", &id],
            &["sessions", "export", "--format", "md", &id],
            &["sessions", "export", "--format", "html", &id],
        ] {
            let ended = machine.posse(args);
            assert_eq!(ended.code, Some(0), "{name}: {args:?}: {}", ended.stderr);
            assert!(!ended.stdout.is_empty(), "{name}: {args:?}");
        }
        let replayed = folded(&dir, &id);
        let lines = before.split_inclusive(|byte| *byte == b'\n').count() as u64;
        assert_eq!(replayed.last_record, lines, "{name}");
        assert!(replayed.started.is_some() && replayed.turns > 0, "{name}");
        let results =
            |message: &&std::sync::Arc<Message>| matches!(***message, Message::Tool { .. });
        let answered = replayed.messages.iter().filter(results).count();
        assert!(answered > 0, "{name}");
        match name.as_str() {
            "v001/finished" => {
                assert_eq!((answered, replayed.ended.as_deref()), (6, Some("completed")));
            }
            "v001/denied" => assert_eq!(answered, 1),
            "v001/killed" => {
                assert_eq!((replayed.ended, replayed.open_calls.len()), (None, 1));
                assert!(replayed.open_calls[0].started && replayed.open_calls[0].effect);
            }
            other => panic!("{other}: say here what it must come to"),
        }
        assert_eq!(fs::read(dir.join("session.jsonl")).unwrap(), before, "{name} was changed");
    }
}

/// Appends a line as another version would write it: `edit` creates it from the last line.
fn add_line(file: &Path, edit: impl Fn(String) -> String) {
    let bytes = fs::read(file).unwrap();
    let last = bytes.split_inclusive(|byte| *byte == b'\n').next_back().unwrap();
    let text = String::from_utf8(last.to_vec()).unwrap();
    let (body, hash) =
        text.trim_end().strip_suffix("\"}").unwrap().split_once(",\"hash\":\"").unwrap();
    let body = edit(body.to_owned());
    let digest = Sha256::new().chain_update(hash).chain_update(&body).finalize();
    let hex: String =
        digest[..16].iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let line = format!("{body},\"hash\":\"{hex}\"}}\n");
    fs::write(file, [bytes, line.into_bytes()].concat()).unwrap();
}

/// The next record of the denied session, of this version and type.
fn later(file: &Path, version: u32, kind: &str) -> u64 {
    let count = fs::read(file).unwrap().split_inclusive(|byte| *byte == b'\n').count() as u64;
    add_line(file, |body| {
        let (_, rest) = body.split_once(",\"ts\":").unwrap();
        let (head, _) = rest.split_once(",\"type\":").unwrap();
        let number = count + 1;
        format!("{{\"v\":{version},\"record\":{number},\"ts\":{head},\"type\":\"{kind}\",\"new\":1")
    });
    count
}

fn denied() -> Fixture {
    fixtures().into_iter().find(|fixture| fixture.name == "v001/denied").unwrap()
}

#[test]
fn unknown_optional_records_are_ignored() {
    let fixture = denied();
    let (machine, dir) = fixture.stored();
    let count = later(&dir.join("session.jsonl"), 1, "something.new");
    machine.posse(&["sessions", "verify", &fixture.id()]).assert_code(0);
    machine.posse(&["sessions", "show", &fixture.id()]).assert_code(0);
    assert_eq!(folded(&dir, &fixture.id()).last_record, count + 1);
}

#[test]
fn journals_of_later_versions_are_read_only() {
    let fixture = denied();
    let (machine, dir) = fixture.stored();
    let count = later(&dir.join("session.jsonl"), 2, "something.essential");
    let before = fs::read(dir.join("session.jsonl")).unwrap();
    let shown = machine.posse(&["sessions", "show", &fixture.id()]);
    assert_eq!(shown.code, Some(8), "{}", shown.stderr);
    assert!(shown.stdout.contains("write a secret"), "{}", shown.stdout);
    assert!(shown.stderr.contains("a later version of posse wrote the rest"), "{}", shown.stderr);
    let verified = machine.posse(&["sessions", "verify", "--json", &fixture.id()]);
    let json: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
    assert_eq!(
        (&json[0]["problem"]["kind"], &json[0]["records"]),
        (&"newer".into(), &count.into())
    );
    let journal = FileJournal::lock(&dir, SessionId::new(fixture.id())).unwrap();
    let error = journal.replayed().unwrap_err();
    assert!(matches!(error, JournalError::Newer { version: 2 }), "{error}");
    let says = "a later version of posse has to resume this session (format 2)";
    assert!(error.to_string().starts_with(says), "{error}");
    drop(journal);
    assert_eq!(fs::read(dir.join("session.jsonl")).unwrap(), before);
}
