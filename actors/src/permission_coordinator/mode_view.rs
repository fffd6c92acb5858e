//! Permission mode of a session, which survives crashes of the coordinator.

use std::sync::Arc;

use crate::event::PermissionMode;
use crate::guarded::Guarded;

/// Current permission mode. Calls read it when they are judged; only the coordinator changes it.
#[derive(Clone, Default)]
pub(crate) struct ModeView(Arc<Guarded<ModeState>>);

#[derive(Default)]
struct ModeState {
    current: PermissionMode,
    /// Mode of the latest request; differs from `current` while a wider mode is being recorded.
    requested: PermissionMode,
    /// Number of requests so far.
    requests: u64,
}

/// A requested change of the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModeRequest {
    pub(crate) from: PermissionMode,
    pub(crate) to: PermissionMode,
    number: u64,
}

impl ModeView {
    pub(crate) fn new(mode: PermissionMode) -> ModeView {
        ModeView(Arc::new(Guarded::new(ModeState { current: mode, requested: mode, requests: 0 })))
    }

    pub(crate) fn current(&self) -> PermissionMode {
        self.0.lock().current
    }

    /// Mode of the latest request, which may still be recorded.
    pub(crate) fn requested(&self) -> PermissionMode {
        self.0.lock().requested
    }

    /// True if a change of the mode was requested in this process.
    pub(crate) fn has_changed(&self) -> bool {
        self.0.lock().requests > 0
    }

    /// Registers a change to the mode `to`. A stricter mode applies at once, any other one when
    /// [`ModeView::recorded`] is called. `None` if `to` is the mode of the latest request.
    pub(super) fn request(&self, to: PermissionMode) -> Option<ModeRequest> {
        let mut state = self.0.lock();
        if state.requested == to {
            return None;
        }
        let from = std::mem::replace(&mut state.requested, to);
        state.requests += 1;
        if to.is_at_most(state.current) {
            state.current = to;
        }
        Some(ModeRequest { from, to, number: state.requests })
    }

    /// Applies a request whose record is on disk, unless a later one exists.
    pub(super) fn recorded(&self, request: ModeRequest) {
        let mut state = self.0.lock();
        if state.requests == request.number {
            state.current = request.to;
        }
    }

    /// Forgets a request that could not be recorded. A stricter mode stays applied.
    pub(super) fn failed(&self, request: ModeRequest) {
        let mut state = self.0.lock();
        if state.requests == request.number {
            state.requested = state.current;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stricter_mode_applies_at_once_and_a_wider_one_when_it_is_recorded() {
        let view = ModeView::new(PermissionMode::Ask);
        assert_eq!(view.request(PermissionMode::Ask), None);
        assert!(!view.has_changed());
        let wider = view.request(PermissionMode::Auto).unwrap();
        assert_eq!((wider.from, view.current()), (PermissionMode::Ask, PermissionMode::Ask));
        view.recorded(wider);
        assert_eq!(view.current(), PermissionMode::Auto);
        let stricter = view.request(PermissionMode::Plan).unwrap();
        assert_eq!((stricter.from, view.current()), (PermissionMode::Auto, PermissionMode::Plan));
        view.failed(stricter);
        assert_eq!(view.current(), PermissionMode::Plan);
    }

    #[test]
    fn late_record_does_not_undo_a_later_request() {
        let view = ModeView::new(PermissionMode::Ask);
        let wider = view.request(PermissionMode::Auto).unwrap();
        let stricter = view.request(PermissionMode::Plan).unwrap();
        view.recorded(wider);
        assert_eq!(view.current(), PermissionMode::Plan);
        view.recorded(stricter);
        assert_eq!(view.current(), PermissionMode::Plan);
    }

    #[test]
    fn request_that_is_not_recorded_can_be_made_again() {
        let view = ModeView::new(PermissionMode::Ask);
        let wider = view.request(PermissionMode::Edits).unwrap();
        view.failed(wider);
        assert_eq!(view.current(), PermissionMode::Ask);
        assert!(view.request(PermissionMode::Edits).is_some());
        // Neither of these is stricter than the other one.
        let apart = ModeView::new(PermissionMode::Plan);
        let locked = apart.request(PermissionMode::Locked).unwrap();
        assert_eq!(apart.current(), PermissionMode::Plan);
        apart.recorded(locked);
        assert_eq!(apart.current(), PermissionMode::Locked);
    }
}
