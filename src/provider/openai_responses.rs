//! `OpenAI` Responses, streamed and whole, with nothing stored at the server.
//!
//! Encrypted thinking is kept as it came and sent back. The program's own login is one way to be
//! let in, and the body says a little more then ([`crate::provider::codex`]).

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

use posse_actors::ports::Request;

use crate::provider::adapter::Dialect;
use crate::provider::attempt::Body;
use crate::provider::opaque::Owner;
use crate::provider::profile::ProviderProfile;

pub(crate) use crate::provider::openai_responses::encode::ResponsesEncoder;

/// The protocol's name in what is kept of a reply.
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
