//! Configured API keys and the provider that a run would use.

use crate::config::{Environment, Loaded, ProviderSettings};
use crate::doctor::{Check, Examined, Status};
use crate::provider::codex::Login;
use crate::provider::presets::{self, Preset};
use crate::provider::profile::Protocol;
use crate::wiring::provider;

const AREA: &str = "providers";

pub(super) fn checks(examined: &Examined<'_>) -> Vec<Check> {
    let environment = examined.environment;
    let loaded = examined.loaded.as_ref().ok();
    let configured = |name: &str| loaded.and_then(|loaded| loaded.settings.providers.get(name));
    let mut checks: Vec<Check> = loaded
        .into_iter()
        .flat_map(|loaded| loaded.settings.providers.values())
        .map(|profile| Check::new(AREA, &profile.name, Status::Fact, key_of(profile, environment)))
        .collect();
    let unnamed = presets::all().iter().filter(|preset| configured(preset.name).is_none());
    checks.extend(unnamed.map(|preset| {
        Check::new(AREA, preset.name, Status::Fact, key_of_preset(preset, environment))
    }));
    checks.extend(loaded.map(|loaded| run_provider(loaded, examined)));
    checks
}

/// Check of the provider that a run would use: its model and address, or the reason why there is
/// none.
fn run_provider(loaded: &Loaded, examined: &Examined<'_>) -> Check {
    let name = "for a run";
    match provider::choose(&loaded.settings, examined.environment, examined.cwd) {
        Ok(provider) => {
            let info = provider.info();
            let detail = format!("{} via {} at {}", info.model, info.profile, info.endpoint);
            Check::new(AREA, name, Status::Good, detail)
        }
        Err(failure) => Check::of(AREA, name, &failure),
    }
}

fn key_presence(variable: &str, environment: &Environment) -> String {
    match (environment.get(variable), environment.oddity_of(variable)) {
        (Some(_), None) => format!("{variable} is set"),
        (Some(_), Some(odd)) => format!("{variable} is set, but {odd}"),
        (None, Some(odd)) => format!("{variable} {odd}"),
        (None, None) => format!("{variable} is not set"),
    }
}

fn key_of(profile: &ProviderSettings, environment: &Environment) -> String {
    let preset = presets::preset(&profile.name);
    let file = if profile.api_key.is_some() { "a key in the configuration" } else { "" };
    let variable =
        profile.api_key_env.as_deref().or_else(|| preset.and_then(|preset| preset.key_variable));
    match (variable, file) {
        _ if profile.kind.as_deref() == Some("replay") => "a cassette; no key needed".to_owned(),
        _ if has_login(profile.kind.as_deref(), preset) => {
            format!("configured; {}", login(&profile.name, environment))
        }
        _ if profile.auth.as_deref() == Some("none") => "configured; no key is sent".to_owned(),
        (Some(variable), "") => format!("configured; {}", key_presence(variable, environment)),
        (Some(variable), file) if environment.get(variable).is_none() => {
            format!("configured; {file}, {}", key_presence(variable, environment))
        }
        (Some(variable), _) => format!("configured; {}", key_presence(variable, environment)),
        (None, "") => "configured; without a key".to_owned(),
        (None, file) => format!("configured; {file}"),
    }
}

fn has_login(kind: Option<&str>, preset: Option<&Preset>) -> bool {
    match kind {
        Some(kind) => kind == "codex",
        None => preset.is_some_and(|preset| preset.protocol == Protocol::Codex),
    }
}

/// Describes the Codex login: it exists, or the reason why there is none. Uses no network.
fn login(name: &str, environment: &Environment) -> String {
    let login = Login::of(name, |variable| environment.get(variable).map(str::to_owned));
    match login.and_then(|login| login.check()) {
        Ok(()) => "a ChatGPT login exists; used only if it is selected explicitly".to_owned(),
        Err(failure) => match failure.why {
            Some(why) => format!("no ChatGPT login: {why}"),
            None => failure.what,
        },
    }
}

fn key_of_preset(preset: &Preset, environment: &Environment) -> String {
    if preset.protocol == Protocol::Codex {
        return login(preset.name, environment);
    }
    match (preset.key_variable, preset.placeholder_key) {
        (Some(variable), _) => key_presence(variable, environment),
        (None, Some(_)) => "needs no key".to_owned(),
        (None, None) => "has no environment variable for a key".to_owned(),
    }
}
