//! Login in the system keyring, where the Codex program stores it if configured.
//!
//! Requires the feature `keyring`. Uses the entry name of the Codex program, and writes a renewed
//! login back.

pub(super) use system::{read, write};

/// Clause about the keyring, for the error that no login is stored.
pub(super) const ELSEWHERE: &str = if cfg!(feature = "keyring") {
    "and none in the keyring"
} else {
    "and a login in a keyring is not read without the feature `keyring`"
};

#[cfg(not(feature = "keyring"))]
mod system {
    use std::path::Path;

    /// Returns `None`: this build has no keyring support.
    #[expect(clippy::unnecessary_wraps, reason = "a keyring can fail, where there is one")]
    pub(in crate::codex) fn read(_: &Path) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Returns an error: this build has no keyring support.
    pub(in crate::codex) fn write(_: &Path, _: &str) -> Result<(), String> {
        Err("this program was made without keyrings".to_owned())
    }
}

#[cfg(feature = "keyring")]
mod system {
    use std::path::Path;
    use std::sync::{Arc, OnceLock, mpsc};
    use std::thread;
    use std::time::Duration;

    use keyring_core::{CredentialStore, Entry, Error};
    use posse_base::hex::hex;
    use sha2::{Digest, Sha256};

    /// Service name of the keyring entries of the Codex program.
    const SERVICE: &str = "Codex Auth";

    /// Maximum length of a login in bytes, equal to the limit of a login file.
    const BYTES_MAX: usize = 1 << 20;

    /// Time limit for one operation. A locked keyring waits for the user, who may be absent.
    const WAIT: Duration = Duration::from_secs(10);

    type Opened = Result<Arc<CredentialStore>, Error>;

    /// Reads the login of the Codex program with the folder `home`. `None`: the keyring has none.
    /// An error if the keyring is unavailable or locked, or the login is larger than [`BYTES_MAX`].
    pub(in crate::codex) fn read(home: &Path) -> Result<Option<String>, String> {
        let read = on_own_thread(home, |entry| match entry.get_secret() {
            Ok(secret) => Ok(Some(secret)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })?;
        let Some(secret) = read else { return Ok(None) };
        if secret.len() > BYTES_MAX {
            return Err(
                "the login in the keyring is larger than 1 MB, which no login is".to_owned()
            );
        }
        // Errors are reported by the parser.
        Ok(Some(String::from_utf8(secret).unwrap_or_default()))
    }

    /// Stores `json` as the login of the Codex program with the folder `home`.
    pub(in crate::codex) fn write(home: &Path, json: &str) -> Result<(), String> {
        let json = json.as_bytes().to_vec();
        on_own_thread(home, move |entry| entry.set_secret(&json))
    }

    /// Runs `act` with the keyring entry of `home`, on a separate thread, because it may block and
    /// contains an asynchronous runtime. Returns an error after [`WAIT`]; the thread then
    /// continues.
    fn on_own_thread<T: Send + 'static>(
        home: &Path,
        act: impl FnOnce(&Entry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, String> {
        let account = account(home);
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = move || {
            let done = store().and_then(|store| act(&store.build(SERVICE, &account, None)?));
            sender.send(done).ok();
        };
        let thread = thread::Builder::new().name("keyring".to_owned()).spawn(work);
        thread.map_err(|error| format!("no thread for the keyring: {error}"))?;
        match receiver.recv_timeout(WAIT) {
            Ok(done) => done.map_err(|error| sentence(&error)),
            Err(_) => Err("the keyring does not answer: is it locked?".to_owned()),
        }
    }

    /// Text of `error` for the user, without any data from the keyring.
    fn sentence(error: &Error) -> String {
        match error {
            Error::BadEncoding(_) | Error::BadDataFormat(..) | Error::Ambiguous(_) => {
                "the keyring has something else under the name of the login".to_owned()
            }
            error => format!("the keyring: {error}"),
        }
    }

    /// Account name of the keyring entry that the Codex program uses for its folder `home`.
    fn account(home: &Path) -> String {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let digest = Sha256::digest(home.to_string_lossy().as_bytes());
        format!("cli|{}", hex(&digest[..8]))
    }

    /// Returns the keyring, which is opened at first use. After a failure the next call tries
    /// again.
    fn store() -> Opened {
        static STORE: OnceLock<Arc<CredentialStore>> = OnceLock::new();
        if let Some(store) = STORE.get() {
            return Ok(Arc::clone(store));
        }
        let opened = open()?;
        Ok(Arc::clone(STORE.get_or_init(|| opened)))
    }

    #[cfg(all(not(test), target_os = "linux"))]
    fn open() -> Opened {
        Ok(zbus_secret_service_keyring_store::Store::new()?)
    }

    #[cfg(all(not(test), target_os = "macos"))]
    fn open() -> Opened {
        Ok(apple_native_keyring_store::keychain::Store::new()?)
    }

    /// Keyring in memory, for tests.
    #[cfg(test)]
    fn open() -> Opened {
        Ok(keyring_core::mock::Store::new()?)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_name_is_that_of_the_codex_program() {
            // printf %s / | sha256sum
            assert_eq!(account(Path::new("/")), "cli|8a5edab282632443");
        }
    }
}
