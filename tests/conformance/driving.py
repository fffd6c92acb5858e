"""Drives `posse run` with stream-json on both sides: one prompt, and "allow once" for each question."""

import json
import queue
import subprocess
import threading


def converse(command, work, env, prompt, patience):
    """Runs `command` in `work` with `prompt`. Returns its events, what went wrong, the exit code and the
    lines of standard error. It is ended after `patience` seconds without an event."""
    process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines, errors, events, wrong = queue.Queue(), [], [], []
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout]
                     + [lines.put(None)], daemon=True).start()
    threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()

    def send(**message):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()

    send(type="message", content=prompt)
    try:
        while (line := lines.get(timeout=patience)) is not None:
            event = json.loads(line)
            events.append(event)
            kind = event["type"]
            if kind == "permission.requested":
                send(type="permission.answer", requestId=event["requestId"], decision="allow")
            if kind.startswith("agent.invocation.") and kind.rsplit(".", 1)[1] in (
                    "completed", "failed", "cancelled"):
                process.stdin.close()
    except queue.Empty:
        process.kill()
        wrong.append(f"no event for {patience} s")
    return events, wrong, process.wait(60), errors
