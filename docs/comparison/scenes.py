#!/usr/bin/env python3
"""Draws the same 20 scenes in posse, codex, Claude Code, opencode and pi: each in tmux, with one scripted model.

    docs/comparison/scenes.py [--posse PATH] [--programs posse,codex] [--scenes 1,13] [--render] [--peers DIR]

The other programs are in DIR/inst/NAME/node_modules (npm packages of codex, Claude Code, opencode and pi, and
node 22). Captures of programs that are not run stay as they are. The pictures are in OUT/all, with one for each
program in OUT/png. All runs in a network namespace that has only loopback, which needs root, tmux, chromium,
pngquant, and the Python packages Pillow and wcwidth. A program starts with a fresh home folder, except with
--keep-home; scene 20 lists the sessions of the scenes before.
"""

import argparse, html, json, os, re, shutil, subprocess, sys, threading, time, unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--posse", default="target/dist/posse")
ap.add_argument("--programs", default="posse,codex,claude,opencode,pi")
ap.add_argument("--scenes")
ap.add_argument("--render", action="store_true", help="only draw the pictures anew")
ap.add_argument("--peers", default=os.environ.get("PEERS_ROOT", "target/peers"))
ap.add_argument("--dump")
ap.add_argument("--jobs", type=int, default=3)
ap.add_argument("--port", type=int, default=18777)
ap.add_argument("--keep-home", action="store_true")
ap.add_argument("--out", default="target/comparison", help="folder for captures and pictures")
ap.add_argument("--in-netns", action="store_true", help=argparse.SUPPRESS)
A = ap.parse_args()
PORT = A.port
ALL = ["posse", "codex", "claude", "opencode", "pi"]
A.out = os.path.abspath(A.out)
os.makedirs(A.out, exist_ok=True)
RUN = A.out + "/run"
N22 = A.peers + "/inst/node22/node_modules/node/bin"
BIN = {n: "%s/inst/%s/node_modules/.bin/%s" % (A.peers, n, n) for n in ALL[1:]}
BIN["posse"] = A.posse
TITLES = {
    1: "first screen",
    2: "first screen without configuration or key (80x24)",
    3: "slash palette",
    4: "palette filtered by /mo",
    5: "shortcuts or help",
    6: "model picker",
    7: "@ file completion",
    8: "Markdown answer",
    9: "wide table",
    10: "answer while it streams",
    11: "command with live output",
    12: "result of a command, long output folded",
    13: "permission for a command",
    14: "permission for an edit",
    15: "finished edit",
    16: "plan presented",
    17: "todo list during a task",
    18: "failed request (HTTP 500), 8 s after sending",
    19: "Markdown at 60x20",
    20: "session list",
    21: "Enter after /mo (not in the 20)",
}
SIZE = {2: (80, 24), 19: (60, 20)}
PROMPT = {
    8: "Explain how prices are computed",
    9: "Show the options in a table",
    10: "Describe the release steps",
    11: "Run the slow test suite",
    12: "Please run the tests",
    13: "Measure the coverage of the tests",
    14: "Add a discount parameter to price()",
    15: "Add a discount parameter to price()",
    16: "Plan the rounding change",
    17: "Please fix the rounding of invoices",
    18: "This is where the server fails",
    19: "Explain how prices are computed",
}
FILES = {
    "package.json": '{\n  "name": "shop",\n  "version": "1.3.0",\n  "type": "module",\n  "scripts": { "test": "node --test" }\n}\n',
    "README.md": "# shop\n\nPrices, carts and invoices.\n",
    "src/price.js": '// Prices of the shop, in euros.\n\nexport function price(quantity, unit) {\n  return Math.round(quantity * unit * 100) / 100;\n}\n\nexport function format(amount) {\n  return amount.toFixed(2) + " EUR";\n}\n',
    "src/cart.js": 'import { price } from "./price.js";\n\nexport function total(lines) {\n  return lines.reduce((sum, l) => sum + price(l.quantity, l.unit), 0);\n}\n',
    "src/invoice.js": 'import { price, format } from "./price.js";\n\nexport function invoice(lines) {\n  return lines.map((l) => l.name + "  " + format(price(l.quantity, l.unit))).join("\\n");\n}\n',
    "test/price.test.js": 'import test from "node:test";\nimport assert from "node:assert";\nimport { price } from "../src/price.js";\n\ntest("rounds to cents", () => assert.equal(price(3, 0.333), 1));\n',
    "test/cart.test.js": 'import test from "node:test";\nimport assert from "node:assert";\nimport { total } from "../src/cart.js";\n\ntest("adds up", () => assert.equal(total([{ quantity: 2, unit: 1.5 }]), 3));\n',
    "docs/prices.md": "# Prices\n\nAll prices are in euros.\n",
    ".gitignore": "node_modules\n",
}


