# Attempts to reach servers that the user did not list. Prints one line for each: its name, a tab, and
# `reached` or the reason why not. Run outside of the sandbox, the direct attempts are the controls.
import ctypes, ctypes.util, os, socket, struct, sys

tcp, udp, ok, path, abstract, mode = sys.argv[1:7]
tcp, udp, ok = int(tcp), int(udp), int(ok)
abstract = "\0" + abstract
PROXY = ("127.0.0.1", 61080)
rows = []


def row(name):
    return lambda work: rows.append((name, work))


def received(stream, text):
    stream.settimeout(5)
    stream.sendall(text)
    found = b""
    while True:
        part = stream.recv(4096)
        if not part:
            break
        found += part
    return found


def answered(stream, text=b"GET / HTTP/1.0\r\n\r\n"):
    return b"you reached" in received(stream, text)


def direct(family, kind, address, protocol=0, send=b"GET / HTTP/1.0\r\n\r\n", options=()):
    def work():
        with socket.socket(family, kind, protocol) as stream:
            stream.settimeout(5)
            for option in options:
                stream.setsockopt(*option)
            stream.connect(address)
            return answered(stream, send)
    return work


def datagram(family, address, connects=False, options=()):
    def work():
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.settimeout(5)
            for option in options:
                sender.setsockopt(*option)
            if family == socket.AF_UNIX:
                # Without an answer: arrived is reached.
                sender.sendto(b"x", address)
                return True
            if connects:
                sender.connect(address)
                sender.send(b"x")
            else:
                sender.sendto(b"x", address)
            return b"you reached" in sender.recv(4096)
    return work


if mode != "proxy":
    A4, A6, U = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
    S, D = socket.SOCK_STREAM, socket.SOCK_DGRAM
    for name, address in [("loopback", "127.0.0.1"), ("second loopback", "127.0.0.2"),
                          ("unspecified", "0.0.0.0"), ("decimal", "2130706433"), ("hexadecimal", "0x7f.1")]:
        row("tcp " + name)(direct(A4, S, (address, tcp)))
    row("tcp ipv6")(direct(A6, S, ("::1", tcp)))
    row("tcp mapped ipv6")(direct(A6, S, ("::ffff:127.0.0.1", tcp)))
    row("tcp bound to a device")(direct(A4, S, ("127.0.0.1", tcp), options=[(socket.SOL_SOCKET, 25, b"lo\0")]))
    row("mptcp")(direct(A4, S, ("127.0.0.1", tcp), 262))
    row("udp loopback")(datagram(A4, ("127.0.0.1", udp)))
    row("udp connected")(datagram(A4, ("127.0.0.1", udp), True))
    row("udp ipv6")(datagram(A6, ("::1", udp)))
    row("udp mapped ipv6")(datagram(A6, ("::ffff:127.0.0.1", udp)))
    row("udp broadcast on loopback")(datagram(A4, ("127.255.255.255", udp), options=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)]))
    row("path stream")(direct(U, S, path))
    row("path sequence")(direct(U, socket.SOCK_SEQPACKET, path + ".seq"))
    row("path datagram")(datagram(U, path + ".dgram"))
    row("abstract stream")(direct(U, S, abstract))
    row("abstract sequence")(direct(U, socket.SOCK_SEQPACKET, abstract + "seq"))
    row("abstract datagram")(datagram(U, abstract + "dgram"))

    @row("fast open")
    def _():
        with socket.socket(A4, S) as stream:
            stream.settimeout(5)
            stream.sendto(b"GET / HTTP/1.0\r\n\r\n", 0x20000000, ("127.0.0.1", tcp))
            return answered(stream, b"")

    @row("dns over udp")
    def _():
        with socket.socket(A4, D) as sender:
            sender.settimeout(5)
            query = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\6secret\7example\0\0\1\0\1"
            sender.sendto(query, ("127.0.0.1", udp))
            return b"you reached" in sender.recv(4096)

    @row("pair that sends to a path")
    def _():
        a, b = socket.socketpair(U, D)
        a.sendto(b"x", path + ".dgram")
        return True

    def made(*arguments):
        def work():
            socket.socket(*arguments).close()
            return True
        return work

    row("raw icmp")(made(A4, socket.SOCK_RAW, 1))
    row("raw ip")(made(A4, socket.SOCK_RAW, 255))
    row("packet")(made(socket.AF_PACKET, socket.SOCK_RAW, 3))
    row("socket diagnosis")(made(socket.AF_NETLINK, socket.SOCK_RAW, 4))

    libc = ctypes.CDLL(None, use_errno=True)

    def called(number, *arguments):
        def work():
            if os.fork() == 0:
                os._exit(0 if libc.syscall(number, *arguments) >= 0 else 1)
            return os.wait()[1] == 0
        return work

    row("own user and network namespace")(called(272, 0x50000000))

    @row("namespace of another process")
    def _():
        if mode == "control":
            return True
        own = os.stat("/proc/self/ns/net").st_ino
        for process in os.listdir("/proc"):
            if process.isdigit():
                try:
                    other = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
                except OSError:
                    continue
                if os.fstat(other).st_ino != own or libc.syscall(308, other, 0x40000000) == 0:
                    return True
        return False

