"""Runs a checkpoint of any size through transformers' own module code, one decoder layer in memory at a time.

A layer is put into a Qwen3_5TextModel of one layer without embedding and final norm, so masks, positions, rotary embedding and cache are those
of transformers. Every run (a prompt, or a prompt and then single ids through the cache) passes through a layer before the next one is read.
That gives the bits of the whole model's forward: tools/oracle/check_stream.py.
"""
import sys
import time

import torch
import torch.nn.functional as F
from transformers import DynamicCache
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from checkpoint import TEXT


def norm(weight, config):
    module = qwen.Qwen3_5RMSNorm(weight.shape[0], eps=config.rms_norm_eps).to(weight.device)
    module.load_state_dict({"weight": weight}, assign=True)
    return module


class Stage:
    """One decoder layer, and a final norm where one is given."""

    def __init__(self, checkpoint, kind, state, device, final_norm=None):
        self.kind, self.config = kind, checkpoint.config([kind])
        with torch.device("meta"):
            model = qwen.Qwen3_5TextModel(self.config)
        model.embed_tokens = None
        model.layers[0].load_state_dict({k: v.to(device) for k, v in state.items()}, strict=True, assign=True)
        model.norm = final_norm or torch.nn.Identity()
        model.rotary_emb = qwen.Qwen3_5TextRotaryEmbedding(self.config).to(device)
        self.model = model.eval()

    def cache(self):
        return DynamicCache(config=self.config)

    def __call__(self, hidden, start, cache):
        """hidden [1, T, H] of positions start, start + 1, ..."""
        positions = torch.arange(start, start + hidden.shape[1], device=hidden.device)[None]
        # A cache without attention layers knows no length, which the mask needs; the recurrent layers' mask is None for one unpadded sequence.
        mask = {"linear_attention": None} if self.kind == "linear_attention" else None
        out = self.model(inputs_embeds=hidden, position_ids=positions, attention_mask=mask, past_key_values=cache, use_cache=True)
        return out.last_hidden_state


class Run:
    """ids cut into calls that share a cache. `taps` are called with (layer, stage, cache) when a layer is through, `hooks` before it."""

    def __init__(self, ids, first=None, tap=None, hook=None, keep_caches=False):
        first = len(ids) if first is None else first
        self.ids, self.first = list(ids), first
        self.calls = [self.ids[:first]] + [[i] for i in self.ids[first:]]
        self.tap, self.hook, self.caches, self.hidden = tap, hook, [] if keep_caches else None, None

    def embed(self, checkpoint, device):
        self.hidden = [checkpoint.embedding(call).to(device) for call in self.calls]

    def through(self, layer, stage):
        cache, start, unhook = stage.cache(), 0, self.hook(layer, stage) if self.hook else None
        for i, hidden in enumerate(self.hidden):
            self.hidden[i] = stage(hidden, start, cache)
            start += hidden.shape[1]
        if unhook:
            unhook()
        if self.tap:
            self.tap(layer, cache)
        if self.caches is not None:
            self.caches.append(cache)


class Head:
    """Final norm and language head."""

    def __init__(self, checkpoint, device):
        self.norm = norm(checkpoint.tensor(TEXT + "norm.weight").to(device), checkpoint.config())
        self.weight = checkpoint.head().to(device)

    def logits(self, normed):
        """[T, V] in bf16; one product for all rows, as in a forward of the whole model."""
        return F.linear(normed, self.weight)[0]


def stream(checkpoint, runs, dithered, device, keep=False):
    """All runs through all layers. Returns the stages, if they are kept."""
    kept = []
    for run in runs + dithered:
        run.embed(checkpoint, device)
    for layer, kind in enumerate(checkpoint.text["layer_types"]):
        began = time.time()
        weights, dithered_weights = checkpoint.layer(layer, bool(dithered))
        stage = Stage(checkpoint, kind, weights, device)
        for run in runs:
            run.through(layer, stage)
        if keep:
            kept.append(stage)
        del stage, weights
        if dithered:
            stage = Stage(checkpoint, kind, dithered_weights, device)
            for run in dithered:
                run.through(layer, stage)
            del stage
        del dithered_weights
        print(f"layer {layer}: {time.time() - began:.1f} s", file=sys.stderr, flush=True)
    return kept


class Draft:
    """The draft head, which transformers drops on load: model-spec section 4 in transformers' own modules."""

    def __init__(self, checkpoint, device):
        config = checkpoint.config(["full_attention"])
        load = lambda name: checkpoint.tensor("mtp." + name).to(device)
        self.embedding_norm, self.hidden_norm = norm(load("pre_fc_norm_embedding.weight"), config), norm(load("pre_fc_norm_hidden.weight"), config)
        self.fc = load("fc.weight")
        self.stage = Stage(checkpoint, "full_attention", checkpoint.state("mtp.layers.0."), device, norm(load("norm.weight"), config))

    def halves(self, embedded, hidden):
        return self.embedding_norm(embedded), self.hidden_norm(hidden)

    def project(self, embedding_half, hidden_half):
        """The embedding half comes first."""
        return F.linear(torch.cat([embedding_half, hidden_half], -1), self.fc)

    def __call__(self, embedded, hidden):
        """Row p from the next id's embedding and the target's normed hidden vector of position p; the vector that the language head takes."""
        return self.stage(self.project(*self.halves(embedded, hidden)), 0, self.stage.cache())
