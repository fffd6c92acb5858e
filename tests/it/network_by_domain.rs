//! Network of commands by domain: what a command reaches through the proxy, and that nothing else
//! is reached.

#![expect(clippy::disallowed_types, reason = "controls are processes outside of the sandbox")]

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, runs, says};
use crate::posse::{FinishedRun, Machine, RunningPosse};

const ATTEMPTS: &str = include_str!("network_by_domain/attempts.py");

/// Mechanisms of the full tier.
const FULL: [&str; 2] = ["namespaces", "bubblewrap"];

/// Answers a request, after its whole body has arrived.
fn answer(mut stream: impl Read + Write) {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let read = stream.read(&mut part).unwrap_or(0);
        if read == 0 {
            return;
        }
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if text.starts_with("get") {
                continue;
            }
            break;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
            break;
        }
    }
    let body = "you reached it";
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok();
}

/// HTTP server on all addresses of this machine. Returns its port and the number of connections.
fn http_server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count: Arc<AtomicUsize> = Arc::default();
    let seen = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            seen.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || answer(stream));
        }
    });
    (port, count)
}

/// Services of this machine that no command may reach, and a server that is listed.
struct HostServices {
    tcp: u16,
    udp: u16,
    listed: u16,
    count: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
    name: String,
    _datagrams: Vec<UnixDatagram>,
}

impl HostServices {
    fn start() -> HostServices {
        let (tcp, count) = http_server();
        let (listed, _) = http_server();
        let udp = UdpSocket::bind("[::]:0").unwrap();
        let port = udp.local_addr().unwrap().port();
        let seen = Arc::clone(&count);
        thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((_, from)) = udp.recv_from(&mut bytes) {
                seen.fetch_add(1, Ordering::SeqCst);
                udp.send_to(b"you reached it", from).ok();
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let name = format!("posse-test-{}-{tcp}", std::process::id());
        let address = |end: &str| UnixAddress::from_abstract_name(format!("{name}{end}")).unwrap();
        let listeners =
            [UnixListener::bind(&path), UnixListener::bind_addr(&address(""))].map(Result::unwrap);
        for listener in listeners {
            let seen = Arc::clone(&count);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    seen.fetch_add(1, Ordering::SeqCst);
                    answer(stream);
                }
            });
        }
        let datagrams = vec![
            UnixDatagram::bind(folder.path().join("socket.dgram")).unwrap(),
            UnixDatagram::bind_addr(&address("dgram")).unwrap(),
        ];
        HostServices { tcp, udp: port, listed, count, folder, name, _datagrams: datagrams }
    }

    fn arguments(&self, mode: &str) -> Vec<String> {
        let path = self.folder.path().join("socket").display().to_string();
        let ports = [self.tcp, self.udp, self.listed].map(|port| port.to_string());
        [&ports[..], &[path, self.name.clone(), mode.to_owned()]].concat()
    }
}

/// A machine whose commands reach `listed` at `ok.example` and at its own port. `rebound.example`
/// is listed and leads to `inside`, which is not.
fn machine(server: &ModelServer, listed: u16, inside: u16) -> Machine {
    let allowed = json!([
        "ok.example",
        "rebound.example",
        format!("127.0.0.1:{listed}"),
        format!("rebound.example:{inside}"),
    ]);
    let network = json!({"allowedDomains": allowed, "blockedDomains": ["bad.example"]});
    Machine::configured(server, &json!({"network": network}), &json!({}))
}

fn run(machine: &Machine, backend: &str, names: &str, args: &[&str]) -> (FinishedRun, Vec<Value>) {
    let mut command = machine.command(&[&["run", "--output-format", "stream-json"], args].concat());
    command.env("POSSE_SANDBOX_BACKEND", backend).env("POSSE_NETWORK_NAMES", names);
    // More than 10,000 connections take a while on a loaded machine.
    let ended = RunningPosse::start(command).for_at_most(Duration::from_mins(5)).end();
    let events = ended.events();
    (ended, events)
}

fn rows(text: &str) -> Vec<(String, String)> {
    let rows = text.lines().filter_map(|line| line.split_once('\t'));
    rows.map(|(name, said)| (name.to_owned(), said.to_owned())).collect()
}

