//! Line mode in a real terminal (a pty) and with piped input.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::model_server::{
    ModelAnswer, ModelServer, calls, runs, says, stream_bytes, text_event, text_of,
};
use crate::posse::Machine;

/// Time after which a test fails because the expected output did not appear.
const STUCK: Duration = Duration::from_secs(30);

/// A pty that runs the program.
pub(crate) struct Terminal {
    child: Child,
    keys: Option<File>,
    /// Output is read at 1 KB/s.
    slow: Arc<AtomicBool>,
    /// Stops the reading thread.
    sides: Option<(OwnedFd, JoinHandle<()>)>,
    /// The test's own handle of the program's side.
    slave: OwnedFd,
    pieces: Receiver<Vec<u8>>,
    /// All output, with escape sequences.
    shown: String,
    /// Bytes of the output that a test has examined.
    looked: usize,
}

impl Terminal {
    fn open(machine: &Machine, args: &[&str]) -> Terminal {
        Terminal::run(machine, &[&["plain"], args].concat(), "xterm")
    }

    /// Runs the program with these arguments in a terminal of this kind.
    pub(crate) fn run(machine: &Machine, args: &[&str], kind: &str) -> Terminal {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        // A program that inherits the master would never see it vanish.
        for side in [&master, &slave] {
            fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        // `setsid --ctty` makes the pty the controlling terminal and then becomes the program.
        let program = machine.command::<&str>(&[]);
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_posse")).args(args);
        command.current_dir(machine.path("work")).env_clear().env("TERM", kind);
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let mut screen = File::from(master.try_clone().unwrap());
        let (stopped, stop) = nix::unistd::pipe().unwrap();
        let (piece, pieces) = channel();
        let slow = Arc::new(AtomicBool::new(false));
        let is_slow = Arc::clone(&slow);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                let input = PollFlags::POLLIN;
                let mut ready =
                    [PollFd::new(screen.as_fd(), input), PollFd::new(stopped.as_fd(), input)];
                poll(&mut ready, PollTimeout::NONE).unwrap();
                if ready[1].any() == Some(true) {
                    return;
                }
                let slow = is_slow.load(Ordering::Relaxed);
                let most = if slow { 64 } else { bytes.len() };
                match screen.read(&mut bytes[..most]) {
                    Ok(count) if count > 0 => drop(piece.send(bytes[..count].to_vec())),
                    _ => return,
                }
                if slow {
                    thread::sleep(Duration::from_millis(62));
                }
            }
        });
        let keys = Some(File::from(master));
        let sides = Some((stop, reader));
        Terminal { child, keys, slow, sides, slave, pieces, shown: String::new(), looked: 0 }
    }

    /// Closes the master side, as a terminal window does.
    pub(crate) fn vanish(&mut self) {
        let (stop, reader) = self.sides.take().unwrap();
        drop(stop);
        reader.join().unwrap();
        drop(self.keys.take());
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Limits reading to 1 KB/s, or removes the limit.
    pub(crate) fn slow_down(&self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
    }

    /// All output so far.
    pub(crate) fn shown_now(&mut self) -> &str {
        while let Ok(piece) = self.pieces.try_recv() {
            self.shown.push_str(&String::from_utf8_lossy(&piece));
        }
        &self.shown
    }

    /// Changes the window size; the program receives a signal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.slave, size).unwrap();
    }

    /// Waits for `text` after the examined output and returns the output up to it.
    #[track_caller]
    pub(crate) fn see(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(at) = self.shown[self.looked..].find(text) {
                let end = self.looked + at + text.len();
                let between = self.shown[self.looked..end].to_owned();
                self.looked = end;
                return between;
            }
            let left = STUCK.saturating_sub(started.elapsed());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(why) => panic!("no {text:?} was shown ({why}): {:?}", self.shown),
            }
        }
    }

    /// The received output that was not examined yet.
    pub(crate) fn rest(&self) -> &str {
        &self.shown[self.looked..]
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the exit of the program and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            match self.pieces.recv_timeout(Duration::from_millis(20)) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(5)),
            }
            assert!(started.elapsed() < STUCK, "it does not end: {:?}", self.shown);
        }
        self.child.wait().unwrap().code()
    }

    /// Returns `true` if the terminal is in cooked mode, as a shell expects it.
    pub(crate) fn is_cooked(&self) -> bool {
        let flags = tcgetattr(&self.slave).unwrap().local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn messages(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    messages[1..].iter().map(|message| text_of(&message["content"])).collect()
}

#[test]
fn conversation_with_a_permission_request_and_a_second_prompt() {
    let server = ModelServer::start(vec![
        calls(&[("write_file", json!({"path": "a.txt", "content": "made\n"}))]),
        says("Made \u{1b}]0;title\u{7} it."),
        says("Still here."),
    ]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::open(&machine, &[]);
    let greeting = terminal.see("/help for the commands.");
    for part in ["session ", "provider  local (", "config.json:1)", "model     scripted-1 ("] {
        assert!(greeting.contains(part), "{part}: {greeting}");
    }
    terminal.see("> ");
    terminal.press("make a.txt\r");
    terminal.see("allow? [y] once");
    // Several lines at once are never an answer.
    terminal.press("y\ny\n");
    terminal.see("allow? [y] once");
    assert!(!machine.work("a.txt").exists());
    terminal.press("y\r");
    let run = terminal.see(" · 2 turns");
    assert!(run.contains("Made \\u{1b}]0;title\\u{7} it."), "{run}");
    assert_eq!(machine.read("a.txt"), "made\n");
    terminal.see("> ");
    terminal.press("and \\\rnow?\r");
    terminal.see("Still here.");
    terminal.see(" · 1 turn");
    terminal.see("> ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.is_cooked());
    let last = messages(&server.requests()[2]);
    assert_eq!(last.last().unwrap(), "and \nnow?");
    assert!(last.iter().any(|text| text.contains("created a.txt")), "{last:?}");
    machine.verify();
}

#[test]
fn missing_server_is_tried_three_times() {
    // A port that was just free, and is closed again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let provider = json!({
        "type": "openai-compatible", "baseURL": format!("http://127.0.0.1:{port}/v1"),
        "model": "scripted-1", "auth": "none",
    });
    let settings = json!({"defaultProvider": "local", "providers": {"local": provider}});
    for args in [&["run", "say hello"][..], &["plain"][..]] {
        let machine = Machine::new();
        machine.write_config(&settings.to_string());
        let mut terminal = Terminal::run(&machine, args, "xterm");
        if args[0] == "plain" {
            terminal.see("> ");
            terminal.press("say hello\r");
        }
        terminal.see("no server answers at the address of the provider");
        terminal.see("(connection refused): start the server, or correct baseURL");
        let journal = machine.session_dir().join("session.jsonl");
        let records = std::fs::read_to_string(journal).unwrap();
        assert_eq!(records.matches("\"provider.retry\"").count(), 2, "{records}");
        if args[0] == "run" {
            assert_eq!(terminal.end(), Some(5));
        }
    }
}

#[test]
fn input_during_a_task_steers_and_ctrl_c_stops() {
    let cut = ModelAnswer::Hold(stream_bytes(text_event("so far").as_bytes()));
    let server = ModelServer::start(vec![runs("true"), says("Left."), cut, says("Fine.")]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::open(&machine, &["--yes"]);
    terminal.see("> ");
    terminal.press("/stp\r");
    terminal.see("Did you mean /stop?");
    terminal.see("> ");
    terminal.press("go\r");
    terminal.see(" · 2 turns");
    terminal.see("> ");
    terminal.press("long work\r");
    terminal.see("so far");
    terminal.press("turn left\r");
    terminal.see("(said at the next step)");
    terminal.press("/model other\r");
    terminal.see("wait until nothing runs");
    terminal.press("\u{3}");
    terminal.see("Stopped after ");
    terminal.see("> ");
    terminal.press("half a line\u{3}");
    terminal.see("Ctrl+C again");
    terminal.see("> ");
    terminal.press("again\r");
    terminal.see("Fine.");
    terminal.see("> ");
    terminal.press("\u{3}");
    terminal.see("Ctrl+C again");
    terminal.see("> ");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), Some(130));
    assert!(terminal.is_cooked());
    let last = messages(&server.requests()[3]);
    // The message that was queued before the stop is sent now, once.
    let count = |text: &str| last.iter().filter(|said| said.contains(text)).count();
    assert_eq!((count("turn left"), count("again"), count("half")), (1, 1, 0), "{last:?}");
    machine.verify();
}

