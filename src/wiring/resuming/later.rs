//! How a session can go on later by itself: what the line for a timer is made of.

use std::path::{Path, PathBuf};

use crate::cli::RunArgs;
use crate::config::{Environment, Loaded};
use crate::front::again::Again;
use crate::provider::presets;
use crate::wiring::run::Assembled;

/// How the session can go on later.
pub(crate) fn again(
    assembled: &Assembled,
    args: &RunArgs,
    loaded: &Loaded,
    environment: &Environment,
) -> Again {
    let mut flags = Vec::new();
    let mut switch = |on: bool, flag: &str| flags.extend(on.then(|| flag.to_owned()));
    switch(args.yes, "--yes");
    switch(args.place.trust_project, "--trust-project");
    switch(args.sandbox_required == Some(true), "--sandbox-required");
    let mut value = |flag: &str, value: Option<String>| {
        flags.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    };
    value("--sandbox", args.sandbox.clone());
    value("--network", args.network.clone());
    value("--config", args.place.config.as_ref().map(|file| absolute(file)));
    for dir in &args.add_dirs {
        value("--add-dir", Some(absolute(dir)));
    }
    let profile = assembled.ports.provider.info().profile;
    let configured = loaded.settings.providers.get(&profile);
    let key = configured.and_then(|configured| configured.api_key_env.clone());
    let preset = presets::preset(&profile).and_then(|preset| preset.key_variable);
    let needed = ["POSSE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"].map(str::to_owned);
    let needed = needed.into_iter().chain(key.or_else(|| preset.map(str::to_owned)));
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("posse"));
    Again {
        session: assembled.settings.session_id.to_string(),
        program: program.display().to_string(),
        cwd: assembled.settings.cwd.clone(),
        flags,
        variables: needed.filter(|name| environment.get(name).is_some()).collect(),
        path: environment.get("PATH").unwrap_or_default().to_owned(),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
