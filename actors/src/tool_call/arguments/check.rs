//! Check of a value against a JSON Schema, with errors worded for a model.
//!
//! Supports the part of JSON Schema that the tools use. Other keywords are not checked; they only
//! guide the model.

use std::cmp::Ordering;

use serde_json::Value;

use super::{allows, kind_of, quoted, shown};

/// Maximum number of characters of field names that are compared for similarity; further ones are
/// ignored.
const NAME_CHARS_MAX: usize = 64;

/// All errors of `value` against `schema`, one text each; empty if it matches.
pub(super) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check("", schema, value, &mut problems);
    problems
}

fn check(place: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
    let kind = kind_of(value);
    if !allows(schema, kind) {
        problems.push(format!("{place}: must be {}, not {}", expected(schema), shown_kind(value)));
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices: Vec<String> = choices.iter().map(shown).collect();
        problems.push(format!("{place}: must be one of {}", choices.join(", ")));
    }
    match value {
        Value::Number(_) => check_range(place, schema, value, problems),
        Value::String(text) => {
            check_size(place, schema, ["minLength", "maxLength"], text.chars().count(), problems);
        }
        Value::Array(items) => {
            check_size(place, schema, ["minItems", "maxItems"], items.len(), problems);
            for (index, item) in items.iter().enumerate() {
                check(&format!("{place}[{index}]"), &schema["items"], item, problems);
            }
        }
        Value::Object(_) => check_fields(place, schema, value, problems),
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_fields(place: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none_or(Value::is_null) {
            let expected = expected(&schema["properties"][name]);
            problems.push(format!("{}: required {expected} is missing", join(place, name)));
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        match properties.and_then(|known| known.get(name)) {
            // A required field that is null counts as missing.
            Some(_) if field.is_null() && super::is_required(schema, name) => {}
            Some(property) => check(&join(place, name), property, field, problems),
            None if is_open(schema) => {}
            None => problems.push(unknown(place, name, schema)),
        }
    }
}

/// True if the schema allows fields that it does not list: `additionalProperties` is present and
/// not `false`, or both it and `properties` are missing.
fn is_open(schema: &Value) -> bool {
    match schema.get("additionalProperties") {
        Some(rule) => *rule != Value::Bool(false),
        None => schema.get("properties").is_none(),
    }
}

fn unknown(place: &str, name: &str, schema: &Value) -> String {
    let known: Vec<&str> = schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .map(|k| &**k)
        .collect();
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let hint = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "it takes no fields".to_owned(),
        None => format!("known are {}", known.join(", ")),
    };
    format!("{place}unknown field {}; {hint}", quoted(name))
}

fn check_range(place: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
    let beyond = |limit: &Value, wrong: Ordering| compare(value, limit) == Some(wrong);
    if beyond(&schema["minimum"], Ordering::Less) {
        problems.push(format!("{place}: must be at least {}, not {value}", schema["minimum"]));
    }
    if beyond(&schema["maximum"], Ordering::Greater) {
        problems.push(format!("{place}: must be at most {}, not {value}", schema["maximum"]));
    }
}

/// Compares two numbers, integers exactly. `None` if one of them is not a number.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn check_size(
    place: &str,
    schema: &Value,
    [min, max]: [&str; 2],
    size: usize,
    problems: &mut Vec<String>,
) {
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    if let Some(min) = schema[min].as_u64().filter(|min| size < *min) {
        problems.push(match min {
            1 => format!("{place}: must not be empty"),
            _ => format!("{place}: has a length of {size}, at least {min} is needed"),
        });
    }
    if let Some(max) = schema[max].as_u64().filter(|max| size > *max) {
        problems.push(format!("{place}: has a length of {size}, at most {max} is allowed"));
    }
}

fn expected(schema: &Value) -> String {
    if let Some(kind) = schema["type"].as_str() {
        return kind.to_owned();
    }
    let kinds: Vec<&str> =
        schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if kinds.is_empty() { "value".to_owned() } else { kinds.join(" or ") }
}

fn shown_kind(value: &Value) -> String {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => kind_of(value).to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            format!("{} {}", kind_of(value), shown(value))
        }
    }
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// The known field name that is most similar to `name`; `None` if none is similar enough.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| -> Vec<char> {
        let letters = name.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).take(NAME_CHARS_MAX).collect()
    };
    let wanted = plain(name);
    known
        .iter()
        .map(|near| (distance(&wanted, &plain(near)), *near))
        .filter(|(distance, near)| *distance <= near.len() / 3)
        .min()
        .map(|(_, near)| near)
}

/// Edit distance of two texts in characters.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
