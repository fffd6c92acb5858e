//! The effective settings as typed values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use posse_actors::event::PermissionMode;
use posse_actors::limits::QueueDelivery;
use posse_actors::ports::Thinking;
use posse_base::failure::{ErrorCode, Exit, Failure};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::layers::{Layers, Leaf, SettingOrigin, duration};

/// Effective settings. The comment of a field begins with its configuration key, if it has one.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "settings that have nothing to do with another")]
pub struct Settings {
    /// True in multi-agent mode, in which agents can start subagents: `agentMode`, `mode` or
    /// `multiAgent.enabled`.
    pub multi_agent: bool,
    /// `agents`: agents that are defined in configuration files.
    pub agents: Vec<ConfiguredAgent>,
    /// `delegation`: limits of subagents, and of the texts that agents exchange.
    pub delegation: DelegationSettings,
    /// `context`: context budgets.
    pub contexts: ContextSizes,
    /// True with `--trust-project`: the project's settings, agents and skills count as trusted in
    /// this run.
    pub trust_project: bool,
    /// Resolved paths of the user's configuration files that contain an API key. No tool and no
    /// command may access them.
    pub key_files: Vec<PathBuf>,
    /// `defaultAgent`: name of the main agent.
    pub default_agent: String,
    /// Source of `defaultAgent`, for messages.
    pub default_agent_from: Option<String>,
    /// `permissionMode`: permission mode of a new session.
    pub permission_mode: Option<PermissionMode>,
    /// `defaultProvider`. `None`: posse uses the first preset whose key is in the environment.
    pub default_provider: Option<String>,
    /// `model`. `None`: the default model of the provider.
    pub model: Option<String>,
    /// `roles`: models for summaries, titles and subagents. Keys: `compact`, `title`, and names of
    /// subagents.
    pub roles: BTreeMap<String, RoleSettings>,
    /// `skills`: discovery of skills.
    pub skills: SkillSettings,
    /// `thinking`: reasoning effort. `None` if not set.
    pub thinking: Option<Thinking>,
    /// True if a command-line flag or an environment variable set `thinking`, so that it overrides
    /// the effort in the main agent's definition; false if the definition has precedence.
    pub thinking_insists: bool,
    /// `maxTurns`: maximum number of model replies in one invocation of the main agent. `None`: no
    /// limit.
    pub turns_max: Option<u32>,
    /// Provider and model for subagents without a profile of their own, if flags or the resumed
    /// session selected others for the main agent: the values of `defaultProvider` and `model`
    /// below those layers. `None`: subagents share those of the main agent.
    pub subagent_model: Option<ModelSelection>,
    /// `workspace.roots`: absolute paths of additional folders for tools.
    pub workspace_roots: Vec<PathBuf>,
    /// Source of `workspace.roots`. `None`: it is not set.
    pub workspace_roots_from: Option<String>,
    /// `ui.queue`: number of queued messages that are delivered at once.
    pub delivery: QueueDelivery,
    /// `ui`: appearance and input of the terminal UI and of line mode.
    pub ui: UiSettings,
    /// `notify`: notifications for a user who looks elsewhere.
    pub notify: NotifySettings,
    /// `timeout`: time limit of one run. `None`: no limit.
    pub timeout: Option<Duration>,
    /// `budget`: limits of the cost and tokens of a session.
    pub budget: BudgetSettings,
    /// `patience`: maximum time to retry an unavailable provider. `None` if not set.
    pub patience: Option<Duration>,
    /// `retry`: delays and number of retries of a model request.
    pub retry: RetrySettings,
    /// `streaming.enabled`: true to request streamed replies.
    pub streaming: bool,
    /// `sandbox`: confinement of commands.
    pub sandbox: SandboxSettings,
    /// Settings of the network by domain (`network`).
    pub network: NetworkSettings,
    /// `multimodal.maxImageBytes`: maximum size of an image file that is sent, in bytes.
    pub image_bytes_max: u64,
    /// `multimodal.detail`: detail level of images: `auto`, `low` or `high`.
    pub image_detail: String,
    /// `tools`: options and limits of tools.
    pub tools: ToolSettings,
    /// `models`: replacements for model data. Maps a model or `provider/model` to its fields.
    pub models: BTreeMap<String, Map<String, Value>>,
    /// `persistentGrants`: storage of grants.
    pub persistent_grants: GrantKeeping,
    /// `checkpoints`: checkpoints of the workspace.
    pub checkpoints: CheckpointSettings,
    /// `permissions`: rules as JSON objects: the user's, then the rules of a trusted project. A
    /// list in the file of `--config` replaces both.
    pub permissions: Vec<Value>,
    /// Source of `permissions`, for messages: the last file that contributed to the list. `None` if
    /// no rules are set.
    pub permissions_from: Option<String>,
    /// Number of rules at the end of `permissions` that come from a trusted project.
    pub project_rules: usize,
    /// `hooks` as JSON objects: of the user's file, of a trusted project, then of `--config`.
    pub hooks: Vec<Value>,
    /// `providers`: configured providers, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
}

