//! `ChatGPT` login of the Codex program on this machine, used to access its models.
//!
//! The Codex program itself is never started. The login is read from its folder and renewed when it
//! expires: by one request at a time in this process, and by one process at a time on this machine.
//! Tokens are sent to one address, redacted in its output, and written only to their original
//! place.

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

/// Endpoint of its models. Fixed: the login is sent nowhere else.
pub const BASE_URL: &str = "https://chatgpt.com/backend-api/codex";

/// Endpoint for renewing a login.
const ISSUER_URL: &str = "https://auth.openai.com";

/// Replaces both in tests. Accepted only if it is a loopback address.
pub const LOOPBACK_VARIABLE: &str = "POSSE_CODEX_LOOPBACK";

/// Variable with the folder of the Codex program, if it is not below the home folder.
pub const HOME_VARIABLE: &str = "CODEX_HOME";

/// Fix for an unusable login.
const LOG_IN: &str = "log in again with `codex login`";

/// Seconds before its end at which a token is renewed.
const MARGIN: i64 = 300;

/// Tokens that are remembered so that they can be masked.
const SECRETS_MAX: usize = 32;

/// Credentials of a request.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) token: SecretString,
    pub(crate) account: Option<String>,
    pub(crate) fedramp: bool,
    /// Seconds since 1970, if stated.
    expires: Option<i64>,
}

/// Why there is no access.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The user has to do something: what.
    User(String),
    /// The login could not be renewed now.
    Away(ProviderError),
}

impl Trouble {
    /// In the terms of what happens next.
    pub(crate) fn explain(self, origin: &MessageOrigin) -> ProviderError {
        match self {
            Trouble::User(what) => {
                ProviderError::Unauthorized { source: Cause::boxed(origin, what) }
            }
            Trouble::Away(error) => error,
        }
    }
}

/// One login of this machine, shared by all users in the process.
#[derive(Debug)]
pub struct Login {
    store: Store,
    base_url: String,
    issuer: Issuer,
    /// Lock for renewal.
    state: Arc<Queue<State>>,
    secrets: Mutex<Vec<SecretString>>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<Access>,
    /// A token that can no longer be renewed, with the server's reason.
    spent: Option<(SecretString, RenewalRefusal)>,
}

/// Logins by their folder and address: a second profile, or a fallback, shares the first's.
static LOGINS: LazyLock<Mutex<Logins>> = LazyLock::new(Mutex::default);

type Logins = HashMap<(PathBuf, String), Weak<Login>>;

impl Login {
    /// The login that `environment` leads to. Reads nothing yet.
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

    /// Endpoint of its models.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The file with the tokens.
    pub fn file(&self) -> PathBuf {
        self.store.file()
    }

    /// Id of the installation that reveals nothing about it.
    pub fn installation_id(&self) -> String {
        self.store.installation_id()
    }

    /// Checks that a login exists, without a request.
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

    /// Credentials for a request. `refused`: credentials that the server rejected.
    ///
    /// A renewal continues without a waiting caller: a token that was spent for another must not be
    /// lost.
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

    /// Boxed, because the request to the issuer uses the same functions as every request.
    fn flight(
        self: Arc<Self>,
        state: OwnedMutexGuard<State>,
        refused: Option<Access>,
    ) -> PortFuture<Result<Access, Trouble>> {
        Box::pin(async move { self.renew(state, refused).await })
    }

    async fn renew(
        &self,
        mut state: OwnedMutexGuard<State>,
        refused: Option<Access>,
    ) -> Result<Access, Trouble> {
        let old = state.access.clone();
        let held = match self.store.lock().await {
            Ok(held) => held,
            Err(what) => return usable(old, refused.as_ref()).ok_or(Trouble::User(what)),
        };
        let mut found = self.store.read().map_err(Trouble::User)?;
        let mut is_second = false;
        loop {
            let access = self.adopt(&mut state, &found);
            // Another process was faster, or the user logged in again.
            let is_new = old.as_ref().is_none_or(|old| !same(&old.token, &access.token));
            if is_new && serves(&access, refused.as_ref()) {
                return Ok(access);
            }
            let sent = found.refresh().map_err(Trouble::User)?;
            if let Some((spent, why)) = &state.spent
                && same(spent, &sent)
            {
                return Err(Trouble::User(why.to_string()));
            }
            // First the place for the new tokens, then the old ones are spent.
            let place = held.create_renewed(&found).map_err(Trouble::User)?;
            match self.issuer.renew(&sent).await {
                Renewal::Renewed(tokens) => {
                    let json = found.renewed(&tokens, Timestamp::now());
                    if let Err(error) = place.replace(&json) {
                        tracing::warn!("the renewed login could not be written: {error}");
                    }
                    let found = StoredLogin::parse(&json).map_err(Trouble::User)?;
                    state.spent = None;
                    let mut access = self.adopt(&mut state, &found);
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
                Renewal::Failed(error) => {
                    return usable(old, refused.as_ref()).ok_or(Trouble::Away(error));
                }
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

    /// `text` without every token that was seen.
    pub(crate) fn masked(&self, text: String) -> String {
        without(&self.secrets.lock().unwrap_or_else(PoisonError::into_inner), text)
    }
}

/// The folder of the Codex program.
fn home(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let given = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    given(HOME_VARIABLE).or_else(|| given("HOME").map(|home| home.join(".codex")))
}

/// Adds the headers that a login requires to a profile's headers.
pub(crate) fn headers(login: &Login) -> [(&'static str, String); 2] {
    [("originator", "posse".to_owned()), ("x-codex-installation-id", login.installation_id())]
}

fn same(a: &SecretString, b: &SecretString) -> bool {
    a.expose_secret() == b.expose_secret()
}

/// True if a request can be sent with it.
fn serves(access: &Access, refused: Option<&Access>) -> bool {
    if let Some(refused) = refused {
        // Clocks may differ, so the server's answer counts.
        return !same(&access.token, &refused.token);
    }
    let now = Timestamp::now().as_second();
    access.expires.is_none_or(|expires| now < expires.saturating_sub(MARGIN))
}

/// Earlier credentials that have not expired and that the server has not rejected. Renewal starts
/// before they expire, so its failure need not fail the request.
fn usable(access: Option<Access>, refused: Option<&Access>) -> Option<Access> {
    let now = Timestamp::now().as_second();
    let lives = |access: &Access| access.expires.is_none_or(|expires| now < expires);
    access.filter(|access| refused.is_none() && lives(access))
}

/// An address of this machine, without a slash at its end.
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
