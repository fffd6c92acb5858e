//! Provider profile: all differences between servers of the same protocol, as plain data.
//!
//! [`Settings`] is the content of the configuration; [`ProviderProfile`] adds the preset and the
//! key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use posse_actors::ports::Request;
use posse_base::failure::{ErrorCode, Exit, Failure};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use crate::codex::{self, Login};
use crate::presets::{self, Preset};
pub use crate::quirks::Quirks;

/// Protocol of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Chat Completions protocol of `OpenAI`, which many vendors use.
    #[default]
    #[serde(rename = "openai-compatible")]
    ChatCompletions,
    /// Responses protocol of `OpenAI`, with a key.
    #[serde(rename = "openai-responses")]
    Responses,
    /// Messages protocol of Anthropic.
    #[serde(rename = "anthropic")]
    Messages,
    /// Responses protocol with the login of the Codex program instead of a key.
    Codex,
}

impl Protocol {
    /// Name of the protocol in documents, such as `Chat Completions`.
    pub fn title(self) -> &'static str {
        match self {
            Protocol::ChatCompletions => "Chat Completions",
            Protocol::Responses => "Responses",
            Protocol::Messages => "Messages",
            Protocol::Codex => "Responses with a login",
        }
    }

    /// Path of the endpoint that generates replies, relative to the base URL `base`.
    pub(crate) fn call_path(self, base: &str) -> &'static str {
        match self {
            Protocol::ChatCompletions => "/chat/completions",
            Protocol::Responses | Protocol::Codex => "/responses",
            Protocol::Messages if ends_with_version(base) => "/messages",
            Protocol::Messages => "/v1/messages",
        }
    }

    /// Path of the list of models, relative to the base URL `base`.
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

/// Complete configuration of one provider: a server, a model and credentials.
#[derive(Debug, Clone, Default)]
pub struct ProviderProfile {
    /// Name of the profile in the configuration.
    pub name: String,
    /// Protocol of the server.
    pub protocol: Protocol,
    /// Base URL, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Name of the model.
    pub model: String,
    /// API key. `None`: requests are sent without a key; an error if the authentication scheme
    /// needs one.
    pub api_key: Option<SecretString>,
    /// Authentication scheme. `None`: inferred from the address, the protocol, the key and the
    /// headers.
    pub auth: Option<Auth>,
    /// Additional HTTP headers, as name and value. Values of at least 8 bytes are redacted in texts
    /// from the server, like the key.
    pub headers: Vec<(String, SecretString)>,
    /// Differences of the server from the protocol.
    pub quirks: Quirks,
    /// Maximum number of tokens of a reply, if a request sets none. `None`: 32,000 with Messages,
    /// otherwise the server's default.
    pub max_tokens: Option<u64>,
    /// Sampling temperature, if a request sets none. `None`: the server's default.
    pub temperature: Option<f64>,
    /// True if a reply is streamed when the caller wants deltas, false if no reply is streamed.
    /// With a login, every reply is streamed.
    pub stream: bool,
    /// Timeouts of an attempt.
    pub timeouts: AttemptTimeouts,
    /// Reason why the model accepts no images, with an alternative for the user. `None`: it may
    /// accept images.
    pub sight: ModelFact<Option<String>>,
    /// True if the model supports reasoning, false if it does not; `None`: unknown.
    pub insight: ModelFact<Option<bool>>,
    /// Login of the Codex program, which replaces the key. `None`: requests use `api_key`.
    pub login: Option<Arc<Login>>,
}

/// Fact about a model that is computed at its first use. Clones share the result.
#[derive(Clone)]
pub struct ModelFact<T>(Arc<LazyLock<T, FindFact<T>>>);

type FindFact<T> = Box<dyn FnOnce() -> T + Send>;

impl<T: Send + Sync + 'static> ModelFact<T> {
    /// Creates a fact. `find` computes it, at most once.
    pub fn new(find: impl FnOnce() -> T + Send + 'static) -> ModelFact<T> {
        ModelFact(Arc::new(LazyLock::new(Box::new(find))))
    }

    /// Returns the fact. The first call computes it.
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

/// Authentication scheme: the header that contains the key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name with the bare key.
    Header(String),
    /// The key is not sent; no header is added.
    None,
}

/// Configured timeouts of an attempt, in milliseconds. `None`: the default of `TimeLimits`. The
/// total duration of a reply is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptTimeouts {
    /// Maximum duration of connecting.
    pub connect_ms: Option<u64>,
    /// Maximum time from the start of the HTTP request, including connecting, to the beginning of
    /// the response. For a reply that is not streamed, `idle_ms` applies if it is longer.
    pub header_ms: Option<u64>,
    /// Maximum time without a byte of the reply. For a reply that is not streamed, `idle_ms`
    /// applies if it is longer.
    pub silence_ms: Option<u64>,
    /// Maximum time between two pieces of content. Pings and comments are not content.
    pub idle_ms: Option<u64>,
}

