//! Anthropic Messages, streamed and whole.
//!
//! Makes one attempt per call. Signed thinking is kept as it came and sent back; the places up to
//! which a prompt may be cached are marked. Dropping the future of an attempt closes its
//! connection.

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};
use serde_json::Value;

use crate::failure::Failure;
use crate::provider::anthropic::encode::Encoder;
use crate::provider::anthropic::reply::Reply;
use crate::provider::attempt::{attempt, bytes_of, refusal};
use crate::provider::http::Endpoint;
use crate::provider::opaque::Owner;
use crate::provider::openai_compatible::classify::{self, Cause};
use crate::provider::profile::Profile;

/// The protocol's name in what is kept of a reply.
pub(crate) const PROTOCOL: &str = "anthropic";

/// Bytes of an answer that is one number.
const COUNT_BYTES_MAX: usize = 64 * 1024;

/// How long the body of such an answer may take to arrive.
const COUNT_WAIT: Duration = Duration::from_secs(5);

/// One profile's server.
#[derive(Debug)]
pub(crate) struct Anthropic(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    counting: Endpoint,
    encoder: Encoder,
    owner: Owner,
    model: String,
    stream: bool,
}

impl Anthropic {
    /// Checks the profile. Opens nothing.
    pub(crate) fn new(mut profile: Profile) -> Result<Anthropic, Failure> {
        profile.base_url = profile.base().to_owned();
        let path = profile.protocol.call_path(&profile.base_url);
        let owner = Owner::new(PROTOCOL, &profile.name, &profile.model);
        Ok(Anthropic(Arc::new(Shared {
            endpoint: Endpoint::new(&profile, path)?,
            counting: Endpoint::new(&profile, &format!("{path}/count_tokens"))?,
            encoder: Encoder::new(&profile, owner.clone()),
            owner,
            model: profile.model,
            stream: profile.stream,
        })))
    }

    /// How many tokens `request` has, as the server counts them.
    pub(crate) async fn count_tokens(&self, request: &Request) -> Result<u64, ProviderError> {
        let Shared { counting, encoder, .. } = &*self.0;
        let body = encoder
            .encode_for_counting(request)
            .map_err(|why| classify::rejected(&counting.origin, why))?;
        let response = counting.post(body.bytes.into(), "application/json", true).await?;
        if !response.status().is_success() {
            return Err(refusal(counting, response).await);
        }
        let body = bytes_of(response, COUNT_BYTES_MAX, COUNT_WAIT).await;
        let counted: Value = serde_json::from_slice(&body).unwrap_or_default();
        counted.get("input_tokens").and_then(Value::as_u64).ok_or_else(|| {
            let source = Cause::boxed(&counting.origin, "the reply is not a number of tokens");
            ProviderError::Broken { partial: String::new(), source }
        })
    }
}

impl Provider for Anthropic {
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
