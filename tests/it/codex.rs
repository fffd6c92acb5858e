//! The `ChatGPT` login of this machine: the program against a vendor on loopback that spends every
//! token once.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::dialects::strict;
use crate::posse::{Machine, RunningPosse};

/// Valid tokens, and requests received.
#[derive(Debug)]
struct Vendor {
    access: String,
    refresh: String,
    renewals: usize,
    /// Replies in order; the last is given again.
    replies: Vec<String>,
    bodies: Vec<Value>,
    complaints: Vec<String>,
}

struct CodexFixture {
    machine: Machine,
    address: String,
    vendor: Arc<Mutex<Vendor>>,
}

impl CodexFixture {
    /// `access`: the token in the file, which the vendor does not take unless it is `access-0`.
    fn new(folder: &str, access: &str, replies: Vec<String>) -> CodexFixture {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let vendor = Arc::new(Mutex::new(Vendor {
            access: "access-0".to_owned(),
            refresh: "refresh-0".to_owned(),
            renewals: 0,
            replies,
            bodies: Vec::new(),
            complaints: Vec::new(),
        }));
        let shared = Arc::clone(&vendor);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let vendor = Arc::clone(&shared);
                // A client that is gone is part of a run.
                thread::spawn(move || serve(&connection, &vendor).ok());
            }
        });
        let machine = Machine::new();
        let file = machine.path(folder).join("auth.json");
        fs::create_dir_all(machine.path(folder)).unwrap();
        let login = json!({"OPENAI_API_KEY": null, "unknown": {"kept": true}, "tokens": {
            "id_token": "i.d.t", "access_token": access, "refresh_token": "refresh-0",
            "account_id": "account-7"}});
        fs::write(&file, login.to_string()).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        CodexFixture { machine, address, vendor }
    }

    fn command(&self, folder: &str, args: &[&str]) -> Command {
        let mut command = self.machine.command(args);
        command.env("CODEX_HOME", self.machine.path(folder));
        command.env("POSSE_CODEX_LOOPBACK", &self.address);
        command
    }
}

fn serve(connection: &TcpStream, vendor: &Mutex<Vendor>) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while reader.read_line(&mut head)? > 2 {}
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let renews = head.starts_with("POST /oauth/token ");
    if renews {
        // Long enough for all others to request the same.
        thread::sleep(Duration::from_millis(300));
    }
    let (status, kind, text) = answer(&mut vendor.lock().unwrap(), renews, &head, &body);
    let mut writer = connection;
    let length = text.len();
    write!(
        writer,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{text}"
    )
}

type VendorReply = (&'static str, &'static str, String);

fn answer(vendor: &mut Vendor, renews: bool, head: &str, body: &Value) -> VendorReply {
    let refused = |code: &str| {
        ("401 Unauthorized", "application/json", json!({"error": {"code": code}}).to_string())
    };
    if renews {
        vendor.renewals += 1;
        if body["refresh_token"] != vendor.refresh.as_str() {
            return refused("refresh_token_reused");
        }
        vendor.access = format!("access-of-the-vendor-{}", vendor.renewals);
        vendor.refresh = format!("refresh-of-the-vendor-{}", vendor.renewals);
        let tokens = json!({"access_token": vendor.access, "refresh_token": vendor.refresh});
        return ("200 OK", "application/json", tokens.to_string());
    }
    if !head.contains(&format!("authorization: Bearer {}\r\n", vendor.access)) {
        return refused("token_expired");
    }
    let known = head.starts_with("POST /backend-api/codex/responses ")
        && head.contains("chatgpt-account-id: account-7\r\n")
        && head.contains("originator: posse\r\n");
    vendor.complaints.extend((!known).then(|| head.to_owned()));
    vendor.complaints.extend(strict::codex(body).err());
    let nth = vendor.bodies.len().min(vendor.replies.len() - 1);
    vendor.bodies.push(body.clone());
    ("200 OK", "text/event-stream", vendor.replies[nth].clone())
}

