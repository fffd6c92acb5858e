//! `posse config`: shows and edits the configuration.

use std::io::Write;
use std::path::Path;

use posse_base::terminal;

use crate::cli::{self, ConfigAction, PlaceArgs};
use crate::commands::{notices, offline_commands, print};
use crate::config::{self, Dirs, Environment, Loaded, SettingOrigin};
use crate::failure::{Exit, Failure, lines, printable};
use crate::network;
use crate::project;
use crate::unused_settings;
use crate::wiring::{WorkspaceContext, place};

pub(super) fn run(action: ConfigAction, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let mut remarks = String::new();
    let text = match action {
        ConfigAction::Show { origin, json, place: args } => {
            let place = place(&args, Vec::new(), environment)?;
            notices(&place.loaded);
            config::show(&place.loaded.layers, place.loaded.project.as_ref(), origin, json)
        }
        ConfigAction::Instructions(args) => {
            let place = place(&args.place, Vec::new(), environment)?;
            notices(&place.loaded);
            return offline_commands::instructions(&place, args.json);
        }
        ConfigAction::Path { place: args } => {
            let cwd = cli::working_directory(args.cwd.as_deref())?;
            let dirs = Dirs::from_environment(environment)?;
            config::paths(&dirs, Some(&project::root_of(&cwd)), args.config.as_deref())
        }
        ConfigAction::Schema => config::json_schema(),
        ConfigAction::Reference => config::reference(),
        ConfigAction::Forget => {
            let dirs = Dirs::from_environment(environment)?;
            config::preferences::forget(&dirs)?
        }
        ConfigAction::Edit { key, value, unset, config } => {
            let dirs = Dirs::from_environment(environment)?;
            let file = config.clone().unwrap_or_else(|| config::user_file(&dirs));
            match (&key, &value, &unset) {
                (Some(key), Some(value), _) => {
                    fitting_rules(key, value)?;
                    let location = PlaceArgs { config, ..PlaceArgs::default() };
                    let said = config::edit(&file, key, Some(value))?;
                    remarks = match place(&location, Vec::new(), environment) {
                        Ok(place) => overriding_source(&place, key, &file).unwrap_or_default(),
                        // The change was saved, but is incomplete or conflicts with another
                        // setting.
                        Err(failures) => lines(&failures),
                    };
                    said
                }
                (_, _, Some(key)) => config::edit(&file, key, None)?,
                _ => config::explain(&file),
            }
        }
    };
    let exit = print(&text);
    terminal::stderr().write_all(remarks.as_bytes()).ok();
    Ok(exit)
}

/// Fails if `key` is `permissions` or a list of domains, and `value` contains invalid entries: no
/// run would start with them. A value that is no JSON list is not checked here.
fn fitting_rules(key: &str, value: &str) -> Result<(), Vec<Failure>> {
    let rules: Vec<serde_json::Value> = match key {
        "permissions" => serde_json::from_str(value).unwrap_or_default(),
        _ => Vec::new(),
    };
    let domains: Vec<String> = serde_json::from_str(value).unwrap_or_default();
    let wrong = unused_settings::check_rules(&rules).into_iter();
    let wrong = wrong.chain(network::check_entries(key, &domains));
    let wrong: Vec<Failure> = wrong.map(|(_, failure)| failure).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Makes a notice if another source overrides the value of `key` in `file`, or if `model` overrides
/// this provider's model. `None` if the value in `file` applies.
fn overriding_source(place: &WorkspaceContext, key: &str, file: &Path) -> Option<String> {
    let Loaded { settings, layers, .. } = &place.loaded;
    let own = printable(&file.display().to_string());
    let provider = settings.default_provider.as_deref().unwrap_or_default();
    // A selected model takes precedence over the provider's.
    let chosen = (key == format!("providers.{provider}.model")).then_some("model");
    let (name, leaf) = std::iter::once(key)
        .chain(chosen)
        .filter_map(|key| Some((key, layers.get(key)?)))
        .find(|(name, leaf)| match &leaf.origin {
            SettingOrigin::BuiltIn => false,
            SettingOrigin::File { name: at, .. } => *name != key || **at != own,
            SettingOrigin::Project { .. }
            | SettingOrigin::Preferences
            | SettingOrigin::Variable(_)
            | SettingOrigin::Flag(_) => true,
        })?;
    let value = printable(&leaf.value.to_string());
    let saved = match leaf.origin {
        SettingOrigin::Preferences => "; `posse config forget` forgets it",
        _ => "",
    };
    Some(format!("note: {name} = {value} counts before it ({}){saved}\n", leaf.origin))
}
