//! A provider that answers from a cassette, and one that writes cassettes.
//!
//! Only the model is recorded: the bytes of a reply go through the same decoder as those of a
//! connection, in the chunks in which they were recorded.
//!
//! A cassette is JSON lines. The first says `{"cassette":1,"model":…}`; each of the others is an
//! exchange: a key of the request, and the reply in the form of Chat Completions, as the text of an
//! event stream in chunks (`sse`) or as a completion object (`json`). The exchange of a second
//! request looks like this:
//!
//! ```json
//! {"request": {"tools": ["read_file"], "messages": [
//!    "system",
//!    {"user": "fix the test"},
//!    {"assistant": {"text": "I will look.", "calls": [
//!      {"name": "read_file", "arguments": {"path": "${WORKSPACE}/a.rs"}}]}},
//!    {"tool": {"name": "read_file", "isError": false}}]},
//!  "reply": {"sse": ["data: {…}\n\n", "data: [DONE]\n\n"]}}
//! ```
//!
//! The key contains the data on which a model would base its answer and which does not differ
//! between machines: the messages in the user's role, the texts and calls of the assistant, the
//! names of the tools that returned a result, and the names of the tools that are offered. It
//! contains no ids, no system text, and no *output* of tools, which is full of durations and
//! temporary paths. The workspace's path is written as `${WORKSPACE}`, in keys and in replies.
//!
//! An exchange answers one request. If a request is repeated more often than it was recorded, the
//! last exchange with its key answers again. A request without a matching exchange is rejected.
//!
//! If a session can use several models, each exchange names its provider and model (`asked`), and a
//! failed request is an exchange as well (`error`), so that failovers are replayed too. A provider
//! whose name is in the cassette replays only its own exchanges. A provider with any other name
//! replays all exchanges except failures.

mod key;
mod recorder;

pub use recorder::{Conceal, Tape};

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use posse_actors::conversation::{Reasoning, Usage};
use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};
use posse_base::failure::{ErrorCode, Exit, Failure};
use serde::{Deserialize, Serialize};

use crate::classify;
use crate::decode::{self, ChunkSource, Patience};
use crate::message_origin::MessageOrigin;
use crate::openai_compatible::reply::ChatReply;
use crate::replay::key::CassetteKey;
use crate::silence_timeout::Brought;

/// Placeholder for the path of the workspace in a cassette.
pub const WORKSPACE: &str = "${WORKSPACE}";

/// Maximum size of a cassette in bytes.
const CASSETTE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Silence limits that the decoder requires. A cassette is never silent, so they are not reached.
const PATIENCE: Patience =
    Patience { silence: Duration::from_mins(1), idle: Duration::from_mins(1) };

/// Version of the cassette format.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    cassette: u32,
    model: String,
}

/// Provider and model that an exchange was recorded from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Voice {
    provider: String,
    model: String,
}

#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize)]
struct Exchange {
    /// Provider and model that were asked. `None`: the session could use only one.
    asked: Option<Voice>,
    request: CassetteKey,
    reply: RecordedReply,
    /// Reply data that a Chat Completions stream cannot express. `None` in hand-written cassettes.
    kept: Option<OpaqueReply>,
}

/// Reply data that depends on the dialect: signed and encrypted thinking, and all usage figures.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OpaqueReply {
    reasoning: Option<Reasoning>,
    usage: Option<Usage>,
}

impl OpaqueReply {
    /// Copy with `from` replaced by `to` in all texts. `None`: the copy is not valid.
    fn with(&self, from: &str, to: &str) -> Option<OpaqueReply> {
        let json = serde_json::to_string(self).ok()?;
        serde_json::from_str(&json.replace(from, to)).ok()
    }
}

/// Recorded result of an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RecordedReply {
    /// The text of an event stream, one string per chunk.
    Sse(Vec<String>),
    /// A reply that is one completion object.
    Json(Box<serde_json::value::RawValue>),
    /// No reply: the attempt failed with this error.
    Error(RecordedError),
}

/// Recorded error of an attempt, as the class and cause of a [`ProviderError`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedError {
    class: String,
    cause: String,
    /// Wait that the server requested, in milliseconds. `None` if it requested none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl RecordedError {
    fn of(error: &ProviderError) -> RecordedError {
        let wait = match error {
            ProviderError::Overloaded { retry_after, .. }
            | ProviderError::RateLimited { retry_after, .. }
            | ProviderError::QuotaExhausted { retry_after, .. } => *retry_after,
            _ => None,
        };
        let retry_after_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        RecordedError { class: error.class().to_owned(), cause: error.reason(), retry_after_ms }
    }

    fn again(self) -> ProviderError {
        let mut error = ProviderError::of_class(&self.class, self.cause.into());
        if let ProviderError::Overloaded { retry_after, .. }
        | ProviderError::RateLimited { retry_after, .. }
        | ProviderError::QuotaExhausted { retry_after, .. } = &mut error
        {
            *retry_after = self.retry_after_ms.map(Duration::from_millis);
        }
        error
    }
}

/// Creates the provider `name`, which answers from the cassette in `file`.
///
/// In replies, `workspace` replaces `${WORKSPACE}`. Fails if the file cannot be read, is larger
/// than 64 MB, or is not a cassette ([`from_text`]).
pub fn open(name: &str, file: &Path, workspace: &Path) -> Result<Arc<dyn Provider>, Failure> {
    let text = read(file).map_err(|reason| {
        let what = format!("cannot read the cassette: {reason}");
        Failure::new(ErrorCode::CassetteUnreadable, Exit::Configuration, what)
            .at(file.display().to_string())
    })?;
    from_text(name, &file.display().to_string(), &text, workspace)
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let opened = fs::File::open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    opened.take(CASSETTE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CASSETTE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 64 MB"));
    }
    Ok(text)
}