impl AttemptTimeouts {
    /// Creates the timeouts from durations, in the order of the fields.
    pub fn of(
        connect: Option<Duration>,
        first_byte: Option<Duration>,
        silence: Option<Duration>,
        idle: Option<Duration>,
    ) -> AttemptTimeouts {
        let ms = |limit: Option<Duration>| {
            limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
        };
        AttemptTimeouts {
            connect_ms: ms(connect),
            header_ms: ms(first_byte),
            silence_ms: ms(silence),
            idle_ms: ms(idle),
        }
    }
}

/// Timeouts of an attempt that apply, in milliseconds. The fields are those of
/// [`AttemptTimeouts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit is part of the name")]
pub(crate) struct TimeLimits {
    pub(crate) connect_ms: u64,
    pub(crate) header_ms: u64,
    pub(crate) silence_ms: u64,
    pub(crate) idle_ms: u64,
}

impl TimeLimits {
    /// Limits for a server at a loopback address, if `is_loopback`, or elsewhere. A server on this
    /// machine may compute without an accelerator, and read a long prompt for minutes.
    pub(crate) fn of(configured: AttemptTimeouts, is_loopback: bool) -> TimeLimits {
        let (silence_ms, idle_ms) =
            if is_loopback { (600_000, 600_000) } else { (90_000, 300_000) };
        TimeLimits {
            connect_ms: configured.connect_ms.unwrap_or(10_000),
            header_ms: configured.header_ms.unwrap_or(silence_ms),
            silence_ms: configured.silence_ms.unwrap_or(silence_ms),
            idle_ms: configured.idle_ms.unwrap_or(idle_ms),
        }
    }
}

/// Configuration of a profile: `providers.NAME`. The preset provides missing values.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Name of the preset. `None`: the preset with the name of the profile, if there is one.
    pub preset: Option<String>,
    /// Protocol of the server. `None`: that of the preset; without a preset, Chat Completions.
    #[serde(rename = "type")]
    pub protocol: Option<Protocol>,
    /// Base URL. `None`: that of the preset; an error if it has none.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// Name of the model. `None`: that of the preset; an error if it has none.
    pub model: Option<String>,
    /// Name of the environment variable with the key. `None`: that of the preset.
    pub api_key_env: Option<String>,
    /// The key. `None`: it is read from the variable `api_key_env`. If both the key and the
    /// variable are set, the configuration has already replaced the key by the value of the
    /// variable.
    #[serde(deserialize_with = "secret")]
    pub api_key: Option<SecretString>,
    /// Authentication scheme. `None`: inferred from the other settings.
    pub auth: Option<Auth>,
    /// Additional HTTP headers, value by name.
    #[serde(deserialize_with = "secrets")]
    pub headers: BTreeMap<String, SecretString>,
    /// Differences of the server from the protocol. They replace all differences of the preset;
    /// `None`: those of the preset.
    pub quirks: Option<Quirks>,
    /// Maximum number of tokens of a reply, if a request sets none. `None`: see
    /// [`ProviderProfile::max_tokens`].
    pub max_tokens: Option<u64>,
    /// Sampling temperature, if a request sets none. `None`: the server's default.
    pub temperature: Option<f64>,
    /// True if a reply is streamed when the caller wants deltas. `None`: true.
    pub stream: Option<bool>,
    /// Timeouts. `None`: none is configured.
    pub timeouts: Option<AttemptTimeouts>,
}

impl ProviderProfile {
    /// Creates a profile with this name, base URL, model and key, and defaults for everything else.
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

    /// Returns true if a reply is streamed. `wanted`: the caller wants deltas.
    pub(crate) fn streams(&self, wanted: bool) -> bool {
        // The server of a login only streams.
        self.login.is_some() || (wanted && self.stream)
    }

    /// Temperature of `request`, else of the profile. `None` if neither sets one, or if the server
    /// accepts none.
    pub(crate) fn temperature_of(&self, request: &Request) -> Option<f64> {
        request.temperature.or(self.temperature).filter(|_| !self.quirks.omit_temperature)
    }

    /// Base URL without trailing slashes, and without the path of the endpoint that generates
    /// replies: some users configure the complete address of this endpoint.
    pub(crate) fn base(&self) -> &str {
        let base = self.base_url.trim().trim_end_matches('/');
        base.strip_suffix(self.protocol.call_path("/v1")).unwrap_or(base)
    }

    /// Creates the profile `name` from `settings` and their preset. `environment` returns the value
    /// of an environment variable, from which the key is taken if `settings` have none. Errors: an
    /// unknown preset, a missing base URL or model, or no key although a key variable is named and
    /// `auth` is not `none`. With a login: also an unknown folder, and settings for a key.
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
            temperature: settings.temperature,
            stream: settings.stream.unwrap_or(true),
            timeouts: settings.timeouts.unwrap_or_default(),
            ..ProviderProfile::new(name, &base_url, &model, api_key)
        })
    }

    /// Creates a profile that uses the login of the Codex program. The login is sent only to its
    /// own server, and no key replaces it, so `settings` with an address, a key or an
    /// authentication scheme are an error.
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
            temperature: settings.temperature,
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
