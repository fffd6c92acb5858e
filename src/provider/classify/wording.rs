//! Error codes and phrases by which known servers report an exhausted quota, a conversation that is
//! too long, withheld content, bad credentials or a bad request; and the wait stated in a text.

use std::time::Duration;

/// Parts of error codes and types that mean an exhausted quota.
pub(crate) const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
    "credit_limit",
    "usage_limit_reached",
    "usage_not_included",
    "billing_error",
];

/// Parts of error codes and types that mean a conversation too long for the model.
pub(crate) const OVERFLOW_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "request_too_large",
];

/// Words in codes and messages of a provider that has too many requests.
pub(crate) const OVERLOAD: &[&str] =
    &["overload", "capacity", "too many requests", "slow_down", "slow down", "busy", "rate limit"];

/// Parts of error codes and types that mean that the provider withholds the reply.
pub(crate) const FILTER_CODES: &[&str] =
    &["content_filter", "content_policy", "responsibleai", "moderation_blocked"];

/// Phrases that identify a content filter in errors with the general code of a bad request.
pub(crate) const FILTER: &[&str] = &[
    // Anthropic
    "blocked by content filtering policy",
    // OpenAI
    "flagged as potentially violating our usage policy",
    // Azure
    "triggering azure openai's content management policy",
];

/// Parts of error codes and types that mean bad credentials, used if there is no HTTP status.
pub(crate) const CREDENTIAL_CODES: &[&str] =
    &["authentication", "invalid_api_key", "permission", "unauthorized", "unauthenticated"];

/// Error types that mean a key that is not known, whatever the HTTP status: `LiteLLM` without a
/// database answers 400 to every key but its own.
pub(crate) const UNKNOWN_KEY_CODES: &[&str] = &["no_db_connection"];

/// Parts of error codes and types that mean a bad request, used if there is no HTTP status.
pub(crate) const REQUEST_CODES: &[&str] = &["invalid_", "not_found", "bad_request", "unsupported"];

/// Phrases that identify an exhausted quota.
pub(crate) const QUOTA: &[&str] = &[
    "exceeded your current quota",
    "insufficient quota",
    "insufficient_quota",
    "insufficient balance",
    "insufficient credits",
    "credit balance is too low",
    "requires more credits",
    "billing hard limit",
    "usage limit",
    "quota will reset",
];

/// Phrases that identify a conversation too long for the model.
pub(crate) const OVERFLOW: &[&str] = &[
    // OpenAI, Azure, vLLM, Together, OpenRouter
    "maximum context length",
    "context_length_exceeded",
    // Anthropic behind a gateway
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    // Gemini
    "exceeds the maximum number of tokens allowed",
    // Groq
    "reduce the length of the messages",
    // llama.cpp
    "exceeds the available context size",
    "exceed_context_size_error",
    // LM Studio
    "greater than the context length",
    "when context the overflows",
    // Ollama and others
    "input length exceeds",
    "exceeds the context window",
    "exceeds context window",
    "context window exceeded",
    "exceeds the model's context",
    "exceeded model token limit",
    "prompt too long",
    "too large for model with",
    "longer than the maximum model length",
    "longer than the model's context length",
    "maximum prompt length",
];

/// Phrases that mean that the server, or the chat template of the model, takes no tools.
pub(crate) const NO_TOOLS: &[&str] = &[
    // llama.cpp, with status 500
    "tools param requires --jinja",
    // Ollama
    "does not support tools",
    // vLLM
    "requires --enable-auto-tool-choice",
    // OpenRouter
    "no endpoints found that support tool use",
    // Groq, Together and others
    "does not support tool use",
    "does not support tool calling",
    "does not support function calling",
    "tool calling is not supported",
    "function calling is not supported",
];

/// Parts of error texts of servers that require thinking before the tool calls of a history.
pub(crate) const MISSING_THOUGHT: &[&str] = &[
    // Anthropic, Bedrock and gateways before them
    "expected `thinking` or `redacted_thinking`, but found",
    "must start with a thinking block",
    // A block with a signature of another provider
    "invalid `signature` in `thinking` block",
    "invalid signature in thinking block",
];

/// True if `lower`, a text in lower case, contains one of the phrases.
pub(crate) fn has(lower: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| lower.contains(phrase))
}

/// Wait that an error text states, as in `try again in 1.5s` or `"retryDelay": "34s"`. `None`:
/// there is none, or it is implausible.
pub(crate) fn wait_in(text: &str) -> Option<Duration> {
    let after = ["try again in ", "retry in ", "\"retryDelay\":"]
        .into_iter()
        .find_map(|phrase| text.find(phrase).map(|at| &text[at + phrase.len()..]))?;
    let wait = duration(after.trim_start_matches([' ', '"']))?;
    super::is_sane(&wait).then_some(wait)
}

/// Duration at the beginning of `text`, such as `1.5s`, `20 milliseconds` or `6m0s`. `None`: there
/// is none.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text;
    let mut found = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { break };
        rest = rest[digits..].trim_start();
        let (unit, length) = match rest.as_bytes() {
            [b'm', b's', ..] => (0.001, 2),
            [b'm', b'i', b'l', ..] => (0.001, 3),
            [b'h', ..] => (3600.0, 1),
            [b'm', ..] => (60.0, 1),
            [b's', ..] => (1.0, 1),
            _ => break,
        };
        seconds += number * unit;
        found = true;
        rest = &rest[length..];
    }
    found.then(|| Duration::try_from_secs_f64(seconds).ok())?
}
