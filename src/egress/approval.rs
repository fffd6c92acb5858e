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
    /// The session has sent this number of bytes to the domain, which is the limit.
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

/// Refuses every question at once, because no person can be asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct NobodyApproves;

impl ConnectionApprover for NobodyApproves {
    fn ask(&self, question: ConnectionQuestion) -> ApprovalFuture {
        let reason = match question.cause {
            QuestionCause::NewDomain => {
                "it is not in network.allowedDomains, and no user can be asked"
            }
            QuestionCause::Upload(_) => "no user can be asked",
        };
        Box::pin(std::future::ready(Approval::Refused(reason.to_owned())))
    }
}
