//! Any choice of hunks makes exactly these, and the rest of the file stays.

use std::cell::Cell;

use posse_actors::conversation::text_of;
use posse_actors::event::{EditHunk, HunkAnswer};
use posse_actors::ports::{Prepared, ToolOutput};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::testing::ToolFixture;

const YES: HunkAnswer = HunkAnswer::Yes;
const NO: HunkAnswer = HunkAnswer::No;

fn replace(text: &str) -> HunkAnswer {
    HunkAnswer::Replace(text.to_owned())
}

fn write(desk: &ToolFixture, content: &str) -> Prepared {
    desk.prepare("write_file", &json!({"path": "f", "content": content})).unwrap()
}

/// Runs the prepared call `tool` with the hunks that `answers` choose.
fn run(desk: &ToolFixture, tool: &str, prepared: Prepared, answers: &[HunkAnswer]) -> ToolOutput {
    desk.run(tool, desk.choose(tool, prepared, answers).unwrap())
}

/// `before` with the chosen hunks, by their line numbers.
fn patched(before: &str, hunks: &[EditHunk], answers: &[HunkAnswer]) -> String {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let (mut after, mut next) = (String::new(), 0);
    for (hunk, answer) in hunks.iter().zip(answers) {
        let count = usize::try_from(hunk.old_lines).unwrap();
        let start = usize::try_from(hunk.old_start).unwrap() - usize::from(count > 0);
        after.extend(lines[next..start].iter().copied());
        let old = lines[start..start + count].concat();
        assert_eq!(old, hunk.old_text);
        match answer {
            HunkAnswer::Yes => after.push_str(&hunk.new_text),
            HunkAnswer::No => after.push_str(&old),
            HunkAnswer::Replace(text) => after.push_str(text),
        }
        next = start + count;
    }
    after.extend(lines[next..].iter().copied());
    after
}

