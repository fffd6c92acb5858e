//! Choice of the provider: the configured one, or the first whose key is in the environment.

use std::path::Path;
use std::sync::Arc;

use posse_actors::ports::{Provider, ProviderInfo};
use serde_json::Value;

use crate::config::{Environment, ProviderSettings, Settings};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::models::{Catalog, Model};
use crate::provider::profile::{self, Auth, ModelFact, Protocol, ProviderProfile, Quirks};
use crate::provider::{connect, presets, replay};

/// Maximum reply limit, in tokens, for the Messages protocol, which requires a limit. The model's
/// own limit would reserve too much context.
const REPLY_TOKENS: u64 = 32_000;

/// Creates the provider that `settings` select, or the first preset whose key is in `environment`;
/// fails without one. In a cassette, `workspace` replaces the placeholder for the workspace.
pub fn choose(
    settings: &Settings,
    environment: &Environment,
    workspace: &Path,
) -> Result<Arc<dyn Provider>, Failure> {
    let name = match &settings.default_provider {
        Some(name) => name.as_str(),
        None => first_available_preset(environment).ok_or_else(no_provider)?,
    };
    let configured = settings.providers.get(name);
    let kind = configured.and_then(|profile| profile.kind.as_deref());
    match kind {
        Some("replay") => replayed(name, configured, workspace),
        None | Some("openai-compatible" | "openai-responses" | "anthropic" | "codex") => {
            let mut profile = profile(name, settings, environment)?;
            profile.sight = vision_support(settings, name, &profile.model);
            profile.insight = thinking_support(settings, &profile);
            if let Some(login) = &profile.login {
                login.check()?;
            }
            connect(profile)
        }
        Some(other) => {
            let what = format!("providers.{name}.type \"{other}\" is not available yet");
            Err(Failure::new(ErrorCode::ProviderTypeUnavailable, Exit::Configuration, what)
                .fix("use \"openai-compatible\", \"openai-responses\", \"anthropic\" or \"codex\""))
        }
    }
}

/// The error for images if the model of `info` is known not to accept them. Names a model of the
/// same profile that does, if the catalogue has one. `None` if the model may accept images.
pub(crate) fn vision_error(settings: &Settings, info: &ProviderInfo) -> Option<Failure> {
    let configured = settings.providers.get(&info.profile);
    if configured.is_some_and(|profile| profile.kind.as_deref() == Some("replay")) {
        return None;
    }
    let quirk = configured.and_then(|profile| profile.quirks.get("noVision"));
    let quirk = quirk == Some(&Value::Bool(true));
    let vision_support = vision_support(settings, &info.profile, &info.model);
    let (profile, model) = (&info.profile, &info.model);
    let by_model = format!("models.\"{model}\".vision to true");
    let by_quirk = format!("providers.{profile}.quirks.noVision to false");
    let (why, setting) = match (vision_support.get(), quirk) {
        (Some(why), true) => (why.to_owned(), format!("{by_model} and {by_quirk}")),
        (Some(why), false) => (why.to_owned(), by_model),
        (None, true) => (format!("providers.{profile}.quirks.noVision says so"), by_quirk),
        (None, false) => return None,
    };
    let what = format!("{model} does not accept images; nothing was sent");
    let other = if quirk { "use another provider" } else { "pass --model with one that does" };
    let fix = format!("{other}; or, if {model} does, set {setting}");
    let failure = Failure::new(ErrorCode::ModelWithoutVision, Exit::Usage, what);
    Some(failure.at("--image").because(why).fix(fix))
}

fn vision_support(settings: &Settings, profile: &str, model: &str) -> ModelFact<Option<String>> {
    let own = settings.models.clone();
    let (profile, model) = (profile.to_owned(), model.to_owned());
    ModelFact::new(move || {
        let catalog = Catalog::new(&own);
        let known = catalog.find(&profile, &model)?;
        if known.facts.vision != Some(false) {
            return None;
        }
        let theirs = format!("{profile}/");
        let sees = |other: &Model| {
            let name = match &other.provider {
                Some(provider) => Some(other.model.as_str()).filter(|_| *provider == profile),
                None => other.model.strip_prefix(&theirs),
            };
            name.filter(|_| other.facts.vision == Some(true)).map(str::to_owned)
        };
        Some(match catalog.all().iter().find_map(sees) {
            Some(other) => format!("{model} takes no images; {other} of {profile} does"),
            None => {
                format!("{model} takes no images, and no model of {profile} is known that does")
            }
        })
    })
}

