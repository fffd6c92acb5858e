//! `/undo`: finds the last change that is still in effect and builds the call that reverts it.
//!
//! The call belongs to the user and is judged and recorded like every other. The old content comes
//! from the before-image; a file that differs from the result of the change is not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::checkpoint::{ChangedFile, RestoreChoice, Store};
use crate::commands::rewind::restore_call;
use crate::tools::{bash, write_file};
use nix::fcntl::OFlag;
use posse_actors::conversation::InvocationId;
use posse_actors::event::{Event, StoredRecord};
use posse_actors::root_session::UserCall;
use serde_json::{Value, json};

use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::hex::{hex, sha256};
use crate::journal::{self, StateDir};
use crate::protected::is_protected;
use posse_base::resolved_path;
use posse_base::shell_words::quoted;
use sha2::{Digest, Sha256};

/// Part of the message that tells the model about the restore by the user.
const UNDONE: &str = "took back what the last run had changed";

/// Maximum size of a before-image in bytes; file tools store no larger one.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A change of one file by a file tool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UndoableChange {
    /// Path as given to the tool.
    path: String,
    /// SHA-256 of the content before the change, in hex. `None`: the file did not exist.
    before: Option<String>,
    /// SHA-256 of the content after the change, in hex. `None`: the file was removed.
    after: Option<String>,
}

/// An effect of a session that can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Undoable {
    /// A change of one file by a file tool.
    Change(UndoableChange),
    /// A command, in a run with this checkpoint before its first effect.
    Command(u64),
}

/// Makes the tool call that reverts the last change of `session` that is still in effect: it writes
/// the old content, or removes a file that the change created. If the last effect is a command that
/// changed files, it restores the checkpoint of its run. Paths of changes are relative to `cwd`.
/// `store` opens the checkpoints; `None`: there are none.
///
/// Errors: `UND001` if there is no such change, `UND002` if the file was modified after the change,
/// `UND003` if the old content is not available.
pub(crate) fn undo(
    state: &StateDir,
    session: &str,
    cwd: &Path,
    store: impl FnOnce() -> Option<Store>,
) -> Result<UserCall, Failure> {
    let (found, records) = journal::whole_session(state, session)?;
    let mut effects = effects(&records);
    let is_command = |effect: &Undoable| matches!(effect, Undoable::Command(_));
    let store = if effects.iter().any(is_command) { store() } else { None };
    while let Some(effect) = effects.pop() {
        let change = match effect {
            Undoable::Change(change) => change,
            Undoable::Command(id) => {
                let by_tools = effects.iter().filter_map(|effect| match effect {
                    Undoable::Change(change) => Some(change.path.as_str()),
                    Undoable::Command(_) => None,
                });
                let by_tools: Vec<&str> = by_tools.collect();
                if store.as_ref().is_some_and(|store| has_changed_more(store, id, &by_tools)) {
                    return Ok(restore_call(id, RestoreChoice::KeepUsers, UNDONE));
                }
                continue;
            }
        };
        let now = hash_of(&cwd.join(&change.path));
        if now == change.before {
            // Already reverted elsewhere.
            continue;
        }
        if now != change.after {
            let what = format!("{} was modified after the change", printable(&change.path));
            return Err(Failure::new(ErrorCode::ChangedSince, Exit::Failed, what)
                .because("undoing the change would lose that modification")
                .fix("look at it with /diff, and change it by hand"));
        }
        return call(&found.dir.join("blobs"), &change);
    }
    Err(Failure::new(ErrorCode::NothingToUndo, Exit::Failed, "there is no change to undo").because(
        "neither file tools nor commands have changed files in this session since the last undo",
    ))
}

/// True if the run of the checkpoint `id` has changed files, and not only those in `by_tools`, and
/// the files are not as they were before.
fn has_changed_more(store: &Store, id: u64, by_tools: &[&str]) -> bool {
    let Ok(record) = store.get(id) else { return false };
    let since = store.changes_since(&record).unwrap_or_default();
    let changed = if record.is_finished() {
        store.changes_of_run(&record).unwrap_or_default()
    } else {
        since.clone()
    };
    let is_more = |file: &ChangedFile| !by_tools.contains(&file.name().as_str());
    !since.is_empty() && changed.iter().any(is_more)
}

/// Effects in the order of the records, without those that a later record reverted.
fn effects(records: &[StoredRecord]) -> Vec<Undoable> {
    let mut effects: Vec<Undoable> = Vec::new();
    // The effects before each checkpoint, and the calls that run.
    let mut at: BTreeMap<u64, Vec<Undoable>> = BTreeMap::new();
    let mut last = None;
    let mut elsewhere = BTreeSet::new();
    for record in records {
        if note_elsewhere(&mut elsewhere, record) {
            continue;
        }
        match &record.event {
            Event::CheckpointCreated { checkpoint, .. } => {
                at.insert(*checkpoint, effects.clone());
                last = Some(*checkpoint);
            }
            Event::CheckpointRestored { checkpoint, undo, .. } => {
                at.insert(*undo, std::mem::take(&mut effects));
                effects = at.get(checkpoint).cloned().unwrap_or_default();
            }
            Event::ToolStarted { name, effect: true, .. } if name == bash::NAME => {
                effects.extend(last.map(Undoable::Command));
            }
            Event::ToolCompleted { metadata, .. } => add_changes(&mut effects, metadata),
            _ => {}
        }
    }
    effects
}

