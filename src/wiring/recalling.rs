//! Reads back from a session's own journal what a call returned, and what was said: what a history
//! that was made smaller no longer shows.

use std::fmt::Write as _;
use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Message, text_of};
use posse_actors::event::{Event, Origin, StoredRecord};
use posse_actors::ports::{CallContext, JournalStore};

use crate::tools::recall::{HISTORY, Recall};

/// Records that are read at once.
const RECORDS: u64 = 256;

/// Bytes of a conversation that are shown at once; what was said before that has a name of its own.
const BYTES_MAX: usize = 1 << 20;

/// The memory of the session that `journal` records.
pub(crate) fn recall(journal: &Arc<dyn JournalStore>) -> Recall {
    let journal = Arc::clone(journal);
    Recall::new(move |context, name| {
        let journal = Arc::clone(&journal);
        Box::pin(async move {
            match before(&name) {
                Some(end) => said(&*journal, &context, end).await.map(Some),
                None => returned(&*journal, &name).await,
            }
        })
    })
}

/// The record before which `name` shows what was said; `None`: it is the name of a call.
fn before(name: &str) -> Option<u64> {
    let rest = name.strip_prefix(HISTORY)?;
    if rest.is_empty() {
        return Some(u64::MAX);
    }
    rest.strip_prefix("-before-")?.parse().ok()
}

/// The number of the last record. Looked for: a journal has marks, and each look reads one record.
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

/// Goes backwards through the records before `end`, in pieces that are in order, until `look` has
/// seen enough.
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

/// What `call` returned, as the model read it.
async fn returned(journal: &dyn JournalStore, call: &str) -> Result<Option<String>, String> {
    let mut found: Option<String> = None;
    walk_back(journal, u64::MAX, |records| {
        // Of an outcome and what a hook made of it, the later one counts.
        found = records.iter().rev().find_map(|record| outcome(&record.event, call));
        found.is_some()
    })
    .await?;
    Ok(found)
}

/// What `event` says that `call` returned.
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
        // Another session's outcome has no record of its own here.
        Event::SessionForked { history, .. } => {
            history.iter().find_map(|message| match &**message {
                Message::Tool { tool_call_id, content, .. } if tool_call_id.as_str() == call => {
                    Some(shown(content))
                }
                _ => None,
            })
        }
        _ => None,
    }
}

/// What was said last before record `end` in the conversation of whoever asks, as much as is shown at
/// once.
async fn said(
    journal: &dyn JournalStore,
    context: &CallContext,
    end: u64,
) -> Result<String, String> {
    let child = context.origin.parent_invocation_id.is_some();
    let ours = |origin: Option<&Origin>| match (child, origin) {
        (true, origin) => {
            origin.is_some_and(|origin| origin.invocation_id == context.origin.invocation_id)
        }
        (false, origin) => origin.is_none_or(|origin| origin.parent_invocation_id.is_none()),
    };
    let (mut pieces, mut bytes, mut first) = (Vec::new(), 0, 1);
    walk_back(journal, end, |records| {
        for record in records.iter().rev().filter(|record| ours(record.origin.as_deref())) {
            let mut piece = String::new();
            tell(&record.event, &mut piece);
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
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(
            text,
            "(read_file output:{HISTORY}-before-{first} shows what was said before this)"
        );
    }
    text.extend(pieces.into_iter().rev());
    Ok(text)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only what was said matters")]
fn tell(event: &Event, text: &mut String) {
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match event {
        Event::UserMessage { content, .. } => writeln!(text, "USER: {}", shown(content)),
        Event::ModelReply { message, .. } => {
            tell_message(&Message::Assistant(message.clone()), text);
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
        Event::SessionForked { history, .. } => {
            for message in history {
                tell_message(message, text);
            }
            Ok(())
        }
        _ => Ok(()),
    };
}

fn tell_message(message: &Message, text: &mut String) {
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
    let mut text = text_of(content);
    let images = content.iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. }));
    for _ in images {
        text.push_str("[an image]");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use posse_actors::conversation::{CallId, InvocationId};
    use posse_actors::ports::{JournalError, Opened, PortFuture};
    use posse_actors::record::RecordId;

    use super::*;

    /// Counts the records that are read.
    #[derive(Default)]
    struct Counting {
        records: Vec<StoredRecord>,
        read: AtomicU64,
    }

    impl JournalStore for Counting {
        fn open(&self) -> PortFuture<Result<Opened, JournalError>> {
            Box::pin(std::future::ready(Err(JournalError::Closed)))
        }

        fn read(&self, from: u64, to: u64) -> PortFuture<Result<Vec<StoredRecord>, JournalError>> {
            let wanted = |record: &&StoredRecord| (from..=to).contains(&record.record);
            let found: Vec<_> = self.records.iter().filter(wanted).cloned().collect();
            self.read.fetch_add(found.len() as u64, Ordering::SeqCst);
            Box::pin(std::future::ready(Ok(found)))
        }
    }

    fn journal(texts: impl Iterator<Item = String>) -> Counting {
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
        Counting { records: (1..).zip(texts).map(record).collect(), read: AtomicU64::default() }
    }

    fn context() -> CallContext {
        let mut context = CallContext::of_main("s", "c", "build");
        let mut origin = (*context.origin).clone();
        origin.invocation_id = InvocationId::new("main");
        context.origin = Arc::new(origin);
        context
    }

    #[tokio::test]
    async fn the_end_of_a_long_conversation_is_read_from_its_end() {
        let long = journal((1..=40_000).map(|nth| format!("{nth} {}", "word ".repeat(50))));
        let mut end = u64::MAX;
        let (mut seen, mut pages) = (40_000_u64, 0);
        loop {
            let count = long.read.load(Ordering::SeqCst);
            let text = said(&long, &context(), end).await.unwrap();
            let read = long.read.load(Ordering::SeqCst) - count;
            assert!(text.len() <= BYTES_MAX + 200 && read < 5000, "{} {read}", text.len());
            let numbers: Vec<u64> = text
                .lines()
                .filter_map(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok())
                .collect();
            // Each page ends where the one that came later begins.
            assert_eq!(numbers.last(), Some(&seen));
            seen = numbers[0] - 1;
            pages += 1;
            let Some(rest) = text.split("output:").nth(1) else { break };
            let name = rest.split(' ').next().unwrap();
            end = before(name).unwrap();
        }
        assert_eq!(seen, 0, "every record is on one of {pages} pages");
    }

    #[tokio::test]
    async fn an_outcome_is_found_from_the_end_wherever_it_is() {
        for length in [0, 1, 2, 255, 256, 257, 1000] {
            let short = journal((1..=length).map(|nth| format!("text {nth}")));
            assert_eq!(last_record(&short).await, Ok(length));
            for number in (2..=length).step_by(2) {
                let found = returned(&short, &format!("c{number}")).await;
                assert_eq!(found, Ok(Some(format!("text {number}"))));
            }
            assert_eq!(returned(&short, "c0").await, Ok(None));
        }
        assert_eq!(before("history-before-x"), None);
        assert_eq!(before("historyx"), None);
    }
}
