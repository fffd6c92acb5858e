//! Pricing of models, and the budget of a session.

use posse_actors::cost::{Budget, ModelPricing, PriceLookup};
use posse_actors::ports::{Fallback, ProviderInfo};

use crate::config::{Layers, SettingOrigin, Settings};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::models::{Catalog, rates};

/// Maximum size of a reply for reservations, in tokens: with a model's own maximum, a reservation
/// could take most of the budget. `maxTokens` of the provider takes precedence.
const REPLY_TOKENS: u64 = 32_000;

/// Configuration key of the cost limit; [`TOKENS`] is that of the token limit.
const MONEY: &str = "budget.maxCostMicroUsd";
const TOKENS: &str = "budget.maxTokens";

/// Nano-USD per micro-USD.
const NANO: u64 = 1000;

/// Price lookup that consults the model catalogue on first use.
pub(crate) fn price(settings: &Settings, model: &ProviderInfo) -> PriceLookup {
    let own = settings.models.clone();
    let (profile, name) = (model.profile.clone(), model.model.clone());
    let wanted = settings.providers.get(&profile).and_then(|profile| profile.tokens_max);
    PriceLookup::new(move || {
        let model = Catalog::new(&own).find(&profile, &name);
        let known = model.as_ref().and_then(|model| model.facts.max_output_tokens);
        let output_max = wanted.or(known.map(|known| known.min(REPLY_TOKENS)));
        ModelPricing { rates: model.as_ref().and_then(rates), output_max }
    })
}

/// Pricing of `model`, and budget of the session. Fails if the budget limits the cost and the price
/// of `model` or of a fallback is unknown.
pub(crate) fn affordable(
    settings: &Settings,
    model: &ProviderInfo,
    fallbacks: &[Fallback],
) -> Result<(PriceLookup, Budget), Vec<Failure>> {
    let (price, budget) = (price(settings, model), budget(settings));
    let others = fallbacks.iter().map(|other| (other.provider.info(), other.price.as_ref()));
    check(budget, std::iter::once((model.clone(), Some(&price))).chain(others))?;
    Ok((price, budget))
}

/// Budget limits that a flag or environment variable set for this session. They are stored with the
/// session; limits from configuration files are not, and are `None` here.
pub(crate) fn own_budget(layers: &Layers) -> Budget {
    let said = |key: &str| {
        let leaf = layers.get(key)?;
        let own = matches!(leaf.origin, SettingOrigin::Flag(_) | SettingOrigin::Variable(_));
        leaf.value.as_u64().filter(|_| own)
    };
    let nano = |micro: u64| micro.saturating_mul(NANO);
    Budget { nano_usd: said(MONEY).map(nano), tokens: said(TOKENS) }
}

/// The limits of `own` as settings: key, environment variable, and value (micro-USD or tokens).
pub(crate) fn remembered(own: Budget) -> [(&'static str, &'static str, Option<u64>); 2] {
    let micro = own.nano_usd.map(|nano| nano / NANO);
    [(MONEY, "POSSE_BUDGET_MICRO_USD", micro), (TOKENS, "POSSE_BUDGET_TOKENS", own.tokens)]
}

/// Budget of a session, from its settings.
fn budget(settings: &Settings) -> Budget {
    let nano = |micro: u64| micro.saturating_mul(NANO);
    Budget { nano_usd: settings.budget.micro_usd_max.map(nano), tokens: settings.budget.tokens_max }
}

/// Fails if `budget` limits the cost and the price of one of `models` is unknown.
fn check<'a>(
    budget: Budget,
    models: impl Iterator<Item = (ProviderInfo, Option<&'a PriceLookup>)>,
) -> Result<(), Vec<Failure>> {
    if budget.nano_usd.is_none() {
        return Ok(());
    }
    let unpriced = |(info, price): (ProviderInfo, Option<&PriceLookup>)| {
        let known = price.is_some_and(|price| price.pricing().rates.is_some());
        (!known).then(|| {
            let name = format!("{}/{}", info.profile, info.model);
            let what = format!("a cost budget needs a price, and none is known for {name}");
            Failure::new(ErrorCode::BudgetWithoutPrice, Exit::Configuration, what)
                .at("budget.maxCostMicroUsd")
                .fix(format!(
                    "set models.\"{name}\".inputPrice and .outputPrice in micro-USD for a million \
                     tokens (0 if it costs nothing), or bound tokens with budget.maxTokens"
                ))
        })
    };
    let failures: Vec<Failure> = models.filter_map(unpriced).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
