"""Writes a training checkpoint as the family publishes its FP8 models: one file a layer, one for the rest, one for the draft head, an index.

Usage: export.py CHECKPOINT.pt MODEL_DIR
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

import model as net
import tokenizer


def config(s, tok):
    end = tok.token_to_id("<|endoftext|>")
    keep = []
    for i, kind in enumerate(s.layer_types):
        p = f"model.language_model.layers.{i}."
        keep += [p + "input_layernorm", p + "post_attention_layernorm"]
        keep += [p + "linear_attn." + x for x in ("A_log", "conv1d", "dt_bias", "in_proj_b", "in_proj_a", "norm")] if kind == "linear_attention" else [p + "self_attn.q_norm", p + "self_attn.k_norm"]
    keep += ["mtp.layers.0." + x for x in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")]
    keep += ["mtp.fc", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "lm_head", "model.embed_tokens", "model.language_model.embed_tokens", "model.language_model.norm"]
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": end, "dtype": "bfloat16", "eos_token_id": end, "full_attention_interval": s.interval, "head_dim": s.head_dim, "hidden_act": "silu",
        "hidden_size": s.hidden, "initializer_range": 0.02, "intermediate_size": s.mlp, "layer_types": s.layer_types, "linear_conv_kernel_dim": 4, "linear_key_head_dim": s.gdn_dim, "linear_num_key_heads": s.key_heads,
        "linear_num_value_heads": s.value_heads, "linear_value_head_dim": s.gdn_dim, "mamba_ssm_dtype": "float32", "max_position_embeddings": 32768, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "num_attention_heads": s.heads, "num_hidden_layers": s.layers, "num_key_value_heads": s.kv_heads, "output_gate_type": "swish", "pad_token_id": None, "partial_rotary_factor": 0.25,
        "rms_norm_eps": s.eps, "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}, "tie_word_embeddings": False,
        "use_cache": True, "vocab_size": s.vocab_size,
    }
    ids = {k: tok.token_to_id(t) for k, t in (("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>"), ("vision_end_token_id", "<|vision_end|>"), ("vision_start_token_id", "<|vision_start|>"))}
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": ids["image_token_id"], "language_model_only": True, "model_type": "qwen3_5",
        "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": keep, "quant_method": "fp8", "weight_block_size": [128, 128]},
        "text_config": text, "tie_word_embeddings": False, "transformers_version": "5.17.0", "video_token_id": ids["video_token_id"], "vision_end_token_id": ids["vision_end_token_id"], "vision_start_token_id": ids["vision_start_token_id"],
    }


def file_of(name):
    if name.startswith("mtp."):
        return "mtp.safetensors"
    part = name.removeprefix("model.language_model.layers.")
    return f"layers-{part.split('.')[0]}.safetensors" if part != name else "outside.safetensors"


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    state, out = torch.load(sys.argv[1], map_location="cpu")["state"], pathlib.Path(sys.argv[2])
    s, tok = net.Shape(), tokenizer.load(out)
    fp8 = set(net.linears(net.TinyAgent(s)))
    files, index, size = {}, {}, 0
    for name, value in sorted(state.items()):
        parts = {name: value.bfloat16()}
        if name in fp8:
            q, scale = net.quantise(value)
            parts = {name: q, name + "_scale_inv": scale}
        for n, t in parts.items():
            files.setdefault(file_of(n), {})[n] = t.contiguous()
            index[n] = file_of(n)
            size += t.numel() * t.element_size()
    for f, tensors in files.items():
        save_file(tensors, str(out / f), metadata={"format": "pt"})
        (out / f).chmod(0o644)
    write_json(out / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})
    write_json(out / "config.json", config(s, tok))
    eos, end = tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")
    write_json(out / "generation_config.json", {"bos_token_id": end, "do_sample": False, "eos_token_id": [eos, end], "pad_token_id": end, "transformers_version": "5.17.0"})
    print(len(index), "tensors", size, "bytes")


if __name__ == "__main__":
    main()
