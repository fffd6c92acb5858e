//! Type check of configuration values, and texts for its errors.

use std::time::Duration;

use posse_actors::text::clipped;

use serde_json::{Value, json};

use crate::schema::{ConfigKey, VERSION, ValueKind};
use crate::{looks_like_key, masked};

const SHOWN_CHARS_MAX: usize = 40;
const TEXT_BYTES_MAX: usize = 8 << 10;
const ITEMS_MAX: usize = 1000;
const PATHS_MAX: usize = 1000;

/// Returns `Ok` if `value` is valid for `kind`, else a description of valid values.
pub(crate) fn check(kind: ValueKind, value: &Value) -> Result<(), String> {
    let text = value.as_str();
    let fits = match kind {
        ValueKind::Bool => value.is_boolean(),
        ValueKind::Text | ValueKind::Secret => text.is_some_and(is_line),
        ValueKind::Variable => text.is_some_and(is_variable),
        ValueKind::Address => text.is_some_and(is_address),
        ValueKind::Choice(names) => text.is_some_and(|text| names.contains(&text)),
        ValueKind::Whole(least, most) => {
            value.as_i64().is_some_and(|number| (least..=most).contains(&number))
        }
        ValueKind::WholeOrAuto(least, most) => {
            text == Some("auto") || check(ValueKind::Whole(least, most), value).is_ok()
        }
        ValueKind::Number(least, most) => {
            value.as_f64().is_some_and(|number| (least..=most).contains(&number))
        }
        ValueKind::Duration => text.and_then(duration).is_some(),
        ValueKind::TextList => texts(value).is_some(),
        ValueKind::CommandLine => texts(value).is_some_and(|texts| !texts.is_empty()),
        ValueKind::ObjectList => {
            items(value).is_some_and(|items| items.iter().all(Value::is_object))
        }
        ValueKind::TextMap => value.as_object().is_some_and(|entries| {
            entries.len() <= ITEMS_MAX
                && entries.values().all(|value| value.as_str().is_some_and(is_line))
        }),
        ValueKind::ObjectMap => {
            value.as_object().is_some_and(|entries| entries.values().all(Value::is_object))
        }
        ValueKind::Any => true,
    };
    if fits {
        return Ok(());
    }
    let [_, expected] = kind.words();
    Err(expected)
}

/// Index of the first member of a list that is invalid for `kind`, and a description of valid
/// members. `None` if `value` is no list, has no such member, or has too many.
pub(crate) fn first_wrong_member(kind: ValueKind, value: &Value) -> Option<(usize, String)> {
    let (fits, expected): (fn(&Value) -> bool, &str) = match kind {
        ValueKind::TextList | ValueKind::CommandLine => {
            (|item| item.as_str().is_some_and(is_line), "a text of one line that is not empty")
        }
        ValueKind::ObjectList => (Value::is_object, "an object"),
        _ => return None,
    };
    let nth = items(value)?.iter().position(|item| !fits(item))?;
    Some((nth, expected.to_owned()))
}

/// Error message for an invalid value: `maxTurns must be a whole number 1–10000, got "two"`. The
/// value is cut after 40 characters, a secret is abbreviated, and a list, an object or an address
/// with a password is only named.
#[expect(clippy::needless_pass_by_value, reason = "every caller makes the text for this")]
pub(crate) fn mismatch(path: &str, expected: String, value: &Value) -> String {
    let secret =
        path.ends_with("apiKey") || path.ends_with("apiKeyEnv") || path.contains("headers");
    let shown = match value {
        Value::String(text) if secret || looks_like_key(text) => format!("\"{}\"", masked(text)),
        // Text before an @ is usually a password.
        Value::String(text) if text.contains("://") && text.contains('@') => {
            "an address with a password".into()
        }
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    format!("{path} must be {expected}, got {}", clipped(&shown, SHOWN_CHARS_MAX, "…"))
}

/// Advice with an example of a valid value: `write it like "maxTurns": 25`.
pub(crate) fn hint(key: &ConfigKey, path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let mut hint = format!("write it like \"{name}\": {}", sample(key));
    if matches!(key.kind, ValueKind::CommandLine) {
        hint.push_str(", or remove the key to run no program");
    }
    hint
}

/// Example of a valid value of `key`, its default if it has one, as an environment variable would
/// contain it: text without quotes.
pub(crate) fn example(key: &ConfigKey) -> String {
    match sample(key) {
        Value::String(text) => text,
        value => value.to_string(),
    }
}

fn sample(key: &ConfigKey) -> Value {
    if key.path == "version" {
        return json!(VERSION);
    }
    key.default_value().unwrap_or_else(|| match key.kind {
        ValueKind::Bool => json!(true),
        ValueKind::Whole(least, most) | ValueKind::WholeOrAuto(least, most) => {
            json!(1000_i64.clamp(least, most))
        }
        ValueKind::Number(least, most) => json!(0.8_f64.clamp(least, most)),
        ValueKind::Duration => json!("90s"),
        ValueKind::Choice(names) => json!(names.first()),
        ValueKind::Variable => json!("OPENAI_API_KEY"),
        ValueKind::Address => json!("https://host.example/v1"),
        ValueKind::TextList => json!(["text"]),
        ValueKind::ObjectList => json!([{}]),
        ValueKind::TextMap => json!({ "name": "text" }),
        ValueKind::CommandLine => json!(["program", "argument"]),
        ValueKind::ObjectMap => json!({ "name": {} }),
        ValueKind::Text | ValueKind::Secret | ValueKind::Any => json!("text"),
    })
}

/// Converts text, such as the value of an environment variable, to a JSON value of `kind`. Text
/// that cannot be converted, also a list or object, becomes a string, which [`check`] can reject.
pub(crate) fn from_text(kind: ValueKind, text: &str) -> Value {
    let value = match kind {
        ValueKind::Bool => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(json!(true)),
            "0" | "false" | "no" | "off" => Some(json!(false)),
            _ => None,
        },
        ValueKind::Whole(..) | ValueKind::WholeOrAuto(..) => {
            text.parse::<i64>().ok().map(Value::from)
        }
        ValueKind::Number(..) => text.parse::<f64>().ok().map(Value::from),
        _ => None,
    };
    value.unwrap_or_else(|| json!(text))
}

