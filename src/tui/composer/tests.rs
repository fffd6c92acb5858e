//! What is written, and where the cursor is in it.

use proptest::prelude::*;

use super::*;
use crate::tui::testing::text_of_row;

const EDITS: [Edit; 17] = [
    Edit::Newline,
    Edit::Left,
    Edit::Right,
    Edit::Up,
    Edit::Down,
    Edit::WordLeft,
    Edit::WordRight,
    Edit::LineStart,
    Edit::LineEnd,
    Edit::Backspace,
    Edit::Delete,
    Edit::KillWord,
    Edit::KillWordRight,
    Edit::KillToStart,
    Edit::KillToEnd,
    Edit::Yank,
    Edit::Undo,
];

fn with(text: &str, edits: &[Edit]) -> String {
    let mut composer = Composer::default();
    composer.set(text);
    for edit in edits {
        composer.edit(*edit);
    }
    composer.write('|');
    composer.take()
}

#[test]
fn keys_do_what_they_do_elsewhere() {
    use Edit::*;
    let table: &[(&str, &[Edit], &str)] = &[
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
fn a_long_paste_is_a_mark_and_sent_whole() {
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
fn the_cursor_is_where_the_next_character_comes() {
    let mut composer = Composer::default();
    composer.set("日本語 text\nsecond");
    let (rows, cursor) = composer.rows(12, 10, "", Theme::Plain);
    let rows: Vec<String> = rows.iter().map(text_of_row).collect();
    assert_eq!(rows, ["❯ 日本語 te", "  xt", "  second"]);
    assert_eq!(cursor, (8, 2));
}

proptest! {
    #[test]
    fn nothing_that_is_done_breaks_it(
        text in "([a-z日é ]|\n){0,40}",
        edits in prop::collection::vec(prop::sample::select(EDITS.to_vec()), 0..40),
        columns in 4usize..40,
        rows_max in 1usize..10,
    ) {
        let mut composer = Composer::new(&["before".to_owned()]);
        composer.paste(&text);
        for edit in edits {
            composer.edit(edit);
            let (rows, cursor) = composer.rows(columns, rows_max, "hint", Theme::Plain);
            prop_assert!(rows.len() <= rows_max.max(1));
            prop_assert!(cursor.1 < rows.len(), "{cursor:?} in {} rows", rows.len());
        }
    }
}

#[test]
fn names_of_images_are_known_as_terminals_paste_them() {
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
fn an_image_goes_with_its_mark() {
    let image = |url: &str| ContentPart::ImageUrl { url: url.to_owned(), detail: None };
    let mut composer = Composer::default();
    assert!(composer.attach("'/tmp/a shot.png'", image("one")));
    composer.write(' ');
    assert!(composer.attach("b.png", image("two")));
    assert_eq!(composer.shown(), "[image 1: a shot.png] [image 2: b.png]");
    // Without its mark it goes nowhere.
    composer.edit(Edit::KillToStart);
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
fn what_comes_back_stands_before_what_is_written() {
    let mut composer = Composer::default();
    let long = "line\n".repeat(20);
    composer.paste(&long);
    composer.bring_back("first");
    assert_eq!(composer.whole(), format!("first\n{long}"));
    assert_eq!(composer.take(), format!("first\n{long}"));
}
