"""Scores the exported checkpoint on the held-out sessions, through transformers.

Usage: evaluate.py MODEL_DIR HELDOUT.jsonl OUT.json [LIMIT]

Greedy decoding on a gold prefix gives the gold turn exactly when every gold token is the arg max of its own gold prefix, so one forward pass a
session scores all its turns.
"""
import collections
import json
import pathlib
import sys

import torch

import chat
import data
import model as net
import reference
import tokenizer

DEPTH = 3


def turns(learn):
    """[start, end) of each run of learned tokens."""
    edge = torch.diff(torch.cat([torch.zeros(1, dtype=torch.int8), learn.to(torch.int8), torch.zeros(1, dtype=torch.int8)]))
    return list(zip((edge == 1).nonzero()[:, 0].tolist(), (edge == -1).nonzero()[:, 0].tolist()))


@torch.no_grad()
def score(m, mtp, tok, e, device):
    coded = torch.from_numpy(data.encode(tok, e, 0).astype("int64"))[:-1]
    learn, ids = coded >= data.LEARN, (coded & (data.LEARN - 1)).to(device)
    hidden = m.model(input_ids=ids[None], use_cache=False).last_hidden_state
    best = m.lm_head(hidden)[0].float().argmax(-1).cpu()
    gold = ids.cpu()
    right = torch.zeros(len(gold), dtype=torch.bool)
    right[1:] = best[:-1] == gold[1:]
    rows, h, agree = reference.rows_of(ids), hidden, []
    emb = m.model.embed_tokens(ids[None])
    for j in range(1, DEPTH + 1):
        emb = emb.roll(-1, 1)
        h = mtp(h, emb, rows)
        draft = m.lm_head(h)[0].float().argmax(-1).cpu()
        t = learn.nonzero()[:, 0]
        t = t[(t > j) & learn[(t - j).clamp_min(0)]]
        agree.append((draft[t - 1 - j] == best[t - 1], t))
    return learn, right, gold, best, agree


def main():
    folder, path, out = sys.argv[1:4]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    net.attend_name = "masked"
    tok = tokenizer.load(pathlib.Path(folder))
    m, mtp = reference.load_reference(folder, device)
    sessions = [json.loads(x) for x in open(path, encoding="utf-8")][: int(sys.argv[4]) if len(sys.argv) > 4 else None]
    count, good, fails, by_kind = collections.Counter(), collections.Counter(), [], collections.defaultdict(lambda: [0, 0])
    for e in sessions:
        text = chat.render(e["messages"], e["tools"], e["enable_thinking"])
        assert tok.decode(tok.encode(text).ids, skip_special_tokens=False) == text, e["id"]
        learn, right, gold, best, agree = score(m, mtp, tok, e, device)
        exact = True
        for k, (a, b) in enumerate(turns(learn)):
            ok = bool(right[a:b].all())
            exact &= ok
            count["turns"] += 1
            good["turns"] += ok
            if not ok:
                i = a + int((~right[a:b]).nonzero()[0])
                fails.append({"id": e["id"], "turn": k, "gold": tok.decode(gold[a:b].tolist(), skip_special_tokens=False)[:300], "at": tok.decode(gold[a:i].tolist(), skip_special_tokens=False)[-60:],
                              "want": tok.decode([int(gold[i])], skip_special_tokens=False), "got": tok.decode([int(best[i - 1])], skip_special_tokens=False)})
        count["sessions"] += 1
        good["sessions"] += exact
        by_kind[e["kind"]][0] += exact
        by_kind[e["kind"]][1] += 1
        count["tokens"] += int(learn.sum())
        good["tokens"] += int(right[learn].sum())
        for j, (same, t) in enumerate(agree, 1):
            count[f"draft{j}"] += len(t)
            good[f"draft{j}"] += int(same.sum())
    result = {"exact": {k: [good[k], count[k], round(good[k] / max(1, count[k]), 5)] for k in count}, "by_kind": {k: v for k, v in sorted(by_kind.items())}, "fails": fails}
    pathlib.Path(out).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(result["exact"]), json.dumps(result["by_kind"]), flush=True)
    for x in fails[:40]:
        print(f"{x['id']} turn {x['turn']}: ...{x['at']!r} want {x['want']!r} got {x['got']!r}", flush=True)


if __name__ == "__main__":
    main()
