//! Every key there is, as data, in the order of its path.

use crate::config::schema::Project::{Harmless, Never, OwnProvider, Tighten, Trusted};
use crate::config::schema::ValueKind::{
    Address, Any, Bool, Choice, Object, ObjectList, Ratio, Secret, Text, TextList, TextMap,
    Variable, Whole, WholeOrAuto,
};
use crate::config::schema::{BuiltIn as D, ConfigKey, Project, ValueKind};

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

/// A key that is accepted and has no effect in this version.
const fn later(
    path: &'static str,
    kind: ValueKind,
    project: Project,
    about: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, default: D::None, active: false, project, variable: None, about }
}

/// Sorted by path, so that a group is found without looking at the rest.
#[rustfmt::skip]
pub(crate) static KEYS: &[ConfigKey] = &[
    key("agentMode", Choice(MODES), D::Text("single-agent"), Harmless,
        "One agent, or agents that may delegate.")
        .variable("POSSE_MODE"),
    key("agents", Object, D::None, Trusted,
        "Further agents, by name."),
    key("budget.maxCostMicroUsd", Whole(1, 1_000_000_000_000), D::None, Never,
        "A session ends before it costs more than this many millionths of a dollar.")
        .variable("POSSE_BUDGET_MICRO_USD"),
    key("budget.maxTokens", Whole(1, 1_000_000_000_000), D::None, Never,
        "A session ends before it uses more tokens.")
        .variable("POSSE_BUDGET_TOKENS"),
    key("context.main.compactAtRatio", Ratio, D::None, Harmless,
        "The part of the context at which it is compacted. Default: 0.7.")
        .variable("POSSE_MAIN_COMPACT_AT_RATIO"),
    key("context.main.compression", Choice(COMPRESSIONS), D::None, Harmless,
        "How context is compacted: by rules, and by roles.compact where that is set; none: \
         only when asked. Default: deterministic."),
    later("context.main.keepRawDelegateResults", FEW, Harmless,
        "Results of other agents that stay whole.")
        .variable("POSSE_MAIN_KEEP_RAW_DELEGATE_RESULTS"),
    later("context.main.ledgerTargetTokens", TOKENS, Harmless,
        "Size of the list of what other agents did."),
    key("context.main.maxContextTokens", TOKENS_OR_AUTO, D::None, Harmless,
        "Tokens of context of the main agent. auto: what the window of its model \
         holds. Default: 48000.")
        .variable("POSSE_MAIN_MAX_CONTEXT_TOKENS"),
    later("context.main.maxDelegateResultTokens", TOKENS, Harmless,
        "Size of another agent's result.")
        .variable("POSSE_MAIN_MAX_DELEGATE_RESULT_TOKENS"),
    key("context.main.maxInlineToolResultTokens", TOKENS, D::None, Harmless,
        "Size of a result of a tool that stays whole even in a request that was refused for its \
         size. Default: 2000."),
    key("context.main.minRecentTurns", FEW, D::None, Harmless,
        "Latest turns that stay whole whatever happens. Default: 2."),
    key("context.main.recentTurns", FEW, D::None, Harmless,
        "Latest turns that stay whole. Default: 6."),
    later("context.main.reserveForImagesTokens", TOKENS, Harmless,
        "Tokens kept free for images."),
    later("context.main.retrievalMaxTokens", TOKENS, Harmless,
        "Size of what is read back at once."),
    key("context.main.summaryTargetTokens", TOKENS, D::None, Harmless,
        "Size of the summary. Default: 3000.")
        .variable("POSSE_MAIN_SUMMARY_TARGET_TOKENS"),
    key("context.subAgent.compactAtRatio", Ratio, D::None, Harmless,
        "The part of the context at which it is compacted. Default: 0.7.")
        .variable("POSSE_SUB_COMPACT_AT_RATIO"),
    key("context.subAgent.compression", Choice(COMPRESSIONS), D::None, Harmless,
        "How context is compacted: by rules, and by roles.compact where that is set; none: \
         only when asked. Default: deterministic."),
    key("context.subAgent.maxContextTokens", TOKENS_OR_AUTO, D::None, Harmless,
        "Tokens of context of a delegated agent. auto: what the window of its model \
         holds. Default: 12000.")
        .variable("POSSE_SUB_MAX_CONTEXT_TOKENS"),
    key("context.subAgent.maxDelegateContextTokens", TOKENS, D::Whole(1000), Harmless,
        "Size of the context that goes with a task.")
        .variable("POSSE_SUB_MAX_DELEGATE_CONTEXT_TOKENS"),
    key("context.subAgent.maxHandoffTokens", TOKENS, D::Whole(2000), Harmless,
        "Size of what a delegated agent is given.")
        .variable("POSSE_SUB_MAX_HANDOFF_TOKENS"),
    later("context.subAgent.maxInputTokens", TOKENS, Harmless,
        "Tokens of one request of a delegated agent."),
    key("context.subAgent.maxResultTokensToMain", TOKENS, D::Whole(1000), Harmless,
        "Size of the result that goes back.")
        .variable("POSSE_SUB_MAX_RESULT_TOKENS_TO_MAIN"),
    key("context.subAgent.memoryScope", Choice(&["root-session", "none"]), D::Text("root-session"), Harmless,
        "Whether a delegated agent is given what those of its name have reported in the session."),
    key("context.subAgent.minRecentTurns", FEW, D::None, Harmless,
        "Latest turns that stay whole whatever happens. Default: 1."),
    key("context.subAgent.recentTurns", FEW, D::None, Harmless,
        "Latest turns that stay whole. Default: 3.")
        .variable("POSSE_SUB_RECENT_TURNS"),
    key("context.subAgent.summaryTargetTokens", TOKENS, D::None, Harmless,
        "Size of the summary. Default: 1200.")
        .variable("POSSE_SUB_SUMMARY_TARGET_TOKENS"),
    later("daemon", Any, Never,
        "What runs while nobody is there."),
    key("defaultAgent", Text, D::Text("build"), Harmless,
        "The agent that does the task.")
        .variable("POSSE_AGENT"),
    key("defaultProvider", Text, D::None, Trusted,
        "The provider profile or preset. Without it: the first preset whose key is in the \
         environment.")
        .variable("POSSE_PROVIDER"),
    key("delegation.defaultInvocationDecision", Choice(&["allow", "ask", "deny"]), D::Text("ask"), Never,
        "Whether starting an agent is asked for."),
    key("delegation.maxConcurrent", Whole(1, 100), D::Whole(3), Trusted,
        "Agents that work at the same time."),
    key("delegation.maxCostMicroUsd", Whole(1, 1_000_000_000_000), D::None, Never,
        "All delegated agents of a session together cost no more than this many millionths of a dollar."),
    key("delegation.maxDepth", Whole(0, 8), D::Whole(1), Trusted,
        "How deep agents may delegate."),
    key("delegation.maxDurationSeconds", Whole(1, 1_000_000), D::None, Trusted,
        "A delegated agent ends after this long."),
    key("delegation.maxTokens", Whole(1, 1_000_000_000_000), D::None, Never,
        "All delegated agents of a session together use no more tokens."),
    key("delegation.maxTotal", Whole(1, 100_000), D::Whole(100), Trusted,
        "Agents that one session may start."),
    key("delegation.subInvocationMaxTurns", TURNS, D::Whole(10), Trusted,
        "Replies of the model in one delegated task."),
    key("hooks", ObjectList, D::None, Trusted,
        "Programs that are asked at certain events. The lists of all files count, one after the \
        other."),
    key("maxTurns", TURNS, D::Whole(25), Trusted,
        "A task ends after this many replies of the model.")
        .variable("POSSE_MAX_TURNS"),
    later("mcpServers", Any, Trusted,
        "Servers whose tools are offered, by name."),
    later("memory", Any, Trusted,
        "What is remembered between sessions."),
    key("mode", Choice(MODES), D::None, Harmless,
        "Another name for agentMode, which comes first."),
    key("model", Text, D::None, Trusted,
        "The model, instead of the provider's own.")
        .variable("POSSE_MODEL"),
    key("models.*.cacheWritePrice", PRICE, D::None, Trusted,
        "Micro-USD for a million tokens written into the provider's cache."),
    key("models.*.cachedInputPrice", PRICE, D::None, Trusted,
        "Micro-USD for a million tokens read from the provider's cache."),
    key("models.*.contextWindow", TOKENS, D::None, Trusted,
        "Tokens that fit into a request and its reply."),
    key("models.*.inputPrice", PRICE, D::None, Trusted,
        "Micro-USD for a million tokens read: 1250000 is $1.25."),
    key("models.*.maxOutputTokens", Whole(1, 100_000_000), D::None, Trusted,
        "Tokens that a reply can have."),
    key("models.*.outputPrice", PRICE, D::None, Trusted,
        "Micro-USD for a million tokens written."),
    key("models.*.reasoning", Bool, D::None, Trusted,
        "Whether it thinks before it answers."),
    key("models.*.tools", Bool, D::None, Trusted,
        "Whether it calls tools."),
    key("models.*.vision", Bool, D::None, Trusted,
        "Whether it sees images."),
    key("multiAgent.enabled", Bool, D::None, Harmless,
        "Another name for agentMode, which comes first: true is multi-agent."),
    key("multimodal.detail", Choice(&["auto", "low", "high"]), D::Text("auto"), Harmless,
        "How closely the model looks at images."),
    key("multimodal.maxImageBytes", Whole(1024, 104_857_600), D::Whole(8_388_608), Trusted,
        "The largest image that is sent.")
        .variable("POSSE_MAX_IMAGE_BYTES"),
    key("patience", ValueKind::Duration, D::None, Trusted,
        "How long a provider that is away is waited for. Default: 10m, or 24h with \
         --unattended.")
        .variable("POSSE_PATIENCE"),
    key("permissions", ObjectList, D::None, Tighten,
        "Rules, in order: what is allowed, asked and denied."),
    key("persistentGrants.enabled", Bool, D::Bool(true), Never,
        "Lets permissions outlive the session, and counts those that did."),
    key("persistentGrants.scope", Choice(&["session", "project", "global"]), D::Text("global"), Never,
        "The widest scope that a question offers; what was remembered for a wider one does \
         not count."),
    key("persistentGrants.ttlMs", Whole(0, 31_536_000_000), D::Whole(604_800_000), Never,
        "How long a permission is remembered, in milliseconds. 0: not at all."),
    later("providers.*.abortPolicy", Text, Trusted,
        "What happens to an external session that is interrupted."),
    later("providers.*.allowApiKeyFallback", Bool, Trusted,
        "Uses a key when the login fails."),
    later("providers.*.allowSubagents", Bool, Trusted,
        "Lets an external agent start its own agents."),
    key("providers.*.apiKey", Secret, D::None, Never,
        "The key itself, if the variable is not set. Better kept in a variable."),
    key("providers.*.apiKeyEnv", Variable, D::None, OwnProvider,
        "The environment variable that holds the key."),
    later("providers.*.attachmentFallback", Text, Trusted,
        "What happens to images that cannot be sent."),
    key("providers.*.auth", Text, D::None, OwnProvider,
        "How the key is sent: bearer, api-key, none, or the name of a header."),
    later("providers.*.authPreflight", Bool, Trusted,
        "Checks an external agent's login first."),
    later("providers.*.authStore", Text, Trusted,
        "Where a login is kept."),
    key("providers.*.baseURL", Address, D::None, OwnProvider,
        "Where the API begins. For a replay provider: file:// and the path of its \
         cassette."),
    later("providers.*.cliPath", Text, Trusted,
        "The program of an external agent."),
    key("providers.*.contextWindow", TOKENS, D::None, Trusted,
        "Tokens that fit into a request and its reply."),
    later("providers.*.cwdMode", Text, Trusted,
        "The folder an external agent works in."),
    later("providers.*.defaultDecision", Text, Trusted,
        "How an external agent's questions are answered."),
    key("providers.*.fallback", TextList, D::None, Trusted,
        "Profiles that take over while this one is away, in this order."),
    key("providers.*.headers", TextMap, D::None, OwnProvider,
        "Further headers of each request."),
    later("providers.*.historyPolicy", Text, Trusted,
        "How an external agent's history is kept."),
    key("providers.*.maxTokens", Whole(1, 10_000_000), D::None, Trusted,
        "Bound of one reply."),
    key("providers.*.model", Text, D::None, Trusted,
        "The model to ask."),
    later("providers.*.onInvalidResume", Text, Trusted,
        "What happens when an external session is gone."),
    key("providers.*.patience", ValueKind::Duration, D::None, Trusted,
        "How long this provider is waited for, instead of patience."),
    later("providers.*.permissionMode", Text, Trusted,
        "The permission mode of an external agent."),
    later("providers.*.promptCacheKey", Text, Trusted,
        "What the provider's prompt cache is keyed by."),
    key("providers.*.quirks", Any, D::None, Trusted,
        "Where the server differs from the protocol."),
    later("providers.*.responses", Any, Trusted,
        "Further fields of requests to a responses API."),
    later("providers.*.runtime", Text, Trusted,
        "How an external agent is run."),
    later("providers.*.sanitizeApiKeyEnv", Bool, Trusted,
        "Hides keys from an external agent."),
    later("providers.*.sessionLock", Bool, Trusted,
        "Keeps two processes from using one external session."),
    key("providers.*.timeouts.connect", ValueKind::Duration, D::None, Trusted,
        "Time to connect."),
    key("providers.*.timeouts.firstByte", ValueKind::Duration, D::None, Trusted,
        "Time until the reply begins. Default: 90s."),
    key("providers.*.timeouts.idle", ValueKind::Duration, D::None, Trusted,
        "Time between two pieces of a reply. Pings are no pieces. Default: 5m."),
    key("providers.*.timeouts.silence", ValueKind::Duration, D::None, Trusted,
        "Time without a single byte of a reply. Default: 90s."),
    later("providers.*.timeouts.total", ValueKind::Duration, Trusted,
        "Time for a whole reply."),
    key("providers.*.type", Choice(PROVIDER_TYPES), D::None, Trusted,
        "The protocol. Default: that of the preset of this name, else openai-compatible."),
    later("providers.*.usageLedgerScope", Text, Trusted,
        "Over what an external agent's usage is added up."),
    later("providers.*.useBareMode", Bool, Trusted,
        "Starts an external agent without its own configuration."),
    key("retry.baseDelay", ValueKind::Duration, D::None, Trusted,
        "The first wait is up to this long; each further one up to twice as long. Default: 1s."),
    key("retry.maxAttempts", Whole(1, 1000), D::None, Trusted,
        "Attempts at one request. patience bounds their time."),
    key("retry.maxDelay", ValueKind::Duration, D::None, Trusted,
        "The longest wait between two attempts, unless a limit of rate or quota lasts longer. \
         Default: 30s."),
    key("roles.*.model", Text, D::None, Trusted,
        "The model that serves a role, instead of its provider's own. Roles: compact, title, and \
         agents that work for others, by name."),
    key("roles.*.profile", Text, D::None, Trusted,
        "The provider profile or preset that serves a role. Default: the session's."),
    key("roles.*.thinking", Choice(THINKING), D::None, Trusted,
        "How much the model of a role thinks."),
    key("sandbox.mode", Choice(CONFINED), D::Text("workspace-write"), Tighten,
        "What commands are confined to.")
        .variable("POSSE_SANDBOX"),
    key("sandbox.network", Choice(&["auto", "deny", "inherit"]), D::Text("auto"), Tighten,
        "Whether commands reach the network. auto: only while somebody is there to be \
         asked.")
        .variable("POSSE_NETWORK"),
    key("sandbox.readSecrets", TextList, D::None, Never,
        "Secret files that tools may read: absolute paths, ~/ allowed."),
    key("sandbox.required", Bool, D::None, Tighten,
        "Ends with exit code 7 where the sandbox cannot be what was asked for.")
        .variable("POSSE_SANDBOX_REQUIRED"),
    key("sandbox.writableRoots", TextList, D::None, Never,
        "Further folders that commands may write: absolute paths, ~/ allowed."),
    later("server", Any, Never,
        "How other front ends are served."),
    later("session.retentionDays", Whole(1, 36_500), Never,
        "Days after which a session may be removed."),
    later("session.rootLifetime", Choice(&["process", "detached"]), Never,
        "Whether a session outlives its front end."),
    key("skills.disabled", TextList, D::None, Trusted,
        "Names of skills that are not used."),
    key("skills.enabled", Bool, D::Bool(true), Never,
        "Looks for skills, and lets models activate them."),
    key("skills.folders", TextList, D::None, Never,
        "Further folders with skills, before all others: absolute paths, ~/ allowed."),
    key("streaming.enabled", Bool, D::Bool(true), Harmless,
        "Asks the provider for a stream.")
        .variable("POSSE_STREAM"),
    key("thinking", Choice(THINKING), D::None, Trusted,
        "How much models think before they answer, where an agent does not say it. Left out where \
         the server knows nothing of it.")
        .variable("POSSE_THINKING"),
    key("timeout", ValueKind::Duration, D::None, Trusted,
        "A task ends after this time.")
        .variable("POSSE_TIMEOUT"),
    key("tools.bash.jobs", Whole(0, 64), D::Whole(8), Trusted,
        "Commands that may run in the background at the same time. With 0 there are none, and no tools \
         for them."),
    later("tools.bash.maxTimeout", ValueKind::Duration, Trusted,
        "The longest time limit that a command may name."),
    later("tools.bash.timeout", ValueKind::Duration, Trusted,
        "Time limit of a command that names none."),
    key("tools.budgets.*.max", Whole(0, 1_000_000), D::None, Trusted,
        "Calls of this tool in one task."),
    key("tools.budgets.*.onExceed", Choice(&["block", "steer"]), D::None, Trusted,
        "What happens after that: block refuses, steer tells the model once. Default: \
         block."),
    key("tools.edit.fuzzy", Bool, D::Bool(false), Trusted,
        "Lets edits match where only trailing blanks, kinds of spaces, quotes or dashes differ; the result \
         says so."),
    key("tools.edit.requireRead", Bool, D::Bool(false), Trusted,
        "Refuses to edit a file that the session has not read, or that changed since."),
    key("tools.outputBudget", Whole(1024, 1_073_741_824), D::None, Trusted,
        "Bytes of tool output in one turn before the model is told to be brief.")
        .variable("POSSE_TOOL_OUTPUT_BUDGET"),
    later("tools.parallel", Choice(&["off", "readonly", "all"]), Trusted,
        "Which tools may run at the same time."),
    key("tools.read.dedup", Bool, D::Bool(true), Harmless,
        "Answers a repeated read of an unchanged file with a reference to the first."),
    later("tools.todo", Bool, Harmless,
        "Gives the model a list of tasks."),
    later("tools.web", Bool, Never,
        "Lets the model fetch from the web."),
    later("trust.project", Bool, Never,
        "Lets a project's configuration count."),
    later("trust.userTools", Bool, Never,
        "Loads the user's own tools."),
    key("ui.alternateScreen", Bool, D::None, Never,
        "Gives the terminal UI a screen of its own instead of the end of the scrollback."),
    key("ui.history", Bool, D::Bool(true), Never,
        "Keeps what was typed in line mode for the next time."),
    key("ui.keybindings", TextMap, D::None, Never,
        "Keys of the terminal UI, by the names of its guide."),
    later("ui.queue.followUp", Choice(&["all", "one"]), Harmless,
        "How many waiting messages follow at once."),
    later("ui.queue.steering", Choice(&["all", "one"]), Harmless,
        "How many waiting messages steer at once."),
    later("ui.showThinking", Bool, Harmless,
        "Shows the model's thinking."),
    key("ui.theme", Choice(&["dark", "light", "high-contrast", "none"]), D::None, Harmless,
        "Colours of the terminal UI.")
        .variable("POSSE_THEME"),
    key("version", Whole(1, 1_000_000), D::None, Harmless,
        "The version of this format: 1. A file of a later version is read as far as it is \
         understood and never changed."),
    later("workspace.roots", TextList, Never,
        "Further folders that tools may use."),
];
