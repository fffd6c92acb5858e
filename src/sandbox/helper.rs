//! Helper process: the posse binary, started again, which prepares itself and then becomes a
//! command.
//!
//! Code between fork and exec may hardly do anything in a multi-threaded program, but a helper has
//! one thread. It creates a Unix session, dies with its parent, resets signals and closes
//! descriptors. Then it waits for a request on standard input, which is a socket, applies the plan
//! of the request, reports the kernel's answers, and executes the command. If any step fails, or
//! the report cannot be written, the command does not run.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, close, dup2_stderr, dup2_stdin, dup2_stdout, getppid, setsid};
use posse_actors::event::SandboxTier;
use serde_json::json;

use crate::Context as _;
use crate::kernel::{self, Fork};
use crate::landlock::Made;
use crate::namespaces::{self, Mounted};
use crate::plan::{Backend, Plan};
use crate::process_tree::Enclosure;
use crate::seccomp::{Filters, SharedFolders};
use crate::wire::{
    self, CommandStreams, HelperLine, HelperMessage, HelperRequest, RequestDescriptors,
};
use crate::{helper_output, init, landlock, listeners, temporary, watchdog};

/// First command line argument that makes the posse binary run as a helper.
pub(crate) const MARK: &str = "__posse_helper";

/// Last command line argument of a helper that receives the namespaces of its session first, in
/// which it creates those of its command.
pub(crate) const JOINS: &str = "joins";

/// Value for `/proc/self/oom_score_adj`, from -1000 to 1000: the kernel prefers to kill processes
/// with higher values when memory runs out. Text, as the kernel reads it.
const OOM_SCORE_ADJUSTMENT: &str = "500";

/// Exit code of a helper that failed to become the command.
const NOT_PREPARED: u8 = 125;

/// Error text for a working directory that was replaced before the command starts.
const OTHER_DIRECTORY: &str = "the working directory is another one by now";

/// Kind of a helper. It determines the preparation before the helper knows its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelperShape {
    /// Helper of a command without confinement.
    Bare,
    /// Helper that confines its command without namespaces. `network`: the command may use the
    /// host's network.
    Reduced { network: bool },
    /// Helper that creates namespaces. `network`: the command uses the host's network.
    Namespaces { network: bool },
    /// Helper that is PID 1 in a namespace that another program, such as bubblewrap, created.
    Inner,
}

impl HelperShape {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            HelperShape::Bare => "bare",
            HelperShape::Reduced { network: false } => "reduced",
            HelperShape::Reduced { network: true } => "reduced+network",
            HelperShape::Namespaces { network: false } => "namespaces",
            HelperShape::Namespaces { network: true } => "namespaces+network",
            HelperShape::Inner => "inner",
        }
    }

    fn parse(name: &str) -> Option<HelperShape> {
        let all = [
            HelperShape::Bare,
            HelperShape::Reduced { network: false },
            HelperShape::Reduced { network: true },
            HelperShape::Namespaces { network: false },
            HelperShape::Namespaces { network: true },
            HelperShape::Inner,
        ];
        all.into_iter().find(|shape| shape.as_str() == name)
    }

    /// Returns the shape of the helper that `plan` needs.
    pub(crate) fn of(plan: &Plan) -> HelperShape {
        match plan.backend {
            Backend::Namespaces => HelperShape::Namespaces { network: plan.network },
            Backend::Bubblewrap => HelperShape::Inner,
            Backend::Landlock => HelperShape::Reduced { network: plan.network },
            Backend::Nothing => HelperShape::Bare,
        }
    }

    /// Mechanism that keeps the processes of the command together.
    pub(crate) fn enclosure(self) -> Enclosure {
        match self {
            HelperShape::Namespaces { .. } | HelperShape::Inner => Enclosure::PidNamespace,
            HelperShape::Reduced { .. } => Enclosure::NoNewPrivileges,
            HelperShape::Bare => Enclosure::Nothing,
        }
    }

    /// System call filters of the command. `None` for `Bare`, which has none, and for `Inner`,
    /// whose filters depend on the plan.
    fn filters(self) -> Result<Option<Filters>, String> {
        match self {
            HelperShape::Reduced { network } => {
                Filters::new(SandboxTier::Reduced, network, SharedFolders::Absent).map(Some)
            }
            HelperShape::Namespaces { network } => {
                Filters::new(SandboxTier::Full, network, SharedFolders::Absent).map(Some)
            }
            HelperShape::Bare | HelperShape::Inner => Ok(None),
        }
    }
}

