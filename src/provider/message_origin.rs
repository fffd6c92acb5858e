//! Source of an error text: the profile, the address, and the secrets that the text must not show.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::codex::Login;
use crate::proxy::ProxyRoute;

/// Source of an error text, and the secrets to redact in it.
#[derive(Debug)]
pub(crate) struct MessageOrigin {
    /// Name of the provider profile.
    pub(crate) profile: String,
    /// URL of the endpoint without its query, which can contain secrets; or the name of a cassette.
    pub(crate) address: String,
    pub(crate) secrets: Vec<SecretString>,
    /// Login whose tokens are redacted too. The tokens may change while a session runs. `None`: the
    /// profile uses no login.
    pub(crate) login: Option<Arc<Login>>,
    /// Proxy of the requests. `None`: they go to the server directly.
    pub(crate) proxy: Option<ProxyRoute>,
}

impl MessageOrigin {
    /// Creates an origin without secrets.
    pub(crate) fn new(profile: &str, address: String) -> MessageOrigin {
        let profile = profile.to_owned();
        MessageOrigin { profile, address, secrets: Vec::new(), login: None, proxy: None }
    }

    /// Replaces the secrets of this origin in `text` by a placeholder.
    pub(crate) fn masked(&self, text: String) -> String {
        let text = without(&self.secrets, text);
        match &self.login {
            Some(login) => login.masked(text),
            None => text,
        }
    }
}

/// Replaces each occurrence of one of `secrets` in `text` by a placeholder.
pub(crate) fn without(secrets: &[SecretString], mut text: String) -> String {
    for secret in secrets.iter().map(SecretString::expose_secret) {
        if text.contains(secret) {
            text = text.replace(secret, "[secret]");
        }
    }
    text
}
