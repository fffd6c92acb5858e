#!/usr/bin/env bash
# How much later `posse run` starts with a 200-key configuration, a project configuration and 50
# stored sessions than with an empty home. Both are measured in turns, in this one run.
#
#   benches/startup.sh [POSSE] [RUNS]        ends with 1 if the difference is above 3 ms
set -euo pipefail
cd "$(dirname "$0")/.."

posse="${1:-target/dist/posse}"
runs="${2:-40}"
[ -x "$posse" ] || { echo "no program at $posse: cargo build --profile dist" >&2; exit 2; }
exec python3 - "$(realpath "$posse")" "$runs" <<'PYTHON'
import glob, http.server, json, os, shutil, statistics, subprocess, sys, tempfile, threading, time

posse, runs = sys.argv[1], int(sys.argv[2])
LIMIT_MS = 3.0

class Hello(http.server.BaseHTTPRequestHandler):
    """Says hello, whatever it is asked, and notes when it was asked."""
    protocol_version = "HTTP/1.1"
    asked = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        Hello.asked.append(time.perf_counter())
        self.rfile.read(int(self.headers["content-length"]))
        delta = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]}
        body = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/v1"

def profile(nth):
    return {"type": "openai-compatible", "baseURL": base if nth == 0 else f"https://m{nth}.example/v1",
            "model": f"m-{nth}", "auth": "none", "maxTokens": 8192, "contextWindow": 200000,
            "patience": "30s", "timeouts": {"connect": "5s"}}

def home(folder, servers):
    config = os.path.join(folder, "home", "config")
    work = os.path.join(folder, "work")
    os.makedirs(config)
    os.makedirs(os.path.join(work, ".git"))
    providers = {f"server{nth}": profile(nth) for nth in range(servers)}
    with open(os.path.join(config, "config.json"), "w") as file:
        json.dump({"defaultProvider": "server0", "maxTurns": 40, "providers": providers}, file, indent=1)
    return {"PATH": os.environ["PATH"], "HOME": folder, "POSSE_HOME": os.path.join(folder, "home")}, work

def run(environment, work):
    """Milliseconds until the request arrived, and until the program had ended."""
    Hello.asked.clear()
    start = time.perf_counter()
    subprocess.run([posse, "run", "hello"], cwd=work, env=environment, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.perf_counter()
    return (Hello.asked[0] - start) * 1e3, (end - start) * 1e3

with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
    empty = home(one, 1)
    full = home(two, 25)
    os.makedirs(os.path.join(full[1], ".posse"))
    with open(os.path.join(full[1], ".posse", "config.json"), "w") as file:
        json.dump({"maxTurns": 30, "defaultAgent": "build"}, file)
    for _ in range(50):
        run(*full)
    for _ in range(3):
        run(*empty)
    pairs = []
    for _ in range(runs):
        # An empty home stays one, but for folders: making them would be a cost of its own.
        for session in glob.glob(os.path.join(one, "home/state/projects/*/sessions/*")):
            shutil.rmtree(session)
        pairs.append((run(*empty), run(*full)))

print(f"{'median of ' + str(runs):<28}{'empty':>10}{'full':>10}{'difference':>12}")
missed = False
for at, name in enumerate(["first request, ms", "whole run, ms"]):
    small, large = (statistics.median(pair[side][at] for pair in pairs) for side in (0, 1))
    missed |= large - small > LIMIT_MS
    print(f"{name:<28}{small:>10.2f}{large:>10.2f}{large - small:>12.2f}")
print(f"must be: difference <= {LIMIT_MS} ms{'   MISSED' if missed else ''}")
sys.exit(1 if missed else 0)
PYTHON
