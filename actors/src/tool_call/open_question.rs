//! Permission request that was open when the session was interrupted: it is asked again under the
//! same id, or withdrawn.

use std::sync::Arc;

use crate::event::{Event, Origin};
use crate::guarded::Guarded;
use crate::replay::ContinuedRequest;
use crate::tool_call::Services;

/// Open permission request of a call that runs again. Dropping it withdraws the request, unless
/// [`take`](CallQuestion::take) has taken it, so the request ends with the call.
pub(super) struct CallQuestion {
    open: Guarded<Option<ContinuedRequest>>,
    services: Arc<Services>,
    origin: Arc<Origin>,
}

impl CallQuestion {
    pub(super) fn before(
        question: Option<ContinuedRequest>,
        services: &Arc<Services>,
        origin: &Arc<Origin>,
    ) -> CallQuestion {
        let open = Guarded::new(question);
        CallQuestion { open, services: Arc::clone(services), origin: Arc::clone(origin) }
    }

    /// Takes the request, under whose id the call asks again. `None` if there is no open request or
    /// it was taken already.
    pub(super) fn take(&self) -> Option<ContinuedRequest> {
        self.open.lock().take()
    }

    /// Withdraws the request if it is still open, because the call does not need it.
    pub(super) fn withdraw(&self) {
        if let Some(ContinuedRequest { id: request_id, target }) = self.take() {
            let reason = "the call that asked did not have to ask again".to_owned();
            let event = Event::PermissionWithdrawn { request_id, reason, target };
            self.services.transcript.note(Some(&self.origin), event);
        }
    }
}

impl Drop for CallQuestion {
    fn drop(&mut self) {
        self.withdraw();
    }
}
