//! Table of all configuration keys, sorted by path.

use std::time::Duration;

use posse_actors::context::ContextBudget;
use posse_actors::limits::Limits;
use serde_json::{Value, json};

use crate::schema::Project::{Harmless, Never, OwnProvider, Tighten, Trusted};
use crate::schema::ValueKind::{
    Address, Any, Bool, Choice, CommandLine, Number, ObjectList, ObjectMap, Secret, Text, TextList,
    TextMap, Variable, Whole, WholeOrAuto,
};
use crate::schema::{BuiltIn as D, ConfigKey, Project, ValueKind};

const MODES: &[&str] = &["single-agent", "multi-agent", "single", "multi"];
const PROVIDER_TYPES: &[&str] =
    &["openai-compatible", "openai-responses", "anthropic", "codex", "replay"];
const CONFINED: &[&str] = &["off", "read-only", "workspace-write"];
const PERMISSION_MODES: &[&str] = &["plan", "ask", "edits", "auto", "locked"];
const THINKING: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];
const TOKENS: ValueKind = Whole(256, 100_000_000);
const TOKENS_OR_AUTO: ValueKind = WholeOrAuto(256, 100_000_000);
const COMPRESSIONS: &[&str] = &["deterministic", "none"];
const TURNS: ValueKind = Whole(1, 10_000);
const FEW: ValueKind = Whole(0, 1000);
const RATIO: ValueKind = Number(0.05, 1.0);
const TEMPERATURE: ValueKind = Number(0.0, 2.0);
const PRICE: ValueKind = Whole(0, 1_000_000_000_000);

const fn key(
    path: &'static str,
    kind: ValueKind,
    default: D,
    project: Project,
    about: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, default, project, variable: None, about }
}

/// Default context budget of the main agent, in tokens, or `auto`.
fn main_tokens() -> Value {
    ContextBudget::main().tokens_max.map_or(json!("auto"), Value::from)
}

/// Default context budget of a subagent, in tokens, or `auto`.
fn child_tokens() -> Value {
    ContextBudget::child().tokens_max.map_or(json!("auto"), Value::from)
}

/// A time of whole seconds as a configuration file contains it.
fn time(time: Duration) -> Value {
    let seconds = time.as_secs();
    json!(if seconds.is_multiple_of(60) {
        format!("{}m", seconds / 60)
    } else {
        format!("{seconds}s")
    })
}

