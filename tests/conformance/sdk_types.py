#!/usr/bin/env python3
"""Checks the request bodies of posse against the parameter types of the official Python SDKs.

    python3 tests/conformance/sdk_types.py                run the scripted scenarios, then check
    python3 tests/conformance/sdk_types.py --bodies DIR   check bodies that tests have recorded

Tests record each body that their servers accept when POSSE_REQUEST_BODIES names a folder
(src/provider/testing/strict.rs). A body is refused if a value has another type than the SDK
declares, if a required key is missing, or if there is a key that the SDK does not know. Keys that
posse sends on purpose only to servers with extensions are in EXTENSIONS; they are counted, removed,
and then the rest of the body has to be valid.

The SDKs come from PyPI, with the versions in requirements-sdk.txt, into a virtual environment in
the cache folder. Exit code: 0 if nothing is refused, 1 if a body is refused or a scenario is
missing, 2 if the SDKs cannot be installed.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import environments
from environments import HERE, ROOT

# Tests whose bodies are checked without --bodies: encoders with random histories, recorded replies
# cut at every byte, and whole runs of the program.
TESTS = [
    ["-p", "posse-provider", "--lib"],
    ["-p", "posse", "--test", "it", "--",
     "request_bodies", "dialects", "codex", "context", "files", "turns", "agents", "end_to_end"],
]

# Extensions by protocol: (where, key) -> reason. "where" is the type of the object that has the key.
EXTENSIONS = {
    "chat": {
        ("assistant", "reasoning_content"): "quirk returnReasoning: DeepSeek and others read it",
        ("assistant", "reasoning"): "quirk returnReasoning: OpenRouter and others read it",
        ("assistant", "thinking"): "quirk returnReasoning: the field that the server used",
        ("part", "cache_control"): "quirk cacheBreakpoints: OpenRouter and LiteLLM read it",
        ("tool_call", "extra_content"): "Gemini requires its signatures back",
        ("tool", "name"): "quirk toolResultName: Mistral and others require it",
    },
    "messages": {
        ("body", "temperature"): "only if the user sets one: other servers and older models read it",
    },
    "responses": {},
    "codex": {
        ("body", "client_metadata"): "the server behind a ChatGPT login requires it",
    },
}

# A scenario that every protocol must have recorded, and how a body shows it.
SCENARIOS = {
    "tools": lambda text: '"tools"' in text,
    "results of calls": lambda text: '"tool_use_id"' in text or '"tool_call_id"' in text
    or "function_call_output" in text,
    "images": lambda text: "base64" in text,
    "cut calls": lambda text: "Not run: the reply was cut off" in text,
    "compaction": lambda text: "Earlier parts of this conversation are not shown" in text,
    "subagents": lambda text: "delegate_agent" in text,
}
# Scenarios that only runs of the program have; the codex protocol has its own, smaller tests.
OPTIONAL = {"codex": {"images", "cut calls", "compaction", "subagents"}}


def record(folder):
    """Runs the scripted scenarios, which write their bodies to `folder`."""
    for test in TESTS:
        command = ["cargo", "test", "--locked", "--quiet", *test]
        print("running:", " ".join(command), flush=True)
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "POSSE_REQUEST_BODIES": folder})
        if done.returncode != 0:
            sys.exit(1)


def strict(schema):
    """A core schema that reads iterables, forbids unknown keys and converts nothing."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if isinstance(schema, tuple):
        return tuple(strict(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind == "default" and callable(schema.get("default_factory")):
        return schema
    schema = {key: value if key == "metadata" else strict(value) for key, value in schema.items()}
    if kind == "generator":
        # An iterable is validated only while it is read: as a list it is validated at once.
        schema["type"] = "list"
    elif kind == "typed-dict":
        schema["extra_behavior"] = "forbid"
    if kind in ("str", "int", "float", "bool", "list", "dict", "typed-dict"):
        schema["strict"] = True
    return schema


def validators():
    """A function per protocol that returns the errors of a body."""
    from anthropic.types import message_create_params as messages
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import SchemaValidator

    def of(module, base):
        kinds = {stream: SchemaValidator(strict(TypeAdapter(getattr(module, base + name)).core_schema))
                 for stream, name in ((True, "Streaming"), (False, "NonStreaming"))}

        def errors(body):
            try:
                kinds[body.get("stream") is True].validate_python(body)
            except ValidationError as error:
                return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
                        for one in error.errors(include_url=False, include_input=False)]
            return []

        return errors

    response = of(responses, "ResponseCreateParams")
    return {"chat": of(chat, "CompletionCreateParams"), "messages": of(messages, "MessageCreateParams"),
            "responses": response, "codex": response}


def self_test(validate):
    """Faults that a body must be refused for: a validator that accepts everything finds nothing."""
    good = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    say = lambda part: {**good, "messages": [{"role": "user", "content": [part]}]}
    faults = [("chat", {**good, "bogus": 1}), ("chat", {**good, "max_tokens": "1"}),
              ("chat", say({"type": "text"})), ("chat", say({"type": "text", "text": "a", "x": 1})),
              ("messages", {**good, "bogus": 1}), ("messages", say({"type": "text", "text": 1})),
              ("messages", {"model": "m", "messages": good["messages"]}),
              ("responses", {"model": "m", "input": [{"role": "assistant", "content": [
                  {"type": "output_text", "text": "without annotations"}]}]}),
              ("responses", {"model": "m", "input": "hi", "bogus": 1})]
    for protocol, body in [("chat", good), ("messages", good),
                           ("responses", {"model": "m", "input": "hi"})]:
        assert not validate[protocol](body), (protocol, body, validate[protocol](body))
    for protocol, body in faults:
        assert validate[protocol](body), f"accepted as {protocol}: {body}"


def extensions(protocol, body):
    """Removes the extensions of `body`. Returns their names."""
    known, found = EXTENSIONS[protocol], []

    def drop(kind, value):
        for key in [key for key in value if (kind, key) in known]:
            del value[key]
            found.append(f"{kind}.{key}")

    drop("body", body)
    if protocol == "chat":
        for message in body.get("messages", []):
            drop(message.get("role"), message)
            for call in message.get("tool_calls", []):
                drop("tool_call", call)
            if isinstance(message.get("content"), list):
                for part in message["content"]:
                    drop("part", part)
    return found


def check(folder):
    """Validates all recorded bodies. Returns true if nothing is refused or missing."""
    validate = validators()
    self_test(validate)
    seen, total, refused = set(), collections.Counter(), collections.defaultdict(list)
    extended, shown = collections.Counter(), collections.defaultdict(set)
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        protocol = path.name.split("-")[0]
        for line in path.open(encoding="utf-8"):
            if (protocol, line) in seen:
                continue
            seen.add((protocol, line))
            body = json.loads(line)
            shown[protocol] |= {name for name, test in SCENARIOS.items() if test(line)}
            for name in extensions(protocol, body):
                extended[f"{protocol}: {name}"] += 1
            total[protocol] += 1
            errors = validate[protocol](body)
            if errors:
                refused[protocol].append((errors, line))
    good = True
    for protocol in EXTENSIONS:
        print(f"{protocol}: {total[protocol]} bodies, {len(refused[protocol])} refused")
        for errors, line in refused[protocol][:5]:
            print(f"  {line.strip()[:400]}")
            for error in errors[:12]:
                print(f"    {error}")
        missing = set(SCENARIOS) - shown[protocol] - OPTIONAL.get(protocol, set())
        if missing:
            print(f"  no body of: {', '.join(sorted(missing))}")
        good &= not refused[protocol] and not missing
    for name, count in sorted(extended.items()):
        print(f"extension of {name}: {count} times")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", help="folder with recorded bodies")
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.installed:
        sys.exit(0 if check(args.bodies) else 1)
    python = environments.venv("sdk") / "python"
    with tempfile.TemporaryDirectory(prefix="posse-bodies-") as folder:
        if not args.bodies:
            record(folder)
        bodies = args.bodies or folder
        checker = [str(python), str(HERE / "sdk_types.py"), "--installed", "--bodies", bodies]
        sys.exit(subprocess.run(checker).returncode)


if __name__ == "__main__":
    main()
