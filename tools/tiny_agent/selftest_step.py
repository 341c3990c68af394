"""Checks training in two processes against one: the same gradients, norm and weights, on a tiny shape. Needs torch; half a minute on one processor."""
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import model as net
import smoke
import step as stepping

STEPS, RATE = 3, 1e-3


def model():
    net.attend_name = "masked"
    torch.manual_seed(0)
    return net.TinyAgent(net.tiny(), 0)


def rows():
    """A batch a process."""
    a, b = (smoke.batches(2, (512,), seed)[512] for seed in (0, 100))
    return [a, b]


def process(rank, ranks, meeting, out, half):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    m, mine = model(), rows()[rank]
    step, norms = stepping.Step(m, False, half_exchange=half), []
    for i in range(STEPS):
        norms.append(float(step(mine, i == STEPS - 1, RATE)[3]))
    torch.save({"state": m.state_dict(), "norms": norms}, f"{out}/{rank}.pt")
    dist.destroy_process_group()


def alone():
    """The same steps in one process: the mean of both batches' gradients."""
    m, work = model(), rows()
    step, norms = stepping.Step(m, False), []
    for i in range(STEPS):
        grads = []
        for batch in work:
            step.compute(batch, i == STEPS - 1)
            grads.append(step.gradients.flat.clone())
        step.gradients.flat.copy_((grads[0] + grads[1]) / 2)
        step.rate.fill_(RATE)
        norms.append(float(step.update()))
    return m.state_dict(), norms


def distance(a, b):
    return max(float((a[k] - b[k]).norm() / b[k].norm().clamp_min(1e-6)) for k in b)


def main():
    torch.set_num_threads(1)
    want, norms = alone()
    begin = model().state_dict()
    moved = distance(begin, want)
    for half, limit in ((False, 2e-3), (True, 0.2)):
        with tempfile.TemporaryDirectory() as out:
            mp.spawn(process, (2, f"{out}/meeting", out, half), nprocs=2)
            a, b = (torch.load(pathlib.Path(out, f"{k}.pt")) for k in range(2))
        assert all(torch.equal(a["state"][k], b["state"][k]) for k in want), "the processes must hold the same weights"
        far = distance(a["state"], want)
        print("bf16" if half else "fp32", "exchange: norms", [f"{x:.5f}" for x in a["norms"]], "alone", [f"{x:.5f}" for x in norms], f"weights {far:.1e} apart, moved {moved:.1e}")
        assert all(abs(x - y) < (0.02 if half else 1e-4) * y for x, y in zip(a["norms"], norms)) and far < limit * moved
    print("ok")


if __name__ == "__main__":
    main()
