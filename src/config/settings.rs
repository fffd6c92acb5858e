//! The settings that have an effect, typed.

mod agents;
mod contexts;
mod roles;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use posse_actors::ports::Thinking;
use posse_base::failure::{Exit, Failure};
use secrecy::SecretString;
use serde_json::{Map, Value};

use posse_base::failure::ErrorCode;

use crate::environment::Environment;
use crate::layers::{Layers, SettingOrigin, duration};

pub use agents::{ConfiguredAgent, DelegationSettings};
pub use contexts::{ContextSize, ContextSizes};
pub use roles::RoleSettings;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetSettings {
    /// `maxCostMicroUsd`.
    pub micro_usd_max: Option<u64>,
    /// `maxTokens`.
    pub tokens_max: Option<u64>,
}

/// Retry settings. `None` if not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetrySettings {
    /// `baseDelay`.
    pub base_delay: Option<Duration>,
    /// `maxDelay`.
    pub max_delay: Option<Duration>,
    /// `maxAttempts`.
    pub attempts_max: Option<u32>,
}

/// Sandbox settings.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantKeeping {
    /// `enabled`.
    pub enabled: bool,
    /// `scope`: `session`, `project` or `global`.
    pub scope: String,
    /// `ttlMs`.
    pub ttl_ms: u64,
}

/// Tool settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// `enabled`.
    pub enabled: bool,
    /// `disabled`: names.
    pub disabled: Vec<String>,
    /// `folders`: absolute.
    pub folders: Vec<PathBuf>,
}

/// Maximum calls of a tool per task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// `total`.
    pub total: Option<Duration>,
}

