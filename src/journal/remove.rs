//! `posse sessions rm`: deletes one session.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use posse_actors::ports::JournalError;
use posse_base::failure::{ErrorCode, Exit, Failure, printable};
use posse_base::remove_tree::remove_tree;

use crate::lock::SessionLock;
use crate::state::{StateDir, StoredSession, Within};
use crate::summary::SessionSummary;

/// Calls `agreed` with the summary of session `id`, and deletes the session if it returns true.
/// `id` may be a unique prefix. If `agreed` returns false, nothing is deleted and the result is
/// `Exit::Failed`. Fails if a process owns the session, or if its folder is reached through a
/// symbolic link.
///
/// Only the session's own folder is deleted. Links in it are removed, not followed.
pub fn remove(
    state: &StateDir,
    id: &str,
    agreed: &mut dyn FnMut(&SessionSummary) -> Result<bool, Failure>,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let found = state.find(Within::Everywhere, id)?;
    check_place(state.root(), &found)?;
    if !agreed(&SessionSummary::of(found.clone()))? {
        writeln!(out, "nothing was removed").and_then(|()| out.flush()).ok();
        return Ok(Exit::Failed);
    }
    let lock = SessionLock::take(&found.dir).map_err(|error| refused(&found, &error))?;
    remove_tree(&found.dir).map_err(|error| {
        found
            .failure(ErrorCode::SessionNotRemoved, Exit::Failed, "cannot be removed")
            .because(error.to_string())
    })?;
    drop(lock);
    writeln!(out, "removed {}", printable(&found.id)).and_then(|()| out.flush()).ok();
    Ok(Exit::Done)
}

/// Checks that the folder of session `found` is reached from `root` without symbolic links.
/// Otherwise returns the error for the user.
fn check_place(root: &Path, found: &StoredSession) -> Result<(), Failure> {
    let place = || -> io::Result<bool> {
        let sessions = root.join("projects").join(&found.project).join("sessions");
        let project = Path::new("projects").join(&found.project);
        let expected = fs::canonicalize(root)?.join(project).join("sessions").join(&found.id);
        let inside = fs::canonicalize(&found.dir)? == expected;
        Ok(inside && fs::symlink_metadata(sessions)?.is_dir() && found.dir.is_dir())
    };
    let wrong = |why: String| {
        found
            .failure(ErrorCode::SessionNotRemoved, Exit::Failed, "is not removed")
            .because(why)
            .fix("to delete it anyway, remove the folder by hand")
    };
    match place() {
        Ok(true) => Ok(()),
        Ok(false) => Err(wrong("its folder is reached through a link".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn refused(found: &StoredSession, error: &JournalError) -> Failure {
    let failure = found.failure(ErrorCode::SessionInUse, Exit::Session, "is not removed");
    match error {
        JournalError::Locked { owner } => failure
            .because(format!("it is running in {owner}"))
            .fix("end that process first, then try again"),
        error => failure.because(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use posse_actors::conversation::SessionId;

    use super::*;

    const ID: &str = "20260101-000000-aaaaaa";

    fn session(home: &Path) -> (StateDir, std::path::PathBuf) {
        let state = StateDir::new(home.join("state"));
        let dir = state.session_dir(Path::new("/nowhere/a"), &SessionId::new(ID));
        fs::create_dir_all(dir.join("outputs")).unwrap();
        fs::write(dir.join("outputs/c1.txt"), "text").unwrap();
        (state, dir)
    }

    #[expect(clippy::unnecessary_wraps, reason = "a question may also fail")]
    fn yes(_: &SessionSummary) -> Result<bool, Failure> {
        Ok(true)
    }

    #[test]
    fn removes_the_session_and_follows_no_link() {
        let home = tempfile::tempdir().unwrap();
        let (state, dir) = session(home.path());
        let precious = home.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "text").unwrap();
        symlink(&precious, dir.join("blobs")).unwrap();
        symlink(precious.join("file"), dir.join("outputs/link")).unwrap();
        let mut out = Vec::new();
        assert_eq!(remove(&state, "2026", &mut yes, &mut out).unwrap(), Exit::Done);
        assert_eq!(String::from_utf8(out).unwrap(), format!("removed {ID}\n"));
        assert!(!dir.exists() && dir.parent().unwrap().exists());
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "text");
        assert_eq!(
            remove(&state, ID, &mut yes, &mut Vec::new()).unwrap_err().code,
            ErrorCode::SessionNotFound
        );
    }

    #[test]
    fn does_not_remove_running_unconfirmed_or_linked_sessions() {
        let home = tempfile::tempdir().unwrap();
        let (state, dir) = session(home.path());
        let lock = SessionLock::take(&dir).unwrap();
        let failure = remove(&state, ID, &mut yes, &mut Vec::new()).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.exit), ("SES009", Exit::Session));
        drop(lock);
        let mut no = |summary: &SessionSummary| {
            assert_eq!(summary.id, ID);
            Ok(false)
        };
        assert_eq!(remove(&state, ID, &mut no, &mut Vec::new()).unwrap(), Exit::Failed);
        let sessions = dir.parent().unwrap();
        let elsewhere = home.path().join("elsewhere");
        fs::rename(sessions, &elsewhere).unwrap();
        symlink(&elsewhere, sessions).unwrap();
        let failure = remove(&state, ID, &mut yes, &mut Vec::new()).unwrap_err();
        assert_eq!(failure.code, ErrorCode::SessionNotRemoved, "{failure}");
        assert!(elsewhere.join(ID).join("outputs/c1.txt").exists());
    }
}
