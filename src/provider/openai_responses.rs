//! `OpenAI` Responses, streamed and whole, with nothing stored at the server.
//!
//! Makes one attempt per call. Encrypted thinking is kept as it came and sent back. Dropping the
//! future of an attempt closes its connection.

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

use std::sync::Arc;

use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};

use crate::failure::Failure;
use crate::provider::attempt::attempt;
use crate::provider::http::Endpoint;
use crate::provider::opaque::Owner;
use crate::provider::openai_responses::encode::Encoder;
use crate::provider::openai_responses::reply::Reply;
use crate::provider::profile::Profile;

/// The protocol's name in what is kept of a reply.
pub(crate) const PROTOCOL: &str = "openai-responses";

/// One profile's server.
#[derive(Debug)]
pub(crate) struct OpenAiResponses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    encoder: Encoder,
    owner: Owner,
    model: String,
    stream: bool,
}

impl OpenAiResponses {
    /// Checks the profile. Opens nothing.
    pub(crate) fn new(mut profile: Profile) -> Result<OpenAiResponses, Failure> {
        profile.base_url = profile.base().to_owned();
        let path = profile.protocol.call_path(&profile.base_url);
        let owner = Owner::new(PROTOCOL, &profile.name, &profile.model);
        Ok(OpenAiResponses(Arc::new(Shared {
            endpoint: Endpoint::new(&profile, path)?,
            encoder: Encoder::new(&profile, owner.clone()),
            owner,
            model: profile.model,
            stream: profile.stream,
        })))
    }
}

impl Provider for OpenAiResponses {
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
        let mut completion =
            attempt::<Reply>(&self.endpoint, body, stream, request.stream, deltas).await?;
        self.owner.sign(&mut completion.message);
        Ok(completion)
    }
}

#[cfg(test)]
mod tests;
