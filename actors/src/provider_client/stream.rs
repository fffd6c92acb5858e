//! Deltas of one attempt on their way to observers: joined, so that a fast model costs a few
//! dozen events a second and not thousands, and remembered, in case the reply breaks off.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::event::{Event, Origin};
use crate::ports::{Clock, Delta};
use crate::transcript_writer::Transcript;

/// Visible text of an attempt that is still going on.
#[derive(Clone, Default)]
pub(crate) struct Partial(Arc<Mutex<String>>);

impl Partial {
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

/// Turns deltas into events, one per `interval` at most and one of each kind at the end.
pub(crate) async fn relay(
    mut deltas: mpsc::Receiver<Delta>,
    transcript: Transcript,
    origin: Arc<Origin>,
    clock: Arc<dyn Clock>,
    interval: Duration,
    partial: Partial,
) {
    let mut text = String::new();
    let mut thinking = String::new();
    while let Some(delta) = deltas.recv().await {
        collect(delta, &mut text, &mut thinking, &partial);
        let mut pause = clock.sleep(interval);
        loop {
            tokio::select! {
                biased;
                delta = deltas.recv() => match delta {
                    Some(delta) => collect(delta, &mut text, &mut thinking, &partial),
                    None => break,
                },
                () = &mut pause => break,
            }
        }
        flush(&mut text, &mut thinking, &transcript, &origin);
    }
}

fn collect(delta: Delta, text: &mut String, thinking: &mut String, partial: &Partial) {
    match delta {
        Delta::Text(piece) => {
            partial.push(&piece);
            text.push_str(&piece);
        }
        Delta::Thinking(piece) => thinking.push_str(&piece),
    }
}

fn flush(text: &mut String, thinking: &mut String, transcript: &Transcript, origin: &Arc<Origin>) {
    if !thinking.is_empty() {
        let text = std::mem::take(thinking);
        transcript.note(Some(origin), Event::ThinkingDelta { text });
    }
    if !text.is_empty() {
        let text = std::mem::take(text);
        transcript.note(Some(origin), Event::TextDelta { text });
    }
}
