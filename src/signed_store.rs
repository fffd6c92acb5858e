//! Signed store for files that grant authority: they are used only if owner, permissions and
//! signature show no change by another program. A program of the same user that reads the key can
//! forge them (ADR 0009).
//!
//! The files are in `authority/` of the state directory (mode 0700, files 0600). The last line of
//! each file is an HMAC over the name of the file and the text before; the key is next to it. A
//! file with another owner, other permissions, several hard links, or another hash is not used, and
//! neither changed nor removed. Changes are made under a lock, in a new file that replaces the old
//! one.

mod folder;
mod hmac;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::failure::{ErrorCode, Exit, Failure};
use crate::hex::hex;

use folder::StoreFolder;

/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// Name of the folder in the state directory.
const FOLDER: &str = "authority";
const KEY: &str = "key";
const KEY_BYTES: usize = 32;
const LOCK: &str = "lock";
/// Maximum wait for the lock, which is held for milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// Beginning of the last line of a file, before the HMAC in hexadecimal.
const SIGNATURE: &str = "hmac-sha256:";

/// Signed store in one state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedStore {
    state: PathBuf,
}

/// Stamp of a file: device, inode, size and times. A changed file has another stamp. `None`: the
/// file does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStamp(Option<(u64, u64, u64, i64, i64, i64, i64)>);

/// Verified file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignedFile {
    /// Text without the signature. `None` if the file does not exist.
    pub text: Option<String>,
    /// Stamp of the file when it was read.
    pub stamp: FileStamp,
}

/// Error: a file or the folder of the store is not used, because another program may have changed
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TamperError {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Problem, such as `others can read or change it (mode 0666)`.
    pub what: String,
    /// Next step of the user.
    pub fix: String,
}

impl TamperError {
    /// Converts the error to a user-visible failure.
    pub fn failure(self) -> Failure {
        let what = format!("refusing to trust {}: {}", self.path.display(), self.what);
        Failure::new(ErrorCode::FileNotTrusted, Exit::Configuration, what).fix(self.fix)
    }

    /// Formats the error in one line.
    pub fn line(&self) -> String {
        let path = self.path.display();
        format!("CFG010: refusing to trust {path}: {}; fix: {}", self.what, self.fix)
    }
}

impl SignedStore {
    /// Creates the store of the state directory `state`. Nothing is read or created yet.
    pub fn new(state: impl Into<PathBuf>) -> SignedStore {
        SignedStore { state: state.into() }
    }

