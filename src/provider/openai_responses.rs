//! `OpenAI` Responses dialect, streamed and whole, without server-side storage.
//!
//! Encrypted thinking is kept and sent back unchanged. With the login of the Codex program the body
//! contains some further fields ([`crate::codex`]).

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

use posse_actors::ports::Request;

use crate::adapter::Dialect;
use crate::attempt::Body;
use crate::opaque::Owner;
use crate::profile::ProviderProfile;

pub(crate) use crate::openai_responses::encode::ResponsesEncoder;

/// Name of the protocol in opaque parts of a reply.
pub(crate) const PROTOCOL: &str = "openai-responses";

impl Dialect for ResponsesEncoder {
    const PROTOCOL: &'static str = PROTOCOL;

    type Reply = reply::ResponsesReply;

    fn new(profile: &ProviderProfile, owner: Owner) -> ResponsesEncoder {
        ResponsesEncoder::new(profile, owner)
    }

    fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        ResponsesEncoder::encode(self, request, stream)
    }
}

#[cfg(test)]
mod tests;