/// Selection of a provider and a model. `None` if not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelSelection {
    /// `defaultProvider`.
    pub provider: Option<String>,
    /// `model`.
    pub model: Option<String>,
}

/// Settings of the terminal UI and of line mode (`ui`).
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
#[derive(Debug, Clone, Default)]
pub struct UiSettings {
    /// `alternateScreen`: true if the terminal UI uses the alternate screen.
    pub alternate_screen: bool,
    /// `history`: true if typed lines are stored.
    pub history: bool,
    /// `keybindings`: name of each action with its keys.
    pub keybindings: Vec<(String, String)>,
    /// `showThinking`: true if the terminal UI shows the model's thinking.
    pub show_thinking: bool,
    /// `statusLine`: program and arguments of the status line; empty if there is none.
    pub status_line: Vec<String>,
    /// `theme`: name of the colour theme. `None`: the default theme.
    pub theme: Option<String>,
    /// `vim`: true if the prompt of the terminal UI has vim keys.
    pub vim: bool,
}

/// Settings of notifications (`notify`).
#[derive(Debug, Clone, Default)]
pub struct NotifySettings {
    /// `command`: program and arguments that get each notification; empty if there is none.
    pub command: Vec<String>,
    /// `method`: `auto`, `osc9`, `osc777`, `osc99`, `bell` or `none`.
    pub method: String,
    /// `title`: true if the window title shows the state of the session.
    pub title: bool,
    /// `when`: `unfocused`, `always` or `never`.
    pub when: String,
}

/// Budget of a session. `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct BudgetSettings {
    /// `maxCostMicroUsd`: cost limit, in millionths of a dollar.
    pub micro_usd_max: Option<u64>,
    /// `maxTokens`: token limit.
    pub tokens_max: Option<u64>,
}

/// Settings of retries (`retry`). `None` if not set.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetrySettings {
    /// `baseDelay`: maximum delay before the first retry; doubles for each further retry.
    pub base_delay: Option<Duration>,
    /// `maxDelay`: maximum delay before any retry, unless a rate limit or quota requires more.
    pub max_delay: Option<Duration>,
    /// `maxAttempts`: maximum number of attempts at one model request.
    pub attempts_max: Option<u32>,
}

/// Sandbox settings (`sandbox`).
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// `mode`: `off`, `read-only` or `workspace-write`.
    pub mode: String,
    /// `network`: network access of commands. `inherit`: yes; `deny`: no; `ask`: by domain; `auto`:
    /// only if a user can be asked for permission.
    pub network: String,
    /// `readSecrets`: absolute paths of secret files that tools and commands may read although
    /// their names are those of secrets.
    pub readable_secrets: Vec<PathBuf>,
    /// `required`: true if posse exits unless the sandbox has the tier `full`.
    pub required: bool,
    /// `writableRoots`: absolute paths of additional folders that commands may write.
    pub writable_roots: Vec<PathBuf>,
}

/// Settings of the network by domain (`network`).
#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// `allowedDomains`: domains that commands reach, as written.
    pub allowed_domains: Vec<String>,
    /// `blockedDomains`: domains that they do not reach, as written.
    pub blocked_domains: Vec<String>,
    /// `uploadLimitBytes`: bytes that a session sends to a domain before more is asked about. 0: no
    /// limit.
    pub upload_bytes_max: u64,
}

