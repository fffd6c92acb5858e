//! One attempt: sends a body and returns a reply, or an error that determines the next step.
//!
//! The same for every protocol; only the assembly of a reply differs.

use std::time::Duration;

use jiff::Timestamp;
use posse_actors::ports::{Completion, Delta, DeltaSender, ProviderError};
use reqwest::Response;
use tokio::time::timeout;

use crate::classify;
use crate::decode::{self, Assembly, ChunkSource};
use crate::http::Endpoint;
use crate::silence_timeout::Brought;

/// Bytes of an error that are read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Time limit for the body of an error.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// Maximum wait for the end of the body after the end of the reply, so that the connection can be
/// reused.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// A request as it is sent.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// Notice for the user.
    pub(crate) notice: Option<String>,
}

/// Sends `body` and reads the reply as an `A`. `wanted`: true if deltas are wanted.
pub(crate) async fn attempt<A: Assembly>(
    endpoint: &Endpoint,
    body: Result<Body, String>,
    stream: bool,
    wanted: bool,
    deltas: &DeltaSender,
) -> Result<Completion, ProviderError> {
    let accept = if stream { "text/event-stream" } else { "application/json" };
    let origin = &endpoint.origin;
    let body = body.map_err(|why| ProviderError::Unasked {
        class: ProviderError::NO_VISION,
        source: classify::Cause::boxed(origin, why),
    })?;
    if let Some(notice) = body.notice {
        deltas.send(Delta::Notice(notice)).await.ok();
    }
    let response = endpoint.post(body.bytes.into(), accept, stream).await?;
    if !response.status().is_success() {
        return Err(refusal(endpoint, response).await);
    }
    if classify::is_html(response.headers()) {
        return Err(classify::not_the_provider(origin));
    }
    let mut source = LiveResponse(response);
    let wanted = wanted.then_some(deltas);
    let patience = endpoint.patience(stream);
    let completion = decode::read::<A>(&mut source, origin, patience, wanted).await?;
    timeout(DRAIN_WAIT, async { while let Ok(Some(_)) = source.next().await {} }).await.ok();
    Ok(completion)
}

/// Error for a response without success status.
pub(crate) async fn refusal(endpoint: &Endpoint, response: Response) -> ProviderError {
    let status = response.status();
    let headers = response.headers().clone();
    let body = bytes_of(response, ERROR_BYTES_MAX, ERROR_WAIT).await;
    classify::status(&endpoint.origin, status, &headers, &body, Timestamp::now())
}

/// The first bytes of a body: as many as there are, or as arrive in time.
pub(crate) async fn bytes_of(response: Response, bytes_max: usize, limit: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let mut source = LiveResponse(response);
    timeout(limit, async {
        while let Ok(Some(chunk)) = source.next().await {
            let room = bytes_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() >= bytes_max {
                break;
            }
        }
    })
    .await
    // The part received so far is sufficient as an explanation.
    .ok();
    body
}

/// A reply that is on its way.
struct LiveResponse(Response);

impl ChunkSource for LiveResponse {
    async fn next(&mut self) -> Brought {
        self.0.chunk().await.map_err(|error| classify::chain(&error.without_url()))
    }
}
