"""Tries one thing that a confined command must not be able to do.

It prints DONE if the system let it, and nothing else. What the kernel of the machine does not know
counts as let: only a refusal for want of permission is the sandbox's.
"""

import ctypes
import errno
import os
import platform
import signal
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
NR = {
    # name: (x86_64, aarch64)
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "clone3": (435, 435), "clone": (56, 220),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "syslog": (103, 116), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "quotactl": (179, 60), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, -1), "ioperm": (173, -1), "getpid": (39, 172), "nfsservctl": (180, 42),
    "vhangup": (153, 58), "lookup_dcookie": (212, 18), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "adjtimex": (159, 171),
}


def call(name, *arguments):
    number = NR[name][0 if X86 else 1]
    if number < 0:
        return -1, errno.ENOSYS
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return result, ctypes.get_errno() if result < 0 else 0


def done(result):
    value, error = result
    if value >= 0 or error not in (errno.EPERM, errno.EACCES):
        print("DONE")


def filtered(result):
    """For calls that must not exist: the sandbox says so, and the bare kernel knows them."""
    value, error = result
    if value >= 0 or error not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        print("DONE")


def child():
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def with_child(act):
    pid = child()
    try:
        act(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def made(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        print("DONE")
    except PermissionError:
        pass
    except OSError:
        print("DONE")


def connected(family, kind, address, text=b"hello"):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(3)
            s.connect(address)
            s.sendall(text)
            print("DONE")
    except OSError:
        pass


def datagram(family, address, first=None):
    try:
        s = first or socket.socket(family, socket.SOCK_DGRAM)
        s.sendto(b"hello", address)
        print("DONE")
    except OSError:
        pass


def tiocsti():
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            fcntl.ioctl(slave, termios.TIOCSTI, b"x")
            os._exit(0)
        except PermissionError:
            os._exit(1)
        except OSError as error:
            # A kernel may be built without it.
            os._exit(0 if error.errno == errno.EIO else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        print("DONE")


def namespace(flag):
    """A child, so that nothing of it stays."""
    pid = os.fork()
    if pid == 0:
        result, error = call("unshare", flag)
        os._exit(0 if result == 0 or error not in (errno.EPERM, errno.EACCES) else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        print("DONE")


def clone3(flags):
    arguments = struct.pack("<8Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    buffer = ctypes.create_string_buffer(arguments)
    pid, error = call("clone3", buffer, 64)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    filtered((pid, error))


def clone_namespace():
    pid, error = call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    done((pid, error))


def peer(pid):
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("<QQ", ctypes.addressof(buffer), 8)
    local = ctypes.create_string_buffer(local)
    done(call("process_vm_readv", pid, local, 1, local, 1, 0))


def stolen(pid):
    descriptor, error = call("pidfd_open", pid, 0)
    if descriptor < 0:
        return done((descriptor, error))
    done(call("pidfd_getfd", descriptor, 0, 0))


def x32(bit):
    number = bit + NR["getpid"][0]
    result = libc.syscall(ctypes.c_long(number))
    filtered_x32 = (result, ctypes.get_errno() if result < 0 else 0)
    # A kernel without x32 says ENOSYS, and so may a filter: neither has run anything.
    if filtered_x32[0] >= 0:
        print("DONE")


def no_new_privileges():
    if libc.prctl(39, 0, 0, 0, 0) == 0:
        print("DONE")


def memfd(target):
    """Code from memory must be as confined as any other."""
    descriptor = os.memfd_create("x", 0)
    with open("/bin/sh", "rb") as shell:
        os.write(descriptor, shell.read())
    pid = os.fork()
    if pid == 0:
        os.execve(f"/proc/self/fd/{descriptor}", ["sh", "-c", 'echo x > "$0" && echo DONE', target],
                  os.environ)
    os.waitpid(pid, 0)


def descriptors():
    """Nothing but the standard streams may be open."""
    extra = [d for d in os.listdir("/proc/self/fd") if int(d) > 2]
    # The listing itself has one.
    for d in extra:
        try:
            if not os.readlink(f"/proc/self/fd/{d}").endswith("/fd"):
                print("DONE")
        except OSError:
            pass


def swap(path, times):
    """Exchanges a name with a link to what is outside, again and again, and writes through it.

    At the end once more while the link stands still: on a busy machine no write may meet it before,
    and what is allowed to reach the outside has to get there.
    """
    import threading

    outside = os.environ["OUT"]
    os.makedirs(path, exist_ok=True)
    stop = []

    def flip():
        while not stop:
            try:
                os.rename(path, path + ".kept")
                os.symlink(outside, path)
                os.unlink(path)
                os.rename(path + ".kept", path)
            except OSError:
                pass

    thread = threading.Thread(target=flip)
    thread.start()
    for _ in range(times):
        try:
            with open(path + "/planted", "w") as file:
                file.write("evil")
        except OSError:
            pass
    stop.append(True)
    thread.join()
    os.rename(path, path + ".kept")
    os.symlink(outside, path)
    try:
        with open(path + "/planted", "w") as file:
            file.write("evil")
    except OSError:
        pass
    if os.path.exists(outside + "/planted"):
        print("DONE")


def exchange(one, other):
    result = libc.renameat2(-100, one.encode(), -100, other.encode(), 2)
    if result == 0:
        print("DONE")


def temporary(folder):
    """A file without a name that gets one."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
        os.write(descriptor, b"evil")
        source = f"/proc/self/fd/{descriptor}".encode()
        if libc.linkat(-100, source, -100, (folder + "/named").encode(), 0x400) == 0:
            print("DONE")
    except OSError:
        pass


def mapped(path):
    import mmap

    try:
        descriptor = os.open(path, os.O_RDWR)
        with mmap.mmap(descriptor, 4) as memory:
            memory[:4] = b"evil"
        print("DONE")
    except OSError:
        pass


def opened(path, flags):
    try:
        os.close(os.open(path, flags))
        print("DONE")
    except OSError:
        pass


def attribute(path):
    try:
        os.setxattr(path, "user.posse", b"evil")
        print("DONE")
    except PermissionError:
        pass
    except OSError as error:
        # A read-only mount says so, and a file of the host below a private /tmp is not there.
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOENT):
            print("DONE")


def beneath(folder):
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.close(os.open("by-descriptor", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory))
        print("DONE")
    except OSError:
        pass


def device(path):
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        print("DONE")
    except OSError:
        pass


def bound(path):
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.bind(path)
        print("DONE")
    except OSError:
        pass


def main():
    name, *rest = sys.argv[1:]
    null = ctypes.c_char_p(None)
    text = ctypes.c_char_p(b"posse")
    nothing = ctypes.create_string_buffer(256)
    simple = {
        "setns": lambda: done(call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)),
        "mount": lambda: done(call("mount", text, ctypes.c_char_p(b"/nowhere"), text, 0, 0)),
        "umount": lambda: done(call("umount2", ctypes.c_char_p(b"/nowhere"), 0)),
        "pivot_root": lambda: done(call("pivot_root", ctypes.c_char_p(b"/nowhere"),
                                        ctypes.c_char_p(b"/nowhere"))),
        "chroot": lambda: done(call("chroot", ctypes.c_char_p(b"/nowhere"))),
        "open_tree": lambda: done(call("open_tree", -100, ctypes.c_char_p(b"/"), 1)),
        "move_mount": lambda: done(call("move_mount", -1, text, -1, text, 0)),
        "fsopen": lambda: done(call("fsopen", ctypes.c_char_p(b"tmpfs"), 0)),
        "fsmount": lambda: done(call("fsmount", -1, 0, 0)),
        "mount_setattr": lambda: done(call("mount_setattr", -1, text, 0, nothing, 32)),
        "bpf": lambda: filtered(call("bpf", 5, nothing, 48)),
        "perf_event_open": lambda: done(call("perf_event_open", nothing, 0, -1, -1, 0)),
        "userfaultfd": lambda: filtered(call("userfaultfd", 1)),
        "keyctl": lambda: done(call("keyctl", 0, -3, 0)),
        "add_key": lambda: done(call("add_key", ctypes.c_char_p(b"user"), text, text, 5, -2)),
        "request_key": lambda: done(call("request_key", ctypes.c_char_p(b"user"), text, null, -2)),
        "kcmp": lambda: done(call("kcmp", os.getpid(), os.getpid(), 0, 0, 1)),
        "io_uring_setup": lambda: filtered(call("io_uring_setup", 0, nothing)),
        "io_uring_enter": lambda: filtered(call("io_uring_enter", -1, 0, 0, 0, 0, 0)),
        "io_uring_register": lambda: filtered(call("io_uring_register", -1, 0, 0, 0)),
        "init_module": lambda: done(call("init_module", nothing, 0, text)),
        "finit_module": lambda: done(call("finit_module", -1, text, 0)),
        "delete_module": lambda: done(call("delete_module", ctypes.c_char_p(b"none-such"), 0)),
        "kexec_load": lambda: done(call("kexec_load", 0, 99, 0, 0)),
        "reboot": lambda: done(call("reboot", 1, 2, 3, 0)),
        "swapon": lambda: done(call("swapon", ctypes.c_char_p(b"/nowhere"), 0)),
        "acct": lambda: done(call("acct", ctypes.c_char_p(b"/nowhere"))),
        "syslog": lambda: done(call("syslog", 10, 0, 0)),
        "open_by_handle_at": lambda: done(call("open_by_handle_at", -1, nothing, 0)),
        "fanotify_init": lambda: done(call("fanotify_init", 0, 0)),
        "settimeofday": lambda: done(call("settimeofday", ctypes.c_char_p(
            struct.pack("<qq", -1, -1)), 0)),
        "clock_settime": lambda: done(call("clock_settime", 99, nothing)),
        "sethostname": lambda: done(call("sethostname", nothing, 99999)),
        "setdomainname": lambda: done(call("setdomainname", nothing, 99999)),
        "ptrace": lambda: with_child(lambda pid: done(call("ptrace", 16, pid, 0, 0))),
        "process_vm_readv": lambda: with_child(peer),
        "pidfd_getfd": lambda: with_child(stolen),
        "unshare_user": lambda: namespace(0x10000000),
        "unshare_mount": lambda: namespace(0x00020000),
        "unshare_net": lambda: namespace(0x40000000),
        "unshare_pid": lambda: namespace(0x20000000),
        "clone_user": clone_namespace,
        "clone3_user": lambda: clone3(0x10000000),
        "clone3_mount": lambda: clone3(0x10020000),
        "tiocsti": tiocsti,
        "x32": lambda: x32(0x40000000),
        "not_x32": lambda: x32(0),
        "no_new_privileges": no_new_privileges,
        "descriptors": descriptors,
        "netlink": lambda: made(socket.AF_NETLINK, socket.SOCK_RAW, 16),
        "audit": lambda: made(socket.AF_NETLINK, socket.SOCK_RAW, 9),
        "events": lambda: made(socket.AF_NETLINK, socket.SOCK_RAW, 15),
        "raw": lambda: made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "raw6": lambda: made(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
        "packet": lambda: made(socket.AF_PACKET, socket.SOCK_RAW),
        "vsock": lambda: made(40, socket.SOCK_STREAM),
        "alg": lambda: made(38, socket.SOCK_SEQPACKET),
        "bluetooth": lambda: made(31, socket.SOCK_SEQPACKET),
        "xdp": lambda: made(44, socket.SOCK_RAW),
        "tipc": lambda: made(30, socket.SOCK_SEQPACKET),
        "can": lambda: made(29, socket.SOCK_RAW),
        "key": lambda: made(15, socket.SOCK_RAW, 2),
    }
    if name in simple:
        simple[name]()
    elif name == "tcp":
        connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(rest[0])))
    elif name == "tcp6":
        connected(socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(rest[0])))
    elif name == "mapped4":
        connected(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", int(rest[0])))
    elif name == "udp":
        datagram(socket.AF_INET, ("127.0.0.1", int(rest[0])))
    elif name == "udp6":
        datagram(socket.AF_INET6, ("::1", int(rest[0])))
    elif name == "unix":
        connected(socket.AF_UNIX, socket.SOCK_STREAM, rest[0])
    elif name == "abstract":
        connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + rest[0])
    elif name == "seqpacket":
        connected(socket.AF_UNIX, socket.SOCK_SEQPACKET, rest[0])
    elif name == "datagram":
        datagram(socket.AF_UNIX, rest[0])
    elif name == "abstract_datagram":
        datagram(socket.AF_UNIX, "\0" + rest[0])
    elif name == "pair_datagram":
        try:
            first, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            datagram(socket.AF_UNIX, rest[0], first)
        except OSError:
            pass
    elif name == "bound":
        bound(rest[0])
    elif name == "memfd":
        memfd(rest[0])
    elif name == "swap":
        swap(rest[0], 2000)
    elif name == "exchange":
        exchange(*rest)
    elif name == "temporary":
        temporary(rest[0])
    elif name == "mapped":
        mapped(rest[0])
    elif name == "truncating":
        opened(rest[0], os.O_RDONLY | os.O_TRUNC)
    elif name == "writing":
        opened(rest[0], os.O_RDWR)
    elif name == "attribute":
        attribute(rest[0])
    elif name == "beneath":
        beneath(rest[0])
    elif name == "device":
        device(rest[0])
    else:
        sys.exit(f"no such probe: {name}")


main()
print("TRIED")
