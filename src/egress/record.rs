//! Account of connections, for the journal and the model.

use std::sync::Arc;

/// Receives the account of every connection. Called on the thread of the proxy; must not block.
pub type ConnectionObserver = Arc<dyn Fn(ConnectionRecord) + Send + Sync>;

/// Account of a connection that has ended or was refused, or of several alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Host of the destination: a domain, or an address. Empty for a request that names none.
    pub host: String,
    /// Port of the destination; 0 for a request that names none.
    pub port: u16,
    /// Outcome of the connection.
    pub outcome: ConnectionOutcome,
    /// Number of bytes that the command has sent to the destination.
    pub sent: u64,
    /// Number of bytes that the command has received from it.
    pub received: u64,
    /// Number of connections of this record.
    pub connections: u64,
}

/// Outcome of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ConnectionOutcome {
    /// The connection was made.
    Connected,
    /// The connection was refused, not made, or cut later, for this reason.
    Refused(String),
}
