//! Coerced arguments, rejected arguments, and the error texts.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1 },
            "oldString": { "type": "string" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 5000 },
            "ratio": { "type": "number" },
            "replaceAll": { "type": "boolean" },
            "mode": { "type": "string", "enum": ["fast", "slow"] },
            "names": { "type": "array", "items": { "type": "string" }, "maxItems": 3 },
            "options": {
                "type": "object",
                "properties": { "depth": { "type": "integer" } },
                "required": ["depth"]
            },
            "note": { "type": ["string", "null"] }
        },
        "required": ["path"]
    })
}

/// The arguments and notes, or the error, as one text.
fn check(raw: &str) -> String {
    match validate(&schema(), raw, 10_000) {
        Ok(Arguments { value, coerced }) if coerced.is_empty() => value.to_string(),
        Ok(Arguments { value, coerced }) => format!("{value} ({})", coerced.join(", ")),
        Err(error) => error.to_string(),
    }
}

#[test]
fn valid_arguments_are_unchanged() {
    for raw in [
        r#"{"path":"a"}"#,
        r#"{"limit":1,"path":"a","ratio":1}"#,
        r#"{"mode":"slow","names":["x"],"note":null,"options":{"depth":1},"path":"a"}"#,
    ] {
        assert_eq!(check(raw), raw);
    }
}

