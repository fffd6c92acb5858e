//! Schema and guide match the program.

use posse_base::failure::ErrorCode;
use std::fs;

use super::*;
use crate::tests::ConfigFolders;

const DOCUMENT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");

/// Checks a value against the schema keywords in use; patterns are not checked.
fn fits(schema: &Value, value: &Value) -> bool {
    let number = |word: &str| schema.get(word).and_then(Value::as_f64);
    let kind = match schema.get("type").and_then(Value::as_str) {
        None => true,
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => panic!("unknown type {other}"),
    };
    let any = schema.get("anyOf").and_then(Value::as_array);
    let any = any.is_none_or(|any| any.iter().any(|schema| fits(schema, value)));
    let named = schema.get("const").is_none_or(|named| named == value);
    let listed = schema.get("enum").is_none_or(|names| names.as_array().unwrap().contains(value));
    let least = number("minimum").is_none_or(|least| value.as_f64().unwrap_or(least) >= least);
    let most = number("maximum").is_none_or(|most| value.as_f64().unwrap_or(most) <= most);
    let least_items = schema.get("minItems").and_then(Value::as_u64);
    let enough = value
        .as_array()
        .is_none_or(|items| least_items.is_none_or(|least| items.len() as u64 >= least));
    let mut items = value.as_array().into_iter().flatten();
    let items = items.all(|item| schema.get("items").is_none_or(|schema| fits(schema, item)));
    let mut members = value.as_object().into_iter().flatten();
    let members = members.all(|(name, member)| match &schema["properties"][name] {
        Value::Null => match &schema["additionalProperties"] {
            Value::Bool(allowed) => *allowed,
            Value::Null => true,
            further => fits(further, member),
        },
        known => fits(known, member),
    });
    any && named && kind && listed && least && most && enough && items && members
}

/// A value that fits, and one that does not, if there is any.
fn examples(kind: ValueKind) -> (Value, Option<Value>) {
    match kind {
        ValueKind::Bool => (json!(true), Some(json!("true"))),
        ValueKind::Text | ValueKind::Secret => (json!("some text"), Some(json!(3))),
        ValueKind::Variable => (json!("A_KEY"), Some(json!(3))),
        ValueKind::Address => (json!("https://host/v1"), Some(json!(false))),
        ValueKind::Choice(names) => (json!(names[0]), Some(json!("no such choice"))),
        ValueKind::Whole(least, most) => (json!(least), Some(json!(most + 1))),
        ValueKind::WholeOrAuto(_, most) => (json!("auto"), Some(json!(most + 1))),
        ValueKind::Number(least, most) => (json!(least), Some(json!(most + 0.5))),
        ValueKind::Duration => (json!("90s"), Some(json!(90))),
        ValueKind::TextList => (json!(["/a"]), Some(json!([1]))),
        ValueKind::CommandLine => (json!(["a", "-b"]), Some(json!([]))),
        ValueKind::ObjectList => (json!([{}]), Some(json!(["a"]))),
        ValueKind::TextMap => (json!({ "A": "b" }), Some(json!({ "A": 1 }))),
        ValueKind::ObjectMap => (json!({ "A": { "b": 1 } }), Some(json!({ "A": 1 }))),
        ValueKind::Any => (json!({ "anything": [1] }), None),
    }
}

fn nest(path: &str, value: Value) -> Value {
    let named = path.replace('*', "some-name");
    named.rsplit('.').fold(value, |value, name| json!({ name: value }))
}

#[test]
fn schema_and_parser_agree() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for key in KEYS {
        let (good, bad) = examples(key.kind);
        let good = nest(key.path, good);
        assert!(fits(&schema, &good), "{good}");
        assert!(ConfigFolders::new().user(good.to_string()).load().is_ok(), "{good}");
        let unknown = nest(&format!("{}x", key.path), json!(1));
        let open = matches!(key.path.rsplit('.').next(), Some("*"));
        assert!(open || !fits(&schema, &unknown), "{unknown}");
        if let Some(bad) = bad {
            let bad = nest(key.path, bad);
            assert!(!fits(&schema, &bad), "{bad}");
            let failures = ConfigFolders::new().user(bad.to_string()).load().unwrap_err();
            assert_eq!(failures[0].code, ErrorCode::ConfigInvalidValue, "{bad}");
        }
        if let Some(default) = key.default_value() {
            assert!(fits(&schema, &nest(key.path, default)), "{}", key.path);
        }
    }
    assert!(fits(&schema, &json!({ "$schema": "posse.schema.json" })));
}

#[test]
fn every_key_has_a_description() {
    for key in KEYS {
        let about = key.about;
        assert!(about.ends_with('.') && about.len() > 15, "{}: {about}", key.path);
        assert!(about.starts_with(char::is_uppercase) && !about.contains('|'), "{about}");
        assert!(!about.contains("  "), "{about}");
    }
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    insta::assert_snapshot!(format!("{:#}", schema["properties"]["sandbox"]));
}

#[test]
fn reference_lists_every_key() {
    let mut guide = fs::read_to_string(DOCUMENT).unwrap();
    if std::env::var_os("POSSE_WRITE_GUIDE").is_some() {
        guide.truncate(guide.find("## Keys\n").unwrap());
        guide.push_str(&reference());
        fs::write(DOCUMENT, &guide).unwrap();
    }
    assert!(
        guide.ends_with(&reference()),
        "docs/reference/configuration.md does not end with what `posse config reference` prints; \
         POSSE_WRITE_GUIDE=1 cargo test -p posse-config reference writes it"
    );
}
