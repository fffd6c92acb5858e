//! Findings of a check: changes of protected names, and the reaction to each.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use posse_base::failure::printable;
use serde::Serializer;

/// Number of findings from which a check no longer reports those that it handled. It still handles
/// them, and reports those that are left in place.
const FINDINGS_MAX: usize = 200;

/// Effect of a command on a protected name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Path of the protected name.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Kind of the change that the command made.
    pub what: ProtectedChange,
    /// Reaction of posse to the change.
    pub action: ProtectAction,
    /// Command or commands that can have made the change.
    #[serde(skip_serializing_if = "Whose::is_this")]
    pub whose: Whose,
}

/// Attribution of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Whose {
    /// The command whose check reports the finding. No other command ran at the same time.
    #[default]
    This,
    /// One of several commands that ran at the same time.
    AnyOfSeveral,
    /// An earlier command, whose change was not reported when that command ended.
    Earlier,
}

impl Whose {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_this(&self) -> bool {
        *self == Whose::This
    }

    /// Text behind the change.
    fn described(self) -> &'static str {
        match self {
            Whose::This => "",
            Whose::AnyOfSeveral => {
                " while this command ran, and others did, so it may be the work of any"
            }
            Whose::Earlier => " while an earlier command ran",
        }
    }
}

/// Kind of a change of a protected name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectedChange {
    /// A protected file, link or folder was created.
    Created,
    /// A protected file, link or folder was changed.
    Changed,
    /// A protected file, link or folder was removed, renamed or moved away.
    Removed,
    /// A repository is missing, and another file or folder is at its path.
    Replaced,
    /// A git file got settings that may run programs. Contains their names; empty if the file cannot
    /// be parsed.
    Settings(Vec<String>),
    /// The list of steps of an interrupted operation of git got steps that run commands, or that it
    /// did not have before the command. Contains their lines.
    Steps(Vec<String>),
    /// A `.git` file or a `commondir` was created or changed, and refers git to a folder that is
    /// not scanned, or to a repository that may run programs; or a link was put on the way from such
    /// a file, or to a work tree that settings of git name.
    LeadsOutside,
    /// A protected file was created together with the new work tree that contains it.
    CameWithRepository,
    /// The scan of this root was incomplete, because a limit was exceeded or a folder could not be
    /// read, so changes may be missed.
    TooMuch,
    /// An index of git was created or changed, and has this path, to which git would write although
    /// it is outside the work tree or in a `.git`. Empty if the file is not an index.
    IndexPath(String),
    /// A protected file got another hard link, under which a program may write it.
    Linked,
    /// The folder with the state of an operation of git, such as a rebase, was created or changed:
    /// continuing or aborting the operation checks out commits that the command named.
    Interrupted,
    /// References that replace objects of git by others were added. Contains their lines; empty if
    /// the file cannot be read.
    Replacements(Vec<String>),
    /// The `info/exclude` of a new repository was created or changed, and has patterns: git and
    /// checkpoints leave out the files that match.
    Excludes,
    /// A protected file has changed, or was created, since a command started that was not checked,
    /// because posse ended before.
    Unchecked,
    /// A link was created or changed, and may lead to another place later, or in another process: what
    /// is there was not checked.
    UncertainLink,
    /// A program was created or changed in a folder of the search path (`PATH`), and hides another one
    /// of the same name.
    HidesProgram,
    /// Files below this root kept changing during the check, so changes may be missed.
    KeepsChanging,
}

/// Reaction to a change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectAction {
    /// The file or folder was moved to this path in the quarantine. A path without a folder is its
    /// new name in the old folder, because the quarantine could not be used.
    MovedAside(#[serde(serialize_with = "as_text")] PathBuf),
    /// The earlier state was restored. The version that the command left is at this path, as in
    /// [`ProtectAction::MovedAside`]; `None` if it left none.
    Restored(#[serde(serialize_with = "as_optional_text")] Option<PathBuf>),
    /// The dangerous settings or steps were removed from the file; the text that the command left
    /// is at this path.
    Cleaned(#[serde(serialize_with = "as_text")] PathBuf),
    /// The change was left as the command made it.
    Left,
    /// The change could not be handled, for this reason.
    Failed(String),
}

/// Serializes a path as text. Bytes that are not UTF-8 become replacement characters: `serde` would
/// refuse the path, and a command chooses its names.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

#[expect(clippy::ref_option, reason = "serde calls it")]
fn as_optional_text<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => as_text(path, serializer),
        None => serializer.serialize_none(),
    }
}

impl Finding {
    /// Creates the finding of a change that the only running command made.
    pub fn new(path: PathBuf, what: ProtectedChange, action: ProtectAction) -> Finding {
        Finding { path, what, action, whose: Whose::This }
    }

