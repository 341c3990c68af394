"""Trains the embedded model: one process a GPU, each on rows of its own, about half an hour on two.

Usage: train.py --corpus CORPUS.json.gz --work DIR --out CHECKPOINT.pt [--steps N --long-steps M ...]

Two lengths: rows of 2,048 tokens, then rows of 8,192. The last part of the run (--quant-from) computes with the weights as the checkpoint will
store them (e4m3 blocks, bf16 elsewhere) while the optimiser keeps fp32 masters: straight-through fake quantisation.
With --steps alone the number of steps is fixed, so a run can be repeated; with --deadline it follows the clock. The first process starts the others,
makes the data and decides how much of the run is done; gradients are averaged in every step, so all hold the same weights.
"""
import argparse
import datetime
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed as dist

import chat
import data
import delta
import model as net
import reference
import step as stepping
import tokenizer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--long-from", type=float, default=0.72, help="fraction of the run after which rows are 8,192 tokens instead of 2,048")
    p.add_argument("--quant-from", type=float, default=0.6, help="fraction of the run after which fake quantisation begins")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) * 7 // 8 - 1), help="processes that make data")
    p.add_argument("--ranks", type=int, default=0, help="processes that train, one a GPU; 0: one for each GPU there is")
    p.add_argument("--rank", type=int, default=0, help="which of them this is: the first starts the others")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--attention", default="flash")
    p.add_argument("--init", help="an exported model, or a checkpoint of a stage before, to go on from")
    p.add_argument("--first-shard", type=int, default=0, help="where a run that goes on takes up the data")
    p.add_argument("--rows", type=int, default=16, help="rows of 2,048 tokens in a step of each process, a multiple of 4")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--no-graphs", action="store_true", help="steps one by one instead of recorded ones")
    p.add_argument("--inverse", choices=sorted(delta.INVERSE), default=delta.inverse_name)
    p.add_argument("--scan", choices=sorted(delta.SCAN), default=delta.scan_name)
    p.add_argument("--half", action="store_true", help="bf16 operands inside chunks of the delta rule")
    p.add_argument("--save-every", type=float, default=1e9, help="seconds between checkpoints")
    p.add_argument("--deadline", type=float, default=1e9, help="seconds by which the run has to end: the schedule then follows the clock where that is ahead of the steps")
    p.add_argument("--end-file", help="when this file appears during the run, the clock time in it (seconds since 1970) replaces the deadline")
    return p.parse_args()


def feeder(args, end_id, digest, out):
    """Prepares batches in a thread: pinned host tensors, so that a step never waits for Python."""
    for length, until, depth in ((2048, args.long_from, 1), (8192, 1.0, 3)):
        rows, count = data.stream(args.work, length, digest, args.first_shard * (4 if length == 2048 else 1)), args.rows * 2048 // length
        rows = itertools.islice(rows, args.rank, None, args.ranks)
        while progress.done < until:
            batch = stepping.fixed(*data.batch(np.stack([next(rows) for _ in range(count)]), end_id, depth))
            if batch is not None:
                out.put([x.pin_memory() if torch.cuda.is_available() else x for x in batch])


class Progress:
    """How much of the run is done, in [0, 1]; the feeder runs at most a queue ahead of it."""

    done = 0.0


progress = Progress()


def start_from(m, folder, tok):
    """Weights of a checkpoint file, or of an exported model. Where that one's tokenizer differs, a token starts as the mean of the tokens that spelled it there."""
    if folder.is_file():
        m.load_state_dict(torch.load(folder, map_location="cpu")["state"])
        return
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


def rate(args, done):
    """Cosine to 2 % of the peak; `done` in [0, 1]."""
    return args.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def save(m, path, facts):
    """Written beside and renamed, so that an end in between leaves the last whole checkpoint."""
    torch.save({"state": {k: v.cpu() for k, v in m.state_dict().items()}, "facts": facts}, path + ".tmp")
    os.replace(path + ".tmp", path)


def join(args):
    """Starts the other processes and meets them; the group can hold several GPUs of one machine."""
    if args.ranks < 2:
        return []
    meeting = os.path.abspath(f"{args.work}/meeting")
    others = []
    if args.rank == 0:
        pathlib.Path(meeting).unlink(missing_ok=True)
        # each sees its GPU as the only one, so that what one of them compiled serves all
        others = [subprocess.Popen([sys.executable, "-u", *sys.argv, "--ranks", str(args.ranks), "--rank", str(k)], env={**os.environ, "CUDA_VISIBLE_DEVICES": str(k)}) for k in range(1, args.ranks)]
    cuda = args.device.type == "cuda"
    dist.init_process_group("nccl" if cuda else "gloo", init_method=f"file://{meeting}", rank=args.rank, world_size=args.ranks, timeout=datetime.timedelta(seconds=120 if cuda else 1800), device_id=args.device if cuda else None)
    return others


