//! Chat Completions, as most servers speak it, streamed and whole.
//!
//! Makes one attempt per call; what differs between vendors is in the profile. Dropping the
//! future of an attempt closes its connection.

pub(crate) mod classify;
pub(crate) mod encode;
mod frame;
pub(crate) mod reply;
mod wire;

use std::sync::Arc;

use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};

use crate::failure::Failure;
use crate::provider::attempt::attempt;
use crate::provider::http::Endpoint;
use crate::provider::openai_compatible::encode::Encoder;
use crate::provider::openai_compatible::reply::Reply;
use crate::provider::profile::Profile;

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

    fn account(&self) -> String {
        self.0.endpoint.account()
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
        let body = self.encoder.encode(request, stream);
        attempt::<Reply>(&self.endpoint, body, stream, request.stream, deltas).await
    }
}

#[cfg(test)]
mod tests;
