//! Histories, valid and not, and the bodies they become.

use posse_actors::conversation::{AssistantMessage, CallId, ContentPart, Reasoning, ToolCall};
use posse_actors::ports::{Request, SideEffect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::encoded_history::HISTORIES_MAX;
use crate::profile::{ModelFact, ProviderProfile, Quirks};
use crate::testing::histories::{any_history, compacted};
use crate::testing::strict::{self, assert_valid};

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User { content: vec![ContentPart::text(text)] })
}

fn call(id: &str, provider_id: Option<&str>, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        provider_id: provider_id.map(str::to_owned),
        name: "bash".to_owned(),
        arguments: arguments.to_owned(),
    }
}

fn assistant(text: Option<&str>, tool_calls: Vec<ToolCall>) -> Arc<Message> {
    let content = text.map(str::to_owned);
    Arc::new(Message::Assistant(AssistantMessage { content, reasoning: None, tool_calls }))
}

fn result(id: &str, content: Vec<ContentPart>) -> Arc<Message> {
    Arc::new(Message::Tool {
        tool_call_id: CallId::new(id),
        name: "bash".to_owned(),
        content,
        is_error: false,
    })
}

fn image() -> ContentPart {
    ContentPart::ImageUrl { url: "data:image/png;base64,AA==".to_owned(), detail: None }
}

fn request(messages: &[Arc<Message>]) -> Request {
    let tools: [ToolSpec; 0] = [];
    Request {
        messages: messages.to_vec(),
        tools: Arc::new(tools),
        stream: false,
        tokens_max: None,
        temperature: None,
        thinking: None,
        session: None,
    }
}

fn encoder(quirks: Quirks) -> Encoder<ChatDialect> {
    of(&ProviderProfile { quirks, ..profile() })
}

fn profile() -> ProviderProfile {
    ProviderProfile::new("mine", "https://h.example/v1", "m", None)
}

fn of(profile: &ProviderProfile) -> Encoder<ChatDialect> {
    Encoder::new(profile.clone())
}

fn messages_with(quirks: Quirks, messages: &[Arc<Message>]) -> Value {
    let body = encoder(quirks).encode(&request(messages), false).unwrap();
    serde_json::from_slice::<Value>(&body.bytes).unwrap()["messages"].take()
}

fn messages(messages: &[Arc<Message>]) -> Value {
    messages_with(Quirks::default(), messages)
}

#[test]
fn stable_parts_come_first() {
    let spec = ToolSpec {
        name: "bash".to_owned(),
        description: "Runs.".to_owned(),
        parameters: json!({ "type": "object" }),
        side_effect: SideEffect::Process,
        source: "builtin".to_owned(),
        annotations: posse_actors::ports::ToolAnnotations::default(),
    };
    let full = Request {
        tools: Arc::new([spec]),
        temperature: Some(0.5),
        tokens_max: Some(7),
        ..request(&[user("hi")])
    };
    let body = |quirks: Quirks| {
        let encoder = of(&ProviderProfile { quirks, max_tokens: Some(9), ..profile() });
        String::from_utf8(encoder.encode(&full, true).unwrap().bytes).unwrap()
    };
    insta::assert_snapshot!(body(Quirks::default()), @r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"bash","description":"Runs.","parameters":{"type":"object"}}}],"tool_choice":"auto","temperature":0.5,"max_tokens":7,"messages":[{"role":"user","content":"hi"}]}"#);
    // The temperature of the profile counts if the request has none.
    for (of_request, sent) in [(None, json!(0.25)), (Some(0.5), json!(0.5))] {
        let encoder = of(&ProviderProfile { temperature: Some(0.25), ..profile() });
        let request = Request { temperature: of_request, ..full.clone() };
        let body = encoder.encode(&request, true).unwrap().bytes;
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["temperature"], sent);
    }
    let quirks = Quirks {
        omit_temperature: true,
        omit_tool_choice: true,
        omit_max_tokens: true,
        no_stream_usage: true,
        ..Quirks::default()
    };
    insta::assert_snapshot!(body(quirks), @r#"{"model":"m","stream":true,"tools":[{"type":"function","function":{"name":"bash","description":"Runs.","parameters":{"type":"object"}}}],"messages":[{"role":"user","content":"hi"}]}"#);
}

