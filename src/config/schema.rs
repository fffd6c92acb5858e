//! Every key there is, as data: its type, range, default, and who may set it.

use serde_json::{Value, json};

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Parts separated by dots; `*` stands for any name.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: BuiltIn,
    /// Whether it has an effect in this version.
    pub(crate) active: bool,
    pub(crate) project: Project,
    /// The variable that sets it.
    pub(crate) variable: Option<&'static str>,
}

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Text,
    /// A text that is masked wherever it is shown.
    Secret,
    /// The name of an environment variable.
    Variable,
    /// `http://` or `https://`.
    Address,
    Choice(&'static [&'static str]),
    Whole(i64, i64),
    Ratio,
    /// `90s`, `10m`, `2h`, `500ms`.
    Duration,
    TextList,
    ObjectList,
    TextMap,
    /// Anything, kept as it is.
    Any,
}

/// What counts when nobody says anything.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BuiltIn {
    None,
    Bool(bool),
    Whole(i64),
    Text(&'static str),
}

/// Whether a repository may set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Project {
    /// Always: it can do no harm.
    Harmless,
    /// Once the user trusts the project.
    Trusted,
    /// Never: it is about the user's authority.
    Never,
}

use BuiltIn as D;
use Kind::{
    Address, Any, Bool, Choice, ObjectList, Ratio, Secret, Text, TextList, TextMap, Variable, Whole,
};
use Project::{Harmless, Never, Trusted};

const MODES: &[&str] = &["single-agent", "multi-agent", "single", "multi"];
const PROVIDER_TYPES: &[&str] =
    &["openai-compatible", "openai-responses", "anthropic", "codex", "replay", "claudecode"];
const TOKENS: Kind = Whole(256, 100_000_000);
const TURNS: Kind = Whole(1, 10_000);

const fn key(path: &'static str, kind: Kind, default: BuiltIn, project: Project) -> Key {
    Key { path, kind, default, active: true, project, variable: None }
}

/// A key of the schema that has no effect in this version.
const fn later(path: &'static str, kind: Kind, project: Project) -> Key {
    Key { path, kind, default: D::None, active: false, project, variable: None }
}

impl Key {
    const fn variable(mut self, name: &'static str) -> Key {
        self.variable = Some(name);
        self
    }

    pub(crate) fn default_value(&self) -> Option<Value> {
        match self.default {
            BuiltIn::None => None,
            BuiltIn::Bool(on) => Some(json!(on)),
            BuiltIn::Whole(number) => Some(json!(number)),
            BuiltIn::Text(text) => Some(json!(text)),
        }
    }

    fn matches(&self, path: &[&str]) -> bool {
        let mut parts = self.path.split('.');
        let all =
            path.iter().all(|given| parts.next().is_some_and(|part| part == "*" || part == *given));
        all && parts.next().is_none()
    }

    /// The name that comes after `path`, if this key lies below it.
    fn below(&self, path: &[&str]) -> Option<&'static str> {
        let mut parts = self.path.split('.');
        let inside =
            path.iter().all(|given| parts.next().is_some_and(|part| part == "*" || part == *given));
        if inside { parts.next() } else { None }
    }
}

/// The key at `path`.
pub(crate) fn find(path: &[&str]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.matches(path))
}

/// The names that may stand below `path`; `*` for any name. Empty if it is not a group.
pub(crate) fn children<'a>(path: &'a [&'a str]) -> impl Iterator<Item = &'static str> + 'a {
    KEYS.iter().filter_map(|key| key.below(path))
}

