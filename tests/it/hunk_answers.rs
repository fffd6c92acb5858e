//! Permission requests about edits that a person answers hunk by hunk.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, calls, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};
use crate::trials_before_answers::Driver;

/// Lines `1` to `count`.
fn numbered(count: usize, end: &str) -> String {
    (1..=count).map(|number| format!("line {number}{end}")).collect::<Vec<_>>().concat()
}

/// A call that changes lines 2, 20 and 40 of `a`.
fn three_edits() -> (&'static str, Value) {
    let edit =
        |line: usize, new: &str| json!({"oldString": format!("line {line}\n"), "newString": new});
    let edits = [edit(2, "second\n"), edit(20, "twentieth\n"), edit(40, "")];
    ("multi_edit", json!({"path": "a", "edits": edits}))
}

/// A machine whose file `a` has the content `before`, and a model that makes `call`.
fn machine_for(call: (&str, Value), before: &str) -> (Machine, ModelServer) {
    let server = ModelServer::start(vec![calls(&[call]), says("done")]);
    let machine = Machine::with(&server);
    machine.write("a", before);
    (machine, server)
}

fn answer(request: &Value, hunks: &Value) -> Value {
    let id = &request["requestId"];
    json!({"type": "permission.answer", "requestId": id, "decision": "hunks", "hunks": hunks})
}

