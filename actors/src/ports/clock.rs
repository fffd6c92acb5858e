//! Ports for time and new ids, so that tests can control both.

use std::time::Duration;

use crate::conversation::{CallId, InvocationId, MessageId, QuestionId};
use crate::event::RecordId;
use crate::ports::PortFuture;

/// Source of time and randomness. Deadlines use the monotonic clock, records the wall clock.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since a fixed moment. It never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall clock in milliseconds since 1970. It can be set back.
    fn wall_ms(&self) -> u64;

    /// Resolves when `duration` has passed. Dropping the future cancels the wait.
    fn sleep(&self, duration: Duration) -> PortFuture<()>;

    /// Random number in `0.0..1.0`, used to spread retries.
    fn jitter(&self) -> f64;
}

/// Source of new ids.
pub trait Ids: Send + Sync + 'static {
    /// A new unique id as text. `kind` is a prefix for the type of the id.
    fn new_id(&self, kind: &str) -> String;

    /// Id of a new tool call.
    fn call(&self) -> CallId {
        CallId::new(self.new_id("c"))
    }

    /// Id of a new invocation.
    fn invocation(&self) -> InvocationId {
        InvocationId::new(self.new_id("i"))
    }

    /// Id of a new permission request.
    fn question(&self) -> QuestionId {
        QuestionId::new(self.new_id("q"))
    }

    /// Id of a new queued message.
    fn message(&self) -> MessageId {
        MessageId::new(self.new_id("m"))
    }

    /// Id of a new record.
    fn record(&self) -> RecordId;
}
