//! Trusted projects, with the exact settings that were trusted.
//!
//! Trust belongs to a folder (real path, device, inode and creation time) and to the bytes of its configuration,
//! agent files and skills: changed ones need new consent. Trust is never inherited, not even by a
//! worktree. It is stored in a signed file of the state directory, beside that of grants.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{ErrorCode, Exit, Failure, printable};
use crate::project::Identity;
use crate::signed_store::{SignedStore, TamperError};

/// Name of the file with trusted projects in the signed store.
pub(crate) const FILE: &str = "trust";
/// Maximum number of trusted projects.
const PROJECTS_MAX: usize = 1000;
/// Maximum bytes of the settings of one project, as JSON. They are stored only to show later
/// changes; larger settings are not stored.
const SETTINGS_BYTES_MAX: usize = 64 << 10;
const VERSION: u32 = 1;

/// A project that is trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trusted {
    /// Identity of the project's folder.
    pub project: Identity,
    /// SHA-256 of the project's configuration file, in hex; empty if it has none.
    pub digest: String,
    /// Time of consent in milliseconds since 1970.
    pub trusted_ms: u64,
    /// Trusted settings by key; empty if too large to store.
    pub settings: BTreeMap<String, Value>,
    /// Names of environment variables whose values the project's providers may receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Trusted agents of the project: SHA-256 of each file, in hex, by the name of the agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, String>,
    /// Trusted skills of the project: SHA-256 of each folder, in hex, by its path below the root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skills: BTreeMap<String, String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TrustFile {
    v: u32,
    projects: Vec<Trusted>,
}

/// Store of trusted projects.
#[derive(Debug, Clone)]
pub struct TrustStore {
    store: SignedStore,
}

impl TrustStore {
    /// The trusted projects in the signed store `store`.
    pub fn new(store: SignedStore) -> TrustStore {
        TrustStore { store }
    }

    /// All trusted projects, in the order in which the user trusted them.
    pub fn all(&self) -> Result<Vec<Trusted>, TamperError> {
        let Some(text) = self.store.read(FILE)?.text else { return Ok(Vec::new()) };
        match serde_json::from_str::<TrustFile>(&text) {
            Ok(stored) if stored.v == VERSION => Ok(stored.projects),
            _ => Err(TamperError {
                path: self.store.path(FILE),
                what: "it was written by another version of posse, or is damaged".to_owned(),
                fix: "`posse trust clear` moves it aside and starts over".to_owned(),
            }),
        }
    }

    /// The stored trust in exactly this folder. `None` if the user has not trusted it.
    pub fn find(&self, project: &Identity) -> Result<Option<Trusted>, TamperError> {
        let all = self.all()?;
        Ok(all.into_iter().find(|trusted| trusted.project.is_still(project, trusted.trusted_ms)))
    }

    /// Stores trust in a project. Replaces all earlier trust in a folder at the same path. Fails if
    /// 1000 other projects are trusted.
    pub fn add(&self, mut trusted: Trusted) -> Result<(), Failure> {
        let size = serde_json::to_string(&trusted.settings).map_or(usize::MAX, |text| text.len());
        if size > SETTINGS_BYTES_MAX {
            trusted.settings = BTreeMap::new();
        }
        self.change(|projects| {
            projects.retain(|known| known.project.path != trusted.project.path);
            if projects.len() >= PROJECTS_MAX {
                let what = format!("the maximum of {PROJECTS_MAX} trusted projects is reached");
                let fix = "`posse trust list` shows them, `posse trust revoke PATH` removes one";
                return Err(Failure::new(ErrorCode::TrustTooMany, Exit::Session, what).fix(fix));
            }
            projects.push(trusted);
            Ok(true)
        })
    }

    /// Revokes trust in the current or a former folder at this path, which must be written as in
    /// [`Identity::path`]. Returns true if there was any.
    pub fn revoke(&self, path: &str) -> Result<bool, Failure> {
        let mut found = false;
        self.change(|projects| {
            let before = projects.len();
            projects.retain(|known| known.project.path != path);
            found = projects.len() < before;
            Ok(found)
        })?;
        Ok(found)
    }

    /// Revokes all trust. Renames a file that cannot be read as valid trust and returns its new
    /// path; empties a valid file and returns `None`.
    pub fn clear(&self, now_ms: u64) -> Result<Option<PathBuf>, Failure> {
        if self.all().is_err() {
            return self.store.set_aside(FILE, &format!("bad-{now_ms}")).map(Some);
        }
        self.change(|projects| {
            projects.clear();
            Ok(true)
        })?;
        Ok(None)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Trusted>) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let changed = self.store.update(FILE, |text| {
            let mut stored = match text {
                None => TrustFile::default(),
                Some(text) => serde_json::from_str(text).map_err(|error| {
                    let what = "the stored trust is damaged";
                    Failure::new(ErrorCode::TrustDamaged, Exit::Session, what)
                        .because(error.to_string())
                        .fix("`posse trust clear` starts over")
                })?,
            };
            stored.v = VERSION;
            let changed = change(&mut stored.projects)?;
            let text = serde_json::to_string_pretty(&stored).unwrap_or_default();
            Ok(changed.then_some(text))
        });
        changed.map(|_| ())
    }
}

