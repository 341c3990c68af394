"""Records what transformers computes for the exported checkpoint, for the engine's end-to-end check.

Usage: golden.py MODEL_DIR HELDOUT.jsonl OUT_DIR

Three held-out prefixes of about 60, 420 and 1,500 tokens. For each: ids; top-8 logits and ids at every position; the whole row of logits at the last position; 32
greedy tokens. bf16 weights dequantised from the FP8 file, bf16 compute, eager attention, torch paths.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch

import chat
import reference
import tokenizer

WANTED = (60, 420, 1500)
TOP = 8
NEW = 32


def prefixes(path, tok):
    """For each wanted length the held-out prompt (up to a generation prompt) whose length is closest."""
    best = {}
    for line in open(path, encoding="utf-8"):
        e = json.loads(line)
        for i, m in enumerate(e["messages"]):
            if m["role"] == "assistant":
                text = chat.render(e["messages"][:i], e["tools"], e["enable_thinking"], True)
                ids = tok.encode(text).ids
                for w in WANTED:
                    if w not in best or abs(len(ids) - w) < abs(len(best[w][2]) - w):
                        best[w] = (e["id"], i, ids)
    return [best[w] for w in WANTED]


def checkpoint_hash(folder):
    """SHA-256 over the names and SHA-256 of the weight files and the configuration, in name order."""
    h = hashlib.sha256()
    for p in sorted(pathlib.Path(folder).iterdir()):
        if p.suffix == ".safetensors" or p.name in ("config.json", "tokenizer.json", "chat_template.jinja"):
            h.update(f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()}\n".encode())
    return h.hexdigest()


@torch.no_grad()
def main():
    folder, heldout, out = sys.argv[1:4]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    tok = tokenizer.load(pathlib.Path(folder))
    m, _ = reference.load_reference(folder, device)
    cases = []
    for name, turn, ids in prefixes(heldout, tok):
        x = torch.tensor([ids], device=device)
        logits = m(input_ids=x, use_cache=False).logits[0]
        top = logits.float().topk(TOP, -1)
        new = m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=tok.token_to_id("<|endoftext|>"))[0, len(ids):]
        case = f"prefix_{len(ids)}"
        arrays = {"ids": np.array(ids, np.int32), "top_ids": top.indices.cpu().numpy().astype(np.int32), "top_logits": top.values.cpu().numpy().astype(np.float32), "last_logits": logits[-1].float().cpu().numpy(), "greedy": new.cpu().numpy().astype(np.int32)}
        safetensors.numpy.save_file(arrays, out / f"{case}.safetensors")
        cases.append({"file": f"{case}.safetensors", "session": name, "message": turn, "tokens": len(ids)})
    manifest = {"oracle": f"transformers {transformers.__version__}, torch {torch.__version__}", "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "command": "golden.py models/tiny-agent tools/tiny_agent/heldout.jsonl tests/golden/tiny_agent",
                "weights": "FP8 blocks dequantised to bf16", "compute": "bf16, eager attention, torch chunk rule for the prefix, torch one-token rule for the greedy tokens (eos suppressed)", "greedy_ties": "lowest id", "checkpoint_sha256": checkpoint_hash(folder),
                "checkpoint_hash_rule": "sha256 over lines 'NAME SHA256' of *.safetensors, config.json, tokenizer.json, chat_template.jinja in name order",
                "arrays": {"ids": "int32 [n]", "top_ids": "int32 [n, 8]", "top_logits": "float32 [n, 8]", "last_logits": "float32 [vocab]", "greedy": "int32 [32]"}, "cases": cases}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