/// Settings of stored grants (`persistentGrants`).
#[derive(Debug, Clone)]
pub struct GrantKeeping {
    /// `enabled`: true if grants can outlive a session.
    pub enabled: bool,
    /// `scope`: widest scope that a grant may have: `session`, `project` or `global`.
    pub scope: String,
    /// `ttlMs`: lifetime of a stored grant, in milliseconds. 0: grants are not stored.
    pub ttl_ms: u64,
}

/// Settings of checkpoints of the workspace (`checkpoints`).
#[derive(Debug, Clone)]
pub struct CheckpointSettings {
    /// `enabled`: true if sessions take checkpoints.
    pub enabled: bool,
    /// `keepDays`: age in days after which checkpoints are removed.
    pub keep_days: u64,
    /// `maxFileBytes`: maximum size of a stored file in bytes.
    pub file_bytes_max: u64,
    /// `maxStoreBytes`: size of all checkpoints of a project in bytes above which the oldest are
    /// removed.
    pub store_bytes_max: u64,
}

/// Tool settings (`tools`).
#[derive(Debug, Clone, Default)]
pub struct ToolSettings {
    /// `edit.fuzzy`: true if edits may match where only trailing blanks, or the kinds of spaces,
    /// quotes or dashes, differ.
    pub fuzzy_edit: bool,
    /// `edit.requireRead`: true to refuse edits of a file that the session has not read, or that
    /// changed since it was read.
    pub require_read: bool,
    /// `read.dedup`: true to answer a repeated read of an unchanged file with a reference.
    pub dedup_reads: bool,
    /// `bash.jobs`: maximum number of concurrent background jobs. 0 disables jobs.
    pub jobs_max: usize,
    /// `bash.timeout`: default time limit of a command. `None`: that of the tool.
    pub command_timeout: Option<Duration>,
    /// `bash.maxTimeout`: longest time limit that a call may request. `None`: that of the tool.
    pub command_timeout_max: Option<Duration>,
    /// `maxParallel`: maximum number of calls of one reply that run in parallel.
    pub parallel_max: usize,
    /// `parallel`: calls that run in parallel: `off`, `readonly` or `all`.
    pub parallel: String,
    /// `outputBudget`: bytes of tool output in a turn above which the model is asked to be brief.
    /// `None`: the model is not asked.
    pub output_budget: Option<u64>,
    /// `budgets`: limits of calls, by the name of the tool.
    pub budgets: BTreeMap<String, CallBudget>,
}

/// Skill settings (`skills`).
#[derive(Debug, Clone, Default)]
pub struct SkillSettings {
    /// `enabled`: true if skills are discovered and models can activate them.
    pub enabled: bool,
    /// `disabled`: names of skills that are not used.
    pub disabled: Vec<String>,
    /// Source of `disabled`. `None`: it is not set.
    pub disabled_from: Option<String>,
    /// `folders`: absolute paths of additional folders with skills.
    pub folders: Vec<PathBuf>,
}

/// Limit of the calls of a tool in one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallBudget {
    /// `max`: number of calls. `None`: no limit.
    pub max: Option<u64>,
    /// `onExceed`: true (`steer`) if calls above `max` run and the model is informed once; false
    /// (`block`) if they are denied.
    pub steer: bool,
}

/// A configured provider: an entry of `providers`. The preset of the same name, if there is one,
/// supplies values that are `None` or empty here.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    /// Name of the provider in the configuration.
    pub name: String,
    /// `type`: the protocol, such as `openai-compatible` or `anthropic`.
    pub kind: Option<String>,
    /// `model`: the default model.
    pub model: Option<String>,
    /// `baseURL`: base URL of the API.
    pub base_url: Option<String>,
    /// The API key: the value of the variable `api_key_env` if that is set, else `apiKey`. `None`
    /// without both.
    pub api_key: Option<SecretString>,
    /// `apiKeyEnv`: name of the environment variable with the API key.
    pub api_key_env: Option<String>,
    /// `auth`: `bearer`, `api-key`, `none`, or the name of a header that carries the key.
    pub auth: Option<String>,
    /// `headers`: names and values of additional headers.
    pub headers: Vec<(String, String)>,
    /// `quirks`: deviations of the server from the protocol.
    pub quirks: Map<String, Value>,
    /// `maxTokens`: maximum tokens of one reply.
    pub tokens_max: Option<u64>,
    /// `temperature`: sampling temperature. `None`: that of the server.
    pub temperature: Option<f64>,
    /// `contextWindow`: maximum tokens of a request and its reply together.
    pub context_window: Option<u64>,
    /// `patience`: maximum time to retry this provider. Overrides the general `patience`.
    pub patience: Option<Duration>,
    /// `timeouts`: time limits of the steps of an attempt.
    pub timeouts: ProviderTimeouts,
    /// `fallback`: providers that are used while this one is unavailable, in order.
    pub fallback: Vec<String>,
}

