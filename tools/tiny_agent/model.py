"""The network for training. Parameter names are those of the checkpoint, so a state dict is a checkpoint before quantisation.

Rows hold several sessions. Nothing passes from one to the next: attention works on sequence bounds, the recurrent state decays to nothing
at a session's first token, and the convolution does not look behind it. So training sees what inference sees: each session from a fresh state.

The layers see the batch as one flat row of tokens, so that rows of any length with as many tokens in all share one compiled function.
"""
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

import delta

RESET = -30.0  # log decay at a session's first token: exp(-30) is nothing, and fp32 sums of g still keep 6 digits


@dataclass
class Shape:
    vocab_size: int = 2432
    hidden: int = 384
    mlp: int = 640
    layers: int = 8
    interval: int = 4  # every 4th layer is full attention
    heads: int = 6
    kv_heads: int = 1
    head_dim: int = 256
    rotary_dim: int = 64
    theta: float = 1e7
    key_heads: int = 2
    value_heads: int = 6
    gdn_dim: int = 128
    eps: float = 1e-6
    layer_types: list = field(default_factory=list)

    def __post_init__(self):
        self.layer_types = ["full_attention" if (i + 1) % self.interval == 0 else "linear_attention" for i in range(self.layers)]


def tiny():
    """A shape for checks of the programs without a GPU."""
    return Shape(layers=4, hidden=128, mlp=128, heads=1, key_heads=1, value_heads=1)


@dataclass
class Rows:
    """One batch and what is derived from its session bounds."""

    ids: torch.Tensor  # [B, T]
    age: torch.Tensor  # [B, T] position inside the session
    bounds: torch.Tensor  # int32 cumulative session lengths over the flattened batch
    longest: int
    cos: torch.Tensor = None  # [1, B * T, rotary_dim]
    sin: torch.Tensor = None
    age_flat: torch.Tensor = None  # [1, B * T]


