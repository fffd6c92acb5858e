//! Agent files of Claude Code (`.claude/agents/NAME.md`), translated into definitions of posse.
//!
//! A translation never widens authority: a tool or a limit that has no counterpart is left out, and
//! a permission mode only counts if it narrows.

use std::collections::BTreeMap;

use posse_base::claude_code::counterparts;
use serde_json::{Map, Value, json};

use crate::definition::is_name;
use crate::folder::AgentFile;
use crate::front_matter::{self, Flaw, Parsed};
use crate::roster::KnownNames;

/// Maximum bytes of a description. Longer ones, which contain examples, are cut.
const DESCRIPTION_BYTES_MAX: usize = 900;

/// Maximum number of fields that are read of a front matter that is no YAML.
const FIELDS_MAX: usize = 50;

/// A translated definition.
#[derive(Debug, PartialEq)]
pub(crate) struct Translated {
    /// Name of the agent: the field `name` if it is a usable one, else the name of the file.
    pub(crate) name: String,
    /// Fields of a definition of posse.
    pub(crate) fields: Map<String, Value>,
    /// Text below the front matter.
    pub(crate) body: String,
    /// Line of each field of the file, from 1.
    pub(crate) lines: BTreeMap<String, usize>,
    /// Fields, tools and models without a counterpart.
    pub(crate) ignored: Vec<String>,
}

/// Translates an agent file. Fails if it is not UTF-8 or has no front matter.
pub(crate) fn translate(file: &AgentFile, known: &KnownNames<'_>) -> Result<Translated, Flaw> {
    let parsed = parse(&file.bytes)?;
    let text = |field: &str| parsed.fields.get(field).and_then(Value::as_str);
    let name = text("name").filter(|name| is_name(name)).unwrap_or(&file.name).to_owned();
    let mut fields = Map::new();
    let mut ignored = Vec::new();
    fields.insert("mode".to_owned(), json!("subagent"));
    let mut add = |field: &str, value: Value| drop(fields.insert(field.to_owned(), value));
    let (mut allowed, mut denied) = (None, None);
    for (field, value) in &parsed.fields {
        match (field.as_str(), value) {
            ("name", _) | ("model", Value::Null) => {}
            ("description", Value::String(text)) => {
                let end = text.floor_char_boundary(DESCRIPTION_BYTES_MAX);
                // Claude Code's own editor writes line breaks as `\n`.
                add("description", json!(text[..end].replace("\\n", " ")));
            }
            ("tools", value) => allowed = Some(words(value)),
            ("disallowedTools", value) => denied = Some(words(value)),
            ("model", Value::String(model)) if model == "inherit" => {}
            ("model", Value::String(model)) if (known.has_profile)(model) => {
                add("provider", json!({ "profile": model }));
            }
            ("model", value) => ignored.push(format!("model {}", shown(value))),
            ("maxTurns", value) if value.as_u64().is_some_and(|turns| turns > 0) => {
                add("limits", json!({ "maxTurns": value }));
            }
            ("permissionMode", Value::String(mode)) if mode == "plan" => {
                add("authority", json!("read-only"));
            }
            ("permissionMode", Value::String(mode)) if mode == "default" => {}
            ("permissionMode", value) => ignored.push(format!("permissionMode {}", shown(value))),
            ("isolation", Value::String(place)) if place == "worktree" => {
                add("isolation", json!(place));
            }
            ("effort", Value::String(effort))
                if ["low", "medium", "high"].contains(&effort.as_str()) =>
            {
                add("thinking", json!(effort));
            }
            ("skills", value) => add("skills", json!(words(value))),
            (other, _) => ignored.push(other.to_owned()),
        }
    }
    let (field, value) = tools(allowed.as_deref(), denied.as_deref(), known, &mut ignored);
    add(field, value);
    let Parsed { lines, body, .. } = parsed;
    Ok(Translated { name, fields, body, lines, ignored })
}

/// The field of a definition that selects tools, and its value. `allowed` and `denied`: names of
/// tools of Claude Code; `None`: not given. Names without a counterpart are added to `ignored`.
fn tools(
    allowed: Option<&[String]>,
    denied: Option<&[String]>,
    known: &KnownNames<'_>,
    ignored: &mut Vec<String>,
) -> (&'static str, Value) {
    // A pattern such as `Bash(rm:*)` has no counterpart: the whole tool is denied.
    let denied: Vec<&str> = denied
        .into_iter()
        .flatten()
        .flat_map(|name| counterparts(bare(name)))
        .copied()
        .filter(|tool| known.tools.iter().any(|name| name == tool))
        .collect();
    let Some(names) = allowed.filter(|names| !names.iter().any(|name| name == "*")) else {
        return if denied.is_empty() {
            ("tools", json!("*"))
        } else {
            ("disallowedTools", json!(denied))
        };
    };
    let mut tools: Vec<&str> = Vec::new();
    for name in names {
        let exists = |tool: &&&str| known.tools.iter().any(|name| name == **tool);
        let found: Vec<&str> = counterparts(name).iter().filter(exists).copied().collect();
        if found.is_empty() {
            ignored.push(name.clone());
        }
        for tool in found {
            if !denied.contains(&tool) && !tools.contains(&tool) {
                tools.push(tool);
            }
        }
    }
    ("tools", json!(tools))
}

