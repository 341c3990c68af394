"""Tasks that write."""
from .. import names as n
from .. import phrases as ph
from .access import excuse, get_text
from .picking import bare_is_listed

WRITE_ASK = ['Write "{c}" to {f}.', "Write '{c}' into {f}.", 'Create {f} with the text "{c}".', 'Save "{c}" as {f}.', 'Put "{c}" in {f}.', "Create a file {f} that says \"{c}\".", 'Make a file {f} with the content "{c}".']
WRITE_BARE_ASK = ["Write {c} to {f}.", "write {c} into {f}", "Save {c} as {f}.", "Put {c} in {f}.", "Create {f} with the text {c}", "Write the text {c} to {f}.", "Write the word {c} to {f}.", "Create a file {f} that says {c}", "Make a file called {f} with the content {c}", "Store {c} in the file {f}.", "write {f} with {c}"]
WRITE_BLOCK_ASK = ["Write this to {f}:\n{c}", "Create {f} with this content:\n{c}", "Save the following as {f}:\n\n{c}", "Put this in {f}:\n```\n{c}\n```"]


def wrote(s, out, path):
    if out.startswith("error: no such directory"):
        s.say("The directory does not exist.", f"I could not write {path}: there is no directory {out.rpartition(': ')[2]}.")
    elif out.startswith("error: path leaves"):
        excuse(s, out, path)
    elif out.startswith("error: is a dir"):
        s.say("It is a directory.", f"I could not write {path}: it is a directory.")
    else:
        s.say("The file is written.", f"I {out}.")


def t_write(s):
    r, w = s.r, s.world
    d = r.choice(sorted(w.dirs)) if r.random() < 0.88 else n.dir_name(r)
    name = n.file_name(r, r.choice([["txt"], ["md"], n.TEXT_EXT]))
    path = name if d == "." else f"{d}/{name}"
    if r.random() < 0.06:
        path = r.choice(["../" + name, "/tmp/" + name])
    k = r.random()
    if k < 0.3:  # no quotes: a few words without a sign that could end them
        c = " ".join(n.word(r) for _ in range(r.choice([1, 1, 1, 2, 2, 3, 5]))) if r.random() < 0.85 else str(n.number(r))
        s.user(ph.say(r, WRITE_BARE_ASK, f=path if " " not in path else f"`{path}`", c=c))
    elif k < 0.7:
        c = r.choice([n.sentence(r, 2, 8), n.word(r), n.noise(r, 4, 30), " ".join(n.word(r) for _ in range(r.randint(1, 6))), f"{n.ident(r)} = {n.value(r)}"]).replace('"', "").replace("'", "")
        s.user(ph.say(r, WRITE_ASK, f=path if " " not in path else f"`{path}`", c=c))
    else:
        c = "\n".join(r.choice([n.sentence(r, 2, 8), f"{n.ident(r)} = {n.value(r)}", n.word(r)]) for _ in range(r.randint(1, 6)))
        s.user(r.choice(WRITE_BLOCK_ASK).format(f=path if " " not in path else f"`{path}`", c=c))
    if not s.has("write_file"):
        s.say("There is no tool for writing.", "I cannot write files: this session has no tool for it.")
        return True
    out = s.one(f"I will write the text to {path}.", "write_file", path=path, content=c)
    wrote(s, out, path)
    return True


def t_copy(s):
    if not s.has("read_file"):
        return False
    r, w = s.r, s.world
    pool = [p for p in w.text_files() if len(w.files[p]) < 700 and w.files[p].strip() == w.files[p].strip("\n") and " " not in p and not bare_is_listed(s, p)]
    if not pool:
        return False
    a = r.choice(pool)
    b = n.file_name(r, ["txt", "md", "bak"])
    s.user(ph.say(r, ["Copy {a} to {b}.", "Make a copy of {a} called {b}.", "cp {a} {b}", "Duplicate {a} as {b}."], a=ph.quoted(r, a), b=ph.quoted(r, b)))
    if not s.has("write_file"):
        s.say("There is no tool for writing.", "I cannot write files: this session has no tool for it.")
        return True
    got = get_text(s, a)
    if not got:
        return True
    path, lines, more = got
    if more:
        s.say("I have not read the whole file.", f"{path} is too long for me to copy.")
        return True
    out = s.one(f"I have the text. I will write it to {b}.", "write_file", path=b, content="\n".join(lines))
    wrote(s, out, b)
    return True
