//! Allowances that outlive a session. What may be believed of what is stored is for the
//! implementation to decide; here it is asked again before every judgement.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Grant, Scope};
use crate::ports::{BoxError, PortFuture};

/// When something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970, as the user's clock has it. It can be set back.
    pub wall_ms: u64,
    /// Time since some fixed moment. It never goes back.
    pub uptime: Duration,
}

/// What counts at a [`Now`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveGrants {
    /// Verified and not expired, of this project and of all.
    pub grants: Arc<[Grant]>,
    /// What the user has to know, said once: what is stored is not believed, and why.
    pub alarm: Option<String>,
}

/// Keeps what a user allowed for longer than a session.
pub trait GrantStore: Send + Sync + 'static {
    /// What counts now. Called before every judgement, so it must be quick; it never fails:
    /// what cannot be believed does not count.
    fn standing(&self, now: Now) -> ActiveGrants;

    /// The widest scope that a question may offer.
    fn widest(&self) -> Scope;

    /// Keeps a grant of the scope `Project` or `Global`, and returns when it is on the disk.
    fn keep(&self, grant: Grant, now: Now) -> PortFuture<Result<(), BoxError>>;
}

/// Keeps nothing: allowances end with the session.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGrants;

impl GrantStore for NoGrants {
    fn standing(&self, _: Now) -> ActiveGrants {
        ActiveGrants::default()
    }

    fn widest(&self) -> Scope {
        Scope::Session
    }

    fn keep(&self, _: Grant, _: Now) -> PortFuture<Result<(), BoxError>> {
        Box::pin(async { Err("permissions are not kept here".into()) })
    }
}
