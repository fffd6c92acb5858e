//! Context budgets as configured.

use serde_json::Value;

use crate::layers::Layers;

/// Of main agents, and of others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextSizes {
    /// `context.main`.
    pub main: ContextSize,
    /// `context.subAgent`.
    pub sub_agent: ContextSize,
}

/// An entry of `context`. Tokens and turns. `None` if not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextSize {
    /// `maxContextTokens` as a number.
    pub tokens_max: Option<u64>,
    /// `maxContextTokens` is `auto`.
    pub auto: bool,
    /// `compactAtRatio`.
    pub compact_at: Option<f64>,
    /// `compression` is `none`.
    pub never_compacts: bool,
    /// `recentTurns`.
    pub recent_turns: Option<usize>,
    /// `minRecentTurns`.
    pub recent_turns_min: Option<usize>,
    /// `summaryTargetTokens`.
    pub summary_tokens: Option<u64>,
    /// `maxInlineToolResultTokens` of the main agent.
    pub inline_result_tokens: Option<u64>,
}

pub(super) fn sizes(layers: &Layers) -> ContextSizes {
    ContextSizes { main: size(layers, "main"), sub_agent: size(layers, "subAgent") }
}

fn size(layers: &Layers, whose: &str) -> ContextSize {
    let value = |key: &str| layers.get(&format!("context.{whose}.{key}")).map(|leaf| &leaf.value);
    let number = |key: &str| value(key).and_then(Value::as_u64);
    let few = |key: &str| number(key).and_then(|number| usize::try_from(number).ok());
    let says = |key: &str, what: &str| value(key).and_then(Value::as_str) == Some(what);
    let inline = layers.get("context.main.maxInlineToolResultTokens");
    ContextSize {
        tokens_max: number("maxContextTokens"),
        auto: says("maxContextTokens", "auto"),
        compact_at: value("compactAtRatio").and_then(Value::as_f64),
        never_compacts: says("compression", "none"),
        recent_turns: few("recentTurns"),
        recent_turns_min: few("minRecentTurns"),
        summary_tokens: number("summaryTargetTokens"),
        inline_result_tokens: inline.and_then(|leaf| leaf.value.as_u64()),
    }
}
