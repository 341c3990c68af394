"""Records what the oracle (transformers' own module code, torch fallback, eager attention, bf16 weights, CPU) computes, op by op.

Inputs and weights are generated (generated.py), so only results are stored: OUT/ops.safetensors, with OUT/manifest.json beside it.
`<name>.truth` is the same function without intermediate rounding: the scale on which an error is judged.
Usage: python tools/oracle/record_ops.py [OUT], with transformers 5.17.0 and torch 2.11.0. Neither fla nor causal_conv1d may be installed.
"""
import copy
import hashlib
import importlib.util
import json
import os
import sys
import types

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import DynamicCache, Qwen3_5TextConfig
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import KINDS, Inputs

ROPE = {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
        "mrope_section": [11, 11, 10]}
SHAPE = dict(hidden_size=384, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=1, head_dim=256,
             linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=128, linear_value_head_dim=128,
             linear_conv_kernel_dim=4, vocab_size=96, max_position_embeddings=262144, rope_parameters=ROPE, rms_norm_eps=1e-6)
STATE_ROWS = 16  # every 16th key row of a recurrent state is kept
POSITIONS = [0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 1000, 1023, 1024, 2047, 4095, 4096, 5000, 8191, 8192,
             10007, 16384, 32767, 32768, 40000, 65535, 65536, 99991, 100003, 131071, 131072, 200003, 250000, 262142, 262143]

make = Inputs()
results, rows_of = {}, {}


def store(name, tensor, rows=None):
    """Keeps a result; `rows` (of its first dimension) when not all of them."""
    tensor = tensor.detach()
    if rows is not None:
        rows_of[name] = list(rows)
        tensor = tensor[list(rows)]
    assert name not in results and torch.isfinite(tensor.float()).all(), name
    results[name] = tensor.contiguous().clone()


def store_with_truth(name, tensor, truth, rows=None):
    store(name, tensor, rows)
    store(name + ".truth", truth.float(), rows)


def config(**changes):
    c = Qwen3_5TextConfig(**{**SHAPE, **changes})
    c._attn_implementation = "eager"
    return c


def loaded(module, weights):
    """`module` in bf16 with these parameters."""
    module = module.to(torch.bfloat16).eval()
    module.load_state_dict(weights, strict=True)
    return module


def norms():
    for case, rows, width, std in (("hidden384", 6, 384, 1.0), ("head256", 8, 256, 1.0), ("hidden5120", 2, 5120, 1.0), ("tiny384", 3, 384, 5e-4)):
        name = f"rms_norm/{case}"
        x, w = make(name + "/x", (rows, width), "residual", std), make(name + "/weight", (width,), std=0.2)
        store(name + "/out", loaded(qwen.Qwen3_5RMSNorm(width), {"weight": w})(x))
    for case, rows, heads, std in (("heads6", 4, 6, 1.0), ("heads48", 1, 48, 1.0), ("tiny", 2, 6, 5e-4)):
        name = f"gated_rms_norm/{case}"
        o, z = make(name + "/o", (rows, heads * 128), std=std), make(name + "/z", (rows, heads * 128), std=2.0)
        w = make(name + "/weight", (128,), std=0.2, mean=1.0)
        norm = loaded(qwen.Qwen3_5RMSNormGated(128), {"weight": w})
        store(name + "/out", norm(o.view(-1, 128), z.view(-1, 128)).view(rows, -1))


