//! Cost of a run in all outputs, and its budget.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says, status, stream, stream_bytes};
use crate::posse::Machine;

/// $1 for a million tokens read, $10 for a million written, in micro-USD.
fn prices() -> Value {
    json!({ "scripted-1": { "inputPrice": 1_000_000, "outputPrice": 10_000_000 } })
}

fn listing() -> ModelAnswer {
    calls(&[("list_dir", json!({"path": "."}))])
}

/// A Chat Completions reply with usage.
fn counted(usage: &Value) -> ModelAnswer {
    let event = |value: Value| format!("data: {value}\n\n");
    let choice = |delta: Value, finish: Value| {
        event(json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let body = [
        choice(json!({"content": "done"}), Value::Null),
        choice(json!({}), json!("stop")),
        event(json!({"choices": [], "usage": usage})),
        "data: [DONE]\n\n".to_owned(),
    ];
    stream(body.concat().as_bytes())
}

fn show(machine: &Machine, more: &[&str]) -> (String, Value) {
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap();
    let text = machine.posse(&[&["sessions", "show", id, "--cost"], more].concat());
    text.assert_code(0);
    let json = machine.posse(&[&["sessions", "show", id, "--cost", "--json"], more].concat());
    json.assert_code(0);
    (text.stdout, serde_json::from_str(&json.stdout).unwrap())
}

fn of(events: &[Value], kind: &str) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == kind).cloned().collect()
}

#[test]
fn all_outputs_report_the_same_cost() {
    let server = ModelServer::start(vec![
        listing(),
        status("503 Service Unavailable", &[], ""),
        counted(&json!({
            "prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
            "prompt_tokens_details": {"cached_tokens": 400},
            "completion_tokens_details": {"reasoning_tokens": 20},
        })),
    ]);
    let more = json!({
        "models": {"local/scripted-1": {
            "inputPrice": 1_000_000, "outputPrice": 10_000_000, "cachedInputPrice": 100_000,
        }},
        "retry": {"baseDelay": "10ms"},
    });
    let machine = Machine::configured(&server, &more, &json!({}));
    let (ended, events) = machine.stream(&["look around"]);
    ended.assert_code(0);
    // 100 and 10; then 600, 400 from the cache and 50.
    let nano = 100_000 + 100_000 + 600_000 + 40_000 + 500_000;
    let last = events.last().unwrap();
    assert_eq!(last["costNanoUsd"], json!(nano));
    assert_eq!(last["costUsd"], json!(0.001_34));
    assert_eq!(last["usage"]["inputTokens"], 1100);
    let lines = of(&events, "model.usage");
    assert_eq!(lines.len(), 2, "a request that nobody worked for has no line");
    let billing = &lines[1]["billing"];
    assert_eq!((&billing["request"], &billing["attempt"]), (&json!(3), &json!(2)));
    assert_eq!((&billing["provider"], &billing["model"]), (&json!("local"), &json!("scripted-1")));
    assert_eq!(
        (&billing["outcome"], &billing["counted"]),
        (&json!("answered"), &json!("reported"))
    );
    assert!(billing["prices"].as_str().unwrap().starts_with("own-"), "{billing}");
    assert_eq!(lines[1]["agentPath"], "build");

    let (text, json) = show(&machine, &["-v"]);
    assert_eq!(json["total"]["nanoUsd"], json!(nano));
    assert_eq!(json["total"]["costUsd"], json!(0.001_34));
    assert_eq!(json["total"]["usage"], last["usage"]);
    assert_eq!(json["models"][0]["model"], "scripted-1");
    assert_eq!(
        (&json["models"][0]["retries"], &json["agents"][0]["agentPath"]),
        (&json!(1), &json!("build"))
    );
    assert_eq!(json["requests"].as_array().unwrap().len(), 2);
    assert!(text.contains("cost: $0.0013"), "{text}");
    assert!(text.contains("answered, attempt 2"), "{text}");
    let listed = machine.posse(&["sessions", "list"]);
    assert!(listed.stdout.contains("$0.0013"), "{}", listed.stdout);
    let listed = machine.posse(&["sessions", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["costNanoUsd"], json!(nano));
    let dir = machine.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap();
    let document = machine.posse(&["sessions", "export", id]);
    assert!(document.stdout.contains("1100 in, 60 out, $0.0013"), "{}", document.stdout);
    machine.verify();
}

#[test]
fn unknown_price_is_not_zero() {
    let server = ModelServer::start(vec![listing(), says("done")]);
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "--output-format", "json", "look around"]);
    let summary = &ended.events()[0];
    assert_eq!((&summary["costUsd"], &summary["unpricedRequests"]), (&Value::Null, &json!(2)));
    let (text, json) = show(&machine, &[]);
    assert!(text.contains("unknown (2 requests without a known price)"), "{text}");
    assert_eq!(json["total"]["costUsd"], Value::Null);
    assert_eq!(json["total"]["unpriced"], 2);
}

