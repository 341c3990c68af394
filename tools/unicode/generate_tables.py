#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_data.inc from the behaviour of the reference, pip `tokenizers`.

Nothing is taken from a Unicode data file: the reference mixes vintages (Oniguruma's properties are Unicode 16.0, the
NFC data of its normalisation crate is Unicode 9.0), so the tables are read off the reference itself:

- properties: one `Replace(Regex(r"\\p{L}"), "")` over a string of every scalar value removes exactly that class;
- decompositions: NFD of every scalar value (Hangul syllables are left to the algorithm);
- combining classes: only their order matters. NFD of two marks swaps them when the first has the higher class, so
  each mark is compared with one representative of every known class;
- compositions: the last character of NFD(c) and the composed rest, wherever NFC(NFD(c)) is c.

usage: generate_tables.py [--check] OUTPUT    (--check: exit 1 when OUTPUT would change)
"""

import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC = normalizers.NFC().normalize_str
NFD = normalizers.NFD().normalize_str
CLASS_REGEX = [(1, r"\p{L}"), (2, r"\p{M}"), (3, r"\p{N}"), (4, r"\s")]
HANGUL = range(0xAC00, 0xD7A4)
# Conjoining vowels and trailing consonants: they compose with what stands before them.
HANGUL_SECOND = list(range(0x1161, 0x1176)) + list(range(0x11A8, 0x11C3))


def class_of_scalar():
    everything = "".join(map(chr, SCALARS))
    result = {}
    for value, regex in CLASS_REGEX:
        left = set(normalizers.Replace(Regex(regex), "").normalize_str(everything))
        for c in SCALARS:
            if chr(c) not in left:
                if c in result:
                    sys.exit(f"U+{c:04X} is in two classes")
                result[c] = value
    return result


def combining_classes():
    """Scalar -> class. The numbers come from unicodedata's representatives, the membership from the reference."""
    representative = {}
    for c in SCALARS:
        k = unicodedata.combining(chr(c))
        # The lowest code points of each class are old enough for every vintage; none may decompose.
        if k and k not in representative and NFD(chr(c)) == chr(c) and swaps(chr(c)):
            representative[k] = chr(c)
    ranks = sorted(representative)
    for low, high in zip(ranks, ranks[1:]):
        if NFD(representative[high] + representative[low]) != representative[low] + representative[high]:
            sys.exit(f"classes {low} and {high} are not apart in the reference")
    result = {}
    for c in SCALARS:
        s = chr(c)
        if NFD(s) != s or not swaps(s):
            continue
        same = [k for k in ranks if s == representative[k] or not (
            NFD(representative[k] + s) == s + representative[k] or NFD(s + representative[k]) == representative[k] + s)]
        if len(same) != 1:
            sys.exit(f"U+{c:04X} fits no known combining class: {same}")
        result[c] = same[0]
    return result


def swaps(s):
    """True when `s` has a non-zero combining class: it moves past U+0345 (class 240) or U+0334 (class 1)."""
    return NFD("\u0345" + s) != "\u0345" + s or NFD(s + "\u0334") != s + "\u0334"


def canonical_data():
    decompositions, compositions = {}, {}
    for c in SCALARS:
        s = chr(c)
        full = NFD(s)
        if full == s or c in HANGUL:
            continue
        decompositions[c] = [ord(x) for x in full]
        if NFC(full) == s:
            first = NFC(full[:-1])
            if len(first) != 1 or NFC(first + full[-1]) != s:
                sys.exit(f"U+{c:04X} is composed in a way this script does not know")
            compositions[(ord(first), ord(full[-1]))] = c
    return decompositions, compositions


def ranges(values):
    """{scalar: value} -> [(first, last, value)], adjacent equals joined."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1][1] = c
        else:
            out.append([c, c, values[c]])
    return out


def table(name, kind, rows):
    lines, line = [f"constexpr {kind} {name}[] = {{"], "   "
    for row in rows:
        item = " {" + ", ".join(f"0x{x:X}" if i < len(row) - 1 or name != "kClassRanges" else str(x)
                                for i, x in enumerate(row)) + "},"
        if len(line) + len(item) > 118:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line, "};"]) + "\n"


def generate():
    classes = class_of_scalar()
    combining = combining_classes()
    decompositions, compositions = canonical_data()
    # A character is inert when nothing before it can change it and it changes nothing before it.
    seconds = {b for _, b in compositions} | set(HANGUL_SECOND)
    active = {c: 1 for c in set(combining) | seconds}
    active.update({c: 1 for c in decompositions if NFC(chr(c)) != chr(c)})
    for c in decompositions:  # the first of a decomposition must itself be inert, or the break before c is no break
        if c not in active and (decompositions[c][0] in active):
            sys.exit(f"U+{c:04X} decomposes to something active")
    pool = [x for c in sorted(decompositions) for x in decompositions[c]]
    index, at = [], 0
    for c in sorted(decompositions):
        index.append((c, at, len(decompositions[c])))
        at += len(decompositions[c])
    text = (
        f"// Generated by tools/unicode/generate_tables.py from tokenizers {tokenizers.__version__}; do not edit.\n"
        f"// {len(classes)} classified scalars, {len(combining)} combining, {len(decompositions)} decompositions, "
        f"{len(compositions)} compositions.\n\n"
    )
    text += "// first, last, CharClass\n" + table("kClassRanges", "ClassRange", ranges(classes))
    text += "\n// first, last, canonical combining class\n" + table("kCombiningRanges", "ClassRange", ranges(combining))
    text += "\n// first, last, 1: not inert under NFC\n" + table("kActiveRanges", "ClassRange", ranges(active))
    text += "\n// scalar, offset into kDecompositionPool, length\n" + table("kDecompositions", "Decomposition", index)
    text += "\n" + pool_text(pool)
    text += "\n// first, second, composed; sorted\n" + table(
        "kCompositions", "Composition", [(a, b, compositions[(a, b)]) for a, b in sorted(compositions)])
    return text


def pool_text(pool):
    lines, line = ["constexpr char32_t kDecompositionPool[] = {"], "   "
    for x in pool:
        item = f" 0x{x:X},"
        if len(line) + len(item) > 118:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line, "};"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = generate()
    if args.check:
        if args.output.read_text() != text:
            sys.exit(f"{args.output} differs from what the reference says; run without --check")
        return
    args.output.write_text(text)


if __name__ == "__main__":
    main()
