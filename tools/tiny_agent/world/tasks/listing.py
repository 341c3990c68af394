"""Tasks over listings."""
import re

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .access import get_list, get_text, list_answer, read_answer
from .picking import misspelled, pick_dir
from .wording import fenced, here, numbered, plural, subject, tail

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
# The same without a place, which is the root.
DIRS_ROOT_ASK = ["What directories are there?", "Which folders do we have?", "Which directories are there?", "Show me all folders."]
EXT_ROOT_ASK = ["List all {x} files.", "Are there any {x} files?", "Show me the {x} files.", "Do we have {x} files?", "Which {x} files are there?"]
END_ASK = ["Which files {at} end in {x}?", "List the files {at} that end in {x}.", "Show the files ending in {x} {at}."]
END_ROOT_ASK = ["Which files end in {x}?", "List the files that end in {x}.", "Show the files ending in {x}.", "Which files have the ending {x}?"]
COUNT_ROOT_ASK = ["How many entries are there?", "Count the entries."]
COUNT_FILES_ROOT_ASK = ["How many files are there?", "How many files do we have?", "Count the files."]
COUNT_KIND_ASK = ["How many {x} are {at}?", "Count the {x} {at}.", "How many {x} does {it} have?", "What is the number of {x} {at}?"]
COUNT_KIND_ROOT_ASK = ["How many {x} are there?", "How many {x} do we have?", "Count the {x}."]
EXISTS_ROOT_ASK = ["Is there a {x}?", "Do we have a {x}?", "Does {x} exist?", "Is there a file called {x}?", "Check if {x} exists.", "Does the file {x} exist?", "Does a file named {x} exist?", "Do you see a {x}?", "Is {x} there?"]
PATH_EXISTS_ASK = ["Does {x} exist?", "Check if {x} exists.", "Does the file {x} exist?", "Is there a file {x}?", "See if {x} exists."]
WHERE_ASK = ["Where is the file {x}?", "In which folder is {x}?", "Find the file {x}.", "In which directory is {x}?", "Which folder has {x}?", "Where can I find the file {x}?", "Locate {x}.", "Which directory is {x} in?", "Locate the file {x}.", "find . -name {x}"]
KINDS = {".md": "markdown", ".py": "python", ".txt": "text", ".json": "JSON", ".yaml": "YAML", ".sh": "shell", ".csv": "CSV", ".html": "HTML", ".log": "log", ".h": "header", ".js": "javascript", ".rs": "rust", ".toml": "TOML"}
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


def root_only(s):
    """Now and then a user names no place: the root, as long as no listing of another directory could be meant."""
    return s.r.random() < 0.25 and all(d in (".", "./") for d, _ in s.listings)


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
    if root_only(s):
        s.user(ph.say(s.r, DIRS_ROOT_ASK))
        got = get_list(s, ".")
    else:
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
    r, root = s.r, root_only(s)
    d = "." if root else pick_dir(s)
    exts = sorted({x.rpartition(".")[2] for x in s.world.children(d) if "." in x[1:] and not x.endswith("/")})
    ext = "." + (r.choice(exts) if exts and r.random() < 0.8 else r.choice(n.TEXT_EXT))
    it, at, path = ("", "", ".") if root else ph.place(r, d, s.world.root)
    if r.random() < 0.4:
        s.user(ph.say(r, END_ROOT_ASK if root else END_ASK, at=at, x=ext))
    else:
        s.user(ph.say(r, EXT_ROOT_ASK if root else EXT_ASK, it=it, at=at, x=KINDS[ext] if ext in KINDS and r.random() < 0.4 else ext))
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
    root = root_only(s)
    it, at, path = ("", "", ".") if root else ph.place(s.r, pick_dir(s), s.world.root)
    ask = (COUNT_FILES_ROOT_ASK if files else COUNT_ROOT_ASK) if root else COUNT_FILES_ASK if files else COUNT_ASK
    s.user(ph.say(s.r, ask, it=it, at=at))
    got = get_list(s, path)
    if not got:
        return True
    path, items, more = got
    if more and files:
        s.say(f"The listing shows 30 entries and {more} more. It does not tell which of those are files.", f"{subject(path)} has 30 entries and {more} more; I cannot see how many of those are files.")
        return True
    if more:
        if not s.has("calc"):
            s.say(f"There are 30 entries and {more} more.", f"{subject(path)} has 30 entries and {more} more.")
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


