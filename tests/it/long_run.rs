//! One long piece of work on a bad day: begun with `--unattended`, killed within a command, gone on
//! with, its provider away for an hour, gone on with by the line for a timer, and done.
//!
//! The hour is virtual: the provider says `Retry-After: 3600`, the patience is two seconds instead
//! of a day, so that the run parks, and the stand-in for `systemd-run` does at once what it was told
//! to do an hour later. Everything else is real: processes, sockets, `SIGKILL`, the journal, and the
//! line, which is run as it was printed, with no variable that it does not name.
//!
//! `cargo test --test it long_run -- --nocapture` shows the records of such a run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::byte_server::{ByteServer, DIALECTS, Move};
use crate::model_server::{ModelAnswer, calls, reply, says};
use crate::posse::{Machine, RunningPosse};

/// Calls of the work.
const CALLS: usize = 24;

/// The call within which the process is killed.
const KILLED_AT: usize = 8;

/// Progress at the time of the outage.
const AWAY_AT: usize = 16;

const HOUR_S: u64 = 3600;

const DONE: &str = "All of it is done.";

/// What `systemd-run` is told, done at once: the folder, the variables, and then the command.
const TIMER: &str = r#"#!/bin/sh
variables=
while :; do
  case "$1" in
    --user) shift ;;
    --on-active=*) echo "${1#*=}" > "$(dirname "$0")/on-active"; shift ;;
    --working-directory=*) cd "${1#*=}" || exit 98; shift ;;
    -E)
      case "$2" in
        *=*) variables="$variables $2" ;;
        *) eval "variables=\"\$variables $2=\$$2\"" ;;
      esac
      shift 2 ;;
    -*) exit 97 ;;
    *) exec env -i $variables "$@" ;;
  esac
done
"#;

fn label(call: usize) -> String {
    format!("call-{call}")
}

/// The model's next call after so many results. Deterministic.
fn turn(results: usize) -> ModelAnswer {
    let wait = if results == KILLED_AT { "; sleep 20" } else { "" };
    match results {
        CALLS.. => says(DONE),
        _ => {
            calls(&[("bash", json!({"command": format!("echo {} >> log{wait}", label(results))}))])
        }
    }
}

