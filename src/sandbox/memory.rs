//! Memory limit of a command: how much memory its processes may use together, and how much they do.
//!
//! A limit of one process (`RLIMIT_AS`, `RLIMIT_DATA`) would refuse programs that reserve addresses
//! without using them, such as runtimes of JavaScript and address sanitizers, and most users may
//! not create cgroups. So the use is measured once a second. For faster growth, the helper raises
//! `oom_score_adj`: the kernel ends the command before posse.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Share of the memory that one command may use: three quarters.
const SHARE: (u64, u64) = (3, 4);

/// Default limit of the memory of one command in bytes: three quarters of the memory of the machine
/// or of the limit of this process's cgroup, if that is lower. `None` if the memory of the machine
/// cannot be read.
pub(crate) fn default_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let total = machine_memory()?.min(cgroup_limit().unwrap_or(u64::MAX));
        Some(total / SHARE.1 * SHARE.0)
    })
}

/// Total memory of the machine in bytes, from `/proc/meminfo`.
fn machine_memory() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// True if `processes`, listed on demand, use more than `limit` bytes of memory and swap together.
/// Pages that several of them share count once, if the kernel tells the shares. Always false while
/// the whole machine uses no more than `limit`.
pub(crate) fn is_exceeded(limit: u64, processes: impl FnOnce() -> Vec<i32>) -> bool {
    // The cheap tests come first: one file, then one small file per process. The last one walks the
    // page tables of each process.
    if machine_use().is_some_and(|used| used <= limit) {
        return false;
    }
    let processes = processes();
    let sum = |used: fn(i32) -> u64| processes.iter().map(|&pid| used(pid)).sum::<u64>();
    sum(resident) > limit && sum(proportional) > limit
}

/// Bytes of memory and swap in use on the machine, without caches that the kernel can give up.
/// `None` if they cannot be read.
fn machine_use() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name| kibibytes(&text, name);
    let memory = field("MemTotal:")?.saturating_sub(field("MemAvailable:")?);
    let swap = field("SwapTotal:")?.saturating_sub(field("SwapFree:")?);
    Some(memory + swap)
}

/// Bytes of memory and swap of a process; 0 if they cannot be read. Shared pages count in each
/// process that uses them.
fn resident(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| kibibytes(&text, name).unwrap_or(0);
    field("VmRSS:") + field("VmSwap:")
}

/// Bytes of memory and swap of a process, with its share of shared pages. Equal to [`resident`] if
/// the share cannot be read.
fn proportional(pid: i32) -> u64 {
    let read = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let share = |text: String| Some(kibibytes(&text, "Pss:")? + kibibytes(&text, "SwapPss:")?);
    read.ok().and_then(share).unwrap_or_else(|| resident(pid))
}

/// Value of the line that begins with `name`, given in KiB, as bytes. `None` if there is no such
/// line, or its value is not a number followed by `kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Lowest memory limit in bytes of the cgroup of this process, as a container has one, and of all
/// above it. `None` if none can be read. A number close to 2^63 means that there is no limit.
fn cgroup_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = limit_files(&groups).into_iter().filter_map(|file| {
        // Version 2 writes `max` if there is no limit, version 1 a number close to 2^63.
        fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    limits.min()
}

/// Files with the memory limits that apply to a process, from its `/proc/PID/cgroup`: those of its
/// cgroup and of all above it.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let relative = path.trim_start_matches('/');
        // A process outside the mounted part of the hierarchy has `..` in its path.
        let is_inside =
            Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)));
        let start = if is_inside { Path::new(root).join(relative) } else { root.into() };
        let folders = start.ancestors().take_while(|folder| folder.starts_with(root));
        files.extend(folders.map(|folder| folder.join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_limits_of_all_cgroups_above() {
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups).iter().map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            files("0::/user.slice/app.scope\n"),
            [
                "/sys/fs/cgroup/user.slice/app.scope/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("9:name=systemd:/\n4:memory,cpu:/a:b\n3:cpuset:/x\n"),
            [
                "/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert_eq!(files("0::/../other\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(files("broken\n::\n").len(), 1);
        assert!(files("").is_empty());
    }

    #[test]
    fn reads_sizes_in_kib() {
        let text = "Pss_Dirty:  7 kB\nPss:    478 kB\nSwapPss:  0 kB\nOdd: 4\nHuge: 18446744073709551615 kB\n";
        assert_eq!(kibibytes(text, "Pss:"), Some(478 << 10));
        assert_eq!(kibibytes(text, "SwapPss:"), Some(0));
        for name in ["Odd:", "Huge:", "Missing:"] {
            assert_eq!(kibibytes(text, name), None, "{name}");
        }
    }

    #[test]
    fn measures_this_process() {
        let me = std::process::id().cast_signed();
        let block = vec![1_u8; 32 << 20];
        for used in [resident, proportional] {
            assert!(used(me) >= 32 << 20);
            assert_eq!(used(0), 0);
        }
        assert_eq!(block.iter().map(|&byte| usize::from(byte)).sum::<usize>(), block.len());
        let limit = default_limit().unwrap();
        assert!(limit < machine_memory().unwrap());
        assert!(machine_use().unwrap() > proportional(me));
        assert!(is_exceeded(32 << 20, || vec![me]) && !is_exceeded(32 << 20, Vec::new));
        assert!(!is_exceeded(u64::MAX, || panic!("the machine does not use so much")));
    }
}
