"""Times one training step of each variant on this machine, checks that they compute the same, and names the fastest.

Usage: smoke.py [--half] [--flags FILE] [--rows N] [--init MODEL_DIR]

A minute on an H200, most of it compiling, which the training run then finds done. The rate is 0, so that all steps see the same weights and must give
the same losses. FILE gets the arguments for train.py. On a machine without a GPU a tiny case runs through the same code (only to check this program).
"""
import argparse
import gc
import pathlib
import time

import torch

import chat
import data
import delta
import model as net
import step as stepping
import tokenizer
import train
from world import episode

VARIANTS = [("solve", "loop", False), ("blocks", "loop", True), ("blocks", "kernel", True)]


def batches(rows, lengths, first=0):
    """One batch a row length, of the same sessions where they fit: those of the seeds from `first` on."""
    tok = tokenizer.load(chat.MODEL_DIR)
    end, turn_end, out = tok.token_to_id("<|endoftext|>"), tok.token_to_id("<|im_end|>"), {}
    docs = [data.encode(tok, episode.session(seed), end) for seed in range(first, first + max(24, rows * 2))]
    for length in lengths:
        fitted = [x for x in (data.fit(d, length, turn_end) for d in docs) if x is not None]
        packed = data.pack(fitted, length, end)
        count = rows * lengths[0] // length
        while len(packed) < count:
            packed = torch.cat([torch.from_numpy(packed.astype("int32"))] * 2).numpy().astype("uint16")
        out[length] = stepping.fixed(*data.batch(packed[:count], end, 1 if length == lengths[0] else 3))
    return out


def measure(run, cuda, count=10):
    """(milliseconds a step, loss, norm), after what has to be compiled or recorded."""
    for _ in range(stepping.WARM_STEPS + 2):
        loss, _, _, norm = run()
    sync = torch.cuda.synchronize if cuda else lambda: None
    sync()
    t = time.time()
    for _ in range(count):
        loss, _, _, norm = run()
    sync()
    return (time.time() - t) / count * 1e3, float(loss[0]), float(norm)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--half", action="store_true", help="bf16 operands inside chunks: compiles anew")
    p.add_argument("--flags")
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--init", default=str(chat.MODEL_DIR))
    args = p.parse_args()
    cuda, t0 = torch.cuda.is_available(), time.time()
    torch.set_float32_matmul_precision("high")
    lengths = (2048, 8192) if cuda else (256, 512)
    m = net.TinyAgent(net.Shape() if cuda else net.tiny(), 0)
    if cuda:
        train.start_from(m, pathlib.Path(args.init), tokenizer.load(chat.MODEL_DIR))
        m.cuda()
        torch._dynamo.config.recompile_limit = 64
        net.layer_forward = torch.compile(net.Layer.forward, dynamic=False)
    else:
        net.attend_name = "masked"
    delta.half, work = args.half, batches(args.rows if cuda else 2, lengths)
    print(f"{'inverse':8} {'scan':7} {'graphs':6} " + " ".join(f"{f'ms at {x}':>11} {'tok/s':>7} {'loss':>8} {'norm':>7}" for x in lengths) + "   total s", flush=True)
    first, best = None, None
    for inverse, scan, graphs in VARIANTS if cuda else VARIANTS[:2]:
        delta.inverse_name, delta.scan_name = inverse, scan
        step = None  # its recorded steps hold memory
        gc.collect()
        try:
            step = stepping.Step(m, graphs)
            got = [measure(lambda b=b: step(b, False, 0.0), cuda, 10 if cuda else 1) for b in work.values()]
        except Exception as error:  # a variant that this machine cannot run is out, no more
            print(f"{inverse:8} {scan:7} {graphs!s:6} {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        first = first or got
        same = all(abs(a[1] - b[1]) < 2e-3 + 0.02 * b[1] and abs(a[2] - b[2]) < 0.03 * b[2] for a, b in zip(got, first))
        print(f"{inverse:8} {scan:7} {str(step.graphs):6} " + " ".join(f"{ms:11.1f} {b[0].numel() / ms:6.0f}k {loss:8.4f} {norm:7.3f}" for (ms, loss, norm), b in zip(got, work.values())) + f" {time.time() - t0:9.0f}" + ("" if same else "   DIFFERS, not used"), flush=True)
        if same and (best is None or got[0][0] < best[0]):
            best = got[0][0], f"--inverse {inverse} --scan {scan}{'' if step.graphs else ' --no-graphs'}{' --half' if args.half else ''}"
    if cuda:
        print(f"memory {torch.cuda.max_memory_allocated() / 1e9:.0f} GB")
    print("fastest:", best[1])
    if args.flags:
        pathlib.Path(args.flags).write_text(best[1] + "\n")


if __name__ == "__main__":
    main()
