//! Provider for one server; the protocol-specific part is a [`Dialect`].
//!
//! Makes one attempt per call. The attempt repeats its HTTP request once if the server rejects the
//! token of a login, or the thinking in the history. Dropping the future of an attempt closes its
//! connection.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use posse_actors::ports::{
    Completion, Delta, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
    TokenCount,
};
use posse_base::failure::Failure;
use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use crate::body::{LiveResponse, bytes_of, refusal};
use crate::classify::{self, Cause};
use crate::decode::{self, ChunkSource};
use crate::encoder::{Dialect, Encoder};
use crate::http::Endpoint;
use crate::profile::ProviderProfile;

/// Maximum number of bytes read from the response to a token count.
const COUNT_BYTES_MAX: usize = 64 * 1024;

/// Time limit for the body of a token count.
const COUNT_WAIT: Duration = Duration::from_secs(5);

/// Time limit for reading the body to its end after the reply is complete, so that the connection
/// can be reused.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// [`Provider`] for the server of one profile. `D` is the dialect of its protocol.
#[derive(Debug)]
pub(crate) struct Adapter<D>(Arc<AdapterState<D>>);

/// Endpoints and encoder of one adapter, shared by its attempts.
#[derive(Debug)]
struct AdapterState<D> {
    endpoint: Endpoint,
    /// Endpoint that counts tokens. `None`: the protocol has none, so counts are estimates.
    counting: Option<Endpoint>,
    encoder: Encoder<D>,
    /// Encoder of all requests after the server refused one for the thinking in its history.
    plain: OnceLock<Encoder<D>>,
}

impl<D: Dialect> Adapter<D> {
    /// Creates the adapter. Returns an error if the address, a header or the key of `profile` is
    /// invalid, or a required key is missing. Opens no connection.
    pub(crate) fn new(mut profile: ProviderProfile) -> Result<Adapter<D>, Failure> {
        let base = profile.base().to_owned();
        profile.base_url = base;
        let path = profile.protocol.call_path(&profile.base_url);
        let counting = D::COUNTING.map(|rest| Endpoint::new(&profile, &format!("{path}{rest}")));
        Ok(Adapter(Arc::new(AdapterState {
            endpoint: Endpoint::new(&profile, path)?,
            counting: counting.transpose()?,
            encoder: Encoder::new(profile),
            plain: OnceLock::new(),
        })))
    }
}

impl<D: Dialect> Provider for Adapter<D> {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            profile: self.0.endpoint.origin.profile.clone(),
            model: self.0.encoder.profile.model.clone(),
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

    fn count_tokens(&self, request: Request) -> PortFuture<Result<TokenCount, ProviderError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            match &shared.counting {
                Some(counting) => {
                    let tokens = shared.count(counting, &request).await?;
                    Ok(TokenCount { tokens, is_exact: true })
                }
                None => Ok(TokenCount::estimate(&request)),
            }
        })
    }
}

impl<D: Dialect> AdapterState<D> {
    /// Makes one attempt: sends `request` and reads the reply. Sends notices and, if
    /// `request.stream` is set, content of the reply to `deltas` as it arrives. Fails without
    /// sending anything if the model accepts no images and a user message contains one.
    async fn attempt(
        &self,
        request: &Request,
        deltas: &DeltaSender,
    ) -> Result<Completion, ProviderError> {
        let Endpoint { origin, .. } = &self.endpoint;
        let stream = self.encoder.profile.streams(request.stream);
        let accept = if stream { "text/event-stream" } else { "application/json" };
        let mut response = self.post(request, stream, accept, deltas).await?;
        if !response.status().is_success() {
            let error = refusal(&self.endpoint, response).await;
            if !classify::is_missing_thought(&error) || self.plain.get().is_some() {
                return Err(error);
            }
            // Such as the history of another provider, whose calls have no thinking before them.
            self.plain.get_or_init(|| Encoder::without_thinking(self.encoder.profile.clone()));
            deltas.send(Delta::Notice(self.without_thinking_notice())).await.ok();
            response = self.post(request, stream, accept, deltas).await?;
            if !response.status().is_success() {
                return Err(refusal(&self.endpoint, response).await);
            }
        }
        if classify::is_html(response.headers()) {
            return Err(classify::foreign_page(origin));
        }
        let mut source = LiveResponse(response);
        let wanted = request.stream.then_some(deltas);
        let patience = self.endpoint.patience(stream);
        let mut completion =
            decode::read::<D::Reply>(&mut source, origin, patience, wanted).await?;
        timeout(DRAIN_WAIT, async { while let Ok(Some(_)) = source.next().await {} }).await.ok();
        self.encoder.owner.sign(&mut completion.message);
        Ok(completion)
    }

    /// Sends `request` and notices about what it omits. Returns when the response begins, with any
    /// status.
    async fn post(
        &self,
        request: &Request,
        stream: bool,
        accept: &'static str,
        deltas: &DeltaSender,
    ) -> Result<Response, ProviderError> {
        let body = match self.plain.get() {
            Some(plain) => plain.encode(&Request { thinking: None, ..request.clone() }, stream),
            None => self.encoder.encode(request, stream),
        };
        let body = body.map_err(|why| ProviderError::Unasked {
            class: ProviderError::NO_VISION,
            source: Cause::boxed(&self.endpoint.origin, why),
        })?;
        if let Some(notice) = body.notice {
            deltas.send(Delta::Notice(notice)).await.ok();
        }
        self.endpoint.post(body.bytes.into(), accept, stream).await
    }

    fn without_thinking_notice(&self) -> String {
        format!(
            "{} refuses the thinking in this history, which other models wrote in part: requests to \
             {} are sent without thinking in this session",
            self.endpoint.origin.profile, self.encoder.profile.model
        )
    }

    async fn count(&self, counting: &Endpoint, request: &Request) -> Result<u64, ProviderError> {
        let origin = &counting.origin;
        let body = self.encoder.encode_for_counting(request);
        let body = body.map_err(|why| classify::rejected(origin, why))?;
        let response = counting.post(body.bytes.into(), "application/json", true).await?;
        if !response.status().is_success() {
            return Err(refusal(counting, response).await);
        }
        let body = bytes_of(response, COUNT_BYTES_MAX, COUNT_WAIT).await;
        let counted: Value = serde_json::from_slice(&body).unwrap_or_default();
        counted.get("input_tokens").and_then(Value::as_u64).ok_or_else(|| {
            let source = Cause::boxed(origin, "the reply is not a number of tokens");
            ProviderError::Broken { partial: String::new(), source }
        })
    }
}
