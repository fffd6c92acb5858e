//! Process tree of a command: finds and kills all its processes.
//!
//! posse is the subreaper of orphaned processes, so processes that leave their group or session are
//! found among posse's own children. Other children, such as a daemon that the user's editor
//! started, are left alone. Without a sandbox, one that appears while a command runs and has a
//! session of its own is taken for a process of that command.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::watchdog;

/// Environment variable with the mark that all processes of one command share.
const MARK: &str = "POSSE_CALL";

/// Maximum time for killing the remaining processes of a tree.
const CHASE_MAX: Duration = Duration::from_secs(2);

/// Maximum number of further reads of a process's children while the list keeps changing.
const READS_MAX: usize = 8;

/// Helpers that posse started for commands, which may have become the commands, by process id. They
/// are not orphans.
static STARTED: Mutex<BTreeMap<i32, StartTime>> = Mutex::new(BTreeMap::new());

/// Mark of a helper that posse started, and a flag for idle ones.
#[derive(Debug)]
struct StartTime {
    mark: String,
    /// True if the process is a helper that waits for its request, so that no orphan can come from
    /// it.
    is_idle: bool,
}

/// Children of posse that existed when no command ran and had no mark of one, by process id and start
/// time: they belong to no command. Changed only while [`STARTED`] is locked.
static UNRELATED: Mutex<BTreeSet<(i32, u64)>> = Mutex::new(BTreeSet::new());

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Mechanism that keeps the processes of a command together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enclosure {
    /// A PID namespace: no process can leave the tree or survive the leader.
    PidNamespace,
    /// Nothing, but all processes have the attribute "no new privileges", which none can remove.
    NoNewPrivileges,
    Nothing,
}

fn unrelated() -> MutexGuard<'static, BTreeSet<(i32, u64)>> {
    UNRELATED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn started() -> MutexGuard<'static, BTreeMap<i32, StartTime>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard of a process that posse started and that belongs to no command. While it exists, searches
/// for orphans do not take the process for one.
#[derive(Debug)]
pub(crate) struct NoOrphan(i32);

impl NoOrphan {
    /// Starts such a process. `spawn` starts it and returns a value of the caller and the process
    /// id.
    pub(crate) fn start<T>(
        spawn: impl FnOnce() -> Result<(T, i32), String>,
    ) -> Result<(T, NoOrphan), String> {
        // Searches for orphans wait for the process id.
        let mut started = started();
        let (child, pid) = spawn()?;
        started.insert(pid, StartTime { mark: String::new(), is_idle: true });
        Ok((child, NoOrphan(pid)))
    }
}

impl Drop for NoOrphan {
    fn drop(&mut self) {
        started().remove(&self.0);
    }
}

/// Common prefix of the marks (see [`Mark`]) of one sandbox, unique on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family(String);

impl Family {
    pub(crate) fn new() -> Family {
        // Random, because process ids are reused.
        let chance = RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed));
        Family(format!("{}.{chance:016x}", std::process::id()))
    }

    /// Parses the text of a family. `None` if it is malformed.
    pub(crate) fn parse(name: &str) -> Option<Family> {
        let (process, chance) = name.split_once('.')?;
        let is_one = process.parse::<i32>().is_ok()
            && chance.len() == 16
            && chance.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| Family(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the mark belongs to this family.
    pub(crate) fn has(&self, mark: &str) -> bool {
        mark.strip_prefix(&self.0).is_some_and(|call| call.starts_with('.'))
    }

    /// True if no command or helper that posse started for this family is left (see [`STARTED`]).
    pub(crate) fn is_gone(&self) -> bool {
        !started().values().any(|started| self.has(&started.mark))
    }
}

/// Mark in the environment of all processes of one command.
#[derive(Debug, Clone)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new(family: &Family) -> Mark {
        static READY: Once = Once::new();
        READY.call_once(|| {
            become_subreaper();
            prevent_inspection();
        });
        Mark(format!("{}.{}", family.0, CALLS.fetch_add(1, Ordering::Relaxed)))
    }

    /// Environment variable with the mark: name and value.
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        (MARK.into(), self.0.clone().into())
    }
}

