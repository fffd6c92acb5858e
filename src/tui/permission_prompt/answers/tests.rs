//! Tests of the answers to a permission request.

use posse_actors::event::{Event, Grant, Scope};

use crate::testing::{TestScreen, question};

const COMMAND: &str = "npm install c8 && npx c8 npm test";

fn asks() -> Event {
    let mut event = question("q1", COMMAND);
    if let Event::PermissionRequested { reason, scopes, grant, grants_part, grant_text, .. } =
        &mut event
    {
        *grant_text = "a saved answer allows `npm install` with known options".to_owned();
        *reason = format!("not covered by a rule or grant; {grant_text}; it has no network");
        *scopes = vec![Scope::Once, Scope::Session];
        *grant = Some(Box::new(Grant {
            operation: "execute".to_owned(),
            target: "npm install".to_owned(),
            scope: Scope::Session,
            agent: None,
        }));
        *grants_part = true;
    }
    event
}

#[test]
fn each_answer_has_a_row_that_says_what_it_covers() {
    let mut stage = TestScreen::with_task();
    stage.happens(asks());
    let screen = stage.screen(80, 24);
    insta::assert_snapshot!(&screen[screen.find("? Run").unwrap()..], @r"
    ? Run this command?
      │ npm install c8 && npx c8 npm test
      not covered by a rule or grant; it has no network
      in ~/src/shop · commands run in the sandbox

      [y] yes, once
      [s] yes, in this session: npm install (the rest asks again)
      [n] no
      [r] no, and say why
      ? explains more · Shift+Tab changes the mode · Esc stops the run
    ");
    assert_eq!(screen.matches(COMMAND).count(), 1, "{screen}");
}

#[test]
fn low_screen_has_all_answers_in_one_text() {
    let mut stage = TestScreen::with_task();
    let mut event = asks();
    if let Event::PermissionRequested { detail, .. } = &mut event {
        *detail = format!("{COMMAND}\n{}", "echo next\n".repeat(5));
    }
    stage.happens(event);
    let screen = stage.screen(80, 14);
    assert!(screen.contains("allow?  [y] once  [s] this session  [n] no"), "{screen}");
    assert!(stage.screen(80, 24).contains("  [y] yes, once\n"));
}

#[test]
fn details_are_shown_on_request() {
    let mut stage = TestScreen::with_task();
    stage.happens(asks());
    assert!(!stage.screen(80, 24).contains("a saved answer allows"));
    stage.later(400);
    assert_eq!(stage.types("?"), []);
    let screen = stage.screen(80, 24);
    assert!(screen.contains("  a saved answer allows `npm install` with known options\n"));
    assert!(screen.contains("in /home/me/src/shop"), "{screen}");
    assert_eq!(stage.types("?"), []);
    assert!(!stage.screen(80, 24).contains("a saved answer allows"));
    assert_eq!(stage.types("s").len(), 1, "the key decides nothing, and answers still count");
}
