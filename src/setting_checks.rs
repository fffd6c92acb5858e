//! Checks of settings that need modules beside the configuration: roles, domains, hooks, key
//! bindings, and settings without an effect.

use std::path::Path;

use crate::config::{Environment, Loaded, RoleSettings, Settings};
use crate::failure::{ErrorCode, Exit, Failure, nearest, printable};
use crate::provider::presets;
use crate::tui::{self, KeybindingMistake};
use crate::{hooks, network, unused_settings};

/// One error for each invalid setting, with its place; empty if there is none.
pub(crate) fn check(loaded: &Loaded, environment: &Environment) -> Vec<Failure> {
    let wrong = [
        wrong_roles(loaded),
        network::check(loaded),
        unused_settings::check(loaded),
        wrong_keybindings(loaded),
        wrong_hooks(loaded, environment),
    ];
    wrong.concat()
}

/// One error for each role whose provider profile does not exist; empty if there is none.
fn wrong_roles(loaded: &Loaded) -> Vec<Failure> {
    let Settings { roles, providers, .. } = &loaded.settings;
    let exists = |name: &String| providers.contains_key(name) || presets::preset(name).is_some();
    let wrong = |(role, settings): (&String, &RoleSettings)| {
        let profile = settings.profile.as_ref().filter(|name| !exists(name))?;
        let (role, shown) = (printable(role), printable(profile));
        let what = format!("roles.{role}.profile: there is no provider profile \"{shown}\"");
        let known = providers.keys().map(String::as_str);
        let known = known.chain(presets::all().iter().map(|preset| preset.name));
        let fix = match nearest(profile, known) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "add it to `providers`, or leave it out".to_owned(),
        };
        Some(
            Failure::new(ErrorCode::RoleInvalid, Exit::Configuration, what)
                .at(settings.place.clone())
                .fix(fix),
        )
    };
    roles.iter().filter_map(wrong).collect()
}

/// One error for each invalid entry of `hooks`; empty if there is none.
fn wrong_hooks(loaded: &Loaded, environment: &Environment) -> Vec<Failure> {
    let home = environment.get("HOME").map(Path::new);
    let wrong = hooks::check(&loaded.settings.hooks, home).into_iter();
    let leaf = loaded.layers.get("hooks");
    let placed = wrong.map(|(nth, failure)| match leaf {
        Some(leaf) => failure.at(leaf.member_place(nth)),
        None => failure,
    });
    placed.collect()
}

/// One error for each mistake in `ui.keybindings`; empty if there is none.
fn wrong_keybindings(loaded: &Loaded) -> Vec<Failure> {
    let mistakes = tui::check_bindings(&loaded.settings.ui.keybindings).into_iter();
    let placed = mistakes.map(|KeybindingMistake { names, failure }| {
        let leaves =
            names.iter().filter_map(|name| loaded.layers.get(&format!("ui.keybindings.{name}")));
        let places: Vec<String> = leaves.map(|leaf| leaf.origin.place()).collect();
        failure.at(places.join(" and "))
    });
    placed.collect()
}
