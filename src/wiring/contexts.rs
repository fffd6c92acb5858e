//! Context budgets and the models for summaries, from the configuration.

use std::path::Path;
use std::sync::Arc;

use posse_actors::context::{ContextBudget, ContextSettings, LedgerBudget, WindowSource};
use posse_actors::ports::{Abilities, Fallback, Provider, ProviderInfo};

use crate::config::{ContextSize, Environment, Settings};
use crate::failure::Failure;
use crate::models::Catalog;
use crate::provider::profile::ProviderProfile;
use crate::provider::window::{ReportedWindow, ReportedWindows};
use crate::wiring::model_price::price;
use crate::wiring::{provider, roles};

/// Context budget with the values of `size`, or of `usual` where `size` sets none. Limits a summary
/// to a quarter of `tokens_max`, if that is set, and `recent_turns_min` to `recent_turns`.
pub(crate) fn budget(size: &ContextSize, usual: &ContextBudget) -> ContextBudget {
    let tokens_max = if size.auto { None } else { size.tokens_max.or(usual.tokens_max) };
    let recent_turns = size.recent_turns.unwrap_or(usual.recent_turns);
    let fewest = size.recent_turns_min.unwrap_or(usual.recent_turns_min);
    let summary = size.summary_tokens.unwrap_or(usual.summary_tokens);
    ContextBudget {
        tokens_max,
        compact_at: size.compact_at.unwrap_or(usual.compact_at),
        // A small budget cannot hold a large summary.
        summary_tokens: summary.min(tokens_max.map_or(u64::MAX, |max| max / 4)),
        recent_turns,
        recent_turns_min: fewest.min(recent_turns),
        inline_result_tokens: size.inline_result_tokens.unwrap_or(usual.inline_result_tokens),
        compacts: !size.never_compacts,
        ledger: usual.ledger.map(|usual| LedgerBudget {
            raw_results: size.raw_delegate_results.unwrap_or(usual.raw_results),
            tokens: size.ledger_tokens.unwrap_or(usual.tokens),
        }),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_context_values_override_defaults() {
        let main = ContextBudget::main();
        assert_eq!(budget(&ContextSize::default(), &main), main);
        let auto = ContextSize { auto: true, ..ContextSize::default() };
        assert_eq!(budget(&auto, &main).tokens_max, None);
        let own = ContextSize {
            tokens_max: Some(4000),
            recent_turns: Some(1),
            never_compacts: true,
            compact_at: Some(0.5),
            raw_delegate_results: Some(5),
            ..ContextSize::default()
        };
        let own = budget(&own, &main);
        assert_eq!((own.recent_turns, own.recent_turns_min, own.compacts), (1, 1, false));
        assert_eq!(own.ledger, Some(LedgerBudget { raw_results: 5, tokens: 1200 }));
        assert_eq!(budget(&ContextSize::default(), &ContextBudget::child()).ledger, None);
        assert_eq!((own.summary_tokens, own.threshold(None, 0)), (1000, 2000));
    }
}
