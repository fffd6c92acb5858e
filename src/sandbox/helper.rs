//! Helper process: our own binary, started again, which prepares the process that becomes a
//! command.
//!
//! An ordinary single-threaded program may do what a closure between fork and exec must not. The
//! helper starts a new session, ties its life to its parent, resets signals and closes descriptors.
//! Then it waits for a request on the socket at its standard input, puts the requested confinement
//! in force, reports the kernel's answers, and executes the command. If a step fails, or the report
//! cannot be written, no command runs.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, close, dup2_stderr, dup2_stdin, dup2_stdout, getppid, setsid};
use serde_json::json;

use crate::sandbox::kernel::{self, Fork};
use crate::sandbox::landlock::Made;
use crate::sandbox::namespaces::{self, Mounted};
use crate::sandbox::plan::{Backend, Plan, Tier};
use crate::sandbox::seccomp::Filters;
use crate::sandbox::wire::{self, Request, Told};
use crate::sandbox::{dialogue, init, landlock, watch};

/// First argument that selects the helper.
pub(crate) const MARK: &str = "__posse_helper";

/// Exit code of a helper that failed to become the command.
const NOT_PREPARED: u8 = 125;

/// Preparation of a helper that does not depend on the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No confinement.
    Bare,
    /// Confinement without namespaces, with or without the host's network.
    Reduced { network: bool },
    /// Namespaces created by the helper, with or without the host's network.
    Namespaces { network: bool },
    /// First process in a namespace created by bubblewrap.
    Inner,
}

impl Shape {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Shape::Bare => "bare",
            Shape::Reduced { network: false } => "reduced",
            Shape::Reduced { network: true } => "reduced+network",
            Shape::Namespaces { network: false } => "namespaces",
            Shape::Namespaces { network: true } => "namespaces+network",
            Shape::Inner => "inner",
        }
    }

    fn parse(name: &str) -> Option<Shape> {
        let all = [
            Shape::Bare,
            Shape::Reduced { network: false },
            Shape::Reduced { network: true },
            Shape::Namespaces { network: false },
            Shape::Namespaces { network: true },
            Shape::Inner,
        ];
        all.into_iter().find(|shape| shape.as_str() == name)
    }

    /// Shape that `plan` needs.
    pub(crate) fn of(plan: &Plan) -> Shape {
        match plan.backend {
            Backend::Namespaces => Shape::Namespaces { network: plan.network },
            Backend::Bubblewrap => Shape::Inner,
            Backend::Landlock => Shape::Reduced { network: plan.network },
            Backend::Nothing => Shape::Bare,
        }
    }

    /// Returns `true` if the command runs in a PID namespace.
    pub(crate) fn encloses(self) -> bool {
        matches!(self, Shape::Namespaces { .. } | Shape::Inner)
    }

    /// System call filters of the commands, if known in advance.
    fn filters(self) -> Result<Option<Filters>, String> {
        match self {
            Shape::Reduced { network } => Filters::new(Tier::Reduced, network).map(Some),
            Shape::Namespaces { network } => Filters::new(Tier::Full, network).map(Some),
            Shape::Bare | Shape::Inner => Ok(None),
        }
    }
}

/// Runs the helper or the watchdog if this process was started as one. Must be the first call in
/// `main`.
///
/// Returns `None` for any other process. A helper that succeeds executes the command and does not
/// return; otherwise `main` must return the code at once.
pub fn helper_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let mark = arguments.next()?;
    if mark == watch::MARK {
        return Some(watch::watcher_main(arguments));
    }
    if mark != MARK {
        return None;
    }
    // Without a socket the error cannot be reported; the exit code is enough.
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return Some(ExitCode::from(NOT_PREPARED));
    };
    let control = UnixStream::from(control);
    Some(help(&control, arguments).unwrap_or_else(|failure| {
        // The reader may be gone; the exit code remains.
        wire::say(&control, &format!("failed {failure}")).ok();
        ExitCode::from(NOT_PREPARED)
    }))
}