    /// Path of the file `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn folder(&self) -> PathBuf {
        self.state.join(FOLDER)
    }

    fn make_folder(&self) -> Result<StoreFolder, Failure> {
        StoreFolder::make(&self.state, &self.folder()).map_err(TamperError::failure)
    }

    /// Returns the current stamp of a file, by one system call and without verification.
    pub fn stamp(&self, name: &str) -> FileStamp {
        let metadata = self.path(name).symlink_metadata();
        FileStamp(metadata.ok().map(|found| folder::stamp(&found)))
    }

    /// Reads and verifies a file. A missing file is no error: its `text` is `None`.
    pub fn read(&self, name: &str) -> Result<SignedFile, TamperError> {
        let Some(folder) = StoreFolder::open(&self.state, &self.folder())? else {
            return Ok(SignedFile::default());
        };
        let stamp = self.stamp(name);
        let Some(text) = folder.read(name, BYTES_MAX)? else {
            return Ok(SignedFile { text: None, stamp });
        };
        let tampered = |what: &str| self.tampered(name, what);
        let key = self.key(&folder)?;
        let key = key.ok_or_else(|| tampered("the key that it was signed with is gone"))?;
        let text = String::from_utf8(text).map_err(|_| tampered("it is damaged"))?;
        let body = verified(&key, name, &text).ok_or_else(|| {
            tampered("it was changed by something other than posse, or is damaged")
        })?;
        Ok(SignedFile { text: Some(body.to_owned()), stamp })
    }

    /// Changes a file under a lock; creates the file, its folder and the key if they do not exist.
    /// `change` receives the verified text, or `None` if the file does not exist, and returns the
    /// new text, or `None` to leave the file. Returns the stamp of the file, after a change is
    /// synced to disk. Fails if the file fails verification, or if the lock is not free within five
    /// seconds.
    pub fn update(
        &self,
        name: &str,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, Failure>,
    ) -> Result<FileStamp, Failure> {
        let folder = self.make_folder()?;
        let _lock = self.lock(&folder)?;
        let SignedFile { text, stamp } = self.read(name).map_err(TamperError::failure)?;
        let Some(text) = change(text.as_deref())? else { return Ok(stamp) };
        let key = match self.key(&folder).map_err(TamperError::failure)? {
            Some(key) => key,
            None => self.new_key(&folder)?,
        };
        let signed_text = signed(&key, name, &text);
        folder
            .replace(name, signed_text.as_bytes())
            .map_err(|error| self.unwritable(name, &error))?;
        Ok(self.stamp(name))
    }

    /// Moves a file aside by appending `.suffix` to its name, so that a new file can be created.
    /// Meant for a file that failed verification, which is not checked here. Renames an invalid key
    /// in the same way. Returns the new path of the file.
    pub fn set_aside(&self, name: &str, suffix: &str) -> Result<PathBuf, Failure> {
        let folder = self.make_folder()?;
        let _lock = self.lock(&folder)?;
        let aside = format!("{name}.{suffix}");
        folder.rename(name, &aside).map_err(|error| self.unwritable(name, &error))?;
        // With an invalid key, the next file would fail verification too.
        if self.key(&folder).is_err() {
            let aside = format!("{KEY}.{suffix}");
            folder.rename(KEY, &aside).map_err(|error| self.unwritable(KEY, &error))?;
        }
        Ok(self.path(&aside))
    }

    fn key(&self, folder: &StoreFolder) -> Result<Option<Vec<u8>>, TamperError> {
        match folder.read(KEY, KEY_BYTES as u64 + 1)? {
            Some(key) if key.len() != KEY_BYTES => Err(self.tampered(KEY, "it is damaged")),
            key => Ok(key),
        }
    }

    fn new_key(&self, folder: &StoreFolder) -> Result<Vec<u8>, Failure> {
        let mut key = vec![0; KEY_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut key))
            .and_then(|()| folder.replace(KEY, &key))
            .map_err(|error| self.unwritable(KEY, &error))?;
        Ok(key)
    }

    fn lock(&self, folder: &StoreFolder) -> Result<File, Failure> {
        let failed = |why: &str| {
            Failure::new(
                ErrorCode::StoreLocked,
                Exit::Session,
                "the files of permissions cannot be locked",
            )
            .at(self.path(LOCK).display().to_string())
            .because(why)
            .fix("try again; if it stays so, see which process holds the file")
        };
        let file = folder.lock_file(LOCK).map_err(|error| failed(&error.to_string()))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(failed("another process holds the lock"));
                }
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(failed(&error.to_string()));
                }
            }
        }
    }

    fn tampered(&self, name: &str, what: &str) -> TamperError {
        let path = self.path(name);
        let command = if name == "trust" { "trust" } else { "grants" };
        let fix = format!(
            "look at what changed it, then `posse {command} clear` moves it aside and starts over"
        );
        TamperError { path, what: what.to_owned(), fix }
    }

    fn unwritable(&self, name: &str, error: &std::io::Error) -> Failure {
        Failure::new(ErrorCode::StoreUnwritable, Exit::Session, "what was decided cannot be stored")
            .at(self.path(name).display().to_string())
            .because(error.to_string())
            .fix("make the state directory writable, or set POSSE_HOME")
    }
}

/// Returns the text with its signature as the last line.
fn signed(key: &[u8], name: &str, text: &str) -> String {
    format!("{text}\n{SIGNATURE}{}\n", hex(&mac(key, name, text)))
}

/// Returns the text before the signature. `None` if the signature is wrong or missing.
fn verified<'t>(key: &[u8], name: &str, signed_text: &'t str) -> Option<&'t str> {
    let (text, last) = signed_text.strip_suffix('\n')?.rsplit_once('\n')?;
    let given = last.strip_prefix(SIGNATURE)?;
    let right = hex(&mac(key, name, text));
    let differ = given.bytes().zip(right.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    (given.len() == right.len() && differ == 0).then_some(text)
}

fn mac(key: &[u8], name: &str, text: &str) -> [u8; 32] {
    hmac::sha256(key, &[name.as_bytes(), b"\0", text.as_bytes()])
}

#[cfg(test)]
mod tests;
