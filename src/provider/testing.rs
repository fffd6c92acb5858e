//! Test server on a loopback address that sends exact bytes, and a client for it.

pub(crate) mod histories;
pub(crate) mod replies;
pub(crate) mod strict;

mod cuts;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posse_actors::conversation::{ContentPart, Message};
use posse_actors::ports::{Completion, Delta, Provider, ProviderError, Request, ToolSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::profile::ProviderProfile;

/// Step of the server's script for one request.
#[derive(Debug, Clone)]
pub(crate) enum ServerStep {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes repeatedly, with this pause in between, until the client disconnects.
    Repeat(Vec<u8>, Duration),
    /// Stays silent until the client disconnects.
    Stall,
    /// Ends the connection cleanly.
    Close,
    /// Resets the connection.
    Reset,
}

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Test server that plays one script per request, in order.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Function that returns the script for a request. `None`: close the connection.
type Answers = Arc<Mutex<dyn FnMut(&ReceivedRequest) -> Option<Vec<ServerStep>> + Send>>;

impl Server {
    pub(crate) async fn start(scripts: impl IntoIterator<Item = Vec<ServerStep>>) -> Server {
        let mut scripts = scripts.into_iter().collect::<VecDeque<_>>();
        Server::answering(move |_| scripts.pop_front()).await
    }

    /// Starts a server that calls `answers` with each request to get the script for it.
    pub(crate) async fn answering(
        answers: impl FnMut(&ReceivedRequest) -> Option<Vec<ServerStep>> + Send + 'static,
    ) -> Server {
        let answers: Answers = Arc::new(Mutex::new(answers));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (all, count) = (Arc::clone(&seen), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                tokio::spawn(serve(stream, Arc::clone(&answers), Arc::clone(&all)));
            }
        });
        Server { address, seen, connections, task }
    }

    /// Requests received so far.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// Profile for this server, with default timeouts.
    pub(crate) fn profile(&self) -> ProviderProfile {
        let key = "sk-test-0123456789".to_owned();
        ProviderProfile::new(
            "mock",
            &format!("{}/v1", self.address),
            "some-model",
            Some(key.into()),
        )
    }
}

async fn serve(mut stream: TcpStream, answers: Answers, seen: Arc<Mutex<Vec<ReceivedRequest>>>) {
    while let Some(request) = read_request(&mut stream).await {
        seen.lock().unwrap().push(request.clone());
        let Some(script) = (answers.lock().unwrap())(&request) else { return };
        for step in script {
            match step {
                ServerStep::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                ServerStep::Repeat(bytes, pause) => {
                    while stream.write_all(&bytes).await.is_ok() {
                        tokio::time::sleep(pause).await;
                    }
                    return;
                }
                ServerStep::Stall => {
                    while stream.read(&mut [0]).await.is_ok_and(|bytes| bytes > 0) {}
                    return;
                }
                ServerStep::Close => return,
                ServerStep::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length: usize = length.map_or(Ok(0), str::parse).ok()?;
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Some(ReceivedRequest { head, body: String::from_utf8_lossy(&bytes[end..]).into_owned() })
}

/// Script that sends a complete response. `headers`: lines that end with `\r\n`.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<ServerStep> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n");
    vec![ServerStep::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// Step that sends the head of an event stream without a length, which ends with the connection.
pub(crate) fn stream_head() -> ServerStep {
    ServerStep::Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec())
}

/// Script that sends an event stream with the body `body` and closes the connection.
pub(crate) fn stream(body: impl AsRef<[u8]>) -> Vec<ServerStep> {
    vec![stream_head(), ServerStep::Send(body.as_ref().to_vec()), ServerStep::Close]
}

/// A request with one user message.
pub(crate) fn request(text: &str) -> Request {
    let message = Message::User { content: vec![ContentPart::text(text)] };
    let tools: [ToolSpec; 0] = [];
    Request {
        messages: vec![Arc::new(message)],
        tools: Arc::new(tools),
        stream: true,
        tokens_max: None,
        temperature: None,
        thinking: None,
        session: None,
    }
}

/// Sends `request` to `provider`. Returns the result and all deltas.
pub(crate) async fn ask(
    provider: &dyn Provider,
    request: Request,
) -> (Result<Completion, ProviderError>, Vec<Delta>) {
    let (tx, mut rx) = mpsc::channel(64);
    let collect = async {
        let mut deltas = Vec::new();
        while let Some(delta) = rx.recv().await {
            deltas.push(delta);
        }
        deltas
    };
    futures_util::future::join(provider.complete(request, tx), collect).await
}
