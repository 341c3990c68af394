"""Tasks over the file tools. Each writes one or more turns into a Session and returns True, or returns False when it does not fit.

Every answer is a function of the conversation before it: what was asked (the kind of question and the names in it) and what the tools
returned. Nothing in an answer is drawn at random.
"""
import re

from . import facts as f
from . import names as n
from . import phrases as ph
from . import texts

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

READ_CLEAR = ["Read {f}.", "What does {f} say?", "Print {f}.", "cat {f}", "Open {f}.", "Show the text of {f}.", "Read {f} to me.", "Quote {f}.", "Read {f} and show it.", "Print the text of {f}.", "What is written in {f}?", "Read out {f}.", "Give me the text of {f}."]
READ_EITHER = ["Show me {f}.", "What is in {f}?", "Display {f}.", "Give me the contents of {f}.", "What's in {f}?", "Let me see {f}.", "What are the contents of {f}?", "whats in {f}", "Show {f}.", "Please output {f}.", "What does {f} contain?"]
READ_ASK = READ_CLEAR + READ_EITHER
FIRST_LINE_ASK = ["What is the first line of {f}?", "Show the first line of {f}.", "Read {f} and tell me its first line.", "First line of {f}?", "How does {f} begin?", "How does {f} start?", "Read {f} and tell me the first line."]
FIRST_N_ASK = ["Show the first {k} lines of {f}.", "What are the first {k} lines of {f}?", "Print the first {k} lines of {f}.", "head -{k} {f}", "Give me the top {k} lines of {f}.", "Read {f} and quote the first {k} lines."]
LAST_LINE_ASK = ["What is the last line of {f}?", "Show the last line of {f}.", "How does {f} end?", "Read {f} and tell me its last line."]
LINE_K_ASK = ["What is on line {k} of {f}?", "Show line {k} of {f}.", "Read line {k} of {f}.", "What does line {k} of {f} say?", "Print line {k} of {f}.", "line {k} of {f}?"]
FROM_ASK = ["Show {f} from line {k}.", "Read {f} starting at line {k}.", "Print {f} from line {k} on.", "Read {f} from line {k} onwards.", "What comes in {f} from line {k} on?"]
LINES_ASK = ["How many lines does {f} have?", "How long is {f}?", "Count the lines of {f}.", "Number of lines in {f}?", "How many lines are in {f}?", "wc -l {f}"]
HEADING_ASK = ["What is the first heading of {f}?", "Read {f} and tell me its first heading.", "What is the title of {f}?", "Tell me the title of {f}.", "Read {f} and tell me the title.", "What's the heading of {f}?", "Which title does {f} have?", "First heading of {f}?", "What is the first heading in {f}?"]
HEADINGS_ASK = ["List the headings of {f}.", "Which headings does {f} have?", "What sections does {f} have?", "Show all headings in {f}.", "What are the section titles of {f}?"]
ABOUT_ASK = ["What is {f} about?", "Read {f} and tell me what the project is about.", "Summarize {f}.", "Summarise {f} for me.", "Read {f} and tell me what it is about.", "What is the topic of {f}?", "Give me a summary of {f}.", "Explain {f}.", "What's {f} about?", "Describe {f}.",
             "Read {f} and summarize it.", "Tell me about {f}.", "Read {f} and tell me what this is about.", "Look at {f} and tell me what the project does."]
PROJECT_ASK = ["What is this project about?", "What is this project?", "What does this project do?", "Tell me about this project.", "What is this repository?", "Explain this project.", "What is this repo about?", "Describe this project."]
VALUE_ASK = ["What is the value of {k} in {f}?", "What is {k} in {f}?", "What's {k} set to in {f}?", "Look up {k} in {f}.", "Read {f} and tell me {k}.", "Which {k} does {f} use?", "Get {k} from {f}.", "In {f}, what is {k}?", "Tell me the {k} in {f}.", "{k} in {f}?", "What value does {k} have in {f}?", "Check the value of {k} in {f}."]
SEARCH_ASK = ["Where is {x} used{w}?", "Where is {x} mentioned{w}?", "Search for {x}{w}.", "Find {x}{w}.", "grep {x}{w}", "Where does {x} appear{w}?", "Look for {x}{w}.", "Which lines mention {x}{w}?", "Find where {x} is used{w}.", "Find all uses of {x}{w}.", "Find where {x} is mentioned{w}.", "Where can I find {x}{w}?",
              "Show me every line with {x}{w}.", "Where do we use {x}{w}?", "Search {x}{w}", "Where is {x}{w}?"]
