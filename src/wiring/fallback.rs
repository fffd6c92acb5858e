//! The configured fallback models, used while the selected one is unavailable.

use std::path::Path;
use std::sync::Arc;

use posse_actors::ports::{Abilities, Fallback, Provider};

use crate::config::{Environment, Settings};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::models::{Catalog, Facts};
use crate::wiring::model_price::price;
use crate::wiring::provider;

/// Creates the fallback models of the selected provider, wrapped by `ready`; empty if none are
/// configured. Fails if one cannot be created, is named twice, or is the selected provider itself.
pub(crate) fn all(
    settings: &Settings,
    environment: &Environment,
    workspace: &Path,
    ready: impl Fn(Arc<dyn Provider>) -> Arc<dyn Provider>,
) -> Result<Vec<Fallback>, Failure> {
    let chosen =
        provider::name(settings, environment).and_then(|name| settings.providers.get(name));
    let Some(chosen) = chosen.filter(|chosen| !chosen.fallback.is_empty()) else {
        return Ok(Vec::new());
    };
    let catalog = Catalog::new(&settings.models);
    let mut fallbacks = Vec::new();
    for (nth, name) in chosen.fallback.iter().enumerate() {
        if *name == chosen.name || chosen.fallback[..nth].contains(name) {
            let what = format!("providers.{}.fallback names \"{name}\" twice", chosen.name);
            let why = "a provider cannot be its own fallback";
            return Err(
                Failure::new(ErrorCode::FallbackInvalid, Exit::Configuration, what).because(why)
            );
        }
        // The requested model belongs to the selected provider.
        let theirs =
            Settings { default_provider: Some(name.clone()), model: None, ..settings.clone() };
        let provider = provider::choose(&theirs, environment, workspace)
            .map_err(|error| error.at(format!("providers.{}.fallback", chosen.name)))?;
        let info = provider.info();
        let known = catalog.find(&info.profile, &info.model).map(|model| model.facts);
        let abilities = model_abilities(&theirs, name, &known.unwrap_or_default());
        let price = Some(price(settings, &info));
        fallbacks.push(Fallback { provider: ready(provider), abilities, price });
    }
    Ok(fallbacks)
}

/// Abilities of a fallback model. Settings of the provider `name` override the `facts` of the
/// model catalogue.
fn model_abilities(settings: &Settings, name: &str, facts: &Facts) -> Abilities {
    let profile = settings.providers.get(name);
    let blind = profile.is_some_and(|profile| {
        profile.quirks.get("noVision").and_then(serde_json::Value::as_bool) == Some(true)
    });
    Abilities {
        tools: facts.tools,
        images: if blind { Some(false) } else { facts.vision },
        window: profile.and_then(|profile| profile.context_window).or(facts.context_window),
    }
}
