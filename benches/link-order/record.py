#!/usr/bin/env python3
"""Prints the symbols of the functions that short runs of posse execute, one in each line.

    record.py PROGRAM           PROGRAM contains its symbols; valgrind records the calls

The runs talk over HTTP to a model server on loopback: one only gets an answer, one calls tools.
Child processes are not recorded: valgrind does not know the system calls of the sandbox.
"""
import glob
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

PIECES = 200
CALLS = [("read_file", {"path": "f"}), ("bash", {"command": "cat f"})]


def delta(content):
    return {"choices": [{"index": 0, "delta": content}]}


def reply(turn):
    """Pieces of the reply to a request that contains `turn` tool results."""
    if turn < len(CALLS):
        name, arguments = CALLS[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call{turn}", "type": "function", "function": function}
        return [delta({"tool_calls": [call]})], "tool_calls"
    return [delta({"content": "hello "})] * PIECES, "stop"


class Model(http.server.BaseHTTPRequestHandler):
    """Calls each tool once if the prompt asks for tools, and then answers."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = self.rfile.read(int(self.headers["content-length"]))
        results = sum(message["role"] == "tool" for message in json.loads(request)["messages"])
        pieces, reason = reply(results if b"use tools" in request else len(CALLS))
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        texts = [json.dumps(piece) for piece in [*pieces, end]] + ["[DONE]"]
        body = "".join(f"data: {text}\n\n" for text in texts).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def record(posse, folder):
    """Runs the program under callgrind; the profiles are written to `folder`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/v1"
    provider = {"type": "openai-compatible", "baseURL": base, "model": "m", "auth": "none",
                "maxTokens": 8192, "contextWindow": 200000}
    os.makedirs(f"{folder}/home/config")
    os.makedirs(f"{folder}/project")
    with open(f"{folder}/home/config/config.json", "w") as file:
        json.dump({"defaultProvider": "m", "providers": {"m": provider}}, file)
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "POSSE_HOME": f"{folder}/home"}
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--demangle=no",
                f"--callgrind-out-file={folder}/calls.%p", posse]
    with open(f"{folder}/project/f", "w") as file:
        file.write("contents\n")
    for prompt in ("hello", "use tools"):
        command = [*valgrind, "run", "--yes", prompt]
        subprocess.run(command, cwd=f"{folder}/project", env=environment, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=600)
    server.shutdown()


def executed(folder):
    """Symbols in the order of their first appearance."""
    symbols = {}
    for profile in sorted(glob.glob(f"{folder}/calls.*"), key=os.path.getmtime):
        with open(profile, errors="replace") as lines:
            for line in lines:
                found = re.match(r"c?fn=\(\d+\) (.+)", line)
                if found:
                    symbols[re.sub(r"'\d+$", "", found.group(1))] = True
    return symbols


with tempfile.TemporaryDirectory() as place:
    record(os.path.realpath(sys.argv[1]), place)
    print("\n".join(executed(place)))
