#!/usr/bin/env python3
"""model.py PORT [DUMPDIR]: scripted model server on loopback: OpenAI Chat, OpenAI Responses, Anthropic Messages.
The words of the last prompt choose the script (SCRIPTS); the number of tool results says which turn it is."""

import http.server, json, re, sys, time, os, zlib, itertools

DUMP = sys.argv[2] if len(sys.argv) > 2 else None
MD = """## How prices are computed

`price()` multiplies **quantity** by *unit price* and rounds to cents. Three places call it:

- `src/cart.js` adds up the lines of a cart
- `src/invoice.js` prints each line
  - discounts are applied *before* rounding, so a cart of many small lines can differ from its invoice by a cent
- `test/price.test.js` checks the rounding

```js
export function price(quantity, unit) {
  return Math.round(quantity * unit * 100) / 100; // cents
}
```

1. Round once, at the end
2. Test with `0.1 + 0.2`

- [x] read the callers
- [ ] move the rounding into `total()`

> The tax office rounds per invoice, not per line.

See the [guide](https://example.org/guide/prices#rounding) for the rules."""
TABLE = """Three ways to fix it:

| Option | What changes | Files | Risk | Effort |
|:---|:---|---:|:---:|---|
| A: round once | `total()` rounds the sum; `price()` returns the exact product, callers that print a line round it themselves | 3 | low | half an hour with tests |
| B: integer cents | all amounts become integers of cents, parsing and printing convert at the edges of the module | 9 | medium | a day, plus a migration of stored carts |
| C: decimal library | amounts are `Decimal` objects | 12 | high | two days |

I would take **A**: it mends the defect and touches little."""
STREAM = """## Release steps

Before a release, the version in `package.json` and the changelog must agree. The steps are:

1. Run the tests and the linter, and look at the coverage of `src/price.js`
2. Raise the version: `npm version minor`
3. Write the changelog from the merged pull requests
4. Push the tag; the workflow publishes the package

```sh
npm test && npm run lint
npm version minor -m "release %s"
git push --follow-tags
```

If the workflow fails, the tag stays. Delete it with `git push --delete origin v1.4.0`, mend the cause, and start again from the second step. Never publish by hand: the package would have no provenance, and the next release would be refused by the registry because its version is taken.

| Step | Who | Time |
|---|---|---|
| tests | CI | 4 min |
| publish | CI | 1 min |
| announcement | you | 10 min |

After the release, watch the error reports for an hour."""
PLAN = """# Round once, in `total()`

## Steps

1. `src/price.js`: return the exact product, without rounding
2. `src/cart.js`: round the sum in `total()`
3. `src/invoice.js`: round each printed line
4. `test/price.test.js`: a cart of 100 lines at 0.015

## Checks

- `npm test`
- the sample invoice in `test/sample.txt` stays the same"""
LIVE = 'for i in $(seq 1 60); do echo "test case $i: price of item $i ... ok"; sleep 0.4; done'
LONG = 'for i in $(seq 1 60); do echo "ok $i - price of item $i is rounded to cents"; done; echo "# tests 60"; echo "# pass 60"'
ASKED = "npm install --save-dev c8 && npx c8 --reporter=text npm test 2>&1 | tail -40"
OLD = "export function price(quantity, unit) {\n  return Math.round(quantity * unit * 100) / 100;\n}"
NEW = "export function price(quantity, unit, discount = 0) {\n  const exact = quantity * unit * (1 - discount);\n  return Math.round(exact * 100) / 100;\n}"
TODOS = [
    ("Read the callers of price()", "completed"),
    ("Move the rounding into total()", "in_progress"),
    ("Round each printed line of an invoice", "pending"),
    ("Add a test with 100 small lines", "pending"),
    ("Run the whole test suite", "pending"),
]


# words of the prompt -> turns; a turn is ('text', str, seconds per piece) or a list of calls (kind, argument)
def say(t, d=0.004):
    return ("text", t, d)


