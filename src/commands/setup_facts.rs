//! Setup facts for a user without a configured model: keys, logins, local servers, sandbox. Sends
//! no network request and reads no file with a secret.

use std::path::Path;

use posse_actors::event::{PromptOverrides, SandboxTier};
use posse_actors::ports::AnswerSource;

use crate::config::Environment;
use crate::failure::printable;
use crate::provider::codex::Login;
use crate::provider::presets::{self, Preset};
use crate::tui::SetupFacts;
use crate::wiring::session::Setup;
use crate::wiring::{WorkspaceContext, confinement};

/// A provider that can be used without further setup.
pub(super) struct UsableProvider {
    /// Reason, such as `OPENAI_API_KEY is set`.
    pub(super) fact: String,
    /// Name of the profile or preset.
    pub(super) name: String,
}

/// Collects the facts: configured providers, keys, logins, local servers, and last the sandbox.
pub(super) fn found(place: &WorkspaceContext, environment: &Environment) -> SetupFacts {
    let line = |UsableProvider { fact, name }| (true, format!("{fact}: /provider {name}"));
    let mut facts: Vec<_> = providers(place, environment).into_iter().map(line).collect();
    if facts.is_empty() {
        let none = "no key of a provider in the environment, no login, no server on this machine";
        facts.push((false, none.to_owned()));
    }
    facts.push(sandbox(place, environment));
    SetupFacts { facts }
}

/// Configured providers, keys in the environment, logins of other programs, and local servers.
pub(super) fn providers(
    place: &WorkspaceContext,
    environment: &Environment,
) -> Vec<UsableProvider> {
    let usable = |fact: String, name: &str| UsableProvider { fact, name: printable(name) };
    let mut found = Vec::new();
    for name in place.loaded.settings.providers.keys() {
        found.push(usable(format!("provider {} is configured", printable(name)), name));
    }
    let set = |preset: &&Preset| {
        preset
            .key_variable
            .is_some_and(|key| environment.get(key).is_some_and(|key| !key.is_empty()))
    };
    for preset in presets::all().iter().filter(set) {
        let key = preset.key_variable.unwrap_or_default();
        found.push(usable(format!("{key} is set"), preset.name));
    }
    if has_codex_login(environment) {
        found.push(usable("a login of the Codex program".to_owned(), "codex"));
    }
    let server = |name| usable(format!("a server listens on the port of {name}"), name);
    found.extend(local_servers().into_iter().map(server));
    found
}

/// True if the Codex program has stored a login. Checks the location only, not the content.
fn has_codex_login(environment: &Environment) -> bool {
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    Login::of("codex", variable).is_ok_and(|login| is_file(&login.file()))
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_symlink())
}

/// The fact about the sandbox in which commands would run. The flag is true if commands would be
/// confined.
fn sandbox(place: &WorkspaceContext, environment: &Environment) -> (bool, String) {
    let setup = Setup {
        cwd: &place.cwd,
        add_dirs: &[],
        dirs: &place.dirs,
        settings: &place.loaded.settings,
        environment,
        asking: AnswerSource::Human,
        used: crate::agents::AgentUse::Chat,
        prompt: &PromptOverrides::default(),
        dry_run: false,
        tape: None,
        keep: false,
    };
    let sandbox = confinement::sandbox(&setup, vec![place.cwd.clone()], Vec::new());
    match sandbox.map(|sandbox| sandbox.tier()) {
        Ok(SandboxTier::Full) => (true, "commands run in a full sandbox".to_owned()),
        Ok(SandboxTier::Reduced) => {
            (true, "commands run in a reduced sandbox (see /doctor)".to_owned())
        }
        Ok(_) => {
            (false, "there is no sandbox here: commands run with all of your rights".to_owned())
        }
        Err(failure) => (false, printable(&failure.what)),
    }
}

/// Names of presets whose default port on this machine has a listener, according to the kernel's
/// socket tables. Makes no connection.
fn local_servers() -> Vec<&'static str> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let table: String =
        tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
    let local =
        presets::all().iter().filter(|preset| port(preset).is_some_and(|p| listens(&table, p)));
    local.map(|preset| preset.name).collect()
}

fn port(preset: &Preset) -> Option<u16> {
    let rest = preset.base_url?.strip_prefix("http://localhost:")?;
    rest.split('/').next()?.parse().ok()
}

/// True if `table`, with the format of `/proc/net/tcp`, contains a listener on `port`.
fn listens(table: &str, port: u16) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, state) = (fields.next().unwrap_or_default(), fields.nth(1));
        state == Some("0A") && own.ends_with(&format!(":{port:04X}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st\n\
            \x20  0: 0100007F:2CAA 00000000:0000 0A 0\n\
            \x20  1: 0100007F:04D2 0100007F:2CAB 01 0\n";
        assert!(listens(table, 0x2caa));
        assert!(!listens(table, 0x04d2), "a connection");
        assert!(!listens(table, 0x2cab) && !listens("", 1));
        assert!(presets::all().iter().any(|preset| port(preset).is_some()));
    }
}