/// Timeouts of a provider. `None` if not set. For a reply that is not streamed, `idle` replaces a
/// shorter `first_byte` or `silence`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// `connect`: maximum time to connect.
    pub connect: Option<Duration>,
    /// `firstByte`: maximum time from the request until the headers of the reply arrive.
    pub first_byte: Option<Duration>,
    /// `silence`: maximum time without any byte of a reply that has begun.
    pub silence: Option<Duration>,
    /// `idle`: maximum time between two chunks of a reply, not counting pings.
    pub idle: Option<Duration>,
}

/// An entry of `agents`. Its definition is not checked yet.
#[derive(Debug, Clone)]
pub struct ConfiguredAgent {
    /// Name of the agent.
    pub name: String,
    /// The definition, as JSON.
    pub definition: Value,
    /// Path of the file with the definition, and the line at which its `agents` object begins.
    pub place: String,
    /// True if a project's configuration file defines the agent.
    pub project: bool,
}

/// Limits of delegation. Keys without a group are in `delegation`.
#[derive(Debug, Clone, Default)]
pub struct DelegationSettings {
    /// `maxDepth`: maximum depth of subagents. 0: none; 1: only subagents of the main agent.
    pub depth_max: u32,
    /// `maxConcurrent`: maximum number of concurrent subagents.
    pub live_max: u32,
    /// `maxTotal`: maximum number of subagents in a session.
    pub total_max: u32,
    /// `maxTokens`: token limit of all subagents of a session. `None`: no limit.
    pub tokens_max: Option<u64>,
    /// `maxCostMicroUsd`: cost limit of all subagents of a session, in millionths of a dollar.
    /// `None`: no limit.
    pub micro_usd_max: Option<u64>,
    /// `maxDurationSeconds`: time limit of one subagent. `None`: no limit.
    pub seconds_max: Option<u64>,
    /// `subInvocationMaxTurns`: maximum number of model replies in a delegated task. `None`: no
    /// limit.
    pub turns_max: Option<u32>,
    /// `defaultInvocationDecision`: decision about starting a subagent: `allow`, `ask` or `deny`.
    pub invocation: String,
    /// True if a new subagent gets the reports of earlier subagents of its name:
    /// `context.subAgent.memoryScope` is not `none`.
    pub remembers: bool,
    /// `context.subAgent.maxHandoffTokens`: maximum tokens of a task with its context.
    pub handoff_tokens_max: u64,
    /// `context.subAgent.maxDelegateContextTokens`: maximum tokens of the context of a task.
    pub context_tokens_max: u64,
    /// `context.subAgent.maxResultTokensToMain`: maximum tokens of a subagent's result.
    pub result_tokens_max: u64,
    /// `context.main.maxDelegateResultTokens`: the same in the main conversation, if it is lower.
    pub main_result_tokens_max: u64,
}

/// Context budgets of the main agent and of subagents.
#[derive(Debug, Clone, Default)]
pub struct ContextSizes {
    /// `context.main`: context budget of the main agent.
    pub main: ContextSize,
    /// `context.subAgent`: context budget of each subagent.
    pub sub_agent: ContextSize,
}

