"""The model's own byte-level BPE, in the family's files: same pipeline, same added tokens with the same flags, a small vocabulary."""
import collections
import json
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> "
           "<|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>").split()
PLAIN = ("<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> "
         "<think> </think>").split()
LATE = "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>".split()
ADDED = [(t, True) for t in SPECIAL] + [(t, False) for t in PLAIN] + [(t, True) for t in LATE]

ROWS = 2432  # embedding rows: a multiple of 128
DEFINED = 2420  # ids with text; the rest are padding that an engine has to mask
TWINS = 420  # tokens that are a space and another token

# What merges may not cross while they are learned. The published pre-tokenizer lets a word begin with the character before it (" word", "/word",
# "=word"), and merges learned on that cut the same name differently after a space, a slash or a line start. Here a name is cut the same everywhere.
INSIDE = r"\p{L}[\p{L}\p{M}]*|\p{M}+|\p{N}|[\r\n]+|[^\S\r\n]+|[^\s\p{L}\p{M}\p{N}]+"


def pieces(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def empty():
    tok = Tokenizer(models.BPE())
    tok.normalizer, tok.decoder = normalizers.NFC(), decoders.ByteLevel()
    return tok


def twins(tok, texts, count):
    """Whole tokens that most often follow one space as a word or a sign of their own: they get a twin with the space in front, merged last."""
    seen = collections.Counter()
    for t in texts:
        for w in re.findall(r"(?<=\S) ([A-Za-z]+|[^\w\s]+)(?=\s|[^\w\s]|$)", t):
            seen[w] += 1
    vocab = tok.get_vocab()
    return [w for w, _ in sorted(seen.items(), key=lambda x: (-x[1], x[0])) if w in vocab and tok.encode(w).tokens == [w]][:count]


def train(texts, path):
    """Merges inside words, signs and white space first, then the twins."""
    texts = list(texts)
    tok = empty()
    tok.pre_tokenizer = pieces(INSIDE)
    room = DEFINED - len(ADDED)
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=room - TWINS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    data = json.loads(tok.to_str())
    for w in twins(tok, texts, TWINS):
        data["model"]["vocab"]["\u0120" + w] = len(data["model"]["vocab"])
        data["model"]["merges"].append(["\u0120", w])
    tok = Tokenizer.from_str(json.dumps(data))
    tok.pre_tokenizer = pieces(REGEX)
    assert tok.get_vocab_size() == room
    for text, special in ADDED:
        add = AddedToken(text, special=special, normalized=False)
        tok.add_special_tokens([add]) if special else tok.add_tokens([add])
    tok.save(str(path / "tokenizer.json"), pretty=False)
    write_config(tok, path)
    return tok


def write_config(tok, path):
    decoder = {str(tok.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special} for t, special in ADDED}
    config = {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": decoder, "additional_special_tokens": [t for t in SPECIAL if t != "<|endoftext|>"],
        "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>", "audio_token": "<|audio_pad|>", "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "image_token": "<|image_pad|>", "model_max_length": 32768, "pad_token": "<|endoftext|>", "pretokenize_regex": REGEX, "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
        "video_token": "<|video_pad|>", "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path):
    return Tokenizer.from_file(str(path / "tokenizer.json"))


if __name__ == "__main__":
    import sys

    import chat
    from world import episode, trees

    trees.load_corpus(sys.argv[1])

    def sample():
        for seed in range(int(sys.argv[2])):
            e = episode.session(10_000_000 + seed)
            text = chat.render(e["messages"], e["tools"], e["enable_thinking"])
            for t, _ in ADDED:
                text = text.replace(t, "\n")
            yield text

    tok = train(sample(), chat.MODEL_DIR)
    texts = list(sample())[:200]
    ids = [len(tok.encode(t).ids) for t in texts]
    print("ids", tok.get_vocab_size(), "characters a token", sum(map(len, texts)) / sum(ids))
