//! Lists of models, and the connectivity check of a server, without cost: asks for its list of models or, with Messages, for
//! a token count first. With a login, only credentials are obtained.
//!
//! The check uses the address, headers, proxy and certificates of real requests, so it meets the
//! same errors.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use posse_actors::conversation::{ContentPart, Message};
use posse_actors::ports::{ProviderError, Request};
use posse_base::failure::Failure;
use serde_json::Value;
use tokio::time::timeout;

use crate::body::bytes_of;
use crate::classify;
use crate::connect;
use crate::http::Endpoint;
use crate::profile::{Protocol, ProviderProfile};

/// Maximum number of bytes read from a list of models.
const LIST_BYTES_MAX: usize = 4 << 20;

/// Result of a connectivity check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// The server accepted the request. True if the profile's model is available, false if it is
    /// not in the list of models; `None`: the response is not a list.
    Listed(Option<bool>),
    /// The server responds, but has no list of models (status 404, 405 or 501).
    WithoutList,
    /// The login of the profile has credentials that have not expired, if necessary after a
    /// renewal. The server of the models was not contacted.
    LoggedIn,
    /// An error response, or no response.
    Failed {
        /// Class of the error ([`ProviderError::class`]).
        class: &'static str,
        /// Cause in one line.
        cause: String,
    },
}

/// Checks the connection to the server of `profile`, for at most `limit`. An invalid profile is an
/// error; a failed connection is [`Reached::Failed`].
pub async fn models_of(profile: &ProviderProfile, limit: Duration) -> Result<Reached, Failure> {
    let mut profile = profile.clone();
    profile.base_url = profile.base().to_owned();
    let endpoint = Endpoint::new(&profile, profile.protocol.list_path(&profile.base_url))?;
    let asked = timeout(limit, async {
        if let Some(login) = &profile.login {
            let Err(trouble) = login.access(None).await else { return Ok(Reached::LoggedIn) };
            return Ok(failed(&trouble.explain(&endpoint.origin)));
        }
        if profile.protocol == Protocol::Messages
            && let Some(answer) = count(&profile).await?
        {
            return Ok(answer);
        }
        Ok(ask(&endpoint, &profile.model, limit).await)
    });
    let asked = asked.await.ok().transpose()?;
    Ok(asked.unwrap_or_else(|| failed(&classify::silent(&endpoint.origin, limit, "firstByte"))))
}

/// Checks a Messages server: lets it count the tokens of a greeting, which costs nothing. (Its list
/// of models comes in pages.) `None`: the server does not count tokens, or not for this model.
async fn count(profile: &ProviderProfile) -> Result<Option<Reached>, Failure> {
    let provider = connect(profile.clone())?;
    let greeting = Message::User { content: vec![ContentPart::text("Hello")] };
    let request = Request { messages: vec![Arc::new(greeting)], ..Request::default() };
    Ok(match provider.count_tokens(request).await {
        Ok(_) => Some(Reached::Listed(Some(true))),
        Err(ProviderError::Rejected { .. } | ProviderError::Broken { .. }) => None,
        Err(error) => Some(failed(&error)),
    })
}

/// Maximum number of models of a list, and maximum bytes of the name of each.
const LISTED_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 200;

/// Names of the models that the server of `profile` lists, in its order, after at most `limit`. Of a
/// list in pages, the first one counts. Empty for a login, whose server has no list. The error is
/// the cause in one line.
pub async fn listed_models(
    profile: &ProviderProfile,
    limit: Duration,
) -> Result<Vec<String>, String> {
    if profile.login.is_some() {
        return Ok(Vec::new());
    }
    let mut profile = profile.clone();
    profile.base_url = profile.base().to_owned();
    let path = profile.protocol.list_path(&profile.base_url);
    let endpoint = Endpoint::new(&profile, path).map_err(|failure| failure.what)?;
    let asked = timeout(limit, async {
        let response = endpoint.get("application/json").await.map_err(|error| error.chain())?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = bytes_of(response, LIST_BYTES_MAX, limit).await;
        if !status.is_success() {
            let now = Timestamp::now();
            return Err(classify::status(&endpoint.origin, status, &headers, &body, now).chain());
        }
        names(&body).ok_or_else(|| "the server sent no list of models".to_owned())
    });
    asked.await.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
}

/// Names in a list of models. `None`: it is none.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data").unwrap_or(&list).as_array()?;
    let ids = models.iter().filter_map(|entry| entry.get("id").and_then(Value::as_str));
    let is_name = |id: &&str| {
        !id.is_empty() && id.len() <= NAME_BYTES_MAX && !id.contains(|c: char| c.is_control())
    };
    Some(ids.filter(is_name).take(LISTED_MAX).map(str::to_owned).collect())
}

async fn ask(endpoint: &Endpoint, model: &str, limit: Duration) -> Reached {
    let response = match endpoint.get("application/json").await {
        Ok(response) => response,
        Err(error) => return failed(&error),
    };
    let status = response.status();
    if matches!(status.as_u16(), 404 | 405 | 501) {
        return Reached::WithoutList;
    }
    let headers = response.headers().clone();
    // A truncated body is judged like a complete one.
    let body = bytes_of(response, LIST_BYTES_MAX, limit).await;
    if !status.is_success() {
        let error = classify::status(&endpoint.origin, status, &headers, &body, Timestamp::now());
        return failed(&error);
    }
    Reached::Listed(lists(&body, model))
}

