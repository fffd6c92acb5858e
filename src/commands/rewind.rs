//! `/rewind`: lists the prompts of a session with the files that changed since, and prepares the
//! return to the state before one of them.

use std::path::Path;

use jiff::tz::TimeZone;
use posse_actors::conversation::text_of;
use posse_actors::event::{Event, StoredRecord};
use posse_actors::root_session::UserCall;

use crate::checkpoint::{
    ChangeKind, ChangedFile, Checkpoint, RestoreChoice, RestorePlan, Store, tool,
};
use crate::commands::checkpoint_store;
use crate::commands::conversation::{self, Conversation, ConversationPart};
use crate::config::{Dirs, Settings};
use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::frontend::ReplacedChanges;
use crate::journal::formatted_time;
use crate::wiring::workspace_roots;

/// Maximum number of prompts in a list.
const PROMPTS_MAX: usize = 200;

/// Maximum number of files with changes of the user that a question names.
const REPLACED_MAX: usize = 20;

/// Maximum number of characters of a prompt in a list.
const TEXT_CHARS_MAX: usize = 120;

/// A prompt of the user in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RewindPoint {
    /// Number of the prompt in the conversation, from 1.
    pub(super) number: usize,
    /// Id of the session in which it was given.
    pub(super) session: String,
    /// Number of the record before which the conversation is cut.
    pub(super) record: u64,
    /// Time in milliseconds since 1970.
    ts: u64,
    /// Text of the prompt.
    pub(super) text: String,
    /// First checkpoint after the prompt, which has the files as they were before its first effect.
    /// `None`: posse has changed no file since.
    pub(super) checkpoint: Option<u64>,
}

/// All prompts of the conversation, in order: also those before a copy, in its originals.
pub(super) fn points(conversation: &Conversation) -> Vec<RewindPoint> {
    let mut points = Vec::new();
    for ConversationPart { session, records, last_copied } in &conversation.parts {
        let before = conversation::copied_prompts(records).unwrap_or(points.len());
        let own = points_of(&session.id, records, before);
        points.extend(own.into_iter().filter(|point| point.record <= *last_copied));
    }
    let checkpoints = conversation.timeline().into_iter().filter_map(|(_, record)| {
        let id = match &record.event {
            Event::CheckpointCreated { checkpoint, .. } => *checkpoint,
            // The state before the restore.
            Event::CheckpointRestored { undo, .. } => *undo,
            _ => return None,
        };
        Some((record.ts, record.session_id.as_str(), record.record, id))
    });
    let checkpoints: Vec<(u64, &str, u64, u64)> = checkpoints.collect();
    for point in &mut points {
        let follows = |(ts, session, record, _): &&(u64, &str, u64, u64)| {
            if *session == point.session { *record > point.record } else { *ts >= point.ts }
        };
        point.checkpoint = checkpoints.iter().find(follows).map(|(.., id)| *id);
    }
    points
}

/// The prompts of the session `id`, without checkpoints, the first one with the number after `before`.
pub(super) fn points_of(id: &str, records: &[StoredRecord], before: usize) -> Vec<RewindPoint> {
    let mut points = Vec::new();
    for (at, stored) in records.iter().enumerate() {
        if let Event::UserMessage { content, message_id: None } = &stored.event {
            points.extend(point(id, records, at, content, before + points.len() + 1));
        }
    }
    points
}

fn point(
    session: &str,
    records: &[StoredRecord],
    at: usize,
    content: &[posse_actors::conversation::ContentPart],
    number: usize,
) -> Option<RewindPoint> {
    let stored = &records[at];
    let origin = stored.origin.as_ref().filter(|origin| origin.parent_invocation_id.is_none())?;
    // Records of the same run can precede its prompt.
    let belongs = |one: &&StoredRecord| {
        one.origin.as_ref().is_some_and(|of| of.invocation_id == origin.invocation_id)
    };
    let first = records.iter().find(belongs).unwrap_or(stored);
    let text = text_of(content);
    let (record, ts, session) = (first.record, stored.ts, session.to_owned());
    Some(RewindPoint { number, session, record, ts, text, checkpoint: None })
}

/// The point with this number.
pub(super) fn find(points: Vec<RewindPoint>, number: usize) -> Result<RewindPoint, Failure> {
    let found = points.into_iter().find(|point| point.number == number);
    found.ok_or_else(|| {
        let what = format!("there is no prompt {number} in this conversation");
        Failure::new(ErrorCode::CheckpointNotFound, Exit::Usage, what).fix("/rewind lists them")
    })
}

/// Opens the store of the checkpoints of the project.
pub(super) fn store(cwd: &Path, dirs: &Dirs, settings: &Settings) -> Result<Store, Failure> {
    let workspace = workspace_roots::open(cwd, &[], settings)?;
    let folder = checkpoint_store::folder(cwd, dirs);
    checkpoint_store::store(&folder, workspace, &settings.checkpoints, dirs)
}

