//! Contents of the journal after the process was killed.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::posse::{Machine, RunningPosse};

/// Turns of the run that is killed.
const TURNS: usize = 30;

/// Number of kills, each at another event.
const KILLS: usize = 40;

/// Every turn changes the workspace and has a result larger than a page of memory.
fn thirty_turns() -> Vec<ModelAnswer> {
    let turn = |nth: usize| match nth % 3 {
        0 => {
            let command = format!("echo turn-{nth} >> log; seq {nth}000 {nth}999");
            calls(&[("bash", json!({"command": command}))])
        }
        1 => {
            let content = format!("{}\n", "line of text ".repeat(500));
            calls(&[("write_file", json!({"path": format!("turn-{nth}.txt"), "content": content}))])
        }
        _ => {
            let read = json!({"path": format!("turn-{}.txt", nth - 1)});
            calls(&[("read_file", read), ("grep", json!({"pattern": "text", "limit": 3}))])
        }
    };
    (0..TURNS).map(turn).chain([says("done")]).collect()
}

/// Kills a run after this many output lines. Returns all complete lines.
fn killed_after(machine: &Machine, lines: usize) -> Vec<Value> {
    let mut running = machine.start(&["-y", "--max-turns", "99", "work"]);
    for _ in 0..lines {
        if running.next_line().is_none() {
            break;
        }
    }
    running.signal(Signal::SIGKILL);
    let ended = running.end();
    let whole = ended.stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// Records of the journal by number, without an incomplete last line.
fn records(machine: &Machine) -> HashMap<u64, Value> {
    let bytes = fs::read(machine.session_dir().join("session.jsonl")).unwrap();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let parsed = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    parsed.map(|record| (record["record"].as_u64().unwrap(), record)).collect()
}

/// The line without the members that only the journal or only the stream has.
fn common(line: &Value) -> Value {
    let mut line = line.clone();
    for own in ["seq", "hash", "id"] {
        line.as_object_mut().unwrap().remove(own);
    }
    line
}

/// Asserts that every durable line that was seen is in the journal with the same contents.
fn assert_kept(seen: &[Value], kept: &HashMap<u64, Value>) {
    for line in seen {
        if let Some(number) = line.get("record").and_then(Value::as_u64) {
            let record = kept.get(&number).unwrap_or_else(|| panic!("lost: {line}"));
            assert_eq!(common(record), common(line));
        }
    }
}

/// Asserts that the journal has an intent for every effect in the workspace.
fn assert_intended(machine: &Machine, kept: &HashMap<u64, Value>) {
    let of = |kind: &'static str| kept.values().filter(move |record| record["type"] == kind);
    let started = |tool: &str, trace: &str| {
        let mut asked = of("tool.requested").filter(|record| {
            let arguments = record["arguments"].as_str().unwrap();
            record["name"] == tool && arguments.contains(trace)
        });
        asked.any(|asked| of("tool.started").any(|record| record["callId"] == asked["callId"]))
    };
    let log = fs::read_to_string(machine.work("log")).unwrap_or_default();
    for line in log.lines() {
        assert!(started("bash", &format!("echo {line} >>")), "{line} happened without an intent");
    }
    for nth in 0..TURNS {
        let name = format!("turn-{nth}.txt");
        if machine.work(&name).exists() {
            assert!(started("write_file", &name), "{name} was written without an intent");
        }
    }
}

#[test]
fn every_shown_event_survives_a_kill() {
    // A run that is not killed gives the number of lines.
    let server = ModelServer::start(thirty_turns());
    let machine = Machine::with(&server);
    let (ended, events) = machine.stream(&["-y", "--max-turns", "99", "work"]);
    ended.assert_code(0);
    assert_kept(&events, &records(&machine));
    let all = events.len();
    assert!(all > 8 * TURNS, "{all}");

    let next = AtomicUsize::new(0);
    let endings = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let kill @ 0..KILLS = next.fetch_add(1, Ordering::Relaxed) {
                    let server = ModelServer::start(thirty_turns());
                    let machine = Machine::with(&server);
                    let seen = killed_after(&machine, 1 + kill * all / KILLS);
                    let kept = records(&machine);
                    assert_kept(&seen, &kept);
                    assert_intended(&machine, &kept);
                    machine.verify();
                    let ended = seen.iter().any(|line| line["type"] == "session.ended");
                    endings.fetch_add(usize::from(ended), Ordering::Relaxed);
                }
            });
        }
    });
    let endings = endings.into_inner();
    assert!(endings < KILLS / 4, "{endings} of {KILLS} runs came to their end before the kill");
}