/// In the order in which they are shown.
pub(crate) static KEYS: &[Key] = &[
    key("agentMode", Choice(MODES), D::Text("single-agent"), Harmless).variable("POSSE_MODE"),
    key("defaultAgent", Text, D::Text("build"), Harmless).variable("POSSE_AGENT"),
    key("defaultProvider", Text, D::None, Trusted).variable("POSSE_PROVIDER"),
    key("model", Text, D::None, Trusted).variable("POSSE_MODEL"),
    key("maxTurns", TURNS, D::Whole(25), Trusted).variable("POSSE_MAX_TURNS"),
    key("timeout", Kind::Duration, D::None, Trusted).variable("POSSE_TIMEOUT"),
    key("patience", Kind::Duration, D::None, Trusted).variable("POSSE_PATIENCE"),
    key("streaming.enabled", Bool, D::Bool(true), Harmless).variable("POSSE_STREAM"),
    key(
        "sandbox.mode",
        Choice(&["off", "read-only", "workspace-write"]),
        D::Text("workspace-write"),
        Never,
    )
    .variable("POSSE_SANDBOX"),
    key("sandbox.network", Choice(&["auto", "deny", "inherit"]), D::Text("auto"), Never)
        .variable("POSSE_NETWORK"),
    key("sandbox.readSecrets", TextList, D::None, Never),
    key("multimodal.maxImageBytes", Whole(1024, 104_857_600), D::Whole(8_388_608), Trusted),
    key("multimodal.detail", Choice(&["auto", "low", "high"]), D::Text("auto"), Harmless),
    key("permissions", ObjectList, D::None, Never),
    key("providers.*.type", Choice(PROVIDER_TYPES), D::None, Trusted),
    key("providers.*.model", Text, D::None, Trusted),
    key("providers.*.baseURL", Address, D::None, Trusted),
    key("providers.*.apiKeyEnv", Variable, D::None, Trusted),
    key("providers.*.apiKey", Secret, D::None, Trusted),
    key("providers.*.auth", Text, D::None, Trusted),
    key("providers.*.headers", TextMap, D::None, Trusted),
    key("providers.*.quirks", Any, D::None, Trusted),
    key("providers.*.maxTokens", Whole(1, 10_000_000), D::None, Trusted),
    key("providers.*.contextWindow", TOKENS, D::None, Trusted),
    key("providers.*.patience", Kind::Duration, D::None, Trusted),
    key("providers.*.timeouts.connect", Kind::Duration, D::None, Trusted),
    key("providers.*.timeouts.firstByte", Kind::Duration, D::None, Trusted),
    key("providers.*.timeouts.idle", Kind::Duration, D::None, Trusted),
    // What this version accepts and does not use.
    later("mode", Choice(MODES), Harmless),
    later("multiAgent.enabled", Bool, Harmless),
    later("persistentGrants.enabled", Bool, Never),
    later("persistentGrants.scope", Choice(&["session", "project", "global"]), Never),
    later("persistentGrants.ttlMs", Whole(0, 31_536_000_000), Never),
    later("delegation.maxDepth", Whole(0, 8), Trusted),
    later("delegation.maxConcurrent", Whole(1, 100), Trusted),
    later("delegation.defaultInvocationDecision", Choice(&["allow", "ask", "deny"]), Never),
    later("delegation.subInvocationMaxTurns", TURNS, Trusted),
    later("context.main.maxContextTokens", TOKENS, Harmless)
        .variable("POSSE_MAIN_MAX_CONTEXT_TOKENS"),
    later("context.main.compactAtRatio", Ratio, Harmless).variable("POSSE_MAIN_COMPACT_AT_RATIO"),
    later("context.main.summaryTargetTokens", TOKENS, Harmless)
        .variable("POSSE_MAIN_SUMMARY_TARGET_TOKENS"),
    later("context.main.recentTurns", Whole(0, 1000), Harmless),
    later("context.main.minRecentTurns", Whole(0, 1000), Harmless),
    later("context.main.keepRawDelegateResults", Whole(0, 1000), Harmless)
        .variable("POSSE_MAIN_KEEP_RAW_DELEGATE_RESULTS"),
    later("context.main.maxDelegateResultTokens", TOKENS, Harmless)
        .variable("POSSE_MAIN_MAX_DELEGATE_RESULT_TOKENS"),
    later("context.main.ledgerTargetTokens", TOKENS, Harmless),
    later("context.main.maxInlineToolResultTokens", TOKENS, Harmless),
    later("context.main.retrievalMaxTokens", TOKENS, Harmless),
    later("context.main.reserveForImagesTokens", TOKENS, Harmless),
    later("context.main.compression", Text, Harmless),
    later("context.subAgent.memoryScope", Text, Harmless),
    later("context.subAgent.maxContextTokens", TOKENS, Harmless)
        .variable("POSSE_SUB_MAX_CONTEXT_TOKENS"),
    later("context.subAgent.maxInputTokens", TOKENS, Harmless),
    later("context.subAgent.summaryTargetTokens", TOKENS, Harmless)
        .variable("POSSE_SUB_SUMMARY_TARGET_TOKENS"),
    later("context.subAgent.recentTurns", Whole(0, 1000), Harmless)
        .variable("POSSE_SUB_RECENT_TURNS"),
    later("context.subAgent.minRecentTurns", Whole(0, 1000), Harmless),
    later("context.subAgent.compactAtRatio", Ratio, Harmless)
        .variable("POSSE_SUB_COMPACT_AT_RATIO"),
    later("context.subAgent.maxHandoffTokens", TOKENS, Harmless)
        .variable("POSSE_SUB_MAX_HANDOFF_TOKENS"),
    later("context.subAgent.maxDelegateContextTokens", TOKENS, Harmless)
        .variable("POSSE_SUB_MAX_DELEGATE_CONTEXT_TOKENS"),
    later("context.subAgent.maxResultTokensToMain", TOKENS, Harmless)
        .variable("POSSE_SUB_MAX_RESULT_TOKENS_TO_MAIN"),
    later("context.subAgent.compression", Text, Harmless),
    later("trust.userTools", Bool, Never),
    later("trust.project", Bool, Never),
    later("agents", Any, Trusted),
    later("hooks", Any, Trusted),
    later("mcpServers", Any, Trusted),
    later("skills", Any, Trusted),
    later("tools", Any, Trusted),
    later("ui", Any, Trusted),
    later("budget", Any, Never),
    later("providers.*.timeouts.total", Kind::Duration, Trusted),
    later("providers.*.fallback", TextList, Trusted),
    later("providers.*.authStore", Text, Trusted),
    later("providers.*.allowApiKeyFallback", Bool, Trusted),
    later("providers.*.promptCacheKey", Text, Trusted),
    later("providers.*.responses", Any, Trusted),
    later("providers.*.runtime", Text, Trusted),
    later("providers.*.cliPath", Text, Trusted),
    later("providers.*.cwdMode", Text, Trusted),
    later("providers.*.permissionMode", Text, Trusted),
    later("providers.*.defaultDecision", Text, Trusted),
    later("providers.*.historyPolicy", Text, Trusted),
    later("providers.*.onInvalidResume", Text, Trusted),
    later("providers.*.attachmentFallback", Text, Trusted),
    later("providers.*.allowSubagents", Bool, Trusted),
    later("providers.*.sanitizeApiKeyEnv", Bool, Trusted),
    later("providers.*.authPreflight", Bool, Trusted),
    later("providers.*.useBareMode", Bool, Trusted),
    later("providers.*.usageLedgerScope", Text, Trusted),
    later("providers.*.sessionLock", Bool, Trusted),
    later("providers.*.abortPolicy", Text, Trusted),
];
