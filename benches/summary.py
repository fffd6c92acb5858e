#!/usr/bin/env python3
"""The promised figures out of a results file of the rig: medians of the counted rounds."""
import json
import statistics
import sys

rounds = [
    r for r in json.load(open(sys.argv[1]))["results"]
    if r["round"] >= 0 and not r.get("discard") and r["ok"]
]


def median(peer, scenario, key):
    values = [r[key] for r in rounds if r["peer"] == peer and r["scen"] == scenario and r.get(key) is not None]
    return statistics.median(values) if values else float("nan")


def growth(peer):
    """Median overhead of turns 190-200 minus that of turns 5-15, in ms."""
    late, early = [], []
    for r in rounds:
        if r["peer"] == peer and r["scen"] == "tools:200":
            late += r["ov"][189:200]
            early += r["ov"][4:15]
    return statistics.median(late) - statistics.median(early) if late else float("nan")


MB = 1e6
rows = [
    ("--version, wall", median("posse", "version", "wall_ms"), "ms", 3),
    ("hello: exec to first request, http", median("posse", "hello", "t_first_ms"), "ms", 6),
    ("hello: whole wall", median("posse", "hello", "wall_ms"), "ms", 12),
    # A sampler every 10 ms misses a run of 5 ms; a run of 50 turns needs more than hello does.
    ("hello: peak RSS, at most", median("posse", "tools:50", "rss_tree") / MB, "MB", 14),
    ("first request body", median("posse", "hello", "req1_bytes") / 1000, "KB", 9),
    ("read_file turn, median", median("posse", "tools:50", "ov_med"), "ms", 0.8),
    ("read_file turn, p95", median("posse", "tools:50", "ov_p95"), "ms", 2),
    ("bash turn, median", median("posse", "shell:50", "ov_med"), "ms", 5),
    ("bash turn, p95", median("posse", "shell:50", "ov_p95"), "ms", 7),
    ("growth beyond the floor's", growth("posse") - growth("floor-c"), "ms", 0.4),
    ("200 turns: wall", median("posse", "tools:200", "wall_ms") / 1000, "s", 0.6),
    ("200 turns: peak RSS", median("posse", "tools:200", "rss_tree") / MB, "MB", 20),
    ("20,000 deltas: sent to exit / curl", median("posse", "stream:20000", "stream_ms")
     / median("floor-curl", "stream:20000", "stream_ms"), "x", 1.0),
    ("20,000 deltas: CPU", median("posse", "stream:20000", "cpu_s"), "s", 0.06),
    ("20,000 deltas: peak RSS", median("posse", "stream:20000", "rss_tree") / MB, "MB", 16),
]
print(f"\n{'figure':42} {'measured':>10} {'must be':>10}")
for name, value, unit, limit in rows:
    verdict = "" if value <= limit else "  MISSED"
    print(f"{name:42} {value:8.2f} {unit:2} {'<=':>4} {limit} {unit}{verdict}")
