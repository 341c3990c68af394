"""What a request is about: directories and files, preferring what the user has seen."""
from .. import names as n
from .. import phrases as ph


def misspelled(r, path):
    """A wrong path close to a right one."""
    d, _, b = path.rpartition("/")
    base, dot, ext = b.rpartition(".")
    k = r.random()
    if k < 0.3 and base:
        w = base + "." + r.choice([x for x in n.TEXT_EXT if x != ext])
    elif k < 0.5:
        w = b.lower() if b != b.lower() else b.upper() if r.random() < 0.5 else b.capitalize()
    elif k < 0.6 and base:
        w = base
    else:
        i = r.randrange(len(base or b))
        w = (base or b)[:i] + (base or b)[i + 1:] + (dot + ext if base else "")
    return (d + "/" if d else "") + w if w not in ("", ".", "..", b) and "/" not in w else None


def pick_dir(s):
    return s.r.choice(sorted(s.world.dirs)) if s.r.random() < 0.7 else "."


def pick_file(s, ok=None, text_only=True):
    """A file, preferring what the user has seen in a listing: (how it is said, path for the call, real path)."""
    r, w = s.r, s.world
    if s.listings and r.random() < 0.5:
        d, items = r.choice(s.listings[-3:])
        real = d.strip("/").removeprefix("./") if d not in (".", "./") and not d.startswith("/") else "."
        found = [x for x in items if not x.endswith("/") and (x if real == "." else f"{real}/{x}") in w.files]
        if text_only:
            found = [x for x in found if w.files[x if real == "." else f"{real}/{x}"]]
        found = [x for x in found if ok is None or ok(x if real == "." else f"{real}/{x}")]
        if found:
            x = r.choice(found)
            path = x if real == "." else f"{real}/{x}"
            latest = next((seen for seen in reversed(s.listings) if x in seen[1]), None)
            if latest and latest[0] == d and real != "." and d == real and r.random() < 0.6:
                return ph.quoted(r, x), path, path
            if bare_is_listed(s, path):
                return None
            said, call = ph.file(r, path, w.root)
            return said, call, path
    pool = [p for p in (w.text_files() if text_only else list(w.files)) if ok is None or ok(p)]
    if not pool:
        return None
    depth = min(p.count("/") for p in pool)
    top = [p for p in pool if p.count("/") == depth]
    path = r.choice(top if r.random() < 0.4 else pool)
    if bare_is_listed(s, path):
        return None
    said, call = ph.file(r, path, w.root)
    return said, call, path


def bare_is_listed(s, path):
    """A bare name that a listing of another directory shows would be read as that one."""
    return "/" not in path and any(path in items and d not in (".", "./") for d, items in s.listings)


def maybe_wrong(s, said, call, path):
    """Now and then the user has the name wrong."""
    if s.r.random() < 0.16 and said == call == path:
        w = misspelled(s.r, path)
        if w and w not in s.world.files and w not in s.world.dirs:
            return ph.quoted(s.r, w), w
    return said, call


def keyed(p):
    """Configuration and data rather than code or prose."""
    return p.rpartition(".")[2] not in n.CODE_EXT + ["html", "xml", "rst", "md", "vim", "Debian", "pas", "pp"] and "copyright" not in p and "README" not in p