/// An entry of `context`. Sizes are in tokens. `None` if not set.
#[derive(Debug, Clone, Default)]
pub struct ContextSize {
    /// `maxContextTokens`: size of the context. `None` also if the setting is `auto`.
    pub tokens_max: Option<u64>,
    /// True if `maxContextTokens` is `auto`: the context window of the model.
    pub auto: bool,
    /// `compactAtRatio`: fraction of the context at which it is compacted.
    pub compact_at: Option<f64>,
    /// True if `compression` is `none`: the context is compacted only on request, and not even
    /// after a request was rejected for its size.
    pub never_compacts: bool,
    /// `recentTurns`: number of latest turns that are kept in full.
    pub recent_turns: Option<usize>,
    /// `minRecentTurns`: number of latest turns kept in full if `recent_turns` turns do not fit.
    pub recent_turns_min: Option<usize>,
    /// `summaryTargetTokens`: size of the summary.
    pub summary_tokens: Option<u64>,
    /// `context.main.maxInlineToolResultTokens`, also for subagents: size up to which tool results
    /// are kept in full after a request was refused as too large.
    pub inline_result_tokens: Option<u64>,
    /// `context.main.keepRawDelegateResults`: number of newest results of subagents that stay as they
    /// are. `None` for subagents.
    pub raw_delegate_results: Option<usize>,
    /// `context.main.ledgerTargetTokens`: maximum size of the ledger of older results of subagents.
    /// `None` for subagents.
    pub ledger_tokens: Option<u64>,
}

/// An entry of `roles`. `None` if not set.
#[derive(Debug, Clone, Default)]
pub struct RoleSettings {
    /// `profile`: name of a configured provider or a preset, not checked yet. `None`: the session's
    /// provider.
    pub profile: Option<String>,
    /// `model`. `None`: the default model of `profile`, or without a profile the session's model.
    pub model: Option<String>,
    /// `thinking`: reasoning effort of the model.
    pub thinking: Option<Thinking>,
    /// Source of one of the values, for messages: usually file and line.
    pub place: String,
}

impl Layers {
    /// The value of a setting as `T`; the default of `T` if it is not set or has another type.
    fn read<T: DeserializeOwned + Default>(&self, key: &str) -> T {
        self.get(key).and_then(|leaf| T::deserialize(&leaf.value).ok()).unwrap_or_default()
    }

    fn read_time(&self, key: &str) -> Option<Duration> {
        duration(self.get(key)?.value.as_str()?)
    }

    fn read_thinking(&self, key: &str) -> Option<Thinking> {
        Thinking::named(self.get(key)?.value.as_str()?)
    }

    /// The names of the entries in `group`, a key that ends with a dot. An entry without a field,
    /// such as `providers.name`, is not included.
    fn names<'a>(&'a self, group: &'a str) -> BTreeSet<&'a str> {
        self.below(group).filter_map(|(rest, _)| Some(rest.split_once('.')?.0)).collect()
    }
}

