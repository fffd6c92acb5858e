//! The settings that have an effect, typed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use posse_actors::ports::Thinking;
use posse_base::failure::{ErrorCode, Exit, Failure};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::layers::{Layers, Leaf, SettingOrigin, duration};

/// Effective settings.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "settings that have nothing to do with another")]
pub struct Settings {
    /// `agentMode` is `multi-agent`: agents may call others.
    pub multi_agent: bool,
    /// `agents`, by name.
    pub agents: Vec<ConfiguredAgent>,
    /// `delegation`, and what goes there and back.
    pub delegation: DelegationSettings,
    /// `context`.
    pub contexts: ContextSizes,
    /// `--trust-project`: the project's settings apply to this run.
    pub trust_project: bool,
    /// Resolved paths of the user's configuration files that contain a key. No tool and no command
    /// may access them.
    pub key_files: Vec<PathBuf>,
    /// `defaultAgent`.
    pub default_agent: String,
    /// `defaultProvider`.
    pub default_provider: Option<String>,
    /// `model`, instead of the provider's own.
    pub model: Option<String>,
    /// `roles`, by name.
    pub roles: BTreeMap<String, RoleSettings>,
    /// `skills`.
    pub skills: SkillSettings,
    /// `thinking`: default reasoning effort.
    pub thinking: Option<Thinking>,
    /// True if `thinking` was set for this run and overrides the main agent's.
    pub thinking_insists: bool,
    /// `maxTurns`.
    pub turns_max: u32,
    /// `timeout`.
    pub timeout: Option<Duration>,
    /// `budget`.
    pub budget: BudgetSettings,
    /// `patience`: how long a provider that is away is waited for.
    pub patience: Option<Duration>,
    /// `retry`.
    pub retry: RetrySettings,
    /// `streaming.enabled`.
    pub streaming: bool,
    /// `sandbox`.
    pub sandbox: SandboxSettings,
    /// `multimodal.maxImageBytes`.
    pub image_bytes_max: u64,
    /// `multimodal.detail`.
    pub image_detail: String,
    /// `tools`.
    pub tools: ToolSettings,
    /// `models`: overrides of model data, field by field, by model or `provider/model`.
    pub models: BTreeMap<String, Map<String, Value>>,
    /// `persistentGrants`.
    pub persistent_grants: GrantKeeping,
    /// `permissions`: rules as JSON objects, from the user alone.
    pub permissions: Vec<Value>,
    /// Their source, if any.
    pub permissions_from: Option<String>,
    /// Number of rules at the end that come from a trusted project.
    pub project_rules: usize,
    /// `hooks` as JSON objects: the user's, then those of a trusted project.
    pub hooks: Vec<Value>,
    /// `providers`, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
}

/// Budget of a session. `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct BudgetSettings {
    /// `maxCostMicroUsd`.
    pub micro_usd_max: Option<u64>,
    /// `maxTokens`.
    pub tokens_max: Option<u64>,
}

/// Retry settings. `None` if not set.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetrySettings {
    /// `baseDelay`.
    pub base_delay: Option<Duration>,
    /// `maxDelay`.
    pub max_delay: Option<Duration>,
    /// `maxAttempts`.
    pub attempts_max: Option<u32>,
}

/// Sandbox settings.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// `off`, `read-only` or `workspace-write`.
    pub mode: String,
    /// `auto`, `deny` or `inherit`. `auto`: only while a human is there to be asked.
    pub network: String,
    /// `readSecrets`: absolute.
    pub readable_secrets: Vec<PathBuf>,
    /// `required`: ends where commands cannot be confined.
    pub required: bool,
    /// `writableRoots`: absolute.
    pub writable_roots: Vec<PathBuf>,
}

/// Stored grants.
#[derive(Debug, Clone)]
pub struct GrantKeeping {
    /// `enabled`.
    pub enabled: bool,
    /// `scope`: `session`, `project` or `global`.
    pub scope: String,
    /// `ttlMs`.
    pub ttl_ms: u64,
}

