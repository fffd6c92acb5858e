//! Tests of waiting states and of what remains of them.

use posse_actors::conversation::{CallId, ContentPart, InvocationId, QuestionId, Usage};
use posse_actors::event::{
    Event, Grant, GrantedAgent, JobEnd, MessageKind, PermissionTarget, Scope,
};
use posse_base::failure::Exit;
use serde_json::json;

use crate::app::Effect;
use crate::input::ctrl;
use crate::testing::{TestScreen, origin, question};

const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n";

fn request(turn: u32) -> Event {
    let (provider, model) = ("anthropic".to_owned(), "large-5".to_owned());
    Event::ModelRequest { turn, provider, model, messages: 2 }
}

fn asks_for(id: &str, name: &str, arguments: &serde_json::Value) -> Event {
    let (call_id, name) = (CallId::new(id), name.to_owned());
    Event::ToolRequested { call_id, name, arguments: arguments.to_string() }
}

fn fails(id: &str, class: &str, why: &str) -> Event {
    Event::ToolFailed {
        call_id: CallId::new(id),
        name: "bash".to_owned(),
        content: vec![ContentPart::text(why)],
        class: class.to_owned().into(),
        metadata: json!(null),
        duration_ms: 0,
    }
}

fn cancelled() -> Event {
    Event::InvocationCancelled { turns: 1, usage: Usage::default() }
}

fn parked() -> Event {
    Event::SessionParked {
        cause: "429: come back later".to_owned(),
        class: Some("rate_limit".to_owned()),
        next_try_ms: Some(3_601_000),
    }
}

#[test]
fn parked_state_shows_a_countdown_and_disappears() {
    let mut stage = TestScreen::with_task();
    stage.app.view.wall_ms = 1000;
    stage.happens(parked());
    stage.later(20_000);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("⏸ parked: retry in 59 min 40 s · Esc stops it"), "{screen}");
    assert!(screen.contains("  429: come back later") && !screen.contains("working"), "{screen}");
    stage.later(3_000);
    assert!(stage.screen(80, 24).contains("retry in 59 min 37 s"));
    let clears: [fn(&mut TestScreen); 4] = [
        |stage| stage.happens(request(1)),
        |stage| stage.happens(cancelled()),
        |stage| stage.says("Here."),
        |stage| stage.app.view.parked = None,
    ];
    for clear in clears {
        let mut stage = TestScreen::with_task();
        stage.happens(parked());
        clear(&mut stage);
        stage.happens(cancelled());
        assert!(!stage.screen(80, 24).contains("⏸ parked"));
    }
}

#[test]
fn thinking_is_shown_unless_hidden() {
    for hides in [false, true] {
        let mut stage = TestScreen::with_task();
        stage.app.view.hides_thinking = hides;
        stage.happens(request(1));
        stage.happens(Event::ThinkingDelta { text: "Read a.txt first.\n".to_owned() });
        let screen = stage.screen(80, 24);
        assert!(screen.contains("thinking · "), "{screen}");
        assert_eq!(screen.contains("Read a.txt first."), !hides, "{screen}");
    }
}

#[test]
fn auxiliary_request_disappears_with_its_end() {
    let beside = origin("i9", Some("i1"), "build/compact");
    let used = Event::ModelUsage { turn: 1, usage: Usage::default(), billing: None };
    let warning = Event::Warning { message: "there is no summary".to_owned() };
    let titled = Event::SessionTitled { title: "Prices".to_owned() };
    for (by_itself, end) in [(true, used), (false, warning), (false, titled)] {
        let mut stage = TestScreen::new();
        stage.happens_in(&beside, request(1));
        stage.later(6000);
        assert!(stage.screen(80, 24).contains("compact · 6 s · waiting for its model"));
        assert_eq!(stage.app.view.tree.agents(), 0, "it is none of the agents");
        if by_itself {
            stage.happens_in(&beside, end);
        } else {
            stage.app.follow(&end, None, stage.now);
        }
        let screen = stage.screen(80, 24);
        assert!(!screen.contains("waiting for its model"), "{screen}");
        assert_eq!(stage.app.next_change(stage.now), None, "nothing counts on");
    }
    // An agent with that name stays until its own end event.
    let mut stage = TestScreen::with_task();
    let child = origin("i9", Some("i1"), "build/compact");
    stage.happens(requested("i9", "c1"));
    stage.happens_in(&child, request(1));
    let used = Event::ModelUsage { turn: 1, usage: Usage::default(), billing: None };
    stage.happens_in(&child, used);
    stage.happens(Event::Warning { message: "mind the gap".to_owned() });
    assert!(stage.screen(80, 24).contains("compact “make it short”"));
}

