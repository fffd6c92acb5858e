//! Source of an error text: the profile, the address, and the secrets that the text must not show.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

/// Redacts secrets that may change while a session runs, such as the tokens of a login.
pub(crate) trait Redact: fmt::Debug + Send + Sync {
    /// `text` without these secrets.
    fn masked(&self, text: String) -> String;
}

/// Source of an error text, and its secrets.
#[derive(Debug)]
pub(crate) struct MessageOrigin {
    /// Name of the profile.
    pub(crate) profile: String,
    /// Address without possible secrets.
    pub(crate) address: String,
    secrets: Vec<SecretString>,
    login: Option<Arc<dyn Redact>>,
}

impl MessageOrigin {
    /// An origin without secrets.
    pub(crate) fn new(profile: &str, address: String) -> MessageOrigin {
        MessageOrigin { profile: profile.to_owned(), address, secrets: Vec::new(), login: None }
    }

    /// Adds secrets: fixed ones, and those of a login.
    #[must_use]
    pub(crate) fn with_secrets(
        self,
        secrets: Vec<SecretString>,
        login: Option<Arc<dyn Redact>>,
    ) -> MessageOrigin {
        MessageOrigin { secrets, login, ..self }
    }

    /// `text` without this origin's secrets.
    pub(crate) fn masked(&self, text: String) -> String {
        let text = without(&self.secrets, text);
        match &self.login {
            Some(login) => login.masked(text),
            None => text,
        }
    }
}

/// `text` with a placeholder for each of `secrets`.
pub(crate) fn without(secrets: &[SecretString], mut text: String) -> String {
    for secret in secrets.iter().map(SecretString::expose_secret) {
        if text.contains(secret) {
            text = text.replace(secret, "[secret]");
        }
    }
    text
}
