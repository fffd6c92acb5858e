//! A model server with a script, on a loopback port, inside the test process.
//!
//! It checks every request as a strict provider would, and answers a history that makes no sense
//! with 400, so that a test fails where the history went wrong.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use crate::dialects::strict;

/// Behaviour of the server for one request.
#[derive(Debug, Clone)]
pub(crate) enum ModelAnswer {
    /// A reply of the model: text, calls, and why it stops.
    Reply { text: String, calls: Vec<Value>, finish: &'static str },
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// These bytes, then the connection stays open and silent.
    Hold(Vec<u8>),
    /// These bytes, then a reset.
    Reset(Vec<u8>),
    /// The next order in any text sent to the model.
    Obey,
    /// Computed from the request.
    By(fn(&Value) -> ModelAnswer),
}

/// An order for an obedient model: a call of a tool.
pub(crate) fn order(tool: &str, arguments: &Value) -> String {
    format!("{ORDER}{tool} {arguments}")
}

/// Prefix of an order.
const ORDER: &str = "@@do ";

/// Answers with `text`.
pub(crate) fn says(text: &str) -> ModelAnswer {
    ModelAnswer::Reply { text: text.to_owned(), calls: Vec::new(), finish: "stop" }
}

/// Asks for these calls: name and arguments.
pub(crate) fn calls(calls: &[(&str, Value)]) -> ModelAnswer {
    let texts: Vec<_> = calls.iter().map(|(name, args)| (*name, args.to_string())).collect();
    let texts: Vec<_> = texts.iter().map(|(name, args)| (*name, args.as_str())).collect();
    calls_with_text(&texts)
}

/// Asks for calls whose arguments are any text.
pub(crate) fn calls_with_text(calls: &[(&str, &str)]) -> ModelAnswer {
    let calls = calls.iter().enumerate().map(|(nth, (name, arguments))| {
        // The same ids in every reply: a server that forgets.
        json!({
            "index": nth, "id": format!("call_{nth}"), "type": "function",
            "function": {"name": name, "arguments": arguments},
        })
    });
    ModelAnswer::Reply { text: String::new(), calls: calls.collect(), finish: "tool_calls" }
}

/// Asks for one command.
pub(crate) fn runs(command: &str) -> ModelAnswer {
    calls(&[("bash", json!({"command": command}))])
}

/// A response with any status, headers and body.
pub(crate) fn status(status: &str, headers: &[&str], body: &str) -> ModelAnswer {
    ModelAnswer::Raw(response(status, headers, body.as_bytes()))
}

/// A successful stream of exactly these bytes, ended by closing.
pub(crate) fn stream(body: &[u8]) -> ModelAnswer {
    ModelAnswer::Raw(stream_bytes(body))
}

/// The head of a stream, and then these bytes.
pub(crate) fn stream_bytes(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    [head.as_bytes(), body].concat()
}

/// One event with a piece of text.
pub(crate) fn text_event(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

fn response(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

/// A running server. It ends with the test process.
#[derive(Debug)]
pub(crate) struct ModelServer {
    port: u16,
    shared: Arc<ModelServerState>,
    arrivals: Receiver<()>,
}

#[derive(Debug)]
struct ModelServerState {
    script: Mutex<Script>,
    arrived: Sender<()>,
}

#[derive(Debug)]
struct Script {
    answers: std::vec::IntoIter<ModelAnswer>,
    /// Answer after the end of the script.
    afterwards: Option<ModelAnswer>,
    bodies: Vec<Value>,
    sizes: Vec<usize>,
    /// Of every byte of a body.
    prints: Vec<u64>,
    complaints: Vec<String>,
    /// Orders that were carried out.
    obeyed: Vec<Order>,
    /// List of models; `None`: the server has none.
    models: Option<Value>,
}

/// A tool and its arguments.
type Order = (String, Value);

/// All orders in a request.
fn orders(request: &Value) -> Vec<Order> {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut orders = Vec::new();
    for message in messages.iter().filter(|message| message["role"] != "assistant") {
        let text = text_of(&message["content"]);
        for order in text.split(ORDER).skip(1) {
            let Some((tool, rest)) = order.split_once(' ') else { continue };
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(arguments)) = values.next() {
                orders.push((tool.to_owned(), arguments));
            }
        }
    }
    orders
}

impl ModelServer {
    /// Gives these answers in order; another request is an error.
    pub(crate) fn start(answers: Vec<ModelAnswer>) -> ModelServer {
        ModelServer::with(answers, None)
    }

    /// A model that executes every order in any text, once, in reading order.
    pub(crate) fn obedient() -> ModelServer {
        ModelServer::start_and_repeat(vec![ModelAnswer::Obey])
    }

    /// Gives these answers in order, and then the last one for ever.
    pub(crate) fn start_and_repeat(answers: Vec<ModelAnswer>) -> ModelServer {
        let last = answers.last().cloned();
        ModelServer::with(answers, last)
    }

    fn with(answers: Vec<ModelAnswer>, afterwards: Option<ModelAnswer>) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Script {
            answers: answers.into_iter(),
            afterwards,
            bodies: Vec::new(),
            sizes: Vec::new(),
            prints: Vec::new(),
            complaints: Vec::new(),
            obeyed: Vec::new(),
            models: None,
        };
        let (arrived, arrivals) = channel();
        let shared = Arc::new(ModelServerState { script: Mutex::new(script), arrived });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                // A client that is gone is part of many tests.
                thread::spawn(move || server.serve(&connection).ok());
            }
        });
        ModelServer { port, shared, arrivals }
    }

    /// Base URL of the API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Answers requests for the list of models with `models`.
    pub(crate) fn lists(&self, models: Value) {
        self.shared.script().models = Some(models);
    }

    /// Gives `answer` to every request from now on.
    pub(crate) fn repeat_from_now(&self, answer: ModelAnswer) {
        let mut script = self.shared.script();
        script.answers = Vec::new().into_iter();
        script.afterwards = Some(answer);
    }

    /// Returns when another request has arrived.
    pub(crate) fn wait_for_request(&self) {
        self.arrivals.recv_timeout(Duration::from_secs(20)).expect("no request came");
    }

    /// Orders that an obedient model executed, in order.
    pub(crate) fn obeyed(&self) -> Vec<(String, Value)> {
        self.shared.script().obeyed.clone()
    }

    /// The bodies of all requests so far. Fails if one of them made no sense.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let script = self.shared.script();
        assert_eq!(script.complaints, Vec::<String>::new());
        script.bodies.clone()
    }

    /// Bytes of the body of the first request.
    pub(crate) fn first_request_bytes(&self) -> usize {
        self.shared.script().sizes[0]
    }

    /// Fingerprint of each request body.
    pub(crate) fn fingerprints(&self) -> Vec<u64> {
        self.shared.script().prints.clone()
    }

    /// Results of tools in the order of the last request.
    pub(crate) fn tool_results(&self) -> Vec<String> {
        let requests = self.requests();
        let messages = requests.last().expect("no request").get("messages").unwrap();
        let results = messages.as_array().unwrap().iter().filter(|m| m["role"] == "tool");
        results.map(|message| text_of(&message["content"])).collect()
    }
}

