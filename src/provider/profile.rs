//! Provider profile: all differences between servers of the same protocol, as plain data.
//!
//! [`Settings`] is the content of the configuration; [`ProviderProfile`] adds the preset and the
//! key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use posse_base::failure::{ErrorCode, Exit, Failure};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize};

use crate::codex::{self, Login};
use crate::presets::{self, Preset};

/// Protocol of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Chat Completions.
    #[default]
    #[serde(rename = "openai-compatible")]
    ChatCompletions,
    /// `OpenAI` Responses.
    #[serde(rename = "openai-responses")]
    Responses,
    /// Anthropic Messages.
    #[serde(rename = "anthropic")]
    Messages,
    /// Responses with the login of the Codex program.
    Codex,
}

impl Protocol {
    /// Path of the reply endpoint below `base`.
    pub(crate) fn call_path(self, base: &str) -> &'static str {
        match self {
            Protocol::ChatCompletions => "/chat/completions",
            Protocol::Responses | Protocol::Codex => "/responses",
            Protocol::Messages if ends_with_version(base) => "/messages",
            Protocol::Messages => "/v1/messages",
        }
    }

    /// Path of the model list below `base`.
    pub(crate) fn list_path(self, base: &str) -> &'static str {
        match self {
            Protocol::Messages if !ends_with_version(base) => "/v1/models",
            Protocol::ChatCompletions
            | Protocol::Responses
            | Protocol::Codex
            | Protocol::Messages => "/models",
        }
    }
}

/// True if an address ends with an API version, as in `https://host/v1`. Some users and vendor
/// tools omit it.
fn ends_with_version(base: &str) -> bool {
    let last = base.trim().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut rest = last.strip_prefix('v').unwrap_or_default().chars();
    rest.next().is_some_and(|c| c.is_ascii_digit()) && rest.all(|c| c.is_ascii_alphanumeric())
}

/// One server, one model, one set of credentials.
#[derive(Debug, Clone, Default)]
pub struct ProviderProfile {
    /// Its name in the configuration.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Base URL, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model to ask.
    pub model: String,
    /// The key, if it has one.
    pub api_key: Option<SecretString>,
    /// Authentication scheme. `None`: inferred from the address.
    pub auth: Option<Auth>,
    /// Further headers. Their values are kept out of errors and logs like the key.
    pub headers: Vec<(String, SecretString)>,
    /// Differences from the protocol.
    pub quirks: Quirks,
    /// Bound of a reply when the request has none.
    pub max_tokens: Option<u64>,
    /// True if replies are streamed when deltas are wanted.
    pub stream: bool,
    /// Silence limits.
    pub timeouts: Timeouts,
    /// Why the model accepts no images, and an alternative; `None`: it may accept them.
    pub sight: ModelFact<Option<String>>,
    /// True if the model supports reasoning; `None`: unknown.
    pub insight: ModelFact<Option<bool>>,
    /// The login that requests are sent with, instead of a key.
    pub login: Option<Arc<Login>>,
}

/// Data of a model, looked up when needed.
#[derive(Clone)]
pub struct ModelFact<T>(Arc<LazyLock<T, FindFact<T>>>);

type FindFact<T> = Box<dyn FnOnce() -> T + Send>;

impl<T: Send + Sync + 'static> ModelFact<T> {
    /// `find` returns the data.
    pub fn new(find: impl FnOnce() -> T + Send + 'static) -> ModelFact<T> {
        ModelFact(Arc::new(LazyLock::new(Box::new(find))))
    }

    /// The data.
    pub fn get(&self) -> &T {
        LazyLock::force(&self.0)
    }
}

impl<T: Default + Send + Sync + 'static> Default for ModelFact<T> {
    fn default() -> ModelFact<T> {
        ModelFact::new(T::default)
    }
}

impl<T> fmt::Debug for ModelFact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelFact")
    }
}

/// Authentication scheme.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name with the bare key.
    Header(String),
    /// Not at all.
    None,
}

