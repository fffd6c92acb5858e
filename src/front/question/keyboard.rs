//! Source of answers to permission requests: standard input if it is a terminal, otherwise the
//! controlling terminal.
//!
//! A line is read only on request. For a new permission request it is read only after the keyboard
//! was silent, so that earlier input is never used.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};
use posse_frontend::quiet_period::QuietPeriod;
use tokio::sync::mpsc;

use crate::driver::{InputLine, next_line};

/// Controlling terminal of the process.
const CONTROLLING_TERMINAL: &str = "/dev/tty";

/// Order to a reading thread for a new permission request: discard input until the keyboard is
/// silent, report that, then read on.
pub(crate) const HUSH: u8 = b'?';
/// Order to the thread to read another line for the same permission request.
const MORE: u8 = b'm';

/// True if a person can see and answer permission requests: standard error is a terminal, and
/// standard input is one or the process has a controlling terminal.
pub(crate) fn can_ask() -> bool {
    io::stderr().is_terminal()
        && (io::stdin().is_terminal() || File::open(CONTROLLING_TERMINAL).is_ok())
}

/// Keyboard event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyboardEvent {
    /// The keyboard has been silent for the quiet period since the last permission request
    /// appeared; input counts now.
    Quiet,
    Line(String),
}

/// Event, with the number of permission requests that the thread knew at that time.
type KeyboardReport = (u64, KeyboardEvent);

/// Reads answers from a terminal on a thread, which starts when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// Controlling terminal; `None` if answers are read from standard input, because that is a
    /// terminal or the controlling terminal cannot be opened.
    terminal: Option<Arc<File>>,
    reader: Option<KeyboardThread>,
    /// Number of permission requests so far.
    appeared: u64,
}

/// Connection to the reading thread.
#[derive(Debug)]
struct KeyboardThread {
    orders: OwnedFd,
    heard: mpsc::Receiver<KeyboardReport>,
    /// True if a line was requested and has not arrived yet.
    asked: bool,
    /// Original terminal settings; `None` if they cannot be read.
    modes: Option<Termios>,
}

impl Keyboard {
    pub(super) fn at_terminal() -> Keyboard {
        if io::stdin().is_terminal() {
            return Keyboard::default();
        }
        let terminal = File::open(CONTROLLING_TERMINAL).ok().map(Arc::new);
        Keyboard { terminal, reader: None, appeared: 0 }
    }

    /// Tells the thread that a new permission request is shown. Input before the next silence is
    /// discarded.
    pub(super) fn hush(&mut self) {
        self.order(HUSH);
        self.appeared += 1;
    }

    /// Waits for the next event; requests a line if none is requested. `None` at the end of input,
    /// or if the thread cannot be started. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<KeyboardEvent> {
        loop {
            if self.reader.as_ref().is_none_or(|reader| !reader.asked) {
                self.order(MORE);
            }
            let reader = self.reader.as_mut()?;
            let (known, heard) = reader.heard.recv().await?;
            reader.asked &= heard == KeyboardEvent::Quiet;
            // Input from before the latest request does not answer it.
            if known == self.appeared {
                return Some(heard);
            }
            reader.asked = true;
        }
    }

    fn order(&mut self, order: u8) {
        if self.reader.is_none() {
            self.reader = KeyboardThread::start(self.terminal.clone()).ok();
        }
        if let Some(reader) = &mut self.reader {
            reader.asked = nix::unistd::write(&reader.orders, &[order]).is_ok();
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let Some(KeyboardThread { modes: Some(modes), .. }) = &self.reader else { return };
        match &self.terminal {
            Some(terminal) => tcsetattr(terminal, SetArg::TCSANOW, modes).ok(),
            None => tcsetattr(io::stdin(), SetArg::TCSANOW, modes).ok(),
        };
    }
}

impl KeyboardThread {
    fn start(terminal: Option<Arc<File>>) -> io::Result<KeyboardThread> {
        let (given, orders) = nix::unistd::pipe()?;
        let (sender, heard) = mpsc::channel(4);
        let modes = match &terminal {
            Some(terminal) => tcgetattr(terminal).ok(),
            None => tcgetattr(io::stdin()).ok(),
        };
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            let stdin = io::stdin();
            match &terminal {
                Some(terminal) => listen(terminal.as_fd(), given.as_fd(), &sender),
                None => listen(stdin.as_fd(), given.as_fd(), &sender),
            }
        })?;
        Ok(KeyboardThread { orders, heard, asked: false, modes })
    }
}

