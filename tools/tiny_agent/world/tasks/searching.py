"""Tasks over search."""
import re

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .access import excuse
from .picking import pick_file
from .wording import fenced, here, numbered, plural, uniq

SEARCH_ASK = ["Where is {x} used{w}?", "Where is {x} mentioned{w}?", "Search for {x}{w}.", "Find {x}{w}.", "grep {x}{w}", "Where does {x} appear{w}?", "Look for {x}{w}.", "Which lines mention {x}{w}?", "Find where {x} is used{w}.", "Find all uses of {x}{w}.", "Find where {x} is mentioned{w}.", "Where can I find {x}{w}?",
              "Show me every line with {x}{w}.", "Where do we use {x}{w}?", "Search {x}{w}", "Where is {x}{w}?"]
FILES_ASK = ["Which files mention {x}{w}?", "Which file contains {x}{w}?", "What files use {x}{w}?", "Find the files that contain {x}{w}.", "Which file mentions {x}{w}?", "In which files is {x}{w}?", "In which file is {x}{w}?", "What file is {x} in{w}?", "List the files with {x}{w}."]
DEF_ASK = ["Where is {x} defined{w}?", "Which file defines {x}{w}?", "Find the definition of {x}{w}.", "Find where {x} is defined{w}.", "Where is the definition of {x}{w}?", "In what file is {x} defined{w}?", "In which file is {x} defined{w}?", "In which file is {x} declared{w}?", "Where is {x} declared{w}?", "Where do we define {x}{w}?", "where is {x} defined{w}", "Who defines {x}{w}?", "Show me where {x} is declared{w}."]
HITS_ASK = ["How many lines mention {x}{w}?", "How often does {x} appear{w}?", "How many times is {x} used{w}?", "Count the lines with {x}{w}."]
SEARCH_READ_ASK = ["Find the file that mentions {x}{w} and tell me its first line.", "Search for {x}{w}, then read the first file you find and tell me its first line.", "Find {x}{w} and show me the first line of that file."]
SEARCH_SHOW_ASK = ["Find {x}{w} and show me the code there.", "Show me the code of {x}{w}.", "Find the definition of {x}{w} and show it.", "Search for {x}{w} and show the lines that follow.", "Show me the source of {x}{w}."]


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


NOUNS = ["function", "class", "variable", "method", "constant", "struct", "type", "symbol", "word", "macro", "option", "name", "string", "field"]


def said_needle(r, x):
    """The text as somebody puts it: a phrase in quotes, a name now and then with what kind of name it is."""
    if " " in x:
        return (r.choice(["the text ", "the phrase "]) if r.random() < 0.2 else "") + f'"{x}"'
    return (f"the {r.choice(NOUNS)} " if r.random() < 0.25 else "") + ph.quoted(r, x)


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
    s.user(ph.say(r, templates, x=said_needle(r, x), w=where))
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


def t_files(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, FILES_ASK)
    if not search_ended(s, x, path, out):
        hits, more = f.split_more(out, f.MORE_HITS)
        s.say("I will name each file once.", f"{x} is in these files:\n{fenced(uniq(f.hit_parts(h)[0] for h in hits))}" + (f"\nThere are {more} more matches." if more else ""))
    return True


def until_definition(hits, x):
    """(the matches as they are read, up to one that defines x; that one or None): path and line come before the text, so they are copied first and judged then."""
    at = next((i for i, h in enumerate(hits) if f.defines(f.hit_parts(h)[2], x)), None)
    return "\n".join(hits if at is None else hits[: at + 1]), None if at is None else hits[at]


def t_define(s):
    if not s.has("search"):
        return False
    x, path, out = ask_search(s, DEF_ASK, code=True)
    if not search_ended(s, x, path, out):
        hits, _ = f.split_more(out, f.MORE_HITS)
        read, hit = until_definition(hits, x)
        if hit:
            p, k, text = f.hit_parts(hit)
            s.say(f"I go through the matches.\n{read}\nThis one defines it.", f"{x} is defined in {p} on line {k}:\n{fenced([text])}")
        else:
            p, k, text = f.hit_parts(hits[0])
            s.say(f"I go through the matches.\n{read}\nNone defines it. I will give the first match.", f"{x} is not defined in what I found. It is first mentioned in {p} on line {k}:\n{fenced([text])}")
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
    read, hit = until_definition(hits, x) if show else ("", None)
    p, k, text = f.hit_parts(hit or hits[0])
    if show:
        res = s.one(f"I go through the matches.\n{read}\n{'This one defines it.' if hit else 'None defines it. I take the first match.'} I will read {p} from line {k}.", "read_file", path=p, start_line=k)
        lines, _ = f.split_more(res, f.MORE_LINES)
        s.say("I will quote the first lines.", f"{p} from line {k}:\n{fenced(lines[:6])}")
    else:
        res = s.one(f"The first match is in {p}. I will read it.", "read_file", path=p)
        lines, _ = f.split_more(res, f.MORE_LINES)
        s.say(f"The first line is:\n{lines[0]}", f"The first line of {p} is:\n{fenced(lines[:1])}")
    return True