impl Settings {
    pub(crate) fn from_layers(
        layers: &Layers,
        environment: &Environment,
        failures: &mut Vec<Failure>,
    ) -> Settings {
        let mut paths = |key: &str| absolute(key, layers, environment, failures);
        let sandbox = SandboxSettings {
            mode: layers.read("sandbox.mode"),
            network: layers.read("sandbox.network"),
            readable_secrets: paths("sandbox.readSecrets"),
            required: layers.read("sandbox.required"),
            writable_roots: paths("sandbox.writableRoots"),
        };
        let skills = skills(layers, paths("skills.folders"));
        let workspace_roots = paths("workspace.roots");
        let thinking = layers.get("thinking");
        Settings {
            multi_agent: multi_agent(layers),
            agents: agents(layers),
            delegation: delegation(layers),
            contexts: ContextSizes {
                main: context_size(layers, "main"),
                sub_agent: context_size(layers, "subAgent"),
            },
            trust_project: false,
            key_files: Vec::new(),
            default_agent: layers.read("defaultAgent"),
            default_agent_from: layers
                .get("defaultAgent")
                .filter(|leaf| leaf.origin != SettingOrigin::BuiltIn)
                .map(|leaf| leaf.origin.place()),
            permission_mode: permission_mode(layers),
            default_provider: layers.read("defaultProvider"),
            model: layers.read("model"),
            roles: roles(layers),
            skills,
            thinking: layers.read_thinking("thinking"),
            thinking_insists: thinking.is_some_and(|leaf| {
                matches!(leaf.origin, SettingOrigin::Flag(_) | SettingOrigin::Variable(_))
            }),
            turns_max: layers.read("maxTurns"),
            // Set by `load_with`, which knows the layers.
            subagent_model: None,
            network: network(layers),
            workspace_roots,
            workspace_roots_from: layers.get("workspace.roots").map(|leaf| leaf.origin.to_string()),
            delivery: delivery(layers),
            ui: ui(layers),
            notify: notify(layers),
            timeout: layers.read_time("timeout"),
            budget: BudgetSettings {
                micro_usd_max: layers.read("budget.maxCostMicroUsd"),
                tokens_max: layers.read("budget.maxTokens"),
            },
            patience: layers.read_time("patience"),
            retry: RetrySettings {
                base_delay: layers.read_time("retry.baseDelay"),
                max_delay: layers.read_time("retry.maxDelay"),
                attempts_max: layers.read("retry.maxAttempts"),
            },
            streaming: layers.read("streaming.enabled"),
            sandbox,
            image_bytes_max: layers.read("multimodal.maxImageBytes"),
            image_detail: layers.read("multimodal.detail"),
            tools: tools(layers),
            models: models(layers),
            persistent_grants: persistent_grants(layers),
            checkpoints: checkpoints(layers),
            permissions: layers.read("permissions"),
            // Set by `load_with`, which knows the project's file.
            project_rules: 0,
            permissions_from: layers.get("permissions").map(|leaf| leaf.origin.to_string()),
            hooks: layers.read("hooks"),
            providers: providers(layers, environment, failures),
        }
    }
}

fn persistent_grants(layers: &Layers) -> GrantKeeping {
    GrantKeeping {
        enabled: layers.read("persistentGrants.enabled"),
        scope: layers.read("persistentGrants.scope"),
        ttl_ms: layers.read("persistentGrants.ttlMs"),
    }
}

fn ui(layers: &Layers) -> UiSettings {
    UiSettings {
        alternate_screen: layers.read("ui.alternateScreen"),
        history: layers.read("ui.history"),
        keybindings: texts(layers, "ui.keybindings."),
        show_thinking: layers.read("ui.showThinking"),
        status_line: layers.read("ui.statusLine"),
        theme: layers.read("ui.theme"),
        vim: layers.read("ui.vim"),
    }
}

fn notify(layers: &Layers) -> NotifySettings {
    NotifySettings {
        command: layers.read("notify.command"),
        method: layers.read("notify.method"),
        title: layers.read("notify.title"),
        when: layers.read("notify.when"),
    }
}

fn delivery(layers: &Layers) -> QueueDelivery {
    QueueDelivery {
        one_steering_message: layers.read::<String>("ui.queue.steering") == "one",
        all_follow_ups: layers.read::<String>("ui.queue.followUp") == "all",
    }
}

/// True for the multi-agent mode. `agentMode` decides, else `mode`, else `multiAgent.enabled`.
fn multi_agent(layers: &Layers) -> bool {
    let said = |key: &str| layers.get(key).filter(|leaf| leaf.origin != SettingOrigin::BuiltIn);
    let mode = said("agentMode").or_else(|| said("mode"));
    match mode.and_then(|leaf| leaf.value.as_str()) {
        Some(mode) => mode.starts_with("multi"),
        None => said("multiAgent.enabled").is_some_and(|leaf| leaf.value == true),
    }
}

/// Permission mode of new sessions; `None` if no setting selects one. The schema accepts names of
/// modes only.
fn permission_mode(layers: &Layers) -> Option<PermissionMode> {
    let name: Option<String> = layers.read("permissionMode");
    name.and_then(|name| PermissionMode::named(&name))
}

fn agents(layers: &Layers) -> Vec<ConfiguredAgent> {
    let agents = layers.below("agents.").map(|(name, leaf)| ConfiguredAgent {
        name: name.to_owned(),
        definition: leaf.value.clone(),
        place: leaf.origin.place(),
        project: matches!(leaf.origin, SettingOrigin::Project { .. }),
    });
    agents.collect()
}

