//! Checks that enough file descriptors are free for a session.
//!
//! A session without them would fail at arbitrary points without a clear error.

use std::fs::File;

use nix::sys::resource::{Resource, getrlimit};

use crate::failure::{ErrorCode, Exit, Failure};

/// Number of free descriptors that a session needs to report errors clearly. A run with sandboxed
/// commands uses up to 25, and one for each secret file of the workspace, up to a quarter of the limit;
/// with fewer, a command fails with a clear error.
const FREE_MIN: usize = 20;

/// Free descriptors are not counted if the limit of open files is at least this number.
const PLENTY: u64 = 256;

/// Fails if too few descriptors are free for a session to report its errors.
pub(crate) fn check_free() -> Result<(), Failure> {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    if limit >= PLENTY {
        return Ok(());
    }
    let free: Vec<File> = (0..FREE_MIN).map_while(|_| File::open("/dev/null").ok()).collect();
    if free.len() == FREE_MIN {
        return Ok(());
    }
    let what =
        format!("too few files may be open at once: {limit}, of which {} are free", free.len());
    Err(Failure::new(ErrorCode::TooFewDescriptors, Exit::Configuration, what)
        .because(format!("a session needs {FREE_MIN} of them"))
        .fix("raise the limit first: ulimit -n 1024"))
}
