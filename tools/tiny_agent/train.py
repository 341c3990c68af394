"""Trains the embedded model. One GPU, about a quarter of an hour.

Usage: train.py --corpus CORPUS.json.gz --work DIR --out CHECKPOINT.pt [--steps N --long-steps M ...]

Two lengths: rows of 2,048 tokens, then rows of 8,192. The last part of the run (--quant-from) computes with the weights as the checkpoint will
store them (e4m3 blocks, bf16 elsewhere) while the optimiser keeps fp32 masters: straight-through fake quantisation.
The number of steps is fixed, not the time, so a run can be repeated.
"""
import argparse
import json
import math
import multiprocessing
import os
import pathlib
import queue
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F

import chat
import data
import model as net
import reference
import tokenizer

TOKENS = 16 * 2048  # a step


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--long-from", type=float, default=0.72, help="fraction of the run after which rows are 8,192 tokens instead of 2,048")
    p.add_argument("--quant-from", type=float, default=0.6, help="fraction of the run after which fake quantisation begins")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--attention", default="flash")
    p.add_argument("--init", help="an exported model to go on from")
    p.add_argument("--first-shard", type=int, default=0, help="where a run that goes on takes up the data")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--deadline", type=float, default=1e9, help="seconds by which the run has to end: the schedule then follows the clock where that is ahead of the steps")
    return p.parse_args()


def feeder(args, end_id, digest, out):
    """Prepares batches in a thread: pinned host tensors, so that a step never waits for Python."""
    for length, until, depth in ((2048, args.long_from, 1), (8192, 1.0, 3)):
        rows, count = data.stream(args.work, length, digest, args.first_shard * (4 if length == 2048 else 1)), TOKENS // length
        while progress.done < until:
            ids, age, cum, tgt = data.batch(np.stack([next(rows) for _ in range(count)]), end_id, depth)
            pin = lambda a: torch.from_numpy(np.ascontiguousarray(a)).pin_memory()
            out.put((pin(ids), pin(age.astype(np.int32)), pin(cum), length, [pin(t) for t in tgt]))


class Progress:
    """How much of the run is done, in [0, 1]; the feeder runs at most a queue ahead of it."""

    done = 0.0


progress = Progress()


def losses(m, rows, tgt):
    """Cross-entropy of the main head and of each draft on the assistant's tokens; accuracies; agreement of the first draft with the main head."""
    flat, hidden = rows.ids.flatten(), m.trunk(rows)
    hs = [hidden] + m.drafts(hidden, rows, len(tgt) - 1)
    loss, acc, top = [], [], None
    for j, (h, t) in enumerate(zip(hs, tgt)):
        logits = m.lm_head(h.flatten(0, 1)[t - 1 - j])
        loss.append(F.cross_entropy(logits.float(), flat[t]))
        best = logits.argmax(-1)
        acc.append((best == flat[t]).float().mean())
        if j == 0:
            top = torch.full_like(flat, -1).index_copy_(0, t, best)
        elif j == 1:
            agree = (best == top[t]).float().mean()
    return loss, acc, agree


class AsStored:
    """While open, the parameters hold what the checkpoint will hold; the masters come back on exit."""

    def __init__(self, m):
        lin = net.linears(m)
        self.fp8, names = list(lin.values()), set(lin)
        self.rest = [p for n, p in m.named_parameters() if n not in names]
        self.all = self.fp8 + self.rest
        self.master = [torch.empty_like(p) for p in self.all]

    @torch.no_grad()
    def __enter__(self):
        torch._foreach_copy_(self.master, [p.data for p in self.all])
        for p in self.fp8:
            p.data.copy_(net.dequantise(*net.quantise(p.data)))
        torch._foreach_copy_([p.data for p in self.rest], [p.data.bfloat16() for p in self.rest])

    @torch.no_grad()
    def __exit__(self, *_):
        torch._foreach_copy_([p.data for p in self.all], self.master)


def start_from(m, folder, tok):
    """Weights of an exported model. Where its tokenizer differs, a token starts as the mean of the tokens that spelled it there."""
    state, old = {k: v.float() for k, v in reference.load_state(folder).items()}, tokenizer.load(folder)
    ids = [[t] for t in range(m.s.vocab_size)]
    if old.to_str() != tok.to_str():
        same = {t: i for t, i in old.get_vocab().items()}
        byte = old.decoder.decode
        for text, i in tok.get_vocab().items():
            ids[i] = [same[text]] if text in same else [x for x in old.encode(byte([text])).ids] or [i]
    for name in ("model.language_model.embed_tokens.weight", "lm_head.weight"):
        state[name] = torch.stack([state[name][x].mean(0) for x in ids])
    m.load_state_dict(state)