#[test]
fn another_model_and_agent_continue_the_conversation() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "a.txt"}))]),
        says("It says a."),
        says("It said a."),
        says("A new start."),
    ]);
    let machine = Machine::with(&server);
    machine.write("a.txt", "the letter a\n");
    let mut terminal = Terminal::open(&machine, &[]);
    terminal.see("> ");
    terminal.press("read it\r");
    terminal.see("Done in ");
    terminal.see("> ");
    terminal.press("/agent plna\r");
    terminal.see("did you mean");
    terminal.see("> ");
    terminal.press("/agent plan\r");
    terminal.see("plan (/agent)");
    terminal.see("> ");
    terminal.press("/model other-2\r");
    terminal.see("other-2 (/model)");
    terminal.see("> ");
    let saved = machine.path("posse/state/preferences.json");
    assert!(!saved.exists(), "a model is saved only after it has answered");
    terminal.press("what did it say?\r");
    terminal.see("It said a.");
    terminal.see("> ");
    let saved = std::fs::read_to_string(saved).unwrap();
    assert!(saved.contains("other-2") && saved.contains("local"), "{saved}");
    terminal.press("/clear\r");
    terminal.see("session ");
    terminal.see("> ");
    terminal.press("hello\r");
    terminal.see("A new start.");
    terminal.see("> ");
    terminal.press("/exit\r");
    assert_eq!(terminal.end(), Some(0));
    let requests = server.requests();
    assert_eq!(requests[2]["model"], "other-2");
    let tools = |nth: usize| requests[nth]["tools"].as_array().unwrap().len();
    assert!(tools(2) < tools(0));
    assert!(messages(&requests[2])[2].contains("the letter a"), "{:?}", messages(&requests[2]));
    assert_eq!(messages(&requests[3]), ["hello"]);
    machine.verify();
}

