"""Tasks over values in configuration and build files."""
import re

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .access import get_text
from .picking import bare_is_listed, keyed, maybe_wrong, pick_file
from .wording import fenced

VALUE_ASK = ["What is the value of {k} in {f}?", "What is {k} in {f}?", "What's {k} set to in {f}?", "Look up {k} in {f}.", "Read {f} and tell me {k}.", "Which {k} does {f} use?", "Get {k} from {f}.", "In {f}, what is {k}?", "Tell me the {k} in {f}.", "{k} in {f}?", "What value does {k} have in {f}?", "Check the value of {k} in {f}."]


def key_said(r, key):
    if r.random() < 0.25 and "_" in key:
        return key.replace("_", " ").lower() if r.random() < 0.7 else key.replace("_", " ")
    return ph.quoted(r, key)


def has_keys(s):
    return lambda p: keyed(p) and bool(f.keys(s.world.files[p].split("\n")[:30]))


def t_value(s):
    """The value of a key; when the visible part lacks it and the file goes on, a search in the file finds it."""
    if not s.has("read_file"):
        return False
    r = s.r
    picked = pick_file(s, has_keys(s))
    if not picked:
        return False
    said, call = maybe_wrong(s, *picked)
    all_keys = f.keys(s.world.files[picked[2]].split("\n"))
    key = r.choice(sorted(all_keys)) if r.random() < 0.92 else n.ident(r)
    spoken = key_said(r, key)
    kind = r.choice(["key", "option", "setting", "variable"]) if r.random() < 0.15 else ""
    s.user(ph.say(r, NAMED_ASK if kind else VALUE_ASK, f=said, k=f"{kind} {spoken}".strip()))
    got = get_text(s, call)
    if not got:
        return True
    path, lines, more = got
    line, asked = f.keys(lines).get(key), spoken.strip("\"'`")
    if line:
        s.say(f"I will look for {asked}. The line is:\n{line}", f"{key} in {path} is {f.key_value(line)}.")
    elif more and s.has("search") and asked == key:
        out = s.one(f"I will look for {key}. The part I read does not have it. I will search the file.", "search", pattern=key, path=path)
        hits, _ = f.split_more(out, f.MORE_HITS)
        if out == "no matches":
            s.say("The search found nothing.", f"{key} is not in {path}.")
        else:
            text = f.hit_parts(hits[0])[2]
            s.say("I will quote the first match.", f"{key} in {path} is on line {f.hit_parts(hits[0])[1]}:\n{fenced([text])}")
    else:
        s.say(f"I will look for {asked}. No line sets it.", f"{asked} is not in {path}.")
    return True


NAMED_ASK = ["What is the value of the {k} in {f}?", "What is the {k} in {f}?", "What is the {k} set to in {f}?", "Look up the {k} in {f}.", "Get the {k} from {f}.", "In {f}, what is the {k}?", "How is the {k} set in {f}?"]
VERSION_FILES = ["CMakeLists.txt", "package.json", "pyproject.toml", "Cargo.toml"]


def t_version(s):
    """The version a build file states, whatever its spelling."""
    if not s.has("read_file"):
        return False
    pool = [p for p in s.world.text_files() if p.rpartition("/")[2] in VERSION_FILES]
    if not pool:
        return False
    said, call = ph.file(s.r, s.r.choice(pool), s.world.root)
    if bare_is_listed(s, call):
        return False
    s.user(ph.say(s.r, ["What is the version in {f}?", "Which version does {f} have?", "Read {f} and tell me the version.", "What version is in {f}?", "Version in {f}?", "Which project version does {f} set?"], f=said))
    got = get_text(s, call)
    if not got:
        return True
    path, lines, _ = got
    for x in lines:
        m = re.search(r"project\(.*\bVERSION ([\w.]+)", x) or re.match(r"\s*\"?version\"?\s*[:=]\s*\"([^\"]+)\"", x)
        if m:
            s.say(f"The line is:\n{x.strip()}", f"The version in {path} is {m.group(1)}.")
            return True
    s.say("No line sets a version.", f"{path} does not state a version.")
    return True


def t_compare(s):
    """The same key in two files, compared through a difference."""
    if not s.has("read_file"):
        return False
    r, w = s.r, s.world
    pool = [p for p in w.text_files() if keyed(p) and " " not in p and len(w.files[p]) < 900 and not bare_is_listed(s, p)]
    if len(pool) < 2:
        return False
    a, b = r.sample(pool, 2)
    ka, kb = (f.keys(w.files[p].split("\n")) for p in (a, b))
    both = [k for k in ka if k in kb and len(k) > 2]
    if not both or r.random() < 0.6:  # plant a common key: the files then are configuration
        key = n.code_ident(r)
        for p in (a, b):
            style = r.choice(["{k} = {v}", "{k}: {v}", "{k}={v}"])
            w.files[p] = "\n".join([style.format(k=n.ident(r), v=n.value(r)) for _ in range(r.randint(0, 5))] + [style.format(k=key, v=n.number(r))] + [style.format(k=n.ident(r), v=n.value(r)) for _ in range(r.randint(0, 4))])
    else:
        key = r.choice(both)
    higher = r.random() < 0.6
    s.user(ph.say(r, ["Which has the higher {k}, {a} or {b}?", "Is {k} larger in {a} or in {b}?", "Compare {k} in {a} and {b}: which is higher?", "Which of {a} and {b} has the bigger {k}?"] if higher else
                  ["Is {k} the same in {a} and {b}?", "Do {a} and {b} have the same {k}?", "Does {k} differ between {a} and {b}?", "Compare {k} in {a} and {b}."], k=ph.quoted(r, key), a=ph.quoted(r, a), b=ph.quoted(r, b)))
    outs = s.call("I need both files. I will read them together.", ("read_file", {"path": a}), ("read_file", {"path": b}))
    vals = [f.keys(f.split_more(o, f.MORE_LINES)[0]).get(key) for o in outs]
    if None in vals:
        missing = a if vals[0] is None else b
        s.say(f"{missing} has no line for {key}.", f"There is no {key} in {missing}.")
        return True
    va, vb = (f.key_value(x) for x in vals)
    both_said = f"{key} is {va} in {a} and {vb} in {b}."
    if higher and f.number_of(va) and f.number_of(vb) and s.has("calc"):
        d = s.one(f"{both_said} I will subtract.", "calc", expression=f"{va} - {vb}")
        s.say(f"The difference is {d}.", both_said + (" They are equal." if d == "0" else f" It is higher in {b if d.startswith('-') else a}."))
    else:
        s.say(both_said, both_said + (" They are the same." if va == vb else " They differ."))
    return True
