//! Snapshots of every screen at three widths, and the effects of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use posse_actors::conversation::{CallId, ContentPart, MessageId, QuestionId};
use posse_actors::event::{
    Event, MessageKind, PermissionMode, PermissionTarget, Scope, TrialOffer,
};
use posse_actors::permission_coordinator::HumanDecision;
use posse_base::failure::{Exit, Failure};
use posse_frontend::{ListedValue, Selectable};
use proptest::prelude::*;
use serde_json::json;

use crate::app::Effect;
use crate::input::{InputEvent, ctrl};
use crate::testing::{TestScreen, command_ended, origin, question};
use crate::theme::Role;

const ANSWER: &str = "## The cause\n\nThe parts are **rounded** one by one, in `price.rs`:\n\n\
    ```rust\nlet total: f64 = parts.iter().map(|part| part.round()).sum();\n```\n\n\
    - round the sum\n- keep the parts as they are\n\nShall I chan";

const DIFF: &str = "--- a/price.rs\n+++ b/price.rs\n@@ -11,3 +11,3 @@\n fn total(parts: &[f64]) -> f64 {\n\
    -    parts.iter().map(|part| part.round()).sum()\n+    parts.iter().sum::<f64>().round()\n }\n";

fn waiting(cause: &str) -> Event {
    Event::ProviderWaiting {
        provider: "anthropic".to_owned(),
        wait_ms: 12_400,
        patience_left_ms: 1_500_000,
        class: "overloaded".to_owned(),
        cause: cause.to_owned(),
    }
}

