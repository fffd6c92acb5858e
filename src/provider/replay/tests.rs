//! Cassettes: played, refused, and recorded.

use posse_actors::conversation::{
    AssistantMessage, CallId, ContentPart, Message, StopReason, ToolCall,
};
use posse_actors::ports::Delta;
use posse_base::failure::ErrorCode;

use super::*;
use crate::testing::{Server, ask, request, stream};

const CASSETTE: &str = r#"{"cassette":1,"model":"recorded-1"}
{"request":{"tools":[],"messages":[{"user":"fix ${WORKSPACE}/a.rs"}]},"reply":{"sse":["data: {\"choices\":[{\"delta\":{\"content\":\"I will \"}}]}\n\n","data: {\"choices\":[{\"delta\":{\"content\":\"look.\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"read_file\",\"arguments\":\"{\\\"path\\\":\\\"${WORKSPACE}/a.rs\\\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"]}}

{"request":{"tools":[],"messages":[{"user":"fix ${WORKSPACE}/a.rs"},{"assistant":{"text":"I will look.","calls":[{"name":"read_file","arguments":{"path":"${WORKSPACE}/a.rs"}}]}},{"tool":{"name":"read_file","isError":false}}]},"reply":{"json":{"choices":[{"message":{"content":"Done."},"finish_reason":"stop"}]}}}
"#;

fn replay(text: &str) -> Result<Arc<dyn Provider>, Failure> {
    from_text("replay", "demo", text, Path::new("/tmp/w1"))
}

/// The second request of the cassette, with what differs from run to run.
fn second(path: &str, output: &str) -> Request {
    let mut request = request("fix /tmp/w1/a.rs");
    let call = ToolCall {
        id: CallId::new("minted-7"),
        provider_id: Some("a".to_owned()),
        name: "read_file".to_owned(),
        arguments: format!("{{ \"path\" : \"{path}\" }}"),
    };
    request.messages.push(Arc::new(Message::Assistant(AssistantMessage {
        content: Some("I will look.".to_owned()),
        reasoning: None,
        tool_calls: vec![call],
    })));
    request.messages.push(Arc::new(Message::Tool {
        tool_call_id: CallId::new("minted-7"),
        name: "read_file".to_owned(),
        content: vec![ContentPart::text(output)],
        is_error: false,
    }));
    request
}

