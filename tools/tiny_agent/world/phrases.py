"""How people put things: references to places, politeness, typing errors. None of it changes what is meant."""
import re

HERE_AT = ["here", "in here", "in this folder", "in this directory", "in the current directory", "in this project", "in the root", "in the root directory", "in the project", "in the current folder", "in the repo", "in this repository", "at the top level", "in .", "in the main folder", "in the top directory", "in the working directory"]
HERE_IT = ["this folder", "this directory", "the current directory", "this project", "the root directory", "the project", "the root", "the current folder", "the repo", "this repository", "the top level", ".", "the main folder", "the working directory"]

IMPERATIVE_PRE = ["please ", "Please ", "can you ", "Can you ", "could you ", "Could you please ", "I want you to ", "I'd like you to ", "you should ", "now ", "Now ", "ok, ", "then ", "next, ", "hey, ", "Hi! ", "go ahead and ", "I need you to ", "just ", "quickly ", "Would you ", "let's "]
QUESTION_PRE = ["tell me, ", "hey, ", "Hi, ", "ok, ", "and ", "so ", "now, ", "quick question: ", "I wonder: ", "please tell me: ", "one more: ", "next: "]
ASIDE = ["I am new to this project.", "I have just cloned this.", "Hi there!", "I have a question.", "I need some help.", "Thanks.", "I am looking for something.", "Good, next one.", "Sorry to bother you.", "Here is my question:", "Task:", "I'm not sure where to look.", "It is for a report.", "Take your time."]
POST = [" please", ", please", " thanks", ", thank you", " for me", " now", " again"]


def typo(r, w):
    if len(w) < 4:
        return w
    i = r.randrange(1, len(w) - 1)
    return r.choice([w[:i] + w[i + 1:], w[:i] + w[i + 1] + w[i] + w[i + 2:], w[:i] + w[i] + w[i:]])


def say(r, templates, **slots):
    """One template, made human, with its slots filled in untouched."""
    t = r.choice(templates)
    question = t.endswith("?")
    k = r.random()
    if k < 0.3:
        pre = r.choice(QUESTION_PRE if question else IMPERATIVE_PRE)
        t = pre + (t[0].lower() + t[1:] if not t.startswith(("{", "I ")) else t)
    if r.random() < 0.1 and not t.endswith(("}.", "{c}")):
        t = t.rstrip(".?") + r.choice(POST) + ("?" if question else r.choice(["", ".", "!"]))
    k = r.random()
    if k < 0.2:
        t = t[0].lower() + t[1:] if t[0] != "{" else t
    elif k < 0.3:
        t = re.sub(r"(^|\})[^{]*", lambda m: m.group(0).lower(), t)
    if r.random() < 0.25:
        t = t.rstrip(".?!")
    if r.random() < 0.07:
        parts = re.split(r"(\{[^}]*\}|\s+)", t)
        idx = [i for i, x in enumerate(parts) if x.isalpha() and len(x) > 3]
        if idx:
            i = r.choice(idx)
            parts[i] = typo(r, parts[i])
            t = "".join(parts)
    text = t.format(**slots)
    return f"{r.choice(ASIDE)} {text}" if r.random() < 0.04 else text


def spelled(r, path, root):
    """The path as somebody types it, quoting apart."""
    k = r.random()
    if k < 0.06:
        return "./" + path
    if k < 0.09:
        return f"{root}/{path}"
    return path


def quoted(r, text):
    if " " in text or re.search(r"[,;:!?]|\.$", text):
        return r.choice("\"`'") .join(["", text, ""]) if "'" not in text and "`" not in text else f'"{text}"'
    k = r.random()
    return f"`{text}`" if k < 0.14 else f'"{text}"' if k < 0.22 else f"'{text}'" if k < 0.27 else text


def place(r, path, root):
    """A directory: (as object, with preposition, path for the call)."""
    if path == ".":
        if r.random() < 0.08:
            return root, "in " + root, root
        return r.choice(HERE_IT), r.choice(HERE_AT), "."
    p = spelled(r, path, root)
    if r.random() < 0.18 and not p.endswith("/"):
        p += "/"
    q = quoted(r, p)
    k = r.random()
    it = q if k < 0.5 else f"the {q} {r.choice(['folder', 'directory', 'dir'])}" if k < 0.7 else f"the {r.choice(['folder', 'directory', 'folder called', 'directory named', 'directory of', 'subdirectory'])} {q}" if k < 0.9 else f"{r.choice(['folder', 'directory', 'the directory', 'the folder'])} {q}"
    if "/" in path and p == path and q == p and r.random() < 0.12:
        d, _, b = path.rpartition("/")
        it = f"{b} in {d}" if r.random() < 0.5 else f"the {b} folder inside {d}"
    return it, r.choice(["in ", "in ", "in ", "inside ", "under ", "inside of "]) + it, p


def file(r, path, root):
    """A file: (as said, path for the call)."""
    p = spelled(r, path, root)
    q = quoted(r, p)
    k = r.random()
    if k < 0.68:
        return q, p
    if k < 0.8:
        return f"the file {q}", p
    if k < 0.85:
        return r.choice([f"the {q} file", f"the file called {q}", f"the file named {q}", f"my {q} file"]), p
    if k < 0.93 and "/" in path and p == path and q == p:
        d, _, b = path.rpartition("/")
        if " " not in path:
            return r.choice([f"{b} in {d}", f"{b} from the {d} folder", f"{b} inside {d}"]), p
    return f"file {q}", p