/// Tool settings.
#[derive(Debug, Clone, Default)]
pub struct ToolSettings {
    /// `edit.fuzzy`: edits may match where only white space, quotes or dashes differ.
    pub fuzzy_edit: bool,
    /// `edit.requireRead`: no edit of a file that was not read, or that changed since.
    pub require_read: bool,
    /// `read.dedup`: a repeated read of an unchanged file is answered with a reference.
    pub dedup_reads: bool,
    /// `bash.jobs`: commands that may run in the background at the same time.
    pub jobs_max: usize,
    /// `outputBudget`: bytes of output in one turn.
    pub output_budget: Option<u64>,
    /// `budgets`, by tool.
    pub budgets: BTreeMap<String, CallBudget>,
}

/// Skill settings.
#[derive(Debug, Clone, Default)]
pub struct SkillSettings {
    /// `enabled`.
    pub enabled: bool,
    /// `disabled`: names.
    pub disabled: Vec<String>,
    /// `folders`: absolute.
    pub folders: Vec<PathBuf>,
}

/// Maximum calls of a tool per task.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallBudget {
    /// `max`.
    pub max: Option<u64>,
    /// `onExceed` is `steer`: inform the model once instead of denying.
    pub steer: bool,
}

/// An entry of `providers`. `None` and empty values come from the preset of that name.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    /// Its name in the configuration.
    pub name: String,
    /// `type`.
    pub kind: Option<String>,
    /// `model`.
    pub model: Option<String>,
    /// `baseURL`.
    pub base_url: Option<String>,
    /// The key: the value of the variable if that is set, else `apiKey`.
    pub api_key: Option<SecretString>,
    /// `apiKeyEnv`.
    pub api_key_env: Option<String>,
    /// `auth`: how the key is sent.
    pub auth: Option<String>,
    /// `headers`, by name.
    pub headers: Vec<(String, String)>,
    /// `quirks`.
    pub quirks: Map<String, Value>,
    /// `maxTokens`.
    pub tokens_max: Option<u64>,
    /// `contextWindow`.
    pub context_window: Option<u64>,
    /// `patience`.
    pub patience: Option<Duration>,
    /// `timeouts`.
    pub timeouts: Timeouts,
    /// `fallback`: who takes over while it is away.
    pub fallback: Vec<String>,
}

/// Timeouts of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// `connect`.
    pub connect: Option<Duration>,
    /// `firstByte`.
    pub first_byte: Option<Duration>,
    /// `silence`: without a byte.
    pub silence: Option<Duration>,
    /// `idle`: between two pieces.
    pub idle: Option<Duration>,
}

/// An entry of `agents`, unchecked.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone, Default)]
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

/// Context budgets of main agents, and of others.
#[derive(Debug, Clone, Default)]
pub struct ContextSizes {
    /// `context.main`.
    pub main: ContextSize,
    /// `context.subAgent`.
    pub sub_agent: ContextSize,
}

/// An entry of `context`. Tokens and turns. `None` if not set.
#[derive(Debug, Clone, Default)]
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

/// An entry of `roles`. `None` if not set.
#[derive(Debug, Clone, Default)]
pub struct RoleSettings {
    /// `profile`: a provider profile or preset. Whether it exists has not been checked.
    pub profile: Option<String>,
    /// `model`, instead of the profile's own.
    pub model: Option<String>,
    /// `thinking`.
    pub thinking: Option<Thinking>,
    /// Its place.
    pub place: String,
}

impl Layers {
    /// The value of a setting, which was checked when it was read; the default if it is not set.
    fn read<T: DeserializeOwned + Default>(&self, key: &str) -> T {
        self.get(key).and_then(|leaf| T::deserialize(&leaf.value).ok()).unwrap_or_default()
    }

    fn read_time(&self, key: &str) -> Option<Duration> {
        duration(self.get(key)?.value.as_str()?)
    }

    fn read_thinking(&self, key: &str) -> Option<Thinking> {
        Thinking::named(self.get(key)?.value.as_str()?)
    }

