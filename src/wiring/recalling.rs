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

/// Bytes of a conversation that are shown; what came later is not.
const BYTES_MAX: usize = 64 << 20;

/// The memory of the session that `journal` records.
pub(crate) fn recall(journal: &Arc<dyn JournalStore>) -> Recall {
    let journal = Arc::clone(journal);
    Recall::new(move |context, name| {
        let journal = Arc::clone(&journal);
        Box::pin(async move {
            match name.as_str() {
                HISTORY => said(&*journal, &context).await.map(Some),
                call => returned(&*journal, call).await,
            }
        })
    })
}

/// Goes through the records until `look` has seen enough.
async fn walk(
    journal: &dyn JournalStore,
    mut look: impl FnMut(&StoredRecord) -> bool,
) -> Result<(), String> {
    let mut from = 1;
    loop {
        let records = journal.read(from, from + RECORDS - 1).await;
        let records = records.map_err(|error| error.to_string())?;
        let Some(last) = records.last() else { return Ok(()) };
        from = last.record + 1;
        // Whatever revises an outcome comes soon after it.
        let enough = records.iter().fold(false, |enough, record| look(record) || enough);
        if enough {
            return Ok(());
        }
    }
}

/// What `call` returned, as the model read it.
#[expect(clippy::wildcard_enum_match_arm, reason = "only what calls return matters")]
async fn returned(journal: &dyn JournalStore, call: &str) -> Result<Option<String>, String> {
    let mut found: Option<String> = None;
    let mut since = 0;
    walk(journal, |record| {
        since += u64::from(found.is_some());
        match &record.event {
            Event::ToolCompleted { call_id, content, .. }
            | Event::ToolFailed { call_id, content, .. }
            | Event::ToolOutcomeUnknown { call_id, content, .. }
            | Event::HookFired { call_id: Some(call_id), output: Some(content), .. }
            | Event::HookFailed { call_id: Some(call_id), output: Some(content), .. }
                if call_id.as_str() == call =>
            {
                found = Some(shown(content));
            }
            // Another session's outcome has no record of its own here.
            Event::SessionForked { history, .. } => {
                let result = history.iter().find_map(|message| match &**message {
                    Message::Tool { tool_call_id, content, .. }
                        if tool_call_id.as_str() == call =>
                    {
                        Some(shown(content))
                    }
                    _ => None,
                });
                found = result.or(found.take());
            }
            _ => {}
        }
        since > RECORDS
    })
    .await?;
    Ok(found)
}

/// Everything that was said in the conversation of whoever asks.
async fn said(journal: &dyn JournalStore, context: &CallContext) -> Result<String, String> {
    let child = context.origin.parent_invocation_id.is_some();
    let ours = |origin: Option<&Origin>| match (child, origin) {
        (true, origin) => {
            origin.is_some_and(|origin| origin.invocation_id == context.origin.invocation_id)
        }
        (false, origin) => origin.is_none_or(|origin| origin.parent_invocation_id.is_none()),
    };
    let mut text = String::new();
    walk(journal, |record| {
        if ours(record.origin.as_deref()) {
            tell(&record.event, &mut text);
        }
        text.len() > BYTES_MAX
    })
    .await?;
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
            history.iter().for_each(|message| tell_message(message, text));
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
