#!/usr/bin/env python3
"""Counts the questions of a task of 20 steps in every permission mode.

    python3 tests/conformance/task20.py                all modes
    python3 tests/conformance/task20.py --mode auto    one mode, with the log of its steps

A scripted model lists, reads, searches, edits, builds, tests, installs a dependency from a real
registry server on a loopback port (verdaccio, from npm) and commits. The registry has a name, which
leads to the listed address of that port, so that on the full tier of the sandbox, which is
required, its domain needs an answer. A program answers each question with "allow once" and counts
it. Options: --posse FILE (the binary, by default the one that `cargo build` makes), --mode MODE.
Exit code: 0 if each mode asks at most as often as it may and leaves the project as it should, 1 if
one does not, 2 if the registry server cannot be installed.
"""

import argparse
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import driving
import environments
from environments import ROOT
from servers import Server, free_port

# Name of the registry, which commands reach through the proxy of posse alone.
REGISTRY = "registry.example"

# Maximum number of questions, and whether the task is done in the end.
MODES = {"plan": (0, False), "ask": (13, True), "edits": (8, True), "auto": (1, True),
         "locked": (0, False)}

PROJECT = {
    "README.md": "# Shop\n\nAdds the prices of a cart.\n",
    ".gitignore": "node_modules/\ndist/\n",
    "package.json": json.dumps({"name": "shop", "version": "1.0.0", "private": True, "scripts":
                                {"test": "node --test", "build": "node build.js"}}, indent=2) + "\n",
    "build.js": "const fs = require('fs');\nfs.mkdirSync('dist', { recursive: true });\n"
                "fs.copyFileSync('src/cart.js', 'dist/cart.js');\nconsole.log('built');\n",
    "src/cart.js": "// TODO: tax\nexports.total = (prices) => prices.reduce((a, b) => a + b, 0);\n",
    "test/cart.test.js": "const test = require('node:test');\nconst assert = require('assert');\n"
                         "const { total } = require('../src/cart.js');\n"
                         "test('adds', () => assert.equal(total([1, 2]), 3));\n",
}


def steps(registry):
    """The calls of the model, one in each reply."""
    def bash(command):
        return ("bash", {"command": command})

    def edit(old, new):
        return ("edit_file", {"path": "src/cart.js", "oldString": old, "newString": new})

    return [
        ("list_dir", {"path": "."}),
        ("read_file", {"path": "README.md"}),
        ("grep", {"pattern": "TODO", "path": "src"}),
        bash("ls -la && git status"),
        bash("git log --oneline -5 && cat package.json | head -20"),
        ("read_file", {"path": "src/cart.js"}),
        edit("// TODO: tax\n", "const { tax } = require('./tax.js');\n"),
        ("write_file", {"path": "src/tax.js", "content": "exports.tax = (sum) => sum * 0.2;\n"}),
        edit("prices.reduce((a, b) => a + b, 0)", "prices.reduce((a, b) => a + b, 0) + tax(0)"),
        bash("mkdir -p docs && touch docs/notes.md"),
        bash("npm run build"),
        bash("npm test 2>&1 | tail -20"),
        bash(f"npm install tiny-round@1.0.0 --no-audit --no-fund --registry {registry}"),
        edit("const { tax }", "const round = require('tiny-round');\nconst { tax }"),
        ("write_file", {"path": "test/tax.test.js",
                        "content": "const test = require('node:test');\n"
                                   "const round = require('tiny-round');\n"
                                   "test('rounds', () => { if (round(1.4) !== 1) throw 1; });\n"}),
        bash("npm test"),
        bash("git diff --stat"),
        bash("git add -A && git status --short"),
        bash('git commit -m "Add tax"'),
        bash("git log --oneline -3"),
    ]


