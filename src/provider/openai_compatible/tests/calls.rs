//! Calls in pieces, reasons to stop, and pieces that no protocol knows.

use super::*;

/// Id, name and arguments of a call.
type ExpectedCall = (&'static str, &'static str, &'static str);

#[tokio::test]
async fn parallel_calls_are_separated() {
    let first = r#"{"choices":[{"delta":{"tool_calls":[%]}}]}"#;
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let piece = |pieces: &str| first.replace('%', pieces);
    let table: &[(&[&str], &[ExpectedCall])] = &[
        // Interleaved.
        (
            &[
                r#"{"index":1,"id":"b","function":{"name":"y","arguments":"{"}}"#,
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}"#,
                r#"{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"}"}}"#,
            ],
            &[("b", "y", "{}"), ("a", "x", "{}")],
        ),
        // The same id twice, and none at all.
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":1,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":2,"function":{"name":"x","arguments":"{}"}}"#,
            ],
            &[("a", "x", "{}"), ("a", "x", "{}"), ("", "x", "{}")],
        ),
        // No index, each whole; then the same index for all.
        (
            &[
                r#"{"id":"a","function":{"name":"x","arguments":"{}"}},{"id":"b","function":{"name":"y","arguments":{"k":1}}}"#,
            ],
            &[("a", "x", "{}"), ("b", "y", r#"{"k":1}"#)],
        ),
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"x","arguments":"{}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"x","arguments":"{}"}}"#,
            ],
            &[("a", "x", "{}"), ("b", "x", "{}"), ("b", "x", "{}")],
        ),
        // The name and the id again with every piece; no index anywhere.
        (
            &[
                r#"{"id":"a","function":{"name":"x","arguments":"{\"k\":"}}"#,
                r#"{"id":"a","function":{"name":"x","arguments":"1}"}}"#,
                r#"{"function":{"arguments":" "}}"#,
            ],
            &[("a", "x", "{\"k\":1} ")],
        ),
        // Numbers as strings, nonsense, null, and a call without a name.
        (
            &[
                r#"{"index":"0","id":7,"function":{"name":"x","arguments":null,"extra":[{}]}}"#,
                r#"null,5,{"index":9},{"index":0,"id":null,"function":{"name":null,"arguments":"{}"}}"#,
            ],
            &[("7", "x", "{}")],
        ),
    ];
    for (pieces, expected) in table {
        let mut events: Vec<String> = pieces.iter().map(|pieces| piece(pieces)).collect();
        events.push(end.to_owned());
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let reply = completed(stream(sse(&events))).await;
        let expected: Vec<ToolCall> =
            expected.iter().map(|(id, name, arguments)| call(id, name, arguments)).collect();
        assert_eq!(reply.message.tool_calls, expected);
        assert_eq!(reply.stop_reason, StopReason::ToolUse);
    }
}

#[tokio::test]
async fn stops_with_tool_use_only_if_there_is_a_call() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"a\":"}}]}}]}"#;
    let nameless = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}"#;
    let text = r#"{"choices":[{"delta":{"content":"t"}}]}"#;
    let refusal = r#"{"choices":[{"delta":{"refusal":"no"}}]}"#;
    let table = [
        (vec![text], "stop", StopReason::EndTurn, 0),
        (vec![text], "tool_calls", StopReason::EndTurn, 0),
        (vec![], "tool_calls", StopReason::Error, 0),
        (vec![call], "stop", StopReason::ToolUse, 1),
        (vec![call], "tool_calls", StopReason::ToolUse, 1),
        (vec![call], "eos_token", StopReason::ToolUse, 1),
        (vec![call], "toolUse", StopReason::ToolUse, 1),
        (vec![call], "tool-calls", StopReason::ToolUse, 1),
        (vec![text], "unknown", StopReason::EndTurn, 0),
        (vec![text], "STOP_SEQUENCE", StopReason::EndTurn, 0),
        // The server has stopped early.
        (vec![call], "abort", StopReason::MaxTokens, 1),
        (vec![text], "insufficient_system_resource", StopReason::MaxTokens, 0),
        (vec![text], "repetition", StopReason::MaxTokens, 0),
        (vec![], "cancelled", StopReason::Error, 0),
        // The cut call stays, so that the model is told why it did not run.
        (vec![text, call], "length", StopReason::MaxTokens, 1),
        (vec![text, nameless], "length", StopReason::MaxTokens, 0),
        (vec![call], "max_tokens", StopReason::MaxTokens, 1),
        (vec![call], "content_filter", StopReason::ContentFilter, 0),
        (vec![text], "content_filter", StopReason::ContentFilter, 0),
        (vec![call], "content_filter: PROHIBITED_CONTENT", StopReason::ContentFilter, 0),
        (vec![], "SAFETY", StopReason::ContentFilter, 0),
        (vec![text], "RECITATION", StopReason::ContentFilter, 0),
        (vec![refusal], "stop", StopReason::ContentFilter, 0),
        (vec![text], "error", StopReason::Error, 0),
        (vec![], "stop", StopReason::EndTurn, 0),
    ];
    for (events, finish, stop_reason, calls) in table {
        let end = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{finish}"}}]}}"#);
        let events: Vec<&str> = events.into_iter().chain([end.as_str()]).collect();
        let reply = completed(stream(sse(&events))).await;
        assert_eq!((reply.stop_reason, reply.message.tool_calls.len()), (stop_reason, calls));
    }
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let body = format!(
        "\u{feff}: hi\r\nid: 3\r\nretry: x\r\nnonsense\r\n\r\n{}",
        sse(&[
            r#"{"type":"ping"}"#,
            r#"{"choices":null,"x":{"y":[1,2,{"z":null}]}}"#,
            r#"{"choices":[{"delta":"odd","finish_reason":null,"logprobs":{}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"ok"},{"type":"odd"},7]}}]}"#,
            r#"{"choices":[{"delta":null,"message":{"content":"ok again, whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":1000000000},"error":null}"#,
        ])
    );
    let reply = completed(stream(body)).await;
    assert_eq!(reply.message.content.as_deref(), Some("ok"));
    assert_eq!(reply.usage, Some(Usage::default()));
}

#[tokio::test]
async fn split_characters_are_joined() {
    let events = [
        r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ude00 \ud83d\ude00 \\ud83d ü"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":\"\udfff\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ];
    let reply = completed(stream(sse(&events))).await.message;
    assert_eq!(reply.content.as_deref(), Some("a\u{fffd}\u{fffd} \u{1f600} \\ud83d ü"));
    assert_eq!(reply.tool_calls, [call("a", "x", "{\"k\":\"\u{fffd}\"}")]);
}
