//! Model server with a script for every byte of a connection: it sends, waits, stays silent, closes
//! or resets, and rejects requests like the strictest server of its protocol.

mod cuts;

use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use posse::provider::profile::Protocol;
use serde_json::{Value, json};

use crate::dialects::{messages_reply, responses_reply, strict};
use crate::model_server::{GET, NO_LIST, read_request};

/// One thing that a connection does.
#[derive(Debug, Clone)]
pub(crate) enum Move {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Does nothing for so long.
    Pause(Duration),
    /// Does nothing until the client closes.
    Stall,
    /// Ends in order.
    Close,
    /// Ends with a reset, also with data in flight.
    Reset,
}

/// A protocol: its replies, and the validation of its strictest server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialectFixture {
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) check: fn(&Value) -> Result<(), String>,
    /// A recorded stream: thinking, text, and two calls side by side.
    pub(crate) calls: &'static str,
    /// Marker in a history that continues after those calls.
    result_mark: &'static str,
    /// A stream that is a final answer.
    pub(crate) says: fn(&str) -> String,
}

pub(crate) const DIALECTS: [DialectFixture; 3] = [
    DialectFixture {
        name: "chat completions",
        protocol: Protocol::ChatCompletions,
        check: strict::chat,
        calls: include_str!("../../src/provider/openai_compatible/fixtures/thinking_and_calls.sse"),
        result_mark: r#""role":"tool""#,
        says: chat_reply,
    },
    DialectFixture {
        name: "anthropic messages",
        protocol: Protocol::Messages,
        check: strict::messages,
        calls: include_str!("../../src/provider/anthropic/fixtures/thinking_and_calls.sse"),
        result_mark: r#""tool_result""#,
        says: |text| messages_reply(text, "end_turn"),
    },
    DialectFixture {
        name: "openai responses",
        protocol: Protocol::Responses,
        check: strict::responses,
        calls: include_str!("../../src/provider/openai_responses/fixtures/thinking_and_calls.sse"),
        result_mark: r#""function_call_output""#,
        says: |text| responses_reply(text, &json!({"status": "completed"})),
    },
];

impl DialectFixture {
    /// True if a request continues after the recorded calls.
    pub(crate) fn has_results(&self, request: &Value) -> bool {
        request.to_string().contains(self.result_mark)
    }
}

fn chat_reply(text: &str) -> String {
    let delta = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    format!("data: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

/// Framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By the end of the connection.
    Open,
    /// By a last chunk of no length; each event is a chunk.
    Chunked,
}

/// A whole response with this stream as its body.
pub(crate) fn response(framing: Framing, stream: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    match framing {
        Framing::Open => format!("{head}\r\n{stream}").into_bytes(),
        Framing::Chunked => {
            let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
            let chunks: String = stream.split_inclusive("\n\n").map(chunk).collect();
            format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n").into_bytes()
        }
    }
}

type Script = dyn FnMut(&Value) -> Vec<Move> + Send;

/// A running server. It ends with the test process; received requests are kept as long as this
/// exists.
pub(crate) struct ByteServer {
    port: u16,
    shared: Arc<ByteServerState>,
}

struct ByteServerState {
    check: fn(&Value) -> Result<(), String>,
    script: Mutex<Box<Script>>,
    seen: Mutex<ReceivedRequests>,
}

#[derive(Default)]
struct ReceivedRequests {
    requests: Vec<Value>,
    complaints: Vec<String>,
}

impl ByteServer {
    /// Answers each request with the moves of `script`, on a connection of its own.
    pub(crate) fn start(
        dialect: &DialectFixture,
        script: impl FnMut(&Value) -> Vec<Move> + Send + 'static,
    ) -> ByteServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ByteServerState {
            check: dialect.check,
            script: Mutex::new(Box::new(script)),
            seen: Mutex::default(),
        });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                // A client that is gone is part of most tests.
                thread::spawn(move || server.serve(&connection).ok());
            }
        });
        ByteServer { port, shared }
    }

    /// Base URL of the API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The configuration of a user whose only provider this is.
    pub(crate) fn config(&self, more: &Value) -> Value {
        let mut config = json!({
            "defaultProvider": "local", "patience": "5s", "providers": {"local": {
                "type": "openai-compatible", "baseURL": self.base_url(), "model": "scripted-1",
                "auth": "none",
            }},
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    /// From now on the moves are those of another script, and no request was seen yet.
    pub(crate) fn script(&self, script: impl FnMut(&Value) -> Vec<Move> + Send + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
        *self.shared.seen.lock().unwrap() = ReceivedRequests::default();
    }

    /// Every request so far. Fails if the strictest server would have refused one.
    #[track_caller]
    pub(crate) fn requests(&self) -> Vec<Value> {
        let seen = self.shared.seen.lock().unwrap();
        assert_eq!(seen.complaints, Vec::<String>::new());
        seen.requests.clone()
    }
}

impl Drop for ByteServer {
    /// The accepting thread continues and would keep every request of a long loop.
    fn drop(&mut self) {
        if let Ok(mut seen) = self.shared.seen.lock() {
            *seen = ReceivedRequests::default();
        }
    }
}

impl ByteServerState {
    fn serve(&self, connection: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(connection);
        let Some(body) = read_request(&mut reader)? else { return Ok(()) };
        if body == GET {
            return (&mut &*connection).write_all(NO_LIST);
        }
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let verdict = (self.check)(&request);
        {
            let mut seen = self.seen.lock().unwrap();
            seen.requests.push(request.clone());
            seen.complaints.extend(verdict.err());
        }
        let moves = (self.script.lock().unwrap())(&request);
        let mut writer = connection;
        for step in moves {
            match step {
                Move::Send(bytes) => writer.write_all(&bytes)?,
                Move::Pause(time) => thread::sleep(time),
                Move::Stall => {
                    std::io::copy(&mut reader, &mut std::io::sink())?;
                    return Ok(());
                }
                Move::Close => return connection.shutdown(Shutdown::Both),
                Move::Reset => {
                    let abort = linger { l_onoff: 1, l_linger: 0 };
                    setsockopt(connection, sockopt::Linger, &abort)?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