class Model(http.server.BaseHTTPRequestHandler):
    """A server of Chat Completions that plays the steps."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        done = sum(message["role"] == "assistant" for message in request["messages"])
        delta, reason = {"content": "It is done."}, "stop"
        if done < len(self.server.steps):
            name, arguments = self.server.steps[done]
            call = {"index": 0, "id": f"call{done}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)}}
            delta, reason = {"tool_calls": [call]}, "tool_calls"
        self.server.results = [message["content"] for message in request["messages"]
                               if message["role"] == "tool"]
        lines = [{"choices": [{"index": 0, "delta": delta}]},
                 {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                 {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10,
                                           "total_tokens": 110}}]
        body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


def git(folder, *args):
    settings = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    done = subprocess.run(["git", *settings, *args], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}, check=True)
    return done.stdout


def registry(folder):
    """Starts verdaccio with one package, and returns it with its address."""
    programs, port = environments.npm("verdaccio"), free_port()
    address = f"http://127.0.0.1:{port}"
    (folder / "config.yaml").write_text(
        f"storage: {folder}/storage\n"
        "auth: {htpasswd: {file: ./htpasswd}}\n"
        "packages: {'**': {access: $all, publish: $all}}\n"
        "log: {type: stdout, format: json, level: error}\n")
    command = [shutil.which("node"), str((programs / "verdaccio").resolve()), "--config",
               str(folder / "config.yaml"), "--listen", f"127.0.0.1:{port}"]
    server = Server(command, port, "/-/ping", 60, folder, {"HOME": str(folder)})
    package = folder / "tiny-round"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "tiny-round", "version": "1.0.0"}))
    (package / "index.js").write_text("module.exports = Math.round;\n")
    (package / ".npmrc").write_text(f"//127.0.0.1:{port}/:_authToken=nobody\n")
    environments.run("cannot publish a package to the registry server",
                     ["npm", "publish", "--registry", address], cwd=package,
                     env={**os.environ, "HOME": str(folder)})
    return server, address


def drive(posse, mode, folder, address):
    """Makes the run in `mode`, with the registry at `address`. Returns the questions, what went
    wrong, the project's folder, and the results of the calls."""
    work = folder / "work"
    for name, text in PROJECT.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    git(work, "init", "--quiet", "--initial-branch=main")
    git(work, "add", "-A")
    git(work, "commit", "--quiet", "-m", "Start")
    git(work, "config", "user.name", "Test")
    git(work, "config", "user.email", "test@example.org")
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    model.steps, model.results = steps(f"http://{REGISTRY}"), []
    threading.Thread(target=model.serve_forever, daemon=True).start()
    provider = {"type": "openai-compatible", "model": "m", "auth": "none",
                "baseURL": f"http://127.0.0.1:{model.server_address[1]}/v1"}
    config = folder / "posse/config/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"defaultProvider": "scripted",
                                  "providers": {"scripted": provider},
                                  "network": {"allowedDomains": [address]}}))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"),
           "POSSE_HOME": str(folder / "posse"),
           "POSSE_NETWORK_NAMES": f"{REGISTRY}={address}"}
    (folder / "home").mkdir()
    command = [str(posse), "run", "--permission-mode", mode, "--input-format", "stream-json",
               "--output-format", "stream-json"]
    prompt = "Add tax to the cart, with tests, and commit it."
    events, wrong, code, errors = driving.converse(command, work, env, prompt, 120)
    questions = [f"{event['summary']}: {event['reason']}" for event in events
                 if event["type"] == "permission.requested"]
    model.shutdown()
    if code not in (0, 4):
        wrong.append(f"exit code {code}: {''.join(errors)[-500:]}")
    return questions, wrong, work, model.results


def check(mode, work, wrong):
    """Adds what the project should not be like after the task to `wrong`."""
    commits = git(work, "log", "--oneline").splitlines()
    _, done = MODES[mode]
    if done:
        if len(commits) != 2 or git(work, "status", "--short"):
            wrong.append(f"the work is not committed: {commits}")
        tests = subprocess.run(["npm", "test"], cwd=work, capture_output=True, text=True)
        if tests.returncode != 0 or not (work / "node_modules/tiny-round").is_dir():
            wrong.append("the tests of the project fail")
    elif len(commits) != 1 or git(work, "status", "--short"):
        wrong.append("the project has changed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--posse", default=ROOT / "target/debug/posse", type=pathlib.Path)
    parser.add_argument("--mode", choices=MODES)
    options = parser.parse_args()
    failed = False
    # Commands see the folders for temporary files as empty, and a home folder must not be one.
    environments.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="task20-", dir=environments.cache()) as temporary:
        folder = pathlib.Path(temporary)
        (folder / "registry").mkdir()
        server, address = registry(folder / "registry")
        try:
            for mode in [options.mode] if options.mode else MODES:
                (folder / mode).mkdir()
                questions, wrong, work, results = drive(options.posse.resolve(), mode,
                                                        folder / mode,
                                                        address.removeprefix("http://"))
                check(mode, work, wrong)
                most, _ = MODES[mode]
                if len(questions) > most:
                    wrong.append(f"more than {most} questions")
                print(f"{mode}: {len(questions)} questions (at most {most})"
                      + "".join(f"\n  wrong: {text}" for text in wrong))
                for question in questions:
                    print(f"  ? {question}")
                if options.mode:
                    for (name, arguments), result in zip(steps(f"http://{REGISTRY}"), results):
                        shown = arguments.get("command") or arguments.get("path")
                        print(f"  {name} {shown}\n    " + str(result).strip()[:200]
                              .replace("\n", "\n    "))
                failed |= bool(wrong)
        finally:
            server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