fn help(
    control: &UnixStream,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<ExitCode, String> {
    let parent = arguments.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let shape = arguments.next().and_then(|shape| Shape::parse(shape.to_str()?));
    let (Some(parent), Some(shape), None) = (parent, shape, arguments.next()) else {
        return Err("invalid helper arguments".to_owned());
    };
    let mut facts = Facts {
        shape,
        dies_with_parent: false,
        closed: 0,
        has_init: false,
        filters: None,
        mounted: Mounted::default(),
    };
    if shape == Shape::Inner {
        // The first process of a namespace ends with the process that created the namespace.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
            .map_err(|error| format!("no parent-death signal: {error}"))?;
        facts.dies_with_parent = true;
    } else {
        setsid().map_err(|error| format!("no new session: {error}"))?;
        facts.dies_with_parent = die_with(parent)?;
    }
    reset_signals()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|error| format!("no core limit: {error}"))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| format!("no null device: {error}"))?;
    dup2_stdin(&null).map_err(|error| format!("no standard input: {error}"))?;
    // Descriptors closed below must have no owner.
    drop(null);
    facts.closed = close_others(control.as_raw_fd())?;
    // Done before a request arrives, when no caller waits.
    facts.filters = shape.filters()?;
    match shape {
        Shape::Bare | Shape::Reduced { .. } => bare(control, facts),
        Shape::Namespaces { network } => outer(control, network, facts),
        Shape::Inner => first(control, facts),
    }
}

/// Executes the command, or its init process, without namespaces.
fn bare(control: &UnixStream, mut facts: Facts) -> Result<ExitCode, String> {
    if facts.shape != Shape::Bare {
        // No command needs capabilities, so they are dropped before the request arrives.
        kernel::drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
        nix::sys::prctl::set_no_new_privs().map_err(|error| format!("privileges: {error}"))?;
        facts.has_init = landlock::enclose() && adopt_orphans();
        if facts.has_init {
            return split(control, &facts);
        }
    }
    become_requested(control, &facts)
}

/// Forks into the process that becomes the command and its init process, before the request
/// arrives.
fn split(control: &UnixStream, facts: &Facts) -> Result<ExitCode, String> {
    let (mut waiting, taken) = std::io::pipe().map_err(|error| format!("no pipe: {error}"))?;
    match fork_with_init()? {
        Fork::Child => {
            drop(waiting);
            // Outside a PID namespace, no process ends the command with its init process.
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
                .map_err(|error| format!("no parent-death signal: {error}"))?;
            let ended = become_requested(control, facts);
            drop(taken);
            ended
        }
        Fork::Parent(command) => {
            drop(taken);
            let_go_of_output()?;
            // Input up to this point belongs to the request. The other end closes when the command
            // starts or its process dies.
            waiting.read_to_end(&mut Vec::new()).ok();
            init::keep_house(command, control)
        }
    }
}

fn become_requested(control: &UnixStream, facts: &Facts) -> Result<ExitCode, String> {
    let mut ahead = None;
    let (request, directory) = loop {
        match Told::receive(control)? {
            None => return Ok(ExitCode::SUCCESS),
            Some(Told::Do(request, directory)) => break (request, directory),
            // What cannot be prepared in advance is prepared, or reported as an error, when the
            // request arrives.
            Some(Told::Expect(plan)) if Shape::of(&plan) == facts.shape => {
                ahead = landlock::make_ahead(&plan).ok();
            }
            Some(Told::Expect(_)) => {}
        }
    };
    if Shape::of(&request.plan) != facts.shape {
        return Err("the helper is not ready for this plan".to_owned());
    }
    nix::unistd::fchdir(&directory)
        .map_err(|error| format!("the working directory is gone: {error}"))?;
    drop(directory);
    limit_user_processes(&request.plan);
    let never = become_command(control, &request, facts, ahead)?;
    match never {}
}

fn adopt_orphans() -> bool {
    nix::sys::prctl::set_child_subreaper(true).is_ok()
}

/// Forks. The child has its own session; the parent waits for children through their signals.
fn fork_with_init() -> Result<Fork, String> {
    init::children().thread_block().map_err(|error| format!("signals: {error}"))?;
    let fork = kernel::fork().map_err(|error| format!("no process: {error}"))?;
    if matches!(fork, Fork::Child) {
        SigSet::empty().thread_set_mask().map_err(|error| format!("signals: {error}"))?;
        setsid().map_err(|error| format!("no new session: {error}"))?;
    }
    Ok(fork)
}