impl Settings {
    pub(crate) fn from_layers(
        layers: &Layers,
        environment: &Environment,
        failures: &mut Vec<Failure>,
    ) -> Settings {
        let value = |key: &str| layers.get(key).map(|leaf| &leaf.value);
        let text = |key: &str| value(key).and_then(Value::as_str).map(str::to_owned);
        let time = |key: &str| value(key).and_then(Value::as_str).and_then(duration);
        let number = |key: &str| value(key).and_then(Value::as_u64).unwrap_or_default();
        let list = |key: &str| value(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let sandbox = SandboxSettings {
            mode: text("sandbox.mode").unwrap_or_default(),
            network: text("sandbox.network").unwrap_or_default(),
            readable_secrets: paths("sandbox.readSecrets", &list, environment, failures),
            required: value("sandbox.required").and_then(Value::as_bool).unwrap_or_default(),
            writable_roots: paths("sandbox.writableRoots", &list, environment, failures),
        };
        Settings {
            multi_agent: multi_agent(layers),
            agents: agents::configured(layers),
            delegation: agents::delegation(layers),
            contexts: contexts::sizes(layers),
            trust_project: false,
            default_agent: text("defaultAgent").unwrap_or_default(),
            default_provider: text("defaultProvider"),
            model: text("model"),
            roles: roles::roles(layers),
            skills: SkillSettings {
                enabled: value("skills.enabled").is_some_and(|on| *on == true),
                disabled: list("skills.disabled")
                    .iter()
                    .filter_map(|name| name.as_str().map(str::to_owned))
                    .collect(),
                folders: paths("skills.folders", &list, environment, failures),
            },
            thinking: value("thinking").and_then(Value::as_str).and_then(Thinking::named),
            thinking_insists: layers.get("thinking").is_some_and(|leaf| {
                matches!(leaf.origin, SettingOrigin::Flag(_) | SettingOrigin::Variable(_))
            }),
            turns_max: u32::try_from(number("maxTurns")).unwrap_or(u32::MAX),
            timeout: time("timeout"),
            budget: BudgetSettings {
                micro_usd_max: value("budget.maxCostMicroUsd").and_then(Value::as_u64),
                tokens_max: value("budget.maxTokens").and_then(Value::as_u64),
            },
            patience: time("patience"),
            retry: RetrySettings {
                base_delay: time("retry.baseDelay"),
                max_delay: time("retry.maxDelay"),
                attempts_max: value("retry.maxAttempts")
                    .and_then(Value::as_u64)
                    .and_then(|count| u32::try_from(count).ok()),
            },
            streaming: value("streaming.enabled").and_then(Value::as_bool).unwrap_or_default(),
            sandbox,
            image_bytes_max: number("multimodal.maxImageBytes"),
            image_detail: text("multimodal.detail").unwrap_or_default(),
            tools: tools(layers),
            models: models(layers),
            persistent_grants: GrantKeeping {
                enabled: value("persistentGrants.enabled").is_some_and(|on| *on == true),
                scope: text("persistentGrants.scope").unwrap_or_default(),
                ttl_ms: number("persistentGrants.ttlMs"),
            },
            permissions: list("permissions"),
            // Known when the project's file is: see `load_with`.
            project_rules: 0,
            permissions_from: layers.get("permissions").map(|leaf| leaf.origin.to_string()),
            hooks: list("hooks"),
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

fn tools(layers: &Layers) -> ToolSettings {
    let on = |key: &str| layers.get(key).is_some_and(|leaf| leaf.value == true);
    let mut budgets: BTreeMap<String, CallBudget> = BTreeMap::new();
    for (rest, leaf) in layers.below("tools.budgets.") {
        let Some((tool, field)) = rest.split_once('.') else { continue };
        let budget = budgets.entry(tool.to_owned()).or_default();
        match field {
            "max" => budget.max = leaf.value.as_u64(),
            _ => budget.steer = leaf.value == "steer",
        }
    }
    ToolSettings {
        fuzzy_edit: on("tools.edit.fuzzy"),
        require_read: on("tools.edit.requireRead"),
        dedup_reads: on("tools.read.dedup"),
        jobs_max: layers
            .get("tools.bash.jobs")
            .and_then(|leaf| leaf.value.as_u64())
            .map_or(0, |jobs| usize::try_from(jobs).unwrap_or(usize::MAX)),
        output_budget: layers.get("tools.outputBudget").and_then(|leaf| leaf.value.as_u64()),
        budgets,
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
fn paths(
    key: &str,
    list: &impl Fn(&str) -> Vec<Value>,
    environment: &Environment,
    failures: &mut Vec<Failure>,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for given in list(key).iter().filter_map(Value::as_str) {
        let path = match (given.strip_prefix("~/"), environment.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(given),
        };
        if path.is_absolute() {
            paths.push(path);
        } else {
            let what = format!("{key}: \"{given}\" is not an absolute path");
            let fix = "begin it with / or ~/";
            failures.push(
                Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what).fix(fix),
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
    let mut providers: BTreeMap<String, ProviderSettings> = BTreeMap::new();
    for (rest, leaf) in layers.below("providers.") {
        let Some((name, key)) = rest.split_once('.') else { continue };
        let provider = providers.entry(name.to_owned()).or_default();
        name.clone_into(&mut provider.name);
        provider.set(key, &leaf.value);
    }
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

impl ProviderSettings {
    /// Takes over one checked leaf.
    fn set(&mut self, key: &str, value: &Value) {
        let text = || value.as_str().map(str::to_owned);
        let time = || value.as_str().and_then(duration);
        match key {
            "type" => self.kind = text(),
            "model" => self.model = text(),
            "baseURL" => self.base_url = text(),
            "apiKey" => self.api_key = text().map(SecretString::from),
            "apiKeyEnv" => self.api_key_env = text(),
            "auth" => self.auth = text(),
            "maxTokens" => self.tokens_max = value.as_u64(),
            "contextWindow" => self.context_window = value.as_u64(),
            "patience" => self.patience = time(),
            "fallback" => {
                let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                self.fallback = names.map(str::to_owned).collect();
            }
            "timeouts.connect" => self.timeouts.connect = time(),
            "timeouts.firstByte" => self.timeouts.first_byte = time(),
            "timeouts.silence" => self.timeouts.silence = time(),
            "timeouts.idle" => self.timeouts.idle = time(),
            "timeouts.total" => self.timeouts.total = time(),
            _ => {
                if let Some(name) = key.strip_prefix("headers.") {
                    self.headers.extend(text().map(|text| (name.to_owned(), text)));
                } else if let Some(name) = key.strip_prefix("quirks.") {
                    self.quirks.insert(name.to_owned(), value.clone());
                }
            }
        }
    }
}