/// A text of up to 100 lines, and the same with some lines removed, replaced and added, so that it
/// has several hunks. The last line may have no end.
fn texts() -> impl Strategy<Value = (String, String)> {
    let line = prop_oneof![4 => Just("a"), 4 => Just("b"), 1 => Just(""), 1 => Just("ä\t")];
    let change = prop_oneof![30 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    let lines = prop::collection::vec((line, change), 0..100);
    (lines, any::<bool>(), any::<bool>()).prop_map(|(lines, ends, ended)| {
        let text = |lines: Vec<&str>, ends: bool| {
            let text = lines.join("\n");
            if ends && !text.is_empty() { text + "\n" } else { text }
        };
        let changed = |(line, change): &(&'static str, i32)| match change {
            1 => vec![],
            2 => vec!["other"],
            3 => vec!["new", *line],
            _ => vec![*line],
        };
        let before = lines.iter().map(|(line, _)| *line).collect();
        (text(before, ends), text(lines.iter().flat_map(changed).collect(), ended))
    })
}

#[test]
fn any_choice_of_hunks_makes_exactly_these() {
    let desk = ToolFixture::new();
    let (many, files) = (Cell::new(0), Cell::new(0));
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let choice = prop::collection::vec(0..3_u8, 100);
    let cases = (texts(), any::<bool>(), choice);
    let property = |((before, after), crlf, choice): ((String, String), bool, Vec<u8>)| {
        let with_ends =
            |text: &str| if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
        let (before, after) = (with_ends(&before), with_ends(&after));
        // A file of its own for each run: an agent has to read a file again that others change.
        let runs = |answers: Option<&[HunkAnswer]>| {
            files.set(files.get() + 1);
            let file = format!("f{}", files.get());
            desk.put(&file, &before);
            let call = json!({"path": file, "content": after});
            let prepared = desk.prepare("write_file", &call).unwrap();
            let hunks = desk.hunks("write_file", &prepared);
            if let Some(answers) = answers {
                run(&desk, "write_file", prepared, answers);
            }
            (hunks, String::from_utf8(desk.get(&file)).unwrap())
        };
        let (hunks, _) = runs(None);
        prop_assert_eq!(hunks.is_empty(), before == after);
        if hunks.is_empty() {
            return Ok(());
        }
        many.set(many.get() + usize::from(hunks.len() > 2));
        prop_assert_eq!(&runs(Some(&vec![YES; hunks.len()])).1, &after);
        prop_assert_eq!(&runs(Some(&vec![NO; hunks.len()])).1, &before);
        // A text of whole lines, or none.
        let end = if crlf { "\r\n" } else { "\n" };
        let texts = [String::new(), format!("x{end}"), format!("a{end}ü{end}")];
        let answer = |(nth, choice): (usize, &u8)| match choice {
            0 => YES,
            1 => NO,
            _ => HunkAnswer::Replace(texts[nth % texts.len()].clone()),
        };
        let answers: Vec<_> = choice.iter().take(hunks.len()).enumerate().map(answer).collect();
        let expected = patched(&before, &hunks, &answers);
        prop_assert_eq!(runs(Some(&answers)).1, expected);
        Ok(())
    };
    runner.run(&cases, property).unwrap();
    assert!(many.get() > 20, "only {} cases had several hunks", many.get());
}

/// Lines `1` to `count`, each with a prefix.
fn numbered(count: usize, end: &str) -> String {
    (1..=count).map(|number| format!("line {number}{end}")).collect::<Vec<_>>().concat()
}

/// An edit of lines 2, 20 and 40.
fn three_edits() -> Value {
    let edit =
        |line: usize, new: &str| json!({"oldString": format!("line {line}\n"), "newString": new});
    json!({"path": "f", "edits": [
        edit(2, "second\n"), edit(20, "twentieth\nand more\n"), edit(40, ""),
    ]})
}

#[test]
fn model_reads_what_was_left_out_and_what_the_user_wrote() {
    let desk = ToolFixture::new();
    desk.put("f", numbered(50, "\n"));
    let prepared = desk.prepare("multi_edit", &three_edits()).unwrap();
    let hunks = desk.hunks("multi_edit", &prepared);
    let starts: Vec<_> = hunks.iter().map(|hunk| (hunk.old_start, hunk.new_start)).collect();
    assert_eq!(starts, [(1, 1), (17, 17), (37, 38)]);
    let text = hunks[1].new_text.replace("and more", "and much more");
    let output = run(&desk, "multi_edit", prepared, &[YES, replace(&text), NO]);
    let told = text_of(&output.content);
    insta::assert_snapshot!(told, @r"
    updated f (+3 -2, 407 bytes)
    note: 2 of 3 hunks applied, as the user chose. Not applied: hunk 3 (line 41)
    note: the user wrote another text; how the file differs from yours:
    @@ -18,7 +18,7 @@
     line 18
     line 19
     twentieth
    -and more
    +and much more
     line 21
     line 22
     line 23
    ");
    assert_eq!((&output.metadata["added"], &output.metadata["removed"]), (&json!(3), &json!(2)));
    let now = desk.get("f");
    assert_eq!(output.metadata["after"], posse_base::hex::sha256(&now));
    let before = posse_base::hex::sha256(numbered(50, "\n").as_bytes());
    assert_eq!(output.metadata["before"], before);
    let now = String::from_utf8(now).unwrap();
    assert!(now.contains("second\n") && now.contains("and much more\nline 21\n"), "{now}");
    assert!(now.contains("line 40\n") && !now.contains("line 2\n"), "{now}");
}

#[test]
fn all_hunks_are_the_whole_edit_with_its_notes() {
    let (whole, chosen) = (ToolFixture::new(), ToolFixture::new());
    for desk in [&whole, &chosen] {
        desk.put("f", numbered(50, "\r\n"));
    }
    let expected = whole.ask("multi_edit", &three_edits());
    let prepared = chosen.prepare("multi_edit", &three_edits()).unwrap();
    // The text of the model, without its carriage returns, is no other text.
    let texts: Vec<_> = chosen.hunks("multi_edit", &prepared);
    let same = replace(&texts[1].new_text.replace('\r', ""));
    let output = run(&chosen, "multi_edit", prepared, &[YES, same, YES]);
    assert_eq!(text_of(&output.content), expected);
    assert_eq!(chosen.get("f"), whole.get("f"));
}

#[test]
fn text_of_the_user_keeps_line_ends_and_whole_lines() {
    for (end, last, typed, written) in [
        ("\r\n", "", "x\ny", "x\r\ny\r\n"),
        ("\r\n", "", "x\r\ny\r\n", "x\r\ny\r\n"),
        ("\n", "", "x", "x\n"),
        ("\n", "end", "x", "x\n"),
        ("\n", "end", "", ""),
    ] {
        let desk = ToolFixture::new();
        let before = numbered(30, end) + last;
        desk.put("f", &before);
        let after = before.replace(&format!("line 5{end}"), &format!("fifth{end}"));
        let prepared = write(&desk, &after);
        let hunk = desk.hunks("write_file", &prepared).remove(0);
        run(&desk, "write_file", prepared, &[replace(typed)]);
        let expected = before.replace(&hunk.old_text, written);
        assert_eq!(String::from_utf8(desk.get("f")).unwrap(), expected, "{typed:?}");
    }
    // The last line of a file may have no end.
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\n");
    run(&desk, "write_file", write(&desk, "a\nc\n"), &[replace("a\nd")]);
    assert_eq!(desk.get("f"), b"a\nd");
}

#[test]
fn fuzzy_edit_is_chosen_like_an_exact_one() {
    let desk = ToolFixture::set(|env| env.fuzzy_edit = true);
    let before = numbered(20, "\n") + "say “hi”  \n" + &numbered(20, "\n");
    desk.put("f", &before);
    let edits = json!({"path": "f", "edits": [
        {"oldString": "say \"hi\"", "newString": "say bye"},
        {"oldString": "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n", "newString": "", "replaceAll": true},
    ]});
    let prepared = desk.prepare("multi_edit", &edits).unwrap();
    assert_eq!(desk.hunks("multi_edit", &prepared).len(), 2, "the second and the third touch");
    let output = run(&desk, "multi_edit", prepared, &[NO, YES]);
    assert_eq!(output.metadata["fuzzy"], true);
    let now = String::from_utf8(desk.get("f")).unwrap();
    assert!(now.starts_with("line 1\nline 2\n") && now.contains("say bye"), "{now}");
    assert_eq!(now.matches("line 1\n").count(), 1);
}

#[test]
fn choice_with_the_old_text_changes_nothing() {
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\n");
    let prepared = write(&desk, "a\nc\n");
    let told = text_of(&run(&desk, "write_file", prepared, &[replace("a\nb\n")]).content);
    assert_eq!(
        told,
        "f is unchanged: it has exactly this content already\nnote: 0 of 1 hunk applied, as the \
         user chose. Not applied: hunk 1 (line 2)"
    );
    assert_eq!(desk.get("f"), b"a\nb\n");
}

#[test]
fn file_that_changed_since_the_question_is_not_written() {
    let desk = ToolFixture::new();
    desk.put("f", numbered(50, "\n"));
    let prepared = desk.prepare("multi_edit", &three_edits()).unwrap();
    let prepared = desk.choose("multi_edit", prepared, &[YES, NO, NO]).unwrap();
    assert_eq!(prepared.action.summary, "edit f (+1 -1), 1 of 3 hunks");
    desk.put("f", "other\n");
    let told = text_of(&desk.run("multi_edit", prepared).content);
    assert!(told.starts_with("EDT004 f changed meanwhile"), "{told}");
    assert_eq!(desk.get("f"), b"other\n");
}

#[test]
fn agent_knows_the_file_after_a_choice() {
    let desk = ToolFixture::set(|env| env.require_read = true);
    desk.put("f", numbered(50, "\n"));
    desk.ask("read_file", &json!({"path": "f"}));
    let prepared = desk.prepare("multi_edit", &three_edits()).unwrap();
    run(&desk, "multi_edit", prepared, &[YES, NO, NO]);
    let next = json!({"path": "f", "oldString": "second", "newString": "2nd"});
    assert!(desk.ask("edit_file", &next).starts_with("updated f"));
}

#[test]
fn hunks_that_are_not_those_of_the_call_are_refused() {
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\n");
    for answers in [&[][..], &[YES, YES]] {
        let refused = desk.choose("write_file", write(&desk, "a\nc\n"), answers).unwrap_err();
        assert_eq!(refused.code, "EDT008");
    }
    let refusal = json!({"path": "f", "oldString": "none", "newString": "x"});
    let prepared = desk.prepare("edit_file", &refusal).unwrap();
    assert_eq!(desk.hunks("edit_file", &prepared), []);
    assert_eq!(desk.choose("edit_file", prepared, &[YES]).unwrap_err().code, "EDT008");
    let read = desk.prepare("read_file", &json!({"path": "f"})).unwrap();
    assert_eq!(desk.hunks("read_file", &read), []);
    assert_eq!(desk.choose("read_file", read, &[YES]).unwrap_err().code, "EDT008");
    assert_eq!(desk.get("f"), b"a\nb\n");
}

#[test]
fn hunks_are_offered_for_bounded_changes_of_text_only() {
    let long = "x".repeat(40 << 10);
    let tenth = |count: usize| {
        let changed = |line: usize| line.is_multiple_of(10) && line / 10 < count;
        let line = |line| if changed(line) { format!("{line}!\n") } else { format!("{line}\n") };
        (0..1000).map(line).collect::<Vec<_>>().concat()
    };
    let many = tenth(0);
    for (before, after, offered) in [
        (Some(&b"a\n"[..]), "b\n", 1),
        (None, "new\n", 0),
        (Some(b"a\n"), "a\n", 0),
        (Some(b"\0a\n"), "b\n", 0),
        (Some(b"\xff\n"), "b\n", 0),
        // The diff is cut.
        (Some(b"a\n"), &format!("{long}\n{long}\n"), 0),
        (Some(many.as_bytes()), &tenth(100), 100),
        (Some(many.as_bytes()), &(tenth(99) + "end\n"), 100),
        (Some(many.as_bytes()), &(tenth(100) + "end\n"), 0),
    ] {
        let desk = ToolFixture::new();
        before.map(|before| desk.put("f", before));
        let hunks = desk.hunks("write_file", &write(&desk, after));
        let beginning: String = after.chars().take(20).collect();
        assert_eq!(hunks.len(), offered, "{beginning}");
    }
    // Bytes that are no text do not matter outside of the hunks.
    let desk = ToolFixture::new();
    let before = [b"\xff\n", numbered(30, "\n").as_bytes()].concat();
    desk.put("f", &before);
    let edit = json!({"path": "f", "oldString": "line 30", "newString": "last"});
    let prepared = desk.prepare("edit_file", &edit).unwrap();
    assert_eq!(desk.hunks("edit_file", &prepared).len(), 1);
    run(&desk, "edit_file", prepared, &[YES]);
    assert!(desk.get("f").starts_with(b"\xff\nline 1\n") && desk.get("f").ends_with(b"last\n"));
}
