#!/usr/bin/env python3
"""Whether cmake/check-gcc12 names what planted.cpp expects, and nothing in the project's own sources."""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLANTED = HERE / "planted.cpp"


def named_in(*places):
    done = subprocess.run([sys.executable, ROOT / "cmake/check-gcc12", *places], stdout=subprocess.PIPE, text=True)
    found = set(re.findall(r"^(.*):(\d+): .*\[(.*)\]$", done.stdout, re.MULTILINE))
    if done.returncode != bool(found):
        sys.exit(f"check-gcc12 ended with {done.returncode}:\n{done.stdout}")
    return found


expected = set()
for number, line in enumerate(PLANTED.read_text().split("\n"), 1):
    _, marked, kinds = line.partition("// expect: ")
    if marked:
        expected |= {(str(PLANTED), str(number), kind) for kind in kinds.split(", ")}

wrong = expected ^ named_in(PLANTED)
folders = [ROOT / name for name in ("include", "examples", "docs", "tests")]
wrong |= {place for place in named_in(*folders) if place[0] != str(PLANTED)}
for path, line, kind in sorted(wrong):
    print(f"{path}:{line}: {kind}")
print(f"{len(expected)} expected, {len(wrong)} wrong")
sys.exit(bool(wrong) or not expected)
