//! Documents about all configuration keys: a JSON Schema for editors, and a Markdown reference.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::schema::{ConfigKey, KEYS, Project, ValueKind};

/// The JSON Schema (2020-12) of a configuration file, as text.
pub fn json_schema() -> String {
    let mut root = group();
    for key in KEYS {
        let parts: Vec<&str> = key.path.split('.').collect();
        insert_property(&mut root, &parts, property(key));
    }
    root["properties"]["$schema"] = json!({ "type": "string", "description": "This schema." });
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("posse configuration"));
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    format!("{:#}\n", Value::Object(schema))
}

/// Markdown table of all keys. Columns: key, type, default, condition under which a repository may
/// set the key, environment variable, description.
pub fn reference() -> String {
    let mut text = "## Keys\n\n\
        | key | type | default | a repository may set it | variable | description |\n\
        |---|---|---|---|---|---|\n"
        .to_owned();
    for key in KEYS {
        let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
        let default = key.default_value().map(|value| code(&value.to_string()));
        let [kind, _] = key.kind.words();
        let row = [
            code(&key.path.replace('*', "NAME")),
            kind,
            default.unwrap_or_default(),
            allowed(key.project).to_owned(),
            key.variable.map(code).unwrap_or_default(),
            key.about.to_owned(),
        ];
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

fn group() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

/// Inserts `property` at `path` in the schema `object`, and creates missing groups above it. The
/// name `*` stands for any name.
fn insert_property(object: &mut Value, path: &[&str], property: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    let slot = match *first {
        "*" => &mut object["additionalProperties"],
        name => &mut object["properties"][name],
    };
    if rest.is_empty() {
        *slot = property;
        return;
    }
    if !slot.is_object() {
        *slot = group();
    }
    insert_property(slot, rest, property);
}

fn property(key: &ConfigKey) -> Value {
    let mut property = schema_of(key.kind);
    let mut about = key.about.to_owned();
    about.push_str(match key.project {
        Project::Harmless => "",
        Project::Trusted => " A repository sets it once it is trusted.",
        Project::OwnProvider => " A trusted repository sets it for providers that it adds.",
        Project::Tighten => " A trusted repository can only make it stricter.",
        Project::Never => " A repository cannot set it.",
    });
    if let Some(variable) = key.variable {
        let _: std::fmt::Result = write!(about, " Variable: {variable}.");
    }
    property["description"] = json!(about);
    if let Some(default) = key.default_value() {
        property["default"] = default;
    }
    property
}

fn schema_of(kind: ValueKind) -> Value {
    let line = || json!({ "type": "string", "minLength": 1, "maxLength": 8192 });
    match kind {
        ValueKind::Bool => json!({ "type": "boolean" }),
        ValueKind::Text | ValueKind::Secret => line(),
        ValueKind::Variable => {
            json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,255}$" })
        }
        ValueKind::Address => {
            let pattern = "^(https?://[^/@\\s]+(/[^\\s]*)?|file:///.+)$";
            json!({ "type": "string", "pattern": pattern })
        }
        ValueKind::Choice(names) => json!({ "type": "string", "enum": names }),
        ValueKind::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        ValueKind::WholeOrAuto(least, most) => {
            json!({ "anyOf": [schema_of(ValueKind::Whole(least, most)), { "const": "auto" }] })
        }
        ValueKind::Number(least, most) => {
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        ValueKind::Duration => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }),
        ValueKind::TextList => json!({ "type": "array", "items": line(), "maxItems": 1000 }),
        ValueKind::CommandLine => {
            json!({ "type": "array", "items": line(), "minItems": 1, "maxItems": 1000 })
        }
        ValueKind::ObjectList => {
            json!({ "type": "array", "items": { "type": "object" }, "maxItems": 1000 })
        }
        ValueKind::TextMap => {
            json!({ "type": "object", "additionalProperties": line(), "maxProperties": 1000 })
        }
        ValueKind::ObjectMap => {
            json!({ "type": "object", "additionalProperties": { "type": "object" } })
        }
        ValueKind::Any => json!({}),
    }
}

fn allowed(project: Project) -> &'static str {
    match project {
        Project::Harmless => "yes",
        Project::Trusted => "once trusted",
        Project::OwnProvider => "once trusted, for providers that it adds",
        Project::Tighten => "once trusted, only stricter",
        Project::Never => "no",
    }
}

#[cfg(test)]
mod tests;