/// Adds to `elsewhere` the invocation of a subagent that starts in an isolated workspace, or under
/// one that works there. Returns true if the record belongs to such an invocation: its files are not
/// those of the workspace.
fn note_elsewhere(elsewhere: &mut BTreeSet<InvocationId>, record: &StoredRecord) -> bool {
    let Some(origin) = &record.origin else { return false };
    let is_elsewhere = elsewhere.contains(&origin.invocation_id);
    if let Event::InvocationRequested { child_invocation_id, workplace, .. } = &record.event
        && (is_elsewhere || workplace.is_some())
    {
        elsewhere.insert(child_invocation_id.clone());
    }
    is_elsewhere
}

/// Adds the file changes of a tool result, or removes the change that it reverts.
fn add_changes(effects: &mut Vec<Undoable>, metadata: &Value) {
    // A merge changes several files.
    let several = metadata["changes"].as_array();
    let one = std::slice::from_ref(metadata);
    for change in several.map_or(one, Vec::as_slice).iter().filter_map(change_of) {
        let takes_back =
            |last: &UndoableChange| last.before == change.after && change.before == last.after;
        let of_path = |effect: &Undoable| matches!(effect, Undoable::Change(last) if last.path == change.path);
        // Later changes of other files do not matter.
        let place = effects.iter().rposition(of_path);
        match place.map(|at| (at, &effects[at])) {
            Some((at, Undoable::Change(last))) if takes_back(last) => {
                effects.remove(at);
            }
            _ => effects.push(Undoable::Change(change)),
        }
    }
}

/// Reads a file change from the metadata of a tool result. `None` if the metadata describe none.
fn change_of(metadata: &Value) -> Option<UndoableChange> {
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    let after = match metadata["verdict"].as_str()? {
        "created" | "updated" => Some(text("after")?),
        "removed" => None,
        _ => return None,
    };
    Some(UndoableChange { path: text("path")?, before: text("before"), after })
}