FILES_ASK = ["Which files mention {x}{w}?", "Which file contains {x}{w}?", "What files use {x}{w}?", "Find the files that contain {x}{w}.", "Which file mentions {x}{w}?", "In which files is {x}{w}?", "List the files with {x}{w}."]
DEF_ASK = ["Where is {x} defined{w}?", "Which file defines {x}{w}?", "Find the definition of {x}{w}.", "Find where {x} is defined{w}.", "Where is the definition of {x}{w}?", "In what file is {x} defined{w}?", "Who defines {x}{w}?", "Show me where {x} is declared{w}."]
HITS_ASK = ["How many lines mention {x}{w}?", "How often does {x} appear{w}?", "How many times is {x} used{w}?", "Count the lines with {x}{w}."]
SEARCH_READ_ASK = ["Find the file that mentions {x}{w} and tell me its first line.", "Search for {x}{w}, then read the first file you find and tell me its first line.", "Find {x}{w} and show me the first line of that file."]
SEARCH_SHOW_ASK = ["Find {x}{w} and show me the code there.", "Show me the code of {x}{w}.", "Find the definition of {x}{w} and show it.", "Search for {x}{w} and show the lines that follow.", "Show me the source of {x}{w}."]
SUM_ASK = ["What is the sum of the numbers in {f}?", "Add up the numbers in {f}.", "Sum the numbers in {f}.", "Total of the numbers in {f}?", "Read {f} and add up all numbers.", "Read {f} and sum the values.", "What do the numbers in {f} add up to?", "Calculate the total of {f}."]
AVG_ASK = ["What is the average of the numbers in {f}?", "Average of the numbers in {f}?", "Compute the mean of {f}.", "Read {f} and give me the average."]
COL_ASK = ["What is the sum of the {k} column in {f}?", "Add up {k} in {f}.", "Total {k} in {f}?", "Sum the column {k} of {f}."]


def here(path):
    """How an answer names a directory."""
    return "this directory" if path in (".", "./") else path


def cap(text):
    return text[0].upper() + text[1:]


def fenced(lines):
    """Lines as they came: a name at a line's start is the same tokens in a result and in an answer."""
    return "```\n" + "\n".join(lines) + "\n```"


def numbered(items):
    return "\n".join(f"{x} ({i})" for i, x in enumerate(items, 1))


def plural(count, one, many=None):
    return f"{count} {one if count == 1 else (many or one + 's')}"


# What errors lead to --------------------------------------------------------------------------------------------------------------


def near(wrong, names):
    """The one name in a listing that a mistyped name stands for, or None: same letters, another ending, or one small edit."""
    def key(x):
        return re.sub(r"[^a-z0-9]", "", x.rstrip("/").lower())

    def edit(a, b):
        if abs(len(a) - len(b)) > 1:
            return False
        i = next((k for k in range(min(len(a), len(b))) if a[k] != b[k]), min(len(a), len(b)))
        return a[i + 1:] == b[i + 1:] or a[i + 1:] == b[i:] or a[i:] == b[i + 1:] or (a[i + 2:] == b[i + 2:] and a[i:i + 2] == b[i:i + 2][::-1])

    for test in (lambda x: key(x) == key(wrong), lambda x: edit(key(x), key(wrong)) and len(key(wrong)) > 3, lambda x: x.rstrip("/").rpartition(".")[0].lower() == wrong.rpartition(".")[0].lower() != ""):
        found = [x for x in names if test(x)]
        if len(found) == 1:
            return found[0]
        if found:
            return None
    return None


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


def excuse(s, error, path):
    """The answer to an error that ends the task."""
    if error.startswith("error: path leaves the root"):
        s.say("The path is outside the root.", f"I cannot open {path}: it is outside the root of this session.")
    elif error.startswith("error: not a text file"):
        s.say("The file is not text.", f"{path} is not a text file, so I cannot read it.")
    else:
        s.say("The tool returned an error.", f"The tool returned an error: {error[len('error: '):]}")


def recover(s, path, directory):
    """After 'no such ...': list the parent and find the right name; the corrected path or None after telling the user."""
    what = "directory" if directory else "file"
    if not s.has("list_dir"):
        s.say(f"There is no such {what}.", f"There is no {what} {path}.")
        return None
    parent = path.rstrip("/").rpartition("/")[0] or "."
    wrong = path.rstrip("/").rpartition("/")[2]
    listing = s.one(f"There is no {what} {path}. I will list {here(parent)} to find the right name.", "list_dir", path=parent)
    if listing.startswith("error: "):
        s.say(f"There is no directory {parent} either.", f"There is no {what} {path}, and no directory {parent}.")
        return None
    items, _ = f.split_more(listing, f.MORE)
    right = near(wrong, [x for x in items if x.endswith("/") == directory])
    if right is None:
        s.say(f"Nothing in the listing is close to {wrong}.", f"There is no {what} {wrong} in {here(parent)}.")
        return None
    return right.rstrip("/") if parent == "." and not path.startswith("./") else f"{parent}/{right.rstrip('/')}"


