#!/usr/bin/env python3
"""Prints PASS or FAIL for each rule of the tree and for each rule's control; exit code 1 when one failed. Needs g++ and clang-format, and no Python package."""
import pathlib
import sys

import controls
import rules

SHOWN_MAX = 20


def report(name, problems):
    print("FAIL" if problems else "PASS", name)
    for problem in problems[:SHOWN_MAX]:
        print("  ", problem)
    if len(problems) > SHOWN_MAX:
        print("  ", len(problems) - SHOWN_MAX, "more")
    return not problems


def main():
    tree = rules.Tree(pathlib.Path(__file__).resolve().parents[2])
    ok = [report(f"tidy {rule.__name__}", list(rule(tree))) for rule in rules.ALL]
    ok += [report(f"tidy-control {rule.__name__}", list(controls.check(rule))) for rule in rules.ALL]
    sys.exit(0 if all(ok) else 1)


main()
