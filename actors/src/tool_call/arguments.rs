//! Validation of tool arguments: turns the model's text into a value that matches the tool's
//! schema.
//!
//! Pure. Clear deviations are corrected and noted. A deviation whose meaning would have to be
//! guessed is an error that says what is expected. Paths and commands are never changed.

use crate::text::clipped;

mod check;
mod coerce;

use serde_json::{Map, Value};

use crate::ports::ToolError;

/// Names of fields in other tools, with the names used here: models have learnt them. A plain
/// `timeout` is missing, because its unit is seconds in some tools and milliseconds in others.
const ALIASES: [(&str, &str); 8] = [
    ("file_path", "path"),
    ("filePath", "path"),
    ("file", "path"),
    ("old_string", "oldString"),
    ("new_string", "newString"),
    ("replace_all", "replaceAll"),
    ("cmd", "command"),
    ("timeout_ms", "timeoutMs"),
];

/// Maximum number of problems that an error lists.
const PROBLEMS_MAX: usize = 5;

/// Validated arguments, which match the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    /// The arguments as a JSON object.
    pub value: Value,
    /// Corrections that were made, one line each: `limit: "20" -> 20`.
    pub coerced: Vec<String>,
}

/// Parses `raw`, corrects clear deviations, and checks the result against `schema`: an object with
/// `properties` and `required`.
///
/// The error is for the model. Its code is `ARG001`, also for a text of more than `bytes_max`
/// bytes, or `ARG006` for a `timeout` without a unit.
pub fn validate(schema: &Value, raw: &str, bytes_max: usize) -> Result<Arguments, ToolError> {
    if raw.len() > bytes_max {
        let message = format!("the arguments are {} bytes; at most {bytes_max}", raw.len());
        return Err(ToolError::new("ARG001", message));
    }
    let mut coerced = Vec::new();
    let mut fields = parse(raw, &mut coerced)?;
    rename(schema, &mut fields, &mut coerced);
    name_time(schema, &mut fields, &mut coerced)?;
    drop_nulls(schema, &mut fields, &mut coerced);
    coerce::fields(schema, &mut fields, &mut coerced);
    let value = Value::Object(fields);
    let mut problems = check::problems(schema, &value);
    if problems.is_empty() {
        return Ok(Arguments { value, coerced });
    }
    let hidden = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    let mut message = problems.join("; ");
    if hidden > 0 {
        message += "; and ";
        message += &hidden.to_string();
        message += " more";
    }
    Err(ToolError::new("ARG001", message))
}

/// Parses `raw` as a JSON object. An object that is encoded in a JSON string is decoded; an empty
/// text and `null` become an empty object.
fn parse(raw: &str, coerced: &mut Vec<String>) -> Result<Map<String, Value>, ToolError> {
    if raw.trim().is_empty() {
        return Ok(Map::new());
    }
    let value: Value = serde_json::from_str(raw).map_err(|error| {
        ToolError::new("ARG001", format!("the arguments are not valid JSON: {error}"))
    })?;
    let kind = kind_of(&value);
    if let Value::Object(fields) = value {
        return Ok(fields);
    }
    if let Value::String(text) = &value
        && let Ok(Value::Object(fields)) = serde_json::from_str(text)
    {
        coerced.push("arguments: a string that holds an object -> the object".to_owned());
        return Ok(fields);
    }
    if value.is_null() {
        coerced.push("arguments: null -> {}".to_owned());
        return Ok(Map::new());
    }
    Err(ToolError::new("ARG001", format!("the arguments must be an object, not {kind}")))
}

/// Renames fields from a name in other tools to the name here, unless the schema knows the other
/// name or the field is present.
fn rename(schema: &Value, fields: &mut Map<String, Value>, coerced: &mut Vec<String>) {
    for (alias, name) in ALIASES {
        let known = |name: &str| schema["properties"].get(name).is_some();
        if !known(name) || known(alias) || fields.contains_key(name) {
            continue;
        }
        if let Some(value) = fields.remove(alias) {
            coerced.push(format!("{alias} -> {name}"));
            fields.insert(name.to_owned(), value);
        }
    }
}

/// Renames a `timeout` with a unit to `timeoutMs` and converts it to milliseconds. Without a unit
/// it is an error, because a guess could be wrong by a factor of 1,000. A null is removed. No
/// effect if the schema has a `timeout` or no `timeoutMs`, or if `timeoutMs` is present.
fn name_time(
    schema: &Value,
    fields: &mut Map<String, Value>,
    coerced: &mut Vec<String>,
) -> Result<(), ToolError> {
    const NAME: &str = "timeoutMs";
    let known = |name: &str| schema["properties"].get(name).is_some();
    if !known(NAME) || known("timeout") || fields.contains_key(NAME) {
        return Ok(());
    }
    let Some(value) = fields.remove("timeout").filter(|value| !value.is_null()) else {
        return Ok(());
    };
    let Some(ms) = value.as_str().and_then(coerce::milliseconds) else {
        let message = format!("timeout: {} of what? Use {NAME}: milliseconds", shown(&value));
        return Err(ToolError::new("ARG006", message));
    };
    coerced.push(format!("timeout: {} -> {NAME}: {ms}", shown(&value)));
    fields.insert(NAME.to_owned(), ms.into());
    Ok(())
}

/// Removes optional fields whose value is null, unless their schema allows null, and notes each in
/// `coerced`.
fn drop_nulls(schema: &Value, fields: &mut Map<String, Value>, coerced: &mut Vec<String>) {
    let properties = &schema["properties"];
    fields.retain(|name, value| {
        let nullable = properties.get(name).is_none_or(|property| allows(property, "null"));
        let absent = value.is_null() && !nullable && !is_required(schema, name);
        if absent {
            coerced.push(format!("{name}: null -> absent"));
        }
        !absent
    });
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
}

/// True if `schema` allows values of the JSON type `kind`. A schema without a type allows all, and
/// `number` includes `integer`.
fn allows(schema: &Value, kind: &str) -> bool {
    let fits = |named: &str| named == kind || (named == "number" && kind == "integer");
    if let Some(named) = schema["type"].as_str() {
        return fits(named);
    }
    match schema["type"].as_array() {
        Some(names) => names.iter().filter_map(Value::as_str).any(fits),
        None => true,
    }
}

/// Name of the JSON type of `value`.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

const QUOTED_CHARS_MAX: usize = 60;

/// `text` in quotes and escaped, shortened to its beginning if it is long.
fn quoted(text: &str) -> String {
    format!("{:?}", clipped(text, QUOTED_CHARS_MAX, "…"))
}

/// Short form of `value` for messages: long strings are shortened, and arrays and objects are shown
/// without content.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "[…]".to_owned(),
        Value::Object(_) => "{…}".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
