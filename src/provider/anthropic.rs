//! Anthropic Messages, streamed and whole.
//!
//! Signed thinking is kept as it came and sent back; the places up to which a prompt may be cached
//! are marked.

pub(crate) mod encode;
pub(crate) mod reply;
mod wire;

use posse_actors::ports::Request;

use crate::adapter::Dialect;
use crate::attempt::Body;
use crate::opaque::Owner;
use crate::profile::ProviderProfile;

pub(crate) use crate::anthropic::encode::AnthropicEncoder;

/// Name of the protocol in opaque parts of a reply.
pub(crate) const PROTOCOL: &str = "anthropic";

impl Dialect for AnthropicEncoder {
    const PROTOCOL: &'static str = PROTOCOL;

    type Reply = reply::AnthropicReply;

    fn new(profile: &ProviderProfile, owner: Owner) -> AnthropicEncoder {
        AnthropicEncoder::new(profile, owner)
    }

    fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        AnthropicEncoder::encode(self, request, stream)
    }

    const COUNTING: Option<&'static str> = Some("/count_tokens");

    fn encode_for_counting(&self, request: &Request) -> Result<Body, String> {
        AnthropicEncoder::encode_for_counting(self, request)
    }
}

#[cfg(test)]
mod tests;