/// Runs the helper or the watchdog if this process was started as one. Must be the first call in
/// `main`.
///
/// Returns `None` for any other process. The process that executes the command does not return; for
/// all others, such as init process, watchdog and a helper that failed, `main` must return the code
/// at once.
pub fn helper_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let mark = arguments.next()?;
    if mark == watchdog::MARK {
        return Some(watchdog::watcher_main(arguments));
    }
    if mark == temporary::MARK {
        return Some(temporary::space_main(arguments));
    }
    if mark != MARK {
        return None;
    }
    // Without a socket no error can be reported except by the exit code.
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return Some(ExitCode::from(NOT_PREPARED));
    };
    let control = UnixStream::from(control);
    Some(help(&control, arguments).unwrap_or_else(|failure| {
        // The reader may be gone; the exit code remains.
        HelperLine::Failed(failure.replace(['\n', '\r'], " ")).write_line(&control).ok();
        ExitCode::from(NOT_PREPARED)
    }))
}

fn help(
    control: &UnixStream,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<ExitCode, String> {
    let parent = arguments.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let shape = arguments.next().and_then(|shape| HelperShape::parse(shape.to_str()?));
    let (mode, rest) = (arguments.next(), arguments.next());
    let joins = mode.as_deref() == Some(JOINS.as_ref());
    let (Some(parent), Some(shape), true, None) = (parent, shape, joins || mode.is_none(), rest)
    else {
        return Err("the helper was not started as one".to_owned());
    };
    let mut facts = Facts {
        shape,
        dies_with_parent: false,
        closed: 0,
        has_init: false,
        filters: None,
        mounted: Mounted::default(),
    };
    if shape == HelperShape::Inner {
        // The first process of a namespace ends with the process that created the namespace.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("no parent-death signal")?;
        facts.dies_with_parent = true;
    } else {
        setsid().context("no new session")?;
        facts.dies_with_parent = die_with(parent)?;
    }
    reset_signals()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).context("no core limit")?;
    // Makes the kernel end a command before posse and the user's other programs when memory runs
    // out. A kernel without this file decides by size alone.
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT).ok();
    let null =
        File::options().read(true).write(true).open("/dev/null").context("no null device")?;
    dup2_stdin(&null).context("no standard input")?;
    // Everything closed below must have no owner.
    drop(null);
    facts.closed = close_others(control.as_raw_fd())?;
    // While the helper is waiting.
    facts.filters = shape.filters()?;
    match shape {
        HelperShape::Bare | HelperShape::Reduced { .. } => execute(control, facts),
        HelperShape::Namespaces { network } => {
            if joins {
                let session = wire::receive_descriptors(control);
                namespaces::join(&session.context("the namespaces of the session")?)?;
            }
            outer(control, network, facts)
        }
        HelperShape::Inner => first(control, facts),
    }
}

/// Runs a helper without namespaces: waits for the request and becomes the command, or the init
/// process beside the command.
fn execute(control: &UnixStream, mut facts: Facts) -> Result<ExitCode, String> {
    if facts.shape != HelperShape::Bare {
        // No command needs capabilities, so they are dropped before the request arrives.
        kernel::drop_capabilities().context("capabilities stay")?;
        nix::sys::prctl::set_no_new_privs().context("privileges")?;
        facts.has_init = landlock::scope_signals() && adopt_orphans();
        if facts.has_init {
            return split(control, &facts);
        }
    }
    become_requested(control, &facts)
}

/// Forks before the request arrives: the child becomes the command, this process its init process.
fn split(control: &UnixStream, facts: &Facts) -> Result<ExitCode, String> {
    let (mut waiting, taken) = std::io::pipe().context("no pipe")?;
    match fork_with_init()? {
        Fork::Child => {
            drop(waiting);
            // Outside a PID namespace, no process ends the command with its init process.
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("no parent-death signal")?;
            let ended = become_requested(control, facts);
            drop(taken);
            ended
        }
        Fork::Parent(command) => {
            drop(taken);
            close_output()?;
            // If posse is killed, this process has to outlive it for a moment: it notices the end
            // of the socket and kills the command's processes, whatever they did to their
            // environment.
            nix::sys::prctl::set_pdeathsig(None).context("no parent-death signal")?;
            // Everything until the request was taken belongs to the request. The other end closes
            // when the command starts, or with the death of the parent.
            waiting.read_to_end(&mut Vec::new()).ok();
            init::run_init(command, control)
        }
    }
}

