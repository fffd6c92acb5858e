//! Who reads the terminal: a thread, which rests while another program has it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use crate::tui::input::{Input, Parser};

/// How long what may be the beginning of a key is waited for.
const REST: Duration = Duration::from_millis(30);

/// The same for a paste.
const PASTE_REST: Duration = Duration::from_secs(1);

/// Inputs that wait to be followed.
const INPUTS_WAITING: usize = 256;

/// How long the thread may take until it rests.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that reads, for whoever wants the terminal for something else.
#[derive(Debug)]
pub(in crate::tui) struct Reader {
    shared: Arc<Shared>,
    wake: io::PipeWriter,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// It is to rest.
    wanted: bool,
    /// It does.
    rests: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests as long as somebody wants that.
    fn rest(&self) {
        let mut state = self.state();
        while state.wanted {
            state.rests = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.rests = false;
    }
}

impl Reader {
    /// From here on nothing is read, until [`Reader::resume`].
    pub(in crate::tui) fn pause(&self) {
        let mut state = self.shared.state();
        state.wanted = true;
        io::Write::write(&mut &self.wake, &[0]).ok();
        while !state.rests {
            let waited = self.shared.changed.wait_timeout(state, PATIENCE);
            let (next, limit) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if limit.timed_out() {
                return;
            }
        }
    }

    /// It is read again.
    pub(in crate::tui) fn resume(&self) {
        self.shared.state().wanted = false;
        self.shared.changed.notify_all();
    }
}

/// Starts reading, until nobody listens or the terminal is gone.
pub(in crate::tui) fn read() -> io::Result<(mpsc::Receiver<Vec<Input>>, Reader)> {
    let (sender, inputs) = mpsc::channel(INPUTS_WAITING);
    let (woken, wake) = io::pipe()?;
    let woken = OwnedFd::from(woken);
    let reader = Reader { shared: Arc::default(), wake };
    let shared = Arc::clone(&reader.shared);
    std::thread::Builder::new().name("terminal-read".to_owned()).spawn(move || {
        let mut parser = Parser::default();
        while let Some(found) = next(&mut parser, &woken, &shared) {
            let gone = found.contains(&Input::Gone);
            if !found.is_empty() && sender.blocking_send(found).is_err() || gone {
                return;
            }
        }
    })?;
    Ok((inputs, reader))
}

fn next(parser: &mut Parser, woken: &OwnedFd, shared: &Shared) -> Option<Vec<Input>> {
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
        Err(_) => return Some(vec![Input::Gone]),
    }
    if ready[1].revents().is_some_and(|events| !events.is_empty()) {
        let mut told = [0; 16];
        if !matches!(nix::unistd::read(woken, &mut told), Ok(1..)) {
            // Whoever would listen is gone.
            return None;
        }
        shared.rest();
        return Some(Vec::new());
    }
    let mut piece = [0; 16 << 10];
    match nix::unistd::read(&stdin, &mut piece) {
        Ok(0) => Some(vec![Input::Gone]),
        Ok(count) => Some(parser.feed(&piece[..count])),
        Err(Errno::EINTR | Errno::EAGAIN) => Some(Vec::new()),
        Err(_) => Some(vec![Input::Gone]),
    }
}
