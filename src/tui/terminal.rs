//! The terminal itself: how it is taken and given back, who reads it, and who writes to it.
//!
//! It is asked nothing. Reading and writing are threads of their own: whoever waits for a slow
//! terminal is not the one who follows what happens.

mod reading;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{
    InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};
use tokio::sync::Notify;

pub(super) use reading::{Reader, read};

/// Bracketed paste on, and keys that differ in what is held down told apart.
const TAKE: &[u8] = b"\x1b[?2004h\x1b[>1u";

/// All of it off, the cursor seen, nothing coloured.
const GIVE_BACK: &[u8] = b"\x1b[<u\x1b[?2004l\x1b[0m\x1b[?25h";

const APART: &[u8] = b"\x1b[?1049h\x1b[H";
const TOGETHER: &[u8] = b"\x1b[?1049l";

/// Rows that are handed to the terminal's own scrollback with one frame. At a megabyte a second
/// that many take less than a twentieth of it.
pub(super) const PACE_MIN: usize = 150;

/// The same for a terminal that takes them in no time.
const PACE_MAX: usize = 2400;

/// What is no time.
const NO_TIME: Duration = Duration::from_millis(5);

/// How long a frame that is on its way is waited for after a panic.
const LAST_FRAME: Duration = Duration::from_millis(200);

/// A terminal that was taken. Dropping it gives it back.
pub(super) struct Terminal {
    found: Termios,
    writer: SyncSender<Vec<u8>>,
    state: Arc<Writing>,
    /// A screen of its own is shown.
    pub(super) apart: bool,
    given_back: bool,
    /// It was given back for a while.
    lent: bool,
}

/// What the thread that writes is at.
#[derive(Debug, Default)]
struct Writing {
    busy: AtomicBool,
    broken: AtomicBool,
    /// How long the last write took, in microseconds.
    took: AtomicU64,
    done: Notify,
}

impl Terminal {
    /// Takes the terminal of this process.
    pub(super) fn take() -> io::Result<Terminal> {
        let found = tcgetattr(io::stdin())?;
        raw(&found)?;
        let state = Arc::new(Writing::default());
        let (writer, frames) = sync_channel::<Vec<u8>>(1);
        let shared = Arc::clone(&state);
        std::thread::Builder::new().name("terminal-write".to_owned()).spawn(move || {
            while let Ok(bytes) = frames.recv() {
                let begun = Instant::now();
                let mut out = io::stdout().lock();
                if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                    shared.broken.store(true, Ordering::Release);
                }
                drop(out);
                let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                shared.took.store(took, Ordering::Release);
                shared.busy.store(false, Ordering::Release);
                shared.done.notify_one();
            }
        })?;
        let terminal =
            Terminal { found, writer, state, apart: false, given_back: false, lent: false };
        terminal.write(TAKE.to_vec());
        Ok(terminal)
    }

    /// Whether what was written last is out.
    pub(super) fn is_free(&self) -> bool {
        !self.state.busy.load(Ordering::Acquire)
    }

    /// Rows for the next frame, after so many for the last one.
    pub(super) fn pace(&self, before: usize) -> usize {
        let quick = Duration::from_micros(self.state.took.load(Ordering::Acquire)) < NO_TIME;
        let next = if quick { before.saturating_mul(2) } else { before / 2 };
        next.clamp(PACE_MIN, PACE_MAX)
    }

    /// Whether it is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.state.broken.load(Ordering::Acquire)
    }

    /// Returns when what was written last is out.
    pub(super) async fn freed(&self) {
        while !self.is_free() {
            self.state.done.notified().await;
        }
    }

    /// Writes, beside whoever calls.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.state.busy.store(true, Ordering::Release);
        if self.writer.send(bytes).is_err() {
            self.state.broken.store(true, Ordering::Release);
        }
    }

    /// Goes to a screen of its own, or comes back from it.
    pub(super) fn set_apart(&mut self, apart: bool) -> Vec<u8> {
        self.apart = apart;
        if apart { APART.to_vec() } else { TOGETHER.to_vec() }
    }

    /// As it was found, for a while: for the shell, or for another program.
    pub(super) async fn lend(&mut self, last: Vec<u8>) {
        self.lent = true;
        self.write([&last, GIVE_BACK].concat());
        tokio::time::timeout(Duration::from_secs(1), self.freed()).await.ok();
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.found).ok();
    }

    /// Takes it again. Whoever stopped us may have changed it.
    pub(super) fn retake(&mut self) {
        raw(&self.found).ok();
        // The terminal counts how often it was told about keys.
        if std::mem::take(&mut self.lent) {
            self.write(TAKE.to_vec());
        }
    }

    /// Gives it back for good, after `last`.
    pub(super) async fn give_back(mut self, last: Vec<u8>) {
        let together: &[u8] = if self.apart { TOGETHER } else { b"" };
        self.write([together, &last, GIVE_BACK].concat());
        // A terminal that takes nothing any more must not keep us.
        tokio::time::timeout(Duration::from_secs(2), self.freed()).await.ok();
        tcsetattr(io::stdin(), SetArg::TCSANOW, &self.found).ok();
        self.given_back = true;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.given_back {
            return;
        }
        // Something has panicked. What is being written would be written behind the end; but whoever
        // writes may hang, so it is not waited for long.
        let begun = Instant::now();
        while !self.is_free() && begun.elapsed() < LAST_FRAME {
            std::thread::sleep(Duration::from_millis(2));
        }
        tcsetattr(io::stdin(), SetArg::TCSANOW, &self.found).ok();
        let together: &[u8] = if self.apart { TOGETHER } else { b"" };
        let last = [together, b"\r\x1b[J", GIVE_BACK].concat();
        let stdout = io::stdout();
        let mut ready = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut ready, PollTimeout::ZERO) == Ok(1) {
            nix::unistd::write(&stdout, &last).ok();
        }
        if let Some(said) = take_panic() {
            nix::unistd::write(io::stderr(), format!("{said}\n").as_bytes()).ok();
        }
    }
}

fn raw(found: &Termios) -> io::Result<()> {
    let mut raw = found.clone();
    raw.input_flags.remove(
        InputFlags::IXON
            | InputFlags::ICRNL
            | InputFlags::INLCR
            | InputFlags::IGNCR
            | InputFlags::BRKINT
            | InputFlags::ISTRIP
            | InputFlags::INPCK,
    );
    raw.local_flags
        .remove(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG | LocalFlags::IEXTEN);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
    // Output stays as it was: what somebody else prints begins at the left.
    Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?)
}

/// Columns and rows; a terminal that does not say is taken for an ordinary one.
pub(super) fn size() -> (u16, u16) {
    let sizes =
        [rustix::termios::tcgetwinsize(io::stdout()), rustix::termios::tcgetwinsize(io::stdin())];
    let known = sizes.into_iter().flatten().find(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

/// Whether there is a terminal to read from and to draw on.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// What the last panic said: it is shown when the terminal was given back.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// From now on a panic draws nothing over the screen. Most of them are survived.
pub(super) fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let mut kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(panic.to_string());
    }));
}

/// What the last panic said, and from now on panics are shown again.
pub(super) fn take_panic() -> Option<String> {
    if !std::thread::panicking() {
        drop(std::panic::take_hook());
    }
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}
