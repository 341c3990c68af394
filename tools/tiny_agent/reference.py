"""The exported checkpoint in transformers: FP8 dequantised to bf16, torch paths, eager attention. Also the draft head, which transformers drops."""
import json
import pathlib

import torch
from safetensors.torch import load_file

import model as net


def load_state(folder):
    """Every tensor of the index, FP8 linears dequantised to bf16."""
    folder = pathlib.Path(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    raw = {}
    for f in sorted(set(index.values())):
        raw.update(load_file(str(folder / f)))
    assert set(raw) == set(index)
    return {n: net.dequantise(t, raw[n + "_scale_inv"]) if n + "_scale_inv" in raw else t for n, t in raw.items() if not n.endswith("_scale_inv")}


def load_reference(folder, device):
    """(transformers model, draft head), both bf16."""
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    state = load_state(folder)
    text = json.loads((pathlib.Path(folder) / "config.json").read_text())["text_config"]
    config = Qwen3_5TextConfig(**{k: v for k, v in text.items() if k not in ("dtype", "model_type")})
    config._attn_implementation = "eager"
    with torch.device("meta"):
        m = Qwen3_5ForCausalLM(config)
    m = m.to(torch.bfloat16).to_empty(device=device)
    m.model.rotary_emb = type(m.model.rotary_emb)(config=config).to(device)
    main = {n.replace("model.language_model.", "model."): t for n, t in state.items() if not n.startswith("mtp.")}
    missing, unexpected = m.load_state_dict(main, strict=False)
    assert not unexpected and not [k for k in missing if "rotary" not in k], (missing, unexpected)
    mtp = net.Mtp(net.Shape()).to(torch.bfloat16).to(device)
    mtp.load_state_dict({n.removeprefix("mtp."): t for n, t in state.items() if n.startswith("mtp.")})
    return m.eval(), mtp.eval()


def rows_of(ids):
    """One session as a batch of one row."""
    age = torch.arange(len(ids), device=ids.device)[None]
    rows = net.Rows(ids[None], age, torch.tensor([0, len(ids)], dtype=torch.int32, device=ids.device), len(ids))
    rows.cos, rows.sin = net.rope_tables(age, net.Shape())
    return rows
