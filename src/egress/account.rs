//! Accounts of the connections of one command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::destination::Destination;
use crate::judge::EgressRefusal;
use crate::record::{ConnectionObserver, ConnectionOutcome, ConnectionRecord};
use crate::relay::MovedBytes;

/// Maximum number of lines about refused connections of one command.
const LINES_MAX: usize = 8;

/// Key of records that are counted together: destination, and the reason of a refusal.
type RecordKey = (String, u16, Option<String>);

/// Records of a command's connections, and lines for the model about refused ones.
pub(crate) struct CommandAccounts {
    observer: ConnectionObserver,
    /// Number of connections that are recorded one by one.
    records_max: usize,
    lines: Mutex<Vec<String>>,
    /// Number of connections that were accepted.
    begun: AtomicUsize,
    /// Records beyond the number that is recorded one by one.
    uncounted: Mutex<HashMap<RecordKey, ConnectionRecord>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CommandAccounts {
    pub(crate) fn new(observer: ConnectionObserver, records_max: usize) -> CommandAccounts {
        CommandAccounts {
            observer,
            records_max,
            lines: Mutex::default(),
            begun: AtomicUsize::new(0),
            uncounted: Mutex::default(),
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
        ConnectionAccount { accounts: self, destination, refusal: None, moved }
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
        let reason = match &record.outcome {
            ConnectionOutcome::Connected => None,
            ConnectionOutcome::Refused(reason) => Some(reason.clone()),
        };
        let mut uncounted = lock(&self.uncounted);
        // A command may name a new host each time.
        let is_full = uncounted.len() >= self.records_max;
        let (host, port) =
            if is_full { (String::new(), 0) } else { (record.host.clone(), record.port) };
        let key = (host.clone(), port, reason.filter(|_| !is_full));
        let sum = uncounted.entry(key).or_insert_with(|| ConnectionRecord {
            host,
            port,
            outcome: record.outcome.clone(),
            sent: 0,
            received: 0,
            connections: 0,
        });
        sum.sent += record.sent;
        sum.received += record.received;
        sum.connections += record.connections;
    }

    /// Hands over the records of connections that were counted together.
    pub(crate) fn report_uncounted(&self) {
        let uncounted = std::mem::take(&mut *lock(&self.uncounted));
        for record in uncounted.into_values() {
            (self.observer)(record);
        }
    }
}

/// Account of a running connection. It is recorded when it is dropped.
pub(crate) struct ConnectionAccount<'a> {
    accounts: &'a CommandAccounts,
    destination: &'a Destination,
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
            None => ConnectionOutcome::Connected,
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