fn call(blobs: &Path, change: &UndoableChange) -> Result<UserCall, Failure> {
    let path = &change.path;
    let said = format!("I took back the last change of {path} myself. What came of it:");
    let Some(before) = &change.before else {
        // The file did not exist before.
        let command = format!("rm -- {}", quoted(path));
        let mut arguments = json!({ "command": command });
        if is_protected(path) {
            // Otherwise the check after the command would restore it.
            arguments["unprotect"] = json!([path]);
        }
        let arguments = arguments.to_string();
        return Ok(UserCall { tool: bash::NAME.to_owned(), arguments, said });
    };
    let unknown = |why: &str| {
        let what = format!("the earlier content of {} is not available", printable(path));
        Failure::new(ErrorCode::BeforeImageMissing, Exit::Failed, what).because(why.to_owned())
    };
    let is_hash = before.len() == 64 && before.bytes().all(|b| b.is_ascii_hexdigit());
    let bytes = read(&blobs.join(before)).filter(|_| is_hash);
    let bytes = bytes.ok_or_else(|| unknown("its before-image no longer exists"))?;
    if sha256(&bytes) != *before {
        return Err(unknown("its before-image is damaged"));
    }
    let content = String::from_utf8(bytes).map_err(|_| unknown("it was no text"))?;
    let arguments = json!({ "path": path, "content": content }).to_string();
    Ok(UserCall { tool: write_file::NAME.to_owned(), arguments, said })
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// SHA-256 of the content of the file at the resolved `path`, in hex. `None` if it is no regular
/// file, is behind a link or cannot be read.
fn hash_of(path: &Path) -> Option<String> {
    // Opening a pipe must not block.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut file = File::from(resolved_path::open(path, flags).ok()?);
    file.metadata().ok().filter(Metadata::is_file)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Some(hex(&hash.finalize())),
            Ok(length) => hash.update(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::{CallId, SessionId};
    use posse_actors::event::{FORMAT_VERSION, Origin, RecordId};

    use std::fs;

    use super::*;

    fn change(path: &str, before: Option<&str>, after: &str) -> StoredRecord {
        let verdict = if before.is_some() { "updated" } else { "created" };
        let metadata = json!({
            "path": path, "verdict": verdict,
            "before": before.map(|text| sha256(text.as_bytes())), "after": sha256(after.as_bytes()),
        });
        completed(metadata)
    }

    fn completed(metadata: Value) -> StoredRecord {
        StoredRecord {
            v: FORMAT_VERSION,
            record: 1,
            ts: 1,
            id: RecordId { process: 1, count: 1 },
            session_id: SessionId::new("s"),
            origin: None,
            event: Event::ToolCompleted {
                call_id: CallId::new("c"),
                name: "write_file".to_owned(),
                content: Vec::new(),
                metadata,
                duration_ms: 1,
            },
        }
    }

    fn changed(effect: Undoable) -> UndoableChange {
        match effect {
            Undoable::Change(change) => change,
            Undoable::Command(id) => panic!("command in the run of checkpoint {id}"),
        }
    }

    fn recorded(event: Event) -> StoredRecord {
        StoredRecord { event, ..completed(Value::Null) }
    }

    #[test]
    fn changes_in_isolated_workspaces_are_none_of_the_workspace() {
        let by = |invocation: &str, record: StoredRecord| {
            let invocation_id = InvocationId::new(invocation);
            let (agent, agent_path) = ("a".to_owned(), "a".to_owned());
            let origin = Origin { invocation_id, parent_invocation_id: None, agent, agent_path };
            StoredRecord { origin: Some(origin.into()), ..record }
        };
        let started = |child: &str, workplace: Option<&str>| {
            recorded(Event::InvocationRequested {
                child_invocation_id: InvocationId::new(child),
                target: "worker".to_owned(),
                call_id: CallId::new("c"),
                provider: "p".to_owned(),
                task: "t".to_owned(),
                background: false,
                brief: false,
                workplace: workplace.map(str::to_owned),
            })
        };
        let records = [
            by("main", change("mine", None, "1")),
            by("main", started("isolated", Some("/state/w"))),
            by("main", started("beside", None)),
            by("isolated", started("below", None)),
            by("isolated", change("a", None, "1")),
            by("beside", change("b", None, "1")),
            by("below", change("c", None, "1")),
        ];
        let paths: Vec<String> =
            effects(&records).into_iter().map(|effect| changed(effect).path).collect();
        assert_eq!(paths, ["mine", "b"]);
    }

    #[test]
    fn commands_are_undone_with_their_run() {
        let created = |checkpoint| {
            let (run, left_out) = (InvocationId::new("i"), String::new());
            recorded(Event::CheckpointCreated { checkpoint, run, files: 1, bytes: 1, left_out })
        };
        let restored = |checkpoint, undo| {
            recorded(Event::CheckpointRestored { checkpoint, undo, files: 1, kept: 0 })
        };
        let command = || {
            recorded(Event::ToolStarted {
                call_id: CallId::new("c"),
                name: "bash".to_owned(),
                summary: String::new(),
                digest: String::new(),
                effect: true,
                coerced: Vec::new(),
            })
        };
        let of = |records: &[StoredRecord]| {
            let short = |effect: Undoable| match effect {
                Undoable::Change(change) => change.path,
                Undoable::Command(id) => id.to_string(),
            };
            effects(records).into_iter().map(short).collect::<Vec<_>>().join(" ")
        };
        let write = || change("a", None, "1");
        let first = [created(1), write(), command()];
        assert_eq!(of(&first), "a 1");
        let second = [&first[..], &[created(2), command()]].concat();
        assert_eq!(of(&second), "a 1 2");
        assert_eq!(of(&[&second[..], &[restored(2, 3)]].concat()), "a 1");
        assert_eq!(of(&[&second[..], &[restored(1, 3)]].concat()), "");
        // The restore was taken back.
        assert_eq!(of(&[&second[..], &[restored(1, 3), restored(3, 4)]].concat()), "a 1 2");
        assert_eq!(of(&[command()]), "", "no checkpoint was taken");
    }

    #[test]
    fn reverted_changes_are_not_undone_again() {
        let paths = |records: &[StoredRecord]| {
            let effects = effects(records);
            effects.into_iter().map(|effect| changed(effect).path).collect::<Vec<_>>()
        };
        let (one, two) = (change("a", Some("1"), "2"), change("b", None, "3"));
        let back = change("a", Some("2"), "1");
        assert_eq!(paths(&[one.clone(), two.clone()]), ["a", "b"]);
        assert_eq!(paths(&[one.clone(), back.clone()]), Vec::<String>::new());
        assert_eq!(paths(&[one.clone(), back.clone(), one.clone()]), ["a"]);
        // Another file was changed in between.
        assert_eq!(paths(&[one.clone(), two.clone(), back]), ["b"]);
        // One merge of a subagent's changes: the last file first.
        let of = |record: &StoredRecord| match &record.event {
            Event::ToolCompleted { metadata, .. } => metadata.clone(),
            _ => panic!(),
        };
        let gone = json!({
            "path": "c", "verdict": "removed", "before": sha256(b"4"), "after": null,
        });
        let merged = completed(json!({ "changes": [of(&one), of(&two), gone] }));
        let alone = std::slice::from_ref(&merged);
        assert_eq!(paths(alone), ["a", "b", "c"]);
        assert_eq!(changed(effects(alone).pop().unwrap()).after, None);
        let restored = change("c", None, "4");
        assert_eq!(paths(&[merged, restored]), ["a", "b"]);
        let other = completed(json!({ "exitCode": 0 }));
        let same = completed(json!({ "path": "a", "verdict": "unchanged", "after": "x" }));
        assert_eq!(paths(&[other, same]), Vec::<String>::new());
    }

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
}