def home(p):
    return "%s/%s/home" % (RUN, p)


def repo(p):
    return home(p) + "/shop"


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)


def fresh_repo(p):
    shutil.rmtree(repo(p), ignore_errors=True)
    for f, t in FILES.items():
        put(repo(p) + "/" + f, t)
    g = ["git", "-C", repo(p), "-c", "user.name=s", "-c", "user.email=s@s", "-c", "init.defaultBranch=main"]
    env = dict(os.environ, GIT_AUTHOR_DATE="2026-01-01T00:00:00Z", GIT_COMMITTER_DATE="2026-01-01T00:00:00Z")
    for c in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "shop"]):
        subprocess.run(g + c, check=True, env=env)


URL = "http://127.0.0.1:%d" % PORT


def setup(p, s):
    """write the configuration of program p for scene s; returns (argv, env)"""
    h, r = home(p), repo(p)
    env, argv = {}, [BIN[p]]
    bare = s == 2
    asks = s in (13, 14)
    if bare:
        h = h + "-bare"
        shutil.rmtree(h, ignore_errors=True)
        os.makedirs(h)
        shutil.copytree(r, h + "/shop")
        env["HOME"] = h
    if p == "posse":
        if not bare:
            put(
                h + "/.config/posse/config.json",
                json.dumps(
                    {
                        "defaultProvider": "bench",
                        "providers": {
                            "bench": {
                                "type": "openai-compatible",
                                "baseURL": URL + "/v1",
                                "model": "bench-large",
                                "auth": "none",
                                "contextWindow": 200000,
                            }
                        },
                    }
                ),
            )
        if asks:
            argv += ["tui", "--permission-mode", "ask"]
        if s == 16:
            argv += ["tui", "--permission-mode", "plan"]
    if p == "codex":
        env.update(BENCH_KEY="dummy")
        if bare:
            env.pop("BENCH_KEY")
        elif not os.path.exists(h + "/.codex/config.toml"):
            put(
                h + "/.codex/config.toml",
                'model = "gpt-5.5"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n[model_providers.bench]\nname = "bench"\nbase_url = "%s/v1"\nwire_api = "responses"\nenv_key = "BENCH_KEY"\n[analytics]\nenabled = false\n[feedback]\nenabled = false\n[otel]\nexporter = "none"\n[projects."%s"]\ntrust_level = "trusted"\n'
                % (URL, r),
            )
        argv += ["--no-daemon"]
        if asks:
            argv += ["-a", "on-request", "-s", "read-only"]
        elif not bare:
            argv += ["-a", "never", "-s", "danger-full-access"]
        if s == 17:
            argv += ["-c", "tools.update_plan={enabled=true}"]
    if p == "claude":
        env.update(
            DISABLE_AUTOUPDATER="1",
            DISABLE_TELEMETRY="1",
            DISABLE_ERROR_REPORTING="1",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )
        if not bare:
            env.update(ANTHROPIC_BASE_URL=URL, ANTHROPIC_API_KEY="sk-ant-dummy-0123456789abcdefghij")
            key = env["ANTHROPIC_API_KEY"]
            f = h + "/.claude.json"
            c = json.load(open(f)) if os.path.exists(f) else {}
            c.update(
                hasCompletedOnboarding=True,
                theme="dark",
                lastOnboardingVersion="2.1.330",
                customApiKeyResponses={"approved": [key[-20:]], "rejected": []},
                hasSeenTasksHint=True,
            )
            c.setdefault("projects", {}).setdefault(r, {}).update(
                hasTrustDialogAccepted=True, hasCompletedProjectOnboarding=True
            )
            put(f, json.dumps(c))
            argv += ["--permission-mode", "plan" if s == 16 else "default"]
            if s in (11, 12, 15, 17):
                argv += ["--allowedTools", "Bash", "Edit"]
            if s == 17:
                env.update(
                    CLAUDE_CODE_ENABLE_TODO_TOOLS="1"
                )  # the default model has its todo tools only then
        else:
            put(
                h + "/.claude.json",
                json.dumps(
                    {
                        "hasCompletedOnboarding": True,
                        "theme": "dark",
                        "lastOnboardingVersion": "2.1.330",
                        "projects": {h + "/shop": {"hasTrustDialogAccepted": True}},
                    }
                ),
            )  # its first start needs the network
    if p == "opencode":
        env.update(
            OPENCODE_DISABLE_AUTOUPDATE="1",
            OPENCODE_DISABLE_MODELS_FETCH="1",
            OPENCODE_DISABLE_LSP_DOWNLOAD="1",
            OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
        )
        if not bare:
            m = lambda n: {"name": n, "tool_call": True, "limit": {"context": 200000, "output": 32000}}
            put(
                h + "/.config/opencode/opencode.json",
                json.dumps(
                    {
                        "$schema": "https://opencode.ai/config.json",
                        "autoupdate": False,
                        "share": "disabled",
                        "model": "bench/bench-large",
                        "small_model": "bench/bench-small",
                        "permission": {
                            "bash": "ask" if asks else "allow",
                            "edit": "ask" if asks else "allow",
                        },
                        "provider": {
                            "bench": {
                                "npm": "@ai-sdk/openai-compatible",
                                "name": "bench",
                                "options": {"baseURL": URL + "/v1", "apiKey": "dummy"},
                                "models": {n: m(n) for n in ("bench-large", "bench-medium", "bench-small")},
                            }
                        },
                    }
                ),
            )
            if s == 16:
                argv += ["--agent", "plan"]
    if p == "pi":
        env.update(PI_OFFLINE="1", PI_TELEMETRY="0", PI_SKIP_VERSION_CHECK="1")
        if not bare:
            put(
                h + "/.pi/agent/models.json",
                json.dumps(
                    {
                        "providers": {
                            "bench": {
                                "baseUrl": URL + "/v1",
                                "api": "openai-completions",
                                "apiKey": "dummy",
                                "models": [
                                    {
                                        "id": n,
                                        "name": n,
                                        "reasoning": False,
                                        "input": ["text"],
                                        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                                        "contextWindow": 200000,
                                        "maxTokens": 32000,
                                    }
                                    for n in ("bench-large", "bench-medium", "bench-small")
                                ],
                            }
                        }
                    }
                ),
            )
            put(
                h + "/.pi/agent/settings.json",
                json.dumps(
                    {
                        "enableInstallTelemetry": False,
                        "defaultProvider": "bench",
                        "defaultModel": "bench-large",
                    }
                ),
            )
    return argv, env


