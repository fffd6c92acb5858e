//! Models, reached over HTTP or read from a cassette.
//!
//! Vendors are data: a [`profile::Profile`] says everything that differs between two servers of
//! the same protocol, and [`presets`] has the well-known ones. Nothing here retries.

pub mod presets;
pub mod profile;
pub mod reach;
pub mod replay;
pub mod sse;

mod http;
mod openai_compatible;
mod tls;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use posse_actors::ports::Provider;

use crate::failure::Failure;
use crate::provider::openai_compatible::OpenAiCompatible;
use crate::provider::profile::Profile;

/// A provider that speaks Chat Completions to the server of `profile`.
///
/// Opens nothing: the connection is made by the first request. For `https:` the platform's root
/// certificates begin to load beside whatever the caller does next.
pub fn openai_compatible(profile: Profile) -> Result<Arc<dyn Provider>, Failure> {
    Ok(Arc::new(OpenAiCompatible::new(profile)?))
}
