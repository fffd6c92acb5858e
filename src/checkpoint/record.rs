//! Records of checkpoints: one JSON file for each, in the folder `records` of the store.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use posse_base::failure::printable;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum number of names of files that were left out for one reason.
const NAMES_MAX: usize = 20;

/// Maximum number of secret files that are known by the hashes of their paths.
const SECRETS_MAX: usize = 20_000;

/// Maximum size of a record in bytes.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// Maximum number of characters of the title of a checkpoint.
const TITLE_CHARS_MAX: usize = 200;

/// Event before which a checkpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Trigger {
    /// The first effect after a prompt, or a call of the user.
    Prompt,
    /// The restoration of another checkpoint.
    Restore {
        /// Id of the restored checkpoint.
        checkpoint: u64,
    },
}

/// Files that a checkpoint does not contain, by reason. Names are paths relative to their root, at
/// most 20 for each reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeftOut {
    /// Number of secret files.
    pub secrets: usize,
    /// Hashes of the paths of secret files, at most 20,000. Records of earlier versions have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secret_hashes: Vec<u64>,
    /// Number of files that are larger than the limit.
    pub large: usize,
    /// Some of the files that are larger than the limit.
    pub large_names: Vec<String>,
    /// Number of files and folders that cannot be read.
    pub unreadable: usize,
    /// Some of the files and folders that cannot be read.
    pub unreadable_names: Vec<String>,
    /// Number of pipes, sockets and devices.
    pub special: usize,
    /// Number of files beyond the maximum number of files.
    pub beyond_limit: usize,
    /// Repositories whose objects are not stored, with the reason.
    pub repositories: Vec<String>,
}

impl LeftOut {
    pub(crate) fn secret(&mut self, path: &[u8]) {
        self.secrets += 1;
        if self.secret_hashes.len() < SECRETS_MAX {
            self.secret_hashes.push(path_hash(path));
        }
    }

    pub(crate) fn large(&mut self, path: &[u8]) {
        self.large += 1;
        add(&mut self.large_names, path);
    }

    pub(crate) fn unreadable(&mut self, path: &[u8]) {
        self.unreadable += 1;
        add(&mut self.unreadable_names, path);
    }

    /// True if a file at `path` may have existed although the checkpoint does not contain it: it was
    /// taken for a secret; it, or a folder above it, could not be read or was too large; or not all
    /// files were stored.
    pub(crate) fn may_contain(&self, path: &[u8]) -> bool {
        if self.secrets > self.secret_hashes.len() || self.secret_hashes.contains(&path_hash(path))
        {
            return true;
        }
        let path = printable(&String::from_utf8_lossy(path));
        let is_below = |name: &String| {
            let rest = path.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || name.is_empty())
        };
        self.beyond_limit > 0
            || self.unreadable > self.unreadable_names.len()
            || self.unreadable_names.iter().chain(&self.large_names).any(is_below)
    }

    pub(crate) fn add(&mut self, other: LeftOut) {
        self.secrets += other.secrets;
        self.secret_hashes.extend(other.secret_hashes);
        self.large += other.large;
        self.unreadable += other.unreadable;
        self.special += other.special;
        self.beyond_limit += other.beyond_limit;
        self.large_names.extend(other.large_names);
        self.unreadable_names.extend(other.unreadable_names);
        self.repositories.extend(other.repositories);
    }

    pub(crate) fn sort(&mut self) {
        self.secret_hashes.truncate(SECRETS_MAX);
        for names in [&mut self.large_names, &mut self.unreadable_names] {
            names.sort();
            names.truncate(NAMES_MAX);
        }
    }

    /// The same for lists, without the hashes, which only a restore needs.
    #[must_use]
    pub fn without_hashes(&self) -> LeftOut {
        LeftOut { secret_hashes: Vec::new(), ..self.clone() }
    }

    /// Text for a person, such as `2 secrets, 1 file over the size limit (a.bin)`. Empty if nothing
    /// was left out except pipes, sockets and devices.
    pub fn describe(&self) -> String {
        let named = |count: usize, names: &[String], one: &str, several: &str| {
            if count == 0 {
                return None;
            }
            let mut text = format!("{count} {}", if count == 1 { one } else { several });
            if !names.is_empty() {
                let more = if count > names.len() { ", ..." } else { "" };
                text.extend([" (", &names.join(", "), more, ")"]);
            }
            Some(text)
        };
        let parts = [
            named(self.secrets, &[], "secret file", "secret files"),
            named(
                self.large,
                &self.large_names,
                "file over the size limit",
                "files over the size limit",
            ),
            named(self.unreadable, &self.unreadable_names, "unreadable path", "unreadable paths"),
            named(self.beyond_limit, &[], "file beyond the limit", "files beyond the limit"),
        ];
        let mut parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.extend(self.repositories.iter().cloned());
        parts.join(", ")
    }
}

