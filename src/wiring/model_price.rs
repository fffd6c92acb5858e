//! What the session's model costs.

use posse_actors::ports::ProviderInfo;
use posse_actors::root_session::Price;

use crate::config::Settings;
use crate::models::{Catalog, cost};

const MICRO: f64 = 1e6;

/// Looks the model up when there is something to count, which is at the end.
pub(crate) fn price(settings: &Settings, model: &ProviderInfo) -> Price {
    let own = settings.models.clone();
    let (profile, name) = (model.profile.clone(), model.model.clone());
    Price::new(move |usage| {
        usage.input_tokens?;
        let model = Catalog::new(&own).find(&profile, &name)?;
        let micro = cost(usage, &model)?;
        #[expect(clippy::cast_precision_loss, reason = "nobody has spent nine billion dollars")]
        let dollars = micro as f64 / MICRO;
        Some(dollars)
    })
}
