//! Confinement: the same commands with each mechanism, and their enforcement reports.
//!
//! A mechanism that does not work on the machine fails the test: user namespaces and bubblewrap are
//! required, and `./check` installs what can be installed.

#![expect(clippy::disallowed_types, reason = "tests compare with processes started plainly")]
#![expect(clippy::unwrap_used, reason = "what fails in a test should fail the test")]

mod offline;
mod temporary;

use posse_actors::event::SandboxTier;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse::sandbox::{
    Backend, Directory, Exit, ProbeRequest, ProcessOutcome, RunError, Sandbox, Spawn, Surroundings,
    Update,
};
use posse_actors::ports::{Confinement, NetworkAccess};
use serde_json::Value;

/// All backends.
const BACKENDS: [Backend; 3] = [Backend::Namespaces, Backend::Bubblewrap, Backend::Landlock];

/// Backends that mount a file system.
const FULL: [Backend; 2] = [Backend::Namespaces, Backend::Bubblewrap];

/// A workspace, a folder outside of it, and a sandbox.
struct SandboxedWorkspace {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
    network: NetworkAccess,
    profile: &'static str,
    timeout: Duration,
}

/// Result of a run.
struct Ran {
    outcome: ProcessOutcome,
    report: Value,
    text: String,
    /// Start time, after preparation.
    began: Instant,
}

impl SandboxedWorkspace {
    fn new(backend: Backend) -> SandboxedWorkspace {
        SandboxedWorkspace::with(backend, tempfile::tempdir().unwrap(), None)
    }

    /// With a home folder in a place without other activity: folders for temporary files change all
    /// the time.
    fn apart(backend: Backend) -> SandboxedWorkspace {
        let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let folder = tempfile::tempdir_in(beside).unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        SandboxedWorkspace::with(backend, folder, Some(home))
    }

    fn with(
        backend: Backend,
        folder: tempfile::TempDir,
        home: Option<PathBuf>,
    ) -> SandboxedWorkspace {
        let root = folder.path().join("work");
        for name in ["work", "outside", "state/tmp"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("outside/file"), "outside").unwrap();
        std::fs::write(folder.path().join("state/grants"), "grants").unwrap();
        let surroundings = Surroundings {
            roots: vec![root],
            own: vec![folder.path().join("state")],
            home,
            ..Surroundings::default()
        };
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        SandboxedWorkspace {
            sandbox: Sandbox::with_helper(helper, Vec::new())
                .confined(ProbeRequest::Exactly(backend), surroundings),
            folder,
            network: NetworkAccess::Denied,
            profile: "workspace-write",
            timeout: Duration::from_mins(1),
        }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn spawn(&self, command: &str) -> Spawn {
        let (program, arguments) = self.sandbox.shell_command(command);
        Spawn {
            program,
            arguments,
            directory: Directory::Path(self.path("work")),
            environment: vec![("AT".into(), self.folder.path().into())],
            confinement: Confinement {
                profile: self.profile.to_owned(),
                writable_roots: vec![self.path("work").to_str().unwrap().to_owned()],
                network: self.network,
            },
            timeout: self.timeout,
            scratch: self.path("state/tmp"),
            spill: self.path("state/outputs/call.txt"),
            output_bytes_max: 32 << 10,
            spill_bytes_max: 1 << 20,
            dialogue: None,
            stop: None,
            masks_keys: false,
            at_timeout: None,
        }
    }

    async fn try_run(&self, command: &str) -> Result<Ran, RunError> {
        let mut report = Value::Null;
        let mut began = Instant::now();
        let outcome = self.sandbox.run(self.spawn(command), |update| {
            if let Update::Enforced { report: enforced, .. } = update {
                report = enforced;
                began = Instant::now();
            }
        });
        let outcome = outcome.await?;
        let both = [&outcome.output.head[..], &outcome.output.tail].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        Ok(Ran { outcome, report, text, began })
    }

    async fn run(&self, command: &str) -> Ran {
        self.try_run(command).await.unwrap_or_else(|error| panic!("{command}: {error:?}"))
    }
}

#[tokio::test]
async fn writes_only_below_its_roots() {
    for backend in BACKENDS {
        let place = SandboxedWorkspace::new(backend);
        let ran = place
            .run(
                "echo x > in && mkdir d && mv in d/in && cat d/in && echo y > $TMPDIR/y && cat $TMPDIR/y
                 for to in $AT/outside/new $AT/outside/file $HOME/.posse-test /etc/posse-test; do
                   (echo z > $to) 2>/dev/null && echo wrote $to
                 done; rm -f $AT/outside/file 2>/dev/null; ln $AT/outside/file l 2>/dev/null; ls",
            )
            .await;
        assert_eq!(ran.text, "x\ny\nd\n", "{backend:?}");
        assert_eq!(std::fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
        assert!(!place.path("outside/new").exists());
        assert_eq!(std::fs::read_to_string(place.path("work/d/in")).unwrap(), "x\n");
        assert_eq!(ran.report["tier"], backend.tier().as_str());
        assert_eq!(ran.report["backend"], backend.as_str());
        assert_eq!(ran.report["noNewPrivileges"], true);
        assert_eq!(ran.report["capabilities"], false);
        assert!(ran.report["seccomp"]["calls"].as_u64().unwrap() > 60, "{}", ran.report);
        assert!(ran.report["landlock"]["version"].as_u64().unwrap() >= 3, "{}", ran.report);
    }
}

#[tokio::test]
async fn read_only_command_writes_nothing() {
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        std::fs::write(place.path("work/file"), "text").unwrap();
        place.profile = "read-only";
        let command = "cat file; (echo x > file) 2>/dev/null && echo wrote; echo t > $TMPDIR/t; cat $TMPDIR/t";
        assert_eq!(place.run(command).await.text, "textt\n", "{backend:?}");
        place.profile = "workspace-write";
        assert_eq!(place.run(command).await.text, "textwrote\nt\n", "{backend:?}");
        place.profile = "no-such";
        let error = place.try_run(command).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("no-such"), "{error}");
    }
}

