//! Port for grants that outlive a session. The implementation verifies the store; the kernel
//! queries it before every decision.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Grant, Scope};
use crate::ports::{BoxError, PortFuture};

/// Time of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantTime {
    /// Milliseconds since 1970, as the user's clock has it. It can be set back.
    pub wall_ms: u64,
    /// Time since some fixed moment. It never goes back.
    pub uptime: Duration,
}

/// Grants that are valid at a [`GrantTime`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveGrants {
    /// Verified and not expired, of this project and of all.
    pub grants: Arc<[Grant]>,
    /// Alarm for the user, shown once: the store failed verification, with the reason.
    pub alarm: Option<String>,
}

/// Store of grants that outlive a session.
pub trait GrantStore: Send + Sync + 'static {
    /// Valid grants. Called before every decision, so it must be fast; it never fails: unverified
    /// data is ignored.
    fn active_grants(&self, now: GrantTime) -> ActiveGrants;

    /// The widest scope that a question may offer.
    fn widest_scope(&self) -> Scope;

    /// Keeps a grant of the scope `Project` or `Global`, and returns when it is on the disk.
    fn keep(&self, grant: Grant, now: GrantTime) -> PortFuture<Result<(), BoxError>>;
}

/// Keeps nothing: allowances end with the session.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGrants;

impl GrantStore for NoGrants {
    fn active_grants(&self, _: GrantTime) -> ActiveGrants {
        ActiveGrants::default()
    }

    fn widest_scope(&self) -> Scope {
        Scope::Session
    }

    fn keep(&self, _: Grant, _: GrantTime) -> PortFuture<Result<(), BoxError>> {
        Box::pin(async { Err("permissions are not kept here".into()) })
    }
}
