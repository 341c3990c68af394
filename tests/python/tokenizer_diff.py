#!/usr/bin/env python3
"""Compares sluice's tokenizer with pip `tokenizers`, id for id and text for text, on generated strings.

usage: tokenizer_diff.py --cli build/release/tokenizer_cli [--dir tests/golden/tokenizer] [--count N]

Both regexes, added tokens matched and not, decoding with and without special tokens; on the small vocabulary of
tests/golden/tokenizer. tokenizer_real.py does more on a real one. Prints counts; exit code 1 on any mismatch, or when
the checker is blind.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from needs import need
from pretokenizer_regexes import REGEXES

tokenizers = need("tokenizers")


def reference(directory, added):
    """The files as a reference tokenizer; `added`: with the added tokens of both files, as transformers merges them."""
    spec = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {t["id"]: t for t in spec["added_tokens"]}
    config = directory / "tokenizer_config.json"
    if config.exists():
        for key, token in json.loads(config.read_text(encoding="utf-8")).get("added_tokens_decoder", {}).items():
            tokens.setdefault(int(key), {"id": int(key), **token})
    spec["added_tokens"] = []
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    if added:
        for _, t in sorted(tokens.items()):
            token = tokenizers.AddedToken(t["content"], single_word=False, lstrip=False, rstrip=False, normalized=False)
            (tokenizer.add_special_tokens if t["special"] else tokenizer.add_tokens)([token])
            if tokenizer.token_to_id(t["content"]) != t["id"]:
                sys.exit(f"the reference gives {t['content']} another id than {t['id']}")
    return tokenizer, [t["content"] for t in tokens.values()]


def use_regex(tokenizer, name):
    pre_tokenizers = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(REGEXES[name]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


class Cli:
    """One run of tokenizer_cli over many records."""

    def __init__(self, path, directory):
        self.path, self.directory = path, directory

    def run(self, mode, records, unit, regex=None):
        command = [str(self.path), mode, str(self.directory)] + ([regex] if regex else [])
        with tempfile.TemporaryFile() as stdin:
            for r in records:
                stdin.write(struct.pack("<I", len(r) // unit) + r)
            stdin.seek(0)
            done = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed with {done.returncode}")
        return done.stdout

    def encode(self, texts, regex, added):
        data = self.run("encode" if added else "plain", texts, 1, regex)
        return split_records(data, 4)

    def decode(self, ids, mode):
        data = self.run(mode, [struct.pack(f"<{len(i)}i", *i) for i in ids], 4)
        return split_records(data, 1)


def split_records(data, unit):
    out, pos = [], 0
    while pos < len(data):
        (count,) = struct.unpack_from("<I", data, pos)
        pos += 4
        raw = data[pos:pos + count * unit]
        out.append(raw if unit == 1 else list(struct.unpack(f"<{count}i", raw)))
        pos += count * unit
    return out


def random_scalar(rng):
    pools = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x590), (0x590, 0x700), (0x900, 0xE80),
             (0x1100, 0x1200), (0x1DC0, 0x2070), (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xD7A4),
             (0xF900, 0x10000), (0x11900, 0x11950), (0x1D100, 0x1D200), (0x1F300, 0x1FA00), (0, 0x110000)]
    while True:
        c = rng.randrange(*rng.choice(pools))
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_text(rng, added):
    pieces = ["'s", "'T", "'\u017f", "'LL", "'re", "\r\n", "\n\n", "  ", "\t", " ", "\u00a0", "\u3000", "12", "don't",
              "hello", " world", "e\u0301", "\u0301", "\u0323\u0307", "\u1100\u1161\u11a8", "\u0e2a\u0e27\u0e31", "\ufe0f",
              "\u200d", "\U0001f469\u200d\U0001f680", "def f(x):", "    return", "://", "==", "\u4f60\u597d", "<|im_", "im_end|>"]
    out = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.45:
            out.append(rng.choice(pieces))
        elif kind < 0.55 and added:
            token = rng.choice(added)
            out.append(token if rng.random() < 0.7 else token[:rng.randrange(len(token))])
        elif kind < 0.65:
            out.append(random_scalar(rng) * rng.randrange(1, 70))
        else:
            out.extend(random_scalar(rng) for _ in range(rng.randrange(1, 6)))
    return "".join(out)


def random_bytes(rng):
    return bytes(rng.choice([rng.randrange(256), rng.choice(b"\xe2\x82\xac\xf0\x9f\xed\xa0\xc3 a")])
                 for _ in range(rng.randrange(1, 24)))


class Report:
    def __init__(self):
        self.compared = self.mismatches = 0

    def compare(self, what, inputs, expected, found):
        if len(expected) != len(found):
            sys.exit(f"{what}: {len(found)} records, expected {len(expected)}")
        self.compared += len(expected)
        for text, want, got in zip(inputs, expected, found):
            if want != got:
                self.mismatches += 1
                if self.mismatches <= 20:
                    print(f"MISMATCH {what}: {text!r}\n  reference {want}\n  sluice    {got}")


def compare_encoding(report, cli, tokenizer, what, texts, regex, added):
    decoded = [t.decode("utf-8", errors="replace") for t in texts]
    want = [e.ids for e in tokenizer.encode_batch(decoded, add_special_tokens=False)]
    got = cli.encode(texts, regex, added)
    report.compare(f"{what}, regex {regex}, added {added}", texts, want, got)
    return got


def compare_decoding(report, cli, tokenizer, rng, count):
    size = tokenizer.get_vocab_size()
    lists = [[rng.randrange(size) if rng.random() < 0.7 else size - 1 - rng.randrange(40) for _ in range(rng.randrange(1, 20))]
             for _ in range(count)]
    for skip in (False, True):
        want = [t.encode() for t in tokenizer.decode_batch(lists, skip_special_tokens=skip)]
        report.compare(f"decode, skip {skip}", lists, want, cli.decode(lists, "skip" if skip else "decode"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cli", type=pathlib.Path, required=True)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(__file__).parents[1] / "golden" / "tokenizer")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    cli = Cli(args.cli, args.dir)
    with_added, contents = reference(args.dir, True)
    references = {True: with_added, False: reference(args.dir, False)[0]}
    texts = [random_text(rng, contents).encode() for _ in range(args.count)]
    texts += [random_bytes(rng) for _ in range(args.count // 4)] + [c.encode() for c in contents] + [b""]
    report, seen = Report(), {}
    for regex in REGEXES:
        for added, tokenizer in references.items():
            use_regex(tokenizer, regex)
            seen[regex, added] = compare_encoding(report, cli, tokenizer, "encode", texts, regex, added)
    compare_decoding(report, cli, with_added, rng, args.count)
    print(f"tokenizer_diff: {report.compared} compared, {report.mismatches} mismatches")
    # Negative control: inputs on which the four settings agree could not tell them apart.
    if len({json.dumps(ids) for ids in seen.values()}) != len(seen):
        sys.exit("the inputs do not tell the settings apart")
    sys.exit(report.mismatches != 0)


if __name__ == "__main__":
    main()