fn delegation(layers: &Layers) -> DelegationSettings {
    let scope: String = layers.read("context.subAgent.memoryScope");
    DelegationSettings {
        depth_max: layers.read("delegation.maxDepth"),
        live_max: layers.read("delegation.maxConcurrent"),
        total_max: layers.read("delegation.maxTotal"),
        tokens_max: layers.read("delegation.maxTokens"),
        micro_usd_max: layers.read("delegation.maxCostMicroUsd"),
        seconds_max: layers.read("delegation.maxDurationSeconds"),
        turns_max: layers.read("delegation.subInvocationMaxTurns"),
        invocation: layers.read("delegation.defaultInvocationDecision"),
        remembers: scope != "none",
        handoff_tokens_max: layers.read("context.subAgent.maxHandoffTokens"),
        context_tokens_max: layers.read("context.subAgent.maxDelegateContextTokens"),
        result_tokens_max: layers.read("context.subAgent.maxResultTokensToMain"),
        main_result_tokens_max: layers.read("context.main.maxDelegateResultTokens"),
    }
}

fn network(layers: &Layers) -> NetworkSettings {
    NetworkSettings {
        allowed_domains: layers.read("network.allowedDomains"),
        blocked_domains: layers.read("network.blockedDomains"),
        upload_bytes_max: layers.read("network.uploadLimitBytes"),
    }
}

fn context_size(layers: &Layers, whose: &str) -> ContextSize {
    let key = |key: &str| format!("context.{whose}.{key}");
    let says =
        |name: &str, what: &str| layers.get(&key(name)).is_some_and(|leaf| leaf.value == what);
    ContextSize {
        tokens_max: layers.read(&key("maxContextTokens")),
        auto: says("maxContextTokens", "auto"),
        compact_at: layers.read(&key("compactAtRatio")),
        never_compacts: says("compression", "none"),
        recent_turns: layers.read(&key("recentTurns")),
        recent_turns_min: layers.read(&key("minRecentTurns")),
        summary_tokens: layers.read(&key("summaryTargetTokens")),
        inline_result_tokens: layers.read("context.main.maxInlineToolResultTokens"),
        raw_delegate_results: layers.read(&key("keepRawDelegateResults")),
        ledger_tokens: layers.read(&key("ledgerTargetTokens")),
    }
}

fn roles(layers: &Layers) -> BTreeMap<String, RoleSettings> {
    let mut roles: BTreeMap<String, RoleSettings> = BTreeMap::new();
    for (rest, leaf) in layers.below("roles.") {
        let Some((name, field)) = rest.rsplit_once('.') else { continue };
        let role = roles.entry(name.to_owned()).or_default();
        let text = leaf.value.as_str();
        match field {
            "profile" => role.profile = text.map(str::to_owned),
            "model" => role.model = text.map(str::to_owned),
            _ => role.thinking = text.and_then(Thinking::named),
        }
        role.place = leaf.origin.place();
    }
    roles
}

fn checkpoints(layers: &Layers) -> CheckpointSettings {
    CheckpointSettings {
        enabled: layers.read("checkpoints.enabled"),
        keep_days: layers.read("checkpoints.keepDays"),
        file_bytes_max: layers.read("checkpoints.maxFileBytes"),
        store_bytes_max: layers.read("checkpoints.maxStoreBytes"),
    }
}

fn skills(layers: &Layers, folders: Vec<PathBuf>) -> SkillSettings {
    SkillSettings {
        enabled: layers.read("skills.enabled"),
        disabled: layers.read("skills.disabled"),
        disabled_from: layers.get("skills.disabled").map(|leaf| leaf.origin.to_string()),
        folders,
    }
}

fn tools(layers: &Layers) -> ToolSettings {
    let budget = |tool: &str| {
        let action: String = layers.read(&format!("tools.budgets.{tool}.onExceed"));
        let max = layers.read(&format!("tools.budgets.{tool}.max"));
        (tool.to_owned(), CallBudget { max, steer: action == "steer" })
    };
    ToolSettings {
        fuzzy_edit: layers.read("tools.edit.fuzzy"),
        require_read: layers.read("tools.edit.requireRead"),
        dedup_reads: layers.read("tools.read.dedup"),
        jobs_max: layers.read("tools.bash.jobs"),
        command_timeout: layers.read_time("tools.bash.timeout"),
        command_timeout_max: layers.read_time("tools.bash.maxTimeout"),
        parallel_max: layers.read("tools.maxParallel"),
        parallel: layers.read("tools.parallel"),
        output_budget: layers.read("tools.outputBudget"),
        budgets: layers.names("tools.budgets.").into_iter().map(budget).collect(),
    }
}

