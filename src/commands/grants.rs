//! `posse grants`: lists and revokes stored grants.

use posse_actors::event::SandboxTier;
use posse_base::terminal;
use serde_json::Value;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::cli::{GrantsAction, GrantsArgs, PlaceArgs};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{Exit, Failure};
use crate::grants::commands::GrantCommands;
use crate::signed_store::SignedStore;
use crate::wiring::clock::now_ms;
use crate::wiring::{WorkspaceContext, authority, confinement, place};

pub(super) fn run(args: &GrantsArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place_args = PlaceArgs { cwd: args.cwd.clone(), ..PlaceArgs::default() };
    let WorkspaceContext { cwd, dirs, loaded } = place(&place_args, Vec::new(), environment)?;
    let lists_json = args.json && matches!(args.action, GrantsAction::List { .. });
    // The text does not tell which grants count, so it needs no tier.
    let tier = if lists_json {
        confinement::tier(&dirs, &loaded.settings, environment)?
    } else {
        SandboxTier::Full
    };
    let commands = commands(&cwd, &dirs, &loaded.settings, &tier, args.json);
    let mut out = BufWriter::new(terminal::stdout());
    let ended = match &args.action {
        GrantsAction::List { all } => commands.list(*all, &mut out),
        GrantsAction::Revoke { ids } => commands.revoke(ids, &mut out),
        GrantsAction::Clear => commands.clear(&mut out),
    };
    Ok(ended?)
}

/// Writes to `out` the stored grants that apply in `cwd`: those of its project and global ones.
pub(super) fn list(
    cwd: &Path,
    dirs: &Dirs,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    // The list does not tell which grants count, so it needs no tier.
    commands(cwd, dirs, settings, &SandboxTier::Full, false).list(false, out)
}

/// The stored grants of the project and global ones, as `posse grants list --json` prints them.
pub(super) fn rows(
    cwd: &Path,
    dirs: &Dirs,
    settings: &Settings,
    environment: &Environment,
) -> Result<Vec<Value>, Failure> {
    let tier = confinement::tier(dirs, settings, environment)?;
    let mut out = Vec::new();
    commands(cwd, dirs, settings, &tier, true).list(false, &mut out)?;
    Ok(serde_json::from_slice(&out).unwrap_or_default())
}

fn commands(
    cwd: &Path,
    dirs: &Dirs,
    settings: &Settings,
    tier: &SandboxTier,
    json: bool,
) -> GrantCommands {
    GrantCommands {
        store: SignedStore::new(&dirs.state),
        project: authority::project_of(cwd),
        settings: authority::grant_settings(settings, tier),
        now_ms: now_ms(),
        json,
    }
}