/// Beginning of the SHA-256 of a path.
fn path_hash(path: &[u8]) -> u64 {
    let hash = <[u8; 32]>::from(Sha256::digest(path));
    hash.first_chunk().map_or(0, |beginning| u64::from_be_bytes(*beginning))
}

fn add(names: &mut Vec<String>, path: &[u8]) {
    if names.len() < NAMES_MAX {
        names.push(printable(&String::from_utf8_lossy(path)));
    }
}

/// State of the workspace in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredState {
    pub(crate) commit: String,
    pub(crate) tree: String,
}

/// Root of the workspace, and its folder name in the trees of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRoot {
    pub(crate) path: String,
    pub(crate) key: String,
}

/// A checkpoint: the state of the workspace at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Number of the checkpoint in its project, from 1.
    pub id: u64,
    /// Id of the session.
    pub session: String,
    /// Invocation id of the run or call before whose first effect the checkpoint was made.
    pub invocation: String,
    /// Event before which the checkpoint was made.
    pub trigger: Trigger,
    /// Beginning of the prompt, or a description of the call.
    pub title: String,
    /// Time in milliseconds since 1970.
    pub taken_ms: u64,
    /// Number of files.
    pub files: usize,
    /// Number of bytes of all files.
    pub bytes: u64,
    /// Files that the checkpoint does not contain.
    pub left_out: LeftOut,
    pub(crate) roots: Vec<StoredRoot>,
    pub(crate) state: StoredState,
    /// State after the last effect of the run. `None` until it has ended, or without effects.
    #[serde(default)]
    pub(crate) after: Option<StoredState>,
    /// True if files were deleted or replaced without a question because this checkpoint can bring
    /// them back: it is removed for its age only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) holds_deletions: bool,
}

impl Checkpoint {
    /// True if the state after the effects of the run is known.
    pub fn is_finished(&self) -> bool {
        self.after.is_some()
    }

    /// True if both checkpoints were made before effects of the same run.
    pub(crate) fn is_of_same_run(&self, other: &Checkpoint) -> bool {
        let is_run = |one: &Checkpoint| one.trigger == Trigger::Prompt;
        is_run(self) && is_run(other) && self.invocation == other.invocation
    }

    /// Folders that the checkpoint contains, the working directory first.
    pub fn roots(&self) -> Vec<std::path::PathBuf> {
        self.roots.iter().map(|root| root.path.clone().into()).collect()
    }

    /// True unless the state after the effects is known to be the same.
    pub(crate) fn has_changes(&self) -> bool {
        self.after.as_ref().is_none_or(|after| after.tree != self.state.tree)
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let (file, unfinished) = (name(folder, self.id), folder.join("unfinished"));
        let options = || {
            let mut options = fs::File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            options
        };
        let written = options().open(&unfinished)?;
        serde_json::to_writer(io::BufWriter::new(written), self)?;
        fs::rename(unfinished, file)
    }

    pub(crate) fn remove(&self, folder: &Path) -> io::Result<()> {
        fs::remove_file(name(folder, self.id))
    }
}

fn name(folder: &Path, id: u64) -> std::path::PathBuf {
    folder.join(format!("{id}.json"))
}

/// The title of a checkpoint: the first line of `text` that is not empty, shortened.
pub(crate) fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    printable(&line.chars().take(TITLE_CHARS_MAX).collect::<String>())
}

/// Reads all records of the folder, sorted by id. Damaged ones are left out.
pub(crate) fn read_all(folder: &Path) -> io::Result<Vec<Checkpoint>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            records.extend(read(&path));
        }
    }
    records.sort_by_key(|record: &Checkpoint| record.id);
    Ok(records)
}

