//! Tools of the model for the user: the task list, questions and plans, in every front end.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};
use crate::tui::{SILENCE, Tmux};

/// A call that writes a task list with the second of three tasks in progress.
fn plans_work() -> ModelAnswer {
    let todo = |content: &str, status: &str| json!({"content": content, "status": status});
    let todos = [
        todo("read the code", "completed"),
        todo("change it", "in_progress"),
        todo("test it", "pending"),
    ];
    calls(&[("todo_write", json!({ "todos": todos }))])
}

const LIST: [&str; 3] = ["[x] read the code", "[>] change it", "[ ] test it"];

/// A reply that is long enough for a compaction to remove it.
fn talks() -> ModelAnswer {
    let words = |nth: u32| format!("so {nth:03} goes ");
    says(&(0..600).map(words).collect::<String>())
}

/// Runs `args` with instructions on standard input: messages, and after them a compaction and a
/// last message. Returns the events.
fn compacts(machine: &Machine, args: &[&str], messages: usize) -> Vec<Value> {
    let formats = ["--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&[args, &formats].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |instruction: Value| writeln!(stdin, "{instruction}").unwrap();
    for _ in 0..messages {
        send(json!({"type": "message", "content": "go on"}));
        running.wait_for("agent.invocation.completed");
    }
    send(json!({"type": "compact"}));
    running.wait_for("context.compacted");
    send(json!({"type": "message", "content": "and now?"}));
    running.wait_for("agent.invocation.completed");
    drop(stdin);
    let ended = running.end();
    ended.assert_code(0);
    ended.events()
}

#[test]
fn task_list_is_an_event_and_survives_compaction_and_resume() {
    let mut answers = vec![plans_work()];
    answers.extend((0..10).map(|_| talks()));
    let server = ModelServer::start(answers);
    let machine = Machine::with(&server);
    let events = compacts(&machine, &["run"], 4);
    let updated: Vec<&Value> = events.iter().filter(|e| e["type"] == "todo.updated").collect();
    assert_eq!(updated.len(), 1);
    assert_eq!(updated[0]["todos"][1], json!({"content": "change it", "status": "in_progress"}));
    let lists_tasks = |nth: usize| {
        let last = server.requests().last().unwrap()["messages"].to_string();
        let tasks =
            ["1. completed: read the code", "2. in progress: change it", "3. pending: test it"];
        for task in tasks {
            let line = format!("Your task list (todo_write): {task}");
            assert_eq!(last.matches(&line).count(), 1, "{task}, compaction {nth}");
        }
        assert!(!last.contains("\"name\":\"todo_write\""), "the call is gone");
    };
    lists_tasks(1);
    compacts(&machine, &["resume", "--last"], 3);
    lists_tasks(2);
    machine.verify();
}

#[test]
fn terminal_ui_and_line_mode_show_the_task_list() {
    let server =
        ModelServer::start(vec![plans_work(), says("Listed."), plans_work(), says("Listed.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("list it");
    tmux.wait_for("Listed.");
    // The end of the run shows what is left.
    let screen = tmux.wait_for("Done in ");
    for line in ["☑ read the code", "▸ change it", "☐ test it"] {
        assert_eq!(screen.matches(line).count(), 1, "{line}: {screen}");
    }
    tmux.says("/todos");
    tmux.wait_for("1 of 3 tasks done; in progress: change it");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let mut terminal = Terminal::run(&machine, &["plain"], "xterm");
    terminal.press("list it\r");
    let shown = terminal.see("Listed.");
    for line in LIST {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    terminal.press("/todos\r");
    terminal.see("1 of 3 tasks done; in progress: change it");
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
    machine.verify();
}

fn asks() -> ModelAnswer {
    let options = json!([
        {"label": "files", "description": "one for each entry"},
        {"label": "sqlite"},
    ]);
    calls(&[(
        "ask_user",
        json!({"questions": [
            {"question": "Which store?", "options": options, "default": "sqlite"},
        ]}),
    )])
}

fn presents() -> ModelAnswer {
    calls(&[("present_plan", json!({"plan": "# Store\n\n1. write `store.rs`\n2. test it"}))])
}

fn writes() -> ModelAnswer {
    calls(&[("write_file", json!({"path": "store.rs", "content": "x"}))])
}

fn plan_mode() -> [&'static str; 2] {
    ["--permission-mode", "plan"]
}

#[test]
fn nobody_is_asked_in_a_headless_run_and_the_run_succeeds() {
    for flags in [&[][..], &["--yes"]] {
        let server = ModelServer::start(vec![asks(), presents(), says("Decided.")]);
        let machine = Machine::with(&server);
        let (ended, events) = machine.stream(&[flags, &["do it"]].concat());
        ended.assert_code(0);
        assert_eq!(events.last().unwrap()["result"], "Decided.");
        assert_eq!(server.tool_results().len(), 2);
        for result in server.tool_results() {
            assert!(result.starts_with("No user can be asked"), "{result}");
        }
        assert!(events.iter().all(|event| event["type"] != "tool.failed"));
        machine.verify();
    }
}

#[test]
fn program_answers_questions_and_accepts_a_plan() {
    let server = ModelServer::start(vec![asks(), writes(), presents(), writes(), says("Stored.")]);
    let machine = Machine::with(&server);
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&[&formats[..], &plan_mode(), &["store it"]].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |instruction: Value| writeln!(stdin, "{instruction}").unwrap();
    let asked = running.wait_for("permission.requested");
    let request = &asked["userRequest"];
    assert_eq!(request["kind"], "questions");
    assert_eq!(request["questions"][0]["options"][1]["label"], "sqlite");
    let id = &asked["requestId"];
    send(json!({"type": "permission.answer", "requestId": id, "decision": "allow"}));
    let warning = running.wait_for("warning");
    assert!(warning["message"].as_str().unwrap().contains("question.answer"), "{warning}");
    send(json!({"type": "question.answer", "requestId": id, "answers": [{"selected": ["files"]}]}));
    assert_eq!(running.wait_for("permission.granted")["reply"]["kind"], "questions");
    let asked = running.wait_for("permission.requested");
    assert_eq!(asked["userRequest"]["modes"], json!(["ask", "edits", "auto"]));
    send(json!({
        "type": "plan.answer", "requestId": asked["requestId"], "mode": "edits",
        "plan": "1. write `store.rs`",
    }));
    let changed = running.wait_for("permission.mode_changed");
    assert_eq!((&changed["from"], &changed["mode"]), (&json!("plan"), &json!("edits")));
    running.wait_for("agent.invocation.completed");
    drop(stdin);
    running.end().assert_code(0);
    assert!(machine.work("store.rs").exists());
    let results = server.tool_results();
    assert_eq!(results[0], "Which store? -> files");
    assert!(results[1].contains("the permission mode is plan"), "{}", results[1]);
    assert!(results[2].contains("The user changed the plan and accepted this:\n\n1. write"));
    assert!(results[2].contains("The permission mode is edits now."), "{}", results[2]);
    let first = server.requests()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(first.contains("call present_plan with the complete plan"), "{first}");
    machine.verify();
}

#[test]
fn question_of_a_killed_process_is_asked_again_after_resume() {
    let server = ModelServer::start(vec![asks(), says("Thanks.")]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::run(&machine, &["plain"], "xterm");
    terminal.press("store it\r");
    terminal.see("[x] no answer");
    terminal.signal(nix::sys::signal::Signal::SIGKILL);
    terminal.end();
    let mut resumed = Terminal::run(&machine, &["plain", "-c"], "xterm");
    resumed.see("? question: Which store?");
    resumed.see("[x] no answer");
    resumed.press("1\r");
    resumed.see("Thanks.");
    assert_eq!(server.tool_results(), ["Which store? -> files"]);
    let ids: Vec<String> = journal(&machine)
        .into_iter()
        .filter(|record| record["type"] == "permission.requested")
        .map(|record| record["requestId"].as_str().unwrap().to_owned())
        .collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    resumed.press("/exit\r");
    resumed.end();
    machine.verify();
}

/// The records of the only session.
fn journal(machine: &Machine) -> Vec<Value> {
    let text = std::fs::read_to_string(machine.session_dir().join("session.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn line_mode_asks_and_accepts_a_plan_with_changes() {
    let server = ModelServer::start(vec![asks(), presents(), writes(), says("Stored.")]);
    let machine = Machine::with(&server);
    let args = [&["plain"][..], &plan_mode()].concat();
    let mut terminal = Terminal::run(&machine, &args, "xterm");
    terminal.press("store it\r");
    terminal.see("? question: Which store?");
    terminal.see("1. files: one for each entry");
    terminal.see("[Enter] sqlite");
    terminal.press("\r");
    terminal.see("? plan: Store");
    terminal.see("1. write `store.rs`");
    terminal.see("accept?");
    terminal.press("o\r");
    let shown = terminal.see("and save it; then accept it here");
    let path =
        shown.split_whitespace().find(|word| word.contains("posse-plan-")).unwrap().to_owned();
    std::fs::write(&path, "1. write only `store.rs`\n").unwrap();
    terminal.press("e\r");
    terminal.see("Stored.");
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
    let results = server.tool_results();
    assert_eq!(results[0], "Which store? -> no answer; the default is: sqlite");
    assert!(results[1].contains("1. write only `store.rs`"), "{}", results[1]);
    assert!(machine.work("store.rs").exists() && !std::fs::exists(&path).unwrap());
    machine.verify();
}

#[test]
fn terminal_ui_asks_and_accepts_a_plan_or_refuses_it_with_words() {
    let server =
        ModelServer::start(vec![asks(), presents(), presents(), writes(), says("Stored.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &plan_mode());
    tmux.says("store it");
    tmux.wait_for("[x] no answer");
    std::thread::sleep(SILENCE);
    tmux.presses("Up");
    tmux.wait_for("❯ 1. files");
    tmux.presses("Enter");
    tmux.wait_for("[e] yes, and edit files without asking");
    std::thread::sleep(SILENCE);
    tmux.presses("n");
    tmux.wait_for("for the model: ");
    tmux.types("one step");
    tmux.wait_for("for the model: one step");
    tmux.presses("Enter");
    tmux.wait_until("the second plan", |screen| {
        screen.contains("[e] yes, and edit files without asking")
            && !screen.contains("for the model")
    });
    std::thread::sleep(SILENCE);
    tmux.presses("e");
    tmux.wait_for("Stored.");
    tmux.wait_until("the new mode", |screen| {
        screen.lines().any(|line| line.trim().starts_with("edits · "))
    });
    assert!(machine.work("store.rs").exists());
    let results = server.tool_results();
    assert_eq!(results[0], "Which store? -> files");
    assert!(results[1].contains("The user said: one step"), "{}", results[1]);
    assert!(results[2].contains("The permission mode is edits now."), "{}", results[2]);
    tmux.presses("C-d");
    tmux.assert_ended(0);
    machine.verify();
}

#[test]
fn attached_front_ends_answer_a_question_and_a_plan() {
    let server = ModelServer::start(vec![asks(), presents(), says("Stored.")]);
    let machine = Machine::with(&server);
    let mut owner = Terminal::run(&machine, &["plain"], "xterm");
    owner.press("store it\r");
    owner.see("[x] no answer");
    let formats = ["attach", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&formats);
    command.stdin(Stdio::piped());
    let mut program = RunningPosse::start(command);
    let mut stdin = program.take_stdin();
    let asked = program.wait_for("permission.requested");
    let mut answer = |selected: &str| {
        let answers = json!([{ "selected": [selected] }]);
        let id = &asked["requestId"];
        let line = json!({"type": "question.answer", "requestId": id, "answers": answers});
        writeln!(stdin, "{line}").unwrap();
    };
    answer("redis");
    let failed = program.wait_for("attach.failed");
    assert!(failed["message"].as_str().unwrap().contains("\"redis\" is no option"), "{failed}");
    answer("sqlite");
    owner.see("! answered by process");
    owner.see("accept?");
    let mut person = Terminal::run(&machine, &["attach"], "xterm");
    person.see("? plan: Store");
    person.see("accept?");
    person.press("a\r");
    owner.see("Stored.");
    let results = server.tool_results();
    assert_eq!(results[0], "Which store? -> sqlite");
    assert!(results[1].contains("The permission mode is auto now."), "{}", results[1]);
    person.press("/exit\r");
    person.end();
    drop(stdin);
    program.end();
    owner.press("/exit\r");
    assert_eq!(owner.end(), Some(0));
    machine.verify();
}

#[test]
fn question_of_a_subagent_names_it_and_only_the_main_agent_presents_plans() {
    let delegates = calls(&[("delegate_agent", json!({"agent": "worker", "task": "store it"}))]);
    let server =
        ModelServer::start(vec![delegates, asks(), presents(), says("Asked."), says("Done.")]);
    let more = json!({"agentMode": "multi-agent"});
    let machine = Machine::configured(&server, &more, &json!({}));
    let formats = ["run", "--input-format", "stream-json", "--output-format", "stream-json"];
    let mut command = machine.command(&[&formats[..], &["store it"]].concat());
    command.stdin(Stdio::piped());
    let mut running = RunningPosse::start(command);
    let mut stdin = running.take_stdin();
    let mut send = |instruction: Value| writeln!(stdin, "{instruction}").unwrap();
    let asked = running.wait_for("permission.requested");
    let id = &asked["requestId"];
    send(json!({"type": "permission.answer", "requestId": id, "decision": "allow"}));
    let asked = running.wait_for("permission.requested");
    assert_eq!((&asked["agentPath"], &asked["tool"]), (&json!("build/worker"), &json!("ask_user")));
    let id = &asked["requestId"];
    send(json!({"type": "question.answer", "requestId": id, "answers": [{"text": "neither"}]}));
    drop(stdin);
    running.end().assert_code(0);
    let requests = server.requests();
    let offers = |nth: usize, tool: &str| {
        let tools = requests[nth]["tools"].as_array().unwrap();
        tools.iter().any(|one| one["function"]["name"] == tool)
    };
    assert!(offers(0, "present_plan") && offers(1, "ask_user") && !offers(1, "present_plan"));
    let seen = requests[3]["messages"].to_string();
    assert!(seen.contains("Which store? -> neither"), "{seen}");
    assert!(seen.contains(r#"Unknown tool: \"present_plan\""#), "{seen}");
    machine.verify();
}
