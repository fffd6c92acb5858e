//! The terminal: raw mode, reading and writing, and restoring it.
//!
//! The terminal is asked for its background colour once, and the answer is never waited for. Reading and writing run on threads of their own, so a slow
//! terminal does not delay the handling of events.

mod reader;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossterm::cursor::{MoveTo, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange,
    KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::queue;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, window_size};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::sync::Notify;

pub(super) use reader::{Reader, read};

/// Lower bound of the number of rows that one frame may move to the terminal's scrollback. At 1
/// MB/s these rows take less than a twentieth of a second.
pub(super) const ROWS_PER_FRAME_MIN: usize = 150;

/// Upper bound of the number of rows that one frame may move to the scrollback, for a fast
/// terminal.
const ROWS_PER_FRAME_MAX: usize = 2400;

/// Duration of a write below which a terminal counts as fast.
const FAST_WRITE_MAX: Duration = Duration::from_millis(5);

/// Maximum wait for a pending frame after a panic.
const LAST_FRAME: Duration = Duration::from_millis(200);

/// Query for the background colour (OSC 11 of xterm).
const ASK_BACKGROUND: &[u8] = b"\x1b]11;?\x1b\\";

/// Maximum time after the query for the background colour at which a reply is expected.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// Wait for the reply at the exit, if none has arrived within [`REPLY_MAX`] of the query.
const LATE_REPLY_MAX: Duration = Duration::from_millis(100);

/// Modes of the terminal besides raw mode and bracketed paste.
#[derive(Debug, Clone, Default)]
pub(super) struct TerminalModes {
    /// True if the keyboard protocol of kitty is used.
    pub(super) keyboard_flags: bool,
    /// True if the terminal reports its focus.
    pub(super) focus_reports: bool,
    /// Sequences that save and restore the window title; empty if it is not changed.
    pub(super) title: (&'static [u8], &'static [u8]),
    /// True if the terminal is asked for its background colour at the start.
    pub(super) asks_background: bool,
}

/// The terminal in raw mode. Dropping this value restores the terminal.
pub(super) struct Terminal {
    found: Termios,
    modes: TerminalModes,
    writer: SyncSender<Vec<u8>>,
    state: Arc<Writing>,
    /// True if the alternate screen is active.
    pub(super) alternate_screen: bool,
    restored: bool,
    /// Time of the query for the background colour; `None` if none is open.
    asked: Option<Instant>,
    /// True while the terminal is restored temporarily.
    released: bool,
}

/// Progress and errors of the writing thread, shared with that thread.
#[derive(Debug, Default)]
struct Writing {
    busy: AtomicBool,
    broken: AtomicBool,
    /// Duration of the last write in microseconds.
    took: AtomicU64,
    done: Notify,
}

impl Terminal {
    /// Starts the writing thread, puts the terminal of this process into raw mode and enables
    /// `modes`. Fails if standard input is no terminal or the thread cannot be started; the
    /// terminal is then unchanged.
    pub(super) fn acquire(modes: TerminalModes) -> io::Result<Terminal> {
        let found = tcgetattr(io::stdin())?;
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
        raw(&found)?;
        let mut terminal = Terminal {
            found,
            modes,
            writer,
            state,
            alternate_screen: false,
            restored: false,
            asked: None,
            released: false,
        };
        let mut bytes = acquire_sequence(&terminal.modes);
        if terminal.modes.asks_background {
            bytes.extend_from_slice(ASK_BACKGROUND);
            terminal.asked = Some(Instant::now());
        }
        terminal.write(bytes);
        Ok(terminal)
    }

    /// Registers that the terminal has reported its background colour.
    pub(super) fn background_reported(&mut self) {
        self.asked = None;
    }

    /// Returns `true` if no write is pending.
    pub(super) fn is_write_finished(&self) -> bool {
        !self.state.busy.load(Ordering::Acquire)
    }

    /// Maximum number of rows of the next frame: twice the number `before` if the last write was
    /// fast, otherwise half of it, but between [`ROWS_PER_FRAME_MIN`] and [`ROWS_PER_FRAME_MAX`].
    pub(super) fn rows_per_frame(&self, before: usize) -> usize {
        let quick = Duration::from_micros(self.state.took.load(Ordering::Acquire)) < FAST_WRITE_MAX;
        let next = if quick { before.saturating_mul(2) } else { before / 2 };
        next.clamp(ROWS_PER_FRAME_MIN, ROWS_PER_FRAME_MAX)
    }

