//! Hunks of an edit are shown one after another, and answered line by line.

use std::fs;

use posse_actors::event::{EditHunk, Event, HunkAnswer};

use super::*;
use crate::question::{AnswerLine, NOT_SEEN, TerminalQuestions, tests as request};

/// A diff whose second hunk has `lines` added lines, and its hunks.
fn change(lines: usize) -> (String, Vec<EditHunk>) {
    let added: String = (0..lines).map(|_| "+a\n").collect();
    let detail = format!(
        "--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-one\n+1\u{1b}[2J\n@@ -9,0 +9,{lines} @@\n{added}"
    );
    let hunk = |[old_start, old_lines, new_start, new_lines]: [u64; 4], new_text: &str| {
        let (old_text, new_text) = ("one\n".to_owned(), new_text.to_owned());
        EditHunk { old_start, old_lines, new_start, new_lines, old_text, new_text }
    };
    let hunks = vec![
        hunk([1, 1, 1, 1], "1\u{1b}[2J\n"),
        hunk([9, 0, 9, lines as u64], &"a\n".repeat(lines)),
    ];
    (detail, hunks)
}

/// A request about a change, with its text, after the silence.
fn asked(lines: usize) -> (TerminalQuestions, String) {
    let (detail, offered) = change(lines);
    let mut event = request::question(&detail, &[posse_actors::event::Scope::Once]);
    if let Event::PermissionRequested { hunks, .. } = &mut event {
        *hunks = offered;
    }
    let mut questions = TerminalQuestions::default();
    let text = questions.follow(&event).unwrap();
    let keys = questions.quiet().unwrap();
    (questions, text + &keys)
}

/// Types a line, and waits for silence if a page is shown. Returns the shown text.
fn types(questions: &mut TerminalQuestions, line: &str) -> String {
    let text = match questions.decide(line) {
        Some(AnswerLine::Unclear(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    text + &questions.quiet().unwrap_or_default()
}

fn decided(answered: Option<AnswerLine>) -> Vec<HunkAnswer> {
    match answered {
        Some(AnswerLine::Decided(_, HumanDecision::Hunks(answers))) => answers,
        other => panic!("{other:?}"),
    }
}

const KEYS: &str = "[y] take  [n] leave  [e] editor  [a] take this and the rest  [q] back: ";

#[test]
fn hunks_are_answered_one_after_another() {
    let (mut questions, text) = asked(2);
    assert!(text.ends_with("  allow? [y] once  [h] hunk by hunk  [N] no: "), "{text}");
    let text = types(&mut questions, "h");
    insta::assert_snapshot!(text, @r"

      hunk 1 of 2
      │ @@ -1 +1 @@
      │ -one
      │ +1\u{1b}[2J
      [y] take  [n] leave  [e] editor  [a] take this and the rest  [q] back: 
    ");
    for wrong in ["x", "", "h", "yes!"] {
        assert!(types(&mut questions, wrong).contains("that is no answer"), "{wrong}");
    }
    let text = types(&mut questions, "n");
    assert!(text.contains("\n  hunk 2 of 2\n") && text.ends_with(KEYS), "{text}");
    assert_eq!(decided(questions.decide("y")), [HunkAnswer::No, HunkAnswer::Yes]);
    assert!(!questions.any_open());
}

#[test]
fn back_answers_the_request_as_a_whole() {
    let (mut questions, _) = asked(2);
    types(&mut questions, "h");
    types(&mut questions, "n");
    let text = types(&mut questions, "q");
    assert!(text.ends_with("  allow? [y] once  [h] hunk by hunk  [N] no: "), "{text}");
    // The answers so far are dropped.
    assert!(types(&mut questions, "H").contains("hunk 1 of 2"));
    assert_eq!(decided(questions.decide("a")), [HunkAnswer::Yes, HunkAnswer::Yes]);
}

#[test]
fn input_before_the_silence_answers_no_hunk() {
    let (mut questions, _) = asked(2);
    for line in ["h", "y"] {
        assert!(matches!(questions.decide(line), Some(AnswerLine::Unclear(_))));
        for early in ["y", "n", "e", "a", "q", ""] {
            let ignored = questions.decide(early);
            assert!(matches!(&ignored, Some(AnswerLine::Unclear(text)) if text.is_empty()));
        }
        assert!(questions.decide("look at the other file").is_none());
        questions.quiet().unwrap();
    }
    assert_eq!(decided(questions.decide("n")), [HunkAnswer::Yes, HunkAnswer::No]);
}

#[test]
fn hunk_that_was_not_shown_is_not_taken() {
    let (mut questions, text) = asked(300);
    assert!(text.ends_with("lines left)  [h] hunk by hunk  [N] no: "), "{text}");
    let text = types(&mut questions, "h");
    assert!(text.ends_with(KEYS), "the first hunk is short: {text}");
    // The rest was not shown.
    assert!(types(&mut questions, "a").contains(NOT_SEEN));
    let text = types(&mut questions, "y");
    assert!(text.ends_with("  [Enter] more  [n] leave  [q] back: "), "{text}");
    for early in ["y", "a", "e"] {
        assert!(types(&mut questions, early).contains(NOT_SEEN), "{early}");
    }
    let text = types(&mut questions, "q");
    assert!(text.contains("[Enter] more (") && text.contains("[h] hunk by hunk"), "{text}");
    assert!(types(&mut questions, "y").contains(NOT_SEEN), "the request is not seen either");
    types(&mut questions, "h");
    types(&mut questions, "n");
    let text = types(&mut questions, "");
    assert!(text.ends_with(KEYS), "{text}");
    assert_eq!(decided(questions.decide("y")), [HunkAnswer::No, HunkAnswer::Yes]);
}

#[test]
fn hunk_is_changed_in_a_file() {
    let (mut questions, _) = asked(2);
    types(&mut questions, "h");
    let text = types(&mut questions, "e");
    let path = text.split(" in ").nth(1).unwrap().split(" and save").next().unwrap().to_owned();
    assert_eq!(std::path::Path::new(&path).extension().unwrap(), "rs");
    assert!(text.contains("[y] take it as saved"), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\u{1b}[2J\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    for (bytes, why) in [(&b"\xff"[..], "is not valid UTF-8"), (b"\0", "NUL")] {
        fs::write(&path, bytes).unwrap();
        assert!(types(&mut questions, "y").contains(why));
    }
    fs::write(&path, "mine\n").unwrap();
    assert!(types(&mut questions, "y").contains("hunk 2 of 2"));
    assert!(!fs::exists(&path).unwrap(), "the file is removed");
    // An unchanged text takes the hunk.
    types(&mut questions, "e");
    let answers = [HunkAnswer::Replace("mine\n".to_owned()), HunkAnswer::Yes];
    assert_eq!(decided(questions.decide("a")), answers);
}