/// Creates namespaces, and waits outside for the first process in them.
fn outer(control: &UnixStream, network: bool, mut facts: Facts) -> Result<ExitCode, String> {
    facts.mounted.namespaces = namespaces::enter(network)?;
    match kernel::fork().map_err(|error| format!("no first process: {error}"))? {
        Fork::Child => {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
                .map_err(|error| format!("no parent-death signal: {error}"))?;
            facts.mounted.own_processes = namespaces::own_processes();
            if !network {
                kernel::raise_loopback().map_err(|error| format!("no loopback: {error}"))?;
            }
            first(control, facts)
        }
        Fork::Parent(first) => {
            let_go_of_output()?;
            // A termination request is meant for the command, which receives its own.
            SigSet::all().thread_block().map_err(|error| format!("signals: {error}"))?;
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

/// First process of a namespace: waits for the request, mounts the file system and starts the
/// command.
fn first(control: &UnixStream, mut facts: Facts) -> Result<ExitCode, String> {
    let (request, directory) = match Told::receive(control)? {
        None => return Ok(ExitCode::SUCCESS),
        Some(Told::Do(request, directory)) => (request, directory),
        // The Landlock rules depend on mounts that do not exist yet.
        Some(Told::Expect(_)) => return Err("the helper expects nothing".to_owned()),
    };
    let Request { plan, .. } = &request;
    if Shape::of(plan) != facts.shape {
        return Err("the helper is not ready for this plan".to_owned());
    }
    let path = place(&directory)?;
    let meant = identity(&directory)?;
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
    std::env::set_current_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = File::open(".").map_err(|error| format!("{}: {error}", path.display()))?;
    if identity(&found.into())? != meant {
        return Err("the working directory was replaced".to_owned());
    }
    kernel::drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    nix::sys::prctl::set_no_new_privs().map_err(|error| format!("new privileges: {error}"))?;
    facts.has_init = true;
    match fork_with_init()? {
        Fork::Child => {
            let never = become_command(control, &request, &facts, None)?;
            match never {}
        }
        Fork::Parent(command) => {
            let_go_of_output()?;
            init::keep_house(command, control)
        }
    }
}

/// Puts the confinement of this process in force, reports it, and executes the command.
fn become_command(
    control: &UnixStream,
    request: &Request,
    facts: &Facts,
    ahead: Option<Made>,
) -> Result<Infallible, String> {
    let Request { plan, program, arguments, environment } = request;
    let mut report = facts.report(plan);
    if plan.tier != Tier::None {
        // Capabilities were dropped before; this checks the kernel's state.
        if kernel::has_capabilities().map_err(|error| format!("capabilities: {error}"))? {
            return Err("capabilities were not dropped".to_owned());
        }
        let ahead = ahead.filter(|made| made.suit(plan));
        let is_ahead = ahead.is_some();
        let rules = ahead.map_or_else(|| landlock::make_now(plan), Ok)?;
        let landlock = rules.enforce()?;
        report["landlock"] = json!({
            "version": landlock.version,
            "whole": landlock.is_whole,
            "tcp": landlock.tcp,
            "exposed": landlock.exposed,
            "madeAhead": is_ahead,
        });
        let made;
        let filters = match &facts.filters {
            Some(filters) if filters.suit(plan) => filters,
            _ => {
                made = Filters::new(plan.tier, plan.network)?;
                &made
            }
        };
        let calls = filters.restrict()?;
        if !kernel::has_filter() || !nix::sys::prctl::get_no_new_privs().is_ok_and(|set| set) {
            return Err("the kernel reports no system call filter".to_owned());
        }
        report["seccomp"] = json!({ "calls": calls });
        report["noNewPrivileges"] = json!(true);
        report["capabilities"] = json!(false);
    }
    dialogue::redirect(environment)?;
    wire::say(control, &format!("enforced {report}"))
        .map_err(|error| format!("no report: {error}"))?;
    // `exec` also sets SIGPIPE to its default and empties the signal mask.
    #[expect(clippy::disallowed_types, reason = "this is the place where processes start")]
    let error = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(format!("{error}"))
}

/// State in force before the plan is applied.
#[derive(Debug)]
struct Facts {
    shape: Shape,
    dies_with_parent: bool,
    closed: usize,
    /// `true` if an init process of ours accompanies the command.
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
        if plan.tier != Tier::None {
            report["network"] = json!(if plan.network { "inherit" } else { "deny" });
            report["processesMax"] = json!(self.mounted.processes_max);
        }
        if plan.backend == Backend::Namespaces {
            let Mounted { namespaces, own_processes, writable, .. } = &self.mounted;
            let Mounted { read_only, pinned, hidden, masked, .. } = &self.mounted;
            report["namespaces"] = json!(namespaces);
            report["ownProcesses"] = json!(own_processes);
            report["mounts"] = json!({
                "writable": writable, "readOnly": read_only, "pinned": pinned,
                "hidden": hidden, "masked": masked,
            });
        }
        report
    }
}

/// Checks that bubblewrap created the requested namespaces.
fn check_inner() -> Result<(), String> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    let root = statvfs("/").map_err(|error| format!("/: {error}"))?;
    if nix::unistd::getpid().as_raw() == 1 && root.flags().contains(FsFlags::ST_RDONLY) {
        Ok(())
    } else {
        Err("the helper is not in a namespace".to_owned())
    }
}

/// Path of an open folder. A removed folder is an error.
fn place(directory: &OwnedFd) -> Result<PathBuf, String> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = std::fs::read_link(link)
        .map_err(|error| format!("cannot read the working directory: {error}"))?;
    if wire::is_plain(&path) { Ok(path) } else { Err("the working directory is gone".to_owned()) }
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), String> {
    let file = directory.try_clone().map(File::from);
    let found = file.and_then(|file| file.metadata());
    let found = found.map_err(|error| format!("cannot read the working directory: {error}"))?;
    Ok((found.dev(), found.ino()))
}

