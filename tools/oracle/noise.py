"""Prints how far the oracle is from itself: prompt path against generation path, and against the prompt path with dithered weights.

Usage: python tools/oracle/noise.py GOLDEN_DIR ...

Per position the rms, over the 32 recorded ids, of the logit difference; its rms over positions, percentiles and maximum. A flip is a position whose
largest logit has another id; its margin is what the prompt path puts between the two ids (`>` where the other one is not among its 32).
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

HEAD = "case                 path      positions  top-1 equal      rms      p50      p90      p99      max  flips: margins"


def margins(t, best, first):
    """Of every flip, in the prompt path's logits; the second value says whether it is only a lower bound."""
    ids, logits = t["top_ids"][first:], t["top_logits"][first:].float()
    for row in (best != ids[:, 0]).nonzero()[:, 0].tolist():
        among = (ids[row] == best[row]).nonzero()
        yield float(logits[row, 0] - logits[row, among[0, 0] if len(among) else -1]), not len(among)


def compare(t, path):
    """(positions, equal, rms per position, margins) of one case."""
    first = int(t["gen_first"]) if path == "gen" else 0
    difference = t[path + "_logits"].float() - t["top_logits"][first:].float()
    best = t[path + "_best"]
    equal = int((best == t["top_ids"][first:, 0]).sum())
    return len(best), equal, difference.square().mean(-1).sqrt(), sorted(margins(t, best, first), reverse=True)


def line(name, path, positions, equal, rms, flips):
    p50, p90, p99 = torch.quantile(rms, torch.tensor([0.5, 0.9, 0.99])).tolist()
    shown = " ".join(f"{'>' if bound else ''}{margin:.3g}" for margin, bound in flips[:6]) + (f" and {len(flips) - 6} more" if len(flips) > 6 else "")
    return (f"{name:20} {path:10} {positions:8} {equal:6} {100 * equal / positions:5.1f} % {float(rms.square().mean().sqrt()):8.4f} {p50:8.4f} {p90:8.4f} "
            f"{p99:8.4f} {float(rms.max()):8.4f}  {shown}")


def table(folder):
    yield HEAD
    everything = {"gen": [], "dither": []}
    for case in json.loads((folder / "manifest.json").read_text())["cases"]:
        t = load_file(str(folder / case["file"]))
        for path in everything:
            if path + "_logits" in t:
                everything[path].append(compare(t, path))
                yield line(case["file"].removesuffix(".safetensors"), path, *everything[path][-1])
    for path, parts in everything.items():
        if parts:
            positions, equal, rms, flips = zip(*parts)
            yield line("all", path, sum(positions), sum(equal), torch.cat(rms), sorted(sum(flips, []), reverse=True))


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        print(folder.name, *table(folder), sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