#[tokio::test]
async fn posse_folders_are_hidden_except_the_temporary_one() {
    for backend in BACKENDS {
        let place = SandboxedWorkspace::new(backend);
        let ran = place
            .run("cat $AT/state/grants 2>/dev/null; (echo > $AT/state/new) 2>/dev/null; echo x > $TMPDIR/x && cat $TMPDIR/x")
            .await;
        assert_eq!(ran.text, "x\n", "{backend:?}");
        assert!(!place.path("state/new").exists());
    }
}

#[tokio::test]
async fn command_has_own_processes_devices_and_folders() {
    for backend in FULL {
        let place = SandboxedWorkspace::new(backend);
        let ran = place
            .run(
                "ls /run /var/tmp; ls /dev | tr '\\n' ' '; echo
                 [ $(ls -d /proc/[0-9]* | wc -l) -lt 10 ] && echo few
                 echo x > /tmp/posse-own && cat /tmp/posse-own; echo x > /dev/null && cut -d' ' -f6 /proc/$$/stat
                 (echo > /proc/sys/kernel/core_pattern) 2>/dev/null && echo sysctl; hostname > $TMPDIR/h",
            )
            .await;
        let lines: Vec<&str> = ran.text.lines().collect();
        let [folders @ .., devices, few, x, session] = &lines[..] else { panic!("{lines:?}") };
        let seen: Vec<&&str> =
            folders.iter().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
        assert!(seen.is_empty(), "{backend:?} {seen:?}");
        assert!(!devices.contains("vda") && devices.contains("urandom"), "{devices}");
        assert_eq!((*few, *x), ("few", "x"), "{backend:?}");
        assert!(session.parse::<i32>().unwrap() < 10, "{session}");
        assert!(!Path::new("/tmp/posse-own").exists());
    }
}

