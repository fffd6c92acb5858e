//! Reads a reply from whatever brings its bytes: a connection, or a cassette.
//!
//! Whether it is a stream or one JSON object is decided by its first byte, not by what was asked
//! for. Silence is measured between pieces of content: pings and comments do not count.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use posse_actors::ports::{Completion, Delta, DeltaSender, ProviderError};
use tokio::time::{Instant, timeout_at};

use crate::failure::printable;
use crate::provider::http::Origin;
use crate::provider::openai_compatible::classify::{self, Cause, bounded};
use crate::provider::openai_compatible::reply::{Fault, Mode, Reply};
use crate::provider::sse::{SseEvent, SseParser};

/// Bytes of a reply that is one JSON object.
const JSON_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Chunks that become one delta, if they have arrived together.
const CHUNKS_JOINED_MAX: usize = 256;

/// How long to wait for the figures that may follow the end of the content.
const EPILOGUE: Duration = Duration::from_secs(5);

/// Between two signs of life of a reply of which there is nothing to show.
const PULSE: Duration = Duration::from_secs(1);

/// Brings the bytes of a reply, in chunks of any size.
pub(crate) trait Source: Send {
    /// The next chunk, or `None` at the end, or why there is none.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, String>> + Send;
}

/// What the bytes turned out to be.
enum Shape {
    Unknown { skipped: u64 },
    Json(Vec<u8>),
    Stream { parser: Box<SseParser>, skipped: u64 },
}

/// Reads the reply that `source` brings. Deltas go out as they come, one per chunk and kind.
pub(crate) async fn read(
    source: &mut impl Source,
    origin: &Origin,
    idle: Duration,
    deltas: Option<&DeltaSender>,
) -> Result<Completion, ProviderError> {
    let mut reader = Reader {
        origin,
        reply: Reply::default(),
        shape: Shape::Unknown { skipped: 0 },
        done: false,
        without_content: 0,
    };
    let mut deadline = Instant::now() + idle;
    let mut early = None;
    let mut pulse = Pulse::default();
    loop {
        let next = match early.take() {
            Some(next) => Ok(next),
            None => timeout_at(deadline, source.next()).await,
        };
        let chunk = match next {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return reader.end(deltas).await,
            Ok(Err(_)) | Err(_) if reader.reply.is_finished() => break,
            Ok(Err(what)) => return Err(reader.cut(&what)),
            Err(_) => {
                let what = format!("no content for {} s", idle.as_secs_f64());
                return Err(reader.cut(&what));
            }
        };
        let mut has_content = reader.take(&chunk)?;
        // Servers send an event a chunk. What has arrived already goes out as one delta.
        for _ in 0..CHUNKS_JOINED_MAX {
            match source.next().now_or_never() {
                Some(Ok(Some(chunk))) if !reader.done => has_content |= reader.take(&chunk)?,
                next => {
                    early = next;
                    break;
                }
            }
        }
        let shown = send(&mut reader.reply, deltas).await;
        if has_content && !shown && matches!(reader.shape, Shape::Stream { .. }) {
            pulse.beat(deltas).await;
        }
        if reader.done {
            break;
        }
        if has_content {
            // After sending: a slow reader of deltas is not a silent server.
            let patience = if reader.reply.is_finished() { idle.min(EPILOGUE) } else { idle };
            deadline = Instant::now() + patience;
        }
    }
    reader.complete()
}

/// Returns whether there was anything to show.
async fn send(reply: &mut Reply, deltas: Option<&DeltaSender>) -> bool {
    let mut shown = false;
    for delta in reply.take_deltas() {
        shown = true;
        if let Some(deltas) = deltas {
            // Nobody listens any more: the reply is still wanted.
            deltas.send(delta).await.ok();
        }
    }
    shown
}

/// Tells that a reply arrives of which there is nothing to show, now and then.
#[derive(Default)]
struct Pulse(Option<Instant>);

impl Pulse {
    async fn beat(&mut self, deltas: Option<&DeltaSender>) {
        let Some(deltas) = deltas else { return };
        if self.0.is_none_or(|last| last.elapsed() >= PULSE) {
            self.0 = Some(Instant::now());
            deltas.send(Delta::Alive).await.ok();
        }
    }
}

struct Reader<'o> {
    origin: &'o Origin,
    reply: Reply,
    shape: Shape,
    /// The server said that nothing follows.
    done: bool,
    /// Events in which there was nothing to know.
    without_content: u64,
}

