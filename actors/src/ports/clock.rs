//! Time and ids, so that tests can advance the one and predict the other.

use std::time::Duration;

use crate::conversation::{CallId, InvocationId, MessageId, QuestionId};
use crate::event::RecordId;
use crate::ports::PortFuture;

/// Source of time. Deadlines use the monotonic clock, records the wall clock.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;

    /// Milliseconds since 1970, as the user's clock has it.
    fn wall_ms(&self) -> u64;

    /// Resolves when `duration` has passed. Dropping it stops the wait.
    fn sleep(&self, duration: Duration) -> PortFuture<()>;

    /// A number in `0.0..1.0` to spread retries with.
    fn jitter(&self) -> f64;
}

/// New ids.
pub trait Ids: Send + Sync + 'static {
    /// Text of a new id that begins with `kind`.
    fn new_id(&self, kind: &str) -> String;

    /// A call.
    fn call(&self) -> CallId {
        CallId::new(self.new_id("c"))
    }

    /// An invocation.
    fn invocation(&self) -> InvocationId {
        InvocationId::new(self.new_id("i"))
    }

    /// A question to a human.
    fn question(&self) -> QuestionId {
        QuestionId::new(self.new_id("q"))
    }

    /// A queued message.
    fn message(&self) -> MessageId {
        MessageId::new(self.new_id("m"))
    }

    /// A record.
    fn record(&self) -> RecordId;
}
