"""Checks the recorder against what it must not differ from. Exit code 1 when something does.

Usage: python tools/oracle/check_stream.py CHECKPOINT_DIR [--sessions N]

1. FP8 weights rounded to nearest are those of transformers' own Fp8Dequantize; dithered ones are at most one bf16 step away and have no bias.
2. Layer streaming gives the bits of Qwen3_5ForCausalLM's whole forward: prompt path, one-token path and greedy ids. The model has to fit in memory.
   Control: the comparison must tell the two paths of the whole model apart, which differ by rounding alone.
3. The draft head's wiring: top-1 agreement with the target's own greedy choice where the assistant speaks; with fc's halves swapped it must vanish.
   The draft head of tools/tiny_agent/model.py, written apart, is the second opinion (the embedded model's shape only).
"""
import argparse
import json
import pathlib
import sys
import types

import torch
import torch.nn.functional as F
from transformers import DynamicCache
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from checkpoint import TEXT, Checkpoint
from prompts import PLANS, ROOT, Texts
from record_model import Recording, require_oracle, settle
from stream import Draft, Head, Run, stream

failed = []


def report(what, ok, text):
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {text}")
    if not ok:
        failed.append(what)


def differing(a, b):
    return int((a.view(torch.int16) != b.view(torch.int16)).sum())


def check_weights(checkpoint):
    """Bias in standard errors of a sum of independent roundings, over all FP8 weights."""
    reference = Fp8Dequantize(types.SimpleNamespace())._dequantize_one
    names = [n for n in checkpoint.where if n + "_scale_inv" in checkpoint.where]
    differ = far = total = 0
    drift = variance = 0.0
    for name in names:
        weight, scale = checkpoint.raw(name), checkpoint.raw(name + "_scale_inv")
        nearest, dithered = checkpoint.both(name, True)
        product = reference(weight, scale, torch.float32)
        error, step = (dithered.float() - product).double(), torch.ldexp(torch.ones_like(product), torch.frexp(product)[1] - 8).double()
        differ += differing(nearest, reference(weight, scale, torch.bfloat16))
        far += int((error.abs() >= step).sum())
        drift, variance, total = drift + float((error / step).sum()), variance + float((error / step).square().sum()), total + error.numel()
    report("weights rounded to nearest", differ == 0, f"{differ} of {total} in {len(names)} matrices differ from transformers'")
    bias = drift / variance**0.5
    report("weights dithered", far == 0 and abs(bias) < 5 and variance > 0, f"{far} a step or more away; bias {bias:+.2f} standard errors")


def whole_model(checkpoint):
    """Qwen3_5ForCausalLM with the same bf16 weights."""
    config = checkpoint.config()
    with torch.device("meta"):
        model = qwen.Qwen3_5ForCausalLM(config)
    state = {"model." + k: v for k, v in checkpoint.state(TEXT).items()}
    model.load_state_dict({**state, "lm_head.weight": checkpoint.head()}, strict=True, assign=True)
    model.model.rotary_emb = qwen.Qwen3_5TextRotaryEmbedding(config)
    return model.eval()


def whole_logits(model, calls):
    """One cache, one forward a call; every row of logits."""
    cache = DynamicCache(config=model.config)
    return torch.cat([model(input_ids=torch.tensor([call]), past_key_values=cache, use_cache=True).logits[0] for call in calls])


def whole_greedy(model, ids, count):
    """A plain loop: ties go to the lower id, which transformers' generate does not promise."""
    cache, chosen, call = DynamicCache(config=model.config), [], ids
    for _ in range(count):
        logits = model(input_ids=torch.tensor([call]), past_key_values=cache, use_cache=True).logits[0, -1]
        chosen.append(int((logits == logits.max()).nonzero()[0]))
        call = chosen[-1:]
    return chosen


def check_path(name, r, run, model, head):
    streamed, whole = torch.cat([head.logits(head.norm(h)) for h in run.hidden]), whole_logits(model, run.calls)
    differ = differing(streamed, whole)
    report(f"{name} path, {r.case.num_ids} ids, {r.case.kind}", differ == 0, f"{differ} of {whole.numel()} logits differ")
    return whole