/// Rows of the list, the latest prompt first: number, and time, number of files that changed since
/// and text. `store`: `Err` if there are no checkpoints.
pub(super) fn rows(
    points: Vec<RewindPoint>,
    store: &Result<Store, Failure>,
) -> Vec<(usize, String)> {
    let zone = TimeZone::system();
    let shown: Vec<RewindPoint> = points.into_iter().rev().take(PROMPTS_MAX).collect();
    let counts = store.as_ref().ok().map(|store| counts(&shown, store));
    let row = |(at, point): (usize, &RewindPoint)| {
        let files = match counts.as_ref().map(|counts| counts[at]) {
            Some(Some(1)) => "1 file".to_owned(),
            Some(Some(count)) => format!("{count} files"),
            Some(None) => "files unknown".to_owned(),
            None => String::new(),
        };
        let text = point.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        let time = formatted_time(point.ts, &zone, "%m-%d %H:%M").unwrap_or_default();
        let label = format!("{}  {files:<9}  {}", time, printable(&text));
        (point.number, label)
    };
    shown.iter().enumerate().map(row).collect()
}

/// Number of files that changed since each prompt. `None`: its checkpoint was removed.
fn counts(points: &[RewindPoint], store: &Store) -> Vec<Option<usize>> {
    let stored = store.list().unwrap_or_default();
    let wanted: Vec<Checkpoint> = stored
        .into_iter()
        .filter(|one| points.iter().any(|point| point.checkpoint == Some(one.id)))
        .collect();
    let counts = store.counts_since(&wanted).unwrap_or_default();
    let count = |point: &RewindPoint| match point.checkpoint {
        None => Some(0),
        Some(id) => {
            let at = wanted.iter().position(|one| one.id == id)?;
            counts.get(at).copied()
        }
    };
    points.iter().map(count).collect()
}

/// The call that restores the files as they were before the prompt, and the changes of the user that
/// it replaces. `None` if no file differs. Fails if only files differ that stay as they are.
pub(super) fn call(
    point: &RewindPoint,
    store: &Store,
    choice: RestoreChoice,
) -> Result<Option<(UserCall, Option<ReplacedChanges>)>, Failure> {
    let Some(id) = point.checkpoint else { return Ok(None) };
    let plan = store.plan(id, choice);
    let plan = plan.map_err(|error| checkpoint_store::failure(&error, Path::new("")))?;
    if plan.files.is_empty() && !plan.kept.is_empty() {
        let names: Vec<String> =
            plan.kept.iter().map(|(name, why)| format!("{}: {why}", printable(name))).collect();
        let what = "the only files that differ stay as they are";
        return Err(Failure::new(ErrorCode::CheckpointUnconfirmed, Exit::Failed, what)
            .because(names.join("; "))
            .fix(format!("/rewind {} all restores your own changes as well", point.number)));
    }
    Ok((!plan.files.is_empty()).then(|| {
        let call = restore_call(id, choice, "returned the files to an earlier state", false);
        (call, replaced_changes(&plan))
    }))
}

/// Changes of the user that the restore `plan` replaces; `None` if it replaces none.
fn replaced_changes(plan: &RestorePlan) -> Option<ReplacedChanges> {
    let count = plan.of_user().count();
    // Contents that are replaced matter more than files that only the later state has.
    let mut files: Vec<&ChangedFile> = plan.of_user().collect();
    files.sort_by_key(|file| file.kind != ChangeKind::Modified);
    let line = |file: &ChangedFile| format!("{} {}", tool::verb(file), printable(&file.name()));
    let mut lines: Vec<String> = files.into_iter().take(REPLACED_MAX).map(line).collect();
    if count > REPLACED_MAX {
        lines.push(format!("and {} more", count - REPLACED_MAX));
    }
    (count > 0).then(|| ReplacedChanges { lines, digest: tool::digest(plan) })
}

