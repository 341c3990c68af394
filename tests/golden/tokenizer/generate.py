#!/usr/bin/env python3
"""Makes the small tokenizer of this folder and its golden encodings, with pip `tokenizers`.

tokenizer.json (940 base tokens, regex M, NFC), tokenizer_config.json (adds two tokens that tokenizer.json lacks)
and encodings.json: for each string its ids under M and Q, with added tokens matched and not; a column that says what
M_match says is left out.

usage: generate.py    (writes beside itself; deterministic for one version of tokenizers)
"""

import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from tokenizer_diff import random_text, reference, use_regex  # noqa: E402

CORPUS = """
The quick brown fox jumps over the lazy dog. It's what they're saying: we've seen that I'll don't, you'd better not.
She said "hello", and then there was nothing more to be said about the matter, was there? Yes! No... maybe; see (1234).
def encode(self, text: str) -> list[int]:
    for index, value in enumerate(values):
        if value is not None and index >= 0:
            return self.table[index + 1]
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}, "items": [1, 2.5, true, null]}
#include <vector>
int main() { std::vector<int> ids = {1, 2, 3}; return ids.size() == 3 ? 0 : 1; }
https://www.example.org/path/to/page?query=value&other=thing
Der schnelle braune Fuchs springt \u00fcber den faulen Hund. Stra\u00dfe, Gr\u00f6\u00dfe, \u00c4pfel, \u00fcberall.
Le caf\u00e9 est tr\u00e8s \u00e9l\u00e9gant; gar\u00e7on, \u00e0 bient\u00f4t, o\u00f9 \u00eates-vous?
\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6211\u4eec\u4eca\u5929\u53bb\u5b66\u6821\uff0c\u660e\u5929\u4e5f\u53bb\u5b66\u6821\u3002
\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\u3002\u79c1\u306f\u5b66\u751f\u3067\u3059\u3002
\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4, \ud55c\uad6d\uc5b4\ub97c \uacf5\ubd80\ud569\ub2c8\ub2e4.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430? \u0425\u043e\u0440\u043e\u0448\u043e.
\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a \u0e1c\u0e21\u0e0a\u0e37\u0e48\u0e2d\u0e2d\u0e40\u0e25\u0e47\u0e01\u0e0b\u0e4c
\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e
\u0645\u0631\u062d\u0628\u064b\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd
\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 !\u0301 !\u0301 x\u0301\u0323 x\u0301\u0323 \u2764\ufe0f! \u2764\ufe0f\u2764\ufe0f 1\ufe0f\u20e3 2\ufe0f\u20e3
\U0001f680\U0001f680 \U0001f469\u200d\U0001f680 \u2764\ufe0f \u2014 \u201cquoted\u201d \u2026


        deep indentation\t\ttabs\r\nwindows lines\r\n\r\n
"""

# (content, special, also in tokenizer.json)
ADDED = [("<|endoftext|>", True, True), ("<|im_start|>", True, True), ("<|im_end|>", True, True),
         ("<tool_call>", False, True), ("</tool_call>", False, True), ("<think>", False, True), ("</think>", False, True),
         ("<|im_end|>x", True, True), ("<|audio_start|>", True, False), ("<tts text>", True, False)]

TRICKY = """|a| |  |   |\\n|\\r\\n|\\n \\n|  \\n  x|x  \\n|\\t\\tx|a  b|a   |'s|'S|'\u017f|'\u017fx|'ll|'LL|'l|'re've|don't|I'M|''s|'
 's| 'll|x'd1|123|1a2b|\u00b2\u2160\u0664|!!!|!a|!\\n\\n|!\\n a| !!|  !!| .a|...\\r\\n\\r\\nx|Caf\u00e9|Cafe\u0301|\u0301|a\u0301\u0323|a\u0323\u0301|\u0301\u0323|1\u0301| \u0301|!\u0301x|\u212b|\ufb01|\u0344|\u0958|\u0915\u093c|\uac00\u11a8|\u1100\u1161\u11a8|\u1100\u1161\u11a7|\uac01\u11a8|\u0bc6\u0bd7
\u09c7\u09be|\U00011935\U00011930|\U00011938|\U0001d15e|\u200b|\u180e|\u0085|a\u0085b|\u00a0x|\u3000x|\u2028\u2029|\ufeffx|\ue000|\U0010ffff|\\0|\\0\\0a|<|im_end|>|<think>\\n\\n</think>\\n\\n|\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35|\u2764\ufe0f|\u2764\ufe0fx|x\ufe0f|\u0645\u064b\u0627|hello world|Hello, world! 12345|  spaced  text\\n|\uff2b\u212a'\u212a"""


def tricky_strings():
    out = []
    for piece in TRICKY.replace("\n", "|").split("|"):
        out.append(piece.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\0", "\0"))
    for content, _, _ in ADDED:
        out += [content, content * 2, f" {content} ", f"a{content}\u0301b", content[:-1], content[1:], content[:3] + content,
                content.upper(), content.replace("<", "< ")]
    out += ["<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>xx", "<|im_end|><|im_end|>x", "<<think>>",
            "e<think>\u0301", "<|im_<|im_end|>end|>", "\u1100<think>\u1161", "'<think>s"]
    out += CORPUS.splitlines() + CORPUS.split()
    for c in "a \n\t\u0301\u4f60\U0001f680=-":
        out += [c * n for n in (2, 3, 16, 47, 48, 49, 50, 200)]
    return out


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    use_regex(tokenizer, "M")
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=1, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True) + [CORPUS], trainer)
    return json.loads(tokenizer.to_str())


def added_entry(content, special):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def main():
    spec = train()
    base = len(spec["model"]["vocab"])
    entries = {base + i: added_entry(c, special) for i, (c, special, _) in enumerate(ADDED)}
    spec["added_tokens"] = [{"id": i, **e} for (i, e), (_, _, here) in zip(entries.items(), ADDED) if here]
    (HERE / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")
    config = {"added_tokens_decoder": {str(i): e for i, e in entries.items()}, "eos_token": "<|im_end|>"}
    (HERE / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    rng = random.Random(6)
    strings = tricky_strings() + [random_text(rng, [c for c, _, _ in ADDED]) for _ in range(150)]
    rows = [{"text": s} for s in dict.fromkeys(strings)]
    for added in (True, False):
        tokenizer, _ = reference(HERE, added)
        for regex in "MQ":
            use_regex(tokenizer, regex)
            for row in rows:
                row[regex + ("_match" if added else "_ignore")] = tokenizer.encode(row["text"], add_special_tokens=False).ids
    for row in rows:
        for column in ("M_ignore", "Q_match", "Q_ignore"):
            if row[column] == row["M_match"]:
                del row[column]
    manifest = {"oracle": f"tokenizers {tokenizers.__version__}", "command": "tests/golden/tokenizer/generate.py", "seed": 6}
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (HERE / "encodings.json").write_text(f'{{"manifest":{json.dumps(manifest)},"rows":[\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{base} base tokens, {len(rows)} strings")


if __name__ == "__main__":
    main()