#[test]
fn accepts_an_incomplete_last_line_and_no_other_damage() {
    let server = ModelServer::start(vec![calls(&[("list_dir", json!({}))]), says("done")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "look"]).assert_code(0);
    let file = machine.session_dir().join("session.jsonl");
    let whole = fs::read(&file).unwrap();

    fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let verified = machine.posse(&["sessions", "verify"]);
    assert_eq!(verified.code, Some(0), "{}", verified.stdout);
    assert!(verified.stdout.contains("torn tail"), "{}", verified.stdout);

    let middle = whole.len() / 2;
    for damage in [b'\0', b'x', b'\n', whole[middle] ^ 1] {
        let mut damaged = whole.clone();
        damaged[middle] = damage;
        if damaged == whole {
            continue;
        }
        fs::write(&file, &damaged).unwrap();
        let verified = machine.posse(&["sessions", "verify"]);
        assert_eq!(verified.code, Some(8), "{damage}: {}", verified.stdout);
        assert!(verified.stdout.contains("damaged"), "{}", verified.stdout);
    }

    // The first record is damaged: nothing is proved, which is reported with the remaining lines
    // and a fix.
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
    let verified = machine.posse(&["sessions", "verify"]);
    let shown = machine.posse(&["sessions", "show", &id]);
    for (ended, text) in [(&verified, &verified.stdout), (&shown, &shown.stderr)] {
        assert_eq!(ended.code, Some(8), "{text}");
        let lines = whole.split(|byte| *byte == b'\n').count() - 1;
        let there = format!("{} bytes in {lines} lines, of which ", whole.len());
        assert!(text.contains(&there) && text.contains("still read as records"), "{text}");
        assert!(text.contains("fix: no record of it can be proved"), "{text}");
        assert!(text.contains(&format!("`posse sessions rm {id}`")), "{text}");
    }

    // A removed line breaks the chain as well.
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let without = [&lines[..2], &lines[3..]].concat().concat();
    fs::write(&file, without).unwrap();
    assert_eq!(machine.posse(&["sessions", "verify"]).code, Some(8));
}

#[test]
fn reports_a_running_session() {
    let server = ModelServer::start(vec![ModelAnswer::Hold(Vec::new())]);
    let machine = Machine::with(&server);
    let running = machine.start(&["wait for ever"]);
    server.wait_for_request();
    let listed = machine.posse(&["sessions", "list", "--json"]);
    let sessions: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(sessions[0]["state"], "running", "{sessions:#}");
    assert_eq!(sessions[0]["owner"], format!("process {}", running.pid()));
    machine.verify();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let listed = machine.posse(&["sessions", "list"]);
    assert!(listed.stdout.contains("killed, can be resumed"), "{}", listed.stdout);
    machine.verify();
}

