//! Edits that match, edits that do not, and the bytes that must stay unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use posse_actors::ports::Operation;
use proptest::prelude::*;

use super::matching::{Edited, TooLarge};
use super::*;
use crate::testing::ToolFixture;

fn edit(desk: &ToolFixture, old: &str, new: &str) -> String {
    desk.ask("edit_file", &json!({ "path": "f", "oldString": old, "newString": new }))
}

fn replace(file: &[u8], old: &str, new: &str) -> Option<Edited> {
    matching::replace(file, old, new, usize::MAX).unwrap()
}

/// The bytes after an edit of `before`.
fn edited(before: &[u8], old: &str, new: &str) -> Option<Vec<u8>> {
    replace(before, old, new).map(|edited| edited.after)
}

#[test]
fn unique_text_is_replaced() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "one\ntwo\nthree\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(
        edit(&desk, "two\n", "2\n2b\n"),
        "updated f (+2 -1, 15 bytes)\nnote: 1 replacement at line 2"
    );
    assert_eq!(desk.get("f"), b"one\n2\n2b\nthree\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[test]
fn all_occurrences_are_replaced_on_request_only() {
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\na\na\n");
    assert_eq!(
        edit(&desk, "a", "x"),
        "EDT002 oldString is 3 times in f, at lines 1, 3, 4; set replaceAll, or include more \
         lines around the one that is meant"
    );
    let arguments = json!({ "path": "f", "oldString": "a", "newString": "x", "replaceAll": true });
    assert_eq!(
        desk.ask("edit_file", &arguments),
        "updated f (+3 -3, 8 bytes)\nnote: 3 replacements at lines 1, 3, 4"
    );
    assert_eq!(desk.get("f"), b"x\nb\nx\nx\n");
}

#[test]
fn overlapping_matches_are_ambiguous() {
    let desk = ToolFixture::new();
    desk.put("f", "}\n\n\n{");
    assert!(
        edit(&desk, "\n\n", "\n").starts_with("EDT002 oldString is 2 times in f, at lines 1, 2;")
    );
    assert!(edit(&desk, "}\n\n", "}\n").starts_with("updated f"));
}

#[test]
fn shows_the_nearest_place_if_there_is_no_match() {
    let desk = ToolFixture::new();
    desk.put("f", "fn main() {\n\tlet total = sum(1, 2); \n\tprintln!(\"{total}\");\n}\n");
    insta::assert_snapshot!(
        edit(&desk, "    let total = sum(1, 2);\n    println!(\"{total}\");", "x"), @r#"
    EDT001 oldString is not in f; the nearest is at lines 2-3 (shown with → for tabs, · for spaces at the ends, ␍ for CR):
    2	→let total = sum(1, 2);·
    3	→println!("{total}");
    line 2 is in oldString: ····let total = sum(1, 2);
    "#);
    insta::assert_snapshot!(edit(&desk, "let totel = sum(2, 2)", "x"), @r"
    EDT001 oldString is not in f; the nearest is at lines 2-2 (shown with → for tabs, · for spaces at the ends, ␍ for CR):
    2	→let total = sum(1, 2);·
    line 2 is in oldString: let totel = sum(2, 2)
    ");
    insta::assert_snapshot!(
        edit(&desk, "WHERE q IS NULL", "x"),
        @"EDT001 oldString is not in f, nor anything like it; read the file again"
    );
}

#[test]
fn edit_without_change_is_a_read_with_a_note() {
    let desk = ToolFixture::new();
    let path = desk.put("f", "a\nb\r\nb\n");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    for (old, new, why) in [
        ("a", "a", "oldString and newString are the same"),
        ("b", "b", "oldString and newString are the same"),
        ("a\nb\r\n", "a\nb\r\n", "oldString and newString are the same"),
        ("1\ta", "a", "the text of newString is there already"),
    ] {
        let arguments = json!({ "path": "f", "oldString": old, "newString": new });
        let prepared = desk.prepare("edit_file", &arguments).unwrap();
        assert!(matches!(prepared.action.operations[..], [Operation::Read { .. }]), "{old:?}");
        assert_eq!(
            edit(&desk, old, new),
            format!("f is unchanged: it has exactly this content already\nnote: {why}")
        );
    }
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    assert!(edit(&desk, "c", "c").starts_with("EDT001 "));
    assert_eq!(edit(&desk, "", "a"), "ARG001 oldString: must not be empty");
}

#[test]
fn binary_large_and_missing_files_are_refused() {
    let desk = ToolFixture::new();
    desk.put("f", "a\0b");
    assert_eq!(edit(&desk, "a", "b"), "EDT005 f is binary; change it with bash");
    let file = fs::File::create(desk.path("work/f")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    assert_eq!(edit(&desk, "a", "b"), "ARG003 f is larger than 64 MiB; change it with bash");
    fs::remove_file(desk.path("work/f")).unwrap();
    assert_eq!(edit(&desk, "a", "b"), "FIL001 f does not exist");
}

#[test]
fn inapplicable_edit_is_a_read() {
    let desk = ToolFixture::new();
    desk.put("f", "secret\n");
    for (old, writes) in [("secret", true), ("sekret", false)] {
        let arguments = json!({ "path": "f", "oldString": old, "newString": "x" });
        let action = desk.prepare("edit_file", &arguments).unwrap().action;
        assert_eq!(matches!(action.operations[..], [Operation::Write { .. }]), writes);
        assert_eq!(action.detail.is_empty(), !writes);
        assert_eq!(matches!(action.operations[..], [Operation::Read { .. }]), !writes);
    }
}

#[test]
fn file_changed_after_judgement_is_refused() {
    let desk = ToolFixture::new();
    let arguments = json!({ "path": "f", "oldString": "a", "newString": "b" });
    let path = desk.put("f", "a\n");
    let prepared = desk.prepare("edit_file", &arguments).unwrap();
    fs::write(&path, "a \n").unwrap();
    let output = desk.run("edit_file", prepared);
    assert!(output.is_error);
    assert_eq!(
        posse_actors::conversation::text_of(&output.content),
        "EDT004 f changed meanwhile: it was changed from outside, by a person, a command or a program; \
         read it again, then try again"
    );
    assert_eq!(desk.get("f"), b"a \n");
}

#[test]
fn lf_matches_crlf_and_keeps_it() {
    for (before, old, new, after) in [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a\r\nb\nc\n", "b\n", "x\ny\n", "a\r\nx\ny\nc\n"),
        ("a\r\nb\r\n", "\nb", "\nc", "a\r\nc\r\n"),
        ("a\nb\n", "a", "x\r\ny", "x\r\ny\nb\n"),
        ("a\r\nb\r\n", "a\r\nb", "a\nb", "a\nb\r\n"),
        ("\u{feff}a\r\n", "a", "b", "\u{feff}b\r\n"),
    ] {
        let result = edited(before.as_bytes(), old, new).unwrap();
        assert_eq!(String::from_utf8(result).unwrap(), after, "{before:?} {old:?}");
    }
}

#[test]
fn line_numbers_are_stripped_if_nothing_else_matches() {
    let edit = replace(b"a\n  b\nc\n", "2\t  b\n3\tc", "2\t  x\n3\ty").unwrap();
    let after = b"a\n  x\ny\n".to_vec();
    assert_eq!(edit, Edited { after, lines: vec![2], overlap: None, unnumbered: true });
    // A file of numbers is matched as it is.
    let edit = replace(b"2\tb\n", "2\tb", "2\tc").unwrap();
    let after = b"2\tc\n".to_vec();
    assert_eq!(edit, Edited { after, lines: vec![1], overlap: None, unnumbered: false });
    assert_eq!(replace(b"a\n", "x\ta", "y"), None);
}

#[test]
fn text_between_invalid_bytes_is_found() {
    assert_eq!(edited(b"\xff\xe2\x82a\xc3\xa9\xfe", "a\u{e9}", "b").unwrap(), b"\xff\xe2\x82b\xfe");
}

#[test]
fn edit_cannot_exceed_the_size_limit() {
    assert_eq!(matching::replace(b"aaaa", "a", "bbb", 11), Err(TooLarge));
    assert!(matching::replace(b"aaaa", "a", "bbb", 12).unwrap().is_some());
    assert!(matching::replace(b"aaaa", "aa", "b", 1).unwrap().is_some());
}

const TYPED: &str = "let a = \"x\" - 'y';\nlet b;\n";
const PRINTED: &str =
    "one\nlet a =\u{a0}\u{201c}x\u{201d} \u{2013} \u{2019}y\u{2018};  \nlet b;\nend\n";

#[test]
fn fuzzy_match_needs_the_setting() {
    let desk = ToolFixture::new();
    desk.put("f", PRINTED);
    assert!(
        edit(&desk, TYPED, "let c;\n").starts_with("EDT001 oldString is not in f; the nearest")
    );
    let desk = ToolFixture::set(|env| env.fuzzy_edit = true);
    desk.put("f", PRINTED);
    let arguments = json!({ "path": "f", "oldString": TYPED, "newString": "let c;\n" });
    let output = desk.call("edit_file", &arguments).unwrap();
    assert_eq!(output.metadata["fuzzy"], true);
    let text = posse_actors::conversation::text_of(&output.content);
    assert!(text.contains("note: fuzzy match: the text there differs"), "{text}");
    assert_eq!(desk.get("f"), b"one\nlet c;\nend\n");
    // An exact match is not reported as fuzzy.
    let output =
        desk.call("edit_file", &json!({ "path": "f", "oldString": "one", "newString": "1" }));
    assert!(output.unwrap().metadata.get("fuzzy").is_none());
}

#[test]
fn several_fuzzy_matches_are_ambiguous() {
    let desk = ToolFixture::set(|env| env.fuzzy_edit = true);
    desk.put("f", "a \u{2014} b\nx\na \u{2013} b\n");
    let arguments =
        json!({ "path": "f", "oldString": "a - b", "newString": "c", "replaceAll": true });
    let said = desk.ask("edit_file", &arguments);
    assert!(
        said.starts_with("EDT002 oldString is not in f, and nearly 2 times, at lines 1, 3;"),
        "{said}"
    );
    assert_eq!(
        edit(&desk, "zzz", "c"),
        "EDT001 oldString is not in f, nor anything like it; read the file again"
    );
}

#[test]
fn a_nearly_equal_text_covers_exactly_its_own_bytes() {
    let find = |file: &[u8], old: &str| {
        let found = fuzzy::find(file, old);
        found.iter().map(|range| file[range.clone()].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(find(b"x\r\na \t\r\nb\r\n", "a\nb\n"), [b"a \t\r\nb\r\n"]);
    assert_eq!(find(b"foo  \nbar", "foo\nbar"), [b"foo  \nbar"]);
    // Blanks at the end of the text mean the end of a line.
    assert_eq!(find(b"foobar\nfoo\n", "foo  "), [b"foo"]);
    assert_eq!(
        find(b"\xff\xe2\x80\x9ca\xe2\x80\x9d\xfe", "\"a\""),
        ["\u{201c}a\u{201d}".as_bytes()]
    );
    assert_eq!(find(b"a\xffb", "a\u{fffd}b"), Vec::<Vec<u8>>::new());
    assert_eq!(find(b"a  b", "a b"), Vec::<Vec<u8>>::new());
    assert_eq!(find(b"aXaXa", "aXa").len(), 2);
    assert_eq!(find(b"a \n \n", "  "), Vec::<Vec<u8>>::new());
}

/// Number of cases of a property.
fn cases() -> u32 {
    std::env::var("POSSE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
}

/// Realistic files: mixed line ends, byte order marks, tabs, no last newline, bytes of other
/// encodings.
fn any_file() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[abc \t]{0,6}".prop_map(String::into_bytes),
        3 => Just(b"\n".to_vec()),
        3 => Just(b"\r\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        1 => Just("é→".as_bytes().to_vec()),
        1 => prop::collection::vec(128..=255_u8, 1..3),
    ];
    (any::<bool>(), prop::collection::vec(piece, 0..24)).prop_map(|(mark, pieces)| {
        let mark = if mark { &b"\xef\xbb\xbf"[..] } else { b"" };
        [mark, &pieces.concat()].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Replaces some text of the file, in the form that a model sees.
    #[test]
    fn edit_leaves_all_other_bytes_unchanged(
        file in any_file(),
        from in 0..120_usize,
        length in 1..24_usize,
        new in "[xyz\n]{0,8}",
    ) {
        let from = from.min(file.len());
        let to = (from + length).min(file.len());
        let Ok(exact) = std::str::from_utf8(&file[from..to]) else { return Ok(()) };
        let seen = exact.replace("\r\n", "\n");
        if seen.is_empty() || seen.contains('\r') {
            return Ok(());
        }
        let edit = replace(&file, &seen, &new).expect("what is in the file is found");
        if edit.lines.len() == 1 && edit.overlap.is_none() {
            // CR before an LF with which the text starts belongs to the match.
            let from = from - usize::from(exact.starts_with('\n') && file[..from].ends_with(b"\r"));
            prop_assert!(edit.after.starts_with(&file[..from]));
            prop_assert!(edit.after.ends_with(&file[to..]));
            let middle = &edit.after[from..edit.after.len() - (file.len() - to)];
            let middle = String::from_utf8(middle.to_vec()).unwrap();
            prop_assert!(middle == new || middle == new.replace('\n', "\r\n"), "{middle:?}");
        }
    }

    /// Replacing a text by itself does not change a file without CR.
    #[test]
    fn replacing_text_by_itself_changes_nothing(file in any_file(), old in "[abc\n]{1,3}") {
        if let Some(after) = edited(&file, &old, &old)
            && !file.contains(&b'\r')
        {
            prop_assert_eq!(after, file);
        }
    }

    /// An approximate match is replaced, and the bytes around it stay.
    #[test]
    fn fuzzy_edit_leaves_all_other_bytes_unchanged(file in any_file(), old in "[abc\n ]{1,4}") {
        for range in fuzzy::find(&file, &old) {
            let after = matching::splice(&file, std::slice::from_ref(&range), "\u{2603}", true).after;
            prop_assert!(range.start < range.end && range.end <= file.len());
            prop_assert!(after.starts_with(&file[..range.start]));
            prop_assert!(after.ends_with(&file[range.end..]));
        }
    }

    #[test]
    fn describing_the_nearest_place_survives_anything(file in any_file(), old in ".{0,40}") {
        prop_assert!(nearest::describe(&file, &old).len() < 20_000);
    }
}
