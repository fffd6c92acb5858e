//! Key of a request, which selects an exchange of a cassette.

use posse_actors::conversation::{ContentPart, Message, ToolCall};
use posse_actors::ports::Request;
use posse_base::failure::printable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::replay::WORKSPACE;

/// Maximum length of a message in the text of a difference, in bytes without the ellipsis that
/// marks a cut.
const SHOWN_BYTES_MAX: usize = 240;

/// Tools and messages of a request, without data that differs between machines and sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteKey {
    /// Names of the tools that were offered. A request that matches must offer these, and may offer
    /// more.
    tools: Vec<String>,
    /// The messages of the request. A request that matches must have exactly these.
    messages: Vec<CassetteMessage>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CassetteMessage {
    /// Instructions, without their text, which depends on the machine and the date.
    System,
    User(String),
    Assistant {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<CassetteCall>,
    },
    /// Result of a tool, without its output.
    #[serde(rename_all = "camelCase")]
    Tool {
        name: String,
        is_error: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CassetteCall {
    name: String,
    arguments: Value,
}

impl CassetteKey {
    /// Key of `request`. `workspace`: path of the workspace, which becomes a placeholder.
    pub(super) fn of(request: &Request, workspace: &str) -> CassetteKey {
        let tools = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let messages = request.messages.iter().map(|message| keyed(message, workspace)).collect();
        CassetteKey { tools, messages }
    }

    /// True if the exchange with this key answers a request with the key `actual`.
    pub(super) fn answers(&self, actual: &CassetteKey) -> bool {
        self.messages == actual.messages && self.missing_tool(actual).is_none()
    }

    /// Describes the first difference between this recorded key and `actual`, for an error message.
    pub(super) fn difference(&self, actual: &CassetteKey) -> String {
        if let Some(tool) = self.missing_tool(actual) {
            return format!("the tool `{}` is not offered", printable(tool));
        }
        let both = self.messages.iter().zip(&actual.messages);
        if let Some((at, (recorded, actual))) =
            both.enumerate().find(|(_, (recorded, actual))| recorded != actual)
        {
            return format!(
                "message {at} is recorded as {}, but is {}",
                show(recorded),
                show(actual)
            );
        }
        let (recorded, actual) = (self.messages.len(), actual.messages.len());
        format!("{recorded} messages are recorded, but there are {actual}")
    }

    fn missing_tool(&self, actual: &CassetteKey) -> Option<&String> {
        self.tools.iter().find(|tool| !actual.tools.contains(tool))
    }
}

fn keyed(message: &Message, workspace: &str) -> CassetteMessage {
    match message {
        Message::System { .. } => CassetteMessage::System,
        Message::User { content } => {
            let texts: Vec<String> = content
                .iter()
                .map(|part| match part {
                    ContentPart::Text { text } => portable(text, workspace),
                    ContentPart::ImageUrl { .. } => "[image]".to_owned(),
                })
                .collect();
            CassetteMessage::User(texts.join("\n"))
        }
        Message::Assistant(message) => CassetteMessage::Assistant {
            text: portable(message.content.as_deref().unwrap_or_default(), workspace),
            calls: message.tool_calls.iter().map(|call| called(call, workspace)).collect(),
        },
        Message::Tool { name, is_error, .. } => {
            CassetteMessage::Tool { name: name.clone(), is_error: *is_error }
        }
    }
}

fn called(call: &ToolCall, workspace: &str) -> CassetteCall {
    let arguments = portable(&call.arguments, workspace);
    CassetteCall {
        name: call.name.clone(),
        // Spaces and the order of members mean nothing.
        arguments: serde_json::from_str(&arguments).unwrap_or(Value::String(arguments)),
    }
}

/// `text` with the path of the workspace replaced by a placeholder. Unchanged if the path is empty
/// or one character, such as `/`.
pub(super) fn portable(text: &str, workspace: &str) -> String {
    if workspace.len() > 1 { text.replace(workspace, WORKSPACE) } else { text.to_owned() }
}

fn show(said: &CassetteMessage) -> String {
    let mut json = serde_json::to_string(said).unwrap_or_default();
    if json.len() > SHOWN_BYTES_MAX {
        json.truncate(json.floor_char_boundary(SHOWN_BYTES_MAX));
        json.push('…');
    }
    format!("`{}`", printable(&json))
}
