"""The ordered product of `delta.py` as one kernel: a program carries a block of the state's columns through all chunks of a row."""
import triton
import triton.language as tl

COLUMNS = 32


@triton.jit
def _scan(m_ptr, x_ptr, s_ptr, count: tl.constexpr, d: tl.constexpr, columns: tl.constexpr, back: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64) * count * d * d, tl.program_id(1) * columns
    i, j, c = tl.arange(0, d)[:, None], tl.arange(0, d)[None, :], at + tl.arange(0, columns)[None, :]
    state = tl.zeros((d, columns), tl.float32)
    for step in range(count):
        chunk = row + (count - 1 - step if back else step) * d * d
        tl.store(s_ptr + chunk + i * d + c, state)
        m = tl.load(m_ptr + chunk + (j * d + i if back else i * d + j))
        state = tl.dot(m, state, input_precision="tf32") + tl.load(x_ptr + chunk + i * d + c)


def scan(m, x, s, back):
    """m, x, s fp32 [rows, chunks, d, d], contiguous: s as `delta._loop` writes it."""
    rows, count, d, _ = m.shape
    _scan[(rows, d // COLUMNS)](m, x, s, count, d, COLUMNS, back, num_warps=8, num_stages=1)
