//! What the user decided for longer than a session: where it is kept, and the commands around it.

use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::event::Scope;
use posse_actors::ports::GrantStore;

use crate::cli::{GrantsAction, GrantsArgs, PlaceArgs};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{Exit, Failure};
use crate::grants::commands::Desk;
use crate::grants::{GrantSettings, Grants};
use crate::project::{self, Identity};
use crate::sealed::Vault;
use crate::wiring::world::now_ms;
use crate::wiring::{Place, place};

/// The grants of a session in `cwd`. Nothing is read before the first call is judged.
pub(crate) fn grants(cwd: &Path, dirs: &Dirs, settings: &Settings) -> Arc<dyn GrantStore> {
    let vault = Vault::new(&dirs.state);
    Arc::new(Grants::new(vault, project_of(cwd), keeping(settings)))
}

/// Whose permissions count in `cwd`: worktrees share those of their repository.
fn project_of(cwd: &Path) -> Option<Identity> {
    project::shared_identity(&project::root_of(cwd)).ok()
}

fn keeping(settings: &Settings) -> GrantSettings {
    let kept = &settings.persistent_grants;
    let widest = match (kept.enabled, kept.scope.as_str()) {
        (true, "global") => Scope::Global,
        (true, "project") => Scope::Project,
        _ => Scope::Session,
    };
    GrantSettings { widest, ttl: Duration::from_millis(kept.ttl_ms) }
}

pub(crate) fn run_grants(
    args: &GrantsArgs,
    environment: &Environment,
) -> Result<Exit, Vec<Failure>> {
    let place_args = PlaceArgs { cwd: args.cwd.clone(), ..PlaceArgs::default() };
    let Place { cwd, dirs, loaded } = place(&place_args, Vec::new(), environment)?;
    let desk = Desk {
        vault: Vault::new(&dirs.state),
        project: project_of(&cwd),
        settings: keeping(&loaded.settings),
        now_ms: now_ms(),
        json: args.json,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let ended = match &args.action {
        GrantsAction::List { all } => desk.list(*all, &mut out),
        GrantsAction::Revoke { ids } => desk.revoke(ids, &mut out),
        GrantsAction::Clear => desk.clear(&mut out),
    };
    ended.map_err(|failure| vec![failure])
}