/// Text of a message's content in any form.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

impl ModelServerState {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn serve(&self, connection: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(connection);
        while let Some(body) = read_request(&mut reader)? {
            if body == GET {
                let list = self.script().models.clone();
                let list =
                    list.map(|list| response("200 OK", &[JSON], list.to_string().as_bytes()));
                let mut writer = connection;
                writer.write_all(list.as_deref().unwrap_or(NO_LIST))?;
                return Ok(());
            }
            let answer = self.next(&body);
            self.arrived.send(()).ok();
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut writer = connection;
            match answer {
                ModelAnswer::Reply { text, calls, finish } => {
                    let streamed = request["stream"] == true;
                    writer.write_all(&reply(&text, &calls, finish, streamed))?;
                }
                ModelAnswer::Obey | ModelAnswer::By(_) => {
                    unreachable!("it was turned into what it does")
                }
                ModelAnswer::Raw(bytes) => {
                    writer.write_all(&bytes)?;
                    return connection.shutdown(std::net::Shutdown::Both);
                }
                ModelAnswer::Hold(bytes) => {
                    writer.write_all(&bytes)?;
                    // Until the client closes.
                    std::io::copy(&mut reader, &mut std::io::sink())?;
                    return Ok(());
                }
                ModelAnswer::Reset(bytes) => {
                    writer.write_all(&bytes)?;
                    let abort = linger { l_onoff: 1, l_linger: 0 };
                    setsockopt(connection, sockopt::Linger, &abort)?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn next(&self, body: &[u8]) -> ModelAnswer {
        let mut script = self.script();
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Err(complaint) = check(&request) {
            let refused = json!({"error": {"message": complaint, "code": "invalid_request"}});
            script.complaints.push(complaint);
            return status("400 Bad Request", &[JSON], &refused.to_string());
        }
        // A test may send requests of another protocol here.
        if request["system"].is_null() {
            strict::record("chat", &request);
        }
        script.bodies.push(request);
        script.sizes.push(body.len());
        script.prints.push(BuildHasherDefault::<DefaultHasher>::default().hash_one(body));
        let mut answer = script.answers.next().or_else(|| script.afterwards.clone());
        if matches!(answer, Some(ModelAnswer::Obey)) {
            let request = script.bodies.last().expect("it was just pushed");
            let next = orders(request).into_iter().find(|order| !script.obeyed.contains(order));
            answer = Some(match &next {
                Some((tool, arguments)) => calls(&[(tool, arguments.clone())]),
                None => says("I did as I was told."),
            });
            script.obeyed.extend(next);
        }
        if let Some(ModelAnswer::By(make)) = answer {
            answer = script.bodies.last().map(make);
        }
        answer.unwrap_or_else(|| {
            script.complaints.push("a request that the script does not know of".to_owned());
            status("400 Bad Request", &[JSON], r#"{"error": {"message": "no more answers"}}"#)
        })
    }
}

const JSON: &str = "content-type: application/json";

/// Body of a GET request, as [`read_request`] returns it: one for the list of models, where posse looks
/// for an unknown context window.
pub(crate) const GET: &[u8] = b"GET";

/// Answer of a server without a list of models.
pub(crate) const NO_LIST: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// Reads one request; `None` when the client closes.
pub(crate) fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = 0;
    let mut is_get = false;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        is_get |= line.starts_with("GET ");
        let header = line.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(length) = header.strip_prefix("content-length:") {
            bytes = length.trim().parse().expect("a length");
        }
    }
    if is_get {
        return Ok(Some(GET.to_vec()));
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

/// The whole response, keeping the connection.
pub(crate) fn reply(text: &str, calls: &[Value], finish: &str, streamed: bool) -> Vec<u8> {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let (kind, body) = if streamed {
        let mut body = String::new();
        let mut event = |delta: Value, finish: Value| {
            let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
            body.push_str(&format!("data: {}\n\n", json!({"choices": choices})));
        };
        event(json!({"role": "assistant", "content": ""}), Value::Null);
        for word in text.split_inclusive(' ') {
            event(json!({"content": word}), Value::Null);
        }
        for call in calls {
            let (arguments, mut begin) = (&call["function"]["arguments"], call.clone());
            begin["function"]["arguments"] = json!("");
            event(json!({"tool_calls": [begin]}), Value::Null);
            let rest = json!({"index": call["index"], "function": {"arguments": arguments}});
            event(json!({"tool_calls": [rest]}), Value::Null);
        }
        event(json!({}), json!(finish));
        body.push_str(&format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
        body.push_str("data: [DONE]\n\n");
        ("text/event-stream", body)
    } else {
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        ("application/json", json!({"choices": [choice], "usage": usage}).to_string())
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Checks of a strict provider: every call has exactly one result, in order, and nothing else.
fn check(request: &Value) -> Result<(), String> {
    let messages = request["messages"].as_array().ok_or("no messages")?;
    let mut expected: std::collections::VecDeque<&str> = std::collections::VecDeque::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| Err(format!("messages[{at}]: {what}: {message}"));
        let empty = text_of(&message["content"]).is_empty();
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            if expected.pop_front() != message["tool_call_id"].as_str() {
                return wrong("a result without its call, or out of order");
            }
            continue;
        }
        if !expected.is_empty() {
            return wrong("a call before this has no result");
        }
        match role {
            "system" if at == 0 && !empty => {}
            "user" if !empty => {}
            "assistant" if !empty || !calls.is_empty() => {}
            _ => return wrong("a role or a content that cannot be here"),
        }
        for call in calls {
            let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call without id")?;
            if role != "assistant" || expected.contains(&id) {
                return wrong("two calls with one id");
            }
            let arguments = call["function"]["arguments"].as_str().ok_or("no arguments")?;
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|args| args.is_object()) {
                return wrong("arguments that are not an object");
            }
            expected.push_back(id);
        }
    }
    match messages.last().and_then(|message| message["role"].as_str()) {
        Some("user" | "tool") if expected.is_empty() => Ok(()),
        last => Err(format!("the history ends with {last:?}, {} open calls", expected.len())),
    }
}
