//! Reads outputs and messages that compaction removed from the history. The session's own journal
//! contains them; for a fork, also the journals of the original sessions.

mod origins;

use std::fmt::Write as _;
use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Message, text_of};
use posse_actors::event::{Branch, Event, Origin, StoredRecord};
use posse_actors::ports::{CallContext, JournalStore};

use crate::journal::StateDir;
use crate::tools::stored_output::{HISTORY, Recall};

use origins::Origins;

/// Number of records per read of the journal.
const RECORDS: u64 = 256;

/// Maximum bytes of conversation per page, unless its only message is longer. The messages before
/// them are on another page.
const BYTES_MAX: usize = 1 << 20;

/// Creates the lookup of earlier outputs and messages in `journal`. The original sessions of a fork
/// are searched in `state`.
pub(crate) fn reader(journal: &Arc<dyn JournalStore>, state: StateDir) -> Recall {
    let (journal, origins) = (Arc::clone(journal), Origins(state));
    Recall::new(move |context, name| {
        let (journal, origins) = (Arc::clone(&journal), origins.clone());
        Box::pin(async move {
            match HistoryPage::named(&name) {
                Some(page) => messages_before(&*journal, &origins, &context, page).await.map(Some),
                None => returned(&*journal, &origins, &name).await,
            }
        })
    })
}

/// Page of a conversation: the messages before record `end`. `session` is an original session of a
/// fork, or `None` for the current session.
#[derive(Debug, PartialEq, Eq)]
struct HistoryPage {
    session: Option<String>,
    end: u64,
}

impl HistoryPage {
    /// Parses the name of a page, such as `history` or `history-before-7`. `None` if it is another
    /// name, such as the id of a call.
    fn named(name: &str) -> Option<HistoryPage> {
        let rest = name.strip_prefix(HISTORY)?;
        if rest.is_empty() {
            return Some(HistoryPage { session: None, end: u64::MAX });
        }
        let (session, end) = match rest.strip_prefix("-of-") {
            Some(rest) => {
                let (session, end) = rest.rsplit_once("-before-")?;
                (Some(session.to_owned()), end)
            }
            None => (None, rest.strip_prefix("-before-")?),
        };
        Some(HistoryPage { session, end: end.parse().ok()? })
    }

    /// Formats the line that tells the model the name of this page.
    fn pointer(&self) -> String {
        let of = self.session.as_ref().map(|id| format!("-of-{id}")).unwrap_or_default();
        let end = self.end;
        format!("(read_file output:{HISTORY}{of}-before-{end} shows what was said before this)\n")
    }
}

