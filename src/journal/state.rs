//! Location of sessions in the user's state directory, and lookup by id.
//!
//! The folder of a session is `projects/<slug>/sessions/<id>/`. Folder names are the only index:
//! every folder is listed, even if its journal is unreadable.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use posse_actors::conversation::SessionId;
use posse_base::failure::{ErrorCode, Exit, Failure};
use sha2::{Digest, Sha256};

use crate::scan::if_exists;
use crate::session_state::last_change;
use crate::summary::{SessionSummary, WHOLE_BYTES_TOTAL_MAX};

/// Maximum characters of the readable part of a project slug.
const NAME_MAX: usize = 40;
/// Maximum number of session ids that an error suggests.
const NEAREST_MAX: usize = 5;

/// State directory of the user, in which posse stores the sessions of all projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

/// Selection of sessions by project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within<'a> {
    /// Sessions of all projects.
    Everywhere,
    /// Sessions of the project in this directory.
    Project(&'a Path),
}

/// Id and location of a session in the state directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredSession {
    /// Session id.
    pub id: String,
    /// Slug of the project: the name of its folder below `projects/`.
    pub project: String,
    /// Folder of the session.
    pub dir: PathBuf,
}

impl StoredSession {
    /// Creates an error about this session. Its text is the session id followed by `what`.
    pub(crate) fn failure(&self, code: ErrorCode, exit: Exit, what: &str) -> Failure {
        let what = format!("session `{}` {what}", self.id);
        Failure::new(code, exit, what).at(self.dir.display().to_string())
    }
}

impl StateDir {
    /// The state directory at `root`.
    pub fn new(root: impl Into<PathBuf>) -> StateDir {
        StateDir { root: root.into() }
    }

    /// Path of the state directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of all data that posse stores for the project in `directory`.
    pub fn project_dir(&self, directory: &Path) -> PathBuf {
        self.root.join("projects").join(project_slug(directory))
    }

    /// Folder of session `id` of the project in `directory`. It need not exist.
    pub fn session_dir(&self, directory: &Path, id: &SessionId) -> PathBuf {
        self.project_dir(directory).join("sessions").join(id.as_str())
    }