fn read(path: &Path) -> Option<Checkpoint> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let record: Checkpoint = serde_json::from_slice(&bytes).ok()?;
    let named = path.file_stem()?.to_str()?.parse() == Ok(record.id);
    named.then_some(record)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn checkpoint(id: u64) -> Checkpoint {
        Checkpoint {
            id,
            session: "s".to_owned(),
            invocation: "i".to_owned(),
            trigger: Trigger::Prompt,
            title: "t".to_owned(),
            taken_ms: 1000 * id,
            files: 1,
            bytes: 10,
            left_out: LeftOut::default(),
            roots: vec![StoredRoot { path: "/w".to_owned(), key: "k".to_owned() }],
            state: StoredState { commit: format!("c{id}"), tree: format!("t{id}") },
            after: None,
            holds_deletions: false,
        }
    }

    #[test]
    fn records_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for id in [10, 2, 1] {
            checkpoint(id).write(dir.path()).unwrap();
        }
        fs::write(dir.path().join("3.json"), "{").unwrap();
        fs::copy(dir.path().join("1.json"), dir.path().join("4.json")).unwrap();
        let ids: Vec<u64> =
            read_all(dir.path()).unwrap().into_iter().map(|record| record.id).collect();
        assert_eq!(ids, [1, 2, 10]);
        checkpoint(2).remove(dir.path()).unwrap();
        assert_eq!(read_all(dir.path()).unwrap().len(), 2);
        assert_eq!(read_all(&dir.path().join("none")).unwrap(), []);
    }

    #[test]
    fn secrets_are_known_by_their_paths() {
        let mut left_out = LeftOut::default();
        left_out.secret(b"a/x.pem");
        let may = |left_out: &LeftOut, path: &str| left_out.may_contain(path.as_bytes());
        assert!(may(&left_out, "a/x.pem") && !may(&left_out, "a/x") && !may(&left_out, "x.pem"));
        let mut all = LeftOut::default();
        all.add(left_out.clone());
        assert!(may(&all, "a/x.pem") && !may(&all, "a/x"));
        (0..SECRETS_MAX).for_each(|_| all.secret(b"b/y.pem"));
        all.sort();
        // One of them is not known.
        assert!(may(&all, "a/x") && all.secrets == SECRETS_MAX + 1);
        let text = serde_json::to_string(&left_out).unwrap();
        assert!(!text.contains("x.pem"), "{text}");
        assert_eq!(serde_json::from_str::<LeftOut>(&text).unwrap(), left_out);
        // A record of an earlier version does not tell which files were secrets.
        let old: LeftOut = serde_json::from_str(r#"{"secrets":1}"#).unwrap();
        assert!(may(&old, "a/x"));
        let old: LeftOut = serde_json::from_str(r#"{"secrets":0}"#).unwrap();
        assert!(!may(&old, "a/x"));
        let listed = serde_json::to_value(left_out.without_hashes()).unwrap();
        assert_eq!((&listed["secrets"], listed.get("secretHashes")), (&1.into(), None));
    }

    #[test]
    fn a_record_with_the_most_secrets_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = checkpoint(1);
        for number in 0..2 * SECRETS_MAX {
            record.left_out.secret(number.to_string().as_bytes());
        }
        record.write(dir.path()).unwrap();
        assert_eq!(read_all(dir.path()).unwrap(), [record]);
    }

    #[test]
    fn what_is_left_out_is_described() {
        let mut left_out = LeftOut { secrets: 2, special: 9, ..LeftOut::default() };
        left_out.large(b"a\x1b.bin");
        assert_eq!(
            left_out.describe(),
            "2 secret files, 1 file over the size limit (a\\u{1b}.bin)"
        );
        for number in 0..30 {
            left_out.large(format!("{number}").as_bytes());
        }
        assert_eq!((left_out.large, left_out.large_names.len()), (31, NAMES_MAX));
        assert!(left_out.describe().contains(", ...)"));
        assert_eq!(LeftOut::default().describe(), "");
        assert_eq!(title("\n  first\u{1b}[2J line \nsecond"), "first\\u{1b}[2J line");
    }
}
