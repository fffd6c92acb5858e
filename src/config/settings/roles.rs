//! Models of roles: `roles` as configured.

use std::collections::BTreeMap;

use posse_actors::ports::Thinking;

use crate::layers::{Layers, SettingOrigin};

/// An entry of `roles`. `None` if not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleSettings {
    /// `profile`: a provider profile or preset. Whether it exists has not been checked.
    pub profile: Option<String>,
    /// `model`, instead of the profile's own.
    pub model: Option<String>,
    /// `thinking`.
    pub thinking: Option<Thinking>,
    /// Its place.
    pub place: String,
}

pub(super) fn roles(layers: &Layers) -> BTreeMap<String, RoleSettings> {
    let mut roles: BTreeMap<String, RoleSettings> = BTreeMap::new();
    for (rest, leaf) in layers.below("roles.") {
        let Some((name, field)) = rest.rsplit_once('.') else { continue };
        let role = roles.entry(name.to_owned()).or_default();
        let text = leaf.value.as_str();
        match field {
            "profile" => role.profile = text.map(str::to_owned),
            "model" => role.model = text.map(str::to_owned),
            _ => role.thinking = text.and_then(Thinking::named),
        }
        role.place = match &leaf.origin {
            // Who trusts it is of no interest here.
            SettingOrigin::Project { name, line, .. } => format!("{name}:{line}"),
            other => other.to_string(),
        };
    }
    roles
}