/// The provider: unavailable from some point on, while `away` is set.
fn provider(away: Arc<AtomicBool>) -> ByteServer {
    ByteServer::start(&DIALECTS[0], move |request| {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        if results >= AWAY_AT && away.load(Ordering::SeqCst) {
            let body = r#"{"error":{"message":"closed for an hour","type":"rate_limit_error"}}"#;
            let text = format!(
                "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
                 retry-after: {HOUR_S}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            return vec![Move::Send(text.into_bytes()), Move::Close];
        }
        let ModelAnswer::Reply { text, calls, finish } = turn(results) else {
            unreachable!("a reply")
        };
        vec![Move::Send(reply(&text, &calls, finish, true)), Move::Close]
    })
}

/// A machine with timers and a patience of two seconds.
fn machine(server: &ByteServer) -> Machine {
    let machine = Machine::new();
    let mut config = server.config(&json!({}));
    // That of the provider counts before the day that `--unattended` waits.
    config["providers"]["local"]["patience"] = json!("2s");
    machine.write_config(&config.to_string());
    fs::create_dir_all(machine.path("bin")).unwrap();
    let timer = machine.path("bin/systemd-run");
    fs::write(&timer, TIMER).unwrap();
    fs::set_permissions(&timer, fs::Permissions::from_mode(0o755)).unwrap();
    machine
}

fn path(machine: &Machine) -> String {
    format!("{}:{}", machine.path("bin").display(), std::env::var("PATH").unwrap())
}

fn journal(machine: &Machine) -> Vec<Value> {
    let text = fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records in short: calls that went well are one line for each stretch of them.
fn in_short(records: &[Value]) -> Vec<String> {
    let text = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    let mut done: Vec<u64> = Vec::new();
    for record in records {
        let (number, kind) = (record["record"].as_u64().unwrap(), text(record, "type"));
        let detail = match kind.as_str() {
            "tool.completed" => {
                done.push(number);
                continue;
            }
            "session.started" => {
                format!("{} via {}", text(record, "model"), text(record, "provider"))
            }
            "user.message" => record["content"][0]["text"].to_string(),
            "tool.outcome_unknown" => text(&record["begun"], "summary"),
            "session.resumed" => format!("after {} records", record["records"]),
            "provider.retry" => {
                format!("{}, again in {} ms", text(record, "class"), record["waitMs"])
            }
            "session.parked" => {
                format!("{}; next try {}", text(record, "class"), record["nextTryMs"])
            }
            "agent.invocation.failed" => text(record, "class"),
            "agent.invocation.completed" => text(record, "result"),
            "agent.invocation.started" | "agent.invocation.cancelled" => String::new(),
            "session.ended" => {
                format!("{}, exit code {}", text(record, "reason"), record["exitCode"])
            }
            _ => continue,
        };
        if let (Some(first), Some(last)) = (done.first(), done.last()) {
            lines.push(format!("{first:>4}-{last} tool.completed × {}", done.len()));
            done.clear();
        }
        lines.push(format!("{number:>4} {kind} {detail}").trim_end().to_owned());
    }
    lines
}

#[test]
#[expect(clippy::print_stdout, reason = "the records, for whoever wants them")]
fn killed_run_with_an_hour_of_outage_finishes() {
    let away = Arc::new(AtomicBool::new(true));
    let server = provider(Arc::clone(&away));
    let machine = machine(&server);

    // Started unattended, and killed during a command that has had its effect.
    let running = machine.start(&["--unattended", "--yes", "do all of it"]);
    let begin = Instant::now();
    let log = || fs::read_to_string(machine.work("log")).unwrap_or_default();
    while !log().contains(&label(KILLED_AT)) {
        assert!(begin.elapsed() < Duration::from_secs(25), "{}", log());
        thread::sleep(Duration::from_millis(5));
    }
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
    let state = || -> Value {
        let listed = machine.posse(&["sessions", "list", "--json"]);
        serde_json::from_str::<Vec<Value>>(&listed.stdout).unwrap().remove(0)
    };
    assert_eq!(state()["state"], "killed");

    // Resumed; then the provider announces an outage of an hour.
    let mut command = machine.command(&["resume", &id, "--unattended", "--yes"]);
    command.env("PATH", path(&machine));
    let parked = RunningPosse::start(command).end();
    parked.assert_code(5);
    let now =
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let stands = state();
    assert_eq!(stands["state"], "parked", "{stands}");
    let wait_ms = stands["nextTryMs"].as_u64().unwrap() - now;
    assert!(wait_ms.abs_diff(HOUR_S * 1000) < 60_000, "{wait_ms}");
    let line = parked.stderr.lines().find_map(|line| line.strip_prefix("by itself then: "));
    let line = line.unwrap_or_else(|| panic!("{}", parked.stderr)).to_owned();

    // An hour later, as far as the line knows.
    away.store(false, Ordering::SeqCst);
    let mut timer = machine.shell(&line);
    timer.env("PATH", path(&machine));
    let ended = RunningPosse::start(timer).end();
    ended.assert_code(0);
    assert_eq!(ended.stdout, format!("{DONE}\n"));
    let on_active = fs::read_to_string(machine.path("bin/on-active")).unwrap();
    let on_active: u64 = on_active.trim().strip_suffix('s').unwrap().parse().unwrap();
    assert!(on_active.abs_diff(HOUR_S) < 90, "{on_active}");

    // Every call once, in order; the model was informed about unknown outcomes; no history was
    // rejected.
    let expected: Vec<String> = (0..CALLS).map(label).collect();
    assert_eq!(log().lines().collect::<Vec<_>>(), expected);
    let records = journal(&machine);
    let count = |kind: &str| records.iter().filter(|record| record["type"] == kind).count();
    assert_eq!((count("tool.completed"), count("tool.outcome_unknown")), (CALLS - 1, 1));
    assert_eq!((count("tool.started"), count("session.resumed")), (CALLS, 2));
    assert_eq!((count("session.parked"), count("session.ended")), (1, 2));
    server.requests();
    machine.verify();
    assert_eq!(state()["state"], "finished");
    machine.posse(&["replay", &id]).assert_code(0);
    println!("{}\n  then {line}", in_short(&records).join("\n"));
}
