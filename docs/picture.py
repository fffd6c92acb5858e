#!/usr/bin/env python3
"""Records docs/tui.svg: the real program in tmux, driven from the keyboard against a scripted model.

    docs/picture.py [target/release/posse]

The screens of tmux become one animated SVG. A viewer without animations shows the permission request.

The program runs in a mount namespace where its folder is /home/me/shop, as on the machine of a user. Without
a mount namespace (unshare -m, as root or with -r) nothing is recorded.
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

COLUMNS, ROWS = 96, 30
# Seconds between two screens, and for which the last one stays.
STEP, LAST = 0.08, 5.0
TASK = "The test fails: find out why, and fix it."
SCRIPT = [
    {"text": "I will look at the function and at its test first.",
     "calls": [("read_file", {"path": "median.sh"}), ("grep", {"pattern": "median", "path": "."})]},
    {"text": "## The cause\n\n`median.sh` sorts **as text**, so `10` comes before `9`:\n\n```sh\nsorted=$(sort numbers.txt)"
             "   # 1 10 2 9\n```\n\n- `sort -n` compares numbers\n- nothing else has to change\n",
     "calls": [("edit_file", {"path": "median.sh", "oldString": "sorted=$(sort numbers.txt)",
                              "newString": "sorted=$(sort -n numbers.txt)"})]},
    {"text": "Now the test:", "calls": [("bash", {"command": "sh test.sh"})]},
    {"text": "The test passes. `median.sh` compared the numbers as text; it now uses `sort -n`.", "calls": []},
]
FILES = {
    "median.sh": "# The middle of the numbers.\nmedian() {\n    sorted=$(sort numbers.txt)\n    echo \"$sorted\" | sed -n 3p\n}\n",
    "numbers.txt": "10\n9\n2\n1\n11\n",
    "test.sh": ". ./median.sh\n[ \"$(median)\" = 9 ] && echo 'median: ok'\n",
}
BASE = ["#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9"]
PLAIN, BACKGROUND = "#d8dee9", "#1e222a"
WIDE, HIGH = 8.4, 19


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        answer = SCRIPT[min(Model.asked, len(SCRIPT) - 1)]
        Model.asked += 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in re.findall(r"\S*\s*", answer["text"]):
            if word:
                self.event({"choices": [{"index": 0, "delta": {"content": word}}]})
                time.sleep(0.05)
        calls = [{"index": nth, "id": f"call_{Model.asked}_{nth}", "type": "function",
                  "function": {"name": name, "arguments": json.dumps(arguments)}}
                 for nth, (name, arguments) in enumerate(answer["calls"])]
        if calls:
            self.event({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}],
                    "usage": {"prompt_tokens": 6100 + 900 * Model.asked, "completion_tokens": 210}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def do_GET(self):
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Style:
    """The look of text, as SGR sequences set it."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.front = self.back = None
        self.bold = self.dim = self.italic = self.underlined = self.struck = self.reversed = False

    def apply(self, codes):
        codes = [int(code or 0) for code in re.split("[;:]", codes)]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code in (38, 48):
                colour = Style.extended(codes)
                self.front, self.back = (colour, self.back) if code == 38 else (self.front, colour)
            elif code in (39, 49):
                self.front, self.back = (None, self.back) if code == 39 else (self.front, None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.front = BASE[code % 10]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.back = BASE[code % 10]
            elif code == 22:
                self.bold = self.dim = False
            else:
                name = {1: "bold", 2: "dim", 3: "italic", 4: "underlined", 7: "reversed", 9: "struck"}
                if code in name:
                    setattr(self, name[code], True)
                elif code - 20 in name:
                    setattr(self, name[code - 20], False)

    @staticmethod
    def extended(codes):
        kind = codes.pop(0)
        if kind == 2:
            parts, codes[:3] = codes[:3], []
            return "#%02x%02x%02x" % tuple(parts)
        number = codes.pop(0)
        if number < 16:
            return BASE[number % 8]
        if number >= 232:
            return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3)
        steps = [0, 95, 135, 175, 215, 255]
        number -= 16
        return "#%02x%02x%02x" % (steps[number // 36], steps[number // 6 % 6], steps[number % 6])

    def look(self):
        front, back = self.front or PLAIN, self.back
        if self.reversed:
            front, back = back or BACKGROUND, front
        text = f'fill="{front}"' + ' font-weight="bold"' * self.bold + ' opacity="0.6"' * self.dim
        lines = " ".join(["underline"] * self.underlined + ["line-through"] * self.struck)
        text += ' font-style="italic"' * self.italic + f' text-decoration="{lines}"' * bool(lines)
        return text, back


def draw_row(row, style):
    """A row of the screen as elements at the height 0. The style continues in the next row."""
    out, column = [], 0
    row = re.sub(r"\x1b\]8;.*?(\x1b\\|\x07)", "", row)
    for text in re.split(r"(\x1b\[[0-9;:]*m)", row):
        if text.startswith("\x1b"):
            style.apply(text[2:-1])
            continue
        look, back = style.look()
        if text and back:
            out.append(f'<rect x="{16 + column * WIDE:.1f}" y="-14" width="{len(text) * WIDE:.1f}" height="{HIGH}" fill="{back}"/>')
        if text.strip():
            lead = len(text) - len(text.lstrip(" "))
            shown = text.strip(" ")
            out.append(f'<text x="{16 + (column + lead) * WIDE:.1f}" textLength="{len(shown) * WIDE:.1f}" {look}>'
                       f"{html.escape(shown)}</text>")
        column += len(text)
    # The background of a row extends to the right edge; tmux leaves out the erased cells.
    if column and column < COLUMNS and style.back:
        out.append(f'<rect x="{16 + column * WIDE:.1f}" y="-14" width="{(COLUMNS - column) * WIDE:.1f}" height="{HIGH}" fill="{style.back}"/>')
    return "".join(out)


def draw(screens, poster):
    """An animation of screens, each a pair of its time and its text. `poster` is the index of the screen for viewers
    without animations."""
    # The first time of an animation must be 0; with another one, browsers ignore it.
    begin = screens[0][0]
    total = screens[-1][0] - begin + LAST
    # Each different content of a row, and the screens that show it.
    shown = {}
    for nth, (_, screen) in enumerate(screens):
        style = Style()
        for y, row in enumerate(screen.rstrip("\n").split("\n")[:ROWS]):
            drawn = draw_row(row, style)
            if drawn:
                shown.setdefault((y, drawn), []).append(nth)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDE + 32:.0f}" height="{ROWS * HIGH + 36}" '
           'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" xml:space="preserve">',
           "<style>text { white-space: pre }</style>",
           f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    for (y, drawn), at in shown.items():
        at = set(at)
        changes = [nth for nth in range(len(screens)) if nth == 0 or (nth in at) != (nth - 1 in at)]
        place = f'transform="translate(0 {28 + y * HIGH})"'
        if len(changes) == 1:
            out.append(f"<g {place}>{drawn}</g>")
            continue
        times = ";".join(f"{(screens[nth][0] - begin) / total:.4f}".rstrip("0").rstrip(".") for nth in changes)
        values = ";".join("visible" if nth in at else "hidden" for nth in changes)
        hidden = "" if poster in at else ' visibility="hidden"'
        out.append(f'<g {place}{hidden}>{drawn}<animate attributeName="visibility" values="{values}" keyTimes="{times}" '
                   f'calcMode="discrete" dur="{total:.2f}s" repeatCount="indefinite"/></g>')
    return "\n".join([*out, "</svg>\n"])


class Recorder(threading.Thread):
    """Takes the screens of a tmux session, without those that are like the one before."""

    def __init__(self, capture):
        super().__init__(daemon=True)
        self.capture, self.screens, self.ended = capture, [], threading.Event()

    def run(self):
        begin = time.monotonic()
        while not self.ended.wait(STEP):
            screen = self.capture()
            if not self.screens or self.screens[-1][1] != screen:
                self.screens.append((time.monotonic() - begin, screen))


def main():
    binary = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/posse")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = tempfile.mkdtemp()
    # The program may have been built below /home, which is hidden in the namespace.
    binary = shutil.copy(binary, f"{place}/program")
    for name in ["home/me/shop/.git", "tmp", "posse/config"]:
        os.makedirs(f"{place}/{name}")
    for name, text in FILES.items():
        with open(f"{place}/home/me/shop/{name}", "w") as file:
            file.write(text)
    provider = {"type": "openai-compatible", "baseURL": f"http://127.0.0.1:{server.server_address[1]}/v1",
                "model": "coder-1", "auth": "none"}
    with open(f"{place}/posse/config/config.json", "w") as file:
        json.dump({"defaultProvider": "local", "permissionMode": "ask", "providers": {"local": provider},
                   "models": {"coder-1": {"contextWindow": 128000}}}, file)
    tmux = ["tmux", "-f", "/dev/null", "-S", f"{place}/socket"]
    enter = "unshare -m" if os.geteuid() == 0 else "unshare -rm"
    env = (f"env -i PATH='{os.environ['PATH']}' HOME=/home/me POSSE_HOME={place}/posse TMPDIR={place}/tmp "
           "TERM=tmux-256color COLORTERM=truecolor TMUX=1 LANG=C.UTF-8")

    def run(*args):
        return subprocess.run([*tmux, *args], check=True, capture_output=True, text=True).stdout

    def wait(text):
        for _ in range(1500):
            if text in run("capture-pane", "-p", "-t", "t"):
                return
            time.sleep(0.02)
        sys.exit(f"{text} did not come:\n" + run("capture-pane", "-p", "-t", "t"))

    def answer(key, seconds):
        time.sleep(seconds)
        run("send-keys", "-t", "t", key)

    recorder = Recorder(lambda: run("capture-pane", "-p", "-e", "-t", "t"))
    try:
        run("new-session", "-d", "-s", "t", "-x", str(COLUMNS), "-y", str(ROWS),
            f"{enter} sh -c \"sleep 0.5 && mount --bind {place}/home /home && cd /home/me/shop && exec {env} '{binary}'\"")
        # The colours that the terminal reports to posse.
        run("set", "-g", "window-style", f"bg={BACKGROUND},fg={PLAIN}")
        wait("coder-1 via local")
        recorder.start()
        time.sleep(1)
        for letter in TASK:
            run("send-keys", "-t", "t", "-l", letter)
            time.sleep(0.04)
        answer("Enter", 0.5)
        wait("[y] once")
        time.sleep(3)
        poster = len(recorder.screens) - 1
        run("send-keys", "-t", "t", "y")
        wait("sh test.sh")
        wait("[y] once")
        answer("y", 2)
        wait("Done in")
        time.sleep(1)
        recorder.ended.set()
        recorder.join()
    finally:
        recorder.ended.set()
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tui.svg"), "w") as file:
        file.write(draw(recorder.screens, poster))


if __name__ == "__main__":
    main()
