"""Listing and reading with what errors lead to: each either gives the content or ends the task with an answer."""
import re

from .. import facts as f
from .wording import fenced, here, plural, subject, tail


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
    s.listings.append((parent, [] if items == ["(empty)"] else items))
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


def list_answer(s, path, items, more):
    if not items:
        s.say("The listing is empty.", f"{subject(path)} is empty.")
    else:
        s.say("I have the listing. I will report it.", f"{subject(path)} has:\n{fenced(items + tail(more))}")


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


def read_answer(s, path, lines, more):
    if more:
        s.say(f"The file is long: {more} more lines follow. I will show the beginning.", f"{path} is long. It begins:\n{fenced(lines[:5])}")
    else:
        s.say("I have the text. I will quote it.", f"{path} says:\n{fenced(lines)}")
