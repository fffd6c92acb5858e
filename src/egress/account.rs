//! Accounts of the connections of one command.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::destination::Destination;
use crate::judge::EgressRefusal;
use crate::lock::lock;
use crate::record::{ConnectionObserver, ConnectionOutcome, ConnectionRecord};
use crate::relay::MovedBytes;

/// Maximum number of lines about refused connections of one command.
const LINES_MAX: usize = 8;

/// Reason that stands for those of refusals beyond the number of sums.
const FURTHER: &str = "further refusals";

/// Reason of a connection that was neither made nor refused when its command ended.
const NOT_MADE: &str = "the command ended before the connection was made";

/// Key of records that are summed: destination and outcome.
type RecordKey = (String, u16, ConnectionOutcome);

/// Records of a command's connections, and lines for the model about refused ones.
pub(crate) struct CommandAccounts {
    observer: ConnectionObserver,
    /// Number of connections that are recorded one by one.
    records_max: usize,
    lines: Mutex<Vec<String>>,
    /// Number of connections that were accepted.
    begun: AtomicUsize,
    /// Sums of the records beyond the number that is recorded one by one.
    summed: Mutex<HashMap<RecordKey, ConnectionRecord>>,
}

impl CommandAccounts {
    pub(crate) fn new(observer: ConnectionObserver, records_max: usize) -> CommandAccounts {
        CommandAccounts {
            observer,
            records_max,
            lines: Mutex::default(),
            begun: AtomicUsize::new(0),
            summed: Mutex::default(),
        }
    }

    /// Counts a connection that was accepted.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// True if any connection was accepted.
    pub(crate) fn has_connections(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    /// One line for each destination that was refused, the first [`LINES_MAX`] of them.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Opens the account of a connection.
    pub(crate) fn open<'a>(&'a self, destination: &'a Destination) -> ConnectionAccount<'a> {
        let moved = MovedBytes::default();
        ConnectionAccount { accounts: self, destination, is_connected: false, refusal: None, moved }
    }

    /// Records a request that names no destination.
    pub(crate) fn refused_request(&self, reason: String) {
        self.record(ConnectionRecord {
            host: String::new(),
            port: 0,
            outcome: ConnectionOutcome::Refused(reason),
            sent: 0,
            received: 0,
            connections: 1,
        });
    }

    fn record(&self, record: ConnectionRecord) {
        if self.begun.load(Ordering::Relaxed) <= self.records_max {
            return (self.observer)(record);
        }
        let key = (record.host, record.port, record.outcome);
        let mut summed = lock(&self.summed);
        // A command may name a new host each time.
        let is_full = summed.len() >= self.records_max && !summed.contains_key(&key);
        let (host, port, outcome) = if is_full { shared_key(&key.2) } else { key };
        let new = ConnectionRecord {
            host: host.clone(),
            port,
            outcome: outcome.clone(),
            sent: 0,
            received: 0,
            connections: 0,
        };
        let sum = summed.entry((host, port, outcome)).or_insert(new);
        sum.sent += record.sent;
        sum.received += record.received;
        sum.connections += record.connections;
    }

    /// Hands over the sums of the records that were not handed over one by one.
    pub(crate) fn report_summed(&self) {
        let summed = std::mem::take(&mut *lock(&self.summed));
        for record in summed.into_values() {
            (self.observer)(record);
        }
    }
}

/// Key of the sums of all further destinations: one of connections, one of refusals.
fn shared_key(outcome: &ConnectionOutcome) -> RecordKey {
    let outcome = match outcome {
        ConnectionOutcome::Connected => ConnectionOutcome::Connected,
        ConnectionOutcome::Refused(_) => ConnectionOutcome::Refused(FURTHER.to_owned()),
    };
    (String::new(), 0, outcome)
}

/// Account of a running connection. It is recorded when it is dropped.
pub(crate) struct ConnectionAccount<'a> {
    accounts: &'a CommandAccounts,
    destination: &'a Destination,
    /// True after the server has accepted the connection.
    pub(crate) is_connected: bool,
    refusal: Option<String>,
    pub(crate) moved: MovedBytes,
}

impl ConnectionAccount<'_> {
    /// Notes that the connection was refused or cut.
    pub(crate) fn refuse(&mut self, refusal: &EgressRefusal) {
        self.refusal = Some(refusal.to_string());
        let line = format!("{}: {refusal}", self.destination);
        let mut lines = lock(&self.accounts.lines);
        if lines.len() < LINES_MAX && !lines.contains(&line) {
            lines.push(line);
        }
    }
}

impl Drop for ConnectionAccount<'_> {
    fn drop(&mut self) {
        let outcome = match self.refusal.take() {
            None if self.is_connected => ConnectionOutcome::Connected,
            None => ConnectionOutcome::Refused(NOT_MADE.to_owned()),
            Some(reason) => ConnectionOutcome::Refused(reason),
        };
        self.accounts.record(ConnectionRecord {
            host: self.destination.host.to_string(),
            port: self.destination.port,
            outcome,
            sent: self.moved.sent.load(Ordering::Relaxed),
            received: self.moved.received.load(Ordering::Relaxed),
            connections: 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn refused(host: &str, reason: &str) -> ConnectionRecord {
        let outcome = ConnectionOutcome::Refused(reason.to_owned());
        ConnectionRecord { outcome, ..connected(host) }
    }

    fn connected(host: &str) -> ConnectionRecord {
        let outcome = ConnectionOutcome::Connected;
        let (host, port) = (host.to_owned(), 80);
        ConnectionRecord { host, port, outcome, sent: 1, received: 2, connections: 1 }
    }

    #[test]
    fn sums_keep_their_outcome_when_there_are_too_many_of_them() {
        let seen: Arc<Mutex<Vec<ConnectionRecord>>> = Arc::default();
        let records = Arc::clone(&seen);
        let accounts = CommandAccounts::new(Arc::new(move |record| lock(&records).push(record)), 2);
        (0..3).for_each(|_| accounts.begin());
        for record in [
            connected("a"),
            refused("b", "no"),
            refused("c", "no"),
            refused("d", "never"),
            connected("e"),
            connected("a"),
            refused("b", "no"),
        ] {
            accounts.record(record);
        }
        assert!(lock(&seen).is_empty());
        accounts.report_summed();
        let mut sums: Vec<_> = lock(&seen)
            .iter()
            .map(|sum| {
                let outcome = match &sum.outcome {
                    ConnectionOutcome::Connected => "connected",
                    ConnectionOutcome::Refused(reason) => reason,
                };
                let bytes = (sum.sent, sum.received);
                (sum.host.clone(), sum.port, outcome.to_owned(), bytes, sum.connections)
            })
            .collect();
        sums.sort_unstable();
        let expected = [
            ("", 0, "connected", (1, 2), 1),
            ("", 0, "further refusals", (2, 4), 2),
            ("a", 80, "connected", (2, 4), 2),
            ("b", 80, "no", (2, 4), 2),
        ];
        let expected = expected.map(|(host, port, outcome, bytes, connections)| {
            (host.to_owned(), port, outcome.to_owned(), bytes, connections)
        });
        assert_eq!(sums, expected);
    }
}