NONE = {
    ("pi", 13): "no counterpart: pi asks for no permission",
    ("pi", 14): "no counterpart: pi asks for no permission",
    ("pi", 16): "no counterpart: pi has no plan mode",
    ("pi", 17): "no counterpart: pi has no todo list",
}
READY = {
    "posse": r"bench-large|provider",
    "codex": r"(?i)gpt-5.5|sign in",
    "claude": r"❯|theme|text style",
    "opencode": r"bench-large|Ask anything|Connect",
    "pi": r"bench-large|No model|/login|escape",
}


class Pane:
    def __init__(s, sock, p, cols, rows, argv, env):
        s.sock, s.p, s.size = sock, p, (cols, rows)
        e = {
            "PATH": N22 + ":" + A.peers + "/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": home(p),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "USER": "dev",
            "SHELL": "/bin/bash",
            "TMPDIR": RUN + "/" + p + "/tmp",
            **env,
        }
        os.makedirs(e["TMPDIR"], exist_ok=True)
        cmd = "cd %s/shop; sleep 0.4; exec env -i %s" % (
            e["HOME"],
            " ".join("'%s'" % x for x in ["%s=%s" % kv for kv in e.items()] + argv),
        )
        s.t(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            p,
            "-x",
            str(cols),
            "-y",
            str(rows),
            cmd,
            ";",
            "set",
            "-g",
            "status",
            "off",
            ";",
            "set",
            "-g",
            "window-style",
            "bg=#1e1e1e,fg=#d4d4d4",
            ";",
            "set",
            "-g",
            "remain-on-exit",
            "on",
            ";",
            "set",
            "-sg",
            "escape-time",
            "20",
        )
        s.t("resize-window", "-t", p, "-x", str(cols), "-y", str(rows))

    def t(s, *a):
        return subprocess.run(["tmux", "-L", s.sock, *a], capture_output=True, text=True).stdout

    def text(s):
        return s.t("capture-pane", "-p", "-t", s.p)

    def wait(s, rx, limit=12):
        end = time.time() + limit
        while time.time() < end:
            if re.search(rx, s.text()):
                return True
            time.sleep(0.15)
        return False

    def still(s, quiet=0.9, limit=8):
        end, last, since = time.time() + limit, None, time.time()
        while time.time() < end:
            x = s.text()
            if x != last:
                last, since = x, time.time()
            elif time.time() - since >= quiet and x.strip():
                return
            time.sleep(0.15)

    def keys(s, *ks):
        for k in ks:
            if isinstance(k, (int, float)):
                time.sleep(k)
            elif k.startswith("="):
                s.t("send-keys", "-t", s.p, "-l", k[1:])
                time.sleep(0.35)
            else:
                s.t("send-keys", "-t", s.p, k)
                time.sleep(0.35)

    def save(s, n):
        a = s.t("capture-pane", "-e", "-p", "-N", "-t", s.p)
        x, y, f = s.t("display", "-p", "-t", s.p, "#{cursor_x} #{cursor_y} #{cursor_flag}").split()
        base = "%s/raw/%02d-%s" % (A.out, n, s.p)
        open(base + ".ansi", "w").write(a)
        json.dump(
            {"size": s.size, "cursor": [int(x), int(y)] if f == "1" else None}, open(base + ".json", "w")
        )

    def end(s):
        s.t("kill-session", "-t", s.p)
        s.t("kill-server")
        time.sleep(1.5 if s.p == "posse" else 0.4)  # time to end by itself
        for d in os.listdir("/proc"):  # what the program left running: known by its home
            if d.isdigit():
                try:
                    if any(
                        e.startswith(("HOME=%s/%s/" % (RUN, s.p)).encode())
                        for e in open("/proc/%s/environ" % d, "rb").read().split(b"\0")
                    ):
                        os.kill(int(d), 15)
                except OSError:
                    pass


