//! `ChatGPT` login of the Codex program on this machine, used to access its models.
//!
//! The Codex program itself is never started. The login is read from its folder or the keyring, and
//! renewed before it expires: by one request at a time in this process, and by one posse process at
//! a time on this machine. The Codex program may renew it at the same time. Tokens are sent only to
//! the servers of the login, redacted in error texts, and written only to the storage that they
//! were read from.

mod claims;
mod keyring;
mod renewal;
mod store;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use jiff::Timestamp;
use posse_actors::ports::{PortFuture, ProviderError};
use posse_base::failure::{ErrorCode, Exit, Failure};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use crate::classify::Cause;
use crate::codex::renewal::{Issuer, Renewal, RenewalRefusal};
use crate::codex::store::{Store, StoredLogin};
use crate::message_origin::{MessageOrigin, without};

/// Base URL of the models that the login gives access to. Not configurable, so that the login is
/// sent nowhere else.
pub const BASE_URL: &str = "https://chatgpt.com/backend-api/codex";

/// Base URL of the issuer, which renews a login.
const ISSUER_URL: &str = "https://auth.openai.com";

/// Environment variable with an address that replaces the address of [`BASE_URL`] and of the issuer
/// in tests. An address that is not an `http:` loopback address is an error.
pub const LOOPBACK_VARIABLE: &str = "POSSE_CODEX_LOOPBACK";

/// Environment variable with the folder of the Codex program. Default: `.codex` in the home folder.
pub const HOME_VARIABLE: &str = "CODEX_HOME";

/// Fix for an unusable login, as the end of an error text.
const LOG_IN: &str = "log in again with `codex login`";

/// A token that expires within this many seconds is renewed before the next request.
const MARGIN: i64 = 300;

/// Maximum number of tokens of a login that are remembered for redaction. The oldest are forgotten.
const SECRETS_MAX: usize = 32;

/// Credentials that a login provides for a request.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) token: SecretString,
    pub(crate) account: Option<String>,
    pub(crate) fedramp: bool,
    /// Time at which the token expires, in seconds since 1970. `None`: the token does not state
    /// one.
    expires: Option<i64>,
}

/// Reason why a login provides no credentials.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The login is unusable until the user acts. The text states the problem and the fix.
    User(String),
    /// The renewal request failed for a reason that does not concern the login, such as the
    /// network.
    Away(ProviderError),
}

impl Trouble {
    /// Converts to the error of the attempt: `Unauthorized` if the user has to act, otherwise the
    /// error of the renewal request.
    pub(crate) fn explain(self, origin: &MessageOrigin) -> ProviderError {
        match self {
            Trouble::User(what) => {
                ProviderError::Unauthorized { source: Cause::boxed(origin, what) }
            }
            Trouble::Away(error) => error,
        }
    }
}

/// Login of the Codex program in one folder. All profiles of this process that use the folder and
/// the same server share it.
#[derive(Debug)]
pub struct Login {
    store: Store,
    base_url: String,
    issuer: Issuer,
    /// Current credentials. The lock is held during a renewal, so renewals in this process do not
    /// overlap.
    state: Arc<Queue<State>>,
    secrets: Mutex<Vec<SecretString>>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<Access>,
    /// Refresh token that the issuer refused, with the reason. It is not sent again.
    spent: Option<(SecretString, RenewalRefusal)>,
}

/// Logins that a profile of this process uses, by folder and base URL: profiles with equal ones
/// share a login.
static LOGINS: LazyLock<Mutex<Logins>> = LazyLock::new(Mutex::default);

type Logins = HashMap<(PathBuf, String), Weak<Login>>;

