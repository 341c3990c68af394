"""Seeded inputs that need no file: an integer generator that Python and the C++ tests (tests/ops/golden_inputs.cc) both compute bit for bit.

Element i of tensor `name` comes from splitmix64(fnv1a64(name) + (i + 1) * 0x9E3779B97F4A7C15). Its four 16-bit fields, summed and
centred, are an integer with a bell-shaped distribution; one fp32 product with `scale` makes the value, so no rounding is left to chance.
"""
import numpy as np
import torch

STD_OF_SUM = 37837.0  # of the sum of four 16-bit fields
MASK = (1 << 64) - 1


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def splitmix64(name, count):
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a64(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def bell(bits, scale, shift):
    fields = sum(((bits >> np.uint64(16 * k)) & np.uint64(0xFFFF)).astype(np.int64) for k in range(4))
    return (fields - 131070 + shift).astype(np.float32) * np.float32(scale)


def columns(shape):
    return np.broadcast_to(np.arange(shape[-1]), shape).reshape(-1)


def values(name, shape, kind, scale, shift):
    """fp32 values of one recipe; the kinds are described in KINDS."""
    bits = splitmix64(name, int(np.prod(shape)))
    col = columns(shape)
    if kind == "unit":
        return ((bits & np.uint64(0xFFFF)).astype(np.float32) * np.float32(2) + np.float32(1)) * np.float32(2.0**-17)
    if kind == "decay":
        exponent = -13 + (col * 16) // max(shape[-1], 1) + ((bits >> np.uint64(16)) % np.uint64(3)).astype(np.int64)
        mantissa = np.float32(1) + (bits & np.uint64(0xFFFF)).astype(np.float32) * np.float32(2.0**-16)
        return -np.ldexp(mantissa, exponent.astype(np.int32)).astype(np.float32)
    if kind == "ids":
        return (bits % np.uint64(int(scale))).astype(np.float32)
    v = bell(bits, scale, shift)
    if kind == "residual":
        return np.where(col % 61 == 7, v * np.float32(16), v)
    if kind == "silu":
        return np.where(v < 0, v * np.float32(0.125), v)
    assert kind == "normal", kind
    return v


KINDS = {
    "normal": "bell-shaped, standard deviation 37837 * scale, mean shift * scale",
    "residual": "normal, columns c with c % 61 == 7 sixteen times as large (a residual stream's outlier channels)",
    "silu": "normal with negative values divided by 8 (what SiLU leaves)",
    "unit": "uniform in (0, 1)",
    "decay": "-(1 + u) * 2^e, e from -13 (first column) to 4 (last): slow and fast heads of log decay g",
    "ids": "integers in [0, scale)",
}
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "e4m3": torch.float8_e4m3fn, "i32": torch.int32}


def checksum(tensor):
    """Sum over elements of bits * (2 i + 1), mod 2^64."""
    size = tensor.element_size()
    raw = tensor.contiguous().view(-1).view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).numpy()
    bits = raw.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[size]).astype(np.uint64)
    with np.errstate(over="ignore"):
        return int((bits * (np.arange(bits.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum(dtype=np.uint64))


class Inputs:
    """Makes inputs and remembers their recipes for the manifest."""

    def __init__(self):
        self.recipes = {}

    def __call__(self, name, shape, kind="normal", std=1.0, dtype="bf16", mean=0.0):
        scale = float(std) if kind == "ids" else float(np.float32(std / STD_OF_SUM))
        shift = int(round(mean / scale)) if mean else 0
        v = torch.from_numpy(np.ascontiguousarray(values(name, tuple(shape), kind, scale, shift))).reshape(shape)
        if dtype == "e4m3":
            v = v.clamp(-448.0, 448.0)
        tensor = v.to(DTYPES[dtype])
        assert name not in self.recipes, name
        self.recipes[name] = {"shape": list(shape), "dtype": dtype, "kind": kind, "scale": scale, "shift": shift,
                              "checksum": f"{checksum(tensor):016x}"}
        return tensor
