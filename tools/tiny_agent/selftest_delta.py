"""Checks the chunked delta rule against the rule token by token, with sessions that begin inside chunks, and its gradient. Needs torch; a second on one processor.

With TRITON_INTERPRET=1 the kernel of `delta_kernel.py` is checked as well, without a GPU.
"""
import os
import types

import torch

import delta

RESET = -30.0


def by_token(q, k, v, g, beta, rows):
    """[1, H, N, d]: S = e^g S + k (beta (v - k e^g S)), o = q S / sqrt(d), the state anew at each row."""
    _, h, n, d = q.shape
    out, length = [], n // rows.ids.shape[0]
    for i in range(n):
        s = torch.zeros(h, d, d, dtype=q.dtype) if i % length == 0 else s
        s = s * g[0, :, i].exp()[:, None, None]
        seen = torch.einsum("hk,hkv->hv", k[0, :, i], s)
        s = s + torch.einsum("hk,hv->hkv", k[0, :, i], beta[0, :, i, None] * (v[0, :, i] - seen))
        out.append(torch.einsum("hk,hkv->hv", q[0, :, i], s) * d**-0.5)
    return torch.stack(out, 1)[None]


def case(seed, rows=2, length=192, heads=2, d=32):
    r = torch.Generator().manual_seed(seed)
    n = rows * length
    q, k, v = (torch.randn(1, heads, n, d, generator=r, dtype=torch.float64) for _ in range(3))
    k[:, :, 40:120] = k[:, :, 40:41]  # a run of equal keys, where powers of the matrix would explode
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    g = -torch.rand(1, heads, n, generator=r, dtype=torch.float64) * 0.1
    g[:, :, [0, 33, 64, 150, length, length + 70, length + 72]] += RESET
    beta = torch.rand(1, heads, n, generator=r, dtype=torch.float64) * 0.5 + 0.5
    return [q, k, v, g, beta], types.SimpleNamespace(ids=torch.zeros(rows, length))


def outcome(rule, args, rows):
    args = [x.clone().requires_grad_() for x in args]
    out = rule(*args, rows)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).sin()).sum().backward()
    return [out.detach()] + [x.grad for x in args]


def distance(a, b):
    return max(float((x.double() - y).norm() / y.norm()) for x, y in zip(a, b))


def main():
    args, rows = case(1)
    want, single = outcome(by_token, args, rows), [x.float() for x in args]
    scans = ["loop"] + (["kernel"] if os.environ.get("TRITON_INTERPRET") else [])
    for delta.inverse_name in delta.INVERSE:
        for delta.scan_name in scans:
            far = distance(outcome(delta.rule, single, rows), want)
            print(delta.inverse_name, delta.scan_name, f"{far:.1e}")
            assert far < 2e-4
    wrong = [x.clone() for x in single]
    wrong[3][:, :, 33] -= RESET
    assert distance(outcome(delta.rule, wrong, rows), want) > 1e-2, "the check must see a missing reset"
    print("ok")


if __name__ == "__main__":
    main()
