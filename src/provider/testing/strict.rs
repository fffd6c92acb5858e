//! The strictest server of each protocol, as a validator of requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

type ValidationResult = Result<(), String>;

/// Panics if `check`, a strictest server, rejects the request `body`.
#[track_caller]
pub(crate) fn assert_valid(check: fn(&Value) -> ValidationResult, body: &[u8]) {
    // Reading it is part of it: there are no halves of characters.
    let request: Value = serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)));
    if let Err(complaint) = check(&request) {
        panic!("{complaint}\n{request:#}");
    }
}

/// Maximum number of bodies per protocol that a test process records of requests that only a
/// validator here has seen. Property tests make any number of them.
const VALIDATED_MAX: usize = 3000;

/// Appends `request` to `<protocol>-<process id>.jsonl` in the folder that the environment variable
/// `POSSE_REQUEST_BODIES` names, for `tests/conformance/sdk_types.py`. Does nothing without the
/// variable.
pub(crate) fn record(protocol: &'static str, request: &Value) {
    static WRITING: Mutex<()> = Mutex::new(());
    let Some(folder) = std::env::var_os("POSSE_REQUEST_BODIES") else { return };
    let _one_at_a_time = WRITING.lock().unwrap();
    let file = Path::new(&folder).join(format!("{protocol}-{}.jsonl", std::process::id()));
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{request}\n").as_bytes()).unwrap();
}

/// Result of `check`. Records the first [`VALIDATED_MAX`] requests that it accepts.
fn recorded(
    protocol: &'static str,
    request: &Value,
    check: fn(&Value) -> ValidationResult,
) -> ValidationResult {
    static COUNTS: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());
    check(request)?;
    let count = {
        let mut counts = COUNTS.lock().unwrap();
        let count = counts.entry(protocol).or_default();
        *count += 1;
        *count
    };
    if count <= VALIDATED_MAX {
        record(protocol, request);
    }
    Ok(())
}

fn text<'v>(value: &'v Value, key: &str) -> Result<&'v str, String> {
    value[key].as_str().ok_or_else(|| format!("no {key} in {value}"))
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], String> {
    value[key].as_array().map(Vec::as_slice).ok_or_else(|| format!("no list {key} in {value}"))
}

fn ensure(holds: bool, what: &str, of: &Value) -> ValidationResult {
    if holds { Ok(()) } else { Err(format!("{what}: {of}")) }
}

fn plain_name(name: &str, longest: usize) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= longest && name.chars().all(fine)
}

fn is_object(json: &str) -> bool {
    serde_json::from_str::<Value>(json).is_ok_and(|value| value.is_object())
}

/// Validates a request of Chat Completions.
pub(crate) fn chat(request: &Value) -> ValidationResult {
    recorded("chat", request, check_chat)
}