/// All configuration keys, sorted by path for binary search.
#[rustfmt::skip]
pub(crate) static KEYS: &[ConfigKey] = &[
    key("agentMode", Choice(MODES), D::Text("single-agent"), Trusted,
        "With multi-agent, agents can start subagents.")
        .variable("POSSE_MODE"),
    key("agents", ObjectMap, D::None, Trusted,
        "Additional agents, by name."),
    key("budget.maxCostMicroUsd", Whole(1, 1_000_000_000_000), D::None, Never,
        "Cost limit of a session in millionths of a dollar. The session ends before it exceeds \
         the limit.")
        .variable("POSSE_BUDGET_MICRO_USD"),
    key("budget.maxTokens", Whole(1, 1_000_000_000_000), D::None, Never,
        "Token limit of a session. The session ends before it exceeds the limit.")
        .variable("POSSE_BUDGET_TOKENS"),
    key("checkpoints.enabled", Bool, D::Bool(true), Never,
        "Stores a checkpoint of the workspace before the first effect after each prompt."),
    key("checkpoints.keepDays", Whole(1, 3650), D::Whole(14), Never,
        "Age in days after which checkpoints are removed."),
    key("checkpoints.maxFileBytes", Whole(1024, 1_073_741_824), D::Whole(10_485_760), Never,
        "Maximum size of a file in checkpoints, in bytes. Larger files are left out."),
    key("checkpoints.maxStoreBytes", Whole(1_048_576, 1_099_511_627_776), D::Whole(2_147_483_648), Never,
        "Size of the checkpoints of a project in bytes above which the oldest are removed."),
    key("context.main.compactAtRatio", RATIO, D::Of(|| json!(ContextBudget::main().compact_at)), Trusted,
        "Fraction of the context at which it is compacted.")
        .variable("POSSE_MAIN_COMPACT_AT_RATIO"),
    key("context.main.compression", Choice(COMPRESSIONS), D::Text("deterministic"), Trusted,
        "Method of compaction. deterministic: by rules, with a summary by the model in \
         roles.compact if that is set; none: only on request."),
    key("context.main.keepRawDelegateResults", Whole(0, 100), D::Whole(2), Trusted,
        "Number of newest results of subagents that stay as they are in the main conversation. \
         Older ones become entries of a ledger.")
        .variable("POSSE_MAIN_KEEP_RAW_DELEGATE_RESULTS"),
    key("context.main.ledgerTargetTokens", TOKENS, D::Whole(1200), Trusted,
        "Maximum size of the ledger of older results of subagents, in tokens."),
    key("context.main.maxContextTokens", TOKENS_OR_AUTO, D::Of(main_tokens), Trusted,
        "Context of the main agent, in tokens. auto: the context window of its model; if that is \
         unknown, 32000 for a server on this machine, otherwise 128000.")
        .variable("POSSE_MAIN_MAX_CONTEXT_TOKENS"),
    key("context.main.maxDelegateResultTokens", TOKENS, D::Whole(1000), Trusted,
        "Maximum size of a subagent's result in the main conversation, in tokens, if it is lower \
         than context.subAgent.maxResultTokensToMain.")
        .variable("POSSE_MAIN_MAX_DELEGATE_RESULT_TOKENS"),
    key("context.main.maxInlineToolResultTokens", TOKENS, D::Of(|| json!(ContextBudget::main().inline_result_tokens)), Trusted,
        "Tool results up to this size, in tokens, are kept in full when a request was refused \
         as too large. Also for subagents."),
    key("context.main.minRecentTurns", FEW, D::Of(|| json!(ContextBudget::main().recent_turns_min)), Trusted,
        "Minimum number of latest turns that are kept in full, if they fit the window."),
    key("context.main.recentTurns", FEW, D::Of(|| json!(ContextBudget::main().recent_turns)), Trusted,
        "Number of latest turns that are kept in full."),
    key("context.main.summaryTargetTokens", TOKENS, D::Of(|| json!(ContextBudget::main().summary_tokens)), Trusted,
        "Size of the summary, in tokens.")
        .variable("POSSE_MAIN_SUMMARY_TARGET_TOKENS"),
    key("context.subAgent.compactAtRatio", RATIO, D::Of(|| json!(ContextBudget::child().compact_at)), Trusted,
        "Fraction of the context at which it is compacted.")
        .variable("POSSE_SUB_COMPACT_AT_RATIO"),
    key("context.subAgent.compression", Choice(COMPRESSIONS), D::Text("deterministic"), Trusted,
        "Method of compaction. deterministic: by rules, with a summary by the model in \
         roles.compact if that is set; none: only on request."),
    key("context.subAgent.maxContextTokens", TOKENS_OR_AUTO, D::Of(child_tokens), Trusted,
        "Context of a subagent, in tokens. auto: as for the main agent.")
        .variable("POSSE_SUB_MAX_CONTEXT_TOKENS"),
    key("context.subAgent.maxDelegateContextTokens", TOKENS, D::Whole(1000), Trusted,
        "Maximum size of the context passed with a task, in tokens.")
        .variable("POSSE_SUB_MAX_DELEGATE_CONTEXT_TOKENS"),
    key("context.subAgent.maxHandoffTokens", TOKENS, D::Whole(2000), Trusted,
        "Maximum size of a subagent's task with its context, in tokens.")
        .variable("POSSE_SUB_MAX_HANDOFF_TOKENS"),
    key("context.subAgent.maxResultTokensToMain", TOKENS, D::Whole(1000), Trusted,
        "Maximum size of a subagent's result, in tokens.")
        .variable("POSSE_SUB_MAX_RESULT_TOKENS_TO_MAIN"),
    key("context.subAgent.memoryScope", Choice(&["root-session", "none"]), D::Text("root-session"), Trusted,
        "With root-session, a subagent gets earlier reports of subagents of its name in this session."),
    key("context.subAgent.minRecentTurns", FEW, D::Of(|| json!(ContextBudget::child().recent_turns_min)), Trusted,
        "Minimum number of latest turns that are kept in full, if they fit the window."),
    key("context.subAgent.recentTurns", FEW, D::Of(|| json!(ContextBudget::child().recent_turns)), Trusted,
        "Number of latest turns that are kept in full.")
        .variable("POSSE_SUB_RECENT_TURNS"),
    key("context.subAgent.summaryTargetTokens", TOKENS, D::Of(|| json!(ContextBudget::child().summary_tokens)), Trusted,
        "Size of the summary, in tokens.")
        .variable("POSSE_SUB_SUMMARY_TARGET_TOKENS"),
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
    key("delegation.subInvocationMaxTurns", TURNS, D::None, Trusted,
        "Maximum number of model replies in a delegated task. Default: no limit."),
    key("hooks", ObjectList, D::None, Trusted,
        "Hooks: programs that are run at certain events. The lists of all files are joined in \
         order."),
    key("maxTurns", TURNS, D::None, Trusted,
        "Maximum number of model replies in a task. Default: no limit.")
        .variable("POSSE_MAX_TURNS"),
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
        "True if the model supports tool calls. False: no tools are sent to it."),
    key("models.*.vision", Bool, D::None, Trusted,
        "True if the model supports images."),
    key("multiAgent.enabled", Bool, D::None, Trusted,
        "Alias of agentMode, which has precedence: true is multi-agent."),
    key("multimodal.detail", Choice(&["auto", "low", "high"]), D::Text("auto"), Trusted,
        "Detail level of images."),
    key("multimodal.maxImageBytes", Whole(1024, 104_857_600), D::Whole(8_388_608), Trusted,
        "Maximum size of an image that is sent, in bytes.")
        .variable("POSSE_MAX_IMAGE_BYTES"),
    key("network.allowedDomains", TextList, D::None, Never,
        "Domains that commands reach if sandbox.network is ask, or auto with a person: example.org, \
         *.example.org, example.org:8443. Addresses and ports of this machine one by one: localhost:3000."),
    key("network.blockedDomains", TextList, D::None, Never,
        "Domains that commands never reach through the proxy, even if a list, an answer or a grant \
         allows them."),
    key("network.uploadLimitBytes", Whole(0, 1_000_000_000_000_000), D::Whole(1_048_576), Never,
        "Bytes that a session sends to a domain before more needs approval. 0: no limit."),
    key("notify.command", CommandLine, D::None, Never,
        "Program and arguments that also get each notification, as JSON on standard input. The \
         program is not confined."),
    key("notify.method", Choice(&["auto", "osc9", "osc777", "osc99", "bell", "none"]),
        D::Text("auto"), Never,
        "Notification at the terminal. auto: by the terminal, otherwise the bell."),
    key("notify.title", Bool, D::Bool(true), Never,
        "Show the state of the session in the window title."),
    key("notify.when", Choice(&["unfocused", "always", "never"]), D::Text("unfocused"), Never,
        "When a question waits or a task ends, notify: only if the terminal is not focused, \
         always, or never."),
    key("patience", ValueKind::Duration, D::None, Trusted,
        "Maximum time to retry an unavailable provider. Default: 10m, and three attempts at a \
         server that does not exist; with --unattended: 24h.")
        .variable("POSSE_PATIENCE"),
    key("permissionMode", Choice(PERMISSION_MODES), D::None, Never,
        "Permission mode of a new session. plan: nothing is changed; ask: changes and commands need \
         approval; edits: edits in the workspace are free; auto: what stays inside the full \
         sandbox is free; locked: only rules and grants allow. Default: auto in a conversation with \
         a person if the sandbox tier is full and checkpoints can be made, otherwise ask."),
    key("permissions", ObjectList, D::None, Tighten,
        "Permission rules, in order: allow, ask or deny."),
    key("persistentGrants.enabled", Bool, D::Bool(true), Never,
        "Enables grants that outlive a session."),
    key("persistentGrants.scope", Choice(&["session", "project", "global"]), D::Text("global"), Never,
        "Widest scope that a permission request offers; stored grants of a wider scope are \
         ignored."),
    key("persistentGrants.ttlMs", Whole(0, 31_536_000_000), D::Whole(604_800_000), Never,
        "Lifetime of a grant in milliseconds. 0: grants are not stored."),
    key("providers.*.apiKey", Secret, D::None, Never,
        "The API key, used if the variable is not set. Prefer the variable."),
    key("providers.*.apiKeyEnv", Variable, D::None, OwnProvider,
        "The environment variable with the API key."),
    key("providers.*.auth", Text, D::None, OwnProvider,
        "Authentication: bearer, api-key, none, or the name of a header that carries the key."),
    key("providers.*.baseURL", Address, D::None, OwnProvider,
        "Base URL of the API. For a replay provider: file:// and the path of its cassette."),
    key("providers.*.contextWindow", TOKENS, D::None, Trusted,
        "Context window: tokens of a request and its reply."),
    key("providers.*.fallback", TextList, D::None, Trusted,
        "Fallback profiles that are used while this one is unavailable, in order."),
    key("providers.*.headers", TextMap, D::None, OwnProvider,
        "Additional headers of each request. A header for a key, such as Authorization, replaces the one made from apiKey."),
    key("providers.*.maxTokens", Whole(1, 10_000_000), D::None, Trusted,
        "Maximum tokens of one reply."),
    key("providers.*.model", Text, D::None, Trusted,
        "The default model."),
    key("providers.*.patience", ValueKind::Duration, D::None, Trusted,
        "Maximum time to retry this provider; overrides patience."),
    key("providers.*.quirks", Any, D::None, Trusted,
        "Deviations of the server from the protocol."),
    key("providers.*.temperature", TEMPERATURE, D::None, Trusted,
        "Sampling temperature, unless an agent defines its own. Default: that of the server."),
    key("providers.*.timeouts.connect", ValueKind::Duration, D::Text("10s"), Trusted,
        "Timeout for connecting."),
    key("providers.*.timeouts.firstByte", ValueKind::Duration, D::None, Trusted,
        "Timeout until the reply begins. Default: 90s; 10m for a server on this machine."),
    key("providers.*.timeouts.idle", ValueKind::Duration, D::None, Trusted,
        "Timeout between two chunks of a reply, not counting pings. Default: 5m; 10m for a \
         server on this machine."),
    key("providers.*.timeouts.silence", ValueKind::Duration, D::None, Trusted,
        "Timeout without any byte of a reply. Default: 90s; 10m for a server on this machine."),
    key("providers.*.type", Choice(PROVIDER_TYPES), D::None, Trusted,
        "The protocol. Default: that of the preset of this name, else openai-compatible."),
    key("retry.baseDelay", ValueKind::Duration, D::Of(|| time(Limits::default().backoff_first)), Trusted,
        "Maximum delay before the first retry; it doubles for each further one."),
    key("retry.maxAttempts", Whole(1, 1000), D::None, Trusted,
        "Maximum attempts at one request. patience limits their total time. Default: no limit."),
    key("retry.maxDelay", ValueKind::Duration, D::Of(|| time(Limits::default().backoff_max)), Trusted,
        "Maximum delay between two attempts, unless a rate limit or quota requires more."),
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
    key("sandbox.network", Choice(&["auto", "ask", "deny", "inherit"]), D::Text("auto"), Tighten,
        "Network access of commands. ask: by domain, through a proxy, on the full sandbox tier. \
         auto: as ask, but only if a user can be asked.")
        .variable("POSSE_NETWORK"),
    key("sandbox.readSecrets", TextList, D::None, Never,
        "Secret files that tools and commands may read: absolute paths, ~/ allowed, and patterns \
         with `*`, `?` and `**`."),
    key("sandbox.required", Bool, D::None, Tighten,
        "Fail with exit code 7 if the requested sandbox is not available.")
        .variable("POSSE_SANDBOX_REQUIRED"),
    key("sandbox.writableRoots", TextList, D::None, Never,
        "Additional folders that commands may write: absolute paths, ~/ allowed."),
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
         do not support it. Default: that of the model.")
        .variable("POSSE_THINKING"),
    key("timeout", ValueKind::Duration, D::None, Trusted,
        "Time limit of a task.")
        .variable("POSSE_TIMEOUT"),
    key("tools.bash.jobs", Whole(0, 64), D::Whole(8), Trusted,
        "Maximum number of concurrent background jobs. 0 disables them and their tools."),
    key("tools.bash.maxTimeout", ValueKind::Duration, D::Text("10m"), Trusted,
        "Longest time limit that a command may request. It also bounds the default of \
         tools.bash.timeout."),
    key("tools.bash.timeout", ValueKind::Duration, D::Text("2m"), Trusted,
        "Time limit of a command for which none is requested. Then it continues as a background \
         job, or is ended if tools.bash.jobs is 0."),
    key("tools.budgets.*.max", Whole(0, 1_000_000), D::None, Trusted,
        "Maximum calls of this tool in one task."),
    key("tools.budgets.*.onExceed", Choice(&["block", "steer"]), D::None, Trusted,
        "Action above the limit: block refuses the call, steer sends the model one steering \
         message. Default: block."),
    key("tools.edit.fuzzy", Bool, D::Bool(false), Trusted,
        "Let edits match if only trailing spaces, kinds of spaces, quotes or dashes differ; the \
         result reports it."),
    key("tools.edit.requireRead", Bool, D::Bool(false), Trusted,
        "Refuse to edit a file that the session has not read, or that changed since."),
    key("tools.maxParallel", Whole(1, 64), D::Of(|| json!(Limits::default().parallel_calls_max)), Trusted,
        "Maximum number of calls of one reply that run in parallel."),
    key("tools.outputBudget", Whole(1024, 1_073_741_824), D::None, Trusted,
        "Bytes of tool output in one turn, above which the model is asked to be brief.")
        .variable("POSSE_TOOL_OUTPUT_BUDGET"),
    key("tools.parallel", Choice(&["off", "readonly", "all"]), D::Text("readonly"), Trusted,
        "Calls of one reply that run in parallel: none; those without side effects; or all, also \
         if one of them changes what another one reads."),
    key("tools.read.dedup", Bool, D::Bool(true), Harmless,
        "Answer a repeated read of an unchanged file with a reference to the first."),
    key("ui.alternateScreen", Bool, D::None, Never,
        "Use the alternate screen for the terminal UI instead of the scrollback."),
    key("ui.history", Bool, D::Bool(true), Never,
        "Store the input history of line mode."),
    key("ui.keybindings", TextMap, D::None, Never,
        "Key bindings of the terminal UI, by the action names in its guide."),
    key("ui.queue.followUp", Choice(&["all", "one"]), D::Text("one"), Harmless,
        "Number of queued follow-ups that the model gets after an answer."),
    key("ui.queue.steering", Choice(&["all", "one"]), D::Text("all"), Harmless,
        "Number of queued steering messages that the model gets at once. one: the others wait for \
         its next reply."),
    key("ui.showThinking", Bool, D::Bool(true), Harmless,
        "Show the last line of the model's thinking while it thinks."),
    key("ui.statusLine", CommandLine, D::None, Never,
        "Program and arguments whose first line of output is shown above the status row. It gets \
         the state of the session as JSON on standard input. The program is not confined."),
    key("ui.theme", Text, D::Text("auto"), Harmless,
        "Colours of the terminal UI: auto (dark or light, by the background of the terminal), dark, \
         light, high-contrast, none, or the name of a file in the folder themes beside your \
         configuration.")
        .variable("POSSE_THEME"),
    key("ui.vim", Bool, D::None, Never,
        "Use vim keys in the prompt of the terminal UI."),
    key("version", Whole(1, 1_000_000), D::None, Harmless,
        "Version of this format: 1. A file of a later version is read as far as it is \
         understood and never changed."),
    key("workspace.roots", TextList, D::None, Never,
        "Additional folders for tools, like --add-dir: absolute paths, ~/ allowed."),
];