fn become_requested(control: &UnixStream, facts: &Facts) -> Result<ExitCode, String> {
    let mut ahead = None;
    let (request, RequestDescriptors { directory, streams, .. }) = loop {
        match HelperMessage::receive(control)? {
            None => return Ok(ExitCode::SUCCESS),
            Some(HelperMessage::Do(request, descriptors)) => break (request, descriptors),
            // Rules that cannot be made in advance are made when they are needed, with an error
            // then.
            Some(HelperMessage::Expect(plan)) if HelperShape::of(&plan) == facts.shape => {
                ahead = landlock::prepare(&plan).ok();
            }
            Some(HelperMessage::Expect(_)) => {}
        }
    };
    if HelperShape::of(&request.plan) != facts.shape || !request.listen.is_empty() {
        return Err("the helper is not ready for this plan".to_owned());
    }
    nix::unistd::fchdir(&directory).context("the working directory is gone")?;
    drop(directory);
    limit_user_processes(&request.plan);
    let never = become_command(control, &request, facts, ahead, streams)?;
    match never {}
}

fn adopt_orphans() -> bool {
    nix::sys::prctl::set_child_subreaper(true).is_ok()
}

/// Forks into the future command (child) and its init process (parent). The child starts a Unix
/// session; the parent blocks SIGCHLD, which the init process receives through a descriptor.
fn fork_with_init() -> Result<Fork, String> {
    init::children().thread_block().context("signals")?;
    let fork = kernel::fork().context("no process")?;
    if matches!(fork, Fork::Child) {
        SigSet::empty().thread_set_mask().context("signals")?;
        setsid().context("no new session")?;
    }
    Ok(fork)
}

/// Creates namespaces and forks their PID 1. This process stays outside the PID namespace, waits
/// for that child, and returns its exit code.
fn outer(control: &UnixStream, network: bool, mut facts: Facts) -> Result<ExitCode, String> {
    facts.mounted.namespaces = namespaces::enter(network)?;
    match kernel::fork().context("no first process")? {
        Fork::Child => {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("no parent-death signal")?;
            facts.mounted.own_processes = namespaces::own_processes();
            if !network {
                kernel::raise_loopback().context("no loopback")?;
            }
            first(control, facts)
        }
        Fork::Parent(first) => {
            close_output()?;
            // A signal to this process is meant for the command, which gets it directly.
            SigSet::all().thread_block().context("signals")?;
            loop {
                match waitpid(first, None) {
                    Ok(WaitStatus::Exited(_, code)) => {
                        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
                    }
                    Err(nix::errno::Errno::EINTR) | Ok(WaitStatus::StillAlive) => {}
                    _ => return Ok(ExitCode::from(NOT_PREPARED)),
                }
            }
        }
    }
}

/// Runs as PID 1 of a namespace: waits for the request, applies its mounts and limits, and forks
/// into the command (child) and the init process (parent).
fn first(control: &UnixStream, mut facts: Facts) -> Result<ExitCode, String> {
    let (request, descriptors) = match HelperMessage::receive(control)? {
        None => return Ok(ExitCode::SUCCESS),
        Some(HelperMessage::Do(request, descriptors)) => (request, descriptors),
        // The Landlock rules depend on mounts that do not exist yet.
        Some(HelperMessage::Expect(_)) => return Err("the helper expects nothing".to_owned()),
    };
    let RequestDescriptors { directory, streams, listeners } = descriptors;
    let HelperRequest { plan, listen, .. } = &request;
    if HelperShape::of(plan) != facts.shape || (plan.network && !listen.is_empty()) {
        return Err("the helper is not ready for this plan".to_owned());
    }
    if let Some(channel) = listeners {
        // The command must not inherit the socket, nor a listener.
        listeners::open_listeners(listen, channel.as_fd())?;
    }
    let path = folder_path(directory.as_fd())?;
    let meant = identity(&directory)?;
    let is_same = |found: &std::fs::Metadata| (found.dev(), found.ino()) == meant;
    // In an overlay it has another identity, so it is compared before.
    let is_overlaid = plan.is_overlaid(&path);
    if is_overlaid && !std::fs::symlink_metadata(&path).is_ok_and(|found| is_same(&found)) {
        return Err(OTHER_DIRECTORY.to_owned());
    }
    // The descriptor belongs to the outer tree, where nothing is read-only.
    drop(directory);
    if plan.backend == Backend::Namespaces {
        facts.mounted.processes_max =
            namespaces::limit_processes(facts.mounted.own_processes, plan.processes_max);
        namespaces::arrange(plan, &mut facts.mounted)?;
    } else {
        check_inner()?;
    }
    limit_user_processes(plan);
    std::env::set_current_dir(&path).context(path.display())?;
    let found = std::fs::metadata(".").context(path.display())?;
    if !is_overlaid && !is_same(&found) {
        return Err(OTHER_DIRECTORY.to_owned());
    }
    kernel::drop_capabilities().context("capabilities stay")?;
    nix::sys::prctl::set_no_new_privs().context("new privileges")?;
    facts.has_init = true;
    match fork_with_init()? {
        Fork::Child => {
            let never = become_command(control, &request, &facts, None, streams)?;
            match never {}
        }
        Fork::Parent(command) => {
            // Only the command holds the pipe of its standard error open.
            drop(streams);
            close_output()?;
            init::run_init(command, control)
        }
    }
}

