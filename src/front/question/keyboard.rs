//! Where answers come from: standard input if that is the terminal, else the terminal itself.
//!
//! A line is read when one is asked for and not before, so that nothing that was typed earlier
//! can wait here.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;

use nix::sys::termios::{FlushArg, tcflush};
use tokio::sync::mpsc;

use crate::front::driver::{Line, next_line};

/// The terminal of a process, wherever its standard streams go.
const CONTROLLING_TERMINAL: &str = "/dev/tty";

/// Whether a person sees questions and can answer them.
pub(crate) fn can_ask() -> bool {
    io::stderr().is_terminal()
        && (io::stdin().is_terminal() || File::open(CONTROLLING_TERMINAL).is_ok())
}

/// A terminal's keyboard.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// `None`: standard input.
    terminal: Option<Arc<File>>,
    reader: Option<Reader>,
}

/// The thread that reads.
#[derive(Debug)]
struct Reader {
    wanted: std_mpsc::Sender<()>,
    lines: mpsc::Receiver<String>,
    /// It was asked for a line that has not come yet.
    asked: bool,
}

impl Keyboard {
    pub(super) fn at_terminal() -> Keyboard {
        if io::stdin().is_terminal() {
            return Keyboard::default();
        }
        let terminal = File::open(CONTROLLING_TERMINAL).ok().map(Arc::new);
        Keyboard { terminal, reader: None }
    }

    /// Throws away what was typed and not asked for yet.
    pub(super) fn flush(&mut self) {
        // What is no terminal has nothing to throw away.
        match &self.terminal {
            Some(terminal) => tcflush(terminal, FlushArg::TCIFLUSH).ok(),
            None => tcflush(io::stdin(), FlushArg::TCIFLUSH).ok(),
        };
        if let Some(reader) = &mut self.reader
            && reader.lines.try_recv().is_ok()
        {
            reader.asked = false;
        }
    }

    /// The next line; `None` if there will be no more. Dropping the future loses nothing.
    pub(super) async fn line(&mut self) -> Option<String> {
        let terminal = &self.terminal;
        let reader = self.reader.get_or_insert_with(|| Reader::start(terminal.clone()));
        if !reader.asked {
            reader.wanted.send(()).ok()?;
            reader.asked = true;
        }
        let line = reader.lines.recv().await;
        reader.asked = false;
        line
    }
}

impl Reader {
    fn start(terminal: Option<Arc<File>>) -> Reader {
        let (wanted, asked) = std_mpsc::channel();
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            let mut terminal = terminal.as_deref().map(BufReader::new);
            for () in asked {
                let line = match &mut terminal {
                    Some(terminal) => next_line(terminal),
                    None => next_line(&mut io::stdin().lock()),
                };
                let line = match line {
                    Ok(Some(Line::Whole(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
                    // No answer at all.
                    Ok(Some(Line::TooLong)) => "?".to_owned(),
                    Ok(None) | Err(_) => return,
                };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Reader { wanted, lines, asked: false }
    }
}
