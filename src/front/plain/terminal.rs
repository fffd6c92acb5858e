//! Source of input lines: a line editor while nothing runs, the terminal's own line editing during
//! a run so that output need not be drawn around it, or a pipe.
//!
//! A single thread reads standard input.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc as std_mpsc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use posse_frontend::history::History;
use rustyline::completion::Completer;
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History as _, MemHistory};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};
use tokio::sync::mpsc;

use crate::driver::{InputLine, next_line};
use crate::question::keyboard::{self, HUSH, Hushed, Waited, take, wait};

/// Maximum interval between pasted lines, in milliseconds. Lines that follow each other within it
/// form one input.
const PASTE_GAP_MS: u8 = 30;

/// Maximum bytes of one input from a watched terminal, exceeded by at most one read; further bytes
/// are discarded.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of queued inputs; the input thread waits while there are as many.
const WAITING_MAX: usize = 16;

/// Byte that tells the input thread to stop watching.
const STOP: u8 = b'!';

/// Input event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalInput {
    /// A line without its newline, or several pasted or continued lines with newlines between them.
    /// Empty for a line from a pipe that is too long.
    Line(String),
    /// The keyboard has been silent for the quiet period since silence was last requested, or it is
    /// gone.
    Quiet,
    /// Ctrl+C or another signal in the line editor.
    Interrupted,
    /// End of input, or an input that cannot be read.
    End,
    /// The thread has stopped watching the input.
    Stopped,
}

#[derive(Debug)]
enum InputRequest {
    Edit(String),
    Watch,
}

/// Reads standard input line by line, on a thread of its own.
#[derive(Debug)]
pub(crate) struct LineTerminal {
    requests: std_mpsc::Sender<InputRequest>,
    inputs: mpsc::Receiver<(u64, TerminalInput)>,
    wake: OwnedFd,
    /// Number of requests for silence so far; a report of silence is valid only for the latest
    /// request.
    hushes: u64,
    interactive: bool,
    watching: bool,
    /// Original terminal settings; `None` if input is not interactive.
    modes: Option<Termios>,
}

impl LineTerminal {
    /// Starts the thread, which reads only on request. `interactive`: true if a user types at a
    /// terminal, false for a pipe. Fails if the thread or the pipe to it cannot be created.
    pub(crate) fn open(interactive: bool, history: History) -> io::Result<LineTerminal> {
        let modes = if interactive { tcgetattr(io::stdin()).ok() } else { None };
        let (woken, wake) = nix::unistd::pipe()?;
        let (requests, asked) = std_mpsc::channel();
        let (sender, inputs) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new().name("terminal-read".to_owned()).spawn(move || {
            let mut reader =
                InputThread { inputs: sender, woken, hushes: 0, history, editor: None };
            for request in asked {
                let goes_on = match request {
                    InputRequest::Edit(prompt) if interactive => reader.edit(&prompt),
                    InputRequest::Edit(_) => reader.line(),
                    InputRequest::Watch => reader.watch(),
                };
                if goes_on.is_none() {
                    return;
                }
            }
        })?;
        Ok(LineTerminal { requests, inputs, wake, hushes: 0, interactive, watching: false, modes })
    }

    /// Requests one line, which [`next`](LineTerminal::next) returns. At a terminal the line is
    /// edited behind `prompt`; a pipe shows no prompt.
    pub(crate) fn edit(&mut self, prompt: &str) {
        self.requests.send(InputRequest::Edit(prompt.to_owned())).ok();
    }

    /// Starts watching a terminal until [`unwatch`](LineTerminal::unwatch): each typed line becomes
    /// an input. A pipe is not read meanwhile, because its next line is the next task.
    pub(crate) fn watch(&mut self) {
        if self.interactive && !self.watching {
            self.watching = self.requests.send(InputRequest::Watch).is_ok();
        }
    }

    /// Stops watching and returns the inputs that [`next`](LineTerminal::next) has not returned.
    /// Empty if the terminal is not watched.
    pub(crate) async fn unwatch(&mut self) -> Vec<TerminalInput> {
        let mut left = Vec::new();
        if !std::mem::take(&mut self.watching) {
            return left;
        }
        nix::unistd::write(&self.wake, &[STOP]).ok();
        while let Some((_, input)) = self.inputs.recv().await {
            if input == TerminalInput::Stopped {
                break;
            }
            left.push(input);
        }
        left
    }

    /// Tells the thread to discard input until the keyboard is silent, and to report that. Does
    /// nothing unless the terminal is watched.
    pub(crate) fn discard_input(&mut self) {
        if self.watching && nix::unistd::write(&self.wake, &[HUSH]).is_ok() {
            self.hushes += 1;
        }
    }

    /// Waits for the next input; `End` if the thread is gone. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> TerminalInput {
        loop {
            match self.inputs.recv().await {
                // A newer quiet period was requested since.
                Some((hushes, TerminalInput::Quiet)) if hushes != self.hushes => (),
                other => return other.map_or(TerminalInput::End, |(_, input)| input),
            }
        }
    }

    /// Restores the original terminal settings, even in the middle of a line.
    pub(crate) fn restore(&self) {
        if let Some(modes) = &self.modes {
            tcsetattr(io::stdin(), SetArg::TCSANOW, modes).ok();
        }
    }
}

