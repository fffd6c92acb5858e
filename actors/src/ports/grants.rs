//! Port for grants that outlive a session. The implementation verifies the store; the kernel
//! queries it before every decision.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Grant, Scope};
use crate::ports::{BoxError, PortFuture};

/// Current time by two clocks, for the expiry of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantTime {
    /// Wall clock in milliseconds since 1970. It can be set back.
    pub wall_ms: u64,
    /// Monotonic time since a fixed moment. It never goes back.
    pub uptime: Duration,
}

/// Grants that are valid at a [`GrantTime`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveGrants {
    /// Verified grants that have not expired, for this project or for all projects. Empty while the
    /// store is not trusted.
    pub grants: Arc<[Grant]>,
    /// Warning for the user that stored grants are not used, with the reason: the store failed
    /// verification, or the clock was set back. Returned once for each reason; `None` afterwards,
    /// even if the grants are still unused.
    pub alarm: Option<String>,
}

/// Store of grants that outlive a session.
pub trait GrantStore: Send + Sync + 'static {
    /// Returns the valid grants. Called before every decision, so it must be fast. It never fails:
    /// if the store cannot be verified, it returns no grants and an alarm.
    fn active_grants(&self, now: GrantTime) -> ActiveGrants;

    /// The widest scope that a permission request may offer.
    fn widest_scope(&self) -> Scope;

    /// Stores a grant of scope `Project` or `Global`, and returns when it is synced to disk. `Err`
    /// if it could not be stored, with the cause.
    fn keep(&self, grant: Grant, now: GrantTime) -> PortFuture<Result<(), BoxError>>;
}

/// Store without grants: permissions end with the session.
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