/// Applies Landlock rules and system call filters to this process unless the tier is none, sends
/// the enforcement report, and executes the command. Returns on failure only. `ahead`: Landlock
/// rules made in advance, which are used if they are still valid.
fn become_command(
    control: &UnixStream,
    request: &HelperRequest,
    facts: &Facts,
    ahead: Option<Made>,
    streams: Option<CommandStreams>,
) -> Result<Infallible, String> {
    let HelperRequest { plan, program, arguments, environment, listen } = request;
    let mut report = facts.report(plan);
    if !listen.is_empty() {
        report["network"] = json!("domains");
    }
    if plan.tier != SandboxTier::None {
        // They were dropped before; this verifies it with the kernel.
        if kernel::has_capabilities().context("capabilities")? {
            return Err("capabilities are still there".to_owned());
        }
        let ahead = ahead.filter(|made| made.is_valid_for(plan));
        let is_ahead = ahead.is_some();
        let rules = ahead.map_or_else(|| landlock::build(plan), Ok)?;
        let landlock = rules.enforce()?;
        report["landlock"] = json!({
            "version": landlock.version,
            "whole": landlock.is_whole,
            "tcp": landlock.tcp,
            "exposed": landlock.exposed,
            "madeAhead": is_ahead,
        });
        let made;
        let folders = SharedFolders::of(plan);
        let filters = match &facts.filters {
            Some(filters) if filters.are_for(plan, folders) => filters,
            _ => {
                made = Filters::new(plan.tier.clone(), plan.network, folders)?;
                &made
            }
        };
        let calls = filters.restrict()?;
        if !kernel::has_filter() || !nix::sys::prctl::get_no_new_privs().is_ok_and(|set| set) {
            return Err("the kernel does not say that system calls are filtered".to_owned());
        }
        report["seccomp"] = json!({ "calls": calls });
        report["noNewPrivileges"] = json!(true);
        report["capabilities"] = json!(false);
    }
    helper_output::redirect(streams)?;
    HelperLine::Enforced(report).write_line(control).context("no report")?;
    // `exec` also sets SIGPIPE to its default and empties the signal mask.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    let error = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(format!("{error}"))
}

/// Steps of the preparation that were carried out, for the enforcement report: closed descriptors,
/// init process, filters and mounts.
#[derive(Debug)]
struct Facts {
    shape: HelperShape,
    dies_with_parent: bool,
    closed: usize,
    /// True if an init process of posse stays beside the command.
    has_init: bool,
    filters: Option<Filters>,
    mounted: Mounted,
}

impl Facts {
    fn report(&self, plan: &Plan) -> serde_json::Value {
        let mut report = json!({
            "tier": plan.tier.as_str(),
            "backend": plan.backend.as_str(),
            "session": true,
            "terminal": false,
            "diesWithParent": self.dies_with_parent,
            "descriptorsClosed": self.closed,
            "init": self.has_init,
        });
        if plan.tier != SandboxTier::None {
            report["network"] = json!(if plan.network { "inherit" } else { "deny" });
            report["processesMax"] = json!(self.mounted.processes_max);
        }
        if plan.backend == Backend::Namespaces {
            let Mounted { namespaces, own_processes, writable, overlays, .. } = &self.mounted;
            let Mounted { read_only, pinned, hidden, replaced, masked, .. } = &self.mounted;
            report["namespaces"] = json!(namespaces);
            report["ownProcesses"] = json!(own_processes);
            report["mounts"] = json!({
                "writable": writable, "readOnly": read_only, "pinned": pinned,
                "hidden": hidden, "replaced": replaced, "masked": masked,
            });
            if *overlays > 0 {
                report["overlays"] = json!(overlays);
            }
        }
        report
    }
}

