//! Renewal of a login: requests new tokens from the issuer and classifies its responses.

use std::time::Duration;

use jiff::Timestamp;
use posse_actors::ports::ProviderError;
use posse_base::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::body::bytes_of;
use crate::classify::{self, Cause};
use crate::codex::LOG_IN;
use crate::http::Endpoint;
use crate::profile::{Auth, ProviderProfile};

/// Public OAuth client id of the Codex program, to which the login belongs.
const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";

/// Path of the renewal endpoint below the issuer's address.
const PATH: &str = "/oauth/token";

/// Maximum number of bytes read from a response.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Time limit for the body of a response.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Time limit from the start of a request to the beginning of its response, in milliseconds.
const BEGIN_MS: u64 = 30_000;

/// Endpoint of the issuer that renews logins.
#[derive(Debug)]
pub(super) struct Issuer(Endpoint);

/// Tokens of a successful renewal. `None`: the issuer sent no new one, and the earlier one remains
/// in use.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) access: SecretString,
    pub(super) id: Option<SecretString>,
    pub(super) refresh: Option<SecretString>,
}

/// Reason why the issuer refuses a refresh token, as a text for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenewalRefusal {
    /// The refresh token has expired.
    #[error("the ChatGPT login has expired: {}", LOG_IN)]
    Expired,
    /// The refresh token was used before.
    #[error("the ChatGPT login was renewed elsewhere and is of no use here: {}", LOG_IN)]
    Reused,
    /// The user or the issuer revoked the login, or the issuer regards the refresh token as
    /// invalid.
    #[error("the ChatGPT login was revoked: {}", LOG_IN)]
    Revoked,
    /// Any other reason: the HTTP status and, if present, the issuer's error code.
    #[error("the ChatGPT login was not renewed ({}): {}", .0, LOG_IN)]
    Other(String),
}

/// Result of a renewal.
#[derive(Debug)]
pub(super) enum Renewal {
    Renewed(Tokens),
    Refused(RenewalRefusal),
    /// The request failed, or its response is unusable. The refresh token may still be valid.
    Failed(ProviderError),
}

impl Issuer {
    /// Client of the issuer at `base_url`, without credentials.
    pub(super) fn new(base_url: &str) -> Result<Issuer, Failure> {
        let mut profile = ProviderProfile::new("codex login", base_url, "", None);
        profile.auth = Some(Auth::None);
        profile.timeouts.header_ms = Some(BEGIN_MS);
        Endpoint::new(&profile, PATH).map(Issuer)
    }

    /// Exchanges the refresh token `refresh`, which is valid once, for new tokens. A JSON response
    /// with status 400, 401 or 403 is a refusal; any other response without an access token is a
    /// failure.
    pub(super) async fn renew(&self, refresh: &SecretString) -> Renewal {
        let origin = &self.0.origin;
        let body = json!({
            "client_id": CLIENT_ID,
            "grant_type": "refresh_token",
            "refresh_token": refresh.expose_secret(),
            "scope": "openid profile email",
        });
        let answer = self.0.post(body.to_string().into(), "application/json", true).await;
        let response = match answer {
            Ok(response) => response,
            Err(error) => return Renewal::Failed(error),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let body = bytes_of(response, ANSWER_BYTES_MAX, ANSWER_WAIT).await;
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        if status.is_success() {
            return match json.as_ref().and_then(tokens) {
                Some(tokens) => Renewal::Renewed(tokens),
                None if body.trim_ascii_start().starts_with(b"<") => {
                    Renewal::Failed(classify::foreign_page(origin))
                }
                None => {
                    let source = Cause::boxed(origin, "the answer has no new token");
                    Renewal::Failed(ProviderError::Broken { partial: String::new(), source })
                }
            };
        }
        if matches!(status.as_u16(), 400 | 401 | 403)
            && let Some(json) = json
        {
            return Renewal::Refused(refused(status.as_u16(), &json));
        }
        let mut text = String::from_utf8_lossy(&body).into_owned();
        text = text.replace(refresh.expose_secret(), "[secret]");
        let now = Timestamp::now();
        Renewal::Failed(classify::status(origin, status, &headers, text.as_bytes(), now))
    }
}

fn tokens(json: &Value) -> Option<Tokens> {
    Some(Tokens {
        access: token(json.get("access_token"))?,
        id: token(json.get("id_token")),
        refresh: token(json.get("refresh_token")),
    })
}

/// Parses a token: printable ASCII without spaces, as a header requires. `None`: any other value.
pub(super) fn token(json: Option<&Value>) -> Option<SecretString> {
    let text = json?.as_str()?.trim();
    let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then(|| SecretString::from(text))
}

/// Reads the reason from an error response of the issuer, whose error code can be in one of three
/// members.
fn refused(status: u16, json: &Value) -> RenewalRefusal {
    let error = json.get("error");
    let code = [error.and_then(|error| error.get("code")), json.get("code"), error]
        .into_iter()
        .flatten()
        .find_map(Value::as_str)
        .unwrap_or_default();
    match code {
        "refresh_token_expired" => RenewalRefusal::Expired,
        "refresh_token_reused" => RenewalRefusal::Reused,
        "refresh_token_invalidated" | "invalid_grant" => RenewalRefusal::Revoked,
        _ => {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let code: String = code.chars().filter(|c| known(*c)).take(64).collect();
            RenewalRefusal::Other(if code.is_empty() {
                format!("answered {status}")
            } else {
                format!("answered {status}: {code}")
            })
        }
    }
}
