//! Histories, valid and not, and the bodies they become.

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Reasoning, SessionId, ToolCall,
};
use posse_actors::ports::{Request, SideEffect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::profile::{Protocol, ProviderProfile, Quirks};
use crate::testing::histories::{any_history, compacted};
use crate::testing::strict::{self, assert_valid};

const OWNER: [&str; 3] = [PROTOCOL, "mine", "m"];

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User { content: vec![ContentPart::text(text)] })
}

fn system(text: &str) -> Arc<Message> {
    Arc::new(Message::System { content: text.to_owned() })
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        provider_id: Some("call_0".to_owned()),
        name: "bash".to_owned(),
        arguments: arguments.to_owned(),
    }
}

fn assistant(text: Option<&str>, tool_calls: Vec<ToolCall>, items: Option<Value>) -> Arc<Message> {
    let content = text.map(str::to_owned);
    let opaque = items.map(
        |items| json!({"protocol": PROTOCOL, "profile": "mine", "model": "m", "items": items}),
    );
    let reasoning =
        opaque.map(|opaque| Reasoning { text: "hm".to_owned(), field: None, opaque: Some(opaque) });
    Arc::new(Message::Assistant(AssistantMessage { content, reasoning, tool_calls }))
}

fn result(id: &str, content: Vec<ContentPart>) -> Arc<Message> {
    Arc::new(Message::Tool {
        tool_call_id: CallId::new(id),
        name: "bash".to_owned(),
        content,
        is_error: false,
    })
}

fn thought(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "encrypted_content": "ZW5j", "summary": []})
}

fn tools(count: usize) -> Arc<[ToolSpec]> {
    let spec = |nth: usize| ToolSpec {
        name: format!("tool_{nth}"),
        description: "Does.".to_owned(),
        parameters: json!({ "type": "object" }),
        side_effect: SideEffect::Process,
        source: "builtin".to_owned(),
        annotations: posse_actors::ports::ToolAnnotations::default(),
    };
    (0..count).map(spec).collect()
}

fn request(messages: &[Arc<Message>]) -> Request {
    Request {
        messages: messages.to_vec(),
        tools: tools(0),
        stream: false,
        tokens_max: None,
        temperature: None,
        thinking: None,
        session: None,
    }
}

fn encoder(quirks: Quirks) -> Encoder<ResponsesDialect> {
    let mut profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    profile.protocol = Protocol::Responses;
    profile.quirks = quirks;
    Encoder::new(profile)
}

fn body(quirks: Quirks, request: &Request) -> String {
    let body = encoder(quirks).encode(request, false).unwrap().bytes;
    assert_valid(strict::responses, &body);
    String::from_utf8(body).unwrap()
}

fn input(messages: &[Arc<Message>]) -> Value {
    let body = body(Quirks::default(), &request(messages));
    serde_json::from_str::<Value>(&body).unwrap()["input"].take()
}

