//! Messages of background work after its call has ended: events go to the journal, texts to the
//! agent.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::conversation::ContentPart;
use crate::event::Origin;
use crate::ports::{PostCallMessage, PostCallSink};
use crate::transcript_writer::Transcript;

type Hear = Box<dyn Fn(Arc<Origin>, Vec<ContentPart>) + Send + Sync>;

/// Function that receives texts for agents from background work. Texts are dropped while it is not
/// set; no call has run by then.
#[derive(Clone, Default)]
pub(crate) struct Notices(Arc<OnceLock<Hear>>);

impl Notices {
    /// Sets the receiver. Only the first call has an effect.
    pub(crate) fn open(
        &self,
        hear: impl Fn(Arc<Origin>, Vec<ContentPart>) + Send + Sync + 'static,
    ) {
        self.0.set(Box::new(hear)).ok();
    }

    fn send(&self, origin: Arc<Origin>, content: Vec<ContentPart>) {
        if let Some(hear) = self.0.get() {
            hear(origin, content);
        }
    }

    /// Creates the sender for background work of a call that `origin` made.
    pub(super) fn post_call(&self, transcript: &Transcript, origin: &Arc<Origin>) -> PostCallSink {
        let (notices, transcript) = (self.clone(), transcript.clone());
        let origin = Arc::clone(origin);
        PostCallSink::new(move |after| match after {
            PostCallMessage::Fact(event) => transcript.note(Some(&origin), *event),
            PostCallMessage::Notice(content) => notices.send(Arc::clone(&origin), content),
        })
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}