def optimiser(m, lr):
    decay = [p for p in m.parameters() if p.dim() >= 2]
    rest = [p for p in m.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.95), fused=True)


def rate(args, done):
    """Cosine to 2 % of the peak; `done` in [0, 1]."""
    return args.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def main():
    args, t0 = parse(), time.time()
    os.makedirs(args.work, exist_ok=True)
    total, first = args.steps, args.first_shard
    plan = [shard for i in range(first, first + total // 40 + 8) for shard in [(2048, 4 * i + k) for k in range(4)] + [(8192, i)]]
    pool = [multiprocessing.Process(target=data.worker, args=(k, args.workers, args.work, args.corpus, plan), daemon=True) for k in range(args.workers)]
    for p in pool:
        p.start()

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    net.attend_name = args.attention
    tok = tokenizer.load(chat.MODEL_DIR)
    end_id, digest = tok.token_to_id("<|endoftext|>"), data.new_digest()
    batches = queue.Queue(16)
    threading.Thread(target=feeder, args=(args, end_id, digest, batches), daemon=True).start()
    m = net.TinyAgent(net.Shape(), args.seed)
    if args.init:
        start_from(m, pathlib.Path(args.init), tok)
    m.cuda()
    print("parameters", {k: sum(p.numel() for p in x.parameters()) for k, x in (("model", m.model), ("lm_head", m.lm_head), ("mtp", m.mtp))}, flush=True)
    if not args.no_compile:
        torch._dynamo.config.recompile_limit = 64
        net.layer_forward = torch.compile(net.Layer.forward, dynamic=False)
    opt, stored = optimiser(m, args.lr), AsStored(m)
    seen = learned = step = 0
    waited, t1 = 0.0, time.time()
    steps = {2048: 0, 8192: 0}
    while (done := max(step / total, (time.time() - t0) / args.deadline)) < 1:
        progress.done, w = done, time.time()
        ids, age, cum, length, tgt = batches.get()
        waited += time.time() - w if step else 0
        steps[length] += 1
        lr = rate(args, done) * min(1.0, (step + 1) / 100)
        for g in opt.param_groups:
            g["lr"] = lr
        rows = net.Rows(ids.cuda(non_blocking=True), age.cuda(non_blocking=True), cum.cuda(non_blocking=True), length)
        tgt = [t.cuda(non_blocking=True) for t in tgt]
        quant = done >= args.quant_from
        if quant:
            stored.__enter__()
        with torch.autocast("cuda", torch.bfloat16):
            loss, acc, agree = losses(m, rows, tgt)
        (loss[0] + sum(x * y for x, y in zip((0.3, 0.15, 0.1), loss[1:]))).backward()
        if quant:
            stored.__exit__()
        norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step, seen, learned = step + 1, seen + rows.ids.numel(), learned + len(tgt[0])
        if step % 200 == 0 or step in (1, 5, 20, 50):
            print(f"step {step} rows {length} quant {int(quant)} lr {lr:.2e} loss {' '.join(f'{x.item():.4f}' for x in loss)} acc {' '.join(f'{x.item():.4f}' for x in acc)} agree {agree.item():.4f} norm {norm.item():.2f} "
                  f"{seen / (time.time() - t1) / 1e3:.0f}k tok/s wait {waited:.0f}s t {time.time() - t0:.0f}s", flush=True)
    pathlib.Path(args.work, "STOP").touch()
    torch.cuda.synchronize()
    facts = {"steps": step, "tokens": seen, "learned_tokens": learned, "seconds": round(time.time() - t1), "data_sha256": digest.hexdigest(), "seed": args.seed, "lr": args.lr, "quant_from": args.quant_from, "init": args.init, "first_shard": args.first_shard, "long_from": args.long_from,
             "steps_2048": steps[2048], "steps_8192": steps[8192], "torch": str(torch.__version__), "gpu": torch.cuda.get_device_name(), "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1)}
    torch.save({"state": {k: v.cpu() for k, v in m.state_dict().items()}, "facts": facts}, args.out)
    print("done", json.dumps(facts), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
