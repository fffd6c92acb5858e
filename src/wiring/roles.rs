//! Roles: provider profile, model and reasoning effort for one purpose.
//!
//! The session itself uses the roles `compact` and `title`, subagents use all others. Values that
//! are not set are the session's, except a model beside a profile: then the profile's default.

use std::path::Path;
use std::sync::Arc;

use posse_actors::ports::{Provider, Thinking};

use crate::agents::{Agent, AgentMode, Roster};
use crate::config::{Environment, RoleSettings, Settings};
use crate::failure::{Failure, nearest, printable};
use crate::lists::Serving;
use crate::wiring::{provider, subagents};

/// Roles that the session itself uses.
pub(crate) const OWN: [&str; 2] = ["compact", "title"];

/// Warnings about configured roles that are not in [`OWN`] and match no callable agent.
pub(crate) fn remarks(settings: &Settings, roster: &Roster) -> Vec<String> {
    let callable = |agent: &&Agent| agent.delegation.callable;
    let agents: Vec<&str> =
        roster.agents.iter().filter(callable).map(|agent| agent.name.as_str()).collect();
    let known = || OWN.into_iter().chain(agents.iter().copied());
    let nobody = |(role, configured): (&String, &RoleSettings)| {
        if known().any(|name| name == role) {
            return None;
        }
        let main = role == "main" || *role == settings.default_agent;
        let meant = match nearest(role, known()) {
            _ if main => {
                "; `defaultProvider` and `model` select the model of the main agent".to_owned()
            }
            Some(meant) => format!("; did you mean \"{meant}\"?"),
            None => String::new(),
        };
        let (role, place) = (printable(role), printable(&configured.place));
        Some(format!("warning[CFG040]: roles.{role} matches no agent{meant} ({place})"))
    };
    settings.roles.iter().filter_map(nobody).collect()
}

/// Configured profile, model and reasoning effort of `agent`, for display. Profile and model are
/// those of the role of its name, if it is callable; a profile in its definition replaces both.
/// The effort is the definition's, else for a subagent the role's, else the session's.
pub(crate) fn serving(agent: &Agent, settings: &Settings) -> Serving {
    let callable = agent.delegation.callable && !agent.hidden;
    let role = settings.roles.get(&agent.name).filter(|_| callable && agent.profile.is_none());
    let thinking = if agent.mode == AgentMode::Primary {
        agent.thinking.or(settings.thinking)
    } else {
        subagents::thinking(agent, settings)
    };
    Serving {
        profile: agent.profile.clone().or_else(|| role?.profile.clone()),
        model: role.and_then(|role| role.model.clone()),
        thinking,
    }
}

/// Reasoning effort of `role`, else of the session. `None` if neither is set.
pub(crate) fn thinking(role: &str, settings: &Settings) -> Option<Thinking> {
    settings.roles.get(role).and_then(|role| role.thinking).or(settings.thinking)
}

/// Creates the provider of `role`. `None` if the role sets neither profile nor model: the session's
/// provider is used.
///
/// Error: the provider cannot be created, for example without a key or model.
pub(crate) fn served(
    role: &str,
    settings: &Settings,
    environment: &Environment,
    workspace: &Path,
) -> Result<Option<Arc<dyn Provider>>, Failure> {
    let Some(wanted) = settings.roles.get(role) else { return Ok(None) };
    if wanted.profile.is_none() && wanted.model.is_none() {
        return Ok(None);
    }
    let provider = provider::choose(&asked(wanted, settings), environment, workspace)
        .map_err(|failure| with_place(failure, wanted))?;
    Ok(Some(provider))
}

/// Settings that select the profile and model of a role. They contain no model of the session,
/// because a model belongs to its profile.
fn asked(wanted: &RoleSettings, settings: &Settings) -> Settings {
    let default_provider = wanted.profile.clone().or_else(|| settings.default_provider.clone());
    Settings { default_provider, model: wanted.model.clone(), ..settings.clone() }
}

fn with_place(failure: Failure, wanted: &RoleSettings) -> Failure {
    if failure.place.is_some() { failure } else { failure.at(wanted.place.clone()) }
}
