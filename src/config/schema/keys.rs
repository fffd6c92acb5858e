//! Table of all configuration keys, sorted by path.

use crate::schema::Project::{Harmless, Never, OwnProvider, Tighten, Trusted};
use crate::schema::ValueKind::{
    Address, Any, Bool, Choice, Object, ObjectList, Ratio, Secret, Text, TextList, TextMap,
    Variable, Whole, WholeOrAuto,
};
use crate::schema::{BuiltIn as D, ConfigKey, Project, ValueKind};

const MODES: &[&str] = &["single-agent", "multi-agent", "single", "multi"];
const PROVIDER_TYPES: &[&str] =
    &["openai-compatible", "openai-responses", "anthropic", "codex", "replay", "claudecode"];
const CONFINED: &[&str] = &["off", "read-only", "workspace-write"];
const THINKING: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];
const TOKENS: ValueKind = Whole(256, 100_000_000);
const TOKENS_OR_AUTO: ValueKind = WholeOrAuto(256, 100_000_000);
const COMPRESSIONS: &[&str] =
    &["deterministic", "compact-summary-and-recent", "summary-and-recent", "none"];
const TURNS: ValueKind = Whole(1, 10_000);
const FEW: ValueKind = Whole(0, 1000);
const PRICE: ValueKind = Whole(0, 1_000_000_000_000);

const fn key(
    path: &'static str,
    kind: ValueKind,
    default: D,
    project: Project,
    about: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, default, active: true, project, variable: None, about }
}

/// Makes a key that is accepted but has no effect in this version.
const fn later(
    path: &'static str,
    kind: ValueKind,
    project: Project,
    about: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, default: D::None, active: false, project, variable: None, about }
}