/// Parses a whole number with a unit: `ms`, `s`, `m` or `h`. `None` if the text is invalid, zero
/// or more than 720 hours.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    const LONGEST_MS: u64 = 720 * 3_600_000;
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let (digits, factor) = units.iter().find_map(|(unit, factor)| {
        let digits = text.strip_suffix(unit)?;
        let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then_some((digits, factor))
    })?;
    let ms = digits.parse::<u64>().ok()?.checked_mul(*factor)?;
    (1..=LONGEST_MS).contains(&ms).then(|| Duration::from_millis(ms))
}

/// True for the name of a header whose value the HTTP client decides: a configured one would have
/// no effect, or break the framing of the request.
pub(crate) fn is_own_header(name: &str) -> bool {
    const OWN: [&str; 11] = [
        "accept",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// True for a valid name of a provider or tool: 1–64 ASCII letters, digits, `-` and `_`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// True for a valid name of a model, such as `Qwen/Qwen3-Coder`, `gpt-5.1` or `qwen3:30b`: 1–200
/// bytes without white space and control characters.
pub(crate) fn is_model(name: &str) -> bool {
    let refused = |c: char| c.is_control() || c.is_whitespace();
    (1..=200).contains(&name.len()) && !name.contains(refused)
}

/// The first text in `value`, at any depth, whose braces may expand to more than 1000 paths. `None`
/// if there is none.
pub(crate) fn excessive_pattern(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => (paths_meant(text) > PATHS_MAX).then_some(text),
        Value::Array(items) => items.iter().find_map(excessive_pattern),
        Value::Object(entries) => entries.values().find_map(excessive_pattern),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Upper bound of the number of paths to which the braces of a pattern expand.
fn paths_meant(pattern: &str) -> usize {
    let (mut product, mut here, mut depth) = (1_usize, 1_usize, 0_usize);
    for byte in pattern.bytes() {
        match byte {
            b'{' => depth += 1,
            b',' if depth > 0 => here = here.saturating_add(1),
            b'}' if depth > 0 => {
                depth -= 1;
                product = product.saturating_mul(here);
                here = 1;
            }
            _ => {}
        }
    }
    product
}

/// Writes a dotted key as nested objects: `{ "a": { "b": … } }` for `a.b`. Cuts the text at 200
/// characters.
pub(crate) fn nested(dotted: &str) -> String {
    let inner = dotted
        .rsplit('.')
        .fold("…".to_owned(), |inner, name| format!("{{ \"{name}\": {inner} }}"));
    // A key of a hundred dots is not worth repeating.
    inner.chars().take(200).collect()
}

fn items(value: &Value) -> Option<&Vec<Value>> {
    value.as_array().filter(|items| items.len() <= ITEMS_MAX)
}

/// The items of a list of texts.
fn texts(value: &Value) -> Option<&Vec<Value>> {
    items(value).filter(|items| items.iter().all(|item| item.as_str().is_some_and(is_line)))
}

fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control)
}

fn is_variable(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.len() <= 256
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_address(text: &str) -> bool {
    // The cassette of a `replay` provider.
    if text.starts_with("file:///") {
        return is_line(text);
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        is_line(text) && !host.is_empty() && !host.contains('@') && !text.contains(' ')
    })
}
