"""The gated delta rule in chunks of 64 tokens, for training.

Over a chunk the state moves by an affine map, S' = M S + X, so only that product runs in order; the rest is batched over all chunks of all rows.
Two parts have variants, chosen by name before the first step: the inverse of a unit triangular matrix, and the ordered product. All compute the
same; `smoke.py` times them and compares them on the machine.
"""
import torch

CHUNK = 64
inverse_name, scan_name, half = "blocks", "loop", False  # half: products inside chunks take bf16 operands; sums and the state stay fp32


# The ordered product ----------------------------------------------------------------------------------------------------------


def _loop(m, x, s, back):
    """s[:, i + 1] = m[:, i] s[:, i] + x[:, i] from zero, or the same from the end with m transposed; views of [rows, chunks, d, d], so nothing is copied."""
    count = m.shape[1]
    if back:
        s[:, -1].zero_()
        for i in range(count - 1, 0, -1):
            torch.baddbmm(x[:, i], m[:, i].mT, s[:, i], out=s[:, i - 1])
    else:
        s[:, 0].zero_()
        for i in range(count - 1):
            torch.baddbmm(x[:, i], m[:, i], s[:, i], out=s[:, i + 1])


def _kernel(m, x, s, back):
    import delta_kernel

    delta_kernel.scan(m, x, s, back)


SCAN = {"loop": _loop, "kernel": _kernel}


class Scan(torch.autograd.Function):
    """S[n + 1] = M[n] S[n] + X[n] from S[0] = 0; returns S[0..N). M, X fp32 [rows, chunks, d, d]."""

    @staticmethod
    def forward(ctx, m, x):
        s = torch.empty_like(x)
        SCAN[scan_name](m, x, s, False)
        ctx.save_for_backward(m, s)
        return s

    @staticmethod
    def backward(ctx, ds):
        m, s = ctx.saved_tensors
        ds, dx = ds.contiguous(), torch.empty_like(s)
        SCAN[scan_name](m, ds, dx, True)
        return torch.matmul(dx, s.mT), dx


@torch.compiler.disable
def scan(m, x, rows):
    """M, X [heads, chunks of all rows, d, d]; the rows are told apart here, where the compiled part does not see their number."""
    h, n, d, _ = m.shape
    b = rows.ids.shape[0]
    return Scan.apply(m.reshape(h * b, n // b, d, d), x.reshape(h * b, n // b, d, d)).view(h, n, d, d)


# The inverse ------------------------------------------------------------------------------------------------------------------


def _solve(a):
    eye = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype).expand_as(a).contiguous()
    return torch.linalg.solve_triangular(a, eye, upper=False, unitriangular=True)


def _blocks(a):
    """Inverses of diagonal blocks of 2, 4, ... n: [[P, 0], [B, Q]]^-1 = [[P', 0], [-Q' B P', Q']]. As exact as substitution, in products only."""
    n = a.shape[-1]
    at = torch.arange(n, device=a.device)
    t, size = torch.eye(n, device=a.device, dtype=a.dtype).expand_as(a), 1
    while size < n:
        below = ((at[:, None] // (2 * size) == at // (2 * size)) & (at[:, None] // size > at // size)).to(a.dtype)
        t = t - (a * below if size == 1 else t @ (a * below) @ t)
        size *= 2
    return t


INVERSE = {"solve": _solve, "blocks": _blocks}


class UnitInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower A [..., n, n]. The gradient needs products only, which is why this is not left to autograd."""

    @staticmethod
    def forward(ctx, a):
        mode = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # errors multiply here, and the blocks are small
        t = INVERSE[inverse_name](a)
        torch.set_float32_matmul_precision(mode)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx, dt):
        (t,) = ctx.saved_tensors
        return -(t.mT @ dt @ t.mT).tril(-1)


@torch.compiler.disable
def unit_inverse(a):
    return UnitInverse.apply(a)


# The rule ---------------------------------------------------------------------------------------------------------------------


def product(a, b):
    return (a.bfloat16() @ b.bfloat16()).float() if half else a @ b


def rule(q, k, v, g, beta, rows):
    """All fp32: q, k, v [1, H, N, d], g (log decay), beta [1, H, N] over the flat tokens of all rows; returns [1, H, N, d]."""
    _, h, tokens, d = q.shape
    n = tokens // CHUNK
    q, k, v, g, beta = (x.reshape(h, n, CHUNK, *x.shape[3:]) for x in (q * d**-0.5, k, v, g, beta))
    gc = g.cumsum(-1)
    low = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (gc[..., :, None] - gc[..., None, :]).masked_fill(~low, -torch.inf).exp()
    kb = k * beta[..., None]
    rhs = torch.cat([v * beta[..., None], kb * gc.exp()[..., None]], -1)
    u, w = product(unit_inverse((product(kb, k.mT) * decay).tril(-1)), rhs).split(d, -1)
    last = gc[..., -1:]
    kd = k * (last - gc).exp()[..., None]
    m = torch.eye(d, device=q.device, dtype=q.dtype) * last.exp()[..., None] - product(kd.mT, w)
    state = scan(m, product(kd.mT, u), rows)
    o = product(q * gc.exp()[..., None], state) + product(product(q, k.mT) * decay, u - product(w, state))
    return o.reshape(1, h, tokens, d)
