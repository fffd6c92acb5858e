//! Tests of completion, history, queued messages and shell commands in the prompt.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_actors::conversation::{CallId, ContentPart, MessageId};
use posse_actors::event::{Event, MessageKind};
use posse_frontend::Selectable;
use posse_frontend::commands::{COMMANDS, ShellCommand};

use crate::app::Effect;
use crate::input::{InputEvent, ctrl};
use crate::testing::{TestScreen, command_ended};

fn queued(id: &str, kind: MessageKind, text: &str) -> Event {
    let content = vec![ContentPart::text(text)];
    Event::MessageQueued { message_id: MessageId::new(id), kind, content }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const TAB: KeyEvent = KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE);
const UP: KeyEvent = KeyEvent::new(KeyCode::Up, KeyModifiers::NONE);
const DOWN: KeyEvent = KeyEvent::new(KeyCode::Down, KeyModifiers::NONE);
const ENTER: KeyEvent = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
const ESC: KeyEvent = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);

#[test]
fn command_completion() {
    let build = |stage: &mut TestScreen| {
        stage.types("/c");
        stage.presses(DOWN);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn file_completion() {
    let build = |stage: &mut TestScreen| {
        assert!(stage.types("look at @src").contains(&Effect::Find("src".to_owned())));
        let found = ["src/", "src/price.rs", "a name with\u{1b}[31m spaces", "src/c", "src/d"];
        let more = ["src/e", "src/f", "src/g"];
        stage.app.show_found_files("src", &names(&[&found[..], &more[..]].concat()));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn history_search() {
    let build = |stage: &mut TestScreen| {
        for line in ["fix the test", "read the guide\nand say what is missing", "fix the build"] {
            stage.types(&line.replace('\n', ""));
            stage.app.composer.set(line);
            stage.presses(ENTER);
        }
        stage.types("fix");
        stage.presses(ctrl('r'));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn queue_selector() {
    let build = |stage: &mut TestScreen| {
        stage.happens(queued("m1", MessageKind::Steer, "and the tests\nof it"));
        stage.happens(queued("m2", MessageKind::Notice, "a child has ended"));
        stage.happens(queued("m3", MessageKind::FollowUp, "then the guide"));
        stage.types("/queue\n");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn shell_command_of_the_user() {
    let build = |stage: &mut TestScreen| {
        assert_eq!(
            stage.types("!ls -l\n"),
            [Effect::Run(ShellCommand { line: "ls -l".to_owned(), is_private: false })]
        );
        stage.happens(Event::UserCall {
            call_id: CallId::new("c1"),
            tool: "bash".to_owned(),
            message_id: MessageId::new("m1"),
            said: "I ran this.".to_owned(),
        });
        let lines: Vec<String> = (0..9).map(|nth| format!("file-{nth}\n")).collect();
        stage.calls("c1", "run ls -l", &lines.concat(), command_ended(0));
        stage.happens(queued("m1", MessageKind::Aside, "I ran this."));
        // The model receives it with the next prompt; the user has seen it.
        stage.happens(Event::UserMessage {
            content: vec![ContentPart::text("I ran this. file-0")],
            message_id: Some(MessageId::new("m1")),
        });
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn tab_completes_and_enter_accepts_the_selection() {
    let mut stage = TestScreen::new();
    stage.types("/mod");
    stage.presses(TAB);
    assert_eq!(stage.app.composer.shown(), "/model ");
    stage.presses(ctrl('u'));
    // The first command whose name begins with the text is selected.
    stage.types("/mod");
    assert!(stage.screen(80, 24).contains("▸ /model [NAME]"));
    assert_eq!(stage.presses(ENTER), [Effect::Choose(Selectable::Model)]);
    // A command with the letters elsewhere in its name is not: the text is submitted as it is.
    stage.types("/ode");
    assert!(stage.screen(80, 24).contains("⇥ /model [NAME]"));
    assert_eq!(stage.presses(ENTER), []);
    assert!(stage.screen(80, 24).contains("There is no /ode"));
    // The first item is marked, so the first Down goes to the second one.
    stage.types("/he");
    stage.presses(DOWN);
    stage.presses(UP);
    stage.presses(ENTER);
    assert!(stage.screen(80, 60).contains("Help (type to search)"));
    stage.presses(KeyEvent::from(KeyCode::Esc));
    assert_eq!(stage.app.composer.shown(), "");
    let mut stage = TestScreen::new();
    // Up from the first item wraps around, and Escape closes the list until the query changes.
    stage.types("/");
    let last = COMMANDS.last().unwrap();
    assert!(stage.screen(80, 24).contains("▸ /model") && COMMANDS[0].name != "model");
    stage.presses(UP);
    assert!(stage.screen(80, 24).contains(&format!("▸ /{}", last.name)));
    stage.presses(ESC);
    assert!(!stage.screen(80, 24).contains("▸ /"));
    stage.types("mo");
    assert!(!stage.screen(80, 24).contains("/model [NAME]"), "it stays closed");
    stage.presses(ctrl('u'));
    stage.types("/mo");
    assert!(stage.screen(80, 24).contains("/model [NAME]"));
}

#[test]
fn file_results_apply_only_to_the_current_query() {
    let mut stage = TestScreen::new();
    stage.types("see @pr");
    stage.app.show_found_files("p", &names(&["late.rs"]));
    assert!(!stage.screen(80, 24).contains("late.rs"));
    stage.app.show_found_files("pr", &names(&["src/price.rs"]));
    stage.types(":1");
    stage.app.show_found_files("pr", &names(&["src/price.rs"]));
    stage.types("0-20");
    stage.app.show_found_files("pr", &names(&["src/price.rs"]));
    stage.presses(TAB);
    assert_eq!(stage.app.composer.shown(), "see @src/price.rs:10-20 ");
    assert_eq!(stage.types("ok\n").len(), 1);
    // Recalled history lines are not completed.
    stage.types("see @x\n");
    stage.presses(UP);
    stage.app.show_found_files("x", &names(&["x.rs"]));
    stage.presses(UP);
    assert_eq!(stage.app.composer.shown(), "see @src/price.rs:10-20 ok");
}

#[test]
fn queued_message_returns_before_the_current_text() {
    let mut stage = TestScreen::with_task();
    assert_eq!(stage.presses(KeyEvent::new(KeyCode::Up, KeyModifiers::ALT)), []);
    stage.happens(queued("m1", MessageKind::Steer, "one"));
    stage.happens(queued("m2", MessageKind::FollowUp, "two"));
    stage.happens(queued("m3", MessageKind::Notice, "not yours"));
    let back = |id: &str, back| Effect::Withdraw { id: MessageId::new(id), back };
    assert_eq!(stage.presses(KeyEvent::new(KeyCode::Up, KeyModifiers::ALT)), [back("m2", true)]);
    stage.happens(Event::MessageWithdrawn { message_id: MessageId::new("m2") });
    stage.types("draft");
    stage.app.composer.restore_text("two");
    assert_eq!(stage.app.composer.shown(), "two\ndraft");
    stage.presses(ctrl('u'));
    stage.app.composer.take();
    stage.types("/queue\n");
    assert_eq!(stage.presses(KeyEvent::from(KeyCode::Delete)), [back("m1", false)]);
    stage.types("x");
    assert_eq!(stage.app.composer.shown(), "x", "the list is closed with its last entry");
}

#[test]
fn everything_is_stopped_by_a_chord_or_a_command() {
    let mut stage = TestScreen::with_task();
    assert_eq!(stage.presses(ctrl('x')), []);
    assert_eq!(stage.presses(ctrl('k')), [Effect::InterruptAll]);
    assert_eq!(stage.types("/stop all\n"), [Effect::InterruptAll]);
    assert_eq!(stage.presses(ctrl('x')), []);
    assert_eq!(stage.presses(ESC), [], "no two that belong together");
    assert_eq!(stage.presses(ESC), [Effect::Interrupt]);
}

#[test]
fn shell_command_is_refused_while_a_task_runs() {
    let mut stage = TestScreen::with_task();
    assert_eq!(stage.types("!ls\n"), []);
    assert!(stage.screen(80, 24).contains("(a command is not available while a task runs;"));
    assert_eq!(stage.app.composer.shown(), "!ls", "it is kept");
}

#[test]
fn image_paste_is_attached_and_other_pastes_are_text() {
    use crate::input::{InputEvent, ctrl};
    let mut stage = TestScreen::new();
    let paste = |stage: &mut TestScreen, text: &str| {
        let now = stage.now;
        stage.app.input(InputEvent::Paste(text.to_owned()), now)
    };
    let attach = |text: &str| vec![Effect::Attach(text.to_owned())];
    assert_eq!(paste(&mut stage, "/tmp/shot.png"), attach("/tmp/shot.png"));
    assert_eq!(paste(&mut stage, "see shot.png?"), []);
    stage.types(" @sh");
    stage.app.show_found_files("sh", &names(&["docs/shot.png"]));
    assert_eq!(stage.presses(TAB), attach("docs/shot.png"));
    assert_eq!(stage.app.composer.shown(), "see shot.png? ");
    assert_eq!(stage.presses(ctrl('g')), [Effect::Edit]);
    stage.presses(ctrl('x'));
    assert_eq!(stage.presses(ctrl('e')), [Effect::Edit]);
}

#[test]
fn session_selector() {
    let build = |stage: &mut TestScreen| {
        let line = |id: &str, label: &str| (id.to_owned(), label.to_owned());
        stage.app.choose_session(vec![
            line("20261122-101500-abcdef", "this one"),
            line("s1", "2 h ago  done  3 turns $0.02  fix the test"),
            line("s2", "3 d ago  parked  why does the total differ from the sum of its parts?"),
        ]);
        stage.types("tot");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn too_long_answer_is_not_copied() {
    let mut stage = TestScreen::with_task();
    stage.replied(&"x".repeat(80_000));
    stage.ends();
    assert_eq!(stage.types("/copy\n"), []);
    assert!(stage.screen(80, 24).contains("80000 bytes"));
    stage.replied("short");
    assert_eq!(stage.types("/copy\n"), [Effect::Copy("short".to_owned())]);
}

#[test]
fn alternate_screen() {
    let build = |stage: &mut TestScreen| {
        stage.app.scrollback = Some(crate::scrollback::Scrollback::default());
        for nth in 0..30 {
            stage.app.view.note(crate::theme::Role::Text, format!("note {nth}"));
        }
        stage.screen(60, 30);
        stage.presses(KeyEvent::from(KeyCode::PageUp));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

fn pastes(stage: &mut TestScreen, text: &str) -> Vec<Effect> {
    stage.app.input(InputEvent::Paste(text.to_owned()), stage.now)
}

#[test]
fn dropped_files_are_attached_or_named() {
    let mut stage = TestScreen::new();
    let effects = pastes(&mut stage, "'/a/my shot.png' '/a/notes of mine.txt' /a/b.rs");
    assert_eq!(effects, [Effect::Attach("'/a/my shot.png'".to_owned())]);
    assert_eq!(stage.app.composer.shown(), "@\"/a/notes of mine.txt\" @/a/b.rs ");
}

#[test]
fn mark_of_a_paste_opens_its_text() {
    let mut stage = TestScreen::new();
    let text: Vec<String> = (1..30).map(|nth| format!("row {nth}")).collect();
    pastes(&mut stage, &text.join("\n"));
    stage.types(" and more");
    stage.presses(ctrl('o'));
    assert!(stage.screen(80, 24).contains("there is no output yet"), "the cursor is elsewhere");
    stage.presses(ctrl('a'));
    stage.presses(ctrl('o'));
    assert!(stage.screen(80, 24).contains("row 7"), "{}", stage.screen(80, 24));
    assert_eq!(stage.presses(ctrl('v')), [], "the viewer is open");
    stage.presses(KeyEvent::from(KeyCode::Esc));
    assert_eq!(stage.presses(ctrl('v')), [Effect::PasteImage]);
}

#[test]
fn running_jobs_are_listed_shown_and_stopped() {
    let mut stage = TestScreen::new();
    let id = CallId::new("call-1");
    let summary = "run npm start".to_owned();
    stage.happens(Event::JobStarted { call_id: id.clone(), summary });
    stage.types("/jobs\n");
    let screen = stage.screen(80, 24);
    assert!(screen.contains("▸ call-1  run npm start"), "{screen}");
    let shown = stage.presses(ENTER);
    assert_eq!(shown, [Effect::ViewJob("call-1".to_owned())]);
    stage.types("/jobs\n");
    let delete = KeyEvent::from(KeyCode::Delete);
    assert_eq!(stage.presses(delete), [Effect::StopJob(id)]);
    stage.app.show_job("call-1", String::new());
    assert!(stage.screen(80, 24).contains("(no output yet)"));
}

#[test]
fn theme_is_picked_from_a_list_and_shown_meanwhile() {
    let mut stage = TestScreen::new();
    assert_eq!(stage.types("/theme\n"), []);
    assert!(stage.screen(80, 24).contains("▸ none ✓"));
    stage.presses(DOWN);
    assert_eq!(stage.app.theme.name(), "auto", "the one under the cursor");
    stage.presses(ESC);
    assert_eq!(stage.app.theme.name(), "none");
    stage.types("/theme\nlight\n");
    assert_eq!(stage.app.theme.name(), "light");
    assert!(stage.screen(80, 24).contains("❯ /theme light\n\ntheme: light\n"));
}

#[test]
fn permission_mode_is_picked_from_a_list_or_completed() {
    let mut stage = TestScreen::new();
    assert_eq!(stage.types("/permission-mode\n"), []);
    let screen = stage.screen(100, 24);
    assert!(screen.contains("▸ plan    reading and") || screen.contains("▸ plan "), "{screen}");
    stage.types("edi");
    let effects = stage.presses(ENTER);
    assert!(matches!(effects[..], [Effect::Query(_)]), "{effects:?}");
    stage.types("/permission-mode au");
    assert!(stage.screen(100, 24).contains("⇥ auto"));
    stage.presses(TAB);
    assert_eq!(stage.app.composer.shown(), "/permission-mode auto");
    assert!(!stage.screen(100, 24).contains("⇥ auto"), "it is whole");
    stage.presses(ctrl('u'));
    stage.types("/theme ");
    stage.presses(DOWN);
    stage.presses(ENTER);
    assert_eq!(stage.app.theme.name(), "dark");
}

#[test]
fn escape_in_the_second_step_of_a_rewind_returns_to_the_first() {
    let mut stage = TestScreen::new();
    let points = vec![(2, "two".to_owned()), (1, "one".to_owned())];
    stage.app.choose_rewind_point(points);
    stage.presses(DOWN);
    stage.presses(ENTER);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("before prompt 1") && screen.contains("Esc goes back"), "{screen}");
    stage.presses(ESC);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("▸   1  one") && screen.contains("Esc closes"), "{screen}");
    stage.presses(ESC);
    assert!(!stage.screen(80, 24).contains("Esc closes"));
}