/// Loop of the thread: executes orders until the receiver or the terminal is gone.
fn listen(keyboard: BorrowedFd<'_>, orders: BorrowedFd<'_>, said: &mpsc::Sender<KeyboardReport>) {
    let mut questions = 0;
    let mut order = take(orders);
    while let Some(now) = order {
        if now == HUSH {
            match hush(keyboard, orders, &mut questions) {
                Hushed::Quiet if said.blocking_send((questions, KeyboardEvent::Quiet)).is_ok() => {}
                Hushed::Quiet | Hushed::Gone => return,
                Hushed::Order(other) => {
                    order = other;
                    continue;
                }
            }
        }
        order = match wait(keyboard, orders, PollTimeout::NONE) {
            Waited::Order(order) => order,
            Waited::Typed => {
                let heard = line(keyboard)
                    .map(|line| said.blocking_send((questions, KeyboardEvent::Line(line))));
                if !matches!(heard, Some(Ok(()))) {
                    return;
                }
                take(orders)
            }
            Waited::Nothing => Some(MORE),
        };
    }
}

/// Result of a wait for silence.
pub(crate) enum Hushed {
    Quiet,
    /// An order other than [`HUSH`] and [`MORE`] ended the wait; `None`: the sender of orders is
    /// gone.
    Order(Option<u8>),
    /// The input has ended.
    Gone,
}

/// Waits until the keyboard was silent for the quiet period, and discards all keys until then. A
/// new permission request restarts the wait. `questions` is increased for the first request and for
/// each new one.
///
/// The terminal reports single keys only without line editing, which is off during the wait.
pub(crate) fn hush(
    keyboard: BorrowedFd<'_>,
    orders: BorrowedFd<'_>,
    questions: &mut u64,
) -> Hushed {
    *questions += 1;
    let found = tcgetattr(keyboard).ok();
    if let Some(found) = &found {
        let mut raw = found.clone();
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(keyboard, SetArg::TCSAFLUSH, &raw).ok();
    }
    let ended = silence(keyboard, orders, questions);
    if let Some(found) = &found {
        // Input between the last check and this call is discarded as well.
        tcsetattr(keyboard, SetArg::TCSAFLUSH, found).ok();
    }
    ended
}

fn silence(keyboard: BorrowedFd<'_>, orders: BorrowedFd<'_>, questions: &mut u64) -> Hushed {
    let start = Instant::now();
    let mut silence = QuietPeriod::begin(start.elapsed());
    while let Some(left) = silence.left(start.elapsed()) {
        // Rounded up: a wait that ends too early would be repeated.
        let left = left + std::time::Duration::from_millis(1);
        match wait(keyboard, orders, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Waited::Nothing | Waited::Order(Some(MORE)) => (),
            Waited::Order(Some(HUSH)) => {
                *questions += 1;
                silence = QuietPeriod::begin(start.elapsed());
            }
            Waited::Order(other) => return Hushed::Order(other),
            Waited::Typed => match nix::unistd::read(keyboard, &mut [0; 256]) {
                Err(Errno::EINTR | Errno::EAGAIN) => (),
                Ok(0) | Err(_) => return Hushed::Gone,
                Ok(_) => drop(silence.key(start.elapsed())),
            },
        }
    }
    Hushed::Quiet
}

/// Result of a wait for input or an order.
pub(crate) enum Waited {
    /// There is input at the terminal, or its end.
    Typed,
    /// An order arrived; `None`: the sender of orders is gone.
    Order(Option<u8>),
    /// The time limit has passed.
    Nothing,
}

/// Waits for an order or for input, at most for `limit`. An order takes precedence.
pub(crate) fn wait(keyboard: BorrowedFd<'_>, orders: BorrowedFd<'_>, limit: PollTimeout) -> Waited {
    let mut ready =
        [PollFd::new(orders, PollFlags::POLLIN), PollFd::new(keyboard, PollFlags::POLLIN)];
    loop {
        match poll(&mut ready, limit) {
            Err(Errno::EINTR) => (),
            Ok(0) => return Waited::Nothing,
            Err(_) => return Waited::Order(None),
            Ok(_) => break,
        }
    }
    if ready[0].any().unwrap_or(true) { Waited::Order(take(orders)) } else { Waited::Typed }
}

/// Waits for the next order; `None` if the sender of orders is gone.
pub(crate) fn take(orders: BorrowedFd<'_>) -> Option<u8> {
    let mut order = [0];
    loop {
        match nix::unistd::read(orders, &mut order) {
            Ok(1) => return Some(order[0]),
            Err(Errno::EINTR) => (),
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Reads one line, with its newline. A line that is too long becomes `?`, which is no answer.
/// `None` at the end of input or after a read error.
fn line(keyboard: BorrowedFd<'_>) -> Option<String> {
    let read = OneLine(keyboard);
    match next_line(&mut io::BufReader::with_capacity(4096, read)) {
        Ok(Some(InputLine::Whole(bytes))) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // Not a valid answer.
        Ok(Some(InputLine::TooLong)) => Some("?".to_owned()),
        Ok(None) | Err(_) => None,
    }
}

/// Reader that takes one line from a terminal: a terminal returns at most one line per read, so the
/// next line stays unread.
struct OneLine<'a>(BorrowedFd<'a>);

impl io::Read for OneLine<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(self.0, buffer)?)
    }
}
