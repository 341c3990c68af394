"""Tasks over listings."""
import re

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .access import get_list, get_text, list_answer, read_answer
from .picking import misspelled, pick_dir
from .wording import cap, fenced, here, numbered, plural, tail

# Requests that fit a directory only, and those that fit a file as well: the latter are used where the name tells which it is.
LIST_CLEAR = ["What files are {at}?", "Which files are {at}?", "List {it}.", "List the files {at}.", "List the contents of {it}.", "Which entries are {at}?", "ls {it}", "Give me a listing of {it}.", "Which files and folders are {at}?", "Enumerate {it}.",
              "List all files {at}.", "Which files live {at}?", "Open {it} and list it.", "List everything {at}.", "Show me the files {at}.", "Show all files {at}.", "What files do we have {at}?", "dir {it}", "Tell me which files are {at}."]
LIST_EITHER = ["What's {at}?", "What is {at}?", "whats {at}", "Show me what is {at}.", "Show the contents of {it}.", "Look {at} and tell me what is there.", "Look at {it}.", "What do we have {at}?", "What does {it} contain?", "Show me {it}.",
               "What can you find {at}?", "Have a look {at}.", "Tell me what's {at}.", "What are the contents of {it}?", "Look into {it} and tell me what is there.", "Show {it}."]
LIST_ASK = LIST_CLEAR + LIST_EITHER
DIRS_ASK = ["Which directories are {at}?", "What folders are {at}?", "List only the folders {at}.", "List the subdirectories {at}.", "Are there any folders {at}?", "Show me the directories {at}."]
EXT_ASK = ["Which {x} files are {at}?", "List the {x} files {at}.", "Are there any {x} files {at}?", "Show me all {x} files {at}.", "What {x} files do we have {at}?"]
COUNT_ASK = ["How many entries are {at}?", "How many things are {at}?", "Count the entries {at}.", "How many items does {it} have?", "How many entries does {it} have?"]
COUNT_FILES_ASK = ["How many files are {at}?", "Count the files {at}.", "How many files does {it} have?", "What is the number of files {at}?"]
EXISTS_ASK = ["Is there a {x} {at}?", "Does {it} have a {x}?", "Is {x} {at}?", "Check if there is a {x} {at}.", "Is there a file called {x} {at}?"]


def odd_dir(s):
    """A directory reference that fails: missing, outside, or a file."""
    r, w = s.r, s.world
    k = r.random()
    if k < 0.3:
        p = r.choice(["../", ""]) + r.choice(["..", f"../{n.word(r)}", f"/{n.word(r)}", "/root", "~", "/tmp"])
        p = "/" + n.word(r) if p == "~" else p
    elif k < 0.55 and w.files:
        p = r.choice(list(w.files))
    elif k < 0.8 and len(w.dirs) > 1:
        p = misspelled(r, r.choice([d for d in sorted(w.dirs) if d != "."])) or n.dir_name(r)
    else:
        p = r.choice(["", n.dir_name(r) + "/"]) + n.dir_name(r)
    it = ph.quoted(r, p)
    return it, "in " + it, p


def ask_dir(s, templates, **slots):
    d = pick_dir(s)
    it, at, path = odd_dir(s) if s.r.random() < 0.09 else ph.place(s.r, d, s.world.root)
    clearly = path in (".", s.world.root) or path.endswith("/") or re.search(r"\b(folder|directory|dir)\b", it) or "." not in path.rpartition("/")[2]
    if templates is LIST_ASK and not clearly:
        templates = LIST_CLEAR
    s.user(ph.say(s.r, templates, it=it, at=at, **slots))
    return get_list(s, path), path


def t_list(s):
    if not s.has("list_dir"):
        return False
    got, _ = ask_dir(s, LIST_ASK)
    if got:
        list_answer(s, *got)
    return True


def t_dirs(s):
    if not s.has("list_dir"):
        return False
    got, _ = ask_dir(s, DIRS_ASK)
    if got:
        path, items, _ = got
        only_dirs(s, path, items)
    return True


def only_dirs(s, path, items):
    found = [x for x in items if x.endswith("/")]
    s.say("Directories end in a slash.", f"The directories in {here(path)} are:\n{fenced(found)}" if found else f"There are no directories in {here(path)}.")


def t_ext(s):
    if not s.has("list_dir"):
        return False
    d = pick_dir(s)
    exts = sorted({x.rpartition(".")[2] for x in s.world.children(d) if "." in x[1:] and not x.endswith("/")})
    ext = "." + (s.r.choice(exts) if exts and s.r.random() < 0.8 else s.r.choice(n.TEXT_EXT))
    it, at, path = ph.place(s.r, d, s.world.root)
    s.user(ph.say(s.r, EXT_ASK, it=it, at=at, x=ext))
    got = get_list(s, path)
    if got:
        only_ext(s, got[0], got[1], ext)
    return True


