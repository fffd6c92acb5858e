//! Source of an error text: the profile, the address, and the secrets that the text must not show.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::codex::Login;

/// Source of an error text, and its secrets.
#[derive(Debug)]
pub(crate) struct MessageOrigin {
    /// Name of the profile.
    pub(crate) profile: String,
    /// Address without possible secrets.
    pub(crate) address: String,
    pub(crate) secrets: Vec<SecretString>,
    /// Login whose tokens are secrets; they may change while a session runs.
    pub(crate) login: Option<Arc<Login>>,
}

impl MessageOrigin {
    /// An origin without secrets.
    pub(crate) fn new(profile: &str, address: String) -> MessageOrigin {
        MessageOrigin { profile: profile.to_owned(), address, secrets: Vec::new(), login: None }
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
