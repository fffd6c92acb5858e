#!/usr/bin/env python3
"""Draws docs/tui.svg: the real program in tmux, driven from the keyboard against a scripted model.

    docs/picture.py [target/release/posse]

The program runs in a mount namespace where its folder is /home/me/shop, as it would be on a machine of somebody's
own: without one (unshare -m, as root or with -r) nothing is drawn.
"""

import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

COLUMNS, ROWS = 96, 34
TASK = "The test fails: find out why, and mend it."
SCRIPT = [
    {"text": "I will look at the function and at its test first.",
     "calls": [("read_file", {"path": "median.sh"}), ("grep", {"pattern": "median", "path": "."})]},
    {"text": "## The cause\n\n`median.sh` sorts **as text**, so `10` comes before `9`:\n\n```sh\nsorted=$(sort numbers.txt)"
             "   # 1 10 2 9\n```\n\n- `sort -n` compares numbers\n- nothing else has to change\n",
     "calls": [("edit_file", {"path": "median.sh", "oldString": "sorted=$(sort numbers.txt)",
                              "newString": "sorted=$(sort -n numbers.txt)"})]},
]
COLOURS = {30: "#3b4252", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2"}


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        answer = SCRIPT[min(Model.asked, len(SCRIPT) - 1)]
        Model.asked += 1
        calls = [{"index": nth, "id": f"call_{nth}", "type": "function",
                  "function": {"name": name, "arguments": json.dumps(arguments)}}
                 for nth, (name, arguments) in enumerate(answer["calls"])]
        pieces = [{"choices": [{"index": 0, "delta": {"content": answer["text"]}}]},
                  {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
                   "usage": {"prompt_tokens": 6100 + 900 * Model.asked, "completion_tokens": 210}}]
        body = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def draw(screen):
    """The rows of a terminal, with their colours, as SVG."""
    wide, high = 8.4, 19
    rows = screen.rstrip("\n").split("\n")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * wide + 32:.0f}" height="{len(rows) * high + 36}" '
           'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
           '<rect width="100%" height="100%" rx="8" fill="#1e222a"/>']
    colour, bold, dim, italic, underlined = None, False, False, False, False
    for y, row in enumerate(rows):
        column = 0
        for text in re.split(r"(\x1b\[[0-9;]*m)", row):
            if text.startswith("\x1b"):
                for code in [int(code or 0) for code in text[2:-1].split(";")]:
                    if code == 0:
                        colour, bold, dim, italic, underlined = None, False, False, False, False
                    bold, dim, italic = bold or code == 1, dim or code == 2, italic or code == 3
                    underlined = underlined or code == 4
                    colour = None if code == 39 else COLOURS.get(code, colour)
                continue
            if text.strip():
                look = f'fill="{colour or "#d8dee9"}"' + ' font-weight="bold"' * bold + ' opacity="0.6"' * dim
                look += ' font-style="italic"' * italic + ' text-decoration="underline"' * underlined
                lead = len(text) - len(text.lstrip())
                shown = html.escape(text.strip(" "))
                length = f'textLength="{len(text.strip(" ")) * wide:.1f}"'
                out.append(f'<text x="{16 + (column + lead) * wide:.1f}" y="{28 + y * high}" xml:space="preserve" '
                           f'{length} {look}>{shown}</text>')
            column += len(text)
    return "\n".join(out + ["</svg>\n"])


def main():
    binary = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/posse")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = tempfile.mkdtemp()
    # Where it was built may be below /home.
    binary = shutil.copy(binary, f"{place}/program")
    for name in ["home/me/shop/.git", "tmp", "posse/config"]:
        os.makedirs(f"{place}/{name}")
    with open(f"{place}/home/me/shop/median.sh", "w") as file:
        file.write("# The middle of the numbers.\nmedian() {\n    sorted=$(sort numbers.txt)\n    echo \"$sorted\" | sed -n 3p\n}\n")
    provider = {"type": "openai-compatible", "baseURL": f"http://127.0.0.1:{server.server_address[1]}/v1",
                "model": "coder-1", "auth": "none"}
    with open(f"{place}/posse/config/config.json", "w") as file:
        json.dump({"defaultProvider": "local", "permissionMode": "ask", "providers": {"local": provider},
                   "models": {"coder-1": {"contextWindow": 128000}}}, file)
    tmux = ["tmux", "-f", "/dev/null", "-S", f"{place}/socket"]
    enter = "unshare -m" if os.geteuid() == 0 else "unshare -rm"
    env = f"env -i PATH='{os.environ['PATH']}' HOME=/home/me POSSE_HOME={place}/posse TMPDIR={place}/tmp TERM=tmux-256color TMUX=1"

    def run(*args):
        return subprocess.run([*tmux, *args], check=True, capture_output=True, text=True).stdout

    def wait(what):
        for _ in range(1500):
            if what in run("capture-pane", "-p", "-t", "t"):
                return
            time.sleep(0.02)
        sys.exit(f"{what} did not come:\n" + run("capture-pane", "-p", "-t", "t"))

    try:
        run("new-session", "-d", "-s", "t", "-x", str(COLUMNS), "-y", str(ROWS),
            f"{enter} sh -c \"mount --bind {place}/home /home && cd /home/me/shop && exec {env} '{binary}'\"")
        wait("coder-1 via local")
        run("send-keys", "-t", "t", "-l", TASK)
        run("send-keys", "-t", "t", "Enter")
        wait("[y] once")
        time.sleep(0.6)
        screen = run("capture-pane", "-p", "-e", "-t", "t")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tui.svg"), "w") as file:
        file.write(draw(screen))


if __name__ == "__main__":
    main()
