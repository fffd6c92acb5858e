//! Every screen at three widths, and what keys do.

use posse_actors::conversation::{CallId, ContentPart, MessageId, QuestionId};
use posse_actors::event::{Event, MessageKind, Scope};
use posse_actors::permission_coordinator::HumanDecision;
use proptest::prelude::*;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::talk::Selected;
use crate::tui::app::Effect;
use crate::tui::input::{Code, Input, Key};
use crate::tui::testing::{Stage, command_ended, origin, question};
use crate::tui::theme::Role;

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
    let build = |stage: &mut Stage| {
        stage.calls("c1", "read src/price.rs", "…", json!({}));
        stage.calls("c2", "search src for total", "…", json!({}));
        stage.asks_model();
        stage.says(ANSWER);
        stage.later(2300);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn calls_that_run_end_and_fail() {
    let build = |stage: &mut Stage| {
        let output = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\
            \u{1b}[31mred\u{1b}[0m\u{7}\nfailures: 1\n(exit 101, 42 ms)";
        stage.calls("c1", "run cargo test", output, command_ended(101));
        stage.calls("c2", "change src/price.rs (+1 -1)", "changed", json!({"diff": DIFF}));
        stage.starts("c3", "run a command that is long enough to be broken where the window ends, wherever that is");
        stage.happens(Event::ToolFailed {
            call_id: CallId::new("c3"),
            name: "bash".to_owned(),
            content: vec![ContentPart::text("Denied: the user said no")],
            class: "denied".to_owned(),
            metadata: json!(null),
            duration_ms: 0,
        });
        stage.starts("c4", "run ./build.sh");
        let printed = "one\ntwo\nthree\nfour\nfive\nsix\r6 of 7\n";
        let call_id = CallId::new("c4");
        stage.happens(Event::ToolOutputDelta { call_id, text: printed.to_owned() });
        stage.later(3100);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn a_question_with_a_hostile_command() {
    let build = |stage: &mut Stage| {
        stage.says("I will clean up first.");
        stage.replied("I will clean up first.");
        stage.happens(question("q1", "rm -rf build\u{202e}\nprintf '\u{1b}[2J'   "));
        stage.happens(question("q2", "ls"));
        stage.screen(100, 30);
        stage.later(400);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn a_question_about_a_change() {
    let build = |stage: &mut Stage| {
        stage.happens(question("q1", DIFF));
        stage.types("also the te");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn a_provider_that_is_away() {
    let build = |stage: &mut Stage| {
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
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn a_session_that_is_parked() {
    let build = |stage: &mut Stage| {
        stage.happens(Event::SessionParked {
            cause: "anthropic was away for 30 min".to_owned(),
            class: Some("overloaded".to_owned()),
            next_try_ms: None,
        });
        stage.ends();
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn what_goes_on_is_not_parked_any_more() {
    let waits = |answers: bool| {
        let mut stage = Stage::at_work();
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
fn something_that_went_wrong() {
    let build = |stage: &mut Stage| {
        stage.ends();
        let what = "the provider does not accept the credentials";
        let failure = Failure::new("PRV003", Exit::Configuration, what)
            .because("401 Unauthorized: invalid x-api-key")
            .fix("check the key of this provider; `posse config show --origin` says where it comes from");
        stage.app.view.failures(&[failure]);
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn messages_that_wait() {
    let build = |stage: &mut Stage| {
        for (nth, kind) in [MessageKind::Steer, MessageKind::FollowUp].into_iter().enumerate() {
            stage.happens(Event::MessageQueued {
                message_id: MessageId::new(format!("m{nth}")),
                kind,
                content: vec![ContentPart::text("and the tests\nof it")],
            });
        }
        stage.types("what about");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn agents_that_work_for_another() {
    let build = |stage: &mut Stage| {
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
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn help() {
    let build = |stage: &mut Stage| {
        stage.types("/help\n");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn a_list_to_choose_from() {
    let build = |stage: &mut Stage| {
        let names = ["anthropic", "openai", "local"].map(str::to_owned).to_vec();
        stage.app.choose(Selected::Provider, names, None);
        stage.types("o");
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn the_viewer() {
    let build = |stage: &mut Stage| {
        let lines: Vec<String> = (1..=50).map(|nth| format!("line {nth}")).collect();
        stage.calls("c1", "run seq 50", &lines.join("\n"), command_ended(0));
        stage.presses(Key::ctrl('o'));
        stage.screen(60, 30);
        stage.presses(Key::plain(Code::PageDown));
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::at_work));
}

#[test]
fn a_prompt_of_several_lines() {
    let build = |stage: &mut Stage| {
        stage.app.input(Input::Paste("fn main() {\n    body();\n}".to_owned()), stage.now);
        stage.presses(Key::ctrl('j'));
        stage.types(&"word ".repeat(20));
        stage.app.input(Input::Paste("x\n".repeat(40)), stage.now);
        stage.presses(Key::plain(Code::Left));
    };
    insta::assert_snapshot!(Stage::screens(build, Stage::new));
}

#[test]
fn a_letter_on_an_empty_prompt_acts_when_nothing_follows() {
    let mut stage = Stage::new();
    assert_eq!(stage.types("m"), []);
    assert_eq!(stage.later(149), []);
    assert_eq!(stage.later(1), [Effect::Choose(Selected::Model, Some('m'))]);
    assert!(stage.app.composer.is_empty());
    // Somebody who writes a word.
    for letter in ["a", "p", "m"] {
        let mut stage = Stage::new();
        stage.types(letter);
        stage.later(100);
        stage.types("b");
        assert_eq!(stage.later(1000), []);
        assert_eq!(stage.app.composer.shown(), format!("{letter}b"));
    }
    // It was the beginning of a word after all.
    let mut stage = Stage::new();
    stage.types("a");
    stage.later(150);
    stage.app.choose(Selected::Agent, vec!["build".to_owned()], Some('a'));
    stage.types("dd");
    stage.presses(Key::plain(Code::Esc));
    assert_eq!(stage.app.composer.shown(), "add");
}

#[test]
fn enter_says_it_now_or_at_the_next_step() {
    let mut stage = Stage::new();
    let say = |text: &str, kind| vec![Effect::Say(text.to_owned(), kind)];
    assert_eq!(stage.types("fix it\n"), say("fix it", MessageKind::Steer));
    assert_eq!(stage.types("/hlep\n"), []);
    assert_eq!(stage.types("two\\\nlines\n"), say("two\nlines", MessageKind::Steer));
    let mut stage = Stage::at_work();
    stage.types("then");
    assert_eq!(stage.presses(Key::alt(Code::Enter)), say("then", MessageKind::FollowUp));
    assert_eq!(stage.types("/new\n"), [], "not while something runs");
    assert_eq!(stage.types("/stop\n"), [Effect::Interrupt]);
}

#[test]
fn ctrl_c_gives_up_one_thing_after_the_other() {
    let mut stage = Stage::new();
    let press = |stage: &mut Stage| stage.presses(Key::ctrl('c'));
    stage.types("draft");
    assert_eq!(press(&mut stage), []);
    assert!(stage.app.composer.is_empty());
    assert_eq!(press(&mut stage), [], "clearing was no first press");
    stage.later(2000);
    assert_eq!(press(&mut stage), [], "too late to be the second");
    stage.later(1999);
    assert_eq!(press(&mut stage), [Effect::Leave(Exit::Interrupt)]);
    let mut stage = Stage::at_work();
    assert_eq!(press(&mut stage), [Effect::Interrupt]);
    assert_eq!(press(&mut stage), [Effect::Leave(Exit::Interrupt)]);
    let mut stage = Stage::at_work();
    assert_eq!(stage.presses(Key::plain(Code::Esc)), [Effect::Interrupt]);
    assert_eq!(Stage::new().presses(Key::plain(Code::Esc)), []);
    assert_eq!(Stage::new().presses(Key::ctrl('d')), [Effect::Leave(Exit::Done)]);
}

fn asked() -> Stage {
    let mut stage = Stage::at_work();
    stage.happens(question("q1", "touch a"));
    stage.screen(100, 30);
    stage
}

#[test]
fn no_key_within_the_silence_answers() {
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
fn who_begins_to_write_is_not_answering() {
    let mut stage = asked();
    stage.later(5000);
    assert_eq!(stage.types("oh my, wait: yes"), []);
    assert_eq!(stage.app.composer.shown(), "oh my, wait: yes", "what is written is kept");
    stage.later(400);
    assert_eq!(stage.types("y").len(), 1);
}

#[test]
fn a_question_of_an_agent_in_the_background_outlives_the_run() {
    let mut stage = Stage::at_work();
    let child = origin("i2", Some("i1"), "build/worker");
    stage.happens_in(&child, question("q1", "touch a"));
    stage.app.over();
    assert!(stage.screen(100, 30).contains("asked by build/worker"));
    let escape = Key::plain(Code::Esc);
    assert_eq!(stage.presses(escape), [Effect::Interrupt]);
    assert_eq!(stage.presses(escape), [Effect::Interrupt], "and never leaves");
    stage.later(400);
    assert_eq!(stage.types("y").len(), 1);
    // What the main agent asked nobody waits for.
    let mut stage = asked();
    stage.app.over();
    assert!(!stage.screen(100, 30).contains("allow?"));
}

#[test]
fn a_paste_never_answers() {
    let mut stage = asked();
    stage.later(1000);
    assert_eq!(stage.app.input(Input::Paste("y".to_owned()), stage.now), []);
    assert_eq!(stage.types("y"), [], "and it was no silence");
    assert_eq!(stage.app.composer.shown(), "yy");
}

#[test]
fn the_question_in_front_stays_until_it_is_decided() {
    let mut stage = asked();
    stage.later(400);
    let before = stage.screen(100, 30);
    stage.happens(question("q0", "touch b"));
    let after = stage.screen(100, 30);
    assert_eq!(before.lines().count(), after.lines().count(), "nothing moves");
    assert!(after.contains("run touch a (1 of 2)"), "{after}");
    // What goes on meanwhile is not shown under the finger.
    stage.calls("c9", "read x", "x", json!({}));
    stage.says("text\n\nmore");
    assert_eq!(stage.screen(100, 30), after);
    let Effect::Answer(id, _) = &stage.types("n")[0] else { panic!() };
    assert_eq!(*id, QuestionId::new("q1"));
    assert_eq!(stage.types("n"), [], "the next one was not seen yet");
    let text = stage.screen(100, 30);
    assert!(text.contains("run touch b") && text.contains("read x"), "{text}");
    assert_eq!(stage.types("n"), [], "nor was it silent since");
    stage.later(400);
    let Effect::Answer(id, _) = &stage.types("n")[0] else { panic!() };
    assert_eq!(*id, QuestionId::new("q0"));
}

#[test]
fn nothing_is_allowed_that_was_not_read_to_its_end() {
    let mut stage = Stage::at_work();
    let command: Vec<String> = (0..100).map(|nth| format!("echo {nth}\n")).collect();
    stage.happens(question("q1", &command.concat()));
    stage.screen(80, 24);
    stage.later(400);
    assert_eq!(stage.types("y"), []);
    assert!(stage.screen(80, 24).contains("read it to its end"));
    for _ in 0..20 {
        stage.presses(Key::plain(Code::PageDown));
        stage.screen(80, 24);
    }
    stage.later(400);
    assert!(stage.screen(80, 24).contains("echo 99"));
    assert_eq!(stage.types("y").len(), 1);
}

#[test]
fn everywhere_is_said_twice() {
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
fn an_answer_elsewhere_closes_the_question() {
    let mut stage = asked();
    stage.happens(Event::PermissionWithdrawn {
        request_id: QuestionId::new("q1"),
        reason: "gone".to_owned(),
    });
    stage.later(400);
    assert_eq!(stage.types("y"), []);
    assert_eq!(stage.app.composer.shown(), "y");
}

#[test]
fn commands_that_need_nothing_else() {
    let mut stage = Stage::new();
    for command in ["/status", "/theme", "/theme light", "/theme pink"] {
        assert_eq!(stage.types(&format!("{command}\n")), [], "{command}");
    }
    insta::assert_snapshot!(stage.screen(100, 30));
}

#[test]
fn what_was_written_before_comes_back() {
    let mut stage = Stage::new();
    stage.types("first\n");
    stage.types("second\n");
    stage.types("draft");
    stage.presses(Key::plain(Code::Up));
    assert_eq!(stage.app.composer.shown(), "second");
    stage.presses(Key::plain(Code::Up));
    stage.presses(Key::plain(Code::Up));
    assert_eq!(stage.app.composer.shown(), "first");
    stage.presses(Key::plain(Code::Down));
    stage.presses(Key::plain(Code::Down));
    assert_eq!(stage.app.composer.shown(), "draft");
}

#[test]
fn a_reply_whose_parts_were_lost_is_shown_whole() {
    let mut stage = Stage::at_work();
    stage.says("one\n\nt");
    stage.says("hree\n\n");
    stage.replied("one\n\ntwo\n\nthree");
    let text = stage.screen(60, 30);
    assert!(text.contains("the whole reply") && text.contains("\ntwo\n"), "{text}");
    // Nothing is said twice where nothing was lost.
    let mut stage = Stage::at_work();
    stage.says("one\n\nt");
    stage.replied("one\n\ntwo");
    let text = stage.screen(60, 30);
    assert_eq!((text.matches("one").count(), text.matches("two").count()), (1, 1), "{text}");
}

#[test]
fn a_note_is_what_it_says() {
    let mut stage = Stage::new();
    stage.app.view.note(Role::Dim, "a\u{1b}[2Jb\u{202e}");
    assert!(stage.screen(60, 10).contains("ab\\u{202e}"));
}

proptest! {
    #[test]
    fn no_size_and_no_keys_stop_it(
        columns in 1u16..260,
        rows in 1u16..80,
        keys in "[a-z\n/ ]{0,20}",
        text in "([a-z#`*>|\\-]|\n){0,80}",
        asks in any::<bool>(),
    ) {
        let mut stage = Stage::at_work();
        stage.says(&text);
        stage.starts("c1", &text);
        if asks {
            stage.happens(question("q1", &text));
        }
        stage.types(&keys);
        stage.screen(columns, rows);
        stage.presses(Key::ctrl('o'));
        stage.later(500);
        stage.screen(rows, columns.min(80));
    }
}
