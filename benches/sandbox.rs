//! Cost of the sandbox around a command that does nothing, from a process with 300 MB of memory.
//!
//! `cargo bench --bench sandbox`, with `-- landlock` for a single mechanism. A plain spawn and
//! bubblewrap alone are the floors in the same run. Exits with 1 if a promised figure is missed.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on has nothing to say")]
#![expect(clippy::disallowed_types, reason = "the floors are started plainly")]

#[path = "support/table.rs"]
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse::egress::{
    CommandListeners, Egress, EgressLimits, EgressPolicy, PROXY_PORT, RefusingApprover,
    SystemResolver, proxy_environment,
};
use posse::sandbox::{
    Backend, Directory, Exemptions, Exit, ProbeRequest, Sandbox, Spawn, Surroundings, Update,
    request_listeners,
};
use posse_actors::ports::{Confinement, NetworkAccess};

const RUNS: usize = 200;
/// Bytes of memory that this process occupies.
const RESIDENT: usize = 300 << 20;
/// Folders of a large workspace.
const FOLDERS: usize = 25_000;
/// Pause that simulates a model between two commands. Real models take longer.
const THOUGHT: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let held: Vec<u8> = (0..RESIDENT).map(|at| u8::try_from(at & 0xff).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plain = plainly(|| Command::new("/bin/true"));
    table::fact("true, started plainly, median", plain.0, "ms");
    let bubblewrap = plainly(|| {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--die-with-parent", "--new-session"]);
        command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        command.args(["--tmpfs", "/tmp", "--tmpfs", "/run", "/bin/true"]);
        command
    });
    table::fact("true in bubblewrap alone, median", bubblewrap.0, "ms");
    table::fact("true in bubblewrap alone, p99", bubblewrap.1, "ms");
    let mut good = true;
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (backend, median_max, p99_max) in [
        (Backend::Nothing, 4.0, 8.0),
        (Backend::Landlock, 4.0, 8.0),
        (Backend::Namespaces, 15.0, 30.0),
        (Backend::Bubblewrap, 30.0, 60.0),
    ] {
        if !wanted.is_empty() && wanted.iter().all(|name| name != backend.as_str()) {
            continue;
        }
        for thought in [Duration::ZERO, THOUGHT] {
            let ((median, p99), ahead) = runtime.block_on(confined(backend, thought, 0));
            let how = if thought.is_zero() { "at once" } else { "after a thought" };
            let name = |what: &str| format!("true by {}, {how}, {what}", backend.as_str());
            good &= table::at_most(&name("median"), median, median_max, "ms");
            good &= table::at_most(&name("p99"), p99, p99_max, "ms");
            if backend == Backend::Landlock {
                table::fact(&name("rules made ahead"), ahead, "%");
            }
            if backend == Backend::Namespaces {
                let ratio = median / bubblewrap.0;
                good &= table::at_most(&name("against bubblewrap"), ratio, 1.6, "x");
            }
            if backend == Backend::Namespaces && !thought.is_zero() {
                let ((large, _), _) = runtime.block_on(confined(backend, thought, FOLDERS));
                let more = large - median;
                good &= table::at_most(&name("25,000 folders: more"), more, 15.0, "ms");
                let more = runtime.block_on(more_with_proxy());
                good &= table::at_most(&name("network by domain: more"), more, 0.3, "ms");
            }
        }
    }
    drop(held);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Median and 99th percentile of times, in milliseconds.
fn summed_up(mut took: Vec<Duration>) -> (f64, f64) {
    took.sort();
    let at = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1e3;
    (at(50), at(99))
}

fn plainly(command: impl Fn() -> Command) -> (f64, f64) {
    let run = |_| {
        let begin = Instant::now();
        let mut command = command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        begin.elapsed()
    };
    summed_up((0..RUNS).map(run).collect())
}

/// Milliseconds that a command takes longer if it has a proxy, as the median. Commands with and without
/// one alternate.
async fn more_with_proxy() -> f64 {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sandbox = sandbox_in(place.path(), Backend::Namespaces);
    let policy = EgressPolicy::default();
    let egress = Egress::new(policy, Arc::new(SystemResolver), EgressLimits::default());
    let mut took = [Vec::new(), Vec::new()];
    for at in 0..2 * RUNS + 6 {
        tokio::time::sleep(THOUGHT).await;
        let begin = Instant::now();
        let mut spawn = spawn(place.path());
        let (mut listeners, mut lease) = (None, None);
        if at % 2 == 1 {
            let (request, receiver) = request_listeners(vec![PROXY_PORT]).unwrap();
            let found = async {
                let (_, proxy) = receiver.receive().await?.swap_remove(0);
                Ok(CommandListeners { proxy, forwards: Vec::new() })
            };
            let variables = proxy_environment().into_iter();
            spawn.environment.extend(variables.map(|(name, value)| (name.into(), value.into())));
            listeners = Some(request);
            let found = Box::pin(found);
            lease =
                Some(egress.serve(found, Vec::new(), Arc::new(RefusingApprover), Arc::new(|_| {})));
        }
        let besides = Exemptions { unsurveyed: true, ..Exemptions::default() };
        let outcome = sandbox.run_judged(spawn, besides, None, listeners, |_| {}).await.unwrap();
        if let Some(lease) = lease {
            assert!(lease.finish().await.is_empty());
        }
        assert_eq!(outcome.exit, Exit::Code(0));
        if at >= 6 {
            took[at % 2].push(begin.elapsed());
        }
    }
    let [plain, proxied] = took.map(|took| summed_up(took).0);
    proxied - plain
}

/// Runs commands confined by `backend`, each after a pause of `thought`. Returns median and 99th
/// percentile of their time in milliseconds, and the percentage with prepared Landlock rules.
/// The workspace has this number of folders.
async fn confined(backend: Backend, thought: Duration, folders: usize) -> ((f64, f64), f64) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sandbox = sandbox_in(place.path(), backend);
    for at in 0..folders {
        let folder = format!("work/{}/{}/{}", at % 50, at / 50 % 25, at / 1250);
        std::fs::create_dir_all(place.path().join(folder)).unwrap();
    }
    let mut took = Vec::with_capacity(RUNS);
    let mut ahead = 0.0;
    for at in 0..RUNS + 3 {
        tokio::time::sleep(thought).await;
        let begin = Instant::now();
        let watch = |update| {
            if let Update::Enforced { report, .. } = update
                && report["landlock"]["madeAhead"] == true
            {
                ahead += 1.0;
            }
        };
        let outcome = sandbox.run(spawn(place.path()), watch).await.unwrap();
        // The first ones find nothing prepared, as the first of a session does.
        if at >= 3 {
            took.push(begin.elapsed());
        }
        assert_eq!(outcome.exit, Exit::Code(0));
    }
    (summed_up(took), ahead * 100.0 / f64::from(u32::try_from(RUNS + 3).unwrap()))
}

