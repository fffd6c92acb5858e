//! Chat Completions dialect, streamed and whole.
//!
//! Differences between vendors are in the profile. Data that a vendor requires again with a call,
//! such as signed thinking, is kept and sent back unchanged.

pub(crate) mod encode;
mod frame;
pub(crate) mod reply;
mod wire;

use posse_actors::ports::Request;

use crate::adapter::Dialect;
use crate::attempt::Body;
use crate::opaque::Owner;
use crate::profile::ProviderProfile;

pub(crate) use crate::openai_compatible::encode::ChatEncoder;

/// Name of the protocol in opaque parts of a reply.
pub(crate) const PROTOCOL: &str = "openai-compatible";

impl Dialect for ChatEncoder {
    const PROTOCOL: &'static str = PROTOCOL;

    type Reply = reply::ChatReply;

    fn new(profile: &ProviderProfile, owner: Owner) -> ChatEncoder {
        ChatEncoder::new(profile, owner)
    }

    fn encode(&self, request: &Request, stream: bool) -> Result<Body, String> {
        ChatEncoder::encode(self, request, stream)
    }
}

#[cfg(test)]
mod tests;