def get_list(s, path):
    """list_dir with its error handling: (path, items, more) or None when the task has been ended."""
    out = s.one(f"I need the entries of {here(path)}. I will call {s.tool('list_dir')}.", "list_dir", path=path)
    if out.startswith("error: no such directory"):
        path2 = recover(s, path, True)
        if path2 is None:
            return None
        out = s.one(f"The right name is {path2}. I will list it.", "list_dir", path=path2)
        path = path2
    if out.startswith("error: not a directory"):
        if not s.has("read_file"):
            s.say("It is a file.", f"{path} is a file, not a directory.")
        elif got := get_text(s, path, thought=f"{path} is a file. I will read it."):
            read_answer(s, *got)
        return None
    if out.startswith("error: "):
        excuse(s, out, path)
        return None
    items, more = f.split_more(out, f.MORE)
    items = [] if items == ["(empty)"] else items
    s.listings.append((path, items))
    return path, items, more


def tail(more):
    return [f"... {more} more"] if more else []


def list_answer(s, path, items, more):
    if not items:
        s.say("The listing is empty.", f"{cap(here(path))} is empty.")
    else:
        s.say("I have the listing. I will report it.", f"{cap(here(path)) if path in ('.', './') else path} has:\n{fenced(items + tail(more))}")


def get_text(s, path, start=None, thought=None):
    """read_file with its error handling: (path, lines, more) or None when the task has been ended."""
    args = {"path": path} if start is None else {"path": path, "start_line": start}
    thought = thought or f"I need {'the text of ' if start is None else ''}{path}{'' if start is None else f' from line {start}'}. I will call {s.tool('read_file')}."
    out = s.one(thought, "read_file", **args)
    if out.startswith("error: no such file"):
        path2 = recover(s, path, False)
        if path2 is None:
            return None
        args["path"] = path = path2
        out = s.one(f"The right name is {path}. I will read it.", "read_file", **args)
    if out.startswith("error: is a directory"):
        if not s.has("list_dir"):
            s.say("It is a directory.", f"{path} is a directory, not a file.")
            return None
        out = s.one(f"{path} is a directory. I will list it.", "list_dir", path=path)
        items, more = f.split_more(out, f.MORE)
        items = [] if items == ["(empty)"] else items
        s.say("I have the listing. I will report it.", f"{path} is a directory, not a file. " + (f"It has:\n{fenced(items + tail(more))}" if items else "It is empty."))
        s.listings.append((path, items))
        return None
    m = re.match(r"error: start_line \d+ is past the end \((\d+) lines\)", out)
    if m:
        s.say("The file is shorter than that.", f"{path} has only {plural(int(m.group(1)), 'line')}.")
        return None
    if out.startswith("error: "):
        excuse(s, out, path)
        return None
    if out in ("(empty)", ""):
        s.say("The file is empty.", f"{path} is empty.")
        return None
    lines, more = f.split_more(out, f.MORE_LINES)
    s.reads.append((path, lines, more))
    return path, lines, more


# Choosing what to ask about ---------------------------------------------------------------------------------------------------


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


# Listing ----------------------------------------------------------------------------------------------------------------------


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


# Reading ----------------------------------------------------------------------------------------------------------------------


def read_answer(s, path, lines, more):
    if more:
        s.say(f"The file is long: {more} more lines follow. I will show the beginning.", f"{path} is long. It begins:\n{fenced(lines[:5])}")
    else:
        s.say("I have the text. I will quote it.", f"{path} says:\n{fenced(lines)}")


def ask_file(s, templates, ok=None, **slots):
    """Asks about a file and reads it; None when nothing fits, False when the task ended in an error."""
    if not s.has("read_file"):
        return None
    picked = pick_file(s, ok)
    if not picked:
        return None
    said, call = maybe_wrong(s, *picked)
    if templates is READ_ASK and "file " not in said and "." not in call.rpartition("/")[2]:
        templates = READ_CLEAR
    s.user(ph.say(s.r, templates, f=said, **slots))
    return get_text(s, call) or False


def t_read(s):
    r = s.r
    if r.random() < 0.12:
        return t_read_odd(s)
    got = ask_file(s, READ_ASK, ok=(lambda p: len(s.world.files[p] or '') < 1500) if r.random() < 0.7 else None)
    if got:
        read_answer(s, *got)
    return got is not None


def t_read_odd(s):
    """Reads that fail: a directory, a binary file, a path outside, a missing file, an empty file."""
    if not s.has("read_file"):
        return False
    r, w = s.r, s.world
    kinds = {"dir": [d for d in sorted(w.dirs) if d != "."], "bin": [p for p, t in w.files.items() if t is None], "empty": [p for p, t in w.files.items() if t == ""], "out": ["../" + n.file_name(r), "/" + n.word(r) + "/" + n.file_name(r), "../../" + n.word(r)], "no": [n.file_name(r), f"{r.choice(sorted(w.dirs))}/{n.file_name(r)}", n.word(r) + "/" + n.file_name(r)]}
    kind = r.choice([k for k, v in kinds.items() if v])
    path = r.choice(kinds[kind]).removeprefix("./")
    if (kind == "no" and path in w.files) or bare_is_listed(s, path):
        return False
    s.user(ph.say(r, READ_ASK if "." in path.rpartition("/")[2][1:] else READ_CLEAR, f=ph.quoted(r, path)))
    got = get_text(s, path)
    if got:
        read_answer(s, *got)
    return True