/// Reasoning support of the profile's model, from the model catalogue: listed for the profile, or
/// for the vendor of its protocol.
fn thinking_support(settings: &Settings, profile: &ProviderProfile) -> ModelFact<Option<bool>> {
    let own = settings.models.clone();
    let (name, model, vendor) = (profile.name.clone(), profile.model.clone(), vendor(profile));
    ModelFact::new(move || {
        let catalog = Catalog::new(&own);
        let known = catalog.find(&name, &model).or_else(|| catalog.find(vendor?, &model))?;
        known.facts.reasoning
    })
}

/// Vendor of the profile's protocol. `None` for Chat Completions, which many vendors use.
fn vendor(profile: &ProviderProfile) -> Option<&'static str> {
    match profile.protocol {
        Protocol::ChatCompletions => None,
        Protocol::Responses | Protocol::Codex => Some("openai"),
        Protocol::Messages => Some("anthropic"),
    }
}

/// Makes the provider profile `name` from configuration and preset, with its key. A model in
/// `settings` replaces the profile's model.
pub(crate) fn profile(
    name: &str,
    settings: &Settings,
    environment: &Environment,
) -> Result<ProviderProfile, Failure> {
    let configured = settings.providers.get(name);
    let mut wanted = configured.map(wanted).transpose()?.unwrap_or_default();
    if configured.is_none() && presets::preset(name).is_none() {
        return Err(unknown(name, settings));
    }
    if let Some(model) = &settings.model {
        wanted.model = Some(model.clone());
    }
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    let mut profile = ProviderProfile::resolve(name, wanted, variable)?;
    if profile.temperature.is_some() && profile.quirks.omit_temperature {
        let key = format!("providers.{name}.temperature");
        let what = format!("{key} conflicts with the quirk omitTemperature: it would not be sent");
        let fix = format!("remove it, or set providers.{name}.quirks.omitTemperature to false");
        let failure = Failure::new(ErrorCode::ConfigContradiction, Exit::Configuration, what);
        return Err(failure.at(key).fix(fix));
    }
    adapt(&mut profile, settings);
    // The built-in data do not count: they describe the vendor's servers only.
    let configured = Catalog::new(&settings.models).configured_facts(name, &profile.model);
    profile.quirks.no_tools |= configured.is_some_and(|facts| facts.tools == Some(false));
    Ok(profile)
}

/// Adds data of the model catalogue to a profile whose protocol has one vendor: a reply limit for
/// the Messages protocol, if none is configured, and the fact that the model does not reason.
fn adapt(profile: &mut ProviderProfile, settings: &Settings) {
    let Some(vendor) = vendor(profile) else { return };
    let models = Catalog::new(&settings.models);
    let known = models.find(&profile.name, &profile.model);
    let Some(known) = known.or_else(|| models.find(vendor, &profile.model)) else { return };
    if profile.protocol == Protocol::Messages && profile.max_tokens.is_none() {
        profile.max_tokens = known.facts.max_output_tokens.map(|max| max.min(REPLY_TOKENS));
    }
    profile.quirks.no_reasoning |= known.facts.reasoning == Some(false);
}

/// Name of the provider that `choose` creates: the configured one, else the first preset whose key
/// is in `environment`. `None` without both.
pub(crate) fn name<'a>(settings: &'a Settings, environment: &Environment) -> Option<&'a str> {
    settings.default_provider.as_deref().or_else(|| first_available_preset(environment))
}

/// True if `name` is the name of a preset.
pub(crate) fn is_preset(name: &str) -> bool {
    presets::preset(name).is_some()
}

/// Name of the first preset whose key variable is set.
fn first_available_preset(environment: &Environment) -> Option<&'static str> {
    let keyed = |preset: &&presets::Preset| {
        preset.key_variable.is_some_and(|variable| environment.get(variable).is_some())
    };
    presets::all().iter().find(keyed).map(|preset| preset.name)
}