#[test]
fn lists_and_shows_sessions() {
    let machine = Machine::new();
    for command in [["sessions", "list"], ["sessions", "verify"]] {
        let ended = machine.posse(&command);
        ended.assert_code(0);
        assert!(ended.stdout.contains("no sessions"), "{}", ended.stdout);
    }
    let server = ModelServer::start(vec![
        calls(&[("bash", json!({"command": "echo hi; exit 3"}))]),
        says("It says\u{1b}[2J hi."),
    ]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "-y", "say hi"]).assert_code(0);
    let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
    let work = machine.work("").canonicalize().unwrap().display().to_string();
    let clean = |text: String| {
        // Times, sizes and ids differ from run to run.
        let words = text.replace(&id, "ID").replace(&work, "WORK");
        let lines = words.lines().map(|line| {
            let hide = |word: &str| {
                let time = word.len() >= 5 && word.as_bytes()[2] == b':';
                let hash = word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
                time || hash || word.starts_with(|c: char| c.is_ascii_digit())
            };
            let words = line.split(' ').map(|word| if hide(word) { "·" } else { word });
            words.collect::<Vec<_>>().join(" ")
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let listed = machine.posse(&["sessions", "list"]);
    listed.assert_code(0);
    assert!(listed.stdout.contains("finished") && listed.stdout.contains("say hi"));
    let shown = machine.posse(&["sessions", "show", &id[..id.len() - 1]]);
    shown.assert_code(0);
    insta::assert_snapshot!(clean(shown.stdout), @r"
    ·  started   build with scripted-1 (local) in WORK, posse ·
    ·  you       say hi
    ·  asked     run echo hi; exit · (`exit · not covered by a rule or grant; it has no network)
    ·  allowed   by --yes, once
    ·  call      run echo hi; exit ·
    ·  done      hi (1 more line, · ms)
    ·  model     It says\u{1b}[2J hi.
    ·  ended     completed, exit code · · turns, · tokens in, · out
    state: finished
    ");
    let verified = machine.posse(&["sessions", "verify", &id]);
    verified.assert_code(0);
    insta::assert_snapshot!(clean(verified.stdout), @r"ID  sound  · records, · KiB, hash ·");
    let json = machine.posse(&["sessions", "show", "--json", &id]);
    json.assert_code(0);
    assert_eq!(json.events().len(), records(&machine).len());
}

#[test]
fn reports_an_unknown_session() {
    let machine = Machine::new();
    let ended = machine.posse(&["sessions", "show", "20260101-000000-abcdef"]);
    ended.assert_code(8);
    assert!(ended.stderr.starts_with("error[SES"), "{}", ended.stderr);
    let ended = machine.posse(&["sessions", "verify", "../../../etc"]);
    ended.assert_code(8);
}

#[test]
fn state_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let server = ModelServer::start(vec![says("hi")]);
    let machine = Machine::with(&server);
    machine.posse(&["run", "hi"]).assert_code(0);
    for path in [machine.path("posse/state"), machine.session_dir()] {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn stops_when_the_journal_cannot_be_written() {
    let server = ModelServer::start(vec![says("hi")]);
    let machine = Machine::with(&server);
    fs::write(machine.path("posse/state"), "a file where a folder should be").unwrap();
    let ended = machine.posse(&["run", "hi"]);
    ended.assert_code(8);
    assert!(ended.stderr.contains("error[JRN002]"), "{}", ended.stderr);
    assert!(ended.stderr.contains("fix: "), "{}", ended.stderr);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn continues_when_standard_error_is_closed() {
    let server = ModelServer::start(vec![calls(&[("list_dir", json!({}))]), says("done")]);
    let machine = Machine::with(&server);
    let mut command = machine.command(&["run", "-v", "look"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stderr(writer);
    let ended = RunningPosse::start(command).end();
    ended.assert_code(0);
    assert_eq!(ended.stdout, "done\n");
}

#[test]
fn waits_for_a_slow_reader_and_keeps_durable_events() {
    let server = ModelServer::start(thirty_turns());
    let machine = Machine::with(&server);
    let args = ["run", "-y", "--output-format", "stream-json", "--max-turns", "99", "work"];
    let mut command = machine.command(&args);
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(Stdio::from(writer));
    let running = RunningPosse::start(command);
    // Nothing is read until the model has sent more than the pipe holds.
    for _ in 0..4 {
        server.wait_for_request();
    }
    let mut text = Vec::new();
    let reading = thread::spawn(move || {
        std::io::copy(&mut reader, &mut text).unwrap();
        text.flush().unwrap();
        String::from_utf8(text).unwrap()
    });
    running.end().assert_code(0);
    let text = reading.join().unwrap();
    let seen: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kept = records(&machine);
    assert_kept(&seen, &kept);
    let durable = seen.iter().filter(|line| line.get("record").is_some()).count();
    assert_eq!(durable, kept.len());
}
