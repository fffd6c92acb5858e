//! Signed store for files that grant authority: read only if no program but posse can have written
//! them.
//!
//! The files are in `authority/` of the state directory (0700, files 0600). The last line of each
//! is an HMAC over its name and everything before; the key is next to it. A file with another
//! owner, other permissions, several names, or another hash is not used, and neither changed nor
//! removed. Changes are made under a lock, in a new file that replaces the old one.

mod folder;
mod hmac;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::failure::{ErrorCode, Exit, Failure};
use crate::hex::hex;

use folder::StoreFolder;

/// Bytes of a file.
const BYTES_MAX: u64 = 4 << 20;
/// The folder below the state directory.
const FOLDER: &str = "authority";
const KEY: &str = "key";
const KEY_BYTES: usize = 32;
const LOCK: &str = "lock";
/// Maximum wait for the lock, which is held for milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// Prefix of the hash.
const SIGNATURE: &str = "hmac-sha256:";

/// The folder with the files that decide what may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedStore {
    state: PathBuf,
}

/// Identifies a version of a file without reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStamp(Option<(u64, u64, u64, i64, i64, i64, i64)>);

/// A file as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignedFile {
    /// Its text without the signature; `None` if there is no such file.
    pub text: Option<String>,
    /// Version.
    pub stamp: FileStamp,
}

/// Why a file, or the folder, is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TamperError {
    /// The file.
    pub path: PathBuf,
    /// The problem: `can be read or changed by others (mode 0666)`.
    pub what: String,
    /// The fix.
    pub fix: String,
}

impl TamperError {
    /// The error for a person.
    pub fn failure(self) -> Failure {
        let what = format!("refusing to trust {}: {}", self.path.display(), self.what);
        Failure::new(ErrorCode::FileNotTrusted, Exit::Configuration, what).fix(self.fix)
    }

    /// In one line.
    pub fn line(&self) -> String {
        let path = self.path.display();
        format!("CFG010: refusing to trust {path}: {}; fix: {}", self.what, self.fix)
    }
}

impl SignedStore {
    /// The store of this state directory. Nothing is read or created yet.
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

    /// Current version of a file: one system call.
    pub fn stamp(&self, name: &str) -> FileStamp {
        let metadata = self.path(name).symlink_metadata();
        FileStamp(metadata.ok().map(|found| folder::stamp(&found)))
    }

    /// Reads a file, if it can be believed.
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

    /// Changes a file: `change` receives its text and returns the new one, or `None` to keep it.
    /// Runs under a lock; the result is on disk.
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

    /// Moves a file that failed verification aside, so that a new one can begin. Returns its new
    /// path.
    pub fn set_aside(&self, name: &str, suffix: &str) -> Result<PathBuf, Failure> {
        let folder = self.make_folder()?;
        let _lock = self.lock(&folder)?;
        let aside = format!("{name}.{suffix}");
        folder.rename(name, &aside).map_err(|error| self.unwritable(name, &error))?;
        // A key that is not believed would spoil the next file as well.
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

/// The text with its signature as the last line.
fn signed(key: &[u8], name: &str, text: &str) -> String {
    format!("{text}\n{SIGNATURE}{}\n", hex(&mac(key, name, text)))
}

/// The text before the signature, if that is right.
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
