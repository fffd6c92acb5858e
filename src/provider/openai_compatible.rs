//! Chat Completions, as most servers speak it, streamed and whole.
//!
//! Makes one attempt per call; what differs between vendors is in the profile. Dropping the
//! future of an attempt closes its connection.

pub(crate) mod classify;
pub(crate) mod decode;
mod encode;
mod frame;
mod reply;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use posse_actors::ports::{
    Completion, Delta, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::provider::http::Endpoint;
use crate::provider::openai_compatible::decode::Source;
use crate::provider::openai_compatible::encode::Encoder;
use crate::provider::profile::Profile;

/// Bytes of an error that are read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// How long an error may take to arrive.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// How long the end of the body may follow the end of the reply, so that the connection can be
/// used again.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// One profile's server.
#[derive(Debug)]
pub(crate) struct OpenAiCompatible(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    encoder: Encoder,
    model: String,
    stream: bool,
}

impl OpenAiCompatible {
    /// Checks the profile. Opens nothing.
    pub(crate) fn new(profile: Profile) -> Result<OpenAiCompatible, Failure> {
        Ok(OpenAiCompatible(Arc::new(Shared {
            endpoint: Endpoint::new(&profile, "/chat/completions")?,
            encoder: Encoder::new(
                &profile.model,
                profile.quirks,
                profile.sight,
                profile.max_tokens,
            ),
            model: profile.model,
            stream: profile.stream,
        })))
    }
}

impl Provider for OpenAiCompatible {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            profile: self.0.endpoint.origin.profile.clone(),
            model: self.0.model.clone(),
            endpoint: self.0.endpoint.origin.address.clone(),
        }
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.attempt(&request, &deltas).await })
    }
}

impl Shared {
    async fn attempt(
        &self,
        request: &Request,
        deltas: &DeltaSender,
    ) -> Result<Completion, ProviderError> {
        let stream = request.stream && self.stream;
        let accept = if stream { "text/event-stream" } else { "application/json" };
        let origin = &self.endpoint.origin;
        let body = self.encoder.encode(request, stream).map_err(|why| ProviderError::Unasked {
            class: ProviderError::NO_VISION,
            source: classify::Cause::boxed(origin, why),
        })?;
        if let Some(notice) = body.notice {
            deltas.send(Delta::Notice(notice)).await.ok();
        }
        let response = self.endpoint.post(body.bytes.into(), accept).await?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"text/html")) {
            return Err(classify::not_the_provider(origin));
        }
        let mut source = Live(response);
        let wanted = request.stream.then_some(deltas);
        let completion = decode::read(&mut source, origin, self.endpoint.idle(), wanted).await?;
        timeout(DRAIN_WAIT, async { while let Ok(Some(_)) = source.next().await {} }).await.ok();
        Ok(completion)
    }

    async fn refusal(&self, response: Response) -> ProviderError {
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = Vec::new();
        let mut source = Live(response);
        timeout(ERROR_WAIT, async {
            while let Ok(Some(chunk)) = source.next().await {
                let room = ERROR_BYTES_MAX - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if body.len() >= ERROR_BYTES_MAX {
                    break;
                }
            }
        })
        .await
        // What has arrived until then is enough of an explanation.
        .ok();
        classify::status(&self.endpoint.origin, status, &headers, &body, Timestamp::now())
    }
}

struct Live(Response);

impl Source for Live {
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        self.0.chunk().await.map_err(|error| classify::chain(&error.without_url()))
    }
}

#[cfg(test)]
mod tests;