#[test]
fn broken_reply_costs_its_reported_usage() {
    let begun = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",",
        "\"role\":\"assistant\",\"model\":\"scripted-1\",\"content\":[],\"usage\":{\"input_tokens\":70,",
        "\"cache_read_input_tokens\":900,\"cache_creation_input_tokens\":30,\"output_tokens\":3}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
        "\"delta\":{\"type\":\"text_delta\",\"text\":\"half\"}}\n\n",
    );
    let rest = concat!(
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
        "\"usage\":{\"output_tokens\":40}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    let server = ModelServer::start(vec![
        stream(begun.as_bytes()),
        stream([begun, rest].concat().as_bytes()),
    ]);
    let mut prices = prices();
    prices["scripted-1"]["cachedInputPrice"] = json!(100_000);
    prices["scripted-1"]["cacheWritePrice"] = json!(1_250_000);
    let more = json!({ "models": prices, "retry": {"baseDelay": "10ms"} });
    let machine =
        Machine::configured(&server, &more, &json!({"type": "anthropic", "maxTokens": 1000}));
    let (ended, events) = machine.stream(&["say something"]);
    ended.assert_code(0);
    let lines = of(&events, "model.usage");
    assert_eq!(lines.len(), 2, "{lines:?}");
    // Anthropic counts the cache separately: 70 + 900 + 30.
    let cut = &lines[0];
    assert_eq!(cut["usage"]["inputTokens"], 1000);
    assert_eq!(
        (&cut["usage"]["cachedInputTokens"], &cut["usage"]["cacheWriteTokens"]),
        (&json!(900), &json!(30))
    );
    assert_eq!(
        (&cut["billing"]["outcome"], &cut["billing"]["counted"]),
        (&json!("cut"), &json!("partly"))
    );
    let reading = 70_000 + 90_000 + 37_500;
    assert_eq!(cut["billing"]["costNanoUsd"], json!(reading + 30_000));
    assert_eq!(lines[1]["billing"]["costNanoUsd"], json!(reading + 400_000));
    let last = events.last().unwrap();
    assert_eq!(last["costNanoUsd"], json!(2 * reading + 430_000));
    assert_eq!((&last["costUsd"], &last["unpricedRequests"]), (&Value::Null, &json!(1)));
    let (text, _) = show(&machine, &[]);
    assert!(text.contains("at least $0.0008"), "{text}");
}

