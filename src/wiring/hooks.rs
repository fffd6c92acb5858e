//! Settings for the hooks of a session.

use std::path::Path;

use posse_actors::event::SandboxTier;
use posse_actors::ports::Confinement;
use serde_json::Value;

use crate::config;
use crate::hooks::HookSettings;
use crate::signed_store::SignedStore;
use crate::wiring::Setup;
use crate::{grants, network, project, trust};

/// Settings for the hooks of a session. A dry run has no hooks, because hooks are programs.
pub(crate) fn hook_settings<'a>(
    setup: &Setup<'a>,
    session_dir: &Path,
    roots: &[String],
    tier: &SandboxTier,
) -> HookSettings<'a> {
    let sandbox = &setup.settings.sandbox;
    let entries: &[Value] = if setup.dry_run { &[] } else { &setup.settings.hooks };
    let store = SignedStore::new(&setup.dirs.state);
    let project = project::root_of(setup.cwd);
    HookSettings {
        entries,
        home: setup.environment.get("HOME").map(Path::new),
        path: setup.environment.get("PATH").unwrap_or_default().into(),
        cwd: setup.cwd.to_owned(),
        session_dir: session_dir.to_owned(),
        confinement: Confinement {
            profile: sandbox.mode.clone(),
            writable_roots: roots.to_vec(),
            network: network::access_of_hooks(sandbox),
        },
        tier: tier.clone(),
        watched: vec![
            config::user_file(setup.dirs),
            project.join(".posse/config.json"),
            store.path(grants::FILE),
            store.path(trust::FILE),
        ],
    }
}
