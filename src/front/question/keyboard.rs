//! Source of answers: standard input if it is the terminal, otherwise the controlling terminal.
//!
//! A line is read only on request, and for a new question only after a quiet period: input typed
//! earlier cannot answer it.

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
use tokio::sync::mpsc;

use crate::front::driver::{Line, next_line};
use crate::talk::silence::Silence;

/// Controlling terminal of the process, independent of its standard streams.
const CONTROLLING_TERMINAL: &str = "/dev/tty";

/// Command to the thread: a question appeared; wait for a quiet period, then read a line.
pub(crate) const HUSH: u8 = b'?';
/// Command to the thread: read another line for the same question.
const MORE: u8 = b'm';

/// Returns `true` if a user can see and answer questions.
pub(crate) fn can_ask() -> bool {
    io::stderr().is_terminal()
        && (io::stdin().is_terminal() || File::open(CONTROLLING_TERMINAL).is_ok())
}

/// Keyboard event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// The quiet period since the last question is over.
    Quiet,
    Line(String),
}

/// Keyboard event, with the number of questions known to the thread.
type Said = (u64, Heard);

/// Keyboard of a terminal.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// `None`: standard input.
    terminal: Option<Arc<File>>,
    reader: Option<Reader>,
    /// Number of questions so far.
    appeared: u64,
}

/// Reading thread.
#[derive(Debug)]
struct Reader {
    orders: OwnedFd,
    heard: mpsc::Receiver<Said>,
    /// A line was requested and has not arrived yet.
    asked: bool,
    /// Original terminal modes.
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

    /// Registers a new question: input typed so far, or before the end of the quiet period, is
    /// discarded.
    pub(super) fn hush(&mut self) {
        self.order(HUSH);
        self.appeared += 1;
    }

    /// Next event; `None` at the end of input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            if self.reader.as_ref().is_none_or(|reader| !reader.asked) {
                self.order(MORE);
            }
            let reader = self.reader.as_mut()?;
            let (known, heard) = reader.heard.recv().await?;
            reader.asked &= heard == Heard::Quiet;
            // Input from before the latest question is no answer to it.
            if known == self.appeared {
                return Some(heard);
            }
            reader.asked = true;
        }
    }

    fn order(&mut self, order: u8) {
        if self.reader.is_none() {
            self.reader = Reader::start(self.terminal.clone()).ok();
        }
        if let Some(reader) = &mut self.reader {
            reader.asked = nix::unistd::write(&reader.orders, &[order]).is_ok();
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let Some(Reader { modes: Some(modes), .. }) = &self.reader else { return };
        match &self.terminal {
            Some(terminal) => tcsetattr(terminal, SetArg::TCSANOW, modes).ok(),
            None => tcsetattr(io::stdin(), SetArg::TCSANOW, modes).ok(),
        };
    }
}

impl Reader {
    fn start(terminal: Option<Arc<File>>) -> io::Result<Reader> {
        let (given, orders) = nix::unistd::pipe()?;
        let (sender, heard) = mpsc::channel(4);
        let modes = match &terminal {
            Some(terminal) => tcgetattr(terminal).ok(),
            None => tcgetattr(io::stdin()).ok(),
        };
        std::thread::spawn(move || {
            let stdin = io::stdin();
            match &terminal {
                Some(terminal) => listen(terminal.as_fd(), given.as_fd(), &sender),
                None => listen(stdin.as_fd(), given.as_fd(), &sender),
            }
        });
        Ok(Reader { orders, heard, asked: false, modes })
    }
}

/// Executes commands until the receiver or the terminal is gone.
fn listen(keyboard: BorrowedFd<'_>, orders: BorrowedFd<'_>, said: &mpsc::Sender<Said>) {
    let mut questions = 0;
    let mut order = take(orders);
    while let Some(now) = order {
        if now == HUSH {
            match hush(keyboard, orders, &mut questions) {
                Hushed::Quiet if said.blocking_send((questions, Heard::Quiet)).is_ok() => (),
                Hushed::Quiet | Hushed::Gone => return,
                Hushed::Order(other) => {
                    order = other;
                    continue;
                }
            }
        }
        order = match wait(keyboard, orders, PollTimeout::NONE) {
            Waited::Order => take(orders),
            Waited::Typed => {
                let heard =
                    line(keyboard).map(|line| said.blocking_send((questions, Heard::Line(line))));
                if !matches!(heard, Some(Ok(()))) {
                    return;
                }
                take(orders)
            }
            Waited::Nothing => Some(MORE),
        };
    }
}

/// Result of a quiet period.
pub(crate) enum Hushed {
    Quiet,
    /// Interrupted by a command; `None`: the sender is gone.
    Order(Option<u8>),
    /// End of input.
    Gone,
}

/// Waits for a quiet period, discarding every key until then. Further questions restart the wait,
/// and are counted.
///
/// Single keys are visible only without line buffering, so it is disabled during the wait.
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
    let mut silence = Silence::begin(start.elapsed());
    while let Some(left) = silence.left(start.elapsed()) {
        // Rounded up: a wait that ends too early would be repeated.
        let left = left + std::time::Duration::from_millis(1);
        match wait(keyboard, orders, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Waited::Nothing => (),
            Waited::Order => match take(orders) {
                Some(HUSH) => {
                    *questions += 1;
                    silence = Silence::begin(start.elapsed());
                }
                Some(MORE) => (),
                other => return Hushed::Order(other),
            },
            Waited::Typed => match nix::unistd::read(keyboard, &mut [0; 256]) {
                Ok(0) => return Hushed::Gone,
                Ok(_) => {
                    silence.key(start.elapsed());
                }
                Err(Errno::EINTR | Errno::EAGAIN) => (),
                Err(_) => return Hushed::Gone,
            },
        }
    }
    Hushed::Quiet
}

enum Waited {
    Typed,
    Order,
    Nothing,
}

fn wait(keyboard: BorrowedFd<'_>, orders: BorrowedFd<'_>, limit: PollTimeout) -> Waited {
    let mut ready =
        [PollFd::new(orders, PollFlags::POLLIN), PollFd::new(keyboard, PollFlags::POLLIN)];
    loop {
        match poll(&mut ready, limit) {
            Err(Errno::EINTR) => (),
            Ok(0) => return Waited::Nothing,
            Err(_) => return Waited::Order,
            Ok(_) => break,
        }
    }
    if ready[0].any().unwrap_or(true) { Waited::Order } else { Waited::Typed }
}

/// Next command; `None` at the end.
fn take(orders: BorrowedFd<'_>) -> Option<u8> {
    let mut order = [0];
    loop {
        match nix::unistd::read(orders, &mut order) {
            Ok(1) => return Some(order[0]),
            Err(Errno::EINTR) => (),
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Reads the available line.
fn line(keyboard: BorrowedFd<'_>) -> Option<String> {
    let read = OneLine(keyboard);
    match next_line(&mut io::BufReader::with_capacity(4096, read)) {
        Ok(Some(Line::Whole(bytes))) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // Not a valid answer.
        Ok(Some(Line::TooLong)) => Some("?".to_owned()),
        Ok(None) | Err(_) => None,
    }
}

/// A terminal returns one line per read, so the next line is not consumed.
struct OneLine<'a>(BorrowedFd<'a>);

impl io::Read for OneLine<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(self.0, buffer)?)
    }
}