/// Number of the last record in `journal`, 0 without records. Uses binary search: a journal has an
/// index, and each step reads one record.
async fn last_record(journal: &dyn JournalStore) -> Result<u64, String> {
    let is_there = async |number: u64| -> Result<bool, String> {
        let read = journal.read(number, number).await;
        read.map(|records| !records.is_empty()).map_err(|error| error.to_string())
    };
    let mut beyond = 1;
    while is_there(beyond).await? {
        beyond *= 2;
    }
    let mut there = beyond / 2;
    while there + 1 < beyond {
        let middle = there + (beyond - there) / 2;
        if is_there(middle).await? {
            there = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(there)
}

/// Reads the records before record `end` in chunks, the last chunk first, until `look` returns
/// true. Within a chunk, the records are in order.
async fn walk_back(
    journal: &dyn JournalStore,
    end: u64,
    mut look: impl FnMut(&[StoredRecord]) -> bool,
) -> Result<(), String> {
    let mut to = last_record(journal).await?.min(end.saturating_sub(1));
    while to > 0 {
        let from = to.saturating_sub(RECORDS - 1).max(1);
        let records = journal.read(from, to).await.map_err(|error| error.to_string())?;
        if look(&records) {
            return Ok(());
        }
        to = from - 1;
    }
    Ok(())
}

/// Finds the output of `call` as the model saw it, in this session or before a fork. `None` if
/// there is none.
async fn returned(
    journal: &dyn JournalStore,
    origins: &Origins,
    call: &str,
) -> Result<Option<String>, String> {
    let (mut found, mut branch, mut copied) = (None, None, None);
    walk_back(journal, u64::MAX, |records| {
        // A hook's version of an outcome comes later and takes precedence.
        found = records.iter().rev().find_map(|record| outcome(&record.event, call));
        if let Some((at, history)) = records.iter().find_map(|record| branched(&record.event)) {
            (branch, copied) = (Some(at), copied_outcome(history, call));
        }
        found.is_some()
    })
    .await?;
    match (found, branch) {
        (None, Some(branch)) => {
            let call = call.to_owned();
            origins.blocking(move |all| all.returned_before(branch, &call, copied)).await
        }
        (found, _) => Ok(found),
    }
}

/// If `event` is a fork: the record of the original session at which it began, and the inherited
/// messages. Otherwise `None`.
fn branched(event: &Event) -> Option<(Branch, &[Arc<Message>])> {
    match event {
        Event::SessionForked { parent, parent_record, history, .. } => {
            Some((Branch { session: parent.clone(), record: *parent_record }, history))
        }
        _ => None,
    }
}

/// Finds the output of `call` in a history; `None` if there is none.
fn copied_outcome(history: &[Arc<Message>], call: &str) -> Option<String> {
    history.iter().find_map(|message| match &**message {
        Message::Tool { tool_call_id, content, .. } if tool_call_id.as_str() == call => {
            Some(shown(content))
        }
        _ => None,
    })
}

/// Output of `call`, if `event` is its outcome or a hook's replacement of it; otherwise `None`.
#[expect(clippy::wildcard_enum_match_arm, reason = "only what calls return matters")]
fn outcome(event: &Event, call: &str) -> Option<String> {
    match event {
        Event::ToolCompleted { call_id, content, .. }
        | Event::ToolFailed { call_id, content, .. }
        | Event::ToolOutcomeUnknown { call_id, content, .. }
        | Event::HookFired { call_id: Some(call_id), output: Some(content), .. }
        | Event::HookFailed { call_id: Some(call_id), output: Some(content), .. }
            if call_id.as_str() == call =>
        {
            Some(shown(content))
        }
        _ => None,
    }
}

/// Formats `page` of the caller's conversation: the last messages before its end, up to
/// [`BYTES_MAX`], after a line that names the page before, if there is one. For a page of an
/// original session, fails for a subagent and in a session that is no fork.
async fn messages_before(
    journal: &dyn JournalStore,
    origins: &Origins,
    context: &CallContext,
    page: HistoryPage,
) -> Result<String, String> {
    let child = context.origin.parent_invocation_id.is_some();
    if let Some(session) = page.session {
        if child {
            return Err("that is another conversation".to_owned());
        }
        let mut branch = None;
        walk_back(journal, u64::MAX, |records| {
            branch = records.iter().find_map(|record| branched(&record.event)).map(|(at, _)| at);
            branch.is_some()
        })
        .await?;
        return match branch {
            Some(branch) => {
                origins.blocking(move |all| all.page_of(branch, &session, page.end)).await
            }
            None => Err("this session did not branch off from another".to_owned()),
        };
    }
    let own = &context.origin.invocation_id;
    let is_own = |origin: &Origin| origin.invocation_id == *own;
    let ours =
        |origin: Option<&Origin>| if child { origin.is_some_and(is_own) } else { is_main(origin) };
    let (mut pieces, mut bytes, mut first) = (Vec::new(), 0, 1);
    let mut branch = None;
    walk_back(journal, page.end, |records| {
        for record in records.iter().rev().filter(|record| ours(record.origin.as_deref())) {
            let mut piece = String::new();
            if let Some((at, history)) = branched(&record.event) {
                // The record contains the original messages, not the compacted ones.
                for message in history {
                    write_message(message, &mut piece);
                }
                branch = Some((at, piece));
                continue;
            }
            append_event(&record.event, &mut piece);
            if bytes > 0 && bytes + piece.len() > BYTES_MAX {
                first = record.record + 1;
                return true;
            }
            bytes += piece.len();
            pieces.push(piece);
        }
        false
    })
    .await?;
    let mut text = String::with_capacity(bytes + 128);
    if first > 1 {
        text.push_str(&HistoryPage { session: None, end: first }.pointer());
    } else if let Some((branch, copied)) = branch {
        let session = branch.session.clone();
        let room = BYTES_MAX.saturating_sub(bytes);
        match origins.blocking(move |all| all.messages_before(branch, room)).await {
            Ok(before) => text.push_str(&before),
            Err(why) => text.extend(["(", &why, "; this is left of it:)\n", &copied]),
        }
        // Writing to a string cannot fail.
        let _: std::fmt::Result =
            writeln!(text, "(here this session branched off from session {session})");
    }
    text.extend(pieces.into_iter().rev());
    Ok(text)
}

/// Returns true if a record with this origin belongs to the main agent, or to no agent.
fn is_main(origin: Option<&Origin>) -> bool {
    origin.is_none_or(|origin| origin.parent_invocation_id.is_none())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only what was said matters")]
fn append_event(event: &Event, text: &mut String) {
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match event {
        Event::UserMessage { content, .. } => writeln!(text, "USER: {}", shown(content)),
        Event::ModelReply { message, .. } => {
            write_message(&Message::Assistant(message.clone()), text);
            Ok(())
        }
        Event::ToolCompleted { call_id, name, content, .. }
        | Event::ToolFailed { call_id, name, content, .. }
        | Event::ToolOutcomeUnknown { call_id, name, content, .. } => {
            writeln!(text, "RESULT {call_id} ({name}): {}", shown(content))
        }
        Event::ContextCompacted { .. } => {
            writeln!(text, "(from here on, what is above was shown as a summary)")
        }
        _ => Ok(()),
    };
}

fn write_message(message: &Message, text: &mut String) {
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match message {
        Message::System { .. } => Ok(()),
        Message::User { content } => writeln!(text, "USER: {}", shown(content)),
        Message::Tool { tool_call_id, name, content, .. } => {
            writeln!(text, "RESULT {tool_call_id} ({name}): {}", shown(content))
        }
        Message::Assistant(said) => {
            if let Some(said) = said.content.as_deref().filter(|said| !said.is_empty()) {
                let _: std::fmt::Result = writeln!(text, "ASSISTANT: {said}");
            }
            said.tool_calls.iter().try_for_each(|call| {
                writeln!(text, "CALL {}: {} {}", call.id, call.name, call.arguments)
            })
        }
    };
}

fn shown(content: &[ContentPart]) -> String {
    let images = content.iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. }));
    text_of(content) + &"[an image]".repeat(images.count())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use posse_actors::conversation::{CallId, InvocationId};
    use posse_actors::event::RecordId;
    use posse_actors::ports::{JournalError, OpenedJournal, PortFuture};

    use super::*;

    /// Counts the records that are read.
    #[derive(Default)]
    struct CountingJournal {
        records: Vec<StoredRecord>,
        read: AtomicU64,
    }

    impl JournalStore for CountingJournal {
        fn open(&self) -> PortFuture<Result<OpenedJournal, JournalError>> {
            Box::pin(std::future::ready(Err(JournalError::Closed)))
        }

        fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>> {
            let wanted = |record: &&StoredRecord| (from..=to).contains(&record.record);
            let found: Vec<_> = self.records.iter().filter(wanted).cloned().collect();
            self.read.fetch_add(found.len() as u64, Ordering::SeqCst);
            Box::pin(std::future::ready(Ok(found)))
        }
    }

    fn journal(texts: impl Iterator<Item = String>) -> CountingJournal {
        let record = |(number, text): (u64, String)| StoredRecord {
            v: posse_actors::event::FORMAT_VERSION,
            record: number,
            id: RecordId { process: 1, count: u32::try_from(number).unwrap() },
            ts: 0,
            session_id: posse_actors::conversation::SessionId::new("s"),
            origin: None,
            event: if number % 2 == 1 {
                Event::UserMessage { content: vec![ContentPart::text(text)], message_id: None }
            } else {
                Event::ToolCompleted {
                    call_id: CallId::new(format!("c{number}")),
                    name: "bash".to_owned(),
                    content: vec![ContentPart::text(text)],
                    metadata: serde_json::Value::Null,
                    duration_ms: 0,
                }
            },
        };
        CountingJournal {
            records: (1..).zip(texts).map(record).collect(),
            read: AtomicU64::default(),
        }
    }

    fn nowhere() -> Origins {
        Origins(StateDir::new("/nowhere"))
    }

    fn context() -> CallContext {
        let mut context = posse_actors::testing::call_of_main("s", "c", "build");
        let mut origin = (*context.origin).clone();
        origin.invocation_id = InvocationId::new("main");
        context.origin = Arc::new(origin);
        context
    }

    #[tokio::test]
    async fn last_page_of_a_long_conversation_is_read_from_the_end() {
        let long = journal((1..=40_000).map(|nth| format!("{nth} {}", "word ".repeat(50))));
        let mut end = u64::MAX;
        let (mut seen, mut pages) = (40_000_u64, 0);
        loop {
            let count = long.read.load(Ordering::SeqCst);
            let page = HistoryPage { session: None, end };
            let text = messages_before(&long, &nowhere(), &context(), page).await.unwrap();
            let read = long.read.load(Ordering::SeqCst) - count;
            assert!(text.len() <= BYTES_MAX + 200 && read < 5000, "{} {read}", text.len());
            let numbers: Vec<u64> = text
                .lines()
                .filter_map(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok())
                .collect();
            // Each page ends where the later one begins.
            assert_eq!(numbers.last(), Some(&seen));
            seen = numbers[0] - 1;
            pages += 1;
            let Some(rest) = text.split("output:").nth(1) else { break };
            let name = rest.split(' ').next().unwrap();
            end = HistoryPage::named(name).unwrap().end;
        }
        assert_eq!(seen, 0, "every record is on one of {pages} pages");
    }

    #[tokio::test]
    async fn call_result_is_found_by_searching_backwards() {
        for length in [0, 1, 2, 255, 256, 257, 1000] {
            let short = journal((1..=length).map(|nth| format!("text {nth}")));
            assert_eq!(last_record(&short).await, Ok(length));
            for number in (2..=length).step_by(2) {
                let found = returned(&short, &nowhere(), &format!("c{number}")).await;
                assert_eq!(found, Ok(Some(format!("text {number}"))));
            }
            assert_eq!(returned(&short, &nowhere(), "c0").await, Ok(None));
        }
        for odd in ["history-before-x", "historyx", "history-of-s", "history-of-s-before-"] {
            assert_eq!(HistoryPage::named(odd), None, "{odd}");
        }
        let page = HistoryPage { session: Some("2026-s-before-1".to_owned()), end: 7 };
        let pointer = page.pointer();
        let name = pointer.split([':', ' ']).nth(2).unwrap();
        assert_eq!(HistoryPage::named(name), Some(page));
    }
}