fn requested(id: &str, call: &str) -> Event {
    Event::InvocationRequested {
        child_invocation_id: InvocationId::new(id),
        target: "compact".to_owned(),
        call_id: CallId::new(call),
        provider: "anthropic".to_owned(),
        task: "make it short".to_owned(),
        background: false,
        brief: false,
        workplace: None,
    }
}

#[test]
fn denied_or_cancelled_call_keeps_its_summary() {
    let mut stage = TestScreen::with_task();
    stage.happens(asks_for("c1", "bash", &json!({"command": "rm -rf build"})));
    stage.happens(fails("c1", "denied", "Denied: the user said no"));
    stage.happens(asks_for("c2", "bash", &json!({"command": "touch zz", "timeout": 3})));
    stage.happens(asks_for("c3", "odd", &json!(["x"])));
    stage.happens(cancelled());
    let screen = stage.screen(80, 24);
    assert!(screen.contains("✗ run rm -rf build\n  └ denied: the user said no"), "{screen}");
    assert!(screen.contains("✗ run touch zz\n  └ cancelled"), "{screen}");
    assert!(screen.contains("✗ odd\n  └ cancelled"), "{screen}");
}

#[test]
fn waiting_calls_show_the_reason_without_a_spinner() {
    let mut stage = TestScreen::with_task();
    for (id, command) in [("call-q1", "touch a"), ("c2", "touch b"), ("c3", "touch c")] {
        stage.happens(asks_for(id, "bash", &json!({"command": command})));
    }
    stage.happens(question("q1", "touch a"));
    stage.later(20_000);
    let screen = stage.screen(80, 24);
    // The request shows it.
    assert!(screen.contains("? Run this command?\n"), "{screen}");
    assert_eq!(screen.matches("touch a").count(), 1, "{screen}");
    assert!(screen.contains("· run touch b · waiting for earlier calls"), "{screen}");
    assert!(!screen.contains("20 s"), "{screen}");
    stage.happens(Event::PermissionDenied {
        is_user_request: false,
        target: PermissionTarget::default(),
        request_id: QuestionId::new("q1"),
        by: posse_actors::event::DecisionSource::User,
        reason: "the user said no".to_owned(),
        rule: None,
        answered_by: None,
    });
    stage.happens(fails("call-q1", "denied", "Denied: the user said no"));
    stage.happens(fails("c2", "skipped", "Skipped"));
    // The last call is under review now.
    let screen = stage.screen(80, 24);
    assert!(!screen.contains("· waiting for") && screen.contains("run touch c · 20 s"), "{screen}");
}

