"""One training step: losses, the stored form of the weights, the optimiser, and the whole of it as a CUDA graph.

Everything a step reads has a fixed shape: targets and session bounds are filled up to a maximum. So a step of some row length and precision can be
recorded once and replayed without Python; where recording fails, steps go on one by one.
"""
import collections

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

import model as net

BOUNDS_MAX = 257  # sessions of a batch, and the end
WEIGHTS = (1.0, 0.3, 0.15, 0.1)  # of the main head and the chained drafts
WARM_STEPS = 3


def targets_max(tokens):
    """Targets of a batch at most: a third of the tokens are the assistant's; those over the maximum are not learned."""
    return tokens * 9 // 16


def fixed(ids, age, cum, targets):
    """A batch of `data.batch` in fixed shapes, as host tensors; None when it has too many sessions."""
    if len(cum) > BOUNDS_MAX:
        return None
    cap = targets_max(ids.size)
    padded = np.zeros((len(targets), cap), np.int64)
    count = np.minimum([len(t) for t in targets], cap)
    for j, (row, t) in enumerate(zip(padded, targets)):
        row[:] = j + 1  # looks back to token 0
        row[: count[j]] = t[:cap]
    bounds = np.full(BOUNDS_MAX, ids.size, np.int32)
    bounds[: len(cum)] = cum
    return [torch.from_numpy(np.ascontiguousarray(x)) for x in (ids, age.astype(np.int32), bounds, padded, count.astype(np.int64))]


def losses(m, rows, targets, count):
    """Cross-entropy of the main head and of each draft on the assistant's tokens; accuracies; agreement of the first draft with the main head."""
    flat, hidden = rows.ids.flatten(), m.trunk(rows)
    hs = [hidden] + m.drafts(hidden, rows, len(targets) - 1)
    loss, acc, top = [], [], None
    for j, h in enumerate(hs):
        t, valid = targets[j], torch.arange(targets.shape[1], device=flat.device) < count[j]
        logits = m.lm_head(h.flatten(0, 1).index_select(0, t - 1 - j))
        gold = flat.index_select(0, t).masked_fill(~valid, -100)
        loss.append(F.cross_entropy(logits.float(), gold))
        best = logits.argmax(-1).masked_fill(~valid, -1)
        acc.append((best == gold).sum() / count[j])
        if j == 0:
            top = torch.full_like(flat, -1).scatter_reduce_(0, t, best, "amax")
        elif j == 1:
            agree = (valid & (best == top.index_select(0, t))).sum() / count[j]
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


def optimiser(m, rate):
    """AdamW in one launch a group; the rate is a tensor, so that a recorded step reads it anew."""
    decay = [p for p in m.parameters() if p.dim() >= 2]
    rest = [p for p in m.parameters() if p.dim() < 2]
    cuda = rate.is_cuda
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=rate, betas=(0.9, 0.95), fused=cuda or None, capturable=cuda)


class Gradients:
    """All gradients as views of one buffer, so that processes average them in one exchange; each process sees rows of its own."""

    def __init__(self, m, half=False):
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        params = list(m.parameters())
        self.flat = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
        self.sent = torch.empty_like(self.flat, dtype=torch.bfloat16) if half and self.ranks > 1 else self.flat
        at = 0
        for p in params:
            p.grad = self.flat[at: at + p.numel()].view_as(p)
            at += p.numel()

    def exchange(self):
        if self.ranks > 1:
            if self.sent is not self.flat:
                self.sent.copy_(self.flat)
            dist.all_reduce(self.sent)

    @torch.no_grad()
    def clip(self):
        """The mean over the processes, scaled to a norm of at most 1; returns the norm before."""
        if self.sent is not self.flat:
            self.flat.copy_(self.sent)
        norm = self.flat.norm() / self.ranks
        self.flat.mul_((1 / (norm + 1e-6)).clamp(max=1.0) / self.ranks)
        return norm


class Step:
    """Takes batches of `fixed`; gives (losses, accuracies, agreement, gradient norm) as tensors that hold until the next step.

    Two recorded parts, losses with gradients and the update, and between them the exchange, which is never recorded.
    """

    def __init__(self, m, graphs, half_exchange=False):
        device = next(m.parameters()).device
        self.m, self.graphs, self.device = m, graphs and device.type == "cuda", device
        self.rate = torch.zeros((), device=device)
        self.gradients = Gradients(m, half_exchange)
        self.opt, self.stored = optimiser(m, self.rate), AsStored(m)
        self.inputs, self.recorded, self.warm, self.pool = {}, {}, collections.Counter(), None

    def compute(self, batch, quant):
        ids, age, bounds, targets, count = batch
        rows = net.Rows(ids, age, bounds, ids.shape[1])
        self.gradients.flat.zero_()
        if quant:
            self.stored.__enter__()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            loss, acc, agree = losses(self.m, rows, targets, count)
        sum(w * x for w, x in zip(WEIGHTS, loss)).backward()
        if quant:
            self.stored.__exit__()
        return [x.detach() for x in loss], acc, agree

    def update(self):
        norm = self.gradients.clip()
        self.opt.step()
        return norm

    def part(self, key, run):
        """Runs a part of the step: the first times as it is, then recorded, then replayed; what it returned holds on."""
        if not self.graphs:
            return run()
        if key in self.recorded:
            graph, out = self.recorded[key]
            graph.replay()
            return out
        if self.warm[key] < WARM_STEPS:
            self.warm[key] += 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                out = run()
            torch.cuda.current_stream().wait_stream(side)
            return out
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):  # the feeder goes on pinning memory
                out = run()
            self.pool = self.pool or graph.pool()
            self.recorded[key] = graph, out
            graph.replay()
            return out
        except Exception as error:  # whatever a driver or a kernel does not allow: steps one by one compute the same
            print(f"no graph: {type(error).__name__}: {str(error)[:300]}", flush=True)
            self.graphs = False
            torch.cuda.synchronize()
            return run()

    def __call__(self, batch, quant, rate):
        self.rate.fill_(rate)
        key = (batch[0].shape, batch[3].shape)
        if key not in self.inputs:
            self.inputs[key] = [torch.empty_like(x, device=self.device) for x in batch]
        kept = self.inputs[key]
        for to, x in zip(kept, batch):
            to.copy_(x, non_blocking=True)
        loss, acc, agree = self.part((*key, quant), lambda: self.compute(kept, quant))
        self.gradients.exchange()
        norm = self.part("update", self.update)
        return loss, acc, agree, norm
