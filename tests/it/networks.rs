//! Network conditions and misbehaving providers: proxies, unknown host names, stopped processes,
//! another model, a rejected history.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::model_server::{ModelServer, calls, read_request, says, status, stream};
use crate::posse::{FinishedRun, Machine, RunningPosse, side_by_side};

/// A machine whose provider is at `address`.
fn at(address: &str, timeouts: &serde_json::Value) -> Machine {
    let machine = Machine::new();
    let provider = json!({
        "type": "openai-compatible", "baseURL": address, "model": "scripted-1", "auth": "none",
        "timeouts": timeouts,
    });
    let settings = json!({
        "defaultProvider": "local", "patience": "1s", "providers": {"local": provider},
    });
    machine.write_config(&settings.to_string());
    machine
}

/// A server that reads the first data of a client and answers with these bytes. Returns its address
/// and the data.
fn answering(answer: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, seen) = channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut reader = BufReader::new(&connection);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 2) {}
            sender.send(head).ok();
            (&connection).write_all(answer.as_bytes()).ok();
        }
    });
    (address, seen)
}

fn through(proxy: &str, address: &str) -> (FinishedRun, Machine) {
    let machine = at(address, &json!({"connect": "5s", "firstByte": "5s"}));
    let mut command = machine.command(&["run", "say hello"]);
    command.env("https_proxy", proxy).env("http_proxy", proxy);
    (RunningPosse::start(command).end(), machine)
}

#[test]
fn proxy_error_names_cause_and_fix() {
    let there = "https://api.provider.invalid/v1";
    let plain = "http://api.provider.invalid/v1";
    let table = [
        (
            there,
            "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n",
            (
                1,
                "PRV004",
                "of the variable https_proxy wants credentials (407): write them into https_proxy",
            ),
        ),
        (
            plain,
            "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            (
                1,
                "PRV004",
                "of the variable http_proxy wants credentials (407): write them into http_proxy",
            ),
        ),
        (
            there,
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            (5, "PRV001", "of the variable https_proxy opens no way to"),
        ),
        (there, "", (5, "PRV001", "of the variable https_proxy opens no way to")),
        (there, "HTTP/1.1 200 OK\r\n\r\n", (5, "PRV001", "closed the connection")),
        (
            plain,
            "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\n\r\n",
            (5, "PRV001", "answered 504 (this can be the answer of the proxy http://127.0.0.1:"),
        ),
    ];
    side_by_side(table, |(address, answer, (exit, code, words))| {
        let (proxy, seen) = answering(answer);
        let (ended, machine) = through(&proxy, address);
        ended.assert_code(exit);
        let errors: Vec<_> =
            ended.stderr.lines().filter(|line| line.starts_with("error[")).collect();
        assert_eq!(errors.len(), 1, "{answer:?} {}", ended.stderr);
        assert!(errors[0].starts_with(&format!("error[{code}]")), "{answer:?} {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{answer:?} {}", ended.stderr);
        assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
        let head = seen.try_recv().unwrap();
        let begins = if address == there {
            "CONNECT api.provider.invalid:443 HTTP/1.1\r\n"
        } else {
            "POST http://api.provider.invalid/v1/chat/completions HTTP/1.1\r\n"
        };
        assert!(head.starts_with(begins), "{head}");
        machine.verify();
    });
}

#[test]
fn absent_proxy_is_named_instead_of_the_server() {
    // A port that was just free, and is closed again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let table = [
        ("http://api.provider.invalid/v1", "HTTP_PROXY", format!("http://127.0.0.1:{port}")),
        ("https://api.provider.invalid/v1", "HTTPS_PROXY", format!("http://127.0.0.1:{port}")),
        ("https://api.provider.invalid/v1", "ALL_PROXY", format!("http://me:pw@127.0.0.1:{port}")),
        ("https://api.provider.invalid/v1", "all_proxy", "http://proxy.invalid:3128".to_owned()),
    ];
    side_by_side(table, |(address, variable, proxy)| {
        let machine = at(address, &json!({"connect": "5s"}));
        let mut command = machine.command(&["run", "say hello"]);
        command.env(variable, &proxy);
        let ended = RunningPosse::start(command).end();
        ended.assert_code(5);
        assert!(ended.stderr.contains(&format!("of the variable {variable}")), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("correct {variable}")), "{}", ended.stderr);
        assert!(!ended.stderr.contains("baseURL"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("me:pw"), "{}", ended.stderr);
    });
}

#[test]
fn unresolvable_name_is_reported_and_retried() {
    // RFC 6761: no resolver knows a name that ends like this.
    let machine = at("http://nowhere.invalid/v1", &json!({"connect": "5s"}));
    let ended = machine.posse(&["run", "say hello"]);
    ended.assert_code(5);
    assert!(ended.stderr.contains("error[PRV001]"), "{}", ended.stderr);
    // A resolver that is not there itself does not even say that.
    let known =
        ["the host of http://nowhere.invalid/v1/chat/completions is not known here", "in time"];
    assert!(known.iter().any(|words| ended.stderr.contains(words)), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
    machine.verify();
}

/// A server that sends a reply piece by piece, on request of the test.
struct Piecemeal {
    address: String,
    arrived: Receiver<()>,
    pieces: Sender<Vec<u8>>,
}

impl Piecemeal {
    fn start() -> Piecemeal {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let (arrival, arrived) = channel();
        let (pieces, coming) = channel::<Vec<u8>>();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // The test expects the client to disconnect.
                serve(&connection, &arrival, &coming);
            }
        });
        Piecemeal { address, arrived, pieces }
    }

    fn send(&self, piece: impl Into<Vec<u8>>) {
        self.pieces.send(piece.into()).unwrap();
    }

    fn wait(&self) {
        self.arrived.recv_timeout(Duration::from_secs(20)).expect("no request came");
    }
}

