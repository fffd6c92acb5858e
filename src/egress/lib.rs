//! Network of confined commands, by domain.
//!
//! A command of the full sandbox tier has no route out of its network namespace. What it reaches is
//! a listener of this proxy inside the namespace: HTTP `CONNECT`, plain HTTP with an absolute URL,
//! and SOCKS5, on one port. For each connection the proxy judges the name ([`judge`]) before it
//! looks the name up, asks its [`ConnectionApprover`] if the rules do not decide, looks the name up
//! itself, judges the addresses, and connects to an address that it has judged. It never looks into
//! TLS.
//!
//! The judgement is pure. The proxy has a thread of its own, started with the first command.

mod account;
mod addresses;
mod approval;
mod destination;
mod environment;
mod judge;
mod lock;
mod meter;
mod patterns;
mod proxy;
mod record;
mod relay;
mod request;
mod resolver;
mod worker;

#[cfg(test)]
mod tests;

pub use addresses::reserved;
pub use approval::{
    Approval, ApprovalFuture, ConnectionApprover, ConnectionQuestion, QuestionCause,
    RefusingApprover,
};
pub use destination::{Destination, DestinationError, DestinationHost};
pub use environment::{PROXY_PORT, proxy_environment};
pub use judge::{EgressPolicy, EgressRefusal, EgressVerdict, judge};
pub use patterns::{DomainPattern, PatternError};
pub use proxy::{CommandListeners, Egress, EgressLease, EgressLimits, ListenersFuture};
pub use record::{ConnectionObserver, ConnectionOutcome, ConnectionRecord};
pub use resolver::{NameResolver, ResolveFuture, SystemResolver};