/// Process tree of one command. Dropping it kills the tree, unless it was cleared or dismissed.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    leader: Pid,
    mark: Mark,
    /// Processes of the tree seen so far that may still exist: process id and start time.
    seen: BTreeSet<(i32, u64)>,
    enclosure: Enclosure,
    is_gone: bool,
}

impl ProcessTree {
    /// Starts the leader of a new tree. `spawn` starts the process and returns a value of the
    /// caller and the process id. The leader counts as idle until [`ProcessTree::wake`].
    pub(crate) fn start<T>(
        mark: Mark,
        enclosure: Enclosure,
        spawn: impl FnOnce() -> io::Result<(T, i32)>,
    ) -> io::Result<(T, ProcessTree)> {
        // Searches for orphans wait, so that they do not take this child for one.
        let mut started = started();
        let (child, leader) = spawn()?;
        started.insert(leader, StartTime { mark: mark.0.clone(), is_idle: true });
        drop(started);
        let leader = Pid::from_raw(leader);
        Ok((child, ProcessTree { leader, mark, seen: BTreeSet::new(), enclosure, is_gone: false }))
    }

    /// Records that the leader is no longer idle, because it receives its request. Call it before that:
    /// the children that exist now belong to no command, unless an earlier one has missed them.
    pub(crate) fn wake(&self) {
        let mut started = started();
        let is_first = started.values().all(|started| started.is_idle);
        if is_first && self.enclosure != Enclosure::PidNamespace {
            let me = std::process::id().cast_signed();
            let prefix = format!("{me}.");
            let is_marked = |pid: &i32| mark_of(*pid).is_some_and(|mark| mark.starts_with(&prefix));
            let may_be_confined = |pid: &i32| {
                self.enclosure == Enclosure::NoNewPrivileges && has_no_new_privileges(*pid)
            };
            let present = children(me).into_iter();
            let present = present.filter(|pid| !is_marked(pid) && !may_be_confined(pid));
            *unrelated() = present.filter_map(|pid| Some((pid, start_time(pid)?))).collect();
        }
        if let Some(started) = started.get_mut(&self.leader.as_raw()) {
            started.is_idle = false;
        }
    }

    /// Kills a leader that never received a request, and only it: an idle leader has no command.
    pub(crate) fn dismiss(mut self) {
        self.is_gone = true;
        let _ = kill(self.leader, Signal::SIGKILL);
        started().remove(&self.leader.as_raw());
    }

    /// Sends SIGTERM to the leader's process group, and SIGCONT so that stopped processes receive
    /// it.
    pub(crate) fn terminate(&self) {
        // The group may be gone or not exist yet; the following kill does not depend on it.
        let _ = killpg(self.leader, Signal::SIGTERM);
        let _ = killpg(self.leader, Signal::SIGCONT);
    }

    /// Records the current members of the tree, and reaps orphans that have ended.
    pub(crate) fn update(&mut self) {
        let orphans = self.orphans();
        self.remember(&orphans);
        reap(&orphans);
    }

    /// The leader and its descendants, without processes that have left the tree.
    pub(crate) fn descendants(&self) -> Vec<i32> {
        let mut found = vec![self.leader.as_raw()];
        let mut at = 0;
        while let Some(&pid) = found.get(at) {
            found.extend(children_once(pid));
            at += 1;
        }
        found
    }