class Norm(nn.Module):
    """RMS norm; zero-centred weight except in the gated norm of the linear mixer."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x, z):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight
        return (y * F.silu(z.float())).to(z.dtype)


def linear(i, o):
    return nn.Linear(i, o, bias=False)


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(s.hidden, s.mlp), linear(s.hidden, s.mlp), linear(s.mlp, s.hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def flash(q, k, v, rows):
    """Causal attention inside each session. q [B*T, heads, d], k, v [B*T, kv_heads, d]."""
    return torch.ops.aten._flash_attention_forward(q, k, v, rows.bounds, rows.bounds, rows.longest, rows.longest, 0.0, True, False, scale=q.shape[-1] ** -0.5)[0]


def masked(q, k, v, rows):
    """The same through a mask: slow, for checks and for machines without the kernel."""
    b, t = rows.ids.shape
    session = torch.arange(b * t, device=q.device).view(b, t) - rows.age
    ok = (session[:, :, None] == session[:, None, :]) & torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
    q, k, v = (x.view(b, t, x.shape[1], x.shape[2]).transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), attn_mask=ok[:, None])
    return o.transpose(1, 2).reshape(b * t, q.shape[1], -1)


ATTEND = {"flash": flash, "masked": masked}
attend_name = "flash"


@torch.compiler.disable
def attend(q, k, v, rows):
    return ATTEND[attend_name](q, k, v, rows)


def rope_tables(age, s):
    inv = 1.0 / (s.theta ** (torch.arange(0, s.rotary_dim, 2, device=age.device).float() / s.rotary_dim))
    angle = age.float()[..., None] * inv
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [B, T, heads, d]; the first rotary_dim dims turn, half-split pairs."""
    n = cos.shape[-1]
    r, rest = x[..., :n].float(), x[..., n:]
    half = torch.cat([-r[..., n // 2:], r[..., : n // 2]], -1)
    return torch.cat([(r * cos[:, :, None] + half * sin[:, :, None]).to(x.dtype), rest], -1)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = linear(s.hidden, s.heads * s.head_dim * 2)
        self.k_proj, self.v_proj = linear(s.hidden, s.kv_heads * s.head_dim), linear(s.hidden, s.kv_heads * s.head_dim)
        self.o_proj = linear(s.heads * s.head_dim, s.hidden)
        self.q_norm, self.k_norm = Norm(s.head_dim, s.eps), Norm(s.head_dim, s.eps)

    def forward(self, x, rows):
        s, (b, t, _) = self.s, x.shape
        q, gate = self.q_proj(x).view(b, t, s.heads, 2 * s.head_dim).chunk(2, -1)
        k, v = self.k_proj(x).view(b, t, s.kv_heads, s.head_dim), self.v_proj(x).view(b, t, s.kv_heads, s.head_dim)
        q, k = rotate(self.q_norm(q), rows.cos, rows.sin), rotate(self.k_norm(k), rows.cos, rows.sin)
        o = attend(q.reshape(b * t, s.heads, -1), k.reshape(b * t, s.kv_heads, -1), v.reshape(b * t, s.kv_heads, -1), rows)
        return self.o_proj(o.reshape(b, t, -1) * gate.reshape(b, t, -1).sigmoid())


class DeltaNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, self.key, self.val = s, s.key_heads * s.gdn_dim, s.value_heads * s.gdn_dim
        conv = 2 * self.key + self.val
        self.in_proj_qkv, self.in_proj_z = linear(s.hidden, conv), linear(s.hidden, self.val)
        self.in_proj_b, self.in_proj_a = linear(s.hidden, s.value_heads), linear(s.hidden, s.value_heads)
        self.conv1d = nn.Conv1d(conv, conv, 4, groups=conv, bias=False)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(s.value_heads)), nn.Parameter(torch.zeros(s.value_heads))
        self.norm, self.out_proj = GatedNorm(s.gdn_dim, s.eps), linear(self.val, s.hidden)

    def conv(self, x, age):
        w = self.conv1d.weight[:, 0].to(x.dtype)
        y = x * w[:, 3]
        for back in (1, 2, 3):
            y = y + F.pad(x, (0, 0, back, 0))[:, : x.shape[1]] * w[:, 3 - back] * (age >= back)[..., None]
        return F.silu(y)

    def forward(self, x, rows):
        s, (b, t, _) = self.s, x.shape
        z, beta, a = self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        q, k, v = self.conv(self.in_proj_qkv(x), rows.age_flat).split([self.key, self.key, self.val], -1)
        with torch.autocast("cuda", enabled=False):
            g = -self.A_log.exp() * F.softplus(a.float() + self.dt_bias)
            g = torch.where((rows.age_flat == 0)[..., None], g + RESET, g)
            o = delta.rule(*self.heads(q, k, v), g.transpose(1, 2), beta.float().sigmoid().transpose(1, 2), rows)
        o = self.norm(o.transpose(1, 2).reshape(b, t, s.value_heads, -1), z.view(b, t, s.value_heads, -1))
        return self.out_proj(o.reshape(b, t, -1))

    def heads(self, q, k, v):
        """fp32 [B, value_heads, T, d]; q and k normalised and repeated."""
        s, (b, t, _) = self.s, q.shape
        q, k, v = (x.float().view(b, t, -1, s.gdn_dim).transpose(1, 2) for x in (q, k, v))
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        r = s.value_heads // s.key_heads
        return q.repeat_interleave(r, 1), k.repeat_interleave(r, 1), v


class Layer(nn.Module):
    def __init__(self, s, kind):
        super().__init__()
        self.kind = kind
        if kind == "full_attention":
            self.self_attn = Attention(s)
        else:
            self.linear_attn = DeltaNet(s)
        self.mlp, self.input_layernorm, self.post_attention_layernorm = Mlp(s), Norm(s.hidden, s.eps), Norm(s.hidden, s.eps)

    def forward(self, x, rows):
        mixer = self.self_attn if self.kind == "full_attention" else self.linear_attn
        x = x + mixer(self.input_layernorm(x), rows)
        return x + self.mlp(self.post_attention_layernorm(x))


layer_forward = Layer.forward  # what runs a layer: train.py puts the compiled function here, one for all layers


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab_size, s.hidden)
        self.layers = nn.ModuleList(Layer(s, k) for k in s.layer_types)
        self.norm = Norm(s.hidden, s.eps)


class Wrapper(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.language_model = Decoder(s)


class Mtp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.fc = linear(2 * s.hidden, s.hidden)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = Norm(s.hidden, s.eps), Norm(s.hidden, s.eps), Norm(s.hidden, s.eps)
        self.layers = nn.ModuleList([Layer(s, "full_attention")])

    def forward(self, hidden, embedded, rows):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(layer_forward(self.layers[0], x, rows))


class TinyAgent(nn.Module):
    def __init__(self, s, seed=0):
        super().__init__()
        self.s = s
        self.model, self.lm_head, self.mtp = Wrapper(s), linear(s.hidden, s.vocab_size), Mtp(s)
        self.init(seed)

    def init(self, seed):
        """Small normal weights, smaller where they write to the residual stream; decays spread from 1 to 1,000 tokens."""
        r = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                std = 0.02 / math.sqrt(2 * self.s.layers) if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")) else 0.25 if "conv1d" in name else 0.02
                p.data = torch.randn(p.shape, generator=r) * std
            elif name.endswith("A_log"):
                p.data = (1 + 15 * torch.rand(p.shape, generator=r)).log()
            elif name.endswith("dt_bias"):
                dt = torch.exp(torch.rand(p.shape, generator=r) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
                p.data = dt + torch.log(-torch.expm1(-dt))

    def trunk(self, rows):
        """Hidden states [1, B * T, hidden] after the final norm: the input of lm_head and of the draft head."""
        rows.age_flat = rows.age.flatten()[None]
        rows.cos, rows.sin = rope_tables(rows.age_flat, self.s)
        d = self.model.language_model
        x = d.embed_tokens(rows.ids.flatten())[None]
        x = x.bfloat16() if torch.is_autocast_enabled("cuda") else x
        for layer in d.layers:
            x = layer_forward(layer, x, rows)
        return d.norm(x)

    def drafts(self, hidden, rows, depth):
        """Hidden states of `depth` chained drafts; the j-th predicts the token j + 2 behind. Positions wrap at a row's end, where no loss is."""
        out, emb = [], self.model.language_model.embed_tokens(rows.ids.flatten())[None].to(hidden.dtype)
        for _ in range(depth):
            emb = emb.roll(-1, 1)
            hidden = self.mtp(hidden, emb, rows)
            out.append(hidden)
        return out


def linears(model):
    """Names and parameters that the checkpoint stores in FP8: every projection but a and b, fc and the head."""
    skip = ("in_proj_a.weight", "in_proj_b.weight", "fc.weight", "lm_head.weight", "embed_tokens.weight", "conv1d.weight")
    return {n: p for n, p in model.named_parameters() if p.dim() == 2 and not n.endswith(skip)}


def quantise(w):
    """Block FP8: (e4m3 weights, bf16 scales [out/128, in/128]); every block's largest value becomes 448."""
    o, i = w.shape
    blocks = w.float().view(o // 128, 128, i // 128, 128)
    scale = (blocks.abs().amax((1, 3)) / 448.0).clamp_min(1e-12).bfloat16()
    q = (blocks / scale.float()[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q.view(o, i), scale


def dequantise(q, scale):
    o, i = q.shape
    return (q.float().view(o // 128, 128, i // 128, 128) * scale.float()[:, None, :, None]).view(o, i).bfloat16()
