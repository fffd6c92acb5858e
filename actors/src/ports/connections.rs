//! Questions of a running call to a person: may its processes connect to a server?

use std::fmt;
use std::sync::Arc;

use crate::ports::PortFuture;

/// Question about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRequest {
    /// Operation of a grant that covers it: `connect` or `upload`.
    pub operation: String,
    /// Target of the connection and of a grant: `example.org:443`.
    pub target: String,
    /// One-line description: `connect to example.org:443`.
    pub summary: String,
    /// Reason why permission is needed.
    pub reason: String,
}

/// Answer to a question about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionAnswer {
    /// The connection is allowed.
    Allowed {
        /// True if the answer applies to all agents for the rest of the session or longer.
        lasting: bool,
    },
    /// The connection is denied.
    Denied {
        /// Reason, for the model and the user.
        reason: String,
    },
}

type AskConnection = dyn Fn(ConnectionRequest) -> PortFuture<ConnectionAnswer> + Send + Sync;

/// Asks a person about the connections of a call's processes, also after the call has ended. The
/// default asks no person.
///
/// Neither `--yes` nor hooks answer these questions. Dropping the future of an answer withdraws its
/// question.
#[derive(Clone, Default)]
pub struct ConnectionAsker(Option<Arc<AskConnection>>);

impl ConnectionAsker {
    /// Creates an asker that calls `ask` with each question.
    pub fn new(
        ask: impl Fn(ConnectionRequest) -> PortFuture<ConnectionAnswer> + Send + Sync + 'static,
    ) -> ConnectionAsker {
        ConnectionAsker(Some(Arc::new(ask)))
    }

    /// Asks a person. Without one, denies at once.
    pub fn ask(&self, request: ConnectionRequest) -> PortFuture<ConnectionAnswer> {
        if let Some(ask) = &self.0 {
            return ask(request);
        }
        let reason = "no user can be asked".to_owned();
        Box::pin(std::future::ready(ConnectionAnswer::Denied { reason }))
    }
}

impl fmt::Debug for ConnectionAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectionAsker").field(&self.0.is_some()).finish()
    }
}