#[test]
fn a_conversation_with_streaming_text() {
    let build = |stage: &mut TestScreen| {
        stage.calls("c1", "read src/price.rs", "…", json!({}));
        stage.calls("c2", "search src for total", "…", json!({}));
        stage.asks_model();
        stage.says(ANSWER);
        stage.later(2300);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn calls_that_run_end_and_fail() {
    let build = |stage: &mut TestScreen| {
        let output = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\
            \u{1b}[31mred\u{1b}[0m\u{7}\nfailures: 1\n(exit 101, 42 ms)";
        stage.calls("c1", "run cargo test", output, command_ended(101));
        stage.calls("c2", "change src/price.rs (+1 -1)", "changed", json!({"diff": DIFF}));
        stage.starts("c3", "run a command that is long enough to be broken where the window ends, wherever that is");
        stage.happens(Event::ToolFailed {
            call_id: CallId::new("c3"),
            name: "bash".to_owned(),
            content: vec![ContentPart::text("Denied: the user said no")],
            class: posse_actors::event::ToolFailureClass::Denied,
            metadata: json!(null),
            duration_ms: 0,
        });
        stage.starts("c4", "run ./build.sh");
        let printed = "one\ntwo\nthree\nfour\nfive\nsix\r6 of 7\n";
        let call_id = CallId::new("c4");
        stage.happens(Event::ToolOutputDelta { call_id, text: printed.to_owned() });
        stage.later(3100);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn permission_request_with_a_hostile_command() {
    let build = |stage: &mut TestScreen| {
        stage.says("I will clean up first.");
        stage.replied("I will clean up first.");
        stage.happens(question("q1", "rm -rf build\u{202e}\nprintf '\u{1b}[2J'   "));
        stage.happens(question("q2", "ls"));
        stage.screen(100, 30);
        stage.later(400);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn permission_request_for_a_change() {
    let build = |stage: &mut TestScreen| {
        stage.happens(question("q1", DIFF));
        stage.types("also the te");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn unavailable_provider() {
    let build = |stage: &mut TestScreen| {
        stage.happens(Event::ProviderRetry {
            provider: "anthropic".to_owned(),
            attempt: 1,
            cause: "503 Service Unavailable".to_owned(),
            class: "overloaded".to_owned(),
            wait_ms: 900,
        });
        stage.happens(Event::ProviderFailover {
            from: "anthropic".to_owned(),
            from_model: "large-5".to_owned(),
            to: "local".to_owned(),
            to_model: "small-1".to_owned(),
            class: "overloaded".to_owned(),
            cause: "503".to_owned(),
            skipped: vec!["openai: no key".to_owned()],
        });
        stage.happens(waiting("503 Service Unavailable: overloaded"));
        stage.later(4000);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn parked_session() {
    let build = |stage: &mut TestScreen| {
        stage.happens(Event::SessionParked {
            cause: "anthropic was away for 30 min".to_owned(),
            class: Some("overloaded".to_owned()),
            next_try_ms: None,
        });
        stage.ends();
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn parked_state_ends_when_the_run_continues() {
    let waits = |answers: bool| {
        let mut stage = TestScreen::with_task();
        stage.happens(Event::SessionParked {
            cause: "anthropic was away for 30 min".to_owned(),
            class: Some("overloaded".to_owned()),
            next_try_ms: None,
        });
        if answers {
            stage.happens(Event::TextDelta { text: "Here I am again.".to_owned() });
        }
        stage.ends();
        stage.screen(80, 24).contains("⏸ parked")
    };
    assert!(waits(false));
    assert!(!waits(true));
}

#[test]
fn error_message() {
    let build = |stage: &mut TestScreen| {
        stage.ends();
        let what = "the provider does not accept the credentials";
        let failure = Failure::new(
            posse_base::failure::ErrorCode::CredentialsRejected,
            Exit::Configuration,
            what,
        )
        .because("401 Unauthorized: invalid x-api-key")
        .fix(
            "check the key of this provider; `posse config show --origin` says where it comes from",
        );
        stage.app.view.failures(&[failure]);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn queued_messages() {
    let build = |stage: &mut TestScreen| {
        for (nth, kind) in [MessageKind::Steer, MessageKind::FollowUp].into_iter().enumerate() {
            stage.happens(Event::MessageQueued {
                message_id: MessageId::new(format!("m{nth}")),
                kind,
                content: vec![ContentPart::text("and the tests\nof it")],
            });
        }
        stage.types("what about");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn running_subagents() {
    let build = |stage: &mut TestScreen| {
        let explore = origin("i2", Some("i1"), "build/explore");
        let review = origin("i3", Some("i2"), "build/explore/reviewer");
        for (at, path) in [(&explore, "read src/price.rs"), (&review, "run cargo test")] {
            stage.happens_in(
                at,
                Event::ToolStarted {
                    call_id: CallId::new("x"),
                    name: "tool".to_owned(),
                    summary: path.to_owned(),
                    digest: String::new(),
                    effect: false,
                    coerced: Vec::new(),
                },
            );
        }
        stage.later(7000);
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn help() {
    let build = |stage: &mut TestScreen| {
        stage.types("/help\n");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn selector() {
    let build = |stage: &mut TestScreen| {
        let listed = |name: &str| ListedValue { name: name.to_owned(), facts: Vec::new() };
        let names = ["anthropic", "openai", "local"].map(listed).to_vec();
        stage.app.choose(Selectable::Provider, names);
        stage.types("o");
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn the_viewer() {
    let build = |stage: &mut TestScreen| {
        let lines: Vec<String> = (1..=50).map(|nth| format!("line {nth}")).collect();
        stage.calls("c1", "run seq 50", &lines.join("\n"), command_ended(0));
        stage.presses(ctrl('o'));
        stage.screen(60, 30);
        stage.presses(KeyEvent::from(KeyCode::PageDown));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::with_task));
}

#[test]
fn a_prompt_of_several_lines() {
    let build = |stage: &mut TestScreen| {
        stage.app.input(InputEvent::Paste("fn main() {\n    body();\n}".to_owned()), stage.now);
        stage.presses(ctrl('j'));
        stage.types(&"word ".repeat(20));
        stage.app.input(InputEvent::Paste("x\n".repeat(40)), stage.now);
        stage.presses(KeyEvent::from(KeyCode::Left));
    };
    insta::assert_snapshot!(TestScreen::screens(build, TestScreen::new));
}

#[test]
fn letters_are_text_however_slowly_they_are_typed() {
    for word in ["make", "please", "add"] {
        let mut stage = TestScreen::new();
        for letter in word.chars() {
            assert_eq!(stage.types(&letter.to_string()), []);
            stage.later(2000);
        }
        assert_eq!(stage.app.composer.shown(), word);
        assert!(stage.screen(80, 24).contains(&format!("❯ {word}")));
    }
}

#[test]
fn chords_open_the_selectors_only_while_no_task_runs() {
    let table = [('m', Selectable::Model), ('p', Selectable::Provider), ('a', Selectable::Agent)];
    for (letter, what) in table {
        let mut stage = TestScreen::new();
        stage.types("draft");
        assert_eq!(stage.presses(ctrl('x')), []);
        assert_eq!(stage.types(&letter.to_string()), [Effect::Choose(what)]);
        let alt = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::ALT);
        assert_eq!(stage.presses(alt), [Effect::Choose(what)]);
        assert_eq!(stage.app.composer.shown(), "draft");
        let mut stage = TestScreen::with_task();
        assert_eq!(stage.presses(alt), []);
        assert!(
            stage.screen(80, 24).contains(&format!("(/{} is not available while", what.word()))
        );
    }
}

#[test]
fn selector_takes_no_name_that_is_not_listed() {
    let mut stage = TestScreen::new();
    let listed = ListedValue { name: "large-5".to_owned(), facts: Vec::new() };
    stage.app.choose(Selectable::Model, vec![listed]);
    assert_eq!(stage.types("akethetests\n"), []);
    assert!(stage.screen(80, 24).contains("nothing matches; /model NAME uses one"));
    stage.presses(KeyEvent::from(KeyCode::Esc));
    assert!(stage.app.composer.is_empty());
}

#[test]
fn enter_sends_now_or_at_the_next_step() {
    let mut stage = TestScreen::new();
    let say = |text: &str, kind| vec![Effect::Say(text.to_owned(), kind)];
    assert_eq!(stage.types("fix it\n"), say("fix it", MessageKind::Steer));
    assert_eq!(stage.types("/hlep\n"), []);
    assert_eq!(stage.types("two\\\nlines\n"), say("two\nlines", MessageKind::Steer));
    let mut stage = TestScreen::with_task();
    stage.types("then");
    assert_eq!(
        stage.presses(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT)),
        say("then", MessageKind::FollowUp)
    );
    assert_eq!(stage.types("/new\n"), [], "not while something runs");
    assert!(stage.screen(80, 24).contains("(/new is not available while a task runs;"));
    assert_eq!(stage.app.composer.shown(), "/new", "it is kept");
    stage.presses(ctrl('u'));
    assert_eq!(stage.types("/stop\n"), [Effect::Interrupt]);
}

#[test]
fn ctrl_c_cancels_one_thing_at_a_time() {
    let mut stage = TestScreen::new();
    let press = |stage: &mut TestScreen| stage.presses(ctrl('c'));
    stage.types("draft");
    assert_eq!(press(&mut stage), []);
    assert!(stage.app.composer.is_empty());
    assert_eq!(press(&mut stage), [], "clearing was no first press");
    stage.later(2000);
    assert_eq!(press(&mut stage), [], "too late to be the second");
    stage.later(1999);
    assert_eq!(press(&mut stage), [Effect::Leave(Exit::Interrupt)]);
    let mut stage = TestScreen::with_task();
    assert_eq!(press(&mut stage), [Effect::Interrupt]);
    assert_eq!(press(&mut stage), [Effect::Leave(Exit::Interrupt)]);
    for text in ["x", "\u{1b}[200~x\u{1b}[201~"] {
        let mut stage = TestScreen::new();
        assert_eq!(press(&mut stage), []);
        stage.types(text);
        assert_eq!(press(&mut stage), [], "new text is cleared first");
        assert!(stage.app.composer.is_empty());
    }
    let mut stage = TestScreen::with_task();
    assert_eq!(stage.presses(KeyEvent::from(KeyCode::Esc)), [Effect::Interrupt]);
    assert_eq!(TestScreen::new().presses(KeyEvent::from(KeyCode::Esc)), []);
    assert_eq!(TestScreen::new().presses(ctrl('d')), [Effect::Leave(Exit::Done)]);
}

fn asked() -> TestScreen {
    let mut stage = TestScreen::with_task();
    stage.happens(question("q1", "touch a"));
    stage.screen(100, 30);
    stage
}

#[test]
fn no_key_within_the_quiet_period_answers() {
    for after in 0..400 {
        for key in ["y", "n", "a", "s"] {
            let mut stage = asked();
            stage.later(after);
            assert_eq!(stage.types(key), [], "{key} after {after} ms");
            assert_eq!(stage.app.composer.shown(), key, "what is written is kept");
        }
    }
    let mut stage = asked();
    stage.later(400);
    let once = HumanDecision::Allow(Scope::Once);
    assert_eq!(stage.types("y"), [Effect::Answer(QuestionId::new("q1"), once)]);
}

#[test]
fn typing_text_is_no_answer() {
    let mut stage = asked();
    stage.later(5000);
    assert_eq!(stage.types("oh my, wait: yes"), []);
    assert_eq!(stage.app.composer.shown(), "oh my, wait: yes", "what is written is kept");
    stage.later(400);
    assert_eq!(stage.types("y").len(), 1);
}

#[test]
fn permission_request_of_a_background_agent_outlives_the_run() {
    let mut stage = TestScreen::with_task();
    let child = origin("i2", Some("i1"), "build/worker");
    stage.happens_in(&child, question("q1", "touch a"));
    stage.app.finish_task();
    assert!(stage.screen(100, 30).contains("asked by build/worker"));
    let escape = KeyEvent::from(KeyCode::Esc);
    assert_eq!(stage.presses(escape), [Effect::Interrupt]);
    assert_eq!(stage.presses(escape), [Effect::Interrupt], "and never leaves");
    stage.later(400);
    assert_eq!(stage.types("y").len(), 1);
    // The request of the main agent is gone.
    let mut stage = asked();
    stage.app.finish_task();
    assert!(!stage.screen(100, 30).contains("[y] yes, once"));
}

#[test]
fn a_paste_never_answers() {
    let mut stage = asked();
    stage.later(1000);
    assert_eq!(stage.app.input(InputEvent::Paste("y".to_owned()), stage.now), []);
    assert_eq!(stage.types("y"), [], "and it was no silence");
    assert_eq!(stage.app.composer.shown(), "yy");
}

#[test]
fn current_permission_request_stays_until_decided() {
    let mut stage = asked();
    stage.later(400);
    let before = stage.screen(100, 30);
    stage.happens(question("q0", "touch b"));
    let after = stage.screen(100, 30);
    assert_eq!(before.lines().count(), after.lines().count(), "nothing moves");
    assert!(after.contains("? Run this command? (1 of 2)"), "{after}");
    // Events do not move the rows above an open request.
    stage.calls("c9", "read x", "x", json!({}));
    stage.says("text\n\nmore");
    assert_eq!(stage.screen(100, 30), after);
    let Effect::Answer(id, _) = &stage.types("n")[0] else { panic!() };
    assert_eq!(*id, QuestionId::new("q1"));
    assert_eq!(stage.types("n"), [], "the next one was not seen yet");
    let text = stage.screen(100, 30);
    assert!(text.contains("│ touch b") && text.contains("read x"), "{text}");
    assert_eq!(stage.types("n"), [], "nor was it silent since");
    stage.later(400);
    let Effect::Answer(id, _) = &stage.types("n")[0] else { panic!() };
    assert_eq!(*id, QuestionId::new("q0"));
}

#[test]
fn details_must_be_scrolled_to_the_end_before_allowing() {
    let mut stage = TestScreen::with_task();
    let command: Vec<String> = (0..100).map(|nth| format!("echo {nth}\n")).collect();
    stage.happens(question("q1", &command.concat()));
    stage.screen(80, 24);
    stage.later(400);
    assert_eq!(stage.types("y"), []);
    assert!(stage.screen(80, 24).contains("End shows the end; then you can allow it"));
    for _ in 0..20 {
        stage.presses(KeyEvent::from(KeyCode::PageDown));
        stage.screen(80, 24);
    }
    assert!(stage.screen(80, 24).contains("echo 99"));
    assert_eq!(stage.types("y").len(), 1, "at once after scrolling");
    // One key shows the end.
    let mut stage = TestScreen::with_task();
    stage.happens(question("q1", &command.concat()));
    stage.screen(80, 24);
    stage.later(400);
    stage.presses(KeyEvent::from(KeyCode::End));
    assert_eq!(stage.types("y"), [], "not before it was drawn");
    assert!(stage.screen(80, 24).contains("echo 99"));
    assert!(stage.app.composer.is_empty());
    assert_eq!(stage.types("y").len(), 1);
    // Scrolling within the quiet period does not shorten it.
    let mut stage = TestScreen::with_task();
    stage.happens(question("q1", &command.concat()));
    stage.screen(80, 24);
    stage.later(399);
    stage.presses(KeyEvent::from(KeyCode::End));
    stage.screen(80, 24);
    stage.later(399);
    assert_eq!(stage.types("y"), []);
}

/// A question with only `once` after its quiet period.
fn asked_once() -> TestScreen {
    let mut stage = TestScreen::with_task();
    let mut event = question("q1", "git log | cat");
    if let Event::PermissionRequested { scopes, .. } = &mut event {
        *scopes = vec![Scope::Once];
    }
    stage.happens(event);
    stage.screen(100, 30);
    stage.later(400);
    stage
}

#[test]
fn key_that_is_not_offered_says_so_and_is_no_text() {
    for key in ["s", "p", "a", "g"] {
        let mut stage = asked_once();
        for _ in 0..200 {
            assert_eq!(stage.types(key), [], "a key that is held down");
            stage.later(30);
        }
        assert!(stage.app.composer.is_empty());
        let hint = format!("[{key}] is not offered here: this call cannot be remembered");
        assert!(stage.screen(120, 30).contains(&hint), "{}", stage.screen(120, 30));
        stage.later(400);
        assert_eq!(stage.types("y").len(), 1);
    }
    let mut stage = asked_once();
    assert_eq!(stage.types("7"), []);
    assert!(stage.screen(100, 30).contains("[7] is not offered here"));
    stage.later(400);
    assert_eq!(stage.types("x"), [], "a second single key");
    assert!(stage.app.composer.is_empty());
    // A word that begins with such a key is text, with all of its letters.
    stage.later(1000);
    assert_eq!(stage.types("stop that"), []);
    assert_eq!(stage.app.composer.shown(), "stop that");
    assert!(!stage.screen(100, 30).contains("is not offered"));
}

#[test]
fn tried_call_returns_with_its_result() {
    let offering = |detail: &str, offer| {
        let mut event = question("q1", detail);
        if let Event::PermissionRequested { trial, .. } = &mut event {
            *trial = Some(offer);
        }
        event
    };
    let answer = |decision| Effect::Answer(QuestionId::new("q1"), decision);
    let mut stage = TestScreen::with_task();
    stage.happens(offering("make", TrialOffer::Try));
    assert!(stage.screen(120, 30).contains("[t] try it first"));
    stage.later(400);
    assert_eq!(stage.types("k"), [], "nothing was tried yet");
    stage.later(1000);
    assert_eq!(stage.types("t"), [answer(HumanDecision::Try)]);
    assert!(stage.screen(120, 30).contains("the workspace is not changed"));
    stage.happens(offering("make\n\ntried: 1 changed\n+new", TrialOffer::Keep));
    let screen = stage.screen(120, 30);
    assert!(
        screen.contains("[k] keep the changes of the trial") && screen.contains("+new"),
        "{screen}"
    );
    assert!(!screen.contains("[t]"), "{screen}");
    stage.later(400);
    assert_eq!(stage.types("k"), [answer(HumanDecision::Keep)]);
}

#[test]
fn refusal_carries_the_words_of_the_user() {
    let mut stage = asked_once();
    assert_eq!(stage.types("r"), []);
    assert_eq!(stage.types("use pnmp"), []);
    for _ in 0..3 {
        stage.presses(KeyEvent::from(KeyCode::Backspace));
    }
    stage.types("pm,");
    assert_eq!(stage.app.input(InputEvent::Paste(" not\nnpm\u{1b}".to_owned()), stage.now), []);
    let text = stage.screen(100, 30);
    assert!(text.contains("no, because: use ppm, not npm▏"), "{text}");
    let reason = Some("the user said no: use ppm, not npm".to_owned());
    let denied = Effect::Answer(QuestionId::new("q1"), HumanDecision::Deny { reason });
    assert_eq!(stage.types("\n"), [denied]);
    assert!(stage.app.composer.is_empty());
    // Esc goes back; Enter without words is a plain no.
    let mut stage = asked_once();
    stage.types("ryes");
    assert_eq!(stage.presses(KeyEvent::from(KeyCode::Esc)), []);
    assert!(stage.screen(100, 30).contains("[y] yes, once"));
    stage.types("r");
    let denied = Effect::Answer(QuestionId::new("q1"), HumanDecision::Deny { reason: None });
    assert_eq!(stage.types("\n"), [denied]);
}

#[test]
fn stop_all_works_while_a_question_is_open() {
    let mut stage = asked();
    stage.later(5000);
    for c in "/stop all".chars() {
        assert_eq!(stage.types(&c.to_string()), [], "no letter of a command is an answer");
        stage.later(1000);
    }
    assert_eq!(stage.types("\n"), [Effect::InterruptAll]);
    // Other lines wait.
    let mut stage = asked();
    stage.later(5000);
    let words = |stage: &mut TestScreen| {
        stage.screen(200, 30).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(words(&mut stage).contains("Shift+Tab changes the mode"));
    stage.types("/new");
    stage.later(1000);
    assert_eq!(stage.types("\n"), []);
    let shown = stage.screen(200, 30);
    assert!(shown.contains("answer first; only /permission-mode, /stop and"), "{shown}");
    stage.presses(ctrl('u'));
    stage.later(400);
    // The mode is changed and shown at once.
    stage.types("/permission-mode edits");
    stage.later(1000);
    assert!(matches!(stage.types("\n")[..], [Effect::Query(_)]));
    stage.happens(Event::PermissionModeChanged {
        mode: PermissionMode::Edits,
        from: PermissionMode::Ask,
        restriction: None,
        changed_by: None,
    });
    assert!(words(&mut stage).contains("permission mode edits"));
    stage.later(400);
    assert_eq!(stage.types("y").len(), 1);
    // The chord works as well.
    let mut stage = asked();
    stage.presses(ctrl('x'));
    assert_eq!(stage.presses(ctrl('k')), [Effect::InterruptAll]);
}

#[test]
fn the_agent_is_a_scope_where_it_is_offered() {
    let agent = HumanDecision::Allow(Scope::Agent);
    for (offered, effects) in
        [(false, Vec::new()), (true, vec![Effect::Answer(QuestionId::new("q1"), agent)])]
    {
        let mut stage = TestScreen::with_task();
        let mut event = question("q1", "touch a");
        if let Event::PermissionRequested { scopes, .. } = &mut event
            && offered
        {
            scopes.insert(1, Scope::Agent);
        }
        stage.happens(event);
        let screen = stage.screen(160, 30);
        assert_eq!(screen.contains("[i] yes, for this agent"), offered, "{screen}");
        stage.later(400);
        assert_eq!(stage.types("i"), effects);
    }
}

#[test]
fn global_scope_needs_confirmation() {
    let mut stage = asked();
    stage.later(400);
    assert_eq!(stage.types("a"), []);
    assert!(stage.screen(100, 30).contains("everywhere, in every project? [a] again"));
    stage.later(400);
    let always = HumanDecision::Allow(Scope::Global);
    assert_eq!(stage.types("a"), [Effect::Answer(QuestionId::new("q1"), always)]);
    let mut stage = asked();
    stage.later(400);
    stage.types("ax");
    stage.later(400);
    assert_eq!(stage.types("a"), [], "another key in between");
}

#[test]
fn answer_from_another_front_end_closes_the_request() {
    let mut stage = asked();
    stage.happens(Event::PermissionWithdrawn {
        request_id: QuestionId::new("q1"),
        reason: "gone".to_owned(),
        target: PermissionTarget::default(),
    });
    stage.later(400);
    assert_eq!(stage.types("y"), []);
    assert_eq!(stage.app.composer.shown(), "y");
}

#[test]
fn commands_answered_by_the_ui_state() {
    let mut stage = TestScreen::new();
    for command in ["/status", "/theme light", "/theme pink"] {
        assert_eq!(stage.types(&format!("{command}\n")), [], "{command}");
    }
    insta::assert_snapshot!(stage.screen(100, 30));
}

#[test]
fn history_is_recalled_with_arrow_keys() {
    let mut stage = TestScreen::new();
    stage.types("first\n");
    stage.types("second\n");
    stage.types("draft");
    stage.presses(KeyEvent::from(KeyCode::Up));
    assert_eq!(stage.app.composer.shown(), "second");
    stage.presses(KeyEvent::from(KeyCode::Up));
    stage.presses(KeyEvent::from(KeyCode::Up));
    assert_eq!(stage.app.composer.shown(), "first");
    stage.presses(KeyEvent::from(KeyCode::Down));
    stage.presses(KeyEvent::from(KeyCode::Down));
    assert_eq!(stage.app.composer.shown(), "draft");
}

#[test]
fn reply_with_lost_deltas_is_shown_completely() {
    let mut stage = TestScreen::with_task();
    stage.says("one\n\nt");
    stage.says("hree\n\n");
    stage.replied("one\n\ntwo\n\nthree");
    let text = stage.screen(60, 30);
    assert!(text.contains("the whole reply") && text.contains("\ntwo\n"), "{text}");
    // A complete reply is not repeated.
    let mut stage = TestScreen::with_task();
    stage.says("one\n\nt");
    stage.replied("one\n\ntwo");
    let text = stage.screen(60, 30);
    assert_eq!((text.matches("one").count(), text.matches("two").count()), (1, 1), "{text}");
}

#[test]
fn notes_escape_control_characters() {
    let mut stage = TestScreen::new();
    stage.app.view.note(Role::Dim, "a\u{1b}[2Jb\u{202e}");
    assert!(stage.screen(60, 10).contains("ab\\u{202e}"));
}

proptest! {
    #[test]
    fn survives_any_size_and_keys(
        columns in 1u16..260,
        rows in 1u16..80,
        keys in "[a-z\n/ ]{0,20}",
        text in "([a-z#`*>|\\-]|\n){0,80}",
        asks in any::<bool>(),
    ) {
        let mut stage = TestScreen::with_task();
        stage.says(&text);
        stage.starts("c1", &text);
        if asks {
            stage.happens(question("q1", &text));
        }
        stage.types(&keys);
        stage.screen(columns, rows);
        stage.presses(ctrl('o'));
        stage.later(500);
        stage.screen(rows, columns.min(80));
    }
}

#[test]
fn escape_twice_on_an_empty_prompt_opens_rewind() {
    let mut stage = TestScreen::new();
    let escape = KeyEvent::from(KeyCode::Esc);
    assert_eq!(stage.presses(escape), []);
    assert_eq!(stage.presses(escape), [Effect::ListRewindPoints]);
    // Too late, after another key, or with a text in the prompt.
    assert_eq!(stage.presses(escape), []);
    stage.later(10_000);
    assert_eq!(stage.presses(escape), []);
    stage.types("a");
    assert_eq!((stage.presses(escape), stage.presses(escape)), (vec![], vec![]));
    stage.presses(ctrl('u'));
    assert_eq!(stage.presses(escape), []);
    stage.app.choose_rewind_point(vec![(2, "two".to_owned()), (1, "one".to_owned())]);
    assert!(stage.screen(80, 24).contains("  2  two"));
    assert_eq!(stage.types("\n"), []);
    assert!(stage.screen(80, 24).contains("return to the state before prompt 2"));
    let expected = Effect::Rewind(2, posse_frontend::RewindExtent::Both);
    assert_eq!(stage.types("\n"), [expected]);
}

#[test]
fn prompt_to_return_to_must_exist() {
    let mut stage = TestScreen::new();
    assert_eq!(stage.types("/rewind 99\n"), [Effect::ListRewindExtents(99)]);
    let points = [(2, "two".to_owned()), (1, "one".to_owned())];
    stage.app.choose_rewind_extent_of(99, &points);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("There is no prompt 99"), "{screen}");
    assert!(!screen.contains("return to the state before"), "{screen}");
    stage.app.choose_rewind_extent_of(1, &points);
    assert!(stage.screen(80, 24).contains("return to the state before prompt 1"));
}

#[test]
fn task_list_is_shown_above_the_prompt_while_a_task_runs() {
    use posse_actors::event::{TodoItem, TodoStatus};
    let item = |nth: usize| TodoItem {
        content: format!("step {nth}\u{1b}[2J"),
        status: match nth {
            0..3 => TodoStatus::Completed,
            3 => TodoStatus::InProgress,
            _ => TodoStatus::Pending,
        },
    };
    let mut stage = TestScreen::with_task();
    stage.happens(Event::TodosUpdated { todos: (0..9).map(item).collect() });
    let screen = stage.screen(80, 24);
    let shown = "  ☑ step 2\n  ▸ step 3\n  ☐ step 4\n  ☐ step 5\n  ☐ step 6\n";
    assert!(screen.contains(shown), "{screen}");
    assert!(!stage.screen(80, 12).contains("☐"), "a small terminal has no room for it");
    stage.happens(Event::TodosUpdated { todos: (0..3).map(item).collect() });
    assert!(!stage.screen(80, 24).contains("☑"), "nothing is left to do");
}
