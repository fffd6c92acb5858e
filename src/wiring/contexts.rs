//! Context budgets and the models for summaries, from the configuration.

use std::path::Path;
use std::sync::Arc;

use posse_actors::context::{ContextSettings, WindowSource};
use posse_actors::ports::{Abilities, Fallback, Provider, ProviderInfo};

use crate::config::{Environment, Settings};
use crate::failure::Failure;
use crate::models::Catalog;
use crate::provider::profile::ProviderProfile;
use crate::provider::window::{ReportedWindow, ReportedWindows};
use crate::wiring::model_price::price;
use crate::wiring::{provider, roles};

/// Lookup of context windows, and the models for summaries and titles, wrapped by `ready`.
/// `instructions_bytes`: size of the instruction files in the system prompt.
pub(crate) fn settings(
    settings: &Settings,
    environment: &Environment,
    cwd: &Path,
    instructions_bytes: usize,
    ready: impl Fn(Arc<dyn Provider>) -> Arc<dyn Provider>,
) -> Result<ContextSettings, Failure> {
    let role = |name: &str| {
        let provider = roles::served(name, settings, environment, cwd)?;
        Ok(provider.map(|provider| {
            let price = Some(price(settings, &provider.info()));
            Fallback { provider: ready(provider), abilities: Abilities::default(), price }
        }))
    };
    let compact = role("compact")?;
    let title = role("title")?;
    let title_thinking = roles::thinking("title", settings);
    let compact_thinking = roles::thinking("compact", settings);
    let own = settings.models.clone();
    let said: Vec<(String, u64)> = settings
        .providers
        .iter()
        .filter_map(|(name, profile)| Some((name.clone(), profile.context_window?)))
        .collect();
    let (named, stated) = (said.clone(), own.clone());
    let configured_window = move |info: &ProviderInfo| {
        let of_provider = named.iter().find(|(name, _)| *name == info.profile);
        let of_model = || stated.get(&info.model)?.get("contextWindow")?.as_u64();
        of_provider.map(|(_, window)| *window).or_else(of_model)
    };
    let configured = move |info: &ProviderInfo| {
        let said = said.iter().find(|(name, _)| *name == info.profile).map(|(_, window)| *window);
        said.or_else(|| Catalog::new(&own).find(&info.profile, &info.model)?.facts.context_window)
    };
    // A server is asked when the window is needed and nothing else is known, beside the request.
    let reports = ReportedWindows::default();
    let (known, asked) = (reports.clone(), (settings.clone(), environment.clone()));
    let window = move |info: &ProviderInfo| match known.known(info) {
        Some(ReportedWindow::Tokens(tokens)) => Some(tokens),
        Some(ReportedWindow::Asking | ReportedWindow::Unknown) => None,
        None => configured(info).or_else(|| {
            known.of(info, || server_profile(info, &asked.0, &asked.1));
            None
        }),
    };
    let source = move |info: &ProviderInfo| match reports.known(info) {
        Some(ReportedWindow::Tokens(_)) => WindowSource::Server,
        Some(ReportedWindow::Asking) => WindowSource::Asking,
        Some(ReportedWindow::Unknown) | None => WindowSource::Settings,
    };
    Ok(ContextSettings {
        windows: Some(Arc::new(window)),
        configured_windows: Some(Arc::new(configured_window)),
        window_sources: Some(Arc::new(source)),
        compact,
        compact_thinking,
        title,
        title_thinking,
        instructions_bytes,
    })
}

/// Profile of the server of a model. `None`: the profile has no server, or is invalid.
fn server_profile(
    info: &ProviderInfo,
    settings: &Settings,
    environment: &Environment,
) -> Option<ProviderProfile> {
    let kind = settings.providers.get(&info.profile).and_then(|profile| profile.kind.as_deref());
    let kinds = ["openai-compatible", "openai-responses", "anthropic"];
    if !kind.is_none_or(|kind| kinds.contains(&kind)) {
        return None;
    }
    let profile = provider::profile(&info.profile, settings, environment).ok()?;
    Some(ProviderProfile { model: info.model.clone(), ..profile })
}