    /// Returns `true` if a write has failed: the terminal is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.state.broken.load(Ordering::Acquire)
    }

    /// Waits until the pending write has finished.
    pub(super) async fn write_finished(&self) {
        while !self.is_write_finished() {
            self.state.done.notified().await;
        }
    }

    /// Passes `bytes` to the writing thread; does nothing if there are none. Blocks while one write
    /// is in progress and another one is queued.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.state.busy.store(true, Ordering::Release);
        if self.writer.send(bytes).is_err() {
            self.state.broken.store(true, Ordering::Release);
        }
    }

    /// Records whether the alternate screen is active, and returns the sequence that enters or
    /// leaves it. The caller writes the sequence.
    pub(super) fn set_alternate_screen(&mut self, alternate_screen: bool) -> Vec<u8> {
        self.alternate_screen = alternate_screen;
        let mut bytes = Vec::new();
        if alternate_screen {
            queue!(bytes, EnterAlternateScreen, MoveTo(0, 0)).ok();
        } else {
            queue!(bytes, LeaveAlternateScreen).ok();
        }
        bytes
    }

    /// Writes `last` and restores the terminal temporarily, for the shell or another program, until
    /// [`Terminal::reacquire`]. Does not leave the alternate screen. Waits at most a second for the
    /// output.
    pub(super) async fn release(&mut self, last: Vec<u8>) {
        self.released = true;
        self.write(restore_sequence(false, &self.modes, &last));
        tokio::time::timeout(Duration::from_secs(1), self.write_finished()).await.ok();
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.found).ok();
    }

    /// Enters raw mode again, after another program has used the terminal and may have changed the
    /// terminal settings.
    pub(super) fn reacquire(&mut self) {
        raw(&self.found).ok();
        // The terminal stacks keyboard modes, so each must be enabled once.
        if std::mem::take(&mut self.released) {
            self.write(acquire_sequence(&self.modes));
        }
    }

    /// Restores the terminal for good, after writing `last`. Waits at most two seconds for the
    /// output.
    pub(super) async fn restore(mut self, last: Vec<u8>) {
        self.write(restore_sequence(self.alternate_screen, &self.modes, &last));
        // A terminal that accepts no more output must not block the exit.
        tokio::time::timeout(Duration::from_secs(2), self.write_finished()).await.ok();
        let mut when = SetArg::TCSANOW;
        if self.asked.is_some_and(|asked| asked.elapsed() < REPLY_MAX) {
            // A late reply must not be input of the shell.
            tokio::time::sleep(LATE_REPLY_MAX).await;
            when = SetArg::TCSAFLUSH;
        }
        tcsetattr(io::stdin(), when, &self.found).ok();
        self.restored = true;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.restored {
            return;
        }
        // A panic happened. A pending write would appear after the end; but the writer may hang, so
        // the wait is short.
        let begun = Instant::now();
        while !self.is_write_finished() && begun.elapsed() < LAST_FRAME {
            std::thread::sleep(Duration::from_millis(2));
        }
        tcsetattr(io::stdin(), SetArg::TCSANOW, &self.found).ok();
        let last = restore_sequence(self.alternate_screen, &self.modes, b"\r\x1b[J");
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

/// Sequence that saves the window title, and enables bracketed paste and `modes`.
fn acquire_sequence(modes: &TerminalModes) -> Vec<u8> {
    let mut bytes = modes.title.0.to_vec();
    queue!(bytes, EnableBracketedPaste).ok();
    if modes.keyboard_flags {
        let keys = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
        queue!(bytes, PushKeyboardEnhancementFlags(keys)).ok();
    }
    if modes.focus_reports {
        queue!(bytes, EnableFocusChange).ok();
    }
    bytes
}

/// Sequence that leaves the alternate screen if it is active, writes `last`, undoes
/// [`acquire_sequence`], resets colours and shows the cursor.
fn restore_sequence(alternate_screen: bool, modes: &TerminalModes, last: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if alternate_screen {
        queue!(bytes, LeaveAlternateScreen).ok();
    }
    bytes.extend_from_slice(last);
    let reset = SetAttribute(Attribute::Reset);
    if modes.focus_reports {
        queue!(bytes, DisableFocusChange).ok();
    }
    if modes.keyboard_flags {
        queue!(bytes, PopKeyboardEnhancementFlags).ok();
    }
    queue!(bytes, DisableBracketedPaste, reset, Show).ok();
    bytes.extend_from_slice(modes.title.1);
    bytes
}

/// Puts the terminal into raw mode, except that the output flags stay: output of other programs
/// then starts in the first column. `found`: terminal settings at the start of the process. They
/// are used because another program may have changed the current settings, which `crossterm` would
/// restore.
fn raw(found: &Termios) -> io::Result<()> {
    let mut raw = found.clone();
    cfmakeraw(&mut raw);
    raw.output_flags = found.output_flags;
    Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?)
}

/// Columns and rows of the terminal; 80 by 24 if they are unknown.
pub(super) fn size() -> (u16, u16) {
    let size = window_size().ok().map(|size| (size.columns, size.rows));
    size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

/// Returns `true` if standard input and output are a terminal.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Message of the last panic; it is shown after the terminal was restored.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that stores the message instead of writing it over the screen. The UI
/// survives most panics.
pub(super) fn capture_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let mut kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(panic.to_string());
    }));
}

/// Takes the message of the last panic, if there is one. Restores the default panic hook, unless
/// this thread is panicking.
pub(super) fn take_panic() -> Option<String> {
    if !std::thread::panicking() {
        drop(std::panic::take_hook());
    }
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn only_the_modes_of_the_terminal_are_enabled_and_each_is_undone() {
        let none = TerminalModes::default();
        assert_eq!(text(acquire_sequence(&none)), "\x1b[?2004h");
        assert_eq!(text(restore_sequence(false, &none, b"")), "\x1b[?2004l\x1b[0m\x1b[?25h");
        let all = TerminalModes {
            keyboard_flags: true,
            focus_reports: true,
            title: (b"\x1b[22;2t", b"\x1b[23;2t"),
            asks_background: true,
        };
        assert_eq!(text(acquire_sequence(&all)), "\x1b[22;2t\x1b[?2004h\x1b[>1u\x1b[?1004h");
        assert_eq!(
            text(restore_sequence(true, &all, b"x")),
            "\x1b[?1049lx\x1b[?1004l\x1b[<1u\x1b[?2004l\x1b[0m\x1b[?25h\x1b[23;2t"
        );
    }
}