    /// The names directly below `group`.
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
        let mut paths = |key: &str| absolute(key, layers.read(key), environment, failures);
        let sandbox = SandboxSettings {
            mode: layers.read("sandbox.mode"),
            network: layers.read("sandbox.network"),
            readable_secrets: paths("sandbox.readSecrets"),
            required: layers.read("sandbox.required"),
            writable_roots: paths("sandbox.writableRoots"),
        };
        let skills = SkillSettings {
            enabled: layers.read("skills.enabled"),
            disabled: layers.read("skills.disabled"),
            folders: paths("skills.folders"),
        };
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
            default_provider: layers.read("defaultProvider"),
            model: layers.read("model"),
            roles: roles(layers),
            skills,
            thinking: layers.read_thinking("thinking"),
            thinking_insists: thinking.is_some_and(|leaf| {
                matches!(leaf.origin, SettingOrigin::Flag(_) | SettingOrigin::Variable(_))
            }),
            turns_max: layers.read("maxTurns"),
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
            persistent_grants: GrantKeeping {
                enabled: layers.read("persistentGrants.enabled"),
                scope: layers.read("persistentGrants.scope"),
                ttl_ms: layers.read("persistentGrants.ttlMs"),
            },
            permissions: layers.read("permissions"),
            // Known when the project's file is: see `load_with`.
            project_rules: 0,
            permissions_from: layers.get("permissions").map(|leaf| leaf.origin.to_string()),
            hooks: layers.read("hooks"),
            providers: providers(layers, environment, failures),
        }
    }
}

/// `agentMode`, else its other names, in that order.
fn multi_agent(layers: &Layers) -> bool {
    let said = |key: &str| layers.get(key).filter(|leaf| leaf.origin != SettingOrigin::BuiltIn);
    let mode = said("agentMode").or_else(|| said("mode"));
    match mode.and_then(|leaf| leaf.value.as_str()) {
        Some(mode) => mode.starts_with("multi"),
        None => said("multiAgent.enabled").is_some_and(|leaf| leaf.value == true),
    }
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

/// A list of paths that do not depend on where it is read.
fn absolute(
    key: &str,
    given: Vec<String>,
    environment: &Environment,
    failures: &mut Vec<Failure>,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for given in given {
        let path = match (given.strip_prefix("~/"), environment.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(&given),
        };
        if path.is_absolute() {
            paths.push(path);
        } else {
            let what = format!("{key}: \"{given}\" is not an absolute path");
            failures.push(
                Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what)
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

fn provider(layers: &Layers, name: &str) -> ProviderSettings {
    let key = |key: &str| format!("providers.{name}.{key}");
    let (headers, quirks) = (key("headers."), key("quirks."));
    let header =
        |(name, leaf): (&str, &Leaf)| Some((name.to_owned(), leaf.value.as_str()?.to_owned()));
    let quirk = |(name, leaf): (&str, &Leaf)| (name.to_owned(), leaf.value.clone());
    ProviderSettings {
        name: name.to_owned(),
        kind: layers.read(&key("type")),
        model: layers.read(&key("model")),
        base_url: layers.read(&key("baseURL")),
        api_key: layers.read::<Option<String>>(&key("apiKey")).map(SecretString::from),
        api_key_env: layers.read(&key("apiKeyEnv")),
        auth: layers.read(&key("auth")),
        headers: layers.below(&headers).filter_map(header).collect(),
        quirks: layers.below(&quirks).map(quirk).collect(),
        tokens_max: layers.read(&key("maxTokens")),
        context_window: layers.read(&key("contextWindow")),
        patience: layers.read_time(&key("patience")),
        timeouts: Timeouts {
            connect: layers.read_time(&key("timeouts.connect")),
            first_byte: layers.read_time(&key("timeouts.firstByte")),
            silence: layers.read_time(&key("timeouts.silence")),
            idle: layers.read_time(&key("timeouts.idle")),
        },
        fallback: layers.read(&key("fallback")),
    }
}