def t_first_line(s):
    got = ask_file(s, FIRST_LINE_ASK)
    if got:
        path, lines, _ = got
        s.say(f"The first line is:\n{lines[0]}", f"The first line of {path} is:\n{fenced(lines[:1])}")
    return got is not None


def t_first_n(s):
    k = s.r.randint(2, 6)
    got = ask_file(s, FIRST_N_ASK, k=k)
    if got:
        path, lines, _ = got
        s.say(f"I will quote the first {k} lines.", f"{path} begins:\n{fenced(lines[:k])}")
    return got is not None


def t_last_line(s):
    got = ask_file(s, LAST_LINE_ASK, ok=lambda p: len(s.world.files[p] or '') < 1500 and s.world.files[p].count("\n") < 39)
    if got:
        path, lines, more = got
        if more:
            return False
        s.say(f"The last line is:\n{lines[-1]}", f"The last line of {path} is:\n{fenced(lines[-1:])}")
    return got is not None


def t_line_k(s):
    """A given line, or from a given line on: start_line does the counting."""
    if not s.has("read_file"):
        return False
    picked = pick_file(s)
    if not picked:
        return False
    said, path, real = picked
    count = s.world.files[real].count("\n") + 1
    k = s.r.randint(2, max(2, count + (3 if s.r.random() < 0.15 else 0)))
    one = s.r.random() < 0.6
    s.user(ph.say(s.r, LINE_K_ASK if one else FROM_ASK, f=said, k=k))
    got = get_text(s, path, k)
    if got and one:
        s.say("The first line of the result is the one.", f"Line {k} of {path} is:\n{fenced(got[1][:1])}")
    elif got:
        path, lines, more = got
        s.say("The rest is long. I will show the beginning." if more else "I have the text. I will quote it.", f"From line {k} on, {path} says:\n{fenced(lines[:5] if more else lines)}")
    return True


def t_lines(s):
    if not s.has("read_file"):
        return False
    picked = pick_file(s)
    if not picked:
        return False
    said, path, _ = picked
    s.user(ph.say(s.r, LINES_ASK, f=said))
    out = s.one("A start past the end tells the number of lines.", "read_file", path=path, start_line=1000000)
    m = re.search(r"\((\d+) lines\)", out)
    s.say("The error gives the number of lines.", f"{path} has {plural(int(m.group(1)), 'line')}.")
    return True


def is_doc(s):
    return lambda p: p.endswith((".md", ".rst", ".txt")) or "README" in p


def t_heading(s):
    got = ask_file(s, HEADING_ASK, ok=lambda p: p.endswith(".md") or "README" in p)
    if got:
        heading_answer(s, got[0], got[1])
    return got is not None


def heading_answer(s, path, lines):
    h = f.heading(lines)
    if h:
        s.say(f"The first heading line is:\n{h}", f"The first heading of {path} is: {f.bare(h)}")
    else:
        s.say("There is no heading line. I will give the first line.", f"{path} has no heading. Its first line is:\n{fenced(lines[:1])}")


def t_headings(s):
    got = ask_file(s, HEADINGS_ASK, ok=lambda p: p.endswith(".md") or "README" in p)
    if got:
        path, lines, _ = got
        hs = f.headings(lines)
        s.say("Heading lines begin with #.", f"The headings of {path} are:\n{fenced(hs)}" if hs else f"{path} has no headings.")
    return got is not None


def about_answer(s, path, lines):
    h = f.heading(lines)
    t = f.first_text(lines, h)
    if h and t:
        s.say(f"The heading is:\n{h}\nThe first text is:\n{t}", f"{path} is about: {f.bare(h)}\n{t}")
    elif h:
        s.say(f"The heading is:\n{h}\nThere is no text.", f"{path} is about: {f.bare(h)}")
    elif t:
        s.say(f"There is no heading.\nThe first text is:\n{t}", f"{path} says:\n{t}")
    else:
        s.say("There is no heading and no text. I will give the first line.", f"{path} begins:\n{fenced(lines[:1])}")


def t_about(s):
    got = ask_file(s, ABOUT_ASK, ok=is_doc(s))
    if got:
        about_answer(s, got[0], got[1])
    return got is not None


README_READ = ["Read the readme.", "Show me the README.", "What does the readme say?", "Open the readme.", "cat the readme", "Show the readme file."]
README_ABOUT = ["Read the readme and tell me what the project is about.", "Summarize the readme.", "What is the readme about?", "Read the README and tell me what this project is.", "Explain the readme."] + PROJECT_ASK * 2
README_TITLE = ["What is the title of the readme?", "Read the readme and tell me its first heading.", "What is the first heading of the README?"]


