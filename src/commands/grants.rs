//! `posse grants`: lists and revokes stored grants.

use posse_actors::event::SandboxTier;
use posse_base::terminal;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::cli::{GrantsAction, GrantsArgs, PlaceArgs};
use crate::config::{Dirs, Environment, Settings};
use crate::failure::{Exit, Failure};
use crate::grants::commands::GrantCommands;
use crate::signed_store::SignedStore;
use crate::wiring::authority;
use crate::wiring::clock::now_ms;
use crate::wiring::{WorkspaceContext, place};

pub(super) fn run(args: &GrantsArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    let place_args = PlaceArgs { cwd: args.cwd.clone(), ..PlaceArgs::default() };
    let WorkspaceContext { cwd, dirs, loaded } = place(&place_args, Vec::new(), environment)?;
    let commands = commands(&cwd, &dirs, &loaded.settings, args.json);
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
    commands(cwd, dirs, settings, false).list(false, out)
}

fn commands(cwd: &Path, dirs: &Dirs, settings: &Settings, json: bool) -> GrantCommands {
    GrantCommands {
        store: SignedStore::new(&dirs.state),
        project: authority::project_of(cwd),
        // A list does not detect the sandbox tier.
        settings: authority::grant_settings(settings, &SandboxTier::Full),
        now_ms: now_ms(),
        json,
    }
}
