"""Packs real file trees into one compressed file that part of the simulated worlds are cut from.

Real names and texts teach what no generator invents: how documentation folders, configuration and sources really look. The pack is
not committed; the model card records its SHA-256 and the trees it came from. Usage: collect_corpus.py OUT.json.gz ROOT[:MAX_MB] ...
"""
import gzip
import hashlib
import json
import os
import random
import sys
import unicodedata

HEAD_BYTES = 5000  # a read shows at most 2,000 bytes, so a head of a file is enough world
SKIP_NAMES = {"shadow", "shadow-", "gshadow", "gshadow-", "passwd-", "group-", "subuid-", "subgid-", "machine-id", "hostname", "hosts",
              "resolv.conf", "__pycache__", "site-packages", "dist-packages", "private", "ssl", "ssh"}
MARKERS = ("<|", "<tool_", "</tool_", "<think>", "</think>", "<tts_")  # texts of the protocol itself must not appear inside a result


def head(path, limit=HEAD_BYTES, refuse=MARKERS):
    """The first `limit` bytes of a text file in NFC, whole lines; None for a binary file."""
    with open(path, "rb") as f:
        data = f.read(limit + 1)
    cut = len(data) > limit
    data = data[:limit]
    if cut and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    return None if any(m in text for m in refuse) else text


def collect(root, max_bytes, rng):
    """{relative path: text or None}, whole top-level directories at a time, until max_bytes of text are taken."""
    files, taken = {}, 0
    tops = sorted(os.listdir(root))
    rng.shuffle(tops)
    for top in tops:
        if taken > max_bytes or top in SKIP_NAMES:
            continue
        stack, count = [top], 0
        while stack and count < 120:
            rel = stack.pop()
            full = os.path.join(root, rel)
            if os.path.islink(full):
                continue
            if os.path.isdir(full):
                stack += [f"{rel}/{n}" for n in sorted(os.listdir(full), reverse=True) if n not in SKIP_NAMES]
            elif os.path.isfile(full) and os.access(full, os.R_OK):
                if unicodedata.normalize("NFC", rel) != rel or not rel.isprintable():
                    continue
                files[rel] = head(full)
                taken += len(files[rel] or "")
                count += 1
    return files


def main():
    out, rng, trees = sys.argv[1], random.Random(1), []
    for spec in sys.argv[2:]:
        root, _, mb = spec.partition(":")
        files = collect(root, float(mb or 4) * 1e6, rng)
        trees.append({"root": root, "files": files})
        print(root, len(files), "files", sum(len(t or "") for t in files.values()), "characters")
    data = json.dumps(trees, ensure_ascii=False, sort_keys=True).encode()
    with open(out, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data)
    print("sha256", hashlib.sha256(open(out, "rb").read()).hexdigest(), os.path.getsize(out), "bytes")


if __name__ == "__main__":
    main()
