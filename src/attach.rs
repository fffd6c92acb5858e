//! Joining a session that runs in another process of this machine: the process that owns it listens
//! on a socket in the folder of the session, and speaks the lines of `stream-json` there.
//!
//! Who connects shows a token first that only the user can read. Nobody who connects can slow the
//! session down: it reads events as every observer does, lags alone, and is let go of when it takes
//! nothing for too long.

mod guest;
mod hello;
mod host;
mod lines;
mod place;
mod served;

pub use guest::{Joining, join};
pub use host::Host;
pub use place::SocketAddress;
