//! Recognition of tool calls that a model wrote as text. Pure.
//!
//! A server can accept tools and drop them: its chat template has no place for them, or it does not
//! translate the calls of the model. The model then answers with the call in the notation of its
//! training, and nothing runs.

use serde_json::Value;

use crate::ports::ToolSpec;

/// Beginnings of calls in the notations of common models: Hermes and Qwen, Mistral, Llama, `DeepSeek`,
/// Kimi, and models that write XML.
const MARKS: [&str; 9] = [
    "<tool_call>",
    "<|tool_call|>",
    "<|tool_call_begin|>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "<function=",
    "<function_calls>",
    "<invoke name=",
];

/// Maximum number of bytes of a text that are examined, from its beginning: a call as text is the
/// whole answer, or follows a short remark.
const EXAMINED_BYTES_MAX: usize = 16 * 1024;

/// Name of the tool in `tools` that the answer `text` calls in place of a real call: the text has a
/// mark of a call and then the quoted or tagged name, or the whole text is a JSON object with the
/// name and arguments, also in a code block. `None`: it calls none.
pub(super) fn call_as_text<'t>(text: &str, tools: &'t [ToolSpec]) -> Option<&'t str> {
    let text = text[..text.floor_char_boundary(EXAMINED_BYTES_MAX)].trim();
    let called = called_in_notation(text, tools);
    called.or_else(|| called_in_object(text, tools))
}

fn called_in_notation<'t>(text: &str, tools: &'t [ToolSpec]) -> Option<&'t str> {
    let behind = MARKS.iter().find_map(|mark| text.split_once(mark))?.1;
    let begins_name =
        |before: &str| before.is_empty() || before.ends_with(['"', '>', ' ', '\n', '=']);
    let ends_name = |after: &str| {
        after.is_empty() || after.starts_with(['"', '<', '>', '[', '{', ' ', '\n', ':'])
    };
    let place = |tool: &'t ToolSpec| {
        let mut found = behind.match_indices(tool.name.as_str());
        let at = found.find(|(at, name)| {
            begins_name(&behind[..*at]) && ends_name(&behind[at + name.len()..])
        });
        at.map(|(at, _)| (at, tool.name.as_str()))
    };
    tools.iter().filter_map(place).min().map(|(_, name)| name)
}

fn called_in_object<'t>(text: &str, tools: &'t [ToolSpec]) -> Option<&'t str> {
    let code = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let code = code.map(|code| code.strip_prefix("json").unwrap_or(code).trim());
    let object: Value = serde_json::from_str(code.unwrap_or(text)).ok()?;
    let object = object.get(0).unwrap_or(&object);
    let object = object.get("function").filter(|inner| inner.is_object()).unwrap_or(object);
    let name = ["name", "tool", "function"].iter().find_map(|key| object.get(key)?.as_str())?;
    let has_arguments =
        ["arguments", "parameters", "args"].iter().any(|key| object.get(key).is_some());
    let known = tools.iter().find(|tool| tool.name == name);
    known.filter(|_| has_arguments).map(|tool| tool.name.as_str())
}

/// Warning about a call of `tool` that `model` wrote as text.
pub(super) fn text_call_warning(model: &str, tool: &str) -> String {
    format!(
        "{model} wrote a call of {tool} as text, so nothing ran: the server, or the chat template of \
         the model, does not pass tools on (llama.cpp: start it with --jinja; vLLM: \
         --enable-auto-tool-choice and --tool-call-parser; Ollama: use a model whose page lists \
         tools)"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::ports::{SideEffect, ToolAnnotations};

    fn tools() -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            side_effect: SideEffect::None,
            source: "builtin".to_owned(),
            annotations: ToolAnnotations::default(),
        };
        ["bash", "read_file", "read"].map(spec).into()
    }

    #[test]
    fn calls_as_text_are_recognised_and_prose_is_not() {
        let table = [
            ("<tool_call>\n{\"name\": \"bash\", \"arguments\": {}}\n</tool_call>", Some("bash")),
            ("Let me see.\n<tool_call>{\"name\": \"read_file\"}", Some("read_file")),
            ("[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {}}]", Some("read")),
            ("[TOOL_CALLS]bash[ARGS]{}", Some("bash")),
            ("<function=bash>{\"command\": \"ls\"}</function>", Some("bash")),
            ("<invoke name=\"read_file\">", Some("read_file")),
            ("<|python_tag|>{\"name\": \"bash\", \"parameters\": {}}", Some("bash")),
            ("{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}", Some("bash")),
            ("```json\n{\"name\": \"bash\", \"parameters\": {}}\n```", Some("bash")),
            ("[{\"function\": {\"name\": \"bash\", \"arguments\": \"{}\"}}]", Some("bash")),
            // Another tool, no arguments, an example in an answer.
            ("<tool_call>{\"name\": \"weather\"}</tool_call>", None),
            ("{\"name\": \"bash\", \"version\": 5}", None),
            ("{\"name\": \"weather\", \"arguments\": {}}", None),
            ("I would call bash with ls, or read_file.", None),
            ("The file says {\"name\": \"bash\", \"arguments\": {}}.", None),
            ("<tool_call> is how it rebashes things", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(call_as_text(text, &tools()), expected, "{text}");
        }
        let far = format!("{}<tool_call>{{\"name\": \"bash\"}}", "é".repeat(EXAMINED_BYTES_MAX));
        assert_eq!(call_as_text(&far, &tools()), None);
    }
}