    /// Lists the sessions in `within`, the most recently started first; empty if there are none.
    /// Reads only folder names; session ids sort by start time. Fails if a folder cannot be read.
    pub fn sessions(&self, within: Within<'_>) -> Result<Vec<StoredSession>, Failure> {
        let projects = match within {
            Within::Project(directory) => vec![project_slug(directory)],
            Within::Everywhere => names(&self.root.join("projects"))?,
        };
        let mut found = Vec::new();
        for project in projects {
            let sessions = self.root.join("projects").join(&project).join("sessions");
            for id in names(&sessions)? {
                found.push(StoredSession { dir: sessions.join(&id), project: project.clone(), id });
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Lists the sessions in `within`, the one with the latest write to its journal first. Lists,
    /// selectors and "the newest session" use this order.
    pub fn by_use(&self, within: Within<'_>) -> Result<Vec<StoredSession>, Failure> {
        let mut found = self.sessions(within)?;
        found.sort_by_cached_key(|found| std::cmp::Reverse(last_change(&found.dir)));
        Ok(found)
    }

    /// Reads the summaries of the sessions in `within`, in the order of [`StateDir::by_use`].
    pub fn summaries(&self, within: Within<'_>) -> Result<Vec<SessionSummary>, Failure> {
        let mut room = WHOLE_BYTES_TOTAL_MAX;
        let of = |found| SessionSummary::within(found, &mut room);
        Ok(self.by_use(within)?.into_iter().map(of).collect())
    }

    /// Finds the session in `within` whose id is `text`, or the only one whose id begins with
    /// `text`. It is an error if `text` is empty, or if no session or several sessions match; the
    /// error suggests ids.
    pub fn find(&self, within: Within<'_>, text: &str) -> Result<StoredSession, Failure> {
        let mut sessions = self.sessions(within)?;
        if let Some(at) = sessions.iter().position(|session| session.id == text) {
            return Ok(sessions.swap_remove(at));
        }
        let matching: Vec<&StoredSession> =
            sessions.iter().filter(|session| session.id.starts_with(text)).collect();
        if let ([only], false) = (&matching[..], text.is_empty()) {
            return Ok((*only).clone());
        }
        let (code, what, offered) = match matching.len() {
            0 => {
                let what = format!("there is no session `{text}`");
                (ErrorCode::SessionNotFound, what, similar_ids(&sessions, text))
            }
            count => {
                let what = format!("`{text}` matches {count} sessions");
                (ErrorCode::SessionAmbiguous, what, ids(&matching))
            }
        };
        let failure = Failure::new(code, Exit::Session, what);
        Err(if offered.is_empty() {
            failure.fix("`posse sessions list --all` shows every session")
        } else {
            failure.fix(format!("use one of {offered}"))
        })
    }
}

/// Formats the session ids that share the longest prefix with `text`, at most `NEAREST_MAX`.
fn similar_ids(sessions: &[StoredSession], text: &str) -> String {
    let mut ranked: Vec<&StoredSession> = sessions.iter().collect();
    ranked.sort_by_key(|session| {
        let shared = session.id.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        std::cmp::Reverse(shared)
    });
    ids(&ranked)
}

fn ids(sessions: &[&StoredSession]) -> String {
    let ids: Vec<String> =
        sessions.iter().take(NEAREST_MAX).map(|session| format!("`{}`", session.id)).collect();
    ids.join(", ")
}

/// Names of the directories in `parent`, without symbolic links and names that are not UTF-8; empty
/// if `parent` does not exist.
fn names(parent: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error: io::Error| {
        let what = "cannot list the stored sessions";
        Failure::new(ErrorCode::SessionsUnreadable, Exit::Session, what)
            .at(parent.display().to_string())
            .because(error.to_string())
    };
    let entries = if_exists(fs::read_dir(parent)).map_err(unreadable)?;
    let mut names = Vec::new();
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(unreadable)?;
        // A link could lead out of the state directory.
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

/// Computes the slug of the project in `directory`: the readable name of the directory and a hash
/// of its path, with symbolic links resolved if the directory exists.
pub fn project_slug(directory: &Path) -> String {
    let path = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let name = path.file_name().map_or_else(|| "root".into(), OsStr::to_string_lossy);
    let readable: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' })
        .take(NAME_MAX)
        .collect();
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    let hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{}-{hash:08x}", readable.trim_matches(|c| c == '.' || c == '-'))
}

/// Creates a session id from the start time in UTC and six hex digits of `random`:
/// `20261121-215652-3f9a2c`. `now_ms` is the start time in milliseconds since 1970. Ids sort by
/// start time.
pub fn new_session_id(now_ms: u64, random: u32) -> SessionId {
    let time = i64::try_from(now_ms)
        .ok()
        .and_then(|now| Timestamp::from_millisecond(now).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let digits = time.strftime("%Y%m%d-%H%M%S");
    SessionId::new(format!("{digits}-{:06x}", random & 0x00ff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_slugs_are_readable_and_unique() {
        let slug = |path: &str| project_slug(Path::new(path));
        assert_eq!(slug("/nowhere/my app"), "my-app-55775939");
        assert_ne!(slug("/nowhere/a/x"), slug("/nowhere/b/x"));
        for path in ["/", "/nowhere/..", "/nowhere/\u{1b}[2J", "/nowhere/ああ"] {
            let slug = slug(path);
            let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(slug.chars().all(safe) && slug != ".." && slug.len() >= 8, "{slug}");
        }
    }

    #[test]
    fn ids_sort_by_time() {
        let id = new_session_id(1_795_298_212_000, 0xab3f_9a2c);
        assert_eq!(id.as_str(), "20261121-215652-3f9a2c");
        assert!(new_session_id(1_795_298_213_000, 0) > id);
        assert_eq!(new_session_id(u64::MAX, 1).as_str(), "19700101-000000-000001");
    }

    #[test]
    fn finds_a_session_by_id_or_prefix() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDir::new(home.path());
        assert_eq!(state.sessions(Within::Everywhere).unwrap(), []);
        let (a, b) = (Path::new("/nowhere/a"), Path::new("/nowhere/b"));
        for (project, id) in
            [(a, "20260101-000000-aaaaaa"), (a, "20260102-000000-bbbbbb"), (b, "2027")]
        {
            fs::create_dir_all(state.session_dir(project, &SessionId::new(id))).unwrap();
        }
        let find = |text: &str| {
            let found = state.find(Within::Everywhere, text);
            found.map(|found| found.id).map_err(|failure| failure.to_string())
        };
        assert_eq!(find("20260101-000000-aaaaaa").unwrap(), "20260101-000000-aaaaaa");
        assert_eq!(find("20260102").unwrap(), "20260102-000000-bbbbbb");
        assert_eq!(state.sessions(Within::Project(b)).unwrap().len(), 1);
        insta::assert_snapshot!(find("202601").unwrap_err(), @r"
        error[SES003]: `202601` matches 2 sessions
          fix: use one of `20260102-000000-bbbbbb`, `20260101-000000-aaaaaa`
        ");
        insta::assert_snapshot!(find("../2027").unwrap_err(), @r"
        error[SES002]: there is no session `../2027`
          fix: use one of `2027`, `20260102-000000-bbbbbb`, `20260101-000000-aaaaaa`
        ");
        assert!(find("").is_err());
    }
}