#[test]
fn chosen_hunks_alone_are_made() {
    let before = numbered(50, "\n");
    let (machine, server) = machine_for(three_edits(), &before);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    let hunks = asked["hunks"].as_array().unwrap();
    let starts: Vec<&Value> = hunks.iter().map(|hunk| &hunk["oldStart"]).collect();
    assert_eq!(starts, [1, 17, 37]);
    assert_eq!((&hunks[0]["oldLines"], &hunks[0]["newLines"]), (&json!(5), &json!(5)));
    assert_eq!(hunks[0]["newText"], "line 1\nsecond\nline 3\nline 4\nline 5\n");
    assert_eq!(hunks[2]["oldText"], numbered(43, "\n").split_off(before.find("line 37").unwrap()));
    // An answer that does not fit says where and how, and the request stays open.
    for (wrong, why) in [
        (json!(["yes"]), "hunks: 1 for 3 hunks; give one answer for each hunk"),
        (json!(["yes", "maybe", "no"]), "hunks[1]: use \\\"yes\\\", \\\"no\\\" or"),
        (json!(["yes", {"replace": "a\0"}, "no"]), "hunks[1].replace: it contains a NUL"),
    ] {
        driver.send(&answer(&asked, &wrong));
        let warning = driver.running.wait_for("warning").to_string();
        assert!(warning.contains(why), "{warning}");
    }
    let mine = hunks[1]["newText"].as_str().unwrap().replace("twentieth", "20th");
    driver.send(&answer(&asked, &json!(["no", {"replace": mine}, "yes"])));
    drop(driver.stdin);
    let ended = driver.running.end();
    ended.assert_code(0);
    let expected = before.replace("line 20\n", "20th\n").replace("line 40\n", "");
    assert_eq!(machine.read("a"), expected);
    let told = server.tool_results().remove(0);
    for part in [
        "2 of 3 hunks applied, as the user chose. Not applied: hunk 1 (line 2)",
        "how the file differs from yours:\n@@ -17,7 +17,7 @@",
        "-twentieth\n+20th\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let events = ended.events();
    let position = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    let granted = &events[position("permission.granted")];
    assert_eq!(granted["hunks"], json!(["no", {"replace": mine}, "yes"]));
    assert_eq!((&granted["scope"], &granted["grant"]), (&json!("once"), &Value::Null));
    assert!(position("permission.granted") < position("tool.started"));
    let started = &events[position("tool.started")];
    assert_eq!(started["summary"], "edit a (+1 -2), 2 of 3 hunks, 1 of them changed");
    let id = granted["sessionId"].as_str().unwrap();
    machine.posse(&["replay", id]).assert_code(0);
    let log = machine.posse(&["sessions", "show", id]);
    assert!(log.stdout.contains("by user, 2 of 3 hunks, 1 of them changed"), "{}", log.stdout);
    machine.posse(&["undo", "--yes"]).assert_code(0);
    assert_eq!(machine.read("a"), before);
    machine.verify();
}

#[test]
fn line_ends_of_the_file_stay_in_a_choice() {
    let before = numbered(30, "\r\n") + "the end";
    let content = (numbered(30, "\n") + "the end").replace("line 3\n", "third\n");
    let content = content.replace("the end", "the very end");
    let call = ("write_file", json!({"path": "a", "content": content}));
    let (machine, _server) = machine_for(call, &before);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    assert_eq!(asked["hunks"].as_array().unwrap().len(), 2);
    driver.send(&answer(&asked, &json!([{"replace": "first\nand more"}, "yes"])));
    drop(driver.stdin);
    driver.running.end().assert_code(0);
    let rest = &before[before.find("line 7\r\n").unwrap()..];
    let rest = rest.replace("the end", "the very end");
    assert_eq!(machine.read("a"), format!("first\r\nand more\r\n{rest}"));
}

#[test]
fn no_for_each_hunk_denies_the_call() {
    let before = numbered(50, "\n");
    let (machine, server) = machine_for(three_edits(), &before);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    driver.send(&answer(&asked, &json!(["no", "no", "no"])));
    driver.running.wait_for("permission.denied");
    drop(driver.stdin);
    driver.running.end();
    assert_eq!(server.tool_results(), ["Denied: the user said no to each of its 3 hunks"]);
    assert_eq!(machine.read("a"), before);
}

#[test]
fn file_that_changes_before_the_answer_is_asked_about_again() {
    let before = numbered(50, "\n");
    let (machine, _server) = machine_for(three_edits(), &before);
    let mut driver = Driver::start(&machine, None);
    let asked = driver.asked();
    let changed = format!("of another program\n{before}");
    machine.write("a", &changed);
    driver.send(&answer(&asked, &json!(["yes", "no", "no"])));
    let again = driver.asked();
    assert_ne!(again["requestId"], asked["requestId"]);
    assert_eq!(again["hunks"][1]["oldStart"], 18);
    assert_eq!(machine.read("a"), changed);
    driver.send(&answer(&again, &json!(["no", "no", "yes"])));
    drop(driver.stdin);
    driver.running.end().assert_code(0);
    assert_eq!(machine.read("a"), changed.replace("line 40\n", ""));
}

#[test]
fn new_file_and_command_have_no_hunks() {
    for (call, field) in [
        (("write_file", json!({"path": "new", "content": "a\n"})), "detail"),
        (("bash", json!({"command": "make"})), "detail"),
    ] {
        let (machine, _server) = machine_for(call, "a\n");
        let mut driver = Driver::start(&machine, None);
        let asked = driver.asked();
        assert!(asked["hunks"].is_null() && asked[field].is_string(), "{asked}");
        driver.send(&answer(&asked, &json!(["yes"])));
        let warning = driver.running.wait_for("warning").to_string();
        assert!(
            warning.contains("hunks: the request offers none; answer it as a whole"),
            "{warning}"
        );
        driver.answer(&asked, "deny");
        drop(driver.stdin);
        driver.running.end();
    }
}

/// The journal ends between the answer and the effect, as after a kill.
#[test]
fn resume_after_the_answer_makes_nothing() {
    let before = numbered(50, "\n");
    for more in [&[][..], &["--yes"]] {
        let (machine, server) = machine_for(three_edits(), &before);
        let mut driver = Driver::start(&machine, None);
        let asked = driver.asked();
        driver.send(&answer(&asked, &json!(["yes", "no", "no"])));
        driver.running.wait_for("tool.completed");
        driver.running.signal(nix::sys::signal::Signal::SIGKILL);
        driver.running.wait();
        let journal = machine.session_dir().join("session.jsonl");
        let records = fs::read_to_string(&journal).unwrap();
        let answered = records.find("\"permission.granted\"").unwrap();
        let end = answered + records[answered..].find('\n').unwrap() + 1;
        fs::write(&journal, &records[..end]).unwrap();
        machine.write("a", &before);
        server.repeat_from_now(says("done"));
        let mut command = machine.command(&[&["resume", "--last"], more].concat());
        command.stdin(Stdio::null());
        RunningPosse::start(command).end().assert_code(0);
        assert_eq!(machine.read("a"), before, "{more:?}");
        let told = server.tool_results().pop().unwrap();
        assert!(told.contains("after the user had chosen some of its hunks"), "{told}");
        machine.verify();
    }
}

#[test]
fn attached_person_answers_hunk_by_hunk() {
    let before = numbered(50, "\n");
    let (machine, _server) = machine_for(three_edits(), &before);
    let mut driver = Driver::start(&machine, None);
    driver.asked();
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    for (seen, key) in [
        ("[h] hunk by hunk", "h"),
        ("hunk 1 of 3", "n"),
        ("hunk 2 of 3", "y"),
        ("hunk 3 of 3", "a"),
    ] {
        person.see(seen);
        person.see(": ");
        person.press(&format!("{key}\n"));
    }
    let granted = driver.running.wait_for("permission.granted");
    assert_eq!(granted["hunks"], json!(["no", "yes", "yes"]));
    assert!(granted["answeredBy"].is_string(), "{granted}");
    drop(driver.stdin);
    driver.running.end().assert_code(0);
    assert_eq!(person.end(), Some(0));
    let expected = before.replace("line 20\n", "twentieth\n").replace("line 40\n", "");
    assert_eq!(machine.read("a"), expected);
}

#[test]
fn person_at_a_terminal_answers_hunk_by_hunk() {
    let before = numbered(50, "\n");
    for args in [&["run", "do it"][..], &["plain"]] {
        let (machine, _server) = machine_for(three_edits(), &before);
        let mut terminal = Terminal::run(&machine, args, "xterm");
        if args == ["plain"] {
            terminal.see("> ");
            terminal.press("do it\r");
        }
        terminal.see("[h] hunk by hunk");
        terminal.press("h\n");
        terminal.see("hunk 1 of 3");
        terminal.see("-line 2\r\n");
        terminal.see("[q] back: ");
        terminal.press("y\n");
        terminal.see("hunk 2 of 3");
        terminal.see("[q] back: ");
        terminal.press("e\n");
        let text = terminal.see(" and save it");
        let path = text.rsplit("change the hunk in ").next().unwrap();
        let path = path.split(" and save it").next().unwrap();
        let draft = fs::read_to_string(path).unwrap();
        fs::write(path, draft.replace("twentieth", "20th")).unwrap();
        terminal.press("y\n");
        terminal.see("hunk 3 of 3");
        terminal.see("[q] back: ");
        terminal.press("n\n");
        terminal.see("done");
        if args == ["plain"] {
            terminal.see("> ");
            terminal.press("\u{4}");
        }
        assert_eq!(terminal.end(), Some(0));
        let expected = before.replace("line 2\n", "second\n").replace("line 20\n", "20th\n");
        assert_eq!(machine.read("a"), expected);
    }
}
