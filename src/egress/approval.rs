//! Questions to a person about connections.

use std::future::Future;
use std::pin::Pin;

use crate::destination::Destination;

/// Future of an answer.
pub type ApprovalFuture = Pin<Box<dyn Future<Output = Approval> + Send>>;

/// Question about a connection that the rules do not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionQuestion {
    /// Destination of the connection, which waits for the answer.
    pub destination: Destination,
    /// Cause of the question.
    pub cause: QuestionCause,
}

/// Cause of a question about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionCause {
    /// The domain is new.
    NewDomain,
    /// The session has sent this number of bytes to the domain, and more would exceed the limit.
    Upload(u64),
}

/// Answer to a question about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// The connection is allowed. `lasting`: also for the rest of the session.
    Allowed {
        /// True if the answer applies longer than for this command.
        lasting: bool,
    },
    /// The connection is refused, for this reason.
    Refused(String),
}

/// Asks a person about connections. The answer comes within the time that the implementation sets;
/// it refuses if there is none.
pub trait ConnectionApprover: Send + Sync + 'static {
    /// Asks about one connection.
    fn ask(&self, question: ConnectionQuestion) -> ApprovalFuture;
}

/// Refuses every question at once, because no user can be asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefusingApprover;

impl ConnectionApprover for RefusingApprover {
    fn ask(&self, _: ConnectionQuestion) -> ApprovalFuture {
        let refused = Approval::Refused("no user can be asked".to_owned());
        Box::pin(std::future::ready(refused))
    }
}
