"""Whole sessions: a world, tools, a system text and one to many turns."""
import unicodedata

from . import direct, randtools, tasks, trees
from . import names as n
from . import phrases as ph
from .session import Session
from .tasks import documents, listing, reading, searching, values
from .tools import BUILTIN

FILE_ASKS = [listing.LIST_ASK, reading.READ_CLEAR, searching.SEARCH_ASK, documents.ABOUT_ASK, values.VALUE_ASK]


def size_limit(r):
    """Characters a session may grow to before its last turn; the tail gives rows of up to 8k tokens."""
    k = r.random()
    return r.randint(800, 3500) if k < 0.5 else r.randint(2500, 7000) if k < 0.87 else r.randint(6000, 22000)


def offer_builtin(s):
    r, k = s.r, s.r.random()
    names = ["list_dir", "read_file", "search", "calc"] + (["write_file"] if r.random() < 0.4 else [])
    if k < 0.68:
        s.offer(names, rename=False)
    elif k < 0.8:
        names = r.sample(names, r.randint(1, len(names)))
        s.offer(names, rename=False)
    else:
        r.shuffle(names)
        s.offer(names if r.random() < 0.6 else names[: r.randint(1, len(names))], rename=True)


def run(s, table, args=()):
    """One task of a table that fits; undone when it does not."""
    for _ in range(12):
        task = s.r.choices(list(table), list(table.values()))[0]
        marks = [(x, len(x)) for x in (s.messages, s.listings, s.reads)]
        if task(s, *args):
            return
        for x, mark in marks:
            del x[mark:]


def no_tools_turn(s):
    r, w = s.r, s.world
    it, at, _ = ph.place(r, r.choice(sorted(w.dirs)), w.root)
    s.user(ph.say(r, r.choice(FILE_ASKS), it=it, at=at, f=n.file_name(r), x=n.word(r), w="", k=n.ident(r)))
    s.say("I have no tools.", "I have no tools in this session, so I cannot look at files.")


def session(seed):
    """The session of a seed, the same on every machine with the same corpus file."""
    r = n.Rng(seed)
    kind = r.choices(["files", "tools", "mixed", "talk", "which"], [60, 21, 7, 6, 6])[0]
    s = Session(r, trees.tree(r), think=r.random() < 0.8)
    rand, opaque = [], randtools.OPAQUE if s.think else randtools.OPAQUE_BLIND
    if kind in ("tools", "mixed"):
        for _ in range(r.choice([1, 2, 2, 3, 4, 6]) if kind == "tools" else r.randint(1, 3)):
            rand.append(randtools.Tool(r, rand, opaque))
    elif kind == "which":  # name says least here, where choosing is all there is to do; without a thought it stays as rare as elsewhere
        for _ in range(r.randint(2, 8)):
            rand.append(randtools.Tool(r, rand, 0.3 if s.think else opaque))
    if kind in ("files", "mixed") or (kind == "talk" and r.random() < 0.5):
        offer_builtin(s)
    s.tools += [t.schema for t in rand]
    if rand and r.random() < 0.5:
        r.shuffle(s.tools)
    names = [t["function"]["name"] for t in s.tools]
    if len(set(names)) < len(names):
        return session(seed + (1 << 40))
    text = direct.system_text(s)
    if text:
        s.messages.append({"role": "system", "content": text})
    limit = size_limit(r)
    turns = r.choice([1, 1, 1, 2]) if kind == "which" else 24 if limit > 6000 else r.choices([1, 2, 3, 4, 5, 6], [26, 24, 18, 13, 10, 9])[0]
    for _ in range(turns):
        k = r.random()
        if kind == "talk" and not s.tools and k < 0.3:
            no_tools_turn(s)
        elif k < (0.9 if kind == "talk" else 0.1 if not rand else 0.0) or (not s.builtin and not rand):
            run(s, direct.TASKS)
        elif kind == "which":
            run(s, randtools.WHICH, (rand,))
        elif kind == "tools":
            run(s, randtools.TASKS, (rand,)) if k < 0.93 else run(s, {direct.t_talk: 2, direct.t_can: 2, direct.t_who: 1, direct.t_fact: 3, direct.t_told: 1})
        elif kind == "mixed" and k < 0.5:
            run(s, {randtools.t_one: 4, randtools.t_missing: 1, randtools.t_which: 0.3}, (rand,))
        else:
            run(s, tasks.TASKS)
        if s.chars() > limit:
            break
    if not any(m["role"] == "assistant" for m in s.messages):
        direct.t_talk(s)
    return {"kind": kind if kind != "files" else s.world.kind, "enable_thinking": s.think, "tools": s.tools, "messages": [normal(m) for m in s.messages]}


def normal(m):
    """NFC, as the tokenizer reads it."""
    if isinstance(m, dict):
        return {k: normal(v) for k, v in m.items()}
    if isinstance(m, list):
        return [normal(v) for v in m]
    return unicodedata.normalize("NFC", m) if isinstance(m, str) else m


assert set(BUILTIN) >= {"list_dir"}
