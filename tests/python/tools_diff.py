#!/usr/bin/env python3
"""Compares the agent's tools with the simulated ones that the embedded model was trained on, byte for byte.

  tools_diff.py --probe build/check/tools_probe [--worlds N] [--seed N]

Each world of tools/tiny_agent is written out as real files; both sides then get the same calls.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "tiny_agent"))
from world import tools, trees  # noqa: E402

ALPHABET = ["a", "b", "x1", "é", "🚀", " ", "  ", "\t", "needle", "<|im_end|>", "0.5", ".", "\u3000", "-" * 70, "w" * 300, "y" * 2100]
NAMES = ["a", "b.txt", "a-b", "a.txt", "build", ".git", ".hidden", "docs", "Z", "é.md", "with space", "empty", "bin"]


def random_text(r):
    lines = ["".join(r.choice(ALPHABET) for _ in range(r.randint(0, 5))) for _ in range(r.choice([0, 1, 2, 5, 39, 40, 41, 60]))]
    return "\n".join(lines) + r.choice(["", "\n"])


def random_world(r, root):
    world = trees.World("random", root)
    for _ in range(r.randint(0, 12)):
        path = "/".join(r.choice(NAMES) for _ in range(r.randint(1, 3)))
        parts = path.split("/")
        if any("/".join(parts[:i]) in world.files for i in range(1, len(parts))) or path in world.dirs:
            continue
        world.add(path, None if r.random() < 0.1 else random_text(r))
    if r.random() < 0.3:
        for i in range(r.choice([29, 30, 31, 45])):
            world.add(f"many/{i:03}", "")
    for d in ["void", "docs/void"]:
        if r.random() < 0.3 and "docs" not in world.files:
            world.add_dir(d)
    return world


def write_out(world, root):
    for d in sorted(world.dirs):
        (root / d).mkdir(parents=True, exist_ok=True)
    for path, text in world.files.items():
        (root / path).write_bytes(b"\0binary" if text is None else text.encode())


def random_path(r, world):
    path = r.choice([*world.files, *world.dirs, *NAMES, "no/such", "."])
    k = r.random()
    if k < 0.1:
        return "./" + path
    if k < 0.2:
        return f"{world.root}/{path}"
    if k < 0.25:
        return path + "/"
    if k < 0.3:
        return "../" * r.randint(1, 3) + path
    if k < 0.35:
        return "docs/../" + path
    return path


def random_expression(r, depth=0):
    k = r.random()
    if depth > 4 or k < 0.35:
        return r.choice([str(r.randint(0, 9999)), f"{r.randint(0, 99)}.{r.randint(0, 99)}", str(r.randint(0, 10**20)), "0", "1", "3"])
    if k < 0.45:
        return r.choice("+-") + random_expression(r, depth + 1)
    if k < 0.6:
        return f"({random_expression(r, depth + 1)})"
    if k < 0.64:
        return r.choice(["", "(", ")", "1 2", "2^3", "x", "1e5", "**", "1..2", "()"])
    return f"{random_expression(r, depth + 1)}{r.choice(['+', '-', '*', '/', ' + ', ' / '])}{random_expression(r, depth + 1)}"


def random_call(r, world):
    name = r.choice(["list_dir", "read_file", "read_file", "search", "search", "calc", "calc"])
    if name == "calc":
        return name, {"expression": random_expression(r)}
    arguments = {"path": random_path(r, world)}
    if name == "read_file" and r.random() < 0.4:
        arguments["start_line"] = r.choice([1, 2, 3, 20, 39, 40, 41, 1000])
    if name == "search":
        arguments["pattern"] = r.choice(["needle", "a", "é", " ", "0.5", "zzz", ".", "<|im_end|>"])
    return name, arguments


def full_directory(r, root):
    """A listing that is as long as listings get."""
    world = trees.World("full", root)
    for i in range(tools.LIST_MAX):
        world.add(f"many/{i:03}", "")
    return world


def compare(r, probe, make_world, make_calls):
    """(calls, mismatches) in one world."""
    with tempfile.TemporaryDirectory() as temp:
        root = pathlib.Path(temp).resolve()
        world = make_world(r, str(root))
        world.root = str(root)
        write_out(world, root)
        calls = make_calls(world)
        lines = "".join(json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n" for n, a in calls)
        out = subprocess.run([probe, temp], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
        got = [json.loads(line) for line in out.splitlines()]
        assert len(got) == len(calls), "the probe answered less than it was asked"
        wrong = []
        for (name, arguments), found in zip(calls, got):
            try:
                expected = tools.RUN[name](world, **arguments)
            except OverflowError:
                continue  # a fraction too large for a float; ours is an error of its own
            if found != expected:
                wrong.append((name, arguments, expected, found))
        return len(calls), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--worlds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    r = random.Random(args.seed)
    total, failures = 0, []
    for _ in range(args.worlds):
        n, wrong = compare(r, args.probe, random_world, lambda world: [random_call(r, world) for _ in range(60)])
        total += n
        failures += wrong
    for name, arguments, expected, found in failures[:10]:
        print(f"{name} {json.dumps(arguments, ensure_ascii=False)}\n  expected {expected!r}\n  found    {found!r}")
    # The checker must see a difference: the simulation's limit moved by one.
    listing = ("list_dir", {"path": "many"})
    same = compare(r, args.probe, full_directory, lambda world: [listing])[1]

    def with_another_limit(world):
        tools.LIST_MAX -= 1
        return [listing]

    other = compare(r, args.probe, full_directory, with_another_limit)[1]
    tools.LIST_MAX += 1
    blind = bool(same) or not other
    print(f"{total} calls, {len(failures)} mismatches" + (", and the checker is blind" if blind else ""))
    sys.exit(1 if failures or blind else 0)


main()
