//! Storage of the login: the file `auth.json` of the Codex program, or the keyring. The file is
//! read only if it belongs to the user and its mode gives others no access, and is replaced
//! atomically.
//!
//! A folder of posse beside the file contains the lock and the new file. Folder and file are hidden
//! from tools and sandboxed commands: by name as secrets, or as posse's own if `CODEX_HOME` is set.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::libc;
use nix::unistd::geteuid;
use posse_base::hex::hex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::codex::claims::claims;
use crate::codex::keyring;
use crate::codex::renewal::{Tokens, token};
use crate::codex::{Access, LOG_IN};

/// Maximum size of a login file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Name of posse's folder inside the folder of the Codex program.
const FOLDER: &str = ".posse-login";

/// Maximum wait for a renewal by another process.
const LOCK_WAIT: Duration = Duration::from_secs(45);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Storage of the login in the folder `home` of the Codex program.
#[derive(Debug)]
pub(super) struct Store {
    home: PathBuf,
}

/// Lock that excludes renewals by other processes. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct RenewalLock {
    home: PathBuf,
    _lock: File,
}

/// Destination of a renewed login, prepared before the old tokens are spent. Dropping it removes a
/// new file that was not used.
#[derive(Debug)]
pub(super) struct LoginLocation {
    home: PathBuf,
    /// Temporary file that replaces the login file. `None`: the login is stored in the keyring.
    file: Option<File>,
}

/// Content of a stored login, with all members of its JSON object.
#[derive(Debug)]
pub(super) struct StoredLogin {
    json: Map<String, Value>,
    /// True if it was read from the keyring, false if from the file.
    in_keyring: bool,
}

impl Store {
    pub(super) fn new(home: PathBuf) -> Store {
        Store { home }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.home.join("auth.json")
    }

    /// Reads the login from the file, or, if there is no file, from the keyring. The error states
    /// why the login is unusable, and the fix.
    pub(super) fn read(&self) -> Result<StoredLogin, String> {
        let path = self.file();
        let bytes = match read_own(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.read_keyring(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let text = String::from_utf8(bytes).unwrap_or_default();
        StoredLogin::parse(&text).map_err(|what| format!("{}: {what}", path.display()))
    }

    /// Reads the login from the keyring. The Codex program removes its file when it stores a login
    /// in the keyring. The keyring is therefore read, and unlocked by the user, only if there is no
    /// file.
    fn read_keyring(&self) -> Result<StoredLogin, String> {
        let missing = || {
            let path = self.file();
            format!("there is no {} ({}): {LOG_IN}", path.display(), keyring::ELSEWHERE)
        };
        let text = keyring::read(&self.home)?.ok_or_else(missing)?;
        let found =
            StoredLogin::parse(&text).map_err(|what| format!("the login in the keyring {what}"))?;
        Ok(StoredLogin { in_keyring: true, ..found })
    }

    /// Takes the lock for a renewal; creates its folder if missing. Waits at most [`LOCK_WAIT`] for
    /// another process, then fails.
    pub(super) async fn lock(&self) -> Result<RenewalLock, String> {
        let folder = self.home.join(FOLDER);
        let wrong =
            |error: io::Error| format!("cannot renew the login: {}: {error}", folder.display());
        let lock = open_lock(&folder).map_err(wrong)?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(RenewalLock { home: self.home.clone(), _lock: lock }),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WAIT => {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(
                        "another process has been renewing the login for too long".to_owned()
                    );
                }
                Err(TryLockError::Error(error)) => return Err(wrong(error)),
            }
        }
    }

    /// Returns the installation id of the Codex program. If there is none, returns a UUID computed
    /// from the folder, the host name and the user id.
    pub(super) fn installation_id(&self) -> String {
        let own = read_own(&self.home.join("installation_id")).unwrap_or_default();
        let own = String::from_utf8_lossy(&own).trim().to_owned();
        let is_id = |text: &str| {
            text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        };
        if is_id(&own) {
            return own;
        }
        let mut hash = Sha256::new();
        hash.update(b"posse installation\0");
        hash.update(self.home.as_os_str().as_encoded_bytes());
        hash.update(nix::unistd::gethostname().unwrap_or_default().as_encoded_bytes());
        hash.update(geteuid().as_raw().to_le_bytes());
        let digest = hash.finalize();
        let hex = hex(&digest[..16]);
        // The form of a random UUID (RFC 9562, version 4).
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }
}

impl RenewalLock {
    /// Creates the temporary file for the renewed version of `found`. For a login in the keyring,
    /// checks instead that the keyring can be written, by storing the old value again.
    pub(super) fn create_renewed(&self, found: &StoredLogin) -> Result<LoginLocation, String> {
        if found.in_keyring {
            // A keyring cannot reserve space. If it accepts the old value, it accepts the new one.
            let same = Value::Object(found.json.clone()).to_string();
            keyring::write(&self.home, &same)
                .map_err(|what| format!("cannot renew the login: {what}"))?;
            return Ok(LoginLocation { home: self.home.clone(), file: None });
        }
        let path = self.home.join(FOLDER).join("auth.json");
        // Leftover of a killed process: the lock excludes others.
        fs::remove_file(&path).ok();
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match opened {
            Ok(file) => Ok(LoginLocation { home: self.home.clone(), file: Some(file) }),
            Err(error) => Err(format!("cannot renew the login: {}: {error}", path.display())),
        }
    }
}

