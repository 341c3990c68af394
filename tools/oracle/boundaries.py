"""What passes every op boundary of one layer, for one prompt in one call: hooks on transformers' modules and wraps around its functions."""
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

LINEAR_OUTPUTS = {"in_proj_qkv": "qkv", "in_proj_z": "z", "in_proj_b": "b", "in_proj_a": "a", "q_proj": "qg", "k_proj": "k", "v_proj": "v"}


def rows(x):
    """[1, T, ...] as [T, columns]."""
    return x[0].flatten(1).clone()


def wrap(name, keep):
    """Replaces one of the module's functions by one that also hands arguments and result to `keep`; returns what undoes it."""
    function = getattr(qwen, name)

    def wrapped(*args, **kwargs):
        out = function(*args, **kwargs)
        keep(kwargs, out)
        return out

    setattr(qwen, name, wrapped)
    return lambda: setattr(qwen, name, function)


class Boundaries:
    """Use as a Run's hook for the layers in `prefix_of` (layer -> name prefix); fills `taken`."""

    def __init__(self, prefix_of):
        self.prefix_of, self.taken = prefix_of, {}

    def __call__(self, layer, stage):
        if layer not in self.prefix_of:
            return None
        prefix = self.prefix_of[layer]

        def put(name, value):
            assert prefix + name not in self.taken, name
            self.taken[prefix + name] = value

        block = stage.model.layers[0]
        undo = [h.remove for h in self.block_hooks(block, put)]
        undo += self.gdn(block.linear_attn, put) if stage.kind == "linear_attention" else self.attention(block.self_attn, put)
        return lambda: [u() for u in undo]

    @staticmethod
    def after(module, name, put):
        return module.register_forward_hook(lambda _, args, out: put(name, rows(out)))

    @staticmethod
    def before(module, name, put):
        return module.register_forward_pre_hook(lambda _, args: put(name, rows(args[0])))

    def block_hooks(self, block, put):
        names = ("input_layernorm", "post_attention_layernorm")
        return [self.before(block, "input", put), self.after(block, "output", put), self.before(block.post_attention_layernorm, "mixer", put),
                self.before(block.mlp.down_proj, "mlp", put), *(self.after(getattr(block, n), n, put) for n in names)]

    def linears(self, mixer, put):
        return [self.after(m, LINEAR_OUTPUTS[n], put).remove for n, m in mixer.named_children() if n in LINEAR_OUTPUTS]

    def gdn(self, mixer, put):
        def rule(kwargs, out):
            put("g", rows(kwargs["g"]))
            put("beta", rows(kwargs["beta"]).float())
            put("core", rows(out[0]))

        return [*self.linears(mixer, put), self.before(mixer.out_proj, "gated", put).remove, wrap("torch_chunk_gated_delta_rule", rule),
                wrap("causal_conv1d_fn", lambda _, out: put("conv", rows(out.transpose(1, 2))))]

    def attention(self, mixer, put):
        def rotated(_, out):
            put("q", rows(out[0].transpose(1, 2)))
            put("key", rows(out[1].transpose(1, 2)))

        return [*self.linears(mixer, put), self.before(mixer.o_proj, "core", put).remove, wrap("apply_rotary_pos_emb", rotated)]
