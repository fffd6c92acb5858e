//! Writing to standard output and error without ever stopping the session.
//!
//! A pipe or a terminal may be read slowly or not at all, so what goes there is written by a
//! thread of its own behind a bounded queue. A regular file never blocks and needs no thread.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use tokio::sync::mpsc;

/// Writes waiting for a slow reader; then the front end waits, and deltas are dropped for it.
const WRITES_WAITING: usize = 256;

/// A pipe that can be written at all takes this much without waiting (`PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// Where to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    Stderr,
}

/// One of the two standard streams.
#[derive(Debug)]
pub(crate) struct Output {
    target: Target,
    direct: bool,
    pipe: bool,
    thread: Option<(mpsc::Sender<Vec<u8>>, JoinHandle<()>)>,
    broken: Arc<AtomicBool>,
}

impl Output {
    pub(crate) fn new(target: Target) -> Output {
        let kind = match target {
            Target::Stdout => fstat(io::stdout()),
            Target::Stderr => fstat(io::stderr()),
        };
        let kind = kind.map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let direct = kind == Ok(SFlag::S_IFREG);
        let pipe = kind == Ok(SFlag::S_IFIFO);
        Output { target, direct, pipe, thread: None, broken: Arc::default() }
    }

    /// Whether somebody looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        match self.target {
            Target::Stdout => io::stdout().is_terminal(),
            Target::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Whether its reader is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Writes `bytes`, in order. Waits while too much waits to be read.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() || self.is_broken() {
            return;
        }
        if self.direct {
            return write_to(self.target, &bytes, &self.broken);
        }
        let small = bytes.len() <= PIPE_BYTES;
        if self.pipe && small && self.thread.is_none() && self.has_room() {
            return write_to(self.target, &bytes, &self.broken);
        }
        let (target, broken) = (self.target, Arc::clone(&self.broken));
        let (queue, _) = self.thread.get_or_insert_with(|| {
            let (tx, mut rx) = mpsc::channel::<Vec<u8>>(WRITES_WAITING);
            let write = move || {
                while let Some(bytes) = rx.blocking_recv() {
                    write_to(target, &bytes, &broken);
                }
            };
            (tx, std::thread::spawn(write))
        });
        queue.send(bytes).await.ok();
    }

    /// Whether a small write would not wait.
    fn has_room(&self) -> bool {
        let ready = |fd: BorrowedFd<'_>| {
            let mut room = [PollFd::new(fd, PollFlags::POLLOUT)];
            poll(&mut room, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        match self.target {
            Target::Stdout => ready(io::stdout().as_fd()),
            Target::Stderr => ready(io::stderr().as_fd()),
        }
    }

    /// Returns when everything is written: whether all of it was.
    pub(crate) async fn finish(self) -> bool {
        if let Some((queue, thread)) = self.thread {
            drop(queue);
            tokio::task::spawn_blocking(move || thread.join().ok()).await.ok();
        }
        !self.broken.load(Ordering::Relaxed)
    }
}

fn write_to(target: Target, bytes: &[u8], broken: &AtomicBool) {
    let written = match target {
        Target::Stdout => write_all(&mut io::stdout().lock(), bytes),
        Target::Stderr => write_all(&mut io::stderr().lock(), bytes),
    };
    if written.is_err() {
        broken.store(true, Ordering::Relaxed);
    }
}

fn write_all(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
