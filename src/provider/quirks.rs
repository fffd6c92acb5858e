//! Quirks: differences of a server or model from its protocol, and the protocols that each concerns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::profile::Protocol;

/// Differences of a server from the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about a server")]
pub struct Quirks {
    /// True: `temperature` is never sent.
    pub omit_temperature: bool,
    /// True: `tool_choice` is never sent.
    pub omit_tool_choice: bool,
    /// True: the maximum number of reply tokens is never sent. Ignored by Messages, which requires
    /// it.
    pub omit_max_tokens: bool,
    /// Name of the field with the maximum number of reply tokens (Chat Completions). `None`:
    /// `max_tokens`.
    pub max_tokens_field: Option<String>,
    /// True: no usage figures are requested in a stream (Chat Completions).
    pub no_stream_usage: bool,
    /// True: the thinking of earlier replies is sent back, in the field in which it arrived (Chat
    /// Completions). Thinking of other protocols, which has no such field, is not.
    pub return_reasoning: bool,
    /// True: the model accepts no images. A request with an image in a user message then fails
    /// without being sent, and images in tool results are replaced by a placeholder.
    pub no_vision: bool,
    /// Maximum number of images in a request. A placeholder replaces the oldest ones beyond it.
    /// `None`: 50.
    pub max_images: Option<usize>,
    /// Maximum total size of the images in a request, in bytes as they are sent. A placeholder
    /// replaces the oldest ones beyond it. `None`: 20,000,000.
    pub max_image_bytes: Option<usize>,
    /// True: each tool result is sent with the name of the tool (Chat Completions).
    pub tool_result_name: bool,
    /// True: cache breakpoints are sent with Chat Completions, in the form of Messages. They mark
    /// the positions up to which the server may cache the request.
    pub cache_breakpoints: bool,
    /// True: no cache breakpoints (Messages) and no key for the prompt cache (Responses) are sent.
    pub no_prompt_cache: bool,
    /// Maximum number of tokens for thinking if a request sets no reasoning level (Messages, for
    /// models that accept a number). `None` or less than 1,024: no thinking. Ignored with
    /// `adaptive_thinking`.
    pub thinking_budget: Option<u64>,
    /// Maximum number of tokens for thinking at a reasoning level, by its name, instead of posse's
    /// number (Messages, for models that accept a number). Less than 1,024: no thinking at the
    /// level.
    pub thinking_budgets: BTreeMap<String, u64>,
    /// True: the model decides how long it thinks, and a reasoning level is sent as effort instead
    /// of a number of tokens (Messages).
    pub adaptive_thinking: bool,
    /// Reasoning effort if a request sets no reasoning level (Responses, Messages): `low`,
    /// `medium`, `high`, or another value of the server. `None`: the server's default. Messages
    /// without `adaptive_thinking` sends it beside a level, too.
    pub effort: Option<String>,
    /// True if the server accepts the parameter `reasoning_effort` (Chat Completions). False: no
    /// reasoning level is sent there.
    pub reasoning_effort: bool,
    /// The server's names for reasoning levels, by posse's names, if they are not `low`, `medium`
    /// and `high`.
    pub effort_names: BTreeMap<String, String>,
    /// Kind of the reasoning summary to request (Responses): `auto`, `concise` or `detailed`.
    /// `None`: the server's default.
    pub reasoning_summary: Option<String>,
    /// True if the model does not support reasoning: a requested reasoning level is then omitted,
    /// and requests of Responses have no reasoning fields.
    pub no_reasoning: bool,
    /// True: no tools are sent, because the model cannot call any.
    pub no_tools: bool,
    /// True: requests with tools ask for at most one tool call per reply (Responses). A reply with
    /// several is accepted.
    pub one_call_at_a_time: bool,
}

impl Quirks {
    /// Protocols whose requests the quirk `name` changes, by its name in the configuration. `None`:
    /// there is no such quirk.
    pub fn protocols(name: &str) -> Option<&'static [Protocol]> {
        use Protocol::{ChatCompletions, Codex, Messages, Responses};
        Some(match name {
            "omitTemperature" | "omitToolChoice" | "noVision" | "maxImages" | "maxImageBytes"
            | "effortNames" | "noReasoning" | "noTools" => {
                &[ChatCompletions, Responses, Messages, Codex]
            }
            "omitMaxTokens" => &[ChatCompletions, Responses, Codex],
            "maxTokensField" | "noStreamUsage" | "returnReasoning" | "toolResultName"
            | "cacheBreakpoints" | "reasoningEffort" => &[ChatCompletions],
            "noPromptCache" | "effort" => &[Responses, Messages, Codex],
            "thinkingBudget" | "thinkingBudgets" | "adaptiveThinking" => &[Messages],
            "reasoningSummary" | "oneCallAtATime" => &[Responses, Codex],
            _ => return None,
        })
    }

    /// Names of all quirks in the configuration, sorted.
    pub fn names() -> Vec<String> {
        match serde_json::to_value(Quirks::default()) {
            Ok(Value::Object(members)) => members.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