#[test]
fn compacting_keeps_the_conversation_valid_and_makes_it_shorter() {
    let read = |path| calls(&[("read_file", json!({"path": path}))]);
    let server = ModelServer::start(vec![
        read("big.txt"),
        says("One."),
        read("other.txt"),
        says("Two."),
        says("Three."),
        says("Four."),
    ]);
    let machine = Machine::with(&server);
    machine.write("big.txt", "a long line of text\n".repeat(200));
    machine.write("other.txt", "another long line\n".repeat(200));
    let mut terminal = Terminal::open(&machine, &[]);
    for (prompt, answer) in [("first", "One."), ("second", "Two."), ("third", "Three.")] {
        terminal.see("> ");
        terminal.press(&format!("{prompt}\r"));
        terminal.see(answer);
        terminal.see("Done in ");
    }
    terminal.see("> ");
    terminal.press("/compact\r");
    terminal.see("outputs removed");
    terminal.see("> ");
    terminal.press("fourth\r");
    terminal.see("Four.");
    terminal.see("> ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    // The server has validated the request.
    let requests = server.requests();
    let (before, after) = (messages(&requests[4]), messages(&requests[5]));
    let bytes = |messages: &[String]| messages.iter().map(String::len).sum::<usize>();
    assert!(bytes(&after) < bytes(&before) * 2 / 3, "{after:?}");
    let masked = |message: &&String| message.contains("are not shown any more: read_file output:");
    assert_eq!(after.iter().filter(masked).count(), 2, "{after:?}");
    assert!(after.contains(&"first".to_owned()), "{after:?}");
    machine.verify();
}

#[test]
fn history_is_recalled_in_the_next_process() {
    let server = ModelServer::start(vec![says("One."), says("Two.")]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::open(&machine, &[]);
    terminal.see("> ");
    terminal.press("remember me\r");
    terminal.see("One.");
    terminal.see("> ");
    terminal.press("\u{4}");
    terminal.end();
    let history = machine.path("posse/state/history");
    assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    let mut terminal = Terminal::open(&machine, &[]);
    terminal.see("> ");
    terminal.press("\u{1b}[A");
    terminal.see("remember me");
    terminal.press("\r");
    terminal.see("Two.");
    assert_eq!(messages(&server.requests()[1]), ["remember me"]);
}

#[test]
fn history_can_be_disabled() {
    let server = ModelServer::start(vec![says("One.")]);
    let machine = Machine::configured(&server, &json!({"ui": {"history": false}}), &json!({}));
    let mut terminal = Terminal::open(&machine, &[]);
    terminal.see("> ");
    terminal.press("forget me\r");
    terminal.see("One.");
    terminal.see("> ");
    // The history of the process itself still works.
    terminal.press("\u{1b}[A");
    terminal.see("forget me");
    terminal.press("\u{15}\u{4}");
    terminal.end();
    assert!(!machine.path("posse/state/history").exists());
}

#[test]
fn a_paste_is_one_prompt() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let mut terminal = Terminal::open(&machine, &[]);
    terminal.see("> ");
    terminal.press("\u{1b}[200~one\r/exit\rtwo\u{1b}[201~\r");
    terminal.see("Read.");
    assert_eq!(messages(&server.requests()[0]), ["one\n/exit\ntwo"]);
}

#[test]
fn signals_exit_and_restore_line_mode_terminal() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let server = ModelServer::start(Vec::new());
        let machine = Machine::with(&server);
        let mut terminal = Terminal::open(&machine, &[]);
        terminal.see("> ");
        assert!(!terminal.is_cooked());
        terminal.signal(signal);
        assert_eq!(terminal.end(), Some(code));
        assert!(terminal.is_cooked());
        machine.verify();
    }
}