/// Lists the settings that differ, sorted by key: a line with `-` for the old value, a line with
/// `+` for the new value; empty if there are none. `shown` formats values.
pub fn difference(
    before: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
    shown: impl Fn(&str, &Value) -> String,
) -> String {
    let mut text = String::new();
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for key in keys.into_iter().filter(|key| before.get(*key) != now.get(*key)) {
        for (sign, settings) in [('-', before), ('+', now)] {
            if let Some(value) = settings.get(key) {
                let line = printable(&format!("{sign} {key} = {}", shown(key, value)));
                // Writing to a string cannot fail.
                let _: std::fmt::Result = writeln!(text, "  {line}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn trusted(folder: &Path, digest: &str) -> Trusted {
        Trusted {
            project: Identity::of(folder).unwrap(),
            digest: digest.to_owned(),
            trusted_ms: 1,
            settings: [("model".to_owned(), json!(digest))].into(),
            variables: Vec::new(),
            agents: BTreeMap::new(),
            skills: BTreeMap::new(),
        }
    }

    #[test]
    fn trust_belongs_to_a_folder_not_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(SignedStore::new(dir.path().join("state")));
        let project = dir.path().join("p");
        fs::create_dir(&project).unwrap();
        let identity = Identity::of(&project).unwrap();
        assert_eq!(trust.find(&identity).unwrap(), None);
        trust.add(trusted(&project, "one")).unwrap();
        assert_eq!(trust.find(&identity).unwrap().unwrap().digest, "one");
        trust.add(trusted(&project, "two")).unwrap();
        assert_eq!(trust.all().unwrap().len(), 1, "trusted anew, not twice");
        // Another folder replaces it.
        fs::rename(&project, dir.path().join("old")).unwrap();
        fs::create_dir(&project).unwrap();
        let other = Identity::of(&project).unwrap();
        assert_eq!(trust.find(&other).unwrap(), None);
        let moved = Identity::of(&dir.path().join("old")).unwrap();
        assert_eq!(trust.find(&moved).unwrap(), None);
        assert!(trust.revoke(&identity.path).unwrap());
        assert!(!trust.revoke(&identity.path).unwrap());
        assert_eq!(trust.all().unwrap(), []);
    }

    #[test]
    fn trust_in_a_folder_does_not_apply_to_a_later_one_with_its_inode_number() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(SignedStore::new(dir.path().join("state")));
        let stored = |birth_ns| {
            let mut trusted = trusted(dir.path(), "one");
            trusted.project.birth_ns = birth_ns;
            trust.add(trusted.clone()).unwrap();
            trusted.project
        };
        let find = |project: &Identity, birth_ns| {
            trust.find(&Identity { birth_ns, ..project.clone() }).unwrap().is_some()
        };
        let project = stored(Some(5));
        assert!(find(&project, Some(5)) && !find(&project, Some(6)) && !find(&project, None));
        // Stored by an earlier version, one millisecond after 1970 began.
        let project = stored(None);
        assert!(find(&project, Some(1_000_000)) && !find(&project, Some(2_000_000)));
    }

    #[test]
    fn trust_file_of_another_owner_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = SignedStore::new(dir.path().join("state"));
        let trust = TrustStore::new(store.clone());
        trust.add(trusted(dir.path(), "one")).unwrap();
        let text = fs::read_to_string(store.path(FILE)).unwrap().replace("one", "two");
        fs::write(store.path(FILE), text).unwrap();
        let identity = Identity::of(dir.path()).unwrap();
        assert!(trust.find(&identity).unwrap_err().line().starts_with("CFG010"));
        assert_eq!(
            trust.add(trusted(dir.path(), "two")).unwrap_err().code,
            ErrorCode::FileNotTrusted
        );
        let aside = trust.clear(7).unwrap().unwrap();
        assert!(fs::read_to_string(aside).unwrap().contains("two"));
        assert_eq!(trust.all().unwrap(), []);
        trust.add(trusted(dir.path(), "three")).unwrap();
        assert_eq!(trust.clear(8).unwrap(), None);
        assert_eq!(trust.all().unwrap(), []);
    }

    #[test]
    fn trust_snapshot_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(SignedStore::new(dir.path().join("state")));
        let mut large = trusted(dir.path(), "one");
        large.settings.insert("permissions".to_owned(), json!("x".repeat(SETTINGS_BYTES_MAX)));
        trust.add(large).unwrap();
        assert!(trust.all().unwrap()[0].settings.is_empty());
    }

    #[test]
    fn changed_project_files_are_shown() {
        let map = |pairs: &[(&str, Value)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
        };
        let before = map(&[("a", json!(1)), ("b", json!("x")), ("c", json!(true))]);
        let now = map(&[("b", json!("y\u{1b}[2J")), ("c", json!(true)), ("d", json!([1]))]);
        let text = difference(&before, &now, |_, value| value.to_string());
        insta::assert_snapshot!(text, @r#"
          - a = 1
          - b = "x"
          + b = "y\u001b[2J"
          + d = [1]
        "#);
    }
}
