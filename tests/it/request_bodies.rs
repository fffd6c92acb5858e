//! Request bodies of every kind in every protocol: first turn, several turns, images, subagents,
//! compaction, and calls that were cut off, streamed and not. The strictest servers check them, and
//! `tests/conformance/sdk_types.py` checks the recorded ones against the official SDKs.

use serde_json::{Value, json};

use crate::dialects::{CHAT, DIALECTS, ScriptedReply, TestDialect, WireServer, chat_stream, sse};
use crate::posse::{Machine, side_by_side};

/// A PNG image with one pixel.
const DOT: &[u8] = include_bytes!("../fixtures/dot.png");

const CUT_OFF: &str = "Not run: the reply was cut off. Make the call again, shorter.";

fn protocols() -> [TestDialect; 3] {
    [CHAT, DIALECTS[0], DIALECTS[1]]
}

/// A streamed reply with one call. Without `ends`, it stops before the end of the reply.
fn call(dialect: TestDialect, name: &str, arguments: &str, ends: bool) -> String {
    match dialect.kind {
        "anthropic" => {
            let mut events = vec![
                json!({"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 3}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {
                    "type": "tool_use", "id": "toolu_1", "name": name, "input": {}}}),
                json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": arguments}}),
            ];
            if ends {
                events.push(json!({"type": "content_block_stop", "index": 0}));
                events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                    "usage": {"output_tokens": 7}}));
                events.push(json!({"type": "message_stop"}));
            }
            sse(&events)
        }
        "openai-responses" => {
            let item = |arguments: &str| {
                json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name,
                    "arguments": arguments})
            };
            let mut events = vec![
                json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}),
                json!({"type": "response.function_call_arguments.delta", "output_index": 0,
                    "delta": arguments}),
            ];
            if ends {
                events.push(json!({"type": "response.output_item.done", "output_index": 0,
                    "item": item(arguments)}));
                events.push(json!({"type": "response.completed", "response": {
                    "status": "completed", "model": "m-1"}}));
            }
            sse(&events)
        }
        _ => {
            let call = json!({"index": 0, "id": "call_1", "type": "function",
                "function": {"name": name, "arguments": arguments}});
            let whole = chat_stream("", &[call], "tool_calls");
            let events = whole.split_inclusive("\n\n");
            // The events after the arguments: the finish reason, the usage and the end.
            let count = events.clone().count() - if ends { 0 } else { 3 };
            events.take(count).collect()
        }
    }
}

/// A reply in one JSON object that was cut off at the token limit inside of its second call.
fn cut_object(dialect: TestDialect) -> Value {
    let (whole, half) = (r#"{"path": "a.rs"}"#, r#"{"command": "ls"#);
    match dialect.kind {
        "anthropic" => json!({
            "type": "message", "role": "assistant", "model": "m-1", "stop_reason": "max_tokens",
            "content": [
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.rs"}},
                // Servers send what is left of an incomplete input as an object.
                {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {}},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 7},
        }),
        "openai-responses" => json!({
            "object": "response", "status": "incomplete", "model": "m-1",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read_file",
                    "arguments": whole, "status": "completed"},
                {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "bash",
                    "arguments": half, "status": "incomplete"},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 7},
        }),
        _ => json!({"choices": [{"index": 0, "finish_reason": "length", "message": {
        "role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function",
                "function": {"name": "read_file", "arguments": whole}},
            {"id": "call_2", "type": "function",
                "function": {"name": "bash", "arguments": half}},
        ]}}]}),
    }
}

/// The final answer `text` as one JSON object.
fn answer_object(dialect: TestDialect, text: &str) -> Value {
    match dialect.kind {
        "anthropic" => json!({
            "type": "message", "role": "assistant", "model": "m-1", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}],
        }),
        "openai-responses" => json!({
            "object": "response", "status": "completed", "model": "m-1",
            "output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]}],
        }),
        _ => json!({"choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text}}]}),
    }
}

/// Fails if a tool has started.
fn assert_nothing_ran(events: &[Value]) {
    let started: Vec<_> = events.iter().filter(|event| event["type"] == "tool.started").collect();
    assert!(started.is_empty(), "{started:?}");
}

#[test]
fn calls_that_were_cut_off_are_reported_to_the_model() {
    side_by_side(protocols(), |dialect| {
        let cut = call(dialect, "bash", r#"{"command": "ls"#, false) + dialect.limit;
        for (streams, cut, says) in [
            (true, ScriptedReply::Stream(cut), ScriptedReply::Stream((dialect.says)("Shorter."))),
            (
                false,
                ScriptedReply::Object(cut_object(dialect).to_string()),
                ScriptedReply::Object(answer_object(dialect, "Shorter.").to_string()),
            ),
        ] {
            let server = WireServer::start(dialect, vec![cut, says]);
            let settings = json!({"streaming": {"enabled": streams}});
            let machine = server.configured(dialect, &settings);
            machine.write("a.rs", "fn a() {}\n");
            let (ended, events) = machine.stream(&["-y", "go"]);
            ended.assert_code(0);
            assert_eq!(events.last().unwrap()["result"], "Shorter.");
            assert_nothing_ran(&events);
            let bodies = server.bodies();
            assert_eq!(bodies[0]["stream"] == true, streams, "{}", dialect.kind);
            let calls = if streams { 1 } else { 2 };
            let second = bodies[1].to_string();
            assert_eq!(second.matches(CUT_OFF).count(), calls, "{} {second}", dialect.kind);
            machine.verify();
        }
    });
}

#[test]
fn images_subagents_and_compaction_in_every_protocol() {
    side_by_side(protocols(), |dialect| {
        let calls = |name: &str, arguments: Value| {
            ScriptedReply::Stream(call(dialect, name, &arguments.to_string(), true))
        };
        let says = |text: &str| ScriptedReply::Stream((dialect.says)(text));
        let reads = |nth: usize| calls("read_file", json!({"path": format!("f{nth}.txt")}));
        let task = json!({"agent": "explore", "task": "Look at f0.txt."});
        let mut script = vec![calls("delegate_agent", task), reads(0), says("f0.txt is long.")];
        script.extend((0..6).map(reads));
        script.push(calls("read_file", json!({"path": "dot.png"})));
        script.push(says("Done."));
        let server = WireServer::start(dialect, script);
        let settings = json!({
            "agentMode": "multi-agent",
            "context": {"main": {"maxContextTokens": 12_000, "recentTurns": 2, "minRecentTurns": 1,
                "summaryTargetTokens": 800}},
        });
        let machine = server.configured(dialect, &settings);
        put_files(&machine);
        let (ended, events) = machine.stream(&["-y", "--image", "dot.png", "look"]);
        ended.assert_code(0);
        assert_eq!(events.last().unwrap()["result"], "Done.", "{}", ended.stdout);
        let compacted = |event: &&Value| event["type"] == "context.compacted";
        assert!(events.iter().any(|event| compacted(&event)), "{}", ended.stdout);
        let bodies = server.bodies();
        assert_eq!(bodies.len(), 11, "{}", dialect.kind);
        let (first, last) = (bodies[0].to_string(), bodies[10].to_string());
        assert!(first.contains("base64") && first.contains("delegate_agent"), "{first}");
        assert!(last.contains("Earlier parts of this conversation"), "{last}");
        assert!(last.contains("base64"), "the image that was read: {last}");
        machine.verify();
    });
}

fn put_files(machine: &Machine) {
    machine.write("dot.png", DOT);
    for nth in 0..6 {
        machine.write(&format!("f{nth}.txt"), "a line that nobody needs\n".repeat(300));
    }
}