#[tokio::test]
async fn exit_codes_signals_order_and_late_output_are_kept() {
    for backend in BACKENDS {
        let place = SandboxedWorkspace::new(backend);
        for (command, exit) in [
            ("exit 255", Exit::Code(255)),
            ("no-such-program-here", Exit::Code(127)),
            ("kill -SEGV $$", Exit::Signal(11)),
            ("kill -KILL $$", Exit::Signal(9)),
            ("exit 0", Exit::Code(0)),
        ] {
            assert_eq!(place.run(command).await.outcome.exit, exit, "{backend:?} {command}");
        }
        let ran = place.run("echo one; echo two >&2; (sleep 0.1; echo three) & exit 3").await;
        assert_eq!(ran.text, "one\ntwo\nthree\n", "{backend:?}");
        assert_eq!((ran.outcome.exit, ran.outcome.stragglers), (Exit::Code(3), 0));
        let begin = Instant::now();
        let ran = place.run("setsid sleep 300 >/dev/null 2>&1 & sleep 301 & echo done").await;
        assert_eq!((ran.text.as_str(), ran.outcome.stragglers), ("done\n", 2), "{backend:?}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn command_ends_at_timeout_and_when_dropped() {
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        // Long enough for the shell to start on a loaded machine, and much shorter than its sleep.
        place.timeout = Duration::from_secs(2);
        let ran = place.run("trap 'echo term; exit 5' TERM; echo begin; sleep 300 & wait").await;
        assert_eq!(ran.text, "begin\nterm\n", "{backend:?}");
        assert_eq!(ran.outcome.exit, Exit::TimedOut);
        let begin = Instant::now();
        let ran = place.run("trap '' TERM; setsid sleep 300 & sleep 301").await;
        assert_eq!(ran.outcome.exit, Exit::TimedOut);
        assert!(begin.elapsed() < Duration::from_mins(1));
        place.timeout = Duration::from_mins(5);
        let path = place.path("work/mark");
        let run = place.sandbox.run(place.spawn("echo x > mark; exec sleep 4321.5"), |_| {});
        let written = async {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            outcome = run => panic!("{outcome:?}"),
            () = written => {}
        }
        let begin = Instant::now();
        let ours = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            processes.filter(|process| {
                let folder = process.path();
                let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
                let cwd = std::fs::read_link(folder.join("cwd")).unwrap_or_default();
                line.windows(6).any(|part| part == b"4321.5") && cwd == place.path("work")
            })
        };
        while ours().count() > 0 {
            assert!(begin.elapsed() < Duration::from_mins(1), "{backend:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn network_needs_permission() {
    let python =
        |body: &str| format!("python3 -c 'import socket,os\n{body}' 2>/dev/null || echo no");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tcp =
        python(&format!("socket.create_connection((\"127.0.0.1\",{port}),2)\nprint(\"tcp\")"));
    let udp = python(
        "socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b\"x\",(\"192.0.2.1\",53))\nprint(\"udp\")",
    );
    let local = python("socket.socket(socket.AF_UNIX)\nprint(\"unix\")");
    let datagrams = python("socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)\nprint(\"pair\")");
    let pair = python("a,b=socket.socketpair()\na.send(b\"pair\")\nprint(b.recv(9).decode())");
    let own = python(
        "s=socket.create_server((\"127.0.0.1\",0))\nsocket.create_connection(s.getsockname(),2)\nprint(\"loop\")",
    );
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        for (command, said) in [
            (&tcp, "no\n"),
            (&udp, "no\n"),
            (&local, "no\n"),
            (&datagrams, "no\n"),
            (&pair, "pair\n"),
        ] {
            assert_eq!(place.run(command).await.text, said, "{backend:?} {command}");
        }
        let loopback = if backend == Backend::Landlock { "no\n" } else { "loop\n" };
        assert_eq!(place.run(&own).await.text, loopback, "{backend:?}");
        place.network = NetworkAccess::Host;
        assert_eq!(place.run(&tcp).await.text, "tcp\n", "{backend:?}");
        assert_eq!(place.run(&local).await.text, "no\n", "{backend:?}");
    }
}

#[tokio::test]
async fn cannot_touch_other_processes_namespaces_or_mounts() {
    for backend in BACKENDS {
        let place = SandboxedWorkspace::new(backend);
        let ours = std::process::id();
        let command = format!(
            "kill -0 {ours} 2>/dev/null && echo signalled
             unshare -U true 2>/dev/null && echo user; unshare -m true 2>/dev/null && echo mount
             mount -t tmpfs x /mnt 2>/dev/null && echo mounted; chmod u+s $0 2>/dev/null
             cp /bin/true t && chmod 4755 t 2>/dev/null && echo setuid; chmod 2755 t 2>/dev/null && echo setgid
             chmod 755 t && ./t && echo ran
             strace -o /dev/null true 2>/dev/null && echo traced
             (cat /proc/{ours}/environ) 2>/dev/null; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t\\n'"
        );
        let ran = place.run(&command).await;
        let mut text = ran.text;
        if backend == Backend::Landlock && !nix::unistd::geteuid().is_root() {
            // Without a namespace an ordinary user has no capability to drop.
            let (begin, end) = (text.find("CapBnd:").unwrap(), text.find("NoNewPrivs").unwrap());
            text.replace_range(begin..end, "CapBnd:0000000000000000");
        }
        let expected = "ran\nCapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2";
        assert_eq!(text, expected, "{backend:?}");
    }
}

#[tokio::test]
async fn reused_helper_behaves_like_a_new_one() {
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        for turn in 0..6 {
            place.network = if turn == 3 { NetworkAccess::Host } else { NetworkAccess::Denied };
            place.profile = if turn == 4 { "read-only" } else { "workspace-write" };
            let ran = place.run(&format!("echo {turn} > turn && cat turn; echo $POSSE_CALL")).await;
            let lines: Vec<&str> = ran.text.lines().collect();
            assert!(lines.last().unwrap().starts_with(&format!("{}.", std::process::id())));
            if turn == 4 {
                assert!(lines[0].contains("turn"), "{lines:?}");
            } else {
                assert_eq!(lines[0], turn.to_string(), "{backend:?}");
            }
            let network = if turn == 3 { "inherit" } else { "deny" };
            assert_eq!(ran.report["network"], network);
        }
    }
}

/// Runs commands until one finds its rules made in advance.
async fn until_ahead(place: &SandboxedWorkspace, command: &str) -> Ran {
    let begin = Instant::now();
    loop {
        // The next helper is prepared in the background.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ran = place.run(command).await;
        if ran.report["landlock"]["madeAhead"] == true {
            return ran;
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "they are never ready: {}", ran.report);
    }
}

#[tokio::test]
async fn prepared_rules_hide_the_same_paths() {
    let place = SandboxedWorkspace::apart(Backend::Landlock);
    std::fs::write(place.path("home/.netrc"), "hidden").unwrap();
    std::fs::write(place.path("home/other"), "was shown").unwrap();
    let look = "cd $AT/home; cat .netrc other new 2>/dev/null; cat $AT/state/grants 2>/dev/null; \
                (echo x > other) 2>/dev/null; cd $AT/work && echo x > in; echo ran";
    assert_eq!(until_ahead(&place, look).await.text, "was shownran\n");
    // The visible file becomes the hidden one, and a new one is next to it.
    std::fs::rename(place.path("home/other"), place.path("home/.netrc")).unwrap();
    std::fs::write(place.path("home/new"), "new").unwrap();
    // Rules made in advance must not apply any more.
    assert_eq!(place.run(look).await.text, "newran\n");
    assert_eq!(until_ahead(&place, look).await.text, "newran\n");
    // More is hidden, so the plan is different.
    std::fs::create_dir(place.path("home/.ssh")).unwrap();
    std::fs::write(place.path("home/.ssh/key"), "hidden").unwrap();
    let ran = place.run("cat $AT/home/.ssh/key 2>/dev/null; echo ran").await;
    assert_eq!(ran.report["landlock"]["madeAhead"], false, "{}", ran.report);
    assert_eq!(ran.text, "ran\n");
    let ran = until_ahead(&place, "cat $AT/home/.ssh/key 2>/dev/null; echo ran").await;
    assert_eq!((ran.text.as_str(), &ran.report["landlock"]["exposed"]), ("ran\n", &Value::from(0)));
}

#[tokio::test]
async fn fork_bomb_ends_and_the_host_is_usable() {
    for backend in BACKENDS {
        let mut place = SandboxedWorkspace::new(backend);
        place.timeout = Duration::from_secs(1);
        let ran = place.run("b() { b | b & b; }; b 2>/dev/null").await;
        assert!(
            matches!(ran.outcome.exit, Exit::TimedOut | Exit::Code(_)),
            "{:?}",
            ran.outcome.exit
        );
        let took = ran.began.elapsed();
        assert!(took < place.timeout + Duration::from_secs(2), "{backend:?} {took:?}");
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    }
}

/// Calls that change other processes or reach memory of the host. Each line prints a name and the
/// result: `done` or the error.
const AFFECTING_OTHERS: &str = r#"
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
parent = int(open("/proc/self/status").read().split("PPid:")[1].split()[0]) or 1

def libc_call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

def attempt(name, act):
    try:
        act()
        print(name, "done")
    except (OSError, PermissionError) as error:
        print(name, error.errno if error.errno else "refused")

attempt("limit", lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (9, 9)))
attempt("own-limit", lambda: resource.prlimit(0, resource.RLIMIT_NOFILE, (99, 99)))
attempt("affinity", lambda: os.sched_setaffinity(parent, {0}))
attempt("own-affinity", lambda: os.sched_setaffinity(0, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, parent, 19))
attempt("priorities", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("own-priority", lambda: os.nice(1))
attempt("memory", lambda: libc_call("shmget", 0x706f7373, 4096, 0o1600))
attempt("queue", lambda: libc_call("msgget", 0x706f7373, 0o1600))
attempt("semaphore", lambda: libc_call("semget", 0x706f7373, 1, 0o1600))
attempt("setuid-open", lambda: os.open("s1", os.O_CREAT | os.O_WRONLY, 0o4755))
attempt("setgid-open", lambda: os.open("s3", os.O_CREAT | os.O_WRONLY, 0o2755))
attempt("setuid-unnamed", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))
attempt("setuid-node", lambda: os.mknod("s2", 0o104755))
attempt("open", lambda: os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
attempt("read", lambda: libc_call("open", b"plain", 0, 0o4755))
print("adjustment", open("/proc/self/oom_score_adj").read().strip())
"#;

#[tokio::test]
async fn other_processes_and_shared_memory_are_out_of_reach() {
    for backend in BACKENDS {
        let place = SandboxedWorkspace::new(backend);
        std::fs::write(place.path("work/attempts.py"), AFFECTING_OTHERS).unwrap();
        let ran = place.run("python3 attempts.py").await;
        let mut expected: Vec<String> =
            ["limit", "setuid-open", "setgid-open", "setuid-unnamed", "setuid-node"]
                .iter()
                .map(|name| format!("{name} {}", libc_eperm()))
                .collect();
        expected.extend(
            ["own-limit", "own-affinity", "own-priority", "open", "read"]
                .map(|name| format!("{name} done")),
        );
        if backend == Backend::Landlock {
            let refused =
                ["affinity", "scheduler", "priority", "priorities", "memory", "queue", "semaphore"];
            expected.extend(refused.map(|name| format!("{name} {}", libc_eperm())));
        }
        expected.push("adjustment 500".to_owned());
        let lines: Vec<&str> = ran.text.lines().collect();
        for line in expected {
            assert!(lines.contains(&line.as_str()), "{backend:?} {line}: {}", ran.text);
        }
    }
}

fn libc_eperm() -> i32 {
    nix::errno::Errno::EPERM as i32
}

/// Program that starts the helper with a system call removed.
fn crippled(place: &Path, calls: &[&str]) -> PathBuf {
    let path = place.join(calls.join("-"));
    let helper = env!("CARGO_BIN_EXE_posse");
    let numbers: Vec<&str> = calls
        .iter()
        .map(|call| match *call {
            "landlock" => "444,445,446",
            "seccomp" => "317",
            "unshare" => "272",
            other => panic!("{other}"),
        })
        .collect();
    // A system call filter, encoded by hand: one comparison each.
    let script = format!(
        "#!/usr/bin/env python3
import ctypes, struct, sys, os
numbers = [{}]
load = [(0x20, 0, 0, 0)]
tests = [(0x15, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
program = load + tests + [(6, 0, 0, 0x7fff0000), (6, 0, 0, 0x00050000 | 38)]
code = b''.join(struct.pack('HBBI', *each) for each in program)
buffer = ctypes.create_string_buffer(code)
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
fprog = struct.pack('HxxxxxxQ', len(program), ctypes.addressof(buffer))
assert libc.prctl(22, 2, ctypes.create_string_buffer(fprog)) == 0
os.execv('{helper}', ['posse'] + sys.argv[1:])
",
        numbers.join(",")
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn nothing_runs_if_a_sandbox_layer_is_missing_or_broken() {
    let fakes = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = fakes.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        path
    };
    let with_python = "python3 -c 'import socket; s=socket.socket(fileno=0)";
    let helpers = [
        ("gone", PathBuf::from("/no/such/helper")),
        ("silent", PathBuf::from("/bin/true")),
        ("killed", script("killed", "kill -KILL $$")),
        (
            "garbage",
            script(
                "garbage",
                &format!("{with_python}; s.send(b\"\\xff\\x00 {{\\\"enforced\\\":{{\\n\" * 50)'"),
            ),
        ),
        ("endless", script("endless", &format!("{with_python}; s.send(b\"x\" * 100000)'"))),
        (
            "weaker",
            script(
                "weaker",
                &format!(
                    "{with_python}; s.send(b\"{{\\\"enforced\\\":{{\\\"tier\\\":\\\"none\\\"}}}}\\n\")'; touch $0.ran"
                ),
            ),
        ),
        ("landlock", crippled(fakes.path(), &["landlock"])),
        ("seccomp", crippled(fakes.path(), &["seccomp"])),
        ("unshare", crippled(fakes.path(), &["unshare"])),
    ];
    for (name, helper) in helpers {
        for backend in [Backend::Namespaces, Backend::Landlock] {
            let mut place = SandboxedWorkspace::new(backend);
            let surroundings =
                Surroundings { roots: vec![place.path("work")], ..Surroundings::default() };
            place.sandbox = Sandbox::with_helper(helper.clone(), Vec::new())
                .confined(ProbeRequest::Exactly(backend), surroundings);
            let result = place.try_run("touch ran").await;
            if (name, backend) == ("unshare", Backend::Landlock) {
                // This command does not need the call, which shows that the filter removes nothing
                // else.
                assert!(result.is_ok() && place.path("work/ran").exists());
                continue;
            }
            let error = result.map(|ran| ran.text).unwrap_err();
            assert!(
                matches!(error, RunError::NotPrepared { .. } | RunError::Start { .. }),
                "{name}: {error:?}"
            );
            assert!(!place.path("work/ran").exists(), "{name} {backend:?}");
        }
    }
}

#[tokio::test]
async fn sandbox_support_is_probed_and_cached() {
    let folder = tempfile::tempdir().unwrap();
    let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
    let find = |helper: &Path| {
        let wanted = ProbeRequest::Strongest { kept_in: Some(folder.path().join("state")) };
        let sandbox = Sandbox::with_helper(helper.to_owned(), Vec::new());
        let sandbox = sandbox.confined(wanted, Surroundings::default());
        let failed: Vec<_> = sandbox.tried().into_iter().map(|tried| tried.failure).collect();
        (sandbox.backend(), failed)
    };
    let (backend, failed) = find(&helper);
    assert_eq!((backend, failed), (Backend::Namespaces, vec![None]));
    let find = |helper: &Path| {
        let (backend, failed) = find(helper);
        (backend, failed.len())
    };
    assert_eq!(find(&helper), (Backend::Namespaces, 0));
    // Another binary needs another detection.
    // Below a private /tmp, the script does not find a posse that was built there.
    let is_masked = ["/tmp", "/run"].iter().any(|folder| helper.starts_with(folder));
    let expected = if is_masked { (Backend::Landlock, 3) } else { (Backend::Bubblewrap, 2) };
    assert_eq!(find(&crippled(folder.path(), &["unshare"])), expected);
    assert_eq!(find(&crippled(folder.path(), &["landlock"])), (Backend::Nothing, 3));
    assert_eq!(find(Path::new("/bin/true")), (Backend::Nothing, 3));
}

#[tokio::test]
async fn trial_is_not_taken_for_a_process_that_a_command_left_behind() {
    let place = SandboxedWorkspace::new(Backend::Landlock);
    let trials = std::thread::spawn(|| {
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
        let trial = |_| {
            let wanted = ProbeRequest::Strongest { kept_in: None };
            let sandbox = Sandbox::with_helper(helper.clone(), Vec::new());
            sandbox.confined(wanted, Surroundings::default()).tried()
        };
        (0..20).flat_map(trial).map(|tried| tried.failure).collect::<Vec<_>>()
    });
    while !trials.is_finished() {
        let ran = place.run("true").await;
        assert_eq!((ran.outcome.exit, ran.outcome.stragglers), (Exit::Code(0), 0));
    }
    assert_eq!(trials.join().unwrap(), vec![None; 20]);
}

#[tokio::test]
async fn cached_weaker_backend_is_replaced_when_a_stronger_one_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
    let find = || {
        let wanted = ProbeRequest::Strongest { kept_in: Some(state.clone()) };
        let sandbox = Sandbox::with_helper(helper.clone(), Vec::new());
        sandbox.confined(wanted, Surroundings::default()).backend()
    };
    assert_eq!(find(), Backend::Namespaces);
    let cache = state.join("sandbox-backend");
    let strongest = std::fs::read_to_string(&cache).unwrap();
    let name = strongest.trim_end().rsplit(' ').next().unwrap();
    let weaker = strongest.replace(name, Backend::Landlock.as_str());
    std::fs::write(&cache, &weaker).unwrap();
    // The process that reads it keeps its tier, and the next one gets the stronger one.
    assert_eq!(find(), Backend::Landlock);
    let begin = Instant::now();
    while std::fs::read_to_string(&cache).unwrap() == weaker {
        assert!(begin.elapsed() < Duration::from_mins(1), "{weaker}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(find(), Backend::Namespaces);
    assert_eq!(std::fs::read_dir(state.join("sandbox-trial")).unwrap().count(), 0);
}

#[tokio::test]
async fn outdated_probe_result_runs_nothing_and_is_discarded() {
    let mut place = SandboxedWorkspace::new(Backend::Namespaces);
    let state = place.path("state");
    let helper = place.path("helper");
    std::fs::copy(env!("CARGO_BIN_EXE_posse"), &helper).unwrap();
    let sandbox = |helper: &Path| {
        Sandbox::with_helper(helper.to_owned(), Vec::new()).confined(
            ProbeRequest::Strongest { kept_in: Some(state.clone()) },
            Surroundings { roots: vec![state.with_file_name("work")], ..Surroundings::default() },
        )
    };
    assert_eq!(sandbox(&helper).tier(), SandboxTier::Full);
    assert!(state.join("sandbox-backend").exists());
    place.sandbox = sandbox(&helper);
    assert_eq!(place.sandbox.tier(), SandboxTier::Full);
    // From now on the same program fails.
    std::fs::remove_file(&helper).unwrap();
    std::fs::copy("/bin/false", &helper).unwrap();
    let error = place.try_run("touch ran").await.map(|ran| ran.text).unwrap_err();
    assert!(matches!(error, RunError::NotPrepared { .. }), "{error:?}");
    assert!(!place.path("work/ran").exists());
    assert!(!state.join("sandbox-backend").exists());
}

mod program {
    //! Behaviour of the whole program.

    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use serde_json::json;

    use crate::model_server::{ModelServer, calls, runs, says};
    use crate::posse::{FinishedRun, Machine, RunningPosse};

    fn with_backend(machine: &Machine, backend: &str, args: &[&str]) -> FinishedRun {
        let mut command = machine.command(args);
        command.env("POSSE_SANDBOX_BACKEND", backend);
        RunningPosse::start(command).end()
    }

    #[test]
    fn weaker_than_required_sandbox_exits_with_7_before_any_request() {
        for backend in ["landlock", "nothing"] {
            let server = ModelServer::start(vec![says("hi")]);
            let machine = Machine::with(&server);
            let ended = with_backend(&machine, backend, &["run", "--sandbox-required", "say hi"]);
            ended.assert_code(7);
            assert!(ended.stderr.contains("error[SBX003]"), "{}", ended.stderr);
            assert!(server.requests().is_empty());
        }
        for args in [&["run", "--sandbox-required", "say hi"][..], &["run", "say hi"]] {
            let server = ModelServer::start(vec![says("hi")]);
            let machine =
                Machine::configured(&server, &json!({"sandbox": {"required": true}}), &json!({}));
            with_backend(&machine, "namespaces", args).assert_code(0);
            let off = with_backend(&machine, "namespaces", &["run", "--sandbox", "off", "say hi"]);
            off.assert_code(7);
        }
    }

    /// A process that leaves its session and empties its environment carries no mark.
    #[test]
    fn unmarked_processes_do_not_survive_a_kill_of_posse() {
        let hides = "setsid env -i /bin/sh -c 'echo $$ > pid; while :; do /bin/sleep 0.1; done' &
            while ! test -s pid; do sleep 0.02; done; echo x > ready; sleep 1000";
        // A race decides about each one.
        for backend in ["namespaces"].into_iter().chain(["landlock"; 8]) {
            let server = ModelServer::start(vec![calls(&[("bash", json!({"command": hides}))])]);
            let machine = Machine::with(&server);
            let mut command = machine.command(&["run", "--yes", "do it"]);
            command.env("POSSE_SANDBOX_BACKEND", backend);
            let mut running = RunningPosse::start(command);
            let begin = Instant::now();
            while !machine.work("ready").exists() {
                assert!(begin.elapsed() < Duration::from_secs(30), "the command never runs");
                std::thread::sleep(Duration::from_millis(10));
            }
            let inside = machine.read("pid");
            let folder = machine.work("").canonicalize().unwrap();
            let lives = || processes_in(&folder) > 0;
            assert!(lives(), "{inside}");
            running.signal(Signal::SIGKILL);
            running.wait();
            let begin = Instant::now();
            while lives() {
                assert!(begin.elapsed() < Duration::from_secs(5), "{backend}: a process survives");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// A daemon that an editor or a shell of the user started becomes a child of posse, without a
    /// mark and in its own session. Only processes of commands are killed.
    #[test]
    fn processes_of_no_command_survive_the_end_of_commands() {
        let hides = "setsid env -i sleep 1000 & echo x > ready";
        let daemon =
            "setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $! > daemon; exec \"$@\"";
        for backend in ["namespaces", "bubblewrap", "landlock", "nothing"] {
            let server = ModelServer::start(vec![runs(hides), runs(hides), says("done")]);
            let machine = Machine::with(&server);
            let sandbox = if backend == "nothing" { "off" } else { "workspace-write" };
            let args = ["run", "--sandbox", sandbox, "--yes", "do it"];
            let posse = machine.command(&args);
            let mut command = Command::new("sh");
            command.args(["-c", daemon, "sh"]).arg(posse.get_program()).args(posse.get_args());
            command.current_dir(machine.work("")).env_clear();
            command.envs(posse.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env("POSSE_SANDBOX_BACKEND", backend);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            RunningPosse::start(command).end().assert_code(0);
            let daemon: i32 = machine.read("daemon").trim().parse().unwrap();
            // A process that has ended has no working directory.
            let lives = std::fs::read_link(format!("/proc/{daemon}/cwd")).is_ok();
            kill(Pid::from_raw(daemon), Signal::SIGKILL).ok();
            assert!(machine.work("ready").exists(), "{backend}: no command ran");
            assert!(lives, "{backend}: the daemon was killed");
            let folder = machine.work("").canonicalize().unwrap();
            let begin = Instant::now();
            while processes_in(&folder) > 0 {
                assert!(begin.elapsed() < Duration::from_secs(5), "{backend}: a process survives");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Number of living processes whose working directory is `folder`.
    fn processes_in(folder: &Path) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let is_there =
            |path: &Path| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder);
        processes.filter(|process| is_there(&process.path())).count()
    }

    #[test]
    fn doctor_reports_workspace_protection() {
        let machine = Machine::with(&ModelServer::start(Vec::new()));
        for number in 0..30 {
            machine.write(&format!("d{number}/f.txt"), "x");
        }
        for (folders, status, says) in [
            ("1000", "good", "all of the workspace is monitored"),
            ("20", "warning", "every command needs permission, even with --yes"),
        ] {
            let mut command = machine.command(&["doctor", "--json"]);
            command.env("POSSE_SANDBOX_SURVEY", folders);
            let report: serde_json::Value =
                serde_json::from_str(&RunningPosse::start(command).end().stdout).unwrap();
            let checks = report["checks"].as_array().unwrap();
            let check = checks.iter().find(|check| check["name"] == "protected files").unwrap();
            assert_eq!(check["status"], status, "{check}");
            assert!(check["detail"].as_str().unwrap().contains(says), "{check}");
            let fix = check["fix"].as_str().unwrap_or_default();
            assert_eq!(fix.contains("a folder below"), status == "warning", "{check}");
        }
    }

    #[test]
    fn sandbox_of_a_session_is_shown_and_recorded() {
        for (backend, tier) in [
            ("namespaces", "full"),
            ("bubblewrap", "full"),
            ("landlock", "reduced"),
            ("nothing", "none"),
        ] {
            let command =
                json!({"command": "(echo x > $HOME/escaped) 2>/dev/null; echo in > made"});
            let server = ModelServer::start(vec![calls(&[("bash", command)]), says("done")]);
            let machine = Machine::with(&server);
            let ended = with_backend(
                &machine,
                backend,
                &["run", "--output-format", "stream-json", "--yes", "do it"],
            );
            assert!(ended.stderr.contains(&format!("sandbox {tier}")), "{}", ended.stderr);
            let prompt = server.requests()[0]["messages"][0]["content"].to_string();
            assert!(prompt.contains(&format!("{tier}; ")), "{prompt}");
            if tier == "none" {
                // Without confinement, `--yes` alone does not answer permission requests.
                ended.assert_code(4);
                assert!(!machine.work("made").exists());
                continue;
            }
            ended.assert_code(0);
            let events = ended.events();
            let enforced = events.iter().find(|event| event["type"] == "sandbox.enforced").unwrap();
            assert_eq!(
                (&enforced["tier"], &enforced["report"]["backend"]),
                (&json!(tier), &json!(backend))
            );
            assert_eq!(machine.read("made"), "in\n");
            assert!(!machine.path("home/escaped").exists());
        }
    }
}

#[tokio::test]
async fn temporary_space_of_a_command_is_bounded() {
    // Sizes of all writable tmpfs, each counted once.
    let sizes = "python3 - <<'END'
import os
space = {}
for line in open('/proc/self/mountinfo'):
    before, after = line.split(' - ')
    place = before.split()[4]
    if after.split()[0] == 'tmpfs' and os.access(place, os.F_OK) and not os.statvfs(place).f_flag & os.ST_RDONLY:
        found = os.statvfs(place)
        space[os.stat(place).st_dev] = (found.f_blocks * found.f_frsize, found.f_files)
print(len(space) > 0, sum(size for size, _ in space.values()), max(files for _, files in space.values()))
END
test -w /tmp && test -w /dev/shm && echo kept > /dev/shm/kept && mv /dev/shm/kept /tmp/kept && cat /tmp/kept";
    for backend in FULL {
        let world = SandboxedWorkspace::apart(backend);
        let ran = world.run(sizes).await;
        let words: Vec<&str> = ran.text.split_whitespace().collect();
        let [found, bytes, files, "kept"] = words[..] else { panic!("{backend:?}: {}", ran.text) };
        let bytes: u64 = bytes.parse().unwrap();
        assert_eq!(found, "True");
        // The session's folder is a tmpfs with namespaces of posse, and is measured otherwise.
        let session = if backend == Backend::Namespaces { 1 << 30 } else { 0 };
        let private = bytes - session;
        assert!((256 << 20..=512 << 20).contains(&private), "{backend:?}: {bytes}");
        if backend == Backend::Namespaces {
            assert_eq!(files, (512 << 10).to_string());
        }
    }
}

#[tokio::test]
async fn memory_of_all_processes_of_a_command_is_bounded() {
    let hold = |megabytes: u32, then: &str| {
        format!("python3 -c 'import os, time; held = b\"x\" * ({megabytes} << 20); {then}'")
    };
    for backend in BACKENDS {
        let mut world = SandboxedWorkspace::new(backend);
        world.sandbox = world.sandbox.with_memory_limit(256 << 20);
        let each = hold(160, "time.sleep(50)");
        let ran = world.run(&format!("{each} & setsid {each} & wait")).await;
        assert_eq!(ran.outcome.exit, Exit::MemoryFull, "{backend:?}: {}", ran.text);
        // Two processes with the same memory do not use it twice.
        let shared = hold(160, "os.fork(); time.sleep(2.5); print(len(held))");
        let ran = world.run(&shared).await;
        assert_eq!(ran.outcome.exit, Exit::Code(0), "{backend:?}: {}", ran.text);
    }
}
