//! Decodes a reply from a byte source: a connection or a cassette.
//!
//! The first byte that is not white space decides between a stream, a single JSON object and an
//! HTML page, which is an error; the request does not matter. Silence has two limits: one for
//! bytes, and one for content. Pings and comments are not content.

use std::time::Duration;

use posse_actors::ports::{Completion, Delta, DeltaSender, ProviderError};
use posse_base::failure::printable;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use crate::classify::{self, Cause, bounded};
use crate::draft::ReplyDraft;
use crate::message_origin::MessageOrigin;
use crate::silence_timeout::{Brought, Watch, poll_briefly};
use crate::sse::{SseEvent, SseParser};

/// Maximum size of a reply that is one JSON object, in bytes.
const JSON_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of further chunks, already received, that are joined to a chunk before its deltas
/// are sent.
const CHUNKS_JOINED_MAX: usize = 256;

/// Maximum wait for usage figures, or other events, after the stop reason.
const EPILOGUE: Duration = Duration::from_secs(5);

/// Minimum time between two signs of life ([`Delta::Alive`]) of a reply without visible content.
const PULSE: Duration = Duration::from_secs(1);

/// Source of the bytes of a reply, in chunks of any size.
pub(crate) trait ChunkSource: Send {
    /// Returns the next chunk, `None` at the end of the reply, or the text of an error.
    fn next(&mut self) -> impl Future<Output = Brought> + Send;
}

/// Assembles a reply of one protocol from its events.
pub(crate) trait Assembly: Default + Send {
    /// Adds an event of a stream. `name` is empty if the event has none; `data` is not blank.
    fn event(&mut self, name: &str, data: &str) -> Result<DecodeStep, Fault>;
    /// Adds a reply that came as one JSON object.
    fn add_object(&mut self, json: &str) -> Result<(), Fault>;
    /// Part of the reply that is the same in every protocol, as received so far.
    fn draft(&self) -> &ReplyDraft;
    /// The value of [`Assembly::draft`], for taking the deltas out.
    fn draft_mut(&mut self) -> &mut ReplyDraft;
    /// True after the stop reason: only usage figures can follow.
    fn is_finished(&self) -> bool;
    /// True if any content (text, thinking, a refusal or a call) has begun to arrive.
    fn has_content(&self) -> bool;
    /// Makes the completion. A reply that is incomplete or unusable is a fault.
    fn complete(self) -> Result<Completion, Fault>;
}

/// Effect of an event on the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeStep {
    /// The event does not count as content: it is a ping, is unknown, or adds nothing.
    Nothing,
    /// The event counts as content: it adds text, thinking, a call, usage figures or the stop
    /// reason, or reports progress, such as the end of a block.
    Content,
    /// The reply has ended. Later events are ignored.
    Done,
}

