//! Hunks of an edit in the terminal UI.

use crossterm::event::KeyCode;
use posse_actors::conversation::QuestionId;
use posse_actors::event::{EditHunk, Event, HunkAnswer};
use posse_actors::permission_coordinator::HumanDecision;

use super::*;
use crate::EditorDraft;
use crate::app::Effect;
use crate::testing::{TestScreen, question};

const KEYS: &str = "[y] take  [n] leave  [e] editor  [a] take this and the rest  [q] back";

/// A request about a change with two hunks, of which the second adds `lines` lines.
fn asked(lines: usize) -> TestScreen {
    let added = (0..lines).map(|line| format!("+added {line}\n")).collect::<Vec<_>>().concat();
    let detail = format!(
        "--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-one\n+uno\u{1b}[2J\n@@ -9,0 +9,{lines} @@\n{added}"
    );
    let hunk = |[old_start, old_lines, new_start, new_lines]: [u64; 4], new_text: &str| {
        let (old_text, new_text) = ("one\n".to_owned(), new_text.to_owned());
        EditHunk { old_start, old_lines, new_start, new_lines, old_text, new_text }
    };
    let mut event = question("q1", &detail);
    if let Event::PermissionRequested { hunks, .. } = &mut event {
        *hunks = vec![
            hunk([1, 1, 1, 1], "uno\u{1b}[2J\n"),
            hunk([9, 0, 9, lines as u64], &"added\n".repeat(lines)),
        ];
    }
    let mut stage = TestScreen::with_task();
    stage.happens(event);
    show(&mut stage);
    stage
}

/// Draws the screen, and waits until keys count.
fn show(stage: &mut TestScreen) -> String {
    let screen = stage.screen(120, 30);
    stage.later(400);
    screen
}

/// Types a key that decides nothing. Returns the screen, when keys count again.
fn next(stage: &mut TestScreen, key: &str) -> String {
    assert_eq!(stage.types(key), [], "{key}");
    show(stage)
}

fn answer(hunks: &[HunkAnswer]) -> Effect {
    Effect::Answer(QuestionId::new("q1"), HumanDecision::Hunks(hunks.to_vec()))
}

#[test]
fn hunks_are_shown_and_answered_one_by_one() {
    let mut stage = asked(2);
    assert!(stage.screen(120, 30).contains("[h] hunk by hunk"));
    let screen = next(&mut stage, "h");
    for part in ["hunk 1 of 2", "1 -one", "1 +uno\\u{1b}[2J", KEYS] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("added") && !screen.contains("[s]"), "{screen}");
    let screen = next(&mut stage, "n");
    assert!(screen.contains("hunk 2 of 2") && screen.contains("+added 1"), "{screen}");
    assert!(!screen.contains("uno"), "{screen}");
    assert_eq!(stage.types("y"), [answer(&[HunkAnswer::No, HunkAnswer::Yes])]);
    assert!(!stage.screen(120, 30).contains("hunk"));
}

#[test]
fn early_keys_answer_no_hunk_and_are_no_text() {
    let mut stage = asked(2);
    assert_eq!(stage.types("h"), []);
    for _ in 0..50 {
        stage.screen(120, 30);
        assert_eq!(stage.types("y"), [], "a key that is held down");
        stage.later(30);
    }
    assert!(show(&mut stage).contains("hunk 1 of 2"));
    assert!(next(&mut stage, "7").contains("not offered"));
    assert!(next(&mut stage, "y").contains("hunk 2 of 2"));
    assert!(stage.app.composer.is_empty());
}

#[test]
fn hunk_and_rest_that_were_not_shown_are_not_taken() {
    let mut stage = asked(80);
    assert!(stage.screen(120, 30).contains("End shows the end; then you can allow it"));
    assert!(next(&mut stage, "h").contains("hunk 1 of 2"));
    assert!(next(&mut stage, "a").contains("not all of it was shown yet"));
    let screen = next(&mut stage, "y");
    assert!(screen.contains("End shows the end; then you can take it · [n] leave"), "{screen}");
    for key in ["y", "e", "a"] {
        assert!(next(&mut stage, key).contains("hunk 2 of 2"), "{key}");
    }
    stage.presses(KeyEvent::from(KeyCode::End));
    assert!(show(&mut stage).contains(KEYS));
    assert_eq!(stage.types("y"), [answer(&[HunkAnswer::Yes, HunkAnswer::Yes])]);
    // Once the whole change was shown, the rest can be taken.
    let mut stage = asked(80);
    stage.presses(KeyEvent::from(KeyCode::End));
    show(&mut stage);
    next(&mut stage, "h");
    assert_eq!(stage.types("a"), [answer(&[HunkAnswer::Yes, HunkAnswer::Yes])]);
}

#[test]
fn back_and_escape_return_to_the_whole_request() {
    let mut stage = asked(2);
    for back in [KeyCode::Char('q'), KeyCode::Esc] {
        next(&mut stage, "h");
        next(&mut stage, "n");
        assert_eq!(stage.presses(KeyEvent::from(back)), []);
        let screen = show(&mut stage);
        assert!(screen.contains("[y] yes, once") && screen.contains("uno"), "{screen}");
    }
    assert!(next(&mut stage, "h").contains("hunk 1 of 2"), "the answers were dropped");
    next(&mut stage, "q");
    let allowed = HumanDecision::Allow(posse_actors::event::Scope::Once);
    assert_eq!(stage.types("y"), [Effect::Answer(QuestionId::new("q1"), allowed)]);
}

#[test]
fn hunk_is_taken_as_the_editor_leaves_it() {
    let mut stage = asked(2);
    next(&mut stage, "h");
    let draft = EditorDraft { text: "uno\u{1b}[2J\n".to_owned(), extension: "rs".to_owned() };
    assert_eq!(stage.types("e"), [Effect::EditHunk(draft)]);
    // Without a text, because the editor failed, the hunk stays open.
    assert!(show(&mut stage).contains("hunk 1 of 2"));
    assert_eq!(stage.app.set_hunk("\0".to_owned()), None);
    assert!(show(&mut stage).contains("a NUL"));
    assert_eq!(stage.app.set_hunk("mine\n".to_owned()), None);
    assert!(show(&mut stage).contains("hunk 2 of 2"));
    assert_eq!(stage.types("e").len(), 1);
    let decided = stage.app.set_hunk("added\nadded\n".to_owned());
    let answers = vec![HunkAnswer::Replace("mine\n".to_owned()), HunkAnswer::Yes];
    assert_eq!(decided, Some((QuestionId::new("q1"), HumanDecision::Hunks(answers))));
    assert!(!stage.screen(120, 30).contains("hunk"));
}