    /// Text of a finding to which posse did not react. `path`: the path as it is shown.
    fn without_action(&self, path: &str) -> String {
        match self.what {
            ProtectedChange::TooMuch => format!(
                "{path} has more folders than are scanned, or folders that cannot be read: files \
                 that a command creates in the rest are not found"
            ),
            ProtectedChange::UncertainLink => format!(
                "{path} is a new link that may lead elsewhere later, or in another program: {}",
                self.advice()
            ),
            ProtectedChange::HidesProgram => format!(
                "{path} is a new or changed program in a folder of your PATH, and hides another one \
                 of that name: {}",
                self.advice()
            ),
            ProtectedChange::KeepsChanging => format!(
                "{path} kept changing while it was checked: the last protected files that were \
                 created in it may not be found"
            ),
            _ => format!(
                "{path} has changed since a command started that was not checked, because posse \
                 ended before: {}",
                self.advice()
            ),
        }
    }

    /// Returns what to do about a file that was left.
    fn advice(&self) -> &'static str {
        match self.what {
            ProtectedChange::Interrupted => "look at its commits before you continue or abort it",
            ProtectedChange::Excludes => "look at them before you rely on a checkpoint",
            ProtectedChange::UncertainLink => {
                "look where it leads before a program is started in that folder"
            }
            ProtectedChange::HidesProgram => "check it before you run that name in your shell",
            _ => "check it before a program is started in that folder",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &Path| printable(&path.display().to_string());
        let path = shown(&self.path);
        let settings;
        let change = match &self.what {
            ProtectedChange::Created => "is protected and was created",
            ProtectedChange::Changed => "is protected and was changed",
            ProtectedChange::Removed => "is protected and was removed or renamed",
            ProtectedChange::Replaced => "is protected and another repository is in its place",
            ProtectedChange::Settings(names) if names.is_empty() => {
                "is not understood as settings of git and may run programs"
            }
            ProtectedChange::Settings(names) => {
                let names = names.join(", ");
                settings = format!("got settings that may run programs ({})", printable(&names));
                &settings
            }
            ProtectedChange::IndexPath(path) if path.is_empty() => {
                "was changed and is not understood as an index of git"
            }
            ProtectedChange::IndexPath(path) => {
                settings = format!("got a path to which git must not write ({})", printable(path));
                &settings
            }
            ProtectedChange::Linked => "is protected and got another name by a hard link",
            ProtectedChange::Interrupted => "is an operation of git that a command left unfinished",
            ProtectedChange::Replacements(lines) => {
                settings = format!("got replacing references ({})", printable(&lines.join(", ")));
                &settings
            }
            ProtectedChange::Steps(lines) => {
                let lines = printable(&lines.join(", "));
                settings = format!("got steps that the operation did not have ({lines})");
                &settings
            }
            ProtectedChange::LeadsOutside => "leads git to a place outside the workspace",
            ProtectedChange::Excludes => "got patterns of files that git and checkpoints leave out",
            ProtectedChange::CameWithRepository => "is protected and came with a new work tree",
            ProtectedChange::Unchecked
            | ProtectedChange::TooMuch
            | ProtectedChange::UncertainLink
            | ProtectedChange::HidesProgram
            | ProtectedChange::KeepsChanging => return f.write_str(&self.without_action(&path)),
        };
        write!(f, "{path} {change}{}", self.whose.described())?;
        match &self.action {
            ProtectAction::MovedAside(to) => write!(f, "; it was moved to {}", shown(to)),
            ProtectAction::Restored(Some(to)) => {
                write!(f, "; it was put back as it was, and what replaced it is in {}", shown(to))
            }
            ProtectAction::Restored(None) => write!(f, "; it was put back as it was"),
            ProtectAction::Cleaned(to) => {
                write!(f, "; they were taken out, and the whole text is in {}", shown(to))
            }
            ProtectAction::Left => write!(f, "; it was left: {}", self.advice()),
            ProtectAction::Failed(why) => write!(f, "; it could not be put right: {why}"),
        }
    }
}

pub(super) fn failed(errno: Errno) -> ProtectAction {
    ProtectAction::Failed(errno.desc().to_owned())
}

/// Adds `found` to `findings`, without duplicates. Of those that were handled, only as long as there
/// are fewer than [`FINDINGS_MAX`].
pub(super) fn add_findings(findings: &mut Vec<Finding>, found: Vec<Finding>) {
    let stays = |finding: &Finding| {
        matches!(finding.action, ProtectAction::Left | ProtectAction::Failed(_))
    };
    let (stays, handled): (Vec<_>, Vec<_>) = found.into_iter().partition(stays);
    for finding in stays {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    for finding in handled {
        if findings.len() < FINDINGS_MAX && !findings.contains(&finding) {
            findings.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn paths_of_any_bytes_are_serialized() {
        let path = PathBuf::from(OsStr::from_bytes(b"r\xff/.envrc"));
        for action in [
            ProtectAction::MovedAside(path.clone()),
            ProtectAction::Restored(Some(path.clone())),
            ProtectAction::Restored(None),
            ProtectAction::Cleaned(path.clone()),
            ProtectAction::Left,
        ] {
            let finding = Finding::new(path.clone(), ProtectedChange::Created, action);
            let written = serde_json::to_value(&finding).unwrap();
            assert_eq!(written["path"], "r\u{fffd}/.envrc");
        }
    }
}