#[test]
fn grants_appear_in_the_transcript() {
    let mut stage = TestScreen::with_task();
    stage.happens(asks_for("call-q1", "edit_file", &json!({"path": "x"})));
    stage.happens(question("q1", DIFF));
    let (operation, target) = ("write".to_owned(), "src".to_owned());
    for scope in [Scope::Agent, Scope::Session, Scope::Project, Scope::Global] {
        let worker = GrantedAgent::of(&origin("inv-2", Some("inv-1"), "build/worker"));
        let agent = (scope == Scope::Agent).then_some(worker);
        let grant = Grant { operation: operation.clone(), target: target.clone(), scope, agent };
        stage.happens(Event::PermissionGranted {
            reply: None,
            target: PermissionTarget::default(),
            request_id: QuestionId::new("q1"),
            by: posse_actors::event::DecisionSource::User,
            scope,
            grants_part: false,
            keeps_trial: false,
            hunks: Vec::new(),
            grant: Some(grant),
            binding: String::new(),
            answered_by: None,
        });
    }
    stage.calls("call-q1", "change x (+1 -1)", "changed", json!({"diff": DIFF}));
    let screen = stage.screen(140, 30);
    for line in [
        "1 -one",
        "1 +two",
        "(allowed for build/worker #2 until this session ends: write src; /permissions lists it",
        "(allowed until this session ends: write src; /permissions lists it",
        "(allowed in this project until it expires: write src; posse grants list shows it",
        "(allowed everywhere until it expires: write src; posse grants list shows it",
        "posse grants revoke revokes it)",
    ] {
        assert!(screen.contains(line), "{line}: {screen}");
    }
}

#[test]
fn delegated_call_is_shown_once() {
    let mut stage = TestScreen::with_task();
    stage.happens(asks_for("c1", "delegate", &json!({"task": "make it short"})));
    let text = "waiting for a place (limit 3)\n".to_owned();
    stage.happens(Event::ToolOutputDelta { call_id: CallId::new("c1"), text });
    assert!(stage.screen(80, 24).contains("waiting for a place (limit 3)"));
    stage.happens(requested("i9", "c1"));
    let screen = stage.screen(80, 24);
    assert!(!screen.contains("waiting for a place"), "{screen}");
    assert!(screen.contains("compact “make it short”"), "{screen}");
    assert!(!screen.contains("delegate"), "{screen}");
    stage.happens(cancelled());
    assert!(stage.screen(80, 24).contains("✗ delegate make it short"));
}

#[test]
fn late_message_is_sent_with_the_next_prompt() {
    let mut stage = TestScreen::with_task();
    stage.happens(Event::MessageQueued {
        message_id: posse_actors::conversation::MessageId::new("m1"),
        kind: MessageKind::Steer,
        content: vec![ContentPart::text("and the tests")],
    });
    assert!(stage.screen(80, 24).contains("⤷ at the next step: and the tests"));
    stage.happens(cancelled());
    stage.app.finish_task();
    let screen = stage.screen(80, 24);
    assert!(screen.contains("⤷ with your next message: and the tests"), "{screen}");
    assert!(screen.contains("Alt+Up edits the last one"), "{screen}");
}

#[test]
fn exit_warns_about_background_work() {
    let leave = vec![Effect::Leave(Exit::Done)];
    let mut stage = TestScreen::with_task();
    assert_eq!(stage.presses(ctrl('d')), []);
    assert!(stage.screen(80, 24).contains("a task runs: Esc stops it"));
    stage.later(2000);
    assert!(!stage.screen(80, 24).contains("a task runs:"), "a hint for a moment");
    stage.ends();
    let summary = "serve".to_owned();
    stage.happens(Event::JobStarted { call_id: CallId::new("c1"), summary: summary.clone() });
    assert_eq!(stage.presses(ctrl('d')), []);
    let text = "! 1 job in the background would be stopped: Ctrl+D or /exit again";
    assert!(stage.screen(100, 24).contains(text));
    assert_eq!(stage.types("/exit\n"), leave);
    // Another input resets the warning.
    stage.types("go on\n");
    assert_eq!(stage.types("/exit\n"), []);
    assert_eq!(stage.presses(ctrl('d')), leave);
    stage.happens(Event::JobEnded {
        call_id: CallId::new("c1"),
        summary,
        end: JobEnd::Exited,
        detail: "exit 0".to_owned(),
        exit_code: Some(0),
        bytes: 0,
        duration_ms: 1,
        findings: Vec::new(),
    });
    stage.types("go on\n");
    assert_eq!(stage.presses(ctrl('d')), leave);
}

