"""Tasks over documents: headings, what a text is about, the README."""
from .. import facts as f
from .. import phrases as ph
from .access import get_text, read_answer
from .reading import ask_file
from .wording import fenced

HEADING_ASK = ["What is the first heading of {f}?", "Read {f} and tell me its first heading.", "What is the title of {f}?", "Tell me the title of {f}.", "Read {f} and tell me the title.", "What's the heading of {f}?", "Which title does {f} have?", "First heading of {f}?", "What is the first heading in {f}?"]
HEADINGS_ASK = ["List the headings of {f}.", "Which headings does {f} have?", "What sections does {f} have?", "Show all headings in {f}.", "What are the section titles of {f}?"]
ABOUT_ASK = ["What is {f} about?", "Read {f} and tell me what the project is about.", "Summarize {f}.", "Summarise {f} for me.", "Read {f} and tell me what it is about.", "What is the topic of {f}?", "Give me a summary of {f}.", "Explain {f}.", "What's {f} about?", "Describe {f}.", "Summarise {f}.", "Give me the gist of {f}.", "tl;dr {f}", "Sum up {f}.", "Short summary of {f}?",
             "Read {f} and summarize it.", "Tell me about {f}.", "Read {f} and tell me what this is about.", "Look at {f} and tell me what the project does."]
PROJECT_ASK = ["What is this project about?", "What is this project?", "What does this project do?", "Tell me about this project.", "What is this repository?", "Explain this project.", "What is this repo about?", "Describe this project.", "What is this about?", "Summarise this project.", "What does this repository contain?", "What is the project about?", "Give me an overview of this project.", "Explain what this project does."]


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
    t = f.first_sentence(lines, h)
    if h and t:
        s.say(f"The heading is:\n{h}\nThe first sentence is:\n{t}", f"{path} is about: {f.bare(h)}\n{t}")
    elif h:
        s.say(f"The heading is:\n{h}\nThere is no text.", f"{path} is about: {f.bare(h)}")
    elif t:
        s.say(f"There is no heading.\nThe first sentence is:\n{t}", f"{path} says:\n{t}")
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


LICENCE_ASK = ["Which license does this use?", "What license is this under?", "What is the license of this project?", "Which licence does this project have?", "Under which license is this project?", "What's the license?", "Is there a license?", "Tell me the license of this project."]


def t_licence(s):
    """The licence: the file is named in the listing of the root, its first lines say which it is."""
    if not s.has("list_dir", "read_file"):
        return False
    s.user(ph.say(s.r, LICENCE_ASK))
    items = next((x for d, x in s.listings if d == "."), None)
    if items is None:
        out = s.one("I will look for a license file in this directory.", "list_dir", path=".")
        items, _ = f.split_more(out, f.MORE)
        items = [] if items == ["(empty)"] else items
        s.listings.append((".", items))
    found = next((x for x in items if x.upper().startswith(("LICENSE", "LICENCE", "COPYING")) and not x.endswith("/")), None)
    if not found:
        s.say("There is no license file in the listing.", "There is no license file in this directory.")
        return True
    got = get_text(s, found)
    if got:
        line = next((x for x in got[1] if x.strip()), got[1][0])
        s.say(f"The first line with text is:\n{line}", f"{got[0]} says:\n{fenced([line])}")
    return True
