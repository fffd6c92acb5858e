//! The terminal UI in a real terminal (tmux), from the keyboard.

mod attention;
mod ending;
mod enduring;
mod questions;
mod writing;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::model_server::{
    ModelAnswer, ModelServer, calls, runs, says, stream_bytes, text_event, text_of,
};
use crate::plain::Terminal;
use crate::posse::Machine;

/// Time after which a test fails because the screen did not change as expected.
const STUCK: Duration = Duration::from_secs(30);

/// Wait before answering a permission request: longer than its quiet period.
pub(crate) const SILENCE: Duration = Duration::from_millis(450);

/// A tmux session that runs the program. Dropping this ends it.
pub(crate) struct Tmux {
    socket: PathBuf,
    dir: PathBuf,
}

impl Tmux {
    /// Opens a terminal of 100 columns and 30 rows.
    pub(crate) fn open(machine: &Machine, args: &[&str]) -> Tmux {
        Tmux::with(machine, args, "TERM=tmux-256color TMUX=1")
    }

    pub(crate) fn with(machine: &Machine, args: &[&str], variables: &str) -> Tmux {
        let dir = machine.path("tmp");
        let own = variables_of(machine);
        let line = [&[env!("CARGO_BIN_EXE_posse")], args].concat().join(" ");
        // The shell stays, so that the terminal can be examined afterwards.
        let script = format!(
            "cd '{work}'\nstty -a > '{dir}/before'\nenv -i {own} {variables} sh -c 'echo $$ > \"{dir}/pid\"; \
             exec {line}' 2> '{dir}/stderr'\necho \"ended with $?\"\nstty -a > '{dir}/after'\n\
             echo over\ncat\n",
            work = machine.path("work").display(),
            dir = dir.display(),
        );
        fs::write(dir.join("script"), script).unwrap();
        let script = format!("sh '{}'", dir.join("script").display());
        Tmux::start(dir, &script)
    }

    /// Opens a terminal that runs `command`.
    fn start(dir: PathBuf, command: &str) -> Tmux {
        // The socket of a tmux server that ends still exists for a moment.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let tmux = Tmux { socket: dir.join(format!("tmux-{nth}")), dir };
        tmux.run(&["new-session", "-d", "-s", "t", "-x", "100", "-y", "30", command]);
        tmux
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-f").arg("/dev/null").arg("-S").arg(&self.socket).args(args);
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The visible screen.
    pub(crate) fn screen(&self) -> String {
        let output = self.run(&["capture-pane", "-p", "-t", "t"]);
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The visible screen and the scrollback.
    pub(crate) fn all(&self) -> String {
        let output = self.run(&["capture-pane", "-p", "-J", "-S", "-", "-t", "t"]);
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Waits until `what` is on the screen and returns the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str) -> String {
        self.wait_until(what, |screen| screen.contains(what))
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(started.elapsed() < STUCK, "{what} did not come:\n{screen}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn types(&self, text: &str) {
        self.run(&["send-keys", "-t", "t", "-l", text]);
    }

    pub(crate) fn presses(&self, key: &str) {
        self.run(&["send-keys", "-t", "t", key]);
    }

    /// Submits a text once the prompt is there.
    pub(crate) fn says(&self, text: &str) {
        self.wait_for("❯");
        self.types(text);
        self.wait_for(text.lines().last().unwrap());
        self.presses("Enter");
    }

    fn pid(&self) -> Pid {
        let text = fs::read_to_string(self.dir.join("pid")).unwrap();
        Pid::from_raw(text.trim().parse().unwrap())
    }

    /// Asserts that the program exited with `code` and restored the terminal.
    #[track_caller]
    pub(crate) fn assert_ended(&self, code: i32) {
        let screen = self.wait_for("\nover");
        assert!(screen.contains(&format!("ended with {code}")), "{screen}");
        let read = |name| fs::read_to_string(self.dir.join(name)).unwrap();
        // The size may differ.
        let settings = |name| read(name).split_once("line = ").unwrap().1.to_owned();
        assert_eq!(settings("before"), settings("after"));
        let shown =
            self.run(&["display-message", "-p", "-t", "t", "#{cursor_flag} #{alternate_on}"]);
        assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), "1 0", "cursor and screen");
    }
}

/// The environment variables of a machine, for a shell command line.
fn variables_of(machine: &Machine) -> String {
    let program = machine.command::<&str>(&[]);
    let own = program
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}='{}'", name.to_str()?, value?.to_str()?)));
    own.collect::<Vec<_>>().join(" ")
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // This is the test's own server on its own socket; it may have ended already.
        Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output().ok();
    }
}