#[test]
fn thinking_level_is_sent_to_supporting_servers_only() {
    use posse_actors::ports::Thinking::Medium;

    let wanted = Request { thinking: Some(Medium), ..request(&[user("hi")]) };
    let asked = |takes: bool, thinks: Option<bool>| {
        let quirks = Quirks { reasoning_effort: takes, ..Quirks::default() };
        let insight = ModelFact::new(move || thinks);
        let body =
            of(&ProviderProfile { quirks, insight, ..profile() }).encode(&wanted, false).unwrap();
        let json: Value = serde_json::from_slice(&body.bytes).unwrap();
        (json["reasoning_effort"].clone(), body.notice.is_some())
    };
    assert_eq!(asked(true, Some(true)), (json!("medium"), false));
    assert_eq!(asked(false, Some(true)), (Value::Null, true));
    assert_eq!(asked(true, Some(false)), (Value::Null, true));
    assert_eq!(asked(true, None), (Value::Null, true));
}

#[test]
fn pairs_every_call_with_one_result() {
    let history = [
        result("stray", vec![ContentPart::text("stray")]),
        user("go"),
        assistant(
            None,
            vec![call("c1", None, "{}"), call("c2", None, "{}"), call("c3", None, "{}")],
        ),
        result("c3", vec![ContentPart::text("three")]),
        result("c1", vec![ContentPart::text("one")]),
        result("c1", vec![ContentPart::text("one again")]),
        result("c9", vec![ContentPart::text("orphan")]),
        user("and?"),
        result("c2", vec![ContentPart::text("late")]),
    ];
    let said = messages(&history);
    let shown: Vec<String> = said
        .as_array()
        .unwrap()
        .iter()
        .map(|m| format!("{} {} {}", m["role"], m["tool_call_id"], m["content"]))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    "user" null "go"
    "assistant" null null
    "tool" "c1" "one"
    "tool" "c2" "error: this call has no recorded result; it may or may not have run"
    "tool" "c3" "three"
    "user" null "and?"
    "#);
}

#[test]
fn call_names_of_the_model_are_kept_if_unambiguous() {
    let ids = |provider_ids: &[Option<&str>]| {
        let calls = provider_ids.iter().zip(1..).map(|(id, n)| call(&format!("c{n}"), *id, "{}"));
        let said = messages(&[assistant(None, calls.collect())]);
        let calls = said[0]["tool_calls"].as_array().unwrap().clone();
        let used: Vec<String> =
            calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect();
        for (at, id) in used.iter().enumerate() {
            assert_eq!(said[at + 1]["tool_call_id"], json!(id));
        }
        used
    };
    assert_eq!(ids(&[Some("a"), Some("b")]), ["a", "b"]);
    assert_eq!(ids(&[Some("a"), Some("a"), Some("b")]), ["c1", "c2", "b"]);
    assert_eq!(ids(&[Some(""), None, Some("c2")]), ["c1", "c2", "c3"]);
    assert_eq!(ids(&[Some("c1")]), ["c1"]);
}

