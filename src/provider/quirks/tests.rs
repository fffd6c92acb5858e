//! The protocols of each quirk, compared with the requests of the encoders.

use std::sync::Arc;

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, Reasoning, ToolCall,
};
use posse_actors::ports::{Request, SideEffect, Thinking, ToolAnnotations, ToolSpec};
use serde_json::{Map, Value, json};

use super::*;
use crate::anthropic::encode::MessagesDialect;
use crate::encoder::{Dialect, Encoder};
use crate::openai_compatible::encode::ChatDialect;
use crate::openai_responses::encode::ResponsesDialect;
use crate::profile::{ModelFact, ProviderProfile};

/// A value of each quirk that differs from its default.
fn samples() -> Map<String, Value> {
    let samples = json!({
        "omitTemperature": true,
        "omitToolChoice": true,
        "omitMaxTokens": true,
        "maxTokensField": "max_completion_tokens",
        "noStreamUsage": true,
        "returnReasoning": true,
        "noVision": true,
        "maxImages": 1,
        "maxImageBytes": 1,
        "toolResultName": true,
        "cacheBreakpoints": true,
        "noPromptCache": true,
        "thinkingBudget": 5000,
        "thinkingBudgets": {"high": 5000},
        "adaptiveThinking": true,
        "effort": "medium",
        "reasoningEffort": true,
        "effortNames": {"high": "most"},
        "reasoningSummary": "auto",
        "noReasoning": true,
        "noTools": true,
        "oneCallAtATime": true,
    });
    samples.as_object().unwrap().clone()
}

/// Requests with everything that a quirk can change: tools, images, thinking, and none of them.
fn requests() -> Vec<Request> {
    let user = |content: Vec<ContentPart>| Arc::new(Message::User { content });
    let image =
        || ContentPart::ImageUrl { url: "data:image/png;base64,AAAA".to_owned(), detail: None };
    let call = ToolCall {
        id: CallId::new("c1"),
        provider_id: None,
        name: "bash".to_owned(),
        arguments: "{}".to_owned(),
    };
    let thought = Reasoning {
        text: "hm".to_owned(),
        field: Some("reasoning_content".to_owned()),
        opaque: None,
    };
    let history = |images: usize| {
        vec![
            Arc::new(Message::System { content: "S".to_owned() }),
            user(vec![ContentPart::text("go")]),
            Arc::new(Message::Assistant(AssistantMessage {
                content: Some("I look.".to_owned()),
                reasoning: Some(thought.clone()),
                tool_calls: vec![call.clone()],
            })),
            Arc::new(Message::Tool {
                tool_call_id: CallId::new("c1"),
                name: "bash".to_owned(),
                content: (0..images).map(|_| image()).chain([ContentPart::text("ok")]).collect(),
                is_error: false,
            }),
            user(vec![ContentPart::text("on")]),
        ]
    };
    let tool = ToolSpec {
        name: "bash".to_owned(),
        description: "Runs.".to_owned(),
        parameters: json!({"type": "object"}),
        side_effect: SideEffect::Process,
        source: "builtin".to_owned(),
        annotations: ToolAnnotations::default(),
    };
    let request = |messages, thinking| Request {
        messages,
        tools: Arc::new([tool.clone()]),
        stream: true,
        tokens_max: Some(9000),
        temperature: Some(0.5),
        thinking,
        session: None,
    };
    let without_tools = Request { tools: Arc::new([]), ..request(history(2), None) };
    vec![
        request(history(2), Some(Thinking::High)),
        request(vec![user(vec![ContentPart::text("go")])], Some(Thinking::High)),
        request(vec![user(vec![ContentPart::text("go")])], None),
        without_tools,
    ]
}

/// Bodies of all requests with these quirks.
fn bodies<D: Dialect>(protocol: Protocol, quirks: &Map<String, Value>) -> Vec<String> {
    let mut profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    profile.protocol = protocol;
    profile.quirks = serde_json::from_value(Value::Object(quirks.clone())).unwrap();
    profile.insight = ModelFact::new(|| Some(true));
    let body = |request: &Request| {
        let encoder = Encoder::<D>::new(profile.clone());
        String::from_utf8(encoder.encode(request, true).unwrap().bytes).unwrap()
    };
    requests().iter().map(body).collect()
}

#[test]
fn quirk_changes_requests_of_its_protocols_only() {
    let samples = samples();
    let mut named: Vec<&str> = samples.keys().map(String::as_str).collect();
    named.sort_unstable();
    let mut known = Quirks::names();
    known.sort_unstable();
    assert_eq!(named, known, "each quirk has a sample");
    assert_eq!(Quirks::protocols("noSuchQuirk"), None);
    let bodies_in = |protocol, quirks: &Map<String, Value>| match protocol {
        Protocol::ChatCompletions => bodies::<ChatDialect>(protocol, quirks),
        Protocol::Responses | Protocol::Codex => bodies::<ResponsesDialect>(protocol, quirks),
        Protocol::Messages => bodies::<MessagesDialect>(protocol, quirks),
    };
    // Some quirks only change what another one, or a level, lets be sent.
    let bases = [json!({}), json!({"reasoningEffort": true}), json!({"adaptiveThinking": true})];
    for (name, sample) in &samples {
        for protocol in
            [Protocol::ChatCompletions, Protocol::Responses, Protocol::Messages, Protocol::Codex]
        {
            let changes = bases.iter().any(|base| {
                let before = base.as_object().unwrap();
                let mut after = before.clone();
                after.insert(name.clone(), sample.clone());
                bodies_in(protocol, before) != bodies_in(protocol, &after)
            });
            let listed = Quirks::protocols(name).unwrap().contains(&protocol);
            assert_eq!(changes, listed, "{name} with {}", protocol.title());
        }
    }
}
