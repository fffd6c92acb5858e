//! Attaches front ends to a session of another process on this machine. The process that owns the
//! session listens on a socket in the session's folder and exchanges `stream-json` lines there.
//!
//! A client first sends a token that only the user can read. A client cannot slow the session down:
//! a client that reads slowly lags behind alone, and one that reads nothing for too long is
//! disconnected.

mod address;
mod client;
mod connection;
mod handshake;
mod host;
mod lines;

pub use address::SocketAddress;
pub use client::{AttachOptions, join};
pub use host::Host;
