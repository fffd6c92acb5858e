//! The thread that reads the terminal. It pauses while another program uses the terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use crate::input::{InputEvent, Parser};

/// Maximum wait for further bytes of a key sequence.
const REST: Duration = Duration::from_millis(30);

/// Maximum wait for further bytes of a paste.
const PASTE_REST: Duration = Duration::from_secs(1);

/// Capacity of the input channel, in batches of events. When it is full, the thread waits.
const INPUTS_WAITING: usize = 256;

/// Maximum wait until the thread has paused.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Handle of the reading thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<ReaderShared>,
    wake: io::PipeWriter,
}

#[derive(Debug, Default)]
struct ReaderShared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// True if a pause is requested.
    pause_requested: bool,
    /// True if the thread has paused.
    paused: bool,
}

impl ReaderShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the thread while a pause is requested.
    fn wait_while_paused(&self) {
        let mut state = self.state();
        while state.pause_requested {
            state.paused = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.paused = false;
    }
}

impl Reader {
    /// Stops reading until [`Reader::resume`]. Returns when the thread has paused, or after
    /// [`PAUSE_TIMEOUT`].
    pub(crate) fn pause(&self) {
        let mut state = self.shared.state();
        state.pause_requested = true;
        io::Write::write_all(&mut &self.wake, &[0]).ok();
        while !state.paused {
            let waited = self.shared.changed.wait_timeout(state, PAUSE_TIMEOUT);
            let (next, limit) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if limit.timed_out() {
                return;
            }
        }
    }

    /// Continues reading.
    pub(crate) fn resume(&self) {
        self.shared.state().pause_requested = false;
        self.shared.changed.notify_all();
    }
}

/// Starts the reading thread, and returns the channel of its events and its handle. The thread also
/// ends when the receiver is dropped or the terminal is gone.
pub(crate) fn read() -> io::Result<(mpsc::Receiver<Vec<InputEvent>>, Reader)> {
    let (sender, inputs) = mpsc::channel(INPUTS_WAITING);
    let (woken, wake) = io::pipe()?;
    let woken = OwnedFd::from(woken);
    let reader = Reader { shared: Arc::default(), wake };
    let shared = Arc::clone(&reader.shared);
    std::thread::Builder::new().name("terminal-read".to_owned()).spawn(move || {
        let mut parser = Parser::default();
        while let Some(found) = next(&mut parser, &woken, &shared) {
            let gone = found.contains(&InputEvent::Gone);
            if !found.is_empty() && sender.blocking_send(found).is_err() || gone {
                return;
            }
        }
    })?;
    Ok((inputs, reader))
}

fn next(parser: &mut Parser, woken: &OwnedFd, shared: &ReaderShared) -> Option<Vec<InputEvent>> {
    let stdin = io::stdin();
    let rest = if parser.pastes() { PASTE_REST } else { REST };
    let limit = if parser.waits() { PollTimeout::try_from(rest).ok()? } else { PollTimeout::NONE };
    let mut ready = [
        PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
        PollFd::new(woken.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut ready, limit) {
        Ok(0) => return Some(parser.flush()),
        Ok(_) => (),
        Err(Errno::EINTR) => return Some(Vec::new()),
        Err(_) => return Some(vec![InputEvent::Gone]),
    }
    if ready[1].revents().is_some_and(|events| !events.is_empty()) {
        let mut wake_bytes = [0; 16];
        if !matches!(nix::unistd::read(woken, &mut wake_bytes), Ok(1..)) {
            // The handle was dropped.
            return None;
        }
        shared.wait_while_paused();
        return Some(Vec::new());
    }
    let mut piece = [0; 16 << 10];
    match nix::unistd::read(&stdin, &mut piece) {
        Ok(0) => Some(vec![InputEvent::Gone]),
        Ok(count) => Some(parser.feed(&piece[..count])),
        Err(Errno::EINTR | Errno::EAGAIN) => Some(Vec::new()),
        Err(_) => Some(vec![InputEvent::Gone]),
    }
}
