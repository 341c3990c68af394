"""Tasks over the text of files."""
import re

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .access import get_text, read_answer
from .picking import bare_is_listed, keyed, maybe_wrong, pick_file
from .wording import fenced, plural

READ_CLEAR = ["Read {f}.", "What does {f} say?", "Print {f}.", "cat {f}", "Open {f}.", "Show the text of {f}.", "Read {f} to me.", "Quote {f}.", "Read {f} and show it.", "Print the text of {f}.", "What is written in {f}?", "Read out {f}.", "Give me the text of {f}."]
READ_EITHER = ["Show me {f}.", "What is in {f}?", "Display {f}.", "Give me the contents of {f}.", "What's in {f}?", "Let me see {f}.", "What are the contents of {f}?", "whats in {f}", "Show {f}.", "Please output {f}.", "What does {f} contain?"]
READ_ASK = READ_CLEAR + READ_EITHER
FIRST_LINE_ASK = ["What is the first line of {f}?", "Show the first line of {f}.", "Read {f} and tell me its first line.", "First line of {f}?", "How does {f} begin?", "How does {f} start?", "Read {f} and tell me the first line."]
FIRST_N_ASK = ["Show the first {k} lines of {f}.", "What are the first {k} lines of {f}?", "Print the first {k} lines of {f}.", "head -{k} {f}", "Give me the top {k} lines of {f}.", "Read {f} and quote the first {k} lines."]
LAST_LINE_ASK = ["What is the last line of {f}?", "Show the last line of {f}.", "How does {f} end?", "Read {f} and tell me its last line."]
LINE_K_ASK = ["What is on line {k} of {f}?", "Show line {k} of {f}.", "Read line {k} of {f}.", "What does line {k} of {f} say?", "Print line {k} of {f}.", "line {k} of {f}?"]
FROM_ASK = ["Show {f} from line {k}.", "Read {f} starting at line {k}.", "Print {f} from line {k} on.", "Read {f} from line {k} onwards.", "What comes in {f} from line {k} on?"]
LINES_ASK = ["How many lines does {f} have?", "How long is {f}?", "Count the lines of {f}.", "Number of lines in {f}?", "How many lines are in {f}?", "wc -l {f}"]


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
        s.say(f"I will count to {k}.\n" + "\n".join(f"{i}:\n{x}" for i, x in enumerate(lines[:k], 1)), f"{path} begins:\n{fenced(lines[:k])}")
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


def t_read_followup(s):
    """A question about the text read last, answered without a call."""
    if not s.reads or not s.last_call_was("read_file", {"path": s.reads[-1][0]}):
        return False
    r, (path, lines, more) = s.r, s.reads[-1]
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
