//! Tests of the proxy with real sockets and real programs, on loopback.

mod clients;
mod connections;
mod refusals;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    Approval, ApprovalFuture, CommandListeners, ConnectionApprover, ConnectionQuestion,
    ConnectionRecord, Destination, DomainPattern, Egress, EgressLease, EgressLimits, EgressPolicy,
    NameResolver, ResolveFuture,
};

/// Resolver with a table of its own. It remembers what was looked up.
#[derive(Debug, Default)]
struct TableResolver {
    names: HashMap<String, Vec<SocketAddr>>,
    asked: Mutex<Vec<String>>,
}

impl NameResolver for TableResolver {
    fn resolve(&self, name: &str, _: u16) -> ResolveFuture {
        self.asked.lock().unwrap().push(name.to_owned());
        let found = self.names.get(name).cloned();
        let missing = || std::io::Error::other("no such name");
        Box::pin(std::future::ready(found.ok_or_else(missing)))
    }
}

/// Answers every question alike, and remembers the questions.
struct OneAnswer {
    answer: Option<Approval>,
    asked: Mutex<Vec<ConnectionQuestion>>,
}

impl ConnectionApprover for OneAnswer {
    fn ask(&self, question: ConnectionQuestion) -> ApprovalFuture {
        self.asked.lock().unwrap().push(question);
        match self.answer.clone() {
            Some(answer) => Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                answer
            }),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// Server on loopback that serves files of a folder, or says what was asked.
struct FileServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FileServer {
    fn start(folder: Option<PathBuf>) -> FileServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (folder, seen) = (folder.clone(), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, folder, &seen));
            }
        });
        FileServer { address, requests }
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn serve(stream: TcpStream, folder: Option<PathBuf>, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    seen.lock().unwrap().push(head.clone());
    let path = head.split(' ').nth(1)?.split('?').next()?.trim_start_matches('/').to_owned();
    let mut stream = stream;
    let content = match folder {
        Some(folder) => std::fs::read(folder.join(path)).ok(),
        None => Some(format!("{} bytes for\n{head}", body.len()).into_bytes()),
    };
    let status = if content.is_some() { "200 OK" } else { "404 Not Found" };
    let content = content.unwrap_or_default();
    let length = content.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
        .ok()?;
    stream.write_all(&content).ok()
}

/// Parts of a proxy under test.
struct Rig {
    allowed: Vec<String>,
    blocked: Vec<String>,
    names: Vec<(String, Vec<SocketAddr>)>,
    /// True if a person can be asked.
    asks: bool,
    /// `None`: no answer comes.
    answer: Option<Approval>,
    limits: EgressLimits,
    forwards: Vec<(u16, TcpListener)>,
    /// Destinations that were allowed with the command.
    known: Vec<Destination>,
}

/// Proxy that serves one command.
struct Running {
    proxy: SocketAddr,
    lease: Option<EgressLease>,
    records: Arc<Mutex<Vec<ConnectionRecord>>>,
    resolver: Arc<TableResolver>,
    approver: Arc<OneAnswer>,
    egress: Egress,
}

impl Rig {
    fn new(allowed: &[&str]) -> Rig {
        Rig {
            allowed: allowed.iter().map(|entry| (*entry).to_owned()).collect(),
            blocked: Vec::new(),
            names: Vec::new(),
            asks: false,
            answer: None,
            limits: EgressLimits { upload_bytes: u64::MAX, ..EgressLimits::default() },
            forwards: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Lets `name` lead to `server`, whose address is listed.
    fn named(mut self, name: &str, server: SocketAddr) -> Rig {
        self.names.push((name.to_owned(), vec![server]));
        self.allowed.push(server.to_string());
        self
    }

    fn answering(mut self, answer: Option<Approval>) -> Rig {
        self.asks = true;
        self.answer = answer;
        self
    }

    fn run(self) -> Running {
        let parse = |entries: &[String]| {
            entries.iter().map(|entry| DomainPattern::parse(entry).unwrap()).collect()
        };
        let policy = EgressPolicy {
            allowed: parse(&self.allowed),
            blocked: parse(&self.blocked),
            asks: self.asks,
        };
        let resolver =
            TableResolver { names: self.names.into_iter().collect(), ..TableResolver::default() };
        let resolver = Arc::new(resolver);
        let names: Arc<dyn NameResolver> = Arc::clone(&resolver) as _;
        let egress = Egress::new(policy, names, self.limits);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let approver = Arc::new(OneAnswer { answer: self.answer, asked: Mutex::default() });
        let records: Arc<Mutex<Vec<ConnectionRecord>>> = Arc::default();
        let seen = Arc::clone(&records);
        let listeners = CommandListeners { proxy: listener, forwards: self.forwards };
        let lease = egress.serve(
            Box::pin(std::future::ready(Ok(listeners))),
            self.known,
            Arc::clone(&approver) as Arc<dyn ConnectionApprover>,
            Arc::new(move |record| seen.lock().unwrap().push(record)),
        );
        Running { proxy, lease: Some(lease), records, resolver, approver, egress }
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends `bytes`, ends the stream, and returns the whole answer.
    fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap_or_default();
        answer
    }

    fn text(&self, request: &str) -> String {
        String::from_utf8_lossy(&self.exchange(request.as_bytes())).into_owned()
    }

    /// Ends the command. Returns the lines for the model, and all records.
    fn finish(mut self) -> (Vec<String>, Vec<ConnectionRecord>) {
        let lease = self.lease.take().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lines = runtime.block_on(lease.finish());
        drop(self.egress);
        (lines, std::mem::take(&mut *self.records.lock().unwrap()))
    }
}

fn get(url: &str) -> String {
    format!("GET {url} HTTP/1.1\r\n\r\n")
}

/// SOCKS5 greeting and request for a name.
fn socks_to(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[5, 1, 0, 5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat()
}
