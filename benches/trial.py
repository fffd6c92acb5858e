#!/usr/bin/env python3
"""Cost of a trial: a command that changes 1,000 files in a tree of 50,000.

Usage: benches/trial.py PATH-TO-POSSE [ROUNDS]

Runs the command plainly, as a trial that a person asks for in a session (a scripted model on loopback
calls it), and in `posse try`, and prints medians. `shown in a session` is the time from the answer `try`
until the changes arrive, above the plain command. `shown by posse try` begins with the start of the
program; `start` is the part of it that a command without changes takes as well. `kept` is the time from
then until the changes are in the workspace, without a checkpoint, which has figures of its own. Exits
with 1 if a bound is missed. POSSE_BENCH_DIR: folder for the tree.
"""

import hashlib
import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FILES, CHANGED, FOLDERS = 50_000, 1_000, 500
SHOWN_MAX, KEPT_MAX = 150, 100
COMMAND = f"for at in $(seq 0 {CHANGED - 1}); do echo changed >> d$((at % {FOLDERS}))/f$at; done"


def tree(work):
    for at in range(FOLDERS):
        os.makedirs(f"{work}/d{at}")
    for at in range(FILES):
        with open(f"{work}/d{at % FOLDERS}/f{at}", "w") as file:
            file.write(f"line one of {at}\nline two\n" * 20)


def reset(work):
    for at in range(CHANGED):
        with open(f"{work}/d{at % FOLDERS}/f{at}", "w") as file:
            file.write(f"line one of {at}\nline two\n" * 20)


def digest(work):
    found = hashlib.sha256()
    for folder, folders, files in os.walk(work):
        folders.sort()
        for name in sorted(files):
            path = f"{folder}/{name}"
            stat = os.lstat(path)
            with open(path, "rb") as file:
                found.update(f"{path} {stat.st_mode} {stat.st_ctime_ns}".encode() + file.read())
    return found.hexdigest()


def main():
    posse = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    folder = os.environ.get("POSSE_BENCH_DIR")
    with tempfile.TemporaryDirectory(prefix="posse-trial-", dir=folder) as base:
        plain, start, until_shown, kept, answered = measure(posse, rounds, base)
    median = statistics.median
    itself, kept_ms = median(plain), median(kept)
    shown_ms = median(answered) - itself
    print(f"command itself                  {itself:7.1f} ms")
    print(f"shown in a session, above it    {shown_ms:7.1f} ms  (at most {SHOWN_MAX})")
    print(f"shown by posse try, above it    {median(until_shown) - itself:7.1f} ms")
    print(f"  of which start                {median(start):7.1f} ms")
    print(f"kept                            {kept_ms:7.1f} ms  (at most {KEPT_MAX})")
    sys.exit(int(shown_ms > SHOWN_MAX or kept_ms > KEPT_MAX))


def measure(posse, rounds, base):
    """Times in milliseconds of each round, with a tree in the folder `base`."""
    work, home = f"{base}/work", f"{base}/home"
    os.makedirs(f"{home}/config")
    tree(work)
    with open(f"{home}/config/config.json", "w") as file:
        json.dump({"checkpoints": {"enabled": False}}, file)
    environment = {"PATH": os.environ["PATH"], "HOME": base, "POSSE_HOME": home}

    def timed(command, *marks):
        """Milliseconds until the end, and until a line that begins with each of `marks`."""
        begin = time.monotonic()
        running = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        seen = {}
        for line in running.stdout:
            for mark in marks:
                if line.startswith(mark):
                    seen[mark] = (time.monotonic() - begin) * 1000
        if running.wait() != 0 or len(seen) != len(marks):
            sys.exit(f"{command}: {seen}")
        return [(time.monotonic() - begin) * 1000] + [seen[mark] for mark in marks]

    shown = f"The command succeeded; {CHANGED} modified"
    done = f"Kept {CHANGED} of {CHANGED}"
    plain, start, until_shown, kept = [], [], [], []
    # Otherwise the disk is still busy with the tree.
    os.sync()
    before = digest(work)
    for _ in range(rounds):
        until_shown.append(timed([posse, "try", "--drop", "--", COMMAND], shown)[1])
        start.append(timed([posse, "try", "--drop", "--", "true"], "The command succeeded")[1])
    answered = in_session(posse, rounds, work, environment)
    if digest(work) != before:
        sys.exit("a dropped trial has changed the workspace")
    for _ in range(rounds):
        _, first, last = timed([posse, "try", "--keep", "--", COMMAND], shown, done)
        kept.append(last - first)
        reset(work)
        os.sync()
        plain.append(timed(["bash", "-c", COMMAND])[0])
        reset(work)
        os.sync()
    return plain, start, until_shown, kept, answered


class Model(http.server.BaseHTTPRequestHandler):
    """Scripted model: calls the command once more in each reply, or says that it is done."""

    protocol_version = "HTTP/1.1"
    calls_left = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        number, Model.calls_left = Model.calls_left, Model.calls_left - 1
        if number > 0:
            arguments = json.dumps({"command": f"{COMMAND} # {number}"})
            call = {"name": "bash", "arguments": arguments}
            delta = {"tool_calls": [{"index": 0, "id": f"c{number}", "type": "function",
                                     "function": call}]}
        else:
            delta = {"content": "done"}
        end = "tool_calls" if number > 0 else "stop"
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def in_session(posse, rounds, work, environment):
    """Milliseconds from the answer `try` until the changes arrive, for each round in one session."""
    # The first trial of a session makes its folders.
    Model.calls_left = rounds + 1
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(f"{environment['POSSE_HOME']}/config/config.json", "w") as file:
        base = f"http://127.0.0.1:{server.server_port}/v1"
        provider = {"type": "openai-compatible", "baseURL": base, "model": "scripted"}
        json.dump({"checkpoints": {"enabled": False}, "providers": {"local": provider},
                   "defaultProvider": "local"}, file)
    formats = ["--input-format", "stream-json", "--output-format", "stream-json"]
    command = [posse, "run", "--permission-mode", "ask", *formats]
    running = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)

    def send(**message):
        running.stdin.write(json.dumps(message) + "\n")
        running.stdin.flush()

    send(type="message", content="go")
    took, begin, shown = [], None, f"{CHANGED} modified"
    for line in running.stdout:
        event = json.loads(line)
        if event["type"] == "permission.requested":
            begin = time.monotonic()
            decision = "try" if event["trial"] == "try" else "deny"
            send(type="permission.answer", requestId=event["requestId"], decision=decision)
        elif event["type"] == "permission.tried":
            took.append((time.monotonic() - begin) * 1000)
            if shown not in event["summary"]:
                sys.exit(f"the trial has other changes: {event['summary']}")
        elif event["type"].startswith("agent.invocation.") and event["type"] != "agent.invocation.started":
            running.stdin.close()
    server.shutdown()
    if running.wait() != 0 or len(took) != rounds + 1:
        sys.exit(f"the session ended after {len(took)} trials")
    return took[1:]


if __name__ == "__main__":
    main()
