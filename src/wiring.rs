//! Wiring: the only module that connects the ports of the kernel to all adapters. It assembles
//! sessions, and prints nothing.

pub(crate) mod authority;
pub(crate) mod clock;
pub(crate) mod confinement;
pub(crate) mod contexts;
pub(crate) mod fallback;
pub(crate) mod hooks;
pub(crate) mod isolated_workspaces;
pub(crate) mod model_price;
pub(crate) mod provider;
pub(crate) mod roles;
pub(crate) mod session;
pub(crate) mod skills;
pub(crate) mod subagents;
pub(crate) mod tool_settings;
pub(crate) mod workspace_roots;

use std::path::PathBuf;

use crate::cli::{self, PlaceArgs};
use crate::config::{self, Dirs, Environment, Loaded, Sources};
use crate::failure::Failure;
use crate::journal::{self};
use crate::project;
use crate::{setting_checks, unused_settings};

pub use provider::choose as choose_provider;
pub use session::{Assembled, Setup, assemble};

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/embedding.md")]
struct EmbeddingGuide;

/// Working directory, folders of posse, and the configuration that applies there.
pub(crate) struct WorkspaceContext {
    pub(crate) cwd: PathBuf,
    pub(crate) dirs: Dirs,
    pub(crate) loaded: Loaded,
}

/// Determines the working directory and posse's folders, and loads the configuration there. `flags`
/// are the last layer: key, value and source. Fails with the errors of configuration, roles, and
/// settings without an effect.
pub(crate) fn place(
    args: &PlaceArgs,
    flags: Vec<(&'static str, serde_json::Value, &'static str)>,
    environment: &Environment,
) -> Result<WorkspaceContext, Vec<Failure>> {
    let cwd = cli::working_directory(args.cwd.as_deref())?;
    let dirs = Dirs::from_environment(environment)?;
    crate::sandbox::record_workspaces_in(&dirs.state);
    let project = project::root_of(&cwd);
    let (trusted, notice) = authority::trusted(&project, &dirs);
    let presets = authority::presets();
    let sources = Sources {
        project: Some(&project),
        file: args.config.as_deref(),
        trust_project: args.trust_project,
        trusted: trusted.as_ref().map(|trusted| trusted.digest.as_str()),
        trusted_variables: trusted.as_ref().map_or(&[], |trusted| &trusted.variables),
        presets: &presets,
        flags,
    };
    let is_preset = |name: &str| provider::is_preset(name);
    let outside = config::Outside { rules: &unused_settings::check_rules, is_preset: &is_preset };
    let mut loaded = config::load_with(environment, &dirs, &sources, outside)?;
    loaded.notices.extend(notice);
    let wrong = setting_checks::check(&loaded, environment);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(WorkspaceContext { cwd, dirs, loaded })
}

/// Makes the id of a new session from the current time and a random number.
pub(crate) fn session_id() -> posse_actors::conversation::SessionId {
    let random = u32::try_from(clock::random() & 0xffff_ffff).unwrap_or_default();
    journal::new_session_id(clock::now_ms(), random)
}
