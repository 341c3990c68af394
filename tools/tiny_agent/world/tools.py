"""The agent's built-in tools, simulated: results are byte for byte those of the real ones."""
import re
from fractions import Fraction

LIST_MAX, READ_LINES, READ_BYTES, HITS_MAX, HIT_BYTES = 30, 40, 2000, 15, 100


def schema(name, description, props, required):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {"type": "object", "properties": props, "required": required}}}


def _p(kind, description):
    return {"type": kind, "description": description}


BUILTIN = {
    "list_dir": schema("list_dir", "List the entries of a directory.", {"path": _p("string", "Directory path")}, ["path"]),
    "read_file": schema("read_file", "Read a text file.", {"path": _p("string", "File path"), "start_line": _p("integer", "First line to read, from 1")}, ["path"]),
    "search": schema("search", "Find lines that contain a text.", {"pattern": _p("string", "Text to look for"), "path": _p("string", "File or directory to search")}, ["pattern", "path"]),
    "calc": schema("calc", "Evaluate an arithmetic expression.", {"expression": _p("string", "Expression with + - * / and parentheses")}, ["expression"]),
    "write_file": schema("write_file", "Write a text file.", {"path": _p("string", "File path"), "content": _p("string", "Text to write")}, ["path", "content"]),
}


def cut(text, limit):
    """At most `limit` bytes, ending on a code point."""
    b = text.encode()
    return text if len(b) <= limit else b[:limit].decode("utf-8", "ignore")


def split_lines(text):
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def resolve(world, path):
    """The path relative to the root, or None when it leaves the root."""
    if path.startswith("/"):
        if path != world.root and not path.startswith(world.root + "/"):
            return None
        path = path[len(world.root):]
    parts = []
    for x in path.split("/"):
        if x == "..":
            if not parts:
                return None
            parts.pop()
        elif x not in ("", "."):
            parts.append(x)
    return "/".join(parts) or "."


def list_dir(world, path):
    p = resolve(world, path)
    if p is None:
        return f"error: path leaves the root: {path}"
    if p in world.files:
        return f"error: not a directory: {path}"
    if p not in world.dirs:
        return f"error: no such directory: {path}"
    names = world.children(p)
    more = [f"... {len(names) - LIST_MAX} more"] if len(names) > LIST_MAX else []
    return "\n".join(names[:LIST_MAX] + more) or "(empty)"


def read_file(world, path, start_line=1):
    p = resolve(world, path)
    if p is None:
        return f"error: path leaves the root: {path}"
    if p in world.dirs:
        return f"error: is a directory: {path}"
    if p not in world.files:
        return f"error: no such file: {path}"
    if world.files[p] is None:
        return f"error: not a text file: {path}"
    lines = split_lines(world.files[p])
    if not world.files[p]:
        return "(empty)"
    if start_line > len(lines):
        return f"error: start_line {start_line} is past the end ({len(lines)} lines)"
    out, used = [], 0
    for line in lines[start_line - 1: start_line - 1 + READ_LINES]:
        size = len(line.encode()) + 1
        if used + size > READ_BYTES + 1:
            if not out:
                out.append(cut(line, READ_BYTES) + " [cut]")
            break
        out.append(line)
        used += size
    left = len(lines) - (start_line - 1) - len(out)
    return "\n".join(out + ([f"... {left} more lines"] if left else []))


def search(world, pattern, path):
    p = resolve(world, path)
    if p is None:
        return f"error: path leaves the root: {path}"
    if p not in world.dirs and p not in world.files:
        return f"error: no such path: {path}"
    pre = "" if p == "." else p + "/"
    hits = []
    for f in sorted(world.files, key=str.encode):
        if (f == p or f.startswith(pre)) and world.files[f] and pattern in world.files[f] and not ({".git", "build"} & set(f.split("/")[:-1])):
            hits += [f"{f}:{i}: {cut(line.strip(), HIT_BYTES)}" for i, line in enumerate(split_lines(world.files[f]), 1) if pattern in line]
    more = [f"... {len(hits) - HITS_MAX} more matches"] if len(hits) > HITS_MAX else []
    return "\n".join(hits[:HITS_MAX] + more) or "no matches"


def _number(text):
    return Fraction(text)


def evaluate(expression):
    """Exact value by recursive descent; ValueError for anything that is not arithmetic."""
    toks = re.findall(r"\d+\.\d*|\.\d+|\d+|[-+*/()]|\S", expression)
    pos = 0

    def peek():
        return toks[pos] if pos < len(toks) else ""

    def take():
        nonlocal pos
        pos += 1
        return toks[pos - 1]

    def unary():
        if peek() in ("-", "+"):
            return -unary() if take() == "-" else unary()
        if peek() == "(":
            take()
            v = total()
            if peek() != ")":
                raise ValueError
            take()
            return v
        if not re.fullmatch(r"\d+\.?\d*|\.\d+", peek()):
            raise ValueError
        return _number(take())

    def product():
        v = unary()
        while peek() in ("*", "/") and peek():
            v = v * unary() if take() == "*" else v / unary()
        return v

    def total():
        v = product()
        while peek() in ("+", "-") and peek():
            v = v + product() if take() == "+" else v - product()
        return v

    v = total()
    if pos != len(toks):
        raise ValueError
    return v


def calc(world, expression):
    try:
        v = evaluate(expression)
    except ZeroDivisionError:
        return "error: division by zero"
    except ValueError:
        return f"error: bad expression: {expression}"
    return str(v.numerator) if v.denominator == 1 else format(float(v), ".12g")


def write_file(world, path, content):
    p = resolve(world, path)
    if p is None:
        return f"error: path leaves the root: {path}"
    if p in world.dirs:
        return f"error: is a directory: {path}"
    d = p.rpartition("/")[0] or "."
    if d not in world.dirs:
        return f"error: no such directory: {path.rpartition('/')[0]}"
    world.add(p, content)
    return f"wrote {len(content.encode())} bytes to {path}"


RUN = {"list_dir": list_dir, "read_file": read_file, "search": search, "calc": calc, "write_file": write_file}