fn models(layers: &Layers) -> BTreeMap<String, Map<String, Value>> {
    let mut models: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (rest, leaf) in layers.below("models.") {
        let Some((name, field)) = rest.rsplit_once('.') else { continue };
        models.entry(name.to_owned()).or_default().insert(field.to_owned(), leaf.value.clone());
    }
    models
}

/// Converts texts to paths; a leading `~/` becomes the home folder. A path that is then not
/// absolute is left out and reported in `failures`.
fn absolute(
    key: &str,
    layers: &Layers,
    environment: &Environment,
    failures: &mut Vec<Failure>,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let given: Vec<String> = layers.read(key);
    for (nth, given) in given.into_iter().enumerate() {
        let path = match (given.strip_prefix("~/"), environment.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(&given),
        };
        if path.is_absolute() {
            paths.push(path);
        } else {
            let what = format!("{key}[{nth}]: \"{given}\" is not an absolute path");
            let place = layers.get(key).map(|leaf| leaf.member_place(nth)).unwrap_or_default();
            failures.push(
                Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what)
                    .at(place)
                    .fix("begin it with / or ~/"),
            );
        }
    }
    paths
}

fn providers(
    layers: &Layers,
    environment: &Environment,
    failures: &mut Vec<Failure>,
) -> BTreeMap<String, ProviderSettings> {
    let names = layers.names("providers.").into_iter();
    let mut providers: BTreeMap<String, ProviderSettings> =
        names.map(|name| (name.to_owned(), provider(layers, name))).collect();
    for provider in providers.values_mut() {
        let Some(variable) = &provider.api_key_env else { continue };
        match environment.get(variable) {
            Some(key) if key.contains(|c: char| c.is_control() || c.is_whitespace()) => {
                let what = format!(
                    "environment variable {variable} is not a key: it has white space in it"
                );
                let place = format!("providers.{}.apiKeyEnv", provider.name);
                failures.push(
                    Failure::new(ErrorCode::VariableUnusable, Exit::Configuration, what).at(place),
                );
            }
            Some(key) => provider.api_key = Some(key.into()),
            None => {}
        }
    }
    providers
}

/// Names and values of the texts in `group`, a key that ends with a dot.
fn texts(layers: &Layers, group: &str) -> Vec<(String, String)> {
    let text =
        |(name, leaf): (&str, &Leaf)| Some((name.to_owned(), leaf.value.as_str()?.to_owned()));
    layers.below(group).filter_map(text).collect()
}

fn provider(layers: &Layers, name: &str) -> ProviderSettings {
    let key = |key: &str| format!("providers.{name}.{key}");
    let quirks = key("quirks.");
    let quirk = |(name, leaf): (&str, &Leaf)| (name.to_owned(), leaf.value.clone());
    ProviderSettings {
        name: name.to_owned(),
        kind: layers.read(&key("type")),
        model: layers.read(&key("model")),
        base_url: layers.read(&key("baseURL")),
        api_key: layers.read::<Option<String>>(&key("apiKey")).map(SecretString::from),
        api_key_env: layers.read(&key("apiKeyEnv")),
        auth: layers.read(&key("auth")),
        headers: texts(layers, &key("headers.")),
        quirks: layers.below(&quirks).map(quirk).collect(),
        tokens_max: layers.read(&key("maxTokens")),
        temperature: layers.read(&key("temperature")),
        context_window: layers.read(&key("contextWindow")),
        patience: layers.read_time(&key("patience")),
        timeouts: ProviderTimeouts {
            connect: layers.read_time(&key("timeouts.connect")),
            first_byte: layers.read_time(&key("timeouts.firstByte")),
            silence: layers.read_time(&key("timeouts.silence")),
            idle: layers.read_time(&key("timeouts.idle")),
        },
        fallback: layers.read(&key("fallback")),
    }
}
