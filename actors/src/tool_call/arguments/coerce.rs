//! Correction of values of a wrong type that can have only one meaning.

use serde_json::{Map, Number, Value};

use super::{allows, kind_of, shown};

/// Fields that select a target. Their values are never corrected.
const EXACT: [&str; 3] = ["command", "path", "workdir"];

/// Largest integer up to which all integers are exact as floating point numbers.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Corrects top-level fields whose type does not match the schema, if their meaning is clear. Each
/// correction is noted in `coerced`.
pub(super) fn fields(schema: &Value, fields: &mut Map<String, Value>, coerced: &mut Vec<String>) {
    for (name, value) in fields.iter_mut() {
        let Some(property) = schema["properties"].get(name) else { continue };
        if EXACT.contains(&name.as_str()) || allows(property, kind_of(value)) {
            continue;
        }
        let time = || value.as_str().filter(|_| name.ends_with("Ms")).and_then(milliseconds);
        if let Some(fitting) = fit(property, value).or_else(|| time().map(Value::from)) {
            coerced.push(format!("{name}: {} -> {}", shown(value), shown(&fitting)));
            *value = fitting;
        }
    }
}

fn fit(schema: &Value, value: &Value) -> Option<Value> {
    // A schema that takes text has its reasons; nothing is read into it.
    match value {
        Value::String(text) if !allows(schema, "string") => from_text(schema, text.trim()),
        Value::Number(number) if number.is_f64() && allows(schema, "integer") => {
            integer(number.as_f64()?)
        }
        Value::Number(_) | Value::Bool(_) if allows(schema, "string") => {
            Some(Value::String(value.to_string()))
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}

fn from_text(schema: &Value, text: &str) -> Option<Value> {
    if allows(schema, "boolean") {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => return Some(Value::Bool(true)),
            "false" | "no" | "0" => return Some(Value::Bool(false)),
            _ => {}
        }
    }
    if allows(schema, "integer") {
        if let Ok(number) = text.parse::<i64>() {
            return Some(number.into());
        }
        if let Some(number) = text.parse().ok().and_then(integer) {
            return Some(number);
        }
    }
    if allows(schema, "number")
        && let Some(number) = text.parse().ok().and_then(Number::from_f64)
    {
        return Some(Value::Number(number));
    }
    let parsed: Value = serde_json::from_str(text).ok()?;
    let whole = parsed.is_array() || parsed.is_object();
    (whole && allows(schema, kind_of(&parsed))).then_some(parsed)
}

/// Converts a time with its unit, such as `5m` or `1.5 s`, to milliseconds. `None` if the text is
/// no such time, or if the time is too large.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 13] = [
        ("milliseconds", 1.0),
        ("minutes", 60_000.0),
        ("seconds", 1000.0),
        ("minute", 60_000.0),
        ("second", 1000.0),
        ("hours", 3_600_000.0),
        ("hour", 3_600_000.0),
        ("min", 60_000.0),
        ("sec", 1000.0),
        ("ms", 1.0),
        ("m", 60_000.0),
        ("s", 1000.0),
        ("h", 3_600_000.0),
    ];
    let text = text.trim();
    let (number, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let is_plain = |c: char| c.is_ascii_digit() || c == '.';
    let number = number.trim_end();
    if !number.chars().all(is_plain) {
        return None;
    }
    let ms = number.parse::<f64>().ok()? * factor;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
    (ms <= EXACT_INTEGER_MAX).then(|| ms.round() as i64)
}

/// Converts a number without a fraction to an integer; `None` for other numbers and for integers
/// that are too large to be exact.
fn integer(number: f64) -> Option<Value> {
    let exact = number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
    exact.then(|| Value::from(number as i64))
}