def act(p, s, q):
    """what is typed in scene s, until the picture is to be taken"""
    send = lambda: q.keys("=" + PROMPT[s], 0.3, "Enter")
    if s == 3:
        q.keys("=/", 0.8)
    elif s == 4:
        q.keys("=/", 0.4, "=m", 0.2, "=o", 0.8)
    elif s == 21:
        q.keys("=/", 0.4, "=m", 0.2, "=o", 0.8, "Enter", 1.5)
    elif s == 5:
        q.keys(
            *{
                "posse": ["=?"],
                "codex": ["=?"],
                "claude": ["=?"],
                "opencode": ["=/help", 0.5, "Enter"],
                "pi": ["=/hotkeys", 0.5, "Enter"],
            }[p],
            1,
        )
    elif s == 6:
        q.keys("=" + ("/models" if p == "opencode" else "/model"), 0.6, "Enter", 1.5)
    elif s == 7:
        q.keys("=Look at @pri", 1.5)
    elif s in (8, 19):
        send()
        q.wait("guide", 45)
        q.still(1.5, 12)
    elif s == 9:
        send()
        q.wait("touches", 10)
        q.still(1.2, 8)
    elif s == 10:
        send()
        q.wait("Before a release", 45)
        time.sleep(5)
    elif s == 11:
        send()
        q.wait("test case [4-9]|test case 1", 45 if p == "opencode" else 4)
        time.sleep(3)
    elif s == 12:
        send()
        q.wait("rounded to cents everywhere", 45)
        q.still(1.2, 6)
    elif s in (13, 14):
        send()
        p == "opencode" and q.wait("Permission|Allow", 45)
        time.sleep(4)
        q.still(1, 6)
    elif s == 15:
        send()
        q.wait("callers are unchanged", 45)
        q.still(1.2, 6)
    elif s == 16:
        if p == "codex":
            q.keys("=/plan", 0.5, "Enter", 0.8)
        send()
        q.wait("sample invoice|npm test", 45)
        time.sleep(2)
        q.still(1.2, 6)
    elif s == 17:
        send()
        q.wait("Move the rounding", 45)
        time.sleep(6)
    elif s == 18:
        send()
        p == "opencode" and q.wait("rror|retry", 45)
        time.sleep(8)
    elif s == 20:
        q.keys("=" + ("/sessions" if p == "opencode" else "/resume"), 0.6, "Enter", 2)


