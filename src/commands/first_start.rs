//! Line about the permission mode at the first start in a project.

use std::io::Write;
use std::path::Path;

use posse_actors::event::PermissionMode;
use posse_base::terminal;

use crate::journal::StateDir;
use crate::journal::state::Within;
use crate::wiring::session::Setup;

/// Prints what `mode` means and how to change it, unless the state directory contains a session of
/// the project besides the new one in `dir`.
pub(super) fn tell(setup: &Setup<'_>, dir: &Path, mode: PermissionMode) {
    let sessions = StateDir::new(setup.dirs.state.clone()).sessions(Within::Project(setup.cwd));
    if sessions.is_ok_and(|sessions| sessions.iter().all(|session| session.dir == dir)) {
        terminal::stderr().write_all((line(mode) + "\n").as_bytes()).ok();
    }
}

/// What `mode` means, and how to change it.
fn line(mode: PermissionMode) -> String {
    let watchers = match mode {
        PermissionMode::Auto | PermissionMode::Edits => {
            "; your own programs that watch the workspace, such as dev servers, run on what changed"
        }
        PermissionMode::Plan | PermissionMode::Ask | PermissionMode::Locked => "",
    };
    format!(
        "permission mode {mode}: {about}{watchers}; /permission-mode or \
         --permission-mode changes it",
        about = mode.about()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_the_meaning_and_the_way_to_change_it() {
        for mode in PermissionMode::KNOWN {
            let line = line(mode);
            assert!(line.contains(mode.about()) && line.contains("/permission-mode"), "{line}");
            let changes = matches!(mode, PermissionMode::Auto | PermissionMode::Edits);
            assert_eq!(line.contains("watch the workspace"), changes, "{line}");
            assert!(!line.contains('\n'));
        }
    }
}
