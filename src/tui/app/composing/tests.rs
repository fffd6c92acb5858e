//! What is written, completed, looked for, queued and taken back.

use posse_actors::conversation::{CallId, ContentPart, MessageId};
use posse_actors::event::{Event, MessageKind};

use crate::talk::commands::COMMANDS;
use crate::tui::app::Effect;
use crate::tui::input::{Code, Key};
use crate::tui::testing::{Stage, command_ended};

fn queued(id: &str, kind: MessageKind, text: &str) -> Event {
    let content = vec![ContentPart::text(text)];
    Event::MessageQueued { message_id: MessageId::new(id), kind, content }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const TAB: Key = Key::plain(Code::Tab);
const UP: Key = Key::plain(Code::Up);
const DOWN: Key = Key::plain(Code::Down);
const ENTER: Key = Key::plain(Code::Enter);
const ESC: Key = Key::plain(Code::Esc);

#[test]
fn the_palette() {
    let build = |stage: &mut Stage| {
        stage.types("/c");
        stage.presses(DOWN);
        stage.presses(DOWN);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn files_that_could_be_meant() {
    let build = |stage: &mut Stage| {
        assert!(stage.types("look at @src").contains(&Effect::Find("src".to_owned())));
        let found = ["src/", "src/price.rs", "a name with\u{1b}[31m spaces", "src/c", "src/d"];
        let more = ["src/e", "src/f", "src/g"];
        stage.app.found("src", &names(&[&found[..], &more[..]].concat()));
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn what_was_written_before_is_looked_for() {
    let build = |stage: &mut Stage| {
        for line in ["fix the test", "read the guide\nand say what is missing", "fix the build"] {
            stage.types(&line.replace('\n', ""));
            stage.app.composer.set(line);
            stage.presses(ENTER);
        }
        stage.types("fix");
        stage.presses(Key::ctrl('r'));
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn messages_that_can_be_taken_back() {
    let build = |stage: &mut Stage| {
        stage.happens(queued("m1", MessageKind::Steer, "and the tests\nof it"));
        stage.happens(queued("m2", MessageKind::Notice, "a child has ended"));
        stage.happens(queued("m3", MessageKind::FollowUp, "then the guide"));
        stage.types("/queue\n");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn what_the_user_ran() {
    let build = |stage: &mut Stage| {
        assert_eq!(stage.types("!ls -l\n"), [Effect::Run("ls -l".to_owned())]);
        stage.happens(Event::UserCall {
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
            message_id: MessageId::new("m1"),
            said: "I ran this.".to_owned(),
        });
        let lines: Vec<String> = (0..9).map(|nth| format!("file-{nth}\n")).collect();
        stage.calls("c1", "run ls -l", &lines.concat(), command_ended(0));
        stage.happens(queued("m1", MessageKind::Aside, "I ran this."));
        // The model is told with the next prompt; the user has seen it.
        stage.happens(Event::UserMessage {
            content: vec![ContentPart::text("I ran this. file-0")],
            message_id: Some(MessageId::new("m1")),
        });
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn tab_completes_and_enter_takes_what_was_chosen() {
    let mut stage = Stage::new();
    stage.types("/mod");
    stage.presses(TAB);
    assert_eq!(stage.app.composer.shown(), "/model ");
    stage.presses(Key::ctrl('u'));
    // Nothing was chosen: what is written is sent as it is.
    stage.types("/mod");
    assert_eq!(stage.presses(ENTER), []);
    assert!(stage.screen(80, 24).contains("There is no /mod"));
    stage.types("/he");
    stage.presses(DOWN);
    stage.presses(ENTER);
    assert!(stage.screen(80, 60).contains("Everything else is a task"));
    assert_eq!(stage.app.composer.shown(), "");
    let mut stage = Stage::new();
    // Up from the first goes round, and Escape closes until something else is written.
    stage.types("/");
    stage.presses(UP);
    let last = COMMANDS.last().unwrap();
    assert!(stage.screen(80, 24).contains(&format!("▸ /{}", last.name)));
    stage.presses(ESC);
    assert!(!stage.screen(80, 24).contains("▸ /"));
    stage.types("mo");
    assert!(!stage.screen(80, 24).contains("/model [NAME]"), "it stays closed");
    stage.presses(Key::ctrl('u'));
    stage.types("/mo");
    assert!(stage.screen(80, 24).contains("/model [NAME]"));
}

#[test]
fn files_are_taken_only_for_what_is_still_written() {
    let mut stage = Stage::new();
    stage.types("see @pr");
    stage.app.found("p", &names(&["late.rs"]));
    assert!(!stage.screen(80, 24).contains("late.rs"));
    stage.app.found("pr", &names(&["src/price.rs"]));
    stage.types(":1");
    stage.app.found("pr", &names(&["src/price.rs"]));
    stage.types("0-20");
    stage.app.found("pr", &names(&["src/price.rs"]));
    stage.presses(TAB);
    assert_eq!(stage.app.composer.shown(), "see @src/price.rs:10-20 ");
    assert_eq!(stage.types("ok\n").len(), 1);
    // What was written before is looked at with the arrows, whatever it ends with.
    stage.types("see @x\n");
    stage.presses(UP);
    stage.app.found("x", &names(&["x.rs"]));
    stage.presses(UP);
    assert_eq!(stage.app.composer.shown(), "see @src/price.rs:10-20 ok");
}

#[test]
fn a_message_that_waits_comes_back_before_what_is_written() {
    let mut stage = Stage::at_work();
    assert_eq!(stage.presses(Key::alt(Code::Up)), []);
    stage.happens(queued("m1", MessageKind::Steer, "one"));
    stage.happens(queued("m2", MessageKind::FollowUp, "two"));
    stage.happens(queued("m3", MessageKind::Notice, "not yours"));
    let back = |id: &str, back| Effect::Withdraw { id: MessageId::new(id), back };
    assert_eq!(stage.presses(Key::alt(Code::Up)), [back("m2", true)]);
    stage.happens(Event::MessageWithdrawn { message_id: MessageId::new("m2") });
    stage.types("draft");
    stage.app.composer.bring_back("two");
    assert_eq!(stage.app.composer.shown(), "two\ndraft");
    stage.presses(Key::ctrl('u'));
    stage.app.composer.take();
    stage.types("/queue\n");
    assert_eq!(stage.presses(Key::plain(Code::Delete)), [back("m1", false)]);
    stage.types("x");
    assert_eq!(stage.app.composer.shown(), "x", "the list is closed with its last entry");
}

#[test]
fn everything_is_stopped_by_two_keys_or_a_word() {
    let mut stage = Stage::at_work();
    assert_eq!(stage.presses(Key::ctrl('x')), []);
    assert_eq!(stage.presses(Key::ctrl('k')), [Effect::InterruptAll]);
    assert_eq!(stage.types("/stop all\n"), [Effect::InterruptAll]);
    assert_eq!(stage.presses(Key::ctrl('x')), []);
    assert_eq!(stage.presses(ESC), [], "no two that belong together");
    assert_eq!(stage.presses(ESC), [Effect::Interrupt]);
}

#[test]
fn a_command_of_the_shell_waits_until_nothing_runs() {
    let mut stage = Stage::at_work();
    assert_eq!(stage.types("!ls\n"), []);
    assert!(stage.screen(80, 24).contains("has to wait until nothing runs"));
}

#[test]
fn an_image_is_looked_at_and_anything_else_is_text() {
    use crate::tui::input::Input;
    let mut stage = Stage::new();
    let paste = |stage: &mut Stage, text: &str| {
        let now = stage.now;
        stage.app.input(Input::Paste(text.to_owned()), now)
    };
    let attach = |text: &str| vec![Effect::Attach(text.to_owned())];
    assert_eq!(paste(&mut stage, "/tmp/shot.png"), attach("/tmp/shot.png"));
    assert_eq!(paste(&mut stage, "see shot.png?"), []);
    stage.types(" @sh");
    stage.app.found("sh", &names(&["docs/shot.png"]));
    assert_eq!(stage.presses(TAB), attach("docs/shot.png"));
    assert_eq!(stage.app.composer.shown(), "see shot.png? ");
    assert_eq!(stage.presses(Key::ctrl('g')), [Effect::Edit]);
    stage.presses(Key::ctrl('x'));
    assert_eq!(stage.presses(Key::ctrl('e')), [Effect::Edit]);
}

#[test]
fn conversations_from_before() {
    let build = |stage: &mut Stage| {
        let line = |id: &str, label: &str| (id.to_owned(), label.to_owned());
        stage.app.choose_session(vec![
            line("20261122-101500-abcdef", "this one"),
            line("s1", "2 h ago  done  3 turns $0.02  fix the test"),
            line("s2", "3 d ago  parked  why does the total differ from the sum of its parts?"),
        ]);
        stage.types("tot");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn an_answer_that_is_too_long_is_not_copied() {
    let mut stage = Stage::at_work();
    stage.replied(&"x".repeat(80_000));
    stage.ends();
    assert_eq!(stage.types("/copy\n"), []);
    assert!(stage.screen(80, 24).contains("80000 bytes"));
    stage.replied("short");
    assert_eq!(stage.types("/copy\n"), [Effect::Copy("short".to_owned())]);
}

#[test]
fn a_screen_of_its_own() {
    let build = |stage: &mut Stage| {
        stage.app.past = Some(crate::tui::past::Past::default());
        for nth in 0..30 {
            stage.app.view.note(crate::tui::theme::Role::Text, format!("note {nth}"));
        }
        stage.screen(60, 30);
        stage.presses(Key::plain(Code::PageUp));
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}
