#!/usr/bin/env python3
"""Checks that each header includes what it needs, and may be included twice.

headers_alone.py --include DIR --work DIR [--jobs N] [--parsed FILE] [--whole] HEADER... -- COMPILER FLAG...

A header need not come first to be checked alone, if all that comes before it is what it includes
itself. So a chain of headers, each of which includes the one before, is compiled as one file. What an
#if encloses is not taken for included.

Without --whole the compiler stops once it has read the headers that users do not include, before it
makes anything of templates and inline functions, which takes three times as long. They find the
headers of Asio, Beast and nlohmann_json parsed: --parsed names the file to include first.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

READ = "read to the end"
DIRECTIVE = re.compile(r"#\s*(ifn?(?:def)?|endif|include)\b\s*(?:<(coetcd[^>]*)>)?")


def included(path):
    """Our headers that a file includes in any case."""
    found = set()
    depth = 0
    with open(path, encoding="utf-8") as text:
        for line in text:
            directive = DIRECTIVE.match(line)
            if not directive:
                continue
            if directive[1].startswith("if"):
                depth += 1
            elif directive[1] == "endif":
                depth -= 1
            elif depth == 0 and directive[2]:
                found.add(directive[2])
    return found


def with_all_below(direct):
    """For each header, all that it includes, directly or not."""
    below = {}

    def visit(header):
        if header not in below:
            below[header] = set()  # there is no cycle: each could be included alone
            for each in direct.get(header, ()):
                below[header] |= {each} | visit(each)
        return below[header]

    for header in direct:
        visit(header)
    return below


def chains(headers, below):
    """The fewest chains: a matching of each header with the one that comes next."""
    before = {}  # of each header: the one that comes before

    def find_next(header, tried):
        for other in above[header]:
            if other not in tried:
                tried.add(other)
                if other not in before or find_next(before[other], tried):
                    before[other] = header
                    return True
        return False

    above = {h: [o for o in headers if h in below[o]] for h in headers}
    for header in headers:
        find_next(header, set())
    ends = set(headers) - set(before.values())
    found = []
    for end in sorted(ends):
        chain = [end]
        while chain[0] in before:
            chain.insert(0, before[chain[0]])
        found.append(chain)
    return found


def is_internal(header):
    return header.startswith(("coetcd/detail/", "coetcd/impl/"))


def check(number, chain, options):
    """What the compiler says of a chain; empty if nothing is wrong."""
    stops = is_internal(chain[0]) and not options.whole
    name = os.path.join(options.work, f"{number}.cpp")
    with open(name, "w", encoding="utf-8") as text:
        for header in chain + chain:
            text.write(f"#include <{header}>\n")
        if stops:
            text.write(f'static_assert(false, "{READ}");\n')
    command = options.command + ["-fsyntax-only", "-Wfatal-errors"]
    if is_internal(chain[0]) and options.parsed:
        command += ["-include", options.parsed]
    ran = subprocess.run(command + [name], env=dict(os.environ, LC_ALL="C"), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    first = re.search("error: .*", ran.stdout)
    if ran.returncode == 0 or (first and READ in first[0]):
        return ""
    return "In a file that includes " + ", ".join(chain) + ":\n" + ran.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--parsed")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("headers", nargs="+")
    cut = sys.argv.index("--")
    options = parser.parse_args(sys.argv[1:cut])
    options.command = sys.argv[cut + 1:]
    os.makedirs(options.work, exist_ok=True)
    direct = {h: included(os.path.join(options.include, h)) for h in options.headers}
    below = with_all_below(direct)
    public = sorted(h for h in direct if not is_internal(h))
    internal = sorted(h for h in direct if is_internal(h))
    todo = chains(public, below) + chains(internal, below)
    print(f"{len(direct)} headers in {len(todo)} files", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        wrong = [w for w in pool.map(lambda t: check(*t, options), enumerate(todo)) if w]
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
