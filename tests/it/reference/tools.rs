//! The reference of the tools, from what the program lists.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::GENERATED;
use crate::posse::Machine;

/// The page about all tools, in a repository, with a skill and in multi-agent mode.
pub(super) fn page() -> String {
    let machine = Machine::new();
    machine.write_config(&json!({ "agentMode": "multi-agent" }).to_string());
    let skill = machine.path("posse/config/skills/example");
    fs::create_dir_all(&skill).unwrap();
    let text = "---\nname: example\ndescription: Shows how a skill looks.\n---\n\nDo it so.\n";
    fs::write(skill.join("SKILL.md"), text).unwrap();
    let ended = machine.posse(&["tools", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let tools: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert!(tools.len() >= 12, "{}", tools.len());
    let mut page = format!(
        "# Tools\n<!-- {GENERATED} -->\n\nThe tools of the model, as `posse tools --json` lists them. The \
         access of a tool decides how its calls are permitted; rules of `permissions` name a tool \
         or its group.\n"
    );
    for tool in &tools {
        let text = |key: &str| tool[key].as_str().unwrap_or_default();
        write!(page, "\n## `{}`\n\n{}\n\n", text("name"), super::prose(text("description")))
            .unwrap();
        write!(page, "Access: {}; side effects: {}", text("access"), text("sideEffect")).unwrap();
        if let Some(group) = tool["ruleGroup"].as_str() {
            write!(page, "; rule group: `{group}`").unwrap();
        }
        if let Some(needs) = tool["needs"].as_str() {
            write!(page, "; needs {needs}").unwrap();
        }
        page.push_str(".\n\n");
        page.push_str(&parameters(&tool["parameters"], ""));
    }
    page
}

/// List of the parameters of an object, indented by `indent`.
fn parameters(schema: &Value, indent: &str) -> String {
    let mut text = String::new();
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|known| known == name))
    };
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let need = if required(name) { "required" } else { "optional" };
        let about = parameter["description"].as_str().unwrap_or_default();
        let about = if about.is_empty() { String::new() } else { format!(": {about}") };
        writeln!(text, "{indent}- `{name}` ({}, {need}){about}", kind(parameter)).unwrap();
        let items = &parameter["items"];
        let below = if items.is_object() { items } else { parameter };
        text.push_str(&parameters(below, &format!("{indent}  ")));
    }
    text
}

/// Type and bounds of a parameter in words.
fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().map(|word| format!("`{}`", word.as_str().unwrap_or_default())).collect();
        return words.join(", ");
    }
    let word = match schema["type"].as_str() {
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some(other) => other.to_owned(),
        None => "any JSON value".to_owned(),
    };
    let bounds = [
        ("minimum", "at least "),
        ("maximum", "at most "),
        ("minLength", "characters at least "),
        ("maxLength", "characters at most "),
        ("minItems", "items at least "),
        ("maxItems", "items at most "),
        ("default", "default "),
    ];
    let bounds =
        bounds.iter().filter_map(|(key, words)| Some(format!(", {words}{}", schema.get(*key)?)));
    word + &bounds.collect::<String>()
}
