"""Training rows: sessions rendered, encoded and packed by worker processes into numbered shard files; the trainer reads them in order.

A row is uint16: the token id, with the top bit set where the model has to learn the token (what the assistant itself writes).
A session longer than a row ends after its last whole assistant turn that fits; a row is filled up with <|endoftext|>. Shard i of a length holds the sessions of the seeds i * PER_SHARD and following.
"""
import hashlib
import os
import pathlib
import time

import numpy as np

import chat
import tokenizer
from world import episode, trees

PER_SHARD = 512
LEARN = 1 << 15
SEEDS = {2048: 1 << 20, 8192: 1 << 30}  # first seed of each row length: the two never share a session


def encode(tok, e, end_id):
    """Ids of a session with LEARN set on what the assistant writes, and a closing <|endoftext|>."""
    text = chat.render(e["messages"], e["tools"], e["enable_thinking"])
    enc = tok.encode(text)
    ids, offsets = np.array(enc.ids, np.uint16), np.array(enc.offsets)
    for a, b in chat.spans(text, e["enable_thinking"]):
        ids[(offsets[:, 0] >= a) & (offsets[:, 1] <= b)] |= LEARN
    return np.append(ids, np.uint16(end_id))


def fit(doc, length, turn_end):
    """The session, or its part up to the last assistant turn that leaves room for a line end and <|endoftext|>; None when no turn fits."""
    if len(doc) <= length:
        return doc
    ends = np.flatnonzero(doc[: length - 2] == (turn_end | LEARN))
    return np.append(doc[: ends[-1] + 2], doc[-1]) if len(ends) else None


def pack(docs, length, fill):
    """Whole sessions into rows, longest first into the first row with room."""
    rows, room = [], []
    for d in sorted(docs, key=len, reverse=True):
        i = next((i for i, x in enumerate(room) if x >= len(d)), None)
        if i is None:
            i = len(rows)
            rows.append([])
            room.append(length)
        rows[i].append(d)
        room[i] -= len(d)
    out = np.full((len(rows), length), fill, np.uint16)
    for row, parts in zip(out, rows):
        flat = np.concatenate(parts)
        row[: len(flat)] = flat
    return out


def make_shard(tok, index, length):
    end, turn_end = tok.token_to_id("<|endoftext|>"), tok.token_to_id("<|im_end|>")
    docs = [encode(tok, episode.session(SEEDS[length] + index * PER_SHARD + i), end) for i in range(PER_SHARD)]
    rows = pack([d for d in (fit(x, length, turn_end) for x in docs) if d is not None], length, end)
    np.random.default_rng(index).shuffle(rows)
    return rows


def worker(rank, ranks, folder, corpus, plan):
    """Writes every ranks-th shard of the plan [(length, index), ...] until a file STOP appears."""
    os.nice(5)
    trees.load_corpus(corpus)
    tok = tokenizer.load(chat.MODEL_DIR)
    for length, index in plan[rank::ranks]:
        if os.path.exists(f"{folder}/STOP"):
            return
        rows = make_shard(tok, index, length)
        np.save(f"{folder}/{length}-{index}.tmp.npy", rows)
        os.rename(f"{folder}/{length}-{index}.tmp.npy", f"{folder}/{length}-{index}.npy")


def stream(folder, length, digest, index=0):
    """Rows of a length, shard after shard, waiting for those not written yet; the digest covers all rows read."""
    while True:
        path = pathlib.Path(f"{folder}/{length}-{index}.npy")
        while not path.exists():
            time.sleep(0.05)
        rows = np.load(path)
        digest.update(rows.tobytes())
        yield from rows
        index += 1


def bounds(ids, end_id):
    """(age [B, T], cumulative session lengths over the flattened rows). Fill at a row's end counts as part of its last session."""
    start = np.zeros(ids.shape, bool)
    start[:, 0] = True
    start[:, 1:] = (ids[:, :-1] == end_id) & (ids[:, 1:] != end_id)
    at = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    age = at - np.maximum.accumulate(np.where(start, at, 0), 1)
    return age, np.append(np.flatnonzero(start), ids.size).astype(np.int32)


def targets(learn, depth):
    """Flat positions to predict: for the main head, then for the drafts 1..depth (all tokens since the draft began are the assistant's)."""
    m = learn.copy()
    m[:, 0] = False
    out = [np.flatnonzero(m)]
    for j in range(1, depth + 1):
        back = np.zeros_like(m)
        back[:, j:] = learn[:, :-j]
        back[:, : j + 1] = False
        m = m & back
        out.append(np.flatnonzero(m))
    return out


def batch(rows, end_id, depth):
    ids = (rows & (LEARN - 1)).astype(np.int64)
    age, cum = bounds(ids, end_id)
    return ids, age, cum, targets((rows & LEARN) != 0, depth)


def new_digest():
    return hashlib.sha256()