/// Creates the provider `name` from the text of a cassette. `file` is the cassette's name in
/// messages. Fails if a line is invalid, the version is unknown, or the path `workspace` has
/// quotes, backslashes or control characters.
pub fn from_text(
    name: &str,
    file: &str,
    text: &str,
    workspace: &Path,
) -> Result<Arc<dyn Provider>, Failure> {
    let wrong = |line: usize, what: &dyn fmt::Display| {
        let what = format!("not a cassette: {what}");
        Failure::new(ErrorCode::CassetteInvalid, Exit::Configuration, what)
            .at(format!("{file}:{line}"))
    };
    let mut lines =
        text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, l)| !l.is_empty());
    let Some((at, first)) = lines.next() else { return Err(wrong(1, &"it is empty")) };
    let header: Header = serde_json::from_str(first).map_err(|error| wrong(at, &error))?;
    if header.cassette != VERSION {
        let what = format!("version {} is not known here", header.cassette);
        return Err(wrong(at, &what));
    }
    let workspace = workspace.to_string_lossy().into_owned();
    if workspace.contains(['"', '\\']) || workspace.contains(char::is_control) {
        return Err(wrong(at, &"the workspace's path has quotes or control characters"));
    }
    let mut exchanges = Vec::new();
    for (at, line) in lines {
        let exchange: Exchange = serde_json::from_str(line).map_err(|error| wrong(at, &error))?;
        exchanges.push((exchange, false));
    }
    let model = choose_voice(name, &mut exchanges).unwrap_or(header.model);
    Ok(Arc::new(ReplayProvider(Arc::new(ReplayState {
        origin: MessageOrigin::new(name, format!("cassette:{file}")),
        model,
        workspace,
        exchanges: Mutex::new(exchanges),
    }))))
}

/// Removes the exchanges of all providers except `name`, and returns the model of `name`. If there
/// are none of `name`, removes only failures, and returns `None`.
fn choose_voice(name: &str, exchanges: &mut Vec<(Exchange, bool)>) -> Option<String> {
    let is_theirs =
        |exchange: &Exchange| exchange.asked.as_ref().is_some_and(|asked| asked.provider == name);
    let own = exchanges.iter().find(|(exchange, _)| is_theirs(exchange));
    let model = own.and_then(|(exchange, _)| Some(exchange.asked.as_ref()?.model.clone()));
    match model {
        Some(_) => exchanges.retain(|(exchange, _)| is_theirs(exchange)),
        None => {
            exchanges.retain(|(exchange, _)| !matches!(exchange.reply, RecordedReply::Error(_)));
        }
    }
    model
}

#[derive(Debug)]
struct ReplayProvider(Arc<ReplayState>);

#[derive(Debug)]
struct ReplayState {
    origin: MessageOrigin,
    model: String,
    workspace: String,
    /// The exchanges, each with a flag: true if it has answered a request.
    exchanges: Mutex<Vec<(Exchange, bool)>>,
}

impl Provider for ReplayProvider {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            profile: self.0.origin.profile.clone(),
            model: self.0.model.clone(),
            endpoint: self.0.origin.address.clone(),
        }
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (chunks, kept) = shared.find(&request)?;
            let mut tape = Chunks(chunks);
            let wanted = request.stream.then_some(&deltas);
            let reply =
                decode::read::<ChatReply>(&mut tape, &shared.origin, PATIENCE, wanted).await;
            let mut reply = reply?;
            if let Some(OpaqueReply { reasoning, usage }) = kept {
                (reply.message.reasoning, reply.usage) = (reasoning, usage);
            }
            Ok(reply)
        })
    }
}

impl ReplayState {
    fn find(
        &self,
        request: &Request,
    ) -> Result<(VecDeque<Bytes>, Option<OpaqueReply>), ProviderError> {
        let key = CassetteKey::of(request, &self.workspace);
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |exchange: &Exchange| exchange.request.answers(&key);
        let at = exchanges
            .iter()
            .position(|(exchange, used)| !used && fits(exchange))
            .or_else(|| exchanges.iter().rposition(|(exchange, _)| fits(exchange)));
        let Some(at) = at else {
            let next = exchanges.iter().find(|(_, used)| !used).map(|(exchange, _)| exchange);
            let what = match next {
                Some(next) => next.request.difference(&key),
                None => {
                    "it has no further exchange; the request continues after the last".to_owned()
                }
            };
            let what = format!("no exchange of the cassette fits the request: {what}");
            return Err(classify::rejected(&self.origin, what));
        };
        let (exchange, used) = &mut exchanges[at];
        *used = true;
        let localised = |text: &str| Bytes::from(text.replace(WORKSPACE, &self.workspace));
        let chunks = match &exchange.reply {
            RecordedReply::Sse(chunks) => chunks.iter().map(|chunk| localised(chunk)).collect(),
            RecordedReply::Json(object) => [localised(object.get())].into(),
            RecordedReply::Error(error) => return Err(error.clone().again()),
        };
        let kept = exchange.kept.as_ref().and_then(|kept| kept.with(WORKSPACE, &self.workspace));
        Ok((chunks, kept))
    }
}

/// The chunks of a recorded reply.
struct Chunks(VecDeque<Bytes>);

impl ChunkSource for Chunks {
    async fn next(&mut self) -> Brought {
        // Recorded chunks arrive one by one, as those of a connection do.
        tokio::task::yield_now().await;
        Ok(self.0.pop_front())
    }
}

#[cfg(test)]
mod tests;
