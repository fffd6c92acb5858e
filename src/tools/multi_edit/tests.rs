//! A call applies all edits or none.

use serde_json::Value;

use super::*;
use crate::testing::ToolFixture;

fn ask(desk: &ToolFixture, edits: &[(&str, &str)]) -> String {
    let edits: Vec<Value> =
        edits.iter().map(|(old, new)| json!({ "oldString": old, "newString": new })).collect();
    desk.ask(NAME, &json!({ "path": "f", "edits": edits }))
}

#[test]
fn edits_apply_in_sequence() {
    let desk = ToolFixture::new();
    desk.put("f", "one\r\ntwo\r\nthree\r\n");
    assert_eq!(
        ask(&desk, &[("two", "2"), ("2\nthree", "2\n3\n4"), ("one", "1")]),
        "updated f (+4 -3, 12 bytes)\nnote: edits[0]: 1 replacement at line 2\nnote: edits[1]: 1 \
         replacement at line 2\nnote: edits[2]: 1 replacement at line 1"
    );
    assert_eq!(desk.get("f"), b"1\r\n2\r\n3\r\n4\r\n");
    let edits = json!([{ "oldString": "\n", "newString": ";\n", "replaceAll": true }]);
    desk.ask(NAME, &json!({ "path": "f", "edits": edits }));
    assert_eq!(desk.get("f"), b"1;\r\n2;\r\n3;\r\n4;\r\n");
}

#[test]
fn no_edit_applies_if_one_fails() {
    let desk = ToolFixture::new();
    let file = "alpha\nbeta\nbeta\ngamma\n";
    desk.put("f", file);
    for (edits, expected) in [
        (
            &[("alpha", "a"), ("nothing like it", "x")][..],
            "EDT001 edits[1]: oldString is not in f, nor anything like it; read the file again\n\
             none of the 2 edits was made",
        ),
        (
            &[("beta", "b"), ("alpha", "a")],
            "EDT002 edits[0]: oldString is 2 times in f, at lines 2, 3; set replaceAll, or include \
             more lines around the one that is meant\nnone of the 2 edits was made",
        ),
        (
            &[("alpha\nbeta", "A"), ("gamma", "g"), ("alpha", "a")],
            "EDT006 edits[2]: it overlaps edits[0], which changed the text that oldString is in f; \
             make one edit of both, or use the text as edits[0] leaves it\nnone of the 3 edits was \
             made",
        ),
        (
            &[("alpha", "omega"), ("omega", "alpha")],
            "f is unchanged: it has exactly this content already\nnote: edits[0]: 1 replacement at \
             line 1\nnote: edits[1]: 1 replacement at line 1\nnote: together the edits change \
             nothing",
        ),
        (
            &[("alpha", "alpha"), ("gamma", "gamma")],
            "f is unchanged: it has exactly this content already\nnote: edits[0]: oldString and \
             newString are the same\nnote: edits[1]: oldString and newString are the same\nnote: \
             together the edits change nothing",
        ),
        (&[], "ARG001 edits: must not be empty"),
        (&[("", "x")], "ARG001 edits[0].oldString: must not be empty"),
    ] {
        assert_eq!(ask(&desk, edits), expected);
        assert_eq!(desk.get("f"), file.as_bytes());
    }
}

#[test]
fn multi_edit_is_one_change_or_a_read() {
    use posse_actors::ports::Operation;
    let desk = ToolFixture::new();
    desk.put("f", "a\nb\n");
    let prepare = |second: &str| {
        let edits = json!([
            { "oldString": "a", "newString": "x" }, { "oldString": second, "newString": "y" }
        ]);
        desk.prepare(NAME, &json!({ "path": "f", "edits": edits })).unwrap().action
    };
    let action = prepare("b");
    assert_eq!((action.tool.as_str(), action.summary.as_str()), (NAME, "edit f (+2 -2)"));
    assert!(matches!(action.operations[..], [Operation::Write { .. }]));
    assert!(action.detail.contains("-a\n-b\n+x\n+y\n"), "{}", action.detail);
    assert!(matches!(prepare("c").operations[..], [Operation::Read { .. }]));
}

#[test]
fn multi_edit_cannot_exceed_the_size_limit() {
    let desk = ToolFixture::new();
    desk.put("f", "a".repeat(5000));
    let new = "a".repeat(2000);
    let edits = vec![json!({ "oldString": "a", "newString": new, "replaceAll": true }); 50];
    let said = desk.ask(NAME, &json!({ "path": "f", "edits": edits }));
    assert!(said.starts_with("ARG003 edits[1]: f would be larger than 64 MiB"), "{said}");
    assert_eq!(desk.get("f").len(), 5000);
}

#[test]
fn fuzzy_match_is_flagged() {
    let desk = ToolFixture::set(|env| env.fuzzy_edit = true);
    desk.put("f", "a  \nb\n\u{201c}c\u{201d}\n");
    let edits = json!([
        { "oldString": "a\nb", "newString": "x" }, { "oldString": "\"c\"", "newString": "y" }
    ]);
    let output = desk.call(NAME, &json!({ "path": "f", "edits": edits })).unwrap();
    assert_eq!(output.metadata["fuzzy"], true);
    assert_eq!(desk.get("f"), b"x\ny\n");
}
