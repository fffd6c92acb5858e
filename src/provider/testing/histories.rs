//! Random histories, including inconsistent ones.

use std::sync::Arc;

use posse_actors::compaction::{CompactionGoal, compact};
use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, Reasoning, ToolCall,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An event of a history, possible or not.
#[derive(Debug, Clone)]
enum Happening {
    System(String),
    User(Vec<ContentPart>),
    Assistant {
        text: Option<String>,
        thought: usize,
        calls: Vec<(String, String, Option<String>)>,
    },
    /// Result of the call that was made `back` calls before the last one, if there is one.
    Result {
        back: usize,
        content: Vec<ContentPart>,
        is_error: bool,
    },
}

/// Thinking that histories of `owner` (protocol, profile and model) may contain.
fn thoughts(owner: [&'static str; 3]) -> Vec<Option<Reasoning>> {
    let [protocol, profile, model] = owner;
    let signed = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let hidden = json!({"type": "redacted_thinking", "data": "ZGF0YQ=="});
    let encrypted = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j",
        "summary": [{"type": "summary_text", "text": "hm"}]});
    let text = |bytes: usize| json!({"type": "text", "bytes": bytes});
    let of = |items: Value| {
        let opaque =
            json!({"protocol": protocol, "profile": profile, "model": model, "items": items});
        Some(Reasoning { text: "hm".to_owned(), field: None, opaque: Some(opaque) })
    };
    let bare = |opaque: Option<Value>| {
        let field = Some("reasoning_content".to_owned());
        Some(Reasoning { text: "hm".to_owned(), field, opaque })
    };
    vec![
        None,
        None,
        of(json!([signed.clone(), text(5), {"type": "tool_use"}])),
        of(json!([hidden.clone(), signed.clone()])),
        of(json!([text(1), signed.clone(), text(2), hidden, {"type": "tool_use"}])),
        of(json!([{"type": "thinking", "thinking": "hm", "signature": ""}])),
        of(json!([{"type": "thinking", "thinking": "hm"}, 7, null, {"type": "odd"}])),
        of(json!([encrypted.clone()])),
        of(json!([encrypted.clone(), {"type": "message"}, encrypted, {"type": "function_call"}])),
        of(json!([{"type": "reasoning", "id": "rs_2", "summary": []}])),
        of(json!("odd")),
        bare(None),
        bare(Some(
            json!({"protocol": protocol, "profile": "other", "model": model, "items": [signed]}),
        )),
        bare(Some(json!([1, 2]))),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n\t".to_owned()),
        Just("hello".to_owned()),
        Just("a\"\\\u{0}\u{1f600} ends with a space ".to_owned()),
        any::<String>(),
    ]
}

fn part() -> impl Strategy<Value = ContentPart> {
    let image = |url: &str| ContentPart::ImageUrl { url: url.to_owned(), detail: None };
    prop_oneof![
        4 => text().prop_map(ContentPart::text),
        1 => Just(image("data:image/png;base64,AAAA")),
        1 => Just(ContentPart::ImageUrl {
            url: "https://h.example/i.png".to_owned(),
            detail: Some("low".to_owned()),
        }),
        1 => Just(image("data:image/tiff;base64,AAAA")),
        1 => Just(image("data:image/png;base64,")),
        1 => Just(image("http://h.example/i.png")),
        1 => Just(image("nonsense")),
    ]
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#"{"path": "a"}"#.to_owned()),
        Just(String::new()),
        Just("[1]".to_owned()),
        Just(r#"{"a":"#.to_owned()),
        Just(r#"{"a": "\ud83d"}"#.to_owned()),
        Just("null".to_owned()),
        Just("[".repeat(500)),
        text(),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = prop_oneof![
        Just("bash".to_owned()),
        Just(String::new()),
        Just("Read File/✓".to_owned()),
        Just("x".repeat(300)),
    ];
    let id = prop_oneof![Just(None), Just(Some("call_0".to_owned())), text().prop_map(Some)];
    let call = (name, arguments(), id);
    let parts = || prop::collection::vec(part(), 0..4);
    prop_oneof![
        1 => text().prop_map(Happening::System),
        4 => parts().prop_map(Happening::User),
        6 => (prop::option::of(text()), 0..14_usize, prop::collection::vec(call, 0..4))
            .prop_map(|(text, thought, calls)| Happening::Assistant { text, thought, calls }),
        6 => (0..6_usize, parts(), any::<bool>())
            .prop_map(|(back, content, is_error)| Happening::Result { back, content, is_error }),
    ]
}

/// Any history, with thinking that `owner` has to send back, or must not.
pub(crate) fn any_history(owner: [&'static str; 3]) -> impl Strategy<Value = Vec<Arc<Message>>> {
    let happenings = prop::collection::vec(happening(), 0..14);
    happenings.prop_map(move |happenings| {
        let thoughts = thoughts(owner);
        let mut ids: Vec<CallId> = Vec::new();
        let mut messages = Vec::new();
        for happening in happenings {
            messages.push(Arc::new(match happening {
                Happening::System(content) => Message::System { content },
                Happening::User(content) => Message::User { content },
                Happening::Assistant { text, thought, calls } => {
                    let calls = calls.into_iter().map(|(name, arguments, provider_id)| {
                        let id = CallId::new(match ids.len() % 3 {
                            0 => format!("c{}", ids.len()),
                            1 => format!("odd {} ✓", ids.len()),
                            _ => format!("{}-{}", "long".repeat(40), ids.len()),
                        });
                        ids.push(id.clone());
                        ToolCall { id, provider_id, name, arguments }
                    });
                    Message::Assistant(AssistantMessage {
                        content: text,
                        reasoning: thoughts[thought].clone(),
                        tool_calls: calls.collect(),
                    })
                }
                Happening::Result { back, content, is_error } => Message::Tool {
                    tool_call_id: ids
                        .len()
                        .checked_sub(back + 1)
                        .map_or_else(|| CallId::new("stray"), |at| ids[at].clone()),
                    name: "bash".to_owned(),
                    content,
                    is_error,
                },
            }));
        }
        messages
    })
}

/// `history` compacted to that many tokens, if possible.
pub(crate) fn compacted(
    history: &[Arc<Message>],
    tokens_max: u64,
    turns_kept: usize,
) -> Option<Vec<Arc<Message>>> {
    let told = |message: &&Arc<Message>| matches!(***message, Message::System { .. });
    let said: Vec<Arc<Message>> = history.iter().filter(|one| !told(one)).cloned().collect();
    let goal =
        CompactionGoal { tokens_max, turns_kept, summary_tokens: 200, ..CompactionGoal::default() };
    compact(&said, &goal).map(|compacted| compacted.history)
}
