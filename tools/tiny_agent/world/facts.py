"""Reading facts back out of visible text. Gold answers come from here only, so they are functions of what the model sees."""
import re

MORE_LINES = re.compile(r"^\.\.\. (\d+) more lines$")
MORE = re.compile(r"^\.\.\. (\d+) more$")
MORE_HITS = re.compile(r"^\.\.\. (\d+) more matches$")


def split_more(result, pattern):
    """(lines without the tail line, N of the tail or 0)."""
    lines = result.split("\n")
    m = pattern.match(lines[-1])
    return (lines[:-1], int(m.group(1))) if m else (lines, 0)


def heading(lines):
    """The first Markdown heading line, or None."""
    return next((x for x in lines if re.match(r"#+ +\S", x)), None)


def headings(lines):
    return [x for x in lines if re.match(r"#+ +\S", x)]


def bare(heading_line):
    return heading_line.lstrip("#").strip()


def first_sentence(lines, after=None):
    """The first sentence of plain prose after the given line, as whole lines but the last, which ends where the sentence does: at most four lines, none blank."""
    start = lines.index(after) + 1 if after in lines else 0
    first = next((i for i in range(start, len(lines)) if re.match(r"\s*(?![*] )[A-Za-z\"'*_`(]", lines[i]) and len(lines[i].split()) > 1), None)
    if first is None:
        return None
    out = []
    for x in lines[first: first + 4]:
        if not x.strip():
            break
        m = re.search(r"[.!?](?=\s|$)", x)
        out.append(x[: m.end()] if m else x.rstrip())
        if m:
            break
    return "\n".join(out).strip()


KEY_LINE = re.compile(r"""^\s*(?:export\s+|set\s+|constexpr int\s+|\#define\s+)?["']?([A-Za-z][\w.-]*)["']?(?:\s*(?::=|[:=])\s*|\s+)(\S.*?)\s*$""")


def clean(value):
    """A value without its closing punctuation and quotes."""
    v = value.strip()
    v = v.rstrip(",;")
    if len(v) >= 2 and v[0] == v[-1] and v[0] in "\"'":
        v = v[1:-1]
    return v


def keys(lines):
    """{key: line} for lines that set a scalar, first wins; keys that occur more than once are left out."""
    out, seen = {}, set()
    for x in lines:
        if x.lstrip().startswith(("//", "# ", "#!", "[", "- ", "* ", "|", "<")) or len(x) > 120:
            continue
        m = KEY_LINE.match(x)
        if m and m.group(1) not in seen:
            v = clean(m.group(2))
            spaced = not re.search(r"[:=]", x[m.end(1) - m.start(): m.start(2) - m.start() + 1])
            if spaced and len(x.split()) - bool(re.match(r"\s*(export|set|#define) ", x)) != 2:
                continue
            if v and v[0] not in "{[(:=" and v[-1] not in "{[(.:" and len(v.split()) <= 6:
                out[m.group(1)] = x.strip()
        if m:
            seen.add(m.group(1))
    return out


def key_value(line):
    return clean(KEY_LINE.match(line).group(2))


DEF_WORDS = "class|struct|def|fn|func|function|#define|enum|namespace|const|constexpr|int|void|bool|char|float|double|using|typedef|type|let|var|interface|trait|sub"


def defines(text, name):
    e = re.escape(name)
    return bool(re.search(rf"(?:^|\s)(?:{DEF_WORDS})\s+[*&]?{e}\b", text) or re.match(rf"{e}\s*=[^=]", text))


def hit_parts(hit):
    """path, line, text of a search hit."""
    m = re.match(r"(.*?):(\d+): ?(.*)$", hit)
    return m.group(1), int(m.group(2)), m.group(3)


def number_of(text):
    m = re.fullmatch(r"-?\d+(?:\.\d+)?", text)
    return text if m else None
