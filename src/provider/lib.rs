//! Model providers over HTTP or from a cassette.
//!
//! Vendors are data: a [`profile::ProviderProfile`] contains all differences between servers of the
//! same protocol, and [`presets`] contains defaults for well-known vendors. Adapters never retry,
//! except once with renewed tokens of a login, or without thinking if the server refuses that of the
//! history.

pub mod connectivity;
pub mod presets;
pub mod profile;
pub mod replay;
pub mod sse;
pub mod thinking;
pub mod window;

mod adapter;
mod anthropic;
mod body;
mod classify;
pub mod codex;
mod decode;
mod draft;
mod encoded_history;
mod encoder;
mod http;
mod images;
mod lenient_json;
mod message_origin;
mod opaque;
mod openai_compatible;
mod openai_responses;
mod proxy;
mod quirks;
mod sanitize;
mod silence_timeout;
mod tls;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use posse_actors::ports::Provider;
use posse_base::failure::Failure;

use crate::adapter::Adapter;
use crate::profile::{Protocol, ProviderProfile};

/// Provider for the server of `profile` in its protocol.
///
/// Opens no connection: the first request does. Fails if the address, a header or the key is
/// invalid, or a required key is missing. For `https:` the platform's root certificates start
/// loading in the background.
pub fn connect(profile: ProviderProfile) -> Result<Arc<dyn Provider>, Failure> {
    Ok(match profile.protocol {
        Protocol::ChatCompletions => {
            Arc::new(Adapter::<openai_compatible::encode::ChatDialect>::new(profile)?)
        }
        Protocol::Responses | Protocol::Codex => {
            Arc::new(Adapter::<openai_responses::encode::ResponsesDialect>::new(profile)?)
        }
        Protocol::Messages => {
            Arc::new(Adapter::<anthropic::encode::MessagesDialect>::new(profile)?)
        }
    })
}