/// The call of the user that restores a checkpoint. `what` tells the model what the user did.
/// `is_undo`: true if it takes back the last step.
pub(super) fn restore_call(id: u64, choice: RestoreChoice, what: &str, is_undo: bool) -> UserCall {
    UserCall {
        tool: tool::NAME.to_owned(),
        arguments: tool::arguments(id, choice, is_undo),
        said: format!("I {what} myself. What came of it:"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posse_actors::conversation::{ContentPart, InvocationId, MessageId, SessionId};
    use posse_actors::event::{FORMAT_VERSION, Origin, RecordId};
    use posse_actors::outcome::Memories;

    use super::*;
    use crate::journal::state::StoredSession;

    fn stored(record: u64, run: &str, parent: Option<&str>, event: Event) -> StoredRecord {
        let origin = Origin {
            invocation_id: InvocationId::new(run),
            parent_invocation_id: parent.map(InvocationId::new),
            agent: "build".to_owned(),
            agent_path: "build".to_owned(),
        };
        StoredRecord {
            v: FORMAT_VERSION,
            record,
            ts: record,
            id: RecordId { process: 1, count: 1 },
            session_id: SessionId::new("s"),
            origin: Some(Arc::new(origin)),
            event,
        }
    }

    fn said(text: &str, id: Option<&str>) -> Event {
        let message_id = id.map(MessageId::new);
        Event::UserMessage { content: vec![ContentPart::text(text)], message_id }
    }

    fn created(checkpoint: u64) -> Event {
        let (run, left_out) = (InvocationId::new("r"), String::new());
        Event::CheckpointCreated { checkpoint, run, files: 1, bytes: 1, left_out }
    }

    fn own(records: &[StoredRecord]) -> Vec<RewindPoint> {
        of(vec![part("s", records, u64::MAX)])
    }

    fn of(parts: Vec<ConversationPart>) -> Vec<RewindPoint> {
        points(&Conversation { parts, branches: Vec::new() })
    }

    fn part(id: &str, records: &[StoredRecord], last_copied: u64) -> ConversationPart {
        let (id, project) = (id.to_owned(), "p".to_owned());
        let session = StoredSession { id, project, dir: "/s".into() };
        let mut records = records.to_vec();
        for record in &mut records {
            record.session_id = SessionId::new(session.id.as_str());
        }
        ConversationPart { session, records, last_copied }
    }

    #[test]
    fn prompts_before_a_copy_belong_to_the_conversation() {
        let original = [
            stored(2, "r1", None, said("one", None)),
            stored(3, "r2", None, said("two", None)),
            stored(4, "r3", None, said("three", None)),
            stored(5, "r3", None, created(1)),
            stored(6, "r4", None, said("four", None)),
        ];
        let forked = |prompts| Event::SessionForked {
            parent: SessionId::new("a"),
            parent_record: 3,
            history: Vec::new(),
            prompts,
            memories: Memories::default(),
            todos: Vec::new(),
        };
        let resumed = || Event::SessionResumed { records: 0, with: None, changed: Vec::new() };
        let copy = |prompts| {
            [
                stored(11, "x", None, resumed()),
                stored(12, "x", None, forked(prompts)),
                stored(13, "r9", None, said("other", None)),
                stored(14, "r9", None, created(2)),
            ]
        };
        let short = |parts: &[ConversationPart]| {
            let short = |point: RewindPoint| {
                let checkpoint = point.checkpoint.unwrap_or_default();
                format!("{}.{} {} {checkpoint}", point.session, point.number, point.text)
            };
            of(parts.to_vec()).into_iter().map(short).collect::<Vec<_>>()
        };
        // Records of earlier versions do not count the prompts that were copied.
        for prompts in [2, 0] {
            let parts = [part("a", &original, 3), part("b", &copy(prompts), u64::MAX)];
            assert_eq!(short(&parts), ["a.1 one 1", "a.2 two 1", "b.3 other 2"]);
        }
        let kept = [part("a", &original, 6), part("b", &copy(4), u64::MAX)];
        assert_eq!(
            short(&kept).last_chunk(),
            Some(&["a.4 four 2".to_owned(), "b.5 other 2".into()])
        );
        // The original was removed.
        assert_eq!(short(&[part("b", &copy(2), u64::MAX)]), ["b.3 other 2"]);
    }

    #[test]
    fn prompts_have_the_checkpoint_of_the_next_effect() {
        let warning = || Event::Warning { message: "w".to_owned() };
        let records = [
            stored(1, "r1", None, warning()),
            stored(2, "r1", None, said("one", None)),
            stored(3, "r1", None, said("steered", Some("m"))),
            stored(4, "c", Some("r1"), said("a task of a subagent", None)),
            stored(5, "r2", None, said("two", None)),
            stored(6, "r2", None, created(7)),
            stored(7, "r2", None, created(8)),
            stored(8, "r3", None, said("three", None)),
            stored(
                9,
                "r4",
                None,
                Event::CheckpointRestored { checkpoint: 7, undo: 9, files: 1, kept: 0 },
            ),
            stored(10, "r5", None, said("four", None)),
        ];
        let found: Vec<_> = own(&records)
            .into_iter()
            .map(|point| (point.number, point.record, point.text, point.checkpoint))
            .collect();
        let expected = [
            (1, 1, "one".to_owned(), Some(7)),
            (2, 5, "two".to_owned(), Some(7)),
            (3, 8, "three".to_owned(), Some(9)),
            (4, 10, "four".to_owned(), None),
        ];
        assert_eq!(found, expected);
        assert_eq!(find(own(&records), 2).unwrap().text, "two");
        assert_eq!(find(own(&records), 5).unwrap_err().code, ErrorCode::CheckpointNotFound);
    }
}