#[test]
fn instructions_are_sent_once() {
    let full = Request {
        tools: tools(1),
        temperature: Some(0.5),
        tokens_max: Some(7),
        ..request(&[system("Be brief."), system(" "), system("Be kind."), user("hi")])
    };
    let quirks = Quirks { no_prompt_cache: true, ..Quirks::default() };
    insta::assert_snapshot!(body(quirks, &full), @r#"{"model":"m","store":false,"include":["reasoning.encrypted_content"],"temperature":0.5,"max_output_tokens":16,"tools":[{"type":"function","name":"tool_0","description":"Does.","parameters":{"type":"object"},"strict":false}],"tool_choice":"auto","instructions":"Be brief.\n\nBe kind.","input":[{"content":[{"text":"hi","type":"input_text"}],"role":"user","type":"message"}]}"#);
    let quirks = Quirks {
        no_prompt_cache: true,
        omit_temperature: true,
        omit_max_tokens: true,
        omit_tool_choice: true,
        effort: Some("high".to_owned()),
        reasoning_summary: Some("auto".to_owned()),
        ..Quirks::default()
    };
    insta::assert_snapshot!(body(quirks.clone(), &full), @r#"{"model":"m","store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high","summary":"auto"},"tools":[{"type":"function","name":"tool_0","description":"Does.","parameters":{"type":"object"},"strict":false}],"instructions":"Be brief.\n\nBe kind.","input":[{"content":[{"text":"hi","type":"input_text"}],"role":"user","type":"message"}]}"#);
    let quirks = Quirks { no_reasoning: true, ..quirks };
    insta::assert_snapshot!(body(quirks, &request(&[])), @r#"{"model":"m","store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}]}"#);
}

#[test]
fn thinking_level_overrides_the_effort_of_the_profile() {
    use posse_actors::ports::Thinking::{ExtraHigh, Minimal, Off};
    let asked = |quirks: &Quirks, thinking| {
        let wanted = Request { thinking, ..request(&[user("hi")]) };
        serde_json::from_str::<Value>(&body(quirks.clone(), &wanted)).unwrap()["reasoning"].take()
    };
    let quirks = Quirks { effort: Some("medium".to_owned()), ..Quirks::default() };
    assert_eq!(asked(&quirks, None), json!({"effort": "medium"}));
    assert_eq!(asked(&quirks, Some(Minimal)), json!({"effort": "low"}));
    assert_eq!(asked(&quirks, Some(Off)), Value::Null);
    let effort_names = [("xhigh".to_owned(), "xhigh".to_owned())].into();
    let named = Quirks { effort_names, ..quirks };
    assert_eq!(asked(&named, Some(ExtraHigh)), json!({"effort": "xhigh"}));
}

#[test]
fn continues_after_tools_with_text_images_and_thinking() {
    let image = |url: &str| ContentPart::ImageUrl { url: url.to_owned(), detail: None };
    let history = [
        Arc::new(Message::User {
            content: vec![ContentPart::text("look"), image("data:image/png;base64,AAAA")],
        }),
        assistant(
            Some("I look. \n\nNow."),
            vec![call("c1", r#"{"path":"a"}"#), call("c2", ""), call("c3", "[1")],
            Some(json!([
                thought("rs_1"), {"type": "message", "bytes": 8, "phase": "commentary"},
                thought("rs_2"), {"type": "function_call"}, {"type": "function_call"},
                {"type": "function_call"}, {"type": "message", "bytes": 6}, thought("rs_3"),
            ])),
        ),
        result("c1", vec![ContentPart::text("shot"), image("https://h.example/i.png")]),
        result("c2", vec![]),
        user("and?"),
        system("Be quick."),
    ];
    insta::assert_snapshot!(format!("{:#}", input(&history)));
}

#[test]
fn unsupported_parameters_are_omitted() {
    let kinds = |message: Arc<Message>| {
        let items = input(&[user("go"), message, result("stray", vec![])]);
        let kind = |item: &Value| item["type"].as_str().unwrap().to_owned();
        items.as_array().unwrap()[1..].iter().map(kind).collect::<Vec<_>>().join(" ")
    };
    let piece = |bytes: usize| json!({"type": "message", "bytes": bytes});
    let fits = json!([thought("a"), piece(1)]);
    assert_eq!(kinds(assistant(Some("x"), vec![], Some(fits.clone()))), "reasoning message");
    assert_eq!(kinds(assistant(Some("xy"), vec![], Some(fits.clone()))), "reasoning message");
    assert_eq!(kinds(assistant(None, vec![], Some(fits))), "");
    let plain = json!([{"type": "reasoning", "id": "a", "summary": []}, piece(1)]);
    assert_eq!(kinds(assistant(Some("x"), vec![], Some(plain))), "message");
    let behind = json!([piece(1), thought("a")]);
    assert_eq!(kinds(assistant(Some("x"), vec![], Some(behind))), "message");
}

#[test]
fn cache_key_is_the_session_also_after_a_compaction() {
    let encoder = encoder(Quirks::default());
    let key = |history: &[Arc<Message>]| {
        let session = Some(SessionId::new("20260101-000000-aaaaaa"));
        let request = Request { session, ..request(history) };
        let body = encoder.encode(&request, false).unwrap().bytes;
        serde_json::from_slice::<Value>(&body).unwrap()["prompt_cache_key"].take()
    };
    for history in [[system("S"), user("go")], [system("S"), user("a summary")]] {
        assert_eq!(key(&history), "20260101-000000-aaaaaa");
    }
}

#[test]
fn cache_key_without_a_session_depends_on_the_start_of_the_conversation() {
    let encoder = encoder(Quirks::default());
    let key = |history: &[Arc<Message>]| {
        let body: Value =
            serde_json::from_slice(&encoder.encode(&request(history), false).unwrap().bytes)
                .unwrap();
        body["prompt_cache_key"].as_str().unwrap().to_owned()
    };
    let mut history = vec![system("S"), user("go")];
    let first = key(&history);
    assert_eq!(first.len(), "posse-".len() + 16);
    for nth in 0..5 {
        history.push(assistant(Some("a"), vec![call(&format!("c{nth}"), "{}")], None));
        history.push(result(&format!("c{nth}"), vec![]));
        assert_eq!(key(&history), first);
    }
    assert_ne!(key(&[system("S"), user("other")]), first);
    assert_ne!(key(&[system("T"), user("go")]), first);
}

#[test]
fn message_is_encoded_once() {
    let encoder = encoder(Quirks::default());
    let mut history = vec![system("S"), user("go"), assistant(Some("a"), vec![], None)];
    encoder.encode(&request(&history), false).unwrap();
    // A mark in the buffer shows whether it is written again.
    let mut kept = encoder.kept.lock().unwrap();
    let json = String::from_utf8(kept.histories.0[0].json.clone()).unwrap();
    kept.histories.0[0].json = json.replace("go", "GO").into_bytes();
    drop(kept);
    for nth in 0..50 {
        history.push(user(&nth.to_string()));
        history.push(assistant(Some("b"), vec![call(&format!("c{nth}"), "{}")], None));
        history.push(result(&format!("c{nth}"), vec![]));
        // The instructions are the same, and another message.
        history[0] = system("S");
        let body =
            String::from_utf8(encoder.encode(&request(&history), false).unwrap().bytes).unwrap();
        assert!(body.contains("\"GO\""), "{body}");
    }
    assert_eq!(encoder.kept.lock().unwrap().histories.0.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_history_is_accepted_by_a_server(
        history in any_history(OWNER),
        no_vision in any::<bool>(),
    ) {
        let quirks = Quirks { no_vision, ..Quirks::default() };
        let growing = encoder(quirks.clone());
        for length in 0..=history.len() {
            let wanted = Request { tools: tools(2), ..request(&history[..length]) };
            let Ok(body) = growing.encode(&wanted, true) else { continue };
            let body = body.bytes;
            assert_valid(strict::responses, &body);
            let fresh = encoder(quirks.clone()).encode(&wanted, true).unwrap().bytes;
            prop_assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(fresh).unwrap());
        }
    }

    #[test]
    fn every_compacted_history_is_accepted_by_a_server(
        history in any_history(OWNER),
        tokens_max in 0..300u64,
        turns_kept in 0..4usize,
    ) {
        let Some(less) = compacted(&history, tokens_max, turns_kept) else { return Ok(()) };
        let wanted = Request { tools: tools(2), ..request(&less) };
        let Ok(body) = encoder(Quirks::default()).encode(&wanted, true) else { return Ok(()) };
        assert_valid(strict::responses, &body.bytes);
    }
}
