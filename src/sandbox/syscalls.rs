//! Numbers of the system calls of `sandbox-profiles/seccomp.toml` by name, for this architecture.

use nix::libc;

/// Returns the number of the system call `name`. `None` if this architecture does not have it, or
/// the tables below lack it.
pub(crate) fn number(name: &str) -> Option<i64> {
    KNOWN.iter().chain(NEW).chain(OLD).find(|(known, _)| *known == name).map(|&(_, number)| number)
}

macro_rules! calls {
    ($($name:ident = $number:ident),* $(,)?) => { &[$((stringify!($name), libc::$number)),*] };
}

/// Listed calls that all supported architectures have.
const KNOWN: &[(&str, i64)] = calls![
    fcntl = SYS_fcntl,
    unshare = SYS_unshare,
    clone = SYS_clone,
    clone3 = SYS_clone3,
    setns = SYS_setns,
    mount = SYS_mount,
    umount2 = SYS_umount2,
    pivot_root = SYS_pivot_root,
    chroot = SYS_chroot,
    move_mount = SYS_move_mount,
    open_tree = SYS_open_tree,
    fsopen = SYS_fsopen,
    fsconfig = SYS_fsconfig,
    fsmount = SYS_fsmount,
    fspick = SYS_fspick,
    mount_setattr = SYS_mount_setattr,
    swapon = SYS_swapon,
    swapoff = SYS_swapoff,
    quotactl = SYS_quotactl,
    quotactl_fd = SYS_quotactl_fd,
    open_by_handle_at = SYS_open_by_handle_at,
    name_to_handle_at = SYS_name_to_handle_at,
    ptrace = SYS_ptrace,
    process_vm_readv = SYS_process_vm_readv,
    process_vm_writev = SYS_process_vm_writev,
    process_madvise = SYS_process_madvise,
    pidfd_getfd = SYS_pidfd_getfd,
    kcmp = SYS_kcmp,
    io_uring_setup = SYS_io_uring_setup,
    io_uring_enter = SYS_io_uring_enter,
    io_uring_register = SYS_io_uring_register,
    bpf = SYS_bpf,
    perf_event_open = SYS_perf_event_open,
    userfaultfd = SYS_userfaultfd,
    lookup_dcookie = SYS_lookup_dcookie,
    add_key = SYS_add_key,
    request_key = SYS_request_key,
    keyctl = SYS_keyctl,
    init_module = SYS_init_module,
    finit_module = SYS_finit_module,
    delete_module = SYS_delete_module,
    kexec_load = SYS_kexec_load,
    kexec_file_load = SYS_kexec_file_load,
    reboot = SYS_reboot,
    acct = SYS_acct,
    syslog = SYS_syslog,
    settimeofday = SYS_settimeofday,
    clock_settime = SYS_clock_settime,
    clock_adjtime = SYS_clock_adjtime,
    adjtimex = SYS_adjtimex,
    sethostname = SYS_sethostname,
    setdomainname = SYS_setdomainname,
    vhangup = SYS_vhangup,
    nfsservctl = SYS_nfsservctl,
    fanotify_init = SYS_fanotify_init,
    move_pages = SYS_move_pages,
    migrate_pages = SYS_migrate_pages,
    mbind = SYS_mbind,
    set_mempolicy = SYS_set_mempolicy,
    ioctl = SYS_ioctl,
    fchmod = SYS_fchmod,
    fchmodat = SYS_fchmodat,
    fchmodat2 = SYS_fchmodat2,
    socket = SYS_socket,
    socketpair = SYS_socketpair,
    prlimit64 = SYS_prlimit64,
    setpriority = SYS_setpriority,
    ioprio_set = SYS_ioprio_set,
    sched_setaffinity = SYS_sched_setaffinity,
    sched_setattr = SYS_sched_setattr,
    sched_setparam = SYS_sched_setparam,
    sched_setscheduler = SYS_sched_setscheduler,
    shmget = SYS_shmget,
    shmat = SYS_shmat,
    shmctl = SYS_shmctl,
    msgget = SYS_msgget,
    msgsnd = SYS_msgsnd,
    msgrcv = SYS_msgrcv,
    msgctl = SYS_msgctl,
    semget = SYS_semget,
    semop = SYS_semop,
    semtimedop = SYS_semtimedop,
    semctl = SYS_semctl,
    mq_open = SYS_mq_open,
    mq_unlink = SYS_mq_unlink,
    openat = SYS_openat,
    openat2 = SYS_openat2,
    mknodat = SYS_mknodat,
];

/// Listed calls that the C library does not name yet. All architectures number them alike.
const NEW: &[(&str, i64)] = &[("open_tree_attr", 467)];

/// Listed calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD: &[(&str, i64)] = calls![
    chmod = SYS_chmod,
    creat = SYS_creat,
    mknod = SYS_mknod,
    open = SYS_open,
    iopl = SYS_iopl,
    ioperm = SYS_ioperm,
    modify_ldt = SYS_modify_ldt,
    uselib = SYS_uselib,
    ustat = SYS_ustat,
    sysfs = SYS_sysfs,
    _sysctl = SYS__sysctl,
];

/// Listed calls that only other architectures have: none.
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(&str, i64)] = calls![];