def t_count_kind(s):
    """How many entries are directories, or have an ending: those are picked and numbered."""
    if not s.has("list_dir"):
        return False
    r, root = s.r, root_only(s)
    d = "." if root else pick_dir(s)
    exts = sorted({x.rpartition(".")[2] for x in s.world.children(d) if "." in x[1:] and not x.endswith("/")})
    ext = "/" if r.random() < 0.4 else "." + (r.choice(exts) if exts and r.random() < 0.8 else r.choice(n.TEXT_EXT))
    what = r.choice(["directories", "folders", "subdirectories"]) if ext == "/" else f"{KINDS[ext] if ext in KINDS and r.random() < 0.5 else ext} files"
    it, at, path = ("", "", ".") if root else ph.place(r, d, s.world.root)
    s.user(ph.say(r, COUNT_KIND_ROOT_ASK if root else COUNT_KIND_ASK, it=it, at=at, x=what))
    got = get_list(s, path)
    if not got:
        return True
    path, items, more = got
    found = [x for x in items if x.endswith(ext)]
    one, many = ("directory", "directories") if ext == "/" else (f"{ext} file", f"{ext} files")
    rest = f" {more} more entries are not shown." if more else ""
    if found:
        s.say(f"I will pick the names that end in {ext} and number them.", f"{numbered(found)}\nThat is {plural(len(found), one, many)} in {here(path)}.{rest}")
    else:
        s.say(f"No name ends in {ext}.", f"There are no {many} in {here(path)}.{rest}")
    return True


def join(directory, name):
    return name if directory in (".", "./") else f"{directory.rstrip('/')}/{name}"


def t_exists(s):
    """Whether something is there: the listing is read before the verdict, and what it does not show is tried."""
    if not s.has("list_dir"):
        return False
    r, root = s.r, root_only(s)
    d = "." if root else pick_dir(s)
    kids = s.world.children(d)
    name = r.choice(kids).rstrip("/") if kids and r.random() < 0.55 else r.choice([n.file_name(r), n.near(r, r.choice(kids).rstrip("/")) if kids else n.dir_name(r)])
    if "/" in name or not name.strip(". "):
        return False
    whole = not root and d != "." and r.random() < 0.3
    it, at, path = ("", "", d) if root or whole else ph.place(r, d, s.world.root)
    x = ph.quoted(r, f"{d}/{name}" if whole else name)
    s.user(ph.say(r, PATH_EXISTS_ASK if whole else EXISTS_ROOT_ASK if root else EXISTS_ASK, it=it, at=at, x=x))
    got = get_list(s, path)
    if got:
        exists_answer(s, name, *got)
    return True


def exists_answer(s, name, path, items, more):
    hit = next((x for x in items if x.rstrip("/") == name), None)
    if hit:
        s.say(f"I look for {name}. The entry is:\n{hit}", f"{name} is {'a directory ' if hit.endswith('/') else ''}in {here(path)}.")
    elif not more:
        s.say(f"I look for {name}. No entry is that.", f"{name} is not in {here(path)}.")
    elif s.has("read_file"):
        out = s.one(f"I look for {name}. It is not among the 30 entries shown, and {more} more follow. I will try to open it.", "read_file", path=join(path, name), start_line=1000000)
        where = "not in" if out.startswith("error: no such file") else "a directory in" if out.startswith("error: is a directory") else "in"
        s.say("The tool says that there is no such file." if where == "not in" else "The tool found it.", f"{name} is {where} {here(path)}.")
    else:
        s.say(f"I look for {name}. It is not among the 30 entries shown.", f"{name} is not among the 30 entries shown of {here(path)}; {more} more are not shown.")


def t_where_file(s):
    """In which directory a file is: the root, then the first directories in it one by one."""
    if not s.has("list_dir"):
        return False
    r, w = s.r, s.world
    dirs = [x for x in w.children(".")[:30] if x.endswith("/")][:4]
    if sum(min(31, len(w.children(d.rstrip("/")))) for d in dirs) > 60:
        return False
    places = [""] + dirs
    pool = [p for p in w.files if p.count("/") < 2 and (p.rpartition("/")[0] + "/" in places or "/" not in p)]
    name = r.choice(pool).rpartition("/")[2] if pool and r.random() < 0.8 else n.file_name(r)
    s.user(ph.say(r, WHERE_ASK, x=ph.quoted(r, name)))
    got = get_list(s, ".")
    if not got:
        return True
    _, items, _ = got
    if name in items:
        s.say(f"I look for {name}. The entry is:\n{name}", f"{name} is in this directory.")
        return True
    dirs = [x for x in items if x.endswith("/")][:4]
    if not dirs:
        s.say(f"I look for {name}. No entry is that, and there are no directories.", f"I found no {name} in this directory.")
        return True
    for d in dirs:
        out = s.one(f"I look for {name}. No entry is that. I will look in {d}", "list_dir", path=d)
        listed, _ = f.split_more(out, f.MORE)
        s.listings.append((d, [] if listed == ["(empty)"] else listed))
        if name in out.split("\n"):
            s.say(f"I look for {name}. The entry is:\n{name}", f"{name} is in {d}")
            return True
    s.say(f"I look for {name}. No entry is that, and I have looked in {plural(len(dirs), 'directory', 'directories')}.", f"I found no {name} in this directory, nor in:\n{fenced(dirs)}")
    return True


def t_listed_followup(s):
    """A question about the last listing, answered without a call."""
    if not s.listings or not s.listings[-1][1] or not s.last_call_was("list_dir", {"path": s.listings[-1][0]}):
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
        parts.append(f"{p} has:\n{fenced(items + tail(more))}" if items else f"{subject(p)} is empty.")
        s.listings.append((p, items))
    s.say("I have the listings. I will report them.", "\n".join(parts))
    return True