SCRIPTS = [
    ("how prices are computed", [say(MD)]),
    ("options in a table", [say(TABLE)]),
    ("release steps", [say(STREAM, 0.12)]),
    ("slow test suite", [[("bash", LIVE)], say("All 60 tests pass.")]),
    (
        "run the tests",
        [[("bash", LONG)], say("All **60** tests pass. Prices are rounded to cents everywhere.")],
    ),
    ("coverage", [[("bash", ASKED)], say("Done.")]),
    (
        "discount parameter",
        [
            [("read", "src/price.js")],
            [("edit", ("src/price.js", OLD, NEW))],
            say("`price()` takes a `discount` now, a fraction of the price. Existing callers are unchanged."),
        ],
    ),
    ("plan the rounding", [[("plan", PLAN)], say("The plan is ready.")]),
    (
        "fix the rounding",
        [
            [("todo", TODOS)],
            [("read", "src/cart.js")],
            [("bash", 'grep -rn "price(" src test && node -e "setTimeout(() => {}, 30000)"')],
            say("Done."),
        ],
    ),
    ("server fails", "fail"),
]
ids = itertools.count(1)


def schema_fill(schema, a):
    for r in schema.get("required", []):
        if r in a:
            continue
        p = schema["properties"][r]
        t = p.get("type")
        a[r] = (
            p["enum"][0]
            if "enum" in p
            else {"number": 1, "integer": 1, "boolean": False, "array": []}.get(t, "run it")
        )
    return a


REPO = os.environ.get("SCENES_REPO", "")


def call(kind, arg, tools, repo):
    """the call of one kind in the words of the program's own tools: (name, args) or (name, raw text)"""

    def has(*ns):
        return next((n for n in ns if n in tools), None)

    props = lambda n: (tools[n] or {}).get("properties", {})
    if kind == "bash":
        n = has("bash", "Bash", "exec_command", "shell_command", "shell")
        if not n:
            return None
        p = props(n)
        k = "cmd" if "cmd" in p else "command"
        a = {k: ["bash", "-lc", arg] if p.get(k, {}).get("type") == "array" else arg}
        if "description" in p:
            a["description"] = (
                "Run the tests"
                if "seq" in arg
                else "Measure the coverage"
                if "c8" in arg
                else "Search for callers"
            )
        if "yield_time_ms" in p:
            a["yield_time_ms"] = 30000
        if "c8" in arg and "sandbox_permissions" in p:
            a.update(
                sandbox_permissions="require_escalated",
                justification="Install c8 from the registry to measure coverage?",
            )
        return n, a
    if kind == "read":
        n = has("read_file", "Read", "read")
        if not n:
            return call("bash", "cat " + arg, tools, repo)
        k = next(k for k in ("path", "file_path", "filePath") if k in props(n))
        return n, {k: arg if n == "read_file" else repo + "/" + arg}
    if kind == "edit":
        f, old, new = arg
        n = has("edit_file", "Edit", "edit")
        if n:
            p = props(n)
            k = next(k for k in ("path", "file_path", "filePath") if k in p)
            a = {k: f if n == "edit_file" else repo + "/" + f}
            if "edits" in p and "oldString" not in p:
                a["edits"] = [{"oldText": old, "newText": new}]
            else:
                o = next(x for x in ("oldString", "old_string", "oldText") if x in p)
                w = {"oldString": "newString", "old_string": "new_string", "oldText": "newText"}[o]
                a[o], a[w] = old, new
            return n, a
        pa = "*** Begin Patch\n*** Update File: %s\n@@\n%s\n%s\n*** End Patch" % (
            f,
            "\n".join("-" + l for l in old.split("\n")),
            "\n".join("+" + l for l in new.split("\n")),
        )
        # keep equal lines as context
        pa = "*** Begin Patch\n*** Update File: %s\n@@\n-%s\n-%s\n+%s\n }\n*** End Patch" % (
            f,
            old.split("\n")[0],
            old.split("\n")[1],
            "\n+".join(new.split("\n")[:-1]),
        )
        if "apply_patch" in tools:
            return "apply_patch", ({"input": pa} if tools["apply_patch"] else pa)
        return call("bash", "apply_patch <<'EOF'\n%s\nEOF" % pa, tools, repo)
    if kind == "todo":
        n = has("todo_write", "TodoWrite", "todowrite", "update_plan")
        if n == "update_plan":
            return n, {"plan": [{"step": c, "status": s} for c, s in arg]}
        if n:
            it = props(n)["todos"]["items"]["properties"]
            l = []
            for i, (c, s) in enumerate(arg):
                t = {"content": c, "status": s}
                if "activeForm" in it:
                    t["activeForm"] = c.replace("Move", "Moving")
                if "priority" in it:
                    t["priority"] = "high"
                if "id" in it:
                    t["id"] = str(i + 1)
                l.append(t)
            return n, {"todos": l}
        return None
    if kind == "plan":
        n = has("present_plan", "ExitPlanMode", "plan_exit")
        if n == "present_plan":
            return n, {"plan": arg}
        if n == "ExitPlanMode":
            return n, schema_fill(tools[n], {"plan": arg})
        return None