#[test]
fn no_way_leads_out_but_to_listed_domains() {
    let services = HostServices::start();
    let script = |folder: &Path| -> PathBuf { folder.join("attempts.py") };
    let control = script(services.folder.path());
    std::fs::write(&control, ATTEMPTS).unwrap();
    let plain = Command::new("python3").arg(&control).args(services.arguments("control")).output();
    let controls = rows(&String::from_utf8(plain.unwrap().stdout).unwrap());
    let reached = |rows: &[(String, String)], name: &str| {
        rows.iter().any(|(row, said)| row == name && said == "reached")
    };
    // Without the sandbox the direct attempts arrive, so each of them is one. Some need rights or
    // parts of the kernel that a machine may lack.
    let optional = ["mptcp", "fast open", "tcp bound to a device", "udp broadcast on loopback"];
    let rare = ["raw", "packet", "sequence", "own user", "decimal", "hexadecimal"];
    for (name, said) in &controls {
        let may_lack =
            optional.contains(&name.as_str()) || rare.iter().any(|part| name.contains(part));
        assert!(said == "reached" || may_lack, "{name}: {said}");
    }
    assert!(services.count.load(Ordering::SeqCst) > 8);
    for backend in FULL {
        services.count.store(0, Ordering::SeqCst);
        let line = format!("python3 attempts.py {}", services.arguments("all").join(" "));
        let server = ModelServer::start(vec![runs(&line), says("done")]);
        let machine = machine(&server, services.listed, services.tcp);
        machine.write("attempts.py", ATTEMPTS);
        let names = format!(
            "ok.example=127.0.0.1:{},rebound.example=127.0.0.1:{}",
            services.listed, services.tcp
        );
        let (ended, events) = run(&machine, backend, &names, &["--yes", "--network", "ask", "go"]);
        ended.assert_code(0);
        let result = &server.tool_results()[0];
        let found = rows(result);
        let (attempts, passes): (Vec<_>, Vec<_>) =
            found.iter().cloned().partition(|(name, _)| !name.starts_with("control"));
        assert!(attempts.len() >= 90, "{backend}: {} {result}", attempts.len());
        assert!(controls.iter().all(|(name, _)| attempts.iter().any(|(row, _)| row == name)));
        let escaped: Vec<_> = attempts.iter().filter(|(_, said)| said == "reached").collect();
        assert!(escaped.is_empty(), "{backend}: {escaped:?}");
        assert_eq!(services.count.load(Ordering::SeqCst), 0, "{backend}: a server was reached");
        assert_eq!(passes.len(), 5, "{backend}: {result}");
        assert!(passes.iter().all(|(name, _)| reached(&found, name)), "{backend}: {passes:?}");
        let connections: Vec<&Value> =
            events.iter().filter(|event| event["type"] == "network.connection").collect();
        let total: u64 = connections.iter().filter_map(|event| event["connections"].as_u64()).sum();
        assert!(total > 10_000 && connections.len() < 600, "{total} {}", connections.len());
        let enforced = events.iter().find(|event| event["type"] == "sandbox.enforced").unwrap();
        assert_eq!(enforced["report"]["network"], "domains", "{enforced}");
    }
}