def t_readme(s):
    """The README without its exact name, or the project as such: the listing of the root has the name."""
    if not s.has("list_dir", "read_file"):
        return False
    ask = s.r.choice([README_READ, README_ABOUT, README_ABOUT, README_TITLE])
    s.user(ph.say(s.r, ask))
    items = next((x for d, x in s.listings if d == "."), None)
    if items is None:
        out = s.one("I will look for a README in this directory.", "list_dir", path=".")
        items, _ = f.split_more(out, f.MORE)
        items = [] if items == ["(empty)"] else items
        s.listings.append((".", items))
    readme = next((x for x in items if x.upper().startswith("README") and not x.endswith("/")), None)
    if not readme:
        s.say("There is no README in the listing.", "There is no README in this directory.")
        return True
    got = get_text(s, readme)
    if not got:
        return True
    path, lines, more = got
    if ask is README_READ:
        read_answer(s, path, lines, more)
    elif ask is README_TITLE:
        heading_answer(s, path, lines)
    else:
        about_answer(s, path, lines)
    return True


def key_said(r, key):
    if r.random() < 0.25 and "_" in key:
        return key.replace("_", " ").lower() if r.random() < 0.7 else key.replace("_", " ")
    return ph.quoted(r, key)


def keyed(p):
    """Configuration and data rather than code or prose."""
    return p.rpartition(".")[2] not in n.CODE_EXT + ["html", "xml", "rst", "md", "vim", "Debian", "pas", "pp"] and "copyright" not in p and "README" not in p


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
    s.user(ph.say(r, VALUE_ASK, f=said, k=spoken))
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


def t_read_followup(s):
    """A question about the text read last, answered without a call."""
    if not s.reads or s.messages[-1]["role"] != "assistant":
        return False
    r, (path, lines, more) = s.r, s.reads[-1]
    if not any(m["role"] == "tool" for m in s.messages[-6:]):
        return False
    ks = f.keys(lines) if keyed(path) else {}
    k = r.random()
    if k < 0.4:
        s.user(ph.say(r, ["What was its first line?", "What was the first line of it?", "And the first line?", "How did it begin?"]))
        s.say(f"The first line is:\n{lines[0]}", f"The first line of {path} is:\n{fenced(lines[:1])}")
    elif k < 0.8 and ks:
        key = r.choice(sorted(ks))
        s.user(ph.say(r, ["And what is {k} there?", "What about {k}?", "And {k}?", "What was {k} in it?", "Which {k} does it have?"], k=ph.quoted(r, key)))
        s.say(f"The line is:\n{ks[key]}", f"{key} in {path} is {f.key_value(ks[key])}.")
    elif not more and len(lines) > 1:
        s.user(ph.say(r, ["And the last line?", "What was its last line?", "How did it end?"]))
        s.say(f"The last line is:\n{lines[-1]}", f"The last line of {path} is:\n{fenced(lines[-1:])}")
    else:
        return False
    return True


def t_two_reads(s):
    """Two or three files at once: parallel calls in one turn."""
    if not s.has("read_file"):
        return False
    r = s.r
    pool = [p for p in s.world.text_files() if len(s.world.files[p]) < 700 and " " not in p and not bare_is_listed(s, p)]
    if len(pool) < 3:
        return False
    files = r.sample(pool, r.choice([2, 2, 2, 3]))
    said = [ph.quoted(r, x) for x in files]
    both = ", ".join(said[:-1]) + " and " + said[-1]
    first = r.random() < 0.55
    s.user(ph.say(r, ["What are the first lines of {x}?", "Show the first line of {x}.", "Read {x} and tell me their first lines.", "First lines of {x}?"] if first else ["Read {x}.", "Show me {x}.", "Print {x}.", "What do {x} say?"], x=both))
    outs = s.call(f"I need {plural(len(files), 'file')}. I will read them together.", *[("read_file", {"path": x}) for x in files])
    parts = []
    for path, out in zip(files, outs):
        lines, more = f.split_more(out, f.MORE_LINES)
        if first:
            parts.append(f"The first line of {path} is:\n{fenced(lines[:1])}")
        else:
            parts.append(f"{path} is long. It begins:\n{fenced(lines[:5])}" if more else f"{path} says:\n{fenced(lines)}")
    s.say("I have the texts.", "\n".join(parts))
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


# Searching --------------------------------------------------------------------------------------------------------------------


def needle(s, code=False):
    """Text to look for: mostly something that is there, seldom frequent."""
    r, w = s.r, s.world
    pool = w.text_files()
    if not pool or r.random() < 0.12:
        return n.code_ident(r) if r.random() < 0.7 else n.noise(r, 5, 12)
    text = w.files[r.choice(pool)]
    for _ in range(8):
        words = re.findall(r"[A-Za-z_][\w]{3,}", text)
        if not words:
            return n.code_ident(r)
        x = r.choice(words)
        if code:
            defs = re.findall(r"(?:class|struct|def|#define|constexpr int|int|void|bool|float)\s+([A-Za-z_]\w{2,})", text)
            x = r.choice(defs) if defs else x
        elif r.random() < 0.2:
            m = re.search(re.escape(x) + r" \w+( \w+)?", text)
            x = m.group(0) if m else x
        if len(x) < 40 and sum(t.count(x) for t in w.files.values() if t) < r.choice([4, 8, 16, 60]):
            return x
    return n.code_ident(r)


