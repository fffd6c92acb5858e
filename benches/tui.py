#!/usr/bin/env python3
"""Measures the terminal UI of a release binary in a pseudo terminal, against a scripted model server.

    benches/tui.py [--binary target/dist/posse] [--only first-key,idle,...] [--idle SECONDS] [--flood SECONDS]

Prints one line for each figure, with its bound and whether it is held. Everything is on loopback and in a
temporary folder.
"""

import argparse
import fcntl
import http.server
import json
import multiprocessing
import os
import pty
import re
import resource
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

FRAME = re.compile(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", re.S)


class Model(http.server.BaseHTTPRequestHandler):
    """Streams as many deltas as the task asks for: `deltas COUNT PER_SECOND [long]` (0: as fast as it goes)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        names = [tool["function"]["name"] for tool in body.get("tools", [])]
        said = str(body["messages"][-1]["content"])
        if "spinners" in said and "delegate_agent" in names:
            return self.delegate(8)
        # A child reads its task among other things; the main agent goes on when it has sent them all off.
        if body["messages"][-1]["role"] == "tool" and "delegate_agent" in names:
            said = "deltas 60000 4000"
        elif "slowly" in said and "delegate_agent" not in names:
            said = "deltas 600 4"
        words = said.replace("'", " ").split()
        at = words.index("deltas") if "deltas" in words else None
        count, rate = (int(words[at + 1]), int(re.sub(r"\D", "", words[at + 2]))) if at is not None else (1, 0)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        begun = time.monotonic()
        batch = max(1, rate // 200) if rate else 500
        sent = 0
        while sent < count:
            now = min(batch, count - sent)
            lines = []
            for nth in range(sent, sent + now):
                end = "\n" if nth % 12 == 11 else " "
                word = f"word{nth}{end}" if "long" not in words else f"line {nth} " + "of many words " * 5 + "\n"
                piece = {"choices": [{"index": 0, "delta": {"content": word}}]}
                lines.append(b"data: " + json.dumps(piece).encode() + b"\n\n")
            try:
                self.wfile.write(b"".join(lines))
            except OSError:
                return
            sent += now
            if rate:
                time.sleep(max(0, begun + sent / rate - time.monotonic()))
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
               "usage": {"prompt_tokens": 100, "completion_tokens": count}}
        self.wfile.write(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")
        self.close_connection = True


    def delegate(self, count):
        """Asks for that many agents in the background."""
        arguments = json.dumps({"agent": "explore", "task": "look slowly", "wait": False})
        calls = [{"index": nth, "id": f"call_{nth}", "type": "function",
                  "function": {"name": "delegate_agent", "arguments": arguments}} for nth in range(count)]
        pieces = [{"choices": [{"index": 0, "delta": {"tool_calls": calls}}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
                   "usage": {"prompt_tokens": 100, "completion_tokens": count}}]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def serve(pipe):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    pipe.send(server.server_address[1])
    server.serve_forever()


class Machine:
    """A home of its own."""

    def __init__(self, binary, port):
        self.dir = tempfile.mkdtemp(prefix="posse-tui-")
        self.binary = binary
        for name in ["home", "work/.git", "tmp", "posse/config"]:
            os.makedirs(f"{self.dir}/{name}")
        provider = {"type": "openai-compatible", "baseURL": f"http://127.0.0.1:{port}/v1", "model": "m", "auth": "none"}
        with open(f"{self.dir}/posse/config/config.json", "w") as file:
            json.dump({"defaultProvider": "local", "providers": {"local": provider},
                       "delegation": {"maxConcurrent": 8}}, file)
        self.env = {"PATH": os.environ["PATH"], "HOME": f"{self.dir}/home", "POSSE_HOME": f"{self.dir}/posse",
                    "TMPDIR": f"{self.dir}/tmp", "TERM": "xterm-256color"}

    def many_sessions(self, count):
        self.text("hello")
        root = f"{self.dir}/posse/state/projects"
        folder = f"{root}/{os.listdir(root)[0]}/sessions"
        first = os.listdir(folder)[0]
        for nth in range(count):
            shutil.copytree(f"{folder}/{first}", f"{folder}/20200101-000000-{nth:06x}")

    def text(self, task):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([self.binary, "run", task], cwd=f"{self.dir}/work", env=self.env, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (ended.ru_utime - begun.ru_utime) + (ended.ru_stime - begun.ru_stime)

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)


class Screen:
    """The UI in a pseudo terminal."""

    def __init__(self, machine, columns=100, rows=30, args=()):
        self.begun = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(f"{machine.dir}/work")
            os.execve(machine.binary, [machine.binary, *args], machine.env)
        self.resize(columns, rows)
        self.seen = b""

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def read(self, limit, most=1 << 16):
        ready, _, _ = select.select([self.fd], [], [], limit)
        if not ready:
            return b""
        try:
            piece = os.read(self.fd, most)
        except OSError:
            return b""
        self.seen += piece
        return piece

    def wait(self, what, limit=60):
        end = time.monotonic() + limit
        mark = len(self.seen)
        while what not in self.seen[max(0, mark - len(what)):]:
            if time.monotonic() > end:
                sys.exit(f"{what!r} did not come: {self.seen[-2000:]!r}")
            self.read(0.05)
        return time.monotonic()

    def settle(self):
        """Reads until nothing more comes: what was finished last may be seen before what was finished first."""
        while self.read(0.5):
            pass

    def cpu(self):
        """Seconds of all threads that live, to the nanosecond (`schedstat`); threads that ended are not in it."""
        tasks = os.listdir(f"/proc/{self.pid}/task")
        return sum(int(open(f"/proc/{self.pid}/task/{task}/schedstat").read().split()[0]) for task in tasks) / 1e9

    def switches(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            status = open(f"/proc/{self.pid}/task/{task}/status").read()
            total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M).group(1))
        return total

    def peak(self):
        status = open(f"/proc/{self.pid}/status").read()
        return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024

    def close(self):
        os.kill(self.pid, signal.SIGTERM)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def show(name, value, unit, bound):
    held = "held" if value <= bound else "MISSED"
    print(f"{name:<72} {value:>10.2f} {unit:<8} <= {bound:<8} {held}", flush=True)


def first_key(machine, _):
    machine.many_sessions(1000)
    times = []
    for _ in range(11):
        screen = Screen(machine)
        # Typed before it is there: what the kernel keeps must not be lost. Its own echo does not count.
        screen.type("zq")
        screen.wait(b"\x1b[?2026h")
        mark = screen.seen.index(b"\x1b[?2026h")
        while b"zq" not in screen.seen[mark:]:
            screen.read(1)
        times.append(time.monotonic() - screen.begun)
        screen.close()
    show("exec to first key shown, 1,000 sessions, median", statistics.median(times) * 1000, "ms", 100)


def idle(machine, args):
    screen = Screen(machine)
    screen.wait("❯".encode())
    while screen.read(1.0):
        pass
    cpu, switches = screen.cpu(), screen.switches()
    time.sleep(args.idle)
    show(f"idle for {args.idle} s: CPU", 100 * (screen.cpu() - cpu) / args.idle, "% core", 0.3)
    show(f"idle for {args.idle} s: wake-ups", (screen.switches() - switches) / args.idle, "/s", 5)
    screen.close()


def frames(machine, _):
    screen = Screen(machine, 100, 40, ["--yes", "--multi-agent"])
    screen.wait("❯".encode())
    screen.type("deltas 100000 0 long\r")
    screen.wait(b"Done in ", 300)
    screen.settle()
    screen.seen = b""
    screen.type("spinners\r")
    screen.wait(b"word1", 60)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        screen.read(0.05)
    # Agents in a row each, as the last frame of the whole screen has them.
    spinning = max(len(re.findall("explore “look slowly”".encode(), frame)) for frame in FRAME.findall(screen.seen))
    sizes = [len(frame) for frame in FRAME.findall(screen.seen)]
    name = f"bytes of a frame, 100,000 lines above, {spinning} spinners"
    show(f"{name}, median of {len(sizes)}", statistics.median(sizes), "bytes", 4096)
    for clear in [b"\x1b[2J", b"\x1b[3J", b"\x1bc"]:
        assert clear not in screen.seen, clear
    screen.close()


def flood(machine, args):
    screen = Screen(machine)
    screen.wait("❯".encode())
    screen.type(f"deltas {10000 * args.flood} 10000\r")
    screen.wait(b"word1")
    delays, sent, budget, last = [], None, 0.0, time.monotonic()
    end = last + args.flood - 2
    mark = 0
    while time.monotonic() < end:
        now = time.monotonic()
        budget = min(budget + (now - last) * 1e6, 20_000)
        last = now
        if budget >= 1:
            piece = screen.read(0.005, int(min(budget, 65536)) or 1)
            budget -= len(piece)
        if sent is None:
            mark = len(screen.seen)
            sent = time.monotonic()
            screen.type("Q")
        elif b"Q" in screen.seen[mark:]:
            delays.append(time.monotonic() - sent)
            sent = None
            screen.type("\x7f")
            time.sleep(0.05)
        if len(screen.seen) > 4 << 20 and sent is None:
            screen.seen = b""
    delays.sort()
    p99 = delays[int(len(delays) * 0.99) - 1] * 1000
    show(f"key to echo, 10,000 events/s at 1 MB/s, p99 of {len(delays)}", p99, "ms", 50)
    screen.close()


def stream(machine, _):
    # Text mode ends within it, so its start is taken off.
    text = machine.text("deltas 20000 0") - machine.text("hello")
    screen = Screen(machine)
    screen.wait("❯".encode())
    before = screen.cpu()
    screen.type("deltas 20000 0\r")
    screen.wait(b"Done in ", 120)
    screen.settle()
    ui = screen.cpu() - before
    show(f"20,000 deltas: CPU, {1000 * ui:.0f} ms, beside text mode, {1000 * text:.0f} ms", ui / text, "x", 2)
    screen.close()


def memory(machine, _):
    screen = Screen(machine)
    screen.wait("❯".encode())
    screen.type("deltas 100000 0 long\r")
    screen.wait(b"Done in ", 600)
    screen.settle()
    show("100,000-line transcript: peak RSS", screen.peak(), "MB", 120)
    screen.close()


def storm(machine, _):
    screen = Screen(machine)
    screen.wait("❯".encode())
    screen.seen, begun = b"", time.monotonic()
    for nth in range(3000):
        screen.resize(1 + nth * 7 % 500, 1 + nth * 3 % 500)
        screen.read(0.001)
    took = time.monotonic() - begun
    redraws = screen.seen.count(b"\x1b[?2026h") / took
    show(f"resize storm of {3000 / took:.0f}/s: redraws", redraws, "/s", 60)
    screen.resize(100, 30)
    while screen.read(0.3):
        pass
    big = "x" * 99 + "\n"
    paste = (big * (10 << 20 >> 6))[: 10 << 20].encode()
    begun = time.monotonic()
    data = b"\x1b[200~" + paste + b"\x1b[201~"
    os.set_blocking(screen.fd, False)
    sent = 0
    while sent < len(data):
        try:
            sent += os.write(screen.fd, data[sent:sent + 4096])
        except BlockingIOError:
            pass
        screen.read(0)
    os.set_blocking(screen.fd, True)
    screen.wait(b"[paste 1: ", 60)
    show("paste of 10 MB, until it is shown", time.monotonic() - begun, "s", 60)
    screen.close()


ALL = {"first-key": first_key, "idle": idle, "frames": frames, "flood": flood, "stream": stream,
       "memory": memory, "storm": storm}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/dist/posse")
    parser.add_argument("--only", default=",".join(ALL))
    parser.add_argument("--idle", type=int, default=60)
    parser.add_argument("--flood", type=int, default=60)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    for name in args.only.split(","):
        machine = Machine(os.path.abspath(args.binary), port)
        try:
            ALL[name](machine, args)
        finally:
            machine.close()
    server.terminate()


if __name__ == "__main__":
    main()
