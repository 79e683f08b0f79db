#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""What a file costs to compile that takes a lock.

measure.py INCLUDE COMPILER...: compares locks.cpp with awaits.cpp, which only awaits, if the library
is compiled elsewhere; and, header-only, with requests.cpp, which makes one request without it. Prints
the processor's seconds, the compiler's memory and the size of the object, and ends with status 1 if
one takes too long."""

import os
import sys
import tempfile

ROUNDS = 3
LEVELS = ("-O0", "-O2")
HERE = os.path.dirname(os.path.abspath(__file__))
# What is compiled, with what, and how many times as long as which other case it may take.
CASES = (
    ("only awaits", "awaits.cpp", [], 0, None),
    ("one request by hand", "requests.cpp", [], 0, None),
    ("locks, compiled once", "locks.cpp", ["-DCOETCD_SEPARATE_COMPILATION"], 0, 1.3),
    ("locks, header-only", "locks.cpp", [], 1, 4.0),
)


def compile_once(command):
    """The processor's seconds, and the largest process in MB."""
    pid = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        sys.exit("does not compile: " + " ".join(command))
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main(include, compilers):
    too_long = 0
    with tempfile.TemporaryDirectory() as scratch:
        built = os.path.join(scratch, "a.o")
        print(f"{'':36}{'seconds':>9}{'times':>7}{'at most':>9}{'MB':>7}{'object, KB':>12}")
        for compiler in compilers:
            for level in LEVELS:
                best = [None] * len(CASES)
                for _ in range(ROUNDS):
                    for i, (_, source, options, _, _) in enumerate(CASES):
                        seconds, memory = compile_once(
                            [compiler, "-std=c++20", level, *options, "-I" + include, "-c",
                             os.path.join(HERE, source), "-o", built])
                        measured = (seconds, memory, os.path.getsize(built) / 1024)
                        best[i] = min(best[i] or measured, measured)
                for (name, _, _, base, most), (seconds, memory, size) in zip(CASES, best):
                    times = seconds / best[base][0]
                    limit = f"{most:.1f}" if most else ""
                    print(f"{compiler + ' ' + level:15}{name:21}{seconds:9.2f}{times:7.2f}"
                          f"{limit:>9}{memory:7.0f}{size:12.0f}", flush=True)
                    too_long += bool(most and times > most)
    return 1 if too_long else 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
