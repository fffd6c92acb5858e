//! Bodies of requests and of responses, the same for every protocol.

use std::time::Duration;

use jiff::Timestamp;
use posse_actors::ports::ProviderError;
use reqwest::Response;
use tokio::time::timeout;

use crate::classify;
use crate::decode::ChunkSource;
use crate::http::Endpoint;
use crate::silence_timeout::Brought;

/// Maximum number of bytes read from an error response.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Time limit for reading the body of an error response.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// Body of a request, as it is sent.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// Notice for the user that images or the reasoning level were omitted. `None`: nothing was, or
    /// an earlier request had the same notice.
    pub(crate) notice: Option<String>,
}

/// Reads a response without success status and returns its error.
pub(crate) async fn refusal(endpoint: &Endpoint, response: Response) -> ProviderError {
    let status = response.status();
    let headers = response.headers().clone();
    let body = bytes_of(response, ERROR_BYTES_MAX, ERROR_WAIT).await;
    classify::status(&endpoint.origin, status, &headers, &body, Timestamp::now())
}

/// Reads a body until its end, until `bytes_max` bytes, until an error or until `limit`, and
/// returns the bytes read so far.
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

/// Source of the chunks of a response that is being received.
pub(crate) struct LiveResponse(pub(crate) Response);

impl ChunkSource for LiveResponse {
    async fn next(&mut self) -> Brought {
        self.0.chunk().await.map_err(|error| classify::chain(&error.without_url()))
    }
}