fn serve(connection: &TcpStream, arrival: &Sender<()>, pieces: &Receiver<Vec<u8>>) {
    if read_request(&mut BufReader::new(connection)).is_err() {
        return;
    }
    arrival.send(()).ok();
    while let Ok(piece) = pieces.recv() {
        if piece.is_empty() || (&mut &*connection).write_all(&piece).is_err() {
            return;
        }
    }
}

/// Long enough that a timer goes off far too late, whichever it is.
const STOPPED: Duration = Duration::from_secs(4);

#[test]
fn suspended_process_receives_the_rest_of_a_reply() {
    // Stopped while the reply is on its way, and while it has not begun.
    for begun in [true, false] {
        let server = Piecemeal::start();
        let timeouts = json!({"firstByte": "2s", "silence": "2s", "idle": "2s"});
        let machine = at(&server.address, &timeouts);
        let mut running = machine.start(&["go"]);
        server.wait();
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        if begun {
            server.send(format!("{head}data: {}\n\n", chunk("Half ", None)));
            while running.wait_for("model.text.delta")["text"] != "Half " {}
        }
        running.signal(Signal::SIGSTOP);
        thread::sleep(STOPPED);
        running.signal(Signal::SIGCONT);
        // Late data had time to arrive.
        thread::sleep(Duration::from_millis(500));
        if !begun {
            server.send(format!("{head}data: {}\n\n", chunk("Half ", None)));
        }
        server.send(format!("data: {}\n\ndata: [DONE]\n\n", chunk("of it.", Some("stop"))));
        server.send("");
        let ended = running.end();
        ended.assert_code(0);
        let records = ended.events();
        let reply = records.iter().find(|record| record["type"] == "model.text").unwrap();
        assert_eq!(reply["message"]["content"], "Half of it.", "begun: {begun}");
        let again = records.iter().filter(|record| record["type"] == "provider.retry").count();
        assert_eq!((again, server.arrived.try_recv().is_ok()), (0, false), "begun: {begun}");
    }
}

fn chunk(text: &str, finish: Option<&str>) -> serde_json::Value {
    json!({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})
}

#[test]
fn model_mismatch_is_reported_once() {
    let named = |model: &str, delta: serde_json::Value, finish: &str| {
        let chunk = json!({"model": model, "choices": [{"delta": delta, "finish_reason": finish}]});
        stream(format!("data: {chunk}\n\ndata: [DONE]\n\n").as_bytes())
    };
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "type": "function",
        "function": {"name": "list_dir", "arguments": "{}"}}]});
    let said = "scripted-1 via local was asked, and cheaper-2 answered";
    let prices = json!({"models": {"scripted-1": {"inputPrice": 1000, "outputPrice": 1000}}});
    for (model, times, config) in [
        ("cheaper-2", 1, prices.clone()),
        ("scripted-1", 0, prices.clone()),
        ("hub/Scripted-1-20260131", 0, prices),
        // Without a price it makes no difference: the name may be an alias of a gateway.
        ("cheaper-2", 0, json!({})),
    ] {
        let server = ModelServer::start(vec![
            named(model, call.clone(), "tool_calls"),
            named(model, json!({"content": "done"}), "stop"),
        ]);
        let machine = Machine::configured(&server, &config, &json!({}));
        let ended = machine.posse(&["run", "go"]);
        ended.assert_code(0);
        assert_eq!(ended.stderr.matches(said).count(), times, "{model}: {}", ended.stderr);
        let journal = std::fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
        let answered = format!("\"answeredBy\":\"{model}\"");
        let others = if model == "scripted-1" { 0 } else { 2 };
        assert_eq!(journal.matches(&answered).count(), others, "{model}");
    }
}

#[test]
fn refused_history_can_be_repaired() {
    let words = r#"{"error": {"message": "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: call_1"}}"#;
    let refusal = || status("400 Bad Request", &["content-type: application/json"], words);
    let server = ModelServer::start(vec![
        calls(&[("list_dir", json!({"path": "."}))]),
        refusal(),
        says("I can go on."),
        says("And on."),
    ]);
    let machine = Machine::with(&server);
    let ended = machine.posse(&["run", "look around"]);
    ended.assert_code(1);
    for words in ["error[PRV009]", "`tool_use` ids were found", "`/compact` in `posse plain -c`"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    // It was asked once: the same history would be refused again.
    assert_eq!(server.requests().len(), 2);
    machine.verify();
    let went_on = machine.posse_with_input(&["plain", "-c"], b"/compact\ngo on\n/exit\n");
    went_on.assert_code(0);
    // Unanswered messages are sent first, followed by new ones.
    assert_eq!(went_on.stdout, "I can go on.\nAnd on.\n", "{}", went_on.stderr);
    machine.verify();
}
