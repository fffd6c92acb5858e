//! Connectivity check of the configured servers.

use std::time::Duration;

use crate::commands::runtime;
use crate::doctor::{Check, Examined, Status};
use crate::failure::Failure;
use crate::provider::connectivity::{Reached, models_of};
use crate::provider::profile::ProviderProfile;
use crate::wiring::provider;

const AREA: &str = "online";
/// Time limit for one server.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of servers that are queried.
const SERVERS_MAX: usize = 32;

/// Queries each configured server and the one that a run would use, concurrently: at most
/// [`SERVERS_MAX`], without providers of a type that has no server. Nothing if the configuration
/// has errors.
pub(super) fn checks(examined: &Examined<'_>) -> Result<Vec<Check>, Failure> {
    let Ok(loaded) = &examined.loaded else { return Ok(Vec::new()) };
    let settings = &loaded.settings;
    let main = provider::name(settings, examined.environment);
    // First the one that a run would use: it is never beyond the maximum.
    let others = settings
        .providers
        .values()
        .filter(|profile| {
            let asks = ["openai-compatible", "openai-responses", "anthropic", "codex"];
            profile.kind.as_deref().is_none_or(|kind| asks.contains(&kind))
        })
        .map(|profile| profile.name.as_str());
    let has_server = |name: &str| {
        !settings.providers.contains_key(name) || others.clone().any(|other| other == name)
    };
    let first = main.filter(|name| has_server(name));
    let rest = others.clone().filter(|name| main != Some(*name));
    let names: Vec<&str> = first.into_iter().chain(rest).take(SERVERS_MAX).collect();
    if names.is_empty() {
        let detail = "no provider is configured, so no server was contacted";
        return Ok(vec![Check::new(AREA, "servers", Status::Fact, detail)]);
    }
    let runtime = runtime()?;
    let checks = names.into_iter().map(|name| {
        let profile = provider::profile(name, settings, examined.environment);
        async move {
            match profile {
                Ok(profile) => ask(name, &profile, main == Some(name)).await,
                Err(failure) => {
                    // A failure of the provider for runs is reported by `providers`; here it is a
                    // warning.
                    let status = Status::Warning;
                    let detail = format!("not contacted: {}", failure.what);
                    Check { fix: failure.fix, ..Check::new(AREA, name, status, detail) }
                }
            }
        }
    });
    let checks = runtime.block_on(futures_util::future::join_all(checks));
    runtime.shutdown_background();
    Ok(checks)
}

async fn ask(name: &str, profile: &ProviderProfile, main: bool) -> Check {
    let model = &profile.model;
    let bad = if main { Status::Problem } else { Status::Warning };
    let check = |status, detail: String| Check::new(AREA, name, status, detail);
    match models_of(profile, LIMIT).await {
        Err(failure) => Check { status: bad, ..Check::of(AREA, name, &failure) },
        Ok(Reached::Listed(Some(true))) => {
            check(Status::Good, format!("responds and lists the model {model}"))
        }
        Ok(Reached::Listed(Some(false))) => {
            check(Status::Warning, format!("responds, but does not list the model {model}"))
                .fix(format!("check the name: --model, or providers.{name}.model"))
        }
        Ok(Reached::Listed(None) | Reached::WithoutList) => {
            check(Status::Good, "responds; it has no list of models".to_owned())
        }
        Ok(Reached::LoggedIn) => check(Status::Good, "the login is valid".to_owned()),
        Ok(Reached::Failed { class, cause }) => {
            let fix = match class {
                "unauthorized" if profile.login.is_some() => "run `codex login`".to_owned(),
                "unauthorized" => {
                    format!("renew the key of {name}, and check the variable that holds it")
                }
                "quota" => format!("look at the account of {name}: its allowance is used up"),
                "overloaded" => "try again later".to_owned(),
                "unreachable" => {
                    format!("check the network, the proxy variables, and providers.{name}.baseURL")
                }
                _ => format!("check providers.{name}.baseURL"),
            };
            check(bad, cause).fix(fix)
        }
    }
}
