//! Histories, valid and not, and the bodies they become.

use posse_actors::conversation::{AssistantMessage, CallId, ContentPart, Reasoning, ToolCall};
use posse_actors::ports::{Request, SideEffect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::encoded_history::HISTORIES_MAX;
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
        provider_id: Some("toolu_0".to_owned()),
        name: "bash".to_owned(),
        arguments: arguments.to_owned(),
    }
}

fn assistant(text: Option<&str>, tool_calls: Vec<ToolCall>) -> Arc<Message> {
    thinking(text, tool_calls, None)
}

fn thinking(text: Option<&str>, tool_calls: Vec<ToolCall>, items: Option<Value>) -> Arc<Message> {
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

fn done(id: &str) -> Arc<Message> {
    result(id, vec![ContentPart::text("done")])
}

fn thought() -> Value {
    json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
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

fn encoder(quirks: Quirks) -> Encoder<MessagesDialect> {
    let mut profile = ProviderProfile::new("mine", "https://h.example/v1", "m", None);
    profile.protocol = Protocol::Messages;
    profile.quirks = quirks;
    Encoder::new(profile)
}

fn body_with(quirks: Quirks, request: &Request) -> Value {
    let body = encoder(quirks).encode(request, false).unwrap().bytes;
    assert_valid(strict::messages, &body);
    serde_json::from_slice(&body).unwrap()
}

fn unmarked() -> Quirks {
    Quirks { no_prompt_cache: true, ..Quirks::default() }
}

fn messages(messages: &[Arc<Message>]) -> Value {
    body_with(unmarked(), &request(messages))["messages"].take()
}

#[test]
fn stable_parts_come_first() {
    let full = Request {
        tools: tools(1),
        temperature: Some(0.5),
        tokens_max: Some(7),
        ..request(&[system("Be brief."), user("hi")])
    };
    let body =
        String::from_utf8(encoder(Quirks::default()).encode(&full, true).unwrap().bytes).unwrap();
    insta::assert_snapshot!(body, @r#"{"model":"m","max_tokens":7,"stream":true,"temperature":0.5,"tools":[{"name":"tool_0","description":"Does.","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#);
    let quirks = Quirks { omit_temperature: true, effort: Some("high".to_owned()), ..unmarked() };
    let body = String::from_utf8(encoder(quirks).encode(&full, false).unwrap().bytes).unwrap();
    insta::assert_snapshot!(body, @r#"{"model":"m","max_tokens":7,"output_config":{"effort":"high"},"tools":[{"name":"tool_0","description":"Does.","input_schema":{"type":"object"}}],"system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#);
}

#[test]
fn continues_after_tools_with_text_images_and_errors() {
    let image =
        ContentPart::ImageUrl { url: "data:image/png;base64,AAAA".to_owned(), detail: None };
    let failed = Arc::new(Message::Tool {
        tool_call_id: CallId::new("c2"),
        name: "bash".to_owned(),
        content: vec![],
        is_error: true,
    });
    let history = [
        Arc::new(Message::User { content: vec![ContentPart::text("look"), image.clone()] }),
        thinking(
            Some("I look. "),
            vec![call("c1", r#"{"path":"a"}"#), call("c2", ""), call("c3", "[1")],
            Some(json!([thought(), {"type": "text", "bytes": 8}, {"type": "tool_use"},
                {"type": "tool_use"}, {"type": "tool_use"}])),
        ),
        result("c1", vec![ContentPart::text("shot"), image]),
        failed,
        user("and?"),
    ];
    insta::assert_snapshot!(format!("{:#}", messages(&history)));
}

#[test]
fn cache_marks_are_at_the_end_of_the_last_and_this_request() {
    let encoder = encoder(Quirks::default());
    let marked = |history: &[Arc<Message>]| -> Vec<String> {
        let wanted = Request { tools: tools(3), ..request(history) };
        let body = encoder.encode(&wanted, false).unwrap().bytes;
        assert_valid(strict::messages, &body);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let blocks = ["tools", "system"].into_iter().flat_map(|list| {
            let blocks = body[list].as_array().cloned().unwrap_or_default();
            blocks.into_iter().map(move |block| (list.to_owned(), block))
        });
        let said = body["messages"].as_array().unwrap().iter().enumerate();
        let said = said.flat_map(|(at, message)| {
            let blocks = message["content"].as_array().unwrap().clone();
            blocks.into_iter().map(move |block| (format!("{at}"), block))
        });
        blocks
            .chain(said)
            .filter(|(_, block)| block["cache_control"] == json!({"type": "ephemeral"}))
            .map(|(place, block)| {
                let name = block["name"].as_str().or(block["tool_use_id"].as_str());
                format!("{place} {}", name.or(block["text"].as_str()).unwrap_or_default())
            })
            .collect()
    };
    let mut history = vec![system("S"), system("T"), user("go")];
    assert_eq!(marked(&history), ["tools tool_2", "system T", "0 go"]);
    let many = (0..30).map(|nth| call(&format!("c{nth}"), "{}"));
    history.push(assistant(None, many.collect()));
    history.extend((0..30).map(|nth| done(&format!("c{nth}"))));
    assert_eq!(marked(&history), ["tools tool_2", "system T", "0 go", "2 c29"]);
    history.extend([assistant(Some("a"), vec![call("d", "{}")]), done("d"), user("more")]);
    assert_eq!(marked(&history), ["tools tool_2", "system T", "2 c29", "4 more"]);
    assert_eq!(marked(&history[2..]), ["tools tool_2", "2 c29", "4 more"]);
}

#[test]
fn tool_choice_is_omitted_if_the_server_does_not_know_it() {
    // Without tools, but with a call in the history.
    let past = request(&[user("go"), assistant(None, vec![call("c1", "{}")]), done("c1")]);
    let quirks = Quirks { omit_tool_choice: true, ..Quirks::default() };
    for (quirks, expected) in [(Quirks::default(), json!({"type": "none"})), (quirks, Value::Null)]
    {
        let body = body_with(quirks, &past);
        assert_eq!(body["tool_choice"], expected);
        assert_eq!(body["tools"][0]["name"], "none");
    }
}

#[test]
fn any_history_becomes_a_valid_conversation() {
    let shown = |history: &[Arc<Message>]| {
        let said = messages(history);
        let lines = said.as_array().unwrap().iter().map(|message| {
            let blocks = message["content"].as_array().unwrap().iter().map(|block| {
                let detail = [&block["text"], &block["id"], &block["tool_use_id"]];
                let detail = detail.into_iter().find_map(Value::as_str).unwrap_or_default();
                format!("{} {detail}", block["type"].as_str().unwrap())
            });
            let role = message["role"].as_str().unwrap();
            format!("{role}: {}", blocks.collect::<Vec<_>>().join(", "))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(shown(&[]), @"user: text Go on.");
    insta::assert_snapshot!(shown(&[user(" "), done("stray")]), @"user: text (empty message)");
    insta::assert_snapshot!(shown(&[
        assistant(Some("first"), vec![]),
        assistant(Some(" \n"), vec![]),
        user("a"),
        user("b"),
        system("c"),
        assistant(None, vec![call("1", "{}"), call("2", "{}")]),
        done("2"),
        user("d"),
        done("1"),
        done("1"),
        thinking(None, vec![], Some(json!([thought()]))),
    ]), @r"
    user: text Go on.
    assistant: text first
    user: text Go on.
    assistant: text (no answer)
    user: text a, text b, text c
    assistant: tool_use 1, tool_use 2
    user: tool_result 1, tool_result 2, text d
    assistant: text (no answer)
    user: text Go on.
    ");
}

#[test]
fn order_of_thinking_and_text_is_kept() {
    let kinds = |message: Arc<Message>| {
        let said = messages(&[user("go"), message, done("c1")]);
        let blocks = said[1]["content"].as_array().unwrap().clone();
        let name = |block: &Value| match block["type"].as_str().unwrap() {
            "text" => block["text"].as_str().unwrap().to_owned(),
            kind => kind.to_owned(),
        };
        blocks.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    let hidden = json!({"type": "redacted_thinking", "data": "eA=="});
    let piece = |bytes: usize| json!({"type": "text", "bytes": bytes});
    let used = json!({"type": "tool_use"});
    let calls = || vec![call("c1", "{}")];
    let order = json!([thought(), piece(3), hidden, piece(3), used]);
    assert_eq!(
        kinds(thinking(Some("onetwo"), calls(), Some(order.clone()))),
        "thinking one redacted_thinking two tool_use"
    );
    // What does not fit the message any more is put in front of it, or left out.
    let all = "thinking redacted_thinking";
    assert_eq!(
        kinds(thinking(Some("one"), calls(), Some(order.clone()))),
        format!("{all} one tool_use")
    );
    assert_eq!(
        kinds(thinking(Some("onetwo"), vec![], Some(order.clone()))),
        format!("{all} onetwo")
    );
    assert_eq!(kinds(thinking(None, vec![], Some(order))), "(no answer)");
    assert_eq!(kinds(thinking(Some("x"), vec![], Some(json!([piece(1), thought()])))), "x");
    let unsigned = json!([{"type": "thinking", "thinking": "hm", "signature": ""}, piece(1)]);
    assert_eq!(kinds(thinking(Some("x"), vec![], Some(unsigned))), "x");
}

#[test]
fn thinking_is_requested_only_where_supported() {
    let history = |items: Option<Value>| {
        let two = vec![call("c1", "{}")];
        [
            user("go"),
            thinking(None, two, items),
            done("c1"),
            assistant(None, vec![call("c2", "{}")]),
            done("c2"),
        ]
    };
    let asked = |quirks: &Quirks, tokens_max: Option<u64>, messages: &[Arc<Message>]| {
        let wanted = Request { tokens_max, temperature: Some(0.1), ..request(messages) };
        let mut body = body_with(quirks.clone(), &wanted);
        (body["thinking"].take(), body["temperature"].is_null())
    };
    let budget = Quirks { thinking_budget: Some(4096), ..Quirks::default() };
    let enabled = |tokens: u64| (json!({"type": "enabled", "budget_tokens": tokens}), true);
    let not = (Value::Null, false);
    assert_eq!(asked(&budget, None, &[user("go")]), enabled(4096));
    assert_eq!(asked(&budget, Some(2000), &[user("go")]), enabled(1999));
    assert_eq!(asked(&budget, Some(1024), &[user("go")]), not);
    assert_eq!(asked(&budget, None, &history(Some(json!([thought()])))), enabled(4096));
    assert_eq!(asked(&budget, None, &history(None)), not);
    let mut over = history(None).to_vec();
    over.push(assistant(Some("so"), vec![]));
    over.push(user("next"));
    assert_eq!(asked(&budget, None, &over), enabled(4096));
    let adaptive = Quirks { adaptive_thinking: true, ..Quirks::default() };
    assert_eq!(asked(&adaptive, None, &history(None)), (json!({"type": "adaptive"}), true));
}

#[test]
fn thinking_level_overrides_the_profile() {
    use posse_actors::ports::Thinking::{ExtraHigh, Low, Off};
    let asked = |quirks: &Quirks, thinking| {
        let wanted = Request { thinking: Some(thinking), ..request(&[user("go")]) };
        let mut body = body_with(quirks.clone(), &wanted);
        (body["thinking"].take(), body["output_config"]["effort"].take())
    };
    let budget = Quirks { thinking_budget: Some(4096), ..Quirks::default() };
    let enabled = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    assert_eq!(asked(&budget, Low), (enabled(4096), Value::Null));
    let thinking_budgets = [("low".to_owned(), 3000)].into();
    let own = Quirks { thinking_budgets, ..budget.clone() };
    assert_eq!(asked(&own, Low), (enabled(3000), Value::Null));
    assert_eq!(asked(&budget, ExtraHigh), (enabled(24_000), Value::Null));
    assert_eq!(asked(&budget, Off), (Value::Null, Value::Null));
    let effort = Some("medium".to_owned());
    let adaptive = Quirks { adaptive_thinking: true, effort, ..Quirks::default() };
    assert_eq!(asked(&adaptive, Low), (json!({"type": "adaptive"}), json!("low")));
    assert_eq!(asked(&adaptive, Off), (Value::Null, Value::Null));
    let unknown = encoder(Quirks::default());
    let wanted = Request { thinking: Some(Low), ..request(&[user("go")]) };
    let body = unknown.encode(&wanted, false).unwrap();
    assert!(body.notice.unwrap().starts_with("thinking \"low\" is left out of requests to m: "));
    assert_eq!(unknown.encode(&wanted, false).unwrap().notice, None, "it is said once");
}

#[test]
fn message_is_encoded_once() {
    let encoder = encoder(unmarked());
    let mut history = vec![system("S"), user("go"), assistant(Some("a"), vec![])];
    encoder.encode(&request(&history), false).unwrap();
    // A mark in the buffer shows whether it is written again.
    let mut kept = encoder.kept.lock().unwrap();
    let json = String::from_utf8(kept.histories.0[0].json.clone()).unwrap();
    kept.histories.0[0].json = json.replace("go", "GO").into_bytes();
    drop(kept);
    for nth in 0..50 {
        history.push(user(&nth.to_string()));
        history.push(assistant(Some("b"), vec![call(&format!("c{nth}"), "{}")]));
        history.push(done(&format!("c{nth}")));
        // The instructions are the same, and another message.
        history[0] = system("S");
        let body =
            String::from_utf8(encoder.encode(&request(&history), false).unwrap().bytes).unwrap();
        assert!(body.contains("\"GO\""), "{body}");
    }
    let kept = encoder.kept.lock().unwrap();
    assert_eq!(kept.histories.0.len(), 1);
    assert!(kept.systems.len() <= HISTORIES_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_history_is_accepted_by_a_server(
        history in any_history(OWNER),
        budget in prop::option::of(Just(2048_u64)),
        no_prompt_cache in any::<bool>(),
        offered in 0..3_usize,
    ) {
        let quirks = Quirks { thinking_budget: budget, no_prompt_cache, ..Quirks::default() };
        let growing = encoder(quirks.clone());
        let offered = tools(offered);
        for length in 0..=history.len() {
            let wanted = Request { tools: Arc::clone(&offered), ..request(&history[..length]) };
            let body = growing.encode(&wanted, true).unwrap().bytes;
            assert_valid(strict::messages, &body);
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
        assert_valid(strict::messages, &body.bytes);
    }
}
