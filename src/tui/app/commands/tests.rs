//! Snapshots of command answers at three widths, and tests of the status bar.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::conversation::{ContentPart, MessageId};
use posse_actors::event::{ContextUse, Event, MessageKind};
use posse_frontend::commands::{COMMANDS, Command};
use posse_frontend::session_records::{Changes, FileDiff};

use crate::app::Effect;
use crate::testing::{TestScreen, question};

const ENDED: &str = "(from posse, not from the user) An agent that works for you has ended.\n\
    explore (i00ab12-7): done\nThe total is rounded twice: once in price.rs, and once in cart.rs.";

fn notice(id: &str) -> Event {
    let content = vec![ContentPart::text(ENDED)];
    Event::MessageQueued { message_id: MessageId::new(id), kind: MessageKind::Notice, content }
}

fn compacted(tokens_after: u64) -> Event {
    Event::ContextCompacted {
        bytes_before: 90_000,
        bytes_after: 20_000,
        turns_removed: 1,
        outputs_removed: 2,
        prompts_removed: 0,
        tokens_before: Some(24_500),
        tokens_after: Some(tokens_after),
        cause: Some(posse_actors::event::CompactionCause::Request),
        summarised_by: None,
        history: Vec::<Arc<_>>::new(),
    }
}

#[test]
fn notices_to_the_model_are_not_user_messages() {
    let build = |stage: &mut TestScreen| {
        stage.happens(notice("m1"));
        stage.happens(notice("m2"));
        stage.happens(Event::UserMessage {
            content: vec![ContentPart::text(ENDED)],
            message_id: Some(MessageId::new("m1")),
        });
        // A notice cannot be withdrawn by the user.
        assert_eq!(stage.types("/queue drop 1\n"), []);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn context_usage_stays_current() {
    let mut stage = TestScreen::with_task();
    stage.replied("Yes.");
    assert!(stage.screen(100, 30).contains("24.5k/48k 51%"));
    stage.happens(compacted(9000));
    let screen = stage.screen(100, 30);
    assert!(screen.contains("9k/48k 18%") && screen.contains("1 turn and 2 outputs"), "{screen}");
    // A narrow status bar keeps only the percentage.
    stage.app.view.status.model = "a-model-with-a-longer-name".to_owned();
    let narrow = stage.screen(60, 30);
    assert!(narrow.contains("18%") && !narrow.contains("9k/48k"), "{narrow}");
    stage.app.set_context_usage(&ContextUse {
        total: 39_000,
        tokens_max: 40_000,
        ..ContextUse::default()
    });
    assert!(stage.screen(100, 30).contains("39k/40k 97%"));
    stage.app.begin();
    assert!(!stage.screen(100, 30).contains('%'), "another conversation");
}

#[test]
fn permission_request_shows_its_position() {
    let mut stage = TestScreen::with_task();
    for (id, command) in [("q1", "one"), ("q2", "two"), ("q3", "three")] {
        stage.happens(question(id, command));
    }
    for nth in 1..=3 {
        let screen = stage.screen(100, 30);
        assert!(screen.contains(&format!("({nth} of 3)")), "{screen}");
        stage.later(500);
        stage.types("n");
    }
    stage.happens(question("q4", "four"));
    assert!(!stage.screen(100, 30).contains("(1 of"), "it is alone");
}

#[test]
fn answers_appear_below_their_commands() {
    let build = |stage: &mut TestScreen| {
        assert!(matches!(stage.types("/permissions\n")[..], [Effect::Report(_)]));
        let text = "questions  what no rule decides needs your approval\nrules, a deny before all \
            others\n  allow bash begins with `cargo test` (~/.config/posse/config.json:3)\n";
        stage.app.answer("permissions", false, text.to_owned());
        assert!(matches!(stage.types("/cost\n")[..], [Effect::Query(_)]));
        stage.app.answer("", false, "No model was used yet.\n".to_owned());
        stage.types("/nonsense\n");
        assert!(matches!(stage.types("/jobs stop c7\n")[..], [Effect::Query(_)]));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn long_answers_and_changes_open_in_the_viewer() {
    let mut stage = TestScreen::new();
    stage.app.answer("agents", false, "a line\n".repeat(100));
    assert!(stage.screen(60, 20).contains("q closes"));
    stage.types("q");
    assert_eq!(stage.types("/diff\n"), [Effect::ShowChanges]);
    stage.app.show_changes(Changes::default());
    assert!(stage.screen(60, 20).contains("(No file was changed in this conversation.)"));
    let remark = "(not compared: a)\n".to_owned();
    stage.app.show_changes(Changes { remark, is_net: true, ..Changes::default() });
    let screen = stage.screen(60, 20);
    assert!(screen.contains("start of this conversation.)\n(not compared: a)\n"), "{screen}");
    let diff = |file: &str| FileDiff {
        title: format!("modified {file} (+1 -1)"),
        text: format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-old\n+new {file}"),
    };
    let diffs = vec![diff("one"), diff("two")];
    let changes = |is_net| Changes { diffs: diffs.clone(), is_net, ..Changes::default() };
    stage.app.show_changes(changes(true));
    let screen = stage.screen(60, 20);
    assert!(screen.contains("1/2 modified one (+1 -1)"), "{screen}");
    stage.types("q");
    stage.app.show_changes(changes(false));
    let screen = stage.screen(60, 20);
    assert!(screen.contains("2/2 modified two") && screen.contains("1 +new two"), "{screen}");
    stage.presses(KeyEvent::from(KeyCode::Left));
    assert!(stage.screen(60, 20).contains("new one"));
}

#[test]
fn every_command_has_an_effect() {
    for entry in COMMANDS {
        let mut stage = TestScreen::new();
        let before = stage.screen(100, 60);
        let effects = stage.types(&format!("/{} \n", entry.name));
        let after = stage.screen(100, 60);
        assert!(!effects.is_empty() || before != after, "/{}", entry.name);
        assert!(!after.contains("There is no /"), "/{}: {after}", entry.name);
    }
}

#[test]
fn commands_that_open_a_list_or_the_viewer_are_not_echoed() {
    let silent = |entry: &&Command| {
        let mut stage = TestScreen::new();
        stage.types(&format!("/{} \n", entry.name));
        !stage.screen(100, 60).contains(&format!("❯ /{}\n", entry.name))
    };
    let silent: Vec<&str> = COMMANDS.iter().filter(silent).map(|entry| entry.name).collect();
    let expected = [
        "help",
        "keys",
        "resume",
        "tree",
        "model",
        "provider",
        "agent",
        "thinking",
        "permission-mode",
        "diff",
        "rewind",
        "config",
        "tools",
        "skills",
        "skill",
        "init",
        "review",
        "theme",
        "keymap",
        "doctor",
        "exit",
    ];
    assert_eq!(silent, expected);
}