impl Login {
    /// Returns the login for the values of `CODEX_HOME`, `HOME` and [`LOOPBACK_VARIABLE`], which
    /// `environment` returns. A login that another profile uses is shared. Reads no file. Errors:
    /// the folder is unknown (the text names `profile`), or [`LOOPBACK_VARIABLE`] is invalid.
    pub fn of(
        profile: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Arc<Login>, Failure> {
        let home = home(&environment).ok_or_else(|| {
            let what = format!("provider \"{profile}\": the folder of the login is unknown");
            Failure::new(ErrorCode::LoginSettingsInvalid, Exit::Configuration, what)
                .because("neither HOME nor CODEX_HOME is an absolute path")
                .fix("set CODEX_HOME to the folder that has auth.json")
        })?;
        let (base_url, issuer_url) = match environment(LOOPBACK_VARIABLE) {
            Some(address) => {
                let address = loopback(&address)?;
                (format!("{address}/backend-api/codex"), address)
            }
            None => (BASE_URL.to_owned(), ISSUER_URL.to_owned()),
        };
        let key = (home.clone(), base_url.clone());
        let mut known = LOGINS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, login| login.strong_count() > 0);
        if let Some(login) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(login);
        }
        let login = Arc::new(Login {
            store: Store::new(home),
            base_url,
            issuer: Issuer::new(&issuer_url)?,
            state: Arc::default(),
            secrets: Mutex::default(),
        });
        known.insert(key, Arc::downgrade(&login));
        Ok(login)
    }

    /// Base URL of the models that the login gives access to.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Path of the file with the tokens. The file does not exist if the login is in the keyring.
    pub fn file(&self) -> PathBuf {
        self.store.file()
    }

    /// Id of this installation in the form of a UUID, which requests contain.
    pub fn installation_id(&self) -> String {
        self.store.installation_id()
    }

    /// Returns an error if no login with a token is stored. Sends no request, and does not check if
    /// the token has expired.
    pub fn check(&self) -> Result<(), Failure> {
        self.store.read().map(|_| ()).map_err(|what| {
            Failure::new(
                ErrorCode::LoginMissing,
                Exit::Configuration,
                "there is no ChatGPT login to use",
            )
            .at(self.file().display().to_string())
            .because(what)
            .fix("run `codex login`, or choose another provider")
        })
    }

    /// Returns credentials for a request. Renews the login first if they expire within [`MARGIN`]
    /// or equal `refused`. If that fails for any reason and `refused` is `None`, credentials that have
    /// not expired are returned nevertheless. `refused`: credentials that the server has just
    /// rejected, which are never returned; `None`: none.
    ///
    /// A renewal continues if the caller is cancelled: the refresh token has been spent, and the
    /// new tokens must not be lost.
    pub(crate) async fn access(
        self: &Arc<Self>,
        refused: Option<&Access>,
    ) -> Result<Access, Trouble> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if state.access.is_none() {
            let found = self.store.read().map_err(Trouble::User)?;
            self.adopt(&mut state, &found);
        }
        if let Some(access) = state.access.clone().filter(|known| serves(known, refused)) {
            return Ok(access);
        }
        let flight = Arc::clone(self).flight(state, refused.cloned());
        match tokio::spawn(flight).await {
            Ok(renewed) => renewed,
            Err(_) => Err(Trouble::User(format!("the login could not be renewed: {LOG_IN}"))),
        }
    }

    /// Boxed future of [`Login::renew`]. The request to the issuer uses the functions of all
    /// requests, so the type of the future would contain itself.
    fn flight(
        self: Arc<Self>,
        state: OwnedMutexGuard<State>,
        refused: Option<Access>,
    ) -> PortFuture<Result<Access, Trouble>> {
        Box::pin(async move { self.renew(state, refused).await })
    }

    /// Renews the login. If that fails, returns the credentials known before if they are usable.
    async fn renew(
        &self,
        mut state: OwnedMutexGuard<State>,
        refused: Option<Access>,
    ) -> Result<Access, Trouble> {
        let old = state.access.clone();
        let renewed = self.renewed(&mut state, refused.as_ref()).await;
        renewed.or_else(|trouble| usable(old, refused.as_ref()).ok_or(trouble))
    }

    async fn renewed(
        &self,
        state: &mut State,
        refused: Option<&Access>,
    ) -> Result<Access, Trouble> {
        let old = state.access.clone();
        let held = self.store.lock().await.map_err(Trouble::User)?;
        let mut found = self.store.read().map_err(Trouble::User)?;
        let mut is_second = false;
        loop {
            let access = self.adopt(state, &found);
            // Another process was faster, or the user logged in again.
            let is_new = old.as_ref().is_none_or(|old| !same(&old.token, &access.token));
            if is_new && serves(&access, refused) {
                return Ok(access);
            }
            let sent = found.refresh().map_err(Trouble::User)?;
            if let Some((spent, why)) = &state.spent
                && same(spent, &sent)
            {
                return Err(Trouble::User(why.to_string()));
            }
            // Prepares the destination of the new tokens before the old ones are spent.
            let place = held.create_renewed(&found).map_err(Trouble::User)?;
            match self.issuer.renew(&sent).await {
                Renewal::Renewed(tokens) => {
                    let json = found.renewed(&tokens, Timestamp::now());
                    if let Err(error) = place.replace(&json) {
                        tracing::warn!("the renewed login could not be written: {error}");
                    }
                    let found = StoredLogin::parse(&json).map_err(Trouble::User)?;
                    state.spent = None;
                    let mut access = self.adopt(state, &found);
                    if !serves(&access, None) {
                        // It is new: if it seems expired, the local clock is wrong.
                        access.expires = None;
                        state.access = Some(access.clone());
                    }
                    return Ok(access);
                }
                Renewal::Refused(why) => {
                    // The Codex program, which does not know the lock, may have spent it.
                    let now = self.store.read().map_err(Trouble::User)?;
                    let is_other = now.refresh().is_ok_and(|token| !same(&token, &sent));
                    if is_other && !is_second {
                        (found, is_second) = (now, true);
                        continue;
                    }
                    let sentence = why.to_string();
                    state.spent = Some((sent, why));
                    return Err(Trouble::User(sentence));
                }
                Renewal::Failed(error) => return Err(Trouble::Away(error)),
            }
        }
    }

    fn adopt(&self, state: &mut State, found: &StoredLogin) -> Access {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        for secret in found.secrets() {
            if !secrets.iter().any(|known| same(known, &secret)) {
                secrets.push(secret);
            }
        }
        let surplus = secrets.len().saturating_sub(SECRETS_MAX);
        secrets.drain(..surplus);
        let access = found.access();
        state.access = Some(access.clone());
        access
    }

    /// Replaces the remembered tokens of this login in `text` by a placeholder.
    pub(crate) fn masked(&self, text: String) -> String {
        without(&self.secrets.lock().unwrap_or_else(PoisonError::into_inner), text)
    }
}