impl LoginLocation {
    /// Replaces the stored login by `json`, completely or not at all. An error while syncing the
    /// folder afterwards does not undo it.
    pub(super) fn replace(mut self, json: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return keyring::write(&self.home, json).map_err(io::Error::other);
        };
        file.write_all(json.as_bytes())?;
        file.sync_all()?;
        fs::rename(self.home.join(FOLDER).join("auth.json"), self.home.join("auth.json"))?;
        File::open(&self.home)?.sync_all()
    }
}

impl Drop for LoginLocation {
    fn drop(&mut self) {
        // It is not there any more if it took its place.
        if self.file.is_some() {
            fs::remove_file(self.home.join(FOLDER).join("auth.json")).ok();
        }
    }
}

impl StoredLogin {
    pub(super) fn parse(text: &str) -> Result<StoredLogin, String> {
        // The parser's error could quote the file.
        let Ok(Value::Object(json)) = serde_json::from_str(text) else {
            return Err(format!("is not a login: {LOG_IN}"));
        };
        let found = StoredLogin { json, in_keyring: false };
        if found.token("access_token").is_some() {
            return Ok(found);
        }
        let key = found.json.get("OPENAI_API_KEY").and_then(Value::as_str);
        Err(if key.is_some_and(|key| !key.is_empty()) {
            "has an API key and no ChatGPT login, which are billed differently: log in with `codex \
             login`, or use the provider openai-responses"
                .to_owned()
        } else {
            format!("has no token: {LOG_IN}")
        })
    }

    fn tokens(&self) -> Option<&Map<String, Value>> {
        self.json.get("tokens").and_then(Value::as_object)
    }

    fn token(&self, name: &str) -> Option<SecretString> {
        token(self.tokens()?.get(name))
    }

    pub(super) fn refresh(&self) -> Result<SecretString, String> {
        let missing = || format!("the ChatGPT login cannot be renewed: {LOG_IN}");
        self.token("refresh_token").ok_or_else(missing)
    }

    pub(super) fn secrets(&self) -> Vec<SecretString> {
        ["access_token", "refresh_token", "id_token"]
            .into_iter()
            .filter_map(|name| self.token(name))
            .collect()
    }

    pub(super) fn access(&self) -> Access {
        let token = self.token("access_token").unwrap_or_default();
        let own = claims(token.expose_secret());
        let id = self.token("id_token").map(|id| claims(id.expose_secret())).unwrap_or_default();
        let given = self.tokens().and_then(|tokens| tokens.get("account_id"));
        let given = given.and_then(Value::as_str).filter(|account| !account.is_empty());
        Access {
            token,
            account: given.map(str::to_owned).or(id.account).or(own.account),
            fedramp: id.fedramp || own.fedramp,
            expires: own.expires,
        }
    }

    /// Returns the JSON text of this login with the tokens of `new` and the time `now`. All other
    /// members are unchanged.
    pub(super) fn renewed(&self, new: &Tokens, now: Timestamp) -> String {
        let mut json = self.json.clone();
        let mut tokens = self.tokens().cloned().unwrap_or_default();
        let mut set = |name: &str, token: Option<&SecretString>| {
            if let Some(token) = token {
                tokens.insert(name.to_owned(), token.expose_secret().into());
            }
        };
        set("access_token", Some(&new.access));
        set("refresh_token", new.refresh.as_ref());
        set("id_token", new.id.as_ref());
        json.insert("tokens".to_owned(), Value::Object(tokens));
        json.insert("last_refresh".to_owned(), now.to_string().into());
        serde_json::to_string_pretty(&Value::Object(json)).unwrap_or_default()
    }
}

/// Reads a file that only this user can access. A symbolic link, a file of another user, a mode
/// that lets others in, and more than 1 MB are errors.
fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other(
            "is a link, and a link may lead anywhere: set CODEX_HOME to the folder it leads to",
        ),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if let Some(what) = refusal(&metadata, geteuid().as_raw()) {
        return Err(io::Error::other(what));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("is larger than 1 MB, which no login is"));
    }
    Ok(bytes)
}

fn refusal(file: &Metadata, user: u32) -> Option<String> {
    if !file.is_file() {
        return Some("is not a file".to_owned());
    }
    if file.uid() != user {
        return Some(format!("belongs to another user ({}), not to you ({user})", file.uid()));
    }
    let mode = file.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Some(format!(
            "others can read or change it (mode {mode:04o}): run `chmod 600` on it"
        ));
    }
    None
}

fn open_lock(folder: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other("is not a folder of yours alone: remove it"));
    }
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(flags);
    options.open(folder.join("lock"))
}