class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def js(self, o, code=200):
        b = json.dumps(o).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(b)))
        self.end_headers()
        self.wfile.write(b)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        if "/models" in self.path:
            return self.js(
                {
                    "object": "list",
                    "data": [
                        {
                            "id": m,
                            "object": "model",
                            "created": 1700000000,
                            "owned_by": "bench",
                            "type": "model",
                            "display_name": m,
                        }
                        for m in ("bench-large", "bench-medium", "bench-small")
                    ],
                    "has_more": False,
                }
            )
        self.js({"error": {"message": "no such route", "type": "not_found_error"}}, 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        enc = self.headers.get("content-encoding")
        if enc == "gzip":
            body = zlib.decompress(body, 31)
        elif enc == "zstd":
            import subprocess

            body = subprocess.run(["zstd", "-dc"], input=body, capture_output=True).stdout
        path = self.path.split("?")[0]
        proto = (
            "chat"
            if path.endswith("/chat/completions")
            else "responses"
            if path.endswith("/responses")
            else "anthropic"
            if path.endswith("/messages")
            else None
        )
        if "count_tokens" in path:
            return self.js({"input_tokens": len(body) // 4})
        if not proto:
            return self.js({"error": {"message": "no such route", "type": "not_found_error"}}, 404)
        b = json.loads(body)
        if DUMP:
            open("%s/%s-%d-%d.json" % (DUMP, proto, int(time.time() * 1000), next(ids)), "w").write(
                json.dumps(b, indent=1)
            )
        tools, raw = {}, json.dumps(b)

        def add(t):
            if t.get("type") == "namespace":
                [add(x) for x in t.get("tools", [])]
            else:
                f = t.get("function", t)
                tools[f.get("name", t.get("type"))] = f.get("parameters", f.get("input_schema"))

        for t in b.get("tools") or []:
            add(t)
        msgs = b.get("messages") or b.get("input") or []
        for x in msgs:
            if isinstance(x, dict) and x.get("type") == "additional_tools":
                [add(t) for t in x.get("tools", [])]
        texts, results = [], 0
        for m in msgs if isinstance(msgs, list) else []:
            c = m.get("content")
            if m.get("role") == "tool" or str(m.get("type", "")).endswith("_call_output"):
                results += 1
            elif m.get("role") == "user":
                if isinstance(c, str):
                    texts.append(c)
                else:
                    for p in c or []:
                        if p.get("type") == "tool_result":
                            results += 1
                        elif "text" in p:
                            texts.append(p["text"])
        user = "\n".join(texts).lower()
        best = (-1, None)
        for k, s in SCRIPTS:
            at = user.rfind(k)
            if at > best[0]:
                best = (at, s, k)
        script = best[1]
        m = re.search(r'(/[^ "]*/run/[a-z]+/home/shop)', raw)
        repo = m.group(1) if m else REPO
        title = (
            ""
            if best[0] < 0
            else {
                "how": "Prices explained",
                "opt": "Options for rounding",
                "rel": "Release steps",
                "run": "Test run",
            }.get(best[2][:3], best[2].capitalize())
        )
        if script == "fail" and tools:
            return self.js(
                {
                    "error": {
                        "message": "The server had an error while processing your request",
                        "type": "server_error",
                    }
                }
                if proto != "anthropic"
                else {
                    "type": "error",
                    "error": {
                        "type": "api_error",
                        "message": "The server had an error while processing your request",
                    },
                },
                500,
            )
        if not tools or not script or script == "fail":
            turn = say(
                '{"title": "%s"}' % title
                if "json" in raw[-3000:].lower() and proto == "anthropic"
                else title or "Hello."
            )
        else:
            plan = re.search(r"create your plan at (\S+\.md)", raw)
            turn = script[min(results, len(script) - 1)]
            if (
                isinstance(script[0], list) and script[0][0][0] == "plan" and "ToolSearch" in tools and plan
            ):  # Claude Code: the plan is a file, the tool is loaded first
                turn = (
                    [
                        ("toolu_%d" % next(ids), "Write", {"file_path": plan[1], "content": PLAN}),
                        (
                            "toolu_%d" % next(ids),
                            "ToolSearch",
                            {"query": "select:ExitPlanMode", "max_results": 1},
                        ),
                    ]
                    if results == 0
                    else [("toolu_%d" % next(ids), "ExitPlanMode", {"plan": PLAN})]
                    if results < 3
                    else script[-1]
                )
            elif (
                isinstance(script[0], list)
                and script[0][0][0] == "todo"
                and "ToolSearch" in tools
                and "TaskCreate" in raw
            ):
                T = lambda n, a: ("toolu_%d" % next(ids), n, a)
                if results == 0:
                    turn = [T("ToolSearch", {"query": "select:TaskCreate,TaskUpdate", "max_results": 2})]
                elif results == 1:
                    turn = [
                        T(
                            "TaskCreate",
                            {"subject": c, "description": c, "activeForm": c.replace("Move", "Moving")},
                        )
                        for c, _ in TODOS
                    ]
                elif results == 6:
                    turn = [
                        T("TaskUpdate", {"taskId": str(i + 1), "status": st})
                        for i, (_, st) in enumerate(TODOS)
                        if st != "pending"
                    ]
                else:
                    turn = script[1] if results == 8 else script[2] if results == 9 else script[-1]
            if isinstance(turn, list) and len(turn[0]) == 3:
                self.calls = turn
            else:
                self.calls = None
            if isinstance(turn, list) and not self.calls:
                cs = [call(k, a, tools, repo) for k, a in turn]
                if None in cs:
                    if turn[0][0] == "plan":
                        turn = say(
                            "<proposed_plan>\n" + PLAN + "\n</proposed_plan>"
                            if proto == "responses"
                            else PLAN
                        )
                    else:
                        turn = say("No such tool.")
                else:
                    turn = [
                        ("toolu_%d" % next(ids) if proto == "anthropic" else "call_%d" % next(ids), n, a)
                        for n, a in cs
                    ]
        inp, out = 12400 + results * 800, 480
        if not b.get("stream", proto == "responses"):
            t = turn[1] if turn[0] == "text" else ""
            if proto == "chat":
                return self.js(
                    {
                        "id": "x",
                        "object": "chat.completion",
                        "model": b.get("model"),
                        "choices": [
                            {
                                "index": 0,
                                "message": {"role": "assistant", "content": t},
                                "finish_reason": "stop",
                            }
                        ],
                        "usage": {"prompt_tokens": inp, "completion_tokens": out, "total_tokens": inp + out},
                    }
                )
            return self.js(
                {
                    "id": "msg_x",
                    "type": "message",
                    "role": "assistant",
                    "model": b.get("model"),
                    "content": [{"type": "text", "text": t}],
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": inp, "output_tokens": out},
                }
            )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            getattr(self, "resp_api" if proto == "responses" else proto)(turn, b, inp, out)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def ev(self, d, e=None):
        self.wfile.write(
            (
                (("event: %s\n" % e) if e else "")
                + "data: "
                + (d if isinstance(d, str) else json.dumps(d))
                + "\n\n"
            ).encode()
        )
        self.wfile.flush()

    def pieces(self, turn):
        for p in re.findall(r"[\s\S]{1,12}", turn[1]):
            yield p
            time.sleep(turn[2])

    def chat(self, turn, b, inp, out):
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1700000000, "model": b.get("model")}
        ch = lambda d, f=None: self.ev({**base, "choices": [{"index": 0, "delta": d, "finish_reason": f}]})
        ch({"role": "assistant", "content": ""})
        if turn[0] == "text":
            for p in self.pieces(turn):
                ch({"content": p})
            ch({}, "stop")
        else:
            for i, (id, n, a) in enumerate(turn):
                ch(
                    {
                        "tool_calls": [
                            {
                                "index": i,
                                "id": id,
                                "type": "function",
                                "function": {"name": n, "arguments": json.dumps(a)},
                            }
                        ]
                    }
                )
            ch({}, "tool_calls")
        self.ev(
            {
                **base,
                "choices": [],
                "usage": {"prompt_tokens": inp, "completion_tokens": out, "total_tokens": inp + out},
            }
        )
        self.ev("[DONE]")

    def resp_api(self, turn, b, inp, out):
        resp = lambda st, o, u=None: {
            "id": "resp_x",
            "object": "response",
            "created_at": 1700000000,
            "status": st,
            "model": b.get("model"),
            "output": o,
            "usage": u,
        }
        e = lambda t, **o: self.ev({"type": t, **o}, t)
        e("response.created", response=resp("in_progress", []))
        if turn[0] == "text":
            item = {
                "id": "msg_x",
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
            e("response.output_item.added", output_index=0, item=item)
            e(
                "response.content_part.added",
                item_id="msg_x",
                output_index=0,
                content_index=0,
                part={"type": "output_text", "text": "", "annotations": []},
            )
            for p in self.pieces(turn):
                e("response.output_text.delta", item_id="msg_x", output_index=0, content_index=0, delta=p)
            items = [
                {
                    **item,
                    "status": "completed",
                    "content": [{"type": "output_text", "text": turn[1], "annotations": []}],
                }
            ]
        else:
            items = [
                {
                    "id": "fc_" + id,
                    "type": "custom_tool_call",
                    "status": "completed",
                    "call_id": id,
                    "name": n,
                    "input": a,
                }
                if isinstance(a, str)
                else {
                    "id": "fc_" + id,
                    "type": "function_call",
                    "status": "completed",
                    "call_id": id,
                    "name": n,
                    "arguments": json.dumps(a),
                }
                for id, n, a in turn
            ]
        for i, it in enumerate(items):
            if turn[0] != "text":
                e("response.output_item.added", output_index=i, item={**it, "status": "in_progress"})
            e("response.output_item.done", output_index=i, item=it)
        e(
            "response.completed",
            response=resp(
                "completed",
                items,
                {
                    "input_tokens": inp,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": out,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": inp + out,
                },
            ),
        )

    def anthropic(self, turn, b, inp, out):
        e = lambda t, **o: self.ev({"type": t, **o}, t)
        e(
            "message_start",
            message={
                "id": "msg_%d" % next(ids),
                "type": "message",
                "role": "assistant",
                "model": b.get("model"),
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": inp,
                    "output_tokens": 1,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                },
            },
        )
        if turn[0] == "text":
            e("content_block_start", index=0, content_block={"type": "text", "text": ""})
            for p in self.pieces(turn):
                e("content_block_delta", index=0, delta={"type": "text_delta", "text": p})
            e("content_block_stop", index=0)
        else:
            for i, (id, n, a) in enumerate(turn):
                e(
                    "content_block_start",
                    index=i,
                    content_block={"type": "tool_use", "id": id, "name": n, "input": {}},
                )
                e(
                    "content_block_delta",
                    index=i,
                    delta={"type": "input_json_delta", "partial_json": json.dumps(a)},
                )
                e("content_block_stop", index=i)
        e(
            "message_delta",
            delta={"stop_reason": "end_turn" if turn[0] == "text" else "tool_use", "stop_sequence": None},
            usage={"output_tokens": out},
        )
        e("message_stop")


class S(http.server.ThreadingHTTPServer):
    daemon_threads = True


S(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
