//! Detects whether standard output was closed at the start of the process.
//!
//! The standard library opens `/dev/null` for a closed stream before `main`, which cannot be
//! recognised later. This check runs earlier.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Makes the loader run `check` before `main`.
#[used]
#[expect(unsafe_code, reason = "nothing else runs before the standard library's own start")]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    let closed = fcntl(io::stdout(), FcntlArg::F_GETFD) == Err(Errno::EBADF);
    CLOSED.store(closed, Ordering::Relaxed);
}

pub(super) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