fn failed(error: &ProviderError) -> Reached {
    Reached::Failed { class: error.class(), cause: error.chain() }
}

/// True if `model` is in the list of models `body`, false if it is not. `None`: `body` is not a list
/// of ids, or only the first page of one.
fn lists(body: &[u8], model: &str) -> Option<bool> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data").unwrap_or(&list);
    // A server without models may send null.
    let models = if models.is_null() { &[][..] } else { models.as_array()?.as_slice() };
    let mut ids = models.iter().filter_map(|entry| entry.get("id").and_then(Value::as_str));
    let bare = |id: &str| id.strip_prefix("models/").unwrap_or(id).to_owned();
    let has_ids = models.is_empty() || ids.clone().next().is_some();
    let has_more = list.get("has_more") == Some(&Value::Bool(true));
    let is_listed = ids.any(|id| bare(id) == bare(model));
    (is_listed || (has_ids && !has_more)).then_some(is_listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, answer};

    #[test]
    fn names_of_a_list_are_bounded() {
        let body = |ids: &[String]| {
            let models: Vec<Value> = ids.iter().map(|id| serde_json::json!({"id": id})).collect();
            serde_json::json!({"data": models}).to_string()
        };
        let ids = ["large", "", "a\u{1b}[2J", &"x".repeat(300), "small"].map(str::to_owned);
        assert_eq!(names(body(&ids).as_bytes()).unwrap(), ["large", "small"]);
        let many: Vec<String> = (0..5000).map(|nth| format!("m{nth}")).collect();
        assert_eq!(names(body(&many).as_bytes()).unwrap().len(), LISTED_MAX);
        assert_eq!(names(b"[{\"id\":\"a\"},{\"id\":3},7]").unwrap(), ["a"]);
        for no_list in ["", "<html>", "{}", "{\"data\":7}"] {
            assert_eq!(names(no_list.as_bytes()), None, "{no_list}");
        }
    }

    #[tokio::test]
    async fn each_protocol_is_checked_at_its_endpoint() {
        let listed = r#"{"data":[{"id":"some-model"}]}"#;
        let counted = r#"{"input_tokens":8}"#;
        let missing = r#"{"error":{"type":"not_found_error","message":"model: some-model"}}"#;
        let refused = r#"{"error":{"type":"authentication_error","message":"no"}}"#;
        let known = Reached::Listed(Some(true));
        let table = [
            (Protocol::ChatCompletions, vec![("200 OK", listed)], Some(known.clone())),
            (Protocol::Responses, vec![("200 OK", listed)], Some(known.clone())),
            (Protocol::Messages, vec![("200 OK", counted)], Some(known.clone())),
            (
                Protocol::Messages,
                vec![("404 Not Found", missing), ("200 OK", r#"{"data":[{"id":"x"}]}"#)],
                Some(Reached::Listed(Some(false))),
            ),
            (
                Protocol::Messages,
                vec![("404 Not Found", "{}"), ("404 Not Found", "{}")],
                Some(Reached::WithoutList),
            ),
            (Protocol::Messages, vec![("401 Unauthorized", refused)], None),
        ];
        for (protocol, answers, expected) in table {
            let count = answers.len();
            let scripts = answers.into_iter().map(|(status, body)| answer(status, "", body));
            let server = Server::start(scripts).await;
            let mut profile = server.profile();
            let call = protocol.call_path("/v1");
            profile.protocol = protocol;
            // Given like this, too.
            profile.base_url = format!("{}/v1{call}", server.address);
            let reached = models_of(&profile, Duration::from_secs(10)).await.unwrap();
            match expected {
                Some(expected) => assert_eq!(reached, expected, "{protocol:?}"),
                None => assert!(
                    matches!(reached, Reached::Failed { class: "unauthorized", .. }),
                    "{reached:?}"
                ),
            }
            let paths: Vec<String> = server
                .seen()
                .iter()
                .map(|seen| seen.head.split(' ').nth(1).unwrap().to_owned())
                .collect();
            let all = match protocol {
                Protocol::Messages => vec!["/v1/messages/count_tokens", "/v1/models"],
                Protocol::ChatCompletions | Protocol::Responses | Protocol::Codex => {
                    vec!["/v1/models"]
                }
            };
            assert_eq!(paths, all[..count]);
        }
    }

    #[test]
    fn finds_the_model_in_lists_of_several_shapes() {
        let table: [(&str, Option<bool>); 10] = [
            (r#"{"object":"list","data":[{"id":"a"},{"id":"m"}]}"#, Some(true)),
            (r#"{"data":[{"id":"models/m"}]}"#, Some(true)),
            (r#"[{"id":"b"},{"name":"m"},7]"#, Some(false)),
            (r#"[{"name":"m"}]"#, None),
            (r#"{"object":"list","data":null}"#, Some(false)),
            (r#"{"data":[{"id":"a"}],"has_more":true}"#, None),
            (r#"{"data":[{"id":"m"}],"has_more":true}"#, Some(true)),
            (r#"{"data":{}}"#, None),
            ("<html>", None),
            ("", None),
        ];
        for (body, expected) in table {
            assert_eq!(lists(body.as_bytes(), "m"), expected, "{body}");
        }
    }
}
