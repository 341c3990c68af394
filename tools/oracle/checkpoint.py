"""A checkpoint of the family, read tensor by tensor: FP8 linears come out as bf16, rounded to nearest as transformers does or stochastically."""
import json
import pathlib
import types

import torch
import xxhash
from safetensors import safe_open
from transformers import Qwen3_5TextConfig
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from generated import MASK, fnv1a64

TEXT = "model.language_model."
to_nearest = Fp8Dequantize(types.SimpleNamespace())._dequantize_one
ROWS_AT_ONCE = 2048  # of a weight matrix while it is dithered: bounds the memory


def to_dithered(weight, scale, seed, name):
    """Exact fp32 products, rounded to bf16 up or down with the probability that keeps the mean. Depends on (seed, name) alone."""
    generator = torch.Generator().manual_seed((seed ^ fnv1a64(name)) & (MASK >> 1))
    scale = scale.float().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    block = weight.shape[0] // scale.shape[0]
    out = torch.empty(weight.shape, dtype=torch.bfloat16)
    for at in range(0, weight.shape[0], ROWS_AT_ONCE):
        rows = weight[at : at + ROWS_AT_ONCE].float()
        rows *= scale[at // block : -(-(at + rows.shape[0]) // block)].repeat_interleave(block, 0)
        noise = torch.empty(rows.shape, dtype=torch.int32).random_(1 << 16, generator=generator)
        bits = (rows.view(torch.int32) + noise).bitwise_and_(-65536)  # carries into the kept half with probability dropped / 2^16
        out[at : at + ROWS_AT_ONCE] = bits.view(torch.float32)  # exact: the low half is zero
    return out


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

    def tensor(self, name, dither=False):
        """bf16, whatever the file holds."""
        value = self.raw(name)
        if name + "_scale_inv" not in self.where:
            return value.to(torch.bfloat16)
        scale = self.raw(name + "_scale_inv")
        return to_dithered(value, scale, self.seed, name) if dither else to_nearest(value, scale, torch.bfloat16)

    def state(self, prefix, dither=False):
        """Every tensor under `prefix`, named without it."""
        names = [n for n in self.where if n.startswith(prefix) and not n.endswith("_scale_inv")]
        return {n.removeprefix(prefix): self.tensor(n, dither) for n in names}

    def layer(self, index, dither=False):
        return self.state(f"{TEXT}layers.{index}.", dither)

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
