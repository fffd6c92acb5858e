//! Reads the end of a resumed conversation and shows it before the first event of the session.

use posse_actors::conversation::SessionId;
use posse_actors::event::Branch;
use posse_base::failure::Failure;
use posse_frontend::past_conversation::PastConversation;

use crate::running::Tui;
use crate::running::session::RequestResult;

impl Tui<'_> {
    /// Reads the conversation on another thread. Events of the session wait meanwhile, so that they
    /// follow what was said before. `branch`: the session of which the current one is a copy.
    pub(super) fn read_past(&mut self, branch: Option<Branch>, last: u64) {
        let current = SessionId::new(self.app.session.clone());
        let (stored, last) =
            branch.map_or((current.clone(), last), |branch| (branch.session, branch.record));
        let read = self.environment.past_conversation(stored.as_str(), last);
        if let Some(current) = &mut self.current {
            current.reads_past = true;
        }
        let results = self.results.clone();
        tokio::task::spawn_blocking(move || {
            results.blocking_send(RequestResult::Past(current, read())).ok();
        });
    }

    /// Shows the conversation, unless another session was opened meanwhile.
    pub(super) fn show_past(
        &mut self,
        id: &SessionId,
        past: Result<PastConversation, Vec<Failure>>,
    ) {
        if id.as_str() != self.app.session {
            return;
        }
        if let Some(current) = &mut self.current {
            current.reads_past = false;
        }
        match past {
            Ok(past) => {
                let now = self.now();
                self.app.view.show_past(&past, now);
            }
            Err(failures) => self.app.view.failures(&failures),
        }
    }
}
