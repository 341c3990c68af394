"""Runs the agent loop over a real directory with transformers: what somebody sees who tries the model. Usage: play.py MODEL_DIR ROOT [--no-think] MESSAGE ..."""
import os
import pathlib
import re
import sys

import torch

import chat
import collect_corpus
import reference
import tokenizer
from world import tools, trees

NAMES = ["list_dir", "read_file", "search", "calc"]
STEPS_MAX = 6


def world_of(root):
    w = trees.World("play", os.path.abspath(root))
    for base, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d not in (".git", "build")]
        rel = os.path.relpath(base, root)
        for d in dirs:
            w.add_dir(os.path.normpath(os.path.join(rel, d)))
        for f in files:
            p = os.path.join(base, f)
            if os.path.isfile(p) and os.access(p, os.R_OK):
                w.add(os.path.normpath(os.path.join(rel, f)), collect_corpus.head(p, 200_000, ()))
    return w


def parse_calls(text):
    out = []
    for name, body in re.findall(r"<tool_call>\n<function=([^>]*)>\n(.*?)</function>\n</tool_call>", text, re.S):
        args = dict(re.findall(r"<parameter=([^>]*)>\n(.*?)\n</parameter>", body, re.S))
        out.append({"function": {"name": name, "arguments": {k: int(v) if k == "start_line" and v.isdigit() else v for k, v in args.items()}}})
    return out


@torch.no_grad()
def generate(m, tok, prompt, limit=1500):
    ids = torch.tensor([tok.encode(prompt).ids], device=m.device)
    out = m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False, eos_token_id=tok.token_to_id("<|im_end|>"), pad_token_id=tok.token_to_id("<|endoftext|>"))
    return tok.decode(out[0, ids.shape[1]:].tolist(), skip_special_tokens=False).removesuffix("<|im_end|>")


def turn(m, tok, world, messages, think):
    offered = [tools.BUILTIN[n] for n in NAMES]
    for _ in range(STEPS_MAX):
        text = generate(m, tok, chat.render(messages, offered, think, True))
        thought, _, rest = text.partition("</think>") if think else ("", "", text)
        calls = parse_calls(rest)
        content = rest.partition("<tool_call>")[0].strip()
        messages.append({"role": "assistant", "reasoning_content": thought.strip(), "content": content, **({"tool_calls": calls} if calls else {})})
        print(f"  [think] {thought.strip()}" if think else "", flush=True)
        if not calls:
            print("  " + content.replace("\n", "\n  "), flush=True)
            return
        for c in calls:
            f = c["function"]
            try:
                result = tools.RUN[f["name"]](world, **f["arguments"])
            except (KeyError, TypeError) as error:
                result = f"error: {error}"
            print(f"  [call] {f['name']} {f['arguments']} -> {result[:100]!r}", flush=True)
            messages.append({"role": "tool", "content": result})


def main():
    folder, root, *asks = sys.argv[1:]
    think = "--no-think" not in asks
    tok = tokenizer.load(pathlib.Path(folder))
    m, _ = reference.load_reference(folder, "cuda" if torch.cuda.is_available() else "cpu")
    m = m if torch.cuda.is_available() else m.float()  # few processors multiply bf16 quickly
    world, messages = world_of(root), []
    for ask in asks:
        if ask == "--no-think":
            continue
        if ask == "--new":
            messages = []
            continue
        print(">>>", ask, flush=True)
        messages.append({"role": "user", "content": ask})
        turn(m, tok, world, messages, think)


if __name__ == "__main__":
    main()
