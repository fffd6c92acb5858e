//! Whether there is room for the files and connections that a session opens.
//!
//! What begins with too little of it would break anywhere, and could not say why.

use std::fs::File;

use nix::sys::resource::{Resource, getrlimit};

use crate::failure::{Exit, Failure};

/// Descriptors that have to be free. A run whose commands are confined had 21 open at most; one that
/// cannot have so many says so of the command and goes on, and with these it can say so.
const FREE_MIN: usize = 16;

/// Who may have so many is not asked how many of them are free.
const PLENTY: u64 = 256;

/// Fails where a session could not even say what went wrong.
pub(crate) fn enough() -> Result<(), Failure> {
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
    Err(Failure::new("INT004", Exit::Configuration, what)
        .because(format!("a session needs {FREE_MIN} of them"))
        .fix("raise the limit first: ulimit -n 1024"))
}