/// Folder of the Codex program. `None`: neither `CODEX_HOME` nor `HOME` is an absolute path.
fn home(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let given = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    given(HOME_VARIABLE).or_else(|| given("HOME").map(|home| home.join(".codex")))
}

/// Names and values of the headers that a request with `login` requires, beside the credentials.
pub(crate) fn headers(login: &Login) -> [(&'static str, String); 2] {
    [("originator", "posse".to_owned()), ("x-codex-installation-id", login.installation_id())]
}

fn same(a: &SecretString, b: &SecretString) -> bool {
    a.expose_secret() == b.expose_secret()
}

/// True if a request can be sent with `access`: its token differs from that of `refused`, or, if
/// `refused` is `None`, does not expire within [`MARGIN`].
fn serves(access: &Access, refused: Option<&Access>) -> bool {
    if let Some(refused) = refused {
        // Clocks may differ, so the server's answer counts.
        return !same(&access.token, &refused.token);
    }
    let now = Timestamp::now().as_second();
    access.expires.is_none_or(|expires| now < expires.saturating_sub(MARGIN))
}

/// Returns `access` if it has not expired and the server has rejected no credentials (`refused` is
/// `None`). Credentials are renewed before they expire, so a failed renewal need not fail the
/// request.
fn usable(access: Option<Access>, refused: Option<&Access>) -> Option<Access> {
    let now = Timestamp::now().as_second();
    let lives = |access: &Access| access.expires.is_none_or(|expires| now < expires);
    access.filter(|access| refused.is_none() && lives(access))
}

/// Returns `address` without trailing slashes. An error unless it is an `http:` URL with the host
/// `127.0.0.1`, `[::1]` or `localhost`.
fn loopback(address: &str) -> Result<String, Failure> {
    let parsed = Url::parse(address.trim()).ok();
    let is_here = parsed.as_ref().is_some_and(|url| {
        let host = url.host_str().unwrap_or_default();
        url.scheme() == "http" && matches!(host, "127.0.0.1" | "[::1]" | "localhost")
    });
    if is_here {
        return Ok(address.trim().trim_end_matches('/').to_owned());
    }
    let what = format!("{LOOPBACK_VARIABLE} is not an address of this machine");
    Err(Failure::new(ErrorCode::LoginSettingsInvalid, Exit::Configuration, what)
        .because("the login is sent to its own servers and, in tests, to this machine")
        .fix(format!("unset {LOOPBACK_VARIABLE}")))
}

#[cfg(test)]
mod tests;
