//! Line about the permission mode at the first start in a project.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use posse_actors::event::PermissionMode;
use posse_base::terminal;

use crate::journal::StateDir;
use crate::tui::plain_text;
use crate::wiring::session::Setup;

/// File in the folder of a project, present when the line was printed for it.
const MARK: &str = "permission-mode-shown";

/// Prints what `mode` means and how to change it, unless it was printed before for the project.
/// Sessions without a person print nothing, so they do not count.
pub(super) fn tell(setup: &Setup<'_>, mode: PermissionMode) {
    if !is_first(setup) {
        return;
    }
    let line = line(mode);
    let text = match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => plain_text(&line, size.ws_col.into()),
        _ => line + "\n",
    };
    terminal::stderr().write_all(text.as_bytes()).ok();
}

/// True if the line was not shown before for the project; the next call returns false.
pub(super) fn is_first(setup: &Setup<'_>) -> bool {
    let folder = StateDir::new(setup.dirs.state.clone()).project_dir(setup.cwd);
    if folder.join(MARK).exists() {
        return false;
    }
    // Without the mark, the next start shows the line again.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(MARK)).ok();
    true
}

/// Line that explains `mode` and names the command that changes it.
fn line(mode: PermissionMode) -> String {
    let watchers = match mode {
        PermissionMode::Auto | PermissionMode::Edits => {
            ". Programs of yours that watch the workspace, such as dev servers, run what was changed"
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
