//! Values that are redacted in output, records and requests.

use std::path::Path;

use secrecy::SecretString;

use crate::config::{Environment, Settings};

/// The value of an environment variable counts as a secret if its name contains one of these texts.
const SECRET_NAMES: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Minimum bytes of a redacted value of an environment variable: shorter values are too common.
const SECRET_BYTES_MIN: usize = 8;

/// Values to redact: all API keys of providers, and the values of environment variables whose name
/// contains a text of [`SECRET_NAMES`]. A variable is left out if its value is shorter than
/// [`SECRET_BYTES_MIN`] or is an absolute path that exists.
pub(crate) fn secrets(settings: &Settings, environment: &Environment) -> Vec<SecretString> {
    let configured = settings.providers.values().filter_map(|p| p.api_key.clone());
    let secret = |name: &&str| SECRET_NAMES.iter().any(|part| name.contains(part));
    let named = environment
        .names("")
        .filter(secret)
        .filter_map(|name| environment.get(name))
        .filter(|value| value.len() >= SECRET_BYTES_MIN)
        // A path to a key is not a secret, and redacting it would break longer paths.
        .filter(|value| !(value.starts_with('/') && Path::new(value).exists()))
        .map(SecretString::from);
    configured.chain(named).collect()
}
