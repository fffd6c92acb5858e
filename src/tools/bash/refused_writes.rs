//! Notes for the model about a command whose output says that the sandbox refused to change a file.

use posse_sandbox::ProcessOutcome;

/// Texts, in lower case, with which programs report a read-only file system (`EROFS`): a path outside of
/// the workspace, or a protected file.
const READ_ONLY: [&str; 3] = ["read-only file system", "erofs", "os error 30"];

/// Texts, in lower case, with which programs report that a name cannot be replaced because it is
/// mounted (`EBUSY`): a protected file, which many programs change by renaming a new one over it.
const BUSY: [&str; 3] = ["device or resource busy", "ebusy", "os error 16"];

const OUTSIDE: &str = "the sandbox lets commands change files below the working directory, other roots and \
                       $TMPDIR alone; the user can add a folder with `--add-dir DIR`; a protected file \
                       needs its path in `unprotect`";

const PROTECTED: &str = "a protected file, such as .git/config, cannot be replaced; with its path in \
                         `unprotect` the user is asked. Part of the command may have worked";

/// Notes about the output of an ended command. None unless it may write in the workspace and is confined
/// by mounts (`may_write`).
pub(super) fn notes(outcome: &ProcessOutcome, may_write: bool) -> impl Iterator<Item = String> {
    let says = |signs: &[&str]| {
        may_write
            && [&outcome.output.head, &outcome.output.tail].into_iter().any(|bytes| {
                let text = String::from_utf8_lossy(bytes).to_lowercase();
                signs.iter().any(|sign| text.contains(sign))
            })
    };
    let found = [(says(&READ_ONLY), OUTSIDE), (says(&BUSY), PROTECTED)];
    found.into_iter().filter(|(said, _)| *said).map(|(_, note)| note.to_owned())
}
