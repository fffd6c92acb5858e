//! Claims of a token. The signature is not verified: the server does that, and posse grants nothing
//! because of a claim.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// Maximum length of a token in bytes. A longer token has no claims.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Name of the claim with the account id and the flag `fedramp`.
const AUTH: &str = "https://api.openai.com/auth";

/// Decoder of URL-safe Base64 that accepts text with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Claims that posse uses. A missing or invalid claim is `None` or false.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// Time at which the token expires, in seconds since 1970.
    pub(super) expires: Option<i64>,
    pub(super) account: Option<String>,
    pub(super) fedramp: bool,
}

/// Reads the claims of a JSON Web Token (RFC 7519). An invalid token has no claims.
pub(super) fn claims(token: &str) -> Claims {
    if token.len() > TOKEN_BYTES_MAX {
        return Claims::default();
    }
    let payload = token.split('.').nth(1).and_then(|part| BASE64.decode(part).ok());
    let json: Value =
        payload.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
    let expires = json.get("exp").and_then(|exp| {
        #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
        exp.as_i64().or_else(|| exp.as_f64().map(|seconds| seconds as i64))
    });
    let auth = json.get(AUTH);
    let account = auth.and_then(|auth| auth.get("chatgpt_account_id")).and_then(Value::as_str);
    let fedramp = auth.and_then(|auth| auth.get("chatgpt_account_is_fedramp"));
    Claims {
        expires: expires.filter(|seconds| *seconds > 0),
        account: account.map(str::to_owned),
        fedramp: fedramp.and_then(Value::as_bool) == Some(true),
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{URL_SAFE as PADDED, URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_claims_are_tolerated() {
        let full = json!({"exp": 1_800_000_000, AUTH: {
            "chatgpt_account_id": "acc-1", "chatgpt_account_is_fedramp": true}})
        .to_string();
        let whole = Claims {
            expires: Some(1_800_000_000),
            account: Some("acc-1".to_owned()),
            fedramp: true,
        };
        assert_eq!(claims(&format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(&full))), whole);
        assert_eq!(claims(&format!("e30.{}.sig", PADDED.encode(&full))), whole);
        let of = |json: &str| claims(&format!("e30.{}.s", URL_SAFE_NO_PAD.encode(json)));
        assert_eq!(of(r#"{"exp":1.5e9}"#).expires, Some(1_500_000_000));
        let nothing =
            ["", ".", "a.b", "a.!!!.c", "e30.e30.e30", "\u{0}", "a.W10.c", &"a.".repeat(90_000)];
        for token in nothing {
            assert_eq!(claims(token), Claims::default(), "{}", &token[..token.len().min(40)]);
        }
        for json in [r#"{"exp":"soon"}"#, r#"{"exp":-5}"#, r#"{"exp":null}"#, "[1]", "7"] {
            assert_eq!(of(json).expires, None, "{json}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(token in any::<String>(), json in any::<String>()) {
            claims(&token);
            claims(&format!("a.{}.b", URL_SAFE_NO_PAD.encode(json)));
        }
    }
}