#[test]
fn lost_terminal_ends_the_process() {
    let hold = ModelAnswer::Hold(stream_bytes(text_event("so far").as_bytes()));
    let server = ModelServer::start(vec![hold]);
    for working in [false, true] {
        let machine = Machine::with(&server);
        let mut terminal = Terminal::open(&machine, &[]);
        terminal.see("> ");
        if working {
            terminal.press("work\r");
            terminal.see("so far");
        }
        terminal.vanish();
        assert_eq!(terminal.end(), Some(129));
        machine.verify();
    }
}

#[test]
fn piped_input_is_read_line_by_line() {
    let server = ModelServer::start(vec![runs("touch x"), says("Not allowed."), says("**Two.**")]);
    let machine = Machine::with(&server);
    let ended = machine.posse_with_input(&["plain"], b"one\n\n/status\n/nonsense\ntwo");
    ended.assert_code(0);
    assert_eq!(ended.stdout, "Not allowed.\n**Two.**\n");
    assert!(ended.stderr.contains("prompts   1"), "{}", ended.stderr);
    assert!(ended.stderr.contains("There is no /nonsense"), "{}", ended.stderr);
    assert!(ended.stderr.contains("error[PRM001]"), "{}", ended.stderr);
    assert!(!machine.work("x").exists());
    assert!(!machine.path("posse/state/history").exists());
    machine.verify();
}

#[test]
fn empty_pipe_exits_at_once() {
    let server = ModelServer::start(Vec::new());
    let machine = Machine::with(&server);
    let ended = machine.posse(&["plain"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout, "");
}
