//! Relay of the deltas of one attempt to observers. Deltas are joined, so that a fast model causes
//! a few dozen events per second instead of thousands, and the visible text is kept in case the
//! reply is cut off.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::ports::{Clock, Delta, ProviderError};
use crate::provider_client::repetition::{Repetition, RepetitionDetector};
use crate::provider_client::{RequestMeter, millis};
use crate::transcript_writer::Transcript;

/// Maximum bytes of the visible text that is kept of an arriving reply; further text is announced
/// and not kept.
const DRAFT_BYTES_MAX: usize = 1 << 20;

/// Visible text of a reply that is still arriving, shared by invocation and attempt. It survives a
/// crash of the client. Once the text is taken, the attempt can neither add text nor announce
/// deltas.
#[derive(Clone, Default)]
pub(crate) struct PartialReply(Arc<Guarded<Arriving>>);

#[derive(Default)]
struct Arriving {
    attempt: u32,
    text: String,
    /// Accounting of the current attempt; `None` before the first attempt, and after
    /// [`take_meter`](PartialReply::take_meter).
    meter: Option<RequestMeter>,
}

/// Write access of one attempt to a [`PartialReply`]. It has no effect any more when a newer
/// attempt starts or the text is taken.
pub(crate) struct PartialReplyWriter {
    draft: PartialReply,
    attempt: u32,
}

impl PartialReply {
    /// Takes the text so far, and ends the write access of the current attempt.
    pub(crate) fn take(&self) -> String {
        let mut arriving = self.0.lock();
        arriving.attempt += 1;
        std::mem::take(&mut arriving.text)
    }

    /// Takes the accounting of the current attempt, which ends here; `None` if it was taken
    /// already.
    pub(crate) fn take_meter(&self) -> Option<RequestMeter> {
        self.0.lock().meter.take()
    }

    /// Begins a new attempt with the accounting `meter`, and discards the text of the previous one.
    pub(crate) fn begin(&self, meter: RequestMeter) -> PartialReplyWriter {
        let mut arriving = self.0.lock();
        arriving.attempt += 1;
        arriving.text.clear();
        arriving.meter = Some(meter);
        PartialReplyWriter { draft: self.clone(), attempt: arriving.attempt }
    }

    /// Sets the kept text to `text` if nothing is kept so far, because nothing was streamed.
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

    /// Calls `announce`, unless a newer attempt has started or the text was taken.
    fn announce(&self, announce: impl FnOnce()) {
        let arriving = self.draft.0.lock();
        if arriving.attempt == self.attempt {
            announce();
        }
    }
}

/// Arguments for relaying the deltas of one attempt.
pub(crate) struct Relay {
    pub(crate) transcript: Transcript,
    pub(crate) origin: Arc<Origin>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interval: Duration,
    pub(crate) pen: PartialReplyWriter,
    pub(crate) meter: RequestMeter,
    /// Name of the provider profile.
    pub(crate) profile: String,
    /// Duration of silence after which the user is informed; `None`: never.
    pub(crate) silence_hint: Option<Duration>,
}

/// Detectors for the two texts of a reply.
#[derive(Default)]
struct RepetitionCheck {
    text: RepetitionDetector,
    thinking: RepetitionDetector,
}

impl RepetitionCheck {
    fn read(&mut self, delta: &Delta) -> Option<Repetition> {
        match delta {
            Delta::Text(piece) => self.text.read(piece),
            Delta::Thinking(piece) => self.thinking.read(piece),
            Delta::Alive | Delta::Usage(_) | Delta::Notice(_) => None,
        }
    }
}

/// Error for a reply of the provider `profile` that repeats itself.
pub(crate) fn repeating(profile: &str, repetition: Repetition) -> ProviderError {
    let Repetition { unit_bytes, count } = repetition;
    let what = format!(
        "{profile}: the same {unit_bytes} bytes came {count} times in a row, and the reply was \
         stopped"
    );
    ProviderError::Repeating { partial: String::new(), source: what.into() }
}

/// Announces the deltas of an attempt until the channel is closed: joined, at most once per
/// `interval`, with one event for text and one for thinking, and a warning for each notice. Passes
/// token counts to the meter. Calls `alive` at the first delta that comes from the server. Ends
/// early with an error if text or thinking repeats itself.
pub(crate) async fn forward_deltas(
    mut deltas: mpsc::Receiver<Delta>,
    relay: Relay,
    alive: impl FnOnce() + Send,
) -> Result<(), Repetition> {
    let mut alive = Some(alive);
    let mut hear = |delta: &Delta| {
        // A notice comes from posse, so it is no sign of life of the server.
        if let Some(alive) = alive.take_if(|_| !matches!(delta, Delta::Notice(_))) {
            alive();
        }
    };
    let mut check = RepetitionCheck::default();
    let mut waiting = UnannouncedDeltas::default();
    while let Some(delta) = relay.first(&mut deltas).await {
        hear(&delta);
        let mut repetition = check.read(&delta);
        waiting.collect(delta, &relay);
        if waiting.is_empty() {
            continue;
        }
        let mut pause = relay.clock.sleep(relay.interval);
        while repetition.is_none() {
            tokio::select! {
                biased;
                delta = deltas.recv() => match delta {
                    Some(delta) => {
                        hear(&delta);
                        repetition = check.read(&delta);
                        waiting.collect(delta, &relay);
                    }
                    None => break,
                },
                () = &mut pause => break,
            }
        }
        let Relay { transcript, origin, .. } = &relay;
        relay.pen.announce(|| waiting.flush(transcript, origin));
        if let Some(repetition) = repetition {
            return Err(repetition);
        }
    }
    Ok(())
}

impl Relay {
    /// Waits for the next delta; `None` when the channel is closed. Announces long silence.
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

/// Deltas that have arrived and are not announced yet.
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
