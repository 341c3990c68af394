"""A checkpoint of the family, read tensor by tensor: FP8 linears come out as bf16, rounded to nearest as transformers does or stochastically."""
import json
import pathlib

import numpy as np
import torch
import xxhash
from safetensors import safe_open
from transformers import Qwen3_5TextConfig

from generated import MASK, fnv1a64

TEXT = "model.language_model."
ROWS_AT_ONCE = 256  # of a weight matrix: what is between stays in the processor's cache


def exact(weight, scale):
    """fp32 products: 4 by 8 significant bits, so nothing is lost. e4m3's bits become fp32's with a bias of 7; the scale makes up for the rest."""
    bits = weight.view(torch.int8).to(torch.int32).bitwise_left_shift_(20).bitwise_and_(0x87F00000 - (1 << 32))
    rows, columns = weight.shape[0] // scale.shape[0], weight.shape[1] // scale.shape[1]
    return bits.view(torch.float32).mul_((scale.float() * 2.0**120).repeat_interleave(rows, 0).repeat_interleave(columns, 1))


def noise(source, shape):
    """int32 out of 0, 2^8, ... 2^16 - 2^8. 16 steps would do: the products have 12 bits and bf16 has 8."""
    return torch.from_numpy(source.random_raw(shape.numel() // 8).view(np.uint8)).view(shape).to(torch.int32).bitwise_left_shift_(8)


def dequantise(weight, scale, seed, name, dither):
    """(bf16 weights rounded to nearest, None or bf16 weights rounded up or down with the probability that keeps the mean, by (seed, name) alone)."""
    block = weight.shape[0] // scale.shape[0]
    assert ROWS_AT_ONCE % block == 0, (name, weight.shape, scale.shape)
    nearest = torch.empty(weight.shape, dtype=torch.bfloat16)
    dithered = torch.empty_like(nearest) if dither else None
    source = np.random.SFC64((seed ^ fnv1a64(name)) & MASK)
    for at in range(0, weight.shape[0], ROWS_AT_ONCE):
        rows = slice(at, at + ROWS_AT_ONCE)
        product = exact(weight[rows], scale[at // block : (at + ROWS_AT_ONCE) // block])
        nearest[rows] = product
        if dither:
            product.view(torch.int32).add_(noise(source, product.shape)).bitwise_and_(-65536)  # carries into the kept half as often as it should
            dithered[rows] = product
    return nearest, dithered


class Checkpoint:
    """Tensors are read when asked for and stay in the file's pages."""

    def __init__(self, folder, seed):
        self.folder, self.seed = pathlib.Path(folder), seed
        self.files = sorted(self.folder.glob("*.safetensors"), key=lambda p: p.name.encode())
        if not self.files:
            raise SystemExit(f"{folder}: no *.safetensors file")
        handles = [safe_open(str(p), framework="pt") for p in self.files]
        self.where = {name: handle for handle in handles for name in handle.keys()}
        self.text = json.loads((self.folder / "config.json").read_text())["text_config"]
        self.is_fp8 = any(name.endswith("_scale_inv") for name in self.where)

    def config(self, layer_types=None):
        """The text configuration; with only these layers where they are given."""
        kinds = layer_types or self.text["layer_types"]
        fields = {k: v for k, v in self.text.items() if k not in ("dtype", "model_type")}
        c = Qwen3_5TextConfig(**{**fields, "num_hidden_layers": len(kinds), "layer_types": list(kinds)})
        c._attn_implementation = "eager"
        return c

    def raw(self, name):
        return self.where[name].get_tensor(name)

    def both(self, name, dither):
        """(bf16 tensor, the same dithered): one tensor twice where nothing is rounded or no dither is wanted."""
        value = self.raw(name)
        if name + "_scale_inv" not in self.where:
            return (value.to(torch.bfloat16),) * 2
        nearest, dithered = dequantise(value, self.raw(name + "_scale_inv"), self.seed, name, dither)
        return nearest, dithered if dither else nearest

    def tensor(self, name):
        return self.both(name, False)[0]

    def states(self, prefix, dither):
        """Every tensor under `prefix`, named without it: (nearest, dithered)."""
        names = [n for n in self.where if n.startswith(prefix) and not n.endswith("_scale_inv")]
        pairs = {n.removeprefix(prefix): self.both(n, dither) for n in names}
        return tuple({n: pair[i] for n, pair in pairs.items()} for i in range(2))

    def state(self, prefix):
        return self.states(prefix, False)[0]

    def layer(self, index, dither):
        return self.states(f"{TEXT}layers.{index}.", dither)

    def embedding(self, ids):
        """[1, T, H]; touches only these rows of the file."""
        return self.raw(TEXT + "embed_tokens.weight")[torch.as_tensor(ids)][None].to(torch.bfloat16)

    def head(self):
        return self.tensor("lm_head.weight" if "lm_head.weight" in self.where else TEXT + "embed_tokens.weight")

    def digest(self):
        """XXH3-128 over name, zero byte, digest of the file, newline of every weight file in the order of their names."""
        total = xxhash.xxh3_128()
        for path in self.files:
            one = xxhash.xxh3_128()
            with open(path, "rb") as f:
                while part := f.read(1 << 24):
                    one.update(part)
            total.update(path.name.encode() + b"\0" + one.hexdigest().encode() + b"\n")
        return total.hexdigest()
