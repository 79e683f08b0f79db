#!/usr/bin/env python3
"""Checks that the simulator has reached every line of the library that it can.

reached.py LCOV UNREACHED [--write]

LCOV is what llvm-cov exports of a run of sim. UNREACHED names the lines that sim does not reach, as
they are written, below the header that they are in: what no user of it does, what its network
cannot do, and what is too rare. A `*` stands for all lines of a header that no user of it has.
Fails if there are others, or if one that is named there is no more in its header; with --write,
writes it anew.
"""
import os
import sys


def unreached_in(lcov):
    """The numbers of the lines that did not run, by header."""
    found, name = {}, None
    with open(lcov, encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.strip().partition(":")
            if key == "SF":
                name = os.path.relpath(value, "include")
                found.setdefault(name, set())
            elif key == "DA":
                number, count = value.split(",")[:2]
                if count == "0":
                    found[name].add(int(number))
    return found


def words_of(header):
    """What its lines say, from 1 on."""
    with open(os.path.join("include", header), encoding="utf-8") as text:
        return [""] + [line.split("//")[0].strip() for line in text]


def says_something(text):
    return any(c.isalnum() for c in text)


def named_in(list_file):
    named, header = {}, None
    with open(list_file, encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("    "):
                named[header].add(line.strip())
            elif line and not line.startswith("#"):
                header = line
                named[header] = set()
    return named


def write(list_file, found):
    whole = {header for header, texts in named_in(list_file).items() if "*" in texts}
    with open(list_file, encoding="utf-8") as lines:
        words = [line for line in lines if line.startswith("#")]
    with open(list_file, "w", encoding="utf-8") as out:
        out.writelines(words)
        for header in sorted(set(found) | whole):
            if header in whole:
                out.write("\n" + header + "\n    *\n")
                continue
            texts = words_of(header)
            said = dict.fromkeys(texts[n] for n in sorted(found[header]) if says_something(texts[n]))
            if said:
                out.write("\n" + header + "\n")
                out.writelines("    " + text + "\n" for text in said)


def main():
    lcov, list_file = sys.argv[1:3]
    found = unreached_in(lcov)
    if "--write" in sys.argv:
        write(list_file, found)
        return 0
    named = named_in(list_file)
    wrong = 0
    for header in sorted(set(found) | set(named)):
        if "*" in named.get(header, ()):
            continue
        texts = words_of(header) if header in found else [""]
        for number in sorted(found.get(header, ())):
            if says_something(texts[number]) and texts[number] not in named.get(header, ()):
                print(f"{header}:{number}: sim does not reach it: {texts[number]}")
                wrong += 1
        for text in sorted(named.get(header, set()) - set(texts)):
            print(f"{header}: it is named in {list_file}, and not there any more: {text}")
            wrong += 1
    lines = sum(len(texts) for texts in named.values())
    print(f"reached: {wrong} complaints; {lines} lines are named that sim does not reach")
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main())
