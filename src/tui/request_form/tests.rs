//! Keys and screens of questions and plans.

use crossterm::event::{KeyCode, KeyEvent};
use posse_actors::conversation::QuestionId;
use posse_actors::event::{
    DecisionSource, Event, PLAN_MODES, PermissionMode, PermissionTarget, QuestionAnswer,
    QuestionOption, UserQuestion, UserReply, UserRequest,
};
use posse_actors::permission_coordinator::HumanDecision;

use crate::app::Effect;
use crate::input::InputEvent;
use crate::testing::{TestScreen, question};

fn asks(stage: &mut TestScreen, request: UserRequest) {
    let mut event = question("q1", "");
    if let Event::PermissionRequested { user_request, scopes, summary, reason, .. } = &mut event {
        *user_request = Some(Box::new(request));
        "question: Which store?".clone_into(summary);
        "the model asks".clone_into(reason);
        scopes.clear();
    }
    stage.happens(event);
    stage.screen(80, 24);
    stage.later(500);
}

fn with(labels: &[&str], multiple: bool, default: Option<&str>) -> UserQuestion {
    let option = |label: &&str| QuestionOption {
        label: (*label).to_owned(),
        description: Some(format!("about\u{1b}[2J {label}")),
    };
    UserQuestion {
        question: "Which\u{1b}]0;x\u{7} store?".to_owned(),
        options: labels.iter().map(option).collect(),
        multiple,
        free_text: labels.is_empty() || multiple,
        default: default.map(str::to_owned),
    }
}

fn stage(questions: Vec<UserQuestion>) -> TestScreen {
    let mut stage = TestScreen::with_task();
    asks(&mut stage, UserRequest::Questions { questions, timeout_seconds: None });
    stage
}

fn planned(plan: &str) -> TestScreen {
    let mut stage = TestScreen::with_task();
    asks(&mut stage, UserRequest::Plan { plan: plan.to_owned(), modes: PLAN_MODES.to_vec() });
    stage
}

fn press(stage: &mut TestScreen, code: KeyCode) -> Vec<Effect> {
    stage.presses(KeyEvent::from(code))
}

#[expect(clippy::needless_pass_by_value, reason = "it reads better where it is called")]
fn decision(effects: Vec<Effect>) -> HumanDecision {
    match effects.as_slice() {
        [Effect::Answer(_, decision)] => decision.clone(),
        other => panic!("{other:?}"),
    }
}

fn answers(answers: &[(&[&str], Option<&str>)]) -> HumanDecision {
    let answer = |(selected, text): &(&[&str], Option<&str>)| QuestionAnswer {
        selected: selected.iter().map(ToString::to_string).collect(),
        text: text.map(str::to_owned),
    };
    HumanDecision::Reply(UserReply::Questions { answers: answers.iter().map(answer).collect() })
}