#[test]
fn progress_of_a_checkpoint_is_shown_until_it_is_stored() {
    let mut stage = TestScreen::new();
    stage.happens(Event::CheckpointProgress { files: 500, total: 1200 });
    assert!(stage.screen(80, 24).contains("checkpoint: 500 of 1200 files are stored"));
    stage.happens(Event::CheckpointProgress { files: 1200, total: 1200 });
    assert!(!stage.screen(80, 24).contains("files are stored"));
}

#[test]
fn task_list_is_shown_once() {
    use posse_actors::event::{TodoItem, TodoStatus};
    let item = |content: &str, status| TodoItem { content: content.to_owned(), status };
    let todos = vec![
        item("read\u{1b}[2J it", TodoStatus::Completed),
        item("change it", TodoStatus::InProgress),
        item("test it", TodoStatus::Pending),
    ];
    let mut stage = TestScreen::with_task();
    stage.happens(Event::TodosUpdated { todos: todos.clone() });
    let summary = "task list: 1 of 3 tasks done; in progress: change it";
    stage.calls("c1", summary, "stored", json!({ "todos": todos }));
    let screen = stage.screen(80, 24);
    // The list itself is above the prompt only.
    let list = "change it · 0 s · Esc stops it\n  ☑ read it\n  ▸ change it\n  ☐ test it\n";
    assert!(screen.contains(list), "{screen}");
    assert_eq!(screen.matches("test it").count(), 1, "{screen}");
    stage.happens(cancelled());
    stage.app.finish_task();
    let ended = stage.screen(80, 24);
    assert!(ended.contains("  ☑ read it\n  ▸ change it\n  ☐ test it\n"), "{ended}");
    assert_eq!(ended.matches("test it").count(), 1, "{ended}");
    let mut stage = TestScreen::with_task();
    let done = vec![item("read it", TodoStatus::Completed)];
    stage.happens(Event::TodosUpdated { todos: done.clone() });
    stage.calls("c2", "task list: 1 of 1 task done", "stored", json!({ "todos": done }));
    let screen = stage.screen(80, 24);
    assert!(screen.contains("• task list: 1 of 1 task done\n  ☑ read it\n"), "{screen}");
    assert!(screen.contains("working · 0 s"), "{screen}");
}

/// Five presses of the key leave one line.
#[test]
fn only_the_last_of_several_mode_changes_is_kept() {
    use posse_actors::event::PermissionMode;
    let mut stage = TestScreen::new();
    let change = |mode| Event::PermissionModeChanged {
        mode,
        from: PermissionMode::Ask,
        restriction: None,
        changed_by: None,
    };
    for mode in [PermissionMode::Edits, PermissionMode::Auto, PermissionMode::Plan] {
        stage.happens(change(mode));
    }
    let screen = stage.screen(80, 24);
    assert!(screen.contains("\npermission mode plan: "), "{screen}");
    stage.happens(change(PermissionMode::Ask));
    stage.app.view.push_user_input("/cost".to_owned());
    let screen = stage.screen(80, 24);
    assert_eq!(screen.matches("permission mode").count(), 1, "{screen}");
    assert!(screen.contains("permission mode ask: "), "{screen}");
}

#[test]
fn stopped_reply_keeps_the_context_usage() {
    let mut stage = TestScreen::with_task();
    stage.replied("one");
    let usage = Usage::default();
    stage.happens(Event::ModelUsage { turn: 2, usage, billing: None });
    assert_eq!(stage.app.view.status.context, Some(24_500));
}

#[test]
fn background_is_no_shell_keyword_of_a_command() {
    let mut stage = TestScreen::with_task();
    stage.calls("c1", "run sleep 9; done in the background", "", json!({}));
    let theme = crate::theme::Theme::default();
    let rows = stage.app.view.take_finished(80, 100, theme, stage.now);
    let row = rows.iter().find(|row| crate::testing::text_of_row(row).contains("sleep")).unwrap();
    let last = row.spans.iter().rfind(|span| !span.content.is_empty()).unwrap();
    assert_eq!((last.content.as_ref(), last.style.fg), (" in the background", None));
}
