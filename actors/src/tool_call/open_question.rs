//! A question that was open in front of the user when the session broke off: it is asked again
//! under the same id, or withdrawn.

use std::sync::Arc;

use crate::conversation::QuestionId;
use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::tool_call::Services;

/// The question of a call that runs again. However the call ends, the question does too.
pub(super) struct CallQuestion {
    open: Guarded<Option<QuestionId>>,
    services: Arc<Services>,
    origin: Arc<Origin>,
}

impl CallQuestion {
    pub(super) fn before(
        question: Option<QuestionId>,
        services: &Arc<Services>,
        origin: &Arc<Origin>,
    ) -> CallQuestion {
        let open = Guarded::new(question);
        CallQuestion { open, services: Arc::clone(services), origin: Arc::clone(origin) }
    }

    /// The id under which this call asks again, if it did not yet.
    pub(super) fn take(&self) -> Option<QuestionId> {
        self.open.lock().take()
    }

    /// Withdraws the request: this time none was needed.
    pub(super) fn withdraw(&self) {
        if let Some(request_id) = self.take() {
            let reason = "the call that asked did not have to ask again".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason };
            self.services.transcript.note(Some(&self.origin), event);
        }
    }
}

impl Drop for CallQuestion {
    fn drop(&mut self) {
        self.withdraw();
    }
}