#[test]
fn unambiguous_mistakes_are_corrected() {
    for (raw, expected) in [
        (r#"{"path":"a","limit":"20"}"#, r#"{"limit":20,"path":"a"} (limit: "20" -> 20)"#),
        (r#"{"path":"a","limit":20.0}"#, r#"{"limit":20,"path":"a"} (limit: 20.0 -> 20)"#),
        (r#"{"path":"a","limit":" 2e1"}"#, r#"{"limit":20,"path":"a"} (limit: " 2e1" -> 20)"#),
        (r#"{"path":"a","ratio":"0.5"}"#, r#"{"path":"a","ratio":0.5} (ratio: "0.5" -> 0.5)"#),
        (
            r#"{"path":"a","replaceAll":"Yes"}"#,
            r#"{"path":"a","replaceAll":true} (replaceAll: "Yes" -> true)"#,
        ),
        (
            r#"{"path":"a","replaceAll":"0"}"#,
            r#"{"path":"a","replaceAll":false} (replaceAll: "0" -> false)"#,
        ),
        (
            r#"{"path":"a","names":"[\"x\"]"}"#,
            r#"{"names":["x"],"path":"a"} (names: "[\"x\"]" -> […])"#,
        ),
        (
            r#"{"path":"a","oldString":12}"#,
            r#"{"oldString":"12","path":"a"} (oldString: 12 -> "12")"#,
        ),
        (
            r#"{"path":"a","oldString":true}"#,
            r#"{"oldString":"true","path":"a"} (oldString: true -> "true")"#,
        ),
        (r#"{"path":"a","limit":null}"#, r#"{"path":"a"} (limit: null -> absent)"#),
        (r#"{"file_path":"a"}"#, r#"{"path":"a"} (file_path -> path)"#),
        (
            r#"{"file":"a","old_string":"b"}"#,
            r#"{"oldString":"b","path":"a"} (file -> path, old_string -> oldString)"#,
        ),
        (
            r#""{\"path\":\"a\"}""#,
            r#"{"path":"a"} (arguments: a string that holds an object -> the object)"#,
        ),
    ] {
        assert_eq!(check(raw), expected, "{raw}");
    }
}

#[test]
fn ambiguous_mistakes_are_refused() {
    for (raw, expected) in [
        ("", "ARG001 path: required string is missing"),
        ("null", "ARG001 path: required string is missing"),
        (r#"{"path":null}"#, "ARG001 path: required string is missing"),
        (r#"{"path":""}"#, "ARG001 path: must not be empty"),
        (r#"{"path":12}"#, "ARG001 path: must be string, not integer 12"),
        (r#"{"path":["a"]}"#, "ARG001 path: must be string, not array"),
        (
            r#"{"Path":"a"}"#,
            "ARG001 path: required string is missing; unknown field \"Path\"; did you mean `path`?",
        ),
        (
            r#"{"path":"a","file_path":"b"}"#,
            "ARG001 unknown field \"file_path\"; known are limit, mode, names, note, oldString, \
             options, path, ratio, replaceAll",
        ),
        (r#"{"path":"a","limt":1}"#, "ARG001 unknown field \"limt\"; did you mean `limit`?"),
        (r#"{"path":"a","limit":"5m"}"#, "ARG001 limit: must be integer, not string \"5m\""),
        (r#"{"path":"a","limit":1.5}"#, "ARG001 limit: must be integer, not number 1.5"),
        (r#"{"path":"a","limit":0}"#, "ARG001 limit: must be at least 1, not 0"),
        (
            r#"{"path":"a","limit":1000000000000}"#,
            "ARG001 limit: must be at most 5000, not 1000000000000",
        ),
        (r#"{"path":"a","ratio":"NaN"}"#, "ARG001 ratio: must be number, not string \"NaN\""),
        (r#"{"path":"a","mode":"wild"}"#, "ARG001 mode: must be one of \"fast\", \"slow\""),
        (r#"{"path":"a","names":[1]}"#, "ARG001 names[0]: must be string, not integer 1"),
        (
            r#"{"path":"a","names":["1","2","3","4"]}"#,
            "ARG001 names: has a length of 4, at most 3 is allowed",
        ),
        (r#"{"path":"a","options":{}}"#, "ARG001 options.depth: required integer is missing"),
        (
            r#"{"path":"a","options":{"depth":"1"}}"#,
            "ARG001 options.depth: must be integer, not string \"1\"",
        ),
        ("[]", "ARG001 the arguments must be an object, not array"),
        (r#""read it""#, "ARG001 the arguments must be an object, not string"),
        (
            r#"{"path":"a"} and so on"#,
            "ARG001 the arguments are not valid JSON: trailing characters at line 1 column 14",
        ),
        (
            r#"{"path":"a""#,
            "ARG001 the arguments are not valid JSON: EOF while parsing an object at line 1 \
             column 11",
        ),
        (
            r#"{"path":"a","a\u001b[2J":1}"#,
            "ARG001 unknown field \"a\\u{1b}[2J\"; known are limit, mode, names, note, \
             oldString, options, path, ratio, replaceAll",
        ),
    ] {
        assert_eq!(check(raw), expected, "{raw}");
    }
}

#[test]
fn refuses_more_bytes_than_allowed() {
    let error = validate(&schema(), r#"{"path":"a"}"#, 11).unwrap_err();
    assert_eq!(error.to_string(), "ARG001 the arguments are 12 bytes; at most 11");
}

#[test]
fn accepts_additional_fields_if_the_schema_does() {
    for schema in [json!({}), json!({"properties": {}, "additionalProperties": true})] {
        let arguments = validate(&schema, r#"{"x":1}"#, 100).unwrap();
        assert_eq!(arguments, Arguments { value: json!({"x": 1}), coerced: vec![] });
    }
}

#[test]
fn lists_a_few_problems_and_counts_the_rest() {
    let many: Vec<String> = (0..9).map(|i| format!("\"{i}{i}{i}{i}{i}{i}{i}\":1")).collect();
    let text = check(&format!("{{\"path\":\"a\",{}}}", many.join(",")));
    assert!(text.ends_with("; and 4 more"), "{text}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let name = prop_oneof!["path", "limit", "names", "options", "old_string", ".{0,6}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn survives_any_text(raw in ".{0,200}") {
        if let Ok(arguments) = validate(&schema(), &raw, 1000) {
            prop_assert!(arguments.value["path"].is_string());
        }
    }

    #[test]
    fn normalisation_is_idempotent(value in any_json()) {
        if let Ok(arguments) = validate(&schema(), &value.to_string(), 100_000) {
            let again = validate(&schema(), &arguments.value.to_string(), 100_000).unwrap();
            prop_assert_eq!(again, Arguments { value: arguments.value, coerced: vec![] });
        }
    }

    #[test]
    fn survives_any_schema(schema in any_json(), value in any_json()) {
        drop(validate(&schema, &value.to_string(), 100_000));
    }
}

#[test]
fn durations_need_a_unit_or_the_exact_name() {
    let schema = json!({ "type": "object", "properties": { "timeoutMs": { "type": "integer" } } });
    let read = |text: &str| validate(&schema, text, 1000).map(|arguments| arguments.value);
    let table = [
        (r#"{"timeout":"5m"}"#, 300_000),
        (r#"{"timeout":"90 seconds"}"#, 90_000),
        (r#"{"timeoutMs":"1.5s"}"#, 1500),
        (r#"{"timeoutMs":"250ms"}"#, 250),
        (r#"{"timeoutMs":"250"}"#, 250),
        (r#"{"timeout_ms":"2h"}"#, 7_200_000),
    ];
    for (text, ms) in table {
        assert_eq!(read(text).unwrap(), json!({ "timeoutMs": ms }), "{text}");
    }
    for text in [r#"{"timeout":5}"#, r#"{"timeout":"5"}"#, r#"{"timeout":"soon"}"#] {
        let error = read(text).unwrap_err();
        assert_eq!(error.code, "ARG006", "{text}");
        assert!(error.message.contains("timeoutMs"), "{}", error.message);
    }
    for text in [r#"{"timeoutMs":"-5m"}"#, r#"{"timeoutMs":"m"}"#, r#"{"timeoutMs":"1e9h"}"#] {
        assert_eq!(read(text).unwrap_err().code, "ARG001", "{text}");
    }
    assert_eq!(read(r#"{"timeout":null}"#).unwrap(), json!({}));
}