fn sandbox_in(place: &Path, backend: Backend) -> Sandbox {
    for folder in ["work", "state"] {
        std::fs::create_dir(place.join(folder)).unwrap();
    }
    let surroundings = Surroundings {
        roots: vec![place.join("work")],
        own: vec![place.join("state")],
        home: Some(place.to_owned()),
        ..Surroundings::default()
    };
    let helper = PathBuf::from(env!("CARGO_BIN_EXE_posse"));
    Sandbox::with_helper(helper, Vec::new()).confined(ProbeRequest::Exactly(backend), surroundings)
}

fn spawn(place: &Path) -> Spawn {
    let work = place.join("work");
    Spawn {
        program: "/bin/true".into(),
        arguments: Vec::new(),
        directory: Directory::Path(work.clone()),
        environment: Vec::new(),
        confinement: Confinement {
            profile: "workspace-write".to_owned(),
            writable_roots: vec![work.display().to_string()],
            network: NetworkAccess::Denied,
        },
        timeout: Duration::from_mins(1),
        scratch: place.join("state/tmp"),
        spill: place.join("state/outputs/call.txt"),
        output_bytes_max: 4096,
        spill_bytes_max: 1 << 20,
        dialogue: None,
        stop: None,
        masks_keys: false,
        at_timeout: None,
    }
}