/// All configuration keys, sorted by path for binary search.
#[rustfmt::skip]
pub(crate) static KEYS: &[ConfigKey] = &[
    key("agentMode", Choice(MODES), D::Text("single-agent"), Trusted,
        "With multi-agent, agents can start subagents.")
        .variable("POSSE_MODE"),
    key("agents", Object, D::None, Trusted,
        "Additional agents, by name."),
    key("budget.maxCostMicroUsd", Whole(1, 1_000_000_000_000), D::None, Never,
        "Cost limit of a session in millionths of a dollar. The session ends before it exceeds \
         the limit.")
        .variable("POSSE_BUDGET_MICRO_USD"),
    key("budget.maxTokens", Whole(1, 1_000_000_000_000), D::None, Never,
        "Token limit of a session. The session ends before it exceeds the limit.")
        .variable("POSSE_BUDGET_TOKENS"),
    key("context.main.compactAtRatio", Ratio, D::None, Trusted,
        "Fraction of the context at which it is compacted. Default: 0.7.")
        .variable("POSSE_MAIN_COMPACT_AT_RATIO"),
    key("context.main.compression", Choice(COMPRESSIONS), D::None, Trusted,
        "Method of compaction: by rules, and by the model in roles.compact if that is set; \
         none: only on request. Default: deterministic."),
    later("context.main.keepRawDelegateResults", FEW, Trusted,
        "Number of subagent results that are kept in full.")
        .variable("POSSE_MAIN_KEEP_RAW_DELEGATE_RESULTS"),
    later("context.main.ledgerTargetTokens", TOKENS, Trusted,
        "Size of the list of subagent actions, in tokens."),
    key("context.main.maxContextTokens", TOKENS_OR_AUTO, D::None, Trusted,
        "Context of the main agent, in tokens. auto: the context window of its model; if that is \
         unknown, 32000 for a server on this machine, otherwise 128000. Default: auto.")
        .variable("POSSE_MAIN_MAX_CONTEXT_TOKENS"),
    later("context.main.maxDelegateResultTokens", TOKENS, Trusted,
        "Size of a subagent's result, in tokens.")
        .variable("POSSE_MAIN_MAX_DELEGATE_RESULT_TOKENS"),
    key("context.main.maxInlineToolResultTokens", TOKENS, D::None, Trusted,
        "Tool results up to this size, in tokens, are kept in full when a request was refused \
         as too large. Default: 2000."),
    key("context.main.minRecentTurns", FEW, D::None, Trusted,
        "Minimum number of latest turns that are kept in full, if they fit the window. Default: 2."),
    key("context.main.recentTurns", FEW, D::None, Trusted,
        "Number of latest turns that are kept in full. Default: 6."),
    later("context.main.reserveForImagesTokens", TOKENS, Trusted,
        "Tokens reserved for images."),
    later("context.main.retrievalMaxTokens", TOKENS, Trusted,
        "Maximum tokens retrieved at once."),
    key("context.main.summaryTargetTokens", TOKENS, D::None, Trusted,
        "Size of the summary, in tokens. Default: 3000.")
        .variable("POSSE_MAIN_SUMMARY_TARGET_TOKENS"),
    key("context.subAgent.compactAtRatio", Ratio, D::None, Trusted,
        "Fraction of the context at which it is compacted. Default: 0.7.")
        .variable("POSSE_SUB_COMPACT_AT_RATIO"),
    key("context.subAgent.compression", Choice(COMPRESSIONS), D::None, Trusted,
        "Method of compaction: by rules, and by the model in roles.compact if that is set; \
         none: only on request. Default: deterministic."),
    key("context.subAgent.maxContextTokens", TOKENS_OR_AUTO, D::None, Trusted,
        "Context of a subagent, in tokens. auto: as for the main agent. Default: auto.")
        .variable("POSSE_SUB_MAX_CONTEXT_TOKENS"),
    key("context.subAgent.maxDelegateContextTokens", TOKENS, D::Whole(1000), Trusted,
        "Maximum size of the context passed with a task, in tokens.")
        .variable("POSSE_SUB_MAX_DELEGATE_CONTEXT_TOKENS"),
    key("context.subAgent.maxHandoffTokens", TOKENS, D::Whole(2000), Trusted,
        "Maximum size of a subagent's task with its context, in tokens.")
        .variable("POSSE_SUB_MAX_HANDOFF_TOKENS"),
    later("context.subAgent.maxInputTokens", TOKENS, Trusted,
        "Tokens of one request of a subagent."),
    key("context.subAgent.maxResultTokensToMain", TOKENS, D::Whole(1000), Trusted,
        "Maximum size of a subagent's result, in tokens.")
        .variable("POSSE_SUB_MAX_RESULT_TOKENS_TO_MAIN"),
    key("context.subAgent.memoryScope", Choice(&["root-session", "none"]), D::Text("root-session"), Trusted,
        "With root-session, a subagent gets earlier reports of subagents of its name in this session."),
    key("context.subAgent.minRecentTurns", FEW, D::None, Trusted,
        "Minimum number of latest turns that are kept in full, if they fit the window. Default: 1."),
    key("context.subAgent.recentTurns", FEW, D::None, Trusted,
        "Number of latest turns that are kept in full. Default: 3.")
        .variable("POSSE_SUB_RECENT_TURNS"),
    key("context.subAgent.summaryTargetTokens", TOKENS, D::None, Trusted,
        "Size of the summary, in tokens. Default: 1200.")
        .variable("POSSE_SUB_SUMMARY_TARGET_TOKENS"),
    later("daemon", Any, Never,
        "Settings of background operation."),
    key("defaultAgent", Text, D::Text("build"), Trusted,
        "Name of the main agent.")
        .variable("POSSE_AGENT"),
    key("defaultProvider", Text, D::None, Trusted,
        "The provider profile or preset. Without it: the first preset whose key is in the \
         environment.")
        .variable("POSSE_PROVIDER"),
    key("delegation.defaultInvocationDecision", Choice(&["allow", "ask", "deny"]), D::Text("ask"), Never,
        "Permission decision for starting a subagent."),
    key("delegation.maxConcurrent", Whole(1, 100), D::Whole(3), Trusted,
        "Maximum number of concurrent subagents."),
    key("delegation.maxCostMicroUsd", Whole(1, 1_000_000_000_000), D::None, Never,
        "Cost limit of all subagents of a session, in millionths of a dollar."),
    key("delegation.maxDepth", Whole(0, 8), D::Whole(1), Trusted,
        "Maximum depth of delegation; 0: none."),
    key("delegation.maxDurationSeconds", Whole(1, 1_000_000), D::None, Trusted,
        "Time limit of a subagent, in seconds."),
    key("delegation.maxTokens", Whole(1, 1_000_000_000_000), D::None, Never,
        "Token limit of all subagents of a session."),
    key("delegation.maxTotal", Whole(1, 100_000), D::Whole(100), Trusted,
        "Maximum number of subagents in a session."),
    key("delegation.subInvocationMaxTurns", TURNS, D::Whole(10), Trusted,
        "Maximum number of model replies in a delegated task."),
    key("hooks", ObjectList, D::None, Trusted,
        "Hooks: programs that are run at certain events. The lists of all files are joined in \
         order."),
    key("maxTurns", TURNS, D::Whole(25), Trusted,
        "Maximum number of model replies in a task.")
        .variable("POSSE_MAX_TURNS"),
    later("mcpServers", Any, Trusted,
        "MCP servers, by name."),
    later("memory", Any, Trusted,
        "Memory across sessions."),
    key("mode", Choice(MODES), D::None, Trusted,
        "Alias of agentMode, which has precedence."),
    key("model", Text, D::None, Trusted,
        "The model. Default: that of the provider.")
        .variable("POSSE_MODEL"),
    key("models.*.cacheWritePrice", PRICE, D::None, Trusted,
        "Price of a million tokens written to the prompt cache, in micro-USD."),
    key("models.*.cachedInputPrice", PRICE, D::None, Trusted,
        "Price of a million tokens read from the prompt cache, in micro-USD."),
    key("models.*.contextWindow", TOKENS, D::None, Trusted,
        "Context window: tokens of a request and its reply."),
    key("models.*.inputPrice", PRICE, D::None, Trusted,
        "Price of a million input tokens, in micro-USD: 1250000 is $1.25."),
    key("models.*.maxOutputTokens", Whole(1, 100_000_000), D::None, Trusted,
        "Maximum tokens of a reply."),
    key("models.*.outputPrice", PRICE, D::None, Trusted,
        "Price of a million output tokens, in micro-USD."),
    key("models.*.reasoning", Bool, D::None, Trusted,
        "True if the model supports reasoning."),
    key("models.*.tools", Bool, D::None, Trusted,
        "True if the model supports tool calls."),
    key("models.*.vision", Bool, D::None, Trusted,
        "True if the model supports images."),
    key("multiAgent.enabled", Bool, D::None, Trusted,
        "Alias of agentMode, which has precedence: true is multi-agent."),
    key("multimodal.detail", Choice(&["auto", "low", "high"]), D::Text("auto"), Trusted,
        "Detail level of images."),
    key("multimodal.maxImageBytes", Whole(1024, 104_857_600), D::Whole(8_388_608), Trusted,
        "Maximum size of an image that is sent, in bytes.")
        .variable("POSSE_MAX_IMAGE_BYTES"),
    key("patience", ValueKind::Duration, D::None, Trusted,
        "Maximum time to retry an unavailable provider. Default: 10m, or 24h with --unattended.")
        .variable("POSSE_PATIENCE"),
    key("permissions", ObjectList, D::None, Tighten,
        "Permission rules, in order: allow, ask or deny."),
    key("persistentGrants.enabled", Bool, D::Bool(true), Never,
        "Enables grants that outlive a session."),
    key("persistentGrants.scope", Choice(&["session", "project", "global"]), D::Text("global"), Never,
        "Widest scope that a permission request offers; stored grants of a wider scope are \
         ignored."),
    key("persistentGrants.ttlMs", Whole(0, 31_536_000_000), D::Whole(604_800_000), Never,
        "Lifetime of a grant in milliseconds. 0: grants are not stored."),
    later("providers.*.abortPolicy", Text, Trusted,
        "Handling of an interrupted external session."),
    later("providers.*.allowApiKeyFallback", Bool, Trusted,
        "Use an API key when the login fails."),
    later("providers.*.allowSubagents", Bool, Trusted,
        "Let an external agent start its own subagents."),
    key("providers.*.apiKey", Secret, D::None, Never,
        "The API key, used if the variable is not set. Prefer the variable."),
    key("providers.*.apiKeyEnv", Variable, D::None, OwnProvider,
        "The environment variable with the API key."),
    later("providers.*.attachmentFallback", Text, Trusted,
        "Handling of images that cannot be sent."),
    key("providers.*.auth", Text, D::None, OwnProvider,
        "Authentication: bearer, api-key, none, or the name of a header that carries the key."),
    later("providers.*.authPreflight", Bool, Trusted,
        "Check an external agent's login first."),
    later("providers.*.authStore", Text, Trusted,
        "Location of a stored login."),
    key("providers.*.baseURL", Address, D::None, OwnProvider,
        "Base URL of the API. For a replay provider: file:// and the path of its cassette."),
    later("providers.*.cliPath", Text, Trusted,
        "The program of an external agent."),
    key("providers.*.contextWindow", TOKENS, D::None, Trusted,
        "Context window: tokens of a request and its reply."),
    later("providers.*.cwdMode", Text, Trusted,
        "Working directory of an external agent."),
    later("providers.*.defaultDecision", Text, Trusted,
        "Default answer to an external agent's permission requests."),
    key("providers.*.fallback", TextList, D::None, Trusted,
        "Fallback profiles that are used while this one is unavailable, in order."),
    key("providers.*.headers", TextMap, D::None, OwnProvider,
        "Additional headers of each request."),
    later("providers.*.historyPolicy", Text, Trusted,
        "Storage of an external agent's history."),
    key("providers.*.maxTokens", Whole(1, 10_000_000), D::None, Trusted,
        "Maximum tokens of one reply."),
    key("providers.*.model", Text, D::None, Trusted,
        "The default model."),
    later("providers.*.onInvalidResume", Text, Trusted,
        "Handling of an external session that no longer exists."),
    key("providers.*.patience", ValueKind::Duration, D::None, Trusted,
        "Maximum time to retry this provider; overrides patience."),
    later("providers.*.permissionMode", Text, Trusted,
        "The permission mode of an external agent."),
    later("providers.*.promptCacheKey", Text, Trusted,
        "Key of the provider's prompt cache."),
    key("providers.*.quirks", Any, D::None, Trusted,
        "Deviations of the server from the protocol."),
    later("providers.*.responses", Any, Trusted,
        "Additional fields of requests to a responses API."),
    later("providers.*.runtime", Text, Trusted,
        "Runtime of an external agent."),
    later("providers.*.sanitizeApiKeyEnv", Bool, Trusted,
        "Hide API keys from an external agent."),
    later("providers.*.sessionLock", Bool, Trusted,
        "Prevent two processes from using the same external session."),
    key("providers.*.timeouts.connect", ValueKind::Duration, D::None, Trusted,
        "Timeout for connecting."),
    key("providers.*.timeouts.firstByte", ValueKind::Duration, D::None, Trusted,
        "Timeout until the reply begins. Default: 90s; 10m for a server on this machine."),
    key("providers.*.timeouts.idle", ValueKind::Duration, D::None, Trusted,
        "Timeout between two chunks of a reply, not counting pings. Default: 5m; 10m for a \
         server on this machine."),
    key("providers.*.timeouts.silence", ValueKind::Duration, D::None, Trusted,
        "Timeout without any byte of a reply. Default: 90s; 10m for a server on this machine."),
    later("providers.*.timeouts.total", ValueKind::Duration, Trusted,
        "Timeout of a whole reply."),
    key("providers.*.type", Choice(PROVIDER_TYPES), D::None, Trusted,
        "The protocol. Default: that of the preset of this name, else openai-compatible."),
    later("providers.*.usageLedgerScope", Text, Trusted,
        "Scope over which an external agent's usage is added up."),
    later("providers.*.useBareMode", Bool, Trusted,
        "Start an external agent without its own configuration."),
    key("retry.baseDelay", ValueKind::Duration, D::None, Trusted,
        "Maximum delay before the first retry; it doubles for each further one. Default: 1s."),
    key("retry.maxAttempts", Whole(1, 1000), D::None, Trusted,
        "Maximum attempts at one request. patience limits their total time."),
    key("retry.maxDelay", ValueKind::Duration, D::None, Trusted,
        "Maximum delay between two attempts, unless a rate limit or quota requires more. \
         Default: 30s."),
    key("roles.*.model", Text, D::None, Trusted,
        "The model of a role. Default: that of its provider. Roles: compact, title, and \
         subagents by name."),
    key("roles.*.profile", Text, D::None, Trusted,
        "The provider profile or preset of a role. Default: the session's."),
    key("roles.*.thinking", Choice(THINKING), D::None, Trusted,
        "Thinking effort of the model of a role."),
    key("sandbox.mode", Choice(CONFINED), D::Text("workspace-write"), Tighten,
        "Sandbox of commands.")
        .variable("POSSE_SANDBOX"),
    key("sandbox.network", Choice(&["auto", "deny", "inherit"]), D::Text("auto"), Tighten,
        "Network access of commands. auto: only if a user can be asked.")
        .variable("POSSE_NETWORK"),
    key("sandbox.readSecrets", TextList, D::None, Never,
        "Secret files that tools may read: absolute paths, ~/ allowed."),
    key("sandbox.required", Bool, D::None, Tighten,
        "Fail with exit code 7 if the requested sandbox is not available.")
        .variable("POSSE_SANDBOX_REQUIRED"),
    key("sandbox.writableRoots", TextList, D::None, Never,
        "Additional folders that commands may write: absolute paths, ~/ allowed."),
    later("server", Any, Never,
        "Settings of the server for other front ends."),
    later("session.retentionDays", Whole(1, 36_500), Never,
        "Days after which a session may be removed."),
    later("session.rootLifetime", Choice(&["process", "detached"]), Never,
        "With detached, a session outlives its front end."),
    key("skills.disabled", TextList, D::None, Trusted,
        "Names of disabled skills."),
    key("skills.enabled", Bool, D::Bool(true), Never,
        "Discover skills, and let models activate them."),
    key("skills.folders", TextList, D::None, Never,
        "Additional folders with skills, searched first: absolute paths, ~/ allowed."),
    key("streaming.enabled", Bool, D::Bool(true), Trusted,
        "Request streamed replies from the provider.")
        .variable("POSSE_STREAM"),
    key("thinking", Choice(THINKING), D::None, Trusted,
        "Thinking effort of models, unless an agent defines its own. Omitted for servers that \
         do not support it.")
        .variable("POSSE_THINKING"),
    key("timeout", ValueKind::Duration, D::None, Trusted,
        "Time limit of a task.")
        .variable("POSSE_TIMEOUT"),
    key("tools.bash.jobs", Whole(0, 64), D::Whole(8), Trusted,
        "Maximum number of concurrent background jobs. 0 disables them and their tools."),
    key("tools.bash.maxTimeout", ValueKind::Duration, D::None, Trusted,
        "Longest time limit that a command may request. Default: 10m."),
    key("tools.bash.timeout", ValueKind::Duration, D::None, Trusted,
        "Time limit of a command for which none is requested. Then it continues as a background \
         job, or is ended if tools.bash.jobs is 0. Default: 2m."),
    key("tools.budgets.*.max", Whole(0, 1_000_000), D::None, Trusted,
        "Maximum calls of this tool in one task."),
    key("tools.budgets.*.onExceed", Choice(&["block", "steer"]), D::None, Trusted,
        "Action above the limit: block refuses the call, steer sends the model one steering \
         message. Default: block."),
    key("tools.edit.fuzzy", Bool, D::Bool(false), Trusted,
        "Let edits match if only trailing blanks, kinds of spaces, quotes or dashes differ; the \
         result reports it."),
    key("tools.edit.requireRead", Bool, D::Bool(false), Trusted,
        "Refuse to edit a file that the session has not read, or that changed since."),
    key("tools.outputBudget", Whole(1024, 1_073_741_824), D::None, Trusted,
        "Bytes of tool output in one turn, above which the model is asked to be brief.")
        .variable("POSSE_TOOL_OUTPUT_BUDGET"),
    later("tools.parallel", Choice(&["off", "readonly", "all"]), Trusted,
        "Tools that may run concurrently."),
    key("tools.read.dedup", Bool, D::Bool(true), Harmless,
        "Answer a repeated read of an unchanged file with a reference to the first."),
    later("tools.todo", Bool, Harmless,
        "Give the model a list of tasks."),
    later("tools.web", Bool, Never,
        "Let the model fetch from the web."),
    later("trust.project", Bool, Never,
        "Trust projects' configuration."),
    later("trust.userTools", Bool, Never,
        "Load the user's own tools."),
    key("ui.alternateScreen", Bool, D::None, Never,
        "Use the alternate screen for the terminal UI instead of the scrollback."),
    key("ui.history", Bool, D::Bool(true), Never,
        "Store the input history of line mode."),
    key("ui.keybindings", TextMap, D::None, Never,
        "Key bindings of the terminal UI, by the action names in its guide."),
    later("ui.queue.followUp", Choice(&["all", "one"]), Harmless,
        "Number of queued follow-ups sent at once."),
    later("ui.queue.steering", Choice(&["all", "one"]), Harmless,
        "Number of queued steering messages sent at once."),
    later("ui.showThinking", Bool, Harmless,
        "Show the model's thinking."),
    key("ui.theme", Choice(&["dark", "light", "high-contrast", "none"]), D::None, Harmless,
        "Colours of the terminal UI.")
        .variable("POSSE_THEME"),
    key("version", Whole(1, 1_000_000), D::None, Harmless,
        "Version of this format: 1. A file of a later version is read as far as it is \
         understood and never changed."),
    later("workspace.roots", TextList, Never,
        "Further folders that tools may use."),
];