/// Differences of a server from the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about a server")]
pub struct Quirks {
    /// Never send `temperature`.
    pub omit_temperature: bool,
    /// Never send `tool_choice`.
    pub omit_tool_choice: bool,
    /// Never send an upper bound of tokens.
    pub omit_max_tokens: bool,
    /// The field that bounds the reply, where it is not `max_tokens`.
    pub max_tokens_field: Option<String>,
    /// Do not ask for usage while streaming.
    pub no_stream_usage: bool,
    /// Send thinking back in the field it came in.
    pub return_reasoning: bool,
    /// The model accepts no images: a request with an image of the user is refused, and images in
    /// tool results are replaced by a placeholder.
    pub no_vision: bool,
    /// Images that one request may have. Of more, the oldest are left out.
    pub max_images: Option<usize>,
    /// Bytes that the images of one request may have, as they are sent.
    pub max_image_bytes: Option<usize>,
    /// Results of tools carry the tool's name.
    pub tool_result_name: bool,
    /// Mark the places up to which the server may cache a prompt, as Messages has it.
    pub cache_breakpoints: bool,
    /// Mark no places up to which the server may cache a prompt, and name no key for its cache.
    pub no_prompt_cache: bool,
    /// Token budget for thinking, for models that take a number.
    pub thinking_budget: Option<u64>,
    /// The model decides by itself how long it thinks.
    pub adaptive_thinking: bool,
    /// Effort: `low`, `medium`, `high`, or another value of the server.
    pub effort: Option<String>,
    /// The server accepts `reasoning_effort` (Chat Completions).
    pub reasoning_effort: bool,
    /// Names of reasoning levels on this server, if they are not `low`, `medium` and `high`.
    pub effort_names: BTreeMap<String, String>,
    /// Reasoning summary: `auto`, `concise` or `detailed`. Some servers show only known values.
    pub reasoning_summary: Option<String>,
    /// The model does not think, and its server does not like to be asked about it.
    pub no_reasoning: bool,
    /// Ask the model for one call at a time.
    pub one_call_at_a_time: bool,
}

/// Silence limits. The total duration of a reply is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeouts {
    /// Connect timeout in milliseconds.
    pub connect_ms: u64,
    /// Milliseconds from the request to the first line of the answer.
    pub header_ms: u64,
    /// Milliseconds without a single byte of the reply.
    pub silence_ms: u64,
    /// Milliseconds between two pieces of content. Pings and comments are not content.
    pub idle_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect_ms: 10_000, header_ms: 90_000, silence_ms: 90_000, idle_ms: 300_000 }
    }
}

/// Configuration of a profile: `providers.NAME`. Missing values come from the preset of that name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The preset to start from, where it is not the profile's own name.
    pub preset: Option<String>,
    /// Protocol, if it differs from the preset's.
    #[serde(rename = "type")]
    pub protocol: Option<Protocol>,
    /// Base URL.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// The model to ask.
    pub model: Option<String>,
    /// The environment variable that has the key.
    pub api_key_env: Option<String>,
    /// The key itself.
    #[serde(deserialize_with = "secret")]
    pub api_key: Option<SecretString>,
    /// Authentication scheme.
    pub auth: Option<Auth>,
    /// Further headers.
    #[serde(deserialize_with = "secrets")]
    pub headers: BTreeMap<String, SecretString>,
    /// Differences from the protocol. Replaces the preset's.
    pub quirks: Option<Quirks>,
    /// Bound of a reply when the request has none.
    pub max_tokens: Option<u64>,
    /// True if replies are streamed. Default: true.
    pub stream: Option<bool>,
    /// Silence limits.
    pub timeouts: Option<Timeouts>,
}

impl ProviderProfile {
    /// A profile with nothing but an address, a model and a key.
    pub fn new(
        name: &str,
        base_url: &str,
        model: &str,
        api_key: Option<SecretString>,
    ) -> ProviderProfile {
        ProviderProfile {
            name: name.to_owned(),
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            api_key,
            stream: true,
            ..ProviderProfile::default()
        }
    }

    /// True if a reply is streamed. `wanted`: true if deltas are wanted.
    pub(crate) fn streams(&self, wanted: bool) -> bool {
        // Its server knows nothing else.
        self.login.is_some() || (wanted && self.stream)
    }

    /// The address without the path of a call: some people give the address of the one call
    /// instead of where the API begins.
    pub(crate) fn base(&self) -> &str {
        let base = self.base_url.trim().trim_end_matches('/');
        base.strip_suffix(self.protocol.call_path("/v1")).unwrap_or(base)
    }