def program(p, scenes):
    if not A.keep_home:
        shutil.rmtree(RUN + "/" + p, ignore_errors=True)
    os.makedirs(home(p), exist_ok=True)
    if p == "codex" and not A.keep_home:  # it asks once to try a newer model
        fresh_repo(p)
        argv, env = setup(p, 1)
        q = Pane("scenes%d%s" % (os.getpid(), p), p, 100, 30, argv, env)
        if q.wait("Try new model", 15):
            q.keys("Down", "Enter", 2)
        q.end()
    for s in scenes:
        base = "%s/raw/%02d-%s" % (A.out, s, p)
        if (p, s) in NONE:
            json.dump({"none": NONE[p, s]}, open(base + ".json", "w"))
            continue
        fresh_repo(p)
        cols, rows = SIZE.get(s, (100, 30))
        argv, env = setup(p, s)
        q = Pane("scenes%d%s" % (os.getpid(), p), p, cols, rows, argv, env)
        try:
            if not q.wait(READY[p], 60 if p == "opencode" else 25):
                print("%s %d: not ready: %r" % (p, s, q.text()[:200]), flush=True)
            time.sleep(1.0 if p == "opencode" else 0.3)
            q.still(0.9, 6)
            act(p, s, q)
            q.save(s)
            if p == "posse" and s in (3, 4, 5, 6, 7):
                q.keys("Escape", 0.2, "C-u", 1.3)  # else the draft comes back
            if s in (11, 13, 14, 16, 17, 18):
                q.keys("Escape", 0.5, "Escape", 1.5)  # end the run: the next scene lays the repository anew
        finally:
            q.end()
        print(time.strftime("%T"), p, s, flush=True)


# ---------- pictures ----------
FG, BG = "#d4d4d4", "#1e1e1e"
CW, LH = 8.4287, 16.3
BASE = [
    "#000000",
    "#cd3131",
    "#0dbc79",
    "#e5e510",
    "#2472c8",
    "#bc3fbc",
    "#11a8cd",
    "#e5e5e5",
    "#666666",
    "#f14c4c",
    "#23d18b",
    "#f5f543",
    "#3b8eea",
    "#d670d6",
    "#29b8db",
    "#ffffff",
]


