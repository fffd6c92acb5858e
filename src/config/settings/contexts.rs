//! How much models get to read.

use serde_json::Value;

use crate::config::layers::Layers;

/// Of main agents, and of others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextSizes {
    /// `context.main`.
    pub main: ContextSize,
    /// `context.subAgent`.
    pub sub_agent: ContextSize,
}

/// One of `context`. Tokens and turns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextSize {
    /// `maxContextTokens`; `None` is `auto`.
    pub tokens_max: Option<u64>,
    /// `compactAtRatio`.
    pub compact_at: Option<f64>,
    /// `compression` is not `none`.
    pub compacts: bool,
    /// `recentTurns`.
    pub recent_turns: usize,
    /// `minRecentTurns`.
    pub recent_turns_min: usize,
    /// `summaryTargetTokens`.
    pub summary_tokens: u64,
    /// `maxInlineToolResultTokens` of the main agent.
    pub inline_result_tokens: u64,
}

pub(super) fn sizes(layers: &Layers) -> ContextSizes {
    ContextSizes { main: size(layers, "main"), sub_agent: size(layers, "subAgent") }
}

fn size(layers: &Layers, whose: &str) -> ContextSize {
    let value = |key: &str| layers.get(&format!("context.{whose}.{key}")).map(|leaf| &leaf.value);
    let number = |key: &str| value(key).and_then(Value::as_u64);
    let few = |key: &str| usize::try_from(number(key).unwrap_or_default()).unwrap_or(usize::MAX);
    let inline = layers.get("context.main.maxInlineToolResultTokens");
    ContextSize {
        tokens_max: number("maxContextTokens"),
        compact_at: value("compactAtRatio").and_then(Value::as_f64),
        compacts: value("compression").and_then(Value::as_str) != Some("none"),
        recent_turns: few("recentTurns"),
        recent_turns_min: few("minRecentTurns").min(few("recentTurns")),
        summary_tokens: number("summaryTargetTokens").unwrap_or_default(),
        inline_result_tokens: inline.and_then(|leaf| leaf.value.as_u64()).unwrap_or_default(),
    }
}
