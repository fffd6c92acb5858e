//! Tools of the model for the user: the task list, questions and plans, in every front end.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::plain::Terminal;
use crate::posse::{Machine, RunningPosse};
use crate::tui::Tmux;

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
    let screen = tmux.wait_for("Listed.");
    for line in LIST {
        assert!(screen.contains(line), "{line}: {screen}");
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
