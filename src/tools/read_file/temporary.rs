//! Reading of a file in the temporary folder of the session, which commands see as `/tmp`.

use std::fs::File;
use std::path::{Component, Path};

use nix::fcntl::OFlag;
use posse_actors::ports::ToolError;
use posse_base::failure::printable;
use posse_base::secrets::is_secret;
use posse_sandbox::temporary_root;

use crate::ToolEnvironment;
use crate::workspace::{FileKind, FileStatus, open_beneath, refused};

/// Path of the temporary folder of the session for commands.
const FOLDER: &str = "/tmp";

/// Opens the file that commands see at `path`, and returns it with its name for the model. `None` if
/// the path is not below `/tmp`, or posse cannot read that folder. Follows no links. Refuses names of
/// secrets, as in the workspace.
pub(super) fn open(env: &ToolEnvironment, path: &str) -> Option<Result<(File, String), ToolError>> {
    let below = Path::new(path).strip_prefix(FOLDER).ok()?;
    if !below.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let root = temporary_root(&env.session_dir.join("tmp"))?;
    let shown = path.to_owned();
    if is_secret(&below.to_string_lossy()) {
        let what = format!("{} has the name of a secret file", printable(path));
        return Some(Err(ToolError::new("ARG003", what)));
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = open_beneath(&root, below, flags).and_then(|file| {
        let status = FileStatus::of(&file)?;
        Ok((File::from(file), status))
    });
    let opened = opened.map_err(|errno| refused(&shown, errno));
    Some(opened.and_then(|(file, status)| {
        status.require(FileKind::File, &shown)?;
        Ok((file, shown))
    }))
}
