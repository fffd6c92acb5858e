#!/usr/bin/env python3
"""Writes start.ld: which functions a linker puts side by side, because every run needs them.

    cargo rustc --release --bin posse -- -C strip=none
    valgrind --tool=callgrind --trace-children=yes --demangle=no --callgrind-out-file=/tmp/posse.%p \\
        target/release/posse run ...              # short runs: an answer, calls, a long reply
    .link/gather.py target/release/posse /tmp/posse.* > .link/start.ld

Functions are named by patterns without hashes, so that another compiler or another version of a
library changes little; a pattern stands for a whole module where nearly all of it is needed. A name
that fits nothing any more is harmless. Why: docs/adr/0034.
"""
import re
import subprocess
import sys

# A function that stays where it is costs what the kernel maps around it, so a pattern may bring as
# many bytes that nobody needs for each function that somebody does.
WASTE_MAX = 64 << 10
# What a pattern for a whole module may bring, as a part of what is needed.
MODULE_WASTE = 0.4


def sizes(binary):
    """The size of every function, by its symbol."""
    listed = subprocess.run(
        ["nm", "-S", "--defined-only", binary], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tTwW"}


def used(profiles):
    """Symbols of the functions that ran."""
    names = set()
    for profile in profiles:
        with open(profile, errors="replace") as lines:
            for line in lines:
                found = re.match(r"c?fn=\(\d+\) (.+)", line)
                if found:
                    names.add(re.sub(r"'\d+$", "", found.group(1)))
    return names


def path_of(symbol):
    """The parts of a symbol's path, without its hash; None for what is not Rust's."""
    if symbol.startswith("_R"):
        return [re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", symbol)]
    if symbol == "main":
        return [symbol]
    if not re.match(r"_ZN.*17h[0-9a-f]{16}E", symbol):
        return None
    parts, rest = ["_ZN"], symbol[3:]
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found.group())
        if rest.startswith("17h") and not re.match(r"\d", rest[end:]):
            return [*parts, "17h"]
        parts.append(rest[:end])
        rest = rest[end:]
    return None


class Module:
    """What lies below one beginning of symbols."""

    def __init__(self):
        self.below, self.size, self.needed, self.functions = {}, 0, 0, 0

    def add(self, path, size, needed):
        self.size += size
        self.needed += size if needed else 0
        self.functions += needed
        if path:
            self.below.setdefault(path[0], Module()).add(path[1:], size, needed)

    def patterns(self, prefix, depth):
        """Patterns for what is needed of it."""
        if not self.needed:
            return
        waste = self.size - self.needed
        if depth > 1 and self.below and waste <= MODULE_WASTE * self.needed:
            yield prefix + "*"
        elif not self.below:
            if waste <= WASTE_MAX * self.functions:
                yield prefix + "*"
        else:
            for part, module in sorted(self.below.items()):
                yield from module.patterns(prefix + part, depth + 1)


def main():
    binary, *profiles = sys.argv[1:]
    ran, root = used(profiles), Module()
    for symbol, size in sizes(binary).items():
        if path := path_of(symbol):
            root.add(path, size, symbol in ran)
    print("/* Functions that every run needs, side by side. Made by .link/gather.py; see there. */")
    print("SECTIONS {\n  .text.start : {")
    for pattern in root.patterns("", 0):
        print(f"    *(.text*.{pattern})")
    print("  }\n}\nINSERT BEFORE .text;")


main()
