#!/usr/bin/env python3
"""Plays a session of 60 turns with a large file, a build of three minutes and broken replies.

    python3 tests/conformance/session60.py [--posse FILE] [--build SECONDS] [--events FILE]

A scripted model reads, searches and edits a file of 300 KB, builds for longer than the default time
limit of a command, and gets four broken replies: one that is cut within a call, one that is garbled, an
empty one and an overloaded server. The settings are the defaults, in the mode `auto`, and a program
answers each question with "allow once". `--build`: seconds of the build, by default 180; `--events`:
file for the event stream; `--posse`: the binary, by default the one that `cargo build` makes. Prints a
line for each kind of event, the largest request, and the questions. Exit code 1 if something is not as
it should be.
"""

import argparse
import collections
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import driving

ROOT = pathlib.Path(__file__).resolve().parents[2]

TURNS = 60

# Tokens of the window that posse assumes for an unknown model, and bytes of a token.
WINDOW_TOKENS, BYTES_PER_TOKEN = 32_000, 3

# Turn before which a reply is broken, and how.
FAULTS = {12: "cut", 24: "garbled", 36: "empty", 48: "overloaded"}


def steps(build):
    """The calls of the model, one in each reply but the last."""
    calls = [("bash", {"command": "git status --short && ls -la"}),
             ("read_file", {"path": "data.txt"}),
             ("bash", {"command": f"sleep {build}; echo built > built.txt; echo done"}),
             ("write_file", {"path": "notes.md", "content": "# Notes\n"})]
    cycle = [lambda at: ("read_file", {"path": "data.txt", "offset": 50 * at, "limit": 200}),
             lambda at: ("grep", {"pattern": f"line {at}[0-9] ", "path": "data.txt"}),
             lambda at: ("edit_file", {"path": "data.txt", "oldString": f"line {at * 7} of",
                                       "newString": f"row {at * 7} of"}),
             lambda at: ("bash", {"command": f"wc -c data.txt; grep -c row data.txt; echo {at}"}),
             lambda at: ("job_output", {"id": "JOB"}) if at % 2 else
             ("bash", {"command": "cat data.txt"})]
    while len(calls) < TURNS - 4:
        calls.append(cycle[len(calls) % len(cycle)](len(calls)))
    wait = ("job_output", {"id": "JOB", "waitSeconds": 60})
    return calls + [wait, wait,
                    ("bash", {"command": "cat built.txt; git diff --stat | tail -1"})]


class Model(http.server.BaseHTTPRequestHandler):
    """A server of Chat Completions that plays the steps and the faults."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        server.sizes.append(len(body))
        for message in request["messages"]:
            text = message["content"] if message["role"] == "tool" else ""
            found = re.search(r'job_output {"id": "([^"]+)"', str(text))
            if found:
                server.job = found[1]
        turn = server.turn
        fault = server.faults.pop(turn, None)
        if fault:
            return self.break_off(fault)
        server.turn += 1
        delta, reason = {"content": "All of it is done."}, "stop"
        if turn < len(server.steps):
            name, arguments = server.steps[turn]
            arguments = {key: server.job if value == "JOB" else value
                         for key, value in arguments.items()}
            call = {"index": 0, "id": f"call{turn}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)}}
            delta, reason = {"tool_calls": [call]}, "tool_calls"
        self.stream([{"choices": [{"index": 0, "delta": delta}]},
                     {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}])

    def stream(self, lines, ending="data: [DONE]\n\n", promised=0):
        body = ("".join(f"data: {json.dumps(line)}\n\n" for line in lines) + ending).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body) + promised))
        self.end_headers()
        self.wfile.write(body)

    def break_off(self, fault):
        if fault == "overloaded":
            self.send_response(503)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
        elif fault == "empty":
            self.stream([])
        elif fault == "garbled":
            self.stream([], 'data: {"choices": [{"delta": {"content": "\\ud8\n\ndata: \x00\xff\n\n')
        else:
            call = {"index": 0, "id": "cut", "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "rm -rf '}}
            self.stream([{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}], "", 1000)
            self.close_connection = True


def drive(options, folder):
    """Makes the run. Returns its events, what went wrong, and the model."""
    work = folder / "work"
    work.mkdir()
    text = "".join(f"line {at} of the data, which is neither short nor interesting\n"
                   for at in range(5_000))
    (work / "data.txt").write_text(text)
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for args in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "Start"]):
        subprocess.run(git + args, cwd=work, check=True, capture_output=True)
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    model.steps, model.turn, model.sizes, model.job = steps(options.build), 0, [], "none"
    model.faults = dict(FAULTS)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    provider = {"type": "openai-compatible", "model": "m", "auth": "none",
                "baseURL": f"http://127.0.0.1:{model.server_address[1]}/v1"}
    config = folder / "posse/config/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"defaultProvider": "scripted", "providers": {"scripted": provider}}))
    (folder / "home").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"),
           "POSSE_HOME": str(folder / "posse")}
    command = [str(options.posse), "run", "--permission-mode", "auto", "--input-format",
               "stream-json", "--output-format", "stream-json"]
    prompt = "Rename the lines, build, and say what you did."
    events, wrong, code, errors = driving.converse(command, work, env, prompt, options.build + 120)
    model.shutdown()
    if code != 0:
        wrong.append(f"exit code {code}: {''.join(errors)[-1000:]}")
    return events, wrong, model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--posse", type=pathlib.Path)
    parser.add_argument("--build", type=int, default=180)
    parser.add_argument("--events", type=pathlib.Path)
    options = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    options.posse = (options.posse or target / "debug/posse").resolve()
    with tempfile.TemporaryDirectory(prefix="posse-session-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        events, wrong, model = drive(options, folder)
        built = folder / "work/built.txt"
        if not built.exists() or built.read_text() != "built\n":
            wrong.append("the build did not end")
    if options.events:
        options.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    kinds = collections.Counter(event["type"] for event in events)
    for kind, count in sorted(kinds.items()):
        print(f"{count:6} {kind}")
    failed = [event for event in events if event["type"] == "tool.failed"]
    for event in failed:
        print("failed:", json.dumps(event)[:300])
    for event in events:
        if event["type"] == "permission.requested":
            print("question:", event["summary"], "-", event["reason"])
    most = max(model.sizes, default=0)
    print(f"{model.turn} replies, {len(model.sizes)} requests, the largest of {most} bytes")
    if model.turn != TURNS or model.faults:
        wrong.append(f"{model.turn} of {TURNS} turns; faults left: {model.faults}")
    if most > WINDOW_TOKENS * BYTES_PER_TOKEN * 1.05:
        wrong.append("a request is larger than the window")
    if kinds["permission.requested"]:
        wrong.append("a question was asked")
    if failed and options.build > 120:
        wrong.append("a call failed")
    for text in wrong:
        print("wrong:", text)
    sys.exit(int(bool(wrong)))


if __name__ == "__main__":
    main()
