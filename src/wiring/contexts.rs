//! How much models get to read, as it is configured, and who helps where that is too much.

use std::path::Path;
use std::sync::Arc;

use posse_actors::context::{ContextBudget, ContextSettings};
use posse_actors::ports::{Abilities, Fallback, Provider, ProviderInfo};

use crate::config::{ContextSize, Environment, Settings};
use crate::failure::Failure;
use crate::models::Catalog;
use crate::wiring::model_price::price;
use crate::wiring::roles;

/// What an agent gets to read; `usual` where nothing is said.
pub(crate) fn budget(size: &ContextSize, usual: ContextBudget) -> ContextBudget {
    ContextBudget {
        tokens_max: size.tokens_max,
        compact_at: size.compact_at.unwrap_or(usual.compact_at),
        summary_tokens: size.summary_tokens,
        recent_turns: size.recent_turns,
        recent_turns_min: size.recent_turns_min,
        inline_result_tokens: size.inline_result_tokens,
        compacts: size.compacts,
    }
}

/// Windows, looked up when they matter, and models that have a role. `instructions_bytes`: of the
/// system prompt, what the user and the project say.
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
    let (compact, title) = (role("compact")?, role("title")?);
    let own = settings.models.clone();
    let said: Vec<(String, u64)> = settings
        .providers
        .iter()
        .filter_map(|(name, profile)| Some((name.clone(), profile.context_window?)))
        .collect();
    let window = move |info: &ProviderInfo| {
        let said = said.iter().find(|(name, _)| *name == info.profile).map(|(_, window)| *window);
        said.or_else(|| Catalog::new(&own).find(&info.profile, &info.model)?.facts.context_window)
    };
    Ok(ContextSettings { windows: Some(Arc::new(window)), compact, title, instructions_bytes })
}