#[test]
fn separately_reported_thinking_tokens_are_counted() {
    // As xAI and Gemini: 10 input, 2 output, 30 thinking.
    let server = ModelServer::start(vec![counted(&json!({
        "prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 42,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }))]);
    let machine = Machine::configured(&server, &json!({ "models": prices() }), &json!({}));
    let (_, events) = machine.stream(&["think"]);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["usage"]["outputTokens"], &last["usage"]["reasoningTokens"]),
        (&json!(32), &json!(30))
    );
    assert_eq!(last["costNanoUsd"], json!(10_000 + 320_000));
}

#[test]
fn run_ends_before_exceeding_its_budget() {
    let server = ModelServer::start_and_repeat(vec![listing()]);
    let more = json!({ "models": prices(), "maxTurns": 500 });
    let machine = Machine::configured(&server, &more, &json!({"maxTokens": 4096}));
    // A request could need four cents for its reply, and has cost 0.02.
    let (ended, events) = machine.stream(&["--budget", "0.10", "look around"]);
    ended.assert_code(6);
    let last = events.last().unwrap();
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("limit"), &json!(6)));
    let requests = server.requests();
    let spent = last["costNanoUsd"].as_u64().unwrap();
    assert_eq!(spent, 200_000 * requests.len() as u64);
    assert!(spent <= 100_000_000 && requests.len() > 10, "{spent}, {}", requests.len());
    assert!(requests.iter().all(|request| request["max_tokens"] == 4096), "each reply is bounded");
    let limit = &of(&events, "limit.reached")[0];
    assert_eq!(
        (&limit["limit"], &limit["value"]),
        (&json!("budget.maxCostMicroUsd"), &json!(100_000))
    );
    let what = ended.stderr;
    assert!(what.contains("error[LIM002]: the budget of $0.10 is too small"), "{what}");
    assert!(what.contains("are spent") && what.contains("--budget"), "{what}");
    // Each was held before it was made, and ended once.
    assert_eq!(of(&events, "budget.reserved").len(), requests.len());
    assert_eq!(of(&events, "model.usage").len(), requests.len());
    machine.verify();
}

#[test]
fn budget_belongs_to_its_session_until_changed() {
    let server = ModelServer::start_and_repeat(vec![listing()]);
    let more = json!({ "models": prices(), "maxTurns": 500 });
    let machine = Machine::configured(&server, &more, &json!({"maxTokens": 4096}));
    let spent = |events: &[Value]| events.last().unwrap()["costNanoUsd"].as_u64().unwrap();
    // Number of requests under the remaining budget, and the total cost.
    let go_on = |args: &[&str]| {
        let before = server.requests().len();
        let format = ["--output-format", "stream-json"];
        let ended = machine.posse(&[args, &format[..]].concat());
        ended.assert_code(6);
        let cost = spent(&ended.events());
        assert_eq!(cost, 200_000 * server.requests().len() as u64, "all of it was counted");
        (server.requests().len() - before, cost, ended.stderr)
    };
    let (ended, events) = machine.stream(&["--budget", "0.06", "look around"]);
    ended.assert_code(6);
    let first = spent(&events);
    // There was no room for another request, and there is none now.
    let (requests, cost, said) = go_on(&["-c", "look again"]);
    assert_eq!((requests, cost), (0, first));
    assert!(said.contains("note: its budget of $0.06 still applies; $0.0"), "{said}");
    assert!(said.contains("the budget of $0.06 is too small"), "{said}");
    let (requests, cost, said) = go_on(&["-c", "look again", "--budget", "0.09"]);
    assert!(said.contains("note: the budget is $0.09; it was $0.06"), "{said}");
    assert!(requests > 10 && first < cost && cost <= 90_000_000, "{requests}, {cost}");
    // The later budget is stored, and a fork starts from zero.
    let (requests, _, said) = go_on(&["-c", "look again"]);
    assert_eq!(requests, 0);
    assert!(said.contains("note: its budget of $0.09 still applies"), "{said}");
    let format = ["--output-format", "stream-json"];
    let branch =
        machine.posse(&[&["-c", "--fork", "look again", "--max-turns", "2"], &format[..]].concat());
    branch.assert_code(6);
    let said = &branch.stderr;
    assert!(said.contains("note: its budget of $0.09 still applies; $0.00 spent"), "{said}");
    assert!(said.contains("error[LIM001]"), "{said}");
    assert_eq!(spent(&branch.events()), 2 * 200_000);
    machine.verify();
}

#[test]
fn configured_budget_is_not_stored() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let more = json!({ "budget": {"maxTokens": 1_000_000} });
    let machine = Machine::configured(&server, &more, &json!({}));
    machine.posse(&["run", "first"]).assert_code(0);
    let config = machine.path("posse/config/config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings.as_object_mut().unwrap().remove("budget");
    machine.write_config(&settings.to_string());
    let ended = machine.posse(&["-c", "second"]);
    ended.assert_code(0);
    assert!(!ended.stderr.contains("budget"), "{}", ended.stderr);
    let bounded = |at: usize| server.requests()[at].get("max_tokens").is_some();
    assert_eq!((bounded(0), bounded(1)), (true, false));
}

#[test]
fn token_budget_limits_the_reply_length() {
    let server = ModelServer::start_and_repeat(vec![listing()]);
    let more = json!({ "maxTurns": 500, "budget": {"maxTokens": 60_000} });
    let machine = Machine::configured(&server, &more, &json!({"maxTokens": 50_000}));
    let (ended, events) = machine.stream(&["look around"]);
    ended.assert_code(6);
    assert!(ended.stderr.contains("60000 tokens"), "{}", ended.stderr);
    let bounds: Vec<u64> =
        server.requests().iter().map(|request| request["max_tokens"].as_u64().unwrap()).collect();
    assert!(
        bounds.first() > bounds.last() && bounds.iter().all(|bound| *bound >= 4096),
        "{bounds:?}"
    );
    let last = events.last().unwrap();
    let count = |name: &str| last["usage"][name].as_u64().unwrap();
    assert!(count("inputTokens") + count("outputTokens") <= 60_000);
}

#[test]
fn budget_needs_a_price() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "--budget", "1", "look around"]);
    ended.assert_code(3);
    let what = &ended.stderr;
    assert!(what.contains("error[BUD001]") && what.contains("local/scripted-1"), "{what}");
    assert!(what.contains("models.\"local/scripted-1\".inputPrice"), "{what}");
    // A run that was refused before it started is no session.
    let listed = machine.posse(&["sessions", "list", "--all", "--json"]);
    assert_eq!(listed.stdout, "[]\n");
    let answers = ModelServer::start(vec![says("One.")]);
    let machine = Machine::with(&answers);
    machine.posse(&["run", "fine"]).assert_code(0);
    machine.posse(&["-c", "--fork", "more", "--budget", "1"]).assert_code(3);
    // The only one there is.
    machine.session_dir();
    assert_eq!(server.requests().len(), 0);
    let provider = |model: &str, fallback: &[&str]| {
        json!({
            "type": "openai-compatible", "baseURL": server.base_url(), "model": model,
            "auth": "none", "fallback": fallback,
        })
    };
    let providers =
        json!({"local": provider("scripted-1", &["other"]), "other": provider("dear", &[])});
    let more = json!({"models": prices(), "providers": providers});
    let machine = Machine::configured(&server, &more, &json!({}));
    let ended = machine.posse(&["run", "--budget", "1", "look around"]);
    ended.assert_code(3);
    assert!(ended.stderr.contains("other/dear"), "{}", ended.stderr);
}

#[test]
fn killed_request_has_an_unknown_cost() {
    let server = ModelServer::start(vec![
        listing(),
        ModelAnswer::Hold(stream_bytes(
            b"data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n",
        )),
        says("Back."),
    ]);
    let machine = Machine::configured(&server, &json!({ "models": prices() }), &json!({}));
    let mut run = machine.start(&["-y", "look"]);
    run.wait_for("tool.completed");
    run.wait_for("model.text.delta");
    run.signal(Signal::SIGKILL);
    run.wait();
    let (text, json) = show(&machine, &[]);
    assert_eq!((&json["total"]["requests"], &json["total"]["unpriced"]), (&json!(2), &json!(1)));
    assert!(text.contains("at least"), "{text}");
    machine.posse(&["resume", "--last", "-y"]).assert_code(0);
    let (_, json) = show(&machine, &[]);
    assert_eq!((&json["total"]["requests"], &json["total"]["unpriced"]), (&json!(3), &json!(1)));
}