#[test]
fn model_mistakes_are_sanitised() {
    let arguments = |text: &str| {
        let said = messages(&[assistant(None, vec![call("c", None, text)])]);
        said[0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned()
    };
    assert_eq!(arguments(r#"{"a":1}"#), r#"{"a":1}"#);
    assert_eq!(arguments(""), "{}");
    assert_eq!(arguments("[1]"), r#"{"value":[1]}"#);
    assert_eq!(arguments(r#"{"a":"#), r#"{"invalid_json":"{\"a\":"}"#);
    let mut odd = call("c", None, "{}");
    odd.name = "Read File/✓".to_owned();
    let said = messages(&[assistant(None, vec![odd])]);
    assert_eq!(said[0]["tool_calls"][0]["function"]["name"], json!("Read_File__"));
}

#[test]
fn images_are_sent_after_results() {
    let history = [
        Arc::new(Message::User { content: vec![ContentPart::text("look"), image()] }),
        assistant(None, vec![call("c1", None, "{}"), call("c2", None, "{}")]),
        result("c1", vec![ContentPart::text("shot"), image()]),
        result("c2", vec![]),
    ];
    let url = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } });
    let said = messages(&history);
    assert_eq!(said[0]["content"], json!([{ "type": "text", "text": "look" }, url]));
    assert_eq!(said[2]["content"], json!("shot\n[image: see the message after the results]"));
    assert_eq!(said[3]["content"], json!("(no output)"));
    let label = "Images in the result of bash (c1):";
    assert_eq!(
        said[4],
        json!({ "role": "user", "content": [{ "type": "text", "text": label }, url] })
    );
}

#[test]
fn model_without_image_input_gets_no_image() {
    let blind = || Quirks { no_vision: true, ..Quirks::default() };
    let looked = [
        user("look"),
        assistant(None, vec![call("c1", None, "{}")]),
        result("c1", vec![ContentPart::text("shot"), image()]),
    ];
    let said = messages_with(blind(), &looked);
    assert_eq!(said[2]["content"], json!("shot\n[image left out: this model takes no images]"));
    assert_eq!(said.as_array().unwrap().len(), 3);
    let shown =
        [Arc::new(Message::User { content: vec![ContentPart::text("look"), image()] }), user("x")];
    let why = encoder(blind()).encode(&request(&shown), false).unwrap_err();
    assert!(why.contains("noVision"), "{why}");
    let sight = ModelFact::new(|| Some("m takes none; n does".to_owned()));
    let encoder = of(&ProviderProfile { sight, ..profile() });
    assert_eq!(encoder.encode(&request(&shown), false).unwrap_err(), "m takes none; n does");
}

#[test]
fn image_support_is_looked_up_only_for_images() {
    let sight = ModelFact::new(|| panic!("nobody showed anything"));
    let encoder = of(&ProviderProfile { sight, ..profile() });
    encoder.encode(&request(&[user("hi")]), false).unwrap();
}

#[test]
fn oldest_excess_images_are_replaced_by_a_note() {
    const LEFT_OUT: &str = "[image left out: the request has more images than the provider takes]";
    let numbered = |number: usize| ContentPart::ImageUrl {
        url: format!("data:image/png;base64,{number:04}"),
        detail: None,
    };
    let quirks = || Quirks { max_images: Some(3), max_image_bytes: None, ..Quirks::default() };
    let kept = encoder(quirks());
    let mut history = vec![user("look")];
    for number in 0..6 {
        let id = format!("c{number}");
        history.push(assistant(None, vec![call(&id, None, "{}")]));
        history.push(result(&id, vec![numbered(number)]));
        let body = kept.encode(&request(&history), false).unwrap();
        let fresh = encoder(quirks()).encode(&request(&history), false).unwrap();
        assert_eq!(body.bytes, fresh.bytes, "what was kept differs from what is new");
        let text = String::from_utf8(body.bytes).unwrap();
        let left_out = (number + 1).saturating_sub(3);
        assert_eq!(text.matches(LEFT_OUT).count(), left_out);
        for each in 0..=number {
            assert_eq!(text.contains(&format!("base64,{each:04}")), each >= left_out, "{each}");
        }
        assert_eq!(body.notice.is_some(), left_out > 0, "{:?}", body.notice);
        let again = kept.encode(&request(&history), false).unwrap();
        assert_eq!(again.notice, None, "it is said once");
    }
    // One prompt can have too many, and bytes count as well.
    let prompt = |count| {
        let mut content = vec![ContentPart::text("look")];
        content.extend((0..count).map(numbered));
        [Arc::new(Message::User { content })]
    };
    let said = messages_with(quirks(), &prompt(5));
    assert_eq!(said.to_string().matches(LEFT_OUT).count(), 2);
    assert_eq!(said[0]["content"][2]["text"], json!(LEFT_OUT));
    let bytes = "data:image/png;base64,0000".len();
    for (max, sent) in [(2 * bytes, 2), (2 * bytes - 1, 1), (1, 0)] {
        let few = Quirks { max_image_bytes: Some(max), ..Quirks::default() };
        let said = messages_with(few, &prompt(4)).to_string();
        assert_eq!(said.matches("image_url\":{").count(), sent, "{said}");
    }
}

#[test]
fn thinking_is_returned_only_where_required() {
    let thought = Reasoning {
        text: "hm".to_owned(),
        field: Some("reasoning_content".to_owned()),
        opaque: None,
    };
    let history = [Arc::new(Message::Assistant(AssistantMessage {
        content: Some("yes".to_owned()),
        reasoning: Some(thought),
        tool_calls: Vec::new(),
    }))];
    let plain = json!([{ "role": "assistant", "content": "yes" }]);
    assert_eq!(messages(&history), plain);
    let quirks = Quirks { return_reasoning: true, tool_result_name: true, ..Quirks::default() };
    let with = json!([{ "role": "assistant", "content": "yes", "reasoning_content": "hm" }]);
    assert_eq!(messages_with(quirks, &history), with);
}

#[test]
fn cached_encoding_equals_a_fresh_one() {
    let encoder = encoder(Quirks::default());
    let check = |history: &[Arc<Message>]| {
        let fresh =
            self::encoder(Quirks::default()).encode(&request(history), false).unwrap().bytes;
        let kept = encoder.encode(&request(history), false).unwrap().bytes;
        assert_eq!(String::from_utf8(kept).unwrap(), String::from_utf8(fresh).unwrap());
    };
    let one = [
        user("go"),
        assistant(Some("a"), vec![call("c1", None, "{}"), call("c2", None, "{}")]),
        result("c1", vec![ContentPart::text("one")]),
        result("c2", vec![ContentPart::text("two")]),
        assistant(None, vec![call("c3", None, "{}")]),
        result("c3", vec![ContentPart::text("three")]),
        result("c3", vec![ContentPart::text("orphan")]),
        user("more"),
        assistant(Some("done"), vec![]),
    ];
    let other = [user("explore"), assistant(Some("x"), vec![]), user("y")];
    check(&[]);
    for length in 0..=one.len() {
        check(&one[..length]);
        check(&other[..length.min(other.len())]);
    }
    // Compacted, changed in the middle, shortened, and back.
    for at in 0..one.len() {
        let mut changed = one.to_vec();
        changed[at] = user("changed");
        check(&changed);
        changed.remove(at);
        check(&changed);
        check(&one[..at]);
        check(&one);
    }
    let history = |n: usize| [user(&n.to_string()), user("z")];
    for n in 0..10 {
        check(&history(n));
    }
    assert!(encoder.kept.lock().unwrap().histories.0.len() <= HISTORIES_MAX);
}

#[test]
fn message_is_serialised_once() {
    let encoder = encoder(Quirks::default());
    let mut history = vec![user("go")];
    encoder.encode(&request(&history), false).unwrap();
    // A mark in the buffer shows whether it is written again.
    encoder.kept.lock().unwrap().histories.0[0].json =
        br#"{"role":"user","content":"GO"}"#.to_vec();
    for n in 0..100 {
        history.push(user(&n.to_string()));
        let body =
            String::from_utf8(encoder.encode(&request(&history), false).unwrap().bytes).unwrap();
        assert!(body.contains(r#"{"role":"user","content":"GO"},{"role":"user","content":"0"}"#));
    }
    assert_eq!(encoder.kept.lock().unwrap().histories.0.len(), 1);
}

#[test]
fn cache_marks_are_sent_to_servers_that_use_them() {
    let quirks = Quirks { cache_breakpoints: true, ..Quirks::default() };
    let marked = |history: &[Arc<Message>]| {
        let said = messages_with(quirks.clone(), history);
        let marked = |message: &Value| {
            let last = message["content"].as_array().and_then(|parts| parts.last()).cloned();
            last.is_some_and(|part| part["cache_control"] == json!({"type": "ephemeral"}))
        };
        let at = said.as_array().unwrap().iter().enumerate();
        at.filter(|(_, message)| marked(message)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let system = Arc::new(Message::System { content: "S".to_owned() });
    let mut history = vec![system, user("go")];
    assert_eq!(marked(&history[1..]), [0]);
    assert_eq!(marked(&history), [0, 1]);
    history.push(assistant(Some("a"), vec![call("c1", None, "{}"), call("c2", None, "{}")]));
    history.push(result("c1", vec![ContentPart::text("one")]));
    history.push(result("c2", vec![ContentPart::text("two"), image()]));
    // Behind the results there is one message more, with the image.
    assert_eq!(marked(&history), [0, 1, 5]);
    history.extend([assistant(Some("b"), vec![]), user("more")]);
    assert_eq!(marked(&history), [0, 5, 7]);
    history.push(assistant(Some("c"), vec![]));
    assert_eq!(marked(&history), [0, 5, 7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_history_is_accepted_by_a_server(
        history in any_history(["none", "mine", "m"]),
        return_reasoning in any::<bool>(),
        no_vision in any::<bool>(),
        cache_breakpoints in any::<bool>(),
    ) {
        let quirks =
            Quirks { return_reasoning, no_vision, cache_breakpoints, ..Quirks::default() };
        let growing = encoder(quirks.clone());
        for length in 0..=history.len() {
            let Ok(body) = growing.encode(&request(&history[..length]), true) else { continue };
            let body = body.bytes;
            assert_valid(strict::chat, &body);
            let fresh = encoder(quirks.clone()).encode(&request(&history[..length]), true).unwrap().bytes;
            prop_assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(fresh).unwrap());
        }
    }

    #[test]
    fn every_compacted_history_is_accepted_by_a_server(
        history in any_history(["none", "mine", "m"]),
        tokens_max in 0..300u64,
        turns_kept in 0..4usize,
    ) {
        let Some(less) = compacted(&history, tokens_max, turns_kept) else { return Ok(()) };
        let wanted = request(&less);
        let Ok(body) = encoder(Quirks::default()).encode(&wanted, true) else { return Ok(()) };
        assert_valid(strict::chat, &body.bytes);
    }
}