def ask_search(s, templates, code=False, show=True):
    r = s.r
    x = needle(s, code)
    where, path = "", "."
    if r.random() < 0.3:
        d = r.choice(sorted(s.world.dirs))
        it, at, path = ph.place(r, d, s.world.root)
        where = " " + at
    elif r.random() < 0.12:
        picked = pick_file(s)
        if picked and picked[1] == picked[2] and picked[0].strip("\"'`") == picked[1]:
            where, path = " in " + picked[0], picked[1]
    s.user(ph.say(r, templates, x=ph.quoted(r, x) if " " not in x else f'"{x}"', w=where))
    out = s.one(f"I will search for {x} in {here(path)}.", "search", pattern=x, path=path)
    return x, path, out


def not_found(s, x, path):
    s.say("The search found nothing.", f"I found no {x} in {here(path)}.")


def search_ended(s, x, path, out):
    """Ends the task when there is nothing to report; True when it did."""
    if out == "no matches":
        not_found(s, x, path)
        return True
    if out.startswith("error: path leaves"):
        excuse(s, out, path)
        return True
    if out.startswith("error: "):
        s.say("The tool returned an error.", f"The tool returned an error: {out[len('error: '):]}")
        return True
    return False


def t_search(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, SEARCH_ASK)
    if not search_ended(s, x, path, out):
        s.say("I have the matches. I will report them.", f"{x} is in:\n{fenced(out.split(chr(10)))}")
    return True


def uniq(items):
    return list(dict.fromkeys(items))


def t_files(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, FILES_ASK)
    if not search_ended(s, x, path, out):
        hits, more = f.split_more(out, f.MORE_HITS)
        s.say("I will name each file once.", f"{x} is in these files:\n{fenced(uniq(f.hit_parts(h)[0] for h in hits))}" + (f"\nThere are {more} more matches." if more else ""))
    return True


def t_define(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, DEF_ASK, code=True)
    if not search_ended(s, x, path, out):
        hits, _ = f.split_more(out, f.MORE_HITS)
        hit = next((h for h in hits if f.defines(f.hit_parts(h)[2], x)), None)
        if hit:
            p, k, text = f.hit_parts(hit)
            s.say(f"This line defines it:\n{text}", f"{x} is defined in {p} on line {k}:\n{fenced([text])}")
        else:
            p, k, text = f.hit_parts(hits[0])
            s.say("No match is a definition. I will give the first match.", f"{x} is not defined in what I found. It is first mentioned in {p} on line {k}:\n{fenced([text])}")
    return True


def t_hits(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, HITS_ASK)
    if not search_ended(s, x, path, out):
        hits, more = f.split_more(out, f.MORE_HITS)
        if more and s.has("calc"):
            total = s.one(f"There are 15 matches and {more} more. I will add them.", "calc", expression=f"15 + {more}")
            s.say("I have the total.", f"{total} lines mention {x}.")
        elif more:
            s.say(f"There are 15 matches and {more} more.", f"15 lines and {more} more mention {x}.")
        else:
            s.say("I will number them.", numbered(hits) + f"\nThat is {plural(len(hits), 'line')} with {x}.")
    return True


def t_search_read(s):
    if not s.has("search", "read_file"):
        return False
    show = s.r.random() < 0.55
    x, path, out = ask_search(s, SEARCH_SHOW_ASK if show else SEARCH_READ_ASK, code=show)
    if search_ended(s, x, path, out):
        return True
    hits, _ = f.split_more(out, f.MORE_HITS)
    hit = next((h for h in hits if show and f.defines(f.hit_parts(h)[2], x)), hits[0])
    p, k, text = f.hit_parts(hit)
    if show:
        res = s.one(f"I take this match: {p} line {k}. I will read from there.", "read_file", path=p, start_line=k)
        lines, _ = f.split_more(res, f.MORE_LINES)
        s.say("I will quote the first lines.", f"{p} from line {k}:\n{fenced(lines[:6])}")
    else:
        res = s.one(f"The first match is in {p}. I will read it.", "read_file", path=p)
        lines, _ = f.split_more(res, f.MORE_LINES)
        s.say(f"The first line is:\n{lines[0]}", f"The first line of {p} is:\n{fenced(lines[:1])}")
    return True


# Numbers ----------------------------------------------------------------------------------------------------------------------


def line_numbers(lines):
    """The last number of each line that ends in one, as text."""
    return [m.group(1) for m in (re.search(r"(?:^|[\s,:=;])(-?\d+(?:\.\d+)?)\s*;?$", x) for x in lines) if m]


