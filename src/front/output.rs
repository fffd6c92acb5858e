//! Output to standard output and error without blocking the session.
//!
//! A pipe or terminal may be read slowly or not at all, so a thread behind a bounded queue writes
//! to it. A regular file never blocks and needs no thread.

mod closed;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{dup2_stderr, dup2_stdout};
use posse_base::terminal::TerminalText;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of queued writes. If the queue is full, the front end waits and misses deltas.
const WRITES_WAITING: usize = 256;

/// Maximum bytes of a write that a pipe reported as writable accepts without blocking (`PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// A standard output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputTarget {
    Stdout,
    Stderr,
}

/// Request to the writing thread.
#[derive(Debug)]
enum Write {
    Bytes(Vec<u8>),
    /// Report when all earlier requests have been carried out.
    Barrier(oneshot::Sender<()>),
}

/// Queue of a writing thread, and the thread.
type WriterThread = (mpsc::Sender<Write>, JoinHandle<()>);

/// Writer to standard output or standard error.
#[derive(Debug)]
pub(crate) struct Output {
    target: OutputTarget,
    terminal: bool,
    direct: bool,
    pipe: bool,
    thread: Option<WriterThread>,
    /// First write error; no further output is accepted after it. Unset while writing works.
    broken: Arc<OnceLock<String>>,
}

impl Output {
    pub(crate) fn new(target: OutputTarget) -> Output {
        let kind = match target {
            OutputTarget::Stdout => fstat(io::stdout()),
            OutputTarget::Stderr => fstat(io::stderr()),
        };
        let kind = kind.map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let direct = kind == Ok(SFlag::S_IFREG);
        let pipe = kind == Ok(SFlag::S_IFIFO);
        let terminal = match target {
            OutputTarget::Stdout => io::stdout().is_terminal(),
            OutputTarget::Stderr => io::stderr().is_terminal(),
        };
        Output { target, terminal, direct, pipe, thread: None, broken: Arc::default() }
    }

    /// True if the stream was a terminal when this value was created or last redirected.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Redirects the stream to `file`, also for output that is still queued. Output that could not
    /// be written before is lost. Does nothing if the redirection fails.
    pub(crate) fn move_to(&mut self, file: &File) {
        let moved = match self.target {
            OutputTarget::Stdout => dup2_stdout(file),
            OutputTarget::Stderr => dup2_stderr(file),
        };
        if moved.is_ok() {
            *self = Output::new(self.target);
        }
    }

    /// True if a write has failed, for example because the reader is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Writes `bytes` after all earlier output. Waits while the queue is full. Does nothing if an
    /// earlier write has failed.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) {
        let bytes = if self.terminal { guarded(&bytes) } else { bytes };
        self.write_sequence(bytes).await;
    }

    /// Like [`Output::write`], for a sequence that posse made for the terminal itself, such as one
    /// that sets the clipboard: it is not escaped.
    pub(crate) async fn write_sequence(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() || self.is_broken() {
            return;
        }
        if self.target == OutputTarget::Stdout && !self.direct && closed::is_closed() {
            self.broken.get_or_init(|| "standard output is closed".to_owned());
            return;
        }
        if self.direct {
            return write_to(self.target, &bytes, &self.broken);
        }
        let small = bytes.len() <= PIPE_BYTES;
        if self.pipe && small && self.thread.is_none() && self.can_write() {
            return write_to(self.target, &bytes, &self.broken);
        }
        let (target, broken) = (self.target, Arc::clone(&self.broken));
        if self.thread.is_none() {
            self.thread = start_thread(target, Arc::clone(&broken)).ok();
        }
        match &self.thread {
            Some((queue, _)) => {
                queue.send(Write::Bytes(bytes)).await.ok();
            }
            // Without a thread a slow reader delays the session, and nothing is lost.
            None => write_to(target, &bytes, &broken),
        }
    }

    /// Waits until the queue accepts another write. Returns at once without a writing thread or
    /// after a write error. Cancel-safe.
    pub(crate) async fn room(&self) {
        if let Some((queue, _)) = self.thread.as_ref().filter(|_| !self.is_broken()) {
            queue.reserve().await.ok();
        }
    }

    /// Waits until all output so far is written or has failed.
    pub(crate) async fn flushed(&self) {
        if let Some((queue, _)) = &self.thread {
            let (reached, barrier) = oneshot::channel();
            queue.send(Write::Barrier(reached)).await.ok();
            barrier.await.ok();
        }
    }

    /// True if a write of at most [`PIPE_BYTES`] to a pipe would not block, or would fail at once.
    fn can_write(&self) -> bool {
        let ready = |fd: BorrowedFd<'_>| {
            let mut room = [PollFd::new(fd, PollFlags::POLLOUT)];
            poll(&mut room, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        match self.target {
            OutputTarget::Stdout => ready(io::stdout().as_fd()),
            OutputTarget::Stderr => ready(io::stderr().as_fd()),
        }
    }

    /// Waits until all output is written, and ends the writing thread. The error is that of the
    /// first write that failed.
    pub(crate) async fn finish(self) -> Result<(), String> {
        if let Some((queue, thread)) = self.thread {
            drop(queue);
            tokio::task::spawn_blocking(move || thread.join().ok()).await.ok();
        }
        self.broken.get().cloned().map_or(Ok(()), Err)
    }
}

/// Waits until the queues of `outputs` have room, then for `next`, so that a slow reader slows down
/// the source of the output. Cancel safe if `next` is.
pub(crate) async fn when_read<F: Future, const N: usize>(
    outputs: [&Output; N],
    next: F,
) -> F::Output {
    for output in outputs {
        output.room().await;
    }
    next.await
}

/// The text in `bytes`, escaped so that it cannot control a terminal, except for colours and erased
/// lines (see [`TerminalText`]).
fn guarded(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    TerminalText::new(&text).as_str().as_bytes().to_vec()
}

fn write_to(target: OutputTarget, bytes: &[u8], broken: &OnceLock<String>) {
    let written = match target {
        OutputTarget::Stdout => write_all(&mut io::stdout().lock(), bytes),
        OutputTarget::Stderr => write_all(&mut io::stderr().lock(), bytes),
    };
    if let Err(error) = written {
        broken.get_or_init(|| error.to_string());
    }
}

/// Starts the thread that writes to `target`. The error of the first failed write is set in
/// `broken`.
fn start_thread(target: OutputTarget, broken: Arc<OnceLock<String>>) -> io::Result<WriterThread> {
    let (queue, mut writes) = mpsc::channel::<Write>(WRITES_WAITING);
    let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        while let Some(write) = writes.blocking_recv() {
            match write {
                Write::Bytes(bytes) => write_to(target, &bytes, &broken),
                Write::Barrier(reached) => {
                    reached.send(()).ok();
                }
            }
        }
    })?;
    Ok((queue, thread))
}

fn write_all(stream: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