def linears():
    for case, rows, n_out, n_in in (("qkv", 5, 1280, 384), ("down", 3, 384, 1024), ("wide", 1, 96, 5120), ("gates", 2, 6, 384)):
        name = f"linear/{case}"
        x, w = make(name + "/x", (rows, n_in)), make(name + "/weight", (n_out, n_in), std=n_in**-0.5)
        store_with_truth(name + "/out", F.linear(x, w), x.double() @ w.double().T)
    for case, rows, n_out, n_in in (("k384", 3, 256, 384), ("k1024", 2, 128, 1024)):
        name = f"linear_fp8/{case}"
        x, w8 = make(name + "/x", (rows, n_in)), make(name + "/weight", (n_out, n_in), std=120.0, dtype="e4m3")
        scale = make(name + "/weight_scale_inv", (n_out // 128, n_in // 128), "unit").mul(0.001).to(torch.bfloat16)
        store(name + "/scale", scale.float())
        dequantised = Fp8Dequantize(types.SimpleNamespace())._dequantize_one(w8, scale, torch.bfloat16)
        exact = w8.double() * scale.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        store_with_truth(name + "/out", F.linear(x, dequantised), x.double() @ exact.T)


def mlp():
    name, c = "mlp", config()
    weights = {f"{p}.weight": make(f"{name}/{p}", shape, std=shape[1] ** -0.5)
               for p, shape in (("gate_proj", (1024, 384)), ("up_proj", (1024, 384)), ("down_proj", (384, 1024)))}
    x = make(name + "/x", (3, 384))
    module = loaded(qwen.Qwen3_5MLP(c, 1024), weights)
    module.down_proj.register_forward_pre_hook(lambda _, args: store(name + "/product", args[0]))
    store(name + "/out", module(x))


def convs():
    for tokens, channels in ((1, 1280), (3, 1280), (5, 1280), (70, 192)):
        name = f"conv1d/prompt{tokens}"
        x, w = make(name + "/x", (tokens, channels)), make(name + "/weight", (channels, 4), std=0.4)
        store(name + "/out", qwen.causal_conv1d_fn(x.T[None], w, None, activation="silu")[0].T)
    name, channels = "conv1d/update", 1280  # five tokens, then four one by one, then seven at once, through the oracle's cache
    x, w = make(name + "/x", (16, channels)), make(name + "/weight", (channels, 4), std=0.4)
    cache, out = DynamicCache(config=config()), []
    first = cache.update_conv_state(x[:5].T[None], 0, conv_kernel_size=4)
    out.append(qwen.causal_conv1d_fn(first, w, None, activation="silu")[0].T)
    for t in range(5, 9):
        out.append(qwen.causal_conv1d_update(x[t : t + 1].T[None], cache.layers[0].conv_states[0], w, None, "silu")[0].T)
    last = cache.update_conv_state(x[9:].T[None], 0, conv_kernel_size=4)
    out.append(qwen.causal_conv1d_fn(last, w, None, activation="silu")[0].T[-7:])
    store(name + "/out", torch.cat(out))


def gates():
    for case, rows, heads, std in (("heads6", 8, 6, 1.0), ("heads48", 2, 48, 1.0), ("extreme", 8, 6, 16.0)):
        name = f"gdn_gates/{case}"
        a, b = make(name + "/a", (rows, heads), std=std), make(name + "/b", (rows, heads), std=std)
        A_log, dt_bias = make(name + "/A_log", (heads,)), make(name + "/dt_bias", (heads,), std=1.0, mean=-1.0)
        store(name + "/g", -A_log.float().exp() * F.softplus(a.float() + dt_bias))  # the two lines of Qwen3_5GatedDeltaNet.forward
        store(name + "/beta", b.sigmoid().float())


def split_qkv(qkv, k_heads, v_heads):
    q, k, v = torch.split(qkv, [k_heads * 128, k_heads * 128, v_heads * 128], dim=-1)
    q, k = (x.view(1, -1, k_heads, 128).repeat_interleave(v_heads // k_heads, dim=2) for x in (q, k))
    return q, k, v.view(1, -1, v_heads, 128)


def recurrence_truth(q, k, v, g, beta, state):
    """The delta rule in double, no rounding."""
    q, k, v, g, beta = (x[0].double() for x in (q, k, v, g, beta))
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    S = torch.zeros(v.shape[1], 128, 128, dtype=torch.double) if state is None else state[0].double()
    out = []
    for t in range(v.shape[0]):
        S = S * g[t].exp()[:, None, None]
        d = (v[t] - torch.einsum("hij,hi->hj", S, k[t])) * beta[t][:, None]
        S = S + torch.einsum("hi,hj->hij", k[t], d)
        out.append(torch.einsum("hij,hi->hj", S, q[t]))
    return torch.stack(out), S


def gdn_inputs(name, tokens, k_heads, v_heads, std=1.0):
    qkv = make(name + "/qkv", (tokens, (2 * k_heads + v_heads) * 128), "silu", std)
    g = make(name + "/g", (tokens, v_heads), "decay", dtype="f32")
    beta = make(name + "/beta", (tokens, v_heads), "unit", dtype="bf16")
    return (*split_qkv(qkv, k_heads, v_heads), g[None], beta[None])


def store_gdn(name, o, S, truth_o, truth_S, rows):
    store_with_truth(name + "/o", o[0].flatten(1), truth_o.flatten(1), rows)
    store_with_truth(name + "/state", S[0, :, ::STATE_ROWS], truth_S[:, ::STATE_ROWS])


def chunks():
    last8 = lambda n: range(max(0, n - 8), n)
    cases = [(f"t{n}", n, 2, 6, False, last8(n)) for n in (1, 5, 63, 64, 65)]
    cases += [("t130", 130, 2, 6, False, [0, 1, 2, 3, 31, 32, 62, 63, 64, 65, 66, 96, 126, 127, 128, 129])]
    cases += [(f"from64_t{n}", n, 2, 6, True, last8(n)) for n in (5, 64, 70)]
    cases += [("r1_t65", 65, 2, 2, False, last8(65)), ("r2_t65", 65, 2, 4, False, last8(65))]
    for case, tokens, k_heads, v_heads, cached, rows in cases:
        name = f"gdn_chunk/{case}"
        inputs = gdn_inputs(name, tokens, k_heads, v_heads)
        state = make(name + "/state_in", (v_heads, 128, 128), std=0.5, dtype="f32")[None] if cached else None
        o, S = qwen.torch_chunk_gated_delta_rule(*inputs, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
        store_gdn(name, o, S, *recurrence_truth(*inputs, state), rows)


def steps():
    for case, tokens, std in (("t8", 8, 1.0), ("tiny", 2, 5e-4)):  # tiny: the l2norm's eps matters
        name = f"gdn_step/{case}"
        inputs = gdn_inputs(name, tokens, 2, 6, std)
        start = S = make(name + "/state_in", (6, 128, 128), std=0.5, dtype="f32")[None]
        out = []
        for t in range(tokens):
            o, S = qwen.torch_recurrent_gated_delta_rule(*(x[:, t : t + 1] for x in inputs), initial_state=S, output_final_state=True,
                                                         use_qk_l2norm_in_kernel=True)
            out.append(o)
        store_gdn(name, torch.cat(out, dim=1), S, *recurrence_truth(*inputs, start), range(tokens))


def rotary(positions, dtype):
    module = qwen.Qwen3_5TextRotaryEmbedding(config())
    ids = torch.tensor(positions).view(1, 1, -1).expand(3, 1, -1)
    return module, *module(torch.zeros(1, 1, dtype=dtype), ids)


def rope():
    for dtype, suffix in ((torch.float32, "_f32"), (torch.bfloat16, "")):
        module, cos, sin = rotary(POSITIONS, dtype)
        store("rope/cos" + suffix, cos[0, :, :32])
        store("rope/sin" + suffix, sin[0, :, :32])
    store("rope/positions", torch.tensor(POSITIONS, dtype=torch.int32))
    store("rope/inv_freq", module.inv_freq)


def prepare():
    for case, heads, kv_heads in (("heads6", 6, 1), ("heads8", 8, 2)):
        name, positions = f"attn_prepare/{case}", [0, 1, 2, 255, 256, 257, 5000, 262143]
        c = config(num_attention_heads=heads, num_key_value_heads=kv_heads)
        n = len(positions)
        qg, k = make(name + "/qg", (n, heads * 512)), make(name + "/k", (n, kv_heads * 256))
        norm = lambda which: loaded(qwen.Qwen3_5RMSNorm(c.head_dim), {"weight": make(f"{name}/{which}_norm", (256,), std=0.2)})
        _, cos, sin = rotary(positions, torch.bfloat16)
        q = norm("q")(qg.view(1, n, heads, 512)[..., :256]).transpose(1, 2)
        kn = norm("k")(k.view(1, n, kv_heads, 256)).transpose(1, 2)
        q, kn = qwen.apply_rotary_pos_emb(q, kn, cos, sin)
        store(name + "/positions", torch.tensor(positions, dtype=torch.int32))
        store(name + "/q_out", q[0].transpose(0, 1).flatten(1))
        store(name + "/k_out", kn[0].transpose(0, 1).flatten(1))


def attentions():
    """Rows are the newest `rows` of `context` positions; the gate's columns of qg follow each head's (unused) query columns."""
    some = [0, 1, 2, 15, 16, 31, 32, 63, 64, 69]
    cases = [("prompt70", 70, 70, 6, 1, some)] + [(f"decode{n}", 1, n, 6, 1, [0]) for n in (256, 257, 300, 513)]
    cases += [("heads24", 1, 40, 24, 4, [0]), ("heads8", 2, 40, 8, 2, [0, 1])]
    for case, rows, context, heads, kv_heads, keep in cases:
        name = f"attention/{case}"
        q, qg = make(name + "/q", (rows, heads * 256), std=2.0), make(name + "/qg", (rows, heads * 512))
        k, v = make(name + "/k", (context, kv_heads * 256)), make(name + "/v", (context, kv_heads * 256))
        heads_of = lambda x, n: x.view(1, -1, n, 256).transpose(1, 2)
        hidden = torch.arange(context)[None, :] > (torch.arange(rows) + context - rows)[:, None]
        mask = torch.zeros(rows, context, dtype=torch.bfloat16).masked_fill(hidden, torch.finfo(torch.bfloat16).min)[None, None]
        module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, training=False)
        o, _ = qwen.eager_attention_forward(module, heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads), mask, 256**-0.5)
        gate = qg.view(rows, heads, 512)[..., 256:].reshape(rows, -1)
        out = o.reshape(rows, -1) * torch.sigmoid(gate)  # as in Qwen3_5Attention.forward
        K, V = (heads_of(x, kv_heads).double().repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        p = ((heads_of(q, heads).double() @ K.transpose(2, 3)) / 16).masked_fill(hidden, -float("inf")).softmax(-1)
        truth = (p @ V)[0].transpose(0, 1).reshape(rows, -1) * torch.sigmoid(gate.double())
        store_with_truth(name + "/out", out, truth, keep)


def model_weights(c):
    """Every parameter of the four-layer model under its checkpoint name."""
    weights = {}
    for key, parameter in qwen.Qwen3_5TextModel(c).state_dict().items():
        shape, args = tuple(parameter.shape), {}
        if key.endswith("linear_attn.norm.weight"):
            args = dict(std=0.2, mean=1.0)
        elif key.endswith("norm.weight"):
            args = dict(std=0.2)
        elif "conv1d" in key:
            args = dict(std=0.4)
        elif key.endswith("dt_bias"):
            args = dict(mean=-1.0)
        elif "embed_tokens" in key:
            args = dict(std=0.5)
        elif len(shape) == 2:
            args = dict(std=shape[1] ** -0.5)
        weights[key] = make("model/" + key, shape, **args)
    return weights


def record_calls(taken):
    """Wraps the module's functions so that arguments and results of every call are kept; returns what undoes it."""
    names = ("causal_conv1d_fn", "causal_conv1d_update", "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
    originals = {n: getattr(qwen, n) for n in names}

    def wrap(name, function):
        def wrapped(*args, **kwargs):
            out = function(*args, **kwargs)
            if "conv1d" in name:
                taken.setdefault("conv1d", []).append(out[0].T)
            else:
                taken.setdefault("g", []).append(kwargs["g"][0])
                taken.setdefault("beta", []).append(kwargs["beta"][0].float())
                taken.setdefault("core_attn_out", []).append(out[0][0].flatten(1))
            return out
        return wrapped

    for n, f in originals.items():
        setattr(qwen, n, wrap(n, f))
    return lambda: [setattr(qwen, n, f) for n, f in originals.items()]


def run_model(module, ids, prompt, hooks):
    """Prompt in one call, then token by token; the final hidden state of every position."""
    cache, out = DynamicCache(config=module.config), []
    handles = [m.register_forward_hook(hook) for m, hook in hooks]
    for part in (ids[:prompt], *ids[prompt:].split(1)):
        out.append(module(input_ids=part[None], past_key_values=cache, use_cache=True).last_hidden_state[0])
    for h in handles:
        h.remove()
    return torch.cat(out)


def model():
    """Layers 0 (GDN) and 3 (attention) at every op boundary, layer 3's input in full, the final hidden state and the logits."""
    name, c, prompt = "model", config(), 70
    weights = model_weights(c)
    ids = make(name + "/ids", (prompt + 2,), "ids", 96, "i32").long()
    keep = [0, 1, 68, 69, 70, 71]
    module = loaded(qwen.Qwen3_5TextModel(c), weights)
    module.rotary_emb = qwen.Qwen3_5TextRotaryEmbedding(c)  # .to(bf16) would have rounded inv_freq; a loaded model keeps it fp32
    taken, calls, hooks = {}, {}, []

    def keep_output(path, which="out"):
        def hook(_, args, out):
            value = (args[0] if args else None) if which == "in" else out[0] if isinstance(out, tuple) else out
            taken.setdefault(f"{path}.{which}", []).append(value.view(-1, *value.shape[2:]) if value.dim() > 2 else value)
        return hook

    for layer in (0, 3):
        for path, sub in module.layers[layer].named_modules():
            if path.endswith(("norm", "layernorm", "proj", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "mlp")):
                hooks.append((sub, keep_output(f"layers.{layer}.{path}")))
            if path.endswith(("out_proj", "o_proj", "down_proj", "post_attention_layernorm")):
                hooks.append((sub, keep_output(f"layers.{layer}.{path}", "in")))
        hooks.append((module.layers[layer], keep_output(f"layers.{layer}")))
    hooks.append((module.layers[3], keep_output("layers.3", "in")))
    undo = record_calls(calls)
    hidden = run_model(module, ids, prompt, hooks)
    undo()
    assert len(calls["conv1d"]) == 9, "three GDN layers, three calls each"
    for key, parts in calls.items():
        store(f"{name}/layers.0.linear_attn.{key}", torch.cat(parts[::3]), keep)
    for key, parts in taken.items():
        value = torch.cat([p.reshape(-1, 6 * 128) if key.endswith("linear_attn.norm.out") else p for p in parts])
        if value.dim() == 3:  # q_norm, k_norm: heads behind rows
            value = value.flatten(1)
        store(f"{name}/{key}", value, None if key == "layers.3.in" else keep)
    wide = copy.deepcopy(module).float()
    wide_hidden = run_model(wide, ids, prompt, [(wide.layers[0], keep_output("wide0"))])
    store(f"{name}/layers.0.out.truth", torch.cat(taken["wide0.out"]).float(), keep)
    x3, cos_sin = results[f"{name}/layers.3.in"].float()[None], wide.rotary_emb(torch.zeros(1, 1), torch.arange(72).view(1, 1, -1).expand(3, 1, -1))
    mask = torch.full((72, 72), torch.finfo(torch.float32).min).triu(1)[None, None]
    store(f"{name}/layers.3.out.truth", wide.layers[3](x3, position_embeddings=cos_sin, attention_mask=mask)[0], keep)
    store_with_truth(f"{name}/hidden", hidden, wide_hidden, keep)
    store_with_truth(f"{name}/logits", F.linear(hidden, weights["embed_tokens.weight"]), wide_hidden @ wide.embed_tokens.weight.T, keep)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops"
    assert transformers.__version__ == "5.17.0", transformers.__version__
    assert not any(importlib.util.find_spec(p) for p in ("fla", "causal_conv1d", "kernels")), "the oracle is the torch fallback"
    torch.set_num_threads(1)  # the bits of some sums depend on it
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    os.makedirs(out, exist_ok=True)
    failed = []
    for part in (norms, linears, mlp, convs, gates, chunks, steps, rope, prepare, attentions, model):
        try:
            part()
        except Exception as error:  # one failing op must not lose the others
            failed.append(f"{part.__name__}: {type(error).__name__}: {error}")
            if os.environ.get("TRACE"):
                raise
    path = os.path.join(out, "ops.safetensors")
    save_file(results, path)
    os.chmod(path, 0o644)
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    manifest = {
        "oracle": f"transformers {transformers.__version__}, torch {torch.__version__}, CPU {torch.backends.cpu.get_cpu_capability()}, "
                  "torch fallback, eager attention, bf16 weights",
        "command": "python tools/oracle/record_ops.py",
        "generator": "tools/oracle/generated.py", "kinds": KINDS, "config": SHAPE,
        "files": {"ops.safetensors": {"sha256": digest, "bytes": os.path.getsize(path)}},
        "inputs": make.recipes, "rows": rows_of,
    }
    with open(os.path.join(out, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=1)
        f.write("\n")
    print(f"{len(results)} tensors, {os.path.getsize(path)} bytes, sha256 {digest}")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
