//! Stored decisions of the user, connected to a session: trust and grants.

use std::path::Path;
use std::sync::Arc;

use posse_actors::event::{Event, SandboxTier, Scope};
use posse_actors::ports::GrantStore;

use crate::config::{self, Dirs, Loaded, Notice, Settings};
use crate::failure::ErrorCode;
use crate::grants::{GrantSettings, Grants};
use crate::project::{self, Identity};
use crate::provider::presets;
use crate::signed_store::SignedStore;
use crate::trust::{TrustStore, Trusted};

/// Trusted content of the project at `root`, if any, and a notice if the trust store cannot be
/// trusted. Reads the store only if the project has a configuration file.
pub(crate) fn trusted(root: &Path, dirs: &Dirs) -> (Option<Trusted>, Option<Notice>) {
    if config::project_file(root).symlink_metadata().is_err() {
        return (None, None);
    }
    let Ok(identity) = Identity::of(root) else { return (None, None) };
    match TrustStore::new(SignedStore::new(&dirs.state)).find(&identity) {
        Ok(trusted) => (trusted, None),
        Err(tampered) => {
            let line = tampered.line();
            let text = line.strip_prefix("CFG010: ").unwrap_or(&line).to_owned();
            (None, Some(Notice { code: ErrorCode::FileNotTrusted, text }))
        }
    }
}

/// Names of the presets (built-in provider profiles), each with the variable of its key, if any.
pub(crate) fn presets() -> Vec<(&'static str, Option<&'static str>)> {
    presets::all().iter().map(|preset| (preset.name, preset.key_variable)).collect()
}

/// Events for the journal about settings of a project, or files, that were ignored.
pub(crate) fn ignored(loaded: &Loaded) -> Vec<Event> {
    let about_project = |notice: &&Notice| {
        matches!(
            notice.code,
            ErrorCode::ConfigProjectForbidden
                | ErrorCode::FileNotTrusted
                | ErrorCode::ProjectNotTrusted
        )
    };
    let event = |notice: &Notice| Event::ConfigIgnored {
        code: notice.code.to_string(),
        message: notice.text.clone(),
    };
    loaded.notices.iter().filter(about_project).map(event).collect()
}

/// The grants of a session in `cwd`. Nothing is read before the first call is judged.
pub(crate) fn grants(
    cwd: &Path,
    dirs: &Dirs,
    settings: &Settings,
    tier: &SandboxTier,
) -> Arc<dyn GrantStore> {
    let store = SignedStore::new(&dirs.state);
    Arc::new(Grants::new(store, project_of(cwd), grant_settings(settings, tier)))
}

/// Project whose grants apply in `cwd`: a worktree shares the grants of its repository. `None` if
/// the folder of the project cannot be examined.
pub(crate) fn project_of(cwd: &Path) -> Option<Identity> {
    project::shared_identity(&project::root_of(cwd)).ok()
}

pub(crate) fn grant_settings(settings: &Settings, tier: &SandboxTier) -> GrantSettings {
    let kept = &settings.persistent_grants;
    let widest = match (kept.enabled, kept.scope.as_str()) {
        (true, "global") => Scope::Global,
        (true, "project") => Scope::Project,
        _ => Scope::Session,
    };
    GrantSettings { widest, ttl_ms: kept.ttl_ms, tier: tier.clone() }
}
