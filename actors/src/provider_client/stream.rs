//! Deltas of one attempt on their way to observers: joined, so that a fast model costs a few
//! dozen events a second and not thousands, and remembered, in case the reply breaks off.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::ports::{Clock, Delta};
use crate::provider_client::{RequestMeter, millis};
use crate::transcript_writer::Transcript;

/// Visible text that is kept of a reply that breaks off; the rest was seen, and is not stored.
const DRAFT_BYTES_MAX: usize = 1 << 20;

/// Visible text of a reply that is still arriving. Held by invocation and attempt: it survives a
/// crash of the client, and taking the text silences the attempt.
#[derive(Clone, Default)]
pub(crate) struct PartialReply(Arc<Guarded<Arriving>>);

#[derive(Default)]
struct Arriving {
    attempt: u32,
    text: String,
    /// Cost counter of the request.
    meter: Option<RequestMeter>,
}

/// Write access of one attempt to a [`PartialReply`]. Becomes a no-op when a newer attempt starts
/// or the text is taken.
pub(crate) struct PartialReplyWriter {
    draft: PartialReply,
    attempt: u32,
}

impl PartialReply {
    /// Takes the text so far. Nothing is added after that.
    pub(crate) fn take(&self) -> String {
        let mut arriving = self.0.lock();
        arriving.attempt += 1;
        std::mem::take(&mut arriving.text)
    }

    /// Takes what counts the attempt, which ends here.
    pub(crate) fn take_meter(&self) -> Option<RequestMeter> {
        self.0.lock().meter.take()
    }

    /// Begins another attempt, which `meter` counts.
    pub(crate) fn begin(&self, meter: RequestMeter) -> PartialReplyWriter {
        let mut arriving = self.0.lock();
        arriving.attempt += 1;
        arriving.text.clear();
        arriving.meter = Some(meter);
        PartialReplyWriter { draft: self.clone(), attempt: arriving.attempt }
    }

    /// Sets `text` if nothing was streamed.
    pub(crate) fn or(&self, text: &str) {
        let mut arriving = self.0.lock();
        if arriving.text.is_empty() {
            arriving.text.push_str(&text[..text.floor_char_boundary(DRAFT_BYTES_MAX)]);
        }
    }
}

impl PartialReplyWriter {
    fn write(&self, text: &str) {
        let mut arriving = self.draft.0.lock();
        if arriving.attempt == self.attempt {
            let room = DRAFT_BYTES_MAX.saturating_sub(arriving.text.len());
            arriving.text.push_str(&text[..text.floor_char_boundary(room)]);
        }
    }

    /// Calls `announce` unless the attempt was superseded.
    fn announce(&self, announce: impl FnOnce()) {
        let arriving = self.draft.0.lock();
        if arriving.attempt == self.attempt {
            announce();
        }
    }
}

/// Data of a relay.
pub(crate) struct Relay {
    pub(crate) transcript: Transcript,
    pub(crate) origin: Arc<Origin>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interval: Duration,
    pub(crate) pen: PartialReplyWriter,
    pub(crate) meter: RequestMeter,
    /// Name of the provider profile.
    pub(crate) profile: String,
    /// Duration of silence after which the user is informed.
    pub(crate) silence_hint: Option<Duration>,
}

/// Turns deltas into events, one per `interval` at most and one of each kind at the end. Calls
/// `alive` at the first that the server sent.
pub(crate) async fn forward_deltas(
    mut deltas: mpsc::Receiver<Delta>,
    relay: Relay,
    alive: impl FnOnce() + Send,
) {
    let mut alive = Some(alive);
    let mut hear = |delta: &Delta| {
        // A notice comes from posse, so it is no sign of life of the server.
        if let Some(alive) = alive.take_if(|_| !matches!(delta, Delta::Notice(_))) {
            alive();
        }
    };
    let mut waiting = UnannouncedDeltas::default();
    while let Some(delta) = relay.first(&mut deltas).await {
        hear(&delta);
        waiting.collect(delta, &relay);
        if waiting.is_empty() {
            continue;
        }
        let mut pause = relay.clock.sleep(relay.interval);
        loop {
            tokio::select! {
                biased;
                delta = deltas.recv() => match delta {
                    Some(delta) => {
                        hear(&delta);
                        waiting.collect(delta, &relay);
                    }
                    None => break,
                },
                () = &mut pause => break,
            }
        }
        let Relay { transcript, origin, .. } = &relay;
        relay.pen.announce(|| waiting.flush(transcript, origin));
    }
}

impl Relay {
    /// Next delta. Announces long silence.
    async fn first(&self, deltas: &mut mpsc::Receiver<Delta>) -> Option<Delta> {
        let Some(hint) = self.silence_hint else { return deltas.recv().await };
        let began = self.clock.monotonic();
        loop {
            let pause = self.clock.sleep(hint);
            tokio::select! {
                biased;
                delta = deltas.recv() => return delta,
                () = pause => {
                    let silent_ms = millis(self.clock.monotonic().saturating_sub(began));
                    let event =
                        Event::ProviderSilent { provider: self.profile.clone(), silent_ms };
                    self.pen.announce(|| self.transcript.note(Some(&self.origin), event));
                }
            }
        }
    }
}

/// Deltas that have arrived and were not announced yet.
#[derive(Default)]
struct UnannouncedDeltas {
    notices: Vec<String>,
    thinking: String,
    text: String,
}

impl UnannouncedDeltas {
    fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.thinking.is_empty() && self.text.is_empty()
    }

    fn collect(&mut self, delta: Delta, relay: &Relay) {
        match delta {
            Delta::Text(piece) => {
                relay.pen.write(&piece);
                self.text.push_str(&piece);
            }
            Delta::Thinking(piece) => self.thinking.push_str(&piece),
            Delta::Notice(line) => self.notices.push(line),
            Delta::Usage(usage) => relay.meter.observe_usage(usage),
            Delta::Alive => {}
        }
    }

    fn flush(&mut self, transcript: &Transcript, origin: &Arc<Origin>) {
        for message in self.notices.drain(..) {
            transcript.note(Some(origin), Event::Warning { message });
        }
        if !self.thinking.is_empty() {
            let text = std::mem::take(&mut self.thinking);
            transcript.note(Some(origin), Event::ThinkingDelta { text });
        }
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            transcript.note(Some(origin), Event::TextDelta { text });
        }
    }
}