#[test]
fn answers_a_task_and_restores_the_terminal() {
    let server = ModelServer::start(vec![says("## Title\n\nIt is **done**.\n\n- one\n- two")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    let raw = machine.path("tmp/raw");
    tmux.run(&["pipe-pane", "-t", "t", &format!("cat > '{}'", raw.display())]);
    tmux.says("do it");
    let screen = tmux.wait_for(" · 1 turn");
    for line in ["❯ do it", "Title", "It is done.", "• one", "scripted-1 via local"] {
        assert!(screen.contains(line), "{line}:\n{screen}");
    }
    tmux.presses("C-d");
    tmux.assert_ended(0);
    // The transcript stays in the terminal, the prompt does not.
    let all = tmux.all();
    assert!(all.contains("It is done.") && !all.contains("scripted-1 via local"), "{all}");
    let bytes = fs::read(raw).unwrap();
    for clear in [&b"\x1b[2J"[..], b"\x1b[3J", b"\x1bc", b"\x1b[1J", b"\x1b[6n", b"\x1b[c"] {
        let found = bytes.windows(clear.len()).any(|window| window == clear);
        assert!(!found, "{} was sent", String::from_utf8_lossy(clear).escape_debug());
    }
    machine.verify();
}

#[test]
fn permission_request_takes_one_key_after_the_quiet_period() {
    let script = vec![
        runs("mkdir made; touch made/yes"),
        runs("touch made/no"),
        says("Both were asked about."),
    ];
    let server = ModelServer::start(script);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("make them");
    let screen = tmux.wait_for("[n] no");
    assert!(screen.contains("│ mkdir made; touch made/yes"), "{screen}");
    thread::sleep(SILENCE);
    tmux.presses("y");
    let screen = tmux.wait_for("│ touch made/no");
    assert!(screen.contains("• run mkdir made"), "{screen}");
    thread::sleep(SILENCE);
    tmux.presses("n");
    tmux.wait_for("Both were asked about.");
    assert!(machine.work("made/yes").exists());
    assert!(!machine.work("made/no").exists());
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn escape_stops_the_task_and_the_session_continues() {
    let held = stream_bytes(text_event("This takes a").as_bytes());
    let server = ModelServer::start(vec![ModelAnswer::Hold(held), says("Here I am again.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("take your time");
    tmux.wait_for("This takes a");
    tmux.presses("Escape");
    tmux.wait_for("Stopped after ");
    tmux.says("still there?");
    tmux.wait_for("Here I am again.");
    tmux.types("/exit");
    tmux.presses("Enter");
    tmux.assert_ended(0);
}

#[test]
fn ctrl_c_twice_exits_during_a_task() {
    let held = stream_bytes(text_event("This takes a").as_bytes());
    let server = ModelServer::start(vec![ModelAnswer::Hold(held)]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("take your time");
    tmux.wait_for("This takes a");
    tmux.run(&["send-keys", "-t", "t", "C-c", "C-c"]);
    tmux.assert_ended(130);
}

#[test]
fn multi_line_paste_is_one_text_and_not_submitted() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯");
    let text = (0..40).map(|nth| format!("line {nth}\n")).collect::<Vec<_>>().concat();
    fs::write(machine.path("tmp/paste"), &text).unwrap();
    let file = machine.path("tmp/paste");
    tmux.run(&["load-buffer", file.to_str().unwrap()]);
    tmux.run(&["paste-buffer", "-p", "-t", "t"]);
    tmux.wait_for("[paste 1: 40 lines]");
    assert!(server.requests().is_empty());
    tmux.types(" end");
    tmux.presses("Enter");
    tmux.wait_for(" · 1 turn");
    let request = server.requests().pop().unwrap();
    let said = text_of(&request["messages"].as_array().unwrap().last().unwrap()["content"]);
    assert_eq!(said, format!("{text} end"));
}

#[test]
fn resizing_neither_loses_nor_repeats_output() {
    let long = "word ".repeat(60);
    let server = ModelServer::start(vec![says(&format!("first\n\n{long}\n\nlast"))]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("say much");
    tmux.wait_for(" · 1 turn");
    tmux.wait_for("❯ Describe a task");
    for (columns, rows) in [("60", "20"), ("120", "40"), ("40", "12"), ("100", "30")] {
        tmux.run(&["resize-window", "-t", "t", "-x", columns, "-y", rows]);
        let wide = columns.parse::<usize>().unwrap();
        let rule = "─".repeat(wide);
        // There is exactly one prompt, as wide as the window.
        tmux.wait_until(&format!("a prompt at {columns} columns"), |screen| {
            screen.lines().filter(|line| *line == rule).count() == 1
                && screen.matches('❯').count() <= 2
                && screen.contains("❯ Describe a task")
        });
    }
    let all = tmux.all();
    for once in ["say much", "first", "last", " · 1 turn"] {
        assert_eq!(all.matches(once).count(), 1, "{once}:\n{all}");
    }
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn input_during_a_task_steers_at_the_next_step() {
    let gate = "while [ ! -e gate ]; do sleep 0.05; done";
    let server = ModelServer::start(vec![runs(gate), says("Seen.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("begin");
    tmux.wait_for("[n] no");
    thread::sleep(SILENCE);
    tmux.presses("y");
    tmux.wait_for("Enter: send at the next step");
    tmux.types("and mind the gap");
    tmux.presses("Enter");
    tmux.wait_for("⤷ at the next step: and mind the gap");
    machine.write("gate", "");
    let screen = tmux.wait_for("Seen.");
    assert!(screen.contains("❯ and mind the gap"), "{screen}");
    let request = server.requests().pop().unwrap();
    let said = text_of(&request["messages"].as_array().unwrap().last().unwrap()["content"]);
    assert_eq!(said, "and mind the gap");
}

#[test]
fn viewer_shows_full_outputs() {
    let server = ModelServer::start(vec![
        calls(&[("read_file", json!({"path": "long.txt"}))]),
        says("Read."),
    ]);
    let machine = Machine::with(&server);
    let lines: Vec<String> = (1..=200).map(|nth| format!("row number {nth}\n")).collect();
    machine.write("long.txt", lines.concat());
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("read it");
    tmux.wait_for("Done in ");
    let before = tmux.screen();
    tmux.presses("C-o");
    tmux.wait_for("q closes");
    tmux.presses("G");
    tmux.wait_for("row number 200");
    tmux.presses("q");
    tmux.wait_until("the screen from before", |screen| screen == before);
}

#[test]
fn key_opens_the_selector_of_the_agent() {
    let server = ModelServer::start(vec![says("As planned.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("scripted-1 via local");
    tmux.presses("M-a");
    tmux.wait_for("Enter selects");
    tmux.types("plan");
    tmux.wait_for("▸ plan");
    tmux.presses("Enter");
    tmux.wait_for("scripted-1 via local · plan");
    tmux.says("go");
    tmux.wait_for("As planned.");
    tmux.types("a word that begins with an a");
    tmux.wait_for("❯ a word that begins with an a");
}

#[test]
fn slash_commands_show_their_answers() {
    let server = ModelServer::start(vec![says("Hello.")]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("hi");
    tmux.wait_for("Done in ");
    let looks = [
        ("/status", "built in"),
        ("/cost", "local/scripted-1"),
        ("/context", "/compact shortens"),
        ("/permissions", ""),
        ("/sandbox", "sandbox"),
        ("/export notes.md", "written to"),
        ("/nonsense", "There is no /nonsense"),
        ("/compact", "nothing to remove"),
    ];
    for (command, answer) in looks {
        tmux.says(command);
        tmux.wait_for(answer);
    }
    assert!(machine.read("notes.md").contains("Hello."));
    for (command, answer) in
        [("/config", "defaultProvider"), ("/tools", "read_file"), ("/doctor", "terminal")]
    {
        tmux.says(command);
        tmux.wait_for("q closes");
        if command != "/doctor" {
            tmux.wait_for(answer);
        }
        tmux.presses("q");
        tmux.wait_for("❯ Describe a task");
    }
    let before = tmux.all();
    tmux.says("/new");
    tmux.wait_for("(a new session");
    assert!(tmux.all().contains(before.lines().next().unwrap()), "what was said stays");
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn ui_starts_without_a_model() {
    let machine = Machine::new();
    let tmux = Tmux::open(&machine, &[]);
    let screen = tmux.wait_for("Next steps");
    for line in ["No model is configured yet.", "posse demo", "Found on this machine"] {
        assert!(screen.contains(line), "{line}:\n{screen}");
    }
    tmux.says("do it");
    tmux.wait_for("There is no model yet");
    tmux.wait_for("❯ do it");
    tmux.presses("C-u");
    tmux.presses("M-p");
    tmux.wait_for("Enter selects");
    tmux.presses("Escape");
    // A key right after Escape would be read as one key with Alt.
    tmux.wait_until("the prompt", |screen| !screen.contains("Enter selects"));
    tmux.presses("C-d");
    tmux.assert_ended(0);
}

#[test]
fn signals_exit_and_restore_the_terminal() {
    let signals = [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 143),
    ];
    for (signal, code) in signals {
        let held = stream_bytes(text_event("This takes a").as_bytes());
        let server = ModelServer::start(vec![ModelAnswer::Hold(held)]);
        let machine = Machine::with(&server);
        let tmux = Tmux::open(&machine, &[]);
        tmux.says("take your time");
        tmux.wait_for("This takes a");
        kill(tmux.pid(), signal).unwrap();
        tmux.assert_ended(code);
        machine.verify();
    }
}

#[test]
fn lost_terminal_ends_the_process() {
    let held = stream_bytes(text_event("This takes a").as_bytes());
    let server = ModelServer::start(vec![ModelAnswer::Hold(held)]);
    let machine = Machine::with(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("take your time");
    tmux.wait_for("This takes a");
    let pid = tmux.pid();
    drop(tmux);
    let started = Instant::now();
    // The parent may take a while to reap the process.
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    while runs() {
        assert!(started.elapsed() < STUCK, "it keeps running without a terminal");
        thread::sleep(Duration::from_millis(20));
    }
    machine.verify();
}

#[test]
fn falls_back_to_line_mode_without_a_usable_terminal() {
    let tables = [
        ("TERM=dumb", "TERM is dumb"),
        ("XTERM_VERSION=1", "TERM is not set"),
        ("TERM=xterm LC_ALL=de_DE.ISO-8859-1", "the locale is not UTF-8"),
    ];
    for (variables, why) in tables {
        let server = ModelServer::start(vec![]);
        let machine = Machine::with(&server);
        let tmux = Tmux::with(&machine, &[], variables);
        let started = Instant::now();
        let stderr = loop {
            let stderr = fs::read_to_string(machine.path("tmp/stderr")).unwrap_or_default();
            if stderr.contains("sandbox") {
                break stderr;
            }
            assert!(started.elapsed() < STUCK, "{stderr}\n{}", tmux.screen());
            thread::sleep(Duration::from_millis(20));
        };
        assert!(stderr.starts_with(&format!("posse plain: {why}\n")), "{stderr}");
    }
}

/// Flags without a command open the terminal UI. A fork starts here as well, and the last line
/// names the command that resumes the session, also for a session without an answer.
#[test]
fn flags_open_the_ui_and_exit_names_the_resume_command() {
    let server =
        ModelServer::start(vec![says("One."), says("Otherwise."), ModelAnswer::Hold(Vec::new())]);
    let machine = Machine::with(&server);
    let config = machine.path("other.json");
    fs::rename(machine.path("posse/config/config.json"), &config).unwrap();
    let config = config.display().to_string();
    let tmux = Tmux::open(&machine, &["--config", &config]);
    tmux.says("first");
    tmux.wait_for("One.");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let id = machine.session_dir().file_name().unwrap().to_string_lossy().into_owned();
    let line = format!("session {id} · posse resume {id}");
    let last = || fs::read_to_string(machine.path("tmp/stderr")).unwrap();
    assert!(last().lines().last().unwrap().contains(&line), "{}", last());
    drop(tmux);
    let tmux = Tmux::open(&machine, &["tui", "-c", "--fork", "--config", &config]);
    // The conversation of the original is shown again.
    tmux.wait_for("Done in");
    assert!(tmux.screen().contains("❯ first\n\nOne.\n"), "{}", tmux.screen());
    tmux.says("second");
    tmux.wait_for("Otherwise.");
    assert!(!last().contains("resumed after") && last().contains("fork of session"), "{}", last());
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let branch = last().lines().last().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_ne!(branch, id);
    drop(tmux);
    // A session without an answer can be resumed, too.
    let tmux = Tmux::open(&machine, &["--config", &config]);
    tmux.says("third");
    for _ in 0..3 {
        server.wait_for_request();
    }
    kill(tmux.pid(), Signal::SIGTERM).unwrap();
    tmux.assert_ended(143);
    let line = last();
    assert!(line.lines().last().unwrap().contains(" · posse resume "), "{line}");
    machine.verify();
}

#[test]
fn setting_that_is_ignored_is_named_once() {
    let server = ModelServer::start(vec![]);
    let machine = Machine::with(&server);
    machine.write(".posse/config.json", json!({ "sandbox": { "mode": "off" } }).to_string());
    let tmux = Tmux::open(&machine, &[]);
    tmux.wait_for("❯ Describe a task");
    tmux.presses("C-d");
    tmux.assert_ended(0);
    let printed = fs::read_to_string(machine.path("tmp/stderr")).unwrap();
    assert_eq!(printed.matches("CFG005").count(), 1, "{printed}");
    assert!(!tmux.all().contains("CFG005"), "{}", tmux.all());
}

/// The UI in a pty of 100 columns and 30 rows, with access to every byte.
fn in_a_pty(machine: &Machine) -> Terminal {
    let mut terminal = Terminal::run(machine, &["tui"], "xterm-256color");
    terminal.resize(100, 30);
    terminal.see("a task");
    terminal
}

#[test]
fn slow_terminal_does_not_delay_the_session() {
    const DELTAS: usize = 20_000;
    let mut body: String = (0..DELTAS).map(|nth| text_event(&format!("word{nth}\n"))).collect();
    body.push_str(&text_event("the last word"));
    body.push_str("data: [DONE]\n\n");
    let server = ModelServer::start(vec![ModelAnswer::Raw(stream_bytes(body.as_bytes()))]);
    let machine = Machine::with(&server);
    let mut terminal = in_a_pty(&machine);
    terminal.slow_down(true);
    terminal.press("go on");
    thread::sleep(Duration::from_millis(300));
    terminal.press("\r");
    // The whole reply is in the journal long before it is on the screen.
    let started = Instant::now();
    let journal = || {
        let file = machine.session_dir().join("session.jsonl");
        fs::read_to_string(file).unwrap_or_default()
    };
    while !journal().contains("the last word") {
        assert!(started.elapsed() < STUCK, "the screen holds up the session");
        thread::sleep(Duration::from_millis(50));
    }
    let seen = terminal.shown_now();
    assert!(!seen.contains("the last word"), "it is a slow terminal");
    // The backlog is one frame and the kernel's buffer.
    terminal.slow_down(false);
    terminal.see("the last word");
    terminal.see(" · 1 turn");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.is_cooked());
    machine.verify();
}

#[test]
fn rapid_resizes_are_drawn_at_a_bounded_frame_rate() {
    const SIZES: [(u16, u16); 8] =
        [(1, 1), (500, 500), (2, 500), (500, 1), (100, 30), (3, 2), (17, 60), (240, 5)];
    let server = ModelServer::start(vec![says("Still here.")]);
    let machine = Machine::with(&server);
    let mut terminal = in_a_pty(&machine);
    let begin = Instant::now();
    for (columns, rows) in SIZES.iter().cycle().take(1000) {
        terminal.resize(*columns, *rows);
        thread::sleep(Duration::from_millis(1));
    }
    terminal.resize(100, 30);
    terminal.press("are you there");
    thread::sleep(Duration::from_millis(300));
    terminal.press("\r");
    let storm = terminal.see("Still here.");
    // Each frame is one synchronized update, and there is at most one in 16 ms.
    let frames = storm.matches("\u{1b}[?2026h").count() as u128;
    let most = begin.elapsed().as_millis() / 16 + 10;
    assert!((2..=most).contains(&frames), "{frames} frames, {most} at most");
    // While the task runs, the key does not exit.
    terminal.see("Done in ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    machine.verify();
}

#[test]
fn keys_typed_while_the_process_is_stopped_are_kept() {
    let server = ModelServer::start(vec![says("Read.")]);
    let machine = Machine::with(&server);
    let mut terminal = in_a_pty(&machine);
    let keys: String = ('a'..='z').chain('0'..='9').chain('A'..='D').collect();
    assert_eq!(keys.len(), 40);
    terminal.signal(Signal::SIGSTOP);
    for key in keys.chars() {
        terminal.press(&key.to_string());
        thread::sleep(Duration::from_millis(5));
    }
    terminal.signal(Signal::SIGCONT);
    thread::sleep(Duration::from_millis(300));
    terminal.press("\r");
    terminal.see("Read.");
    let request = server.requests().remove(0);
    let said = &request["messages"].as_array().unwrap().last().unwrap()["content"];
    assert_eq!(text_of(said), keys);
    terminal.press("\u{4}");
    assert_eq!(terminal.end(), Some(0));
}