fn says(text: &str) -> String {
    reply(&json!({"type": "message", "content": [{"type": "output_text", "text": text}]}))
}

fn calls(name: &str, arguments: &Value) -> String {
    reply(&json!({"type": "function_call", "call_id": "call_1", "name": name,
        "arguments": arguments.to_string()}))
}

/// A reply that is one item.
fn reply(item: &Value) -> String {
    let item = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    let done = json!({"type": "response.completed", "response": {"status": "completed",
        "model": "m", "usage": {"input_tokens": 3, "output_tokens": 2}}});
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    event(&item) + &event(&done)
}

#[test]
fn two_processes_at_once_renew_once() {
    let world = CodexFixture::new("codex", "spent", vec![says("Hello from both.")]);
    let args = ["run", "--provider", "codex", "hello"];
    let both = [0, 1].map(|_| RunningPosse::start(world.command("codex", &args)));
    for running in both {
        let ended = running.end();
        ended.assert_code(0);
        assert_eq!(ended.stdout, "Hello from both.\n");
        assert!(!ended.stderr.contains("access-"), "{}", ended.stderr);
    }
    let vendor = world.vendor.lock().unwrap();
    assert_eq!((vendor.renewals, vendor.bodies.len()), (1, 2));
    assert_eq!(vendor.complaints, Vec::<String>::new());
    let file = fs::read_to_string(world.machine.path("codex/auth.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["tokens"]["refresh_token"], "refresh-of-the-vendor-1");
    assert_eq!(file["unknown"]["kept"], true);
}

#[test]
fn login_is_hidden_from_tools_and_records() {
    for folder in ["codex", "home/.codex"] {
        let world = CodexFixture::new(folder, "access-0", Vec::new());
        let path = world.machine.path(folder).join("auth.json");
        let replies = vec![calls("read_file", &json!({"path": path})), says("I may not.")];
        world.vendor.lock().unwrap().replies = replies;
        let args = ["run", "--provider", "codex", "-y", "read the login"];
        let ended = RunningPosse::start(world.command(folder, &args)).end();
        ended.assert_code(0);
        let vendor = world.vendor.lock().unwrap();
        assert_eq!(vendor.bodies.len(), 2, "{}", ended.stderr);
        let told = vendor.bodies[1].to_string();
        assert!(told.contains("function_call_output"), "{told}");
        for secret in ["access-0", "refresh-0"] {
            assert!(!told.contains(secret), "{told}");
            let journal = world.machine.session_dir().join("session.jsonl");
            assert!(!fs::read_to_string(journal).unwrap().contains(secret));
        }
    }
}

#[test]
fn login_is_used_only_if_configured() {
    let world = CodexFixture::new("home/.codex", "access-0", vec![says("Never.")]);
    let ended = RunningPosse::start(world.command("home/.codex", &["run", "hello"])).end();
    ended.assert_code(3);
    assert!(ended.stderr.contains("error[CFG023]"), "{}", ended.stderr);
    assert!(world.vendor.lock().unwrap().bodies.is_empty());
    let told = RunningPosse::start(world.command("home/.codex", &["doctor"])).end();
    assert!(told.stdout.contains("a ChatGPT login exists"), "{}", told.stdout);
    let listed = RunningPosse::start(world.command("home/.codex", &["models"])).end();
    assert!(listed.stdout.contains("gpt-5.1-codex"), "{}", listed.stdout);
}

#[test]
fn missing_and_expired_login_suggest_a_fix() {
    let world = CodexFixture::new("codex", "spent", vec![says("Never.")]);
    let args = ["run", "--provider", "codex", "hello"];
    let ended = RunningPosse::start(world.command("nowhere", &args)).end();
    ended.assert_code(3);
    for words in ["error[CFG034]", "run `codex login`"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    world.vendor.lock().unwrap().refresh = "of somebody else".to_owned();
    let ended = RunningPosse::start(world.command("codex", &args)).end();
    ended.assert_code(3);
    for words in ["error[PRV003]", "renewed elsewhere", "log in with `codex login`"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}
