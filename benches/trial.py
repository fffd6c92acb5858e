#!/usr/bin/env python3
"""Cost of a trial: a command that changes 1,000 files in a tree of 50,000.

Usage: benches/trial.py PATH-TO-POSSE [ROUNDS]

Runs the command plainly and in `posse try` in turn, and prints medians. `shown` is the time from the
start of the program until the changes are printed, above the plain command; `kept` is the time from
then until they are in the workspace, without a checkpoint, which has figures of its own. `start` is
the part of `shown` that a command without changes takes as well: in a session the survey of the
workspace is cached. Exits with 1 if a bound is missed. POSSE_BENCH_DIR: folder for the tree.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FILES, CHANGED, FOLDERS = 50_000, 1_000, 500
SHOWN_MAX, KEPT_MAX = 150, 100
COMMAND = f"for at in $(seq 0 {CHANGED - 1}); do echo changed >> d$((at % {FOLDERS}))/f$at; done"


def tree(work):
    for at in range(FOLDERS):
        os.makedirs(f"{work}/d{at}")
    for at in range(FILES):
        with open(f"{work}/d{at % FOLDERS}/f{at}", "w") as file:
            file.write(f"line one of {at}\nline two\n" * 20)


def reset(work):
    for at in range(CHANGED):
        with open(f"{work}/d{at % FOLDERS}/f{at}", "w") as file:
            file.write(f"line one of {at}\nline two\n" * 20)


def digest(work):
    found = hashlib.sha256()
    for folder, folders, files in os.walk(work):
        folders.sort()
        for name in sorted(files):
            path = f"{folder}/{name}"
            stat = os.lstat(path)
            with open(path, "rb") as file:
                found.update(f"{path} {stat.st_mode} {stat.st_ctime_ns}".encode() + file.read())
    return found.hexdigest()


def main():
    posse = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    folder = os.environ.get("POSSE_BENCH_DIR")
    with tempfile.TemporaryDirectory(prefix="posse-trial-", dir=folder) as base:
        plain, start, until_shown, kept = measure(posse, rounds, base)
    median = statistics.median
    shown_ms, kept_ms = median(until_shown) - median(plain), median(kept)
    print(f"command itself    {median(plain):7.1f} ms")
    print(f"shown, above it   {shown_ms:7.1f} ms  (at most {SHOWN_MAX})")
    print(f"  of which start  {median(start):7.1f} ms")
    print(f"kept              {kept_ms:7.1f} ms  (at most {KEPT_MAX})")
    sys.exit(int(shown_ms > SHOWN_MAX or kept_ms > KEPT_MAX))


def measure(posse, rounds, base):
    """Times in milliseconds of each round, with a tree in the folder `base`."""
    work, home = f"{base}/work", f"{base}/home"
    os.makedirs(f"{home}/config")
    tree(work)
    with open(f"{home}/config/config.json", "w") as file:
        json.dump({"checkpoints": {"enabled": False}}, file)
    environment = {"PATH": os.environ["PATH"], "HOME": base, "POSSE_HOME": home}

    def timed(command, *marks):
        """Milliseconds until the end, and until a line that begins with each of `marks`."""
        begin = time.monotonic()
        running = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        seen = {}
        for line in running.stdout:
            for mark in marks:
                if line.startswith(mark):
                    seen[mark] = (time.monotonic() - begin) * 1000
        if running.wait() != 0 or len(seen) != len(marks):
            sys.exit(f"{command}: {seen}")
        return [(time.monotonic() - begin) * 1000] + [seen[mark] for mark in marks]

    shown = f"The command succeeded; {CHANGED} changed"
    done = f"Kept {CHANGED} of {CHANGED}"
    plain, start, until_shown, kept = [], [], [], []
    # Otherwise the disk is still busy with the tree.
    os.sync()
    before = digest(work)
    for _ in range(rounds):
        until_shown.append(timed([posse, "try", "--drop", "--", COMMAND], shown)[1])
        start.append(timed([posse, "try", "--drop", "--", "true"], "The command succeeded")[1])
    if digest(work) != before:
        sys.exit("a dropped trial has changed the workspace")
    for _ in range(rounds):
        _, first, last = timed([posse, "try", "--keep", "--", COMMAND], shown, done)
        kept.append(last - first)
        reset(work)
        os.sync()
        plain.append(timed(["bash", "-c", COMMAND])[0])
        reset(work)
        os.sync()
    return plain, start, until_shown, kept


if __name__ == "__main__":
    main()