#[test]
fn programs_reach_listed_domains_and_are_told_about_others() {
    let (listed, count) = http_server();
    let names = format!("ok.example=127.0.0.1:{listed},bad.example=127.0.0.1:{listed}");
    for backend in FULL {
        let command = format!(
            "curl -sS http://ok.example/; curl -sS http://127.0.0.1:{listed}/; echo
             curl -sS -o /dev/null -w '%{{http_code}}\\n' http://other.example/
             curl -sS https://bad.example/; env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY curl -sS http://ok.example/; exit 5"
        );
        let server = ModelServer::start(vec![runs(&command), says("done")]);
        let machine = machine(&server, listed, 1);
        let before = count.load(Ordering::SeqCst);
        let (ended, events) = run(&machine, backend, &names, &["--yes", "--network", "ask", "go"]);
        ended.assert_code(0);
        assert!(ended.stderr.contains("network by domain"), "{}", ended.stderr);
        let result = &server.tool_results()[0];
        assert!(result.contains("you reached ityou reached it\n403\n"), "{result}");
        assert!(
            result.contains("network: other.example:80: it is not in network.allowedDomains"),
            "{result}"
        );
        assert!(result.contains("bad.example:443: the user blocked it"), "{result}");
        assert_eq!(count.load(Ordering::SeqCst), before + 2, "{backend}");
        let connection = |host: &str| {
            let mut found = events.iter().filter(|event| event["type"] == "network.connection");
            found
                .find(|event| event["host"] == host)
                .unwrap_or_else(|| panic!("{host}: {events:?}"))
        };
        let made = connection("ok.example");
        assert_eq!((&made["port"], &made["connections"]), (&json!(80), &json!(1)));
        assert!(made["sent"].as_u64() > Some(20) && made["received"].as_u64() > Some(20), "{made}");
        assert!(made.get("refused").is_none_or(Value::is_null), "{made}");
        assert!(
            connection("other.example")["refused"].as_str().unwrap().contains("allowedDomains")
        );
        assert_eq!(
            made["callId"],
            events.iter().find(|event| event["type"] == "tool.started").unwrap()["callId"]
        );
    }
}

