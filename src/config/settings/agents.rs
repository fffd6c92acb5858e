//! Agents of the configuration, and the bounds of delegation.

use serde_json::Value;

use crate::layers::{Layers, SettingOrigin};

/// An entry of `agents`, unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredAgent {
    /// Its name.
    pub name: String,
    /// Definition.
    pub definition: Value,
    /// Its place.
    pub place: String,
    /// True if it is a project's.
    pub project: bool,
}

/// Limits of delegation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationSettings {
    /// `maxDepth`: 1 is children of the main agent.
    pub depth_max: u32,
    /// `maxConcurrent`.
    pub live_max: u32,
    /// `maxTotal`.
    pub total_max: u32,
    /// `maxTokens`.
    pub tokens_max: Option<u64>,
    /// `maxCostMicroUsd`.
    pub micro_usd_max: Option<u64>,
    /// `maxDurationSeconds`.
    pub seconds_max: Option<u64>,
    /// `subInvocationMaxTurns`.
    pub turns_max: u32,
    /// `defaultInvocationDecision`: `allow`, `ask` or `deny`.
    pub invocation: String,
    /// `context.subAgent.memoryScope` is not `none`.
    pub remembers: bool,
    /// `context.subAgent.maxHandoffTokens`.
    pub handoff_tokens_max: u64,
    /// `context.subAgent.maxDelegateContextTokens`.
    pub context_tokens_max: u64,
    /// `context.subAgent.maxResultTokensToMain`.
    pub result_tokens_max: u64,
}

pub(super) fn configured(layers: &Layers) -> Vec<ConfiguredAgent> {
    let agent = |(name, leaf): (&str, &crate::layers::Leaf)| ConfiguredAgent {
        name: name.to_owned(),
        definition: leaf.value.clone(),
        place: match &leaf.origin {
            // Who trusts it is of no interest here.
            SettingOrigin::Project { name, line, .. } => format!("{name}:{line}"),
            other => other.to_string(),
        },
        project: matches!(leaf.origin, SettingOrigin::Project { .. }),
    };
    layers.below("agents.").map(agent).collect()
}

pub(super) fn delegation(layers: &Layers) -> DelegationSettings {
    let maybe = |key: &str| layers.get(key).and_then(|leaf| leaf.value.as_u64());
    let number = |key: &str| maybe(key).unwrap_or_default();
    let few = |key: &str| u32::try_from(number(key)).unwrap_or(u32::MAX);
    let invocation = layers.get("delegation.defaultInvocationDecision");
    let scope = layers.get("context.subAgent.memoryScope");
    DelegationSettings {
        depth_max: few("delegation.maxDepth"),
        live_max: few("delegation.maxConcurrent"),
        total_max: few("delegation.maxTotal"),
        tokens_max: maybe("delegation.maxTokens"),
        micro_usd_max: maybe("delegation.maxCostMicroUsd"),
        seconds_max: maybe("delegation.maxDurationSeconds"),
        turns_max: few("delegation.subInvocationMaxTurns"),
        invocation: invocation.and_then(|leaf| leaf.value.as_str()).unwrap_or("ask").to_owned(),
        remembers: scope.and_then(|leaf| leaf.value.as_str()) != Some("none"),
        handoff_tokens_max: number("context.subAgent.maxHandoffTokens"),
        context_tokens_max: number("context.subAgent.maxDelegateContextTokens"),
        result_tokens_max: number("context.subAgent.maxResultTokensToMain"),
    }
}
