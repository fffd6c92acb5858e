//! Processes: environment, end, and leftovers.

#![expect(clippy::disallowed_types, reason = "tests compare with processes started plainly")]
#![expect(clippy::unwrap_used, reason = "what fails in a test should fail the test")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse::sandbox::{Directory, Exit, ProcessOutcome, RunError, Sandbox, Spawn, Update};
use posse_actors::ports::{Confinement, NetworkAccess};
use secrecy::SecretString;

/// A folder and a sandbox in which to run commands.
struct CommandFolder {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
    timeout: Duration,
    spill_bytes_max: u64,
}

impl CommandFolder {
    fn new() -> CommandFolder {
        CommandFolder::with_secrets(&[])
    }

    fn with_secrets(secrets: &[&str]) -> CommandFolder {
        let secrets = secrets.iter().map(|secret| SecretString::from(*secret)).collect();
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        CommandFolder {
            folder: tempfile::tempdir().unwrap(),
            sandbox: Sandbox::with_helper(helper, secrets),
            timeout: Duration::from_mins(1),
            spill_bytes_max: 64 << 20,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn spawn(&self, command: &str) -> Spawn {
        let (program, arguments) = self.sandbox.shell_command(command);
        Spawn {
            program,
            arguments,
            directory: Directory::Path(self.path().to_owned()),
            environment: Vec::new(),
            confinement: Confinement {
                profile: "off".to_owned(),
                writable_roots: Vec::new(),
                network: NetworkAccess::Host,
            },
            timeout: self.timeout,
            scratch: self.path().join("scratch"),
            spill: self.path().join("outputs/call.txt"),
            output_bytes_max: 32 << 10,
            spill_bytes_max: self.spill_bytes_max,
            dialogue: None,
            stop: None,
            masks_keys: false,
            at_timeout: None,
        }
    }

    async fn run(&self, command: &str) -> ProcessOutcome {
        self.sandbox.run(self.spawn(command), |_| {}).await.unwrap()
    }
}

fn printed(outcome: &ProcessOutcome) -> String {
    let both = [&outcome.output.head[..], &outcome.output.tail].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// True if the process has not ended.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

/// Waits until `check` holds; fails after a timeout.
async fn eventually(what: &str, check: impl Fn() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs `command` until it has written `file`, drops it, and returns the content.
async fn cancelled(place: &CommandFolder, command: &str, file: &str) -> String {
    let path = place.path().join(file);
    let run = place.sandbox.run(place.spawn(command), |_| {});
    tokio::select! {
        outcome = run => panic!("it ended by itself: {outcome:?}"),
        () = eventually("writing the file", || {
            std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))
        }) => {}
    }
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn output_order_and_exit_status_are_kept() {
    let place = CommandFolder::new();
    let outcome = place.run("echo one; echo two >&2; echo three; exit 3").await;
    assert_eq!(printed(&outcome), "one\ntwo\nthree\n");
    assert_eq!((outcome.exit, outcome.stragglers), (Exit::Code(3), 0));
    for (command, exit) in [
        ("exit 255", Exit::Code(255)),
        ("no-such-program-here", Exit::Code(127)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -USR1 $$", Exit::Signal(10)),
        ("-x", Exit::Code(127)),
    ] {
        assert_eq!(place.run(command).await.exit, exit, "{command}");
    }
    assert_eq!(Exit::Signal(11).signal_name().as_deref(), Some("SIGSEGV"));
    // A closed pipe ends a command as in a terminal.
    assert_eq!(printed(&place.run("yes | head -1; echo ${PIPESTATUS[0]}").await), "y\n141\n");
}

#[tokio::test]
async fn enforcement_is_reported_before_any_output() {
    let place = CommandFolder::new();
    let mut updates = Vec::new();
    place.sandbox.run(place.spawn("echo hello"), |update| updates.push(update)).await.unwrap();
    let [Update::Enforced { tier, report }, Update::Output(text)] = &updates[..] else {
        panic!("{updates:?}");
    };
    assert_eq!((tier.as_str(), text.as_str()), ("none", "hello\n"));
    assert_eq!(report["session"], true);
    assert_eq!(report["terminal"], false);
}

#[tokio::test]
async fn command_does_not_run_without_a_helper_report() {
    let mut place = CommandFolder::new();
    let marker = place.path().join("ran");
    place.sandbox = Sandbox::with_helper(PathBuf::from("/bin/true"), Vec::new());
    let command = format!("touch {}", marker.display());
    let error = place.sandbox.run(place.spawn(&command), |_| {}).await.unwrap_err();
    assert!(matches!(error, RunError::NotPrepared { .. }), "{error:?}");
    assert!(!marker.exists());
    place.sandbox = Sandbox::with_helper(PathBuf::from("/no/such/helper"), Vec::new());
    let error = place.sandbox.run(place.spawn(&command), |_| {}).await.unwrap_err();
    assert!(matches!(error, RunError::Start { .. }), "{error:?}");
}

#[tokio::test]
async fn missing_program_is_an_error_with_its_reason() {
    let place = CommandFolder::new();
    let mut spawn = place.spawn("");
    spawn.program = PathBuf::from("/no/such/program");
    let error = place.sandbox.run(spawn, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[tokio::test]
async fn command_has_no_terminal_no_input_and_own_session() {
    let place = CommandFolder::new();
    let outcome = place
        .run("(echo x > /dev/tty) 2>/dev/null && echo tty; cat; cut -d' ' -f6 /proc/$$/stat; echo $$; ls /proc/self/fd | wc -l")
        .await;
    let text = printed(&outcome);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], lines[1]);
    // The three streams, and the folder that `ls` reads.
    assert_eq!(lines[2].trim(), "4");
}

#[tokio::test]
async fn environment_has_no_secrets_and_a_private_folder() {
    let place = CommandFolder::new();
    let outcome = place.run("env; touch $TMPDIR/x; stat -c %a $TMPDIR; ulimit -c").await;
    let text = printed(&outcome);
    assert!(text.contains("\nGIT_TERMINAL_PROMPT=0\n") && text.contains("PAGER=cat\n"), "{text}");
    // Cargo sets this variable for the test, and it is not on the list of passed variables.
    assert!(!text.contains("CARGO_PKG_NAME"));
    assert!(text.ends_with("700\n0\n"), "{text}");
    let folder = text.lines().find_map(|line| line.strip_prefix("TMPDIR=")).unwrap();
    assert!(folder.starts_with(place.path().to_str().unwrap()));
    assert!(Path::new(folder).join("x").exists());
    drop(place.sandbox);
    eventually("removing the folder", || !Path::new(folder).exists()).await;
}

#[tokio::test]
async fn command_cannot_read_the_environment_of_posse() {
    let place = CommandFolder::new();
    place.run("true").await;
    // A super-user's commands can do everything; this flag protects from all others.
    assert!(!nix::sys::prctl::get_dumpable().unwrap());
    let outcome = place.run("[ $(id -u) = 0 ] || cat /proc/$PPID/environ 2>/dev/null").await;
    assert_eq!(outcome.output.total, 0);
}

#[tokio::test]
async fn signal_dispositions_are_reset_for_commands() {
    let place = CommandFolder::new();
    let outcome = place.run("grep -E 'SigIgn|SigBlk' /proc/self/status").await;
    let text = printed(&outcome);
    let masks: Vec<u64> = text
        .lines()
        .map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap())
        .collect();
    // The C library ignores two signals of its own, 32 and 33, in child processes.
    let ordinary = (1 << 31) - 1;
    assert_eq!(masks.len(), 2);
    assert!(masks.iter().all(|mask| mask & ordinary == 0), "{text}");
}

#[tokio::test]
async fn runs_in_the_opened_folder_after_a_move() {
    let place = CommandFolder::new();
    let (old, new) = (place.path().join("old"), place.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("mine"), "").unwrap();
    let descriptor: std::os::fd::OwnedFd = std::fs::File::open(&old).unwrap().into();
    std::fs::rename(&old, &new).unwrap();
    std::fs::create_dir(&old).unwrap();
    let mut spawn = place.spawn("ls");
    spawn.directory = Directory::Opened(descriptor.try_clone().unwrap());
    let outcome = place.sandbox.run(spawn, |_| {}).await.unwrap();
    assert_eq!(printed(&outcome), "mine\n");

    std::fs::remove_dir_all(&new).unwrap();
    let mut spawn = place.spawn("ls");
    spawn.directory = Directory::Opened(descriptor);
    let error = place.sandbox.run(spawn, |_| {}).await.unwrap_err();
    assert!(matches!(error, RunError::NoDirectory), "{error:?}");
}

#[tokio::test]
async fn long_output_goes_to_a_file_and_short_output_does_not() {
    let place = CommandFolder::new();
    let short = place.run("head -c 32768 /dev/zero | tr '\\0' x").await;
    assert_eq!((short.output.cut(), short.output.spill), (0, None));
    let long = place.run("seq 1 20000").await;
    let spilled = std::fs::read_to_string(long.output.spill.unwrap()).unwrap();
    assert!(spilled.starts_with("1\n2\n") && spilled.ends_with("19999\n20000\n"));
    assert_eq!(spilled.len() as u64, long.output.total);
    assert_eq!((long.output.head.len(), long.output.tail.len()), (16 << 10, 16 << 10));
}

#[tokio::test]
async fn endless_output_is_stopped_with_bounded_memory() {
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    let place = CommandFolder::new();
    place.run("true").await;
    let before = resident();
    // A single endless line, of which every byte is written.
    let outcome = place.run("cat /dev/zero").await;
    assert_eq!(outcome.exit, Exit::OutputFull);
    assert_eq!(std::fs::metadata(outcome.output.spill.unwrap()).unwrap().len(), 64 << 20);
    // Other tests run in this process as well.
    assert!(resident() < before + (24 << 10), "{before} KiB -> {} KiB", resident());
}

#[tokio::test]
async fn secrets_are_masked_in_result_file_and_live_output() {
    let place = CommandFolder::with_secrets(&["sk-very-secret-value"]);
    let mut seen = String::new();
    let command = "printf 'a sk-very-'; sleep 0.1; printf 'secret-value b '; \
                   for i in $(seq 3000); do echo sk-very-secret-value; done";
    let outcome = place
        .sandbox
        .run(place.spawn(command), |update| {
            if let Update::Output(text) = update {
                seen.push_str(&text);
            }
        })
        .await
        .unwrap();
    let all = std::fs::read_to_string(outcome.output.spill.as_ref().unwrap_or(&PathBuf::new()));
    let all = all.unwrap_or_else(|_| printed(&outcome));
    assert!(all.starts_with("a [secret] b [secret]\n[secret]\n"), "{}", &all[..60]);
    assert!(!all.contains("very") && !seen.contains("very") && !printed(&outcome).contains("very"));
}

#[tokio::test]
async fn timeout_sends_sigterm_first() {
    let mut place = CommandFolder::new();
    place.timeout = Duration::from_millis(300);
    let polite = place.run("trap 'echo bye; exit 0' TERM; sleep 60 & wait").await;
    assert_eq!((polite.exit, printed(&polite).as_str()), (Exit::TimedOut, "bye\n"));
    let begin = Instant::now();
    let deaf = place.run("trap '' TERM; echo on; while :; do sleep 1; done").await;
    assert_eq!((deaf.exit, printed(&deaf).as_str()), (Exit::TimedOut, "on\n"));
    let stopped = place.run("kill -STOP $$").await;
    assert_eq!(stopped.exit, Exit::TimedOut);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn exit_at_the_timeout_is_reported_once() {
    let mut place = CommandFolder::new();
    for nth in 0..24_u64 {
        // The shell ends shortly before, at, or shortly after its timeout.
        place.timeout = Duration::from_millis(100 + nth);
        let outcome = place.run("echo $$; sleep 0.1; echo done").await;
        let printed = printed(&outcome);
        match outcome.exit {
            Exit::Code(0) => assert!(printed.ends_with("done\n"), "{printed:?}"),
            Exit::TimedOut => {}
            other => panic!("{other:?}: {printed:?}"),
        }
        if let Some(shell) = printed.lines().next() {
            assert!(!lives(shell), "after {:?}", outcome.exit);
        }
    }
}

#[tokio::test]
async fn descendants_holding_the_pipe_do_not_delay_the_result() {
    let place = CommandFolder::new();
    let begin = Instant::now();
    let outcome = place.run("sleep 300 & sleep 300 & echo $!; exit 0").await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(outcome.exit, Exit::Code(0));
    // On a busy machine one of them may still be a copy of the shell before it executes `sleep`.
    assert!((2..=3).contains(&outcome.stragglers), "{}", outcome.stragglers);
    assert!(!lives(&printed(&outcome)));
    // Output right after the end counts.
    let outcome = place.run("(sleep 0.05; echo late) & echo first").await;
    assert_eq!(printed(&outcome), "first\nlate\n");
}

#[tokio::test]
async fn daemons_are_found_and_killed() {
    let place = CommandFolder::new();
    for command in [
        "setsid -f sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 </dev/null",
        "(setsid sh -c '(echo $(exec sh -c \"echo \\$PPID\") > pid; sleep 300) & sleep 0.02' &) >/dev/null 2>&1",
        "nohup sh -c 'trap \"\" TERM HUP; echo $$ > pid; sleep 300' >/dev/null 2>&1 &",
    ] {
        let command = format!("rm -f pid; {command}\nwhile ! [ -s pid ]; do sleep 0.01; done");
        let outcome = place.run(&command).await;
        assert_eq!(outcome.exit, Exit::Code(0), "{command}");
        let pid = std::fs::read_to_string(place.path().join("pid")).unwrap();
        // A process that is reparented during the search may be missed; the next call finds it.
        if outcome.stragglers == 0 {
            place.run("true").await;
        }
        assert!(!lives(&pid), "{command}");
    }
}

#[tokio::test]
async fn dropping_a_run_kills_the_tree() {
    let place = CommandFolder::new();
    let quick = Duration::from_millis(100);
    for command in [
        "sleep 300 & echo $! > pid; wait",
        "trap '' TERM INT HUP; sh -c \"trap '' TERM; echo \\$\\$ > pid; sleep 300\"; sleep 300",
        "setsid sh -c 'echo $$ > pid; sleep 300' & sleep 300",
        "setsid -f sh -c 'echo $$ > pid; sleep 300' & sleep 300",
        "sh -c 'kill -STOP $$' & echo $! > pid; sleep 300",
    ] {
        std::fs::remove_file(place.path().join("pid")).ok();
        let pid = cancelled(&place, command, "pid").await;
        let begin = Instant::now();
        eventually("the end of the tree", || !lives(&pid)).await;
        assert!(begin.elapsed() < quick, "{command}: {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn command_dies_with_its_starting_thread() {
    let place = CommandFolder::new();
    let path = place.path().join("pid");
    let place = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut run = Box::pin(place.sandbox.run(place.spawn("echo $$ > pid; sleep 300; true"), |_| {}));
            tokio::select! {
                outcome = &mut run => panic!("it ended by itself: {outcome:?}"),
                () = eventually("writing the file", || {
                    std::fs::read_to_string(place.path().join("pid")).is_ok_and(|text| text.ends_with('\n'))
                }) => {}
            }
            // Like a kill: no code of posse runs any more.
            std::mem::forget(run);
        });
        place
    });
    let _place = place.join().unwrap();
    let pid = std::fs::read_to_string(path).unwrap();
    eventually("the end of the command", || !lives(&pid)).await;
}

#[tokio::test]
async fn other_runs_and_children_are_untouched() {
    let place = CommandFolder::new();
    let other = place.run("sleep 0.6; echo alive");
    let many = async {
        for _ in 0..20 {
            assert_eq!(place.run("sleep 30 & setsid -f sleep 30; true").await.exit, Exit::Code(0));
        }
    };
    let (other, ()) = tokio::join!(other, many);
    assert_eq!((other.exit, printed(&other).as_str()), (Exit::Code(0), "alive\n"));
}

#[tokio::test]
async fn vfork_loop_ends_at_its_timeout() {
    let mut place = CommandFolder::new();
    place.timeout = Duration::from_millis(400);
    let outcome = place.run("while :; do setsid -f sh -c 'sleep 5 & sleep 5' ; done").await;
    assert_eq!(outcome.exit, Exit::TimedOut);
    assert!(outcome.stragglers > 0);
    let left = std::process::Command::new("sh")
        .arg("-c")
        .arg("for p in /proc/[0-9]*; do [ \"$(readlink $p/cwd)\" = \"$PLACE\" ] && echo $p; done; true")
        .env("PLACE", place.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

mod tool {
    //! The `bash` tool with the real helper.

    use std::sync::Arc;

    use posse::tools::workspace::Workspace;
    use posse::tools::{ToolEnvironment, bash, spill};
    use posse_actors::conversation::{CallId, ToolCall, text_of};
    use posse_actors::event::Event;
    use posse_actors::ports::{OutputDelta, PostCallSink, RunContext, ToolOutput, permit_for_test};
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    struct Shell {
        folder: tempfile::TempDir,
        env: Arc<ToolEnvironment>,
        output: mpsc::Receiver<OutputDelta>,
        facts: mpsc::Receiver<Event>,
        context: RunContext,
    }

    impl Shell {
        fn new() -> Shell {
            Shell::with(false)
        }

        fn with(dry_run: bool) -> Shell {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("work");
            std::fs::create_dir_all(root.join("sub")).unwrap();
            let workspace = Workspace::open(&root, &[]).unwrap();
            let session_dir = folder.path().join("session");
            let env = Arc::new(ToolEnvironment {
                dry_run,
                ..ToolEnvironment::new(workspace, session_dir)
            });
            let call = posse_actors::testing::call_of_main("s1", "c1", "build");
            let (output_tx, output) = mpsc::channel(1024);
            let (facts_tx, facts) = mpsc::channel(16);
            let context = RunContext {
                call,
                output: output_tx,
                facts: facts_tx,
                post_call: PostCallSink::new(drop),
                connections: posse_actors::ports::ConnectionAsker::default(),
                output_bytes_max: 32 << 10,
                room_bytes: usize::MAX,
                answer: None,
            };
            Shell { folder, env, output, facts, context }
        }

        async fn call(&self, arguments: Value) -> ToolOutput {
            let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
            let sandbox = Arc::new(Sandbox::with_helper(helper, Vec::new()));
            let tool = bash::tool(Arc::clone(&self.env), sandbox);
            let prepared = tool.prepare(arguments, self.context.call.clone()).await.unwrap();
            let call = ToolCall {
                id: CallId::new("c1"),
                provider_id: None,
                name: "bash".to_owned(),
                arguments: String::new(),
            };
            let confinement = Confinement {
                profile: "off".to_owned(),
                writable_roots: Vec::new(),
                network: NetworkAccess::Host,
            };
            let permitted = permit_for_test(call, prepared, confinement);
            tool.run(permitted, self.context.clone()).await
        }

        /// The text for the model, with durations replaced.
        async fn text(&self, arguments: Value) -> String {
            let text = text_of(&self.call(arguments).await.content);
            let words = text.split_inclusive(' ').collect::<Vec<_>>();
            let is_time = |at: usize| {
                words.get(at + 1).is_some_and(|word| word.starts_with("ms"))
                    && words[at].trim().parse::<u64>().is_ok()
            };
            let word = |at: usize| if is_time(at) { "N " } else { words[at] };
            (0..words.len()).map(word).collect()
        }
    }

    #[tokio::test]
    async fn result_text_for_the_model() {
        for (command, text) in [
            ("echo hi; exit 3", "hi\n(exit 3, N ms)"),
            ("true", "(exit 0, N ms, no output)"),
            ("printf x", "x\n(exit 0, N ms)"),
            ("kill -SEGV $$", "(ended by SIGSEGV, N ms, no output)"),
            ("pwd | sed 's/.*work/W/'", "W\n(exit 0, N ms)"),
            ("printf '\\033[31mred\\033[0m \\0 \\xff\\n'", "red \\u{0} \u{fffd}\n(exit 0, N ms)"),
            (
                "sleep 300 >/dev/null & echo a",
                "a\n(exit 0, N ms)\n(1 process was left behind in the background and killed)",
            ),
        ] {
            assert_eq!(Shell::new().text(json!({"command": command})).await, text, "{command}");
        }
        let missing = Shell::new().text(json!({"command": "no-such-thing"})).await;
        assert!(missing.ends_with("(exit 127: command not found, N ms)"), "{missing}");
    }

    #[tokio::test]
    async fn exit_code_is_no_failure_and_timeout_is() {
        let shell = Shell::new();
        let output = shell.call(json!({"command": "exit 7", "workdir": "sub"})).await;
        assert!(!output.is_error);
        assert_eq!(output.metadata["exitCode"], 7);
        let output = shell.call(json!({"command": "echo a; sleep 60", "timeoutMs": 10})).await;
        let text = text_of(&output.content);
        assert!(output.is_error);
        assert_eq!(output.metadata["timedOut"], true);
        assert!(text.starts_with("a\n(killed after its timeout of 1000 ms, "), "{text}");
        assert!(text.ends_with("(timeoutMs was set to 1000)"), "{text}");
    }

    #[tokio::test]
    async fn long_output_is_cut_in_the_middle_and_can_be_read() {
        let shell = Shell::new();
        let output = shell.call(json!({"command": "seq 1 20000"})).await;
        let text = text_of(&output.content);
        assert!(text.starts_with("1\n2\n") && text.contains("\n20000\n(exit 0"), "{text}");
        assert!(text.contains("[… 76126 bytes cut; read_file output:c1 has everything …]\n"));
        assert_eq!(output.metadata["spill"], "output:c1");
        assert_eq!(output.metadata["bytes"], 108_894);
        let kept = spill::path(&shell.env.session_dir, &CallId::new("c1"));
        assert_eq!(std::fs::metadata(kept).unwrap().len(), 108_894);
    }

    #[tokio::test]
    async fn escaped_output_is_truncated_and_stored() {
        let shell = Shell::new();
        let output = shell.call(json!({"command": "head -c 30000 /dev/zero"})).await;
        let text = text_of(&output.content);
        assert!(text.len() < 34 << 10, "{}", text.len());
        let kept = spill::path(&shell.env.session_dir, &CallId::new("c1"));
        assert_eq!(std::fs::read(kept).unwrap(), vec![0; 30_000]);
    }

    #[tokio::test]
    async fn enforcement_is_recorded_and_output_streamed() {
        let mut shell = Shell::new();
        shell.call(json!({"command": "echo a; sleep 0.1; echo b"})).await;
        let fact = shell.facts.try_recv().unwrap();
        let Event::SandboxEnforced { call_id, tier, report } = fact else { panic!("{fact:?}") };
        assert_eq!((call_id.as_str(), tier.as_str()), ("c1", "none"));
        assert_eq!(report["diesWithParent"], true);
        let mut seen = Vec::new();
        while let Ok(delta) = shell.output.try_recv() {
            seen.push(delta.text);
        }
        assert_eq!(seen, ["a\n", "b\n"]);
    }

    #[tokio::test]
    async fn a_dry_run_runs_nothing() {
        let shell = Shell::with(true);
        let text = shell.text(json!({"command": "touch ran"})).await;
        assert!(text.contains("nothing was run") && text.ends_with("touch ran"), "{text}");
        assert!(!shell.folder.path().join("work/ran").exists());
    }

    #[tokio::test]
    async fn removed_folder_is_reported_once() {
        let shell = Shell::new();
        let gone =
            shell.text(json!({"command": "cd .. && rm -r sub; ls -d sub", "workdir": "sub"}));
        assert!(gone.await.contains("cannot access"));
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        let sandbox = Arc::new(Sandbox::with_helper(helper, Vec::new()));
        let tool = bash::tool(Arc::clone(&shell.env), sandbox);
        let arguments = json!({"command": "ls", "workdir": "sub"});
        let error = tool.prepare(arguments, shell.context.call.clone()).await.unwrap_err();
        assert_eq!(error.code, "FIL001");
    }
}