/// Reason why an event, or a reply, is unusable.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server reported an error. The text is its report, usually a JSON object.
    Reported(String),
    /// The data cannot be parsed or applied, with an explanation.
    Malformed(String),
    /// The event or reply exceeds a limit, with an explanation.
    TooLarge(&'static str),
    /// Valid data that is not a complete reply, with an explanation.
    Senseless(&'static str),
    /// The reply ends without content, with an explanation.
    Empty(&'static str),
    /// The reply was cut off because it reached the end of the model's context.
    ContextFull,
}

/// Format of the body: unknown until the first byte that is not white space. `skipped` counts the
/// white space before it.
enum BodyShape {
    Unknown { skipped: u64 },
    Json(Vec<u8>),
    Stream { parser: Box<SseParser>, skipped: u64 },
}

/// Silence limits of a reply. Unrelated to the setting `patience`, which limits retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Maximum time without a byte.
    pub(crate) silence: Duration,
    /// Maximum time without an event that counts as content ([`DecodeStep::Content`]).
    pub(crate) idle: Duration,
}

/// Reads one reply from `source`. Sends its content to `deltas` as it arrives; adjacent content of
/// chunks that arrive together becomes one delta. `deltas` is `None`: sends nothing. After the stop
/// reason, a failed or silent source is no error.
pub(crate) async fn read<A: Assembly>(
    source: &mut impl ChunkSource,
    origin: &MessageOrigin,
    patience: Patience,
    deltas: Option<&DeltaSender>,
) -> Result<Completion, ProviderError> {
    let mut reader = StreamReader {
        origin,
        shape: BodyShape::Unknown { skipped: 0 },
        events: Events::<A>::default(),
    };
    let Patience { silence, idle } = patience;
    let mut watch = Watch::new(silence, idle);
    let mut early = None;
    let mut pulse = Pulse::default();
    loop {
        let next = match early.take() {
            Some(next) => Ok(next),
            None => watch.next(source).await,
        };
        let chunk = match next {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return reader.end(deltas).await,
            Ok(Err(_)) | Err(_) if reader.events.reply.is_finished() => break,
            Ok(Err(what)) => return Err(reader.cut(&what)),
            Err(quiet) => return Err(reader.cut(&quiet.to_string())),
        };
        let mut has_content = match reader.take(&chunk) {
            Ok(has_content) => has_content,
            Err(error) => return Err(counted(&mut reader.events.reply, deltas, error).await),
        };
        // Servers send one event per chunk. Chunks that have arrived are joined into one delta.
        for _ in 0..CHUNKS_JOINED_MAX {
            match poll_briefly(source).await {
                Some(Ok(Some(chunk))) if !reader.events.done => match reader.take(&chunk) {
                    Ok(content) => has_content |= content,
                    Err(error) => {
                        return Err(counted(&mut reader.events.reply, deltas, error).await);
                    }
                },
                next => {
                    early = next;
                    break;
                }
            }
        }
        let shown = send(&mut reader.events.reply, deltas).await;
        if has_content && !shown && matches!(reader.shape, BodyShape::Stream { .. }) {
            pulse.heartbeat(deltas).await;
        }
        if reader.events.done {
            break;
        }
        if has_content {
            watch.extend(if reader.events.reply.is_finished() { idle.min(EPILOGUE) } else { idle });
        }
    }
    reader.complete()
}

/// Sends the pending usage figures of a reply that failed with `error`, drops its other deltas, and
/// returns `error`.
async fn counted(
    reply: &mut impl Assembly,
    deltas: Option<&DeltaSender>,
    error: ProviderError,
) -> ProviderError {
    for delta in reply.draft_mut().deltas.drain(..) {
        if let (Delta::Usage(_), Some(deltas)) = (&delta, deltas) {
            deltas.send(delta).await.ok();
        }
    }
    error
}

/// Sends the new deltas of `reply`. Returns true if one of them is text or thinking, also if
/// `deltas` is `None`.
async fn send(reply: &mut impl Assembly, deltas: Option<&DeltaSender>) -> bool {
    let mut shown = false;
    for delta in reply.draft_mut().deltas.drain(..) {
        shown |= !matches!(delta, Delta::Usage(_));
        let Some(deltas) = deltas else { continue };
        // Usually there is space. Without a receiver the reply is still needed.
        if let Err(TrySendError::Full(delta)) = deltas.try_send(delta) {
            deltas.send(delta).await.ok();
        }
    }
    shown
}

/// Sender of periodic signs of life for a reply without visible content. Holds the time of the last
/// sign; `None`: none was sent.
#[derive(Default)]
struct Pulse(Option<Instant>);

impl Pulse {
    async fn heartbeat(&mut self, deltas: Option<&DeltaSender>) {
        let Some(deltas) = deltas else { return };
        if self.0.is_none_or(|last| last.elapsed() >= PULSE) {
            self.0 = Some(Instant::now());
            deltas.send(Delta::Alive).await.ok();
        }
    }
}

struct StreamReader<'o, A> {
    origin: &'o MessageOrigin,
    shape: BodyShape,
    events: Events<A>,
}