#[tokio::test]
async fn answers_through_the_decoder_of_live_replies() {
    let provider = replay(CASSETTE).unwrap();
    assert_eq!(provider.info().model, "recorded-1");
    let (reply, deltas) = ask(&*provider, request("fix /tmp/w1/a.rs")).await;
    let reply = reply.unwrap();
    assert_eq!(reply.stop_reason, StopReason::ToolUse);
    assert_eq!(reply.message.tool_calls[0].arguments, r#"{"path":"/tmp/w1/a.rs"}"#);
    let text = |text: &str| Delta::Text(text.to_owned());
    assert_eq!(deltas, [text("I will "), text("look.")]);
    let (reply, _) = ask(&*provider, second("/tmp/w1/a.rs", "finished in 0.01s")).await;
    assert_eq!(reply.unwrap().message.content.as_deref(), Some("Done."));
    // Once more, as after a fault.
    let (reply, _) = ask(&*provider, second("/tmp/w1/a.rs", "finished in 0.02s")).await;
    assert_eq!(reply.unwrap().message.content.as_deref(), Some("Done."));
}

#[tokio::test]
async fn shows_where_a_request_differs() {
    let provider = replay(CASSETTE).unwrap();
    let mut requests = vec![request("break it"), second("/etc/passwd", "")];
    ask(&*provider, request("fix /tmp/w1/a.rs")).await.0.unwrap();
    let mut shown = Vec::new();
    requests.push({
        let mut more = second("/tmp/w1/a.rs", "");
        more.messages.push(Arc::clone(&more.messages[0]));
        more
    });
    for request in requests {
        shown.push(ask(&*provider, request).await.0.unwrap_err().chain());
    }
    insta::assert_snapshot!(shown.join("\n"), @r#"
    the provider rejected the request: replay: no exchange of the cassette fits the request: message 0 is recorded as `{"user":"fix ${WORKSPACE}/a.rs"}`, but is `{"user":"break it"}`
    the provider rejected the request: replay: no exchange of the cassette fits the request: message 1 is recorded as `{"assistant":{"text":"I will look.","calls":[{"name":"read_file","arguments":{"path":"${WORKSPACE}/a.rs"}}]}}`, but is `{"assistant":{"text":"I will look.","calls":[{"name":"read_file","arguments":{"path":"/etc/passwd"}}]}}`
    the provider rejected the request: replay: no exchange of the cassette fits the request: 3 messages are recorded, but there are 4
    "#);
}

#[test]
fn invalid_cassette_is_refused() {
    let table = [
        ("", "demo:1"),
        ("\n", "demo:1"),
        ("{}", "demo:1"),
        ("{\"cassette\":2,\"model\":\"m\"}", "demo:1"),
        ("{\"cassette\":1,\"model\":\"m\"}\n\n{\"request\":1}", "demo:3"),
    ];
    for (text, place) in table {
        let failure = replay(text).err().unwrap();
        assert_eq!(
            (failure.code.as_str(), failure.place.as_deref()),
            ("CFG031", Some(place)),
            "{text}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        open("replay", folder.path(), folder.path()).err().unwrap().code,
        ErrorCode::CassetteUnreadable
    );
    assert_eq!(
        open("replay", &folder.path().join("x"), folder.path()).err().unwrap().code,
        ErrorCode::CassetteUnreadable
    );
    assert_eq!(
        from_text("replay", "demo", CASSETTE, Path::new("/a\"b")).err().unwrap().code,
        ErrorCode::CassetteInvalid
    );
}

fn tape(file: &Path, several: bool) -> Result<Tape, Failure> {
    Tape::create("m".to_owned(), several, file, Path::new("/tmp/w1"), Box::new(|_| {}))
}

#[tokio::test]
async fn each_provider_replays_its_own_replies() {
    let says = |text: &str| {
        stream(format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}\n\ndata: [DONE]\n\n"
        ))
    };
    let busy = crate::testing::answer("429 Too Many", "retry-after: 60\r\n", "{}");
    let first = Server::start([busy, says("of the first")]).await;
    let second = Server::start([says("of the second")]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.jsonl");
    let made = tape(&file, true).unwrap();
    let named = |server: &Server, name: &str| {
        let (name, model) = (name.to_owned(), format!("{name}-1"));
        let profile = crate::profile::ProviderProfile { name, model, ..server.profile() };
        made.recording(crate::connect(profile).unwrap())
    };
    let (one, two) = (named(&first, "one"), named(&second, "two"));
    let refused = ask(&*one, request("go")).await.0.unwrap_err();
    ask(&*two, request("go")).await.0.unwrap();
    ask(&*one, request("go")).await.0.unwrap();

    let player = |name: &str| open(name, &file, Path::new("/tmp/w1")).unwrap();
    let said = async |player: &Arc<dyn Provider>| {
        ask(&**player, request("go")).await.0.map(|reply| reply.message.content.unwrap())
    };
    let (one, two) = (player("one"), player("two"));
    assert_eq!((one.info().model.as_str(), two.info().profile.as_str()), ("one-1", "two"));
    let again = said(&one).await.unwrap_err();
    assert_eq!(again.chain(), refused.chain());
    let minute = Some(Duration::from_mins(1));
    let is_same =
        matches!(again, ProviderError::RateLimited { retry_after, .. } if retry_after == minute);
    assert!(is_same, "{again:?}");
    assert_eq!(said(&one).await.unwrap(), "of the first");
    assert_eq!(said(&two).await.unwrap(), "of the second");
    // One voice for all of them knows no failures.
    let all = player("taped");
    assert_eq!(said(&all).await.unwrap(), "of the second");
    assert_eq!(said(&all).await.unwrap(), "of the first");
    assert_eq!(all.info().model, "m");
}

#[tokio::test]
async fn recording_replays_identically() {
    let events: String = [
        r#"{"model":"m-1","choices":[{"delta":{"reasoning":"hm"}}]}"#,
        r#"{"choices":[{"delta":{"content":"In /tmp/w1: "}}]}"#,
        r#"{"choices":[{"delta":{"content":"go"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":\"ls /tmp/w1\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
        "[DONE]",
    ]
    .map(|event| ["data: ", event, "\n\n"].concat())
    .concat();
    let server = Server::start([stream(&events), stream(&events)]).await;
    let live = crate::connect(server.profile()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.jsonl");
    let recorder = tape(&file, false).unwrap().recording(live);
    let (streamed, streamed_deltas) = ask(&*recorder, request("list /tmp/w1")).await;
    let whole_request = Request { stream: false, ..request("list it") };
    let (whole, _) = ask(&*recorder, whole_request.clone()).await;

    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("/tmp/w1") && !text.contains("0123456789"), "{text}");
    let provider = open("replay", &file, Path::new("/tmp/w1")).unwrap();
    let (replayed, replayed_deltas) = ask(&*provider, request("list /tmp/w1")).await;
    assert_eq!(replayed.unwrap(), streamed.unwrap());
    let joined = |deltas: Vec<Delta>| {
        deltas.iter().fold((String::new(), String::new()), |(thought, said), delta| match delta {
            Delta::Thinking(text) => (thought + text, said),
            Delta::Text(text) => (thought, said + text),
            Delta::Notice(_) | Delta::Usage(_) | Delta::Alive => (thought, said),
        })
    };
    assert_eq!(joined(replayed_deltas), joined(streamed_deltas));
    assert_eq!(ask(&*provider, whole_request).await.0.unwrap(), whole.unwrap());
    assert_eq!(tape(&file, false).err().unwrap().code, ErrorCode::CassetteUnwritable);
}

/// Opaque data is replayed unchanged, and so are all usage figures.
#[tokio::test]
async fn every_dialect_replays_with_its_opaque_data() {
    use crate::profile::Protocol;
    use crate::testing::replies::profile;
    let dialects = [
        (
            Protocol::Messages,
            include_str!("../anthropic/fixtures/thinking_and_calls.sse"),
            "EqoBCkgIARABGAIiQL2UpcVRUvlu==",
        ),
        (
            Protocol::Responses,
            include_str!("../openai_responses/fixtures/thinking_and_calls.sse"),
            "gAAAAABpZW5jcnlwdGVk==",
        ),
        (
            Protocol::ChatCompletions,
            include_str!("../openai_compatible/fixtures/gemini_signed_calls.sse"),
            "CiQBc2lnbmVk+/==",
        ),
    ];
    for (protocol, events, secret) in dialects {
        let server = Server::start([stream(events)]).await;
        let live = crate::connect(profile(&server, protocol)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.jsonl");
        let tape = tape(&file, false).unwrap().recording(live);
        let recorded = ask(&*tape, request("go")).await.0.unwrap();
        let kept = serde_json::to_string(&recorded.message.reasoning).unwrap();
        assert!(kept.contains(secret), "{protocol:?} {kept}");
        let player = open("replay", &file, Path::new("/tmp/w1")).unwrap();
        assert_eq!(ask(&*player, request("go")).await.0.unwrap(), recorded, "{protocol:?}");
    }
}