def idx(n):
    if n < 16:
        return BASE[n]
    if n < 232:
        n -= 16
        st = [0, 95, 135, 175, 215, 255]
        return "#%02x%02x%02x" % (st[n // 36], st[n // 6 % 6], st[n % 6])
    v = 8 + 10 * (n - 232)
    return "#%02x%02x%02x" % (v, v, v)


def wide(c):
    return (
        0
        if unicodedata.combining(c) or c in "\ufe0f\ufe0e\u200d"
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
    )


def pane_html(base):
    meta = json.load(open(base + ".json"))
    cols, rows = meta["size"]
    cur = meta["cursor"]
    st, out = {}, []

    def apply(params):
        q = [int(x or 0) for x in params.replace(":", ";").split(";")] if params else [0]
        i = 0
        while i < len(q):
            c = q[i]
            if c == 0:
                st.clear()
            elif c in (1, 2, 3, 4, 7, 9):
                st[c] = 1
            elif c == 22:
                st.pop(1, 0)
                st.pop(2, 0)
            elif c in (23, 24, 27, 29):
                st.pop(c - 20, 0)
            elif 30 <= c < 38:
                st["f"] = BASE[c - 30]
            elif 90 <= c < 98:
                st["f"] = BASE[c - 82]
            elif 40 <= c < 48:
                st["b"] = BASE[c - 40]
            elif 100 <= c < 108:
                st["b"] = BASE[c - 92]
            elif c in (38, 48):
                k = "f" if c == 38 else "b"
                if q[i + 1] == 5:
                    st[k] = idx(q[i + 2])
                    i += 2
                else:
                    st[k] = "#%02x%02x%02x" % tuple(q[i + 2 : i + 5])
                    i += 4
            elif c == 39:
                st.pop("f", 0)
            elif c == 49:
                st.pop("b", 0)
            i += 1

    def style(here):
        f, b = st.get("f", FG), st.get("b")
        if 7 in st:
            f, b = b or BG, f
        x = "color:%s;" % f + ("background:%s;" % b if b else "")
        if here:
            x = "color:%s;background:#aeafad;" % BG
        if 1 in st:
            x += "font-weight:bold;"
        if 2 in st and not here:
            x = re.sub(
                r"^color:(#\w+)",
                lambda m: (
                    "color:#"
                    + "".join(
                        "%02x" % ((int(m[1][i : i + 2], 16) * 6 + int((b or BG)[i : i + 2], 16) * 4) // 10)
                        for i in (1, 3, 5)
                    )
                ),
                x,
            )
        if 3 in st:
            x += "font-style:italic;"
        d = " ".join(n for k, n in ((4, "underline"), (9, "line-through")) if k in st)
        return x + ("text-decoration:%s;" % d if d else "")

    for y, line in enumerate(open(base + ".ansi").read().split("\n")[:rows]):
        runs, x = [], 0
        for m in re.finditer(
            r"\x1b\[([0-9;:]*)m|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|[\x0e\x0f]|\x1b\(.|([\s\S])", line
        ):
            if m[1] is not None:
                apply(m[1])
            if m[2] is None:
                continue
            c, w = m[2], wide(m[2])
            here = cur == [x, y]
            plain = c < "\x7f" or "\u2500" <= c <= "\u259f"
            k = (style(here), plain)
            if w == 0 and runs:
                runs[-1][1] += c
                continue
            if plain and runs and runs[-1][0] == k:
                runs[-1][1] += c
                runs[-1][2] += w
            else:
                runs.append([k, c, w])
            x += w
        if st.get("b") and 0 < x < cols and not (cur and cur[1] == y and cur[0] >= x):
            runs.append([(style(False), True), " ", cols - x])
            x = cols  # cleared to the end in this colour
        if cur and cur[1] == y and cur[0] >= x:
            runs += [[("", True), " " * (cur[0] - x), cur[0] - x], [("background:#aeafad;", True), " ", 1]]
        out.append(
            '<div style="height:%spx;white-space:pre">' % LH
            + "".join(
                '<span style="display:inline-block;overflow:visible;height:%spx;vertical-align:top;width:%.2fpx;%s">%s</span>'
                % (LH, w * CW, k[0], html.escape(c))
                for k, c, w in runs
            )
            + "</div>"
        )
    out += ['<div style="height:%spx"> </div>' % LH] * (rows - len(out))
    return "".join(out), cols, rows


def versions():
    f = A.out + "/versions.json"
    v = json.load(open(f)) if os.path.exists(f) else {}
    for p in ALL:
        if p not in v or p == "posse":
            o = subprocess.run(
                [BIN[p], "--version"],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                env={"HOME": RUN, "PATH": N22 + ":/usr/bin:/bin"},
            )
            m = re.search(r"\d+\.\d+\.\d+", o.stdout + o.stderr)
            if m:
                v[p] = m[0]
    json.dump(v, open(f, "w"))
    return v


def render(scenes):
    from PIL import Image

    v = versions()
    for s in scenes:
        cols, rows = SIZE.get(s, (100, 30))
        w, h = int(cols * CW) + 20, int(rows * LH) + 16
        per = 3 if w < 600 else 2
        W = per * (w + 10) + 10
        items, x, y = [], 0, 0
        body = ""
        for p in ALL:
            base = "%s/raw/%02d-%s" % (A.out, s, p)
            if not os.path.exists(base + ".json"):
                continue
            none = json.load(open(base + ".json")).get("none")
            cap = "<b>%s</b> %s" % (p, v.get(p, "?"))
            if none:
                if x:
                    x = 0
                    y += h + 26
                body += '<div class=c style="left:10px;top:%dpx">%s: %s</div>' % (y, cap, none)
                y += 24
                continue
            t, *_ = pane_html(base)
            left = 10 + x * (w + 10)
            body += (
                '<div class=c style="left:%dpx;top:%dpx">%s</div><div class=p style="left:%dpx;top:%dpx;width:%dpx;height:%dpx">%s</div>'
                % (left, y, cap, left, y + 22, w - 20, h - 16, t)
            )
            items.append((p, left, y + 22, w, h))
            x += 1
            if x == per:
                x = 0
                y += h + 26
        if x:
            y += h + 26
        page = (
            '<meta charset=utf8><style>body{margin:0;background:#3c4650}.c{position:absolute;white-space:nowrap;font:15px/20px DejaVu Sans;color:#fff}.p{position:absolute;padding:8px 10px;background:%s;font:14px/%spx DejaVu Sans Mono,Symbola;overflow:hidden}</style><div class=c style="left:10px;top:3px;color:#ffd479">%d. %s</div><div style="position:absolute;top:24px;left:0">%s</div>'
            % (BG, LH, s, TITLES[s], body)
        )
        f = "%s/page%d.html" % (A.out, os.getpid())
        open(f, "w").write(page)
        png = "%s/all/%02d.png" % (A.out, s)
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--window-size=%d,%d" % (W, y + 28),
                "--screenshot=" + png,
                "file://" + f,
            ],
            capture_output=True,
        )
        im = Image.open(png).convert("RGB")
        for p, l, t, iw, ih in items:
            o = "%s/png/%02d-%s.png" % (A.out, s, p)
            im.crop((l, t + 24, l + iw, t + 24 + ih)).save(o)
            subprocess.run(["pngquant", "--force", "--speed", "1", "--nofs", "--output", o, "64", o])
        whole = png[:-4] + ".rgb.png"
        os.replace(png, whole)
        for n in ("48", "32", "24", "16"):
            subprocess.run(["pngquant", "--force", "--speed", "1", "--nofs", "--output", png, n, whole])
            if os.path.getsize(png) <= 81920:
                break
        os.remove(whole)
        print("%s %d KB" % (png, os.path.getsize(png) // 1024), flush=True)


def main():
    todo = [int(x) for x in A.scenes.split(",")] if A.scenes else list(range(1, 21))
    for d in ("raw", "png", "all", "run"):
        os.makedirs(A.out + "/" + d, exist_ok=True)
    if not A.render:
        if not A.in_netns:
            sys.exit(
                subprocess.run(
                    [
                        "unshare",
                        "-n",
                        "bash",
                        "-c",
                        'ip link set lo up; exec "$0" "$@"',
                        sys.executable,
                        os.path.abspath(__file__),
                        *sys.argv[1:],
                        "--in-netns",
                    ]
                ).returncode
            )
        if A.dump:
            os.makedirs(A.dump, exist_ok=True)
        srv = subprocess.Popen([sys.executable, HERE + "/model.py", str(PORT)] + ([A.dump] if A.dump else []))
        time.sleep(0.5)
        sem = threading.Semaphore(A.jobs)

        def one(p):
            with sem:
                try:
                    program(p, todo)
                except Exception as e:
                    print(p, repr(e), flush=True)

        ts = [threading.Thread(target=one, args=(p,)) for p in A.programs.split(",")]
        [t.start() for t in ts]
        [t.join() for t in ts]
        srv.terminate()
        srv.wait()
    render(todo)


main()