def only_ext(s, path, items, ext):
    found = [x for x in items if x.endswith(ext)]
    s.say(f"I will pick the names that end in {ext}.", f"The {ext} files in {here(path)} are:\n{fenced(found)}" if found else f"There are no {ext} files in {here(path)}.")


def t_count(s):
    if not s.has("list_dir"):
        return False
    files = s.r.random() < 0.5
    d = pick_dir(s)
    if files and len(s.world.children(d)) > 30:
        return False
    it, at, path = ph.place(s.r, d, s.world.root)
    s.user(ph.say(s.r, COUNT_FILES_ASK if files else COUNT_ASK, it=it, at=at))
    got = get_list(s, path)
    if not got:
        return True
    path, items, more = got
    if more:
        if not s.has("calc"):
            s.say(f"There are 30 entries and {more} more.", f"{cap(here(path))} has 30 entries and {more} more." if path in (".", "./") else f"{path} has 30 entries and {more} more.")
            return True
        total = s.one(f"The listing shows 30 entries and {more} more. I will add them.", "calc", expression=f"30 + {more}")
        s.say("I have the total.", f"There are {total} entries in {here(path)}.")
        return True
    items = [x for x in items if not (files and x.endswith("/"))]
    word = "file" if files else "entry"
    if not items:
        s.say("There is nothing to count.", f"There are no {'files' if files else 'entries'} in {here(path)}.")
    else:
        s.say("I will number them.", f"{numbered(items)}\nThat is {plural(len(items), word, 'files' if files else 'entries')} in {here(path)}.")
    return True


def t_exists(s):
    if not s.has("list_dir"):
        return False
    r, d = s.r, pick_dir(s)
    kids = s.world.children(d)
    if len(kids) > 30:
        return False
    name = r.choice(kids).rstrip("/") if kids and r.random() < 0.55 else n.file_name(r)
    it, at, path = ph.place(r, d, s.world.root)
    s.user(ph.say(r, EXISTS_ASK, it=it, at=at, x=ph.quoted(r, name)))
    got = get_list(s, path)
    if got:
        path, items, _ = got
        hit = next((x for x in items if x.rstrip("/") == name), None)
        where = f"{name} is " + ("not in" if not hit else "a directory in" if hit.endswith("/") else "in")
        s.say(f"I will look for the name in the listing. {where} it.", f"{where} {here(path)}.")
    return True


def t_listed_followup(s):
    """A question about the last listing, answered without a call."""
    if not s.listings or s.messages[-1]["role"] != "assistant" or not s.listings[-1][1]:
        return False
    r, (path, items) = s.r, s.listings[-1]
    k = r.random()
    if k < 0.3:
        s.user(ph.say(r, ["Which of them are directories?", "Which of those are folders?", "Which ones are directories?", "Only the folders?"]))
        only_dirs(s, path, items)
    elif k < 0.55:
        exts = sorted({x.rpartition(".")[2] for x in items if "." in x[1:] and not x.endswith("/")})
        ext = "." + (r.choice(exts) if exts else "md")
        s.user(ph.say(r, ["Which of them are {x} files?", "Which ones end in {x}?", "And which are {x} files?"], x=ext))
        only_ext(s, path, items, ext)
    elif k < 0.8:
        first = r.random() < 0.5
        s.user(ph.say(r, ["What was the first entry?", "Which one is first?", "Which entry comes first?"] if first else ["What was the last entry?", "Which one is last?", "Which entry comes last?"]))
        s.say("I can take it from the listing.", f"The {'first' if first else 'last'} entry is {items[0 if first else -1]}.")
    else:
        files = [x for x in items if not x.endswith("/")]
        if not files or not s.has("read_file"):
            return False
        name, pre = files[0], "" if path in (".", "./") else path.rstrip("/") + "/"
        s.user(ph.say(r, ["Read the first file.", "Show me the first file.", "Open the first file.", "Read the first of these files."]))
        got = get_text(s, pre + name)
        if got:
            read_answer(s, *got)
    return True


def t_two_lists(s):
    if not s.has("list_dir") or len(s.world.dirs) < 3:
        return False
    r = s.r
    a, b = r.sample([d for d in sorted(s.world.dirs) if d != "."], 2)
    (_, at, pa), q = ph.place(r, a, s.world.root), ph.quoted(r, b)
    s.user(ph.say(r, ["What is {at} and in {b}?", "What files are {at} and in {b}?", "List what is {at} and in {b}."], at=at, b=q))
    outs = s.call("I need two listings. I will ask for both.", ("list_dir", {"path": pa}), ("list_dir", {"path": b}))
    parts = []
    for p, out in zip((pa, b), outs):
        items, more = f.split_more(out, f.MORE)
        items = [] if items == ["(empty)"] else items
        parts.append(f"{p} has:\n{fenced(items + tail(more))}" if items else f"{cap(p)} is empty.")
        s.listings.append((p, items))
    s.say("I have the listings. I will report them.", "\n".join(parts))
    return True