fn check_chat(request: &Value) -> ValidationResult {
    let marks = request.to_string().matches(r#""cache_control""#).count();
    ensure(marks <= 4, "more than four marks of the cache", request)?;
    let mut expected: VecDeque<&str> = VecDeque::new();
    for message in list(request, "messages")? {
        let role = text(message, "role")?;
        if role == "tool" {
            let id = text(message, "tool_call_id")?;
            ensure(expected.pop_front() == Some(id), "a result out of place", message)?;
            let parts = message["content"].as_array().is_some_and(|parts| !parts.is_empty());
            ensure(message["content"].is_string() || parts, "a result without text", message)?;
            continue;
        }
        ensure(expected.is_empty(), "a call before this has no result", message)?;
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        let content = &message["content"];
        ensure(
            content.is_string() || content.is_array() || !calls.is_empty(),
            "no content",
            message,
        )?;
        ensure(["system", "user", "assistant"].contains(&role), "an unknown role", message)?;
        for call in calls {
            ensure(role == "assistant", "a call by somebody else", message)?;
            let id = text(call, "id")?;
            ensure(!id.is_empty() && !expected.contains(&id), "an id twice", message)?;
            ensure(plain_name(text(&call["function"], "name")?, 64), "an odd name", call)?;
            ensure(is_object(text(&call["function"], "arguments")?), "odd arguments", call)?;
            expected.push_back(id);
        }
    }
    ensure(expected.is_empty(), "the last calls have no result", request)
}

/// Validates a request of Anthropic Messages.
pub(crate) fn messages(request: &Value) -> ValidationResult {
    recorded("messages", request, check_messages)
}

fn check_messages(request: &Value) -> ValidationResult {
    text(request, "model")?;
    ensure(request["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "no bound", request)?;
    let marks = request.to_string().matches(r#""cache_control""#).count();
    ensure(marks <= 4, "more than four marks of the cache", request)?;
    if !request["system"].is_null() {
        let blocks = list(request, "system")?;
        ensure(!blocks.is_empty(), "empty instructions", request)?;
        for block in blocks {
            ensure(!text(block, "text")?.trim().is_empty(), "a blank text", block)?;
        }
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        ensure(plain_name(text(tool, "name")?, 128), "an odd name", tool)?;
        ensure(tool["input_schema"]["type"] == "object", "an odd schema", tool)?;
    }
    let turns = list(request, "messages")?;
    let offers = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let called = request["messages"].to_string().contains(r#""type":"tool_use""#);
    ensure(offers || !called, "calls, and no tools", request)?;
    ensure(turns.len() % 2 == 1, "it does not begin and end with the user", request)?;
    let mut ids = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in turns.iter().enumerate() {
        let role = ["user", "assistant"][at % 2];
        ensure(text(message, "role")? == role, "not this one's turn", message)?;
        let blocks = list(message, "content")?;
        ensure(!blocks.is_empty(), "no content", message)?;
        if role == "user" {
            user_turn(blocks, &mut open)?;
        } else {
            assistant_turn(blocks, &mut ids, &mut open)?;
        }
    }
    thinking(request, turns)
}

fn user_turn<'v>(blocks: &'v [Value], open: &mut BTreeSet<&'v str>) -> ValidationResult {
    let mut others = false;
    for block in blocks {
        if text(block, "type")? == "tool_result" {
            ensure(!others, "a result behind something else", block)?;
            ensure(open.remove(text(block, "tool_use_id")?), "a result of no call", block)?;
            let parts = list(block, "content")?;
            ensure(!parts.is_empty(), "an empty result", block)?;
            parts.iter().try_for_each(shown)?;
            let has_image = parts.iter().any(|part| part["type"] == "image");
            ensure(!has_image || block["is_error"] != true, "an image of a failure", block)?;
        } else {
            others = true;
            shown(block)?;
        }
    }
    ensure(open.is_empty(), "a call has no result", &Value::from(format!("{open:?}")))
}

fn assistant_turn<'v>(
    blocks: &'v [Value],
    ids: &mut BTreeSet<&'v str>,
    open: &mut BTreeSet<&'v str>,
) -> ValidationResult {
    let mut kind = "";
    for block in blocks {
        kind = text(block, "type")?;
        let marked = !block["cache_control"].is_null();
        match kind {
            "text" => shown(block)?,
            "thinking" => {
                text(block, "thinking")?;
                ensure(!text(block, "signature")?.is_empty() && !marked, "odd thinking", block)?;
            }
            "redacted_thinking" => {
                ensure(!text(block, "data")?.is_empty() && !marked, "odd thinking", block)?;
            }
            "tool_use" => {
                let id = text(block, "id")?;
                ensure(plain_name(id, 64) && ids.insert(id), "an odd id, or one twice", block)?;
                open.insert(id);
                ensure(plain_name(text(block, "name")?, 128), "an odd name", block)?;
                ensure(block["input"].is_object(), "odd input", block)?;
            }
            _ => return Err(format!("an unknown block: {block}")),
        }
    }
    let thought = matches!(kind, "thinking" | "redacted_thinking");
    ensure(!thought, "a message that ends with thinking", &Value::from(blocks))
}

/// Text that is not blank, or a valid image.
fn shown(block: &Value) -> ValidationResult {
    let source = &block["source"];
    match (text(block, "type")?, source["type"].as_str()) {
        ("text", _) => ensure(!text(block, "text")?.trim().is_empty(), "a blank text", block),
        ("image", Some("base64")) => {
            let kinds = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            ensure(kinds.contains(&text(source, "media_type")?), "an odd image", block)?;
            let data = STANDARD.decode(text(source, "data")?);
            ensure(data.is_ok_and(|data| !data.is_empty()), "an empty image", block)
        }
        ("image", Some("url")) => {
            ensure(text(source, "url")?.starts_with("https://"), "an odd address", block)
        }
        _ => Err(format!("a block that cannot be here: {block}")),
    }
}

/// With a budget, the turn in which tools are used begins with thinking.
fn thinking(request: &Value, turns: &[Value]) -> ValidationResult {
    let budget = &request["thinking"]["budget_tokens"];
    if request["thinking"]["type"] != "enabled" {
        return ensure(budget.is_null(), "a budget for nothing", request);
    }
    let fits = |budget: u64| budget >= 1024 && Some(budget) < request["max_tokens"].as_u64();
    ensure(budget.as_u64().is_some_and(fits), "an odd budget", request)?;
    ensure(request["temperature"].is_null(), "a temperature beside thinking", request)?;
    let kind_of = |turn: &Value| turn["content"][0]["type"].clone();
    let mut at = turns.len() - 1;
    while at > 0 && kind_of(&turns[at]) == "tool_result" {
        at -= 2;
    }
    let first = turns.get(at + 1).map(kind_of);
    let thinks = |kind: Value| kind == "thinking" || kind == "redacted_thinking";
    ensure(first.is_none_or(thinks), "a turn that does not begin with thinking", request)
}

/// Validates a request of `OpenAI` Responses.
pub(crate) fn responses(request: &Value) -> ValidationResult {
    recorded("responses", request, check_responses)
}

fn check_responses(request: &Value) -> ValidationResult {
    text(request, "model")?;
    ensure(request["store"] == false, "it would be stored", request)?;
    let mut calls: BTreeMap<&str, bool> = BTreeMap::new();
    let items = list(request, "input")?;
    ensure(!items.is_empty(), "no input", request)?;
    for (at, item) in items.iter().enumerate() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => message_item(item)?,
            "function_call" => {
                let id = text(item, "call_id")?;
                ensure(plain_name(id, 64), "an odd id", item)?;
                ensure(calls.insert(id, false).is_none(), "an id twice", item)?;
                ensure(plain_name(text(item, "name")?, 64), "an odd name", item)?;
                ensure(is_object(text(item, "arguments")?), "odd arguments", item)?;
            }
            "function_call_output" => {
                let answered = calls.insert(text(item, "call_id")?, true);
                ensure(answered == Some(false), "a result of no call", item)?;
                match &item["output"] {
                    Value::String(_) => {}
                    Value::Array(parts) if !parts.is_empty() => {
                        parts.iter().try_for_each(input_part)?;
                    }
                    _ => return Err(format!("an odd result: {item}")),
                }
            }
            "reasoning" => {
                ensure(!text(item, "encrypted_content")?.is_empty(), "nothing in it", item)?;
                list(item, "summary")?;
                let next = items.get(at + 1).map(|next| {
                    let by_model = next["role"] == "assistant";
                    by_model
                        || ["reasoning", "function_call"].map(Value::from).contains(&next["type"])
                });
                ensure(next == Some(true), "thinking without what came of it", item)?;
            }
            _ => return Err(format!("an unknown item: {item}")),
        }
    }
    ensure(calls.values().all(|answered| *answered), "a call has no result", request)
}

/// Validates a request of Responses, as the server behind a `ChatGPT` login accepts it.
pub(crate) fn codex(request: &Value) -> ValidationResult {
    recorded("codex", request, check_codex)
}

fn check_codex(request: &Value) -> ValidationResult {
    check_responses(request)?;
    ensure(request["stream"] == true, "it is not streamed", request)?;
    let instructions = text(request, "instructions")?;
    ensure(!instructions.trim().is_empty(), "no instructions", request)?;
    for key in ["max_output_tokens", "temperature", "previous_response_id", "top_p"] {
        ensure(request[key].is_null(), "a setting that it does not know", request)?;
    }
    let tools = request["tools"].as_array().map_or(&[][..], Vec::as_slice);
    ensure(tools.iter().all(|tool| tool["strict"] == false), "a strict tool", request)?;
    let one_by_one = request["parallel_tool_calls"] == false;
    ensure(tools.is_empty() || one_by_one, "calls side by side", request)?;
    let reads_thinking = request["include"].to_string().contains("reasoning.encrypted_content");
    ensure(reads_thinking, "thinking that cannot come back", request)?;
    let installation = text(&request["client_metadata"], "x-codex-installation-id")?;
    ensure(installation.len() == 36, "an odd installation", request)
}

fn message_item(item: &Value) -> ValidationResult {
    let role = text(item, "role")?;
    match role {
        // A list of parts would need an id, a status and annotations.
        "assistant" => ensure(!text(item, "content")?.is_empty(), "no content", item),
        "user" | "system" | "developer" => {
            let parts = list(item, "content")?;
            ensure(!parts.is_empty(), "no content", item)?;
            parts.iter().try_for_each(input_part)
        }
        _ => Err(format!("an unknown role: {item}")),
    }
}

fn input_part(part: &Value) -> ValidationResult {
    match text(part, "type")? {
        "input_image" => {
            let url = text(part, "image_url")?;
            let fine = url.starts_with("https://")
                || url.split_once(";base64,").is_some_and(|(_, data)| !data.is_empty());
            ensure(fine, "an odd image", part)
        }
        kind => {
            ensure(kind == "input_text", "a part that cannot be here", part)?;
            ensure(!text(part, "text")?.is_empty(), "an empty text", part)
        }
    }
}
