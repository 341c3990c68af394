"""Writes heldout.jsonl: sessions from seeds and real directories that training never sees. Usage: make_heldout.py CORPUS.json.gz OUT COUNT"""
import collections
import json
import sys

from world import episode, trees

FIRST_SEED = 1 << 37
CHARS_MAX = 16000
USER_TURNS_MAX = 6


def main():
    trees.load_corpus(sys.argv[1], held_out=True)
    out, seed, counts = [], FIRST_SEED, collections.Counter()
    while len(out) < int(sys.argv[3]):
        e = episode.session(seed)
        seed += 1
        if sum(len(m["content"]) for m in e["messages"]) > CHARS_MAX or sum(m["role"] == "user" for m in e["messages"]) > USER_TURNS_MAX:
            continue
        counts[e["kind"]] += 1
        out.append({"id": f"{e['kind']}-{counts[e['kind']]:03d}", **e})
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        for e in out:
            f.write(json.dumps(e, ensure_ascii=False) + "\n")
    turns = sum(m["role"] == "assistant" for e in out for m in e["messages"])
    print(len(out), "sessions", turns, "assistant turns", dict(counts), "next seed", seed - FIRST_SEED)


if __name__ == "__main__":
    main()