/// Closes our copies of the output, so that only the command keeps it open.
fn let_go_of_output() -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot close the output: {error}");
    let null = File::options().write(true).open("/dev/null").map_err(|error| failed(&error))?;
    dup2_stdout(&null).map_err(|error| failed(&error))?;
    dup2_stderr(&null).map_err(|error| failed(&error))
}

/// Limits the number of processes of this user: in a user namespace, those of the command only.
fn limit_user_processes(plan: &Plan) {
    if plan.processes_max == 0 {
        return;
    }
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NPROC) else { return };
    // Outside a namespace the user's other processes count as well.
    let share = if plan.tier == Tier::Full { 1 } else { 4 };
    let max = u64::from(plan.processes_max).saturating_mul(share).min(soft).min(hard);
    // The super-user is exempt from this limit; the namespace's own limit applies instead.
    setrlimit(Resource::RLIMIT_NPROC, max, max).ok();
}

/// Terminates this process when the thread that started it ends.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Pid) -> Result<bool, String> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("no parent-death signal: {error}"))?;
    // The parent may have died before the call.
    if getppid() == parent { Ok(true) } else { Err("the parent process has ended".to_owned()) }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with(parent: Pid) -> Result<bool, String> {
    if getppid() == parent { Ok(false) } else { Err("the parent process has ended".to_owned()) }
}

/// Restores signals that our parent ignored, as `nohup` or a shell's `&` does.
fn reset_signals() -> Result<(), String> {
    for each in Signal::iterator() {
        if matches!(each, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        #[expect(unsafe_code, reason = "the only way to stop ignoring a signal")]
        // SAFETY: the default action runs no handler of ours.
        let reset = unsafe { signal(each, SigHandler::SigDfl) };
        reset.map_err(|error| format!("cannot reset {each}: {error}"))?;
    }
    Ok(())
}

/// Ignores `SIGXFSZ`, so that a file above the size limit is a write error that can be reported and
/// does not end the process. Commands get the signal's default action back.
pub fn survive_file_limits() {
    #[expect(unsafe_code, reason = "the only way to ignore a signal")]
    // SAFETY: ignoring a signal runs no handler.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    if let Err(error) = ignored {
        tracing::debug!(%error, "cannot ignore SIGXFSZ: a file above the size limit will end this process");
    }
}

/// Closes every descriptor except the standard streams and `report`. Returns their number.
pub(crate) fn close_others(report: RawFd) -> Result<usize, String> {
    let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot list open descriptors: {error}"))?;
    let open: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&descriptor: &RawFd| descriptor > 2 && descriptor != report)
        .collect();
    // The descriptor of the folder itself is in the list and is already closed.
    Ok(open.into_iter().filter(|&descriptor| close(descriptor).is_ok()).count())
}

/// Path that starts our own binary even after it was replaced or removed.
pub(crate) fn own_binary() -> std::io::Result<PathBuf> {
    let link = std::path::Path::new("/proc/self/exe");
    // The child that follows this link shares our memory until then, so it resolves to our binary.
    if cfg!(target_os = "linux") && link.exists() {
        return Ok(link.to_owned());
    }
    std::env::current_exe()
}
