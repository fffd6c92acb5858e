//! What commands answer at three widths, and that what is shown all the time stays true.

use std::sync::Arc;

use posse_actors::context::ContextUse;
use posse_actors::conversation::{ContentPart, MessageId};
use posse_actors::event::{Event, MessageKind};

use crate::talk::asked::Changes;
use crate::talk::commands::{COMMANDS, Command};
use crate::tui::app::Effect;
use crate::tui::input::{Code, Key};
use crate::tui::testing::{Stage, question};

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
        cause: Some("request".to_owned()),
        summarised_by: None,
        history: Vec::<Arc<_>>::new(),
    }
}

#[test]
fn what_posse_tells_the_model_is_no_message_of_the_user() {
    let build = |stage: &mut Stage| {
        stage.happens(notice("m1"));
        stage.happens(notice("m2"));
        stage.happens(Event::UserMessage {
            content: vec![ContentPart::text(ENDED)],
            message_id: Some(MessageId::new("m1")),
        });
        // Nothing of it is the user's to take back.
        assert_eq!(stage.types("/queue drop 1\n"), []);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn how_full_the_context_is_stays_true() {
    let mut stage = Stage::at_work();
    stage.replied("Yes.");
    assert!(stage.screen(100, 30).contains("24.5k/48k 51%"));
    stage.happens(compacted(9000));
    let screen = stage.screen(100, 30);
    assert!(screen.contains("9k/48k 18%") && screen.contains("1 turn and 2 outputs"), "{screen}");
    // Where there is no room for all of it, the share is what is left.
    stage.app.view.model = "a-model-with-a-longer-name".to_owned();
    stage.app.status.model = stage.app.view.model.clone();
    let narrow = stage.screen(60, 30);
    assert!(narrow.contains("18%") && !narrow.contains("9k/48k"), "{narrow}");
    stage.app.measured(&ContextUse { total: 39_000, tokens_max: 40_000, ..ContextUse::default() });
    assert!(stage.screen(100, 30).contains("39k/40k 97%"));
    stage.app.begin();
    assert!(!stage.screen(100, 30).contains('%'), "another conversation");
}

#[test]
fn a_question_says_which_of_how_many_it_is() {
    let mut stage = Stage::at_work();
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
fn an_answer_stands_below_its_command() {
    let build = |stage: &mut Stage| {
        assert_eq!(stage.types("/permissions\n"), [Effect::Do(Command::Permissions)]);
        let text = "questions  you are asked about what no rule decides\nrules, a deny before all \
            others\n  allow bash begins with `cargo test` (~/.config/posse/config.json:3)\n";
        stage.app.answer("permissions", text.to_owned());
        assert_eq!(stage.types("/cost\n"), [Effect::Do(Command::Cost)]);
        stage.app.answer("", "No model was asked for anything yet.\n".to_owned());
        stage.types("/nonsense\n");
        assert_eq!(stage.types("/jobs stop c7\n"), [Effect::Do(Command::Jobs(Some("c7".into())))]);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn what_is_long_is_scrolled_and_changes_that_were_not_seen_are_shown() {
    let mut stage = Stage::new();
    stage.app.answer("agents", "a line\n".repeat(100));
    assert!(stage.screen(60, 20).contains("q closes"));
    stage.types("q");
    assert_eq!(stage.types("/diff\n"), [Effect::Do(Command::Diff)]);
    stage.app.show_changes(Changes::default());
    assert!(stage.screen(60, 20).contains("(No file was changed in this conversation.)"));
    let diff = |file: &str| format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-old\n+new {file}");
    let diffs = vec![diff("one"), diff("two")];
    stage.app.show_changes(Changes { diffs, remark: String::new() });
    let screen = stage.screen(60, 20);
    assert!(screen.contains("2/2 change two") && screen.contains("1 +new two"), "{screen}");
    stage.presses(Key::plain(Code::Left));
    assert!(stage.screen(60, 20).contains("new one"));
}

#[test]
fn every_command_of_the_table_does_something() {
    for entry in COMMANDS {
        let mut stage = Stage::new();
        let before = stage.screen(100, 60);
        let effects = stage.types(&format!("/{} \n", entry.name));
        let after = stage.screen(100, 60);
        assert!(!effects.is_empty() || before != after, "/{}", entry.name);
        assert!(!after.contains("There is no /"), "/{}: {after}", entry.name);
    }
}