def t_sum(s):
    if not s.has("read_file", "calc"):
        return False
    r = s.r
    avg = r.random() < 0.25
    def addends(text):
        lines = text.strip().split("\n") if text else []
        return 2 <= len(lines) <= 8 and len(line_numbers(lines)) == len(lines)

    pool = [p for p, t in s.world.files.items() if addends(t)]
    if not pool and not s.listings:  # nobody has looked yet, so the file can still have been there
        name = n.stem(r) + r.choice([".txt", ".dat", ".list"])
        s.world.add(name, r.choice([texts.numbers, texts.ledger])(r))
        pool = [name] if addends(s.world.files.get(name)) else []
    if not pool:
        return False
    path = r.choice(pool)
    if bare_is_listed(s, path):
        return False
    said, call = ph.file(r, path, s.world.root)
    s.user(ph.say(r, AVG_ASK if avg else SUM_ASK, f=said))
    got = get_text(s, call)
    if not got:
        return True
    path, lines, _ = got
    nums = line_numbers(lines)
    expr = " + ".join(nums)
    expr = f"({expr}) / {len(nums)}" if avg else expr
    listed = ", ".join(f"{i}: {x}" for i, x in enumerate(nums, 1)) if avg else ", ".join(nums)
    total = s.one(f"The numbers are {listed}.", "calc", expression=expr)
    s.say("I have the result.", f"The {'average' if avg else 'sum'} of the numbers in {path} is {total}.")
    s.result = total
    return True


def t_column(s):
    if not s.has("read_file", "calc"):
        return False
    r = s.r
    pool = [p for p, t in s.world.files.items() if t and p.endswith(".csv") and t.count("\n") <= 8 and "," in t and not bare_is_listed(s, p)]
    if not pool:
        return False
    path = r.choice(pool)
    head, *rows = [x.split(",") for x in s.world.files[path].strip().split("\n")]
    cols = [i for i in range(1, len(head)) if rows and all(len(x) == len(head) and f.number_of(x[i]) for x in rows)]
    if not cols or len(set(head)) < len(head):
        return False
    i = r.choice(cols)
    said, call = ph.file(r, path, s.world.root)
    s.user(ph.say(r, COL_ASK, f=said, k=ph.quoted(r, head[i])))
    got = get_text(s, call)
    if got:
        nums = [x[i] for x in rows]
        total = s.one(f"The numbers are {', '.join(nums)}.", "calc", expression=" + ".join(nums))
        s.say("I have the result.", f"The sum of {head[i]} in {got[0]} is {total}.")
        s.result = total
    return True


def t_two_values(s):
    """Arithmetic on the same or different keys of one or two files."""
    if not s.has("read_file", "calc"):
        return False
    r, w = s.r, s.world
    pool = [(p, k, f.key_value(x)) for p in w.text_files() if keyed(p) and len(w.files[p]) < 900 and not bare_is_listed(s, p) and " " not in p for k, x in f.keys(w.files[p].split("\n")).items() if f.number_of(f.key_value(x))]
    if len(pool) < 2:
        return False
    (pa, ka, _), (pb, kb, _) = r.sample(pool, 2)
    op, ask = r.choice([("+", ["What is {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?"]), ("-", ["What is {a} minus {b}?", "What is the difference between {a} and {b}?"]), ("*", ["What is {a} times {b}?", "Multiply {a} by {b}."])])
    qa, qb = ph.quoted(r, ka), ph.quoted(r, kb)
    if pa == pb:
        s.user(ph.say(r, [t.rstrip("?.") + " in {f}" + t[-1] for t in ask], a=qa, b=qb, f=ph.quoted(r, pa)))
        outs = s.call(f"I need the text of {pa}. I will call {s.tool('read_file')}.", ("read_file", {"path": pa})) * 2
    else:
        s.user(ph.say(r, ask, a=f"{qa} in {ph.quoted(r, pa)}", b=f"{qb} in {ph.quoted(r, pb)}"))
        outs = s.call("I need both files. I will read them together.", ("read_file", {"path": pa}), ("read_file", {"path": pb}))
    la, lb = f.keys(f.split_more(outs[0], f.MORE_LINES)[0]).get(ka), f.keys(f.split_more(outs[1], f.MORE_LINES)[0]).get(kb)
    if not la or not lb:
        miss, where = (ka, pa) if not la else (kb, pb)
        s.say(f"There is no line for {miss}.", f"There is no {miss} in {where}.")
        return True
    expr = f"{f.key_value(la)} {op} {f.key_value(lb)}"
    out = s.one(f"{ka} is {f.key_value(la)} and {kb} is {f.key_value(lb)}.", "calc", expression=expr)
    s.say("I have the result.", f"{expr} = {out}.")
    s.result = out
    return True