def exchange_time(m, device, count=20):
    """Milliseconds to average the gradients in fp32: the slowest process's."""
    x = torch.zeros(sum(p.numel() for p in m.parameters()), device=device)
    for i in range(count + 3):
        if i == 3:
            float(x[0])
            t = time.time()
        dist.all_reduce(x)
    float(x[0])
    took = torch.tensor((time.time() - t) / count * 1e3, device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def same_weights(m):
    """Whether all processes hold the same weights, by sums of the bits' values."""
    mine = torch.stack([f(p.detach().double()) for p in m.parameters() for f in (torch.sum, lambda x: x.abs().sum())])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return bool((low == high).all())


SLOW_EXCHANGE = 4  # milliseconds from which gradients travel as bf16
SYNC_EVERY = 8  # steps between looks at the clock: it decides the schedule, so the host must not run far ahead


def how_far(args, step, t0, before):
    """How much of the run is done, in [0, 1]: what the first process finds, every few steps."""
    if step % SYNC_EVERY:
        return before
    given = pathlib.Path(args.end_file) if args.end_file else None
    deadline = float(given.read_text()) - t0 if given and given.exists() and given.stat().st_mtime > t0 else args.deadline
    done = torch.tensor(max(before, step / args.steps, (time.time() - t0) / deadline), device=args.device, dtype=torch.float64)
    if args.ranks > 1:
        dist.broadcast(done, 0)
    return done.item()


def main():
    args, t0 = parse(), time.time()
    args.ranks = args.ranks or max(1, torch.cuda.device_count())
    cuda = torch.cuda.is_available()
    args.device = torch.device("cuda", 0) if cuda else torch.device("cpu")  # without a GPU a smaller shape, only to check this program
    os.makedirs(args.work, exist_ok=True)
    first, lead, pool = args.first_shard, args.rank == 0, []
    if lead:
        plan = [shard for i in range(first, first + args.steps * args.rows * args.ranks // 640 + 8) for shard in [(2048, 4 * i + k) for k in range(4)] + [(8192, i)]]
        pool = [multiprocessing.Process(target=data.worker, args=(k, args.workers, args.work, args.corpus, plan), daemon=True) for k in range(args.workers)]
        for p in pool:
            p.start()

    if cuda:
        torch.cuda.set_device(args.device)
    others = join(args)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    net.attend_name = args.attention if cuda else "masked"
    delta.inverse_name, delta.scan_name, delta.half = args.inverse, args.scan, args.half
    tok = tokenizer.load(chat.MODEL_DIR)
    end_id, digest = tok.token_to_id("<|endoftext|>"), data.new_digest()
    batches = queue.Queue(16)
    threading.Thread(target=feeder, args=(args, end_id, digest, batches), daemon=True).start()
    m = net.TinyAgent(net.Shape() if cuda else net.tiny(), args.seed)
    if args.init and cuda:
        start_from(m, pathlib.Path(args.init), tok)
    m.to(args.device)
    exchange = exchange_time(m, args.device) if args.ranks > 1 else 0.0
    if lead:
        print("parameters", {k: sum(p.numel() for p in x.parameters()) for k, x in (("model", m.model), ("lm_head", m.lm_head), ("mtp", m.mtp))}, f"processes {args.ranks} exchange {exchange:.1f} ms", flush=True)
    if cuda and not args.no_compile:
        torch._dynamo.config.recompile_limit = 64
        net.layer_forward = torch.compile(net.Layer.forward, dynamic=False)
    step_of = stepping.Step(m, not args.no_graphs, half_exchange=exchange > SLOW_EXCHANGE)
    seen = learned = step = 0
    waited, t1, done = 0.0, time.time(), 0.0
    steps, saved = {2048: 0, 8192: 0}, time.time()
    while (done := how_far(args, step, t0, done)) < 1:
        progress.done, w = done, time.time()
        batch = batches.get()
        waited += time.time() - w if step else 0
        length = batch[0].shape[1]
        steps[length] += 1
        lr, quant = rate(args, done) * min(1.0, (step + 1) / 100), done >= args.quant_from
        loss, acc, agree, norm = step_of(batch, quant, lr)
        step, seen, learned = step + 1, seen + batch[0].numel() * args.ranks, learned + int(batch[4][0]) * args.ranks
        if lead and time.time() - saved > args.save_every:
            save(m, args.out, {"unfinished": True, "steps": step, "tokens": seen})
            saved = time.time()
        if lead and (step % 200 == 0 or step in (1, 5, 20, 50)):
            print(f"step {step} rows {length} quant {int(quant)} lr {lr:.2e} loss {' '.join(f'{x.item():.4f}' for x in loss)} acc {' '.join(f'{x.item():.4f}' for x in acc)} agree {agree.item():.4f} norm {norm.item():.2f} "
                  f"{seen / (time.time() - t1) / 1e3:.0f}k tok/s wait {waited:.0f}s t {time.time() - t0:.0f}s", flush=True)
    same = same_weights(m) if args.ranks > 1 else True
    if lead:
        pathlib.Path(args.work, "STOP").touch()
        facts = {"steps": step, "tokens": seen, "learned_tokens": learned, "seconds": round(time.time() - t1), "data_sha256": digest.hexdigest(), "seed": args.seed, "lr": args.lr, "quant_from": args.quant_from, "init": args.init, "first_shard": args.first_shard, "long_from": args.long_from,
                 "steps_2048": steps[2048], "steps_8192": steps[8192], "rows": args.rows, "processes": args.ranks, "same_weights": same, "graphs": step_of.graphs, "exchange_ms": round(exchange, 2), "delta": [args.inverse, args.scan, args.half], "torch": str(torch.__version__), "gpu": torch.cuda.get_device_name() if cuda else "none", "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1) if cuda else 0}
        save(m, args.out, facts)
        print("done", json.dumps(facts), flush=True)
        for p in pool:
            p.terminate()
        for p in others:
            p.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