#[test]
fn question_shows_its_options_escaped() {
    let mut stage = stage(vec![with(&["files", "sqlite"], false, Some("sqlite"))]);
    let screen = stage.screen(80, 24);
    let shown = screen.split("════\n").nth(1).unwrap();
    let question = &shown[shown.find("? question").unwrap()..];
    insta::assert_snapshot!(question, @r"
    ? question: Which store?
      Which\u{1b}]0;x\u{7} store?
        1. files  about\u{1b}[2J files
      ❯ 2. sqlite  about\u{1b}[2J sqlite
      [1-2] choose  [Enter] default: sqlite  [x] no answer  · Esc stops the run
    ");
}

#[test]
fn option_is_chosen_by_digit_or_cursor() {
    let one = || stage(vec![with(&["files", "sqlite"], false, None)]);
    assert_eq!(decision(press(&mut one(), KeyCode::Char('2'))), answers(&[(&["sqlite"], None)]));
    assert_eq!(decision(press(&mut one(), KeyCode::Enter)), answers(&[(&["files"], None)]));
    let mut moved = one();
    for _ in 0..3 {
        assert!(press(&mut moved, KeyCode::Down).is_empty(), "the last option stays");
    }
    assert_eq!(decision(press(&mut moved, KeyCode::Enter)), answers(&[(&["sqlite"], None)]));
    let mut other = one();
    assert!(press(&mut other, KeyCode::Char('7')).is_empty());
    assert!(other.screen(80, 24).contains("[7] is not offered here"));
}

#[test]
fn several_questions_follow_each_other_and_can_be_corrected() {
    let mut stage = stage(vec![
        with(&["files", "sqlite"], false, None),
        with(&["a", "b", "c"], true, None),
        with(&[], false, None),
    ]);
    assert!(stage.screen(80, 24).contains("(1 of 3) Which"));
    assert!(press(&mut stage, KeyCode::Char('1')).is_empty());
    assert!(stage.screen(80, 24).contains("(2 of 3) Which"));
    // The next question has a quiet period of its own.
    assert!(press(&mut stage, KeyCode::Enter).is_empty());
    stage.later(500);
    assert!(press(&mut stage, KeyCode::Left).is_empty());
    assert!(stage.screen(80, 24).contains("(1 of 3) Which"));
    stage.later(500);
    press(&mut stage, KeyCode::Char('2'));
    stage.screen(80, 24);
    stage.later(500);
    for key in [KeyCode::Char('3'), KeyCode::Char('1'), KeyCode::Char('2'), KeyCode::Char(' ')] {
        assert!(press(&mut stage, key).is_empty());
    }
    assert!(stage.screen(80, 24).contains("1. [x] a"), "{}", stage.screen(80, 24));
    assert!(press(&mut stage, KeyCode::Enter).is_empty());
    assert!(stage.screen(80, 24).contains("(3 of 3) Which"));
    stage.later(500);
    stage.types("in Redis");
    stage.app.input(InputEvent::Paste("\u{1b}[2J, of course".to_owned()), stage.now);
    assert!(stage.screen(80, 24).contains("in Redis[2J, of course▏"), "{}", stage.screen(80, 24));
    stage.later(500);
    let expected =
        answers(&[(&["sqlite"], None), (&["a", "c"], None), (&[], Some("in Redis[2J, of course"))]);
    assert_eq!(decision(press(&mut stage, KeyCode::Enter)), expected);
    assert!(!stage.app.prompts.is_open());
}

#[test]
fn question_can_be_answered_in_own_words_or_refused() {
    let one = || stage(vec![with(&["a", "b"], true, None)]);
    let mut unmarked = one();
    assert!(press(&mut unmarked, KeyCode::Enter).is_empty());
    let shown = unmarked.screen(80, 24);
    assert!(shown.contains("nothing is marked: mark with a number or the space bar"), "{shown}");
    let mut own = one();
    press(&mut own, KeyCode::Char('t'));
    own.types("neither");
    assert!(press(&mut own, KeyCode::Esc).is_empty(), "back to the options");
    assert!(own.screen(80, 24).contains("[1-2] mark"));
    press(&mut own, KeyCode::Char('t'));
    own.types("both?");
    assert_eq!(decision(press(&mut own, KeyCode::Enter)), answers(&[(&[], Some("both?"))]));
    let mut refused = one();
    press(&mut refused, KeyCode::Char('x'));
    refused.types("see README");
    let reason = Some("see README".to_owned());
    assert_eq!(decision(press(&mut refused, KeyCode::Enter)), HumanDecision::Deny { reason });
}

#[test]
fn default_that_is_no_option_is_taken_by_an_empty_text() {
    let mut stage = stage(vec![with(&["a", "b"], true, Some("c"))]);
    assert!(stage.screen(80, 24).contains("❯ t. your own words"), "{}", stage.screen(80, 24));
    assert!(press(&mut stage, KeyCode::Enter).is_empty());
    assert_eq!(decision(press(&mut stage, KeyCode::Enter)), answers(&[(&[], None)]));
}

#[test]
fn keys_before_the_quiet_period_are_no_answer() {
    let mut stage = TestScreen::with_task();
    let questions = vec![with(&[], false, None)];
    stage.types("my dr");
    let mut event = question("q1", "");
    if let Event::PermissionRequested { user_request, .. } = &mut event {
        *user_request = Some(Box::new(UserRequest::Questions { questions, timeout_seconds: None }));
    }
    stage.happens(event);
    stage.screen(80, 24);
    stage.types("aft");
    assert!(stage.screen(80, 24).contains("your draft is kept: my draft"));
    stage.later(500);
    stage.types("yes");
    assert!(stage.screen(80, 24).contains("❯ yes▏"), "{}", stage.screen(80, 24));
}

#[test]
fn plan_is_accepted_into_a_mode_when_its_end_was_shown() {
    let accepted = |mode, plan: Option<&str>| {
        HumanDecision::Reply(UserReply::Plan { mode, plan: plan.map(str::to_owned) })
    };
    for (key, mode) in
        [('y', PermissionMode::Ask), ('e', PermissionMode::Edits), ('a', PermissionMode::Auto)]
    {
        let mut stage = planned("# Plan\n\n1. read\n2. change\u{1b}[2J");
        assert!(stage.screen(80, 24).contains("? Accept this plan?\n"));
        stage.screen(80, 24);
        assert_eq!(decision(press(&mut stage, KeyCode::Char(key))), accepted(mode, None));
    }
    let long = "1. step\n".repeat(90);
    let mut stage = planned(&long);
    assert!(stage.screen(80, 24).contains("End shows the end"));
    assert!(press(&mut stage, KeyCode::Char('e')).is_empty(), "not all was shown");
    press(&mut stage, KeyCode::End);
    stage.screen(80, 24);
    let expected = accepted(PermissionMode::Edits, None);
    assert_eq!(decision(press(&mut stage, KeyCode::Char('e'))), expected);
}

#[test]
fn plan_is_edited_or_refused_with_words() {
    let mut stage = planned("1. change all");
    let effects = press(&mut stage, KeyCode::Char('o'));
    assert_eq!(effects, [Effect::EditPlan("1. change all".to_owned())]);
    stage.app.prompts.set_plan("1. change one");
    assert!(stage.screen(80, 24).contains("1. change one"));
    let plan = Some("1. change one".to_owned());
    let expected = HumanDecision::Reply(UserReply::Plan { mode: PermissionMode::Ask, plan });
    assert_eq!(decision(press(&mut stage, KeyCode::Char('y'))), expected);
    let mut stage = planned("1. change all");
    stage.app.prompts.set_plan("");
    assert!(press(&mut stage, KeyCode::Char('y')).is_empty(), "an empty plan is not accepted");
    press(&mut stage, KeyCode::Char('n'));
    stage.types("smaller");
    let reason = Some("smaller".to_owned());
    assert_eq!(decision(press(&mut stage, KeyCode::Enter)), HumanDecision::Deny { reason });
    stage.happens(Event::PermissionDenied {
        request_id: QuestionId::new("q1"),
        by: DecisionSource::User,
        reason: "the user said no: smaller".to_owned(),
        target: PermissionTarget::default(),
        is_user_request: true,
        rule: None,
        answered_by: None,
    });
    // The refusal and its reason stay on the screen.
    let shown = stage.screen(80, 24);
    assert!(shown.contains("1. change all"), "{shown}");
    assert!(shown.contains("! refused: the user said no: smaller"), "{shown}");
}