impl<A: Assembly> StreamReader<'_, A> {
    /// Processes one chunk. Returns true if an event in it counts as content or ends the reply. Of
    /// a JSON object, only the first chunk counts.
    fn take(&mut self, chunk: &[u8]) -> Result<bool, ProviderError> {
        let mut chunk = chunk;
        let mut has_content = false;
        if let BodyShape::Unknown { skipped } = &mut self.shape {
            let blank = chunk.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            *skipped += blank as u64;
            chunk = &chunk[blank..];
            let skipped = *skipped;
            match chunk.first() {
                None => return Ok(false),
                Some(b'<') => return Err(classify::foreign_page(self.origin)),
                Some(b'{' | b'[') => self.shape = BodyShape::Json(Vec::new()),
                Some(_) => self.shape = BodyShape::Stream { parser: Box::default(), skipped },
            }
            has_content = matches!(self.shape, BodyShape::Json(_));
        }
        match &mut self.shape {
            BodyShape::Unknown { .. } => Ok(false),
            BodyShape::Json(body) if body.len() + chunk.len() > JSON_BYTES_MAX => {
                Err(self.broken("the reply is larger than 16 MB"))
            }
            BodyShape::Json(body) => {
                body.extend_from_slice(chunk);
                // Only its beginning is a sign of life: an object is sent in one go.
                Ok(has_content)
            }
            BodyShape::Stream { parser, skipped } => {
                let skipped = *skipped;
                let events = &mut self.events;
                events.has_content = false;
                let fed = parser.feed(chunk, &mut |event| events.take(&event));
                if let Some((fault, offset)) = events.fault.take() {
                    return Err(self.fault(fault, offset + skipped));
                }
                match fed {
                    _ if self.events.done => Ok(true),
                    Ok(()) => Ok(self.events.has_content),
                    Err(error) => Err(self.broken(&error.to_string())),
                }
            }
        }
    }

    /// Processes the end of the source: returns the reply, or an error if it is incomplete.
    async fn end(mut self, deltas: Option<&DeltaSender>) -> Result<Completion, ProviderError> {
        match std::mem::replace(&mut self.shape, BodyShape::Unknown { skipped: 0 }) {
            BodyShape::Unknown { .. } => Err(self.empty("the reply is empty")),
            BodyShape::Json(body) => {
                let text = String::from_utf8_lossy(&body);
                if let Err(fault) = self.events.reply.add_object(&text) {
                    return Err(self.fault(fault, 0));
                }
                send(&mut self.events.reply, deltas).await;
                self.complete()
            }
            BodyShape::Stream { .. } if self.events.reply.is_finished() => self.complete(),
            BodyShape::Stream { parser, skipped } => {
                let at = parser.offset() + skipped;
                let what = format!("the stream ended at byte {at} without a final event");
                let source = Cause::boxed(self.origin, self.origin.masked(what));
                Err(ProviderError::Cut { partial: self.partial().to_owned(), source })
            }
        }
    }

    fn complete(self) -> Result<Completion, ProviderError> {
        if !self.events.reply.has_content() && !self.events.reply.is_finished() {
            return Err(self.empty("the stream says that it is done, and nothing else"));
        }
        tracing::debug!(events = self.events.without_content, "events without content");
        let StreamReader { origin, events: Events { reply, .. }, .. } = self;
        let text = reply.draft().text.clone();
        reply.complete().map_err(|fault| explain(origin, &text, fault, None))
    }

    fn fault(&self, fault: Fault, offset: u64) -> ProviderError {
        explain(self.origin, self.partial(), fault, Some(offset))
    }

    /// Error for a connection that failed or fell silent: [`ProviderError::Cut`] if content of a
    /// stream had arrived, else [`ProviderError::Unreachable`].
    fn cut(self, what: &str) -> ProviderError {
        let at = match &self.shape {
            BodyShape::Unknown { skipped } => *skipped,
            BodyShape::Json(body) => body.len() as u64,
            BodyShape::Stream { parser, skipped } => parser.offset() + skipped,
        };
        let what = format!("the reply broke off at byte {at}: {what}");
        let source = Cause::boxed(self.origin, self.origin.masked(printable(&bounded(&what))));
        if self.events.reply.has_content() {
            ProviderError::Cut { partial: self.partial().to_owned(), source }
        } else {
            ProviderError::Unreachable { source }
        }
    }

    /// Text received so far, without thinking and refusal.
    fn partial(&self) -> &str {
        &self.events.reply.draft().text
    }

    fn empty(&self, what: &str) -> ProviderError {
        ProviderError::Empty { source: Cause::boxed(self.origin, what) }
    }

    fn broken(&self, what: &str) -> ProviderError {
        broken(self.origin, self.partial(), what)
    }
}

fn broken(origin: &MessageOrigin, partial: &str, what: &str) -> ProviderError {
    ProviderError::Broken {
        partial: partial.to_owned(),
        source: Cause::boxed(origin, origin.masked(what.to_owned())),
    }
}

/// Converts a fault to the error of the attempt. `offset`: byte offset of the event with the fault;
/// `None`: the fault concerns the whole reply.
fn explain(
    origin: &MessageOrigin,
    partial: &str,
    fault: Fault,
    offset: Option<u64>,
) -> ProviderError {
    let at = offset.map(|offset| format!(" in the event at byte {offset}")).unwrap_or_default();
    match fault {
        Fault::Reported(error) => classify::in_reply(origin, &error),
        Fault::Malformed(what) => {
            let what = printable(&bounded(&what));
            broken(origin, partial, &format!("not a valid reply{at}: {what}"))
        }
        Fault::TooLarge(what) => broken(origin, partial, &format!("{what}{at}")),
        Fault::Senseless(what) => broken(origin, partial, what),
        Fault::Empty(what) => ProviderError::Empty { source: Cause::boxed(origin, what) },
        Fault::ContextFull => {
            let what = "the reply was cut off where the model's context ends";
            ProviderError::ContextFull { source: Cause::boxed(origin, what) }
        }
    }
}

/// Reply that is being assembled, and the state of its stream of events.
#[derive(Default)]
struct Events<A> {
    reply: A,
    /// Number of events that do not count as content, for the log.
    without_content: u64,
    /// True if the server announced the end of the reply.
    done: bool,
    /// True if an event of the current chunk counts as content.
    has_content: bool,
    fault: Option<(Fault, u64)>,
}

impl<A: Assembly> Events<A> {
    fn take(&mut self, event: &SseEvent<'_>) {
        if self.done || self.fault.is_some() {
            return;
        }
        let data = event.data.trim();
        if data.is_empty() {
            return;
        }
        match self.reply.event(&event.name, data) {
            // An event named error is an error, independent of its content.
            Ok(_) | Err(Fault::Malformed(_)) if event.name == "error" => {
                self.fault = Some((Fault::Reported(data.to_owned()), event.offset));
            }
            Ok(DecodeStep::Done) => self.done = true,
            Ok(DecodeStep::Content) => self.has_content = true,
            Ok(DecodeStep::Nothing) => self.without_content += 1,
            Err(fault) => self.fault = Some((fault, event.offset)),
        }
    }
}