/// Checks that bubblewrap has created the namespaces: this process is PID 1, and `/` is read-only.
fn check_inner() -> Result<(), String> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    let root = statvfs("/").context("/")?;
    if nix::unistd::getpid().as_raw() == 1 && root.flags().contains(FsFlags::ST_RDONLY) {
        Ok(())
    } else {
        Err("there is no namespace around the helper".to_owned())
    }
}

/// Returns the path of an open folder. A removed folder is an error.
pub(crate) fn folder_path(directory: BorrowedFd<'_>) -> Result<PathBuf, String> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = std::fs::read_link(link).context("the working directory is unknown")?;
    if wire::is_plain(&path) { Ok(path) } else { Err("the working directory is gone".to_owned()) }
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), String> {
    let file = directory.try_clone().map(File::from);
    let found = file.and_then(|file| file.metadata());
    let found = found.context("the working directory is unknown")?;
    Ok((found.dev(), found.ino()))
}

/// Redirects this process's standard output and error to `/dev/null`, so that only the command
/// holds the output pipe open. Standard input is `/dev/null` already; the path cannot be opened
/// here, because PID 1 changes the mounts of `/dev` at the same time.
fn close_output() -> Result<(), String> {
    let (open, null) = ("output stays open", std::io::stdin());
    dup2_stdout(&null).context(open)?;
    dup2_stderr(&null).context(open)
}

/// Limits the number of processes of the user (`RLIMIT_NPROC`) to `processes_max`; on other tiers
/// than the full one to 4 * `processes_max`, because all processes of the user count there. A lower
/// limit in force stays. 0 sets no limit.
fn limit_user_processes(plan: &Plan) {
    if plan.processes_max == 0 {
        return;
    }
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NPROC) else { return };
    // Outside of a namespace the user's other processes count as well.
    let share = if plan.tier == SandboxTier::Full { 1 } else { 4 };
    let max = u64::from(plan.processes_max).saturating_mul(share).min(soft).min(hard);
    // The super-user is exempt from this limit; the namespace's own limit applies instead.
    setrlimit(Resource::RLIMIT_NPROC, max, max).ok();
}

/// Makes the kernel kill this process when the thread that started it ends, and returns true. Fails
/// if `parent` has already ended.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Pid) -> Result<bool, String> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("no parent-death signal")?;
    // The parent may have died before the call.
    if getppid() == parent { Ok(true) } else { Err("the parent is gone".to_owned()) }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with(parent: Pid) -> Result<bool, String> {
    if getppid() == parent { Ok(false) } else { Err("the parent is gone".to_owned()) }
}

/// Resets all signals to their default action. A parent may have ignored some, as `nohup` or a
/// shell's `&` does.
fn reset_signals() -> Result<(), String> {
    for each in Signal::iterator() {
        if matches!(each, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        #[expect(unsafe_code, reason = "the only way to stop ignoring a signal")]
        // SAFETY: the default action runs no handler of ours.
        let reset = unsafe { signal(each, SigHandler::SigDfl) };
        reset.map_err(|error| format!("{each} keeps its handler: {error}"))?;
    }
    Ok(())
}

/// Ignores SIGXFSZ in this process, so that exceeding a file-size limit is a write error that can
/// be reported. Helpers restore the default action for commands.
pub fn survive_file_limits() {
    #[expect(unsafe_code, reason = "the only way to ignore a signal")]
    // SAFETY: ignoring a signal runs no handler.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    if let Err(error) = ignored {
        tracing::debug!(%error, "a file that grows too far ends this process");
    }
}

/// Closes all descriptors except the standard streams and `report`; returns the number of closed
/// descriptors.
pub(crate) fn close_others(report: RawFd) -> Result<usize, String> {
    let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let entries = std::fs::read_dir(folder).context("open descriptors are unknown")?;
    let open: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&descriptor: &RawFd| descriptor > 2 && descriptor != report)
        .collect();
    // The descriptor of the folder itself is in the list and is already closed.
    Ok(open.into_iter().filter(|&descriptor| close(descriptor).is_ok()).count())
}

/// Returns a path that starts the running binary; on Linux even if the file was replaced or
/// removed.
pub(crate) fn own_binary() -> std::io::Result<PathBuf> {
    let link = std::path::Path::new("/proc/self/exe");
    // The child that follows this link shares our memory until then, so it resolves to our binary.
    if cfg!(target_os = "linux") && link.exists() {
        return Ok(link.to_owned());
    }
    std::env::current_exe()
}