def t_calc(s):
    """Arithmetic in the message, as an expression or in words."""
    r = s.r
    num = lambda: str(n.number(r)) if r.random() < 0.85 else f"{r.randint(0, 99)}.{r.randint(1, 99)}"
    a, b, c = num(), num(), num()
    k = r.random()
    if k < 0.4:
        expr = r.choice([f"{a} {r.choice('+-*/')} {b}", f"{a} {r.choice('+-*')} {b} {r.choice('+-*')} {c}", f"({a} {r.choice('+-')} {b}) {r.choice('*/')} {c}", f"{a} * ({b} - {c})", f"{a}{r.choice('+-*/')}{b}", f"{a} / {b}"])
        s.user(ph.say(r, ["What is {e}?", "{e}", "Calculate {e}.", "{e} = ?", "Compute {e}.", "How much is {e}?", "what's {e}", "Evaluate {e}.", "solve {e}"], e=expr))
    else:
        ask, expr = r.choice([("What is {a} plus {b}?", f"{a} + {b}"), ("What is {a} minus {b}?", f"{a} - {b}"), ("What is {a} times {b}?", f"{a} * {b}"), ("What is {a} divided by {b}?", f"{a} / {b}"), ("Multiply {a} by {b}.", f"{a} * {b}"),
                              ("Divide {a} by {b}.", f"{a} / {b}"), ("Add {a} and {b}.", f"{a} + {b}"), ("Subtract {b} from {a}.", f"{a} - {b}"), ("What is {a} percent of {b}?", f"{b} * {a} / 100"), ("What is {a}% of {b}?", f"{b} * {a} / 100"),
                              ("What is the sum of {a}, {b} and {c}?", f"{a} + {b} + {c}"), ("Add {a}, {b} and {c}.", f"{a} + {b} + {c}"), ("What is the average of {a}, {b} and {c}?", f"({a} + {b} + {c}) / 3"), ("What is the average of {a} and {b}?", f"({a} + {b}) / 2"),
                              ("What is the product of {a} and {b}?", f"{a} * {b}"), ("What is the difference between {a} and {b}?", f"{a} - {b}"), ("How much is {a} x {b}?", f"{a} * {b}"), ("What is the square of {a}?", f"{a} * {a}"), ("What is half of {a}?", f"{a} / 2"), ("Double {a}.", f"{a} * 2")])
        s.user(ph.say(r, [ask], a=a, b=b, c=c))
    if not s.has("calc"):
        s.say("There is no tool for arithmetic.", "I have no tool for arithmetic in this session.")
        return True
    out = s.one(f"This is arithmetic. I will call {s.tool('calc')}.", "calc", expression=expr)
    if out.startswith("error: division"):
        s.say("A division by zero has no result.", "I cannot divide by zero.")
    else:
        s.say("I have the result.", f"{expr} = {out}.")
        s.result = out
    return True


def t_calc_followup(s):
    if s.result is None or not s.has("calc") or s.messages[-1]["role"] != "assistant" or s.result not in s.messages[-1]["content"] or not f.number_of(s.result) or s.result.startswith("-"):
        return False
    r, b = s.r, str(n.number(s.r))
    ask, op = r.choice([("And times {b}?", f"* {b}"), ("Multiply that by {b}.", f"* {b}"), ("Add {b} to it.", f"+ {b}"), ("Now subtract {b}.", f"- {b}"), ("Divide that by {b}.", f"/ {b}"), ("And plus {b}?", f"+ {b}"), ("Double it.", "* 2"), ("And half of that?", "/ 2")])
    s.user(ph.say(r, [ask], b=b))
    expr = f"{s.result} {op}"
    out = s.one(f"The last result is {s.result}.", "calc", expression=expr)
    if out.startswith("error: "):
        s.say("A division by zero has no result.", "I cannot divide by zero.")
    else:
        s.say("I have the result.", f"{expr} = {out}.")
        s.result = out
    return True


# Writing ----------------------------------------------------------------------------------------------------------------------

WRITE_ASK = ['Write "{c}" to {f}.', "Write '{c}' into {f}.", 'Create {f} with the text "{c}".', 'Save "{c}" as {f}.', 'Put "{c}" in {f}.', "Create a file {f} that says \"{c}\".", 'Make a file {f} with the content "{c}".']
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
    if r.random() < 0.65:
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


TASKS = {t_list: 11, t_dirs: 4, t_ext: 4, t_count: 4, t_exists: 5, t_listed_followup: 6, t_read: 9, t_first_line: 3, t_first_n: 5, t_last_line: 2, t_line_k: 3, t_lines: 2, t_heading: 4, t_headings: 2, t_about: 6, t_readme: 5,
         t_value: 9, t_version: 3, t_read_followup: 4, t_two_reads: 3, t_two_lists: 2, t_compare: 4, t_search: 8, t_files: 3, t_define: 6, t_hits: 1.5, t_search_read: 4, t_sum: 4, t_column: 2, t_two_values: 3, t_calc: 5,
         t_calc_followup: 3, t_write: 4, t_copy: 1.5}
