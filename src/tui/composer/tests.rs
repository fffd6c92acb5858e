//! Tests of the prompt editor and its cursor.

use proptest::prelude::*;

use super::*;
use crate::testing::text_of_row;

const EDITS: [EditAction; 17] = [
    EditAction::Newline,
    EditAction::Left,
    EditAction::Right,
    EditAction::Up,
    EditAction::Down,
    EditAction::WordLeft,
    EditAction::WordRight,
    EditAction::LineStart,
    EditAction::LineEnd,
    EditAction::Backspace,
    EditAction::Delete,
    EditAction::KillWord,
    EditAction::KillWordRight,
    EditAction::KillToStart,
    EditAction::KillToEnd,
    EditAction::Yank,
    EditAction::Undo,
];

fn with(text: &str, edits: &[EditAction]) -> String {
    let mut composer = Composer::default();
    composer.set(text);
    for edit in edits {
        composer.edit(*edit);
    }
    composer.write('|');
    composer.take()
}

#[test]
fn edit_actions_work_as_usual() {
    use EditAction::*;
    let table: &[(&str, &[EditAction], &str)] = &[
        ("one two", &[Left], "one tw|o"),
        ("one two", &[WordLeft], "one |two"),
        ("one two", &[WordLeft, WordLeft, WordRight], "one| two"),
        ("one two", &[LineStart], "|one two"),
        ("a\nb", &[LineStart], "a\n|b"),
        ("one two", &[KillWord], "one |"),
        ("one two", &[KillWord, Yank], "one two|"),
        ("one two", &[LineStart, KillToEnd], "|"),
        ("one two", &[KillToStart, Undo], "one two|"),
        ("abc\nde", &[Up], "ab|c\nde"),
        ("abc\nde", &[Up, Down], "abc\nde|"),
        ("ab\ncde", &[Up], "ab|\ncde"),
        ("e\u{301}x", &[Left, Backspace], "|x"),
        ("日本", &[Backspace], "日|"),
        ("ab", &[LineStart, Delete], "|b"),
        ("a\nb", &[LineStart, Backspace], "a|b"),
        ("a\nb", &[Up, LineEnd, KillToEnd], "a|b"),
    ];
    for (text, edits, expected) in table {
        assert_eq!(with(text, edits), *expected, "{text:?} {edits:?}");
    }
}

#[test]
fn long_paste_is_a_placeholder_and_sent_completely() {
    let mut composer = Composer::default();
    let long = "line\n".repeat(20);
    composer.write('a');
    composer.paste(&long);
    composer.write('b');
    assert_eq!(composer.shown(), "a[paste 1: 20 lines]b");
    assert_eq!(composer.take(), format!("a{long}b"));
    composer.paste("short\npaste");
    assert_eq!(composer.shown(), "short\npaste");
    let huge = "x".repeat(10 << 20);
    composer.set("");
    composer.paste(&huge);
    assert_eq!(composer.take().len(), huge.len());
}

#[test]
fn cursor_is_at_the_insertion_point() {
    let mut composer = Composer::default();
    composer.set("日本語 text\nsecond");
    let (rows, cursor) = composer.rows(12, 10, "", Theme::PLAIN);
    let rows: Vec<String> = rows.iter().map(text_of_row).collect();
    assert_eq!(rows, ["❯ 日本語 te", "  xt", "  second"]);
    assert_eq!(cursor, (8, 2));
}

proptest! {
    #[test]
    fn any_sequence_of_edits_is_safe(
        text in "([a-z日é ]|\n){0,40}",
        edits in prop::collection::vec(prop::sample::select(EDITS.to_vec()), 0..40),
        columns in 4usize..40,
        rows_max in 1usize..10,
    ) {
        let mut composer = Composer::new(&["before".to_owned()]);
        composer.paste(&text);
        for edit in edits {
            composer.edit(edit);
            let (rows, cursor) = composer.rows(columns, rows_max, "hint", Theme::PLAIN);
            prop_assert!(rows.len() <= rows_max.max(1));
            prop_assert!(cursor.1 < rows.len(), "{cursor:?} in {} rows", rows.len());
        }
    }
}

#[test]
fn pasted_image_names_are_recognised() {
    let table = [
        ("/tmp/a.png", true),
        (" '/tmp/a shot.JPG' \n", true),
        ("file:///tmp/a.webp", true),
        ("/tmp/a\\ b.jpeg", true),
        ("a.gif", true),
        (".png", false),
        ("a.png\nb.png", false),
        ("see a.png for that", false),
        ("a.svg", false),
        ("", false),
    ];
    for (text, expected) in table {
        assert_eq!(may_be_image(text), expected, "{text:?}");
    }
    assert!(!may_be_image(&format!("{}.png", "x".repeat(5000))));
}

#[test]
fn image_is_removed_with_its_placeholder() {
    let image = |url: &str| ContentPart::ImageUrl { url: url.to_owned(), detail: None };
    let mut composer = Composer::default();
    assert!(composer.attach("'/tmp/a shot.png'", image("one")));
    composer.write(' ');
    assert!(composer.attach("b.png", image("two")));
    assert_eq!(composer.shown(), "[image 1: a shot.png] [image 2: b.png]");
    // An image without its placeholder is not sent.
    composer.edit(EditAction::KillToStart);
    assert!(composer.attach("c.png", image("three")));
    assert_eq!(composer.take(), "[image 3: c.png]");
    assert_eq!(composer.take_images(), [image("three")]);
    assert_eq!(composer.take_images(), []);
    for nth in 0..12 {
        assert_eq!(composer.attach("d.png", image("four")), nth < 10, "{nth}");
    }
    composer.take();
    assert_eq!(composer.take_images().len(), 10);
}

#[test]
fn restored_text_precedes_the_current_text() {
    let mut composer = Composer::default();
    let long = "line\n".repeat(20);
    composer.paste(&long);
    composer.restore_text("first");
    assert_eq!(composer.expanded_text(), format!("first\n{long}"));
    assert_eq!(composer.take(), format!("first\n{long}"));
}
