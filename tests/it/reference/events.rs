//! The reference of the lines of `stream-json`, from the JSON Schema of the events.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use posse_actors::event::{Event, line_schemas};
use serde_json::{Map, Value, json};

use super::{GENERATED, prose};

/// Maximum depth of a value in an example.
const DEPTH_MAX: usize = 6;

pub(super) type Definitions = BTreeMap<String, Value>;

/// The page about all events.
pub(super) fn page() -> String {
    let [line, event] = line_schemas();
    let mut types = definitions(&event);
    types.extend(definitions(&line));
    let mut page = format!(
        "# Events\n<!-- {GENERATED} -->\n\n`posse run --output-format stream-json` prints one event a line, and the \
         journal consists of durable events. A field that is not required is left out \
         if it has no value. Programs ignore events, fields and words that they do not know.\n\n\
         ## Fields of every line\n\n"
    );
    page.push_str(&fields(&line, &types));
    page.push_str("\n## Events\n");
    let mut count = 0;
    for variant in event["oneOf"].as_array().unwrap() {
        let name = variant["properties"]["type"]["const"].as_str().unwrap();
        if name == "unknown" {
            continue;
        }
        count += 1;
        let example = example(variant, &types);
        // The example is read and written by the program, so it has the right form.
        let read: Event = serde_json::from_value(example.clone())
            .unwrap_or_else(|error| panic!("{name}: {error}: {example}"));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["type"], name);
        let about = prose(variant["description"].as_str().unwrap());
        let kept = if read.is_durable() { " Durable." } else { "" };
        write!(page, "\n### `{name}`\n\n{about}{kept}\n\n{}", fields(variant, &types)).unwrap();
        write!(page, "\n```json\n{written}\n```\n").unwrap();
    }
    assert!(count > 40, "{count} events");
    page.push_str("\n## Types\n\nTypes of fields above. Identifiers are texts.\n");
    for (name, schema) in types.iter().filter(|(name, schema)| !is_id(name, schema)) {
        let about = prose(schema["description"].as_str().unwrap_or_default());
        write!(page, "\n### `{name}`\n\n").unwrap();
        if !about.is_empty() {
            write!(page, "{about}\n\n").unwrap();
        }
        page.push_str(&body(schema, &types));
    }
    page
}

/// The named types of a schema.
pub(super) fn definitions(schema: &Value) -> Definitions {
    let all = schema["$defs"].as_object().into_iter().flatten();
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// True for a text without further rules, such as an id.
pub(super) fn is_id(name: &str, schema: &Value) -> bool {
    name.ends_with("Id") && schema["type"] == "string"
}

/// List of the values or fields of a type.
pub(super) fn body(schema: &Value, types: &Definitions) -> String {
    let Some(variants) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) else {
        let listed = fields(schema, types);
        return if listed.is_empty() { format!("{}\n", kind(schema, types)) } else { listed };
    };
    let mut text = String::new();
    for variant in variants {
        let about = prose(variant["description"].as_str().unwrap_or_default());
        if let Some(value) = variant["const"].as_str() {
            writeln!(text, "- `{value}`: {about}").unwrap();
        } else if variant["properties"].is_object() {
            let tag = tag(variant);
            let named = tag.map_or_else(|| kind(variant, types), |(_, value)| format!("`{value}`"));
            writeln!(text, "- {named}: {about}").unwrap();
            for line in fields(variant, types).lines() {
                writeln!(text, "  {line}").unwrap();
            }
        } else {
            writeln!(text, "- {}. {about}", kind(variant, types)).unwrap();
        }
    }
    text
}

/// The field of a variant with a fixed text, and the text.
fn tag(variant: &Value) -> Option<(&str, &str)> {
    let properties = variant["properties"].as_object()?;
    properties.iter().find_map(|(name, schema)| Some((name.as_str(), schema["const"].as_str()?)))
}