    /// Sends SIGKILL to all known processes of the tree; to the leader and its process group only
    /// if `with_leader`.
    pub(crate) fn kill_once(&mut self, with_leader: bool) {
        if with_leader {
            // Also in a PID namespace: what the leader leaves is to be reaped.
            let descendants = self.descendants().into_iter();
            self.seen.extend(descendants.filter_map(|pid| Some((pid, start_time(pid)?))));
        }
        let orphans = self.orphans();
        let mut members = self.remember(&orphans);
        members.retain(|pid| *pid != self.leader.as_raw());
        if with_leader {
            // Before the process has created its group, only the process itself exists.
            let _ = kill(self.leader, Signal::SIGKILL);
            let _ = killpg(self.leader, Signal::SIGKILL);
        }
        for pid in members {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        reap(&orphans);
    }

    /// Kills remaining processes until none is left or [`CHASE_MAX`] is over. Returns the number of
    /// processes that still ran, without watchdogs. Call it after the leader was reaped.
    pub(crate) async fn clear(&mut self) -> usize {
        let mut killed = BTreeSet::new();
        let begin = Instant::now();
        if cfg!(not(target_os = "linux")) {
            let _ = killpg(self.leader, Signal::SIGKILL);
        }
        loop {
            let before = self.members();
            if before.is_empty() {
                break;
            }
            // The watchdog of a nested posse ends with that process, a moment later.
            let left_behind = |&pid: &i32| is_living(pid) && !watchdog::is_watcher(pid);
            killed.extend(before.into_iter().filter(left_behind));
            self.kill_once(false);
            if begin.elapsed() > CHASE_MAX {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        started().remove(&self.leader.as_raw());
        self.is_gone = true;
        killed.len()
    }

    /// Finds and records the processes of the tree. Returns all except the leader, including
    /// zombies.
    fn members(&mut self) -> Vec<i32> {
        let orphans = self.orphans();
        let mut members = self.remember(&orphans);
        members.retain(|pid| *pid != self.leader.as_raw());
        members
    }

    /// Finds and records the processes of the tree: `orphans`, the leader unless the tree is
    /// enclosed, processes recorded earlier that still exist, and all descendants of these. Returns
    /// their process ids.
    fn remember(&mut self, orphans: &[i32]) -> Vec<i32> {
        let mut todo: Vec<i32> = orphans.to_vec();
        let can_leave = self.enclosure != Enclosure::PidNamespace;
        if can_leave && !self.is_gone && started().contains_key(&self.leader.as_raw()) {
            todo.push(self.leader.as_raw());
        }
        self.seen.retain(|&(pid, start)| start_time(pid) == Some(start));
        todo.extend(self.seen.iter().map(|&(pid, _)| pid));
        let mut members = BTreeSet::new();
        while let Some(pid) = todo.pop() {
            if members.insert(pid) {
                todo.extend(children(pid));
            }
        }
        self.seen.extend(members.iter().filter_map(|&pid| Some((pid, start_time(pid)?))));
        members.into_iter().collect()
    }

    /// Children of posse that belonged to this command: those of the leader's session, and those
    /// recorded in this tree. Without a PID namespace also those with its mark or the mark of a
    /// command that is over, and, while no other command runs, those without a mark of this posse
    /// that can come from a command. Also those of the kinds that have ended, to reap them.
    fn orphans(&self) -> Vec<i32> {
        let me = std::process::id().cast_signed();
        let Some(ours) = Stat::of(me) else { return Vec::new() };
        let started = started();
        let alone = started.values().all(|started| started.is_idle || started.mark == self.mark.0);
        let prefix = format!("{me}.");
        let is_orphan = |pid: i32| {
            let Some(stat) = Stat::of(pid) else { return false };
            // Commands have sessions of their own, and a process cannot enter an older session.
            if started.contains_key(&pid) || stat.session == ours.session {
                return false;
            }
            let known = (pid, stat.start);
            if stat.session == self.leader.as_raw() || self.seen.contains(&known) {
                return true;
            }
            if self.enclosure == Enclosure::PidNamespace || unrelated().contains(&known) {
                return false;
            }
            if !stat.is_living() {
                return true;
            }
            match mark_of(pid) {
                // Belongs to this call, or was missed by one that has ended.
                Some(mark) if mark.starts_with(&prefix) => {
                    mark == self.mark.0 || !started.values().any(|active| active.mark == mark)
                }
                // It has cleared its environment, or belongs to a nested posse, or is a daemon
                // that another program of the user started, such as an editor.
                _ => {
                    let is_free = self.enclosure == Enclosure::Nothing;
                    alone && (is_free || has_no_new_privileges(pid))
                }
            }
        };
        children(me).into_iter().filter(|&pid| is_orphan(pid)).collect()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        // Two rounds: children of killed parents become ours.
        self.kill_once(true);
        self.kill_once(true);
        let mut rest = ProcessTree {
            leader: self.leader,
            mark: self.mark.clone(),
            seen: std::mem::take(&mut self.seen),
            enclosure: self.enclosure,
            is_gone: true,
        };
        // Processes forked at that moment are killed in the background.
        let chase = move || {
            let begin = Instant::now();
            while !rest.is_extinct() && begin.elapsed() < CHASE_MAX {
                rest.kill_once(true);
                std::thread::sleep(Duration::from_millis(1));
            }
            started().remove(&rest.leader.as_raw());
            reap(&[rest.leader.as_raw()]);
        };
        if std::thread::Builder::new().name("posse-reaper".into()).spawn(chase).is_err() {
            started().remove(&self.leader.as_raw());
        }
    }
}

impl ProcessTree {
    /// True if the leader does not run and no other process of the tree exists, not even as a
    /// zombie.
    fn is_extinct(&mut self) -> bool {
        !is_living(self.leader.as_raw()) && self.members().is_empty()
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() {
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!(%error, "orphans of commands cannot be followed");
    }
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() {}

/// Prevents commands from reading the memory and the initial environment of posse: both may hold
/// keys.
#[cfg(target_os = "linux")]
fn prevent_inspection() {
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "commands can read our environment");
    }
}

#[cfg(not(target_os = "linux"))]
fn prevent_inspection() {}

/// Reaps those of `processes` that have ended. Does not wait.
fn reap(processes: &[i32]) {
    for &pid in processes {
        // A process that lives or was reaped elsewhere is ignored.
        let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// True if the process exists and has not ended.
fn is_living(pid: i32) -> bool {
    match Stat::of(pid) {
        Some(stat) => stat.is_living(),
        None if cfg!(target_os = "linux") => false,
        None => kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH),
    }
}

fn start_time(pid: i32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.start)
}

/// True if the process has the attribute "no new privileges", also if that cannot be read.
fn has_no_new_privileges(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.lines().any(|line| line.starts_with("NoNewPrivs:") && line.ends_with("\t0"))
}

/// State letter, Unix session id and start time of a process, from `/proc/PID/stat`. `start` is in
/// clock ticks since boot.
struct Stat {
    state: u8,
    session: i32,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain any character, including parentheses.
        let after = line.iter().rposition(|&byte| byte == b')')? + 2;
        let rest = std::str::from_utf8(line.get(after..)?).ok()?;
        let mut fields = rest.split(' ');
        let state = *fields.next()?.as_bytes().first()?;
        let session = fields.nth(2)?.parse().ok()?;
        let start = fields.nth(15)?.trim().parse().ok()?;
        Some(Stat { state, session, start })
    }

    fn is_living(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// Returns the child processes of all threads of a process.
///
/// The kernel may omit some children while others end, so the list is read until it is stable.
fn children(pid: i32) -> BTreeSet<i32> {
    let mut last = children_once(pid);
    let mut all = last.clone();
    for _ in 0..READS_MAX {
        let next = children_once(pid);
        all.extend(&next);
        if next == last {
            break;
        }
        last = next;
    }
    all
}

fn children_once(pid: i32) -> BTreeSet<i32> {
    let mut children = BTreeSet::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return children };
    for thread in threads.flatten() {
        if let Ok(list) = std::fs::read_to_string(thread.path().join("children")) {
            children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    children
}

/// Returns the mark in the initial environment of a process. `None` if it has none or cannot be
/// read.
pub(crate) fn mark_of(pid: i32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}