impl Drop for LineTerminal {
    fn drop(&mut self) {
        self.restore();
    }
}

/// True if the terminal at standard input is gone. A reader cannot distinguish that from Ctrl+D.
pub(crate) fn is_gone() -> bool {
    let stdin = io::stdin();
    let mut state = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let asked = poll(&mut state, PollTimeout::ZERO);
    asked.is_ok() && state[0].revents().is_some_and(|found| found.contains(PollFlags::POLLHUP))
}

/// The thread that reads the input. Its methods return `None` when the receiver of inputs is gone.
struct InputThread {
    inputs: mpsc::Sender<(u64, TerminalInput)>,
    woken: OwnedFd,
    hushes: u64,
    history: History,
    editor: Option<Editor<Continued, MemHistory>>,
}

impl InputThread {
    fn send(&self, input: TerminalInput) -> Option<()> {
        self.inputs.blocking_send((self.hushes, input)).ok()
    }

    fn edit(&mut self, prompt: &str) -> Option<()> {
        let input = match self.edit_line(prompt) {
            Ok(text) => TerminalInput::Line(text.replace("\\\n", "\n")),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {
                TerminalInput::Interrupted
            }
            // End of input, or a vanished terminal.
            Err(_) => TerminalInput::End,
        };
        self.send(input)
    }

    /// Reads one input with the line editor and adds it to the history. There is one editor for all
    /// inputs, because it contains type-ahead.
    fn edit_line(&mut self, prompt: &str) -> rustyline::Result<String> {
        let editor = match &mut self.editor {
            Some(editor) => editor,
            none => none.insert(editor(self.history.lines())?),
        };
        let text = loop {
            match editor.readline(prompt) {
                // The window size has changed.
                Err(ReadlineError::Signal(rustyline::error::Signal::Resize)) => (),
                other => break other?,
            }
        };
        if self.history.add(&text) {
            editor.add_history_entry(text.as_str())?;
        }
        Ok(text)
    }

    fn line(&self) -> Option<()> {
        let input = match next_line(&mut io::stdin().lock()) {
            Ok(Some(InputLine::Whole(bytes))) => {
                let text = String::from_utf8_lossy(&bytes);
                TerminalInput::Line(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            // An empty line is safer than a partial one.
            Ok(Some(InputLine::TooLong)) => TerminalInput::Line(String::new()),
            Ok(None) | Err(_) => TerminalInput::End,
        };
        self.send(input)
    }

    fn watch(&mut self) -> Option<()> {
        let (mut text, stdin) = (Vec::new(), io::stdin());
        loop {
            let orders = self.woken.as_fd();
            let goes_on = text.is_empty() || text.ends_with(b"\\\n");
            let limit = if goes_on { PollTimeout::NONE } else { PASTE_GAP_MS.into() };
            match wait(stdin.as_fd(), orders, limit) {
                Waited::Order(Some(HUSH)) => {
                    self.forward_line(&mut text)?;
                    match keyboard::hush(stdin.as_fd(), orders, &mut self.hushes) {
                        // The end is detected by reading.
                        Hushed::Quiet | Hushed::Gone => self.send(TerminalInput::Quiet)?,
                        Hushed::Order(_) => return self.send(TerminalInput::Stopped),
                    }
                }
                Waited::Order(_) => {
                    self.forward_line(&mut text)?;
                    return self.send(TerminalInput::Stopped);
                }
                Waited::Nothing => self.forward_line(&mut text)?,
                Waited::Typed => {
                    let mut piece = [0; 8192];
                    match nix::unistd::read(&stdin, &mut piece) {
                        Err(Errno::EINTR | Errno::EAGAIN) => (),
                        Ok(count) if count > 0 && text.len() < INPUT_BYTES_MAX => {
                            text.extend_from_slice(&piece[..count]);
                        }
                        Ok(count) if count > 0 => (),
                        Ok(_) | Err(_) => {
                            self.forward_line(&mut text)?;
                            self.send(TerminalInput::End)?;
                            // A further request would get the same answer at once, in an endless
                            // loop.
                            while take(orders) == Some(HUSH) {
                                self.hushes += 1;
                            }
                            return self.send(TerminalInput::Stopped);
                        }
                    }
                }
            }
        }
    }

    fn forward_line(&self, text: &mut Vec<u8>) -> Option<()> {
        if text.is_empty() {
            return Some(());
        }
        let typed = String::from_utf8_lossy(text).replace("\\\n", "\n");
        text.clear();
        self.send(TerminalInput::Line(typed.trim_end_matches('\n').to_owned()))
    }
}

fn editor(lines: &[String]) -> rustyline::Result<Editor<Continued, MemHistory>> {
    let config = Config::builder()
        .behavior(Behavior::PreferTerm)
        .check_cursor_position(false)
        .bracketed_paste(true)
        .build();
    let mut history = MemHistory::with_config(&config);
    for line in lines {
        history.add(line)?;
    }
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Continued));
    Ok(editor)
}

/// Validator of the line editor: a backslash at the end of a line continues the input on the next
/// line.
struct Continued;

impl Completer for Continued {
    type Candidate = String;
}
impl Helper for Continued {}
impl Highlighter for Continued {}
impl Hinter for Continued {
    type Hint = String;
}

impl Validator for Continued {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}