impl Reader<'_> {
    /// Reads one chunk. Returns whether there was content in it.
    fn take(&mut self, chunk: &[u8]) -> Result<bool, ProviderError> {
        let mut chunk = chunk;
        let mut has_content = false;
        if let Shape::Unknown { skipped } = &mut self.shape {
            let blank = chunk.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            *skipped += blank as u64;
            chunk = &chunk[blank..];
            let skipped = *skipped;
            match chunk.first() {
                None => return Ok(false),
                Some(b'<') => return Err(classify::not_the_provider(self.origin)),
                Some(b'{' | b'[') => self.shape = Shape::Json(Vec::new()),
                Some(_) => self.shape = Shape::Stream { parser: Box::default(), skipped },
            }
            has_content = matches!(self.shape, Shape::Json(_));
        }
        match &mut self.shape {
            Shape::Unknown { .. } => Ok(false),
            Shape::Json(body) if body.len() + chunk.len() > JSON_BYTES_MAX => {
                Err(self.broken("the reply is larger than 16 MB"))
            }
            Shape::Json(body) => {
                body.extend_from_slice(chunk);
                // Only its beginning is a sign of life: an object is sent in one go.
                Ok(has_content)
            }
            Shape::Stream { parser, skipped } => {
                let skipped = *skipped;
                let mut state = Events {
                    reply: &mut self.reply,
                    without_content: &mut self.without_content,
                    done: self.done,
                    has_content: false,
                    fault: None,
                };
                let fed = parser.feed(chunk, &mut |event| state.take(&event));
                let Events { done, has_content, fault, .. } = state;
                self.done = done;
                if let Some((fault, offset)) = fault {
                    return Err(self.fault(fault, offset + skipped));
                }
                match fed {
                    _ if done => Ok(true),
                    Ok(()) => Ok(has_content),
                    Err(error) => Err(self.broken(&error.to_string())),
                }
            }
        }
    }

    /// The source has no more.
    async fn end(mut self, deltas: Option<&DeltaSender>) -> Result<Completion, ProviderError> {
        match std::mem::replace(&mut self.shape, Shape::Unknown { skipped: 0 }) {
            Shape::Unknown { .. } => Err(self.broken("the reply is empty")),
            Shape::Json(body) => {
                let text = String::from_utf8_lossy(&body);
                if let Err(fault) = self.reply.add(&text, Mode::Whole) {
                    return Err(self.fault(fault, 0));
                }
                if !self.reply.has_choice() {
                    return Err(self.broken("the reply has no choices"));
                }
                send(&mut self.reply, deltas).await;
                self.complete()
            }
            Shape::Stream { .. } if self.reply.is_finished() => self.complete(),
            Shape::Stream { parser, skipped } => {
                let at = parser.offset() + skipped;
                let what = format!("the stream ended at byte {at} without a final event");
                let source = Cause::boxed(self.origin, self.origin.masked(what));
                Err(ProviderError::Cut { partial: self.reply.into_text(), source })
            }
        }
    }

    fn complete(self) -> Result<Completion, ProviderError> {
        if !self.reply.has_content() && !self.reply.is_finished() {
            return Err(self.broken("the stream says that it is done, and nothing else"));
        }
        tracing::debug!(events = self.without_content, "events without content");
        Ok(self.reply.complete())
    }

    fn fault(&mut self, fault: Fault, offset: u64) -> ProviderError {
        match fault {
            Fault::Reported(error) => classify::in_reply(self.origin, &error),
            Fault::Malformed(what) => {
                let what = printable(&bounded(&what));
                self.broken(&format!("not a valid reply in the event at byte {offset}: {what}"))
            }
            Fault::TooLarge(what) => self.broken(&format!("{what} (event at byte {offset})")),
        }
    }

    /// The connection failed while the reply was on its way.
    fn cut(self, what: &str) -> ProviderError {
        let at = match &self.shape {
            Shape::Unknown { skipped } => *skipped,
            Shape::Json(body) => body.len() as u64,
            Shape::Stream { parser, skipped } => parser.offset() + skipped,
        };
        let what = format!("the reply broke off at byte {at}: {what}");
        let source = Cause::boxed(self.origin, self.origin.masked(printable(&bounded(&what))));
        if self.reply.has_content() {
            ProviderError::Cut { partial: self.reply.into_text(), source }
        } else {
            ProviderError::Unreachable { source }
        }
    }

    fn broken(&self, what: &str) -> ProviderError {
        ProviderError::Broken {
            partial: self.reply.text().to_owned(),
            source: Cause::boxed(self.origin, self.origin.masked(what.to_owned())),
        }
    }
}

/// What the events of one chunk do.
struct Events<'r> {
    reply: &'r mut Reply,
    without_content: &'r mut u64,
    done: bool,
    has_content: bool,
    fault: Option<(Fault, u64)>,
}

impl Events<'_> {
    fn take(&mut self, event: &SseEvent<'_>) {
        if self.done || self.fault.is_some() {
            return;
        }
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return;
        }
        if data.is_empty() {
            return;
        }
        match self.reply.add(data, Mode::Stream) {
            // An event that is called an error is one, whatever it looks like inside.
            Ok(_) | Err(Fault::Malformed(_)) if event.name == "error" => {
                self.fault = Some((Fault::Reported(data.to_owned()), event.offset));
            }
            Ok(true) => self.has_content = true,
            Ok(false) => *self.without_content += 1,
            Err(fault) => self.fault = Some((fault, event.offset)),
        }
    }
}