/// The name of a tool without a pattern in parentheses.
fn bare(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

/// Names in a field: a list, or words separated by commas. Parentheses keep words together.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => {
            let mut depth = 0_usize;
            let parts = text.split(|c: char| {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                depth == 0 && c == ','
            });
            parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses a file. A front matter that is no YAML, as descriptions with a colon are, is read line by
/// line as `field: text`.
fn parse(bytes: &[u8]) -> Result<Parsed, Flaw> {
    let strict = front_matter::parse_bytes(bytes, "the file is not UTF-8 text");
    let flaw = match strict {
        Ok((_, parsed)) => return Ok(parsed),
        Err(flaw) => flaw,
    };
    let Ok(text) = std::str::from_utf8(bytes) else { return Err(flaw) };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let Some(rest) = text.strip_prefix("---\n") else { return Err(flaw) };
    let Some((head, body)) = rest.split_once("\n---") else { return Err(flaw) };
    let (mut fields, mut lines) = (Map::new(), BTreeMap::new());
    for (at, line) in head.lines().enumerate() {
        let Some((field, value)) = line.split_once(':') else { continue };
        let is_field =
            !field.is_empty() && field.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if is_field && fields.len() < FIELDS_MAX && !fields.contains_key(field) {
            let value = value.trim();
            let number = value.parse::<u64>().map(Value::from);
            fields.insert(field.to_owned(), number.unwrap_or_else(|_| json!(value)));
            lines.insert(field.to_owned(), at + 2);
        }
    }
    let body = body.split_once('\n').map(|(_, body)| body.trim().to_owned()).unwrap_or_default();
    Ok(Parsed { fields, lines, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(text: &str) -> Translated {
        let tools = ["bash", "edit_file", "glob", "grep", "multi_edit", "read_file", "write_file"];
        let tools = tools.map(str::to_owned);
        let known = KnownNames {
            tools: &tools,
            has_profile: &|name| name == "opus",
            check_rules: &|_| Vec::new(),
            believes: &|_, _| true,
        };
        let file = AgentFile {
            name: "Some File".to_owned(),
            shown: "f.md".to_owned(),
            bytes: text.as_bytes().to_vec(),
        };
        translate(&file, &known).unwrap()
    }

    #[test]
    fn fields_with_a_counterpart_are_translated() {
        let agent = translated(
            "---\nname: code-reviewer\ndescription: Reviews.\\nAlways.\ntools: Read, Glob, Edit\n\
             model: opus\nmaxTurns: 5\npermissionMode: plan\neffort: high\n---\n\nReview it.\n",
        );
        assert_eq!((agent.name.as_str(), agent.body.as_str()), ("code-reviewer", "Review it."));
        assert_eq!(
            Value::Object(agent.fields),
            json!({
                "mode": "subagent", "description": "Reviews. Always.",
                "tools": ["read_file", "glob", "edit_file", "multi_edit"],
                "provider": {"profile": "opus"}, "limits": {"maxTurns": 5},
                "authority": "read-only", "thinking": "high",
            })
        );
        assert_eq!(agent.ignored, Vec::<String>::new());
    }

    #[test]
    fn nothing_widens_authority() {
        let agent = translated(
            "---\nname: x\ndescription: d\ntools: Read, Bash(git log:*), WebFetch, mcp__a__b, Task\n\
             model: sonnet\npermissionMode: bypassPermissions\ncolor: red\n---\nx\n",
        );
        assert_eq!(agent.fields["tools"], json!(["read_file"]));
        assert_eq!(agent.fields.get("authority"), None);
        let ignored = agent.ignored.join("; ");
        for part in ["Bash(git log:*)", "WebFetch", "mcp__a__b", "Task", "model sonnet"] {
            assert!(ignored.contains(part), "{ignored}");
        }
        assert!(
            ignored.contains("permissionMode bypassPermissions; ") || ignored.contains("color")
        );

        // Denied tools are taken from a list, or from all tools; a pattern denies the whole tool.
        let agent = translated(
            "---\nname: x\ndescription: d\ntools: [Read, Write]\ndisallowedTools: Write\n---\nx\n",
        );
        assert_eq!(agent.fields["tools"], json!(["read_file"]));
        let agent = translated(
            "---\nname: x\ndescription: d\ndisallowedTools: Bash(rm:*), Write, WebFetch\n---\nx\n",
        );
        assert_eq!(agent.fields["disallowedTools"], json!(["bash", "write_file"]));
        assert_eq!(agent.fields.get("tools"), None);
        assert_eq!(translated("---\nname: x\ndescription: d\n---\nx\n").fields["tools"], "*");
    }

    #[test]
    fn front_matter_that_is_no_yaml_is_read_line_by_line() {
        let agent = translated(
            "---\nname: x\ndescription: Use it when: a test fails. Examples: <example>user: 'a'</example>\n\
             tools: Read\nmaxTurns: 3\n---\n\nDo: it.\n",
        );
        assert!(agent.fields["description"].as_str().unwrap().starts_with("Use it when: a test"));
        assert_eq!(agent.fields["limits"], json!({"maxTurns": 3}));
        assert_eq!((agent.body.as_str(), agent.lines["tools"]), ("Do: it.", 4));
        let long = "d".repeat(5000);
        let agent = translated(&format!("---\nname: x\ndescription: {long}\n---\nx\n"));
        assert_eq!(agent.fields["description"].as_str().unwrap().len(), DESCRIPTION_BYTES_MAX);
    }
}