if mode != "control":
    def sent(text):
        def work():
            with socket.create_connection(PROXY, 5) as stream:
                return answered(stream, text)
        return work

    def socks(kind, address, port, command=1):
        def work():
            with socket.create_connection(PROXY, 5) as stream:
                stream.settimeout(5)
                stream.sendall(b"\5\1\0" + bytes([5, command, 0, kind]) + address + struct.pack(">H", port))
                head = b""
                while len(head) < 12:
                    part = stream.recv(12 - len(head))
                    if not part:
                        return False
                    head += part
                return head[3] == 0 and answered(stream)
        return work

    def name(text):
        return bytes([len(text)]) + text.encode()

    hosts = ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "127.0.0.2", "0.0.0.0",
             "localhost", "LOCALHOST.", "a.localhost", "rebound.example", "unlisted.example",
             "10.0.0.1", "169.254.169.254", "100.64.0.1", "intranet"]
    for host in hosts:
        row("connect " + host)(sent(f"CONNECT {host}:{tcp} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n".encode()))
        row("absolute " + host)(sent(f"GET http://{host}:{tcp}/ HTTP/1.1\r\n\r\n".encode()))
        row("socks " + host)(socks(3, name(host), tcp))
    for host in ["[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1]"]:
        row("connect " + host)(sent(f"CONNECT {host}:{tcp} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n".encode()))
        row("socks " + host)(socks(4, socket.inet_pton(socket.AF_INET6, host.strip("[]")), tcp))
    row("socks address")(socks(1, socket.inet_aton("127.0.0.1"), tcp))
    row("socks udp")(socks(3, name("ok.example"), 80, 3))
    row("socks bind")(socks(3, name("ok.example"), 80, 2))
    for port in [22, 25, 53, 6379, tcp]:
        row(f"listed name at port {port}")(sent(f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n".encode()))

    @row("second request of a connection")
    def _():
        with socket.create_connection(PROXY, 5) as stream:
            first, second = ("GET http://ok.example/ HTTP/1.1\r\n\r\n", f"GET http://127.0.0.1:{tcp}/ HTTP/1.1\r\n\r\n")
            # Exactly the first one is answered by its server.
            return received(stream, (first + second).encode()).count(b"you reached") != 1

    row("another host in the head")(sent(f"GET http://unlisted.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n".encode()))

    @row("many connections")
    def _():
        refused = 0
        for _ in range(10000):
            with socket.create_connection(PROXY, 30) as stream:
                stream.sendall(f"CONNECT 127.0.0.1:{tcp} HTTP/1.1\r\n\r\n".encode())
                refused += 1
        return refused != 10000

    # Controls: the same ways to the server that is listed.
    row("control connect")(sent(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n"))
    row("control absolute")(sent(b"GET http://ok.example/ HTTP/1.1\r\n\r\n"))
    row("control socks")(socks(3, name("ok.example"), 80))
    row("control socks address")(socks(1, socket.inet_aton("127.0.0.1"), ok))
    row("control forward")(direct(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", ok)))

for title, work in rows:
    try:
        said = "reached" if work() else "refused"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(title, said, sep="\t", flush=True)