fn no_provider() -> Failure {
    let mut variables: Vec<&str> = Vec::new();
    for variable in presets::all().iter().filter_map(|preset| preset.key_variable) {
        if !variables.contains(&variable) {
            variables.push(variable);
        }
    }
    let what = "no model provider is configured, and no key is in the environment";
    Failure::new(ErrorCode::ProviderNotConfigured, Exit::Configuration, what).fix(format!(
        "set one of {}; or name a local server with `--provider ollama --model NAME`; or add a \
         provider with `posse config edit providers.NAME.baseURL URL` and use `--provider NAME \
         --model MODEL`; or see posse work without a model: `posse demo`",
        variables.join(", ")
    ))
}

fn unknown(name: &str, settings: &Settings) -> Failure {
    let mut known: Vec<&str> = settings.providers.keys().map(String::as_str).collect();
    known.extend(presets::all().iter().map(|preset| preset.name));
    known.sort_unstable();
    known.dedup();
    let what = format!("there is no provider \"{name}\"");
    Failure::new(ErrorCode::ProviderUnknown, Exit::Configuration, what)
        .fix(format!("use one of {}, or add providers.{name}", known.join(", ")))
}

fn replayed(
    name: &str,
    configured: Option<&ProviderSettings>,
    workspace: &Path,
) -> Result<Arc<dyn Provider>, Failure> {
    let file = configured.and_then(|profile| profile.base_url.as_deref()).ok_or_else(|| {
        let what = format!("provider \"{name}\" has no cassette");
        Failure::new(ErrorCode::ProviderIncomplete, Exit::Configuration, what)
            .fix(format!("set providers.{name}.baseURL to \"file:///path/of/the/cassette\""))
    })?;
    let path = file.strip_prefix("file://").ok_or_else(|| {
        let what = format!("providers.{name}.baseURL does not name a cassette");
        Failure::new(ErrorCode::ProviderIncomplete, Exit::Configuration, what)
            .fix("write it like \"file:///path/of/the/cassette\"")
    })?;
    replay::open(name, Path::new(path), workspace)
}

fn wanted(configured: &ProviderSettings) -> Result<profile::Settings, Failure> {
    let name = &configured.name;
    let wrong = |key: &str, error: &dyn std::fmt::Display| {
        let what = format!("providers.{name}.{key}: {error}");
        Failure::new(ErrorCode::ConfigInvalidValue, Exit::Configuration, what)
    };
    let auth = configured.auth.as_deref().map(|auth| match auth {
        "bearer" => Auth::Bearer,
        "none" => Auth::None,
        header => Auth::Header(header.to_owned()),
    });
    let protocol = match &configured.kind {
        Some(kind) => {
            let kind = Value::String(kind.clone());
            Some(serde_json::from_value(kind).map_err(|error| wrong("type", &error))?)
        }
        None => None,
    };
    let quirks = quirks(configured).map_err(|error| wrong("quirks", &error))?;
    let headers =
        configured.headers.iter().map(|(name, value)| (name.clone(), value.clone().into()));
    let own = &configured.timeouts;
    let timeouts = profile::AttemptTimeouts::of(own.connect, own.first_byte, own.silence, own.idle);
    Ok(profile::Settings {
        preset: None,
        protocol,
        base_url: configured.base_url.clone(),
        model: configured.model.clone(),
        api_key_env: configured.api_key_env.clone(),
        api_key: configured.api_key.clone(),
        auth,
        headers: headers.collect(),
        quirks,
        max_tokens: configured.tokens_max,
        temperature: configured.temperature,
        stream: None,
        timeouts: Some(timeouts),
    })
}

/// Quirks of the preset, with configured changes. `None` if none are configured.
fn quirks(configured: &ProviderSettings) -> Result<Option<Quirks>, serde_json::Error> {
    if configured.quirks.is_empty() {
        return Ok(None);
    }
    let preset = presets::preset(&configured.name).map(|preset| (preset.quirks)());
    let preset = preset.unwrap_or_default();
    let mut merged = match serde_json::to_value(&preset)? {
        Value::Object(merged) => merged,
        _ => serde_json::Map::new(),
    };
    merged.extend(configured.quirks.clone());
    serde_json::from_value(Value::Object(merged)).map(Some)
}
