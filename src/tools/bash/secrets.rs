//! Files with the name of a secret that a command names.
//!
//! The policy judges names only. It asks about a name of a secret, unless the sandbox shows the file to
//! the command, and denies a command that would print a file that the sandbox hides.

use std::path::{Path, PathBuf};

use posse_actors::event::SandboxTier;
use posse_actors::ports::{CommandPath, CommandSecrets, Operation};
use posse_base::secrets::is_secret;
use posse_sandbox::Sandbox;

use crate::ToolEnvironment;

/// Maximum number of such files of one command. Further ones count as if they did not exist.
const FILES_MAX: usize = 64;

/// Finds the existing files of the workspace with the name of a secret among `paths`, on the full
/// tier. `hidden`: paths that the command does not see as they are; `None`: all such files count as
/// hidden.
pub(super) fn named(
    env: &ToolEnvironment,
    sandbox: &Sandbox,
    paths: &[CommandPath],
    hidden: Option<&[PathBuf]>,
) -> CommandSecrets {
    let mut secrets = CommandSecrets::default();
    if sandbox.tier() != SandboxTier::Full {
        return secrets;
    }
    let named = paths.iter().filter(|named| named.levels == 0).map(|named| Path::new(&named.path));
    let resolved = named.filter_map(|path| path.canonicalize().ok());
    let is_hidden =
        |path: &Path| hidden.is_none_or(|hidden| hidden.iter().any(|one| path.starts_with(one)));
    for path in resolved {
        let Some(text) = path.to_str().filter(|text| is_secret(text)) else { continue };
        let is_inside = env.workspace.roots().any(|root| path.starts_with(root));
        let known = secrets.shown.iter().chain(&secrets.hidden);
        if !is_inside || !path.is_file() || known.clone().any(|known| known == text) {
            continue;
        }
        if known.count() == FILES_MAX {
            break;
        }
        let list = if is_hidden(&path) { &mut secrets.hidden } else { &mut secrets.shown };
        list.push(text.to_owned());
    }
    secrets
}

/// True if `operation` runs a command that names such a file.
pub(super) fn are_named(operation: &Operation) -> bool {
    matches!(operation, Operation::Execute { secrets, .. } if !secrets.is_empty())
}