#[test]
fn listed_domains_are_closed_without_a_person_unless_said() {
    let (listed, count) = http_server();
    let command =
        format!("curl -sS -m 5 http://ok.example/; curl -sS -m 5 http://127.0.0.1:{listed}/");
    let names = format!("ok.example=127.0.0.1:{listed}");
    for (args, reaches) in [
        (&["--yes", "go"][..], false),
        (&["--yes", "--network", "deny", "go"], false),
        (&["--yes", "--network", "ask", "go"], true),
    ] {
        let server = ModelServer::start(vec![runs(&command), says("done")]);
        let machine = machine(&server, listed, 1);
        count.store(0, Ordering::SeqCst);
        run(&machine, "namespaces", &names, args).0.assert_code(0);
        assert_eq!(count.load(Ordering::SeqCst) > 0, reaches, "{args:?}");
    }
    // The reduced tier has no proxy.
    let server = ModelServer::start(vec![runs(&command), says("done")]);
    let machine = machine(&server, listed, 1);
    count.store(0, Ordering::SeqCst);
    run(&machine, "landlock", &names, &["--yes", "--network", "ask", "go"]).0.assert_code(0);
    assert_eq!((server.tool_results().len(), count.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn commands_that_only_read_have_no_proxy() {
    let server = ModelServer::start(vec![runs("ls -la | wc -l"), says("done")]);
    let machine = machine(&server, 1, 1);
    let (ended, events) = run(&machine, "namespaces", "a=127.0.0.1:1", &["--network", "ask", "go"]);
    ended.assert_code(0);
    let enforced = events.iter().find(|event| event["type"] == "sandbox.enforced").unwrap();
    assert_eq!(enforced["report"]["network"], "deny", "{enforced}");
}

#[test]
fn jobs_use_the_proxy_until_they_end() {
    let (listed, count) = http_server();
    let names = format!("ok.example=127.0.0.1:{listed}");
    let command =
        "curl -sS http://ok.example/ -o out; curl -sS http://no.example/ -o no; touch ended";
    let job = json!({"command": command, "background": true});
    let server = ModelServer::start(vec![
        calls(&[("bash", job)]),
        runs("until test -e ended; do sleep 0.05; done; cat out"),
        says("done"),
        // If the end of the job is told after that.
        says("done"),
    ]);
    let machine = machine(&server, listed, 1);
    let (ended, events) = run(&machine, "namespaces", &names, &["--yes", "--network", "ask", "go"]);
    ended.assert_code(0);
    assert!(server.tool_results()[1].contains("you reached it"), "{events:#?}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let of_job = |host: &str| {
        events.iter().any(|event| event["type"] == "network.connection" && event["host"] == host)
    };
    assert!(of_job("ok.example") && of_job("no.example"), "{events:#?}");
}

#[test]
fn allowed_domains_without_a_network_are_named() {
    let network = json!({"network": {"allowedDomains": ["ok.example"]}});
    for (args, is_named) in
        [(&["run", "--yes", "go"][..], true), (&["run", "--network", "ask", "go"], false)]
    {
        let server = ModelServer::start(vec![says("done")]);
        let machine = Machine::configured(&server, &network, &json!({}));
        let ended = machine.posse(args);
        ended.assert_code(0);
        let named = ended.stderr.contains("network.allowedDomains has no effect in this run");
        assert_eq!(named, is_named, "{args:?}: {}", ended.stderr);
    }
    let server = ModelServer::start(vec![runs("curl http://ok.example/"), says("no")]);
    let machine = Machine::configured(&server, &network, &json!({}));
    let ended = machine.posse(&["run", "--permission-mode", "auto", "go"]);
    ended.assert_code(4);
    assert!(ended.stderr.contains("pass `--network ask` as well"), "{}", ended.stderr);
}

#[test]
fn invalid_entries_stop_the_start_with_their_place() {
    let server = ModelServer::start(vec![says("done")]);
    let wrong = json!({"network": {"allowedDomains": ["https://example.org/", "*"]}});
    let machine = Machine::configured(&server, &wrong, &json!({}));
    let ended = machine.posse(&["run", "go"]);
    ended.assert_code(3);
    assert!(
        ended.stderr.contains("network.allowedDomains[1]: \"*\" is not a domain")
            && ended.stderr.contains("config.json:1:"),
        "{}",
        ended.stderr
    );
    let set = machine.posse(&["config", "edit", "network.blockedDomains", "[\"*.org\"]"]);
    assert!(set.code != Some(0) && set.stderr.contains("*.example.org"), "{}", set.stderr);
}

#[test]
fn a_project_cannot_open_the_network() {
    let server = ModelServer::start(vec![says("done")]);
    let machine = Machine::with(&server);
    machine.write(".posse/config.json", r#"{"network": {"allowedDomains": ["evil.example"]}}"#);
    let ended = machine.posse(&["run", "--trust-project", "go"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("network.allowedDomains"), "{}", ended.stderr);
}

/// A session that a program drives as a person would.
struct Driven {
    running: RunningPosse,
    stdin: ChildStdin,
}

impl Driven {
    fn start(machine: &Machine, names: &str, args: &[&str]) -> Driven {
        let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
        let mut command = machine.command(&[&formats, args].concat());
        command.stdin(Stdio::piped()).env("POSSE_NETWORK_NAMES", names);
        let mut running = RunningPosse::start(command);
        let stdin = running.take_stdin();
        let mut driven = Driven { running, stdin };
        driven.send(&json!({"type": "message", "content": "go"}));
        driven
    }

    fn send(&mut self, instruction: &Value) {
        self.stdin.write_all(format!("{instruction}\n").as_bytes()).unwrap();
    }

    /// Answers the next question, whose summary must contain `about`.
    fn answer(&mut self, about: &str, decision: &str, scope: &str) -> Value {
        let question = self.running.wait_for("permission.requested");
        assert!(question["summary"].as_str().unwrap().contains(about), "{question}");
        self.send(&json!({
            "type": "permission.answer", "requestId": question["requestId"], "decision": decision,
            "scope": scope,
        }));
        question
    }

    fn end(mut self) -> FinishedRun {
        self.running.wait_for("agent.invocation.completed");
        drop(self.stdin);
        self.running.end()
    }
}

/// A machine whose commands run without a question.
fn machine_with_person(server: &ModelServer, listed: u16) -> Machine {
    let network =
        json!({"allowedDomains": [format!("127.0.0.1:{listed}")], "uploadLimitBytes": 20_000});
    let rules =
        json!([{"tool": "bash", "match": {"commandPrefix": "sh do.sh"}, "decision": "allow"}]);
    Machine::configured(server, &json!({"network": network, "permissions": rules}), &json!({}))
}

#[test]
fn a_person_decides_about_a_new_domain_while_the_connection_waits() {
    let (listed, count) = http_server();
    let names = format!("new.example=127.0.0.1:{listed},other.example=127.0.0.1:{listed}");
    let server = ModelServer::start(vec![runs("sh do.sh"), runs("sh do.sh"), says("done")]);
    let machine = machine_with_person(&server, listed);
    machine.write(
        "do.sh",
        "for n in 1 2 3; do curl -sS http://new.example/ & done; wait; curl -sS http://other.example/",
    );
    let mut driven = Driven::start(&machine, &names, &[]);
    let question = driven.answer("connect to new.example:80", "allow", "session");
    assert_eq!(
        (&question["targetType"], &question["targetName"]),
        (&json!("connection"), &json!("new.example:80"))
    );
    assert!(question["detail"].as_str().unwrap().contains("run sh do.sh"), "{question}");
    assert_eq!(
        (&question["scopes"][0], &question["scopes"][1]),
        (&json!("once"), &json!("session"))
    );
    driven.answer("connect to other.example:80", "deny", "once");
    // The second command: the first domain is allowed for the session.
    driven.answer("connect to other.example:80", "allow", "once");
    let ended = driven.end();
    ended.assert_code(0);
    let results = server.tool_results();
    assert_eq!(results[0].matches("you reached it").count(), 3, "{results:?}");
    assert!(results[0].contains("network: other.example:80: the user said no"), "{results:?}");
    assert_eq!(results[1].matches("you reached it").count(), 4, "{results:?}");
    assert_eq!(count.load(Ordering::SeqCst), 7);
    machine.verify();
}

#[test]
fn a_person_decides_about_more_upload() {
    let (listed, _) = http_server();
    let names = format!("new.example=127.0.0.1:{listed}");
    let server = ModelServer::start(vec![runs("sh do.sh"), says("done")]);
    let machine = machine_with_person(&server, listed);
    machine.write(
        "do.sh",
        "head -c 15000 /dev/zero > f; for n in 1 2 3; do curl -sS --data-binary @f http://new.example/; echo; done",
    );
    let mut driven = Driven::start(&machine, &names, &[]);
    driven.answer("connect to new.example:80", "allow", "once");
    let question = driven.answer("send more to new.example:80", "allow", "once");
    assert!(question["reason"].as_str().unwrap().contains("uploadLimitBytes"), "{question}");
    driven.answer("send more to new.example:80", "deny", "once");
    driven.end().assert_code(0);
    let result = &server.tool_results()[0];
    assert!(result.contains("more than 20000 bytes would be sent"), "{result}");
}

#[test]
fn an_allowed_name_that_leads_inside_is_refused_although_a_person_allowed_it() {
    let (listed, count) = http_server();
    let names = "new.example=127.0.0.1:1,meta.example=169.254.169.254:80";
    let server = ModelServer::start(vec![runs("sh do.sh"), says("done")]);
    let machine = machine_with_person(&server, listed);
    machine.write("do.sh", "curl -sS http://new.example/; curl -sS http://meta.example/");
    let mut driven = Driven::start(&machine, names, &[]);
    driven.answer("connect to new.example:80", "allow", "session");
    driven.answer("connect to meta.example:80", "allow", "session");
    driven.end().assert_code(0);
    let result = &server.tool_results()[0];
    assert!(result.contains("its name leads to 127.0.0.1, a loopback address"), "{result}");
    assert!(result.contains("the address of a metadata service"), "{result}");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn one_question_covers_a_command_and_the_domain_that_it_names() {
    let (listed, count) = http_server();
    let names = format!("new.example=127.0.0.1:{listed},other.example=127.0.0.1:{listed}");
    let command = "curl -sS http://new.example/ && curl -sS $(echo http://other).example/";
    let server = ModelServer::start(vec![runs(command), says("done")]);
    let machine = machine_with_person(&server, listed);
    let mut driven = Driven::start(&machine, &names, &[]);
    let question = driven.answer("run curl", "allow", "once");
    let detail = question["detail"].as_str().unwrap();
    assert!(detail.ends_with("also lets it connect to:\n  new.example:80"), "{detail}");
    // A domain that the command does not show is a question of its own.
    driven.answer("connect to other.example:80", "allow", "once");
    driven.end().assert_code(0);
    assert_eq!(count.load(Ordering::SeqCst), 2, "{:?}", server.tool_results());
}