/// List of the fields of an object, those of flattened types included.
pub(super) fn fields(schema: &Value, types: &Definitions) -> String {
    let mut text = String::new();
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|known| known == name))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let about = prose(field["description"].as_str().unwrap_or_default()).replace("\n\n", " ");
        if let Some(value) = field["const"].as_str() {
            writeln!(text, "- `{name}`: always `{value}`.").unwrap();
            continue;
        }
        let optional = if required(name) { "" } else { ", optional" };
        let about = if about.is_empty() { about } else { format!(": {about}") };
        writeln!(text, "- `{name}` ({}{optional}){about}", kind(field, types)).unwrap();
    }
    for part in flattened(schema, types) {
        text.push_str(&fields(part, types));
    }
    if schema["properties"].is_object() {
        let variants = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        for variant in variants.into_iter().flatten() {
            let variant = resolved(variant, types);
            if let Some((name, value)) = tag(variant) {
                let about = prose(variant["description"].as_str().unwrap_or_default());
                writeln!(text, "- `{name}` = `{value}`: {about}").unwrap();
            }
            for line in fields(variant, types).lines().filter(|line| !line.contains(": always `")) {
                writeln!(text, "  {line}").unwrap();
            }
        }
    }
    text
}

/// Types whose fields belong to an object itself.
fn flattened<'a>(schema: &'a Value, types: &'a Definitions) -> Vec<&'a Value> {
    let own = schema.get("$ref").map(|_| resolved(schema, types));
    let all = schema["allOf"].as_array().into_iter().flatten();
    own.into_iter().chain(all.map(|part| resolved(part, types))).collect()
}

fn resolved<'a>(schema: &'a Value, types: &'a Definitions) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.and_then(|name| types.get(name)).unwrap_or(schema)
}

/// The type of a value in words.
fn kind(schema: &Value, types: &Definitions) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap();
        let is_text = types.get(name).is_some_and(|schema| is_id(name, schema));
        return if is_text { "text".to_owned() } else { format!("`{name}`") };
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().map(|word| format!("`{}`", word.as_str().unwrap_or("null"))).collect();
        return words.join(", ");
    }
    if let Some(variants) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        let kinds: Vec<String> = variants.iter().map(|variant| kind(variant, types)).collect();
        return kinds.join(" or ");
    }
    let word = |name: &str| match name {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "number" => "number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => format!("list of {}", kind(&schema["items"], types)),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => word(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(word).collect::<Vec<_>>().join(" or ")
        }
        _ => "any JSON value".to_owned(),
    }
}

/// An example of a variant, with all of its fields.
fn example(variant: &Value, types: &Definitions) -> Value {
    sample("", variant, types, 0)
}

fn sample(name: &str, schema: &Value, types: &Definitions, depth: usize) -> Value {
    let schema = resolved(schema, types);
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(word) = schema["enum"].as_array().and_then(|words| words.first()) {
        return word.clone();
    }
    let variants = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    if let (Some(variants), false) = (variants, schema["properties"].is_object()) {
        let filled = variants.iter().find(|variant| variant["type"] != "null");
        return filled.map_or(Value::Null, |variant| sample(name, variant, types, depth));
    }
    let kind = match &schema["type"] {
        Value::Array(names) => names.iter().find_map(|name| name.as_str().filter(|n| *n != "null")),
        name => name.as_str(),
    };
    match kind {
        Some("string") => json!(text_of(name)),
        Some("integer") => json!(1),
        Some("number") => json!(0.5),
        Some("boolean") => json!(true),
        Some("array") if depth >= DEPTH_MAX => json!([]),
        Some("array") => json!([sample(name, &schema["items"], types, depth + 1)]),
        Some("object") => {
            let mut object = Map::new();
            let flat = flattened(schema, types);
            let variant = variants.and_then(|all| all.first()).map(|first| resolved(first, types));
            for part in std::iter::once(schema).chain(flat).chain(variant) {
                for (name, field) in part["properties"].as_object().into_iter().flatten() {
                    object.insert(name.clone(), sample(name, field, types, depth + 1));
                }
            }
            Value::Object(object)
        }
        _ => json!({}),
    }
}

/// A text for a field of this name.
fn text_of(name: &str) -> &'static str {
    match name {
        "callId" => "call-1",
        "requestId" => "question-1",
        "messageId" => "message-1",
        "childInvocationId" | "invocationId" => "invocation-2",
        "cwd" => "/home/user/project",
        "provider" | "from" | "to" => "openai",
        "model" | "fromModel" | "toModel" => "gpt-5.1",
        "agent" | "target" => "explore",
        "tool" | "name" | "tools" => "read_file",
        "arguments" => "{\"path\":\"src/main.rs\"}",
        "summary" => "read src/main.rs",
        "digest" | "binding" => "9f86d081884c7d65",
        "code" => "CFG005",
        "posse" => env!("CARGO_PKG_VERSION"),
        "limit" => "maxTurns",
        _ => "…",
    }
}
