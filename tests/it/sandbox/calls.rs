//! System calls that the kernel must refuse.

use super::{Proof, SandboxCase, Tiers, Twin};

const fn row(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Denied,
        script,
        forbidden: "",
        allowed: "",
        twin: Twin::Unconfined,
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        row("make a ring of calls", "python3 -IS $PROBE io_uring_setup"),
        row("enter a ring of calls", "python3 -IS $PROBE io_uring_enter"),
        row("register a ring of calls", "python3 -IS $PROBE io_uring_register"),
        row("trace a child", "python3 -IS $PROBE ptrace"),
        row("read another's memory", "python3 -IS $PROBE process_vm_readv"),
        row("take another's descriptor", "python3 -IS $PROBE pidfd_getfd"),
        row("compare with another", "python3 -IS $PROBE kcmp"),
        row("a namespace of users", "python3 -IS $PROBE unshare_user"),
        row("a namespace of mounts", "python3 -IS $PROBE unshare_mount"),
        row("a namespace of networks", "python3 -IS $PROBE unshare_net"),
        row("a namespace of processes", "python3 -IS $PROBE unshare_pid"),
        row("a namespace with a child", "python3 -IS $PROBE clone_user"),
        row("a namespace with a child in the new way", "python3 -IS $PROBE clone3_user"),
        row("two namespaces in the new way", "python3 -IS $PROBE clone3_mount"),
        row("enter a namespace", "python3 -IS $PROBE setns"),
        row("mount", "python3 -IS $PROBE mount"),
        row("unmount", "python3 -IS $PROBE umount"),
        row("turn the root around", "python3 -IS $PROBE pivot_root"),
        row("another root", "python3 -IS $PROBE chroot"),
        row("a tree of mounts", "python3 -IS $PROBE open_tree"),
        row("move a mount", "python3 -IS $PROBE move_mount"),
        row("open a file system", "python3 -IS $PROBE fsopen"),
        row("mount a file system", "python3 -IS $PROBE fsmount"),
        row("change a mount", "python3 -IS $PROBE mount_setattr"),
        row("load a program into the kernel", "python3 -IS $PROBE bpf"),
        row("count events of the kernel", "python3 -IS $PROBE perf_event_open"),
        row(
            "hold up those who open a file",
            "echo text > leased; python3 -IS -c 'import fcntl; fcntl.fcntl(open(\"leased\"), 1024, 0); \
             print(\"DONE\")'",
        ),
        row("handle faults", "python3 -IS $PROBE userfaultfd"),
        row("manage keys", "python3 -IS $PROBE keyctl"),
        row("add a key", "python3 -IS $PROBE add_key"),
        row("ask for a key", "python3 -IS $PROBE request_key"),
        row("load a module", "python3 -IS $PROBE init_module"),
        row("load a module from a file", "python3 -IS $PROBE finit_module"),
        row("remove a module", "python3 -IS $PROBE delete_module"),
        row("load a kernel", "python3 -IS $PROBE kexec_load"),
        row("restart the machine", "python3 -IS $PROBE reboot"),
        row("swap to a file", "python3 -IS $PROBE swapon"),
        row("keep accounts", "python3 -IS $PROBE acct"),
        row("read the kernel's messages", "python3 -IS $PROBE syslog"),
        row("open by a handle", "python3 -IS $PROBE open_by_handle_at"),
        row("watch file systems", "python3 -IS $PROBE fanotify_init"),
        row("set the time", "python3 -IS $PROBE settimeofday"),
        row("set a clock", "python3 -IS $PROBE clock_settime"),
        row("name the host", "python3 -IS $PROBE sethostname"),
        row("name its domain", "python3 -IS $PROBE setdomainname"),
        row("type into a terminal", "python3 -IS $PROBE tiocsti"),
        row("gain privileges", "python3 -IS $PROBE no_new_privileges"),
        SandboxCase {
            forbidden: "C=x32",
            allowed: "C=not_x32",
            ..row("calls of another kind", "python3 -IS $PROBE $C")
        }
        .with_twin(Twin::Inside, "C=not_x32"),
        row("signal the parent", "kill -0 $P && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "sleep 5 & P=$!"),
        row("stop the parent", "kill -CONT $P && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "sleep 5 & P=$!"),
        row("the parent's environment", "cat /proc/$P/environ > /dev/null && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "P=self"),
        row("the parent's memory", "head -c 0 /proc/$P/mem && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "P=self"),
        row("the parent's descriptors", "readlink /proc/$P/fd/0 > /dev/null && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "P=self"),
        row("the parent's root", "ls /proc/$P/root/ > /dev/null && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "P=self"),
        row("the parent's command line", "grep -qa . /proc/$P/cmdline && echo DONE")
            .with_forbidden("P=$PARENT")
            .with_twin(Twin::Inside, "P=self")
            .with_tiers(Tiers::Full),
        row("a variable that was not passed on", "env | grep -q ^$N= && echo DONE")
            .with_forbidden("N=CARGO_MANIFEST_DIR")
            .with_twin(Twin::Inside, "N=PATH"),
        row("any variable with a key", "env | grep -Eq \"^[A-Z_]*($N)=\" && echo DONE")
            .with_forbidden("N='API_KEY|TOKEN|SECRET'")
            .with_twin(Twin::Inside, "N='KEY|HOME'"),
        row("a terminal", "(: < $D) && echo DONE")
            .with_forbidden("D=/dev/tty")
            .with_twin(Twin::Inside, "D=/dev/null"),
        row("a disk", "for d in $D; do head -c 1 $d > /dev/null && echo DONE; done")
            .with_forbidden("D='/dev/mem /dev/kmsg /dev/port'")
            .with_twin(Twin::Inside, "D=/dev/zero"),
        row("a descriptor that was open", "[ $(ls /proc/self/fd | wc -l) -gt $N ] && echo DONE")
            .with_forbidden("N=4")
            .with_twin(Twin::Inside, "N=4; exec 8< /dev/null 9< /dev/null"),
    ]
}