def check_streaming(checkpoint, texts):
    model, head = whole_model(checkpoint), Head(checkpoint, "cpu")
    cases = [c for c in PLANS["small"] if c.num_ids <= 420]
    recordings = [Recording(c, texts.ids(c.kind, c.num_ids)) for c in cases]
    for r in recordings:
        r.plan_runs({0}, is_fp8=False)
    stages = stream(checkpoint, [run for r in recordings for run in r.runs()], [], "cpu", keep=True)
    for r in recordings:
        paths = [check_path(name, r, run, model, head) for name, run in (("prompt", r.prompt), ("generation", r.gen)) if run]
    differ = differing(*paths)
    report("control: the paths of the last prompt", differ > 0, f"{differ} of {paths[0].numel()} logits differ")
    for r in recordings[-3:]:
        r.finish_prompt(head)
        r.finish_greedy(head, stages, checkpoint)
        streamed, whole = r.tensors["greedy_ids"].tolist(), whole_greedy(model, r.ids, r.case.greedy)
        report(f"greedy after {r.case.num_ids} ids, {r.case.kind}", streamed == whole, f"{sum(a == b for a, b in zip(streamed, whole))} of {len(whole)} ids agree")


def spoken(checkpoint, count):
    """(ids, mask of the ids that the assistant wrote) of held-out sessions."""
    import chat
    import tokenizer

    tok = tokenizer.load(checkpoint.folder)
    for line in list(open(ROOT / "tools/tiny_agent/heldout.jsonl", encoding="utf-8"))[:count]:
        e = json.loads(line)
        text = chat.render(e["messages"], e["tools"], e["enable_thinking"])
        coded, spans = tok.encode(text), chat.spans(text, e["enable_thinking"])
        yield coded.ids, torch.tensor([any(a <= o[0] and o[1] <= b for a, b in spans) for o in coded.offsets])


def second_opinion(checkpoint, ids, embedded, normed):
    """The same rows through tools/tiny_agent/model.py."""
    import model as net
    import reference

    net.attend_name = "masked"
    head = net.Mtp(net.Shape()).to(torch.bfloat16)
    head.load_state_dict(checkpoint.state("mtp."))
    return head(normed, embedded, reference.rows_of(torch.tensor(ids)))


def check_draft(checkpoint, sessions):
    head, draft = Head(checkpoint, "cpu"), Draft(checkpoint, "cpu")
    runs = [Run(ids) for ids, _ in sessions]
    stream(checkpoint, runs, [], "cpu")
    swapped = lambda e, h: draft.stage(draft.project(*reversed(draft.halves(e, h))), 0, draft.stage.cache())
    right = wrong = same = total = rows = 0
    furthest = 0.0
    for (ids, mask), run in zip(sessions, runs):
        normed = head.norm(run.hidden[0])
        target = head.logits(normed).argmax(-1)[1:]  # row p + 1 of the target is about the same id as row p of the draft head
        at = F.pad(mask[2:], (0, 1))  # that id is one of the assistant's
        embedded = checkpoint.embedding(ids[1:])
        mine = head.logits(draft(embedded, normed[:, :-1]))
        right += int((mine.argmax(-1) == target)[at].sum())
        wrong += int((head.logits(swapped(embedded, normed[:, :-1])).argmax(-1) == target)[at].sum())
        total += int(at.sum())
        other = head.logits(second_opinion(checkpoint, ids[:-1], embedded, normed[:, :-1]))
        same += int((other.argmax(-1) == mine.argmax(-1)).sum())
        rows += len(mine)
        furthest = max(furthest, float((other.float() - mine.float()).abs().max()))
    report("draft head", right > 0.8 * total, f"{right} of {total} assistant ids agree with the target ({100 * right / total:.1f} %)")
    report("draft head, halves swapped", wrong < 0.1 * total, f"{wrong} of {total} agree ({100 * wrong / total:.1f} %)")
    report("draft head of tools/tiny_agent/model.py", same > 0.97 * rows, f"top-1 equal at {same} of {rows} rows, largest difference {furthest:.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("checkpoint")
    p.add_argument("--sessions", type=int, default=8, help="held-out sessions for the draft head")
    args = p.parse_args()
    require_oracle()
    settle(1)
    checkpoint = Checkpoint(args.checkpoint, 1)
    if checkpoint.is_fp8:
        check_weights(checkpoint)
    check_streaming(checkpoint, Texts(pathlib.Path(args.checkpoint)))
    check_draft(checkpoint, list(spoken(checkpoint, args.sessions)))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
