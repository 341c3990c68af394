"""Checks of the world: `python -m selftest` in this folder. No packages but jinja2."""
import collections
import re
import sys
import time

import chat
from world import direct, episode, randtools, tasks, tools, trees


def check_tools():
    w = trees.World("t", "/r", {"a.txt": "one\ntwo\n", "d/b.bin": None, "d/e.txt": "", "long": "\n".join(f"line {i}" for i in range(100))}, ["empty"])
    assert tools.list_dir(w, ".") == "a.txt\nd/\nempty/\nlong"
    assert tools.list_dir(w, "/r/d/") == "b.bin\ne.txt"
    assert tools.list_dir(w, "empty") == "(empty)"
    assert tools.list_dir(w, "a.txt") == "error: not a directory: a.txt"
    assert tools.list_dir(w, "x") == "error: no such directory: x"
    assert tools.list_dir(w, "d/../..") == "error: path leaves the root: d/../.."
    assert tools.read_file(w, "./a.txt") == "one\ntwo"
    assert tools.read_file(w, "a.txt", 2) == "two"
    assert tools.read_file(w, "a.txt", 3) == "error: start_line 3 is past the end (2 lines)"
    assert tools.read_file(w, "d") == "error: is a directory: d"
    assert tools.read_file(w, "d/b.bin") == "error: not a text file: d/b.bin"
    assert tools.read_file(w, "d/e.txt") == "(empty)"
    assert tools.read_file(w, "long").endswith("line 39\n... 60 more lines")
    assert tools.search(w, "two", ".") == "a.txt:2: two"
    assert tools.search(w, "line 1", ".").endswith("... 0 more matches") is False
    assert tools.search(w, "zzz", ".") == "no matches"
    assert tools.calc(w, "1 + 2 * 3") == "7" and tools.calc(w, "10 / 4") == "2.5" and tools.calc(w, "0.1+0.2") == "0.3" and tools.calc(w, "1 / 3") == "0.333333333333"
    assert tools.calc(w, "1 / 0") == "error: division by zero" and tools.calc(w, "1 +") == "error: bad expression: 1 +" and tools.calc(w, "-(2 - 5)") == "3"
    assert tools.write_file(w, "d/n.txt", "é") == "wrote 2 bytes to d/n.txt" and tools.read_file(w, "d/n.txt") == "é"


# Tables that may put a question in the same words: they lead to the same first step, or what is named tells which is meant.
ALIKE = [{"LIST_ASK", "LIST_CLEAR", "LIST_EITHER"}, {"READ_ASK", "READ_CLEAR", "READ_EITHER"}, {"LIST_ASK", "LIST_EITHER", "READ_ASK", "READ_EITHER"}, {"EXISTS_ROOT_ASK", "PATH_EXISTS_ASK"}, {"README_ABOUT", "PROJECT_ASK"}, {"ABOUT_ASK", "DOES_ASK"}]


def check_asks():
    """The same words must not ask for different things: a request without its names is found in one table only."""
    where = collections.defaultdict(set)
    for module in (*vars(tasks).values(), direct, randtools):
        for name, table in vars(module).items() if hasattr(module, "__file__") else ():
            if name.isupper() and name not in ("PARAMS", "NOUNS", "VERBS", "FLAGS", "THINGS") and isinstance(table, list) and all(isinstance(x, str) for x in table):
                for x in table:
                    said = re.sub(r"\{[^}]*\}", "_", x.replace("{w}", "").replace("{at}", "in {at}")).lower().strip(" .?!")
                    where[said].add(name)
    assert len(where) > 300
    for said, tables in where.items():
        assert len(tables) == 1 or any(tables <= known for known in ALIKE), (said, tables)


def check_sessions(count):
    kinds, lens, t0 = collections.Counter(), [], time.time()
    for seed in range(count):
        e = episode.session(seed)
        assert e == episode.session(seed), "a session must be a function of its seed"
        text = chat.render(e["messages"], e["tools"], e["enable_thinking"])
        spans = chat.spans(text, e["enable_thinking"])
        gold = [m for m in e["messages"] if m["role"] == "assistant"]
        assert len(spans) == len(gold)
        for i, m in enumerate(e["messages"]):
            if m["role"] == "assistant":
                prompt = chat.render(e["messages"][:i], e["tools"], e["enable_thinking"], True)
                a, b = spans.pop(0)
                assert text[:a] == prompt and text[b - 10:b] == "<|im_end|>", (seed, i)
        kinds[e["kind"]] += 1
        lens.append(len(text))
    lens.sort()
    print(dict(kinds), "characters: mean", sum(lens) // count, "median", lens[count // 2], "max", lens[-1], f"{2 * count / (time.time() - t0):.0f} sessions/s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trees.load_corpus(sys.argv[1])
    check_tools()
    check_asks()
    check_sessions(300)
    print("ok")