    /// Fills `settings` up from the preset, and finds the key with `environment`.
    pub fn resolve(
        name: &str,
        settings: Settings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ProviderProfile, Failure> {
        let preset = match &settings.preset {
            Some(wanted) => Some(presets::preset(wanted).ok_or_else(|| {
                Failure::new(
                    ErrorCode::ConfigInvalidValue,
                    Exit::Configuration,
                    format!("providers.{name}.preset: there is no preset \"{wanted}\""),
                )
                .fix(format!("one of {}", presets::names()))
            })?),
            None => presets::preset(name),
        };
        let protocol = settings.protocol.or(preset.map(|preset| preset.protocol));
        if protocol == Some(Protocol::Codex) {
            return ProviderProfile::with_login(name, settings, environment);
        }
        let base_url = settings.base_url.or_else(|| Some(preset?.base_url?.to_owned()));
        let base_url = base_url.ok_or_else(|| missing(name, "baseURL", "\"https://host/v1\""))?;
        let model = model(name, settings.model, preset)?;
        let variable = settings.api_key_env.as_deref().or(preset.and_then(|p| p.key_variable));
        let api_key = settings
            .api_key
            .or_else(|| variable.and_then(environment).filter(|k| !k.is_empty()).map(Into::into))
            .or_else(|| preset.and_then(|p| p.placeholder_key).map(SecretString::from));
        if let (Some(variable), None, false) =
            (variable, &api_key, settings.auth == Some(Auth::None))
        {
            return Err(Failure::new(
                ErrorCode::ProviderWithoutKey,
                Exit::Configuration,
                format!("provider \"{name}\" has no key"),
            )
            .fix(format!("set {variable}, or providers.{name}.apiKey in your own configuration")));
        }
        let quirks = preset.map(|preset| preset.quirks);
        Ok(ProviderProfile {
            protocol: protocol.unwrap_or_default(),
            auth: settings.auth,
            headers: settings.headers.into_iter().collect(),
            quirks: settings.quirks.or_else(|| Some(quirks?())).unwrap_or_default(),
            max_tokens: settings.max_tokens,
            stream: settings.stream.unwrap_or(true),
            timeouts: settings.timeouts.unwrap_or_default(),
            ..ProviderProfile::new(name, &base_url, &model, api_key)
        })
    }

    /// Profile that uses a login. Its requests go to its own servers only; settings that would
    /// redirect it or replace it by a key are errors.
    fn with_login(
        name: &str,
        settings: Settings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ProviderProfile, Failure> {
        let odd = [
            ("baseURL", settings.base_url.is_some(), "the login is sent to its own server only"),
            ("apiKey", settings.api_key.is_some(), "a key is billed differently from the login"),
            ("apiKeyEnv", settings.api_key_env.is_some(), "a key is billed differently"),
            ("auth", settings.auth.is_some(), "the login has its own way"),
        ];
        if let Some((key, _, why)) = odd.into_iter().find(|(_, is_set, _)| *is_set) {
            let what = format!("provider \"{name}\" uses the ChatGPT login, and has {key}");
            return Err(Failure::new(ErrorCode::LoginSettingsInvalid, Exit::Configuration, what)
                .at(format!("providers.{name}.{key}"))
                .because(why)
                .fix("remove it; for a key, use the type openai-responses"));
        }
        let login = Login::of(name, environment)?;
        let preset = presets::preset("codex");
        let model = model(name, settings.model, preset)?;
        let own = settings.headers.into_iter();
        let given = codex::headers(&login).map(|(name, value)| (name.to_owned(), value.into()));
        let quirks = preset.map(|preset| preset.quirks);
        Ok(ProviderProfile {
            protocol: Protocol::Codex,
            auth: Some(Auth::None),
            headers: own.chain(given).collect(),
            quirks: settings.quirks.or_else(|| Some(quirks?())).unwrap_or_default(),
            max_tokens: settings.max_tokens,
            timeouts: settings.timeouts.unwrap_or_default(),
            login: Some(Arc::clone(&login)),
            ..ProviderProfile::new(name, login.base_url(), &model, None)
        })
    }
}

fn model(name: &str, own: Option<String>, preset: Option<&Preset>) -> Result<String, Failure> {
    let model = own.or_else(|| Some(preset?.model?.to_owned()));
    model.ok_or_else(|| missing(name, "model", "the name of a model of that server"))
}

fn missing(name: &str, key: &str, example: &str) -> Failure {
    Failure::new(
        ErrorCode::ProviderIncomplete,
        Exit::Configuration,
        format!("provider \"{name}\" has no {key}"),
    )
    .fix(format!("set providers.{name}.{key} to {example}"))
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(SecretString::from))
}

fn secrets<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, SecretString>, D::Error> {
    let plain = BTreeMap::<String, String>::deserialize(from)?;
    Ok(plain.into_iter().map(|(name, value)| (name, SecretString::from(value))).collect())
}
